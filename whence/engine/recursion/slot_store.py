"""Slots of a recursive component: its arrays are allocated, grown, compacted, saved, and handed to kernels here."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whence.engine.core.image import Image, StaleImage, taken
from whence.engine.recursion.kernels import annotations as an
from whence.engine.recursion.kernels import gather as ga
from whence.engine.recursion.kernels import store as st
from whence.engine.recursion.rule_plans import CompiledRules, decode_orders, encode_orders
from whence.model.budget import reach
from whence.model.codes import Codes
from whence.model.record import KernelRecord
from whence.model.word_marks import WordMarks
from whence.plan.recursion.support import can_support

_COUNTERS = (st.S_ROWS, st.S_DEAD, st.S_KEYS_USED, st.S_WORK)  # all of `scalar` that outlives an epoch
_LAYOUT = (st.S_META, st.S_BODY, st.S_ATOMS, st.S_CHAIN, st.S_HEAP, st.S_FORGETS, st.S_POLICY)
_PROGRESS = 100_000  # rows from which growth is reported
_SLICE = 1 << 22  # rows and derivations that a kernel looks at before it comes back: some 0.1 s


class SlotStore:
    """The growing arrays of a component and the calls that work on them."""

    def __init__(self, compiled: CompiledRules, policy: int, place: tuple[int, int] | None = None):
        """`place` is the partition, and how many there are, of a component that sends rows with their ranks."""
        self.compiled = compiled
        self._most_indexes = int(compiled.relations[:, st.R_INDEXES].max())
        self._witnesses = 0  # dead rows that the last compaction had to keep
        scalar = np.zeros(st.S_FIELDS, np.int64)
        scalar[st.S_META], scalar[st.S_BODY] = compiled.meta, compiled.body
        scalar[st.S_ATOMS], scalar[st.S_CHAIN] = compiled.atoms, compiled.chain
        scalar[st.S_HEAP] = place is not None or any(r.kind == "best" for r in compiled.program.relations)
        scalar[st.S_FORGETS] = not can_support(compiled.program)
        scalar[st.S_POLICY] = policy
        scalar[st.S_PEERS] = place is not None
        scalar[st.S_PARTITION], scalar[st.S_PARTITIONS] = place or (0, 1)
        self.k = KernelRecord(
            st.STORE,
            **self._slots(64),
            rows=np.full(256, -1, np.int64),
            keys=np.full(256, -1, np.int64),
            relations=compiled.relations,
            indexes=compiled.indexes,
            plans=compiled.plans,
            env=compiled.env,
            queue=np.zeros((64, 3), np.int64),
            touched=np.zeros((64, 3), np.int64),
            opened=np.zeros(64, np.int64),
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

    def drive(
        self,
        kernel: Callable[..., None],
        *args: object,
        watch: Callable[[str], None] | None = None,
        pause: Callable[[], None] = reach,
    ) -> int:
        """Call a kernel until it neither needs room nor is interrupted by anything the driver can mend; `pause` is
        called between its slices."""
        scalar = self.k.scalar
        while True:
            scalar[st.S_STATUS] = st.OK
            scalar[st.S_PAUSE] = scalar[st.S_WORK] + _SLICE
            kernel(self.k.address, *args)
            status = int(scalar[st.S_STATUS])
            if status == st.PAUSED:
                pause()
            elif status in (st.GROW, st.FOREIGN_FULL):
                self.grow()
            else:
                return status
            if watch is not None and (rows := int(scalar[st.S_ROWS])) >= _PROGRESS:
                watch(f"{rows:,} rows")

    def grow(self) -> None:
        """Double whatever is nearly full."""
        k, s = self.k, self.k.scalar
        used, waiting = int(s[st.S_ROWS]), int(s[st.S_TAIL] - s[st.S_HEAD])
        change: dict[str, np.ndarray] = {}
        if _nearly(used, k.cells):
            slots = self._slots(2 * len(k.cells))
            slots["cells"][:used] = k.cells[:used]
            change |= slots
        if _nearly(waiting + 2, k.queue):
            change["queue"] = queue = np.zeros((2 * len(k.queue), 3), np.int64)
            queue[:waiting] = k.queue[(int(s[st.S_HEAD]) + np.arange(waiting)) % len(k.queue)]
            s[st.S_HEAD], s[st.S_TAIL] = 0, waiting
        # A row that is done anew has taken back what it wrote, so `foreign` need not look full.
        written = len(k.foreign) if s[st.S_STATUS] == st.FOREIGN_FULL else s[st.S_FOREIGN]
        for name, filled in (("touched", s[st.S_TOUCHED]), ("opened", s[st.S_OPENED]), ("foreign", written)):
            if _nearly(int(filled), array := getattr(k, name)):
                change[name] = np.concatenate([array, np.zeros_like(array)])
        old = {"rows": np.empty(0, np.int64), "keys": np.empty(0, np.int64)}
        for name, filled in (("rows", used + 1), ("keys", s[st.S_KEYS_USED] + self._most_indexes)):
            if _nearly(2 * int(filled), array := getattr(k, name)):
                old[name] = array
                change[name] = np.full(2 * len(array), -1, np.int64)
        if (wanted := int(s[st.S_WANTED])) >= len(k.buckets):
            more = np.full(2 * (wanted + 1) - len(k.buckets), -1, np.int32)
            change["buckets"] = np.concatenate([k.buckets, more])
        k.replace(**change)
        if len(old["rows"]) or len(old["keys"]):
            st.rehash(k.address, old["rows"], old["keys"])

    def gather(self, rows: Codes, mode: int, backward: bool) -> tuple[Codes, Codes, int]:
        """Return the derivations through rows (slots) or, `backward`, of them (`kernels/gather.py`): how many belong to
        each row, the derivations [n, 1 + atoms + columns], and the status that stopped the kernel, or OK."""
        scalar = self.k.scalar
        counts = np.zeros(len(rows), np.int64)
        scalar[st.S_CURSOR] = scalar[st.S_FOREIGN] = 0
        status = self.drive(ga.gather, np.ascontiguousarray(rows, np.int64), counts, mode, backward)
        found = self.k.foreign[: int(scalar[st.S_FOREIGN])].copy()
        scalar[st.S_FOREIGN] = 0
        return counts, found, status

    def make_hopeful(self) -> None:
        """Let the room for hopes follow the largest withdrawal seen; without room, rows are simply searched again."""
        wanted = 4 * int(self.k.scalar[st.S_TOUCHED])
        if wanted > len(self.k.hopes):
            self.k.replace(hopes=np.zeros((2 * wanted, 2), np.int32))

    def compact(self, at_least: int = 4096) -> Codes | None:
        """Forget dead rows once they are more than the live ones, so that memory follows the live state; return where
        each slot is then, -1 for one that is gone, or None if nothing moved."""
        s = self.k.scalar
        used, dead = int(s[st.S_ROWS]), int(s[st.S_DEAD])
        if dead - self._witnesses < max(at_least, used - dead):
            return None
        return self.lay_out(self.compiled)

    def lay_out(self, compiled: CompiledRules) -> Codes:
        """Forget dead rows, and have the indexes of these rules from now on; return where each slot is then."""
        k, s, most = self.k, self.k.scalar, int(compiled.relations[:, st.R_INDEXES].max())
        used = int(s[st.S_ROWS])
        keys = len(k.keys) if compiled is self.compiled else 1 << max(8, (2 * used * most).bit_length())
        self.compiled, self._most_indexes = compiled, most
        # Dead rows on whose absence others stand are kept, so there must be room for all at first.
        fresh = KernelRecord(st.STORE, **k.arrays)
        fresh.replace(
            **self._slots(used),
            rows=np.full_like(k.rows, -1),
            keys=np.full(keys, -1, np.int64),
            scalar=s.copy(),
            relations=compiled.relations,
            indexes=compiled.indexes,
            plans=compiled.plans,
            env=compiled.env,
        )
        moved = np.empty(used, np.int64)
        st.compact(k.address, fresh.address, moved)
        kept = int(fresh.scalar[st.S_ROWS])
        slots = self._slots(max(64, kept + kept // 4))
        slots["cells"][:kept] = fresh.cells[:kept]
        table = np.full(1 << max(8, (3 * kept).bit_length()), -1, np.int64)
        old_rows, old_keys = fresh.rows, fresh.keys
        chains = 1 << max(8, (3 * int(fresh.scalar[st.S_KEYS_USED])).bit_length())
        fresh.replace(**slots, rows=table, keys=np.full(min(keys, chains), -1, np.int64))
        st.rehash(fresh.address, old_rows, old_keys)
        self.k = fresh
        self._witnesses = int(fresh.scalar[st.S_DEAD])
        return moved

    def mark_words(self, marks: WordMarks, dead: bool) -> None:
        """Mark the words that rows refer to: the live ones, those whose absence counts, and with `dead` all.

        Other dead rows are revived only when they are derived again, from codes that are in use then."""
        k, s = self.k, self.k.scalar
        used = int(s[st.S_ROWS])
        tags, cells = k.meta[:used, int(s[st.S_META])], k.cells[:used]
        for number, relation in enumerate(self.compiled.program.relations):
            if any(type.needs_dictionary for type in relation.schema.types):
                mine = (tags & st.RELATION) == number
                if not dead and relation.kind != "absence":
                    mine &= (tags & st.ALIVE) != 0
                marks.rows(cells, relation.schema.types, mine)

    def image(self) -> Image:
        """Return the slots in use, the hash tables over them, the counters, and the layout to read them by. Queues,
        buckets and the like are empty between epochs; plans and constants belong to the program."""
        k, s = self.k, self.k.scalar
        return {
            "cells": k.cells[: int(s[st.S_ROWS])],
            "rows": k.rows,
            "keys": k.keys,
            "counters": np.array([*s[list(_COUNTERS)], self._witnesses], np.int64),
            "orders": encode_orders(self.compiled.orders),
            **self._layout(),
        }

    def _layout(self) -> Image:
        k = self.k
        return {
            "layout": k.scalar[list(_LAYOUT)],
            "relations": k.relations[:, : st.R_FORWARD],
            "indexes": k.indexes,
        }

    def restore(self, image: Image) -> None:
        """Take the slots of an image of the same layout, which follows from its orders; this store must not have been
        used."""
        if "orders" in image and not np.array_equal(image["orders"], encode_orders(self.compiled.orders)):
            orders, own = decode_orders(image["orders"]), self.compiled.orders
            if {key: sorted(order) for key, order in orders.items()} != {k: sorted(o) for k, o in own.items()}:
                raise StaleImage("the orders of a recursive component are those of other rules")
            self.lay_out(self.compiled.reordered(orders))
        elif "orders" not in image:  # from before orders were chosen, with the places of plans among the relations
            image = image.__class__(image, orders=encode_orders(self.compiled.orders))
            image["relations"] = image["relations"][:, : st.R_FORWARD]
        for name, mine in self._layout().items():
            if name not in image or not np.array_equal(image[name], mine):
                raise StaleImage(f"the {name} of a recursive component are laid out otherwise")
        for name, like in self.image().items():
            if name not in image or (image[name].dtype, image[name].ndim) != (like.dtype, like.ndim):
                raise StaleImage(f"the {name} of a recursive component are of another type")
        counters = image["counters"]
        cells, used = image["cells"], int(counters[0])
        if cells.shape != (used, self.compiled.words) or len(counters) != len(_COUNTERS) + 1:
            raise StaleImage("the slots of a recursive component are laid out otherwise")
        slots = taken(image, "cells", max(64, used + used // 4))
        rows, keys = (taken(image, name, len(image[name])) for name in ("rows", "keys"))
        self.k.replace(cells=slots, meta=slots.view(np.int32), rows=rows, keys=keys)
        self.k.scalar[list(_COUNTERS)] = counters[:-1]
        self._witnesses = int(counters[-1])

    @property
    def rows(self) -> int:
        """How many rows live, of all relations."""
        return int(self.k.scalar[st.S_ROWS] - self.k.scalar[st.S_DEAD])

    def sizes(self) -> Codes:
        """Return how many rows each relation has."""
        k, s = self.k, self.k.scalar
        tags = k.meta[: int(s[st.S_ROWS]), int(s[st.S_META])]
        live = tags[(tags & st.ALIVE) != 0] & st.RELATION
        return np.bincount(live, minlength=len(self.compiled.program.relations))

    def count(self, relation: int) -> int:
        """Return how many rows a relation has."""
        return int(st.live_rows(self.k.address, relation, np.empty((0, 1), np.int64)))

    def describe(self, slots: Codes) -> tuple[Codes, Codes]:
        """Return the relations and the cells of slots."""
        relations = np.empty(len(slots), np.int64)
        cells = np.empty((len(slots), self.compiled.columns), np.int64)
        an.describe(self.k.address, slots, relations, cells)
        return relations, cells

    def holds(self, relation: int, rows: Codes) -> Codes:
        """Return 1 for each row that a relation has, else 0."""
        slots, keys = self.find(relation, rows), self.keys(relation)
        there = slots >= 0
        if keys < rows.shape[1]:
            there &= self.k.cells[slots, keys] == rows[:, keys]
        return there.astype(np.int64)

    def find(self, relation: int, keys: Codes) -> Codes:
        """Return the slots of the live rows that have these keys in their first columns, -1 where there is none."""
        slots = np.empty(len(keys), np.int64)
        st.find_slots(self.k.address, relation, np.ascontiguousarray(keys), slots)
        return slots

    def keys(self, relation: int) -> int:
        """Return how many of a relation's first columns tell its rows apart; the others may change."""
        return int(self.k.relations[relation, st.R_KEYS])

    def live(self, relation: int) -> Codes:
        """Return the rows of a relation."""
        count = self.count(relation)
        out = np.empty((count, len(self.compiled.program.relations[relation].schema)), np.int64)
        if count:
            st.live_rows(self.k.address, relation, out)
        return out


def _nearly(filled: int, array: np.ndarray) -> bool:
    return filled * 8 > len(array) * 7
