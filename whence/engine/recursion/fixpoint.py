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

from whence.engine.core.arrangement import arrangement
from whence.engine.core.batch import consolidate
from whence.engine.core.image import Image
from whence.engine.core.operator import Batch, Operator
from whence.engine.recursion.kernels import fixpoint as fx
from whence.engine.recursion.kernels import store as st
from whence.engine.recursion.limits import RecursionLimits, described, no_end
from whence.engine.recursion.rule_plans import Compiled
from whence.engine.recursion.slot_store import SlotStore
from whence.model.codes import Codes, Dictionary
from whence.model.errors import EvaluationError
from whence.model.types import Schema
from whence.plan.recursion.rule_model import RuleProgram
from whence.plan.recursion.settings import makes_values

POLICIES = {"support": st.SUPPORT, "dred": st.DRED}
Pipeline = Callable[[Codes], Codes]
_NO_LIMIT = 2**31 - 1
_ENOUGH = 100_000


class Fixpoint(Operator):
    """Keeps the relations of a `RuleProgram`: input i is its i-th external relation, outputs are read by `Port`s."""

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
        self.limits = RecursionLimits(depth_limit, row_limit, makes_values(program))
        self._budget = row_limit  # see _refuse_by_support
        self._shares = 1  # partitions that have a part of what may be derived
        self._words = self._text = 0  # of the dictionary: how many there were, and the characters computed since
        self.schema = Schema(())
        self._pipelines = pipelines
        self._externals = [i for i, r in enumerate(program.relations) if r.kind in ("external", "absence")]
        self._derived = [i for i, r in enumerate(program.relations) if r.kind in ("set", "best")]
        self.out: dict[int, Batch] = {}
        self._pending: Codes | None = None  # this epoch's external changes, while they can still be undone
        self._broken = False
        self._kept = [i for i in inputs if not i.recalls]  # to begin anew after an error all external rows are needed
        for i in self._kept:
            arrangement(i)
        self._start()

    def needs(self) -> list[tuple[Operator, tuple[int, ...]]]:
        return [(i, ()) for i in self._kept]

    def _start(self) -> None:
        self._compiled = Compiled(self.program, self.dictionary, POLICIES[self.policy])
        self.memory = SlotStore(self._compiled, POLICIES[self.policy])

    # -- an epoch ----------------------------------------------------------------------------------------------------

    def apply(self, deltas: list[Batch]) -> Batch:
        changes = self._changes(deltas)
        self._pending = changes
        self._broken = True  # until the fixpoint is reached
        try:
            self.out = self._run(changes)
        except EvaluationError:
            self.out = self._run_anew(changes)
        self._broken = False
        return Batch.empty(0)

    def _changes(self, deltas: list[Batch]) -> Codes:
        parts = []
        for relation, change in zip(self._externals, deltas, strict=True):
            # A row that goes and comes in one batch (an UPDATE of a column nobody reads here) must not be felt.
            delta = consolidate(change)
            if len(delta):
                part = np.zeros((len(delta), 2 + self._compiled.columns), np.int64)
                part[:, 0], part[:, 1] = relation, delta.ann
                part[:, 2 : 2 + delta.rows.shape[1]] = delta.rows
                parts.append(part)
        return np.concatenate(parts) if parts else np.zeros((0, 2 + self._compiled.columns), np.int64)

    def _run(self, changes: Codes, limited: bool = True, known: int = 0) -> dict[int, Batch]:
        """To the fixpoint after some changes; without limits and errors where it is known to exist, on the way back
        (`engine/core/epoch_context.py`).

        `known` rows, derived before and now to be derived again, do not count against the limit."""
        memory = self.memory
        scalar = memory.k.scalar
        limited = limited and not self.context.replaying
        scalar[st.S_DEPTH] = min(self.depth_limit, _NO_LIMIT) if limited else _NO_LIMIT
        scalar[st.S_BUDGET] = int(scalar[st.S_ROWS]) + known + self._budget if limited else _NO_LIMIT
        scalar[st.S_KNOWN] = not limited
        self._limit_effort(limited)
        self._words, self._text = len(self.dictionary), 0
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
        return self._collected()

    def _limit_effort(self, limited: bool) -> None:
        """Bound the derivations that are looked at, where rules make values: a join of them may have no end either."""
        scalar, effort = self.memory.k.scalar, self.limits.effort // self._shares
        scalar[st.S_EFFORT] = int(scalar[st.S_WORK]) + effort if limited and effort else 0

    def _collected(self) -> dict[int, Batch]:
        """End an epoch: the net changes by relation."""
        k = self.memory.k
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

    def _run_anew(self, changes: Codes) -> dict[int, Batch]:
        """An expression failed, perhaps on rows of the half-way state without what goes and not yet with what comes:
        take the answer from the states before and after alone."""
        before = self._before(changes)
        self._start()
        self._run(before, limited=False)
        old = {relation: self.live(relation) for relation in self._derived}
        known = int(self.memory.k.scalar[st.S_ROWS])
        self._start()
        self._run(added_up(np.concatenate([before, changes])), known=known)
        out = {}
        for relation, gone in old.items():
            now = self.live(relation)
            signs = np.concatenate([np.ones(len(now), np.int64), np.full(len(gone), -1, np.int64)])
            out[relation] = consolidate(Batch(np.concatenate([now, gone]), signs))
        return out

    def _absence(self, relation: int) -> bool:
        return self.program.relations[relation].kind == "absence"

    def _call(self, kernel: Callable[..., None], *args: object, restart: bool = False) -> None:
        memory = self.memory
        if restart:
            memory.k.scalar[st.S_CURSOR] = 0
        memory.k.scalar[st.S_CULPRIT] = -1
        self._stopped(memory.drive(kernel, *args, watch=self.watch))

    def _stopped(self, status: int) -> None:
        """Raise what stopped a kernel, if anything did."""
        if status == st.LIMIT:
            self._refuse()
        if status == st.OVERFLOW:
            raise EvaluationError(f"a number (or the copies of a row) went out of its range while deriving {self.name}")
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
                self._count_text(int(mine[0, 1]))
                bodies = np.ascontiguousarray(mine[made[:, 0], 1 : 1 + atoms])
                self._call(fx.emit_block, rule, head, np.ascontiguousarray(made[:, 1:]), bodies, restart=True)
            self._call(fx.propagate)

    def _count_text(self, row: int) -> None:
        """Stop a recursion whose computed texts grow for ever; `row` is one that they were computed from."""
        grown = self.dictionary.since(self._words)
        self._words += len(grown)
        self._text += sum(len(value) for value in grown if isinstance(value, str))
        scalar = self.memory.k.scalar
        if self._text > self.limits.text and not scalar[st.S_KNOWN]:
            scalar[st.S_CULPRIT] = row
            self._refuse(f"{self.limits.text:,} characters of computed text")

    # -- going back --------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        self._pending = None
        self.memory.compact()

    def undo(self) -> None:
        """A finished epoch is undone by its inverse; one that broke off in the middle by deriving everything anew. What
        fails on the way is passed over, so neither can break off."""
        changes, self._pending = self._pending, None
        if changes is None:
            return
        self.out = {}
        if not self._broken:
            self._run(_inverse(changes), limited=False)
        else:
            before = self._before(changes)
            self._start()
            self._run(before, limited=False)
            self._broken = False
        self.memory.compact()

    def _before(self, changes: Codes) -> Codes:
        """The external rows before this epoch's changes, which the inputs still hold: they are undone after this."""
        return added_up(np.concatenate([self._changes([i.contents() for i in self.inputs]), _inverse(changes)]))

    def _refuse(self, met: str = "") -> None:
        """Name the view and an input row of the batch that the derivation without end stands on."""
        memory = self.memory
        k = memory.k
        culprit = max(0, int(k.scalar[st.S_CULPRIT]))
        if self.policy != "support":
            self._refuse_by_support()
        m, body = int(k.scalar[st.S_META]), int(k.scalar[st.S_BODY])
        seen, stack, view, guilty = set(), [culprit], "", -1
        while stack and guilty < 0:
            row = stack.pop()
            if row in seen:
                continue
            seen.add(row)
            tag = int(k.meta[row, m])
            relation = self.program.relations[tag & st.RELATION]
            view = view or relation.view
            if relation.kind in ("external", "absence") and tag & st.TOUCHED:
                guilty = row
            stack += [int(b) for b in k.meta[row, m + 4 : m + 4 + body] if b >= 0]
        if guilty < 0:  # the row that closed the circle is not in this derivation; any of the batch will do
            changed = (k.touched[: int(k.scalar[st.S_TOUCHED]), 0] >> 1).tolist()
            external = [r for r in changed if int(k.meta[r, m]) & st.RELATION in self._externals]
            guilty = external[0] if external else 0
        relation = self.program.relations[int(k.meta[guilty, m]) & st.RELATION]
        cause = described(relation, k.cells[guilty], self.dictionary)
        raise no_end(view.partition("$")[0] or self.name, met or str(self.limits), cause)

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
        witness._budget = min(self.row_limit, _ENOUGH)  # to see which row it is, the first of too many will do
        witness._run(self._before(self._pending), limited=False)
        witness._run(self._pending)

    # -- images ------------------------------------------------------------------------------------------------------

    def image(self) -> Image:
        return self.memory.image()

    def restore(self, image: Image) -> None:
        self.memory.restore(image)

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

    @property
    def annotation(self) -> str:
        return f"none, policy {self.policy}"

    def describe(self) -> str:
        derived = ", ".join(self.program.relations[i].name for i in self._derived)
        return f"fixpoint {derived} [{len(self.program.rules)} rules, policy {self.policy}]"


def _inverse(changes: Codes) -> Codes:
    """The external changes that take these back."""
    back = changes.copy()
    back[:, 1] *= -1
    return back


def added_up(changes: Codes) -> Codes:
    """The same external changes, each row once: what comes and goes in them must not be felt on the way."""
    rows = np.ascontiguousarray(np.delete(changes, 1, axis=1))
    total = consolidate(Batch(rows, np.ascontiguousarray(changes[:, 1])))
    return np.ascontiguousarray(np.insert(total.rows, 1, total.ann, axis=1))


class Port(Operator):
    """One relation of a fixpoint, as an operator others can read: a set, so a multiset of rows that count one each."""

    follows = True
    keeps_output = True

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

    @property
    def recalls(self) -> bool:
        return True

    def count_of(self, rows: Codes) -> Codes:
        return self.fixpoint.holds(self.relation, rows)

    @property
    def size(self) -> int:
        return self.fixpoint.count(self.relation)

    @property
    def annotation(self) -> str:
        return self.fixpoint.annotation

    def describe(self) -> str:
        return f"port {self.fixpoint.program.relations[self.relation].name}"
