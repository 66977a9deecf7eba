"""Facts of selections, projections, unions, and of what compares whole rows.

A condition over columns that do not change limits which rows there are; over others, whether a row stays. A projection
keeps, behind its columns, those that the bounds of its columns need. What compares whole rows keeps the rows of inputs
that only come, unless more rows of an input mean fewer (`Node.refuses_recursion`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from whence.model.types import Column, Schema
from whence.plan.algebra.expressions import Call, Col, Expr, conjuncts, is_volatile
from whence.plan.algebra.logical import Distinct, Lateral, Node, Project, Select, TopK
from whence.plan.algebra.logical.topk import Order
from whence.plan.knowledge.bounds import ANYTHING, Bounds
from whence.plan.knowledge.checks import has_differences, with_differences
from whence.plan.knowledge.facts import Cell, Described, Facts, shown, unknown_row
from whence.plan.knowledge.model import Doubt, Function, Growing, KeyTest, Shown, Term
from whence.plan.knowledge.terms import Direction, bound, direction_of, to_term, together, unknown

if TYPE_CHECKING:
    from whence.plan.knowledge.derive import KnowledgeDeriver


def lateral_facts(deriver: KnowledgeDeriver, node: Lateral) -> Facts:
    """Return the facts of rows with the rows that a function makes of each."""
    facts = deriver.of(node.input)
    if not facts.is_settled:
        return deriver.unsure(node)
    below, types = facts.width, node.schema.types
    rows = tuple(
        replace(row, columns=(*row.columns[:below], *map(unknown, types[below:])), single=False) for row in facts.rows
    )
    return Facts(node, len(types), facts.cells + shown(types)[below:], rows)


def select_facts(deriver: KnowledgeDeriver, node: Select) -> Facts:
    """Return the facts of rows for which a predicate is true."""
    facts = deriver.of(node.input)
    where, presence = list[Expr](), list(facts.presence)
    terms = [cell.term for cell in facts.cells]
    for term in conjuncts(node.predicate):
        direction = _presence_direction(term, facts)
        if direction != "still":
            presence.append(Cell(to_term(term, terms), direction))
        where.append(term)
    rows = tuple(
        replace(row, where=row.where + tuple(to_term(term, row.columns) for term in where)) for row in facts.rows
    )
    plan = node if facts.plan is node.input else Select(facts.plan.schema, facts.plan, node.predicate)
    return replace(facts, plan=plan, rows=rows, presence=tuple(presence))


def _presence_direction(term: Expr, facts: Facts) -> Direction:
    """Return how a condition that keeps rows can change: what moves one way equals a value once, and then never."""
    match term:
        case Call(op="=", args=(one, other)):
            ways = {direction_of(side, facts.directions, facts.domains) for side in (one, other)}
            if ways in ({"up", "still"}, {"down", "still"}):
                return "down"
    return direction_of(term, facts.directions, facts.domains)


def project_facts(deriver: KnowledgeDeriver, node: Project) -> Facts:
    """Return the facts of expressions of rows, with the columns behind them that they need."""
    facts = deriver.of(node.input)
    shown_exprs = tuple(_merged(expr, facts) for expr in node.exprs)
    width = len(shown_exprs)
    directions = [
        "any" if is_volatile(expr) and not facts.is_settled else direction_of(expr, facts.directions, facts.domains)
        for expr in shown_exprs
    ]
    place: dict[int, int] = {}
    for at, expr in enumerate(shown_exprs):
        if isinstance(expr, Col):
            place.setdefault(expr.index, at)
    shown_columns = place.keys() | set()
    below = [cell.term for cell in facts.cells]
    terms = [_row_terms(deriver, row, shown_exprs) for row in facts.rows]
    computed = [
        Cell(to_term(expr, below), way, _domain(deriver, facts, expr, [each[at] for each in terms]))
        for at, (expr, way) in enumerate(zip(shown_exprs, directions, strict=True))
    ]
    moving = [cell for cell in computed if cell.direction != "still"]
    extras = sorted(deriver.needed(facts, moving) - place.keys())
    for at, column in enumerate(extras):
        place[column] = width + at
    cells = [
        Cell(Shown(str(expr.type), at), "still", cell.domain)
        if cell.direction == "still"
        else deriver.moved(cell, place)
        for at, (expr, cell) in enumerate(zip(shown_exprs, computed, strict=True))
    ]
    cells += [deriver.moved(facts.cells[column], place) for column in extras]
    rows = tuple(
        replace(
            row,
            columns=(*own, *(row.columns[column] for column in extras)),
        )
        for row, own in zip(facts.rows, terms, strict=True)
    )
    presence = tuple(
        deriver.moved(cell if deriver.decided_by(cell) <= shown_columns else _returning(cell), place)
        for cell in facts.presence
    )
    key = None if facts.key is None or not set(facts.key) <= place.keys() else tuple(place[c] for c in facts.key)
    plan: Node = node
    if extras or facts.plan is not node.input:
        behind = tuple(_extra(facts.plan.schema.columns[column], column) for column in extras)
        exprs = (*shown_exprs, *(Col(facts.plan.schema.types[column], column) for column in extras))
        plan = Project(Schema((*node.schema.columns, *behind)), facts.plan, exprs)
    return Facts(plan, width, tuple(cells), rows, presence, key)


def _row_terms(deriver: KnowledgeDeriver, row: Described, exprs: Sequence[Expr]) -> list[Term]:
    sources = {base: deriver.sources[use] for base, use in enumerate(row.bases)}
    return [with_differences(to_term(expr, row.columns), sources) for expr in exprs]


def _domain(deriver: KnowledgeDeriver, facts: Facts, expr: Expr, terms: Sequence[Term]) -> Bounds:
    """Return what an expression is whatever the rows are; `terms` are what it is of the rows of each description."""
    found = bound(to_term(expr, _domains(facts)), lambda _: ANYTHING)
    if not any(map(has_differences, terms)):
        return found
    hull = _hull([bound(term, lambda _: ANYTHING) for term in terms])
    return found.common(hull) or found


def _returning(cell: Cell) -> Cell:
    """Return a condition that a row stays, where another row with the same values may come after it went."""
    return replace(cell, direction="any") if cell.direction == "down" else cell


def _merged(expr: Expr, facts: Facts) -> Expr:
    """Return an expression that reads a merged column instead of choosing between the two that it is merged of."""
    for a, b, at in facts.merged:
        match expr:
            case Call(op="coalesce", args=(Col(index=one), Col(index=other))) if {one, other} == {a, b}:
                return Col(expr.type, at)
    return expr


def union_facts(deriver: KnowledgeDeriver, node: Node) -> Facts:
    """Return the facts of all rows of all branches: each row changes as it does in its own."""
    below = [deriver.of(child) for child in node.inputs]
    width = len(node.schema)
    rows = tuple(replace(row, columns=row.columns[:width]) for facts in below for row in facts.rows)
    ways: list[Direction] = [together([facts.cells[c].direction for facts in below]) for c in range(width)]
    domains = [_hull([facts.cells[c].domain for facts in below]) for c in range(width)]
    growth = deriver.growth([c for c in range(width) if ways[c] == "still"], rows)
    presence = together([cell.direction for facts in below for cell in facts.presence])
    return _by_direction(node, ways, domains, rows, growth, presence)


def _by_direction(
    node: Node,
    ways: Sequence[Direction],
    domains: Sequence[Bounds],
    rows: tuple[Described, ...],
    growth: int,
    presence: Direction,
) -> Facts:
    functions: dict[Direction, Function] = {"up": "up", "down": "down", "any": "asof"}
    cells = tuple(
        Cell(Shown(str(type), i), "still", domain)
        if way == "still"
        else Cell(Growing(str(type), i, functions[way], growth), way, domain)
        for i, (type, way, domain) in enumerate(zip(node.schema.types, ways, domains, strict=True))
    )
    stays = () if presence in ("still", "up") else (Cell(Doubt("BOOLEAN", growth), presence),)
    return Facts(node, len(cells), cells, rows, stays)


def topk_facts(deriver: KnowledgeDeriver, node: TopK) -> Facts:
    """Return the facts of the first rows in an order: columns change as they do below, and a row goes when enough
    others come before it. Among rows that do not change it does not come back; where the first column of the order
    has passed it, it is there for good."""
    facts = deriver.of(node.input)
    plan = node if facts.plan is node.input else replace(node, schema=facts.plan.schema, input=facts.plan)
    first = node.order[0] if node.order else Order(0)
    tests: tuple[KeyTest, ...] = ("not after, nulls first" if first.nulls_first else "not after",)
    way: Direction = "down" if facts.is_settled and not node.offset else "any"
    if facts.are_still([first.column]) and facts.only_comes and not first.descending:
        growth = deriver.growth([first.column], facts.rows, tests=tests)
    else:
        growth = deriver.growth((), facts.rows)
    rows = facts.rows
    if way != "down":  # a row that was below may come because of another
        rows = tuple(dict.fromkeys(unknown_row([cell.term.type for cell in facts.cells], row.bases) for row in rows))
    return replace(facts, plan=plan, rows=rows, presence=(*facts.presence, Cell(Doubt("BOOLEAN", growth), way)))


def set_facts(deriver: KnowledgeDeriver, node: Node) -> Facts:
    """Return the facts of a node whose rows depend on equal rows of its inputs only: DISTINCT, INTERSECT,
    EXCEPT."""
    below = [deriver.of(child) for child in node.inputs]
    if not all(facts.is_still for facts in below):
        return deriver.unsure(node)
    width = len(node.schema)
    rows = tuple(replace(r, columns=r.columns[:width]) for facts in below for r in facts.rows)
    refusing = [side for side in range(len(below)) if node.refuses_recursion(side) is not None]
    # If more rows of one input only mean fewer here, a row that went stays away; if of all, nothing is known.
    ways: list[Direction] = ["down" if len(refusing) < len(below) else "any"] if refusing else []
    ways += ["any" for facts in below if not facts.only_comes]
    growth = deriver.growth(range(width), rows)
    domains = [_hull([facts.cells[c].domain for facts in below]) for c in range(width)]
    found = _by_direction(node, ["still"] * width, domains, rows, growth, together(ways))
    return replace(found, key=tuple(range(width)) if isinstance(node, Distinct) else None)


def _domains(facts: Facts) -> list[Term]:
    return [unknown(cell.term.type, cell.domain) for cell in facts.cells]


def _hull(bounds: Sequence[Bounds]) -> Bounds:
    found = bounds[0] if bounds else ANYTHING
    for other in bounds[1:]:
        found = found.hull(other)
    return found


def _extra(column: Column, number: int) -> Column:
    return Column(f"${number}_{column.name}", column.type, column.nullable)
