"""What partitions send each other, counted in one way for all who send: letters, rows and bytes to other partitions.

The bytes of rows are those of the numbers in them, each as long as it needs to be (`letters.py`), and one for a sign;
so rows that go as they are compare with rows that go in packets with their annotations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from whence.engine.core.operator import Batch
from whence.engine.exchange.wire import packed_size

EVERYWHERE = -1  # as a destination


class Traffic(NamedTuple):
    """What was sent; one letter to each of some partitions is as many messages."""

    messages: int = 0
    rows: int = 0
    bytes: int = 0

    def plus(self, other: Traffic) -> Traffic:
        return Traffic(*(a + b for a, b in zip(self, other, strict=True)))


class Shipped(NamedTuple):
    """In the last epoch that was kept, and in all."""

    epoch: Traffic = Traffic()
    total: Traffic = Traffic()

    def after(self, epoch: Traffic) -> Shipped:
        return Shipped(epoch, self.total.plus(epoch))


class Letter(NamedTuple):
    """What an operator sends by a channel to a partition, or to all (EVERYWHERE, which means the sender too)."""

    channel: str
    to: int
    batch: Batch
    rows: int
    bytes: int


def letter_of_rows(channel: str, to: int, batch: Batch) -> Letter:
    """Rows that go as they are."""
    return Letter(channel, to, batch, len(batch), packed_size(batch.rows) + len(batch))


def counted(to: int, rows: int, bytes: int, sender: int, partitions: int) -> Traffic:
    """What one letter of so many rows and bytes counts for."""
    others = partitions - 1 if to == EVERYWHERE else int(to != sender)
    return Traffic(others, others * rows, others * bytes)


def kept(shipped: Mapping[str, Shipped], epoch: Mapping[str, Traffic]) -> dict[str, Shipped]:
    """The counts of all senders after an epoch in which some of them sent something."""
    names = dict.fromkeys((*shipped, *epoch))
    return {name: shipped.get(name, Shipped()).after(epoch.get(name, Traffic())) for name in names}
