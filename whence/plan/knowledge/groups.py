"""Facts of groups: how aggregates of rows that only come can change.

| aggregate | over rows that only come |
|---|---|
| COUNT | never falls |
| MAX, MIN | never falls, never rises |
| SUM | never falls if its terms are not negative, never rises if they are not positive |
| FIRST | the first row of a group to arrive stays the first: it is final; alike where the order is the promised one |
| AVG and others | anything, within what the terms can be |

Aggregates of values that change themselves follow where they move one way: the maximum of maxima, the sum of counts.
All of them are final when no row can come to the group any more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from whence.plan.algebra.logical import Agg, Aggregate, Distinct
from whence.plan.knowledge.bounds import ANYTHING, Bounds
from whence.plan.knowledge.facts import Cell, Described, Facts, unknown_row
from whence.plan.knowledge.model import Doubt, Function, Growing, Shown, Variable
from whence.plan.knowledge.terms import Direction, unknown

if TYPE_CHECKING:
    from whence.plan.knowledge.derive import KnowledgeDeriver


def group_facts(deriver: KnowledgeDeriver, node: Aggregate) -> Facts:
    """Return the facts of groups."""
    below = node.input
    if isinstance(below, Distinct) and all(agg.function in ("min", "max") for agg in node.aggs):
        below = below.input  # each once or more often: the same best
    facts = deriver.of(below)
    width, types = len(node.keys), [str(type) for type in node.schema.types]
    certain = facts.only_comes and facts.are_still(node.keys)
    arguments = [agg.column for agg in node.aggs]
    rows = [replace(row, columns=(*(row.columns[k] for k in node.keys), *row.columns)) for row in facts.rows]
    growth = deriver.growth(range(width), rows, [None if a is None else a + width for a in arguments])
    cells = [Cell(Shown(types[i], i), "still", facts.cells[k].domain) for i, k in enumerate(node.keys)]
    for number, agg in enumerate(node.aggs):
        function, way = _kind_of(agg, facts) if certain else ("asof", "any")
        at, domain = width + number, _domain(agg, facts, bool(node.keys))
        if types[at] == "INTERVAL" and function in ("min", "max", "up", "down"):
            function, way = "asof", "any"  # intervals compare by their spans, not by their parts
        if certain and node.keys and _is_first_to_arrive(deriver, agg, facts):
            cells.append(Cell(Shown(types[at], at), "still", domain))
            continue
        index = None if agg.column is None else number
        cells.append(Cell(Growing(types[at], at, function, growth, index), way, domain))
    made = tuple(
        Described(
            row.bases,
            (*row.columns[:width], *(unknown(cell.term.type, cell.domain) for cell in cells[width:])),
            row.where,
        )
        for row in rows
    )
    if not node.keys:
        made += (unknown_row(types, ()),)
    presence = () if certain or not node.keys else (Cell(Doubt("BOOLEAN", growth), "any"),)
    return Facts(node, len(types), tuple(cells), made, presence, tuple(range(width)))


def _is_first_to_arrive(deriver: KnowledgeDeriver, agg: Agg, facts: Facts) -> bool:
    """Return whether an aggregate is of the row that arrived first: by arrival, or by the column that rows come in the
    order of."""
    if agg.function != "first" or agg.column is None or not facts.are_still([agg.column]):
        return False
    by, arrival = agg.order
    if by == arrival:
        return True
    if len(facts.rows) != 1 or len(facts.rows[0].bases) != 1 or facts.cells[by].domain.null:
        return False
    source, term = deriver.sources[facts.rows[0].bases[0]], facts.rows[0].columns[by]
    return isinstance(term, Variable) and source.is_stream and term.column == source.ordered


def _domain(agg: Agg, facts: Facts, keyed: bool) -> Bounds:
    """Return what an aggregate is whatever the rows are."""
    if agg.function == "count":
        return Bounds(int(keyed and agg.column is None), None, null=False)
    if agg.column is None:
        return ANYTHING
    argument = facts.cells[agg.column].domain
    if agg.function in ("min", "max", "first", "last"):
        return argument.or_null()
    if agg.function == "sum" and argument.some:
        low = argument.low if argument.low is not None and argument.low >= 0 else None
        high = argument.high if argument.high is not None and argument.high <= 0 else None
        return Bounds(low, high)
    return ANYTHING


def _kind_of(agg: Agg, facts: Facts) -> tuple[Function, Direction]:
    """Return how an aggregate of rows that only come can change."""
    if agg.column is None:
        return ("count", "up") if agg.function == "count" else ("asof", "any")
    cell = facts.cells[agg.column]
    still, low, high = cell.direction == "still", cell.domain.low, cell.domain.high
    match agg.function:
        case "count" if still or (not cell.domain.null and not agg.distinct):
            return "count", "up"
        case "max" if still:
            return "max", "up"
        case "min" if still:
            return "min", "down"
        case "max" if cell.direction == "up":
            return "up", "up"
        case "min" if cell.direction == "down":
            return "down", "down"
        case "sum" if still:
            return "sum", "up" if low is not None and low >= 0 else "down" if high is not None and high <= 0 else "any"
        case "sum" if cell.direction == "up" and low is not None and low >= 0 and not agg.distinct:
            return "up", "up"
        case "sum" if cell.direction == "down" and high is not None and high <= 0 and not agg.distinct:
            return "down", "down"
        case "avg" if still:
            return "avg", "any"
        case "first" | "last" if still:
            return "within", "any"
    return "asof", "any"
