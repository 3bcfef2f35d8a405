"""Laws of measured families: the choice against loops, statements about new rows, other forms."""

from __future__ import annotations

import json
import re
import tracemalloc
import warnings
from fractions import Fraction
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy.special import logit, ndtr
from scipy.stats import binom

from fairdial import Frontier, measure, sweep
from fairdial.core.certificates import (
    exceedance,
    finite_margin,
    inner_tolerance,
    smallest_tolerance,
)
from fairdial.core.criteria import criterion as find_criterion
from fairdial.core.decide import count_selected
from fairdial.core.sweep import measure_counts
from fairdial.errors import (
    CannotCertifyError,
    FairdialWarning,
    InfeasibleToleranceWarning,
    InvalidInputError,
    SmallGroupError,
)

ROOT = Path(__file__).resolve().parents[2]
CRITERIA = ("demographic_parity", "equal_opportunity", "predictive_equality")
COUNTED = {"demographic_parity": (0, 1), "equal_opportunity": (1,), "predictive_equality": (0,)}


def quietly(call, *arguments, **options):
    """The result, whether or not a tolerance is out of reach."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleToleranceWarning)
        return call(*arguments, **options)


def drawn_counts(rng, size, n_groups, n_labels=2, largest=40):
    """Rows by label and group, and how many of them each setting selects."""
    rows = rng.integers(1, largest, (n_labels, n_groups))
    return rows, rng.integers(0, rows + 1, (size, n_labels, n_groups))


def family(seed, criterion="demographic_parity", *, size=None, n_groups=2, largest=40, **options):
    """A random family: its frontier, and what it was made of."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 14)) if size is None else size
    rows, selected = drawn_counts(rng, size, n_groups, largest=largest)
    settings = rng.permutation(size) / 4 - 1
    kind, names = find_criterion(criterion), tuple(range(n_groups))
    options = {"min_count": 1} | options
    return measure_counts(settings, selected, rows, kind, names, **options), (
        settings,
        selected,
        rows,
    )


def figures(criterion, selected, rows):
    """Right decisions and gap of one setting, from its counts, by loops."""
    n_labels, n_groups = rows.shape
    rates = []
    for a in range(n_groups):
        labels = [label for label in COUNTED[criterion] if label < n_labels]
        counts = [int(sum(part[i][a] for i in labels)) for part in (selected, rows)]
        rates.append(Fraction(*counts))
    right = sum(selected[1][a] + rows[0][a] - selected[0][a] for a in range(n_groups))
    return int(right), float(max(rates) - min(rates))


def chosen(criterion, tolerance, settings, selected, rows, allowed=None):
    """The most accurate setting within the tolerance: its position, or None."""
    best = None
    for s in range(len(settings)):
        right, gap = figures(criterion, selected[s], rows)
        if gap <= tolerance and (allowed is None or allowed[s]):
            key = (-right, gap, s)
            best = key if best is None or key < best else best
    return None if best is None else best[2]


# ---- the choice --------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("n_groups", [1, 2, 3, 5])
def test_the_dial_takes_the_most_accurate_setting_within_the_tolerance(criterion, n_groups):
    turned_round = 0
    for seed in range(60):
        frontier, made = family(seed, criterion, n_groups=n_groups, largest=9)
        settings, selected, rows = made
        each = [figures(criterion, line, rows) for line in selected]
        gaps = [gap for _, gap in each]
        turned_round += len(gaps) > 2 and sorted(gaps) != gaps and sorted(gaps)[::-1] != gaps
        for tolerance in [0.0, 0.1, 0.3, 1.0, *gaps, *(np.nextafter(g, 0) for g in gaps)]:
            point = quietly(frontier.at, float(tolerance))
            s = chosen(criterion, tolerance, *made)
            assert point.feasible == (s is not None)
            if s is None:  # the smallest gap there is, and the most accurate setting with it
                s = chosen(criterion, min(gaps), *made)
            assert point.setting == settings[s]
            assert point.gap == gaps[s]
            assert point.accuracy == each[s][0] / rows.sum()
            assert point.selected.tolist() == selected[s].tolist()
            assert point.thresholds.tolist() == [0.0] * n_groups
    assert n_groups == 1 or turned_round > 20  # gaps that go up and down from setting to setting


def test_equally_accurate_models_are_ordered_by_their_gap_and_then_as_given():
    rows = np.array([[10, 10], [10, 10]])
    wide, narrow = [[0, 0], [6, 2]], [[0, 0], [4, 4]]
    worse = [[0, 0], [3, 3]]
    selected = np.array([wide, narrow, worse, narrow, wide])
    frontier = measure_counts(
        np.arange(5.0), selected, rows, find_criterion(CRITERIA[0]), ("a", "b"), min_count=1
    )
    assert frontier.setting.tolist() == [1.0, 3.0, 0.0, 4.0, 2.0]
    assert frontier.at(1.0).setting == 1.0


