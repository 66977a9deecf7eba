"""Window: one row for each group of each window of a stream, when the window closes.

Law: what a window gives is a function of its rows in their order. Rows are summed up in panes, the least that comes or
goes, and panes are combined: sums, extremes, the first and the last, and spreads by two stacks that subtract nothing
(`kernels/window_panes.py`), distinct values by counting them, quantiles in a search tree. State: the panes of each
group, and its rows where a value must be known when it goes. Cost: a few combinations a row, whatever the window's
size, O(log rows) for a quantile. Traced: the annotations of the rows in open windows.
"""

from __future__ import annotations

import numpy as np

from whence.engine.image import Image, StaleImage, inside, nested
from whence.engine.kernels import window as wk
from whence.engine.kernels import window_state as st
from whence.engine.kernels.window_check import sound
from whence.engine.kernels.window_distinct import E_FIELDS
from whence.engine.kernels.window_order import N_FIELDS
from whence.engine.operator import Batch, Operator
from whence.engine.stream import ANN, Late, StreamOperator
from whence.engine.window_lines import Lines
from whence.engine.window_plan import plan_window
from whence.engine.window_trace import Carried, Chunks, Nothing
from whence.errors import DataError, EvaluationError
from whence.model import wide
from whence.model.codes import Codes, Dictionary, decode_value
from whence.model.record import Record
from whence.model.types import Kind, Schema
from whence.plan.logical import Agg
from whence.plan.stream_model import Span

_SLOTS = 256


