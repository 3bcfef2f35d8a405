"""The cache of decoded pictures: right pixels, or none."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fairdial.datasets import picture_cache
from fairdial.datasets.picture_cache import cache_folder, decode_once
from fairdial.datasets.picture_files import files_in_folder, files_in_zip
from fairdial.errors import FairdialWarning, InvalidInputError, MissingExtraError

SIZE = 8


@pytest.fixture
def files(jpeg) -> dict[str, bytes]:
    """Pictures of that size, larger, smaller, not square, and gray."""
    made = {f"{i}.jpg": jpeg(i) for i in range(7)}
    made["tall.jpg"] = jpeg(7, (10, 23))
    made["small.jpg"] = jpeg(8, (5, 3))
    made["gray.jpg"] = jpeg(9, (16, 16), "L")
    made["ink.jpg"] = jpeg(10, (9, 8), "CMYK")
    return made


@pytest.fixture
def source(tmp_path, folder_of, files) -> Path:
    return folder_of(tmp_path / "pictures", files)


@pytest.fixture
def cache(tmp_path) -> Path:
    return tmp_path / "cache"


def load(source: Path, cache: Path, size: int = SIZE):
    found = files_in_folder(source) if source.is_dir() else files_in_zip(source)["."]
    return decode_once(found, sorted(found.members), title="set", size=size, cache=cache)


def expected(files: dict[str, bytes], pillow, size: int = SIZE) -> np.ndarray:
    return np.stack([pillow(files[name], size) for name in sorted(files)])


def kept_in(cache: Path) -> Path:
    """The folder of the only set in a cache."""
    (folder,) = cache.iterdir()
    return folder


def pixels_in(cache: Path) -> Path:
    (path,) = kept_in(cache).glob("*.npy")
    return path


def tamper(cache: Path) -> None:
    """Turn the last byte over: whoever believes this cache reads other pixels."""
    path = pixels_in(cache)
    blob = path.read_bytes()
    path.write_bytes(blob[:-1] + bytes([blob[-1] ^ 255]))


class TestDecoding:
    @pytest.mark.parametrize("size", [SIZE, 1, 13])
    def test_pixels_are_those_of_pillow(self, source, cache, files, pillow, size):
        decoded = load(source, cache, size)
        assert decoded.names == sorted(files)
        assert decoded.pictures.shape == (len(files), 3, size, size)
        np.testing.assert_array_equal(decoded.pictures, expected(files, pillow, size))

    def test_pictures_of_the_right_size_are_not_resampled(self, source, cache, files):
        pictures = load(source, cache).pictures
        for place, name in enumerate(sorted(files)):
            with Image.open(source / name) as picture:
                if picture.size == (SIZE, SIZE) and picture.mode == "RGB":
                    np.testing.assert_array_equal(
                        pictures[place], np.asarray(picture).transpose(2, 0, 1)
                    )

    def test_reducing_averages_over_the_area(self, tmp_path, cache):
        rng = np.random.default_rng(0)
        fine = np.repeat(rng.integers(0, 2, (64, 64, 1), dtype=np.uint8) * 255, 3, axis=2)
        (tmp_path / "set").mkdir()
        Image.fromarray(fine).save(tmp_path / "set" / "a.jpg", quality=95, subsampling=0)
        small = load(tmp_path / "set", cache, 4).pictures[0]
        assert 90 < small.min() <= small.max() < 165  # single pixels are 0 or 255

    def test_a_zip_file_is_read_as_the_folder_is(self, tmp_path, source, files, zip_of):
        packed = zip_of(tmp_path / "set.zip", files, reversed(files))
        loose, zipped = load(source, tmp_path / "one"), load(packed, tmp_path / "two")
        assert loose.names == zipped.names
        assert loose.pictures.key == zipped.pictures.key
        np.testing.assert_array_equal(loose.pictures, zipped.pictures)
        np.testing.assert_array_equal(loose.clusters, zipped.clusters)

    def test_more_pictures_than_are_in_memory_at_once_keep_their_order(
        self, tmp_path, cache, jpeg, folder_of, pillow, monkeypatch
    ):
        monkeypatch.setattr(picture_cache, "AT_ONCE", 3)
        files = {f"{i:02d}.jpg": jpeg(i) for i in range(11)}
        decoded = load(folder_of(tmp_path / "set", files), cache)
        np.testing.assert_array_equal(decoded.pictures, expected(files, pillow))

    def test_copies_of_a_picture_are_one_cluster_whatever_their_files(
        self, tmp_path, cache, jpeg, folder_of
    ):
        files = {"a.jpg": jpeg(0), "b.jpg": jpeg(1), "c.jpg": jpeg(0), "d.jpg": jpeg(1) + b"!"}
        clusters = load(folder_of(tmp_path / "set", files), cache).clusters
        assert clusters[0] == clusters[2] != clusters[1]
        assert clusters[3] == clusters[1]  # d has b's pixels in another file

    def test_the_key_is_that_of_the_pixels(self, source, cache):
        pictures = load(source, cache).pictures
        assert pictures.key == picture_cache.Pictures(np.asarray(pictures)).key

    def test_a_bar_is_shown_when_wanted(self, source, cache, capsys):
        found = files_in_folder(source)
        options = {"title": "set", "size": 4, "cache": cache}
        decode_once(found, sorted(found.members), **options)
        assert capsys.readouterr() == ("", "")
        shutil.rmtree(cache)
        decode_once(found, sorted(found.members), **options, verbose=True)
        assert "decoding" in capsys.readouterr().err

    @pytest.mark.parametrize("size", [0, -1, 2.5, "64", True])
    def test_a_size_must_be_a_whole_number(self, source, cache, size):
        with pytest.raises(InvalidInputError, match="`size`"):
            load(source, cache, size)


class TestUnreadable:
    def test_they_are_left_out_and_named_in_one_warning(
        self, tmp_path, cache, jpeg, folder_of, pillow
    ):
        good = {f"{i:02d}.jpg": jpeg(i) for i in range(9)}
        bad = {"03x.jpg": jpeg(3)[:200], "00x.jpg": b"", "99.jpg": b"\xff\xd8 nothing"}
        source = folder_of(tmp_path / "set", good | bad)
        for _ in range(2):  # decoded, and found again
            with pytest.warns(FairdialWarning) as given:
                decoded = load(source, cache)
            (warning,) = given
            for part in ("3 of 12 pictures", "00x.jpg, 03x.jpg, 99.jpg"):
                assert part in str(warning.message)
            assert decoded.names == sorted(good)
            np.testing.assert_array_equal(decoded.pictures, expected(good, pillow))
            assert len(decoded.clusters) == len(good)

    def test_only_the_first_few_are_named(self, tmp_path, cache, jpeg, folder_of):
        files = {f"{i}.jpg": b"" for i in range(8)} | {"9.jpg": jpeg(9)}
        with pytest.warns(FairdialWarning, match="0.jpg, 1.jpg, 2.jpg, 3.jpg, 4.jpg and 3 more$"):
            load(folder_of(tmp_path / "set", files), cache)

    @pytest.mark.parametrize("packed", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    @pytest.mark.parametrize("damage", ["content", "beginning", "encrypted", "unknown packing"])
    def test_a_damaged_member_of_a_zip_file_is_one_of_them(
        self, tmp_path, cache, files, zip_of, pillow, packed, damage
    ):
        path = zip_of(tmp_path / "set.zip", files, packed=packed)
        blob = bytearray(path.read_bytes())
        with zipfile.ZipFile(path) as archive:
            start = archive.getinfo("3.jpg").header_offset
        listed = blob.index(b"PK\1\2", blob.rindex(b"2.jpg"))  # its line in the directory
        data = start + 30 + len("3.jpg")
        if damage == "content":  # not what the checksum says
            blob[data + 60] ^= 255
        elif damage == "beginning":
            blob[data : data + 20] = b"\xff" * 20
        elif damage == "encrypted":
            blob[listed + 8] |= 1
            blob[start + 6] |= 1
        else:
            blob[listed + 10] = blob[start + 8] = 99
        path.write_bytes(blob)
        with pytest.warns(FairdialWarning, match="1 of 11 pictures .*: 3.jpg"):
            decoded = load(path, cache)
        del files["3.jpg"]
        np.testing.assert_array_equal(decoded.pictures, expected(files, pillow))

    def test_nothing_but_them_is_an_error(self, tmp_path, cache, folder_of):
        source = folder_of(tmp_path / "set", {"a.jpg": b"", "b.jpg": b"GIF"})
        with (
            pytest.warns(FairdialWarning, match="2 of 2"),
            pytest.raises(InvalidInputError, match="`root`"),
        ):
            load(source, cache)


class TestBelieving:
    """A cache is believed if it is whole; a byte that was turned over shows whether it was."""

    def right(self, decoded, files, pillow) -> bool:
        return np.array_equal(decoded.pictures, expected(files, pillow))

    def test_a_whole_one_is(self, source, cache, files, pillow):
        load(source, cache)
        before = pixels_in(cache).stat().st_mtime_ns
        assert self.right(load(source, cache), files, pillow)
        assert pixels_in(cache).stat().st_mtime_ns == before
        tamper(cache)
        assert not self.right(load(source, cache), files, pillow)

    @pytest.mark.parametrize("content", [None, "", "{", "[]", "{}", '{"pixels": 3}', "\0" * 99])
    def test_one_without_its_manifest_is_not(self, source, cache, files, pillow, content):
        load(source, cache)
        tamper(cache)
        manifest = kept_in(cache) / "manifest.json"
        manifest.unlink()
        if content is not None:
            manifest.write_text(content)
        assert self.right(load(source, cache), files, pillow)

    @pytest.mark.parametrize("field", ["digest", "bytes", "pixels"])
    def test_one_with_another_manifest_is_not(self, source, cache, files, pillow, field):
        load(source, cache)
        tamper(cache)
        manifest = kept_in(cache) / "manifest.json"
        record = json.loads(manifest.read_text())
        record[field] = {"digest": "0" * 64, "bytes": record["bytes"] + 1, "pixels": "no.npy"}[
            field
        ]
        manifest.write_text(json.dumps(record))
        assert self.right(load(source, cache), files, pillow)

    @pytest.mark.parametrize("length", [0, 100, -1])
    def test_a_truncated_one_is_not(self, source, cache, files, pillow, length):
        load(source, cache)
        pixels_in(cache).write_bytes(pixels_in(cache).read_bytes()[:length])
        assert self.right(load(source, cache), files, pillow)

    def test_one_without_pixels_is_not(self, source, cache, files, pillow):
        load(source, cache)
        pixels_in(cache).unlink()
        assert self.right(load(source, cache), files, pillow)

    def test_another_size_has_its_own(self, source, cache, files, pillow):
        load(source, cache)
        np.testing.assert_array_equal(load(source, cache, 5).pictures, expected(files, pillow, 5))
        assert self.right(load(source, cache), files, pillow)

    def test_a_changed_folder_is_read_anew(self, source, cache, files, pillow, jpeg):
        load(source, cache)
        files["0.jpg"] = jpeg(100)
        (source / "0.jpg").write_bytes(files["0.jpg"])
        assert self.right(load(source, cache), files, pillow)
        files["new.jpg"] = jpeg(101)
        (source / "new.jpg").write_bytes(files["new.jpg"])
        assert self.right(load(source, cache), files, pillow)
        del files["1.jpg"]
        (source / "1.jpg").unlink()
        assert self.right(load(source, cache), files, pillow)

    def test_a_file_of_the_same_length_is_noticed_by_its_time(
        self, tmp_path, cache, jpeg, folder_of, pillow
    ):
        one, two = ({"a.jpg": jpeg(i).ljust(1000, b"!")} for i in range(2))
        source = folder_of(tmp_path / "set", one)
        load(source, cache)
        before = (source / "a.jpg").stat().st_mtime_ns
        folder_of(source, two)
        os.utime(source / "a.jpg", ns=(0, before + 1))
        assert self.right(load(source, cache), two, pillow)

    def test_a_changed_zip_file_is_read_anew(self, tmp_path, cache, files, pillow, jpeg, zip_of):
        path = zip_of(tmp_path / "set.zip", files)
        load(path, cache)
        times = path.stat()
        files["0.jpg"] = jpeg(100)
        zip_of(path, files)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert self.right(load(path, cache), files, pillow)

    def test_a_zip_file_may_move(self, tmp_path, cache, files, zip_of):
        load(zip_of(tmp_path / "set.zip", files), cache)
        moved = shutil.move(tmp_path / "set.zip", tmp_path / "other.zip")
        load(Path(moved), cache)
        assert len(list(cache.iterdir())) == 1

    def test_the_manifest_describes_what_was_done(self, source, cache, files):
        load(source, cache)
        record = json.loads((kept_in(cache) / "manifest.json").read_text())
        assert record["format"] == 2
        assert record["size"] == SIZE
        assert record["resampling"] == "bilinear"
        assert record["count"] == len(record["names"]) == len(record["sha256"]) == len(files)
        assert record["source"] == str(source)
        assert np.load(pixels_in(cache)).shape == (len(files), 3, SIZE, SIZE)


KILLED = """
import os, signal, sys
from pathlib import Path
from fairdial.datasets import picture_cache
from fairdial.datasets.picture_files import files_in_folder

