"""Write bound plans and expressions back as SQL: what a broker asks of a source, and what EXPLAIN shows of it.

The law: binding the text over the same relations gives a plan with the same rows. What has no text here (functions of
users, windows of streams, networks) raises UnwritablePlanError, and whoever asks does without.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from whence.model.codes import Interval
from whence.model.errors import WhenceError
from whence.model.text import to_text
from whence.model.types import Kind, Type
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
from whence.plan.streams.model import Stream, StreamToRelation, has_at

_INFIX = {"+", "-", "*", "/", "//", "%", "=", "<>", "<", "<=", ">", ">=", "||", "like", "ilike", "and", "or"}
_WORDS = {"and": "AND", "or": "OR", "like": "LIKE", "ilike": "ILIKE"}
_AGGREGATES = {"count", "sum", "avg", "min", "max"}
ColumnText = Callable[[int], str]


class UnwritablePlanError(WhenceError):
    """A plan that SQL text cannot say."""


def quoted(name: str) -> str:
    """Return a name as SQL has it: in quotes unless it is plain.

    >>> quoted("seats"), quoted("Seats left")
    ('"seats"', '"Seats left"')
    """
    return '"' + name.replace('"', '""') + '"'


def literal_text(value: Any, type: Type) -> str:
    """Return a constant as SQL that has its type.

    >>> from whence.model.types import BIGINT, DATE, TEXT
    >>> literal_text("it's", TEXT), literal_text(7, BIGINT), literal_text(None, TEXT)
    ("'it''s'", '7', 'CAST(NULL AS TEXT)')
    """
    if value is None:
        return "NULL" if type.kind is Kind.NULL else f"CAST(NULL AS {type})"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int) and type.is_integer and abs(value) < 2**31:
        return str(value) if value >= 0 else f"({value})"
    if isinstance(value, (int, Decimal, float, dt.date, dt.datetime, Interval)):
        return f"CAST('{to_text(value, type)}' AS {type})"
    return "'" + str(value).replace("'", "''") + "'"


def expression_text(expr: Expr, column: ColumnText) -> str:
    """Return an expression as SQL; `column` gives the text of a column by its position.

    >>> from whence.model.types import BIGINT, BOOLEAN
    >>> expression_text(Call(BOOLEAN, ">", (Col(BIGINT, 1), Lit(BIGINT, 5))), lambda i: ["a", "b"][i])
    'b > 5'
    """
    text = _expression(expr, column)
    is_infix = isinstance(expr, Call) and text.startswith("(") and text.endswith(")")
    return text[1:-1] if is_infix else text


def _expression(expr: Expr, column: ColumnText) -> str:
    match expr:
        case Col():
            return column(expr.index)
        case Lit():
            return literal_text(expr.value, expr.type)
        case Cast():
            return f"{'TRY_' if expr.lenient else ''}CAST({_expression(expr.arg, column)} AS {expr.type})"
        case Case():
            whens = " ".join(f"WHEN {_expression(c, column)} THEN {_expression(v, column)}" for c, v in expr.branches)
            return f"CASE {whens} ELSE {_expression(expr.default, column)} END"
        case Call():
            return _call(expr, [_expression(arg, column) for arg in expr.args])
    raise UnwritablePlanError(f"{expr} has no text")


def _call(expr: Call, args: list[str]) -> str:
    op = expr.op
    if op in _INFIX:
        return "(" + f" {_WORDS.get(op, op)} ".join(args) + ")"
    match op:
        case "neg":
            return f"(- {args[0]})"
        case "not":
            return f"(NOT {args[0]})"
        case "is_null":
            return f"({args[0]} IS NULL)"
        case "is_distinct" | "is_not_distinct":
            return f"({args[0]} IS {'NOT ' if 'not' in op else ''}DISTINCT FROM {args[1]})"
        case "in":
            return f"({args[0]} IN ({', '.join(args[1:])}))"
    if ":" in op:
        function, part = op.split(":", 1)
        return f"{'date_part' if function == 'extract' else function}('{part}', {', '.join(args)})"
    return f"{op}({', '.join(args)})"


def plan_text(node: Node, names: Mapping[str, str] | None = None) -> str:
    """Return a plan as a SELECT whose columns have the plan's names; `names` has the SQL of relations by their names.

    >>> from whence.model.types import TEXT, Column, Schema
    >>> plan_text(Scan(Schema((Column("issue", TEXT),)), "buylist"))
    'SELECT "issue" FROM "buylist"'
    """
    return _select(node, names or {})


def _select(node: Node, called: Mapping[str, str], distinct: str = "") -> str:
    shown = node.schema.names[:-1] if has_at(node.schema) else node.schema.names
    match node:
        case Scan() | Ref() | Stream():
            return f"SELECT {distinct}{', '.join(map(quoted, shown))} FROM {_relation_name(node, called)}"
        case Project(input=Scan() | Ref() | Stream() as leaf):
            listed = _named(node.exprs[: len(shown)], shown, _names_of(leaf))
            return f"SELECT {distinct}{listed} FROM {_relation_name(leaf, called)}"
        case Project(input=Select(input=Scan() | Ref() | Stream() as leaf) as chosen):
            listed = _named(node.exprs[: len(shown)], shown, _names_of(leaf))
            where = expression_text(chosen.predicate, _names_of(leaf))
            return f"SELECT {distinct}{listed} FROM {_relation_name(leaf, called)} WHERE {where}"
        case Select(input=Scan() | Ref() | Stream() as leaf):
            where = expression_text(node.predicate, _names_of(leaf))
            named = ", ".join(map(quoted, shown))
            return f"SELECT {distinct}{named} FROM {_relation_name(leaf, called)} WHERE {where}"
        case Distinct() if node.schema.names == node.input.schema.names and not distinct:
            return _select(node.input, called, "DISTINCT ")
        case StreamToRelation():
            return _select(node.input, called, distinct)
    if len(set(shown)) < len(shown):
        raise UnwritablePlanError("two columns have one name")
    listed = ", ".join(f"c{i} AS {quoted(name)}" for i, name in enumerate(shown))
    return f"SELECT {distinct}{listed or '0 AS none'} FROM ({_relation(node, called)}) AS t"


def _names_of(leaf: Node) -> ColumnText:
    names = leaf.schema.names
    return lambda i: quoted(names[i])


def _named(exprs: tuple[Expr, ...], names: tuple[str, ...] | list[str], column: ColumnText) -> str:
    if not exprs:
        return "0 AS none"
    texts = [(expression_text(e, column), quoted(n)) for e, n in zip(exprs, names, strict=True)]
    return ", ".join(text if text == name else f"{text} AS {name}" for text, name in texts)


def _relation_name(node: Scan | Ref | Stream, called: Mapping[str, str]) -> str:
    (name,) = node.names
    return called.get(name, quoted(name))


def _position(index: int) -> str:
    return f"c{index}"


def _relation(node: Node, called: Mapping[str, str]) -> str:
    """Return a query with columns c0, c1, …; a relation of no columns has one constant column."""
    match node:
        case Scan() | Ref() | Stream():
            own = node.schema.names[:-1] if has_at(node.schema) else node.schema.names
            inner = _shown([quoted(name) for name in own])
            return f"SELECT {inner} FROM {_relation_name(node, called)}"
        case StreamToRelation():
            return _relation(node.input, called)
        case Values():
            return _values(node)
        case Select():
            under = _relation(node.input, called)
            return f"SELECT * FROM ({under}) AS t WHERE {_expression(node.predicate, _position)}"
        case Project():
            exprs = node.exprs[:-1] if has_at(node.schema) else node.exprs
            under = _relation(node.input, called)
            return f"SELECT {_shown([_expression(e, _position) for e in exprs])} FROM ({under}) AS t"
        case Join():
            return _join(node, called)
        case Union():
            return " UNION ALL ".join(f"(SELECT * FROM ({_relation(b, called)}) AS t)" for b in node.branches)
        case Distinct():
            return f"SELECT DISTINCT * FROM ({_relation(node.input, called)}) AS t"
        case SetOp():
            op = node.kind.upper() + (" ALL" if node.all else "")
            left, right = _relation(node.left, called), _relation(node.right, called)
            return f"(SELECT * FROM ({left}) AS t) {op} (SELECT * FROM ({right}) AS t)"
        case Aggregate():
            return _aggregate(node, called)
        case TopK():
            return _top(node, called)
    raise UnwritablePlanError(f"{node.describe()} has no text")


def _shown(exprs: list[str]) -> str:
    return ", ".join(f"{e} AS c{i}" for i, e in enumerate(exprs)) if exprs else "0 AS none"


def _values(node: Values) -> str:
    if not node.rows:
        return f"SELECT {_shown([literal_text(None, type) for type in node.schema.types])} WHERE FALSE"
    types = node.schema.types
    rows = [_shown([literal_text(v, type) for v, type in zip(row, types, strict=True)]) for row in node.rows]
    return " UNION ALL ".join(f"SELECT {row}" for row in rows)


def _aggregate(node: Aggregate, called: Mapping[str, str]) -> str:
    keys = [f"c{k}" for k in node.keys]
    aggs = []
    for agg in node.aggs:
        if agg.function not in _AGGREGATES:
            raise UnwritablePlanError(f"{agg.describe()} has no text")
        column = "*" if agg.column is None else f"c{agg.column}"
        aggs.append(f"{agg.function}({'DISTINCT ' if agg.distinct else ''}{column})")
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {_shown(keys + aggs)} FROM ({_relation(node.input, called)}) AS t{group}"


def _top(node: TopK, called: Mapping[str, str]) -> str:
    order = [
        f"c{o.column} {'DESC' if o.descending else 'ASC'} NULLS {'FIRST' if o.nulls_first else 'LAST'}"
        for o in node.order
    ]
    order += [f"c{i}" for i in range(len(node.schema)) if i not in {o.column for o in node.order}]
    limit = f" LIMIT {node.limit}" if node.limit is not None else ""
    offset = f" OFFSET {node.offset}" if node.offset else ""
    return f"SELECT * FROM ({_relation(node.input, called)}) AS t ORDER BY {', '.join(order)}{limit}{offset}"


def _join(node: Join, called: Mapping[str, str]) -> str:
    width = len(node.left.schema)
    terms = [f"l.c{a} = r.c{b}" for a, b in node.keys]
    if node.residual is not None:
        terms.append(_expression(node.residual, lambda i: f"l.c{i}" if i < width else f"r.c{i - width}"))
    on = " AND ".join(terms) or "TRUE"
    left, right = f"({_relation(node.left, called)}) AS l", f"({_relation(node.right, called)}) AS r"
    ours = [f"l.c{i}" for i in range(width)]
    exists = f"EXISTS (SELECT 1 FROM {right} WHERE {on})"
    if node.kind in ("semi", "anti"):
        return f"SELECT {_shown(ours)} FROM {left} WHERE {'NOT ' if node.kind == 'anti' else ''}{exists}"
    if node.kind == "mark":
        return f"SELECT {_shown([*ours, f'COALESCE({exists}, FALSE)'])} FROM {left}"
    theirs = [f"r.c{i}" for i in range(len(node.right.schema))]
    return f"SELECT {_shown(ours + theirs)} FROM {left} {node.kind.upper()} JOIN {right} ON {on}"
