"""CHECK, and the options `ordered` and `closes` of CREATE STREAM, to the promises of a table.

Conditions are bound over the columns of one row: they hold no subquery, no aggregate, and call built-in functions only,
for a table outlives the functions that a session registers. An error in the text of an option names the option's place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sqlglot import exp

from whence.model.errors import SqlError
from whence.model.types import Kind, Schema
from whence.plan.algebra.expressions import Expr, columns_of
from whence.plan.algebra.program import Program
from whence.plan.promises import Check, Closes, OrderedColumn
from whence.plan.rewrite.fold_constants import fold
from whence.sql.expressions import ExpressionBinder
from whence.sql.ledger import refuse_others
from whence.sql.position import did_you_mean, error, write_sql
from whence.sql.queries import QueryBinder, Session
from whence.sql.reader import Script, deep_stack
from whence.sql.scope import Scope, fields_of

_WHEN = re.compile(r"(?<![\w$])when(?![\w$])", re.IGNORECASE)


def read_check(node: exp.Expr, name: str, schema: Schema, table: str, tick: int | None = None) -> Check:
    """Bind a CHECK over the columns of its table; `tick` is filled when the transaction ends, too late for it."""
    refuse_others(node, "this")
    predicate = _condition(node.this, schema, table, "CHECK")
    if tick in columns_of(predicate):
        raise error("CHECK cannot read tick_time(): it is filled in when the transaction ends", node)
    return Check(predicate, write_sql(node.this), name)


def _condition(node: exp.Expr, schema: Schema, table: str, place: str) -> Expr:
    inside = node.find(exp.Query)
    if inside is not None:
        raise error(f"a subquery cannot stand in {place}, which is about one row", inside)
    queries = QueryBinder(Program(), Session())
    try:
        with deep_stack():
            found = ExpressionBinder(queries, Scope(fields_of(schema, table)), place).condition(node)
            queries.check_read(node)
    except RecursionError:
        raise error("the condition is nested too deeply", node) from None
    return fold(found)


def read_ordered(options: Mapping[str, str], schema: Schema, tick: int | None = None) -> OrderedColumn | None:
    """Read `ordered = 'column [strictly]'`; raise ValueError if it names no column that has an order. Unless another
    column is named, a stream is ordered by its tick time."""
    text = options.get("ordered")
    if text is None:
        return None if tick is None else OrderedColumn(tick, text=schema.names[tick])
    column, _, word = text.partition(" ")
    if word not in ("", "strictly"):
        raise ValueError(f"ordered is a column, or a column and the word strictly, not {text!r}")
    at = _column("ordered", column, schema)
    type = schema.types[at]
    if at == tick:
        raise ValueError(f'"{column}" is tick_time(), which is always ordered')
    if type.needs_dictionary or type.kind is Kind.BOOLEAN:
        raise ValueError(f'ordered must be a number, a DATE or a TIMESTAMP, and "{column}" is {type}')
    return OrderedColumn(at, bool(word), text)


def read_closes(options: Mapping[str, str], schema: Schema, stream: str, tick: int | None = None) -> Closes | None:
    """Read `closes = 'key, … when condition'`; raise ValueError if it cannot be read."""
    text = options.get("closes")
    if text is None:
        return None
    when = _WHEN.search(text)
    if when is None:
        raise ValueError(
            f'closes is one or more columns and when a row is the last of its key, such as "game when '
            f"kind = 'end'\", not {text!r}"
        )
    names = [name.strip().strip('"').lower() for name in text[: when.start()].split(",")]
    columns = tuple(_column("closes", name, schema) for name in names)
    if len(set(columns)) < len(columns):
        raise ValueError("closes names a column twice")
    try:
        source = Script(f"SELECT {text[when.end() :]}")
        tree = source.parse(source.tokens)
        only = tree.expressions[0] if isinstance(tree, exp.Select) and len(tree.expressions) == 1 else None
        others = any(tree.args.get(arg) for arg in tree.args if arg != "expressions")
        if only is None or isinstance(only, exp.Alias) or others:
            raise ValueError(f"closes: expected one condition after when, not {text[when.end() :].strip()!r}")
        predicate = _condition(only, schema, stream, "closes")
    except SqlError as failure:
        raise ValueError(f"closes: {failure.message}") from None
    if tick in {*columns, *columns_of(predicate)}:
        raise ValueError("closes cannot read tick_time(): it is filled in when the transaction ends")
    return Closes(columns, predicate, text)


def _column(option: str, name: str, schema: Schema) -> int:
    if name not in schema.names:
        hint = did_you_mean(name, schema.names)
        raise ValueError(f'{option} names "{name}", which the stream does not have{hint}')
    return schema.names.index(name)
