"""Fair binary classification with a tolerance that you set after training.

Names are imported from their modules when they are first used, so that ``import fairdial`` and the
command line start fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fairdial._version import __version__ as __version__

if TYPE_CHECKING:  # the names of _HOMES, for type checkers and editors
    from fairdial.core.blind import sweep_blind as sweep_blind
    from fairdial.core.classes import sweep_classes as sweep_classes
    from fairdial.core.criteria import Criterion as Criterion
    from fairdial.core.criteria import criterion as criterion
    from fairdial.core.demands import Demand as Demand
    from fairdial.core.demands import maximum as maximum
    from fairdial.core.demands import minimum as minimum
    from fairdial.core.frontier import Frontier as Frontier
    from fairdial.core.logits import proba_to_logits as proba_to_logits
    from fairdial.core.objectives import Costs as Costs
    from fairdial.core.objectives import Objective as Objective
    from fairdial.core.planning import CalibrationPlan as CalibrationPlan
    from fairdial.core.planning import plan_calibration as plan_calibration
    from fairdial.core.point import Point as Point
    from fairdial.core.point import Points as Points
    from fairdial.core.problem import Budget as Budget
    from fairdial.core.rates import Rate as Rate
    from fairdial.core.sweep import measure as measure
    from fairdial.core.sweep import sweep as sweep
    from fairdial.errors import BiasedScoresWarning as BiasedScoresWarning
    from fairdial.errors import CannotCertifyError as CannotCertifyError
    from fairdial.errors import CheckpointError as CheckpointError
    from fairdial.errors import ConstantDecisionsWarning as ConstantDecisionsWarning
    from fairdial.errors import DistributedError as DistributedError
    from fairdial.errors import DivergedError as DivergedError
    from fairdial.errors import FairdialError as FairdialError
    from fairdial.errors import FairdialWarning as FairdialWarning
    from fairdial.errors import InfeasibleToleranceWarning as InfeasibleToleranceWarning
    from fairdial.errors import InterruptedWarning as InterruptedWarning
    from fairdial.errors import InvalidInputError as InvalidInputError
    from fairdial.errors import MissingExtraError as MissingExtraError
    from fairdial.errors import ModelFileError as ModelFileError
    from fairdial.errors import SeenRowsWarning as SeenRowsWarning
    from fairdial.errors import SmallGroupError as SmallGroupError
    from fairdial.errors import TrainingWarning as TrainingWarning
    from fairdial.errors import UnknownGroupError as UnknownGroupError
    from fairdial.estimators.auto import AutoDial as AutoDial
    from fairdial.estimators.fairbayes import FairBayes as FairBayes
    from fairdial.estimators.gfb import GFB as GFB
    from fairdial.estimators.scoring import make_group_scorer as make_group_scorer
    from fairdial.io.load import load as load
    from fairdial.large.parquet import calibrate_parquet as calibrate_parquet
    from fairdial.large.parquet import summarize_parquet as summarize_parquet
    from fairdial.large.summary import ScoreSummary as ScoreSummary
    from fairdial.nn.network import Network as Network
    from fairdial.paper.epo import EPO as EPO
    from fairdial.paper.fairbinn import FairBiNN as FairBiNN
    from fairdial.paper.presets import paper_settings as paper_settings
    from fairdial.paper.tarte import TarteEncoder as TarteEncoder
    from fairdial.paper.yoto import YOTO as YOTO
    from fairdial.tables.encoder import Encoder as Encoder
    from fairdial.tables.encoder import TableEncoder as TableEncoder

_HOMES = {  # the public names by module
    "core.blind": ("sweep_blind",),
    "core.classes": ("sweep_classes",),
    "core.criteria": (
        "Criterion",
        "criterion",
    ),
    "core.demands": (
        "Demand",
        "maximum",
        "minimum",
    ),
    "core.frontier": ("Frontier",),
    "core.logits": ("proba_to_logits",),
    "core.objectives": (
        "Costs",
        "Objective",
    ),
    "core.planning": (
        "CalibrationPlan",
        "plan_calibration",
    ),
    "core.point": (
        "Point",
        "Points",
    ),
    "core.problem": ("Budget",),
    "core.rates": ("Rate",),
    "core.sweep": (
        "measure",
        "sweep",
    ),
    "errors": (
        "BiasedScoresWarning",
        "CannotCertifyError",
        "CheckpointError",
        "ConstantDecisionsWarning",
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
    "estimators.auto": ("AutoDial",),
    "estimators.fairbayes": ("FairBayes",),
    "estimators.gfb": ("GFB",),
    "estimators.scoring": ("make_group_scorer",),
    "io.load": ("load",),
    "large.parquet": (
        "calibrate_parquet",
        "summarize_parquet",
    ),
    "large.summary": ("ScoreSummary",),
    "nn.network": ("Network",),
    "paper.epo": ("EPO",),
    "paper.fairbinn": ("FairBiNN",),
    "paper.presets": ("paper_settings",),
    "paper.tarte": ("TarteEncoder",),
    "paper.yoto": ("YOTO",),
    "tables.encoder": (
        "Encoder",
        "TableEncoder",
    ),
}
_MODULES = ("datasets", "errors", "large", "metrics")

__all__ = [name for names in _HOMES.values() for name in names]

if not TYPE_CHECKING:  # a type checker that saw it would accept any name

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return import_module(f"fairdial.{name}")
        for home, names in _HOMES.items():
            if name in names:
                found = globals()[name] = getattr(import_module(f"fairdial.{home}"), name)
                return found
        raise AttributeError(f"module 'fairdial' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
