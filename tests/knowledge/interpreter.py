"""A plain interpreter of plans, for enumerating what a relation can become: rows in, rows out, nothing incremental.

Expressions are the engine's own. `test_soundness.py` compares it with databases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from whence.engine.expressions.evaluate import compile_expr
from whence.model.codes import Dictionary, decode_value, encode_value
from whence.plan.algebra.expressions import Expr
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
from whence.plan.algebra.program import Program
from whence.plan.streams.model import Merge, Retain, Stream, StreamToRelation

Row = tuple[Any, ...]
WORDS = Dictionary()


@cache
def _compiled(expr: Expr) -> Any:
    return compile_expr(expr, WORDS)


@cache
def computed(expr: Expr, types: tuple[Any, ...], row: Row) -> Any:
    """The value of an expression of one row."""
    codes = np.array([[encode_value(v, t, WORDS) for v, t in zip(row, types, strict=True)]], np.int64).reshape(1, -1)
    return decode_value(int(_compiled(expr)(codes)[0]), expr.type, WORDS)


def rows_of(node: Node, program: Program, tables: Mapping[str, Sequence[Row]]) -> list[Row]:
    """The rows of a plan."""
    match node:
        case Stream():
            return [(*row, at) for at, row in enumerate(tables[node.stream])]
        case Scan():
            return list(tables[node.table])
        case Ref():
            return _view(node.view, program, tables)
        case Values():
            return list(node.rows)
        case StreamToRelation():
            return [row[:-1] for row in rows_of(node.input, program, tables)]
        case Retain():
            return rows_of(node.input, program, tables)
        case Merge() | Union():
            return [row for branch in node.branches for row in rows_of(branch, program, tables)]
        case Select():
            types = node.input.schema.types
            below = rows_of(node.input, program, tables)
            return [row for row in below if computed(node.predicate, types, row) is True]
        case Project():
            types = node.input.schema.types
            below = rows_of(node.input, program, tables)
            return [tuple(computed(e, types, row) for e in node.exprs) for row in below]
        case Distinct():
            return list(dict.fromkeys(rows_of(node.input, program, tables)))
        case SetOp():
            return _set_op(node, rows_of(node.left, program, tables), rows_of(node.right, program, tables))
        case Join():
            return _join(node, rows_of(node.left, program, tables), rows_of(node.right, program, tables))
        case Aggregate():
            return _aggregate(node, rows_of(node.input, program, tables))
        case TopK():
            below = sorted(rows_of(node.input, program, tables), key=lambda row: _order(node, row))
            return below[node.offset :][: node.limit]
    raise NotImplementedError(type(node).__name__)


def _view(name: str, program: Program, tables: Mapping[str, Sequence[Row]]) -> list[Row]:
    query = program.views[name].query
    if f"view {name}" not in tables:
        fixed: list[Row] = []
        known: dict[str, Sequence[Row]] = {**tables, f"view {name}": fixed}
        while True:  # naive iteration; most views do not read themselves, and are done in the second round
            found = rows_of(query, program, known)
            if Counter(found) == Counter(fixed):
                return found
            fixed = found
            known[f"view {name}"] = fixed
    return list(tables[f"view {name}"])


def _order(node: TopK, row: Row) -> tuple[Any, ...]:
    keys: list[Any] = []
    for order in node.order:
        value = row[order.column]
        missing = value is None
        keys.append((missing != order.nulls_first, 0 if missing else -value if order.descending else value))
    return (*keys, *((value is None, value) for value in row))


def _set_op(node: SetOp, left: list[Row], right: list[Row]) -> list[Row]:
    ours, theirs = Counter(left), Counter(right)
    if node.all:
        return list((ours - theirs if node.kind == "except" else ours & theirs).elements())
    return [row for row in ours if (row in theirs) == (node.kind == "intersect")]


def _join(node: Join, left: list[Row], right: list[Row]) -> list[Row]:
    types = (*node.left.schema.types, *node.right.schema.types)
    found: list[Row] = []
    partners: set[int] = set()
    for row in left:
        matches = [
            number
            for number, other in enumerate(right)
            if all(row[a] is not None and row[a] == other[b] for a, b in node.keys)
            and (node.residual is None or computed(node.residual, types, row + other) is True)
        ]
        partners |= set(matches)
        match node.kind:
            case "semi" | "anti":
                found += [row] if bool(matches) == (node.kind == "semi") else []
            case "mark":
                found.append((*row, bool(matches)))
            case _:
                found += [row + right[number] for number in matches]
                if not matches and node.kind in ("left", "full"):
                    found.append(row + (None,) * len(node.right.schema))
    if node.kind in ("right", "full"):
        alone = (other for number, other in enumerate(right) if number not in partners)
        found += [(None,) * len(node.left.schema) + other for other in alone]
    return found


def _aggregate(node: Aggregate, below: list[Row]) -> list[Row]:
    groups: dict[Row, list[Row]] = {} if node.keys else {(): []}
    for row in below:
        groups.setdefault(tuple(row[k] for k in node.keys), []).append(row)
    found = []
    for key, rows in groups.items():
        made: list[Any] = []
        for agg in node.aggs:
            values = [row[agg.column] for row in rows if agg.column is not None and row[agg.column] is not None]
            values = list(dict.fromkeys(values)) if agg.distinct else values
            match agg.function:
                case "count":
                    made.append(len(rows) if agg.column is None else len(values))
                case "min" | "max" | "sum":
                    function = {"min": min, "max": max, "sum": sum}[agg.function]
                    made.append(function(values) if values else None)
                case "avg":
                    made.append(sum(values) / len(values) if values else None)
                case _:
                    raise NotImplementedError(agg.function)
        found.append((*key, *made))
    return found
