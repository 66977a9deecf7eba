"""A folder that is replaced by an older copy, or by a backup, under clients that are away or about to reconnect.

Whoever has a position that the folder does not know starts over: never are rows of two pasts merged. Whoever has a
position from before the copy was taken goes on from there.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.serving.checks import Line, PastStates, epoch_of
from tests.serving.follower import digest, read_lines
from tests.serving.processes import PATIENCE, ROOT, ChildProcess, ProcessGroup, ServerProcess, module, wait_until
from tests.serving.proxy import FaultyProxy
from tests.serving.world import FOLLOWED, SETUP, first_links, items_of, ticks_of
from whence.server.access.tokens import make_token

NAMES = ["totals", "together", "each", "windows"]


class World:
    """A server behind a proxy, and followers."""

    def __init__(self, folder: Path, group: ProcessGroup, proxy: FaultyProxy, token: str) -> None:
        self._folder, self._group, self._proxy, self._token = folder, group, proxy, token
        self.files: list[Path] = []

    def connect(self) -> Any:
        return whence.connect(self._proxy.url, token=self._token, timeout=PATIENCE, patience=1.0)

    def follower(self, number: int, resume: bool = False) -> ChildProcess:
        """Start a follower, or one that goes on where that number was."""
        path = self._folder / f"follower{number}.jsonl"
        if path not in self.files:
            self.files.append(path)
        given = {"url": self._proxy.url, "token": self._token, "out": str(path), "patience": 1.0, "ping": 1.0}
        arguments = module("follower", **given, names=NAMES, resume=resume)
        process: ChildProcess = self._group.add(ChildProcess(arguments, self._folder / "followers.log"))
        process.start()
        return process

    def wait_for(self, number: int, position: whence.Position | None) -> None:
        """Wait until a follower has written down that it reached a position."""
        assert position is not None
        path = self._folder / f"follower{number}.jsonl"

        def has_reached() -> bool:
            last = {line["s"]: line["at"] for line in read_lines(path) if "at" in line}
            told = [whence.Position.parse(at) for at in last.values()]
            # Nothing is told of an epoch that changes nothing: what is written changes all of NAMES.
            return len(last) == len(NAMES) and all(at.era == position.era and at.reaches(position) for at in told)

        wait_until(has_reached, f"follower {number} reaches {position}")


def write(client: Any, who: int, numbers: range) -> whence.Position:
    """Write rows, single ones and together, so that every subscription changes."""
    for number in numbers:
        client.insert("item", items_of(who, number))
    with client.transaction():
        client.insert("tick", [row for number in numbers for row in ticks_of(who, number)])
        client.insert("tick", [(who, -number, 49) for number in range(4)])
        client.insert("move", (who, numbers[0]))
        client.insert("item", (who * 1_000_000 + numbers[0] * 10 + 9, who, "ant", 99))
    assert client.position is not None
    position: whence.Position = client.position
    return position


def test_a_restored_folder_is_never_merged(tmp_path: Path) -> None:
    database, before, copied = tmp_path / "db", tmp_path / "before", tmp_path / "copied"
    with whence.open(database, retain="all") as db:
        db.execute(SETUP)
        db.insert("link", first_links())
    token = make_token(tmp_path / "tokens", "tester")
    with ProcessGroup() as group:
        server = group.add(ServerProcess(database, tmp_path / "tokens", log=tmp_path / "server.log"))
        server.start()
        with FaultyProxy(server.port) as proxy, (world := World(tmp_path, group, proxy, token)).connect() as client:
            early, stays, away = world.follower(0), world.follower(1), world.follower(2)
            shared = write(client, 1, range(1, 8))
            world.wait_for(0, shared)
            early.kill()
            server.signal(signal.SIGSTOP)
            shutil.copytree(database, copied)
            server.signal(signal.SIGCONT)
            lost = write(client, 2, range(1, 20))
            for number in (1, 2):
                world.wait_for(number, lost)
            away.kill()
            # The folder goes back; other rows come under the numbers of epochs that clients have.
            server.kill()
            database.rename(before)
            copied.rename(database)
            proxy.cut()
            server.start()
            away, early = world.follower(2, resume=True), world.follower(0, resume=True)
            check_lost(client, lost)
            new = write(client, 3, range(1, 30))
            check_reached(client, lost, new)
            for number in range(3):
                world.wait_for(number, new)
            # And once more, by a backup, which is a database of its own.
            server.kill()
            database.rename(copied)
            command = [sys.executable, "-m", "whence.cli", "backup", str(copied), str(database)]
            subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=PATIENCE)
            server.start()
            own = write(client, 4, range(1, 8))
            with pytest.raises(whence.DataError, match="another history"):
                client.query("SELECT 1 AS x", at_least=new)
            for process in (early, stays, away):
                process.say(f"finish {own}")
            for process in (early, stays, away):
                assert process.wait() == 0, process.log()
        server.kill()
    assert lost.history == new.history != own.history
    assert lost.era != new.era
    with ExitStack() as stack:
        folders = [stack.enter_context(whence.open(path, read_only=True)) for path in (before, copied, database)]
        check_pasts(world.files, folders, fork=shared.epoch)


def check_lost(client: Any, lost: whence.Position) -> None:
    """Check that a client learns that a position is gone, and that its own goes on from what there is now."""
    with pytest.raises(whence.DataError, match="another history"):
        client.query("SELECT COUNT(*) AS n FROM item", at_least=lost)
    client.insert("item", items_of(3, 0))
    assert client.position.era != lost.era, "the last position is not of the past that was replaced"
    assert client.position.epoch < lost.epoch


def check_reached(client: Any, lost: whence.Position, new: whence.Position) -> None:
    """Check that a lost position is not taken for reached when there are as many epochs again."""
    assert new.epoch > lost.epoch
    assert client.query("SELECT COUNT(*) AS n FROM item WHERE who = 3", at_least=new).rows[0][0] > 29
    with client.subscribe("totals") as subscription:
        with pytest.raises(whence.DataError, match="another history"):
            subscription.wait_for(lost, timeout=PATIENCE)
        assert subscription.wait_for(new, timeout=PATIENCE).position.reaches(new)


def check_pasts(files: list[Path], folders: list[whence.Database], fork: int) -> None:
    """Check that every update is of one past, and that only a restart leads from one to the next.

    `folders` are those that were served, in order; each has the eras that its server told of."""
    pasts = [PastStates(db) for db in folders]
    told: dict[tuple[str, str], int] = {}  # to which folder positions of an era belong: the first that has it
    for place, db in enumerate(folders):
        for era in db._coordinator.lineage.eras:
            told.setdefault((db.position.history, era.id), place)
    for path in files:
        for name in NAMES:
            lines = [line for line in read_lines(path) if line.get("s") == name and "at" in line]
            last: tuple[int, Line] | None = None
            for line in lines:
                position = whence.Position.parse(line["at"])
                place = told[position[:2]]
                if last is not None:
                    check_step(f"{path.name} {name}", *last, place, line, fork)
                for query, part in zip(FOLLOWED[name].texts, line["parts"], strict=True):
                    wanted = pasts[place].rows(position.epoch, query)
                    assert digest(wanted.elements()) == part["rows"], f"{path.name} {name}: {query} at {position}"
                last = place, line
            assert last is not None
            assert last[0] == len(folders) - 1, "it ended in the last past"
    for past in pasts:
        past.close()


def check_step(what: str, was: int, before: Line, place: int, line: Line, fork: int) -> None:
    """Check how a subscription came from one update to the next."""
    assert place >= was, f"{what} went back to a past that was replaced, at {line['at']}"
    known = place == 1 and epoch_of(before) <= fork  # the copy has that epoch, too
    if place == was:
        assert epoch_of(line) >= epoch_of(before), f"{what} went back from {before['at']} to {line['at']}"
    elif known:
        assert line["restarted"] in ("", "behind"), f"{what} has a position that is known, and began again"
    else:
        assert line["restarted"] == "restarted", f"{what} went from {before['at']} to {line['at']}: {line['restarted']}"


def test_a_server_that_only_reads_notices_a_replaced_folder(tmp_path: Path) -> None:
    path, copied = tmp_path / "db", tmp_path / "copied"
    with whence.open(path) as writer:
        writer.execute("CREATE TABLE a (x INT); CREATE VIEW n AS SELECT COUNT(*) AS n FROM a")
        writer.insert("a", [(i,) for i in range(5)])
        shutil.copytree(path, copied)
        writer.insert("a", (100,))
        reader = whence.open(path, read_only=True)
    with reader, whence.serve(reader, port=0) as server, whence.connect(server.url, token=server.token) as client:
        subscription = client.subscribe({"a": "a", "n": "n"})
        first = subscription.next(timeout=PATIENCE)
        assert first["n"].rows == [(6,)]
        path.rename(tmp_path / "before")
        copied.rename(path)
        with whence.open(path) as writer:
            for i in range(3):
                writer.insert("a", (1000 + i,))
            found = subscription.next(timeout=PATIENCE)
            assert found.restarted == "restarted"
            last = subscription.wait_for(writer.position, timeout=PATIENCE)
            assert sorted(last["a"].rows) == sorted(writer["a"].rows)
            assert last["n"].rows == [(8,)]
            with pytest.raises(whence.DataError, match="another history"):
                subscription.wait_for(first.position, timeout=PATIENCE)
