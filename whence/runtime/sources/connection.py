"""The WebSocket to one server, shared by all sources of a broker that come from there.

It runs in the broker's event loop. It carries messages and knows nothing of what they say; that it is lost is told to
every source that uses it, and each decides by itself where it goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from websockets.asyncio.client import ClientConnection, connect

from whence.model.errors import AuthenticationError, DisconnectedError, StorageError, WhenceError
from whence.subscribe.messages import Hello, Welcome, decode_down, encode_message
from whence.subscribe.urls import is_loopback, websocket_url

OPEN_SECONDS, CLOSE_SECONDS, PING_SECONDS = 5.0, 1.0, 5.0
_NO_TOKEN = 4401


@dataclass(frozen=True)
class ServerAddress:
    """A server, and what it takes to be let in."""

    url: str
    token_file: str | None = None
    ca_file: str | None = None

    @property
    def is_bus(self) -> bool:
        """Whether it is a bus that others share, which carries whole relations."""
        return self.url.startswith("nats:")

    def token(self) -> str | None:
        """Read the token, which may have been renewed meanwhile."""
        if self.token_file is None:
            return None
        try:
            return Path(self.token_file).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise StorageError(f"token_file {self.token_file}: {error.strerror}") from None


class Listener(Protocol):
    """Who uses a connection."""

    def receive(self, wire_id: int, message: Any) -> None:
        """Take a message that has its number."""

    def lost(self, wire_id: int, why: str) -> None:
        """Note that no more messages come."""


class SourceConnection:
    """A connection to a server. `ready` is made when it stands."""

    def __init__(self, address: ServerAddress, ended: Callable[[SourceConnection], None], room: asyncio.Event) -> None:
        """`room` is set while messages can be taken in."""
        self.address, self._ended, self._room = address, ended, room
        self._listeners: dict[int, Listener] = {}
        self._ids = count(1)
        self._socket: ClientConnection | None = None
        self._outgoing: asyncio.Queue[Any] = asyncio.Queue()
        self._task = asyncio.get_running_loop().create_task(self._run())
        self.ready: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()
        self.ready.add_done_callback(lambda future: future.cancelled() or future.exception())

    def attach(self, listener: Listener) -> int:
        """Return a number for a subscription; messages that have it go to the listener."""
        wire_id = next(self._ids)
        self._listeners[wire_id] = listener
        return wire_id

    def detach(self, wire_id: int) -> None:
        """Pass no more messages on; the connection ends with its last user."""
        self._listeners.pop(wire_id, None)
        if not self._listeners:
            self.close()

    def send(self, message: Any) -> None:
        """Send a message."""
        self._outgoing.put_nowait(message)

    def close(self) -> None:
        """End it."""
        self._task.cancel()

    async def _run(self) -> None:
        why = "the connection was closed"
        try:
            await self._use()
        except asyncio.CancelledError:
            pass
        except Exception as error:
            why = self._reason(error)
            if not self.ready.done():
                known = isinstance(error, WhenceError)
                self.ready.set_exception(error if known else DisconnectedError(f"{self.address.url}: {why}"))
        finally:
            self._ended(self)
            if not self.ready.done():
                self.ready.set_exception(DisconnectedError(why))
            for wire_id, listener in list(self._listeners.items()):
                listener.lost(wire_id, why)
            self._listeners.clear()

    def _reason(self, error: Exception) -> str:
        socket = self._socket
        if socket is not None and socket.close_code == _NO_TOKEN:
            return socket.close_reason or "the token is not valid"
        return (socket.close_reason if socket is not None else "") or f"{error!s:.200}" or type(error).__name__

    async def _use(self) -> None:
        address = self.address
        url = websocket_url(address.url)
        token = await asyncio.to_thread(address.token)
        more: dict[str, Any] = {}
        if address.ca_file is not None:
            more["ssl"] = ssl.create_default_context(cafile=address.ca_file)
        async with connect(
            url, compression=None, max_size=None, open_timeout=OPEN_SECONDS, close_timeout=CLOSE_SECONDS,
            ping_interval=PING_SECONDS, ping_timeout=PING_SECONDS, proxy=None if is_loopback(url) else True, **more,
        ) as socket:  # fmt: skip
            self._socket = socket
            await socket.send(encode_message(Hello(token=token), "msgpack"))
            greeting = decode_down(await asyncio.wait_for(socket.recv(), OPEN_SECONDS), "msgpack")
            if not isinstance(greeting, Welcome):
                raise AuthenticationError(f"{address.url} did not welcome this broker")
            self.ready.set_result(greeting)
            sender = asyncio.get_running_loop().create_task(self._send_all(socket))
            try:
                async for data in socket:
                    message = decode_down(data, "msgpack")
                    listener = self._listeners.get(getattr(message, "id", None) or 0)
                    if listener is not None:
                        listener.receive(message.id, message)
                    if not self._room.is_set():
                        await self._room.wait()
                raise DisconnectedError("the server closed the connection")
            finally:
                sender.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await sender

    async def _send_all(self, socket: ClientConnection) -> None:
        while True:
            await socket.send(encode_message(await self._outgoing.get(), "msgpack"))
