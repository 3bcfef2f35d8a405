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

from fairdial import Frontier, InfeasibleToleranceWarning, criterion, measure, sweep
from fairdial.points import Point
from fairdial.serve import page_data as module
from fairdial.serve.packing import pack_ints
from fairdial.serve.page import STATIC, render_index
from fairdial.serve.page_data import page_data
from fairdial.sweeping import measure_counts

CRITERIA = ("demographic_parity", "equal_opportunity", "predictive_equality")


def at(frontier: Frontier, tolerance: float) -> Point:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleToleranceWarning)
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
    if point.measured:
        assert position["setting"] == point.setting
        return
    shown = [np.nan if x is None else x for x in position["thresholds"]]  # JSON has no infinity
    finite = np.isfinite(point.thresholds)
    assert np.array_equal(np.isfinite(shown), finite)
    assert np.abs(np.array(shown) - point.thresholds)[finite].max(initial=0.0) <= 0.0005 + 1e-12


def promised(node: Any, document: dict[str, Any]) -> list[float]:
    """The stops with something to say about new rows."""
    certified, slider = document["certified"], document["slider"]
    numbers = node("ints", certified["numbers"], certified["stops"])
    return [number / 10 ** slider["digits"] for number in numbers]


@pytest.fixture
def opened(node, document):
    node("open", document)
    return node


# ---- positions ---------------------------------------------------------------------------------


def test_every_stop_of_the_slider_is_the_frontiers_point(opened, frontier, document):
    stops = range(document["slider"]["stops"] + 1)
    tolerances = opened("many", "stop", *([i] for i in stops))
    assert tolerances == [i / 10 ** document["slider"]["digits"] for i in stops]
    positions = opened("many", "at", *([t] for t in tolerances))
    for tolerance, position in zip(tolerances, positions, strict=True):
        assert_is_point(position, at(frontier, tolerance))


