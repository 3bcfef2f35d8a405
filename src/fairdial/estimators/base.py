"""What every estimator of the library shares: fit, calibrate, predict.

The three steps use three disjoint sets of rows. ``fit`` trains a scorer, ``calibrate`` finds the
frontier on held-out rows, and ``predict(..., tolerance=)`` decides at any tolerance. ``fit`` holds
rows out and calibrates on them by itself, unless ``calibration=None``.

A method defines how the scorer is trained (``_fit``). There are two kinds of methods: thresholds on
one scorer (``thresholds.py``) and families of models (``families.py``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, NotRequired, Self, TypedDict, Unpack, overload

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import _num_samples, check_is_fitted, validate_data

from fairdial._arrays import Codes, Floats, Weights
from fairdial._validation import (
    check_aligned,
    check_choice,
    check_count,
    check_fraction,
    check_one_tolerance,
    check_same_length,
    check_tolerance,
    check_weights,
    match_groups,
)
from fairdial.core.class_prices import choose_class
from fairdial.core.class_problem import for_classes
from fairdial.core.criteria import Criterion, Given
from fairdial.core.criteria import criterion as find_criterion
from fairdial.core.decide import select
from fairdial.core.frontier import Frontier
from fairdial.core.overlap import check_overlap_problem
from fairdial.core.planning import guess_rate, plan_counts
from fairdial.core.problem import Problem
from fairdial.core.strata import find_strata
from fairdial.core.sweep import check_group_sizes, compare_groups, require_labels
from fairdial.errors import FairdialError, FairdialWarning, InvalidInputError, warn
from fairdial.estimators.labels import encode_classes, find_classes, is_positive
from fairdial.estimators.rows import (
    RowOptions,
    Rows,
    Sample,
    encode_known,
    groups_by_name,
    hold_out,
    name_columns,
    order_groups,
    split_column,
    take_rows,
)
from fairdial.plotting import draw_history
from fairdial.tables.frames import as_pandas

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Key = bytes | str | PathLike[str] | None
Seed = int | np.random.RandomState | None
PLANNED_CONFIDENCE = 0.95  # of the certificate that `calibration="auto"` plans for
LARGEST_SHARE = 0.5  # of the rows that it holds out
MISSING_COLUMN = ("columns", "missing")  # how scikit-learn says that columns aren't there


class Training(TypedDict):
    """How a scorer was trained; a saved model keeps it."""

    rows: int
    ended: NotRequired[str]  # UTC
    asked: NotRequired[str | None]  # --method, if the command line trained it
    chosen: NotRequired[str]  # by AutoDial
    why: NotRequired[str]
    missing_group: NotRequired[str]  # group of rows without one
    proxies: NotRequired[GroupProxies]
    merged_groups: NotRequired[MergedGroups]
    merged_labels: NotRequired[list[str]]  # values of the label that the negative class combines


class MergedGroups(TypedDict):
    """Small groups that became one."""

    name: str
    values: list[list[str]]  # each by its value in every group column


class GroupProxies(TypedDict):
    """How well features tell groups apart, as balanced accuracies."""

    together: float
    columns: dict[str, float]  # the best ones alone
    chance: float


class DialClassifier(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """A classifier whose decisions can be moved to any tolerance after training."""

    # scikit-learn's metadata routing: these are passed on without set_*_request
    __metadata_request__fit = {  # noqa: RUF012
        "sensitive_features": True,
        "sample_weight": True,
        "control_features": True,
    }
    _requested = {"sensitive_features": True, "tolerance": True, "confidence": True}  # noqa: RUF012
    __metadata_request__predict = _requested
    __metadata_request__decision_function = _requested
    __metadata_request__score = {**_requested, "sample_weight": True}  # noqa: RUF012

    _two_classes = "with this method"  # why labels have two classes; "" if they may have more
    limit_classes: Sequence[Hashable] | None = None

    criterion: Given
    tolerance: float | None
    pos_label: object
    min_count: int
    sensitive_column: object
    calibration: float | Literal["auto"] | None
    random_state: Seed

    classes_: NDArray[Any]
    label_name_: str  # if the labels were a named Series
    frontier_: Frontier
    scorer_: Any
    training_: Training  # absent if the scorer was trained elsewhere
    trained_groups_: tuple[Hashable, ...] | None  # groups that the scorer distinguishes
    group_columns_: tuple[Hashable, ...]  # names of several sensitive columns, if they had names

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = not self._two_classes
        return tags

    if not TYPE_CHECKING:  # a type checker that saw it would accept any attribute

        def __getattr__(self, name: str) -> Any:
            """Name the alternatives to probabilities."""
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name == "predict_proba":
                message += (
                    ": decisions depend on the tolerance. Use `predict(X, tolerance=...)` for "
                    "decisions, `decision_function` for distances from the threshold"
                )
                message += ", `logits` for scores" if hasattr(type(self), "logits") else ""
            raise AttributeError(message, name=name, obj=self)

    # ---- fit -----------------------------------------------------------------------------------

    @groups_by_name
    def fit(
        self,
        X: object,
        y: object,
        *,
        sensitive_features: object = None,
        sample_weight: object = None,
        control_features: object = None,
    ) -> Self:
        """Train, and find the frontier on rows held out from training.

        If it fails, the estimator stays as it was.

        Parameters
        ----------
        X : DataFrame or array-like; for networks also torch Tensor or Dataset
            Features.
        y : array-like
            Labels of any type. The greater one of two classes is positive, unless ``pos_label`` is
            set. :class:`FairBayes` on a scikit-learn classifier takes more than two classes.
        sensitive_features : array-like, Series or DataFrame, optional
            Group of each row, any names; several columns are combined into their intersections.
            Without it, all rows are one group: a plain classifier.
        sample_weight : array-like, optional
            Weight of each row, in training and in calibration. Whole numbers mean repeated rows; a
            row with weight 0 is left out.
        control_features : array-like, Series or DataFrame, optional
            Strata of the rows: the tolerance then holds within each of them. If the criterion has
            conditions, these are its columns. Predicting doesn't need them.
        """
        given: RowOptions = {"sample_weight": sample_weight, "control_features": control_features}
        with self._unchanged_on_error(), self._explain_missing_column():
            for name in ("model_hash_", "label_name_", "training_", "group_columns_"):
                self.__dict__.pop(name, None)
            if isinstance(y, pd.Series) and isinstance(y.name, str):
                self.label_name_ = y.name
            self._fit(X, y, sensitive_features, **_without_none(given))
            if hasattr(self, "training_"):
                ended = datetime.now(UTC).isoformat(" ", "seconds").removesuffix("+00:00")
                self.training_["ended"], self.training_["asked"] = ended, None
            return self

    @abstractmethod
    def _fit(
        self, X: object, y: object, sensitive_features: object, **more: Unpack[RowOptions]
    ) -> Self:
        """Train a scorer: ``_rows_to_fit``, set ``scorer_``, then ``_calibrate_held_out``.

        ``more`` has sample weights and control features, if there are any, for ``_rows_to_fit``.
        """

    def _rows_to_fit(
        self,
        X: object,
        y: object,
        sensitive_features: object,
        seed: int | None = None,
        **more: Unpack[RowOptions],
    ) -> Rows:
        """Check everything that ``fit`` is given, set ``classes_``, and hold out rows.

        ``seed`` decides which rows are held out; ``random_state`` does by default.
        """
        self._check_tolerance()
        problem = self._make_problem(np.inf)
        check_aligned(X, y, "y")
        X, sensitive = self._take_groups(X, sensitive_features)
        self._name_groups(sensitive)
        X = self._check_features(X, reset=True)
        labels, self.classes_ = find_classes(
            y, self.pos_label, problem.criterion, two=self._two_classes
        )
        n_classes = len(self.classes_)
        check_same_length(range(_num_samples(X)), labels, ("X", "y"))
        known, codes, groups, sensitive = encode_known(sensitive, len(labels), None, self._unknown)
        if len(groups) == 1:
            warn(
                "all rows belong to one group, so there is no gap to control; pass "
                "`sensitive_features` or set `sensitive_column`",
                FairdialWarning,
            )
        weights, criterion, strata = self._read_options(X, problem, more)
        all_rows = np.arange(len(labels)) if weights is None else np.flatnonzero(weights)
        positive, none = labels == self.classes_[1], all_rows[:0]
        places = encode_classes(labels, self.classes_) if n_classes > 2 else None
        given = X, positive, labels, codes, groups, all_rows, none, criterion, strata, weights
        rows = Rows(*given, n_classes, places)
        rows.known = known
        rows.compared = self._compare(
            criterion, sensitive, codes if known is None else codes[known], groups
        )
        crossed = getattr(self, "cv", None) is not None
        if not crossed and self.calibration is not None:
            share = self._held_share(rows)
            rng = check_random_state(self.random_state if seed is None else seed)
            pooled = rows.compared.has_groupings or n_classes > 2
            if known is None:
                held = hold_out(rows.cells[all_rows], share, rng, pooled=pooled)
            else:
                places_known = np.flatnonzero(known[all_rows])
                cells = rows.cells[all_rows][places_known]
                held = places_known[hold_out(cells, share, rng, pooled=pooled)]
            rows.held, rows.train = all_rows[held], np.delete(all_rows, held)
        if crossed or self.calibration is not None:  # fail before anything is trained
            self._check_sample(rows.sample(all_rows if crossed else rows.held))
        self.training_ = {"rows": len(rows.train)}
        return rows

    def _held_share(self, rows: Rows) -> float:
        """Return the share of the rows to hold out; "auto" plans it for the default tolerance."""
        if self.calibration != "auto":
            return check_fraction(self.calibration, "calibration")
        tolerance = self.default_tolerance
        if not tolerance:
            raise InvalidInputError(
                "calibration",
                "be a share unless `tolerance` is set: 'auto' holds out what certifying it needs",
                given="'auto' with tolerance 0",
            )
        sample = rows.sample(np.arange(len(rows.labels)))
        plan = plan_counts(
            sample.criterion,
            sample.counts(),
            rows.groups,
            tolerance,
            PLANNED_CONFIDENCE,
            guess_rate(sample.criterion, rows.y),
        )
        if plan.share is None:
            warn(
                f"half of the rows are held out, but even these are likely to certify only about "
                f"{plan.smallest:.3f} and not {tolerance:g}: the smallest group, "
                f"{rows.groups[int(np.argmin(plan.rows))]!r}, needs more rows",
                FairdialWarning,
            )
        return LARGEST_SHARE if plan.share is None else plan.share

    def _calibrate_held_out(self, rows: Rows) -> Self:
        """Find the frontier on the rows held out from training; with none, drop the old one."""
        if self.calibration is None:
            for name in ("frontier_", "platt_"):
                self.__dict__.pop(name, None)
            return self
        return self._find_frontier(take_rows(rows.X, rows.held), rows.sample(rows.held))

    # ---- calibrate -----------------------------------------------------------------------------

    @groups_by_name
    def calibrate(
        self,
        X: object,
        y: ArrayLike | None = None,
        *,
        sensitive_features: object = None,
        sample_weight: object = None,
        control_features: object = None,
    ) -> Self:
        """Find the frontier on held-out rows; the scorer stays as it is.

        Parameters
        ----------
        X : array-like or DataFrame
            Rows that the scorer was not trained on.
        y : array-like, optional
            Labels. Demographic parity works without them; the frontier then has no accuracy.
        sensitive_features : array-like, Series or DataFrame
            Group of each row.
        sample_weight : array-like, optional
            Weight of each row. Whole numbers mean repeated rows.
        control_features : array-like, Series or DataFrame, optional
            Strata of the rows: the tolerance then holds within each of them.
        """
        self._check_scorer()
        other = self._trained_groups() is None  # then groups may be others than before
        X, sensitive = self._take_groups(X, sensitive_features, other=other)
        X = self._check_features(X, reset=not hasattr(self, "n_features_in_"))
        known = self.frontier_.groups if hasattr(self, "frontier_") else ()
        if sensitive is None and len(known) > 1:
            raise InvalidInputError("sensitive_features", "be given, as in the last calibration")
        strata = known and self.frontier_.classes is None and self.frontier_.criterion.n_strata > 1
        if control_features is None and strata:
            warn(
                "the last calibration had `control_features`, but this one has none: the tolerance "
                "no longer holds within their strata",
                FairdialWarning,
            )
        with self._explain_missing_column():
            self._calibrate(
                X,
                y,
                sensitive,
                sample_weight=sample_weight,
                control_features=control_features,
            )
        if other and (name_columns(sensitive) or self.frontier_.groups != known):
            self._name_groups(sensitive)
        self.__dict__.pop("model_hash_", None)  # this is no longer the saved model
        return self

    def _calibrate(self, X: Any, y: object, sensitive: object, **more: Unpack[RowOptions]) -> Self:
        """Find the frontier on rows whose features were checked."""
        n_classes, positive, places = len(self.classes_), None, None
        if y is not None and n_classes == 2:
            positive = is_positive(y, self.classes_)
        elif y is not None:
            places = encode_classes(y, self.classes_)
        for given in (positive, places):
            if given is not None:
                check_same_length(range(_num_samples(X)), given, ("X", "y"))
        known, codes, groups, sensitive = encode_known(
            sensitive, _num_samples(X), self._trained_groups(), self._unknown
        )
        weights, criterion, strata = self._read_options(X, self._make_problem(np.inf), more)
        criterion = self._compare(
            criterion, sensitive, codes if known is None else codes[known], groups
        )
        if weights is not None and not weights.all():  # a weight of 0 is no row
            kept = np.flatnonzero(weights)
            X, codes, weights = take_rows(X, kept), codes[kept], weights[kept]
            positive = None if positive is None else positive[kept]
            places = None if places is None else places[kept]
            strata = None if strata is None else strata[kept]
            known = None if known is None else known[kept]
        given_rows = codes, groups, positive, criterion, strata, weights
        sample = Sample(*given_rows, n_classes=n_classes, classes=places, known=known)
        self._check_sample(sample)
        return self._find_frontier(X, sample)

    @abstractmethod
    def _find_frontier(self, X: Any, sample: Sample) -> Self:
        """Set ``frontier_`` from these rows, which were checked."""

    @abstractmethod
    def _make_problem(self, n_rows: float) -> Problem:
        """Return what the dial solves on this many calibration rows, or the sum of weights."""

    def _read_options(
        self, X: Any, problem: Problem, more: RowOptions
    ) -> tuple[Weights | None, Criterion, Codes | None]:
        """Return checked weights, the criterion with its conditions applied, and strata."""
        n_rows, control = _num_samples(X), as_pandas(more.get("control_features"))
        check_aligned(X, more.get("sample_weight"), "sample_weight")
        check_aligned(X, control, "control_features")
        if control is not None:
            check_same_length(
                range(n_rows), range(_num_samples(control)), ("X", "control_features")
            )
        if len(self.classes_) > 2:
            if control is not None:
                raise InvalidInputError(
                    "control_features", "be left out with more than two classes"
                )
            criterion, strata = self._of_classes(problem.criterion), None
        else:
            criterion, strata = find_strata(problem.criterion, control, n_rows)
        return check_weights(more.get("sample_weight"), n_rows), criterion, strata

    def _of_classes(self, criterion: Criterion) -> Criterion:
        """Return the criterion for each of the classes, or for those of ``limit_classes``."""
        return for_classes(criterion, tuple(self.classes_.tolist()), self.limit_classes)

    def _compare(
        self, criterion: Criterion, sensitive: object, codes: Codes, groups: Sequence[Hashable]
    ) -> Criterion:
        """Return the criterion of what is compared if there are several sensitive columns."""
        overlap = getattr(self, "groups", "intersection")
        if overlap != "intersection" and len(self.classes_) > 2:
            raise InvalidInputError(
                "groups", "be 'intersection' with more than two classes", given=repr(overlap)
            )
        given = criterion, overlap, "groups", sensitive, codes, groups
        found = compare_groups(*given, "sensitive_features")
        if overlap == "marginal" and found.has_groupings:
            check_overlap_problem(replace(self._make_problem(np.inf), criterion=found))
        return found

    @property
    def _unknown(self) -> str:
        """What to do about rows without a known group."""
        how: str = check_choice(getattr(self, "unknown", "raise"), "unknown", ("raise", "estimate"))
        if how == "estimate" and not getattr(self, "blind", False):
            raise InvalidInputError(
                "unknown",
                "be 'raise' unless `blind=True`",
                given=repr(how),
                hint="Thresholds of groups need the group.",
            )
        return how

    def _check_sample(self, sample: Sample) -> None:
        """Raise if these rows can't be calibrated on, such as for small groups."""
        require_labels(self._make_problem(sample.n_rows), sample.is_labeled)
        check_group_sizes(
            sample.criterion,
            sample.counts(),
            sample.groups,
            min_count=self._least_count(sample.groups),
            argument="sensitive_features",
        )

    def _least_count(self, groups: Sequence[Hashable]) -> int:
        """Return ``min_count``; without groups any number of rows is enough."""
        return check_count(self.min_count, "min_count") if len(groups) > 1 else 1

    def _trained_groups(self) -> tuple[Hashable, ...] | None:
        """Return the groups that the scorer distinguishes; None if it doesn't."""
        return getattr(self, "trained_groups_", None)

    def _check_scorer(self) -> None:
        """Raise if the estimator isn't fitted."""
        check_is_fitted(self, "scorer_")

    def _check_calibrated(self) -> None:
        """Raise if the estimator isn't fitted, or is fitted but not calibrated."""
        self._check_scorer()
        if not hasattr(self, "frontier_"):
            raise NotFittedError(
                f"This {type(self).__name__} instance is not calibrated yet. Call `calibrate` with "
                "rows that it was not trained on."
            )

    # ---- predict -------------------------------------------------------------------------------

    @property
    def default_tolerance(self) -> float:
        """The tolerance of ``predict``: the constructor's, or the one that the criterion declares.

        A criterion such as ``{"demographic_parity": 0.10, "equal_opportunity": 0.05}`` declares
        0.10, unless the constructor was given a tolerance above 0.
        """
        declared = find_criterion(self.criterion).declared
        return self.tolerance or (0.0 if declared is None else declared)

    def _check_tolerance(self) -> None:
        """Raise unless the constructor's tolerance is a number in [0, 1] or None."""
        if self.tolerance is not None:
            check_one_tolerance(self.tolerance)

    @overload
    def predict(
        self,
        X: object,
        *,
        sensitive_features: object = ...,
        tolerance: ArrayLike | None = ...,
        confidence: float | None = ...,
        tolerances: None = ...,
    ) -> NDArray[Any]: ...

    @overload
    def predict(
        self,
        X: object,
        *,
        sensitive_features: object = ...,
        confidence: float | None = ...,
        tolerances: Sequence[float] | Floats,
    ) -> pd.DataFrame: ...

    @groups_by_name
    def predict(
        self,
        X: object,
        *,
        sensitive_features: object = None,
        tolerance: ArrayLike | None = None,
        confidence: float | None = None,
        tolerances: Sequence[float] | Floats | None = None,
    ) -> NDArray[Any] | pd.DataFrame:
        """Return decisions at a tolerance, as labels, or a table of them at several tolerances.

        Parameters
        ----------
        X : array-like or DataFrame
            Features.
        sensitive_features : array-like, Series or DataFrame
            Group of each row: decisions depend on it.
        tolerance : float or array of float, optional
            The largest allowed gap; one number, or one for each row. By default
            ``default_tolerance``.
        confidence : float, optional
            Keep the gap on new rows within the tolerance with this confidence. Without it, the gap
            on the calibration rows is kept within the tolerance. With one tolerance for each row
            the statement holds for all tolerances at once; only a threshold path of two groups
            takes that.
        tolerances : sequence of float, optional
            Decide at each of these: the result is a DataFrame with a column for each. Rows are
            scored once, so that ten tolerances take hardly longer than one.
        """
        if tolerances is not None:
            if tolerance is not None:
                raise InvalidInputError("tolerances", "be given without `tolerance`")
            return self._predict_at(X, sensitive_features, tolerances, confidence)
        margin = self.decision_function(
            X, sensitive_features=sensitive_features, tolerance=tolerance, confidence=confidence
        )
        return self._labels(margin)

    def _predict_at(
        self,
        X: object,
        sensitive_features: object,
        tolerances: Sequence[float] | Floats,
        confidence: float | None,
    ) -> pd.DataFrame:
        """Return a column of decisions for each tolerance; rows are scored once."""
        wanted = np.atleast_1d(check_tolerance(tolerances, "tolerances"))
        rows, codes = self._rows_to_score(X, sensitive_features)
        margins = self._margins(rows, codes, [np.asarray(t) for t in wanted], confidence)
        found = pd.DataFrame(
            {i: self._labels(margin) for i, margin in enumerate(margins)},
            index=X.index if isinstance(X, pd.DataFrame) else None,
        )
        return found.set_axis(pd.Index(wanted, name="tolerance"), axis=1)

    def _labels(self, margin: Floats) -> NDArray[Any]:
        """Return the labels of margins, (n,), or for more than two classes (n, C)."""
        if margin.ndim == 2:
            return np.asarray(self.classes_[choose_class(margin)])
        return np.asarray(self.classes_[select(margin, 0.0).astype(np.intp)])

    @groups_by_name
    def decision_function(
        self,
        X: object,
        *,
        sensitive_features: object = None,
        tolerance: ArrayLike | None = None,
        confidence: float | None = None,
    ) -> Floats:
        """Return how far each row is above the threshold of the positive label at a tolerance.

        With more than two classes, it is the probability of each class minus its price, (n, C); a
        row gets the class with the largest.
        """
        X, codes = self._rows_to_score(X, sensitive_features)
        tolerances = check_tolerance(self.default_tolerance if tolerance is None else tolerance)
        if tolerances.ndim:
            check_same_length(codes, tolerances, ("X", "tolerance"))
        return self._margins(X, codes, [tolerances], confidence)[0]

    def flips(
        self,
        X: object,
        tolerance_from: float,
        tolerance_to: float,
        *,
        sensitive_features: object = None,
    ) -> NDArray[np.int8]:
        """Return whose decision changes: +1 gains the positive label, -1 loses it."""
        if len(self.classes_) > 2:
            raise InvalidInputError(
                "flips",
                "be called on a model with two classes",
                given=f"one with {len(self.classes_)}",
                hint="Compare the labels that predict returns at the two tolerances.",
            )
        X, codes = self._rows_to_score(X, sensitive_features)
        tolerances = [
            np.asarray(check_one_tolerance(tolerance_from, "tolerance_from")),
            np.asarray(check_one_tolerance(tolerance_to, "tolerance_to")),
        ]
        margins = self._margins(X, codes, tolerances, None)
        before, after = (select(margin, 0.0) for margin in margins)
        return after.astype(np.int8) - before.astype(np.int8)

    def score(
        self,
        X: object,
        y: object,
        sample_weight: object = None,
        *,
        sensitive_features: object = None,
        tolerance: ArrayLike | None = None,
        confidence: float | None = None,
    ) -> float:
        """Return the accuracy of the decisions at a tolerance."""
        decisions = self.predict(
            X, sensitive_features=sensitive_features, tolerance=tolerance, confidence=confidence
        )
        return float(accuracy_score(y, decisions, sample_weight=sample_weight))

    @abstractmethod
    def _margins(
        self, X: Any, codes: Codes, tolerances: Sequence[Floats], confidence: float | None
    ) -> list[Floats]:
        """Return (n,) margins for each entry: one tolerance, or one for each row.

        Rows are scored once, however many entries there are.
        """

    def _rows_to_score(self, X: object, sensitive_features: object) -> tuple[Any, Codes]:
        """Return checked features and group codes of rows to decide on."""
        self._check_calibrated()
        X, sensitive = self._take_groups(X, sensitive_features)
        X = self._check_features(X, reset=False)
        return X, self._codes(sensitive, _num_samples(X), self.frontier_.groups)

    def _codes(
        self, sensitive_features: object, n_rows: int, groups: tuple[Hashable, ...]
    ) -> Codes:
        """Return group codes of rows to score."""
        if sensitive_features is None:
            if len(groups) == 1:
                return np.zeros(n_rows, np.intp)
            raise InvalidInputError(
                "sensitive_features",
                "be given: decisions depend on the group, one of " + ", ".join(map(repr, groups)),
            )
        codes = match_groups(sensitive_features, groups, "sensitive_features")
        check_same_length(range(n_rows), codes, ("X", "sensitive_features"))
        return codes

    def plot_history(self, *, title: str = "") -> Figure:
        """Plot a network's learning curves, ``history_``; needs ``plot``.

        Panels show losses, accuracy, score and gap on validation rows, and how well GFB's auxiliary
        system is solved. The selected epoch is marked; the warm start is shaded.
        """
        self._check_scorer()
        if not hasattr(self, "history_"):
            raise InvalidInputError(
                "estimator",
                "be one network to have learning curves",
                given=type(self).__name__ + " without `history_`",
            )
        return draw_history(self.history_, self.best_epoch_, title=title)

    # ---- save ----------------------------------------------------------------------------------

    def save(self, folder: str | PathLike[str], *, overwrite: bool = False, key: Key = None) -> str:
        """Write the model to a folder; :func:`fairdial.load` reads it back.

        Weights, frontier and settings are plain files (JSON, safetensors); scikit-learn estimators
        are saved by skops. Nothing in the folder can run code. ``MODEL_CARD.md`` describes the
        model. Callbacks, the checkpoint folder and the code of your own trunk are not saved.

        Parameters
        ----------
        folder : path
            A new folder. It appears complete or not at all.
        overwrite : bool
            Replace the model in the folder.
        key : bytes or path, optional
            Sign the model with these bytes, at least 16, or with those of a file.

        Returns
        -------
        str
            The model's hash: SHA-256 of the manifest, and ``model_hash_`` of the loaded model.

        Examples
        --------
        >>> import tempfile
        >>> from sklearn.linear_model import LogisticRegression
        >>> import fairdial
        >>> from fairdial.datasets import make_gaussian
        >>> sample = make_gaussian(5000, random_state=0)
        >>> dial = fairdial.FairBayes(LogisticRegression(), per_group=True, random_state=0)
        >>> dial = dial.fit(sample.X, sample.y, sensitive_features=sample.groups)
        >>> with tempfile.TemporaryDirectory() as place:
        ...     name = dial.save(f"{place}/dial", key=b"sixteen bytes or more")
        ...     again = fairdial.load(f"{place}/dial", key=b"sixteen bytes or more")
        >>> again.model_hash_ == name
        True
        """
        from fairdial.io.save import save_model  # the one import that points up

        return save_model(self, folder, overwrite=overwrite, key=key)

    # ---- checks --------------------------------------------------------------------------------

    def _take_groups(
        self, X: Any, sensitive_features: object, *, other: bool = False
    ) -> tuple[Any, Any]:
        """Return the features without the sensitive column, and the groups (or None).

        Columns of groups are put in the order of ``group_columns_``; ``other`` says that they may
        be others.
        """
        check_aligned(X, sensitive_features, "sensitive_features")
        X = as_pandas(X)
        sensitive_features = as_pandas(sensitive_features, "sensitive_features")
        if self.sensitive_column is None:
            return X, self._order_groups(sensitive_features, other=other)
        if sensitive_features is not None:
            raise InvalidInputError(
                "sensitive_features",
                "be left out if `sensitive_column` is set",
                given="both",
                hint=f"The groups are read from X, which must have {self.sensitive_column!r}.",
            )
        return split_column(X, self.sensitive_column)

    def _order_groups(self, sensitive: Any, *, other: bool = False) -> Any:
        """Return sensitive columns in the order of ``group_columns_``; ``other`` allows others."""
        known = getattr(self, "group_columns_", None)
        if other and known is not None and set(name_columns(sensitive) or ()) != set(known):
            return sensitive
        return order_groups(sensitive, known)

    def _name_groups(self, sensitive: Any) -> None:
        """Remember the names of several sensitive columns that groups were learned from."""
        self.__dict__.pop("group_columns_", None)
        names = name_columns(sensitive)
        if names is not None and self.sensitive_column is None:
            self.group_columns_ = names

    def _check_features(self, X: Any, *, reset: bool) -> Any:
        """Check shape and feature names as scikit-learn does; the scorer checks values."""
        if issparse(X):
            X = X.tocsr()  # rows can be taken from this format
        elif not hasattr(X, "__getitem__"):
            X = np.asarray(X)
        if _num_samples(X) == 0:
            raise InvalidInputError("X", "hold at least one row", given="0 sample(s)")
        if not reset and hasattr(self, "n_features_in_") and _ndim(X) == 1:
            raise InvalidInputError(
                "X",
                "have two dimensions",
                given=f"shape {np.shape(X)}",
                hint="Reshape your data with array.reshape(1, -1) if it is a single row.",
            )
        validate_data(self, X, skip_check_array=True, reset=reset)
        if reset:
            self.__dict__.pop("feature_dtypes_", None)
            if isinstance(X, pd.DataFrame) and X.columns.is_unique:
                self.feature_dtypes_ = X.dtypes.to_dict()
        return X

    @contextmanager
    def _unchanged_on_error(self) -> Iterator[None]:
        """Restore all attributes if an error occurs."""
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    @contextmanager
    def _explain_missing_column(self) -> Iterator[None]:
        """Explain that fairdial removed the sensitive column, if the estimator misses it."""
        try:
            yield
        except (ValueError, KeyError) as raised:
            older = isinstance(raised.__cause__, KeyError)  # scikit-learn before 1.7
            error = raised.__cause__ if older else raised
            column, message = self.sensitive_column, str(error).strip()
            names = column if isinstance(column, (list, tuple)) else [column]
            texts = [name for name in names if isinstance(name, str)]
            needed = [n for n in texts if repr(n) in message or f"- {n}" in message.splitlines()]
            absent = isinstance(error, KeyError) or any(word in message for word in MISSING_COLUMN)
            if isinstance(error, FairdialError) or not needed or not absent:
                raise  # the message may quote a cell with the column's name
            raise InvalidInputError(
                "sensitive_column",
                "be a column that the estimator doesn't need",
                given=f"{needed[0]!r}, which is removed from `X` ({' '.join(message.split())})",
                hint="Pass the groups by `sensitive_features` instead; `X` then keeps the column.",
            ) from error


def _without_none(given: RowOptions) -> RowOptions:
    """Return what was given."""
    return {name: value for name, value in given.items() if value is not None}  # type: ignore[return-value]


def _ndim(X: Any) -> int:
    """Return the dimensions of rows; a torch Dataset is not opened."""
    if hasattr(X, "ndim"):
        return int(X.ndim)
    return np.ndim(X) if isinstance(X, (list, tuple)) else 2
