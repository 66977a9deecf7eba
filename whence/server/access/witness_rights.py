"""What a caller may be shown of an explanation: the witnesses all of whose base rows they may read.

The law: asking why tells a caller nothing of a row that they may not read: neither that it is there, nor that another
row stands on it. A row that is not theirs to read is not found, as one that is not there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from whence.io.rows import encode, to_tuples
from whence.model.codes import format_value
from whence.model.errors import CatalogError, DataError, WhenceError
from whence.runtime.coordinator import Coordinator
from whence.server.access.row_rights import row_test
from whence.server.access.sight import Sight
from whence.sql.position import did_you_mean

if TYPE_CHECKING:
    from whence.explain.show.explanation import BaseRow, Explanation

Row = Mapping[str, Any] | Sequence[Any] | None
_SOME = 3  # rows that match, in an error
_SEARCHED = 100  # witnesses among which those are looked for that a caller may read


def find_readable(
    coordinator: Coordinator, sight: Sight, name: str, row: Row, columns: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the one row of a relation that has some values, among those that a caller may read; empty if none."""
    names = coordinator.reader.schema(name).names
    if row is not None and not isinstance(row, Mapping):
        if isinstance(row, (str, bytes)) or len(row) != len(names):
            raise DataError(f"a row of {name} has {len(names)} values ({', '.join(names)})")
        row = dict(zip(names, row, strict=True))
    given = {str(column).lower(): value for column, value in (columns if row is None else row).items()}
    for column in given:
        if column not in names:
            raise CatalogError(f'{name} has no column "{column:.100}"{did_you_mean(column, names)}')
    if not given:
        raise DataError(f"say which row of {name} is meant, by some of its columns: {', '.join(names)}")
    with coordinator.writer, coordinator.reading():
        codes, _ = coordinator.reader.find(name, given)
        test = row_test(coordinator, name, sight.reach(name, "read"))
        codes = codes if test is None else codes[test.passing(codes)]
        found = to_tuples(codes, coordinator.reader.schema(name), coordinator.dictionary)
    if len(found) > 1:
        some = ", ".join(map(format_value, found[:_SOME]))
        raise DataError(f"{len(found):,} rows of {name} match: say more of the one that is meant, such as {some}")
    return dict(zip(names, found[0], strict=True)) if found else {}


def readable_witnesses(coordinator: Coordinator, sight: Sight, explanation: Explanation) -> list[list[BaseRow]]:
    """Return the witnesses of a row of which a caller may read every base row."""
    if not explanation.holds or sight.sees_all(explanation.view):
        return explanation.witnesses
    every = explanation
    if not explanation.complete or explanation.witness_count > len(explanation.witnesses):
        kind = type(explanation)
        every = kind(explanation.graph, explanation.view, explanation.row, explanation.epoch, limit=_SEARCHED)
    wanted: dict[str, list[dict[str, Any]]] = {}
    for witness in every.witnesses:
        for table, row in witness:
            wanted.setdefault(table, []).append(row)
    readable = {table: iter(_readable(coordinator, sight, table, rows)) for table, rows in wanted.items()}
    shown = [[next(readable[table]) for table, _ in witness] for witness in every.witnesses]
    found = [witness for witness, may in zip(every.witnesses, shown, strict=True) if all(may)]
    return found[: explanation.limit]


def _readable(coordinator: Coordinator, sight: Sight, table: str, rows: list[dict[str, Any]]) -> list[bool]:
    """Return which rows of a table a caller may read."""
    reach = sight.reach(table, "read")
    if reach.every or not reach:
        return [reach.every] * len(rows)
    with coordinator.writer, coordinator.looking():
        test, schema = row_test(coordinator, table, reach), coordinator.reader.schema(table)
        assert test is not None
        try:
            whole = [tuple(row[name] for name in schema.names) for row in rows]
            codes = encode(whole, schema, coordinator.dictionary, table)
        except (KeyError, WhenceError):  # the table has other columns by now
            return [False] * len(rows)
        return [bool(passes) for passes in test.passing(codes)]
