"""FairBiNN: fairness layers inside an accurate net, one net for each weight of the gap."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from numbers import Real
from typing import Any, Self

import numpy as np
import pandas as pd

from fairdial._validation import check_choice, check_count
from fairdial.criteria import Criterion
from fairdial.criteria import criterion as find_criterion
from fairdial.errors import DivergedError, InvalidInputError, TrainingWarning, warn
from fairdial.methods.base import Floats
from fairdial.methods.network import Network, torch_module
from fairdial.methods.runs import SettingsClassifier, fit_runs, plain_recipe

PRESETS: dict[str, dict[str, Any]] = {
    # what the authors' code does: gradients aren't cleared between the two steps
    "release": {
        "accumulate": True,
        "fair_optimizer": "adam",
        "fair_rate": None,  # a hundredth of the learning rate
        "eta": (1e-2, 1e2),
    },
    # what the paper says: each part descends its own loss alone
    "bilevel": {
        "accumulate": False,
        "fair_optimizer": "sgd",
        "fair_rate": 1e-5,
        "eta": (1.0, 1e4),
    },
}
RATIO = 100.0  # of the learning rates of the two parts
LOOSE, STRICT = 0.9, 0.25  # of the plain net's gap, that the ends of the grid must span
TIGHT = 0.1  # of it: an end that is stricter by a decade or more is drawn in
SMALL_GAP = 0.01  # of a plain net: nothing to span


class FairBiNN(SettingsClassifier):
    """One network for each weight of the gap, with layers that care for the gap alone.

    The net is partitioned into accuracy layers, fairness layers and accuracy layers again; for
    every batch the fairness layers descend eta times the gap, then the others the prediction loss
    (Jahromi et al., 2024). The setting is eta; every setting is a net of its own. Any number of
    groups.

    Adam doesn't notice the scale of a loss, so eta can only matter where the accuracy layers see
    the gap too (``"release"``, as the authors' code has it) or where the fairness layers descend
    without Adam (``"bilevel"``, as the paper has it). The other combination trains, with a warning.

    Parameters
    ----------
    n_settings : int
        Values of eta, evenly spaced in logarithm.
    preset : {"release", "bilevel"}
        Sets ``accumulate``, ``fair_optimizer``, ``fair_rate`` and ``eta`` where they are None.
    eta : (float, float), optional
        The range: (.01, 100) for "release", (1, 10000) for "bilevel".
    widen : int
        Decades by which either end of the range may be moved, each, so that it spans the trade-off
        on validation rows: the gap from 90% to 25% of a plain net's, and not far beyond (there nets
        decide the same for everybody). For this a plain net and the ends are trained first.
        0: leave the range as it is.
    accumulate : bool, optional
        Whether the accuracy layers' step has the gap's gradient in it.
    fair_optimizer : {"adam", "sgd"}, optional
        Of the fairness layers.
    fair_rate : float, optional
        Their learning rate; a hundredth of the network's for "release", 1e-5 for "bilevel".
    fairness : int, str or list of str, optional
        Which layers care for the gap. Of the library's layers: how many of the trunk's last ones,
        by default two, but not the first. Of a trunk of your own: names of its parts, by default
        its last.
    criterion : str or Criterion
        "demographic_parity", "equal_opportunity" or "predictive_equality".
    tolerance : float
        Where the dial rests.
    network : Network, optional
        What is trained, and how; one member by default. The epoch is chosen by the least
        ``L_acc + eta L_gap`` on validation rows, whatever its ``score``; without ``accumulate``
        eta only scales the fairness layers' steps, so it is taken times the ratio of both rates.
    n_jobs : int
        Processes. In each, settings train side by side in one stack.
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
        Of the split, the initial weights and the batches.

    Attributes
    ----------
    frontier_ : Frontier
        The settings, measured on calibration rows.
    settings_ : (S,) array
        Values of eta.
    spanned_ : DataFrame or None
        What widening looked at: eta (0: a plain net), accuracy and gap on validation rows.
    history_ : DataFrame
        By setting and epoch: losses, accuracy and gap on validation rows, the score.
    best_epoch_ : list of int
        The epoch that was kept, for each setting.

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
        criterion: str | Criterion = "demographic_parity",
        tolerance: float = 0.0,
        network: Network | None = None,
        n_jobs: int = 1,
        calibration: float | None = 0.2,
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

    def _chosen(self) -> dict[str, Any]:
        """The preset's settings, with the user's own over them; checked."""
        check_choice(self.preset, "preset", tuple(PRESETS))
        chosen = dict(PRESETS[self.preset])
        own = {name: getattr(self, name) for name in chosen}
        chosen |= {name: value for name, value in own.items() if value is not None}
        if chosen["fair_rate"] is None:
            chosen["fair_rate"] = self._network().learning_rate / RATIO
        check_choice(chosen["fair_optimizer"], "fair_optimizer", ("adam", "sgd"))
        rate = chosen["fair_rate"]
        if not isinstance(rate, Real) or not 0 < float(rate) < np.inf:
            raise InvalidInputError(f"`fair_rate` must be positive, got {self.fair_rate!r}.")
        ends = np.asarray(chosen["eta"], np.float64) if np.ndim(chosen["eta"]) == 1 else None
        if ends is None or len(ends) != 2 or not 0 < ends[0] < ends[1] < np.inf:
            raise InvalidInputError(
                f"`eta` must be two numbers with 0 < lowest < highest, got {self.eta!r}."
            )
        check_count(self.widen, "widen", least=0)
        if not isinstance(chosen["accumulate"], (bool, np.bool_)):
            raise InvalidInputError(f"`accumulate` must be True or False, got {self.accumulate!r}.")
        return chosen

    def _fit(self, X: Any, y: Any, sensitive_features: Any) -> Self:
        chosen = self._chosen()
        count = check_count(self.n_settings, "n_settings")
        if not chosen["accumulate"] and chosen["fair_optimizer"] == "adam":
            warn(
                "eta can't matter: Adam doesn't notice the scale of the gap, and the accuracy "
                "layers don't see it; all settings will be the same net. Take accumulate=True or "
                "fair_optimizer='sgd'",
                TrainingWarning,
            )
        rows = self._rows_to_fit(X, y, sensitive_features)
        partition, selection = torch_module("partition"), torch_module("selection")
        tradeoff, fitting = torch_module("tradeoff"), torch_module("fitting")
        network = self._network()
        objective = tradeoff.Tradeoff(find_criterion(self.criterion).rates[0], network.gamma)

        scale = 1.0 if chosen["accumulate"] else chosen["fair_rate"] / network.learning_rate

        def recipe(etas: Floats) -> Any:
            if len(rows.names) == 1:
                return plain_recipe(network, objective)
            return fitting.Recipe(
                lambda net, _, __: tradeoff.FairBiNNStep(
                    net,
                    objective,
                    etas=etas,
                    fairness=partition.fairness_names(net, self.fairness),
                    rate=network.learning_rate,
                    fair_rate=chosen["fair_rate"],
                    fair_optimizer=chosen["fair_optimizer"],
                    accumulate=chosen["accumulate"],
                    weight_decay=network.weight_decay,
                ),
                partial(
                    selection.score_weighted,
                    objective=objective,
                    weights=np.column_stack((np.ones(len(etas)), scale * etas)),
                ),
                runs=len(etas),
            )

        def choose(prepared: Any, seed: int) -> Floats:
            low, high = (float(end) for end in chosen["eta"])
            self.spanned_ = None
            if self.widen and len(rows.names) > 1 and count > 1:
                low, high = self._span(prepared, seed, recipe, objective, (low, high))
            return np.geomspace(low, high, count) if count > 1 else np.array([(low * high) ** 0.5])

        return self._fit_settings(rows, recipe, choose)

    def _span(
        self, prepared: Any, seed: int, recipe: Any, objective: Any, ends: tuple[float, float]
    ) -> tuple[float, float]:
        """Move the ends of the range by decades until it spans the trade-off (validation rows)."""
        network = self._network()
        seen: list[dict[str, float]] = []

        def gaps(settings: list[float], how: Any) -> list[float]:
            etas = np.array(settings)
            _, history, best = fit_runs(
                self,
                network,
                prepared,
                how,
                etas,
                seed=seed,
                n_jobs=min(self.n_jobs, len(etas)),
                folder=f"span{len(seen)}",
            )
            lines = [history.loc[(eta, epoch)] for eta, epoch in zip(etas, best, strict=True)]
            for eta, line in zip(settings, lines, strict=True):
                seen.append({"eta": eta, "accuracy": line["accuracy"], "gap": line["gap"]})
            return [float(line["gap"]) for line in lines]

        plain = gaps([0.0], lambda _: plain_recipe(network, objective))[0]
        low, high = ends
        loose, strict = gaps([low, high], recipe)
        if plain > SMALL_GAP:
            low, loose = self._loosen(low, loose, plain, lambda eta: gaps([eta], recipe)[0])
            high, strict = self._tighten(
                low, high, strict, plain, lambda eta: gaps([eta], recipe)[0]
            )
            if loose < LOOSE * plain or strict > STRICT * plain:
                warn(
                    f"etas from {low:g} to {high:g} don't span the trade-off on validation rows: "
                    f"the gap goes from {loose:.3f} to {strict:.3f}, a plain net's is {plain:.3f}; "
                    "set `eta`, or raise `widen`",
                    TrainingWarning,
                )
        self.spanned_ = pd.DataFrame(seen)
        return low, high

    def _loosen(
        self, low: float, loose: float, plain: float, gap_of: Callable[[float], float]
    ) -> tuple[float, float]:
        """The loose end, a decade lower as long as that brings its gap nearer to a plain net's."""
        for _ in range(self.widen):
            if loose >= LOOSE * plain:
                break
            found = gap_of(low / 10.0)
            if found <= loose:  # a smaller eta doesn't help
                break
            low, loose = low / 10.0, found
        return low, loose

    def _tighten(
        self, low: float, high: float, strict: float, plain: float, gap_of: Callable[[float], float]
    ) -> tuple[float, float]:
        """The strict end: further out until its gap is small enough, or in while it stays small.

        Beyond it the nets only become more alike, down to deciding the same for everybody.
        """
        inward = strict <= TIGHT * plain
        if not inward and strict <= STRICT * plain:
            return high, strict
        for _ in range(self.widen):
            further = high / 10.0 if inward else high * 10.0
            if inward and further <= low * 10.0:
                break
            try:
                found = gap_of(further)
            except DivergedError:
                break
            if inward and found > TIGHT * plain:
                break
            high, strict = further, found
            if not inward and strict <= STRICT * plain:
                break
        return high, strict
