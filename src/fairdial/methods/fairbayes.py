"""FairBayes: the exact dial on any classifier that gives scores (alg:post-process)."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import StratifiedKFold
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.validation import check_is_fitted

from fairdial._validation import check_count
from fairdial.criteria import Criterion
from fairdial.criteria import criterion as find_criterion
from fairdial.errors import InvalidInputError
from fairdial.methods.base import positive_last, refuse_no_labels
from fairdial.methods.network import Network, fit_scorer, torch_module
from fairdial.methods.rows import FitRows, Rows, take_rows
from fairdial.methods.thresholds import ThresholdClassifier
from fairdial.scorers import AveragedScorer, SklearnScorer, find_method


class FairBayes(ThresholdClassifier):
    """Any scikit-learn classifier with a fairness dial.

    The classifier is trained as it is; on rows that it hasn't seen, the exact path of group
    thresholds is found, from the most accurate to the most equal decisions. The tolerance is chosen
    when predicting, as often as one likes. Group membership is needed at prediction time.

    Parameters
    ----------
    estimator : classifier, pipeline, Network or None
        Gives scores by ``predict_proba``, ``decision_function`` or ``predict``. None is
        ``Network()``: the neural network of GFB, trained plainly.
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
    calibration : float or None
        Share of the rows that ``fit`` holds out to find the frontier. None: all rows train, and
        ``calibrate`` is called with others before predicting.
    cv : int, optional
        Cross-fit instead: out-of-fold scores of all rows find the frontier, and the models of the
        folds are averaged. Uses every row twice, but supports no confidence statement.
    predict_method : {"auto", "predict_proba", "decision_function", "predict"}
        What scores; "auto" takes the first that there is.
    pos_label : label, optional
        The positive label, the one that "selected" means; the greater of the two by default.
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
        estimator: Any = None,
        *,
        criterion: str | Criterion = "demographic_parity",
        tolerance: float = 0.0,
        recalibrate: str | None = None,
        prefit: bool = False,
        per_group: bool = False,
        calibration: float | None = 0.2,
        cv: int | None = None,
        predict_method: str = "auto",
        pos_label: Any = None,
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
        self.pos_label = pos_label
        self.sensitive_column = sensitive_column
        self.min_count = min_count
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.estimator is None or isinstance(self.estimator, Network):
            encodes = (self.estimator or Network()).encoder is not None
            tags.input_tags.allow_nan = tags.input_tags.string = encodes
        if hasattr(self.estimator, "__sklearn_tags__") and not isinstance(self.estimator, Network):
            tags.input_tags = get_tags(self.estimator).input_tags
        return tags

    def _fit(self, X: Any, y: Any, sensitive_features: Any) -> Self:
        if self.prefit:
            X, sensitive = self._take_groups(X, sensitive_features)
            self._use_fitted()
            X = self._check_features(X, reset=True)
            refuse_no_labels(y)
            return self._calibrate(X, self._labels(y), sensitive, "declared")
        rows = self._rows_to_fit(X, y, sensitive_features)
        self.trained_groups_ = rows.names if self.per_group else None
        if self.estimator is None or isinstance(self.estimator, Network):
            return self._fit_network(rows)
        if self.cv is not None:
            return self._cross_fit(rows)
        scorer = self._train(rows, rows.train)
        self.scorer_ = scorer
        self.estimator_ = scorer.estimators if self.per_group else scorer.estimators[0]
        return self._calibrate_held_out(rows)

    def _fit_network(self, rows: FitRows) -> Self:
        """The same network as GFB's, trained by empirical risk minimisation (eq:l_pred)."""
        if self.cv is not None:
            raise InvalidInputError(f"`cv` must be None for a network, got {self.cv!r}.")
        network = self.estimator if self.estimator is not None else Network()
        masoba, steps = torch_module("masoba"), torch_module("steps")
        rate = find_criterion(self.criterion).rates[0]

        def make_step(net: Any, shares: Any, _: int) -> Any:
            return steps.PlainStep(
                net,
                masoba.Objective(rate, shares, weight=1.0, gamma=network.gamma),
                rate=network.learning_rate,
                weight_decay=network.weight_decay,
            )

        fit_scorer(self, network, rows, make_step)
        return self._calibrate_held_out(rows)

    def _train(self, rows: FitRows, places: Rows) -> SklearnScorer:
        """Fit the estimator, or one for each group, on these rows."""
        codes = rows.codes[places]
        parts = [places]
        if self.per_group:
            parts = [places[codes == a] for a in range(len(rows.names))]
        estimators = []
        for part in parts:
            if len(np.unique(rows.labels[part])) < 2:
                raise InvalidInputError(
                    "`y` must hold two classes among the training rows"
                    + (" of every group" if self.per_group else "")
                    + ", got one class only."
                )
            X, y = take_rows(rows.X, part), rows.labels[part]
            estimators.append(clone(self.estimator).fit(X, y))
        return SklearnScorer(
            estimators,
            positive=self.classes_[1],
            method=find_method(estimators[0], self.predict_method),
        )

    def _cross_fit(self, rows: FitRows) -> Self:
        """Out-of-fold scores find the frontier; the models of the folds are averaged."""
        folds, cells = check_count(self.cv, "cv", least=2), rows.cells
        smallest = int(np.bincount(cells)[np.unique(cells)].min())
        if smallest < folds:
            raise InvalidInputError(
                f"`cv` must be at most the rows of the smallest group and label, got {folds} "
                f"folds and {smallest} rows."
            )
        splitter = StratifiedKFold(
            folds, shuffle=True, random_state=check_random_state(self.random_state)
        )
        logits = np.empty(len(cells))
        scorers = []
        for train, held in splitter.split(np.zeros(len(cells)), cells):
            scorer = self._train(rows, train)
            logits[held] = scorer.logits(take_rows(rows.X, held), rows.codes[held])
            scorers.append(scorer)
        self.scorer_ = AveragedScorer(scorers)
        self.estimator_ = [estimator for scorer in scorers for estimator in scorer.estimators]
        return self._set_frontier(logits, rows.codes, rows.names, rows.positive, "none")

    def _use_fitted(self) -> None:
        """Take the estimator as it is (``prefit``)."""
        if self.per_group or self.cv is not None or self.estimator is None:
            raise InvalidInputError(
                "`prefit` must be False with `per_group`, `cv` or no `estimator`, got True."
            )
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
        self.classes_ = positive_last(classes, self.pos_label)
        self.estimator_ = self.estimator
        self.trained_groups_ = None
        self.platt_ = None
        self.scorer_ = SklearnScorer(
            [self.estimator],
            positive=self.classes_[1],
            method=find_method(self.estimator, self.predict_method),
        )

    def _check_scorer(self) -> None:
        if self.prefit and not hasattr(self, "scorer_"):
            self._use_fitted()
        super()._check_scorer()
