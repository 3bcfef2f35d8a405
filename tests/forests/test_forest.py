"""Forests evaluate as a walk from the root does, and forged ones are refused."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairdial.forests import evaluate
from fairdial.forests.evaluate import Evaluator
from fairdial.forests.forest import (
    ARRAYS,
    Forest,
    Tree,
    check_forest,
    make_forest,
    read_forest,
    unpack_sets,
)

N_FEATURES = 4  # the last one holds codes of categories


def grow(rng: np.random.Generator, n_leaves: int) -> Tree:
    """A random tree: split random leaves."""
    feature, threshold, left, right, sets = [0], [0.0], [0], [0], {}
    leaves = [0]
    while len(leaves) < n_leaves:
        node = leaves.pop(int(rng.integers(len(leaves))))
        low, high = len(left), len(left) + 1
        feature[node] = int(rng.integers(N_FEATURES))
        threshold[node] = float(rng.integers(-3, 4))
        if feature[node] == N_FEATURES - 1:
            sets[node] = rng.choice(40, int(rng.integers(0, 20)), replace=False).tolist()
        left[node], right[node] = low, high
        for new in (low, high):
            feature.append(0)
            threshold.append(0.0)
            left.append(new)
            right.append(new)
            leaves.append(new)
    n_nodes = len(left)
    return Tree(feature, threshold, left, right, rng.normal(size=n_nodes),
                rng.random(n_nodes) < 0.5, sets)  # fmt: skip


def make(seed: int, sizes: list[int], **more: Any) -> Forest:
    rng = np.random.default_rng(seed)
    return make_forest([grow(rng, n) for n in sizes], n_features=N_FEATURES, link="raw", **more)


def rows(seed: int, n: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    X = rng.integers(-4, 5, (n, N_FEATURES)).astype(float)
    X[:, -1] = rng.integers(-2, 70, n)  # codes that no set has, too
    X[rng.random(X.shape) < 0.2] = np.nan
    X[rng.random(X.shape) < 0.05] = np.inf
    X[rng.random(X.shape) < 0.05] = -np.inf
    return X


def walk(forest: Forest, row: np.ndarray) -> float:
    """The sum of one row's leaves, node by node."""
    members, total = unpack_sets(forest.sets), forest.base
    for root in forest.offsets[:-1].tolist():
        node = root
        while forest.left[node] != node:
            value, chosen = row[forest.feature[node]], forest.set_index[node]
            if math.isnan(value):
                goes_left = forest.missing_left[node]
            elif chosen >= 0:
                goes_left = 0 <= value < members.shape[1] and members[chosen, int(value)]
            else:
                goes_left = value <= forest.threshold[node]
            node = forest.left[node] if goes_left else forest.right[node]
        total += forest.value[node]
    return total


@pytest.mark.parametrize(
    "sizes", [[1], [2], [1, 8, 3], [9, 16], [31, 32, 2], [64, 63], [65], [200]]
)
def test_masks_and_pointers_give_the_bits_of_a_walk(
    sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    forest, X = make(len(sizes), sizes, base=0.3), rows(1, 300)
    expected = np.array([walk(forest, row) for row in X])
    assert np.array_equal(Evaluator(forest).sums(X), expected)
    one_by_one = [float(Evaluator(forest).sums(row[None])[0]) for row in X[:20]]
    assert np.array_equal(one_by_one, expected[:20])
    monkeypatch.setattr(evaluate, "MOST_LEAVES", 0)
    assert np.array_equal(Evaluator(forest).sums(X), expected)


def test_features_and_sums_are_rounded_as_told() -> None:
    third = Tree([0, 0, 0], [1 / 3, 0, 0], [1, 1, 2], [2, 1, 2], [0, 0.1, 0.7])
    X = np.array([[1 / 3], [np.nextafter(1 / 3, 1)]])
    forest = make_forest([third] * 3, n_features=1, link="raw", base=0.2)
    assert Evaluator(forest).sums(X).tolist() == [0.2 + 0.1 + 0.1 + 0.1, 0.2 + 0.7 + 0.7 + 0.7]
    rounded = Evaluator(dataclasses.replace(forest, round_inputs=True, round_sums=True)).sums(X)
    single = [np.float32(v) for v in (0.2, 0.7)]
    assert rounded.dtype == np.float32
    assert rounded.tolist() == [single[0] + single[1] + single[1] + single[1]] * 2


def test_a_forest_is_read_back_to_the_last_bit() -> None:
    forest = make(3, [5, 70, 1], base=1.5, divisor=3.0)
    again = read_forest(forest.to_arrays(), forest.settings())
    assert np.array_equal(
        Evaluator(again).logits(rows(2, 99)), Evaluator(forest).logits(rows(2, 99))
    )


FOREST = make(5, [6, 12, 1, 3])


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(sorted(ARRAYS)),
    st.integers(0, 2**31),
    st.sampled_from([-(2**31), -2, -1, 0, 1, 2, 3, 30, 2**31 - 1, math.nan, math.inf, 1e300]),
)
def test_a_forged_forest_is_refused_or_gives_some_answer(
    name: str, place: int, value: float
) -> None:
    arrays = {key: array.copy() for key, array in FOREST.to_arrays().items()}
    flat = arrays[name].reshape(-1)
    try:
        flat[place % len(flat)] = value if flat.dtype.kind == "f" else int(value)
    except (ValueError, OverflowError):  # no number of this type
        return
    try:
        forest = read_forest(arrays, FOREST.settings())
    except ValueError:
        return
    assert np.isfinite(Evaluator(forest).sums(rows(0, 50))).all()


