"""Verbs that write: insert, delete, update, subscribe, transaction, execute, advance, flush.

A write is made ready before it comes to the queue: rows are read as values of their types, in another thread if they
are many. Whether the caller may write them is decided when it is carried out, by the rights of that epoch.

The law: a numbered write that cannot be made ready is submitted nevertheless, as one that fails, so that its number is
never taken for one that was done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from whence.io import operations, rejects
from whence.model.errors import DataError, ForbiddenError
from whence.model.types import Schema
from whence.runtime import statements
from whence.runtime.reading.handles import Result
from whence.runtime.subscriptions.templates import subscribe as insert_subscription
from whence.server.verbs.arguments import (
    AdvanceArguments,
    DeleteArguments,
    DeleteOperation,
    ExecuteArguments,
    FlushArguments,
    InsertArguments,
    InsertOperation,
    TemplateArguments,
    TransactionArguments,
    UpdateArguments,
    UpdateOperation,
    WriteArguments,
)
from whence.server.verbs.reading_verbs import answer_query, read_params
from whence.server.verbs.typed_values import csv_rows, typed_key, typed_mapping, typed_rows
from whence.server.verbs.verb_calls import CallAnswer, VerbCall
from whence.server.web.formats import read_arrow
from whence.server.writing.write_queue import Refusal, TableInsert, Write
from whence.sql import statements as st
from whence.sql.parameters import bind_parameters
from whence.sql.parse import parse

if TYPE_CHECKING:
    from whence.runtime.database import Database

log = logging.getLogger("whence.server")
_MANY = 200  # rows that are not made ready by the event loop
_BYTES = 40  # of a value that waits, about
_WRITES = (st.InsertRows, st.DeleteRows, st.UpdateRows)
_WHO = "who"
_READS = (st.Explain, st.Describe, st.Show)


@dataclass(frozen=True)
class PreparedWrite:
    """A write that is ready for the queue; `rows` and `size` are about how much it is."""

    write: Write
    tables: tuple[str, ...]
    rows: int = 1
    size: int = 0


async def insert(call: VerbCall, args: InsertArguments) -> CallAnswer:
    """Insert rows."""
    if args.on_error == "reject":
        await _ensure_rejects(call)
    many = args.rows is None or len(args.rows) > _MANY
    return await _write(call, args, lambda: _prepare_insert(call, args), many)


async def delete(call: VerbCall, args: DeleteArguments) -> CallAnswer:
    """Delete rows, by value, key or condition."""
    return await _write(call, args, lambda: _prepare_delete(call, args), len(args.rows or ()) > _MANY)


async def update(call: VerbCall, args: UpdateArguments) -> CallAnswer:
    """Set columns in the rows that match."""
    return await _write(call, args, lambda: _prepare_update(call, args))


async def subscribe(call: VerbCall, args: TemplateArguments) -> CallAnswer:
    """Insert a subscription to a template; return its id. A column `who` of its parameter table is the caller."""
    made: list[int] = []

    def prepare() -> PreparedWrite:
        name = args.template.lower()
        call.rights.check(call.who, name, "insert")
        coordinator = call.service.coordinator
        schema = coordinator.table_of(name).schema
        given = typed_mapping(args.parameters, schema)
        if _WHO in schema.names:
            given.setdefault(_WHO, call.who)

        def write(db: Database) -> int:
            made.append(insert_subscription(coordinator, name, given))
            return 1

        return PreparedWrite(write, (name,))

    answer = await _write(call, args, prepare)
    assert isinstance(answer.value, dict)
    return replace(answer, value={**answer.value, "id": made[-1] if made else None})


async def transaction(call: VerbCall, args: TransactionArguments) -> CallAnswer:
    """Do several writes in one epoch, or none."""

    def prepare() -> PreparedWrite:
        parts = [_prepare_operation(call, operation) for operation in args.operations]
        tables = tuple(dict.fromkeys(table for part in parts for table in part.tables))
        writes, rows = [part.write for part in parts], sum(part.rows for part in parts)
        call.service.limits.check("insert_rows", rows, f"a transaction of {rows:,} rows")
        return PreparedWrite(lambda db: sum(write(db) for write in writes), tables, rows, sum(p.size for p in parts))

    return await _write(call, args, prepare, many=True)


async def _write(
    call: VerbCall, args: WriteArguments, prepare: Callable[[], PreparedWrite], many: bool = False
) -> CallAnswer:
    service = call.service
    try:
        ready = await service.in_thread(prepare) if many else prepare()
        write = ready.write
        if not isinstance(write, TableInsert) or not call.rights.writes_freely(call.who, write.table):
            write = _guarded(call, ready)
    except Exception as error:
        if args.publisher is None:
            raise
        write, ready = Refusal(error), PreparedWrite(Refusal(error), ())
    outcome = await service.write(call, cast(Write, write), args, rows=max(ready.rows, 1), size=ready.size)
    return service.written(outcome)


def _guarded(call: VerbCall, ready: PreparedWrite) -> Write:
    """Return a write that is carried out by the rights that its caller has then."""
    rights, who = call.rights, call.who

    def write(db: Database) -> int:
        for table in ready.tables:
            rights.check(who, table, "insert")
        if all(rights.writes_freely(who, table) for table in ready.tables):
            return ready.write(db)
        return rights.guarded(who, ready.write)(db)

    return write


def _prepare_operation(call: VerbCall, args: InsertOperation | DeleteOperation | UpdateOperation) -> PreparedWrite:
    match args:
        case InsertOperation():
            return _prepare_insert(call, args)
        case DeleteOperation():
            return _prepare_delete(call, args)
        case UpdateOperation():
            return _prepare_update(call, args)


def _prepare_insert(call: VerbCall, args: InsertArguments | InsertOperation) -> PreparedWrite:
    name = args.table.lower()
    call.rights.check(call.who, name, "insert")
    schema = call.service.coordinator.table_of(name).written
    csv = args.csv if isinstance(args, InsertArguments) else None
    op = args.op if isinstance(args, InsertArguments) else None
    if sum(given is not None for given in (args.rows, args.arrow, csv)) != 1:
        raise DataError("insert takes one of rows, arrow and csv")
    data: Any
    if args.arrow is not None:
        data, size = read_arrow(args.arrow), len(args.arrow)
    else:
        schema = schema if op is None else operations.with_operation(schema, op, args.rows or [])
        if csv is not None:
            data, size = csv_rows(csv.encode(), schema, name), len(csv)
        else:
            data, size = typed_rows(args.rows or [], schema, args.columns, name), len(schema) * _BYTES
            size *= len(data)
    count = len(data)
    call.service.limits.check("insert_rows", count, f"an insert of {count:,} rows")
    options: dict[str, Any] = {"missing": args.missing}
    if isinstance(args, InsertArguments):
        options |= {"on_error": args.on_error, "op": op, "early": args.early}
    plain = options in ({"missing": args.missing}, {**options, "on_error": "fail", "op": None, "early": None})
    if plain and isinstance(data, list):
        return PreparedWrite(cast(Write, TableInsert(name, data, args.missing)), (name,), count, size)
    return PreparedWrite(lambda db: db.insert(name, data, **options), (name,), count, size)


async def _ensure_rejects(call: VerbCall) -> None:
    """Make the table of rejects, which a transaction cannot do."""
    coordinator = call.service.coordinator
    if rejects.TABLE in coordinator.program.tables:
        return

    def make(db: Database) -> int:
        if not call.rights.may(call.who, "*", "insert"):
            raise ForbiddenError(f'on_error "reject" writes to the table {rejects.TABLE}, which you may not')
        statements.ensure_rejects(coordinator)
        return 0

    await call.service.write(call, make, alone=True)


def _prepare_delete(call: VerbCall, args: DeleteArguments | DeleteOperation) -> PreparedWrite:
    name = args.table.lower()
    call.rights.check(call.who, name, "insert")
    table, params = call.service.coordinator.table_of(name), read_params(args.params)
    rows = None if args.rows is None else typed_rows(args.rows, table.schema, table=name)
    key, where = typed_key(args.key, table), _condition(call, name, args.where, table.schema, params)
    count = len(rows or ())
    call.service.limits.check("insert_rows", count, f"a deletion of {count:,} rows")

    def write(db: Database) -> int:
        return db.delete(name, rows, key=key, where=where, params=params, early=args.early)

    return PreparedWrite(write, (name,), count, count * len(table.schema) * _BYTES)


def _prepare_update(call: VerbCall, args: UpdateArguments | UpdateOperation) -> PreparedWrite:
    name = args.table.lower()
    call.rights.check(call.who, name, "insert")
    table, params = call.service.coordinator.table_of(name), read_params(args.params)
    values = typed_mapping(args.values, table.schema)
    where = _condition(call, name, args.where, table.schema, params)
    key = typed_key(args.key, table)
    return PreparedWrite(lambda db: db.update(name, values, where, key=key, params=params), (name,))


def _condition(call: VerbCall, table: str, where: Any, schema: Schema, params: Any) -> Any:
    if isinstance(where, str):
        call.rights.check_where(call.who, table, where, params)
    return typed_mapping(where, schema) if isinstance(where, dict) else where


# -- scripts ---------------------------------------------------------------------------------------------------------


async def execute(call: VerbCall, args: ExecuteArguments) -> CallAnswer:
    """Run a script, statement by statement; return the result of the last. One that is numbered is a single write."""
    service = call.service
    found = await service.in_thread(lambda: bind_parameters(parse(args.sql), read_params(args.params)))
    if args.publisher is not None:
        return await _numbered_script(call, args, found)
    answer = CallAnswer({"message": "nothing to do", "count": 0}, position=str(service.db.position))
    for group in statements.in_groups(found):
        call.check_wanted()
        answer = await _statement(call, group)
    return answer


async def _statement(call: VerbCall, group: list[st.Statement]) -> CallAnswer:
    service, [first, *_] = call.service, group
    if isinstance(first, st.Query):
        query = first.query
        return await service.in_question_thread(call, lambda: answer_query(call, query))
    if isinstance(first, _READS):
        return await service.in_question_thread(call, lambda: _look(call, first))
    if isinstance(first, _WRITES):
        outcome = await service.write(call, _statement_write(call, first))
        done = {st.InsertRows: "inserted", st.DeleteRows: "deleted", st.UpdateRows: "updated"}[type(first)]
        rows = f"{outcome.count:,} row{'s' * (outcome.count != 1)}"
        return service.written(outcome, message=f"{rows} {done}")

    results: list[Result] = []

    def define(db: Database) -> int:
        checked = [call.rights.check_statement(call.who, statement) for statement in group]
        results.append(statements.run_group(service.coordinator, checked, call.reach))
        return 0

    outcome = await service.write(call, define, alone=True)
    [result] = results
    log.info("%s: %s", call.who, result.message)
    return service.written(outcome, message=result.message, warnings=list(result.warnings))


def _look(call: VerbCall, statement: st.Statement) -> CallAnswer:
    """Answer EXPLAIN, DESCRIBE and SHOW."""
    coordinator = call.service.coordinator
    coordinator.refresh()
    epoch = coordinator.epoch
    checked = call.rights.check_statement(call.who, statement)
    result = statements.run_group(coordinator, [checked], None)
    return CallAnswer(table=result.to_arrow(), position=call.service.position_of(epoch))


def _statement_write(call: VerbCall, statement: st.Statement) -> Write:
    """Return what an INSERT, DELETE or UPDATE of a script does."""
    coordinator, rights = call.service.coordinator, call.rights

    def write(db: Database) -> int:
        checked = rights.check_statement(call.who, statement)
        with coordinator.transaction() as writes, rights.writing(call.who, writes):
            return statements.write_of(coordinator, checked)(writes)

    return write


async def _numbered_script(call: VerbCall, args: ExecuteArguments, found: Sequence[st.Statement]) -> CallAnswer:
    write: Write
    if all(isinstance(statement, _WRITES) for statement in found):
        writes = [_statement_write(call, statement) for statement in found]
        write = lambda db: sum(each(db) for each in writes)  # noqa: E731
    else:
        write = Refusal(DataError("only a script of INSERT, DELETE and UPDATE can have a number"))
    return call.service.written(await call.service.write(call, write, args))


# -- watermarks ------------------------------------------------------------------------------------------------------


async def advance(call: VerbCall, args: AdvanceArguments) -> CallAnswer:
    """Promise that no row of a stream with a smaller value follows."""
    streams = _names(args.stream)

    def write(db: Database) -> int:
        _check_streams(call, streams)
        value = args.value
        if args.on is not None and streams:
            schema = call.service.coordinator.table_of(streams[0]).schema
            value = typed_mapping({args.on: value}, schema)[args.on]
        db.advance(streams, value, on=args.on)
        return 0

    return call.service.written(await call.service.write(call, write, alone=True))


async def flush(call: VerbCall, args: FlushArguments) -> CallAnswer:
    """Close the windows of streams."""

    def write(db: Database) -> int:
        streams = db.streams if args.stream is None else _names(args.stream)
        _check_streams(call, streams)
        db.flush(streams)
        return 0

    return call.service.written(await call.service.write(call, write, alone=True))


def _names(given: str | list[str]) -> list[str]:
    return [name.lower() for name in ([given] if isinstance(given, str) else given)]


def _check_streams(call: VerbCall, names: Sequence[str]) -> None:
    """Raise an error unless the caller may write any row of some streams: a promise is about all of them."""
    for name in names:
        call.rights.check(call.who, name, "insert")
        if not call.rights.writes_freely(call.who, name):
            raise ForbiddenError(f'this is for those who may write all rows of "{name:.100}"')
