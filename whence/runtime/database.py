"""The public API: a database of tables and views that keep themselves up to date."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from whence.connect import files, rows
from whence.engine.components import DEPTH_LIMIT
from whence.errors import DataError, SqlError, WhenceError
from whence.model.codes import Codes
from whence.model.types import Schema, Type
from whence.plan.program import ScalarFunction, TableFunction
from whence.runtime import explaining, statements
from whence.runtime.catalog import Progress
from whence.runtime.changes import Changes
from whence.runtime.embedded import Embedded
from whence.runtime.reading import Handle, Result
from whence.runtime.writing import matching, new_values
from whence.sql import statements as st
from whence.sql.parse import parse_one


def open(path: str | Path | None = None, *, recursion_limit: int = DEPTH_LIMIT) -> Database:
    """A new database in memory.

    `recursion_limit` is how deep a derivation through a recursive view may become before it is held to have no end.

    >>> with open() as db:
    ...     _ = db.execute("CREATE TABLE link (src TEXT, dst TEXT)")
    ...     db.insert("link", [("A", "B")])
    1
    """
    if path is not None:
        raise WhenceError(f"{path}: durable databases are not available yet; whence.open() keeps everything in memory")
    if recursion_limit < 1:
        raise WhenceError("recursion_limit must be at least 1")
    return Database(Embedded(recursion_limit))


class Database:
    """Tables, and views that are exact after every batch of changes. Made by `whence.open`.

    Any thread may read, and sees the last committed epoch; writers take turns.

    >>> db = open()
    >>> _ = db.execute('''
    ...   CREATE TABLE link (src TEXT, dst TEXT);
    ...   CREATE VIEW reachable AS
    ...     SELECT src, dst FROM link
    ...     UNION
    ...     SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src
    ... ''')
    >>> db.insert("link", [("A", "B"), ("B", "C")])
    2
    >>> sorted(db["reachable"])
    [('A', 'B'), ('A', 'C'), ('B', 'C')]
    """

    def __init__(self, runtime: Embedded) -> None:
        self._runtime = runtime

    # -- SQL ---------------------------------------------------------------------------------------------------------

    def execute(self, sql: str, progress: Progress | None = None) -> Result:
        """Run a script; the result of its last statement. `progress(view, done, total)` hears of views being filled."""
        result = Result(message="nothing to do")
        for result in self.script(sql, progress):  # noqa: B007 - the last one counts
            pass
        return result

    def script(self, sql: str, progress: Progress | None = None) -> Iterator[Result]:
        """Run a script statement by statement, as the results are asked for."""
        return statements.execute(self._runtime, sql, progress)

    def query(self, sql: str) -> Result:
        """The answer of a SELECT over tables and views as of the last committed epoch.

        >>> open().query("SELECT 1 + 1 AS two").rows
        [(2,)]
        """
        statement = parse_one(sql)
        if not isinstance(statement, st.Query):
            raise SqlError("query takes a SELECT; use execute for other statements", line=1, column=1)
        return Result(self._runtime.query(statement.query))

    # -- writing -----------------------------------------------------------------------------------------------------

    def insert(self, table: str, data: Any) -> int:
        """Insert rows (tuples, dicts, Arrow, pandas, polars, a `Path` of a file); how many there were.

        In a table with a primary key a row replaces the one that has its key.
        """
        runtime, name = self._runtime, table.lower()
        with runtime.transaction() as writes:
            pending = writes.table(name)
            return pending.insert(self._codes(data, pending.table.schema, name))

    def delete(self, table: str, data: Any, strict: bool = False) -> int:
        """Delete rows, each once for each time it is given; how many were there.

        Rows that are not there are passed over, or under `strict` a MissingRowError, and then nothing is deleted.
        """
        runtime, name = self._runtime, table.lower()
        with runtime.transaction() as writes:
            pending = writes.table(name)
            return pending.delete(self._codes(data, pending.table.schema, name), strict)

    def update(self, table: str, values: Mapping[str, Any], where: Mapping[str, Any] | str | None = None) -> int:
        """Give columns new values in the rows that match `where` (columns and their values, or SQL); how many matched.

        >>> db = open(); _ = db.execute("CREATE TABLE a (id INT PRIMARY KEY, x TEXT)"); _ = db.insert("a", (1, "old"))
        >>> db.update("a", {"x": "new"}, {"id": 1}), db["a"].rows
        (1, [(1, 'new')])
        """
        runtime, name = self._runtime, table.lower()
        with runtime.transaction() as writes:
            pending = writes.table(name)
            found, counts = matching(pending, where, runtime)
            return pending.replace(found, counts, new_values(found, values, pending.table, runtime.dictionary))

    def _codes(self, data: Any, schema: Schema, name: str) -> Codes:
        if isinstance(data, Path):
            parts = list(files.read(data, schema))
            try:
                data = pa.concat_tables(parts, promote_options="default") if parts else []
            except pa.ArrowException as error:
                raise DataError(f"{data}: {error}") from None
        return rows.encode(data, schema, self._runtime.dictionary, name)

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Make all writes inside one epoch: all of them happen, or on any error none.

        >>> db = open(); _ = db.execute("CREATE TABLE a (x INT)")
        >>> with db.transaction():
        ...     _ = db.insert("a", (1,)); _ = db.insert("a", (2,))
        >>> db.epoch
        1
        """
        with self._runtime.transaction():
            yield self

    # -- reading -----------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The number of the last committed epoch."""
        return self._runtime.epoch

    @property
    def tables(self) -> list[str]:
        return list(self._runtime.program.tables)

    @property
    def views(self) -> list[str]:
        return self._runtime.views()

    def __getitem__(self, name: str) -> Handle:
        """A table or view by name."""
        return Handle(self._runtime, name.lower())

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._runtime.program.tables or name.lower() in self.views

    def changes(self, name: str, snapshot: bool = False) -> Changes:
        """The changes of a view (or table) from now on; with `snapshot` its present rows come first."""
        return self._runtime.changes(name.lower(), snapshot)

    # -- functions ---------------------------------------------------------------------------------------------------

    def create_function(
        self, name: str, function: Callable[..., Any] | None = None, *, args: Iterable[str], returns: str
    ) -> Any:
        """Make a deterministic Python function callable in SQL. Without `function` a decorator. NULL comes in as None.

        >>> db = open()
        >>> @db.create_function("double", args=["INT"], returns="BIGINT")
        ... def double(x): return 2 * x
        >>> db.query("SELECT double(21) AS x").rows
        [(42,)]
        """
        if function is None:
            return lambda f: self.create_function(name, f, args=args, returns=returns) or f
        schema = _columns(f"(x {returns})")
        self._runtime.register(ScalarFunction(name.lower(), function, _types(args), schema.types[0]))
        return None

    def create_table_function(
        self, name: str, function: Callable[..., Any] | None = None, *, args: Iterable[str], returns: str
    ) -> Any:
        """Make a deterministic Python function that yields rows usable in FROM. Without `function` a decorator.

        >>> db = open()
        >>> @db.create_table_function("upto", args=["INT"], returns="(n INT)")
        ... def upto(n): return [(i,) for i in range(n)]
        """
        if function is None:
            return lambda f: self.create_table_function(name, f, args=args, returns=returns) or f
        self._runtime.register(TableFunction(name.lower(), function, _types(args), _columns(returns)))
        return None

    # -- looking inside ----------------------------------------------------------------------------------------------

    def explain(self, name: str) -> str:
        """How a view is kept: its logical plan, the operators with their state, stratum, algebra and policy."""
        return self._runtime.explain(name.lower())

    def describe(self, name: str) -> Result:
        """The columns of a table or view."""
        return Result(explaining.describe(self._runtime, name.lower()))

    def state(self) -> list[dict[str, Any]]:
        """Rows and bytes of every table, operator and arrangement."""
        return explaining.state(self._runtime)

    def metrics(self) -> dict[str, Any]:
        """Counters since the database was opened."""
        return explaining.metrics(self._runtime)

    # -- ending ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the database; iterators that follow changes end too."""
        self._runtime.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<whence database: {len(self.tables)} tables, {len(self.views)} views, epoch {self.epoch}>"


def _columns(text: str) -> Schema:
    create = parse_one(f"CREATE TABLE f {text}")
    if not isinstance(create, st.CreateTable):
        raise SqlError(f"{text!r} is not a list of columns such as (a INT, b TEXT)")
    return create.table.schema


def _types(names: Iterable[str]) -> tuple[Type, ...]:
    given = list(names)
    if isinstance(names, str):
        raise DataError("args is a list of types such as ['INT', 'TEXT']")
    return _columns("(" + ", ".join(f"a{i} {t}" for i, t in enumerate(given)) + ")").types if given else ()
