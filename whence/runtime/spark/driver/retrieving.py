"""Questions about streams whose rows are in partitions, asked in the driver as of streams that are in one place.

Each partition counts the rows of its share of a stream from 1, and knows which of them are behind its results, or finds
out by a replay of its own network. Here shares are put together in the order of `$at`, which gives every row the tid it
would have in one place; tids of a share are translated on the way in and out.

What partitions keep ends where each of them has let rows go: of a stream that is put together there are the rows since
the latest of these ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from whence.engine.streams.connection_point import ConnectionPoint
from whence.engine.streams.replay.ragged import Ragged, concat_lists
from whence.explain.retrieve.site import Site
from whence.model.codes import Codes
from whence.runtime.durable.uniting import in_order, stream_image

if TYPE_CHECKING:
    from whence.runtime.spark.driver.partitioned_backend import PartitionedBackend


@dataclass
class StreamPartition:
    """The rows of a stream that one partition keeps, and their tids there."""

    rows: Codes
    first: int
    next: int
    last_at: int
    promised: int


@dataclass(frozen=True)
class Whole:
    """A stream put together: `home` and `local` are the partition of each row, and its tid there; `tids` what the rows
    of each partition have here, 0 for those that are not part of it."""

    kept: ConnectionPoint
    home: Codes
    local: Codes
    tids: dict[int, Codes]
    firsts: dict[int, int]

    def here(self, partition: int, local: Codes) -> Codes:
        """Tids of a partition as those of the whole; of rows that are gone, some tid before the first."""
        if not len(local):
            return local
        known = np.concatenate([[0], self.tids[partition]])
        found = known[np.maximum(local - self.firsts[partition] + 1, 0)]
        if len(self.tids) == 1 and len(known) > 1:  # it has all rows, so those before are known
            return np.where(found > 0, found, known[1] - (self.firsts[partition] - local))
        return np.where(found > 0, found, self.kept.first - 1)


@dataclass(frozen=True)
class PartitionedSite(Site):
    """The streams of a partitioned database at one epoch. Operators are those of a partition without rows."""

    backend: PartitionedBackend | None = None
    _wholes: dict[str, Whole] = field(default_factory=dict)

    def kept(self, name: str) -> ConnectionPoint:
        super().kept(name)  # or it is an error
        return self.whole(name).kept

    def whole(self, name: str) -> Whole:
        if name not in self._wholes:
            self._wholes[name] = self._put_together(name)
        return self._wholes[name]

    def behind_elsewhere(self, view: str, wanted: Codes, source: str | None) -> dict[str, Ragged]:
        assert self.backend is not None
        whole = self.whole(view)
        whole.kept.at(wanted)  # or it is an error
        places = wanted - whole.kept.first
        home = whole.home[places]
        there = {int(p): np.flatnonzero(home == p) for p in np.unique(home)}
        calls = {p: ("backward_tids", (view, source, whole.local[places[at]])) for p, at in there.items()}
        answers: dict[int, dict[str, Ragged]] = self.backend.runner.ask(calls)
        back = np.argsort(np.concatenate([np.empty(0, np.int64), *there.values()]), kind="stable")
        traces = self.traces(view)
        named = traces.sources if traces is not None else tuple(s for s in self.upstream(view) if self.is_stream(s))
        found = {}
        for name in [source] if source is not None else named:
            parts = [Ragged(r.offsets, self.whole(name).here(p, r.tids)) for p in there for r in [answers[p][name]]]
            found[name] = concat_lists(parts).take(back)
        return found

    def reached_elsewhere(self, view: str, source: str, tid: int) -> Codes:
        assert self.backend is not None
        inputs, whole = self.whole(source), self.whole(view)
        inputs.kept.at(np.array([tid]))  # or it is an error
        place = tid - inputs.kept.first
        home, local = int(inputs.home[place]), int(inputs.local[place])
        found = self.backend.runner.ask({home: ("forward_tids", (view, source, local))})[home]
        tids = whole.here(home, found)
        return tids[tids >= whole.kept.first]

    def _put_together(self, name: str) -> Whole:
        assert self.backend is not None
        flow, dist = self.backend.flow, self.backend.dist(name)
        base = flow.arrivals.get(name)
        homes = range(1) if dist.kind in ("all", "one") else range(self.backend.runner.partitions)
        shares: dict[int, StreamPartition] = self.backend.runner.ask(dict.fromkeys(homes, ("share", (name,))))
        parts = [shares[p] for p in homes]
        order = in_order(parts)
        rows = np.concatenate([part.rows for part in parts])[order]
        following = base.next if base is not None else 1 + sum(part.next - 1 for part in parts)
        kept = ConnectionPoint(rows.shape[1], super().kept(name).retention, name=name)
        last_at, promised = max(part.last_at for part in parts), max(part.promised for part in parts)
        kept.restore(stream_image(rows, following, last_at, promised))
        sizes = [len(part.rows) for part in parts]
        home = np.repeat(np.array(homes), sizes)[order]
        local = np.concatenate([np.arange(part.first, part.next) for part in parts])[order]
        everyone = np.zeros(sum(sizes), np.int64)
        everyone[order] = np.arange(kept.first, kept.next)
        tids = dict(zip(homes, np.split(everyone, np.cumsum(sizes)[:-1]), strict=True))
        return Whole(kept, home, local, tids, {p: shares[p].first for p in homes})
