"""DRed: a deletion over-deletes whatever has some derivation through a dead row, then derives again what still can be.

Rows keep no derivations, so they are small, and rows of other partitions can take part: a dead row leaves every copy
that any rule reads it from.

Why it is right. REMOVE kills every row that has some derivation through a dead row, in whatever partition. A row that
stays has all its derivations whole; one of them began in external rows, none of its rows died (or it would have died
too), so it stands. A derived row that a sender still has is such a row, though its copy is gone for now. So what lives
when DERIVE begins is derivable, and DERIVE adds only what is derived from it: rows cannot keep each other alive across
partitions. In the end nothing derivable is missing: a row that died is either found by the search, from what lived
then, or derived from what was fed later, and each row that is fed is joined with all that is there. Messages of one
phase only take away, or only add, so their order does not matter; a sender is counted out once when its row dies and in
once when it lives again.

Cost: what is over-deleted and derived, each row sent once to each of its copies; rounds: at most the steps of the
longest derivation that the epoch follows.
"""

from __future__ import annotations

from collections.abc import Mapping

from whence.engine.core.epoch_context import EpochContext
from whence.engine.core.operator import Batch
from whence.engine.exchange.messages import PartitionMessage
from whence.engine.recursion.kernels import externals as ext
from whence.engine.recursion.kernels import fixpoint as fx
from whence.engine.recursion.kernels import store as st
from whence.engine.recursion.mailbox import Mailbox
from whence.engine.recursion.policies.plain import PlainPolicy
from whence.engine.recursion.policies.policy import DERIVE, REMOVE, TIDY
from whence.engine.recursion.rule_runner import NO_LIMIT, LimitReached, RuleRunner
from whence.engine.recursion.senders import Senders
from whence.model.codes import Codes


class DRed(PlainPolicy):
    """Withdraws rows that have some derivation through a dead row."""

    name = "dred"

    def __init__(self, runner: RuleRunner, mailbox: Mailbox):
        self.senders = Senders(runner, mailbox)
        super().__init__(runner, mailbox)
        self.phases = 3 if self.valued and mailbox.shared else 2

    def start(self) -> None:
        super().start()
        if self.mailbox.spec is not None:
            self.runner.store.k.scalar[st.S_FORGETS] = self.mailbox.spec.forgets

    def withdraw(self) -> None:
        self.runner.call(fx.overdelete, self.mailbox.sent)

    # -- an epoch ----------------------------------------------------------------------------------------------------

    def begin(self, context: EpochContext, logged: bool = True, known: int = 0) -> None:
        super().begin(context, logged, known)
        self.senders.begin()
        # Without peers the kernels count.
        self._steps = self.runner.limits.depth if self.mailbox.shared else NO_LIMIT

    def waits(self, phase: int) -> bool:
        if phase <= self._phase:
            return False
        if phase == TIDY:
            return int(self.runner.store.k.scalar[st.S_TOUCHED]) > 0
        return super().waits(phase) or (phase == DERIVE and self.senders.are_suspended)

    def work(self, phase: int, received: Mapping[str, Batch]) -> list[PartitionMessage]:
        first, mail = self._enter(phase), self.senders.read(received)
        if phase == REMOVE:
            self._remove(mail, first)
        elif phase == DERIVE:
            self._derive(mail, first)
        else:
            self._discount(mail)
            if first:
                self._discount(self.senders.retract())
        return self.senders.messages()

    def _remove(self, mail: Codes, first: bool) -> None:
        if first:
            self._feed(self.removing, True)
        while True:
            if len(mail):
                self._feed(self.senders.suspend(mail), True)
            self.withdraw()
            mail = self.senders.post(-1)
            if not len(mail):
                return

    def _derive(self, mail: Codes, first: bool) -> None:
        self.count_round()
        if first:
            resumed = self.senders.resume()
            self.rederive()
            self._feed(resumed, False)
            self._feed(self.adding, False)
        steps = 0
        while True:
            self._feed(mail, False)
            self.runner.propagate()
            mail = self.senders.post(1)
            if not len(mail):
                return
            steps += 1
            if steps > self._steps and not self._context.replaying:
                raise LimitReached()

    def _discount(self, changes: Codes) -> None:
        ext.discount(self.runner.store.k.address, changes)
        if self._logged:
            self._log.append(changes)
