"""Add the moves that a plan of partitioned relations needs: each operator finds in its own partition what it must see.

Law: the rows of a distributed plan, over all partitions (or, of a relation that is everywhere, in any one), are those
of the plan it was made from. An operator runs in every partition on what is there. Which rows it must see together is
for each node to say (`Node.together`, `Node.place`). Where they are not, rows are moved (`Ship`) or, if they are
everywhere, each partition keeps its own (`LocalFilter`).

Streams: each partition has a subsequence of every stream, in its order, and together they have it whole; rows with one
`$at` are in one partition, unless a promise closed windows of several keys, which stand in no order. So what a
partition's operator makes of its share is its share of what one operator would make of everything. Shipped rows are put
in order of `$at` where they arrive (`engine/exchange/ship.py`). Rows that carry provenance cannot be shipped: a traced
network stands on base streams that are where all of it needs them, by a key that reaches every operator, or in one
partition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from whence.model.types import Kind, Schema
from whence.plan.algebra.arrival import has_at
from whence.plan.algebra.distribution import (
    ALL,
    ONE,
    SPREAD,
    DistributionProperty,
    Pairs,
    are_together,
    by,
    match_columns,
)
from whence.plan.algebra.logical import Join, LocalFilter, Node, Ship
from whence.plan.partitions.heavy_keys import Heavy, HeavyKeys, Key, RoutedJoin, name_of, routed_columns, rows_by


class TracedMoveError(Exception):
    """Rows that carry provenance would have to be shipped: those of this node."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node


class Placed(NamedTuple):
    """A plan whose operators find what they need, and where its rows are."""

    node: Node
    place: DistributionProperty

    @property
    def everywhere(self) -> bool:
        return self.place.kind == "all"

    @property
    def is_whole(self) -> bool:
        """Whether a partition that has any of its rows has all of them."""
        return self.everywhere or self.place == ONE

    def moved(self, cols: tuple[int, ...]) -> Placed:
        """Move the rows to where these columns route to; to the first partition if there are none."""
        if self.place.is_by(cols):
            return self
        schema = self.node.schema
        if self.everywhere:
            return Placed(LocalFilter(schema, self.node, cols or None), by(cols))
        return Placed(Ship(schema, self.node, "hash" if cols else "one", cols), by(cols))

    def copied(self) -> Placed:
        """Copy the rows to every partition."""
        if self.everywhere:
            return self
        return Placed(self.node.gathered_everywhere() or Ship(self.node.schema, self.node, "all"), ALL)

    def once(self) -> Placed:
        """Leave each row in one partition only, wherever."""
        return self.moved(tuple(range(len(self.node.schema)))) if self.everywhere else self

    def under(self, node: Node) -> Placed:
        """Put a node of one input over this one; columns are followed to where they go."""
        out: dict[int, list[int]] = {}
        for at in range(len(node.schema)):
            column = node.origin(0, at)
            if column is not None:
                out.setdefault(column, []).append(at)
        return Placed(node.with_inputs([self.node]), self.place.mapped(lambda c: out.get(c, ())))

    def only_first(self) -> Placed:
        """Drop a row that is there even over nothing in all partitions but the first."""
        return Placed(LocalFilter(self.node.schema, self.node, None), ONE) if self.node.has_row_over_nothing else self


