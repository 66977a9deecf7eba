"""Histories and eras on disk: a position that is known is part of the past."""

from __future__ import annotations

import os
import shutil
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import whence
from tests import inside
from tests.faults import Deadly, done_before_death
from tests.noted import DURABILITIES, TABLE, VIEW, Noted, insert, knows, lineage, make
from tests.workload import abandon
from whence.state import manifest as manifest_
from whence.state.disk import Disk
from whence.state.folder import Folder
from whence.subscribe.positions import HISTORY_DIGITS, NO_ERA, Position


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make(tmp_path / "db")


# -- eras on disk ------------------------------------------------------------------------------------------------------


def test_each_opening_for_writing_begins_an_era(tmp_path: Path) -> None:
    told = []
    for _ in range(4):
        with whence.open(tmp_path / "db") as db:
            if not db.tables:
                db.execute(TABLE)
            told += [db.position, insert(db)]
            assert [era.start for era in lineage(db).eras] == list(range(len(lineage(db).eras)))
    with whence.open(tmp_path / "db") as db:
        assert len({position.history for position in told}) == 1
        assert len({position.era for position in told}) == 4
        assert [position.epoch for position in told] == [0, 1, 1, 2, 2, 3, 3, 4]
        assert all(knows(db, position) for position in told)
        assert not any(knows(db, position._replace(epoch=5)) for position in told)


def test_manifest_has_the_era_before_the_database_is_open(path: Path) -> None:
    with whence.open(path) as db:
        manifest = Folder(path, Disk()).manifest
        assert manifest.id.startswith(db.position.history)
        assert list(manifest.eras.items()) == [(era.id, era.start) for era in lineage(db).eras]
        assert list(manifest.eras)[-1] == db.position.era


def test_new_folder_gets_its_era_with_its_first_manifest(tmp_path: Path) -> None:
    replaced: list[Path] = []
    disk = Disk(lambda point, path: replaced.append(path) if point == "renamed" else None)
    whence.open(tmp_path / "db", disk=disk, retain=5)
    assert [path.name for path in replaced] == [manifest_.MANIFEST]
    assert list(Folder(tmp_path / "db", disk).manifest.eras.values()) == [0]


def test_opening_replaces_the_manifest_once(path: Path) -> None:
    replaced: list[Path] = []
    disk = Disk(lambda point, path: replaced.append(path) if point == "renamed" else None)
    db = whence.open(path, disk=disk)
    assert [path.name for path in replaced] == [manifest_.MANIFEST]
    abandon(db)


def test_newest_thousand_eras_are_kept() -> None:
    eras: dict[str, int] = {}
    for epoch in range(manifest_.MAX_ERAS + 5):
        eras = manifest_.add_era(eras, epoch)
    assert list(eras.values()) == list(range(5, manifest_.MAX_ERAS + 5))
    assert len({*eras}) == manifest_.MAX_ERAS == 1_000


def test_manifest_without_eras_is_read(path: Path) -> None:
    """As versions before eras wrote it: the field is not there."""
    folder = Folder(path, Disk())
    content = manifest_.asdict(folder.manifest)
    del content["eras"]
    content["chains"] = manifest_._plain(folder.manifest.chains)
    text = manifest_.json.dumps({"checksum": manifest_._checksum(content)} | content)
    (path / manifest_.MANIFEST).write_text(text, encoding="utf-8")
    with whence.open(path, read_only=True) as reader:
        assert reader.position == Position(folder.manifest.id[:HISTORY_DIGITS], NO_ERA.id, 1)
        with whence.open(path) as db:
            assert [era.start for era in lineage(db).eras] == [1]
            told = insert(db)
            assert reader.position == told
            assert reader["a"].rows == db["a"].rows


# -- crashes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", DURABILITIES)
def test_kill_keeps_positions_that_were_told(path: Path, tmp_path: Path, durability: Any) -> None:
    said = tmp_path / "said"

    def work(tell: int) -> None:
        db = whence.open(path, durability=durability)
        noted = Noted(db)
        while len(noted.epochs) < 5:
            insert(db)
            if durability == "none" and db.epoch % 3 == 0:
                db.sync()
        said.write_text(" ".join(map(str, noted.positions)), encoding="utf-8")
        os.kill(os.getpid(), 9)

    assert done_before_death(work) == 0
    told = [Position.parse(text) for text in said.read_text(encoding="utf-8").split()]
    assert len(told) >= 5
    with whence.open(path) as db:
        assert all(knows(db, position) for position in told)
        assert db.position.era not in {position.era for position in told}
        assert db.position.reaches(told[-1])
        assert not knows(db, told[-1]._replace(epoch=db.epoch + 1))


