"""Laws of score summaries: counts that add up, exact figures at the edges, exact answers again."""

from __future__ import annotations

import itertools
import warnings
from fractions import Fraction

import dask
import dask.bag
import dask.dataframe as dd
import duckdb
import numpy as np
import pandas as pd
import pytest

from fairdial import InvalidInputError, ScoreSummary, SmallGroupError, UnknownGroupError, sweep
from fairdial.core.criteria import criterion as find_criterion
from fairdial.errors import FairdialWarning
from fairdial.large import files, second_pass

CRITERIA = ("demographic_parity", "equal_opportunity", "predictive_equality")
TOLERANCES = np.array([0.0, 0.02, 0.05, 0.1, 0.2, 1.0])
WIDTH = 2.0**-11
SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, 16, -16, 16 - WIDTH, -16 + WIDTH, 1e300, -1e300, 5e-324, -5e-324]
)


def continuous(rng, n):
    return rng.normal(rng.normal(), 1.5, n)


def tied(rng, n):
    return rng.normal(rng.normal(), 1.5, n).round(1)


def at_edges(rng, n):
    z = rng.integers(-40, 40, n) * WIDTH
    return np.where(rng.random(n) < 0.3, np.nextafter(z, rng.choice([-1.0, 1.0], n)), z)


def special(rng, n):
    return np.where(rng.random(n) < 0.5, rng.choice(SPECIAL, n), continuous(rng, n))


def beyond(rng, n):
    return rng.normal(0, 40, n)


def crowded(rng, n):
    return rng.normal(0.3, WIDTH, n)


def single(rng, n):
    return continuous(rng, n).astype(np.float32)


def single_special(rng, n):
    near = np.nextafter(np.float32(3 * WIDTH), np.float32(1))
    numbers = [0.0, -0.0, np.inf, -np.inf, 16, -16, 3 * WIDTH, near, 1e38, 1e-45, -1e-45]
    return rng.choice(np.array(numbers, np.float32), n)


MAKERS = {
    maker.__name__: maker
    for maker in (
        continuous,
        tied,
        at_edges,
        special,
        beyond,
        crowded,
        single,
        single_special,
    )
}


def draw(maker, seed, n_groups=2, size=200):
    """Logits, names and labels in which every group has rows with either label."""
    rng = np.random.default_rng(seed)
    names = np.array([f"group {a}" for a in range(n_groups)])
    codes = np.concatenate((np.repeat(np.arange(n_groups), 2), rng.integers(0, n_groups, size)))
    y = np.concatenate((np.tile([0, 1], n_groups), rng.random(size) < rng.uniform(0.2, 0.8)))
    logits = maker(rng, len(codes))
    order = rng.permutation(len(codes))
    return logits[order], names[codes[order]], y[order].astype(int)


def split(rows, seed):
    """The rows in parts of random sizes, one of them without any."""
    rng = np.random.default_rng(seed)
    cuts = np.sort(rng.integers(0, len(rows[0]) + 1, 4))
    cuts = np.append(cuts, cuts[-1])
    return list(zip(*(np.split(column, cuts) for column in rows), strict=True))


def ask(frontier, tolerances):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairdialWarning)
        return frontier.at(tolerances)


def ask_path(frontier, tolerances):
    """The answers to the tolerances that the path reaches."""
    return ask(frontier, tolerances[frontier.points.find(tolerances)[1]])


def same_points(one, two):
    for column in ("tolerance", "gap", "feasible", "thresholds", "selected", "counts", "accuracy"):
        np.testing.assert_array_equal(getattr(one, column), getattr(two, column), err_msg=column)
    if len(one.groups) == 2:
        np.testing.assert_array_equal(one.setting, two.setting)
    else:  # a sum over the groups, which rounds
        np.testing.assert_allclose(one.setting, two.setting, rtol=1e-12)
    assert one.groups == two.groups


