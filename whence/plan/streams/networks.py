"""Make stream networks of bound queries: which views are streams, and what becomes of the streams they read.

A query is a **stream** if rows of it can be given in an order and never taken back: a base stream, a stream view,
selections, projections and table functions over streams, UNION ALL of streams, windows that are aggregated or joined,
a stream that is sorted, and a stream joined with a relation, whose rows meet the relation as it is when they come.
Everything else is a **relation**, and reads streams as relations: all rows so far, in no order (`StreamToRelation`).
Inside a recursion everything is a relation.

Law: without the hidden column `$at` a network has the columns of the query it was made of, and a program without
streams is left as it is, to the same objects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from whence.model.errors import SqlError
from whence.model.types import BIGINT, BOOLEAN, Column, Schema
from whence.plan.algebra.constructors import columns, conjunction, project, relabel
from whence.plan.algebra.expressions import Call, Col, Expr, conjuncts, substitute
from whence.plan.algebra.logical import (
    Aggregate,
    Join,
    Lateral,
    Node,
    Project,
    Ref,
    Scan,
    Select,
    Union,
    walk,
)
from whence.plan.algebra.logical.aggregate import by_arrival
from whence.plan.algebra.program import Program, View, retention_of, template_name
from whence.plan.recursion.scc import strongly_connected
from whence.plan.recursion.strata import references
from whence.plan.streams.instrument import TRACED, drop_provenance
from whence.plan.streams.model import (
    BSort,
    Latest,
    Lookup,
    MemoryLimit,
    Merge,
    ProvenanceJoin,
    Retain,
    Retention,
    Slide,
    Span,
    Stream,
    StreamToRelation,
    WindowJoin,
    counterparts,
    has_at,
    with_arrival,
    with_at,
    without_at,
)
from whence.plan.streams.replay import with_copies
from whence.plan.streams.windows import Grouping, find_windows


def is_stream_node(node: Node) -> bool:
    """Return whether a node of a network is a stream."""
    return has_at(node.schema)


def plan_networks(program: Program) -> Program:
    """Turn the queries of a program into networks: those that are streams end in a Retain and have the hidden column
    `$at`."""
    if all(table.stream is None for table in program.tables.values()):
        for view in program.views.values():
            _check_tables_only(view)
            check_outside(view.owner or view.name, view.query, program)
        return program
    found = program.copy()
    found.views = flow_views(program.views, program, _base_streams(program))
    for view in found.views.values():
        check_outside(view.owner or view.name, view.query, program)
    return found


def plan_query(plan: Node, hidden: dict[str, View], planned: Program, name: str) -> dict[str, View]:
    """Turn a query that is asked once, as a view `name`, and its hidden views into networks over a program of
    networks."""
    known = streams_of(planned)
    if not known:
        found = {**hidden, name: View(name, plan.schema, plan)}
        for view in found.values():
            _check_tables_only(view)
        return found
    found = flow_views(hidden, planned, known)
    query = _Flow(planned, known, name, fetches=False).node(plan)
    if is_stream_node(query):
        query = Retain(query.schema, query, Retention(), name)
    found[name] = View(name, query.schema, query)
    return _reading_networks(found, planned)


def plan_beside(views: dict[str, View], planned: Program) -> dict[str, View]:
    """Turn views into networks over a program of networks, which stays as it is."""
    known = streams_of(planned)
    if not known:
        for view in views.values():
            _check_tables_only(view)
        return dict(views)
    for view in views.values():
        read = next((n.table for n in walk(view.query) if isinstance(n, Scan) and _is_outside(n, planned)), None)
        if read is not None:
            raise SqlError(f'"{read}" is a lookup, and rows are fetched for views only: CREATE VIEW, and ask that')
    return _reading_networks(flow_views(views, planned, known), planned)


def _reading_networks(views: dict[str, View], planned: Program) -> dict[str, View]:
    """Let networks read those of a program: without provenance that they do not ask for."""

    def traced(view: str) -> bool:
        return view in planned.views and planned.views[view].option("provenance") in TRACED

    return {
        n: replace(view, query=with_copies(drop_provenance(view.query, traced), planned)) for n, view in views.items()
    }


def streams_of(program: Program) -> set[str]:
    """Return the streams of a program: base streams and views that are streams, whether bound or made networks."""
    known = _base_streams(program)
    if not known:
        return known
    if any(is_stream_node(view.query) for view in program.views.values()):
        return known | {name for name, view in program.views.items() if is_stream_node(view.query)}
    return known | {name for name, view in plan_networks(program).views.items() if is_stream_node(view.query)}


def gives_stream(query: Node, program: Program, view: str) -> bool:
    """Return whether a part of a view's query is a stream; of a bound program."""
    known = streams_of(program)
    return bool(known) and is_stream_node(_Flow(program, known, view).node(query))


