"""Values of text columns that a model has a category for, where that is known cheaply."""

from __future__ import annotations

from typing import Any, NamedTuple

import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from fairdial.cli.tables import as_text
from fairdial.encoders import FrequentEncoder, TableEncoder
from fairdial.scorers import AveragedScorer, SklearnScorer

NEW, RARE, CUT = range(3)


class Known(NamedTuple):
    """The values of a column that have a category of their own.

    ``missed`` says of which kind others are: 0, new; 1, new or rare in training; 2, new or not
    among the most frequent, of which there are as many as values.
    """

    values: set[Any]
    missed: int

    @property
    def others(self) -> str:
        """What any other value is."""
        most = f"not among the {len(self.values)} most frequent values of training"
        return ("new", "new, or rare in training", f"new, or {most}")[self.missed]


def strange_values(model: Any, table: pd.DataFrame) -> list[str]:
    """For each column with values that the model has no category for: how many rows have one."""
    told, known = [], known_values(model)
    for name in table.columns.intersection(list(known)):
        strange = _strange(table[name], known[name])
        if len(strange):
            rows = "1 row has" if len(strange) == 1 else f"{len(strange):,} rows have"
            told.append(
                f"{rows} a value of {name!r} that the model has no category for, such as "
                f"{strange.iloc[0]!r}: {known[name].others}."
            )
    return told


def cut_columns(model: Any, table: pd.DataFrame) -> list[str]:
    """For each column of training rows that has more values than the model tells apart: so."""
    told = []
    for name, known in known_values(model).items():
        many = table[name].nunique() if name in table else 0
        if known.missed == CUT and many > len(known.values):
            share = len(_strange(table[name], known)) / len(table)
            told.append(
                f"{name!r} has {many:,} values; the {len(known.values)} most frequent have a "
                f"category of their own, {share:.1%} of rows don't."
            )
    return told


def _strange(column: pd.Series, known: Known) -> pd.Series:
    """Values that have no category of their own."""
    texts = as_text(column)
    return texts[texts.notna() & ~texts.isin(list(known.values))]


def known_values(model: Any) -> dict[str, Known]:
    """The values of each column that some part of the model's scorer tells apart.

    Columns of pandas' category type have theirs; others are known where every part begins with an
    encoder of tables that keeps them.
    """
    kinds = getattr(model, "feature_dtypes_", {})
    found = {
        name: Known(set(kind.categories), NEW)
        for name, kind in kinds.items()
        if hasattr(kind, "categories")
    }
    scorer = model.scorer_
    scorers = scorer.scorers if isinstance(scorer, AveragedScorer) else [scorer]
    parts = [part for one in scorers for part in _parts(one)]
    for name in set.intersection(*map(set, parts)) - set(found):
        of = [part[name] for part in parts]
        found[name] = Known(set.union(*(k.values for k in of)), min(k.missed for k in of))
    return found


def _parts(scorer: Any) -> list[dict[str, Known]]:
    """What each estimator of a scorer, or its network, knows."""
    if not isinstance(scorer, SklearnScorer):
        return [_known(scorer.encode.encoder)]
    return [
        _known(estimator.steps[0][1]) if isinstance(estimator, Pipeline) else {}
        for estimator in scorer.estimators
    ]


def _known(encoder: Any) -> dict[str, Known]:
    """The values that a fitted encoder keeps, by column."""
    if isinstance(encoder, TableEncoder):
        rules: tuple[Any, ...] = encoder.columns_
        most = encoder.max_categories
        return {
            str(rule.name): Known(
                set(rule.categories), RARE if len(rule.categories) < most else CUT
            )
            for rule in rules
            if rule.kind != "numeric"
        }
    if not isinstance(encoder, ColumnTransformer):
        return {}
    return {
        str(name): Known({*values} - {*rare}, CUT)
        if rare is not None
        else Known(set(values), RARE if isinstance(step, FrequentEncoder) else NEW)
        for _, step, columns in encoder.transformers_
        if isinstance(step, (OrdinalEncoder, OneHotEncoder)) and isinstance(columns, list)
        for name, values, rare in zip(columns, step.categories_, _rare(step), strict=True)
    }


def _rare(step: Any) -> list[Any]:
    """Values of each column that share one category; None where all have their own."""
    found: list[Any] = getattr(step, "infrequent_categories_", [None] * len(step.categories_))
    return found
