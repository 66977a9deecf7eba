"""Disks that fail: at a given write point the process dies, the disk is full, or the power goes.

A write point is each call of a Disk's hook: right before and right after every change of a file. A test counts those
of a run with `points`, then runs it once for each of them on a disk that fails there, and looks at what is left.
"""

from __future__ import annotations

import errno
import os
import random
import signal
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from whence.state.disk import UNFINISHED, Disk, File

SECTOR = 512


class Killed(BaseException):
    """The process is dead. Nothing may catch this."""


class Watched(Disk):
    """Counts the write points it visits, and can close every file it opened, as the system does when a process ends."""

    def __init__(self) -> None:
        super().__init__(self._visit)
        self.visited = 0
        self._files: list[File] = []

    def _visit(self, point: str, path: Path) -> None:
        self.visited += 1
        self.visit(point, path)

    def visit(self, point: str, path: Path) -> None:
        """For subclasses: raises what is to go wrong here."""

    def create(self, path: Path) -> File:
        return self._keep(super().create(path))

    def open(self, path: Path) -> File:
        return self._keep(super().open(path))

    def open_or_create(self, path: Path) -> File:
        return self._keep(super().open_or_create(path))

    def _keep(self, file: File) -> File:
        self._files.append(file)
        return file

    def release(self) -> None:
        """Closes all files, and so lets go of locks."""
        for file in self._files:
            file.close()


class Mortal(Watched):
    """The process dies at the n-th write point, and changes nothing from then on.

    If that point is a write and `tear` is given, such a part of it (0 to 1) still reaches the file.
    """

    def __init__(self, at: int | None = None, *, tear: float | None = None):
        super().__init__()
        self.at, self.tear, self.dead = at, tear, False
        self._tearing = False

    def visit(self, point: str, path: Path) -> None:
        if self.dead:
            raise Killed
        if self.visited == self.at:
            if point == "write" and self.tear is not None:
                self._tearing = True
            else:
                self.die()

    def die(self) -> None:
        self.dead = True
        raise Killed

    def put(self, descriptor: int, parts: Sequence[memoryview]) -> int:
        if self._tearing:
            assert self.tear is not None
            _put_some(descriptor, parts, self.tear)
            self.die()
        return super().put(descriptor, parts)


class Failing(Watched):
    """From the n-th write point on every operation fails with the error, until `heal`.

    A write that fails leaves half of what it should write, as one on a full disk does.
    """

    def __init__(self, at: int, code: int = errno.ENOSPC):
        super().__init__()
        self.at, self.code, self.healed = at, code, False
        self._half = False

    def visit(self, point: str, path: Path) -> None:
        if self.healed or self.visited < self.at:
            return
        if point == "write":
            self._half = True
        else:
            raise self._error()

    def put(self, descriptor: int, parts: Sequence[memoryview]) -> int:
        if self._half:
            self._half = False
            _put_some(descriptor, parts, 0.5)
            raise self._error()
        return super().put(descriptor, parts)

    def heal(self) -> None:
        """The cause is gone."""
        self.healed, self._half = True, False

    def _error(self) -> OSError:
        return OSError(self.code, os.strerror(self.code))


class Unplugged(Mortal):
    """At death the power goes: of what was not synced any part may be missing."""

    def __init__(self, at: int | None = None, *, tear: float | None = None):
        super().__init__(at, tear=tear)
        self._stable: dict[Path, int] = {}
        self._uncut: dict[Path, bytes] = {}  # what files held that were cut and not synced since
        self._names: dict[Path, bytes | None] = {}  # names that are not stable yet, and what they named before

    def open(self, path: Path) -> File:
        file = super().open(path)
        self._stable.setdefault(path, file.size)
        return file

    def visit(self, point: str, path: Path) -> None:
        match point:
            case "create" | "rename":
                if not self.dead and path.name != "LOCK":
                    self._names.setdefault(path, path.read_bytes() if path.exists() else None)
            case "created":
                self._stable[path] = 0
            case "synced":
                self._stable[path] = path.stat().st_size
                self._uncut.pop(path, None)
            case "truncate":
                self._uncut.setdefault(path, path.read_bytes())
            case "truncated":
                self._stable[path] = min(self._stable.get(path, 0), path.stat().st_size)
            case "renamed":
                unfinished = path.with_name(path.name + UNFINISHED)
                self._names.pop(unfinished, None)
                self._stable[path] = self._stable.pop(unfinished, path.stat().st_size)  # or it was whole before
            case "removed":
                self._stable.pop(path, None)
            case "synced-folder":
                self._names = {name: old for name, old in self._names.items() if name.parent != path}
            case _:
                pass
        super().visit(point, path)

    def lose_power(self, rng: random.Random) -> None:
        """Leaves in the folder what may be found when the power is back."""
        self.release()
        for path, stable in self._stable.items():
            if path.exists():
                if path in self._uncut and rng.random() < 0.5:
                    path.write_bytes(self._uncut[path])
                _lose(path, stable, rng)
        for path, old in self._names.items():
            if rng.random() < 0.5:
                path.unlink(missing_ok=True) if old is None else path.write_bytes(old)


def points(run: Callable[[Disk], object]) -> int:
    """How many write points a run visits."""
    disk = Watched()
    run(disk)
    disk.release()
    return disk.visited


def dies(run: Callable[[Disk], object], disk: Mortal) -> bool:
    """Runs it on a disk until its end or death; says whether it died."""
    try:
        run(disk)
    except Killed:
        return True
    finally:
        disk.release()
    return False


def _put_some(descriptor: int, parts: Sequence[memoryview], share: float) -> None:
    data = b"".join(parts)
    os.write(descriptor, data[: int(len(data) * share)])


def _lose(path: Path, stable: int, rng: random.Random) -> None:
    """Cuts the file somewhere behind what is stable, or leaves zeros in some sectors there, or by luck loses none."""
    data = bytearray(path.read_bytes())
    fate = rng.choice(("cut", "cut", "zeros", "zeros", "luck"))
    if fate == "cut":
        del data[rng.randint(min(stable, len(data)), len(data)) :]
    elif fate == "zeros":
        for start in range(stable // SECTOR * SECTOR, len(data), SECTOR):
            if rng.random() < 0.5:
                begin, end = max(start, stable), min(start + SECTOR, len(data))
                data[begin:end] = bytes(end - begin)
    path.write_bytes(data)


class Deadly(Mortal):
    """Death by the real signal: nothing of the process is left to tidy up."""

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def done_before_death(work: Callable[[int], None]) -> int | None:
    """Let a child work that writes a byte to a pipe for each thing it has finished, until a signal kills it; how many
    it had finished. None if it came to its end alive."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(told)
            work(tell)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(tell)
    done = b""
    while some := os.read(told, 4096):
        done += some
    os.close(told)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return len(done)
    assert os.waitstatus_to_exitcode(status) == 0, "the child met an error: see its output"
    return None
