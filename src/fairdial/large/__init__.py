"""More rows than memory: decide, calibrate and evaluate where the rows are, and counts that add up.

Names are imported from their modules when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairdial.large.apply import calibrate as calibrate
    from fairdial.large.apply import decide as decide
    from fairdial.large.apply import evaluate as evaluate
    from fairdial.large.evaluation import Evaluation as Evaluation
    from fairdial.large.evaluation import evaluate_counts as evaluate_counts

_HOMES = {
    "apply": ("calibrate", "decide", "evaluate"),
    "evaluation": ("Evaluation", "evaluate_counts"),
}

__all__ = [name for names in _HOMES.values() for name in names]

if not TYPE_CHECKING:  # a type checker that saw it would accept any name

    def __getattr__(name: str) -> Any:
        for home, names in _HOMES.items():
            if name in names:
                found = globals()[name] = getattr(import_module(f"fairdial.large.{home}"), name)
                return found
        raise AttributeError(f"module 'fairdial.large' has no attribute {name!r}")
