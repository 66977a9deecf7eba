"""Ad-hoc queries in processes of their own: for strangers, whose queries must not cost more than they may.

The law: whatever a query does, it takes no more memory than it may and ends when its budget does: the process that runs
it (`query_worker.py`) has a limit of the system on its memory, and is killed if the budget is used up, the caller wants
no more, or its answer becomes too large. The database and other queries go on: they are not in that process.

A process is used for one query at a time, again and again. It is handed the rows that a query may read, so it needs no
right to anything.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any

import duckdb
import pyarrow as pa

from whence.io.arrow import arrow_type
from whence.model.budget import reach
from whence.model.errors import LimitError, SqlError, WhenceError
from whence.model.sizes import in_bytes
from whence.model.types import Kind
from whence.plan.algebra.expressions import Volatile
from whence.plan.algebra.program import ScalarFunction
from whence.runtime.reading import query_worker as worker
from whence.runtime.reading.adhoc import Adhoc
from whence.runtime.reading.calls import OURS
from whence.runtime.reading.duckdb_engine import RUNNING, QueryFailure, duck_type
from whence.runtime.reading.zoned_queries import SHIFT, shift_column

_POLL = 0.05  # seconds between two looks at the budget
_PATIENCE = 60.0  # seconds that a process may take to start, or to take what it is sent
_MEMORY_ERRORS = ("MemoryError", "ArrowMemoryError", "OutOfMemoryException")
_SMALLEST = 16 << 20  # bytes of memory: DuckDB needs some for itself
_MICRO = timedelta(microseconds=1)
ColumnFunction = Callable[[pa.Table], pa.Array]


class QueryRunner(Adhoc):
    """Answers ad-hoc queries in up to `most` processes, each with so many bytes of memory and threads.

    Give it to `DatabaseReader.query`, inside a budget (`model.budget.within`) that says how long a query may take and
    whether it is still wanted.

    >>> from whence.model.budget import within
    >>> from whence.sql.parse import parse_query
    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", [(1,), (2,)])
    >>> runner = QueryRunner(memory=64 << 20)
    >>> with within(timeout="60 s"):
    ...     db._coordinator.reader.query(parse_query("SELECT SUM(x) + 1 AS s FROM a").query, runner).to_pylist()
    [{'s': 4}]
    >>> runner.close()
    """

    def __init__(self, memory: int = 1 << 30, threads: int = 1, most: int = 2, idle: int = 2) -> None:
        """`idle` processes stay when they have nothing to do."""
        if memory < _SMALLEST:
            raise LimitError(f"a query needs {in_bytes(_SMALLEST)} of memory or more, not {in_bytes(memory)}")
        super().__init__(lambda: QueryProcess(memory, threads), most, idle)
        self.memory = memory

    def start(self) -> None:
        """Start a process before the first query asks for it."""
        self._engines.start()


class QueryProcess:
    """A process that answers one query after the other; if one has to be killed, another takes its place."""

    usable = True

    def __init__(self, memory: int, threads: int) -> None:
        self.failed: list[tuple[str, Exception]] = []
        self._memory, self._threads = memory, threads
        self._worker: WorkerProcess | None = None
        self._start()

    def close(self) -> None:
        """Kill the process; it has nothing that could be lost."""
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def _start(self) -> WorkerProcess:
        """Return a process that lives."""
        if self._worker is None or not self._worker.is_alive:
            self.close()
            self._worker = WorkerProcess(self._memory, self._threads)
        return self._worker

    def answer(
        self,
        sql: str,
        tables: Mapping[str, pa.Table],
        functions: Iterable[ScalarFunction] = (),
        zoned: bool = False,
    ) -> pa.Table:
        """Return the answer to a query."""
        size = sum(table.nbytes for table in tables.values())
        if size > self._memory:
            raise LimitError(
                f"what the query reads takes {in_bytes(size)}, and a query may take {in_bytes(self._memory)} of memory"
            )
        called, listed = self._functions(functions)
        if zoned:
            called[SHIFT] = self._shift
            listed.append([SHIFT, ["BIGINT", "VARCHAR", "VARCHAR"], "BIGINT", False])
        process = self._start()
        process.greet()
        try:
            process.ask({"sql": sql, "tables": list(tables), "functions": listed}, tables)
            found = process.receive_answer(called)
        except RefusedError as refusal:
            raise QueryFailure(refusal.as_raised_here(self._memory)) from None
        except BaseException:  # whatever it is doing: it must not go on
            self.close()
            with suppress(WhenceError):
                self._start()  # for the next query
            raise
        if process.is_tired:
            self.close()
            self._start()
        return found

    # -- functions ---------------------------------------------------------------------------------------------------

    def _functions(self, functions: Iterable[ScalarFunction]) -> tuple[dict[str, ColumnFunction], list[list[Any]]]:
        """Return what calls each function, and how the process must declare it."""
        called: dict[str, ColumnFunction] = {}
        listed = []
        for function in functions:
            name, args = OURS + function.name, [duck_type(t) for t in function.args]
            called[name] = partial(self._call_each, function)
            listed.append([name, args, duck_type(function.returns), isinstance(function.function, Volatile)])
        return called, listed

    def _call_each(self, function: ScalarFunction, args: pa.Table) -> pa.Array:
        """Call a function for each row of its arguments."""
        columns = [_python_values(column) for column in args.columns]
        rows = zip(*columns, strict=True) if function.args else ((),) * len(args)
        try:
            return _arrow_values([function.function(*row) for row in rows], function)
        except Exception as failure:
            self.failed.append((function.name, failure))
            raise

    def _shift(self, args: pa.Table) -> pa.Array:
        try:
            return shift_column(*args.columns)
        except Exception as failure:
            self.failed.append(("AT TIME ZONE", failure))
            raise


class WorkerProcess:
    """One process, and the conversation with it."""

    def __init__(self, memory: int, threads: int) -> None:
        self._memory, self._greeted, self.is_tired = memory, False, False
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(_POLL)
        self._data = bytearray()  # received, not read yet
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        environment["MALLOC_ARENA_MAX"] = "2"  # arenas reserve address space, which is what is limited
        command = [sys.executable, "-P", worker.__file__, str(theirs.fileno()), str(memory), str(threads)]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,  # which tells it when we are gone
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C is ours
                env=environment,
            )
        except OSError as error:
            self._socket.close()
            raise WhenceError(f"the process that answers queries cannot be started: {error}") from error
        finally:
            theirs.close()
        self.kill = weakref.finalize(self, _kill, self._process, self._socket, os.getpid())

    @property
    def is_alive(self) -> bool:
        return self.kill.alive and self._process.poll() is None

    def greet(self) -> None:
        """Wait until the process has started."""
        if not self._greeted:
            kind, _ = self._receive("starting a process for the query")
            assert kind == worker.HELLO
            self._greeted = True

    def ask(self, query: dict[str, Any], tables: Mapping[str, pa.Table]) -> None:
        """Send a query, and what it reads."""
        with self._sending():
            worker.send(self._socket, worker.QUERY, json.dumps(query).encode())
            for table in tables.values():
                worker.send_table(self._socket, worker.TABLE, table)
                reach("handing rows to the query")

    def receive_answer(self, called: Mapping[str, ColumnFunction]) -> pa.Table:
        """Return the answer to the query; call functions for it on the way."""
        types: list[str] = []
        rows, refusal = bytearray(), None
        while True:
            kind, payload = self._receive(RUNNING)
            if kind == worker.ROWS:
                rows += payload
                if len(rows) > self._memory:
                    raise LimitError(
                        f"the answer is larger than the {in_bytes(self._memory)} of memory that a query may take: ask "
                        "for fewer rows or columns"
                    )
            elif kind == worker.TYPES:
                types = json.loads(payload)
            elif kind == worker.CALL:
                self._call(called[payload.decode()])
            elif kind == worker.ERROR:
                refusal = RefusedError(**json.loads(payload))
            elif kind == worker.END:
                self.is_tired = json.loads(payload)["tired"]
                if refusal is not None:
                    raise refusal
                return worker.plain_table(worker.read_table(rows), types)

    def _call(self, function: ColumnFunction) -> None:
        """Call a function for the process."""
        data = bytearray()
        while (payload := self._receive(RUNNING)[1]) != b"":
            data += payload
        try:
            found = function(worker.read_table(data))
        except Exception as failure:
            with self._sending():
                worker.send(self._socket, worker.ERROR, str(failure).encode()[:10_000])
        else:
            with self._sending():
                worker.send(self._socket, worker.RETURN)
                worker.send_table(self._socket, worker.RETURN, pa.table({"value": found}))

    @contextmanager
    def _sending(self) -> Iterator[None]:
        self._socket.settimeout(_PATIENCE)
        try:
            yield
        except OSError as error:
            if isinstance(error, WhenceError):  # of the budget, which may be a TimeoutError
                raise
            raise self._lost() from error
        finally:
            self._socket.settimeout(_POLL)

    def _receive(self, doing: str) -> tuple[bytes, bytes]:
        """Return the next message; until it is there, watch the budget."""
        head = worker.FRAME.size
        self._fill(head, doing)
        kind, length = worker.FRAME.unpack_from(self._data)
        self._fill(head + length, doing)
        payload = bytes(self._data[head : head + length])
        del self._data[: head + length]
        return kind, payload

    def _fill(self, size: int, doing: str) -> None:
        while len(self._data) < size:
            try:
                some = self._socket.recv(worker.CHUNK + worker.FRAME.size)
            except TimeoutError:
                some = None
            except OSError as error:
                raise self._lost() from error
            if some is None:
                reach(doing)
            elif some:
                self._data += some
            else:
                raise self._lost()

    def _lost(self) -> WhenceError:
        """Return the error of a process that ended by itself: it could not even say that its memory is used up."""
        if not self._greeted:
            return WhenceError("the process that answers queries did not start: is DuckDB installed for this Python?")
        return LimitError(_too_large(self._memory))


def _too_large(memory: int) -> str:
    return (
        f"the query needs more than the {in_bytes(memory)} of memory that it may take: ask for fewer rows, or filter "
        "them first"
    )


class RefusedError(Exception):
    """What DuckDB raised in the process."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind, self.text = kind, text

    def as_raised_here(self, memory: int) -> Exception:
        """Return the error that DuckDB would have raised in this process."""
        if self.kind in _MEMORY_ERRORS:
            return LimitError(_too_large(memory))
        found = getattr(duckdb, self.kind, None)
        ours = isinstance(found, type) and issubclass(found, duckdb.Error)
        return found(self.text) if ours and found is not None else SqlError(self.text)


def _python_values(column: pa.ChunkedArray) -> list[Any]:
    """Return a column as DuckDB gives it to a Python function."""
    values = column.to_pylist()
    if column.type == pa.month_day_nano_interval():
        spans = [None if v is None else (v[0] * 30 + v[1], v[2] // 1000) for v in values]
        return [None if v is None else timedelta(days=v[0], microseconds=v[1]) for v in spans]
    return values  # type: ignore[no-any-return]  # a list


def _arrow_values(values: list[Any], function: ScalarFunction) -> pa.Array:
    if function.returns.kind is Kind.INTERVAL:
        spans = (v if not isinstance(v, timedelta) else (0, v.days, (v - timedelta(v.days)) // _MICRO) for v in values)
        values = [None if v is None else pa.MonthDayNano([v[0], v[1], v[2] * 1000]) for v in spans]
    return pa.array(values, arrow_type(function.returns))


def _kill(process: subprocess.Popen[bytes], connection: socket.socket, owner: int) -> None:
    """Kill a process, unless this one was forked from the one that has it."""
    connection.close()
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    if owner == os.getpid():
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
