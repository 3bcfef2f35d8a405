"""Fair binary classification with a dial: train once, set the fairness tolerance afterwards."""

from fairdial.criteria import Criterion, criterion
from fairdial.errors import (
    BiasedScoresWarning,
    CannotCertifyError,
    FairdialError,
    FairdialWarning,
    InfeasibleToleranceWarning,
    InvalidInputError,
    MissingExtraError,
    SmallGroupError,
    UnknownGroupError,
)
from fairdial.frontier import Frontier
from fairdial.methods.fairbayes import FairBayes
from fairdial.methods.scoring import make_group_scorer
from fairdial.points import Point, Points
from fairdial.scorers import proba_to_logits
from fairdial.sweeping import sweep

__version__ = "0.1.0"

__all__ = [
    "BiasedScoresWarning",
    "CannotCertifyError",
    "Criterion",
    "FairBayes",
    "FairdialError",
    "FairdialWarning",
    "Frontier",
    "InfeasibleToleranceWarning",
    "InvalidInputError",
    "MissingExtraError",
    "Point",
    "Points",
    "SmallGroupError",
    "UnknownGroupError",
    "criterion",
    "make_group_scorer",
    "proba_to_logits",
    "sweep",
]