def test_without_labels_the_first_setting_given_within_the_tolerance_is_taken():
    groups = np.repeat([0, 1], 100)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        margins = rng.normal(rng.normal(0, 0.5, (8, 1)) * groups, 1.0)
        frontier = measure(margins, groups)
        gaps = [abs((m[:100] > 0).mean() - (m[100:] > 0).mean()) for m in margins]
        assert frontier.accuracy is None
        assert frontier.setting.tolist() == list(range(8))
        for tolerance in (min(gaps), 0.1, 0.5, 1.0):
            within = [s for s in range(8) if gaps[s] <= tolerance]
            assert quietly(frontier.at, tolerance).setting == (within or [np.argmin(gaps)])[0]


def test_a_tolerance_that_no_model_reaches_gives_a_warning():
    frontier, (_, selected, rows) = family(3, size=6, largest=30)
    least = min(figures("demographic_parity", line, rows)[1] for line in selected)
    assert least > 0
    with pytest.warns(InfeasibleToleranceWarning, match="tolerance 0 .*6 models") as w:
        points = frontier.at([0.0, 1.0])
    assert len(w) == 1
    assert w[0].filename == __file__
    assert points.feasible.tolist() == [False, True]
    assert points.gap[0] == least


@pytest.mark.parametrize("criterion", CRITERIA)
def test_least_disparity_is_reachable_and_the_smallest_gap_at_that_accuracy(criterion):
    for seed in range(20):
        frontier, (_, selected, rows) = family(seed, criterion, n_groups=3)
        each = [figures(criterion, line, rows) for line in selected]
        for right, _ in each:
            wanted = right / rows.sum()
            point = frontier.least_disparity(accuracy=wanted)
            assert point.gap == min(gap for other, gap in each if other >= right)
            again = frontier.at(point.tolerance)
            assert (again.setting, again.gap) == (point.setting, point.gap)


# ---- counting ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64, np.bool_])
@pytest.mark.parametrize("n_groups", [1, 2, 7])
def test_margins_are_counted_as_row_by_row(dtype, n_groups):
    rng = np.random.default_rng(0)
    margins = rng.integers(-2, 3, (5, 300)).astype(dtype)
    codes = rng.permutation(np.arange(300) % n_groups).astype(np.uint8)
    positive = rng.random(300) < 0.4
    for labels in (None, positive):
        got = count_selected(margins, codes, labels, n_groups)
        assert got.dtype == np.int64
        assert got.shape == (5, 1 if labels is None else 2, n_groups)
        expected = np.zeros_like(got)
        for s in range(5):
            for i in range(300):
                label = 0 if labels is None else int(labels[i])
                expected[s, label, codes[i]] += margins[s, i] > 0
        np.testing.assert_array_equal(got, expected)
    frontier = measure(margins, codes, positive, min_count=1)
    order = frontier.setting.astype(int)
    _, kept = frontier.points.read(np.arange(5))
    np.testing.assert_array_equal(kept, count_selected(margins, codes, positive, n_groups)[order])
    sizes = [[np.sum((codes == a) & (positive == y)) for a in range(n_groups)] for y in (0, 1)]
    assert frontier.counts.tolist() == sizes


def test_a_margin_of_zero_selects_nobody_and_infinite_ones_are_numbers():
    margins = np.array([[0.0, -0.0, 5e-324, np.inf, -np.inf, -1.0]])
    assert count_selected(margins, np.zeros(6, int), None, 1).tolist() == [[[2]]]


