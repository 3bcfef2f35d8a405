"""Frontiers come back from arrays to the last bit, and what is none is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from fairdial import InvalidInputError, ModelFileError, measure, sweep
from fairdial.core.criteria import CRITERIA, SELECTION, Criterion, name_to_save
from fairdial.core.frontier import Frontier
from fairdial.datasets import make_gaussian
from fairdial.io.frontiers import frontier_from_arrays, frontier_to_arrays

DATA = make_gaussian(600, random_state=0)
LOGITS = DATA.logits.round(1)
LOGITS[:5] = np.inf
LOGITS[-5:] = -np.inf
SWEPT = sweep(LOGITS, DATA.groups, DATA.y)
MEASURED = measure(np.stack([DATA.logits - s for s in (-1, 0, 1)]), DATA.groups, DATA.y)
FRONTIERS = {
    "path": SWEPT,
    "single precision": sweep(LOGITS.astype(np.float32), DATA.groups, DATA.y),
    "tolerances": sweep(DATA.logits, DATA.groups, DATA.y, tolerances=[0.05]),
    "unlabelled": sweep(LOGITS, DATA.groups),
    "three": sweep(LOGITS, np.arange(600) % 3, DATA.y, criterion="equal_opportunity"),
    "table": SWEPT.thin(7),
    "measured": MEASURED,
    "some measured": MEASURED.pareto(),
}


@pytest.mark.parametrize("name", FRONTIERS)
def test_a_frontier_comes_back_to_the_last_bit(name: str) -> None:
    frontier = FRONTIERS[name]
    found = frontier_from_arrays(*frontier_to_arrays(frontier), "file")
    assert found.to_json() == frontier.to_json()
    assert found.groups == frontier.groups
    assert found.certificate == frontier.certificate
    states = np.arange(len(frontier))
    for one, other in zip(found.points.read(states), frontier.points.read(states), strict=True):
        assert one.tobytes() == other.tobytes()
    assert found.setting.tobytes() == frontier.setting.tobytes()


def test_only_frontiers_with_the_librarys_criteria_are_written() -> None:
    assert [name_to_save(known) for known in CRITERIA] == [known.name for known in CRITERIA]
    for own in (Criterion("mine", (SELECTION,)), Criterion("equal_opportunity", (SELECTION,))):
        with pytest.raises(InvalidInputError, match="`criterion`"):
            name_to_save(own)
        with pytest.raises(InvalidInputError, match="`criterion`"):
            sweep(LOGITS, DATA.groups, DATA.y, criterion=own).to_json()


def forged(frontier: Frontier, edit: Any, changed: dict[str, Any] | None = None) -> None:
    description, body = frontier_to_arrays(frontier)
    arrays = dict(load(body))
    edit(arrays)
    with pytest.raises(ModelFileError, match="`some file`"):
        frontier_from_arrays(description | (changed or {}), save(arrays), "some file")


@pytest.mark.parametrize(
    ("frontier", "edit"),
    [
        (SWEPT, lambda a: a.pop("lower.0")),
        (SWEPT, lambda a: a.pop("counts.1")),
        (SWEPT, lambda a: a.update(more=np.zeros(2))),
        (SWEPT, lambda a: a["lower.0"].__setitem__(3, np.nan)),
        (SWEPT, lambda a: a["lower.0"].__setitem__(3, 100.0)),
        (SWEPT, lambda a: a["counts.0"].__setitem__((0, 3), -1)),
        (SWEPT, lambda a: a["counts.0"].__setitem__((0, 3), 10**6)),
        (SWEPT, lambda a: a.update({"lower.0": a["lower.0"][1:]})),
        (SWEPT, lambda a: a.update({"lower.0": a["lower.0"][None]})),
        (SWEPT, lambda a: a.update({"counts.0": a["counts.0"][:1]})),
        (SWEPT, lambda a: a.update({"lower.0": a["lower.1"], "counts.0": a["counts.1"]})),
        (FRONTIERS["table"], lambda a: a["thresholds"].__setitem__((2, 0), np.nan)),
        (FRONTIERS["table"], lambda a: a["gap"].__setitem__(2, np.nan)),
        (FRONTIERS["table"], lambda a: a["selected"].__setitem__((2, 0, 0), 10**6)),
        (FRONTIERS["table"], lambda a: a.update(gap=a["gap"][1:])),
        (MEASURED, lambda a: a["setting"].__setitem__(0, np.nan)),
        (MEASURED, lambda a: a["selected"].__setitem__((0, 0, 0), -1)),
        (MEASURED, lambda a: a.update(declared=a["declared"].astype(np.int8))),
        (MEASURED, lambda a: a.clear()),
    ],
)
def test_arrays_that_are_no_frontier_are_refused_by_name(frontier: Frontier, edit: Any) -> None:
    forged(frontier, edit)


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": "other"},
        {"kind": "table"},
        {"kind": "measured"},
        {"rows": [[1, 2], [3, 4]]},
        {"rows": "many"},
        {"groups": ["one"]},
        {"groups": 3},
        {"criterion": "fairness"},
        {"certificate": "finite"},
        {"certificate": "gold"},
        {"dtype": "float16"},
        {"dtype": []},
    ],
)
def test_descriptions_of_another_frontier_are_refused(changed: dict[str, Any]) -> None:
    forged(SWEPT, lambda _: None, changed)


def test_invalid_safetensors_are_refused() -> None:
    description, body = frontier_to_arrays(SWEPT)
    for other in (b"", b"{}", body[:-1], body + b" ", b"\xff" * 100):
        with pytest.raises(ModelFileError, match="`some file`"):
            frontier_from_arrays(description, other, "some file")
