"""The tuned values that a study uses, stored beside its plan.

``settings = "paper"`` has the library's tuned values. A study keeps those that it started with, so
that its records still belong to its plan after the next tuning.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from fairdial.bench import PLAN
from fairdial.bench.plan import Chosen, Plan, read_plan
from fairdial.bench.store import replace_file
from fairdial.errors import InvalidInputError

FORMAT = 1
TUNED = "tuned.json"


def tuned_path(plan: Path) -> Path:
    """Return the file of the tuned values: tuned.json, or NAME.tuned.json beside NAME.toml."""
    return plan.with_name(TUNED if plan.name == PLAN else f"{plan.stem}.{TUNED}")


def read_study_plan(path: Path) -> Plan:
    """Read the plan of a study, with its tuned values if they are stored beside it."""
    plan, file = read_plan(path), tuned_path(path)
    return replace(plan, tuned=read_tuned(file)) if file.is_file() else plan


def keep_tuned(plan: Plan, path: Path) -> Plan:
    """Return a plan with the tuned values stored beside its file; store the library's if none are.

    A plan without the settings "paper" has none.
    """
    file = tuned_path(path)
    if file.is_file():
        return replace(plan, tuned=read_tuned(file))
    if not any(method.settings == "paper" for method in plan.methods):
        return plan
    used = plan.used_tuned()
    write_tuned(file, used)
    return replace(plan, tuned=used)


def read_tuned(path: Path) -> Chosen:
    """Return the choices of tuning in a file, by data set and method."""
    try:
        data = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise InvalidInputError("tuned", "be JSON", given=f"{path} ({error})") from error
    chosen: Chosen = data["chosen"]
    return chosen


def write_tuned(path: Path, chosen: Chosen) -> None:
    """Write choices of tuning."""
    replace_file(path, as_json({"format": FORMAT, "chosen": chosen}))


def as_json(data: object) -> bytes:
    """Return data as indented JSON."""
    return (json.dumps(data, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
