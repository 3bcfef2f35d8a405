"""Pictures as rows of a read-only table, over 8-bit pixels that may stay on disk."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairdial.errors import InvalidInputError

Pixels = NDArray[np.uint8]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
CHANNELS = 3  # red, green, blue
HASHED_AT_ONCE = 1024  # pictures


class Pictures:
    """Pictures indexed by position, like the rows of a table.

    Pixels are read only when needed, and subsets share them: a subset of a memory-mapped table
    takes eight bytes per picture, even when it is sent to another process.

    Parameters
    ----------
    pixels : uint8 array or memmap of shape (N, 3, height, width)
        All pictures, channels first, not copied. A writable array may change, so its content is
        hashed again whenever its key is needed; set ``pixels.flags.writeable = False`` to avoid
        that.
    places : int array of shape (n,), optional
        Which pictures are the rows of this table, in which order; by default all.
    mean, std : three numbers each
        Training normalizes each channel to ``(pixel / 255 - mean) / std``; by default ImageNet's.
    key : str, optional
        A digest of the pixels, if it is known already; otherwise computed when needed.

    Examples
    --------
    >>> import numpy as np
    >>> from fairdial.datasets import Pictures
    >>> pixels = np.arange(5 * 3 * 2 * 2, dtype=np.uint8).reshape(5, 3, 2, 2)
    >>> pictures = Pictures(pixels)
    >>> pictures
    Pictures(5 of 2 x 2)
    >>> part = pictures[[4, 0, 2]]
    >>> part.shape
    (3, 3, 2, 2)
    >>> bool(np.array_equal(part.uint8([0, 2]), pixels[[4, 2]]))
    True
    """

    ndim = 4
    dtype = np.dtype(np.uint8)

    def __init__(
        self,
        pixels: Pixels,
        places: ArrayLike | None = None,
        *,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
        key: str | None = None,
    ) -> None:
        if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8:
            kind = getattr(pixels, "dtype", type(pixels).__name__)
            raise InvalidInputError("pixels", "be a uint8 array", given=kind)
        if pixels.ndim != self.ndim or pixels.shape[1] != CHANNELS:
            raise InvalidInputError(
                "pixels",
                "have shape (pictures, 3, height, width), channels first",
                given=pixels.shape,
            )
        self._pixels = pixels.view(np.ndarray)
        self._pixels.flags.writeable = False
        self._file = _mapped_file(pixels)
        self._places = _check_places(places, len(pixels))
        self._places.flags.writeable = False
        self._known = {} if key is None else {"key": key}  # shared with all subsets
        self.mean = _three_numbers(mean, "mean")
        self.std = _three_numbers(std, "std")
        if min(self.std) <= 0.0:
            raise InvalidInputError("std", "be greater than 0", given=f"{min(self.std):g}")

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The number of pictures, the channels, the height and the width."""
        _, channels, height, width = self._pixels.shape
        return len(self), channels, height, width

    @property
    def places(self) -> NDArray[np.int64]:
        """The position (n,) of each picture among all pixels."""
        return self._places

    @property
    def key(self) -> str:
        """A digest of all pixels and their shape: equal content has equal keys.

        Computed once if the pixels can't change, else each time.
        """
        if "key" in self._known:
            return self._known["key"]
        found = pixels_key(self._pixels)
        if not _can_change(self._pixels):
            self._known["key"] = found
        return found

    def places_key(self) -> str:
        """Return a digest of :attr:`key` and the places, in order: it identifies every row.

        Examples
        --------
        >>> import numpy as np
        >>> from fairdial.datasets import Pictures
        >>> pictures = Pictures(np.zeros((4, 3, 2, 2), np.uint8))
        >>> pictures[[0, 1]].places_key() == pictures[:2].places_key()
        True
        >>> pictures[[1, 0]].places_key() == pictures[:2].places_key()
        False
        """
        digest = hashlib.sha256(self.key.encode())
        digest.update(self._places.astype("<i8").tobytes())
        return digest.hexdigest()

    def uint8(self, positions: ArrayLike) -> Pixels:
        """Return a copy (b, 3, height, width) of the pictures at these positions.

        Examples
        --------
        >>> import numpy as np
        >>> from fairdial.datasets import Pictures
        >>> Pictures(np.zeros((4, 3, 2, 2), np.uint8)).uint8([3, 3, 1]).shape
        (3, 3, 2, 2)
        """
        return self._pixels[self._at(positions)]

    def take(self, positions: ArrayLike) -> Self:
        """Return the table of the pictures at these positions; pixels are shared.

        Examples
        --------
        >>> import numpy as np
        >>> from fairdial.datasets import Pictures
        >>> Pictures(np.zeros((4, 3, 2, 2), np.uint8)).take([3, 1])
        Pictures(2 of 2 x 2)
        """
        return self._subset(self._at(positions))

    def join(self, other: Pictures) -> Self:
        """Return the table of these pictures followed by another subset of the same pixels.

        Examples
        --------
        >>> import numpy as np
        >>> from fairdial.datasets import Pictures
        >>> pictures = Pictures(np.zeros((4, 3, 2, 2), np.uint8))
        >>> pictures[[3]].join(pictures[:2]).places.tolist()
        [3, 0, 1]
        """
        same = isinstance(other, Pictures) and (
            other._pixels is self._pixels or other.key == self.key
        )
        if not same:
            raise InvalidInputError("other", "be pictures of the same pixels", given="other pixels")
        return self._subset(np.concatenate([self._places, other._places]))

    def _subset(self, places: NDArray[np.int64]) -> Self:
        """Return a table of other places that shares everything else."""
        subset = object.__new__(type(self))
        subset.__dict__.update(self.__dict__)
        subset._places = places
        places.flags.writeable = False
        return subset

    def _at(self, positions: slice | ArrayLike) -> NDArray[np.int64]:
        """Return the places of these positions, by NumPy's indexing rules."""
        index = positions if isinstance(positions, slice) else np.asarray(positions)
        if isinstance(index, np.ndarray) and index.size == 0:
            index = index.astype(np.intp)  # an empty list becomes floats
        places = self._places[index]
        if places.ndim != 1:
            raise IndexError(f"positions must have one dimension, got {places.ndim}.")
        return places.copy()

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, tuple) and len(index) == 2 and index[1] is Ellipsis:
            index = index[0]  # how scikit-learn indexes the rows of an array
        if isinstance(index, (int, np.integer)) and not isinstance(index, bool):
            return self._pixels[self._places[index]].copy()
        return self.take(index)

    def __iter__(self) -> Iterator[Pixels]:
        return (self[i] for i in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("pictures can't become an array without a copy.")
        array = self._pixels[self._places]
        return array if dtype is None else array.astype(dtype, copy=False)

    def __repr__(self) -> str:
        _, _, height, width = self.shape
        return f"Pictures({len(self)} of {height} x {width})"

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if np.array_equal(self._places, np.arange(len(self._pixels))):
            state["_places"] = None  # all of them
        if self._file is not None:
            del state["_pixels"]  # opened again from the file
            state["_shape"] = self._pixels.shape
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        shape = state.pop("_shape", None)
        if shape is not None:
            path, offset = state["_file"]
            state["_pixels"] = np.memmap(path, np.uint8, "r", offset, shape).view(np.ndarray)
        if state["_places"] is None:
            state["_places"] = np.arange(len(state["_pixels"]))
        for name in ("_pixels", "_places"):
            state[name].flags.writeable = False
        self.__dict__.update(state)


def pixels_key(pixels: Pixels) -> str:
    """Return the hex digest of an array of pictures: its bytes and its shape."""
    digest = hashlib.sha256()
    for start in range(0, len(pixels), HASHED_AT_ONCE):
        digest.update(np.ascontiguousarray(pixels[start : start + HASHED_AT_ONCE]).data)
    return shaped_key(digest, pixels.shape)


def shaped_key(digest: hashlib._Hash, shape: tuple[int, ...]) -> str:
    """Finish a digest that has seen the bytes, as in :func:`pixels_key`."""
    digest.update(repr(shape).encode())
    return digest.hexdigest()


def _can_change(pixels: Pixels) -> bool:
    """Return whether the array, or one whose memory it shares, is writable."""
    array: object = pixels
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return True
        array = array.base
    return False


def _mapped_file(pixels: Pixels) -> tuple[str, int] | None:
    """Return the file and offset of an array that is a complete memory map of a named file."""
    if not isinstance(pixels, np.memmap) or not isinstance(pixels.base, mmap.mmap):
        return None
    if not pixels.flags.c_contiguous or pixels.filename is None:
        return None
    return str(pixels.filename), int(pixels.offset)


def _check_places(places: ArrayLike | None, size: int) -> NDArray[np.int64]:
    if places is None:
        return np.arange(size)
    given = np.asarray(places)
    if given.ndim != 1 or not (np.issubdtype(given.dtype, np.integer) or given.size == 0):
        raise InvalidInputError(
            "places",
            "be integers in one dimension",
            given=f"an array of {given.dtype} with shape {given.shape}",
        )
    if given.size and (given.min() < 0 or given.max() >= size):
        bad = given.min() if given.min() < 0 else given.max()
        raise InvalidInputError("places", f"lie in [0, {size - 1}]", given=bad)
    return given.astype(np.int64)


def _three_numbers(values: Sequence[float], name: str) -> tuple[float, float, float]:
    try:
        numbers = tuple(float(value) for value in values)
    except (TypeError, ValueError):
        numbers = ()
    if len(numbers) != CHANNELS or not np.isfinite(numbers).all():
        raise InvalidInputError(name, "hold three finite numbers", given=repr(values))
    return numbers[0], numbers[1], numbers[2]
