"""UTKFace: faces whose file names contain age and gender."""

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
from fairdial.datasets.registry import DatasetInfo, register_dataset
from fairdial.errors import InvalidInputError

ADDRESS = "https://susanqq.github.io/UTKFace/"
NAME = re.compile(r"\d{1,3}_[01]_[0-4]_.*\.jpg", re.IGNORECASE)
FOLDERS = ("", "UTKFace", "crop_part1")  # searched in this order
GENDERS = ("male", "female")
ADULT = 30  # years; the label is 1 from here on


def load_utkface(
    root: str | os.PathLike[str],
    *,
    size: int = 64,
    cache: str | os.PathLike[str] | None = None,
    verbose: bool = False,
) -> Dataset:
    """Load UTKFace from your own copy; the label is 1 for ages of 30 and above.

    Download it from https://susanqq.github.io/UTKFace/. Its terms allow non-commercial research
    only, so it is not part of this library. Age and gender come from the file names,
    ``age_gender_race_date.jpg.chip.jpg``; files with other names are skipped, and counted in
    ``preparation``. The paper's A=1 is female and A=0 is male.

    Parameters
    ----------
    root : path
        The folder with the pictures, directly or in ``UTKFace/`` or ``crop_part1/``; a zip file of
        it; or a folder with such a file named ``utkface*.zip``. Nothing is unpacked.
    size : int
        Height and width of the pictures; other sizes are resampled.
    cache : path, optional
        Folder for the decoded pictures, which later calls reuse. By default the environment
        variable ``FAIRDIAL_CACHE``, else ``fairdial`` in your cache folder.
    verbose : bool
        Show a progress bar while decoding.

    Returns
    -------
    Dataset
        Its ``X`` is a :class:`Pictures`, sorted by file name. Copies of one picture are one
        cluster, so no split separates them.

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
    skipped = len(files.members) - len(names)
    decoded = decode_once(files, names, title="utkface", size=size, cache=cache, verbose=verbose)
    parts = [name.split("_") for name in decoded.names]  # age, gender, race, date
    return Dataset(
        X=decoded.pictures,
        y=np.array([int(age) >= ADULT for age, *_ in parts], dtype=np.int64),
        groups=np.array([GENDERS[int(gender)] for _, gender, *_ in parts]),
        name=UTKFACE.name,
        label=UTKFACE.label,
        source=UTKFACE.source,
        license=UTKFACE.license,
        preparation=(
            f"sorted by name, {skipped} files with malformed names left out, "
            f"{size} x {size} pixels ({RESAMPLING}), copies of a picture are one cluster"
        ),
        clusters=decoded.clusters,
    )


UTKFACE = register_dataset(
    DatasetInfo(
        name="utkface",
        load=load_utkface,
        description="Faces of people of all ages: who is 30 or older.",
        source=f"Zhang, Song and Qi (2017), UTKFace, {ADDRESS}",
        license="non-commercial research only",
        groups="women and men",
        label=f"{ADULT} years old or older",
        pictures=True,
        needs_folder=True,
        in_paper=True,
    )
)


def _find(root: Path) -> PictureFiles:
    """Return the pictures from the first folder or zip file that has any."""
    if zipfile.is_zipfile(root):
        return _in_zip(root, root)
    if not root.is_dir():
        raise _not_utkface(root)
    for folder in FOLDERS:
        if (root / folder).is_dir():
            files = files_in_folder(root / folder)
            if _has_pictures(files):
                return files
    zips = [p for p in sorted(root.iterdir()) if re.fullmatch(r"utkface.*\.zip", p.name.lower())]
    if len(zips) > 1:
        raise InvalidInputError(
            "root",
            "contain one zip file",
            given=first_names([path.name for path in zips]),
            hint="Give the path of one of them.",
        )
    if not zips:
        raise _not_utkface(root)
    return _in_zip(zips[0], root)


def _in_zip(path: Path, root: Path) -> PictureFiles:
    folders = {f: files for f, files in files_in_zip(path).items() if _has_pictures(files)}
    if not folders:
        raise _not_utkface(root)
    return choose_folder(folders, FOLDERS, path)


def _has_pictures(files: PictureFiles) -> bool:
    return any(NAME.fullmatch(name) for name in files.members)


def _not_utkface(root: Path) -> InvalidInputError:
    return InvalidInputError(
        "root",
        "be a folder or zip file with UTKFace's pictures, named like "
        "25_0_2_20170116174525125.jpg.chip.jpg (age, gender, race, date), directly or in UTKFace/ "
        "or crop_part1/, or a folder with utkface*.zip",
        given=f"{what_is_at(root)} ({root})",
        hint=f"Download UTKFace from {ADDRESS}",
    )
