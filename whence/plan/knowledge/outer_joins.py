"""Facts of outer joins: rows that are there with or without a partner.

| each row has | a row without a partner |
|---|---|
| at most one partner, by its key | stays; the other side is NULL until the partner comes, and then changes as it does |
| any number of partners that do not change | goes when the first one comes, and does not come back |

Both need sides whose rows only come, and conditions that do not change. A RIGHT JOIN is a LEFT JOIN of the sides in the
other order. Rows of a FULL JOIN by keys are identified by the key of whichever side is there, which `COALESCE(a, b)`,
and so `USING`, shows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from whence.model.types import Column, Schema
from whence.plan.algebra.constructors import columns, join_schema
from whence.plan.algebra.expressions import Call, Col, substitute
from whence.plan.algebra.logical import Join, Project
from whence.plan.knowledge.facts import Cell, Described, Facts, reordered
from whence.plan.knowledge.model import Doubt, Operation, Padded, Shown, Term
from whence.plan.knowledge.pairs import Pairs, shown_first
from whence.plan.knowledge.terms import Direction, unknown

if TYPE_CHECKING:
    from whence.plan.knowledge.derive import KnowledgeDeriver


def outer_join_facts(deriver: KnowledgeDeriver, node: Join) -> Facts:
    """Return the facts of a LEFT, RIGHT or FULL JOIN."""
    if node.kind == "right":
        return _mirrored(deriver, node)
    pairs = Pairs(node, deriver.of(node.left), deriver.of(node.right))
    left, right = pairs.left, pairs.right
    if not node.keys or any(True for _ in pairs.tests(pairs.cells())):
        return deriver.unsure(node)
    one_right, one_left = _is_optional(right, {b for _, b in node.keys}), _is_optional(left, {a for a, _ in node.keys})
    if node.kind == "left" and one_right and (left.is_still or left.key is not None):
        return _left_of_one(deriver, pairs)
    if node.kind == "full" and one_right and one_left and _have_keys(pairs):
        return _full_of_one(deriver, pairs)
    if right.is_settled and (node.kind == "left" or left.is_settled):
        return _alone_or_paired(deriver, pairs)
    return deriver.unsure(node)


def _is_optional(side: Facts, matched: set[int]) -> bool:
    """Return whether each row of the other side has at most one partner on this one, the same one for good."""
    return side.key is not None and set(side.key) <= matched and side.only_comes


def _mirrored(deriver: KnowledgeDeriver, node: Join) -> Facts:
    """Return the facts of a RIGHT JOIN: a LEFT JOIN of the sides in the other order, with its columns put back."""
    before, behind = len(node.left.schema), len(node.right.schema)
    residual = node.residual
    if residual is not None:
        residual = substitute(
            residual, lambda c: Col(c.type, c.index + behind if c.index < before else c.index - before)
        )
    keys = tuple((b, a) for a, b in node.keys)
    schema = join_schema(node.right, node.left, "left")
    facts = outer_join_facts(deriver, Join(schema, node.right, node.left, "left", keys, residual))
    order = [*range(behind, behind + before), *range(behind), *range(facts.width, len(facts.cells))]
    is_wide = len(facts.cells) > facts.width
    return deriver.picked(facts, order, reordered(facts.plan, order) if is_wide else node, facts.width)


def _left_of_one(deriver: KnowledgeDeriver, pairs: Pairs) -> Facts:
    left, right, by = pairs.left, pairs.right, len(pairs.left.cells)
    rows = pairs.rows()
    growth = deriver.growth(pairs.decides("left"), rows, new=pairs.right_bases)
    matched = by + pairs.node.keys[0][1]  # it is NULL if, and only if, there is no partner
    cells = list(left.cells)
    for cell in right.cells:
        cells.append(_padded(pairs.moved_right(deriver, cell), matched, growth))
    facts = Facts(pairs.plan(), len(cells), tuple(cells), _alone_left(pairs) + rows, left.presence, left.key)
    return shown_first(deriver, pairs, facts)


def _padded(cell: Cell, matched: int, growth: int) -> Cell:
    """Return what a column is if the column `matched` is not NULL; else it is NULL until the growth is closed."""
    fresh = unknown(cell.term.type, cell.domain)
    way: Direction = cell.direction if cell.direction in ("up", "down") else "any"
    return Cell(Padded(cell.term.type, matched, cell.term, fresh, growth), way, cell.domain.or_null())


def _alone_or_paired(deriver: KnowledgeDeriver, pairs: Pairs) -> Facts:
    """Return the facts where a row may have several partners, so that the row without one goes with the first."""
    left, right, by = pairs.left, pairs.right, len(pairs.left.cells)
    (key, partner), is_full = pairs.node.keys[0], pairs.node.kind == "full"
    rows = pairs.rows()
    shift = {c: c + by for c in range(len(right.cells))}
    cells = [replace(cell, domain=cell.domain.or_null()) if is_full else cell for cell in left.cells]
    for cell in right.cells:
        moved = deriver.moved(cell, shift)
        cells.append(replace(moved, domain=moved.domain.or_null()))
    described = _alone_left(pairs) + rows
    needs_partner = deriver.growth(pairs.decides("left"), rows, new=pairs.right_bases)
    presence = [*left.presence, _stays_or_pairs(cells[by + partner].term, needs_partner)]
    if is_full:
        described += _alone_right(pairs)
        needs_partner = deriver.growth([c + by for c in pairs.decides("right")], rows, new=pairs.left_bases)
        presence.append(_stays_or_pairs(cells[key].term, needs_partner))
    facts = Facts(pairs.plan(), len(cells), tuple(cells), described, tuple(presence))
    return shown_first(deriver, pairs, facts)


def _stays_or_pairs(partner: Term, growth: int) -> Cell:
    """Return the condition that a row stays: it has a partner, or none can come any more."""
    paired = Operation("BOOLEAN", "not", (Operation("BOOLEAN", "is_null", (partner,)),))
    return Cell(Operation("BOOLEAN", "or", (paired, Doubt("BOOLEAN", growth))), "down")


def _have_keys(pairs: Pairs) -> bool:
    """Return whether no row of either side lacks a value of the key, and all rows that are there stay."""
    left, right = pairs.left, pairs.right
    sides = [*((left, a) for a, _ in pairs.node.keys), *((right, b) for _, b in pairs.node.keys)]
    types = all(left.cells[a].term.type == right.cells[b].term.type for a, b in pairs.node.keys)
    whole = not any(facts.cells[column].domain.null for facts, column in sides)
    return types and whole and not left.presence and not right.presence


def _full_of_one(deriver: KnowledgeDeriver, pairs: Pairs) -> Facts:
    left, right, by = pairs.left, pairs.right, len(pairs.left.cells)
    plan, keys = pairs.plan(), pairs.node.keys
    own = columns(plan)
    width = len(own)
    both = [Call(own[a].type, "coalesce", (own[a], own[by + b])) for a, b in keys]
    named = [Column(f"$key{number}", each.type) for number, each in enumerate(both)]
    plan = Project(Schema((*plan.schema.columns, *named)), plan, (*own, *both))
    ours = tuple(replace(r, columns=(*r.columns, *(r.columns[a] for a, _ in keys))) for r in _alone_left(pairs))
    theirs = tuple(replace(r, columns=(*r.columns, *(r.columns[by + b] for _, b in keys))) for r in _alone_right(pairs))
    key = tuple(range(width, width + len(keys)))
    may_come = deriver.growth(key, ours), deriver.growth(key, theirs)
    shift = {c: c + by for c in range(len(right.cells))}
    cells = [_padded(cell, keys[0][0], may_come[0]) for cell in left.cells]
    cells += [_padded(deriver.moved(cell, shift), by + keys[0][1], may_come[1]) for cell in right.cells]
    for at, (a, b) in zip(key, keys, strict=True):
        domain = left.cells[a].domain.hull(right.cells[b].domain)
        cells.append(Cell(Shown(left.cells[a].term.type, at), "still", domain))
    merged = tuple((a, by + b, at) for at, (a, b) in zip(key, keys, strict=True))
    return shown_first(deriver, pairs, Facts(plan, width, tuple(cells), ours + theirs, (), key, merged))


def _alone_left(pairs: Pairs) -> tuple[Described, ...]:
    """Return what describes rows of the left that have no partner."""
    types = [cell.term.type for cell in pairs.right.cells]
    return tuple(Described(r.bases, (*r.columns, *map(unknown, types)), r.where) for r in pairs.left.rows)


def _alone_right(pairs: Pairs) -> tuple[Described, ...]:
    """Return what describes rows of the right that have no partner."""
    types = [cell.term.type for cell in pairs.left.cells]
    by = len(pairs.right.cells)
    return tuple(Described(r.bases, (*map(unknown, types), *r.columns[:by]), r.where) for r in pairs.right.rows)
