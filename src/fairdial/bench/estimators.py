"""The estimators that a plan can name: registered methods, and variants that only studies use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fairdial.bench.variants import ByShares, Distilled, WholeDial
from fairdial.estimators.base import DialClassifier
from fairdial.registry import BUILT_IN, Method, method_of, methods

VARIANTS: tuple[type[DialClassifier], ...] = (ByShares, WholeDial, Distilled)


class _Estimators(Mapping[str, type[DialClassifier]]):
    """A view of the registry by class name."""

    def __getitem__(self, name: str) -> type[DialClassifier]:
        method = method_of(name)
        if method is not None:
            return method.load()
        return {variant.__name__: variant for variant in VARIANTS}[name]

    def __iter__(self) -> Iterator[str]:
        registered = (method.estimator for method in methods())
        return iter(dict.fromkeys((*registered, *(variant.__name__ for variant in VARIANTS))))

    def __len__(self) -> int:
        return len(tuple(iter(self)))


ESTIMATORS = _Estimators()


def own_method(estimator: str) -> Method | None:
    """Return the method of a class that isn't the library's; None for the library's."""
    method = method_of(estimator)
    return None if method in BUILT_IN else method