def recount(point, logits, groups, y):
    """The figures of a point by deciding on every row, in the dtype of the scores."""
    limits = np.array([point.thresholds[point.groups.index(g)] for g in groups], logits.dtype)
    chosen = logits > limits
    label = {"demographic_parity": None, "equal_opportunity": 1, "predictive_equality": 0}
    wanted = label[point.criterion.name]
    eligible = np.ones(len(y), bool) if wanted is None else y == wanted
    rates = [
        Fraction(int(chosen[own].sum()), int(own.sum()))
        for own in (eligible & (groups == g) for g in point.groups)
    ]
    return float(max(rates) - min(rates)), (chosen == (y == 1)).sum() / len(y)


# ---- counts ------------------------------------------------------------------------------------


def place(score, bits):
    """The bin of a score, by exact arithmetic."""
    half, scale = 1 << (bits - 1), Fraction(2) ** (bits - 5)
    if np.isinf(score):
        return 0 if score > 0 else 2 * half - 1
    exact = -Fraction(float(score)) * scale
    return min(max(exact.numerator // exact.denominator, -half), half - 1) + half


@pytest.mark.parametrize("bits", [8, 14, 17])
@pytest.mark.parametrize("name", MAKERS)
def test_a_row_is_counted_in_the_bin_that_exact_arithmetic_finds(name, bits):
    logits, groups, y = draw(MAKERS[name], 1, n_groups=3)
    summary = ScoreSummary.from_scores(logits, groups, y, bits=bits)
    expected = np.zeros((3, 2, 1 << bits), int)
    for score, group, label in zip(logits, groups, y, strict=True):
        expected[int(group[-1]), label, place(score, bits)] += 1
    np.testing.assert_array_equal(summary.counts, expected)
    assert summary.groups == ("group 0", "group 1", "group 2")
    assert summary.bits == bits
    assert summary.dtype == logits.dtype
    assert summary.rows.tolist() == expected.sum(axis=2).T.tolist()
    without = ScoreSummary.from_scores(logits, groups, bits=bits)
    np.testing.assert_array_equal(without.counts, expected.sum(axis=1, keepdims=True))
    assert summary.labeled
    with pytest.warns(DeprecationWarning, match="labeled"):
        assert summary.labelled
    assert not without.labeled


@pytest.mark.parametrize("labeled", [True, False])
@pytest.mark.parametrize("name", MAKERS)
def test_partitions_in_any_order_add_up_to_the_whole(name, labeled):
    for seed in range(5):
        rows = draw(MAKERS[name], seed, n_groups=2 + seed, size=40)[: 2 + labeled]
        whole = ScoreSummary.from_scores(*rows, bits=12)
        parts = [ScoreSummary.from_scores(*part, bits=12) for part in split(rows, seed)]
        for order in itertools.islice(itertools.permutations(parts), 0, 720, 89):
            assert sum(order) == whole
        left, right = sum(parts[:2]), sum(parts[2:])
        assert left + right == whole


def test_parts_that_lack_a_group_are_united_by_name():
    first = ScoreSummary.from_scores([1.0, -1.0], ["b", "c"])
    second = ScoreSummary.from_scores([2.0, 1.0], ["a", "c"])
    both = first + second
    assert both.groups == ("a", "b", "c")
    assert both == ScoreSummary.from_scores([1.0, -1.0, 2.0, 1.0], ["b", "c", "a", "c"])


def test_booleans_and_numbers_are_not_taken_for_one_another():
    logits, flags = [1.0, -1.0, 0.5], np.array([True, False, False])
    booleans = ScoreSummary.from_scores(logits, flags)
    parts = [ScoreSummary.from_scores([z], [flag]) for z, flag in zip(logits, flags, strict=True)]
    assert sum(parts) == booleans
    assert [type(name) for part in parts for name in part.groups] == [bool] * 3
    numbers = ScoreSummary.from_scores(logits, [1, 2, 2])
    for one, two in ((booleans, numbers), (numbers, booleans)):
        with pytest.raises(InvalidInputError, match="booleans and numbers"):
            one + two
    assert (numbers + ScoreSummary.from_scores([1.0], [1.0])).groups == (1, 2)


def test_names_of_mixed_types_are_ordered_as_sweep_orders_them():
    names = np.array([2, "1", "a", 10] * 3, dtype=object)
    logits = np.linspace(-1, 1, 12)
    summary = ScoreSummary.from_scores(logits[:5], names[:5])
    summary += ScoreSummary.from_scores(logits[5:], names[5:])
    assert summary.groups == sweep(logits, names, min_count=1).groups


def test_parts_of_both_precisions_add_up_to_double_precision():
    rows = draw(continuous, 3)
    narrow = rows[0].astype(np.float32)
    parts = [(narrow[:90], *(c[:90] for c in rows[1:])), tuple(c[90:] for c in rows)]
    together = np.concatenate((narrow[:90], rows[0][90:])), *rows[1:]
    summaries = [ScoreSummary.from_scores(*part) for part in parts]
    total = sum(summaries)
    assert [s.dtype.name for s in summaries] == ["float32", "float64"]
    assert total == ScoreSummary.from_scores(*together)
    assert total.dtype == np.float64
    assert total == summaries[1] + summaries[0]
    exact = total.to_frontier(tolerances=TOLERANCES, refine=parts, min_count=1)
    whole = sweep(*together, min_count=1)
    same_points(ask_path(exact, TOLERANCES), ask_path(whole, TOLERANCES))


def test_an_empty_part_changes_nothing():
    some = ScoreSummary.from_scores(np.float32([1, 2]), ["a", "b"], [0, 1])
    nothing = ScoreSummary.from_scores([], [], [])
    assert some + nothing == some
    assert nothing + some == some
    assert (nothing + nothing).groups == ()
    with pytest.raises(InvalidInputError, match="`groups`"):
        nothing.to_frontier()


def test_summaries_of_different_kinds_are_not_added():
    one = ScoreSummary.from_scores([1.0], ["a"], [1])
    with pytest.raises(InvalidInputError, match="`labeled`"):
        one + ScoreSummary.from_scores([1.0], ["a"])
    with pytest.raises(InvalidInputError, match="`bits`"):
        one + ScoreSummary.from_scores([1.0], ["a"], [1], bits=14)
    with pytest.raises(TypeError):
        one + 1
    with pytest.raises(TypeError):
        1 + one


def test_summaries_differ_where_their_rows_do():
    one = ScoreSummary.from_scores([1.0, 2.0], ["a", "b"])
    assert one == ScoreSummary.from_scores([2.0, 1.0], ["b", "a"])
    assert one != ScoreSummary.from_scores([1.0, 2.0], ["a", "c"])
    assert one != ScoreSummary.from_scores([1.0, 2.0 + WIDTH], ["a", "b"])
    assert one != ScoreSummary.from_scores(np.float32([1.0, 2.0]), ["a", "b"])
    assert one != "a summary"


# ---- the frontier at edges ---------------------------------------------------------------------


@pytest.mark.parametrize("n_groups", [2, 3, 6])
@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("name", MAKERS)
def test_gap_and_accuracy_of_every_point_agree_with_a_recount(name, criterion, n_groups):
    logits, groups, y = draw(MAKERS[name], n_groups, n_groups=n_groups)
    summary = ScoreSummary.from_scores(logits, groups, y)
    frontier = summary.to_frontier(criterion, min_count=1)
    assert frontier.certificate == "simultaneous"
    tolerances = np.unique(np.concatenate((frontier.gap[::7], TOLERANCES)))
    for point in ask(frontier, tolerances):
        assert (point.gap, point.accuracy) == recount(point, logits, groups, y)
        assert point.feasible == (point.gap <= point.tolerance)
        assert not point.feasible or point.tolerance < frontier.gap[0] or not point.thresholds.any()
    np.testing.assert_array_equal(frontier.counts, summary.rows)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("bits", [10, 13, 16])
def test_the_price_paid_is_at_most_that_of_a_bin_more_than_the_least(criterion, bits):
    rate = find_criterion(criterion).rate
    for seed in range(8):
        rng = np.random.default_rng(seed)
        codes = rng.integers(0, 2, 20_000)
        logits = rng.normal(0, 1.2, 20_000) + codes
        y = rng.random(20_000) < 1 / (1 + np.exp(-logits))
        exact = sweep(logits, codes, y, criterion=criterion)
        binned = ScoreSummary.from_scores(logits, codes, y, bits=bits).to_frontier(criterion)
        tolerances = np.array([0.05, 0.1, 0.15])
        shares = exact.points.shares
        points = [f.points.find(tolerances)[0] for f in (exact, binned)]
        least, paid = exact.points.cost[points[0]], binned.points.cost[points[1]]
        assert (paid >= least).all()
        for t, price in zip(least.tolist(), paid.tolist(), strict=True):
            thresholds = rate.link(exact.points.sign * t * np.array([-1.0, 1.0]) / shares)
            scale = 2.0 ** (bits - 5)
            beyond = np.copysign(np.ceil(np.abs(thresholds) * scale) / scale, thresholds)
            assert price <= (shares * np.abs(rate.inverse(beyond))).max() * (1 + 1e-12)


def test_coarse_bins_cost_accuracy_and_a_second_pass_resolves_them():
    logits, groups, y = draw(continuous, 1, size=2000)
    logits = (logits + 0.8 * (groups == groups[0])) * 0.0005
    whole = sweep(logits, groups, y).at(0.01)
    summary = ScoreSummary.from_scores(logits, groups, y)
    coarse = summary.to_frontier().at(0.01)
    assert coarse.gap <= 0.01
    assert coarse.accuracy < whole.accuracy
    exact = summary.to_frontier(tolerances=[0.01], refine=[(logits, groups, y)])
    assert (exact.at(0.01).thresholds == whole.thresholds).all()


def test_thresholds_are_numbers_of_the_scores_dtype():
    logits, groups, y = draw(single, 5, n_groups=3, size=2000)
    frontier = ScoreSummary.from_scores(logits, groups, y).to_frontier()
    thresholds = ask(frontier, np.linspace(0, 0.3, 20)).thresholds
    np.testing.assert_array_equal(thresholds, thresholds.astype(np.float32))


def test_confidence_is_simultaneous():
    rows = draw(continuous, 2, size=20_000)
    frontier = ScoreSummary.from_scores(*rows).to_frontier()
    point = frontier.at(0.1, confidence=0.95)
    assert point.gap < point.certified_gap <= 0.1
    whole = sweep(*rows).at(0.1, confidence=0.95, simultaneous=True)
    assert 0 <= whole.gap - point.gap < 2e-3


def test_a_frontier_of_bins_survives_json():
    rows = draw(special, 4, n_groups=3)
    frontier = ScoreSummary.from_scores(*rows).to_frontier(min_count=1)
    same = type(frontier).from_json(frontier.to_json())
    same_points(ask(frontier, TOLERANCES), ask(same, TOLERANCES))


def test_without_labels_only_demographic_parity_works():
    summary = ScoreSummary.from_scores(*draw(continuous, 1)[:2])
    assert summary.to_frontier().at(0.1).accuracy is None
    with pytest.raises(InvalidInputError, match="`y`"):
        summary.to_frontier("equal_opportunity")


def test_small_groups_are_named():
    summary = ScoreSummary.from_scores([1.0, 2.0] * 40 + [0.0], ["a", "b"] * 40 + ["c"])
    with pytest.raises(SmallGroupError, match="'c'"):
        summary.to_frontier()


def test_probabilities_are_not_silently_taken_for_logits():
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 2, 500)
    with pytest.warns(FairdialWarning, match="probabilities"):
        ScoreSummary.from_scores(rng.random(500), groups).to_frontier()
    for logits in (rng.random(500) * 1.2, rng.random(500) - 0.1, rng.random(500) / 2):
        ScoreSummary.from_scores(logits, groups).to_frontier()


# ---- exact answers -----------------------------------------------------------------------------


@pytest.mark.parametrize("n_groups", [2, 3, 5])
@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("name", MAKERS)
def test_a_second_pass_gives_the_answers_of_sweep(name, criterion, n_groups, monkeypatch):
    for seed in range(3):
        monkeypatch.setattr(second_pass, "MERGE_SIZE", 10 if seed % 2 else 1 << 20)
        rows = draw(MAKERS[name], 10 * seed + n_groups, n_groups=n_groups, size=60 + 150 * seed)
        parts = split(rows, seed)
        summary = sum(ScoreSummary.from_scores(*part, bits=12 + 2 * seed) for part in parts)
        tolerances = TOLERANCES if seed else np.random.default_rng(n_groups).random(3) * 0.3
        exact = summary.to_frontier(criterion, tolerances=tolerances, refine=parts, min_count=1)
        whole = sweep(*rows, criterion=criterion, min_count=1)
        same_points(ask_path(exact, tolerances), ask_path(whole, tolerances))
        assert exact.certificate == "simultaneous"
        elsewhere = ask(exact, np.linspace(0, 0.4, 7))
        for point in elsewhere:
            assert (point.gap, point.accuracy) == recount(point, *rows)


def test_a_second_pass_gives_the_answers_of_the_histogram_in_memory():
    rows = draw(continuous, 8, n_groups=2, size=40_000)
    parts = split(rows, 8)
    summary = sum(ScoreSummary.from_scores(*part) for part in parts)
    exact = summary.to_frontier(tolerances=TOLERANCES, refine=lambda: iter(parts))
    whole = sweep(*rows, tolerances=TOLERANCES)
    same_points(ask_path(exact, TOLERANCES), ask_path(whole, TOLERANCES))


def test_exact_answers_without_labels():
    rows = draw(continuous, 9, n_groups=4, size=3000)[:2]
    parts = split(rows, 9)
    summary = sum(ScoreSummary.from_scores(*part) for part in parts)
    exact = summary.to_frontier(tolerances=TOLERANCES, refine=parts)
    same_points(ask_path(exact, TOLERANCES), ask_path(sweep(*rows), TOLERANCES))


@pytest.mark.parametrize("n_groups", [2, 3, 8])
def test_one_more_pass_is_enough(n_groups):
    passes = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        codes = rng.integers(0, n_groups, 20_000)
        logits = rng.normal(0, 1.5, 20_000) + codes / n_groups

        def read(rows=(logits, codes)):
            passes.append(1)
            return [rows]

        summary = ScoreSummary.from_scores(logits, codes, bits=16 if seed % 2 else 11)
        summary.to_frontier(tolerances=np.linspace(0, 0.15, 5 + seed), refine=read)
    assert len(passes) == 8


def test_few_rows_are_kept_on_the_second_pass(monkeypatch):
    logits, groups, y = draw(continuous, 5, size=100_000)
    rows = logits + (groups == "group 1"), groups, y
    kept = []
    add = second_pass._DistinctScores.add

    def counting(self, scores, *columns):
        kept.append(len(scores))
        add(self, scores, *columns)

    monkeypatch.setattr(second_pass._DistinctScores, "add", counting)
    summary = ScoreSummary.from_scores(*rows)
    summary.to_frontier(tolerances=np.linspace(0.01, 0.1, 10), refine=[rows])
    assert 0 < sum(kept) < 0.02 * len(rows[0])


def test_equal_scores_are_kept_once(monkeypatch):
    monkeypatch.setattr(second_pass, "MERGE_SIZE", 1000)
    tally = second_pass._DistinctScores()
    for _ in range(50):
        tally.add(np.tile([0.5, -0.0, 0.0, 0.5, 0.75], 20), np.tile([0, 0, 0, 1, 1], 20))
        assert sum(len(piece[0]) for piece in tally._parts) <= 1000
    tally.merge()
    ((scores, cells, rows),) = tally._parts
    assert scores.tolist() == [0.0, 0.5, 0.5, 0.75]
    assert not np.signbit(scores).any()
    assert cells.tolist() == [0, 0, 1, 1]
    assert rows.tolist() == [2000, 1000, 1000, 1000]


@pytest.mark.parametrize("change", ["left out", "twice", "other scores", "used up"])
def test_rows_other_than_the_summarized_ones_are_refused(change):
    rows = draw(continuous, 6, size=2000)
    summary = ScoreSummary.from_scores(*rows)
    batches = {
        "left out": [tuple(column[:1000] for column in rows)],
        "twice": [rows, rows],
        "other scores": [(rows[0][::-1], *rows[1:])],
        "used up": [],
    }
    with pytest.raises(InvalidInputError, match="`refine`"):
        summary.to_frontier(tolerances=[0.0, 0.05, 0.1], refine=batches[change])


def test_an_invalid_refine_is_refused():
    rows = draw(continuous, 6)
    summary = ScoreSummary.from_scores(*rows)
    with pytest.raises(InvalidInputError, match="`refine`"):
        summary.to_frontier(tolerances=[0.1])
    with pytest.raises(InvalidInputError, match="`refine`"):
        summary.to_frontier(refine=[rows])
    with pytest.raises(InvalidInputError, match="`refine`"):
        summary.to_frontier(tolerances=[0.0], refine=iter([rows]))
    narrow = ScoreSummary.from_scores(rows[0].astype(np.float32), *rows[1:])
    bad = [
        (summary, "refine", rows[:2]),
        (narrow, "refine", rows),
        (summary, "groups", (rows[0], np.full(len(rows[0]), "stranger"), rows[2])),
        (summary, "logits", (rows[0][1:], *rows[1:])),
        (summary, "logits", (*rows[:2], rows[2][1:])),
        (summary, "y", (*rows[:2], rows[2] + 5)),
    ]
    for asked, argument, batch in bad:
        kind = UnknownGroupError if argument == "groups" else InvalidInputError
        with pytest.raises(kind) as refused:
            asked.to_frontier(tolerances=[0.0], refine=[batch], min_count=1)
        assert refused.value.argument == argument


# ---- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "options", "argument"),
    [
        (([1.0, np.nan], ["a", "b"]), {}, "logits"),
        (([1.0], ["a", "b"]), {}, "logits"),
        (([1.0, 2.0], ["a", "b"], [1]), {}, "logits"),
        (([1.0, 2.0], ["a", "b"], [1, 2]), {}, "y"),
        (([1.0, 2.0], ["a", None]), {}, "groups"),
        (([], ["a"]), {}, "logits"),
        ((["x"], ["a"]), {}, "logits"),
        (([1.0], ["a"]), {"bits": 7}, "bits"),
        (([1.0], ["a"]), {"bits": 21}, "bits"),
        (([1.0], ["a"]), {"bits": 16.0}, "bits"),
        ((np.zeros(2049), np.arange(2049)), {}, "bits"),
    ],
)
def test_bad_rows_are_refused_by_name(arguments, options, argument):
    with pytest.raises(InvalidInputError) as refused:
        ScoreSummary.from_scores(*arguments, **options)
    assert refused.value.argument == argument


