"""A `Handle` on a table or view: its answers follow the committed epochs. A `Result` (`io/results.py`) never does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from whence.io import files, rows
from whence.io.grid import SHOWN, Grid, plain
from whence.io.results import Result, Row, python_rows
from whence.model.codes import Codes, Dictionary, format_value
from whence.model.errors import DataError, WhenceError
from whence.model.types import Kind, Schema
from whence.runtime.spark.frames import frames
from whence.runtime.writing.conditions import check_condition

if TYPE_CHECKING:
    import pandas
    import polars

    from whence.runtime.coordinator import Coordinator
    from whence.runtime.held_views import Refreshed

__all__ = ["Handle", "Result", "Row", "python_rows"]


class Handle:
    """A table, stream or view by name (`db["name"]`), or those of its rows that `where` names. Every call reads the
    last committed epoch.

    name  the name, in lower case

    Iterating yields its rows, `len` counts them, and `in` looks one up.

    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", [(1,), (1,)])
    >>> db["a"].rows, len(db["a"]), (1,) in db["a"], db["a"].to_dicts(), db["a"].columns
    ([(1,), (1,)], 2, True, [{'x': 1}, {'x': 1}], ['x'])
    """

    def __init__(self, coordinator: Coordinator, name: str, values: Mapping[str, Any] | None = None) -> None:
        self.name, self._coordinator, self._values = name, coordinator, values
        if values is None:
            coordinator.reader.relation(name)  # or it is an error now, not at the first reading

    def where(self, values: Mapping[str, Any] | None = None, /, **columns: Any) -> Handle:
        """Return a handle of the rows that have these values: None is IS NULL, a list, tuple or set is IN.

        They are found by an index from the second look-up by the same columns on, or from the first if CREATE INDEX
        made one.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE may_read (who TEXT, doc TEXT)")
        >>> _ = db.insert("may_read", [("ada", "plan"), ("ada", "notes"), ("bob", "plan")])
        >>> sorted(db["may_read"].where(who="ada")), len(db["may_read"].where({"who": ["ada", "bob"]}, doc="plan"))
        ([('ada', 'notes'), ('ada', 'plan')], 2)
        >>> bool(db["may_read"].where(who="eve"))
        False
        """
        if values is not None and not isinstance(values, Mapping):
            raise DataError(
                f'where takes columns and their values, such as where(who="ada"), not {format_value(values)}; '
                "a condition in SQL is a query"
            )
        given = columns.items() if values is None and self._values is None else self._given(values or {}, columns)
        return Handle(
            self._coordinator, self.name, check_condition(given, self._coordinator.reader.relation(self.name))
        )

    def _given(self, *more: Mapping[str, Any]) -> list[tuple[str, Any]]:
        return [pair for part in (self._values or {}, *more) for pair in part.items()]

    @property
    def schema(self) -> Schema:
        """The columns as they are now, since a view may be replaced: `names`, `types`, and as text SQL.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT, y TEXT)"); str(db["a"].schema)
        '(x INTEGER, y TEXT)'
        """
        return self._coordinator.reader.schema(self.name)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.schema.names)

    @property
    def refreshed(self) -> Refreshed | None:
        """What the last read of a view `WITH (respond_within = …)` took: `seconds`, `rows`, and the rows by table; None
        before it was read.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
        >>> _ = db.execute("CREATE VIEW v WITH (respond_within = '1 s') AS SELECT x, COUNT(*) AS n FROM a GROUP BY x")
        >>> for x in (1, 2): _ = db.insert("a", [(1,), (x,)])
        >>> sorted(db["v"].rows), db["v"].refreshed.epoch
        ([(1, 3), (2, 1)], 2)
        """
        with self._coordinator.state:
            return self._coordinator.held.last_refresh(self.name)

    def _read(self) -> tuple[Codes, Codes, Schema, Dictionary]:
        """Return the distinct rows, how often each is there, and what decodes them."""
        coordinator = self._coordinator
        with coordinator.reading():
            reader = coordinator.reader
            found = reader.contents(self.name) if self._values is None else reader.find(self.name, self._values)
            return *found, reader.schema(self.name), coordinator.dictionary.frozen()

    @property
    def rows(self) -> list[Row]:
        """The rows as tuples of Python values, in no particular order; those of a stream in theirs."""
        codes, counts, schema, known = self._read()
        return rows.to_tuples(rows.expand(codes, counts), schema, known)

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", [(1,), (2,)])
        >>> db["a"].to_arrow().column("x").to_pylist()
        [1, 2]
        """
        if self._values is None:
            return self._coordinator.reader.read_arrow(self.name)[1]
        return rows.to_arrow(*self._read())

    def to_pandas(self) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", [(1,), (2,)])
        >>> int(db["a"].to_pandas()["x"].sum())
        3
        """
        return rows.to_pandas(self.to_arrow())

    def to_polars(self) -> polars.DataFrame:
        """Return the rows as a polars DataFrame.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", [(1,), (2,)])
        >>> db["a"].to_polars()["x"].sum()
        3
        """
        return rows.to_polars(self.to_arrow())

    def to_spark(self, folder: str | Path | None = None) -> Any:
        """Return the rows as they are now as a DataFrame, on the Spark session of the database.

        Many rows go through Parquet files: in `folder`, or beside the database until it is closed.

        >>> with whence.open(spark=whence.spark_session("local[2]")) as db:  # doctest: +SKIP
        ...     _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", [(1,), (2,)])
        ...     db["a"].to_spark().count()
        2
        """
        if self._coordinator.driver is None or self._coordinator.driver.spark is None:
            raise WhenceError("to_spark is for a database on Spark: whence.open(path, spark=…)")
        if self._values is not None:
            raise WhenceError("to_spark is for whole tables and views; filter the DataFrame, or use to_arrow")
        return frames.to_spark(self._coordinator, self.name, folder)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return each row as a dict by column."""
        return rows.to_dicts(self.rows, self.schema)

    def write(self, path: str | Path) -> None:
        """Write the rows to a CSV, JSON lines or Parquet file, by the name's ending.

        >>> from pathlib import Path
        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", [(1,), (2,)])
        >>> db["a"].write("a.csv"); db.insert("a", Path("a.csv"))
        2
        """
        files.write(self.to_arrow(), path)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        if self._values is None:
            return self._coordinator.reader.size(self.name)
        return int(self._read()[1].sum())

    def __contains__(self, row: object) -> bool:
        coordinator = self._coordinator
        with coordinator.reading():
            known, schema = coordinator.dictionary, self.schema
            if isinstance(row, Mapping):
                rows.check_columns(self.name, list(row), schema)
            try:
                (values,) = rows.as_tuples([row], schema, self.name)
                pairs = list(zip(values, schema.types, strict=True))
                # Text that was never met is in no row, and a reader must not add it to the dictionary.
                if any(isinstance(v, str) and t.kind is Kind.TEXT and known.find(v) is None for v, t in pairs):
                    return False
                wanted = rows.encode([values], schema, known, self.name)
            except DataError:
                return False
            if self._values is not None and not coordinator.reader.meets(self.name, self._values, wanted[0]):
                return False
            return bool(coordinator.reader.count(self.name, wanted)[0] > 0)

    def __rich__(self) -> Grid:
        return self._grid()

    def _repr_html_(self) -> str:
        return self._grid().html()

    def _grid(self) -> Grid:
        codes, counts, schema, known = self._read()
        some = rows.to_tuples(rows.expand(codes[:SHOWN], counts[:SHOWN])[:SHOWN], schema, known)
        return Grid(list(schema.names), some, int(counts.sum()), self.name, types=[str(t) for t in schema.types])

    def __repr__(self) -> str:
        return plain(self)
