"""MemoryPool: memory that several joins share, moved between them to where it finds most.

Law: the shares of all joins add up to the pool's size at most, and every join keeps its share. Shares move at the
beginning of an epoch, before any join of the pool has run in it, and by what is committed alone; they are undone with
it. So a replay of the same epochs has the same shares. But which rows are kept may depend on how arrivals are cut into
epochs, which it does not where a join has memory of its own. State: the shares, which the image of every join has, too;
of those that differ the newest counts. Cost: at a look some runs of a join over the arrivals it remembers.

A join remembers its last arrivals (`eviction_tuner.py`). After every 2,048 arrivals of all, its gain is what a join of
these would find more with a step of memory more, per arrival and times the arrivals since the last look; its loss is
what it would find less with a step less. A step goes from the least loss to the greatest gain, as long as that is more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from whence.engine.core.image import StaleImage
from whence.model.codes import Codes

_EVERY = 2048  # arrivals of all joins from one look to the next
_STEPS = 16  # steps that the memory has
_MOVES = 4  # steps that move at a look, at most
_MORE = 1.02  # times the loss: what a gain must be


class PooledJoin(Protocol):
    """A join whose share of the memory changes."""

    fingerprint: str
    dropped: bool
    primed: bool

    @property
    def arrivals(self) -> int:
        """The rows of both sides that have arrived so far."""

    def finds(self, share: int) -> float:
        """Return the pairs per arrival that it would have found lately if it had this share."""


class _Share(NamedTuple):
    size: int
    looked: int  # the arrivals of the join at the last look


class MemoryPool:
    """The joins of one dataflow that share memory, of so many rows or bytes."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._joins: list[PooledJoin] = []
        self._shares: dict[int, _Share] = {}
        self._version = self._epoch = 0
        self._before: tuple[dict[int, _Share], int] = ({}, 0)

    def add(self, join: PooledJoin) -> None:
        """Let a join take part."""
        self._joins.append(join)

    def share_of(self, join: PooledJoin) -> int:
        """Return the memory that a join has now."""
        return self._shares[_number(join)].size

    # -- epochs ------------------------------------------------------------------------------------------------------

    def begin(self, epoch: int) -> None:
        """Move memory, if that is due, before the first join runs in an epoch."""
        if epoch == self._epoch:
            return
        self._epoch, self._before = epoch, (self._shares, self._version)
        self._joins = [join for join in self._joins if not join.dropped]
        joins = sorted((join for join in self._joins if join.primed), key=_number)
        self._shares = self._divided([_number(join) for join in joins])
        if len(joins) > 1 and sum(self._recent(join) for join in joins) >= _EVERY:
            self._move(joins)
        if self._shares != self._before[0]:
            self._version += 1

    def commit(self) -> None:
        """Keep the shares."""
        self._epoch = 0

    def undo(self) -> None:
        """Return to the shares before the epoch."""
        if self._epoch:
            self._epoch, (self._shares, self._version) = 0, self._before

    def _recent(self, join: PooledJoin) -> int:
        return join.arrivals - self._shares[_number(join)].looked

    def _divided(self, joins: Sequence[int]) -> dict[int, _Share]:
        """Return shares of exactly these joins: those that have come get an equal one, the others what they had of the
        rest."""
        if self._shares.keys() == set(joins):
            return self._shares
        equal = max(self.size // len(joins), 1)
        had = {join: self._shares[join] for join in joins if join in self._shares}
        left, total = self.size - equal * (len(joins) - len(had)), sum(share.size for share in had.values())
        found = {
            join: _Share(max(had[join].size * left // total, 1), had[join].looked) if join in had else _Share(equal, 0)
            for join in joins
        }
        spare = self.size - sum(share.size for share in found.values())
        found[joins[0]] = found[joins[0]]._replace(size=max(found[joins[0]].size + spare, 1))
        return found

    def _move(self, joins: Sequence[PooledJoin]) -> None:
        step, weights = max(self.size // _STEPS, 1), [self._recent(join) for join in joins]
        sizes = [self.share_of(join) for join in joins]
        for _ in range(_MOVES):
            now = [join.finds(size) for join, size in zip(joins, sizes, strict=True)]
            gains, losses = [], []
            for join, size, found, weight in zip(joins, sizes, now, weights, strict=True):
                gains.append(weight * (join.finds(size + step) - found))
                losses.append(weight * max(found - join.finds(size - step), 0.0) if size > step else np.inf)
            ways = [(to, of) for to in range(len(joins)) for of in range(len(joins)) if to != of]
            to, of = max(ways, key=lambda way: gains[way[0]] - _MORE * losses[way[1]])
            if not gains[to] > _MORE * losses[of]:
                break
            sizes[of], sizes[to] = sizes[of] - step, sizes[to] + step
        self._shares = {_number(join): _Share(size, join.arrivals) for join, size in zip(joins, sizes, strict=True)}

    # -- images ------------------------------------------------------------------------------------------------------

    def image(self) -> Codes:
        """Return the shares between two epochs."""
        entries = [[join, *share] for join, share in sorted(self._shares.items())]
        return np.array([[self._version, 0, 0], *entries], np.int64)

    def restore(self, image: Codes | None) -> None:
        """Take the shares of an image, unless those here are newer; raise StaleImage if there are none."""
        if image is None or image.ndim != 2 or image.shape[1] != 3 or not len(image) or image.dtype != np.int64:
            raise StaleImage("no shares of a pool of memory")
        if image[0, 0] > self._version or not self._shares:
            self._version = int(image[0, 0])
            self._shares = {join: _Share(size, looked) for join, size, looked in image[1:].tolist()}


def _number(join: PooledJoin) -> int:
    """Return a number for what a join is, the same in every process."""
    return int.from_bytes(hashlib.sha256(join.fingerprint.encode()).digest()[:7])
