"""Which part of the views above is asked of each source: columns, rows, key sets, bounds, and what may be quenched.

Every place in which a plan reads a source is a **use** of it. From the source upwards a use is **linear** as long as
each row above is made of one row of the source (selections, projections, joins that keep its rows). The linear part
says what the use needs of a row:

| of a use      | what it says |
|---------------|-----------------|
| `columns`     | the columns that it reads |
| `predicate`   | a condition over the source's own columns, without which a row makes nothing |
| `keys`        | columns whose values must be among those of another relation: the buy list, places near me |
| `decides`     | the columns that its conditions read; `live` is the plan of the primary keys for which they hold |
| `best`        | if it ends in ORDER BY a column LIMIT k: rows beyond the k best are not seen |

A source is asked for the union over all uses (`SourceNeeds`): what one view can do without still comes for another.

The law: every view over the rows that a `SourceNeeds` lets through equals the view over all rows, provided that
  - rows pass for which the filter is true, and whose key column is among the values of the key plan;
  - for each use, the columns that decide are current in every row, and all its columns are in the rows that are live;
  - a bound is no tighter than leaves each use its k rows, or there are no rows beyond it.
Keeping it so while relations change is `runtime/sources/curiosity.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from whence.model.types import BOOLEAN, Column, Kind, Schema
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
from whence.plan.algebra.logical import (
    Aggregate,
    Distinct,
    Join,
    Node,
    Project,
    Scan,
    Select,
    TopK,
    Union,
    Values,
    walk,
)
from whence.plan.algebra.pinned import pinned
from whence.plan.algebra.program import Program, Table
from whence.plan.rewrite import optimize
from whence.plan.streams.model import Lookup, Retain, Stream, StreamToRelation, has_at
from whence.sql.plan_text import UnwritablePlanError, expression_text, plan_text, quoted

_KEEPS_LEFT = ("inner", "left", "semi", "anti", "mark")  # joins whose rows are each made of one row of the left
_DROPS = {"inner": (0, 1), "semi": (0, 1), "left": (1,), "right": (0,), "anti": (1,), "mark": (1,), "full": ()}
_ORDERED = (Kind.INTEGER, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL, Kind.DATE, Kind.TIMESTAMP)
_MOST_TERMS = 50  # uses whose conditions are told apart in a filter


@dataclass(frozen=True)
class KeyRule:
    """Rows matter only if their `column` has one of the values of a plan of one column."""

    column: int
    values: Node


@dataclass(frozen=True)
class BestRule:
    """Only the first `rows` by a column are seen; `found` is the plan of that column of all rows that would be."""

    column: int
    descending: bool
    rows: int
    found: Node


@dataclass(frozen=True)
class SourceUse:
    """One place in which a view reads a source. Columns are numbers of the source's columns."""

    reader: str
    columns: frozenset[int]
    predicate: Expr | None = None
    keys: tuple[KeyRule, ...] = ()
    decides: frozenset[int] = frozenset()
    live: Node | None = None
    best: BestRule | None = None


@dataclass(frozen=True)
class LiveRule:
    """For primary keys that `live` does not have, only columns that decide matter to some uses.

    `reads` are the columns that they read of keys that are live."""

    live: Node
    reads: frozenset[int]
    readers: tuple[str, ...] = ()


@dataclass(frozen=True)
class ResultAsk:
    """A query of one source alone, the largest of a view: it may be computed where the source is."""

    reader: str
    node: Node
    text: str


@dataclass(frozen=True)
class SourceNeeds:
    """What one source is asked for.

    columns  numbers of the columns that are needed, those of the primary key and of promised order among them
    filter   a condition over the source's columns, or None
    key      the column whose values are restricted to those of a plan, or None
    watched  columns of which every change is needed
    live     which keys need more columns than those; without any, nothing is quenched
    best     per use, how many rows of a column are seen; without any, there is no bound
    results  what could be computed at the source instead
    """

    table: Table
    columns: tuple[int, ...]
    filter: Expr | None = None
    key: KeyRule | None = None
    watched: frozenset[int] = frozenset()
    live: tuple[LiveRule, ...] = ()
    best: tuple[BestRule, ...] = ()
    results: tuple[ResultAsk, ...] = ()
    readers: tuple[str, ...] = ()

    @property
    def is_everything(self) -> bool:
        """Whether nothing is left out."""
        narrow = self.filter is not None or self.key is not None or self.live or self.best
        return not narrow and len(self.columns) == len(self.table.schema)

    @property
    def quenchable(self) -> frozenset[int]:
        """The columns whose changes may be left out for some keys."""
        return frozenset(c for rule in self.live for c in rule.reads) - self.watched if self.live else frozenset()

    def where(self) -> str | None:
        """Return the filter as SQL."""
        return None if self.filter is None else expression_text(self.filter, lambda i: quoted(self._name(i)))

    def select(self, relation: str) -> str:
        """Return the SELECT for the source, which is called `relation` there."""
        where = self.where()
        named = ", ".join(quoted(self._name(c)) for c in self.columns)
        return f"SELECT {named} FROM {quoted(relation)}" + (f" WHERE {where}" if where else "")

    def describe(self) -> list[str]:
        """Return what is asked for, for people."""
        if self.is_everything:
            return [f"{self.table.name} is asked for everything"]
        lines = [f"{self.table.name} is asked for {', '.join(self._name(c) for c in self.columns)}"]
        if (where := self.where()) is not None:
            lines.append(f"  where {_plain(where)}")
        if self.key is not None:
            lines.append(f"  of {self._name(self.key.column)} in ({_shown_plan(self.key.values)})")
        for rule in self.best:
            order = "greatest" if rule.descending else "least"
            lines.append(f"  the {rule.rows} rows of {order} {self._name(rule.column)}, and a margin")
        if self.live:
            watched = ", ".join(self._name(c) for c in sorted(self.watched))
            for live in self.live:
                rest = ", ".join(self._name(c) for c in sorted(live.reads - self.watched))
                lines.append(f"  {rest} only of rows that {', '.join(live.readers)} can show; always {watched}")
        return lines

    def _name(self, column: int) -> str:
        return self.table.schema.names[column]


