"""Move work of a recursive body into queries outside the recursion.

A test or a computation over external sources only is done before the fixpoint: their sources become one query that has
it. What is left in the body joins the recursive rows, by equality where it can.
"""

from __future__ import annotations

from dataclasses import replace

from whence.model.types import Column, Schema
from whence.plan.algebra.expressions import Call, Col, Expr, Lit, columns_of, may_fail, rebuild, substitute
from whence.plan.algebra.logical import Join, Lateral, Node, Project, Select
from whence.plan.recursion.conjunctive import Body, Derived, External, Function, Source, columns
from whence.plan.recursion.native import is_test, is_value
from whence.plan.rewrite.factor_disjunctions import infer_conditions


def push_down(body: Body) -> Body:
    """Return the body with everything done outside that can be."""
    body = _push_functions(body)
    for test in body.tests:
        owners = _owners(body, test)
        if len(owners) == 1 and _external(body, owners):
            body = _push_test(body, test)
        elif len(owners) > 1:
            body = _push_implied(body, test)
    while True:
        foreign = next((e for e in _foreign_parts(body) if _external(body, _owners(body, e))), None)
        if foreign is None:
            return body
        body = _merge(body, _owners(body, foreign), foreign)


def _owners(body: Body, expr: Expr) -> set[int]:
    owner = body.owner()
    return {owner[c] for c in columns_of(expr)}


def _external(body: Body, owners: set[int]) -> bool:
    return bool(owners) and all(isinstance(body.sources[i], External) for i in owners)


def _push_test(body: Body, test: Expr) -> Body:
    (at,) = _owners(body, test)
    source = body.sources[at]
    assert isinstance(source, External)
    start = body.offsets()[at]
    moved = substitute(test, lambda c: Col(c.type, c.index - start))
    sources = _with(body.sources, at, External(Select(source.schema, source.node, moved)))
    return replace(body, sources=sources, tests=tuple(t for t in body.tests if t is not test))


def _push_implied(body: Body, test: Expr) -> Body:
    """Return the body with what an OR says of external rows alone tested out there too; the OR itself stays."""
    starts = body.offsets()
    for at in sorted(_owners(body, test)):
        own = range(starts[at], starts[at] + len(body.sources[at].schema))
        for part in infer_conditions([test], own) if isinstance(body.sources[at], External) else ():
            body = _push_test(body, part)
    return body


def _with(sources: tuple[Source, ...], at: int, source: Source) -> tuple[Source, ...]:
    return (*sources[:at], source, *sources[at + 1 :])


def _foreign_parts(body: Body) -> list[Expr]:
    """Tests that a kernel cannot decide, and the largest parts of comparisons and of other expressions that it cannot
    compute. A part of a test that may fail stays: another test may be what keeps rows away from it."""
    parts: list[Expr] = [t for t in body.tests if not is_test(t)]
    for test in [t for t in parts if isinstance(t, Call) and is_test(rebuild(t, tuple(map(_stand_in, t.args))))]:
        parts += [p for arg in test.children for p in foreign_in(arg) if not may_fail(p)]
    for expr in (*body.out, *(e for a in body.absences for e, _ in a.keys)):
        parts += foreign_in(expr)
    return parts


def foreign_in(expr: Expr) -> list[Expr]:
    """Return the largest parts of an expression that a kernel cannot compute, top down."""
    if is_value(expr):
        return []
    if isinstance(expr, Call) and is_value(rebuild(expr, tuple(_stand_in(c) for c in expr.children))):
        return [part for child in expr.children for part in foreign_in(child)]
    return [expr]


def _stand_in(expr: Expr) -> Expr:
    return Lit(expr.type, None)


def _push_functions(body: Body) -> Body:
    """Table functions whose arguments come from external rows only are called out there."""
    while True:
        for at, source in enumerate(body.sources):
            if isinstance(source, Function):
                owners = set().union(*(_owners(body, a) for a in source.args)) if source.args else set()
                if not owners or _external(body, owners):
                    body = _call_outside(body, at, source, owners)
                    break
        else:
            return body


def _call_outside(body: Body, at: int, source: Function, owners: set[int]) -> Body:
    if len(owners) > 1:
        return _merge(body, owners, None)  # then the arguments have one owner, and this is tried again
    if not owners:
        from whence.plan.algebra.logical import Values

        node: Node = Lateral(source.schema, Values(Schema(()), ((),)), source.name, source.function, source.args)
        return replace(body, sources=_with(body.sources, at, External(node)))
    (owner,) = owners
    start = body.offsets()[owner]
    outer = body.sources[owner]
    assert isinstance(outer, External)
    args = tuple(substitute(a, lambda c: Col(c.type, c.index - start)) for a in source.args)
    schema = Schema(outer.schema.columns + source.schema.columns)
    joined = External(Lateral(schema, outer.node, source.name, source.function, args))
    order = [(owner, joined), *((i, s) for i, s in enumerate(body.sources) if i not in (owner, at))]
    return _rearranged(body, order, {at: (owner, len(outer.schema))})


