"""Exchange: a recursive component whose rows cross partitions, kept at its least fixpoint by all of them together.

Law: after every epoch a row of a view is in its home, in exactly one partition, if and only if it has a derivation from
the external rows of all partitions that does not go through itself.

Each partition has the local rules of `plan/partitions/exchange.py` in a store of its own, under DRed. They read
external rows and copies, and derive rows that are *sent* to the copies they belong to; what belongs to a copy here is
fed back at once, until nothing is left, and the rest goes out. A row of a copy counts its **senders**: the partitions
that derive it. An epoch has two phases, each repeated in all partitions until nothing is on its way:

1. Over-delete. Whatever has some derivation through a dead row dies; of derived rows that died, -1 goes out. The first
   -1 takes a row out of its copy, whoever else still sends it; how many these are is remembered.
2. Derive. Rows that died are searched for again, rows that still have senders are fed again, then what is inserted; of
   derived rows that live again, or for the first time, +1 goes out, which adds a sender.

Why it is right. Phase 1 kills every row that has some derivation through a dead row, in whatever partition, for a dead
row leaves every copy that any rule reads it from. A row that stays has all its derivations whole; one of them began in
external rows, none of its rows died (or it would have died too), so it stands. A derived row that a sender still has is
such a row, though its copy is gone for now. So what lives when phase 2 begins is derivable, and phase 2 adds only what
is derived from it: rows cannot keep each other alive across partitions. In the end nothing that is derivable is
missing: a row that died is either found by the search, from what lived then, or derived from what was fed later, and
each row that is fed is joined with all that is there. Messages of one phase only take away, or only add, so their order
does not matter; a sender is counted out once when its row dies and in once when it lives again.

Under MIN and MAX a row is a group and the best value that a sender has for it. In phase 2 values only get better, and
each is sent as it is found, so a copy may hold several of one sender; the best of them is what counts. There is then a
third phase, in which senders take back what they have bettered. Nothing stands on such a value any more, since rules
read only the best, and that is better; so nothing is derived or deleted by it.

State: the store; a copy's multiplicities are its senders. Cost: what is over-deleted and derived, each row sent once
to each of its copies; rounds: at most the steps of the longest derivation that the epoch follows.

Local rules are not recursive, so a partition's state is a function of the rows it was fed: undo feeds what takes them
back, and needs no other partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from whence.engine.build import Builder
from whence.engine.core.batch import concat, consolidate
from whence.engine.core.fingerprint import fingerprint
from whence.engine.core.operator import Batch, Operator
from whence.engine.exchange.messages import EVERYWHERE, PartitionMessage, message_of_rows
from whence.engine.exchange.ship import parted
from whence.engine.recursion.annotated_partitioned_fixpoint import AnnotatedPartitionedFixpoint
from whence.engine.recursion.fixpoint import Fixpoint
from whence.engine.recursion.iterative import IterativeOperator, refuse, settled, shared_limits
from whence.engine.recursion.kernels import exchange as ex
from whence.engine.recursion.kernels import fixpoint as fx
from whence.engine.recursion.kernels import store as st
from whence.engine.recursion.kernels.search import FORWARD, OVERDELETE
from whence.model.codes import Codes, Dictionary
from whence.plan.partitions import exchange as plan
from whence.plan.recursion.settings import Maintain

_NO_LIMIT = 2**31 - 1
_ROUNDS = 5_000  # each a superstep of all partitions

OVERDELETING, DERIVING, TIDYING = range(3)  # phases


class PartitionedFixpoint(IterativeOperator, Fixpoint):
    """A partition's share of a component. Changes are kept as codes [n, 2 + columns]: relation, change, cells."""

    def __init__(
        self,
        spec: plan.Exchange,
        inputs: list[Operator],
        dictionary: Dictionary,
        *,
        name: str,
        partitions: int = 1,
        partition: int = 0,
        depth_limit: int = 100_000,
        row_limit: int = 20_000_000,
    ):
        self.spec = spec
        super().__init__(
            spec.rules, [], dictionary, {}, name=name, policy="dred", depth_limit=depth_limit, row_limit=row_limit
        )
        self.inputs = inputs  # whose rows need not be kept for it: it begins anew from its own store
        self._partition, self._partitions = partition, partitions
        self.limits = shared_limits(spec, depth_limit, row_limit)
        self._shares = partitions if self.limits.endless else 1
        self._most = self.limits.rounds(_ROUNDS)
        self._valued = any(r.kind == "best" for r in spec.rules.relations)
        self.delay = 3 if self._valued else 2  # the phases are stages, and ports come after all
        self._externals = [number for number, _ in spec.wishes]
        self._copies = dict(spec.copies)
        self._homes = np.zeros(len(spec.rules.relations), np.int64)
        self._homes[list(spec.rules.outputs.values())] = 1
        self._heads = np.zeros_like(self._homes)
        self._heads[list(self._copies)] = 1
        self._outbox: dict[tuple[int, int], list[Batch]] = {}
        self._end()

    def _start(self) -> None:
        super()._start()
        self.memory.k.scalar[st.S_FORGETS] = self.spec.forgets

    def _end(self) -> None:
        """No epoch."""
        self._logged = self.primed
        self._pending: Codes | None = None  # external changes
        self._log: list[Codes] = []  # all that was fed; not when it is filled, which is never undone
        self._found: list[tuple[int, Codes]] = []  # derived rows with values that were sent in phase 2
        self._mark = _NO_LIMIT  # rows touched before phase 2
        self._suspended: list[Codes] = []  # rows taken out of copies: +senders before, and -1 for each that is gone
        self._phase = -1  # the last that began
        self._rounds = 0
        self._running = self._finished = False
        self._outbox.clear()

    # -- an epoch ----------------------------------------------------------------------------------------------------

    def apply(self, deltas: list[Batch]) -> Batch:
        """Take the external changes; `work` is what follows."""
        self._begin()
        self._pending = self._changes(deltas)
        return Batch.empty(0)

    def _begin(self) -> None:
        if not self._running:
            self._running, self._logged = True, self.primed
            self.out = {}
            scalar = self.memory.k.scalar
            scalar[st.S_DEPTH] = _NO_LIMIT
            rows = int(scalar[st.S_ROWS])
            scalar[st.S_BUDGET] = (
                _NO_LIMIT if self.context.replaying else min(rows + self.row_limit // self._shares, _NO_LIMIT)
            )
            self._limit_effort(not self.context.replaying)
            scalar[st.S_KNOWN] = self.context.replaying

    @property
    def channels(self) -> list[str]:
        """One a copy."""
        return [f"{self.fingerprint}/{copy.relation}" for copies in self._copies.values() for copy in copies]

    def waits(self, phase: int) -> bool:
        if not self._running or phase <= self._phase:
            return False
        pending = self._pending
        if phase == OVERDELETING:
            return pending is not None
        if phase == TIDYING:
            return self._valued and int(self.memory.k.scalar[st.S_TOUCHED]) > 0
        added = pending is not None and bool(self._adds(pending).any())
        return added or bool(self._suspended) or int(self.memory.k.scalar[st.S_WITHDRAWN]) > 0

    def work(self, phase: int, received: Mapping[str, Batch]) -> list[PartitionMessage]:
        self._begin()
        self._broken = True  # until the local fixpoint is reached
        first, self._phase = self._phase < phase, phase
        mail = self._read(received)
        if phase == OVERDELETING:
            self._overdelete(mail, first)
        elif phase == DERIVING:
            self._derive(mail, first)
        else:
            self._tidy(mail, first)
        self._broken = False
        letters = [
            message_of_rows(f"{self.fingerprint}/{copy}", to, concat(batches, batches[0].rows.shape[1]))
            for (copy, to), batches in self._outbox.items()
        ]
        self._outbox.clear()
        return letters

    def _overdelete(self, mail: Codes, first: bool) -> None:
        if first and self._pending is not None:
            self._feed(self._pending, True)
        while True:
            if len(mail):
                self._feed(self._suspend(mail), True)
            self._call(ex.spread, OVERDELETE, self._heads)
            mail = self._post(-1)
            if not len(mail):
                return

    def _suspend(self, mail: Codes) -> Codes:
        """The rows of copies that die because a sender lost them: with the first, all their senders go."""
        senders = np.empty(len(mail), np.int64)
        ex.multiplicities(self.memory.k.address, mail, senders)
        alive = senders > 0
        dying, before = mail[alive], mail[alive]
        dying[:, 1], before[:, 1] = -senders[alive], senders[alive]
        self._suspended += [before, mail]
        return dying

    def _derive(self, mail: Codes, first: bool) -> None:
        self._rounds += 1
        if self._rounds > self._most and not self.context.replaying:
            self._refuse(f"{self._most:,} rounds")
        if first:
            self._mark = int(self.memory.k.scalar[st.S_TOUCHED])
            self._call(fx.rederive, restart=True)
            left = _summed(self._suspended, self._compiled.columns)
            self._suspended = []
            self._feed(left[left[:, 1] > 0], False)
            if self._pending is not None:
                self._feed(self._pending, False)
        steps = 0
        while True:
            self._feed(mail, False)
            self._call(ex.spread, FORWARD, self._heads)
            mail = self._post(1)
            if not len(mail):
                return
            steps += 1
            if steps > self.depth_limit and not self.context.replaying:
                self._refuse()

    def _tidy(self, mail: Codes, first: bool) -> None:
        """Take back what was sent before this epoch or in it, and is no longer the best this partition has."""
        self._discount(mail)
        if not first:
            return
        k = self.memory.k
        start = min(self._mark, int(k.scalar[st.S_TOUCHED]))
        old = np.empty((int(k.scalar[st.S_TOUCHED]) - start, 2 + self._compiled.columns), np.int64)
        old = old[: ex.superseded(k.address, start, self._heads, old)]
        for head in self._copies:
            width = len(self.program.relations[head].schema)
            rows = [old[old[:, 0] == head, 2 : 2 + width], *(r for of, r in self._found if of == head)]
            gone = np.ascontiguousarray(np.concatenate(rows))
            gone = gone[self.holds(head, gone) == 0]
            self._discount(self._address(head, Batch(gone, np.full(len(gone), -1, np.int64), True)))

    def _discount(self, changes: Codes) -> None:
        ex.discount(self.memory.k.address, changes)
        if self._logged:
            self._log.append(changes)

    def finish(self) -> None:
        if self._finished:
            return
        self._finished = True
        self.out |= settled(self.memory, self._homes)

    # -- feeding and sending -----------------------------------------------------------------------------------------

    def _adds(self, changes: Codes) -> Codes:
        """Which changes can only bring derivations."""
        absences = [i for i, r in enumerate(self.program.relations) if r.kind == "absence"]
        adds: Codes = (changes[:, 1] > 0) != np.isin(changes[:, 0], absences)
        return adds

    def _feed(self, changes: Codes, deleting: bool) -> None:
        """Apply those of some changes that take derivations away, or those that bring them; logged as far as done."""
        if not len(changes):
            return
        changes = np.ascontiguousarray(changes[self._adds(changes) != deleting])
        self.memory.k.scalar[st.S_CURSOR] = 0
        try:
            self._call(fx.feed, changes, deleting)
        finally:
            if self._logged:
                self._log.append(changes[: int(self.memory.k.scalar[st.S_CURSOR])])

    def _read(self, received: Mapping[str, Batch]) -> Codes:
        parts = [self._told(int(channel.rpartition("/")[2]), consolidate(batch)) for channel, batch in received.items()]
        return self._joined(parts)

    def _post(self, sign: int) -> Codes:
        """Address the derived rows that were written down; what is for this partition itself."""
        k = self.memory.k
        block = k.foreign[: int(k.scalar[st.S_FOREIGN])].copy()
        k.scalar[st.S_FOREIGN] = 0
        own: list[Codes] = []
        start = 1 + self._compiled.atoms
        for head in self._copies:
            rows = block[block[:, 0] == head, start : start + len(self.program.relations[head].schema)]
            if not len(rows):
                continue
            rows = np.ascontiguousarray(rows)
            if sign > 0 and self.program.relations[head].kind == "best":
                self._found.append((head, rows))
            own.append(self._address(head, Batch(rows, np.full(len(rows), sign, np.int64), True)))
        return self._joined(own)

    def _address(self, head: int, batch: Batch) -> Codes:
        """Put derived rows into the outbox for each of their copies; what is for this partition itself."""
        own: list[Codes] = []
        for copy in self._copies[head] if len(batch) else ():
            if copy.cols is None and self._partitions > 1:
                self._send(copy.relation, EVERYWHERE, batch)
                continue
            for to, part in parted(batch, copy.cols or (), self._partitions).items():
                if to == self._partition:
                    own.append(self._told(copy.relation, part))
                else:
                    self._send(copy.relation, to, part)
        return self._joined(own)

    def _send(self, copy: int, to: int, batch: Batch) -> None:
        self._outbox.setdefault((copy, to), []).append(batch)

    def _told(self, relation: int, batch: Batch) -> Codes:
        changes = np.zeros((len(batch), 2 + self._compiled.columns), np.int64)
        changes[:, 0], changes[:, 1] = relation, batch.ann
        changes[:, 2 : 2 + batch.rows.shape[1]] = batch.rows
        return changes

    def _joined(self, parts: list[Codes]) -> Codes:
        return np.concatenate(parts) if parts else np.empty((0, 2 + self._compiled.columns), np.int64)

    # -- going back --------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        if self._running:
            self._settle()
            self._end()
            self.memory.compact()

    def undo(self) -> None:
        """Feed what takes the epoch's changes back; if it broke off in the middle, derive anew from what was fed."""
        if not self._running:
            return
        if not self._logged:
            self._start()
            self._end()
            return
        k = self.memory.k
        back = _summed(self._log, self._compiled.columns)
        back[:, 1] *= -1
        if self._broken:
            there = np.empty((int(k.scalar[st.S_ROWS]), 2 + self._compiled.columns), np.int64)
            there = there[: ex.given(k.address, there)]
            back = _summed([there, back], self._compiled.columns)
            self._start()
            k = self.memory.k
        k.scalar[st.S_DEPTH] = k.scalar[st.S_BUDGET] = _NO_LIMIT
        k.scalar[st.S_KNOWN] = 1
        self._feed(back, True)
        self._call(ex.spread, OVERDELETE, self._heads)
        self._call(fx.rederive, restart=True)
        self._feed(back, False)
        self._call(ex.spread, FORWARD, self._heads)
        self._settle()
        self._end()
        self.out = {}
        self._broken = False

    def _settle(self) -> None:
        """Forget what the epoch has touched."""
        k = self.memory.k
        k.scalar[st.S_FOREIGN] = 0
        ex.settle(k.address, np.zeros_like(self._homes), np.empty((0, 2), np.int64))

    def _refuse(self, met: str = "") -> None:
        """Name the view, and an input row of this partition's batch, if there is one; else a row that came by."""
        changes = self._pending if self._pending is not None else np.empty((0, 2), np.int64)
        changes = changes[self._adds(changes)]
        if not len(changes):
            changes = next((fed for fed in reversed(self._log) if len(fed)), changes)
        refuse(self.program, self.dictionary, self.name, changes, met or str(self.limits))

    def describe(self) -> str:
        return f"{super().describe()}, {self.spec.text}"


def _summed(parts: list[Codes], columns: int) -> Codes:
    """Changes of the same rows added up."""
    if not parts:
        return np.empty((0, 2 + columns), np.int64)
    whole = np.concatenate(parts)
    rows = np.empty((len(whole), 1 + columns), np.int64)
    rows[:, 0], rows[:, 1:] = whole[:, 0], whole[:, 2:]
    batch = consolidate(Batch(rows, np.ascontiguousarray(whole[:, 1])))
    out = np.empty((len(batch), 2 + columns), np.int64)
    out[:, 0], out[:, 1], out[:, 2:] = batch.rows[:, 0], batch.ann, batch.rows[:, 1:]
    return out


def build_exchange(
    spec: plan.Exchange,
    builder: Builder,
    views: tuple[str, ...],
    *,
    name: str,
    depth_limit: int,
    row_limit: int,
    maintain: Maintain | None = None,
) -> PartitionedFixpoint | AnnotatedPartitionedFixpoint:
    """This partition's share of a component, over the sources of its external relations."""
    inputs = []
    for number, _ in spec.wishes:
        source = spec.rules.relations[number].source
        assert source is not None
        inputs.append(builder.build(source))
    make = PartitionedFixpoint if maintain is None else partial(AnnotatedPartitionedFixpoint, maintain=maintain)
    exchange = make(
        spec,
        inputs,
        builder.dictionary,
        name=name,
        partition=builder.partition,
        partitions=builder.partitions,
        depth_limit=depth_limit,
        row_limit=row_limit,
    )
    relations = [replace(r, source=None) for r in spec.rules.relations]  # the inputs' fingerprints say what these are
    shape = ("exchange", views, maintain, builder.partitions, relations, spec.rules.rules, spec.wishes, spec.copies)
    exchange.fingerprint = fingerprint(shape, [i.fingerprint for i in inputs])
    return exchange
