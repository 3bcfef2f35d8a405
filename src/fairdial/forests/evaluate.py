"""Evaluate forests with NumPy, by tables of masks or by pointers.

*Masks.* In a tree with at most 64 leaves, the value of one feature rules out some leaves. A table
has a row for each interval between thresholds of a feature, and in it, for each tree, the leaves
that remain as bits. The bitwise *and* of a row's entries, one for each feature, leaves the one leaf
of every tree.

*Pointers.* Larger trees are walked from the root, all rows and trees together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairdial._arrays import Features, Floats, Mask
from fairdial._special import expit, logit
from fairdial.forests.forest import Forest, unpack_sets

MOST_LEAVES = 64  # bits of a mask
MOST_BYTES = 1 << 27  # of the tables of masks
CHUNK_MASKS, CHUNK_POINTERS = 256, 1024  # rows at a time, which stay in the processor's cache
Words = NDArray[np.unsignedinteger[Any]]


class Evaluator:
    """Scores rows by a forest.

    Parameters
    ----------
    forest : Forest
        Checked.
    """

    def __init__(self, forest: Forest) -> None:
        self.forest = forest
        self._sum = np.float32 if forest.round_sums else np.float64
        self._value = forest.value.astype(self._sum)
        tables = _Tables.make(forest)
        self._leaves = _Pointers(forest) if tables is None else tables

    def logits(self, X: Features) -> Floats:
        """Return (n,) log-odds of rows, (n, n_features)."""
        return to_logits(self.forest, self.sums(X))

    def sums(self, X: Features) -> NDArray[Any]:
        """Return (n,) sums of the base and the leaves' values, added in the order of trees."""
        forest = self.forest
        if forest.round_inputs:
            with np.errstate(over="ignore"):
                X = X.astype(np.float32)
        X64: Floats = X.astype(np.float64, copy=False)
        if len(X64) == 1 and isinstance(self._leaves, _Tables):
            terms = np.append(forest.base, self._value[self._leaves.find_one(X64[0].tolist())])
            return np.add.accumulate(terms, dtype=self._sum)[-1:]
        found = np.empty(len(X64), self._sum)
        size = self._leaves.chunk
        for start in range(0, len(X64), size):
            leaves = self._leaves.find(X64[start : start + size])  # (n, T)
            terms = np.empty((len(leaves), forest.n_trees + 1), self._sum)
            terms[:, 0] = forest.base
            np.take(self._value, leaves, out=terms[:, 1:], mode="clip")
            # np.sum would add in another order
            found[start : start + size] = np.add.accumulate(terms, axis=1, out=terms)[:, -1]
        return found


def to_logits(forest: Forest, sums: NDArray[Any]) -> Floats:
    """Return (n,) log-odds of the positive label, as computed from the library's probability."""
    if forest.divisor != 1.0:
        sums = sums / sums.dtype.type(forest.divisor)
    if forest.link == "raw":
        return np.asarray(-sums if forest.complement else sums, np.float64)
    if forest.link == "logistic":
        sums = expit(sums)  # in float32 if the sums are
    if forest.complement:
        sums = 1 - sums
    with np.errstate(divide="ignore"):
        return np.asarray(logit(sums.astype(np.float64)), np.float64)


# ---- masks -------------------------------------------------------------------------------------