def _rearranged(body: Body, order: list[tuple[int, Source]], inside: dict[int, tuple[int, int]]) -> Body:
    """Sources in another order; `inside` maps an old source to the one that now holds its columns, from where on."""
    old = body.offsets()
    new: dict[int, int] = {}
    at = 0
    for number, source in order:
        new[number] = at
        at += len(source.schema)
    for number, (host, start) in inside.items():
        new[number] = new[host] + start
    owner = body.owner()

    def move(column: Col) -> Expr:
        number = owner[column.index]
        return Col(column.type, new[number] + column.index - old[number])

    moved = body.map(lambda e: substitute(e, move))
    kept = dict(zip(range(len(body.sources)), moved.sources, strict=True))
    sources = tuple(kept[n] if isinstance(s, Function) else s for n, s in order)
    return replace(moved, sources=sources)


def _merge(body: Body, owners: set[int], compute: Expr | None) -> Body:
    """Join some external sources into one, with the tests among them done, and a computed column appended."""
    first, *others = sorted(owners)
    starts = body.offsets()
    node: Node | None = None
    inside: dict[int, tuple[int, int]] = {}
    width = 0
    for number in (first, *others):
        source = body.sources[number]
        assert isinstance(source, External)
        if node is None:
            node = source.node
        else:
            schema = Schema(node.schema.columns + source.schema.columns)
            node = Join(schema, node, source.node, "inner")
            inside[number] = (first, width)
        width += len(source.schema)
    assert node is not None
    place = {first: 0} | {n: at for n, (_, at) in inside.items()}
    owner = body.owner()

    def local(expr: Expr) -> Expr:
        return substitute(expr, lambda c: Col(c.type, place[owner[c.index]] + c.index - starts[owner[c.index]]))

    own = [t for t in body.tests if _owners(body, t) <= owners and _owners(body, t)]
    for test in own:
        node = Select(node.schema, node, local(test))
    rest = replace(body, tests=tuple(t for t in body.tests if t not in own))
    if compute is None or compute in own:
        order = [(first, External(node)), *((i, s) for i, s in enumerate(body.sources) if i not in owners)]
        return _rearranged(rest, order, inside)
    schema = Schema((*node.schema.columns, Column("computed", compute.type)))
    node = Project(schema, node, (*columns(node.schema), local(compute)))
    order = [(first, External(node)), *((i, s) for i, s in enumerate(body.sources) if i not in owners)]
    carried = _rearranged(replace(rest, out=(*rest.out, compute)), order, inside)
    *out, moved = carried.out
    return replace(carried, out=tuple(out)).map(lambda e: _replace(e, moved, Col(compute.type, width)))


def _replace(expr: Expr, part: Expr, by: Expr) -> Expr:
    if expr == part:
        return by
    return rebuild(expr, tuple(_replace(c, part, by) for c in expr.children)) if expr.children else expr


def project_used(body: Body) -> Body:
    """External sources cut down to the columns the body reads, and aggregates nobody reads the value of dropped."""
    body = _drop_idle_aggregates(body)
    used = body.reads()
    starts = body.offsets()
    mapping: dict[int, int] = {}
    sources: list[Source] = []
    at = 0
    for source, start in zip(body.sources, starts, strict=True):
        width = len(source.schema)
        keep = [c for c in range(width) if start + c in used] if isinstance(source, External) else list(range(width))
        for position, c in enumerate(keep):
            mapping[start + c] = at + position
        if isinstance(source, External) and len(keep) < width:
            schema = Schema(tuple(source.schema.columns[c] for c in keep))
            source = External(Project(schema, source.node, tuple(Col(source.schema.types[c], c) for c in keep)))
        sources.append(source)
        at += len(keep)
    moved = body.map(lambda e: substitute(e, lambda c: Col(c.type, mapping[c.index])))
    return replace(
        moved, sources=tuple(s if isinstance(m, External) else m for s, m in zip(sources, moved.sources, strict=True))
    )


def _drop_idle_aggregates(body: Body) -> Body:
    """Of the aggregates of one GROUP BY, those whose value is not read say nothing more than the others."""
    used = body.reads()
    starts = body.offsets()
    groups: dict[int, list[int]] = {}
    for number, source in enumerate(body.sources):
        if isinstance(source, Derived) and source.instance >= 0:
            groups.setdefault(source.instance, []).append(number)
    gone: set[int] = set()
    same: dict[int, int] = {}
    for members in groups.values():
        idle = [n for n in members if starts[n] + len(body.sources[n].schema) - 1 not in used]
        spare = idle if len(idle) < len(members) else idle[1:]
        stay = next(n for n in members if n not in spare)
        for n in spare:
            gone.add(n)
            for c in range(len(body.sources[n].schema) - 1):
                same[starts[n] + c] = starts[stay] + c
    if not gone:
        return body
    body = body.map(lambda e: substitute(e, lambda c: Col(c.type, same.get(c.index, c.index))))
    trivial = {t for t in body.tests if isinstance(t, Call) and t.op == "is_not_distinct" and t.args[0] == t.args[1]}
    body = replace(body, tests=tuple(t for t in body.tests if t not in trivial))
    order = [(i, s) for i, s in enumerate(body.sources) if i not in gone]
    return _rearranged(body, order, {})
