from __future__ import annotations

import gc
import json
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

import fairdial
from fairdial import FairdialWarning, Network, TableEncoder
from fairdial.bench import model as model_module
from fairdial.bench.curves import read_trial
from fairdial.bench.estimators import ESTIMATORS
from fairdial.bench.model import GROUP_COLUMN, make_model, read_parts
from fairdial.bench.plan import make_plan
from fairdial.bench.sources import SealedRows, SealedRowsError, split
from fairdial.bench.trial import States, _choose, run_trial
from fairdial.datasets import Dataset, load_compas
from fairdial.estimators.thresholds import ThresholdClassifier
from fairdial.metrics import gap

QUICK = {"epochs": 2, "members": 1, "hidden": [8], "head": 4}
METHODS = [
    {"name": "net", "estimator": "FairBayes", "network": QUICK},
    {"name": "GFB", "estimator": "GFB", "network": QUICK, "arguments": {"warm_epochs": 0}},
    {"name": "EPO", "estimator": "EPO", "network": QUICK},
    {"name": "FairBiNN", "estimator": "FairBiNN", "network": QUICK, "arguments": {"widen": 0}},
    {"name": "YOTO", "estimator": "YOTO", "network": QUICK},
    {"name": "trees", "estimator": "FairBayes", "scorer": "gradient boosting"},
    {"name": "lines", "estimator": "FairBayes", "scorer": "logistic regression"},
]


def trials(method: str | None = None, **changes: Any) -> list[dict[str, Any]]:
    base = {"title": "t", "datasets": ["compas"], "seeds": [0], "methods": METHODS, "settings": 4}
    found = make_plan(base | changes).trials()
    return [t for t in found if method is None or t["method"]["name"] == method]


@pytest.mark.parametrize("name", [m["name"] for m in METHODS])
def test_counts_are_those_of_the_models_own_decisions(name: str) -> None:
    config = trials(name)[0]
    record = run_trial(config)
    assert "error" not in record, record.get("traceback")
    result = record["result"]
    parts = split("compas", 0)
    model = make_model(config, parts)
    model.fit(parts.fit.X, parts.fit.y, sensitive_features=parts.fit.groups)
    held = parts.calibration
    model.calibrate(held.X, held.y, sensitive_features=held.groups)
    test = load_compas().paper_split(0).test
    columns = np.moveaxis(result["states"]["test"], -1, 0)  # (n, L, K)
    states = dict(zip(result["states"]["state"], columns, strict=True))
    rows = np.array(result["rows"]["test"])
    assert rows.sum() == len(test)
    for tolerance in (0.05, 0.15):
        state = result["grid"][config["tolerances"].index(tolerance)]
        selected = states[state]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FairdialWarning)  # short trainings
            decisions = model.predict(test.X, sensitive_features=test.groups, tolerance=tolerance)
        for label in (0, 1):
            for a, group in enumerate(result["groups"]):
                cell = (test.y == label) & (test.groups == group)
                assert selected[label, a] == decisions[cell].sum()
                assert rows[label, a] == cell.sum()
        rates = selected.sum(axis=0) / rows.sum(axis=0)
        assert np.ptp(rates) == pytest.approx(
            gap(test.y, decisions, sensitive_features=test.groups)
        )
    assert len(result["points"]) == 4
    json.dumps(record, allow_nan=False)
    if isinstance(model, ThresholdClassifier):
        check_scores(result, model, held)
    else:
        assert result["logits"] is None


