"""Stream networks in partitions: which rows of a stream an operator must see together, and where base streams live.

Law: each partition has a subsequence of every stream, in its order, and together they have it whole; rows with one
`$at` are in one partition, unless a promise closed windows of several keys, which stand in no order. So what a
partition's operator makes of its share is its share of what one operator would make of everything, if the operator
finds together what it looks at together:

| operator   | wants |
|------------|-------|
| Select, Project, Lateral, Merge, Retain, Relate, Generate, Plain, Align | nothing |
| Window, Latest | rows of one key `by` together: each has windows of its own. Without `by`, everything in one place |
| WindowJoin | rows that may be paired, and rows of one key `by` of either side |
| Lookup     | the relation's rows come to where the stream is; the stream does not move |
| BSort, Traced | everything in one place |

Where rows are not so, they are shipped, and put in order of `$at` where they arrive (`engine/exchange/ship.py`). Rows
that carry provenance cannot be: a traced network stands on base streams that are where all of it needs them, by a key
that reaches every operator, or in one partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from whence.model.errors import CatalogError
from whence.model.types import Kind, Schema
from whence.plan.algebra.expressions import Col
from whence.plan.algebra.logical import Lateral, Node, Project, Ref, Select, Ship
from whence.plan.partitions.distribution import (
    ALL,
    ONE,
    SPREAD,
    DistributionProperty,
    Pairs,
    equated,
    partner,
    same_codes,
    together,
)
from whence.plan.partitions.enforce import DistributionEnforcer, Placed
from whence.plan.recursion.native import strip
from whence.plan.streams.model import (
    Align,
    BSort,
    DropProvenance,
    Generate,
    Latest,
    Lookup,
    Merge,
    ProvenanceJoin,
    Retain,
    Retention,
    Span,
    Stream,
    StreamToRelation,
    Window,
    WindowJoin,
    has_at,
)


class MisplacedError(CatalogError):
    """A traced network that would have to ship rows of these base streams, which are not where it needs them."""

    def __init__(self, message: str, streams: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.streams = tuple(streams)


class AnnotatedError(Exception):
    """Rows that carry provenance would have to be shipped: those of this node."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node


def is_annotated(node: Node, traced: Mapping[str, bool]) -> bool:
    """Whether rows carry provenance; `traced` says of the views which do."""
    match node:
        case Generate() | Align():
            return True
        case DropProvenance() | Stream() | StreamToRelation() | Latest() | ProvenanceJoin():
            return False
        case Ref():
            return traced.get(node.view, False)
        case Lookup() | Lateral():
            return is_annotated(node.input, traced)
    return has_at(node.schema) and any(is_annotated(i, traced) for i in node.inputs)


# -- operators ---------------------------------------------------------------------------------------------------------


