"""Sources that grow: a file that is appended to, a folder that files appear in, standard input. By polling.

The law: the records that a tail gives, one `take` after the other, are those of its source, each once and in order, and
the positions that come with them say where to go on. Committed in the same epoch as the records, they make reading
exactly-once: a tail that is opened with the committed positions begins right after the committed records.

A **file** is read like `tail -F` reads it. A last line without its end waits for the rest. The position is a number of
bytes, beside the number of lines and a fingerprint of the file's beginning. A file that is shorter than its position,
or begins differently, has been truncated or replaced: it is read from its start. If it was renamed (rotated), the old
file is first read to its end, also after a restart as long as it is in the same folder.

A **folder** gives each of its files once, oldest first, when it is complete: renamed into place, or unchanged for
`SETTLE` seconds. Names that begin with . or _ or end in ~, .tmp, .temp, .part or .partial are passed over, so a writer
may use one of these until it is done. The position says which files are in, and how far into the next.

**Standard input** has no position: it is read from where it stands, until its end.
"""

from __future__ import annotations

import fnmatch
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import BinaryIO, Protocol

import pyarrow as pa
import pyarrow.parquet
from xxhash import xxh3_64_intdigest

from whence.io.files import check_file, format_of
from whence.io.records import Records
from whence.model.errors import DataError

SETTLE = 1.0
"""Seconds after which a file of a folder that does not change counts as complete."""

ALL = -1
"""The position of a file that is in as a whole."""

Note = Callable[[str], None]
_CHUNK = 1 << 20
_HEAD = 1024  # bytes that tell files apart
_LONGEST = 32_000_000  # bytes of a line
_AHEAD = 64  # chunks of a stream that wait to be taken
_TEMPORARY = ("~", ".tmp", ".temp", ".part", ".partial")


class Tail(Protocol):
    """A source of records that may not have an end."""

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""

    @property
    def complete(self) -> bool:
        """Whether the records that are pending need not wait for more."""

    def look(self, wanted: int) -> int:
        """Read what is there now, until `wanted` records are pending; return how many are."""

    def take(self, count: int) -> list[Records]:
        """Return the next records, at most `count`."""

    def close(self) -> None:
        """Close what is open."""


