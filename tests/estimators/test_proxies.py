"""How well features tell the groups apart: closed forms, and invariance."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from fairdial.estimators.proxies import column_accuracies, find_proxies

N = 8_000
RNG = np.random.default_rng(0)


def table(n_groups: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Groups of very different sizes; a shifted normal, a copy, a noisy copy and noise."""
    shares = np.arange(1, n_groups + 1) ** 2
    codes = RNG.choice(n_groups, N, p=shares / shares.sum())
    flipped = np.where(RNG.random(N) < 0.2, RNG.integers(n_groups, size=N), codes)
    X = pd.DataFrame(
        {
            "shifted": RNG.normal(1.0 * codes),
            "copy": np.array([f"group {a}" for a in range(n_groups)])[codes],
            "noisy": flipped,
            "noise": RNG.normal(size=N),
            "word": RNG.choice(["a", "b", "c"], N),
            "empty": np.nan,
        }
    )
    X.loc[RNG.random(N) < 0.1, "noise"] = np.nan
    return X, codes


@pytest.mark.parametrize("n_groups", [2, 3])
def test_accuracies_are_those_of_the_law(n_groups: int) -> None:
    X, codes = table(n_groups)
    found = column_accuracies(X, codes)
    chance = 1 / n_groups
    edge = float(norm.cdf(0.5))  # the outer groups err on one side, the inner ones on both
    shifted = (2 * edge + (n_groups - 2) * (2 * edge - 1)) / n_groups
    law = {"copy": 1.0, "noisy": 0.8 + 0.2 * chance, "shifted": shifted, "noise": chance,
           "word": chance, "empty": chance}  # fmt: skip
    assert {name: pytest.approx(value, abs=0.04) for name, value in law.items()} == found
    assert list(found.values()) == sorted(found.values(), reverse=True)


def test_all_features_together_know_at_least_as_much() -> None:
    X, codes = table(2)
    weak = X[["shifted", "noise", "word", "empty"]].assign(second=RNG.normal(1.0 * codes))
    found = find_proxies(weak, codes)
    assert found is not None
    assert found.chance == 0.5
    assert found.together == pytest.approx(norm.cdf(np.sqrt(2) / 2), abs=0.04)
    full = find_proxies(X, codes)
    assert full is not None
    assert full.together > 0.99


def test_names_and_the_order_of_columns_make_no_difference() -> None:
    X, codes = table(2)
    turned = X[X.columns[::-1]].assign(copy=X["copy"].map({"group 0": "z", "group 1": "a"}))
    assert column_accuracies(turned, codes) == column_accuracies(X, codes)


def test_embeddings_are_not_measured() -> None:
    assert find_proxies(pd.DataFrame(RNG.normal(size=(50, 600))), np.arange(50) % 2) is None
