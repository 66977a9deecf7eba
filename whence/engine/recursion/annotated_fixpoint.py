"""Provenance: a recursive component kept by annotations, functions of its external rows (`WITH (maintain = …)`).

Law: after every epoch a derived row lives exactly when its annotation is not false, and an annotation says sets of
external rows that suffice for the row. So a deletion puts false in the place of what is gone, in the rows that mention
it, and what has another reason stays without a search; nothing has a rank, and nothing counts to infinity: rows on a
circle mention the rows that feed it. Under MIN and MAX the annotation is of the best value, and says what suffices for
one at least as good; a better value takes its place, and a row that has lost it is searched for again.

State: the store, without chosen derivations; `Annotations`; the functions, in their algebra; and a name for each
external row (`names.py`), which is its variable, the same wherever the row is read (`plan/recursion/sharing.py`). An
absence is a variable of its own, there while the row is not.

An epoch: what goes is fed, its variables become false, rows that lost all die, released ones are told of; then what
comes is fed and told of. Telling is done in rounds: all derivations through the rows that changed are written down
(`kernels/gather.py`), their heads found, the functions of their bodies multiplied and merged into the heads'; those
that now show something else are the next round. Cost: derivations through rows that changed, times their functions.

Undo is exact and by the log: of the store, the rows touched; of annotations, the functions at their first touch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from whence.annotate import AnnotationTooLarge
from whence.annotate import Provenance as Functions
from whence.annotate.absorption import Absorption
from whence.engine.core.batch import consolidate
from whence.engine.core.image import Image, StaleImage, inside, nested, with_room
from whence.engine.core.operator import Batch, Operator
from whence.engine.recursion.annotations import Annotations
from whence.engine.recursion.fixpoint import Fixpoint, Pipeline, added_up
from whence.engine.recursion.kernels import annotations as an
from whence.engine.recursion.kernels import fixpoint as fx
from whence.engine.recursion.kernels import heads as hd
from whence.engine.recursion.kernels import store as st
from whence.engine.recursion.kernels.search import GATHER
from whence.engine.recursion.row_variables import RowVariables
from whence.engine.recursion.rule_plans import KINDS, Compiled
from whence.engine.recursion.slot_store import SlotStore
from whence.model.codes import NULL, Codes, Dictionary
from whence.model.errors import DataError, EvaluationError
from whence.plan.recursion.edges import edges
from whence.plan.recursion.rule_model import RuleProgram
from whence.plan.recursion.settings import Maintain
from whence.plan.recursion.sharing import same_rows

_NO_LIMIT = 2**31 - 1
_ROUNDS = 25_000
_AT_ONCE = 1 << 16  # rows told of in one go
_NONE = np.empty(0, np.int64)


@dataclass
class _State:
    """All that an epoch may have to begin anew: set aside whole, and put back."""

    memory: SlotStore
    algebra: Functions
    annotations: Annotations
    names: RowVariables
    named: Codes  # by slot: the name of its row, -1 for none yet
    placed: np.ndarray  # by name: whether the algebra has been told where it is


class AnnotatedFixpoint(Fixpoint):
    """A component whose rows carry functions of its external rows."""

    def __init__(
        self,
        program: RuleProgram,
        inputs: list[Operator],
        dictionary: Dictionary,
        pipelines: dict[int, Pipeline],
        *,
        name: str,
        maintain: Maintain,
        algebra: Callable[[], Functions],
        depth_limit: int = 100_000,
        row_limit: int = 20_000_000,
    ):
        self.maintain = maintain
        self._algebra = algebra
        self._kinds = np.array([KINDS[r.kind] for r in program.relations], np.int64)
        self._heads = np.array([rule.head for rule in program.rules], np.int64)
        self._edges = edges(program)
        self._same = np.array(same_rows(program), np.int64)
        self._aside: _State | None = None  # the state before an epoch that had to begin anew
        self._touched: Codes | None = None  # of the epoch that can still be undone: rows of the store,
        self._copies = _NONE  # and how often its external rows were there
        self._flushed = np.zeros(2, np.int64)  # the moment when what was held was last shown: number, time
        self._flushed_before = self._flushed
        self._gone: list[Codes] = []  # external slots that went in this epoch
        self._bodies = _NONE, _NONE  # of the derivations at hand, where names are wanted: slots, rising, and names
        super().__init__(
            program,
            inputs,
            dictionary,
            pipelines,
            name=name,
            policy=maintain.algebra,
            depth_limit=depth_limit,
            row_limit=row_limit,
        )

    def _start(self) -> None:
        self._compiled = Compiled(self.program, self.dictionary, st.DRED)
        functions = self._algebra()
        lazy = self.maintain.propagate != "eager"
        self._state = _State(
            SlotStore(self._compiled, st.DRED),
            functions,
            Annotations(functions, lazy),
            RowVariables(self._compiled.columns),
            np.full(64, -1, np.int64),
            np.zeros(64, bool),
        )
        self.memory = self._state.memory

    @property
    def functions(self) -> Functions:
        """The algebra of the annotations' handles."""
        return self._state.algebra

    @property
    def annotations(self) -> Annotations:
        return self._state.annotations

    @property
    def names(self) -> RowVariables:
        return self._state.names

    # -- an epoch ----------------------------------------------------------------------------------------------------

    def apply(self, deltas: list[Batch]) -> Batch:
        self._pending = changes = self._changes(deltas)
        self._flushed_before = self._flushed.copy()
        try:
            self.out = self._run(changes)
        except EvaluationError as error:
            if isinstance(error.__cause__, AnnotationTooLarge):
                raise
            self.out = self._run_anew(changes)
        return Batch.empty(0)

    def _run(self, changes: Codes, limited: bool = True, known: int = 0) -> dict[int, Batch]:
        scalar = self.memory.k.scalar
        limited = limited and not self.context.replaying
        scalar[st.S_DEPTH] = _NO_LIMIT
        scalar[st.S_BUDGET] = int(scalar[st.S_ROWS]) + known + self.row_limit if limited else _NO_LIMIT
        scalar[st.S_KNOWN] = not limited
        self._limit_effort(limited)
        self._rounds = 0
        self._most = self.limits.rounds(_ROUNDS) if limited else _NO_LIMIT
        self._touched = None
        self._copies = np.empty(len(changes), np.int64)
        hd.copies(self.memory.k.address, changes, self._copies)
        removes = (changes[:, 1] < 0) != (self._kinds[changes[:, 0]] == st.ABSENCE)
        if removes.any():
            self._call(fx.feed, changes, True, restart=True)
            self._remove(self._flipped())
        if not removes.all():
            self._call(fx.feed, changes, False, restart=True)
            flipped = self._flipped()
            self._show_variables(flipped)
            self._tell(flipped)
        if self._is_due():
            self._tell(self.annotations.flush())
        self._touched = self.memory.k.touched[: int(scalar[st.S_TOUCHED])].copy()
        return self._collected()

    def _flipped(self) -> Codes:
        """The external slots that were fed and came or went, taken off the queue."""
        k, s = self.memory.k, self.memory.k.scalar
        places = np.arange(int(s[st.S_HEAD]), int(s[st.S_TAIL])) % len(k.queue)
        s[st.S_HEAD] = s[st.S_TAIL] = 0
        return np.ascontiguousarray(k.queue[places, 1])

    def _remove(self, flipped: Codes) -> None:
        """External rows are gone (or came, of which an absence was told): false for their variables."""
        annotations = self.annotations
        annotations.make_room(int(self.memory.k.scalar[st.S_ROWS]))
        annotations.clear(flipped)
        self._gone.append(flipped)
        released, lost = annotations.without(np.unique(self._names_of(flipped)))
        self._call(hd.lose, lost, restart=True)
        told = [released]
        if self.memory.k.scalar[st.S_HEAP] and len(lost):
            relations, _ = self._described(lost)
            best = lost[self._kinds[relations] == st.BEST]
            if len(best):
                told.append(self._derive(self._gather(best, backward=True)))
        self._tell(np.concatenate(told))

    def _show_variables(self, slots: Codes) -> None:
        """Let external slots show the variables they are."""
        self.annotations.make_room(int(self.memory.k.scalar[st.S_ROWS]))
        variables = self._names_of(slots)
        self._place(variables, slots)
        self.annotations.put(slots, self.functions.of_tid(variables))

    def _tell(self, slots: Codes) -> None:
        """Forward from slots that show something else, until nobody does."""
        while len(slots):
            self._rounds += 1
            if self._rounds > self._most:
                self.memory.k.scalar[st.S_CULPRIT] = slots[0]
                self._refuse(f"{self._most:,} rounds")
            changed = [
                self._derive(self._gather(slots[at : at + _AT_ONCE], backward=False))
                for at in range(0, len(slots), _AT_ONCE)
            ]
            slots = changed[0] if len(changed) == 1 else np.unique(np.concatenate(changed))
            self.annotations.tidy()

    def _gather(self, slots: Codes, backward: bool) -> Codes:
        """The derivations through slots, or of them, as a block; what only Python can compute is computed."""
        _, block, status = self.memory.gather(slots, GATHER, backward)
        self._stopped(status)
        return self._computed(block) if self._pipelines and len(block) else block

    def _computed(self, block: Codes) -> Codes:
        atoms = self._compiled.atoms
        parts = [block[~np.isin(block[:, 0], list(self._pipelines))]]
        for rule, pipeline in self._pipelines.items():
            mine = block[block[:, 0] == rule]
            if len(mine):
                numbered = np.empty((len(mine), 1 + len(self.program.rules[rule].terms)), np.int64)
                numbered[:, 0] = np.arange(len(mine))
                numbered[:, 1:] = mine[:, 1 + atoms : atoms + numbered.shape[1]]
                made = pipeline(numbered)
                part = np.zeros((len(made), block.shape[1]), np.int64)
                part[:, : 1 + atoms] = mine[made[:, 0], : 1 + atoms]
                part[:, 1 + atoms : atoms + made.shape[1]] = made[:, 1:]
                parts.append(part)
        return np.concatenate(parts)

    def _derive(self, block: Codes) -> Codes:
        """Take derivations; the slots that show something else."""
        if not len(block):
            return _NONE
        memory, annotations = self.memory, self.annotations
        if self.maintain.algebra == "relative":
            used = np.unique(block[:, 1 : 1 + self._compiled.atoms])
            self._bodies = used, self._names_now(used)  # of groups by the values of which this derives
        slots, improved = np.empty(len(block), np.int64), np.zeros(len(block), np.int64)
        self._call(hd.heads, block, self._heads, slots, improved, restart=True)
        if memory.k.scalar[st.S_HEAP]:
            hd.drop_bettered(memory.k.address, block, slots)
        annotations.make_room(int(memory.k.scalar[st.S_ROWS]))
        some = slots >= 0
        if not some.all():
            block, slots = block[some], slots[some]
        bodies = np.ascontiguousarray(block[:, 1 : 1 + self._compiled.atoms].T)
        self._show_absences(bodies)
        found = annotations.safely(lambda: self._product(block[:, 0], slots, bodies))
        if improved.any():
            annotations.clear(np.unique(slots[improved[some] == 1]))
        return annotations.safely(lambda: annotations.merge(slots, found), found)

    def _product(self, rules: Codes, slots: Codes, bodies: Codes) -> Codes:
        """The functions of derivations."""
        shown, functions = self.annotations.shown, self.functions
        found = np.where(bodies[0] >= 0, shown[bodies[0]], 1)
        for body in bodies[1:]:
            found = functions.times(found, np.where(body >= 0, shown[body], 1))
        if self.maintain.algebra == "relative":
            used, names = self._bodies
            rows = np.ascontiguousarray(names[np.searchsorted(used, bodies)].T)
            found = functions.derived(found, np.ascontiguousarray(rules), self._names_now(slots), rows)
        return found

    def _show_absences(self, bodies: Codes) -> None:
        """Absences are variables from when they are first seen."""
        if (self._kinds == st.ABSENCE).any():
            slots = np.unique(bodies)
            slots = slots[(slots >= 0)]
            self._show_variables(np.ascontiguousarray(slots[self.annotations.shown[slots] == 0]))

    # -- names -------------------------------------------------------------------------------------------------------

    def _described(self, slots: Codes) -> tuple[Codes, Codes]:
        relations, cells = np.empty(len(slots), np.int64), np.empty((len(slots), self._compiled.columns), np.int64)
        an.describe(self.memory.k.address, slots, relations, cells)
        return relations, cells

    def _names_of(self, slots: Codes) -> Codes:
        """The names of the rows of external slots."""
        state = self._state
        if (used := int(self.memory.k.scalar[st.S_ROWS])) > len(state.named):
            longer = np.full(2 * used, -1, np.int64)
            longer[: len(state.named)] = state.named
            state.named = longer
        names = state.named[slots]
        if (names < 0).any():
            new = slots[names < 0]
            relations, cells = self._described(new)
            state.named[new] = state.names.of(self._same[relations], cells)
            names = state.named[slots]
        return names

    def _names_now(self, slots: Codes) -> Codes:
        """The names of rows as they are, derived ones too: a group by its value; -1 for slot -1."""
        names = np.full(len(slots), -1, np.int64)
        there = slots >= 0
        relations, cells = self._described(slots[there])
        names[there] = self.names.of(self._same[relations], cells)
        return names

    def _place(self, names: Codes, slots: Codes) -> None:
        """Say where in the graph, if the rules follow one, the edges are that new variables stand for."""
        state, functions = self._state, self.functions
        if len(names) and (last := int(names.max())) >= len(state.placed):
            state.placed = with_room(state.placed, 2 * (last + 1))
        new = ~state.placed[names]
        if not isinstance(functions, Absorption) or not new.any():
            return
        names, (relations, cells) = names[new], self._described(slots[new])
        starts, ends = np.full(len(names), NULL), np.full(len(names), NULL)
        for relation, (start, end) in self._edges.items():
            mine = relations == relation
            starts[mine], ends[mine] = cells[mine, start], cells[mine, end]
        functions.place(names, starts, ends)
        state.placed[names] = True

    # -- intervals ---------------------------------------------------------------------------------------------------

    def _is_due(self) -> bool:
        """Whether the time has come to show what is held; the epoch counts as the last such, then."""
        now, every = (self.context.number, self.context.time), self.maintain.every
        if not every or not self.context.number:
            return False
        place = 0 if self.maintain.by_epochs else 1
        if not self._flushed[0]:
            self._flushed[:] = now  # the interval begins with the first epoch
            return False
        if now[place] - int(self._flushed[place]) < every:
            return False
        self._flushed[:] = now
        return True

    # -- going back --------------------------------------------------------------------------------------------------

    def _run_anew(self, changes: Codes) -> dict[int, Batch]:
        """An expression failed, perhaps on rows of the half-way state: derive the state after the epoch from nothing,
        beside the state before it."""
        self._take_back(changes)
        before = self._before(changes)
        old = {relation: self.live(relation) for relation in self._derived}
        known = int(self.memory.k.scalar[st.S_ROWS])
        self._aside = self._state
        self._start()
        self._run(added_up(np.concatenate([before, changes])), known=known)
        out = {}
        for relation, gone in old.items():
            now = self.live(relation)
            signs = np.concatenate([np.ones(len(now), np.int64), np.full(len(gone), -1, np.int64)])
            out[relation] = consolidate(Batch(np.concatenate([now, gone]), signs))
        return out

    def undo(self) -> None:
        changes, self._pending = self._pending, None
        if changes is None:
            return
        self.out = {}
        self._flushed = self._flushed_before
        if self._aside is not None:
            self._state, self._aside = self._aside, None
            self.memory = self._state.memory
            self._gone.clear()
        else:
            self._take_back(changes)

    def _take_back(self, changes: Codes) -> None:
        """The state before this epoch's changes, however far it has come."""
        k = self.memory.k
        touched = self._touched
        if touched is None:
            touched = k.touched[: int(k.scalar[st.S_TOUCHED])].copy()
        hd.take_back(k.address, touched)
        hd.set_copies(k.address, changes, self._copies)
        for counter in (st.S_HEAD, st.S_TAIL, st.S_TOUCHED, st.S_WITHDRAWN, st.S_FOREIGN):
            k.scalar[counter] = 0
        self._gone.clear()
        self.annotations.undo()

    def commit(self) -> None:
        self._pending = self._aside = self._touched = None
        self._copies = _NONE
        self._forget_gone()
        self.annotations.commit()
        places = self.memory.compact()
        if places is None and self.names.grown:  # a group has a name for each value it ever had
            places = np.arange(int(self.memory.k.scalar[st.S_ROWS]))
        if places is not None:
            self._move(places)

    def _forget_gone(self) -> None:
        """Take variables of rows that are gone out of the order."""
        if self._gone:
            slots = np.unique(np.concatenate(self._gone))
            self._gone.clear()
            names, placed = self._state.named[slots[self.annotations.shown[slots] == 0]], self._state.placed
            names = names[names < len(placed)]  # an absence that ended before anyone asked for it has no place
            placed[names] = False
            if isinstance(self.functions, Absorption):
                self.functions.lose(names)

    def _move(self, places: Codes) -> None:
        """Slots have moved; names that nothing has any more are given up."""
        state = self._state
        state.annotations.moved(places)
        named = np.full(max(64, state.annotations.slots), -1, np.int64)
        known = state.named[: len(places)]
        kept = np.flatnonzero((places[: len(known)] >= 0) & (known >= 0))
        named[places[kept]] = state.named[kept]
        state.named = named
        mentioned, _ = state.algebra.pack(state.annotations.functions)
        state.names.keep(np.concatenate([mentioned, named[named >= 0]]))

    # -- images ------------------------------------------------------------------------------------------------------

    def image(self) -> Image:
        state = self._state
        return {
            **nested("memory", state.memory.image()),
            **nested("annotations", state.annotations.image()),
            **nested("functions", state.algebra.image()),
            **nested("names", state.names.image()),
            "named": state.named[: int(self.memory.k.scalar[st.S_ROWS])],
            "placed": state.placed[: len(state.names.image()["rows"])],
            "flushed": self._flushed,
        }

    def restore(self, image: Image) -> None:
        state = self._state
        try:
            state.memory.restore(inside("memory", image))
            state.algebra.restore(inside("functions", image))
            state.annotations.restore(inside("annotations", image))
            state.names.restore(inside("names", image))
            state.named = np.full(max(64, len(image["named"])), -1, np.int64)
            state.named[: len(image["named"])] = image["named"]
            state.placed = with_room(image["placed"], max(64, len(image["placed"])))
            self._flushed = np.array(image["flushed"], np.int64)
        except (DataError, KeyError, StaleImage) as why:
            self._start()
            raise StaleImage(f"the annotations of {self.name} are laid out otherwise: {why}") from why

    # -- reading -----------------------------------------------------------------------------------------------------

    def annotations_of(self, relation: int, rows: Codes) -> Codes:
        """What is known of why rows are there, shown or held, as handles of `functions`; false for others."""
        return self.annotations_together([(relation, rows)])

    def annotations_together(self, parts: list[tuple[int, Codes]]) -> Codes:
        """What is known to suffice for the first row of each part at once, for the second of each, and so on."""
        annotations, slots = self.annotations, [np.empty(len(rows), np.int64) for _, rows in parts]
        for (relation, rows), found in zip(parts, slots, strict=True):
            hd.find_rows(self.memory.k.address, relation, np.ascontiguousarray(rows), found)

        def product() -> Codes:
            whole, functions = np.ones(len(slots[0]), np.int64), self.functions
            for found in slots:
                known = functions.plus(annotations.shown[found], annotations.held[found])
                whole = functions.times(whole, np.where(found >= 0, known, 0))
            return whole

        return annotations.safely(product)

    @property
    def state_bytes(self) -> int:
        state = self._state
        return state.memory.nbytes + state.names.nbytes + state.named.nbytes + sum(state.annotations.figures[2:])

    @property
    def provenance(self) -> tuple[int, int, int]:
        """The bytes of all functions, the derived rows that have them, and those of them that hold reasons back."""
        size = self.annotations.figures
        return size.bytes, sum(self.count(relation) for relation in self._derived), size.held

    @property
    def form(self) -> str:
        """How functions are represented now."""
        return self.functions.form if isinstance(self.functions, Absorption) else "edges"

    @property
    def annotation(self) -> str:
        return f"{self.maintain.algebra}, propagate {self.maintain.text}"

    def describe(self) -> str:
        derived = ", ".join(self.program.relations[i].name for i in self._derived)
        kept = f"maintain {self.maintain.algebra}, propagate {self.maintain.text}"
        return f"fixpoint {derived} [{len(self.program.rules)} rules, {kept}]"
