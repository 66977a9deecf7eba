"""Find where base streams must live, so that networks find together what they look at together.

A network asks for columns to be placed by, or for everything in one place; a base stream serves all networks over it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from whence.model.errors import CatalogError
from whence.model.types import Kind, Schema
from whence.plan.algebra.arrival import has_at
from whence.plan.algebra.logical import Node, Ref
from whence.plan.streams.model import Stream

Sources = Iterator[tuple[str, tuple[int | None, ...]]]


class MisplacedError(CatalogError):
    """A traced network that would have to ship rows of these base streams, which are not where it needs them."""

    def __init__(self, message: str, streams: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.streams = tuple(streams)


class StreamNeeds:
    """What networks ask of base streams: columns to be placed by, or everything in one place.

    `queries` are the plain views, to be seen through; `streams` are the schemas of the base streams."""

    def __init__(self, streams: Mapping[str, Schema], queries: Mapping[str, Node]) -> None:
        self._streams, self._queries = streams, queries
        self._keys: dict[str, list[tuple[int, ...]]] = {name: [] for name in streams}
        self.whole: set[str] = set()

    def note(self, wanted: Sequence[tuple[Node, Sequence[int]]]) -> None:
        """Note that rows of some networks that are equal in corresponding columns must meet."""
        found = [source for node, cols in wanted for source in self.sources(node, cols)]
        count = len(wanted[0][1])
        common = [i for i in range(count) if all(self._can(name, cols[i]) for name, cols in found)]
        for name, cols in found:
            if common:
                self._keys[name].append(tuple(c for i in common if (c := cols[i]) is not None))
            else:
                self.whole.add(name)

    def note_whole(self, node: Node) -> None:
        """Note that all of a network is to be in one place."""
        self.whole |= {name for name, _ in self.sources(node, ())}

    def _can(self, stream: str, column: int | None) -> bool:
        return column is not None and self._streams[stream].types[column].kind is not Kind.INTERVAL

    def keys(self, name: str) -> list[tuple[int, ...]]:
        """Return the keys that serve the operators over a stream: all of their columns or some of them."""
        return [tuple(dict.fromkeys(cols)) for cols in self._keys[name]]

    def sources(self, node: Node, cols: Sequence[int | None]) -> Sources:
        """Yield the base streams of a network, and which columns of theirs some columns are."""
        if isinstance(node, Stream):
            yield node.stream, tuple(cols)
        elif isinstance(node, Ref):
            if node.view in self._queries and has_at(node.schema):
                yield from self.sources(self._queries[node.view], cols)
        elif node.passes:
            for side, child in enumerate(node.inputs):
                if has_at(child.schema):
                    yield from self.sources(child, [None if c is None else node.origin(side, c) for c in cols])
