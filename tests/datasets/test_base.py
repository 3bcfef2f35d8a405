"""Dataset: what it refuses, and how it is divided."""

from __future__ import annotations

import math
import zlib
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairdial.datasets import Dataset, Pictures, load_compas, make_gaussian, register_dataset
from fairdial.datasets.registry import BUILT_IN, DATASETS
from fairdial.errors import InvalidInputError

THREE = {
    "shares": (0.5, 0.3, 0.2),
    "base_rates": (0.2, 0.5, 0.7),
    "separations": (1.0, 1.5, 2.0),
}


def tiny(**changed) -> Dataset:
    parts = {
        "X": pd.DataFrame({"x": range(4)}),
        "y": [0, 1, 0, 1],
        "groups": ["a", "a", "b", "b"],
    }
    return Dataset(**(parts | changed))


def from_cells(cells: list[tuple[int, int]]) -> Dataset:
    """So many rows with label 0 and 1 in each group."""
    y = np.concatenate([np.repeat([0, 1], cell) for cell in cells])
    groups = np.repeat([f"g{a}" for a in range(len(cells))], [sum(cell) for cell in cells])
    return Dataset(pd.DataFrame({"row": range(len(y))}), y, groups)


cells = st.lists(st.tuples(st.integers(8, 60), st.integers(8, 60)), min_size=1, max_size=4)
seeds = st.integers(0, 2**32 - 1)
shares = st.floats(0.15, 0.85)


def rows_of(*parts: Dataset) -> np.ndarray:
    return np.concatenate([part.X.index.to_numpy() for part in parts])


def share_of_ones(data: Dataset, group: str) -> float:
    return float(data.y[data.groups == group].mean())


class TestConstruction:
    def test_labels_become_integers_and_groups_strings(self):
        data = tiny(y=np.array([False, True, False, True]), groups=pd.Series([7, 7, 8, 8]))
        assert data.y.dtype == np.int64
        assert data.groups.tolist() == ["7", "7", "8", "8"]

    def test_several_columns_of_groups_become_their_intersections(self):
        frame = pd.DataFrame({"race": ["p", "p", "q", "q"], "sex": ["m", "f", "m", "f"]})
        assert tiny(groups=frame).groups.tolist() == ["p & m", "p & f", "q & m", "q & f"]

    def test_it_cannot_be_changed(self):
        with pytest.raises(AttributeError):
            tiny().y = np.zeros(4)

    def test_its_length_is_the_number_of_rows(self):
        assert len(tiny()) == 4

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"X": [[0], [1], [2], [3]]}, "`X`"),
            ({"X": pd.DataFrame({"x": []})}, "`X`"),
            ({"y": [0, 1, 0]}, r"`X`.*`y`.* 4 and 3"),
            ({"groups": ["a"] * 5}, r"`X`.*`groups`.* 4 and 5"),
            ({"logits": [0.0]}, r"`X`.*`logits`.* 4 and 1"),
            ({"y": [0, 1, 2, 1]}, "`y`"),
            ({"y": [-1, 1, -1, 1]}, "`y`"),
            ({"y": ["no", "yes", "no", "yes"]}, "`y`"),
            ({"y": [0, 1, np.nan, 1]}, "`y`"),
            ({"groups": ["a", None, "b", "b"]}, "`groups`"),
            ({"groups": [1.0, np.nan, 2.0, 2.0]}, "`groups`"),
            ({"clusters": [0, 1]}, r"`X`.*`clusters`.* 4 and 2"),
            ({"clusters": ["p", None, "q", "q"]}, r"`clusters`.* row 1"),
            ({"clusters": [[0, 1]] * 4}, "`clusters`"),
        ],
    )
    def test_bad_input_is_named(self, changed, message):
        with pytest.raises(InvalidInputError, match=message):
            tiny(**changed)


class TestDescribe:
    def test_it_shows_what_is_known_and_nothing_else(self):
        text = tiny(name="four", source="a drawer", license="none").describe()
        assert text.splitlines()[:3] == [
            "four: 4 rows, 1 column",
            "Source: a drawer",
            "License: none",
        ]
        assert "Preparation" not in text

    def test_it_counts_every_group_and_its_positive_rate(self):
        lines = from_cells([(6, 2), (5, 5)]).describe().splitlines()
        assert [line.split() for line in lines[-3:]] == [
            ["g0", "8", "0.444", "0.250"],
            ["g1", "10", "0.556", "0.500"],
            ["all", "18", "1.000", "0.389"],
        ]


