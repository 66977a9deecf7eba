"""`AsyncClient`: a served database with the verbs of a local one, to be awaited."""

from __future__ import annotations

import asyncio
import secrets
import ssl as ssl_
import time
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from whence.client.async_reader import AsyncReader, as_result, plain_name, plain_sql
from whence.client.connection import LinkOptions, OnState, ServerLink, Token
from whence.client.encoding import WireRows, in_batches, listed_rows, plain_names, wire_params, wire_rows, wire_value
from whence.client.messages import AsyncMessages, open_messages
from whence.client.protocol import ClientProtocol
from whence.client.statements import WRITES, first_words
from whence.client.subscriptions import AsyncSubscription, make_request
from whence.client.transactions import NOT_KNOWN, OpenTransaction, WriteBuffer, open_buffer
from whence.io.results import Result
from whence.model.budget import Timeout, seconds_of
from whence.model.errors import DataError, WhenceError
from whence.model.progress import Progress
from whence.subscribe.positions import Position
from whence.subscribe.urls import websocket_url

_LONGEST_NAME = 100  # of a publisher


def connect_async(
    url: str,
    *,
    token: Token = None,
    publisher: str | None = None,
    timeout: Timeout = 10.0,
    patience: Timeout = 15.0,
    ca: str | Path | None = None,
    ssl: ssl_.SSLContext | None = None,
    on_state: OnState | None = None,
    also: Sequence[str] = (),
) -> AsyncClient:
    """Return an async client of a served database, for `async with` or `await`; the arguments are those of `connect`.

    `on_state` is called in the event loop.

    >>> import asyncio
    >>> async def main(server):
    ...     async with whence.connect_async(server.url, token=server.token) as client:
    ...         await client.insert("a", [(1,), (2,)])
    ...         return (await client.query("SELECT SUM(x) AS s FROM a")).rows
    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
    >>> with whence.serve(db, port=0) as server: asyncio.run(main(server))
    [(3,)]
    """
    address = websocket_url(url)
    if ca is not None:
        if ssl is not None:
            raise DataError("give ca=, the file of an authority, or ssl=, a context, not both")
        try:
            ssl = ssl_.create_default_context(cafile=str(ca))
        except (OSError, ssl_.SSLError) as error:
            raise DataError(f"{ca}: cannot be read as certificates: {error}") from None
    if ssl is not None and not address.startswith("wss:"):
        raise DataError(f"{address} is not encrypted: ca= and ssl= are for https:// and wss://")
    if publisher is not None and not 0 < len(publisher) <= _LONGEST_NAME:
        raise DataError(f"a publisher's name is text of 1 to {_LONGEST_NAME} characters")
    seconds, waiting = (0.0 if given is None else seconds_of(given) for given in (timeout, patience))
    others = tuple(websocket_url(each) for each in also)
    options = LinkOptions(address, token, seconds, waiting, ssl, on_state, others)
    # A publisher of that name may have been here before, so that numbers go on from there: they rise with time.
    first = 1 if publisher is None else time.time_ns() // 1_000
    return AsyncClient(ServerLink(ClientProtocol(publisher or secrets.token_hex(8), first, waiting), options))


