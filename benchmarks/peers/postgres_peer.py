"""PostgreSQL as a peer of `serving`: LISTEN and NOTIFY, and clients that ask for their views again.

Each transaction inserts trades and notifies. A client that is notified asks for all of its views, in one snapshot; what
comes meanwhile makes it ask once more. Every commit is on stable storage (fsync is on, as by default); trades have an
index for the filters. A view is asked for as a query: PostgreSQL does not maintain views.

Debian's server is used if it is there, as the user `postgres` if we are root, which it refuses to be run by; otherwise
the one of the package pgserver.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import importlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.common import installed
from benchmarks.peers.served import RETRY
from benchmarks.serving_data import COLUMNS, PROGRESS, PROGRESS_SELECT, TABLE, Market, Row, ServedView, Trades
from benchmarks.serving_processes import HOST, FailedError, ServerProcess, as_user, now
from benchmarks.serving_sockets import PostgresAnswers

POSTGRES = "PostgreSQL"
USER, DATABASE, CHANNEL = "bench", "postgres", "trade"
COPY_LEAST = 8  # rows from which COPY is the faster way
_WIDTHS = {name: 8 if name in ("number", "time") else 4 for name in COLUMNS}
_FIELDS: list[tuple[str, str]] = [
    ("count", ">i2"),
    *(field for name, width in _WIDTHS.items() for field in ((f"{name}_size", ">i4"), (name, f">i{width}"))),
]
COPY_ROW = np.dtype(_FIELDS)  # a row of COPY's binary format
COPY_HEAD, COPY_TAIL = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"


def binaries() -> Path | None:
    """Return the folder of PostgreSQL's programs, or None."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if versions:
        return versions[-1].parent
    if found := shutil.which("postgres"):
        return Path(found).resolve().parent
    if installed("pgserver"):
        return Path(str(importlib.import_module("pgserver").POSTGRES_BIN_PATH))
    return None


def account() -> str | None:
    """Return the user that runs the server, or None for ourselves."""
    if os.geteuid():
        return None
    with contextlib.suppress(KeyError):
        return pwd.getpwnam("postgres").pw_name
    return pwd.getpwnam("nobody").pw_name


def missing() -> str | None:
    """Return why this peer cannot run, or None."""
    if binaries() is None:
        return "no PostgreSQL server (apt install postgresql, or pip install pgserver)"
    return None if installed("psycopg") else "psycopg is not installed"


def _give(folder: Path, user: str | None) -> None:
    """Let a user have a folder."""
    folder.chmod(0o755)
    if user is not None:
        shutil.chown(folder, user, pwd.getpwnam(user).pw_gid)


