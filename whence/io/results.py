"""A `Result`: one answer of a statement, which never changes.

It holds an Arrow table, and makes of it what is asked for. Whatever is large is loaded then, so that a client of a
server, whose answers these are, too, does without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from whence.model.codes import Interval
from whence.model.errors import EvaluationError

if TYPE_CHECKING:
    import pandas
    import polars

    from whence.io.grid import Grid

Row = tuple[Any, ...]


class Result:
    """The answer of a statement: rows for a query, a count for INSERT, DELETE and UPDATE, a message for the rest.

    count     rows inserted, deleted or updated; of a query, its rows
    message   what a statement without rows did
    warnings  what of the message should be looked at, such as an IF NOT EXISTS that met another definition

    Iterating yields its rows, `len` counts them, and a result equals the list of its rows.

    >>> db = whence.open()
    >>> db.execute("CREATE TABLE a (x INT); INSERT INTO a VALUES (1), (2)").count
    2
    >>> result = db.query("SELECT x FROM a ORDER BY x"); result.columns, result.rows, len(result)
    (['x'], [(1,), (2,)], 2)
    >>> result.to_dicts(), result == [(1,), (2,)]
    ([{'x': 1}, {'x': 2}], True)
    >>> db.execute("DROP TABLE a").message
    'dropped a'
    """

    def __init__(
        self,
        table: pa.Table | None = None,
        *,
        message: str = "",
        count: int | None = None,
        warnings: Sequence[str] = (),
    ) -> None:
        self._table = table if table is not None else pa.table({})
        self.message, self.warnings = message, tuple(warnings)
        self.count = self._table.num_rows if count is None else count

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._table.column_names)

    @property
    def rows(self) -> list[Row]:
        """The rows as tuples of Python values."""
        return python_rows(self._table)

    @property
    def is_rows(self) -> bool:
        """Whether there is a table to show, even an empty one.

        >>> db = whence.open(); db.execute("CREATE TABLE a (x INT)").is_rows, db.query("SELECT x FROM a").is_rows
        (False, True)
        """
        return bool(self._table.num_columns)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __eq__(self, other: object) -> bool:
        return self.rows == (other.rows if isinstance(other, Result) else other)

    __hash__ = None  # type: ignore[assignment]  # equal by its rows, which may be many

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table.

        >>> whence.open().query("SELECT 1 AS x").to_arrow().num_rows
        1
        """
        return self._table

    def to_pandas(self) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame.

        >>> whence.open().query("SELECT 1 AS x").to_pandas().shape
        (1, 1)
        """
        from whence.io.rows import to_pandas

        return to_pandas(self._table)

    def to_polars(self) -> polars.DataFrame:
        """Return the rows as a polars DataFrame.

        >>> whence.open().query("SELECT 1 AS x").to_polars().shape
        (1, 1)
        """
        from whence.io.rows import to_polars

        return to_polars(self._table)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return each row as a dict by column."""
        names = self.columns
        return [dict(zip(names, row, strict=True)) for row in self.rows]

    def __rich__(self) -> Grid | str:
        from whence.io.grid import SHOWN

        return self.as_grid(SHOWN) if self.is_rows else self.message

    def _repr_html_(self) -> str:
        from whence.io import html
        from whence.io.grid import SHOWN

        if self.is_rows:
            return self.as_grid(SHOWN).html()
        return html.fragment(html.line(self.message), *(html.line(warning, "warn") for warning in self.warnings))

    def as_grid(self, limit: int) -> Grid:
        """Return a table of the first rows, to be drawn."""
        from whence.io.grid import Grid

        types = [str(field.type) for field in self._table.schema]
        return Grid(self.columns, python_rows(self._table.slice(0, limit)), len(self), types=types)

    def __repr__(self) -> str:
        from whence.io.grid import plain

        return plain(self)


def python_rows(table: pa.Table) -> list[Row]:
    """The rows of an Arrow table as tuples, intervals as ours."""
    columns = []
    for i, field in enumerate(table.schema):
        try:
            values = table.column(i).to_pylist()
        except (ValueError, OverflowError) as error:
            raise EvaluationError(f"column {field.name} holds a value that Python cannot: {error}") from None
        if field.type == pa.month_day_nano_interval():
            values = [None if v is None else Interval(v[0], v[1], v[2] // 1000) for v in values]
        columns.append(values)
    return list(zip(*columns, strict=True)) if columns else []
