"""What tests of positions and durable epochs share: a listener that notes what it is told."""

from __future__ import annotations

import threading
from pathlib import Path

import whence
from tests import inside
from whence.state.disk import Disk
from whence.state.folder import Folder
from whence.subscribe.positions import HistoryLineage, Position

TABLE = "CREATE TABLE a (x INT)"
VIEW = "CREATE OR REPLACE VIEW b AS SELECT x + {} AS x FROM a"
DURABILITIES = ("commit", "interval", "none")


def make(path: Path) -> Path:
    """Make a database with a table and one epoch."""
    with whence.open(path) as db:
        db.execute(TABLE)
        insert(db)
    return path


def insert(db: whence.Database, times: int = 1) -> Position:
    for _ in range(times):
        db.insert("a", [(db.epoch,)])
    return db.position


def lineage(db: whence.Database) -> HistoryLineage:
    found = inside.coordinator(db).storage.lineage
    assert isinstance(found, HistoryLineage)
    return found


def knows(db: whence.Database, position: Position) -> bool:
    return lineage(db).knows(position, inside.coordinator(db).durable_epoch)


def listed_eras(path: Path) -> dict[str, int]:
    return dict(Folder(path, Disk()).manifest.eras)


class Noted:
    """A listener that notes what it is told, and what was stable then."""

    def __init__(self, db: whence.Database) -> None:
        self.epochs: list[int] = []
        self.restarts: list[int] = []
        self.positions: list[Position] = []
        self._coordinator = inside.coordinator(db)
        self._coordinator.on_durable(self._durable, self._restarted)
        self.arrived = threading.Condition()

    def _durable(self, epoch: int) -> None:
        with self.arrived:
            self.epochs.append(epoch)
            self.positions.append(self._coordinator.lineage.at(epoch))
            self.arrived.notify_all()

    def _restarted(self, epoch: int) -> None:
        self.restarts.append(epoch)

    def stop(self) -> None:
        self._coordinator.off_durable(self._durable)

    def wait_for(self, epoch: int) -> None:
        with self.arrived:
            assert self.arrived.wait_for(lambda: self.epochs[-1:] >= [epoch], timeout=30)
