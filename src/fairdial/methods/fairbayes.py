"""FairBayes: the exact dial on any classifier that gives scores (alg:post-process)."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import StratifiedKFold
from sklearn.utils import _safe_indexing, check_random_state, get_tags
from sklearn.utils.validation import _num_samples, check_is_fitted

from fairdial._validation import check_count, check_fraction, check_same_length
from fairdial.criteria import Criterion
from fairdial.errors import InvalidInputError
from fairdial.methods.base import Codes, DialClassifier, encode_rows
from fairdial.scorers import AveragedScorer, SklearnScorer, find_method

Rows = NDArray[np.intp]


class FairBayes(DialClassifier):
    """Any scikit-learn classifier with a fairness dial.

    The classifier is trained as it is; on rows that it hasn't seen, the exact path of group
    thresholds is found, from the most accurate to the most equal decisions. The tolerance is chosen
    when predicting, as often as one likes. Group membership is needed at prediction time.

    Parameters
    ----------
    estimator : classifier or pipeline
        Gives scores by ``predict_proba``, ``decision_function`` or ``predict``.
    criterion : str or Criterion
        "demographic_parity", "equal_opportunity" or "predictive_equality".
    tolerance : float
        Where the dial rests: the gap that ``predict`` keeps unless told otherwise.
    recalibrate : None or "group"
        "group" corrects each group's logits by a line first; for scores that are biased.
    prefit : bool
        The estimator is fitted already; the rows given to ``fit`` only calibrate.
    per_group : bool
        Train one clone of the estimator for each group.
    calibration : float
        Share of the rows that ``fit`` holds out to find the frontier.
    cv : int, optional
        Cross-fit instead: out-of-fold scores of all rows find the frontier, and the models of the
        folds are averaged. Uses every row twice, but supports no confidence statement.
    predict_method : {"auto", "predict_proba", "decision_function", "predict"}
        What scores; "auto" takes the first that there is.
    sensitive_column : str, int or list, optional
        Column(s) of X that tell the group, instead of ``sensitive_features=``; the estimator
        doesn't see them.
    min_count : int
        Least number of counted calibration rows in each group.
    random_state : int, RandomState or None
        Which rows are held out.

    Attributes
    ----------
    frontier_ : Frontier
        Every position of the dial.
    classes_ : (2,) array
        Labels; the second is the positive one.
    scorer_ : Scorer
        Gives the logits.
    estimator_ : classifier
        The fitted estimator; a list with ``per_group`` or ``cv``.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from fairdial import FairBayes
    >>> from fairdial.datasets import make_gaussian
    >>> train, test = make_gaussian(20_000, random_state=0).split(random_state=0)
    >>> dial = FairBayes(LogisticRegression(), per_group=True, random_state=0)
    >>> dial = dial.fit(train.X, train.y, sensitive_features=train.groups)
    >>> strict = dial.predict(test.X, sensitive_features=test.groups, tolerance=0.02)
    >>> loose = dial.predict(test.X, sensitive_features=test.groups, tolerance=0.3)
    >>> dial.frontier_.at(0.02).gap <= 0.02
    True
    """

    def __init__(
        self,
        estimator: Any,
        *,
        criterion: str | Criterion = "demographic_parity",
        tolerance: float = 0.0,
        recalibrate: str | None = None,
        prefit: bool = False,
        per_group: bool = False,
        calibration: float = 0.2,
        cv: int | None = None,
        predict_method: str = "auto",
        sensitive_column: Any = None,
        min_count: int = 30,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.criterion = criterion
        self.tolerance = tolerance
        self.recalibrate = recalibrate
        self.prefit = prefit
        self.per_group = per_group
        self.calibration = calibration
        self.cv = cv
        self.predict_method = predict_method
        self.sensitive_column = sensitive_column
        self.min_count = min_count
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if hasattr(self.estimator, "__sklearn_tags__"):
            tags.input_tags = get_tags(self.estimator).input_tags
        return tags

    def fit(self, X: Any, y: Any, *, sensitive_features: Any = None) -> Self:
        """Train the estimator, and find the frontier on rows held out from training.

        Parameters
        ----------
        X : array-like or DataFrame
            Rows.
        y : array-like
            Labels: two classes of any type, the greater one being positive.
        sensitive_features : array-like, Series or DataFrame, optional
            Group of each row, any names; several columns stand for their intersections. Without,
            all rows are one group: a plain classifier.
        """
        X, sensitive = self._take_groups(X, sensitive_features)
        if self.prefit:
            self._use_fitted()
            X = self._check_features(X, reset=True)
            return self._calibrate(X, self._labels(y), sensitive, "declared")
        X = self._check_features(X, reset=True)
        if y is None:
            raise InvalidInputError(
                "`y` must be given: fit requires y to be passed, but the target y is None."
            )
        labels = self._learn_classes(y)
        check_same_length(range(_num_samples(X)), labels, ("X", "y"))
        codes, names = encode_rows(sensitive, len(labels), None)
        self.trained_groups_ = names if self.per_group else None
        self.platt_ = None
        cells = codes.astype(np.intp) * 2 + (labels == self.classes_[1])
        if self.cv is not None:
            return self._cross_fit(X, labels, codes, names, cells)
        share = check_fraction(self.calibration, "calibration")
        held = _hold_out(cells, share, check_random_state(self.random_state))
        rows = np.setdiff1d(np.arange(len(labels)), held)
        self.scorer_ = self._train(X, labels, codes, rows, len(names))
        self.estimator_ = self.scorer_.estimators if self.per_group else self.scorer_.estimators[0]
        logits = self.scorer_.logits(_safe_indexing(X, held), codes[held])
        positive = labels[held] == self.classes_[1]
        return self._set_frontier(logits, codes[held], names, positive, "declared")

    def _train(
        self, X: Any, labels: NDArray[Any], codes: Codes, rows: Rows, n_groups: int
    ) -> SklearnScorer:
        """Fit the estimator, or one for each group, on these rows."""
        parts = [rows[codes[rows] == a] for a in range(n_groups)] if self.per_group else [rows]
        estimators = []
        for part in parts:
            if len(np.unique(labels[part])) < 2:
                raise InvalidInputError(
                    "`y` must hold two classes among the training rows"
                    + (" of every group" if self.per_group else "")
                    + ", got one class only."
                )
            estimators.append(clone(self.estimator).fit(_safe_indexing(X, part), labels[part]))
        return SklearnScorer(
            estimators,
            positive=self.classes_[1],
            method=find_method(estimators[0], self.predict_method),
        )

    def _cross_fit(
        self, X: Any, labels: NDArray[Any], codes: Codes, names: Any, cells: Rows
    ) -> Self:
        """Out-of-fold scores find the frontier; the models of the folds are averaged."""
        folds = check_count(self.cv, "cv", least=2)
        smallest = int(np.bincount(cells)[np.unique(cells)].min())
        if smallest < folds:
            raise InvalidInputError(
                f"`cv` must be at most the rows of the smallest group and label, got {folds} "
                f"folds and {smallest} rows."
            )
        splitter = StratifiedKFold(
            folds, shuffle=True, random_state=check_random_state(self.random_state)
        )
        logits = np.empty(len(labels))
        scorers = []
        for rows, held in splitter.split(np.zeros(len(labels)), cells):
            scorer = self._train(X, labels, codes, rows, len(names))
            logits[held] = scorer.logits(_safe_indexing(X, held), codes[held])
            scorers.append(scorer)
        self.scorer_ = AveragedScorer(scorers)
        self.estimator_ = [estimator for scorer in scorers for estimator in scorer.estimators]
        return self._set_frontier(logits, codes, names, labels == self.classes_[1], "none")

    def _use_fitted(self) -> None:
        """Take the estimator as it is (``prefit``)."""
        if self.per_group or self.cv is not None:
            raise InvalidInputError("`prefit` must be False with `per_group` or `cv`, got True.")
        if hasattr(self.estimator, "__sklearn_tags__"):
            try:
                check_is_fitted(self.estimator)
            except NotFittedError:
                raise InvalidInputError(
                    "`estimator` must be fitted already where prefit=True, got an unfitted one."
                ) from None
        classes = np.asarray(getattr(self.estimator, "classes_", [0, 1]))
        if len(classes) != 2:
            raise InvalidInputError(f"`estimator` must know two classes, got {len(classes)}.")
        self.classes_ = classes
        self.estimator_ = self.estimator
        self.trained_groups_ = None
        self.platt_ = None
        self.scorer_ = SklearnScorer(
            [self.estimator],
            positive=classes[1],
            method=find_method(self.estimator, self.predict_method),
        )

    def _check_scorer(self) -> None:
        if self.prefit and not hasattr(self, "scorer_"):
            self._use_fitted()
        super()._check_scorer()


def _hold_out(cells: Rows, share: float, rng: np.random.RandomState) -> Rows:
    """Rows for calibration: a share of every group and label, rounded up; one stays to train."""
    held = []
    for cell in np.unique(cells):
        rows = rng.permutation(np.flatnonzero(cells == cell))
        held.append(rows[: min(math.ceil(share * len(rows)), len(rows) - 1)])
    return np.sort(np.concatenate(held))
