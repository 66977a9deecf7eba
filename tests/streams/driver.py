"""Runs operators of stream networks over streams cut into epochs, undoing and restoring on the way.

What comes out must not depend on the cuts, nor on any of that; so tests compare whole sequences.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from whence.engine.core.operator import Batch, Operator, upwards
from whence.engine.relational.scan import Scan
from whence.engine.streams.stream import ANN, StreamOperator
from whence.model.types import BIGINT, Column, Schema, Type
from whence.plan.streams.model import with_at

Row = tuple[int, ...]


def schema(*types: Type) -> Schema:
    return Schema(tuple(Column(f"c{i}", t) for i, t in enumerate(types)))


def stream(*types: Type) -> Schema:
    return with_at(schema(*types))


PAIR = stream(BIGINT, BIGINT)


class Feed(Operator):
    """A base stream that the test plays."""

    primed = True

    def __init__(self, of: Schema = PAIR) -> None:
        self.schema, self.inputs = of, []
        self.rows: list[Row] = []  # all that came, with `$at`

    def contents(self) -> Batch:
        return self.batch(self.rows)

    def batch(self, rows: list[Row]) -> Batch:
        return Batch(np.array(rows, np.int64).reshape(len(rows), len(self.schema)), np.ones(len(rows), np.int64))


class Sets:
    """A tracer whose annotations are two columns, and that gives rows the pair of their tids: (source's, other's).

    `times` takes what is not zero of either, so a pair of rows of two sources shows both.
    """

    name, sources, grown, nbytes = "sets", ("a", "b"), False, 0

    def generate(self, source: str, tids: np.ndarray) -> np.ndarray:
        out = np.zeros((len(tids), 2), np.int64)
        out[:, self.sources.index(source)] = tids
        return out

    def blank(self, count: int) -> np.ndarray:
        return np.zeros((count, 2), np.int64)

    def times(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.maximum(a, b)

    def over(self, a: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def image(self, a: np.ndarray) -> dict[str, np.ndarray]:
        return {"pairs": a}

    def restore(self, image: dict[str, np.ndarray]) -> np.ndarray:
        return image["pairs"].copy()


def run(op: Operator, epochs: list[dict[Operator, Any]], seed: int = 0) -> list[tuple[Row, Any]]:
    """All rows out, each with what it carries. An epoch gives each feed its rows, each table its batch.

    Epochs are tried and undone at random, half of them stopped by an error on the way, and operators replaced by what
    their images restore."""
    luck, out = random.Random(seed), []
    order = [o for o in upwards([op]) if o.inputs]
    for given in epochs:
        if luck.random() < 0.5:
            broken, before = luck.choice([None, *order]), [_image(o) for o in order]
            tried = _epoch(order, given, op, broken)
            for o in reversed(order):
                if o in tried:
                    o.undo()
            for table in [o for o in given if isinstance(o, Scan)]:
                table.relation.undo()
            assert [_image(o) for o in order] == before
        batch = _epoch(order, given, op)[op]
        for o in order:
            o.commit()
        for source, rows in given.items():
            if isinstance(source, Feed):
                source.rows += rows
            else:
                source.arranged.commit()
        out += list(zip(map(tuple, batch.rows.tolist()), batch.ann.tolist(), strict=True))
        if luck.random() < 0.3:
            for o in order:
                reload(o)
    return out


def _image(op: Operator) -> dict[str, list]:
    return {name: array.tolist() for name, array in op.image().items()}


def reload(op: Operator) -> None:
    """The operator forgets everything and is restored from its image."""
    image = {name: array.copy() for name, array in op.image().items()}
    for array in image.values():
        array.flags.writeable = False
    if image and isinstance(op, StreamOperator):
        op.clear()
        op.restore(image)
        again = op.image()
        assert again.keys() == image.keys()
        for name, array in image.items():
            assert np.array_equal(again[name], array), name
        assert all(name.startswith(ANN) or array.dtype == np.int64 for name, array in image.items())


def _epoch(order: list[Operator], given: dict, op: Operator, broken: Operator | None = None) -> dict[Operator, Batch]:
    """The batches of all operators that ran."""
    outs: dict[Operator, Batch] = {}
    for source, rows in given.items():
        if isinstance(source, Feed):
            outs[source] = source.batch(rows)
        else:
            outs[source] = source.apply([rows])
            source.arranged.apply(outs[source])
    for o in order:
        outs[o] = o.apply([outs.get(i) or Batch.empty(len(i.schema)) for i in o.inputs])
        assert o.arranged is None
        if o is broken:
            return {k: v for k, v in outs.items() if k in order}
    return {k: v for k, v in outs.items() if k in order}


def cut(luck: random.Random, rows: dict[Feed, list[Row]], parts: int) -> list[dict[Operator, Any]]:
    """Rows of several feeds in epochs: those that arrived up to some moment are in epochs up to some number."""
    arrivals = sorted({row[-1] for feed in rows.values() for row in feed})
    ends = [*sorted(luck.sample(arrivals, k=min(parts, len(arrivals)))), 2**62]
    out, low = [], -1
    for end in ends:
        out.append({feed: [r for r in all_ if low < r[-1] <= end] for feed, all_ in rows.items()})
        low = end
    return out


def same_however_cut(make: Callable[[], tuple[Operator, list[Feed]]], rows: list[list[Row]], seed: int) -> list:
    """The sequence that comes out, after checking that it is the same in one epoch and in several random cuttings."""
    luck = random.Random(seed)
    answers = []
    for parts in (0, 3, 1000):
        op, feeds = make()
        answers.append(run(op, cut(luck, dict(zip(feeds, rows, strict=True)), parts), luck.random()))
    assert answers[0] == answers[1] == answers[2]
    return answers[0]
