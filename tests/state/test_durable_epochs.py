"""Which epochs listeners are told of: those that are committed and on stable storage, in order, and no others."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import whence
from tests import inside
from tests.faults import Deadly, Failing, done_before_death
from tests.noted import VIEW, Noted, insert, knows, lineage, listed_eras, make
from whence.model.errors import StorageError
from whence.state import manifest as manifest_
from whence.state.disk import Disk
from whence.subscribe.positions import Position


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make(tmp_path / "db")


# -- what is reported --------------------------------------------------------------------------------------------------


def test_commit_reports_each_epoch_before_it_returns(path: Path) -> None:
    with whence.open(path) as db:
        noted = Noted(db)
        for epoch in range(2, 8):
            insert(db)
            assert noted.epochs[-1] == epoch == inside.coordinator(db).durable_epoch
        db.execute(VIEW.format(1))  # a new view is no epoch
        assert noted.epochs[-1] == 7
        db.execute(VIEW.format(2))  # another definition is
        assert noted.epochs == [2, 3, 4, 5, 6, 7, 8]
        noted.stop()
        insert(db)
        assert noted.epochs[-1] == 8
        assert noted.restarts == []


def test_interval_reports_without_a_call(path: Path) -> None:
    with whence.open(path, durability="interval", sync_interval=0.01) as db:
        noted = Noted(db)
        insert(db, 20)
        noted.wait_for(21)
        assert noted.epochs == sorted({*noted.epochs})


def test_interval_reports_only_what_was_synced(path: Path) -> None:
    with whence.open(path, durability="interval", sync_interval=600) as db:
        noted = Noted(db)
        insert(db, 3)
        assert (noted.epochs, db.position.epoch, db.epoch) == ([], 1, 4)
        db.sync()
        assert (noted.epochs, db.position.epoch) == ([4], 4)


def test_none_reports_what_sync_snapshot_and_close_make_stable(path: Path) -> None:
    db = whence.open(path, durability="none")
    noted = Noted(db)
    insert(db, 3)
    assert noted.epochs == []
    db.sync()
    assert noted.epochs == [4]
    insert(db, 2)
    db.snapshot()
    assert noted.epochs == [4, 6]
    insert(db)
    db.close()
    assert noted.epochs == [4, 6, 7]


def test_redefinition_is_reported_with_its_statement(path: Path) -> None:
    """The epoch is one record and the statement another: a sync between the two reports neither."""
    with whence.open(path, durability="none") as db:
        db.execute(VIEW.format(1))
        db.sync()
        coordinator, noted = inside.coordinator(db), Noted(db)
        write = coordinator.storage.write_statements

        def sync_between(statements: list[str]) -> None:
            inside.store(db).log.flush()
            write(statements)

        coordinator.storage.write_statements = sync_between
        db.execute(VIEW.format(2))
        assert (noted.epochs, db.epoch) == ([], 2)
        db.sync()
        assert noted.epochs == [2]


def test_epoch_is_not_reported_before_it_is_committed(path: Path) -> None:
    """Another thread's sync may take a record along whose epoch can still be undone."""
    with whence.open(path) as db:
        coordinator, noted = inside.coordinator(db), Noted(db)
        done, seen = coordinator.storage.epoch_done, []

        def sync_before() -> None:
            inside.store(db).log.flush()
            seen.append(list(noted.epochs))
            done()

        coordinator.storage.epoch_done = sync_before
        insert(db)
        assert seen == [[]]
        assert noted.epochs == [2]


def test_interrupted_epoch_is_not_reported(path: Path) -> None:
    with whence.open(path) as db:
        coordinator, noted = inside.coordinator(db), Noted(db)
        done = coordinator.storage.epoch_done

        def interrupt() -> None:
            inside.store(db).log.flush()
            raise KeyboardInterrupt

        coordinator.storage.epoch_done = interrupt
        with pytest.raises(KeyboardInterrupt):
            insert(db)
        coordinator.storage.epoch_done = done
        assert db["a"].rows == [(0,)]
        assert (noted.epochs, noted.restarts) == ([], [1])
        assert [era.start for era in lineage(db).eras] == [0, 1, 1]
        assert insert(db).epoch == 2
        assert noted.epochs == [2]


