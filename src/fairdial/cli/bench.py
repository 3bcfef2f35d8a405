"""``fairdial bench run|status|report|pack|verify``; other modules add `tune` and `adopt`."""

from __future__ import annotations

import os
import shlex
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from fairdial.bench import PLAN, RECORDS
from fairdial.cli import options
from fairdial.cli.errors import FAILED, INTERRUPTED, F
from fairdial.cli.output import Output
from fairdial.cli.tune import SPACE, bench_adopt, bench_tune
from fairdial.errors import InvalidInputError

if TYPE_CHECKING:
    from rich.progress import Progress

    from fairdial.bench.plan import Plan
    from fairdial.bench.run import Status

DATA = "FAIRDIAL_DATA"


@click.group()
def bench() -> None:
    """Run a study, show its progress, write its report."""


bench.add_command(bench_tune)
bench.add_command(bench_adopt)


def _out(text: str) -> Callable[[F], F]:
    """Return the option for the folder of a study."""
    folder = click.Path(file_okay=False, path_type=Path)
    return click.option("--out", required=True, type=folder, help=text)


@bench.command("run")
@click.argument("plan")
@_out("Folder of the study; finished trials in it aren't run again.")
@click.option(
    "--jobs",
    type=options.Integer(min=1),
    help="Number of trials at once. [default: all processors]",
)
@click.option(
    "--backend",
    type=click.Choice(["loky", "dask", "ray"]),
    default="loky",
    show_default=True,
    help="Where to run trials: in processes of this machine, or on a cluster.",
)
@click.option("--scheduler", help="Address of the dask scheduler or ray cluster.")
@click.option(
    "--dataset", "only", multiple=True, help="Run only this data set of the plan; repeatable."
)
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help=f"Folder with images and pretrained weights. [default: environment variable {DATA}]",
)
@options.reporting
def bench_run(
    plan: str,
    out: Path,
    jobs: int | None,
    backend: str,
    scheduler: str | None,
    only: tuple[str, ...],
    data: Path | None,
    show: Output,
) -> None:
    """Run the missing trials of PLAN, a TOML file or one of the plans that come with fairdial.

    These are quick, paper-tabular, paper-images, images-frozen, confirm, published and
    published-training.

    Each trial is stored when it is done. Interrupt at any time; the same command resumes.
    """
    from fairdial.bench import plan as plans
    from fairdial.bench import run as running
    from fairdial.bench.store import Store
    from fairdial.bench.tuned import keep_tuned, tuned_path

    chosen = plans.read_plan(plan)
    text = plans.plan_text(plan)
    if only:
        text = plans.narrow(text, only)
        chosen = plans.make_plan(tomllib.loads(text))
    if data is not None:
        os.environ[DATA] = str(data.resolve())
    plans.keep_plan(text, out / PLAN)
    current, chosen = chosen, keep_tuned(chosen, out / PLAN)
    if chosen.trials() != current.trials():
        show.note(
            f"The study goes on with the tuned values in {tuned_path(out / PLAN)}; the library's "
            "are others now. A new folder starts with those."
        )
    store = Store(out / RECORDS)
    before = running.status(chosen, store)
    shown = None if show.as_json or show.quiet else Trials(before.missing, bar=show.progress)
    try:
        after = running.run(
            chosen, store, n_jobs=jobs, backend=backend, scheduler=scheduler, reporter=shown
        )
    except KeyboardInterrupt:
        kept = running.status(chosen, store)
        click.echo(
            f"Interrupted: {kept.done} of {kept.total} trials are stored; run it again to resume.",
            err=True,
        )
        sys.exit(INTERRUPTED)
    reasons = running.reasons(chosen, store)
    counts, line = _progress(after)
    trials = [f"  {n} trial{'s' if n > 1 else ''}: {reason}" for reason, n in reasons.items()]
    show.result(counts | {"reasons": reasons}, line, *trials)
    if after.done and not show.as_json:
        show.note(f"To write the report: fairdial bench report --out {shlex.quote(str(out))}")
    if after.failed:
        sys.exit(FAILED)


@bench.command("status")
@_out("Folder of the study.")
@options.reporting
def bench_status(out: Path, show: Output) -> None:
    """Show how much of the study in --out is done, and what failed."""
    from fairdial.bench import run as running
    from fairdial.bench.store import Store

    plan, store = _plan_of(out), Store(out / RECORDS)
    found = running.status(plan, store)
    failures = []
    for config in plan.trials():
        error = store.failure(config)
        if error is not None:
            method = config["method"]["name"]
            failures.append(f"  {config['dataset']}, {method}, seed {config['seed']}: {error}")
    show.result(*_progress(found), *failures)


