"""What is known of a relation, as data: a small program over one row of it and the horizons of its sources.

A **source** is a stream or table that the relation is made of, with what it promises. A **branch** describes rows by
the source rows they are made of: each column as a term over these, and conditions. It describes at least all rows that
there are, so a row can come, change or go only if some branch, with one source row that is still to come, gives its
values. A **growth** is the branches of one sub-plan, and the columns of the row that say which of its rows is meant:
if none of the branches is possible any more, it is closed, and everything that depends on it alone is final.

A **term** says what a column or a condition can become, leaves first:

| term | what it stands for |
|---|---|
| `LiteralTerm` | a value |
| `Shown` | a column of the row that does not change |
| `Growing` | a column of the row that may change until its growth is closed, and how |
| `Doubt` | TRUE now; it may become FALSE until its growth is closed |
| `Padded` | a column of the optional side of an outer join, NULL while that has no row |
| `Variable` | in branches: a column of a source row |
| `Unknown` | in branches: anything between two bounds |
| `Operation` | an operation on terms |

All of it is frozen, compares by value, and can be written as JSON and msgpack. Constants are plain values.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Literal

from msgspec import Struct

from whence.model.codes import Interval
from whence.plan.knowledge.bounds import Bounds

KeyTest = Literal["=", "not after", "not after, nulls first"]
"""How a value that comes compares with that of a row: it is equal, or not after it in ascending order."""

Function = Literal["asof", "up", "down", "within", "count", "sum", "avg", "min", "max"]


class LiteralTerm(Struct, frozen=True, tag_field="is", tag="="):
    """A value of a type; `plain` is as `plain_constant` writes it."""

    type: str
    plain: Any

    @property
    def value(self) -> Any:
        """The Python value."""
        if self.plain is None:
            return None
        read = _READ.get(self.type.partition("(")[0])
        return self.plain if read is None else read(self.plain)


class Shown(Struct, frozen=True, tag_field="is", tag="row"):
    """A column of the row that does not change."""

    type: str
    index: int


class Growing(Struct, frozen=True, tag_field="is", tag="grows"):
    """A column of the row that may change until its growth is closed: aggregates as they do (`argument` counts the
    growth's arguments), others up, down, or in any way."""

    type: str
    index: int
    function: Function
    growth: int
    argument: int | None = None


class Doubt(Struct, frozen=True, tag_field="is", tag="doubt"):
    """TRUE now; it may become FALSE until its growth is closed."""

    type: str
    growth: int


class Padded(Struct, frozen=True, tag_field="is", tag="padded"):
    """What `term` is if the column `matched` of the row is not NULL; else NULL, or later what `fresh` allows."""

    type: str
    matched: int
    term: Term
    fresh: Unknown
    growth: int


class Variable(Struct, frozen=True, tag_field="is", tag="var"):
    """A column of the source row that is number `base` of a branch."""

    type: str
    base: int
    column: int


class Unknown(Struct, frozen=True, tag_field="is", tag="any"):
    """Anything between two plain values of the type."""

    type: str
    low: Any = None
    high: Any = None
    null: bool = True

    @property
    def bounds(self) -> Bounds:
        """What it may be."""
        return Bounds(LiteralTerm(self.type, self.low).value, LiteralTerm(self.type, self.high).value, self.null)


class Operation(Struct, frozen=True, tag_field="is", tag="call"):
    """An operation of `plan/algebra/expressions.py`, or cast, try_cast, case (conditions and values, the default), or
    `difference`: a - b, where b is at most a."""

    type: str
    op: str
    args: tuple[Term, ...]


Term = LiteralTerm | Shown | Growing | Doubt | Padded | Variable | Unknown | Operation


class SourceColumn(Struct, frozen=True):
    """A column of a source, and which values are promised (plain)."""

    type: str
    low: Any = None
    high: Any = None
    null: bool = True


class SourceFacts(Struct, frozen=True):
    """A stream whose promises count, or something of which anything may come at any time."""

    name: str
    columns: tuple[SourceColumn, ...] = ()
    ordered: int | None = None
    column_name: str = ""  # of the ordered column, for people
    key_name: str = ""  # of the columns of a key that is closed, for people
    strictly: bool = False
    closes: tuple[int, ...] = ()
    is_stream: bool = True
    checks: tuple[Term, ...] = ()  # over several columns, of base 0


class Branch(Struct, frozen=True):
    """Rows made of one row of each of `bases` (numbers of sources). `keys` are terms of the growth's columns.
    `single`: each row of the base makes at most one row. `new`: which of the bases count if a row of them comes; None
    for all."""

    bases: tuple[int, ...]
    keys: tuple[Term, ...] = ()
    where: tuple[Term, ...] = ()
    arguments: tuple[Term | None, ...] = ()
    single: bool = False
    new: tuple[int, ...] | None = None


class Growth(Struct, frozen=True):
    """What may still come to some rows: those whose `columns` have the values of this row; with `tests`, one per
    column, those whose values compare so with the values of this row."""

    columns: tuple[int, ...]
    branches: tuple[Branch, ...]
    tests: tuple[KeyTest, ...] = ()


class RelationKnowledge(Struct, frozen=True):
    """What the rows of a relation can still become. Columns are counted over the row and, behind it, its `extras`.

    `cells` says it of each column, `presence` whether a row that is there stays. `key` are the columns that identify a
    row while others change; `growth` is that of the whole relation, by its key. With `returns` a row that went may come
    again. `text` is what DESCRIBE says of each column."""

    columns: tuple[str, ...]
    cells: tuple[Term, ...]
    presence: tuple[Term, ...]
    key: tuple[int, ...]
    growth: int
    growths: tuple[Growth, ...]
    sources: tuple[SourceFacts, ...]
    returns: bool
    text: tuple[str, ...]
    extras: tuple[tuple[str, str], ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether nothing is claimed beyond "as of"."""
        return set(self.text) <= {"as of"} and not any(map(_is_bounded, self.cells))


def _is_bounded(term: Term) -> bool:
    """Return whether something in a term may have bounds before it is final."""
    match term:
        case Growing():
            return term.function != "asof"
        case Padded():
            return _is_bounded(term.term)
        case Operation():
            return any(map(_is_bounded, term.args))
    return False


def plain_constant(value: Any) -> Any:
    """Return a Python value as JSON and msgpack have it.

    >>> plain_constant(Decimal("2.50")), plain_constant(dt.date(2026, 11, 17)), plain_constant(True)
    ('2.50', '2026-11-17', True)
    """
    match value:
        case Decimal():
            return f"{value:f}"
        case dt.datetime() | dt.date():
            return value.isoformat()
        case Interval():
            return f"{value.months} {value.days} {value.micros}"  # text: terms are hashed, and lists are not
        case float() if value - value != 0:
            return repr(value)
        case int() if not isinstance(value, bool) and not -(2**53) <= value <= 2**53:
            return str(value)
    return value


_READ: dict[str, Callable[[Any], Any]] = {
    "INTEGER": int,
    "BIGINT": int,
    "DOUBLE": float,
    "DECIMAL": Decimal,
    "DATE": dt.date.fromisoformat,
    "TIMESTAMP": dt.datetime.fromisoformat,
    "TIMESTAMP WITH TIME ZONE": dt.datetime.fromisoformat,
    "INTERVAL": lambda text: Interval(*map(int, text.split())),
}
