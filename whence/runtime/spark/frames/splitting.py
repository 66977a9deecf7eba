"""Split a batch that is too large for one epoch into several, each exactly once.

Spark promises that a batch that comes again has the same rows, but not that they come in the same order or in the same
tasks: after a restart there may be more cores, and files are dealt out otherwise. So it is not enough to count how many
epochs of a batch are in; what each of them is made of is written down before the first.

    <db>/streams/<name>.split/      the files with the batch's rows, and `plan.json`: which of them make which epoch

Why each row is in exactly once, wherever the driver dies:

- Until the first epoch is in, `name#batch` is not this batch: the plan is thrown away and the batch routed again. (Its
  codes may be of words that were lost with the driver.)
- The first epoch's record has the mark `name#batch`, and with it all words that were given out until then, so those of
  all files. From now on the plan stands: it was stable before.
- Each epoch's record has `name#done`, how many are in, so the plan goes on where the log ends. An epoch takes links to
  the plan's files, so what becomes of those in <db>/inputs/ does not matter.
- The last one's record has the mark of the batch itself, which is then never looked at again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from whence.engine.core.epoch import InputSection
from whence.engine.core.operator import Batch
from whence.model.errors import StorageError
from whence.runtime.spark.frames.routing import Part, Routed, Routing, Section, by_partition, counted
from whence.state.disk import Disk, storage_errors
from whence.state.inputs import read_input, write_input
from whence.state.manifest import INPUTS, STREAMS

_PLAN = "plan.json"


@dataclass(frozen=True)
class Split:
    """A batch of a stream, split into the pieces of several epochs."""

    database: Path
    name: str
    table: str
    batch: int
    routed: str  # how the rows were routed
    epochs: tuple[tuple[InputSection, ...], ...]

    @property
    def folder(self) -> Path:
        return self.database / STREAMS / f"{self.name}.split"

    def parts(self, number: int, routing: Routing) -> list[Part]:
        """Return the inputs of an epoch."""
        pieces = self.epochs[number]
        for file in {piece.file for piece in pieces}:
            _link(self.folder / file, self.database / INPUTS / file)
        if self.routed == _how(routing, self.table):
            return list(pieces)
        read = [Batch(*read_input(Disk(), self.database, piece)) for piece in pieces]  # partitions have changed
        if self.table in routing.streams:
            read = in_order(read, pieces)
        for file in {piece.file for piece in pieces}:
            Disk().remove(self.database / INPUTS / file)
        return list(read)

    def rows(self, number: int) -> int:
        return sum(piece.rows for piece in self.epochs[number])

    def drop(self) -> None:
        """Forget the plan and its files."""
        forget(self.database, self.name)


def plan(found: Routed, routing: Routing, name: str, table: str, batch: int, limit: int) -> Split:
    """Make a stable plan of the epochs that a routed batch becomes, each of at most `limit` rows or of one section."""
    database, disk = Path(routing.folder), Disk()
    split = Split(database, name, table, batch, _how(routing, table), ())
    forget(database, name)
    disk.make_folder(split.folder)
    disk.make_folder(database / INPUTS)
    epochs: list[list[InputSection]] = []
    room = 0
    for number, section in enumerate(found.sections):
        if not epochs or section.rows > room:
            epochs.append([])
            room = limit
        room -= section.rows
        epochs[-1] += _move_pieces(section, split, routing, disk, f"rows-{number}.in")
    split = replace(split, epochs=tuple(tuple(pieces) for pieces in epochs))
    content = {
        "batch": batch,
        "table": table,
        "routed": split.routed,
        "epochs": [[astuple(piece) for piece in pieces] for pieces in split.epochs],
    }
    disk.replace(split.folder / _PLAN, json.dumps(content).encode())
    return split


def resumed(database: Path, name: str, batch: int) -> Split:
    """Return the plan of a batch of which a part is committed."""
    path = database / STREAMS / f"{name}.split" / _PLAN
    try:
        content: dict[str, Any] = json.loads(Disk().read(path))
        if content["batch"] != batch:
            raise ValueError(f"is of batch {content['batch']}")
        epochs = tuple(tuple(InputSection(*fields) for fields in pieces) for pieces in content["epochs"])
        return Split(database, name, content["table"], batch, content["routed"], epochs)
    except (StorageError, ValueError, KeyError, TypeError) as error:
        raise StorageError(
            f"stream {name}: a part of batch {batch} is in, but the plan of the rest cannot be read ({error}); "
            "restore the folder from a backup"
        ) from error


def forget(database: Path, name: str) -> None:
    """Remove the plan of a stream, if there is one; it goes before its files."""
    folder, disk = database / STREAMS / f"{name}.split", Disk()
    for file in sorted(disk.names(folder), key=lambda file: file != _PLAN):
        disk.remove(folder / file)
    if folder.is_dir():
        with storage_errors(folder, "remove"):
            folder.rmdir()


def _how(routing: Routing, table: str) -> str:
    _, dist = routing.tables[table]
    return f"{routing.partitions} {dist.kind} {list(dist.cols)}"


def _move_pieces(section: Section, split: Split, routing: Routing, disk: Disk, name: str) -> Sequence[InputSection]:
    """Move the pieces of a section to files of the plan's folder."""
    raw = [part for part in section.parts if isinstance(part, Batch)]
    if raw:
        rows, signs = np.concatenate([p.rows for p in raw]), np.concatenate([p.ann for p in raw])
        if split.table in routing.streams:
            rows = counted(rows)
        name = f"{split.name}-{split.batch}-{routing.nonce}-{name}"  # it is linked to by this name
        return write_input(disk, split.folder / name, by_partition(split.table, routing, rows, signs))
    pieces = [part for part in section.parts if isinstance(part, InputSection)]
    for file in {piece.file for piece in pieces}:
        disk.rename(split.database / INPUTS / file, split.folder / file)
    return pieces


def in_order(read: Sequence[Batch], pieces: Sequence[InputSection]) -> list[Batch]:
    """Sort the rows of a stream as each file had them before they were routed."""
    found = []
    for file in dict.fromkeys(piece.file for piece in pieces):
        parts = [part for part, piece in zip(read, pieces, strict=True) if piece.file == file]
        rows, signs = np.concatenate([p.rows for p in parts]), np.concatenate([p.ann for p in parts])
        found.append(Batch(np.ascontiguousarray(rows[np.argsort(rows[:, -1]), :-1]), signs))
    return found


def _link(file: Path, to: Path) -> None:
    """Link a file under one more name, or copy it where the file system has no links."""
    with storage_errors(to, "link"):
        to.unlink(missing_ok=True)
        try:
            os.link(file, to)
        except OSError as error:
            if not file.exists():
                raise
            del error
            shutil.copyfile(file, to)
            with to.open("rb") as copy:
                os.fsync(copy.fileno())
