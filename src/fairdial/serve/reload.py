"""Swap the model of a running server: nobody waits, and no request is dropped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable

from starlette.concurrency import run_in_threadpool

from fairdial.serve.guard import Guard, Receive, Scope, Send, run_lifespan

log = logging.getLogger("fairdial.serve")


class Reloadable:
    """An application that is replaced when the process gets SIGHUP.

    Requests that have begun are answered by the application that they began with, which is closed
    after the last of them. If the new one can't be made, the old one stays and the log has the
    reason.

    Parameters
    ----------
    app : Guard
        The first application.
    load : callable
        Returns the next one; called in a thread.
    obeys : bool
        Whether this process can handle signals.
    """

    def __init__(self, app: Guard, load: Callable[[], Guard], *, obeys: bool = True) -> None:
        self._app, self._load, self._obeys = app, load, obeys
        self._running = {app: 0}  # requests by application
        self._loading: asyncio.Task[None] | None = None
        self._again = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await run_lifespan(receive, send, self._stop, self._start)
            return
        app = self._app
        self._running[app] += 1
        try:
            await app(scope, receive, send)
        finally:
            self._running[app] -= 1
            self._close_unused()

    def _start(self) -> None:
        if self._obeys:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.reload)

    def _stop(self) -> None:
        for app in self._running:
            app.close()

    def reload(self) -> None:
        """Begin to replace the application; one more time if that is already going on."""
        if self._loading is not None and not self._loading.done():
            self._again = True
            return
        self._loading = asyncio.get_running_loop().create_task(self._reload())

    async def _reload(self) -> None:
        while True:
            self._again = False
            try:
                app = await run_in_threadpool(self._load)
            except Exception as error:
                log.error("the model was not reloaded, and the old one stays: %s", error)
            else:
                self._running[app] = 0
                self._app = app
                self._close_unused()
            if not self._again:
                return

    def _close_unused(self) -> None:
        for app in [app for app, n in self._running.items() if n == 0 and app is not self._app]:
            del self._running[app]
            with contextlib.suppress(Exception):
                app.close()
