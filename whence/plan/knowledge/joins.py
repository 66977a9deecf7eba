"""Facts of joins: pairs of rows, rows with or without a partner.

A pair stays if both of its rows do and the condition can only become true. A row without a partner goes when one comes:
`NOT EXISTS` may become false until no more partners can come; then it is final. The optional side of a LEFT JOIN that
has at most one partner per row is NULL until that comes, and then changes as it does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from whence.model.types import BOOLEAN, Schema
from whence.plan.algebra.constructors import join_schema
from whence.plan.algebra.expressions import Col, Expr, conjuncts, substitute
from whence.plan.algebra.logical import Join, Node
from whence.plan.knowledge.bounds import Bounds
from whence.plan.knowledge.facts import Cell, Described, Facts, reordered, unknown_row
from whence.plan.knowledge.model import Doubt, Growing, Operation, Padded
from whence.plan.knowledge.terms import Direction, direction_of, to_term, unknown

if TYPE_CHECKING:
    from whence.plan.knowledge.derive import KnowledgeDeriver

_MOST_BRANCHES = 32


def join_facts(deriver: KnowledgeDeriver, node: Join) -> Facts:
    """Return the facts of a join."""
    if node.kind in ("right", "full"):
        return deriver.unsure(node)
    left, right = deriver.of(node.left), deriver.of(node.right)
    if node.kind == "left" and not _is_optional(node, right):
        return deriver.unsure(node)
    if node.kind not in ("inner", "left"):
        right = replace(right, plan=node.right, cells=right.cells[: right.width])
    pairs = _Pairs(node, left, right)
    rows = pairs.rows()
    match node.kind:
        case "inner":
            return _inner(deriver, pairs, rows)
        case "left":
            return _left(deriver, pairs, rows)
    return _existential(deriver, pairs, rows)


def _is_optional(node: Join, right: Facts) -> bool:
    """Return whether each row of the left has at most one partner, the same one for good."""
    matched = {b for _, b in node.keys}
    return right.key is not None and set(right.key) <= matched and bool(node.keys) and right.only_comes


def _inner(deriver: KnowledgeDeriver, pairs: _Pairs, rows: tuple[Described, ...]) -> Facts:
    left, right, by = pairs.left, pairs.right, len(pairs.left.cells)
    shift = {c: c + by for c in range(len(right.cells))}
    cells = left.cells + tuple(deriver.moved(cell, shift) for cell in right.cells)
    presence = left.presence + tuple(deriver.moved(cell, shift) for cell in right.presence)
    presence += tuple(pairs.tests(cells))
    key = None if left.key is None or right.key is None else left.key + tuple(c + by for c in right.key)
    return _shown_first(deriver, pairs, Facts(pairs.plan(), len(cells), cells, rows, presence, key))


def _left(deriver: KnowledgeDeriver, pairs: _Pairs, rows: tuple[Described, ...]) -> Facts:
    left, right, by = pairs.left, pairs.right, len(pairs.left.cells)
    types = [cell.term.type for cell in (*left.cells, *right.cells)]
    alone = tuple(Described(r.bases, r.columns + tuple(unknown(t) for t in types[by:]), r.where) for r in left.rows)
    if not (left.is_still or left.key is not None) or any(True for _ in pairs.tests(pairs.cells())):
        return deriver.unsure(pairs.node)
    growth = deriver.growth(left.identity, rows, new=pairs.right_bases)
    shift = {c: c + by for c in range(len(right.cells))}
    matched = by + pairs.node.keys[0][1]  # it is NULL if, and only if, there is no partner
    cells = list(left.cells)
    for cell in right.cells:
        own = deriver.moved(cell, shift)
        fresh = unknown(own.term.type, own.domain)
        way: Direction = cell.direction if cell.direction in ("up", "down") else "any"
        cells.append(Cell(Padded(own.term.type, matched, own.term, fresh, growth), way, own.domain.or_null()))
    facts = Facts(pairs.plan(), len(cells), tuple(cells), alone + rows, left.presence, left.key)
    return _shown_first(deriver, pairs, facts)


def _existential(deriver: KnowledgeDeriver, pairs: _Pairs, rows: tuple[Described, ...]) -> Facts:
    """Return the facts of rows of the left that have a partner, have none, or are told whether they have one."""
    node, left, right, by = pairs.node, pairs.left, pairs.right, len(pairs.left.cells)
    exact = right.only_comes and not any(True for _ in pairs.tests(pairs.cells()))
    growth = deriver.growth(left.identity, rows, new=pairs.right_bases)
    pairs_only = tuple(replace(row, columns=row.columns[:by]) for row in rows)
    wide = len(left.cells) > left.width
    plan = node if left.plan is node.left else _over_left(node, left.plan)
    if node.kind == "semi":
        doubt = () if exact else (Cell(Doubt("BOOLEAN", growth), "any"),)
        return replace(left, plan=plan, rows=pairs_only, presence=left.presence + doubt)
    everything = left.rows + pairs_only
    if node.kind == "anti":
        doubt = (Cell(Doubt("BOOLEAN", growth), "down" if exact else "any"),)
        return replace(left, plan=plan, rows=everything, presence=left.presence + doubt)
    mark = Cell(Growing("BOOLEAN", by, "up" if exact else "asof", growth), "up" if exact else "any")
    mark = replace(mark, domain=Bounds(False, True, null=False))
    marked = tuple(replace(row, columns=(*row.columns, unknown(BOOLEAN))) for row in everything)
    facts = Facts(plan, by + 1, (*left.cells, mark), marked, left.presence, left.key)
    if not wide:
        return facts
    order = [*range(left.width), by, *range(left.width, by)]
    return deriver.picked(facts, order, reordered(plan, order), left.width + 1)


def _shown_first(deriver: KnowledgeDeriver, pairs: _Pairs, facts: Facts) -> Facts:
    """Return the facts of a join with the shown columns of both sides first."""
    left, right, by = pairs.left, pairs.right, len(pairs.left.cells)
    width = left.width + right.width
    if len(facts.cells) == width:
        return replace(facts, width=width)
    order = [*range(left.width), *range(by, by + right.width)]
    order += [*range(left.width, by), *range(by + right.width, len(facts.cells))]
    return deriver.picked(facts, order, reordered(facts.plan, order), width)


class _Pairs:
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


def _over_left(node: Join, left: Node) -> Join:
    """Put a semi, anti or mark join over a left side that has more columns."""
    before, now = len(node.left.schema), len(left.schema)
    residual = node.residual
    if residual is not None:
        residual = substitute(residual, lambda c: c if c.index < before else Col(c.type, c.index - before + now))
    added = node.schema.columns[before:]
    return Join(Schema((*left.schema.columns, *added)), left, node.right, node.kind, node.keys, residual)
