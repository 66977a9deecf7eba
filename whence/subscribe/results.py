"""Which parts of views are computed where their sources are: the largest sub-plan that reads one publisher only.

A **result** is a query over sources of one publisher that takes the place of their rows: the broker subscribes to it,
and the view above is computed from its rows. They are in a table of the database's own, `$result_trade_0123abcd`, which
is a source whose address is that of the sources and whose query is the sub-plan. What holds of sources that are tables
holds of it: ranges of ticks, one after the other; other addresses; restarts.

| `ask` of the source | what is asked for as a result |
|---------------------|--------------------------------|
| `'results'` | every sub-plan that is more than a selection and projection of one source |
| not said    | groups and DISTINCT of tables: they never change by more rows than the table. Rows of streams are asked
|             | for, since they run ahead of gaps |
| `'rows'`, `'all'` | nothing |

A view reads each source in one way: as rows, or by one result. Otherwise its parts would be of different ticks.

What bounds of a view follow from is what streams promise. A result of a stream that promises something has a
**promise twin** of it, `$result_trade_0123abcd trade`: a stream without rows, whose promises are those that hold of the
result. What a view knows is derived from its query over the twins.

The law: a program that `read_results` returns has the rows of the program it is given, where each result has the rows
of its query. It differs only in views that `ordered_views` does not name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from whence.plan.algebra.expressions import Expr, is_volatile, may_fail
from whence.plan.algebra.functions import functions_of
from whence.plan.algebra.logical import (
    Aggregate,
    Distinct,
    Join,
    Node,
    Project,
    Scan,
    Select,
    SetOp,
    TopK,
    Union,
    bottom_up,
    walk,
)
from whence.plan.algebra.program import Program, Table, View, is_template, result_name
from whence.plan.order_sensitive import ordered_views
from whence.sql.addresses import source_address
from whence.sql.plan_text import UnwritablePlanError, plan_text

_RELATIONS = (Aggregate, Distinct, SetOp, TopK)  # never streams, whatever they are over
_COMPUTED = (*_RELATIONS, Join, Union)
QUERY, SOURCES = "query", "sources"
"""The options of a result: its SELECT over the names that the sources have here, and these names."""


@dataclass(frozen=True)
class ResultPlan:
    """A sub-plan that is computed at the publisher; `name` is the table that has its rows here."""

    name: str
    node: Node
    text: str
    sources: tuple[str, ...]


Replacement = Callable[[ResultPlan], Node]


def is_result(table: Table | None) -> bool:
    """Return whether a table has the rows of a result."""
    return table is not None and table.source is not None and table.source.option(QUERY) is not None


def result_sources(table: Table) -> list[str]:
    """Return the sources that a result is made of."""
    assert table.source is not None
    return (table.source.option(SOURCES) or "").split(",")


def promise_twin(result: str, source: str) -> str:
    """Return the name of the stream that has the promises of a source as they hold of a result."""
    return f"{result} {source}"


# -- which there are -----------------------------------------------------------------------------------------------


def wanted_results(program: Program, refused: Collection[str] = ()) -> dict[str, dict[str, ResultPlan]]:
    """Return the results that each view of a program should read, by their names; `refused` are those that cannot be
    had. No view reads a source in two ways, also not through others."""
    if not any(table.source is not None for table in program.tables.values()):
        return {}
    ordered = ordered_views(program)
    found: dict[str, dict[str, ResultPlan]] = {}
    for name, view in program.views.items():
        if name not in ordered and _may_read(view):
            plans = {each.name: each for each in _largest(view.query, program) if each.name not in refused}
            if plans:
                found[name] = plans
    while conflicting := _in_conflict(program, found):
        found = {
            view: kept
            for view, plans in found.items()
            if (kept := {name: each for name, each in plans.items() if name not in conflicting})
        }
    return found


def _may_read(view: View) -> bool:
    """Return whether a view may read results: its rows are neither traced nor those of a template."""
    return view.option("provenance") is None and not is_template(view.owner or view.name)


def _in_conflict(program: Program, found: Mapping[str, Mapping[str, ResultPlan]]) -> set[str]:
    """Return the results of sources that some view reads in several ways."""
    if not found:
        return set()
    own = {name: _ways(view.query, program, found.get(name, {})) for name, view in program.views.items()}
    conflicting = set[str]()
    for name in program.views:
        ways: dict[str, set[str]] = {}
        for below in _beneath(program, name):
            for source, reads in own[below].items():
                ways.setdefault(source, set()).update(reads)
        for reads in ways.values():
            if len(reads) > 1:
                conflicting |= reads
    return conflicting - {""}


def _ways(query: Node, program: Program, plans: Mapping[str, ResultPlan]) -> dict[str, set[str]]:
    """Return, for each source that a query reads, the results that it reads it by; "" stands for rows."""
    found: dict[str, set[str]] = {}
    results = {each.node: each for each in plans.values()}

    def visit(node: Node) -> None:
        if (result := results.get(node)) is not None:
            for name in result.sources:
                found.setdefault(name, set()).add(result.name)
            return
        for name in node.names:
            if name in program.tables and program.tables[name].source is not None:
                found.setdefault(name, set()).add("")
        for child in node.inputs:
            visit(child)

    visit(query)
    return found


def _beneath(program: Program, name: str) -> set[str]:
    """Return a view and all views that it reads, directly or not."""
    seen, waiting = set[str](), [name]
    while waiting:
        one = waiting.pop()
        if one not in seen and one in program.views:
            seen.add(one)
            waiting += [other for node in walk(program.views[one].query) for other in node.names]
    return seen


def _largest(node: Node, program: Program) -> Iterator[ResultPlan]:
    """Yield the largest results in a query."""
    found = _as_result(node, program)
    if found is not None:
        yield found
        return
    for child in node.inputs:
        yield from _largest(child, program)


def _as_result(node: Node, program: Program) -> ResultPlan | None:
    """Return a sub-plan as a result, if it can be one and is worth it."""
    top = node
    while isinstance(top, (Select, Project)):
        top = top.input
    if not isinstance(top, _COMPUTED):
        return None
    below = list(walk(node))
    sources = sorted({name for each in below for name in each.names})
    tables = [program.tables.get(name) for name in sources]
    if not tables or not _of_one_publisher(tables) or any(each.fetches for each in below):
        return None
    has_stream = any(table is not None and table.stream is not None for table in tables)
    asks = {table.source.option("ask") for table in tables if table is not None and table.source is not None}
    if asks != {"results"} and (asks != {None} or has_stream or not isinstance(top, (Aggregate, Distinct))):
        return None
    if (has_stream and not isinstance(top, _RELATIONS)) or not _may_travel(below):
        return None
    names = node.schema.names
    if not names or len(set(names)) < len(names):
        return None
    try:
        text = plan_text(node)
    except UnwritablePlanError:
        return None
    digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
    return ResultPlan(result_name(sources, digest), node, text, tuple(sources))


def _of_one_publisher(tables: Iterable[Table | None]) -> bool:
    """Return whether all tables are sources that come from the same servers, by the same token."""
    found = set()
    for table in tables:
        if table is None or table.source is None or is_result(table):
            return False
        source = table.source
        servers = tuple(source_address(url).server for url in source.urls)
        if any(server.startswith("nats:") for server in servers):  # a bus carries whole relations
            return False
        found.add((servers, source.option("token_file"), source.option("ca_file")))
    return len(found) == 1


def _may_travel(nodes: Iterable[Node]) -> bool:
    """Return whether nodes can be computed elsewhere: no row makes them fail, and they call nothing of ours."""
    for node in nodes:
        if any(True for _ in functions_of(node)):
            return False
        for value in vars(node).values():
            for expr in value if isinstance(value, tuple) else (value,):
                if isinstance(expr, Expr) and (is_volatile(expr) or may_fail(expr)):
                    return False
    return True


# -- programs that read them ---------------------------------------------------------------------------------------


def has_results(program: Program) -> bool:
    """Return whether a program has tables of results."""
    return any(is_result(table) for table in program.tables.values())


def read_results(program: Program, only: Iterable[str] | None = None) -> Program:
    """Return a program whose views, or `only` some of them, read the tables of those results that have one."""

    def scan(plan: ResultPlan) -> Node:
        return Scan(program.tables[plan.name].schema, plan.name)

    return _with_results(program, scan, only)


def read_promises(program: Program, only: Iterable[str] | None = None) -> Program:
    """Return a program for what is known of views: sub-plans that have a table read the promise twins of their
    streams."""

    def over_twins(plan: ResultPlan) -> Node:
        def other(node: Node) -> Node:
            twin = promise_twin(plan.name, node.table) if isinstance(node, Scan) else ""
            return replace(node, table=twin) if isinstance(node, Scan) and twin in program.tables else node

        return bottom_up(plan.node, other)

    return _with_results(program, over_twins, only)


def _with_results(program: Program, made: Replacement, only: Iterable[str] | None) -> Program:
    if not has_results(program):
        return program
    found, ordered = program.copy(), ordered_views(program)
    for name in program.views if only is None else only:
        view = program.views[name]
        if name in ordered or not _may_read(view):
            continue
        query = _replaced(view.query, program, made)
        if query is not view.query:
            found.views[name] = replace(view, query=query)
    return found


def _replaced(node: Node, program: Program, made: Replacement) -> Node:
    found = _as_result(node, program)
    if found is not None:
        return made(found) if found.name in program.tables else node
    if not node.inputs:
        return node
    inputs = [_replaced(child, program, made) for child in node.inputs]
    same = all(new is old for new, old in zip(inputs, node.inputs, strict=True))
    return node if same else node.with_inputs(inputs)


def results_beneath(planned: Program, name: str) -> set[str]:
    """Return the results that a view of a program as it runs reads, directly or not."""
    read = (name for view in _beneath(planned, name) for node in walk(planned.views[view].query) for name in node.names)
    return {name for name in read if is_result(planned.tables.get(name))}
