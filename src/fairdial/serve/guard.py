"""What every request passes: hosts, headers, ids, clocks, and errors that tell nothing.

Pure ASGI around the application. An exception that nobody has handled becomes a 500 with an id; the
log has the id, the exception's type and where it was raised, never its message, which may hold what
was sent.
"""

from __future__ import annotations

import json
import logging
import os
import time
import traceback
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from fairdial.serve.page import SERVED_POLICY

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADERS = (
    (b"content-security-policy", SERVED_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
FRESH = (b"cache-control", b"no-store")
STATIC = "/static/"
OTHER = "other"
BROKEN = "something went wrong on the server; its log has the request's id."

log = logging.getLogger("fairdial.serve")


class Guard:
    """The application, guarded.

    Parameters
    ----------
    app : ASGI application
        What answers.
    hosts : collection of str, optional
        Names under which the server may be asked; anybody else's page that a browser was led to
        through a name of its own is refused. None: any.
    paths : collection of str
        Paths that are counted by name.
    count : callable
        ``count(path, status, seconds)`` of every answer.
    """

    def __init__(
        self,
        app: App,
        *,
        hosts: Collection[str] | None,
        paths: Collection[str],
        count: Callable[[str, int, float], None],
    ) -> None:
        self._app, self._count = app, count
        self._hosts = None if hosts is None else frozenset(name.lower() for name in hosts)
        self._paths = frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status, path = time.perf_counter(), 0, scope["path"]
        request = os.urandom(8).hex()
        scope.setdefault("state", {})["request"] = request

        async def guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [
                    *message["headers"],
                    *HEADERS,
                    (b"x-request-id", request.encode()),
                    *(() if path.startswith(STATIC) else (FRESH,)),
                ]
            await send(message)

        try:
            if self._hosts is not None and not self._allowed(scope):
                await _answer(guarded, 421, "this server isn't known by that name.", request)
            else:
                await self._app(scope, receive, guarded)
        except Exception as error:
            log.error("request %s: %s", request, _told(error))
            if not status:
                await _answer(guarded, 500, BROKEN, request)
        finally:
            named = path if path in self._paths else OTHER
            if path.startswith(STATIC):
                named = STATIC
            self._count(named, status, time.perf_counter() - start)

    def _allowed(self, scope: Scope) -> bool:
        assert self._hosts is not None
        given = [value for name, value in scope["headers"] if name == b"host"]
        if len(given) != 1:
            return False
        name = given[0].decode("latin-1").lower()
        if name.startswith("["):
            return name.partition("]")[0] + "]" in self._hosts
        return name.partition(":")[0] in self._hosts


def error_body(detail: str, request: str) -> bytes:
    """What every error answers."""
    return json.dumps({"detail": detail, "request": request}).encode()


async def _answer(send: Send, status: int, detail: str, request: str) -> None:
    body = error_body(detail, request)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _told(error: BaseException) -> str:
    """An exception's type and where it was raised, without its message."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames[-8:]]
    return " < ".join([type(error).__name__, *reversed(places)])
