"""By which columns tables are partitioned: by those that the plans over them ask for most.

A use of a table (a join key, a group, the key of a recursion) is content with any of its columns: rows that agree in
all of them agree in some. So each wish is held against all uses, and the one that contents most of them wins, the
first one of equals. Rows with one primary key must meet, so only its columns count where there is one.

A stream is where the networks over it need it (`place_streams.py`): in one partition if one of them does, or nobody
says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whence.model.types import Kind
from whence.plan.algebra.expressions import Col
from whence.plan.algebra.logical import (
    Aggregate,
    Distinct,
    Join,
    Lateral,
    Node,
    Project,
    Ref,
    Scan,
    Select,
    SetOp,
    walk,
)
from whence.plan.algebra.program import Table
from whence.plan.partitions.distribution import Distribution
from whence.plan.partitions.enforce import usable_keys
from whence.plan.partitions.streams import StreamNeeds, lookup_keys
from whence.plan.recursion.native import strip
from whence.plan.streams.model import Latest, Lookup, StreamToRelation

Traced = tuple[str, tuple[int, ...]]


class PartitionKeyUses:
    """The uses of every table, in order of appearance. `queries` are the plain views, to be seen through."""

    def __init__(self, tables: Mapping[str, Table], queries: Mapping[str, Node]):
        self._tables, self._queries = tables, queries
        self._uses: dict[str, list[tuple[int, ...]]] = {name: [] for name in tables}
        self.needs = StreamNeeds({name: t.schema for name, t in tables.items() if t.stream is not None}, queries)

    def note(self, plan: Node) -> None:
        """Note what the operators of a plan ask for."""
        for node in walk(plan):
            match node:
                case Join():
                    self._note_pair(node.left, node.right, usable_keys(node))
                case SetOp():
                    self._note_pair(node.left, node.right, [(c, c) for c in range(len(node.schema))])
                case Aggregate():
                    self.wish(node.input, node.keys)
                case Distinct():
                    self.wish(node.input, tuple(range(len(node.schema))))
                case Lookup():
                    self.wish(node.relation, [b for _, b in lookup_keys(node)])
                case _:
                    self.needs.note(node)

    def wish(self, node: Node, cols: Sequence[int]) -> None:
        """Note that a plan's rows are wanted by these columns, if they are those of a table."""
        traced = self._trace(node, tuple(cols))
        if traced is not None:
            table, found = traced
            self._uses[table].append(tuple(c for c in found if self._routable(table, c)))

    def _note_pair(self, left: Node, right: Node, pairs: Sequence[tuple[int, int]]) -> None:
        """Both sides are wanted by corresponding columns: where there are any that both can give, by those alone."""
        both = [(a, b) for a, b in pairs if self._can(left, a) and self._can(right, b)] or pairs
        self.wish(left, [a for a, _ in both])
        self.wish(right, [b for _, b in both])

    def _can(self, node: Node, column: int) -> bool:
        traced = self._trace(node, (column,))
        return traced is None or self._routable(traced[0], traced[1][0])

    def _routable(self, table: str, column: int) -> bool:
        found = self._tables[table]
        return found.schema.types[column].kind is not Kind.INTERVAL and (not found.key or column in found.key)

    def _trace(self, node: Node, cols: tuple[int, ...]) -> Traced | None:
        """The table whose rows these are, and which of its columns; None if they come from elsewhere."""
        match node:
            case Scan():
                return node.table, cols
            case Ref() if node.view in self._queries:
                return self._trace(self._queries[node.view], cols)
            case Select() | Distinct():
                return self._trace(node.input, cols)
            case Lateral():
                own = len(node.input.schema)
                return self._trace(node.input, cols) if all(c < own for c in cols) else None
            case Project():
                below = [strip(node.exprs[c]) for c in cols]
                plain = tuple(e.index for e in below if isinstance(e, Col))
                return self._trace(node.input, plain) if len(plain) == len(below) else None
            case StreamToRelation() | Latest():
                streams = list(self.needs.sources(node.input, cols))
                if len(streams) == 1 and None not in streams[0][1]:
                    return streams[0][0], tuple(c for c in streams[0][1] if c is not None)
        return None

    def table_under(self, node: Node) -> str | None:
        """The table of which a plan keeps rows and columns only."""
        traced = self._trace(node, ())
        return traced[0] if traced is not None else None

    def choose(self, name: str) -> Distribution:
        """The columns that content most uses; the primary key, or all columns, if there are none."""
        table = self._tables[name]
        if table.stream is not None and name in self.needs.whole:
            return Distribution("one")
        uses = self.needs.keys(name) if table.stream is not None else []
        uses = uses or [tuple(dict.fromkeys(cols)) for cols in self._uses[name] if cols]
        if uses:
            return Distribution("hash", max(uses, key=lambda wish: sum(set(wish) <= set(use) for use in uses)))
        if table.stream is not None:
            return Distribution("one")
        cols = table.key or tuple(range(len(table.schema)))
        return Distribution("hash", cols) if cols else Distribution("one")
