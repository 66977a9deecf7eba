"""What if: the changes that some writes would bring to every view, and nothing changed.

The law: the answer is what `db.changes` would tell of the epoch, were it committed now on a copy of the database. It is
run as any epoch is, and undone before any reader can see it: no number rises, nothing is logged, no feed hears of it,
and values that only the supposed rows bring do not stay in the dictionary (except with partitions in Spark's workers,
which have learned them). An error says what committing it would have said.

Cost: the epoch and its inverse, during which other writers and readers wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whence.engine.core.operator import Batch
from whence.io import html
from whence.io.arrow import arrow_schema
from whence.io.grid import SHOWN, Grid, plain, text_of
from whence.io.rows import Missing, to_arrow
from whence.model.codes import Codes, format_value
from whence.model.errors import CatalogError, DataError
from whence.model.types import Schema
from whence.runtime import statements
from whence.runtime.reading.handles import Row, python_rows
from whence.runtime.writing import row_selection as writing
from whence.runtime.writing.tables import early_choice
from whence.runtime.writing.transaction import Transaction
from whence.sql.parameters import Params, divide_parameters
from whence.sql.parse import parse

if TYPE_CHECKING:
    import rich.console
    import rich.text

    from whence.runtime.coordinator import Coordinator

Encode = Callable[[Any, Schema, str, Missing], Codes]
Fetch = Callable[[Any, str], Iterable[Any]]


@dataclass(frozen=True)
class Difference:
    """What a table or view would change by: rows that would come, and rows that would go, copies counted. True if there
    are any; `len` counts them.

    name           the table or view
    columns        the names of its columns
    coming, going  the rows as Arrow tables

    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", [(1,), (2,)])
    >>> found = db.what_if(insert={"a": [(3,)]}, delete={"a": [(2,)]}).tables["a"]
    >>> found.inserted, found.deleted, len(found)
    ([(3,)], [(2,)], 2)
    >>> found.to_dict()
    {'deleted': [{'x': 2}], 'inserted': [{'x': 3}]}
    >>> found.to_arrow().to_pylist()
    [{'x': 2, 'whence_op': '-'}, {'x': 3, 'whence_op': '+'}]
    """

    name: str
    coming: pa.Table
    going: pa.Table

    @property
    def columns(self) -> list[str]:
        return list(self.coming.column_names)

    @cached_property
    def inserted(self) -> list[Row]:
        """The rows that would come, sorted."""
        return python_rows(self._inserted)

    @cached_property
    def deleted(self) -> list[Row]:
        """The rows that would go, sorted."""
        return python_rows(self._deleted)

    @cached_property
    def _inserted(self) -> pa.Table:
        return _sorted(self.coming)

    @cached_property
    def _deleted(self) -> pa.Table:
        return _sorted(self.going)

    def __len__(self) -> int:
        """Count the rows that would come or go."""
        return int(self.coming.num_rows + self.going.num_rows)

    def __bool__(self) -> bool:
        return len(self) > 0

    def to_arrow(self) -> pa.Table:
        """Return the rows that would go, then those that would come, with a last column `whence_op` of '-' and '+'."""
        signs = pa.array(["-"] * self.going.num_rows + ["+"] * self.coming.num_rows, pa.string())
        return pa.concat_tables([self.going, self.coming]).append_column("whence_op", signs)

    def to_dict(self) -> dict[str, list[dict[str, Any]]]:
        """Return the rows that would go and those that would come, as dicts."""
        names = self.columns
        return {
            what: [dict(zip(names, row, strict=True)) for row in rows]
            for what, rows in (("deleted", self.deleted), ("inserted", self.inserted))
        }

    def lines(self, limit: int = SHOWN) -> Iterator[rich.text.Text]:
        """Yield a diff: its name and how much changes, then at most `limit` rows."""
        import rich.text

        from whence.explain.show.tree import printable

        counts = f"  {self.going.num_rows:,} gone, {self.coming.num_rows:,} new"
        yield rich.text.Text.assemble((self.name, "bold"), (counts, "dim"))
        for sign, row in self._first(limit):
            text = printable(f"  {sign} " + "  ".join(text_of(v) for v in row))
            yield rich.text.Text(text, style="red" if sign == "-" else "green")
        if len(self) > limit:
            yield rich.text.Text(f"  … {len(self) - limit:,} more", style="dim")

    def _first(self, limit: int) -> Iterator[tuple[str, Row]]:
        """Yield the first rows, those that would go before those that would come, each with its sign."""
        gone = self._deleted.slice(0, limit)
        for sign, rows in (("-", gone), ("+", self._inserted.slice(0, limit - gone.num_rows))):
            yield from ((sign, row) for row in python_rows(rows))

    def _repr_html_(self) -> str:
        return html.fragment(self._html())

    def _html(self) -> str:
        """Write a table of the rows that would go and come, as a part of something larger."""
        some = list(self._first(SHOWN))
        more = f"; the first {SHOWN:,} are shown" if len(self) > SHOWN else ""
        grid = Grid(
            ["", *self.columns],
            [("−" if sign == "-" else sign, *row) for sign, row in some],
            len(self),
            caption=f"{self.going.num_rows:,} gone, {self.coming.num_rows:,} new{more}",
            types=["", *(str(kind) for kind in self.coming.schema.types)],
            signs=[sign for sign, _ in some],
        )
        return html.folded(self.name, grid.html_table())


class WhatIf(Mapping[str, Difference]):
    """The changes of the views that were asked about (`Database.what_if`), a mapping from names to `Difference`s. True
    if any changes.

    epoch   the epoch after which the writes were supposed
    tables  the changes of the tables, by name

    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT); CREATE VIEW b AS SELECT DISTINCT x FROM a")
    >>> _ = db.insert("a", [(1,), (2,)])
    >>> what = db.what_if(insert={"a": [(1,), (3,)]}, delete={"a": [(2,)]})
    >>> what["b"].inserted, what["b"].deleted, len(db["a"]), db.epoch
    ([(3,)], [(2,)], 2, 1)
    >>> print(what)
    a  1 gone, 2 new
      - 2
      + 1
      + 3
    b  1 gone, 1 new
      - 2
      + 3
    >>> [change.name for change in what.changed], what.to_dict()["views"]
    (['a', 'b'], {'b': {'deleted': [{'x': 2}], 'inserted': [{'x': 3}]}})
    >>> what.to_arrow()["b"].num_rows, what.to_html("what.html")[:15]
    (2, '<!doctype html>')
    >>> print(what.text(limit=1).plain.splitlines()[1:3])
    ['  - 2', '  … 2 more']
    """

    def __init__(self, epoch: int, tables: Mapping[str, Difference], views: Mapping[str, Difference]) -> None:
        self.epoch, self.tables, self._views = epoch, tables, views

    def __getitem__(self, view: str) -> Difference:
        return self._views[view.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)

    def __bool__(self) -> bool:
        return bool(self.changed)

    @property
    def changed(self) -> list[Difference]:
        """Return the tables, and then the views, that would change."""
        return [change for change in (*self.tables.values(), *self._views.values()) if change]

    def to_arrow(self) -> dict[str, pa.Table]:
        """Return a table for each table and view that would change."""
        return {change.name: change.to_arrow() for change in self.changed}

    def to_dict(self) -> dict[str, Any]:
        """Return everything that would change: `{"epoch": 7, "tables": {name: {"deleted": [row], "inserted": [row]}},
        "views": …}`, rows as dicts."""
        return {
            "epoch": self.epoch,
            "tables": {name: change.to_dict() for name, change in self.tables.items() if change},
            "views": {name: change.to_dict() for name, change in self._views.items() if change},
        }

    def to_html(self, path: str | Path | None = None) -> str:
        """Write one page with a table for each change; to `path` if that is given."""
        from whence.explain.show.page import write_out
        from whence.explain.show.table_page import changes_page

        changes = [(c.name, c.name in self.tables, c.columns, c.deleted, c.inserted) for c in self.changed]
        return write_out(changes_page(changes, self.epoch), path)

    def text(self, limit: int = SHOWN) -> rich.text.Text:
        """Write a diff, at most `limit` rows of each."""
        import rich.text

        lines = [line for change in self.changed for line in change.lines(limit)]
        return rich.text.Text("\n").join(lines) if lines else rich.text.Text("nothing would change")

    def __rich__(self) -> rich.console.RenderableType:
        return self.text()

    def _repr_html_(self) -> str:
        head = f"what if, after epoch {self.epoch:,}: {'these' if self else 'nothing'} would change"
        return html.fragment(html.line(head, "title"), *(change._html() for change in self.changed))

    def __str__(self) -> str:
        return str(self.text())

    def __repr__(self) -> str:
        return plain(self)


@dataclass(frozen=True)
class Writes:
    """What is supposed: in this order a script, deletions, updates, insertions."""

    sql: str = ""
    params: Params | None = None
    insert: Mapping[str, Any] | None = None
    delete: Mapping[str, Any] | None = None
    update: Mapping[str, Any] | None = None
    strict: bool = False
    missing: Missing = "error"

    def checked(self) -> Writes:
        for what, given in (("insert", self.insert), ("delete", self.delete), ("update", self.update)):
            if given is not None and not isinstance(given, Mapping):
                raise DataError(f"what_if: {what} is a dict of tables and their rows, not {format_value(given)}")
        return self

    def conditions(self) -> list[str]:
        """Return the conditions in SQL among the deletions and updates, in their order."""
        found: list[Any] = list((self.delete or {}).values())
        for table, given in (self.update or {}).items():
            found += [where for _, where in _updates(given, format_value(table))]
        return [condition for condition in found if isinstance(condition, str)]


def suppose(
    coordinator: Coordinator, writes: Writes, encode: Encode, fetch: Fetch, views: Iterable[str] | None = None
) -> WhatIf:
    """Compute what some writes would change, in these views or in all of them; `fetch` reads rows that are in files."""
    writes = writes.checked()
    script, params = _with_values(coordinator, writes)
    asked = _asked(coordinator, views)

    def write(transaction: Transaction) -> None:
        for statement in script:
            statement(transaction)
        early = early_choice(None, writes.strict)
        for table, rows in (writes.delete or {}).items():
            pending = transaction.table(_name(table))
            if isinstance(rows, str):
                writing.delete_where(pending, rows, None, coordinator, early, params[rows])
            else:
                writing.delete(
                    pending,
                    writing.read_deletions(fetch(rows, pending.table.name), pending.table, coordinator),
                    coordinator,
                    early,
                )
        for table, given in (writes.update or {}).items():
            pending = transaction.table(_name(table))
            for values, where in _updates(given, pending.table.name):
                values_of = params[where] if isinstance(where, str) else None
                writing.update(pending, values, where, coordinator, None, values_of)
        for table, rows in (writes.insert or {}).items():
            pending = transaction.table(_name(table))
            pending.insert(encode(rows, pending.table.written, pending.table.name, writes.missing))

    def tell(changes: Mapping[str, Batch]) -> WhatIf:
        found = {name: _change(coordinator, name, changes.get(name)) for name in (*coordinator.program.tables, *asked)}
        tables = {name: found.pop(name) for name in coordinator.program.tables}
        return WhatIf(coordinator.epoch, {name: change for name, change in tables.items() if change}, found)

    return coordinator.dry_run(write, {*asked, *coordinator.program.tables}, tell)


def _with_values(coordinator: Coordinator, writes: Writes) -> tuple[list[statements.Write], dict[str, Params | None]]:
    """Return the script's statements, with values for their parameters, and the values for each condition in SQL."""
    conditions = list(dict.fromkeys(writes.conditions()))
    script = [parameter for statement in parse(writes.sql) for parameter in statement.parameters]
    own, *values = divide_parameters([script, *map(writing.parameters_of, conditions)], writes.params)
    return statements.writes_of(coordinator, writes.sql, own), dict(zip(conditions, values, strict=True))


