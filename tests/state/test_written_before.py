"""Folders that an earlier version wrote open today: images are restored, the log is replayed, and life goes on.

`written_before/programs.py` says how they were written, and how to add those of another version.
"""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.state.written_before.fingerprints import Script, computed, recorded
from tests.state.written_before.programs import HERE, Clock, Epoch, contents, formulas, perform, with_functions

ARCHIVES = sorted(HERE.glob("*.tar.xz"))


@dataclass
class Written:
    """A folder, and what is expected of it."""

    folder: Path
    options: dict[str, Any]
    done: list[Epoch]
    later: list[Epoch]
    now: float
    contents: dict[str, list[str]]
    formulas: dict[str, list[str]]
    queries: list[str]

    def open(self, clock: Clock) -> whence.Database:
        return whence.open(self.folder, clock=clock, setup=with_functions, **self.options)


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Written:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    expected = json.loads((tmp_path / "expected.json").read_text(encoding="utf-8"))
    return Written(tmp_path / "db", **expected)


def assert_contents(found: dict[str, list[str]], expected: dict[str, list[str]], when: str) -> None:
    assert found.keys() == expected.keys(), when
    for name, rows in expected.items():
        assert found[name] == rows, f"{name}, {when}"


def test_everything_is_restored_and_nothing_computed(written: Written) -> None:
    with written.open(Clock(written.now)) as db:
        recovery = db.recovery
        assert recovery is not None
        assert (recovery.primed, recovery.damaged, recovery.torn) == (0, (), None)
        assert recovery.restored > 0
        assert 0 < recovery.image_epoch < recovery.epoch
        assert recovery.replayed >= 4
        assert_contents(contents(db, written.queries), written.contents, "when opened")
        assert formulas(db, written.formulas) == written.formulas


def test_a_reader_follows_it(written: Written) -> None:
    def follow() -> whence.Database:
        return whence.open(written.folder, read_only=True, clock=Clock(written.now), setup=with_functions)

    if "partitions" in written.options and "CREATE STREAM" in str(written.done):  # a stream's past cannot be united
        with pytest.raises(whence.StorageError, match="open the database with as many"):
            follow()
        return
    with follow() as db:
        assert db.recovery is not None
        assert db.recovery.damaged == ()
        assert_contents(contents(db, written.queries), written.contents, "when followed")


def test_life_goes_on_as_without_a_restart(written: Written) -> None:
    clock, unbroken_clock = Clock(written.now), Clock()
    with written.open(clock) as db, whence.open(clock=unbroken_clock, setup=with_functions) as unbroken:
        past, drops = dict[int, dict[str, list[str]]](), 0
        for epoch in written.done:
            perform(unbroken, unbroken_clock, epoch)
            drops += str(epoch).count("DROP ")  # when these folders were written it was no epoch
            number = unbroken.epoch - drops
            if "retain" in written.options and number in (db.retained[0], db.retained[-6]):
                past[number] = contents(unbroken)
        assert unbroken.epoch - drops == db.epoch
        for number, expected in past.items():
            assert_contents(contents(db.at(number)), expected, f"at epoch {number}")
        for number, epoch in enumerate(written.later):
            perform(db, clock, epoch)
            perform(unbroken, unbroken_clock, epoch)
            if number % 4 == 3:
                assert_contents(
                    contents(db, written.queries), contents(unbroken, written.queries), f"{number + 1} epochs later"
                )
    report = whence.check(written.folder, setup=with_functions)  # computes every view from the tables
    assert report.ok, report


@pytest.mark.parametrize(("name", "scripts"), recorded().items(), ids=str)
def test_operators_keep_their_fingerprints(name: str, scripts: list[Script]) -> None:
    for script, found in zip(scripts, computed(script.sql for script in scripts), strict=True):
        assert found == script, name
