"""Steps: everything that happens to a partition, in words that can be sent and said again.

The law: a partition that is given the same steps in the same order is in the same state, wherever it lives. A *run* (an
epoch, or a change of the catalog) is some steps to each partition, one a superstep; it is kept or taken back whole. A
token names a step for ever: a partition whose last token stands in the driver's history has been through all of that
history up to there.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from whence.engine.core.epoch import InputSection
from whence.engine.core.operator import Batch
from whence.engine.exchange.messages import PartitionMessage
from whence.engine.streams.promise import Promise
from whence.model.codes import Codes
from whence.plan.algebra.program import Table, View
from whence.plan.partitions.distribute import Distributed
from whence.runtime.writing.tables import Early, Unmatched
from whence.state.disk import storage_errors
from whence.state.manifest import EXCHANGE, Link

_BULKY = 1 << 20  # bytes that are passed on as a file


@dataclass(frozen=True)
class PartitionPlan:
    """What a partition must know to build its share: the tables, the pieces, and since when each piece has been."""

    version: int
    tables: Mapping[str, Table]
    distributed: Distributed
    since: Mapping[tuple[str, ...], int]
    views: Mapping[str, View] = field(default_factory=dict)  # as they are planned


Plans = Callable[[int], PartitionPlan]  # by their versions


@dataclass(frozen=True)
class SpilledBatch:
    """A batch in a file of the exchange."""

    file: str
    rows: int
    bytes: int

    def __len__(self) -> int:
        return self.rows


Payload = Batch | SpilledBatch


@dataclass(frozen=True)
class PartitionCommand:
    """What one partition does in one superstep.

    In the first stage: the exact changes of tables, or rows as sources gave them (`raw`, then what is due at `time`
    leaves, too), or a new plan. In later ones: what other partitions sent.
    """

    token: int
    run: int
    stage: int
    time: int = 0
    deltas: Mapping[str, Batch] = field(default_factory=dict)
    refreshed: Mapping[str, Codes] = field(default_factory=dict)
    raw: Mapping[str, Sequence[InputSection]] | None = None
    early: Mapping[str, Early] = field(default_factory=dict)  # deletions in `raw` whose rows are not there
    deadlines: Mapping[str, Codes] = field(default_factory=dict)  # of the rows of deltas, where they are known
    received: Sequence[tuple[str, Payload]] = ()
    plan: int | None = None  # its version
    epoch: int = 0  # that it is part of, if it is of one
    promise: Promise | None = None  # of streams, to every partition


@dataclass
class Reply:
    """What came of a step."""

    messages: Sequence[PartitionMessage]
    waits: int | None  # the next stage that it can run by itself
    changed: dict[str, int]  # tables and views, and how many rows of theirs changed
    changes: Mapping[str, Payload]  # those that were asked for
    expired: dict[str, int] = field(default_factory=dict)
    missing: dict[str, Unmatched] = field(default_factory=dict)  # deletions that found nothing
    owed: dict[str, int] = field(default_factory=dict)  # how many rows each table owes that owes any
    deadlines: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    seconds: float = 0.0


def spill(folder: Path, name: str, batch: Batch) -> Payload:
    """The batch, or, if it is bulky, where it has been written to. Nothing here has to outlive the driver."""
    if batch.rows.nbytes < _BULKY:
        return batch
    path = folder / EXCHANGE / name
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with open(unfinished, "wb") as file:
            np.save(file, batch.rows)
            np.save(file, batch.ann)
        os.replace(unfinished, path)
    except OSError:  # a full disk, as a rule: the slow way is still open
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        return batch
    return SpilledBatch(path.name, len(batch.ann), batch.rows.nbytes + batch.ann.nbytes)


def fetch(folder: Path, payload: Payload) -> Batch:
    """A batch, wherever it is."""
    if isinstance(payload, Batch):
        return payload
    with open(folder / EXCHANGE / payload.file, "rb") as file:
        return Batch(np.load(file), np.load(file), True)


@dataclass
class CommandLog:
    """What a partition has been through since its image, as the driver knows it; the steps themselves in a file.

    `tokens` and `offsets` go together: a step's name, and where it is in the file.
    """

    base: int = 0  # the token of the image
    links: tuple[Link, ...] = ()
    plan: int | None = None  # the version of the one by which the image was made
    file: str = ""
    tokens: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    tail: list[PartitionCommand] = field(default_factory=list)  # the last steps, if they could not be written

    @property
    def last(self) -> int:
        return self.tokens[-1] if self.tokens else self.base

    def place(self, token: int) -> int | None:
        """How many of the steps a partition has done that did `token` last; None if that is not part of this."""
        if token == self.base:
            return 0
        try:
            return self.tokens.index(token) + 1
        except ValueError:
            return None

    def read(self, folder: Path, start: int) -> list[PartitionCommand]:
        """The steps from a place on."""
        steps, written = [], self.offsets[start:]
        if written:
            path = folder / EXCHANGE / self.file
            with storage_errors(path, "read"), open(path, "rb") as file:
                for offset in written:
                    file.seek(offset)
                    steps.append(pickle.load(file))
        return [*steps, *self.tail[max(start - len(self.offsets), 0) :]]


Call = tuple[str, tuple[Any, ...]]  # a question to a partition: the name of a method, and its arguments