class DistributionEnforcer:
    """Places plans over tables and views whose places are known. `traced` says which views are streams whose rows
    carry provenance; TracedMoveError if such rows are not where an operator needs them. `heavy` are the keys that joins
    divide; `joins` are those that could divide some, by name."""

    def __init__(
        self,
        tables: Mapping[str, DistributionProperty],
        views: Mapping[str, DistributionProperty],
        traced: Mapping[str, bool],
        partitions: int,
        heavy: Heavy | None = None,
    ):
        self.tables, self.views, self.traced, self.partitions = tables, views, traced, partitions
        self.heavy: Heavy = heavy if heavy is not None else {}
        self.joins: dict[str, RoutedJoin] = {}
        self._names: dict[int, str] = {}

    def place(self, node: Node) -> Placed:
        """Return the plan with every move it needs."""
        return node.place(self)

    def at(self, node: Node, place: DistributionProperty) -> Placed:
        """Return a plan whose rows are known to be at a place."""
        return Placed(node, place)

    def check_untraced(self, node: Node, *below: Placed) -> None:
        """Raise TracedMoveError for a node if the rows of one of these streams carry provenance."""
        if any(has_at(b.node.schema) and b.node.is_traced(self.traced) for b in below):
            raise TracedMoveError(node)

    def gathered(self, below: Placed, cols: Sequence[int]) -> Placed:
        """Bring rows that are equal in some columns together."""
        if below.everywhere or (below.place.kind == "hash" and all(same & {*cols} for same in below.place.cols)):
            return below
        self.check_untraced(below.node, below)
        is_stream = has_at(below.node.schema)
        return below.moved(_routable(below.node.schema, cols) if is_stream else tuple(cols))

    def align(self, left: Placed, right: Placed, pairs: Pairs, copyable: tuple[bool, bool]) -> tuple[Placed, Placed]:
        """Bring both sides to where rows that agree in the pairs meet; as little as possible is moved.

        A side may be everywhere while the other is not only if it is copyable."""
        if left.everywhere and right.everywhere:
            return left, right
        if (left.everywhere and copyable[0]) or (right.everywhere and copyable[1]):
            return left, right
        if are_together(left.place, right.place, pairs):
            return left, right
        back = [(b, a) for a, b in pairs]
        for_right, for_left = match_columns(left.place, pairs), match_columns(right.place, back)
        # What is everywhere finds its place without a move.
        if left.everywhere and for_left is not None:
            return left.moved(for_left), right
        if right.everywhere and for_right is not None:
            return left, right.moved(for_right)
        if copyable[1] and right.node.is_small:
            return left, right.copied()
        if copyable[0] and left.node.is_small:
            return left.copied(), right
        if for_right:
            return left, right.moved(for_right)
        if for_left:
            return left.moved(for_left), right
        if pairs:
            return left.moved(tuple(a for a, _ in pairs)), right.moved(tuple(b for _, b in pairs))
        # Nothing to route by: a copy, best of what is in one place only. What may not be copied and is in one place
        # stays there, and the others come to it.
        stays = (left if copyable[1] else right).place == ONE
        if copyable == (True, True):
            return (left.copied(), right.once()) if left.place == ONE else (left.once(), right.copied())
        if stays or not any(copyable):
            return left.moved(()), right.moved(())
        return (left.once(), right.copied()) if copyable[1] else (left.copied(), right.once())

    def divide(
        self, join: Join, left: Placed, right: Placed, pairs: Pairs, copyable: tuple[bool, bool]
    ) -> tuple[Placed, Placed]:
        """Divide the rows of heavy keys of a join whose sides are routed by key, see `heavy_keys.py`."""
        routed = routed_columns(left.place, right.place, pairs)
        if not routed or not any(copyable) or has_at(left.node.schema) or has_at(right.node.schema):
            return left, right
        ours, theirs = tuple(a for a, _ in routed), tuple(b for _, b in routed)
        name = f"{name_of(join, self._names)}:{','.join(map(str, (*ours, *theirs)))}"
        left, right = _named(left, ours, f"{name}/left"), _named(right, theirs, f"{name}/right")
        self.joins[name] = RoutedJoin(
            name,
            (rows_by(left.node, ours), rows_by(right.node, theirs)),
            (copyable[1], copyable[0]),
            tuple(tuple(side.node.schema.names[c] for c in cols) for side, cols in ((left, ours), (right, theirs))),  # type: ignore[arg-type]  # two of them
            tuple(left.node.schema.types[c] for c in ours),
        )
        keys = self.heavy.get(name, HeavyKeys())
        if not keys:
            return left, right
        return _divided(left, ours, keys.left, keys.right), _divided(right, theirs, keys.right, keys.left)


def _named(side: Placed, cols: tuple[int, ...], name: str) -> Placed:
    """Name what is moved to one side of a join."""
    node = side.node
    if isinstance(node, Ship) and node.to == "hash" and node.cols == cols:
        return Placed(replace(node, rows_of=name), side.place)
    return side


def _divided(side: Placed, cols: tuple[int, ...], divided: tuple[Key, ...], copied: tuple[Key, ...]) -> Placed:
    node = side.node
    if not (isinstance(node, Ship) and node.to == "hash" and node.cols == cols):
        node = Ship(node.schema, node, "hash", cols)
    return Placed(replace(node, divided=divided, copied=copied), SPREAD)


def _routable(schema: Schema, cols: Sequence[int]) -> tuple[int, ...]:
    """Return the columns that rows can be routed by: equal values have equal codes."""
    return tuple(c for c in cols if schema.types[c].kind is not Kind.INTERVAL)
