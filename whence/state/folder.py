"""A database's folder for readers: a log of what was done, images to start from, a manifest that names both.

The law: the state of a folder is that of its newest image and then of every record of the log after it. A record is
part of it once it is stable; an image once the manifest names it, which is what makes the log before it superfluous.

An image may stand in several chains, that of `main` and one for each partition: links of one epoch and segment belong
together, and a main link says how many others there must be. Files of inputs (`inputs.py`) are kept as long as the
records that name them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from whence.model.errors import StorageError
from whence.state import manifest as manifest_
from whence.state.chain import ImageChain
from whence.state.disk import UNFINISHED, Disk
from whence.state.inputs import epoch_of, sections_of
from whence.state.log import INPUT, Reader, Record
from whence.state.manifest import INPUTS, LOG, MANIFEST, STATE, Link
from whence.state.segment import FILE_HEADER, segment_path

MAIN = "main"  # the one chain of an embedded database
WORDS = "words/"  # begins the names of the parts of an image that hold the dictionary, from a code on


class LogPosition(NamedTuple):
    """A position in the log: between two records."""

    segment: int
    offset: int


@dataclass(frozen=True)
class RecoveryPoint:
    """A point from which to recover: an image, or nothing, and the log position of what comes after it."""

    epoch: int
    place: LogPosition
    time: int = 0
    links: tuple[Link, ...] = ()

    @property
    def partitions(self) -> int:
        """How many images beside the main one belong to it."""
        return self.links[-1].partitions if self.links else 0


_BEGINNING = RecoveryPoint(0, LogPosition(1, FILE_HEADER))


def chain_name(partition: int) -> str:
    """Return the manifest's name of a partition's chains.

    >>> chain_name(3)
    'p0003'
    """
    return f"p{partition:04d}"


class Folder:
    """A database's folder, opened for reading."""

    def __init__(self, path: Path, disk: Disk):
        self.path, self.disk = path.absolute(), disk  # wherever the process goes meanwhile
        self._manifest_path = str(self.path / MANIFEST)
        self.reload()

    def reload(self) -> None:
        """Look again at what the folder holds."""
        self._seen = self._stamp()  # before it is read: if it is replaced meanwhile, it is read once more
        found = manifest_.load(self.disk, self.path)
        if found is None:
            raise StorageError(f"{self.path}: there is no database here")
        self.manifest = found

    def _stamp(self) -> tuple[int, int, int] | None:
        """Return what changes whenever the manifest is replaced."""
        try:
            found = os.stat(self._manifest_path)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    @property
    def has_changed(self) -> bool:
        """Whether the manifest was replaced since it was read."""
        return self._stamp() != self._seen

    @property
    def chains(self) -> tuple[tuple[Link, ...], ...]:
        """Those of `main`."""
        return self.manifest.chains.get(MAIN, ())

    def partition_chain(self, partition: int, start: RecoveryPoint) -> tuple[Link, ...]:
        """Return the links of a partition's image that belongs to a start; none if there is no such image."""
        for links in self.manifest.chains.get(chain_name(partition), ()) if start.links else ():
            for end, link in enumerate(links, 1):
                if snapshot_of(link) == snapshot_of(start.links[-1]):
                    return links[:end]
        return ()

    @property
    def recursion_limit(self) -> int | None:
        """As the database was given it, if it was."""
        kept = self.manifest.options.get("recursion_limit")
        return None if kept is None else int(kept)

    def starts(self) -> list[RecoveryPoint]:
        """List the points from which epochs can be recovered, oldest first."""
        segments, found = self.manifest.segments, []
        if segments[0] == _BEGINNING.place.segment:
            found.append(_BEGINNING)
        for links in self.chains:
            for end, link in enumerate(links, 1):
                if link.segment >= segments[0]:
                    found.append(
                        RecoveryPoint(link.epoch, LogPosition(link.segment, FILE_HEADER), link.time, links[:end])
                    )
        if not any(start.partitions for start in found):
            return found
        chains = self.manifest.chains
        there = {name: {snapshot_of(link) for links in of for link in links} for name, of in chains.items()}
        return [start for start in found if all(_has(there, p, start) for p in range(start.partitions))]

    @property
    def oldest(self) -> int:
        """The first epoch that can still be read."""
        starts = self.starts()
        if not starts:
            raise StorageError(f"{self.path}: an image cannot be read, for its partitions are not in the manifest")
        return starts[0].epoch

    def start(self, until: int | None = None) -> RecoveryPoint:
        """Return the newest start that is not later than epoch `until`."""
        fitting = [start for start in self.starts() if until is None or start.epoch <= until]
        if not fitting:
            raise StorageError(f"{self.path}: epoch {until} is no longer kept; the oldest one is {self.oldest}")
        return fitting[-1]

    def chain(self, links: tuple[Link, ...]) -> ImageChain:
        return ImageChain(self.path / STATE, links)

    def reader(self, place: LogPosition) -> Reader:
        """Return a reader of the log from a position on."""
        return Reader(self.path / LOG, segment=place.segment, offset=place.offset)

    def read(self, reader: Reader) -> Iterator[Record]:
        """Return the records added to the log since the last read; raise StorageError if what was read is gone."""
        segments = [n for n in self.manifest.segments if n >= reader.segment]
        if reader.segment + 1 in segments[:1]:
            segments.insert(0, reader.segment)  # the spare one
        return reader.read(segments)

    def look_again(self, reader: Reader) -> None:
        """Read the manifest again if the log goes on in a segment after the reader's."""
        if segment_path(self.path / LOG, reader.segment + 1).exists():
            self.reload()

    def log_bytes(self, segment: int, offset: int) -> int:
        """Count the bytes of log after a position."""
        return sum(self._size(n) for n in self.manifest.segments if n >= segment) - offset

    def _size(self, segment: int) -> int:
        try:
            return segment_path(self.path / LOG, segment).stat().st_size
        except OSError as error:
            raise StorageError(f"{segment_path(self.path / LOG, segment)}: {error.strerror}") from error

    @property
    def spare(self) -> Path:
        """The segment dropped last, which stays until the next one is dropped, for readers that are still in it."""
        return segment_path(self.path / LOG, self.manifest.segments[0] - 1)

    def files(self) -> list[Path]:
        """List every file that the manifest names."""
        logs = [segment_path(self.path / LOG, n) for n in self.manifest.segments]
        links = (link for chains in self.manifest.chains.values() for chain in chains for link in chain)
        return [*logs, *(self.path / STATE / link.file for link in links)]

    def inputs(self) -> list[Path]:
        """List the input files that a record may name: those of epochs after the oldest start."""
        names = [name for name in self.disk.names(self.path / INPUTS) if not name.endswith(UNFINISHED)]
        floor = self._floor
        return [self.path / INPUTS / name for name in names if (epoch_of(name) or 0) > floor]

    def keeps_input(self, name: str) -> bool:
        """Tell whether a kept record may name that input file."""
        return (epoch_of(name) or 0) > self._floor

    @property
    def _floor(self) -> int:
        """The epoch after which the log begins."""
        return next((start.epoch for start in self.starts()), 0)


def named_inputs(log: Path, segments: Sequence[int]) -> set[str]:
    """List the input files that the records of a log name."""
    records = (record for record in Reader(log).read(segments) if record.kind == INPUT)
    return {piece.file for record in records for piece in sections_of(record.payload)}


def snapshot_of(link: Link) -> tuple[int, int]:
    """Return what the links of one snapshot have in common."""
    return link.epoch, link.segment


def _has(there: dict[str, set[tuple[int, int]]], partition: int, start: RecoveryPoint) -> bool:
    return snapshot_of(start.links[-1]) in there.get(chain_name(partition), ())