@functools.cache
def _new_database(user: str | None) -> Path:
    """Make the files of a new database, once for all servers of this process."""
    folder = Path(tempfile.mkdtemp(prefix="serving-postgres-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _give(folder, user)
    command = [str((binaries() or Path()) / "initdb"), "-D", "data", "-U", USER, "--auth=trust", "--no-sync"]
    command += ["--encoding=UTF8", "--locale=C"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, **as_user(user))
    if done.returncode:
        raise FailedError(f"initdb: {done.stderr[-1_000:]}")
    return folder / "data"


class PostgresServer(ServerProcess):
    """A PostgreSQL server with a new database."""

    name = POSTGRES
    stop_signal = signal.SIGQUIT  # at once: its files are deleted next

    def __init__(self, folder: Path, connections: int = 100) -> None:
        super().__init__(folder, account())
        self._binaries = binaries() or Path()
        self._connections = connections
        _give(self.folder, self.user)
        subprocess.run(["cp", "-a", str(_new_database(self.user)), str(self.folder / "data")], check=True)

    def command(self) -> list[str]:
        settings = {
            "listen_addresses": HOST,
            "port": self.port,
            "unix_socket_directories": "",
            "max_connections": self._connections + 10,
            "max_wal_size": "8GB",  # no checkpoint in the middle of a measurement
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [str(self._binaries / "postgres"), "-D", str(self.folder / "data"), *options]

    def endpoint(self, market: Market) -> PostgresEndpoint:
        return PostgresEndpoint(self.port, market)

    def open(self, views: Sequence[ServedView]) -> None:
        """Start the server and make the table. The views are queries; the filters among them get an index."""
        import psycopg

        self.start()
        self._wait_ready()
        with psycopg.connect(address(self.port), autocommit=True) as connection:
            connection.execute(TABLE)
            if any(view.issue is not None for view in views):
                connection.execute("CREATE INDEX ON trade (issue, shares)")
            if any(view.high is not None for view in views):
                connection.execute("CREATE INDEX ON trade (time)")
            connection.execute("CREATE INDEX ON trade (number)")  # for the clients' progress

    def _wait_ready(self) -> None:
        """Wait until the server answers: it listens before it has recovered."""
        import psycopg

        until = now() + 60.0
        while True:
            try:
                psycopg.connect(address(self.port)).close()
                return
            except psycopg.OperationalError:
                if now() > until:
                    raise
                time.sleep(0.01)


def address(port: int) -> str:
    """Return how a client connects to a server."""
    return f"host={HOST} port={port} user={USER} dbname={DATABASE}"


@dataclass(frozen=True)
class PostgresEndpoint:
    """The address of a PostgreSQL server."""

    port: int
    market: Market
    name: str = POSTGRES

    async def publisher(self) -> PostgresPublisher:
        return PostgresPublisher(await _connect(self.port))

    async def follower(self, views: Sequence[ServedView]) -> PostgresFollower:
        follower = PostgresFollower(self.port, views)
        await follower.come_back()
        return follower

    async def alert_follower(self, view: ServedView) -> PostgresFollower:
        """Every commit notifies: nothing says which of them change the view."""
        return await self.follower([view])

    def raw(self, view: ServedView) -> PostgresAnswers:
        """A raw client asks for the view, its newest row last."""
        return PostgresAnswers(USER, DATABASE, f"{view.select(whence=False)} ORDER BY last")


async def _connect(port: int) -> Any:
    import psycopg

    return await psycopg.AsyncConnection.connect(address(port), autocommit=True)


def copy_bytes(trades: Trades) -> bytes:
    """Return trades in the binary format of COPY."""
    rows = np.empty(len(trades), COPY_ROW)
    rows["count"] = len(COLUMNS)
    for name, width in _WIDTHS.items():
        rows[f"{name}_size"] = width
        rows[name] = trades[name]
    return COPY_HEAD + rows.tobytes() + COPY_TAIL


class PostgresPublisher:
    """Inserts and notifies in one transaction; a connection has one at a time."""

    gathers, in_flight, position = True, 1, ""
    _insert = f"INSERT INTO trade VALUES ({', '.join(['%s'] * len(COLUMNS))})"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def insert(self, trades: Trades) -> None:
        async with self._connection.transaction(), self._connection.cursor() as cursor:
            if len(trades) < COPY_LEAST:
                await cursor.executemany(self._insert, trades.tolist())
            else:
                async with cursor.copy("COPY trade FROM STDIN (FORMAT binary)") as copy:
                    await copy.write(copy_bytes(trades))
            await cursor.execute("SELECT pg_notify(%s, %s)", (CHANNEL, str(trades["number"][-1])))

    async def insert_each(self, trades: Trades, in_flight: int) -> None:
        """Insert by the protocol's pipeline: a transaction each, their acknowledgements read some at a time."""
        rows = trades.tolist()
        async with self._connection.cursor() as cursor:
            for start in range(0, len(rows), in_flight):
                async with self._connection.pipeline() as pipe:
                    for row in rows[start : start + in_flight]:
                        await cursor.execute(self._insert, row, prepare=True)
                        await pipe.sync()  # ends the transaction; does not wait

    async def close(self) -> None:
        await self._connection.close()


class PostgresFollower:
    """Asks for its views again whenever it is notified."""

    def __init__(self, port: int, views: Sequence[ServedView]) -> None:
        self._port = port
        self._selects = {view.name: view.select(whence=False) for view in views} | {PROGRESS: PROGRESS_SELECT}
        self._rows: dict[str, list[Row]] = {}
        self._notices: Any = None
        self._queries: Any = None
        self.number = -1
        self.messages = 0

    async def come_back(self) -> None:
        """Connect, listen and ask."""
        self._notices, self._queries = await _connect(self._port), await _connect(self._port)
        await self._notices.execute(f"LISTEN {CHANNEL}")
        await self._ask()

    async def _ask(self) -> None:
        """Ask for every view in one snapshot; a view's answer counts as a message."""
        cursors = []
        async with self._queries.pipeline():
            await self._queries.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            for select in self._selects.values():
                cursors.append(await self._queries.execute(select))
            await self._queries.execute("COMMIT")
        self._rows = {name: await cursor.fetchall() for name, cursor in zip(self._selects, cursors, strict=True)}
        self.messages += len(cursors)
        last = self._rows.pop(PROGRESS)[0][0]
        self.number = -1 if last is None else last

    async def advance(self) -> int:
        import psycopg

        try:
            heard = False
            async for _ in self._notices.notifies(stop_after=1):
                heard = True
            if not heard:
                raise psycopg.OperationalError("the connection has ended")
            async for _ in self._notices.notifies(timeout=0):
                self.messages += 1
            self.messages += 1
            await self._ask()
        except psycopg.OperationalError:
            await self._reopen()
        return self.number

    async def _reopen(self) -> None:
        import psycopg

        await self.close()
        while True:
            try:
                return await self.come_back()
            except psycopg.OperationalError:  # it does not listen, or recovers yet
                await asyncio.sleep(RETRY)

    async def reach(self, number: int, position: Callable[[], str | None]) -> None:
        while self.number < number:
            await self.advance()

    def rows(self) -> dict[str, list[Row]]:
        return self._rows

    async def leave(self) -> None:
        await self.close()

    async def close(self) -> None:
        for connection in (self._notices, self._queries):
            await connection.close()
