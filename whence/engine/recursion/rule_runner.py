"""Run the rules of one recursive component over its store: kernel calls, limits, and rows that only Python can compute.

A policy (`policies/`) says which kernels an epoch calls, and when. What is the same under each is here: a kernel that
meets a full array is called again with a larger one, one that meets a limit or a value out of range raises, and heads
that only Python can compute come back in blocks and go in again as derivations.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whence.engine.core.batch import consolidate
from whence.engine.core.operator import Batch
from whence.engine.recursion.kernels import externals as ext
from whence.engine.recursion.kernels import fixpoint as fx
from whence.engine.recursion.kernels import store as st
from whence.engine.recursion.kernels.search import GATHER
from whence.engine.recursion.limits import RecursionLimits
from whence.engine.recursion.mailbox import Mailbox
from whence.engine.recursion.rule_plans import CompiledRules
from whence.engine.recursion.slot_store import SlotStore
from whence.model.codes import Codes, Dictionary
from whence.model.errors import DataError, EvaluationError
from whence.plan.recursion.rule_model import RuleProgram

Pipeline = Callable[[Codes], Codes]
NO_LIMIT = 2**31 - 1
_AT_ONCE = 1 << 16  # rows that are looked at together


class LimitReached(Exception):  # noqa: N818 - it is turned into the user's error by the operator
    """A recursion met a limit. `met` names it, if it is not the one of steps and rows."""

    def __init__(self, met: str = ""):
        super().__init__(met)
        self.met = met


class RuleRunner:
    """The store of a component's rules and the calls that work on it. Changes of external rows are codes
    [n, 2 + columns]: relation, change of multiplicity, cells."""

    store: SlotStore

    def __init__(
        self,
        program: RuleProgram,
        dictionary: Dictionary,
        pipelines: dict[int, Pipeline],
        mailbox: Mailbox,
        limits: RecursionLimits,
        name: str,
    ):
        self.program, self.dictionary, self.name, self.limits = program, dictionary, name, limits
        self.budget = limits.rows  # rows that an epoch may derive
        self.watch: Callable[[str], None] | None = None
        self._pipelines, self._mailbox = pipelines, mailbox
        self._shares = mailbox.partitions if limits.endless else 1  # partitions that share what may be derived
        self._words = self._text = 0  # of the dictionary: how many there were, and the characters computed since
        self._sent: list[Codes] = []  # written down, not taken yet
        self._absence = np.array([r.kind == "absence" for r in program.relations])

    def start(self, policy: int) -> None:
        """Begin with an empty store, whose slots are laid out for a policy of the kernels; orders stay."""
        before: SlotStore | None = getattr(self, "store", None)
        orders = None if before is None else before.compiled.orders
        self.rules = CompiledRules(self.program, self.dictionary, policy, orders)
        box = self._mailbox
        self.store = SlotStore(self.rules, policy, (box.partition, box.partitions) if box.ranked else None)

    def limit(self, limited: bool, known: int = 0) -> None:
        """Begin an epoch: set its limits, or none, and then pass over derivations that fail
        (`engine/core/epoch_context.py`).

        `known` rows, derived before and now to be derived again, do not count."""
        scalar, shared = self.store.k.scalar, self._mailbox.shared
        effort = self.limits.effort // self._shares
        rows = int(scalar[st.S_ROWS]) + known + self.budget // self._shares
        ranked = self._mailbox.ranked
        depth = self.limits.depth * (2 if ranked else 1)  # a row has a rank, and its copy the next one
        counted = limited and (ranked or not shared)
        scalar[st.S_DEPTH] = min(depth, NO_LIMIT) if counted else NO_LIMIT
        scalar[st.S_BUDGET] = min(rows, NO_LIMIT) if limited else NO_LIMIT
        scalar[st.S_EFFORT] = int(scalar[st.S_WORK]) + effort if limited and effort else 0
        scalar[st.S_KNOWN] = not limited
        scalar[st.S_PASSES], scalar[st.S_PASSED], self._sent = 1, 0, []
        self._words, self._text = len(self.dictionary), 0

    # -- kernels -----------------------------------------------------------------------------------------------------

    def call(self, kernel: Callable[..., None], *args: object, restart: bool = False) -> None:
        """Run a kernel to its end; raise what stopped it."""
        scalar = self.store.k.scalar
        if restart:
            scalar[st.S_CURSOR] = 0
        scalar[st.S_CULPRIT] = -1
        self._check(self.store.drive(kernel, *args, watch=self.watch))

    def _check(self, status: int) -> None:
        if status == st.LIMIT:
            raise LimitReached()
        if status == st.OVERFLOW:
            raise EvaluationError(f"a number (or the copies of a row) went out of its range while deriving {self.name}")
        if status == st.UNFOUNDED:
            raise DataError(f"an epoch of {self.name} cannot be undone: a row of its state has no derivation")
        if status == st.MISSING:
            raise EvaluationError(
                f"a group of {self.name} whose best value is NULL reached LEAST or GREATEST in the recursion: these "
                "skip NULL, so a group could get worse by getting a value; give it one with COALESCE"
            )

    def propagate(self) -> None:
        """Join queued rows forward to the end; heads that only Python can compute are computed in between."""
        self.call(fx.propagate, self._mailbox.sent)
        scalar = self.store.k.scalar
        while self._pipelines and scalar[st.S_FOREIGN]:
            block = self.written()
            self._sent.append(block[block[:, 0] < 0])
            block = block[block[:, 0] >= 0]
            for rule in np.unique(block[:, 0]).tolist():
                made, bodies = self._compute(rule, block)
                head = self.program.rules[rule].head
                self.call(fx.emit_block, rule, head, np.ascontiguousarray(made[:, 1:]), bodies, restart=True)
            self.call(fx.propagate, self._mailbox.sent)

    def check_values(self) -> None:
        """Raise if a NULL reaches LEAST or GREATEST: a group may be NULL at first, so such derivations are passed over,
        and looked at in the end."""
        k = self.store.k
        if k.scalar[st.S_KNOWN] or not k.scalar[st.S_PASSED]:
            return
        slots = k.touched[: int(k.scalar[st.S_TOUCHED]), 0] >> 1
        slots = slots[k.meta[slots, int(k.scalar[st.S_META])] & st.ALIVE != 0]
        k.scalar[st.S_PASSES] = 0
        for at in range(0, len(slots), _AT_ONCE):
            self._check(self.store.gather(slots[at : at + _AT_ONCE], GATHER, backward=False)[2])
        k.scalar[st.S_PASSES] = 1

    def gather(self, slots: Codes, backward: bool) -> Codes:
        """Return the derivations through slots, or of them, as a block [n, 1 + atoms + columns]."""
        _, block, status = self.store.gather(slots, GATHER, backward)
        self._check(status)
        if not self._pipelines or not len(block):
            return block
        atoms = self.rules.atoms
        parts = [block[~np.isin(block[:, 0], list(self._pipelines))]]
        for rule in self._pipelines:
            if (block[:, 0] == rule).any():
                made, bodies = self._compute(rule, block)
                part = np.zeros((len(made), block.shape[1]), np.int64)
                part[:, 0], part[:, 1 : 1 + atoms] = rule, bodies
                part[:, 1 + atoms : atoms + made.shape[1]] = made[:, 1:]
                parts.append(part)
        return np.concatenate(parts)

    def _compute(self, rule: int, block: Codes) -> tuple[Codes, Codes]:
        """Run a rule's Python over its bindings in a block: the heads, each behind its binding's number, and bodies."""
        mine, atoms = block[block[:, 0] == rule], self.rules.atoms
        numbered = np.empty((len(mine), 1 + len(self.program.rules[rule].terms)), np.int64)
        numbered[:, 0] = np.arange(len(mine))
        numbered[:, 1:] = mine[:, 1 + atoms : atoms + numbered.shape[1]]
        made = self._pipelines[rule](numbered)
        self._count_text(int(mine[0, 1]))
        return made, np.ascontiguousarray(mine[made[:, 0], 1 : 1 + atoms])

    def _count_text(self, row: int) -> None:
        """Stop a recursion whose computed texts grow without end; `row` is one that they were computed from."""
        grown = self.dictionary.since(self._words)
        self._words += len(grown)
        self._text += sum(len(value) for value in grown if isinstance(value, str))
        scalar = self.store.k.scalar
        if self._text > self.limits.text and not scalar[st.S_KNOWN]:
            scalar[st.S_CULPRIT] = row
            raise LimitReached(f"{self.limits.text:,} characters of computed text")

    def take_sent(self) -> Codes:
        """Take the rows that kernels have written down to be sent."""
        blocks, self._sent = [*self._sent, self.written()], []
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)

    def written(self) -> Codes:
        """Take what kernels have written down in `foreign`."""
        k = self.store.k
        block = k.foreign[: int(k.scalar[st.S_FOREIGN])].copy()
        k.scalar[st.S_FOREIGN] = 0
        return block

    # -- external rows -----------------------------------------------------------------------------------------------

    def changes(self, relation: int, batch: Batch) -> Codes:
        """Return a batch as changes of a relation."""
        changes = np.zeros((len(batch), 2 + self.rules.columns), np.int64)
        changes[:, 0], changes[:, 1] = relation, batch.ann
        changes[:, 2 : 2 + batch.rows.shape[1]] = batch.rows
        return changes

    def joined(self, parts: list[Codes]) -> Codes:
        """Return changes behind one another."""
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty((0, 2 + self.rules.columns), np.int64)

    def added_up(self, parts: list[Codes]) -> Codes:
        """Return changes with each row once: what comes and goes in them has no effect on the way."""
        changes = self.joined(parts)
        rows = np.ascontiguousarray(np.delete(changes, 1, axis=1))
        total = consolidate(Batch(rows, np.ascontiguousarray(changes[:, 1])))
        return np.ascontiguousarray(np.insert(total.rows, 1, total.ann, axis=1))

    def split(self, changes: Codes) -> tuple[Codes, Codes]:
        """Return the changes that can only take derivations away, and those that can only bring them."""
        adds = (changes[:, 1] > 0) != self._absence[changes[:, 0]]
        if adds.all():
            return changes[:0], changes
        return np.ascontiguousarray(changes[~adds]), np.ascontiguousarray(changes[adds])

    def external_rows(self) -> Codes:
        """Return all external rows that the store has, as the changes that bring them."""
        k = self.store.k
        out = np.empty((int(k.scalar[st.S_ROWS]), 2 + self.rules.columns), np.int64)
        return out[: ext.external_rows(k.address, out)]

    # -- the end of an epoch -----------------------------------------------------------------------------------------

    def collect(self) -> dict[int, Batch]:
        """End an epoch: return the net changes of the relations that are published."""
        k, wanted = self.store.k, self._mailbox.published
        out = np.empty((2 * int(k.scalar[st.S_TOUCHED]), 2 + self.rules.columns), np.int64)
        out = out[: fx.collect(k.address, wanted, out)]
        relations = np.flatnonzero(wanted).tolist()
        found = {}
        for relation in relations:
            mine = out if len(relations) == 1 else out[out[:, 0] == relation]
            if len(mine):
                end = 2 + len(self.program.relations[relation].schema)
                found[relation] = Batch(np.ascontiguousarray(mine[:, 2:end]), np.ascontiguousarray(mine[:, 1]), True)
        return found

    def forget_touched(self) -> None:
        """End an epoch whose net changes nothing asks for."""
        k = self.store.k
        k.scalar[st.S_FOREIGN] = 0
        fx.collect(k.address, np.zeros(len(self.program.relations), np.int64), np.empty((0, 2), np.int64))
