"""Join: pairs of rows of two inputs, or rows of one that have a partner in the other.

Each row must be where its partners are: rows meet by key, or one side is everywhere. A side whose rows are answered for
even when they have no partner (both of FULL, the left of LEFT, SEMI, ANTI and MARK, the right of RIGHT) must not be
everywhere while the other is not: a partition would miss partners that another has. NULL keys are routed like others:
such rows have no partner, but they live once and are padded once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from whence.plan.algebra.distribution import ALL, ONE, SPREAD, DistributionProperty, equate_columns, same_codes
from whence.plan.algebra.expressions import Expr
from whence.plan.algebra.logical.node import Binary, Columns, Node

if TYPE_CHECKING:
    from whence.plan.knowledge.derive import KnowledgeDeriver
    from whence.plan.knowledge.facts import Facts
    from whence.plan.partitions.enforce import DistributionEnforcer, Placed

JoinKind = Literal["inner", "left", "right", "full", "semi", "anti", "mark"]

_COPYABLE = {  # the sides of a join whose rows are not answered for alone
    "inner": (True, True),
    "left": (False, True),
    "semi": (False, True),
    "anti": (False, True),
    "mark": (False, True),
    "right": (True, False),
    "full": (False, False),
}
_NEGATIVE_RIGHT = {"anti": "NOT EXISTS or NOT IN", "mark": "a subquery in an expression", "left": "a LEFT JOIN"}


def routable_keys(left: Node, right: Node, keys: tuple[tuple[int, int], ...]) -> list[tuple[int, int]]:
    """Return the key pairs by which rows can be routed: equal values have equal codes."""
    ours, theirs = left.schema.types, right.schema.types
    return [(a, b) for a, b in keys if same_codes(ours[a], theirs[b])]


def describe_match(keys: tuple[tuple[int, int], ...], residual: Expr | None) -> str:
    """Return the conditions of a join as text."""
    equal = " AND ".join(f"left #{a} = right #{b}" for a, b in keys) or "all pairs"
    return equal + (f", where {residual}" if residual is not None else "")


@dataclass(frozen=True)
class Join(Binary):
    """`keys` pairs a left column with a right column of the same type; `residual` is over left then right columns.

    inner, left, right, full: pairs with equal keys (NULL never is) for which the residual is true, padded; semi, anti:
    left rows that have some or no match; mark: left rows with a BOOLEAN "has a match" appended."""

    kind: JoinKind
    keys: tuple[tuple[int, int], ...] = ()
    residual: Expr | None = None

    def shape(self) -> object:
        return ("join", self.kind, self.keys, self.residual)

    def describe(self) -> str:
        return f"{self.kind} join on {describe_match(self.keys, self.residual)}"

    def refuses_recursion(self, side: int) -> str | None:
        if self.kind == "full":
            return "a FULL JOIN"
        if self.kind == "right":
            return "a RIGHT JOIN" if side == 0 else None
        return _NEGATIVE_RIGHT.get(self.kind) if side == 1 else None

    def knows(self, deriver: KnowledgeDeriver) -> Facts:
        return deriver.joined(self)

    def together(self) -> tuple[Columns | None, ...]:
        pairs = routable_keys(self.left, self.right, self.keys)
        return tuple(a for a, _ in pairs), tuple(b for _, b in pairs)

    def place(self, planner: DistributionEnforcer) -> Placed:
        pairs = routable_keys(self.left, self.right, self.keys)
        left, right = planner.align(planner.place(self.left), planner.place(self.right), pairs, _COPYABLE[self.kind])
        left, right = planner.divide(self, left, right, pairs, _COPYABLE[self.kind])
        made = self.with_inputs([left.node, right.node])
        if left.everywhere and right.everywhere:
            return planner.at(made, ALL)
        width = len(self.left.schema)
        beside = right.place.mapped(lambda c: (c + width,))
        match self.kind:
            case "inner":
                place = beside if left.everywhere else left.place
                if left.place.kind == right.place.kind == "hash":
                    both = zip(left.place.cols, beside.cols, strict=True)
                    place = DistributionProperty("hash", tuple(a | b for a, b in both))
                return planner.at(made, equate_columns(place, [(a, b + width) for a, b in pairs]))
            case "right":
                return planner.at(made, beside)
            case "full":  # rows of the right without a partner have NULLs on the left, and are not where NULLs route to
                return planner.at(made, ONE if left.place == ONE else SPREAD)
        return planner.at(made, left.place)

    @property
    def is_small(self) -> bool:
        return self.kind in ("semi", "anti", "mark") and self.left.is_small
