"""SciPy's special functions, imported at the first call of one.

Importing ``scipy.special`` takes longer than deciding on a few rows, which calls none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any


@cache
def _find(name: str) -> Callable[..., Any]:
    from scipy import special

    found: Callable[..., Any] = getattr(special, name)
    return found


def _imported_when_called(name: str) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        return _find(name)(*arguments)

    call.__name__ = call.__qualname__ = name
    return call


betainc = _imported_when_called("betainc")
betaincinv = _imported_when_called("betaincinv")
expit = _imported_when_called("expit")
gammaln = _imported_when_called("gammaln")
logit = _imported_when_called("logit")
ndtri = _imported_when_called("ndtri")
xlog1py = _imported_when_called("xlog1py")
xlogy = _imported_when_called("xlogy")