def test_adding_up_too_many_groups_is_refused(monkeypatch):
    parts = [ScoreSummary.from_scores([0.0], [a]) for a in range(5)]
    assert sum(parts[:4]).groups == (0, 1, 2, 3)
    monkeypatch.setattr(files, "MAX_BINS", 4 << 16)
    with pytest.raises(InvalidInputError, match="`bits`"):
        sum(parts)


# ---- files -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MAKERS)
def test_a_file_gives_the_summary_back(name, tmp_path):
    for labeled in (True, False):
        summary = ScoreSummary.from_scores(*draw(MAKERS[name], 3, n_groups=3)[: 2 + labeled])
        summary.save(tmp_path / "a.summary")
        same = ScoreSummary.load(str(tmp_path / "a.summary"))
        assert same == summary
        assert [path.name for path in tmp_path.iterdir()] == ["a.summary"]


@pytest.mark.parametrize("names", [(0, 1), (False, True), ("é", "ü"), (0.5, 2.5)])
def test_names_survive_a_file(names, tmp_path):
    summary = ScoreSummary.from_scores([1.0, 2.0], np.array(names, dtype=object))
    summary.save(tmp_path / "a")
    loaded = ScoreSummary.load(tmp_path / "a")
    assert loaded.groups == names
    assert [type(name) for name in loaded.groups] == [type(name) for name in names]


