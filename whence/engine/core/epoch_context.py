"""Context of the running epoch: its number, its time, and whether it replays. A replayed epoch has its original ones.

A dataflow has one context, which whoever runs an epoch sets, and hands it to its operators when they are installed.

In replay mode rows are derived again that an earlier run accepted: limits of recursion do not apply, and a derivation
that fails (a number out of range, a NULL where none may be) is skipped. A limit ends what has no end. What a log or an
image has was accepted once, perhaps by several epochs or in partitions that count otherwise; doing it again, or undoing
an epoch, must not fail because it is done in another order.

Skipping is right because a derivation from rows of a state that existed does not fail: every row was joined forward
when it last changed, with all the others, and an error would have refused the epoch. So the state is the least fixpoint
of the rules without the derivations that fail, and it is enough that nothing on the way to it goes beyond it:

    sets      Rows go before rows come, so a state on the way is derived from fewer external rows (and absences), and
              has only rows of the state that existed; no derivation of them fails. What fails is half a binding that no
              other row completes, or (DRED) one through rows that are going, which gave no row when they were there.
    MIN, MAX  A group on the way has a value that is no better than the one it will have, for rules keep the order of
              values. A derivation from a worse value may fail (9e18 + 1e18) where the better one does not. It is not
              missed: a group that improves is joined forward again. Nor is it a better value that is skipped, as the
              best ones are derived from best ones, which do not fail.
    Python    What only Python can compute is never a value of MIN or MAX in its own recursion: as for sets.
"""

from __future__ import annotations


class EpochContext:
    """The number of an epoch, 0 where views are only being filled, and its time in microseconds since 1970."""

    __slots__ = ("number", "replaying", "time")

    def __init__(self, number: int = 0, time: int = 0, replaying: bool = False) -> None:
        self.number, self.time, self.replaying = number, time, replaying

    def enter(self, number: int, time: int) -> None:
        """Be in an epoch, or with the number 0 in none."""
        self.number, self.time = number, time
