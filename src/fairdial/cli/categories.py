"""Values of text columns that a model has a category for, where its encoders store them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from fairdial.cli.columns import count_rows
from fairdial.estimators.plain import PlainScorer
from fairdial.estimators.scorers import AveragedScorer, SklearnScorer
from fairdial.tables.inputs import MOST_CODES, Code, Inputs, OneHot
from fairdial.tables.plan import MOST_INDICATORS, Categorical
from fairdial.tables.values import as_text

if TYPE_CHECKING:  # plain models need no scikit-learn
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

    from fairdial.cli.plain_dial import PlainDial
    from fairdial.estimators.base import DialClassifier

NEW, RARE, CUT = range(3)


class Categories(NamedTuple):
    """The values of a column that have their own category.

    ``others`` says what all other values are: NEW; RARE, new or rare in training; CUT, new or not
    among the most frequent ones.
    """

    values: set[Hashable]
    others: int

    def describe_others(self) -> str:
        """Say what any other value is, after "that"."""
        most = f"wasn't among the {len(self.values)} most frequent in training"
        return ("wasn't in the training rows", "was new or rare in training", most)[self.others]


def describe_unknown_values(model: DialClassifier | PlainDial, table: pd.DataFrame) -> list[str]:
    """Return a sentence on each column with values that the model has no category for."""
    sentences, known = [], find_categories(model)
    for name in table.columns.intersection(list(known)):
        unknown = _without_category(table[name], known[name])
        if len(unknown):
            have = "has" if len(unknown) == 1 else "have"
            sentences.append(
                f"{count_rows(len(unknown))} {have} a value of {name!r} that "
                f"{known[name].describe_others()}, such as {unknown.iloc[0]!r}."
            )
    return sentences


def describe_cut_columns(model: DialClassifier, table: pd.DataFrame) -> list[str]:
    """Return a sentence on each training column with more values than the model has categories."""
    sentences = []
    for name, known in find_categories(model).items():
        many = table[name].nunique() if name in table else 0
        if known.others == CUT and many > len(known.values):
            share = len(_without_category(table[name], known)) / len(table)
            sentences.append(
                f"{name!r} has {many:,} values; the {len(known.values)} most frequent have their "
                f"own category, the others ({share:.1%} of rows) share one."
            )
    return sentences


def _without_category(column: pd.Series, known: Categories) -> pd.Series:
    texts = as_text(column)
    return texts[texts.notna() & ~texts.isin(list(known.values))]


def find_categories(model: DialClassifier | PlainDial) -> dict[str, Categories]:
    """Return the categories of each column that some part of the model's scorer distinguishes.

    Columns of pandas' category type have theirs; others are known where every part starts with an
    encoder that stores them.
    """
    kinds = getattr(model, "feature_dtypes_", {})
    found = {
        name: Categories(set(kind.categories), NEW)
        for name, kind in kinds.items()
        if hasattr(kind, "categories")
    }
    scorer = model.scorer_
    scorers = scorer.scorers if isinstance(scorer, AveragedScorer) else [scorer]
    parts = [part for one in scorers for part in _parts(one)]
    for name in set.intersection(*map(set, parts)) - set(found):
        of = [part[name] for part in parts]
        found[name] = Categories(set.union(*(k.values for k in of)), min(k.others for k in of))
    return found


def _parts(scorer: Any) -> list[dict[str, Categories]]:
    """Return the categories of each estimator of a scorer, or of its network."""
    if isinstance(scorer, PlainScorer):
        return [_known_inputs(model.inputs) for model in scorer.models]
    if not isinstance(scorer, SklearnScorer):
        encode = getattr(scorer, "encode", None)  # a scorer of your own has none
        return [{} if encode is None else _known(encode.encoder)]
    from sklearn.pipeline import Pipeline

    return [
        _known(estimator.steps[0][1]) if isinstance(estimator, Pipeline) else {}
        for estimator in scorer.estimators
    ]


def _known_inputs(inputs: Inputs) -> dict[str, Categories]:
    """Return the categories of a plain model, by column."""
    most = {Code: MOST_CODES, Categorical: MOST_INDICATORS}
    found: dict[str, Categories] = {}
    for block in inputs.blocks:
        if isinstance(block, (Code, OneHot, Categorical)):
            own: set[Hashable] = set(block.categories)
            if isinstance(block, Code) and _is_mean(block):  # another feature of the same column
                found[str(block.name)] = Categories(own, RARE)
                continue
            if isinstance(block, Code):  # infrequent values share a code
                times = Counter(block.codes)
                own = {
                    value
                    for value, code in zip(block.categories, block.codes, strict=True)
                    if times[code] == 1
                }
            cut = len(block.categories) >= most.get(type(block), math.inf)
            found[str(block.name)] = Categories(own, CUT if cut else RARE)
    return found


def _known(encoder: object) -> dict[str, Categories]:
    """Return the categories that a fitted encoder stores, by column."""
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

    from fairdial.tables.encoder import TableEncoder
    from fairdial.tables.frequent import FrequentEncoder
    from fairdial.tables.means import MeanEncoder

    if isinstance(encoder, TableEncoder):
        rules: tuple[Any, ...] = encoder.columns_
        most = encoder.max_categories
        return {
            str(rule.name): Categories(
                set(rule.categories), RARE if len(rule.categories) < most else CUT
            )
            for rule in rules
            if rule.kind != "numeric"
        }
    if not isinstance(encoder, ColumnTransformer):
        return {}
    found = {
        str(name): Categories({*values} - {*rare}, CUT)
        if rare is not None
        else Categories(set(values), RARE if isinstance(step, FrequentEncoder) else NEW)
        for _, step, columns in encoder.transformers_
        if isinstance(step, (OrdinalEncoder, OneHotEncoder)) and isinstance(columns, list)
        for name, values, rare in zip(columns, step.categories_, _rare(step), strict=True)
    }
    means = [step for _, step, _ in encoder.transformers_ if isinstance(step, MeanEncoder)]
    blocks = [block for step in means for block in step.blocks_]
    return found | {str(b.name): Categories(set(b.categories), RARE) for b in blocks}


def _is_mean(block: Code) -> bool:
    """Return whether a block gives each category a share of labels, and not a number of its own."""
    return block.unknown is not None and 0 < block.unknown < 1


def _rare(step: OrdinalEncoder | OneHotEncoder) -> list[Iterable[Hashable] | None]:
    """Return the values of each column that share one category; None where all have their own."""
    found: list[Iterable[Hashable] | None] = getattr(
        step, "infrequent_categories_", [None] * len(step.categories_)
    )
    return found
