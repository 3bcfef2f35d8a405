"""Folders of Parquet files as DATA: they are read batch by batch and may be larger than memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from fairdial.cli.model_rows import group_columns
from fairdial.cli.models import held_out_share, sizing_refusals
from fairdial.cli.options import CsvFormat
from fairdial.cli.output import Output, is_parquet
from fairdial.cli.reading import DEFAULT_FORMAT, require_columns, split_names
from fairdial.core.criteria import criterion as find_criterion
from fairdial.errors import InvalidInputError
from fairdial.large.engines.folders import ParquetFolder
from fairdial.large.model_rows import RowReader
from fairdial.large.tasks import CountDecisions, Decide, names_of
from fairdial.progress import Bar, Reporter, Silent

if TYPE_CHECKING:
    from fairdial.estimators.base import DialClassifier


def open_folder(data: Path, csv_format: CsvFormat, show: Output) -> ParquetFolder:
    """Open a folder of Parquet files, whose passes show their progress."""
    if csv_format != DEFAULT_FORMAT:
        given = next(name for name, value in csv_format._asdict().items() if value is not None)
        raise InvalidInputError(given, "be used with a CSV file", given="a folder")

    def report(n_batches: int) -> Reporter:
        return Bar("Batches", n_batches, ()) if show.progress else Silent()

    return ParquetFolder(data, report)


def check_model(
    model: DialClassifier, *, comparing: bool = True, calibrating: bool = False
) -> None:
    """Raise if a model needs rows in one file: to compare groups, to be calibrated, or always."""
    overlapping = getattr(model, "groups", "intersection") != "intersection"
    refused = {
        "more than two classes": len(model.classes_) > 2,
        "groups that overlap": comparing and overlapping,
        "decisions without the group": calibrating and getattr(model, "blind", False),
    }
    for what, found in refused.items():
        if found:
            raise InvalidInputError(
                "data",
                f"be one file for a model with {what}",
                given="a folder",
                hint="Put its rows into one Parquet file.",
            )


def group_names(
    model: DialClassifier, folder: ParquetFolder, sensitive: Sequence[str]
) -> tuple[str, ...]:
    """Return the group columns, all of which the files have."""
    columns = folder.columns
    names = group_columns(model, sensitive, columns)
    require_columns(pd.DataFrame(columns=columns), names, "sensitive" if sensitive else "data")
    return tuple(names)


def predict_folder(
    model: DialClassifier,
    folder: ParquetFolder,
    out: Path,
    *,
    tolerance: float,
    confidence: float | None,
    simultaneous: bool,
    sensitive: Sequence[str],
    identity: Sequence[str],
) -> list[int]:
    """Write the decisions on all rows, and return the number of rows of each class."""
    if not is_parquet(out):
        raise InvalidInputError(
            "out", "end in .parquet, since DATA is a folder", given=repr(out.name)
        )
    if out.resolve().is_relative_to(folder.path.resolve()):
        raise InvalidInputError("out", "lie outside of DATA", given=out)
    check_model(model, comparing=False)
    groups = () if model.frontier_.is_blind else group_names(model, folder, sensitive)
    keep = split_names(identity, folder.columns)
    require_columns(pd.DataFrame(columns=folder.columns), keep, "identity")
    reader = RowReader.of(model, folder.columns, group=groups or None)
    with sizing_refusals(held_out_share(model.get_params(deep=False))):
        task = Decide.at(reader, tolerance, confidence, simultaneous)
    for name in keep:
        if name in task.fields:
            raise InvalidInputError(
                "identity", "not have the name of a column that predict writes", given=repr(name)
            )
    return folder.write_decisions(task, out, keep)


def count_decisions(
    model: DialClassifier,
    folder: ParquetFolder,
    *,
    tolerance: float,
    confidence: float | None,
    simultaneous: bool,
    sensitive: Sequence[str],
    label: str | None,
    weights: str | None,
    control: Sequence[str],
) -> pd.DataFrame:
    """Return numbers of rows by group, stratum, label and decision (``place``)."""
    check_model(model)
    kind = find_criterion(model.criterion)
    if kind.has_conditions:
        raise InvalidInputError(
            "data", "be one file for a criterion with conditions", given="a folder"
        )
    if kind.needs_labels and label is None:
        raise InvalidInputError(
            "data", f"have labels for {kind.name}, in a column given with `label`"
        )
    reader = RowReader.of(
        model,
        folder.columns,
        group=group_names(model, folder, sensitive),
        label=label,
        weight=weights,
        control=split_names(control, folder.columns),
        measured=True,
    )
    with sizing_refusals(held_out_share(model.get_params(deep=False))):
        task = CountDecisions(Decide.at(reader, tolerance, confidence, simultaneous))
    found = folder.count(task)
    if not len(found):
        raise InvalidInputError("data", "have at least one row", given="none")
    return names_of(found)


def find_label(
    model: DialClassifier, folder: ParquetFolder, label: str | None, *, no_labels: bool = False
) -> str | None:
    """Return the label column: the one given, or the one of training if the files have it."""
    if no_labels:
        return None
    if label is not None:
        require_columns(pd.DataFrame(columns=folder.columns), [label], "label")
        return label
    known: str | None = getattr(model, "label_name_", None)
    return known if known in folder.columns_anywhere else None
