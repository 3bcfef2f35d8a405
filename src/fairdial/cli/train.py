"""``fairdial train``: from a table to a saved model with a dial."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairdial.cli import options
from fairdial.cli.learners import DEFAULT, METHODS, NETWORKS
from fairdial.cli.output import Output
from fairdial.errors import FairdialWarning, InvalidInputError, warn

if TYPE_CHECKING:
    import pandas as pd

CRITERIA = ("demographic_parity", "equal_opportunity", "predictive_equality")
MOST_LABELS = 10  # that an error lists
ROW_NUMBERS = "Unnamed: 0"  # what pandas calls the index that it wrote into a CSV file


@click.command()
@options.DATA
@click.option("--label", required=True, metavar="COLUMN", help="Column of labels: two values.")
@click.option(
    "--sensitive",
    required=True,
    multiple=True,
    metavar="COLUMN[,COLUMN]",
    help="Column that tells the group; several stand for their intersections. The model doesn't "
    "learn from it, but needs it to decide.",
)
@click.option(
    "--criterion",
    type=click.Choice(CRITERIA),
    default=CRITERIA[0],
    show_default=True,
    help="What is to be equal between the groups: the share of rows that is selected, of those "
    "with the positive label, or of those with the other one.",
)
@click.option(
    "--method",
    type=click.Choice(METHODS),
    default=DEFAULT,
    show_default=True,
    help="What is trained. boosting and logistic: scikit-learn's, with the dial on top. fairbayes: "
    "a network with the dial on top. gfb, epo, fairbinn, yoto: networks of the paper. Networks "
    "need the extra torch.",
)
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the model.")
@click.option("--positive", metavar="VALUE", help="The label that selected means.")
@options.tolerance(told="Where the dial rests: the gap that predict keeps by default. [default: 0]")
@click.option(
    "--calibration",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.25,
    show_default=True,
    help="Share of the rows that is held out to find the dial.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--drop", multiple=True, metavar="COLUMN", help="Column to leave out.")
@click.option(
    "--min-count",
    type=click.IntRange(min=1),
    default=30,
    show_default=True,
    help="Least number of counted held-out rows in each group.",
)
@click.option("--epochs", type=click.IntRange(min=1), help="Of a network, at most.")
@click.option("--members", type=click.IntRange(min=1), help="Networks that are averaged.")
@click.option(
    "--recalibrate",
    is_flag=True,
    help="Correct each group's scores by a line first: for scores that are biased.",
)
@options.OVERWRITE
@click.option(
    "--key-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Sign the model with the key in this file: at least 16 bytes.",
)
@options.tells
def train(
    data: Path,
    label: str,
    sensitive: Sequence[str],
    criterion: str,
    method: str,
    out: Path,
    positive: str | None,
    tolerance: float | None,
    calibration: float,
    seed: int,
    drop: Sequence[str],
    min_count: int,
    epochs: int | None,
    members: int | None,
    recalibrate: bool,
    overwrite: bool,
    key_file: Path | None,
    show: Output,
) -> None:
    """Train a model with a dial on DATA, a CSV or Parquet file.

    Why boosting is the default: over 20 splits of Adult, gradient boosting with the dial on top was
    more accurate at every gap than the networks, and it trains in seconds.

    \b
    fairdial train people.csv --label income --sensitive sex --out model
    fairdial train people.csv --label income --sensitive race,sex --method gfb --out model

    Under torchrun a network is trained by all its processes together:
    torchrun --nproc-per-node 2 -m fairdial train ... --method gfb
    """
    from fairdial.cli.figures import (
        frontier_parts,
        plain,
        point_data,
        positions,
        shown_tolerances,
    )
    from fairdial.cli.learners import make_model
    from fairdial.cli.models import check_place
    from fairdial.cli.tables import need_columns, read_table, split_names

    check_place(out, overwrite, key_file)
    table = read_table(data)
    need_columns(table, [label], "--label")
    groups = split_names(sensitive, table)
    need_columns(table, groups, "--sensitive")
    left_out = split_names(drop, table)
    need_columns(table, left_out, "--drop")
    named = [label, *groups, *left_out]
    if len(set(named)) < len(named):
        twice = next(name for name in named if named.count(name) > 1)
        raise InvalidInputError(
            f"--label, --sensitive and --drop must name different columns, got {twice!r} twice."
        )
    y, chosen = take_labels(table[label], positive)
    X = take_features(table.drop(columns=[label, *left_out]), groups)
    texts = [name for name in X if X[name].dtype == object and name not in groups]
    with processes(method) as is_main:
        show.silent = not is_main
        model = make_model(
            method,
            texts=texts,
            seed=seed,
            epochs=epochs,
            members=members,
            recalibrate=recalibrate,
            progress=show.progress,
            criterion=criterion,
            tolerance=0.0 if tolerance is None else tolerance,
            pos_label=chosen,
            sensitive_column=groups if len(groups) > 1 else groups[0],
            calibration=calibration,
            min_count=min_count,
        )
        show.note(f"Training {method} on {len(X):,} rows, {X.shape[1] - len(groups)} features ...")
        start = time.perf_counter()
        model.fit(X, y)
        seconds = time.perf_counter() - start
        if not is_main:
            return
        if method in NETWORKS:
            (model.estimator if method == "fairbayes" else model.network).verbose = False
        found = model.save(out, overwrite=overwrite, key=key_file)
    frontier, resting = model.frontier_, model.tolerance
    points = positions(frontier, shown_tolerances(frontier, resting))
    selected, other = model.classes_[1], model.classes_[0]
    show.result(
        {
            "model": str(out),
            "hash": found,
            "method": method,
            "criterion": criterion,
            "label": label,
            "positive": plain(selected),
            "sensitive": groups,
            "features": [name for name in X if name not in groups],
            "rows": len(X),
            "calibration_rows": int(frontier.rows.sum()),
            "seconds": round(seconds, 3),
            "tolerance": resting,
            "frontier": [point_data(point) for point in points],
        },
        f"Selected means {label} = {selected!r} (the other: {other!r}). On {frontier.rows.sum():,} "
        f"rows that were held out from training, {criterion.replace('_', ' ')}:",
        *frontier_parts(points, resting),
    )
    show.note(f"Trained in {seconds:.1f} s. The model is in {out}, its dial rests at {resting:g}.")


def take_labels(column: pd.Series, positive: str | None) -> tuple[pd.Series, Any]:
    """Labels and the positive one; errors name the column."""
    if column.isna().any():
        raise InvalidInputError(
            f"--label: {column.name!r} must hold a label in every row, got {column.isna().sum()} "
            "missing."
        )
    values = sorted(column.unique().tolist(), key=str)
    if len(values) != 2:
        listed = ", ".join(repr(v) for v in values[:MOST_LABELS])
        more = ", ..." if len(values) > MOST_LABELS else ""
        raise InvalidInputError(
            f"--label: {column.name!r} must hold two values, got {len(values)}: {listed}{more}."
        )
    for value in values:
        if isinstance(value, float) and not value.is_integer():
            raise InvalidInputError(
                f"--label: {column.name!r} must hold texts, whole numbers or truth values, got "
                f"{value!r}."
            )
    if positive is None:
        if isinstance(values[1], str):
            warn(
                f"--positive was not given: {max(values)!r} of {column.name!r} is taken for the "
                "label that selected means",
                FairdialWarning,
            )
        return column, None
    for value in values:
        if positive == str(value) or (not isinstance(value, str) and _same(positive, value)):
            return column, value
    raise InvalidInputError(
        f"--positive must be one of the labels {values[0]!r} and {values[1]!r}, got {positive!r}."
    )


def _same(text: str, value: Any) -> bool:
    try:
        return float(text) == float(value)
    except ValueError:
        return False


def take_features(table: pd.DataFrame, groups: Sequence[str]) -> pd.DataFrame:
    """Features in the form that models take, and the columns of the groups as they are."""
    from fairdial.cli.tables import tidy

    missing = table[list(groups)].isna().any(axis=1)
    if missing.any():
        raise InvalidInputError(
            f"--sensitive: {', '.join(map(repr, groups))} must tell the group of every row, got "
            f"{int(missing.sum())} rows without."
        )
    features = tidy(table.drop(columns=list(groups)))
    if features.shape[1] == 0:
        raise InvalidInputError(
            "DATA must have columns to learn from, got none besides the others."
        )
    for name in features:
        if name == ROW_NUMBERS or (features[name].dtype == object and features[name].is_unique):
            warn(
                f"{name!r} has another value in every row: if it is only a name, --drop {name!r}",
                FairdialWarning,
            )
    return features.join(table[list(groups)])


@contextmanager
def processes(method: str) -> Iterator[bool]:
    """Whether this process tells and saves; torchrun starts several, of which one does."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield True
        return
    if method not in NETWORKS:
        raise InvalidInputError(
            f"--method must be a network ({', '.join(NETWORKS)}) under torchrun, got {method!r}."
        )
    from fairdial.methods.network import torch_module

    with torch_module("distributed").process_group() as started:
        yield started.is_main
