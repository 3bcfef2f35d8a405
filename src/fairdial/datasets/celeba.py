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
from fairdial.errors import FairdialWarning, InvalidInputError, warn

ADDRESS = "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html"
PICTURES = "img_align_celeba"
ATTRIBUTES = "list_attr_celeba"
FOLDERS = ("", "Img", "Anno", PICTURES)  # of the official set; a mirror has a folder in itself
GENDERS = {"Male": ("female", "male")}  # names of the groups where the attribute is -1 and 1


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

    The set is had from https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html, for non-commercial
    research only and not to be passed on; it is not part of this library. With the default
    groups, the paper's A=1 is male and A=0 is female. The official partition is not used.

    Parameters
    ----------
    root : path
        The folder with ``img_align_celeba/`` or ``img_align_celeba.zip`` (which is read without
        unpacking), and ``list_attr_celeba.txt`` (or ``.csv``); the folders ``Img/`` and ``Anno/``
        of the official set are looked into.
    label : str
        The attribute that is predicted.
    sensitive : str
        The attribute that makes the groups: ``"male"`` and ``"female"`` for ``"Male"``, else
        such as ``"Young"`` and ``"not Young"``.
    size : int
        Height and width of the pictures; theirs, 218 x 178, is resampled to a square.
    cache : path, optional
        Folder for the decoded pictures: by default that of the environment variable
        ``FAIRDIAL_CACHE``, else ``fairdial`` in your cache folder. The next call finds them
        there, for other attributes too.
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
        raise InvalidInputError(f"`sensitive` must differ from `label`, got {label!r} for both.")
    marks = _read_marks(_find_attributes(place), {"label": label, "sensitive": sensitive})
    files = _find_pictures(place)
    names = sorted(marks.keys() & files.members.keys())
    absent = sorted(marks.keys() - files.members.keys())
    unnamed = sorted(files.members.keys() - marks.keys())
    if not names:
        raise _wrong(place)
    if absent:
        warn(
            f"{len(absent):,} of {len(marks):,} pictures that {ATTRIBUTES} names are not there "
            f"and left out: {first_names(absent)}",
            FairdialWarning,
        )
    if unnamed:
        warn(
            f"{len(unnamed):,} of {len(files.members):,} pictures are not named by {ATTRIBUTES} "
            f"and left out: {first_names(unnamed)}",
            FairdialWarning,
        )
    decoded = decode_once(files, names, title="celeba", size=size, cache=cache, verbose=verbose)
    labels, groups = np.array([marks[name] for name in decoded.names]).T
    without, with_it = GENDERS.get(sensitive, (f"not {sensitive}", sensitive))
    return Dataset(
        X=decoded.pictures,
        y=labels,
        groups=np.where(groups, with_it, without),
        name="celeba",
        label=f"marked as {label}",
        source=f"Liu, Luo, Wang and Tang (2015), CelebA, aligned and cropped, {ADDRESS}",
        licence="non-commercial research only, no redistribution",
        preparation=(
            f"sorted by name, {len(absent)} pictures that are not there and "
            f"{len(unnamed)} without attributes left out, {size} x {size} pixels ({RESAMPLING}), "
            "copies of a picture are one cluster"
        ),
        clusters=decoded.clusters,
    )


def _find_attributes(root: Path) -> Path:
    for folder in FOLDERS:
        for kind in (".txt", ".csv"):
            if (root / folder / (ATTRIBUTES + kind)).is_file():
                return root / folder / (ATTRIBUTES + kind)
    raise _wrong(root)


def _find_pictures(root: Path) -> PictureFiles:
    """The pictures in the first place where there are some; folders before zip files."""
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
    raise _wrong(root)


def _read_marks(path: Path, wanted: dict[str, str]) -> dict[str, tuple[bool, ...]]:
    """Which of the wanted attributes each picture is marked with.

    The text has the number of rows, the names of the attributes, and rows of a file's name with
    -1 or 1 for each; a mirror's table has one line of names and commas.
    """
    commas = path.suffix == ".csv"
    with path.open(encoding="utf-8") as lines:
        count = None if commas else next(lines, "").strip()
        header = _words(next(lines, ""), commas)
        attributes = header[1:] if commas else header
        for argument, name in wanted.items():
            if name not in attributes:
                raise InvalidInputError(
                    f"`{argument}` must be one of {', '.join(attributes)}; got {name!r}."
                )
        columns = [attributes.index(name) + 1 for name in wanted.values()]
        marks: dict[str, tuple[bool, ...]] = {}
        for line in lines:
            words = _words(line, commas)
            if not words:
                continue
            values = [words[column] for column in columns] if len(words) > max(columns) else []
            right = len(words) == len(attributes) + 1 and set(values) <= {"-1", "1"}
            if not right or words[0] in marks:
                raise InvalidInputError(
                    f"`root`: a row of {path} must be a new file name and {len(attributes)} times "
                    f"-1 or 1, got {line.strip()[:60]!r}."
                )
            marks[words[0]] = tuple(value == "1" for value in values)
    if count is not None and count != str(len(marks)):
        raise InvalidInputError(
            f"`root`: {path} must have as many rows as its first line says, {count[:20]!r}; got "
            f"{len(marks)}."
        )
    return marks


def _words(line: str, commas: bool) -> list[str]:
    line = line.strip()
    return [word.strip() for word in line.split(",")] if commas and line else line.split()


def _wrong(root: Path) -> InvalidInputError:
    return InvalidInputError(
        f"`root` must be CelebA: a folder with {PICTURES}/ or {PICTURES}.zip, pictures named like "
        f"000001.jpg, and with {ATTRIBUTES}.txt, also in Img/ and Anno/; got {what_is_at(root)} "
        f"({root}). The set is officially had from {ADDRESS}"
    )
