"""Files that appear complete or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

PART = ".part"  # suffix of a file that is being written
ABANDONED = 3600.0  # seconds after which such a file no longer has a writer


def write_file(path: str | os.PathLike[str], data: bytes | str) -> None:
    """Write a file, or replace it, in one step: readers see the old content or the new one.

    Text is written in UTF-8.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fairdial._files import write_file
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_file(f"{folder}/note.txt", "done")
    ...     Path(folder, "note.txt").read_text()
    'done'
    """
    with replacing(path) as file:
        file.write(data.encode() if isinstance(data, str) else data)


@contextlib.contextmanager
def replacing(
    path: str | os.PathLike[str], name: Callable[[], str] | None = None
) -> Iterator[BinaryIO]:
    """Open a temporary file beside ``path``, which it replaces when the block ends.

    If the block raises, the temporary file is removed and ``path`` stays as it was. For writers
    that need a name instead of a file, the temporary one is ``file.name``. A link is followed, and
    an existing file's permissions are kept. If the final name depends on the content, ``name``
    returns it after the block.
    """
    target = Path(os.path.realpath(path))
    prefix = f".{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:12]}."  # names may be long
    remove_abandoned(target.parent, f"{prefix}*{PART}")
    part = target.with_name(f"{prefix}{uuid.uuid4().hex}{PART}")
    try:
        with part.open("xb") as file:
            with contextlib.suppress(FileNotFoundError):
                part.chmod(stat.S_IMODE(target.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target if name is None else target.with_name(name()))
    except BaseException:
        with contextlib.suppress(OSError):  # such as a path through a file
            part.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def remove_abandoned(folder: Path, pattern: str = f"*{PART}") -> None:
    """Remove temporary files that killed processes left."""
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):  # another process was faster
            if time.time() - path.stat().st_mtime > ABANDONED:
                path.unlink()


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Make the names in a folder durable, where the system and the file system allow it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
