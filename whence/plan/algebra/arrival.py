"""The hidden column of streams in plans: `$at`, when a row arrived, counted over all streams of the database."""

from __future__ import annotations

from whence.model.types import BIGINT, Column, Schema

AT = "$AT"  # `$at`; users' names are all in small letters, so that none is this one
ARRIVAL = "$ARRIVAL"  # the same as a column of a relation: what FIRST and LAST go by
AT_COLUMN = Column(AT, BIGINT, nullable=False)


def with_at(schema: Schema) -> Schema:
    """Return a stream's schema in a network."""
    return Schema((*schema.columns, AT_COLUMN))


def with_arrival(schema: Schema) -> Schema:
    """Return the columns of a stream in a network as those of a relation that has the rows' arrival as its last one."""
    return Schema((*schema.columns[:-1], Column(ARRIVAL, BIGINT, nullable=False)))


def has_at(schema: Schema) -> bool:
    """Return whether it is the schema of a stream in a network."""
    return AT in schema.names[-1:]


def without_at(schema: Schema) -> Schema:
    """Return a stream's schema as users see it."""
    return Schema(schema.columns[:-1]) if has_at(schema) else schema
