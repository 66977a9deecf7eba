"""Mailbox: which rows of a recursive component live in other partitions, and how they are reached.

A component that crosses partitions has local rules (`plan/partitions/exchange.py`): they read external rows and
**copies** of derived rows, and derive rows that are **sent** to the copies they belong to. To the local rules a copy is
one more external relation, so they are not recursive; or, under the policy support, it is derived from what was sent.
A view is read from its **home**, one of its copies.

Without peers there are no copies, nothing is sent, and what rules derive is what the operator publishes: an empty
mailbox costs nothing. What a message says is the policy's business: rows and their ranks (`ranked_messages.py`), rows
(`senders.py`), or rows with their annotations (`annotated_messages.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from whence.engine.exchange.ship import targets
from whence.model.codes import Codes
from whence.plan.partitions.exchange import Copy, Exchange
from whence.plan.recursion.rule_model import RuleProgram, RuleRelation
from whence.plan.recursion.settings import Maintain


class Mailbox:
    """The addresses of one partition's share of a component; `channel` begins the names of its channels, which are the
    same in every partition: by `channels`, one for each copy, rows come. Masks are by relation."""

    def __init__(
        self,
        program: RuleProgram,
        spec: Exchange | None = None,
        partition: int = 0,
        partitions: int = 1,
        channel: str = "",
    ):
        self.spec, self.partition, self.partitions, self.channel = spec, partition, partitions, channel
        self.copies: dict[int, tuple[Copy, ...]] = {} if spec is None else dict(spec.copies)  # by derived relation
        self.channels = [f"{channel}/{copy.relation}" for copies in self.copies.values() for copy in copies]
        self.copied = {copy.relation for copies in self.copies.values() for copy in copies}
        relations = program.relations
        derived = [number for number, r in enumerate(relations) if r.kind in ("set", "best")]
        self.ranked = spec is not None and spec.ranked  # rows are sent with their ranks
        self.crossing = mask(relations, self.copies)
        self.sent = mask(relations, () if self.ranked else self.copies)  # rows that kernels write down to be sent
        self.published = mask(relations, derived if spec is None else program.outputs.values())
        self.externals = [
            number
            for number, r in enumerate(relations)
            if r.kind in ("external", "absence") and number not in self.copied
        ]

    @property
    def shared(self) -> bool:
        """Return whether the component is shared with other partitions, so that an epoch takes messages."""
        return self.spec is not None

    def admit(self, policy: str | Maintain) -> str | Maintain:
        """Return the policy under which rows go through this mailbox: `support` needs the ranks of rows that others
        send, so what was planned before these were sent goes by DRed."""
        return "dred" if self.shared and not self.ranked and policy == "support" else policy

    def route(self, copy: Copy, cells: Codes) -> Codes | None:
        """Return the partition that each row of a copy belongs to; None: each belongs to all of them."""
        return None if copy.cols is None else targets(cells, copy.cols, self.partitions)


def mask(relations: list[RuleRelation], some: Iterable[int]) -> Codes:
    """Return 1 for the relations that are among `some`, 0 for the others."""
    found = np.zeros(len(relations), np.int64)
    found[list(some)] = 1
    return found
