"""The nodes of stream networks: what a query over ordered, append-only inputs means.

A **stream** is a sequence of rows that only grows. Its rows have tids, contiguous from 1 in the order of the stream. In
plans the last column of every stream is hidden: `$at`, when the row arrived, counted over all streams of the database;
a row that an operator makes has the `$at` of the row that brought it about. Rows of a batch are in the order of `$at`,
and those with equal `$at` in the order in which they were made. So nothing depends on how arrivals fall into epochs.

The binder makes queries of the first table, without the hidden column; `plan/streams/networks.py` makes networks of
those, and `plan/streams/instrument.py` adds the nodes of the last table.

| bound      | what was written | becomes |
|------------|------------------|---------|
| Slide      | `slide(s, …)`: the windows of a stream, to be aggregated or joined | Window, WindowJoin |
| Latest     | `latest(s, …)`: the rows that are in the window now | Latest |
| BSort      | `bsort(s, …)` | BSort |
| Traced     | `provenance(view, stream)`: each result beside each input behind it | Traced |

| network    | rows out | is a |
|------------|----------|------|
| Stream     | the rows of a base stream | stream |
| Merge      | all rows of all inputs, by arrival | stream |
| Window     | one row for each group of each window that has closed | stream |
| WindowJoin | pairs of rows of which the later one came while the earlier was in its side's window | stream |
| Lookup     | each row joined with the relation as it is when the row comes | stream |
| BSort      | the rows in the order of a column, as far as a buffer of `slack` + 1 rows can bring it about | stream |
| Latest     | the rows in the window now: they come, and go | relation |
| Relate     | all rows so far, without order and provenance | relation |
| Retain     | the same rows; the last of them are kept for reading, joining and explaining | stream |

| instrumented | rows out |
|--------------|----------|
| Generate     | the same rows, each with its own tid for provenance, or with none |
| Plain        | the same rows without provenance |
| Align        | the same rows, their covering intervals laid out for more sources |

Select, Project and Lateral of `plan/algebra/logical.py` are what they are, on streams too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from whence.model.types import BIGINT, Column, Schema
from whence.plan.algebra.expressions import Expr
from whence.plan.algebra.logical import Agg, JoinKind, Node

AT = "$AT"  # `$at`; users' names are all in small letters, so that none is this one
AT_COLUMN = Column(AT, BIGINT, nullable=False)


def with_at(schema: Schema) -> Schema:
    """A stream's schema in a network."""
    return Schema((*schema.columns, AT_COLUMN))


def has_at(schema: Schema) -> bool:
    """Whether it is the schema of a stream in a network."""
    return AT in schema.names[-1:]


def without_at(schema: Schema) -> Schema:
    """A stream's schema as users see it."""
    return Schema(schema.columns[:-1]) if has_at(schema) else schema


FIRST: Literal["first"] = "first"
ADDED = {"added": True}  # a field that plans written before do not have; it counts only where it is not the default


@dataclass(frozen=True)
class Span:
    """A window over a stream: so many rows, or so much of an ordered column; None for everything since the start.

    With `on` it is a column, and `size`, `every` and `origin` are in its units: whole numbers, DECIMALs as their
    scaled whole numbers, TIMESTAMPs in microseconds, DATEs in days, DOUBLEs as floats. Windows are
    `[origin + k·every, origin + k·every + size)` for whole k; if the origin is FIRST, it is the value of the first row
    (of each key), and k is not negative. A window closes when the watermark reaches its end: the greatest value so far
    (of its key) less `lateness`, or what was promised. A row is in the windows of its value that have not closed, and
    late if there are others; NULL is in no window.
    Without `on` the windows are rows k·every + 1 to k·every + size. Each key of the columns `by` has its own windows.
    """

    size: int | float | None
    every: int | float | None = None
    on: int | None = None
    by: tuple[int, ...] = ()
    origin: int | float | Literal["first"] = 0
    lateness: int | float = field(default=0, metadata=ADDED)


@dataclass(frozen=True)
class Retention:
    """What of a stream is kept: the last rows, so many, so many bytes of them, or so many microseconds; None: all."""

    rows: int | None = None
    nbytes: int | None = None
    micros: int | None = None
    text: str = "all"


DEFAULT_RETENTION = Retention(nbytes=64 << 20, text="64 MB")


