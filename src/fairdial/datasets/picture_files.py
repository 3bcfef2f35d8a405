"""Find picture files in a folder, or in a zip file that is read without unpacking."""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from fairdial.errors import InvalidInputError

SUFFIX = ".jpg"
SHOWN = 5  # names in a message
BROKEN = (  # raised by reading a damaged member of a zip file
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    RuntimeError,  # encrypted, or an unknown compression method
)


class Member(NamedTuple):
    """One picture file: its path, its size, and a stamp that changes when its content does."""

    path: str
    size: int
    stamp: int


@dataclass(frozen=True)
class PictureFiles:
    """The picture files of one folder, by name.

    Parameters
    ----------
    place : Path
        The folder, or the zip file.
    members : dict
        Path, size and stamp of each file.
    zipped : bool
        Whether ``place`` is a zip file.
    """

    place: Path
    members: dict[str, Member]
    zipped: bool

    def digest(self, names: Iterable[str]) -> str:
        """Return a digest that identifies these files without reading them.

        It covers names and sizes, with the checksums of a zip file, or the folder and the files'
        modification times.
        """
        digest = hashlib.sha256(b"" if self.zipped else os.fsencode(self.place.resolve()))
        for name in names:
            _, size, stamp = self.members[name]
            digest.update(f"{name}\0{size}\0{stamp}\n".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    @contextmanager
    def reader(self) -> Iterator[Callable[[str], bytes | None]]:
        """Yield a function that returns a file's bytes, or None if a zip file is damaged."""
        if not self.zipped:
            yield lambda name: (self.place / self.members[name].path).read_bytes()
            return
        with zipfile.ZipFile(self.place) as archive:

            def read(name: str) -> bytes | None:
                try:
                    return archive.read(self.members[name].path)
                except BROKEN:
                    return None

            yield read


def files_in_folder(folder: Path) -> PictureFiles:
    """Return the picture files directly in a folder."""
    members = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if _is_picture(entry.name) and entry.is_file():
                state = entry.stat()
                members[entry.name] = Member(entry.name, state.st_size, state.st_mtime_ns)
    return PictureFiles(folder, members, zipped=False)


def files_in_zip(path: Path) -> dict[str, PictureFiles]:
    """Return the picture files of each folder of a zip file that has any."""
    folders: dict[str, PictureFiles] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
    except zipfile.BadZipFile as error:
        raise InvalidInputError("root", f"be a zip file ({path})", given=error) from None
    for info in infos:
        inside = PurePosixPath(info.filename)
        if _is_picture(inside.name):
            files = folders.setdefault(str(inside.parent), PictureFiles(path, {}, zipped=True))
            files.members[inside.name] = Member(info.filename, info.file_size, info.CRC)
    return folders


def choose_folder(
    folders: dict[str, PictureFiles], preferred: Iterable[str], path: Path
) -> PictureFiles:
    """Return the only folder of a zip file, or the topmost one with the most preferred name."""
    if len(folders) == 1:
        return next(iter(folders.values()))
    for wanted in preferred:
        found = [folder for folder in folders if PurePosixPath(folder).name == wanted]
        if found:
            return folders[min(found, key=lambda folder: (folder.count("/"), folder))]
    raise InvalidInputError(
        "root",
        f"have all pictures of {path} in one folder",
        given=first_names(sorted(folders)),
    )


def _is_picture(name: str) -> bool:
    """Return whether a name is a picture's; macOS leaves dot files in zip files."""
    return name.lower().endswith(SUFFIX) and not name.startswith(".")


def what_is_at(path: Path) -> str:
    """Return a description of a path for error messages."""
    if path.is_dir():
        names = sorted(
            entry.name + "/" * entry.is_dir()
            for entry in path.iterdir()
            if not entry.name.startswith(".")
        )
        return f"a folder with {first_names(names)}" if names else "an empty folder"
    if path.is_file():
        return "a zip file" if zipfile.is_zipfile(path) else "a file that isn't a zip file"
    return "a path that doesn't exist"


def first_names(names: list[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more:,} more" if more > 0 else "")
