"""`whence.serve`: a database over the network, from the first connection to the last answer.

uvicorn runs in a thread of its own, so that the caller's thread is free; `Server` is the handle of it.

The law: `serve` returns when connections are taken, or raises. `Server.close` stops accepting, does every write that
was taken, answers it, tells connected clients that the server stops, and returns when the last has gone or their time
is up. The database is the caller's: it stays open.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import uvicorn

from whence.model.errors import DataError, WhenceError
from whence.server.access.network_policy import NetworkPolicy
from whence.server.access.rights import Rights
from whence.server.access.tokens import Tokens
from whence.server.limits import Limits
from whence.server.listening import check_exposure, listen, tls_context, url_of
from whence.server.sockets.bus_publisher import BusAddress, BusPublisher
from whence.server.sockets.gateway import Gateway
from whence.server.verbs.calls import Service
from whence.server.web.http import HttpApplication
from whence.server.web.http_connections import HttpConnection
from whence.server.web.metrics import MetricRegistry
from whence.server.writing.write_queue import WriteQueue

if TYPE_CHECKING:
    import socket

    from whence.runtime.database import Database

log = logging.getLogger("whence.server")
_HEAD_BYTES = 64 << 10  # of a request's address and headers
_KEEP_ALIVE = 15  # seconds that a connection may be idle between two requests


def serve(
    db: Database,
    host: str = "127.0.0.1",
    port: int = 8080,
    *,
    token_file: str | Path | None = None,
    cert: str | Path | None = None,
    key: str | Path | None = None,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    pages: str | Path | None = None,
    limits: Limits | Mapping[str, Any] | None = None,
    bus: str | None = None,
    publish: Iterable[str] = (),
    bus_token_file: str | Path | None = None,
) -> Server:
    """Serve a database over HTTP and WebSocket in the background; return a handle. docs/serving.md has the addresses.

    host, port  where to listen; port 0 takes a free one, which `Server.url` names
    token_file  whose tokens are accepted (`whence token add FILE WHO`); without it one is made, for this machine only,
                which `Server.token` has
    cert, key   files of a certificate and its key, for HTTPS
    hosts       more names that the server goes by, such as that of a proxy before it; '*' for any
    origins     pages that may use it, such as 'https://example.org'; '*' for any
    pages       a folder of files, such as a page that uses /whence.js; they are served to anybody who asks
    limits      how much callers may ask for, by name (docs/serving.md)
    bus         a NATS server, such as 'nats://127.0.0.1:4222', on which the relations named by `publish` are published
                for any number of brokers (docs/serving.md); `bus_token_file` has its token, if it wants one

    Rights are rows of a table or view `allowed(who, name, what)` of the database; without one, every token may do
    everything. The database may be used meanwhile, also for writing, and is still open when the server is closed.

    >>> import urllib.request
    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", [(1,), (2,)])
    >>> with whence.serve(db, port=0) as server:
    ...     request = urllib.request.Request(f"{server.url}/v1/view/a?x=2")
    ...     request.add_header("Authorization", f"Bearer {server.token}"); request.add_header("Accept", "text/csv")
    ...     print(urllib.request.urlopen(request).read().decode(), end="")
    "x"
    2
    """
    folder = None if pages is None else Path(pages)
    if folder is not None and not folder.is_dir():
        raise DataError(f"pages: {folder} is not a folder")
    tls = tls_context(cert, key)
    address = _bus_address(bus, publish, bus_token_file)
    return Server(db, host, port, token_file, tls, tuple(hosts), tuple(origins), folder, _limits(limits), address)


def _bus_address(url: str | None, relations: Iterable[str], token_file: str | Path | None) -> BusAddress | None:
    names = tuple(name.lower() for name in relations)
    if url is None:
        if names:
            raise DataError("publish: there is no bus to publish on; name one, such as bus='nats://127.0.0.1:4222'")
        return None
    if not url.startswith("nats://"):
        raise DataError(f"bus: {url[:200]!r} is not the address of a NATS server, such as 'nats://127.0.0.1:4222'")
    if not names:
        raise DataError("bus: name the relations that are published there, such as publish=['quote']")
    token = None if token_file is None else Path(token_file).read_text(encoding="utf-8").strip()
    return BusAddress(url, names, token)


def _limits(given: Limits | Mapping[str, Any] | None) -> Limits:
    if given is None or isinstance(given, Limits):
        return given or Limits()
    unknown = [name for name in given if name not in Limits.meanings()]
    if unknown:
        raise DataError(f"there is no limit {unknown[0]!r:.80}; there are {', '.join(Limits.meanings())}")
    return Limits(**given)


class Server:
    """A database that is being served. `whence.serve` makes one; a `with` statement closes it at its end.

    url    its address, for clients on this machine
    token  the token that was made for it, if there is no token file; else None

    >>> db = whence.open()
    >>> with whence.serve(db, port=0) as server: server.url.startswith("http://127.0.0.1:"), len(server.token) > 40
    (True, True)
    """

    def __init__(
        self,
        db: Database,
        host: str,
        port: int,
        token_file: str | Path | None,
        tls: ssl.SSLContext | None,
        hosts: Iterable[str],
        origins: Iterable[str],
        pages: Path | None,
        limits: Limits,
        bus: BusAddress | None = None,
    ) -> None:
        check_exposure(host, token_file is not None)
        tokens = Tokens(token_file)
        policy = NetworkPolicy.of(host, hosts=hosts, origins=origins, scheme="https" if tls else "http")
        rights = Rights(db, tokens.owner)
        sockets = listen(host, port)
        self.url: str = url_of(host, sockets[0].getsockname()[1], tls is not None)
        self.token: str | None = tokens.printed() if token_file is None else None
        self._registry = MetricRegistry()
        self._queue = WriteQueue(db, most_writes=limits.pending_writes, most_bytes=limits.pending_bytes)
        self._service = Service(db, tokens, rights, limits, self._queue)
        self._gateway = Gateway(self._service, policy, self._registry)
        _register(self._registry, self._queue)
        self._bus_address = bus
        self._bus: BusPublisher | None = None
        config = self._config(policy, tls, pages, limits)
        self._uvicorn = _StoppingServer(config, self._after_start, self._before_stop)
        self._started = threading.Event()
        self._failures: list[BaseException] = []
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._run, args=(sockets,), name="whence server", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._failures:
            self.close()
            raise WhenceError(f"the server did not start: {self._failures[0]}") from self._failures[0]
        log.info("serving %s at %s", db.path or "a database in memory", self.url)

    def _config(
        self, policy: NetworkPolicy, tls: ssl.SSLContext | None, pages: Path | None, limits: Limits
    ) -> uvicorn.Config:
        application = HttpApplication(self._service, policy, self._registry, self._gateway.events, pages)
        return uvicorn.Config(
            application,
            http=partial(HttpConnection, limits.header_seconds),  # type: ignore[arg-type]  # called as a class
            ws=self._gateway.connect,  # type: ignore[arg-type]  # called as a class
            loop="asyncio",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=limits.connections,
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=limits.stop_seconds,  # type: ignore[arg-type]  # seconds may have a fraction
            h11_max_incomplete_event_size=_HEAD_BYTES,
            ssl_context_factory=None if tls is None else lambda config, default: tls,
        )

    def _run(self, sockets: list[socket.socket]) -> None:
        try:
            asyncio.run(self._uvicorn.run_until_stopped(sockets, self._started))
        except BaseException as error:
            self._failures.append(error)
            log.exception("the server failed")
        finally:
            self._started.set()
            for one in sockets:
                one.close()

    def _after_start(self) -> None:
        """Publish on the bus, if there is one."""
        if self._bus_address is not None:
            self._bus = BusPublisher(self._gateway, self._bus_address)

    async def _before_stop(self) -> None:
        """Do the writes that were taken, and let clients go."""
        self._service.stop()
        await asyncio.to_thread(self._queue.close)
        self._service.cancel_calls()
        if self._bus is not None:
            await self._bus.close()
        await self._gateway.close()

    def close(self) -> None:
        """Stop: take no more connections, do and answer the writes that were taken, tell clients, and return.

        >>> db = whence.open(); server = whence.serve(db, port=0); server.close(); server.is_running
        False
        """
        with self._closing:
            running = self._thread.is_alive()
            self._uvicorn.should_exit = True
            self._thread.join()
            self._queue.close()
            self._service.close()
            if running and not self._failures:
                log.info("stopped serving at %s", self.url)

    @property
    def is_running(self) -> bool:
        """Whether it takes connections.

        >>> with whence.serve(whence.open(), port=0) as server: server.is_running
        True
        """
        return self._thread.is_alive() and not self._uvicorn.should_exit

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<whence server at {self.url}{'' if self.is_running else ', stopped'}>"


class _StoppingServer(uvicorn.Server):
    """uvicorn, which does something when it takes connections, and before it ends them."""

    def __init__(
        self, config: uvicorn.Config, after_start: Callable[[], None], before_stop: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(config)
        self._after_start, self._before_stop = after_start, before_stop

    async def run_until_stopped(self, sockets: list[socket.socket], started: threading.Event) -> None:
        """Serve, and say when connections are taken; signals are left to others."""
        serving = asyncio.create_task(self._serve(sockets))
        while not self.started and not serving.done():
            await asyncio.sleep(0.001)
        if self.started:
            self._after_start()
            started.set()
        await serving

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        try:
            await self._before_stop()
        except Exception:
            log.exception("stopping was not as it should be")
        await super().shutdown(sockets)


def _register(registry: MetricRegistry, queue: WriteQueue) -> None:
    """Have the counters of the write queue among the metrics."""
    counters = {
        "epochs": "epochs committed by the write queue",
        "writes": "writes taken",
        "failed": "writes that failed",
        "repeated": "writes that had been done before",
        "seconds": "seconds spent committing",
        "split_epochs": "epochs that were tried again in parts",
    }
    gauges = {
        "largest_epoch": "the most writes of one epoch",
        "pending_writes": "writes that wait",
        "pending_bytes": "bytes of the writes that wait",
    }
    for name, help in counters.items():
        read = partial(_counter, queue, name)
        registry.sample(f"whence_write_queue_{name}_total", "counter", help, read)
    for name, help in gauges.items():
        registry.sample(f"whence_write_queue_{name}", "gauge", help, partial(_counter, queue, name))


def _counter(queue: WriteQueue, name: str) -> float:
    return float(getattr(queue.metrics(), name))
