"""A forest: binary decision trees as flat arrays, whichever library trained them.

An inner node sends a row to its left child if the row's feature is at most the threshold or, for
a category, if its code is in the node's set; missing values (NaN) have a direction of their own. A
leaf is its own child. The score is the base plus the values of the leaves, added tree by tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fairdial._arrays import Floats, Mask

Link = Literal["raw", "proba", "logistic"]
LINKS: tuple[str, ...] = get_args(Link)
MAX_NODES = 1 << 26
MAX_DEPTH = 512
MAX_FEATURES = 1 << 20
MAX_WORDS = 1 << 11  # 32-bit words of a set: codes below 65,536
MAX_VALUE = 1e100  # sums of leaves stay finite
MAX_SINGLE = 1e30  # so do sums in single precision
Ints = NDArray[np.int32]

ARRAYS: dict[str, type[np.generic]] = {
    "feature": np.int32,
    "threshold": np.float64,
    "missing_left": np.bool_,
    "left": np.int32,
    "right": np.int32,
    "set_index": np.int32,
    "sets": np.uint32,
    "value": np.float64,
    "offsets": np.int32,
}


LIBRARIES = ("lightgbm", "xgboost", "catboost")


def library_of(model: object) -> str | None:
    """Return the library of a boosted model, among those that are converted."""
    name = type(model).__module__.partition(".")[0]
    return name if name in LIBRARIES else None


class CannotConvertError(Exception):
    """A model that can't be converted; the message says what isn't supported."""


@dataclass(frozen=True)
class Forest:
    """Trees as flat arrays, and how their sum becomes a log-odds.

    Attributes
    ----------
    feature : (N,) int32
        Feature that a node tests; 0 in leaves.
    threshold : (N,) float64
        A number goes left if it is at most the threshold.
    missing_left : (N,) bool
        Whether missing values go left.
    left, right : (N,) int32
        Children, which come later in the same tree; a leaf is its own child.
    set_index : (N,) int32
        Row of ``sets`` for a test of a category, else -1.
    sets : (S, W) uint32
        Sets of codes as bits: code c is bit c % 32 of word c // 32. Members go left.
    value : (N,) float64
        Values of leaves; 0 in inner nodes.
    offsets : (T + 1,) int32
        Where each tree starts; its first node is the root.
    n_features : int
        Number of features.
    base : float
        The score before the first tree.
    link : {"raw", "proba", "logistic"}
        What the sum is: the score itself, a probability, or log-odds of a probability.
    divisor : float
        Divides the sum: the number of trees, where they are averaged.
    complement : bool
        Whether the probability is that of the other label.
    round_inputs, round_sums : bool
        Whether features, and sums, are rounded to float32.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.forests.evaluate import Evaluator
    >>> from fairdial.forests.forest import Tree, make_forest
    >>> stump = Tree(
    ...     feature=[0, 0, 0],
    ...     threshold=[0.5, 0, 0],
    ...     left=[1, 1, 2],
    ...     right=[2, 1, 2],
    ...     value=[0, -1.0, 2.0],
    ... )
    >>> forest = make_forest([stump], n_features=1, link="raw")
    >>> Evaluator(forest).logits(np.array([[0.5], [0.6], [np.nan]]))
    array([-1.,  2.,  2.])
    """

    feature: Ints
    threshold: Floats
    missing_left: Mask
    left: Ints
    right: Ints
    set_index: Ints
    sets: NDArray[np.uint32]
    value: Floats
    offsets: Ints
    n_features: int
    base: float = 0.0
    link: Link = "logistic"
    divisor: float = 1.0
    complement: bool = False
    round_inputs: bool = False
    round_sums: bool = False

    @property
    def n_trees(self) -> int:
        """Number of trees."""
        return len(self.offsets) - 1

    @property
    def is_inner(self) -> Mask:
        """(N,) whether a node has children."""
        return np.asarray(self.left != np.arange(len(self.left)))

    def categorical(self) -> Mask:
        """Return (n_features,) whether a feature holds codes of categories."""
        found = np.zeros(self.n_features, np.bool_)
        found[self.feature[self.set_index >= 0]] = True
        return found

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name."""
        return {name: np.ascontiguousarray(getattr(self, name)) for name in ARRAYS}

    def settings(self) -> dict[str, Any]:
        """Return everything that isn't an array, as JSON data."""
        return {
            "n_features": self.n_features,
            "base": self.base,
            "link": self.link,
            "divisor": self.divisor,
            "complement": self.complement,
            "round_inputs": self.round_inputs,
            "round_sums": self.round_sums,
        }


