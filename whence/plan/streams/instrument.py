"""Instrument stream networks: generators at the traced streams, propagators between, droppers after.

A view asks for provenance by its options: `provenance` says what annotations are, `provenance_of` from which of its
upstream streams (base streams, or views that are streams) they are traced. In five lines, for a view V and sources I:

1. going up from V, a stream of I is wrapped in a Generate, and nothing above it is looked at;
2. any other base stream, and any view that no stream of I reaches, comes from nowhere: a Generate without a source;
3. a view in between that is itself instrumented in the same way is read as it is, annotations and all;
4. any other view in between is written out, a copy that belongs to V; the view itself goes on paying nothing;
5. whoever reads an instrumented view without asking for provenance reads it through Plain, which drops annotations.

Operators are told nothing: they propagate because what comes in is annotated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from whence.model.errors import SqlError
from whence.plan.algebra.functions import check_copied
from whence.plan.algebra.logical import Node, Ref, walk
from whence.plan.algebra.program import Program, View
from whence.plan.streams.model import (
    Align,
    BSort,
    DropProvenance,
    Generate,
    Latest,
    Lookup,
    ProvenanceJoin,
    Retain,
    Stream,
    StreamToRelation,
    Tracing,
    Window,
    WindowJoin,
)

TRACED = ("lineage", "covering")


@dataclass(frozen=True)
class Traces:
    """What a view is traced from, and how."""

    tracing: Tracing
    sources: tuple[str, ...]


def instrument(program: Program) -> Program:
    """Instrument the networks of the traced views of a program; return the same program if it has none.

    It is one that `plan_networks` has made: a view is a stream exactly if its query is a Retain."""
    if not any(view.option("provenance") in TRACED for view in program.views.values()):
        return program
    found = program.copy()
    work = _Instrumenting(program)
    for name, view in program.views.items():
        query = work.view(name)
        if query is not view.query:
            found.views[name] = replace(view, query=query)
    return found


def traces_of(name: str, program: Program) -> Traces | None:
    """Return how a view of the program is traced, if it is; raise SqlError if it asks for what cannot be."""
    return _Instrumenting(program).traces(name)


def copied_views(name: str, program: Program) -> set[str]:
    """Return the views that an instrumented view has copies of with state of their own."""
    owners = {getattr(node, "owner", "") for node in walk(program.views[name].query)}
    return {owner.removeprefix(f"{name}/") for owner in owners if owner.startswith(f"{name}/")}


def upstream_streams(name: str, program: Program) -> tuple[str, ...]:
    """Return the streams that a stream view is made of, base streams and views, nearest first."""
    found: dict[str, None] = {}
    level = list(_read(program.views[name].query))
    while level:
        found.update(dict.fromkeys(level))
        above = [s for v in level if _is_stream_view(v, program) for s in _read(program.views[v].query)]
        level = [s for s in dict.fromkeys(above) if s not in found]
    return tuple(found)


def drop_provenance(node: Node, traced: Callable[[str], bool]) -> Node:
    """Drop the annotations of the views that a plan reads, if they are traced: it asks for no provenance."""
    if isinstance(node, Ref):
        return DropProvenance(node.schema, node) if traced(node.view) else node
    if isinstance(node, ProvenanceJoin) or (
        isinstance(node, (StreamToRelation, Latest)) and isinstance(node.inputs[0], Ref)
    ):
        return node  # it is what reads them, or it reads none
    inputs = [drop_provenance(child, traced) for child in node.inputs]
    return node if all(a is b for a, b in zip(inputs, node.inputs, strict=True)) else node.with_inputs(inputs)


@dataclass(frozen=True)
class _Instrumenting:
    program: Program

    @cached_property
    def _known(self) -> dict[str, Traces | None]:
        return {}

    def traces(self, name: str) -> Traces | None:
        if name not in self._known:
            self._known[name] = _traces(self.program.views[name], self.program)
        return self._known[name]

    def view(self, name: str) -> Node:
        """Return the query of a view, as it is to run."""
        query = self.program.views[name].query
        traces = self.traces(name)
        if traces is None:
            return self._dropped(query)
        assert isinstance(query, Retain)
        return replace(query, input=self._annotated(query.input, traces, name, ""))

    def _dropped(self, node: Node) -> Node:
        return drop_provenance(node, lambda v: _is_stream_view(v, self.program) and self.traces(v) is not None)

    def _annotated(self, node: Node, traces: Traces, view: str, copied: str) -> Node:
        """Annotate the rows of a network; `copied` is the view whose query it is, if not the asking one's own."""
        tracing = traces.tracing
        match node:
            case Stream():
                return Generate(node.schema, node, node.stream if node.stream in traces.sources else None, tracing)
            case Ref():
                return self._referred(node, traces, view)
            case Lookup():
                if tracing.mode == "covering":
                    raise SqlError(
                        f'"{view}" joins a stream with a relation as it is when a row comes, which cannot be replayed '
                        "later; use provenance = 'lineage', or trace from a view after the join"
                    )
                relation = self._dropped(node.relation)
                return replace(node, input=self._annotated(node.input, traces, view, copied), relation=relation)
            case ProvenanceJoin():
                raise SqlError(f'"{view}" reads provenance(), through which nothing is traced; trace from a view of it')
        inputs = [self._annotated(child, traces, view, copied) for child in node.inputs]
        found = node.with_inputs(inputs)
        if copied and isinstance(found, (Window, WindowJoin, BSort)):
            found = replace(found, owner=f"{view}/{copied}")
        return found

    def _referred(self, node: Ref, traces: Traces, view: str) -> Node:
        tracing, program = traces.tracing, self.program
        if node.view in traces.sources:
            return Generate(node.schema, node, node.view, tracing)
        reached = set(upstream_streams(node.view, program)) & set(traces.sources)
        if not reached:
            return Generate(node.schema, node, None, tracing)
        own = self.traces(node.view)
        same = own is not None and (own.tracing.mode, own.tracing.encoding) == (tracing.mode, tracing.encoding)
        if own is not None and same and set(own.sources) == reached:
            return node if own.tracing == tracing else Align(node.schema, node, own.tracing, tracing)
        query = program.views[node.view].query
        assert isinstance(query, Retain)
        check_copied(view, node.view, query)
        return self._annotated(query.input, traces, view, node.view)


