"""Laws of evidence and intervals that may be looked at any time."""

from __future__ import annotations

import json
from itertools import combinations

import numpy as np
import pytest

from fairdial.core.anytime import Watch, bet, compare, gap_sequence, rate_sequence
from fairdial.core.anytime import _PairStream as PairStream
from fairdial.errors import InvalidInputError


def compare_one_by_one(side, selected, pending):
    pending, found, places = pending.copy(), [], []
    for i, (second, chosen) in enumerate(zip(side, selected, strict=True)):
        pending[0, int(second)] += 1
        pending[1, int(second)] += chosen
        if pending[0].all():
            found.append(pending[1, 0] / pending[0, 0] - pending[1, 1] / pending[0, 1])
            places.append(i)
            pending[:] = 0
    return found, places, pending


def test_comparisons_are_those_made_one_by_one():
    rng = np.random.default_rng(0)
    for _ in range(300):
        n = int(rng.integers(0, 14))
        side, selected = rng.random(n) < rng.random(), rng.random(n) < 0.5
        pending = np.zeros((2, 2), np.int64)
        if rng.random() < 0.5:
            a = int(rng.integers(2))
            pending[0, a] = rng.integers(1, 4)
            pending[1, a] = rng.integers(0, pending[0, a] + 1)
        expected = compare_one_by_one(side, selected, pending)
        differences, places, rest = compare(side, selected, pending)
        assert differences.tolist() == expected[0]
        assert places.tolist() == expected[1]
        assert rest.tolist() == expected[2].tolist()


@pytest.mark.parametrize("n_groups", [2, 4])
def test_batches_give_the_same_evidence_as_single_rows(n_groups):
    rng = np.random.default_rng(1)
    codes = rng.integers(0, n_groups, 600)
    selected = rng.random(600) < 0.2 + 0.2 * (codes == 1)
    whole = Watch(n_groups, 0.02, 0.2).update(codes, selected)
    parts = Watch(n_groups, 0.02, 0.2)
    for part in np.array_split(np.arange(600), [1, 2, 50, 51, 300]):
        state = json.loads(json.dumps(parts.to_dict()))
        parts = Watch.from_dict(state).update(codes[part], selected[part])
    assert parts.evidence == pytest.approx(whole.evidence)
    assert parts.largest == pytest.approx(whole.largest)
    assert (parts.alarm, parts.rows) == (whole.alarm, 600)
    pairs = [
        np.mean([whole.evidence_of(a, b), whole.evidence_of(b, a)])
        for a, b in combinations(range(n_groups), 2)
    ]
    assert max(pairs) / len(pairs) == pytest.approx(whole.evidence)


def test_a_fair_bet_has_no_expected_gain():
    """The mean fortune after a few differences, over all sequences, at the edge of the limit."""
    limit, p = 0.2, 0.6  # P(difference = 1); else -1: mean 0.2
    total, down = np.zeros(3), np.zeros(3)
    for code in range(2**8):
        signs = np.array([1.0 if code >> i & 1 else -1.0 for i in range(8)])
        chance = np.prod(np.where(signs > 0, p, 1 - p))
        stream = PairStream()
        stream.memory[0] = 0.5  # gamblers who expect too much
        fortunes = np.exp(bet(signs, limit, stream)[-1])
        total, down = total + chance * fortunes[0], down + chance * fortunes[1]
    assert total == pytest.approx(np.ones(3))
    assert (down <= 1 + 1e-12).all()


def test_false_alarms_are_rare_although_every_row_is_looked_at():
    rng, alarms, runs = np.random.default_rng(2), 0, 150
    for _ in range(runs):
        codes = rng.integers(0, 3, 3000)
        rates = np.array([0.3, 0.4, 0.35])
        watch = Watch(3, 0.1, 0.2).update(codes, rng.random(3000) < rates[codes])
        alarms += watch.alarm is not None
    assert alarms / runs <= 0.2 + 3 * np.sqrt(0.16 / runs)


def test_an_alarm_is_a_pair_that_would_raise_it_alone():
    """Each pair of groups has its share of the probability of a false alarm."""
    rng = np.random.default_rng(6)
    codes = rng.integers(0, 3, 4000)
    selected = rng.random(4000) < np.array([0.3, 0.35, 0.6])[codes]
    alarms = []
    for a, b in combinations(range(3), 2):
        mine = np.flatnonzero((codes == a) | (codes == b))
        alone = Watch(2, 0.02, 0.05 / 3).update(codes[mine] == b, selected[mine])
        alarms += [] if alone.alarm is None else [int(mine[alone.alarm - 1]) + 1]
    watch = Watch(3, 0.02, 0.05)
    for part in np.array_split(np.arange(4000), 7):
        watch.update(codes[part], selected[part])
    assert len(alarms) >= 2
    assert watch.alarm == min(alarms)


@pytest.mark.parametrize(
    ("codes", "selected", "argument"),
    [([0, 2], [True, False], "codes"), ([-1], [True], "codes"), ([0, 1], [True], "codes")],
)
def test_rows_that_no_watch_can_take(codes, selected, argument):
    watch = Watch(2, 0.05)
    with pytest.raises(InvalidInputError) as error:
        watch.update(np.array(codes), np.array(selected))
    assert error.value.argument == argument
    assert watch.rows == 0


def test_a_larger_gap_is_found_and_its_pair_is_named():
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 3, 30_000)
    watch = Watch(3, 0.05).update(codes, rng.random(30_000) < np.array([0.3, 0.3, 0.5])[codes])
    assert watch.alarm is not None
    assert watch.evidence_of(2, 0) > 100 > watch.evidence_of(0, 2)


def test_a_confidence_sequence_holds_at_all_times_together():
    rng, misses, runs = np.random.default_rng(4), 0, 200
    times = np.arange(1, 801)
    for _ in range(runs):
        counts = np.cumsum(rng.random(800) < 0.1)
        low, high = rate_sequence(counts, times, 0.2)
        misses += bool(((low > 0.1) | (high < 0.1)).any())
    assert misses / runs <= 0.2 + 3 * np.sqrt(0.16 / runs)


def test_ends_of_a_confidence_sequence():
    counts, rows = np.array([0, 0, 10, 7]), np.array([0, 10, 10, 20])
    low, high = rate_sequence(counts, rows, 0.05)
    assert (low[0], high[0]) == (0.0, 1.0)
    assert low[1] == 0.0
    assert high[2] == 1.0
    other = rate_sequence(rows - counts, rows, 0.05)
    assert low == pytest.approx(1 - other[1])
    assert gap_sequence([3], [10]) == (0.0, 0.0)
    tight, wide = gap_sequence([100, 900], [1000, 1000])
    assert 0.6 < tight < 0.8 < wide < 1.0
