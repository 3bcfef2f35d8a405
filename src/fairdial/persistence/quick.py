"""skops for processes that are to start at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from fairdial.errors import MissingExtraError, say_install

UNUSED = tuple(f"sklearn.externals.array_api_compat.{name}" for name in ("cupy", "dask", "torch"))


def import_skops() -> None:
    """Import skops without the array libraries that it never uses.

    skops looks through every module of scikit-learn when it is imported; some of these import
    torch and dask, which takes longer than all the rest. For a process with one thread: for a
    moment those modules can't be imported.
    """
    try:
        with _left_out(UNUSED):
            import skops.io  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"models of scikit-learn are saved by skops: {say_install('save')}."
        ) from error


class _Refuse(MetaPathFinder):
    """Says of some modules that they aren't there."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Refuse, or leave it to the next finder."""
        if fullname in self.names:
            raise ModuleNotFoundError(fullname, name=fullname)
        return None


@contextmanager
def _left_out(names: Sequence[str]) -> Iterator[None]:
    refuse = _Refuse(names)
    sys.meta_path.insert(0, refuse)
    try:
        yield
    finally:
        sys.meta_path.remove(refuse)
