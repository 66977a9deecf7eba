"""Fixpoint: a recursive component kept at its least fixpoint, alone or together with other partitions.

Law: after every epoch the derived relations are exactly the rows that have a derivation from the external rows (of all
partitions) that does not go through themselves; under MIN and MAX, exactly the best value of each group. Relations in
here are sets; external rows come with multiplicities, and count as present while theirs is positive.

It is made of a **policy** (`policies/`): how a derived row chooses, and loses, what it stands on; and a **mailbox**
(`mailbox.py`): which rows live in other partitions. Without peers an epoch is one call of `apply`. With peers `apply`
takes the external changes, `work` does rounds of the epoch's phases, which are stages of the dataflow
(`iterative.py`), and `finish` ends them.

State is one store (`kernels/store.py`) and what the policy keeps. An update costs what it derives, withdraws and looks
up again, not what the component holds.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from whence.annotate import AnnotationTooLarge
from whence.engine.core.arrangement import find_rows
from whence.engine.core.batch import consolidate
from whence.engine.core.epoch_context import EpochContext
from whence.engine.core.fill import is_fill
from whence.engine.core.image import Image
from whence.engine.core.key_lookup import Lookups
from whence.engine.core.operator import Batch, Operator
from whence.engine.exchange.messages import PartitionMessage
from whence.engine.recursion.iterative import IterativeOperator
from whence.engine.recursion.kernels import store as st
from whence.engine.recursion.limits import RecursionLimits, described, no_end
from whence.engine.recursion.mailbox import Mailbox
from whence.engine.recursion.policies import make_policy
from whence.engine.recursion.policies.annotated import AnnotatedPolicy
from whence.engine.recursion.policies.support import Support
from whence.engine.recursion.rule_orders import RuleOrders
from whence.engine.recursion.rule_plans import Orders
from whence.engine.recursion.rule_runner import LimitReached, Pipeline, RuleRunner
from whence.engine.recursion.slot_lookup import SlotRows
from whence.engine.recursion.slot_store import SlotStore
from whence.model.codes import Codes, Dictionary
from whence.model.errors import EvaluationError, RecursionLimitError
from whence.model.types import Schema
from whence.model.word_marks import WordMarks
from whence.plan.recursion.rule_model import RuleProgram
from whence.plan.recursion.settings import DEPTH_LIMIT, ROW_LIMIT, Maintain, makes_values

_ENOUGH = 100_000  # rows to see by which row a recursion has no end


class Fixpoint(IterativeOperator):
    """Keeps the relations of a `RuleProgram`: input i is its i-th external relation, outputs are read by `Port`s."""

    def __init__(
        self,
        program: RuleProgram,
        inputs: list[Operator],
        dictionary: Dictionary,
        pipelines: dict[int, Pipeline],
        *,
        name: str,
        policy: str | Maintain = "support",
        depth_limit: int = DEPTH_LIMIT,
        row_limit: int = ROW_LIMIT,
        mailbox: Mailbox | None = None,
    ):
        self.program, self.inputs, self.dictionary, self.name = program, inputs, dictionary, name
        self.mailbox = mailbox or Mailbox(program)
        self.limits = RecursionLimits(depth_limit, row_limit, makes_values(program, self.mailbox.copied))
        self.runner = RuleRunner(program, dictionary, pipelines, self.mailbox, self.limits, name)
        self.policy = make_policy(self.mailbox.admit(policy), self.runner, self.mailbox)
        self._orders = RuleOrders(program, self.mailbox.shared)
        self._rows = 0  # after the last epoch
        self.delay = self.policy.phases if self.mailbox.shared else 0
        self.schema = Schema(())
        self.out: dict[int, Batch] = {}  # the net changes of what is published, by relation
        self._pipelines = pipelines
        self._end()

    def _end(self) -> None:
        """Be between two epochs."""
        self._changes = self.runner.joined([])
        self._aside: object = None  # the state before an epoch that had to begin anew, or is a fill
        self._running = self._finished = self._broken = False

    @property
    def store(self) -> SlotStore:
        return self.runner.store

    # -- an epoch ----------------------------------------------------------------------------------------------------

    def apply(self, deltas: list[Batch]) -> Batch:
        """Take the external changes; without peers, go to the fixpoint."""
        # A row that goes and comes in one batch (an UPDATE of a column not read here) must have no effect.
        parts = [
            self.runner.changes(relation, delta)
            for relation, batch in zip(self.mailbox.externals, deltas, strict=True)
            if len(delta := consolidate(batch))
        ]
        changes = self.runner.joined(parts)
        self._reorder(self._orders.for_load(self.store, changes))
        if not self.mailbox.shared and is_fill(len(changes), int(self.store.k.scalar[st.S_ROWS])):
            state = self.policy.image()
            self._aside = self.policy.set_aside()
            self.policy.restore(state)
        self._begin()
        self._changes = changes
        self.policy.take(changes)
        if not self.mailbox.shared:
            try:
                self._run()
                self.finish()
            except EvaluationError as error:
                if isinstance(error.__cause__, AnnotationTooLarge):
                    raise
                self._run_anew()
        return Batch.empty(0)

    def _begin(self) -> None:
        if not self._running:
            self._running, self.out = True, {}
            self.runner.watch = self.watch
            # With peers a component that is being filled is never undone; without, it returns to what is set aside.
            self.policy.begin(self.context, logged=self.primed if self.mailbox.shared else self._aside is None)

    def _run(self) -> None:
        """Do all phases, one after the other."""
        for phase in range(self.policy.phases):
            if self.policy.waits(phase):
                self.work(phase, {})

    def _run_anew(self) -> None:
        """Take the net change from the states before and after alone: an expression failed, perhaps on rows of a state
        half-way, without what goes and not yet with what comes."""
        self._rewind()
        before = self.runner.external_rows()
        old = {relation: self.live(relation) for relation in np.flatnonzero(self.mailbox.published).tolist()}
        known = int(self.store.k.scalar[st.S_ROWS])
        self._aside = self.policy.set_aside()
        self.policy.begin(self.context, known=known)
        self.policy.take(self.runner.added_up([before, self._changes]))
        self._run()
        self.finish()
        for relation, gone in old.items():
            now = self.live(relation)
            signs = np.concatenate([np.ones(len(now), np.int64), np.full(len(gone), -1, np.int64)])
            self.out[relation] = consolidate(Batch(np.concatenate([now, gone]), signs))

    # -- with peers --------------------------------------------------------------------------------------------------

    @property
    def channels(self) -> list[str]:
        return self.policy.channels

    def waits(self, phase: int) -> bool:
        return self._running and self.policy.waits(phase)

    def work(self, phase: int, received: Mapping[str, Batch]) -> list[PartitionMessage]:
        self._begin()
        self._broken = True
        try:
            messages = self.policy.work(phase, received)
        except LimitReached as limit:
            raise self._refusal(limit.met or str(self.limits)) from None
        self._broken = False
        return messages

    def finish(self) -> None:
        if not self._finished:
            self.runner.check_values()
            self._finished = True
            self.out = self.policy.collect()

    # -- going back --------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        if self._running:
            if not self._finished:
                self.runner.forget_touched()
            self.policy.commit()
            before, self._rows = self._rows, self.store.rows
            self._reorder(self._orders.after(self.store, len(self._changes) + abs(self._rows - before)))
            self._end()
            self.out = {}

    @property
    def orders(self) -> Orders:
        """The order in which a row of each atom, or of the head (-1), meets the other atoms, by rule."""
        return self.store.compiled.orders

    def reorder(self, orders: Orders) -> None:
        """Have these orders, and the indexes that they need; between two epochs."""
        self.policy.lay_out(self.store.compiled.reordered(orders))

    def _reorder(self, orders: Orders | None) -> None:
        if orders is not None and orders != self.orders:
            self.reorder(orders)

    def undo(self) -> None:
        if self._running:
            self._rewind()
            self._end()
            self.out = {}

    def _rewind(self) -> None:
        """Return to the state before this epoch's changes, however far it has come."""
        if self._aside is not None:
            self.policy.put_back(self._aside)
            self._aside = None
        else:
            self.policy.rewind(self._broken)
        self._broken = False

    def _refusal(self, met: str) -> RecursionLimitError:
        """Return the error that names the view without end, the limit it met, and an input row that it stands on."""
        if isinstance(self.policy, Support):
            view, cause = self.policy.trace()
            return no_end(view.partition("$")[0] or self.name, met, cause)
        suspects, cause = self.policy.suspects, ""
        if not self.mailbox.shared:
            self._derive_under_support()
        if len(suspects):
            cause = described(self.program.relations[int(suspects[-1, 0])], suspects[-1, 2:], self.dictionary)
        view = next((relation.view for relation in self.program.relations if relation.view), "")
        return no_end(view.partition("$")[0] or self.name, met, cause)

    def _derive_under_support(self) -> None:
        """Run the same epoch under support, which meets the same limit and, unlike other policies, knows by which
        row."""
        self._rewind()
        limits = self.limits
        other = Fixpoint(
            self.program,
            self.inputs,
            self.dictionary,
            self._pipelines,
            name=self.name,
            depth_limit=limits.depth,
            row_limit=limits.rows,
        )
        other._running = True
        other.policy.begin(EpochContext(replaying=True))
        other.policy.take(self.runner.external_rows())
        other._run()
        other.finish()
        other.runner.budget = min(limits.rows, _ENOUGH)
        other.policy.begin(EpochContext())
        other.policy.take(self._changes)
        other._run()

    # -- images ------------------------------------------------------------------------------------------------------

    def image(self) -> Image:
        return {**self.policy.image(), "planned": np.array([*self._orders.image(), self._rows])}

    def restore(self, image: Image) -> None:
        self.policy.restore(image)
        if len(image.get("planned", ())):
            self._orders.restore(image["planned"][:-1])
            self._rows = int(image["planned"][-1])

    def mark_words(self, marks: WordMarks) -> None:
        self.policy.mark_words(marks)

    # -- reading -----------------------------------------------------------------------------------------------------

    def live(self, relation: int) -> Codes:
        """Return the rows of a relation."""
        return self.store.live(relation)

    def count(self, relation: int) -> int:
        """Return how many rows a relation has."""
        return self.store.count(relation)

    def holds(self, relation: int, rows: Codes) -> Codes:
        """Return 1 for each row that a relation has, else 0."""
        return self.store.holds(relation, rows)

    def recompute(self) -> Batch:
        """Return nothing: what it keeps is read through its ports."""
        return Batch.empty(0)

    @property
    def state_rows(self) -> int:
        s = self.store.k.scalar
        return int(s[st.S_ROWS] - s[st.S_DEAD])

    @property
    def state_bytes(self) -> int:
        return self.policy.state_bytes

    @property
    def derivations(self) -> int:
        """How many derivations have been looked at, ever."""
        return int(self.store.k.scalar[st.S_WORK])

    @property
    def annotation(self) -> str:
        return self.policy.annotation

    def notes(self) -> tuple[str, ...]:
        return self._orders.notes(self.store.compiled)

    def describe(self) -> str:
        relations, copies = self.program.relations, set()
        if self.mailbox.ranked:  # what is derived from a relation that is sent stands behind it
            copies = {copy + 1 for copy in self.mailbox.copied}
        derived = ", ".join(
            r.name for number, r in enumerate(relations) if r.kind in ("set", "best") and number not in copies
        )
        text = f"fixpoint {derived} [{len(self.program.rules)} rules, {self.policy.text}]"
        return text if self.mailbox.spec is None else f"{text}, {self.mailbox.spec.text}"


