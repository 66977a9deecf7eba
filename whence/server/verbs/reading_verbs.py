"""Verbs that read: read, query, describe, explain, catalog, metrics, owed, late, position.

The law: rows and the position that is told with them are of one epoch, and by the rights of that epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from whence.io import rows as rows_
from whence.model.budget import reach
from whence.model.errors import DataError, ForbiddenError
from whence.model.types import Schema
from whence.runtime.questions import explain as explaining
from whence.runtime.reading import late_rows
from whence.runtime.writing.conditions import check_condition
from whence.server.access.row_conditions import quoted
from whence.server.access.sight import quote_name
from whence.server.verbs.arguments import NamedArguments, NoArguments, QueryArguments, ReadArguments
from whence.server.verbs.typed_values import typed_mapping
from whence.server.verbs.verb_calls import CallAnswer, VerbCall
from whence.sql.parameters import bind_parameters
from whence.sql.parse import parse_query
from whence.subscribe.plain import column_from_plain, type_of

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator

_TRIES = 10  # for rows of one epoch


def read(call: VerbCall, args: ReadArguments) -> CallAnswer:
    """Return the rows of a table, stream or view that have some values."""
    coordinator, name = call.database(args.epoch)._coordinator, args.name.lower()
    past = None if args.epoch is None else coordinator
    coordinator.refresh()
    with coordinator.reading():  # nothing in here may wait for another lock
        sight, reader = call.rights.sight(call.who, past), coordinator.reader
        sight.check(name, "read")
        relation, epoch = reader.relation(name), coordinator.epoch
        where = typed_mapping(args.where, relation.schema)
        every, codes, table = sight.reach(name, "read").every, None, None
        if every and where:
            codes, known = reader.find(name, check_condition(where.items(), relation)), coordinator.dictionary.frozen()
        elif every:
            table = reader.arrow_contents(name)[1]
    if codes is not None:
        table = rows_.to_arrow(*codes, relation.schema, known)
    elif table is None:  # the condition of a right may be any query: it is answered as one
        table, epoch = _run(call, coordinator, _select(name, where, relation.schema), past)
    return _rows(call, coordinator, _chosen(table, args, relation.schema), epoch)


def _chosen(table: pa.Table, args: ReadArguments, schema: Schema) -> pa.Table:
    """Return the columns and as many rows as are asked for."""
    if args.columns is not None:
        names = [name if name in schema.names else name.lower() for name in args.columns]
        unknown = [name for name in names if name not in schema.names]
        if unknown:
            raise DataError(f"no column {', '.join(unknown):.200} in {schema}")
        table = table.select(names)
    return table if args.limit is None else table.slice(0, args.limit)


def _select(name: str, where: Mapping[str, Any], schema: Schema) -> exp.Expr:
    """Return the query for the rows of a relation that have some values."""
    terms, params = list[str](), list[Any]()
    for column, value in where.items():
        own = column if column in schema.names else column.lower()
        if own not in schema.names:
            raise DataError(f"no column {column!s:.80} in {schema}")
        if value is None:
            terms.append(f"{quoted(own)} IS NULL")
        elif isinstance(value, list):
            terms.append(f"{quoted(own)} IN ({', '.join('?' * len(value))})" if value else "FALSE")
            params += value
        else:
            terms.append(f"{quoted(own)} = ?")
            params.append(value)
    text = f"SELECT * FROM {quoted(name)}" + (f" WHERE {' AND '.join(terms)}" if terms else "")
    return _bound(text, params if params else None)


def query(call: VerbCall, args: QueryArguments) -> CallAnswer:
    """Answer a SELECT over what the caller may read."""
    return answer_query(call, _bound(args.sql, read_params(args.params)), args.epoch)


def answer_query(call: VerbCall, query: exp.Expr, epoch: int | None = None) -> CallAnswer:
    """Answer a query over what the caller may read, as of now or after an epoch."""
    coordinator = call.database(epoch)._coordinator
    coordinator.refresh()
    table, at = _run(call, coordinator, query, None if epoch is None else coordinator)
    return _rows(call, coordinator, table, at)


def _bound(sql: str, params: Any) -> exp.Expr:
    [statement] = bind_parameters([parse_query(sql)], params)
    found: exp.Expr = statement.query
    return found


def _run(call: VerbCall, coordinator: Coordinator, query: exp.Expr, past: Coordinator | None) -> tuple[pa.Table, int]:
    """Answer a query restricted to what the caller may read, and return the epoch that it is as of."""
    rights, runner = call.rights, call.service.query_runner
    with call.within():
        while True:
            version = rights.version
            asked = rights.restricted(call.who, query, past)
            epoch, table = coordinator.reader.query_at(asked, runner)
            if rights.version == version or rights.sight(call.who, past).is_whole:
                return table, epoch
            reach("asking again, since rights have changed")


def _rows(call: VerbCall, coordinator: Coordinator, table: pa.Table, epoch: int) -> CallAnswer:
    call.service.limits.check("result_rows", table.num_rows, f"an answer of {table.num_rows:,} rows")
    return CallAnswer(table=table, position=str(coordinator.lineage.at(epoch)))


def read_params(params: Any) -> Any:
    """Return values for parameters of SQL; one whose type JSON does not have is {"type": …, "value": …}.

    >>> read_params([7, {"type": "DATE", "value": "2026-11-17"}]), read_params(None)
    ([7, datetime.date(2026, 11, 17)], None)
    """
    if params is None:
        return None
    if isinstance(params, dict):
        return {name: _param(value) for name, value in params.items()}
    return [_param(value) for value in params]


def _param(value: Any) -> Any:
    if isinstance(value, list):
        return [_param(one) for one in value]
    if isinstance(value, dict) and value.keys() == {"type", "value"} and isinstance(value["type"], str):
        text = value["type"]
        type = type_of("DECIMAL(38,9)" if text == "DECIMAL" else text)  # its own digits count
        return column_from_plain([value["value"]], type)[0]
    return value


# -- what there is ---------------------------------------------------------------------------------------------------


def describe(call: VerbCall, args: NamedArguments) -> CallAnswer:
    """List the columns of a table or view."""
    coordinator, name = call.service.coordinator, args.name.lower()
    coordinator.refresh()
    call.rights.check(call.who, name, "read")
    with coordinator.looking():
        return _rows(call, coordinator, explaining.describe(coordinator, name), coordinator.epoch)


def explain(call: VerbCall, args: NamedArguments) -> CallAnswer:
    """Describe how a view runs."""
    coordinator, name = call.service.coordinator, args.name.lower()
    coordinator.refresh()
    call.rights.check_question(call.who, name)
    text = coordinator.reader.explain(name)
    return CallAnswer({"view": name}, text=text, position=call.service.position_of(coordinator.epoch))


def catalog(call: VerbCall, args: NoArguments) -> CallAnswer:
    """List what the caller may read, with columns and rights; and counts of what they may read all of."""
    coordinator = call.service.coordinator
    coordinator.refresh()
    with coordinator.reading():
        sight, held = call.rights.sight(call.who), call.rights.held(call.who)
        sizes = coordinator.catalog.backend.sizes()
        found = [
            {
                "name": name,
                "kind": _kind(coordinator, name),
                "columns": _columns(coordinator, name),
                "rows": sizes[name] if sight.reach(name, "read").every else None,
                "rights": held.get(name, {}),
            }
            for name in sight.names
        ]
        epoch = coordinator.epoch
    value = {"who": call.who, "define": sight.may_all("define"), "relations": found}
    return CallAnswer(value, position=str(coordinator.lineage.at(epoch)))


def _kind(coordinator: Coordinator, name: str) -> str:
    stream = coordinator.reader.is_stream(name)
    if name in coordinator.program.tables:
        return "stream" if stream else "table"
    return "stream view" if stream else "view"


def _columns(coordinator: Coordinator, name: str) -> list[dict[str, Any]]:
    schema, table = coordinator.reader.schema(name), coordinator.program.tables.get(name)
    key = () if table is None else table.key
    return [
        {"name": column.name, "type": str(column.type), "null": column.nullable, "key": place in key}
        for place, column in enumerate(schema.columns)
    ]


def metrics(call: VerbCall, args: NoArguments) -> CallAnswer:
    """Return the counters of the database."""
    if not call.service.sees_all(call.caller):
        raise ForbiddenError("metrics are for those who may read everything")
    return CallAnswer(call.service.db.metrics())


def owed(call: VerbCall, args: NamedArguments) -> CallAnswer:
    """Return the rows whose deletions came first."""
    coordinator, name = call.service.coordinator, args.name.lower()

    def look() -> pa.Table:
        sight = call.rights.sight(call.who)
        sight.check(name, "read")
        if not sight.reach(name, "read").every:
            raise ForbiddenError(f"owed is for those who may read all rows of {quote_name(name)}")
        return coordinator.reader.owed(name)

    return _at_one_epoch(call, look)


def late(call: VerbCall, args: NamedArguments) -> CallAnswer:
    """Return the rows that came too late for a view."""
    coordinator, name = call.service.coordinator, args.name.lower()

    def look() -> pa.Table:
        call.rights.check_question(call.who, name)
        return late_rows.late(coordinator, name).to_arrow()

    return _at_one_epoch(call, look)


def _at_one_epoch(call: VerbCall, look: Callable[[], pa.Table]) -> CallAnswer:
    """Return rows of one epoch, as far as there is a moment between two."""
    coordinator = call.service.coordinator
    coordinator.refresh()
    for _ in range(_TRIES):
        epoch = coordinator.epoch
        table = look()
        if coordinator.epoch == epoch:
            break
    return _rows(call, coordinator, table, epoch)


def position(call: VerbCall, args: NoArguments) -> CallAnswer:
    """Return the position of the last stable epoch."""
    return CallAnswer({}, position=str(call.service.db.position))
