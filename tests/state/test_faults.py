"""A disk that refuses, at any write point: what was acknowledged stands, and the database goes on when it can."""

from __future__ import annotations

import errno
import logging
import os
import random
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import whence
from tests import inside
from tests.depth import some
from tests.faults import Failing, Watched
from tests.workload import Op, Session, State, abandon, history, open_small, state_of, workload
from whence.model.errors import CorruptionError, LockedError, StorageError
from whence.state.disk import Disk
from whence.state.manifest import MANIFEST

SLICES = 6
CODES = [errno.ENOSPC, errno.EIO, errno.EROFS]


class Stumbling(Watched):
    """One operation fails at the n-th write point, and only that; a write leaves half of it behind."""

    def __init__(self, at: int, error: BaseException):
        super().__init__()
        self.at, self.error, self.point, self._half = at, error, "", False

    def visit(self, point: str, path: Path) -> None:
        if self.visited == self.at:
            self.point = point
            if point != "write":
                raise self.error
            self._half = True

    def put(self, descriptor: int, parts: Any) -> int:
        if self._half:
            self._half = False
            data = b"".join(parts)
            os.write(descriptor, data[: len(data) // 2])
            raise self.error
        return super().put(descriptor, parts)


class NoSync(Disk):
    """Syncing a segment of the log fails while `broken`."""

    def __init__(self) -> None:
        super().__init__(self._visit)
        self.broken = False

    def _visit(self, point: str, path: Path) -> None:
        if self.broken and point == "sync" and path.suffix == ".log":
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def count(path: Path, ops: list[Op]) -> int:
    disk = Watched()
    session = Session(path, disk)
    for op in ops:
        session.perform(op)
    session.db.close()
    shutil.rmtree(path)
    return disk.visited


def system_error(code: int) -> OSError:
    return OSError(code, os.strerror(code))


def open_stubbornly(path: Path, disk: Watched, now: float = 1000.0) -> Session:
    """Open a database; if that is refused, once more, which shows that the lock was let go."""
    try:
        return Session(path, disk, now)
    except (StorageError, KeyboardInterrupt):
        return Session(path, disk, now)


def run_over_a_fault(path: Path, ops: list[Op], states: list[State], disk: Stumbling) -> None:
    """Carry out a workload and, where an operation is refused, once more. The states must be those it always has."""
    session = open_stubbornly(path, disk)
    for number, op in enumerate(ops):
        try:
            session.perform(op)
        except (StorageError, KeyboardInterrupt) as error:
            if op.kind == "reopen":
                session = open_stubbornly(path, disk, op.at)
            inside.coordinator(session.db).refresh()
            found = state_of(session.db)
            if isinstance(error, StorageError):
                assert found == states[number], f"{op} was refused, and yet did something"
            if found != states[number + 1]:
                assert found == states[number], f"{op} was interrupted, and did something else"
                session.perform(op)
        assert state_of(session.db) == states[number + 1], f"after {op}"
    try:
        session.db.close()
    except KeyboardInterrupt:
        session.db.close()
    with Session(path).db as db:
        assert state_of(db) == states[-1]


@pytest.mark.parametrize("part", some(range(SLICES), 2))
def test_every_write_point_fails_once(tmp_path: Path, part: int) -> None:
    ops = workload(3, 9, snapshots=2)
    states, path = history(ops), tmp_path / "db"
    total = count(path, ops)
    for at in range(1 + part, total + 1, SLICES):
        disk = Stumbling(at, system_error(CODES[at % len(CODES)]))
        run_over_a_fault(path, ops, states, disk)
        assert disk.point, f"write point {at} of {total} was not reached"
        shutil.rmtree(path)


@pytest.mark.parametrize("part", some(range(SLICES), 2))
def test_every_write_point_is_interrupted(tmp_path: Path, part: int) -> None:
    """Ctrl-C during a system call: the operation has happened, or it has not, in memory as on disk."""
    ops = workload(8, 6, snapshots=1)
    states, path = history(ops), tmp_path / "db"
    total = count(path, ops)
    for at in range(1 + part, total + 1, SLICES):
        disk = Stumbling(at, KeyboardInterrupt())
        run_over_a_fault(path, ops, states, disk)
        assert disk.point, f"write point {at} of {total} was not reached"
        shutil.rmtree(path)


@pytest.fixture
def disk() -> NoSync:
    return NoSync()


@pytest.fixture
def db(tmp_path: Path, disk: NoSync) -> Iterator[whence.Database]:
    with whence.open(tmp_path / "db", disk=disk) as db:
        db.execute("CREATE TABLE a (x INT, t TEXT); CREATE VIEW b AS SELECT t, SUM(x) AS x FROM a GROUP BY t")
        db.insert("a", [(1, "one"), (2, "two")])
        yield db


def reopened(db: whence.Database) -> dict[str, list[Any]]:
    assert db.path is not None
    with whence.open(db.path, read_only=True) as other:
        return {name: sorted(other[name]) for name in (*other.tables, *other.views)}


# -- a full disk -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", CODES)
def test_a_disk_that_stays_full(tmp_path: Path, code: int) -> None:
    disk, now = Failing(10**9, code), 1000.0
    with whence.open(tmp_path / "db", disk=disk, clock=lambda: now) as db:
        db.execute("CREATE TABLE a (x INT, t TEXT); CREATE VIEW b AS SELECT t, COUNT(*) AS n FROM a GROUP BY t")
        db.execute("CREATE TABLE s (x INT) WITH (ttl = '60 s')")
        db.insert("a", [(1, "one")])
        disk.at = 0
        for _ in range(3):
            with pytest.raises(StorageError, match=os.strerror(code)):
                db.insert("a", [(2, "two")])
            with pytest.raises(StorageError):
                db.execute("CREATE TABLE more (x INT)")
            for table in ("a", "s"):
                with pytest.raises(StorageError):
                    db.execute(f"DROP TABLE {table} CASCADE")
            with pytest.raises(StorageError):
                db.execute("CREATE OR REPLACE VIEW b AS SELECT MAX(t) AS t FROM a")
            with pytest.raises(StorageError):
                db.snapshot()
            assert (db["a"].rows, db["b"].rows, db.epoch, db.tables) == ([(1, "one")], [("one", 1)], 1, ["a", "s"])
            assert db.query("SELECT COUNT(*) AS n FROM b").rows == [(1,)]
        disk.heal()
        db.insert("a", [(2, "two"), (3, "two")])
        db.insert("s", [(1,)])
        assert sorted(db["b"]) == [("one", 1), ("two", 2)]
        assert db.snapshot()
    with whence.open(tmp_path / "db", clock=lambda: now) as db:
        assert (sorted(db["b"]), db.epoch, db.tables) == ([("one", 1), ("two", 2)], 3, ["a", "s"])
        now = 1061.0
        assert db["s"].rows == []


def test_a_full_disk_on_closing(tmp_path: Path) -> None:
    """The log has everything, so that the last snapshot fails is no more than a warning."""
    disk = Failing(10**9)
    db = whence.open(tmp_path / "db", disk=disk)
    db.execute("CREATE TABLE a (x INT)")
    db.insert("a", [(1,)])
    disk.at = 0
    db.close()
    with whence.open(tmp_path / "db") as db:
        assert db["a"].rows == [(1,)]


def test_a_background_snapshot_that_fails_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class NoImages(Disk):
        def _visit(self, point: str, path: Path) -> None:
            if point == "create" and path.parent.name == "state":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    disk = NoImages()
    disk.hook = disk._visit
    db = open_small(tmp_path / "db", disk, snapshot_records=3)
    db.execute("CREATE TABLE a (x INT)")
    with caplog.at_level(logging.WARNING, "whence"):
        for x in range(10):
            db.insert("a", [(x,)])
        inside.snapshots(db).finish()
    assert "no snapshot was taken" in caplog.text
    db.close()
    with whence.open(tmp_path / "db") as db:
        assert sorted(db["a"]) == [(x,) for x in range(10)]


# -- a failing sync ----------------------------------------------------------------------------------------------------


def test_an_epoch_that_could_not_be_synced_is_gone(db: whence.Database, disk: NoSync) -> None:
    disk.broken = True
    with pytest.raises(StorageError, match="sync"):
        db.insert("a", [(3, "three")])
    disk.broken = False
    assert sorted(db["b"]) == [("one", 1), ("two", 2)]
    assert db.epoch == 1
    assert reopened(db)["b"] == [("one", 1), ("two", 2)]
    db.insert("a", [(4, "four"), (5, "one")])
    assert db.epoch == 2
    assert sorted(db["b"]) == [("four", 4), ("one", 6), ("two", 2)]
    assert reopened(db)["b"] == sorted(db["b"])


def test_while_syncs_fail_nothing_is_served_that_may_be_lost(db: whence.Database, disk: NoSync) -> None:
    disk.broken = True
    with pytest.raises(StorageError):
        db.insert("a", [(3, "three")])
    for _ in range(2):
        with pytest.raises(StorageError):
            _ = db["b"].rows
        with pytest.raises(StorageError):
            db.insert("a", [(4, "four")])
        with pytest.raises(StorageError):
            db.snapshot()
        with pytest.raises(StorageError):
            db.sync()
    disk.broken = False
    assert sorted(db["b"]) == [("one", 1), ("two", 2)]


def test_statements_that_could_not_be_synced_are_gone(db: whence.Database, disk: NoSync) -> None:
    for sql in ("CREATE TABLE more (x INT)", "DROP VIEW b", "CREATE OR REPLACE VIEW b AS SELECT MAX(t) AS t FROM a"):
        disk.broken = True
        with pytest.raises(StorageError):
            db.execute(sql)
        disk.broken = False
        assert sorted(db["a"]) == [(1, "one"), (2, "two")]
        assert sorted(db["b"]) == [("one", 1), ("two", 2)]
        assert (db.tables, db.views) == (["a"], ["b"])
    assert reopened(db).keys() == {"a", "b"}


def test_feeds_end_when_the_database_goes_back(db: whence.Database, disk: NoSync) -> None:
    feed = db.changes("b")
    db.insert("a", [(5, "one")])
    assert [change.row for change in feed] == [("one", 1), ("one", 6)]
    disk.broken = True
    with pytest.raises(StorageError):
        db.insert("a", [(3, "three")])
    disk.broken = False
    assert len(db["a"]) == 3
    with pytest.raises(whence.WhenceError, match=r"disk failed.*ask for the changes again"):
        list(feed)
    again = db.changes("b", snapshot=True)
    assert sorted(change.row for change in again) == [("one", 6), ("two", 2)]


def test_a_sync_that_fails_under_an_open_transaction(db: whence.Database, disk: NoSync) -> None:
    """What it has written so far was made for a state that is gone; it must not be mixed with another."""
    started, failed = threading.Event(), threading.Event()
    outcome: list[BaseException | None] = []

    def other() -> None:
        try:
            db.insert("a", [(7, "lost")])
            outcome.append(None)
        except StorageError as error:
            outcome.append(error)
        failed.set()

    log = inside.store(db).log
    settle = log.sync

    def late(ticket: int) -> None:
        """The other writer comes to its sync only when a transaction has begun here."""
        if threading.current_thread() is not threading.main_thread():
            started.wait(10)
            disk.broken = True
        try:
            settle(ticket)
        finally:
            disk.broken = False

    log.sync = late  # type: ignore[method-assign]
    thread = threading.Thread(target=other)
    thread.start()
    while inside.coordinator(db).epoch < 2:
        pass

    def transaction() -> None:
        with db.transaction():
            db.insert("a", [(8, "words that nobody has"), (9, "more of them")])
            started.set()
            assert failed.wait(10)
            db.insert("a", [(10, "and another one")])
            db.execute("DELETE FROM a WHERE x = 1")

    with pytest.raises(StorageError):
        transaction()
    thread.join()
    assert isinstance(outcome[0], StorageError)
    assert sorted(db["a"]) == [(1, "one"), (2, "two")]
    db.insert("a", [(11, "last")])
    assert sorted(db["b"]) == [("last", 11), ("one", 1), ("two", 2)]
    assert reopened(db)["b"] == sorted(db["b"])


def test_closing_with_a_sync_that_failed(tmp_path: Path, disk: NoSync) -> None:
    """It says so, lets go of the lock, and what was acknowledged is there."""
    db = whence.open(tmp_path / "db", disk=disk)
    db.execute("CREATE TABLE a (x INT)")
    db.insert("a", [(1,)])
    disk.broken = True
    with pytest.raises(StorageError):
        db.insert("a", [(2,)])
    with pytest.raises(StorageError):
        db.close()
    db.close()
    with whence.open(tmp_path / "db") as db:
        assert db["a"].rows[:1] == [(1,)]


def test_a_background_sync_that_fails(tmp_path: Path, disk: NoSync) -> None:
    """Under "interval" the next write tells; the database is then as it was when it was last stable."""
    with whence.open(tmp_path / "db", disk=disk, durability="interval", sync_interval=0.01) as db:
        db.execute("CREATE TABLE a (x INT)")
        db.insert("a", [(1,)])
        db.sync()
        disk.broken = True
        db.insert("a", [(2,)])
        log = inside.store(db).log
        while not log.failed:
            pass
        with pytest.raises(StorageError):
            db.insert("a", [(3,)])
        disk.broken = False
        assert db["a"].rows == [(1,)]
        db.insert("a", [(4,)])
        assert reopened(db)["a"] == [(1,), (4,)]


def test_going_back_when_the_past_cannot_be_read(db: whence.Database, disk: NoSync) -> None:
    """As long as the image is away the database says so, and never takes itself for an empty one."""
    assert db.path is not None
    db.snapshot()
    view = db["b"]
    (image,) = (db.path / "state").iterdir()
    disk.broken = True
    with pytest.raises(StorageError):
        db.insert("a", [(3, "three")])
    disk.broken = False
    away = image.rename(db.path.parent / image.name)
    for _ in range(2):
        with pytest.raises(StorageError, match=r"\.base"):
            _ = view.rows
        with pytest.raises(StorageError, match=r"\.base"):
            db.execute("CREATE TABLE c (x INT)")
        assert not inside.snapshots(db).take(), "an image of nothing"
    away.rename(image)
    assert sorted(view) == [("one", 1), ("two", 2)]
    db.insert("a", [(3, "three")])
    assert reopened(db)["b"] == [("one", 1), ("three", 3), ("two", 2)]


def test_a_reader_notices_that_the_writer_went_back(db: whence.Database, disk: NoSync) -> None:
    """Even if another record of the same length stands where the lost one was."""
    assert db.path is not None
    with whence.open(db.path, read_only=True) as reader:
        disk.broken = True
        with pytest.raises(StorageError):
            db.insert("a", [(3, "three")])
        _ = reader["a"].rows  # it may have seen the lost one
        disk.broken = False
        db.insert("a", [(4, "seven")])
        assert sorted(reader["b"]) == [("one", 1), ("seven", 4), ("two", 2)]


@pytest.mark.parametrize("partitions", [None, 2])
def test_a_snapshot_that_waits_while_the_database_goes_back(
    tmp_path: Path, disk: NoSync, monkeypatch: pytest.MonkeyPatch, partitions: int | None
) -> None:
    """It is of the state that took the place of the one before, not of that, which has what was refused."""
    db = whence.open(tmp_path / "db", disk=disk, partitions=partitions)
    db.execute("CREATE TABLE a (x INT, y TEXT); CREATE VIEW b AS SELECT y, COUNT(*) AS n FROM a GROUP BY y")
    db.insert("a", [(1, "one"), (2, "two")])
    disk.broken = True
    with pytest.raises(StorageError):
        db.insert("a", [(3, "three")])
    disk.broken = False
    coordinator = inside.coordinator(db)

    @contextmanager
    def paused_by_another() -> Iterator[None]:
        monkeypatch.undo()
        coordinator.refresh()  # who held the locks until now
        db.insert("a", [(4, "four")])  # in an epoch with the number of the lost one
        with coordinator.paused():
            yield

    monkeypatch.setattr(coordinator, "paused", paused_by_another)
    assert inside.snapshots(db).take()
    expected = [("four", 1), ("one", 1), ("two", 1)]
    assert sorted(db["b"]) == expected
    abandon(db)
    with whence.open(tmp_path / "db", partitions=partitions) as db:
        assert db.recovery is not None
        assert (db.recovery.image_epoch, db.recovery.replayed) == (2, 0)
        assert sorted(db["a"]) == [(1, "one"), (2, "two"), (4, "four")]
        assert sorted(db["b"]) == expected


def test_many_writers_on_a_disk_that_fails_now_and_then(tmp_path: Path) -> None:
    """With snapshots in the background. Whoever was not refused finds the row, whoever was does not."""
    rng, guard = random.Random(3), threading.Lock()

    def visit(point: str, path: Path) -> None:
        with guard:
            unlucky = point == "sync" and path.suffix == ".log" and rng.random() < 0.15
        if unlucky:
            raise system_error(errno.EIO)

    disk = Disk()
    db = open_small(tmp_path / "db", disk, snapshot_records=6)
    db.execute("CREATE TABLE a (who INT, x TEXT); CREATE VIEW b AS SELECT who, COUNT(*) AS n FROM a GROUP BY who")
    disk.hook = visit
    accepted: list[tuple[int, str]] = []
    refused: list[tuple[int, str]] = []
    wrong: list[BaseException] = []

    def write(who: int) -> None:
        try:
            for number in range(40):
                row = (who, f"word {who} {number}")
                try:
                    db.insert("a", [row])
                except StorageError:
                    refused.append(row)
                else:
                    accepted.append(row)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=write, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    disk.hook = None
    assert not wrong, wrong
    assert len(accepted) > 10
    assert len(refused) > 3
    assert sorted(db["a"]) == sorted(accepted)
    assert dict(db["b"].rows) == {who: sum(w == who for w, _ in accepted) for who in range(4)}
    inside.snapshots(db).finish()
    abandon(db)
    with whence.open(tmp_path / "db") as db:
        assert sorted(db["a"]) == sorted(accepted)


def test_an_epoch_that_is_undone_after_it_was_appended(db: whence.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Log, dictionary and memory go back together."""
    store, feed = inside.store(db), db.changes("b")
    append = store._append

    def appends_and_fails(*args: Any) -> int:
        append(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store, "_append", appends_and_fails)
        with pytest.raises(KeyboardInterrupt):
            db.insert("a", [(3, "a word of the lost epoch")])
        with pytest.raises(KeyboardInterrupt):
            db.execute("CREATE VIEW c AS SELECT 'another lost word' AS t FROM a")
    assert sorted(db["b"]) == [("one", 1), ("two", 2)]
    assert list(feed) == []
    db.insert("a", [(4, "a word of the lost epoch"), (5, "another lost word")])
    assert (db.epoch, db.views) == (2, ["b"])
    assert sorted(db["b"]) == [("a word of the lost epoch", 4), ("another lost word", 5), ("one", 1), ("two", 2)]
    assert reopened(db)["b"] == sorted(db["b"])


def test_images_that_no_manifest_came_to_name_do_not_pile_up(tmp_path: Path) -> None:
    broken = False

    def visit(point: str, path: Path) -> None:
        if broken and point == "create" and path.name.startswith(MANIFEST) and len(list(state.iterdir())) > before:
            raise system_error(errno.ENOSPC)

    state, before = tmp_path / "db" / "state", 0
    with whence.open(tmp_path / "db", disk=Disk(visit)) as db:
        db.execute("CREATE TABLE a (x INT)")
        db.insert("a", [(1,)])
        db.snapshot()
        broken = True
        for x in range(5):
            before = len(list(state.iterdir()))
            db.insert("a", [(x,)])
            with pytest.raises(StorageError):
                db.snapshot()
        assert len(list(state.iterdir())) == 6
        broken = False
        assert db.snapshot()
        assert len(list(state.iterdir())) == 2
    with whence.open(tmp_path / "db") as db:
        assert len(db["a"]) == 6


# -- what vanishes -----------------------------------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A closed database with an image and a log after it."""
    path = tmp_path / "db"
    db = whence.open(path)
    db.execute("CREATE TABLE a (x INT, t TEXT); CREATE VIEW b AS SELECT t, SUM(x) AS x FROM a GROUP BY t")
    db.insert("a", [(x, f"word {x % 7}") for x in range(50)])
    db.snapshot()
    db.insert("a", [(100, "after")])
    db.insert("a", [(101, "after")])
    inside.store(db).close()  # without the snapshot that closing takes
    return path


def open_fails(path: Path, kind: type[StorageError], text: str) -> StorageError:
    """Opening is refused, to writers and readers, and nobody holds the lock afterwards."""
    with pytest.raises(kind, match=text) as caught:
        whence.open(path)
    with pytest.raises(kind, match=text):
        whence.open(path, read_only=True)
    with pytest.raises(kind, match=text):  # and not LockedError
        whence.open(path)
    return caught.value


def test_a_missing_segment(made: Path) -> None:
    segment = max((made / "log").iterdir())
    segment.rename(made.parent / "kept")
    open_fails(made, StorageError, segment.name)
    (made.parent / "kept").rename(segment)
    with whence.open(made) as db:
        assert len(db["a"]) == 52


def test_a_missing_image(made: Path) -> None:
    (image,) = (made / "state").iterdir()
    image.rename(made.parent / "kept")
    open_fails(made, StorageError, image.name)
    (made.parent / "kept").rename(image)
    with whence.open(made) as db:
        assert len(db["a"]) == 52


def test_a_missing_manifest(made: Path) -> None:
    (made / MANIFEST).rename(made.parent / "kept")
    open_fails(made, StorageError, MANIFEST)
    (made.parent / "kept").rename(made / MANIFEST)
    with whence.open(made) as db:
        assert len(db["a"]) == 52


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no database"):
        whence.open(tmp_path / "nothing", read_only=True)
    assert not (tmp_path / "nothing").exists()


def test_the_folder_vanishes_while_it_is_open(made: Path) -> None:
    db = whence.open(made)
    shutil.rmtree(made)
    assert len(db["a"]) == 52
    with pytest.raises(StorageError):
        db.snapshot()
    assert len(db["a"]) == 52
    with suppress(StorageError):
        db.close()
    db.close()


def test_a_segment_vanishes_while_it_is_open(made: Path) -> None:
    """Whoever has the file open does not notice; a snapshot makes everything well again."""
    with whence.open(made) as db:
        for segment in (made / "log").iterdir():
            segment.unlink()
        db.insert("a", [(1, "blind")])
        assert db.snapshot()
    with whence.open(made) as db:
        assert len(db["a"]) == 53


def test_a_file_where_the_database_should_be(tmp_path: Path) -> None:
    (tmp_path / "db").write_text("not a database")
    open_fails(tmp_path / "db", StorageError, "is a file")
    assert (tmp_path / "db").read_text() == "not a database"


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(StorageError, match=r"thesis\.tex"):
        whence.open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_folder_that_may_not_be_written_to(made: Path) -> None:
    """As root permissions mean nothing, so the disk says what the system would."""

    def refuse(point: str, path: Path) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    with pytest.raises(StorageError, match="read_only=True"):
        whence.open(made, disk=Disk(refuse))
    with whence.open(made, read_only=True, disk=Disk(refuse)) as db:
        assert len(db["a"]) == 52
        assert db["b"].rows
        assert len(db.at(db.epoch)["a"]) == 52
        with pytest.raises(whence.WhenceError, match="reading only"):
            db.insert("a", [(1, "x")])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_directory(made: Path) -> None:
    made.chmod(0o555)
    try:
        with pytest.raises(StorageError, match="read_only=True"):
            whence.open(made)
        with whence.open(made, read_only=True) as db:
            assert len(db["a"]) == 52
    finally:
        made.chmod(0o755)


# -- damage ------------------------------------------------------------------------------------------------------------


def flips(size: int) -> list[int]:
    """Places all over a file: ends, and everywhere in between."""
    return sorted({0, 1, 8, 17, size // 5, size // 3, size // 2, 3 * size // 4, size - 30, size - 1})


@pytest.mark.parametrize("kind", ["log", "state", MANIFEST])
def test_a_flipped_byte_anywhere(made: Path, kind: str) -> None:
    file = max((made / kind).iterdir()) if kind != MANIFEST else made / MANIFEST
    whole = file.read_bytes()
    for at in flips(len(whole)):
        broken = bytearray(whole)
        broken[at] ^= 0x41
        file.write_bytes(broken)
        error = open_fails(made, CorruptionError, file.name)
        assert isinstance(error, CorruptionError)
        assert error.path == file
        assert 0 <= error.offset <= len(whole)
        assert f"offset {error.offset}" in str(error)
        assert file.read_bytes() == broken, "what is damaged is left as it is"
    file.write_bytes(whole)
    with whence.open(made) as db:
        assert len(db["a"]) == 52


def test_a_cut_file(made: Path) -> None:
    (image,) = (made / "state").iterdir()
    whole = image.read_bytes()
    for size in (0, 5, len(whole) // 2, len(whole) - 1):
        image.write_bytes(whole[:size])
        open_fails(made, CorruptionError, image.name)
    image.write_bytes(whole)
    with whence.open(made) as db:
        assert len(db["a"]) == 52


def test_a_torn_tail_is_cut_off_and_reported(made: Path, caplog: pytest.LogCaptureFixture) -> None:
    segment = max((made / "log").iterdir())
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-7])
    with whence.open(made, read_only=True) as db:
        assert len(db["a"]) == 51
    with caplog.at_level(logging.WARNING, "whence"), whence.open(made) as db:
        assert len(db["a"]) == 51
        assert db.recovery is not None
        assert db.recovery.torn is not None
        assert db.recovery.torn.path == segment
        assert db.recovery.torn.offset + db.recovery.torn.bytes == len(whole) - 7
        assert sum(str(segment) in record.getMessage() for record in caplog.records) == 1
        db.insert("a", [(7, "again")])
    with whence.open(made) as db:
        assert len(db["a"]) == 52
        assert db.recovery is not None
        assert db.recovery.torn is None


def test_a_failed_opening_lets_go_of_the_lock(made: Path) -> None:
    """Whatever fails, and whenever: once the cause is gone the same process can open it."""
    total = Watched()
    inside.store(whence.open(made, disk=total, retain=5)).close()
    shutil.rmtree(made.parent / "copy", ignore_errors=True)
    for at in range(1, total.visited + 1):
        copy = Path(shutil.copytree(made, made.parent / "copy"))
        (copy / "state" / "main-000000000009-00000009.base.new").write_bytes(b"a leftover to be swept")
        disk = Stumbling(at, system_error(errno.EIO))
        try:
            db = whence.open(copy, disk=disk, retain=9)
        except LockedError:
            raise
        except StorageError:
            db = whence.open(copy, retain=9)
        assert len(db["a"]) == 52
        db.close()
        shutil.rmtree(copy)


def test_an_epoch_that_breaks_off_between_log_and_runtime_has_not_happened(tmp_path: Path) -> None:
    with whence.open(tmp_path / "db") as db:
        db.execute("CREATE TABLE a (x INT); CREATE VIEW n AS SELECT COUNT(*) AS n FROM a")
        db.insert("a", (1,))
        flow = inside.dataflow(db)
        flow.commit = _interrupt  # type: ignore[method-assign]  # Ctrl-C when the record is written
        with pytest.raises(KeyboardInterrupt):
            db.insert("a", (2,))
        assert (db["a"].rows, db["n"].rows, db.epoch) == ([(1,)], [(1,)], 1)
        db.insert("a", (3,))
    with whence.open(tmp_path / "db") as db:
        assert (sorted(db["a"].rows), db["n"].rows, db.epoch) == ([(1,), (3,)], [(2,)], 2)


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_a_relative_path_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        with whence.open(tmp_path / place / "db") as db:
            db.execute(f"CREATE TABLE {place} (x INT)")
    monkeypatch.chdir(tmp_path / "one")
    with whence.open("db") as db, whence.open("db", read_only=True) as reader:
        monkeypatch.chdir(tmp_path / "two")
        db.insert("one", (1,))
        assert reader["one"].rows == [(1,)]
        assert db.snapshot()
    for place, rows in (("one", [(1,)]), ("two", [])):
        with whence.open(tmp_path / place / "db") as db:
            assert (db.tables, db[place].rows) == ([place], rows)


def test_a_reader_that_could_not_read_shows_nothing(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with whence.open(path) as db:
        db.execute("CREATE TABLE a (x INT)")
        db.insert("a", (1,))
    with whence.open(path, read_only=True) as reader:
        assert reader["a"].rows == [(1,)]
        away = path.rename(tmp_path / "away")
        for _ in range(3):
            with pytest.raises(whence.StorageError):
                reader["a"].rows  # noqa: B018
        away.rename(path)
        with whence.open(path) as db:
            db.insert("a", (2,))
        assert sorted(reader["a"].rows) == [(1,), (2,)]


def test_an_epoch_in_doubt_is_not_kept_by_closing(tmp_path: Path) -> None:
    db = whence.open(tmp_path / "db")
    db.execute("CREATE TABLE a (x INT)")
    db.insert("a", (1,))
    inside.dataflow(db).commit = _interrupt  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        db.insert("a", (2,))
    db.close()
    with whence.open(tmp_path / "db") as db:
        assert (db["a"].rows, db.epoch) == ([(1,)], 1)


def test_a_folder_that_takes_the_place_of_an_open_one_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "db"
    db = whence.open(path)
    db.execute("CREATE TABLE a (x INT)")
    path.rename(tmp_path / "away")
    with whence.open(path) as other:
        other.execute("CREATE TABLE b (x INT)")
    for act in (lambda: db.insert("a", (1,)), lambda: db.execute("CREATE TABLE c (x INT)"), db.snapshot):
        with pytest.raises(whence.StorageError, match="was moved, removed or replaced"):
            act()
    db.close()
    with whence.open(path) as other, whence.open(tmp_path / "away") as moved:
        assert (other.tables, moved.tables) == (["b"], ["a"])


def test_closing_and_snapshots_are_not_for_transactions(tmp_path: Path) -> None:
    with whence.open(tmp_path / "db") as db, db.transaction():
        for act in (db.close, db.snapshot):
            with pytest.raises(whence.WhenceError, match="cannot stand inside a transaction"):
                act()
