"""Closings: the epochs in which rows of a relation became final without changing.

The law: if a row that was told as of `since` is final as of `upto`, and did not change in between, then `next_change`
knows of an epoch up to `upto` by which that is so, once `advance(upto)` was called. What is told then is an update that
only moves horizons.

Cost: by the distinct values that decide, of the rows that change and of those that close (`subscribe/open_rows.py`).
Rows themselves are kept only if somebody wants them told (`keep_rows`).
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import numpy as np

from whence.engine.core.operator import Batch
from whence.io.rows import to_tuples
from whence.model.codes import Codes, Dictionary
from whence.model.types import Schema
from whence.runtime.subscriptions.horizons import RelationHorizons
from whence.subscribe.horizons import HorizonView
from whence.subscribe.open_rows import OpenRows, Values
from whence.subscribe.recent import RecentChanges
from whence.subscribe.relation_facts import RelationFacts

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator

KEPT = 4096
"""Epochs in which rows closed that are remembered."""

Row = tuple[Any, ...]


class Closings:
    """When rows of one followed relation close. It stands beside its recent changes, and is asked like them."""

    def __init__(
        self, coordinator: Coordinator, name: str, schema: Schema, facts: RelationFacts, horizons: RelationHorizons
    ) -> None:
        self._coordinator, self._name, self._schema, self._facts = coordinator, name, schema, facts
        self.horizons = horizons
        self._columns = list(facts.deciding)
        self._deciding = Schema(tuple(schema.columns[column] for column in facts.deciding))
        self._guard = threading.Lock()
        self._keep_rows = False
        self._open = OpenRows((), lambda values, row, at: False)
        self._at = -1  # the epoch that rows are as of; none are in before the first
        self._recent: RecentChanges | None = None
        self.start = 0
        self._epochs: list[int] = []
        self._closed: list[list[Row]] = []

    def fill(self, recent: RecentChanges, keep_rows: bool = False) -> None:
        """Begin with the rows of now; with `keep_rows` know them. It waits for epochs to end."""
        with self._guard:
            if self._recent is not None and (self._keep_rows or not keep_rows):
                return
            self._recent, self._keep_rows = recent, keep_rows
            self._refill()

    def _refill(self) -> None:
        coordinator, facts = self._coordinator, self._facts
        with coordinator.reading():
            rows, counts = coordinator.reader.contents(self._name)
            epoch, dictionary = coordinator.epoch, coordinator.dictionary.frozen()
        is_final = self._is_row_final if self._keep_rows else self._is_group_final
        self._open = OpenRows(facts.events, is_final)
        self._add(Batch(rows, counts), dictionary)
        self._at = epoch
        self.horizons.advance(epoch)
        self._open.advance(self.horizons.as_of(epoch))
        self.start = epoch
        self._epochs, self._closed = [], []

    @property
    def is_filled(self) -> bool:
        """Whether `fill` was called."""
        return self._recent is not None

    def takes_long(self, upto: int, most: int) -> bool:
        """Return whether `advance` may have to wait, or has more than so many rows to look at."""
        recent = self._recent
        if recent is None or upto <= self._at:
            return False
        return self.horizons.closes_keys or not recent.reaches(self._at) or recent.rows_between(self._at, upto) > most

    def advance(self, upto: int) -> None:
        """Find out what has closed up to an epoch."""
        recent = self._recent
        if recent is None:
            return
        told: set[Row] = set()
        with self._guard:
            if upto > self._at:
                dictionary = self._coordinator.dictionary.frozen()  # first: what is forgotten from now on is in it
                batch = recent.difference(self._at, upto)
                if batch is None:
                    self._refill()
                    self._note(upto, [])
                    return
                told = self._add(batch, dictionary)
                self._at = upto
            self.horizons.advance(upto)
            horizons = self.horizons.as_of(upto)
            if self._open.is_due(horizons):
                new = self._open.advance(horizons)
                if self._keep_rows:
                    new = [row for row in new if row not in told]
                if new:
                    self._note(upto, new if self._keep_rows else [])

    def is_due(self, upto: int) -> bool:
        """Return whether something may have closed up to an epoch. It does not wait: in doubt, it may."""
        if self._recent is None or not self._guard.acquire(blocking=False):
            return self._recent is not None
        try:
            return self.horizons.closes_keys or self._open.is_due(self.horizons.as_of(upto))
        finally:
            self._guard.release()

    def _note(self, epoch: int, rows: list[Row]) -> None:
        if self._epochs and self._epochs[-1] >= epoch:
            self._closed[-1] += rows
            return
        self._epochs.append(epoch)
        self._closed.append(rows)
        if len(self._epochs) > KEPT:
            gone = KEPT // 4
            self.start = self._epochs[gone - 1]
            del self._epochs[:gone], self._closed[:gone]

    def _add(self, batch: Batch, dictionary: Dictionary) -> set[Row]:
        """Add what has come and gone; return, if rows are kept, those that are told as having come."""
        if not len(batch.ann):
            return set()
        if self._keep_rows:
            rows = self._tuples(batch.rows, self._schema, dictionary)
            for sign in (1, -1):  # what comes first, so that a group which changes stays
                for row, count in zip(rows, batch.ann.tolist(), strict=True):
                    if count * sign > 0:
                        self._open.add(self._facts.decides(row), row, count)
            return self._told([(row, count > 0) for row, count in zip(rows, batch.ann.tolist(), strict=True)])
        if not self._columns:
            self._open.add((), None, int(batch.ann.sum()))
            return set()
        values, places = np.unique(batch.rows[:, self._columns], axis=0, return_inverse=True)
        counts = np.zeros(len(values), np.int64)
        np.add.at(counts, places.reshape(-1), batch.ann)
        changed = counts != 0
        decoded = self._tuples(values[changed], self._deciding, dictionary) if changed.any() else []
        for group, count in zip(decoded, counts[changed].tolist(), strict=True):
            self._open.add(group, None, count)
        return set()

    def _told(self, signed: list[tuple[Row, bool]]) -> set[Row]:
        """Return the rows that came, without those that only differ in columns which are not shown, and were not final
        before."""
        shown, before = self._facts.shown, self.horizons.as_of(self._at)
        if not self._facts.has_extras:
            return {row for row, came in signed if came}
        went = {row[:shown]: row for row, came in signed if not came}
        return {
            row
            for row, came in signed
            if came and (row[:shown] not in went or self._facts.evaluate(went[row[:shown]], before).is_final)
        }

    def _tuples(self, rows: Codes, schema: Schema, dictionary: Dictionary) -> list[Row]:
        try:
            return to_tuples(rows, schema, dictionary)
        except IndexError:  # a word came after others were forgotten, in between: it is in a newer dictionary
            return to_tuples(rows, schema, self._coordinator.dictionary.frozen())

    def _is_row_final(self, values: Values, row: Any, horizons: HorizonView) -> bool:
        return self._facts.evaluate(row, horizons).is_final

    def _is_group_final(self, values: Values, row: Any, horizons: HorizonView) -> bool:
        return self._facts.is_closed(values, horizons)

    # -- as recent changes are asked ---------------------------------------------------------------------------------

    def reaches(self, since: int) -> bool:
        """Return whether what closed since an epoch is known row by row, if that is needed."""
        return not self._keep_rows or since >= self.start

    def next_change(self, since: int, upto: int) -> int | None:
        """Return the first epoch after `since` and up to `upto` by which something has closed, if there is one."""
        with self._guard:
            if since < self.start <= upto:
                return self.start  # something may have
            at = bisect_right(self._epochs, since)
            return self._epochs[at] if at < len(self._epochs) and self._epochs[at] <= upto else None

    def rows_between(self, since: int, upto: int) -> list[Row]:
        """Return the rows that closed after `since` and up to `upto`, where they are kept."""
        with self._guard:
            first, last = bisect_right(self._epochs, since), bisect_right(self._epochs, upto)
            return [row for rows in self._closed[first:last] for row in rows]
