"""What all operators of templates have in common: subscriptions come and go like rows, and only changes are told.

Law: the contents are the product of all inputs, P (the parameters) last, so the change of R·S·P is
dR·S·P + R'·dS·P + R'·S'·dP. An operator has indexes of its own and adds each delta to them when it has met the others,
so every part meets the state that the law wants. A subscription that comes in an epoch is told its answer as of the
epoch's end, one that leaves takes back its last answer, and changes are netted: each row of each subscription once.
State: indexes of data and subscriptions. They follow from the inputs, so images have none of it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from whence.engine.core.arrangement import arrangement
from whence.engine.core.batch import concat, consolidate
from whence.engine.core.image import Image
from whence.engine.core.key_lookup import among_rows
from whence.engine.core.operator import Batch, Operator
from whence.engine.core.ordered import Ordered, Rank
from whence.engine.expressions.evaluate import compile_expr
from whence.model.codes import Codes, Dictionary
from whence.model.types import Schema, Type
from whence.model.word_marks import WordMarks
from whence.plan.algebra.expressions import Col, Expr

_BUILT = {"built": np.ones(1, np.int64)}  # its image: that there is one says that it was primed


class Matching(Operator):
    """An operator whose last input is a table of parameters, whose first column is the subscription's id.

    A kind of matching says how deltas of data meet the subscriptions, how subscriptions change, and what some of them
    select; all in rows of an id and the columns of the data, of which `exprs` makes the output."""

    keeps_output = True

    def __init__(self, inputs: list[Operator], exprs: Sequence[Expr], schema: Schema, dictionary: Dictionary):
        self.inputs, self.schema, self.dictionary = inputs, schema, dictionary
        self.parameters = inputs[-1]
        self._columns = np.array([e.index for e in exprs if isinstance(e, Col)], np.int64)
        picks = len(self._columns) == len(exprs)
        self._exprs = None if picks else [compile_expr(e, dictionary) for e in exprs]
        self._version = dictionary.order_version
        self._told: list[Batch] = []  # deltas of parameters in this epoch
        arrangement(self.parameters)

    # -- what a kind of matching says --------------------------------------------------------------------------------

    is_read = False  # by other operators, not only by feeds
    is_labelled = False  # subscriptions are stored by labels of the dictionary, which may move

    def meet(self, deltas: list[Batch]) -> list[Batch]:
        """Add the deltas of all inputs but the parameters to the indexes; return what subscriptions gain by them."""
        raise TypeError(f"{type(self).__name__} does not say how rows meet subscriptions")

    def change(self, gone: Codes, come: Codes) -> None:
        """Remove and add subscriptions, given as rows of parameters."""
        raise TypeError(f"{type(self).__name__} does not say how subscriptions change")

    def select(self, rows: Codes) -> tuple[Codes, Batch]:
        """Return what subscriptions select now, and for each such row the position of its subscription."""
        raise TypeError(f"{type(self).__name__} does not say what subscriptions select")

    def forget(self) -> None:
        """Let go of all subscriptions."""
        raise TypeError(f"{type(self).__name__} does not say how subscriptions are forgotten")

    def indexes(self) -> list[Ordered]:
        """Return the indexes of data."""
        raise TypeError(f"{type(self).__name__} does not say which indexes it has")

    # -- epochs ------------------------------------------------------------------------------------------------------

    def apply(self, deltas: list[Batch]) -> Batch:
        deltas = [consolidate(delta) for delta in deltas]
        self._follow_labels(deltas[-1])
        parts = self.meet(deltas[:-1]) if any(len(d.ann) for d in deltas[:-1]) else []
        changed = deltas[-1]
        if len(changed.ann):
            self._told.append(changed)
            self.change(changed.rows[changed.ann < 0], changed.rows[changed.ann > 0])
            at, selected = self.select(changed.rows)
            parts.append(Batch(selected.rows, selected.ann * changed.ann[at]))
        return self._shown(concat(parts, self._width))

    @property
    def _width(self) -> int:
        """Columns of what `meet` and `select` return, of which the id is the first."""
        return 1 + sum(len(i.schema) for i in self.inputs[:-1])

    def _follow_labels(self, delta: Batch) -> None:
        """Store subscriptions anew if the labels have moved that they are stored by."""
        if self.is_labelled:
            self.dictionary.labels()
            if self._version != self.dictionary.order_version:
                self._store_without(delta)
        for index in self.indexes():
            index.refresh()

    def _store_without(self, delta: Batch) -> None:
        """Store the subscriptions that there were before a delta."""
        before = concat([self.parameters.contents(), Batch(delta.rows, -delta.ann)], len(self.parameters.schema))
        self._store(consolidate(before))

    def _store(self, parameters: Batch) -> None:
        self._version = self.dictionary.order_version
        self.forget()
        self.change(parameters.rows[:0], parameters.rows)

    def _shown(self, raw: Batch) -> Batch:
        """Return the output of rows of an id and the data."""
        if not len(raw.ann):
            return Batch.empty(len(self.schema))
        if self._exprs is None:
            unique = raw.unique and len(np.unique(self._columns)) == self._width
            return consolidate(Batch(np.ascontiguousarray(raw.rows[:, self._columns]), raw.ann, unique))
        raw = consolidate(raw)
        return consolidate(Batch(np.column_stack([compute(raw.rows) for compute in self._exprs]), raw.ann))

    def prime(self, contents: list[Batch]) -> Batch:
        """Index the inputs. Where only feeds read the output, which tell changes, its first contents are not made."""
        if self.is_labelled:
            self.dictionary.labels()
        self.forget()
        self.meet([consolidate(one) for one in contents[:-1]])
        self._store(contents[-1])
        self.commit()
        return self.recompute() if self.is_read else Batch.empty(len(self.schema))

    def commit(self) -> None:
        self._told.clear()
        for index in self.indexes():
            index.commit()

    def undo(self) -> None:
        if self.is_labelled and self._version != self.dictionary.order_version:
            self._store_without(concat(self._told, len(self.parameters.schema)))
        else:
            for delta in reversed(self._told):
                self.change(delta.rows[delta.ann > 0], delta.rows[delta.ann < 0])
        self._told.clear()
        for index in self.indexes():
            index.undo()

    # -- reading -----------------------------------------------------------------------------------------------------

    def answers(self, parameters: Codes) -> Batch:
        """Return what subscriptions select, given as rows of parameters."""
        for index in self.indexes():
            index.refresh()
        return self._shown(self.select(parameters)[1])

    def recompute(self) -> Batch:
        return self.answers(self.parameters.contents().rows)

    def find(self, cols: tuple[int, ...], keys: Codes) -> Batch:
        if 0 in cols:
            ids = np.unique(keys[:, cols.index(0)])[:, None]
            found = self.answers(self.parameters.find((0,), np.ascontiguousarray(ids)).rows)
        else:
            found = self.recompute()
        return among_rows(found, cols, keys)

    def count_of(self, rows: Codes) -> Codes:
        found = self.find(tuple(range(rows.shape[1])), rows)
        counts = dict(zip(map(tuple, found.rows.tolist()), found.ann.tolist(), strict=True))
        return np.array([counts.get(tuple(row), 0) for row in rows.tolist()], np.int64)

    def needs(self) -> list[tuple[Operator, tuple[int, ...]]]:
        return [(self.parameters, ())]

    # -- images ------------------------------------------------------------------------------------------------------

    def image(self) -> Image:
        return dict(_BUILT)

    def restore(self, image: Image) -> None:
        self.prime([one.contents() for one in self.inputs])

    def mark_words(self, marks: WordMarks) -> None:
        for index, data in zip(self.indexes(), self.inputs, strict=False):
            marks.rows(index.head(-1)[0], data.schema.types)


def index_of(types: Sequence[Type], ordered: Collection[int], dictionary: Dictionary) -> Ordered:
    """Return an index of rows by all their columns, of which some order like values, the others by their codes."""
    return Ordered([Rank(c, t) if c in ordered else Rank(c) for c, t in enumerate(types)], dictionary)
