"""Recovery: a database as its folder has it, the newest image and then every record of the log after it.

The law: replaying a record does what was done when it was written, code for code, so images taken before and records
written after go together. Every record brings the dictionary's new values along, ahead of what needs them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from whence.engine.core.epoch import Epoch
from whence.engine.core.image import Images, SoundImages
from whence.io.grid import FactSheet
from whence.model.errors import CorruptionError, SqlError, StorageError, WhenceError
from whence.model.progress import Progress
from whence.plan.rewrite.keep_joins import from_json
from whence.runtime.durable.uniting import United
from whence.runtime.writing.inputs import read_rows
from whence.sql.parse import parse_stored
from whence.state.codec import unpack_epoch, unpack_forgotten, unpack_schema, unpack_words
from whence.state.folder import WORDS, Folder, RecoveryPoint
from whence.state.inputs import unpack_inputs
from whence.state.log import EPOCHS, FORGET, INPUT, PLANS, SCHEMA, Reader, Record, Torn

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator

log = logging.getLogger("whence")
_FUNCTIONS = "Python functions that views call are given by setup=, or --functions"


@dataclass(frozen=True)
class Recovery(FactSheet):
    """What opening a database found and did (`Database.recovery`).

    epoch        the epoch it reached
    image_epoch  the epoch of the image it began with
    replayed     records of the log after that
    restored     operators that took their state from the image
    primed       operators that had to be computed from the tables
    seconds      how long it took
    torn         a record that was being written when the process or the machine died; it was never acknowledged
    damaged      what of the image could not be used, and was computed from the tables

    >>> with whence.open("again.db") as db: _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", (1,))
    >>> with whence.open("again.db") as db: db.recovery.epoch, db.recovery.image_epoch, db.recovery.replayed
    (1, 1, 0)
    """

    epoch: int  # reached in the end
    image_epoch: int  # of the image it began with
    replayed: int  # records of the log after that
    restored: int  # operators that took their state from the image
    primed: int  # operators that had to be computed from the tables
    seconds: float
    torn: Torn | None = (
        None  # a record that was being written when the process or the machine died; nobody was told of it
    )
    damaged: tuple[str, ...] = ()  # what of the image could not be used, and was computed from the tables


class DictionaryMismatchError(StorageError):
    """The dictionary has given codes of its own that the log gives to other values."""


@dataclass(frozen=True)
class Recovered:
    """A recovery, and where it has got to: the reader of the log, its bytes after the image, the dictionary's words."""

    report: Recovery
    reader: Reader
    log_bytes: int
    words: int


def recover(
    coordinator: Coordinator,
    folder: Folder,
    *,
    until: int | None = None,
    torn: Torn | None = None,
    progress: Progress | None = None,
) -> Recovered:
    """Bring an empty database to the last epoch of a folder, or to an earlier one."""
    with replaying(coordinator):
        return _recover(coordinator, folder, until, torn, progress)


@contextmanager
def replaying(coordinator: Coordinator) -> Iterator[None]:
    """Let a coordinator's partitions derive what was derived before."""
    coordinator.catalog.backend.replaying = True
    try:
        yield
    finally:
        coordinator.catalog.backend.replaying = False


def _recover(
    coordinator: Coordinator, folder: Folder, until: int | None, torn: Torn | None, progress: Progress | None
) -> Recovered:
    began = time.perf_counter()
    start = folder.start(until)
    try:
        words, damaged = load_image(coordinator, folder, start, progress) if start.links else (0, ())
    except SqlError as error:
        raise StorageError(f"{folder.path}: its views cannot be loaded: {error} ({_FUNCTIONS})") from error
    flow = coordinator.catalog.flow
    restored, primed = flow.restored, flow.primed
    reader, replayed, total = folder.reader(start.place), 0, folder.log_bytes(*start.place)
    for record in folder.read(reader):
        if until is not None and record.kind in EPOCHS and record.epoch > until:
            break
        words = max(words, replay(coordinator, record, folder))
        replayed += 1
        if progress is not None and replayed % 64 == 0:
            progress("replaying the log", total - folder.log_bytes(reader.segment, reader.offset), total)
    if progress is not None and replayed:
        progress("replaying the log", total, total)
    if until is not None and coordinator.epoch < until:
        raise StorageError(
            f"{folder.path}: epoch {until} does not exist; the last committed epoch is {coordinator.epoch}"
        )
    seconds = time.perf_counter() - began
    report = Recovery(coordinator.epoch, start.epoch, replayed, restored, primed, seconds, torn, damaged)
    return Recovered(report, reader, total, words)