source, cache, moments = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])

def die_at(moment):
    left = [moment]
    def counted(function):
        def called(*args, **named):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **named)
        return called
    for place, name in ((os, "replace"), (os, "fsync"), (picture_cache, "_write_header")):
        setattr(place, name, counted(getattr(place, name)))
    decoder = picture_cache.decoder
    picture_cache.decoder = lambda size: counted(decoder(size))
    picture_cache.MOST_THREADS = 1
    found = files_in_folder(source)
    picture_cache.decode_once(
        found, sorted(found.members), title="set", size=8, cache=cache / str(moment)
    )
    os._exit(0)

ends = []
for moment in range(1, moments + 1):
    child = os.fork()
    if child == 0:
        die_at(moment)
    ends.append(os.waitpid(child, 0)[1])
print(ends)
"""

AT_ONCE = """
import os, sys
from pathlib import Path
from fairdial.datasets.picture_cache import decode_once
from fairdial.datasets.picture_files import files_in_folder
from fairdial.datasets.pictures import pixels_key
import numpy as np

found = files_in_folder(Path(sys.argv[1]))
wait, start = os.pipe()
children = []
for _ in range(int(sys.argv[3])):
    children.append(os.fork())
    if children[-1] == 0:
        os.close(start)
        os.read(wait, 1)  # returns when everybody is there
        options = dict(title="set", size=8, cache=sys.argv[2])
        pictures = decode_once(found, sorted(found.members), **options).pictures
        os._exit(int(pixels_key(np.asarray(pictures)) != pictures.key))