@bench.command("report")
@_out("Folder of the study.")
@click.option(
    "--to",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the report. [default: report/ in --out]",
)
@click.option("--markdown", is_flag=True, help="Write only Markdown and PNG figures.")
@options.reporting
def bench_report(out: Path, to: Path | None, markdown: bool, show: Output) -> None:
    """Write the tables and figures of the study in --out as Markdown, LaTeX and HTML."""
    from fairdial.bench.report import write_report
    from fairdial.bench.store import Store

    plan = _plan_of(out)
    records = Store(out / RECORDS).records(plan.trials())
    paths = write_report(plan, records, to or out / "report", markdown=markdown)
    written = [str(path) for path in paths]
    show.result({"written": written}, *written)


@bench.command("pack")
@_out("Folder of the study.")
@options.reporting
def bench_pack(out: Path, show: Output) -> None:
    """Move the records of the study in --out into one compressed file."""
    from fairdial.bench.store import Store

    if not (out / SPACE).is_file():
        _plan_of(out)
    store = Store(out / RECORDS)
    packed = store.pack()
    show.result({"records": packed, "file": str(store.packed)}, f"{packed} records: {store.packed}")


@bench.command("verify")
@click.argument("study", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--sample",
    type=options.Integer(min=1),
    default=5,
    show_default=True,
    help="Number of trials to repeat, drawn at random.",
)
@click.option(
    "--seed", type=options.Integer(min=0), default=0, show_default=True, help="Seed of the draw."
)
@click.option(
    "--jobs", type=options.Integer(min=1), default=1, show_default=True, help="Trials at once."
)
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help=f"Folder with images and pretrained weights. [default: environment variable {DATA}]",
)
@options.reporting
def bench_verify(
    study: Path, sample: int, seed: int, jobs: int, data: Path | None, show: Output
) -> None:
    """Repeat some trials of STUDY with this code, and compare how many rows they select.

    STUDY is the folder of a study, or a plan NAME.toml with its packed records, NAME.jsonl.xz,
    beside it. Counts are compared by label and group at all operating points; so are data, rows and
    epochs. The exit code is 1 if anything differs.
    """
    from dataclasses import asdict

    from fairdial.bench import verify as verifying
    from fairdial.bench.curves import open_study

    if data is not None:
        os.environ[DATA] = str(data.resolve())
    records = [r for r in open_study(study).records if r["config"]["kind"] == "study"]
    if not records:
        raise InvalidInputError("study", "have finished trials", given=f"none in {study}")
    found = []
    for comparison in verifying.verify(verifying.draw(records, sample, seed), n_jobs=jobs):
        show.note(str(comparison))
        found.append(comparison)
    differing = sum(not comparison.same for comparison in found)
    line = f"{len(found)} of {len(records)} trials repeated, {differing} differ."
    counts = {"repeated": len(found), "differing": differing, "trials": list(map(asdict, found))}
    show.result(counts, line)
    if differing:
        sys.exit(FAILED)


def _plan_of(out: Path) -> Plan:
    from fairdial.bench.tuned import read_study_plan

    if not (out / PLAN).is_file():
        raise InvalidInputError("out", "be the folder of a study", given=f"{out} without {PLAN}")
    return read_study_plan(out / PLAN)


def _progress(found: Status) -> tuple[dict[str, int], str]:
    """Return how far a study is, as data and as a line."""
    counts = {"total": found.total, "done": found.done, "failed": found.failed}
    failed = f", {found.failed} failed" if found.failed else ""
    line = f"{found.done} of {found.total} trials done{failed}."
    return counts | {"missing": found.missing}, line


def time_left(seconds: float) -> str:
    """Return about how long something still takes."""
    return "less than a minute" if seconds < 60 else f"about {seconds / 60:.1f} minutes"


class Trials:
    """Show trials as they end: a bar on a terminal, a line each elsewhere."""

    def __init__(self, total: int, *, bar: bool) -> None:
        self._total, self._wants_bar = total, bar
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        if self._wants_bar and self._total:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            self._bar = Progress(
                TextColumn("trials"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[text]}"),
                console=Console(stderr=True),
            )
            self._task = self._bar.add_task("trials", total=self._total, text="starting")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, record: dict[str, Any]) -> None:
        """Show that one more trial is done."""
        left = record["seconds"] / record["done"] * (record["total"] - record["done"])
        text = f"{record['running']} running, {time_left(left)} left"
        if self._bar is not None:
            self._bar.update(self._task, advance=1, text=f"{text}; last: {record['trial']}")
        else:
            click.echo(f"{record['done']}/{record['total']} {record['trial']}; {text}", err=True)
