from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairdial import FairdialWarning, InvalidInputError
from fairdial.nn.feature_cache import cached

FEATURES = np.arange(12, dtype=np.float32).reshape(4, 3)


class Counter:
    """Gives the features, and counts how often it was asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> np.ndarray:
        self.calls += 1
        return FEATURES


def test_features_are_computed_once_and_found_again(tmp_path: Path) -> None:
    compute = Counter()
    for _ in range(3):
        assert np.array_equal(cached(tmp_path / "a" / "b", "key", (4, 3), compute), FEATURES)
    assert compute.calls == 1
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["key.npy"]


def test_what_a_killed_writer_left_is_removed_after_an_hour(tmp_path: Path) -> None:
    old, new = tmp_path / "old.part", tmp_path / "new.part"
    for part in (old, new):
        part.touch()
    os.utime(old, (time.time() - 4000,) * 2)
    cached(tmp_path, "key", (4, 3), Counter())
    assert {path.name for path in tmp_path.iterdir()} == {"new.part", "key.npy"}


def test_another_key_is_computed_again(tmp_path: Path) -> None:
    compute = Counter()
    cached(tmp_path, "one", (4, 3), compute)
    cached(tmp_path, "two", (4, 3), compute)
    assert compute.calls == 2


@pytest.mark.parametrize("left", [0, 5, 60, 100, 128 + 4, 128 + 47])
def test_a_truncated_file_is_found_and_written_again(tmp_path: Path, left: int) -> None:
    compute = Counter()
    cached(tmp_path, "key", (4, 3), compute)
    path = tmp_path / "key.npy"
    whole = path.read_bytes()
    assert left < len(whole)
    path.write_bytes(whole[:left])
    assert np.array_equal(cached(tmp_path, "key", (4, 3), compute), FEATURES)
    assert compute.calls == 2
    assert path.read_bytes() == whole


@pytest.mark.parametrize("other", [FEATURES[:3], FEATURES.astype(np.float64), FEATURES[:, :2]])
def test_features_of_another_shape_or_type_are_not_taken(tmp_path: Path, other: Any) -> None:
    np.save(tmp_path / "key.npy", other)
    assert np.array_equal(cached(tmp_path, "key", (4, 3), Counter()), FEATURES)


def test_a_file_in_the_folders_place_is_refused_before_anything_is_computed(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("")
    compute = Counter()
    with pytest.raises(InvalidInputError, match="`cache`"):
        cached(tmp_path / "file", "key", (4, 3), compute)
    with pytest.raises(InvalidInputError, match="`cache`"):
        cached(3, "key", (4, 3), compute)
    assert compute.calls == 0


def test_a_disk_that_is_full_costs_a_warning_not_the_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(FairdialWarning, match="`cache`.*No space left"):
        found = cached(tmp_path, "key", (4, 3), Counter())
    assert np.array_equal(found, FEATURES)
    assert list(tmp_path.iterdir()) == []
