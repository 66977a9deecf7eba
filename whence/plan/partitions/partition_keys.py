"""Choose the columns by which tables are partitioned: those that the plans over them use most.

A use of a table (a join key, a group, the key of a recursion) is served by any of its columns: rows that agree in
all of them agree in some. So each use is held against all others, and the one that serves most of them wins, the
first one of equals. Rows with one primary key must meet, so only its columns count where there is one.

A stream is where the networks over it need it (`streams.py`): in one partition if one of them does, or nobody
says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whence.model.types import Kind
from whence.plan.algebra.arrival import has_at
from whence.plan.algebra.distribution import Distribution
from whence.plan.algebra.logical import Node, Ref, Scan, Unary, walk
from whence.plan.algebra.program import Table
from whence.plan.partitions.streams import StreamNeeds
from whence.plan.streams.model import Latest, StreamToRelation

TableColumns = tuple[str, tuple[int, ...]]


class PartitionKeyUses:
    """The uses of every table, in order of appearance. `queries` are the plain views, to be seen through."""

    def __init__(self, tables: Mapping[str, Table], queries: Mapping[str, Node]):
        self._tables, self._queries = tables, queries
        self._uses: dict[str, list[tuple[int, ...]]] = {name: [] for name in tables}
        self.needs = StreamNeeds({name: t.schema for name, t in tables.items() if t.stream is not None}, queries)

    def note(self, plan: Node) -> None:
        """Note what the operators of a plan ask for."""
        for node in walk(plan):
            asked = [
                (child, cols) for child, cols in zip(node.inputs, node.together(), strict=True) if cols is not None
            ]
            if not asked:
                continue
            if has_at(asked[0][0].schema):
                self.needs.note(asked)
            elif len(asked) == 2:
                (left, ours), (right, theirs) = asked
                self._note_pair(left, right, list(zip(ours, theirs, strict=True)))
            else:
                for child, cols in asked:
                    self.add(child, cols)

    def add(self, node: Node, cols: Sequence[int]) -> None:
        """Note that a plan's rows are wanted by these columns, if they are those of a table."""
        traced = self._trace(node, tuple(cols))
        if traced is not None:
            table, found = traced
            self._uses[table].append(tuple(c for c in found if self._routable(table, c)))

    def _note_pair(self, left: Node, right: Node, pairs: Sequence[tuple[int, int]]) -> None:
        """Note that both sides are wanted by corresponding columns: by those that both can give, if there are any."""
        both = [(a, b) for a, b in pairs if self._can(left, a) and self._can(right, b)] or pairs
        self.add(left, [a for a, _ in both])
        self.add(right, [b for _, b in both])

    def _can(self, node: Node, column: int) -> bool:
        traced = self._trace(node, (column,))
        return traced is None or self._routable(traced[0], traced[1][0])

    def _routable(self, table: str, column: int) -> bool:
        found = self._tables[table]
        return found.schema.types[column].kind is not Kind.INTERVAL and (not found.key or column in found.key)

    def _trace(self, node: Node, cols: tuple[int, ...]) -> TableColumns | None:
        """Find the table whose rows these are, and which of its columns; None if they come from elsewhere."""
        if isinstance(node, Scan):
            return node.table, cols
        if isinstance(node, Ref) and node.view in self._queries:
            return self._trace(self._queries[node.view], cols)
        if isinstance(node, (StreamToRelation, Latest)):
            streams = list(self.needs.sources(node.input, cols))
            if len(streams) == 1 and None not in streams[0][1]:
                return streams[0][0], tuple(c for c in streams[0][1] if c is not None)
        elif isinstance(node, Unary) and node.passes:
            below = tuple(at for c in cols if (at := node.origin(0, c)) is not None)
            return self._trace(node.input, below) if len(below) == len(cols) else None
        return None

    def table_under(self, node: Node) -> str | None:
        """Return the table of which a plan keeps rows and columns only."""
        traced = self._trace(node, ())
        return traced[0] if traced is not None else None

    def choose(self, name: str) -> Distribution:
        """Choose the columns that serve most uses; the primary key, or all columns, if there are none."""
        table = self._tables[name]
        if table.stream is not None and name in self.needs.whole:
            return Distribution("one")
        uses = self.needs.keys(name) if table.stream is not None else []
        uses = uses or [tuple(dict.fromkeys(cols)) for cols in self._uses[name] if cols]
        if uses:
            return Distribution("hash", max(uses, key=lambda cols: sum(set(cols) <= set(use) for use in uses)))
        if table.stream is not None:
            return Distribution("one")
        cols = table.key or tuple(range(len(table.schema)))
        return Distribution("hash", cols) if cols else Distribution("one")
