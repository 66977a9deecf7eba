"""What one place in a plan needs of a source: the part of the plan from the source upwards that is linear in it.

The law: a row of the source for which a condition of the linear part is false, or whose key column has no partner in
an inner join of it, makes no row above. Beyond the linear part only key sets still hold, as long as rows of other keys
make other rows (groups).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from whence.model.types import BOOLEAN, Kind
from whence.plan.algebra.constructors import columns, distinct, join_schema, project
from whence.plan.algebra.expressions import (
    Call,
    Col,
    Expr,
    Udf,
    columns_of,
    conjuncts,
    is_volatile,
    may_fail,
    substitute,
)
from whence.plan.algebra.expressions import walk as walk_expression
from whence.plan.algebra.logical import Aggregate, Distinct, Join, Node, Project, Select, TopK, walk
from whence.plan.algebra.program import Program, Table
from whence.plan.rewrite import optimize
from whence.plan.streams.model import Lookup, Retain, StreamToRelation, has_at
from whence.sql.plan_text import UnwritablePlanError, expression_text, plan_text
from whence.subscribe.source_needs import BestRule, KeyRule, SourceUse

_KEEPS_LEFT = ("inner", "left", "semi", "anti", "mark")  # joins whose rows are each made of one row of the left
_DROPS = {"inner": (0, 1), "semi": (0, 1), "left": (1,), "right": (0,), "anti": (1,), "mark": (1,), "full": ()}
_ORDERED = (Kind.INTEGER, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL, Kind.DATE, Kind.TIMESTAMP)


def names_under(node: Node, program: Program) -> set[str]:
    """Return the tables and streams that a plan reads, directly or through views."""
    found, seen, waiting = set[str](), set[str](), [node]
    while waiting:
        for each in walk(waiting.pop()):
            for name in (*each.names, *each.fetches):
                if name in program.views:
                    if name not in seen:
                        seen.add(name)
                        waiting.append(program.views[name].query)
                else:
                    found.add(name)
    return found


@dataclass
class _Chain:
    """What is known of a use from the source up to `node`.

    exprs    per column, what it is of the source's columns; None if it is made of more
    reads    per column, the source's columns that it is made of
    carried  the same plan with the primary key in columns `key`, if that can be
    """

    node: Node
    exprs: list[Expr | None]
    reads: list[frozenset[int]]
    carried: Node | None
    key: list[int]
    decides: set[int] = field(default_factory=set)
    terms: list[Expr] = field(default_factory=list)
    rules: list[KeyRule] = field(default_factory=list)
    linear: bool = True
    columns: set[int] = field(default_factory=set)
    has_condition: bool = False


def use_of(path: tuple[Node, ...], reader: str, program: Program) -> SourceUse:
    leaf = path[0]
    table = program.tables[leaf.names[0]]
    width = len(table.schema)
    own: list[Expr | None] = [Col(c.type, i) for i, c in enumerate(leaf.schema.columns)]
    reads = [frozenset({i}) if i < width else frozenset[int]() for i in range(len(own))]
    chain = _Chain(leaf, own, reads, leaf if table.key else None, list(table.key))
    best: BestRule | None = None
    for parent in path[1:]:
        if chain.linear and not _step(chain, parent, table.name, program):
            best = _best(chain, parent, table)
            _end(chain)
        if not chain.linear and not _step_group(chain, parent, table.name, program):
            break
    if chain.linear:
        _end(chain)
    predicate = None
    if chain.terms:
        terms = tuple(dict.fromkeys(chain.terms))
        predicate = terms[0] if len(terms) == 1 else Call(BOOLEAN, "and", terms)
    live = None
    if chain.carried is not None and chain.has_condition and chain.columns - chain.decides - set(table.key):
        live = _live_plan(chain, table)
    decides = frozenset(chain.decides | set(table.key))
    return SourceUse(
        reader, frozenset(chain.columns), predicate, tuple(chain.rules), decides if live is not None else frozenset(),
        live, best,
    )  # fmt: skip


def _end(chain: _Chain) -> None:
    """Note that the linear part ends here: what it gives to the nodes above is read by them."""
    chain.columns = set(chain.decides).union(*chain.reads)
    chain.linear = False


def _step(chain: _Chain, parent: Node, source: str, program: Program) -> bool:
    """Go one node up, if that keeps the use linear."""
    match parent:
        case Select():
            _decide(chain, parent.predicate)
            chain.has_condition = True
            if chain.carried is not None:
                chain.carried = Select(chain.carried.schema, chain.carried, parent.predicate)
            chain.node = parent
            return True
        case Project():
            _project(chain, parent)
            return True
        case StreamToRelation():
            chain.node = parent
            chain.exprs, chain.reads = chain.exprs[: len(parent.schema)], chain.reads[: len(parent.schema)]
            return True
        case Retain():
            chain.node = parent
            return True
        case Lookup() if parent.input is chain.node:
            _lookup(chain, parent, source, program)
            return True
        case Join():
            return _join(chain, parent, source, program)
    return False


def _decide(chain: _Chain, predicate: Expr, offset: int = 0) -> None:
    """Take in a condition over the columns of the chain, which begin at `offset`."""
    for term in conjuncts(predicate):
        own = {i - offset for i in columns_of(term) if 0 <= i - offset < len(chain.exprs)}
        chain.decides |= {c for i in own for c in chain.reads[i]}
        if len(own) == len(columns_of(term)) and own and all(chain.exprs[i] is not None for i in own):
            static = substitute(term, lambda c: _known(chain.exprs[c.index - offset]))
            if _may_travel(static):
                chain.terms.append(static)


def _known(expr: Expr | None) -> Expr:
    assert expr is not None
    return expr


def _may_travel(expr: Expr) -> bool:
    """Return whether a condition can be evaluated by the publisher: it has a text, and no row makes it fail."""
    if is_volatile(expr) or may_fail(expr) or any(isinstance(part, Udf) for part in walk_expression(expr)):
        return False
    try:
        expression_text(expr, lambda i: f"c{i}")
    except UnwritablePlanError:
        return False
    return True


def _project(chain: _Chain, parent: Project) -> None:
    exprs: list[Expr | None] = []
    for expr in parent.exprs:
        known = all(chain.exprs[i] is not None for i in columns_of(expr)) and not is_volatile(expr)
        exprs.append(substitute(expr, lambda c: _known(chain.exprs[c.index])) if known else None)
    reads = [frozenset[int]().union(*(chain.reads[i] for i in columns_of(e))) for e in parent.exprs]
    if chain.carried is not None:
        own = columns(chain.carried)
        kept = [own[k] for k in chain.key]
        names = [*parent.schema.names, *(f"key{i}" for i in range(len(kept)))]
        start = len(parent.exprs)
        chain.carried = project(chain.carried, [*parent.exprs, *kept], names)
        chain.key = list(range(start, start + len(kept)))
    chain.node, chain.exprs, chain.reads = parent, exprs, reads


def _lookup(chain: _Chain, parent: Lookup, source: str, program: Program) -> None:
    """Go through a stream's join with a relation as it is when a row comes: only rows with a partner then count."""
    if parent.kind in ("inner", "semi"):
        _add_rules(chain, [(a, b) for a, b in parent.keys], parent.relation, source, program)
    chain.decides |= {c for a, _ in parent.keys for c in chain.reads[a]}
    width = len(parent.input.schema) - 1
    if parent.residual is not None:
        before, at_column = len(chain.terms), (chain.exprs.pop(), chain.reads.pop())  # it does not see `$at`
        _decide(chain, parent.residual)
        chain.exprs.append(at_column[0])
        chain.reads.append(at_column[1])
        if parent.kind not in ("inner", "semi"):
            del chain.terms[before:]
    more = len(parent.schema) - width - 1
    at = chain.exprs[width], chain.reads[width]
    chain.exprs = [*chain.exprs[:width], *([None] * more), at[0]]
    chain.reads = [*chain.reads[:width], *([frozenset[int]()] * more), at[1]]
    chain.node = parent