def is_stream(name: str, program: Program) -> bool:
    """Return whether a name is that of a stream or of a view that is one."""
    return name in streams_of(program)


def _base_streams(program: Program) -> set[str]:
    return {name for name, table in program.tables.items() if table.stream is not None}


def flow_views(views: dict[str, View], program: Program, streams: set[str]) -> dict[str, View]:
    """Views as networks, given the streams that they may read beside each other."""
    streams = set(streams)
    graph = {name: sorted(references(view) & set(views)) for name, view in views.items()}
    made: dict[str, View] = {}
    for members in strongly_connected(graph):
        recursive = len(members) > 1 or members[0] in graph[members[0]]
        for name in members:
            view = views[name]
            flow = _Flow(program, streams, name, view.owner or name, view.memory)
            if recursive:
                query = flow.inside(view.query)
                _check_recursion(query, set(members), flow.shown)
            else:
                query = flow.node(view.query)
            if is_stream_node(query):
                _check_stream(view)
                streams.add(name)
                schema = with_at(view.schema)
                kept = Retain(schema, relabel(query, schema), retention_of(view), name)
                made[name] = replace(view, schema=schema, query=kept)
            else:
                _check_relation(view)
                made[name] = view if query is view.query else replace(view, query=query)
            _check_memory(view, query)
    return {name: made[name] for name in views}


def _check_tables_only(view: View) -> None:
    """Refuse what needs a stream, where there is none."""
    _check_relation(view)
    for node in walk(view.query):
        found = by_arrival(node.aggs) if isinstance(node, Aggregate) else None
        if found is not None:
            raise SqlError(
                f'in "{view.owner or view.name}": {found.function.upper()} needs a stream: rows of a table come in no '
                "order; use MIN or MAX, or ORDER BY with LIMIT"
            )


def _check_relation(view: View) -> None:
    if view.retain is not None:
        raise SqlError(
            f'retain is what is kept of a stream, and "{view.owner or view.name}" is a relation: leave retain out'
        )


def _check_stream(view: View) -> None:
    given = view.option("provenance")
    if view.option("maintain") is not None or given not in (None, "none", *TRACED):
        raise SqlError(
            f'"{view.owner or view.name}" is a stream, of which nothing is ever taken back: its provenance is '
            "'lineage', 'covering' or 'none', and maintain is for relations"
        )


def _check_memory(view: View, query: Node) -> None:
    if view.memory is not None and not any(isinstance(n, WindowJoin) and n.limit is not None for n in walk(query)):
        raise SqlError(f'memory is a limit for a join of two streams, and "{view.owner or view.name}" has none')


def _check_recursion(query: Node, members: set[str], shown: str) -> None:
    """Refuse a recursion through something that only streams have."""
    for node in walk(query):
        if is_stream_node(node) or isinstance(node, (Latest, StreamToRelation)):
            met = next((n.view for n in walk(node) if isinstance(n, Ref) and n.view in members), None)
            if met is not None:
                raise SqlError(f'the recursion of "{shown}" goes through a stream: "{met}" must be read as a relation')


