"""``fairdial export``: export a model as an HTML page, or as ONNX."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fairdial.cli import options
from fairdial.cli.output import Output, check_writable, write_files
from fairdial.cli.page_options import ask_names, page_names
from fairdial.errors import InvalidInputError, MissingExtraError, install_command

if TYPE_CHECKING:
    import pandas as pd

    from fairdial.core.frontier import Frontier

FILE = click.Path(dir_okay=False, path_type=Path)
ENDS = {"html": (".html", ".htm"), "onnx": (".onnx",), "thresholds": (".csv",)}


@click.command()
@options.MODEL
@click.option("--html", type=FILE, help="HTML page with the dial, which works offline.")
@click.option(
    "--onnx",
    type=FILE,
    help="ONNX graph of the scorer, with the thresholds as an input; for trees, linear models and "
    "networks with thresholds.",
)
@click.option(
    "--thresholds",
    type=FILE,
    help="CSV file of the groups' thresholds on the score, for SQL or a spreadsheet: a row is "
    "selected if its score is above the threshold. Those of a lottery have probabilities.",
)
@click.option(
    "--tolerance",
    "tolerances",
    multiple=True,
    type=options.Fraction(0, 1),
    help="Tolerance of --thresholds; repeatable. [default: the model's default tolerance]",
)
@page_names
@click.option("--overwrite", is_flag=True, help="Replace existing files.")
@options.KEY
@options.TRUST
@options.reporting
def export(
    folder: Path,
    html: Path | None,
    onnx: Path | None,
    thresholds: Path | None,
    tolerances: tuple[float, ...],
    name: str | None,
    people: dict[str, str],
    label_names: tuple[str, str] | None,
    overwrite: bool,
    key_file: Path | None,
    trust: tuple[str, ...],
    show: Output,
) -> None:
    """Write MODEL as an HTML page, as ONNX, or as a table of thresholds; all files or none.

    The page holds counts of calibration rows, but no features and no identities. In a small group a
    count can be one person: publish the page only if the counts may be public. On a terminal, the
    names that its options don't give are asked for; --quiet asks nothing.

    The graph takes the features, the group and the groups' thresholds, which --thresholds writes.
    """
    from fairdial.cli.models import open_model, read_frontier

    if html is None and onnx is None and thresholds is None:
        raise click.UsageError("Give --html, --onnx or --thresholds.")
    if tolerances and thresholds is None:
        raise InvalidInputError("tolerances", "be used with `thresholds`")
    if html is None and (name or people or label_names):
        given = "name" if name else "people" if people else "label_names"
        raise InvalidInputError(given, "be used with `html`")
    paths = {
        argument: path
        for argument, path in {"html": html, "onnx": onnx, "thresholds": thresholds}.items()
        if path is not None
    }
    for argument, path in paths.items():
        if not path.name.lower().endswith(ENDS[argument]):
            raise InvalidInputError(
                argument, f"end in {' or '.join(ENDS[argument])}", given=repr(path.name)
            )
        check_writable(path, overwrite, argument)
    if onnx is not None:
        _check_graph(folder, key_file)
    summary, frontier = read_frontier(folder, key_file)
    writers: dict[Path, Callable[[Path], object]] = {}
    if thresholds is not None:
        frame = threshold_table(frontier, tolerances or (summary.tolerance,))
        writers[thresholds] = lambda path: frame.to_csv(path, index=False)
    if html is not None or onnx is not None:
        model = open_model(folder, key_file, trust)
    if html is not None:
        with _needs_extra("--html", "serve"):
            from fairdial.serve.page import write_page
        if show.progress and not show.as_json:
            name, people, label_names = ask_names(frontier.groups, (name, people, label_names))
        writers[html] = lambda path: write_page(
            model,
            path,
            name=name or folder.absolute().name,
            people=people,
            labels=label_names,
        )
    if onnx is not None:
        with _needs_extra("--onnx", "onnx"):
            from fairdial.io.onnx import export_onnx
        writers[onnx] = lambda path: export_onnx(model, path)
    write_files(writers)
    written = {argument: str(path) for argument, path in paths.items()}
    show.result(written | {"hash": summary.hash}, *written.values())


def threshold_table(frontier: Frontier, tolerances: Sequence[float]) -> pd.DataFrame:
    """Return tolerance, group, threshold and its probability, one line per threshold."""
    import numpy as np
    import pandas as pd

    if frontier.is_family:
        raise InvalidInputError(
            "thresholds", "be used with a method that has thresholds", given="a model family"
        )
    lines = []
    for point in frontier.at(list(tolerances)):
        mixed = point.thresholds[:, None], np.ones((len(point.groups), 1))
        for group, limits, shares in zip(point.groups, *(point.lottery or mixed), strict=True):
            lines += [
                (point.tolerance, group, limit, share)
                for limit, share in zip(limits.tolist(), shares.tolist(), strict=True)
                if share > 0
            ]
    return pd.DataFrame(lines, columns=["tolerance", "group", "threshold", "probability"])


def _check_graph(folder: Path, key: Path | None) -> None:
    """Refuse a model that has no ONNX graph before loading its libraries."""
    from fairdial.cli.models import read_summary
    from fairdial.io.manifest import trained_method

    manifest = read_summary(folder, key).manifest
    scorer = manifest["scorer"]
    kinds = {part["kind"] for part in scorer.get("parts", [scorer])}
    if not (kinds <= {"plain", "estimators"} or scorer["kind"] == "net"):
        raise InvalidInputError(
            "onnx",
            "be used with trees, a line or a network that has thresholds (train --method "
            "boosting, logistic, fairbayes or gfb, for example)",
            given=f"a model of {trained_method(manifest)}",
        )


@contextmanager
def _needs_extra(option: str, extra: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"{option} needs {error.name}: {install_command(extra)}."
        ) from error