def check_scores(result: dict[str, Any], model: ThresholdClassifier, held: Dataset) -> None:
    """Recompute the histogram of calibration scores, and the validation accuracies."""
    stored = result["logits"]
    counts = np.array(stored["counts"])
    assert counts.sum(axis=-1).tolist() == result["rows"]["calibration"]
    logits = model.logits(held.X, sensitive_features=held.groups)
    for label in (0, 1):
        for a, group in enumerate(result["groups"]):
            rows = logits[(held.y == label) & (held.groups == group)]
            span = stored["low"], stored["high"]
            expected = np.histogram(np.clip(rows, *span), counts.shape[-1], span)[0]
            assert np.abs(expected - counts[label, a]).sum() <= 2  # rounding at an edge
    best = int(np.argmin(model.frontier_.gap))
    fairest = model.frontier_.points.read(np.array([best]))[0][0]
    assert stored["fairest"] == pytest.approx(fairest, abs=1e-4)
    history = getattr(model, "history_", None)
    if history is None:
        assert result["epochs"] is None
    else:
        (curve,) = result["epochs"]["accuracy"]
        assert curve == pytest.approx(history["accuracy"].tolist(), abs=1e-5)


def test_a_trial_gives_the_same_result_again() -> None:
    config = trials("EPO")[0]
    first, second = run_trial(config), run_trial(config)
    assert first["result"] == second["result"]


def test_an_error_becomes_part_of_the_record() -> None:
    config = trials("net")[0]
    config["method"]["network"] = {"epochs": 2, "hidden": "wide"}
    record = run_trial(config)
    assert "`hidden`" in record["error"]
    assert "result" not in record


def test_networks_of_a_trial_share_initial_weights() -> None:
    parts = split("compas", 3)
    nets = []
    for name in ("net", "GFB", "YOTO", "EPO", "FairBiNN"):
        config = trials(name, seeds=[3])[0]
        model = make_model(config, parts)
        network = model.get_params()["estimator" if name == "net" else "network"]
        network.set_params(learning_rate=1e-30, average=None, epochs=1)
        model.fit(parts.fit.X, parts.fit.y, sensitive_features=parts.fit.groups)
        nets.append(model.net_ if hasattr(model, "net_") else model.nets_[0])
    first = dict(nets[0].named_parameters())
    for net in nets[1:]:
        for key, weights in net.named_parameters():
            if not key.startswith("film"):
                one = weights.detach()[: len(first[key])]  # of the first setting
                np.testing.assert_allclose(one.numpy(), first[key].detach().numpy(), atol=1e-20)


def test_a_null_method_has_other_weights_and_the_same_test_rows() -> None:
    methods = [METHODS[0], {"name": "null", "same_as": "net", "seed_offset": 7}]
    net, null = (run_trial(c) for c in trials(methods=methods))
    assert net["result"]["rows"] == null["result"]["rows"]
    assert net["result"]["states"] != null["result"]["states"]


def test_cost_is_measured_for_every_method() -> None:
    costs = [c for c in trials(cost={"epochs": 2}) if c["kind"] == "cost"]
    assert len(costs) == len(METHODS)
    for config in costs:
        record = run_trial(config)
        assert "error" not in record, record.get("traceback")
        times = record["timing"]
        assert {"train", "adapt_one", "adapt_many", "predict_one", "predict_many"} <= set(times)
        assert all(seconds > 0 for seconds in times.values())


# ---- test rows stay sealed ---------------------------------------------------------------------


def test_test_rows_are_opened_once_and_last() -> None:
    sealed = SealedRows(lambda: load_compas())
    with pytest.raises(SealedRowsError, match="sealed until"):
        sealed.open()
    sealed.release()
    assert len(sealed.open()) == len(load_compas())
    with pytest.raises(SealedRowsError, match="once"):
        sealed.open()


