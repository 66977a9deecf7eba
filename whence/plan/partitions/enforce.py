"""Plans of partitioned relations: each operator finds the rows it must see together in its own partition.

Law: the rows of a distributed plan, over all partitions (or, of a relation that is everywhere, in any one), are those
of the plan it was made from. An operator runs in every partition on what is there. That is right if

| operator | wants |
|---|---|
| Select, Project, Lateral, Union | nothing (a union counts each row once: none of its branches may be everywhere) |
| Distinct, SetOp, Aggregate | rows that are equal, or in one group, together |
| Join | rows that may be paired together: by key, or one side everywhere. A side whose rows are answered for even when
         they have no partner (both of FULL, the left of LEFT, SEMI, ANTI, MARK, the right of RIGHT) must not be
         everywhere while the other is not: a partition would miss partners that another has |
| TopK | all rows in one place |

and where it is not so, rows are moved (`Ship`) or, if they are everywhere, each partition keeps its own
(`LocalFilter`). NULL keys are routed like others: rows with them have no partner, but they live once and are padded
once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from whence.model.types import Kind, Schema
from whence.plan.algebra.expressions import Col
from whence.plan.algebra.logical import (
    Agg,
    Aggregate,
    Distinct,
    Join,
    Lateral,
    LocalFilter,
    Node,
    Project,
    Ref,
    Scan,
    Select,
    SetOp,
    Ship,
    TopK,
    Union,
    Values,
)
from whence.plan.partitions.distribution import (
    ALL,
    ONE,
    SPREAD,
    DistributionProperty,
    Pairs,
    by,
    equated,
    partner,
    same_codes,
    together,
)
from whence.plan.recursion.native import strip

_FEW = 1000  # rows that may be copied without a thought
_SUMMED_DIGITS = 28  # so that 2**31 numbers, as many as an aggregate takes in, have a sum of 38 digits
_COPYABLE = {  # the sides of a join whose rows are not answered for alone
    "inner": (True, True),
    "left": (False, True),
    "semi": (False, True),
    "anti": (False, True),
    "mark": (False, True),
    "right": (True, False),
    "full": (False, False),
}


class Placed(NamedTuple):
    """A plan whose operators find what they need, and where its rows are."""

    node: Node
    place: DistributionProperty

    @property
    def everywhere(self) -> bool:
        return self.place.kind == "all"

    def moved(self, cols: tuple[int, ...]) -> Placed:
        """The rows where these columns route to; the first partition if there are none."""
        if self.place.is_by(cols):
            return self
        schema = self.node.schema
        if self.everywhere:
            return Placed(LocalFilter(schema, self.node, cols or None), by(cols))
        return Placed(Ship(schema, self.node, "hash" if cols else "one", cols), by(cols))

    def copied(self) -> Placed:
        """The rows in every partition."""
        if self.everywhere:
            return self
        return Placed(_gathered_everywhere(self.node) or Ship(self.node.schema, self.node, "all"), ALL)

    def once(self) -> Placed:
        """Each row in one partition only, wherever."""
        return self.moved(tuple(range(len(self.node.schema)))) if self.everywhere else self

    def over(self, node: Node) -> Placed:
        """A node over this one that leaves rows and columns where they are."""
        return Placed(replace(node, input=self.node), self.place)  # type: ignore[call-arg]  # nodes of one input


class DistributionEnforcer:
    """Places plans over tables and views whose places are known."""

    def __init__(self, tables: Mapping[str, DistributionProperty], views: Mapping[str, DistributionProperty]):
        self.tables, self.views = tables, views

    def place(self, node: Node) -> Placed:
        """The plan with every move it needs."""
        match node:
            case Scan():
                return Placed(node, self.tables[node.table])
            case Ref():
                return Placed(node, self.views[node.view])
            case Values():
                return Placed(node, ALL)
            case Select() | Lateral():
                return self.place(node.input).over(node)
            case Project():
                below, kept = self.place(node.input), kept_columns(node)
                return Placed(replace(node, input=below.node), below.place.mapped(lambda c: kept.get(c, ())))
            case Union():
                return _union(node, [self.place(b) for b in node.branches])
            case Join():
                return _join(node, self.place(node.left), self.place(node.right))
            case Distinct():
                return _distinct(node, self.place(node.input))
            case SetOp():
                pairs = [(c, c) for c in range(len(node.schema))]
                left, right = _aligned(self.place(node.left), self.place(node.right), pairs, (False, False))
                cols = zip(left.place.cols, right.place.cols, strict=True)
                place = DistributionProperty(left.place.kind, tuple(a & b for a, b in cols))
                return Placed(replace(node, left=left.node, right=right.node), place)
            case Aggregate():
                return _aggregate(node, self.place(node.input))
            case TopK():
                return _top(node, self.place(node.input))
        raise TypeError(f"{type(node).__name__} cannot be placed")


def kept_columns(node: Project) -> dict[int, list[int]]:
    """Where a projection's input columns go on: as they are, or under a cast that keeps their codes."""
    found: dict[int, list[int]] = {}
    for at, expr in enumerate(map(strip, node.exprs)):
        if isinstance(expr, Col):
            found.setdefault(expr.index, []).append(at)
    return found


