"""Files appear complete or not at all."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from fairdial._files import ABANDONED, replacing, sync_folder, write_file

posix = pytest.mark.skipif(os.name == "nt", reason="modes, links and umask of POSIX")


@pytest.mark.parametrize("data", [b"bytes", "text \u00e9", ""])
def test_a_file_is_written_and_replaced(data: bytes | str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    for _ in range(2):
        write_file(path, data)
        assert path.read_bytes() == (data.encode() if isinstance(data, str) else data)
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_file(path, "old")

    def interrupted() -> None:
        with replacing(path) as file:
            file.write(b"half")
            assert path.read_text() == "old"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@posix
@pytest.mark.parametrize("kept", [0o600, 0o640, 0o444])
def test_a_replaced_file_keeps_its_mode(kept: int, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    path.chmod(kept)
    with replacing(path) as file:
        assert mode(Path(file.name)) == kept  # before anything is written
        file.write(b"secret")
    assert (path.read_bytes(), mode(path)) == (b"secret", kept)


@posix
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_a_new_file_honors_the_umask(mask: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        write_file(tmp_path / "file", "new")
    finally:
        os.umask(before)
    assert mode(tmp_path / "file") == 0o666 & ~mask


@posix
@pytest.mark.parametrize("exists", [True, False])
def test_a_link_is_followed(exists: bool, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "file", tmp_path / "link"
    link.symlink_to(target)
    if exists:
        target.write_text("old")
    write_file(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert sorted(tmp_path.rglob("*")) == [target.parent, target, link]


@pytest.mark.parametrize("name", ["n" * 230, "n" * 255, "\u00e9" * 127])
def test_any_name_that_the_file_system_takes_can_be_written(name: str, tmp_path: Path) -> None:
    write_file(tmp_path / name, "text")
    assert (tmp_path / name).read_text() == "text"


def test_old_temporary_files_of_the_same_target_are_removed(tmp_path: Path) -> None:
    """Killed writers leave one each; a file that is still being written stays."""
    path, other = tmp_path / "file", tmp_path / "other"
    left = []
    for target in (path, path, other):
        with replacing(target) as file:
            left.append(Path(file.name))
    old, fresh, foreign = left
    for part, age in ((old, 2 * ABANDONED), (fresh, ABANDONED / 2), (foreign, 2 * ABANDONED)):
        part.touch()
        os.utime(part, (time.time() - age,) * 2)
    write_file(path, "new")
    assert set(tmp_path.iterdir()) == {path, other, fresh, foreign}


def test_a_name_may_depend_on_the_content(tmp_path: Path) -> None:
    names = []
    with replacing(tmp_path / "file", lambda: names[0]) as file:
        names.append("late")
        file.write(b"text")
    assert [path.name for path in tmp_path.iterdir()] == ["late"]


def test_a_file_system_that_refuses_to_sync_folders_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> None:
        raise OSError("EINVAL")

    monkeypatch.setattr(os, "fsync", refuse)
    sync_folder(tmp_path)
    sync_folder(tmp_path / "missing")
