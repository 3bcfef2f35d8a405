"""What every estimator of the library shares: scorer + frontier behind scikit-learn's interface.

Three verbs on three disjoint sets of rows: ``fit`` (train), ``calibrate`` (find the frontier on
held-out rows), ``predict(..., tolerance=)`` (turn the dial). A method says how the scorer is
trained. What a setting is comes in two kinds: thresholds on one scorer (``thresholds.py``), and
families whose margins themselves depend on the setting (``families.py``).
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import wraps
from os import PathLike
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _num_samples, check_is_fitted, column_or_1d, validate_data

from fairdial._validation import (
    check_aligned,
    check_count,
    check_fraction,
    check_one,
    check_same_length,
    check_tolerance,
    did_you_mean,
    match_groups,
    say_values,
)
from fairdial.criteria import criterion as find_criterion
from fairdial.errors import FairdialError, FairdialWarning, InvalidInputError, warn
from fairdial.frontier import Certificate, Frontier
from fairdial.methods.rows import (
    Codes,
    FitRows,
    encode_rows,
    hold_out,
    split_column,
    take_rows,
)
from fairdial.methods.saving import save_model
from fairdial.persistence.manifest import Key
from fairdial.sweeping import check_counts, count_cells

Floats = NDArray[np.float64]
Method = TypeVar("Method", bound=Callable[..., Any])
ABSENT = ("columns", "missing")  # scikit-learn's words for columns that aren't there


def _ndim(X: Any) -> int:
    """Dimensions of rows; a torch Dataset is not looked into."""
    if hasattr(X, "ndim"):
        return int(X.ndim)
    return np.ndim(X) if isinstance(X, (list, tuple)) else 2


def groups_by_name(method: Method) -> Method:
    """Whoever gives groups by position is told their name."""
    kinds = [p.kind for p in inspect.signature(method).parameters.values()]
    most = kinds.index(inspect.Parameter.KEYWORD_ONLY)

    @wraps(method)
    def call(*args: Any, **named: Any) -> Any:
        if len(args) > most:
            name, takes = method.__name__, "X" if most == 2 else "X and y"
            raise TypeError(
                f"`{name}` takes {takes} by position, got {len(args) - most} more: give groups by "
                f"name, {name}({takes.replace(' and', ',')}, sensitive_features=...)."
            )
        return method(*args, **named)

    return cast(Method, call)


class DialClassifier(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """A classifier whose decisions can be moved to any tolerance after training."""

    # scikit-learn's metadata routing: these are passed on without set_*_request
    __metadata_request__fit = {"sensitive_features": True}  # noqa: RUF012
    _dialled = {"sensitive_features": True, "tolerance": True, "confidence": True}  # noqa: RUF012
    __metadata_request__predict = _dialled
    __metadata_request__decision_function = _dialled
    __metadata_request__score = _dialled

    criterion: Any
    tolerance: Any
    pos_label: Any
    min_count: Any
    sensitive_column: Any
    calibration: Any
    random_state: Any

    classes_: NDArray[Any]
    label_name_: str  # of a Series of labels that has one
    frontier_: Frontier
    scorer_: Any
    training_: dict[str, Any]  # rows, ended (UTC), asked, ...; of a scorer that fit has trained

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    if not TYPE_CHECKING:  # to type checkers, other names stay unknown

        def __getattr__(self, name: str) -> Any:
            """Say what there is instead of probabilities."""
            told = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name == "predict_proba":
                told += (
                    ": decisions depend on the tolerance. `predict(X, tolerance=...)` decides, "
                    "`decision_function` tells how far rows are from the border"
                )
                told += ", `logits` their scores" if hasattr(type(self), "logits") else ""
            raise AttributeError(told, name=name, obj=self)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """A fit that fails leaves the estimator as it was."""
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    @contextmanager
    def _column_is_gone(self) -> Iterator[None]:
        """Where the estimator misses the sensitive column, say who took it away."""
        try:
            yield
        except (ValueError, KeyError) as error:
            column, told = self.sensitive_column, str(error).strip()
            names = column if isinstance(column, (list, tuple)) else [column]
            texts = [name for name in names if isinstance(name, str)]
            needed = [n for n in texts if repr(n) in told or f"- {n}" in told.splitlines()]
            absent = isinstance(error, KeyError) or any(word in told for word in ABSENT)
            if isinstance(error, FairdialError) or not needed or not absent:
                raise  # it may quote a cell that is called like the column
            raise InvalidInputError(
                "`sensitive_column` must be a column that the estimator doesn't need, got "
                f"{needed[0]!r}: it is taken out of `X` ({' '.join(told.split())}). Give the "
                "groups by `sensitive_features=` instead; `X` keeps the column then."
            ) from error

    # ---- rows ----------------------------------------------------------------------------------

    def _take_groups(self, X: Any, sensitive_features: Any) -> tuple[Any, Any]:
        """Features without the sensitive column, and what tells the groups (or None)."""
        check_aligned(X, sensitive_features, "sensitive_features")
        if self.sensitive_column is None:
            return X, sensitive_features
        if sensitive_features is not None:
            raise InvalidInputError(
                "`sensitive_features` must be left out where `sensitive_column` is set, got both."
            )
        return split_column(X, self.sensitive_column)

    def _labels(self, y: Any) -> NDArray[np.bool_]:
        """Which rows have the positive label, for labels that are known already."""
        values = as_labels(y)
        positive = values == self.classes_[1]
        if not np.all(positive | (values == self.classes_[0])):
            other = values[~(positive | (values == self.classes_[0]))][0]
            raise InvalidInputError(
                f"`y` must hold the classes {self.classes_[0]!r} and {self.classes_[1]!r}, "
                f"got {other!r}."
            )
        return np.asarray(positive)

    def _learn_classes(self, y: Any) -> NDArray[Any]:
        """Set ``classes_`` from the labels, of any type, and give the labels back as an array."""
        values = as_labels(y, warn=True)
        if values.dtype == object and pd.isna(values).any():
            raise InvalidInputError(
                f"`y` must hold a label for every row, got {int(pd.isna(values).sum())} missing."
            )
        check_classification_targets(values)
        kind = type_of_target(values, input_name="y")
        classes = np.unique(values)
        if kind not in ("binary", "unknown") or len(classes) > 2:
            raise InvalidInputError(
                f"`y` must hold two classes, got {say_values(classes.tolist())}. Only binary "
                f"classification is supported. The type of the target is {kind}."
            )
        if len(classes) < 2:
            raise InvalidInputError(
                f"`y` must hold two classes, got one class only: {classes[0]!r}."
            )
        self.classes_ = positive_last(classes, self.pos_label)
        self._warn_of_labels()
        return np.asarray(values)

    def _warn_of_labels(self) -> None:
        """Say which of two texts is taken for the positive label, where that makes a difference."""
        kind, positive = find_criterion(self.criterion), self.classes_[1]
        by_label = kind.rates[0].counted is not None
        if by_label and self.pos_label is None and isinstance(positive, str):
            warn(
                f"{str(positive)!r} is taken for the positive label, the greater of the two, and "
                f"{kind.name} counts rows by it: name the label that is meant by `pos_label`",
                FairdialWarning,
            )

    def _check_features(self, X: Any, *, reset: bool) -> Any:
        """scikit-learn's bookkeeping of feature names and numbers; values are the estimator's."""
        if issparse(X):
            X = X.tocsr()  # a format whose rows can be taken
        elif not hasattr(X, "__getitem__"):
            X = np.asarray(X)
        if _num_samples(X) == 0:
            raise InvalidInputError("`X` must hold at least one row, got 0 sample(s).")
        if not reset and hasattr(self, "n_features_in_") and _ndim(X) == 1:
            raise InvalidInputError(
                f"`X` must have two dimensions, got shape {np.shape(X)}. Reshape your data with "
                "array.reshape(1, -1) if it is a single row."
            )
        validate_data(self, X, skip_check_array=True, reset=reset)
        if reset:
            self.__dict__.pop("feature_dtypes_", None)
            if isinstance(X, pd.DataFrame) and X.columns.is_unique:
                self.feature_dtypes_ = X.dtypes.to_dict()
        return X

    def _codes(self, sensitive_features: Any, n_rows: int) -> Codes:
        """Group codes of rows to be scored."""
        names = self.frontier_.groups
        if sensitive_features is None:
            if len(names) == 1:
                return np.zeros(n_rows, np.intp)
            raise InvalidInputError(
                "`sensitive_features` must be given: decisions depend on the group, one of "
                f"{', '.join(map(repr, names))}."
            )
        codes = match_groups(sensitive_features, names, "sensitive_features")
        check_same_length(range(n_rows), codes, ("X", "sensitive_features"))
        return codes

    def _rows_to_fit(
        self, X: Any, y: Any, sensitive_features: Any, seed: int | None = None
    ) -> FitRows:
        """Check everything that ``fit`` is given, and hold rows out for calibration.

        Which ones is drawn by the seed, or by ``random_state`` where none is given.
        """
        check_one(self.tolerance)
        check_aligned(X, y, "y")
        X, sensitive = self._take_groups(X, sensitive_features)
        X = self._check_features(X, reset=True)
        refuse_no_labels(y)
        labels = self._learn_classes(y)
        check_same_length(range(_num_samples(X)), labels, ("X", "y"))
        codes, names = encode_rows(sensitive, len(labels), None)
        if len(names) == 1:
            warn(
                "all rows are one group, so there is no gap and nothing to dial; give "
                "`sensitive_features` or set `sensitive_column`",
                FairdialWarning,
            )
        everything = np.arange(len(labels))
        rows = FitRows(
            X, labels, labels == self.classes_[1], codes, names, everything, everything[:0]
        )
        if getattr(self, "cv", None) is None and self.calibration is not None:
            share = check_fraction(self.calibration, "calibration")
            rng = check_random_state(self.random_state if seed is None else seed)
            rows.held = hold_out(rows.cells, share, rng)
            rows.train = np.setdiff1d(everything, rows.held)
            self._check_held_out(rows)
        self.training_ = {"rows": len(rows.train)}
        return rows

    def _check_held_out(self, rows: FitRows) -> None:
        """Refuse what calibration will refuse of the rows' numbers, before anything is trained."""
        counts = count_cells(rows.codes[rows.held], rows.positive[rows.held], len(rows.names))
        check_counts(
            find_criterion(self.criterion),
            counts,
            rows.names,
            min_count=self._least_count(rows.names),
            argument="sensitive_features",
        )

    def _least_count(self, names: Sequence[Hashable]) -> int:
        """Counted rows that each group needs; one of all rows is no group that could be small."""
        return check_count(self.min_count, "min_count") if len(names) > 1 else 1

    def _calibrate_held_out(self, rows: FitRows) -> Self:
        """Find the frontier on the rows that were held out from training, if any were."""
        if self.calibration is None:  # the user calibrates
            for name in ("frontier_", "platt_"):
                self.__dict__.pop(name, None)
            return self
        held = rows.held
        return self._find_frontier(
            take_rows(rows.X, held), rows.codes[held], rows.names, rows.positive[held], "declared"
        )

    # ---- fit -----------------------------------------------------------------------------------

    @groups_by_name
    def fit(self, X: Any, y: Any, *, sensitive_features: Any = None) -> Self:
        """Train, and find the frontier on rows held out from training.

        Parameters
        ----------
        X : DataFrame or array-like; for networks also torch Tensor or Dataset
            Rows.
        y : array-like
            Labels: two classes of any type, the greater one being positive.
        sensitive_features : array-like, Series or DataFrame, optional
            Group of each row, any names; several columns stand for their intersections. Without,
            all rows are one group: a plain classifier.
        """
        with self._all_or_nothing(), self._column_is_gone():
            self.__dict__.pop("model_hash_", None)  # it was a saved model's: this is another
            self.__dict__.pop("label_name_", None)
            self.__dict__.pop("training_", None)
            if isinstance(y, pd.Series) and isinstance(y.name, str):
                self.label_name_ = y.name
            self._fit(X, y, sensitive_features)
            if hasattr(self, "training_"):  # not of an estimator that was trained elsewhere
                ended = datetime.now(UTC).isoformat(" ", "seconds").removesuffix("+00:00")
                self.training_ |= {"ended": ended, "asked": None}
            return self

    @abstractmethod
    def _fit(self, X: Any, y: Any, sensitive_features: Any) -> Self:
        """As :meth:`fit`; what it sets is taken back if it fails."""

    # ---- calibrate -----------------------------------------------------------------------------

    @groups_by_name
    def calibrate(
        self, X: Any, y: ArrayLike | None = None, *, sensitive_features: Any = None
    ) -> Self:
        """Find the frontier anew on held-out rows; the scorer stays as it is.

        Parameters
        ----------
        X : array-like or DataFrame
            Rows that the scorer was not trained on.
        y : array-like, optional
            Labels. Demographic parity works without; then the frontier has no accuracy.
        sensitive_features : array-like, Series or DataFrame
            Group of each row.
        """
        self._check_scorer()
        X, sensitive = self._take_groups(X, sensitive_features)
        X = self._check_features(X, reset=not hasattr(self, "n_features_in_"))
        if sensitive is None and len(self._dialled_groups()) > 1:
            raise InvalidInputError("`sensitive_features` must be given, as it was before.")
        positive = None if y is None else self._labels(y)
        with self._column_is_gone():
            self._calibrate(X, positive, sensitive, "declared")
        self.__dict__.pop("model_hash_", None)  # it was a saved model's: this is another
        return self

    def _check_scorer(self) -> None:
        check_is_fitted(self, "scorer_")

    def _calibrate(
        self, X: Any, positive: NDArray[np.bool_] | None, sensitive: Any, certificate: Certificate
    ) -> Self:
        if positive is not None:
            check_same_length(range(_num_samples(X)), positive, ("X", "y"))
        codes, names = encode_rows(sensitive, _num_samples(X), self._group_names())
        return self._find_frontier(X, codes, names, positive, certificate)

    def _dialled_groups(self) -> tuple[Hashable, ...]:
        """Groups of the frontier, if there is one already."""
        return self.frontier_.groups if hasattr(self, "frontier_") else ()

    def _group_names(self) -> tuple[Hashable, ...] | None:
        """Names of groups that training fixed, if it did."""
        return getattr(self, "trained_groups_", None)

    @abstractmethod
    def _find_frontier(
        self,
        X: Any,
        codes: Codes,
        names: tuple[Hashable, ...],
        positive: NDArray[np.bool_] | None,
        certificate: Certificate,
    ) -> Self:
        """Set ``frontier_`` by these rows."""

    # ---- predict -------------------------------------------------------------------------------

    def _rows_to_score(self, X: Any, sensitive_features: Any) -> tuple[Any, Codes]:
        """Features and group codes of rows to be decided on."""
        check_is_fitted(self, "frontier_")
        X, sensitive = self._take_groups(X, sensitive_features)
        X = self._check_features(X, reset=False)
        return X, self._codes(sensitive, _num_samples(X))

    @abstractmethod
    def _margins(
        self, X: Any, codes: Codes, wishes: Sequence[Floats], confidence: float | None
    ) -> list[Floats]:
        """(n,) margins at each wish: one tolerance, or one for each row; X is scored once."""

    @groups_by_name
    def predict(
        self,
        X: Any,
        *,
        sensitive_features: Any = None,
        tolerance: Any = None,
        confidence: float | None = None,
    ) -> NDArray[Any]:
        """Decisions at a tolerance, as labels.

        Parameters
        ----------
        X : array-like or DataFrame
            Rows.
        sensitive_features : array-like, Series or DataFrame
            Group of each row: the thresholds differ between groups.
        tolerance : float or array of float, optional
            The dial: the largest gap that is wished for; one number, or one for each row. The
            constructor's by default.
        confidence : float, optional
            The gap on new rows is to be within the tolerance with this confidence; without, the
            gap on the calibration rows is. With one tolerance for each row the statement is the
            simultaneous one.
        """
        margin = self.decision_function(
            X, sensitive_features=sensitive_features, tolerance=tolerance, confidence=confidence
        )
        return np.asarray(self.classes_[(margin > 0).astype(np.intp)])

    @groups_by_name
    def decision_function(
        self,
        X: Any,
        *,
        sensitive_features: Any = None,
        tolerance: Any = None,
        confidence: float | None = None,
    ) -> NDArray[np.float64]:
        """How far each row is above the border of the positive label, at a tolerance."""
        X, codes = self._rows_to_score(X, sensitive_features)
        wishes = check_tolerance(self.tolerance if tolerance is None else tolerance)
        if wishes.ndim:
            check_same_length(codes, wishes, ("X", "tolerance"))
        return self._margins(X, codes, [wishes], confidence)[0]

    def flips(
        self, X: Any, tolerance_from: float, tolerance_to: float, *, sensitive_features: Any = None
    ) -> NDArray[np.int8]:
        """Which rows change decision when the dial moves: +1 gains the positive label, -1 loses."""
        X, codes = self._rows_to_score(X, sensitive_features)
        wishes = [
            np.asarray(check_one(tolerance_from, "tolerance_from")),
            np.asarray(check_one(tolerance_to, "tolerance_to")),
        ]
        before, after = (margin > 0 for margin in self._margins(X, codes, wishes, None))
        return after.astype(np.int8) - before.astype(np.int8)

    def score(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        sensitive_features: Any = None,
        tolerance: Any = None,
        confidence: float | None = None,
    ) -> float:
        """Accuracy of the decisions at a tolerance."""
        decisions = self.predict(
            X, sensitive_features=sensitive_features, tolerance=tolerance, confidence=confidence
        )
        return float(accuracy_score(y, decisions, sample_weight=sample_weight))

    # ---- save ----------------------------------------------------------------------------------

    def save(self, folder: str | PathLike[str], *, overwrite: bool = False, key: Key = None) -> str:
        """Write the model to a folder; :func:`fairdial.load` gives it back.

        Weights, frontier and settings are plain files (JSON, safetensors), estimators of
        scikit-learn go through skops: nothing in the folder can run code. ``MODEL_CARD.md`` beside
        them says in words what the model does. Callbacks, the checkpoint's place and the code of a
        trunk of your own are not saved.

        Parameters
        ----------
        folder : path
            A new folder. It appears whole or not at all.
        overwrite : bool
            Replace the model that lies there.
        key : bytes or path, optional
            Sign the model with these bytes, at least 16, or those of a file.

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
        return save_model(self, folder, overwrite=overwrite, key=key)


def positive_last(classes: NDArray[Any], pos_label: Any) -> NDArray[Any]:
    """Two classes, the positive one last; by default the greater."""
    if pos_label is None:
        return classes
    if pos_label not in classes.tolist():
        raise InvalidInputError(
            f"`pos_label` must be one of {classes.tolist()}, got {pos_label!r}."
            + did_you_mean(pos_label, classes.tolist())
        )
    return classes if classes[1] == pos_label else classes[::-1]


def refuse_no_labels(y: Any) -> None:
    """``fit`` needs labels."""
    if y is None:
        raise InvalidInputError(
            "`y` must be given: fit requires y to be passed, but the target y is None."
        )


def as_labels(y: Any, *, warn: bool = False) -> NDArray[Any]:
    """Labels as one array; pandas' nullable whole numbers and booleans keep their kind."""
    kind = getattr(getattr(y, "dtype", None), "kind", "")
    plain = {"i": np.int64, "u": np.uint64, "b": np.bool_}.get(kind)
    if plain is not None and hasattr(y, "to_numpy") and not y.isna().any():
        y = y.to_numpy(dtype=plain)
    return np.asarray(column_or_1d(y, warn=warn))