def test_a_summary_without_rows_survives_a_file(tmp_path):
    nothing = ScoreSummary.from_scores([], [])
    nothing.save(tmp_path / "a")
    assert ScoreSummary.load(tmp_path / "a") == nothing


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path):
    old = ScoreSummary.from_scores([1.0], ["a"])
    old.save(tmp_path / "a")
    with pytest.raises(InvalidInputError, match="`groups`"):
        ScoreSummary.from_scores([1.0], [pd.Timestamp("2020-01-01")]).save(tmp_path / "a")
    (tmp_path / "folder").mkdir()
    for place in ("folder", "missing/b", "a/b"):
        with pytest.raises(InvalidInputError, match="`path`"):
            old.save(tmp_path / place)
    assert ScoreSummary.load(tmp_path / "a") == old
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "folder"]


def load_damaged(path):
    """The summary in a file, or the words with which it is refused."""
    try:
        return ScoreSummary.load(path)
    except InvalidInputError as error:
        return str(error)


def test_a_damaged_file_is_refused_or_equal(tmp_path):
    summary = ScoreSummary.from_scores(*draw(continuous, 3, size=20))
    summary.save(tmp_path / "a")
    whole = (tmp_path / "a").read_bytes()
    refused, rng = 0, np.random.default_rng(0)
    for at in [*range(0, len(whole), 7), *range(len(whole) - 40, len(whole))]:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(rng.integers(0, 8))
        (tmp_path / "b").write_bytes(damaged)
        found = load_damaged(tmp_path / "b")
        if isinstance(found, str):
            assert "`path`" in found
            refused += 1
        else:
            assert found == summary
    assert refused > len(whole) / 7


