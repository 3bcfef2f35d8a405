"""YOTO, You Only Train Once: one network that takes the weight of the gap as an input."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

import numpy as np
import pandas as pd

from fairdial._arrays import Floats, Mask
from fairdial._validation import check_choice, check_count
from fairdial.core.criteria import Given
from fairdial.errors import InvalidInputError
from fairdial.estimators.families import Measurement
from fairdial.estimators.network import (
    describe,
    prepare_data,
    report_interruption,
    report_training,
)
from fairdial.estimators.rows import RowOptions
from fairdial.nn.network import Network
from fairdial.paper.family import NetworkFamily

if TYPE_CHECKING:
    from fairdial.nn.data import TrainingData
    from fairdial.nn.nets import DialNet
    from fairdial.nn.process_group import ProcessGroup
    from fairdial.nn.scorer import FilmScorer
    from fairdial.nn.tradeoff import YOTOStep

GRID = 61  # weights at which the frontier is always measured
FIXED = 8  # weights at which validation rows are scored
STEPS = 30  # maximum, of a bisection


@dataclass(frozen=True)
class Condition:
    """The number that the network gets for a weight of the gap."""

    kind: str
    low: float
    high: float

    def __call__(self, weight: float) -> float:
        """Return the weight itself, or its logarithm mapped to [-1, 1]."""
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
    """Return a weight whose gap is within the tolerance, as small as bisection finds it.

    Parameters
    ----------
    gap_of : callable
        The gap at a weight; it should fall, but need not.
    tolerance : float
        The largest gap allowed.
    low, high : float
        Where to search.
    within : float
        Stop once the gap is below the tolerance by no more than this.
    steps : int
        Maximum number of halvings, in logarithm.

    Returns
    -------
    weight : float
        ``low`` if that is within the tolerance already, ``high`` if that isn't.
    reached : bool
        Whether the weight's gap is within the tolerance.

    Examples
    --------
    >>> from fairdial.paper.yoto import bisect_weight
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


