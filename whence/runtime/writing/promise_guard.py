"""Enforces the promises of a table (`plan/promises.py`) on rows that are to be written.

Law: rows are taken in their order; the first that breaks a promise, given those before it, is refused by a DataError
that names the relation, the row and the promise, and then none of them is written. NULL passes a CHECK. A stream's
horizon and closed keys are those of the last epoch and of what the same transaction has written before.

Cost: a CHECK is evaluated a column at a time; order is one comparison per row, and a key one lookup per distinct key.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from whence.engine.core.kernels.batches import number_rows
from whence.engine.expressions.evaluate import compile_expr
from whence.io.rows import to_tuples
from whence.model.codes import Codes, Dictionary, decode_value, format_value
from whence.model.errors import DataError, EvaluationError
from whence.plan.algebra.program import Table
from whence.plan.promises import Check, Closes, OrderedColumn

Bools = NDArray[np.bool_]
IsClosed = Callable[[Codes], Bools]
"""Which of some distinct keys are closed."""

_FALSE, _TRUE = 0, 1


class PromiseGuard:
    """The compiled promises of one table."""

    def __init__(self, table: Table, dictionary: Dictionary) -> None:
        self.table, self.dictionary = table, dictionary
        self._checks = [(check, compile_expr(check.predicate, dictionary)) for check in table.promises.checks]
        closes = table.promises.closes
        self._closing = compile_expr(closes.predicate, dictionary) if closes is not None else None

    # -- CHECK -------------------------------------------------------------------------------------------------------

    def check(self, rows: Codes, signs: Codes | None = None) -> None:
        """Raise DataError if a CHECK is false of a row; with `signs`, of one that is inserted."""
        given = rows if signs is None else rows[signs > 0]
        found = self._failing(given)
        if found is not None:
            at, check = found
            raise self._error(rows, at if signs is None else int(np.flatnonzero(signs > 0)[at]), check)

    def _failing(self, rows: Codes) -> tuple[int, Check] | None:
        """Return the first row of which a CHECK is false, and that CHECK."""
        first: tuple[int, Check] | None = None
        for check, compiled in self._checks:
            if not len(rows):
                break
            try:
                false = compiled(rows) == _FALSE
            except EvaluationError:
                at = self._unevaluated(rows, compiled)
                raise self._error(rows, at, check, "cannot be evaluated") from None
            if false.any():
                at = int(false.argmax())
                if first is None or at < first[0]:
                    first = at, check
                rows = rows[:at]  # only an earlier row matters now
        return first

    def _unevaluated(self, rows: Codes, compiled: Callable[[Codes], Codes]) -> int:
        """Return the first row on which an expression fails."""
        start, stop = 0, len(rows)
        while stop - start > 1:
            middle = (start + stop) // 2
            try:
                compiled(rows[start:middle])
                start = middle
            except EvaluationError:
                stop = middle
        return start

    # -- order and keys ----------------------------------------------------------------------------------------------

    def admit(self, rows: Codes, reached: int | None, is_closed: IsClosed) -> tuple[int | None, Codes | None]:
        """Check rows that are appended to a stream whose ordered column has `reached` a lowest code that may come;
        return that code after them, and the keys that they close."""
        found = self._failing(rows)
        broken: tuple[int, Check | OrderedColumn | Closes] | None = found
        some = rows if found is None else rows[: found[0]]
        ordered, closes = self.table.promises.ordered, self.table.promises.closes
        if ordered is not None and len(some):
            at = _first_late(some[:, ordered.column], reached, ordered.strictly)
            if at is not None:
                broken, some = (at, ordered), some[:at]
        closing: Codes | None = None
        if closes is not None and len(some):
            at, closing = self._follow_keys(some, closes, is_closed)
            if at is not None:
                broken = at, closes
        if broken is not None:
            at, promise = broken
            if isinstance(promise, OrderedColumn) and at:
                reached = promise.after(int(rows[at - 1, promise.column]))
            raise self._error(rows, at, promise, self._why(promise, reached))
        if ordered is not None and len(rows):
            reached = ordered.after(int(rows[-1, ordered.column]))
        return reached, closing

    def _follow_keys(self, rows: Codes, closes: Closes, is_closed: IsClosed) -> tuple[int | None, Codes | None]:
        """Return the first row whose key is closed, if any is, and the keys that rows close."""
        assert self._closing is not None
        try:
            ends = np.flatnonzero(self._closing(rows) == _TRUE)
        except EvaluationError:
            at = self._unevaluated(rows, self._closing)
            raise self._error(rows, at, closes, "its condition cannot be evaluated") from None
        if len(rows) == 1:
            key = np.ascontiguousarray(rows[:, closes.columns])
            return (0, None) if is_closed(key)[0] else (None, key if len(ends) else None)
        number, first = number_rows(np.ascontiguousarray(rows[:, closes.columns]))
        keys = np.ascontiguousarray(rows[first][:, closes.columns])
        last = np.full(len(first), len(rows), np.int64)  # of each key, the row after which it is closed
        if len(ends):
            np.minimum.at(last, number[ends], ends)
        last[is_closed(keys)] = -1
        late = np.flatnonzero(np.arange(len(rows)) > last[number])
        if len(late):
            return int(late[0]), None
        closing = (last >= 0) & (last < len(rows))
        return None, keys[closing] if closing.any() else None

    # -- errors ------------------------------------------------------------------------------------------------------

    def _why(self, promise: Check | OrderedColumn | Closes, reached: int | None) -> str:
        match promise:
            case OrderedColumn() if reached is not None:
                type = self.table.schema.types[promise.column]
                before = decode_value(reached - promise.strictly, type, self.dictionary)
                return f"{self.table.schema.names[promise.column]} has reached {format_value(before)}"
            case Closes():
                return "its key is closed"
        return ""

    def _error(self, rows: Codes, at: int, promise: Check | OrderedColumn | Closes, why: str = "") -> DataError:
        table, width = self.table, len(self.table.schema)
        row = to_tuples(rows[at : at + 1, :width], table.schema, self.dictionary)[0]
        kind = "table" if table.stream is None else "stream"
        return DataError(
            f"{kind} {table.name}, row {at + 1}: {format_value(row)} breaks the promise {promise}"
            + (f": {why}" if why else "")
        )


def _first_late(values: Codes, reached: int | None, strictly: bool) -> int | None:
    """Return the first row that comes too late: whose value is below `reached`, or below the one before it."""
    if reached is not None and values[0] < reached:
        return 0
    if len(values) == 1:
        return None
    late = values[1:] <= values[:-1] if strictly else values[1:] < values[:-1]
    return int(late.argmax()) + 1 if late.any() else None
