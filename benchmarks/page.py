"""Time the slider of the page in the browser, by the number of operating points.

    python benchmarks/page.py [--rows 3e4 2.8e5] [--moves 300] [--quick]

The exported page is opened in headless chromium without a GPU. A move is an input event of the
slider with everything that follows: the operating point is found, the text, tables, marker and
thresholds change, and the page is laid out again. Times are CPU times of the page's process; with
drawing in every frame, they should stay below a sixtieth of a second.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from common import TWO_GROUPS, at_most, draw, machine, show_goals, table

from fairdial import sweep
from fairdial.serve.page import write_page

ROWS = (3e4, 4.7e5)
OPTIONS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
FRAME = 1000 / 60  # ms
SETTLE = 1000  # ms after opening
PREPARE = """() => {
  const slider = document.getElementById("slider");
  const later = window.requestAnimationFrame;
  const frame = () => new Promise((done) => later(done));
  const move = (share) => {
    slider.value = Math.round(share * slider.max);
    slider.dispatchEvent(new Event("input"));
  };
  window.changed = (count) => {
    window.requestAnimationFrame = (draw) => { draw(performance.now()); return 0; };  // at once
    for (let i = 0; i < count; i += 1) {
      move((i * 0.618034) % 1);
      document.body.getBoundingClientRect();
    }
    window.requestAnimationFrame = later;
  };
  window.drawn = async (count) => {
    for (let i = 0; i < count; i += 1) {
      move((i * 0.618034) % 1);
      await frame();
    }
  };
}"""


def cpu_seconds(session: Any) -> float:
    """Return the CPU time of the page's process; there is one page."""
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    return float(sum(p["cpuTime"] for p in processes if p["type"] == "renderer"))


def measure(play: Any, program: str, path: Path, moves: int) -> list[float]:
    """Return CPU milliseconds of opening the page, of a move, and of a move with drawing."""
    browser = play.chromium.launch(executable_path=program, args=OPTIONS)
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    session = browser.new_browser_cdp_session()
    before = cpu_seconds(session)
    page.goto(path.as_uri())
    page.wait_for_selector("#page:not([hidden])")
    page.wait_for_timeout(SETTLE)
    found = [cpu_seconds(session) - before]
    page.evaluate(PREPARE)
    for name in ("changed", "drawn"):
        page.evaluate(f"{name}({moves})")  # warms up
        before = cpu_seconds(session)
        page.evaluate(f"{name}({moves})")
        found.append((cpu_seconds(session) - before) / moves)
    browser.close()
    return [1e3 * seconds for seconds in found]


def report(sizes: Sequence[int], moves: int) -> None:
    """Measure, and print the results."""
    program = shutil.which("chromium")
    if program is None:
        sys.exit("This benchmark needs chromium.")
    from playwright.sync_api import sync_playwright

    print(machine(("fairdial", "playwright")))
    print(f"\nCPU milliseconds; {moves} moves each.\n")
    lines, goals = [], []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        for size in sizes:
            rows = draw(TWO_GROUPS, size, np.random.default_rng(0))
            frontier = sweep(rows.logits, rows.groups, rows.y)
            frontier = replace(frontier, certificate="simultaneous")  # faster to write
            path = write_page(frontier, Path(folder) / "page.html")
            opened, changed, drawn = measure(play, program, path, moves)
            goals.append(at_most(f"a move with drawing, {size:,} rows", drawn, FRAME, " ms"))
            lines.append(
                [
                    f"{int(frontier.points.reachable.sum()):,}",
                    f"{path.stat().st_size / 1e6:.2f} MB",
                    f"{opened:.0f}",
                    f"{changed:.2f}",
                    f"{drawn:.2f}",
                ]
            )
    head = ["points", "file", "opening", "a move", "with drawing"]
    print(table(head, lines))
    show_goals(goals)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=float, nargs="+", default=ROWS, help="calibration rows")
    parser.add_argument("--moves", type=int, default=300, help="moves of the slider")
    parser.add_argument("--quick", action="store_true", help="few rows, few moves")
    given = parser.parse_args(arguments)
    if given.quick:
        print("A quick run checks that the script works; its numbers mean nothing.\n")
    report(
        [2000] if given.quick else [int(n) for n in given.rows], 20 if given.quick else given.moves
    )


if __name__ == "__main__":
    main()
