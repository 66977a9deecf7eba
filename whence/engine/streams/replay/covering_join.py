"""The c-join of paper 001 (Figure 10): as results with covering intervals come, find the tids behind them.

Law: the tids are those that eager lineage would have kept, whatever the epochs. Each interval names the rows of the
connection points that are fed to an instrumented copy of the network; what was fed before is not fed again, and at a
gap between intervals the copy is reset: to nothing where a chain starts cold, elsewhere to the last checkpoint before
the interval. (A gap of few rows is fed, which is cheaper and as right: nothing is forgotten.) Intervals of one epoch
with gaps between them are run side by side (`engine/streams/replay/chain.py`); the last one stays in the copy, for
those to come.

State: the copy, from where and to where it was fed. Cost: the rows of the intervals, once, and what comes out. Rows
that are needed after a reset and are no longer kept are an ExpiredError; a copy that goes on needs none of them. What a
log has is done again without either error: the results that cannot be found have no rows then, and it is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from whence.engine.core.image import Image, StaleImage, inside, nested
from whence.engine.streams.connection_point import ConnectionPoint
from whence.engine.streams.replay.chain import ReplayChain
from whence.engine.streams.replay.matching import Keyed, Numbered, Wanted
from whence.engine.streams.replay.ragged import Ragged, empty
from whence.engine.streams.replay.replica import NetworkReplica
from whence.engine.streams.replay.stretches import NOTHING, ReplayNeeds, stretches_of
from whence.engine.streams.retain import Retain
from whence.model.codes import Codes, Dictionary
from whence.model.errors import ExpiredError, ReplayError
from whence.plan.algebra.logical import Node
from whence.plan.streams.model import streams_read
from whence.plan.streams.replay import called_by, short_copy

log = logging.getLogger("whence")
RESET = 16_384  # rows that it takes as long to feed as to reset a copy


@dataclass(frozen=True)
class Fed:
    """A copy, and what it was fed: from the tids `begins` until before `nexts`, which arrived until `upto`.

    `result` is the number that its next result has, in a copy that counts them."""

    copy: NetworkReplica
    begins: Mapping[str, int]
    nexts: Mapping[str, int]
    upto: int = 0
    result: int = 1


class CoveringJoin:
    """The c-join: feeds the rows that covering intervals name to an instrumented copy, and collects the tids behind
    results."""

    def __init__(
        self, results: Retain, query: Node, kept: Mapping[str, ConnectionPoint], dictionary: Dictionary
    ) -> None:
        self.results, self._whole, self._dictionary = results, query, dictionary
        self.cold = results.checkpoints is None
        self.query = short_copy(query) if self.cold else query
        self.streams = streams_read(self.query)
        self._kept = {name: kept[name] for name in self.streams}
        tracer = results.tracer
        self._sources = tracer.sources if tracer is not None else ()
        self._functions = called_by(self.query)
        self._fed: Fed | None = None
        self._spare: NetworkReplica | None = None
        self._chain: ReplayChain | None = None
        self._before: tuple[Fed | None, int] | None = None  # both, at the last commit
        self.rows = 0  # fed so far

    def fresh(self) -> CoveringJoin:
        return CoveringJoin(self.results, self._whole, self._kept, self._dictionary)

    def behind(self, tids: Codes, replaying: bool = False) -> dict[str, Ragged]:
        """Return, by source, the tids behind the results with these tids, which came in this epoch and ascend."""
        if not len(tids):
            return {source: empty(0) for source in self._sources}
        if self._before is None:
            self._before = self._fed, self.rows
        wanted = Wanted(self.results, self._sources, tids, self._functions)
        try:
            return self._keyed(wanted) if self.cold else self._numbered(wanted)
        except (ExpiredError, ReplayError) as error:
            if not replaying:
                raise
            log.warning("provenance of %d results is missing: %s", len(tids), error)
            self._fed = None
            return {source: empty(len(tids)) for source in self._sources}

    def findable(self, tids: Codes) -> Codes:
        """Return the last of some results: those after which every interval can still be run from its beginning."""
        wanted = Wanted(self.results, self._sources, tids)
        if self.cold:
            (name,) = self.streams
            there = wanted.spans(name)[:, 0] >= self._kept[name].first
        else:
            needs = ReplayNeeds.of(wanted)
            usable = np.flatnonzero(needs.usable())
            there = np.all(needs.tids >= (needs.nexts[usable[0]] if len(usable) else NOTHING), axis=1)
        gone = np.flatnonzero(~there)
        return tids[gone[-1] + 1 :] if len(gone) else tids

    # -- chains that start cold --------------------------------------------------------------------------------------

    def _keyed(self, wanted: Wanted) -> dict[str, Ragged]:
        (name,) = self.streams
        kept, keyed, fed = self._kept[name], Keyed(wanted), self._fed
        begins, ends = stretches_of(wanted.spans(name)[:, 0], wanted.rows[:, -1], kept)
        if fed is not None and not self._goes_on(fed, name, int(begins[0])):
            fed = None
        if fed is not None:
            begins[0] = fed.nexts[name]
        if int(begins[0]) < kept.first:
            raise self._expired(name, int(begins[0]), wanted)
        gaps = np.flatnonzero(begins[1:] - ends[:-1] > RESET)
        begins, ends = begins[np.append(0, gaps + 1)], ends[np.append(gaps, len(ends) - 1)]
        self.rows += int((ends - begins).sum())
        if fed is not None:
            fed = self._run_stretch(fed, int(ends[0]), keyed)
            begins, ends = begins[1:], ends[1:]
        if len(begins) > 1:
            chain = self._chain = self._chain or ReplayChain(self.query, self._kept, self._dictionary)
            chain.run(begins[:-1], ends[:-1], keyed.sink(chain.tracer))
        if len(begins):
            start = {name: int(begins[-1])}
            fed = self._run_stretch(Fed(self._copy(start), start, start), int(ends[-1]), keyed)
        self._fed = fed
        return keyed.all()

    def _goes_on(self, fed: Fed, name: str, first: int) -> bool:
        """Check whether a copy that was fed so far can go on to an interval that begins with a tid."""
        next_ = fed.nexts[name]
        return fed.begins[name] <= first <= next_ + RESET and next_ >= self._kept[name].first

    def _run_stretch(self, fed: Fed, end: int, keyed: Keyed) -> Fed:
        ends = dict.fromkeys(fed.nexts, end)
        fed.copy.run(fed.nexts, ends, keyed.sink(fed.copy.tracer))
        return Fed(fed.copy, fed.begins, ends)

    # -- networks that start at checkpoints --------------------------------------------------------------------------

    def _numbered(self, wanted: Wanted) -> dict[str, Ragged]:
        needs = ReplayNeeds.of(wanted)
        if not len(needs.some):
            return {source: empty(len(wanted.tids)) for source in self._sources}
        upto = int(wanted.rows[needs.some, -1].max())
        fed = self._started(needs, wanted)
        found = Numbered(wanted, fed.copy.tracer)
        ends = fed.copy.check(fed.nexts, upto)
        self.rows += sum(ends.values()) - sum(fed.nexts.values())
        came = fed.copy.run(fed.nexts, ends, found.sink(fed.result))
        self._fed = Fed(fed.copy, fed.begins, ends, upto, fed.result + came)
        return found.all()

    def _started(self, needs: ReplayNeeds, wanted: Wanted) -> Fed:
        """Return the copy as it goes on, or at the last checkpoint before what is needed, if that is further on."""
        fed, best = self._fed, needs.last_before()
        lowest = needs.tids.min(axis=0).tolist()
        names = [op.inputs[0].name for op in needs.checkpoints.generators]  # type: ignore[attr-defined]
        goes_on = (
            fed is not None
            and all(fed.begins[name] <= low for name, low in zip(names, lowest, strict=True))
            and all(fed.nexts[name] >= kept.first for name, kept in self._kept.items())
        )
        if fed is not None and goes_on:
            skipped = sum(best.nexts.tolist()) - sum(fed.nexts[name] for name in names) if best is not None else 0
            if best is None or best.at <= fed.upto or skipped <= RESET:
                return fed
        if best is None:
            column = int(np.argmin(lowest))
            raise self._expired(names[column], lowest[column], wanted)
        copy = self._copy(dict.fromkeys(self.streams, 1))
        nexts = copy.resume(needs.checkpoints, best)
        return Fed(copy, nexts, nexts, best.at, best.result)

    def _copy(self, start: dict[str, int]) -> NetworkReplica:
        copy, self._spare = self._spare, None
        if copy is None:
            copy = NetworkReplica(self.results.name, self.query, self._kept, self._dictionary)
        copy.start(start)
        return copy

    def _expired(self, name: str, first: int, wanted: Wanted) -> ExpiredError:
        kept = self._kept[name]
        return ExpiredError(
            f"provenance({self.results.name}, {name}) cannot be kept: the inputs of result {int(wanted.tids[0]):,} "
            f"begin at or before tid {first:,} of {name}, which keeps its rows from {kept.first:,} on (retain = "
            f"'{kept.retention.text}'). Let it keep more, give {self.results.name} provenance = 'lineage', or drop the "
            "view over provenance()"
        )

    # -- epochs and images -------------------------------------------------------------------------------------------

    def commit(self) -> None:
        if self._before is None:
            return
        (before, _), self._before = self._before, None
        for fed in (before, self._fed):
            if fed is not None:
                fed.copy.flow.commit()
        if before is not None and self._fed is not None and before.copy is not self._fed.copy:
            self._spare = before.copy

    def undo(self) -> None:
        if self._before is None:
            return
        (self._fed, self.rows), self._before = self._before, None
        if self._fed is not None:
            self._fed.copy.flow.undo()

    def clear(self) -> None:
        self._fed = self._before = None

    def image(self) -> Image:
        fed = self._fed
        if fed is None:
            return {"fed": np.empty((0, len(self.streams)), np.int64), "at": np.zeros(2, np.int64)}
        tids = [[fed.begins[name] for name in self.streams], [fed.nexts[name] for name in self.streams]]
        own = {"fed": np.array(tids, np.int64), "at": np.array([fed.upto, fed.result], np.int64)}
        return own | nested("copy", fed.copy.image())

    def restore(self, image: Image) -> None:
        tids, at = image.get("fed"), image.get("at")
        shapes = (0, len(self.streams)), (2, len(self.streams))
        if tids is None or at is None or at.shape != (2,) or tids.shape not in shapes:
            raise StaleImage("an image of another c-join")
        if not len(tids):
            self.clear()
            return
        begins, nexts = (dict(zip(self.streams, row, strict=True)) for row in tids.tolist())
        copy = self._copy(nexts)
        copy.restore(inside("copy", image))
        self._fed, self._before = Fed(copy, begins, nexts, *at.tolist()), None

    @property
    def state_rows(self) -> int:
        return sum(op.state_rows for op in self._fed.copy.flow.order) if self._fed is not None else 0

    @property
    def state_bytes(self) -> int:
        return self._fed.copy.flow.state_bytes if self._fed is not None else 0
