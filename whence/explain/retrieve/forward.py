"""Forward lineage: the results that an input reached.

A result may have come from a tid only if the tid is in its interval; of those results the tids are looked up, or
replayed. Cost: the intervals of all results that are kept, and the tids of those that may have come from it.
"""

from __future__ import annotations

import numpy as np

from whence.explain.retrieve.backward import backward_tids
from whence.explain.retrieve.site import Site
from whence.model.codes import Codes


def list_traced(site: Site, source: str) -> list[str]:
    """List the stream views that are traced from a stream."""
    views = [name for name in site.planned.views if site.is_view(name)]
    return [v for v in views if (traces := site.traces(v)) is not None and source in traces.sources]


def forward_tids(site: Site, view: str, source: str, tid: int) -> Codes:
    """Return the tids of the results of a traced view that came from a tid of the source, as far as they are kept."""
    elsewhere = site.reached_elsewhere(view, source, tid)
    if elsewhere is not None:
        return elsewhere
    retain = site.retain(view)
    kept, tracer = retain.kept, retain.tracer
    assert tracer is not None
    spans = tracer.spans(kept.ann, source)
    near = kept.first + np.flatnonzero((spans[:, 0] <= tid) & (tid <= spans[:, 1]))
    if not len(near):
        return near
    found = backward_tids(site, view, near, source)[source]
    which = np.repeat(np.arange(len(found)), np.diff(found.offsets))[found.tids == tid]
    results: Codes = near[which]
    return results
