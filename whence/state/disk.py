"""The disk: the one interface to the files of a database.

The law: an operation either did what its name says or raises StorageError, which names the file, the operation and the
cause; no OSError gets out. What is written is stable only after `sync`; a new file, a new folder and a rename are
stable when the call returns.

A hook is called right before and right after every change, so that a test can visit each of them and let the
process die there, or let the operation fail:

| before | after |
|---|---|
| folder | foldered |
| create | created |
| write | wrote |
| sync | synced |
| truncate | truncated |
| rename | renamed |
| remove | removed |
| sync-folder | synced-folder |
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from whence.model.errors import CorruptionError, StorageError

Hook = Callable[[str, Path], None]
Part = bytes | bytearray | memoryview

UNFINISHED = ".new"
"""The name of a file that is about to replace another ends so."""

_MOST_PARTS = 1024  # IOV_MAX on every system we know
_MOST_BYTES = 1 << 30  # a read of 2 GiB or more is cut short by Linux and refused by macOS

_ADVICE = {
    errno.ENOSPC: "the disk is full: free some space and try again",
    errno.EDQUOT: "the quota is used up: free some space and try again",
    errno.EROFS: "the file system can only be read: mount it for writing, or open the database with read_only=True",
    errno.EACCES: "this user may not: change the permissions, or open the database with read_only=True",
    errno.EPERM: "this user may not: change the permissions, or open the database with read_only=True",
    errno.ENOENT: "the file has vanished: was it moved or deleted?",
    errno.EIO: "the device failed: look at the system's log, and copy the database elsewhere",
    errno.EMFILE: "too many files are open in this process: raise its limit (ulimit -n)",
}


def storage_error(path: Path, operation: str, error: OSError) -> StorageError:
    """Describe an error of the system for users."""
    advice = _ADVICE.get(error.errno or 0)
    cause = error.strerror or str(error)
    return StorageError(f"{path}: cannot {operation}: {cause}" + (f" ({advice})" if advice else ""))


@contextmanager
def storage_errors(path: Path, operation: str) -> Iterator[None]:
    """Turn an OSError into a StorageError that names the action and the file."""
    try:
        yield
    except OSError as error:
        raise storage_error(path, operation, error) from error


class Disk:
    """The file system, with a hook that is called for every change."""

    def __init__(self, hook: Hook | None = None):
        self.hook = hook

    def make_folder(self, path: Path) -> None:
        """Make the folder, and those above it, if it does not exist."""
        with storage_errors(path, "look at"):
            if path.is_dir():
                return
        self.make_folder(path.parent)
        with storage_errors(path, "make the folder"), self._change("folder", "foldered", path):
            path.mkdir(exist_ok=True)
        self.sync_folder(path.parent)

    def create(self, path: Path) -> File:
        """Create an empty file, replacing one of that name."""
        file = self._open(path, "create", os.O_CREAT | os.O_TRUNC)
        try:
            self.sync_folder(path.parent)
        except BaseException:
            file.close()
            raise
        return file

    def open(self, path: Path) -> File:
        """Open a file that exists, for appending."""
        with storage_errors(path, "open"):
            return File(self, path, os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC))

    def open_or_create(self, path: Path) -> File:
        """Open a file for appending, keeping what it holds if it exists."""
        return self._open(path, "create", os.O_CREAT)

    def replace(self, path: Path, data: Part | Sequence[Part]) -> None:
        """Write a whole file atomically: a reader, even after a crash or an error, finds the old or the new
        contents."""
        unfinished = path.with_name(path.name + UNFINISHED)
        parts = [data] if isinstance(data, bytes | bytearray | memoryview) else data
        try:
            file = self._open(unfinished, "create", os.O_CREAT | os.O_TRUNC)
            try:
                file.write(parts)
                file.sync()
            finally:
                file.close()
            self.rename(unfinished, path)
        except StorageError:
            with suppress(StorageError):
                self.remove(unfinished)
            raise

    def rename(self, path: Path, to: Path) -> None:
        """Rename a file in its folder, replacing the file that had that name."""
        with storage_errors(to, "replace"), self._change("rename", "renamed", to):
            path.replace(to)
        self.sync_folder(to.parent)

    def remove(self, path: Path) -> None:
        """Remove a file, if it exists. A crash may bring it back."""
        with storage_errors(path, "remove"), self._change("remove", "removed", path):
            path.unlink(missing_ok=True)

    def sync_folder(self, path: Path) -> None:
        """Make the names in a folder stable."""
        with storage_errors(path, "sync the folder"), self._change("sync-folder", "synced-folder", path):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def put(self, descriptor: int, parts: Sequence[memoryview]) -> int:
        """Write once, perhaps less than was asked; return the bytes written. A test tears writes by overriding it."""
        return os.writev(descriptor, parts)

    def read(self, path: Path) -> bytes:
        """Read the whole file."""
        with storage_errors(path, "read"):
            return path.read_bytes()

    def fill(self, path: Path, offset: int, parts: Sequence[memoryview]) -> None:
        """Read a part of a file into these buffers; raise if it ends before they are full."""
        with storage_errors(path, "read"), path.open("rb", buffering=0) as file:
            file.seek(offset)
            for part in parts:
                room = part.cast("B") if part.nbytes else memoryview(b"")
                while room:
                    got = file.readinto(room[:_MOST_BYTES])
                    if not got:
                        raise CorruptionError(path, offset, "the file ends inside what is to be read from here on")
                    room = room[got:]

    def names(self, folder: Path) -> list[str]:
        """List the names in a folder, sorted; none if there is no such folder."""
        with storage_errors(folder, "list the folder"):
            return sorted(os.listdir(folder)) if folder.exists() else []

    def _open(self, path: Path, operation: str, flags: int) -> File:
        with storage_errors(path, operation), self._change("create", "created", path):
            return File(self, path, os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | flags, 0o666))

    @contextmanager
    def _change(self, before: str, after: str, path: Path) -> Iterator[None]:
        if self.hook is not None:
            self.hook(before, path)
        yield
        if self.hook is not None:
            self.hook(after, path)


class File:
    """A file open for appending."""

    def __init__(self, disk: Disk, path: Path, descriptor: int):
        self.path = path
        self._disk = disk
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    @property
    def size(self) -> int:
        with storage_errors(self.path, "look at"):
            return os.fstat(self._descriptor).st_size

    def write(self, parts: Sequence[Part]) -> None:
        """Append the parts, as a rule by one call of the system. After an error a part of them may be there."""
        hook = self._disk.hook
        try:
            if hook is not None:
                hook("write", self.path)
            self._write([view.cast("B") for view in (memoryview(part) for part in parts) if view.nbytes])
            if hook is not None:
                hook("wrote", self.path)
        except OSError as error:
            raise storage_error(self.path, "write", error) from error

    def _write(self, parts: list[memoryview]) -> None:
        left = sum(map(len, parts))
        while parts:
            taken = self._disk.put(self._descriptor, parts[:_MOST_PARTS])
            left -= taken
            if not left:
                return
            done = 0
            while done < len(parts) and taken >= len(parts[done]):
                taken -= len(parts[done])
                done += 1
            parts = parts[done:]
            if taken:
                parts[0] = parts[0][taken:]

    def sync(self) -> None:
        """Wait until everything written is stable."""
        hook = self._disk.hook
        try:
            if hook is not None:
                hook("sync", self.path)
            _flush(self._descriptor)
            if hook is not None:
                hook("synced", self.path)
        except OSError as error:
            raise storage_error(self.path, "sync", error) from error

    def truncate(self, size: int) -> None:
        """Cut the file; stable after the next `sync`."""
        with storage_errors(self.path, "truncate"), self._disk._change("truncate", "truncated", self.path):
            os.ftruncate(self._descriptor, size)

    def close(self) -> None:
        """Close the file; repeated calls do nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with suppress(OSError):  # what matters was synced, and the descriptor is gone in any case
                os.close(descriptor)


def size_of(path: Path) -> int:
    """Return the size of a file in bytes."""
    with storage_errors(path, "look at"):
        return path.stat().st_size


def read_at(descriptor: int, offset: int, length: int) -> bytes:
    """Read bytes of an open file, fewer at its end."""
    length = min(length, os.fstat(descriptor).st_size - offset)
    if length <= 0:
        return b""
    data = os.pread(descriptor, min(length, _MOST_BYTES), offset)
    if len(data) == length:
        return data
    chunks = [data]
    while chunks[-1]:
        offset, length = offset + len(chunks[-1]), length - len(chunks[-1])
        chunks.append(os.pread(descriptor, min(length, _MOST_BYTES), offset))
    return b"".join(chunks)


def _flush(descriptor: int) -> None:
    """Sync the contents: on macOS only F_FULLFSYNC reaches past the drive's own cache."""
    if hasattr(fcntl, "F_FULLFSYNC"):
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    elif hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)