@pytest.mark.parametrize("cut", [0, 1, 7, 9, 100, 400, -1])
def test_a_truncated_file_is_refused(cut, tmp_path):
    ScoreSummary.from_scores(*draw(continuous, 3)).save(tmp_path / "a")
    (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes()[:cut])
    with pytest.raises(InvalidInputError, match="`path`"):
        ScoreSummary.load(tmp_path / "a")


def test_a_file_of_a_newer_format_is_refused(tmp_path, monkeypatch):
    with monkeypatch.context() as newer:
        newer.setattr(files, "FORMAT", files.FORMAT + 1)
        ScoreSummary.from_scores([1.0], ["a"]).save(tmp_path / "a")
    with pytest.raises(InvalidInputError, match=r"`path`.*version"):
        ScoreSummary.load(tmp_path / "a")


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match=r"`path`.*nowhere"):
        ScoreSummary.load(tmp_path / "nowhere")
    with pytest.raises(InvalidInputError, match="`path`"):
        ScoreSummary.load(tmp_path)


# ---- dask --------------------------------------------------------------------------------------


def summarize(rows):
    return ScoreSummary.from_scores(rows["score"], rows["group"], rows["label"])


def frame_of(logits, groups, y):
    return pd.DataFrame({"score": logits, "group": groups, "label": y})