def annotated_policy(op: Operator) -> AnnotatedPolicy | None:
    """Return the policy of a fixpoint that maintains annotations; None for every other operator."""
    return op.policy if isinstance(op, Fixpoint) and isinstance(op.policy, AnnotatedPolicy) else None


class Port(Operator):
    """One relation of a fixpoint, as an operator others can read: a set, so a multiset of rows that count one each."""

    follows = True
    keeps_output = True

    def __init__(self, fixpoint: Fixpoint, relation: int):
        self.fixpoint, self.relation = fixpoint, relation
        self.inputs = [fixpoint]
        self.schema = fixpoint.program.relations[relation].schema
        self.slots = SlotRows(lambda: fixpoint.store, relation, len(self.schema))

    def apply(self, deltas: list[Batch]) -> Batch:
        return self.fixpoint.out.get(self.relation, Batch.empty(len(self.schema)))

    def prime(self, contents: list[Batch]) -> Batch:
        return self.recompute()

    def recompute(self) -> Batch:
        rows = self.fixpoint.live(self.relation)
        return Batch(rows, np.ones(len(rows), np.int64), True)

    @property
    def recalls(self) -> bool:
        return True

    def count_of(self, rows: Codes) -> Codes:
        return self.fixpoint.holds(self.relation, rows)

    def find(self, cols: tuple[int, ...], keys: Codes) -> Batch:
        if self.arranged is not None or min(cols) >= self.slots.indexable:
            return find_rows(self, cols, keys)
        return self.slots.lookups.find(cols, keys)

    @property
    def own_lookups(self) -> Lookups:
        return self.slots.lookups

    @property
    def state_bytes(self) -> int:
        return self.slots.nbytes

    @property
    def size(self) -> int:
        return self.fixpoint.count(self.relation)

    @property
    def annotation(self) -> str:
        return self.fixpoint.annotation

    def describe(self) -> str:
        return f"port {self.fixpoint.program.relations[self.relation].name}"
