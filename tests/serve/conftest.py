"""The page's functions in node, the page in a browser, and frontiers to draw."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from fairdial import Frontier, measure, sweep
from fairdial.datasets import make_gaussian
from fairdial.serve.page import STATIC
from fairdial.serve.page_data import page_data

HERE = Path(__file__).parent
ARTIFACTS = Path(os.environ.get("FAIRDIAL_ARTIFACTS", HERE.parents[1] / "test-artifacts"))
BROWSER_OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Node:
    """The page's pure functions, called one after the other in one process of node."""

    def __init__(self, program: str) -> None:
        self._process = subprocess.Popen(
            [program, str(HERE / "dial_lines.js"), str(STATIC)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )

    def __call__(self, *call: Any) -> Any:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(call, allow_nan=False) + "\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer.get("value")

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    program = shutil.which("node")
    if program is None:
        pytest.skip("node is not installed: the page's functions can't be run")
    opened = Node(program)
    yield opened
    opened.close()


@pytest.fixture(scope="session", autouse=True)
def _patience() -> None:
    """Browsers share the machine with other tests."""
    expect.set_options(timeout=30_000)


@pytest.fixture(autouse=True)
def _kept(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test in the browser has left on the page, as a picture in the folder of artifacts."""
    if "page" not in request.fixturenames:
        yield
        return
    page: Page = request.getfixturevalue("page")
    yield
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^\w-]+", "-", request.node.name).strip("-")
    page.screenshot(path=ARTIFACTS / f"{request.path.stem}-{name}.png", full_page=True)


@pytest.fixture(scope="session")
def base_url() -> None:
    """Pages are opened by full addresses; pytest-playwright's own fixture warns."""


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    """What pytest-playwright starts: the system's chromium."""
    program = shutil.which("chromium")
    if program is None:
        reason = "chromium is not installed: the page can't be opened"
        if os.environ.get("FAIRDIAL_BROWSER") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    return browser_type_launch_args | {"executable_path": program, "args": BROWSER_OPTIONS}


def help_family(criterion: str = "demographic_parity", *, labeled: bool = True) -> Frontier:
    """Eight settings, some of which others beat."""
    sample = make_gaussian(2_000, random_state=1)
    rng = np.random.default_rng(0)
    settings = np.linspace(0.0, 2.0, 8)
    helped = sample.groups == "group 0"
    noise = rng.normal(size=(8, 2_000)) * np.where(np.arange(8) % 3 == 1, 0.8, 0.1)[:, None]
    margins = sample.logits + settings[:, None] * helped + noise
    y = sample.y if labeled else None
    return measure(margins, sample.groups, y, settings=settings, criterion=criterion)


def gaussian(criterion: str, n_groups: int, *, labeled: bool = True) -> Frontier:
    """A swept frontier of the Gaussian law."""
    base, apart = (0.3, 0.5, 0.6, 0.4)[:n_groups], (1.2, 1.5, 1.3, 1.4)[:n_groups]
    shares = np.array((0.4, 0.3, 0.2, 0.1)[:n_groups])
    sample = make_gaussian(
        1_000 * n_groups**2,
        shares=tuple(shares / shares.sum()),
        base_rates=base,
        separations=apart,
        random_state=2,
    )
    y = sample.y if labeled else None
    return sweep(sample.logits, sample.groups, y, criterion=criterion)


KINDS = {
    "equal selection, two groups": lambda: gaussian("demographic_parity", 2),
    "equal opportunity, two groups": lambda: gaussian("equal_opportunity", 2),
    "equal false alarms, four groups": lambda: gaussian("predictive_equality", 4),
    "no labels, three groups": lambda: gaussian("demographic_parity", 3, labeled=False),
    "a family": lambda: help_family(),
    "a family, equal opportunity": lambda: help_family("equal_opportunity"),
    "a family without labels": lambda: help_family(labeled=False),
}


@pytest.fixture(scope="session", params=KINDS)
def frontier(request: pytest.FixtureRequest) -> Frontier:
    """Every kind of frontier."""
    return KINDS[request.param]()


@pytest.fixture(scope="session")
def document(frontier: Frontier) -> dict[str, Any]:
    """What the page is given of it."""
    return page_data(frontier)


@pytest.fixture(scope="session")
def two_groups() -> Frontier:
    """The kind that most pages show."""
    return KINDS["equal selection, two groups"]()


@pytest.fixture(scope="session")
def family() -> Frontier:
    """Settings, each measured."""
    return KINDS["a family"]()
