"""The page's functions, run in node, give the figures of the Python frontier to the last bit."""

from __future__ import annotations

import re
import shutil
import subprocess
import warnings
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairdial import FairdialWarning, Frontier, criterion, measure, sweep
from fairdial.core.point import Point
from fairdial.core.sweep import measure_counts
from fairdial.serve import page_data as module
from fairdial.serve.page import STATIC, render_index
from fairdial.serve.page_data import page_data

CRITERIA = ("demographic_parity", "equal_opportunity", "predictive_equality")


def at(frontier: Frontier, tolerance: float) -> Point:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairdialWarning)
        return frontier.at(tolerance)


def quiet(frontier: Frontier) -> Frontier:
    """The same, with nothing to say about new rows, which takes a while."""
    return replace(frontier, certificate="none")


def assert_is_point(position: dict[str, Any], point: Point) -> None:
    """What the page shows is the point, to the last row and the last bit."""
    assert position["selected"] == point.selected.ravel().tolist()
    assert position["gap"] == point.gap
    assert position["accuracy"] == point.accuracy
    assert position["feasible"] == point.feasible
    if point.is_family:
        assert position["setting"] == point.setting
        return
    shown = [np.nan if x is None else x for x in position["thresholds"]]  # JSON has no infinity
    finite = np.isfinite(point.thresholds)
    assert np.array_equal(np.isfinite(shown), finite)
    assert np.abs(np.array(shown) - point.thresholds)[finite].max(initial=0.0) <= 0.0005 + 1e-12


def certified_stops(node: Any, document: dict[str, Any]) -> list[float]:
    """The stops with a statement about new rows."""
    certified, slider = document["certified"], document["slider"]
    numbers = node("ints", certified["numbers"], certified["stops"])
    return [number / 10 ** slider["digits"] for number in numbers]


@pytest.fixture
def opened(node, document):
    node("open", document)
    return node


# ---- points ------------------------------------------------------------------------------------


def test_every_stop_of_the_slider_is_the_frontiers_point(opened, frontier, document):
    stops = range(document["slider"]["stops"] + 1)
    tolerances = opened("many", "stop", *([i] for i in stops))
    assert tolerances == [i / 10 ** document["slider"]["digits"] for i in stops]
    points = opened("many", "at", *([t] for t in tolerances))
    for tolerance, position in zip(tolerances, points, strict=True):
        assert_is_point(position, at(frontier, tolerance))


