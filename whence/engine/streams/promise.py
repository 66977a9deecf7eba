"""Promises (punctuations): that a stream brings nothing more below a value of a column, or nothing at all for now.

Law: a promise is an event of the streams, at an `$at` of its own: it closes the windows, releases the sorted rows, and
lets the rows leave `latest`, that the next row beyond it would, and changes nothing else. It reaches an operator if the
column that the operator goes by is, in all rows that come to it, a promised column of a base stream. A promise without
a bound, a flush, reaches an operator if all base streams below it are flushed; it closes every window that has rows,
and leaves `latest` alone. In partitions every one of them gets it in the first stage, and its operators in their own,
when all rows for them have come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from whence.engine.core.operator import Operator
from whence.engine.exchange.ship import LocalFilter, Ship
from whence.engine.relational.project import Project
from whence.engine.relational.select import Select
from whence.engine.streams.generate import DropProvenance, Generate
from whence.engine.streams.merge import Merge
from whence.engine.streams.replay.align import Align
from whence.engine.streams.retain import Retain
from whence.engine.streams.sort import BSort
from whence.engine.streams.stream_scan import StreamScan
from whence.engine.streams.windows.latest import Latest
from whence.engine.streams.windows.window import Window
from whence.plan.algebra.expressions import Col

_STREAM, _AT, _BOUND = "promise/", "promise:at", "promise:bound"


@dataclass(frozen=True)
class Promise:
    """A promise that no value of these columns, by stream, below the code `bound` is to come; None: all windows are to
    close."""

    columns: Mapping[str, int]
    bound: int | None
    at: int

    def marks(self) -> dict[str, int]:
        """Write the promise as marks of an epoch's record."""
        found = {f"{_STREAM}{name}": column for name, column in self.columns.items()}
        return {**found, _AT: self.at, **({} if self.bound is None else {_BOUND: self.bound})}


def promise_in(marks: Mapping[str, int]) -> Promise | None:
    """Read the promise that an epoch's marks hold.

    >>> promise_in(Promise({"s": 2}, None, 7).marks()), promise_in({"s": 2})
    (Promise(columns={'s': 2}, bound=None, at=7), None)
    """
    if _AT not in marks:
        return None
    columns = {name.removeprefix(_STREAM): at for name, at in marks.items() if name.startswith(_STREAM)}
    return Promise(columns, marks.get(_BOUND), marks[_AT])


def reaches(promise: Promise, op: Operator) -> bool:
    """Tell whether a promise concerns an operator: one that closes windows, sorts, or has what is in a window now."""
    column = op.span.on if isinstance(op, (Window, Latest)) else op.column if isinstance(op, BSort) else None
    if column is None:
        return False
    if promise.bound is not None:
        return _promised(op.inputs[0], column, promise)
    return not isinstance(op, Latest) and _flushed(op, promise)


def _flushed(op: Operator, promise: Promise) -> bool:
    if isinstance(op, StreamScan):
        return op.name in promise.columns
    return bool(op.inputs) and all(_flushed(i, promise) for i in op.inputs)


def _promised(op: Operator, column: int, promise: Promise) -> bool:
    match op:
        case StreamScan():
            return promise.columns.get(op.name) == column
        case Project():
            expr = op.exprs[column]
            return isinstance(expr, Col) and _promised(op.inputs[0], expr.index, promise)
        case Select() | Retain() | Generate() | DropProvenance() | Align() | BSort() | Ship() | LocalFilter():
            return _promised(op.inputs[0], column, promise)
        case Merge():
            return all(_promised(i, column, promise) for i in op.inputs)
    return False