def _traces(view: View, program: Program) -> Traces | None:
    """Return what a view's options ask for."""
    mode = view.option("provenance")
    if mode not in TRACED:
        for option in ("provenance_of", "encoding"):
            if view.option(option) is not None:
                raise SqlError(f"{option} of \"{view.name}\" says how it is traced; add provenance = 'lineage'")
        return None
    if not isinstance(view.query, Retain):
        raise SqlError(
            f"\"{view.owner or view.name}\" is a relation, and provenance = '{mode}' is for views that are streams; "
            "leave it out: why explains the rows of every view"
        )
    above = upstream_streams(view.name, program)
    given = view.option("provenance_of")
    if given is None:
        sources = tuple(sorted(s for s in above if s in program.tables))
    else:
        sources = tuple(sorted(dict.fromkeys(part.strip() for part in given.split(","))))
        for source in sources:
            if source not in above:
                known = ", ".join(sorted(above))
                raise SqlError(f'provenance_of names "{source}", which "{view.name}" is not made of; it is of {known}')
        for source in sources:
            if source not in _reached(view.query, set(sources) - {source}, program):
                raise SqlError(
                    f'provenance_of names "{source}", which reaches "{view.name}" only through others that it names: '
                    "an input is traced to the first of them; leave those out, or it"
                )
    if mode == "covering":
        if view.option("encoding") is not None:
            raise SqlError("encoding is how sets of tids are written down; covering intervals have only one form")
        return Traces(Tracing("covering", sources), sources)
    return Traces(Tracing("lineage", (), view.option("encoding") or "adaptive"), sources)  # type: ignore[arg-type]  # checked by sql/options.py


def _read(node: Node) -> list[str]:
    """Return the streams that a network reads, relations that it looks up not followed."""
    match node:
        case Stream():
            return [node.stream]
        case Ref():
            return [node.view]
        case Lookup():
            return _read(node.input)
        case StreamToRelation() | Latest():
            return []
    return [name for child in node.inputs for name in _read(child)]


def _reached(node: Node, stops: set[str], program: Program) -> set[str]:
    """Return the streams that a network is made of, nothing looked for behind those where it stops."""
    found: set[str] = set()
    left = _read(node)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            if name not in stops and _is_stream_view(name, program):
                left += _read(program.views[name].query)
    return found


def _is_stream_view(name: str, program: Program) -> bool:
    return name in program.views and isinstance(program.views[name].query, Retain)
