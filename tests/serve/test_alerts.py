"""The alert rules fire when they should, by Prometheus's own tool."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

PROMTOOL = shutil.which("promtool")


@pytest.mark.skipif(PROMTOOL is None, reason="promtool isn't installed")
def test_rules_fire_and_stay_silent():
    cases = Path(__file__).parent / "alerts-test.yml"
    done = subprocess.run(
        [str(PROMTOOL), "test", "rules", cases.name],
        cwd=cases.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
