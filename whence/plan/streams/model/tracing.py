"""Nodes of instrumented networks: where provenance is asked for, begins and ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from whence.plan.algebra.expressions import Expr
from whence.plan.algebra.logical.node import Node, Unary, walk
from whence.plan.streams.model.network import Stream
from whence.plan.streams.model.spans import Tracing

if TYPE_CHECKING:
    from whence.plan.knowledge.derive import KnowledgeDeriver
    from whence.plan.knowledge.facts import Facts


@dataclass(frozen=True)
class ProvenanceJoin(Unary):
    """`provenance(view, source)`: the columns of the view, its `tid`, `<source>_tid`, and `<source>_<column>`s.

    In a network `input` is the annotated view, and its `$at` stands last, as ever. If the view keeps covering
    intervals, `copy` is the instrumented copy of its query that is replayed (`plan/streams/replay.py`), and only
    results for which `where` holds, a condition over `tid` and the view's columns, are looked at. Everything must be
    in one place."""

    view: str
    source: str
    copy: Node | None = None
    where: Expr | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return (self.view, self.source)

    @property
    def replayed(self) -> tuple[str, ...]:
        """The streams that its copy is fed from."""
        return streams_read(self.copy) if self.copy is not None else ()

    @property
    def fetches(self) -> tuple[str, ...]:
        return (self.source, *self.replayed)

    def shape(self) -> object:
        own = "traced", self.schema.types, self.view, self.source
        return own if self.copy is None else (*own, self.copy, self.where)

    def describe(self) -> str:
        asked = f", of results with {self.where}" if self.where is not None else ""
        return f"provenance of {self.view} in {self.source}{', replayed' if self.copy is not None else ''}{asked}"

    def knows(self, deriver: KnowledgeDeriver) -> Facts:
        return deriver.flowing(self, delayed=True)

    def is_traced(self, views: Mapping[str, bool]) -> bool:
        return False


@dataclass(frozen=True)
class Generate(Unary):
    """The same rows, each with its own tid for provenance.

    `source` None: rows of a stream that is not traced, in a network that is."""

    source: str | None
    tracing: Tracing

    passes: ClassVar[bool] = True

    def shape(self) -> object:
        return ("generate", self.source, self.tracing)

    def knows(self, deriver: KnowledgeDeriver) -> Facts:
        return deriver.flowing(self)

    def describe(self) -> str:
        return f"trace {self.source}" if self.source is not None else "traced from nothing"

    def is_traced(self, views: Mapping[str, bool]) -> bool:
        return True


@dataclass(frozen=True)
class DropProvenance(Unary):
    """The same rows without provenance."""

    passes: ClassVar[bool] = True

    def shape(self) -> object:
        return ("plain",)

    def knows(self, deriver: KnowledgeDeriver) -> Facts:
        return deriver.flowing(self)

    def describe(self) -> str:
        return "without provenance"

    def is_traced(self, views: Mapping[str, bool]) -> bool:
        return False


@dataclass(frozen=True)
class Align(Unary):
    """The same rows, their covering intervals laid out for more sources."""

    before: Tracing
    after: Tracing

    passes: ClassVar[bool] = True

    def shape(self) -> object:
        return ("align", self.before, self.after)

    def knows(self, deriver: KnowledgeDeriver) -> Facts:
        return deriver.flowing(self)

    def is_traced(self, views: Mapping[str, bool]) -> bool:
        return True


def streams_read(query: Node) -> tuple[str, ...]:
    """Return the names of the base streams that a query reads."""
    return tuple(dict.fromkeys(node.stream for node in walk(query) if isinstance(node, Stream)))
