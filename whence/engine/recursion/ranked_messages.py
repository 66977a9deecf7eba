"""Ranked messages: rows that partitions derive for each other, with the ranks they have where they are derived.

Law: between two epochs a row of a `sent` relation is there exactly while the partition that it names derives the row,
with the value and the rank that it has there. So a message says what has changed of a row in a round, and nothing has
to be counted: the row with its value and rank, or that it is withdrawn.

What is sent must follow from the commands that a partition has had, and not from its slots: a copy that was restored
from its image, or has undone other epochs, takes over in the middle. So what a row stands on is never sent, and the
ranks that are sent do not depend on it: whether a row can be held by rows of smaller rank does not, and a row that
comes has the smallest rank of its derivations (`kernels/derive.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from whence.engine.core.operator import Batch
from whence.engine.exchange.messages import EVERYWHERE, PartitionMessage, message_of_rows
from whence.engine.exchange.ship import parted
from whence.engine.recursion.kernels import mailbox as mb
from whence.engine.recursion.kernels import store as st
from whence.engine.recursion.mailbox import Mailbox
from whence.engine.recursion.rule_runner import RuleRunner
from whence.model.codes import Codes


class RankedMessages:
    """What a partition sends and receives of ranked rows in a round. A row of a message has the cells of the `sent`
    relation, then the rank; it counts -1 if it is withdrawn."""

    def __init__(self, runner: RuleRunner, mailbox: Mailbox):
        self._runner, self._mailbox = runner, mailbox

    def receive(self, received: Mapping[str, Batch]) -> None:
        """Take what came by the channels."""
        runner, parts = self._runner, []
        for channel, batch in received.items():
            relation = int(channel.rpartition("/")[2])
            described = runner.program.relations[relation]
            width, sender = len(described.schema), described.keys - 1
            others = batch.rows[:, sender] != self._mailbox.partition  # what goes everywhere comes here, too
            part = np.zeros((int(others.sum()), 2 + runner.rules.columns), np.int64)
            part[:, 0], part[:, 2 : 2 + width] = relation, batch.rows[others, :width]
            part[:, 1] = np.where(batch.ann[others] > 0, batch.rows[others, width], -1)
            parts.append(part)
        if parts:
            runner.call(mb.deliver, runner.joined(parts), restart=True)

    def send(self) -> list[PartitionMessage]:
        """End a round: return what others have to know of the rows that changed in it."""
        k, box, runner = self._runner.store.k, self._mailbox, self._runner
        if not int(k.scalar[st.S_OPENED]):
            return []
        if int(k.scalar[st.S_DOUBTS]):
            runner.call(mb.settle_doubts, restart=True)
        changed = np.empty((int(k.scalar[st.S_OPENED]), 2 + runner.rules.columns), np.int64)
        changed = changed[: mb.close_round(k.address, box.crossing, changed)]
        found: list[PartitionMessage] = []
        for head, copies in box.copies.items() if box.partitions > 1 and len(changed) else ():
            rows = changed if len(box.copies) == 1 else changed[changed[:, 0] == head]
            batch = self._batch(head, rows)
            for copy in copies if len(rows) else ():
                parts = {EVERYWHERE: batch} if copy.cols is None else parted(batch, copy.cols, box.partitions)
                channel = f"{box.channel}/{copy.relation}"
                found += [message_of_rows(channel, to, part) for to, part in parts.items() if to != box.partition]
        return found

    def _batch(self, head: int, changed: Codes) -> Batch:
        """Return the changed rows of a derived relation as rows of a message."""
        relation = self._runner.program.relations[head]
        keys, width = relation.keys, len(relation.schema)
        rows = np.zeros((len(changed), width + 2), np.int64)
        alive = changed[:, 1] >= 0
        rows[:, :keys], rows[:, keys] = changed[:, 2 : 2 + keys], self._mailbox.partition
        rows[alive, keys + 1 : width + 1] = changed[alive, 2 + keys : 2 + width]
        rows[alive, width + 1] = changed[alive, 1]
        return Batch(rows, np.where(alive, 1, -1), True)
