"""`Client`: a served database with the verbs of a local one, for those who wait."""

from __future__ import annotations

import ssl as ssl_
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, overload

from whence.client.background import BackgroundLoop
from whence.client.client import AsyncClient, connect_async
from whence.client.connection import OnState, Token
from whence.client.messages import RemoteMessages
from whence.client.reader import ServedReader
from whence.client.subscriptions import Subscription, make_request, open_subscription
from whence.client.transactions import OpenTransaction, open_buffer
from whence.io.results import Result
from whence.model.budget import Timeout
from whence.model.errors import DataError
from whence.model.progress import Progress
from whence.subscribe.positions import Position

_CLOSE_SECONDS = 5.0


def connect(
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
) -> Client:
    """Connect to a served database (`whence.serve`, `whence serve`), and return a client that has the verbs of a local
    one. `connect_async` returns one for asyncio.

    url        such as http://127.0.0.1:8080, or https://…
    token      text, or a function that returns one: it is called to connect, and before a token expires
    publisher  a name under which inserts are numbered, the same in every run of a program that counts its inserts
               itself (`number` of `insert`); else a random one
    timeout    how long a call waits for a connection before it is a `DisconnectedError`; also the first one
    patience   how long an answer that should be there may take before it is asked for again
    ca         a file with the certificate of the authority that the server's is from
    ssl        in its place, a context for TLS
    on_state   called with True when the connection is there and with False when it is lost, and a sentence about it; in
               a thread of the client
    also       other servers that take the same token: a subscription to a view that moves to one of them
               (`whence move`) goes on there

    A connection that is lost is made again: at once, then several times per second, later every few seconds. Inserts,
    deletions, updates and transactions without an answer are sent again, and done once. Subscriptions go on from where
    they are. Whatever the server refuses, a token or a query, is raised.

    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
    >>> with whence.serve(db, port=0) as server:
    ...     client = whence.connect(server.url, token=server.token)
    ...     client.insert("a", [(1,), (2,)]), client["a"].rows
    ...     client.close()
    (2, [(1,), (2,)])
    """
    loop = BackgroundLoop()

    async def begin() -> AsyncClient:
        return await connect_async(
            url, token=token, publisher=publisher, timeout=timeout, patience=patience, ca=ca, ssl=ssl,
            on_state=on_state, also=also,
        )  # fmt: skip

    try:
        return Client(loop, loop.run(begin()))
    except BaseException:
        loop.stop(_nothing, _CLOSE_SECONDS)
        raise


async def _nothing() -> None: ...