@pytest.mark.parametrize("name", MAKERS)
def test_partitions_of_dask_add_up_to_the_same(name):
    rows = draw(MAKERS[name], 12, n_groups=3, size=500)
    frame = frame_of(*rows)
    whole = ScoreSummary.from_scores(*rows)
    table = dd.from_pandas(frame, npartitions=7)
    table = table[(table["score"] == table["score"])]  # lazy, as a user's would be
    parts = [dask.delayed(summarize)(part) for part in table.to_delayed()]
    assert dask.delayed(sum)(parts).compute(scheduler="threads") == whole
    pieces = [frame.iloc[start : start + 60] for start in range(0, 540, 60)]
    bag = dask.bag.from_sequence(pieces, npartitions=4).map(summarize)
    assert bag.sum().compute(scheduler="threads") == whole


# ---- SQL ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("labeled", [True, False])
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("name", MAKERS)
def test_one_query_counts_the_same(name, bits, labeled):
    rows = draw(MAKERS[name], 14, n_groups=3, size=400)
    scored = frame_of(*rows)
    label = "label" if labeled else None
    with duckdb.connect() as connection:
        connection.register("scored", scored)
        ((kind,),) = connection.sql("SELECT DISTINCT typeof(score) FROM scored").fetchall()
        found = connection.sql(ScoreSummary.sql("scored", label=label, bits=bits)).df()
    assert kind == ("FLOAT" if rows[0].dtype == np.float32 else "DOUBLE")
    whole = ScoreSummary.from_scores(*rows[: 2 + labeled], bits=bits)
    assert ScoreSummary.from_counts(found) == whole
    shuffled = pd.concat((found, found)).sample(frac=1, random_state=0)
    assert ScoreSummary.from_counts(shuffled) == whole + whole