class Window(StreamOperator):
    """The windows `span` of a stream, their rows grouped by `keys`. Floats that are not finite are late, too."""

    def __init__(
        self,
        input: Operator,
        span: Span,
        keys: tuple[int, ...],
        aggs: tuple[Agg, ...],
        schema: Schema,
        dictionary: Dictionary,
    ):
        self.schema, self.algebra, self.inputs = schema, input.algebra, [input]
        self.span, self.keys, self.aggs, self.dictionary = span, keys, aggs, dictionary
        plan = plan_window(span, keys, aggs, input.schema, schema, self.tracer is not None)
        self._plan = plan
        self._stores = {
            "clocks": Lines(st.C_FIELDS + len(span.by)),
            "groups": Lines(plan.group_words),
            "panes": Lines(plan.pane_words, 1),
            "kept": Lines(1 + len(plan.columns)),
            "entries": Lines(E_FIELDS),
            "nodes": Lines(N_FIELDS),
        }
        self._groups = self._stores["groups"]
        empty = np.empty(0, np.int64)
        self._k = Record(
            st.STATE,
            plan=plan.plan,
            units=plan.units,
            accs=plan.accs,
            shows=plan.shows,
            params=plan.params,
            by=np.array(span.by, np.int64),
            keys=np.array(keys, np.int64),
            columns=plan.columns,
            distincts=plan.distincts,
            orders=plan.orders,
            scalar=np.zeros(st.S_FIELDS, np.int64),
            clock_slots=empty,
            group_slots=empty,
            entry_slots=empty,
            labels=empty,
            active=empty,
            scratch=np.empty((0, 2), np.int64),
        )
        self._scalar = self._k.scalar
        self._begun = False
        self._interned = plan.interned
        self.late = Late(len(input.schema) - 1)
        landmark = span.size is None
        self._annotations: Carried | Chunks | Nothing = Nothing()
        if self.tracer is not None:
            kind = Chunks if span.by or keys else Carried
            self._annotations = kind(self.tracer, self._groups, landmark)
        # Whether the group of each row must be told: not if all are in the one group, but those that are late.
        one = not span.by and not keys and span.size is not None and span.size >= (span.every or 0)
        self._owned = self.tracer is not None and not one
        self._resize()

    def _resize(self) -> None:
        """Fit tables and scratch to the stores."""
        k = self._k
        clocks, groups, panes, kept, entries, nodes = (store.address for store in self._stores.values())
        self._addresses = k.address, clocks, groups, panes, kept, entries, nodes
        if len(k.scratch) != self._groups.capacity:
            active = np.zeros(self._groups.capacity, np.int64)
            kept = min(len(k.active), len(active))
            active[:kept] = k.active[:kept]
            k.replace(active=active, scratch=np.empty((self._groups.capacity, 2), np.int64))
        slots = {}
        for name, store in (("clock_slots", "clocks"), ("group_slots", "groups"), ("entry_slots", "entries")):
            length = max(_SLOTS, 2 * self._stores[store].capacity)
            if len(getattr(k, name)) != length:
                slots[name] = np.zeros(length, np.int64)
        if slots:
            k.replace(**slots)
            self._find()

    def _find(self) -> None:
        state, clocks, groups, _, _, entries, _ = self._addresses
        wk.find_all(state, clocks, groups, entries)

    def apply(self, deltas: list[Batch]) -> Batch:
        (delta,) = deltas
        if not len(delta):
            none = Batch.empty(len(self.schema))
            return none if self.tracer is None else Batch(none.rows, self.tracer.blank(0))
        self._annotations.begin()
        out, info, owner, late = self._advance(self._with_parts(delta.rows))
        out = self._with_codes(out)
        if len(late):
            self.late.add(delta.rows[late, :-1])
        if isinstance(self._annotations, Nothing):
            return Batch(out, np.ones(len(out), np.int64))
        active = self._k.active[: self._scalar[st.S_ACTIVE]]
        return Batch(out, self._annotations.take(delta.ann, active, owner, late, info))

    def _with_parts(self, rows: Codes) -> Codes:
        """The rows with the words of wide decimals that are added up, before $at."""
        if not self._plan.parted:
            return rows
        columns = (np.ascontiguousarray(rows[:, c]) for c in self._plan.parted)
        words = [word for column in columns for word in wide.parts(column, self.dictionary)]
        return np.column_stack((rows[:, :-1], *words, rows[:, -1]))

    def _with_codes(self, out: Codes) -> Codes:
        """The rows out, their wide decimals as codes instead of words."""
        if not self._plan.wide:
            return out
        for place, number in enumerate(self._plan.wide):
            column = out[:, len(self.keys) + number]
            column[:], bad = wide.from_parts(out[:, len(self.schema) + place], column, self.dictionary)
            if bad >= 0:
                raise self._too_large(number, out[bad])
        return np.ascontiguousarray(out[:, : len(self.schema)])

    def _advance(self, rows: Codes) -> tuple[Codes, Codes, Codes, Codes]:
        """Rows out, with (group, first and end in its sequence); the group of each row; the rows that are late."""
        scalar, traced = self._scalar, self.tracer is not None
        count = len(rows)
        often = self.span.every if self.span.on is None else 1
        room = int(count // (often or 1)) + 16
        width = len(self.schema) + len(self._plan.wide)
        out, info = np.empty((room, width), np.int64), np.empty((room if traced else 0, 3), np.int64)
        owner = np.full(count if self._owned else 0, -1, np.int64)
        late = np.empty(count if self.span.on is not None else 0, np.int64)
        if self._interned:
            self._k.replace(labels=self.dictionary.labels())
        done, self._begun, scalar[st.S_STATUS] = 0, True, st.BEGIN
        while True:
            done = wk.advance(*self._addresses, rows, done, out, info, owner, late)
            status = int(scalar[st.S_STATUS])
            if status == st.DONE:
                n = int(scalar[st.S_OUT])
                return out[:n], info[:n], owner, late[: scalar[st.S_LATE]]
            if status == st.ROOM:
                for store in self._stores.values():
                    store.make_room(2 + len(self.aggs))
                self._resize()
            elif status == st.OUTPUT:
                room = max(2 * room, int(scalar[st.S_WANT]))
                out = _longer(out, room)
                info = _longer(info, room if traced else 0)
            elif status == st.UNFIT:
                group = self._groups.k.data[int(scalar[st.S_WHERE]), self._plan.plan[st.P_KEYS] :]
                raise self._too_large(int(scalar[st.S_WHICH]), group)
            elif status == st.TOO_FAR:
                raise EvaluationError(f"no window has a number for {self._value(rows[done])}: it is too far away")
            else:
                raise EvaluationError(
                    f"a row with {self._value(rows[done])} closes more than {st.MOST_AT_ONCE:,} windows at once; "
                    "take a larger `every`, or an origin and values that are nearer"
                )

    def _value(self, row: Codes) -> str:
        column = self.span.on or 0
        schema = self.inputs[0].schema
        return f"{schema.names[column]} = {decode_value(int(row[column]), schema.types[column], self.dictionary)!r}"

    def _too_large(self, number: int, key: Codes) -> EvaluationError:
        agg, type = self.aggs[number], self.schema.types[len(self.keys) + number]
        shown = (
            f"{column.name} = {decode_value(int(code), column.type, self.dictionary)!r}"
            for column, code in zip(self.schema.columns, key[: len(self.keys)].tolist(), strict=False)
        )
        place = f" for the group {', '.join(shown)}" if self.keys else ""
        exact = agg.function in ("sum", "avg") and type.kind is not Kind.DOUBLE
        advice = "; cast its argument to DOUBLE" if exact else ""
        return EvaluationError(f"{agg.function.upper()} does not fit {type}{place} in a window{advice}")

    def commit(self) -> None:
        self._begun = False
        self._annotations.commit()
        self.late.commit()

    def undo(self) -> None:
        self.late.undo()
        if not self._begun:
            return
        self._begun = False
        self._scalar[st.S_ARRIVED] = self._scalar[st.S_ARRIVED_BEFORE]
        for store in self._stores.values():
            store.undo()
        self._annotations.undo()
        self._find()

    def clear(self) -> None:
        self._begun = False
        for store in self._stores.values():
            store.clear()
        self._scalar[:] = 0
        self.late.clear()
        self._annotations.clear()
        self._resize()
        self._find()

    def fresh(self) -> Operator:
        return Window(self.inputs[0], self.span, self.keys, self.aggs, self.schema, self.dictionary)

    def held(self) -> list[Codes]:
        return self._annotations.held()

    def image(self) -> Image:
        parts = {key: a for name, store in self._stores.items() for key, a in nested(name, store.image()).items()}
        annotations = {f"{ANN}{name}": array for name, array in self._annotations.image().items()}
        arrived = np.array([self._scalar[st.S_ARRIVED], self._scalar[st.S_BATCH]], np.int64)
        return {"arrived": arrived, **parts, **self.late.image(), **annotations}

    def restore(self, image: Image) -> None:
        parts = [(store, inside(name, image)) for name, store in self._stores.items()]
        if "arrived" not in image or image["arrived"].shape != (2,) or image["arrived"].dtype != np.int64:
            raise StaleImage("not an image of windows")
        self.late.check(image)
        for store, own in parts:
            store.check(own)
        try:
            self._take_up(image, parts)
        except (StaleImage, DataError):
            self.clear()
            raise

    def _take_up(self, image: Image, parts: list[tuple[Lines, Image]]) -> None:
        for store, own in parts:
            store.restore(own)
        self._begun = False
        self._scalar[:] = 0
        self._scalar[[st.S_ARRIVED, st.S_BATCH]] = image["arrived"]
        if self._interned:
            self._k.replace(labels=self.dictionary.labels())
        self._resize()
        self._find()
        if not sound(*self._addresses):
            raise StaleImage("the lines of windows do not hold together")
        self.late.restore(image)
        self._annotations.restore({name[len(ANN) :]: a for name, a in image.items() if name.startswith(ANN)})

    @property
    def state_rows(self) -> int:
        """Panes, kept rows, and annotations of rows."""
        kept, panes = len(self._stores["kept"]), len(self._stores["panes"]) - len(self._groups)
        return max(kept, panes, self._annotations.rows)

    @property
    def state_bytes(self) -> int:
        slots = sum(a.nbytes for a in (self._k.clock_slots, self._k.group_slots, self._k.entry_slots))
        return slots + sum(store.nbytes for store in self._stores.values()) + self._annotations.nbytes

    def describe(self) -> str:
        def one(agg: Agg) -> str:
            if agg.function in ("window_start", "window_end"):
                return agg.function
            what = "*" if agg.column is None else f"#{agg.column}"
            share = "" if agg.parameter is None else f", {agg.parameter:g}"
            return f"{agg.function}({'distinct ' if agg.distinct else ''}{what}{share})"

        span = self.span
        size = "all" if span.size is None else f"{span.size}"
        unit = "rows" if span.on is None else f"of #{span.on}"
        by = "".join(f" by {', '.join(f'#{c}' for c in columns)}" for columns in (span.by,) if columns)
        keys = f" group {', '.join(f'#{c}' for c in self.keys)}" if self.keys else ""
        late = f", {self.late.count} late" if self.late.count else ""
        return f"window {size} {unit} every {span.every}{by}: {', '.join(map(one, self.aggs))}{keys}{late}"


def _longer(array: Codes, length: int) -> Codes:
    longer = np.empty((length, array.shape[1]), np.int64)
    longer[: len(array)] = array[:length]
    return longer
