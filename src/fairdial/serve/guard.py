"""What every connection and request passes: limits, host names, headers, ids and the last resort.

:class:`GuardedProtocol` limits connections. uvicorn waits forever for the head of a request, of any
size, on any number of connections. Here a connection is closed if the next head is late (408) or
too large (431, also for the trailers of a body), or if there are too many connections.

:class:`Guard` is pure ASGI around the application. An exception that nobody handled becomes a 500
with an id. The server's log has the id, the exception's type and where it was raised, never its
message, which may contain what the client sent.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
import traceback
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from fairdial.serve.page import SERVED_POLICY

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HEAD_TIMEOUT = 20.0  # seconds for the head of a request
MOST_HEAD_BYTES = 1 << 16
SPARE = 32  # connections above the limit that still get an answer (503)
LATE, TOO_LARGE = (
    b"HTTP/1.1 %s\r\nconnection: close\r\ncontent-length: 0\r\n\r\n" % status
    for status in (b"408 Request Timeout", b"431 Request Header Fields Too Large")
)

HEADERS = (
    (b"content-security-policy", SERVED_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
NO_STORE = (b"cache-control", b"no-store")
STATIC = "/static/"
OTHER = "other"
INTERNAL_ERROR = "internal error; the server's log has details under this request's id."

log = logging.getLogger("fairdial.serve")


# ---- connections -------------------------------------------------------------------------------


class GuardedProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's HTTP protocol with limits on connections and on the heads of requests."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Count the connection, and wait for its first head."""
        super().connection_made(transport)
        self._timer: asyncio.TimerHandle | None = None
        self._in_head, self._head_bytes, self._too_large = False, 0, False
        most = self.limit_concurrency
        if most is not None and len(self.connections) > most + SPARE:
            transport.close()
            return
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        """Pass data on to uvicorn, unless the head has grown too large."""
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > MOST_HEAD_BYTES:
            self._close(TOO_LARGE)
        if self._is_waiting():
            self._start_timer()
        else:
            self._stop_timer()

    def on_message_begin(self) -> None:
        """Begin to count the bytes of a head that takes several reads."""
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header of the head; those after the body (trailers) are dropped."""
        if self._in_head:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """Begin to count the bytes between and after the parts of a body, which has own limits."""
        super().on_body(body)
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        """Refuse a complete head that is too large; the parser turns errors into a 400."""
        self._in_head = False
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > MOST_HEAD_BYTES:
            self._too_large = True
            raise ValueError("the head of the request is too large")
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that can't be parsed."""
        if self._too_large:
            self._close(TOO_LARGE)
        else:
            super().send_400_response(msg)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting for a head."""
        self._stop_timer()
        super().connection_lost(exc)

    def _is_waiting(self) -> bool:
        return self.cycle is None or bool(self.cycle.response_complete)

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(HEAD_TIMEOUT, self._time_out)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        self._timer = None
        if self._is_waiting():
            self._close(LATE)

    def _close(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()


# ---- requests ----------------------------------------------------------------------------------


class Guard:
    """The application with what all requests have in common.

    Parameters
    ----------
    app : ASGI application
        The application.
    hosts : collection of str, optional
        Host names that requests may use. Others get a 421, which protects a local server from web
        pages that point a name of their own at it. None allows any name.
    paths : collection of str
        Paths that are counted by name.
    count : callable
        ``count(path, status, seconds)`` is called for every answer.
    close : callable
        Called when the server stops.
    root_path : str
        Prefix of all paths; requests without it are answered too, for a proxy that strips it.
    """

    def __init__(
        self,
        app: App,
        *,
        hosts: Collection[str] | None,
        paths: Collection[str],
        count: Callable[[str, int, float], None],
        close: Callable[[], None] = lambda: None,
        root_path: str = "",
    ) -> None:
        self._app, self._count, self.close = app, count, close
        self._root = root_path
        self._hosts = None if hosts is None else frozenset(name.lower() for name in hosts)
        self._paths = frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await run_lifespan(receive, send, self.close)
            return
        if self._root:
            scope = _without(self._root, scope)
        start, status, path = time.perf_counter(), 0, scope["path"]
        request_id = os.urandom(8).hex()
        scope.setdefault("state", {})["request"] = request_id

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [
                    *message["headers"],
                    *HEADERS,
                    (b"x-request-id", request_id.encode()),
                    *(() if path.startswith(STATIC) else (NO_STORE,)),
                ]
            await send(message)

        try:
            if self._hosts is not None and not _host_allowed(scope, self._hosts):
                detail = "this server doesn't answer requests for that host name."
                await _answer(send_guarded, 421, detail, request_id)
            elif not path:  # the page's own paths are relative
                headers = [(b"location", f"{self._root}/".encode()), (b"content-length", b"0")]
                await send_guarded(
                    {"type": "http.response.start", "status": 308, "headers": headers}
                )
                await send_guarded({"type": "http.response.body", "body": b""})
            else:
                await self._app(scope, receive, send_guarded)
        except Exception as error:
            log.error("request %s: %s", request_id, _describe(error))
            if not status:
                await _answer(send_guarded, 500, INTERNAL_ERROR, request_id)
        finally:
            name = path if path in self._paths else OTHER
            if path.startswith(STATIC):
                name = STATIC
            self._count(name, status, time.perf_counter() - start)


async def run_lifespan(
    receive: Receive, send: Send, stop: Callable[[], None], start: Callable[[], None] | None = None
) -> None:
    """Answer the messages of a server that starts and stops."""
    while True:
        kind = (await receive())["type"]
        if kind == "lifespan.startup" and start is not None:
            start()
        if kind == "lifespan.shutdown":
            stop()
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return


def _without(root: str, scope: Scope) -> Scope:
    """Return a request without the prefix of its path."""
    path = scope["path"]
    if path != root and not path.startswith(f"{root}/"):
        return scope
    return {**scope, "path": path[len(root) :], "raw_path": scope["raw_path"][len(root) :]}


def _host_allowed(scope: Scope, hosts: Collection[str]) -> bool:
    given = [value for name, value in scope["headers"] if name == b"host"]
    if len(given) != 1:
        return False
    name = given[0].decode("latin-1").lower()
    if name.startswith("["):
        return name.partition("]")[0] + "]" in hosts
    return name.partition(":")[0] in hosts


def error_body(detail: str, request_id: str) -> bytes:
    """Return the body of every error."""
    return json.dumps({"detail": detail, "request": request_id}).encode()


async def _answer(send: Send, status: int, detail: str, request_id: str) -> None:
    body = error_body(detail, request_id)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _describe(error: BaseException) -> str:
    """Return an exception's type and where it was raised, without its message."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames[-8:]]
    return " < ".join([type(error).__name__, *reversed(places)])