class StreamPlacer(DistributionEnforcer):
    """Places networks, too. `traced` says which views are streams whose rows carry provenance.

    AnnotatedError if such rows are not where an operator needs them."""

    def __init__(
        self,
        tables: Mapping[str, DistributionProperty],
        views: Mapping[str, DistributionProperty],
        traced: Mapping[str, bool],
        partitions: int,
    ) -> None:
        super().__init__(tables, views)
        self._traced, self._partitions = traced, partitions

    def place(self, node: Node) -> Placed:
        match node:
            case Stream():
                return Placed(node, self.tables[node.stream])
            case Merge():
                return _merge(node, [self.place(b) for b in node.branches])
            case Window():
                below = self._keyed(self.place(node.input), node.span.by)
                place = below.place.mapped(lambda c: [at for at, key in enumerate(node.keys) if key == c])
                return Placed(replace(node, input=below.node), place)
            case WindowJoin():
                return self._join(node, self.place(node.left), self.place(node.right))
            case Lookup():
                return _lookup(node, self.place(node.input), self.place(node.relation))
            case BSort() | ProvenanceJoin():
                return self._keyed(self.place(node.input), ()).over(node)
            case Latest():
                below = self.place(node.input)
                if is_annotated(below.node, self._traced):  # of no use to a relation
                    below = below.over(DropProvenance(below.node.schema, below.node))
                return self._keyed(below, node.span.by).over(node)
            case Retain():
                below = self.place(node.input)
                whole = below.everywhere or below.place == ONE
                retention = node.retention if whole else share(node.retention, self._partitions)
                return below.over(replace(node, retention=retention))
            case StreamToRelation() | Generate() | DropProvenance() | Align():
                return self.place(node.input).over(node)
        return super().place(node)

    def _keyed(self, below: Placed, cols: Sequence[int]) -> Placed:
        """Rows that are equal in some columns together."""
        if below.everywhere or (below.place.kind == "hash" and all(same & {*cols} for same in below.place.cols)):
            return below
        if is_annotated(below.node, self._traced):
            raise AnnotatedError(below.node)
        return below.moved(routable(below.node.schema, cols))

    def _join(self, node: WindowJoin, left: Placed, right: Placed) -> Placed:
        pairs = shared_keys(node)
        everywhere = left.everywhere and right.everywhere
        if not everywhere and not together(left.place, right.place, pairs):
            if is_annotated(left.node, self._traced) or is_annotated(right.node, self._traced):
                raise AnnotatedError(node)
            cols = partner(left.place, pairs)
            left = left if cols is not None else left.moved(tuple(a for a, _ in pairs))
            right = right.moved(tuple(b for _, b in pairs) if cols is None else cols)
        made = replace(node, left=left.node, right=right.node)
        width = len(node.left.schema) - 1
        return Placed(made, ALL if everywhere else equated(left.place, [(a, b + width) for a, b in pairs]))