class Client(ServedReader):
    """A served database with the verbs of a local one (`whence.connect`). Any number of threads may share one.

    A write returns when it is on stable storage. A read sees the last epoch, and with `at_least=client.position` at
    least what this client has written, whichever server it asks.

    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (id INT PRIMARY KEY, x TEXT)")
    >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
    ...     _ = client.insert("a", [(1, "old"), (2, "new")]); _ = client.delete("a", key=2)
    ...     client.update("a", {"x": "newer"}, {"id": 1}), client.query("SELECT x FROM a").rows, "a" in client
    (1, [('newer',)], True)
    """

    def __init__(self, loop: BackgroundLoop, client: AsyncClient) -> None:
        super().__init__(loop, client)
        self._client = client
        self._finish = weakref.finalize(self, loop.stop, client.close, _CLOSE_SECONDS)

    # -- the connection ----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the connection, subscriptions and whatever waits for an answer. A `with` statement does this at its end.

        >>> db = whence.open()
        >>> with whence.serve(db, port=0) as server:
        ...     client = whence.connect(server.url, token=server.token); client.close()
        ...     try: client.query("SELECT 1 AS x")
        ...     except whence.WhenceError as error: print(error)
        this client is closed
        """
        self._finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def position(self) -> Position | None:
        """The position of the last write that was acknowledged; None before the first.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     _ = client.insert("a", (1,)); client.position == db.position
        True
        """
        return self._client.position

    def at(self, epoch: int) -> ServedReader:
        """Return the database as it was after a retained epoch (`retain` of `whence.open`), for reading only.

        >>> with whence.open("served.db", retain=10) as db:
        ...     _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", (1,)); _ = db.insert("a", (2,))
        ...     with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...         client.at(1)["a"].rows, len(client["a"])
        ([(1,)], 2)
        """
        return ServedReader(self._loop, self._client.at(epoch), self)

    # -- writing -----------------------------------------------------------------------------------------------------

    @overload
    def insert(
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
        wait: Literal[True] = True,
    ) -> int: ...

    @overload
    def insert(
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
        wait: Literal[False],
    ) -> Future[int]: ...

    def insert(
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
        wait: bool = True,
    ) -> int | Future[int]:
        """Insert rows, of the kinds that `Database.insert` takes; return the row count when they are on stable storage.

        on_error, op, early, missing  as there
        batch   send at most so many rows at a time, each an epoch of its own; a server limits the size of a message
        number  the number of this insert, of a publisher that counts its own (`connect`): one that was done is not done
                again. Numbers rise; give one to each insert, or to none
        wait    False: return at once a future that has the row count, so that many inserts are under way

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     futures = [client.insert("a", (x,), wait=False) for x in range(100)]
        ...     sum(future.result() for future in futures), len(client["a"])
        (100, 100)
        """
        work = self._client.insert(
            table, data, on_error=on_error, op=op, early=early, missing=missing, batch=batch, number=number
        )
        return self._run(work) if wait else self._loop.submit(work)

    def delete(
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
        transaction, or if the answer was lost with a connection.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", [(1,), (2,), (3,)])
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     client.delete("a", (1,)), client.delete("a", where="x > ?", params=[2]), client["a"].rows
        (1, 1, [(2,)])
        """
        return self._run(self._client.delete(table, data, strict, key=key, where=where, params=params, early=early))

    def update(
        self,
        table: str,
        values: Mapping[str, Any],
        where: Mapping[str, Any] | str | None = None,
        *,
        key: Any = None,
        params: Any = None,
    ) -> int:
        """Set columns in the rows that match, as `Database.update` does; return how many did, or -1 as in `delete`.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", [(1,), (2,)])
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     client.update("a", {"x": 7}, "x > 1"), sorted(client["a"])
        (1, [(1,), (7,)])
        """
        return self._run(self._client.update(table, values, where, key=key, params=params))

    def execute(self, sql: str, params: Any = None, *, progress: Progress | None = None) -> Result:
        """Run a script, as `Database.execute` does; return its last result.

        A single INSERT, DELETE or UPDATE is sent again if the connection is lost. The outcome of other scripts that
        change something is not known then, which is a `DisconnectedError`.

        >>> db = whence.open()
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     client.execute("CREATE TABLE a (x INT)").message
        ...     client.execute("INSERT INTO a VALUES (?), (?)", [1, 2]).count
        'table a created'
        2
        """
        return self._loop.run_reporting(lambda report: self._client.execute(sql, params, progress=report), progress)

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Make one epoch of all inserts, deletions and updates inside, of this thread: all of them happen, or on any
        error none. They are sent at its end. Reads inside it do not see them.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", (1,))
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     with client.transaction():
        ...         _ = client.delete("a", (1,)); _ = client.insert("a", (2,))
        ...     client["a"].rows
        [(2,)]
        """
        if open_buffer(self._client) is not None:
            yield self
            return
        with OpenTransaction(self._client) as buffer:
            yield self
        self._run(self._client.commit(buffer))

    def advance(self, stream: str | Sequence[str], value: Any, *, on: str | None = None) -> None:
        """Promise that no row of a stream with a smaller value follows, as `Database.advance` does.

        >>> db = whence.open(); _ = db.execute("CREATE STREAM s (t INT)")
        >>> _ = db.execute("CREATE VIEW w AS SELECT COUNT(*) AS n FROM slide(s, on => t, width => 10, every => 10)")
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     _ = client.insert("s", [(1,), (7,)]); client.advance("s", 10); client["w"].rows
        [(2,)]
        """
        self._run(self._client.advance(stream, value, on=on))

    def flush(self, stream: str | Sequence[str] | None = None) -> None:
        """Close the windows of a stream, or of all, as `Database.flush` does.

        >>> db = whence.open(); _ = db.execute("CREATE STREAM s (t INT)")
        >>> _ = db.execute("CREATE VIEW w AS SELECT COUNT(*) AS n FROM slide(s, on => t, width => 10, every => 10)")
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     _ = client.insert("s", [(1,), (7,)]); client.flush("s"); client["w"].rows
        [(2,)]
        """
        self._run(self._client.flush(stream))

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
        **parameters: Any,
    ) -> Subscription:
        """Follow queries: the state first, then net changes, for as long as it is iterated over.

        queries        a SELECT, or the name of a table or view; or a dict of names and such, which move together: one
                       update for all, as of one epoch
        params         values for the parameters of a query, as in `execute`
        have           go on from a position (`Update.position`), also one of an earlier run: the first update is the
                       difference to it, or the state if that is not known any more
        rows           the rows at that position, so that `Update.rows` is known; of several queries, a list for each
        key            columns that identify a row, for `Update.changed`
        every          a time, such as '5 s', that lies at least between two updates
        why            give the witnesses of rows, as of the epoch that is told (`Update.why`): few rows, few witnesses
        every_change   one update per epoch that changed anything; else several are told as their net change
        ordered        rows of sources in the order of (time, history, tick), up to the time that all sources have
                       reached; with `every_change`, each change of a publisher once and in order
        give_up_after  how long the server may be away before this is a `DisconnectedError`; without it, for ever
        reflects       what was seen at another broker (`Update.reflects`): nothing is told before this one reflects as
                       much of its sources
        parameters     of a template, the values of a new subscription, as `Database.subscribe` takes them; what is
                       returned has its `id` and `cancel()`

        A query that cannot be subscribed to is an error here. One that can no longer be, since its view is dropped or
        its right withdrawn, is an error of the iteration.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE sale (item TEXT, price INT)")
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     total = "SELECT item, SUM(price) AS price FROM sale GROUP BY item"
        ...     with client.subscribe(total, key="item") as subscription:
        ...         _ = subscription.next(); _ = client.insert("sale", [("tea", 3), ("tea", 4)])
        ...         update = subscription.next(); update.came, update.changed
        ([('tea', 7)], [('tea', None, ('tea', 7))])
        """
        id, template = None, queries
        if isinstance(queries, str) and queries.isidentifier() and isinstance(params, Mapping):
            parameters, params = {**params, **parameters}, None
        if parameters:
            if not isinstance(queries, str):
                raise DataError("parameters are for one template: give values for those of queries as params")
            id = self._run(self._client.subscribe_to(queries, parameters))
            queries = f"{queries}#{id}"
        request = make_request(
            queries, params, have=have, rows=rows, key=key, every=every, why=why, every_change=every_change,
            ordered=ordered, give_up_after=give_up_after, reflects=reflects,
        )  # fmt: skip
        found = Subscription(self._loop, self._run(open_subscription(self._client._link, request)), self)
        if id is not None:
            found.id, found._cancel = id, lambda: self.delete(str(template), key=id)
        return found

    def messages(self, template: str) -> RemoteMessages:
        """Follow the messages of a template from now on, as `Database.messages` does. It takes the right to read all of
        its subscriptions.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE stock (risk INT, per INT)")
        >>> _ = db.execute("CREATE TEMPLATE cheapest AS SELECT MIN(per) FROM stock WHERE risk BETWEEN :low AND :high")
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     messages = client.messages("cheapest"); _ = client.insert("stock", (40, 4))
        ...     [(m.value, m.inner, m.outer, m.reaches(30, 50)) for m in messages]
        [(4, (40, 40), (None, None), True)]
        """
        return RemoteMessages(self._loop, self._run(self._client.messages(template)))

    def metrics(self) -> dict[str, Any]:
        """Return the counters of the database, as `Database.metrics` does.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", [(1,), (2,)])
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     client.metrics()["rows_in"]
        2
        """
        return self._run(self._client.metrics())

    def __repr__(self) -> str:
        return repr(self._client)
