"""UTKFace: faces whose file names tell age and gender."""

from __future__ import annotations

import os
import re
import zipfile
from pathlib import Path

import numpy as np

from fairdial.datasets.base import Dataset
from fairdial.datasets.picture_cache import RESAMPLING, decode_once
from fairdial.datasets.picture_files import (
    PictureFiles,
    choose_folder,
    files_in_folder,
    files_in_zip,
    first_names,
    what_is_at,
)
from fairdial.errors import InvalidInputError

ADDRESS = "https://susanqq.github.io/UTKFace/"
NAME = re.compile(r"\d{1,3}_[01]_[0-4]_.*\.jpg", re.IGNORECASE)
FOLDERS = ("", "UTKFace", "crop_part1")  # where pictures are looked for, the first one first
GENDERS = ("male", "female")
ADULT = 30  # years; the label is 1 from here on


def load_utkface(
    root: str | os.PathLike[str],
    *,
    size: int = 64,
    cache: str | os.PathLike[str] | None = None,
    verbose: bool = False,
) -> Dataset:
    """Load UTKFace from your own copy; the label is 1 from an age of 30 on.

    The set is had from https://susanqq.github.io/UTKFace/, for non-commercial research only; it
    is not part of this library. Age and gender are in the file names,
    ``age_gender_race_date.jpg.chip.jpg``; a name without them is skipped, and counted in
    ``preparation``. The paper's A=1 is female and A=0 is male.

    Parameters
    ----------
    root : path
        A folder with the pictures (or with ``UTKFace/`` or ``crop_part1/``, which has them), a
        zip file of it, or a folder with such a file named ``utkface*.zip``. Nothing is unpacked.
    size : int
        Height and width of the pictures; others are resampled.
    cache : path, optional
        Folder for the decoded pictures: by default that of the environment variable
        ``FAIRDIAL_CACHE``, else ``fairdial`` in your cache folder. The next call finds them there.
    verbose : bool
        Show a progress bar while decoding.

    Returns
    -------
    Dataset
        Its ``X`` is a :class:`Pictures`, in the order of the sorted names. Copies of one
        picture are one cluster, so no split parts them.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from PIL import Image
    >>> from fairdial.datasets import load_utkface
    >>> with TemporaryDirectory() as root:
    ...     for name in ("25_0_2_20170116174525125", "61_1_0_20170109150557335"):
    ...         Image.new("RGB", (9, 9)).save(Path(root) / f"{name}.jpg.chip.jpg")
    ...     data = load_utkface(root, size=8, cache=Path(root) / "cache")
    >>> data
    Dataset('utkface', 2 pictures of 8 x 8, groups: female 1, male 1)
    >>> data.y
    array([0, 1])
    """
    files = _find(Path(root).expanduser())
    names = sorted(name for name in files.members if NAME.fullmatch(name))
    strange = len(files.members) - len(names)
    decoded = decode_once(files, names, title="utkface", size=size, cache=cache, verbose=verbose)
    told = [name.split("_") for name in decoded.names]  # age, gender, race, date
    return Dataset(
        X=decoded.pictures,
        y=np.array([int(age) >= ADULT for age, *_ in told], dtype=np.int64),
        groups=np.array([GENDERS[int(gender)] for _, gender, *_ in told]),
        name="utkface",
        label=f"{ADULT} years old or older",
        source=f"Zhang, Song and Qi (2017), UTKFace, {ADDRESS}",
        licence="non-commercial research only",
        preparation=(
            f"sorted by name, {strange} files with malformed names left out, "
            f"{size} x {size} pixels ({RESAMPLING}), copies of a picture are one cluster"
        ),
        clusters=decoded.clusters,
    )


def _find(root: Path) -> PictureFiles:
    """The pictures in the first place where there are some."""
    if zipfile.is_zipfile(root):
        return _in_zip(root, root)
    if not root.is_dir():
        raise _wrong(root)
    for folder in FOLDERS:
        if (root / folder).is_dir():
            files = files_in_folder(root / folder)
            if _some(files):
                return files
    zips = [p for p in sorted(root.iterdir()) if re.fullmatch(r"utkface.*\.zip", p.name.lower())]
    if len(zips) > 1:
        raise InvalidInputError(
            f"`root` must have one zip file, got {first_names([p.name for p in zips])}; name one."
        )
    if not zips:
        raise _wrong(root)
    return _in_zip(zips[0], root)


def _in_zip(path: Path, root: Path) -> PictureFiles:
    folders = {f: files for f, files in files_in_zip(path).items() if _some(files)}
    if not folders:
        raise _wrong(root)
    return choose_folder(folders, FOLDERS, path)


def _some(files: PictureFiles) -> bool:
    return any(NAME.fullmatch(name) for name in files.members)


def _wrong(root: Path) -> InvalidInputError:
    return InvalidInputError(
        "`root` must be UTKFace: a folder (or a zip file of one) with pictures named like "
        "25_0_2_20170116174525125.jpg.chip.jpg (age, gender, race, date), also in UTKFace/ or "
        f"crop_part1/, or a folder with utkface*.zip; got {what_is_at(root)} ({root}). The set is "
        f"officially had from {ADDRESS}"
    )
