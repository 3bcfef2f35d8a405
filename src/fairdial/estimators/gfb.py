"""GFB, Guidance to Fairest-Boundary: the paper's method."""

from __future__ import annotations

from numbers import Real
from typing import Any, Literal, Self, Unpack

import numpy as np

from fairdial._validation import check_choice, check_count
from fairdial.core.criteria import Criterion, Given
from fairdial.core.objectives import Objective
from fairdial.core.problem import Budget
from fairdial.core.rates import (
    FALSE_NEGATIVE,
    FALSE_POSITIVE,
    TRUE_NEGATIVE,
    TRUE_POSITIVE,
    Rate,
)
from fairdial.errors import InvalidInputError, TrainingWarning, require_torch, warn
from fairdial.estimators.base import Seed
from fairdial.estimators.network import chosen_network, fit_scorer
from fairdial.estimators.rows import RowOptions
from fairdial.estimators.thresholds import ThresholdClassifier
from fairdial.nn.network import Network

# Limits of the residual's median over epochs. One epoch's residual is a single batch's: too noisy.
DIVERGING = 1.5  # above: w diverges
INERT = 0.95  # above: the auxiliary system isn't being solved
MIN_WARM_STEPS = 100  # if there is a warm start at all
COLLAPSED = 0.5  # share of the unconstrained gap after the warm start


class GFB(ThresholdClassifier):  # eq:bilevel_optim, alg:proposed; weight: lambda of eq:l_gen
    """A network whose representation is trained for all tolerances.

    Trunk g and head z are trained as a bilevel problem. The head minimizes the prediction loss. The
    trunk anticipates the head and also pulls logits toward the fairest threshold, so that accuracy
    recovers quickly as the tolerance grows. The three directions of MA-SOBA come from one forward
    and one backward pass. GFB needs two groups.

    To change criterion, objective or budget of a trained model, call ``set_params`` and then
    ``calibrate``: nothing is trained again.

    Parameters
    ----------
    criterion : str, Criterion, list or mapping
        "demographic_parity", "equal_opportunity", "predictive_equality", "equalized_odds" and
        others, and combinations; see :func:`fairdial.criterion`. Training needs a criterion that
        compares one rate of selected rows.
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
    aux : {"scaled", "step", "solve"}
        How to solve the auxiliary system H w = grad L_gen. "step": the paper's plain step.
        "scaled" and "solve" use the positive semi-definite part of H and only the distance loss
        (the rest is zero at the head's optimum): steps scaled by the largest curvature, or
        conjugate gradients (exact for a linear head).
    aux_rate : float
        Step size of "scaled" (in units of one over the largest curvature) and "step".
    moving_average : float
        theta of MA-SOBA; 1 is the raw hypergradient.
    average_first : bool
        Whether the moving average includes the new direction before the outer step; in the paper
        it does so after the step.
    head_rate : float, optional
        Learning rate of the head; the network's by default.
    root : {"smooth", "hard"}
        Which fairest threshold: that of the smooth disparity, as in theorem 2, or that of the
        batch's hard disparity, as in the authors' release.
    warm_epochs : int
        Number of initial epochs (at least 100 steps) with the prediction loss only; 0 for none.
    network : Network, optional
        The network and how it is trained.
    calibration : float or None
        Share of the rows that ``fit`` holds out to find the frontier. If None, train on
        all rows and call ``calibrate`` with other rows before predicting.
    recalibrate : None or "group"
        "group" corrects each group's logits with a line first.
    pos_label : label, optional
        Value of the positive class; the one that sorts last by default.
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
        auxiliary system (NaN in the warm start, where ``warm`` is 1), the share of rows between 0
        and the fairest thresholds, those thresholds, Acc_dep of theorem 1, the unconstrained gap.
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
        aux: str = "scaled",
        aux_rate: float = 0.5,
        moving_average: float = 1.0,
        average_first: bool = True,
        head_rate: float | None = None,
        root: str = "smooth",
        warm_epochs: int = 1,
        network: Network | None = None,
        calibration: float | None = 0.2,
        recalibrate: str | None = None,
        pos_label: object = None,
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
        self.aux = aux
        self.aux_rate = aux_rate
        self.moving_average = moving_average
        self.average_first = average_first
        self.head_rate = head_rate
        self.root = root
        self.warm_epochs = warm_epochs
        self.network = network
        self.calibration = calibration
        self.recalibrate = recalibrate
        self.pos_label = pos_label
        self.sensitive_column = sensitive_column
        self.min_count = min_count
        self.warm_start = warm_start
        self.random_state = random_state

    def _fit(
        self, X: object, y: object, sensitive_features: object, **more: Unpack[RowOptions]
    ) -> Self:
        self._check_settings()
        rate = require_compared_rate(self.problem.criterion)
        rows = self._rows_to_fit(X, y, sensitive_features, **more)
        if len(rows.groups) > 2:
            raise InvalidInputError(
                "sensitive_features",
                "hold two groups for GFB",
                given=len(rows.groups),
                hint="FairBayes takes any number.",
            )
        require_torch()
        from fairdial.nn import masoba, steps

        network = chosen_network(self.network, Network())
        weight = self.weight if len(rows.groups) == 2 else 1.0

        def make_step(net: Any, shares: Any, steps_per_epoch: int) -> steps.Step:
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
                weight_decay=network.weight_decay,
                warm_steps=max(self.warm_epochs * steps_per_epoch, MIN_WARM_STEPS)
                if self.warm_epochs
                else 0,
            )

        fit_scorer(self, network, rows, make_step)
        self._warn_if_ineffective()
        return self._calibrate_held_out(rows)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        encodes = (self.network or Network()).encoder is not None
        tags.input_tags.allow_nan = tags.input_tags.string = encodes
        return tags

    def _check_settings(self) -> None:
        check_choice(self.aux, "aux", ("scaled", "step", "solve"))
        check_choice(self.root, "root", ("smooth", "hard"))
        for name, top in (("weight", 1.0), ("moving_average", 1.0), ("aux_rate", np.inf)):
            value = getattr(self, name)
            if not isinstance(value, Real) or not 0 < float(value) <= top:
                raise InvalidInputError(name, f"lie in (0, {top:g}]", given=repr(value))
        if self.head_rate is not None and not (
            isinstance(self.head_rate, Real) and 0 < self.head_rate < np.inf
        ):
            raise InvalidInputError("head_rate", "be positive or None", given=repr(self.head_rate))
        check_count(self.warm_epochs, "warm_epochs", least=0)
        chosen_network(self.network, Network())

    def _warn_if_ineffective(self) -> None:
        """Warn if the bilevel part didn't do what it is meant to do."""
        history = self.history_
        if "warm" not in history or self.weight == 1:  # one group, or plain training
            return
        best = history.loc[self.best_epoch_]
        if best["warm"] == 1:
            warn(
                f"training ended within the warm start ({len(history)} epochs), so this is plain "
                "training; raise `epochs` or lower `warm_epochs`",
                TrainingWarning,
            )
            return
        known = "aux_residual" in history
        residual = history["aux_residual"].median() if known else 0.0
        if residual > DIVERGING:
            warn(
                "the auxiliary variable is far from solving its system (median residual "
                f"{residual:.2f}; 0: solved, 1: no effect). The model is usable, but its bilevel "
                "part didn't work; lower `aux_rate` or set `aux='solve'`",
                TrainingWarning,
            )
        elif residual > INERT and self.aux != "solve":
            warn(
                f"the auxiliary system is inert (median residual {residual:.2f}; 0: solved, 1: no "
                "effect). The model is usable, but its bilevel part did next to nothing: the trunk "
                "followed the direct gradient only; `aux='solve'` solves the system",
                TrainingWarning,
            )
        if "gap" in history and history["warm"].any() and best["warm"] == 0:
            warm = history["gap"][history["warm"] == 1].iloc[-1]
            if best["gap"] < COLLAPSED * warm:
                warn(
                    f"the unconstrained gap collapsed from {warm:.3f} to {best['gap']:.3f}, which "
                    "costs accuracy at every tolerance; raise `weight`",
                    TrainingWarning,
                )


