"""HTTP connections as uvicorn has them, with a deadline for the head of every request.

uvicorn ends a connection that is idle after an answer, but not one that sends a head letter by letter, or nothing.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class HttpConnection(H11Protocol):
    """A connection whose requests must begin in time."""

    def __init__(self, header_seconds: float, **options: Any) -> None:
        super().__init__(**options)
        self._header_seconds = header_seconds
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            if self.timeout_keep_alive_task is None:  # a part of a head is there
                self._expect_head()
        else:
            self._expect_nothing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._expect_nothing()
        super().handle_websocket_upgrade(event)

    def _expect_head(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self._header_seconds, self.transport.close)

    def _expect_nothing(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