class Spy(fairdial.FairBayes):  # type: ignore[misc]
    """Looks for test rows wherever Python keeps anything."""

    found: list[str] = []  # noqa: RUF012
    forbidden: set[Any] = set()  # noqa: RUF012

    @classmethod
    def look(cls, when: str) -> None:
        for thing in gc.get_objects():
            compas = isinstance(thing, pd.DataFrame) and "priors_count" in thing.columns
            if compas and cls.forbidden & set(thing.index):
                cls.found.append(f"{when}: {len(thing)} rows")

    def _fit(self, X: Any, y: Any, sensitive_features: Any, **more: Any) -> Any:
        self.look("fit")
        return super()._fit(X, y, sensitive_features, **more)

    def calibrate(self, X: Any, y: Any = None, *, sensitive_features: Any = None) -> Any:
        self.look("calibrate")
        return super().calibrate(X, y, sensitive_features=sensitive_features)

    def logits(self, X: Any, *, sensitive_features: Any = None) -> Any:
        self.look("evaluate")
        return super().logits(X, sensitive_features=sensitive_features)


def test_a_method_cannot_reach_test_rows_while_it_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = load_compas().X.index
    parts = load_compas().paper_split(0)
    assert whole.is_unique
    Spy.found, Spy.forbidden = [], set(parts.test.X.index)
    del parts
    gc.collect()
    monkeypatch.setattr(model_module, "ESTIMATORS", {**ESTIMATORS, "FairBayes": Spy})
    record = run_trial(trials("lines")[0])
    assert "error" not in record, record.get("traceback")
    assert Spy.found  # the spy can see: test rows are there when they are evaluated
    assert all(line.startswith("evaluate") for line in Spy.found), Spy.found


def test_the_parts_of_a_split_have_no_row_in_common() -> None:
    parts = split("compas", 5)
    parts.test.release()
    index = [set(part.X.index) for part in (parts.fit, parts.calibration, parts.test.open())]
    assert sum(map(len, index)) == len(load_compas()) == len(set.union(*index))
    assert 0.1 < parts.validation.mean() < 0.15
    held = load_compas().paper_split(5).validation
    assert set(parts.fit.X.index[parts.validation]) == set(held.X.index)


def test_exploration_counts_validation_rows_and_stops_early_on_others() -> None:
    parts = split("compas", 5, evaluate="validation")
    parts.test.release()
    whole = load_compas().paper_split(5)
    assert parts.test.open().X.index.tolist() == whole.validation.X.index.tolist()
    assert set(parts.fit.X.index) == set(whole.train.X.index)
    assert 0.1 < parts.validation.mean() < 0.15


def test_few_training_rows_leave_the_other_rows_as_they_are() -> None:
    few, all_ = split("compas", 5, train_rows=200), split("compas", 5)
    groups, counts = np.unique(few.fit.groups, return_counts=True)
    assert counts.tolist() == [200] * len(groups)
    assert set(few.fit.X.index) < set(all_.fit.X.index)
    assert few.calibration.X.index.tolist() == all_.calibration.X.index.tolist()
    assert set(few.fit.X.index[few.validation]) < set(all_.fit.X.index[all_.validation])


def test_initializations_share_all_rows_and_differ_in_their_weights() -> None:
    configs = trials("net", inits=3)
    assert [config.get("init", 0) for config in configs] == [0, 1, 2]
    assert configs[0] == trials("net")[0]
    records = [run_trial(config)["result"] for config in configs]
    assert len({record["data"] for record in records}) == 1
    assert len({json.dumps(record["states"]) for record in records}) == 3


def test_cross_fitting_finds_the_frontier_on_all_rows() -> None:
    method = METHODS[-1] | {"calibration": "crossed"}
    rows = run_trial(trials("lines", methods=[method])[0])["result"]["rows"]
    parts = split("compas", 0)
    assert np.sum(rows["calibration"]) == len(parts.fit) + len(parts.calibration)


@pytest.mark.parametrize("seen", [False, True])
def test_a_scorer_sees_the_group_where_the_plan_says_so(seen: bool) -> None:
    (config,) = trials("lines", methods=[METHODS[-1] | {"sees_group": seen}])
    parts = read_parts(config)
    tables = [parts.fit, parts.calibration]
    parts.test.release()
    for rows in [*tables, parts.test.open()]:
        assert (GROUP_COLUMN in rows.X) == seen
        if seen:
            assert (rows.X[GROUP_COLUMN] == rows.groups).all()
    assert "error" not in run_trial(config)