OPPOSITE = {FALSE_NEGATIVE: TRUE_POSITIVE, TRUE_NEGATIVE: FALSE_POSITIVE}  # 1 minus the other


def compared_rate(criterion: Criterion) -> Rate | None:
    """Return the rate that the criterion compares between groups; None if there isn't just one.

    Where it is equal in all groups, its difference is 0, its ratio 1, and its opposite equal too.

    Examples
    --------
    >>> from fairdial import criterion
    >>> from fairdial.estimators.gfb import compared_rate
    >>> compared_rate(criterion("false_negative_rate_parity")).name
    'true_positive_rate'
    >>> compared_rate(criterion("equalized_odds")) is None
    True
    """
    found = {
        OPPOSITE.get(demand.rate, demand.rate)
        for demand in criterion.demands
        if demand.spread in ("difference", "ratio")
    }
    rate = found.pop() if len(found) == 1 else None
    return rate if rate is not None and rate.has_link else None


def require_compared_rate(criterion: Criterion) -> Rate:
    """Return the rate that GFB makes equal; raise if the criterion compares others."""
    rate = compared_rate(criterion)
    if rate is None:
        raise InvalidInputError(
            "criterion",
            "compare one rate of selected rows to train GFB, such as demographic_parity, "
            "equal_opportunity or predictive_equality",
            given=criterion.name,
            hint="Train with criterion='equal_opportunity'; then call "
            f"set_params(criterion={criterion.name!r}) and calibrate.",
        )
    return rate
