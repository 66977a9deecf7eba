"""AnnotatedExchange: recursion across partitions, kept by annotations that travel with its rows (MinShip).

Law: after every epoch a row of a view is in its home if and only if it has a derivation from the external rows of all
partitions, and its annotation there says sets of external rows, of whatever partition, that suffice for it.

Each partition has the local rules of `plan/partitions/exchange.py`, and keeps them as `AnnotatedFixpoint` keeps rules:
a row derived here shows what the copies of it elsewhere have been told, and holds back what came later. A copy is told
functions, not variables of its own, so it lives while what it was told is not false. A variable has one name
everywhere: the relation of the component's rules, and the cells; where equal rows may lie in several partitions, the
partition too. An epoch has two phases, each repeated in all partitions until nothing is on its way:

1. Restrict. Who has lost external rows tells the others their names, once; everybody puts false in their place. Of
   rows that die by it nothing has to be said: their copies die of the same. Nothing is derived, so that no letter of
   the next phase speaks of what is gone.
2. Derive. What was released, what is new and what came by letter is joined with what is there; derived rows that show
   something else are sent, with that: lazily the first derivation, or the next when that has died; eagerly whatever is
   not absorbed by what was sent.

Why it is right. Every function is of sets of live external rows that suffice, for `without` is done everywhere before
anything is derived. And nothing derivable is missing: by induction along a derivation its rows show something, so the
product is in what the head shows or holds, and one that holds something shows something; what it shows has been sent.

Under MIN and MAX a derived row is a group with the best value this partition has for it, and a copy has a row for each
value that it was told, with its function; rules read the best of these. A value that is bettered stays in its copies
until its own reasons are gone, and counts again when the better one has died first. Who loses its best value looks for
the next one among what lives, and sends that.

What is sent first must not depend on the order of slots, which a partition that was brought back by its history need
not share: of the derivations that one round finds, the one with the smallest *ticket* comes first. So the same steps
give the same functions.

State: that of `AnnotatedFixpoint`. Cost: derivations through what changed; messages: one round's rows to a partition
are one. Undo: by the logs, exact, no messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from whence.annotate.absorption import Absorption
from whence.engine.core.image import Image, with_room
from whence.engine.core.operator import Batch, Operator
from whence.engine.exchange.messages import PartitionMessage
from whence.engine.exchange.ship import EVERYWHERE, targets
from whence.engine.exchange.wire import MessageReader, MessageWriter, packets
from whence.engine.recursion.annotated_fixpoint import AnnotatedFixpoint
from whence.engine.recursion.components import functions_of
from whence.engine.recursion.iterative import IterativeOperator, refuse, settled, shared_limits
from whence.engine.recursion.kernels import exchange as ex
from whence.engine.recursion.kernels import fixpoint as fx
from whence.engine.recursion.kernels import heads as hd
from whence.engine.recursion.kernels import store as st
from whence.engine.recursion.shared_variables import Gaining, SharedNames
from whence.model.codes import Codes, Dictionary
from whence.model.errors import DataError
from whence.plan.partitions import exchange as plan
from whence.plan.recursion.edges import edges
from whence.plan.recursion.rule_model import RuleProgram, RuleRelation
from whence.plan.recursion.settings import Maintain

_NO_LIMIT = 2**31 - 1
_ROUNDS = 5_000  # each a superstep of all partitions
_AT_ONCE = 1 << 16  # rows told of in one go
_NONE = np.empty(0, np.int64)
_FEW = 16  # one of so many rows may change before bytes are counted again

RESTRICTING, DERIVING = range(2)  # phases


class AnnotatedPartitionedFixpoint(IterativeOperator, AnnotatedFixpoint):
    """A partition's share of a component whose rows carry functions of all partitions' external rows."""

    delay = 2

    def __init__(
        self,
        spec: plan.Exchange,
        inputs: list[Operator],
        dictionary: Dictionary,
        *,
        name: str,
        maintain: Maintain,
        partitions: int = 1,
        partition: int = 0,
        depth_limit: int = 100_000,
        row_limit: int = 20_000_000,
    ):
        self.spec, relations = spec, spec.rules.relations
        self._partition, self._partitions = partition, partitions
        self._places = dict(spec.copies)
        self._copied = {copy.relation for copies in self._places.values() for copy in copies}
        self._sends = _mask(relations, self._places)
        self._homes = _mask(relations, spec.rules.outputs.values()).astype(np.int64)
        # Everybody sees for himself what goes from a relation that is everywhere.
        self._told = _mask(relations, [number for number, wish in spec.wishes if wish.kind != "all"])
        origins = 1 + max(spec.origin)
        self._origin = np.array(spec.origin, np.int64)
        for number, wish in spec.wishes:
            if wish.kind == "any":
                self._origin[number] += origins * (1 + partition)
        widths = np.zeros(origins, np.int64)
        widths[list(spec.origin)] = [len(r.schema) for r in relations]
        self._widths = np.tile(widths, 1 + partitions)
        self._copying = len(spec.rules.rules) - sum(
            relations[head].kind == "best" for head, copies in spec.copies for _ in copies
        )
        super().__init__(
            spec.rules,
            [],
            dictionary,
            {},
            name=name,
            maintain=maintain,
            algebra=partial(functions_of, maintain),
            depth_limit=depth_limit,
            row_limit=row_limit,
        )
        self.limits = shared_limits(spec, depth_limit, row_limit)
        self._shares = partitions if self.limits.endless else 1
        self.inputs = inputs  # whose rows need not be kept for it: it is undone by its own logs
        self._externals = [number for number, _ in spec.wishes]
        self._edges = edges(_as_one(spec))
        self._edges_of = {int(self._origin[self._same[number]]): ends for number, ends in self._edges.items()}
        self._count()
        self._end()

    def _start(self) -> None:
        super()._start()
        state = self._state
        state.annotations = Gaining(state.algebra, state.annotations.lazy)
        state.names = SharedNames(self._compiled.columns, self._origin, self._widths)

    def _end(self) -> None:
        """No epoch."""
        self._pending = None
        self._phase = -1  # the last that began
        self._released: list[Codes] = []
        self._lost: list[Codes] = []  # groups that have no value
        self._changed: list[Codes] = []  # derived rows that show something else, and have not been taken to copies
        self._unsent: list[Codes] = []  # the same, and have not been sent
        self._gone_elsewhere: list[Codes] = []  # variables of rows that went in other partitions
        self._running = self._finished = self._due = False

    @property
    def annotations(self) -> Gaining:
        found = self._state.annotations
        assert isinstance(found, Gaining)
        return found

    @property
    def names(self) -> SharedNames:
        found = self._state.names
        assert isinstance(found, SharedNames)
        return found

    # -- an epoch ----------------------------------------------------------------------------------------------------

    def apply(self, deltas: list[Batch]) -> Batch:
        """Take the external changes; `work` is what follows."""
        self._begin()
        self._pending = changes = self._changes(deltas)
        self._copies = np.empty(len(changes), np.int64)
        hd.copies(self.memory.k.address, changes, self._copies)
        return Batch.empty(0)

    def _begin(self) -> None:
        if self._running:
            return
        self._running = True
        self.out = {}
        self._touched, self._copies = None, _NONE
        self._flushed_before = self._flushed.copy()
        self._due = self._is_due()
        self._rounds = 0
        self._most = _NO_LIMIT if self.context.replaying else self.limits.rounds(_ROUNDS)
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
        return [f"{self.fingerprint}/letters"]

    def waits(self, phase: int) -> bool:
        if not self._running or phase <= self._phase:
            return False
        adds = self._adds()
        if phase == RESTRICTING:
            return not adds.all()
        return bool(adds.any() or self._released or self._lost or self._due)

    def work(self, phase: int, received: Mapping[str, Batch]) -> list[PartitionMessage]:
        self._begin()
        first, self._phase = self._phase < phase, phase
        mail = [packet for batch in received.values() for packet in packets(batch)]
        return self._restrict(mail, first) if phase == RESTRICTING else self._derive_all(mail, first)

    def _adds(self) -> Codes:
        """Which of the external changes can only bring derivations."""
        if self._pending is None:
            return np.empty(0, bool)
        adds: Codes = (self._pending[:, 1] > 0) != (self._kinds[self._pending[:, 0]] == st.ABSENCE)
        return adds

    def _restrict(self, mail: list[MessageReader], first: bool) -> list[PartitionMessage]:
        """Put false in the place of what is gone, here or elsewhere."""
        letters: list[PartitionMessage] = []
        if first and not self._adds().all():
            self._call(fx.feed, self._pending, True, restart=True)
            gone = self._flipped()
            self.annotations.make_room(int(self.memory.k.scalar[st.S_ROWS]))
            names = self._names_of(gone)
            self.annotations.clear(gone)
            self._gone.append(gone)
            self._forget(names)
            relations, _ = self._described(gone)
            told = np.unique(names[self._told[relations]])
            if len(told) and self._partitions > 1:
                news = self.names.write(MessageWriter(), told)
                letters.append(PartitionMessage(self.channels[0], EVERYWHERE, news.letter(), 0, news.size))
        for packet in mail:
            known = self.names.known(*self.names.read(packet))
            packet.end()
            known = known[known >= 0]
            self._forget(known)
            self._gone_elsewhere.append(known)
        return letters

    def _forget(self, variables: Codes) -> None:
        released, lost = self.annotations.without(np.unique(variables))
        self._call(hd.lose, lost, restart=True)
        if len(released):
            self._released.append(released)
        if len(lost) and self.memory.k.scalar[st.S_HEAP]:
            groups = lost[self._kinds[self._described(lost)[0]] == st.BEST]
            if len(groups):
                self._lost.append(groups)

    def _derive_all(self, mail: list[MessageReader], first: bool) -> list[PartitionMessage]:
        """Take what is new, and what came, as far as it goes here; what is to be sent of it."""
        start = [_NONE]
        if first:
            if self._adds().any():
                self._call(fx.feed, self._pending, False, restart=True)
                start.append(self._flipped())
                self._show_variables(start[-1])
            if self._released:
                slots = np.unique(np.concatenate(self._released))
                start.append(self._kept_here(slots[self.annotations.shown[slots] != 0]))
            if self._lost:
                start.append(self._derive(self._gather(np.unique(np.concatenate(self._lost)), backward=True)))
            if self._due:
                start.append(self._kept_here(self.annotations.flush()))
            self._released, self._lost = [], []
        start += self._taken(mail)
        self._tell(np.unique(np.concatenate(start)))
        while self._changed:
            heads = np.unique(np.concatenate(self._changed))
            self._changed = []
            self._unsent.append(heads)
            self._tell(self._to_copies_here(heads))
        letters = self._post()
        self.annotations.gained[:] = 0
        return letters

    def _tell(self, slots: Codes) -> None:
        while len(slots):
            self._rounds += 1
            if self._rounds > self._most:
                self._refuse(f"{self._most:,} rounds")
            if len(slots) > _AT_ONCE:  # what is told together must not depend on slots
                slots = slots[np.lexsort(tuple(self._described(slots)[1].T))]
            parts = [
                self._derive(self._gather(slots[at : at + _AT_ONCE], backward=False))
                for at in range(0, len(slots), _AT_ONCE)
            ]
            slots = np.unique(np.concatenate(parts))
            self.annotations.tidy()

    def _derive(self, block: Codes) -> Codes:
        """Take derivations in the order of their tickets; the slots that show something else and are read here."""
        if len(block) > 1:
            tickets = np.empty(len(block), np.int64)
            ex.tickets(self.memory.k.address, block, tickets)
            block = np.ascontiguousarray(block[np.argsort(tickets, kind="stable")])
        return self._kept_here(super()._derive(block))

    def _kept_here(self, changed: Codes) -> Codes:
        """Of slots that show something else, those that are not to be sent; the others are noted."""
        if not len(changed):
            return changed
        sent = self._sends[self._described(changed)[0]]
        if sent.any():
            self._changed.append(changed[sent])
            changed = changed[~sent]
        return changed

    def _product(self, rules: Codes, slots: Codes, bodies: Codes) -> Codes:
        """The functions of derivations; the best value of a copy is the same row."""
        copying = rules >= self._copying
        if not copying.any():
            return super()._product(rules, slots, bodies)
        found: Codes = self.annotations.shown[bodies[0]]
        own = ~copying
        if own.any():
            found[own] = super()._product(rules[own], slots[own], np.ascontiguousarray(bodies[:, own]))
        return found

    # -- copies ------------------------------------------------------------------------------------------------------

    def _take(self, relations: Codes, cells: Codes, functions: Callable[[], Codes]) -> Codes:
        """Let rows of copies live by functions; the slots that show something else."""
        if not len(relations):
            return _NONE
        atoms, columns = self._compiled.atoms, self._compiled.columns
        block = np.full((len(relations), 1 + atoms + columns), -1, np.int64)
        block[:, 0], block[:, 1 + atoms :] = relations, cells
        slots = np.empty(len(block), np.int64)
        everyone = np.arange(len(self.program.relations))
        self._call(hd.heads, block, everyone, slots, np.zeros(len(block), np.int64), restart=True)
        annotations = self.annotations
        annotations.make_room(int(self.memory.k.scalar[st.S_ROWS]))
        changed: Codes = annotations.safely(lambda: annotations.merge(slots, functions()))
        return changed

    def _to_copies_here(self, heads: Codes) -> Codes:
        """Derived rows go to their copies in this partition; the slots of these that show something else."""
        relations, cells = self._described(heads)
        copies, slots, rows = [], [], []
        for head, places in self._places.items():
            mine = np.flatnonzero(relations == head)
            for copy in places if len(mine) else ():
                here = mine
                if copy.cols is not None and self._partitions > 1:
                    here = mine[targets(cells[mine], copy.cols, self._partitions) == self._partition]
                copies.append(np.full(len(here), copy.relation))
                slots.append(heads[here])
                rows.append(cells[here])
        if not copies:
            return _NONE
        own = np.concatenate(slots)
        return self._take(np.concatenate(copies), np.concatenate(rows), lambda: self._to_tell(own))

    def _to_tell(self, heads: Codes) -> Codes:
        """What derived rows have to say: what they show, or, eagerly, what of it is new."""
        annotations = self.annotations
        return annotations.shown[heads] if annotations.lazy else annotations.gained[heads]

    def _post(self) -> list[PartitionMessage]:
        """A letter to each partition that has copies of derived rows that show something else."""
        if not self._unsent:
            return []
        heads = np.unique(np.concatenate(self._unsent))
        self._unsent = []
        letters: list[PartitionMessage] = []
        relations, cells = self._described(heads)
        sections: dict[int, list[tuple[int, Codes]]] = {}
        for head, places in self._places.items():
            mine = np.flatnonzero(relations == head)
            for copy in places if len(mine) and self._partitions > 1 else ():
                to = None if copy.cols is None else targets(cells[mine], copy.cols, self._partitions)
                for partition in range(self._partitions):
                    there = mine if to is None else mine[to == partition]
                    if partition != self._partition and len(there):
                        sections.setdefault(partition, []).append((copy.relation, there))
        for partition in sorted(sections):
            packet, rows = self._packet(heads, cells, sections[partition])
            letters.append(PartitionMessage(self.channels[0], partition, packet.letter(), rows, packet.size))
        return letters

    def _packet(self, heads: Codes, cells: Codes, sections: list[tuple[int, Codes]]) -> tuple[MessageWriter, int]:
        """Rows of copies, the names that their functions mention, and the functions."""
        packet = MessageWriter().numbers(np.array([(copy, len(there)) for copy, there in sections]))
        for copy, there in sections:
            packet.numbers(cells[there, : len(self.program.relations[copy].schema)])
        chosen = np.concatenate([there for _, there in sections])
        names, data = self.functions.pack(self._to_tell(heads[chosen]))
        self.names.write(packet, names).data(data)
        return packet, len(chosen)

    def _taken(self, mail: list[MessageReader]) -> list[Codes]:
        """Rows that came by letter go to their copies; the slots that show something else."""
        relations, cells, packed = [_NONE], [np.empty((0, self._compiled.columns), np.int64)], []
        for packet in mail:
            told = 0
            for copy, count in packet.pairs():
                if copy not in self._copied:
                    raise DataError("a letter from another partition has rows of a relation that is no copy")
                width = len(self.program.relations[copy].schema)
                table = packet.table(count, width)
                rows = np.zeros((count, self._compiled.columns), np.int64)
                rows[:, :width] = table
                relations.append(np.full(count, copy))
                cells.append(rows)
                told += count
            origins, named = self.names.read(packet)
            names = self.names.of_others(origins, named)
            self._place_others(names, origins, named)
            packed.append((told, names, packet.data()))
            packet.end()
        if not packed:
            return []

        def unpacked() -> Codes:
            found = [self.functions.unpack(names, data) for _, names, data in packed]
            if any(len(mine) != told for mine, (told, *_) in zip(found, packed, strict=True)):
                raise DataError("a letter from another partition has rows without functions, or functions without rows")
            return np.concatenate(found)

        return [self._take(np.concatenate(relations), np.concatenate(cells), unpacked)]

    def _place_others(self, names: Codes, origins: Codes, cells: Codes) -> None:
        """Say of variables of other partitions, too, which edges they are."""
        state = self._state
        if not isinstance(state.algebra, Absorption) or not self._edges_of or not len(names):
            return
        if (last := int(names.max())) >= len(state.placed):
            state.placed = with_room(state.placed, 2 * (last + 1))
        new = np.flatnonzero(~state.placed[names])
        for origin, (start, end) in self._edges_of.items():
            mine = new[origins[new] == origin]
            if len(mine):
                state.algebra.place(names[mine], cells[mine, start].copy(), cells[mine, end].copy())
                state.placed[names[mine]] = True

    # -- the end of an epoch -----------------------------------------------------------------------------------------

    def finish(self) -> None:
        if self._finished:
            return
        self._finished = True
        k = self.memory.k
        self._touched = k.touched[: int(k.scalar[st.S_TOUCHED])].copy()
        self._uncounted += self.annotations.touched
        if _FEW * self._uncounted > self.annotations.slots:
            self._count()
        self.out |= settled(self.memory, self._homes)

    def commit(self) -> None:
        if self._running:
            k = self.memory.k
            ex.settle(k.address, np.zeros_like(self._homes), np.empty((0, 2), np.int64))
            if self._gone_elsewhere:
                self._misplace(np.unique(np.concatenate(self._gone_elsewhere)))
            self._end()
            super().commit()

    def _move(self, places: Codes) -> None:
        super()._move(places)
        self._misplace(self.names.free)

    def _misplace(self, names: Codes) -> None:
        """Variables stand for no edges any more."""
        placed = self._state.placed
        names = names[names < len(placed)]
        names = names[placed[names]]
        placed[names] = False
        if isinstance(self.functions, Absorption):
            self.functions.lose(names)

    def restore(self, image: Image) -> None:
        super().restore(image)
        self._count()

    def undo(self) -> None:
        if not self._running:
            return
        changes = self._pending if self._pending is not None else np.empty((0, 2 + self._compiled.columns), np.int64)
        self._take_back(changes)
        self._flushed = self._flushed_before
        self._gone.clear()
        self._end()
        self.out = {}

    def _refuse(self, met: str = "") -> None:
        """Name the view, and an input row of this partition's batch, if there is one."""
        changes = self._pending[self._adds()] if self._pending is not None else np.empty((0, 2), np.int64)
        refuse(self.program, self.dictionary, self.name, changes, met or str(self.limits))

    @property
    def state_bytes(self) -> int:
        """As it was when a good part of the rows had changed: it is asked for in every round, and has to be counted."""
        return self._bytes

    def _count(self) -> None:
        self._bytes, self._uncounted = super().state_bytes, 0

    def describe(self) -> str:
        return f"{super().describe()}, {self.spec.text}"


def _mask(relations: list[RuleRelation], some: Iterable[int]) -> np.ndarray:
    """Which relations are among some."""
    mask = np.zeros(len(relations), bool)
    mask[list(some)] = True
    return mask


def _as_one(spec: plan.Exchange) -> RuleProgram:
    """The local rules with copies taken for what they are copies of: as in the component's own rules."""
    head = {spec.origin[number]: number for number, _ in spec.copies}
    rules = [
        replace(
            rule,
            atoms=tuple(replace(a, relation=head.get(spec.origin[a.relation], a.relation)) for a in rule.atoms),
        )
        for rule in spec.rules.rules
    ]
    return replace(spec.rules, rules=rules)
