"""Trials with other libraries in place of the dial."""

from __future__ import annotations

import importlib.util
import json
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairdial import FairBayes, InvalidInputError
from fairdial.bench import peer_worker
from fairdial.bench.curves import read_study, read_trial
from fairdial.bench.model import make_model, read_parts
from fairdial.bench.peer_worker import Rows, linearpost, read_rows, serve
from fairdial.bench.peers import PEERS, PYTHON, PeerError, PeerProcess, joint_of
from fairdial.bench.plan import Plan, make_plan, read_plan
from fairdial.bench.sources import split
from fairdial.bench.trial import run_trial
from fairdial.core.criteria import criterion as find_criterion

RNG = np.random.default_rng(0)
N = 4_000
CODES = RNG.integers(0, 2, N)
P = np.clip(RNG.beta(2, 3, N) + 0.15 * CODES, 0.01, 0.99)
ROWS = Rows(p=P, codes=CODES, joint=joint_of(P, CODES, 2), y=(RNG.random(N) < P).astype(int))
TOLERANCES = [0.0, 0.05, 0.2]


def plan(**changes: Any) -> Plan:
    common = {"estimator": "FairBayes", "scorer": "small trees"}
    data: dict[str, Any] = {
        "title": "peers",
        "datasets": ["compas"],
        "criteria": ["demographic_parity"],
        "seeds": [33],
        "split": "35/35/30",
        "curve": "tolerances",
        "tolerances": TOLERANCES,
        "gaps": [0.1],
        "methods": [
            {"name": "fairdial", "sees_group": True, **common},
            {"name": "linearpost", "peer": "linearpost", "sees_group": True, **common},
            {"name": "blind", "arguments": {"blind": True}, **common},
            {
                "name": "linearpost, blind",
                "peer": "linearpost",
                "arguments": {"blind": True},
                **common,
            },
        ],
    }
    return make_plan(data | changes)


# ---- LinearPost --------------------------------------------------------------------------------


def expected_rates(rows: Rows, criterion: str, chosen: Any) -> list[list[float]]:
    """Return the rates that LinearPost compares, with probabilities in place of labels."""
    weights, rates = peer_worker._parts(rows.joint, criterion)
    found = (weights * chosen[:, None]).sum(axis=0) / weights.sum(axis=0)
    return [found[rates == rate].tolist() for rate in np.unique(rates)]


@pytest.mark.parametrize("tolerance", [0.0, 0.03, 0.1])
@pytest.mark.parametrize("criterion", ["demographic_parity", "equal_opportunity", "equalized_odds"])
def test_linearpost_keeps_its_tolerance_in_expectation(criterion: str, tolerance: float) -> None:
    chosen = linearpost(ROWS, criterion, tolerance)(ROWS)
    for rates in expected_rates(ROWS, criterion, chosen):
        assert np.ptp(rates) <= tolerance + 0.006  # few rows at a threshold, and noise


def test_linearpost_is_as_good_as_the_best_thresholds() -> None:
    grid = np.linspace(0.05, 0.95, 91)
    chosen = P[:, None] > grid
    rates = np.array([chosen[a == CODES].mean(axis=0) for a in (0, 1)])
    value = np.array([((2 * P - 1)[a == CODES] @ chosen[a == CODES]) / N for a in (0, 1)])
    allowed = np.abs(rates[0][:, None] - rates[1]) <= 0.05
    best = (value[0][:, None] + value[1])[allowed].max()
    found = linearpost(ROWS, "demographic_parity", 0.05)(ROWS)
    assert (2 * P - 1) @ found / N >= best - 5e-4


def test_without_a_limit_linearpost_decides_by_the_probability() -> None:
    found = linearpost(ROWS, "equalized_odds", 1.0)(ROWS)
    clear = np.abs(P - 0.5) > peer_worker.NOISE
    assert np.array_equal(found[clear], P[clear] > 0.5)


# ---- the process -------------------------------------------------------------------------------


@pytest.fixture
def python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PYTHON, sys.executable)  # which needs only SciPy for LinearPost


@pytest.mark.usefixtures("python")
def test_a_process_decides_as_the_functions_do() -> None:
    given = {name: getattr(ROWS, name) for name in ("p", "codes", "joint")}
    with PeerProcess("linearpost") as process:
        seconds = process.fit({**given, "y": ROWS.y}, "demographic_parity", TOLERANCES)
        decisions = process.decide({"joint": ROWS.joint})
    assert len(seconds) == 3
    for tolerance, found in zip(TOLERANCES, decisions, strict=True):
        assert np.array_equal(found, linearpost(ROWS, "demographic_parity", tolerance)(ROWS))


@pytest.mark.usefixtures("python")
def test_errors_of_a_peer_are_reported() -> None:
    with PeerProcess("linearpost") as process, pytest.raises(PeerError, match="joint"):
        process.fit({"y": ROWS.y}, "demographic_parity", [0.1])


