"""Follow sources: files that grow, folders that files appear in, streams of bytes. Each batch of records is an epoch.

The law: an epoch holds the rows of a batch, its rejects, and the positions of its source after it (`io/tails.py`),
in one record of the log. So whatever kills the process, each record of a file is in exactly once.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

from whence.io import rejects
from whence.io.files import Reject, format_of
from whence.io.records import Records, Target, UpdateLine
from whence.io.rejects import OnError
from whence.io.rows import Missing
from whence.io.tails import FolderTail, GrowingFile, InputTail, Tail, open_file
from whence.model.errors import DataError, MissingRowError, WhenceError
from whence.model.paths import local_path
from whence.runtime.statements import ensure_rejects

if TYPE_CHECKING:
    from whence.runtime.database import Database

log = logging.getLogger("whence")
Place = str | Path | BinaryIO
"""A file, a folder, the files `folder/*.csv`, `-` for standard input, or a stream of bytes."""

LINES = 10_000
"""Records of a growing source per epoch, unless there is another number."""

ROWS = 1_000_000
"""Records of a file in a folder per epoch: a larger one becomes several."""

_FORMATS = ("jsonl", "csv", "parquet")


@dataclass(frozen=True)
class FollowedEpoch:
    """What an epoch took in from a source. `Database.follow` yields them.

    epoch     its number
    table     the table
    files     the files that it has records of
    rows      the number of records
    rejected  how many of those were rejected or skipped
    seconds   the time that it took

    >>> import io, whence
    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
    >>> [(e.epoch, e.table, e.files, e.rows) for e in db.follow({"a": io.BytesIO(b'{"x": 1}')})]
    [(1, 'a', ('standard input',), 1)]
    """

    epoch: int
    table: str
    files: tuple[str, ...]
    rows: int
    rejected: int
    seconds: float


@dataclass(frozen=True)
class FollowOptions:
    """How sources are followed (`Database.follow`)."""

    wait: bool = True
    resume: bool = True
    op: str | None = None
    on_error: OnError = "fail"
    missing: Missing = "error"
    batch: int | None = None
    files_per_epoch: int = 1
    delay: float = 0.2
    poll: float = 0.2
    stop: threading.Event = field(default_factory=threading.Event)
    note: Callable[[str], None] = log.warning


@dataclass
class _Source:
    """A tail, the table it is for, and since when records are pending."""

    table: str
    target: Target
    tail: Tail
    batch: int
    since: float | None = None

    def is_due(self, delay: float) -> bool:
        """Read what is there; tell whether it is to be an epoch now."""
        pending = self.tail.look(self.batch)
        if not pending:
            self.since = None
            return False
        if self.since is None:
            self.since = time.monotonic()
        return self.tail.complete or pending >= self.batch or time.monotonic() - self.since >= delay


def follow(db: Database, sources: Mapping[str, Any], options: FollowOptions) -> Iterator[FollowedEpoch]:
    """Take in what sources have, and with `wait` what comes later; yield each epoch once it is committed."""
    db._coordinator.check_not_writing("follow")
    rejects.check_choice(options.on_error)
    if options.batch is not None and options.batch < 1:
        raise WhenceError("batch must be at least 1")
    if options.on_error == "reject":
        ensure_rejects(db._coordinator)
    places = [
        (table.lower(), place)
        for table, given in sources.items()
        for place in (given if isinstance(given, (list, tuple)) else [given])
    ]
    opened = list[_Source]()
    try:
        for table, place in places:
            opened.append(_open(db, table, place, options))
    except BaseException:
        _close(opened)
        raise
    return _follow(db, opened, options)


def _close(sources: list[_Source]) -> None:
    for source in sources:
        source.tail.close()


def _follow(db: Database, sources: list[_Source], options: FollowOptions) -> Iterator[FollowedEpoch]:
    try:
        yield from _epochs(db, sources, options)
    finally:
        _close(sources)


def _epochs(db: Database, sources: list[_Source], options: FollowOptions) -> Iterator[FollowedEpoch]:
    while sources and not options.stop.is_set():
        busy = False
        for source in sources:
            while source.is_due(options.delay) and not options.stop.is_set():
                busy = True
                yield from _take(db, source, options)
                if options.wait:
                    break  # the others are next
        sources = [source for source in sources if not source.tail.ended]
        if sources and not busy:
            waits = [options.delay for source in sources if source.since is not None]
            options.stop.wait(min([options.poll, *waits]))
    for source in sources:  # what was read from a stream would be lost
        if isinstance(source.tail, InputTail) and source.tail.look(1):
            yield from _take(db, source, options)


def _open(db: Database, table: str, given: Place, options: FollowOptions) -> _Source:
    """Open what a place names."""
    coordinator = db._coordinator
    found, stored = coordinator.table_of(table), coordinator.source_positions
    op = options.op
    if op is not None and op.lower() in found.written.names:
        raise DataError(f"the column {op} is one of the table's: operations stand in a column of their own")
    if op is None and "op" not in found.written.names:
        op = "op"
    format, place = parse_place(given)
    tail, batch = _open_tail(table, place, format, stored, options)
    return _Source(table, Target(found.written, bool(found.key), op, options.missing), tail, options.batch or batch)


def _open_tail(
    table: str, place: Path | BinaryIO, format: str | None, stored: Mapping[str, int], options: FollowOptions
) -> tuple[Tail, int]:
    """Open a place at its position; return it, and how many of its records make an epoch."""
    if not isinstance(place, Path):
        return InputTail(place, format or "jsonl"), LINES
    path, pattern = (place.parent, place.name) if is_pattern(place) else (place, "*")
    key = f"follow:{table}:{path.absolute()}"
    if is_pattern(place) or path.is_dir():
        wait, files = options.wait, options.files_per_epoch
        return FolderTail(path, pattern, key, stored, format=format, follow=wait, files=files), ROWS
    format = format or format_of(path)
    if options.resume:
        return GrowingFile(path, format, key, stored, options.note, options.wait), LINES
    return open_file(path, format), LINES


def parse_place(given: Place) -> tuple[str | None, Path | BinaryIO]:
    """Return the format that a place names, if it does, and its path or stream.

    >>> parse_place("csv:links")[0], parse_place("links.csv")[0]
    ('csv', None)
    """
    format = None
    if isinstance(given, str):
        word, colon, rest = given.partition(":")
        if colon and word in _FORMATS:
            format, given = word, rest
        if given == "-":
            return format, sys.stdin.buffer
    return format, local_path(given) if isinstance(given, (str, Path)) else given


def is_pattern(path: Path) -> bool:
    """Tell whether a path is a pattern of names in a folder.

    >>> is_pattern(Path("in/*.csv")), is_pattern(Path("in"))
    (True, False)
    """
    return any(mark in path.name for mark in "*?[")


# -- one epoch ---------------------------------------------------------------------------------------------------------


def _take(db: Database, source: _Source, options: FollowOptions) -> Iterator[FollowedEpoch]:
    """Commit the next records of a source as an epoch; yield it, unless there are none but blank lines."""
    begin, source.since = time.perf_counter(), None
    parts = [part for part in source.tail.take(source.batch) if len(part)]
    if not parts:
        return
    refused: list[Reject] = []
    with db._coordinator.transaction() as writes:
        for part in parts:
            refused += _apply(db, source, part, options)
            writes.source_positions = {**writes.source_positions, **part.positions}
        if refused and options.on_error == "reject":
            db.insert(rejects.TABLE, rejects.as_rows(refused, source.table, None))
    done = "skipped" if options.on_error == "skip" else "rejected"
    for reject in refused:
        options.note(f"{reject.file}, line {reject.line}: {done}: {reject.reason}")
    files, rows = tuple(part.file for part in parts), sum(map(len, parts))
    yield FollowedEpoch(db.epoch, source.table, files, rows, len(refused), time.perf_counter() - begin)


def _apply(db: Database, source: _Source, part: Records, options: FollowOptions) -> list[Reject]:
    """Carry out the records of a file in the open transaction; return those that do not fit."""
    target, fails = source.target, options.on_error == "fail"
    if part.format != "jsonl" and options.op is None:
        target = replace(target, op=None)
    part.check_columns(target)

    def attempt(start: int, stop: int) -> list[int]:
        updates = part.updates(start, stop, target)
        with db._coordinator.transaction():  # a savepoint
            if isinstance(updates, pa.Table):
                db.insert(source.table, updates, missing=target.missing)
                return []
            runs = groupby(updates, lambda update: update.sign)
            return [line for sign, run in runs for line in _carry_out(db, source, sign, list(run))]

    done, faults = rejects.isolate(len(part), attempt, first=fails)
    if faults and fails:
        at, error = faults[0]
        reason = str(error).replace(", row 1", "", 1)
        sep = ", " if part.format == "csv" and reason.startswith("column ") else ": "
        raise DataError(f"{part.file}, {'row' if part.rows is not None else 'line'} {part.lines[at]}{sep}{reason}")
    for line in chain.from_iterable(done):
        options.note(f"{part.file}, line {line}: no such row to delete")
    return [
        Reject(part.file, part.lines[at], rejects.reason(error, source.table), part.text(at)[: rejects.LONGEST])
        for at, error in faults
    ]


def _carry_out(db: Database, source: _Source, sign: int, updates: list[UpdateLine]) -> list[int]:
    """Insert rows, or delete them; return the lines of those that were not there."""
    rows = [update.row for update in updates]
    if sign > 0:
        db.insert(source.table, rows, missing=source.target.missing)
        return []
    try:
        db.delete(source.table, rows, strict=True)
    except MissingRowError:
        return [update.line for update in updates if not db.delete(source.table, [update.row])]
    return []
