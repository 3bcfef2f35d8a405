"""Model folders as the commands need them: the whole model, or its dial alone."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairdial.cli.tables import as_numbers, as_text, need_columns, read_table, tidy
from fairdial.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from fairdial.frontier import Frontier


UNCALIBRATED = "MODEL must be calibrated, got one that isn't: fairdial calibrate finds its dial."


@dataclass(frozen=True)
class Told:
    """What a folder tells without its scorer being loaded."""

    manifest: dict[str, Any]
    hash: str
    known: Frontier | None

    @property
    def frontier(self) -> Frontier:
        """The dial, or an error where there is none."""
        if self.known is None:
            raise InvalidInputError(UNCALIBRATED)
        return self.known

    @property
    def resting(self) -> float:
        """The tolerance at which the dial rests."""
        from fairdial.persistence.values import unpack

        return float(unpack(self.manifest["parameters"]["tolerance"]))


def read_told(folder: Path, key: Path | None) -> Told:
    """What a model is, and its dial; neither torch nor the scorer's libraries are needed."""
    from fairdial.persistence.folder import read_folder
    from fairdial.persistence.frontiers import FRONTIER, frontier_from_arrays

    stored = read_folder(folder, key=key)
    told, frontier = stored.manifest["frontier"], None
    if told is not None:
        frontier = frontier_from_arrays(told, stored.files[FRONTIER], FRONTIER)
    return Told(stored.manifest, stored.hash, frontier)


def open_model(
    folder: Path, key: Path | None, trust: Sequence[str], *, calibrated: bool = True
) -> Any:
    """The whole model."""
    from fairdial.cli.startup import import_skops
    from fairdial.methods.loading import load

    import_skops()
    model = load(folder, key=key, trusted=trust)
    if calibrated and not hasattr(model, "frontier_"):
        raise InvalidInputError(UNCALIBRATED)
    return model


def check_place(out: Path, overwrite: bool, key: Path | None) -> None:
    """Whether a model can be written there, and signed, before the work is done."""
    from fairdial.cli.startup import import_skops
    from fairdial.cli.tables import check_free
    from fairdial.persistence.folder import check_target
    from fairdial.persistence.manifest import read_key

    import_skops()  # the model will be saved: what that needs, before the work is done
    check_free(out, overwrite)
    check_target(out, overwrite=overwrite)
    read_key(key)


def refuse_unsigned(folder: Path, key: Path | None) -> None:
    """A signed model is replaced by a signed one."""
    from fairdial.persistence.manifest import SIGNATURE

    if key is None and os.path.lexists(folder / SIGNATURE):
        raise InvalidInputError(
            f"--key-file must be given: {folder} is signed, and would lose its signature."
        )


# ---- rows for a model --------------------------------------------------------------------------


def sensitive_columns(model: Any) -> list[str]:
    """Columns that tell the group."""
    given = model.sensitive_column
    if given is None:
        raise InvalidInputError(
            "MODEL must know which column tells the group, got one that was trained without "
            "`sensitive_column`: use it from Python."
        )
    return list(given) if isinstance(given, (list, tuple)) else [given]


def label_of(model: Any) -> str | None:
    """The column of the labels in training, where they came from one."""
    name: str | None = getattr(model, "label_name_", None)
    return name


def read_rows(model: Any, data: Path, label: str | None = None) -> pd.DataFrame:
    """The table with every column that the model needs, each of the kind that it knows."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        raise InvalidInputError(
            "MODEL must know its features by name, got one that was trained on rows without "
            "names: use it from Python."
        )
    features, groups = [str(name) for name in names], sensitive_columns(model)
    kinds = getattr(model, "feature_dtypes_", {})
    texts = [name for name in features if _is_text(kinds.get(name))]
    known = model.frontier_.groups if hasattr(model, "frontier_") else ()
    if len(groups) == 1 and known and all(isinstance(name, str) for name in known):
        texts += groups
    if label is not None and isinstance(model.classes_[1], str):
        texts.append(label)
    table = read_table(data, texts)
    need_columns(table, [*features, *groups], "DATA")
    return table.assign(**{name: _as_known(table[name], kinds.get(name)) for name in features})


def _is_text(kind: Any) -> bool:
    """Whether a column's type in training was one of texts."""
    values = getattr(kind, "categories", None)
    if values is not None:
        return all(isinstance(value, str) for value in values)
    return kind is not None and getattr(kind, "kind", "O") not in "biuf"


def _as_known(column: pd.Series, kind: Any) -> pd.Series:
    """A column in the type that it had in training."""
    if kind is None:
        return tidy(column.to_frame())[column.name]
    ready = as_text(column) if _is_text(kind) else column
    if hasattr(kind, "categories"):
        return ready.astype(kind)
    return ready if _is_text(kind) else as_numbers(column)


def inputs(model: Any, table: pd.DataFrame) -> pd.DataFrame:
    """Features and groups, as ``predict`` takes them."""
    return table[[*map(str, model.feature_names_in_), *sensitive_columns(model)]]
