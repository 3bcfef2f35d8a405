"""``fairdial export``: export a model as an HTML page, as ONNX, as thresholds or as SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fairdial._sql import DIALECTS
from fairdial.cli import options
from fairdial.cli.output import Output, check_writable, write_files
from fairdial.cli.page_options import ask_names, page_names
from fairdial.errors import InvalidInputError, MissingExtraError, install_command

if TYPE_CHECKING:
    import pandas as pd

    from fairdial.cli.models import Summary
    from fairdial.core.frontier import Frontier

FILE = click.Path(dir_okay=False, path_type=Path)
ENDS = {"html": (".html", ".htm"), "onnx": (".onnx",), "thresholds": (".csv",), "sql": (".sql",)}


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
    "--sql",
    type=FILE,
    help="SQL expression for scored rows: 1 if a row is selected, 0 if not, NULL without a score "
    "or with an unknown group.",
)
@click.option(
    "--tolerance",
    "tolerances",
    multiple=True,
    type=options.Fraction(0, 1),
    help="Tolerance of --thresholds and --sql; repeatable for --thresholds. [default: the model's "
    "default tolerance]",
)
@click.option(
    "--dialect",
    type=click.Choice(list(DIALECTS)),
    help="Which SQL to write. [default: duckdb]",
)
@click.option("--score", metavar="COLUMN", help="Column of scores in SQL. [default: score]")
@options.SENSITIVE
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
    sql: Path | None,
    tolerances: tuple[float, ...],
    dialect: str | None,
    score: str | None,
    sensitive: tuple[str, ...],
    name: str | None,
    people: dict[str, str],
    label_names: tuple[str, str] | None,
    overwrite: bool,
    key_file: Path | None,
    trust: tuple[str, ...],
    show: Output,
) -> None:
    """Write MODEL as an HTML page, as ONNX, as thresholds, or as SQL; all files or none.

    The page holds counts of calibration rows, but no features and no identities. In a small group a
    count can be one person: publish the page only if the counts may be public. On a terminal, the
    names that its options don't give are asked for; --quiet asks nothing.

    The graph takes the features, the group and the groups' thresholds, which --thresholds writes.
    """
    from fairdial.cli.models import open_model, read_frontier

    asked = {"html": html, "onnx": onnx, "thresholds": thresholds, "sql": sql}
    paths = {argument: path for argument, path in asked.items() if path is not None}
    if not paths:
        raise click.UsageError("Give --html, --onnx, --thresholds or --sql.")
    if tolerances and thresholds is None and sql is None:
        raise InvalidInputError("tolerances", "be used with `thresholds` or `sql`")
    if sql is None and (dialect or score or sensitive):
        given = "dialect" if dialect else "score" if score else "sensitive"
        raise InvalidInputError(given, "be used with `sql`")
    if sql is not None and len(tolerances) > 1:
        raise InvalidInputError("tolerances", "be one with `sql`", given=f"{len(tolerances)}")
    if html is None and (name or people or label_names):
        given = "name" if name else "people" if people else "label_names"
        raise InvalidInputError(given, "be used with `html`")
    for argument, path in paths.items():
        if not path.name.lower().endswith(ENDS[argument]):
            raise InvalidInputError(
                argument, f"end in {' or '.join(ENDS[argument])}", given=repr(path.name)
            )
        check_writable(path, overwrite, argument)
    if onnx is not None:
        _check_graph(folder, key_file)
    summary, frontier = read_frontier(folder, key_file)
    if frontier.classes is not None:
        from fairdial.core.frontier import refuse_prices

        refuse_prices(frontier, "exported")
    writers: dict[Path, Callable[[Path], object]] = {}
    if thresholds is not None:
        frame = threshold_table(frontier, tolerances or (summary.tolerance,))
        writers[thresholds] = lambda path: frame.to_csv(path, index=False)
    if sql is not None:
        rule = _write_rule(
            summary,
            frontier,
            tolerances[0] if tolerances else summary.tolerance,
            sensitive,
            score or "score",
            dialect or "duckdb",
        )
        writers[sql] = lambda path: path.write_text(rule + "\n", "utf-8")
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


def _write_rule(
    summary: Summary,
    frontier: Frontier,
    tolerance: float,
    sensitive: Sequence[str],
    score: str,
    dialect: str,
) -> str:
    """Return the decision rule in SQL; the manifest names the group columns."""
    from fairdial.cli.model_rows import choose_groups
    from fairdial.io.values import unpack

    manifest = summary.manifest
    training = manifest.get("training") or {}
    merged = training.get("merged_groups") or {"name": "", "values": []}
    return frontier.to_sql(
        tolerance,
        score=score,
        dialect=dialect,
        group=choose_groups(
            unpack(manifest["parameters"]["sensitive_column"]),
            sensitive,
            trained=[str(unpack(name)) for name in manifest["features"].get("groups") or ()],
        ),
        missing_group=training.get("missing_group"),
        merged_groups={merged["name"]: [" & ".join(values) for values in merged["values"]]},
    )


def threshold_table(frontier: Frontier, tolerances: Sequence[float]) -> pd.DataFrame:
    """Return tolerance, group, threshold and its probability, one line per threshold."""
    import numpy as np
    import pandas as pd

    from fairdial.core.frontier import refuse_prices

    refuse_prices(frontier, "exported")
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
