"""Relative provenance: an annotation is the set of derivation edges behind a row, told in terms of other rows.

Each edge says that a rule derives a head from its bodies, all by name; names of base rows are variables. Nothing is
absorbed and nothing is expanded, so a function is cheap to make; but whether it still holds without some variables is
not read off it: it takes a traversal from the variables that are left, for edges may derive each other in a circle.

Law: a function says that its heads are derivable in its fragment of the one graph of derivations, and has only edges
that they need. `times` unites heads and edges, `derived` adds an edge and takes its head for the only one, and `plus`
unites the edges of functions of the same heads. Fragments of one graph say nothing false of it, so more edges never
hurt; two functions are equal here if they have the same edges, even if others would say the same.

State: every edge and every function once (`kernels/edges.py`), and for each name whether it is a variable.
"""

from __future__ import annotations

import numpy as np

from whence.annotate import AnnotationTooLarge
from whence.annotate.absorption import Absorption
from whence.annotate.kernels import edge_bytes
from whence.annotate.kernels import edges as ed
from whence.annotate.kernels.pool import stated_rows
from whence.annotate.pool import Pool
from whence.annotate.pooled import MOST, PooledFunctions, column
from whence.model.codes import Codes
from whence.model.errors import DataError, EvaluationError
from whence.model.record import KernelRecord

LIMIT = 1 << 20  # edges of a function
_BY_NAME = ("kinds", "derivable", "needed", "lost")


