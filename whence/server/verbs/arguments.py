"""The arguments of every verb that a server answers: one definition for HTTP, WebSocket and the OpenAPI page.

The law: a verb runs with arguments that have the fields and types written here, or it does not run. Names and meanings
are those of `Database`; values are plain values (`subscribe/plain.py`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

from whence.server.failures import RequestError

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0)]
Names = Annotated[list[str], Meta(min_length=1)]
ShortText = Annotated[str, Meta(max_length=200)]
Name = Annotated[str, Meta(min_length=1, max_length=1000, description="The name of a table, stream or view.")]
Sql = Annotated[str, Meta(description="SQL.")]
Params = Annotated[
    list[Any] | dict[str, Any] | None,
    Meta(description="Values for `?` or `$1` in a list, or for `:name` and `$name` by name."),
]
Epoch = Annotated[Count | None, Meta(description="Read the past: the database as it was after this epoch.")]
AtLeast = Annotated[ShortText | None, Meta(description="A position that what is read must have reached; waits for it.")]
Timeout = Annotated[Seconds | None, Meta(description="Seconds; the server's own limit is the most.")]
IdentifiedRow = Annotated[
    list[Any] | dict[str, Any] | None,
    Meta(description="The row: its values in order, or by column as many as identify it."),
]
Missing = Annotated[
    Literal["error", "null"], Meta(description="What a column is that the rows do not have: an error, or NULL.")
]
Early = Annotated[
    Literal["hold", "ignore", "error"] | None, Meta(description="What becomes of deletions that find no row.")
]
Rows = Annotated[list[Any] | None, Meta(description="Rows: lists of values in order, or objects by column.")]
Where = Annotated[
    dict[str, Any] | str | None,
    Meta(description="Columns and their values (null is IS NULL, a list is IN), or a condition in SQL."),
]


class Arguments(Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What all arguments share."""


class NoArguments(Arguments, kw_only=True):
    """Nothing."""


class ReadArguments(Arguments, kw_only=True):
    """Which rows of a table, stream or view to read."""

    name: Name
    where: Annotated[dict[str, Any], Meta(description="Columns and their values.")] = field(default_factory=dict)
    columns: Annotated[list[str] | None, Meta(description="The columns to return, in this order.")] = None
    limit: Annotated[Count | None, Meta(description="The most rows to return.")] = None
    epoch: Epoch = None
    at_least: AtLeast = None
    timeout: Timeout = None


class QueryArguments(Arguments, kw_only=True):
    """A SELECT."""

    sql: Sql
    params: Params = None
    epoch: Epoch = None
    at_least: AtLeast = None
    timeout: Timeout = None


class WriteArguments(Arguments, kw_only=True):
    """What writes share: a write that a publisher numbers is done once, however often it is sent."""

    publisher: Annotated[ShortText | None, Meta(description="Who numbers this write.")] = None
    number: Annotated[Count | None, Meta(description="Its number, larger than those before.")] = None
    awaiting: Annotated[Count | None, Meta(description="The lowest number without an answer so far.")] = None


class ExecuteArguments(WriteArguments, kw_only=True):
    """A script of statements. It can be numbered if all of them are INSERT, DELETE and UPDATE."""

    sql: Sql
    params: Params = None


class InsertArguments(WriteArguments, kw_only=True):
    """Rows to insert: as lists or objects, or as an Arrow stream."""

    table: Name
    rows: Rows = None
    columns: Annotated[list[str] | None, Meta(description="The columns that lists of values have, in order.")] = None
    arrow: Annotated[bytes | None, Meta(description="An Arrow stream; base64 in JSON.")] = None
    csv: Annotated[str | None, Meta(description="CSV with a header.")] = None
    missing: Missing = "error"
    on_error: Annotated[
        Literal["fail", "skip", "reject"], Meta(description="What becomes of rows that do not fit.")
    ] = "fail"
    op: Annotated[str | None, Meta(description="The column that says whether a row is inserted or deleted.")] = None
    early: Early = None


class DeleteArguments(WriteArguments, kw_only=True):
    """Rows to delete: whole rows, keys, or a condition."""

    table: Name
    rows: Rows = None
    key: Annotated[Any, Meta(description="A primary key, or a list of them.")] = None
    where: Where = None
    params: Params = None
    early: Early = None


class TemplateArguments(WriteArguments, kw_only=True):
    """A new subscription to a template. It is followed as `template#id`, and ends when its row is deleted."""

    template: Name
    parameters: Annotated[
        dict[str, Any], Meta(description="Its parameters; those that are not given are NULL. And id, if it has one.")
    ] = {}


class MessagesArguments(Arguments, kw_only=True):
    """Which messages of a template to return: those after a position; without one, only the position to begin from."""

    template: Name
    after: Annotated[ShortText | None, Meta(description="The position that the last answer ended at.")] = None
    wait: Annotated[Seconds, Meta(description="Seconds to wait for a message; the server's own limit is the most.")] = 0


class UpdateArguments(WriteArguments, kw_only=True):
    """New values, and the rows that get them."""

    table: Name
    values: Annotated[dict[str, Any], Meta(description="Columns and their new values.")]
    where: Where = None
    key: Annotated[Any, Meta(description="A primary key, or a list of them.")] = None
    params: Params = None


class InsertOperation(Arguments, kw_only=True, tag="insert", tag_field="verb"):
    """An insert as part of a transaction."""

    table: Name
    rows: Rows = None
    columns: list[str] | None = None
    arrow: bytes | None = None
    missing: Missing = "error"


