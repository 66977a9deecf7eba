"""The p-join: each result of a stream view beside each of the inputs behind it, as a relation.

Law: one row for each result and each tid of the source that it came from, in the order of the results and then of the
tids; σ(results ⋈ inputs) = σ(results) ⋈ inputs for a selection that reads results only, so it is done first. Cost: one
look-up by tid a row, in whole arrays. Inputs that are no longer kept are an error that says which.
"""

from __future__ import annotations

import numpy as np

from whence.engine.streams.replay.provenance_join import join_inputs
from whence.engine.streams.replay.ragged import Ragged
from whence.explain.retrieve.backward import backward_tids
from whence.explain.retrieve.site import Site
from whence.model.budget import reach
from whence.model.codes import Codes
from whence.model.errors import ExpiredError
from whence.model.types import BIGINT, Column, Schema
from whence.plan.algebra.program import with_source_names
from whence.sql.stream_functions import traced_schema

CHUNK = 1 << 20  # results that are joined at a time


def provenance_schema(site: Site, view: str, source: str) -> Schema:
    """Return the columns of `provenance(view, source)`."""
    return traced_schema(site.schema(view), with_source_names(source), site.schema(source))


def rows_with_tids(site: Site, name: str) -> tuple[Codes, Schema]:
    """Return the rows that a stream keeps, after their tids."""
    kept, schema = site.kept(name), site.schema(name)
    rows = np.concatenate([np.arange(kept.first, kept.next)[:, None], kept.rows[:, :-1]], axis=1)
    tid = "tid" if "tid" not in schema.names else f"{name}_tid"
    return rows, Schema((Column(tid, BIGINT, nullable=False), *schema.columns))


def p_join(site: Site, view: str, source: str, wanted: Codes | None = None) -> Codes:
    """Return the rows of `provenance(view, source)`, of all results that are kept or of those with these tids."""
    kept = site.kept(view)
    if wanted is None:
        wanted = np.arange(kept.first, kept.next)
    parts = []
    for done in range(0, max(len(wanted), 1), CHUNK):
        reach("inputs of results", done, len(wanted))
        some = wanted[done : done + CHUNK]
        results = kept.at(some)[:, :-1]
        found = backward_tids(site, view, some, source)[source]
        inputs = read_inputs(site, view, source, some, found)[:, :-1]
        parts.append(join_inputs(some, results, found.offsets, found.tids, inputs))
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


def read_inputs(site: Site, view: str, source: str, wanted: Codes, found: Ragged) -> Codes:
    """Return the rows of a source behind results."""
    kept = site.kept(source)
    gone = found.tids < kept.first
    if gone.any():
        lost = np.unique(found.tids[gone])
        which = wanted[np.repeat(np.arange(len(found)), np.diff(found.offsets))[gone]]
        said = f"tid {lost[0]:,}" if len(lost) == 1 else f"tids {lost[0]:,} to {lost[-1]:,}"
        raise ExpiredError(
            f"{source} no longer keeps {said}, which {_results(which)} of {view} came from: its first is now "
            f"{kept.first:,} (retain = '{kept.retention.text}'); {_later(site, view, source, int(which.max()))}; a "
            f"longer retain is said when {source} is created"
        )
    return kept.at(found.tids)


def _later(site: Site, view: str, source: str, last: int) -> str:
    """Say which results can still be asked for: those after the last one of which the source has lost an input."""
    results, kept = site.kept(view), site.kept(source)
    rest = np.arange(max(last + 1, results.first), results.next)
    try:
        found = backward_tids(site, view, rest, source)[source]
    except ExpiredError:
        return "ask for later results"
    gone = np.repeat(rest, np.diff(found.offsets))[found.tids < kept.first]
    first = int(gone.max()) + 1 if len(gone) else last + 1
    if first >= results.next:
        return "none of its results has all its inputs any more"
    return f"ask for later results only, WHERE tid >= {first}"


def _results(which: Codes) -> str:
    low, high = int(which.min()), int(which.max())
    return f"result {low:,}" if low == high else f"results {low:,} to {high:,}"
