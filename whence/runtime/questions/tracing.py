"""Questions about streams: what is behind a result, what came of an input, and both as relations.

Everything is of one epoch, and looked up under the state lock (`explain/retrieve`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from whence.explain.derive.graph_builder import LIMIT
from whence.explain.retrieve.forward import forward_tids, list_traced
from whence.explain.retrieve.graph import build_graph
from whence.explain.retrieve.pjoin import p_join, provenance_schema, rows_with_tids
from whence.explain.retrieve.site import Site
from whence.explain.show.trace import Reached, Trace
from whence.io.rows import to_arrow, to_columns
from whence.model.budget import reach
from whence.model.codes import Codes, decode_value
from whence.model.errors import CatalogError, DataError
from whence.model.types import Schema
from whence.plan.algebra.program import ordered_name, with_source_names
from whence.runtime.catalog import Catalog
from whence.runtime.reading.calls import Narrow, TableFunctionCall

if TYPE_CHECKING:
    from whence.explain.graph import Derivations
    from whence.runtime.coordinator import Coordinator

log = logging.getLogger("whence")
TID = "tid"


def site_of(catalog: Catalog) -> Site:
    return catalog.backend.site(catalog.planned)


def is_stream(catalog: Catalog, name: str) -> bool:
    """Return whether a name is that of a stream, or of a view that is one."""
    site = site_of(catalog)
    return site.is_stream(name) or site.is_view(name)


# -- relations -------------------------------------------------------------------------------------------------------


def answer(coordinator: Coordinator, call: TableFunctionCall, narrow: Narrow) -> pa.Table:
    """Return the relation of a call in a query."""
    if call.function == "late":
        return coordinator.reader.late(call.args[0])
    if call.function == "owed":
        return coordinator.reader.owed(call.args[0])
    site = site_of(coordinator.catalog)
    if call.function == "numbered":
        rows, schema = rows_with_tids(site, call.args[0])
        return _arrow(rows, schema, site)
    view = call.args[0]
    source = _traced(site, view, call.args[1] if len(call.args) > 1 else None)
    schema = provenance_schema(site, view, source)
    kept = site.kept(view)
    wanted = np.arange(kept.first, kept.next)
    if call.conditions:
        results = np.concatenate([wanted[:, None], kept.rows[:, :-1]], axis=1)
        own = Schema(schema.columns[: results.shape[1]])
        passing = call.narrowed(_arrow(results, own, site), narrow).column(0).to_numpy()
        wanted = np.sort(passing.astype(np.int64))
    log.debug("provenance(%s, %s): %d of %d results reconstructed", view, source, len(wanted), len(kept))
    return _arrow(p_join(site, view, source, wanted), schema, site)


def provenance(catalog: Catalog, view: str, source: str | None) -> pa.Table:
    """Return `provenance(view, source)` as Arrow."""
    site = site_of(catalog)
    source = _traced(site, view, source)
    return _arrow(p_join(site, view, source), provenance_schema(site, view, source), site)


def _traced(site: Site, view: str, source: str | None) -> str:
    """Return the stream that the provenance of a view is asked for at: of a source that is read in order, its twin."""
    traces = site.traces(view) if source is not None and site.is_view(view) else None
    is_ordered = source is not None and traces is not None and ordered_name(source) in traces.sources
    return site.source(view, ordered_name(source) if is_ordered and source is not None else source)


def _arrow(rows: Codes, schema: Schema, site: Site) -> pa.Table:
    return to_arrow(rows, np.ones(len(rows), np.int64), schema, site.dictionary)


# -- which row ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TracedRow:
    """A row of a stream that was asked about: its tid, if it is there."""

    row: dict[str, Any]
    tid: int | None


def find(
    catalog: Catalog, name: str, codes: Mapping[int, int] | None, tid: int | None, given: dict[str, Any]
) -> TracedRow:
    """Find the row of a stream that is meant, by tid or by its columns; `codes` None: by a value that was never met."""
    site = site_of(catalog)
    kept, schema = site.kept(name), site.schema(name)
    if tid is not None:
        kept.at(np.array([tid], np.int64))  # or it is an error
        places = np.array([tid - kept.first])
    else:
        places = np.arange(len(kept)) if codes is not None else np.empty(0, np.int64)
    for column, code in (codes or {}).items():
        places = places[kept.rows[places, column] == code]
    if not len(places):
        return TracedRow(given, None)
    if len(places) > 1:
        tids = kept.first + places
        some = ", ".join(f"{t:,}" for t in tids[:5].tolist()) + (", …" if len(tids) > 5 else "")
        raise DataError(f"{len(places):,} rows of {name} match; tell which one is meant by its tid: {some}")
    return TracedRow(_row(kept.rows[places[0]], schema, site), int(kept.first + places[0]))


def _row(codes: Codes, schema: Schema, site: Site) -> dict[str, Any]:
    types = zip(schema.names, schema.types, codes.tolist(), strict=False)
    return {name: decode_value(code, kind, site.dictionary) for name, kind, code in types}


# -- backward and forward ----------------------------------------------------------------------------------------------


def lineage(catalog: Catalog, name: str, tid: int, limit: int = LIMIT) -> Derivations:
    """Return the derivations of a row of a stream: the inputs it came from, all of them at once."""
    reach("inputs that it came from")
    return build_graph(site_of(catalog), name, np.array([tid], np.int64), limit).renamed(with_source_names)


def traced_stream(catalog: Catalog, name: str) -> str:
    """Return the stream that views are traced from, for one that a user names: of a source that they read in order, its
    ordered twin, whose tids are in that order."""
    site, twin = site_of(catalog), ordered_name(name)
    return twin if site.is_stream(twin) and not list_traced(site, name) else name


def trace(catalog: Catalog, stream: str, asked: TracedRow, epoch: int) -> Trace:
    """Find the results that a row of a stream reached, in every view that is traced from it."""
    site = site_of(catalog)
    assert asked.tid is not None
    views = list_traced(site, stream)
    if not views:
        raise CatalogError(
            f"no view is traced from \"{stream}\": make one WITH (provenance = 'lineage'), or 'covering' to have it "
            "found when it is asked for"
        )
    found = {}
    for i, view in enumerate(views):
        reach("results that it reached", i, len(views))
        tids = forward_tids(site, view, stream, asked.tid)
        schema = site.schema(view)
        columns = to_columns(np.ascontiguousarray(site.kept(view).at(tids)[:, :-1]), schema, site.dictionary)
        rows = [dict(zip(schema.names, values, strict=True)) for values in zip(*columns, strict=True)]
        found[view] = Reached(tids, rows, site.kept(view).complete)
    return Trace(stream, asked.tid, asked.row, epoch, found)
