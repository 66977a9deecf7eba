"""Messages of annotated rows: derived rows go to their copies in other partitions with their formulas (MinShip).

A copy is sent formulas, not a variable of its own, so it lives while what it was sent is not false; rows that die take
no message, for their copies die of the same. A derived row publishes what its copies have been sent, and buffers what
came later: lazily the first derivation is sent, or the next when that has died; eagerly whatever is not absorbed by
what was sent. Under MIN and MAX a copy has a row for each value that it was sent, with its formula; rules read the best
of these. A value that is bettered stays in its copies until its own reasons are gone.

A variable means the same row everywhere: in messages it is the number of an **origin**, a relation of the component's
own rules, and the row's cells. Where equal rows may lie in several partitions, the partition is part of the origin. The
rows that one round has for a partition are one message. Without peers there are none, and nothing is diverted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from whence.engine.exchange.messages import EVERYWHERE, PartitionMessage
from whence.engine.exchange.wire import MessageReader, MessageWriter
from whence.engine.recursion.kernels import heads as hd
from whence.engine.recursion.mailbox import Mailbox, mask
from whence.engine.recursion.rule_runner import RuleRunner
from whence.model.codes import Codes
from whence.model.errors import DataError
from whence.plan.recursion.rule_model import RuleProgram
from whence.plan.recursion.sharing import find_same_rows

if TYPE_CHECKING:
    from whence.engine.recursion.policies.annotated import AnnotatedPolicy

_NONE = np.empty(0, np.int64)


def variable_relations(program: RuleProgram, mailbox: Mailbox) -> Codes:
    """Return, for each relation, the number under which its rows have their variables."""
    same = np.array(find_same_rows(program), np.int64)
    if mailbox.spec is None:
        return same
    origin = np.array(mailbox.spec.origin, np.int64)
    for number, wish in mailbox.spec.required:
        if wish.kind == "any":
            origin[number] += (1 + max(mailbox.spec.origin)) * (1 + mailbox.partition)
    return origin[same]


class AnnotatedMessages:
    """What a partition sends and receives of annotated rows in an epoch."""

    def __init__(self, policy: AnnotatedPolicy, runner: RuleRunner, mailbox: Mailbox):
        self._policy, self._runner, self._mailbox = policy, runner, mailbox
        self.channel = f"{mailbox.channel}/letters"  # as command logs have it
        relations, spec = runner.program.relations, mailbox.spec
        self._copying = len(runner.program.rules)  # the first of the rules that keep the best values of copies
        if spec is not None:
            self._copying -= sum(relations[head].kind == "best" for head, copies in spec.copies for _ in copies)
            # Every partition sees for itself what goes from a relation that is everywhere.
            self._told = mask(relations, [number for number, wish in spec.required if wish.kind != "all"]) != 0
            widths = np.zeros(1 + max(spec.origin), np.int64)
            widths[list(spec.origin)] = [len(r.schema) for r in relations]
            self._widths = np.tile(widths, 1 + mailbox.partitions)  # by origin
        self.begin()

    def begin(self) -> None:
        """Begin an epoch."""
        self._changed: list[Codes] = []  # derived rows that publish something else, and have not gone to copies
        self._unsent: list[Codes] = []  # the same, and have not been sent

    # -- derived rows ------------------------------------------------------------------------------------------------

    def divert(self, changed: Codes) -> Codes:
        """Return, of slots that publish something else, those that rules read here; the others are to be sent."""
        if not self._mailbox.shared or not len(changed):
            return changed
        sent = self._mailbox.sent[self._runner.store.describe(changed)[0]] != 0
        if sent.any():
            self._changed.append(changed[sent])
            changed = changed[~sent]
        return changed

    def next_heads(self) -> Codes:
        """Take the derived rows that publish something else and have not gone to copies."""
        if not self._changed:
            return _NONE
        heads = np.unique(np.concatenate(self._changed))
        self._changed = []
        self._unsent.append(heads)
        return heads

    def product(self, rules: Codes, slots: Codes, bodies: Codes) -> Codes:
        """Return the formulas of derivations; the best value of a copy has that of the copy's row."""
        copying = rules >= self._copying
        if not copying.any():
            return self._policy.product(rules, slots, bodies)
        found: Codes = self._policy.annotations.published[bodies[0]]
        own = ~copying
        if own.any():
            found[own] = self._policy.product(rules[own], slots[own], np.ascontiguousarray(bodies[:, own]))
        return found

    def _outgoing(self, heads: Codes) -> Codes:
        """Return what derived rows have to send: what they publish, or, eagerly, what of it is new."""
        annotations = self._policy.annotations
        return annotations.published[heads] if annotations.lazy else annotations.gained[heads]

    # -- copies ------------------------------------------------------------------------------------------------------

    def to_copies_here(self, heads: Codes) -> Codes:
        """Take derived rows to their copies in this partition; return the slots of these that publish something
        else."""
        relations, cells = self._runner.store.describe(heads)
        copies, slots, rows = [], [], []
        for head, places in self._mailbox.copies.items():
            mine = np.flatnonzero(relations == head)
            for copy in places if len(mine) else ():
                here = mine
                if self._mailbox.partitions > 1 and (to := self._mailbox.route(copy, cells[mine])) is not None:
                    here = mine[to == self._mailbox.partition]
                copies.append(np.full(len(here), copy.relation))
                slots.append(heads[here])
                rows.append(cells[here])
        if not copies:
            return _NONE
        own = np.concatenate(slots)
        return self._take(np.concatenate(copies), np.concatenate(rows), lambda: self._outgoing(own))

    def _take(self, relations: Codes, cells: Codes, formulas: Callable[[], Codes]) -> Codes:
        """Let rows of copies live by formulas; return the slots that publish something else."""
        if not len(relations):
            return _NONE
        runner, annotations = self._runner, self._policy.annotations
        atoms, columns = runner.rules.atoms, runner.rules.columns
        block = np.full((len(relations), 1 + atoms + columns), -1, np.int64)
        block[:, 0], block[:, 1 + atoms :] = relations, cells
        slots = np.empty(len(block), np.int64)
        everyone = np.arange(len(runner.program.relations))
        runner.call(hd.heads, block, everyone, slots, np.zeros(len(block), np.int64), restart=True)
        self._policy.make_room()
        changed: Codes = annotations.safely(lambda: annotations.merge(slots, formulas()))
        return changed

    # -- sending -----------------------------------------------------------------------------------------------------

    def post(self) -> list[PartitionMessage]:
        """Write a message to each partition that has copies of derived rows that publish something else."""
        if not self._mailbox.shared:
            return []
        found = self._write(np.unique(np.concatenate(self._unsent))) if self._unsent else []
        self._unsent = []
        self._policy.annotations.gained[:] = 0
        return found

    def _write(self, heads: Codes) -> list[PartitionMessage]:
        box = self._mailbox
        relations, cells = self._runner.store.describe(heads)
        sections: dict[int, list[tuple[int, Codes]]] = {}
        for head, places in box.copies.items():
            mine = np.flatnonzero(relations == head)
            for copy in places if len(mine) and box.partitions > 1 else ():
                to = box.route(copy, cells[mine])
                for partition in range(box.partitions):
                    there = mine if to is None else mine[to == partition]
                    if partition != box.partition and len(there):
                        sections.setdefault(partition, []).append((copy.relation, there))
        found = []
        for partition in sorted(sections):
            packet, rows = self.write_rows(heads, cells, sections[partition])
            found.append(PartitionMessage(self.channel, partition, packet.letter(), rows, packet.size))
        return found

    def write_rows(self, heads: Codes, cells: Codes, sections: list[tuple[int, Codes]]) -> tuple[MessageWriter, int]:
        """Write rows of copies, the variables that their formulas mention, and the formulas."""
        packet = MessageWriter().numbers(np.array([(copy, len(there)) for copy, there in sections]))
        for copy, there in sections:
            packet.numbers(cells[there, : len(self._runner.program.relations[copy].schema)])
        chosen = np.concatenate([there for _, there in sections])
        variables, data = self._policy.formulas.pack(self._outgoing(heads[chosen]))
        self.write_variables(packet, variables).data(data)
        return packet, len(chosen)

    def write_variables(self, packet: MessageWriter, variables: Codes) -> MessageWriter:
        """Write the rows that variables mean."""
        origins, cells = self._policy.variables.rows(variables)
        return packet.numbers(origins).numbers(cells[self._used(origins)])

    def tell_gone(self, slots: Codes, variables: Codes) -> list[PartitionMessage]:
        """Write to all other partitions which variables are false from now on, if they cannot see it for themselves."""
        if self._mailbox.partitions == 1:
            return []
        told = np.unique(variables[self._told[self._runner.store.describe(slots)[0]]])
        if not len(told):
            return []
        packet = self.write_variables(MessageWriter(), told)
        return [PartitionMessage(self.channel, EVERYWHERE, packet.letter(), 0, packet.size)]

    # -- receiving ---------------------------------------------------------------------------------------------------

    def receive(self, mail: list[MessageReader]) -> Codes:
        """Take rows that came by messages to their copies; return the slots that publish something else."""
        runner, policy = self._runner, self._policy
        relations, cells, packed = [_NONE], [np.empty((0, runner.rules.columns), np.int64)], []
        for packet in mail:
            rows = 0
            for copy, count in packet.pairs():
                if copy not in self._mailbox.copied:
                    raise DataError("a message from another partition has rows of a relation that is no copy")
                width = len(runner.program.relations[copy].schema)
                table = packet.table(count, width)
                part = np.zeros((count, runner.rules.columns), np.int64)
                part[:, :width] = table
                relations.append(np.full(count, copy))
                cells.append(part)
                rows += count
            origins, named = self._read_variables(packet)
            variables = policy.variables.of(origins, named)
            policy.place_others(variables, origins, named)
            packed.append((rows, variables, packet.data()))
            packet.end()
        if not packed:
            return _NONE

        def unpacked() -> Codes:
            found = [policy.formulas.unpack(variables, data) for _, variables, data in packed]
            if any(len(mine) != rows for mine, (rows, *_) in zip(found, packed, strict=True)):
                raise DataError("a message from another partition has rows without formulas, or formulas without rows")
            return np.concatenate(found)

        return self._take(np.concatenate(relations), np.concatenate(cells), unpacked)

    def read_gone(self, packet: MessageReader) -> Codes:
        """Return the variables that a message says are false, of those that something here mentions."""
        known = self._policy.variables.find(*self._read_variables(packet))
        packet.end()
        return known[known >= 0]

    def _read_variables(self, packet: MessageReader) -> tuple[Codes, Codes]:
        """Return the origins and cells of rows that another partition has written; DataError if it cannot have."""
        origins, written = packet.numbers(), packet.numbers()
        if len(origins) and not 0 <= int(origins.min()) <= int(origins.max()) < len(self._widths):
            raise DataError("a message from another partition mentions a relation that does not exist")
        used = self._used(origins)
        if len(written) != np.count_nonzero(used):
            raise DataError("a message from another partition has variables of a wrong length")
        cells = np.zeros((len(origins), self._runner.rules.columns), np.int64)
        cells[used] = written
        return origins, cells

    def _used(self, origins: Codes) -> np.ndarray:
        used: np.ndarray = np.arange(self._runner.rules.columns) < self._widths[origins][:, None]
        return used
