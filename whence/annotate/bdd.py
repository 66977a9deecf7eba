"""Decision diagrams: a monotone Boolean function is the number of a node in one shared, reduced, ordered forest.

Law: two functions are equal exactly when their handles are, under one order of the variables. State: the forest
(`kernels/bdd.py`) and a label for each variable. Labels are sparse numbers and nodes stand in their order, so a new
variable goes between any two others and no node changes; `reorder` is the only thing that rebuilds functions. Cost: an
operation on functions of m and n nodes takes at most m * n steps, and mostly far fewer; small functions take some
hundred nanoseconds each.

Functions are written (`pack`) level by level, the deepest first: for each variable how many nodes it has, and of each
node its low and high side, as 0, 1 or one more than how far back that node was written. All are varints.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np

from whence.annotate import AnnotationTooLarge, Provenance
from whence.annotate.kernels import bdd as kb
from whence.annotate.kernels import levels as kl
from whence.annotate.kernels import minimal as km
from whence.annotate.order import DepthFirst, Labels
from whence.model.codes import Codes
from whence.model.errors import DataError
from whence.model.record import KernelRecord

NODE_BYTES = 12  # a variable and two sides, 4 bytes each
NODE_LIMIT = 1 << 23
_MOST = 1 << 30  # nodes: a question to the cache has 30 bits for a handle
_MOST_VARIABLES = (1 << 31) - 1
_CACHE = 1 << 20  # the largest cache, in entries
_SMALL = 1024  # nodes not worth collecting
_STAMPS = (1 << 31) - 2


class Bdd(Provenance):
    """The algebra of monotone functions as decision diagrams, of at most `limit` nodes in all, with variables in
    order of arrival, or in the one that is given.

    >>> bdd = Bdd()
    >>> p = bdd.of_tid(np.arange(3))
    >>> both = bdd.times(p[:1], p[1:2])
    >>> either = bdd.plus(both, p[2:])
    >>> bdd.witnesses(int(either[0]), 9), bdd.witnesses(int(bdd.without(either, np.array([2]))[0]), 9)
    ([(2,), (0, 1)], [(0, 1)])
    """

    name = "bdd"

    def __init__(self, limit: int = NODE_LIMIT, order: DepthFirst | None = None):
        self.limit = min(limit, _MOST)
        self.labels = Labels(order)
        self.k = _empty(64, self.labels.of_variable)
        self._alive = 2  # nodes that the last collection kept
        self._of_variable = np.zeros(16, np.int64)  # the handle of a variable, 0 if it is not known

    # Functions

    def of_tid(self, tids: Codes) -> Codes:
        tids = _column(tids)
        if not len(tids):
            return tids
        if not 0 <= int(tids.min()) <= (most := int(tids.max())) < len(self._of_variable):
            self._know(tids)
            more = np.zeros(most + most // 4 + 1 - len(self._of_variable), np.int64)
            self._of_variable = np.concatenate([self._of_variable, more])
        out = self._of_variable[tids]
        if not out.all():
            self._know(tids)
            out = self._build(tids, np.zeros(len(tids), np.int64), np.ones(len(tids), np.int64))[2:]
            self._of_variable[tids] = out
        return out

    def times(self, a: Codes, b: Codes) -> Codes:
        return self._columns(kb.TIMES, a, b)

    def plus(self, a: Codes, b: Codes) -> Codes:
        return self._columns(kb.PLUS, a, b)

    def implied(self, a: Codes, b: Codes) -> Codes:
        return self._columns(kb.BELOW, a, b)

    def total(self, a: Codes, starts: Codes) -> Codes:
        """OR over runs; an empty run is false."""
        a, out = _column(a), np.empty(len(starts), np.int64)
        self._drive(kb.total_runs, a, _column(starts), np.empty_like(a), out)
        return out

    def without(self, a: Codes, tids: Codes) -> Codes:
        label = self.k.label
        tids = tids[tids < len(label)]
        tids = tids[label[tids] >= 0]
        if not len(tids):
            return a
        dead = np.zeros(len(label), np.int32)
        dead[tids] = 1
        a, out = _column(a), np.empty(len(a), np.int64)
        self._stamp(1)
        self.k.scalar[kb.F_STAMP] += 1
        self._drive(kb.substitute, a, dead, int(label[tids].max()), out)
        return out

    def support(self, a: Codes) -> tuple[Codes, Codes]:
        """Return the variables of each function, rising."""
        a, k = _column(a), self.k
        met, scratch = np.full(len(k.label), -1, np.int64), np.empty(self.used, np.int64)
        starts, out = np.zeros(len(a) + 1, np.int64), np.empty(max(64, 4 * len(a)), np.int64)
        k.scalar[kb.F_CURSOR] = k.scalar[kb.F_FILLED] = 0
        while True:
            self._stamp(len(a))
            k.scalar[kb.F_STATUS] = kb.OK
            kb.supports(k.address, a, met, scratch, starts, out)
            if k.scalar[kb.F_STATUS] == kb.OK:
                break
            out = np.concatenate([out, np.empty_like(out)])
        out = out[: starts[-1]]
        run = np.repeat(np.arange(len(a)), np.diff(starts))
        return starts, out[np.lexsort((out, run))]

    def mentioning(self, tids: Codes) -> Codes:
        """For each handle there is, 1 if its function mentions one of the variables: one pass over all nodes."""
        dead = np.zeros(len(self.k.label), np.int64)
        dead[tids[tids < len(dead)]] = 1
        out = np.empty(self.used, np.int64)
        kb.mention(self.k.address, dead, out)
        return out

    def _columns(self, op: int, a: Codes, b: Codes) -> Codes:
        a, b, out = _column(a), _column(b), np.empty(len(a), np.int64)
        self._drive(kb.combine_columns, op, a, b, out)
        return out

    def _build(self, variables: Codes, low: Codes, high: Codes) -> Codes:
        out = np.empty(len(variables) + 2, np.int64)
        self._drive(kb.build, _column(variables), _column(low), _column(high), out)
        return out

    # Sizes and state

    @property
    def used(self) -> int:
        """Nodes, with the two terminals and what is garbage by now."""
        return int(self.k.scalar[kb.F_NODES])

    @property
    def grown(self) -> bool:
        return self.used > 2 * self._alive + _SMALL

    def count_nodes(self, a: Codes) -> int:
        """Return the distinct nodes of these functions, terminals not counted."""
        self._stamp(1)
        return int(kb.nodes_below(self.k.address, _column(a), np.empty(0, np.int64)))

    def sizes(self, a: Codes) -> Codes:
        a, out = _column(a), np.empty(len(a), np.int64)
        self._stamp(len(a))
        kb.count_each(self.k.address, a, out)
        return out * NODE_BYTES

    def nbytes(self, a: Codes) -> int:
        return self.count_nodes(a) * NODE_BYTES

    def diagram(self, a: Codes) -> tuple[Codes, Codes, Codes, Codes]:
        """Return the nodes of these functions as (variables, low, high) and the functions themselves, children first:
        nodes are numbered from 2, in an order in which larger labels come first; 0 and 1 are false and true."""
        nodes = self._below(a)
        node = self.k.nodes[nodes]
        by_level = np.lexsort((nodes, -self.k.label[node[:, kb.VARIABLE]]))
        nodes, node = nodes[by_level], node[by_level].astype(np.int64)
        number = np.empty(self.used, np.int64)
        number[:2] = 0, 1
        number[nodes] = np.arange(2, len(nodes) + 2)
        return node[:, kb.VARIABLE], number[node[:, kb.LOW]], number[node[:, kb.HIGH]], number[a]

    def _below(self, a: Codes) -> Codes:
        """Return the distinct nodes of these functions, rising: children first."""
        self._stamp(1)
        out = np.empty(self.used, np.int64)
        found = out[: kb.nodes_below(self.k.address, _column(a), out)]
        found.sort()
        return found

    def collect(self, roots: Codes) -> Codes:
        self._stamp(1)
        fresh = _empty(self.used, self.k.label)
        roots = np.array(roots, np.int64)
        kb.keep(self.k.address, fresh.address, roots)
        count = int(fresh.scalar[kb.F_NODES])
        self._take(fresh.nodes[:count])
        return roots

    def _take(self, nodes: np.ndarray) -> None:
        """These nodes (with terminals) and no others."""
        count = len(nodes)
        self.k = _empty(max(64, count + count // 4), self.k.label)
        self.k.nodes[:count, : kb.STAMP] = nodes[:, : kb.STAMP]
        self.k.scalar[kb.F_NODES] = self._alive = count
        self._of_variable[:] = 0
        kb.rehash(self.k.address)

    def image(self) -> dict[str, np.ndarray]:
        return {"nodes": self.k.nodes[: self.used, : kb.STAMP].copy(), **self.labels.image()}

    def restore(self, image: dict[str, np.ndarray]) -> None:
        """Take the functions of an image; handles are those of the one who gave it."""
        nodes = image.get("nodes")
        labels = Labels(None if self.labels.order is None else DepthFirst())
        labels.restore(image)
        if nodes is None or not kl.ordered(_rows(nodes), labels.of_variable):
            raise DataError("the decision diagrams of annotations are not as they were written")
        self.labels = labels
        self.k.replace(label=labels.of_variable)
        self._take(nodes)

    # The order of variables

    def place(self, tids: Codes, starts: Codes, ends: Codes) -> None:
        """Tell which edges new variables stand for, so that they go to their places in the order."""
        self.labels.place(tids, starts, ends)
        self._relabelled()

    def lose(self, tids: Codes) -> None:
        """Variables whose rows are gone; functions that mention them stay as they are."""
        self.labels.lose(tids)

    @property
    def due(self) -> bool:
        """Whether the order has moved so far from that of the nodes that `reorder` pays."""
        return self.labels.due

    def reorder(self, roots: Codes) -> Codes:
        """Rebuild the functions of the roots, and no others, in the order that is due; their new handles.

        TooLarge, and nothing is changed, if they do not fit then.
        """
        variables, low, high, handles = self.diagram(roots)
        old_labels, old = self.labels, self.k
        self.labels = self.labels.in_order(np.unique(variables))
        self.k = _empty(len(variables) + 2, self.labels.of_variable)
        try:
            built = self._build(variables, low, high)
        except AnnotationTooLarge:
            self.k, self.labels = old, old_labels
            self.labels.settle()
            raise
        return self.collect(built[handles])

    def _know(self, tids: Codes) -> None:
        """Give variables that were never placed one at the end."""
        if len(tids) and not 0 <= int(tids.min()) <= int(tids.max()) <= _MOST_VARIABLES:
            raise DataError(f"variables are numbers from 0 to {_MOST_VARIABLES:,}")
        if self.labels.append(tids):
            self._relabelled()

    def _relabelled(self) -> None:
        k, label = self.k, self.labels.of_variable
        if k.label is not label:
            k.replace(label=label)
        if (wanted := 2 * self.labels.count + 8) > len(k.stack):
            k.replace(stack=np.zeros((2 * wanted, kb.FRAME), np.int64))

    # Transport

    def pack(self, a: Codes) -> tuple[Codes, bytes]:
        variables, low, high, handles = self.diagram(a)
        first = np.flatnonzero(np.diff(variables, prepend=-1))
        counts = np.diff(first, append=len(variables))
        out = np.empty(20 + 5 * len(first) + 10 * len(variables) + 5 * len(a), np.uint8)
        end = kl.write(counts, low, high, handles, out)
        return variables[first], out[:end].tobytes()

    def unpack(self, names: Codes, data: bytes) -> Codes:
        """Return the functions of `pack`, of other variables in whatever order; raise DataError for other bytes."""
        names, raw = _column(names), np.frombuffer(data, np.uint8).copy()
        room = len(raw)
        variables, low, high = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
        handles, found = np.empty(room, np.int64), np.zeros(2, np.int64)
        if not kl.read(raw, len(names), variables, low, high, handles, found):
            raise DataError("the bytes of packed decision diagrams are torn or not such bytes")
        if len(np.unique(names)) != len(names):
            raise DataError("a variable of packed decision diagrams has two places")
        self._know(names)
        nodes, roots = found.tolist()
        return self._build(names[variables[:nodes]], low[:nodes], high[:nodes])[handles[:roots]]

    # Minimal witnesses

    def witnesses(self, handle: int, limit: int) -> list[tuple[int, ...]]:
        """Minimal witnesses, smallest first, at most `limit`; those of one size in the order of their variables."""
        variables, low, high, root = self._family(handle)
        least = [_NEVER, 0]  # the size of a node's smallest set
        for i in range(2, len(variables)):
            least.append(min(least[low[i]], 1 + least[high[i]]))
        found: list[tuple[int, ...]] = []
        waiting: list[tuple[int, tuple[int, ...], int]] = [(least[root], (), root)] if root else []
        while waiting and len(found) < limit:
            size, chosen, node = heapq.heappop(waiting)
            while node > 1:  # follow the smallest set of this node, and leave the other side for later
                with_it = (*chosen, variables[node])
                if low[node]:
                    heapq.heappush(waiting, (len(chosen) + least[low[node]], chosen, low[node]))
                if len(with_it) + least[high[node]] > size:
                    heapq.heappush(waiting, (len(with_it) + least[high[node]], with_it, high[node]))
                    break
                chosen, node = with_it, high[node]
            if node == 1:
                found.append(tuple(sorted(chosen)))
        return sorted(found, key=lambda witness: (len(witness), witness))

    def count(self, handle: int) -> int:
        """Return how many minimal witnesses a function has."""
        _, low, high, root = self._family(handle)
        sets = [0, 1]
        for i in range(2, len(low)):
            sets.append(sets[low[i]] + sets[high[i]])
        return sets[root]

    def _family(self, handle: int) -> tuple[list[int], list[int], list[int], int]:
        """Return the minimal witnesses as a family of sets: (variable, low, high) of its nodes, children first, and its
        root.

        The sets of a node are those of its low side, and those of its high side with its variable.
        """
        below = self._below(np.array([handle], np.int64))
        family = _empty(max(64, 2 * len(below)), self.k.label)
        family.replace(stack=np.zeros_like(self.k.stack))
        out = np.empty(len(below), np.int64)
        while True:
            family.scalar[kb.F_STATUS] = kb.OK
            km.minimal(self.k.address, family.address, below, out)
            if family.scalar[kb.F_STATUS] == kb.OK:
                break
            _grow(family, self.limit)
        nodes = family.nodes[: int(family.scalar[kb.F_NODES])].T.tolist()
        root = int(out[-1]) if len(out) else handle
        return nodes[kb.VARIABLE], nodes[kb.LOW], nodes[kb.HIGH], root

    # Room

    def _drive(self, kernel: Callable[..., None], *args: object) -> None:
        """Call a kernel until it no longer needs room."""
        scalar = self.k.scalar
        scalar[kb.F_CURSOR] = 0
        while True:
            scalar[kb.F_STATUS] = kb.OK
            kernel(self.k.address, *args)
            if scalar[kb.F_STATUS] == kb.OK:
                return
            _grow(self.k, self.limit)

    def _stamp(self, passes: int) -> None:
        """See to it that so many passes have stamps of their own."""
        scalar = self.k.scalar
        if scalar[kb.F_STAMP] + passes >= _STAMPS:
            self.k.nodes[:, kb.STAMP] = 0
            scalar[kb.F_STAMP] = 0


_NEVER = 1 << 40


def _empty(capacity: int, label: np.ndarray) -> KernelRecord:
    """Return a forest of the two terminals."""
    scalar = np.zeros(kb.F_FIELDS, np.int64)
    scalar[kb.F_NODES] = 2
    return KernelRecord(
        kb.FOREST,
        nodes=np.zeros((capacity, 4), np.int32),
        note=np.zeros(capacity, np.int64),
        table=np.zeros(1 << (2 * capacity).bit_length(), np.int32),
        cache=_cache(capacity),
        label=label,
        stack=np.zeros((2 * int((label >= 0).sum()) + 64, kb.FRAME), np.int64),
        scalar=scalar,
    )


def _cache(capacity: int) -> np.ndarray:
    cache = np.zeros((min(_CACHE, 1 << (2 * capacity).bit_length()), 2), np.int64)
    cache[:, 0] = -1
    return cache


def _grow(k: KernelRecord, limit: int) -> None:
    """Room for twice as many nodes; TooLarge if the limit is reached."""
    used, capacity = int(k.scalar[kb.F_NODES]), min(2 * len(k.nodes), limit + 2)
    if used >= limit + 2:
        raise AnnotationTooLarge(f"decision diagrams of more than {limit:,} nodes")
    nodes, note = np.zeros((capacity, 4), np.int32), np.zeros(capacity, np.int64)
    nodes[:used], note[:used] = k.nodes[:used], k.note[:used]
    old, cache = k.cache, _cache(capacity)
    k.replace(nodes=nodes, note=note, table=np.zeros(1 << (2 * capacity).bit_length(), np.int32))
    kb.rehash(k.address)
    if len(cache) > len(old):
        k.replace(cache=cache)
        kb.recache(k.address, old)


def _column(a: Codes) -> Codes:
    return np.ascontiguousarray(a, np.int64)


def _rows(nodes: np.ndarray) -> np.ndarray:
    if nodes.ndim != 2 or nodes.shape[1] != kb.STAMP or len(nodes) < 2:
        raise DataError("the decision diagrams of annotations are not as they were written")
    return np.ascontiguousarray(nodes, np.int32)
