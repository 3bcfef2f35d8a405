"""FairBiNN: fairness layers inside an accurate network, one network for each weight of the gap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

import numpy as np
import pandas as pd

from fairdial._arrays import Floats
from fairdial._validation import check_choice, check_count
from fairdial.core.criteria import Given
from fairdial.errors import DivergedError, InvalidInputError, TrainingWarning, require_torch, warn
from fairdial.estimators.network import describe
from fairdial.estimators.rows import RowOptions
from fairdial.nn.network import Network
from fairdial.paper.family import Runs, SettingsClassifier, plain_method

if TYPE_CHECKING:
    from fairdial.nn.data import TrainingData
    from fairdial.nn.fit import Method
    from fairdial.nn.tradeoff import Tradeoff
    from fairdial.paper.family import MakeMethod

PRESETS: dict[str, dict[str, Any]] = {
    # as in the authors' code, which doesn't clear gradients between the two steps
    "release": {
        "accumulate": True,
        "fair_optimizer": "adam",
        "fair_rate": None,  # a hundredth of the learning rate
        "eta": (1e-2, 1e2),
    },
    # as in the paper: each part descends its own loss only
    "bilevel": {
        "accumulate": False,
        "fair_optimizer": "sgd",
        "fair_rate": 1e-5,
        "eta": (1.0, 1e4),
    },
}
RATIO = 100.0  # between the learning rates of the two parts
LOOSE, STRICT = 0.9, 0.25  # shares of the plain network's gap that the grid must span
TIGHT = 0.1  # share below which a strict end is moved inward
SMALL_GAP = 0.01  # plain gap below which there is nothing to span


class FairBiNN(SettingsClassifier):
    """One network for each weight of the gap, with layers that minimize the gap only.

    The network is partitioned into accuracy layers, fairness layers and accuracy layers again. On
    every batch the fairness layers descend eta times the gap, then the others the prediction loss
    (Jahromi et al., 2024). The setting is eta; every setting has its own network. Works with any
    number of groups.

    Adam ignores the scale of a loss, so eta can only matter if the accuracy layers see the gap too
    (``"release"``, as in the authors' code) or if the fairness layers descend without Adam
    (``"bilevel"``, as in the paper). Other combinations train, with a warning.

    Parameters
    ----------
    n_settings : int
        Number of values of eta, evenly spaced in logarithm.
    preset : {"release", "bilevel"}
        Sets ``accumulate``, ``fair_optimizer``, ``fair_rate`` and ``eta`` where they are None.
    eta : (float, float), optional
        The range: (0.01, 100) for "release", (1, 10000) for "bilevel".
    widen : int
        Number of decades by which each end of the range may be moved so that it spans the trade-off
        on validation rows: gaps from 90% to 25% of a plain network's, and not far beyond, where
        networks make the same decision for everybody. For this, a plain network and the ends are
        trained first. 0: keep the range.
    accumulate : bool, optional
        Whether the accuracy layers' step includes the gap's gradient.
    fair_optimizer : {"adam", "sgd"}, optional
        Optimizer of the fairness layers.
    fair_rate : float, optional
        Their learning rate; a hundredth of the network's for "release", 1e-5 for "bilevel".
    fairness : int, str or list of str, optional
        Which layers minimize the gap. For the library's layers: how many of the trunk's last ones,
        by default two, but not the first. For your own trunk: names of its parts, by default its
        last.
    criterion : str, Criterion, list or mapping
        "demographic_parity", "equal_opportunity", "predictive_equality", "equalized_odds" or
        another combination of differences; see :func:`fairdial.criterion`.
    tolerance : float
        The default tolerance; 0 is the one that the criterion declares, if it does.
    network : Network, optional
        What is trained, and how; one member by default. The epoch is selected by the smallest
        ``L_acc + eta L_gap`` on validation rows, whatever its ``score``. Without ``accumulate``,
        eta only scales the fairness layers' steps, so it is multiplied by the ratio of both rates.
    n_jobs : int
        Number of processes. In each, settings train side by side in one stack.
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
        Seed of the split, the initial weights and the batches.

    Attributes
    ----------
    frontier_ : Frontier
        The settings, measured on calibration rows.
    settings_ : (S,) array
        Values of eta.
    spanned_ : DataFrame or None
        What widening tried: eta (0: a plain network), accuracy and gap on validation rows.
    history_ : DataFrame
        By setting and epoch: losses, accuracy and gap on validation rows, the score.
    best_epoch_ : list of int
        The selected epoch of each setting.

    Examples
    --------
    >>> from fairdial import FairBiNN, Network
    >>> from fairdial.datasets import make_gaussian
    >>> train, test = make_gaussian(6000, random_state=0).split(random_state=0)
    >>> model = FairBiNN(3, widen=0, network=Network(members=1, epochs=5), random_state=0)
    >>> model = model.fit(train.X, train.y, sensitive_features=train.groups)
    >>> decisions = model.predict(test.X, sensitive_features=test.groups, tolerance=0.5)
    >>> model.settings_
    array([1.e-02, 1.e+00, 1.e+02])
    """

    def __init__(
        self,
        n_settings: int = 10,
        *,
        preset: str = "release",
        eta: tuple[float, float] | None = None,
        widen: int = 2,
        accumulate: bool | None = None,
        fair_optimizer: str | None = None,
        fair_rate: float | None = None,
        fairness: int | str | list[str] | None = None,
        criterion: Given = "demographic_parity",
        tolerance: float | None = 0.0,
        network: Network | None = None,
        n_jobs: int = 1,
        calibration: float | Literal["auto"] | None = 0.2,
        pos_label: Any = None,
        sensitive_column: Any = None,
        min_count: int = 30,
        random_state: Any = None,
    ) -> None:
        self.n_settings = n_settings
        self.preset = preset
        self.eta = eta
        self.widen = widen
        self.accumulate = accumulate
        self.fair_optimizer = fair_optimizer
        self.fair_rate = fair_rate
        self.fairness = fairness
        self.criterion = criterion
        self.tolerance = tolerance
        self.network = network
        self.n_jobs = n_jobs
        self.calibration = calibration
        self.pos_label = pos_label
        self.sensitive_column = sensitive_column
        self.min_count = min_count
        self.random_state = random_state

    def _check_settings(self) -> dict[str, Any]:
        """Return the preset's settings, overridden by the user's own; checked."""
        check_choice(self.preset, "preset", tuple(PRESETS))
        chosen = dict(PRESETS[self.preset])
        own = {name: getattr(self, name) for name in chosen}
        chosen |= {name: value for name, value in own.items() if value is not None}
        if chosen["fair_rate"] is None:
            chosen["fair_rate"] = self._network().learning_rate / RATIO
        check_choice(chosen["fair_optimizer"], "fair_optimizer", ("adam", "sgd"))
        rate = chosen["fair_rate"]
        if not isinstance(rate, Real) or not 0 < float(rate) < np.inf:
            raise InvalidInputError("fair_rate", "be positive", given=repr(self.fair_rate))
        ends = np.asarray(chosen["eta"], np.float64) if np.ndim(chosen["eta"]) == 1 else None
        if ends is None or len(ends) != 2 or not 0 < ends[0] < ends[1] < np.inf:
            raise InvalidInputError(
                "eta", "be two numbers with 0 < lowest < highest", given=repr(self.eta)
            )
        check_count(self.widen, "widen", least=0)
        if not isinstance(chosen["accumulate"], (bool, np.bool_)):
            raise InvalidInputError("accumulate", "be True or False", given=repr(self.accumulate))
        return chosen

    def _fit(self, X: Any, y: Any, sensitive_features: Any, **more: Unpack[RowOptions]) -> Self:
        chosen = self._check_settings()
        count = check_count(self.n_settings, "n_settings")
        if not chosen["accumulate"] and chosen["fair_optimizer"] == "adam":
            warn(
                "eta has no effect: Adam ignores the scale of the gap, and the accuracy layers "
                "don't see it, so all settings give the same network. Use `accumulate=True` or "
                "`fair_optimizer='sgd'`",
                TrainingWarning,
            )
        rows = self._rows_to_fit(X, y, sensitive_features, **more)
        require_torch()
        from fairdial.nn.fit import Method
        from fairdial.nn.partition import fairness_names
        from fairdial.nn.selection import score_weighted
        from fairdial.nn.tradeoff import FairBiNNStep, Tradeoff

        network, n_groups = self._network(), len(rows.groups)
        objective = Tradeoff(rows.criterion, network.gamma)
        scale = 1.0 if chosen["accumulate"] else chosen["fair_rate"] / network.learning_rate

        def make_method(etas: Floats) -> Method:
            if n_groups == 1:
                return plain_method(network, objective)
            return Method(
                lambda net, _, __: FairBiNNStep(
                    net,
                    objective,
                    etas=etas,
                    fairness=fairness_names(net, self.fairness),
                    rate=network.learning_rate,
                    fair_rate=chosen["fair_rate"],
                    fair_optimizer=chosen["fair_optimizer"],
                    accumulate=chosen["accumulate"],
                    weight_decay=network.weight_decay,
                ),
                partial(
                    score_weighted,
                    objective=objective,
                    weights=np.column_stack((np.ones(len(etas)), scale * etas)),
                ),
                runs=len(etas),
            )

        def choose(data: TrainingData, seed: int) -> Floats:
            low, high = (float(end) for end in chosen["eta"])
            self.spanned_ = None
            if self.widen and n_groups > 1 and count > 1:
                runs = Runs(describe(self), network, data, seed)
                search = RangeSearch(runs, make_method, objective, self.widen, self.n_jobs)
                low, high = search.span(low, high)
                self.spanned_ = pd.DataFrame(search.tried)
            return np.geomspace(low, high, count) if count > 1 else np.array([(low * high) ** 0.5])

        return self._fit_settings(rows, make_method, choose)


@dataclass
class RangeSearch:
    """Moves the ends of a range of eta until it spans the trade-off on validation rows."""

    runs: Runs
    make_method: MakeMethod
    objective: Tradeoff
    decades: int  # by which each end may be moved
    n_jobs: int = 1
    tried: list[dict[str, float]] = field(default_factory=list)

    def span(self, low: float, high: float) -> tuple[float, float]:
        """Return the range, moved by decades."""
        plain = self._gaps([0.0], lambda _: plain_method(self.runs.network, self.objective))[0]
        loose, strict = self._gaps([low, high], self.make_method)
        if plain > SMALL_GAP:
            low, loose = self._loosen(low, loose, plain)
            high, strict = self._tighten(low, high, strict, plain)
            if loose < LOOSE * plain or strict > STRICT * plain:
                warn(
                    f"etas from {low:g} to {high:g} don't span the trade-off on validation rows: "
                    f"the gap goes from {loose:.3f} to {strict:.3f}, but a plain network's is "
                    f"{plain:.3f}; set `eta`, or raise `widen`",
                    TrainingWarning,
                )
        return low, high

    def _gaps(self, etas: list[float], make_method: Callable[[Floats], Method]) -> list[float]:
        """Train a network for each eta; return the gaps on validation rows."""
        _, history, best = self.runs.fit(
            make_method,
            np.array(etas),
            n_jobs=min(self.n_jobs, len(etas)),
            folder=f"span{len(self.tried)}",
        )
        lines = [history.loc[(eta, epoch)] for eta, epoch in zip(etas, best, strict=True)]
        for eta, line in zip(etas, lines, strict=True):
            self.tried.append({"eta": eta, "accuracy": line["accuracy"], "gap": line["gap"]})
        return [float(line["gap"]) for line in lines]

    def _gap(self, eta: float) -> float:
        return self._gaps([eta], self.make_method)[0]

    def _loosen(self, low: float, loose: float, plain: float) -> tuple[float, float]:
        """Lower the loose end while that brings its gap closer to a plain network's."""
        for _ in range(self.decades):
            if loose >= LOOSE * plain:
                break
            gap = self._gap(low / 10.0)
            if gap <= loose:  # a smaller eta doesn't help
                break
            low, loose = low / 10.0, gap
        return low, loose

    def _tighten(self, low: float, high: float, strict: float, plain: float) -> tuple[float, float]:
        """Raise the strict end until its gap is small enough, or lower it while it stays small.

        Beyond it, networks only become more alike and finally make one decision for everybody.
        """
        inward = strict <= TIGHT * plain
        if not inward and strict <= STRICT * plain:
            return high, strict
        for _ in range(self.decades):
            further = high / 10.0 if inward else high * 10.0
            if inward and further <= low * 10.0:
                break
            try:
                gap = self._gap(further)
            except DivergedError:
                break
            if inward and gap > TIGHT * plain:
                break
            high, strict = further, gap
            if not inward and strict <= STRICT * plain:
                break
        return high, strict