def share(retention: Retention, partitions: int) -> Retention:
    """What a partition keeps of a stream of which it has a part."""
    rows = None if retention.rows is None else max(-(-retention.rows // partitions), 1)
    nbytes = None if retention.nbytes is None else max(-(-retention.nbytes // partitions), 1)
    return replace(retention, rows=rows, nbytes=nbytes)


def routable(schema: Schema, cols: Sequence[int]) -> tuple[int, ...]:
    """The columns that rows can be routed by: equal values have equal codes."""
    return tuple(c for c in cols if schema.types[c].kind is not Kind.INTERVAL)


def _merge(node: Merge, branches: list[Placed]) -> Placed:
    place = branches[0].place
    for other in (b.place for b in branches[1:]):
        alike = place.kind == other.kind and len(place.cols) == len(other.cols)
        cols = tuple(a & b for a, b in zip(place.cols, other.cols, strict=True)) if alike else ()
        place = DistributionProperty(place.kind, cols) if alike and all(cols) else SPREAD
    return Placed(replace(node, branches=tuple(b.node for b in branches)), place)


def shared_keys(node: WindowJoin) -> list[tuple[int, int]]:
    """The pairs of columns by which both sides can be routed: equal in pairs of rows, and part of either's windows."""
    ours, theirs = node.left.schema.types, node.right.schema.types
    return [
        (a, b)
        for a, b in node.keys
        if same_codes(ours[a], theirs[b]) and _in_key(a, node.left_span) and _in_key(b, node.right_span)
    ]


def _in_key(column: int, span: Span) -> bool:
    """Whether rows that differ in a column do not meet in a window; in a landmark of rows it does not matter."""
    return column in span.by or (span.size is None and span.on is None)


def lookup_keys(node: Lookup) -> list[tuple[int, int]]:
    """The pairs of columns by which the relation can be routed to the stream."""
    ours, theirs = node.input.schema.types, node.relation.schema.types
    return [(a, b) for a, b in node.keys if same_codes(ours[a], theirs[b])]


def _lookup(node: Lookup, stream: Placed, relation: Placed) -> Placed:
    if not (stream.everywhere or relation.everywhere):
        cols = partner(stream.place, lookup_keys(node))
        relation = relation.copied() if cols is None else relation.moved(cols)
    return Placed(replace(node, input=stream.node, relation=relation.node), stream.place)


# -- base streams ------------------------------------------------------------------------------------------------------


Sources = Iterator[tuple[str, tuple[int | None, ...]]]


class StreamNeeds:
    """What networks ask of base streams: columns to be placed by, or everything in one place.

    `queries` are the plain views, to be seen through; `streams` are the schemas of the base streams."""

    def __init__(self, streams: Mapping[str, Schema], queries: Mapping[str, Node]) -> None:
        self._streams, self._queries = streams, queries
        self._keys: dict[str, list[tuple[int, ...]]] = {name: [] for name in streams}
        self.whole: set[str] = set()

    def note(self, node: Node) -> None:
        """Note what an operator needs."""
        match node:
            case Window() | Latest():
                self._need(self.sources(node.input, node.span.by), len(node.span.by))
            case BSort() | ProvenanceJoin():
                self._need(self.sources(node.inputs[0], ()), 0)
            case WindowJoin():
                pairs = shared_keys(node)
                both = [
                    *self.sources(node.left, tuple(a for a, _ in pairs)),
                    *self.sources(node.right, tuple(b for _, b in pairs)),
                ]
                self._need(iter(both), len(pairs))

    def note_whole(self, node: Node) -> None:
        """Note that all of a network is to be in one place."""
        self.whole |= {name for name, _ in self.sources(node, ())}

    def _need(self, sources: Sources, count: int) -> None:
        found = list(sources)
        common = [i for i in range(count) if all(self._can(name, cols[i]) for name, cols in found)]
        for name, cols in found:
            if common:
                self._keys[name].append(tuple(c for i in common if (c := cols[i]) is not None))
            else:
                self.whole.add(name)

    def _can(self, stream: str, column: int | None) -> bool:
        return column is not None and self._streams[stream].types[column].kind is not Kind.INTERVAL

    def keys(self, name: str) -> list[tuple[int, ...]]:
        """The keys that the operators over a stream are content with, all of their columns or some of them."""
        return [tuple(dict.fromkeys(cols)) for cols in self._keys[name]]

    def sources(self, node: Node, cols: Sequence[int | None]) -> Sources:
        """The base streams of a network, and which columns of theirs some columns are."""
        match node:
            case Stream():
                yield node.stream, tuple(cols)
            case Ref():
                if node.view in self._queries and has_at(node.schema):
                    yield from self.sources(self._queries[node.view], cols)
            case Project():
                exprs = [None if c is None else strip(node.exprs[c]) for c in cols]
                yield from self.sources(node.input, [e.index if isinstance(e, Col) else None for e in exprs])
            case Window():
                own = [node.keys[c] if c is not None and c < len(node.keys) else None for c in cols]
                yield from self.sources(node.input, own)
            case Merge():
                for branch in node.branches:
                    yield from self.sources(branch, cols)
            case WindowJoin():
                width = len(node.left.schema) - 1
                yield from self.sources(node.left, [_beside(c, width, node.keys)[0] for c in cols])
                yield from self.sources(node.right, [_beside(c, width, node.keys)[1] for c in cols])
            case Lookup():
                width = len(node.input.schema) - 1
                yield from self.sources(node.input, [_within(c, width) for c in cols])
            case Lateral():
                width = len(node.input.schema) - 1
                yield from self.sources(node.input, [_within(c, width) for c in cols])
            case Select() | BSort() | Retain() | Generate() | DropProvenance() | Align() | Ship():
                yield from self.sources(node.input, cols)


def _within(column: int | None, width: int) -> int | None:
    return column if column is not None and column < width else None


def _beside(column: int | None, width: int, keys: Pairs) -> tuple[int | None, int | None]:
    """A column of a join as one of its left side and as one of its right, where there is an equal one."""
    if column is None:
        return None, None
    if column < width:
        return column, next((b for a, b in keys if a == column), None)
    return next((a for a, b in keys if b == column - width), None), column - width
