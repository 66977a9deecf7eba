"""DuckDB as ad-hoc queries use it, and a process that runs it for strangers' queries.

The law: a connection reads nothing but the relations that it is handed: no file, no setting, no extension, no variable
of Python. The process (`main`) takes one query after the other from its parent, over a socket, and sends the answer
back in batches. Its memory is limited by the system, since DuckDB's own limit does not hold for what an expression
makes on its way; it may be killed at any moment, since DuckDB cannot be interrupted inside an expression; and it ends
when its parent does.

It is started as a script, so that it loads DuckDB and Arrow and nothing else: this module imports nothing of Whence.
Python functions are called in the parent: the arguments go there, and the results come back.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import resource
import socket
import struct
import sys
import threading
from typing import Any

import duckdb
import duckdb.func
import pyarrow as pa

FRAME = struct.Struct("<cQ")
"""What precedes a message: its kind, and its length."""

HELLO, QUERY, TABLE, CALL, RETURN, TYPES, ROWS, END, ERROR = b"H", b"Q", b"T", b"C", b"V", b"N", b"R", b"Z", b"E"
CHUNK = 1 << 20
BATCH_ROWS = 100_000
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SLACK = 256 << 20  # bytes of address space beside what a query needs: stacks, what allocators reserve
_TIRED = 256 << 20  # bytes that a process may have kept of former queries
_ONE = pa.table({"row": [0]})  # in place of arguments, where there are none
_CONFIG: dict[str, Any] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "max_expression_depth": "500",  # what a thread with a stack of 1 MB can bear
}


def new_connection(memory: int | None = None, threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """Return a connection that reads nothing but what it is handed, and whose instants are in UTC.

    With a limit of memory (in bytes) it writes nothing to disk either.
    """
    config = dict(_CONFIG)
    if memory is not None:
        config |= {"memory_limit": f"{memory}B", "temp_directory": ""}
    if threads is not None:
        config["threads"] = threads
    connection = duckdb.connect(":memory:", config=config)
    connection.execute("SET enable_external_access = false")
    with contextlib.suppress(duckdb.Error):  # a build of DuckDB without ICU has no time zones at all
        connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET lock_configuration = true")
    return connection


def plain_table(table: pa.Table, types: list[str]) -> pa.Table:
    """Return an answer with DuckDB's 128-bit sums as BIGINT where they fit, and instants as TIMESTAMPs in UTC."""
    for i, kind in enumerate(types):
        if kind == "TIMESTAMP WITH TIME ZONE":
            table = table.set_column(i, table.schema.field(i).name, table.column(i).cast(pa.timestamp("us")))
        if kind in ("HUGEINT", "UHUGEINT"):
            try:
                table = table.set_column(i, table.schema.field(i).name, table.column(i).cast(pa.int64()))
            except pa.ArrowInvalid:
                continue
    return table


# -- messages ----------------------------------------------------------------------------------------------------------


class FrameSink:
    """A file whose bytes become messages of one kind."""

    closed = False

    def __init__(self, connection: socket.socket, kind: bytes) -> None:
        self._socket, self._kind = connection, kind

    def write(self, data: Any) -> int:
        view = memoryview(data)
        for start in range(0, len(view), CHUNK):
            part = view[start : start + CHUNK]
            self._socket.sendall(FRAME.pack(self._kind, len(part)))
            self._socket.sendall(part)
        return len(view)

    def flush(self) -> None: ...

    def close(self) -> None: ...


def send(connection: socket.socket, kind: bytes, payload: bytes = b"") -> None:
    """Send a message."""
    connection.sendall(FRAME.pack(kind, len(payload)) + payload)


def send_table(connection: socket.socket, kind: bytes, table: pa.Table) -> None:
    """Send a table as messages of one kind, of which the last is empty."""
    with pa.ipc.new_stream(pa.PythonFile(FrameSink(connection, kind), mode="w"), table.schema) as writer:
        writer.write_table(table)
    send(connection, kind)


def read_table(data: bytes | bytearray) -> pa.Table:
    """Read a table that `send_table` has sent."""
    return pa.ipc.open_stream(pa.BufferReader(pa.py_buffer(data))).read_all()


# -- the process -------------------------------------------------------------------------------------------------------


