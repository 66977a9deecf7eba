"""Build the graph of derivations: rows become nodes, once each, a column at a time.

Invariant: a node is a place in one relation; the nodes of a relation are numbered in the order they came. Nothing here
is done row by row in Python: rows are told apart by hashing whole arrays, derivations are kept in blocks of one shape.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

from whence.engine.core.kernels.batches import number_rows
from whence.engine.core.operator import Batch
from whence.engine.core.relation import Relation as Table
from whence.engine.streams.replay.ragged import ranges
from whence.explain.derive.contract import contract
from whence.explain.graph import DerivationRule, Derivations, GraphRelation, Ints, Kind, Tally
from whence.model.budget import reach
from whence.model.codes import Codes, Dictionary
from whence.model.errors import WhenceError
from whence.model.types import Schema

LIMIT = 2_000_000  # derivations of one graph


@dataclass
class GraphRows:
    """The rows of one relation of the graph, and the node of each."""

    number: int
    width: int
    count: int = 0
    chunks: list[Codes] = field(default_factory=list)
    nodes: Ints = field(default_factory=lambda: np.empty(0, np.int32))
    table: Table | None = None  # finds the place of a row, made when it is first asked for

    @property
    def cells(self) -> Codes:
        if len(self.chunks) != 1:
            self.chunks = [np.concatenate(self.chunks) if self.chunks else np.empty((0, self.width), np.int64)]
        return self.chunks[0]


class GraphBuilder:
    """A graph that is being made."""

    def __init__(self, dictionary: Dictionary, limit: int = LIMIT) -> None:
        self.dictionary, self.limit = dictionary, limit
        self.relations: list[GraphRelation] = []
        self.plain: list[bool] = []  # of each relation: whether its rows are only in between, and may be skipped
        self.rows: list[GraphRows] = []
        self.steps: list[DerivationRule] = []
        self.tallies: dict[int, Tally] = {}
        self.copies: dict[int, int] = {}
        self.caveats: dict[str, None] = {}
        self._numbers: dict[Hashable, int] = {}
        self._step: dict[tuple[str, str], int] = {}
        self._relation: list[tuple[int, int]] = []  # (relation, how many) of the nodes, in order
        self._blocks: list[tuple[Ints, Ints, Ints]] = []  # heads, steps, bodies [n, k] with -1 for none
        self._lists: list[tuple[int, int, Ints]] = []  # head, step, body: of tallies
        self.nodes = self.derivations = 0

    # -- nodes -------------------------------------------------------------------------------------------------------

    def relation(
        self,
        key: Hashable,
        name: str,
        kind: Kind,
        schema: Schema,
        plain: bool = False,
        partial: bool = False,
        where: str = "",
    ) -> GraphRows:
        """Return the relation known by a key, made on first sight."""
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.relations)
            self.relations.append(GraphRelation(name, kind, schema, partial=partial, where=where))
            self.plain.append(plain)
            self.rows.append(GraphRows(number, len(schema)))
        return self.rows[number]

    def append(self, rows: GraphRows, codes: Codes) -> Ints:
        """Add nodes for rows that are known to be new."""
        nodes = np.arange(self.nodes, self.nodes + len(codes), dtype=np.int32)
        if len(codes):
            rows.chunks.append(np.ascontiguousarray(codes))
            rows.nodes = np.concatenate([rows.nodes, nodes]) if rows.count else nodes
            rows.count += len(codes)
            self.nodes += len(codes)
            self._relation.append((rows.number, len(codes)))
            rows.table = None
        return nodes

    def intern(self, rows: GraphRows, codes: Codes) -> tuple[Ints, Codes]:
        """Return the node of each row, and which of them are new (positions of first occurrences)."""
        known = rows.count
        if rows.table is None and 4 * len(codes) >= known:  # not many more than are asked for: number them all
            number, first = number_distinct(np.concatenate([rows.cells, codes]) if known else codes)
            fresh = first[known:] - known
            self.append(rows, codes[fresh])
            return rows.nodes[number[known:]], fresh
        number, first = number_distinct(codes)
        if rows.table is None:
            rows.table = Table(rows.width)
            rows.table.apply(Batch(rows.cells, np.ones(rows.count, np.int64), True))
        table = rows.table
        places = table.lookup(np.ascontiguousarray(codes[first]))
        fresh = np.flatnonzero(places < 0)
        if len(fresh):
            new = np.ascontiguousarray(codes[first[fresh]])
            places[fresh] = np.arange(rows.count, rows.count + len(fresh))
            table.apply(Batch(new, np.ones(len(new), np.int64), True))
            table.commit()
            self.append(rows, new)
            rows.table = table
        return rows.nodes[places][number], first[fresh]

    # -- derivations -------------------------------------------------------------------------------------------------

    def step(self, view: str, text: str) -> int:
        found = self._step.get((view, text))
        if found is None:
            found = self._step[view, text] = len(self.steps)
            self.steps.append(DerivationRule(view, text))
        return found

    def add(self, heads: Ints, steps: Ints, bodies: Ints) -> None:
        """Add derivations of one shape: `bodies[i]` are the nodes of the i-th, -1 for none."""
        if not len(heads):
            return
        self._count(len(heads))
        self._blocks.append((heads, steps, bodies))
        reach(f"derivations: {self.derivations:,}")

    def tally(self, head: int, step: int, body: Ints, tally: Tally) -> None:
        """Add a node whose aggregates are over its body."""
        self._count(1)
        self._lists.append((head, step, body))
        self.tallies[head] = tally

    def _count(self, more: int) -> None:
        self.check_room(more)
        self.derivations += more

    def check_room(self, more: int) -> None:
        """Refuse derivations beyond the limit: those there are and `more`."""
        if (count := self.derivations + more) > self.limit:
            raise WhenceError(
                f"at least {count:,} derivations are behind these rows, more than the limit of {self.limit:,}: ask "
                "about fewer rows, or raise limit="
            )

    def doubt(self, why: str) -> None:
        """Record why the graph is no longer exact."""
        self.caveats[why] = None

    # -- the graph ---------------------------------------------------------------------------------------------------

    def finish(self, roots: Ints) -> Derivations:
        """Return the graph of all that was added."""
        relation = np.repeat(
            np.array([r for r, _ in self._relation], np.int32), np.array([n for _, n in self._relation], np.int64)
        )
        place = np.empty(self.nodes, np.int32)
        for rows in self.rows:
            place[rows.nodes] = np.arange(rows.count, dtype=np.int32)
        plain = np.array(self.plain, bool)
        head, step, size, body = self._derivations()
        start = np.zeros(len(head) + 1, np.int64)
        np.cumsum(size, out=start[1:])
        if not plain[relation].any():  # else `contract` sorts them
            head, step, start, body = sort_by_head(head, step, size, body)
        graph = Derivations(
            relations=self.relations,
            relation=relation,
            place=place,
            cells=[rows.cells for rows in self.rows],
            steps=self.steps,
            head=head,
            step=step,
            start=start,
            body=body,
            roots=roots,
            dictionary=self.dictionary.frozen(),
            tallies=self.tallies,
            copies=self.copies,
            exact=not self.caveats,
            caveat="; ".join(self.caveats),
        )
        return contract(graph, plain)

    def _derivations(self) -> tuple[Ints, Ints, Codes, Ints]:
        """Return heads, rules, the sizes of the bodies, and the bodies."""
        blocks = self._blocks
        if not self.derivations:
            none = np.empty(0, np.int32)
            return none, none, np.zeros(0, np.int64), none
        heads = [b[0] for b in blocks] + [np.array([h for h, _, _ in self._lists], np.int32)]
        steps = [b[1] for b in blocks] + [np.array([s for _, s, _ in self._lists], np.int32)]
        sizes = [(b[2] >= 0).sum(axis=1) for b in blocks] + [np.array([len(b) for *_, b in self._lists], np.int64)]
        flat = [b[2].ravel() for b in blocks] + [b for *_, b in self._lists]
        head = np.concatenate(heads)
        size = np.concatenate(sizes).astype(np.int64)
        body = np.concatenate(flat)
        body = body[body >= 0] if len(body) != int(size.sum()) else body
        return head, np.concatenate(steps), size, body


def sort_by_head(head: Ints, step: Ints, size: Codes, body: Ints) -> tuple[Ints, Ints, Codes, Ints]:
    """Sort derivations by their heads, as `Derivations` has them."""
    start = np.zeros(len(head) + 1, np.int64)
    np.cumsum(size, out=start[1:])
    if len(head) > 1 and (head[1:] < head[:-1]).any():
        order = np.argsort(head, kind="stable")
        head, step, size = head[order], step[order], size[order]
        body = body[ranges(start[:-1][order], size)]
        np.cumsum(size, out=start[1:])
    return head.astype(np.int32), step.astype(np.int32), start, body.astype(np.int32)


def number_distinct(rows: Codes) -> tuple[Codes, Codes]:
    """Number rows, equal ones alike; return the numbers, and where each first occurs."""
    if rows.shape[1] == 0 or len(rows) < 2:
        return np.zeros(len(rows), np.int64), np.zeros(min(1, len(rows)), np.int64)
    number, first = number_rows(np.ascontiguousarray(rows))
    return number, first