class Relative(PooledFunctions):
    """The algebra of derivation edges.

    >>> algebra = Relative()
    >>> link, path = np.array([1]), np.array([2])
    >>> row = algebra.derived(algebra.of_tid(link), rule=np.array([0]), head=path, bodies=link[:, None])
    >>> algebra.edges(int(row[0])), algebra.witnesses(int(row[0]), 9), algebra.without(row, link).tolist()
    ([(0, 2, 1)], [(1,)], [0])
    """

    name = "relative"
    kernels, weights = ed, 3  # edges, names in them, heads

    def __init__(self, limit: int = LIMIT):
        self._k = KernelRecord(
            ed.GRAPH,
            kinds=np.zeros(64, np.uint8),
            derivable=np.zeros(64, np.int64),
            needed=np.zeros(64, np.int64),
            lost=np.zeros(64, np.int64),
            state=np.zeros(64, np.uint8),
            scalar=np.array([0, limit, 1, 1, 0], np.int64),
        )
        self._pieces, self._functions = Pool(), Pool()
        self._functions.add(())
        self._functions.add((0,))
        self._alive = self._parts()

    def _mend(self) -> None:
        scalar = self._k.scalar
        status = int(scalar[ed.G_STATUS])
        if status == ed.TOO_LARGE:
            limit = int(scalar[ed.G_LIMIT])
            raise EvaluationError(f"provenance is too large: a row has more than {limit:,} derivation edges behind it")
        if status == ed.OTHER_HEAD:
            raise EvaluationError("derivations of different rows have no sum in the relative algebra")
        if status == ed.TORN:
            raise DataError("the bytes of annotations are not as they were written")
        self._pieces.grow()
        self._functions.grow()
        if (wanted := int(scalar[ed.G_WANTED])) > len(self._k.state):
            self._k.replace(state=np.zeros(2 * wanted, np.uint8))
        scalar[ed.G_WANTED] = 0

    def _know(self, names: Codes) -> None:
        """Room for what is known of each of these names."""
        if not len(names):
            return
        least, most = int(names.min()), int(names.max())
        if least < -1 or most >= MOST:
            raise EvaluationError(f"rows are numbered from 0 below 2^31, not {least if least < -1 else most}")
        if most >= len(self._k.kinds):
            for name in _BY_NAME:
                array = getattr(self._k, name)
                longer = np.zeros(2 * (most + 1), array.dtype)
                longer[: len(array)] = array
                self._k.replace(**{name: longer})

    def of_tid(self, tids: Codes) -> Codes:
        if len(tids) and tids.min() < 0:
            raise EvaluationError(f"base rows are numbered from 0, not {tids.min()}")
        self._know(tids)
        return self._drive(ed.variables, column(tids), rows=len(tids))

    def derived(self, a: Codes, rule: Codes, head: Codes, bodies: Codes) -> Codes:
        """`a`, the product of what bodies[i] (-1 for none) show, as derivations of the heads."""
        self._know(head)
        self._know(bodies.ravel())
        columns = column(a), column(rule), column(head), np.ascontiguousarray(bodies, np.int64)
        return self._drive(ed.derived, *columns, rows=len(a))

    def without(self, a: Codes, tids: Codes) -> Codes:
        self._pieces.stamp()
        ed.lose(self._k.address, column(tids))
        return self._drive(ed.without, column(a), rows=len(a))

    def implied(self, a: Codes, b: Codes) -> Codes:
        out = np.empty(len(a), np.int64)
        ed.implied(self._functions.address, column(a), column(b), out)
        return out

    def support(self, a: Codes) -> tuple[Codes, Codes]:
        starts, out = np.zeros(len(a) + 1, np.int64), np.empty(int(self._weigh(a)[:, 1:].sum()), np.int64)
        ed.support(self._k.address, self._pieces.address, self._functions.address, column(a), starts, out)
        return starts, out[: starts[-1]]

    def _rename_pieces(self, moved: Codes) -> None:
        ed.rename_edges(self._functions.address, self._functions.count, moved)

    def pack(self, a: Codes) -> tuple[Codes, bytes]:
        a, scalar = column(a), self._k.scalar
        weights = self._weigh(a)
        names = np.empty(min(int(weights[:, 1:].sum()), len(self._k.kinds)), np.int64)
        sizes, room = np.zeros(2, np.int64), 64 + 4 * len(a) + 3 * int(weights.sum())
        while True:
            self._pieces.stamp()
            self._functions.stamp()
            if scalar[ed.G_STAMP] + 1 >= MOST:  # notes of names have 31 bits for it
                self._k.needed[:] = self._k.derivable[:] = 0
                scalar[ed.G_STAMP] = 0
            scalar[ed.G_STAMP] += 1
            data = np.empty(room, np.uint8)
            if edge_bytes.pack(self._k.address, self._pieces.address, self._functions.address, a, names, data, sizes):
                return names[: sizes[0]].copy(), data[: sizes[1]].tobytes()
            room *= 2

    def unpack(self, names: Codes, data: bytes) -> Codes:
        names, buffer = column(names), np.frombuffer(data, np.uint8).copy()
        if len(names) and not 0 <= int(names.min()) <= int(names.max()) < MOST:
            raise DataError("annotations that mention rows with impossible numbers")
        if (rows := stated_rows(buffer)) < 0:
            raise DataError("the bytes of annotations end too early")
        self._know(names)
        ed.lose(self._k.address, names[:0])
        kinds = self._k.kinds[names]
        known, out = np.empty((len(buffer), 2), np.int64), np.empty(rows, np.int64)
        while True:
            edge_bytes.unpack(self._k.address, self._pieces.address, self._functions.address, names, buffer, known, out)
            if self._k.scalar[ed.G_STATUS] == ed.OK:
                return out
            try:
                self._mend()
            except (DataError, EvaluationError):
                self._k.kinds[names] = kinds
                raise

    def image(self) -> dict[str, np.ndarray]:
        return self._pieces.image("edges") | self._functions.image("functions") | {"kinds": self._k.kinds}

    def restore(self, image: dict[str, np.ndarray]) -> None:
        e, s = Pool(), Pool()
        e.restore(image, "edges")
        s.restore(image, "functions")
        kinds = image.get("kinds")
        if kinds is None or s.sequence(0) or s.sequence(1) != (0,) or (e.items < 0).any() or (s.items < 0).any():
            raise DataError("the derivation edges of annotations are not as they were written")
        self._know(np.concatenate([e.items, s.items, [len(kinds) - 1]]).astype(np.int64))
        self._k.kinds[: len(kinds)] = kinds
        self._pieces, self._functions = e, s
        self._alive = self._parts()

    # -- reading -----------------------------------------------------------------------------------------------------

    def heads(self, handle: int) -> tuple[int, ...]:
        """Return the names that a function says are derivable."""
        items = self._functions.sequence(handle)
        return items[1 : 1 + items[0]] if items else ()

    def edges(self, handle: int) -> list[tuple[int, ...]]:
        """Return the edges of a function, each as rule, head and bodies."""
        items = self._functions.sequence(handle)
        return [self._pieces.sequence(edge) for edge in items[1 + items[0] :]] if items else []

    def witnesses(self, handle: int, limit: int) -> list[tuple[int, ...]]:
        functions, of_heads = self._absorbed(handle)
        return functions.witnesses(of_heads, limit)

    def count(self, handle: int) -> int:
        functions, of_heads = self._absorbed(handle)
        return functions.count(of_heads)

    def _absorbed(self, handle: int) -> tuple[Absorption, int]:
        """Return the function under absorption: of its edges, the least solution, found in rounds."""
        functions = Absorption()
        if handle < 2:
            return functions, handle
        edges, heads = self.edges(handle), self.heads(handle)
        names, places = np.unique(np.array([*heads, *(n for edge in edges for n in edge[1:])]), return_inverse=True)
        lengths = np.array([len(edge) - 1 for edge in edges], np.int64)
        starts = len(heads) + np.cumsum(lengths) - lengths
        of_head = places[starts]
        value = np.zeros(len(names), np.int64)
        variables = self._k.kinds[names] != 0
        value[variables] = functions.of_tid(names[variables])

        def round_of(value: Codes) -> Codes:
            product = np.ones(len(edges), np.int64)
            for atom in range(1, int(lengths.max(initial=1))):
                there = lengths > atom
                product[there] = functions.times(product[there], value[places[starts[there] + atom]])
            everything, of = np.concatenate([value, product]), np.concatenate([np.arange(len(names)), of_head])
            order = np.argsort(of, kind="stable")
            return functions.total(everything[order], np.searchsorted(of[order], np.arange(len(names))))

        while True:
            try:
                found = round_of(value)
            except AnnotationTooLarge:
                value = functions.switch(value)
                continue
            if (found == value).all():
                break
            value = found
        result = np.ones(1, np.int64)
        for place in places[: len(heads)]:
            result = functions.times(result, value[[place]])
        return functions, int(result[0])