class YOTO(NetworkFamily):
    """One network that takes the weight of the gap as an input, for all weights at once.

    The weight lambda of the gap is drawn anew for every batch, and hyper-networks turn it into a
    scale and a shift for every hidden layer (Dosovitskiy and Djolonga, 2020; Taufiq et al., 2024).
    The setting is lambda. After training, the frontier is measured on calibration rows at a grid
    of weights, and by bisection at those that certain tolerances need. Works with any number of
    groups.

    Parameters
    ----------
    bounds : (float, float)
        Range of the weight, which is log-uniform.
    condition : {"log", "raw"}
        What the hyper-networks get: the weight's logarithm mapped to [-1, 1]; or the weight itself,
        as in the authors' code (then all weights below about 0.01 look alike to them, and the loose
        end of the dial is lost).
    film : (int, int)
        Width and number of a hyper-network's hidden layers.
    identity : bool
        Start with a modulation that changes nothing; otherwise at random, as in the authors' code.
    selection : {"fixed", "random"}
        Select the epoch by the loss on validation rows at 8 fixed weights, or at one that is drawn
        for every epoch, as in the paper.
    targets : int
        Number of tolerances, evenly spaced from 0 to the loosest setting's gap, for which
        calibration bisects the weight. Other tolerances use the most accurate of all weights that
        were measured.
    criterion : str, Criterion, list or mapping
        "demographic_parity", "equal_opportunity", "predictive_equality", "equalized_odds" or
        another combination of differences; see :func:`fairdial.criterion`.
    tolerance : float
        The default tolerance; 0 is the one that the criterion declares, if it does.
    network : Network, optional
        What is trained, and how; the epoch is selected by the loss, whatever its ``score``.
    calibration : float, "auto" or None
        Share of the rows that ``fit`` holds out to find the frontier. "auto" holds out what
        certifying ``tolerance`` with confidence 0.95 is likely to need. If None, train on all rows
        and call ``calibrate`` with other rows before predicting.
    pos_label : label, optional
        Value of the positive class; the one that sorts last by default.
    sensitive_column : str, int or list, optional
        Column(s) of X that hold the group.
    min_count : int
        Minimum number of eligible calibration rows in each group.
    random_state : int, RandomState or None
        Seed of the split, the initial weights, the batches and the weights that are drawn.

    Attributes
    ----------
    frontier_ : Frontier
        The weights, measured on calibration rows. Only those of the grid were fixed beforehand, so
        ``confidence=`` chooses among them.
    search_ : DataFrame
        For each target: the weight that bisection found, its gap, whether the target was reached.
    history_ : DataFrame
        By epoch: losses, the score, accuracy and gap at both ends on validation rows.
    net_ : torch Module
        The trained network.
    best_epoch_ : int
        The selected epoch.

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
        criterion: Given = "demographic_parity",
        tolerance: float | None = 0.0,
        network: Network | None = None,
        calibration: float | Literal["auto"] | None = 0.2,
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

    scorer_: FilmScorer

    def _check_settings(self) -> Condition:
        check_choice(self.condition, "condition", ("raw", "log"))
        check_choice(self.selection, "selection", ("fixed", "random"))
        check_count(self.targets, "targets", least=0)
        pair = isinstance(self.bounds, (tuple, list)) and len(self.bounds) == 2
        if not (pair and all(isinstance(b, Real) for b in self.bounds)) or not (
            0 < self.bounds[0] < self.bounds[1] < np.inf
        ):
            raise InvalidInputError(
                "bounds", "be two numbers with 0 < lowest < highest", given=repr(self.bounds)
            )
        if not isinstance(self.film, (tuple, list)) or len(self.film) != 2:
            raise InvalidInputError("film", "be a width and a number", given=repr(self.film))
        for size in self.film:
            check_count(size, "film")
        return Condition(self.condition, float(self.bounds[0]), float(self.bounds[1]))

    def _fit(self, X: Any, y: Any, sensitive_features: Any, **more: Unpack[RowOptions]) -> Self:
        condition = self._check_settings()
        rows = self._rows_to_fit(X, y, sensitive_features, **more)
        network = self._network()
        data, seed = prepare_data(self, network, rows)
        from fairdial.nn.fit import Method, fit_network
        from fairdial.nn.scorer import FilmScorer
        from fairdial.nn.selection import score_conditions
        from fairdial.nn.tradeoff import Tradeoff, YOTOStep

        objective = Tradeoff(rows.criterion, network.gamma)
        width, depth = self.film
        steps: list[YOTOStep] = []

        def make_step(net: DialNet, _: Floats, __: int) -> YOTOStep:
            step = YOTOStep(
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

        def score(net: DialNet, data: TrainingData, processes: ProcessGroup) -> dict[str, float]:
            weights = np.geomspace(condition.low, condition.high, FIXED)
            if self.selection == "random":
                weights = np.array(steps[-1].draw()[:1])  # its state is in the checkpoint
            return score_conditions(
                net,
                data,
                processes,
                objective=objective,
                weights=weights,
                conditions=[condition(float(weight)) for weight in weights],
            )

        fitted = fit_network(
            network,
            data,
            Method(
                make_step,
                score,
                film={"hidden": width, "depth": depth, "identity": bool(self.identity)},
                description=describe(self),
            ),
            seed=seed,
            checkpoint=None if network.checkpoint is None else Path(network.checkpoint),
        )
        report_interruption(network, fitted)
        report_training(self, network, data, fitted.history, fitted.best_epoch[0])
        self.net_, self.encoder_, self.history_ = fitted.net, data.encode.encoder, fitted.history
        self.best_epoch_ = fitted.best_epoch[0]
        self.trained_groups_ = rows.groups
        self.scorer_ = FilmScorer(fitted.net, condition, data.encode)
        return self._calibrate_held_out(rows)

    def _settings(self, measure: Callable[[float], Measurement]) -> tuple[Floats, Mask]:
        """Return the grid of weights and those that the targets need; the grid is declared."""
        check_count(self.targets, "targets", least=0)
        condition = self.scorer_.condition  # what the network was trained with
        assert isinstance(condition, Condition)
        grid = np.geomspace(condition.low, condition.high, GRID)
        if condition.kind == "raw":
            grid = np.append(0.0, grid)  # plain training, as far as the network has learned it
        seen = {float(weight) for weight in grid}

        def gap_of(weight: float) -> float:
            seen.add(weight)
            return measure(weight).gap

        gaps = np.array([gap_of(float(weight)) for weight in grid])
        loose_end = 1 if condition.kind == "raw" else 0
        step, lines = measure(float(grid[0])).step, []
        for target in np.linspace(0.0, gaps[0], self.targets):
            inside = np.flatnonzero(gaps <= target)
            if len(inside) == 0:
                weight, reached = float(grid[-1]), False
            elif inside[0] <= loose_end:  # the loose end of the range, or no weight at all
                weight, reached = float(grid[inside[0]]), True
            else:
                low, high = grid[inside[0] - 1 : inside[0] + 1].tolist()
                weight, reached = bisect_weight(gap_of, target, low, high, within=step)
            lines.append((float(target), weight, gap_of(weight), reached))
        self.search_ = pd.DataFrame(lines, columns=["target", "setting", "gap", "reached"])
        settings = np.array(sorted(seen))
        return settings, np.isin(settings, grid)
