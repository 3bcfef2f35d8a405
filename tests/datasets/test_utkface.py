"""UTKFace from its file names: labels, groups, copies, and what is not it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fairdial.datasets import Dataset, load_utkface
from fairdial.errors import FairdialWarning, InvalidInputError

ADDRESS = "https://susanqq.github.io/UTKFace/"
AGES = (1, 9, 29, 30, 31, 116)
MALFORMED = [  # such names are in the official set
    "61_1_20170109142408075.jpg.chip.jpg",
    "61_3_20170109150557335.jpg.chip.jpg",
    "53__0_20170116184028385.jpg.chip.jpg",
    "39_1_20170116174525125.jpg.chip.jpg",
]


def face(age: int, gender: int, race: int = 2, date: str = "20170116174525125") -> str:
    return f"{age}_{gender}_{race}_{date}.jpg.chip.jpg"


@pytest.fixture
def files(jpeg) -> dict[str, bytes]:
    names = [face(age, gender) for age in AGES for gender in (0, 1)]
    return {name: jpeg(seed) for seed, name in enumerate(names)}


@pytest.fixture
def cache(tmp_path) -> Path:
    return tmp_path / "cache"


def same(first: Dataset, second: Dataset) -> bool:
    return (
        first.X.key == second.X.key
        and np.array_equal(first.X, second.X)
        and np.array_equal(first.y, second.y)
        and np.array_equal(first.groups, second.groups)
        and np.array_equal(first.clusters, second.clusters)
        and first.describe() == second.describe()
    )


class TestNames:
    def test_age_and_gender_are_read_from_the_name(self, tmp_path, cache, files, folder_of, pillow):
        data = load_utkface(folder_of(tmp_path / "set", files), size=8, cache=cache)
        names = sorted(files)
        assert data.y.tolist() == [int(int(name.split("_")[0]) >= 30) for name in names]
        genders = {"0": "male", "1": "female"}
        assert data.groups.tolist() == [genders[name.split("_")[1]] for name in names]
        for place, name in enumerate(names):
            np.testing.assert_array_equal(data.X[place], pillow(files[name], 8))

    def test_thirty_is_the_first_age_with_label_one(self, tmp_path, cache, jpeg, folder_of):
        source = folder_of(tmp_path, {face(29, 0): jpeg(0), face(30, 0): jpeg(1)})
        assert load_utkface(source, size=8, cache=cache).y.tolist() == [0, 1]

    def test_malformed_names_are_skipped_and_counted(self, tmp_path, cache, files, jpeg, folder_of):
        strange = [*MALFORMED, face(20, 2), face(20, 0, 5), "x" + face(20, 0), "portrait.jpg"]
        more = {name: jpeg(50) for name in strange}
        no_pictures = {"Thumbs.db": b"", "README.txt": b"", "._" + face(9, 0): b"\0"}
        source = folder_of(tmp_path / "set", files | more | no_pictures)
        data = load_utkface(source, size=8, cache=cache)
        assert len(data) == len(files)
        assert "8 files with malformed names left out" in data.preparation

    @pytest.mark.parametrize(
        "name",
        [
            "55_0_0_20170116232725357jpg.chip.jpg",
            "24_0_1_20170116220224657 .jpg.chip.jpg",
            "44_1_4_20170116235150272.pg.chip.jpg",
            "44_1_4_20170116235150272.JPG",
        ],
    )
    def test_slips_behind_the_race_don_t_matter(self, tmp_path, cache, jpeg, folder_of, name):
        source = folder_of(tmp_path, {name: jpeg(0)})
        assert len(load_utkface(source, size=8, cache=cache)) == 1

    def test_unreadable_pictures_are_left_out_with_their_labels(
        self, tmp_path, cache, files, folder_of
    ):
        broken = sorted(files)[3]
        whole = load_utkface(folder_of(tmp_path / "whole", files), size=8, cache=cache)
        source = folder_of(tmp_path / "set", files | {broken: b"\xff\xd8"})
        with pytest.warns(FairdialWarning, match="1 of 12 pictures"):
            data = load_utkface(source, size=8, cache=cache)
        rest = whole.subset(np.delete(np.arange(12), 3))
        np.testing.assert_array_equal(data.X, rest.X)
        np.testing.assert_array_equal(data.y, rest.y)
        np.testing.assert_array_equal(data.groups, rest.groups)

    def test_its_terms_are_shown(self, tmp_path, cache, files, folder_of):
        data = load_utkface(folder_of(tmp_path / "set", files), size=8, cache=cache)
        assert repr(data) == "Dataset('utkface', 12 pictures of 8 x 8, groups: female 6, male 6)"
        assert data.license == "non-commercial research only"
        assert ADDRESS in data.source
        assert data.label == "30 years old or older"
        assert "8 x 8 pixels (bilinear)" in data.preparation


class TestPlaces:
    def test_every_layout_gives_the_same_data(self, tmp_path, cache, files, folder_of, zip_of):
        plain = load_utkface(folder_of(tmp_path / "plain", files), size=8, cache=cache)
        folder_of(tmp_path / "nested" / "UTKFace", files)
        folder_of(tmp_path / "nested" / "crop_part1", {face(5, 0): files[face(1, 0)]})
        folder_of(tmp_path / "part" / "crop_part1", files)
        inside = {f"UTKFace/{name}": blob for name, blob in files.items()}
        twice = {f"a/crop_part1/{name}": blob for name, blob in list(files.items())[:3]}
        deep = {f"a/b/{path}": blob for path, blob in list(inside.items())[:4]}
        junk = {f"__MACOSX/UTKFace/._{name}": b"\0" for name in files}
        (tmp_path / "beside").mkdir()
        for root in (
            tmp_path / "nested",
            tmp_path / "part",
            str(tmp_path / "plain"),
            zip_of(tmp_path / "flat.zip", files, sorted(files, reverse=True)),
            zip_of(tmp_path / "inside.zip", junk | inside),
            zip_of(tmp_path / "several.zip", twice | inside | deep),
            zip_of(tmp_path / "beside" / "UTKFace-small.zip", inside).parent,
        ):
            assert same(load_utkface(root, size=8, cache=cache), plain), root

    def test_the_order_of_a_listing_does_not_matter(self, tmp_path, cache, files, zip_of):
        first, *others = (
            load_utkface(
                zip_of(
                    tmp_path / f"{seed}.zip",
                    files,
                    np.random.default_rng(seed).permutation(list(files)).tolist(),
                ),
                size=8,
                cache=cache / str(seed),
            )
            for seed in range(4)
        )
        assert all(same(first, other) for other in others)

    @pytest.mark.parametrize(
        ("made", "got"),
        [
            ({}, "got an empty folder"),
            ({"cat.jpg": b"", "readme.txt": b""}, "got a folder with cat.jpg, readme.txt"),
            ({f"{i}.txt": b"" for i in range(9)}, r"0.txt, .*, 4.txt and 4 more"),
            (None, "doesn't exist"),
        ],
    )
    def test_a_wrong_folder_is_refused(self, tmp_path, cache, folder_of, made, got):
        root = tmp_path / "set"
        if made is not None:
            folder_of(root, made)
        with pytest.raises(InvalidInputError, match=got) as caught:
            load_utkface(root, cache=cache)
        message = str(caught.value)
        assert caught.value.argument == "root"
        assert "25_0_2_20170116174525125.jpg.chip.jpg (age, gender, race, date)" in message
        assert str(root) in message
        assert ADDRESS in message
        assert not cache.exists()

    def test_a_wrong_file_is_refused(self, tmp_path, cache, zip_of):
        (tmp_path / "set.tar.gz").write_bytes(b"no zip")
        with pytest.raises(InvalidInputError, match="got a file"):
            load_utkface(tmp_path / "set.tar.gz", cache=cache)
        (tmp_path / "utkface.zip").write_bytes(b"PK half of it")
        with pytest.raises(InvalidInputError, match=r"utkface.zip.*got File is"):
            load_utkface(tmp_path, cache=cache)
        cats = zip_of(tmp_path / "cats.zip", {"cat.jpg": b""})
        with pytest.raises(InvalidInputError, match="got a zip file"):
            load_utkface(cats, cache=cache)

    def test_what_could_be_meant_in_two_ways_is_asked(self, tmp_path, cache, files, zip_of):
        for name in ("utkface-a.zip", "UTKFace_b.ZIP"):
            zip_of(tmp_path / name, files)
        with pytest.raises(InvalidInputError, match=r"got UTKFace_b.ZIP, utkface-a.zip"):
            load_utkface(tmp_path, cache=cache)
        halves = {f"part{i % 2}/{name}": blob for i, (name, blob) in enumerate(files.items())}
        with pytest.raises(InvalidInputError, match="got part0, part1"):
            load_utkface(zip_of(tmp_path / "halves.zip", halves), cache=cache)


def test_copies_are_on_one_side_of_every_split(tmp_path, cache, jpeg, folder_of):
    rng = np.random.default_rng(0)
    files = {}
    for i in range(160):  # some files twice or thrice, with other ages and genders too
        age, gender = int(rng.integers(1, 60)), int(rng.integers(0, 2))
        files[face(age, gender, date=f"{i:03d}")] = jpeg(int(rng.integers(0, 110)), (4, 4))
    data = load_utkface(folder_of(tmp_path / "set", files), size=4, cache=cache)
    _, sizes = np.unique(data.clusters, return_counts=True)
    assert 1 in sizes
    assert 3 in sizes
    assert any(len(set(data.y[data.clusters == c])) > 1 for c in data.clusters)
    for seed in range(40):
        for parts in (data.split(0.3, seed), data.paper_split(seed)):
            sides: dict[bytes, int] = {}
            for side, part in enumerate(parts):
                for picture in part.X:
                    assert sides.setdefault(picture.tobytes(), side) == side
            assert sum(len(part) for part in parts) == len(data)