@dataclass(frozen=True)
class _Flow:
    """Makes the network of one view; `streams` are the names that stand for streams."""

    program: Program
    streams: set[str]
    view: str
    shown: str = ""
    limit: MemoryLimit | None = None
    fetches: bool = True  # rows of relations from outside

    def error(self, message: str) -> SqlError:
        return SqlError(f'in "{self.shown or self.view}": {message}')

    def relation(self, node: Node) -> Node:
        """Read a query as a relation."""
        return _related(self.node(node))

    def node(self, node: Node) -> Node:
        """Turn a query into a network: a stream, if it can be one."""
        match node:
            case Scan():
                return Stream(with_at(node.schema), node.table) if node.table in self.streams else node
            case Ref():
                return Ref(with_at(node.schema), node.view) if node.view in self.streams else node
            case Select():
                below = self.node(node.input)
                return Select(below.schema, below, node.predicate) if is_stream_node(below) else _over(node, [below])
            case Project():
                below = self.node(node.input)
                return _projected(below, node.exprs, node.schema) if is_stream_node(below) else _over(node, [below])
            case Lateral():
                return self._lateral(node)
            case Union():
                branches = [self.node(branch) for branch in node.branches]
                if all(map(is_stream_node, branches)):
                    return Merge(with_at(node.schema), tuple(branches))
                return _over(node, [_related(branch) for branch in branches])
            case Join():
                return self._join(node)
            case Aggregate() if find_windows(node) is not None:
                return self._window(node)
            case Aggregate() if by_arrival(node.aggs) is not None:
                return self._by_arrival(node)
            case BSort():
                below = self._ordered(node.input, "bsort")
                return BSort(with_at(node.schema), below, node.column, node.slack, self.view, node.within)
            case Latest():
                return Latest(node.schema, self._ordered(node.input, "a window"), node.span, self.view)
            case ProvenanceJoin():
                return self._traced(node)
            case Slide():
                raise self.error(
                    "slide(…) makes windows: aggregate them with GROUP BY or without, or join them with other windows; "
                    "filters and joins with tables come before: slide((SELECT … WHERE …), …)"
                )
        return _over(node, [self.relation(child) for child in node.inputs])

    def inside(self, node: Node) -> Node:
        """Return a query of a recursion: what it reads are relations, down to where something is made of streams
        alone."""
        if isinstance(node, (Scan, Ref, BSort, Latest, ProvenanceJoin, Slide)) or _windowed(node):
            return self.relation(node)
        if isinstance(node, Aggregate) and (found := by_arrival(node.aggs)) is not None:
            raise self.error(f"{found.function.upper()} is by arrival: compute it in a view that is not recursive")
        return _over(node, [self.inside(child) for child in node.inputs])

    # -- operators of streams

    def _ordered(self, node: Node, what: str) -> Node:
        """Return a query that must be a stream."""
        found = self.node(node)
        if is_stream_node(found):
            return found
        while isinstance(node, (Project, Select)):
            node = node.input
        match node:
            case Scan():
                which, kind = f'"{node.table}"', "table"
            case Ref():
                which, kind = f'"{node.view.rpartition("$")[2] or node.view}"', "relation"
            case _:
                which, kind = "its query", "relation"
        raise self.error(f"{what} needs a stream, and {which} is a {kind}: rows of a {kind} come in no order")

    def _lateral(self, node: Lateral) -> Node:
        below = self.node(node.input)
        if not is_stream_node(below):
            return _over(node, [below])
        width = len(node.input.schema)
        made = node.schema.columns[width:]
        each = replace(node, schema=Schema((*below.schema.columns, *made)), input=below)
        own = columns(each)
        return Project(with_at(node.schema), each, (*own[:width], *own[width + 1 :], own[width]))

    def _traced(self, node: ProvenanceJoin) -> Node:
        below = self._ordered(node.input, "provenance")
        if node.source not in self.streams:
            raise self.error(f'provenance is traced from streams, and "{node.source}" is none')
        return ProvenanceJoin(with_at(node.schema), below, node.view, node.source)

    # -- joins

    def _join(self, node: Join) -> Node:
        if isinstance(node.left, Slide) and isinstance(node.right, Slide):
            return self._window_join(node, node.left, node.right)
        left, right = self.node(node.left), self.node(node.right)
        ours, theirs = is_stream_node(left), is_stream_node(right)
        if ours and theirs and self.limit is not None and node.kind == "inner":
            return self._bounded(node, left, right, (Span(None), Span(None)))
        if ours and theirs:
            if node.kind in ("semi", "anti", "mark"):
                raise self.error(
                    "a subquery reads a stream for each row of another: what it has so far keeps growing. Say which "
                    "of its rows count, latest(stream, …), or aggregate it"
                )
            raise self.error(
                "two streams are joined without windows, so rows would wait for each other forever. Say how long: "
                "slide(a, rows => …) AS a JOIN slide(b, rows => …) AS b ON …; or join with what is in a window now: "
                "a JOIN latest(b, …) AS b ON …; or keep so many rows, and miss others: WITH (memory = '64 MB')"
            )
        if ours and node.kind in ("inner", "left", "semi", "anti", "mark"):
            found = Lookup(with_at(node.schema), left, right, node.kind, node.keys, node.residual)
            return self._outside(found)
        if theirs and node.kind in ("inner", "right"):
            return _swapped(node, left, right, _scans_parameters(left, self.view), self._outside)
        return _over(node, [_related(left), _related(right)])

    def _outside(self, node: Lookup) -> Lookup:
        """Join a stream with a relation from outside by its key alone, if it is one; other conditions come after."""
        if not (self.fetches and isinstance(node.relation, Scan) and _is_outside(node.relation, self.program)):
            return node
        table = self.program.tables[node.relation.table]
        (key,) = table.key
        width = len(node.input.schema) - 1
        mine = next(((a, b) for a, b in node.keys if b == key), None)
        if mine is None:
            name = table.schema.names[key]
            raise self.error(
                f'"{table.name}" is fetched by its key: say which column of the stream it equals, '
                f"JOIN {table.name} ON … = {table.name}.{name}"
            )
        types = node.input.schema.types, node.relation.schema.types
        rest = [
            Call(BOOLEAN, "=", (Col(types[0][a], a), Col(types[1][b], width + b)))
            for a, b in node.keys
            if (a, b) != mine
        ]
        return replace(node, keys=(mine,), residual=conjunction([*conjuncts(node.residual), *rest]), outside=table.name)

    def _window_join(self, node: Join, left: Slide, right: Slide) -> Node:
        if node.kind != "inner":
            raise self.error("windows have inner joins only")
        if left.span.on is not None and counterparts(left.span.by, right.span.by, node.keys) is None:
            raise self.error(
                "windows on a column that are joined must be `by` columns that the join equates, on both sides: "
                "slide(a, on => …, width => …, by => k) AS a JOIN slide(b, on => …, width => …, by => k) AS b "
                "ON a.k = b.k"
            )
        ours, theirs = self._ordered(left.input, "a window"), self._ordered(right.input, "a window")
        if self.limit is not None:
            return self._bounded(node, ours, theirs, (left.span, right.span))
        schema, spans = with_at(node.schema), (left.span, right.span)
        return WindowJoin(schema, ours, theirs, *spans, node.keys, node.residual, self.view)

    def _bounded(self, node: Join, left: Node, right: Node, spans: tuple[Span, Span]) -> Node:
        """Join two streams of which only so many rows are kept."""
        if any(span.on is not None or span.by for span in spans):
            raise self.error(
                "memory limits a join without windows, or over windows of rows: slide(a, rows => …) without on and by"
            )
        if not node.keys:
            raise self.error("memory limits a join on equal columns: rows are kept by their join values")
        schema, limit = with_at(node.schema), self.limit
        return WindowJoin(schema, left, right, *spans, node.keys, node.residual, self.view, limit)

    def _by_arrival(self, node: Aggregate) -> Node:
        """Return groups with FIRST or LAST, which go by the arrival of rows, or by a column and then by that."""
        found = by_arrival(node.aggs)
        assert found is not None
        below = self._ordered(node.input, found.function.upper())
        arrived = len(below.schema) - 1
        aggs = tuple(
            replace(a, order=(*(a.order or (arrived,)), arrived)) if a.function in ("first", "last") else a
            for a in node.aggs
        )
        return replace(node, input=StreamToRelation(with_arrival(below.schema), below), aggs=aggs)

    # -- windows

    def _window(self, node: Aggregate) -> Node:
        found = find_windows(node)
        assert found is not None
        slide, exprs = found
        if slide.span.every is None:
            raise self.error("aggregating windows needs every => …, how far the window moves")
        below = self._ordered(slide.input, "a window")
        work = Grouping(self.view, slide, below)
        keys = [exprs[k] for k in node.keys]
        work.add_keys(keys)
        types = node.schema.types[len(keys) :]
        made = [work.key(e) for e in keys]
        for agg, type in zip(node.aggs, types, strict=True):
            arg = exprs[agg.column] if agg.column is not None else None
            made.append(work.aggregate(agg, arg, Column(f"{agg.function}_{len(work.aggs)}", type)))
        return _projected(work.node(), made, node.schema)


