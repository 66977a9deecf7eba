"""A database's folder: a log of what was done, images to start from, and a manifest that names both.

The law: the state of a folder is that of its newest image and then of every record of the log after it. A record is
part of it once it is stable; an image once the manifest names it, which is what makes the log before it superfluous.
`Folder` is what anyone may read; `Store` is what its one writer has.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from whence.engine.epoch import Epoch
from whence.errors import StorageError
from whence.model.codes import Dictionary
from whence.sql.options import duration
from whence.state import manifest as manifest_
from whence.state.chain import Chain, Writer
from whence.state.codec import pack_epoch, pack_schema
from whence.state.directory import Directory
from whence.state.disk import UNFINISHED, Disk
from whence.state.lock import Lock
from whence.state.log import DURABILITIES, EPOCH, SCHEMA, Durability, Log, Reader, Record
from whence.state.manifest import LOG, STATE, Link
from whence.state.segment import FILE_HEADER, segment_path

MAIN = "main"  # the one partition of an embedded database
WORDS = "words/"  # begins the names of the parts of an image that hold the dictionary, from a code on
_LONGEST_CHAIN = 32  # files


class Place(NamedTuple):
    """Between two records of the log."""

    segment: int
    offset: int


@dataclass(frozen=True)
class Start:
    """Where recovery begins: an image, or nothing, and the place in the log of what comes after it."""

    epoch: int
    place: Place
    time: int = 0
    links: tuple[Link, ...] = ()


@dataclass(frozen=True)
class Retention:
    """How much of the past is kept: so many epochs before the last one, so many microseconds, or all of it."""

    epochs: int = 0
    micros: int = 0
    everything: bool = False

    def lets_go(self, start: Start, epoch: int, now: int) -> bool:
        """Whether what was before a start is no longer wanted, at an epoch and a time."""
        return not self.everything and start.epoch <= epoch - self.epochs and start.time <= now - self.micros


def read_retention(retain: int | str) -> Retention:
    """What users may say: a number of epochs, a time, or 'all'.

    >>> read_retention("7 days").micros, read_retention(100).epochs, read_retention("all").everything
    (604800000000, 100, True)
    """
    if isinstance(retain, str) and retain.strip().isascii() and retain.strip().isdigit():
        retain = int(retain)
    if isinstance(retain, int) and not isinstance(retain, bool) and retain >= 0:
        return Retention(epochs=retain)
    if retain == "all":
        return Retention(everything=True)
    try:
        return Retention(micros=duration("retain", str(retain)))
    except ValueError:
        raise StorageError(f"retain is a number of epochs, a time such as '7 days', or 'all', not {retain!r}") from None


_BEGINNING = Start(0, Place(1, FILE_HEADER))


class Folder:
    """A database's folder as a process that only reads it sees it."""

    def __init__(self, path: Path, disk: Disk):
        self.path, self.disk = path.absolute(), disk  # wherever the process goes meanwhile
        self.reload()

    def reload(self) -> None:
        """Look again at what the folder holds."""
        found = manifest_.load(self.disk, self.path)
        if found is None:
            raise StorageError(f"{self.path}: there is no database here")
        self.manifest = found

    @property
    def chains(self) -> tuple[tuple[Link, ...], ...]:
        return self.manifest.chains.get(MAIN, ())

    @property
    def recursion_limit(self) -> int | None:
        """As the database was given it, if it was."""
        kept = self.manifest.options.get("recursion_limit")
        return None if kept is None else int(kept)

    def starts(self) -> list[Start]:
        """From where epochs can be recovered, oldest first."""
        segments, found = self.manifest.segments, []
        if segments[0] == _BEGINNING.place.segment:
            found.append(_BEGINNING)
        for links in self.chains:
            for end, link in enumerate(links, 1):
                if link.segment >= segments[0]:
                    found.append(Start(link.epoch, Place(link.segment, FILE_HEADER), link.time, links[:end]))
        return found

    @property
    def oldest(self) -> int:
        """The first epoch that can still be read."""
        return self.starts()[0].epoch

    def start(self, until: int | None = None) -> Start:
        """The newest start that is not later than epoch `until`."""
        fitting = [start for start in self.starts() if until is None or start.epoch <= until]
        if not fitting:
            raise StorageError(f"{self.path}: epoch {until} is no longer kept; the oldest one is {self.oldest}")
        return fitting[-1]

    def chain(self, links: tuple[Link, ...]) -> Chain:
        return Chain(self.path / STATE, links)

    def reader(self, place: Place) -> Reader:
        """Reads the log from a place on."""
        return Reader(self.path / LOG, segment=place.segment, offset=place.offset)

    def read(self, reader: Reader) -> Iterator[Record]:
        """What has been added to the log since the reader last read; StorageError if what it read is there no more."""
        segments = [n for n in self.manifest.segments if n >= reader.segment]
        if reader.segment + 1 in segments[:1]:
            segments.insert(0, reader.segment)  # the spare one
        return reader.read(segments)

    def look_again(self, reader: Reader) -> None:
        """Read the manifest again if the log goes on in a segment after the reader's."""
        if segment_path(self.path / LOG, reader.segment + 1).exists():
            self.reload()

    def log_bytes(self, segment: int, offset: int) -> int:
        """Bytes of log after a place."""
        return sum(self._size(n) for n in self.manifest.segments if n >= segment) - offset

    def _size(self, segment: int) -> int:
        try:
            return segment_path(self.path / LOG, segment).stat().st_size
        except OSError as error:
            raise StorageError(f"{segment_path(self.path / LOG, segment)}: {error.strerror}") from error

    @property
    def spare(self) -> Path:
        """The segment let go of last, which stays for readers who have not come to its end until another follows it."""
        return segment_path(self.path / LOG, self.manifest.segments[0] - 1)

    def files(self) -> list[Path]:
        """Every file that the manifest names."""
        logs = [segment_path(self.path / LOG, n) for n in self.manifest.segments]
        return [*logs, *(self.path / STATE / link.file for links in self.chains for link in links)]


