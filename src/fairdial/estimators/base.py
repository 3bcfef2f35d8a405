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
from datetime import UTC, datetime
from os import PathLike
from typing import TYPE_CHECKING, Any, NotRequired, Self, TypedDict

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import _num_samples, check_is_fitted, validate_data

from fairdial._arrays import Codes, Floats, Mask
from fairdial._validation import (
    check_aligned,
    check_count,
    check_fraction,
    check_one_tolerance,
    check_same_length,
    check_tolerance,
    match_groups,
)
from fairdial.core.criteria import Criterion
from fairdial.core.criteria import criterion as find_criterion
from fairdial.core.decide import count_rows, select
from fairdial.core.frontier import Certificate, Frontier
from fairdial.core.sweep import check_group_sizes
from fairdial.errors import FairdialError, FairdialWarning, InvalidInputError, warn
from fairdial.estimators.labels import find_classes, is_positive
from fairdial.estimators.rows import (
    Rows,
    encode_rows,
    groups_by_name,
    hold_out,
    split_column,
    take_rows,
)

Key = bytes | str | PathLike[str] | None
Seed = int | np.random.RandomState | None
MISSING_COLUMN = ("columns", "missing")  # how scikit-learn says that columns aren't there


class Training(TypedDict):
    """How a scorer was trained; a saved model keeps it."""

    rows: int
    ended: NotRequired[str]  # UTC
    asked: NotRequired[str | None]  # --method, if the command line trained it
    chosen: NotRequired[str]  # by AutoDial
    why: NotRequired[str]
    missing_group: NotRequired[str]  # group of rows without one