def test_numbers_rise_with_many_writers(path: Path) -> None:
    with whence.open(path) as db:
        noted = Noted(db)

        def write(number: int) -> None:
            for _ in range(25):
                db.insert("a", [(number,)])

        threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        noted.wait_for(151)
        assert noted.epochs == sorted({*noted.epochs})
        assert db.position.epoch == db.epoch == 151


def test_failing_listener_harms_nobody(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with whence.open(path) as db:

        def fail(epoch: int) -> None:
            raise ValueError("mine")

        inside.coordinator(db).on_durable(fail)
        noted = Noted(db)
        insert(db)
        assert noted.epochs == [2]
        assert "a listener failed at epoch 2" in caplog.text


def test_listener_may_write_from_another_thread(path: Path) -> None:
    """The log's lock is not held while listeners are called."""
    with whence.open(path) as db:
        told = threading.Event()
        inside.coordinator(db).on_durable(lambda epoch: told.set())

        def follow() -> None:
            assert told.wait(30)
            insert(db)

        thread = threading.Thread(target=follow)
        thread.start()
        insert(db)
        thread.join(30)
        assert db.epoch == 3


# -- disks that fail ---------------------------------------------------------------------------------------------------


class NoSync(Disk):
    """Syncing a segment of the log fails while `broken`."""

    def __init__(self) -> None:
        super().__init__(self._visit)
        self.broken = False

    def _visit(self, point: str, path: Path) -> None:
        if self.broken and point == "sync" and path.suffix == ".log":
            raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.fixture
def failing(path: Path) -> Iterator[tuple[whence.Database, NoSync]]:
    disk = NoSync()
    with whence.open(path, disk=disk) as db:
        yield db, disk


def test_failed_sync_reports_nothing_and_begins_an_era(failing: tuple[whence.Database, NoSync]) -> None:
    db, disk = failing
    noted, before = Noted(db), db.position
    disk.broken = True
    with pytest.raises(StorageError):
        insert(db)
    assert noted.epochs == []
    assert inside.coordinator(db).durable_epoch == 1
    disk.broken = False
    assert db["a"].rows == [(0,)]
    assert (noted.epochs, noted.restarts) == ([], [1])
    after = db.position
    assert after.era != before.era
    assert (after.epoch, db.epoch) == (1, 1)
    assert knows(db, before)
    assert not knows(db, before._replace(epoch=2))
    told = insert(db)
    assert noted.epochs == [2]
    assert told.era == after.era
    assert not knows(db, before._replace(epoch=2))
    assert db.path is not None
    assert listed_eras(db.path)[after.era] == 1


@pytest.mark.parametrize("durability", ["interval", "none"])
def test_failed_sync_reports_nothing_later(path: Path, durability: Any) -> None:
    disk = NoSync()
    with whence.open(path, disk=disk, durability=durability, sync_interval=600) as db:
        noted = Noted(db)
        insert(db, 2)
        db.sync()
        disk.broken = True
        insert(db, 3)
        with pytest.raises(StorageError):
            db.sync()
        assert noted.epochs == [3]
        disk.broken = False
        assert len(db["a"]) == 3
        assert (noted.epochs, noted.restarts, db.position.epoch) == ([3], [3], 3)
        insert(db)
        db.sync()
        assert noted.epochs == [3, 4]


def test_follower_is_told_that_its_writer_was_cut_back(failing: tuple[whence.Database, NoSync]) -> None:
    """It has read a record that was never stable: its number goes back, and what it said is not known any more."""
    db, disk = failing
    with whence.open(db.path, read_only=True) as reader:
        noted = Noted(reader)
        disk.broken = True
        with pytest.raises(StorageError):
            insert(db)
        lost = reader.position
        assert lost.epoch == 2
        disk.broken = False
        assert db["a"].rows == [(0,)]
        assert reader["a"].rows == [(0,)]
        assert (noted.epochs, noted.restarts) == ([2], [1])
        assert reader.position == db.position
        assert not knows(reader, lost)
        assert not knows(db, lost)
        told = insert(db)
        assert reader.position == told
        assert (noted.epochs, noted.positions[-1]) == ([2, 2], told)
        assert not knows(reader, lost)


def test_full_disk_can_be_opened_and_read(path: Path) -> None:
    """The era cannot be noted, so nothing can be appended; once there is room again, the era comes first."""

    class NoManifest(Disk):
        full = False

        def _visit(self, point: str, path: Path) -> None:
            if self.full and point == "create" and path.name.startswith(manifest_.MANIFEST):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    disk = NoManifest()
    disk.hook, disk.full = disk._visit, True
    listed = listed_eras(path)
    with whence.open(path, disk=disk) as db:
        assert db["a"].rows == [(0,)]
        with pytest.raises(StorageError, match="No space left"):
            insert(db)
        assert listed_eras(path) == listed
        disk.full = False
        told = insert(db)
        assert list(listed_eras(path).items()) == [*listed.items(), (told.era, 1)]
    with whence.open(path) as db:
        assert knows(db, told)


def test_what_is_reported_survives_death_at_any_point(path: Path) -> None:
    """At each write point the process dies; the folder it leaves knows every position that was reported."""
    copy, said = path.with_name("copy"), path.with_name("said")
    for at in count(1, 4):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(path, copy)
        said.write_text("")

        def work(tell: int, at: int = at) -> None:
            with said.open("a", buffering=1) as file:
                db = whence.open(copy, disk=Deadly(at), durability="interval", sync_interval=600)
                coordinator = inside.coordinator(db)
                coordinator.on_durable(lambda epoch: file.write(f"{coordinator.lineage.at(epoch)}\n"))
                insert(db, 2)
                db.sync()
                db.execute(VIEW.format(1))
                db.execute(VIEW.format(2))
                db.snapshot()
                insert(db)
                db.sync()
                os._exit(0)

        alive = done_before_death(work) is None
        told = [Position.parse(line) for line in said.read_text().split()]
        with whence.open(copy) as db:
            assert all(knows(db, position) for position in told)
            assert not told or db.epoch >= told[-1].epoch
        if alive:
            break
    assert [position.epoch for position in told] == [3, 4, 5]


def test_disk_that_fails_at_any_point_reports_nothing_unsynced(path: Path) -> None:
    """Whatever fails, what a listener was told is in the folder when its bytes behind the last sync are gone."""
    copy = path.with_name("copy")
    for at in range(1, 60, 3):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(path, copy)
        disk = Failing(10**9, errno.EIO)
        db = whence.open(copy, disk=disk)
        noted = Noted(db)
        disk.at = disk.visited + at
        for _ in range(4):
            try:
                insert(db)
            except StorageError:
                break
        disk.heal()
        try:
            reached = len(db["a"])
            assert inside.coordinator(db).durable_epoch == db.epoch == reached
            assert not noted.epochs or noted.epochs[-1] <= db.epoch
            insert(db)
            assert noted.epochs[-1] == db.epoch
        finally:
            db.close()


def test_unclosed_database_is_let_go_of(path: Path) -> None:
    """The log does not hold the coordinator: its lock is free once nobody has the database any more."""
    db = whence.open(path)
    noted = Noted(db)
    insert(db)
    del db, noted
    gc.collect()
    deadline = time.monotonic() + 30
    while True:
        try:
            with whence.open(path) as again:
                assert again.epoch == 2
                return
        except whence.LockedError:
            assert time.monotonic() < deadline
            gc.collect()
