"""What every operator is: batches in, one batch out, and state that can go back to the last commit.

The law of the whole engine: for every epoch, `output(inputs + deltas) = output(inputs) + apply(deltas)`.

An operator that needs random access to an input asks for that input's **arrangement**: one `Relation` of its output,
shared by all who need it. The dataflow adds an operator's delta to its arrangement right after it ran, so consumers see
the *new* state of every input next to the deltas; a law that needs the old state subtracts the delta.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from whence.annotate.tracing import Tracer
from whence.engine.core.epoch_context import EpochContext
from whence.engine.core.image import Image
from whence.model.codes import Codes
from whence.model.types import Schema
from whence.model.word_marks import WordMarks

if TYPE_CHECKING:
    from whence.engine.core.key_lookup import Lookups
    from whence.engine.core.relation import Relation


@dataclass(slots=True, eq=False)  # not frozen: that would triple the time to make one
class Batch:
    """The updates of one relation in one epoch: C-contiguous codes [n, columns] and the change of each row's
    annotation.

    A row may occur several times; `consolidate` (in `engine/core/batch.py`) makes each row unique and drops changes of
    zero; `unique` says that this is known to have been done.
    """

    rows: Codes
    ann: Codes
    unique: bool = False

    def __len__(self) -> int:
        return len(self.ann)

    @staticmethod
    @cache  # nothing can be written to it
    def empty(columns: int) -> Batch:
        return Batch(np.empty((0, columns), np.int64), np.empty(0, np.int64), True)


class Operator:
    """A node of the running plan. Subclasses keep their state private and say its size.

    In an epoch `apply` is called at most once, in topological order, with one batch per input (maybe empty). Then
    either `commit` or `undo`: undo restores the state before `apply`, exactly, whether `apply` returned or raised.
    """

    schema: Schema
    inputs: list[Operator]
    tracer: Tracer | None = None  # of an instrumented stream: what its annotations mean; else they are multiplicities
    arranged: Relation | None = None  # the relation of this operator's output, if someone needs it
    keeps_output: bool = False  # its own state can be read row by row: a view of it needs no relation
    watch: Callable[[str], None] | None = None  # told how far a long first run has come
    primed: bool = False  # has seen the contents of its inputs, or was restored
    fingerprint: str = ""  # what it computes, in a name that is the same in every process; set by who builds it
    changed: bool = True  # since whoever keeps images last cleared it
    dropped: bool = False  # no view needs it any more; its state stands still
    delay: int = 0  # stages that its consumers come after it, see engine/core/dataflow.py
    stage: int = 0
    context: EpochContext = EpochContext()  # of the dataflow it is installed in
    linear: bool = False  # keeps nothing, and maps its input's batch as it is: may run as a part of what reads it
    scanned: frozenset[tuple[int, ...]] = frozenset()  # columns by which its own state was looked up, row by row
    outside: str = ""  # the table of rows from outside that it asks for
    replanned: bool = False  # reads its inputs by other columns since the last sweep
    transient: bool = False  # only views of subscriptions need it: other views never share it, and images may lack it
    runs: int = 0  # since it was built; with the seconds, and the rows of its batches
    seconds: float = 0.0
    rows_in: int = 0
    rows_out: int = 0
    probes: int = 0  # rows that were looked up in its inputs
    follows: bool = False  # runs exactly when an input ran (not: when an input's delta is not empty)

    @property
    def is_due(self) -> bool:
        """Whether it has something to give although no input changes: pending rows that are to be released."""
        return False

    def apply(self, deltas: list[Batch]) -> Batch:
        raise TypeError(f"{type(self).__name__} does not say how it applies")

    def prime(self, contents: list[Batch]) -> Batch:
        """The first run, over all rows of the inputs (whose arrangements hold them already): all rows of the output."""
        return self.apply(contents)

    def recompute(self) -> Batch:
        """All rows of the output, from this operator's state or from its inputs' contents; changes nothing."""
        raise TypeError(f"{type(self).__name__} does not say its contents")

    @property
    def recalls(self) -> bool:
        """Return whether `recompute` works between any two epochs, whatever other views come and go.

        It depends on the plan alone, not on what happens to be arranged: rows that were shipped are gone, unless this
        operator itself needs them arranged."""
        needed = [target for target, _ in self.needs()]
        return all(any(i is target for target in needed) or i.recalls for i in self.inputs)

    @property
    def is_readable(self) -> bool:
        """Return whether all rows of the output can be had now: from a relation, or by `recompute`."""
        return self.arranged is not None or self.recalls or all(i.is_readable for i in self.inputs)

    def contents(self) -> Batch:
        """All rows of the output."""
        return self.arranged.scan() if self.arranged is not None else self.recompute()

    def count_of(self, rows: Codes) -> Codes:
        """How often each of these rows is in the output; asked of views only, which are arranged or keep theirs."""
        assert self.arranged is not None
        ids = self.arranged.lookup(rows)
        return np.where(ids >= 0, self.arranged.ann[ids], 0)

    def find(self, cols: tuple[int, ...], keys: Codes) -> Batch:
        """The rows of the output whose `cols` equal one of the distinct `keys`; asked of views only, as `count_of`."""
        assert self.arranged is not None
        return self.arranged.find(cols, keys)

    @property
    def own_lookups(self) -> Lookups | None:
        """The lookups in its own state, if it can be indexed."""
        return None

    @property
    def size(self) -> int:
        """Rows of the output, copies counted; asked of views only."""
        return self.arranged.total if self.arranged is not None else int(self.contents().ann.sum())

    def needs(self) -> list[tuple[Operator, tuple[int, ...]]]:
        """The arrangements of inputs, and the columns they are indexed by, that exist for this operator's sake."""
        return []

    def range_needs(self) -> list[tuple[Operator, tuple[int, ...]]]:
        """The same of ordered indexes, by columns of which the last is ordered."""
        return []

    def commit(self) -> None:
        """Forget what undo would need."""

    def undo(self) -> None:
        """Return to the state before this epoch's apply."""

    def image(self) -> Image:
        """Its own state between two epochs, as views of live memory; empty for an operator without any."""
        return {}

    def restore(self, image: Image) -> None:
        """Take the state from an image, as if primed and committed; StaleImage, and no change, if it does not fit."""

    def mark_words(self, marks: WordMarks) -> None:
        """Mark the words that its own state refers to, between two epochs: whatever it would need to answer every
        epoch to come. An operator that does not say which these are keeps all that its image may refer to."""
        if any(type.needs_dictionary for op in (self, *self.inputs) for type in op.schema.types):
            for array in self.image().values():
                marks.anything(array)

    @property
    def state_rows(self) -> int:
        return 0

    @property
    def state_bytes(self) -> int:
        return 0

    @property
    def annotation(self) -> str:
        """Say what annotates the output: counts or a tracer's provenance; inside recursion the policy."""
        return "counting" if self.tracer is None else self.tracer.name

    @property
    def only_adds(self) -> bool:
        """Whether its batches take no row away, ever: a stream as a relation, and what maps one row by row."""
        return self.linear and all(one.only_adds for one in self.inputs)

    def describe(self) -> str:
        """One line for EXPLAIN's physical plan."""
        return type(self).__name__.lower()

    def notes(self) -> tuple[str, ...]:
        """Further lines for EXPLAIN: what was decided by the rows that are there."""
        return ()


def upwards(ops: list[Operator]) -> list[Operator]:
    """Return the operators and all they read, inputs first."""
    out: list[Operator] = []
    seen: set[int] = set()
    stack: list[tuple[Operator, bool]] = [(op, False) for op in reversed(ops)]
    while stack:
        op, ready = stack.pop()
        if ready:
            out.append(op)
        elif id(op) not in seen:
            seen.add(id(op))
            stack.append((op, True))
            stack.extend((i, False) for i in reversed(op.inputs))
    return out
