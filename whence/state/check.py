"""Check the files of a database: are they as they were written?

The law: every file that is listed without a problem has been read in full (a file of inputs as far as records name it)
and agrees with its checksums, and the epochs of the log follow one another without a gap. Nothing is changed, and a
writer may be at work meanwhile: what it removes during the check is no part of the database any more and is skipped.

Remains of an interrupted append at the end of the log are no problem: they were never acknowledged, and opening the
database for writing cuts them off. Nor are files that the manifest does not name; they are listed as strays.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from whence.model.errors import CorruptionError, StorageError
from whence.model.progress import Progress
from whence.state.disk import UNFINISHED, Disk, size_of, storage_errors
from whence.state.folder import Folder
from whence.state.inputs import read_input, sections_of
from whence.state.lock import LOCK
from whence.state.manifest import EXCHANGE, INPUTS, LOG, MANIFEST, STATE, STREAMS, Link
from whence.state.segment import EPOCHS, INPUT, Record, SegmentScan, Torn, segment_path

_UNKNOWN = -1  # where a segment ends that is missing or damaged
_PATIENCE = 0.05  # seconds for a writer that is just replacing a record


@dataclass(frozen=True)
class Problem:
    """A fault, in a file at an offset as far as that is known."""

    path: Path
    offset: int | None
    what: str

    def __str__(self) -> str:
        return self.what


@dataclass(frozen=True)
class CheckedFile:
    """A file that a check has read (`Report.files`).

    path     the file
    kind     "manifest", or what the manifest names: a "segment" of the log, the "base" or a "patch" of images, or an
             "input" that records name
    bytes    its size
    records  of a segment, how many it has
    problem  what is wrong with it, or None

    >>> with whence.open("files.db") as db: _ = db.execute("CREATE TABLE a (x INT)")
    >>> [(file.kind, file.problem) for file in whence.check("files.db").files][0]
    ('manifest', None)
    """

    path: Path
    kind: str
    bytes: int
    records: int | None = None
    problem: Problem | None = None


@dataclass(frozen=True)
class CheckedFiles:
    """The result of checking a database's folder."""

    files: tuple[CheckedFile, ...]
    strays: tuple[Path, ...]
    torn: Torn | None

    @property
    def problems(self) -> list[Problem]:
        return [file.problem for file in self.files if file.problem is not None]


def check_files(path: Path, disk: Disk, progress: Progress | None = None) -> CheckedFiles:
    """Read every file of a database. StorageError if there is none, or its manifest is damaged."""
    checker = _Checker(Folder(path, disk), progress)
    checker.check()
    checker.folder.reload()
    checker.check()  # what a writer has added meanwhile
    manifest = CheckedFile(path / MANIFEST, "manifest", len(disk.read(path / MANIFEST)))
    return CheckedFiles((manifest, *checker.found.values()), tuple(find_strays(checker.folder)), checker.torn)


def problem_of(error: StorageError, path: Path) -> Problem:
    """Describe an error as a problem of a file that it may not name."""
    if isinstance(error, CorruptionError):
        return Problem(Path(str(error.path)), error.offset, str(error))
    return Problem(path, None, str(error))


def find_strays(folder: Folder) -> list[Path]:
    """List what lies in the folder and is no part of the database."""
    own = {folder.path / name for name in (MANIFEST, LOCK, LOG, STATE, INPUTS, EXCHANGE, STREAMS)}
    named = own | {folder.spare, *folder.files(), *folder.inputs()}
    found = []
    for place in (folder.path, folder.path / LOG, folder.path / STATE, folder.path / INPUTS):
        found += [place / name for name in folder.disk.names(place) if place / name not in named]
    return found


def is_unfinished(path: Path) -> bool:
    """Tell whether a stray may be a file that a writer is just making."""
    return path.name.endswith(UNFINISHED) or path.parent.name in (LOG, STATE, INPUTS)