def _join(chain: _Chain, parent: Join, source: str, program: Program) -> bool:
    side = 0 if parent.left is chain.node else 1
    other = parent.right if side == 0 else parent.left
    pairs = [(a, b) if side == 0 else (b, a) for a, b in parent.keys]
    from_stream = program.tables[source].stream is not None
    if side in _DROPS[parent.kind] and not from_stream:
        _add_rules(chain, pairs, other, source, program)
    keeps = parent.kind in _KEEPS_LEFT if side == 0 else parent.kind in ("inner", "right")
    if not keeps:
        chain.decides |= {c for a, _ in pairs for c in chain.reads[a]}
        if parent.residual is not None:  # read, but it says nothing about a row of the source alone
            start = 0 if side == 0 else len(parent.left.schema)
            own = {i - start for i in columns_of(parent.residual) if 0 <= i - start < len(chain.reads)}
            chain.decides |= {c for i in own for c in chain.reads[i]}
        return False
    chain.decides |= {c for a, _ in pairs for c in chain.reads[a]}
    if parent.residual is not None:
        before = len(chain.terms)
        _decide(chain, parent.residual, 0 if side == 0 else len(parent.left.schema))
        if side not in _DROPS[parent.kind]:
            del chain.terms[before:]
    chain.has_condition |= parent.kind in ("inner", "semi", "anti")
    _carry_join(chain, parent, side)
    nothing: list[Expr | None] = [None] * len(other.schema)
    unread = [frozenset[int]()] * len(other.schema)
    if parent.kind in ("semi", "anti"):
        pass
    elif parent.kind == "mark":
        chain.exprs, chain.reads = [*chain.exprs, None], [*chain.reads, frozenset(chain.decides)]
    elif side == 0:
        chain.exprs, chain.reads = [*chain.exprs, *nothing], [*chain.reads, *unread]
    else:
        chain.exprs, chain.reads = [*nothing, *chain.exprs], [*unread, *chain.reads]
    chain.node = parent
    return True


