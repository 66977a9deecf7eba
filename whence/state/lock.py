"""The lock: at most one process writes to a database.

The law: the process that holds a Lock is the only writer, until it is closed or its process ends, however that ends.
The system keeps the lock (flock); the file's text only names the holder. A forked child does not hold
it.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
import time
import weakref
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from whence.model.errors import LockedError, StorageError
from whence.state.disk import Disk, File, storage_error, storage_errors

LOCK = "LOCK"
_TRIES, _PAUSE = 3, 0.01  # since `writer_of` takes the lock for a moment

_held: weakref.WeakSet[Lock] = weakref.WeakSet()


class Lock:
    """The writer's lock on a database, taken when made; raises LockedError if another process has it."""

    def __init__(self, disk: Disk, folder: Path):
        self.folder = folder
        self._process = os.getpid()
        self._file = disk.open_or_create(folder / LOCK)
        try:
            self._take(self._file)
            with storage_errors(self._file.path, "look at"):
                ours = os.fstat(self._file.fileno())
            self._place, self._identity = str(self._file.path), (ours.st_dev, ours.st_ino)
            with suppress(StorageError):  # a full disk must not keep its owner out
                self._file.truncate(0)
                self._file.write([json.dumps(_holder()).encode()])
        except BaseException:
            self._file.close()
            raise
        _held.add(self)

    def _take(self, file: File) -> None:
        with storage_errors(file.path, "lock"):
            for left in reversed(range(_TRIES)):
                try:
                    return fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if left:
                        time.sleep(_PAUSE)
            raise LockedError(
                f"{self.folder} is being written to by {_describe_holder(file.path)}; "
                "open it with read_only=True to look at it"
            )

    def check_process(self) -> None:
        """Raise StorageError in a child forked from the process that took the lock."""
        if os.getpid() != self._process:
            raise StorageError(
                f"{self.folder} was opened by process {self._process}, of which this one was forked; "
                "only that one writes to it: open it here with read_only=True, or fork before opening it"
            )

    def check_place(self) -> None:
        """Raise StorageError if the folder was moved away, removed or replaced."""
        try:
            there = os.stat(self._place)
            if (there.st_dev, there.st_ino) == self._identity:
                return
        except FileNotFoundError:
            pass
        except OSError as error:
            raise storage_error(self._file.path, "look at", error) from error
        raise StorageError(
            f"{self.folder} was moved, removed or replaced while it was open: put it back, or close the database and "
            "open it where it is now"
        )

    def close(self) -> None:
        """Release the lock."""
        _held.discard(self)
        self._file.close()


def writer_of(folder: Path) -> str | None:
    """Return the process that writes to the database in a folder, as far as it is known; None if there is none."""
    path = folder / LOCK
    with storage_errors(path, "look at"):
        if not path.exists():
            return None
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _describe_holder(path)
        finally:
            os.close(descriptor)
    return None


def _holder() -> dict[str, str | int]:
    program = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else ""
    if not program or program == "-c" or program.endswith(".py"):
        program = f"python {program}".rstrip()
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "program": program,
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _describe_holder(path: Path) -> str:
    """Describe the process that holds the lock, as far as it is known."""
    try:
        holder = json.loads(path.read_text())
        pid, host, program, since = holder["pid"], holder["host"], holder["program"], holder["since"]
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
    if (pid, host) == (os.getpid(), socket.gethostname()):
        return f"this process ({program}) since {since}"
    return f"process {pid} ({program}) on host {host} since {since}"


def _close_in_child() -> None:
    """Close the descriptor in a forked child: a copy of it would keep the lock after the parent's end."""
    for lock in list(_held):
        with suppress(OSError):
            lock.close()


os.register_at_fork(after_in_child=_close_in_child)
