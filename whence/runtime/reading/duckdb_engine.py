"""DuckDB in this process, as ad-hoc queries use it: a connection that reads what it is handed, and can be stopped.

A query that has a budget (`model/budget.py`) runs in a thread of its own, while the one that asked watches the budget:
when that is used up, or on Ctrl-C, the query is interrupted. DuckDB looks for that between two batches of rows; a
connection that does not stop within seconds is given up, and another is made.
"""

from __future__ import annotations

import inspect
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import duckdb
import duckdb.func
import pyarrow as pa

from whence.model.budget import has_budget, reach
from whence.model.errors import SqlError
from whence.model.types import Kind, Type
from whence.plan.algebra.expressions import Volatile
from whence.plan.algebra.program import ScalarFunction
from whence.runtime.reading.calls import OURS
from whence.runtime.reading.query_worker import new_connection, plain_table
from whence.runtime.reading.zoned_queries import register_shift

RUNNING = "running the query"
_POLL = 0.05  # seconds between two looks at the budget
_GRACE = 5.0  # seconds that an interrupted query has to stop
_INHERITED: list[duckdb.DuckDBPyConnection] = []


class QueryFailure(Exception):  # noqa: N818  # it carries an error, and is none by itself
    """What DuckDB, or Arrow, raised in the course of a query: `failure`. What a budget raises is not wrapped."""

    def __init__(self, failure: Exception) -> None:
        super().__init__(failure)
        self.failure = failure


class QueryEngine(Protocol):
    """Runs queries, one at a time."""

    usable: bool  # False if it must be replaced
    failed: list[tuple[str, Exception]]  # the Python functions that raised during the last query

    def answer(
        self,
        sql: str,
        tables: Mapping[str, pa.Table],
        functions: Iterable[ScalarFunction] = (),
        zoned: bool = False,
    ) -> pa.Table:
        """Return the answer to a query over some tables that calls some functions, perhaps that of AT TIME ZONE;
        QueryFailure if it has none."""

    def close(self) -> None:
        """End."""


class EnginePool:
    """Up to `most` engines, made when they are needed: as many queries run at a time, others wait."""

    def __init__(self, make: Callable[[], QueryEngine], most: int, idle: int | None = None) -> None:
        """`idle` engines are kept when they are not used; by default all."""
        self._make, self._most, self._idle = make, most, most if idle is None else idle
        self._free: list[QueryEngine] = []
        self._used = 0
        self._turn = threading.Condition()
        self._closed = False

    @contextmanager
    def engine(self) -> Iterator[QueryEngine]:
        """Use an engine; while all are in use, wait until one is free or the budget is used up."""
        with self._turn:
            while self._used >= self._most:
                self._turn.wait(_POLL if has_budget() else None)
                reach("waiting for other queries")
            self._used += 1
            engine = self._free.pop() if self._free else None
        try:
            if engine is None:
                engine = self._make()
            engine.failed.clear()
            yield engine
        finally:
            with self._turn:
                self._used -= 1
                kept = engine is not None and engine.usable and not self._closed and len(self._free) < self._idle
                if kept and engine is not None:
                    self._free.append(engine)
                self._turn.notify()
            if engine is not None and not kept:
                engine.close()

    def start(self) -> None:
        """Make an engine before the first query asks for it."""
        with self.engine():
            pass

    def close(self) -> None:
        """Close all engines: those in use as soon as their query ends."""
        with self._turn:
            self._closed = True
            free, self._free = self._free, []
        for engine in free:
            engine.close()


def _close(connection: duckdb.DuckDBPyConnection, process: int) -> None:
    """Close a connection, or keep it for ever in a child that has it from its parent: DuckDB's threads were not forked
    with it, and to close it without them crashes."""
    if process == os.getpid():
        connection.close()
    else:
        _INHERITED.append(connection)


