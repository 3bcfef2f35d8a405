"""The page in a browser: what people do with it, and that it shows the frontier's figures."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from fairdial import (
    CannotCertifyError,
    Costs,
    Frontier,
    InfeasibleToleranceWarning,
    minimum,
    sweep,
)
from fairdial.core.point import Point
from fairdial.core.rising import rising_frontier
from fairdial.datasets import make_gaussian
from fairdial.serve.page import SERVED_POLICY, page_files, render_index, write_page
from fairdial.serve.page_data import page_data

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
PEOPLE = {"group 0": "women", "group 1": "men"}
LABELS = ("default", "repaid")
CALLED = {"group 0": "Women", "group 1": "Men"}
IN_USE = 0.1
DONE = "Done."


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="session")
def exported(folder, two_groups) -> Path:
    path = folder / "two.html"
    return write_page(
        two_groups, path, name="Loans", people=PEOPLE, labels=LABELS, tolerance=IN_USE
    )


@pytest.fixture(scope="session")
def exported_family(folder, family) -> Path:
    return write_page(family, folder / "family.html", name="Settings")


@pytest.fixture
def visit(page: Page) -> Iterator[Callable[[Path], Page]]:
    """Open an exported page; in the end, check that it reported and fetched nothing."""
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    opened: list[str] = []

    def go(path: Path) -> Page:
        opened.append(path.as_uri())
        page.goto(path.as_uri())
        expect(page.locator("#page")).to_be_visible()
        return page

    yield go
    assert complaints == []
    assert [url for url in asked if not url.startswith("data:")] == opened


@pytest.fixture
def loans(visit, exported) -> Page:
    return visit(exported)


def at(frontier: Frontier, tolerance: float, confidence: float | None = None) -> Point:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleToleranceWarning)
        return frontier.at(tolerance, confidence=confidence)


def settle(page: Page) -> None:
    """Until what was done is drawn."""
    page.evaluate(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )


def shown_tolerance(page: Page) -> float:
    settle(page)
    return float(page.locator("#tolerance").input_value() + "e-2")


def type_limit(page: Page, text: str) -> None:
    page.locator("#tolerance").fill(text)
    page.locator("#tolerance").press("Enter")
    settle(page)


def shown_counts(page: Page) -> dict[str, dict[str, list[tuple[int, int]]]]:
    """The table: group, position, and [part, whole] of its figures."""
    settle(page)
    lines = page.evaluate(
        """() => [...document.querySelectorAll("#groups tbody")].map((body) => ({
            group: body.rows[0].cells[0].firstChild.textContent,
            lines: [...body.rows].slice(1).map((row) => [...row.cells].map((c) => c.textContent)),
        }))"""
    )
    pattern = re.compile(r"([\d,]+) of ([\d,]+)$")

    def counts(text: str) -> tuple[int, int]:
        part, whole = pattern.search(text.partition("%")[2]).groups()  # type: ignore[union-attr]
        return int(part.replace(",", "")), int(whole.replace(",", ""))

    return {
        line["group"]: {cells[0]: [counts(text) for text in cells[1:]] for cells in line["lines"]}
        for line in lines
    }


def expected_counts(point: Point) -> dict[str, list[tuple[int, int]]]:
    """The same from Python: selected, true positives, false positives, right."""

    def line(chosen: Any, rows: Any) -> list[tuple[int, int]]:
        right = chosen[1] + rows[0] - chosen[0]
        pairs = (
            (chosen.sum(), rows.sum()),
            (chosen[1], rows[1]),
            (chosen[0], rows[0]),
            (right, rows.sum()),
        )
        return [(int(part), int(whole)) for part, whole in pairs]

    found = {
        CALLED.get(str(g), str(g)): line(point.selected[:, a], point.counts[:, a])
        for a, g in enumerate(point.groups)
    }
    return found | {"All groups": line(point.selected.sum(axis=1), point.counts.sum(axis=1))}


def assert_shows(page: Page, point: Point, row: str = "this limit") -> None:
    shown = {CALLED.get(group, group): lines[row] for group, lines in shown_counts(page).items()}
    assert shown == expected_counts(point)


# ---- the dial ----------------------------------------------------------------------------------


def test_the_page_opens_at_the_limit_in_use(loans, two_groups):
    assert shown_tolerance(loans) == IN_USE
    assert_shows(loans, at(two_groups, IN_USE))
    assert_shows(loans, at(two_groups, 1.0), "no limit")
    assert loans.title() == "Loans"


def test_keyboard_mouse_and_chart_turn_the_dial(loans, two_groups):
    loans.locator("#slider").focus()
    for key, moved in (
        ("ArrowLeft", -0.001),
        ("ArrowDown", -0.001),
        ("ArrowRight", 0.001),
        ("PageDown", None),
        ("Home", None),
        ("End", None),
    ):
        before = shown_tolerance(loans)
        loans.keyboard.press(key)
        after = shown_tolerance(loans)
        if moved is not None:
            assert after - before == pytest.approx(moved)
        assert after != before
        assert_shows(loans, at(two_groups, after))
    assert after >= two_groups.gap[0]
    box = loans.locator("#slider").bounding_box()
    y = box["y"] + box["height"] / 2
    loans.mouse.move(box["x"] + box["width"] / 2, y)
    loans.mouse.down()
    seen = set()
    for share in (0.3, 0.11, 0.62, 0.93):
        loans.mouse.move(box["x"] + share * box["width"], y)
        tolerance = shown_tolerance(loans)
        seen.add(tolerance)
        assert_shows(loans, at(two_groups, tolerance))
    loans.mouse.up()
    assert len(seen) == 4
    over = loans.locator("#frontier .u-over")
    over.click(position={"x": over.bounding_box()["width"] * 0.25, "y": 40})
    tolerance = shown_tolerance(loans)
    last = loans.evaluate("Number(document.getElementById('slider').max)") / 1000
    assert tolerance == pytest.approx(last * 0.25, abs=0.002)
    assert_shows(loans, at(two_groups, tolerance))


def test_the_marker_stands_at_the_tolerance_and_the_accuracy(loans, two_groups):
    last = loans.evaluate("Number(document.getElementById('slider').max)") / 1000
    loans.locator("#slider").focus()
    heights, accuracies = [], []
    for key in ("Home", "PageUp", "PageUp", "PageUp"):
        loans.keyboard.press(key)
        tolerance = shown_tolerance(loans)
        point = at(two_groups, tolerance)
        across, up = loans.evaluate(
            """() => {
              const over = document.querySelector("#frontier .u-over");
              const box = (element) => element.getBoundingClientRect();
              const [frame, dot] = [box(over), box(over.querySelector(".marker"))];
              return [(dot.left + dot.width / 2 - frame.left) / frame.width,
                      (frame.bottom - dot.top - dot.height / 2) / frame.height];
            }"""
        )
        assert across == pytest.approx(max(tolerance, point.gap) / last, abs=0.005)
        assert 0 < up < 1
        heights.append(up)
        accuracies.append(point.accuracy)
    slope, start = np.polyfit(accuracies, heights, 1)
    assert np.polyval([slope, start], accuracies) == pytest.approx(heights, abs=0.01)
    assert 1 / slope >= 0.19  # the axis spans twenty points: small differences look small


def test_a_tolerance_can_be_typed(loans, two_groups):
    for text, tolerance in (("4.37", 0.0437), ("12,5", 0.125), ("3 %", 0.03), ("100", 1.0)):
        type_limit(loans, text)
        assert shown_tolerance(loans) == tolerance
        assert_shows(loans, at(two_groups, tolerance))
    before = shown_tolerance(loans)
    for text in ("a few", "", "-1", "101"):
        type_limit(loans, text)
        expect(loans.locator("#dial-note")).to_contain_text("0 to 100")
        assert shown_tolerance(loans) == before


def test_the_sentence_and_the_spoken_text_follow(loans, two_groups):
    loans.locator("#slider").focus()
    loans.keyboard.press("Home")
    tolerance = shown_tolerance(loans)
    point = at(two_groups, tolerance)
    women, men = (round(100 * rate) for rate in point.rates)
    sentence = f"Of 100 women, {women} are selected; of 100 men, {men}."
    expect(loans.locator("#sentence")).to_contain_text(sentence)
    free = at(two_groups, 1.0)
    expect(loans.locator("#sentence")).to_contain_text(f"{100 * free.gap:.1f}")
    for accuracy in (point.accuracy, free.accuracy):
        expect(loans.locator("#cost")).to_contain_text(f"{100 * accuracy:.1f}%")
    live = loans.locator("[role=status][aria-live=polite]#live")
    expect(live).to_contain_text(sentence)
    assert (
        loans.locator("#slider")
        .get_attribute("aria-valuetext")
        .startswith(f"{100 * tolerance:.1f} ")
    )


def test_changed_decisions_are_counted_from_no_limit(loans, two_groups):
    assert_changes(loans, at(two_groups, 1.0), at(two_groups, IN_USE))
    type_limit(loans, "2")
    assert_changes(loans, at(two_groups, 1.0), at(two_groups, 0.02))


def assert_changes(page: Page, before: Point, after: Point) -> None:
    """The table shows how two points differ."""
    change = (after.selected - before.selected).sum(axis=0)  # (K,)
    assert change.any()
    rows = page.evaluate(
        """() => [...document.querySelectorAll("#flips tbody tr")].map((row) =>
            [...row.cells].slice(1).map((cell) => Number(cell.textContent.replace(",", ""))))"""
    )
    assert rows == [[max(-n, 0), max(n, 0)] for n in change.tolist()]
    expect(page.locator("#flips-text")).to_contain_text(f"{np.abs(change).sum():,} of")


def test_the_picture_has_each_groups_rate_and_a_bracket_for_the_gap(loans, two_groups):
    def sides() -> list[dict[str, Any]]:
        settle(loans)
        return loans.evaluate(
            """() => [...document.querySelectorAll("#picture .side")].map((side) => {
              const width = (e) => e.getBoundingClientRect().width;
              const ends = (e) => [e.getBoundingClientRect().left, e.getBoundingClientRect().right];
              const bars = [...side.querySelectorAll(".bar")];
              return {
                bars: bars.map(width),
                ends: bars.map((bar) => ends(bar)[1]).sort((a, b) => a - b),
                bracket: ends(side.querySelector(".bracket")),
                values: [...side.querySelectorAll(".value")].map((e) => parseFloat(e.textContent)),
                gap: side.querySelector(".gap").textContent,
              };
            })"""
        )

    def assert_draws(side: dict[str, Any], point: Point) -> None:
        assert side["values"] == [round(100 * rate, 1) for rate in point.rates]
        assert side["bars"][0] / side["bars"][1] == pytest.approx(
            point.rates[0] / point.rates[1], abs=0.01
        )
        assert side["bracket"] == pytest.approx(side["ends"], abs=3)
        assert f"{100 * point.gap:.1f}" in side["gap"]

    for text, tolerance in (("10", 0.1), ("0.5", 0.005), ("100", 1.0)):
        type_limit(loans, text)
        before, after = sides()
        assert_draws(before, at(two_groups, 1.0))
        assert_draws(after, at(two_groups, tolerance))


def test_the_picture_alone_says_whose_share_it_shows_and_who_gains_and_loses(loans, two_groups):
    """Its heading names what is predicted; each changed part of a bar has its number of people."""
    type_limit(loans, "5")
    expect(loans.locator("#picture h3")).to_contain_text(LABELS[1])
    expect(loans.locator("#picture h4").nth(1)).to_contain_text("5")
    change = at(two_groups, 0.05).selected.sum(axis=0) - at(two_groups, 1.0).selected.sum(axis=0)
    rows = loans.evaluate(
        """() => [...document.querySelectorAll("#picture .side:nth-child(2) .row")].map((row) => {
          const ends = (kind) => {
            const box = row.querySelector(kind).getBoundingClientRect();
            return box.width ? [box.left, box.right] : null;
          };
          const text = row.querySelector(".change-text").textContent.replace("\\u2212", "-");
          return {
            people: parseFloat(text.replace(",", "")) || 0,
            bar: ends(".bar"), added: ends(".added"), removed: ends(".removed"),
            value: ends(".value"), inside: row.querySelector(".value.inside") !== null,
          };
        })"""
    )
    assert [row["people"] for row in rows] == change.tolist()
    assert change.min() < 0 < change.max()
    for row, n in zip(rows, change.tolist(), strict=True):
        assert (row["added"] is not None) == (n > 0)
        assert (row["removed"] is not None) == (n < 0)
        left, right = row["bar"]
        if n > 0:
            assert left < row["added"][0] < row["added"][1] == pytest.approx(right, abs=1)
        else:
            assert row["removed"][0] == pytest.approx(right, abs=1)
        if row["inside"]:
            assert left <= row["value"][0] < row["value"][1] <= right + 1
    assert any(row["inside"] for row in rows)


def test_both_sides_have_one_scale_however_long_the_names_are(visit, folder, two_groups):
    called = {group: f"people of the {group} " + "and so on " * 9 for group in PEOPLE}
    page = visit(write_page(two_groups, folder / "long.html", people=called, tolerance=0.05))
    for width in (420, 1100):
        page.set_viewport_size({"width": width, "height": 900})
        settle(page)
        lanes = page.evaluate(
            """() => [...document.querySelectorAll("#picture .row .lane")].map((lane) => {
              const side = lane.closest(".side").getBoundingClientRect();
              const box = lane.getBoundingClientRect();
              return [box.width, box.right <= side.right + 1];
            })"""
        )
        assert len({round(wide) for wide, _ in lanes}) == 1
        assert all(inside for _, inside in lanes)


def test_nothing_sticks_out_at_any_width(loans):
    for width in (360, 420, 641, 700, 768, 900, 1280, 1920):
        loans.set_viewport_size({"width": width, "height": 900})
        settle(loans)
        assert loans.evaluate("document.documentElement.scrollWidth") <= width


def test_it_prints_on_one_page(loans):
    loans.emulate_media(media="print")
    settle(loans)
    content = loans.pdf(format="A4", prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", content)) == 1
    for name in ("#picture", "#cost", "#flips", "#guarantee"):
        expect(loans.locator(name)).to_be_visible()
    for name in ("#slider", "#theme", "#print"):
        expect(loans.locator(name)).to_be_hidden()


def test_both_thresholds_move(loans, two_groups):
    def places() -> list[float]:
        settle(loans)
        return loans.evaluate(
            """() => [...document.querySelectorAll("#scores line.limit")].map((line) =>
                 Number(/translate\\(([-\\d.]+)/.exec(line.getAttribute("transform"))[1]))"""
        )

    loans.locator("#slider").focus()
    loans.keyboard.press("End")
    free = places()
    assert free[0] == free[1]  # both at one half
    loans.keyboard.press("Home")
    moved = places()
    assert moved[0] < free[0] < moved[1]
    for a, line in enumerate(loans.locator("#scores figcaption span").all_inner_texts()):
        chance = 100 / (1 + np.exp(-at(two_groups, 0.0).thresholds[a]))
        assert float(re.search(r"[\d.]+", line).group()) == pytest.approx(chance, abs=0.11)


# ---- confidence --------------------------------------------------------------------------------


def test_the_confidence_switch_takes_a_stricter_point(loans, two_groups):
    loans.locator("[name=confidence][value=certified]").check()
    for text in ("20", "15"):
        type_limit(loans, text)
        tolerance = shown_tolerance(loans)
        assert_shows(loans, at(two_groups, tolerance, 0.95))
        expect(loans.locator("#verdict")).to_contain_text("95% confidence")
    loans.locator("[name=confidence][value=plain]").check()
    assert_shows(loans, at(two_groups, tolerance))


def test_a_guarantee_that_cant_be_made_says_how_many_people_it_needs(loans, two_groups):
    loans.locator("[name=confidence][value=certified]").check()
    type_limit(loans, "1")
    tolerance = shown_tolerance(loans)
    with pytest.raises(CannotCertifyError) as caught:
        two_groups.at(tolerance, confidence=0.95)
    expect(loans.locator("#guarantee")).to_contain_text(f"{caught.value.rows_needed:,}")
    expect(loans.locator("#certificate")).to_have_class(re.compile("refused"))
    expect(loans.locator("#frontier .zone")).to_be_visible()


def test_the_keyboard_steps_over_the_certified_stops(loans, two_groups):
    loans.locator("[name=confidence][value=certified]").check()
    loans.locator("#slider").focus()
    loans.keyboard.press("End")
    step = page_data(two_groups)["slider"]["step"] / 1000
    before = shown_tolerance(loans)
    loans.keyboard.press("ArrowLeft")
    assert before - shown_tolerance(loans) == pytest.approx(step)
    assert_shows(loans, at(two_groups, shown_tolerance(loans), 0.95))


def test_with_confidence_a_typed_limit_is_a_stop_or_is_rounded_down(loans, two_groups):
    loans.locator("[name=confidence][value=certified]").check()
    smallest = page_data(two_groups)["certified"]["smallest"]
    loans.locator("#slider").press("Home")
    assert shown_tolerance(loans) == smallest
    type_limit(loans, "1")
    expect(loans.locator("#guarantee")).to_contain_text(f"{100 * smallest:.1f} percentage points.")
    type_limit(loans, f"{100 * smallest:.1f}")
    assert shown_tolerance(loans) == smallest
    expect(loans.locator("#dial-note")).to_have_text("")
    expect(loans.locator("#certificate")).to_have_class(re.compile("able"))
    assert_shows(loans, at(two_groups, smallest, 0.95))
    loans.locator("#slider").press("ArrowLeft")
    assert shown_tolerance(loans) == smallest  # the slider ends here
    type_limit(loans, f"{100 * smallest + 0.01:.2f}")
    note = loans.locator("#dial-note")
    expect(note).to_have_text(
        re.compile(rf"{100 * smallest + 0.01:.2f}\b.* {100 * smallest:.1f}\b")
    )


def test_a_message_disappears_on_the_next_action(loans):
    note = loans.locator("#dial-note")
    for act in (
        lambda: loans.locator("#slider").press("ArrowLeft"),
        lambda: loans.locator("#tolerance").fill("7"),
        lambda: loans.locator("[name=confidence][value=certified]").check(),
        lambda: loans.locator("#slider").press("ArrowRight"),
        lambda: loans.locator("#frontier .u-over").click(position={"x": 50, "y": 40}),
    ):
        type_limit(loans, "a few")
        expect(note).not_to_be_empty()
        act()
        expect(note).to_have_text("")


def test_a_dial_that_reaches_little_shows_one_place_and_only_lines_that_are_drawn(visit, folder):
    rng = np.random.default_rng(1)
    groups, y = np.arange(200) % 10, np.arange(200) // 10 % 2
    frontier = sweep(rng.normal(size=200).round(0), groups, y, min_count=1)
    assert frontier.gap.min() > 0.01
    page = visit(write_page(frontier, folder / "ten.html", tolerance=0.0))
    expect(page.locator("#start")).to_contain_text(f"({100 * at(frontier, 0.0).gap:.1f})")
    expect(page.locator("#frontier-key .guaranteed")).to_have_count(0)
    settle(page)
    dot, square = page.evaluate(
        """() => ["marker", "used"].map((name) => {
            const box = document.querySelector(`#frontier .${name}`).getBoundingClientRect();
            return [box.left + box.width / 2, box.top + box.height / 2];
        })"""
    )
    assert dot == pytest.approx(square, abs=0.5)


# ---- other dials -------------------------------------------------------------------------------


def test_every_demand_and_the_answer_where_nobody_loses_are_shown(visit, folder):
    sample = make_gaussian(2_000, random_state=0)
    frontier = sweep(sample.logits, sample.groups, sample.y, criterion="equalized_odds")
    page = visit(
        write_page(frontier, folder / "odds.html", people=PEOPLE, labels=LABELS, tolerance=0.05)
    )
    point, rising = frontier.at(0.05), rising_frontier(frontier).at(0.05)
    assert_pictured(page, point)
    shown = page.locator("#rising-text").inner_text()
    assert abs(float(shown.split("%")[0].split()[-1]) - 100 * rising.accuracy) < 0.051
    expect(page.locator("#movement")).to_contain_text("change back")
    type_limit(page, "10")
    settle(page)
    wider = frontier.at(0.1)
    assert_pictured(page, wider)


def assert_pictured(page: Page, point: Point) -> None:
    """Each demand has its panel with the groups' rates and its gap."""
    for j, gap in enumerate(point.gaps.values()):
        side = page.locator("#picture .panel").nth(j).locator(".side").nth(1)
        values = side.locator(".value").all_text_contents()
        assert values == [f"{100 * rate:.1f}%" for rate in point.rates[j]]
        expect(side.locator(".gap")).to_contain_text(f"{100 * gap:.1f}")


def test_ratios_and_levels_are_pictured(visit, folder):
    sample = make_gaussian(2_000, random_state=0)
    demands = ["demographic_parity_ratio", minimum("true_positive_rate", 0.6)]
    frontier = sweep(sample.logits, sample.groups, sample.y, criterion=demands)
    page = visit(write_page(frontier, folder / "levels.html", tolerance=0.1))
    point = at(frontier, 0.1)
    ratio, level = page.locator("#picture .panel").all()
    rates = point.rates[0]
    share = f"{100 * rates.min() / rates.max():.1f}%"
    expect(ratio.locator(".side .gap").nth(1)).to_contain_text(share)
    expect(level.locator(".side .level")).to_have_count(2)
    expect(level.locator(".side .bracket").nth(1)).to_be_hidden()


def test_small_groups_are_marked(visit, folder):
    rng = np.random.default_rng(0)
    groups = np.repeat(["many", "few"], (300, 12))
    frontier = sweep(rng.normal(size=312), groups, np.arange(312) % 2, min_count=1)
    page = visit(write_page(frontier, folder / "few.html", people={"few": "islanders"}))
    expect(page.locator("#picture .few")).to_have_count(2)
    expect(page.locator("#caution")).to_contain_text("Islanders (12)")
    assert_accessible(page)


def test_a_combined_criterion_with_costs_and_a_budget_is_shown(visit, folder):
    sample = make_gaussian(2_000, random_state=0)
    demands = {"demographic_parity": 0.1, "equal_opportunity": 0.05}
    frontier = sweep(
        sample.logits, sample.groups, sample.y, criterion=demands, objective=Costs(1, 3),
        budget=0.5, nested=True,
    )  # fmt: skip
    page = visit(write_page(frontier, folder / "combined.html", tolerance=0.1))
    expect(page.locator("#meaning")).to_contain_text("50% of all people")
    expect(page.locator("#cost")).to_contain_text(f"{-frontier.at(0.1).value:.3f}")
    expect(page.locator("#movement")).to_contain_text("at most once")


def test_a_family_shows_its_settings_and_no_scores(visit, exported_family, family):
    page = visit(exported_family)
    expect(page.locator("#scores figure")).to_have_count(0)
    expect(page.locator("#flips-text")).to_contain_text("most accurate model")
    expect(page.locator("#settings tbody tr")).to_have_count(int(family.points.reachable.sum()))
    page.locator("#slider").focus()
    for key in ("Home", "End"):
        page.keyboard.press(key)
        point = at(family, shown_tolerance(page))
        assert_shows(page, point)
        expect(page.locator("#settings tr.here th")).to_have_text(f"{point.setting:.6g}")
    assert_accessible(page)


def test_without_labels_there_is_no_accuracy(visit, folder):
    sample = make_gaussian(
        3_000, shares=(0.5, 0.3, 0.2), base_rates=(0.3, 0.5, 0.6), separations=(1, 1, 1)
    )
    frontier = sweep(sample.logits, sample.groups)
    page = visit(write_page(frontier, folder / "unlabeled.html"))
    expect(page.locator("#groups thead th")).to_have_count(2)
    type_limit(page, "5")
    point = at(frontier, shown_tolerance(page))
    counts = [lines["this limit"][0][0] for lines in shown_counts(page).values()]
    assert counts == [*point.selected[0].tolist(), point.selected.sum()]


def test_one_group_has_nothing_to_set(visit, folder):
    sample = make_gaussian(500, random_state=0)
    page = visit(write_page(sweep(sample.logits, ["all"] * 500, sample.y), folder / "one.html"))
    expect(page.locator("#slider")).to_be_disabled()
    expect(page.locator("#dial-note")).not_to_be_empty()
    expect(page.locator("#frontier-section")).to_be_hidden()


def test_names_are_text_and_never_markup(visit, folder):
    sample = make_gaussian(400, random_state=0)
    evil = "<img src=x onerror=alert(1)></script><b>"
    groups = np.where(sample.groups == "group 0", evil, "b")
    frontier = replace(sweep(sample.logits, groups, sample.y), certificate="none")
    names = {"name": evil, "people": {evil: evil}, "labels": (evil, evil)}
    page = visit(write_page(frontier, folder / "evil.html", **names))
    expect(page.locator("#name")).to_have_text(evil)
    assert page.title() == evil
    assert page.locator("img, #page b").count() == 0


# ---- looks -------------------------------------------------------------------------------------


def test_no_head_of_a_table_runs_into_another_on_a_telephone(page, visit, exported):
    page.set_viewport_size({"width": 390, "height": 844})
    visit(exported)
    wide = page.evaluate(
        """() => [...document.querySelectorAll("#groups th, #flips th")].filter((cell) => {
            const range = document.createRange();
            range.selectNodeContents(cell);
            const [text, box] = [range.getBoundingClientRect(), cell.getBoundingClientRect()];
            return text.left < box.left - 0.5 || text.right > box.right + 0.5;
        }).map((cell) => cell.textContent)"""
    )
    assert wide == []


def brightness(page: Page) -> float:
    color = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return float(np.mean([int(x) for x in re.findall(r"\d+", color)[:3]]))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_follow_the_system_until_chosen(page, visit, exported, scheme):
    page.emulate_media(color_scheme=scheme)
    visit(exported)
    dark = scheme == "dark"
    assert (brightness(page) < 60) == dark
    curve = "document.querySelector('#frontier canvas').toDataURL()"
    before = page.evaluate(curve)
    page.locator("#theme").click()
    settle(page)
    assert (brightness(page) < 60) != dark
    assert page.evaluate(curve) != before
    page.locator("#theme").click()
    assert (brightness(page) < 60) == dark


def assert_accessible(page: Page) -> None:
    page.evaluate(AXE.read_text("utf-8"))
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    assert [(v["id"], [n["target"] for n in v["nodes"]]) for v in found["violations"]] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_is_accessible(page, visit, exported, tmp_path, scheme, width):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    visit(exported)
    page.locator("[name=confidence][value=certified]").check()
    page.locator("#slider").focus()
    page.keyboard.press("PageDown")
    settle(page)
    page.screenshot(path=tmp_path / f"{scheme}-{width}.png", full_page=True)
    type_limit(page, "0")  # a refusal
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    settle(page)
    assert_accessible(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_reduced_motion_is_respected(page, visit, exported):
    moving = """() => [...document.querySelectorAll("*")].filter((e) => {
        const style = getComputedStyle(e);
        const lasts = style.transitionDuration.split(",").some((t) => parseFloat(t) > 0);
        return style.animationName !== "none" || lasts;
    }).length"""
    page.emulate_media(reduced_motion="reduce")
    visit(exported)
    assert page.evaluate(moving) == 0
    page.emulate_media(reduced_motion="no-preference")
    assert page.evaluate(moving) > 0


def test_everything_can_be_reached_by_keyboard(loans):
    reached = set()
    for _ in range(30):
        loans.keyboard.press("Tab")
        reached.add(loans.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert {"theme", "print", "slider", "tolerance", "SUMMARY"} <= reached


# ---- with a server -----------------------------------------------------------------------------


@dataclass
class Desk:
    """The server as the page needs it, described in fairdial.serve.page."""

    document: dict[str, Any]
    tolerance: float = 0.1
    confidence: float | None = None
    version: int = 1
    writable: bool = True
    refuse: int | None = None
    asked: list[str] = field(default_factory=list)
    puts: list[dict[str, Any]] = field(default_factory=list)
    entries: list[dict[str, Any]] = field(default_factory=list)
    address: str = ""
    gate: threading.Event | None = None  # until it is set, the document is not given

    def dial(self) -> dict[str, Any]:
        names = "tolerance", "confidence", "version", "writable"
        return {name: getattr(self, name) for name in names} | {"reason": "the law"}

    def put(self, headers: Any, change: dict[str, Any]) -> tuple[int, Any]:
        self.puts.append(change | {"If-Match": headers["If-Match"]})
        if headers["Authorization"] != "Bearer secret":
            return 401, {"detail": "no"}
        if headers["If-Match"] != f'"{self.version}"':
            return 409, {"detail": "moved"}
        if self.refuse is not None:
            return self.refuse, {"detail": "the reason why"}
        old = {"tolerance": self.tolerance, "confidence": self.confidence}
        self.tolerance, self.confidence = change["tolerance"], change["confidence"]
        self.version += 1
        new = {"tolerance": self.tolerance, "confidence": self.confidence}
        entry = {"time": "2026-11-16T09:30:00Z", "who": change.get("by"), "old": old, "new": new}
        self.entries.insert(0, entry | {"reason": change["reason"], "version": self.version})
        return 200, self.dial()


@pytest.fixture
def desk(two_groups) -> Iterator[Desk]:
    desk = Desk(page_data(two_groups, name="Loans", people=PEOPLE, labels=LABELS))
    files = page_files()

    class Handler(BaseHTTPRequestHandler):
        def answer(self, status: int, content: Any, media_type: str = "application/json") -> None:
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Content-Security-Policy", SERVED_POLICY)
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            desk.asked.append(self.path)
            name = self.path.removeprefix("/static/")
            if self.path == "/":
                self.answer(200, render_index().encode(), "text/html; charset=utf-8")
            elif self.path.startswith("/static/") and name in files:
                self.answer(200, *files[name])
            elif self.path == "/v1/frontier":
                if desk.gate is not None:
                    desk.gate.wait(60)
                self.answer(200, desk.document)
            elif self.path == "/v1/dial":
                self.answer(200, desk.dial())
            elif self.path == "/v1/audit":
                self.answer(200, {"entries": desk.entries})
            else:
                self.answer(404, {"detail": "not here"})

        def do_PUT(self) -> None:
            desk.asked.append(f"PUT {self.path}")
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.answer(*desk.put(self.headers, body))

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    desk.address = f"http://127.0.0.1:{server.server_address[1]}/"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield desk
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def served(page: Page, desk: Desk) -> Iterator[Page]:
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(desk.address)
    expect(page.locator("#audit-section")).to_be_visible()
    yield page
    # the browser itself reports answers that refuse
    assert [text for text in complaints if "Failed to load resource" not in text] == []


def fill_in(page: Page, *, token: str = "secret") -> None:
    type_limit(page, "5")
    settle(page)
    page.locator("#reason").fill("agreed in council")
    page.locator("#by").fill("Ada")
    page.locator("#token").fill(token)


def test_the_served_page_asks_only_its_server_and_nothing_while_moving(served, desk, two_groups):
    assert shown_tolerance(served) == 0.1
    assert not [path for path in desk.asked if path.startswith("PUT")]
    before = list(desk.asked)
    assert {"/v1/frontier", "/v1/dial", "/v1/audit"} <= set(before)
    assert "/favicon.ico" not in before
    served.locator("#slider").focus()
    for _ in range(15):
        served.keyboard.press("ArrowLeft")
    assert shown_tolerance(served) == pytest.approx(0.085)
    assert_shows(served, at(two_groups, shown_tolerance(served)))
    assert desk.asked == before


def test_applying_sends_the_limit_with_its_reason_and_the_record_shows_it(
    served, desk, tmp_path, two_groups
):
    fill_in(served)
    change = at(two_groups, 0.05).selected - at(two_groups, 0.1).selected
    expect(served.locator("#apply-note")).to_contain_text(f"{np.abs(change).sum()} of 4,000")
    expect(served.locator("#apply-button")).to_have_text("Apply 5.0 percentage points")
    served.locator("#apply-button").click()
    expect(served.locator("#apply-status")).to_contain_text(DONE)
    change = {"tolerance": 0.05, "confidence": None, "reason": "agreed in council", "by": "Ada"}
    assert desk.puts == [change | {"If-Match": '"1"'}]
    expect(served.locator("#audit li")).to_have_count(1)
    text = "Ada: from 10.0 percentage points to 5.0 percentage points"
    expect(served.locator("#audit li")).to_contain_text(text)
    expect(served.locator("#audit li")).to_contain_text("agreed in council")
    expect(served.locator("#audit time")).to_have_text(re.compile(r":30:00 \S+$"))
    expect(served.locator("#apply-note")).to_contain_text("5.0 percentage points")
    served.screenshot(path=tmp_path / "served.png", full_page=True)


def test_a_certified_point_is_applied_with_its_confidence(served, desk, two_groups):
    served.locator("[name=confidence][value=certified]").check()
    fill_in(served)
    type_limit(served, "20")
    settle(served)
    served.locator("#apply-button").click()
    expect(served.locator("#apply-status")).to_contain_text("with 95% confidence")
    assert desk.puts[-1]["confidence"] == 0.95
    served.reload()
    expect(served.locator("[name=confidence][value=certified]")).to_be_checked()
    assert_shows(served, at(two_groups, desk.tolerance, 0.95))
    type_limit(served, "0")
    expect(served.locator("#apply-button")).to_be_disabled()


def test_refusals_are_shown_beside_the_button_until_something_is_done(served, desk, node):
    status = served.locator("#apply-status")
    for code, act in (
        (403, lambda: served.locator("#slider").press("ArrowLeft")),
        (422, lambda: served.locator("#token").fill("another")),
        (503, lambda: served.locator("#reason").fill("another")),
        (500, lambda: served.locator("#slider").press("ArrowRight")),
        (401, lambda: served.locator("#slider").press("ArrowRight")),
    ):
        desk.refuse = code
        fill_in(served, token="guess" if code == 401 else "secret")
        served.locator("#apply-button").click()
        detail = "the reason why" if code == 422 else ""
        expect(status).to_have_text(node("phrases", "refused", code, detail))
        expect(served.locator("#apply-button")).to_be_enabled()
        assert desk.tolerance == 0.1
        act()
        expect(status).to_have_text("")


def test_a_change_by_somebody_else_is_shown_before_the_next_change(served, desk):
    desk.tolerance, desk.version = 0.07, 2
    fill_in(served)
    served.locator("#apply-button").click()
    expect(served.locator("#apply-note")).to_contain_text("7.0 percentage points")
    expect(served.locator("#apply-status")).not_to_contain_text(DONE)
    assert desk.tolerance == 0.07
    served.locator("#apply-button").click()
    expect(served.locator("#apply-status")).to_contain_text(DONE)
    assert desk.tolerance == 0.05


def test_the_limit_in_use_cant_be_applied_again_and_the_token_is_kept_nowhere(served, desk):
    expect(served.locator("#apply-button")).to_be_disabled()
    served.locator("#slider").press("ArrowLeft")
    expect(served.locator("#apply-button")).to_be_enabled()
    for empty, value in (("reason", "x"), ("token", "guess")):  # nothing is sent without them
        served.locator("#apply-button").click()
        expect(served.locator("#apply-status")).to_contain_text(empty)
        expect(served.locator(f"#{empty}")).to_be_focused()
        served.locator(f"#{empty}").fill(value)
    assert desk.puts == []
    fill_in(served)
    served.locator("#apply-button").click()
    expect(served.locator("#apply-status")).to_contain_text(DONE)
    expect(served.locator("#apply-button")).to_be_disabled()
    kept = served.evaluate(
        "JSON.stringify([localStorage, sessionStorage, document.cookie, location.href])"
    )
    assert "secret" not in kept
    expect(served.locator("#token")).to_have_value("")
    assert "secret" not in json.dumps(desk.asked)
    served.locator("[name=confidence][value=certified]").check()
    served.locator("#slider").press("End")
    expect(served.locator("#apply-button")).to_be_enabled()
    assert len(desk.puts) == 1


def test_something_is_shown_until_the_document_is_there(page, desk):
    gate = threading.Event()
    desk.gate = gate
    page.goto(desk.address, wait_until="commit")
    expect(page.locator("#loading")).to_be_visible()
    expect(page.locator("#page")).to_be_hidden()
    gate.set()
    expect(page.locator("#page")).to_be_visible()
    expect(page.locator("#loading")).to_be_hidden()


def test_a_read_only_server_has_no_button(page, desk):
    desk.writable = False
    page.goto(desk.address)
    expect(page.locator("#audit-section")).to_be_visible()
    expect(page.locator("#apply-section")).to_be_hidden()


def test_a_failing_server_is_reported(page, desk):
    desk.document = {"format": "something else"}
    page.goto(desk.address)
    expect(page.locator("#trouble")).to_be_visible()
    expect(page.locator("#loading")).to_be_hidden()


def test_the_served_page_is_accessible(served, desk):
    desk.entries.append({"time": "2026-11-16T09:30:00Z", "who": "Ada", "old": 0.1, "new": 0.05,
                         "reason": "law", "version": 2})  # fmt: skip
    served.reload()
    expect(served.locator("#audit li")).to_contain_text("from 10.0 percentage points")
    served.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert_accessible(served)


def test_the_benchmark_runs_and_prints_a_table(browser_type_launch_args):
    assert browser_type_launch_args
    script = Path(__file__).parents[2] / "benchmarks" / "page.py"
    done = subprocess.run(
        [sys.executable, str(script), "--quick"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "| ---" in done.stdout
