"""The write-ahead log: segments one after the other, appended to by one writer, read by any process.

The law: a record is in the log after a crash if `sync` of its ticket returned (or, under durability "interval" and
"none", a later sync of the log did), and then so is every record before it. A record that was refused or withdrawn is
not.

One thread at a time appends, withdraws, rotates, drops and recovers: the caller sees to that. `sync` may be called by
any thread at any time. The first to come leads: it syncs once for everything written so far, while the others wait and,
as a rule, find that it was done for them too.

A failed append is cut off again, and the log goes on. A failed sync is worse, since the system may have forgotten which
pages were not written: the log **fails**, and refuses everything until `recover_to_synced` has cut it back to what was
known to be stable.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from xxhash import xxh3_64, xxh3_64_intdigest

from whence.model.errors import CorruptionError, StorageError
from whence.state.disk import Disk, File, Part, storage_errors
from whence.state.segment import (
    EPOCH,
    EPOCHS,
    FILE_HEADER,
    FORGET,
    INPUT,
    PLANS,
    RECORD_HEADER,
    SCHEMA,
    Record,
    SegmentScan,
    Torn,
    file_header,
    in_order,
    record_header,
    segment_path,
)

__all__ = [
    "DURABILITIES",
    "EPOCH",
    "EPOCHS",
    "FORGET",
    "INPUT",
    "PLANS",
    "SCHEMA",
    "Durability",
    "Log",
    "Reader",
    "Record",
    "Torn",
]

Durability = Literal["commit", "interval", "none"]
DURABILITIES: tuple[Durability, ...] = ("commit", "interval", "none")


class _Mark(NamedTuple):
    """A position between two records: the ticket of the one before, the offset, and the last epoch so far."""

    ticket: int
    offset: int
    epoch: int


class Log:
    """The log, opened by its one writer. `torn` describes the bytes that opening cut off."""

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        segments: Sequence[int],
        *,
        durability: Durability = "commit",
        interval: float = 0.1,
    ):
        """Open the segments that the manifest names.

        With none the first is made; like after `rotate`, a manifest must name it before anything is appended.
        """
        self.folder = folder
        self.durability = durability
        self.torn: Torn | None = None
        self._disk = disk
        self._turn = threading.Condition()
        self._syncing = False
        self._dirty = False  # something that is not in the log may stand behind its end
        self._closed = False
        self._failure: StorageError | None = None
        self._issued = 0
        self._lost: list[tuple[int, int]] = []  # tickets above the first up to the second were cut off
        self._sizes = {number: self._size_of(number) for number in segments}
        disk.make_folder(folder)
        self._sweep()
        if segments:
            self._number = max(segments)
            self._file, self._written = self._open_last()
        else:
            self._number = 1
            self._file, self._written = self._begin(1), _Mark(0, FILE_HEADER, -1)
        self._synced = self._written
        self._before: _Mark | None = None  # where the record began that may be withdrawn
        self.on_synced: Callable[[int], None] | None = None  # is called with `synced` whenever that may have moved
        self._stop = threading.Event()
        self._ticker = threading.Thread(target=self._tick, args=(interval,), name="whence log", daemon=True)
        if durability == "interval":
            self._ticker.start()

    # What there is

    @property
    def segments(self) -> tuple[int, ...]:
        """The segments' numbers, oldest first: what the manifest must name."""
        return (*sorted(number for number in self._sizes if number != self._number), self._number)

    @property
    def written(self) -> int:
        """The ticket of the last record in the log."""
        return self._written.ticket

    @property
    def synced(self) -> int:
        """The ticket of the last record that is stable."""
        return self._synced.ticket

    @property
    def synced_epoch(self) -> int:
        """The last epoch that is stable, of those in the segment the log was opened with and later ones; or −1."""
        return self._synced.epoch

    @property
    def failed(self) -> bool:
        """Whether a sync failed and `recover_to_synced` must be called."""
        return self._failure is not None

    @property
    def segment_size(self) -> int:
        """Bytes of the segment that is appended to."""
        return self._written.offset

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self._written.offset + sum(size for number, size in self._sizes.items() if number != self._number)

    def records(self, *, first: int = 0) -> Iterator[Record]:
        """Iterate over all records, or those of the segments from number `first` on; not during appends."""
        return Reader(self.folder).read([number for number in self.segments if number >= first])

    # Appending

    def append(self, kind: int, epoch: int, time: int, parts: Sequence[Part]) -> int:
        """Write a record and return its ticket. On an error the log is unchanged."""
        self._refuse_if_failed()
        self._clean()
        before = self._written
        if not in_order(kind, epoch, before.epoch):
            raise StorageError(f"{self._file.path}: epoch {epoch} cannot follow epoch {before.epoch}")
        length, checksum = _measure(parts)
        header = record_header(
            kind,
            epoch,
            time,
            length,
            checksum,
            segment=self._number,
            offset=before.offset,
            stable=self._synced.offset,
        )
        self._dirty = True
        try:
            self._file.write([header, *parts])
        except StorageError:
            with suppress(StorageError):
                self._clean()
            raise
        with self._turn:
            self._issued += 1
            self._before = before
            last = epoch if kind in EPOCHS else before.epoch
            self._written = _Mark(self._issued, before.offset + RECORD_HEADER + length, last)
            self._dirty = False
        return self._issued

    def withdraw(self, ticket: int) -> None:
        """Remove the record appended last, which has not been reported as stable."""
        with self._turn:
            self._wait_until_idle()
            self._refuse_if_failed()
            if self._before is None or ticket != self._written.ticket:
                raise StorageError(f"{self._file.path}: only the last record can be withdrawn, once")
            stable = ticket <= self._synced.ticket
            self._written, self._before = self._before, None
            self._lost.append((self._written.ticket, ticket))
            self._synced = min(self._synced, self._written)
            try:
                self._file.truncate(self._written.offset)
                if stable or self.durability == "commit":
                    self._file.sync()  # or a crash could bring it back
            except StorageError as error:
                self._fail(error)
                raise

    def _clean(self) -> None:
        """Cut off what a failed append left behind."""
        if self._dirty:
            self._file.truncate(self._written.offset)
            self._dirty = False

    # Making it stable

    def sync(self, ticket: int) -> None:
        """Wait until the record is stable; return at once unless the durability is "commit"."""
        if self.durability == "commit":
            self.make_stable(ticket)
        else:
            self._refuse_if_failed()

    def flush(self) -> None:
        """Make everything written so far stable, whatever the durability."""
        self.make_stable(self._written.ticket)

    def recover_to_synced(self) -> None:
        """Cut the log back to what is stable, after a failed sync; `sync` then raises for the records behind."""
        with self._turn:
            self._wait_until_idle()
            path = self._file.path
            self._file.truncate(self._synced.offset)
            fresh = self._disk.open(path)
            try:
                fresh.sync()
            except BaseException:
                fresh.close()
                raise
            self._file.close()
            self._file = fresh
            self._lost.append((self._synced.ticket, self._issued))
            self._written, self._before = self._synced, None
            self._failure, self._dirty = None, False
            self._turn.notify_all()

    def make_stable(self, ticket: int) -> None:
        """Return when the record is stable, whatever the durability; StorageError if it was cut off."""
        self._wait_stable(ticket)
        self._report_synced()

    def _report_synced(self) -> None:
        """Tell how far the log is stable, without our lock: by whichever thread has synced it or waited for that."""
        if self.on_synced is not None:
            self.on_synced(self._synced.ticket)

    def _wait_stable(self, ticket: int) -> None:
        with self._turn:
            while True:
                if any(low < ticket <= high for low, high in self._lost):
                    raise StorageError(f"{self._file.path}: the record could not be made stable and was removed")
                if ticket <= self._synced.ticket:
                    return
                self._refuse_if_failed()
                if ticket > self._issued:
                    raise StorageError(f"{self._file.path}: there is no record with ticket {ticket}")
                if self._syncing:
                    self._turn.wait()
                else:
                    self._lead_group_commit()

    def _lead_group_commit(self) -> None:
        """Sync everything written so far, as the leader of a group commit: others may append and queue up meanwhile."""
        file, target = self._file, self._written
        self._syncing = True
        self._turn.release()
        failure: StorageError | None = None
        try:
            file.sync()
        except StorageError as error:
            failure = error
        finally:
            self._turn.acquire()
            self._syncing = False
            self._turn.notify_all()
        if failure is not None:
            self._fail(failure)
            raise failure
        self._synced = target

    def _tick(self, interval: float) -> None:
        while not self._stop.wait(interval):
            with self._turn:
                behind = self._synced.ticket < self._written.ticket
                if behind and not self._syncing and self._failure is None:
                    with suppress(StorageError):  # the next append reports it
                        self._lead_group_commit()
            self._report_synced()

    def _wait_until_idle(self) -> None:
        while self._syncing:
            self._turn.wait()

    def _fail(self, failure: StorageError) -> None:
        self._failure = failure
        self._turn.notify_all()

    def _refuse_if_failed(self) -> None:
        if self._closed:
            raise StorageError(f"{self.folder}: the log is closed")
        if self._failure is not None:
            raise StorageError(f"the log has failed and takes nothing more: {self._failure}") from self._failure

    # Segments

    def rotate(self) -> int:
        """Make everything stable and begin a new segment; return its number.

        The caller must now save a manifest that names it before anything is appended: a crash loses the records of a
        segment that no manifest names.
        """
        self._refuse_if_failed()
        self._clean()
        self.make_stable(self._written.ticket)
        number = self._number + 1
        file = self._begin(number)
        with self._turn:
            self._wait_until_idle()
            self._file.close()
            self._sizes[self._number] = self._written.offset
            self._file, self._number = file, number
            self._written = self._synced = self._written._replace(offset=FILE_HEADER)
            self._before = None
        return number

    def drop(self, numbers: Sequence[int]) -> None:
        """Remove segments, which no manifest may name any more."""
        for number in numbers:
            if number == self._number:
                raise StorageError(f"{self._file.path}: the segment that is appended to cannot be dropped")
            self._disk.remove(segment_path(self.folder, number))
            self._sizes.pop(number, None)

    def close(self) -> None:
        """Make everything stable, whatever the durability, and close the file."""
        if self._closed:
            return
        self._stop.set()
        if self._ticker.ident is not None and self._ticker is not threading.current_thread():
            self._ticker.join()
        try:
            with suppress(StorageError):  # what a failed append left is torn, and will be cut on opening
                self._clean()
            self.make_stable(self._written.ticket)
        finally:
            with self._turn:
                self._wait_until_idle()
                self._closed = True
                self._file.close()

    def _begin(self, number: int) -> File:
        path = segment_path(self.folder, number)
        file = self._disk.create(path)
        try:
            file.write([file_header(number)])
            file.sync()
        except BaseException as error:
            file.close()
            if isinstance(error, StorageError):
                with suppress(StorageError):
                    self._disk.remove(path)
            raise
        return file

    def _open_last(self) -> tuple[File, _Mark]:
        """Open the segment to append to, without its torn tail, and sync it: recovery must not build on what may
        vanish."""
        path = segment_path(self.folder, self._number)
        scan = SegmentScan(path, self._number, last=True)
        for _ in scan:
            pass
        file = self._disk.open(path)
        try:
            self.torn = scan.torn
            if scan.torn is not None:
                file.truncate(scan.offset)
            file.sync()
        except BaseException:
            file.close()
            raise
        return file, _Mark(0, scan.offset, scan.epoch)

    def _sweep(self) -> None:
        """Remove what interrupted calls of `rotate` and `drop` left; raise if the log is ahead of its manifest."""
        for name in self._disk.names(self.folder):
            stem, _, ending = name.partition(".")
            if ending != "log" or not stem.isdecimal() or int(stem) in self._sizes:
                continue
            if int(stem) > max(self._sizes, default=0) and self._size_of(int(stem)) > FILE_HEADER:
                raise StorageError(f"{self.folder / name}: has records, but the manifest does not name it")
            self._disk.remove(self.folder / name)

    def _size_of(self, number: int) -> int:
        path = segment_path(self.folder, number)
        with storage_errors(path, "look at"):
            try:
                return path.stat().st_size
            except FileNotFoundError as error:
                raise StorageError(f"{path}: this segment of the log has vanished") from error


