"""GFB, Guidance to Fairest-Boundary: the paper's method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from numbers import Real
from typing import Any, Literal, Self, Unpack

import numpy as np

from fairdial._validation import check_choice, check_count
from fairdial.core.criteria import Criterion, Given
from fairdial.core.groupings import Overlap
from fairdial.core.objectives import Objective
from fairdial.core.problem import Budget
from fairdial.core.rates import (
    FALSE_NEGATIVE,
    FALSE_POSITIVE,
    SELECTION,
    TRUE_NEGATIVE,
    TRUE_POSITIVE,
    Rate,
)
from fairdial.errors import InvalidInputError, require_torch
from fairdial.estimators.base import Seed
from fairdial.estimators.network import check_several_classes, chosen_network, fit_scorer
from fairdial.estimators.rows import RowOptions
from fairdial.estimators.thresholds import ThresholdClassifier
from fairdial.nn.network import Network
from fairdial.nn.schedules import check_schedules, factor_at

MIN_WARM_STEPS = 100  # if there is a warm start at all


class GFB(ThresholdClassifier):  # eq:bilevel_optim, alg:proposed; weight: lambda of eq:l_gen
    """A network whose representation is trained for all tolerances.

    Trunk g and head z are trained as a bilevel problem. The head minimizes the prediction loss. The
    trunk anticipates the head and also pulls logits toward the fairest threshold, so that accuracy
    recovers quickly as the tolerance grows. The three directions of MA-SOBA come from one forward
    and one backward pass.

    The paper has two groups, two classes and one rate; here, the number of groups is arbitrary, and
    training also works for equalized odds, and for demographic parity with more than two classes.

    To change criterion, objective or budget of a trained model, call ``set_params`` and then
    ``calibrate``: nothing is trained again.

    Parameters
    ----------
    criterion : str, Criterion, list or mapping
        "demographic_parity", "equal_opportunity", "predictive_equality", "equalized_odds" and
        others, and combinations; see :func:`fairdial.criterion`. Training needs a criterion that
        compares one rate of selected rows, or the true and the false positive rate.
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
    weight : float
        The paper's lambda: the share of the prediction loss in the trunk's objective; 1 is plain
        training.
    outer, inner : {"adam", "sgd"}
        Steps of the trunk and of the head: Adam, or plain ones as in the paper's algorithm.
    aux : {"scaled", "step", "adam", "solve"}
        How to solve the auxiliary system H w = grad L_gen. "step": the paper's plain step; "adam":
        Adam in its place. "scaled" and "solve" use the positive semi-definite part of H and only
        the distance loss (the rest is zero at the head's optimum): steps scaled by the largest
        curvature, or conjugate gradients (exact for a linear head).
    aux_rate : float
        Step size of "scaled" (in units of one over the largest curvature), "step" and "adam".
    moving_average : float
        theta of MA-SOBA (rho in the paper's algorithm); 1 is the raw hypergradient.
    average_first : bool
        Whether the moving average includes the new direction before the outer step; in the paper
        it does so after the step.
    bias_correction : bool
        Whether to divide the moving average by the total weight of the directions in it, as Adam
        does; otherwise it starts near 0.
    head_rate : float, optional
        Learning rate of the head; the network's by default.
    schedules : mapping, optional
        From "outer", "inner", "aux" and "average" (alpha, beta, gamma and rho of the paper's
        algorithm) to how these rates change with the step k, which counts from 0 and includes the
        warm start: "constant", "inverse_sqrt" (1 / sqrt(k + 1)), "inverse" (1 / (k + 1)), "cosine"
        (down to 0 at the end of the network's ``epochs``, even if training stops early), or a
        function of k that returns a factor. A model with functions can't be saved.
    clip : float, optional
        Largest norm of each direction, for each member of the ensemble: of the trunk before
        averaging, of the head, and of the auxiliary variable (not with ``aux="solve"``).
    order : {"together", "sequential"}
        "together": all directions at one iterate, as in the paper. "sequential": the head moves
        first, and the directions of the auxiliary variable and the trunk are those at the new
        head, which runs twice; the trunk still has one forward and one backward pass.
    root : {"smooth", "hard"}
        Which fairest threshold: that of the smooth disparity, as in theorem 2, or that of the
        batch's hard disparity, as in the authors' release.
    warm_epochs : int
        Number of initial epochs (at least 100 steps) with the prediction loss only; 0 for none.
    network : Network, optional
        The network and how it is trained.
    calibration : float, "auto" or None
        Share of the rows that ``fit`` holds out to find the frontier. "auto" holds out what
        certifying ``tolerance`` with confidence 0.95 is likely to need. If None, train on all rows
        and call ``calibrate`` with other rows before predicting.
    recalibrate : None or "group"
        "group" corrects each group's logits with a line first.
    pos_label : label, optional
        Value of the positive class; the one that sorts last by default.
    groups : {"intersection", "marginal", "both"}
        What is compared if there are several sensitive columns: their intersections, such as
        "Black & Female"; the groups of each column, which is for differences of rates; or all of
        them. Each intersection has its threshold in any case.
    sensitive_column : str, int or list, optional
        Group column(s) of X.
    min_count : int
        Minimum number of eligible calibration rows in each group.
    warm_start : bool
        Continue from the last fit's weights.
    random_state : int, RandomState or None
        Seed of the split, the initial weights and the batches; the same integer on the same machine
        gives the same bits.

    Attributes
    ----------
    frontier_ : Frontier
        Operating points for every tolerance.
    history_ : DataFrame
        For each epoch: losses, ``score`` and hypervolume on validation rows, the residual of the
        auxiliary system (NaN in the warm start, where ``warm`` is 1), the unconstrained gap; for
        criteria that limit the difference of one rate, also the share of rows between 0 and the
        fairest thresholds, those thresholds, the smallest gap, Acc_dep of theorem 1.
    net_ : torch Module
        The trained network.
    encoder_ : Encoder or None
        Turns rows into its inputs.

    Examples
    --------
    >>> from fairdial import GFB, Network
    >>> from fairdial.datasets import make_gaussian
    >>> train, test = make_gaussian(10_000, random_state=0).split(random_state=0)
    >>> model = GFB(aux="solve", network=Network(members=1), random_state=0)
    >>> model = model.fit(train.X, train.y, sensitive_features=train.groups)
    >>> decisions = model.predict(test.X, sensitive_features=test.groups, tolerance=0.1)
    >>> model.frontier_.at(0.1).gap <= 0.1
    True
    """

    def __init__(
        self,
        *,
        criterion: Given = "demographic_parity",
        tolerance: float | None = 0.0,
        objective: str | Objective = "accuracy",
        budget: float | Budget | None = None,
        nested: bool | None = None,
        rising: bool = False,
        randomize: Literal["hash"] | None = None,
        weight: float = 0.95,
        outer: str = "adam",
        inner: str = "adam",
        aux: str = "scaled",
        aux_rate: float = 0.5,
        moving_average: float = 1.0,
        average_first: bool = True,
        bias_correction: bool = False,
        head_rate: float | None = None,
        schedules: Mapping[str, str | Callable[[int], float]] | None = None,
        clip: float | None = None,
        order: str = "together",
        root: str = "smooth",
        warm_epochs: int = 1,
        network: Network | None = None,
        calibration: float | Literal["auto"] | None = 0.2,
        recalibrate: str | None = None,
        pos_label: object = None,
        groups: Overlap = "intersection",
        sensitive_column: object = None,
        min_count: int = 30,
        warm_start: bool = False,
        random_state: Seed = None,
    ) -> None:
        self.criterion = criterion
        self.tolerance = tolerance
        self.objective = objective
        self.budget = budget
        self.nested = nested
        self.rising = rising
        self.randomize = randomize
        self.weight = weight
        self.outer = outer
        self.inner = inner
        self.aux = aux
        self.aux_rate = aux_rate
        self.moving_average = moving_average
        self.average_first = average_first
        self.bias_correction = bias_correction
        self.head_rate = head_rate
        self.schedules = schedules
        self.clip = clip
        self.order = order
        self.root = root
        self.warm_epochs = warm_epochs
        self.network = network
        self.calibration = calibration
        self.recalibrate = recalibrate
        self.pos_label = pos_label
        self.groups = groups
        self.sensitive_column = sensitive_column
        self.min_count = min_count
        self.warm_start = warm_start
        self.random_state = random_state

    _two_classes = ""

    def _fit(
        self, X: object, y: object, sensitive_features: object, **more: Unpack[RowOptions]
    ) -> Self:
        self._check_settings()
        rate = require_compared(self.problem.criterion)
        rows = self._rows_to_fit(X, y, sensitive_features, **more)
        several = rows.n_classes > 2
        if several:
            self._check_classes()
            require_selection(rate, self.problem.criterion)
        if self.root == "hard" and (len(rows.groups) > 2 or isinstance(rate, tuple) or several):
            raise InvalidInputError(
                "root",
                "be 'smooth' for more than two groups or classes and for equalized odds",
                given=repr(self.root),
            )
        require_torch()
        from fairdial.nn import class_objective, masoba, steps

        network = chosen_network(self.network, Network())
        check_several_classes(network, rows.n_classes)
        weight = self.weight if len(rows.groups) > 1 else 1.0

        def make_step(net: Any, shares: Any, steps_per_epoch: int) -> steps.Step:
            objective: masoba.Bilevel
            if several:
                objective = class_objective.ClassObjective(shares, weight=weight)
            else:
                objective = masoba.Objective(
                    rate, shares, weight=weight, gamma=network.gamma, hard=self.root == "hard"
                )
            if len(rows.groups) == 1:
                return steps.PlainStep(
                    net, objective, rate=network.learning_rate, weight_decay=network.weight_decay
                )
            return steps.BilevelStep(
                net,
                objective,
                outer_rate=network.learning_rate,
                inner_rate=self.head_rate or network.learning_rate,
                aux=self.aux,
                aux_rate=self.aux_rate,
                theta=self.moving_average,
                average_first=self.average_first,
                bias_correction=self.bias_correction,
                outer_optimizer=self.outer,
                inner_optimizer=self.inner,
                schedules={
                    name: partial(factor_at, given, steps=network.epochs * steps_per_epoch)
                    for name, given in check_schedules(self.schedules).items()
                },
                clip=self.clip,
                sequential=self.order == "sequential",
                weight_decay=network.weight_decay,
                warm_steps=max(self.warm_epochs * steps_per_epoch, MIN_WARM_STEPS)
                if self.warm_epochs
                else 0,
            )

        fit_scorer(self, network, rows, make_step)
        return self._calibrate_held_out(rows)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        encodes = (self.network or Network()).encoder is not None
        tags.input_tags.allow_nan = tags.input_tags.string = encodes
        return tags

    def _check_settings(self) -> None:
        check_choice(self.outer, "outer", ("adam", "sgd"))
        check_choice(self.inner, "inner", ("adam", "sgd"))
        check_choice(self.aux, "aux", ("scaled", "step", "adam", "solve"))
        check_choice(self.order, "order", ("together", "sequential"))
        check_choice(self.root, "root", ("smooth", "hard"))
        check_choice(self.average_first, "average_first", (False, True))
        check_choice(self.bias_correction, "bias_correction", (False, True))
        if "aux" in check_schedules(self.schedules) and self.aux == "solve":
            raise InvalidInputError(
                "schedules", "have no 'aux' with `aux='solve'`, which has no rate"
            )
        for name, top in (("weight", 1.0), ("moving_average", 1.0), ("aux_rate", np.inf)):
            value = getattr(self, name)
            if not isinstance(value, Real) or not 0 < float(value) <= top:
                raise InvalidInputError(name, f"lie in (0, {top:g}]", given=repr(value))
        for name in ("head_rate", "clip"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, Real) and 0 < float(value) < np.inf):
                raise InvalidInputError(name, "be positive or None", given=repr(value))
        check_count(self.warm_epochs, "warm_epochs", least=0)
        chosen_network(self.network, Network())


ODDS = (TRUE_POSITIVE, FALSE_POSITIVE)
OPPOSITE = {FALSE_NEGATIVE: TRUE_POSITIVE, TRUE_NEGATIVE: FALSE_POSITIVE}  # 1 minus the other


def compared(criterion: Criterion) -> Rate | tuple[Rate, Rate] | None:
    """Return what the criterion compares between groups, if GFB can make it equal.

    That is one rate of selected rows, or the true and the false positive rate: equalized odds.
    Where a rate is equal in all groups, its difference is 0, its ratio 1, and its opposite equal
    too.

    Examples
    --------
    >>> from fairdial import criterion
    >>> from fairdial.estimators.gfb import compared
    >>> compared(criterion("false_negative_rate_parity")).name
    'true_positive_rate'
    >>> [rate.name for rate in compared(criterion("equalized_odds"))]
    ['true_positive_rate', 'false_positive_rate']
    >>> compared(criterion("predictive_parity")) is None
    True
    """
    found = {
        OPPOSITE.get(demand.rate, demand.rate)
        for demand in criterion.demands
        if demand.spread in ("difference", "ratio")
    }
    if found == set(ODDS):
        return ODDS
    rate = found.pop() if len(found) == 1 else None
    return rate if rate is not None and rate.has_link else None


def require_compared(criterion: Criterion) -> Rate | tuple[Rate, Rate]:
    """Return what GFB makes equal; raise if the criterion compares other rates."""
    found = compared(criterion)
    if found is None:
        raise InvalidInputError(
            "criterion",
            "compare one rate of selected rows to train GFB (demographic_parity, "
            "equal_opportunity, predictive_equality), or two (equalized_odds)",
            given=criterion.name,
            hint="Train with criterion='equal_opportunity'; then call "
            f"set_params(criterion={criterion.name!r}) and calibrate.",
        )
    return found


def require_selection(rate: Rate | tuple[Rate, Rate], criterion: Criterion) -> None:
    """Raise if the criterion compares another rate than that of selected rows."""
    if rate != SELECTION:
        raise InvalidInputError(
            "criterion",
            "be demographic_parity to train GFB with more than two classes",
            given=criterion.name,
            hint="Train with criterion='demographic_parity'; then call "
            f"set_params(criterion={criterion.name!r}) and calibrate.",
        )
