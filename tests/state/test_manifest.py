"""A manifest is read as it was saved, or not at all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import whence
from tests.faults import Failing, Mortal, dies, points
from whence.model.errors import CorruptionError, StorageError
from whence.state.disk import Disk
from whence.state.lock import Lock
from whence.state.log import EPOCH, Log
from whence.state.manifest import (
    FORMAT,
    MANIFEST,
    Link,
    Manifest,
    _checksum,
    load,
    new_manifest,
    save,
)

CHAINS = {
    "main": (
        (Link("base", "main-0000000042.base", 42, 1000), Link("patch", "main-0000000057.patch", 57, 10)),
        (Link("base", "main-0000000060.base", 60, 1001),),
    ),
    "größe/3": ((Link("patch", "p3.patch", 1 << 50, 0, partitions=3),),),
}
FULL = Manifest(FORMAT, "0" * 32, (3, 4, 7), CHAINS, "2026-01-02T03:04:05+00:00", {"durability": "commit"})


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    for manifest in (FULL, new_manifest([1]), new_manifest([1], {"a": "b"})):
        save(Disk(), tmp_path, manifest)
        assert load(Disk(), tmp_path) == manifest


def test_databases_differ_in_their_ids() -> None:
    assert new_manifest([1]).id != new_manifest([1]).id


def test_a_link_is_a_base_or_a_patch() -> None:
    with pytest.raises(ValueError, match="not 'image'"):
        Link("image", "x", 1, 1)  # type: ignore[arg-type]  # that is the point


def test_people_can_read_it(tmp_path: Path) -> None:
    save(Disk(), tmp_path, FULL)
    text = (tmp_path / MANIFEST).read_text()
    assert '"file": "main-0000000057.patch"' in text
    assert "größe" in text
    assert list(json.loads(text)) == ["checksum", "format", "id", "segments", "chains", "created", "options", "eras"]


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    save(Disk(), tmp_path, FULL)
    path = tmp_path / MANIFEST
    good = path.read_bytes()
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 0x04
        path.write_bytes(bad)
        with pytest.raises(CorruptionError, match=MANIFEST):
            load(Disk(), tmp_path)
    for length in range(len(good) - 1):
        path.write_bytes(good[:length])
        with pytest.raises(CorruptionError):
            load(Disk(), tmp_path)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    save(Disk(), tmp_path, replace(FULL, format=FORMAT + 1))
    with pytest.raises(StorageError, match=r"newer version of Whence \(format 3; this one reads up to 2\)"):
        load(Disk(), tmp_path)


def test_a_manifest_without_eras_is_written_as_one_with_them(tmp_path: Path) -> None:
    """An older Whence cannot read eras, and says so by the format."""
    whence.open(tmp_path / "db").close()
    manifest = load(Disk(), tmp_path / "db")
    assert manifest is not None
    save(Disk(), tmp_path / "db", replace(manifest, format=1, eras={}))
    whence.open(tmp_path / "db").close()
    manifest = load(Disk(), tmp_path / "db")
    assert manifest is not None
    assert (manifest.format, len(manifest.eras)) == (FORMAT, 1)


def test_fields_of_a_newer_format_do_not_hide_its_number(tmp_path: Path) -> None:
    content = {"format": 9, "shards": []}
    (tmp_path / MANIFEST).write_text(json.dumps({"checksum": _checksum(content)} | content))
    with pytest.raises(StorageError, match="format 9"):
        load(Disk(), tmp_path)


def test_no_database_yet(tmp_path: Path) -> None:
    assert load(Disk(), tmp_path / "missing") is None
    assert load(Disk(), tmp_path) is None


def test_other_people_s_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(StorageError, match=f"{tmp_path} is not a Whence database: there is thesis.tex in it"):
        load(Disk(), tmp_path)
    with pytest.raises(StorageError, match=r"thesis.tex is a file, not a Whence database"):
        load(Disk(), tmp_path / "thesis.tex")


def make(folder: Path, disk: Disk) -> None:
    disk.make_folder(folder)
    lock = Lock(disk, folder)
    log = Log(disk, folder / "log", [])
    disk.make_folder(folder / "state")
    save(disk, folder, new_manifest(log.segments))
    log.close()
    lock.close()


def test_a_making_that_broke_off_can_be_done_again(tmp_path: Path) -> None:
    for at in range(1, points(lambda disk: make(tmp_path / "count", disk)) + 1):
        folder = tmp_path / str(at)
        assert dies(lambda disk, folder=folder: make(folder, disk), Mortal(at, tear=0.5))
        found = load(Disk(), folder)
        if found is None:
            make(folder, Disk())
            found = load(Disk(), folder)
        assert found is not None
        assert found.segments == (1,)


def test_a_vanished_manifest_is_not_taken_for_a_new_database(tmp_path: Path) -> None:
    make(tmp_path, Disk())
    log = Log(Disk(), tmp_path / "log", [1])
    log.append(EPOCH, 1, 0, [b"precious"])
    log.close()
    (tmp_path / MANIFEST).unlink()
    with pytest.raises(StorageError, match="MANIFEST has vanished, but the data is there"):
        load(Disk(), tmp_path)


def test_a_full_disk_leaves_a_manifest(tmp_path: Path) -> None:
    new = replace(FULL, segments=(8,))
    save(Disk(), tmp_path, FULL)
    for at in range(1, points(lambda disk: save(disk, tmp_path, FULL)) + 1):
        save(Disk(), tmp_path, FULL)
        disk = Failing(at)
        with pytest.raises(StorageError, match="the disk is full"):
            save(disk, tmp_path, new)
        assert load(Disk(), tmp_path) in (FULL, new)
        disk.heal()
        save(disk, tmp_path, new)
        assert load(Disk(), tmp_path) == new
