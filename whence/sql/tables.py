"""The column definitions of CREATE TABLE, to a `Table`."""

from __future__ import annotations

from sqlglot import exp

from whence.model.types import Column, Schema
from whence.plan.algebra.program import Table
from whence.sql.ledger import refuse_others
from whence.sql.position import error
from whence.sql.types import type_of


def read_table(name: str, tree: exp.Expr, options: tuple[tuple[str, str], ...] = ()) -> Table:
    """Read the table that `CREATE TABLE name (…)` declares; only types, NULL, NOT NULL and PRIMARY KEY are
    understood."""
    schema = tree.this
    columns: list[Column] = []
    inline_key: list[str] = []
    table_key: list[exp.Expr] = []
    keyed = 0
    for item in schema.expressions:
        if isinstance(item, exp.Constraint) and len(item.expressions) == 1:
            item = item.expressions[0]
        if isinstance(item, exp.PrimaryKey):
            refuse_others(item, "expressions", "include")
            if item.args.get("include") is not None:
                refuse_others(item.args["include"])
            table_key, keyed = list(item.expressions), keyed + 1
            continue
        if not isinstance(item, exp.ColumnDef) or item.args.get("kind") is None:
            raise error("expected a column with its type, or PRIMARY KEY (…)", item)
        refuse_others(item, "this", "kind", "constraints")
        column = item.name.lower()
        if any(c.name == column for c in columns):
            raise error(f'column "{column}" is declared twice', item)
        nullable = True
        for constraint in item.args.get("constraints") or []:
            refuse_others(constraint, "kind")
            match constraint.args.get("kind"):
                case exp.PrimaryKeyColumnConstraint() as primary:
                    refuse_others(primary)
                    inline_key.append(column)
                    keyed, nullable = keyed + 1, False
                case exp.NotNullColumnConstraint() as not_null:
                    nullable = nullable and bool(not_null.args.get("allow_null"))
                case _:
                    raise error("only NOT NULL and PRIMARY KEY are supported on a column", item)
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
    return Table(name, Schema(tuple(columns)), tuple(key), options)
