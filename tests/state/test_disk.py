"""A disk does what it is asked or says why not; a replaced file is the old or the new one at every moment."""

from __future__ import annotations

import errno
import os
import random
from array import array
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults import Failing, Mortal, Unplugged, dies, points
from whence.model.errors import StorageError
from whence.state.disk import Disk


class Grudging(Disk):
    """Takes at most seven bytes at a time."""

    def put(self, descriptor: int, parts: Sequence[memoryview]) -> int:
        return os.write(descriptor, b"".join(parts)[:7])


def test_short_writes_are_continued(tmp_path: Path) -> None:
    numbers = array("q", [1, 2, 3])
    file = Grudging().create(tmp_path / "a")
    file.write([b"12345", b"", b"67", memoryview(b"8901234567890"), memoryview(numbers), b"x"])
    assert file.size == 5 + 2 + 13 + 24 + 1
    file.close()
    assert (tmp_path / "a").read_bytes() == b"12345678901234567890" + numbers.tobytes() + b"x"


def test_many_parts_are_written_in_order(tmp_path: Path) -> None:
    parts = [bytes([n % 251]) * (n % 5) for n in range(5000)]
    file = Disk().create(tmp_path / "a")
    file.write(parts)
    file.close()
    assert (tmp_path / "a").read_bytes() == b"".join(parts)


def test_appending_truncating_and_opening_again(tmp_path: Path) -> None:
    disk, path = Disk(), tmp_path / "a"
    file = disk.create(path)
    file.write([b"hello", b"world"])
    file.truncate(5)
    file.write([b"!"])
    file.sync()
    file.close()
    file.close()
    again = disk.open(path)
    again.write([b"?"])
    again.close()
    assert disk.read(path) == b"hello!?"
    kept = disk.open_or_create(path)
    assert kept.size == 7
    kept.close()
    disk.create(path).close()
    assert disk.read(path) == b""


def test_folders_and_names(tmp_path: Path) -> None:
    disk, folder = Disk(), tmp_path / "a" / "b"
    assert disk.names(folder) == []
    disk.make_folder(folder)
    disk.make_folder(folder)
    disk.replace(folder / "y", b"1")
    disk.replace(folder / "x", [b"2", b"3"])
    assert disk.names(folder) == ["x", "y"]
    disk.remove(folder / "y")
    disk.remove(folder / "y")
    assert disk.names(folder) == ["x"]


def test_the_hook_is_told_before_and_after_every_change(tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []
    disk = Disk(lambda point, path: told.append((point, path.name)))
    disk.replace(tmp_path / "a", b"1")
    name = tmp_path.name
    assert told == [
        ("create", "a.new"),
        ("created", "a.new"),
        ("write", "a.new"),
        ("wrote", "a.new"),
        ("sync", "a.new"),
        ("synced", "a.new"),
        ("rename", "a"),
        ("renamed", "a"),
        ("sync-folder", name),
        ("synced-folder", name),
    ]


@pytest.mark.parametrize("tear", [None, 0.5])
@pytest.mark.parametrize("power", [False, True])
def test_a_replaced_file_is_old_or_new_after_every_death(tmp_path: Path, tear: float | None, power: bool) -> None:
    rng, path = random.Random(1), tmp_path / "a"
    old, new = b"old" * 300, b"new" * 500

    def run(disk: Disk) -> None:
        disk.replace(path, new)

    found = set()
    for at in range(1, points(run) + 1):
        path.write_bytes(old)
        disk = Unplugged(at, tear=tear)
        assert dies(run, disk)
        if power:
            disk.lose_power(rng)
        assert path.read_bytes() in (old, new)
        found.add(path.read_bytes())
    assert found == {old, new}


def test_a_replacement_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a"
    renamed = 8  # from then on the new one is there
    for at in range(1, renamed):
        path.write_bytes(b"old")
        disk = Failing(at)
        with pytest.raises(StorageError, match="the disk is full"):
            disk.replace(path, b"new")
        disk.heal()
        assert path.read_bytes() == b"old"
        disk.replace(path, b"new")
        assert os.listdir(tmp_path) == ["a"]
        assert path.read_bytes() == b"new"


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.ENOSPC, "No space left on device (the disk is full: "),
        (errno.EROFS, "Read-only file system (the file system can only be read: "),
        (errno.EACCES, "Permission denied (this user may not: "),
        (errno.EINVAL, "Invalid argument"),
    ],
)
def test_errors_name_file_operation_and_cause(tmp_path: Path, code: int, advice: str) -> None:
    path = tmp_path / "a"
    disk = Failing(10_000, code)
    file = disk.create(path)
    disk.at = 0
    calls = {
        "write": lambda: file.write([b"x"]),
        "sync": file.sync,
        "truncate": lambda: file.truncate(0),
        "remove": lambda: disk.remove(path),
        "create": lambda: disk.create(path),
        "make the folder": lambda: disk.make_folder(tmp_path / "a" / "b"),
    }
    for operation, call in calls.items():
        with pytest.raises(StorageError) as caught:
            call()
        assert str(caught.value).startswith(str(path))
        assert f"cannot {operation}: {advice}" in str(caught.value)
    file.close()


def test_a_file_that_is_not_there_has_vanished(tmp_path: Path) -> None:
    disk, path = Disk(), tmp_path / "gone"
    for call in (disk.read, disk.open):
        with pytest.raises(StorageError, match=f"{path}: cannot .*the file has vanished"):
            call(path)


def test_a_dead_process_changes_nothing(tmp_path: Path) -> None:
    disk = Mortal(3)

    def run(disk: Disk) -> None:
        try:
            disk.make_folder(tmp_path / "b")
        finally:
            disk.make_folder(tmp_path / "c")

    assert dies(run, disk)
    assert disk.names(tmp_path) == ["b"]
