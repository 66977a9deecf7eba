"""Replay: the tids behind results, by running an instrumented copy of their network over the rows that cover them.

A result that keeps covering intervals came out when the row with its `$at` came in, and of what came before the first
tid of its intervals nothing is in it. So it comes out again if the copy runs from there on, up to that `$at`, provided
that it begins in the right state (`engine/streams/replay/checkpoints.py`): empty, or at the last checkpoint before.
Requests are put together to **stretches**: what overlaps is run once, and between two stretches the copy forgets
everything.

Law: the tids are those that eager lineage would have kept (`engine/streams/replay/matching.py` finds each result
again). Cost: the rows of the stretches, and what is asked for. `engine/streams/replay/covering_join.py` does the same
as results come.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np

from whence.engine.streams.replay.chain import ReplayChain
from whence.engine.streams.replay.checkpoints import Checkpoint, starts_cold
from whence.engine.streams.replay.matching import Keyed, Numbered, Wanted
from whence.engine.streams.replay.ragged import Ragged, empty
from whence.engine.streams.replay.replica import NetworkReplica
from whence.engine.streams.replay.stretches import ReplayNeeds, is_dense, stretches_of
from whence.explain.retrieve.site import Site
from whence.model.codes import Codes
from whence.model.errors import ExpiredError
from whence.plan.streams.model import streams_read
from whence.plan.streams.replay import called_by, copy_query, short_copy

log = logging.getLogger("whence")


@dataclass
class Stretch:
    """Rows to run the copy over: from a checkpoint or the beginning until an arrival."""

    checkpoint: Checkpoint | None
    upto: int


@dataclass(frozen=True)
class ReplayCost:
    """What a replay cost."""

    stretches: int
    rows: int


def replay(site: Site, view: str, wanted: Codes) -> tuple[dict[str, Ragged], ReplayCost]:
    """Return the tids of each source behind the results of a view with these tids, which ascend."""
    sources = _sources_of(site, view)
    if not len(wanted):
        return {source: empty(0) for source in sources}, ReplayCost(0, 0)
    retain = site.retain(view)
    if retain.tracer is not None and starts_cold(retain.inputs[0]):
        found, figures = _replayed_cold(site, view, wanted)
    else:
        found, figures = _replayed(site, view, wanted)
    log.debug(
        "replayed %d rows in %d stretches for %d results of %s", figures.rows, figures.stretches, len(wanted), view
    )
    return found, figures


def _sources_of(site: Site, view: str) -> tuple[str, ...]:
    """List the streams that the results of a view are traced from, or would be."""
    traces = site.traces(view)
    return traces.sources if traces is not None else tuple(s for s in site.upstream(view) if site.is_stream(s))


def _replayed(site: Site, view: str, tids: Codes) -> tuple[dict[str, Ragged], ReplayCost]:
    """Replay from checkpoints, or of a view that keeps nothing from the beginning."""
    sources, retain = _sources_of(site, view), site.retain(view)
    query = copy_query(view, site.planned, sources)
    wanted = Wanted(retain, sources, tids, called_by(query))
    kept = {name: site.kept(name) for name in streams_read(query)}
    copy = NetworkReplica(view, query, kept, site.dictionary, lambda: site.recreated(view, "lineage"))
    found = Numbered(wanted, copy.tracer)
    stretches = _from_checkpoints(site, wanted) if retain.tracer is not None else [_everything(site, copy, wanted)]
    rows = 0
    for stretch in stretches:
        if retain.checkpoints is not None and stretch.checkpoint is not None:
            nexts, first = copy.resume(retain.checkpoints, stretch.checkpoint), stretch.checkpoint.result
        else:
            nexts, first = dict.fromkeys(copy.names(), 1), 1
            copy.start(nexts)
        before = sum(nexts.values())
        copy.feed(nexts, stretch.upto, found.sink(first))
        rows += sum(nexts.values()) - before
    return found.all(), ReplayCost(len(stretches), rows)


def _replayed_cold(site: Site, view: str, tids: Codes) -> tuple[dict[str, Ragged], ReplayCost]:
    """Replay from the first tid of each interval until the result came out; what overlaps as one."""
    sources = _sources_of(site, view)
    query = short_copy(copy_query(view, site.planned, sources))
    (name,) = streams_read(query)
    wanted, kept = Wanted(site.retain(view), sources, tids, called_by(query)), {name: site.kept(name)}
    firsts, arrivals = wanted.spans(name)[:, 0], wanted.rows[:, -1]
    _check_kept(site, view, name, int(firsts.min()))
    begins, ends = stretches_of(firsts, arrivals, kept[name])
    keyed = Keyed(wanted)
    if is_dense(begins, ends):
        copy, nexts = NetworkReplica(view, query, kept, site.dictionary), {name: int(begins[0])}
        copy.start(nexts)
        copy.feed(nexts, int(arrivals.max()), keyed.sink(copy.tracer))
        return keyed.all(), ReplayCost(1, int(ends[-1] - begins[0]))
    chain = ReplayChain(query, kept, site.dictionary)
    rows = chain.run(begins, ends, keyed.sink(chain.tracer))
    return keyed.all(), ReplayCost(len(begins), rows)


# -- which rows ------------------------------------------------------------------------------------------------------


def _everything(site: Site, copy: NetworkReplica, wanted: Wanted) -> Stretch:
    """Return one stretch of all there ever was: of a view that keeps no provenance."""
    for name in copy.names():
        kept = site.kept(name)
        if not kept.complete:
            raise ExpiredError(
                f"{copy.view} keeps no provenance, and {name} no longer all its rows to find it from (retain = "
                f"'{kept.retention.text}'); {site.recreated(copy.view, 'lineage', 'covering')}"
            )
    return Stretch(None, int(wanted.rows[:, -1].max()))


def _from_checkpoints(site: Site, wanted: Wanted) -> list[Stretch]:
    """Return stretches from the last checkpoint before each interval."""
    needs, arrivals, view = ReplayNeeds.of(wanted), wanted.rows[:, -1], wanted.retain.name
    starts, some = needs.starts(), needs.some
    if len(some) and starts[some].min() < 0:
        worst = some[np.argmin(needs.tids[some].min(axis=1))]
        column = int(np.argmin(needs.tids[worst]))
        _check_kept(site, view, needs.checkpoints.generators[column].source or "?", int(needs.tids[worst, column]))
        raise ExpiredError(
            f"{view} cannot be replayed from so far back: its streams no longer keep all rows since the last "
            f"checkpoint before; ask for later results, or {site.recreated(view, 'lineage')}"
        )
    stretches: list[Stretch] = []
    for request in some[np.lexsort((arrivals[some], starts[some]))].tolist():
        checkpoint, upto = needs.checkpoints.kept[int(starts[request])], int(arrivals[request])
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
