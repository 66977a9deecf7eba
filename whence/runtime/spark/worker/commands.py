"""Commands that change a partition: serializable and deterministic, so that any process can replay them.

The law: copies of a partition that do the same commands in the same order are in the same state, wherever they live. A
*run* (an epoch, or a change of the catalog) is some commands to each partition, one a superstep; it is committed or
undone whole. A token names a command for ever: a copy whose last token stands in the driver's log has done all commands
of that log up to there.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whence.engine.core.epoch import Epoch
from whence.model.codes import Codes
from whence.runtime.spark.worker.spill import Payload
from whence.state.disk import storage_errors
from whence.state.manifest import EXCHANGE, Link

Call = tuple[str, tuple[Any, ...]]
"""A question to a partition: the name of a method of `PartitionReader`, and its arguments."""


@dataclass(frozen=True)
class PartitionCommand:
    """What one partition does in one superstep: take up a plan, or run a stage of its part of an epoch.

    In the first stage the epoch has the changes of tables, in later ones only its number and time, beside what other
    partitions sent.
    """

    epoch: Epoch
    plan: int | None = None  # its version
    deadlines: Mapping[str, Codes] = field(default_factory=dict)  # of the rows of deltas, where they are known
    received: Sequence[tuple[str, Payload]] = ()
    token: int = 0
    run: int = 0
    stage: int = 0


@dataclass
class CommandLog:
    """What a partition has been through since its image, as the driver knows it; the commands themselves in a file.

    `tokens` and `offsets` go together: a command's name, and where it is in the file.
    """

    base: int = 0  # the token of the image
    links: tuple[Link, ...] = ()
    plan: int | None = None  # the version of the one by which the image was made
    file: str = ""
    tokens: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    tail: list[PartitionCommand] = field(default_factory=list)  # the last commands, if they could not be written

    @property
    def last(self) -> int:
        return self.tokens[-1] if self.tokens else self.base

    def place(self, token: int) -> int | None:
        """Return how many of the commands a copy has done whose last token this is; None if it is not in the log."""
        if token == self.base:
            return 0
        try:
            return self.tokens.index(token) + 1
        except ValueError:
            return None

    def read(self, folder: Path, start: int) -> list[PartitionCommand]:
        """Return the commands from a place on."""
        commands, written = [], self.offsets[start:]
        if written:
            path = folder / EXCHANGE / self.file
            with storage_errors(path, "read"), open(path, "rb") as file:
                for offset in written:
                    file.seek(offset)
                    commands.append(pickle.load(file))
        return [*commands, *self.tail[max(start - len(self.offsets), 0) :]]
