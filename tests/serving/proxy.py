"""A proxy between clients and a server that knows WebSocket frames, and harms them: it is what networks are at worst.

TCP neither loses nor doubles, so packets that are lost show nothing; here whole frames are dropped, doubled, swapped,
delayed, truncated, and connections are cut in the middle of a frame, stalled in one direction, or left half open: one
side believes that it is connected, the other side is gone. Both directions have faults of their own.

What happens to a frame is drawn from the seed, the number of the connection and the direction, in the order of the
frames. A connection that is not upgraded to WebSocket passes through as bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

T = TypeVar("T")
Direction = Literal["up", "down"]
BOTH: tuple[Direction, Direction] = ("up", "down")
_PATIENCE = 20.0
_SWAP = 0.05  # seconds that a frame waits for the next one, to change places with it
_HEAD = 64 << 10


@dataclass(frozen=True)
class FrameFaults:
    """Chances of a frame to meet with each fault; at most one happens to a frame."""

    drop: float = 0.0
    double: float = 0.0
    swap: float = 0.0
    delay: float = 0.0
    truncate: float = 0.0  # the payload loses its end, and is a whole frame again
    cut: float = 0.0  # half of the frame is passed on, then the connection is gone
    longest_delay: float = 0.1

    def draw(self, dice: random.Random) -> str:
        """Return what happens to the next frame; an empty text for nothing."""
        at = dice.random()
        for name in ("drop", "double", "swap", "delay", "truncate", "cut"):
            at -= getattr(self, name)
            if at < 0:
                return name
        return ""


NO_FAULTS = FrameFaults()
EVERY_FAULT = FrameFaults(drop=0.04, double=0.04, swap=0.04, delay=0.04, truncate=0.01, cut=0.01)


@dataclass(frozen=True)
class RawFrame:
    """A frame as its bytes, which has a header, perhaps a mask, and a payload."""

    head: bytes  # the first byte: FIN and opcode
    mask: bytes
    payload: bytes  # masked, if there is a mask

    @property
    def bytes(self) -> bytes:
        masked, size = 0x80 if self.mask else 0, len(self.payload)
        if size < 126:
            length = struct.pack("!B", masked | size)
        elif size < 65536:
            length = struct.pack("!BH", masked | 126, size)
        else:
            length = struct.pack("!BQ", masked | 127, size)
        return self.head + length + self.mask + self.payload

    @property
    def is_control(self) -> bool:
        return bool(self.head[0] & 0x08)

    @property
    def data(self) -> bytes:
        """The payload without its mask."""
        if not self.mask:
            return self.payload
        mask = self.mask * (len(self.payload) // 4 + 1)
        return bytes(a ^ b for a, b in zip(self.payload, mask, strict=False))

    def truncated(self, dice: random.Random) -> RawFrame:
        """Return the frame with a shorter payload; a mask fits what is left."""
        keep = dice.randrange(len(self.payload)) if self.payload else 0
        return RawFrame(self.head, self.mask, self.payload[:keep])


async def read_frame(reader: asyncio.StreamReader) -> RawFrame:
    """Read a frame."""
    head, length = await reader.readexactly(1), (await reader.readexactly(1))[0]
    size = length & 0x7F
    if size == 126:
        [size] = struct.unpack("!H", await reader.readexactly(2))
    elif size == 127:
        [size] = struct.unpack("!Q", await reader.readexactly(8))
    mask = await reader.readexactly(4) if length & 0x80 else b""
    return RawFrame(head, mask, await reader.readexactly(size))


class ProxiedConnection:
    """One connection: a client's socket and, until it is lost, one to the server."""

    def __init__(self, proxy: FaultyProxy, number: int, client: asyncio.StreamWriter, server: asyncio.StreamWriter):
        self._proxy, self.number = proxy, number
        self.writers: dict[Direction, asyncio.StreamWriter] = {"up": server, "down": client}
        self.silent = False  # what comes is thrown away: the connection is half open
        self._held: dict[Direction, RawFrame | None] = dict.fromkeys(BOTH)
        self._dice = {way: random.Random(f"{proxy.seed} {number} {way}") for way in BOTH}

    def cut(self) -> None:
        """End both sides at once, without a word."""
        for writer in self.writers.values():
            writer.transport.abort()

    def close(self) -> None:
        """End both sides when they have been sent what is on its way."""
        for writer in self.writers.values():
            writer.close()

    async def pass_frames(self, way: Direction, reader: asyncio.StreamReader) -> None:
        """Pass frames on in a direction, with the faults of the moment."""
        while True:
            frame = await read_frame(reader)
            await self._proxy.flowing[way].wait()
            if self.silent:
                continue
            faults, judge = self._proxy.faults[way], self._proxy.judge
            fault = faults.draw(self._dice[way]) if faults != NO_FAULTS else ""
            if judge is not None and not frame.is_control:
                fault = judge(way, frame.data)
            if fault and not (frame.is_control and fault in ("truncate", "swap")):
                self._proxy.count[f"{fault} {way}"] += 1
                await self._harm(way, frame, fault, faults.longest_delay)
            else:
                self._send(way, frame)
            await self.writers[way].drain()

    def _send(self, way: Direction, frame: RawFrame) -> None:
        held, self._held[way] = self._held[way], None
        self.writers[way].write(frame.bytes + (b"" if held is None else held.bytes))

    async def _harm(self, way: Direction, frame: RawFrame, fault: str, longest_delay: float) -> None:
        dice = self._dice[way]
        match fault:
            case "double":
                self._send(way, frame)
                self._send(way, frame)
            case "swap":
                self._release(way)
                self._held[way] = frame
                asyncio.get_running_loop().call_later(_SWAP, self._release, way)
            case "delay":
                await asyncio.sleep(dice.uniform(0, longest_delay))
                self._send(way, frame)
            case "truncate":
                self._send(way, frame.truncated(dice))
            case "cut":
                data = frame.bytes
                self.writers[way].write(data[: dice.randrange(len(data))])
                with contextlib.suppress(ConnectionError, TimeoutError):
                    await asyncio.wait_for(self.writers[way].drain(), 1)
                await asyncio.sleep(0)
                raise ConnectionError("cut")

    def _release(self, way: Direction) -> None:
        """Pass a frame on that waited for another one in vain."""
        held, self._held[way] = self._held[way], None
        if held is not None and not self.writers[way].is_closing():
            self.writers[way].write(held.bytes)