@pytest.mark.parametrize(
    "change",
    [
        {"left": lambda a: a[::-1]},
        {"left": lambda a: np.where(a == a[0], 0, a)},  # the root is its own descendant
        {"right": lambda a: np.roll(a, 1)},
        {"feature": lambda a: a + N_FEATURES},
        {"feature": lambda a: a.astype(np.int64)},
        {"threshold": lambda a: a * np.nan},
        {"value": lambda a: a + np.inf},
        {"set_index": lambda a: np.where(a >= 0, 999, a)},
        {"offsets": lambda a: a[:-1]},
        {"offsets": lambda a: a + 1},
        {"sets": lambda a: a.ravel()},
        {"left": lambda a: a[:-1]},
    ],
)
def test_forged_arrays_are_refused(change: dict[str, Any]) -> None:
    arrays = FOREST.to_arrays()
    ((name, edit),) = change.items()
    with pytest.raises(ValueError, match=r"forest|type"):
        read_forest({**arrays, name: edit(arrays[name])}, FOREST.settings())


@pytest.mark.parametrize(
    "change",
    [
        {"n_features": 0},
        {"n_features": 2},
        {"base": math.nan},
        {"divisor": 0.0},
        {"link": "exp"},
        {"complement": 1},
        {"extra": 1},
    ],
)
def test_forged_settings_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"forest|type|settings"):
        read_forest(FOREST.to_arrays(), {**FOREST.settings(), **change})


def test_a_chain_that_is_too_deep_is_refused() -> None:
    n = 1500
    left, right = np.arange(2 * n + 1), np.arange(2 * n + 1)
    left[:n], right[:n] = np.arange(n) + n + 1, np.arange(n) + 1
    tree = Tree(np.zeros(2 * n + 1), np.zeros(2 * n + 1), left, right, np.zeros(2 * n + 1))
    with pytest.raises(ValueError, match="depth"):
        make_forest([tree], n_features=1)


def test_a_feature_is_a_number_or_a_category() -> None:
    forest = make(5, [30])
    mixed = dataclasses.replace(forest, set_index=np.full_like(forest.set_index, -1))
    check_forest(mixed)
    one = np.flatnonzero(forest.is_inner)[0]
    bad = mixed.set_index.copy()
    bad[one] = 0
    feature = np.where(forest.is_inner, forest.feature[one], 0).astype(np.int32)
    with pytest.raises(ValueError, match="kind"):
        check_forest(dataclasses.replace(mixed, set_index=bad, feature=feature))


def test_files_cannot_ask_for_more_memory_than_they_hold() -> None:
    forest = make(5, [80])
    empty = np.zeros((1 << 40, 0), np.uint32)  # no bytes in a file, but 1 TB when sets are unpacked
    with pytest.raises(ValueError, match="set"):
        check_forest(dataclasses.replace(forest, sets=empty))


@pytest.mark.parametrize("change", [{"base": 1e99}, {"base": math.nan}, {"divisor": 1e-300}])
def test_sums_stay_finite_in_single_precision(change: dict[str, float]) -> None:
    forest = make(5, [8], round_sums=True)
    with pytest.raises(ValueError, match="base"):
        check_forest(dataclasses.replace(forest, **change))
    for value in (1e39, math.inf, math.nan):
        values = np.where(forest.is_inner, 0.0, value)
        with pytest.raises(ValueError, match="values"):
            check_forest(dataclasses.replace(forest, value=values))
