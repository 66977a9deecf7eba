"""Join: rows of any number of inputs, side by side, that agree where they must and pass the tests.

Law: multiplication distributes over addition, so the change of a product A·B·C is dA·B·C + A'·dB·C + A'·B'·dC, where a
prime marks the new state. Each input has a *path*: its delta is extended by one other input after the other, through
indexes on columns already known, so that a join of many inputs keeps no intermediate result. Arrangements show new
states; where the law wants an old one, what the delta adds is taken off again, and what cancels is dropped before the
next step: a row that changed is met as new, as taken off and as old, which would multiply from input to input. If an
input was empty before, so was the product, and the change is A'·B'·C': the path of that input alone. State: none of its
own, indexes on the inputs' arrangements. Cost: the deltas and what they match along their paths.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from whence.engine.core.arrangement import arranged_by, arrangement
from whence.engine.core.batch import concat, consolidate, take
from whence.engine.core.kernels.batches import join_batches
from whence.engine.core.kernels.index import join_rows, pair_rows
from whence.engine.core.operator import Batch, Operator
from whence.engine.core.relation import Index, Relation
from whence.engine.expressions.evaluate import compile_expr
from whence.model.budget import claim, reach
from whence.model.codes import Codes, Dictionary
from whence.model.errors import EvaluationError
from whence.plan.algebra.expressions import Col, Expr, columns_of, may_fail, substitute
from whence.plan.algebra.multiway_join import MultiwayJoin

Test = tuple[Callable[[Codes], Codes], bool]  # a compiled condition, and whether it may fail


@dataclass
class _Step:
    """Extend a path by an input whose columns `cols` equal those at positions `known` of the path's row."""

    input: int
    known: Codes
    cols: Codes
    relation: Relation
    index: Index
    tests: list[Test]  # conditions that can be decided from here on
    whole: Codes  # the positions of all columns, those of this input last
    taken: Codes  # the positions of those that are wanted: all, or after the last step those of the output


@dataclass
class _Path:
    """From a delta of one input to joined rows; `first` are tests of its own, `out` the positions of output columns."""

    first: list[Test]
    steps: list[_Step]
    out: Codes
    whole: Codes  # the positions of all columns, in the order of the inputs
    rearranges: bool = True  # `out` is taken from the rows of the last step