class _Tables:
    """Finds leaves by tables of masks."""

    chunk = CHUNK_MASKS

    def __init__(self, forest: Forest, bits: int) -> None:
        inner = forest.is_inner
        self._columns = np.unique(forest.feature[inner])  # features that some node tests
        categorical = forest.categorical()
        self._edges: list[Floats | int] = []  # thresholds, or the number of known codes
        sizes: list[int] = []
        for f in self._columns.tolist():
            if categorical[f]:
                edges: Floats | int = 32 * forest.sets.shape[1]
                sizes.append(32 * forest.sets.shape[1] + 2)  # codes, other codes, missing
            else:
                edges = np.unique(forest.threshold[inner & (forest.feature == f)])
                sizes.append(len(edges) + 2)  # intervals, missing
            self._edges.append(edges)
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
        first, count = _leaf_ranges(forest)
        trees = np.repeat(np.arange(forest.n_trees), np.diff(forest.offsets))
        leaves = np.flatnonzero(~inner)
        self._by_leaf = np.zeros((forest.n_trees, bits), np.intp)  # node of each leaf
        self._by_leaf[trees[leaves], first[leaves]] = leaves
        self._offset = np.arange(forest.n_trees) * bits
        self._bits, self._flat = bits, self._by_leaf.ravel()
        self._masks = self._make(forest, first, count, trees)  # (R, T)
        self._tests = [  # for single rows: feature, thresholds or codes, first and last row
            (f, edges if isinstance(edges, int) else edges.tolist(), start, end - 1)
            for f, edges, start, end in zip(
                self._columns.tolist(),
                self._edges,
                self._starts.tolist(),
                self._starts[1:].tolist(),
                strict=False,
            )
        ]

    @classmethod
    def make(cls, forest: Forest) -> _Tables | None:
        """Return tables for a forest, or None if its trees or the tables would be too large."""
        inner = forest.is_inner
        most = int(np.add.reduceat(~inner, forest.offsets[:-1]).max())
        if most > MOST_LEAVES or not inner.any():
            return None
        bits = next(b for b in (8, 16, 32, 64) if most <= b)
        tests = np.unique(np.stack([forest.feature[inner], forest.threshold[inner]]), axis=1).shape[
            1
        ]
        codes = int(forest.categorical().sum()) * (32 * forest.sets.shape[1] + 2)
        if (tests + codes + 2 * forest.n_features) * forest.n_trees * bits // 8 > MOST_BYTES:
            return None
        return cls(forest, bits)

    def _make(self, forest: Forest, first: Any, count: Any, trees: Any) -> Words:
        dtype = np.dtype(f"u{self._bits // 8}")
        everything = (1 << self._bits) - 1
        masks = np.empty((forest.n_trees, int(self._starts[-1])), dtype)
        masks[:] = [[(1 << n) - 1] for n in count[forest.offsets[:-1]].tolist()]
        members = unpack_sets(forest.sets)
        place = {f: i for i, f in enumerate(self._columns.tolist())}
        inner = np.flatnonzero(forest.is_inner)
        first, count = first.tolist(), count.tolist()
        left, right, missing = forest.left, forest.right, forest.missing_left.tolist()
        for node, tree, f, chosen, low, high in zip(
            inner.tolist(),
            trees[inner].tolist(),
            forest.feature[inner].tolist(),
            forest.set_index[inner].tolist(),
            left[inner].tolist(),
            right[inner].tolist(),
            strict=True,
        ):
            i = place[f]
            row = masks[tree, self._starts[i] : self._starts[i + 1]]
            without_left = dtype.type(everything & ~(((1 << count[low]) - 1) << first[low]))
            without_right = dtype.type(everything & ~(((1 << count[high]) - 1) << first[high]))
            if chosen >= 0:
                inside = members[chosen]
                row[:-2] &= np.where(inside, without_right, without_left)
                row[-2] &= without_left
            else:
                cut = int(np.searchsorted(self._edges[i], forest.threshold[node])) + 1
                row[:cut] &= without_right
                row[cut:-1] &= without_left
            row[-1] &= without_right if missing[node] else without_left
        return np.ascontiguousarray(masks.T)

    def find(self, X: Floats) -> NDArray[np.intp]:
        """Return (n, T) nodes of the leaves of rows."""
        remaining: Words | None = None
        for f, edges, start, end in zip(
            self._columns, self._edges, self._starts, self._starts[1:], strict=False
        ):
            values = X[:, f]
            if isinstance(edges, int):
                known = (values > -1) & (values < edges)
                places = np.where(known, np.where(known, values, 0.0), edges).astype(np.intp)
            else:
                places = np.searchsorted(edges, values)
            places = np.where(np.isnan(values), end - start - 1, places) + start
            masks = self._masks[places]  # (n, T)
            remaining = masks if remaining is None else np.bitwise_and(remaining, masks, masks)
        assert remaining is not None
        return np.asarray(self._flat[_bit_index(remaining) + self._offset])

    def find_one(self, row: Sequence[float]) -> NDArray[np.intp]:
        """Return (T,) nodes of the leaves of one row."""
        places = []
        for f, edges, start, last in self._tests:
            value = row[f]
            if value != value:
                places.append(last)
            elif isinstance(edges, int):
                places.append(start + (int(value) if -1 < value < edges else edges))
            else:
                places.append(start + bisect_left(edges, value))
        remaining = np.bitwise_and.reduce(self._masks[places], axis=0)
        return np.asarray(self._flat[_bit_index(remaining) + self._offset])


