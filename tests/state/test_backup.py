"""Copies of a database that is in use: whole, of one moment, and checked before they get their name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import whence
from whence.state import backup as backup_
from whence.state.disk import Disk
from whence.state.manifest import LOG, STATE
from whence.state.store import Folder

PROGRAM = """
CREATE TABLE a (x INT, y INT);
CREATE TABLE b (x INT);
CREATE VIEW total AS SELECT COUNT(*) AS n, SUM(x) AS x FROM a;
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with whence.open(tmp_path / "db") as db:
        db.execute(PROGRAM)
        db.insert("a", [(i, -i) for i in range(100)])
    return tmp_path / "db"


def names(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()} - {"LOCK"}


def test_a_copy_is_a_database_of_its_own(path: Path, tmp_path: Path) -> None:
    with whence.open(path) as db:
        db.insert("a", (1000, 0))
        made = db.backup(tmp_path / "copy")
        assert made.epoch == db.epoch == 2
        db.insert("a", (2000, 0))
    with whence.open(tmp_path / "copy") as copy:
        assert copy["total"].rows == [(101, 4950 + 1000)]
        copy.insert("b", (1,))
    with whence.open(path, read_only=True) as db:
        assert db["b"].rows == []
    assert whence.check(tmp_path / "copy").ok


def test_exactly_the_files_that_the_manifest_names(path: Path, tmp_path: Path) -> None:
    (path / "notes.txt").write_text("not a part")
    (path / STATE / "x.base.new").write_text("left over")
    told: list[tuple[str, int, int]] = []
    made = whence.backup(path, tmp_path / "copy", progress=lambda *step: told.append(step))
    assert names(tmp_path / "copy") == names(path) - {"notes.txt", f"{STATE}/x.base.new", "log/00000001.log"}
    assert made.files == len(names(tmp_path / "copy"))
    assert made.bytes == sum((tmp_path / "copy" / name).stat().st_size for name in names(tmp_path / "copy"))
    assert ("copying", told[0][2], told[0][2]) in told


def test_what_is_there_is_not_overwritten(path: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/file").write_text("mine")
    before = names(tmp_path)
    for place in ("there", "there/file"):
        with pytest.raises(whence.StorageError, match="is there already"):
            whence.backup(path, tmp_path / place)
    with pytest.raises(whence.StorageError, match="there is no database here"):
        whence.backup(tmp_path / "nothing", tmp_path / "copy")
    with whence.open() as db, pytest.raises(whence.WhenceError, match="in memory"):
        db.backup(tmp_path / "copy")
    assert names(tmp_path) == before


def test_a_damaged_database_is_not_copied(path: Path, tmp_path: Path) -> None:
    (image,) = (path / STATE).iterdir()
    data = bytearray(image.read_bytes())
    data[len(data) - 40] ^= 1
    image.write_bytes(data)
    with pytest.raises(whence.StorageError) as caught:
        whence.backup(path, tmp_path / "copy")
    assert f"no copy was made: {image}, offset " in str(caught.value)
    assert [found.name for found in tmp_path.iterdir()] == ["db"]


def test_a_torn_tail_is_copied_and_cut(path: Path, tmp_path: Path) -> None:
    segment = max((path / LOG).iterdir())
    with segment.open("ab") as file:
        file.write(b"\7" * 11)
    whence.backup(path, tmp_path / "copy")
    with whence.open(tmp_path / "copy") as copy:
        assert copy.recovery is not None
        assert copy.recovery.torn is not None
        assert copy["total"].rows == [(100, 4950)]


def test_a_view_that_calls_a_function(tmp_path: Path) -> None:
    def setup(db: whence.Database) -> None:
        db.create_function("twice", lambda x: 2 * x, args=["INT"], returns="BIGINT")

    with whence.open(tmp_path / "db", setup=setup) as db:
        db.execute("CREATE TABLE a (x INT); CREATE VIEW t AS SELECT twice(x) AS y FROM a")
        db.insert("a", (1,))
        assert db.backup(tmp_path / "one").epoch == 1
    with pytest.raises(whence.StorageError, match=r"cannot be opened.*twice"):
        whence.backup(tmp_path / "db", tmp_path / "two")
    assert whence.backup(tmp_path / "db", tmp_path / "two", setup=setup).epoch == 1
    assert whence.backup(tmp_path / "db", tmp_path / "three", checksums_only=True).epoch is None


def test_a_writer_that_prunes_meanwhile(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the first files are copied the writer takes snapshots, and lets go of all that was named."""
    with whence.open(path) as db:
        db.insert("a", (5000, 0))
        source, copied = Folder(path, Disk()), []
        original = backup_._copy_file

        def copy_file(disk: Disk, file: Path, target: Path) -> int:
            if len(copied) < 2:
                copied.append(file)
                db.insert("a", [(i, i) for i in range(3000)])
                db.snapshot()
            return original(disk, file, target)

        monkeypatch.setattr(backup_, "_copy_file", copy_file)
        (tmp_path / "copy").mkdir()
        backup_.copy(source, tmp_path / "copy")
        assert len(copied) == 2
        assert not all(file.exists() for file in copied)
    assert names(tmp_path / "copy") == {"MANIFEST", *(str(file.relative_to(path)) for file in source.files())}
    report = whence.check(tmp_path / "copy")
    assert report.ok, report.problems
    assert report.tables["a"] in (101 + 3000, 101 + 6000)


@pytest.mark.parametrize("point", ["create", "write", "sync", "rename"])
def test_a_disk_that_is_full_leaves_nothing(path: Path, tmp_path: Path, point: str) -> None:
    def full(at: str, file: Path) -> None:
        if at == point and tmp_path / "db" not in file.parents:
            raise OSError(28, "No space left on device")

    with pytest.raises(whence.StorageError, match="the disk is full"):
        whence.backup(path, tmp_path / "copy", disk=Disk(full))
    assert [found.name for found in tmp_path.iterdir()] == ["db"]


WRITER = """
import sys, whence
db = whence.open(sys.argv[1], durability="none")
print("ready", flush=True)
for i in range(10**9):
    with db.transaction():
        db.insert("a", [(i, 0)])
        db.insert("b", [(i,)])
    if i % 30 == 0:
        db.snapshot()
"""


def test_beside_a_writer(path: Path, tmp_path: Path) -> None:
    """Copies of a database that is written to as fast as it can be are whole epochs, each later than the one before."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    epochs = []
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        for i in range(5):
            epochs.append(whence.backup(path, tmp_path / f"copy{i}").epoch or 0)
    finally:
        writer.kill()
        writer.wait()
        assert writer.stdout is not None
        writer.stdout.close()
    assert epochs == sorted(epochs)
    for i, epoch in enumerate(epochs):
        with whence.open(tmp_path / f"copy{i}") as copy:
            assert copy.epoch == epoch
            assert len(copy["b"]) == len(copy["a"]) - 100 == epoch - 1
        assert whence.check(tmp_path / f"copy{i}").ok
