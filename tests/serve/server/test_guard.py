"""Limits of connections: late or large heads are refused, working connections are not."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
import time

import pytest
import uvicorn

from fairdial.serve import guard

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
    monkeypatch.setattr(guard, "HEAD_TIMEOUT", 0.3)
    monkeypatch.setattr(guard, "SPARE", 2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    config = uvicorn.Config(
        slow,
        port=number,
        http=guard.GuardedProtocol,
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
def test_a_late_head_is_refused(sent, port):
    with connect(port) as connection:
        connection.sendall(sent)
        assert rest(connection).startswith(b"HTTP/1.1 408 ")


def test_a_late_second_head_is_refused(port):
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


def test_connections_beyond_the_limit_get_an_answer_and_far_beyond_it_none(port, monkeypatch):
    monkeypatch.setattr(guard, "HEAD_TIMEOUT", 60.0)
    held = [connect(port) for _ in range(6)]
    with connect(port) as one_more:
        assert one_more.recv(100) == b""
    held[5].sendall(WHOLE)
    answer = http.client.HTTPResponse(held[5])
    answer.begin()
    assert answer.status == 503
    for connection in held:
        connection.close()


def head(size):
    """A complete head with so many bytes of headers."""
    line = b"X-Padding: " + b"x" * 988 + b"\r\n"
    lines, rest = divmod(size, len(line))
    return WHOLE[:-2] + line * lines + b"X-Rest: " + b"x" * rest + b"\r\n\r\n"


@pytest.mark.parametrize("parts", [1, 7])
def test_a_large_head_is_refused(parts, port, monkeypatch):
    monkeypatch.setattr(guard, "HEAD_TIMEOUT", 60.0)
    for size, status in ((guard.MOST_HEAD_BYTES - 2_000, 200), (guard.MOST_HEAD_BYTES + 99, 431)):
        with connect(port) as connection:
            data = head(size)
            step = len(data) // parts + 1
            for start in range(0, len(data), step):
                connection.sendall(data[start : start + step])
                time.sleep(0.02)
            assert connection.recv(1_000).startswith(b"HTTP/1.1 %d " % status)


CHUNKED = WHOLE.replace(b"GET", b"POST")[:-2] + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "begun",
    [
        WHOLE[:-2],
        WHOLE[:-2] + b"X-Endless: ",
        WHOLE + WHOLE[:-2],
        CHUNKED + b"2\r\nhi\r\n0\r\n",  # trailers
        CHUNKED + b"2\r\nhi\r\n0\r\nX-Endless: ",
        CHUNKED + b"2;name=",  # an extension of a chunk
    ],
)
def test_an_endless_head_is_cut_off(begun, port, monkeypatch):
    """Also if it is one endless header, or follows a request that is still being answered."""
    monkeypatch.setattr(guard, "HEAD_TIMEOUT", 60.0)
    piece = b"x" * 10_000 if begun[-1:] in b" =" else b"X-Padding: xxxxxxxxx\r\n" * 400
    with connect(port) as connection:
        connection.sendall(begun)
        with pytest.raises(ConnectionError):
            connection.sendall(piece * 10_000)


def test_a_long_body_with_trailers_is_no_head(port, monkeypatch):
    monkeypatch.setattr(guard, "HEAD_TIMEOUT", 60.0)
    chunk = b"2710\r\n" + b"x" * 10_000 + b"\r\n"
    with connect(port) as connection:
        connection.sendall(CHUNKED + chunk * 30 + b"0\r\nX-Sum: 1\r\n\r\n")
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert (answer.status, answer.read()) == (200, b"ok")