# -- helpers ---------------------------------------------------------------------------------------------------------


def _over(node: Node, inputs: Sequence[Node]) -> Node:
    """Put a node over other inputs; return the same object if they are the same."""
    same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
    return node if same else node.with_inputs(inputs)


def _related(node: Node) -> Node:
    return StreamToRelation(without_at(node.schema), node) if is_stream_node(node) else node


def _projected(below: Node, exprs: Sequence[Expr], schema: Schema) -> Node:
    """Project a stream, under the names of a schema."""
    at = Col(BIGINT, len(below.schema) - 1)
    return relabel(project(below, [*exprs, at]), with_at(schema))


def _scans_parameters(node: Node, view: str) -> bool:
    """Return whether a view is a template's, and a relation the table of its parameters."""
    return isinstance(node, Scan) and view == template_name(node.table)


def check_outside(shown: str, query: Node, program: Program) -> None:
    """Refuse a query that reads a relation from outside as if it were here."""
    if all(table.lookup is None for table in program.tables.values()):
        return
    found = {id(node.relation) for node in walk(query) if isinstance(node, Lookup) and node.outside}
    for node in walk(query):
        if isinstance(node, Scan) and id(node) not in found and _is_outside(node, program):
            table = program.tables[node.table]
            name = table.schema.names[table.key[0]]
            raise SqlError(
                f'in "{shown}": "{table.name}" is a lookup, of which only some rows are here: a stream is joined '
                f"with it, JOIN {table.name} ON … = {table.name}.{name}; nothing else reads it"
            )


def _is_outside(node: Scan, program: Program) -> bool:
    table = program.tables.get(node.table)
    return table is not None and table.lookup is not None


def _swapped(node: Join, left: Node, right: Node, is_matched: bool, outside: Callable[[Lookup], Lookup]) -> Node:
    """Write a relation joined with a stream as the stream that looks the relation up."""
    ours, theirs = len(left.schema), len(right.schema) - 1
    place = [theirs + i for i in range(ours)] + list(range(theirs))
    keys = tuple((b, a) for a, b in node.keys)
    residual = node.residual
    moved = None if residual is None else substitute(residual, lambda c: Col(c.type, place[c.index]))
    mixed = (*node.schema.columns[ours:], *node.schema.columns[:ours])
    kind = "left" if node.kind == "right" else node.kind
    found = outside(Lookup(with_at(Schema(mixed)), right, left, kind, keys, moved, is_matched))
    return _projected(found, [columns(found)[i] for i in place], node.schema)


def _windowed(node: Node) -> bool:
    if isinstance(node, Join):
        return isinstance(node.left, Slide) and isinstance(node.right, Slide)
    return isinstance(node, Aggregate) and find_windows(node) is not None