class Join(Operator):
    """Inner join of two or more inputs; without anything to agree on, every combination is tried."""

    def __init__(self, inputs: list[Operator], join: MultiwayJoin, dictionary: Dictionary):
        self.schema, self.inputs, self.join = join.schema, inputs, join
        self._start = np.cumsum([0, *(len(i.schema) for i in inputs)]).tolist()
        self._paths = [self._path(i, dictionary) for i in range(len(inputs))]
        self._relations = [arrangement(i) for i in inputs]
        self._tests = [(compile_expr(t, dictionary), may_fail(t)) for t in join.tests]

    def _path(self, first: int, dictionary: Dictionary) -> _Path:
        """Next comes the input that agrees with what is known in the most columns."""
        position = {c: c - self._start[first] for c in range(self._start[first], self._start[first + 1])}
        waiting = list(self.join.tests)
        path = _Path(self._ready(waiting, position, dictionary), [], *2 * (np.empty(0, np.int64),))
        left = [i for i in range(len(self.inputs)) if i != first]
        agreeing, classes = [0] * len(self.inputs), list(self.join.classes)
        while left:
            for members in [m for m in classes if any(c in position for c in m)]:
                classes.remove(members)
                for column in members:
                    agreeing[bisect_right(self._start, column) - 1] += 1
            chosen = max(left, key=agreeing.__getitem__)
            left.remove(chosen)
            pairs = self._agreeing(chosen, position)
            known, cols = tuple(k for k, _ in pairs), tuple(c for _, c in pairs)
            relation, index = arranged_by(self.inputs[chosen], cols)
            width, start = len(position), self._start[chosen]
            position |= {c: width + c - start for c in range(start, self._start[chosen + 1])}
            tests = self._ready(waiting, position, dictionary)
            whole = np.arange(len(position))
            keys = np.array(known, np.int64), np.array(cols, np.int64)
            path.steps.append(_Step(chosen, *keys, relation, index, tests, whole, whole))
        path.out = np.array([position[c] for c in self.join.out], np.int64)
        path.whole = np.array([position[c] for c in range(len(position))], np.int64)
        if path.steps and not path.steps[-1].tests:
            path.steps[-1].taken, path.rearranges = path.out, False
        return path

    def _agreeing(self, input: int, position: dict[int, int]) -> list[tuple[int, int]]:
        """(position of a known column, column of the input) pairs that must be equal, one a class, in column order."""
        start, end = self._start[input], self._start[input + 1]
        pairs = []
        for members in self.join.classes:
            known = [c for c in members if c in position]
            if known:
                pairs += [(position[known[0]], c - start) for c in members if start <= c < end]
        return sorted(pairs, key=lambda p: p[1])

    def _ready(self, waiting: list[Expr], position: dict[int, int], dictionary: Dictionary) -> list[Test]:
        """Tests that can be decided now; one that may fail waits for all inputs, or it could meet lone rows."""
        whole = len(position) == self._start[-1]
        found = [t for t in waiting if columns_of(t) <= position.keys() and (whole or not may_fail(t))]
        for test in found:
            waiting.remove(test)
        placed = [substitute(t, lambda c: Col(c.type, position[c.index])) for t in found]
        return [(compile_expr(t, dictionary), may_fail(t)) for t in placed]

    def needs(self) -> list[tuple[Operator, tuple[int, ...]]]:
        return [(self.inputs[s.input], tuple(s.cols.tolist())) for path in self._paths for s in path.steps]

    def apply(self, deltas: list[Batch]) -> Batch:
        changed = [(i, delta) for i, delta in enumerate(deltas) if len(delta.ann)]
        filled = [(i, delta) for i, delta in changed if self._relations[i].was_empty]
        if filled:
            first, delta = min(filled, key=lambda f: len(f[1].ann))
            return self._follow(first, delta, None)
        try:
            parts = [self._follow(i, delta, deltas) for i, delta in changed]
            return concat(parts, len(self.schema))
        except EvaluationError:
            if len(changed) == 1 and changed[0][1].unique:
                raise
            # Perhaps on a combination that comes and goes within the epoch: decide only when those are gone.
            parts = [self._follow(i, delta, deltas, decide=False) for i, delta in changed]
            whole = consolidate(concat(parts, self._start[-1]))
            passed = _passing(whole, self._tests)
            return Batch(np.ascontiguousarray(passed.rows[:, np.array(self.join.out, np.int64)]), passed.ann)

    def prime(self, contents: list[Batch]) -> Batch:
        smallest = min(range(len(contents)), key=lambda i: len(contents[i]))
        return self._follow(smallest, contents[smallest], None)

    def recompute(self) -> Batch:
        return self._follow(0, self.inputs[0].contents(), None)

    def _follow(self, first: int, delta: Batch, deltas: list[Batch] | None, decide: bool = True) -> Batch:
        """A delta's path. Inputs after it are read as they were before this epoch's deltas, if there are any.

        Without `decide`, only tests that cannot fail are made, and all columns are given."""
        path = self._paths[first]
        batch = _passing(delta, path.first, decide)
        for step in path.steps:
            if not len(batch.ann):
                break
            relation, index, cols = step.relation, step.index, step.taken if decide else step.whole
            if not len(step.known):  # every pair, which may be more than there is room for
                claim(len(batch.ann) * len(relation) * (len(cols) + 3) * 8)
                reach()
            longer = _joined(
                join_rows(
                    batch.rows, batch.ann, step.known,
                    relation.rows, relation.ann, index.cols, index.slots, index.nxt, cols,
                )
            )  # fmt: skip
            if deltas is not None and step.input > first and len(deltas[step.input].ann):
                new = deltas[step.input]
                at, ids = join_batches(batch.rows, step.known, new.rows, step.cols)
                if len(at):
                    added = _joined(pair_rows(batch.rows, batch.ann, at, new.rows, new.ann, ids, cols))
                    longer = concat([longer, Batch(added.rows, -added.ann)], longer.rows.shape[1])
                    longer = consolidate(longer)
            batch = _passing(longer, step.tests, decide)
        if not len(batch.ann):
            return Batch.empty(len(path.out if decide else path.whole))
        if not decide:
            return Batch(batch.rows.take(path.whole, axis=1), batch.ann)
        return Batch(batch.rows.take(path.out, axis=1), batch.ann) if path.rearranges else batch

    def describe(self) -> str:
        on = ", ".join(" = ".join(self._name(c) for c in members) for members in self.join.classes) or "every pair"
        tests = "".join(f" where {t}" for t in self.join.tests[:1]) + (" …" if len(self.join.tests) > 1 else "")
        return f"join of {len(self.inputs)} on {on}{tests}"

    def _name(self, column: int) -> str:
        owner = max(i for i, start in enumerate(self._start[:-1]) if start <= column)
        return f"{owner + 1}.{self.inputs[owner].schema.names[column - self._start[owner]]}"


def _joined(found: tuple[Codes, Codes, bool]) -> Batch:
    rows, ann, fits = found
    if not fits:
        raise EvaluationError("a row is there more often than can be counted (2^63 times)")
    return Batch(rows, ann)


def _passing(batch: Batch, tests: list[Test], decide: bool = True) -> Batch:
    """The rows for which the tests hold; without `decide`, those tests that cannot fail."""
    for test, risky in tests:
        if not len(batch.ann):
            break
        if decide or not risky:
            keep = (test(batch.rows) == 1).nonzero()[0]
            if len(keep) < len(batch.ann):
                batch = take(batch, keep)
    return batch