def test_tolerances_at_and_just_below_every_gap_lead_to_the_frontiers_point(opened, frontier):
    gaps = frontier.gap[:: max(len(frontier) // 60, 1)]
    tolerances = np.concatenate([gaps, np.nextafter(gaps, 0.0)]).tolist()
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
    labelled = kind != "demographic_parity" or draw(st.booleans())
    groups = np.arange(n) % n_groups
    y = (np.arange(n) // n_groups % 2) if labelled else None
    if draw(st.booleans()):
        score = TIES if draw(st.booleans()) else st.floats(-5, 5)
        logits = draw(st.lists(score, min_size=n, max_size=n))
        return sweep(logits, groups, y, criterion=kind, min_count=1)
    line = st.lists(st.sampled_from([-1.0, 1.0]), min_size=n, max_size=n)
    margins = draw(st.lists(line, min_size=1, max_size=5))
    return measure(margins, groups, y, criterion=kind, min_count=1)


@settings(max_examples=60)
@given(small_frontiers(), st.lists(st.floats(0, 1), min_size=1, max_size=5), st.floats(0, 1))
def test_any_frontier_gives_the_same_positions_flips_and_way_back(node, frontier, wishes, goal):
    found = node("open", page_data(quiet(frontier)))
    dialled = frontier.states.dialled
    shown = dialled if frontier.measured else dialled[dialled]  # of a path only these are sent
    assert found["dialled"] == np.flatnonzero(shown).tolist()
    tolerances = [*wishes, *frontier.gap.tolist()]
    positions = node("many", "at", *([t] for t in tolerances))
    for tolerance, position in zip(tolerances, positions, strict=True):
        assert_is_point(position, at(frontier, tolerance))
    if frontier.accuracy is None:
        return
    able = dialled & (frontier.accuracy >= goal)
    found = node("dial", "leastGap", goal, False)
    assert (found is None) == (not able.any())
    if found is not None:
        point = frontier.least_disparity(accuracy=goal)
        assert_is_point(node("dial", "at", found), at(frontier, found))
        assert at(frontier, found).selected.tolist() == point.selected.tolist()


def test_the_unconstrained_position_is_the_first_state(opened, frontier):
    assert_is_point(opened("dial", "free"), at(frontier, 1.0))


@pytest.mark.parametrize("most", [500, 1])
def test_where_positions_are_left_out_a_typed_tolerance_is_rounded_down_to_an_exact_one(
    node, monkeypatch, two_groups, most
):
    monkeypatch.setattr(module, "MOST_STATES", most)
    document = page_data(quiet(two_groups))
    decimals = document["states"]["decimals"]
    node("open", document)
    for wish in np.random.default_rng(0).random(200) * two_groups.gap[0]:
        snapped = node("dial", "snap", float(wish), False)
        assert wish - 10.0**-decimals < snapped <= wish
        assert snapped == float(f"{snapped:.{decimals}f}")
        assert_is_point(node("dial", "at", snapped), at(two_groups, snapped))


def test_where_all_positions_are_there_a_typed_tolerance_stays_itself(opened):
    assert opened("dial", "snap", 0.0123456789, False) == 0.0123456789


# ---- the other way round -----------------------------------------------------------------------


def test_the_least_gap_with_an_accuracy_is_the_frontiers(opened, frontier, document):
    if frontier.accuracy is None:
        return
    low, high = frontier.accuracy.min(), frontier.accuracy[frontier.states.dialled].max()
    for goal in np.linspace(low, high, 25).tolist():
        found = opened("dial", "leastGap", goal, False)
        point = frontier.least_disparity(accuracy=goal)
        assert_is_point(opened("dial", "at", found), at(frontier, found))
        assert at(frontier, found).selected.tolist() == point.selected.tolist()
        digits = document["slider"]["digits"]
        text = opened("words", "points", found, digits)  # what the page shows, in points
        assert float(f"{text}e-2") == found
        assert found - 10.0 ** -(2 + len(text.partition(".")[2])) < point.gap  # the least such
    assert opened("dial", "leastGap", min(np.nextafter(high, 1), 1), False) is None
    assert opened("dial", "bestAccuracy", False) == high


def test_a_promised_least_gap_is_the_first_stop_that_is_accurate_enough(opened, frontier, document):
    if frontier.accuracy is None:
        return
    stops = promised(opened, document)
    goal = float(np.median(frontier.accuracy))
    good = [
        stop
        for stop in stops
        if (position := opened("dial", "certifiedAt", stop))["promise"]["able"]
        and position["accuracy"] >= goal
    ]
    assert good
    assert opened("dial", "leastGap", goal, True) == good[0]


# ---- new rows ----------------------------------------------------------------------------------


def test_promised_positions_are_the_frontiers(opened, frontier, document):
    refused = 0
    for tolerance in promised(opened, document):
        position = opened("dial", "certifiedAt", tolerance)
        assert position["tolerance"] == tolerance
        if position["promise"]["able"]:
            point = frontier.at(tolerance, confidence=0.95)
            assert_is_point(position, point)
            assert position["promise"]["bound"] == point.certified_gap
        else:
            refused += 1
            assert_is_point(position, at(frontier, tolerance))
    assert 0 < refused < document["certified"]["stops"]


def test_between_promised_stops_the_one_below_holds(opened, document):
    stops = promised(opened, document)
    for below, stop in pairwise(stops):
        assert opened("dial", "snap", stop, True) == stop
        assert opened("dial", "snap", float(np.nextafter(stop, 0)), True) == below
        assert opened("dial", "certifiedAt", float(np.nextafter(stop, 0)))["tolerance"] == below
        assert opened("dial", "promisedNext", below, 1) == stop
        assert opened("dial", "promisedNext", stop, -1) == below
        near = below + 0.4 * (stop - below)
        assert opened("dial", "promisedNear", near) == below
        assert opened("dial", "promisedNear", stop - 0.4 * (stop - below)) == stop
    assert opened("dial", "promisedNext", stops[0], -1) == stops[0]
    assert opened("dial", "promisedNext", stops[-1], 1) == stops[-1]
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
        return opened("dial", "selectedIn", used)

    plain = at(frontier, 0.0123).selected.ravel().tolist()
    assert selected(tolerance=0.0123, confidence=None) == plain
    promised = frontier.at(end, confidence=0.95).selected.ravel().tolist()
    assert selected(tolerance=end, confidence=0.95) == promised
    assert selected(tolerance=end, confidence=0.9) is None  # another confidence
    assert selected(tolerance=float(np.nextafter(end, 0)), confidence=0.95) is None  # no stop
    assert selected(tolerance=0.0, confidence=0.95) is None  # can't be promised
    told = frontier.rows.tolist()
    assert selected(tolerance=0.3, confidence=0.9, selected=told) == np.ravel(told).tolist()
    assert opened("dial", "selectedIn", None) is None


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
            "right": "accuracy",
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
        assert everybody["people"] == frontier.rows.sum()
        assert everybody["selected"] == [int(point.selected.sum()), int(frontier.rows.sum())]
        if point.accuracy is not None:
            part, whole = everybody["right"]
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
        warnings.simplefilter("ignore", InfeasibleToleranceWarning)
        moved = frontier.flips(logits, groups, before, after)
    for a, line in enumerate(found):
        assert line["gained"] == (moved[groups == a] == 1).sum()
        assert line["lost"] == (moved[groups == a] == -1).sum()
        assert line["byLabel"] == [moved[(groups == a) & (y == label)].sum() for label in (0, 1)]


def test_the_histogram_holds_every_row(node, two_groups):
    node("open", page_data(quiet(two_groups)))
    found = node("histogram")
    bins = len(found["edges"]) - 1
    for labels, rows in zip(found["groups"], two_groups.rows.T.tolist(), strict=True):
        assert [len(counts) for counts in labels] == [bins, bins]
        assert [sum(counts) for counts in labels] == rows


# ---- words -------------------------------------------------------------------------------------


@given(st.floats(0, 1))
def test_points_are_the_tolerance_moved_by_two_places_and_nothing_else(node, tolerance):
    text = node("words", "points", tolerance, 3)
    assert float(f"{text}e-2") == tolerance
    assert float(node("words", "shift", text, -2)) == tolerance


@pytest.mark.parametrize(
    ("value", "places", "text"),
    [(0.053, 2, "5.3"), (1e-7, 2, "0.00001"), (1, 2, "100"), (0, 2, "0"), ("5", -2, "0.05"),
     ("12.50", -2, "0.125"), ("100", -2, "1"), (".5", -2, "0.005")],
)  # fmt: skip
def test_the_point_is_moved_in_the_text(node, value, places, text):
    assert node("words", "shift", value, places) == text


@pytest.mark.parametrize(
    ("text", "share"),
    [("5", 0.05), (" 12,5 ", 0.125), ("3 %", 0.03), (".5", 0.005), ("7.", 0.07), ("100", 1.0),
     ("0", 0.0), ("101", None), ("-1", None), ("", None), ("a few", None), ("1e1", None)],
)  # fmt: skip
def test_percentages_are_read_as_people_type_them(node, text, share):
    assert node("words", "typed", text) == share


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


def test_the_sentence_says_what_the_position_means(node, loans):
    node("open", loans["demographic_parity"])
    assert node("say", "sentence", node("dial", "free")) == (
        "Of 100 women, 20 are selected; of 100 men, 50. That is a gap of 30.0 percentage points, "
        "within the 100.0 allowed. This is the model without constraint: 50.0% of its "
        "decisions are right."
    )
    assert node("say", "sentence", node("dial", "at", 0.1)) == (
        "Of 100 women, 40 are selected; of 100 men, 50. That is a gap of 10.0 percentage points, "
        "within the 10.0 allowed. 50.0% of all decisions are right; without constraint it is "
        "50.0%, and the gap 30.0 percentage points."
    )


def test_the_sentence_names_the_label_that_counts(node, loans):
    node("open", loans["equal_opportunity"])
    text = node("say", "rates", node("dial", "free"))
    assert text == "Of 100 women whose label is “repaid”, 20 are selected; of 100 men, 50."
    node("open", loans["predictive_equality"])
    text = node("say", "rates", node("dial", "free"))
    assert text == "Of 100 women whose label is negative, 20 are selected; of 100 men, 50."


def test_the_sentence_names_the_lowest_and_the_highest_of_many_groups(node):
    scores = np.r_[np.full(30, 1.0), np.full(70, -1.0)]
    logits = np.r_[scores, -scores, np.full(50, 1.0), np.full(50, -1.0)]
    frontier = sweep(logits, ["a"] * 100 + ["b"] * 100 + ["c"] * 100)
    node("open", page_data(quiet(frontier)))
    assert node("say", "rates", node("dial", "free")) == (
        "Of 100 people in group a (the lowest), 30 are selected; of 100 people in group b (the "
        "highest), 70. The other group lies between."
    )


def test_a_tolerance_out_of_reach_is_told(node):
    logits = np.r_[np.full(50, 1.0), np.full(50, -np.inf), np.full(100, 2.0)]
    node("open", page_data(quiet(sweep(logits, np.arange(200) // 100))))
    position = node("dial", "at", 0.2)
    assert not position["feasible"]
    assert "the smallest that the dial reaches: no position keeps within 20.0" in node(
        "say", "keeps", position
    )


def test_a_promise_says_its_condition_and_a_refusal_its_price(opened, document):
    stops = document["slider"]
    last = opened("dial", "certifiedAt", stops["stops"] / 10 ** stops["digits"])
    text = opened("say", "promise", last)
    assert "with 95% confidence" in text
    declared = document["certified"]["kind"] == "declared"
    assert ("decided on before looking" in text) == declared
    first = opened("say", "promise", opened("dial", "certifiedAt", 0))
    assert "can’t be promised" in first  # noqa: RUF001
    step = opened("dial", "certifiedAt", stops["step"] / 10 ** stops["digits"])
    needed = step["promise"]["needed"]
    assert (f"About {needed:,} like them" if needed else "No number of people") in opened(
        "say", "promise", step
    )


def test_the_bound_that_is_shown_is_never_below_the_one_that_holds(opened, frontier, document):
    digits = document["slider"]["digits"]
    for tolerance in np.linspace(0, frontier.gap[0], 20):
        point = at(frontier, float(tolerance))
        text = opened("say", "promise", opened("dial", "at", float(tolerance)))
        shown = float(re.search(r"at most ([\d.]+) percentage points?\.$", text).group(1))
        true = 100 * min(point.gap + frontier.margin(0.95), 1.0)
        assert true - 1e-9 <= shown <= true + 10.0 ** (2 - digits)


def test_the_smallest_promise_is_told_as_the_page_can_set_it(opened, document):
    certified, slider = document["certified"], document["slider"]
    text = opened("say", "promise", opened("dial", "certifiedAt", 0))
    shown = re.search(
        r"smallest that can be promised is ([\d.]+) percentage points?\.", text
    ).group(1)
    assert len(shown.partition(".")[2]) == slider["digits"] - 2
    assert float(f"{shown}e-2") == certified["smallest"]
    assert opened("dial", "certifiedAt", opened("words", "typed", shown))["promise"]["able"]


def test_a_bound_that_says_nothing_is_not_told(node):
    rng = np.random.default_rng(0)
    groups, y = np.arange(100) % 10, np.arange(100) // 10 % 2
    frontier = sweep(rng.normal(size=100), groups, y, min_count=1)
    assert frontier.gap[0] + frontier.margin(0.95) >= 1
    node("open", page_data(frontier))
    text = node("say", "promise", node("dial", "free"))
    assert "nothing can be said about it: too few people were measured" in text
    assert "100.0" not in text


def test_a_typed_gap_that_is_rounded_says_from_where_to_where(node, two_groups):
    node("open", page_data(quiet(two_groups)))
    assert node("say", "typedTo", 0.053, 0.05) == (
        "5.3 was rounded down to 5.0, the next smaller gap that this page can answer exactly."
    )
    assert node("say", "typedTo", 0.053, 0.053) == ""
    assert node("say", "typedTo", None, 0.05) == "A number from 0 to 100, please."


def with_curve(accuracies: list[float]) -> dict[str, Any]:
    """A dial of 2,000 rows whose positions have gaps 0, 0.2, 0.4 ... and these accuracies."""
    chosen = [
        [[250 - 50 * i - round(500 * (a - 0.5)), 250 + 50 * i - round(500 * (a - 0.5))],
         [250 - 50 * i + round(500 * (a - 0.5)), 250 + 50 * i + round(500 * (a - 0.5))]]
        for i, a in enumerate(accuracies)
    ]  # fmt: skip
    frontier = measure_counts(
        np.arange(len(accuracies), dtype=float),
        np.array(chosen),
        np.full((2, 2), 500),
        criterion("demographic_parity"),
        ("a", "b"),
        declared=np.ones(len(accuracies), bool),
        min_count=1,
    )
    document = page_data(quiet(frontier))
    path = np.array(chosen[::-1]).reshape(len(chosen), -1)  # the least constrained first
    document["states"] |= {"selected": pack_ints(path), "declared": None}
    return document | {"measured": False}


@pytest.mark.parametrize(
    ("accuracies", "words"),
    [
        ([0.52, 0.55, 0.58], "The smaller the gap that is allowed, the fewer decisions are right."),
        ([0.52, 0.56, 0.554, 0.58], "On the whole, the smaller the gap that is allowed, the fewer"),
        (
            [0.52, 0.58, 0.53, 0.58],
            "The share of right decisions is highest (58.0%) at a gap of 20",
        ),
        ([0.58, 0.52], "The share of right decisions is highest (58.0%) at a gap of 0.0"),
        ([0.58, 0.58, 0.58], "A smaller gap costs hardly any right decisions here."),
    ],
)
def test_what_a_smaller_gap_costs_is_what_the_curve_says(node, accuracies, words):
    node("open", with_curve(accuracies))
    assert node("say", "aboutFrontier").startswith(words)


def test_a_curve_with_its_peak_in_the_middle_names_it(node):
    rng = np.random.default_rng(5)
    groups = np.arange(2000) % 2
    y = (rng.random(2000) < np.where(groups == 1, 0.5, 0.4)).astype(int)
    logits = rng.normal(2 * y - 1 + np.where(groups == 1, 1.5, 0.0), 1.0)  # group 1 is overrated
    frontier = sweep(logits, groups, y)
    node("open", page_data(quiet(frontier)))
    dialled = np.flatnonzero(frontier.states.dialled)
    best = dialled[::-1][np.argmax(frontier.accuracy[dialled][::-1])]
    assert (
        frontier.accuracy[best] > max(frontier.accuracy[0], frontier.accuracy[dialled[-1]]) + 0.001
    )
    figures = [f"{100 * frontier.accuracy[i]:.1f}%" for i in (best, dialled[-1], 0)]
    assert node("say", "aboutFrontier") == (
        f"The share of right decisions is highest ({figures[0]}) at a gap of "
        f"{100 * frontier.gap[best]:.1f} percentage points; with the smallest gap it is "
        f"{figures[1]}, without constraint {figures[2]}. Press on the picture to go there."
    )


def test_the_ends_of_the_slider_are_gaps_that_the_dial_has(opened, frontier, document):
    dialled = frontier.gap[frontier.states.dialled]
    digits = document["slider"]["digits"]
    for text, gap in zip(opened("say", "ends"), (dialled[-1], dialled[0]), strict=True):
        shown = re.search(r"\((?:under )?([\d.]+)\)$", text).group(1)
        assert abs(float(shown) - 100 * gap) <= 0.5 * 10.0 ** (2 - digits) + 1e-9 or "under" in text


def test_the_mark_of_a_position_stands_at_its_gap_where_that_is_above_the_wish(opened, frontier):
    for tolerance in (0.0, 0.05, 1.0):
        point = at(frontier, tolerance)
        selected = point.selected.ravel().tolist()
        assert opened("dial", "standing", tolerance, selected) == max(tolerance, point.gap)


def test_times_have_seconds_and_a_zone(node):
    text = node("words", "time", "2026-11-16T09:30:05.123Z")
    assert re.fullmatch(r"\d+ Nov 2026,? .*\d\d:\d\d:05 (UTC|GMT|[A-Z]{2,5})([+-]\S+)?", text)
    assert node("words", "time", "yesterday") == "yesterday"


def test_a_recorded_move_that_reached_less_than_it_asked_says_so(node, two_groups):
    node("open", page_data(quiet(two_groups)))
    move = {
        "old": {"tolerance": 0.06, "confidence": None},
        "new": {"tolerance": 0, "confidence": 0.9},
    }
    told = "from 6.0 percentage points to 0.0 percentage points with 90% confidence"
    assert node("say", "change", move | {"gap": 0.0}) == told
    assert node("say", "change", move) == told
    assert node("say", "change", move | {"gap": 0.059}) == (
        f"{told} (the gap is 5.9, the smallest within reach)"
    )


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
        point, position = frontier.at(tolerance), node("dial", "at", tolerance)
        assert_is_point(position, point)
        text = node("say", "promise", position)
        assert ("found by looking" in text) == (not declared[int(point.setting)])
        assert ("at most" in text) == declared[int(point.setting)]


def test_every_answer_of_the_server_has_words(node):
    for status in (401, 403, 409, 412, 422, 503):
        assert "Nothing was changed." in node("words", "refused", status, "")
    assert "too small" in node("words", "refused", 422, "too small")
    assert "500" in node("words", "refused", 500, "")


def test_another_document_is_refused(node):
    with pytest.raises(RuntimeError, match=r"fairdial\.page"):
        node("open", {"format": "fairdial.frontier", "version": 1})


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
