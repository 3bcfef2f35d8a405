"""FairBayes: the exact dial on any classifier that gives scores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import StratifiedKFold
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.validation import check_is_fitted

from fairdial._validation import check_count, say_values
from fairdial.criteria import Criterion
from fairdial.criteria import criterion as find_criterion
from fairdial.errors import InvalidInputError, SeenRowsWarning, warn
from fairdial.methods.base import positive_last, refuse_no_labels
from fairdial.methods.learners import texts_of
from fairdial.methods.network import Network, fit_scorer, torch_module, train_network
from fairdial.methods.rows import FitRows, Rows, take_rows
from fairdial.methods.thresholds import ThresholdClassifier
from fairdial.scorers import AveragedScorer, Scorer, SklearnScorer, find_method

NO_NUMBER = "could not convert string to float"  # numpy's words for a text among numbers
TOO_FEW = ("least populated class", "test_size")  # scikit-learn's, where none can be held out
TORCH_MODULES = "torch.nn.modules.module"  # where their base class is: told without importing it


class FairBayes(ThresholdClassifier):  # alg:post-process for every tolerance at once
    """Any scikit-learn classifier with a fairness dial.

    The classifier is trained as it is; on rows that it hasn't seen, the exact path of group
    thresholds is found, from the most accurate to the most equal decisions, for every tolerance at
    once. The tolerance is chosen when predicting, as often as one likes. Group membership is needed
    at prediction time.

    Parameters
    ----------
    estimator : classifier, pipeline, Network, list of them, or None
        Gives scores by ``predict_proba``, ``decision_function`` or ``predict``. None is
        ``Network()``: the neural network of GFB, trained plainly; on tables begin with
        ``HistGradientBoostingClassifier()``, which with small trees was above it on
        Adult at a seventh of the cost.
        Of a list, all are trained and their logits averaged; each network starts from weights of
        its own.
    criterion : str or Criterion
        "demographic_parity", "equal_opportunity" or "predictive_equality".
    tolerance : float
        Where the dial rests: the gap that ``predict`` keeps unless told otherwise.
    recalibrate : None or "group"
        "group" corrects each group's logits by a line first; for scores that are biased.
    prefit : bool
        The estimator is fitted already: call ``calibrate``, with rows that it hasn't seen. ``fit``
        does the same with all rows that it is given, and warns.
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
        Column(s) of X that tell the group, instead of ``sensitive_features=``; a classifier of
        scikit-learn doesn't see them, a network does (``Network(group_input=)``).
    min_count : int
        Least number of counted calibration rows in each group.
    random_state : int, RandomState or None
        Which rows are held out; weights and batches of networks.

    Attributes
    ----------
    frontier_ : Frontier
        Every position of the dial.
    classes_ : (2,) array
        Labels; the second is the positive one.
    scorer_ : Scorer
        Gives the logits.
    estimator_ : classifier
        The fitted estimator; a list with ``per_group``, ``cv`` or several estimators, in which a
        network stands as its scorer. Not there for one network: that is ``net_``.

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
        takes = []  # missing values, texts: what every part takes
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

    def _parts(self) -> list[Any]:
        """The estimators whose logits are averaged; mostly one."""
        several = isinstance(self.estimator, (list, tuple))
        parts = list(self.estimator) if several else [self.estimator]
        if not parts:
            raise InvalidInputError("`estimator` must hold at least one estimator, got none.")
        return [Network() if part is None else part for part in parts]

    def _fit(self, X: Any, y: Any, sensitive_features: Any) -> Self:
        if self.prefit:
            X, sensitive = self._take_groups(X, sensitive_features)
            self._use_fitted()
            X = self._check_features(X, reset=True)
            refuse_no_labels(y)
            self._calibrate(X, self._labels(y), sensitive, "declared")
            warn(
                "with prefit=True `fit` trains nothing and holds no rows out: all of these "
                "calibrate. Call `calibrate` instead, with rows that the classifier hasn't seen",
                SeenRowsWarning,
            )
            return self
        parts = self._parts()
        for part in parts:
            check_estimator(part)
        rows = self._rows_to_fit(X, y, sensitive_features)
        nets = any(isinstance(part, Network) for part in parts)
        self.trained_groups_ = rows.names if self.per_group or nets else None
        if self.cv is not None:
            return self._cross_fit(rows)
        if len(parts) == 1 and nets:
            fit_scorer(self, parts[0], rows, self._plain_step(parts[0]))
            return self._calibrate_held_out(rows)
        scorers = self._train(rows, rows.train)
        self.scorer_ = scorers[0] if len(scorers) == 1 else AveragedScorer(scorers)
        fitted = fitted_of(scorers)
        self.estimator_ = fitted if len(parts) > 1 or self.per_group else fitted[0]
        return self._calibrate_held_out(rows)

    def _plain_step(self, network: Network) -> Any:
        """Empirical risk minimisation (eq:l_pred) of the same network as GFB's."""
        rate, objective = find_criterion(self.criterion).rates[0], self._objective()

        def make_step(net: Any, shares: Any, _: int) -> Any:
            return torch_module("steps").PlainStep(
                net,
                objective(rate, shares, weight=1.0, gamma=network.gamma),
                rate=network.learning_rate,
                weight_decay=network.weight_decay,
            )

        return make_step

    def _objective(self) -> Any:
        """The prediction loss of networks."""
        return torch_module("masoba").Objective

    def _train(self, rows: FitRows, places: Rows, fold: int = 0) -> list[Scorer]:
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

    def _train_one(self, estimator: Any, rows: FitRows, places: Rows) -> SklearnScorer:
        """Fit a classifier, or one for each group, on these rows."""
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
            estimators.append(fit_clone(estimator, X, y))
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
        scorers: list[Scorer] = []
        for fold, (train, held) in enumerate(splitter.split(np.zeros(len(cells)), cells)):
            found = self._train(rows, train, fold)
            logits[held] = AveragedScorer(found).logits(take_rows(rows.X, held), rows.codes[held])
            scorers += found
        self.scorer_ = AveragedScorer(scorers)
        self.estimator_ = fitted_of(scorers)
        return self._set_frontier(logits, rows.codes, rows.names, rows.positive, "none")

    def _use_fitted(self) -> None:
        """Take the estimator as it is (``prefit``)."""
        several = isinstance(self.estimator, (list, tuple))
        if self.per_group or self.cv is not None or self.estimator is None or several:
            raise InvalidInputError(
                "`prefit` must be False with `per_group`, `cv`, several estimators or none, got "
                "True."
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
            raise InvalidInputError(
                f"`estimator` must know two classes, got {say_values(classes.tolist())}."
            )
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


def check_estimator(estimator: Any) -> None:
    """Whether it can be trained; a network of torch's is wrapped first."""
    kind = type(estimator)
    trains = hasattr(estimator, "fit") and hasattr(estimator, "get_params")
    if trains or isinstance(estimator, Network):
        return
    told = "`estimator` must be a classifier of scikit-learn's kind or a Network, got "
    told += kind.__name__
    if any(base.__module__ == TORCH_MODULES for base in kind.__mro__):
        told += ", a module of torch's; wrap it: FairBayes(Network(trunk=...))"
    raise InvalidInputError(f"{told}.")


def fit_clone(estimator: Any, X: Any, y: Any) -> Any:
    """A fitted clone; where texts, dates or few rows stand in its way, the error says which."""
    try:
        return clone(estimator).fit(X, y)
    except TypeError as error:  # such as numpy's, of dates among numbers
        kinds = X.dtypes.items() if isinstance(X, pd.DataFrame) else ()
        dates = [name for name, kind in kinds if pd.api.types.is_datetime64_any_dtype(kind)]
        if not dates:
            raise
        raise InvalidInputError(
            f"`X` must hold what {type(estimator).__name__} can read, got dates in the columns "
            f"{', '.join(map(repr, dates))}. Turn dates into numbers first, such as days since a "
            "day."
        ) from error
    except ValueError as error:
        if any(words in str(error) for words in TOO_FEW):
            labels, counts = np.unique(y, return_counts=True)
            found = [f"{n} with {v!r}" for v, n in zip(labels.tolist(), counts, strict=True)]
            raise InvalidInputError(
                f"`y` must hold more training rows of each label for {type(estimator).__name__}, "
                f"which holds some of them out, got {' and '.join(found)} ({error}). Give "
                "more rows, or an estimator that takes so few, such as LogisticRegression."
            ) from error
        texts = in_the_way(X)
        if NO_NUMBER not in str(error) or not texts:
            raise
        raise InvalidInputError(
            f"`X` must hold what {type(estimator).__name__} can read, got text in the columns "
            f"{', '.join(map(repr, texts))} ({error}). Put an encoder before it: make_pipeline("
            f"make_column_transformer((OneHotEncoder(handle_unknown='ignore'), {texts}), "
            "remainder='passthrough'), ...). HistGradientBoostingClassifier also takes "
            f"X.astype(dict.fromkeys({texts}, 'category')) with categorical_features='from_dtype'."
        ) from error


def in_the_way(X: Any) -> list[Any]:
    """Columns that a classifier of numbers can't read: pandas' categories if there is no text."""
    if isinstance(X, np.ndarray) and X.ndim == 2:
        X = pd.DataFrame(X).infer_objects()
    texts = texts_of(X)
    plain = [name for name in texts if not isinstance(X.dtypes[name], pd.CategoricalDtype)]
    return plain or texts


def fitted_of(scorers: list[Scorer]) -> list[Any]:
    """The estimators behind scorers; a network is its scorer."""
    found: list[Any] = []
    for scorer in scorers:
        found += scorer.estimators if isinstance(scorer, SklearnScorer) else [scorer]
    return found
