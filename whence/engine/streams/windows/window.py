"""Window: one row per group of each window of a stream, when the window closes.

Law: what a window gives is a function of its rows in their order. Rows are summed up in panes, the least that comes or
goes, and panes are combined: sums, extremes, the first and the last, and spreads by two stacks that subtract nothing
(`kernels/window_panes.py`), distinct values by counting them, quantiles in a search tree. Windows over values close
when the watermark reaches their end (`kernels/window_state.py`), so rows may come in any order until then. State: the
panes of each group, and its rows where a value must be known when it comes or goes. Cost: a few combinations per row,
whatever the window's size, O(log rows) for a quantile, and the panes between a row and the newest one of its group.
Traced: the annotations of the rows in open windows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from whence.engine.core.image import Image, StaleImage, inside, nested
from whence.engine.core.operator import Batch, Operator
from whence.engine.streams.stream import ANN, Late, StreamOperator
from whence.engine.streams.windows.kernels import window as wk
from whence.engine.streams.windows.kernels import window_acc as acc
from whence.engine.streams.windows.kernels import window_state as st
from whence.engine.streams.windows.kernels.window_check import is_consistent
from whence.engine.streams.windows.kernels.window_distinct import E_FIELDS, E_VALUE
from whence.engine.streams.windows.kernels.window_order import N_FIELDS, N_VALUE
from whence.engine.streams.windows.window_lines import LineStore
from whence.engine.streams.windows.window_plan import plan_window
from whence.engine.streams.windows.window_trace import Carried, Chunks, NoTrace
from whence.model import wide
from whence.model.codes import NULL, Codes, Dictionary, decode_value
from whence.model.errors import DataError, EvaluationError
from whence.model.record import KernelRecord
from whence.model.types import Kind, Schema
from whence.model.word_marks import WordMarks
from whence.plan.algebra.logical import Agg
from whence.plan.streams.model import FIRST, Span

_SLOTS = 256
_RESTORED = (
    (st.S_ARRIVED, st.S_ARRIVED_BEFORE),
    (st.S_PROMISED, st.S_PROMISED_BEFORE),
    (st.S_WAITING, st.S_WAITING_BEFORE),
)


class Window(StreamOperator):
    """The windows `span` of a stream, their rows grouped by `keys`. Floats that are not finite are late."""

    def __init__(
        self,
        input: Operator,
        span: Span,
        keys: tuple[int, ...],
        aggs: tuple[Agg, ...],
        schema: Schema,
        dictionary: Dictionary,
    ):
        self.schema, self.tracer, self.inputs = schema, input.tracer, [input]
        self.span, self.keys, self.aggs, self.dictionary = span, keys, aggs, dictionary
        plan = plan_window(span, keys, aggs, input.schema, schema, self.tracer is not None)
        self._plan = plan
        self._stores = {
            "clocks": LineStore(st.C_FIELDS + len(span.by)),
            "groups": LineStore(plan.group_words),
            "panes": LineStore(plan.pane_words, 1),
            "kept": LineStore(1 + len(plan.columns)),
            "entries": LineStore(E_FIELDS),
            "nodes": LineStore(N_FIELDS),
        }
        self._groups = self._stores["groups"]
        empty = np.empty(0, np.int64)
        self._k = KernelRecord(
            st.STATE,
            **{name: store.k for name, store in self._stores.items()},
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
        self.late = Late(len(input.schema) - 1, span.on)
        landmark = span.size is None
        self._annotations: Carried | Chunks | NoTrace = NoTrace()
        if self.tracer is not None:
            kind = Chunks if span.by or keys else Carried
            self._annotations = kind(self.tracer, self._groups, self._stores["panes"], landmark)
        # Whether the group of each row must be told: not if all rows are in the one group.
        one = not span.by and not keys and span.size is not None and span.size >= (span.every or 0)
        self._owned = self.tracer is not None and (span.on is not None or not one)
        self._scalar[st.S_PROMISED] = NULL
        self._resize()

    def _resize(self) -> None:
        """Fit tables and scratch to the stores."""
        k = self._k
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
            wk.rebuild_tables(k.address)

    def apply(self, deltas: list[Batch]) -> Batch:
        (delta,) = deltas
        if not len(delta):
            none = Batch.empty(len(self.schema))
            return none if self.tracer is None else Batch(none.rows, self.tracer.blank(0))
        self._annotations.begin()
        out, ann, late = self._advance(self._with_parts(delta.rows), delta.ann)
        out = self._with_codes(out)
        if len(late):
            self.late.add(delta.rows[late, :-1], self._newest(delta.rows[late[0]]))
        return Batch(out, ann)

    def _with_parts(self, rows: Codes) -> Codes:
        """Return the rows with the words of wide decimals that are added up, before $at."""
        if not self._plan.parted:
            return rows
        columns = (np.ascontiguousarray(rows[:, c]) for c in self._plan.parted)
        words = [word for column in columns for word in wide.parts(column, self.dictionary)]
        return np.column_stack((rows[:, :-1], *words, rows[:, -1]))

    def _with_codes(self, out: Codes) -> Codes:
        """Return the rows out with their wide decimals as codes instead of words."""
        if not self._plan.wide:
            return out
        for place, number in enumerate(self._plan.wide):
            column = out[:, len(self.keys) + number]
            column[:], bad = wide.from_parts(out[:, len(self.schema) + place], column, self.dictionary)
            if bad >= 0:
                raise self._overflow_error(number, out[bad])
        return np.ascontiguousarray(out[:, : len(self.schema)])

    def _advance(self, rows: Codes, ann: Codes) -> tuple[Codes, Codes, Codes]:
        """Add rows; return the rows out, their annotations, and which rows are late."""
        scalar, traced = self._scalar, self.tracer is not None
        count = len(rows)
        often = self.span.every if self.span.on is None else 1
        room = int(count // (often or 1)) + 16
        width = len(self.schema) + len(self._plan.wide)
        out, info = np.empty((room, width), np.int64), np.empty((room if traced else 0, 3), np.int64)
        owner, pane_of = (np.full(count if self._owned else 0, -1, np.int64) for _ in range(2))
        late = np.empty(count if self.span.on is not None else 0, np.int64)
        if self._interned:
            self._k.replace(labels=self.dictionary.labels())
        anns: list[Codes] = []
        taken = done = 0
        self._begun, scalar[st.S_STATUS] = True, st.BEGIN
        while True:
            done = wk.advance(self._k.address, rows, done, out, info, owner, pane_of, late)
            status = int(scalar[st.S_STATUS])
            if status in (st.DONE, st.SPLIT):
                anns.append(self._take_annotations(ann, taken, done, owner, pane_of, info))
                taken = done
            if status == st.DONE:
                n = int(scalar[st.S_OUT])
                return out[:n], anns[0] if len(anns) == 1 else np.concatenate(anns), late[: scalar[st.S_LATE]]
            if status == st.ROOM:
                waiting = (1 + int(scalar[st.S_WAITING])) * (2 + len(self.aggs))
                for name, store in self._stores.items():
                    store.make_room(waiting if name in ("entries", "nodes") else 2 + len(self.aggs))
                self._resize()
            elif status == st.OUTPUT:
                room = max(2 * room, int(scalar[st.S_WANT]))
                out = _longer(out, room)
                info = _longer(info, room if traced else 0)
            elif status != st.SPLIT:
                raise self._stop_error(status, f"a row with {self._value(rows[done])}")

    def promise(self, bound: int | None, at: int) -> Batch:
        """Close the windows that end no later than a value, or all that have rows; they come out at `at`."""
        scalar, traced = self._scalar, self.tracer is not None
        room, width = 16, len(self.schema) + len(self._plan.wide)
        out, info = np.empty((room, width), np.int64), np.empty((room if traced else 0, 3), np.int64)
        if not self._begun:
            self._annotations.begin()
        scalar[st.S_STATUS] = st.SPLIT if self._begun else st.BEGIN
        scalar[[st.S_CLOCK, st.S_OUT]], self._begun = 0, True
        if self._interned:
            self._k.replace(labels=self.dictionary.labels())
        none = np.empty(0, np.int64)
        while True:
            wk.promise(self._k.address, NULL if bound is None else bound, at, out, info)
            status = int(scalar[st.S_STATUS])
            if status == st.DONE:
                n = int(scalar[st.S_OUT])
                blank = none if self.tracer is None else self.tracer.blank(0)
                return Batch(self._with_codes(out[:n]), self._take_annotations(blank, 0, 0, none, none, info))
            if status != st.OUTPUT:
                raise self._stop_error(status, "a promise")
            room = max(2 * room, int(scalar[st.S_WANT]))
            out, info = _longer(out, room), _longer(info, room if traced else 0)

    def next_due(self) -> int | None:
        """Return a bound of a promise below which no window would close; of whole numbers and times only."""
        store, plan = self._stores["clocks"], self._plan.plan
        clocks = store.k.data[: store.used]
        last = clocks[:, st.C_TOP]  # pane of the last window that has rows
        if not plan[st.P_LANDMARK]:
            last = plan[st.P_STRIDE] * (last // plan[st.P_STRIDE]) + plan[st.P_DEPTH]
        clocks = clocks[(clocks[:, st.C_SEEN] == 1) & (last >= clocks[:, st.C_LAST])]
        if not len(clocks):
            return None
        reached = np.maximum(clocks[:, st.C_NEWEST] - int(self.span.lateness), self._scalar[st.S_PROMISED])
        return int(self._next_end(reached, clocks[:, st.C_ORIGIN]).min())

    def due_after(self, value: int) -> int:
        """Return a bound below which no window closes for a row that comes with this value, or a greater one."""
        return value + 1 if self.span.origin == FIRST else int(self._next_end(value, int(self._plan.plan[st.P_ORIGIN])))

    def _next_end(self, values: Any, origins: Any) -> Any:
        """Return the first end of a window behind each value."""
        every, size = int(self.span.every or 1), int(self.span.size or 0)
        return values + every - (values - origins - size) % every

    def _take_annotations(self, ann: Codes, first: int, end: int, owner: Codes, pane_of: Codes, info: Codes) -> Codes:
        """Return the annotations of the rows out since the last call, taking in those of rows[first:end]."""
        start, stop = self._scalar[[st.S_TAKEN, st.S_OUT]].tolist()
        if isinstance(self._annotations, NoTrace):
            return np.ones(stop - start, np.int64)
        active, some = self._k.active[: self._scalar[st.S_ACTIVE]], slice(first, end)
        disorder = bool(self._scalar[st.S_DISORDER])
        return self._annotations.take(ann[some], active, owner[some], pane_of[some], info[start:stop], disorder)

    def _newest(self, row: Codes) -> int:
        """Return the greatest value that a row's clock has seen, for the first late row alone."""
        if self.late.count:
            return NULL
        store = self._stores["clocks"]
        clocks = store.k.data[: store.used]
        mine = (clocks[:, st.C_FIELDS :] == row[list(self.span.by)]).all(axis=1)
        return int(clocks[mine, st.C_NEWEST].max(initial=NULL))

    def _stop_error(self, status: int, what: str) -> EvaluationError:
        """Return the error for the status with which the kernel stopped."""
        if status == st.UNFIT:
            group = self._groups.k.data[int(self._scalar[st.S_WHERE]), self._plan.plan[st.P_KEYS] :]
            return self._overflow_error(int(self._scalar[st.S_WHICH]), group)
        if status == st.TOO_FAR:
            value = what.removeprefix("a row with ")
            return EvaluationError(f"{value} is out of range; set an origin nearer to it")
        return EvaluationError(
            f"{what} closes more than {st.MOST_AT_ONCE:,} windows at once; "
            "take a larger `every`, or an origin and values that are nearer"
        )

    def _value(self, row: Codes) -> str:
        column = self.span.on or 0
        schema = self.inputs[0].schema
        return f"{schema.names[column]} = {decode_value(int(row[column]), schema.types[column], self.dictionary)!r}"

    def _overflow_error(self, number: int, key: Codes) -> EvaluationError:
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
        for now, before in _RESTORED:
            self._scalar[now] = self._scalar[before]
        for store in self._stores.values():
            store.undo()
        self._annotations.undo()
        wk.rebuild_tables(self._k.address)

    def clear(self) -> None:
        self._begun = False
        for store in self._stores.values():
            store.clear()
        self._scalar[:] = 0
        self._scalar[st.S_PROMISED] = NULL
        self.late.clear()
        self._annotations.clear()
        self._resize()
        wk.rebuild_tables(self._k.address)

    def fresh(self) -> Operator:
        return Window(self.inputs[0], self.span, self.keys, self.aggs, self.schema, self.dictionary)

    def held(self) -> list[Codes]:
        return self._annotations.held()

    def image(self) -> Image:
        parts = {key: a for name, store in self._stores.items() for key, a in nested(name, store.image()).items()}
        annotations = {f"{ANN}{name}": array for name, array in self._annotations.image().items()}
        arrived = self._scalar[[st.S_ARRIVED, st.S_BATCH, st.S_PROMISED]]
        return {"arrived": arrived, **parts, **self.late.image(), **annotations}

    def mark_words(self, marks: WordMarks) -> None:
        """Mark the words in the lines of all stores; those that are free keep what they last had."""
        types, plan = self.inputs[0].schema.types, self._plan
        lines = {name: store.k.data[: store.used] for name, store in self._stores.items()}
        marks.rows(lines["clocks"][:, st.C_FIELDS :], [types[column] for column in self.span.by])
        marks.rows(lines["groups"][:, plan.plan[st.P_KEYS] :], [types[column] for column in self.keys])
        for kept, column, word in plan.accs.tolist():
            if kept in acc.CODES:
                marks.column(lines["panes"][:, word], types[column])
        columns = [types[column] for column in plan.columns.tolist()]
        marks.rows(lines["kept"][:, 1:], columns)
        for type in columns:
            marks.column(lines["entries"][:, E_VALUE], type)
            marks.column(lines["nodes"][:, N_VALUE], type)
        self.late.mark_words(marks, types)

    def restore(self, image: Image) -> None:
        parts = [(store, inside(name, image)) for name, store in self._stores.items()]
        if "arrived" not in image or image["arrived"].shape != (3,) or image["arrived"].dtype != np.int64:
            raise StaleImage("not an image of windows")
        self.late.check(image)
        for store, own in parts:
            store.check(own)
        try:
            self._restore_lines(image, parts)
        except (StaleImage, DataError):
            self.clear()
            raise

    def _restore_lines(self, image: Image, parts: list[tuple[LineStore, Image]]) -> None:
        for store, own in parts:
            store.restore(own)
        self._begun = False
        self._scalar[:] = 0
        self._scalar[[st.S_ARRIVED, st.S_BATCH, st.S_PROMISED]] = image["arrived"]
        if self._interned:
            self._k.replace(labels=self.dictionary.labels())
        self._resize()
        wk.rebuild_tables(self._k.address)
        if not is_consistent(self._k.address):
            raise StaleImage("inconsistent image of window state")
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
        if span.lateness:
            by = f"{by} lateness {span.lateness}"
        late = f", {self.late.count} late" if self.late.count else ""
        return f"window {size} {unit} every {span.every}{by}: {', '.join(map(one, self.aggs))}{keys}{late}"


def _longer(array: Codes, length: int) -> Codes:
    longer = np.empty((length, array.shape[1]), np.int64)
    longer[: len(array)] = array[:length]
    return longer
