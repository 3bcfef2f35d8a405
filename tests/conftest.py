"""Settings of every test: one thread a process, no windows, no deadlines for hypothesis."""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # read when numpy is imported
os.environ.setdefault("MPLBACKEND", "Agg")

from hypothesis import settings  # noqa: E402

settings.register_profile("project", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("project")
