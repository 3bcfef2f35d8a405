"""Ways of training that studies compare; the library itself doesn't offer them."""

from __future__ import annotations

from typing import Any, Self

from scipy.special import expit
from sklearn.base import clone

from fairdial.methods.fairbayes import FairBayes
from fairdial.methods.network import fit_scorer, torch_module, train_network

TEACHERS = 5


class WholeDial(FairBayes):
    """A network trained for several tolerances at once, through the gradient of the thresholds."""

    def _objective(self) -> Any:
        return torch_module("variants").WholeDialObjective


class ByShares(FairBayes):
    """A network trained plainly with groups weighted by their shares of the rows, not alike."""

    def _objective(self) -> Any:
        return torch_module("variants").ShareObjective


class _Student(FairBayes):
    def _objective(self) -> Any:
        return torch_module("variants").SoftObjective


class Distilled(FairBayes):
    """A network that learns the probabilities of several, so that one net decides."""

    def _fit(self, X: Any, y: Any, sensitive_features: Any) -> Self:
        rows, (student,) = self._rows_to_fit(X, y, sensitive_features), self._parts()
        teacher = clone(student).set_params(members=TEACHERS)
        learned = train_network(self, teacher, rows, self._plain_step(teacher))
        targets = expit(learned.scorer.logits(rows.X, rows.codes))
        soft = _Student(criterion=self.criterion)._plain_step(student)
        fit_scorer(self, student, rows, soft, targets)
        return self._calibrate_held_out(rows)
