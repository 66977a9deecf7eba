"""Whatever happens, bounds only shrink, positions only grow, and what comes out lies in all bounds ever shown."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

import whence
from tests.depth import DEEP
from whence.plan.knowledge.bounds import Bounds
from whence.subscribe.updates import PartUpdate, Update

PROGRAM = """
CREATE STREAM trade (at INT, issue TEXT, price INT CHECK (price BETWEEN 0 AND 9)) WITH (ordered = 'at');
CREATE STREAM play (game TEXT, kind TEXT, team TEXT) WITH (closes = 'game when kind = ''end''');
CREATE STREAM slot (at INT CHECK (at BETWEEN 0 AND 59), v INT CHECK (v BETWEEN 0 AND 3)) WITH (ordered = 'at strictly');
CREATE TABLE listed (issue TEXT PRIMARY KEY, sector TEXT);
CREATE VIEW hourly AS SELECT at // 10 AS hour, issue, MAX(price) AS high, MIN(price) AS low, COUNT(*) AS n,
  SUM(price) AS total FROM trade GROUP BY 1, 2;
"""
QUERIES = {
    "trade": "SELECT * FROM trade",
    "hourly": "hourly",
    "calm": "SELECT hour, issue FROM hourly WHERE high < 6",
    "busy": "SELECT hour, issue, n > 2 AS busy FROM hourly",
    "wide": "SELECT hour, issue, high - low AS width FROM hourly WHERE n >= 2",
    "score": "SELECT game, team, COUNT(*) AS goals FROM play WHERE kind = 'goal' GROUP BY game, team",
    "slots": "SELECT at // 20 AS third, COUNT(*) AS n, SUM(v) AS s, MAX(v) AS m FROM slot GROUP BY 1",
    "silent": "SELECT DISTINCT at // 10 AS hour FROM trade t WHERE issue NOT IN (SELECT issue FROM listed)",
    "sector": "SELECT at // 10 AS hour, sector, COUNT(*) AS n FROM trade JOIN listed USING (issue) GROUP BY 1, 2",
    "all": "SELECT COUNT(*) AS n, MAX(price) AS high FROM trade",
    "best": "SELECT issue, price FROM trade ORDER BY price DESC, at LIMIT 3",
}
KEYS = {
    "hourly": ("hour", "issue"),
    "calm": ("hour", "issue"),
    "busy": ("hour", "issue"),
    "wide": ("hour", "issue"),
    "score": ("game", "team"),
    "slots": ("third",),
    "silent": ("hour",),
    "sector": ("hour", "sector"),
    "all": (),
}


class Writer:
    """Makes random epochs that keep the promises."""

    def __init__(self, db: whence.Database, seed: int) -> None:
        self.db, self.dice = db, random.Random(seed)
        self.at, self.slot, self.over = 0, -1, set[str]()

    def write(self) -> None:
        db, dice = self.db, self.dice
        match dice.randrange(8):
            case 0 | 1 | 2:
                rows = []
                for _ in range(dice.randrange(1, 4)):
                    self.at += dice.choice([0, 0, 1, 2, 5])
                    rows.append((self.at, dice.choice("ABC"), dice.randrange(10)))
                db.insert("trade", rows)
            case 3:
                self.at += dice.choice([1, 5, 10])
                db.advance("trade", self.at, on="at")
            case 4 | 5:
                game = dice.choice(["NY", "DET", "BOS"])
                if game not in self.over:
                    kind = dice.choice(["goal", "goal", "goal", "foul", "end"])
                    self.over |= {game} if kind == "end" else set()
                    db.insert("play", (game, kind, None if kind == "end" else dice.choice("xy")))
            case 6:
                self.slot += dice.choice([1, 2, 7])
                if self.slot < 60:
                    db.insert("slot", (self.slot, dice.randrange(4)))
            case 7:
                if dice.random() < 0.5:
                    db.insert("listed", (dice.choice("ABC"), dice.choice("xy")))
                else:
                    db.delete("listed", {"issue": dice.choice("ABC")})


class Witness:
    """Remembers what one subscriber was told of one query, and holds it against what comes later."""

    def __init__(self, name: str) -> None:
        self.name, self.key = name, KEYS.get(name)
        self.bounds = dict[Any, list[Bounds]]()
        self.settled = dict[Any, Any]()
        self.absent = set[Any]()
        self.staying = set[Any]()
        self.final = list[Any]()

    def see(self, part: PartUpdate) -> None:
        self.final += part.final
        if self.key is None:
            for row in part.rows:
                assert not part.known_row(row).is_final or row in part.rows
            return
        there = set()
        for row in part.rows:
            values = dict(zip(part.columns, row, strict=True))
            key = tuple(values[name] for name in self.key)
            there.add(key)
            known = part.row(dict(zip(self.key, key, strict=True)))
            assert known.state == "present"
            assert known.values == row
            now = [known.bounds.of(name) for name in part.columns]
            for bounds, value in zip(now, row, strict=True):
                assert bounds.allows(value), (self.name, str(known))
            before = self.bounds.get(key)
            if before is not None:
                assert all(a <= b for a, b in zip(before, now, strict=True)), (self.name, key, before, now)
            self.bounds[key] = now
            assert self.settled.get(key, row) == row
            if known.is_final:
                self.settled[key] = row
            if not known.may_go:
                self.staying.add(key)
        assert there >= self.staying, (self.name, self.staying - there)
        assert not there & self.absent, (self.name, there & self.absent)
        for key in self.keys() - there:
            known = part.row(dict(zip(self.key, key, strict=True)))
            assert known.state != "present"
            if known.is_final:
                self.absent.add(key)

    def keys(self) -> set[Any]:
        match self.name:
            case "slots":
                return {(third,) for third in range(4)}
            case "silent":
                return {(hour,) for hour in range(8)}
            case "score":
                return {(game, team) for game in ("NY", "DET", "BOS") for team in "xy"}
            case "sector":
                return {(hour, sector) for hour in range(8) for sector in "xy"}
            case "all":
                return {()}
        return {(hour, issue) for hour in range(8) for issue in "ABCD"}

    def end(self, part: PartUpdate) -> None:
        """What was told as final was told once, and is there in the end."""
        rows = list(part.rows)
        for row in self.final:
            assert row in rows, (self.name, row)
            rows.remove(row)


def check(seed: int, db: whence.Database, updates: Any, catch_up: Any) -> list[Witness]:
    writer, witnesses = Writer(db, seed), [Witness(name) for name in QUERIES]
    last: Update | None = None

    def take() -> None:
        nonlocal last
        for update in catch_up():
            assert last is None or update.position.epoch >= last.position.epoch
            for witness in witnesses:
                witness.see(update[witness.name])
            last = update

    for _ in range(60):
        writer.write()
        if writer.dice.random() < 0.6:
            take()
    db.advance("trade", 10_000, on="at")
    for game in sorted({"NY", "DET", "BOS"} - writer.over):
        db.insert("play", (game, "end", None))
    take()
    assert last is not None
    for witness in witnesses:
        part = last[witness.name]
        for row in part.rows:
            if witness.name in ("trade", "hourly", "calm", "busy", "wide", "score"):
                assert part.known_row(row).is_final, (witness.name, row)
        witness.end(part)
    return witnesses


@pytest.fixture
def db() -> Iterator[whence.Database]:
    with whence.open() as found:
        found.execute(PROGRAM)
        yield found


@pytest.mark.parametrize("seed", range(150 if DEEP else 12))
def test_bounds_hold_in_process(db: whence.Database, seed: int) -> None:
    subscription = db.subscribe(QUERIES)
    witnesses = check(seed, db, subscription, lambda: list(subscription))
    assert any(witness.settled for witness in witnesses)


@pytest.mark.parametrize("seed", range(20 if DEEP else 2))
def test_bounds_hold_over_the_network(db: whence.Database, seed: int) -> None:
    with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        subscription = client.subscribe(QUERIES)
        witnesses = check(seed, db, subscription, lambda: [subscription.wait_for(db.position)] if subscription else [])
        assert any(witness.settled for witness in witnesses)
