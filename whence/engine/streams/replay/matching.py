"""Match the results of an instrumented copy with those that a view has published, to collect their tids.

Law: each result comes out again, with the same `$at`, the same hull of tids and, as far as they are compared, the same
values; one that does not is a ReplayError (`engine/streams/replay/published.py`). A copy that begins at a checkpoint
numbers its results on from there, and they are known by their tids (`Numbered`). One that begins cold knows them by
`$at` and intervals, and among equals by how many come after (`Keyed`): what it gives too much, of windows that it has
only in part, comes before. Cost: what comes out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whence.annotate.tracing import Tracer
from whence.engine.core.kernels.batches import number_rows
from whence.engine.streams.replay.published import first_difference, mismatch
from whence.engine.streams.replay.ragged import Ragged, concat_lists, empty, ranges
from whence.engine.streams.replay.replica import Sink
from whence.engine.streams.retain import Retain
from whence.model.codes import Codes
from whence.model.errors import ReplayError


@dataclass(frozen=True)
class Wanted:
    """Published results of a view whose tids are looked for: their own tids, which ascend, and the traced sources.

    `functions` are the Python functions that have a say in them, if any."""

    retain: Retain
    sources: tuple[str, ...]
    tids: Codes
    functions: tuple[str, ...] = ()

    @property
    def rows(self) -> Codes:
        return self.retain.kept.at(self.tids)

    def spans(self, source: str) -> Codes:
        """Return the interval of each result; only of a view that keeps them."""
        kept, tracer = self.retain.kept, self.retain.tracer
        if tracer is None:
            raise ReplayError(f"{self.retain.name} keeps no intervals")
        return tracer.spans(kept.ann[self.tids - kept.first], source)

    def error(self, place: int, what: str) -> ReplayError:
        return mismatch(self.retain.name, int(self.tids[place]), what, self.functions)

    def compare(self, places: slice, rows: Codes, floats: bool) -> None:
        """Raise ReplayError unless the replayed rows of some results are those that were published."""
        worst = first_difference(self.rows[places], rows, self.retain.schema.types, floats)
        if worst is not None:
            raise self.error((places.start or 0) + worst, "its values differ")


class Numbered:
    """The tids behind results that come out numbered as they were published."""

    def __init__(self, wanted: Wanted, tracer: Tracer) -> None:
        self.wanted, self.tracer = wanted, tracer
        traced = wanted.retain.tracer is not None
        self.spans = {source: wanted.spans(source) for source in wanted.sources} if traced else None
        self._which: list[Codes] = []
        self._tids: dict[str, list[Ragged]] = {source: [] for source in wanted.sources}

    def sink(self, first: int) -> Sink:
        """Return what takes results that are numbered from `first` on."""
        following = first

        def take(rows: Codes, ann: Codes) -> None:
            nonlocal following
            low, high = np.searchsorted(self.wanted.tids, (following, following + len(rows))).tolist()
            if high > low:
                mine = self.wanted.tids[low:high] - following
                self._add(low, high, rows[mine], ann[mine])
            following += len(rows)

        return take

    def _add(self, low: int, high: int, rows: Codes, ann: Codes) -> None:
        self.wanted.compare(slice(low, high), rows, floats=bool(self.wanted.functions))
        self._which.append(np.arange(low, high))
        for source, parts in self._tids.items():
            parts.append(Ragged(*self.tracer.tids(ann, source)))
            if self.spans is not None:
                differ = (self.spans[source][low:high] != self.tracer.spans(ann, source)).any(axis=1)
                if differ.any():
                    raise self.wanted.error(low + int(np.argmax(differ)), f"it came from other rows of {source}")

    def all(self) -> dict[str, Ragged]:
        """Return the tids of each result, by source; one that no tid is behind needed no replay."""
        which = np.concatenate(self._which) if self._which else np.empty(0, np.int64)
        there = np.full(len(self.wanted.tids), len(which), np.int64)
        there[which[::-1]] = np.arange(len(which))[::-1]
        lost = there == len(which)
        if self.spans is not None:
            lost &= np.any([s[:, 0] <= s[:, 1] for s in self.spans.values()], axis=0)
        if lost.any():
            raise self.wanted.error(int(np.argmax(lost)), "it did not come out")
        none = empty(1)
        return {source: concat_lists([*parts, none]).take(there) for source, parts in self._tids.items()}


class Keyed:
    """The tids behind results of copies that began cold, identified by `$at` and intervals."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted, kept = wanted, wanted.retain.kept
        # All results that came when one of these did: equal ones among them are told apart by their order.
        ats = wanted.rows[:, -1]
        self.ats = ats[np.concatenate(([True], ats[1:] != ats[:-1]))]
        here = _indices_of(kept.rows[:, -1], self.ats)
        all_then = Wanted(wanted.retain, wanted.sources, here + kept.first)
        spans = [all_then.spans(source) for source in wanted.sources]
        self.keys = np.concatenate([all_then.rows[:, -1:], *spans], axis=1)
        self.places = np.searchsorted(here, wanted.tids - kept.first)
        self._keys: list[Codes] = []
        self._rows: list[Codes] = []  # of a copy that has all columns
        self._tids: dict[str, list[Ragged]] = {source: [] for source in wanted.sources}

    def sink(self, tracer: Tracer) -> Sink:
        """Return what takes the results of a copy with this tracer."""

        def take(rows: Codes, ann: Codes) -> None:
            mine = _indices_of(rows[:, -1], self.ats)
            if not len(mine):
                return
            spans = [tracer.spans(ann[mine], source) for source in self.wanted.sources]
            self._keys.append(np.concatenate([rows[mine, -1:], *spans], axis=1))
            if self.wanted.functions:
                self._rows.append(rows[mine])
            for source, parts in self._tids.items():
                parts.append(Ragged(*tracer.tids(ann[mine], source)))

        return take

    def all(self) -> dict[str, Ragged]:
        """Return the tids of each result, by source, when everything has come."""
        came = np.concatenate([self.keys[:0], *self._keys])
        known = len(self.keys)
        number, _ = number_rows(np.ascontiguousarray(np.concatenate([self.keys, came])))
        theirs = np.stack([number[:known], _from_the_end(number[:known])], axis=1)[self.places]
        mine = np.stack([number[known:], _from_the_end(number[known:])], axis=1)
        both, _ = number_rows(np.ascontiguousarray(np.concatenate([mine, theirs])))
        place = np.full(int(both.max()) + 1, -1, np.int64)
        place[both[: len(mine)]] = np.arange(len(mine))
        at = place[both[len(mine) :]]
        if (at < 0).any():
            raise self.wanted.error(int(np.argmin(at)), "it did not come out")
        if self.wanted.functions:
            self.wanted.compare(slice(None), np.concatenate(self._rows)[at], floats=True)
        return {source: concat_lists(parts).take(at) for source, parts in self._tids.items()}


def _indices_of(values: Codes, some: Codes) -> Codes:
    """Return the indices of ascending values among others, which ascend.

    >>> _indices_of(np.array([1, 3, 3, 7]), np.array([3, 7, 9])).tolist()
    [1, 2, 3]
    """
    starts, ends = np.searchsorted(values, some, "left"), np.searchsorted(values, some, "right")
    return ranges(starts, ends - starts)


def _from_the_end(number: Codes) -> Codes:
    """Count the equal values after each.

    >>> _from_the_end(np.array([5, 7, 5, 5])).tolist()
    [2, 0, 1, 0]
    """
    order = np.argsort(number[::-1], kind="stable")
    sorted_ = number[::-1][order]
    new = np.concatenate(([True], sorted_[1:] != sorted_[:-1])) if len(sorted_) else np.empty(0, bool)
    starts = np.maximum.accumulate(np.where(new, np.arange(len(sorted_)), 0))
    found = np.empty(len(number), np.int64)
    found[order] = np.arange(len(sorted_)) - starts
    return found[::-1]