def _shown_plan(node: Node) -> str:
    try:
        return _plain(plan_text(node))
    except UnwritablePlanError:
        return node.describe()


def _plain(text: str) -> str:
    """Return SQL without quotes around plain names, for people."""
    return re.sub(r'"([a-z_][a-z0-9_]*)"', r"\1", text)


# -- all uses of all sources -------------------------------------------------------------------------------------------


def curiosity(program: Program, sources: Collection[str], whole: Collection[str] = ()) -> dict[str, SourceNeeds]:
    """Return what each source is asked for, so that all views of a program, as it runs, have what they can use.

    `whole` names sources of which all rows are needed: they are subscribed to themselves. A source that no view reads
    is asked for everything, for whoever queries it."""
    uses: dict[str, list[SourceUse]] = {name: [] for name in sources}
    results: dict[str, list[ResultAsk]] = {name: [] for name in sources}
    for view in program.views.values():
        if not any(name in uses for node in walk(view.query) for name in node.names):
            continue
        query = optimize(view.query)
        for path in _paths(query, uses):
            source = path[0].names[0]
            uses[source].append(_use(path, view.name, program))
            largest = _largest(path, view.name)
            if largest is not None and largest not in results[source]:
                results[source].append(largest)
        for name in _fetched(query, uses):  # kept rows that an operator looks up beside its inputs
            uses[name].append(SourceUse(view.name, frozenset(range(len(program.tables[name].schema)))))
    asked: dict[str, SourceNeeds] = {}
    depends: dict[str, set[str]] = {}

    def preference(name: str) -> tuple[bool, int, str]:
        table = program.tables[name]
        return table.stream is None, -len(table.schema), name

    for name in sorted(sources, key=preference):
        table = program.tables[name]
        if name in whole or not uses[name]:
            asked[name] = SourceNeeds(table, tuple(range(len(table.schema))), readers=tuple(_readers(uses[name])))
        else:
            asked[name] = _union(table, uses[name], tuple(results[name]), program, sources, depends)
    return {name: asked[name] for name in sources}


def _readers(uses: Sequence[SourceUse]) -> list[str]:
    return list(dict.fromkeys(use.reader for use in uses))


def _fetched(query: Node, names: Collection[str]) -> list[str]:
    return [name for node in walk(query) for name in node.fetches if name in names]


def _paths(node: Node, sources: Collection[str], above: tuple[Node, ...] = ()) -> Iterator[tuple[Node, ...]]:
    """Yield, for each leaf that is a source, the nodes from there to the root."""
    if isinstance(node, (Scan, Stream)) and node.names[0] in sources:
        yield (node, *above)
    for child in node.inputs:
        yield from _paths(child, sources, (node, *above))


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


def _union(
    table: Table,
    uses: Sequence[SourceUse],
    results: tuple[ResultAsk, ...],
    program: Program,
    sources: Collection[str],
    depends: dict[str, set[str]],
) -> SourceNeeds:
    """Return what all uses of a source need together; `depends` says which sources decide about which, so far."""
    needed = frozenset(_always(table)).union(*(use.columns for use in uses))
    shown = tuple(sorted(needed)) or (0,)
    ask = SourceNeeds(
        table, shown, _any_of([use.predicate for use in uses]), results=results, readers=tuple(_readers(uses))
    )
    for rule in _common_keys(table, uses):
        deciding = {name for name in names_under(rule.values, program) if name in sources}
        if not any(_reaches(name, table.name, depends) for name in deciding):
            depends.setdefault(table.name, set()).update(deciding)
            ask = replace(ask, key=rule)
            break
    best = [use.best for use in uses]
    rules = [rule for rule in best if rule is not None]
    if len(rules) == len(best) and len({(rule.column, rule.descending) for rule in rules}) == 1:
        return replace(ask, best=tuple(dict.fromkeys(rules)))
    return _with_quench(ask, uses)


