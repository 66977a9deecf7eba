"""A script, statement by statement. Each is carried out whole or not at all; consecutive CREATE VIEWs are one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from whence.io import rejects
from whence.io.rows import expand
from whence.model.errors import CatalogError, WhenceError
from whence.model.progress import Progress
from whence.plan.algebra.expressions import Expr
from whence.plan.algebra.logical import Node, Project, TopK
from whence.runtime.catalog import table_kind
from whence.runtime.definitions import differences
from whence.runtime.moved_views import note_moved
from whence.runtime.questions import explain as explaining
from whence.runtime.reading.adhoc import sort_order
from whence.runtime.reading.handles import Result
from whence.runtime.writing.row_selection import computed, selected
from whence.runtime.writing.stream_writes import StreamWriteSet
from whence.runtime.writing.transaction import Transaction
from whence.sql import statements as st
from whence.sql.bind import bind_assignments, bind_insert, bind_predicate
from whence.sql.parameters import Params, bind_parameters
from whence.sql.parse import parse

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator

log = logging.getLogger("whence")
Write = Callable[[Transaction], int]
_DONE = {st.InsertRows: "inserted", st.DeleteRows: "deleted", st.UpdateRows: "updated"}


def execute(
    coordinator: Coordinator, sql: str, params: Params | None = None, progress: Progress | None = None
) -> Iterator[Result]:
    """Carry out a script; yields the result of each statement when it is done (of each group of CREATE VIEWs)."""
    for group in in_groups(bind_parameters(parse(sql), params)):
        yield run_group(coordinator, group, progress)


def in_groups(found: list[st.Statement]) -> Iterator[list[st.Statement]]:
    """Yield the statements of a script as they are carried out: one by one, but consecutive CREATE VIEWs together."""
    views: list[st.Statement] = []
    for statement in found:
        if isinstance(statement, st.CreateView) and not isinstance(statement, st.CreateTemplate):
            views.append(statement)
            continue
        if views:
            yield views
            views = []
        yield [statement]
    if views:
        yield views


def run_group(coordinator: Coordinator, group: list[st.Statement], progress: Progress | None) -> Result:
    """Carry out one of the groups of a script."""
    match group[0]:
        case st.CreateTemplate() as template:
            made = coordinator.definitions.create_template(template, progress)
            return Result(message=f"template {template.template} {'created' if made else 'exists already'}")
        case st.CreateView():
            views = [s for s in group if isinstance(s, st.CreateView)]
            broker = coordinator.broker
            with broker.preparing_views(views) if broker is not None else nullcontext():
                names = coordinator.definitions.create_views(views, progress)
            coordinator.look_after_sources()
            what = f"view{'s' * (len(names) != 1)} {', '.join(names)} created" if names else "exists already"
            return _declared(coordinator, views, what if names else "")
        case st.CreateTable() as create:
            made = coordinator.definitions.create_table(create)
            named = f"{table_kind(create.table)} {create.table.name}"
            if create.table.source is not None:
                coordinator.look_after_sources()
            return _declared(coordinator, [create], f"{named} created" if made else "", f"{named} exists already")
        case st.CreateSource() as create_source:
            return _create_source(coordinator, create_source)
        case st.CreateIndex() as index:
            made = coordinator.definitions.create_index(index)
            return Result(message=f"index {index.name} {'created' if made else 'exists already'}")
        case st.Drop() as drop:
            if drop.moved_to is not None:
                coordinator.check_not_writing("DROP")
                note_moved(coordinator, drop.name, drop.moved_to)
            gone = coordinator.definitions.drop(drop.kind, drop.name, cascade=drop.cascade, if_exists=drop.if_exists)
            coordinator.look_after_sources()
            return Result(message=f"dropped {', '.join(gone)}" if gone else "nothing to drop")
        case st.InsertRows() | st.DeleteRows() | st.UpdateRows() as statement:
            write = write_of(coordinator, statement)
            with coordinator.transaction() as writes:
                count = write(writes)
            return _counted(count, _DONE[type(statement)])
        case st.Query() as query:
            return Result(coordinator.reader.query(query.query))
        case st.Explain(what=st.Query() as query, analyze=True):
            return _lines("plan", _explain_filled(coordinator, query))
        case st.Explain() as explain:
            return _lines("plan", coordinator.reader.explain(explain.what, explain.analyze))
        case st.Describe() as describe:
            return Result(explaining.describe(coordinator, describe.name))
        case st.Show() as show:
            return Result(explaining.listing(coordinator, show.what, show.name))
    raise WhenceError(f"{type(group[0]).__name__} statements are not supported")


def _explain_filled(coordinator: Coordinator, query: st.Query) -> str:
    """Fill a view of a query as a subscription has one, and say what its operators have done; it is dropped then."""
    coordinator.check_not_writing("EXPLAIN ANALYZE of a query")
    name = coordinator.definitions.create_transient(query.query)
    try:
        with coordinator.looking():
            return explaining.explain_transient(coordinator, name)
    finally:
        coordinator.definitions.drop_transient(name)


def _create_source(coordinator: Coordinator, create: st.CreateSource) -> Result:
    """Ask the servers of a source what it is, declare it, and wait a while for the rows that are there."""
    coordinator.check_can_have_sources()
    coordinator.check_not_writing("CREATE SOURCE")
    if create.name in coordinator.program.tables and create.if_not_exists:
        return Result(message=f"source {create.name} exists already")
    broker = coordinator.make_broker()
    made = coordinator.definitions.create_table(broker.complete(create))
    coordinator.look_after_sources()
    if made:
        broker.wait_until_caught_up(create.name)
    return Result(message=f"source {create.name} {'created' if made else 'exists already'}")


def _declared(
    coordinator: Coordinator,
    creates: Sequence[st.CreateTable | st.CreateView],
    made: str,
    there: str = "exists already",
) -> Result:
    """Say what was made; and where IF NOT EXISTS met another definition, warn."""
    warnings = tuple(differences(creates, coordinator.program))
    for warning in warnings:
        log.warning(warning)
    return Result(message="; ".join([made] * bool(made) + list(warnings)) or there, warnings=warnings)


def _counted(count: int, done: str) -> Result:
    return Result(message=f"{count:,} row{'s' * (count != 1)} {done}", count=count)


def _lines(column: str, text: str) -> Result:
    return Result(pa.table({column: text.splitlines()}), message=text)


def writes_of(coordinator: Coordinator, sql: str, params: Params | None = None) -> list[Write]:
    """The INSERT, DELETE and UPDATE statements of a script, each as what it does in a transaction."""
    return [write_of(coordinator, statement) for statement in bind_parameters(parse(sql), params)]


def write_of(coordinator: Coordinator, statement: st.Statement) -> Write:
    """Return what an INSERT, DELETE or UPDATE does in a transaction; it returns how many rows it wrote."""
    match statement:
        case st.InsertRows() as insert:
            return partial(_insert, coordinator, insert.table, bind_insert(insert, coordinator.program))
        case st.DeleteRows() as delete:
            return partial(
                _delete, coordinator, delete, bind_predicate(delete.where, delete.table, coordinator.program)
            )
        case st.UpdateRows() as update:
            predicate = bind_predicate(update.where, update.table, coordinator.program)
            return partial(_update, coordinator, update, predicate, bind_assignments(update, coordinator.program))
    raise WhenceError(f"what_if takes INSERT, DELETE and UPDATE, not {type(statement).__name__}")


def _insert(coordinator: Coordinator, table: str, plan: Node, writes: Transaction) -> int:
    pending, words = writes.table(table), coordinator.dictionary
    if isinstance(pending, StreamWriteSet) and isinstance(plan, Project) and isinstance(plan.input, TopK):
        rows, counts = coordinator.reader.evaluate(plan.input, writes=writes)  # a stream keeps the order of an ORDER BY
        order = sort_order(rows, plan.input, words)
        return pending.insert(expand(computed(rows[order], plan.exprs, words), counts[order]))
    return pending.insert(expand(*coordinator.reader.evaluate(plan, writes=writes)))


def _delete(coordinator: Coordinator, delete: st.DeleteRows, predicate: Expr, writes: Transaction) -> int:
    pending = writes.table(delete.table)
    return pending.remove(*selected(pending, predicate, coordinator))


def _update(
    coordinator: Coordinator, update: st.UpdateRows, predicate: Expr, exprs: tuple[Expr, ...], writes: Transaction
) -> int:
    pending = writes.table(update.table)
    rows, counts = selected(pending, predicate, coordinator)
    return pending.replace(rows, counts, computed(rows, exprs, coordinator.dictionary))


def ensure_rejects(coordinator: Coordinator) -> None:
    """Create the table of rejects, unless it is there; one with other columns is an error."""
    name, wanted = rejects.TABLE, str(rejects.SCHEMA)
    table = coordinator.program.tables.get(name)
    if table is None:
        for _ in execute(coordinator, f"CREATE TABLE {name} {wanted}"):
            pass
    elif str(table.schema) != wanted:
        raise CatalogError(f'on_error="reject" writes to a table {name} {wanted}, but there is one {table.schema}')
