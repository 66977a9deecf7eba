"""Support: every derived row keeps one derivation, its *chosen* one, and loses nothing while that stands.

Law: the derived rows of a chosen derivation have smaller ranks than the row itself, so chosen derivations form no cycle
and a row whose derivation stands is derivable. Rows that lose theirs are looked at in order of rank
(`kernels/fixpoint.py`): a deletion costs what stands on it, not what could be derived through it.

With peers there is one level more: a row of a copy is derived from the row as a partition has sent it, whose rank is
the one that the row has there (`ranked_messages.py`). So chosen derivations descend in rank through all partitions, and
rows that are derived from each other cannot hold each other up, wherever they are. A sender that withdraws a row says
so; the copy looks for another sender of no larger rank, and only then withdraws the row here. Nothing is derived until
all partitions are done with that, and then a row may stand on whatever lives.

    REMOVE        withdrawals go on until no message is in flight
    DERIVE        what comes back and what is new; a row takes the smallest rank that its derivations of that round
                  give it: from then on its rank is known to others, and stays
    REMOVE again  under MIN and MAX a row may get a better value with a larger rank, and hold rows up whose own value
    DERIVE again  stays: these look for another derivation of smaller rank, or are withdrawn and derived again

Undo is exact, ranks included, and takes no messages: rows that the epoch touched are as they were, and stand on some
derivation of smaller rank, for there is one.

Cost with peers: messages for rows that lose, in a partition, all that they could stand on there, and for rows that come
or get better; not for what is reachable from what goes.
"""

from __future__ import annotations

from collections.abc import Mapping

from whence.engine.core.epoch_context import EpochContext
from whence.engine.core.operator import Batch
from whence.engine.exchange.messages import PartitionMessage
from whence.engine.recursion.kernels import fixpoint as fx
from whence.engine.recursion.kernels import store as st
from whence.engine.recursion.limits import described
from whence.engine.recursion.mailbox import Mailbox
from whence.engine.recursion.policies.plain import PlainPolicy
from whence.engine.recursion.policies.policy import DERIVE, REMOVE
from whence.engine.recursion.ranked_messages import RankedMessages
from whence.engine.recursion.rule_runner import RuleRunner
from whence.model.codes import Codes

REMOVE_AGAIN, DERIVE_AGAIN = 2, 3


class Support(PlainPolicy):
    """Withdraws rows by rank, when they have no other derivation from rows of smaller rank."""

    name = "support"
    layout = st.SUPPORT

    def __init__(self, runner: RuleRunner, mailbox: Mailbox):
        self.messages = RankedMessages(runner, mailbox)
        self._touched: Codes | None = None  # in the epoch that can still be undone, once `collect` has forgotten them
        super().__init__(runner, mailbox)
        self.phases = 4 if self.valued and mailbox.shared else 2

    def withdraw(self) -> None:
        self.runner.call(fx.withdraw)

    def rederive(self) -> None:
        super().rederive()
        self.runner.store.make_hopeful()

    # -- an epoch ----------------------------------------------------------------------------------------------------

    def begin(self, context: EpochContext, logged: bool = True, known: int = 0) -> None:
        super().begin(context, logged, known)
        self._touched = None

    def waits(self, phase: int) -> bool:
        if phase <= self._phase:
            return False
        scalar = self.runner.store.k.scalar
        if phase == REMOVE:
            return len(self.removing) > 0
        if phase == REMOVE_AGAIN:
            return int(scalar[st.S_DOUBTS]) > 0
        return (phase == DERIVE and len(self.adding) > 0) or int(scalar[st.S_HOPES] + scalar[st.S_RETRIES]) > 0

    def work(self, phase: int, received: Mapping[str, Batch]) -> list[PartitionMessage]:
        if not self.mailbox.shared:
            return super().work(phase, received)
        first = self._enter(phase)
        if phase in (REMOVE, REMOVE_AGAIN):
            if first and phase == REMOVE:
                self._feed(self.removing, True)
            elif first:
                self.runner.call(fx.suspect_doubted, restart=True)
            self.messages.receive(received)
            self.withdraw()
        else:
            self.count_round()
            if first:
                self.rederive()
            if first and phase == DERIVE:
                self._feed(self.adding, False)
            self.messages.receive(received)
            self.runner.propagate()
        return self.messages.send()

    def collect(self) -> dict[int, Batch]:
        if self.mailbox.shared and self._logged:
            self._touched = self._touched_rows()
        return super().collect()

    def _touched_rows(self) -> Codes:
        k = self.runner.store.k
        return k.touched[: int(k.scalar[st.S_TOUCHED])].copy()

    def commit(self) -> None:
        self._touched = None
        super().commit()

    def rewind(self, broken: bool) -> None:
        if not self.mailbox.shared or not self._logged:
            super().rewind(broken)
            return
        touched = self._touched_rows() if self._touched is None else self._touched
        self.runner.limit(limited=False)
        fx.unwind(self.runner.store.k.address, touched)
        self.runner.call(fx.stand_again, touched, restart=True)
        self._log, self._touched = [], None
        self.runner.store.compact()

    # -- limits ------------------------------------------------------------------------------------------------------

    def trace(self) -> tuple[str, str]:
        """Follow the derivation at which a limit was met: return its view, and an input row of the epoch that it stands
        on; with peers that may be in another partition, and is left out."""
        runner = self.runner
        k, relations = runner.store.k, runner.program.relations
        m, body = int(k.scalar[st.S_META]), int(k.scalar[st.S_BODY])
        seen, stack, view, guilty = set(), [max(0, int(k.scalar[st.S_CULPRIT]))], "", -1
        first = next((r.view for r in relations if r.view), "") if self.mailbox.shared else ""
        while stack and guilty < 0:
            row = stack.pop()
            if row in seen:
                continue
            seen.add(row)
            tag = int(k.meta[row, m])
            relation = relations[tag & st.RELATION]
            view = view or relation.view
            if relation.kind in ("external", "absence") and tag & st.TOUCHED:
                guilty = row
            stack += [int(b) for b in k.meta[row, m + 4 : m + 4 + body] if b >= 0]
        if guilty < 0:  # the row that closed the cycle is not in this derivation; any of the epoch will do
            changed = (k.touched[: int(k.scalar[st.S_TOUCHED]), 0] >> 1).tolist()
            external = [r for r in changed if int(k.meta[r, m]) & st.RELATION in self.mailbox.externals]
            if not external and self.mailbox.shared:
                return view or first, ""
            guilty = external[0] if external else 0
        relation = relations[int(k.meta[guilty, m]) & st.RELATION]
        return view or first, described(relation, k.cells[guilty], runner.dictionary)