def _always(table: Table) -> set[int]:
    """Return the columns that are asked for in any case: by which rows are told apart, and by which time passes."""
    found, ordered = set(table.key), table.promises.ordered
    if ordered is not None:
        found.add(ordered.column)
    if table.tick is not None:
        found.add(table.tick)
    return found


def _with_quench(ask: SourceNeeds, uses: Sequence[SourceUse]) -> SourceNeeds:
    """Add which columns may be left out for which keys, over all uses."""
    if not ask.table.key or ask.table.stream is not None:
        return ask
    watched, live, readers = set(ask.table.key), dict[Node, frozenset[int]](), dict[Node, list[str]]()
    if ask.key is not None:
        watched.add(ask.key.column)
    if ask.filter is not None:
        watched |= columns_of(ask.filter)
    for use in uses:
        watched |= use.decides if use.live is not None else use.columns
        if use.live is not None:
            live[use.live] = live.get(use.live, frozenset()) | use.columns
            readers.setdefault(use.live, []).append(use.reader)
    rules = tuple(
        LiveRule(node, reads, tuple(dict.fromkeys(readers[node]))) for node, reads in live.items() if reads - watched
    )
    return replace(ask, watched=frozenset(watched), live=rules) if rules else ask


def _reaches(start: str, goal: str, depends: Mapping[str, set[str]]) -> bool:
    seen, waiting = set[str](), [start]
    while waiting:
        name = waiting.pop()
        if name == goal:
            return True
        if name not in seen:
            seen.add(name)
            waiting.extend(depends.get(name, ()))
    return False


def _any_of(predicates: Sequence[Expr | None]) -> Expr | None:
    """Return a condition that is true where one of some is; None if one of them is always true."""
    terms = list(dict.fromkeys(term for term in predicates if term is not None))
    if None in predicates or not terms or len(terms) > _MOST_TERMS:
        return None
    return terms[0] if len(terms) == 1 else Call(BOOLEAN, "or", tuple(terms))


def _common_keys(table: Table, uses: Sequence[SourceUse]) -> list[KeyRule]:
    """Return, for each column that all uses restrict, the values that one of them wants: plans of other relations, and
    constants of conditions."""
    found = []
    for column in sorted({rule.column for use in uses for rule in use.keys}):
        plans: list[Node] = []
        for use in uses:
            own = next((rule.values for rule in use.keys if rule.column == column), None) or _constants(use, column)
            if own is None:
                break
            plans.append(own)
        else:
            shape = Schema((Column(table.schema.names[column], table.schema.types[column]),))
            alike = tuple(dict.fromkeys(project(plan, columns(plan), shape.names) for plan in plans))
            union = alike[0] if len(alike) == 1 else Union(shape, alike)
            found.append(KeyRule(column, distinct(union)))
    return found


def _constants(use: SourceUse, column: int) -> Node | None:
    keys = pinned(use.predicate) if use.predicate is not None else None
    if keys is None or keys.cols != (column,):
        return None
    schema = Schema((Column("value", keys.values[0][0].type if keys.values else BOOLEAN),))
    return Values(schema, tuple((value.value,) for (value,) in keys.values)) if keys.values else None


# -- one use -----------------------------------------------------------------------------------------------------------


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


def _use(path: tuple[Node, ...], reader: str, program: Program) -> SourceUse:
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
    """Note that a column of the source must have a value of the other side of a join, where that can be followed."""
    if source in names_under(other, program) or any(has_at(node.schema) for node in [other]):
        return
    for mine, theirs in pairs:
        expr = chain.exprs[mine]
        if isinstance(expr, Col) and all(rule.column != expr.index for rule in chain.rules):
            plan = optimize(distinct(project(other, [columns(other)[theirs]])))
            try:
                plan_text(plan)
            except UnwritablePlanError:
                continue
            chain.rules.append(KeyRule(expr.index, plan))


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


def _largest(path: tuple[Node, ...], reader: str) -> ResultAsk | None:
    """Return the largest query on a path that reads its source alone and has a text; None if that is the source."""
    source, found = path[0].names[0], None
    for node in path[1:]:
        if any(name != source for each in walk(node) for name in (*each.names, *each.fetches)):
            break
        if isinstance(node, Retain):
            continue
        try:
            text = plan_text(node)
        except UnwritablePlanError:
            break
        if not isinstance(node, (Select, Project, StreamToRelation)) or found is None or not _is_stream(node):
            found = ResultAsk(reader, node, text)
    return found


def _is_stream(node: Node) -> bool:
    return has_at(node.schema)
