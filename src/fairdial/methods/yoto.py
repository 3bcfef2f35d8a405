"""YOTO, You Only Train Once: one net that is told the weight of the gap."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairdial._validation import check_choice, check_count
from fairdial.criteria import Criterion
from fairdial.criteria import criterion as find_criterion
from fairdial.errors import InvalidInputError
from fairdial.methods.base import Floats
from fairdial.methods.families import FamilyClassifier, Measurement
from fairdial.methods.network import (
    Network,
    describe,
    prepare_fit,
    tell_interruption,
    torch_module,
)

GRID = 61  # weights at which the frontier is measured whatever it looks like
FIXED = 8  # weights at which validation rows are looked at
STEPS = 30  # of a bisection, at most


@dataclass(frozen=True)
class Condition:
    """The number that the net is given for a weight of the gap."""

    kind: str
    low: float
    high: float

    def __call__(self, weight: float) -> float:
        """The weight itself, or its logarithm mapped to [-1, 1]."""
        if self.kind == "raw":
            return weight
        low, high = math.log(self.low), math.log(self.high)
        return 2.0 * (math.log(max(weight, self.low)) - low) / (high - low) - 1.0


def bisect_weight(
    gap_of: Callable[[float], float],
    tolerance: float,
    low: float,
    high: float,
    *,
    within: float = 0.0,
    steps: int = STEPS,
) -> tuple[float, bool]:
    """A weight between two whose gap is within the tolerance, as small as bisection finds it.

    Parameters
    ----------
    gap_of : callable
        The gap at a weight; it should fall, but need not.
    tolerance : float
        The largest gap that is wished for.
    low, high : float
        Where to look.
    within : float
        Good enough: a gap that is below the tolerance by no more.
    steps : int
        Halvings of the logarithm, at most.

    Returns
    -------
    weight : float
        ``low`` if that is within the tolerance already, ``high`` if that isn't.
    reached : bool
        Whether the weight's gap is within the tolerance.

    Examples
    --------
    >>> from fairdial.methods.yoto import bisect_weight
    >>> weight, reached = bisect_weight(lambda w: 0.2 / (1.0 + w), 0.1, 1e-6, 10.0)
    >>> round(weight, 6), reached
    (1.0, True)
    """
    if gap_of(low) <= tolerance:
        return low, True
    gap = gap_of(high)
    if gap > tolerance:
        return high, False
    for _ in range(steps):
        if tolerance - gap <= within:
            break
        middle = math.sqrt(low * high)
        found = gap_of(middle)
        if found <= tolerance:
            high, gap = middle, found
        else:
            low = middle
    return high, True


class YOTO(FamilyClassifier):
    """One network that is told how much the gap weighs, for all weights at once.

    The weight lambda of the gap is drawn anew for every batch, and hyper-networks turn it into a
    scale and a shift of every hidden layer (Dosovitskiy and Djolonga, 2020; Taufiq et al., 2024).
    The setting is lambda. After training, the frontier is measured on calibration rows at a grid
    of weights, and by bisection at those that certain tolerances need. Any number of groups.

    Parameters
    ----------
    bounds : (float, float)
        Range of the weight, which is log-uniform.
    condition : {"log", "raw"}
        What the hyper-networks are given: the weight's logarithm mapped to [-1, 1]; or the weight
        as it is, as the authors do (then all weights below about .01 look alike to them, and the
        loose end of the dial is lost).
    film : (int, int)
        Width and number of a hyper-network's hidden layers.
    identity : bool
        Start with a modulation that changes nothing; else at random, as the authors' code does.
    selection : {"fixed", "random"}
        Choose the epoch by the loss on validation rows at 8 fixed weights; or at one that is drawn
        for every epoch, as the paper does.
    targets : int
        Tolerances, evenly spaced from 0 to the loosest setting's gap, for which calibration
        bisects the weight. Other tolerances take the most accurate of all weights that were
        measured.
    criterion : str or Criterion
        "demographic_parity", "equal_opportunity" or "predictive_equality".
    tolerance : float
        Where the dial rests.
    network : Network, optional
        What is trained, and how; the epoch is chosen by the loss, whatever its ``score``.
    calibration : float or None
        Share of the rows that ``fit`` holds out to find the frontier. None: all rows train, and
        ``calibrate`` is called with others before predicting.
    pos_label : label, optional
        The positive label, the one that "selected" means; the greater of the two by default.
    sensitive_column : str, int or list, optional
        Column(s) of X that tell the group.
    min_count : int
        Least number of counted calibration rows in each group.
    random_state : int, RandomState or None
        Of the split, the initial weights, the batches and the weights that are drawn.

    Attributes
    ----------
    frontier_ : Frontier
        The weights, measured on calibration rows. Only those of the grid were fixed beforehand, so
        ``confidence=`` chooses among them.
    search_ : DataFrame
        For each target: the weight that bisection found, its gap, whether the target was reached.
    history_ : DataFrame
        Epoch by epoch: losses, the score, accuracy and gap at both ends on validation rows.
    net_ : torch Module
        The trained network.
    best_epoch_ : int
        The epoch that was kept.

    Examples
    --------
    >>> from fairdial import YOTO, Network
    >>> from fairdial.datasets import make_gaussian
    >>> train, test = make_gaussian(6000, random_state=0).split(random_state=0)
    >>> model = YOTO(network=Network(members=1, epochs=5), random_state=0)
    >>> model = model.fit(train.X, train.y, sensitive_features=train.groups)
    >>> decisions = model.predict(test.X, sensitive_features=test.groups, tolerance=0.5)
    >>> model.frontier_.at(0.5).feasible
    True
    """

    def __init__(
        self,
        *,
        bounds: tuple[float, float] = (1e-6, 10.0),
        condition: str = "log",
        film: tuple[int, int] = (64, 2),
        identity: bool = True,
        selection: str = "fixed",
        targets: int = 10,
        criterion: str | Criterion = "demographic_parity",
        tolerance: float = 0.0,
        network: Network | None = None,
        calibration: float | None = 0.2,
        pos_label: Any = None,
        sensitive_column: Any = None,
        min_count: int = 30,
        random_state: Any = None,
    ) -> None:
        self.bounds = bounds
        self.condition = condition
        self.film = film
        self.identity = identity
        self.selection = selection
        self.targets = targets
        self.criterion = criterion
        self.tolerance = tolerance
        self.network = network
        self.calibration = calibration
        self.pos_label = pos_label
        self.sensitive_column = sensitive_column
        self.min_count = min_count
        self.random_state = random_state

    scorer_: Any

    @staticmethod
    def _default_network() -> Network:
        return Network()

    def _check_settings(self) -> Condition:
        check_choice(self.condition, "condition", ("raw", "log"))
        check_choice(self.selection, "selection", ("fixed", "random"))
        check_count(self.targets, "targets", least=0)
        pair = isinstance(self.bounds, (tuple, list)) and len(self.bounds) == 2
        if not (pair and all(isinstance(b, Real) for b in self.bounds)) or not (
            0 < self.bounds[0] < self.bounds[1] < np.inf
        ):
            raise InvalidInputError(
                f"`bounds` must be two numbers with 0 < lowest < highest, got {self.bounds!r}."
            )
        if not isinstance(self.film, (tuple, list)) or len(self.film) != 2:
            raise InvalidInputError(f"`film` must be a width and a number, got {self.film!r}.")
        for size in self.film:
            check_count(size, "film")
        return Condition(self.condition, float(self.bounds[0]), float(self.bounds[1]))

    def _fit(self, X: Any, y: Any, sensitive_features: Any) -> Self:
        condition = self._check_settings()
        rows = self._rows_to_fit(X, y, sensitive_features)
        selection, scoring = torch_module("selection"), torch_module("scorer")
        tradeoff, fitting = torch_module("tradeoff"), torch_module("fitting")
        network = self._network()
        prepared, seed = prepare_fit(self, network, rows)
        objective = tradeoff.Tradeoff(find_criterion(self.criterion).rates[0], network.gamma)
        width, depth = self.film

        steps = []

        def make_step(net: Any, _: Any, __: int) -> Any:
            step = tradeoff.YOTOStep(
                net,
                objective,
                bounds=(condition.low, condition.high),
                condition=condition,
                rate=network.learning_rate,
                seed=seed + 2,
                weight_decay=network.weight_decay,
            )
            steps.append(step)
            return step

        def score(net: Any, held: Any) -> Any:
            weights = np.geomspace(condition.low, condition.high, FIXED)
            if self.selection == "random":
                weights = np.array(steps[-1].draw()[:1])  # its state is in the checkpoint
            return selection.score_conditions(
                net,
                held,
                objective=objective,
                weights=weights,
                conditions=[condition(float(weight)) for weight in weights],
            )

        fitted = fitting.fit_network(
            network,
            prepared,
            fitting.Recipe(
                make_step,
                score,
                film={"hidden": width, "depth": depth, "identity": bool(self.identity)},
                told=describe(self),
            ),
            seed=seed,
            checkpoint=network.checkpoint,
        )
        tell_interruption(network, fitted)
        self.net_, self.encoder_, self.history_ = fitted.net, prepared.encoder, fitted.history
        self.best_epoch_ = fitted.best_epoch[0]
        self.trained_groups_ = rows.names
        self.scorer_ = scoring.FilmScorer(fitted.net, condition, prepared.encode)
        return self._calibrate_held_out(rows)

    def _settings(
        self, measure: Callable[[float], Measurement]
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """The grid of weights, and those that the targets need."""
        check_count(self.targets, "targets", least=0)
        condition = self.scorer_.condition  # what the net was trained with
        grid = np.geomspace(condition.low, condition.high, GRID)
        if condition.kind == "raw":
            grid = np.append(0.0, grid)  # plain training, as far as the net has learned it
        seen = {float(weight) for weight in grid}

        def gap_of(weight: float) -> float:
            seen.add(weight)
            return measure(weight).gap

        gaps = np.array([gap_of(float(weight)) for weight in grid])
        ends = 1 if condition.kind == "raw" else 0
        step, lines = measure(float(grid[0])).step, []
        for target in np.linspace(0.0, gaps[0], self.targets):
            inside = np.flatnonzero(gaps <= target)
            if len(inside) == 0:
                weight, reached = float(grid[-1]), False
            elif inside[0] <= ends:  # the loose end of the range, or no weight at all
                weight, reached = float(grid[inside[0]]), True
            else:
                low, high = grid[inside[0] - 1 : inside[0] + 1].tolist()
                weight, reached = bisect_weight(gap_of, target, low, high, within=step)
            lines.append((float(target), weight, gap_of(weight), reached))
        self.search_ = pd.DataFrame(lines, columns=["target", "setting", "gap", "reached"])
        settings = np.array(sorted(seen))
        return settings, np.isin(settings, grid)