def test_an_interpreter_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PYTHON, "no/such/python")
    with pytest.raises(InvalidInputError), PeerProcess("linearpost"):
        pass


@pytest.mark.parametrize("name", sorted(set(PEERS) - {"linearpost"}))
def test_peers_that_are_installed_limit_the_gap(name: str, tmp_path: Path) -> None:
    modules = {"reduction": "fairlearn", "reject option": "aif360"}
    if importlib.util.find_spec(modules.get(name, name.replace("-", "_"))) is None:
        pytest.skip("not installed here; `make peers` has an environment with them")
    rows = {"p": P, "codes": CODES, "joint": ROWS.joint, "y": ROWS.y, "X": P[:, None]}
    np.savez(tmp_path / "rows.npz", n_categories=0, **rows)
    task = {"peer": name, "criterion": "equalized_odds", "tolerances": [0.05]}
    tasks = [{"rows": str(tmp_path / "rows.npz"), **task}]
    tasks.append({"rows": str(tmp_path / "rows.npz"), "out": str(tmp_path / "out.npy")})
    answers = StringIO()
    serve(StringIO("".join(json.dumps(t) + "\n" for t in tasks)), answers)
    (found,) = np.load(tmp_path / "out.npy")
    assert found.shape == read_rows(str(tmp_path / "rows.npz")).y.shape
    assert np.mean(found == ROWS.y) > 0.6


# ---- trials ------------------------------------------------------------------------------------


def test_a_third_of_the_rows_calibrates_and_no_row_is_in_two_parts() -> None:
    parts = split("compas", 33, shares="35/35/30")
    parts.test.release()
    test = parts.test.open()
    shares = np.array([len(parts.fit), len(parts.calibration), len(test)]) / 6172
    assert np.allclose(shares, [0.35, 0.35, 0.30], atol=0.002)
    index = [set(rows.X.index) for rows in (parts.fit, parts.calibration, test)]
    assert len(set.union(*index)) == sum(map(len, index)) == 6172


@pytest.mark.usefixtures("python")
def test_peers_and_the_dial_are_counted_on_the_same_rows() -> None:
    given = plan()
    records = [run_trial(config) for config in given.trials()]
    assert not [r["traceback"] for r in records if "error" in r]
    json.dumps(records, allow_nan=False)
    rows = [record["result"]["rows"] for record in records]
    assert rows[0] == rows[1]
    study = read_study(given, records)
    assert study.complete
    for record in records:
        trial, result = read_trial(record), record["result"]
        on_calibration = np.array(result["states"]["calibration"])[..., result["grid"]]
        everyone = np.array(result["rows"]["calibration"])
        dp = find_criterion("demographic_parity")
        gaps = [dp.gap_of(on_calibration[..., i], everyone) for i in range(3)]
        assert trial.grid.shape == (3, 2)
        if record["config"]["method"]["name"] == "fairdial":
            assert (np.array(gaps) <= np.array([0.005, *TOLERANCES[1:]]) + 1e-12).all()
        elif record["config"]["method"]["name"] == "linearpost":
            assert (np.array(gaps) <= np.array(TOLERANCES) + 0.01).all()


def test_the_dial_decides_as_predict_does() -> None:
    for config in plan().trials():
        method = config["method"]
        if "peer" in method:
            continue
        result = run_trial(config)["result"]
        parts = read_parts(config)
        model = make_model(config, parts)
        model.fit(parts.fit.X, parts.fit.y, sensitive_features=parts.fit.groups)
        held = parts.calibration
        model.calibrate(held.X, held.y, sensitive_features=held.groups)
        parts.test.release()
        test = parts.test.open()
        assert isinstance(model, FairBayes)
        for i, tolerance in enumerate(TOLERANCES[1:], start=1):
            groups = None if model.blind else test.groups
            decisions = model.predict(test.X, sensitive_features=groups, tolerance=tolerance)
            for label in (0, 1):
                for a, group in enumerate(result["groups"]):
                    cell = (test.y == label) & (test.groups == group)
                    assert result["states"]["test"][label][a][i] == decisions[cell].sum()


@pytest.mark.parametrize(
    "changes",
    [
        {"curve": "dial"},
        {"split": "halves"},
        {"evaluate": "validation"},
        {"methods": [{"name": "x", "estimator": "FairBayes", "peer": "linearpost"}]},
        {"methods": [{"name": "x", "estimator": "GFB"}]},
        {
            "methods": [
                {
                    "name": "x",
                    "estimator": "FairBayes",
                    "scorer": "small trees",
                    "peer": "fairlearn",
                    "arguments": {"blind": True},
                }
            ]
        },
    ],
)
def test_what_does_not_go_together_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        plan(**changes)


def test_shipped_plans_ask_peers_for_what_they_can_do() -> None:
    for name in ("published", "published-training"):
        given = read_plan(name)
        for config in given.trials():
            peer = config["method"].get("peer")
            assert peer is None or config["criterion"] in PEERS[peer].criteria
        assert {method.peer for method in given.methods} - {None}
