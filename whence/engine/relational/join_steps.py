"""Steps of a join's paths: how a batch of rows is extended by one input, through a hash index or an ordered one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from whence.engine.core.batch import take
from whence.engine.core.kernels.index import join_rows, pair_rows
from whence.engine.core.operator import Batch
from whence.engine.core.range_index import RangeIndex
from whence.engine.core.relation import Index, Relation
from whence.model.budget import claim, reach
from whence.model.codes import NULL, Codes
from whence.model.errors import EvaluationError

_HIGHEST = 2**63 - 1

Test = tuple[Callable[[Codes], Codes], bool]  # a compiled condition, and whether it may fail


class StepBound(NamedTuple):
    """A bound of a column: what gives it from the path's rows, what is added to that, and on which side it is."""

    of: Callable[[Codes], Codes]
    more: int
    upper: bool


@dataclass
class JoinStep:
    """Extend a path by an input whose columns `cols` equal those at positions `known` of the path's row."""

    input: int
    known: Codes
    cols: Codes
    relation: Relation
    index: Index | None
    tests: list[Test]  # conditions that can be decided from here on
    whole: Codes  # the positions of all columns, those of this input last
    taken: Codes  # the positions of those that are wanted: all, or after the last step those of the output
    range: RangeIndex | None = None  # looked up instead, by the bounds of a column
    bounds: list[StepBound] = field(default_factory=list)
    probes: int = 0  # rows that came to this step, and the pairs that it made of them
    matches: int = 0
    passed: int = 0  # of these, those that the tests let through


@dataclass
class JoinPath:
    """From a delta of one input to joined rows; `first` are tests of its own, `out` the positions of output columns."""

    first: list[Test]
    steps: list[JoinStep]
    out: Codes
    whole: Codes  # the positions of all columns, in the order of the inputs
    rearranges: bool = True  # `out` is taken from the rows of the last step


def extended(batch: Batch, step: JoinStep, cols: Codes) -> Batch:
    """Return these columns of the pairs of a path's rows and the rows of the next input that they agree with."""
    relation, index = step.relation, step.index
    if index is None:
        at, ids = _between(batch.rows, step)
        return joined_rows(pair_rows(batch.rows, batch.ann, at, relation.rows, relation.ann, ids, cols))
    if not len(step.known):  # every pair, which may be more than there is room for
        claim(len(batch.ann) * len(relation) * (len(cols) + 3) * 8)
        reach()
    return joined_rows(
        join_rows(
            batch.rows, batch.ann, step.known,
            relation.rows, relation.ann, index.cols, index.slots, index.nxt, cols,
        )
    )  # fmt: skip


def joined_rows(found: tuple[Codes, Codes, bool]) -> Batch:
    """Return joined rows as a batch, if their multiplicities could be counted."""
    rows, ann, fits = found
    if not fits:
        raise EvaluationError("a row is there more often than can be counted (2^63 times)")
    return Batch(rows, ann)


def _between(rows: Codes, step: JoinStep) -> tuple[Codes, Codes]:
    """(position in `rows`, row id) of the rows that agree with a path's rows and are within the bounds of a step."""
    assert step.range is not None
    keys, high = np.empty((len(rows), len(step.known) + 1), np.int64), np.full(len(rows), _HIGHEST)
    keys[:, :-1] = rows[:, step.known]
    low = keys[:, -1]
    low[:] = -_HIGHEST
    lost = np.zeros(len(rows), bool)
    for bound in step.bounds:
        limit = bound.of(rows)
        lost |= limit == NULL
        if bound.more:
            limit = np.clip(limit, -_HIGHEST // 2, _HIGHEST // 2) + bound.more
        if bound.upper:
            np.minimum(high, limit, out=high)
        else:
            np.maximum(low, limit, out=low)
    low[lost] = NULL
    return step.range.between(keys, high)


def passing_rows(batch: Batch, tests: list[Test], decide: bool = True) -> Batch:
    """The rows for which the tests hold; without `decide`, those tests that cannot fail."""
    for test, risky in tests:
        if not len(batch.ann):
            break
        if decide or not risky:
            keep = (test(batch.rows) == 1).nonzero()[0]
            if len(keep) < len(batch.ann):
                batch = take(batch, keep)
    return batch
