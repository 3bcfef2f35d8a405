"""The document of the page: what it holds is the frontier's, and nothing but counts."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from fairdial import CannotCertifyError, FairBayes, Frontier, InvalidInputError, criterion, sweep
from fairdial.core.operating_points import PointTable
from fairdial.core.problem import Problem
from fairdial.datasets import make_gaussian
from fairdial.serve import page_data as module
from fairdial.serve.page_data import page_data


def ints(text: str, length: int) -> NDArray[Any]:
    """(length, columns) of packed columns, byte by byte."""
    numbers, bits, shift = [], 0, 0
    for byte in base64.b64decode(text):
        bits, shift = bits | (byte & 127) << shift, shift + 7
        if byte < 128:
            numbers.append(bits // 2 if bits % 2 == 0 else -(bits + 1) // 2)
            bits = shift = 0
    return np.cumsum(np.array(numbers).reshape(-1, length), axis=1).T


def floats(text: str) -> NDArray[Any]:
    return np.frombuffer(base64.b64decode(text), "<f8")


def rebuilt(document: dict[str, Any]) -> Frontier:
    """The walked part of a frontier from what the page is given, its figures from counts."""
    points, rows = document["states"], np.array(document["rows"])
    selected = ints(points["selected"], points["count"]).reshape(-1, *rows.shape)
    selected = selected[: points["count"] - len(floats(points["answers"]))]
    kind = criterion(document["criterion"]["name"])
    gap = kind.gap_of(selected, rows)
    unknown = np.zeros(len(gap))
    table = PointTable(unknown, gap, unknown > 0, np.zeros((len(gap), rows.shape[1])), selected)
    groups = tuple(group["name"] for group in document["groups"])
    return Frontier(table, Problem(kind), groups, rows, "none")


def stops_of(document: dict[str, Any]) -> NDArray[Any]:
    slider = document["slider"]
    return np.arange(slider["stops"] + 1) / 10 ** slider["digits"]


def assert_same_answers(frontier: Frontier, other: Frontier, tolerances: NDArray[Any]) -> None:
    points, feasible = frontier.points.find(tolerances)
    found, able = other.points.find(tolerances)
    assert np.array_equal(feasible, able)
    assert np.array_equal(frontier.points.read(points)[1], other.points.read(found)[1])
    assert np.array_equal(frontier.gap[points], other.gap[found])


def large(rows: int, n_groups: int) -> Frontier:
    """Many points, of which statements about new rows are cheap."""
    rng = np.random.default_rng(0)
    codes = np.arange(rows) % n_groups
    frontier = sweep(rng.normal(2.0 * codes - 1.0), codes, rng.random(rows) < 0.5)
    return replace(frontier, certificate="simultaneous")


@pytest.fixture(autouse=True)
def _few_certified_stops(monkeypatch):
    """Statements about new rows take a while; ``document`` was made with all of them."""
    monkeypatch.setattr(module, "CERTIFIED_STOPS", 6)


# ---- points ------------------------------------------------------------------------------------


def test_the_counts_answer_every_tolerance_as_the_frontier_does(frontier, document):
    tolerances = np.concatenate(
        [frontier.gap, np.nextafter(frontier.gap, 0), np.linspace(0, 1, 999)]
    )
    assert_same_answers(frontier, rebuilt(document), tolerances)


def test_the_document_is_json_and_survives_it(document):
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_thresholds_are_the_frontiers_to_three_decimals(two_groups):
    document = page_data(two_groups)
    kept = np.flatnonzero(two_groups.points.reachable)
    found = ints(document["states"]["thresholds"], document["states"]["count"])[: len(kept)] / 1000
    assert np.abs(found - two_groups.points.read(kept)[0]).max() <= 0.0005 + 1e-12


def test_infinite_thresholds_are_distinguished():
    logits = np.r_[np.full(80, -np.inf), np.full(40, np.inf), np.full(40, -5.0)]
    frontier = sweep(logits, np.r_[np.zeros(80), np.ones(80)])
    document = page_data(frontier)
    thresholds = frontier.points.read(np.flatnonzero(frontier.points.reachable))[0]
    found = ints(document["states"]["thresholds"], document["states"]["count"])[: len(thresholds)]
    assert np.isinf(thresholds).any()
    assert np.array_equal(np.abs(found) == module.ENDLESS, np.isinf(thresholds))
    assert np.array_equal(np.sign(found), np.sign(thresholds))


def test_a_family_comes_with_all_its_settings(family):
    points = page_data(family)["states"]
    assert np.array_equal(floats(points["settings"]), family.setting)
    assert points["thresholds"] is None


def test_the_slider_ends_at_or_just_above_the_unconstrained_gap(frontier, document):
    stops, step = stops_of(document), document["slider"]["step"]
    assert stops[-1] >= frontier.gap[0]
    assert stops[-1 - step] < frontier.gap[0]
    assert document["slider"]["stops"] % step == 0


def test_a_small_gap_has_finer_stops():
    rng = np.random.default_rng(0)
    logits, groups = rng.normal(size=6000), np.arange(6000) % 2
    document = page_data(sweep(logits, groups))
    assert document["slider"]["digits"] == 4


def test_one_group_has_nothing_to_set():
    sample = make_gaussian(500, random_state=0)
    document = page_data(sweep(sample.logits, np.zeros(500), sample.y))
    assert document["slider"]["stops"] == 0
    assert document["states"]["count"] == 1


def test_a_hundred_thousand_points_take_less_than_three_megabytes():
    frontier = large(250_000, 2)
    document = page_data(frontier)
    n_answers = len(floats(document["states"]["answers"]))
    assert document["states"]["count"] - n_answers == document["states"]["of"] > 70_000
    assert document["states"]["decimals"] is None
    assert len(json.dumps(document)) * 100_000 / document["states"]["count"] < 3e6


@pytest.mark.parametrize(("most", "decimals"), [(7000, 4), (900, 3), (1, 3)])
def test_where_points_are_left_out_tolerances_of_some_decimals_stay_exact(
    monkeypatch, most, decimals
):
    frontier = large(30_000, 2)
    monkeypatch.setattr(module, "MOST_POINTS", most)
    document = page_data(frontier)
    assert document["states"]["decimals"] == decimals
    assert document["states"]["of"] == frontier.points.reachable.sum() > document["states"]["count"]
    grid = np.arange(10**decimals + 1) / 10**decimals
    assert_same_answers(frontier, rebuilt(document), grid)
    assert_same_answers(frontier, rebuilt(document), stops_of(document))


def test_many_groups_keep_fewer_points(monkeypatch):
    monkeypatch.setattr(module, "MOST_NUMBERS", 30_000)
    document = page_data(large(30_000, 5))
    assert document["states"]["count"] * (10 + 5) <= 30_000


def test_a_thinned_frontier_answers_as_itself(two_groups):
    thin = two_groups.thin(20)
    document = page_data(thin)
    assert document["histogram"] is None
    assert_same_answers(thin, rebuilt(document), np.linspace(0, 1, 500))


def test_a_frontier_whose_gaps_were_changed_is_refused(two_groups):
    thin = two_groups.thin(20)
    thin.points.gap[3] *= 1.0001
    with pytest.raises(InvalidInputError) as refused:
        page_data(thin)
    assert refused.value.argument == "model"


# ---- new rows ----------------------------------------------------------------------------------


def test_certified_stops_are_those_of_the_frontier(frontier, document):
    certified, slider = document["certified"], document["slider"]
    size, unit = certified["stops"], 10 ** slider["digits"]
    numbers = ints(certified["numbers"], size)[:, 0]
    assert set(range(0, slider["stops"] + 1, slider["step"])) <= set(numbers.tolist())
    assert (np.diff(numbers) > 0).all()
    able, needed, each = (
        ints(certified[key], size)[:, 0] for key in ("able", "needed", "needed_each")
    )
    selected = ints(certified["selected"], size).reshape(size, *frontier.counts.shape)
    bounds = floats(certified["bounds"])
    assert 0 < able.sum() < size
    for i in range(size):
        tolerance = numbers[i] / unit
        if able[i]:
            point = frontier.at(tolerance, confidence=0.95)
            assert np.array_equal(selected[i], point.selected)
            assert bounds[i] == point.certified_gap
        else:
            with pytest.raises(CannotCertifyError) as caught:
                frontier.at(tolerance, confidence=0.95)
            assert needed[i] == (caught.value.rows_needed or 0)
            assert each[i] == (caught.value.group_rows_needed or 0)
            smallest = caught.value.smallest_tolerance
            assert smallest <= certified["smallest"] < smallest + 1 / unit  # itself, rounded up
    assert certified["smallest"] == numbers[able.argmax()] / unit
    assert certified["margin"] == frontier.margin(0.95)


def test_the_smallest_certifiable_tolerance_is_a_stop_even_beyond_the_sliders_end():
    sample = make_gaussian(300, base_rates=(0.5, 0.5), separations=(1, 1), random_state=0)
    frontier = sweep(sample.logits, sample.groups, sample.y)
    document = page_data(frontier)
    certified, slider = document["certified"], document["slider"]
    numbers = ints(certified["numbers"], certified["stops"])[:, 0]
    assert numbers[-2] == slider["stops"] < numbers[-1]
    assert ints(certified["able"], certified["stops"])[:, 0].tolist() == [0] * (
        len(numbers) - 1
    ) + [1]
    assert frontier.at(certified["smallest"], confidence=0.95).certified_gap is not None


@pytest.mark.parametrize(("certificate", "kind"), [("declared", "declared"), ("simultaneous",) * 2])
def test_the_kind_of_certificate_is_stated(two_groups, certificate, kind):
    document = page_data(replace(two_groups, certificate=certificate))
    assert document["certified"]["kind"] == kind


def test_criteria_without_a_margin_for_all_limits_have_certificates():
    rng = np.random.default_rng(0)
    groups, y = np.arange(1500) % 3, np.arange(1500) // 3 % 2
    frontier = sweep(rng.normal(2.0 * y - 1), groups, y, criterion="accuracy_parity")
    certified = page_data(frontier)["certified"]
    assert (certified["kind"], certified["margin"]) == ("declared", None)
    assert ints(certified["able"], certified["stops"]).any()


def test_more_than_two_groups_and_families_choose_after_looking(family):
    assert page_data(large(3000, 3))["certified"]["kind"] == "simultaneous"
    assert page_data(family)["certified"]["kind"] == "finite"


def test_without_a_certificate_the_reason_is_stated(two_groups, family):
    seen = page_data(replace(two_groups, certificate="none"))["certified"]
    assert seen == {"level": 0.95, "kind": "none", "reason": "seen"}
    family = Frontier.from_json(family.to_json())
    family.points.n_declared = 0
    assert page_data(family)["certified"]["reason"] == "searched"


def test_the_confidence_can_be_chosen(two_groups):
    loose = page_data(two_groups, confidence=0.6)["certified"]
    assert loose["level"] == 0.6
    assert loose["margin"] < page_data(two_groups)["certified"]["margin"]


# ---- scores ------------------------------------------------------------------------------------


def test_the_histogram_counts_each_groups_rows_by_label():
    sample = make_gaussian(3_000, random_state=3)
    document = page_data(sweep(sample.logits, sample.groups, sample.y))
    for group, histogram in zip(("group 0", "group 1"), document["histogram"], strict=True):
        edges = floats(histogram["edges"])
        bins = len(edges) - 1
        counts = ints(histogram["counts"], 2 * bins).reshape(2, bins)
        assert 0.0 in edges
        assert np.allclose(np.diff(edges), edges[1] - edges[0])
        for label in (0, 1):
            chosen = sample.logits[(sample.groups == group) & (sample.y == label)]
            inside = [
                int(((chosen > low) & (chosen <= high)).sum()) for low, high in pairwise(edges)
            ]
            inside[0] += int((chosen <= edges[0]).sum())
            inside[-1] += int((chosen > edges[-1]).sum())
            assert counts[label].tolist() == inside


def test_small_groups_have_few_bins():
    groups = np.repeat([0, 1, 2], (4, 100, 100_000))
    logits = np.random.default_rng(0).normal(size=len(groups))
    histogram = page_data(sweep(logits, groups, min_count=1))["histogram"]
    bins = [len(floats(group["edges"])) - 1 for group in histogram]
    assert bins == sorted(bins)
    assert bins[0] <= 6
    assert 8 <= bins[1] <= 12
    assert bins[2] >= 60


@pytest.mark.parametrize("value", [0.0, 3.0, -3.0, 1e-300, np.inf])
def test_scores_that_are_all_alike_have_a_histogram(value):
    frontier = sweep(np.full(100, value), np.arange(100) % 2)
    for histogram in page_data(frontier)["histogram"]:
        edges = floats(histogram["edges"])
        assert np.all(np.diff(edges) > 0)
        assert np.isfinite(edges).all()
        assert ints(histogram["counts"], len(edges) - 1).sum() == 50


# ---- names -------------------------------------------------------------------------------------


def test_a_model_brings_its_labels_and_its_tolerance():
    sample = make_gaussian(3_000, random_state=0)
    words = np.where(sample.y == 1, "repaid", "default")
    model = FairBayes(LogisticRegression(), tolerance=0.1, criterion="equal_opportunity")
    model.set_params(pos_label="repaid", random_state=0)
    model.fit(sample.logits[:, None], words, sensitive_features=sample.groups)
    document = page_data(model)
    assert document["labels"] == {"negative": "default", "positive": "repaid"}
    assert "“repaid”" in document["criterion"]["meaning"]
    assert document["deployed"]["tolerance"] == 0.1
    assert document["deployed"]["selected"] == model.frontier_.at(0.1).selected.tolist()
    assert page_data(model, tolerance=0.2)["deployed"]["tolerance"] == 0.2


def test_labels_that_are_numbers_stay_unnamed():
    sample = make_gaussian(3_000, random_state=0)
    model = FairBayes(LogisticRegression(), random_state=0)
    model.fit(sample.logits[:, None], sample.y, sensitive_features=sample.groups)
    assert page_data(model)["labels"] is None


def test_groups_may_be_renamed(two_groups):
    document = page_data(two_groups, people={"group 1": "men"})
    assert [group["people"] for group in document["groups"]] == [None, "men"]


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"name": ""}, "name"),
        ({"name": 3}, "name"),
        ({"people": {"nobody": "x"}}, "people.*nobody"),
        ({"people": {"group 0": ""}}, "people"),
        ({"labels": "yes"}, "labels"),
        ({"labels": ("a", "b", "c")}, "labels"),
        ({"labels": ("a", None)}, "labels"),
        ({"confidence": 1.0}, "confidence"),
        ({"tolerance": -0.1}, "tolerance"),
    ],
)
def test_wrong_arguments_are_named(two_groups, wrong, named):
    with pytest.raises(InvalidInputError, match=named):
        page_data(two_groups, **wrong)


def test_a_model_without_a_frontier_is_refused():
    with pytest.raises(ValueError, match="not fitted"):
        page_data(FairBayes(LogisticRegression()))
