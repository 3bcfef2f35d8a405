"""Steps of scikit-learn's pipelines as plain inputs.

Known steps are TableEncoder, CategoryEncoder, FrequentEncoder, MeanEncoder, OrdinalEncoder,
OneHotEncoder, StandardScaler, SimpleImputer, "passthrough", and ColumnTransformers and Pipelines
of these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.utils import check_array

from fairdial.forests.forest import CannotConvertError
from fairdial.tables.categories import CategoryEncoder
from fairdial.tables.columns import to_builtin
from fairdial.tables.encoder import TableEncoder
from fairdial.tables.frequent import FrequentEncoder
from fairdial.tables.inputs import Code, InputBlock, Inputs, Number, OneHot
from fairdial.tables.means import MeanEncoder


@dataclass(frozen=True)
class Columns:
    """The columns of the rows that a model takes: names or positions, and pandas' types."""

    names: tuple[Any, ...]
    named: bool
    dtypes: Mapping[Hashable, Any]


@dataclass(frozen=True)
class Part:
    """A block, with what is subtracted from its features and what they are divided by."""

    block: InputBlock
    centre: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    single: bool = False  # whether the block writes float32

    @property
    def is_column(self) -> bool:
        """Whether it is a column as it is."""
        return isinstance(self.block, Number) and not self.centre


def start(columns: Columns) -> list[Part]:
    """Return the columns themselves."""
    return [Part(Number(to_builtin(name))) for name in columns.names]


def finish(parts: Sequence[Part], columns: Columns, *, missing: Any) -> Inputs:
    """Return the inputs."""
    centre, scale = None, None
    if any(part.centre for part in parts):
        centre = np.concatenate([part.centre or np.zeros(part.block.width) for part in parts])
        scale = np.concatenate([part.scale or np.ones(part.block.width) for part in parts])
    single = {part.single for part in parts}
    if len(single) > 1:
        raise CannotConvertError("features of different types")
    return Inputs(
        tuple(to_builtin(name) for name in columns.names),
        columns.named,
        tuple(part.block for part in parts),
        "float32" if single == {True} else "float64",
        centre,
        scale,
        missing,
    )


def apply_step(step: Any, parts: list[Part]) -> list[Part]:
    """Return what a fitted step makes of features; raise CannotConvertError if it isn't known."""
    if step is None or (isinstance(step, str) and step == "passthrough"):
        return parts
    kind = type(step)
    if kind is Pipeline:
        for _, inner in step.steps:
            parts = apply_step(inner, parts)
        return parts
    apply = STEPS.get(kind)
    if apply is None:
        raise CannotConvertError(f"the step {kind.__name__}")
    return apply(step, parts)


def _table_encoder(step: Any, parts: list[Part]) -> list[Part]:
    if not all(part.is_column for part in parts):
        raise CannotConvertError("a TableEncoder after other steps")
    blocks = {block.name: block for block in step.columns_}
    own: list[Any] = [part.block.name for part in parts]
    if step.named_ and set(own) != set(blocks):
        raise CannotConvertError("a TableEncoder of some columns")
    if not step.named_:
        blocks = {name: replace(b, name=name) for name, b in zip(own, step.columns_, strict=True)}
        return [Part(blocks[name], single=step.dtype == "float32") for name in own]
    return [Part(block, single=step.dtype == "float32") for block in step.columns_]


def _columns(step: Any, parts: list[Part]) -> list[Part]:
    found: list[Part] = []
    for _, inner, chosen in step.transformers_:
        if isinstance(inner, str) and inner == "drop":
            continue
        inputs = _choose(parts, chosen)
        found += apply_step(inner, inputs) if inputs else []  # without columns it isn't fitted
    return found


def _choose(parts: list[Part], chosen: Any) -> list[Part]:
    if any(part.block.width != 1 for part in parts):
        raise CannotConvertError("a ColumnTransformer after one-hot encoding")
    if isinstance(chosen, slice):
        if any(isinstance(end, str) for end in (chosen.start, chosen.stop)):
            raise CannotConvertError("a slice of names")
        return parts[chosen]
    listed = np.asarray(chosen)
    if listed.ndim != 1:
        raise CannotConvertError("a ColumnTransformer that passes on a single column")
    if listed.dtype == np.bool_:
        return [part for part, here in zip(parts, listed, strict=True) if here]
    if listed.dtype.kind in "iu":
        return [parts[i] for i in listed]
    by_name = {part.block.name: part for part in parts}
    return [by_name[name] for name in chosen]