os.close(start)
print([os.waitpid(child, 0)[1] for child in children])
"""


class TestSeveralAndKilled:
    def test_a_kill_at_any_moment_leaves_nothing_that_is_believed(
        self, tmp_path, source, files, pillow
    ):
        # decoding, two headers, two files (sync, rename, sync the folder), the end
        moments = len(files) + 9
        cache = tmp_path / "caches"
        done = subprocess.run(
            [sys.executable, "-c", KILLED, source, cache, str(moments)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(done.stdout) == [9] * (moments - 1) + [0]
        for moment in range(1, moments + 1):
            kept = cache / str(moment)
            complete = moment >= moments - 1  # the manifest is renamed
            assert (kept_in(kept) / "manifest.json").exists() == complete
            if not complete and list(kept_in(kept).glob("*.npy")):
                tamper(kept)
            np.testing.assert_array_equal(load(source, kept).pictures, expected(files, pillow))

    def test_several_processes_may_make_one_cache_at_once(self, source, cache, files, pillow):
        done = subprocess.run(
            [sys.executable, "-c", AT_ONCE, source, cache, "4"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(done.stdout) == [0] * 4
        np.testing.assert_array_equal(load(source, cache).pictures, expected(files, pillow))
        assert sorted(p.suffix for p in kept_in(cache).iterdir()) == [".json", ".npy"]

    def test_files_that_a_killed_process_left_are_removed_after_an_hour(self, source, cache):
        load(source, cache)
        old, fresh = kept_in(cache) / "1-old.part", kept_in(cache) / "2-fresh.part"
        old.write_bytes(b"half")
        fresh.write_bytes(b"half")
        os.utime(old, (time.time() - 4000,) * 2)
        load(source, cache)
        assert (old.exists(), fresh.exists()) == (False, True)

    def test_an_error_leaves_no_file_behind(self, source, cache, monkeypatch):
        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            load(source, cache)
        assert list(kept_in(cache).iterdir()) == []

    def test_a_table_outlives_its_cache(self, source, cache, files, pillow):
        pictures = load(source, cache).pictures
        shutil.rmtree(cache)
        load(source, cache)
        np.testing.assert_array_equal(pictures, expected(files, pillow))


class TestFolder:
    def test_what_is_given_comes_first_then_the_variable_then_the_user(self, monkeypatch, tmp_path):
        monkeypatch.setenv("FAIRDIAL_CACHE", str(tmp_path / "variable"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        assert cache_folder("here") == Path("here")
        assert cache_folder("~/here") == tmp_path / "home" / "here"
        assert cache_folder() == tmp_path / "variable"
        monkeypatch.setenv("FAIRDIAL_CACHE", "")
        assert cache_folder() == tmp_path / "user" / "fairdial"
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.delenv("LOCALAPPDATA", raising=False)
        assert cache_folder() == tmp_path / "home" / ".cache" / "fairdial"

    def test_the_variable_is_heeded(self, monkeypatch, source, tmp_path):
        monkeypatch.setenv("FAIRDIAL_CACHE", str(tmp_path / "variable"))
        load(source, None)
        assert pixels_in(tmp_path / "variable").exists()

    def test_one_that_cannot_be_made_is_named(self, source):
        with pytest.raises(InvalidInputError, match="`cache`"):
            load(source, source / "0.jpg")

    def test_without_pillow_the_extra_is_named(self, source, cache, monkeypatch):
        load(source, cache)
        monkeypatch.setitem(sys.modules, "PIL", None)
        load(source, cache)  # decoded already
        with pytest.raises(MissingExtraError, match=r"pip install '\.\[images\]' -c con"):
            load(source, cache, 5)
