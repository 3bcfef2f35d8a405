"""The benchmarks run; what they measure is not tested here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "benchmarks"


@pytest.mark.parametrize(
    "script",
    ["dial.py", "coverage.py", "parquet.py", "train_step.py", "stacks.py", "images.py", "serve.py"],
)
def test_a_benchmark_runs_and_prints_a_table(script: str) -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / script), "--quick"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "| ---" in done.stdout or "|---" in done.stdout
