"""Conditions on rows: name the rows of a table by primary key, by columns and values, by some of their columns.

A condition becomes keys of some columns, which are looked up (`WriteSet.find`), so its cost follows the rows that
match. None in a condition is IS NULL. A list, tuple, set or range is IN. Values are encoded without adding to the
dictionary: a text that it does not have is in no row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whence.engine.core.kernels.batches import number_rows
from whence.engine.core.key_lookup import among
from whence.io.rows import as_arrow, encode, folded, unknown_columns
from whence.model.codes import NULL, Codes, Dictionary, Interval, encode_value, format_value
from whence.model.errors import DataError, MissingRowError
from whence.model.types import Kind, Schema
from whence.plan.algebra.distribution import same_codes
from whence.plan.algebra.pinned import PinnedKeys
from whence.plan.algebra.program import Table, View
from whence.runtime.writing.tables import WriteSet

Values = Mapping[str, Any]
MOST = 1_000_000
"""Combinations of values that one condition may have."""


@dataclass(frozen=True)
class Condition:
    """Keys of some columns, of which a row has one; several conditions may be put together in one.

    `owner` numbers, for each key, the condition it belongs to; `known` is False for a key with a text that no row has.
    """

    cols: tuple[int, ...]
    keys: Codes
    known: NDArray[np.bool_]
    owner: Codes
    texts: Sequence[Any]

    @property
    def wanted(self) -> Codes:
        """The distinct keys that a row may have."""
        if len(self.keys) == 1 and self.known[0]:
            return self.keys
        keys = np.ascontiguousarray(self.keys[self.known])
        return keys[number_rows(keys)[1]]

    def find(self, pending: WriteSet, strict: bool = False) -> tuple[Codes, Codes]:
        """Return the distinct rows that match, and how often each is there; under `strict` every condition must."""
        rows, counts = pending.find(self.cols, self.wanted)
        if strict:
            self._check_found(rows, pending.table)
        return rows, counts

    def _check_found(self, rows: Codes, table: Table) -> None:
        met = np.zeros(len(self.texts), bool)
        hit = among(np.ascontiguousarray(self.keys), np.ascontiguousarray(rows[:, self.cols])) & self.known
        met[self.owner[hit]] = True
        if not met.all():
            given = self.texts[int(np.argmin(met))]
            raise MissingRowError(f"table {table.name}: no row with {_text(given, table)} to delete")


def by_key(key: Any, table: Table, dictionary: Dictionary) -> Condition:
    """Make the condition of a primary key, or of a list of keys; a key of several columns is a tuple or a mapping."""
    names = [table.schema.names[c] for c in table.key]
    if not names:
        raise DataError(f"table {table.name} has no primary key: name its rows by where={{column: value}}")
    given = [key] if isinstance(key, (str, bytes, tuple, Mapping)) or not hasattr(key, "__iter__") else list(key)
    rows: list[tuple[Any, ...]] = []
    for one in given:
        if isinstance(one, Mapping):
            values = _folded(one, table)
            if set(values) != set(names):
                raise DataError(
                    f"table {table.name}: a key has the columns {', '.join(names)}, not {format_value(one)}"
                )
            rows.append(tuple(values[name] for name in names))
            continue
        row = one if isinstance(one, tuple) and not isinstance(one, Interval) else (one,)
        if len(row) != len(names):
            several = " (a key is a tuple, and a list has several keys)" if len(names) > 1 else ""
            raise DataError(f"table {table.name}: {format_value(one)} is not a key ({', '.join(names)}){several}")
        rows.append(row)
    return _condition(table.key, rows, np.arange(len(rows)), rows, table, dictionary)


def check_condition(given: Collection[tuple[str, Any]], table: Table | View) -> dict[str, Any]:
    """Return columns and values by the names that a table or view has; DataError if it has no such column, or one is
    given twice."""
    if not given:
        raise _empty(table)
    return _folded_items(given, table)


def by_values(where: Values, table: Table | View, dictionary: Dictionary) -> Condition:
    """Make the condition that columns have these values, or one of the values of a list."""
    return _by_rows([where], table, dictionary)


def keys_of(values: Values, table: Table | View, dictionary: Dictionary) -> tuple[tuple[int, ...], Codes]:
    """Return the columns of checked values (`check_condition`), and the distinct keys of them that a row may have."""
    schema, key = table.schema, list[int | None]()
    cols = tuple([schema.names.index(name) for name in values])
    for column, value in zip(cols, values.values(), strict=True):
        if value.__class__ is not str or schema.types[column].kind is not Kind.TEXT:
            condition = by_values(values, table, dictionary)
            return condition.cols, condition.wanted
        key.append(dictionary.find(value))
    return cols, np.array([] if None in key else [key], np.int64).reshape(-1, len(cols))


def by_literals(pins: PinnedKeys, table: Table, dictionary: Dictionary) -> Condition | None:
    """Make the condition of what a SQL predicate restricts columns to; None if a constant is not of a column's type."""
    types = [table.schema.types[c] for c in pins.cols]
    if not all(same_codes(value.type, kind) for key in pins.values for value, kind in zip(key, types, strict=True)):
        return None
    words = Dictionary()
    codes = [[encode_value(value.value, value.type, words) for value in key] for key in pins.values]
    keys = np.array(codes, np.int64).reshape(len(codes), len(types))
    return _known(pins.cols, keys, words, np.arange(len(keys)), pins.values, table, dictionary)


