"""EPO, Exact Pareto Optimal search: one network for each proportion of the two losses."""

from __future__ import annotations

from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

import numpy as np

from fairdial._arrays import Floats
from fairdial._validation import check_count
from fairdial.core.criteria import Given
from fairdial.errors import InvalidInputError, require_torch
from fairdial.estimators.rows import RowOptions
from fairdial.nn.network import Network
from fairdial.paper.family import SettingsClassifier, plain_method

if TYPE_CHECKING:
    from fairdial.nn.fit import Method


class EPO(SettingsClassifier):
    """One network for each of several proportions of prediction loss and gap.

    Each network seeks the Pareto optimum where the losses, weighted by its reference vector, are
    equal: ``v_acc L_acc = v_gap L_gap``. It first moves toward this balance, even if a loss rises,
    and then descends along it (Mahapatra and Rajan, 2020). The setting is the angle of the
    reference vector, from accuracy (0) to the gap (pi/2). The dial chooses among ``n_settings``
    networks and can't reach between them. Works with any number of groups.

    Parameters
    ----------
    n_settings : int
        Number of reference vectors, evenly spaced in angle.
    criterion : str, Criterion, list or mapping
        "demographic_parity", "equal_opportunity", "predictive_equality", "equalized_odds" or
        another combination of differences; see :func:`fairdial.criterion`.
    tolerance : float
        The default tolerance; 0 is the one that the criterion declares, if it does.
    restricted : bool
        Whether descent must keep the balance.
    offset : float
        Distance of the outermost vectors from the axes, where the search is undefined, as a share
        of the right angle.
    network : Network, optional
        What is trained, and how; one member by default. The epoch is selected by the smallest
        weighted loss on validation rows, whatever its ``score``.
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
        Angles.
    history_ : DataFrame
        By setting and epoch: losses, accuracy and gap on validation rows, the score.
    best_epoch_ : list of int
        The selected epoch of each setting.

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
        criterion: Given = "demographic_parity",
        tolerance: float | None = 0.0,
        restricted: bool = True,
        offset: float = 1e-4,
        network: Network | None = None,
        n_jobs: int = 1,
        calibration: float | Literal["auto"] | None = 0.2,
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

    def _fit(self, X: Any, y: Any, sensitive_features: Any, **more: Unpack[RowOptions]) -> Self:
        count = check_count(self.n_settings, "n_settings")
        if not isinstance(self.offset, Real) or not 0 < float(self.offset) < 0.5:
            raise InvalidInputError("offset", "lie in (0, 0.5)", given=repr(self.offset))
        rows = self._rows_to_fit(X, y, sensitive_features, **more)
        require_torch()
        from fairdial.nn.fit import Method
        from fairdial.nn.pareto import reference_vectors
        from fairdial.nn.selection import score_weighted
        from fairdial.nn.tradeoff import EPOStep, Tradeoff

        network, n_groups = self._network(), len(rows.groups)
        objective = Tradeoff(rows.criterion, network.gamma)

        def make_method(angles: Floats) -> Method:
            vectors = np.column_stack((np.cos(angles), np.sin(angles)))
            if n_groups == 1:
                return plain_method(network, objective)
            return Method(
                lambda net, _, __: EPOStep(
                    net,
                    objective,
                    vectors=vectors,
                    rate=network.learning_rate,
                    weight_decay=network.weight_decay,
                    restricted=self.restricted,
                ),
                partial(score_weighted, objective=objective, weights=vectors),
                runs=len(angles),
            )

        angles, _ = reference_vectors(count, offset=float(self.offset))
        return self._fit_settings(rows, make_method, lambda *_: angles)
