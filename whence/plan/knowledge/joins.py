"""Facts of joins: pairs of rows, rows with or without a partner.

A pair stays if both of its rows do and the condition can only become true. A row without a partner goes when one comes:
`NOT EXISTS` may become false until no more partners can come; then it is final. Outer joins: `outer_joins.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from whence.model.types import BOOLEAN, Schema
from whence.plan.algebra.expressions import Col, substitute
from whence.plan.algebra.logical import Join, Node
from whence.plan.knowledge.bounds import Bounds
from whence.plan.knowledge.facts import Cell, Described, Facts, reordered
from whence.plan.knowledge.model import Doubt, Growing
from whence.plan.knowledge.outer_joins import outer_join_facts
from whence.plan.knowledge.pairs import Pairs, shown_first
from whence.plan.knowledge.terms import unknown

if TYPE_CHECKING:
    from whence.plan.knowledge.derive import KnowledgeDeriver


def join_facts(deriver: KnowledgeDeriver, node: Join) -> Facts:
    """Return the facts of a join."""
    if node.kind in ("left", "right", "full"):
        return outer_join_facts(deriver, node)
    left, right = deriver.of(node.left), deriver.of(node.right)
    if node.kind == "inner":
        pairs = Pairs(node, left, right)
        return _inner(deriver, pairs, pairs.rows())
    pairs = Pairs(node, left, replace(right, plan=node.right, cells=right.cells[: right.width]))
    return _existential(deriver, pairs, pairs.rows())


def _inner(deriver: KnowledgeDeriver, pairs: Pairs, rows: tuple[Described, ...]) -> Facts:
    left, right, by = pairs.left, pairs.right, len(pairs.left.cells)
    cells = left.cells + tuple(pairs.moved_right(deriver, cell) for cell in right.cells)
    presence = left.presence + tuple(pairs.moved_right(deriver, cell) for cell in right.presence)
    presence += tuple(pairs.tests(cells))
    key = None if left.key is None or right.key is None else left.key + tuple(c + by for c in right.key)
    return shown_first(deriver, pairs, Facts(pairs.plan(), len(cells), cells, rows, presence, key))


def _existential(deriver: KnowledgeDeriver, pairs: Pairs, rows: tuple[Described, ...]) -> Facts:
    """Return the facts of rows of the left that have a partner, have none, or are told whether they have one."""
    node, left, right, by = pairs.node, pairs.left, pairs.right, len(pairs.left.cells)
    exact = right.only_comes and not any(True for _ in pairs.tests(pairs.cells()))
    growth = deriver.growth(pairs.decides("left") if exact else left.identity, rows, new=pairs.right_bases)
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


def _over_left(node: Join, left: Node) -> Join:
    """Put a semi, anti or mark join over a left side that has more columns."""
    before, now = len(node.left.schema), len(left.schema)
    residual = node.residual
    if residual is not None:
        residual = substitute(residual, lambda c: c if c.index < before else Col(c.type, c.index - before + now))
    added = node.schema.columns[before:]
    return Join(Schema((*left.schema.columns, *added)), left, node.right, node.kind, node.keys, residual)