def test_a_query_takes_any_column_names_and_kinds():
    scored = pd.DataFrame(
        {
            'a "score"': [1, -2, 3],
            "the group": pd.Categorical(["x", "y", "x"]),
            "y": [True, False, True],
        }
    )
    text = ScoreSummary.sql("scored", score='a "score"', group="the group", label="y")
    with duckdb.connect() as connection:
        connection.register("scored", scored)
        found = connection.sql(text).df()
    whole = ScoreSummary.from_scores([1, -2, 3], ["x", "y", "x"], [1, 0, 1])
    assert ScoreSummary.from_counts(found) == whole


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("score", "'nan'::DOUBLE", "`bin`.* 2 of 6 rows"),
        ("score", "NULL", "`bin`.* 2 of 6 rows"),
        ("group", "NULL", "`group`.* 2 of 6 rows"),
        ("label", "NULL", "`label`.* 2 of 6 rows"),
        ("label", "7", "`label`"),
    ],
)
def test_nulls_in_a_query_are_counted_and_refused(column, value, message):
    good = {"score": "1.5::DOUBLE", "group": "'a'", "label": "1"}
    lines = [good, good, good, good, {**good, column: value}, {**good, column: value}]
    rows = " UNION ALL ".join(
        "SELECT " + ", ".join(f'{text} AS "{name}"' for name, text in line.items())
        for line in lines
    )
    found = duckdb.sql(ScoreSummary.sql(f"({rows})", label="label")).df()
    with pytest.raises(InvalidInputError, match=message):
        ScoreSummary.from_counts(found)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bin": [0.5, 1]}, "`bin`"),
        ({"bin": [0, 65536]}, "`bin`"),
        ({"bin": [-1, 0]}, "`bin`"),
        ({"rows": [-1, 0]}, "`rows`"),
        ({"bits": [16, 14]}, "`bits`"),
        ({"bits": [3, 3]}, "`bits`"),
        ({"dtype": ["int8", "int8"]}, "`dtype`.*'int8'"),
        ({"group": None}, "`frame`"),
    ],
)
def test_an_invalid_table_is_refused(change, message):
    good = {"group": ["a", "b"], "bin": [3, 4], "rows": [1, 2], "dtype": ["float64"] * 2}
    columns = {**good, "bits": [16, 16], **change}
    frame = pd.DataFrame({name: values for name, values in columns.items() if values is not None})
    with pytest.raises(InvalidInputError, match=message):
        ScoreSummary.from_counts(frame)