def _bit_index(masks: Words) -> NDArray[np.intp]:
    """Return the position of the only bit of each mask: the exponent of its value as a float."""
    if masks.dtype.itemsize < 8:
        exponents = masks.astype(np.float32).view(np.int32)
        return (np.right_shift(exponents, 23) - 127).astype(np.intp)
    return np.right_shift(masks.astype(np.float64).view(np.int64), 52) - 1023


def _leaf_ranges(forest: Forest) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each node's first leaf, counted from left to right in its tree, and their number."""
    left, right = forest.left.tolist(), forest.right.tolist()
    n_nodes = len(left)
    count, first = [1] * n_nodes, [0] * n_nodes
    for node in range(n_nodes - 1, -1, -1):
        if left[node] != node:
            count[node] = count[left[node]] + count[right[node]]
    for node in range(n_nodes):
        if left[node] != node:
            first[left[node]] = first[node]
            first[right[node]] = first[node] + count[left[node]]
    return np.array(first), np.array(count)


# ---- pointers ----------------------------------------------------------------------------------


class _Pointers:
    """Finds leaves by walking from the roots."""

    chunk = CHUNK_POINTERS

    def __init__(self, forest: Forest) -> None:
        self._forest = forest
        self._inner = forest.is_inner
        members = unpack_sets(forest.sets)
        self._members = np.pad(members, ((0, 0), (0, 1)))  # the last code stands for all others
        self._has_sets = bool(np.any(forest.set_index >= 0))

    def find(self, X: Floats) -> NDArray[np.intp]:
        """Return (n, T) nodes of the leaves of rows."""
        forest = self._forest
        n_rows = len(X)
        found = np.tile(forest.offsets[:-1].astype(np.intp), n_rows)
        pairs = np.flatnonzero(self._inner[found])
        rows = pairs // forest.n_trees
        nodes = found[pairs]
        while len(pairs):
            values = X[rows, forest.feature[nodes]]
            goes_left = values <= forest.threshold[nodes]
            if self._has_sets:
                self._test_sets(nodes, values, goes_left)
            missing = np.isnan(values)
            goes_left[missing] = forest.missing_left[nodes[missing]]
            nodes = np.where(goes_left, forest.left[nodes], forest.right[nodes]).astype(np.intp)
            found[pairs] = nodes
            going = self._inner[nodes]
            pairs, rows, nodes = pairs[going], rows[going], nodes[going]
        return found.reshape(n_rows, forest.n_trees)

    def _test_sets(self, nodes: NDArray[np.intp], values: Floats, goes_left: Mask) -> None:
        """Test categories: whether codes are in the nodes' sets."""
        chosen = self._forest.set_index[nodes]
        where = np.flatnonzero(chosen >= 0)
        others = self._members.shape[1] - 1
        codes = values[where]
        known = (codes > -1) & (codes < others)
        places = np.where(known, np.where(known, codes, 0.0), others).astype(np.intp)
        goes_left[where] = self._members[chosen[where], places]
