"""Messages between partitions: a batch by a channel, to one partition or to all.

A channel is named by the fingerprint of the operator that uses it, so it is the same in every partition. `rows` and
`bytes` are what the message counts for in metrics: the bytes of rows are those of the numbers in them, each as long as
it needs to be (`wire.py`), and one for a sign, so that plain rows compare with rows that carry their annotations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from whence.engine.core.operator import Batch
from whence.engine.exchange.wire import packed_size

EVERYWHERE = -1  # as a destination: all partitions, the sender too


class PartitionMessage(NamedTuple):
    """What an operator sends by a channel to a partition, and the stage of the epoch that it is for."""

    channel: str
    to: int
    batch: Any  # a Batch; between processes perhaps a reference to one, see runtime/spark/worker/spill.py
    rows: int
    bytes: int
    stage: int = 0


def message_of_rows(channel: str, to: int, batch: Batch) -> PartitionMessage:
    """Address plain rows."""
    return PartitionMessage(channel, to, batch, len(batch), packed_size(batch.rows) + len(batch))
