"""Rows as people type them: `src=A dst=B`, `link:A,B`, `link:{"src": "A"}`, `link:@file.csv`."""

from __future__ import annotations

import csv
import json
from typing import Any

import typer

import whence
from whence.model.errors import CatalogError, DataError
from whence.model.paths import local_path
from whence.model.types import BIGINT, Kind, Schema, Type


def row_of(db: whence.Database, view: str, texts: list[str] | None) -> dict[str, Any]:
    """Return the columns and values that `src=A dst=B` stands for."""
    schema = db[view].schema
    found: dict[str, Any] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r} is not COLUMN=VALUE", param_hint="the row")
        if name.lower() == "tid" and "tid" not in schema.names:  # of a stream; of others `why` says that there is none
            found["tid"] = value_of(value, BIGINT, name)
            continue
        if name.lower() not in schema.names:
            raise CatalogError(f"{view} has no column {name}; it has {', '.join(schema.names)}")
        found[name.lower()] = value_of(value, schema.types[schema.names.index(name.lower())], name)
    return found


def value_of(text: str, type: Type, name: str) -> Any:
    """Parse a text as a value of a column: NULL, JSON text in quotes, or as CAST reads it.

    >>> from whence.model.types import INTEGER, TEXT
    >>> value_of("7", INTEGER, "n"), value_of("NULL", TEXT, "t"), value_of('"NULL"', TEXT, "t")
    (7, None, 'NULL')
    """
    from whence.model.text import from_text

    if text == "NULL":
        return None
    if type.kind is Kind.TEXT:
        if text.startswith('"'):
            try:
                quoted = json.loads(text)
            except ValueError:
                return text
            return quoted if isinstance(quoted, str) else text
        return text
    try:
        return from_text(text, type)
    except (ValueError, ArithmeticError):
        raise DataError(f"column {name}: {text!r} cannot be read as {type}") from None


def tables_of(db: whence.Database, option: str, texts: list[str] | None) -> dict[str, Any]:
    """Return the rows per table that `link:A,B` and the like stand for."""
    found: dict[str, list[Any]] = {}
    for text in texts or []:
        table, colon, row = text.partition(":")
        if not colon:
            raise typer.BadParameter(f"{text!r} is not TABLE:ROW", param_hint=option)
        schema = db[table].schema
        if table.lower() not in (*db.tables, *db.streams):
            raise CatalogError(f'"{table}" is a view; only tables and streams are written to')
        found.setdefault(table.lower(), []).extend(rows_of(row, schema, table))
    return found


def rows_of(text: str, schema: Schema, table: str) -> list[Any]:
    """Parse a text into rows: those of a file, a JSON value, or one line of CSV, where nothing is NULL.

    >>> from whence.model.types import Column, INTEGER, TEXT
    >>> schema = Schema((Column("src", TEXT), Column("cost", INTEGER)))
    >>> rows_of("A,3", schema, "link"), rows_of('["A", 3]', schema, "link"), rows_of('{"src": "A"}', schema, "link")
    ([('A', 3)], [['A', 3]], [{'src': 'A'}])
    """
    if text.startswith("@"):
        from whence.io.files import read

        return [row for part in read(local_path(text[1:]), schema, by_columns=True) for row in part.to_pylist()]
    if text.startswith(("[", "{")):
        try:
            return [json.loads(text)]
        except ValueError as error:
            raise DataError(f"table {table}: {text:.80} is not JSON: {error}") from None
    (values,) = csv.reader([text], strict=False) if text else [[""]]
    if len(values) != len(schema):
        raise DataError(f"table {table}: {len(values)} values for the {len(schema)} columns {schema}")
    return [tuple(value_of(v or "NULL", c.type, c.name) for v, c in zip(values, schema.columns, strict=True))]