def read_forest(arrays: Mapping[str, NDArray[Any]], settings: Mapping[str, Any]) -> Forest:
    """Return a checked forest of arrays and settings; raise ValueError if they can't be right."""
    if set(arrays) != set(ARRAYS) or set(settings) != set(SETTINGS):
        raise ValueError("other arrays or settings than those of a forest")
    for name, kind in ARRAYS.items():
        if arrays[name].dtype != kind:
            raise ValueError(f"{name} of another type")
    for name, kinds in SETTINGS.items():
        if type(settings[name]) not in kinds:
            raise ValueError(f"{name} of another type")
    parts: dict[str, Any] = {**arrays, **settings}
    forest = Forest(**parts)
    check_forest(forest)
    return forest


SETTINGS: dict[str, tuple[type, ...]] = {
    "n_features": (int,),
    "base": (float, int),
    "link": (str,),
    "divisor": (float, int),
    "complement": (bool,),
    "round_inputs": (bool,),
    "round_sums": (bool,),
}


# ---- checks ------------------------------------------------------------------------------------


def check_forest(forest: Forest) -> None:
    """Raise ValueError unless every index is in range and every number finite."""
    n_nodes = len(forest.feature)
    nodes = [getattr(forest, name) for name in ARRAYS if name not in ("sets", "offsets")]
    _claim(all(array.shape == (n_nodes,) for array in nodes), "arrays of one length")
    _claim(0 < n_nodes <= MAX_NODES, "a number of nodes in range")
    _claim(0 < forest.n_features <= MAX_FEATURES, "a number of features in range")
    _claim(forest.link in LINKS, "a known link")
    most = MAX_SINGLE if forest.round_sums else MAX_VALUE
    _claim(abs(forest.base) <= most and 1 <= forest.divisor <= MAX_NODES, "a base in range")
    _claim(np.all(np.abs(forest.value) <= most), "finite values")
    _claim(not np.isnan(forest.threshold).any(), "thresholds that are numbers")
    _claim(_within(forest.feature, 0, forest.n_features), "features in range")
    sets = forest.sets
    _claim(sets.ndim == 2 and sets.shape[1] <= MAX_WORDS, "sets of codes")
    _claim(len(sets) <= n_nodes, "at most one set for each node")
    _claim(_within(forest.set_index, -1, len(sets)), "sets in range")
    offsets = forest.offsets.astype(np.int64)
    _claim(offsets.ndim == 1 and len(offsets) > 1, "at least one tree")
    _claim(offsets[0] == 0 and offsets[-1] == n_nodes and np.all(np.diff(offsets) > 0), "offsets")
    _check_children(forest, offsets)
    tested = forest.is_inner
    by_set = np.unique(forest.feature[tested & (forest.set_index >= 0)])
    by_number = np.unique(forest.feature[tested & (forest.set_index < 0)])
    _claim(not np.intersect1d(by_set, by_number).size, "features of one kind each")