def _measure(parts: Sequence[Part]) -> tuple[int, int]:
    """Return the length and checksum of the concatenated parts."""
    if len(parts) == 1:
        return memoryview(parts[0]).nbytes, xxh3_64_intdigest(parts[0])
    state, length = xxh3_64(), 0
    for part in parts:
        state.update(part)
        length += memoryview(part).nbytes
    return length, state.intdigest()


class Reader:
    """A reader of a log that another process may be writing to; continues where it stopped, and never writes.

    It may be given records that are not yet stable, and the writer may take such a record back. A reader that went past
    one notices as soon as it reads on, and says so: its owner must start again.
    """

    _PATIENCE = 0.02  # seconds for a writer that is just replacing a record

    def __init__(self, folder: Path, *, segment: int = 0, offset: int = FILE_HEADER):
        self.folder = folder
        self.segment, self.offset = segment, offset
        self.epoch = -1
        self._seen: tuple[int, int] | None = None

    def read(self, segments: Sequence[int]) -> Iterator[Record]:
        """Return the records that are there now, after those returned before, of the segments that the manifest names
        now."""
        if self.segment and self.segment not in segments:
            raise StorageError(
                f"{segment_path(self.folder, self.segment)}: the log moved on past this reader; open it again"
            )
        for number in sorted(segments):
            if number > self.segment:
                self.segment, self.offset, self._seen = number, FILE_HEADER, None
            if number == self.segment:
                yield from self._follow(last=number == max(segments))

    def _follow(self, *, last: bool) -> Iterator[Record]:
        try:
            yield from self._scan(last=last)
        except CorruptionError:
            if not last:
                raise
            time.sleep(self._PATIENCE)
            yield from self._scan(last=last)

    def _scan(self, *, last: bool) -> Iterator[Record]:
        path = segment_path(self.folder, self.segment)
        scan = SegmentScan(path, self.segment, last=last, offset=self.offset, epoch=self.epoch, seen=self._seen)
        for record in scan:
            self.offset, self.epoch, self._seen = scan.offset, scan.epoch, scan.seen
            yield record