def by_columns(values: Values, table: Table, dictionary: Dictionary) -> tuple[list[int], Codes]:
    """Encode new values of some columns: the positions of the columns, and a code for each."""
    given = _folded(values, table)
    columns = [table.schema.names.index(name) for name in given]
    if not columns:
        return [], np.empty(0, np.int64)
    return columns, encode([tuple(given.values())], _part(table, columns), dictionary, table.name)[0]


def deletions(data: Any, table: Table, dictionary: Dictionary) -> Iterator[Codes | Condition]:
    """Read what is to be deleted, in its order: whole rows, and conditions where only some columns are given."""
    width = len(table.schema)
    rows = [data] if isinstance(data, Mapping) else data
    columnar = None if isinstance(rows, list) else as_arrow(rows)
    if columnar is not None:
        partial = _partial(columnar, table, dictionary)
        yield partial if partial is not None else encode(columnar, table.schema, dictionary, table.name)
        return
    if isinstance(rows, tuple) and not (rows and isinstance(rows[0], (tuple, dict))):
        rows = [rows]
    if isinstance(rows, (str, bytes)) or not hasattr(rows, "__iter__") or getattr(rows, "shape", None) == ():
        yield encode(rows, table.schema, dictionary, table.name)  # says what is wrong with it
        return
    rows = rows if isinstance(rows, list) else list(rows)
    if not any(isinstance(row, Mapping) and len(row) != width for row in rows):
        yield encode(rows, table.schema, dictionary, table.name)
        return
    for names, some in groupby(rows, lambda row: _names(row, table)):
        if names is None or len(names) == width:
            yield encode(list(some), table.schema, dictionary, table.name)
        else:
            yield _by_rows(list(some), table, dictionary)


def _names(row: Any, table: Table) -> frozenset[str] | None:
    """The columns of a mapping; None for a row of another kind."""
    return frozenset(_folded(row, table)) if isinstance(row, Mapping) else None


def _partial(data: pa.Table, table: Table, dictionary: Dictionary) -> Condition | None:
    """The condition of columnar rows that lack some columns."""
    names = [folded(name, table.schema) for name in data.column_names]
    if not set(names) < set(table.schema.names) or len(set(names)) < len(names):
        return None
    if not names:
        raise _empty(table)
    cols = [table.schema.names.index(name) for name in names]
    data = data.rename_columns(names)
    return _condition(tuple(cols), data, np.arange(len(data)), _Lines(data), table, dictionary)


class _Lines(Sequence[Any]):
    """The rows of a table as mappings, made when one is asked for."""

    def __init__(self, data: pa.Table) -> None:
        self._data = data

    def __len__(self) -> int:
        return int(self._data.num_rows)

    def __getitem__(self, at: Any) -> Any:
        return self._data.slice(at, 1).to_pylist()[0]


