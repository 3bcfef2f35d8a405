"""Frontiers come back from arrays to the last bit, and what is none is refused."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load, save

from fairdial import (
    Budget,
    Costs,
    FairdialWarning,
    InvalidInputError,
    ModelFileError,
    measure,
    minimum,
    sweep,
)
from fairdial.core.criteria import CRITERIA, Criterion, name_to_save
from fairdial.core.demands import Demand
from fairdial.core.frontier import Frontier
from fairdial.core.problem import Problem
from fairdial.core.rates import SELECTION, TRUE_POSITIVE, Rate
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
    "weighted family": measure(
        np.stack([DATA.logits - s for s in (-1, 0, 1)]),
        DATA.groups,
        DATA.y,
        sample_weight=np.linspace(0.5, 2, 600),
    ),
    "equalized odds": sweep(LOGITS, DATA.groups, DATA.y, criterion="equalized_odds"),
    "nested": sweep(LOGITS, DATA.groups, DATA.y, criterion="equalized_odds", nested=True),
    "costs and budget": sweep(
        LOGITS, DATA.groups, DATA.y, objective=Costs(1, 5), budget=Budget(0.3, exact=True)
    ),
    "utility": sweep(LOGITS, DATA.groups, DATA.y, utility=np.linspace(-1, 1, 600)),
    "mapping": sweep(
        LOGITS,
        DATA.groups,
        DATA.y,
        criterion={"demographic_parity": 0.1, "equal_opportunity": 0.05},
        rising=True,
    ),
    "demands": sweep(
        LOGITS,
        DATA.groups,
        DATA.y,
        criterion=[Demand(TRUE_POSITIVE, "ratio", 0.5), minimum("accuracy", 0.6)],
        value="labels",
    ),
    "strata": sweep(
        LOGITS,
        DATA.groups,
        DATA.y,
        criterion=minimum("true_positive_rate", 0.3, where="old"),
        control_features=pd.DataFrame({"old": np.arange(600) % 2 == 0}),
    ),
    "one stratum": sweep(
        LOGITS,
        DATA.groups,
        DATA.y,
        criterion=Demand(TRUE_POSITIVE, where="old"),
        control_features=pd.DataFrame({"old": np.ones(600, bool)}),
    ),
    "weights": sweep(
        LOGITS,
        DATA.groups,
        DATA.y,
        criterion="equalized_odds",
        sample_weight=np.linspace(0.5, 2, 600),
    ),
    "lottery": sweep(LOGITS, DATA.groups, DATA.y, criterion="equalized_odds", randomize="hash"),
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
    assert found.problem == frontier.problem
    assert found.nested_loss == frontier.nested_loss
    if not frontier.is_family:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FairdialWarning)
            one, other = found.at(0.0123), frontier.at(0.0123)
        assert one.thresholds.tobytes() == other.thresholds.tobytes()
        assert one.gaps == other.gaps
        assert one.bound == other.bound


def test_only_frontiers_with_the_librarys_rates_are_written() -> None:
    assert [name_to_save(known) for known in CRITERIA] == [known.name for known in CRITERIA]
    rate = Rate("mine", 1, TRUE_POSITIVE.link, TRUE_POSITIVE.slope, TRUE_POSITIVE.inverse)
    for own in (Criterion("mine", (rate,)), Criterion("equal_opportunity", (SELECTION,))):
        with pytest.raises(InvalidInputError, match="`criterion`"):
            frontier_to_arrays(replace(SWEPT, problem=Problem(own)))
    named = replace(SWEPT, problem=Problem(Criterion("mine", (SELECTION,))))
    again = frontier_from_arrays(*frontier_to_arrays(named), "file")
    assert again.criterion == named.criterion


def test_a_part_of_a_lottery_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="`frontier`"):
        frontier_to_arrays(FRONTIERS["lottery"].thin(5))
    with pytest.raises(InvalidInputError, match="`frontier`"):
        FRONTIERS["lottery"].thin(5).to_json()


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
        (FRONTIERS["nested"], lambda a: a.pop("lost")),
        (FRONTIERS["nested"], lambda a: a.update(lost=a["lost"][1:])),
        (FRONTIERS["nested"], lambda a: a["lost"].__setitem__(1, -1.0)),
        (FRONTIERS["nested"], lambda a: a["lost"].__setitem__(1, np.nan)),
        (FRONTIERS["nested"], lambda a: a.update(thresholds=a["thresholds"][:, :1])),
        (FRONTIERS["utility"], lambda a: a.pop("gain.0")),
        (FRONTIERS["utility"], lambda a: a["gain.0"].__setitem__(1, np.inf)),
        (FRONTIERS["utility"], lambda a: a.update({"gain.0": a["gain.0"][1:]})),
        (FRONTIERS["weights"], lambda a: a["counts.0"].__setitem__((0, 0), np.nan)),
        (FRONTIERS["weights"], lambda a: a["counts.0"].__setitem__((0, 0), -0.5)),
        (FRONTIERS["strata"], lambda a: a.update({"counts.0": a["counts.0"][:2]})),
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


ODDS: dict[str, Any] = frontier_to_arrays(FRONTIERS["strata"])[0]


def other_demand(**changed: Any) -> dict[str, Any]:
    """The criterion of ``FRONTIERS["strata"]``, with a changed demand."""
    demand = ODDS["criterion"]["demands"][0] | changed
    return {"criterion": ODDS["criterion"] | {"demands": [demand]}}


@pytest.mark.parametrize(
    "changed",
    [
        {"objective": ["luck", 1.0, 1.0]},
        {"objective": ["costs", -1.0, 1.0]},
        {"objective": ["costs", 0.0, 0.0]},
        {"objective": ["costs", "a", 1.0]},
        {"objective": ["costs", 1.0]},
        {"objective": "accuracy"},
        {"objective": ["utility", 1.0, 1.0]},
        {"budget": 0.5},
        {"budget": [1.5, False]},
        {"budget": [0.5, "yes"]},
        {"budget": [True, False]},
        {"nested": "yes"},
        {"rising": 2},
        {"randomize": "dice"},
        {"randomize": "hash", "rising": True},
        {"value": "money"},
        {"criterion": ["demographic_parity"]},
        {"criterion": 3},
        {"criterion": ODDS["criterion"] | {"n_strata": 0}},
        {"criterion": ODDS["criterion"] | {"n_strata": 3}},
        {"criterion": ODDS["criterion"] | {"declared": 7.0}},
        {"criterion": ODDS["criterion"] | {"demands": []}},
        other_demand(rate="luck"),
        other_demand(spread="mean"),
        other_demand(scale="-1"),
        other_demand(scale="1/0"),
        other_demand(scale="many"),
        other_demand(level=2.0),
        other_demand(strata=[5]),
        other_demand(strata="x"),
        other_demand(where=["x"]),
    ],
)
def test_problems_that_do_not_exist_are_refused(changed: dict[str, Any]) -> None:
    forged(FRONTIERS["strata"], lambda _: None, changed)


def test_invalid_safetensors_are_refused() -> None:
    description, body = frontier_to_arrays(SWEPT)
    for other in (b"", b"{}", body[:-1], body + b" ", b"\xff" * 100):
        with pytest.raises(ModelFileError, match="`some file`"):
            frontier_from_arrays(description, other, "some file")
