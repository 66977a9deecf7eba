"""Aggregate: one row a group, kept up to date without looking at the group's other rows.

Law: COUNT and SUM are linear, so a group's accumulators move by the delta's own sums; AVG is a function of both. MIN
and MAX are not: an ordered index of (group, value) gives the next one when the best leaves; where rows never go, over a
stream, the best so far is enough. So is the FIRST and the LAST row there, by a column and by arrival: in whatever order
a delta has its rows. DISTINCT counts each (group, value) and passes on only its coming and going. A group's row changes
from f(old accumulators) to f(new ones). Accumulators are whole numbers, those of DOUBLE too (`kernels/float_sum.py`):
the order of a delta's rows does not matter, and counts and sums may be out of range on the way. State: a relation of
groups with accumulators, plus the index or the counts where needed. Cost: O(1) a row of the delta, O(log n) for MIN and
MAX with an index, and two rows out for each group whose values changed; all groups once when sums of DOUBLE need more
words.
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.arrangement import find_rows
from whence.engine.core.batch import consolidate
from whence.engine.core.image import Image, StaleImage, inside, nested
from whence.engine.core.kernels.batches import add_up
from whence.engine.core.kernels.relation import IDS, NEW, settle
from whence.engine.core.key_lookup import in_order
from whence.engine.core.operator import Batch, Operator
from whence.engine.core.ordered import Ordered, Rank
from whence.engine.core.relation import Relation
from whence.engine.relational.kernels import aggregate as ak
from whence.engine.relational.kernels.float_sum import find_range, limbs_for, widen
from whence.model import wide
from whence.model.codes import NULL, Codes, Dictionary, decode_value
from whence.model.errors import EvaluationError
from whence.model.types import BIGINT, Kind, Schema, Type
from whence.model.word_marks import WordMarks
from whence.plan.algebra.logical import Agg


class Aggregate(Operator):
    """GROUP BY `keys` with aggregates; without keys the one group is always there."""

    keeps_output = True

    def __init__(
        self, input: Operator, keys: tuple[int, ...], aggs: tuple[Agg, ...], schema: Schema, dictionary: Dictionary
    ):
        self.schema, self.inputs = schema, [input]
        self.keys, self.aggs, self.dictionary = keys, aggs, dictionary
        self._key_cols = np.array(keys, np.int64)
        specs = []
        for number, agg in enumerate(aggs):
            arg = input.schema.types[agg.column] if agg.column is not None else None
            kept, shown, bound = _kind(agg, arg, schema.types[len(keys) + number])
            second = agg.order[-1] if kept in (ak.FIRST, ak.LAST) else 0
            specs.append([kept, -1 if agg.column is None else agg.column, 0, shown, bound, number, second, 0])
        self._specs = np.array(specs, np.int64).reshape(len(aggs), 8)
        distinct = [n for n, a in enumerate(aggs) if a.distinct and a.function not in ("min", "max")]
        self._direct_aggs = [n for n in range(len(aggs)) if n not in distinct]
        self._distinct = [(n, aggs[n].column, Relation(2)) for n in distinct]
        best = [n for n in self._direct_aggs if aggs[n].function in ("min", "max")]
        running = [n for n in best if input.only_adds and not self._argument(n).needs_dictionary]
        for number in running:
            self._specs[number, 0] = ak.MOST if aggs[number].function == "max" else ak.LEAST
        self._best = [(n, self._order(n)) for n in best if n not in running]
        self._doubles = np.flatnonzero(self._specs[:, 0] == ak.FLOAT)
        self._wide = np.flatnonzero(np.isin(self._specs[:, 3], (ak.SHOW_INT_WIDE, ak.SHOW_WIDE)))
        self._specs[self._wide, 6] = len(schema) + np.arange(len(self._wide))
        taken = self._specs[self._specs[:, 0] == ak.WIDE, 1]
        self._parted = np.unique(taken)  # columns of wide decimals that are added up, behind the others as two words
        at = np.searchsorted(self._parted, taken)
        self._specs[self._specs[:, 0] == ak.WIDE, 1] = len(input.schema) + 2 * at
        self._width = len(schema) + len(self._wide)
        self._where, self._bits = np.zeros(2, np.int64), np.empty(2, np.int64)  # what kernels say beside their rows
        self.groups = Relation(len(keys), self._lay_out())
        if not keys:
            always = np.empty((1, 0), np.int64)
            ids, _, _ = self.groups.apply(Batch(always, np.ones(1, np.int64), True))
            for number in best:
                self.groups.acc[ids, self._specs[number, 2]] = NULL
            self.groups.commit()

    def _lay_out(self) -> int:
        """Give each aggregate its columns of the accumulators; return how many there are."""
        offset = 0
        for spec in self._specs:
            spec[2] = offset
            offset += ak.WIDTH[int(spec[0])] + int(spec[7])
        self._direct = np.ascontiguousarray(self._specs[self._direct_aggs])
        self._words = [(n, *self._specs[n, [1, 6, 7]].tolist()) for n in self._doubles.tolist()]
        return offset

    def _make_room(self, rows: Codes) -> None:
        """Widen the sums of DOUBLE where these rows have values that need more words."""
        words = None
        for number, column, low, limbs in self._words:
            find_range(rows, column, self._bits)
            wanted = limbs_for(low, limbs, *self._bits.tolist())
            if wanted != (low, limbs):
                words = self._specs[:, 6:].copy() if words is None else words
                words[number] = wanted
        if words is not None:
            self._widen(words)

    def _widen(self, words: Codes) -> None:
        """Lay the accumulators out with more words for the sums of DOUBLE."""
        before = self._specs.copy()
        self._specs[:, 6:] = words
        width = self._lay_out()

        def moved(acc: Codes) -> Codes:
            out = np.zeros((len(acc), width), np.int64)
            for old, new in zip(before.tolist(), self._specs.tolist(), strict=True):
                at, to, fixed = old[2], new[2], ak.WIDTH[new[0]]
                out[:, to : to + fixed] = acc[:, at : at + fixed]
                at, to = at + fixed, to + fixed
                widen(acc[:, at : at + old[7]], old[6], out[:, to : to + new[7]], new[6])
            return out

        self.groups.lay_out(moved)

    def _order(self, number: int) -> Ordered:
        is_max = self.aggs[number].function == "max"
        return Ordered([Rank(0), Rank(1, self._argument(number), is_max, not is_max)], self.dictionary)

    def _argument(self, number: int) -> Type:
        """The type of the column that an aggregate is of."""
        column = self.aggs[number].column
        assert column is not None
        return self.inputs[0].schema.types[column]

    def apply(self, deltas: list[Batch]) -> Batch:
        (delta,) = deltas
        mult, groups, specs = delta.ann, self.groups, self._specs
        if len(self._doubles):
            self._make_room(delta.rows)
        rows, n = self._with_parts(delta.rows), len(mult)
        groups.make_room(n)
        keys, gids = np.empty((n, len(self.keys)), np.int64), np.empty(n, np.int64)
        change, before = np.empty((5, n + 1), np.int64), np.empty((n, groups.acc.shape[1]), np.int64)
        out, ann = np.empty((2 * n, self._width), np.int64), np.empty(2 * n, np.int64)
        entering = groups.address, self._direct, specs, self._key_cols, rows, mult, keys, change, before, gids
        groups.log(keys, change, before)
        if not self._distinct and not self._best:
            many = ak.update(*entering, out, ann, self._where)
            return self._shown(keys, out, ann, many)
        address, direct, _, *rest = entering
        ak.enter(address, direct, *rest)
        for aggregate, column, pairs in self._distinct:
            self._count_distinct(aggregate, column, pairs, delta.rows, mult, gids)
        ids = change[IDS, 1 : 1 + int(change[4, 0])]
        for aggregate, ordered in self._best:
            self._keep_best(specs[aggregate], ordered, delta.rows, mult, gids, ids)
        many = ak.emit(address, specs, keys, change, before, out, ann, self._where)
        shown = self._shown(keys, out, ann, many)
        settle(address, change)
        return shown

    def prime(self, contents: list[Batch]) -> Batch:
        if self.keys:
            return self.apply(contents)
        start, delta = self.recompute(), self.apply(contents)
        both = Batch(np.concatenate((start.rows, delta.rows)), np.concatenate((start.ann, delta.ann)))
        return consolidate(both)

    def recompute(self) -> Batch:
        return self._rows_of(self.groups.ids())

    def count_of(self, rows: Codes) -> Codes:
        ids = self.groups.lookup(np.ascontiguousarray(rows[:, : len(self.keys)]))
        found = np.flatnonzero(ids >= 0)
        out = np.zeros(len(rows), np.int64)
        out[found] = (self._rows_of(ids[found]).rows == rows[found]).all(axis=1)
        return out

    def find(self, cols: tuple[int, ...], keys: Codes) -> Batch:
        if self.arranged is not None or not set(range(len(self.keys))).issubset(cols):
            return find_rows(self, cols, keys)
        cols, keys = in_order(cols, keys)
        ids = self.groups.lookup(np.ascontiguousarray(keys[:, : len(self.keys)]))
        there = np.flatnonzero(ids >= 0)
        found = self._rows_of(ids[there])
        hit = (found.rows[:, cols] == keys[there]).all(axis=1)
        return Batch(found.rows[hit], found.ann[hit], True)

    @property
    def size(self) -> int:
        return len(self.groups)

    def _rows_of(self, ids: Codes) -> Batch:
        """The rows of groups."""
        groups, n = self.groups, len(ids)
        keys, change = groups.rows[ids], np.zeros((5, n + 1), np.int64)
        change[4, 0], change[IDS, 1:], change[NEW, 1:] = n, ids, 1
        out, ann = np.empty((2 * n, self._width), np.int64), np.empty(2 * n, np.int64)
        many = ak.emit(groups.address, self._specs, keys, change, groups.acc, out, ann, self._where)
        return self._shown(keys, out, ann, many)

    def _shown(self, keys: Codes, rows: Codes, ann: Codes, n: int) -> Batch:
        """What was emitted: the rows that groups had, withdrawn, and those that they have now."""
        if n < 0:
            raise self._too_large(~n, keys[self._where[0]])
        if n < len(ann):
            rows, ann = rows[:n], ann[:n]
        if not len(self._wide):
            return Batch(rows, ann, True)
        for number in self._wide.tolist() if self._where[1] else ():
            column = rows[:, len(self.keys) + number]
            column[:], bad = wide.from_parts(rows[:, self._specs[number, 6]], column, self.dictionary)
            if bad >= 0:
                raise self._too_large(number, rows[bad])
        return Batch(np.ascontiguousarray(rows[:, : len(self.schema)]), ann, True)

    def _with_parts(self, rows: Codes) -> Codes:
        """The rows, behind them the words of wide decimals that are added up."""
        if not len(self._parted):
            return rows
        words = [word for c in self._parted for word in wide.parts(np.ascontiguousarray(rows[:, c]), self.dictionary)]
        return np.column_stack((rows, *words))

    @property
    def recalls(self) -> bool:
        return True

    def _count_distinct(
        self, aggregate: int, column: int | None, pairs: Relation, rows: Codes, mult: Codes, gids: Codes
    ) -> None:
        values = rows[:, column]
        known = values != NULL
        both = np.column_stack((gids[known], values[known]))
        changed, by = add_up(np.ascontiguousarray(both), mult[known])
        if not len(by):
            return
        _, old, new = pairs.apply(Batch(changed, by, True))
        flips = (new > 0).astype(np.int64) - (old > 0)
        spec = self._specs[aggregate : aggregate + 1].copy()
        spec[0, 1] = 1  # over rows of (group, value)
        if spec[0, 0] == ak.WIDE:
            changed = np.column_stack((changed, *wide.parts(np.ascontiguousarray(changed[:, 1]), self.dictionary)))
            changed = np.ascontiguousarray(changed[:, [0, 2, 3]])
        ak.accumulate(self.groups.acc, spec, changed, flips, np.ascontiguousarray(changed[:, 0]))

    def _keep_best(self, spec: Codes, ordered: Ordered, rows: Codes, mult: Codes, gids: Codes, ids: Codes) -> None:
        values = rows[:, spec[1]]
        known = values != NULL
        if known.any():
            ordered.add(np.column_stack((gids[known], values[known])), mult[known])
        lines = ordered.first(ids.reshape(-1, 1))
        best = np.full(len(ids), NULL, np.int64)
        there = lines >= 0
        best[there] = ordered.column_at(lines[there], 1)
        self.groups.acc[ids, spec[2]] = best

    def _too_large(self, number: int, key: Codes) -> EvaluationError:
        agg, type = self.aggs[number], self.schema.types[len(self.keys) + number]
        names, types = self.schema.names, self.schema.types
        group = ", ".join(
            f"{names[c]} = {decode_value(int(key[c]), types[c], self.dictionary)!r}" for c in range(len(self.keys))
        )
        place = f" for the group {group}" if group else ""
        return EvaluationError(f"{agg.function.upper()} does not fit {type}{place}; cast its argument to DOUBLE")

    def commit(self) -> None:
        self.groups.commit()
        for _, _, pairs in self._distinct:
            pairs.commit()
        for _, ordered in self._best:
            ordered.commit()

    def undo(self) -> None:
        for _, _, pairs in self._distinct:
            pairs.undo()
        for _, ordered in self._best:
            ordered.undo()
        self.groups.undo()

    def _parts(self) -> dict[str, Relation | Ordered]:
        distinct = {f"distinct{n}": pairs for n, (_, _, pairs) in enumerate(self._distinct)}
        return {"groups": self.groups, **distinct, **{f"best{n}": order for n, (_, order) in enumerate(self._best)}}

    def image(self) -> Image:
        parts = {
            key: array for name, part in self._parts().items() for key, array in nested(name, part.image()).items()
        }
        return parts | {"words": self._specs[self._doubles, 6:]} if len(self._doubles) else parts

    def restore(self, image: Image) -> None:
        specs, acc = self._specs.copy(), self.groups.acc
        try:
            if len(self._doubles):
                self._take_words(image)
            parts = [(part, inside(name, image)) for name, part in self._parts().items()]
            for part, own in parts:
                part.check(own)
        except StaleImage:
            self._specs = specs
            self._lay_out()
            self.groups.lay_out(lambda _: acc)
            raise
        for part, own in parts:
            part.restore(own)

    def _take_words(self, image: Image) -> None:
        """Lay the accumulators, which are about to be replaced, out as in an image."""
        words = image.get("words")
        if words is None or words.shape != (len(self._doubles), 2):
            raise StaleImage("sums of DOUBLE without their widths")
        self._specs[self._doubles, 6:] = words
        width = self._lay_out()
        self.groups.lay_out(lambda acc: np.zeros((len(acc), width), np.int64))

    def mark_words(self, marks: WordMarks) -> None:
        """Mark groups, counted values and ordered ones, of which accumulators have the best; sums are numbers."""
        types = self.inputs[0].schema.types
        self.groups.mark_words(marks, [types[key] for key in self.keys])
        for _, column, pairs in self._distinct:
            if column is not None:
                pairs.mark_words(marks, (BIGINT, types[column]))
        for _, ordered in self._best:
            ordered.mark_words(marks)
        for kept, column, offset in self._specs[:, :3].tolist():
            if kept in (ak.FIRST, ak.LAST) and types[column].needs_dictionary:
                marks.column(self.groups.acc[self.groups.ids(), offset + 1], types[column])

    @property
    def state_rows(self) -> int:
        return len(self.groups) + sum(len(p) for _, _, p in self._distinct) + sum(len(o) for _, o in self._best)

    @property
    def state_bytes(self) -> int:
        side = sum(p.nbytes for _, _, p in self._distinct) + sum(o.nbytes for _, o in self._best)
        return self.groups.nbytes + side

    def describe(self) -> str:
        parts = [
            f"{a.function}({'distinct ' if a.distinct else ''}{'*' if a.column is None else f'#{a.column}'})"
            for a in self.aggs
        ]
        by = ", ".join(f"#{k}" for k in self.keys)
        return f"aggregate {', '.join(parts)}" + (f" by {by}" if by else "")


def _kind(agg: Agg, arg: Type | None, result: Type) -> tuple[int, int, int]:
    """What to keep, what to show, and the bound or the scale."""
    if agg.function == "count":
        return ak.COUNT, ak.SHOW_COUNT, 0
    if agg.function in ("min", "max"):
        return ak.BEST, ak.SHOW_BEST, 0
    if agg.function in ("first", "last"):
        return ak.FIRST if agg.function == "first" else ak.LAST, ak.SHOW_PLACED, agg.order[0]
    assert arg is not None
    if arg.kind is Kind.DOUBLE:
        return ak.FLOAT, ak.SHOW_FLOAT if agg.function == "sum" else ak.SHOW_FLOAT_AVG, 0
    if agg.function == "avg":
        return (ak.WIDE, ak.SHOW_WIDE_AVG, arg.scale) if arg.is_wide else (ak.INT, ak.SHOW_INT_AVG, arg.scale)
    if result.kind is Kind.DOUBLE:
        raise EvaluationError("SUM of exact numbers as DOUBLE is not kept; cast the argument")
    if result.is_wide:
        return (ak.WIDE, ak.SHOW_WIDE, 0) if arg.is_wide else (ak.INT, ak.SHOW_INT_WIDE, 0)
    bound = {Kind.INTEGER: 2**31 - 1, Kind.DECIMAL: 10**result.precision - 1}.get(result.kind, 2**63 - 1)
    return ak.INT, ak.SHOW_INT, bound