def _carry_join(chain: _Chain, parent: Join, side: int) -> None:
    """Join the plan that carries the primary key: its columns stand after the side's own."""
    if chain.carried is None:
        return
    carried, width, extra = chain.carried, len(parent.left.schema), 0
    if side == 0:
        extra = len(carried.schema) - width
        left, right = carried, parent.right
    else:
        left, right = parent.left, carried
    residual = parent.residual
    if residual is not None and extra:
        residual = substitute(residual, lambda c: Col(c.type, c.index + extra * (c.index >= width)))
    made = replace(
        parent,
        schema=join_schema(left, right, parent.kind),
        left=left,
        right=right,
        residual=residual,
    )
    own = columns(made)
    if side == 1:
        chain.carried, chain.key = made, [width + k for k in chain.key]
        return
    # The columns that were added to the left move behind those of the right.
    order = [*range(width), *range(width + extra, len(own)), *range(width, width + extra)]
    chain.key = [order.index(k) for k in chain.key]
    chain.carried = made if not extra else project(made, [own[i] for i in order], _numbered(len(order)))


def _numbered(count: int) -> list[str]:
    return [f"c{i}" for i in range(count)]


def _add_rules(chain: _Chain, pairs: Sequence[tuple[int, int]], other: Node, source: str, program: Program) -> None:
    """Note that columns of the source must have values of the other side of a join, where that can be followed: all of
    them together, and each."""
    if source in names_under(other, program) or any(has_at(node.schema) for node in [other]):
        return
    own = {expr.index: theirs for mine, theirs in pairs if isinstance(expr := chain.exprs[mine], Col)}
    for chosen in dict.fromkeys([tuple(sorted(own)), *((column,) for column in own)]):
        if not chosen or any(rule.columns == chosen for rule in chain.rules):
            continue
        plan = optimize(distinct(project(other, [columns(other)[own[column]] for column in chosen])))
        try:
            plan_text(plan)
        except UnwritablePlanError:
            continue
        chain.rules.append(KeyRule(chosen, plan))


def _step_group(chain: _Chain, parent: Node, source: str, program: Program) -> bool:
    """Go up beyond the linear part, as far as rows with other keys make other rows: key sets still hold there."""
    match parent:
        case Aggregate() if parent.keys:
            chain.exprs = [*(chain.exprs[k] for k in parent.keys), *([None] * len(parent.aggs))]
        case Distinct() | Select():
            pass
        case Project():
            known = [isinstance(e, Col) for e in parent.exprs]
            chain.exprs = [
                chain.exprs[e.index] if ok and isinstance(e, Col) else None
                for e, ok in zip(parent.exprs, known, strict=True)
            ]
        case Join(kind="inner" | "semi") if program.tables[source].stream is None:
            side = 0 if parent.left is chain.node else 1
            other = parent.right if side == 0 else parent.left
            chain.reads = [frozenset()] * len(chain.exprs)
            _add_rules(chain, [(a, b) if side == 0 else (b, a) for a, b in parent.keys], other, source, program)
            return False
        case _:
            return False
    chain.node = parent
    return True


def _best(chain: _Chain, parent: Node, table: Table) -> BestRule | None:
    """Return the rule of a use whose rows are cut by ORDER BY and LIMIT right above it."""
    if not isinstance(parent, TopK) or parent.limit is None or not parent.order or table.stream is not None:
        return None
    first = parent.order[0]
    expr = chain.exprs[first.column]
    if not isinstance(expr, Col) or first.nulls_first or expr.type.kind not in _ORDERED:
        return None
    found = optimize(project(chain.node, [columns(chain.node)[first.column]], [table.schema.names[expr.index]]))
    try:
        plan_text(found)
    except UnwritablePlanError:
        return None
    return BestRule(expr.index, first.descending, parent.limit + parent.offset, found)


def _live_plan(chain: _Chain, table: Table) -> Node | None:
    assert chain.carried is not None
    own, names = columns(chain.carried), [table.schema.names[k] for k in table.key]
    found = optimize(distinct(project(chain.carried, [own[k] for k in chain.key], names)))
    try:
        plan_text(found)
    except UnwritablePlanError:
        return None
    return found
