"""CelebA: faces of celebrities with forty attributes each."""

from __future__ import annotations

import os
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
from fairdial.errors import FairdialWarning, InvalidInputError, warn

ADDRESS = "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html"
PICTURES = "img_align_celeba"
ATTRIBUTES = "list_attr_celeba"
FOLDERS = ("", "Img", "Anno", PICTURES)  # official set; some mirrors nest the folder in itself
GENDERS = {"Male": ("female", "male")}  # group names where the attribute is -1 and 1


def load_celeba(
    root: str | os.PathLike[str],
    *,
    label: str = "Attractive",
    sensitive: str = "Male",
    size: int = 64,
    cache: str | os.PathLike[str] | None = None,
    verbose: bool = False,
) -> Dataset:
    r"""Load CelebA from your own copy.

    Download it from https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html. Its terms allow
    non-commercial research only and no redistribution, so it is not part of this library. With the
    default groups, the paper's A=1 is male and A=0 is female. The official partition is not used.

    Parameters
    ----------
    root : path
        The folder with ``img_align_celeba/`` or ``img_align_celeba.zip`` (read without unpacking),
        and ``list_attr_celeba.txt`` (or ``.csv``), directly or in the official set's folders
        ``Img/`` and ``Anno/``.
    label : str
        The attribute to predict.
    sensitive : str
        The attribute that defines the groups: ``"male"`` and ``"female"`` for ``"Male"``, else
        names like ``"Young"`` and ``"not Young"``.
    size : int
        Height and width of the pictures; the originals, 218 x 178, are resampled to a square.
    cache : path, optional
        Folder for the decoded pictures, which later calls reuse, even for other attributes. By
        default the environment variable ``FAIRDIAL_CACHE``, else ``fairdial`` in your cache folder.
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
    >>> from fairdial.datasets import load_celeba
    >>> table = "2\nAttractive Male\n000001.jpg  1 -1\n000002.jpg -1  1\n"
    >>> with TemporaryDirectory() as folder:
    ...     root = Path(folder)
    ...     (root / "img_align_celeba").mkdir()
    ...     for name in ("000001.jpg", "000002.jpg"):
    ...         Image.new("RGB", (178, 218)).save(root / "img_align_celeba" / name)
    ...     _ = (root / "list_attr_celeba.txt").write_text(table)
    ...     data = load_celeba(root, size=8, cache=root / "cache")
    >>> data
    Dataset('celeba', 2 pictures of 8 x 8, groups: female 1, male 1)
    >>> data.y
    array([1, 0])
    """
    place = Path(root).expanduser()
    if label == sensitive:
        raise InvalidInputError("sensitive", "differ from `label`", given=f"{label!r} for both")
    marks = _read_marks(_find_attributes(place), {"label": label, "sensitive": sensitive})
    files = _find_pictures(place)
    names = sorted(marks.keys() & files.members.keys())
    absent = sorted(marks.keys() - files.members.keys())
    unnamed = sorted(files.members.keys() - marks.keys())
    if not names:
        raise _not_celeba(place)
    if absent:
        warn(
            f"left out {len(absent):,} of the {len(marks):,} pictures in {ATTRIBUTES} whose files "
            f"are missing: {first_names(absent)}",
            FairdialWarning,
        )
    if unnamed:
        warn(
            f"left out {len(unnamed):,} of {len(files.members):,} pictures that are not in "
            f"{ATTRIBUTES}: {first_names(unnamed)}",
            FairdialWarning,
        )
    decoded = decode_once(files, names, title="celeba", size=size, cache=cache, verbose=verbose)
    labels, groups = np.array([marks[name] for name in decoded.names]).T
    without, with_it = GENDERS.get(sensitive, (f"not {sensitive}", sensitive))
    return Dataset(
        X=decoded.pictures,
        y=labels,
        groups=np.where(groups, with_it, without),
        name=CELEBA.name,
        label=f"marked as {label}",
        source=CELEBA.source,
        license=CELEBA.license,
        preparation=(
            f"sorted by name, {len(absent)} missing pictures and {len(unnamed)} without attributes "
            f"left out, {size} x {size} pixels ({RESAMPLING}), copies of a picture are one cluster"
        ),
        clusters=decoded.clusters,
    )


CELEBA = register_dataset(
    DatasetInfo(
        name="celeba",
        load=load_celeba,
        description="Faces of celebrities, marked as attractive or not.",
        source=f"Liu, Luo, Wang and Tang (2015), CelebA, aligned and cropped, {ADDRESS}",
        license="non-commercial research only, no redistribution",
        groups="women and men",
        label="marked as Attractive",
        pictures=True,
        needs_folder=True,
        in_paper=True,
    )
)


def _find_attributes(root: Path) -> Path:
    for folder in FOLDERS:
        for kind in (".txt", ".csv"):
            if (root / folder / (ATTRIBUTES + kind)).is_file():
                return root / folder / (ATTRIBUTES + kind)
    raise _not_celeba(root)


def _find_pictures(root: Path) -> PictureFiles:
    """Return the pictures from the first folder that has any, else from a zip file."""
    for folder in FOLDERS:
        if (root / folder / PICTURES).is_dir():
            files = files_in_folder(root / folder / PICTURES)
            if files.members:
                return files
    for folder in FOLDERS:
        path = root / folder / f"{PICTURES}.zip"
        if path.is_file():
            folders = files_in_zip(path)
            if folders:
                return choose_folder(folders, (PICTURES,), path)
    raise _not_celeba(root)


def _read_marks(path: Path, wanted: dict[str, str]) -> dict[str, tuple[bool, ...]]:
    """Return which of the wanted attributes each picture has.

    The official text file has the number of rows, the names of the attributes, and for each file a
    row of -1 and 1. A mirror's CSV file has one header line.
    """
    commas = path.suffix == ".csv"
    with path.open(encoding="utf-8") as lines:
        count = None if commas else next(lines, "").strip()
        header = _cells(next(lines, ""), commas)
        attributes = header[1:] if commas else header
        for argument, name in wanted.items():
            if name not in attributes:
                raise InvalidInputError(
                    argument, f"be one of {', '.join(attributes)}", given=repr(name)
                )
        columns = [attributes.index(name) + 1 for name in wanted.values()]
        marks: dict[str, tuple[bool, ...]] = {}
        for line in lines:
            cells = _cells(line, commas)
            if not cells:
                continue
            values = [cells[column] for column in columns] if len(cells) > max(columns) else []
            valid = len(cells) == len(attributes) + 1 and set(values) <= {"-1", "1"}
            if not valid or cells[0] in marks:
                raise InvalidInputError(
                    "root",
                    f"have a new file name and {len(attributes)} values of -1 or 1 in each row of "
                    f"{path}",
                    given=repr(line.strip()[:60]),
                )
            marks[cells[0]] = tuple(value == "1" for value in values)
    if count is not None and count != str(len(marks)):
        raise InvalidInputError(
            "root",
            f"have as many rows in {path} as its first line says ({count[:20]!r})",
            given=len(marks),
        )
    return marks


def _cells(line: str, commas: bool) -> list[str]:
    line = line.strip()
    return [cell.strip() for cell in line.split(",")] if commas and line else line.split()


def _not_celeba(root: Path) -> InvalidInputError:
    return InvalidInputError(
        "root",
        f"be a folder with CelebA: {PICTURES}/ or {PICTURES}.zip with pictures named like "
        f"000001.jpg, and {ATTRIBUTES}.txt, directly or in Img/ and Anno/",
        given=f"{what_is_at(root)} ({root})",
        hint=f"Download CelebA from {ADDRESS}",
    )
