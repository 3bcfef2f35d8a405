"""Fair binary classification with a dial: train once, set the fairness tolerance afterwards."""

from fairdial._version import __version__ as __version__
from fairdial.criteria import Criterion, criterion
from fairdial.encoders import TableEncoder
from fairdial.errors import (
    BiasedScoresWarning,
    CannotCertifyError,
    CheckpointError,
    DivergedError,
    FairdialError,
    FairdialWarning,
    InfeasibleToleranceWarning,
    InvalidInputError,
    MissingExtraError,
    SmallGroupError,
    TrainingWarning,
    UnknownGroupError,
)
from fairdial.frontier import Frontier
from fairdial.methods.epo import EPO
from fairdial.methods.fairbayes import FairBayes
from fairdial.methods.fairbinn import FairBiNN
from fairdial.methods.gfb import GFB
from fairdial.methods.network import Network
from fairdial.methods.presets import paper_settings
from fairdial.methods.scoring import make_group_scorer
from fairdial.methods.yoto import YOTO
from fairdial.points import Point, Points
from fairdial.scorers import proba_to_logits
from fairdial.summaries.parquet import calibrate_parquet, summarize_parquet
from fairdial.summaries.summary import ScoreSummary
from fairdial.sweeping import measure, sweep

__all__ = [
    "EPO",
    "GFB",
    "YOTO",
    "BiasedScoresWarning",
    "CannotCertifyError",
    "CheckpointError",
    "Criterion",
    "DivergedError",
    "FairBayes",
    "FairBiNN",
    "FairdialError",
    "FairdialWarning",
    "Frontier",
    "InfeasibleToleranceWarning",
    "InvalidInputError",
    "MissingExtraError",
    "Network",
    "Point",
    "Points",
    "ScoreSummary",
    "SmallGroupError",
    "TableEncoder",
    "TrainingWarning",
    "UnknownGroupError",
    "calibrate_parquet",
    "criterion",
    "make_group_scorer",
    "measure",
    "paper_settings",
    "proba_to_logits",
    "summarize_parquet",
    "sweep",
]
