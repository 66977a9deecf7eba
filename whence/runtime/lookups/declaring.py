"""The table of a lookup, as `db.create_lookup` says it."""

from __future__ import annotations

from collections.abc import Mapping

from whence.model.errors import SqlError, WhenceError
from whence.sql import statements as st
from whence.sql.parse import parse


def declaration(name: str, key: str, returns: str, options: Mapping[str, str]) -> st.CreateTable:
    """Return the CREATE TABLE of a lookup. `key` and `returns` are types, or columns with their types.

    >>> declaration("rate", "TEXT", "DOUBLE", {"memory": "300 rows"}).table.sql
    'CREATE TABLE IF NOT EXISTS "rate" (key TEXT PRIMARY KEY, value DOUBLE) WITH (memory = \\'300 rows\\')'
    >>> declaration("rate", "paid TEXT", "euro DOUBLE, at DATE", {"memory": "300 rows"}).table.schema.names
    ('paid', 'euro', 'at')
    """
    quoted = name.replace('"', '""')
    said = ", ".join(f"{option} = '{str(value).replace(chr(39), 2 * chr(39))}'" for option, value in options.items())
    failure: SqlError | None = None
    for first in (f"key {key}", key):
        for others in (f"value {returns}", returns):
            sql = f'CREATE TABLE IF NOT EXISTS "{quoted}" ({first} PRIMARY KEY, {others}) WITH ({said})'
            try:
                (found,) = parse(sql)
            except SqlError as error:
                failure = failure or error
                continue
            assert isinstance(found, st.CreateTable)
            return found
    assert failure is not None
    if failure.text is not None and "WITH" in str(failure):
        raise failure
    raise WhenceError(f"key and returns are types, or columns with their types: {failure}") from failure