class DuckDbEngine:
    """A DuckDB instance of this process."""

    def __init__(self) -> None:
        self.usable = True
        self.failed: list[tuple[str, Exception]] = []
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._process = os.getpid()  # whose connection it is
        self._functions: dict[str, ScalarFunction] = {}
        self._has_zones = False  # whether the connection has the function of AT TIME ZONE

    def answer(
        self,
        sql: str,
        tables: Mapping[str, pa.Table],
        functions: Iterable[ScalarFunction] = (),
        zoned: bool = False,
    ) -> pa.Table:
        """Return the answer to a query."""
        try:
            connection = self._connect(functions, zoned)
            if not has_budget():
                return _answer(connection, sql, tables)
        except Exception as failure:
            raise QueryFailure(failure) from failure
        return self._watch(connection, lambda: _answer(connection, sql, tables))

    def _watch(self, connection: duckdb.DuckDBPyConnection, run: Callable[[], pa.Table]) -> pa.Table:
        """Run a query in another thread until it ends or the budget is used up."""
        found: list[pa.Table] = []
        failures: list[Exception] = []
        ended = threading.Event()  # not `join`: a thread whose join Ctrl-C breaks off counts as ended

        def work() -> None:
            try:
                found.append(run())
            except Exception as failure:
                failures.append(failure)
            finally:
                ended.set()

        threading.Thread(target=work, name="whence query", daemon=True).start()
        try:
            while not ended.wait(_POLL):
                reach(RUNNING)
        except BaseException:
            self._stop(connection, ended)
            raise
        if failures:
            raise QueryFailure(failures[0]) from failures[0]
        return found[0]

    def _stop(self, connection: duckdb.DuckDBPyConnection, ended: threading.Event) -> None:
        """Interrupt a query; if it does not stop, leave the connection to it."""
        for _ in range(int(_GRACE / _POLL)):
            connection.interrupt()  # again, for it has no effect before the query has begun
            if ended.wait(_POLL):
                return
        self.usable = False
        self._connection = None  # its thread still has it

    def close(self) -> None:
        if self._connection is not None:
            _close(self._connection, self._process)
            self._connection = None

    def _connect(self, functions: Iterable[ScalarFunction], zoned: bool) -> duckdb.DuckDBPyConnection:
        if self._connection is not None and self._process != os.getpid():
            self.close()
        if self._connection is None:
            self._connection, self._process = new_connection(), os.getpid()
            weakref.finalize(self, _close, self._connection, self._process)  # or DuckDB complains of functions at exit
            self._functions, self._has_zones = {}, False
        if zoned and not self._has_zones:
            register_shift(self._connection, self.failed)
            self._has_zones = True
        for function in functions:
            if self._functions.get(function.name) is not function:
                if function.name in self._functions:
                    self._connection.remove_function(OURS + function.name)
                self._connection.create_function(
                    OURS + function.name,
                    _watched(function, self.failed),
                    [duckdb.sqltype(duck_type(t)) for t in function.args],
                    duckdb.sqltype(duck_type(function.returns)),
                    null_handling=duckdb.func.SPECIAL,
                    side_effects=isinstance(function.function, Volatile),
                )
                self._functions[function.name] = function
        return self._connection


def _answer(connection: duckdb.DuckDBPyConnection, sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    try:
        for name, table in tables.items():
            connection.register(name, table)
        relation = connection.sql(sql)
        if relation is None:
            raise SqlError("this statement has no result")
        types = [str(t) for t in relation.types]
        return plain_table(relation.to_arrow_table(), types)
    finally:
        for name in tables:
            connection.unregister(name)


def _watched(function: ScalarFunction, failed: list[tuple[str, Exception]]) -> Callable[..., Any]:
    """Return the function such that it remembers what it raised: DuckDB only passes the text on.

    It must not hold the connection, which holds it: DuckDB's half of such a cycle is hidden from the collector.
    """

    def call(*args: Any) -> Any:
        try:
            return function.function(*args)
        except Exception as failure:
            failed.append((function.name, failure))
            raise

    named = [inspect.Parameter(f"a{i}", inspect.Parameter.POSITIONAL_ONLY) for i in range(len(function.args))]
    call.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]  # DuckDB counts the parameters
    return call


def duck_type(type: Type) -> str:
    """Return the name of a type in DuckDB."""
    names = {Kind.TEXT: "VARCHAR", Kind.DECIMAL: str(type)}
    return names.get(type.kind, type.kind.value)
