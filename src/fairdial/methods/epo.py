"""EPO, Exact Pareto Optimal search: one net for each proportion of the two losses."""

from __future__ import annotations

from functools import partial
from numbers import Real
from typing import Any, Self

import numpy as np

from fairdial._validation import check_count
from fairdial.criteria import Criterion
from fairdial.criteria import criterion as find_criterion
from fairdial.errors import InvalidInputError
from fairdial.methods.base import Floats
from fairdial.methods.network import Network, torch_module
from fairdial.methods.runs import SettingsClassifier, plain_recipe


class EPO(SettingsClassifier):
    """One network for each of several proportions of prediction loss and gap.

    Each net searches the Pareto optimum at which its reference vector's loss is balanced,
    ``v_acc L_acc = v_gap L_gap``: first towards the balance, even if a loss rises, then down
    along it (Mahapatra and Rajan, 2020). The setting is the angle of the reference vector, from
    accuracy (0) to the gap (pi/2). Every setting is a net of its own: the dial chooses among
    ``n_settings`` nets, and cannot reach between them. Any number of groups.

    Parameters
    ----------
    n_settings : int
        Reference vectors, evenly spaced in angle.
    criterion : str or Criterion
        "demographic_parity", "equal_opportunity" or "predictive_equality".
    tolerance : float
        Where the dial rests.
    restricted : bool
        Whether descent may not disturb the balance.
    offset : float
        How far the outermost vectors stay from the axes, as a share of the right angle: on the
        axes the search is undefined.
    network : Network, optional
        What is trained, and how; one member by default. The epoch is chosen by the least weighted
        loss on validation rows, whatever its ``score``.
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
        Angles.
    history_ : DataFrame
        By setting and epoch: losses, accuracy and gap on validation rows, the score.
    best_epoch_ : list of int
        The epoch that was kept, for each setting.

    Examples
    --------
    >>> from fairdial import EPO, Network
    >>> from fairdial.datasets import make_gaussian
    >>> train, test = make_gaussian(6000, random_state=0).split(random_state=0)
    >>> model = EPO(n_settings=3, network=Network(members=1, epochs=5), random_state=0)
    >>> model = model.fit(train.X, train.y, sensitive_features=train.groups)
    >>> decisions = model.predict(test.X, sensitive_features=test.groups, tolerance=0.5)
    >>> len(model.frontier_)
    3
    """

    def __init__(
        self,
        n_settings: int = 10,
        *,
        criterion: str | Criterion = "demographic_parity",
        tolerance: float = 0.0,
        restricted: bool = True,
        offset: float = 1e-4,
        network: Network | None = None,
        n_jobs: int = 1,
        calibration: float | None = 0.2,
        pos_label: Any = None,
        sensitive_column: Any = None,
        min_count: int = 30,
        random_state: Any = None,
    ) -> None:
        self.n_settings = n_settings
        self.criterion = criterion
        self.tolerance = tolerance
        self.restricted = restricted
        self.offset = offset
        self.network = network
        self.n_jobs = n_jobs
        self.calibration = calibration
        self.pos_label = pos_label
        self.sensitive_column = sensitive_column
        self.min_count = min_count
        self.random_state = random_state

    def _fit(self, X: Any, y: Any, sensitive_features: Any) -> Self:
        count = check_count(self.n_settings, "n_settings")
        if not isinstance(self.offset, Real) or not 0 < float(self.offset) < 0.5:
            raise InvalidInputError(f"`offset` must lie in (0, 0.5), got {self.offset!r}.")
        rows = self._rows_to_fit(X, y, sensitive_features)
        pareto, selection = torch_module("pareto"), torch_module("selection")
        tradeoff, fitting = torch_module("tradeoff"), torch_module("fitting")
        network = self._network()
        objective = tradeoff.Tradeoff(find_criterion(self.criterion).rates[0], network.gamma)

        def recipe(angles: Floats) -> Any:
            vectors = np.column_stack((np.cos(angles), np.sin(angles)))
            if len(rows.names) == 1:
                return plain_recipe(network, objective)
            return fitting.Recipe(
                lambda net, _, __: tradeoff.EPOStep(
                    net,
                    objective,
                    vectors=vectors,
                    rate=network.learning_rate,
                    weight_decay=network.weight_decay,
                    restricted=self.restricted,
                ),
                partial(selection.score_weighted, objective=objective, weights=vectors),
                runs=len(angles),
            )

        angles, _ = pareto.reference_vectors(count, offset=float(self.offset))
        return self._fit_settings(rows, recipe, lambda *_: angles)