def test_tolerances_at_and_just_below_every_gap_lead_to_the_frontiers_point(opened, frontier):
    gaps = frontier.gap[:: max(len(frontier) // 60, 1)]
    tolerances = np.concatenate([gaps, np.nextafter(gaps, 0.0)]).tolist()
    tolerances = opened("many", "snap", *([t, False] for t in tolerances))
    for tolerance, position in zip(
        tolerances, opened("many", "at", *([t] for t in tolerances)), strict=True
    ):
        assert_is_point(position, at(frontier, tolerance))


GROUPS = st.integers(1, 4)
TIES = st.sampled_from([-2.0, -1.0, -0.25, 0.0, 0.25, 1.0, 2.0])


@st.composite
def small_frontiers(draw: st.DrawFn) -> Frontier:
    """Few rows, many ties, one to four groups, swept or measured, with labels or without."""
    n_groups, n = draw(GROUPS), draw(st.integers(12, 40))
    kind = draw(st.sampled_from(CRITERIA))
    labeled = kind != "demographic_parity" or draw(st.booleans())
    groups = np.arange(n) % n_groups
    y = (np.arange(n) // n_groups % 2) if labeled else None
    if draw(st.booleans()):
        score = TIES if draw(st.booleans()) else st.floats(-5, 5)
        logits = draw(st.lists(score, min_size=n, max_size=n))
        return sweep(logits, groups, y, criterion=kind, min_count=1)
    line = st.lists(st.sampled_from([-1.0, 1.0]), min_size=n, max_size=n)
    margins = draw(st.lists(line, min_size=1, max_size=5))
    return measure(margins, groups, y, criterion=kind, min_count=1)


@settings(max_examples=60)
@given(small_frontiers(), st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_any_frontier_gives_the_same_points(node, frontier, given_tolerances):
    found = node("open", page_data(quiet(frontier)))
    reachable = frontier.points.reachable
    shown = (
        reachable if frontier.is_family else reachable[reachable]
    )  # of a path only these are sent
    assert found["reachable"] == np.flatnonzero(shown).tolist()
    tolerances = [*given_tolerances, *frontier.gap.tolist()]
    tolerances = node("many", "snap", *([t, False] for t in tolerances))
    points = node("many", "at", *([t] for t in tolerances))
    for tolerance, position in zip(tolerances, points, strict=True):
        assert_is_point(position, at(frontier, tolerance))


def test_the_unconstrained_point_is_the_first(opened, frontier):
    assert_is_point(opened("dial", "unconstrained"), at(frontier, 1.0))


@pytest.mark.parametrize("most", [500, 1])
def test_where_points_are_left_out_a_tolerance_is_rounded_down_to_an_exact_one(
    node, monkeypatch, two_groups, most
):
    monkeypatch.setattr(module, "MOST_POINTS", most)
    document = page_data(quiet(two_groups))
    decimals = document["states"]["decimals"]
    node("open", document)
    for tolerance in np.random.default_rng(0).random(200) * two_groups.gap[0]:
        snapped = node("dial", "snap", float(tolerance), False)
        assert tolerance - 10.0**-decimals < snapped <= tolerance
        assert snapped == float(f"{snapped:.{decimals}f}")
        assert_is_point(node("dial", "at", snapped), at(two_groups, snapped))


def test_where_all_points_are_there_a_tolerance_stays_itself(opened):
    assert opened("dial", "snap", 0.0123456789, False) == 0.0123456789


# ---- new rows ----------------------------------------------------------------------------------


def test_certified_points_are_the_frontiers(opened, frontier, document):
    refused = 0
    for tolerance in certified_stops(opened, document):
        position = opened("dial", "certifiedAt", tolerance)
        assert position["tolerance"] == tolerance
        if position["guarantee"]["able"]:
            point = frontier.at(tolerance, confidence=0.95)
            assert_is_point(position, point)
            assert position["guarantee"]["bound"] == point.certified_gap
        else:
            refused += 1
            assert_is_point(position, at(frontier, tolerance))
    assert 0 < refused < document["certified"]["stops"]


def test_between_certified_stops_the_one_below_holds(opened, document):
    stops = certified_stops(opened, document)
    for below, stop in pairwise(stops):
        assert opened("dial", "snap", stop, True) == stop
        assert opened("dial", "snap", float(np.nextafter(stop, 0)), True) == below
        assert opened("dial", "certifiedAt", float(np.nextafter(stop, 0)))["tolerance"] == below
        assert opened("dial", "certifiedNext", below, 1) == stop
        assert opened("dial", "certifiedNext", stop, -1) == below
        near = below + 0.4 * (stop - below)
        assert opened("dial", "certifiedNear", near) == below
        assert opened("dial", "certifiedNear", stop - 0.4 * (stop - below)) == stop
    assert opened("dial", "certifiedNext", stops[0], -1) == stops[0]
    assert opened("dial", "certifiedNext", stops[-1], 1) == stops[-1]
    assert opened("dial", "snap", document["certified"]["smallest"], True) in stops


def test_stops_of_the_slider_are_rounded_down(opened, document):
    slider = document["slider"]
    for number in range(slider["stops"] + 1):
        stop = number / 10 ** slider["digits"]
        assert opened("dial", "stopBelow", stop) == stop
        if number:
            below = (number - 1) / 10 ** slider["digits"]
            assert opened("dial", "stopBelow", float(np.nextafter(stop, 0))) == below
    assert opened("dial", "stopBelow", 1.0) == slider["stops"] / 10 ** slider["digits"]


def test_what_is_in_use_is_looked_up_only_where_the_answer_is_exact(opened, frontier, document):
    slider = document["slider"]
    end = slider["stops"] / 10 ** slider["digits"]

    def selected(**used: Any) -> Any:
        found = opened("dial", "pointIn", used)
        return None if found is None else found["selected"]

    plain = at(frontier, 0.0123).selected.ravel().tolist()
    assert selected(tolerance=0.0123, confidence=None) == plain
    certified = frontier.at(end, confidence=0.95).selected.ravel().tolist()
    assert selected(tolerance=end, confidence=0.95) == certified
    assert selected(tolerance=end, confidence=0.9) is None  # another confidence
    assert selected(tolerance=float(np.nextafter(end, 0)), confidence=0.95) is None  # no stop
    assert selected(tolerance=0.0, confidence=0.95) is None  # can't be certified
    given = frontier.counts.tolist()
    assert selected(tolerance=0.3, confidence=0.9, selected=given) == np.ravel(given).tolist()
    assert opened("dial", "pointIn", None) is None


# ---- tables ------------------------------------------------------------------------------------


def test_the_table_is_the_points(opened, frontier):
    for tolerance in (0.0, 0.05, 1.0):
        point = at(frontier, tolerance)
        lines = opened("dial", "table", point.selected.ravel().tolist())
        frame = point.to_frame()
        names = {
            "selected": "selection_rate",
            "truePositive": "true_positive_rate",
            "falsePositive": "false_positive_rate",
            "correct": "accuracy",
        }
        for line, group in zip(lines, point.groups, strict=False):
            assert line["group"]["name"] == str(group)
            assert line["people"] == frame.loc[group, "rows"]
            for name, column in names.items():
                if column in frame:
                    part, whole = line[name]
                    assert part / whole == frame.loc[group, column]
                else:
                    assert line[name] is None
        everybody = lines[len(point.groups)]
        assert everybody["people"] == frontier.counts.sum()
        assert everybody["selected"] == [int(point.selected.sum()), int(frontier.counts.sum())]
        if point.accuracy is not None:
            part, whole = everybody["correct"]
            assert part / whole == point.accuracy


@pytest.mark.parametrize("kind", CRITERIA)
@pytest.mark.parametrize(("before", "after"), [(1.0, 0.02), (0.02, 0.15), (0.3, 0.3)])
def test_flips_are_those_of_the_rows(node, kind, before, after):
    rng = np.random.default_rng(4)
    groups, y = rng.integers(0, 3, 900), rng.integers(0, 2, 900)
    logits = rng.normal(groups * 0.6 - 0.5 + y, 1.5).round(1)
    frontier = sweep(logits, groups, y, criterion=kind)
    node("open", page_data(quiet(frontier)))
    found = node(
        "dial",
        "flips",
        *(node("dial", "at", tolerance)["selected"] for tolerance in (before, after)),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairdialWarning)
        moved = frontier.flips(logits, groups, before, after)
    for a, line in enumerate(found):
        assert line["gained"] == (moved[groups == a] == 1).sum()
        assert line["lost"] == (moved[groups == a] == -1).sum()
        assert line["byLabel"] == [moved[(groups == a) & (y == label)].sum() for label in (0, 1)]


def test_the_histogram_holds_every_row(node, two_groups):
    node("open", page_data(quiet(two_groups)))
    found = node("histogram")
    for group, rows in zip(found["groups"], two_groups.counts.T.tolist(), strict=True):
        bins = len(group["edges"]) - 1
        assert [len(counts) for counts in group["labels"]] == [bins, bins]
        assert [sum(counts) for counts in group["labels"]] == rows
        assert found["low"] <= group["edges"][0] < group["edges"][-1] <= found["high"]


# ---- phrases -----------------------------------------------------------------------------------


@given(st.floats(0, 1))
def test_points_are_the_tolerance_moved_by_two_places_and_nothing_else(node, tolerance):
    text = node("phrases", "points", tolerance, 3)
    assert float(f"{text}e-2") == tolerance
    assert float(node("phrases", "shift", text, -2)) == tolerance


@pytest.mark.parametrize(
    ("value", "places", "text"),
    [(0.053, 2, "5.3"), (1e-7, 2, "0.00001"), (1, 2, "100"), (0, 2, "0"), ("5", -2, "0.05"),
     ("12.50", -2, "0.125"), ("100", -2, "1"), (".5", -2, "0.005")],
)  # fmt: skip
def test_the_point_is_moved_in_the_text(node, value, places, text):
    assert node("phrases", "shift", value, places) == text


@pytest.mark.parametrize(
    ("text", "share"),
    [("5", 0.05), (" 12,5 ", 0.125), ("3 %", 0.03), (".5", 0.005), ("7.", 0.07), ("100", 1.0),
     ("0", 0.0), ("101", None), ("-1", None), ("", None), ("a few", None), ("1e1", None)],
)  # fmt: skip
def test_percentages_are_read_as_people_type_them(node, text, share):
    assert node("phrases", "typed", text) == share


@pytest.fixture
def loans():
    """100 women, 200 men: 20 and 100 of them are selected, and half of all repay."""
    scores = np.r_[np.linspace(1, 2, 20), np.linspace(-2, -1, 80)]
    men = np.r_[np.linspace(1, 2, 100), np.linspace(-2, -1, 100)]
    y = np.r_[np.tile([0, 1], 50), np.tile([0, 1], 100)]
    return {
        name: page_data(
            quiet(sweep(np.r_[scores, men], ["Female"] * 100 + ["Male"] * 200, y, criterion=name)),
            people={"Female": "women", "Male": "men"},
            labels=("default", "repaid") if name != "predictive_equality" else None,
        )
        for name in CRITERIA
    }


def numbers(text: str) -> list[str]:
    """The numbers of a sentence, in order."""
    return re.findall(r"\d[\d,]*(?:\.\d+)?", text)


def test_the_sentence_has_the_figures_of_the_point(node, loans):
    node("open", loans["demographic_parity"])
    text = node("say", "sentence", node("dial", "unconstrained"))
    assert numbers(text) == ["100", "20", "100", "50", "30.0", "100.0"]
    text = node("say", "sentence", node("dial", "at", 0.1))
    assert numbers(text) == ["100", "40", "100", "50", "10.0", "10.0", "30.0"]
    assert text.index("women") < text.index("40") < text.index(" men,") < text.index("50")


def test_the_sentence_names_the_label_of_eligible_people(node, loans):
    for kind, label in (("equal_opportunity", "“repaid”"), ("predictive_equality", "negative")):
        node("open", loans[kind])
        assert label in node("say", "rates", node("dial", "unconstrained"))


def test_the_sentence_names_the_lowest_and_the_highest_of_many_groups(node):
    scores = np.r_[np.full(30, 1.0), np.full(70, -1.0)]
    logits = np.r_[scores, -scores, np.full(50, 1.0), np.full(50, -1.0)]
    frontier = sweep(logits, ["a"] * 100 + ["b"] * 100 + ["c"] * 100)
    node("open", page_data(quiet(frontier)))
    text = node("say", "rates", node("dial", "unconstrained"))
    assert numbers(text) == ["100", "30", "100", "70"]
    assert re.findall(r"group (\w)\b", text) == ["a", "b"]


def test_a_limit_out_of_reach_is_shown_with_the_gap_that_is_reached(node):
    margins = np.r_[np.full(50, 1.0), np.full(50, -1.0), np.full(100, 2.0)]
    node("open", page_data(quiet(measure(margins[None], np.arange(200) // 100))))
    point = node("dial", "at", 0.2)
    assert not point["feasible"]
    assert numbers(node("say", "gapAndLimit", point)) == ["50.0", "20.0"]


def test_a_guarantee_has_its_bound_and_a_refusal_the_number_of_people_needed(opened, document):
    slider, certified = document["slider"], document["certified"]
    last = opened("dial", "certifiedAt", slider["stops"] / 10 ** slider["digits"])
    found = numbers(opened("say", "guarantee", last))
    assert float(found[0]) >= 100 * last["guarantee"]["bound"]
    assert (len(found) > 1) == (certified["kind"] == "declared")  # a second bound, after looking
    assert numbers(opened("say", "verdict", last)) == ["95"]
    step = opened("dial", "certifiedAt", slider["step"] / 10 ** slider["digits"])
    needed = step["guarantee"]["needed"]
    assert (f"{needed:,}" in numbers(opened("say", "guarantee", step))) == bool(needed)


def test_the_bound_that_is_shown_is_never_below_the_one_that_holds(opened, frontier, document):
    digits = document["slider"]["digits"]
    for tolerance in np.linspace(0, frontier.gap[0], 20):
        point = at(frontier, float(tolerance))
        text = opened("say", "guarantee", opened("dial", "at", float(tolerance)))
        level, shown, *_ = numbers(text)
        assert level == "95"
        true = 100 * min(point.gap + frontier.margin(0.95), 1.0)
        assert true - 1e-9 <= float(shown) <= true + 10.0 ** (2 - digits)


def test_a_loose_bound_names_the_smallest_group(node):
    sizes = (2_000, 90)
    rng = np.random.default_rng(0)
    groups = np.repeat(["many", "few"], sizes)
    y = np.arange(sum(sizes)) % 2
    node("open", page_data(sweep(rng.normal(size=sum(sizes)), groups, y)))
    text = node("say", "guarantee", node("dial", "unconstrained"))
    assert "only 90 people in group few" in text


def test_the_smallest_guaranteed_limit_can_be_set(opened, document):
    certified, slider = document["certified"], document["slider"]
    text = opened("say", "guarantee", opened("dial", "certifiedAt", 0))
    shown = numbers(text)[-1]
    assert len(shown.partition(".")[2]) == slider["digits"] - 2
    assert float(f"{shown}e-2") == certified["smallest"]
    assert opened("dial", "certifiedAt", opened("phrases", "typed", shown))["guarantee"]["able"]


def test_a_bound_of_one_is_not_shown(node):
    rng = np.random.default_rng(0)
    groups, y = np.arange(100) % 10, np.arange(100) // 10 % 2
    frontier = sweep(rng.normal(size=100), groups, y, min_count=1)
    assert frontier.gap[0] + frontier.margin(0.95) >= 1
    node("open", page_data(frontier))
    text = node("say", "guarantee", node("dial", "unconstrained"))
    assert numbers(text) == ["95", "10", "0"]  # confidence, people of group 0


def test_without_a_margin_only_a_limit_chosen_beforehand_is_guaranteed(node):
    rng = np.random.default_rng(0)
    groups, y = np.arange(1500) % 3, np.arange(1500) // 3 % 2
    frontier = sweep(rng.normal(2.0 * y - 1), groups, y, criterion="accuracy_parity")
    node("open", page_data(frontier))
    for step in (node("dial", "certifiedAt", 0), node("dial", "certifiedAt", 0.9)):
        assert numbers(node("say", "guarantee", step))
        assert "NaN" not in node("say", "guarantee", step)
    assert numbers(node("say", "guarantee", node("dial", "unconstrained"))) == ["95"]


def test_a_typed_limit_that_is_rounded_says_from_what_to_what(node, two_groups):
    node("open", page_data(quiet(two_groups)))
    assert numbers(node("say", "typedTo", 0.053, 0.05)) == ["5.3", "5.0"]
    assert node("say", "typedTo", 0.053, 0.053) == ""
    assert numbers(node("say", "typedTo", None, 0.05)) == ["0", "100"]


def one_change(changed_right: int, changed_wrong: int) -> dict[str, Any]:
    """A dial of 2,000 rows; its lower limit changes so many decisions to right and to wrong."""
    free = np.array([[100, 200], [300, 400]])
    limited = free + np.array([[changed_wrong, 0], [changed_right, 0]])
    frontier = measure_counts(
        np.array([0.0, 1.0]), np.stack([free, limited]), np.full((2, 2), 500),
        criterion("demographic_parity"), ("a", "b"), declared=np.ones(2, bool), min_count=1,
    )  # fmt: skip
    return page_data(quiet(frontier)) | {"measured": False}


@pytest.mark.parametrize(
    ("right", "wrong", "fewer", "by_chance"),
    [(42, 58, 16, True), (10, 60, 50, False), (30, 70, 40, False), (49, 51, 2, True)],
)
def test_a_cost_that_chance_explains_is_not_a_finding(node, right, wrong, fewer, by_chance):
    node("open", one_change(right, wrong))
    free, point = node("dial", "unconstrained"), node("dial", "at", 0.12)
    found = node("dial", "corrected", free["selected"], point["selected"])
    assert found == {"gained": right, "lost": wrong}
    text = node("say", "cost", point)
    accuracy = [f"{100 * p['accuracy']:.1f}" for p in (point, free)]
    assert numbers(text) == [*accuracy, "2,000", str(fewer)]
    assert ("may be chance" in text) == by_chance
    assert by_chance == (abs(right - wrong) / np.sqrt(right + wrong) <= 1.96)


def test_weights_and_families_have_no_test_of_chance(node, family):
    node("open", page_data(quiet(family)))
    for number in range(0, 300, 20):
        assert "chance" not in node("say", "cost", node("dial", "at", number / 1000))


def test_groups_of_fewer_than_thirty_people_come_with_a_caution(node):
    rng = np.random.default_rng(0)
    groups = np.repeat(["many", "thirty", "few"], (200, 30, 29))
    frontier = sweep(rng.normal(size=259), groups, np.arange(259) % 2, min_count=1)
    document = page_data(quiet(frontier))
    node("open", document)
    few = document["groups"].index({"name": "few", "people": None})
    assert node("dial", "fewOf") == [few]
    assert numbers(node("say", "caution")) == ["29"]
    node("open", page_data(quiet(sweep(rng.normal(size=200), np.arange(200) % 2))))
    assert node("say", "caution") == ""


def test_the_slider_starts_at_the_first_limit_in_reach(opened, document):
    first, last = opened("dial", "ends", False)
    unit = 10 ** document["slider"]["digits"]
    assert last == document["slider"]["stops"]
    assert opened("dial", "at", first / unit)["feasible"]
    assert first == 0 or not opened("dial", "at", (first - 1) / unit)["feasible"]
    first, last = opened("dial", "ends", True)
    assert first / unit == document["certified"]["smallest"]
    assert opened("dial", "certifiedAt", first / unit)["guarantee"]["able"]
    assert last >= document["slider"]["stops"]


def test_the_ends_of_the_slider_are_gaps_that_the_dial_has(opened, frontier, document):
    reachable = frontier.gap[frontier.points.reachable]
    digits = document["slider"]["digits"]
    smallest = at(frontier, 0.0).gap
    for text, gap in zip(opened("say", "ends", False), (smallest, reachable[0]), strict=True):
        shown = re.search(r"\((?:under )?([\d.]+)\)$", text).group(1)
        assert abs(float(shown) - 100 * gap) <= 0.5 * 10.0 ** (2 - digits) + 1e-9 or "under" in text


def test_times_have_seconds_and_a_zone(node):
    text = node("phrases", "time", "2026-11-16T09:30:05.123Z")
    assert re.fullmatch(r"Nov 1\d, 2026,? .*\d\d:\d\d:05 (UTC|GMT|[A-Z]{2,5})([+-]\S+)?", text)
    assert node("phrases", "time", "yesterday") == "yesterday"


def test_a_recorded_change_shows_a_gap_above_the_limit(node, two_groups):
    node("open", page_data(quiet(two_groups)))
    move = {
        "old": {"tolerance": 0.06, "confidence": None},
        "new": {"tolerance": 0, "confidence": 0.9},
    }
    for gap, shown in (({}, []), ({"gap": 0.0}, []), ({"gap": 0.059}, ["5.9"])):
        assert numbers(node("say", "recorded", move | gap)) == ["6.0", "0.0", "90", *shown]


def test_settings_found_by_looking_have_no_bound(node):
    rows = np.array([[500, 500], [500, 500]])
    selected = np.array([[[100, 200], [400, 450]], [[110, 150], [390, 400]]])
    declared = np.array([False, True])
    frontier = measure_counts(
        np.array([0.0, 1.0]),
        selected,
        rows,
        criterion("demographic_parity"),
        ("a", "b"),
        declared=declared,
        min_count=1,
    )
    node("open", page_data(frontier))
    for tolerance in (1.0, 0.06):
        point, shown = frontier.at(tolerance), node("dial", "at", tolerance)
        assert_is_point(shown, point)
        text = node("say", "guarantee", shown)
        assert bool(numbers(text)) == declared[int(point.setting)]


def test_every_refusal_of_the_server_has_a_message(node):
    known = {node("phrases", "refused", status, "") for status in (401, 403, 409, 422, 503)}
    assert len(known) == 5
    assert node("phrases", "refused", 412, "") == node("phrases", "refused", 409, "")
    assert "too small" in node("phrases", "refused", 422, "too small")
    assert "500" in node("phrases", "refused", 500, "")


def test_another_document_is_refused(node):
    with pytest.raises(RuntimeError, match=r"fairdial\.page"):
        node("open", {"format": "fairdial.core.frontier", "version": 1})


# ---- languages ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("language", "taken"), [("en-US@posix", "en"), ("", "en"), ("de-CH", "de-CH"), ("C", "en")]
)
def test_a_language_that_intl_refuses_is_english(language, taken):
    program = shutil.which("node")
    if program is None:
        pytest.skip("node is not installed: the page's functions can't be run")
    scripts = re.findall(r'<script src="static/([^"]+)">', render_index())
    loader = Path(__file__).with_name("load_chart.js")
    found = subprocess.run(
        [program, loader, STATIC, language, *scripts[:2]],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "uPlot" in scripts[1]
    assert found.stdout == f"{taken} function\n"
