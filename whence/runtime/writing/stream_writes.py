"""A stream as a writer sees it: rows are appended, in the order of the calls, and nothing else can be done.

The law: rows of one transaction arrive in the order in which they were inserted, whatever streams they go to, and are
numbered (`$at`) in that order when the transaction ends; so what was forgotten on the way leaves no gap. No row is
looked at: rows are neither hashed nor compared, except in a stream that promises an order, or closes keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from whence.engine.core.operator import Batch
from whence.engine.streams.connection_point import ConnectionPoint
from whence.io.rows import check_not_null
from whence.model.codes import NULL, Codes
from whence.model.errors import DataError
from whence.plan.algebra.program import Table
from whence.plan.streams.model import AT
from whence.runtime.writing.promise_guard import PromiseGuard
from whence.runtime.writing.tables import Early, Unmatched, WriteSet

_NUMBERED = -1  # in place of a turn
_turns = count()


class StreamWriteSet:
    """What one transaction has written to one stream; it takes the place of a table's `Pending`."""

    def __init__(
        self,
        table: Table,
        committed: ConnectionPoint,
        last_at: int,
        now: int = 0,
        guard: PromiseGuard | None = None,
        reached: int | None = None,
    ) -> None:
        """`last_at` is when the last row arrived that any stream has, `now` what the writer sees as tick time, and
        `reached` the lowest code that may come in the ordered column, if there is one. Without a `guard` no promise is
        enforced."""
        self.table, self.last_at, self._now = table, last_at, now
        self._committed = committed
        self._guard = guard
        self._reached = [reached]  # at first, and after each part
        self.closed_keys: Callable[[], WriteSet] | None = None  # of the same transaction
        self._parts: list[tuple[int, Codes]] = []  # whose turn it was, and the rows with room for their `$at`

    # -- writing -----------------------------------------------------------------------------------------------------

    def insert(self, rows: Codes) -> int:
        """Append rows of the columns that are written; those with room for one more are taken as they are, unless the
        stream has a tick time."""
        table, width = self.table, len(self.table.schema)
        if table.tick is not None:
            rows = _with_tick(rows, table.tick, self._now)
        elif rows.shape[1] == width:
            rows = with_room(rows)
        if table.schema.required:
            check_not_null(rows[:, :width], table.schema, table.name)
        if len(rows):
            self._append(next(_turns), rows)
        return len(rows)

    def _append(self, turn: int, rows: Codes) -> None:
        if self._guard is not None:
            reached, closing = self._guard.admit(rows, self._reached[-1], self._are_closed)
            self._reached.append(reached)
            if closing is not None:
                self._closed().insert(closing)
        self._parts.append((turn, rows))

    def _closed(self) -> WriteSet:
        """The stream's closed keys, as the transaction sees them."""
        assert self.closed_keys is not None
        return self.closed_keys()

    def _are_closed(self, keys: Codes) -> NDArray[np.bool_]:
        closed: NDArray[np.bool_] = self._closed().counts(keys) > 0
        return closed

    def put_back(self, rows: Codes) -> int:
        """Append rows that have arrived before, with their `$at`s: those of an export."""
        at = rows[:, -1]
        if len(rows) and (at[0] <= max(self._committed.last_at, 0) or (np.diff(at) <= 0).any()):
            raise DataError(f"stream {self.table.name}: the numbers in {AT} do not rise")
        tick = self.table.tick
        if tick is not None and len(rows) and (rows[0, tick] == NULL or (np.diff(rows[:, tick]) < 0).any()):
            raise DataError(f"stream {self.table.name}: the times in {self.table.schema.names[tick]} fall")
        if len(rows):
            self._append(_NUMBERED, rows)
        return len(rows)

    def take(self, rows: Codes, signs: Codes, early: Early = "ignore") -> Unmatched:
        """Do what a source says, which must be to insert."""
        if (signs < 0).any():
            self.refuse("delete rows")
        self.insert(rows)
        return Unmatched()

    def delete(self, rows: Codes, early: Early = "ignore") -> NoReturn:
        self.refuse("delete rows")

    def remove(self, rows: Codes, counts: Codes) -> NoReturn:
        self.refuse("delete rows")

    def replace(self, old: Codes, counts: Codes, new: Codes) -> NoReturn:
        self.refuse("update rows")

    def refuse(self, what: str) -> NoReturn:
        raise DataError(
            f"{self.table.name} is a stream: cannot {what}; streams are append-only, rows leave as retain says"
        )

    # -- seeing ------------------------------------------------------------------------------------------------------

    def contents(self) -> tuple[Codes, Codes]:
        """The rows that are kept, and behind them those of this transaction, all with `$at`."""
        return self.everything()

    def everything(self, until: int | None = None) -> tuple[Codes, Codes]:
        """The rows that are kept, and behind them those of this transaction, up to a savepoint, all with `$at`."""
        at, parts = self.last_at, [self._committed.rows]
        for turn, rows in self._parts[:until]:
            parts.append(rows.copy())
            at = at if turn == _NUMBERED else _number(parts[-1], at)
        found = np.concatenate(parts)
        return found, np.ones(len(found), np.int64)

    def found(self, rows: Codes) -> NoReturn:
        self.refuse("look for rows")

    # -- ending ------------------------------------------------------------------------------------------------------

    def savepoint(self) -> int:
        """Return where the writes stand, for `rollback_to`."""
        return len(self._parts)

    def rollback_to(self, savepoint: int) -> None:
        """Forget the writes since a savepoint."""
        del self._parts[savepoint:]
        del self._reached[savepoint + 1 :]

    def written_since(self, savepoint: int) -> Batch:
        """Return the rows that were written since a savepoint, without `$at`."""
        rows = [np.ascontiguousarray(rows[:, :-1]) for _, rows in self._parts[savepoint:]]
        if not rows:
            return Batch.empty(len(self.table.schema))
        found = np.concatenate(rows)
        return Batch(found, np.ones(len(found), np.int64))

    @property
    def parts(self) -> list[tuple[int, Codes]]:
        return self._parts

    def batch(self) -> Batch:
        """All rows, which `number_all` must have numbered."""
        rows = [rows for _, rows in self._parts]
        if not rows:
            return Batch.empty(len(self.table.schema) + 1)
        all_rows = rows[0] if len(rows) == 1 else np.concatenate(rows)
        return Batch(all_rows, np.ones(len(all_rows), np.int64), True)

    delta = batch

    def refreshed(self, delta: Batch) -> Codes:
        """Rows that live anew: none, a stream has no time-to-live."""
        return delta.rows[:0]

    def set_ticks(self, now: int) -> None:
        """Fill the tick times of the rows that did not come with theirs."""
        tick = self.table.tick
        if tick is not None:
            for turn, rows in self._parts:
                if turn != _NUMBERED:
                    rows[:, tick] = now


def number_all(streams: Iterable[StreamWriteSet], now: int) -> None:
    """Give the rows of a transaction their `$at`s, and the time of their epoch."""
    streams = list(streams)
    at = streams[0].last_at if streams else 0
    for stream in streams:
        stream.set_ticks(now)
    for turn, rows in sorted((part for stream in streams for part in stream.parts), key=lambda part: part[0]):
        at = at if turn == _NUMBERED else _number(rows, at)


def _number(rows: Codes, at: int) -> int:
    rows[:, -1] = np.arange(at + 1, at + 1 + len(rows))
    return at + len(rows)


def _with_tick(rows: Codes, tick: int, now: int) -> Codes:
    """A copy with the time as one more column, and another behind the last."""
    out = np.empty((len(rows), rows.shape[1] + 2), np.int64)
    out[:, :tick], out[:, tick], out[:, tick + 1 : -1] = rows[:, :tick], now, rows[:, tick:]
    return out


def with_room(rows: Codes) -> Codes:
    """A copy with one more column."""
    out = np.empty((len(rows), rows.shape[1] + 1), np.int64)
    out[:, :-1] = rows
    return out
