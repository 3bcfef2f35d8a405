"""Pictures as rows: a read-only table over 8-bit pixels that may stay on disk."""

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
    """Pictures that are taken by position, like the rows of a table.

    Nothing is read before it is asked for, and parts share the pixels of the whole: a part of a
    memory-mapped table costs eight bytes a picture, also when it is sent to another process.

    Parameters
    ----------
    pixels : uint8 array or memmap of shape (N, 3, height, width)
        All pictures, channels first. They are not copied: an array that may be written to can be
        changed by whoever holds it, and its content is then hashed whenever it must be known
        (``pixels.flags.writeable = False`` says that nobody will).
    places : int array of shape (n,), optional
        Which of them are the rows of this table, in which order; all by default.
    mean, std : three numbers each
        What training makes of a channel, ``(pixel / 255 - mean) / std``. ImageNet's by default.
    key : str, optional
        A name of the pixels' content, where it is known already; otherwise it is computed when
        it is needed.

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
            raise InvalidInputError(f"`pixels` must be a uint8 array, got {kind}.")
        if pixels.ndim != self.ndim or pixels.shape[1] != CHANNELS:
            raise InvalidInputError(
                "`pixels` must have shape (pictures, 3, height, width), channels first, got "
                f"{pixels.shape}."
            )
        self._pixels = pixels.view(np.ndarray)
        self._pixels.flags.writeable = False
        self._file = _mapped_file(pixels)
        self._places = _check_places(places, len(pixels))
        self._places.flags.writeable = False
        self._known = {} if key is None else {"key": key}  # shared with all parts
        self.mean = _three_numbers(mean, "mean")
        self.std = _three_numbers(std, "std")
        if min(self.std) <= 0.0:
            raise InvalidInputError(f"`std` must be greater than 0, got {min(self.std):g}.")

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Number of pictures, channels, height, width."""
        _, channels, height, width = self._pixels.shape
        return len(self), channels, height, width

    @property
    def places(self) -> NDArray[np.int64]:
        """(n,) where each picture stands among all pixels."""
        return self._places

    @property
    def key(self) -> str:
        """Digest of all pixels and their shape: the same content has the same key.

        It is computed once where nobody can change the pixels, and else each time.
        """
        if "key" in self._known:
            return self._known["key"]
        found = pixels_key(self._pixels)
        if not _can_change(self._pixels):
            self._known["key"] = found
        return found

    def places_key(self) -> str:
        """Digest of :attr:`key` and the places, in their order: names what is in each row.

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
        """(b, 3, height, width) copy of the pictures at these positions.

        Examples
        --------
        >>> import numpy as np
        >>> from fairdial.datasets import Pictures
        >>> Pictures(np.zeros((4, 3, 2, 2), np.uint8)).uint8([3, 3, 1]).shape
        (3, 3, 2, 2)
        """
        return self._pixels[self._at(positions)]

    def take(self, positions: ArrayLike) -> Self:
        """The table of the pictures at these positions; pixels are shared.

        Examples
        --------
        >>> import numpy as np
        >>> from fairdial.datasets import Pictures
        >>> Pictures(np.zeros((4, 3, 2, 2), np.uint8)).take([3, 1])
        Pictures(2 of 2 x 2)
        """
        return self._part(self._at(positions))

    def join(self, other: Pictures) -> Self:
        """The table of these pictures and then those of another part of the same pixels.

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
            raise InvalidInputError("`other` must be pictures of the same pixels, got others.")
        return self._part(np.concatenate([self._places, other._places]))

    def _part(self, places: NDArray[np.int64]) -> Self:
        """A table of other places that shares everything else."""
        part = object.__new__(type(self))
        part.__dict__.update(self.__dict__)
        part._places = places
        places.flags.writeable = False
        return part

    def _at(self, positions: Any) -> NDArray[np.int64]:
        """Places of the pictures that numpy's indexing means."""
        index = positions if isinstance(positions, slice) else np.asarray(positions)
        if isinstance(index, np.ndarray) and index.size == 0:
            index = index.astype(np.intp)  # an empty list is one of floats
        places = self._places[index]
        if places.ndim != 1:
            raise IndexError(f"positions of pictures must have one dimension, got {places.ndim}.")
        return places.copy()

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, tuple) and len(index) == 2 and index[1] is Ellipsis:
            index = index[0]  # how scikit-learn takes rows of an array
        if isinstance(index, (int, np.integer)) and not isinstance(index, bool):
            return self._pixels[self._places[index]].copy()
        return self.take(index)

    def __iter__(self) -> Iterator[Pixels]:
        return (self[i] for i in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("pictures are copied when they become an array.")
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
    """Hex digest of an array of pictures: its bytes and its shape."""
    digest = hashlib.sha256()
    for start in range(0, len(pixels), HASHED_AT_ONCE):
        digest.update(np.ascontiguousarray(pixels[start : start + HASHED_AT_ONCE]).data)
    return shaped_key(digest, pixels.shape)


def shaped_key(digest: hashlib._Hash, shape: tuple[int, ...]) -> str:
    """As :func:`pixels_key`, where the digest has seen the bytes already."""
    digest.update(repr(shape).encode())
    return digest.hexdigest()


def _can_change(pixels: Pixels) -> bool:
    """Whether the array, or one whose memory it shows, may be written to."""
    array: Any = pixels
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return True
        array = array.base
    return False


def _mapped_file(pixels: Pixels) -> tuple[str, int] | None:
    """File and offset of an array that is, as a whole, one memory map of a named file."""
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
            "`places` must be whole numbers in one dimension, got an array of "
            f"{given.dtype} with shape {given.shape}."
        )
    if given.size and (given.min() < 0 or given.max() >= size):
        bad = given.min() if given.min() < 0 else given.max()
        raise InvalidInputError(f"`places` must lie in [0, {size - 1}], got {bad}.")
    return given.astype(np.int64)


def _three_numbers(values: Sequence[float], name: str) -> tuple[float, float, float]:
    try:
        numbers = tuple(float(value) for value in values)
    except (TypeError, ValueError):
        numbers = ()
    if len(numbers) != CHANNELS or not np.isfinite(numbers).all():
        raise InvalidInputError(f"`{name}` must hold three finite numbers, got {values!r}.")
    return numbers[0], numbers[1], numbers[2]