def _every(schema: Schema) -> tuple[int, ...]:
    return tuple(range(len(schema)))


# -- unions and joins --------------------------------------------------------------------------------------------------


def _union(node: Union, branches: list[Placed]) -> Placed:
    if all(b.everywhere for b in branches):
        return Placed(replace(node, branches=tuple(b.node for b in branches)), ALL)
    places = [b.place for b in branches if not b.everywhere]
    place = places[0]
    for other in places[1:]:
        alike = place.kind == other.kind == "hash" and len(place.cols) == len(other.cols)
        cols = tuple(a & b for a, b in zip(place.cols, other.cols, strict=True)) if alike else ()
        place = DistributionProperty("hash", cols) if alike and all(cols) else SPREAD
    own = [b.moved(place.dist.cols) if b.everywhere and place.kind == "hash" else b.once() for b in branches]
    return Placed(replace(node, branches=tuple(b.node for b in own)), place)


def usable_keys(node: Join) -> list[tuple[int, int]]:
    """The key pairs by which rows can be routed: equal values have equal codes."""
    ours, theirs = node.left.schema.types, node.right.schema.types
    return [(a, b) for a, b in node.keys if same_codes(ours[a], theirs[b])]


def _join(node: Join, left: Placed, right: Placed) -> Placed:
    pairs = usable_keys(node)
    left, right = _aligned(left, right, pairs, _COPYABLE[node.kind])
    made = replace(node, left=left.node, right=right.node)
    width = len(node.left.schema)
    if left.everywhere and right.everywhere:
        return Placed(made, ALL)
    beside = right.place.mapped(lambda c: (c + width,))
    match node.kind:
        case "inner":
            place = beside if left.everywhere else left.place
            if left.place.kind == right.place.kind == "hash":
                place = DistributionProperty(
                    "hash", tuple(a | b for a, b in zip(left.place.cols, beside.cols, strict=True))
                )
            return Placed(made, equated(place, [(a, b + width) for a, b in pairs]))
        case "right":
            return Placed(made, beside)
        case "full":  # rows of the right without a partner have NULLs on the left, and are not where NULLs route to
            return Placed(made, ONE if left.place == ONE else SPREAD)
    return Placed(made, left.place)


def _aligned(left: Placed, right: Placed, pairs: Pairs, copyable: tuple[bool, bool]) -> tuple[Placed, Placed]:
    """Both sides so that rows that agree in the pairs meet; as little as possible is moved.

    A side may be everywhere while the other is not only if it is copyable."""
    if left.everywhere and right.everywhere:
        return left, right
    if (left.everywhere and copyable[0]) or (right.everywhere and copyable[1]):
        return left, right
    if together(left.place, right.place, pairs):
        return left, right
    back = [(b, a) for a, b in pairs]
    for_right, for_left = partner(left.place, pairs), partner(right.place, back)
    # What is everywhere finds its place without a move.
    if left.everywhere and for_left is not None:
        return left.moved(for_left), right
    if right.everywhere and for_right is not None:
        return left, right.moved(for_right)
    if copyable[1] and few(right.node):
        return left, right.copied()
    if copyable[0] and few(left.node):
        return left.copied(), right
    if for_right:
        return left, right.moved(for_right)
    if for_left:
        return left.moved(for_left), right
    if pairs:
        return left.moved(tuple(a for a, _ in pairs)), right.moved(tuple(b for _, b in pairs))
    # Nothing to route by: a copy, best of what is in one place only. What may not be copied and is in one place stays
    # there, and the others come to it.
    stays = (left if copyable[1] else right).place == ONE
    if copyable == (True, True):
        return (left.copied(), right.once()) if left.place == ONE else (left.once(), right.copied())
    if stays or not any(copyable):
        return left.moved(()), right.moved(())
    return (left.once(), right.copied()) if copyable[1] else (left.copied(), right.once())


