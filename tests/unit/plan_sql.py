"""A bound plan back as DuckDB SQL, over positions only: so DuckDB says whether a plan means what its text did."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from whence.model.codes import Interval
from whence.model.types import Type
from whence.plan.algebra.expressions import Call, Case, Cast, Col, Expr, Lit
from whence.plan.algebra.logical import (
    Aggregate,
    Distinct,
    Join,
    Node,
    Project,
    Ref,
    Scan,
    Select,
    SetOp,
    TopK,
    Union,
    Values,
)

_INFIX = {"+", "-", "*", "/", "//", "%", "=", "<>", "<", "<=", ">", ">=", "||", "like", "ilike", "and", "or"}


def literal(value: Any, type: Type) -> str:
    if value is None:
        return f"CAST(NULL AS {type})" if type.kind.value != "NULL" else "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, Interval):
        return f"(INTERVAL {value.months} MONTH + INTERVAL {value.days} DAY + INTERVAL {value.micros} MICROSECOND)"
    if isinstance(value, int) and type.is_integer and abs(value) < 2**31:
        return str(value) if value >= 0 else f"({value})"
    if isinstance(value, (int, Decimal, float)):
        return f"CAST('{value}' AS {type})"
    if isinstance(value, (dt.date, dt.datetime)):
        return f"CAST('{value}' AS {type})"
    return "'" + str(value).replace("'", "''") + "'"


def expression(expr: Expr, column: Any = None) -> str:
    """`column` gives the SQL of a column by its position."""
    name = column or (lambda i: f"c{i}")
    match expr:
        case Col():
            return name(expr.index)
        case Lit():
            return literal(expr.value, expr.type)
        case Cast():
            return f"{'TRY_' if expr.lenient else ''}CAST({expression(expr.arg, name)} AS {expr.type})"
        case Case():
            whens = " ".join(f"WHEN {expression(c, name)} THEN {expression(v, name)}" for c, v in expr.branches)
            return f"CASE {whens} ELSE {expression(expr.default, name)} END"
        case Call():
            args = [expression(a, name) for a in expr.args]
            if expr.op in _INFIX:
                return "(" + f" {expr.op} ".join(args) + ")"
            if expr.op == "neg":
                return f"(-{args[0]})"
            if expr.op == "not":
                return f"(NOT {args[0]})"
            if expr.op == "is_null":
                return f"({args[0]} IS NULL)"
            if expr.op in ("is_distinct", "is_not_distinct"):
                return f"({args[0]} IS {'NOT ' if 'not' in expr.op else ''}DISTINCT FROM {args[1]})"
            if expr.op == "in":
                return f"({args[0]} IN ({', '.join(args[1:])}))"
            if expr.op.startswith(("extract:", "date_trunc:", "date_diff:")):
                function, part = expr.op.split(":")
                function = "date_part" if function == "extract" else function
                return f"{function}('{part}', {', '.join(args)})"
            return f"{expr.op}({', '.join(args)})"
    raise AssertionError(expr)


def relation(node: Node) -> str:
    """A query with columns c0, c1, …; a relation of no columns has one constant column."""
    match node:
        case Scan(table=name) | Ref(view=name):
            inner = ", ".join(f'"{n}" AS c{i}' for i, n in enumerate(node.schema.names))
            return f"SELECT {inner} FROM {name}"
        case Values():
            if not node.rows:
                return f"SELECT {_shown([literal(None, t) for t in node.schema.types])} WHERE FALSE"
            rows = [_shown([literal(v, t) for v, t in zip(r, node.schema.types, strict=True)]) for r in node.rows]
            return " UNION ALL ".join(f"SELECT {row}" for row in rows)
        case Select():
            return f"SELECT * FROM ({relation(node.input)}) WHERE {expression(node.predicate)}"
        case Project():
            return f"SELECT {_shown([expression(e) for e in node.exprs])} FROM ({relation(node.input)})"
        case Join():
            return _join(node)
        case Union():
            return " UNION ALL ".join(f"(SELECT * FROM ({relation(b)}))" for b in node.branches)
        case Distinct():
            return f"SELECT DISTINCT * FROM ({relation(node.input)})"
        case SetOp():
            op = node.kind.upper() + (" ALL" if node.all else "")
            return f"(SELECT * FROM ({relation(node.left)})) {op} (SELECT * FROM ({relation(node.right)}))"
        case Aggregate():
            keys = [f"c{k}" for k in node.keys]
            aggs = [
                f"{a.function}({'DISTINCT ' if a.distinct else ''}{'*' if a.column is None else f'c{a.column}'})"
                for a in node.aggs
            ]
            group = f" GROUP BY {', '.join(keys)}" if keys else ""
            return f"SELECT {_shown(keys + aggs)} FROM ({relation(node.input)}){group}"
        case TopK():
            order = [
                f"c{o.column} {'DESC' if o.descending else 'ASC'} NULLS {'FIRST' if o.nulls_first else 'LAST'}"
                for o in node.order
            ]
            order += [f"c{i}" for i in range(len(node.schema)) if i not in {o.column for o in node.order}]
            limit = f" LIMIT {node.limit}" if node.limit is not None else ""
            return f"SELECT * FROM ({relation(node.input)}) ORDER BY {', '.join(order)}{limit} OFFSET {node.offset}"
    raise AssertionError(node)


def _shown(exprs: list[str]) -> str:
    return ", ".join(f"{e} AS c{i}" for i, e in enumerate(exprs)) if exprs else "0 AS none"


def _join(node: Join) -> str:
    width = len(node.left.schema)
    terms = [f"l.c{a} = r.c{b}" for a, b in node.keys]
    if node.residual is not None:
        terms.append(expression(node.residual, lambda i: f"l.c{i}" if i < width else f"r.c{i - width}"))
    on = " AND ".join(terms) or "TRUE"
    left, right = f"({relation(node.left)}) l", f"({relation(node.right)}) r"
    ours = [f"l.c{i}" for i in range(width)]
    exists = f"EXISTS (SELECT 1 FROM {right} WHERE {on})"
    if node.kind in ("semi", "anti"):
        return f"SELECT {_shown(ours)} FROM {left} WHERE {'NOT ' if node.kind == 'anti' else ''}{exists}"
    if node.kind == "mark":
        return f"SELECT {_shown([*ours, f'COALESCE({exists}, FALSE)'])} FROM {left}"
    theirs = [f"r.c{i}" for i in range(len(node.right.schema))]
    return f"SELECT {_shown(ours + theirs)} FROM {left} {node.kind.upper()} JOIN {right} ON {on}"
