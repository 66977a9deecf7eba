"""A database's folder for its one writer: appends to the log, takes in images, removes superseded files.

The law: what `Folder` (`folder.py`) reads is at any moment, and after any crash, a state that the writer was in. The
manifest is changed at once to name the images of a snapshot, all of them, and no longer what they stand in for; only
then are files removed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from whence.engine.core.epoch import Epoch
from whence.model.codes import Codes, Dictionary
from whence.model.errors import StorageError
from whence.sql.options import duration
from whence.state import manifest as manifest_
from whence.state.chain import Writer
from whence.state.codec import pack_epoch, pack_forgotten, pack_schema
from whence.state.directory import Directory
from whence.state.disk import UNFINISHED, Disk
from whence.state.folder import MAIN, WORDS, Folder, RecoveryPoint, chain_name, snapshot_of
from whence.state.inputs import epoch_of, pack_inputs
from whence.state.lock import Lock
from whence.state.log import DURABILITIES, EPOCH, EPOCHS, FORGET, INPUT, PLANS, SCHEMA, Durability, Log
from whence.state.manifest import INPUTS, LOG, STATE, Link

__all__ = ["MAIN", "WORDS", "Folder", "HistoryRetention", "RecoveryPoint", "Store", "chain_name", "read_retention"]

_LONGEST_CHAIN = 32  # files


@dataclass(frozen=True)
class HistoryRetention:
    """The part of the past that is kept: a number of epochs before the last one, of microseconds, or all of it."""

    epochs: int = 0
    micros: int = 0
    everything: bool = False

    def is_expired(self, start: RecoveryPoint, epoch: int, now: int) -> bool:
        """Tell whether the past before a start is no longer wanted, at an epoch and a time."""
        return not self.everything and start.epoch <= epoch - self.epochs and start.time <= now - self.micros


def read_retention(retain: int | str) -> HistoryRetention:
    """Parse the setting of users: a number of epochs, a time, or 'all'.

    >>> read_retention("7 days").micros, read_retention(100).epochs, read_retention("all").everything
    (604800000000, 100, True)
    """
    if isinstance(retain, str) and retain.strip().isascii() and retain.strip().isdigit():
        retain = int(retain)
    if isinstance(retain, int) and not isinstance(retain, bool) and retain >= 0:
        return HistoryRetention(epochs=retain)
    if retain == "all":
        return HistoryRetention(everything=True)
    try:
        return HistoryRetention(micros=duration("retain", str(retain)))
    except ValueError:
        raise StorageError(f"retain is a number of epochs, a time such as '7 days', or 'all', not {retain!r}") from None


class Store:
    """A database's folder, opened by its writer. One thread at a time appends, and one at a time makes images."""

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
        self._distrusted = False  # the newest chains of partitions are not to be gone on with
        self.tail_records = 0
        self.tail_bytes = 0
        self._rotated = (0, 0)  # what of that stood before the last rotation
        self._image_segment = 0  # the one that it began
        self._era: Mapping[str, int] | None = None  # the eras with ours, until the manifest has it
        self._is_new = False  # the folder was made by us, and its first manifest has our era
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
        """Open the folder: settings that are given are stored with the database, others are read from it."""
        self.disk.make_folder(self.path / STATE)
        given = {name: str(value) for name, value in settings.items() if value is not None}
        if manifest_.load(self.disk, self.path) is None:
            first = replace(manifest_.new_manifest(self.log.segments, given), eras=manifest_.add_era({}, 0))
            manifest_.save(self.disk, self.path, first)
            self._is_new = True
        self.folder = Folder(self.path, self.disk)
        options = self.folder.manifest.options
        if options != {**options, **given}:
            self._change(options={**options, **given})
        self.retention = read_retention(self.folder.manifest.options.get("retain", 0))
        self._sweep()
        self._sweep_inputs(self._last_epoch())
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
        """Go on after recovery: note the records and bytes of log after the image, and the dictionary values of the
        two."""
        self.tail_records, self.tail_bytes, self._words = records, size, words
        self._resumed = True

    def begin_era(self, epoch: int) -> Mapping[str, int]:
        """Begin an era after the last epoch that was recovered; return all eras, the new one last.

        A disk that is full or read-only does not keep a database from being read: then nothing is appended until the
        manifest has the era."""
        if self._is_new:
            self._is_new = False
            return self.folder.manifest.eras
        eras = self._era = manifest_.add_era(self.folder.manifest.eras, epoch)
        with suppress(StorageError):
            self._name_era()
        return eras

    def _name_era(self) -> None:
        self._change(eras=self._era)
        self._era = None

    @property
    def failed(self) -> bool:
        """Whether a sync failed, and the runtime has not been recovered since from what is stable."""
        return self.log.failed or not self._resumed

    def fall_back(self, doubtful: int | None = None) -> None:
        """Cut the log back to what is stable, after a failed sync, or to the ticket before a record that is in
        doubt."""
        self._resumed = False
        if self.log.failed:
            self.log.recover_to_synced()
        elif doubtful is not None and self.log.written != doubtful:
            self.log.withdraw(self.log.written)

    def write_epoch(self, epoch: Epoch, dictionary: Dictionary) -> int:
        """Append an epoch; return the ticket to wait for."""
        words, kind, pack = dictionary.since(self._words), EPOCH, pack_epoch
        if epoch.has_inputs:
            kind, pack = INPUT, pack_inputs
        return self._append(kind, epoch.number, epoch.time, pack(epoch, words, self._words), len(words))

    def write_statements(self, statements: list[str], epoch: int, now: int, dictionary: Dictionary) -> int:
        """Append statements that have changed the catalog after an epoch; return the ticket to wait for."""
        words = dictionary.since(self._words)
        return self._append(SCHEMA, epoch, now, pack_schema(statements, words, self._words), len(words))

    def write_forgotten(self, codes: Codes, epoch: int, now: int, dictionary: Dictionary) -> int:
        """Append that the words of some codes are forgotten after an epoch; return the ticket to wait for."""
        self.write_words(dictionary, epoch, now)
        return self._append(FORGET, epoch, now, [pack_forgotten(codes)], 0)

    def write_plans(self, record: bytes, epoch: int, now: int) -> int:
        """Append which plans of views were switched after an epoch; return the ticket to wait for."""
        return self._append(PLANS, epoch, now, [record], 0)

    def write_words(self, dictionary: Dictionary, epoch: int, now: int) -> None:
        """Append the words that the dictionary has and the log has not, for a replay from further back."""
        if len(dictionary) > self._words:
            self.write_statements([], epoch, now, dictionary)

    def _append(self, kind: int, epoch: int, now: int, parts: list[Any], words: int) -> int:
        self._check_ours()
        if self._manifest_due:
            self._name_segments()
        if self._era is not None:
            self._name_era()
        size = self.log.segment_size
        ticket = self.log.append(kind, epoch, now, parts)
        self._words += words
        self.tail_records += 1
        self.tail_bytes += self.log.segment_size - size
        return ticket

    @contextmanager
    def appending(self) -> Iterator[None]:
        """Withdraw what was appended inside the block if it raises."""
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
        """Begin an image of an epoch, after `rotate`; return its writer, and the image that it patches, if any."""
        before = self._before[0] if self._before is not None and not self._outgrown(self._before[1]) else None
        kind = "base" if before is None else "patch"
        name = f"{MAIN}-{epoch:012d}-{self.log.segments[-1]:08d}.{kind}"
        return Writer(self.disk, self.path / STATE / name, before), before

    def partition_image(self, partition: int, epoch: int) -> tuple[Path, tuple[Link, ...]]:
        """Begin a partition's part of an image, after `rotate`; return its writer, and the chain that it patches, if
        any.

        It goes on only after the newest image: a chain that an embedded writer has left behind is history."""
        starts = self.folder.starts()
        links = self.folder.partition_chain(partition, starts[-1]) if starts else ()
        if links and (self._distrusted or self._outgrown(links)):
            links = ()
        name = f"{chain_name(partition)}-{epoch:012d}-{self.log.segments[-1]:08d}.{'patch' if links else 'base'}"
        return self.path / STATE / name, links

    def distrust_images(self) -> None:
        """Have the next image written whole: blocks of the chains so far may be damaged."""
        self._before, self._distrusted = None, True

    def _outgrown(self, links: tuple[Link, ...]) -> bool:
        return sum(link.bytes for link in links[1:]) > links[0].bytes or len(links) >= _LONGEST_CHAIN

    def publish(
        self,
        writer: Writer,
        meta: dict[str, Any],
        epoch: int,
        now: int,
        chains: Mapping[str, tuple[Link, ...]] | None = None,
    ) -> None:
        """Finish an image, add it to the manifest, and remove what it supersedes.

        `chains` are those of all partitions, by `chain_name`, if there are any: each ends with an image of the same
        epoch, which is stable, and whose time and segment are filled in here."""
        directory = writer.finish(meta)
        kind: Literal["base", "patch"] = "base" if writer.path.suffix == ".base" else "patch"
        count = len(chains or ())
        link = Link(kind, writer.path.name, meta["epoch"], directory.written, meta["time"], self._image_segment, count)
        former = self.folder.chains
        main = (*former, (link,)) if kind == "base" else (*former[:-1], (*former[-1], link))
        self._change(chains={**self.folder.manifest.chains, **self._with_chains(chains or {}, link), MAIN: main})
        self._before, self._distrusted = (directory, main[-1]), False
        self.tail_records -= self._rotated[0]
        self.tail_bytes -= self._rotated[1]
        self.drop_history(epoch, now)

    def _with_chains(
        self, chains: Mapping[str, tuple[Link, ...]], main: Link
    ) -> dict[str, tuple[tuple[Link, ...], ...]]:
        """Append the partitions' chains to those that the manifest has, or replace the one they continue."""
        if set(chains) != {chain_name(partition) for partition in range(len(chains))}:
            raise ValueError(f"there are no partitions such as {sorted(chains)}")
        found = {}
        for name, links in chains.items():
            if links[-1].epoch != main.epoch:
                raise ValueError(f"{links[-1].file} is not of epoch {main.epoch}")
            links = (*links[:-1], replace(links[-1], time=main.time, segment=main.segment))
            former = self.folder.manifest.chains.get(name, ())
            found[name] = (*(former[:-1] if former and former[-1] == links[:-1] else former), links)
        return found

    def drop_history(self, epoch: int, now: int) -> None:
        """Forget the past that is not to be retained."""
        manifest, starts = self.folder.manifest, self.folder.starts()
        while len(starts) > 1 and self.retention.is_expired(starts[1], epoch, now):
            starts.pop(0)
        wanted = {snapshot_of(start.links[-1]) for start in starts if start.links}
        kept = {name: _needed(chains, wanted) for name, chains in manifest.chains.items()}
        kept = {name: chains for name, chains in kept.items() if chains}
        segments = tuple(n for n in manifest.segments if n >= starts[0].place.segment)
        if (kept, segments) == (manifest.chains, manifest.segments):
            return
        self._change(segments=segments, chains=kept)
        unnamed = [n for n in self.log.segments if n < segments[0]]
        with suppress(StorageError):  # what stays is swept at the next opening
            self.log.drop(unnamed[:-1])  # all but the spare one
            self._sweep()
            self._sweep_inputs()

    def _name_segments(self) -> None:
        """Add the segments that the log has begun to the manifest."""
        named = self.folder.manifest.segments
        self._change(segments=(*named, *(n for n in self.log.segments if n > named[-1])))

    def _change(self, **fields: Any) -> None:
        """Replace the manifest by one with other fields."""
        self.lock.check_place()
        with self._guard:
            manifest = replace(self.folder.manifest, format=manifest_.FORMAT, **fields)
            manifest_.save(self.disk, self.path, manifest)
            self.folder.manifest = manifest
            self._manifest_due = manifest.segments[-1] != self.log.segments[-1]

    def _sweep(self) -> None:
        """Remove images that the manifest does not name: let go of, or left by a crash or an error."""
        named = {path.name for path in self.folder.files()}
        for name in self.disk.names(self.path / STATE):
            if name not in named and name.removesuffix(UNFINISHED).endswith((".base", ".patch")):
                self.disk.remove(self.path / STATE / name)

    def _sweep_inputs(self, last: int | None = None) -> None:
        """Remove files of inputs that belong to epochs no longer kept; and, given the last epoch there is, such as no
        record can name. (Without it they may be of an epoch that is about to come.)"""
        oldest = self.folder.oldest
        for name in self.disk.names(self.path / INPUTS):
            epoch = epoch_of(name)
            stray = last is not None and (epoch is None or epoch > last or name.endswith(UNFINISHED))
            if stray or (epoch is not None and epoch <= oldest):
                self.disk.remove(self.path / INPUTS / name)

    def _last_epoch(self) -> int | None:
        """Return the last epoch of the log, if there are inputs and that matters; None also if it cannot be read."""
        if not self.disk.names(self.path / INPUTS):
            return None
        start = self.folder.start()
        last = start.epoch
        with suppress(StorageError):  # recovery will tell
            for record in self.folder.read(self.folder.reader(start.place)):
                last = record.epoch if record.kind in EPOCHS else last
            return last
        return None

    def close(self) -> None:
        """Make everything stable and close the folder. In a forked child both are the parent's business."""
        if not self.is_ours:
            return
        try:
            self.log.close()
        finally:
            self.lock.close()


def _needed(chains: tuple[tuple[Link, ...], ...], snapshots: set[tuple[int, int]]) -> tuple[tuple[Link, ...], ...]:
    """Return the chains that some of these snapshots are in."""
    return tuple(links for links in chains if any(snapshot_of(link) in snapshots for link in links))
