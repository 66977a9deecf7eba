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

from whence.engine.recursion.kernels import fixpoint as fx
from whence.engine.recursion.kernels import store as st
from whence.engine.recursion.policies.plain import PlainPolicy


class DRed(PlainPolicy):
    """Withdraws rows that have some derivation through a dead row."""

    name = "dred"

    def start(self) -> None:
        super().start()
        if self.mailbox.spec is not None:
            self.runner.store.k.scalar[st.S_FORGETS] = self.mailbox.spec.forgets

    def withdraw(self) -> None:
        self.runner.call(fx.overdelete, self.mailbox.sent)
