"""Divide the rows of heavy keys among partitions where a join would have them all in one.

A key is *heavy* if so many rows have it that the partition it routes to works longer than the others. Law: for a key
that is divided on one side of a join, each row of that side is in one partition, routed by all its columns, and the
rows of the other side that have the key are in every one; so each pair meets in exactly one partition. The side that is
copied must be one whose rows are not answered for alone (`plan/algebra/logical/join.py`). What a join gives then lives
anywhere, so an aggregate over it is computed in two steps.

Which keys are heavy changes the work, never the rows. Partitions count (`engine/exchange/heavy_keys.py`), the driver
decides (`runtime/spark/driver/heavy_joins.py`), and a new plan tells every process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

from whence.model.types import Type
from whence.plan.algebra.distribution import DistributionProperty, Pairs
from whence.plan.algebra.logical import Join, LocalFilter, Node, Ref, Scan, Ship

Key = tuple[int, ...]
"""Codes of the columns that rows are routed by."""


@dataclass(frozen=True)
class HeavyKeys:
    """The keys of a join whose rows are divided: those of the left side, and those of the right. The rows of the other
    side that have them are copied."""

    left: tuple[Key, ...] = ()
    right: tuple[Key, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.left or self.right)


Heavy = Mapping[str, HeavyKeys]
"""By the names of joins."""


@dataclass(frozen=True)
class RowsBy:
    """Rows that can be counted in the partitions: of a table or view, or those that ships of a name have moved."""

    relation: str
    moved: str
    cols: tuple[int, ...]


@dataclass(frozen=True)
class RoutedJoin:
    """A join both of whose sides are routed by their keys; what its sides are made of, and which may be divided."""

    name: str
    sides: tuple[tuple[RowsBy, ...], tuple[RowsBy, ...]]
    dividable: tuple[bool, bool]
    columns: tuple[tuple[str, ...], tuple[str, ...]]  # of each side
    types: tuple[Type, ...]


def name_of(node: Node, known: dict[int, str]) -> str:
    """Return a name for a plan that is the same in every process; equal names of other plans would cost work only."""
    found = known.get(id(node))
    if found is None:
        parts = [node.describe(), *node.names, *(name_of(child, known) for child in node.inputs)]
        found = known[id(node)] = blake2b("\n".join(parts).encode(errors="replace"), digest_size=8).hexdigest()
    return found


def routed_columns(left: DistributionProperty, right: DistributionProperty, pairs: Pairs) -> Pairs:
    """Return the pairs of columns by which both sides of a join are routed; none if they are not routed alike."""
    if left.kind != "hash" or right.kind != "hash" or len(left.cols) != len(right.cols):
        return []
    both = zip(left.cols, right.cols, strict=True)
    found = [next(((a, b) for a, b in pairs if a in ours and b in theirs), None) for ours, theirs in both]
    return [pair for pair in found if pair is not None] if None not in found else []


def rows_by(node: Node, cols: tuple[int, ...]) -> tuple[RowsBy, ...]:
    """Return where the rows that have the keys of a placed plan can be counted: of a join, the rows of the side that
    the columns are of."""
    match node:
        case Ship():
            return (RowsBy("", node.rows_of, cols),) if node.rows_of else ()
        case Scan():
            return (RowsBy(node.table, "", cols),)
        case Ref():
            return (RowsBy(node.view, "", cols),)
        case Join():
            width = len(node.left.schema)
            if max(cols) < width:
                return rows_by(node.left, cols)
            return rows_by(node.right, tuple(c - width for c in cols)) if min(cols) >= width else ()
        case LocalFilter():
            return ()
    if not node.passes:
        return ()
    found: tuple[RowsBy, ...] = ()
    for side, child in enumerate(node.inputs):
        below = tuple(at for c in cols if (at := node.origin(side, c)) is not None)
        found += rows_by(child, below) if len(below) == len(cols) else ()
    return found
