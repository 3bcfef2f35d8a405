"""Settings for every test and doctest: one thread, no windows, no deadlines, fixed seeds."""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # read when numpy is imported
os.environ.setdefault("MPLBACKEND", "Agg")

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

settings.register_profile("project", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("project")


@pytest.fixture(autouse=True)
def _drawn_alike() -> None:
    """What a test leaves to chance (``random_state=None``) comes out alike in every run.

    Not so what is made before it, for several tests (fixtures of a wider scope, models
    at the top of a file), or in another process: those need a ``random_state``.
    """
    np.random.seed(0)  # noqa: NPY002  # scikit-learn's own source where no seed is given
