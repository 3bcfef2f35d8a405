"""Connections that are only held open are closed; those that work are not."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
import time

import pytest
import uvicorn

from fairdial.serve import patience

HALF = b"GET /healthz HTTP/1.1\r\nHost: loc"
WHOLE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def slow(scope, _, send):
    """Takes longer to answer than heads have time."""
    if scope["type"] != "http":
        return
    await asyncio.sleep(0.6)
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def port(monkeypatch):
    monkeypatch.setattr(patience, "HEAD", 0.3)
    monkeypatch.setattr(patience, "SPARE", 2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    config = uvicorn.Config(
        slow,
        port=number,
        http=patience.PatientProtocol,
        lifespan="off",
        log_level="critical",
        limit_concurrency=4,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield number
    server.should_exit = True
    thread.join()


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def rest(connection):
    """Whatever comes until the server closes the connection."""
    parts = []
    while part := connection.recv(10_000):
        parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("sent", [b"", HALF])
def test_a_head_that_doesnt_come_is_not_waited_for(sent, port):
    with connect(port) as connection:
        connection.sendall(sent)
        assert rest(connection).startswith(b"HTTP/1.1 408 ")


def test_nor_is_the_next_one_of_a_connection(port):
    with connect(port) as connection:
        connection.sendall(WHOLE)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert (answer.status, answer.read()) == (200, b"ok")
        connection.sendall(HALF)
        assert rest(connection).startswith(b"HTTP/1.1 408 ")


def test_an_answer_may_take_longer_than_a_head(port):
    with connect(port) as connection:
        connection.sendall(HALF)
        time.sleep(0.05)
        connection.sendall(WHOLE[len(HALF) :])
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert (answer.status, answer.read()) == (200, b"ok")


def test_connections_beyond_the_limit_are_told_and_far_beyond_it_closed(port, monkeypatch):
    monkeypatch.setattr(patience, "HEAD", 60.0)
    held = [connect(port) for _ in range(6)]
    with connect(port) as one_more:
        assert one_more.recv(100) == b""
    held[5].sendall(WHOLE)
    answer = http.client.HTTPResponse(held[5])
    answer.begin()
    assert answer.status == 503
    for connection in held:
        connection.close()