@dataclass(frozen=True)
class Tracing:
    """How rows are annotated. Covering intervals are laid out by `sources`, the streams that are traced; sets of tids
    name their sources themselves, so that all networks of one encoding share an algebra."""

    mode: Literal["lineage", "covering"]
    sources: tuple[str, ...] = ()
    encoding: Literal["adaptive", "ids", "intervals", "deltas", "dictionary"] = "adaptive"


def counterparts(
    left: tuple[int, ...], right: tuple[int, ...], keys: tuple[tuple[int, int], ...]
) -> tuple[int, ...] | None:
    """The columns of a join's right side that equal those of the left, which must be all of both; None if they do not.

    >>> counterparts((1,), (0,), ((1, 0), (2, 2))), counterparts((1,), (), ((1, 0),))
    ((0,), None)
    >>> counterparts((0, 1), (0, 1), ((0, 1), (0, 0), (1, 1)))  # columns may equal several
    (0, 1)
    """
    taken: dict[int, int] = {}  # columns of the right, and whose they are

    def found(a: int, tried: set[int]) -> bool:
        for mine, b in keys:
            if mine == a and b in right and b not in tried:
                tried.add(b)
                if b not in taken or found(taken[b], tried):
                    taken[b] = a
                    return True
        return False

    if len(left) != len(right) or not all(found(a, set()) for a in left):
        return None
    return tuple({a: b for b, a in taken.items()}[a] for a in left)


# -- as bound --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Slide(Node):
    """The windows of a stream. Value windows have two more columns, `window_start` and `window_end`."""

    input: Node
    span: Span

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True)
class ProvenanceJoin(Node):
    """`provenance(view, source)`: the columns of the view, its `tid`, `<source>_tid`, and `<source>_<column>`s.

    In a network `input` is the annotated view, and its `$at` stands last, as ever. If the view keeps covering
    intervals, `copy` is the instrumented copy of its query that is replayed (`plan/streams/replay.py`), and only
    results for which `where` holds, a condition over `tid` and the view's columns, are looked at."""

    input: Node
    view: str
    source: str
    copy: Node | None = None
    where: Expr | None = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


# -- in networks; `owner` is the view that a node with state belongs to: views share it only by naming each other -----


@dataclass(frozen=True)
class Stream(Node):
    stream: str


@dataclass(frozen=True)
class Merge(Node):
    branches: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.branches


@dataclass(frozen=True)
class Window(Node):
    """Schema: the columns `keys`, the aggregates, `$at`. A window's rows are grouped by `keys`; a group without rows
    gives none. Beyond the functions of SQL there are window_start and window_end, without a column."""

    input: Node
    span: Span
    keys: tuple[int, ...]
    aggs: tuple[Agg, ...]
    owner: str = ""

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True)
class WindowJoin(Node):
    """Schema: left without `$at`, right without `$at`, `$at`. `keys` pairs columns; `residual` is over left columns
    and then right ones, both without `$at`."""

    left: Node
    right: Node
    left_span: Span
    right_span: Span
    keys: tuple[tuple[int, int], ...] = ()
    residual: Expr | None = None
    owner: str = ""

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)


@dataclass(frozen=True)
class Lookup(Node):
    """A stream joined with a relation. Schema: the stream's columns without `$at`, the relation's (of inner and left),
    whether there is a match (of mark), `$at`; `residual` is over the stream's without `$at` and then the relation's."""

    input: Node
    relation: Node
    kind: JoinKind  # inner, left, semi, anti, mark
    keys: tuple[tuple[int, int], ...] = ()
    residual: Expr | None = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input, self.relation)


@dataclass(frozen=True)
class BSort(Node):
    """`slack` + 1 rows are held back; or, if it is None, every row until one has come that is `within` greater, or
    more. A row smaller than one that has been given out, or NULL, is late and is not given out."""

    input: Node
    column: int
    slack: int | None
    owner: str = ""
    within: int | float = field(default=0, metadata=ADDED)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Latest(Node):
    """As bound over a stream's query; in a network over a stream, with a schema that has no `$at`."""

    input: Node
    span: Span
    owner: str = ""

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True)
class StreamToRelation(Node):
    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Retain(Node):
    input: Node
    retention: Retention
    owner: str = ""

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Generate(Node):
    """`source` None: rows of a stream that is not traced, in a network that is."""

    input: Node
    source: str | None
    tracing: Tracing

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True)
class DropProvenance(Node):
    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Align(Node):
    input: Node
    before: Tracing
    after: Tracing

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)