class _Parent:
    """The process that asks."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._file = connection.makefile("rb", buffering=CHUNK)

    def receive(self) -> tuple[bytes, bytes]:
        """Return the next message; without one the parent is gone, and so is this process."""
        head = self._file.read(FRAME.size)
        if len(head) < FRAME.size:
            os._exit(0)
        kind, length = FRAME.unpack(head)
        payload = self._file.read(length)
        if len(payload) < length:
            os._exit(0)
        return kind, payload

    def receive_table(self) -> pa.Table:
        found = bytearray()
        while True:
            _, payload = self.receive()
            if not payload:
                return read_table(found)
            found += payload


class _Worker:
    """Answers queries one after the other."""

    def __init__(self, parent: _Parent, memory: int, threads: int) -> None:
        self._parent, self._memory = parent, memory
        self._connection = new_connection(memory, threads)
        self._functions: dict[str, list[Any]] = {}
        self._guard = threading.Lock()
        self._base = _used_memory()[1]

    def run(self) -> None:
        send(self._parent.socket, HELLO)
        while True:
            kind, payload = self._parent.receive()
            assert kind == QUERY
            query = json.loads(payload)
            tables = {name: self._parent.receive_table() for name in query["tables"]}
            try:
                _limit_memory(self._memory)
                self._register(query["functions"])
                self._answer(query["sql"], tables)
                failure = None
            except Exception as error:
                failure = {"kind": type(error).__name__, "text": str(error)[:10_000]}
            finally:
                _limit_memory(None)
                for name in tables:
                    with contextlib.suppress(duckdb.Error):
                        self._connection.unregister(name)
                tables.clear()
            if failure is not None:
                send(self._parent.socket, ERROR, json.dumps(failure).encode())
            tired = _used_memory()[1] - self._base > _TIRED
            send(self._parent.socket, END, json.dumps({"tired": tired}).encode())

    def _answer(self, sql: str, tables: dict[str, pa.Table]) -> None:
        for name, table in tables.items():
            self._connection.register(name, table)
        relation = self._connection.sql(sql)
        if relation is None:
            raise duckdb.BinderException("this statement has no result")
        send(self._parent.socket, TYPES, json.dumps([str(kind) for kind in relation.types]).encode())
        reader = relation.to_arrow_reader(BATCH_ROWS)
        with pa.ipc.new_stream(pa.PythonFile(FrameSink(self._parent.socket, ROWS), mode="w"), reader.schema) as writer:
            for batch in reader:
                writer.write_batch(batch)

    def _register(self, functions: list[list[Any]]) -> None:
        for name, args, returns, side_effects in functions:
            known = self._functions.get(name)
            if known == [args, returns, side_effects]:
                continue
            if known is not None:
                self._connection.remove_function(name)
            by_row = side_effects and not args  # no columns would not say how many rows they have
            self._connection.create_function(
                name,
                self._generator(name) if by_row else self._function(name, len(args)),
                [duckdb.sqltype(arg) for arg in args],
                duckdb.sqltype(returns),
                type=duckdb.func.NATIVE if by_row else duckdb.func.ARROW,
                null_handling=duckdb.func.SPECIAL,
                side_effects=side_effects,
            )
            self._functions[name] = [args, returns, side_effects]

    def _function(self, name: str, arity: int) -> Any:
        """Return a function of columns that is called in the parent."""

        def call(*args: Any) -> Any:
            given = pa.table({f"a{i}": arg for i, arg in enumerate(args)}) if args else _ONE
            return self._call(name, given).combine_chunks()

        named = [inspect.Parameter(f"a{i}", inspect.Parameter.POSITIONAL_ONLY) for i in range(arity)]
        call.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]  # DuckDB counts the parameters
        return call

    def _generator(self, name: str) -> Any:
        """Return a function without arguments that is called in the parent, for each row."""
        return lambda: self._call(name, _ONE)[0].as_py()

    def _call(self, name: str, args: pa.Table) -> pa.ChunkedArray:
        parent = self._parent
        with self._guard:  # DuckDB may have several threads
            send(parent.socket, CALL, name.encode())
            send_table(parent.socket, CALL, args)
            kind, payload = parent.receive()
            if kind == ERROR:
                raise duckdb.InvalidInputException(payload.decode())
            return parent.receive_table().column(0)


def _used_memory() -> tuple[int, int]:
    """Return the bytes of address space and of memory that this process has; zeros where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            size, resident = file.read().split()[:2]
    except OSError:
        return 0, 0
    return int(size) * _PAGE, int(resident) * _PAGE


def _limit_memory(more: int | None) -> None:
    """Let this process have some bytes more than it has now, or as many as it likes."""
    size, _ = _used_memory()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    soft = hard if more is None or not size else size + more + _SLACK
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (soft if hard < 0 else min(soft, hard), hard))


def _end_with_parent() -> None:
    """End when the parent's end of standard input is closed, whatever is running."""

    def wait() -> None:
        while os.read(0, 1):
            pass
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def main(descriptor: int, memory: int, threads: int) -> None:
    """Answer the queries that come over a socket."""
    _end_with_parent()
    with contextlib.suppress(OSError):
        os.nice(5)  # a query may take long; what else the parent does should not wait for it
    _Worker(_Parent(socket.socket(fileno=descriptor)), memory, threads).run()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