def load_image(
    coordinator: Coordinator, folder: Folder, start: RecoveryPoint, progress: Progress | None = None
) -> tuple[int, tuple[str, ...]]:
    """Bring an empty database to the epoch of an image; return how many words that has, and what of it is damaged."""
    chain = folder.chain(start.links)
    meta = chain.meta
    words = {int(key.removeprefix(WORDS)): key for key in chain.parts if key.startswith(WORDS)}
    for first in sorted(words):
        learn(coordinator, first, unpack_words(chain.image(words[first])))
    coordinator.dictionary.kept = meta.get("kept_words", 0)
    parts: Images = chain
    if start.partitions:
        shares = [folder.chain(folder.partition_chain(p, start)) for p in range(start.partitions)]
        parts = United(shares, meta["partitions"]["tables"])
    images = SoundImages(parts)
    creates = [parse_stored(sql) for sql in meta["statements"]]
    coordinator.adaptation.restore(meta.get("plans", {}))
    coordinator.catalog.planner.keeps = from_json(meta.get("keeps", ()))
    coordinator.deployment.restore(coordinator, creates, images, folder, start, meta, progress)
    coordinator.source_positions = dict(meta.get("marks", {}))
    coordinator.horizon_history.restore(meta.get("horizons", {}), meta["epoch"])
    coordinator.arrivals.restore(meta.get("arrivals", ()), meta["epoch"], coordinator.catalog.flow.last_at)
    coordinator.stand_at(meta["epoch"], meta["time"])
    return int(meta["words"]), tuple(images.damage)


def replay(coordinator: Coordinator, record: Record, folder: Folder) -> int:
    """Do again what a record of a folder says was done; how many words the dictionary had by then."""
    first, words = 0, list[Any]()
    try:
        if record.kind in EPOCHS:
            unpack = unpack_inputs if record.kind == INPUT else unpack_epoch
            epoch, first, words = unpack(record.epoch, record.time, record.payload)
            learn(coordinator, first, words)
            taken = coordinator.catalog.backend.can_take(epoch)
            coordinator.replay(epoch if taken else resolve(coordinator, epoch, folder))
        elif record.kind == SCHEMA:
            statements, first, words = unpack_schema(record.payload)
            learn(coordinator, first, words)
            coordinator.definitions.redo(statements)
        elif record.kind == FORGET:
            coordinator.words.forget(unpack_forgotten(record.payload))
        elif record.kind == PLANS:
            coordinator.adaptation.redo(bytes(record.payload))
    except ValueError as error:
        raise CorruptionError(record.path, record.offset, str(error)) from None
    except StorageError:
        raise
    except WhenceError as error:
        what = f"epoch {record.epoch}" if record.kind in EPOCHS else f"what was declared after epoch {record.epoch}"
        hint = f" ({_FUNCTIONS})" if isinstance(error, SqlError) else ""
        place = f"{record.path}, offset {record.offset}"
        raise StorageError(f"{place}: {what} cannot be done again: {error}{hint}") from error
    return first + len(words)


def resolve(coordinator: Coordinator, epoch: Epoch, folder: Folder) -> Epoch:
    """Return an epoch without sections of files: with the exact changes that they make of the tables as they are."""
    if not epoch.sections:
        return replace(epoch, layout="")
    raw, tables = read_rows(epoch, folder), coordinator.program.tables
    for name, (rows, _) in raw.items():
        if name not in tables or rows.shape[1] != len(tables[name].schema) + (tables[name].stream is not None):
            raise ValueError(f"rows of {rows.shape[1]} columns for a table {name}")
    return coordinator.catalog.backend.resolve(epoch, raw)[0]


def learn(coordinator: Coordinator, first: int, words: list[Any]) -> None:
    """Take up the dictionary's values from the code `first` on."""
    if words and not coordinator.dictionary.extend(first, words):
        raise DictionaryMismatchError(
            f"the values from code {first} on are not those that the log has: a Python function that views call gives "
            "other texts than when the log was written; open the database with the functions as they were"
        )
