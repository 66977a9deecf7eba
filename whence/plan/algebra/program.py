"""A bound program: the tables, functions and views of a database, as the binder leaves them for the planner."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from whence.model.errors import CatalogError
from whence.model.types import Schema, Type, WrittenSchema
from whence.plan.algebra.logical import Node
from whence.plan.promises import NO_PROMISES, Domain, Promises, domain_of
from whence.plan.streams.model import DEFAULT_RETENTION, MemoryLimit, Retention

STREAM_FUNCTIONS = ("slide", "latest", "bsort", "provenance", "late", "numbered", "owed")  # in FROM, built in
_TRANSIENT = "$subscription_"  # begins the names of views of subscriptions
_ORDERED = "$ordered_"  # begins the names of ordered twins of sources
_TEMPLATE = "$template_"  # begins the names of the views of templates
_RESULT = "$result_"  # begins the names of results of sources, and of the promise twins that belong to them
INTERNAL = ("$sources", "$reflects", "$ticks", "$released")
"""The tables of a broker that only it sees (`runtime/sources/reflected.py`)."""
MOVED = "$moved"
"""The table of views that are at another server now (`runtime/moved_views.py`)."""

_APART = "\0id "  # between the view of a template and the id of a subscription
_OWED = "\0owed"  # ends the names of relations that users reach by `owed(table)` only
_CLOSED = "\0closed"  # ends the names of relations of closed keys


@dataclass(frozen=True)
class Lifetime:
    """How long a row lives: so many microseconds from its arrival, or from the time in its own column."""

    micros: int
    column: int | None = None
    text: str = ""  # as users said it

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Placement:
    """Where users want the rows of a table among partitions: by some columns, or all of them in every one."""

    kind: Literal["hash", "all"]
    cols: tuple[int, ...] = ()


@dataclass(frozen=True)
class Source:
    """Where the rows of a table or stream come from: servers that have the same history, and how they are asked."""

    urls: tuple[str, ...]
    options: tuple[tuple[str, str], ...] = ()

    def option(self, name: str, default: str | None = None) -> str | None:
        return dict(self.options).get(name, default)


@dataclass(frozen=True)
class Table:
    """A base relation. `key` lists the PRIMARY KEY's columns; an insert on an existing key replaces the row.

    With a `lifetime` it is a set: a row that is inserted again is not there twice, but lives anew.
    With `stream` it is a stream, of which that much is kept; it has neither key nor lifetime. The column `tick` of a
    stream is filled with the time of the epoch that brings the row.
    `promises` hold of all its rows.
    With a `source` its rows come from another database, and nobody else writes to it.
    With `lookup` it is a relation from outside, of which it has the rows that are cached, at most so many.
    """

    name: str
    schema: Schema
    key: tuple[int, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    sql: str = ""
    lifetime: Lifetime | None = None
    placement: Placement | None = None
    stream: Retention | None = None
    tick: int | None = None
    promises: Promises = NO_PROMISES
    source: Source | None = None
    lookup: MemoryLimit | None = None

    def domain(self, column: str | int) -> Domain:
        """Return the lowest and the highest value that the CHECKs allow a column, None where there is no bound."""
        at = self.schema.names.index(column) if isinstance(column, str) else column
        return domain_of(self.promises.checks, at, self.schema.types[at])

    @cached_property
    def written(self) -> Schema:
        """The columns that writers give."""
        return self.schema if self.tick is None else WrittenSchema.without(self.schema, self.tick)

    @property
    def notes_arrivals(self) -> bool:
        """Whether the deadlines of its rows follow from their arrival, and are kept beside them."""
        return self.lifetime is not None and self.lifetime.column is None

    @cached_property
    def debts(self) -> Table:
        """The relation beside it that holds deletions which came before their rows, each as often as it is owed.

        No row is in both. The debts live where the rows would, and as long.
        """
        free = tuple(replace(column, nullable=True) for column in self.schema.columns)
        return Table(owed_name(self.name), Schema(free), lifetime=self.lifetime)

    @cached_property
    def closed_keys(self) -> Table:
        """The relation beside a stream that `closes` keys: the keys that are closed."""
        closes = self.promises.closes
        assert closes is not None
        columns = tuple(replace(self.schema.columns[at], nullable=True) for at in closes.columns)
        return Table(closed_name(self.name), Schema(columns))


def owed_name(table: str) -> str:
    """Return the name of the relation that holds a table's debts."""
    return table + _OWED


def closed_name(stream: str) -> str:
    """Return the name of the relation that holds a stream's closed keys."""
    return stream + _CLOSED


def owner_of(name: str) -> str:
    """Return the table that a relation belongs to: of debts the table that owes them, of closed keys their stream, of
    any other itself."""
    return name.removesuffix(_OWED).removesuffix(_CLOSED)


def is_owed(name: str) -> bool:
    """Return whether a relation holds the debts of a table."""
    return name.endswith(_OWED)


def has_closed_keys(name: str) -> bool:
    """Return whether a relation holds the closed keys of a stream."""
    return name.endswith(_CLOSED)


def is_beside(name: str) -> bool:
    """Return whether a relation is kept beside a table or stream: its debts, or its closed keys."""
    return name.endswith((_OWED, _CLOSED))


def is_transient(name: str) -> bool:
    """Return whether a view belongs to a subscription. Nothing that users name may begin so.

    >>> is_transient(transient_name(7)), is_transient("hourly")
    (True, False)
    """
    return name.startswith(_TRANSIENT)


