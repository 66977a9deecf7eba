"""Hold a pool of integer sequences (`kernels/pool.py`): its arrays, their growth, and its images."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whence.annotate.kernels import pool as po
from whence.model.errors import DataError
from whence.model.record import KernelRecord

_MOST = 0x7FFFFFFF  # sequences in one pool: a note and a table entry have 32 bits for a number


class Pool:
    """Sequences of int32, each stored once, numbered from 0 in order of their first appearance."""

    def __init__(self) -> None:
        self.k = self._empty(64, 256)

    @staticmethod
    def _empty(sequences: int, items: int) -> KernelRecord:
        return KernelRecord(
            po.POOL,
            items=np.zeros(items, np.int32),
            spans=np.zeros((sequences, 4), np.int64),
            table=np.full(1 << (2 * sequences).bit_length(), -1, np.int64),
            scalar=np.array([0, 0, 1, 0, 0], np.int64),
        )

    @property
    def address(self) -> int:
        return self.k.address

    @property
    def count(self) -> int:
        return int(self.k.scalar[po.P_COUNT])

    @property
    def used(self) -> int:
        return int(self.k.scalar[po.P_USED])

    @property
    def spans(self) -> np.ndarray:
        return self.k.spans

    @property
    def items(self) -> np.ndarray:
        return self.k.items[: self.used]

    def add(self, sequence: tuple[int, ...]) -> int:
        """Return the number of a sequence, with no mark."""
        while (number := po.add(self.address, np.array(sequence, np.int64))) < 0:
            self.grow()
        return number

    def sequence(self, number: int) -> tuple[int, ...]:
        start, length = self.k.spans[number, :2].tolist()
        return tuple(self.k.items[start : start + length].tolist())

    def stamp(self) -> None:
        """Make all notes void."""
        scalar = self.k.scalar
        scalar[po.P_STAMP] += 1
        if scalar[po.P_STAMP] >= _MOST:
            self.k.spans[:, po.NOTE] = 0
            scalar[po.P_STAMP] = 1

    def grow(self) -> bool:
        """Make the room that a kernel wanted; whether it wanted any."""
        k, s = self.k, self.k.scalar
        sequences, items = int(s[po.P_SPANS]), int(s[po.P_ITEMS])
        if not sequences and not items:
            return False
        s[po.P_SPANS] = s[po.P_ITEMS] = 0
        count = self.count + sequences
        if (wanted := self.used + items) > len(k.items):
            more = np.zeros(max(wanted, 2 * len(k.items)), np.int32)
            more[: self.used] = k.items[: self.used]
            k.replace(items=more)
        if count > _MOST:
            raise MemoryError(f"{count:,} parts of annotations")
        if count > len(k.spans):
            spans = np.zeros((max(count, 2 * len(k.spans)), 4), np.int64)
            spans[: self.count] = k.spans[: self.count]
            k.replace(spans=spans)
        if 2 * count > len(k.table):
            old = k.table
            k.replace(table=np.full(1 << (3 * count).bit_length(), -1, np.int64))
            po.rehash(k.address, old)
        return True

    def keep_noted(self, rename: Callable[[], None] = lambda: None) -> np.ndarray:
        """Forget the sequences without a note; where each went (-1: nowhere). `rename` may change the items kept."""
        old, count = self.k, self.count
        noted = (old.spans[:count, po.NOTE] >> 32) == old.scalar[po.P_STAMP]
        kept, used = int(noted.sum()), int(old.spans[:count, po.LENGTH][noted].sum())
        self.k = self._empty(max(64, kept + kept // 4), max(256, used + used // 4))
        po.copy_noted(old.address, self.k.address)
        rename()
        po.fill_table(self.k.address)
        return np.where(noted, old.spans[:count, po.NOTE] & po.LOW, -1)

    def image(self, name: str) -> dict[str, np.ndarray]:
        return {
            f"{name}_items": self.k.items[: self.used],
            f"{name}_lengths": np.ascontiguousarray(self.k.spans[: self.count, po.LENGTH]),
        }

    def restore(self, image: dict[str, np.ndarray], name: str) -> None:
        """Take the sequences of an image, with no marks; DataError if it is none."""
        items, lengths = image.get(f"{name}_items"), image.get(f"{name}_lengths")
        if items is None or lengths is None or (lengths < 0).any() or int(lengths.sum()) != len(items):
            raise DataError(f"the {name} of annotations are not as they were written")
        count, used = len(lengths), len(items)
        self.k = self._empty(max(64, count + count // 4), max(256, used + used // 4))
        self.k.items[:used] = items
        self.k.spans[:count, po.LENGTH] = lengths
        self.k.spans[:count, po.START] = np.cumsum(lengths) - lengths
        self.k.scalar[po.P_COUNT], self.k.scalar[po.P_USED] = count, used
        po.fill_table(self.k.address)
