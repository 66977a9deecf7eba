"""Replay: the tids behind results, by running an instrumented copy of their network over the rows that cover them.

A result that keeps covering intervals came out when the row with its `$at` came in, and of what came before the first
tid of its intervals nothing is in it. So it comes out again if the copy runs from there on, up to that `$at`, provided
that it begins in the right state (`engine/checkpoints.py`): empty, or at the last checkpoint before. Requests are put
together to **stretches**: what overlaps is run once, and between two stretches the copy forgets everything.

Law: the tids are those that eager lineage would have kept, and every result comes out as it was published; one that
does not is a ReplayError (`engine/published.py`), since a Python function is then not what it was declared to be. A
copy that begins at a checkpoint numbers its results on from there, and they are known by their tids; one that begins
cold knows them by `$at` and intervals, and among equals by how many come after: what it gives too much, of windows that
it has only in part, comes before. Cost: the rows of the stretches, and what is asked for.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import cast

import numpy as np

from whence.annotate.tracing import Tracer
from whence.engine.checkpoints import Checkpoint, starts_cold
from whence.engine.kernels.batches import number_rows
from whence.engine.published import first_difference, mismatch
from whence.errors import ExpiredError
from whence.explain.derive.build import ranges
from whence.explain.retrieve.bare import bare
from whence.explain.retrieve.chain import Chain
from whence.explain.retrieve.network import Copy, Sink, copied, sources_of
from whence.explain.retrieve.ragged import Ragged, empty, joined
from whence.explain.retrieve.site import Site
from whence.model.codes import Codes
from whence.plan.functions import functions_of
from whence.plan.logical import Node, walk
from whence.plan.stream_model import Stream

log = logging.getLogger("whence")
DENSE = 0.6  # stretches that are so much of all rows from the first to the last are run with the gaps between them


@dataclass
class Stretch:
    """Rows to run the copy over: from a checkpoint or the beginning until an arrival."""

    checkpoint: Checkpoint | None
    upto: int


@dataclass(frozen=True)
class Figures:
    """What a replay cost."""

    stretches: int
    rows: int


def replay(site: Site, view: str, wanted: Codes) -> tuple[dict[str, Ragged], Figures]:
    """The tids of each source behind the results of a view with these tids, which ascend."""
    sources = sources_of(site, view)
    if not len(wanted):
        return {source: empty(0) for source in sources}, Figures(0, 0)
    retain = site.retain(view)
    if retain.tracer is not None and starts_cold(retain.inputs[0]):
        found, figures = _replayed_cold(site, view, wanted, retain.tracer)
    else:
        found, figures = _replayed(site, view, wanted)
    log.debug(
        "replayed %d rows in %d stretches for %d results of %s", figures.rows, figures.stretches, len(wanted), view
    )
    return found, figures


def calls(query: Node) -> tuple[str, ...]:
    """Return the names of the Python functions that a query calls."""
    return tuple(sorted({name for name, _ in functions_of(query)}))


def _replayed(site: Site, view: str, wanted: Codes) -> tuple[dict[str, Ragged], Figures]:
    """From checkpoints, or of a view that keeps nothing from the beginning."""
    query = copied(view, site, sources_of(site, view))
    copy, retain = Copy(site, view, query), site.retain(view)
    results = retain.kept.at(wanted)
    found = _Found(site, view, copy.tracer, wanted, calls(query))
    stretches = _from_checkpoints(site, copy, wanted) if retain.tracer is not None else [_everything(copy, results)]
    rows = 0
    for stretch in stretches:
        if retain.checkpoints is not None and stretch.checkpoint is not None:
            nexts, first = copy.resume(retain.checkpoints, stretch.checkpoint), stretch.checkpoint.result
        else:
            nexts, first = dict.fromkeys(copy.names(), 1), 1
            copy.start(nexts)
        before = sum(nexts.values())
        copy.feed(nexts, stretch.upto, found.numbered(first))
        rows += sum(nexts.values()) - before
    return found.all(), Figures(len(stretches), rows)


def _replayed_cold(site: Site, view: str, wanted: Codes, tracer: Tracer) -> tuple[dict[str, Ragged], Figures]:
    """From the first tid of each interval until the result came out; what overlaps as one."""
    sources = sources_of(site, view)
    query = copied(view, site, sources)
    short = bare(query)
    functions = calls(short)
    query = query if functions else short  # what decides on tids is compared with what was published, as a whole
    (name,) = (node.stream for node in walk(query) if isinstance(node, Stream))
    kept, fed = site.kept(view), site.kept(name)
    results, ann = kept.at(wanted), kept.ann[wanted - kept.first]
    firsts = tracer.spans(ann, name)[:, 0]
    _check_kept(site, view, name, int(firsts.min()))
    order = np.lexsort((results[:, -1], firsts))
    begun = fed.at(firsts[order])[:, -1]  # arrivals
    until = np.maximum.accumulate(results[order, -1])
    starts = np.flatnonzero(np.concatenate(([True], begun[1:] > until[:-1])))
    last = until[np.concatenate((starts[1:], [len(order)])) - 1]
    begins, ends = firsts[order[starts]], np.searchsorted(fed.rows[:, -1], last, "right") + fed.first
    if int((ends - begins).sum()) > DENSE * int(ends[-1] - begins[0]):
        # To run the gaps as well is cheaper than to keep so many apart, and as right: nothing is forgotten.
        copy = Copy(site, view, query)
        keys, nexts = _Keys(site, view, copy.tracer, wanted, functions), {name: int(begins[0])}
        copy.start(nexts)
        copy.feed(nexts, int(last[-1]), keys.take)
        return keys.all(), Figures(1, int(ends[-1] - begins[0]))
    chain = Chain(site, query)
    keys = _Keys(site, view, chain.tracer, wanted, functions)
    rows = chain.run(begins, ends, keys.take)
    return keys.all(), Figures(len(starts), rows)


class _Found:
    """The tids of each source behind requests, as they come, numbered as they were published."""

    def __init__(self, site: Site, view: str, tracer: Tracer, wanted: Codes, functions: tuple[str, ...]) -> None:
        self.view, self.tracer, self.wanted, self.functions = view, tracer, wanted, functions
        self.types = site.retain(view).schema.types
        kept, theirs = site.kept(view), site.retain(view).tracer
        self.published = kept.at(wanted)
        ann, sources = kept.ann[wanted - kept.first], sources_of(site, view)
        self.spans = None if theirs is None else {source: theirs.spans(ann, source) for source in sources}
        self._which: list[Codes] = []
        self._tids: dict[str, list[Ragged]] = {source: [] for source in sources}

    def add(self, low: int, high: int, rows: Codes, ann: Codes) -> None:
        """Take what was found for the requests from `low` to `high`, and compare it with what was published."""
        worst = first_difference(self.published[low:high], rows, self.types, bool(self.functions))
        if worst is not None:
            raise mismatch(self.view, int(self.wanted[low + worst]), "its values differ", self.functions)
        self._which.append(np.arange(low, high))
        for source, parts in self._tids.items():
            parts.append(Ragged(*self.tracer.tids(ann, source)))
            if self.spans is not None:
                differ = (self.spans[source][low:high] != self.tracer.spans(ann, source)).any(axis=1)
                if differ.any():
                    tid = int(self.wanted[low + np.argmax(differ)])
                    raise mismatch(self.view, tid, f"it came from other rows of {source}", self.functions)

    def numbered(self, first: int) -> Sink:
        """Takes results that are numbered from `first` on; those are requests that are among the wanted."""
        following = first

        def take(rows: Codes, ann: Codes) -> None:
            nonlocal following
            low, high = np.searchsorted(self.wanted, (following, following + len(rows))).tolist()
            if high > low:
                mine = self.wanted[low:high] - following
                self.add(low, high, rows[mine], ann[mine])
            following += len(rows)

        return take

    def all(self) -> dict[str, Ragged]:
        """Return everything; a request that no tid is behind needed no replay."""
        which = np.concatenate(self._which) if self._which else np.empty(0, np.int64)
        there = np.full(len(self.wanted), len(which), np.int64)
        there[which[::-1]] = np.arange(len(which))[::-1]
        lost = there == len(which)
        if self.spans is not None:
            lost &= np.any([s[:, 0] <= s[:, 1] for s in self.spans.values()], axis=0)
        if lost.any():
            raise mismatch(self.view, int(self.wanted[np.argmax(lost)]), "it did not come out", self.functions)
        none = empty(1)
        return {source: joined([*parts, none]).take(there) for source, parts in self._tids.items()}


# -- which rows ------------------------------------------------------------------------------------------------------


def _everything(copy: Copy, results: Codes) -> Stretch:
    """All there ever was: of a view that keeps no provenance."""
    for name in copy.names():
        kept = copy.site.kept(name)
        if not kept.complete:
            raise ExpiredError(
                f"{copy.view} keeps no provenance, and {name} no longer all its rows to find it from (retain = "
                f"'{kept.retention.text}'); {copy.site.recreated(copy.view, 'lineage', 'covering')}"
            )
    return Stretch(None, int(results[:, -1].max()))


def _from_checkpoints(site: Site, copy: Copy, wanted: Codes) -> list[Stretch]:
    """From the last checkpoint before each interval."""
    retain = site.retain(copy.view)
    checkpoints, tracer, kept = retain.checkpoints, retain.tracer, retain.kept
    assert checkpoints is not None
    assert tracer is not None
    results, ann = kept.at(wanted), kept.ann[wanted - kept.first]
    spans = np.stack([tracer.spans(ann, source) for source in copy.sources], axis=1)  # [results, sources, 2]
    names = [op.source for op in checkpoints.generators]
    there = np.array([c.nexts for c in checkpoints.kept], np.int64).reshape(-1, len(names))
    # The first of each source that is needed: where a result has nothing of it, anything will do.
    needed = np.full((len(results), len(names)), np.iinfo(np.int64).max)
    for place, source in enumerate(copy.sources):
        has = spans[:, place, 0] <= spans[:, place, 1]
        for column, name in enumerate(names):
            if name == source:
                needed[has, column] = spans[has, place, 0]
    some = np.flatnonzero((needed < np.iinfo(np.int64).max).any(axis=1))
    before = np.full(len(results), len(there), np.int64)
    for column in range(len(names)):
        before = np.minimum(before, np.searchsorted(there[:, column], needed[:, column], "right"))
    starts = before - 1
    if len(some) and starts[some].min() < 0:
        worst = some[np.argmin(needed[some].min(axis=1))]
        column = int(np.argmin(needed[worst]))
        _check_kept(site, copy.view, names[column] or "?", int(needed[worst, column]))
        raise ExpiredError(
            f"{copy.view} cannot be replayed from so far back: its streams no longer keep all rows since the last "
            f"checkpoint before; ask for later results, or {site.recreated(copy.view, 'lineage')}"
        )
    stretches: list[Stretch] = []
    order = some[np.lexsort((results[some, -1], starts[some]))]
    for request in order.tolist():
        start, upto = int(starts[request]), int(results[request, -1])
        checkpoint = checkpoints.kept[start]
        if not stretches or checkpoint.at > stretches[-1].upto:
            stretches.append(Stretch(checkpoint, upto))
        stretches[-1].upto = max(stretches[-1].upto, upto)
    return stretches


def _check_kept(site: Site, view: str, name: str, first: int) -> None:
    kept = site.kept(name)
    if first < kept.first:
        raise ExpiredError(
            f"{name} no longer keeps tid {first:,}, where the inputs of a result of {view} begin: its first is "
            f"{kept.first:,} (retain = '{kept.retention.text}'); ask for later results; a longer retain is said when "
            f"{name} is created"
        )


# -- which result ----------------------------------------------------------------------------------------------------


class _Keys:
    """Results of a copy that began cold, known by `$at` and intervals, and among equals from the last on."""

    def __init__(self, site: Site, view: str, mine: Tracer, wanted: Codes, functions: tuple[str, ...]) -> None:
        retain, self.view, self.wanted, self.functions = site.retain(view), view, wanted, functions
        kept, theirs, sources = retain.kept, cast(Tracer, retain.tracer), sources_of(site, view)
        self.tracer, self.sources = mine, sources
        self.types, self.published = retain.schema.types, kept.at(wanted)
        # All results that came when one of these did: equal ones among them are told apart by their order.
        ats = kept.at(wanted)[:, -1]
        self.ats = ats[np.concatenate(([True], ats[1:] != ats[:-1]))]
        here = _among(kept.rows[:, -1], self.ats)
        self.keys = self._keyed(theirs, kept.rows[here], kept.ann[here])
        self.places = np.searchsorted(here, wanted - kept.first)
        self._rows: list[Codes] = []
        self._values: list[Codes] = []  # of a copy that has all columns
        self._tids: dict[str, list[Ragged]] = {source: [] for source in sources}

    def _keyed(self, tracer: Tracer, rows: Codes, ann: Codes) -> Codes:
        return np.concatenate([rows[:, -1:], *(tracer.spans(ann, source) for source in self.sources)], axis=1)

    def take(self, rows: Codes, ann: Codes) -> None:
        """A Sink."""
        mine = _among(rows[:, -1], self.ats)
        if len(mine):
            self._rows.append(self._keyed(self.tracer, rows[mine], ann[mine]))
            if self.functions:
                self._values.append(rows[mine])
            for source, parts in self._tids.items():
                parts.append(Ragged(*self.tracer.tids(ann[mine], source)))

    def all(self) -> dict[str, Ragged]:
        """Everything has come."""
        rows = np.concatenate([self.keys[:0], *self._rows])
        known = len(self.keys)
        number, _ = number_rows(np.ascontiguousarray(np.concatenate([self.keys, rows])))
        theirs = np.stack([number[:known], _from_the_end(number[:known])], axis=1)[self.places]
        mine = np.stack([number[known:], _from_the_end(number[known:])], axis=1)
        both, _ = number_rows(np.ascontiguousarray(np.concatenate([mine, theirs])))
        place = np.full(int(both.max()) + 1, -1, np.int64)
        place[both[: len(mine)]] = np.arange(len(mine))
        at = place[both[len(mine) :]]
        if (at < 0).any():
            raise mismatch(self.view, int(self.wanted[np.argmin(at)]), "it did not come out", self.functions)
        if self.functions:
            worst = first_difference(self.published, np.concatenate(self._values)[at], self.types, floats=True)
            if worst is not None:
                raise mismatch(self.view, int(self.wanted[worst]), "its values differ", self.functions)
        return {source: joined(parts).take(at) for source, parts in self._tids.items()}


def _among(values: Codes, some: Codes) -> Codes:
    """Where ascending values are among some, which ascend.

    >>> _among(np.array([1, 3, 3, 7]), np.array([3, 7, 9])).tolist()
    [1, 2, 3]
    """
    starts, ends = np.searchsorted(values, some, "left"), np.searchsorted(values, some, "right")
    return ranges(starts, ends - starts)


def _from_the_end(number: Codes) -> Codes:
    """How many equal ones come after each.

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
