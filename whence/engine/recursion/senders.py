"""Senders: messages of rows that partitions derive for each other, under DRed.

Law: between two epochs the multiplicity of a row of a copy is the number of its **senders**, the partitions that derive
it. A message adds a sender (+1) or takes one away (-1).

While rows are over-deleted the first -1 takes a row out of its copy, whatever its other senders; how many are left is
remembered, and such rows are fed again before anything is derived. Under MIN and MAX a row is a group and the best
value that a sender has for it: each value is sent as it is found, and at the end senders take back what they have
bettered. Nothing stands on such a value any more, since rules read only the best.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from whence.engine.core.batch import concat, consolidate
from whence.engine.core.operator import Batch
from whence.engine.exchange.messages import EVERYWHERE, PartitionMessage, message_of_rows
from whence.engine.exchange.ship import parted
from whence.engine.recursion.kernels import externals as ext
from whence.engine.recursion.kernels import mailbox as mb
from whence.engine.recursion.kernels import store as st
from whence.engine.recursion.mailbox import Mailbox
from whence.engine.recursion.rule_runner import NO_LIMIT, RuleRunner
from whence.model.codes import Codes


class Senders:
    """What a partition sends in an epoch, and what it has to know of the copies that others send to."""

    def __init__(self, runner: RuleRunner, mailbox: Mailbox):
        self._runner, self._mailbox = runner, mailbox
        self._outbox: dict[tuple[int, int], list[Batch]] = {}  # by copy and partition
        self.begin()

    def begin(self) -> None:
        """Begin an epoch."""
        self._outbox.clear()
        self._found: list[tuple[int, Codes]] = []  # derived rows with values that were sent while deriving
        self._suspended: list[Codes] = []  # rows taken out of copies: +senders before, and -1 for each that is gone
        self._touched = NO_LIMIT  # rows touched before deriving began

    @property
    def are_suspended(self) -> bool:
        """Return whether rows were taken out of copies."""
        return bool(self._suspended)

    # -- receiving ---------------------------------------------------------------------------------------------------

    def read(self, received: Mapping[str, Batch]) -> Codes:
        """Return what came by the channels, as changes of copies."""
        return self._runner.joined(
            [
                self._runner.changes(int(channel.rpartition("/")[2]), consolidate(batch))
                for channel, batch in received.items()
            ]
        )

    def suspend(self, mail: Codes) -> Codes:
        """Return the changes that take rows out of copies because a sender lost them: all their senders go."""
        senders = np.empty(len(mail), np.int64)
        ext.multiplicities(self._runner.store.k.address, mail, senders)
        alive = senders > 0
        dying, before = mail[alive], mail[alive]
        dying[:, 1], before[:, 1] = -senders[alive], senders[alive]
        self._suspended += [before, mail]
        return dying

    def resume(self) -> Codes:
        """Begin to derive: return the rows taken out of copies that still have senders."""
        self._touched = int(self._runner.store.k.scalar[st.S_TOUCHED])
        if not self._suspended:
            return self._runner.joined([])
        left = self._runner.added_up(self._suspended)
        self._suspended = []
        return left[left[:, 1] > 0]

    # -- sending -----------------------------------------------------------------------------------------------------

    def post(self, sign: int) -> Codes:
        """Address the derived rows that kernels have written down; return what is for this partition itself."""
        if not self._mailbox.shared:
            return self._runner.joined([])
        block = self._runner.take_sent()
        own: list[Codes] = []
        start = 1 + self._runner.rules.atoms
        for head in self._mailbox.copies:
            relation = self._runner.program.relations[head]
            rows = block[block[:, 0] == -1 - head, start : start + len(relation.schema)]
            if len(rows):
                rows = np.ascontiguousarray(rows)
                if sign > 0 and relation.kind == "best":
                    self._found.append((head, rows))
                own += self._address(head, Batch(rows, np.full(len(rows), sign, np.int64), True))
        return self._runner.joined(own)

    def retract(self) -> Codes:
        """Take back what was sent before this epoch or in it, and is no longer the best value that this partition has;
        return what is for this partition itself."""
        runner = self._runner
        k = runner.store.k
        start = min(self._touched, int(k.scalar[st.S_TOUCHED]))
        old = np.empty((int(k.scalar[st.S_TOUCHED]) - start, 2 + runner.rules.columns), np.int64)
        old = old[: mb.superseded(k.address, start, self._mailbox.sent, old)]
        own: list[Codes] = []
        for head in self._mailbox.copies:
            width = len(runner.program.relations[head].schema)
            rows = [old[old[:, 0] == head, 2 : 2 + width], *(r for of, r in self._found if of == head)]
            gone = np.ascontiguousarray(np.concatenate(rows))
            gone = gone[runner.store.holds(head, gone) == 0]
            own += self._address(head, Batch(gone, np.full(len(gone), -1, np.int64), True))
        return runner.joined(own)

    def _address(self, head: int, batch: Batch) -> list[Codes]:
        """Put derived rows into the outbox for each of their copies; return what is for this partition itself."""
        own: list[Codes] = []
        box = self._mailbox
        for copy in box.copies[head] if len(batch) else ():
            if copy.cols is None and box.partitions > 1:
                self._outbox.setdefault((copy.relation, EVERYWHERE), []).append(batch)
                continue
            for to, part in parted(batch, copy.cols or (), box.partitions).items():
                if to == box.partition:
                    own.append(self._runner.changes(copy.relation, part))
                else:
                    self._outbox.setdefault((copy.relation, to), []).append(part)
        return own

    def messages(self) -> list[PartitionMessage]:
        """Take what is in the outbox."""
        found = [
            message_of_rows(f"{self._mailbox.channel}/{copy}", to, concat(batches, batches[0].rows.shape[1]))
            for (copy, to), batches in self._outbox.items()
        ]
        self._outbox.clear()
        return found