def is_internal(name: str) -> bool:
    """Return whether a relation is for the database's own use: users neither list nor write it, nor name one so.

    >>> is_internal("$reflects"), is_internal(ordered_name("quote")), is_internal("quote"), is_internal("$1")
    (True, True, False, False)
    """
    return name.startswith("$") and (
        name in (*INTERNAL, MOVED) or name.startswith((_TRANSIENT, _ORDERED, _TEMPLATE, _RESULT))
    )


def ordered_name(source: str) -> str:
    """Return the name of a source's ordered twin (`plan/order_sensitive.py`)."""
    return f"{_ORDERED}{source}"


def result_name(sources: Sequence[str], digest: str) -> str:
    """Return the name of the table that has a result of sources (`subscribe/results.py`)."""
    return f"{_RESULT}{'+'.join(sources)}_{digest}"


def with_source_names(text: str) -> str:
    """Return a text with the names of sources in place of those of their ordered twins and results.

    >>> with_source_names("follow <- $ordered_quote, $result_trade_0123abcd")
    'follow <- quote, result of trade'
    """
    return re.sub(r"\$result_(.+?)_[0-9a-f]{8}", r"result of \1", text.replace(_ORDERED, ""))


def template_name(template: str) -> str:
    """Return the name of the view behind a template: its parameter table, joined with its query.

    >>> template_name("deals"), is_template("$template_deals"), template_of("$template_deals")
    ('$template_deals', True, 'deals')
    """
    return f"{_TEMPLATE}{template}"


def is_template(view: str) -> bool:
    """Return whether a view is the one behind a template."""
    return view.startswith(_TEMPLATE)


def template_of(view: str) -> str:
    """Return the template that a view belongs to; of any other view, its own name."""
    return view.removeprefix(_TEMPLATE)


def subscription_name(template: str, id: int) -> str:
    """Return the name by which the answer of one subscription of a template is followed.

    >>> subscription_of(subscription_name("deals", 7)), subscription_of("deals"), subscription_of("$template_deals")
    (('$template_deals', 7), None, None)
    """
    return f"{template_name(template)}{_APART}{id}"


def subscription_of(name: str) -> tuple[str, int] | None:
    """Return the view of a template, and the id of the subscription whose rows of it a name stands for; else None."""
    if not name.startswith(_TEMPLATE) or _APART not in name:
        return None
    view, _, id = name.rpartition(_APART)
    return view, int(id)


def transient_name(number: int) -> str:
    """Return the name of the view of a subscription."""
    return f"{_TRANSIENT}{number}"


def with_beside(tables: Mapping[str, Table]) -> dict[str, Table]:
    """Return the tables and streams of a database, the debts of each table that is not a stream, and the closed keys of
    each stream that closes some."""
    found = dict(tables)
    for table in tables.values():
        if table.stream is None:
            found[owed_name(table.name)] = table.debts
        elif table.promises.closes is not None:
            found[closed_name(table.name)] = table.closed_keys
    return found


@dataclass(frozen=True)
class IndexDefinition:
    """An index that was declared on columns of a table or view (CREATE INDEX), and the SQL it came from."""

    name: str
    relation: str
    columns: tuple[str, ...]
    sql: str = ""


@dataclass(frozen=True)
class View:
    """A view: its bound query, its options (`WITH (policy = 'dred')`), and the SQL it came from.

    `hidden` views stand for the recursive CTEs of a query (`name` is then `owner$cte`), or are behind a template; users
    never list them.
    """

    name: str
    schema: Schema
    query: Node
    options: tuple[tuple[str, str], ...] = ()
    sql: str = ""
    owner: str | None = None
    retain: Retention | None = None  # if it says so; see `retention_of`
    memory: MemoryLimit | None = None  # of its join of streams

    @property
    def hidden(self) -> bool:
        return self.owner is not None or is_template(self.name)

    def option(self, name: str, default: str | None = None) -> str | None:
        return dict(self.options).get(name, default)


def retention_of(stream: Table | View) -> Retention:
    """Return what of a stream, or of a view that is one, is kept."""
    given = stream.stream if isinstance(stream, Table) else stream.retain
    return given or DEFAULT_RETENTION


@dataclass(frozen=True)
class ScalarFunction:
    """A registered Python function of values to one value; `Volatile` if it is not deterministic."""

    name: str
    function: Callable[..., Any]
    args: tuple[Type, ...]
    returns: Type


@dataclass(frozen=True)
class TableFunction:
    """A registered Python function of values to rows; `Volatile` if it is not deterministic."""

    name: str
    function: Callable[..., Any]
    args: tuple[Type, ...]
    returns: Schema

    def __post_init__(self) -> None:
        if self.name.lower() in STREAM_FUNCTIONS:
            raise CatalogError(f'"{self.name}" is a table function of Whence itself; choose another name')


@dataclass
class Program:
    """Everything a name may mean. Names are case-insensitive and kept lower-case."""

    tables: dict[str, Table] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    scalars: dict[str, ScalarFunction] = field(default_factory=dict)
    table_functions: dict[str, TableFunction] = field(default_factory=dict)
    indexes: dict[str, IndexDefinition] = field(default_factory=dict)

    @property
    def templates(self) -> list[str]:
        """The names of the templates; each is the name of its parameter table, too."""
        return [template_of(name) for name in self.views if is_template(name)]

    def copy(self) -> Program:
        parts = (self.tables, self.views, self.scalars, self.table_functions, self.indexes)
        return Program(*map(dict, parts))  # type: ignore[arg-type]  # each is copied as it is