def _by_rows(given: list[Values], table: Table | View, dictionary: Dictionary) -> Condition:
    """Make the condition of mappings that have the same columns: a row matches one of them."""
    first = _folded(given[0], table)
    if not first:
        raise _empty(table)
    names = list(first)
    cols = tuple(table.schema.names.index(name) for name in names)
    keys: list[tuple[int | None, ...]] = []
    owner: list[int] = []
    for number, one in enumerate(given):
        values = _folded(one, table) if number else first
        choices = [_codes(_choices(values[name]), table, c, dictionary) for name, c in zip(names, cols, strict=True)]
        if prod(map(len, choices)) > MOST:
            raise DataError(f"{_named(table)}: a condition of more than {MOST:,} combinations; ask for it in SQL")
        found = list(product(*choices))
        keys += found
        owner += [number] * len(found)
    known = [None not in key for key in keys]
    if not all(known):
        keys = [tuple(code or 0 for code in key) for key in keys]
    codes = np.array(keys, np.int64).reshape(len(keys), len(cols))
    return Condition(cols, codes, np.array(known, bool), np.array(owner, np.int64), given)


def _codes(values: Sequence[Any], table: Table | View, column: int, dictionary: Dictionary) -> list[int | None]:
    """Encode values of a column; those that the dictionary does not have are None."""
    type = table.schema.types[column]
    found: list[int | None] = []
    try:
        for value in values:
            if type.kind is Kind.TEXT and value.__class__ is str:
                found.append(dictionary.find(value))
            elif type.needs_dictionary:
                words = Dictionary()
                found.append(words.translated(encode_value(value, type, words), type, dictionary))
            else:
                found.append(encode_value(value, type, dictionary))
    except DataError as error:
        raise DataError(f"{_named(table)}, column {table.schema.names[column]}: {error}") from None
    return found


def _condition(
    cols: tuple[int, ...], keys: Any, owner: Codes, texts: Sequence[Any], table: Table, dictionary: Dictionary
) -> Condition:
    words = Dictionary()
    return _known(cols, encode(keys, _part(table, cols), words, table.name), words, owner, texts, table, dictionary)


def _known(
    cols: tuple[int, ...],
    codes: Codes,
    words: Dictionary,
    owner: Codes,
    texts: Sequence[Any],
    table: Table,
    dictionary: Dictionary,
) -> Condition:
    """Translate the codes of interned values in `words` into those of the dictionary, where it has them."""
    known = np.ones(len(codes), bool)
    for i, c in enumerate(cols):
        type = table.schema.types[c]
        if type.needs_dictionary and len(words):
            own = codes[:, i]
            there = own != NULL
            distinct, at = np.unique(own[there], return_inverse=True)
            found = [words.translated(code, type, dictionary) for code in distinct.tolist()]
            own[there] = np.array([NULL if code is None else code for code in found], np.int64)[at]
            known &= ~(there & (own == NULL))
    return Condition(cols, codes, known, owner, texts)


def _choices(value: Any) -> Sequence[Any]:
    """The values that a column may have."""
    listed = isinstance(value, tuple) and not isinstance(value, Interval)
    if listed or isinstance(value, (list, set, frozenset, range)) or getattr(value, "ndim", 0) == 1:
        return value.tolist() if hasattr(value, "tolist") else list(value)
    return (value,)


def _folded(values: Values, table: Table | View) -> dict[str, Any]:
    """The values by the table's own column names, which are all known."""
    if not isinstance(values, Mapping):
        raise DataError(f"{_named(table)}: expected columns and their values, not {format_value(values)}")
    return _folded_items(values.items(), table)


def _folded_items(values: Collection[tuple[str, Any]], table: Table | View) -> dict[str, Any]:
    found = {folded(name, table.schema): value for name, value in values}
    if len(found) < len(values):
        raise DataError(f"{_named(table)}: a column is given twice")
    unknown = [name for name in found if name not in table.schema.names]
    if unknown:
        raise unknown_columns(_named(table), unknown, table.schema)
    return found


def _named(table: Table | View) -> str:
    kind = "view" if isinstance(table, View) else "table" if table.stream is None else "stream"
    return f"{kind} {table.name}"


def _part(table: Table, cols: Sequence[int]) -> Schema:
    return Schema(tuple(table.schema.columns[c] for c in cols))


def _empty(table: Table | View) -> DataError:
    return DataError(
        f"{_named(table)}: a condition needs a column; without one all rows are meant, so leave the condition out"
    )


def _text(given: Any, table: Table) -> str:
    if not isinstance(given, Mapping):
        given = dict(zip((table.schema.names[c] for c in table.key), given, strict=True))
    return ", ".join(f"{name} = {format_value(value)}" for name, value in given.items())
