"""GFB, Guidance to Fairest-Boundary: the paper's method."""

from __future__ import annotations

from numbers import Real
from typing import Any, Self

import numpy as np

from fairdial._validation import check_choice, check_count
from fairdial.criteria import Criterion
from fairdial.criteria import criterion as find_criterion
from fairdial.errors import InvalidInputError, TrainingWarning, warn
from fairdial.methods.network import Network, chosen_network, fit_scorer, torch_module
from fairdial.methods.thresholds import ThresholdClassifier

# Of the residual's median over the epochs: each is one batch's, and those of small data jump.
WILD = 1.5  # above: w is running away, not inert
INERT = 0.95  # above: the auxiliary system isn't being solved
WARM_STEPS = 100  # at least, where there is a warm start at all
COLLAPSED = 0.5  # of the unconstrained gap after the warm start


class GFB(ThresholdClassifier):  # eq:bilevel_optim, alg:proposed; weight: lambda of eq:l_gen
    """A network whose representation is learned for the dial.

    Trunk g and head z are trained as a bilevel problem: the head minimises the prediction loss; the
    trunk, anticipating the head, also draws logits towards the fairest threshold, so that accuracy
    comes back quickly when the tolerance is relaxed. The three directions of MA-SOBA come from one
    forward and one backward. Two groups.

    Parameters
    ----------
    criterion : str or Criterion
        "demographic_parity", "equal_opportunity" or "predictive_equality".
    tolerance : float
        Where the dial rests.
    weight : float
        The paper's lambda: the share of the prediction loss in the trunk's objective; 1 is plain
        training.
    aux : {"scaled", "step", "solve"}
        How the auxiliary system H w = grad L_gen is treated. "step": the paper's plain step.
        "scaled" and "solve" take the positive semi-definite part of H and the distance loss alone
        (the rest is zero at the head's optimum): steps scaled by the largest curvature, or
        conjugate gradients (exact for a linear head).
    aux_rate : float
        Step of "scaled" (in units of one over the largest curvature) and "step".
    moving_average : float
        theta of MA-SOBA; 1 is the raw hypergradient.
    average_first : bool
        Whether the moving average takes the new direction in before the outer step; the paper:
        after.
    head_rate : float, optional
        Learning rate of the head; the network's by default.
    root : {"smooth", "hard"}
        Which fairest setting: of the smooth disparity, as theorem 2 has it; or of the batch's hard
        one, as in the authors' release.
    warm_epochs : int
        First so many epochs (and at least 100 steps) with the prediction loss alone; 0: none.
    network : Network, optional
        What is trained, and how.
    calibration : float or None
        Share of the rows that ``fit`` holds out to find the frontier. None: all rows train, and
        ``calibrate`` is called with others before predicting.
    recalibrate : None or "group"
        Correct each group's logits by a line first.
    pos_label : label, optional
        The positive label, the one that "selected" means; the greater of the two by default.
    sensitive_column : str, int or list, optional
        Column(s) of X that tell the group.
    min_count : int
        Least number of counted calibration rows in each group.
    warm_start : bool
        Go on from the last fit's weights.
    random_state : int, RandomState or None
        Of the split, the initial weights and the batches; the same number on the same machine
        gives the same bits.

    Attributes
    ----------
    frontier_ : Frontier
        Every position of the dial.
    history_ : DataFrame
        Epoch by epoch: losses, ``score`` and hypervolume on validation rows, the residual of the
        auxiliary system (NaN in the warm start, where ``warm`` is 1), the share of rows between 0
        and the fairest thresholds, those thresholds, Acc_dep of theorem 1, the unconstrained gap.
    net_ : torch Module
        The trained network.
    encoder_ : Encoder or None
        How rows become its inputs.

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
        criterion: str | Criterion = "demographic_parity",
        tolerance: float = 0.0,
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
        pos_label: Any = None,
        sensitive_column: Any = None,
        min_count: int = 30,
        warm_start: bool = False,
        random_state: Any = None,
    ) -> None:
        self.criterion = criterion
        self.tolerance = tolerance
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

    def _fit(self, X: Any, y: Any, sensitive_features: Any) -> Self:
        self._check_settings()
        rows = self._rows_to_fit(X, y, sensitive_features)
        if len(rows.names) > 2:
            raise InvalidInputError(
                f"`sensitive_features` must hold two groups for GFB, got {len(rows.names)}; "
                "FairBayes takes any number."
            )
        steps, masoba = torch_module("steps"), torch_module("masoba")
        network = chosen_network(self.network, Network())
        rate = find_criterion(self.criterion).rates[0]
        weight = self.weight if len(rows.names) == 2 else 1.0

        def make_step(net: Any, shares: Any, steps_per_epoch: int) -> Any:
            objective = masoba.Objective(
                rate, shares, weight=weight, gamma=network.gamma, hard=self.root == "hard"
            )
            if len(rows.names) == 1:
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
                warm_steps=max(self.warm_epochs * steps_per_epoch, WARM_STEPS)
                if self.warm_epochs
                else 0,
            )

        fit_scorer(self, network, rows, make_step)
        self._warn_of_its_workings()
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
                raise InvalidInputError(f"`{name}` must lie in (0, {top:g}], got {value!r}.")
        if self.head_rate is not None and not (
            isinstance(self.head_rate, Real) and 0 < self.head_rate < np.inf
        ):
            raise InvalidInputError(
                f"`head_rate` must be positive or None, got {self.head_rate!r}."
            )
        check_count(self.warm_epochs, "warm_epochs", least=0)
        chosen_network(self.network, Network())

    def _warn_of_its_workings(self) -> None:
        """Say when the method isn't doing what it is meant to do."""
        history = self.history_
        if "warm" not in history or self.weight == 1:  # one group, or plain training
            return
        best = history.loc[self.best_epoch_]
        if best["warm"] == 1:
            warn(
                f"training ended within the warm start ({len(history)} epochs): this is plain "
                "training; raise `epochs` or lower `warm_epochs`",
                TrainingWarning,
            )
            return
        known = "aux_residual" in history  # not of a head of the user's
        off = history["aux_residual"].median() if known else 0.0
        if off > WILD:
            warn(
                "the auxiliary variable is far from solving its system (median residual "
                f"{off:.2f}; 0: solved, 1: as if it weren't there). The model can be used, but its "
                "bilevel part didn't work as it is meant to: lower `aux_rate`, or take aux='solve'",
                TrainingWarning,
            )
        elif off > INERT and self.aux != "solve":
            warn(
                f"the auxiliary system is inert (median residual {off:.2f}; 0: solved, 1: as if it "
                "weren't there). The model can be used, but its bilevel part did next to nothing: "
                "the trunk followed the direct gradient alone; aux='solve' solves the system",
                TrainingWarning,
            )
        if "gap" in history and history["warm"].any() and best["warm"] == 0:
            warm = history["gap"][history["warm"] == 1].iloc[-1]
            if best["gap"] < COLLAPSED * warm:
                warn(
                    f"the dial has collapsed: the unconstrained gap fell from {warm:.3f} to "
                    f"{best['gap']:.3f}, which gives accuracy away at every tolerance; raise "
                    "`weight`",
                    TrainingWarning,
                )
