"""SQL types and schemas: what a column may hold and how many columns a relation has.

Every value of every type has one int64 *code* (see `codes.py`); equality of codes is equality of values within a type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property


class Kind(Enum):
    """The family of a type; the name is its SQL spelling."""

    BOOLEAN = "BOOLEAN"
    INTEGER = "INTEGER"
    BIGINT = "BIGINT"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL"
    TEXT = "TEXT"
    DATE = "DATE"
    TIMESTAMP = "TIMESTAMP"
    INTERVAL = "INTERVAL"
    NULL = "NULL"  # the type of a bare NULL, before it meets another type


@dataclass(frozen=True)
class Type:
    """A SQL type; precision and scale are used by DECIMAL only (precision at most 38), but for `INSTANT`."""

    kind: Kind
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        if self.kind is Kind.DECIMAL:
            return f"DECIMAL({self.precision},{self.scale})"
        return "TIMESTAMP WITH TIME ZONE" if self.is_zoned else str(self.kind.value)

    @property
    def is_integer(self) -> bool:
        return self.kind in (Kind.INTEGER, Kind.BIGINT)

    @property
    def is_numeric(self) -> bool:
        return self.is_integer or self.kind in (Kind.DOUBLE, Kind.DECIMAL)

    @property
    def is_zoned(self) -> bool:
        """Whether it is INSTANT: a TIMESTAMP in UTC of which AT TIME ZONE gives the local time."""
        return self.kind is Kind.TIMESTAMP and self.precision > 0

    @property
    def is_interned(self) -> bool:
        """Whether codes are positions in the dictionary, so that their order is not the order of values."""
        return self.kind in (Kind.TEXT, Kind.INTERVAL)

    @property
    def is_wide(self) -> bool:
        """Whether it is a DECIMAL of more digits than an int64 has: its largest values are interned (`wide.py`)."""
        return self.kind is Kind.DECIMAL and self.precision > NARROW_PRECISION

    @property
    def needs_dictionary(self) -> bool:
        """Whether the dictionary is needed to make a code of a value, or to order codes."""
        return self.is_interned or self.is_wide


BOOLEAN = Type(Kind.BOOLEAN)
INTEGER = Type(Kind.INTEGER)
BIGINT = Type(Kind.BIGINT)
DOUBLE = Type(Kind.DOUBLE)
TEXT = Type(Kind.TEXT)
DATE = Type(Kind.DATE)
TIMESTAMP = Type(Kind.TIMESTAMP)
INSTANT = Type(Kind.TIMESTAMP, 1)  # of expressions inside a query; a column of a table or view is a TIMESTAMP
INTERVAL = Type(Kind.INTERVAL)
NULLTYPE = Type(Kind.NULL)

NARROW_PRECISION = 18  # digits of a DECIMAL whose codes are its numbers
MAX_PRECISION = 38


def decimal(precision: int = NARROW_PRECISION, scale: int = 3) -> Type:
    """Return DECIMAL(precision, scale), with at most MAX_PRECISION digits."""
    return Type(Kind.DECIMAL, min(precision, MAX_PRECISION), scale)


_DIGITS = {Kind.BOOLEAN: 1, Kind.INTEGER: 10, Kind.BIGINT: 19}


def always_fits(source: Type, target: Type) -> bool:
    """Return whether every value of a type can be cast to another.

    >>> always_fits(INTEGER, DOUBLE), always_fits(INTEGER, decimal(14, 4)), always_fits(INTEGER, decimal(6, 2))
    (True, True, False)
    """
    if source == target or target.kind is Kind.TEXT:
        return True
    match source.kind:
        case Kind.NULL:
            return True
        case Kind.BOOLEAN | Kind.INTEGER | Kind.BIGINT | Kind.DECIMAL:
            digits = source.precision - source.scale if source.kind is Kind.DECIMAL else _DIGITS[source.kind]
            if target.kind is Kind.DECIMAL:
                return target.precision - target.scale >= digits and target.scale >= source.scale
            wider = target.is_integer and source.kind is not Kind.DECIMAL and _DIGITS[target.kind] >= digits
            return wider or target.kind in (Kind.DOUBLE, Kind.BOOLEAN)
        case Kind.DATE | Kind.TIMESTAMP:
            return target.kind in (Kind.DATE, Kind.TIMESTAMP)
    return False


@dataclass(frozen=True)
class Column:
    """A named, typed column."""

    name: str
    type: Type
    nullable: bool = True


@dataclass(frozen=True)
class Schema:
    """The columns of a relation, in order.

    >>> Schema((Column("src", TEXT), Column("cost", INTEGER))).names
    ('src', 'cost')
    """

    columns: tuple[Column, ...]

    def __len__(self) -> int:
        return len(self.columns)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)

    @cached_property
    def is_whole(self) -> bool:
        """Whether all columns, one at least, are of whole numbers: their codes are their values."""
        return bool(self.columns) and all(column.type.is_integer for column in self.columns)

    @cached_property
    def types(self) -> tuple[Type, ...]:
        return tuple(c.type for c in self.columns)

    @cached_property
    def required(self) -> tuple[int, ...]:
        """The positions of columns that are NOT NULL."""
        return tuple(i for i, c in enumerate(self.columns) if not c.nullable)

    def advise(self, names: Sequence[str] = ()) -> str:
        """Return what an error about columns of these names, or about their number, should add."""
        return ""

    def __str__(self) -> str:
        return "(" + ", ".join(f"{c.name} {c.type}" for c in self.columns) + ")"


class WrittenSchema(Schema):
    """The columns that writers of a stream give: without the one that is filled in when their transaction ends."""

    filled: str

    @classmethod
    def without(cls, schema: Schema, column: int) -> WrittenSchema:
        """Return a schema without one of its columns.

        >>> found = WrittenSchema.without(Schema((Column("x", TEXT), Column("at", TIMESTAMP))), 1)
        >>> print(found, found.advise(["at"]))
        (x TEXT) ; at is tick_time(): it is filled in when the transaction ends, so leave it out
        """
        found = cls(schema.columns[:column] + schema.columns[column + 1 :])
        object.__setattr__(found, "filled", schema.columns[column].name)
        return found

    def advise(self, names: Sequence[str] = ()) -> str:
        if names and self.filled not in (name.lower() for name in names):
            return ""
        return f"; {self.filled} is tick_time(): it is filled in when the transaction ends, so leave it out"
