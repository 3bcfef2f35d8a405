"""``fairdial bench tune|adopt``: search hyperparameters, and make them the paper's presets."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairdial.cli import options
from fairdial.cli.errors import FAILED, INTERRUPTED
from fairdial.cli.output import Output, table

if TYPE_CHECKING:
    from rich.table import Table

    from fairdial.bench.tuning import Search

SPACE = "space.toml"
RECORDS = "records"
DATA = "FAIRDIAL_DATA"
FOLDER = click.Path(file_okay=False, path_type=Path)
HEAD = ("data", "method", "preset", "best", "trials", "pruned", "failed", "processor s", "chosen")


@click.command("tune")
@click.argument("space")
@click.option(
    "--out",
    required=True,
    type=FOLDER,
    help="Folder of the search; finished trials in it aren't run again.",
)
@click.option(
    "--jobs",
    type=options.Integer(min=1),
    default=1,
    show_default=True,
    help="Number of searches at once; each is one method on one data set.",
)
@click.option(
    "--trials",
    type=options.Integer(min=1),
    help="Number of trials of each search. [default: the space's]",
)
@click.option(
    "--dataset", "datasets", multiple=True, help="Only this data set of the space; repeatable."
)
@click.option(
    "--method", "methods", multiple=True, help="Only this method of the space; repeatable."
)
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help=f"Folder with images and ResNet-18's weights. [default: environment variable {DATA}]",
)
@options.reporting
def bench_tune(
    space: str,
    out: Path,
    jobs: int,
    trials: int | None,
    datasets: tuple[str, ...],
    methods: tuple[str, ...],
    data: Path | None,
    show: Output,
) -> None:
    """Search the hyperparameters in SPACE, a TOML file or one that comes with fairdial.

    These are paper-tabular and paper-images. All methods have the same number of trials, splits
    and measure; only validation rows are used.

    Each trial is stored when it is done. Interrupt at any time; the same command resumes.
    """
    from fairdial.bench.space import keep_space, read_space, space_text
    from fairdial.bench.store import Store
    from fairdial.bench.tuning import check_ready, tune, write_results
    from fairdial.cli.bench import Trials

    whole = read_space(space)
    chosen = whole.narrowed(datasets=datasets, methods=methods, trials=trials)
    if data is not None:
        os.environ[DATA] = str(data.resolve())
    check_ready(chosen)
    keep_space(space_text(space), out / SPACE)
    total = len(chosen.datasets) * len(chosen.methods) * chosen.trials
    shown = None if show.as_json or show.quiet else Trials(total, bar=show.progress)
    try:
        searches = tune(chosen, Store(out / RECORDS), n_jobs=jobs, reporter=shown)
    except KeyboardInterrupt:
        click.echo("Interrupted: run it again to resume.", err=True)
        sys.exit(INTERRUPTED)
    found = write_results(searches, out)
    show.result({"chosen": found}, _table(searches))
    if not show.as_json:
        show.note(f"To make these the presets: fairdial bench adopt {shlex.quote(str(out))}")
    if any(attempt.state == "failed" for search in searches for attempt in search.attempts):
        sys.exit(FAILED)


@click.command("adopt")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--to",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File of the presets. [default: the library's own]",
)
@options.reporting
def bench_adopt(folder: Path, to: Path | None, show: Output) -> None:
    """Make what `bench tune` chose in FOLDER the presets of the paper's methods."""
    from fairdial.bench.tuning import adopt
    from fairdial.paper.presets import TUNED

    path = to or TUNED
    found = adopt(folder, path)
    pairs = [f"{dataset}, {method}" for dataset, methods in found.items() for method in methods]
    show.result({"adopted": found, "file": str(path)}, *pairs, str(path))


def _table(searches: list[Search]) -> Table:
    """Return a line for each search."""
    lines: list[tuple[str, ...]] = []
    for search in searches:
        entry = search.chosen()
        names = search.key[0], search.searched.method.name
        if entry is None:
            lines.append((*names, "-", "-", str(len(search.attempts)), "-", "-", "-", "none"))
            continue
        preset = "-" if entry["preset"] is None else f"{entry['preset']:.4f}"
        numbers = (entry[name] for name in ("trials", "pruned", "failed"))
        lines.append(
            (
                *names,
                preset,
                f"{entry['value']:.4f}",
                *map(str, numbers),
                f"{entry['seconds']:.0f}",
                _values(entry) if entry["trial"] else "the preset",
            )
        )
    return table(HEAD, lines, note=True)


def _values(entry: dict[str, Any]) -> str:
    found = entry["network"] | entry["arguments"]
    return ", ".join(
        f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in found.items()
    )
