"""The estimators that a plan can name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fairdial.estimators.base import DialClassifier
from fairdial.registry import BUILT_IN, Method, method_of, methods


class _Estimators(Mapping[str, type[DialClassifier]]):
    """A view of the registry by class name."""

    def __getitem__(self, name: str) -> type[DialClassifier]:
        method = method_of(name)
        if method is None:
            raise KeyError(name)
        return method.load()

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(method.estimator for method in methods()))

    def __len__(self) -> int:
        return len(tuple(iter(self)))


ESTIMATORS = _Estimators()


def own_method(estimator: str) -> Method | None:
    """Return the method of a class that isn't the library's; None for the library's."""
    method = method_of(estimator)
    return None if method in BUILT_IN else method
