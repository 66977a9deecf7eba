"""Policy: how a derived row chooses, and loses, what it stands on.

An epoch has **phases**, the same in all partitions. Each is repeated in all of them until no message is in flight; a
component without peers does each once, if there is something to do in it:

    REMOVE   what can only take derivations away: external rows that go, absences that end, and what follows
    DERIVE   what comes back, then what is new, joined forward to the end
    TIDY     what senders have bettered under MIN and MAX is taken back; only with peers
"""

from __future__ import annotations

from collections.abc import Mapping

from whence.engine.core.epoch_context import EpochContext
from whence.engine.core.image import Image
from whence.engine.core.operator import Batch
from whence.engine.exchange.messages import PartitionMessage
from whence.engine.recursion.kernels import store as st
from whence.engine.recursion.mailbox import Mailbox
from whence.engine.recursion.rule_plans import CompiledRules
from whence.engine.recursion.rule_runner import RuleRunner
from whence.model.codes import Codes
from whence.model.word_marks import WordMarks

REMOVE, DERIVE, TIDY = range(3)
PEER_ROUNDS = 5_000  # each a superstep of all partitions


class Policy:
    """What a fixpoint asks of its policy. Between `begin` and `commit` or `rewind` there is an epoch."""

    name: str
    layout = st.DRED  # of slots: with room for a chosen derivation (SUPPORT), or without
    phases = 2

    def __init__(self, runner: RuleRunner, mailbox: Mailbox):
        self.runner, self.mailbox = runner, mailbox
        self._phase = -1  # the last that began
        self.removing: Codes  # changes of external rows that can only take derivations away
        self.adding: Codes  # those that can only bring them
        self.start()

    def start(self) -> None:
        """Begin with an empty store."""
        self.runner.start(self.layout)

    # -- an epoch ----------------------------------------------------------------------------------------------------

    def begin(self, context: EpochContext, logged: bool = True, known: int = 0) -> None:
        """Begin an epoch, which is never rewound if it is not `logged`. `known` rows, derived before and now to be
        derived again, do not count against limits."""
        self._context = context  # asked when a limit is met: a copy may replay the first steps of an epoch only
        self.runner.limit(not context.replaying, known)
        self._phase = -1
        self.removing = self.adding = self.runner.joined([])

    def take(self, changes: Codes) -> None:
        """Take the changes of external rows that the epoch brings."""
        self.removing, self.adding = self.runner.split(changes)

    def waits(self, phase: int) -> bool:
        """Return whether a phase that has not begun has something to do with what is here already."""
        raise NotImplementedError

    def work(self, phase: int, received: Mapping[str, Batch]) -> list[PartitionMessage]:
        """Do one round of a phase with what came by the channels; return what is to be sent."""
        raise NotImplementedError

    def _enter(self, phase: int) -> bool:
        """Return whether this is the first round of a phase."""
        first, self._phase = self._phase < phase, phase
        return first

    @property
    def suspects(self) -> Codes:
        """Return the changes that may have brought about a recursion without end."""
        return self.adding

    def collect(self) -> dict[int, Batch]:
        """End all phases: return the net changes of what is published."""
        return self.runner.collect()

    def commit(self) -> None:
        """Forget what `rewind` would need."""
        raise NotImplementedError

    def rewind(self, broken: bool) -> None:
        """Return to the state before the epoch, however far it has come; `broken`: it stopped in the middle of a round.
        A second time changes nothing."""
        raise NotImplementedError

    def lay_out(self, rules: CompiledRules) -> None:
        """Run these rules, which differ in their orders, from now on; between two epochs."""
        self.runner.store.lay_out(rules)

    def set_aside(self) -> object:
        """Begin with an empty store; return the state until now, for `put_back`."""
        raise NotImplementedError

    def put_back(self, state: object) -> None:
        """Return to a state that was set aside, at which nothing is to be rewound."""
        raise NotImplementedError

    # -- state -------------------------------------------------------------------------------------------------------

    @property
    def channels(self) -> list[str]:
        """Return the names of the channels by which messages come."""
        raise NotImplementedError

    def image(self) -> Image:
        """Return the state between two epochs."""
        raise NotImplementedError

    def restore(self, image: Image) -> None:
        """Take the state from an image; StaleImage, and no change, if it does not fit."""
        raise NotImplementedError

    def mark_words(self, marks: WordMarks) -> None:
        """Mark the words that the state refers to, between two epochs."""
        self.runner.store.mark_words(marks, dead=False)

    @property
    def state_bytes(self) -> int:
        return self.runner.store.nbytes

    @property
    def text(self) -> str:
        """How rows are kept, for EXPLAIN."""
        return f"policy {self.name}"

    @property
    def annotation(self) -> str:
        """How the output is kept up to date, for EXPLAIN."""
        return f"none, {self.text}"
