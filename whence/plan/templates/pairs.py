"""Templates over a join of two relations: the keys, what subscriptions ask of either side, and a band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from whence.model.types import Kind
from whence.plan.algebra.expressions import Call, Col, Expr, columns_of, may_fail, substitute
from whence.plan.algebra.logical import (
    MatchPairs,
    Node,
    Select,
    Side,
)
from whence.plan.algebra.multiway_join import flatten_joins
from whence.plan.algebra.parameter_ranges import Comparison, pair_bounds
from whence.plan.templates.shapes import TemplateShape, lay_out


def match_pairs(shape: TemplateShape) -> MatchPairs | None:
    """The query is a join of two relations by equal columns or by a band, and everything else is of one of them."""
    joined = flatten_joins(shape.core)
    if len(joined.sources) != 2 or any(may_fail(test) for test in joined.tests):
        return None
    width = len(joined.sources[0].schema)

    def below(expr: Expr) -> Expr:
        """Over the columns of both sources, side by side."""
        return substitute(expr, lambda c: Col(c.type, joined.out[c.index]))

    keys = [(min(members), next(c for c in members if c >= width)) for members in joined.classes]
    same = {c: key for key in keys for c in key}
    sides = [_SidePlan(source, start) for source, start in zip(joined.sources, (0, width), strict=True)]
    for test in joined.tests:
        side = _side_of(test, sides)
        if side is None:
            return None
        side.tests.append(test)
    for column, parameter in shape.equal:
        for at in same.get(joined.out[column], (joined.out[column],)):  # what equals a key is known of both sides
            sides[at >= width].equal.append((at, parameter))
    bands: list[Comparison] = []
    for one in shape.comparisons:
        value = below(one.value)
        side = _side_of(value, sides)
        if side is not None:
            side.comparisons.append(Comparison(value, one.op, one.parameter))
        elif (band := _band(Comparison(value, one.op, one.parameter), width)) is not None:
            bands.append(band)
        else:
            return None
    found = pair_bounds(bands, len(keys)) if bands else ([], [])
    if len(found[1]) > 1 or not (keys or bands):
        return None
    leads = found[0][0].children if bands else (None, None)
    shown = {joined.out[c] for c in shape.shown}
    planned = [
        side.planned([key[n] for key in keys], lead, shown)
        for n, (side, lead) in enumerate(zip(sides, reversed(leads), strict=True))
    ]
    (left, left_side, places), (right, right_side, more) = planned
    places |= {column: len(left.schema) + at for column, at in more.items()}
    exprs = tuple(
        substitute(e, lambda c: c if c.index == 0 else Col(c.type, 1 + places[joined.out[c.index - 1]]))
        for e in shape.exprs
    )
    band_range = found[1][0] if bands else None
    both = (left_side, right_side)
    return MatchPairs(shape.plan.schema, left, right, shape.parameters, len(keys), both, band_range, exprs)


@dataclass
class _SidePlan:
    """What is asked of one source of a join, whose columns begin at `start`."""

    source: Node
    start: int
    tests: list[Expr] = field(default_factory=list)
    equal: list[tuple[int, int]] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)

    def planned(self, keys: list[int], lead: Expr | None, shown: set[int]) -> tuple[Node, Side, dict[int, int]]:
        """Return the rows in the order of columns that a Side says, and where the columns are that are shown."""
        types = self.source.schema.types

        def own(expr: Expr) -> Expr:
            return substitute(expr, lambda c: Col(c.type, c.index - self.start))

        node = self.source
        for test in self.tests:
            node = Select(node.schema, node, own(test))
        values, ranges = pair_bounds(self.comparisons, 0)
        first, rest = None, list(zip(values, ranges, strict=True))
        if lead is None and rest:
            (lead, first), *rest = rest
        if lead is None:
            lead = Col(types[keys[0] - self.start], keys[0])
        columns = [key - self.start for key in keys]
        layout: list[Expr] = [Col(types[c], c) for c in columns]
        layout.append(own(lead))
        layout += [Col(types[at - self.start], at - self.start) for at, _ in self.equal]
        after = len(layout)
        layout += [own(value) for value, _ in rest]
        needed = {c - self.start for c in shown if 0 <= c - self.start < len(types)}
        data, place = lay_out(node, layout, needed)
        side = Side(
            tuple(parameter for _, parameter in self.equal),
            replace(first, column=len(keys)) if first is not None else None,
            tuple(replace(one, column=after + n) for n, (_, one) in enumerate(rest)),
        )
        return data, side, {c + self.start: place(c) for c in needed}


def _side_of(expr: Expr, sides: Sequence[_SidePlan]) -> _SidePlan | None:
    """Return the side that has all columns of an expression."""
    columns = columns_of(expr)
    return next((s for s in sides if all(0 <= c - s.start < len(s.source.schema) for c in columns)), None)


def _band(one: Comparison, width: int) -> Comparison | None:
    """Read a comparison of `right - left`, or of `left - right` turned round; None if it is another one."""
    match one.value:
        case Call(op="-", args=(a, b)) if _differs(one.value):
            if all(c >= width for c in columns_of(a)) and all(c < width for c in columns_of(b)):
                return one
    return None


def _differs(value: Call) -> bool:
    """Whether a difference is that of the codes, or of the doubles, of its arguments."""
    kinds = {arg.type.kind for arg in value.args}
    if kinds == {Kind.DOUBLE}:
        return value.type.kind is Kind.DOUBLE
    if any(arg.type.is_wide for arg in value.args) or value.type.is_wide:
        return False
    if kinds == {Kind.DECIMAL}:
        return len({(arg.type.scale) for arg in (*value.args, value)}) == 1
    return value.type.is_integer and all(arg.type.is_integer or arg.type.kind is Kind.DATE for arg in value.args)