def few(node: Node) -> bool:
    """Whether a plan never has more than a handful of rows."""
    match node:
        case Values():
            return len(node.rows) <= _FEW
        case Aggregate():
            return not node.keys or few(node.input)
        case TopK():
            return (node.limit is not None and node.limit <= _FEW) or few(node.input)
        case Distinct() if not node.schema.columns:
            return True
        case Select() | Project() | Distinct() | Ship() | LocalFilter():
            return few(node.input)
        case Join(kind="semi" | "anti" | "mark"):
            return few(node.left)
    return False


def _gathered_everywhere(node: Node) -> Node | None:
    """A plan that gathers a few rows in one place, gathering them in every place instead: one move, not two."""
    match node:
        case Ship() if few(node.input):
            return Ship(node.schema, node.input, "all")
        case LocalFilter(cols=None, input=Aggregate(keys=()) as above):  # see _only_first
            below = _gathered_everywhere(above.input)
            return replace(above, input=below) if below is not None else None
        case Select() | Project() | TopK():
            below = _gathered_everywhere(node.input)
            return replace(node, input=below) if below is not None else None
    return None


# -- equal rows, aggregates and tops -----------------------------------------------------------------------------------


def _distinct(node: Distinct, below: Placed) -> Placed:
    if below.everywhere:
        return below.over(node)
    if not node.schema.columns:  # whether there is a row at all, as EXISTS asks: every partition hears of all others
        return Placed(replace(node, input=Ship(node.schema, below.over(node).node, "all")), ALL)
    return (below.moved(_every(node.schema)) if below.place.kind == "spread" else below).over(node)


def _aggregate(node: Aggregate, below: Placed) -> Placed:
    if below.everywhere:
        return below.over(node)
    kept = below.place.mapped(lambda c: [at for at, key in enumerate(node.keys) if key == c])
    if kept.kind == "hash":
        return _only_first(Placed(below.over(node).node, kept))
    keys = tuple(range(len(node.keys)))
    parts = _parts(node)
    if parts is not None:
        partial = Placed(replace(node, input=below.node), SPREAD).moved(keys)
        made = Aggregate(node.schema, partial.node, keys, parts)
    else:
        made = replace(node, input=below.moved(node.keys).node)
    return _only_first(Placed(made, by(keys)))


def _only_first(made: Placed) -> Placed:
    """An aggregate without keys has a row even over nothing: the other partitions must not have theirs."""
    assert isinstance(made.node, Aggregate)
    return made if made.node.keys else Placed(LocalFilter(made.node.schema, made.node, None), ONE)


def _parts(node: Aggregate) -> tuple[Agg, ...] | None:
    """The aggregates that make the result of results of parts of the rows; None if that is not exact."""
    found = []
    for number, agg in enumerate(node.aggs):
        at = len(node.keys) + number
        if agg.function in ("min", "max"):
            found.append(Agg(agg.function, at))
        elif agg.distinct:
            return None
        elif agg.function == "count" or (agg.function == "sum" and _fits(node.input.schema, agg.column)):
            found.append(Agg("sum", at))
        else:
            return None
    return tuple(found)


def _fits(schema: Schema, column: int | None) -> bool:
    """Whether no sum of some rows can be too large: else a part might be where the whole is not."""
    if column is None:
        return False
    type = schema.types[column]
    return type.kind is Kind.INTEGER or (type.kind is Kind.DECIMAL and type.precision <= _SUMMED_DIGITS)


def _top(node: TopK, below: Placed) -> Placed:
    if below.everywhere or below.place == ONE or (node.limit is None and not node.offset):
        return below.over(node)
    if node.limit is not None:  # what is not among the first of its own partition is not among the first of all
        below = below.over(replace(node, limit=node.limit + node.offset, offset=0))
    return below.moved(()).over(node)