@pytest.mark.parametrize("labeled", [False, True])
def test_an_empty_query_is_an_empty_summary(labeled):
    rows = "(SELECT 1.0 AS score, 'a' AS \"group\", 1 AS label WHERE false)"
    options = {"label": "label"} if labeled else {}
    nothing = ScoreSummary.from_counts(duckdb.sql(ScoreSummary.sql(rows, **options)).df())
    some = ScoreSummary.from_scores([1.0], ["a"], [1] if labeled else None, bits=9)
    assert nothing == ScoreSummary.from_scores([], [], [] if labeled else None)
    assert some + nothing == some == nothing + some
    with pytest.raises(InvalidInputError, match="`labeled`"):
        nothing + ScoreSummary.from_scores([1.0], ["a"], None if labeled else [1])


def test_a_table_of_another_kind_is_refused():
    with pytest.raises(InvalidInputError, match="`frame`"):
        ScoreSummary.from_counts([1])


def test_tables_of_both_precisions_are_in_double_precision():
    frame = pd.DataFrame(
        {
            "group": ["a", "b"],
            "bin": [3, 4],
            "rows": [1, 2],
            "bits": 16,
            "dtype": ["float32", "float64"],
        }
    )
    assert ScoreSummary.from_counts(frame).dtype == np.float64
    assert ScoreSummary.from_counts(frame.iloc[:1]).dtype == np.float32