def test_several_scorers_are_averaged() -> None:
    names = ["gradient boosting", "logistic regression", "network"]
    method = {"name": "all", "estimator": "FairBayes", "scorer": names, "network": QUICK}
    config = trials("all", methods=[method])[0]
    assert "error" not in run_trial(config)
    model = make_model(config, split("compas", 0))
    trees, lines, network = model.estimator
    assert isinstance(trees[-1], HistGradientBoostingClassifier)  # as the command line has them
    assert isinstance(lines[0], TableEncoder)
    assert isinstance(network, Network)


def test_the_encoder_of_a_method_is_that_of_its_logistic_regression_too() -> None:
    method = {"name": "lines", "estimator": "FairBayes", "scorer": "logistic regression"}
    config = trials("lines", methods=[method | {"encoder": {"n_bins": 7}}])[0]
    assert make_model(config, split("compas", 0)).estimator[0].n_bins == 7


# ---- any criterion and objective ---------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"criteria": ["equalized_odds"]},
        {"criteria": ["equalized_odds+true_positive_rate>=0.6"], "objective": [1, 2]},
        {"criteria": ["demographic_parity_ratio"], "objective": "f1"},
        {"criteria": ["demographic_parity=0.1+equal_opportunity=0.05"]},
        {"criteria": ["equalized_odds"], "arguments": {"nested": True}},
        {"criteria": ["equalized_odds"], "arguments": {"randomize": "hash"}},
    ],
)
def test_a_trial_of_any_problem_counts_the_models_own_decisions(changes: dict[str, Any]) -> None:
    lines = METHODS[-1] | {"arguments": changes.get("arguments", {})}
    plan = {k: v for k, v in changes.items() if k != "arguments"} | {"methods": [lines]}
    config = trials(tolerances=[0.02, 0.1], **plan)[0]
    record = run_trial(config)
    assert "error" not in record, record.get("traceback")
    result = record["result"]
    json.dumps(record, allow_nan=False)
    parts = split("compas", 0)
    model = make_model(config, parts)
    model.fit(parts.fit.X, parts.fit.y, sensitive_features=parts.fit.groups)
    held = parts.calibration
    model.calibrate(held.X, held.y, sensitive_features=held.groups)
    test = load_compas().paper_split(0).test
    columns = np.moveaxis(result["states"]["test"], -1, 0)
    states = dict(zip(result["states"]["state"], columns, strict=True))
    assert len(states) == len(result["states"]["state"])
    for tolerance, state in zip(config["tolerances"], result["grid"], strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FairdialWarning)
            decided = model.predict(test.X, sensitive_features=test.groups, tolerance=tolerance)
        for label in (0, 1):
            for a, group in enumerate(result["groups"]):
                cell = (test.y == label) & (test.groups == group)
                assert states[state][label, a] == decided[cell].sum()
    trial = read_trial(record)
    assert np.isfinite(trial.curve).all()
    assert len(trial.points) == 4


def test_points_that_a_search_adds_to_a_path_have_numbers_of_their_own() -> None:
    z = np.array([0.4, -1.0, -0.8, -4.9, 3.6, 2.3, -0.7, 1.5])
    groups, y = np.repeat(["a", "b"], 4), np.array([1, 0, 0, 1, 0, 1, 0, 0])
    frontier = fairdial.sweep(z, groups, y, criterion="equal_opportunity", min_count=1)
    states = States(frontier)
    numbers = states.add(_choose(frontier, [1.0, 0.5, 0.0]))
    for tolerance, number in zip((1.0, 0.5, 0.0), numbers, strict=True):
        (point,) = _choose(frontier, [tolerance])
        assert np.array_equal(states[number].thresholds, point.thresholds)
    assert states.add(_choose(frontier, [1.0, 0.5, 0.0])) == numbers
