"""The place where a question about streams looks: the dataflow and the plan it runs, which stand still meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from whence.engine.core.dataflow import Dataflow
from whence.engine.streams.connection_point import ConnectionPoint
from whence.engine.streams.replay.ragged import Ragged
from whence.engine.streams.retain import Retain
from whence.engine.streams.stream_scan import StreamScan
from whence.model.codes import Codes, Dictionary
from whence.model.errors import CatalogError, SqlError
from whence.model.types import Schema
from whence.plan.algebra.program import Program
from whence.plan.streams.instrument import Traces, copied_views, traces_of, upstream_streams
from whence.plan.streams.model import Retain as RetainNode
from whence.plan.streams.model import without_at
from whence.sql.position import did_you_mean


@dataclass(frozen=True)
class Site:
    flow: Dataflow
    planned: Program
    dictionary: Dictionary

    def is_stream(self, name: str) -> bool:
        """Return whether a name is that of a base stream."""
        return isinstance(self.flow.tables.get(name), StreamScan)

    def is_view(self, name: str) -> bool:
        """Return whether a name is that of a view that is a stream."""
        view = self.planned.views.get(name)
        return view is not None and isinstance(view.query, RetainNode)

    def kept(self, name: str) -> ConnectionPoint:
        """Return the connection point of a stream or stream view."""
        if self.is_stream(name):
            return cast(StreamScan, self.flow.tables[name]).kept
        if self.is_view(name):
            return self.retain(name).kept
        known = [*self.flow.tables, *(n for n, v in self.planned.views.items() if not v.hidden)]
        if name in known:
            what = "table" if name in self.flow.tables else "view that is a relation"
            raise CatalogError(f'"{name}" is a {what}; tids are of streams, and of views that are streams')
        raise CatalogError(f'there is no stream or view "{name:.100}"{did_you_mean(name, known)}')

    def behind_elsewhere(self, view: str, wanted: Codes, source: str | None) -> dict[str, Ragged] | None:
        """Return what `backward_tids` gives, if other partitions have the rows; None: they are here."""
        return None

    def reached_elsewhere(self, view: str, source: str, tid: int) -> Codes | None:
        """Return what `forward_tids` gives, if other partitions have the rows; None: they are here."""
        return None

    def recreated(self, view: str, *modes: str) -> str:
        """Say which views to create again so that the view is traced from now on: itself, and those before it that run
        without provenance, whose past cannot be traced through."""
        before = [*reversed(upstream_streams(view, self.planned)), *sorted(copied_views(view, self.planned))]
        traced = ("lineage", "covering")
        untraced = [n for n in before if self.is_view(n) and self.planned.views[n].option("provenance") not in traced]
        names = ", ".join(dict.fromkeys([*untraced, view]))
        together = ", all in one script" if untraced else ""
        said = " or ".join(f"'{mode}'" for mode in modes)
        return f"CREATE OR REPLACE {names} WITH (provenance = {said}){together}, to have it for results from then on"

    def retain(self, view: str) -> Retain:
        return cast(Retain, self.flow.views[view])

    def schema(self, name: str) -> Schema:
        """Return the columns of a stream or stream view, as users see them."""
        stream = self.flow.tables.get(name)
        return without_at(stream.schema if stream is not None else self.planned.views[name].schema)

    def traces(self, view: str) -> Traces | None:
        """Return what a stream view is traced from, if it is."""
        return traces_of(view, self.planned)

    def upstream(self, view: str) -> tuple[str, ...]:
        return upstream_streams(view, self.planned)

    def source(self, view: str, source: str | None) -> str:
        """Return the stream that the provenance of a view is asked for at; if none is named, the only one there is."""
        self.kept(view)
        if not self.is_view(view):
            raise CatalogError(f'"{view}" is a stream: what comes in has no provenance; ask for that of a view')
        traces = self.traces(view)
        if traces is None:
            raise SqlError(
                f"\"{view}\" keeps no provenance: make it WITH (provenance = 'lineage'), or 'covering' to have it "
                "found when it is asked for"
            )
        traced = traces.sources
        if source is None:
            if len(traced) != 1:
                which = f"say which, provenance({view}, {traced[0]})"
                raise SqlError(f'"{view}" is traced from {", ".join(traced)}: {which}')
            return traced[0]
        if source not in traced:
            raise SqlError(
                f'"{view}" is not traced from "{source:.100}"{did_you_mean(source, list(traced))}; it is from '
                f"{', '.join(traced)} (provenance_of says from which)"
            )
        return source
