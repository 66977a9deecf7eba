"""Letters: what partitions write to each other when more than rows has to be said.

A letter is a column of int64 words, so that it travels as any batch does, and holds packets. A packet begins with its
length in bytes; letters put behind one another are again a letter. What is in a packet, writer and reader must agree
on: runs of numbers, each as long as it needs to be, and bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from whence.engine.core.operator import Batch
from whence.engine.exchange.kernels import wire as kernels
from whence.model.codes import Codes
from whence.model.errors import DataError


def packed_size(rows: Codes) -> int:
    """The bytes of rows, or of any numbers, in a packet.

    >>> packed_size(np.array([[0, -1], [63, 64]]))
    5
    """
    return int(kernels.packed_size(np.ascontiguousarray(rows, np.int64).reshape(-1)))


class MessageWriter:
    """A packet to be written.

    >>> packet = MessageWriter().numbers(np.array([1, -2**63])).numbers(np.array([300])).data(b"abc")
    >>> (back,) = packets(packet.letter())
    >>> back.numbers().tolist(), back.numbers().tolist(), back.data()
    ([1, -9223372036854775808], [300], b'abc')
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def numbers(self, numbers: Codes) -> MessageWriter:
        """A run of numbers, of whatever shape."""
        flat = np.ascontiguousarray(numbers, np.int64).reshape(-1)
        self._parts.append(kernels.write(np.array([len(flat)], np.int64)).tobytes())
        self._parts.append(kernels.write(flat).tobytes())
        return self

    def data(self, data: bytes) -> MessageWriter:
        self._parts += [kernels.write(np.array([len(data)], np.int64)).tobytes(), data]
        return self

    @property
    def size(self) -> int:
        """In bytes, before it is rounded up to words."""
        return sum(map(len, self._parts))

    def letter(self) -> Batch:
        """The packet as a letter."""
        whole = b"".join(self._parts)
        words = np.zeros(1 + -(-len(whole) // 8), np.int64)
        words[0] = len(whole)
        words[1:].view(np.uint8)[: len(whole)] = np.frombuffer(whole, np.uint8)
        return Batch(words.reshape(-1, 1), np.ones(len(words), np.int64))


class MessageReader:
    """A packet that is read, part by part in the order in which they were written."""

    def __init__(self, data: np.ndarray):
        self._data, self._at = data, 0

    def numbers(self) -> Codes:
        return self._read(self._length())

    def pairs(self) -> list[list[int]]:
        """A run of numbers, two by two."""
        found = self.numbers()
        if len(found) % 2:
            raise DataError("truncated message from another partition")
        pairs: list[list[int]] = found.reshape(-1, 2).tolist()
        return pairs

    def table(self, rows: int, columns: int) -> Codes:
        """A run of numbers that must be so many rows; each of them has something to say, so there are not more of
        them than bytes."""
        found = self.numbers()
        if not 0 <= rows <= len(self._data) or len(found) != rows * columns:
            raise DataError("a letter from another partition does not have the rows that it says")
        return found.reshape(rows, columns)

    def data(self) -> bytes:
        length = self._length()
        start, self._at = self._at, self._at + length
        if self._at > len(self._data):
            raise DataError("truncated message from another partition")
        return self._data[start : self._at].tobytes()

    @property
    def ended(self) -> bool:
        return self._at >= len(self._data)

    def end(self) -> None:
        """Nothing must be left."""
        if not self.ended:
            raise DataError("a letter from another partition goes on after its end")

    def _length(self) -> int:
        length = int(self._read(1)[0])
        if not 0 <= length <= len(self._data) - self._at:
            raise DataError("truncated message from another partition")
        return length

    def _read(self, count: int) -> Codes:
        out = np.empty(count, np.int64)
        self._at = int(kernels.read(self._data, self._at, out))
        if self._at < 0:
            raise DataError("truncated message from another partition")
        return out


def packets(letter: Batch) -> Iterator[MessageReader]:
    """The packets of a letter, in their order."""
    words = np.ascontiguousarray(letter.rows, np.int64).reshape(-1)
    at = 0
    while at < len(words):
        length = int(words[at])
        end = at + 1 + -(-length // 8)
        if length < 0 or end > len(words):
            raise DataError("truncated message from another partition")
        yield MessageReader(words[at + 1 : end].view(np.uint8)[:length])
        at = end