def _asked(coordinator: Coordinator, views: Iterable[str] | None) -> Collection[str]:
    if views is None:
        return coordinator.reader.views()
    names = [_name(view) for view in ([views] if isinstance(views, str) else views)]
    for name in names:
        coordinator.reader.schema(name)
        if name in coordinator.program.tables:
            raise CatalogError(f'"{name}" is a table: what_if tells of tables anyway')
    return dict.fromkeys(names)


def _change(coordinator: Coordinator, name: str, batch: Batch | None) -> Difference:
    schema = coordinator.reader.schema(name)
    none = arrow_schema(schema).empty_table()
    if batch is None:
        return Difference(name, none, none)
    change = coordinator.reader.visible(name, batch)
    rows, counts = change.rows, change.ann

    def some(sign: int) -> pa.Table:
        mine = np.sign(counts) == sign
        return to_arrow(rows[mine], np.abs(counts[mine]), schema, coordinator.dictionary) if mine.any() else none

    return Difference(name, some(1), some(-1))


def _updates(given: Any, table: str) -> Iterator[tuple[Mapping[str, Any], Any]]:
    """Yield pairs of new values and where, given one or a list of them."""
    for one in given if isinstance(given, list) else [given]:
        if isinstance(one, Mapping):
            yield one, None
        elif isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], Mapping):
            yield one
        else:
            raise DataError(f"table {table}: an update is a pair of new values and where, not {format_value(one)}")


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise CatalogError(f"a name is text, not {type(name).__name__}")
    return name.lower()


def _sorted(rows: pa.Table) -> pa.Table:
    """Sort rows by their values, NULLs last."""
    keys = [(name, "ascending") for name in rows.column_names]
    try:
        return rows.take(pc.sort_indices(rows, sort_keys=keys))
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):  # intervals
        values = python_rows(rows)
        by = sorted(range(len(values)), key=lambda i: [(v is None, 0 if v is None else v) for v in values[i]])
        return rows.take(pa.array(by, pa.int64()))
