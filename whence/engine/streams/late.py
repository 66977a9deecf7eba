"""Warnings of the first rows that come too late for a view; all others are only counted
(`engine/streams/stream.py`)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from whence.engine.core.operator import Operator
from whence.engine.streams.sort import BSort
from whence.engine.streams.stream import Late, StreamOperator
from whence.engine.streams.windows.window import Window
from whence.model.codes import NULL, Dictionary, decode_value

log = logging.getLogger("whence")


def late_stores(op: Operator) -> list[Late]:
    """List where an operator keeps late rows, in the order of the inputs that can be late."""
    late = getattr(op, "late", None)
    return late if isinstance(late, list) else [late] if isinstance(late, Late) else []


def operators_of(view: Operator, views: Mapping[str, Operator]) -> Iterator[Operator]:
    """Yield the operators of a view, down to the streams and views that it reads."""
    others = {id(op) for op in views.values()}
    stack, seen = [view], set[int]()
    while stack:
        op = stack.pop()
        if id(op) not in seen:
            seen.add(id(op))
            yield op
            stack.extend(i for i in reversed(op.inputs) if id(i) not in others)


def warn_of_late_rows(views: Mapping[str, Operator], op: StreamOperator) -> None:
    """Warn if the first late rows of an operator came in the epoch that has just been committed."""
    for late, source in zip(late_stores(op), op.inputs, strict=False):
        if late.first is None or late.column is None:
            continue
        (value, newest), late.first = late.first, None
        name = next((name for name, view in views.items() if any(o is op for o in operators_of(view, views))), "?")
        column = source.schema.columns[late.column]
        shown, most = (decode_value(code, column.type, Dictionary()) for code in (value, newest))
        if value == NULL or value != value or newest == NULL:
            why = f"{column.name} = {shown} has no place in the order"
        else:
            why = f"{column.name} = {shown} is {most - shown} behind {most}"
        log.warning(
            "view %s: a row came too late (%s). %s SELECT * FROM late(%s) shows such rows; others are only counted",
            name, why, _advice(op, late.column, source), name,
        )  # fmt: skip


def _advice(op: Operator, column: int, source: Operator) -> str:
    on = source.schema.names[column]
    if isinstance(op, Window):
        return "Windows that have closed do not have it: give slide(…) a (larger) lateness => …."
    if isinstance(op, BSort):
        return "Greater ones had been given out: hold more rows back, with a larger slack or within."
    return f"It is in no window: sort the stream before, bsort(…, on => {on}, within => …)."
