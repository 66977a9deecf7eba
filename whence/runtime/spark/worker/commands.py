"""Commands that change a partition: serializable and deterministic, so that any process can replay them.

The law: copies of a partition that do the same commands in the same order are in the same state, wherever they live. A
*run* (an epoch, or a change of the catalog) is some commands to each partition, one a superstep; it is committed or
undone whole. A token names a command for ever: a copy whose last token stands in the driver's log has done all commands
of that log up to there. What other partitions sent is part of a command, so each can be brought to the present alone.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from whence.engine.core.epoch import Epoch
from whence.engine.core.operator import Batch
from whence.model.codes import Codes
from whence.runtime.spark.worker.spill import BULKY, Payload
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


Entry = int | str | tuple[PartitionCommand, ...]
"""Commands that were done together: at an offset of the log's file, in a file of their own, or here."""


@dataclass
class CommandList:
    """Commands in their order. `tokens` and `entries` go together: an entry's last command has the token. Entries
    before `written` are in files."""

    tokens: list[int] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    written: int = 0

    def add(self, token: int, entry: Entry) -> None:
        self.tokens.append(token)
        self.entries.append(entry)

    def join(self) -> None:
        """Make one entry of all, which a copy does as one, unless some are in files."""
        commands = [command for entry in self.entries if isinstance(entry, tuple) for command in entry]
        if len(self.entries) > 1 and all(isinstance(entry, tuple) for entry in self.entries):
            self.tokens, self.entries = self.tokens[-1:], [tuple(commands)]

    def extend(self, other: CommandList) -> None:
        self.tokens += other.tokens
        self.entries += other.entries


@dataclass
class CommandLog(CommandList):
    """What a partition has been through since its image, as the driver knows it; the commands themselves in files."""

    base: int = 0  # the token of the image
    links: tuple[Link, ...] = ()
    plan: int | None = None  # the version of the one by which the image was made
    file: str = ""

    @property
    def last(self) -> int:
        return self.tokens[-1] if self.tokens else self.base

    def place(self, token: int) -> int | None:
        """Return how many of the entries a copy has done whose last token this is; None if it is not in the log."""
        if token == self.last:  # as a rule
            return len(self.tokens)
        if token == self.base:
            return 0
        try:
            return self.tokens.index(token) + 1
        except ValueError:
            return None

    def followed_by(self, run: CommandList) -> CommandLog:
        """Return the log with the commands of a run that is open."""
        if not run.entries:
            return self
        return replace(self, tokens=self.tokens + run.tokens, entries=self.entries + run.entries)

    def read(self, folder: Path, start: int) -> list[PartitionCommand]:
        """Return the commands from a place on."""
        commands: list[PartitionCommand] = []
        with ExitStack() as stack:
            own: BinaryIO | None = None
            for entry in self.entries[start:]:
                if isinstance(entry, tuple):
                    commands += entry
                    continue
                path = folder / EXCHANGE / (self.file if isinstance(entry, int) else entry)
                with storage_errors(path, "read"):
                    if isinstance(entry, str):
                        commands += pickle.loads(path.read_bytes())
                        continue
                    own = own or stack.enter_context(open(path, "rb"))
                    own.seek(entry)
                    commands += pickle.load(own)
        return commands


def spill_commands(folder: Path, name: str, commands: tuple[PartitionCommand, ...]) -> Entry:
    """Write commands that are bulky to a file of their own, and return the name; return any others as they are."""
    size = sum(
        payload.rows.nbytes + payload.ann.nbytes
        for command in commands
        for _, payload in command.received
        if isinstance(payload, Batch)
    )
    if size < BULKY:
        return commands
    try:
        (folder / EXCHANGE / name).write_bytes(pickle.dumps(commands, protocol=5))
    except OSError:  # a full disk, as a rule: the slow way is still open
        return commands
    return name
