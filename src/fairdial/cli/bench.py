"""``fairdial bench run|status|report``: studies."""

from __future__ import annotations

import os
import shlex
import sys
import tomllib
from pathlib import Path
from typing import Any, Self

import click

from fairdial.cli import options
from fairdial.cli.groups import FAILED, INTERRUPTED
from fairdial.cli.output import Output

PLAN = "plan.toml"
RECORDS = "records"
DATA = "FAIRDIAL_DATA"


@click.group()
def bench() -> None:
    """Studies: run a plan, see how far it is, write its report."""


OUT = click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the study; what is there already is not run again.",
)


@bench.command("run")
@click.argument("plan")
@OUT
@click.option("--jobs", type=click.IntRange(min=1), help="Trials at once; default: all processors.")
@click.option(
    "--backend",
    type=click.Choice(["loky", "dask", "ray"]),
    default="loky",
    show_default=True,
    help="Where trials run: processes of this machine, or a cluster.",
)
@click.option("--scheduler", help="Address of the dask scheduler or ray cluster.")
@click.option(
    "--dataset", "datasets", multiple=True, help="Run this data set of the plan only; repeatable."
)
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help=f"Folder with pictures and ResNet-18's weights; default: environment variable {DATA}.",
)
@options.tells
def bench_run(
    plan: str,
    out: Path,
    jobs: int | None,
    backend: str,
    scheduler: str | None,
    datasets: tuple[str, ...],
    data: Path | None,
    show: Output,
) -> None:
    """Run what is missing of PLAN: a TOML file, or a plan that is shipped.

    Shipped are quick, paper-tabular, paper-images, paper-images-tuned and confirm.

    Every trial is kept as soon as it is done. Stop it at any time; the same command goes on.
    """
    from fairdial.bench import plan as plans
    from fairdial.bench import run as running
    from fairdial.bench.store import Store

    chosen = plans.read_plan(plan)
    text = plans.plan_text(plan)
    if datasets:
        text = plans.narrow(text, datasets)
        chosen = plans.make_plan(tomllib.loads(text))
    if data is not None:
        os.environ[DATA] = str(data.resolve())
    plans.keep_plan(text, out / PLAN)
    store = Store(out / RECORDS)
    before = running.status(chosen, store)
    shown = None if show.as_json or show.quiet else Trials(before.missing, bar=show.progress)
    try:
        after = running.run(
            chosen, store, n_jobs=jobs, backend=backend, scheduler=scheduler, reporter=shown
        )
    except KeyboardInterrupt:
        kept = running.status(chosen, store)
        told = f"Stopped: {kept.done} of {kept.total} trials are kept; the same command goes on."
        click.echo(told, err=True)
        sys.exit(INTERRUPTED)
    reasons = running.reasons(chosen, store)
    figures, line = _told(after)
    trials = [f"  {n} trial{'s' if n > 1 else ''}: {reason}" for reason, n in reasons.items()]
    show.result(figures | {"reasons": reasons}, line, *trials)
    if after.done and not show.as_json:
        show.note(f"fairdial bench report --out {shlex.quote(str(out))} writes the report.")
    if after.failed:
        sys.exit(FAILED)


@bench.command("status")
@OUT
@options.tells
def bench_status(out: Path, show: Output) -> None:
    """How much of the study in --out is done, and what failed."""
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
    show.result(*_told(found), *failures)


@bench.command("report")
@OUT
@click.option(
    "--to",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the report; default: report/ in --out.",
)
@options.tells
def bench_report(out: Path, to: Path | None, show: Output) -> None:
    """Write tables and figures of the study in --out: Markdown, LaTeX, one HTML page."""
    from fairdial.bench.report import write_report
    from fairdial.bench.store import Store

    plan = _plan_of(out)
    records = Store(out / RECORDS).records(plan.trials())
    written = [str(path) for path in write_report(plan, records, to or out / "report")]
    show.result({"written": written}, *written)


def _plan_of(out: Path) -> Any:
    from fairdial.bench.plan import read_plan

    if not (out / PLAN).is_file():
        raise click.UsageError(f"--out must be the folder of a study, got {out} without {PLAN}.")
    return read_plan(out / PLAN)


def _told(found: Any) -> tuple[dict[str, Any], str]:
    """How far a study is, as data and as a line."""
    told = {"total": found.total, "done": found.done, "failed": found.failed}
    failed = f", {found.failed} failed" if found.failed else ""
    line = f"{found.done} of {found.total} trials done{failed}."
    return told | {"missing": found.missing}, line


def time_left(seconds: float) -> str:
    """About how long something still takes, in words."""
    return "less than a minute" if seconds < 60 else f"about {seconds / 60:.1f} minutes"


class Trials:
    """Shows trials as they end: a bar on a terminal, a line each elsewhere."""

    def __init__(self, total: int, *, bar: bool) -> None:
        self._total, self._wished = total, bar
        self._bar: Any = None

    def __enter__(self) -> Self:
        if self._wished and self._total:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            told = TextColumn("{task.fields[told]}")
            self._bar = Progress(
                TextColumn("trials"),
                BarColumn(),
                MofNCompleteColumn(),
                told,
                console=Console(stderr=True),
            )
            self._task = self._bar.add_task("trials", total=self._total, told="starting")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, record: dict[str, Any]) -> None:
        """One more trial is done."""
        left = record["seconds"] / record["done"] * (record["total"] - record["done"])
        told = f"{record['running']} running, {time_left(left)} left"
        if self._bar is not None:
            self._bar.update(self._task, advance=1, told=f"{told}; last: {record['trial']}")
        else:
            click.echo(f"{record['done']}/{record['total']} {record['trial']}; {told}", err=True)