class Lines:
    """Splits bytes into records: lines of JSON, or of CSV, where a line break may stand in quotes."""

    def __init__(self, file: str, format: str, line: int = 0) -> None:
        self._file, self._format, self._line = file, format, line
        self.header = b""  # of CSV
        self.records: deque[tuple[int, bytes]] = deque()  # with the lines they begin on
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Add bytes."""
        *lines, rest = (self._rest + data).split(b"\n")
        record = b""
        for line in lines:
            record += line + b"\n"
            if self._format == "jsonl" or record.count(b'"') % 2 == 0:
                self._add(record)
                record = b""
        self._rest = record + rest
        if len(self._rest) > _LONGEST:
            hint = ": is a quote missing?" if self._format == "csv" else ""
            raise DataError(f"{self._file}, line {self._line + 1}: a line has more than {_LONGEST:,} bytes{hint}")

    def end(self) -> None:
        """Take what has no line end for a line, too."""
        if self._rest:
            self._add(self._rest)
            self._rest = b""

    def _add(self, record: bytes) -> None:
        if self._format == "csv" and not self.header:
            self.header = record
        else:
            self.records.append((self._line + 1, record))
        self._line += lines_in(record)


def lines_in(record: bytes) -> int:
    """Count the lines of a record.

    >>> lines_in(b"a\\n"), lines_in(b"a"), lines_in(b'"a\\n"\\n')
    (1, 1, 2)
    """
    return record.count(b"\n") + (not record.endswith(b"\n"))


def _without_blanks(
    file: str, format: str, some: list[tuple[int, bytes]], header: bytes, positions: dict[str, int]
) -> Records:
    some = [(line, text) for line, text in some if text.strip()]
    return Records(file, format, [line for line, _ in some], [text for _, text in some], header, positions=positions)


class FileTail:
    """A file of lines that is complete."""

    def __init__(self, path: Path, format: str, key: str | None = None, stored: Mapping[str, int] | None = None):
        """Open the file at its position of those `stored`; without a `key` at its start, and it has no position."""
        check_file(path)
        self.path, self._format, self._key, self._ended = path, format, key, False
        known = stored or {}
        self._open(_open(path), known.get(f"{key}", 0), known.get(f"{key}#line", 0))

    def _open(self, file: BinaryIO, at: int, line: int) -> None:
        """Go on at a position of a file."""
        self._file, self._taken, self._lines_taken = file, at, line
        self._lines = Lines(str(self.path), self._format, line)
        if at and self._format == "csv":
            self._lines.header = self._read_header()
        file.seek(at)

    def _read_header(self) -> bytes:
        lines = Lines(str(self.path), "csv")
        self._file.seek(0)
        while not lines.header and (data := self._file.readline()):
            lines.feed(data)
        return lines.header

    @property
    def ended(self) -> bool:
        return self._ended and not self._lines.records

    @property
    def complete(self) -> bool:
        return True

    def look(self, wanted: int) -> int:
        while len(self._lines.records) < wanted and self._read():
            pass
        return len(self._lines.records)

    def _read(self) -> bool:
        """Read on; return whether there was something."""
        data = self._file.read(_CHUNK)
        if data:
            self._lines.feed(data)
        elif not self._ended:
            self._ended = True
            self._lines.end()
        return bool(data)

    def take(self, count: int) -> list[Records]:
        records = self._lines.records
        some = [records.popleft() for _ in range(min(count, len(records)))]
        self._taken = (self._taken or len(self._lines.header)) + sum(len(text) for _, text in some)
        if some:
            self._lines_taken = some[-1][0] - 1 + lines_in(some[-1][1])
        taken = _without_blanks(str(self.path), self._format, some, self._lines.header, self._positions())
        self.look(1)  # so that `ended` is known with the last records
        return [taken]

    def _positions(self) -> dict[str, int]:
        return {self._key: self._taken, f"{self._key}#line": self._lines_taken} if self._key is not None else {}

    def close(self) -> None:
        self._file.close()


class GrowingFile(FileTail):
    """A file of lines that is appended to, and may be truncated or renamed meanwhile."""

    def __init__(
        self, path: Path, format: str, key: str, stored: Mapping[str, int], note: Note, wait: bool = True
    ) -> None:
        """Begin at the position of those `stored`; with `wait` False, end where the file ends by now."""
        if format == "parquet":
            raise DataError(f"{path}: a Parquet file does not grow: put each into a folder, and follow that")
        if path.is_dir():
            raise DataError(f"{path}: is a folder, not a file")
        self.path, self._format, self._key, self._ended = path, format, key, False
        self._note, self._wait = note, wait
        self._stored = {part: stored.get(f"{key}{part}", 0) for part in ("", "#line", "#head")}
        self._is_open, self._missed, self._quiet_since = False, False, 0.0
        self._lines = Lines(str(path), format)

    @property
    def complete(self) -> bool:
        return not self._wait

    def look(self, wanted: int) -> int:
        if not self._is_open and not self._find():
            self._ended = not self._wait
            return 0
        return super().look(wanted)

    def _find(self) -> bool:
        """Open the file where reading was left, which may have another name by now; return whether it is there."""
        at, line, head = self._stored.values()
        try:
            file = _open(self.path)
        except FileNotFoundError:
            if self._wait and not self._missed:
                self._note(f"{self.path}: is not there yet: waiting for it")
            self._missed = True
            return False
        self._missed = True  # from now on it may be missing while it is renamed
        if at and not _is_same(file, at, head):
            former = self._find_renamed(at, head)
            if former is None:
                self._note(f"{self.path}: is another file than was read before: reading it from its start")
                at = line = 0
            else:
                file.close()
                file = former
        self._open(file, at, line)
        self._first = os.pread(file.fileno(), min(at, _HEAD), 0)
        self._is_open, self._quiet_since = True, time.monotonic()
        return True

    def _find_renamed(self, at: int, head: int) -> BinaryIO | None:
        """Return the file that was read before, if it is beside the one that has its name now."""
        for path in sorted(self.path.parent.glob("*")):
            if path != self.path and path.name.startswith(self.path.stem) and path.is_file():
                file = _open(path)
                if _is_same(file, at, head):
                    return file
                file.close()
        return None

    def _read(self) -> bool:
        size, at = os.fstat(self._file.fileno()).st_size, self._file.tell()
        if size < at or (size > at and os.pread(self._file.fileno(), len(self._first), 0) != self._first):
            if not self._lines.records:  # those that were read come first
                self._note(f"{self.path}: was truncated or replaced: reading it from its start")
                self._open(self._file, 0, 0)
                self._first = b""
            return False
        data = self._file.read(_CHUNK)
        if data:
            self._first += data[: _HEAD - len(self._first)]
            self._lines.feed(data)
            self._quiet_since = time.monotonic()
        elif self._is_renamed():
            self._lines.end()
            if not self._lines.records:
                self._file.close()
                self._is_open = False
                self._stored = dict.fromkeys(self._stored, 0)
                self._lines = Lines(str(self.path), self._format)
        elif not self._wait:
            self._ended = True
        return bool(data)

    def _is_renamed(self) -> bool:
        """Tell whether another file has the name by now, and this one has not grown for a while."""
        if self._wait and time.monotonic() - self._quiet_since < SETTLE:
            return False
        try:
            now, here = os.stat(self.path), os.fstat(self._file.fileno())
        except OSError:
            return False  # the next one is not there yet
        return (now.st_dev, now.st_ino) != (here.st_dev, here.st_ino)

    def _positions(self) -> dict[str, int]:
        return super()._positions() | {f"{self._key}#head": _fingerprint(self._first[: self._taken])}

    def close(self) -> None:
        if self._is_open:
            super().close()


def _open(path: Path) -> BinaryIO:
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None


def _fingerprint(head: bytes) -> int:
    return xxh3_64_intdigest(head) >> 1


def _is_same(file: BinaryIO, at: int, head: int) -> bool:
    """Tell whether a file is the one that was read up to a position."""
    if os.fstat(file.fileno()).st_size < at:
        return False
    return _fingerprint(os.pread(file.fileno(), min(at, _HEAD), 0)) == head


class ParquetTail:
    """The rows of a Parquet file."""

    def __init__(self, path: Path, key: str | None = None, stored: Mapping[str, int] | None = None) -> None:
        check_file(path)
        self.path, self._key, self._taken = path, key, (stored or {}).get(f"{key}", 0)
        self.ended, self._parts, self._pending = False, list[pa.Table](), 0
        with _arrow_errors(path):
            self._file = pyarrow.parquet.ParquetFile(path)
        self._batches = self._file.iter_batches()
        self._skip = self._taken

    @property
    def complete(self) -> bool:
        return True

    def look(self, wanted: int) -> int:
        while self._pending < wanted and not self.ended:
            with _arrow_errors(self.path):
                batch = next(self._batches, None)
            if batch is None:
                break
            rows = pa.Table.from_batches([batch]).slice(self._skip)
            self._skip = max(self._skip - batch.num_rows, 0)
            if rows.num_rows:
                self._parts.append(rows)
                self._pending += rows.num_rows
        self.ended = not self._pending
        return self._pending

    def take(self, count: int) -> list[Records]:
        rows = pa.concat_tables(self._parts) if self._parts else self._file.schema_arrow.empty_table()
        some, rest = rows.slice(0, count), rows.slice(count)
        self._parts, self._pending = ([rest] if rest.num_rows else []), rest.num_rows
        first, self._taken = self._taken, self._taken + some.num_rows
        self.look(1)
        lines = range(first + 1, self._taken + 1)
        positions = {self._key: self._taken} if self._key is not None else {}
        return [Records(str(self.path), "parquet", lines, rows=some, positions=positions)]

    def close(self) -> None:
        self._file.close()


@contextmanager
def _arrow_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: {str(error).splitlines()[0]:.300}") from None


def open_file(
    path: Path, format: str, key: str | None = None, stored: Mapping[str, int] | None = None
) -> FileTail | ParquetTail:
    """Open a complete file."""
    return ParquetTail(path, key, stored) if format == "parquet" else FileTail(path, format, key, stored)


class FolderTail:
    """The files of a folder whose names match a pattern, each when it is complete; several make an epoch."""

    def __init__(
        self,
        path: Path,
        pattern: str,
        key: str,
        stored: Mapping[str, int],
        *,
        format: str | None = None,
        follow: bool = False,
        files: int = 1,
    ) -> None:
        if not path.is_dir():
            raise DataError(f"{path}: no such folder")
        self.path, self.ended = path, False
        self._pattern, self._key, self._stored, self._format = pattern, key, stored, format
        self._follow, self._files = follow, files
        self._done = {
            name.removeprefix(f"{key}/") for name, at in stored.items() if name.startswith(f"{key}/") and at == ALL
        }
        self._seen: dict[str, tuple[int, int, float]] = {}  # size, time of change, and when that was first seen
        self._current: FileTail | ParquetTail | None = None
        self._empty: dict[str, int] = {}  # positions of files without a record

    @property
    def complete(self) -> bool:
        return True

    def look(self, wanted: int) -> int:
        while not self.ended:
            if self._current is None and not self._next():
                return 0
            assert self._current is not None
            pending = self._current.look(wanted)
            if pending:
                return pending
            self._empty |= self._finish()
        return 0

    def _next(self) -> bool:
        """Open the oldest file that is complete; return whether there is one."""
        files, waiting = self._list()
        for name in files:
            path = self.path / name
            try:
                self._current = open_file(path, self._format or format_of(path), f"{self._key}/{name}", self._stored)
            except FileNotFoundError:
                continue  # it has been moved away
            return True
        self.ended = not self._follow and not waiting
        return False

    def _list(self) -> tuple[list[str], bool]:
        """Return the names of complete files that are not in, oldest first, and whether others are being written."""
        found, waiting, seen = [], False, {}
        for entry in _entries(self.path):
            if entry.name in self._done or not self._is_meant(entry.name):
                continue
            try:
                status = entry.stat()
            except OSError:
                continue
            if not stat.S_ISREG(status.st_mode):
                continue
            size, changed = status.st_size, status.st_mtime_ns
            since = self._seen.get(entry.name, (0, 0, 0.0))
            seen[entry.name] = since if since[:2] == (size, changed) else (size, changed, time.monotonic())
            quiet = max(time.time() - changed / 1e9, time.monotonic() - seen[entry.name][2])
            if quiet >= SETTLE:
                found.append((changed, entry.name))
            else:
                waiting = True
        self._seen = seen
        return [name for _, name in sorted(found)], waiting

    def _is_meant(self, name: str) -> bool:
        if name.startswith((".", "_")) or name.lower().endswith(_TEMPORARY):
            return False
        return fnmatch.fnmatchcase(name, self._pattern)

    def _finish(self) -> dict[str, int]:
        """Close the file, which is in; return its position."""
        assert self._current is not None
        self._current.close()
        name = self._current.path.name
        self._current = None
        self._done.add(name)
        return {f"{self._key}/{name}": ALL}

    def take(self, count: int) -> list[Records]:
        taken: list[Records] = []
        while len(taken) < self._files and self.look(count):
            assert self._current is not None
            (records,) = self._current.take(count)
            count -= len(records)
            if not self._current.ended:
                return [*taken, records]
            positions = {**records.positions, **self._empty, **self._finish()}
            self._empty = {}
            taken.append(replace(records, positions=positions))
            if count <= 0:
                break
        return taken

    def close(self) -> None:
        if self._current is not None:
            self._current.close()


def _entries(path: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None


class InputTail:
    """Standard input, or any stream of bytes; a thread reads it, so that it can be waited for."""

    def __init__(self, stream: BinaryIO, format: str, name: str = "standard input") -> None:
        if format == "parquet":
            raise DataError(f"{name}: Parquet cannot be read from a stream: give jsonl or csv")
        self._format, self._name = format, name
        self._lines = Lines(name, format)
        self._chunks: SimpleQueue[bytes | OSError] = SimpleQueue()
        self._closed = False
        self._room = threading.Semaphore(_AHEAD)
        threading.Thread(target=self._read, args=(stream,), name=f"whence: {name}", daemon=True).start()

    def _read(self, stream: BinaryIO) -> None:
        read = getattr(stream, "read1", stream.read)
        try:
            while data := read(_CHUNK):
                self._room.acquire()
                self._chunks.put(data)
        except (OSError, ValueError) as error:
            self._chunks.put(error if isinstance(error, OSError) else OSError(str(error)))
            return
        self._chunks.put(b"")

    @property
    def ended(self) -> bool:
        return self._closed and not self._lines.records

    @property
    def complete(self) -> bool:
        return self._closed

    def look(self, wanted: int) -> int:
        while len(self._lines.records) < wanted and not self._closed:
            try:
                data = self._chunks.get_nowait()
            except Empty:
                break
            if isinstance(data, OSError):
                raise DataError(f"{self._name}: cannot be read: {data}")
            self._room.release()
            self._lines.feed(data)
            if not data:
                self._closed = True
                self._lines.end()
        return len(self._lines.records)

    def take(self, count: int) -> list[Records]:
        records = self._lines.records
        some = [records.popleft() for _ in range(min(count, len(records)))]
        return [_without_blanks(self._name, self._format, some, self._lines.header, {})]

    def close(self) -> None:
        """Leave the stream open: it is the caller's."""