def _ordinal(step: Any, parts: list[Part]) -> list[Part]:
    if step.handle_unknown != "use_encoded_value" or np.dtype(step.dtype) != np.float64:
        raise CannotConvertError("an OrdinalEncoder that refuses unknown categories")
    names = getattr(step, "feature_names_in_", None)
    known = [[v for v in values if not _is_missing(v)] for values in step.categories_]
    rows = max(len(values) for values in known) + 1
    table = np.empty((rows, len(known)), dtype=object)  # the last row is missing
    for i, (values, all_values) in enumerate(zip(known, step.categories_, strict=True)):
        missing = next((v for v in all_values if _is_missing(v)), None)  # None or NaN
        table[:, i] = [*values, *[missing] * (rows - len(values))]
    numeric = all(values.dtype.kind in "fiu" for values in step.categories_)
    given = table.astype(np.float64) if numeric else table
    if not numeric or names is not None:  # pandas would guess types of text
        given = pd.DataFrame(given, columns=names, dtype=given.dtype)
    codes = np.asarray(step.transform(given), np.float64)
    unknown = _or_none(step.unknown_value)
    found = []
    for i, (part, values) in enumerate(zip(parts, known, strict=True)):
        pairs = {to_builtin(v): c for v, c in zip(values, codes[:, i].tolist(), strict=False)}
        missing = _or_none(codes[-1, i])
        if isinstance(part.block, Code):
            found.append(Part(_compose(part.block, pairs, missing, unknown)))
        elif part.is_column:
            fill = part.block.fill if isinstance(part.block, Number) else None
            if fill is not None:
                missing = pairs.get(fill, unknown)
            kept = {v: c for v, c in pairs.items() if not math.isnan(c)}
            block = Code(part.block.name, tuple(kept), tuple(kept.values()), missing, unknown)
            found.append(Part(block))
        else:
            raise CannotConvertError("an OrdinalEncoder after other steps")
    return found


def _compose(
    block: Code, pairs: Mapping[Any, float], missing: float | None, unknown: float | None
) -> Code:
    """Return the codes of codes."""

    def code(value: float | None) -> float | None:
        return missing if value is None else _or_none(pairs.get(value, unknown))

    codes = {v: code(c) for v, c in zip(block.categories, block.codes, strict=True)}
    kept = {v: c for v, c in codes.items() if c is not None}
    if len(kept) < len(codes) and code(block.unknown) is not None:
        raise CannotConvertError("categories that an encoder doesn't know")
    return Code(
        block.name, tuple(kept), tuple(kept.values()), code(block.missing), code(block.unknown)
    )


def _one_hot(step: Any, parts: list[Part]) -> list[Part]:
    if step.handle_unknown not in ("ignore", "infrequent_if_exist") or step.drop is not None:
        raise CannotConvertError("a OneHotEncoder with `drop`, or that refuses unknown categories")
    if getattr(step, "_infrequent_enabled", False):
        raise CannotConvertError("a OneHotEncoder with infrequent categories")
    if not all(part.is_column for part in parts):
        raise CannotConvertError("a OneHotEncoder after other steps")
    found = []
    for part, values in zip(parts, step.categories_, strict=True):
        known = tuple(to_builtin(v) for v in values.tolist() if not _is_missing(v))
        missing = len(known) if len(known) < len(values) else None
        fill = part.block.fill if isinstance(part.block, Number) else None
        if fill is not None:
            missing = known.index(fill) if fill in known else None
        found.append(Part(OneHot(part.block.name, known, missing)))
    return found


def _scaler(step: Any, parts: list[Part]) -> list[Part]:
    width = sum(part.block.width for part in parts)
    if any(part.centre or part.single for part in parts):
        raise CannotConvertError("a StandardScaler after another one, or of single precision")
    centre = step.mean_ if step.with_mean else np.zeros(width)
    scale = step.scale_ if step.with_std else np.ones(width)
    ends = np.cumsum([part.block.width for part in parts])
    return [
        replace(
            part,
            centre=tuple(centre[end - part.block.width : end].tolist()),
            scale=tuple(scale[end - part.block.width : end].tolist()),
        )
        for part, end in zip(parts, ends, strict=True)
    ]


def _imputer(step: Any, parts: list[Part]) -> list[Part]:
    nan = isinstance(step.missing_values, float) and math.isnan(step.missing_values)
    if step.add_indicator or not nan or any(_is_missing(v) for v in step.statistics_):
        raise CannotConvertError("a SimpleImputer with an indicator, or of other values than NaN")
    found = []
    for part, value in zip(parts, step.statistics_.tolist(), strict=True):
        if not part.is_column or not isinstance(part.block, Number):
            raise CannotConvertError("a SimpleImputer after other steps")
        found.append(Part(replace(part.block, fill=value)))
    return found


def _function(step: Any, parts: list[Part]) -> list[Part]:
    func = step.func
    inner = func.func if isinstance(func, partial) and not func.args else func
    if inner is not None and inner is not check_array:
        raise CannotConvertError("a FunctionTransformer")
    return parts


def _category_encoder(step: Any, parts: list[Part]) -> list[Part]:
    if not all(part.is_column for part in parts) or len(parts) != len(step.blocks_):
        raise CannotConvertError("a CategoryEncoder after other steps, or of some columns")
    return [
        Part(replace(block, name=part.block.name))
        for part, block in zip(parts, step.blocks_, strict=True)
    ]


def _mean_encoder(step: Any, parts: list[Part]) -> list[Part]:
    if not all(part.is_column for part in parts):
        raise CannotConvertError("a MeanEncoder after other steps")
    return [
        Part(replace(block, name=parts[place].block.name))
        for block, place in zip(step.blocks_, step.places_, strict=True)
    ]


def _or_none(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else float(value)


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


STEPS: dict[type, Callable[[Any, list[Part]], list[Part]]] = {
    TableEncoder: _table_encoder,
    CategoryEncoder: _category_encoder,
    ColumnTransformer: _columns,
    FrequentEncoder: _ordinal,
    MeanEncoder: _mean_encoder,
    OrdinalEncoder: _ordinal,
    OneHotEncoder: _one_hot,
    StandardScaler: _scaler,
    SimpleImputer: _imputer,
    FunctionTransformer: _function,
}
