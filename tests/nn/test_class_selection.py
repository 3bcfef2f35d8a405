from __future__ import annotations

import numpy as np

from fairdial.nn.class_selection import rules_between

SHARES = np.array([0.7, 0.3])


def rows(seed: int, n: int = 2_000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits that are calibrated, with different shares of the classes in two groups."""
    rng = np.random.default_rng(seed)
    codes = (rng.random(n) < SHARES[1]).astype(np.int64)
    logits = 1.5 * rng.normal(size=(n, 3)) + np.array([[0.8, 0.0, 0.0], [0.0, 0.0, 0.8]])[codes]
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    y = (rng.random((n, 1)) > p.cumsum(axis=1)).sum(axis=1)
    return logits, codes, y


def test_the_first_rule_is_the_likeliest_class() -> None:
    logits, codes, y = rows(0)
    decisions = logits.argmax(axis=1)
    rates = np.array([[np.mean(decisions[codes == a] == k) for a in (0, 1)] for k in range(3)])
    found = rules_between(logits, codes, y, SHARES)
    assert found.accuracy[0] == np.mean(decisions == y)
    assert np.isclose(found.gap[0], np.abs(rates[:, 0] - rates[:, 1]).max(), atol=1e-12)


def test_the_last_rule_has_nearly_no_gap_and_costs_accuracy() -> None:
    for seed in range(3):
        found = rules_between(*rows(seed), SHARES)
        assert found.gap[-1] < 0.02 < 0.2 < found.gap[0]
        assert found.accuracy[-1] < found.accuracy[0]


def test_weights_repeat_rows() -> None:
    logits, codes, y = rows(1, n=300)
    times = np.random.default_rng(0).integers(1, 4, len(y))
    repeated = rules_between(
        *(np.repeat(part, times, axis=0) for part in (logits, codes, y)), SHARES
    )
    weighted = rules_between(logits, codes, y, SHARES, times.astype(float))
    assert np.allclose(repeated.accuracy, weighted.accuracy)
    assert np.allclose(repeated.gap, weighted.gap)


def test_one_group_alone_has_no_gap() -> None:
    logits, _, y = rows(2, n=200)
    found = rules_between(logits, np.zeros(200, np.int64), y, SHARES)
    assert len(set(found.accuracy)) == 1