def _check_children(forest: Forest, offsets: NDArray[np.int64]) -> None:
    """Raise unless every node but a root is the child of one earlier node of its tree."""
    here = np.arange(len(forest.left))
    left, right = forest.left.astype(np.int64), forest.right.astype(np.int64)
    inner = left != here
    _claim(np.array_equal(inner, right != here), "two children or none")
    ends = np.repeat(offsets[1:], np.diff(offsets))
    for child in (left, right):
        _claim(np.all(child[inner] > here[inner]) and np.all(child < ends), "children in range")
        _claim(np.all(child >= here), "children in range")
    parents = np.bincount(np.concatenate([left[inner], right[inner]]), minlength=len(here))
    expected = np.ones(len(here), np.int64)
    expected[offsets[:-1]] = 0
    _claim(np.array_equal(parents, expected), "one parent of each node")
    _claim(not inner.any() or not np.any(forest.set_index[~inner] >= 0), "leaves without sets")
    level, depth = offsets[:-1], 0
    while True:
        level = level[inner[level]]
        if not len(level):
            return
        depth += 1
        _claim(depth <= MAX_DEPTH, f"a depth of at most {MAX_DEPTH}")
        level = np.concatenate([left[level], right[level]])


def _within(values: NDArray[Any], low: int, high: int) -> bool:
    return bool(np.all(values >= low) and np.all(values < high))


def _claim(holds: object, what: str) -> None:
    if not holds:
        raise ValueError(f"a forest must have {what}")


# ---- building ----------------------------------------------------------------------------------


@dataclass
class Tree:
    """One tree with its own node numbers; ``sets`` has the codes of nodes that test categories."""

    feature: Any
    threshold: Any
    left: Any
    right: Any
    value: Any
    missing_left: Any = None
    sets: Mapping[int, Sequence[int]] = field(default_factory=dict)


def make_forest(trees: Sequence[Tree], **settings: Any) -> Forest:
    """Return a checked forest of trees; raise ValueError if they are none."""
    _claim(trees, "at least one tree")
    sizes = [len(tree.left) for tree in trees]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    _claim(offsets[-1] <= MAX_NODES, "a number of nodes in range")
    starts = np.repeat(offsets[:-1], sizes)

    def join(name: str, dtype: type[np.generic]) -> NDArray[Any]:
        return np.concatenate([np.asarray(getattr(tree, name)) for tree in trees]).astype(dtype)

    chosen: dict[int, Sequence[int]] = {
        int(offset) + node: codes
        for offset, tree in zip(offsets, trees, strict=False)
        for node, codes in tree.sets.items()
    }
    set_index = np.full(offsets[-1], -1, np.int32)
    set_index[list(chosen)] = np.arange(len(chosen))
    left = join("left", np.int64) + starts
    inner = left != np.arange(len(left))
    missing = [np.zeros(n) if t.missing_left is None else t.missing_left
               for n, t in zip(sizes, trees, strict=True)]  # fmt: skip
    forest = Forest(
        feature=np.where(inner, join("feature", np.int64), 0).astype(np.int32),
        threshold=np.where(inner & (set_index < 0), join("threshold", np.float64), 0.0),
        missing_left=np.concatenate(missing).astype(np.bool_) & inner,
        left=left.astype(np.int32),
        right=(join("right", np.int64) + starts).astype(np.int32),
        set_index=set_index,
        sets=_pack(list(chosen.values())),
        value=np.where(inner, 0.0, join("value", np.float64)),
        offsets=offsets.astype(np.int32),
        **settings,
    )
    check_forest(forest)
    return forest


def _pack(sets: Sequence[Sequence[int]]) -> NDArray[np.uint32]:
    """Return sets of codes as bits, (S, W)."""
    largest = max((max(codes) for codes in sets if len(codes)), default=-1)
    words = largest // 32 + 1
    _claim(words <= MAX_WORDS, f"codes of categories below {32 * MAX_WORDS:,}")
    packed = np.zeros((len(sets), words), np.uint32)
    for row, codes in zip(packed, sets, strict=True):
        for code in codes:
            row[code // 32] |= np.uint32(1 << (code % 32))
    return packed


def unpack_sets(sets: NDArray[np.uint32]) -> Mask:
    """Return (S, 32 W) whether a code is in a set."""
    as_bytes = np.ascontiguousarray(sets.astype("<u4")).view(np.uint8)
    return np.unpackbits(as_bytes, axis=1, bitorder="little").astype(np.bool_)
