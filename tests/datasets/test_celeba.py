"""CelebA from its official layout: attributes by name, counts that are checked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fairdial.datasets import load_celeba
from fairdial.errors import FairdialWarning, InvalidInputError

ADDRESS = "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html"
ATTRIBUTES = ["5_o_Clock_Shadow", "Attractive", "Eyeglasses", "Male", "Young"]
N = 12
MARKS = np.where(np.random.default_rng(3).integers(0, 2, (N, len(ATTRIBUTES))) == 1, 1, -1)
NAMES = [f"{i + 1:06d}.jpg" for i in range(N)]


def as_text(names=NAMES, marks=MARKS, count: object = None) -> str:
    """The official table, with its uneven blanks."""
    rows = [
        f"{name}  " + " ".join(f"{mark:2d}" for mark in row)
        for name, row in zip(names, marks, strict=True)
    ]
    head = [str(len(rows) if count is None else count), " ".join(ATTRIBUTES) + " "]
    return "\n".join([*head, *rows]) + "\n"


def as_csv() -> str:
    rows = [",".join([n, *map(str, row)]) for n, row in zip(NAMES, MARKS.tolist(), strict=True)]
    return "\n".join([",".join(["image_id", *ATTRIBUTES]), *rows]) + "\n"


@pytest.fixture
def files(jpeg) -> dict[str, bytes]:
    return {name: jpeg(seed, (18, 22)) for seed, name in enumerate(NAMES)}


@pytest.fixture
def cache(tmp_path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def root(tmp_path, folder_of, files) -> Path:
    root = tmp_path / "celeba"
    folder_of(root / "img_align_celeba", files)
    (root / "list_attr_celeba.txt").write_text(as_text())
    partition = "".join(f"{name} {i % 3}\n" for i, name in enumerate(NAMES))
    (root / "list_eval_partition.txt").write_text(partition)
    return root


class TestAttributes:
    @pytest.mark.parametrize("label", ["Attractive", "5_o_Clock_Shadow", "Young"])
    @pytest.mark.parametrize("sensitive", ["Male", "Eyeglasses"])
    def test_they_are_found_by_name(self, root, cache, label, sensitive):
        data = load_celeba(root, label=label, sensitive=sensitive, size=8, cache=cache)
        assert data.y.tolist() == (MARKS[:, ATTRIBUTES.index(label)] == 1).tolist()
        names = {"Male": ("male", "female"), "Eyeglasses": ("Eyeglasses", "not Eyeglasses")}
        yes, no = names[sensitive]
        has = MARKS[:, ATTRIBUTES.index(sensitive)] == 1
        assert data.groups.tolist() == np.where(has, yes, no).tolist()

    def test_attractive_and_male_are_the_studys(self, root, cache):
        first = load_celeba(root, size=8, cache=cache)
        named = load_celeba(root, label="Attractive", sensitive="Male", size=8, cache=cache)
        np.testing.assert_array_equal(first.y, named.y)
        np.testing.assert_array_equal(first.groups, named.groups)

    def test_pictures_are_those_of_their_names(self, root, cache, files, pillow):
        data = load_celeba(root, size=8, cache=cache)
        for place, name in enumerate(NAMES):
            np.testing.assert_array_equal(data.X[place], pillow(files[name], 8))

    def test_other_attributes_need_no_other_cache(self, root, cache):
        load_celeba(root, size=8, cache=cache)
        load_celeba(root, label="Young", sensitive="Eyeglasses", size=8, cache=cache)
        assert len(list(cache.iterdir())) == 1

    @pytest.mark.parametrize("argument", ["label", "sensitive"])
    def test_unknown_ones_are_refused(self, root, cache, argument):
        with pytest.raises(InvalidInputError, match=", ".join(ATTRIBUTES)) as caught:
            load_celeba(root, cache=cache, **{argument: "male"})
        assert (caught.value.argument, caught.value.given) == (argument, "'male'")

    def test_a_label_is_no_group(self, root, cache):
        with pytest.raises(InvalidInputError, match="`sensitive`"):
            load_celeba(root, label="Male", cache=cache)

    def test_its_terms_are_shown(self, root, cache):
        data = load_celeba(root, size=8, cache=cache)
        assert repr(data).startswith("Dataset('celeba', 12 pictures of 8 x 8, groups: female ")
        assert data.license == "non-commercial research only, no redistribution"
        assert ADDRESS in data.source
        assert data.label == "marked as Attractive"


class TestLayouts:
    def test_every_layout_gives_the_same_data(
        self, tmp_path, root, cache, files, folder_of, zip_of
    ):
        plain = load_celeba(root, size=8, cache=cache)
        inside = {f"img_align_celeba/{name}": blob for name, blob in files.items()}
        zipped, drive, mirror = (tmp_path / name for name in ("zipped", "drive", "mirror"))
        for folder in (zipped, drive / "Anno", drive / "Img", mirror):
            folder.mkdir(parents=True)
        (zipped / "list_attr_celeba.txt").write_text(as_text(NAMES[::-1], MARKS[::-1]))
        (zipped / "img_align_celeba").mkdir()  # empty
        zip_of(zipped / "img_align_celeba.zip", inside, reversed(inside))
        (drive / "Anno" / "list_attr_celeba.txt").write_text(as_text())
        zip_of(drive / "Img" / "img_align_celeba.zip", inside | {"other/1.jpg": b""})
        (mirror / "list_attr_celeba.csv").write_text(as_csv())
        folder_of(mirror / "img_align_celeba" / "img_align_celeba", files)
        for place in (zipped, str(drive), mirror):
            data = load_celeba(place, size=8, cache=cache)
            assert data.X.key == plain.X.key
            assert data.describe() == plain.describe()
            np.testing.assert_array_equal(data.X, plain.X)
            np.testing.assert_array_equal(data.y, plain.y)
            np.testing.assert_array_equal(data.groups, plain.groups)
            np.testing.assert_array_equal(data.clusters, plain.clusters)

    def test_pictures_that_are_not_there_are_skipped_and_counted(self, root, cache):
        whole = load_celeba(root, size=8, cache=cache)
        for place in (2, 7):
            (root / "img_align_celeba" / NAMES[place]).unlink()
        message = r"2 of the 12 pictures .*: 000003.jpg, 000008"
        with pytest.warns(FairdialWarning, match=message):
            data = load_celeba(root, size=8, cache=cache)
        rest = whole.subset(np.delete(np.arange(N), [2, 7]))
        np.testing.assert_array_equal(data.X, rest.X)
        np.testing.assert_array_equal(data.y, rest.y)
        np.testing.assert_array_equal(data.groups, rest.groups)
        assert "2 missing pictures and 0 without attributes" in data.preparation

    def test_pictures_that_the_list_does_not_name_are_counted_too(self, root, cache):
        (root / "list_attr_celeba.txt").write_text(as_text(NAMES[2:], MARKS[2:]))
        message = "2 of 12 pictures .*: 000001.jpg, 000002.jpg$"
        with pytest.warns(FairdialWarning, match=message):
            data = load_celeba(root, size=8, cache=cache)
        assert data.y.tolist() == (MARKS[2:, ATTRIBUTES.index("Attractive")] == 1).tolist()
        assert "0 missing pictures and 2 without attributes" in data.preparation

    def test_unreadable_pictures_are_left_out_with_their_labels(self, root, cache):
        whole = load_celeba(root, size=8, cache=cache)
        (root / "img_align_celeba" / NAMES[4]).write_bytes(b"")
        with pytest.warns(FairdialWarning, match="1 of 12 pictures .* 000005.jpg"):
            data = load_celeba(root, size=8, cache=cache)
        rest = whole.subset(np.delete(np.arange(N), 4))
        np.testing.assert_array_equal(data.X, rest.X)
        np.testing.assert_array_equal(data.y, rest.y)

    def test_copies_are_one_cluster(self, root, cache, files):
        (root / "img_align_celeba" / NAMES[4]).write_bytes(files[NAMES[9]])
        clusters = load_celeba(root, size=8, cache=cache).clusters
        assert clusters[4] == clusters[9]
        assert len(set(clusters.tolist())) == N - 1


class TestWrongFiles:
    @pytest.mark.parametrize("count", [N - 1, N + 1, "many", ""])
    def test_a_count_that_disagrees_with_the_rows_is_an_error(self, root, cache, count):
        (root / "list_attr_celeba.txt").write_text(as_text(count=count))
        with pytest.raises(InvalidInputError, match=f"'{count}'") as caught:
            load_celeba(root, cache=cache)
        assert (caught.value.argument, caught.value.given) == ("root", "12")

    @pytest.mark.parametrize(
        "row", ["000012.jpg 1 1 1 1", "000012.jpg 1 1 1 1 1 1", "000012.jpg 1 0 1 1 1", "x", "1 1"]
    )
    def test_a_row_that_is_none_is_shown(self, root, cache, row):
        path = root / "list_attr_celeba.txt"
        path.write_text(as_text(NAMES[:-1], MARKS[:-1], N) + row + "\n")
        with pytest.raises(InvalidInputError) as caught:
            load_celeba(root, cache=cache)
        assert (caught.value.argument, caught.value.given) == ("root", repr(row))

    def test_a_name_that_comes_twice_is_shown(self, root, cache):
        (root / "list_attr_celeba.txt").write_text(as_text([*NAMES[:-1], NAMES[0]]))
        with pytest.raises(InvalidInputError, match=r"got '000001.jpg"):
            load_celeba(root, cache=cache)

    def test_an_empty_table_has_no_attributes(self, root, cache):
        (root / "list_attr_celeba.txt").write_text("")
        with pytest.raises(InvalidInputError, match="`label`"):
            load_celeba(root, cache=cache)

    @pytest.mark.parametrize("missing", ["list_attr_celeba.txt", "img_align_celeba", "both", "all"])
    def test_a_wrong_folder_is_refused(self, root, cache, missing):
        for name in ("list_attr_celeba.txt", "img_align_celeba"):
            if missing in (name, "both", "all"):
                (root / name).rename(root / f"not_{name}")
        if missing == "all":
            root = root / "elsewhere"
        with pytest.raises(InvalidInputError) as caught:
            load_celeba(root, cache=cache)
        message = str(caught.value)
        assert caught.value.argument == "root"
        assert "list_attr_celeba.txt" in message
        assert ADDRESS in message
        assert str(root) in message
        got = "a path" if missing == "all" else "a folder with "
        assert f"got {got}" in message
        assert ("not_" in message) == (missing != "all")

    def test_pictures_of_another_set_are_not_it(self, root, cache):
        for i, path in enumerate(list((root / "img_align_celeba").iterdir())):
            path.rename(path.with_name(f"cat{i}.jpg"))
        with pytest.raises(InvalidInputError, match="`root`"):
            load_celeba(root, cache=cache)
