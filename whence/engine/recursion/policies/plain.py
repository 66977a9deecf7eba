"""What policies without annotations have in common: a row is there or not, and a deletion withdraws and searches again.

Law: when a phase REMOVE ends in all partitions, every row that is left is derivable; DERIVE adds only what is derived
from such rows, and all of it. The rows of a state are a function of the external rows (and, of a partition, of what its
copies were sent), so an epoch is rewound by feeding what takes its changes back, or, if it broke off in the middle, by
deriving anew from what the store was fed. What fails on the way back is passed over, so neither can break off.
"""

from __future__ import annotations

from collections.abc import Mapping

from whence.engine.core.epoch_context import EpochContext
from whence.engine.core.image import Image
from whence.engine.core.operator import Batch
from whence.engine.exchange.messages import PartitionMessage
from whence.engine.recursion.kernels import externals as ext
from whence.engine.recursion.kernels import fixpoint as fx
from whence.engine.recursion.kernels import store as st
from whence.engine.recursion.mailbox import Mailbox
from whence.engine.recursion.policies.policy import PEER_ROUNDS, REMOVE, Policy
from whence.engine.recursion.rule_runner import NO_LIMIT, LimitReached, RuleRunner
from whence.engine.recursion.slot_store import SlotStore
from whence.model.codes import Codes


class PlainPolicy(Policy):
    """Rows that stand on derivations: `withdraw` is what support and dred do differently, and what they send."""

    def __init__(self, runner: RuleRunner, mailbox: Mailbox):
        self._log: list[Codes] = []  # all that was fed in this epoch
        self._logged = True
        self.valued = any(relation.kind == "best" for relation in runner.program.relations)
        super().__init__(runner, mailbox)

    def withdraw(self) -> None:
        """Withdraw what loses its derivation by the rows that were fed or posted last."""
        raise NotImplementedError

    def rederive(self) -> None:
        """Search withdrawn rows again among those that live."""
        self.runner.call(fx.rederive, restart=True)

    # -- an epoch ----------------------------------------------------------------------------------------------------

    def begin(self, context: EpochContext, logged: bool = True, known: int = 0) -> None:
        super().begin(context, logged, known)
        self._log, self._logged = [], logged
        limits, counted = self.runner.limits, self.mailbox.shared
        self._rounds, self._most = 0, limits.rounds(PEER_ROUNDS) if counted else NO_LIMIT

    def waits(self, phase: int) -> bool:
        if phase <= self._phase:
            return False
        if phase == REMOVE:
            return len(self.removing) > 0
        return len(self.adding) > 0 or int(self.runner.store.k.scalar[st.S_WITHDRAWN]) > 0

    def work(self, phase: int, received: Mapping[str, Batch]) -> list[PartitionMessage]:
        self._enter(phase)
        if phase == REMOVE:
            self._feed(self.removing, True)
            self.withdraw()
        else:
            self.rederive()
            self._feed(self.adding, False)
            self.runner.propagate()
        return []

    def count_round(self) -> None:
        """Stop a recursion that goes on for too many rounds of all partitions."""
        self._rounds += 1
        if self._rounds > self._most and not self._context.replaying:
            raise LimitReached(f"{self._most:,} rounds")

    def _feed(self, changes: Codes, deleting: bool) -> None:
        """Apply changes that take derivations away, or that bring them; logged as far as done."""
        if not len(changes):
            return
        try:
            self.runner.call(ext.feed, changes, deleting, restart=True)
        finally:
            if self._logged:
                self._log.append(changes[: int(self.runner.store.k.scalar[st.S_CURSOR])])

    @property
    def suspects(self) -> Codes:
        """Return the external changes that bring derivations, or else what came by a message."""
        found = self.adding
        return found if len(found) else next((fed for fed in reversed(self._log) if len(fed)), found)

    def commit(self) -> None:
        self._log = []
        self.runner.store.compact()

    # -- going back --------------------------------------------------------------------------------------------------

    def rewind(self, broken: bool) -> None:
        if not self._logged:  # it was being filled, and is given up
            self.start()
            return
        runner = self.runner
        back = runner.added_up(self._log)
        back[:, 1] *= -1
        if broken:
            back = runner.added_up([runner.external_rows(), back])
            self.start()
        runner.limit(limited=False)
        removing, adding = runner.split(back)
        self._feed(removing, True)
        self.withdraw()
        self.rederive()
        self._feed(adding, False)
        runner.propagate()
        runner.forget_touched()
        self._log = []
        runner.store.compact()

    def set_aside(self) -> SlotStore:
        state = self.runner.store
        self.start()
        return state

    def put_back(self, state: object) -> None:
        assert isinstance(state, SlotStore)
        self.runner.store, self._log, self._logged = state, [], True

    # -- state -------------------------------------------------------------------------------------------------------

    @property
    def channels(self) -> list[str]:
        return self.mailbox.channels

    def image(self) -> Image:
        return self.runner.store.image()

    def restore(self, image: Image) -> None:
        self.runner.store.restore(image)
