"""Pairs of rows: what the two sides of a join give together, over the columns of both plans side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from whence.plan.algebra.constructors import join_schema
from whence.plan.algebra.expressions import Col, Expr, columns_of, conjuncts, substitute
from whence.plan.algebra.logical import Join, Node
from whence.plan.knowledge.facts import Cell, Described, Facts, reordered, unknown_row
from whence.plan.knowledge.model import Operation
from whence.plan.knowledge.terms import direction_of, to_term

if TYPE_CHECKING:
    from whence.plan.knowledge.derive import KnowledgeDeriver

_MOST_BRANCHES = 32


class Pairs:
    """The pairs of rows of a join, over the columns of both plans side by side."""

    def __init__(self, node: Join, left: Facts, right: Facts) -> None:
        self.node, self.left, self.right = node, left, right
        self._split: dict[int, int] = {}

    def _place(self, column: int) -> int:
        """Return where a column that the residual reads stands."""
        return column if column < self.left.width else column - self.left.width + len(self.left.cells)

    def _residual(self) -> list[Expr]:
        return [substitute(term, lambda c: Col(c.type, self._place(c.index))) for term in conjuncts(self.node.residual)]

    def rows(self) -> tuple[Described, ...]:
        """Return what describes the pairs."""
        by, made = len(self.left.cells), list[Described]()
        if len(self.left.rows) * len(self.right.rows) > _MOST_BRANCHES:
            types = [cell.term.type for cell in (*self.left.cells, *self.right.cells)]
            bases = tuple(dict.fromkeys(base for f in (self.left, self.right) for r in f.rows for base in r.bases))
            return tuple(unknown_row(types, (base,)) for base in bases)
        for left in self.left.rows:
            for right in self.right.rows:
                both = left.beside(replace(right, columns=right.columns[: len(self.right.cells)]))
                equal = [Operation("BOOLEAN", "=", (both.columns[a], both.columns[by + b])) for a, b in self.node.keys]
                tests = [to_term(term, both.columns) for term in self._residual()]
                row = replace(both, where=(*both.where, *equal, *tests))
                self._split[id(row)] = len(left.bases)
                made.append(row)
        self._made = made  # ids stay theirs
        return tuple(made)

    def right_bases(self, row: Described) -> tuple[int, ...]:
        """Return the bases of a pair that are of the right; all, if that is not known."""
        return tuple(range(self._split.get(id(row), 0), len(row.bases)))

    def decides(self, side: Literal["left", "right"]) -> tuple[int, ...]:
        """Return the columns of a side's plan by which its rows have partners."""
        by = len(self.left.cells)
        read = {a for a, _ in self.node.keys} | {by + b for _, b in self.node.keys}
        for term in self._residual():
            read |= columns_of(term)
        return tuple(sorted(c for c in read if c < by) if side == "left" else sorted(c - by for c in read if c >= by))

    def left_bases(self, row: Described) -> tuple[int, ...]:
        """Return the bases of a pair that are of the left; all, if that is not known."""
        return tuple(range(self._split.get(id(row), len(row.bases))))

    def moved_right(self, deriver: KnowledgeDeriver, cell: Cell) -> Cell:
        """Return a cell of the right for the columns of both: of a pair, keys of the right are those of the left."""
        by = len(self.left.cells)
        place = {c: c + by for c in range(len(self.right.cells))}
        still = {b: a for a, b in self.node.keys if self.left.are_still([a]) and self.right.are_still([b])}
        return deriver.moved(cell, place, {**place, **still})

    def cells(self) -> list[Cell]:
        """Return the cells of both sides; their terms are those of either side."""
        return [*self.left.cells, *self.right.cells]

    def tests(self, cells: Sequence[Cell]) -> Iterable[Cell]:
        """Yield the conditions of the join that may change."""
        by = len(self.left.cells)
        for a, b in self.node.keys:
            if cells[a].direction != "still" or cells[by + b].direction != "still":
                yield Cell(Operation("BOOLEAN", "=", (cells[a].term, cells[by + b].term)), "any")
        directions, domains = [cell.direction for cell in cells], [cell.domain for cell in cells]
        for term in self._residual():
            way = direction_of(term, directions, domains)
            if way != "still":
                yield Cell(to_term(term, [cell.term for cell in cells]), way)

    def plan(self) -> Node:
        """Return the join of both plans."""
        node, left, right = self.node, self.left.plan, self.right.plan
        if left is node.left and right is node.right:
            return node
        residual = node.residual
        if residual is not None:
            residual = substitute(residual, lambda c: Col(c.type, self._place(c.index)))
        return Join(join_schema(left, right, node.kind), left, right, node.kind, node.keys, residual)


def shown_first(deriver: KnowledgeDeriver, pairs: Pairs, facts: Facts) -> Facts:
    """Return the facts of a join with the shown columns of both sides first."""
    left, right, by = pairs.left, pairs.right, len(pairs.left.cells)
    width = left.width + right.width
    if len(facts.cells) == width:
        return replace(facts, width=width)
    order = [*range(left.width), *range(by, by + right.width)]
    order += [*range(left.width, by), *range(by + right.width, len(facts.cells))]
    return deriver.picked(facts, order, reordered(facts.plan, order), width)
