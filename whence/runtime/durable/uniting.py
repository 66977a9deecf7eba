"""Uniting: the images of partitions as those of one database.

The law: a united table holds every row of every share, with its multiplicity and its accumulators (when it is due). A
table of which each partition has a copy is taken from the first. A united stream holds the rows of all shares in their
order, from the first on after which none of them has let one go. Nothing else is united: what operators keep depends on
which rows they see, so views are computed, which is refused where it would not give what was there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from whence.engine.core.image import TABLE, Image, Loaded, StaleImage
from whence.engine.streams.connection_point import ConnectionPoint
from whence.model.codes import Codes
from whence.model.errors import StorageError
from whence.plan.algebra.logical import Node, walk
from whence.plan.algebra.program import Program, is_owed, owner_of
from whence.plan.recursion.strata import dependents
from whence.plan.streams.model import BSort, Latest, Lookup, Retention, Window
from whence.state.chain import ImageChain


class United:
    """The images of a database, see `engine.image.Images`, of the chains of its partitions."""

    def __init__(self, chains: Sequence[ImageChain], tables: Mapping[str, Mapping[str, Any]]):
        """`tables` says of each how it is spread: its "kind" is "all" if every partition has a copy."""
        self._chains, self._tables = chains, tables

    def get(self, key: str, /) -> Image | None:
        """The image of a table; None for other parts."""
        name = key.removeprefix(TABLE)
        if name == key:
            return None
        chains = self._chains[:1] if self._tables.get(owner_of(name), {}).get("kind") == "all" else self._chains
        shares = [chain.get(key) for chain in chains]
        if is_owed(name) and all(share is None for share in shares):  # written when nothing could be owed
            return None
        if any(share is None for share in shares):
            raise StaleImage(f"a partition has no image of table {name}")
        found = [share for share in shares if share is not None]
        return _unite_streams(found) if "numbers" in found[0] else _unite(found)


def _unite(shares: list[Image]) -> Image:
    """The live rows of all shares under new ids."""
    if len(shares) == 1:
        return shares[0]
    live = [np.flatnonzero(share["ann"]) for share in shares]
    total = sum(map(len, live))
    image = Loaded()
    for name in ("rows", "ann", "acc"):
        like = shares[0][name]
        if any(share[name].shape[1:] != like.shape[1:] for share in shares):
            raise StaleImage(f"shares of a table differ in the columns of their {name}")
        whole, end = image.make(name, (total, *like.shape[1:]), like.dtype), 0
        for share, ids in zip(shares, live, strict=True):
            np.take(share[name], ids, axis=0, out=whole[end : end + len(ids)])
            end += len(ids)
    image["free"] = np.empty(0, np.int64)
    image["meta"] = np.array([total, 0, total], np.int64)
    return image


def _unite_streams(shares: list[Image]) -> Image:
    """The rows of a stream's shares (`engine/streams/connection_point.py`) as one stream keeps them."""
    columns = next((array.shape[1] for share in shares for name, array in share.items() if name.startswith("rows/")), 1)
    parts = [ConnectionPoint(columns, Retention()) for _ in shares]
    for part, share in zip(parts, shares, strict=True):
        part.restore(share)
    rows = np.concatenate([part.rows for part in parts])[in_order(parts)]
    following, last_at = 1 + sum(part.next - 1 for part in parts), max(part.last_at for part in parts)
    return stream_image(rows, following, last_at, max(part.promised for part in parts))


class RetainedPart(Protocol):
    """What a partition keeps of a stream; `first` is 1 if it has let nothing go."""

    @property
    def rows(self) -> Codes: ...

    first: int
    last_at: int


def in_order(shares: Sequence[RetainedPart]) -> Codes:
    """Where the rows of a stream are in its shares, one behind the other; from the first on after which none of them
    has let one go."""
    gone = [int(s.rows[0, -1]) - 1 if len(s.rows) else s.last_at for s in shares if s.first > 1]
    arrived = np.concatenate([share.rows[:, -1] for share in shares])
    order = np.argsort(arrived, kind="stable")
    kept: Codes = order[arrived[order] > max(gone, default=0)]
    return kept


def stream_image(rows: Codes, following: int, last_at: int, promised: int = 0) -> Image:
    """The image of a stream that keeps these rows; the next one gets the tid `following`."""
    made = ConnectionPoint(rows.shape[1], Retention())
    made.append(rows, np.ones(len(rows), np.int64))
    made.promised = promised
    return {**made.image(), "numbers": np.array([following - len(rows), following, last_at], np.int64)}


class PastError(StorageError):
    """A view's state is of rows that are not known any more."""

    def __init__(self, message: str, view: str) -> None:
        super().__init__(message)
        self.view = view


_ADVICE = (
    "so its state cannot be made anew for other partitions than it was written by: open the database with as many as "
    "it had, or, if it had none, without"
)
_LOST = "and its state is not in the image, so it begins again with the rows that are kept"


def _hears_promises(node: Node) -> bool:
    """Whether a node closes windows, lets rows leave, or gives out sorted rows, by the values of a column."""
    return isinstance(node, BSort) or (isinstance(node, (Window, Latest)) and node.span.on is not None)


def check_recomputable(
    planned: Program,
    streams: Mapping[str, ConnectionPoint],
    advice: str = _ADVICE,
    views: Collection[str] | None = None,
    lost: Callable[[str], None] | None = None,
) -> None:
    """Raise PastError if a view over streams, or one of `views`, cannot be computed from what these keep; with `lost`,
    call that for each such view instead."""
    for name, kept in streams.items():
        for view in dependents(planned, name) if kept.reached else ():
            if views is not None and view not in views:
                continue
            if not kept.complete:
                why = f"stream {name} no longer has the rows that {view} was made of (retain = …)"
            elif any(isinstance(node, Lookup) for node in walk(planned.views[view].query)):
                why = f"{view} has joined rows of {name} with a relation as it was when they came"
            elif kept.promised and any(map(_hears_promises, walk(planned.views[view].query))):
                why = f"windows of {view} may have moved by db.advance, db.flush or silence, not by rows of {name}"
            else:
                continue
            if lost is None:
                raise PastError(f"{why}, {advice}", view)
            lost(f"{why}, {_LOST}")
