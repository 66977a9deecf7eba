"""What nodes of a simulation have: sources, views, sessions of other nodes, subscribers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from whence.subscribe.cursor import Cursor
from whence.subscribe.positions import Position
from whence.subscribe.publishing import DeliveryFilter, PublishingSession
from whence.subscribe.ranges import RangeSet
from whence.subscribe.simulate.oracle import Cut, Vector
from whence.subscribe.simulate.plans import Curiosity, Kind, ViewTree

HEARTBEAT = 1.0
SILENT_COMMIT = 0.3
"""Seconds at most until silence that was heard is committed."""

MOVE_PATIENCE = 8.0
"""Seconds that a subscriber who moved waits for this node to reflect what it has seen."""

WIDTHS = {"stream": 6, "table": 3, "view": 1}


class SourceMeta(NamedTuple):
    """What is stored of a source, in the records."""

    position: Position | None = None
    ranges: RangeSet = RangeSet()
    lost: RangeSet = RangeSet()
    time: int = 0
    filter: DeliveryFilter = DeliveryFilter()
    dropped: tuple[
        tuple[int, int], ...
    ] = ()  # keys of a stream that were asked for once, and the tick they were dropped


@dataclass(frozen=True)
class SourceSpec:
    """What a source is: where it comes from, and what the view above can use of it."""

    name: str
    urls: tuple[str, ...]
    relation: str
    tree: ViewTree
    curiosity: Curiosity = "everything"

    @property
    def kind(self) -> Kind:
        return self.tree.kind


@dataclass(frozen=True)
class ViewSpec:
    """A view of a node, over relations of it."""

    name: str
    tree: ViewTree
    inputs: tuple[str, ...]


@dataclass
class NodeSession:
    """Another node's subscription."""

    number: int
    relation: str
    core: PublishingSession
    heard: float = 0.0


@dataclass
class NodeSubscriber:
    """A client's subscription."""

    number: int
    view: str
    cursor: Cursor
    seen: dict[str, RangeSet] | None  # what the client has seen elsewhere; None once this node reflects as much
    until: float
    busy_until: float = 0.0
    heard: float = 0.0
    reason: str = ""
    has_waited: bool = False  # in vain, for what it has seen elsewhere
    sent: int = 0  # messages, of which the last is awaited
    resumed: bool = False  # what the client had when it subscribed is part of this node's past


def seen_at(vector: Vector) -> dict[str, RangeSet]:
    """Return a vector as what a client says it has seen: by place and history, the ticks."""
    cuts = ((path, cut) for path, cut in vector.items() if isinstance(cut, Cut) and cut.history)
    return {f"{path}:{cut.history}": cut.ranges for path, cut in cuts}


def first_filter(spec: SourceSpec) -> DeliveryFilter:
    match spec.curiosity:
        case "available":
            return DeliveryFilter((0,), watched=(1,))
        case "best":
            return DeliveryFilter((0,))
        case "listed":
            return DeliveryFilter((4,) if spec.kind == "stream" else (0,), frozenset())
    return DeliveryFilter()


def list_of(source: str) -> str:
    """The source that has the keys which another one is asked for: the second input of the same view."""
    return source.removesuffix(".0") + ".1"
