"""Decide, calibrate and evaluate where the rows are: one call for the tables of seven engines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from fairdial._arrays import Mask, exact_weights
from fairdial._validation import check_fraction
from fairdial.core.criteria import criterion as find_criterion
from fairdial.errors import InvalidInputError
from fairdial.large.engines import Engine, find_engine
from fairdial.large.evaluation import LEVEL, Evaluation, evaluate_counts
from fairdial.large.files import BITS
from fairdial.large.model_rows import RowReader
from fairdial.large.second_pass import CellBatch, SecondPass
from fairdial.large.summary import ScoreSummary
from fairdial.large.tasks import (
    DECISION,
    CountDecisions,
    CountScores,
    Decide,
    OpenBins,
    ReadScores,
    names_of,
)

Model = TypeVar("Model")
Columns = str | Sequence[str]


def decide(
    data: Any,
    model: Any,
    *,
    tolerance: float | None = None,
    group: Columns | None = None,
    confidence: float | None = None,
    simultaneous: bool = False,
) -> Any:
    """Append the decisions of a model to a table, where its rows are.

    The decisions are those of ``model.predict`` on all rows in one process.

    Parameters
    ----------
    data : table
        A DataFrame of pandas, polars, dask or Spark, a LazyFrame of polars, a Table or Dataset of
        pyarrow, a relation of DuckDB, or a Dataset of Ray. It must have the columns that the model
        was trained on; other columns are kept, and partitions may be empty.
    model : estimator
        A calibrated model, trained on a DataFrame. Each worker receives it once.
    tolerance : float, optional
        The largest allowed gap, by default the model's.
    group : str or sequence of str, optional
        Group columns, if the model was trained with ``sensitive_features=``.
    confidence, simultaneous : optional
        As in :meth:`fairdial.Frontier.at`.

    Returns
    -------
    table
        The rows with new columns: ``decision``, the label; ``margin``, the distance of the score
        from the threshold; and, for methods with thresholds, ``logit``, the score. Tables of dask,
        Spark and Ray and LazyFrames stay lazy. For a relation of DuckDB and a Dataset of pyarrow it
        is a ``RecordBatchReader``, which holds one batch at a time; read it once.

    Examples
    --------
    >>> import polars
    >>> from sklearn.linear_model import LogisticRegression
    >>> from fairdial import FairBayes
    >>> from fairdial.datasets import make_gaussian
    >>> from fairdial.large import decide
    >>> sample = make_gaussian(4000, random_state=0)
    >>> rows = polars.from_pandas(sample.X.assign(sex=sample.groups))
    >>> model = FairBayes(
    ...     LogisticRegression(), per_group=True, sensitive_column="sex", random_state=0
    ... )
    >>> model = model.fit(rows.to_pandas(), sample.y)
    >>> decide(rows, model, tolerance=0.05).columns
    ['x', 'sex', 'decision', 'margin', 'logit']
    """
    engine = find_engine(data)
    reader = _reader(model, engine, group, calibrated=True)
    task = Decide.at(reader, tolerance, confidence, simultaneous)
    for name in task.fields:
        if name in engine.columns:
            raise InvalidInputError(
                "data", "not have a column that is appended", given=f"a column {name!r}"
            )
    return engine.append(task, task.fields)


def calibrate(
    data: Any,
    model: Model,
    *,
    label: str | None = None,
    group: Columns | None = None,
    weight: str | None = None,
    control: Columns | None = None,
    tolerances: ArrayLike | None = None,
    score: str | None = None,
) -> Model:
    """Find the frontier of a model on the rows of a table, where they are.

    Workers score their rows and count them; only counts travel.

    Parameters
    ----------
    data : table
        As in :func:`decide`: rows that the scorer was not trained on.
    model : estimator
        A fitted model with thresholds on one scorer. It is changed and returned.
    label : str, optional
        Column of labels. Demographic parity works without it.
    group : str or sequence of str, optional
        Group columns, if the model was trained with ``sensitive_features=``.
    weight : str, optional
        Column of sample weights.
    control : str or sequence of str, optional
        Columns of strata, within which the tolerance then holds.
    tolerances : array-like, optional
        Where the answers must be exact: equal to those of ``model.calibrate`` on all rows in one
        process. A second pass then opens the bins that they depend on; only the scores in these
        bins travel, about 1% of the rows for ten tolerances. Without it, thresholds are edges of
        bins, within the tolerance; see :class:`fairdial.ScoreSummary`.
    score : str, optional
        Column of this model's logits, such as :func:`decide` appends. By default rows are scored
        in each pass.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from fairdial import FairBayes
    >>> from fairdial.datasets import make_gaussian
    >>> from fairdial.large import calibrate
    >>> sample = make_gaussian(8000, random_state=0)
    >>> rows = sample.X.assign(sex=sample.groups)
    >>> model = FairBayes(
    ...     LogisticRegression(), per_group=True, sensitive_column="sex", random_state=0
    ... )
    >>> model = model.fit(rows[:4000], sample.y[:4000])
    >>> new = rows[4000:].assign(label=sample.y[4000:])
    >>> calibrate(new, model, label="label", tolerances=[0.05]).frontier_.at(0.05).gap <= 0.05
    True
    """
    engine = find_engine(data)
    if not hasattr(model, "calibrate_summary"):
        raise InvalidInputError(
            "model", "be a model with thresholds on one scorer", given=type(model).__name__
        )
    reader = _reader(model, engine, group, label, weight, control, scored=score is not None)
    if score is not None and score not in engine.columns:
        raise InvalidInputError("score", f"be one of {engine.columns}", given=repr(score))
    read = ReadScores(reader, score)
    summary = _summary(engine, read)
    exact = tolerances is not None and model.problem.uses_path and not summary.strata  # type: ignore[attr-defined]
    return model.calibrate_summary(  # type: ignore[no-any-return]
        summary,
        tolerances=tolerances,
        refine=WorkersPass(engine, read, summary) if exact else None,
    )


def evaluate(
    data: Any,
    model: Any,
    *,
    label: str | None = None,
    group: Columns | None = None,
    weight: str | None = None,
    control: Columns | None = None,
    tolerance: float | None = None,
    confidence: float | None = None,
    simultaneous: bool = False,
    level: float = LEVEL,
) -> Evaluation:
    """Measure a model's decisions on the rows of a table, where they are.

    Workers decide on their rows and count decisions by group and label; only these counts travel.

    Parameters
    ----------
    data : table
        As in :func:`decide`: rows used neither for training nor for calibration.
    model : estimator
        A calibrated model.
    label : str, optional
        Column of labels; without it, accuracy is unknown.
    group, weight, control : optional
        As in :func:`calibrate`.
    tolerance, confidence, simultaneous : optional
        As in :func:`decide`.
    level : float
        Confidence of the intervals; see :func:`evaluate_counts`.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from fairdial import FairBayes
    >>> from fairdial.datasets import make_gaussian
    >>> from fairdial.large import evaluate
    >>> sample = make_gaussian(8000, random_state=0)
    >>> rows = sample.X.assign(sex=sample.groups)
    >>> model = FairBayes(
    ...     LogisticRegression(), per_group=True, sensitive_column="sex", random_state=0
    ... )
    >>> model = model.fit(rows[:4000], sample.y[:4000])
    >>> new = rows[4000:].assign(label=sample.y[4000:])
    >>> found = evaluate(new, model, label="label", tolerance=0.05)
    >>> found.gap_interval[0] <= found.gap <= found.gap_interval[1]
    True
    """
    check_fraction(level, "level")
    engine = find_engine(data)
    reader = _reader(model, engine, group, label, weight, control, calibrated=True, measured=True)
    kind = find_criterion(model.criterion)
    if kind.needs_labels and label is None:
        raise InvalidInputError("label", f"be given for {kind.name}")
    task = CountDecisions(Decide.at(reader, tolerance, confidence, simultaneous))
    found = names_of(engine.count(task)).rename(columns={"place": DECISION})
    if not len(found):
        raise InvalidInputError("data", "have at least one row", given="none")
    if weight is None:
        found = found.drop(columns="weight")
    return evaluate_counts(found, kind, level=level, groups=model.frontier_.groups)


class WorkersPass(SecondPass):
    """The rows of an engine's table again: workers return only scores in opened bins."""

    def __init__(self, engine: Engine, read: ReadScores, summary: ScoreSummary) -> None:
        self._engine, self._read, self._summary = engine, read, summary

    def read(self, flags: Mask) -> Iterator[CellBatch]:
        """Yield the distinct scores in the flagged bins, with their counts or sums of weights."""
        summary = self._summary
        task = OpenBins(
            self._read, np.packbits(flags), summary.groups, summary.strata, summary.bits
        )
        found = self._engine.count(task)
        rows = found["rows"].to_numpy(np.int64)
        if self._read.reader.weight is not None:
            rows = exact_weights(found["weight"].to_numpy(np.float64))
        cells = found["cell"].astype(np.int64).to_numpy()
        yield found["place"].to_numpy(np.float64), cells, rows


def _reader(
    model: Any,
    engine: Engine,
    group: Columns | None,
    label: str | None = None,
    weight: str | None = None,
    control: Columns | None = None,
    *,
    scored: bool = False,
    calibrated: bool = False,
    measured: bool = False,
) -> RowReader:
    """Return what reads a model's rows, after checking columns and model."""
    if not hasattr(model, "classes_") or (calibrated and not hasattr(model, "frontier_")):
        needed = "calibrated" if calibrated else "fitted"
        raise InvalidInputError("model", f"be a {needed} model", given=type(model).__name__)
    return RowReader.of(
        model,
        engine.columns,
        group=group,
        label=label,
        weight=weight,
        control=control,
        scored=scored,
        measured=measured,
    )


def _summary(engine: Engine, read: ReadScores) -> ScoreSummary:
    """Return the summary of the scores of all rows."""
    found = names_of(engine.count(CountScores(read, BITS))).rename(columns={"place": "bin"})
    if not len(found):
        raise InvalidInputError("data", "have at least one row", given="none")
    if read.reader.weight is None:
        found = found.drop(columns="weight")
    return ScoreSummary.from_counts(found.assign(dtype="float64", bits=BITS))
