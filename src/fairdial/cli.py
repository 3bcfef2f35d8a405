"""The command line: ``fairdial bench run|status|report``."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Self

import click

from fairdial._version import __version__
from fairdial.errors import FairdialError

PLAN = "plan.toml"
RECORDS = "records"
DATA = "FAIRDIAL_DATA"


def _clear_errors(command: Callable[..., Any]) -> Callable[..., Any]:
    """The library's own errors become one line and exit code 2."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except FairdialError as error:
            raise click.UsageError(str(error)) from error

    return wrapped


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Fair classification with a dial: train once, set the tolerance afterwards."""


@main.group()
def bench() -> None:
    """Studies: run a plan, see how far it is, write its report."""


OUT = click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the study; what is there already is not run again.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


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
@JSON
@_clear_errors
def bench_run(
    plan: str,
    out: Path,
    jobs: int | None,
    backend: str,
    scheduler: str | None,
    datasets: tuple[str, ...],
    data: Path | None,
    as_json: bool,
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
    shown = Trials(before.missing) if not as_json else None
    try:
        after = running.run(
            chosen, store, n_jobs=jobs, backend=backend, scheduler=scheduler, reporter=shown
        )
    except KeyboardInterrupt:
        kept = running.status(chosen, store)
        told = f"Stopped: {kept.done} of {kept.total} trials are kept; the same command goes on."
        click.echo(told, err=True)
        sys.exit(130)
    _tell(after, as_json)
    if after.failed:
        sys.exit(1)


@bench.command("status")
@OUT
@JSON
@_clear_errors
def bench_status(out: Path, as_json: bool) -> None:
    """How much of the study in --out is done, and what failed."""
    from fairdial.bench import run as running
    from fairdial.bench.store import Store

    plan, store = _plan_of(out), Store(out / RECORDS)
    found = running.status(plan, store)
    _tell(found, as_json)
    if not as_json:
        for config in plan.trials():
            error = store.failure(config)
            if error is not None:
                method = config["method"]["name"]
                click.echo(f"  {config['dataset']}, {method}, seed {config['seed']}: {error}")


@bench.command("report")
@OUT
@click.option(
    "--to",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the report; default: report/ in --out.",
)
@_clear_errors
def bench_report(out: Path, to: Path | None) -> None:
    """Write tables and figures of the study in --out: Markdown, LaTeX, one HTML page."""
    from fairdial.bench.report import write_report
    from fairdial.bench.store import Store

    plan, store = _plan_of(out), Store(out / RECORDS)
    found = [
        store.find(config) or store.failed(config) or store.of_any_code(config)
        for config in plan.trials()
    ]
    records = [record for record in found if record is not None]
    for path in write_report(plan, records, to or out / "report"):
        click.echo(str(path))


def _plan_of(out: Path) -> Any:
    from fairdial.bench.plan import read_plan

    if not (out / PLAN).is_file():
        raise click.UsageError(f"--out must be the folder of a study, got {out} without {PLAN}.")
    return read_plan(out / PLAN)


def _tell(found: Any, as_json: bool) -> None:
    if as_json:
        told = {"total": found.total, "done": found.done, "failed": found.failed}
        click.echo(json.dumps(told | {"missing": found.missing}))
    else:
        failed = f", {found.failed} failed" if found.failed else ""
        click.echo(f"{found.done} of {found.total} trials done{failed}.")


class Trials:
    """Shows trials as they end: a bar on a terminal, a line each elsewhere."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._bar: Any = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty() and self._total:
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
        told = f"{record['running']} running, about {left / 60:.1f} minutes left"
        if self._bar is not None:
            self._bar.update(self._task, advance=1, told=f"{told}; last: {record['trial']}")
        else:
            click.echo(f"{record['done']}/{record['total']} {record['trial']}; {told}", err=True)