def test_kill_at_any_point_of_opening_is_harmless(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with whence.open(path, read_only=True) as reader:
        before = reader.position
    for at in count(1):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(path, copy)

        def work(tell: int, at: int = at) -> None:
            db = whence.open(copy, disk=Deadly(at))
            insert(db)
            os._exit(0)

        if done_before_death(work) is None:
            break
        with whence.open(copy) as db:
            assert knows(db, before)
            assert db.epoch in (1, 2)
            starts = [era.start for era in lineage(db).eras]
            assert starts == sorted(starts)
            if db.epoch == 2:  # then the era of the record is listed, too
                assert starts == [0, 1, 2]
    assert at > 10


def test_position_leaves_out_what_is_not_stable(path: Path) -> None:
    db = whence.open(path, durability="none")
    told, behind = db.position, insert(db)
    assert behind == told  # nothing is stable but what was found
    shutil.copytree(path, path.with_name("later"))
    abandon(db)
    with whence.open(path.with_name("later")) as later:
        assert knows(later, told)


# -- copies ------------------------------------------------------------------------------------------------------------


def test_restored_folder_knows_what_was_before_the_copy_only(path: Path) -> None:
    copy = path.with_name("copy")
    with whence.open(path) as db:
        shared = insert(db)
        shutil.copytree(path, copy)
        beyond = insert(db, 3)
    shutil.rmtree(path)
    copy.rename(path)
    with whence.open(path) as db:
        assert db.position.history == shared.history
        assert knows(db, shared)
        assert not knows(db, beyond)
        other = insert(db, 3)
        assert other.epoch == beyond.epoch
        assert not knows(db, beyond)  # though the number is there again
        assert knows(db, other)


def test_two_copies_that_go_on_do_not_know_each_other(path: Path) -> None:
    copy = path.with_name("copy")
    shutil.copytree(path, copy)
    with whence.open(path) as one, whence.open(copy) as two:
        first, second = insert(one), insert(two)
        assert (first.history, first.epoch) == (second.history, second.epoch)
        assert not knows(one, second)
        assert not knows(two, first)


@pytest.mark.parametrize("how", ["open", "closed", "method"])
def test_backup_has_an_identity_of_its_own(path: Path, how: str) -> None:
    copy = path.with_name("copy")
    if how == "closed":
        whence.backup(path, copy)
    with whence.open(path) as db:
        told = db.position
        if how == "open":
            whence.backup(path, copy)
        if how == "method":
            db.backup(copy)
        assert db.position == told
    assert whence.check(copy).ok
    assert Folder(copy, Disk()).manifest.eras == {}
    with whence.open(copy, read_only=True) as reader:
        assert reader.position.era == NO_ERA.id
    with whence.open(copy) as other:
        assert other.epoch == told.epoch
        assert other["a"].rows == [(0,)]
        assert other.position.history != told.history
        assert not knows(other, told)
        assert [era.start for era in lineage(other).eras] == [1]
        assert knows(other, insert(other))


# -- in memory, partitions, followers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"partitions": 2}], ids=["embedded", "partitions"])
def test_databases_without_a_folder_share_no_history(options: dict[str, Any]) -> None:
    with whence.open(**options) as one, whence.open(**options) as other:
        one.execute(TABLE)
        first = one.position
        noted = Noted(one)
        second = insert(one)
        assert [first.epoch, second.epoch] == [0, 1]
        assert noted.positions == [second]
        assert knows(one, first)
        assert knows(one, second)
        assert not knows(other, first)


@pytest.mark.parametrize("durability", DURABILITIES)
def test_partitions_have_eras_and_report(path: Path, durability: Any) -> None:
    with whence.open(path, partitions=2, durability=durability) as db:
        noted, before = Noted(db), db.position
        insert(db, 3)
        db.sync()
        db.execute(VIEW.format(1))
        db.execute(VIEW.format(2))
        db.sync()
        assert noted.epochs[-1] == db.epoch == db.position.epoch == 5
        assert noted.epochs == sorted({*noted.epochs})
        after = db.position
    with whence.open(path) as db:
        assert knows(db, before)
        assert knows(db, after)
        assert len(lineage(db).eras) == 3


def test_past_has_the_positions_that_it_had(path: Path) -> None:
    with whence.open(path, retain="all") as db:
        insert(db)
    with whence.open(path) as db:
        told = [db.position, insert(db), insert(db)]
        with db.at(3) as past:
            assert past.position == told[1]
            assert inside.coordinator(past).durable_epoch == 3
        with db.at(1) as past:
            assert past.position.epoch == 1
            assert knows(db, past.position)


def test_follower_has_the_eras_of_its_writer(path: Path) -> None:
    with whence.open(path, read_only=True) as reader:
        seen = [reader.position]
        noted = Noted(reader)
        for _ in range(3):
            with whence.open(path) as db:
                assert reader.position.epoch == db.epoch
                assert reader.position == db.position  # the era, before anything was written in it
                told = insert(db, 2)
                seen.append(reader.position)
                assert seen[-1] == told
                assert lineage(reader) == lineage(db)
                abandon(db)
        assert all(knows(reader, position) for position in seen)
        assert noted.epochs == [3, 5, 7]
        assert noted.restarts == []
        noted.stop()


def test_follower_reports_when_it_reads(path: Path) -> None:
    with whence.open(path, read_only=True) as reader, whence.open(path) as db:
        noted = Noted(reader)
        insert(db, 3)
        assert inside.coordinator(reader).durable_epoch == 1
        assert len(reader["a"]) == 4
        assert noted.epochs == [4]
        assert inside.coordinator(reader).durable_epoch == 4


def test_follower_of_a_folder_that_was_replaced_starts_over(path: Path) -> None:
    """The copy that is put in place has as many bytes of log as the follower has read, or more."""
    copy = path.with_name("copy")
    shutil.copytree(path, copy)
    with whence.open(path, read_only=True) as reader:
        noted = Noted(reader)
        with whence.open(path) as db:
            insert(db, 2)
            lost = reader.position
            assert lost == db.position
            abandon(db)
        path.rename(path.with_name("gone"))
        copy.rename(path)
        with whence.open(path) as db:
            db.insert("a", [(77,)])
            db.insert("a", [(88,)])
            db.insert("a", [(99,)])
            assert sorted(reader["a"]) == sorted(db["a"]) == [(0,), (77,), (88,), (99,)]
            assert reader.position == db.position
            assert not knows(reader, lost)
        assert noted.restarts == [4]
