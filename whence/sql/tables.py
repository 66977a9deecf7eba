"""The column definitions of CREATE TABLE, to a `Table`."""

from __future__ import annotations

from sqlglot import exp

from whence.model.types import TIMESTAMP, Column, Schema
from whence.plan.algebra.program import Table
from whence.plan.promises import Promises
from whence.sql.ledger import refuse_others
from whence.sql.position import error
from whence.sql.promises import read_check
from whence.sql.tick_time import is_tick_time
from whence.sql.types import type_of


def read_table(name: str, tree: exp.Expr, options: tuple[tuple[str, str], ...] = ()) -> Table:
    """Read the table that `CREATE TABLE name (…)` declares; types, NULL, NOT NULL, PRIMARY KEY, CHECK and
    DEFAULT tick_time() are understood."""
    schema = tree.this
    columns: list[Column] = []
    inline_key: list[str] = []
    table_key: list[exp.Expr] = []
    keyed = 0
    tick: int | None = None
    checks: list[tuple[exp.Expr, str]] = []
    for item in schema.expressions:
        label = ""
        if isinstance(item, exp.Constraint) and len(item.expressions) == 1:
            label, item = item.name.lower(), item.expressions[0]
        if isinstance(item, exp.CheckColumnConstraint):
            checks.append((item, label))
            continue
        if isinstance(item, exp.PrimaryKey):
            refuse_others(item, "expressions", "include")
            if item.args.get("include") is not None:
                refuse_others(item.args["include"])
            table_key, keyed = list(item.expressions), keyed + 1
            continue
        if not isinstance(item, exp.ColumnDef) or item.args.get("kind") is None:
            raise error("expected a column with its type, PRIMARY KEY (…) or CHECK (…)", item)
        refuse_others(item, "this", "kind", "constraints")
        column = item.name.lower()
        if any(c.name == column for c in columns):
            raise error(f'column "{column}" is declared twice', item)
        nullable = True
        for constraint in item.args.get("constraints") or []:
            refuse_others(constraint, "this", "kind")
            match constraint.args.get("kind"):
                case exp.CheckColumnConstraint() as check:
                    checks.append((check, constraint.name.lower()))
                case exp.PrimaryKeyColumnConstraint() as primary:
                    refuse_others(primary)
                    inline_key.append(column)
                    keyed, nullable = keyed + 1, False
                case exp.NotNullColumnConstraint() as not_null:
                    nullable = nullable and bool(not_null.args.get("allow_null"))
                case exp.DefaultColumnConstraint() as default:
                    refuse_others(default, "this")
                    _check_tick(item, default.this, tick)
                    tick, nullable = len(columns), False
                case _:
                    raise error("only NOT NULL, PRIMARY KEY and CHECK are supported on a column", item)
        columns.append(Column(column, type_of(item.args["kind"]), nullable))
    if keyed > 1:
        raise error("a table has one PRIMARY KEY; put its columns together in PRIMARY KEY (a, b)", schema)
    if not columns:
        raise error("a table needs at least one column", schema)
    names = [c.name for c in columns]
    key: list[int] = [names.index(c) for c in inline_key]
    for part in table_key:
        refuse_others(part, "this", "quoted")
        column = part.name.lower()
        if column not in names:
            raise error(f'PRIMARY KEY names the column "{column}", which the table does not have', part)
        if names.index(column) in key:
            raise error(f'PRIMARY KEY names "{column}" twice', part)
        key.append(names.index(column))
    for at in key:
        columns[at] = Column(columns[at].name, columns[at].type, nullable=False)
    if tick is not None and len(columns) == 1:
        raise error("a stream needs a column besides its tick_time()", schema)
    made = Schema(tuple(columns))
    promises = Promises(tuple(read_check(check, label, made, name, tick) for check, label in checks))
    return Table(name, made, tuple(key), options, tick=tick, promises=promises)


def _check_tick(column: exp.Expr, default: exp.Expr, before: int | None) -> None:
    """Raise an error unless a DEFAULT is `tick_time()`, of a TIMESTAMP, and the first of its table."""
    if not is_tick_time(default):
        raise error("the only DEFAULT is tick_time(), the time of the epoch that brings the row", column)
    if type_of(column.args["kind"]) != TIMESTAMP:
        raise error(f"tick_time() is a TIMESTAMP, and the column is {type_of(column.args['kind'])}", column)
    if before is not None:
        raise error("one column of a stream is tick_time(); a second one would always be equal to it", column)