class AsyncClient(AsyncReader):
    """A served database with the verbs of a local one, to be awaited (`whence.connect_async`). What is an attribute of
    a `Database` is a method here. Many calls and inserts may be awaited at the same time.

    >>> import asyncio
    >>> async def main(server):
    ...     async with whence.connect_async(server.url, token=server.token) as client:
    ...         await client.execute("CREATE TABLE a (id INT PRIMARY KEY, x INT)")
    ...         await asyncio.gather(*(client.insert("a", (i, i * i)) for i in range(10)))
    ...         await client.update("a", {"x": 0}, key=9); await client.delete("a", key=[0, 1])
    ...         async with client.transaction():
    ...             await client.insert("a", (10, 100)); await client.delete("a", key=2)
    ...         print(await client["a"].count(), await client.tables(), await client.views(), await client.streams())
    ...         print((await client.query("SELECT SUM(x) AS s FROM a", at_least=client.position)).rows)
    ...         print((await client.read("a", {"id": 10})).rows, await client.count_rows("a"), await client.has("b"))
    ...         print(str(await client.schema_of("a")), len(await client.describe("a")), await client.epoch() > 0)
    ...         async with client.subscribe("SELECT COUNT(*) AS n FROM a") as subscription:
    ...             print((await subscription.next()).rows)
    >>> db = whence.open()
    >>> with whence.serve(db, port=0) as server: asyncio.run(main(server))
    8 ['a', 'publishers'] [] []
    [(299,)]
    [(10, 100)] 8 False
    (id INTEGER, x INTEGER) 2 True
    [(8,)]

    Questions have the answers of a local database; `at` reads the past; streams are advanced and flushed.

    >>> async def main(server):
    ...     client = await whence.connect_async(server.url, token=server.token)
    ...     await client.execute("CREATE TABLE a (x INT, p DOUBLE); CREATE VIEW b AS SELECT DISTINCT x FROM a")
    ...     await client.insert("a", [(1, 0.5), (1, 0.25)])
    ...     why = await client.why("b", x=1); print(why.holds, why.witness_count)
    ...     print((await client.critical("b", x=1)).rows, (await client.resilience("b", x=1)).count)
    ...     print((await client.contribution("b", x=1)).method)
    ...     print(float(await client.reliability("b", x=1, given={"a": "p"})))
    ...     print((await client.what_if(delete={"a": [(1, 0.5)]}))["b"].inserted)
    ...     await client.execute("CREATE STREAM s (t INT); CREATE VIEW w WITH (provenance = 'lineage') AS "
    ...                          "SELECT COUNT(*) AS n FROM slide(s, on => t, width => 10, every => 10)")
    ...     await client.insert("s", [(1,), (7,), (12,)]); await client.advance("s", 10); await client.flush("s")
    ...     print(await client["w"].rows(), (await client.trace("s", 1)).rows)
    ...     print((await client.explain("b")).splitlines()[0], "rows_in" in await client.metrics())
    ...     await client.close()
    >>> db = whence.open()
    >>> with whence.serve(db, port=0) as server: asyncio.run(main(server))
    True 2
    [] 2
    exact
    0.625
    []
    [(2,), (1,)] [('w', {'n': 2})]
    view b (x INTEGER) True
    """

    def __init__(self, link: ServerLink) -> None:
        super().__init__(link)

    # -- the connection ----------------------------------------------------------------------------------------------

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        try:
            await self._link.open()
        except BaseException:
            await self._link.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection, subscriptions and whatever waits for an answer. `async with` does this at its end."""
        await self._link.close()

    @property
    def position(self) -> Position | None:
        """The position of the last write that was acknowledged; None before the first.

        >>> import asyncio
        >>> async def main(server):
        ...     async with whence.connect_async(server.url, token=server.token) as client:
        ...         before = client.position; await client.insert("a", (1,)); return before, client.position.epoch
        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
        >>> with whence.serve(db, port=0) as server: asyncio.run(main(server))
        (None, 1)
        """
        return self._link.protocol.position

    def at(self, epoch: int) -> AsyncReader:
        """Return the database as it was after a retained epoch, for reading only.

        >>> import asyncio
        >>> async def main(server):
        ...     async with whence.connect_async(server.url, token=server.token) as client:
        ...         await client.insert("a", (1,)); await client.insert("a", (2,))
        ...         return await client.at(1)["a"].rows()
        >>> with whence.open("old.db", retain=10) as db:
        ...     _ = db.execute("CREATE TABLE a (x INT)")
        ...     with whence.serve(db, port=0) as server: asyncio.run(main(server))
        [(1,)]
        """
        return AsyncReader(self._link, epoch)

    # -- writing -----------------------------------------------------------------------------------------------------

    async def insert(
        self,
        table: str,
        data: Any,
        *,
        on_error: Literal["fail", "skip", "reject"] = "fail",
        op: str | None = None,
        early: Literal["hold", "ignore", "error"] | None = None,
        missing: Literal["error", "null"] = "error",
        batch: int | None = None,
        number: int | None = None,
    ) -> int:
        """Insert rows, as `Database.insert` does; return the row count when they are on stable storage.

        batch   send at most so many rows at a time, each an epoch of its own
        number  the number of this insert, if the publisher counts its own (`connect`)
        """
        name = plain_name(table)
        if batch is not None:
            if number is not None or open_buffer(self) is not None:
                raise DataError("batch is for inserts outside a transaction, and without a number")
            parts = in_batches(await self._loaded(name, data, missing, on_error), batch)
            options: dict[str, Any] = {"on_error": on_error, "op": op, "early": early, "missing": missing}
            return sum(await asyncio.gather(*(self.insert(name, part, **options) for part in parts)))
        rows = wire_rows(await self._loaded(name, data, missing, on_error), name)
        buffer = open_buffer(self)
        plain = on_error == "fail" and op is None and early is None
        if buffer is not None:
            if not plain:
                raise DataError("on_error, op and early are for inserts outside a transaction")
            return buffer.add_insert(name, rows, missing)
        if plain and not rows.mixed:
            done = await self._link.insert(
                table=name, rows=rows.rows, columns=rows.columns, arrow=rows.arrow, missing=missing, number=number
            )
            return rows.count if done.repeated else done.count
        more = {"missing": missing, "on_error": on_error, "op": op, "early": early}
        return await self._write("insert", number, table=name, **_parts(rows), **more)

    async def _loaded(self, table: str, data: Any, missing: Literal["error", "null"], on_error: str) -> Any:
        """Return rows of a file as an Arrow table, and others as they are."""
        if not isinstance(data, Path):
            return data
        if on_error != "fail":
            raise DataError(f"{data}: on_error is for rows, or for files that a local database reads")
        import pyarrow as pa

        from whence.io import files

        parts = list(files.read(data, await self.schema_of(table), missing=missing))
        try:
            return pa.concat_tables(parts, promote_options="default") if parts else []
        except pa.ArrowException as error:
            raise DataError(f"{data}: {error}") from None

    async def _write(self, verb: str, number: int | None = None, **args: Any) -> int:
        """Have a numbered write done; return the row count."""
        given = {name: value for name, value in args.items() if value is not None}
        value = await self._link.call(verb, given, "numbered", number=number)
        return _count(value)

    async def delete(
        self,
        table: str,
        data: Any = None,
        strict: bool = False,
        *,
        key: Any = None,
        where: Mapping[str, Any] | str | None = None,
        params: Any = None,
        early: Literal["hold", "ignore", "error"] | None = None,
    ) -> int:
        """Delete rows, as `Database.delete` does; return how many were there, or -1 where that is not known: inside a
        transaction, or if the answer was lost with a connection."""
        if (data is not None) + (key is not None) + (where is not None) != 1:
            raise DataError("delete takes one of rows, key=… or where=…")
        name = plain_name(table)
        given: dict[str, Any] = {"table": name, "early": "error" if strict and early is None else early}
        if data is not None:
            given["rows"] = listed_rows(await self._loaded(name, data, "null", "fail"), name)
        given |= {"key": wire_value(key), "where": _condition(where), "params": wire_params(params)}
        buffer = open_buffer(self)
        return await self._write("delete", **given) if buffer is None else buffer.add("delete", **given)

    async def update(
        self,
        table: str,
        values: Mapping[str, Any],
        where: Mapping[str, Any] | str | None = None,
        *,
        key: Any = None,
        params: Any = None,
    ) -> int:
        """Set columns in the rows that match, as `Database.update` does; return how many did, or -1 as in `delete`."""
        if not isinstance(values, Mapping):
            raise DataError("update takes a dict of columns and their new values")
        given = {
            "table": plain_name(table),
            "values": wire_value(values),
            "where": _condition(where),
            "key": wire_value(key),
            "params": wire_params(params),
        }
        buffer = open_buffer(self)
        return await self._write("update", **given) if buffer is None else buffer.add("update", **given)

    async def execute(self, sql: str, params: Any = None, *, progress: Progress | None = None) -> Result:
        """Run a script, as `Database.execute` does; return its last result.

        A single INSERT, DELETE or UPDATE is sent again if the connection is lost. The outcome of other scripts that
        change something is not known then, which is a `DisconnectedError`.
        """
        if open_buffer(self) is not None:
            raise WhenceError(
                "execute is not part of a transaction of a served database: use insert, delete and update"
            )
        args = {"sql": plain_sql(sql)} if params is None else {"sql": plain_sql(sql), "params": wire_params(params)}
        words = first_words(sql)
        if len(words) == 1 and words[0] in WRITES:
            value = await self._link.call("execute", args, "numbered", progress)
            count = _count(value)
            rows = f"{count:,} row{'s' * (count != 1)}" if count != NOT_KNOWN else "rows"
            return Result(message=f"{rows} {WRITES[words[0]]}", count=count)
        reads = all(word in ("SELECT", "WITH", "EXPLAIN", "DESCRIBE", "SHOW") for word in words)
        return as_result(await self._link.call("execute", args, "read" if reads else "never", progress))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Make one epoch of all inserts, deletions and updates inside: all of them happen, or on any error none. They
        are sent at its end. Reads inside it do not see them."""
        if open_buffer(self) is not None:
            yield self
            return
        with OpenTransaction(self) as buffer:
            yield self
        await self.commit(buffer)

    async def commit(self, buffer: WriteBuffer) -> int:
        """Send the writes of a transaction as one epoch; return the row count."""
        return await self._write("transaction", operations=buffer.operations) if buffer.operations else 0

    async def advance(self, stream: str | Sequence[str], value: Any, *, on: str | None = None) -> None:
        """Promise that no row of a stream with a smaller value follows, as `Database.advance` does."""
        args = {"stream": plain_names(stream), "value": wire_value(value)}
        await self._link.call("advance", args if on is None else {**args, "on": on}, "never")

    async def flush(self, stream: str | Sequence[str] | None = None) -> None:
        """Close the windows of a stream, or of all, as `Database.flush` does."""
        await self._link.call("flush", {} if stream is None else {"stream": plain_names(stream)}, "never")

    # -- subscriptions -----------------------------------------------------------------------------------------------

    def subscribe(
        self,
        queries: str | Mapping[str, str] | Sequence[str],
        params: Any = None,
        *,
        have: Position | str | None = None,
        rows: Sequence[Any] | None = None,
        key: str | Sequence[str] | None = None,
        every: Timeout = None,
        why: bool = False,
        every_change: bool = False,
        ordered: bool = False,
        give_up_after: Timeout = None,
        reflects: Mapping[str, str] | None = None,
    ) -> AsyncSubscription:
        """Follow queries: iterate with `async for`; the arguments are those of `Client.subscribe`, but for the
        parameters of a template (`subscribe_to`). Awaiting what it returns raises why it cannot be, if so."""
        request = make_request(
            queries, params, have=have, rows=rows, key=key, every=every, why=why, every_change=every_change,
            ordered=ordered, give_up_after=give_up_after, reflects=reflects,
        )  # fmt: skip
        return AsyncSubscription(self._link, request)

    async def subscribe_to(self, template: str, parameters: Mapping[str, Any]) -> int:
        """Make a subscription to a template; return its id. Its answer is `subscribe("template#id")`."""
        args = {"template": plain_name(template), "parameters": wire_value(dict(parameters))}
        found: dict[str, Any] = await self._link.call("subscribe", args, "never")
        return int(found["id"])

    async def messages(self, template: str) -> AsyncMessages:
        """Follow the messages of a template from now on, as `Database.messages` does.

        >>> import asyncio
        >>> async def main(server):
        ...     async with whence.connect_async(server.url, token=server.token) as client:
        ...         messages = await client.messages("above"); await client.insert("a", (7,))
        ...         return [message.row async for message in messages]
        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
        >>> _ = db.execute("CREATE TEMPLATE above AS SELECT x FROM a WHERE x > :low")
        >>> with whence.serve(db, port=0) as server: asyncio.run(main(server))
        [{'x': 7}]
        """
        return await open_messages(self._link, plain_name(template))

    async def metrics(self) -> dict[str, Any]:
        """Return the counters of the database, as `Database.metrics` does."""
        found: dict[str, Any] = await self._link.call("metrics", {})
        return found

    def __repr__(self) -> str:
        link = self._link
        state = "closed" if link.is_closed else "connected" if link.protocol.is_ready else "not connected"
        return f"<whence client of {link.options.url}, {state}>"


def _count(value: Mapping[str, Any]) -> int:
    """Return how many rows a write wrote; a server does not know that of one that was done before."""
    return NOT_KNOWN if value.get("repeated") else int(value["count"])


def _parts(rows: WireRows) -> dict[str, Any]:
    return {"rows": rows.rows, "columns": rows.columns, "arrow": rows.arrow}


def _condition(where: Mapping[str, Any] | str | None) -> Any:
    return where if where is None or isinstance(where, str) else wire_value(where)
