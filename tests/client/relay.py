"""A relay between clients and a server, which cuts connections where a test says so."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


class Relay:
    """Passes bytes on between a port of its own and one of a server.

    url     its address, for clients
    target  the port of the server, which may become another one
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.connections = 0  # so far
        self._cut_after: list[tuple[int, int]] = []  # bytes up and down that the next connections pass on
        self._open: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._muted: set[Any] = set()
        self._refusing = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server: asyncio.Server = self._run(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    def cut(self) -> None:
        """Cut all connections now, without a word."""

        async def cut() -> None:
            for pair in list(self._open):
                for writer in pair:
                    writer.transport.abort()

        self._run(cut())

    def refuse(self, refusing: bool) -> None:
        """Cut new connections at once, or take them again."""
        self._refusing = refusing

    def mute(self) -> None:
        """Pass on nothing more that the server sends, on connections that are open now."""
        self._muted |= self._open

    def cut_next(self, *after: tuple[int, int]) -> None:
        """Cut each of the next connections when so many bytes have gone up or come down."""
        self._cut_after = list(after)

    def cut_at_random(self, seed: int, connections: int, most: int) -> None:
        """Cut the next connections anywhere in their first bytes."""
        dice = random.Random(seed)
        self.cut_next(*((dice.randrange(300, most), dice.randrange(300, most)) for _ in range(connections)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self._refusing:
            writer.transport.abort()
            return
        up, down = self._cut_after.pop(0) if self._cut_after else (1 << 60, 1 << 60)
        try:
            there, answer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        pair = (writer, answer)
        self._open.add(pair)
        try:
            await asyncio.gather(self._pass(reader, answer, up, pair), self._pass(there, writer, down, pair))
        finally:
            self._open.discard(pair)

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int, pair: tuple[Any, Any]
    ) -> None:
        with contextlib.suppress(OSError):
            while left > 0 and (data := await reader.read(4096)):
                if pair not in self._muted or writer is pair[1]:
                    writer.write(data[:left])
                left -= len(data)
                await writer.drain()
        for one in pair:
            one.transport.abort()

    def close(self) -> None:
        async def close() -> None:
            self._server.close()

        self.cut()
        self._run(close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
