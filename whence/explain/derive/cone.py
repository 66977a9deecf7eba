"""Take recursive components apart: all derivations of their rows, from the fixpoint's own store.

A row of a component is known by its slot. Rows are asked for at any time and get their nodes at once; `Cone.spread`
then finds the derivations of all that were asked for, and of all rows in those, by the backward plans of the rules
(`kernels/cone.py`). Rows of external relations are left to the extractor: they come from queries outside.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from whence.engine.recursion.fixpoint import Fixpoint
from whence.engine.recursion.kernels import store as st
from whence.engine.recursion.kernels.search import GATHER
from whence.engine.recursion.slot_store import SlotStore
from whence.explain.derive.graph_builder import GraphBuilder
from whence.explain.graph import Ints
from whence.explain.kernels import cone as ck
from whence.model.budget import reach
from whence.model.codes import Codes
from whence.model.errors import EvaluationError

_NO_LIMIT = 2**62
_EACH = 5  # derivations of a row for which there is room at first
_FEW = 4096  # rows and derivations for which there is room in any case
_KEEPING = 100_000  # rows that keep others away and are still looked at one by one


_MARKS: weakref.WeakKeyDictionary[SlotStore, Ints] = weakref.WeakKeyDictionary()  # all -1, between two questions


class Outside(NamedTuple):
    """Rows of an external relation that some derivation uses: their numbers in the cone, cells, and copies."""

    relation: int
    numbers: Codes
    cells: Codes
    copies: Codes


@dataclass
class _Arrays:
    slots: Codes
    mark: Ints
    counts: Codes
    out: Ints


class Cone:
    """The rows of one fixpoint that a graph has, numbered as they are met."""

    def __init__(self, fixpoint: Fixpoint, builder: GraphBuilder):
        self.fixpoint, self.builder = fixpoint, builder
        k = fixpoint.store.k
        slots = int(k.scalar[st.S_ROWS])
        self._state = np.zeros(4, np.int64)
        self._atoms = int(k.scalar[st.S_ATOMS])
        mark = _MARKS.pop(fixpoint.store, None)
        if mark is None or len(mark) < slots:
            mark = np.full(slots + slots // 8 + 16, -1, np.int32)
        out = np.empty((_FEW, 1 + self._atoms), np.int32)
        self._a = _Arrays(np.empty(_FEW, np.int64), mark, np.empty(_FEW, np.int64), out)
        self._nodes: Ints = np.full(_FEW + 1, -1, np.int32)  # the node of each number; number -1 is none
        self._settled = 0  # numbers that have a node
        self._spread = 0  # numbers whose derivations are in the graph

    def release(self) -> None:
        """Leave the marks to the next question as they were; this cone is not used any more."""
        a, store = self._a, self.fixpoint.store
        a.mark[a.slots[: int(self._state[ck.QUEUED])]] = -1
        _MARKS[store] = a.mark

    @property
    def waiting(self) -> bool:
        """Return whether rows were asked for whose derivations are not found yet."""
        return self._spread < int(self._state[ck.QUEUED])

    def ask(self, relation: int, rows: Codes) -> Codes:
        """Return the numbers of live rows of a relation."""
        self.builder.check_room(len(rows))
        numbers, address = np.empty(len(rows), np.int64), self.fixpoint.store.k.address
        ck.slots_of(address, relation, np.ascontiguousarray(rows), numbers)
        self._make_room(ck.ROWS, len(rows))
        ck.number(numbers, self._a.slots, self._a.mark, self._state)
        return numbers

    def nodes(self, numbers: Codes | Ints) -> Ints:
        return self._nodes[numbers]

    def settle(self, numbers: Codes, nodes: Ints) -> None:
        """Set the nodes of rows."""
        self._nodes[numbers] = nodes

    def unsettled(self) -> list[Outside]:
        """Return the rows that were met since this was called last, by relation: they need nodes."""
        first, last = self._settled, int(self._state[ck.QUEUED])
        self._settled = last
        if len(self._nodes) <= len(self._a.slots):
            more = len(self._a.slots) + 1 - len(self._nodes)
            self._nodes = np.concatenate([self._nodes, np.full(more, -1, np.int32)])
        if first == last:
            return []
        k = self.fixpoint.store.k
        m = int(k.scalar[st.S_META])
        slots = self._a.slots[first:last]
        relations = k.meta[slots, m] & st.RELATION
        found = []
        for relation in np.flatnonzero(np.bincount(relations)).tolist():
            at = np.flatnonzero(relations == relation)
            width = len(self.fixpoint.program.relations[relation].schema)
            mine = slots[at]
            found.append(Outside(relation, at + first, k.cells[mine, :width], k.meta[mine, m + 1].astype(np.int64)))
        return found

    def spread(self) -> tuple[Codes, Codes, Ints]:
        """Return all derivations of rows that have none yet: head's numbers, rules, numbers of the body (-1 for
        none)."""
        self._run()
        first, last = self._spread, int(self._state[ck.DONE])
        self._spread = last
        numbers = np.repeat(np.arange(first, last), self._a.counts[first:last])
        out = self._a.out[: int(self._state[ck.FOUND])]
        self._state[ck.FOUND] = 0
        return numbers, out[:, 0].astype(np.int64), out[:, 1:]

    def lets_in(self) -> bool:
        """Return whether a row of an excluded relation blocks a derivation that may matter here: of a row in this cone,
        or of one that is not there now and could lead to one."""
        fixpoint = self.fixpoint
        program, k = fixpoint.program, fixpoint.store.k
        m, used = int(k.scalar[st.S_META]), int(k.scalar[st.S_ROWS])
        tags = k.meta[:used, m]
        present = {i for i, r in enumerate(program.relations) if r.kind == "absence" and fixpoint.count(i)}
        if not present:
            return False
        if any(sum(a.relation in present for a in rule.atoms) > 1 for rule in program.rules):
            return True  # one by one none of them may be seen to keep it away
        keeping = np.flatnonzero((tags & st.ALIVE != 0) & np.isin(tags & st.RELATION, list(present)))
        if len(keeping) > _KEEPING:
            return True
        found, status = self._gather(keeping)
        if status != st.OK:
            return True
        for number in np.unique(found[:, 0]).tolist():
            rule = program.rules[number]
            if rule.foreign is not None or program.relations[rule.head].kind == "best":
                return True
            mine = found[found[:, 0] == number]
            heads = np.ascontiguousarray(mine[:, 1 + self._atoms : 1 + self._atoms + len(rule.terms)])
            slots = np.empty(len(heads), np.int64)
            ck.slots_of(k.address, rule.head, heads, slots)
            if (slots < 0).any() or (self._a.mark[slots] >= 0).any():
                return True
        return False

    def _gather(self, rows: Codes) -> tuple[Codes, int]:
        """Return all derivations that have one of these rows in their body, as if it were as the rule requires."""
        store = self.fixpoint.store
        scalar = store.k.scalar
        budget, work = int(scalar[st.S_BUDGET]), int(scalar[st.S_WORK])
        try:
            scalar[st.S_BUDGET], scalar[st.S_KNOWN] = _NO_LIMIT, 0  # what is not there now may fail
            _, found, status = store.gather(rows, GATHER, False)
        finally:
            scalar[st.S_BUDGET], scalar[st.S_WORK], scalar[st.S_FOREIGN] = budget, work, 0
        if len(self._a.mark) < int(scalar[st.S_ROWS]):
            self._make_room(ck.ROWS)
        return found, status

    def _run(self) -> None:
        store, a, state = self.fixpoint.store, self._a, self._state
        scalar = store.k.scalar
        guess = min(_EACH * int(state[ck.QUEUED] - state[ck.DONE]), self.builder.limit + _FEW)
        if len(a.out) < guess:
            a.out = np.empty((guess, 1 + self._atoms), np.int32)
        budget, work = int(scalar[st.S_BUDGET]), int(scalar[st.S_WORK])
        try:
            scalar[st.S_BUDGET], scalar[st.S_KNOWN] = _NO_LIMIT, 1
            while True:
                status = store.drive(ck.cone, a.slots, a.mark, a.counts, a.out, state, pause=self._pause)
                if status != st.OK:
                    raise EvaluationError(
                        f"a number went out of its range while looking for derivations in {self.fixpoint.name}"
                    )
                if state[ck.FULL] == ck.NOTHING:
                    return
                self._make_room(int(state[ck.FULL]))
        finally:
            scalar[st.S_BUDGET], scalar[st.S_WORK], scalar[st.S_FOREIGN] = budget, work, 0

    def _pause(self) -> None:
        """Say how far it is, and refuse what is too much already."""
        found = int(self._state[ck.FOUND])
        self.builder.check_room(found)
        reach(f"derivations: {self.builder.derivations + found:,}, of {int(self._state[ck.DONE]):,} rows")

    def _make_room(self, what: int, rows: int = 0) -> None:
        """Make room for `rows` rows more, or for what there was no room for."""
        a, used = self._a, int(self.fixpoint.store.k.scalar[st.S_ROWS])
        if what == ck.ROWS:
            if used > len(a.mark):
                a.mark = np.concatenate([a.mark, np.full(2 * used - len(a.mark), -1, np.int32)])
            need = int(self._state[ck.QUEUED]) + rows
            if not rows or need > len(a.slots):
                more = max(len(a.slots), 2 * need - len(a.slots))
                a.slots = np.concatenate([a.slots, np.empty(more, np.int64)])
                a.counts = np.concatenate([a.counts, np.empty(more, np.int64)])
            return
        self.builder.check_room(len(a.out))
        a.out = np.concatenate([a.out, np.empty((4 * len(a.out), 1 + self._atoms), np.int32)])
