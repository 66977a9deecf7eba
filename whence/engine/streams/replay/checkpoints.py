"""Checkpoints: the state of a network after some epochs, so that a replay need not start at the beginning.

A view that keeps covering intervals is asked for tids later; they are found by running an instrumented copy of its
network over the rows of the interval (`explain/retrieve/replay.py`). A copy may **start cold**, empty at the interval's
first row, if the operators then do what they did: a chain from one stream whose windows begin with that row. All other
networks start from the last checkpoint that is before the interval.

State: images of the operators between the view's sources and the view, without annotations; how far each source had
come, and how many results there were. One is taken when eight times as many rows have come as the operators hold, and
at least 4,096: so it costs a constant per row. At most 64 are kept (every second goes when there are more), and only
those after which the sources still keep every row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from whence.engine.core.image import Image, StaleImage, inside, nested
from whence.engine.core.operator import Operator
from whence.engine.relational.lateral import Lateral
from whence.engine.relational.project import Project
from whence.engine.relational.select import Select
from whence.engine.streams.generate import Generate
from whence.engine.streams.stream import ANN
from whence.model.codes import Codes
from whence.model.word_marks import WordMarks
from whence.plan.streams.model import FIRST

if TYPE_CHECKING:
    from whence.engine.streams.connection_point import ConnectionPoint

LEAST = 4096  # rows between two checkpoints
TIMES = 8  # and this many times what the operators hold
MOST = 64


@dataclass(frozen=True)
class Checkpoint:
    """The state after some epoch: the next tid of each generator's stream, the next of the view, the last arrival, and
    images by operator."""

    nexts: Codes
    result: int
    at: int = 0
    images: dict[int, Image] = field(default_factory=dict)


class Checkpoints:
    """The checkpoints of the network that ends with an operator."""

    def __init__(self, end: Operator) -> None:
        self.end, self.ops = end, [op for op in network(end) if not _passes(op)]
        self.generators = [op for op in self.ops if isinstance(op, Generate)]
        self.kept: list[Checkpoint] = []

    def begin(self) -> None:
        """Note that the network is about to read the first rows that its streams retain."""
        self.kept = [Checkpoint(np.array([k.first for k in self._inputs()], np.int64), 1)]

    def _inputs(self) -> list[ConnectionPoint]:
        """Return the connection points that the network begins at."""
        return [op.inputs[0].kept for op in self.generators]  # type: ignore[attr-defined]  # streams, and views of them

    @property
    def due(self) -> bool:
        """Whether it is time to take one; asked between epochs."""
        if not self.kept:
            return True
        came = sum(op.next for op in self.generators) - int(self.kept[-1].nexts.sum())
        return came >= LEAST and came >= TIMES * sum(op.state_rows for op in self.ops)

    def take(self, result: int) -> None:
        """Take one. `result` is the tid that the next result will get."""
        nexts = np.array([op.next for op in self.generators], np.int64)
        at = max((k.last_at for k in self._inputs()), default=0)
        images = {n: _without_annotations(image) for n, op in enumerate(self.ops) if (image := op.image())}
        self.kept.append(Checkpoint(nexts, result, at, images))
        self._thin()

    def _thin(self) -> None:
        first = np.array([k.first for k in self._inputs()], np.int64)
        self.kept = [c for c in self.kept if (c.nexts >= first).all()]
        if len(self.kept) > MOST:
            self.kept = [*self.kept[:-1:2], self.kept[-1]]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for c in self.kept for image in c.images.values() for array in image.values())

    def mark_words(self, marks: WordMarks) -> None:
        """Mark every word that the images may refer to: of what was, only the operators know the layout."""
        for checkpoint in self.kept:
            for image in checkpoint.images.values():
                for array in image.values():
                    marks.anything(array)

    def image(self) -> Image:
        found: Image = {
            "nexts": np.array([c.nexts for c in self.kept], np.int64).reshape(len(self.kept), len(self.generators)),
            "results": np.array([(c.result, c.at) for c in self.kept], np.int64).reshape(-1, 2),
        }
        for n, checkpoint in enumerate(self.kept):
            for op, image in checkpoint.images.items():
                found |= nested(f"{n}/{op}", image)
        return found

    def restore(self, image: Image) -> None:
        nexts, results = image.get("nexts"), image.get("results")
        if nexts is None or results is None or nexts.shape != (len(results), len(self.generators)):
            raise StaleImage("checkpoints of another network")
        self.kept = []
        for n, (result, at) in enumerate(results.tolist()):
            mine = inside(str(n), image)
            numbers = sorted({int(name.partition("/")[0]) for name in mine})
            images = {op: {k: v.copy() for k, v in inside(str(op), mine).items()} for op in numbers}
            self.kept.append(Checkpoint(nexts[n].copy(), result, at, images))


def checkpoints_of(end: Operator) -> Checkpoints | None:
    """Return checkpoints for a view over this operator, if it has covering intervals and a replay cannot start cold."""
    covering = end.tracer is not None and end.tracer.name == "covering"
    return Checkpoints(end) if covering and not starts_cold(end) else None


def network(end: Operator) -> list[Operator]:
    """Return the operators of an instrumented network, from its generators on, inputs first."""
    found: dict[int, Operator] = {}
    todo = [(end, False)]
    while todo:
        op, ready = todo.pop()
        if ready:
            found.setdefault(id(op), op)
        elif id(op) not in found:
            todo.append((op, True))
            if not isinstance(op, Generate):
                todo.extend((i, False) for i in reversed(op.inputs))
    return list(found.values())


def starts_cold(end: Operator) -> bool:
    """Tell whether a copy that begins empty with the first input of a result reproduces that result.

    All windows must open where they did: those of rows without groups, whose first row is the interval's; and an input
    must be one row, which a table function may make several of. Or there is one window, of a column, which is where its
    values are, and may be grouped. It must not overlap others: rows come in any order, so that of those that close
    together a later one may have begun earlier, and would be taken for the asked-for one when it is not whole.
    """
    from whence.engine.streams.windows.window import Window

    op, exactly, values, windows = end, False, False, 0
    while not isinstance(op, Generate):
        if len(op.inputs) != 1:
            return False
        if isinstance(op, Window):
            span, windows = op.span, windows + 1
            exactly, values = exactly or span.on is None, values or span.on is not None
            apart = span.size is None or (span.every is not None and span.every >= span.size)
            if span.by or (exactly and op.keys) or (values and (windows > 1 or not apart or span.origin == FIRST)):
                return False
        elif (isinstance(op, Lateral) and exactly) or not (isinstance(op, (Select, Project, Lateral)) or _passes(op)):
            return False
        op = op.inputs[0]
    return op.source is not None


def _passes(op: Operator) -> bool:
    """Tell whether an operator passes every row on unchanged: views in between."""
    from whence.engine.streams.replay.align import Align
    from whence.engine.streams.retain import Retain

    return isinstance(op, (Retain, Align))


def _without_annotations(image: Image) -> Image:
    return {name: array.copy() for name, array in image.items() if not name.startswith(ANN)}
