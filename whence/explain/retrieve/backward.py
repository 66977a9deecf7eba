"""Backward lineage: the tids behind results, however their view is traced.

| the view keeps     | they are |
|--------------------|----------|
| lineage            | read from the annotations |
| covering intervals | found by a replay of those |
| nothing            | found by a replay of everything, as long as its streams keep that |
"""

from __future__ import annotations

import numpy as np

from whence.engine.streams.replay.ragged import Ragged
from whence.explain.retrieve.replay import replay
from whence.explain.retrieve.site import Site
from whence.model.codes import Codes


def backward_tids(site: Site, view: str, wanted: Codes, source: str | None = None) -> dict[str, Ragged]:
    """Return by source the tids behind the results of a stream view with these tids, ascending; of one source, if one
    is named."""
    elsewhere = site.behind_elsewhere(view, wanted, source)
    if elsewhere is not None:
        return elsewhere
    order = np.argsort(wanted, kind="stable")
    found = _sorted(site, view, wanted[order], source)
    if (order[1:] > order[:-1]).all():
        return found
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return {name: ragged.take(back) for name, ragged in found.items()}


def _sorted(site: Site, view: str, wanted: Codes, source: str | None) -> dict[str, Ragged]:
    retain = site.retain(view)
    retain.kept.at(wanted)  # or it is an error
    traces, tracer = site.traces(view), retain.tracer
    if traces is None or tracer is None or traces.tracing.mode == "covering":
        found, _ = replay(site, view, wanted)
        return found if source is None else {source: found[source]}
    ann = retain.kept.ann[wanted - retain.kept.first]
    return {s: Ragged(*tracer.tids(ann, s)) for s in ([source] if source is not None else traces.sources)}
