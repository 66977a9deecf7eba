"""Annotated: a derived row carries a formula over base rows, and lives while that is not false (`WITH (maintain = …)`).

Law: after every epoch a derived row lives exactly when its annotation is not false, and an annotation says sets of
external rows, of whatever partition, that suffice for the row. So a deletion puts false in the place of what is gone,
in the rows that mention it, and what has another reason stays without a search; nothing has a rank, and nothing counts
to infinity: rows on a cycle mention the rows that feed it. Under MIN and MAX the annotation is of the best value, and
says what suffices for one at least as good; a better value takes its place, and a row that has lost it is searched for
again.

State: the store, without chosen derivations; `Annotations`; the formulas, in their algebra; and a variable for each
external row (`row_variables.py`), the same wherever the row is read (`plan/recursion/sharing.py`). An absence is a
variable of its own, true while the row is not there.

REMOVE feeds what goes, puts false for its variables, and lets rows die that have no reason left; with peers, the others
are told the variables, once, and do the same. Nothing is derived, so that no message of DERIVE speaks of what is gone.
DERIVE publishes in rounds what was released, what is new and what came by messages: all derivations through the rows
that changed are written down (`kernels/gather.py`), their heads found, the formulas of their bodies multiplied and
merged into the heads'; those that publish something else are the next round.

Why it is right. Every formula is of sets of live external rows that suffice, for `without` is done everywhere before
anything is derived. And nothing derivable is missing: by induction along a derivation its rows publish something, so
the product is in what the head publishes or buffers, and one that buffers something publishes something.

Cost: derivations through rows that changed, times their formulas. Undo is exact, without messages, and by the log: of
the store, the rows touched; of annotations, the formulas at their first touch.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from whence.annotate import Provenance as Formulas
from whence.engine.core.epoch_context import EpochContext
from whence.engine.core.image import Image, StaleImage
from whence.engine.core.operator import Batch
from whence.engine.exchange.messages import PartitionMessage
from whence.engine.exchange.wire import MessageReader, packets
from whence.engine.recursion.annotated_messages import AnnotatedMessages, variable_relations
from whence.engine.recursion.annotated_state import AnnotatedState
from whence.engine.recursion.annotations import Annotations
from whence.engine.recursion.kernels import externals as ext
from whence.engine.recursion.kernels import heads as hd
from whence.engine.recursion.kernels import mailbox as mb
from whence.engine.recursion.kernels import store as st
from whence.engine.recursion.mailbox import Mailbox
from whence.engine.recursion.policies.policy import PEER_ROUNDS, REMOVE, Policy
from whence.engine.recursion.row_variables import RowVariables
from whence.engine.recursion.rule_plans import KINDS, CompiledRules
from whence.engine.recursion.rule_runner import LimitReached, RuleRunner
from whence.model.codes import Codes
from whence.model.errors import DataError
from whence.model.word_marks import WordMarks
from whence.plan.recursion.settings import Maintain

_ROUNDS = 25_000
_AT_ONCE = 1 << 16  # rows whose derivations are written down together
_NONE = np.empty(0, np.int64)
_FEW = 16  # one of this many rows may change before the bytes of a shared component are counted again


class AnnotatedPolicy(Policy):
    """Rows with formulas of external rows; absorption and relative say of which algebra."""

    def __init__(self, maintain: Maintain, runner: RuleRunner, mailbox: Mailbox):
        self.maintain, program = maintain, runner.program
        self.kinds = np.array([KINDS[r.kind] for r in program.relations], np.int64)
        self._head_of = np.array([rule.head for rule in program.rules], np.int64)
        self.origin = variable_relations(program, mailbox)  # by relation: the one that its rows' variables are of
        self._changed: Codes | None = None  # of the epoch that can still be undone: rows of the store,
        self._multiplicities = _NONE  # and how often its external rows were there
        self._flushed = np.zeros(2, np.int64)  # epoch and time when what is buffered was last published
        self._flushed_before = self._flushed
        self._gone: list[Codes] = []  # external slots that went in this epoch
        self._gone_elsewhere: list[Codes] = []  # variables of rows that went in other partitions
        self._released: list[Codes] = []  # slots that publish what they had buffered
        self._lost: list[Codes] = []  # groups that have no value
        self._due = False
        self._bytes = self._uncounted = 0
        self.messages = AnnotatedMessages(self, runner, mailbox)
        super().__init__(runner, mailbox)

    def make_formulas(self) -> Formulas:
        """Make an algebra for the annotations of the component."""
        raise NotImplementedError

    def start(self) -> None:
        super().start()
        formulas, lazy = self.make_formulas(), self.maintain.propagate != "eager"
        annotations = Annotations(formulas, lazy, gains=self.mailbox.shared)
        self.state = AnnotatedState(self.runner, annotations, self.origin)

    @property
    def formulas(self) -> Formulas:
        """The algebra of the annotations' handles."""
        return self.state.formulas

    @property
    def annotations(self) -> Annotations:
        return self.state.annotations

    @property
    def variables(self) -> RowVariables:
        return self.state.variables

    # -- an epoch ----------------------------------------------------------------------------------------------------

    def begin(self, context: EpochContext, logged: bool = True, known: int = 0) -> None:
        super().begin(context, logged, known)
        self._changed, self._pending, self._multiplicities = None, self.runner.joined([]), _NONE
        self._flushed_before = self._flushed.copy()
        self._due = self._is_due(context)
        self._released, self._lost, self._gone, self._gone_elsewhere = [], [], [], []
        self.messages.begin()
        most = PEER_ROUNDS if self.mailbox.shared else _ROUNDS
        self._rounds, self._most = 0, self.runner.limits.rounds(most)

    def take(self, changes: Codes) -> None:
        super().take(changes)
        self._pending = changes
        self._multiplicities = np.empty(len(changes), np.int64)
        ext.multiplicities(self.runner.store.k.address, changes, self._multiplicities)

    def waits(self, phase: int) -> bool:
        if phase <= self._phase:
            return False
        if phase == REMOVE:
            return len(self.removing) > 0
        return bool(len(self.adding) or self._released or self._lost or self._due)

    def work(self, phase: int, received: Mapping[str, Batch]) -> list[PartitionMessage]:
        first = self._enter(phase)
        mail = [packet for batch in received.values() for packet in packets(batch)]
        return self._remove(mail, first) if phase == REMOVE else self._derive(mail, first)

    def _remove(self, mail: list[MessageReader], first: bool) -> list[PartitionMessage]:
        """Put false in the place of what is gone, here or elsewhere."""
        found: list[PartitionMessage] = []
        if first and len(self.removing):
            gone = self._feed(self.removing, deleting=True)
            variables = self.state.variables_of(gone)
            self.annotations.clear(gone)
            self._gone.append(gone)
            self._put_false(variables)
            found = self.messages.tell_gone(gone, variables)
        for packet in mail:
            known = self.messages.read_gone(packet)
            self._put_false(known)
            self._gone_elsewhere.append(known)
        return found

    def _put_false(self, variables: Codes) -> None:
        released, lost = self.annotations.without(np.unique(variables))
        self.runner.call(hd.lose, lost, restart=True)
        if len(released):
            self._released.append(released)
        if len(lost) and self.runner.store.k.scalar[st.S_HEAP]:
            groups = lost[self.kinds[self.runner.store.describe(lost)[0]] == st.BEST]
            if len(groups):
                self._lost.append(groups)

    def _derive(self, mail: list[MessageReader], first: bool) -> list[PartitionMessage]:
        """Publish what is new, and what came, as far as it goes here; return what is to be sent of it."""
        messages = self.messages
        if self.mailbox.shared:  # all at once: what goes out together is one message
            start = [self._arrived(), self._revived(), self._overdue()] if first else []
            start.append(messages.receive(mail))
            self._publish(np.unique(np.concatenate(start)))
        else:
            for source in (self._revived, self._arrived, self._overdue):
                self._publish(source())
        while len(heads := messages.next_heads()):
            self._publish(messages.to_copies_here(heads))
        return messages.post()

    def _arrived(self) -> Codes:
        """Feed what is new; return its slots."""
        if not len(self.adding):
            return _NONE
        slots = self._feed(self.adding, deleting=False)
        self._publish_variables(slots)
        return slots

    def _revived(self) -> Codes:
        """Return the slots that publish what they had buffered, and groups for which a value is found again."""
        found = [_NONE]
        if self._released:
            slots = np.concatenate(self._released)
            found.append(self.messages.divert(slots[self.annotations.published[slots] != 0]))
        if self._lost:
            found.append(self.merge(self.runner.gather(np.concatenate(self._lost), backward=True)))
        self._released, self._lost = [], []
        return np.concatenate(found)

    def _overdue(self) -> Codes:
        """Publish what is buffered, if it is time; return the slots that publish something else."""
        return self.messages.divert(self.annotations.flush()) if self._due else _NONE

    def _is_due(self, context: EpochContext) -> bool:
        """Return whether it is time to publish what is buffered; the epoch counts as the last such, then."""
        now, every = (context.number, context.time), self.maintain.every
        if not every or not context.number:
            return False
        clock = 0 if self.maintain.by_epochs else 1
        if not self._flushed[0]:
            self._flushed[:] = now  # the interval begins with the first epoch
            return False
        if now[clock] - int(self._flushed[clock]) < every:
            return False
        self._flushed[:] = now
        return True

    # -- external rows -----------------------------------------------------------------------------------------------

    def _feed(self, changes: Codes, deleting: bool) -> Codes:
        """Apply changes that take derivations away, or that bring them; return the slots that came or went."""
        self.runner.call(ext.feed, changes, deleting, restart=True)
        k = self.runner.store.k
        places = np.arange(int(k.scalar[st.S_HEAD]), int(k.scalar[st.S_TAIL])) % len(k.queue)
        k.scalar[st.S_HEAD] = k.scalar[st.S_TAIL] = 0
        self.make_room()
        return np.ascontiguousarray(k.queue[places, 1])

    def make_room(self) -> None:
        """Have room for the annotations of all slots in use."""
        self.annotations.make_room(int(self.runner.store.k.scalar[st.S_ROWS]))

    def _publish_variables(self, slots: Codes) -> None:
        """Let external slots publish the variables they are."""
        self.make_room()
        variables = self.state.variables_of(slots)
        self.place(variables, slots)
        self.annotations.put(slots, self.formulas.of_tid(variables))

    def publish_absences(self, bodies: Codes) -> None:
        """Let absences that are seen for the first time be variables."""
        if (self.kinds == st.ABSENCE).any():
            slots = np.unique(bodies)
            slots = slots[slots >= 0]
            self._publish_variables(np.ascontiguousarray(slots[self.annotations.published[slots] == 0]))

    def place(self, variables: Codes, slots: Codes) -> None:
        """Give the variables of external slots a place in the order of the formulas, if these have one."""

    def place_others(self, variables: Codes, origins: Codes, cells: Codes) -> None:
        """Do the same for variables of other partitions' rows, which are given as `origins` and `cells`."""

    def displace(self, variables: Codes) -> None:
        """Take variables out of the order of the formulas."""

    # -- derivations -------------------------------------------------------------------------------------------------

    def _publish(self, slots: Codes) -> None:
        """Go forward from slots that publish something else, until none does."""
        while len(slots):
            self._rounds += 1
            if self._rounds > self._most and not self._context.replaying:
                self.runner.store.k.scalar[st.S_CULPRIT] = slots[0]
                raise LimitReached(f"{self._most:,} rounds")
            if len(slots) > _AT_ONCE and self.mailbox.shared:  # what is done together must not depend on slots
                slots = slots[np.lexsort(tuple(self.runner.store.describe(slots)[1].T))]
            changed = [
                self.merge(self.runner.gather(slots[at : at + _AT_ONCE], backward=False))
                for at in range(0, len(slots), _AT_ONCE)
            ]
            slots = changed[0] if len(changed) == 1 else np.unique(np.concatenate(changed))
            self.annotations.tidy()

    def merge(self, block: Codes) -> Codes:
        """Take derivations; return the slots that publish something else and are read here.

        Which derivation is a row's first must not depend on the order of slots where it is sent to others: a partition
        that was restored from its history need not have the same."""
        if not len(block):
            return _NONE
        if self.mailbox.shared and len(block) > 1:
            tickets = np.empty(len(block), np.int64)
            mb.tickets(self.runner.store.k.address, block, tickets)
            block = np.ascontiguousarray(block[np.argsort(tickets, kind="stable")])
        store, annotations, atoms = self.runner.store, self.annotations, self.runner.rules.atoms
        self.prepare(block)
        slots, improved = np.empty(len(block), np.int64), np.zeros(len(block), np.int64)
        self.runner.call(hd.heads, block, self._head_of, slots, improved, restart=True)
        if store.k.scalar[st.S_HEAP]:
            hd.drop_bettered(store.k.address, block, slots)
        self.make_room()
        some = slots >= 0
        if not some.all():
            block, slots = block[some], slots[some]
        bodies = np.ascontiguousarray(block[:, 1 : 1 + atoms].T)
        self.publish_absences(bodies)
        found = annotations.safely(lambda: self.messages.product(block[:, 0], slots, bodies))
        if improved.any():
            annotations.clear(np.unique(slots[improved[some] == 1]))
        return self.messages.divert(annotations.safely(lambda: annotations.merge(slots, found), found))

    def prepare(self, block: Codes) -> None:
        """See the derivations of a block before their heads are found."""

    def product(self, rules: Codes, slots: Codes, bodies: Codes) -> Codes:
        """Return the formulas of derivations: by rule, slot of the head, and slots of the body [atoms, n]."""
        published, formulas = self.annotations.published, self.formulas
        found = np.where(bodies[0] >= 0, published[bodies[0]], 1)
        for body in bodies[1:]:
            found = formulas.times(found, np.where(body >= 0, published[body], 1))
        return found

    # -- the end of an epoch -----------------------------------------------------------------------------------------

    def collect(self) -> dict[int, Batch]:
        k = self.runner.store.k
        self._changed = k.touched[: int(k.scalar[st.S_TOUCHED])].copy()
        self._uncounted += self.annotations.touched
        return super().collect()

    def commit(self) -> None:
        self._changed, self._multiplicities = None, _NONE
        if self._gone_elsewhere:
            self.displace(np.unique(np.concatenate(self._gone_elsewhere)))
        if self._gone:
            slots = np.unique(np.concatenate(self._gone))
            self.displace(self.state.variable_of[slots[self.annotations.published[slots] == 0]])
        self._gone, self._gone_elsewhere = [], []
        self.annotations.commit()
        places = self.runner.store.compact()
        if places is None and self.variables.grown:  # a group has a variable for each value it ever had
            places = np.arange(int(self.runner.store.k.scalar[st.S_ROWS]))
        if places is not None:
            self._move(places)

    def lay_out(self, rules: CompiledRules) -> None:
        self._move(self.runner.store.lay_out(rules))

    def _move(self, places: Codes) -> None:
        """Follow slots that have moved to `places`."""
        self.state.move(places)
        if self.mailbox.shared:  # variables of other partitions' rows are not seen to go
            self.displace(self.variables.free)

    def rewind(self, broken: bool) -> None:
        k = self.runner.store.k
        touched = self._changed
        if touched is None:
            touched = k.touched[: int(k.scalar[st.S_TOUCHED])].copy()
        hd.take_back(k.address, touched)
        ext.set_multiplicities(k.address, self._pending, self._multiplicities)
        for counter in (st.S_HEAD, st.S_TAIL, st.S_TOUCHED, st.S_WITHDRAWN, st.S_FOREIGN):
            k.scalar[counter] = 0
        self._changed, self._gone, self._gone_elsewhere = None, [], []
        self.annotations.undo()
        self._flushed = self._flushed_before

    def set_aside(self) -> AnnotatedState:
        state = self.state
        self.start()
        return state

    def put_back(self, state: object) -> None:
        assert isinstance(state, AnnotatedState)
        self.state, self.runner.store = state, state.store
        self._pending, self._multiplicities = self.runner.joined([]), _NONE
        self._changed, self._gone = None, []
        self._flushed = self._flushed_before

    # -- state -------------------------------------------------------------------------------------------------------

    @property
    def channels(self) -> list[str]:
        return [self.messages.channel]

    def image(self) -> Image:
        return {**self.state.image(), "flushed": self._flushed}

    def mark_words(self, marks: WordMarks) -> None:
        self.state.mark_words(marks)

    def restore(self, image: Image) -> None:
        try:
            self.state.restore(image)
            self._flushed = np.array(image["flushed"], np.int64)
        except (DataError, KeyError, StaleImage) as why:
            self.start()
            raise StaleImage(f"the annotations of {self.runner.name} are laid out otherwise: {why}") from why
        self._bytes = 0

    # -- reading -----------------------------------------------------------------------------------------------------

    def annotations_of(self, relation: int, rows: Codes) -> Codes:
        """Return what is known of why rows are there, published or buffered, as handles of `formulas`; false for
        others."""
        return self.state.annotations_together([(relation, rows)])

    @property
    def state_bytes(self) -> int:
        """With peers it is asked for in every round, and has to be counted: it is as of when a good part of the rows
        had changed."""
        if not (self.mailbox.shared and self._bytes) or _FEW * self._uncounted > self.annotations.slots:
            self._bytes, self._uncounted = self.state.nbytes, 0
        return self._bytes

    @property
    def provenance(self) -> tuple[int, int, int]:
        """The bytes of all formulas, the derived rows that have them, and those of them that buffer reasons."""
        size = self.annotations.figures
        derived = np.flatnonzero(self.kinds >= st.SET).tolist()
        return size.bytes, sum(self.runner.store.count(relation) for relation in derived), size.buffered

    @property
    def form(self) -> str:
        """How formulas are represented now."""
        raise NotImplementedError

    @property
    def text(self) -> str:
        return f"maintain {self.annotation}"

    @property
    def annotation(self) -> str:
        return f"{self.maintain.algebra}, propagate {self.maintain.text}"