class FaultyProxy:
    """Passes connections on to a server, from a port of its own and in a thread of its own.

    url     its address, for clients
    target  the port of the server; it may become another one
    faults  what happens to frames, per direction; `heal` ends it
    judge   if there is one, it says what happens to a frame, given its direction and payload: a fault's name or nothing
    count   how often each fault has happened
    """

    def __init__(self, target: int, seed: int = 0) -> None:
        self.target, self.seed = target, seed
        self.faults: dict[Direction, FrameFaults] = dict.fromkeys(BOTH, NO_FAULTS)
        self.judge: Callable[[Direction, bytes], str] | None = None
        self.count: Counter[str] = Counter()
        self.connections = 0
        self._open: set[ProxiedConnection] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self.flowing = self._run(self._events())
        self._server = self._run(self._listen())
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE)

    async def _events(self) -> dict[Direction, asyncio.Event]:
        events = {way: asyncio.Event() for way in BOTH}
        for event in events.values():
            event.set()
        return events

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_HEAD)

    # -- faults --------------------------------------------------------------------------------------------------------

    def harm(self, up: FrameFaults = NO_FAULTS, down: FrameFaults = NO_FAULTS) -> None:
        """Harm frames from now on."""
        self.faults = {"up": up, "down": down}

    def heal(self) -> None:
        """Pass everything on again. What is half open stays so: nothing but time tells of it."""
        self.harm()
        self.judge = None
        self.flow(*BOTH)

    def stall(self, *ways: Direction) -> None:
        """Pass nothing on in a direction, and take no more than fits into buffers."""
        self._each(ways, asyncio.Event.clear)

    def flow(self, *ways: Direction) -> None:
        """Let a direction flow again."""
        self._each(ways, asyncio.Event.set)

    def _each(self, ways: tuple[Direction, ...], act: Any) -> None:
        async def run() -> None:
            for way in ways:
                act(self.flowing[way])

        self._run(run())

    def cut(self) -> None:
        """Cut all connections."""
        self.count["cut all"] += 1

        async def run() -> None:
            for connection in list(self._open):
                connection.cut()

        self._run(run())

    def half_open(self, gone: Literal["server", "client"]) -> None:
        """Let one side of all connections be gone without the other side hearing of it, however long it waits."""
        self.count[f"{gone} gone"] += 1
        way: Direction = "up" if gone == "server" else "down"

        async def run() -> None:
            for connection in list(self._open):
                connection.silent = True
                connection.writers[way].transport.abort()

        self._run(run())

    def close(self) -> None:
        """End, and cut all connections."""

        async def run() -> None:
            self._server.close()
            for connection in list(self._open):
                connection.cut()
            await asyncio.sleep(0)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self._run(run())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE)
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # -- connections ---------------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.target, limit=_HEAD)
        except OSError:
            writer.transport.abort()
            return
        self.connections += 1
        connection = ProxiedConnection(self, self.connections, writer, server_writer)
        self._open.add(connection)
        try:
            upgraded = await self._pass_head(reader, server_writer, server_reader, writer)
            await self._pass_on(connection, reader, server_reader, upgraded)
            connection.close()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            connection.cut()
        except asyncio.CancelledError:  # the proxy ends
            connection.cut()
        finally:
            self._open.discard(connection)

    async def _pass_head(
        self,
        reader: asyncio.StreamReader,
        up: asyncio.StreamWriter,
        server_reader: asyncio.StreamReader,
        down: asyncio.StreamWriter,
    ) -> bool:
        """Pass the first request's head and its answer's on; return whether frames follow."""
        head = await reader.readuntil(b"\r\n\r\n")
        up.write(head)
        if b"upgrade: websocket" not in head.lower():
            return False
        answer = await server_reader.readuntil(b"\r\n\r\n")
        down.write(answer)
        return answer.startswith(b"HTTP/1.1 101")

    async def _pass_on(
        self,
        connection: ProxiedConnection,
        reader: asyncio.StreamReader,
        server_reader: asyncio.StreamReader,
        upgraded: bool,
    ) -> None:
        readers: dict[Direction, asyncio.StreamReader] = {"up": reader, "down": server_reader}
        if upgraded:
            work = [connection.pass_frames(way, readers[way]) for way in BOTH]
        else:
            work = [_pass_bytes(readers[way], connection.writers[way]) for way in BOTH]
        tasks = [asyncio.ensure_future(each) for each in work]
        try:
            while tasks:
                done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                tasks = list(left)
                errors = [task.exception() for task in done]
                if not connection.silent:
                    for error in errors:
                        if isinstance(error, OSError):
                            raise error
                    return
        finally:
            for task in tasks:
                task.cancel()


async def _pass_bytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_HEAD):
        writer.write(data)
        await writer.drain()