def test_counting_needs_little_memory_beside_the_margins():
    rng = np.random.default_rng(0)
    margins = rng.standard_normal((64, 40_000), dtype=np.float32)
    codes, y = rng.integers(0, 3, 40_000), rng.random(40_000) < 0.5
    tracemalloc.start()
    try:
        measure(margins, codes, y)
        measure(np.asfortranarray(margins), codes, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.3 * margins.nbytes  # the copy in the other order, and a few columns


def test_names_of_groups_and_intersections_are_those_of_sweep():
    rng = np.random.default_rng(0)
    people = pd.DataFrame({"p": rng.choice(["x", "y"], 400), "q": rng.choice(["u", "v"], 400)})
    margins = rng.normal(size=(3, 400))
    assert measure(margins, people).groups == sweep(margins[0], people).groups
    lists = measure(margins.tolist(), people["p"].tolist())
    assert lists.groups == ("x", "y")


Z = np.array([[0.5, -0.5, 1.0, -1.0], [0.1, 0.2, -0.3, 0.4]])
G = ["a", "a", "b", "b"]
Y = [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("arguments", "options", "name"),
    [
        pytest.param((Z[0], G, Y), {}, "margins", id="one dimension"),
        pytest.param((Z[None], G, Y), {}, "margins", id="three dimensions"),
        pytest.param((0.5, G, Y), {}, "margins", id="one number"),
        pytest.param((np.empty((0, 4)), G, Y), {}, "margins", id="no settings"),
        pytest.param((np.empty((2, 0)), [], []), {}, "margins", id="no rows"),
        pytest.param(([[0.5, 1.0], [1.0]], G, Y), {}, "margins", id="ragged"),
        pytest.param((np.where(Z == 0.4, np.nan, Z), G, Y), {}, "margins", id="NaN"),
        pytest.param((Z.astype(str), G, Y), {}, "margins", id="text"),
        pytest.param((Z * 1j, G, Y), {}, "margins", id="complex"),
        pytest.param(([[None, 0, 0, 1]], G, Y), {}, "margins", id="missing"),
        pytest.param((np.ma.masked_less(Z, 0), G, Y), {}, "margins", id="masked"),
        pytest.param((Z.T, G, Y), {}, "margins", id="lines and columns exchanged"),
        pytest.param((Z, G[:3], Y), {}, "groups", id="fewer groups"),
        pytest.param((Z, ["a", None, "b", "b"], Y), {}, "groups", id="a missing group"),
        pytest.param((Z, G, Y[:3]), {}, "y", id="fewer labels"),
        pytest.param((Z, G, [0, 1, 2, 1]), {}, "y", id="a third label"),
        pytest.param((Z, G, Y), {"criterion": "fairness"}, "criterion", id="criterion"),
        pytest.param((Z, G), {"criterion": "equal_opportunity"}, "y", id="labels needed"),
        pytest.param((Z, G), {"criterion": "predictive_equality"}, "y", id="labels needed too"),
        pytest.param(
            (Z, G, [0, 0, 0, 1]), {"criterion": "equal_opportunity"}, "groups", id="no positives"
        ),
        pytest.param((Z, G, Y), {"min_count": 0}, "min_count", id="min_count 0"),
        pytest.param((Z, G, Y), {"settings": [1.0]}, "settings", id="fewer settings"),
        pytest.param((Z, G, Y), {"settings": [1.0, 1.0]}, "settings", id="a setting twice"),
        pytest.param((Z, G, Y), {"settings": [1.0, np.nan]}, "settings", id="a NaN setting"),
        pytest.param((Z, G, Y), {"settings": ["a", "b"]}, "settings", id="settings in words"),
        pytest.param((Z, G, Y), {"settings": 1.0}, "settings", id="one setting"),
    ],
)
def test_bad_input_is_refused_by_name(arguments, options, name):
    with pytest.raises(InvalidInputError, match=f"`{name}`"):
        measure(*arguments, **{"min_count": 1} | options)


def test_a_nan_margin_is_located():
    margins = np.zeros((3, 100))
    margins[1, 42] = np.nan
    with pytest.raises(InvalidInputError, match="line 1, row 42"):
        measure(margins, np.arange(100) % 2)


def test_a_small_group_is_named():
    with pytest.raises(SmallGroupError, match="'few'"):
        measure(np.ones((2, 100)), ["many"] * 93 + ["few"] * 7)


def test_probabilities_are_not_silently_taken_for_margins():
    margins = np.random.default_rng(0).random((3, 100))
    with pytest.warns(FairdialWarning, match="`margins`"):
        measure(margins, np.arange(100) % 2)
    measure(margins - 0.5, np.arange(100) % 2)


# ---- statements about new rows: the bound ------------------------------------------------------


def missed(n_high, n_low, gap, seen, points=2001):
    """max over base rates of P(share_high - share_low <= seen): a sum over the lower group."""
    base, k = np.linspace(0, 1 - gap, points)[:, None], np.arange(n_low + 1)
    most = np.floor(n_high * (seen + k / n_low) + 1e-9)
    tail = np.where(most < 0, 0.0, binom.cdf(most, n_high, base + gap))
    return (binom.pmf(k, n_low, base) * tail).sum(axis=1).max()


@pytest.mark.parametrize("counts", [(5, 5), (4, 9), (12, 3), (40, 60), (150, 31)])
@pytest.mark.parametrize("size", [1, 3, 50])
def test_the_bound_of_a_family_is_the_exact_tail_times_its_settings(counts, size):
    for tolerance in (0.1, 0.3, 0.6, 1.0):
        for inner in (0.0, 0.4 * tolerance, tolerance):
            expected = size * missed(*counts, tolerance, inner)
            turned = size * missed(*counts[::-1], tolerance, inner)
            assert turned == pytest.approx(expected, rel=1e-3, abs=1e-9)  # which group is higher
            got = exceedance(counts, tolerance, inner, size)
            assert got == pytest.approx(min(1.0, expected), rel=5e-3, abs=size * 2e-9)
    assert exceedance(counts, 0.2, 0.21, size) == 1.0


@pytest.mark.parametrize("counts", [(40, 60), (313, 190), (800, 1200)])
@pytest.mark.parametrize("size", [1, 7, 100, 2_000])
@pytest.mark.parametrize("alpha", [0.01, 0.1])
def test_the_inner_tolerance_of_a_family_is_the_boundary_of_its_bound(counts, size, alpha):
    for tolerance in (0.2, 0.5):
        inner = inner_tolerance(counts, tolerance, alpha, size)
        if inner < 0:
            assert size * missed(*counts, tolerance, 0.0) > 0.995 * alpha
            continue
        assert size * missed(*counts, tolerance, inner) <= 1.005 * alpha
        assert exceedance(counts, tolerance, inner + 1 / (counts[0] * counts[1]), size) > alpha


@pytest.mark.parametrize("counts", [(60, 60), (400, 150), (2000, 3000)])
@pytest.mark.parametrize("size", [1, 20, 400])
def test_exact_tails_admit_at_least_what_the_margin_admits(counts, size):
    for alpha in (0.2, 0.05, 0.001):
        margin = finite_margin(counts, alpha, size)
        for tolerance in (0.05, 0.15, 0.4, 0.8):
            inner = inner_tolerance(counts, tolerance, alpha, size)
            assert inner >= tolerance - margin or tolerance < margin
            one = inner_tolerance(counts, tolerance, alpha)
            if size == 1:  # theorem 1 pays for overshooting too
                assert inner >= one
            else:
                assert inner <= inner_tolerance(counts, tolerance, alpha, 1)


def test_more_rows_help_and_more_settings_cost():
    sizes, ns = (1, 2, 10, 100, 1000), (200, 400, 1600, 10_000)
    for n in ns:
        inner = [inner_tolerance((n, n), 0.3, 0.05, size) for size in sizes]
        assert inner == sorted(inner, reverse=True)
        margins = [finite_margin((n, n), 0.05, size) for size in sizes]
        assert margins == sorted(margins)
    for size in sizes:
        inner = [inner_tolerance((n, 2 * n), 0.3, 0.05, size) for n in ns]
        assert inner == sorted(inner)
        margins = [finite_margin((n, 2 * n, 3 * n), 0.05, size) for n in ns]
        assert margins == sorted(margins, reverse=True)
    assert len(set(inner)) == len(set(margins)) == len(ns)


def test_the_margin_is_hoeffdings_for_the_two_smallest_groups():
    expected = np.sqrt((1 / 50 + 1 / 80) / 2 * np.log(30 / 0.1))
    assert finite_margin((1000, 50, 80, 90), 0.1, 30) == pytest.approx(expected)
    assert finite_margin((50,), 0.1, 30) == 0.0
    frontier, _ = family(0, size=12, n_groups=3)
    counts = tuple(frontier.eligible.tolist())
    assert frontier.margin(0.9) == pytest.approx(finite_margin(counts, 0.1, 12))


def test_margins_of_a_family_are_the_documented_ones():
    page = " ".join((ROOT / "docs" / "confidence.md").read_text("utf-8").split())
    factor = r"\$([\d.]+)\\sqrt{1/m_0 \+ 1/m_1}\$ for"
    found = re.search(
        rf"{factor} (\d+) settings and {factor} (\d+); .*? wider by (\d+)% and (\d+)%", page
    )
    assert found is not None
    small, n_small, large, n_large, *wider = map(float, found.groups())
    for size, exact, more in ((n_small, small, wider[0]), (n_large, large, wider[1])):
        whole = 1 + more / 100
        for counts in ((5_000, 5_000), (4_000, 20_000)):
            unit = np.sqrt(sum(1 / m for m in counts))
            price = 0.2 - inner_tolerance(counts, 0.2, 0.05, int(size))
            assert price == pytest.approx(exact * unit, rel=0.03)
            assert finite_margin(counts, 0.05, int(size)) == pytest.approx(whole * price, rel=0.05)


@pytest.mark.parametrize("size", [1, 30])
def test_the_smallest_tolerance_of_a_family_holds_and_a_little_less_does_not(size):
    for counts in ((60, 60), (400, 350), (2000, 3000)):
        for gap in (0.0, 0.1):
            smallest = smallest_tolerance(counts, 0.05, gap, size)
            assert exceedance(counts, smallest, gap, size) <= 0.05
            assert exceedance(counts, smallest - 3e-4, gap, size) > 0.05


# ---- statements about new rows: the choice -----------------------------------------------------


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("n_groups", [2, 3])
def test_only_declared_settings_are_certified(criterion, n_groups):
    answered = otherwise = 0
    for seed in range(15):
        rng = np.random.default_rng(seed)
        declared = rng.random(9) < 0.5
        declared[0] = True
        frontier, made = family(
            seed, criterion, size=9, n_groups=n_groups, largest=900, declared=declared
        )
        settings = made[0]
        size, counts = int(declared.sum()), tuple(frontier.eligible.tolist())
        margin = finite_margin(counts, 1 - 0.8, size)
        for tolerance in (0.2, 0.5, 0.9):
            inner = tolerance - margin
            if n_groups == 2:
                inner = max(inner, inner_tolerance(counts, tolerance, 1 - 0.8, size))
            s = chosen(criterion, inner, *made, allowed=declared)
            if s is None:
                with pytest.raises(CannotCertifyError, match="`tolerance="):
                    frontier.at(tolerance, confidence=0.8)
                continue
            point = frontier.at(tolerance, confidence=0.8)
            assert point.setting == settings[s]
            assert declared[s]
            assert point.certified_gap == pytest.approx(min(tolerance, point.gap + margin))
            answered += 1
            otherwise += chosen(criterion, inner, *made) != s
    assert answered > 15
    assert otherwise > 3  # where an undeclared setting would have been taken


def test_a_family_found_on_the_calibration_rows_certifies_nothing():
    frontier, _ = family(0, size=5, declared=np.zeros(5, bool))
    for call in (frontier.margin, lambda: frontier.at(1.0, confidence=0.9)):
        with pytest.raises(CannotCertifyError, match="`confidence`"):
            call()
    seen, _ = family(0, size=5, certificate="none")
    with pytest.raises(CannotCertifyError, match="`confidence`"):
        seen.at(1.0, confidence=0.9)
    assert quietly(seen.at, 0.5).gap == quietly(frontier.at, 0.5).gap


def test_a_family_holds_for_all_tolerances_at_once():
    frontier, _ = family(5, size=30, largest=3_000)
    alone = [frontier.at(t, confidence=0.9) for t in (0.2, 0.3, 0.5)]
    together = frontier.at([0.2, 0.3, 0.5], confidence=0.9, simultaneous=True)
    assert together.setting.tolist() == [point.setting for point in alone]
    assert together.certified_gap.tolist() == [point.certified_gap for point in alone]
    assert len(frontier.at([], confidence=0.9)) == 0


@pytest.mark.parametrize("how", ["thin", "pareto"])
def test_fewer_settings_after_looking_are_still_chosen_among_all(how):
    shrunk = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        declared = rng.random(12) < 0.7
        frontier, _ = family(seed, size=12, largest=3_000, declared=declared)
        fewer = frontier.thin(3) if how == "thin" else frontier.pareto()
        shrunk += fewer.points.certifiable.sum() < declared.sum()
        assert fewer.points.n_declared == declared.sum()
        assert fewer.margin(0.9) == frontier.margin(0.9)
        tolerances = fewer.gap[fewer.points.reachable]
        for column in ("setting", "gap", "accuracy", "selected"):
            np.testing.assert_array_equal(
                getattr(fewer.at(tolerances), column), getattr(frontier.at(tolerances), column)
            )
        if how == "thin":
            assert len(fewer) <= 3
            assert (fewer.gap[0], fewer.gap[-1]) == (frontier.gap[0], frontier.gap.min())
        again = fewer.thin(2)
        assert again.points.n_declared == declared.sum()
    assert shrunk > 10


def test_pareto_keeps_the_models_that_are_not_dominated():
    for seed in range(20):
        frontier, (settings, selected, rows) = family(seed, size=13)
        each = [figures("demographic_parity", line, rows) for line in selected]
        kept = {
            s
            for s, (right, gap) in zip(settings, each, strict=True)
            if not any(r >= right and g <= gap and (r, g) != (right, gap) for r, g in each)
        }
        assert set(frontier.pareto().setting) == kept


@pytest.mark.parametrize("n_groups", [2, 3])
def test_a_refusal_names_a_tolerance_that_then_succeeds(n_groups):
    for seed in range(25):
        frontier, _ = family(seed, size=8, n_groups=n_groups, largest=2_000)
        with pytest.raises(CannotCertifyError, match=r"`tolerance=0\.001`") as caught:
            frontier.at(0.001, confidence=0.95)
        smallest = caught.value.smallest_tolerance
        if smallest is None:
            with pytest.raises(CannotCertifyError):
                frontier.at(1.0, confidence=0.95)
            continue
        assert frontier.at(smallest, confidence=0.95).certified_gap <= smallest
        if smallest > 2e-4:
            with pytest.raises(CannotCertifyError):
                frontier.at(smallest - 2e-4, confidence=0.95)


def test_rows_needed_are_about_enough():
    rows = np.full((1, 2), 1_000)
    rates = np.array([[0.5, 0.45], [0.6, 0.4]])
    kind = find_criterion("demographic_parity")

    def of(times):
        selected = np.round(rates * rows[0] * times).astype(int)[:, None]
        return measure_counts(np.arange(2.0), selected, rows * times, kind, (0, 1), min_count=1)

    with pytest.raises(CannotCertifyError) as caught:
        of(1).at(0.08, confidence=0.95)
    times = caught.value.rows_needed / 2_000
    assert of(int(np.ceil(times))).at(0.08, confidence=0.95).setting == 0.0
    with pytest.raises(CannotCertifyError):
        of(int(0.8 * times)).at(0.08, confidence=0.95)
    with pytest.raises(CannotCertifyError, match="no sample size") as no:
        of(1).at(0.04, confidence=0.95)  # the population's gap is above it
    assert no.value.rows_needed is None


def test_a_family_of_which_only_undeclared_settings_are_left_is_refused():
    rows = np.array([[50, 50], [50, 50]])
    selected = np.array([[[5, 5], [45, 45]], [[20, 5], [30, 45]]])  # the first beats the second
    frontier = measure_counts(
        np.array([0.0, 1.0]),
        selected,
        rows,
        find_criterion("demographic_parity"),
        ("a", "b"),
        declared=np.array([False, True]),
        min_count=1,
    )
    assert frontier.at(0.9, confidence=0.9).setting == 1.0
    with pytest.raises(CannotCertifyError) as caught:
        frontier.pareto().at(0.9, confidence=0.9)
    assert caught.value.smallest_tolerance is None


# ---- statements about new rows: coverage -------------------------------------------------------


def close_family(rng, criterion, n_group, gap, size, n_groups):
    """Settings that decide independently of each other, all with the same population gap.

    Which groups are lowest and highest changes from setting to setting.
    """
    rows = np.full((2, n_groups), n_group)
    rates = np.empty((size, n_groups))
    for line in rates:
        ends = rng.permutation(n_groups)
        line[:] = 0.5 + gap * rng.uniform(-0.5, 0.5, n_groups)
        line[ends[:2]] = 0.5 - gap / 2, 0.5 + gap / 2
    selected = rng.binomial(rows, rates[:, None, :])
    kind = find_criterion(criterion)
    return measure_counts(
        np.arange(float(size)), selected, rows, kind, tuple(range(n_groups)), min_count=1
    )


@pytest.mark.parametrize(
    ("criterion", "n_groups"),
    [("demographic_parity", 2), ("equal_opportunity", 2), ("predictive_equality", 3)],
)
def test_many_settings_just_above_the_tolerance_are_not_mistaken_for_one_within(
    criterion, n_groups
):
    alpha, draws, tolerance, size = 0.1, 600, 0.2, 40
    rng = np.random.default_rng(1)
    wrong_plainly = wrong = 0
    for _ in range(draws):
        frontier = close_family(rng, criterion, 300, tolerance + 1e-6, size, n_groups)
        wrong_plainly += quietly(frontier.at, tolerance).feasible
        try:
            frontier.at(tolerance, confidence=1 - alpha)
        except CannotCertifyError:
            continue
        wrong += 1
    assert wrong_plainly > 0.95 * draws
    assert wrong <= draws * alpha + 3 * np.sqrt(draws * alpha * (1 - alpha))
    if n_groups == 2:  # exact tails: no more is given away than the draws need
        assert wrong > draws * alpha / 4


def test_tolerances_chosen_after_looking_hold_with_their_confidence():
    alpha, draws, size = 0.2, 300, 25
    rng = np.random.default_rng(2)
    gaps = np.linspace(0.1, 0.4, size)
    rows = np.full((1, 2), 400)
    kind = find_criterion("demographic_parity")
    tolerances = np.linspace(0.1, 0.6, 26)
    counts = tuple(rows[0].tolist())
    inner = [inner_tolerance(counts, tolerance, alpha, size) for tolerance in tolerances.tolist()]
    wrong = beyond = 0
    for _ in range(draws):
        rates = 0.5 + np.outer(gaps, [-0.5, 0.5])  # (S, 2)
        selected = rng.binomial(rows, rates[:, None, :])
        frontier = measure_counts(gaps, selected, rows, kind, (0, 1), min_count=1)
        population, seen = frontier.setting, frontier.gap
        held = np.array(inner)[:, None] >= seen  # (tolerances, S) certifiable
        wrong += bool((held & (population > tolerances[:, None])).any())
        beyond += bool((population > seen + frontier.margin(1 - alpha)).any())
        first = held.any(axis=1)
        points = frontier.at(tolerances[first], confidence=1 - alpha)
        assert points.gap.tolist() == seen[held[first].argmax(axis=1)].tolist()
    assert beyond <= wrong <= draws * alpha + 3 * np.sqrt(draws * alpha * (1 - alpha))
    assert wrong > 0.02 * draws


BASE_RATES, SEPARATIONS = np.array([0.3, 0.6]), np.array([1.2, 1.5])


def test_the_certificate_of_a_gaussian_family_holds_in_closed_form():
    """Margins are the true log-odds, shifted by group; population rates are normal tails."""
    alpha, draws, n, tolerance = 0.1, 250, 400, 0.15
    shifts = np.linspace(0, 1.2, 31)[:, None] * [1.0, -1.0]  # (S, 2)
    tails = [(s * SEPARATIONS**2 / 2 + logit(BASE_RATES) + shifts) / SEPARATIONS for s in (1, -1)]
    rates = BASE_RATES * ndtr(tails[0]) + (1 - BASE_RATES) * ndtr(tails[1])
    population = np.abs(rates[:, 1] - rates[:, 0])
    assert population[0] > 0.35
    assert population.min() < 0.02
    rng = np.random.default_rng(3)
    codes = np.repeat([0, 1], n)
    wrong_plainly = wrong = refused = 0
    for _ in range(draws):
        y = rng.random(2 * n) < BASE_RATES[codes]
        d = SEPARATIONS[codes]
        logits = rng.normal(np.where(y, 1, -1) * d**2 / 2 + logit(BASE_RATES)[codes], d)
        frontier = measure(logits + shifts[:, codes], codes, y)
        plain = quietly(frontier.at, tolerance)
        wrong_plainly += population[int(plain.setting)] > tolerance
        try:
            point = frontier.at(tolerance, confidence=1 - alpha)
        except CannotCertifyError:
            refused += 1
            continue
        wrong += population[int(point.setting)] > tolerance
    assert wrong_plainly > 0.3 * draws
    assert wrong <= alpha * draws
    assert refused < 0.1 * draws


# ---- other forms -------------------------------------------------------------------------------


def families():
    for criterion in CRITERIA:
        yield criterion, family(1, criterion, size=8)[0]
    yield "three groups", family(2, size=8, n_groups=3)[0]
    yield "undeclared", family(3, size=8, declared=np.arange(8) % 3 > 0)[0]
    yield "pareto", family(3, size=8, declared=np.arange(8) % 3 > 0)[0].pareto()
    yield "thinned", family(4, size=12)[0].thin(3)
    yield "seen", family(5, size=8, certificate="none")[0]
    rng = np.random.default_rng(0)
    margins, groups = rng.normal(size=(4, 200)), np.array(["ä", 'b"'])[np.arange(200) % 2]
    yield "unlabelled", measure(margins, groups)
    yield "endless", measure(margins, groups, settings=[-np.inf, 1e-310, 1 / 3, np.inf])


FAMILIES = dict(families())


@pytest.mark.parametrize("name", FAMILIES)
def test_json_gives_the_family_back_to_the_last_bit(name):
    frontier = FAMILIES[name]
    text = frontier.to_json()
    again = Frontier.from_json(text)
    assert again.to_json() == text
    json.loads(text, parse_constant=pytest.fail)
    assert again.is_family
    assert again.points.n_declared == frontier.points.n_declared
    assert again.certificate == frontier.certificate
    for column in ("setting", "gap", "accuracy", "counts"):
        np.testing.assert_array_equal(getattr(again, column), getattr(frontier, column))
    np.testing.assert_array_equal(again.points.certifiable, frontier.points.certifiable)
    pd.testing.assert_frame_equal(again.to_frame(), frontier.to_frame())
    if frontier.certificate == "finite":
        assert again.margin(0.9) == frontier.margin(0.9)


def damaged(change, name="three groups"):
    data = json.loads(FAMILIES[name].to_json())
    change(data, data["measured"])
    return json.dumps(data)


DAMAGE = {
    **{
        f"no {key}": (lambda _, item, key=key: item.pop(key))
        for key in ("setting", "selected", "declared", "family")
    },
    **{
        f"short {key}": (lambda _, item, key=key: item[key].pop())
        for key in ("setting", "selected", "declared")
    },
    "no settings": lambda _, item: item.update(setting=[], selected=[], declared=[]),
    "a NaN setting": lambda _, item: item["setting"].__setitem__(0, "nan"),
    "a setting in words": lambda _, item: item["setting"].__setitem__(0, "strong"),
    "declared in words": lambda _, item: item["declared"].__setitem__(0, "no"),
    "declared by numbers": lambda _, item: item.update(declared=[1] * 8),
    "a smaller family": lambda _, item: item.update(family=7),
    "a family of a half": lambda _, item: item.update(family=8.5),
    "a family in words": lambda _, item: item.update(family="8"),
    "more selected than there are": lambda _, item: item["selected"][0][0].__setitem__(0, 999),
    "fewer selected than none": lambda _, item: item["selected"][0][0].__setitem__(0, -1),
    "a group too few": lambda data, _: data["groups"].pop(),
    "a label too few": lambda data, _: data["rows"].pop(),
    "no rows of a group": lambda data, item: (
        data["rows"].__setitem__(0, [0, 5, 5]),
        data["rows"].__setitem__(1, [0, 5, 5]),
        item.update(selected=[[[0, 1, 1], [0, 1, 1]]] * 8),
    ),
    "the certificate of a path": lambda data, _: data.update(certificate="declared"),
    "another certificate": lambda data, _: data.update(certificate="simultaneous"),
    "nothing in it": lambda data, _: data.update(measured=[]),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_family_is_refused(how):
    assert Frontier.from_json(damaged(lambda *_: None)).is_family
    with pytest.raises(InvalidInputError, match="`text`"):
        Frontier.from_json(damaged(DAMAGE[how]))


def test_labels_that_a_criterion_needs_must_be_in_the_file():
    with pytest.raises(InvalidInputError, match="`text`"):
        Frontier.from_json(
            damaged(lambda data, _: data.update(criterion="predictive_equality"), "unlabelled")
        )


def test_a_path_is_not_certified_like_a_family():
    groups = np.arange(200) % 2
    data = json.loads(sweep(np.random.default_rng(0).normal(size=200), groups).to_json())
    with pytest.raises(InvalidInputError, match="'finite'"):
        Frontier.from_json(json.dumps(data | {"certificate": "finite"}))


def test_methods_that_need_thresholds_refuse_a_family():
    frontier = FAMILIES["demographic_parity"]
    for name, call in {
        "decide": lambda: frontier.decide([0.5, 1.0], [0, 1], 0.3),
        "flips": lambda: frontier.flips([0.5, 1.0], [0, 1], 0.3, 0.1),
        "row_thresholds": lambda: frontier.row_thresholds(np.array([0.3]), np.array([0])),
    }.items():
        with pytest.raises(InvalidInputError, match=f"`{name}`.*predict"):
            call()
    with pytest.raises(InvalidInputError, match=r"`band`.*family"):
        frontier.band()
    with pytest.raises(InvalidInputError, match=r"`band`.*family"):
        frontier.plot(band=True)
    for call in (FAMILIES["unlabelled"].plot, FAMILIES["unlabelled"].pareto):
        with pytest.raises(InvalidInputError, match="labels"):
            call()


def test_families_show_settings_and_no_thresholds():
    frontier = FAMILIES["three groups"]
    assert "8 models" in repr(frontier)
    point = frontier.at(1.0)
    assert point.is_family
    assert f"setting={point.setting:.6g}" in repr(point)
    assert f"setting {point.setting:g} " in str(point)
    assert "`confidence`" in str(point)
    points = quietly(frontier.at, [0.1, 1.0])
    texts = (repr(point), str(point), repr(points), *frontier.to_frame(), *points.to_frame())
    for text in (*texts, *point.to_frame(), *points[1].to_frame()):
        assert "threshold" not in text
    assert frontier.to_frame()["setting"].tolist() == frontier.setting.tolist()
    certain = family(5, size=30, largest=3_000)[0].at(0.5, confidence=0.9)
    assert "confidence 0.9" in str(certain)
    swept = sweep(np.random.default_rng(0).normal(size=200), np.arange(200) % 2)
    assert not swept.is_family
    assert not swept.at(1.0).is_family
    assert "threshold" in swept.at(1.0).to_frame()


def test_a_plot_shows_every_model_and_the_points_of_the_dial():
    frontier, _ = family(8, size=13)
    axes = frontier.plot(label="a family")
    line, dots = axes.lines
    assert sorted(zip(*dots.get_data(), strict=True)) == sorted(
        zip(frontier.gap, frontier.accuracy, strict=True)
    )
    assert (dots.get_linestyle(), dots.get_marker()) == ("None", "o")
    assert dots.get_color() == line.get_color()
    gaps, accuracies = line.get_data()
    assert line.get_drawstyle() == "steps-post"
    assert (np.diff(gaps) >= 0).all()
    assert (gaps[0], gaps[-1]) == (frontier.gap.min(), frontier.gap.max())
    for tolerance in np.linspace(frontier.gap.min(), frontier.gap.max(), 200):
        drawn = accuracies[np.searchsorted(gaps, tolerance, side="right") - 1]
        assert drawn == frontier.at(tolerance).accuracy
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a family"]
    axes.figure.canvas.draw()
    plt.close("all")