class TestSubset:
    def test_a_mask_and_its_positions_choose_the_same_rows(self):
        data = make_gaussian(50)
        mask = data.y == 1
        by_mask, by_position = data.subset(mask), data.subset(np.flatnonzero(mask))
        pd.testing.assert_frame_equal(by_mask.X, by_position.X)
        np.testing.assert_array_equal(by_mask.groups, by_position.groups)

    def test_every_column_moves_together(self):
        data = make_gaussian(50)
        rows = [7, 3, 3]
        part = data.subset(rows)
        np.testing.assert_array_equal(part.X.index, rows)
        np.testing.assert_array_equal(part.y, data.y[rows])
        np.testing.assert_array_equal(part.groups, data.groups[rows])
        np.testing.assert_array_equal(part.logits, data.logits[rows])

    @pytest.mark.parametrize(
        ("index", "message"),
        [
            ([], "`index`"),
            ([False] * 4, "`index`"),
            ([True], r"`index`.*`y`.* 1 and 4"),
            ([0, 4], "`index`"),
            ([-1], "`index`"),
            ([0.5], "`index`"),
        ],
    )
    def test_bad_input_is_named(self, index, message):
        with pytest.raises(InvalidInputError, match=message):
            tiny().subset(index)


class TestSplit:
    @given(cells, shares, seeds)
    def test_the_parts_are_disjoint_and_complete(self, cells, share, seed):
        data = from_cells(cells)
        rows = rows_of(*data.split(share, seed))
        np.testing.assert_array_equal(np.sort(rows), np.arange(len(data)))

    @given(cells, st.integers(15, 85), seeds)
    def test_every_group_gives_its_share_rounded_up(self, cells, percent, seed):
        _, test = from_cells(cells).split(percent / 100, seed)
        for a, cell in enumerate(cells):
            assert np.sum(test.groups == f"g{a}") == math.ceil(sum(cell) * percent / 100 - 1e-9)

    @given(cells, shares, seeds)
    def test_labels_keep_their_share_within_one_row(self, cells, share, seed):
        data = from_cells(cells)
        for part in data.split(share, seed):
            for group in np.unique(data.groups):
                n = np.sum(part.groups == group)
                drift = share_of_ones(part, group) - share_of_ones(data, group)
                assert abs(drift) * n < 1.0 + 1e-9

    @given(cells, shares, seeds)
    def test_every_label_of_every_group_is_in_both_parts(self, cells, share, seed):
        for part in from_cells(cells).split(share, seed):
            assert len(set(zip(part.groups, part.y, strict=True))) == 2 * len(cells)

    def test_a_group_with_one_label_is_divided_too(self):
        train, test = from_cells([(10, 10), (0, 5)]).split(0.2)
        assert np.sum(train.groups == "g1") == 4
        assert np.sum(test.groups == "g1") == 1

    def test_the_same_seed_gives_the_same_rows(self):
        data = make_gaussian(500)
        for first, second in zip(data.split(0.3, 4), data.split(0.3, 4), strict=True):
            pd.testing.assert_frame_equal(first.X, second.X)

    def test_another_seed_gives_other_rows(self):
        data = make_gaussian(500)
        assert set(rows_of(data.split(0.3, 0)[1])) != set(rows_of(data.split(0.3, 1)[1]))

    def test_any_number_of_groups_will_do(self):
        train, test = make_gaussian(1000, **THREE).split()
        assert set(train.groups) == set(test.groups) == {"group 0", "group 1", "group 2"}

    @pytest.mark.parametrize("size", [0, 1, 1.0, -0.1, 1.5, float("nan"), "half", True, None])
    def test_a_share_outside_its_range_is_refused(self, size):
        with pytest.raises(InvalidInputError, match="`test_size`"):
            tiny().split(size)

    @pytest.mark.parametrize("seed", [0.5, "0", None, True, -1])
    def test_a_seed_must_be_a_whole_number(self, seed):
        with pytest.raises(InvalidInputError, match="`random_state`"):
            tiny().split(0.5, seed)

    def test_groups_too_small_to_divide_are_all_named(self):
        data = from_cells([(20, 20), (1, 9), (9, 1)])
        with pytest.raises(InvalidInputError, match=r"'g1' \(1 and 9\), 'g2' \(9 and 1\)"):
            data.split(0.5)