class DeleteOperation(Arguments, kw_only=True, tag="delete", tag_field="verb"):
    """A deletion as part of a transaction."""

    table: Name
    rows: Rows = None
    key: Any = None
    where: Where = None
    params: Params = None
    early: Early = None


class UpdateOperation(Arguments, kw_only=True, tag="update", tag_field="verb"):
    """An update as part of a transaction."""

    table: Name
    values: dict[str, Any]
    where: Where = None
    key: Any = None
    params: Params = None


class TransactionArguments(WriteArguments, kw_only=True):
    """Writes that are one epoch: all of them are done, or none."""

    operations: Annotated[
        list[InsertOperation | DeleteOperation | UpdateOperation],
        Meta(description="Inserts, deletions and updates in their order."),
    ]


class ShownArguments(Arguments, kw_only=True):
    """What explanations share."""

    epoch: Epoch = None
    timeout: Timeout = None
    html: Annotated[bool, Meta(description="Return a page, too.")] = False


class WhyArguments(ShownArguments, kw_only=True):
    """The row to explain."""

    view: Name
    row: IdentifiedRow = None
    limit: Annotated[Positive, Meta(description="The most derivations to look at.")] = 2_000_000
    dot: Annotated[bool, Meta(description="Return a graph for Graphviz, too.")] = False


class WhatIfArguments(ShownArguments, kw_only=True):
    """Writes that are only supposed."""

    sql: Annotated[str, Meta(description="A script of INSERT, DELETE and UPDATE.")] = ""
    params: Params = None
    insert: Annotated[dict[str, list[Any]] | None, Meta(description="By table, rows to insert.")] = None
    delete: Annotated[
        dict[str, list[Any] | str] | None, Meta(description="By table, rows to delete, or a condition in SQL.")
    ] = None
    update: Annotated[
        dict[str, list[Any]] | None, Meta(description="By table, a list of pairs of new values and where.")
    ] = None
    views: Annotated[list[str] | None, Meta(description="The views to look at; else all.")] = None
    strict: bool = False
    missing: Missing = "error"


class CriticalArguments(ShownArguments, kw_only=True):
    """The row, or the rows that have some values."""

    view: Name
    row: IdentifiedRow = None
    where: Annotated[dict[str, Any] | None, Meta(description="Columns and values of the rows to rank by.")] = None
    limit: Positive = 2_000_000


class ResilienceArguments(ShownArguments, kw_only=True):
    """The row."""

    view: Name
    row: IdentifiedRow = None


class ContributionArguments(ShownArguments, kw_only=True):
    """The row, and how to sample where an exact answer is too expensive."""

    view: Name
    row: IdentifiedRow = None
    samples: Positive | None = None
    seed: int = 0


class ReliabilityArguments(ShownArguments, kw_only=True):
    """The row, and the probabilities of base rows."""

    view: Name
    row: IdentifiedRow = None
    given: Annotated[
        dict[str, float | str],
        Meta(description="By table, the probability of its rows, or the column that has that of each."),
    ]
    samples: Positive | None = None
    confidence: Annotated[float, Meta(gt=0, lt=1)] = 0.99
    seed: int = 0


class TraceArguments(ShownArguments, kw_only=True):
    """A row of a stream."""

    stream: Name
    tid: Annotated[Count | None, Meta(description="The row's tid.")] = None
    row: IdentifiedRow = None


class NamedArguments(Arguments, kw_only=True):
    """A table, stream or view."""

    name: Name


class AdvanceArguments(Arguments, kw_only=True):
    """A promise that no row with a smaller value follows."""

    stream: Annotated[str | Names, Meta(description="A stream, or several.")]
    value: Any
    on: Annotated[str | None, Meta(description="The column.")] = None


class FlushArguments(Arguments, kw_only=True):
    """The streams whose windows to close; all without."""

    stream: Annotated[str | Names | None, Meta(description="A stream, or several.")] = None


class SubscribeArguments(Arguments, kw_only=True):
    """Queries to follow together."""

    queries: Annotated[
        list[str],
        Meta(min_length=1, description="SELECTs, or names of tables and views; in an address also view=, query=."),
    ]
    params: Params = None
    have: Annotated[str | None, Meta(description="The position of the rows that the client has.")] = None
    every: Annotated[Seconds | None, Meta(description="Seconds at least between two updates.")] = None
    why: Annotated[bool, Meta(description="Send the witnesses of rows that come.")] = False
    every_change: Annotated[bool, Meta(description="Send each change, not the net of several.")] = False
    bounds: Annotated[bool, Meta(description="Send what values can still become beside them.")] = False
    ordered: Annotated[bool, Meta(description="Take rows of sources in the order of ticks.")] = False


def read_arguments(kind: type[Arguments], given: object, *, texts: bool = False) -> Any:
    """Return arguments of a kind; RequestError says which one does not fit. With `texts` numbers may be texts, as in
    the address of a request.

    >>> read_arguments(NamedArguments, {"name": "a"})
    NamedArguments(name='a')
    >>> read_arguments(NamedArguments, {"nam": "a"})
    Traceback (most recent call last):
    whence.server.failures.RequestError: Object contains unknown field `nam`
    """
    try:
        return msgspec.convert(given, kind, strict=not texts)
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        raise RequestError(f"{error!s:.300}") from None
