"""Which views depend on the order in which rows of their sources come, and therefore read them in one order only.

Rows of several publishers, or after a gap, come in another order at every broker. To sums, maxima, unions and joins of
relations that makes no difference: they run ahead. But a stream that is joined with a relation meets it as it is when
the row comes; windows, latest(…) and bsort(…) go by arrival; LAST and FIRST are of the last and first row. Those, and
what is subscribed to with `ordered` (the option `IN_ORDER` of its view), read an **ordered twin** of each source that
is a stream: the same rows, in the order of (time, history, epoch), as far as all sources of their group are known.
Tables of the group change in that order, too.

The law: a view that `ordered_views` does not name is a function of the multisets of its sources' rows. A view that it
names reads no stream of a source but through twins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from whence.plan.algebra.logical import Aggregate, Node, Ref, Scan, bottom_up, walk
from whence.plan.algebra.program import Program, View, is_internal, ordered_name
from whence.plan.streams.model import BSort, Latest, Lookup, Slide, Stream, StreamToRelation, Window, WindowJoin
from whence.plan.streams.networks import plan_networks

IN_ORDER = "in_order"
"""The option of a view whose rows are wanted in the order of ticks, whatever it computes."""

_BY_ARRIVAL = (BSort, Latest, Lookup, Slide, Window, WindowJoin)


@dataclass(frozen=True)
class OrderedGroup:
    """Sources that are read in one common order, by some views."""

    sources: frozenset[str]
    views: frozenset[str]


def has_sources(program: Program) -> bool:
    """Return whether any rows come from other databases."""
    return any(table.source is not None for table in program.tables.values())


def is_by_arrival(query: Node) -> bool:
    """Return whether a network depends on the order in which rows come."""
    for node in walk(query):
        if isinstance(node, _BY_ARRIVAL):
            return True
        if isinstance(node, Aggregate) and any(agg.function in ("first", "last") for agg in node.aggs):
            return any(isinstance(below, StreamToRelation) for below in walk(node))
    return False


def ordered_groups(program: Program) -> list[OrderedGroup]:
    """Return the groups of sources whose rows some views read in order."""
    if not has_sources(program):
        return []
    plain = _untwinned(program)
    networks = plan_networks(plain)
    groups: list[OrderedGroup] = []
    for name, view in networks.views.items():
        if not is_by_arrival(view.query) and view.option(IN_ORDER) is None:
            continue
        below = _views_beneath(plain, name)
        found = OrderedGroup(frozenset(_sources_of(plain, below)), frozenset(below))
        if not found.sources:
            continue
        for other in [group for group in groups if group.sources & found.sources]:
            groups.remove(other)
            found = OrderedGroup(found.sources | other.sources, found.views | other.views)
        groups.append(found)
    return groups


def ordered_views(program: Program) -> frozenset[str]:
    """Return the views that read their sources in order: those that depend on it, and all that they read."""
    return frozenset(name for group in ordered_groups(program) for name in group.views)


def read_in_order(program: Program, only: Iterable[str] | None = None) -> Program:
    """Return a program whose order-sensitive views, or `only` some of them, read the ordered twins of their sources,
    of those that have one."""
    twins = {name: ordered_name(name) for name in program.tables if ordered_name(name) in program.tables}
    if not twins:
        return program
    wanted = ordered_views(program)
    found = program.copy()
    for name in wanted if only is None else wanted & set(only):
        view = program.views[name]
        query = _reading(view.query, twins)
        if query != view.query:
            found.views[name] = replace(view, query=query)
    return found


def with_ordered_copies(program: Program, name: str, own: Mapping[str, View]) -> dict[str, View]:
    """Return the views `own` of a query `name` beside a program, and copies of those views of the program that it must
    read in order and that run without one. The views of the program stay as they are."""
    both = program.copy()
    both.views |= own
    copied = sorted(ordered_views(both) - ordered_views(program) - own.keys())
    copies = {view: f"{name}${view}" for view in copied}
    if not copies:
        return dict(own)

    def other(node: Node) -> Node:
        return replace(node, view=copies[node.view]) if isinstance(node, Ref) and node.view in copies else node

    found = {
        copy: replace(program.views[view], name=copy, query=bottom_up(program.views[view].query, other), owner=name)
        for view, copy in copies.items()
    }
    return found | {each: replace(view, query=bottom_up(view.query, other)) for each, view in own.items()}


def _reading(query: Node, twins: Mapping[str, str]) -> Node:
    def other(node: Node) -> Node:
        return replace(node, table=twins[node.table]) if isinstance(node, Scan) and node.table in twins else node

    return bottom_up(query, other)


def without_twins(program: Program) -> Program:
    """Return a program as it runs whose views read sources in place of their ordered twins."""
    sources = {ordered_name(name): name for name in program.tables if ordered_name(name) in program.tables}
    if not sources:
        return program

    def other(node: Node) -> Node:
        if isinstance(node, Scan) and node.table in sources:
            return replace(node, table=sources[node.table])
        return (
            replace(node, stream=sources[node.stream]) if isinstance(node, Stream) and node.stream in sources else node
        )

    found = program.copy()
    found.views = {name: replace(view, query=bottom_up(view.query, other)) for name, view in program.views.items()}
    return found


def _untwinned(program: Program) -> Program:
    """Return a program without tables of the database's own."""
    found = program.copy()
    found.tables = {name: table for name, table in program.tables.items() if not is_internal(name)}
    return found


def _views_beneath(program: Program, name: str) -> list[str]:
    """Return a view and all views that it reads, directly or not."""
    seen, waiting = list[str](), [name]
    while waiting:
        one = waiting.pop()
        if one in seen or one not in program.views:
            continue
        seen.append(one)
        waiting += [other for node in walk(program.views[one].query) for other in node.names]
    return seen


def _sources_of(program: Program, views: Iterable[str]) -> set[str]:
    tables = program.tables
    read = {name for view in views for name in _tables_in(program.views[view])}
    return {name for name in read if name in tables and tables[name].source is not None}


def _tables_in(view: View) -> set[str]:
    return {name for node in walk(view.query) for name in node.names}
