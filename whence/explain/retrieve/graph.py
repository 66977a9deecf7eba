"""The derivations of rows of streams: a result stands on all the inputs it came from at once.

Rows of streams are told apart by their tids, which are the first column here. A loss would let windows close elsewhere,
and other results come: so the graph is of what was, and not exact under losses.
"""

from __future__ import annotations

import numpy as np

from whence.explain.derive.graph_builder import LIMIT, sort_by_head
from whence.explain.graph import DerivationRule, Derivations, GraphRelation
from whence.explain.retrieve.backward import backward_tids
from whence.explain.retrieve.pjoin import read_inputs
from whence.explain.retrieve.site import Site
from whence.model.codes import Codes
from whence.model.errors import WhenceError
from whence.model.types import BIGINT, Column, Schema

CAVEAT = "these are the inputs that a result was computed from; without some, windows would close elsewhere"


def build_graph(site: Site, name: str, wanted: Codes, limit: int = LIMIT) -> Derivations:
    """Build the graph of some rows of a stream, by their tids, down to the streams they are traced from."""
    kept = site.kept(name)
    rows = _with_tids(wanted, kept.at(wanted))
    if site.is_stream(name):
        base = GraphRelation(name, "base", _schema(site, name), True)
        return _graph(site, [base], [rows], [], np.zeros(len(wanted), np.int64))
    found = backward_tids(site, name, wanted)
    sources = [source for source, ragged in found.items() if len(ragged.tids)]
    if sum(len(found[s].tids) for s in sources) > limit:
        raise WhenceError(f"more than {limit:,} inputs are behind these rows; ask about fewer rows, or raise `limit`")
    relations = [GraphRelation(name, "view", _schema(site, name), True)]
    cells, bodies = [rows], []
    for source in sources:
        ragged = found[source]
        read_inputs(site, name, source, wanted, ragged)  # or it is an error
        tids, place = np.unique(ragged.tids, return_inverse=True)
        relations.append(GraphRelation(source, "base", _schema(site, source), True))
        bodies.append((np.repeat(np.arange(len(wanted)), np.diff(ragged.offsets)), place))
        cells.append(_with_tids(tids, site.kept(source).at(tids)))
    return _graph(site, relations, cells, bodies, np.ones(len(wanted), np.int64))


def _graph(
    site: Site, relations: list[GraphRelation], cells: list[Codes], bodies: list[tuple[Codes, Codes]], derived: Codes
) -> Derivations:
    """Build the graph: results first, then the inputs of each source; `bodies` has a pair of result and input for
    each."""
    sizes = np.array([len(c) for c in cells], np.int64)
    before = np.concatenate(([0], np.cumsum(sizes)))
    heads = np.concatenate([np.empty(0, np.int64), *(head for head, _ in bodies)])
    nodes = np.concatenate([np.empty(0, np.int64), *(b + before[i + 1] for i, (_, b) in enumerate(bodies))])
    order = np.argsort(heads, kind="stable")
    count = int(derived.sum())
    size = np.bincount(heads, minlength=count)[:count].astype(np.int64)
    head, step, start, body = sort_by_head(
        np.arange(count, dtype=np.int32), np.zeros(count, np.int32), size, nodes[order].astype(np.int32)
    )
    name = relations[0].name
    return Derivations(
        relations=relations,
        relation=np.repeat(np.arange(len(cells), dtype=np.int32), sizes),
        place=np.concatenate([np.arange(n, dtype=np.int32) for n in sizes.tolist()]),
        cells=cells,
        steps=[DerivationRule(name, f"{name} <- {', '.join(r.name for r in relations[1:]) or 'always'}")]
        if count
        else [],
        head=head,
        step=step,
        start=start,
        body=body,
        roots=np.arange(sizes[0], dtype=np.int32),
        dictionary=site.dictionary.frozen(),
        exact=not count,
        caveat=CAVEAT if count else "",
    )


def _schema(site: Site, name: str) -> Schema:
    schema = site.schema(name)
    tid = "tid" if "tid" not in schema.names else f"{name}_tid"
    return Schema((Column(tid, BIGINT, nullable=False), *schema.columns))


def _with_tids(tids: Codes, rows: Codes) -> Codes:
    return np.ascontiguousarray(np.concatenate([tids[:, None], rows[:, :-1]], axis=1))
