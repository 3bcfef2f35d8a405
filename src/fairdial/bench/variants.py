"""Ways of training that studies compare and the library doesn't offer."""

from __future__ import annotations

from typing import Any, Self, Unpack

from scipy.special import expit
from sklearn.base import clone

from fairdial.estimators.fairbayes import FairBayes
from fairdial.estimators.network import fit_scorer, train_network
from fairdial.estimators.rows import RowOptions

TEACHERS = 5


class WholeDial(FairBayes):
    """A network trained for several tolerances at once, through the gradient of the thresholds."""

    def _objective(self) -> Any:
        from fairdial.nn.variants import WholeDialObjective

        return WholeDialObjective


class ByShares(FairBayes):
    """A network trained with groups weighted by their shares of the rows, not equally."""

    def _objective(self) -> Any:
        from fairdial.nn.variants import ShareObjective

        return ShareObjective


class _Student(FairBayes):
    def _objective(self) -> Any:
        from fairdial.nn.variants import SoftObjective

        return SoftObjective


class Distilled(FairBayes):
    """A network that learns the probabilities of several, so that a single one decides."""

    def _fit(self, X: Any, y: Any, sensitive_features: Any, **more: Unpack[RowOptions]) -> Self:
        rows = self._rows_to_fit(X, y, sensitive_features, **more)
        (student,) = self._parts()
        teacher = clone(student).set_params(members=TEACHERS)
        learned = train_network(self, teacher, rows, self._plain_step(teacher))
        targets = expit(learned.scorer.logits(rows.X, rows.codes))
        soft = _Student(criterion=self.criterion)._plain_step(student)
        fit_scorer(self, student, rows, soft, targets)
        return self._calibrate_held_out(rows)