class TestPaperSplit:
    @given(cells, seeds)
    def test_the_parts_are_disjoint_and_complete(self, cells, seed):
        data = from_cells([(a + 12, b + 12) for a, b in cells])
        rows = rows_of(*data.paper_split(seed))
        np.testing.assert_array_equal(np.sort(rows), np.arange(len(data)))

    @given(st.integers(12, 400), st.integers(12, 400))
    def test_each_part_is_a_share_of_the_rest_rounded_up(self, zeros, ones):
        n = zeros + ones
        test = -(-n // 10)
        validation = -(-(n - test) // 10)
        calibration = -(-(n - test - validation) // 5)
        parts = from_cells([(zeros, ones)]).paper_split(0)
        assert len(parts.test) == test
        assert len(parts.validation) == validation
        assert len(parts.calibration) == calibration
        assert len(parts.train) == n - test - validation - calibration

    @given(cells, seeds)
    def test_labels_keep_their_share_within_one_row(self, cells, seed):
        data = from_cells([(a + 12, b + 12) for a, b in cells])
        for part in data.paper_split(seed):
            for group in np.unique(data.groups):
                n = np.sum(part.groups == group)
                drift = share_of_ones(part, group) - share_of_ones(data, group)
                assert abs(drift) * n < 1.0 + 1e-9

    def test_seeds_give_the_rows_that_published_figures_came_from(self):
        parts = load_compas().paper_split(5)
        sums = [zlib.crc32(part.X.index.to_numpy().astype("<i8").tobytes()) for part in parts]
        assert sums == [3410854122, 2777412979, 2907083292, 4177762200]

    def test_a_seed_must_be_a_whole_number(self):
        with pytest.raises(InvalidInputError, match="`seed`"):
            tiny().paper_split(0.5)

    def test_groups_too_small_to_divide_are_named(self):
        with pytest.raises(InvalidInputError, match=r"'g1' \(3 and 3\)"):
            from_cells([(50, 50), (3, 3)]).paper_split(0)


def clustered(cells: list[tuple[int, int]], sizes: list[int], *, mixed: bool) -> Dataset:
    """Shuffled rows in clusters of these sizes; of one group and label each, unless mixed."""
    data = from_cells(cells)
    n = len(data)
    data = data.subset(np.random.default_rng(n).permutation(n))
    clusters = np.repeat(np.arange(n), np.resize(sizes, n))[:n]
    if not mixed:
        order = np.lexsort((data.y, data.groups))
        _, cell = np.unique(np.char.add(data.groups, data.y.astype(str)), return_inverse=True)
        clusters[order] = clusters + n * cell[order]
    return Dataset(data.X, data.y, data.groups, clusters=clusters)


def cell_counts(part: Dataset, data: Dataset) -> np.ndarray:
    names = np.unique(data.groups)
    return np.array([[np.sum((part.groups == g) & (part.y == k)) for k in (0, 1)] for g in names])


large = st.lists(st.tuples(st.integers(60, 90), st.integers(60, 90)), min_size=1, max_size=3)
few = st.lists(st.integers(1, 4), min_size=1, max_size=6)


class TestClusters:
    def test_numbers_stay_and_other_values_are_numbered(self):
        assert tiny(clusters=[7, 7, 3, 9]).clusters.tolist() == [7, 7, 3, 9]
        assert tiny(clusters=["q", "p", "q", "r"]).clusters.tolist() == [0, 1, 0, 2]
        assert tiny().clusters is None

    def test_they_move_with_their_rows(self):
        assert tiny(clusters=[7, 7, 3, 9]).subset([3, 0]).clusters.tolist() == [9, 7]

    @given(large, few, st.booleans(), seeds)
    def test_no_cluster_is_parted_and_no_row_lost(self, cells, sizes, mixed, seed):
        data = clustered(cells, sizes, mixed=mixed)
        for parts in (data.split(0.4, seed), data.paper_split(seed)):
            np.testing.assert_array_equal(np.sort(rows_of(*parts)), np.arange(len(data)))
            found = np.concatenate([np.unique(part.clusters) for part in parts])
            assert len(found) == len(np.unique(data.clusters))

    @given(large, few, seeds)
    def test_every_label_of_a_group_is_met_to_within_a_cluster(self, cells, sizes, seed):
        data = clustered(cells, sizes, mixed=False)
        single = Dataset(data.X, data.y, data.groups)
        for ours, exact in (
            (data.split(0.4, seed), single.split(0.4, seed)),
            (data.paper_split(seed), single.paper_split(seed)),
        ):
            for part, wanted in zip(ours, exact, strict=True):
                drift = cell_counts(part, data) - cell_counts(wanted, data)
                assert np.abs(drift).max() < max(sizes)
                assert cell_counts(part, data).min() > 0

    @given(cells, seeds)
    def test_single_rows_are_divided_as_without_clusters(self, cells, seed):
        data = from_cells(cells)
        names = np.random.default_rng(seed).permutation(len(data))
        with_clusters = Dataset(data.X, data.y, data.groups, clusters=names)
        for ours, theirs in zip(with_clusters.split(0.4, seed), data.split(0.4, seed), strict=True):
            np.testing.assert_array_equal(ours.X.index, theirs.X.index)

    @given(large, few, st.booleans(), seeds)
    def test_their_names_don_t_matter(self, cells, sizes, mixed, seed):
        data = clustered(cells, sizes, mixed=mixed)
        other = Dataset(data.X, data.y, data.groups, clusters=[f"c{-c}" for c in data.clusters])
        for ours, theirs in zip(data.paper_split(seed), other.paper_split(seed), strict=True):
            np.testing.assert_array_equal(ours.X.index, theirs.X.index)

    @given(large, few, seeds)
    def test_a_mixed_cluster_counts_where_its_first_row_does(self, cells, sizes, seed):
        data = clustered(cells, sizes, mixed=True)
        first = pd.Series(range(len(data))).groupby(data.clusters).transform("min").to_numpy()
        alike = Dataset(data.X, data.y[first], data.groups[first], clusters=data.clusters)
        for ours, theirs in zip(data.split(0.4, seed), alike.split(0.4, seed), strict=True):
            np.testing.assert_array_equal(ours.X.index, theirs.X.index)

    def test_a_group_that_only_follows_others_is_divided_with_them(self):
        y, groups = [0, 1] * 10, ["a"] * 18 + ["b"] * 2
        clusters = [*range(18), 0, 1]
        train, test = Dataset(pd.DataFrame({"row": range(20)}), y, groups, clusters=clusters).split(
            0.5
        )
        assert len(train) + len(test) == 20

    def test_too_few_clusters_are_an_error(self):
        data = from_cells([(8, 8), (8, 8)])
        clusters = [*range(8), *[8] * 8, *range(9, 25)]  # the second cell is one cluster
        data = Dataset(data.X, data.y, data.groups, clusters=clusters)
        message = r"clusters.*'g0' \(8 and 8\)"
        with pytest.raises(InvalidInputError, match=message):
            data.split(0.5)

    @given(st.lists(st.integers(1, 30), min_size=4, max_size=8), seeds)
    def test_as_many_clusters_as_parts_are_enough(self, sizes, seed):
        n = sum(sizes)
        data = from_cells([(n, 0)])
        data = Dataset(data.X, data.y, data.groups, clusters=np.repeat(range(len(sizes)), sizes))
        parts = data.paper_split(seed)
        assert min(len(part) for part in parts) > 0
        assert sum(len(part) for part in parts) == n


class TestMergeSmall:
    @given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(1, 31))
    def test_large_groups_stay_and_the_others_become_one(self, sizes, least):
        names = [f"g{i}" for i in range(len(sizes))]
        groups = np.repeat(names, sizes)
        data = Dataset(pd.DataFrame({"x": range(len(groups))}), [0] * len(groups), groups)
        merged = data.merge_small(least).groups
        for name, size in zip(names, sizes, strict=True):
            expected = name if size >= least else "Other"
            assert (merged[groups == name] == expected).all()

    def test_the_name_of_a_group_that_stays_is_refused(self):
        data = Dataset(pd.DataFrame({"x": range(4)}), [0] * 4, ["Other"] * 3 + ["b"])
        with pytest.raises(InvalidInputError) as caught:
            data.merge_small(2)
        assert caught.value.argument == "name"
        assert data.merge_small(4).groups.tolist() == ["Other"] * 4


class TestRegistry:
    def test_every_record_is_that_of_its_loader(self):
        for name in BUILT_IN:
            info = DATASETS[name]
            assert info.name == name
            if not info.needs_folder:
                data = info.load()
                assert (data.name, data.source) == (name, info.source)
                assert (data.license, data.label) == (info.license, info.label)
                assert isinstance(data.X, Pictures) == info.pictures

    def test_a_data_set_can_be_registered_again_but_not_under_a_built_in_name(self, monkeypatch):
        monkeypatch.setitem(DATASETS, "mine", DATASETS["adult"])  # removed after the test
        for source in ("one", "one", "another"):
            info = replace(DATASETS["adult"], name="mine", source=source)
            assert register_dataset(info) is info
            assert DATASETS["mine"] is info
        for name in BUILT_IN:
            before = DATASETS[name]
            with pytest.raises(InvalidInputError, match=f"'{name}'") as caught:
                register_dataset(replace(info, name=name))
            assert caught.value.argument == "name"
            assert DATASETS[name] is before
