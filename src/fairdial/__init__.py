"""Fair binary classification with a dial: train once, set the fairness tolerance afterwards.

Names are imported from their modules when they are first used, so that ``import fairdial`` and the
command line start at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fairdial._version import __version__ as __version__

if TYPE_CHECKING:  # the same names as in _HOME, for type checkers and editors
    from fairdial.criteria import Criterion, criterion
    from fairdial.encoders import Encoder, TableEncoder
    from fairdial.errors import (
        BiasedScoresWarning,
        CannotCertifyError,
        CheckpointError,
        DistributedError,
        DivergedError,
        FairdialError,
        FairdialWarning,
        InfeasibleToleranceWarning,
        InterruptedWarning,
        InvalidInputError,
        MissingExtraError,
        ModelFileError,
        SeenRowsWarning,
        SmallGroupError,
        TrainingWarning,
        UnknownGroupError,
    )
    from fairdial.frontier import Frontier
    from fairdial.methods.auto import AutoDial
    from fairdial.methods.epo import EPO
    from fairdial.methods.fairbayes import FairBayes
    from fairdial.methods.fairbinn import FairBiNN
    from fairdial.methods.gfb import GFB
    from fairdial.methods.loading import load
    from fairdial.methods.network import Network
    from fairdial.methods.presets import paper_settings
    from fairdial.methods.scoring import make_group_scorer
    from fairdial.methods.yoto import YOTO
    from fairdial.points import Point, Points
    from fairdial.scorers import proba_to_logits
    from fairdial.summaries.parquet import calibrate_parquet, summarize_parquet
    from fairdial.summaries.summary import ScoreSummary
    from fairdial.sweeping import measure, sweep
    from fairdial.tarte import TarteEncoder

__all__ = [
    "EPO",
    "GFB",
    "YOTO",
    "AutoDial",
    "BiasedScoresWarning",
    "CannotCertifyError",
    "CheckpointError",
    "Criterion",
    "DistributedError",
    "DivergedError",
    "Encoder",
    "FairBayes",
    "FairBiNN",
    "FairdialError",
    "FairdialWarning",
    "Frontier",
    "InfeasibleToleranceWarning",
    "InterruptedWarning",
    "InvalidInputError",
    "MissingExtraError",
    "ModelFileError",
    "Network",
    "Point",
    "Points",
    "ScoreSummary",
    "SeenRowsWarning",
    "SmallGroupError",
    "TableEncoder",
    "TarteEncoder",
    "TrainingWarning",
    "UnknownGroupError",
    "calibrate_parquet",
    "criterion",
    "load",
    "make_group_scorer",
    "measure",
    "paper_settings",
    "proba_to_logits",
    "summarize_parquet",
    "sweep",
]

_HOME = {
    "criteria": ("Criterion", "criterion"),
    "encoders": ("Encoder", "TableEncoder"),
    "errors": (
        "BiasedScoresWarning",
        "CannotCertifyError",
        "CheckpointError",
        "DistributedError",
        "DivergedError",
        "FairdialError",
        "FairdialWarning",
        "InfeasibleToleranceWarning",
        "InterruptedWarning",
        "InvalidInputError",
        "MissingExtraError",
        "ModelFileError",
        "SeenRowsWarning",
        "SmallGroupError",
        "TrainingWarning",
        "UnknownGroupError",
    ),
    "frontier": ("Frontier",),
    "methods.auto": ("AutoDial",),
    "methods.epo": ("EPO",),
    "methods.fairbayes": ("FairBayes",),
    "methods.fairbinn": ("FairBiNN",),
    "methods.gfb": ("GFB",),
    "methods.loading": ("load",),
    "methods.network": ("Network",),
    "methods.presets": ("paper_settings",),
    "methods.scoring": ("make_group_scorer",),
    "methods.yoto": ("YOTO",),
    "points": ("Point", "Points"),
    "scorers": ("proba_to_logits",),
    "summaries.parquet": ("calibrate_parquet", "summarize_parquet"),
    "summaries.summary": ("ScoreSummary",),
    "sweeping": ("measure", "sweep"),
    "tarte": ("TarteEncoder",),
}
_MODULES = ("confidence", "criteria", "datasets", "encoders", "errors", "frontier", "metrics")


if not TYPE_CHECKING:  # a type checker that saw it would believe in any name

    def __getattr__(name: str) -> Any:
        for home, names in _HOME.items():
            if name in names:
                found = getattr(import_module(f"fairdial.{home}"), name)
                globals()[name] = found
                return found
        if name in _MODULES:
            return import_module(f"fairdial.{name}")
        raise AttributeError(f"module 'fairdial' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
