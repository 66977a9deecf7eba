"""Consistent copies of a database that is in use.

The law: a copy holds exactly the files of one manifest, so it is the database as of some moment: all epochs up to one,
none after it. The writer need not stop. Files that a manifest names do not change, but for the last segment of the log,
which grows: a copy of it that ends in the middle of a record is torn like after a crash, and opening cuts that off. A
file that the writer removes meanwhile means that there is a newer manifest to copy. Files of inputs are copied after
the log, those that the records of the copy name. A copy is a database of its own, with its own id: the two go on in
different ways, and a client of one must not take the other for it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from whence.model.errors import CorruptionError, StorageError
from whence.model.progress import Progress
from whence.state import manifest as manifest_
from whence.state.disk import UNFINISHED, Disk, read_at, size_of, storage_errors
from whence.state.folder import Folder, named_inputs
from whence.state.manifest import INPUTS, LOG, MANIFEST, STATE, Manifest
from whence.state.segment import SegmentScan, segment_path

_CHUNK = 4 << 20
_TRIES, _PAUSE = 5, 0.05


@contextmanager
def atomic_folder(path: Path, disk: Disk) -> Iterator[Path]:
    """Make a new folder that gets its name when the block ends, and is removed if it raises."""
    with storage_errors(path, "look at"):
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise StorageError(f"{path} is there already: give the name of a folder that is not")
    disk.make_folder(path.absolute().parent)
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}{UNFINISHED}")
    disk.make_folder(unfinished)
    try:
        yield unfinished
        disk.rename(unfinished, path)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def copy(source: Folder, to: Path, progress: Progress | None = None) -> int:
    """Copy a database into an empty folder; return the number of bytes."""
    disk, done = source.disk, dict[Path, int]()  # files that do not change any more, and their sizes
    disk.make_folder(to / LOG)
    disk.make_folder(to / STATE)
    for left in reversed(range(_TRIES)):
        try:
            last = _copy_files(source, to, done, progress)
            inputs = _copy_inputs(source, to, done)
            break
        except StorageError:
            before = source.manifest
            source.reload()
            if not left or source.manifest == before:
                raise
    named = {to / path.relative_to(source.path) for path in [*source.files(), *inputs]}
    for stale in set(done) - named:
        disk.remove(stale)
    manifest_.save(disk, to, manifest_.new_identity(source.manifest))  # last: what has no manifest is no database
    return last + sum(size for path, size in done.items() if path in named) + (to / MANIFEST).stat().st_size


def _copy_files(source: Folder, to: Path, done: dict[Path, int], progress: Progress | None) -> int:
    """Copy what the manifest names and has not been copied yet; return the bytes of the last segment."""
    *files, last = _in_order(source.path, source.manifest)
    total, at = sum(size_of(path) for path in [*files, last]), 0
    for path in files:
        target = to / path.relative_to(source.path)
        if target not in done:
            done[target] = _copy_file(source.disk, path, target)
        at += done[target]
        if progress is not None:
            progress("copying", at, total)
    size = _copy_last(source.disk, last, to / LOG / last.name, source.manifest.segments[-1])
    if progress is not None:
        progress("copying", total, total)
    return size


def _copy_inputs(source: Folder, to: Path, done: dict[Path, int]) -> list[Path]:
    """Copy the inputs that the records of the copy name; which those are."""
    names = set[str]()
    if source.disk.names(source.path / INPUTS):
        with suppress(CorruptionError):  # checking the copy will report it
            names = named_inputs(to / LOG, source.manifest.segments)
    for name in sorted(names):
        source.disk.make_folder(to / INPUTS)
        target = to / INPUTS / name
        if target not in done:
            done[target] = _copy_file(source.disk, source.path / INPUTS / name, target)
    return [source.path / INPUTS / name for name in names]


def _in_order(path: Path, manifest: Manifest) -> list[Path]:
    """Sort the files that a manifest names: first those that may be removed soon, last the one that grows."""
    segments = [segment_path(path / LOG, n) for n in manifest.segments]
    links = [link for chains in manifest.chains.values() for chain in chains for link in chain]
    return [*segments[:-1], *(path / STATE / link.file for link in links), segments[-1]]


def _copy_last(disk: Disk, path: Path, target: Path, number: int) -> int:
    """Copy a segment that grows; again, if the writer took a record back while it was being read."""
    for left in reversed(range(_TRIES)):
        size = _copy_file(disk, path, target)
        try:
            for _ in SegmentScan(target, number, last=True):
                pass
            break
        except CorruptionError:
            if left:
                time.sleep(_PAUSE)  # or it is damaged, and checking the copy will report it
    return size


def _copy_file(disk: Disk, path: Path, target: Path) -> int:
    """Copy what a file holds now, and sync it; return the number of bytes."""
    with storage_errors(path, "read"):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with storage_errors(path, "read"):
            size = os.fstat(descriptor).st_size
        file = disk.create(target)
        try:
            for offset in range(0, size, _CHUNK):
                with storage_errors(path, "read"):
                    data = read_at(descriptor, offset, min(_CHUNK, size - offset))
                file.write([data])
            file.sync()
        finally:
            file.close()
    finally:
        os.close(descriptor)
    return size
