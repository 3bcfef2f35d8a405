"""Schedules: factors of step sizes and of the moving average, by step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from fairdial._validation import check_choice
from fairdial.errors import InvalidInputError

Factor = Callable[[int], float]
SCHEDULED = ("outer", "inner", "aux", "average")  # alpha, beta, gamma and rho of alg:proposed
NAMES = ("constant", "inverse_sqrt", "inverse", "cosine")


def check_schedules(schedules: object) -> Mapping[str, Any]:
    """Return the schedules of a method, by what they multiply; None has none.

    Examples
    --------
    >>> from fairdial.nn.schedules import check_schedules
    >>> check_schedules({"outer": "cosine"})
    {'outer': 'cosine'}
    """
    if schedules is None:
        return {}
    if not isinstance(schedules, Mapping):
        raise InvalidInputError("schedules", "be a mapping or None", given=repr(schedules))
    for name, given in schedules.items():
        if name not in SCHEDULED:
            options = ", ".join(map(repr, SCHEDULED))
            raise InvalidInputError("schedules", f"have keys among {options}", given=repr(name))
        if not callable(given):
            check_choice(given, "schedules", NAMES)
    return schedules


def factor_at(schedule: str | Factor, step: int, steps: int) -> float:
    """Return the factor of a step, the first of which is 0.

    Parameters
    ----------
    schedule : {"constant", "inverse_sqrt", "inverse", "cosine"} or callable
        1, 1 / sqrt(step + 1), 1 / (step + 1), half a period of the cosine from 1 at the first to
        nearly 0 at the last of ``steps``; or ``schedule(step)``.
    step : int
        Number of steps taken before.
    steps : int
        Number of steps of the whole training.

    Examples
    --------
    >>> from fairdial.nn.schedules import factor_at
    >>> [factor_at("inverse_sqrt", step, 100) for step in (0, 3, 99)]
    [1.0, 0.5, 0.1]
    >>> round(factor_at("cosine", 50, 100), 12)
    0.5
    """
    if callable(schedule):
        factor = float(schedule(step))
        if not 0.0 <= factor < math.inf:
            raise InvalidInputError(
                "schedules", "return finite factors of at least 0", given=f"{factor} at step {step}"
            )
        return factor
    if schedule == "inverse_sqrt":
        return 1.0 / math.sqrt(step + 1.0)
    if schedule == "inverse":
        return 1.0 / (step + 1.0)
    if schedule == "cosine":
        return 0.5 + 0.5 * math.cos(math.pi * min(step / steps, 1.0))
    return 1.0
