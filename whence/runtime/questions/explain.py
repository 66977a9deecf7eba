"""EXPLAIN: how a view is maintained: plans as trees, operators with their state, strata, algebra and policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from whence.engine.core.operator import Operator, upwards
from whence.engine.core.operator_stats import OperatorStats, OperatorWork
from whence.engine.recursion.fixpoint import Fixpoint, annotated_policy
from whence.engine.recursion.policies.annotated import AnnotatedPolicy
from whence.engine.relational.scan import Scan
from whence.model.errors import CatalogError
from whence.model.sizes import in_bytes
from whence.model.types import Schema
from whence.plan.algebra import logical
from whence.plan.algebra.expressions import Volatile
from whence.plan.algebra.logical import Node
from whence.plan.algebra.program import (
    Program,
    View,
    has_closed_keys,
    is_beside,
    is_internal,
    is_owed,
    is_template,
    owner_of,
    retention_of,
    template_name,
    template_of,
)
from whence.plan.rewrite.select_aggregates import selections
from whence.plan.streams import model as streams
from whence.plan.streams.instrument import traces_of
from whence.plan.streams.networks import is_stream_node
from whence.plan.templates.recognise import recognise
from whence.runtime.reading.late_rows import late_count
from whence.runtime.transient_views import SUBSCRIPTION, without_name

T = TypeVar("T")

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator


def explain_view(coordinator: Coordinator, name: str, analyze: bool = False) -> str:
    """Return everything about a view that EXPLAIN says; with `analyze` what its operators have done so far."""
    catalog, program = coordinator.catalog, coordinator.program
    view = program.views[name]
    op, measure = catalog.backend.operator(name), catalog.backend.measure()
    number, component = catalog.stratum_of(name)
    what = _template_line(program, view) if is_template(name) else f"view {name} {view.schema}"
    lines = [what, *_stream_lines(coordinator, view, op)]
    if is_template(name):
        lines.append(recognise(view.query, program.tables[template_of(name)], program).why)
    if component.recursive:
        others = [n for n in component.views if n != name]
        lines.append(f"stratum {number} of {len(catalog.components)}, recursive{_with(others)}")
    else:
        lines.append(f"stratum {number} of {len(catalog.components)}")
    for selection in selections(view, program):
        keys = ", ".join(view.schema.names[k] for k in selection.keys)
        best = f"{selection.function.upper()}({view.schema.names[selection.value]})"
        kept = "one row" if selection.one else "only rows"
        lines.append(
            f"aggregate selection: {kept} with the {best} of their {keys} {'is' if selection.one else 'are'} kept"
        )
    soft = [f"{t} ({life})" for t in _tables_under(op) if (life := program.tables[t].lifetime) is not None]
    if soft:
        lines.append(f"rows expire: {', '.join(soft)}")
    for index in program.indexes.values():
        if index.relation == name:
            lines.append(f"index {index.name} ({', '.join(index.columns)})")
    lines.append(f"algebra {op.annotation}")
    for found, policy in _annotated(upwards([op])):
        if name not in found.name.split(", "):
            continue
        say = provenance(policy, measure(found))
        size, each = (in_bytes(int(say[figure])) for figure in ("provenance_bytes", "provenance_bytes_per_row"))
        how = f"maintain {say['maintain']}, propagate {say['propagate']}, as {say['representation']}"
        lines.append(f"{how}: {size} of provenance, {each} a row, {say['rows_held']:,} rows hold reasons back")
    lines += catalog.backend.placement(name, catalog.program)
    if coordinator.broker is not None:
        lines += coordinator.broker.curiosity.describe(_tables_under(op))
    lines += coordinator.adaptation.explain(name)
    lines.append("logical plan")
    lines += _plan(view.query)
    lines.append("physical plan")
    lines += tree(op, lambda o: describe_operator(o, measure(o), analyze), lambda o: o.inputs, "  ")
    return "\n".join(lines)


def _template_line(program: Program, view: View) -> str:
    """Describe a template: its parameters, and the columns of its answers."""
    template = template_of(view.name)
    parameters = ", ".join(f":{column.name} {column.type}" for column in program.tables[template].schema.columns[1:])
    return f"template {template} ({parameters}) of {Schema(view.schema.columns[1:])}"


def _stream_lines(coordinator: Coordinator, view: View, op: Operator) -> list[str]:
    """Describe a view that is a stream, and rows that came too late for it."""
    lines, planned = [], coordinator.catalog.planned
    if streams.AT in op.schema.names[-1:]:
        lines.append(f"stream, keeps {retention_of(view).text}")
        lines.append(_provenance_line(view.name, planned))
    if view.memory is not None:
        lines.append(f"approximate: its join keeps {view.memory.describe()}, and misses results; db.missed counts them")
    late = late_count(coordinator, view.name)
    if late:
        lines.append(f"{late:,} row{'s' * (late != 1)} came too late")
    return lines


def _provenance_line(name: str, planned: Program) -> str:
    traces = traces_of(name, planned)
    if traces is None:
        return "provenance none"
    how = f", as {traces.tracing.encoding}" if traces.tracing.mode == "lineage" else ""
    return f"provenance {traces.tracing.mode} of {', '.join(traces.sources)}{how}"


def _annotated(ops: Iterable[Operator]) -> list[tuple[Fixpoint, AnnotatedPolicy]]:
    """Return the fixpoints that maintain annotations, and their policies."""
    return [(op, policy) for op in ops if isinstance(op, Fixpoint) and (policy := annotated_policy(op)) is not None]


def provenance(policy: AnnotatedPolicy, size: OperatorStats) -> dict[str, int | str]:
    """Describe how a component keeps its provenance, and how much that is."""
    return {
        "maintain": policy.maintain.algebra,
        "propagate": policy.maintain.text,
        "representation": policy.form,
        "provenance_bytes": size.provenance,
        "provenance_bytes_per_row": round(size.provenance / max(1, size.annotated)),
        "rows_held": size.buffered,
    }


def explain_transient(coordinator: Coordinator, name: str) -> str:
    """Describe a view of a query that is there for a moment, with what its operators have done."""
    catalog = coordinator.catalog
    op, measure, found = catalog.backend.operator(name), catalog.backend.measure(), catalog.transient[name]
    hidden = {other: view for other, view in found.bound.items() if other != name}
    lines = [*_logical(found.view.query, hidden), "physical plan"]
    lines += tree(op, lambda o: describe_operator(o, measure(o), True), lambda o: o.inputs, "  ")
    return "\n".join(lines).replace(f"{name}$", "").replace(f"{name[1:]}$", "")  # recursive CTEs, as they were named


def explain_query(query: Node, hidden: dict[str, View], flowed: dict[str, View]) -> str:
    """Describe the logical plan of a query that is not kept, and of its recursive CTEs; `flowed`: as they read
    streams."""
    return "\n".join([*_logical(query, hidden), *_network(flowed)])


def explain_new(view: View, bound: Program, planned: Program) -> str:
    """Describe what a view would be, if it were made."""
    hidden = {name: v for name, v in bound.views.items() if v.owner == view.name}
    lines = _logical(view.query, hidden)
    if is_stream_node(planned.views[view.name].query):
        lines[:0] = [f"stream, keeps {retention_of(view).text}", _provenance_line(view.name, planned)]
    return "\n".join([*lines, *_network({name: planned.views[name] for name in [*hidden, view.name]})])


def _logical(query: Node, hidden: dict[str, View]) -> list[str]:
    lines = ["logical plan", *_plan(query)]
    for name, view in hidden.items():
        lines += [
            f"recursive {name.partition('$')[2]}",
            *_plan(view.query),
        ]
    return lines


def _plan(query: Node) -> list[str]:
    return tree(query, lambda n: n.describe(), lambda n: n.inputs, "  ")


def _network(views: dict[str, View]) -> list[str]:
    """Describe how views read streams, those that do."""
    lines = []
    for name, view in views.items():
        if any(map(is_stream_node, logical.walk(view.query))):
            cte = name.partition("$")[2]
            lines.append(f"stream plan of {cte}" if cte else "stream plan")
            lines += _plan(view.query)
    return lines


def _tables_under(top: Operator) -> list[str]:
    """Return the names of the tables an operator reads, directly or not."""
    found: dict[int, Operator] = {}
    stack = [top]
    while stack:
        op = stack.pop()
        if id(op) not in found:
            found[id(op)] = op
            stack.extend(op.inputs)
    return sorted(op.name for op in found.values() if isinstance(op, Scan))


def _with(names: list[str]) -> str:
    return f" with {', '.join(names)}" if names else ""


def tree(root: T, say: Callable[[T], str], children: Callable[[T], Iterable[T]], indent: str = "") -> list[str]:
    """Draw a tree as lines; what was shown already is only named. Further lines of a node stand under its first.

    >>> tree(("a", [("b", [])]), lambda n: n[0], lambda n: n[1])
    ['a', '└─ b']
    """
    seen: set[int] = set()

    def lines(node: T, head: str, rest: str) -> list[str]:
        under = list(children(node))
        first, *more = say(node).split("\n")
        if id(node) in seen and under:
            return [f"{head}{first} (shown above)"]
        seen.add(id(node))
        out = [f"{head}{first}", *(f"{rest}{'│  ' if under else '   '}{line}" for line in more)]
        for i, child in enumerate(under):
            last = i == len(under) - 1
            out += lines(child, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))
        return out

    return lines(root, indent, indent)


def describe_operator(op: Operator, size: OperatorStats, analyze: bool = False) -> str:
    """Describe an operator in one line: what it does, what it holds, and the relation kept of its output. Under it
    stands what it decided and, with `analyze`, what it has done since it was built."""
    out = op.describe()
    if size.rows or size.bytes:
        out += f"  [{size.rows:,} rows, {in_bytes(size.bytes)}]"
    if op.arranged is not None and not _is_table(op):
        indexes = "".join(f", index ({', '.join(f'#{c}' for c in cols)})" for cols in op.arranged.indexes)
        indexes += "".join(f", ordered ({', '.join(f'#{c}' for c in cols)})" for cols in op.arranged.ranges)
        out += f"  [kept: {size.kept_rows:,} rows, {in_bytes(size.kept_bytes)}{indexes}]"
    done = [_describe_work(size.work)] if analyze and size.work.runs else []
    return "\n".join([out, *done, *size.notes])


def _describe_work(work: OperatorWork) -> str:
    """Return what an operator has done, for people.

    >>> _describe_work(OperatorWork(1, 2000, 5, 0, 0.0123))
    'ran once: 2,000 rows in, 5 out, 12.3 ms'
    """
    times = "once" if work.runs == 1 else f"{work.runs:,} times"
    probes = f", {work.probes:,} probes" if work.probes else ""
    return f"ran {times}: {work.rows_in:,} rows in, {work.rows_out:,} out{probes}, {1000 * work.seconds:,.1f} ms"


def _is_table(op: Operator) -> bool:
    return getattr(op, "relation", None) is op.arranged


def state(coordinator: Coordinator) -> list[dict[str, Any]]:
    """Count rows and bytes of every table and operator; an operator that views share is listed once, under the
    first."""
    with coordinator.looking():
        return _state(coordinator)


def _state(coordinator: Coordinator) -> list[dict[str, Any]]:
    catalog = coordinator.catalog
    measure, out = catalog.backend.measure(), list[dict[str, Any]]()
    tables = [catalog.backend.operator(name) for name in catalog.flow.tables]
    for name, scan in zip(catalog.flow.tables, tables, strict=True):
        size = measure(scan)
        if is_beside(name) and not size.rows:
            continue
        beside = catalog.backend.lifetimes[name].nbytes if name in catalog.backend.lifetimes else 0
        kind = "owed" if is_owed(name) else "closed keys" if has_closed_keys(name) else "table"
        out.append({"relation": owner_of(name), "operator": kind, "rows": size.rows, "bytes": size.bytes + beside})
    seen: set[int] = {id(scan) for scan in tables}
    owner = {name: own for own, each in catalog.transient.items() for name in each.planned}
    for name in catalog.flow.views:
        stack = [catalog.backend.operator(name)]
        while stack:
            op = stack.pop()
            if id(op) in seen:
                continue
            seen.add(id(op))
            size = measure(op)
            rows, held = max(size.rows, size.kept_rows), size.bytes + size.kept_bytes
            what, relation = op.describe(), name
            if name in owner:  # whose text and name are none of anyone's business
                what, relation = without_name(what, owner[name]), SUBSCRIPTION
            out.append({"relation": relation, "operator": what, "rows": rows, "bytes": held})
            stack.extend(op.inputs)
    return out


def metrics(coordinator: Coordinator) -> dict[str, Any]:
    """Return counters since the database was opened."""
    coordinator.expiry.expire_due()
    with coordinator.looking():
        found = _counters(coordinator)
    return {**found, **coordinator.storage_metrics()}


def _counters(coordinator: Coordinator) -> dict[str, Any]:
    flow, lifetimes, sizes = (
        coordinator.catalog.flow,
        coordinator.catalog.backend.lifetimes,
        coordinator.catalog.backend.sizes(),
    )
    annotated = _annotated(flow.order)
    measure = coordinator.catalog.backend.measure() if annotated else None
    return {
        "epoch": coordinator.epoch,
        "epoch_seconds": coordinator.seconds,
        "rows_in": coordinator.rows_in,
        "rows_out": coordinator.rows_out,
        "rows_expired": coordinator.expired,
        "expiry_error": str(coordinator.expiry.error) if coordinator.expiry.error is not None else None,
        "silence_error": str(coordinator.silence.error) if coordinator.silence.error is not None else None,
        "tables": {name: sizes[name] for name in coordinator.program.tables if not is_internal(name)},
        "owed": {owner_of(name): sizes[name] for name in flow.tables if is_owed(name) and sizes[name]},
        "views": {name: sizes[name] for name in coordinator.reader.views()},
        "operators": len(flow.order),
        "state_bytes": flow.state_bytes + sum(life.nbytes for life in lifetimes.values()),
        "dictionary": coordinator.dictionary.words,
        "words_forgotten": coordinator.dictionary.holes,
        "adapt": coordinator.adaptation.metrics(),
        "provenance": {op.name: provenance(policy, measure(op)) for op, policy in annotated if measure},
        "held": coordinator.held.figures(),
        "lookups": coordinator.lookups.figures(),
    }


def describe(coordinator: Coordinator, name: str) -> pa.Table:
    """List a table or view's columns, one per row, and beside each the time-to-live and the promises if the table has
    some, and what is known of the final values if it is a view."""
    schema = coordinator.reader.schema(name)
    table = coordinator.program.tables.get(name)
    key = table.key if table is not None else ()
    columns = {
        "column": list(schema.names),
        "type": [str(t) for t in schema.types],
        "null": [c.nullable for c in schema.columns],
        "key": pa.array([i in key for i in range(len(schema))], pa.bool_()),
    }
    if table is not None and table.lifetime is not None:
        columns["ttl"] = [str(table.lifetime)] * len(schema)
    if table is not None and table.promises:
        columns["promises"] = [", ".join(table.promises.of_column(at)) for at in range(len(schema))]
    indexes = [index for index in coordinator.program.indexes.values() if index.relation == name]
    if indexes:
        columns["indexes"] = [", ".join(i.name for i in indexes if column in i.columns) for column in schema.names]
    if table is not None and table.source is not None:
        columns["source"] = [", ".join(table.source.urls)] * len(schema)
    kept = _retention(coordinator, name)
    if kept is not None:
        columns["retain"] = [kept] * len(schema)
    if table is None:
        columns["knows"] = list(coordinator.catalog.knowledge(name).text)
    return pa.table(columns)


def _kind(program: Program, name: str) -> str:
    table = program.tables.get(name)
    return "view" if table is None else "stream" if table.source is None else "source"


def _retention(coordinator: Coordinator, name: str) -> str | None:
    """Describe what is kept of a stream, or of a view that is one; None of what is none."""
    program, planned = coordinator.program, coordinator.catalog.planned
    if name in program.tables:
        kept = program.tables[name].stream
        return None if kept is None else kept.text
    stream = name in planned.views and isinstance(planned.views[name].query, streams.Retain)
    return retention_of(program.views[name]).text if stream else None


def listing(coordinator: Coordinator, what: str, name: str = "") -> pa.Table:
    """List what SHOW says: TABLES, STREAMS, SOURCES, VIEWS, INDEXES, FUNCTIONS and DEFINITION; of tables the
    time-to-live, if any has one, and of functions whether they are deterministic, if any is not."""
    program, text = coordinator.program, pa.string()
    if what == "functions":
        found: list[Any] = [*program.scalars.values(), *program.table_functions.values()]
        args = [f"({', '.join(map(str, f.args))})" for f in found]
        columns = [[f.name for f in found], args, [str(f.returns) for f in found]]
        table = pa.table([pa.array(c, text) for c in columns], names=["function", "arguments", "returns"])
        known = [not isinstance(f.function, Volatile) for f in found]
        return table if all(known) else table.append_column("deterministic", pa.array(known, pa.bool_()))
    if what == "streams":
        return _streams(coordinator)
    if what == "definition":
        relation = program.tables.get(name) or program.views.get(name)
        if relation is None or is_internal(name):
            raise CatalogError(f'there is no table or view "{name:.100}"')
        return pa.table({"statement": pa.array([relation.sql], text)})
    if what == "sources":
        from whence.runtime.sources.listing import list_sources  # loaded with the first source

        return list_sources(coordinator)
    if what == "indexes":
        found = list(program.indexes.values())
        columns = [[i.name for i in found], [i.relation for i in found], [", ".join(i.columns) for i in found]]
        return pa.table([pa.array(c, text) for c in columns], names=["index", "relation", "columns"])
    if what == "templates":
        views = [program.views[template_name(name)] for name in program.templates]
        sizes = [coordinator.reader.size(name) for name in program.templates]
        shown = [[*program.templates], [str(Schema(view.schema.columns[1:])) for view in views]]
        parameters = [", ".join(f":{name}" for name in program.tables[t].schema.names[1:]) for t in program.templates]
        arrays = [pa.array(shown[0], text), pa.array(sizes, pa.int64()), pa.array(parameters, text)]
        return pa.table(
            [*arrays, pa.array(shown[1], text)], names=["template", "subscriptions", "parameters", "columns"]
        )
    base = [name for name, table in program.tables.items() if table.stream is None and not is_internal(name)]
    names = base if what == "tables" else coordinator.reader.views()
    rows = pa.array([coordinator.reader.size(name) for name in names], pa.int64())
    schemas = pa.array([str(coordinator.reader.schema(name)) for name in names], text)
    columns, titles = [pa.array(names, text), rows, schemas], [what[:-1], "rows", "columns"]
    lives = [program.tables[name].lifetime for name in names] if what == "tables" else []
    if any(life is not None for life in lives):
        columns.append(pa.array([None if life is None else str(life) for life in lives], text))
        titles.append("ttl")
    return pa.table(columns, names=titles)


def _streams(coordinator: Coordinator) -> pa.Table:
    """Answer SHOW STREAMS: base streams and views that are streams, with the tids of the rows that are kept."""
    program, catalog = coordinator.program, coordinator.catalog
    names = [
        name
        for name in (*program.tables, *coordinator.reader.views())
        if _retention(coordinator, name) is not None and not is_internal(name)
    ]
    figures = catalog.backend.stream_figures() if names else {}
    came, kept = [figures[name]["rows"] for name in names], [figures[name]["kept"] for name in names]
    columns = {
        "stream": pa.array(names, pa.string()),
        "kind": pa.array([_kind(program, name) for name in names], pa.string()),
        "rows": pa.array(kept, pa.int64()),
        "first_tid": pa.array([n - k + 1 if k else None for n, k in zip(came, kept, strict=True)], pa.int64()),
        "last_tid": pa.array([n if k else None for n, k in zip(came, kept, strict=True)], pa.int64()),
        "retain": pa.array([_retention(coordinator, name) for name in names], pa.string()),
        "columns": pa.array([str(coordinator.reader.schema(name)) for name in names], pa.string()),
    }
    return pa.table(columns)
