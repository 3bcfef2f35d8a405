"""FairBayes: group thresholds for every tolerance on any classifier that gives scores."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, Literal, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.validation import _num_samples, check_is_fitted

from fairdial._arrays import Codes, Indices, Scores
from fairdial._validation import (
    check_choice,
    check_count,
    check_same_length,
    check_scores,
    check_tolerance,
    describe_values,
)
from fairdial.core.blind import Unknown, sweep_blind_encoded
from fairdial.core.criteria import Given
from fairdial.core.groupings import Overlap
from fairdial.core.objectives import Objective
from fairdial.core.problem import Budget
from fairdial.core.rates import SELECTION
from fairdial.core.sweep import sweep_encoded
from fairdial.errors import InvalidInputError, SeenRowsWarning, require_torch, warn
from fairdial.estimators.base import Seed
from fairdial.estimators.blind import (
    Blindness,
    BlindScorer,
    check_blind,
    compare_blind,
    fit_groups,
)
from fairdial.estimators.fitting import (
    check_estimator,
    check_trained_columns,
    fit_clone,
    warn_without_weights,
)
from fairdial.estimators.labels import is_positive, positive_last
from fairdial.estimators.learners import for_table
from fairdial.estimators.network import check_several_classes, fit_scorer, train_network
from fairdial.estimators.plain import PlainScorer, convert_scorer, verify
from fairdial.estimators.rows import RowOptions, Rows, Sample, encode_rows, take_rows
from fairdial.estimators.scorers import AveragedScorer, Scorer, SklearnScorer, find_method
from fairdial.estimators.thresholds import ThresholdClassifier
from fairdial.forests.forest import CannotConvertError, library_of
from fairdial.forests.native import as_classifier
from fairdial.nn.network import Network

CROSS_CHECKED = 5_000  # rows on which cross-fitted models are compared with their conversion


class FairBayes(ThresholdClassifier):  # alg:post-process for every tolerance at once
    """Any scikit-learn classifier with a fairness tolerance that is set after training.

    The classifier is trained as usual. On rows that it hasn't seen, FairBayes finds the exact path
    of group thresholds from the most accurate to the most equal decisions, for every tolerance at
    once. The tolerance is chosen at prediction time and can change with every call. Predicting
    needs each row's group, unless ``blind=True``.

    To change criterion, objective or budget of a trained model, call ``set_params`` and then
    ``calibrate``: nothing is trained again.

    Parameters
    ----------
    estimator : classifier, pipeline, Network, list of them, or None
        Gives scores by ``predict_proba``, ``decision_function`` or ``predict``. None is
        ``Network()``: the network of GFB with plain training. On tables, start with
        ``HistGradientBoostingClassifier()``: with small trees it was more accurate on Adult at a
        seventh of the cost. All estimators of a list are trained and their logits averaged; each
        network has its own initial weights.
    criterion : str, Criterion, list or mapping
        "demographic_parity", "equal_opportunity", "predictive_equality", "equalized_odds" and
        others, and combinations; see :func:`fairdial.criterion`.
    limit_classes : sequence, optional
        With more than two classes, those that the criterion holds for; all by default.
    tolerance : float
        Default tolerance of ``predict``; 0 is the one that the criterion declares, if it does.
    objective : str or Objective
        What the thresholds maximize: "accuracy", "balanced_accuracy", "f1" or
        :func:`fairdial.Costs`.
    budget : float, int or Budget, optional
        Select at most this share (at most 1) or number of the calibration rows.
    nested : bool, optional
        True: each row changes its decision at most once along the dial. False: the best thresholds
        at each tolerance. See :func:`fairdial.sweep`.
    rising : bool
        Only lower thresholds: no row loses a positive decision.
    randomize : {None, "hash"}
        "hash" mixes thresholds by a hash of the row's features, so that the tolerance holds in
        expectation, and the same row always gets the same decision.
    recalibrate : None or "group"
        "group" corrects each group's logits with a line first, for biased scores.
    blind : bool
        Decide without the group: training and calibration rows need it, rows to decide on don't.
        ``fit`` also learns the probability of each group from the features, and prices of groups
        take the place of thresholds. For differences of rates. See :meth:`blindness`.
    unknown : {"raise", "estimate"}
        With ``blind=True``, what to do about rows whose group is missing (None, NaN). "estimate":
        they train the classifier of labels alone, and when calibrating, tolerances hold exactly on
        the other rows, and the gap on all rows is estimated; see ``Point.promise``.
    group_estimator : classifier, optional
        With ``blind=True``, what learns these probabilities, by ``predict_proba``; by default a
        clone of ``estimator``.
    prefit : bool
        The estimator is already fitted: call ``calibrate`` with rows that it hasn't seen. ``fit``
        does the same with all its rows, and warns.
    per_group : bool
        Train one clone of the estimator for each group.
    calibration : float, "auto" or None
        Share of the rows that ``fit`` holds out to find the frontier. "auto" holds out what
        certifying ``tolerance`` with confidence 0.95 is likely to need. If None, train on all rows
        and call ``calibrate`` with other rows before predicting.
    cv : int, optional
        Cross-fit instead: out-of-fold scores of all rows find the frontier, and the models of the
        folds are averaged. Uses every row twice, but doesn't support ``confidence=``.
    predict_method : {"auto", "predict_proba", "decision_function", "predict"}
        Method that gives scores; "auto" takes the first available one.
    pos_label : label, optional
        Value of the positive class; the one that sorts last by default.
    groups : {"intersection", "marginal", "both"}
        What is compared if there are several sensitive columns: their intersections, such as
        "Black & Female"; the groups of each column, which is for differences of rates; or all of
        them. Each intersection has its threshold in any case.
    sensitive_column : str, int or list, optional
        Group column(s) of X, instead of ``sensitive_features=``; a scikit-learn classifier doesn't
        see them, a network does (``Network(group_input=)``).
    min_count : int
        Minimum number of eligible calibration rows in each group.
    random_state : int, RandomState or None
        Decides which rows are held out, and the weights and batches of networks.

    Attributes
    ----------
    frontier_ : Frontier
        Operating points for every tolerance.
    classes_ : (C,) array
        Labels; the second of two is the positive one.
    scorer_ : Scorer
        Gives the logits.
    estimator_ : classifier
        The fitted estimator; a list with ``per_group``, ``cv`` or several estimators, in which a
        network is represented by its scorer. Absent for a single network, which is ``net_``. Of a
        loaded model, it is the converted classifier.
    plain_ : Scorer or None
        The scorer converted into plain data, which is saved, served and exported; None if it can't
        be converted, for the reason in ``plain_error_``.

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
        criterion: Given = "demographic_parity",
        limit_classes: Sequence[Hashable] | None = None,
        tolerance: float | None = 0.0,
        objective: str | Objective = "accuracy",
        budget: float | Budget | None = None,
        nested: bool | None = None,
        rising: bool = False,
        randomize: Literal["hash"] | None = None,
        blind: bool = False,
        unknown: Unknown = "raise",
        group_estimator: Any = None,
        recalibrate: str | None = None,
        prefit: bool = False,
        per_group: bool = False,
        calibration: float | Literal["auto"] | None = 0.2,
        cv: int | None = None,
        predict_method: str = "auto",
        pos_label: object = None,
        groups: Overlap = "intersection",
        sensitive_column: object = None,
        min_count: int = 30,
        random_state: Seed = None,
    ) -> None:
        self.estimator = estimator
        self.criterion = criterion
        self.limit_classes = limit_classes
        self.tolerance = tolerance
        self.objective = objective
        self.budget = budget
        self.nested = nested
        self.rising = rising
        self.randomize = randomize
        self.blind = blind
        self.unknown = unknown
        self.group_estimator = group_estimator
        self.recalibrate = recalibrate
        self.prefit = prefit
        self.per_group = per_group
        self.calibration = calibration
        self.cv = cv
        self.predict_method = predict_method
        self.pos_label = pos_label
        self.groups = groups
        self.sensitive_column = sensitive_column
        self.min_count = min_count
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        takes = []  # whether each part takes missing values, and text
        for part in self._parts():
            if isinstance(part, Network):
                takes.append([part.encoder is not None] * 2)
            elif hasattr(part, "__sklearn_tags__"):
                tags.input_tags = get_tags(part).input_tags
                takes.append([tags.input_tags.allow_nan, tags.input_tags.string])
        if takes:
            nan, text = (all(values) for values in zip(*takes, strict=True))
            tags.input_tags.allow_nan, tags.input_tags.string = nan, text
        return tags

    @property
    def _two_classes(self) -> str:  # type: ignore[override]
        """Why labels have two classes; "" if they may have more."""
        if self.blind:
            return "with `blind=True`"
        if self.recalibrate is not None:
            return "with `recalibrate`"
        return ""

    def _parts(self) -> list[Any]:
        """Return the estimators whose logits are averaged; usually one."""
        several = isinstance(self.estimator, (list, tuple))
        parts = list(self.estimator) if several else [self.estimator]
        if not parts:
            raise InvalidInputError("estimator", "hold at least one estimator", given="none")
        return [Network() if part is None else part for part in parts]

    def _fit(
        self, X: object, y: object, sensitive_features: object, **more: Unpack[RowOptions]
    ) -> Self:
        check_choice(self.blind, "blind", (False, True))
        if self.blind:
            check_blind(self)
        if self.prefit:
            return self._fit_prefit(X, y, sensitive_features, **more)
        parts = self._parts()
        for part in parts:
            check_estimator(part)
        rows = self._rows_to_fit(X, y, sensitive_features, **more)
        self._check_classes()
        for part in parts if rows.weights is not None else ():
            warn_without_weights(part)
        nets = any(isinstance(part, Network) for part in parts)
        learned = self.per_group or nets or self.blind
        self.trained_groups_ = rows.groups if learned else None
        if self.cv is not None:
            return self._cross_fit(rows)
        if len(parts) == 1 and nets:
            fit_scorer(self, parts[0], rows, self._plain_step(parts[0]))
            return self._calibrate_held_out(rows)
        scorers = self._train(rows, rows.train)
        self.scorer_ = scorers[0] if len(scorers) == 1 else AveragedScorer(scorers)
        fitted = fitted_estimators(scorers)
        self.estimator_ = fitted if len(parts) > 1 or self.per_group else fitted[0]
        if self.blind:
            known = rows.train if rows.known is None else rows.train[rows.known[rows.train]]
            groups = fit_groups(self, rows, known)
            self.scorer_ = BlindScorer(self.scorer_, groups, len(rows.groups))
        return self._calibrate_held_out(rows)

    # ---- training ------------------------------------------------------------------------------

    def _train(self, rows: Rows, places: Indices, fold: int = 0) -> list[Scorer]:
        """Train every estimator on these rows."""
        found: list[Scorer] = []
        nets = 0
        for part in self._parts():
            if isinstance(part, Network):
                some, step = replace(rows, train=places), self._plain_step(part)
                trained = train_network(self, part, some, step, part=nets, fold=fold)
                found.append(trained.scorer)
                nets += 1
            else:
                found.append(self._train_one(part, rows, places))
        return found

    def _train_one(self, estimator: Any, rows: Rows, places: Indices) -> SklearnScorer:
        """Fit a classifier, or one for each group, on these rows."""
        estimator = for_table(estimator, rows.X)
        codes, labels = rows.codes[places], rows.labels
        last = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator
        positive: Any = self.classes_[1]
        classes = self.classes_.tolist() if rows.n_classes > 2 else None
        if library_of(last) == "xgboost":  # which takes labels 0, 1, ... alone
            codes_of = rows.y if rows.classes is None else rows.classes
            labels, positive = codes_of.astype(int), 1
            classes = None if classes is None else list(range(len(classes)))
        parts = [places]
        if self.per_group:
            parts = [places[codes == a] for a in range(len(rows.groups))]
        estimators = []
        for part in parts:
            if len(np.unique(rows.labels[part])) < 2:
                where = " of every group" if self.per_group else ""
                raise InvalidInputError(
                    "y", f"hold two classes in the training rows{where}", given="one class only"
                )
            X, y = take_rows(rows.X, part), labels[part]
            estimators.append(fit_clone(estimator, X, y, rows.weights_of(part)))
        return SklearnScorer(
            estimators,
            positive=positive,
            method=find_method(estimators[0], self.predict_method),
            classes=classes,
        )

    def _plain_step(self, network: Network) -> Any:
        """Return empirical risk minimization (eq:l_pred) of the same network as GFB's."""
        require_torch()
        from fairdial.nn.class_objective import ClassObjective
        from fairdial.nn.masoba import Objective
        from fairdial.nn.steps import PlainStep

        n_classes = len(self.classes_)
        check_several_classes(network, n_classes)
        kind = self.problem.criterion
        rate = kind.rate if kind.is_simple else SELECTION  # plain training needs none

        def make_step(net: Any, shares: Any, _: int) -> PlainStep:
            plain = Objective(rate, shares, weight=1.0, gamma=network.gamma)
            return PlainStep(
                net,
                plain if n_classes == 2 else ClassObjective(shares, weight=1.0),
                rate=network.learning_rate,
                weight_decay=network.weight_decay,
            )

        return make_step

    def _cross_fit(self, rows: Rows) -> Self:
        """Find the frontier on out-of-fold scores, and average the models of the folds."""
        folds, places = check_count(self.cv, "cv", least=2), rows.train
        cells = rows.cells[places]
        smallest = int(np.bincount(cells)[np.unique(cells)].min())
        if smallest < folds:
            raise InvalidInputError(
                "cv",
                "be at most the number of rows of any group and label",
                given=f"{folds} folds and {smallest} rows",
            )
        splitter = StratifiedKFold(
            folds, shuffle=True, random_state=check_random_state(self.random_state)
        )
        more = () if rows.n_classes == 2 else (rows.n_classes,)
        logits = np.empty((len(cells), *more))
        scorers: list[Scorer] = []
        for fold, (train, held) in enumerate(splitter.split(np.zeros(len(cells)), cells)):
            found = self._train(rows, places[train], fold)
            out = places[held]
            logits[held] = AveragedScorer(found).logits(take_rows(rows.X, out), rows.codes[out])
            scorers += found
        self.scorer_ = AveragedScorer(scorers)
        self.estimator_ = fitted_estimators(scorers)
        some = places[:: len(places) // CROSS_CHECKED + 1]
        X, codes = take_rows(rows.X, some), rows.codes[some]
        self._convert(X, codes, self.scorer_.logits(X, codes))
        return self._set_frontier(logits, rows.sample(places, "none"))

    # ---- calibrate -----------------------------------------------------------------------------

    def _find_frontier(self, X: Any, sample: Sample) -> Self:
        if self.prefit and isinstance(self.scorer_, SklearnScorer):
            check_trained_columns(self.scorer_.estimators[0], X)
        logits = self.scorer_.logits(X, sample.codes)
        if self.blind:
            return self._set_blind_frontier(X, logits, sample)
        self._convert(X, sample.codes, logits)
        return self._set_frontier(logits, sample)

    def _set_blind_frontier(self, X: Any, logits: Scores, sample: Sample) -> Self:
        check_blind(self)
        self.platt_ = None
        self.frontier_ = sweep_blind_encoded(
            check_scores(logits, "logits of the estimator"),
            self._blind_scorer().posterior(X),
            sample.codes,
            sample.positive,
            replace(self._make_problem(sample.n_rows), criterion=sample.criterion),
            sample.groups,
            weights=sample.weights,
            min_count=1,
            certificate=sample.certificate,
            argument="sensitive_features",
            known=sample.known,
        )
        return self

    def _blind_scorer(self) -> BlindScorer:
        if not isinstance(self.scorer_, BlindScorer):
            raise InvalidInputError(
                "blind", "be False for a model fitted without it", given=True, hint="Fit it again."
            )
        return self.scorer_

    def blindness(
        self,
        X: object,
        y: object,
        *,
        sensitive_features: object = None,
        tolerances: ArrayLike = (0.02, 0.05, 0.1),
    ) -> Blindness:
        """Return how well features predict the group, and what deciding without it costs.

        Both dials, with the group and without, are calibrated on these rows with the same scores,
        and their accuracies are those on these rows. Use rows that the model wasn't trained on.

        Examples
        --------
        >>> from sklearn.linear_model import LogisticRegression
        >>> from fairdial import FairBayes
        >>> from fairdial.datasets import make_gaussian
        >>> rows = make_gaussian(20_000, random_state=0)
        >>> X = rows.X.assign(tenure=rows.X["x"] + 3 * (rows.groups == "group 1"))
        >>> model = FairBayes(LogisticRegression(), blind=True, random_state=0)
        >>> model = model.fit(X[:10_000], rows.y[:10_000], sensitive_features=rows.groups[:10_000])
        >>> decisions = model.predict(X[10_000:], tolerance=0.05)  # without the group
        >>> found = model.blindness(
        ...     X[10_000:], rows.y[10_000:], sensitive_features=rows.groups[10_000:]
        ... )
        >>> bool(found.auc["group 1"] > 0.9), bool(found.costs.loc[0.05, "cost"] < 0.01)
        (True, True)
        """
        self._check_scorer()
        scorer = self._blind_scorer()
        X, sensitive = self._take_groups(X, sensitive_features)
        X = self._check_features(X, reset=False)
        positive = is_positive(y, self.classes_)
        check_same_length(range(_num_samples(X)), positive, ("X", "y"))
        codes, groups = encode_rows(sensitive, _num_samples(X), self._trained_groups())
        logits = check_scores(scorer.logits(X, codes), "logits of the estimator")
        posterior, problem = scorer.posterior(X), self._make_problem(float(len(codes)))
        compared = self._compare(problem.criterion, sensitive, codes, groups)
        problem = replace(problem, criterion=compared)
        least = self._least_count(groups)
        given = logits, codes, positive, problem, groups
        aware = sweep_encoded(*given, min_count=least, argument="sensitive_features")
        blind = sweep_blind_encoded(
            logits, posterior, *given[1:], min_count=least, argument="sensitive_features"
        )
        wanted = np.atleast_1d(check_tolerance(tolerances, "tolerances"))
        return compare_blind(blind, aware, posterior, codes, wanted)

    def _convert(self, X: Any, codes: Codes, logits: Scores) -> None:
        """Convert the scorer into plain data, if it can be, and verify it on calibration rows."""
        self.plain_ = None
        self.__dict__.pop("plain_error_", None)
        parts = self.scorer_.scorers if isinstance(self.scorer_, AveragedScorer) else [self.scorer_]
        if not any(isinstance(part, (SklearnScorer, PlainScorer)) for part in parts):
            return  # networks are plain data already
        if len(self.classes_) > 2:
            self.plain_error_ = "it has more than two classes"
            return
        try:
            plain = convert_scorer(self.scorer_, self)
            if plain is not self.scorer_:
                verify(plain, X, codes, logits)
            self.plain_ = plain
        except CannotConvertError as error:
            self.plain_error_ = str(error)

    # ---- prefit --------------------------------------------------------------------------------

    def _fit_prefit(
        self, X: object, y: object, sensitive_features: object, **more: Unpack[RowOptions]
    ) -> Self:
        """Calibrate a fitted estimator on all rows, and warn."""
        X, sensitive = self._take_groups(X, sensitive_features)
        self._use_fitted()
        self._name_groups(sensitive)
        X = self._check_features(X, reset=True)
        if y is None:
            raise InvalidInputError("y", "be given: fit requires y to be passed")
        self._calibrate(X, y, sensitive, **more)
        warn(
            "with `prefit=True` `fit` trains nothing and holds no rows out: it calibrates on all "
            "rows. Call `calibrate` instead, with rows that the classifier hasn't seen",
            SeenRowsWarning,
        )
        return self

    def _use_fitted(self) -> None:
        """Take the estimator as it is."""
        several = isinstance(self.estimator, (list, tuple))
        if self.per_group or self.cv is not None or self.estimator is None or several:
            raise InvalidInputError(
                "prefit",
                "be False with `per_group`, `cv`, several estimators or no `estimator`",
                given="True",
            )
        if isinstance(getattr(self, "scorer_", None), PlainScorer):  # loaded: converted already
            self.platt_ = None
            return
        if hasattr(self.estimator, "__sklearn_tags__"):
            try:
                check_is_fitted(self.estimator)
            except NotFittedError:
                raise InvalidInputError(
                    "estimator", "be fitted with `prefit=True`", given="an unfitted one"
                ) from None
        self.estimator_ = as_classifier(self.estimator)
        classes = getattr(self.estimator_, "classes_", [0, 1])
        if isinstance(classes, list) and any(np.ndim(of_output) for of_output in classes):
            given = f"{type(self.estimator).__name__} with {len(classes)} outputs"
            raise InvalidInputError("estimator", "have one output", given=given)
        several = len(classes) > 2
        if len(classes) < 2 or (several and self.pos_label is not None):
            raise InvalidInputError(
                "estimator",
                "have two classes" + (" with `pos_label`" if several else " or more"),
                given=describe_values(list(classes)),
            )
        self.classes_ = np.asarray(classes)
        if not several:
            self.classes_ = positive_last(self.classes_, self.pos_label)
        self.trained_groups_ = None
        self.platt_ = None
        self.scorer_ = SklearnScorer(
            [self.estimator_],
            positive=self.classes_[1],
            method=find_method(self.estimator_, self.predict_method),
            classes=self.classes_.tolist() if several else None,
        )

    def _check_scorer(self) -> None:
        if self.prefit and not hasattr(self, "scorer_"):
            self._use_fitted()
        super()._check_scorer()


def fitted_estimators(scorers: list[Scorer]) -> list[Any]:
    """Return the estimators behind scorers; a network is represented by its scorer."""
    found: list[Any] = []
    for scorer in scorers:
        if isinstance(scorer, PlainScorer):
            found += scorer.models
        else:
            found += scorer.estimators if isinstance(scorer, SklearnScorer) else [scorer]
    return found
