"""Count what partitions send each other, in one way for all senders: messages, rows and bytes to other partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from whence.engine.exchange.messages import EVERYWHERE, PartitionMessage


class Traffic(NamedTuple):
    """What was sent; a message to several partitions counts once for each."""

    messages: int = 0
    rows: int = 0
    bytes: int = 0

    def plus(self, other: Traffic) -> Traffic:
        return Traffic(self.messages + other.messages, self.rows + other.rows, self.bytes + other.bytes)


class Shipped(NamedTuple):
    """In the last committed epoch, and in all."""

    epoch: Traffic = Traffic()
    total: Traffic = Traffic()

    def after(self, epoch: Traffic) -> Shipped:
        return Shipped(epoch, self.total.plus(epoch))


def counted(message: PartitionMessage, sender: int, partitions: int) -> Traffic:
    """Return what one message counts for."""
    others = partitions - 1 if message.to == EVERYWHERE else int(message.to != sender)
    return Traffic(others, others * message.rows, others * message.bytes)


def sender_of(message: PartitionMessage) -> str:
    """Return the fingerprint of the operator that sends a message."""
    return message.channel.partition("/")[0]


def after_epoch(shipped: Mapping[str, Shipped], epoch: Mapping[str, Traffic]) -> dict[str, Shipped]:
    """Return the counts of all senders after an epoch in which some of them sent something."""
    names = dict.fromkeys((*shipped, *epoch))
    return {name: shipped.get(name, Shipped()).after(epoch.get(name, Traffic())) for name in names}
