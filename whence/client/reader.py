"""The verbs that read a served database, and wait for the answer: as it is, or as it was after an epoch."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from whence.client.async_reader import AsyncReader, Row
from whence.client.background import BackgroundLoop
from whence.client.handles import RemoteHandle
from whence.io.results import Result
from whence.model.budget import Timeout
from whence.model.progress import Progress
from whence.subscribe.positions import Position

if TYPE_CHECKING:
    from whence.client.answers import (
        RemoteContribution,
        RemoteCritical,
        RemoteExplanation,
        RemoteReliability,
        RemoteResilience,
        RemoteTrace,
        RemoteWhatIf,
    )

T = TypeVar("T")


class ServedReader:
    """What can be asked of a served database."""

    def __init__(self, loop: BackgroundLoop, reader: AsyncReader, client: object = None) -> None:
        self._loop, self._reader = loop, reader
        self._owner = client  # which ends with its last user

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(work)

    # -- reading -----------------------------------------------------------------------------------------------------

    def query(
        self, sql: str, params: Any = None, *, at_least: Position | str | None = None, timeout: Timeout = None
    ) -> Result:
        """Answer a SELECT as of the last epoch, as `Database.query` does.

        at_least  a position that must have been reached, such as `position` after a write; it is waited for
        timeout   how long it may take, within the limits of the server

        >>> db = whence.open()
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     client.query("SELECT 1 + ? AS two", [1]).rows
        [(2,)]
        """
        return self._run(self._reader.query(sql, params, at_least=at_least, timeout=timeout))

    def read(
        self,
        name: str,
        where: Mapping[str, Any] | None = None,
        *,
        columns: Iterable[str] | None = None,
        limit: int | None = None,
        at_least: Position | str | None = None,
    ) -> Result:
        """Return rows of a table, stream or view: those that have the values of `where`, or all.

        columns   the columns to return
        limit     the most rows to return
        at_least  as in `query`

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT, y TEXT)")
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     _ = client.insert("a", [(1, "one"), (2, "two")])
        ...     client.read("a", {"x": 2}, columns=["y"], at_least=client.position).rows
        [('two',)]
        """
        return self._run(self._reader.read(name, where, columns=columns, limit=limit, at_least=at_least))

    def __getitem__(self, name: str) -> RemoteHandle:
        """Return a handle of a table, stream or view, with the attributes of a local `Handle`; whether it is there
        shows when it is read.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", [(1,), (2,)])
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     a = client["a"]; a.rows, len(a), (2,) in a, a.columns, a.where(x=1).to_dicts()
        ([(1,), (2,)], 2, True, ['x'], [{'x': 1}])
        """
        return RemoteHandle(self, self._reader[name])

    def __contains__(self, name: str) -> bool:
        """Return whether there is a table, stream or view of this name."""
        return self._run(self._reader.has(name))

    @property
    def epoch(self) -> int:
        """The number of the last epoch that is on stable storage; of the past, its epoch.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", (1,))
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     client.epoch
        1
        """
        return self._run(self._reader.epoch())

    @property
    def tables(self) -> list[str]:
        """The names of the tables.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT); CREATE VIEW b AS SELECT DISTINCT x FROM a")
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     client.tables, client.views, client.streams
        (['a'], ['b'], [])
        """
        return self._run(self._reader.tables())

    @property
    def streams(self) -> list[str]:
        """The base streams; views that are streams are among the `views`.

        >>> db = whence.open(); _ = db.execute("CREATE STREAM s (x INT)")
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     client.streams
        ['s']
        """
        return self._run(self._reader.streams())

    @property
    def views(self) -> list[str]:
        """The names of the views, those that are streams among them.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT); CREATE VIEW b AS SELECT DISTINCT x FROM a")
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     client.views
        ['b']
        """
        return self._run(self._reader.views())

    # -- looking inside ----------------------------------------------------------------------------------------------

    def describe(self, name: str) -> Result:
        """Return the columns of a table or view, as `Database.describe` does.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     client.describe("a").to_dicts()
        [{'column': 'x', 'type': 'INTEGER', 'null': True, 'key': False}]
        """
        return self._run(self._reader.describe(name))

    def explain(self, name: str) -> str:
        """Describe how a view runs, as `Database.explain` does.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT); CREATE VIEW b AS SELECT DISTINCT x FROM a")
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     print(client.explain("b").splitlines()[0])
        view b (x INTEGER)
        """
        return self._run(self._reader.explain(name))

    # -- asking why --------------------------------------------------------------------------------------------------

    def why(
        self,
        view: str,
        /,
        row: Row = None,
        *,
        limit: int = 2_000_000,
        progress: Progress | None = None,
        timeout: Timeout = None,
        **columns: Any,
    ) -> RemoteExplanation:
        """Explain a row of a view, as `Database.why` does. Who may not read all that is beneath it is told the
        witnesses that they may read.

        Every question takes `progress` and `timeout` as there. Whatever ends the waiting, such as Ctrl-C or an error
        that `progress` raises, cancels the question at the server.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT); CREATE VIEW b AS SELECT DISTINCT x FROM a")
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     _ = client.insert("a", (1,)); why = client.why("b", x=1)
        >>> why.holds, why.witnesses, why.formula
        (True, [[('a', {'x': 1})]], 'a(1)')
        """
        return self._loop.run_reporting(
            lambda report: self._reader.why(view, row, limit=limit, progress=report, timeout=timeout, **columns),
            progress,
        )

    def trace(
        self,
        stream: str,
        tid: int | None = None,
        /,
        row: Row = None,
        *,
        progress: Progress | None = None,
        timeout: Timeout = None,
        **columns: Any,
    ) -> RemoteTrace:
        """Return the results that a row of a stream reached, as `Database.trace` does.

        >>> db = whence.open(); _ = db.execute("CREATE STREAM s (x INT)")
        >>> _ = db.execute("CREATE VIEW v WITH (provenance = 'lineage') AS SELECT x * 2 AS y FROM s")
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     _ = client.insert("s", [(1,), (2,)]); client.trace("s", 2).rows
        [('v', {'y': 4})]
        """
        return self._loop.run_reporting(
            lambda report: self._reader.trace(stream, tid, row, progress=report, timeout=timeout, **columns), progress
        )

    def critical(
        self,
        view: str,
        /,
        row: Row = None,
        *,
        where: Mapping[str, Any] | None = None,
        limit: int = 2_000_000,
        progress: Progress | None = None,
        timeout: Timeout = None,
        **columns: Any,
    ) -> RemoteCritical:
        """Return the base rows whose loss alone removes a row, or rank them, as `Database.critical` does.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT); CREATE VIEW b AS SELECT DISTINCT x FROM a")
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     _ = client.insert("a", (1,)); client.critical("b", x=1).rows
        [('a', {'x': 1})]
        """
        return self._loop.run_reporting(
            lambda report: self._reader.critical(
                view, row, where=where, limit=limit, progress=report, timeout=timeout, **columns
            ),
            progress,
        )

    def resilience(
        self,
        view: str,
        /,
        row: Row = None,
        *,
        progress: Progress | None = None,
        timeout: Timeout = None,
        **columns: Any,
    ) -> RemoteResilience:
        """Return the fewest base rows whose loss removes a row, as `Database.resilience` does.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT); CREATE VIEW b AS SELECT DISTINCT x FROM a")
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     _ = client.insert("a", (1,)); client.resilience("b", x=1).count
        1
        """
        return self._loop.run_reporting(
            lambda report: self._reader.resilience(view, row, progress=report, timeout=timeout, **columns), progress
        )

    def contribution(
        self,
        view: str,
        /,
        row: Row = None,
        *,
        samples: int | None = None,
        seed: int = 0,
        progress: Progress | None = None,
        timeout: Timeout = None,
        **columns: Any,
    ) -> RemoteContribution:
        """Return how much each base row matters to a row, as `Database.contribution` does.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT); CREATE VIEW b AS SELECT DISTINCT x FROM a")
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     _ = client.insert("a", (1,)); client.contribution("b", x=1).items()
        [(('a', {'x': 1}), 1.0, 1.0)]
        """
        return self._loop.run_reporting(
            lambda report: self._reader.contribution(
                view, row, samples=samples, seed=seed, progress=report, timeout=timeout, **columns
            ),
            progress,
        )

    def reliability(
        self,
        view: str,
        /,
        row: Row = None,
        *,
        given: Mapping[str, float | str],
        samples: int | None = None,
        confidence: float = 0.99,
        seed: int = 0,
        progress: Progress | None = None,
        timeout: Timeout = None,
        **columns: Any,
    ) -> RemoteReliability:
        """Return the probability of a row, as `Database.reliability` does.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT); CREATE VIEW b AS SELECT DISTINCT x FROM a")
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     _ = client.insert("a", (1,)); client.reliability("b", x=1, given={"a": 0.9}).probability
        0.9
        """
        return self._loop.run_reporting(
            lambda report: self._reader.reliability(
                view, row, given=given, samples=samples, confidence=confidence, seed=seed, progress=report,
                timeout=timeout, **columns,
            ),
            progress,
        )  # fmt: skip

    def what_if(
        self,
        sql: str = "",
        params: Any = None,
        *,
        insert: Mapping[str, Any] | None = None,
        delete: Mapping[str, Any] | None = None,
        update: Mapping[str, Any] | None = None,
        views: Iterable[str] | None = None,
        strict: bool = False,
        missing: str = "error",
        progress: Progress | None = None,
        timeout: Timeout = None,
    ) -> RemoteWhatIf:
        """Return what one epoch of these writes would change, as `Database.what_if` does.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT); CREATE VIEW b AS SELECT SUM(x) AS s FROM a")
        >>> with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        ...     _ = client.insert("a", [(1,), (2,)]); client.what_if(delete={"a": [(2,)]})["b"].inserted
        [(1,)]
        """
        return self._loop.run_reporting(
            lambda report: self._reader.what_if(
                sql, params, insert=insert, delete=delete, update=update, views=views, strict=strict, missing=missing,
                progress=report, timeout=timeout,
            ),
            progress,
        )  # fmt: skip
