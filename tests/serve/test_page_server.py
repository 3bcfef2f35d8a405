"""The page in a browser, before the server as it is: application, log and model."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Page, expect
from sklearn.linear_model import LogisticRegression

from fairdial import FairBayes
from fairdial.datasets import make_gaussian
from fairdial.serve.audit import AuditLog
from fairdial.serve.startup import make_app, prepare

TOKEN = "a-token-of-enough-letters"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sample = make_gaussian(6_000, random_state=0)
    model = FairBayes(LogisticRegression(), tolerance=0.2, random_state=0)
    model.fit(sample.logits[:, None], sample.y, sensitive_features=sample.groups)
    folder = tmp_path_factory.mktemp("served") / "loans"
    model.save(folder)
    return folder


@pytest.fixture
def serve(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., str]]:
    """Starts a server of the model, and gives its address."""
    monkeypatch.setenv("FAIRDIAL_TOKEN", TOKEN)
    running: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(**options: Any) -> str:
        usual = {"tolerance": None, "confidence": None, "token_env": "FAIRDIAL_TOKEN", "key": None}
        settings = prepare(
            model,
            audit=tmp_path / "audit.sqlite",
            read_only=False,
            open_observe=False,
            hosts=None,
            scratch=tmp_path,
            **(usual | options),
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        config = uvicorn.Config(make_app(settings), port=port, log_level="critical")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        running.append((server, thread))
        while not server.started:
            time.sleep(0.01)
        return f"http://127.0.0.1:{port}/"

    yield start
    for server, thread in running:
        server.should_exit = True
        thread.join()


def open_page(page: Page, address: str) -> None:
    page.goto(address)
    expect(page.locator("#apply-section")).to_be_visible()


def test_the_dial_is_moved_with_the_token_and_the_record_shows_it(page, serve, tmp_path):
    open_page(page, serve())
    expect(page.locator("#tolerance")).to_have_value("20.0")
    page.locator("#slider").focus()
    for _ in range(5):
        page.keyboard.press("ArrowLeft")
    expect(page.locator("#tolerance")).to_have_value("19.5")
    expect(page.locator("#apply-button")).to_have_text("Apply 19.5 percentage points")
    page.locator("#reason").fill("agreed in council")
    page.locator("#by").fill("Ada")
    page.locator("#token").fill("a-token-that-was-guessed")
    page.locator("#apply-button").click()
    expect(page.locator("#apply-status")).to_contain_text("token")
    expect(page.locator("#audit li")).to_have_count(1)
    page.locator("#token").fill(TOKEN)
    page.locator("#apply-button").click()
    expect(page.locator("#apply-status")).to_contain_text("Done. In use now: 19.5")
    expect(page.locator("#audit li")).to_have_count(2)
    first = page.locator("#audit li").first
    expect(first).to_contain_text("Ada: from 20.0 percentage points to 19.5 percentage points")
    expect(first).to_contain_text("agreed in council")
    log = AuditLog(tmp_path / "audit.sqlite", write=False)
    last = log.last()
    assert last is not None
    assert (last.version, last.tolerance, last.who) == (2, 0.195, "Ada")
    assert log.altered() is None


def test_what_the_server_would_refuse_cant_be_applied(page, serve, tmp_path):
    open_page(page, serve(confidence=0.9))
    expect(page.locator("[name=confidence][value=certified]")).to_be_checked()
    page.locator("#slider").press("ArrowRight")  # away from the limit in use
    expect(page.locator("#apply-button")).to_be_enabled()
    page.locator("[name=confidence][value=plain]").check()
    expect(page.locator("#apply-button")).to_be_disabled()
    expect(page.locator("#apply-note")).to_contain_text("90% confidence")
    page.locator("[name=confidence][value=certified]").check()
    page.locator("#tolerance").fill("25")
    page.locator("#tolerance").press("Enter")
    page.locator("#reason").fill("agreed in council")
    page.locator("#token").fill(TOKEN)
    page.locator("#apply-button").click()
    expect(page.locator("#apply-status")).to_contain_text("Done. In use now: 2")
    log = AuditLog(tmp_path / "audit.sqlite", write=False)
    last = log.last()
    assert last is not None
    assert (last.version, last.confidence) == (2, 0.9)
