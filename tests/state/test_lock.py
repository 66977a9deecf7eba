"""One writer at a time, whoever it is, until it closes or dies."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import Failing
from whence.model.errors import LockedError, StorageError
from whence.state.disk import Disk
from whence.state.lock import LOCK, Lock

ROOT = Path(__file__).parents[2]
HOLD = """
import sys, time
from pathlib import Path
from whence.state.disk import Disk
from whence.state.lock import Lock
lock = Lock(Disk(), Path(sys.argv[1]))
print("locked", flush=True)
time.sleep(60)
"""


def holder(folder: Path, *command: str) -> subprocess.Popen[str]:
    """Another process that holds the lock."""
    command = command or ("-c", HOLD)
    other = subprocess.Popen(
        [sys.executable, *command, str(folder)], stdout=subprocess.PIPE, text=True, cwd=folder, env=_environment()
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "locked\n"
    return other


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def test_a_second_process_is_refused_and_told_who_writes(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(HOLD)
    other = holder(tmp_path, "train.py")
    with pytest.raises(LockedError) as caught:
        Lock(Disk(), tmp_path)
    assert re.fullmatch(
        rf"{re.escape(str(tmp_path))} is being written to by process {other.pid} \(python train\.py\) on host \S+ "
        r"since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00; open it with read_only=True to look at it",
        str(caught.value),
    )
    other.kill()
    other.wait()
    Lock(Disk(), tmp_path).close()


def test_a_lock_dies_with_its_process(tmp_path: Path) -> None:
    other = holder(tmp_path)
    os.kill(other.pid, signal.SIGKILL)
    other.wait()
    lock = Lock(Disk(), tmp_path)
    assert f'"pid": {os.getpid()}' in (tmp_path / LOCK).read_text()
    lock.close()


def test_the_same_process_is_refused_too(tmp_path: Path) -> None:
    lock = Lock(Disk(), tmp_path)
    lock.check_process()
    with pytest.raises(LockedError, match=r"written to by this process \(.*\) since "):
        Lock(Disk(), tmp_path)
    lock.close()
    lock.close()
    Lock(Disk(), tmp_path).close()


def test_a_holder_that_has_not_said_who_it_is(tmp_path: Path) -> None:
    lock = Lock(Disk(), tmp_path)
    (tmp_path / LOCK).write_text("{")
    with pytest.raises(LockedError, match="written to by another process; open it with"):
        Lock(Disk(), tmp_path)
    lock.close()


def test_a_full_disk_does_not_keep_its_owner_out(tmp_path: Path) -> None:
    lock = Lock(Failing(3), tmp_path)
    with pytest.raises(LockedError, match="another process"):
        Lock(Disk(), tmp_path)
    lock.close()


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot create"):
        Lock(Disk(), tmp_path / "missing")


FORK = """
import os, sys, time
from pathlib import Path
from whence.model.errors import StorageError
from whence.state.disk import Disk
from whence.state.lock import Lock
lock = Lock(Disk(), Path(sys.argv[1]))
child = os.fork()
if child == 0:
    try:
        lock.check_process()
    except StorageError as error:
        os.write(1, f"{os.getppid()}: {error}\\n".encode())
    sys.stdin.read()
    os._exit(0)
sys.stdin.readline()
lock.check_process()
os._exit(0)
"""


def test_a_forked_child_neither_writes_nor_holds_the_lock(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FORK, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=_environment(),
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        assert f"{tmp_path} was opened by process {parent.pid}, of which this" in parent.stdout.readline()
        with pytest.raises(LockedError, match=f"process {parent.pid} "):
            Lock(Disk(), tmp_path)
        parent.kill()
        parent.wait()
        Lock(Disk(), tmp_path).close()  # although the child still runs
        parent.stdin.close()
