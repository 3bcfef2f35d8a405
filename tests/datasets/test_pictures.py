"""Pictures: a table of pixels that is indexed like an array and costs little to send."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from fairdial import FairBayes
from fairdial.datasets import Dataset, Pictures, pictures
from fairdial.errors import InvalidInputError
from fairdial.estimators.rows import take_rows

N = 12


def noise(n: int = N, height: int = 3, width: int = 2, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 3, height, width), dtype=np.uint8)


@pytest.fixture
def mapped(tmp_path) -> Pictures:
    np.save(tmp_path / "pixels.npy", noise())
    return Pictures(np.load(tmp_path / "pixels.npy", mmap_mode="r"))


INDICES = [
    slice(None),
    slice(2, 9, 3),
    slice(None, None, -1),
    slice(5, 5),
    [3],
    [4, 0, 4, -1],
    [],
    np.array([7, 2], dtype=np.uint8),
    np.arange(N) % 3 == 0,
    np.zeros(N, dtype=bool),
    ([1, 5], Ellipsis),
]


class TestIndexing:
    @pytest.mark.parametrize("index", INDICES, ids=repr)
    def test_parts_are_those_of_the_array(self, index):
        part = Pictures(noise())[index]
        rows = index[0] if isinstance(index, tuple) else index
        expected = noise()[rows]
        assert isinstance(part, Pictures)
        assert part.shape == expected.shape
        np.testing.assert_array_equal(np.asarray(part), expected)

    @pytest.mark.parametrize("index", INDICES, ids=repr)
    def test_a_part_of_a_part_is_a_part(self, index):
        order = np.random.default_rng(1).permutation(N)
        part, expected = Pictures(noise())[order][index], noise()[order]
        rows = index[0] if isinstance(index, tuple) else index
        np.testing.assert_array_equal(np.asarray(part), expected[rows])
        np.testing.assert_array_equal(part.places, order[rows])

    @given(st.lists(st.integers(-N, N - 1)), st.lists(st.integers(0, N - 1), min_size=1))
    def test_pixels_are_taken_by_position_in_the_table(self, positions, places):
        table = Pictures(noise(), places)
        inside = [p % len(places) for p in positions]
        taken = table.uint8(inside)
        np.testing.assert_array_equal(taken, noise()[[places[p] for p in inside]])
        assert taken.flags.c_contiguous
        assert taken.flags.writeable
        assert taken.dtype == np.uint8
        np.testing.assert_array_equal(np.asarray(table.take(inside)), taken)

    @pytest.mark.parametrize("place", [0, 5, -1, np.int32(3)])
    def test_one_position_gives_one_picture(self, place):
        picture = Pictures(noise())[place]
        assert type(picture) is np.ndarray
        np.testing.assert_array_equal(picture, noise()[place])

    def test_what_is_taken_is_a_copy(self):
        pixels = noise()
        table = Pictures(pixels)
        table[0][:] = 7
        table.uint8([0])[:] = 7
        np.asarray(table)[:] = 7
        np.testing.assert_array_equal(pixels, noise())

    def test_parts_share_the_pixels(self):
        pixels = noise()
        part = Pictures(pixels)[[1, 2]]
        pixels[2] = 0  # whoever owns the array may
        assert part.uint8([1]).max() == 0

    def test_neither_pixels_nor_places_can_be_changed(self, mapped):
        for table in (Pictures(noise()), mapped, mapped[:3], pickle.loads(pickle.dumps(mapped))):
            with pytest.raises(ValueError, match="read-only"):
                table.places[0] = 1
            assert not table._pixels.flags.writeable

    def test_the_array_that_was_given_stays_writeable(self):
        pixels, places = noise(), np.arange(3)
        Pictures(pixels, places)
        pixels[0], places[0] = 1, 2

    @pytest.mark.parametrize("index", [N, -N - 1, [0, N], [0.5], "a", [[0, 1]], np.ones(3, bool)])
    def test_what_no_array_takes_is_an_index_error(self, index):
        with pytest.raises(IndexError):
            Pictures(noise())[index]

    def test_it_ends(self):
        pictures = list(Pictures(noise())[2:4])
        assert len(pictures) == 2
        np.testing.assert_array_equal(pictures[1], noise()[3])

    def test_it_looks_like_an_array(self, mapped):
        assert mapped.shape == (N, 3, 3, 2)
        assert mapped.ndim == 4
        assert mapped.dtype == np.uint8
        assert len(mapped) == N
        assert repr(mapped) == "Pictures(12 of 3 x 2)"
        assert np.asarray(mapped, dtype=np.float32).dtype == np.float32
        with pytest.raises(ValueError, match="copy"):
            np.asarray(mapped, copy=False)


class TestJoin:
    def test_parts_of_the_same_pixels_are_put_one_after_the_other(self, mapped):
        joined = mapped[[5, 1]].join(mapped[:2])
        np.testing.assert_array_equal(np.asarray(joined), noise()[[5, 1, 0, 1]])

    def test_equal_pixels_are_the_same_pixels(self, mapped):
        assert len(mapped.join(Pictures(noise()))) == 2 * N

    @pytest.mark.parametrize("other", [Pictures(noise(seed=1)), noise()], ids=["pixels", "array"])
    def test_others_are_refused(self, mapped, other):
        with pytest.raises(InvalidInputError, match="`other`"):
            mapped.join(other)


class TestKeys:
    def test_the_same_content_has_the_same_key_wherever_it_lies(self, mapped):
        flipped = noise()[::-1].copy()[::-1]  # not contiguous
        assert mapped.key == Pictures(noise()).key == Pictures(flipped).key == mapped[2:3].key

    def test_another_content_or_shape_has_another_key(self):
        other = noise()
        other[-1, -1, -1, -1] ^= 1
        turned = noise().reshape(N, 3, 2, 3)
        keys = {Pictures(pixels).key for pixels in (noise(), other, turned, noise()[:-1])}
        assert len(keys) == 4

    def test_many_pictures_are_hashed_as_one(self):
        many = noise(2500, 1, 1)
        changed = many.copy()
        changed[2400] ^= 1
        assert Pictures(many).key != Pictures(changed).key

    def test_a_key_that_is_known_is_believed(self):
        assert Pictures(noise(), key="abc")[1:].key == "abc"

    @pytest.mark.parametrize("view", [False, True])
    def test_it_follows_pixels_that_are_changed_in_place(self, view):
        pixels = noise()
        whole = Pictures(pixels[:] if view else pixels)
        part = whole[:2]
        before = part.key, part.places_key()
        pixels[:] = 0
        assert part.key == whole.key == Pictures(np.zeros_like(pixels)).key != before[0]
        assert part.places_key() != before[1]

    @pytest.mark.parametrize("kind", ["read-only", "mapped", "sent"])
    def test_it_is_computed_once_for_all_parts_where_nobody_can_change_it(
        self, kind, mapped, monkeypatch
    ):
        pixels = noise()
        pixels.flags.writeable = False
        makers = {
            "read-only": lambda: Pictures(pixels[1:]),
            "mapped": lambda: mapped,
            "sent": lambda: pickle.loads(pickle.dumps(Pictures(noise()))),
        }
        whole = makers[kind]()
        before = whole[:2].key
        monkeypatch.setattr(pictures, "pixels_key", None)
        assert whole.key == whole[1:].key == before

    def test_places_in_their_order_make_another_key(self, mapped):
        keys = {mapped[i].places_key() for i in ([0, 1], [1, 0], [0], [0, 1, 1], slice(None))}
        assert len(keys) == 5
        assert mapped[[0, 1]].places_key() == Pictures(noise(), [0, 1]).places_key()
        assert mapped[[0, 1]].places_key() != Pictures(noise(seed=1), [0, 1]).places_key()


class TestSending:
    @pytest.mark.parametrize(
        "index", [slice(None), slice(None, None, -1), slice(3, 7), [9, 0]], ids=repr
    )
    def test_what_arrives_is_what_was_sent(self, mapped, index):
        table = Pictures(noise(), mean=(0, 0, 0), std=(1, 2, 3), key="abc")
        for sent in (table[index], mapped[index]):
            arrived = pickle.loads(pickle.dumps(sent))
            np.testing.assert_array_equal(np.asarray(arrived), noise()[index])
            assert (arrived.key, arrived.mean, arrived.std) == (sent.key, sent.mean, sent.std)

    def test_a_part_of_a_memory_map_arrives_as_that_part(self, mapped):
        pixels = np.load(mapped._file[0], mmap_mode="r")
        for part in (pixels[4:], pixels[::-1]):  # numpy keeps the file's name, not the offset
            arrived = pickle.loads(pickle.dumps(Pictures(part)))
            np.testing.assert_array_equal(np.asarray(arrived), part)

    def test_memory_mapped_pixels_stay_where_they_are(self, tmp_path):
        pixels = np.lib.format.open_memmap(
            tmp_path / "large.npy", mode="w+", dtype=np.uint8, shape=(30_000, 3, 8, 8)
        )
        pixels[-1] = 9
        pixels.flush()
        table = Pictures(np.load(tmp_path / "large.npy", mmap_mode="r"))
        assert len(pickle.dumps(table)) < 10_000
        assert len(pickle.dumps(table[:1000])) < 10_000
        assert pickle.loads(pickle.dumps(table))[-1].min() == 9

    def test_another_process_reads_the_same_pixels_without_pillow_or_torch(self, mapped):
        code = (
            "import pickle, sys, numpy as np\n"
            "table = pickle.load(sys.stdin.buffer)\n"
            "sys.stdout.buffer.write(np.asarray(table).tobytes())\n"
            "import fairdial.datasets\n"
            "assert not {'PIL', 'torch'} & set(sys.modules)"
        )
        sent = pickle.dumps(mapped[[3, 1]])
        done = subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout == noise()[[3, 1]].tobytes()


class TestConstruction:
    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"pixels": noise().astype(np.float32)}, "`pixels`"),
            ({"pixels": noise().tolist()}, "`pixels`"),
            ({"pixels": noise()[0]}, "`pixels`"),
            ({"pixels": noise()[:, :2]}, r"channels first, got \(12, 2, 3, 2\)"),
            ({"places": [[0]]}, "`places`"),
            ({"places": [0.5]}, "`places`"),
            ({"places": [True]}, "`places`"),
            ({"places": [0, N]}, "`places`"),
            ({"places": [-1]}, "`places`"),
            ({"mean": (0, 0)}, "`mean`"),
            ({"mean": 0.5}, "`mean`"),
            ({"std": (1, 1, np.inf)}, "`std`"),
            ({"std": (1, 1, 0)}, "`std`"),
        ],
    )
    def test_bad_input_is_named(self, changed, message):
        with pytest.raises(InvalidInputError, match=message):
            Pictures(**({"pixels": noise()} | changed))


def faces(n: int = 200, seed: int = 0) -> Dataset:
    """Bright pictures tend to have label 1."""
    rng = np.random.default_rng(seed)
    y, groups = rng.integers(0, 2, n), rng.choice(["a", "b"], n)
    pixels = rng.integers(0, 200, (n, 3, 4, 4)) + 50 * y[:, None, None, None]
    return Dataset(Pictures(pixels.astype(np.uint8)), y, groups, name="faces")


class TestAsRows:
    def test_scikit_learn_counts_and_takes_them(self, mapped):
        assert _num_samples(mapped) == N
        for take in (_safe_indexing, take_rows):
            np.testing.assert_array_equal(
                np.asarray(take(mapped, np.array([4, 1]))), noise()[[4, 1]]
            )
        train, test = train_test_split(mapped, test_size=0.25, random_state=0)
        assert (len(train), len(test)) == (9, 3)
        assert sorted([*train.places, *test.places]) == list(range(N))
        assert [len(test) for _, test in KFold(4).split(mapped)] == [3] * 4

    def test_a_data_set_describes_pictures(self):
        data = faces()
        assert repr(data).startswith("Dataset('faces', 200 pictures of 4 x 4, groups: a ")
        assert data.describe().splitlines()[0] == "faces: 200 pictures of 4 x 4"
        assert "1 picture of 4 x 4" in repr(data.subset([0]))

    def test_pictures_are_divided_as_a_table_is(self):
        data = faces()
        table = Dataset(pd.DataFrame({"row": np.arange(len(data))}), data.y, data.groups)
        for seed in range(3):
            for ours, theirs in zip(
                [*data.paper_split(seed), *data.split(0.3, seed)],
                [*table.paper_split(seed), *table.split(0.3, seed)],
                strict=True,
            ):
                np.testing.assert_array_equal(ours.X.places, theirs.X["row"])
                np.testing.assert_array_equal(ours.y, theirs.y)

    def test_an_empty_table_is_refused(self):
        with pytest.raises(InvalidInputError, match="`X`"):
            Dataset(Pictures(noise(0)), [], [])

    def test_a_dial_turns_on_pictures(self):
        train, test = faces(600).split(0.5)
        flat = FunctionTransformer(lambda X: np.asarray(X).reshape(len(X), -1) / 255)
        dial = FairBayes(make_pipeline(flat, LogisticRegression()), random_state=0)
        dial.fit(train.X, train.y, sensitive_features=train.groups)
        decisions = dial.predict(test.X, sensitive_features=test.groups, tolerance=0.1)
        assert np.mean(decisions == test.y) > 0.9
