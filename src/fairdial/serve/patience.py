"""Connections that are only held open: heads that don't come are not waited for.

uvicorn waits for a request's head for ever, and takes any number of connections. Here a connection
whose next head isn't there in time is closed, and so is one that comes when there are too many
already; what is too slow after the head, the application answers (408).
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEAD = 20.0  # seconds for a request's head
SPARE = 32  # connections above the limit that are still told so (503)
LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class PatientProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's protocol of a connection, with an end to its patience."""

    def connection_made(self, transport: Any) -> None:
        """Count the connection, and wait for its first head."""
        super().connection_made(transport)
        self._late: asyncio.TimerHandle | None = None
        most = self.limit_concurrency
        if most is not None and len(self.connections) > most + SPARE:
            transport.close()
            return
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take what has come; what isn't a whole head yet is waited for."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait()
        else:
            self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more to wait for."""
        self._stop()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(HEAD, self._give_up)

    def _stop(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _give_up(self) -> None:
        self._late = None
        if not self.transport.is_closing() and (self.cycle is None or self.cycle.response_complete):
            self.transport.write(LATE)
            self.transport.close()