class _Checker:
    """The findings so far, by file."""

    def __init__(self, folder: Folder, progress: Progress | None):
        self.folder = folder
        self.found: dict[Path, CheckedFile] = {}
        self.torn: Torn | None = None
        self._progress = progress
        self._ends: dict[int, int] = {}  # the last epoch of each segment, and of those before it
        self._last = 0  # the segment that was the last one
        self._done, self._total = 0, 0

    def check(self) -> None:
        """Check everything that the manifest names and that has not been read yet."""
        segments = self.folder.manifest.segments
        fresh = [n for n in segments if n not in self._ends or (n == self._last and n != segments[-1])]
        chains = [links for chains in self.folder.manifest.chains.values() for links in chains]
        unread = [links for links in chains if any(self._image(link) not in self.found for link in links)]
        self._total += sum(self._size(segment_path(self.folder.path / LOG, n)) for n in fresh)
        self._total += sum(self._size(self._image(link)) for links in unread for link in links)
        for number in fresh:
            self._segment(number, last=number == segments[-1])
        for links in unread:
            self._chain(links)
        gone = set(self.found) - {*self.folder.files(), *(path for path in self.found if self._is_kept_input(path))}
        self.found = {path: file for path, file in self.found.items() if path not in gone}

    def _image(self, link: Link) -> Path:
        return self.folder.path / STATE / link.file

    def _size(self, path: Path) -> int:
        with storage_errors(path, "look at"):
            return size_of(path) if path.exists() else 0

    def _tell(self, what: str, done: int) -> None:
        if self._progress is not None:
            self._progress(what, min(self._done + done, self._total), self._total)

    def _still_named(self, path: Path) -> bool:
        self.folder.reload()
        return path in self.folder.files()

    # Segments

    def _segment(self, number: int, *, last: bool) -> None:
        path, size = segment_path(self.folder.path / LOG, number), 0
        records, problem = 0, None
        self._ends[number] = _UNKNOWN  # until its end is reached
        try:
            size = self._size(path)
            try:
                records = self._scan(number, last=last)
            except CorruptionError:
                if not last:
                    raise
                time.sleep(_PATIENCE)
                records = self._scan(number, last=last)
        except StorageError as error:
            if not self._still_named(path):
                return
            problem = problem_of(error, path)
        if last:
            self._last = number
        self._done += size
        self.found[path] = CheckedFile(path, "segment", size, records, problem)

    def _scan(self, number: int, *, last: bool) -> int:
        """Read a segment to its end; return the number of records. A gap between epochs is reported at the end."""
        path, records = segment_path(self.folder.path / LOG, number), 0
        earlier = [n for n in self.folder.manifest.segments if n < number]
        before = self._ends[earlier[-1]] if earlier else _UNKNOWN
        at = self._image_epoch(number, before)
        gap = CorruptionError(path, 0, f"after the image of epoch {at}, but the log is at {before}")
        gaps = [gap] if 0 <= before != at else []
        scan = SegmentScan(path, number, last=last, epoch=at)
        for record in scan:
            records += 1
            if record.kind == INPUT:
                self._inputs(record)
            if record.kind in EPOCHS:
                if 0 <= at != record.epoch - 1:
                    gaps.append(CorruptionError(path, record.offset, f"epoch {record.epoch} comes after epoch {at}"))
                at = record.epoch
            if records % 256 == 0:
                self._tell(f"log {path.name}", scan.offset)
        self._tell(f"log {path.name}", scan.offset)
        self._ends[number] = at
        self.torn = scan.torn
        if gaps:
            raise gaps[0]
        return records

    def _image_epoch(self, number: int, otherwise: int) -> int:
        """Return the epoch of the image that a segment continues."""
        links = (link for chains in self.folder.manifest.chains.values() for chain in chains for link in chain)
        return next((link.epoch for link in links if link.segment == number), otherwise)

    # Inputs

    def _inputs(self, record: Record) -> None:
        """Read the rows that a record names."""
        try:
            pieces = sections_of(record.payload)
        except ValueError as error:
            raise CorruptionError(record.path, record.offset, str(error)) from None
        for piece in pieces:
            path = self.folder.path / INPUTS / piece.file
            before = self.found.get(path)
            problem = before.problem if before is not None else None
            try:
                if problem is None:
                    read_input(self.folder.disk, self.folder.path, piece)
            except StorageError as error:
                self.folder.reload()
                if not self._is_kept_input(path):
                    continue
                problem = problem_of(error, path)
            self.found[path] = CheckedFile(path, "input", self._size(path), problem=problem)

    def _is_kept_input(self, path: Path) -> bool:
        return path.parent.name == INPUTS and self.folder.keeps_input(path.name)

    # Images

    def _chain(self, links: tuple[Link, ...]) -> None:
        sizes = [self._size(self._image(link)) for link in links]
        try:
            with self.folder.chain(links) as chain:
                chain.verify(lambda done, _total: self._tell("images", done))
                self._compare(links, chain.meta.get("epoch"))
            self._note(links, sizes)
        except StorageError as error:
            if self._still_named(self._image(links[0])):
                self._broken(links, sizes, problem_of(error, self._missing(links)))
        self._done += sum(sizes)

    def _broken(self, links: tuple[Link, ...], sizes: list[int], problem: Problem) -> None:
        """Report a damaged chain: the files before the damaged one are sound, those after it cannot be read."""
        at = [self._image(link) for link in links].index(problem.path)
        if at:
            done = self._done
            self._chain(links[:at])
            self._done = done
        self._note(links[at : at + 1], sizes[at:], problem)
        for link, size in zip(links[at + 1 :], sizes[at + 1 :], strict=True):
            path = self._image(link)
            message = f"{path}: not read, since it continues {links[at].file}, which is damaged"
            self._note((link,), [size], Problem(path, None, message))

    def _note(self, links: tuple[Link, ...], sizes: list[int], problem: Problem | None = None) -> None:
        for link, size in zip(links, sizes, strict=False):
            self.found[self._image(link)] = CheckedFile(self._image(link), link.kind, size, problem=problem)

    def _missing(self, links: tuple[Link, ...]) -> Path:
        """Return the file that an error is about but does not name: the first that is missing, or the last."""
        paths = [self._image(link) for link in links]
        return next((path for path in paths if not path.exists()), paths[-1])

    def _compare(self, links: tuple[Link, ...], epoch: object) -> None:
        if epoch != links[-1].epoch:
            path = self._image(links[-1])
            raise CorruptionError(path, 0, f"an image of epoch {epoch}, where the manifest names {links[-1].epoch}")