class DialClassifier(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """A classifier whose decisions can be moved to any tolerance after training."""

    # scikit-learn's metadata routing: these are passed on without set_*_request
    __metadata_request__fit = {"sensitive_features": True}  # noqa: RUF012
    _requested = {"sensitive_features": True, "tolerance": True, "confidence": True}  # noqa: RUF012
    __metadata_request__predict = _requested
    __metadata_request__decision_function = _requested
    __metadata_request__score = _requested

    criterion: str | Criterion
    tolerance: float
    pos_label: object
    min_count: int
    sensitive_column: object
    calibration: float | None
    random_state: Seed

    classes_: NDArray[Any]
    label_name_: str  # if the labels were a named Series
    frontier_: Frontier
    scorer_: Any
    training_: Training  # absent if the scorer was trained elsewhere
    trained_groups_: tuple[Hashable, ...] | None  # groups that the scorer distinguishes

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
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
    def fit(self, X: object, y: object, *, sensitive_features: object = None) -> Self:
        """Train, and find the frontier on rows held out from training.

        If it fails, the estimator stays as it was.

        Parameters
        ----------
        X : DataFrame or array-like; for networks also torch Tensor or Dataset
            Features.
        y : array-like
            Labels: two classes of any type. The greater one is positive, unless ``pos_label`` is
            set.
        sensitive_features : array-like, Series or DataFrame, optional
            Group of each row, any names; several columns are combined into their intersections.
            Without it, all rows are one group: a plain classifier.
        """
        with self._unchanged_on_error(), self._explain_missing_column():
            for name in ("model_hash_", "label_name_", "training_"):
                self.__dict__.pop(name, None)
            if isinstance(y, pd.Series) and isinstance(y.name, str):
                self.label_name_ = y.name
            self._fit(X, y, sensitive_features)
            if hasattr(self, "training_"):
                ended = datetime.now(UTC).isoformat(" ", "seconds").removesuffix("+00:00")
                self.training_["ended"], self.training_["asked"] = ended, None
            return self

    @abstractmethod
    def _fit(self, X: object, y: object, sensitive_features: object) -> Self:
        """Train a scorer: ``_rows_to_fit``, set ``scorer_``, then ``_calibrate_held_out``."""

    def _rows_to_fit(
        self, X: object, y: object, sensitive_features: object, seed: int | None = None
    ) -> Rows:
        """Check everything that ``fit`` is given, set ``classes_``, and hold out rows.

        ``seed`` decides which rows are held out; ``random_state`` does by default.
        """
        check_one_tolerance(self.tolerance)
        check_aligned(X, y, "y")
        X, sensitive = self._take_groups(X, sensitive_features)
        X = self._check_features(X, reset=True)
        labels, self.classes_ = find_classes(y, self.pos_label, find_criterion(self.criterion))
        check_same_length(range(_num_samples(X)), labels, ("X", "y"))
        codes, groups = encode_rows(sensitive, len(labels), None)
        if len(groups) == 1:
            warn(
                "all rows belong to one group, so there is no gap to control; pass "
                "`sensitive_features` or set `sensitive_column`",
                FairdialWarning,
            )
        all_rows = np.arange(len(labels))
        rows = Rows(X, labels == self.classes_[1], labels, codes, groups, all_rows, all_rows[:0])
        crossed = getattr(self, "cv", None) is not None
        if not crossed and self.calibration is not None:
            share = check_fraction(self.calibration, "calibration")
            rng = check_random_state(self.random_state if seed is None else seed)
            rows.held = hold_out(rows.cells, share, rng)
            rows.train = np.delete(all_rows, rows.held)
        if crossed or self.calibration is not None:  # fail before anything is trained
            calibrated = all_rows if crossed else rows.held
            self._check_counts(codes[calibrated], rows.y[calibrated], groups)
        self.training_ = {"rows": len(rows.train)}
        return rows

    def _calibrate_held_out(self, rows: Rows) -> Self:
        """Find the frontier on the rows held out from training; with none, drop the old one."""
        if self.calibration is None:
            for name in ("frontier_", "platt_"):
                self.__dict__.pop(name, None)
            return self
        held = rows.held
        return self._find_frontier(
            take_rows(rows.X, held), rows.codes[held], rows.groups, rows.y[held], "declared"
        )

    # ---- calibrate -----------------------------------------------------------------------------

    @groups_by_name
    def calibrate(
        self, X: object, y: ArrayLike | None = None, *, sensitive_features: object = None
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
        """
        self._check_scorer()
        X, sensitive = self._take_groups(X, sensitive_features)
        X = self._check_features(X, reset=not hasattr(self, "n_features_in_"))
        known = self.frontier_.groups if hasattr(self, "frontier_") else ()
        if sensitive is None and len(known) > 1:
            raise InvalidInputError("sensitive_features", "be given, as in the last calibration")
        positive = None if y is None else is_positive(y, self.classes_)
        with self._explain_missing_column():
            self._calibrate(X, positive, sensitive)
        self.__dict__.pop("model_hash_", None)  # this is no longer the saved model
        return self

    def _calibrate(self, X: Any, positive: Mask | None, sensitive: object) -> Self:
        """Find the frontier on rows whose features and labels were checked."""
        if positive is not None:
            check_same_length(range(_num_samples(X)), positive, ("X", "y"))
        codes, groups = encode_rows(sensitive, _num_samples(X), self._trained_groups())
        self._check_counts(codes, positive, groups)
        return self._find_frontier(X, codes, groups, positive, "declared")

    @abstractmethod
    def _find_frontier(
        self,
        X: Any,
        codes: Codes,
        groups: tuple[Hashable, ...],
        positive: Mask | None,
        certificate: Certificate,
    ) -> Self:
        """Set ``frontier_`` from these rows, whose group sizes were checked."""

    def _check_counts(
        self, codes: Codes, positive: Mask | None, groups: tuple[Hashable, ...]
    ) -> None:
        """Raise if a group has fewer than ``min_count`` eligible rows to calibrate on."""
        check_group_sizes(
            find_criterion(self.criterion),
            count_rows(codes, positive, len(groups)),
            groups,
            min_count=self._least_count(groups),
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

    @groups_by_name
    def predict(
        self,
        X: object,
        *,
        sensitive_features: object = None,
        tolerance: ArrayLike | None = None,
        confidence: float | None = None,
    ) -> NDArray[Any]:
        """Return decisions at a tolerance, as labels.

        Parameters
        ----------
        X : array-like or DataFrame
            Features.
        sensitive_features : array-like, Series or DataFrame
            Group of each row: decisions depend on it.
        tolerance : float or array of float, optional
            The largest allowed gap; one number, or one for each row. The constructor's by default.
        confidence : float, optional
            Keep the gap on new rows within the tolerance with this confidence. Without it, the gap
            on the calibration rows is kept within the tolerance. With one tolerance for each row
            the statement holds for all tolerances at once.
        """
        margin = self.decision_function(
            X, sensitive_features=sensitive_features, tolerance=tolerance, confidence=confidence
        )
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
        """Return how far each row is above the threshold of the positive label at a tolerance."""
        X, codes = self._rows_to_score(X, sensitive_features)
        tolerances = check_tolerance(self.tolerance if tolerance is None else tolerance)
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

    def _take_groups(self, X: Any, sensitive_features: object) -> tuple[Any, Any]:
        """Return the features without the sensitive column, and the groups (or None)."""
        check_aligned(X, sensitive_features, "sensitive_features")
        if self.sensitive_column is None:
            return X, sensitive_features
        if sensitive_features is not None:
            raise InvalidInputError(
                "sensitive_features", "be left out if `sensitive_column` is set", given="both"
            )
        return split_column(X, self.sensitive_column)

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


def _ndim(X: Any) -> int:
    """Return the dimensions of rows; a torch Dataset is not opened."""
    if hasattr(X, "ndim"):
        return int(X.ndim)
    return np.ndim(X) if isinstance(X, (list, tuple)) else 2