class Store:
    """The folder of a database as its writer has it. One thread at a time appends, and one at a time makes images."""

    def __init__(
        self,
        path: Path,
        disk: Disk,
        *,
        durability: Durability = "commit",
        sync_interval: float = 0.1,
        retain: int | str | None = None,
        recursion_limit: int | None = None,
        snapshot_bytes: int = 16 << 20,
        snapshot_records: int = 20_000,
    ):
        path = path.absolute()
        self.path, self.disk = path, disk
        if durability not in DURABILITIES:
            raise StorageError(f"durability is one of {', '.join(DURABILITIES)}, not {durability!r}")
        if not isinstance(sync_interval, int | float) or not sync_interval > 0:
            raise StorageError(f"sync_interval is a number of seconds above 0, not {sync_interval!r}")
        if retain is not None:
            read_retention(retain)  # or an error, before anything is written
        self._snapshot_bytes, self._snapshot_records = snapshot_bytes, snapshot_records
        self._guard = threading.Lock()  # of the manifest
        self._manifest_due = False  # the log goes on in a segment that the manifest does not name yet
        self._resumed = False  # the runtime has what the folder has
        self._words = 0  # of the dictionary, that the log has
        self._before: tuple[Directory, tuple[Link, ...]] | None = None
        self.tail_records = 0
        self.tail_bytes = 0
        self._rotated = (0, 0)  # what of that stood before the last rotation
        self._image_segment = 0  # the one that it began
        manifest_.load(disk, path)  # or an error: this is no place for a database
        disk.make_folder(path)
        self.lock = Lock(disk, path)
        try:
            self.log = self._open_log(durability, sync_interval)
            try:
                self._open_folder({"retain": retain, "recursion_limit": recursion_limit})
            except BaseException:
                self.log.close()
                raise
        except BaseException:
            self.lock.close()
            raise

    def _open_log(self, durability: Durability, interval: float) -> Log:
        found = manifest_.load(self.disk, self.path)
        segments = found.segments if found is not None else ()
        return Log(self.disk, self.path / LOG, segments, durability=durability, interval=interval)

    def _open_folder(self, settings: dict[str, int | str | None]) -> None:
        """Settings that are given are kept with the database; others are as they were."""
        self.disk.make_folder(self.path / STATE)
        if manifest_.load(self.disk, self.path) is None:
            manifest_.save(self.disk, self.path, manifest_.new_manifest(self.log.segments))
        self.folder = Folder(self.path, self.disk)
        options = self.folder.manifest.options
        wanted = dict(options) | {name: str(value) for name, value in settings.items() if value is not None}
        if wanted != options:
            self._change(options=wanted)
        self.retention = read_retention(self.folder.manifest.options.get("retain", 0))
        self._sweep()
        if self.folder.chains:
            links = self.folder.chains[-1]
            self._before = (self.folder.chain(links).directory, links)

    @property
    def is_ours(self) -> bool:
        """Whether this is the process that opened the folder, and not a child forked from it."""
        try:
            self.lock.check_process()
        except StorageError:
            return False
        return True

    def _check_ours(self) -> None:
        self.lock.check_process()
        self.lock.check_place()

    # -- the log -----------------------------------------------------------------------------------------------------

    def resume(self, records: int, size: int, words: int) -> None:
        """After recovery: the log holds so many records and bytes after the image, and the two so many words."""
        self.tail_records, self.tail_bytes, self._words = records, size, words
        self._resumed = True

    @property
    def failed(self) -> bool:
        """Whether a sync failed, and the runtime has not been recovered since from what is stable."""
        return self.log.failed or not self._resumed

    def fall_back(self, doubtful: int | None = None) -> None:
        """After a failed sync: cut the log back to what is stable; or to the ticket before a record that is in doubt.
        It has failed until someone has recovered that."""
        self._resumed = False
        if self.log.failed:
            self.log.recover_to_synced()
        elif doubtful is not None and self.log.written != doubtful:
            self.log.withdraw(self.log.written)

    def write_epoch(self, epoch: Epoch, dictionary: Dictionary) -> int:
        """Append an epoch; the ticket to wait for."""
        words = dictionary.since(self._words)
        return self._append(EPOCH, epoch.number, epoch.time, pack_epoch(epoch, words, self._words), len(words))

    def write_statements(self, statements: list[str], epoch: int, now: int, dictionary: Dictionary) -> int:
        """Append statements that have changed the catalog after an epoch; the ticket to wait for."""
        words = dictionary.since(self._words)
        return self._append(SCHEMA, epoch, now, pack_schema(statements, words, self._words), len(words))

    def write_words(self, dictionary: Dictionary, epoch: int, now: int) -> None:
        """Append the words that the dictionary has and the log has not, for whoever replays it from further back."""
        if len(dictionary) > self._words:
            self.write_statements([], epoch, now, dictionary)

    def _append(self, kind: int, epoch: int, now: int, parts: list[Any], words: int) -> int:
        self._check_ours()
        if self._manifest_due:
            self._name_segments()
        size = self.log.segment_size
        ticket = self.log.append(kind, epoch, now, parts)
        self._words += words
        self.tail_records += 1
        self.tail_bytes += self.log.segment_size - size
        return ticket

    @contextmanager
    def appending(self) -> Iterator[None]:
        """If it ends in an error, what was appended inside is withdrawn."""
        written, before = self.log.written, (self._words, self.tail_records, self.tail_bytes)
        try:
            yield
        except BaseException:
            if self.log.written != written:
                self._words, self.tail_records, self.tail_bytes = before
                self.log.withdraw(self.log.written)
            raise

    def sync(self, ticket: int) -> None:
        """Return when a record is stable, as far as the durability asks for that."""
        if ticket:
            self.log.sync(ticket)

    @property
    def tail_is_long(self) -> bool:
        """Whether replaying the log after the newest image would take long."""
        return self.tail_bytes >= self._snapshot_bytes or self.tail_records >= self._snapshot_records

    # -- images ------------------------------------------------------------------------------------------------------

    def rotate(self) -> None:
        """Begin a new segment, with which the log goes on after an image."""
        self._check_ours()
        number = self.log.rotate()
        self._manifest_due = True
        self._name_segments()
        self._rotated = (self.tail_records, self.tail_bytes)
        self._image_segment = number

    def begin_image(self, epoch: int) -> tuple[Writer, Directory | None]:
        """A file for an image of an epoch, after `rotate`, and the image that it is a patch of, if it is one."""
        before = self._before[0] if self._before is not None and not self._outgrown(self._before[1]) else None
        kind = "base" if before is None else "patch"
        name = f"{MAIN}-{epoch:012d}-{self.log.segments[-1]:08d}.{kind}"
        return Writer(self.disk, self.path / STATE / name, before), before

    def _outgrown(self, links: tuple[Link, ...]) -> bool:
        return sum(link.bytes for link in links[1:]) > links[0].bytes or len(links) >= _LONGEST_CHAIN

    def publish(self, writer: Writer, meta: dict[str, Any], epoch: int, now: int) -> None:
        """Finish an image, let it take its place, and let go of what that makes superfluous."""
        directory = writer.finish(meta)
        kind: Literal["base", "patch"] = "base" if writer.path.suffix == ".base" else "patch"
        link = Link(kind, writer.path.name, meta["epoch"], directory.written, meta["time"], self._image_segment)
        former = self.folder.chains
        chains = (*former, (link,)) if kind == "base" else (*former[:-1], (*former[-1], link))
        self._change(chains={MAIN: chains})
        self._before = (directory, chains[-1])
        self.tail_records -= self._rotated[0]
        self.tail_bytes -= self._rotated[1]
        self.let_go(epoch, now)

    def let_go(self, epoch: int, now: int) -> None:
        """Forget the past that is not to be retained."""
        manifest, starts = self.folder.manifest, self.folder.starts()
        while len(starts) > 1 and self.retention.lets_go(starts[1], epoch, now):
            starts.pop(0)
        needed = [start.links[0] for start in starts if start.links]
        kept = tuple(links for links in self.folder.chains if links[0] in needed)
        segments = tuple(n for n in manifest.segments if n >= starts[0].place.segment)
        if (kept, segments) == (self.folder.chains, manifest.segments):
            return
        self._change(segments=segments, chains={MAIN: kept})
        unnamed = [n for n in self.log.segments if n < segments[0]]
        with suppress(StorageError):  # what stays is swept at the next opening
            self.log.drop(unnamed[:-1])  # all but the spare one
            self._sweep()

    def _name_segments(self) -> None:
        """Let the manifest name the segments that the log has begun."""
        named = self.folder.manifest.segments
        self._change(segments=(*named, *(n for n in self.log.segments if n > named[-1])))

    def _change(self, **fields: Any) -> None:
        """Replace the manifest by one with other fields."""
        self.lock.check_place()
        with self._guard:
            manifest = replace(self.folder.manifest, **fields)
            manifest_.save(self.disk, self.path, manifest)
            self.folder.manifest = manifest
            self._manifest_due = manifest.segments[-1] != self.log.segments[-1]

    def _sweep(self) -> None:
        """Remove images that the manifest does not name: let go of, or left by a crash or an error."""
        named = {path.name for path in self.folder.files()}
        for name in self.disk.names(self.path / STATE):
            if name not in named and name.removesuffix(UNFINISHED).endswith((".base", ".patch")):
                self.disk.remove(self.path / STATE / name)

    def close(self) -> None:
        """Make everything stable and let go of the folder. In a forked child both are the parent's business."""
        if not self.is_ours:
            return
        try:
            self.log.close()
        finally:
            self.lock.close()
