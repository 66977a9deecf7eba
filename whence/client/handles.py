"""Handles on tables, streams and views of a served database: every call reads what is committed then."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whence.io.results import Result, Row
from whence.model.codes import format_value
from whence.model.errors import DataError
from whence.model.types import Schema

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow as pa

    from whence.client.async_reader import AsyncReader
    from whence.client.reader import ServedReader
    from whence.io.grid import Grid


def _narrowed(known: Mapping[str, Any], values: Any, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that rows must have, with more of them."""
    if values is not None and not isinstance(values, Mapping):
        raise DataError(
            f'where takes columns and their values, such as where(who="ada"), not {format_value(values)}; '
            "a condition in SQL is a query"
        )
    found = dict(known)
    for name, value in [*(values or {}).items(), *columns.items()]:
        if name in found:
            raise DataError(f"column {name!s:.80} is given twice")
        found[name] = value
    return found


def _as_values(row: object, schema: Schema) -> dict[str, Any] | None:
    """Return a whole row as columns and their values; None if it is not one."""
    if isinstance(row, Mapping):
        by_name = {str(name).lower(): value for name, value in row.items()}
        return by_name if set(by_name) == set(schema.names) else None
    if isinstance(row, (tuple, list)) and len(row) == len(schema):
        return dict(zip(schema.names, row, strict=True))
    return None


class AsyncHandle:
    """A table, stream or view of a served database by name (`client["name"]`), or those of its rows that `where` names;
    what a `RemoteHandle` has as attributes are methods to be awaited here. `async for` yields the rows."""

    def __init__(self, reader: AsyncReader, name: str, values: Mapping[str, Any] | None = None) -> None:
        self.name, self._reader, self._values = name, reader, dict(values or {})

    def where(self, values: Mapping[str, Any] | None = None, /, **columns: Any) -> AsyncHandle:
        """Return a handle of the rows that have these values: None is IS NULL, a list, tuple or set is IN."""
        return AsyncHandle(self._reader, self.name, _narrowed(self._values, values, columns))

    async def read(self) -> Result:
        """Return the rows as they are now."""
        return await self._reader.read(self.name, self._values)

    async def rows(self) -> list[Row]:
        """Return the rows as tuples."""
        return (await self.read()).rows

    async def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return (await self.read()).to_arrow()

    async def to_dicts(self) -> list[dict[str, Any]]:
        """Return each row as a dict by column."""
        return (await self.read()).to_dicts()

    async def count(self) -> int:
        """Return how many rows there are."""
        return await self._reader.count_rows(self.name, self._values)

    async def contains(self, row: object) -> bool:
        """Return whether a row is there."""
        schema = await self.schema()
        values = _as_values(row, schema)
        if values is None or any(isinstance(value, (list, set, frozenset)) for value in values.values()):
            return False
        try:
            narrowed = dict(self._values)
            if any(name in narrowed for name in values):
                found = await self._reader.read(self.name, narrowed)
                return tuple(values[name] for name in schema.names) in found.rows
            return await self._reader.count_rows(self.name, narrowed | values) > 0
        except DataError:
            return False

    async def schema(self) -> Schema:
        """Return the columns as they are now."""
        return await self._reader.schema_of(self.name)

    async def columns(self) -> list[str]:
        """Return the names of the columns."""
        return list((await self.schema()).names)

    async def __aiter__(self) -> AsyncIterator[Row]:
        for row in await self.rows():
            yield row


class RemoteHandle:
    """A table, stream or view of a served database by name (`client["name"]`), or those of its rows that `where` names,
    with the attributes of a local `Handle`. Every call asks the server.

    name  the name, in lower case
    """

    def __init__(self, reader: ServedReader, handle: AsyncHandle) -> None:
        self._reader, self._handle = reader, handle
        self.name = handle.name

    def where(self, values: Mapping[str, Any] | None = None, /, **columns: Any) -> RemoteHandle:
        """Return a handle of the rows that have these values: None is IS NULL, a list, tuple or set is IN."""
        return RemoteHandle(self._reader, self._handle.where(values, **columns))

    def _read(self) -> Result:
        return self._reader._run(self._handle.read())

    @property
    def schema(self) -> Schema:
        """The columns as they are now, since a view may be replaced: `names`, `types`, and as text SQL."""
        return self._reader._run(self._handle.schema())

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.schema.names)

    @property
    def rows(self) -> list[Row]:
        """The rows as tuples of Python values, in no particular order; those of a stream in theirs."""
        return self._read().rows

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self._read().to_arrow()

    def to_pandas(self) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame."""
        return self._read().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """Return the rows as a polars DataFrame."""
        return self._read().to_polars()

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return each row as a dict by column."""
        return self._read().to_dicts()

    def write(self, path: str | Path) -> None:
        """Write the rows to a CSV, JSON lines or Parquet file of this machine, by the name's ending."""
        from whence.io import files

        files.write(self.to_arrow(), path)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return self._reader._run(self._handle.count())

    def __contains__(self, row: object) -> bool:
        return self._reader._run(self._handle.contains(row))

    def _grid(self) -> Grid:
        from whence.io.grid import SHOWN, Grid

        found, types = self._read(), [str(one) for one in self.schema.types]
        return Grid(found.columns, found.rows[:SHOWN], len(found), self.name, types=types)

    def __rich__(self) -> Grid:
        return self._grid()

    def _repr_html_(self) -> str:
        return self._grid().html()

    def __repr__(self) -> str:
        from whence.io.grid import plain

        return plain(self)
