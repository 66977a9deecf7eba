"""Support: every derived row keeps one derivation, its *chosen* one, and loses nothing while that stands.

Law: the derived rows of a chosen derivation have smaller ranks than the row itself, so chosen derivations form no cycle
and a row whose derivation stands is derivable. Rows that lose theirs are looked at in order of rank
(`kernels/fixpoint.py`): a deletion costs what stands on it, not what could be derived through it.
"""

from __future__ import annotations

from whence.engine.recursion.kernels import fixpoint as fx
from whence.engine.recursion.kernels import store as st
from whence.engine.recursion.limits import described
from whence.engine.recursion.policies.plain import PlainPolicy


class Support(PlainPolicy):
    """Withdraws rows by rank, when they have no other derivation from rows of smaller rank."""

    name = "support"
    layout = st.SUPPORT

    def withdraw(self) -> None:
        self.runner.call(fx.withdraw)

    def rederive(self) -> None:
        super().rederive()
        self.runner.store.make_hopeful()

    def trace(self) -> tuple[str, str]:
        """Follow the derivation at which a limit was met: return its view, and an input row of the epoch that it stands
        on."""
        runner = self.runner
        k, relations = runner.store.k, runner.program.relations
        m, body = int(k.scalar[st.S_META]), int(k.scalar[st.S_BODY])
        seen, stack, view, guilty = set(), [max(0, int(k.scalar[st.S_CULPRIT]))], "", -1
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
            guilty = external[0] if external else 0
        relation = relations[int(k.meta[guilty, m]) & st.RELATION]
        return view, described(relation, k.cells[guilty], runner.dictionary)
