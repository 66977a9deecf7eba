"""Fixpoint: a recursive component kept at its least fixpoint.

Law: after every epoch the derived relations are exactly the rows that have a derivation from the external rows that
does not go through themselves; under MIN and MAX, exactly the best value of each group. Relations in here are sets;
external rows come with multiplicities, and count as present while theirs is positive.

State is one `Store` (`kernels/store.py`); what a deletion removes is the policy's business (`kernels/fixpoint.py`).
An update costs what it derives, withdraws and looks up again, not what the component holds. Rows that only Python can
compute come back from the kernel in blocks and go in again as derivations.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whence.annotate.counting import COUNTING
from whence.annotate.none import NONE
from whence.engine.batch import consolidate
from whence.engine.kernels import fixpoint as fx
from whence.engine.kernels import store as st
from whence.engine.kernels.record import Record
from whence.engine.operator import Batch, Operator
from whence.engine.plans import Compiled
from whence.errors import EvaluationError, RecursionLimitError
from whence.model.codes import Codes, Dictionary, decode_value
from whence.model.types import Schema
from whence.plan.rule_model import RuleProgram
from whence.plan.support import can_support

POLICIES = {"support": st.SUPPORT, "dred": st.DRED}
Pipeline = Callable[[Codes], Codes]


class Memory:
    """The growing arrays of a component and the calls that work on them."""

    def __init__(self, compiled: Compiled, policy: int, depth: int, budget: int):
        self.compiled = compiled
        self._witnesses = 0  # dead rows that the last compaction had to keep
        scalar = np.zeros(st.S_FIELDS, np.int64)
        scalar[st.S_META], scalar[st.S_BODY] = compiled.meta, compiled.body
        scalar[st.S_ATOMS], scalar[st.S_CHAIN] = compiled.atoms, compiled.chain
        scalar[st.S_HEAP] = any(r.kind == "best" for r in compiled.program.relations)
        scalar[st.S_FORGETS] = not can_support(compiled.program)
        scalar[st.S_POLICY], scalar[st.S_DEPTH], scalar[st.S_BUDGET] = policy, depth, budget
        self.k = Record(
            st.STORE,
            **self._slots(64),
            rows=np.full(256, -1, np.int64),
            keys=np.full(256, -1, np.int64),
            relations=compiled.relations,
            indexes=compiled.indexes,
            plans=compiled.plans,
            env=compiled.env,
            queue=np.zeros((64, 2), np.int64),
            touched=np.zeros((64, 2), np.int64),
            buckets=np.full(64, -1, np.int32),
            hopes=np.zeros((4096, 2), np.int32),
            foreign=np.zeros((64, 1 + compiled.atoms + compiled.columns), np.int64),
            scalar=scalar,
        )

    def _slots(self, capacity: int) -> dict[str, np.ndarray]:
        cells = np.zeros((capacity, self.compiled.words), np.int64)
        return {"cells": cells, "meta": cells.view(np.int32)}

    @property
    def nbytes(self) -> int:
        return self.k.nbytes

    def drive(self, kernel: Callable[..., None], *args: object) -> int:
        """Call a kernel until it neither needs room nor is interrupted by anything the driver can mend."""
        scalar = self.k.scalar
        while True:
            scalar[st.S_STATUS] = st.OK
            kernel(self.k.address, *args)
            status = int(scalar[st.S_STATUS])
            if status not in (st.GROW, st.FOREIGN_FULL):
                return status
            self.grow()

    def grow(self) -> None:
        """Double whatever is nearly full; if nothing is, it was the buckets."""
        k, s = self.k, self.k.scalar
        used, waiting = int(s[st.S_ROWS]), int(s[st.S_TAIL] - s[st.S_HEAD])
        change: dict[str, np.ndarray] = {}
        if _nearly(used, k.cells):
            slots = self._slots(2 * len(k.cells))
            slots["cells"][:used] = k.cells[:used]
            change |= slots
        if _nearly(waiting + 2, k.queue):
            change["queue"] = queue = np.zeros((2 * len(k.queue), 2), np.int64)
            queue[:waiting] = k.queue[(int(s[st.S_HEAD]) + np.arange(waiting)) % len(k.queue)]
            s[st.S_HEAD], s[st.S_TAIL] = 0, waiting
        for name, filled in (("touched", s[st.S_TOUCHED]), ("foreign", s[st.S_FOREIGN])):
            if _nearly(int(filled), array := getattr(k, name)):
                change[name] = np.concatenate([array, np.zeros_like(array)])
        old = {"rows": np.empty(0, np.int64), "keys": np.empty(0, np.int64)}
        for name, filled in (("rows", used + 1), ("keys", s[st.S_KEYS_USED] + 8)):
            if _nearly(2 * int(filled), array := getattr(k, name)):
                old[name] = array
                change[name] = np.full(2 * len(array), -1, np.int64)
        if not change:
            change["buckets"] = np.concatenate([k.buckets, np.full_like(k.buckets, -1)])
        k.replace(**change)
        if len(old["rows"]) or len(old["keys"]):
            st.rehash(k.address, old["rows"], old["keys"])

    def make_hopeful(self) -> None:
        """Room to remember hopes follows the largest withdrawal seen; without room, rows are simply searched again."""
        wanted = 4 * int(self.k.scalar[st.S_TOUCHED])
        if wanted > len(self.k.hopes):
            self.k.replace(hopes=np.zeros((2 * wanted, 2), np.int32))

    def compact(self, at_least: int = 4096) -> None:
        """Forget dead rows once they are more than the live ones, so that memory follows the live state."""
        k, s = self.k, self.k.scalar
        used, dead = int(s[st.S_ROWS]), int(s[st.S_DEAD])
        if dead - self._witnesses < max(at_least, used - dead):
            return
        # Dead rows on whose absence others stand are kept, so there must be room for all at first.
        fresh = Record(st.STORE, **k.arrays)
        fresh.replace(
            **self._slots(used),
            rows=np.full_like(k.rows, -1),
            keys=np.full_like(k.keys, -1),
            scalar=s.copy(),
        )
        st.compact(k.address, fresh.address, np.empty(used, np.int64))
        kept = int(fresh.scalar[st.S_ROWS])
        slots = self._slots(max(64, kept + kept // 4))
        slots["cells"][:kept] = fresh.cells[:kept]
        table = np.full(1 << max(8, (3 * kept).bit_length()), -1, np.int64)
        old_rows, old_keys = fresh.rows, fresh.keys
        fresh.replace(**slots, rows=table, keys=np.full_like(old_keys, -1))
        st.rehash(fresh.address, old_rows, old_keys)
        self.k = fresh
        self._witnesses = int(fresh.scalar[st.S_DEAD])

    def count(self, relation: int) -> int:
        return int(st.live_rows(self.k.address, relation, np.empty((0, 1), np.int64)))

    def live(self, relation: int) -> Codes:
        count = self.count(relation)
        out = np.empty((count, len(self.compiled.program.relations[relation].schema)), np.int64)
        if count:
            st.live_rows(self.k.address, relation, out)
        return out


def _nearly(filled: int, array: np.ndarray) -> bool:
    return filled * 8 > len(array) * 7


class Fixpoint(Operator):
    """Keeps the relations of a `RuleProgram`; input i is its i-th external relation; outputs are read through
    `Port`s."""

    algebra = NONE

    def __init__(
        self,
        program: RuleProgram,
        inputs: list[Operator],
        dictionary: Dictionary,
        pipelines: dict[int, Pipeline],
        *,
        name: str,
        policy: str = "support",
        depth_limit: int = 100_000,
        row_limit: int = 20_000_000,
    ):
        self.program, self.inputs, self.dictionary, self.name = program, inputs, dictionary, name
        self.policy, self.depth_limit, self.row_limit = policy, depth_limit, row_limit
        self.schema = Schema(())
        self._pipelines = pipelines
        self._externals = [i for i, r in enumerate(program.relations) if r.kind in ("external", "absence")]
        self._derived = [i for i, r in enumerate(program.relations) if r.kind in ("set", "best")]
        self.out: dict[int, Batch] = {}
        self._pending: Codes | None = None  # this epoch's external changes, while they can still be undone
        self._broken = False
        self._start()

    def _start(self) -> None:
        self._compiled = Compiled(self.program, self.dictionary, POLICIES[self.policy])
        self.memory = Memory(self._compiled, POLICIES[self.policy], self.depth_limit, self.row_limit)

    # -- an epoch ----------------------------------------------------------------------------------------------------

    def apply(self, deltas: list[Batch]) -> Batch:
        changes = self._changes(deltas)
        self._pending = changes
        self._broken = True  # until the fixpoint is reached
        self.out = self._run(changes)
        self._broken = False
        return Batch.empty(0)

    def _changes(self, deltas: list[Batch]) -> Codes:
        parts = []
        for relation, change in zip(self._externals, deltas, strict=True):
            # A row that goes and comes in one batch (an UPDATE of a column nobody reads here) must not be felt.
            delta = consolidate(change, COUNTING)
            if len(delta):
                part = np.zeros((len(delta), 2 + self._compiled.columns), np.int64)
                part[:, 0], part[:, 1] = relation, delta.ann
                part[:, 2 : 2 + delta.rows.shape[1]] = delta.rows
                parts.append(part)
        return np.concatenate(parts) if parts else np.zeros((0, 2 + self._compiled.columns), np.int64)

    def _run(self, changes: Codes) -> dict[int, Batch]:
        memory = self.memory
        memory.k.scalar[st.S_BUDGET] = int(memory.k.scalar[st.S_ROWS]) + self.row_limit
        removes = (changes[:, 1] < 0) != np.isin(changes[:, 0], [i for i in self._externals if self._absence(i)])
        if removes.any():
            self._call(fx.feed, changes, True, restart=True)
            self._call(fx.withdraw if self.policy == "support" else fx.overdelete)
            self._call(fx.rederive, restart=True)
            memory.make_hopeful()
            self._propagate()
        if not removes.all():
            self._call(fx.feed, changes, False, restart=True)
            self._propagate()
        k = memory.k
        out = np.empty((2 * int(k.scalar[st.S_TOUCHED]), 2 + self._compiled.columns), np.int64)
        out = out[: fx.collect(k.address, out)]
        result = {}
        for relation in self._derived:
            mine = out if len(self._derived) == 1 else out[out[:, 0] == relation]
            if len(mine):
                columns = len(self.program.relations[relation].schema)
                result[relation] = Batch(
                    np.ascontiguousarray(mine[:, 2 : 2 + columns]), np.ascontiguousarray(mine[:, 1]), True
                )
        return result

    def _absence(self, relation: int) -> bool:
        return self.program.relations[relation].kind == "absence"

    def _call(self, kernel: Callable[..., None], *args: object, restart: bool = False) -> None:
        memory = self.memory
        if restart:
            memory.k.scalar[st.S_CURSOR] = 0
        memory.k.scalar[st.S_CULPRIT] = -1
        status = memory.drive(kernel, *args)
        if status == st.LIMIT:
            self._refuse()
        if status == st.OVERFLOW:
            raise EvaluationError(f"a number went out of BIGINT's range while deriving {self.name}")
        if status == st.MISSING:
            raise EvaluationError(
                f"a group of {self.name} whose best value is NULL reached LEAST or GREATEST in the recursion: these "
                "skip NULL, so a group could get worse by getting a value; give it one with COALESCE"
            )

    def _propagate(self) -> None:
        """Forward to the end; bindings that only Python can finish are finished between two runs of the kernel."""
        self._call(fx.propagate)
        scalar = self.memory.k.scalar
        while scalar[st.S_FOREIGN]:
            block = self.memory.k.foreign[: int(scalar[st.S_FOREIGN])].copy()
            scalar[st.S_FOREIGN] = 0
            atoms = self._compiled.atoms
            for rule in np.unique(block[:, 0]).tolist():
                mine = block[block[:, 0] == rule]
                head = self.program.rules[rule].head
                numbered = np.empty((len(mine), 1 + len(self.program.rules[rule].terms)), np.int64)
                numbered[:, 0] = np.arange(len(mine))
                numbered[:, 1:] = mine[:, 1 + atoms : 1 + atoms + numbered.shape[1] - 1]
                made = self._pipelines[rule](numbered)
                bodies = np.ascontiguousarray(mine[made[:, 0], 1 : 1 + atoms])
                self._call(fx.emit_block, rule, head, np.ascontiguousarray(made[:, 1:]), bodies, restart=True)
            self._call(fx.propagate)

    # -- going back --------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        self._pending = None
        self.memory.compact()

    def undo(self) -> None:
        """A finished epoch is undone by its inverse; one that broke off in the middle, by deriving everything anew."""
        changes, self._pending = self._pending, None
        if changes is None:
            return
        self.out = {}
        if self._broken:
            before = self._before(changes)
            self._start()
            self._run(before)
            self._broken = False
        else:
            inverse = changes.copy()
            inverse[:, 1] *= -1
            self._run(inverse)

    def _before(self, changes: Codes) -> Codes:
        """The external rows as they were before this epoch's changes, with their multiplicities."""
        rows = self._changes([i.contents() for i in self.inputs])
        inverse = changes.copy()
        inverse[:, 1] *= -1
        return np.concatenate([rows, inverse]) if self._inputs_are_new else rows

    # An input's contents are read while the dataflow is being undone: operators undo after their consumers, so they
    # still hold this epoch's changes.
    _inputs_are_new = True

    def _refuse(self) -> None:
        """Name the view and an input row of the batch that the derivation without end stands on."""
        memory = self.memory
        k = memory.k
        culprit = max(0, int(k.scalar[st.S_CULPRIT]))
        if self.policy != "support":
            self._refuse_by_support()
        m, body = int(k.scalar[st.S_META]), int(k.scalar[st.S_BODY])
        seen, stack, view, guilty = set(), [culprit], "", -1
        while stack:
            row = stack.pop()
            if row in seen:
                continue
            seen.add(row)
            tag = int(k.meta[row, m])
            relation = self.program.relations[tag & st.RELATION]
            view = view or relation.view
            if relation.kind in ("external", "absence"):
                if tag & st.TOUCHED or guilty < 0:
                    guilty = row
                if tag & st.TOUCHED:
                    break
            stack += [int(b) for b in k.meta[row, m + 4 : m + 4 + body] if b >= 0]
        relation = self.program.relations[int(k.meta[guilty, m]) & st.RELATION]
        values = [
            decode_value(int(code), column.type, self.dictionary)
            for code, column in zip(k.cells[guilty], relation.schema.columns, strict=False)
        ]
        row_text = ", ".join(f"{c.name}={v!r}" for c, v in zip(relation.schema.columns, values, strict=True))
        raise RecursionLimitError(
            f"the recursive view {view or self.name} does not end: more than {self.depth_limit:,} steps or "
            f"{self.row_limit:,} rows; brought about by the row ({row_text}) of {relation.name}; "
            "nothing was changed; raise recursion_limit if it is meant to go on"
        )

    def _refuse_by_support(self) -> None:
        """DRed keeps no derivations to follow back; run the same epoch under support, which meets the same limit."""
        assert self._pending is not None
        witness = Fixpoint(
            self.program,
            self.inputs,
            self.dictionary,
            self._pipelines,
            name=self.name,
            depth_limit=self.depth_limit,
            row_limit=self.row_limit,
        )
        witness._run(self._before(self._pending))
        witness._run(self._pending)

    # -- reading -----------------------------------------------------------------------------------------------------

    def live(self, relation: int) -> Codes:
        """The rows of a relation."""
        return self.memory.live(relation)

    def count(self, relation: int) -> int:
        return self.memory.count(relation)

    def holds(self, relation: int, rows: Codes) -> Codes:
        """1 for each row that is there, else 0."""
        out = np.zeros(len(rows), np.int64)
        st.contains(self.memory.k.address, relation, np.ascontiguousarray(rows), out)
        return out

    def recompute(self) -> Batch:
        """Nothing itself: what it keeps is read through its ports."""
        return Batch.empty(0)

    @property
    def state_rows(self) -> int:
        s = self.memory.k.scalar
        return int(s[st.S_ROWS] - s[st.S_DEAD])

    @property
    def state_bytes(self) -> int:
        return self.memory.nbytes

    @property
    def derivations(self) -> int:
        """How many derivations have been looked at, ever."""
        return int(self.memory.k.scalar[st.S_WORK])

    def describe(self) -> str:
        derived = ", ".join(self.program.relations[i].name for i in self._derived)
        return f"fixpoint {derived} [{len(self.program.rules)} rules, policy {self.policy}]"


class Port(Operator):
    """One relation of a fixpoint, as an operator others can read: a set, so a multiset of rows that count one each."""

    follows = True
    keeps_output = True
    algebra = COUNTING

    def __init__(self, fixpoint: Fixpoint, relation: int):
        self.fixpoint, self.relation = fixpoint, relation
        self.inputs = [fixpoint]
        self.schema = fixpoint.program.relations[relation].schema

    def apply(self, deltas: list[Batch]) -> Batch:
        return self.fixpoint.out.get(self.relation, Batch.empty(len(self.schema)))

    def prime(self, contents: list[Batch]) -> Batch:
        return self.recompute()

    def recompute(self) -> Batch:
        rows = self.fixpoint.live(self.relation)
        return Batch(rows, np.ones(len(rows), np.int64), True)

    def count_of(self, rows: Codes) -> Codes:
        return self.fixpoint.holds(self.relation, rows)

    @property
    def size(self) -> int:
        return self.fixpoint.count(self.relation)

    @property
    def annotation(self) -> str:
        return f"{self.fixpoint.algebra.name}, policy {self.fixpoint.policy}"

    def describe(self) -> str:
        return f"port {self.fixpoint.program.relations[self.relation].name}"
