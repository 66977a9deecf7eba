"""The numbers of paper 004 that concern knowledge, over databases with promises: hours, games, flights, bookings."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

import whence
from tests.knowledge.interpreter import rows_of
from whence.plan.knowledge.derive import augmented
from whence.plan.knowledge.model import RelationKnowledge
from whence.subscribe.cells import RowKnowledge, about_absent, evaluate
from whence.subscribe.horizons import Key

TEN, ELEVEN = dt.datetime(2026, 11, 18, 10), dt.datetime(2026, 11, 18, 11)


def at(minute: int) -> dt.datetime:
    """A time of the morning."""
    return TEN + dt.timedelta(minutes=minute)


class DatabaseHorizons:
    """The horizons of a database now, by the numbers of a view's knowledge."""

    def __init__(self, db: whence.Database, knowledge: RelationKnowledge) -> None:
        self._horizons, self._sources = db._coordinator.horizons(), knowledge.sources

    def bound(self, use: int) -> tuple[Any, bool] | None:
        source = self._sources[use]
        found = self._horizons.of(source.name, source.column_name) if source.column_name else None
        return None if found is None else (found.value, found.strictly)

    def known_ranges(self, use: int) -> Sequence[tuple[Any, Any]]:
        return ()

    def is_closed(self, use: int, key: Key) -> bool:
        return self._horizons.is_closed(self._sources[use].name, key)

    def closed_after(self, use: int, count: int) -> Sequence[Key]:
        return self._horizons.closed_keys(self._sources[use].name)[count:]


class Known:
    """What is known of a view now: `known["ACME"]` by the first column, as text by column."""

    def __init__(self, db: whence.Database, view: str) -> None:
        self.db, planned = db, db._coordinator.catalog.planned
        self.found = augmented(planned, view)
        self.knowledge = msgspec.json.decode(msgspec.json.encode(self.found.knowledge), type=RelationKnowledge)
        assert self.knowledge == self.found.knowledge
        tables = {name: [tuple(row) for row in db[name].rows] for name in planned.tables}
        self._rows = rows_of(self.found.plan, planned, tables)
        width = len(self.knowledge.columns)
        assert sorted(row[:width] for row in self._rows) == sorted(map(tuple, db[view].rows))

    @property
    def horizons(self) -> DatabaseHorizons:
        return DatabaseHorizons(self.db, self.knowledge)

    def row(self, *key: Any) -> RowKnowledge:
        (row,) = [row for row in self._rows if row[: len(key)] == key]
        width = len(self.knowledge.columns)
        return evaluate(self.knowledge, row[:width], row[width:], self.horizons)

    def texts(self, *key: Any) -> dict[str, str]:
        bounds = self.row(*key).bounds
        return {name: b.text() for name, b in zip(self.knowledge.columns, bounds, strict=True)}

    def absent(self, *key: Any, was_there: bool = False) -> str:
        given = dict(zip(self.knowledge.key, key, strict=False))
        return about_absent(self.knowledge, given, self.horizons, was_there=was_there)


@pytest.fixture
def market() -> whence.Database:
    db = whence.open()
    db.execute(
        """
        CREATE STREAM trade (
            at TIMESTAMP NOT NULL, issue TEXT NOT NULL, price INT NOT NULL, shares INT CHECK (shares >= 0)
        ) WITH (ordered = 'at');
        CREATE VIEW hourly AS SELECT issue, date_trunc('hour', at) AS hour, MAX(price) AS high, MIN(price) AS low,
            SUM(shares) AS shares, MAX(price) < 100 AS cheap FROM trade GROUP BY issue, date_trunc('hour', at);
        CREATE VIEW cheap AS SELECT issue, date_trunc('hour', at) AS hour FROM trade
            GROUP BY issue, date_trunc('hour', at) HAVING MAX(price) < 100;
        CREATE VIEW quarters AS SELECT time_bucket(INTERVAL '15 minutes', at) AS quarter, COUNT(*) AS n FROM trade
            GROUP BY time_bucket(INTERVAL '15 minutes', at);
        CREATE VIEW days AS SELECT CAST(at AS DATE) AS day, COUNT(*) AS n FROM trade GROUP BY CAST(at AS DATE);
        """
    )
    return db


def test_hourly_high_is_at_least_until_the_hour_is_over(market: whence.Database) -> None:
    market.insert("trade", [(at(5), "ACME", 80, 10), (at(50), "ACME", 70, 5)])
    known = Known(market, "hourly")
    assert known.texts("ACME") == {
        "issue": "= ACME",
        "hour": "= 2026-11-18 10:00:00",
        "high": "≥ 80",
        "low": "≤ 70",
        "shares": "≥ 15",
        "cheap": "False–True",
    }
    assert not known.row("ACME").is_final
    assert known.absent("ZINC", TEN) == "may come"
    market.insert("trade", [(at(60), "ZINC", 20, 1)])
    known = Known(market, "hourly")
    assert known.texts("ACME")["high"] == "= 80"
    assert known.texts("ACME")["cheap"] == "= True"
    assert known.row("ACME").is_final
    assert known.absent("ZINC", TEN) == "finally absent"
    assert known.absent("ACME", ELEVEN) == "may come"


def test_silence_makes_the_hour_final(market: whence.Database) -> None:
    market.insert("trade", [(at(5), "ACME", 80, 10)])
    market.advance("trade", at(59), on="at")
    assert not Known(market, "hourly").row("ACME").is_final
    market.advance("trade", at(60), on="at")
    assert Known(market, "hourly").row("ACME").is_final


def test_condition_is_finally_false_at_once(market: whence.Database) -> None:
    market.insert("trade", [(at(5), "ACME", 80, 10), (at(6), "ZINC", 100, 10)])
    known = Known(market, "hourly")
    assert known.row("ACME").bounds[5].pair == (False, True)
    assert known.row("ZINC").bounds[5].pair == (False, False)
    assert known.row("ACME").bounds[2].pair == (80, None)


def test_row_of_having_may_go_and_then_is_gone_for_good(market: whence.Database) -> None:
    market.insert("trade", [(at(5), "ACME", 80, 10), (at(6), "ZINC", 90, 10)])
    known = Known(market, "cheap")
    assert known.row("ACME").may_go
    assert not known.row("ACME").is_final
    market.insert("trade", [(at(7), "ZINC", 100, 1)])
    known = Known(market, "cheap")
    assert known.absent("ZINC", TEN, was_there=True) == "finally absent"
    assert known.absent("IRON", TEN) == "may come"
    assert market.execute("DESCRIBE cheap").rows[0][-1] == "may go, = once at passes"
    market.insert("trade", [(at(61), "IRON", 5, 1)])
    known = Known(market, "cheap")
    assert known.row("ACME").is_final
    assert known.absent("GOLD", TEN) == "finally absent"


def test_groups_by_buckets_and_days_close(market: whence.Database) -> None:
    market.insert("trade", [(at(5), "ACME", 80, 10), (at(14), "ACME", 80, 10)])
    assert Known(market, "quarters").texts(TEN)["n"] == "≥ 2"
    market.insert("trade", [(at(15), "ACME", 80, 10)])
    assert Known(market, "quarters").texts(TEN)["n"] == "= 2"
    assert Known(market, "days").texts(TEN.date())["n"] == "≥ 3"
    market.insert("trade", [(at(60 * 14), "ACME", 80, 10)])
    assert Known(market, "days").texts(TEN.date())["n"] == "= 3"


def test_games_have_final_scores() -> None:
    db = whence.open()
    db.execute(
        """
        CREATE STREAM event (game TEXT NOT NULL, kind TEXT NOT NULL, team TEXT)
            WITH (closes = 'game when kind = ''end''');
        CREATE VIEW score AS SELECT game, team, COUNT(*) AS goals FROM event WHERE kind = 'goal' GROUP BY game, team;
        CREATE VIEW total AS SELECT game, SUM(goals) AS goals FROM score GROUP BY game;
        CREATE VIEW ours AS SELECT COUNT(*) AS n, MAX(team = 'NY') AS scored FROM event
            WHERE game = 'NY-DET' AND kind = 'goal';
        CREATE VIEW decided AS SELECT a.game, a.goals > b.goals AS ahead FROM score a JOIN score b ON a.game = b.game
            WHERE a.team = 'NY' AND b.team = 'DET';
        """
    )
    goals = ["NY", "DET", "NY", "NY", "DET", "NY"]
    db.insert("event", [("NY-DET", "goal", team) for team in goals] + [("CHI-BOS", "goal", "BOS")])
    assert Known(db, "score").texts("NY-DET", "NY")["goals"] == "≥ 4"
    assert Known(db, "total").texts("NY-DET")["goals"] == "≥ 6"
    assert Known(db, "decided").row("NY-DET").bounds[1].pair == (False, True)
    assert Known(db, "score").absent("CHI-BOS", "CHI") == "may come"
    assert Known(db, "ours").texts() == {"n": "≥ 6", "scored": "= True"}
    db.insert("event", [("NY-DET", "end", None)])
    assert Known(db, "score").texts("NY-DET", "NY")["goals"] == "= 4"
    assert Known(db, "score").row("NY-DET", "DET").is_final
    assert Known(db, "total").row("NY-DET").is_final
    assert Known(db, "ours").row().is_final
    assert Known(db, "decided").row("NY-DET").is_final
    assert Known(db, "score").absent("NY-DET", "CHI") == "finally absent"
    assert not Known(db, "score").row("CHI-BOS", "BOS").is_final
    assert db.execute("DESCRIBE score").rows[2][-1] == "≥, = once game closes"
    assert db.execute("DESCRIBE ours").rows[0][-1] == "≥, = once game closes"


@pytest.mark.parametrize("check", ["CHECK (n >= 0)", ""])
def test_seats_are_bounded_by_what_is_booked(check: str) -> None:
    db = whence.open()
    db.execute(
        f"""
        CREATE STREAM opened (flight TEXT NOT NULL, seats INT NOT NULL);
        CREATE STREAM booked (flight TEXT NOT NULL, n INT NOT NULL {check});
        CREATE VIEW free AS SELECT f.flight, f.seats - COALESCE(b.n, 0) AS free, f.seats FROM
            (SELECT DISTINCT flight, seats FROM opened) f LEFT JOIN
            (SELECT flight, SUM(n) AS n FROM booked GROUP BY flight) b ON f.flight = b.flight;
        CREATE VIEW available AS SELECT flight, seats FROM free WHERE free > 0;
        CREATE VIEW raised AS SELECT flight FROM free WHERE free > 0;
        """
    )
    db.insert("opened", [("NW44", 10), ("AA141", 200)])
    db.insert("booked", [("NW44", 4)])
    claims = bool(check)
    assert Known(db, "free").row("NW44").bounds[1].pair == (None, 6 if claims else None)
    assert Known(db, "free").row("AA141").bounds[1].pair == (None, 200 if claims else None)
    assert Known(db, "available").row("NW44").may_go
    db.insert("booked", [("NW44", 6)])
    assert Known(db, "free").row("NW44").bounds[1].pair == (None, 0 if claims else None)
    known = Known(db, "available")
    assert known.absent("NW44", 10, was_there=True) == ("finally absent" if claims else "may come")
    assert known.absent("UA23", 20) == "may come"
    assert Known(db, "raised").absent("NW44", was_there=True) == "may come"
    db.insert("opened", [("NW44", 12)])  # with two more seats
    assert Known(db, "raised").row("NW44").may_go


def test_booked_and_not_cancelled() -> None:
    db = whence.open()
    db.execute(
        """
        CREATE STREAM booked (t INT NOT NULL, id INT NOT NULL) WITH (ordered = 't');
        CREATE STREAM cancelled (t INT NOT NULL, id INT NOT NULL) WITH (closes = 'id when t < 0');
        CREATE VIEW stands AS SELECT id FROM (SELECT DISTINCT id FROM booked) b
            WHERE NOT EXISTS (SELECT 1 FROM (SELECT DISTINCT id FROM cancelled) c WHERE c.id = b.id);
        """
    )
    db.insert("booked", [(1, 7), (2, 8), (3, 9)])
    assert Known(db, "stands").row(7).may_go
    db.insert("cancelled", [(1, 7)])
    known = Known(db, "stands")
    assert known.absent(7, was_there=True) == "finally absent"
    assert known.absent(10) == "may come"
    assert not known.row(8).is_final
    assert db.execute("DESCRIBE stands").rows[0][-1] == "may go, = once id closes"


def test_nothing_is_claimed_over_tables() -> None:
    db = whence.open()
    db.execute(
        """
        CREATE TABLE quote (issue TEXT PRIMARY KEY, price INT CHECK (price >= 0));
        CREATE TABLE loose (x INT);
        CREATE STREAM trade (issue TEXT, price INT);
        CREATE VIEW high AS SELECT MAX(price) AS high, COUNT(*) AS n FROM quote;
        CREATE VIEW by_issue AS SELECT issue, MAX(price) AS high FROM quote GROUP BY issue;
        CREATE VIEW mixed AS SELECT t.issue, t.high, q.price FROM quote q
            JOIN (SELECT issue, MAX(price) AS high FROM trade GROUP BY issue) t ON q.issue = t.issue;
        CREATE VIEW cheapest AS SELECT issue FROM quote ORDER BY price LIMIT 3;
        """
    )
    db.insert("quote", [("A", 80)])
    db.insert("loose", [(1,)])
    db.insert("trade", [("A", 81)])
    for view in ("quote", "loose", "high", "by_issue", "mixed", "cheapest"):
        known = Known(db, view)
        (row,) = [evaluate(known.knowledge, r[: len(known.knowledge.columns)], ()) for r in known._rows]
        assert not row.is_final, view
        if view not in ("mixed", "by_issue", "quote", "cheapest"):
            assert all(bounds.low is None and bounds.high is None for bounds in row.bounds), view
    assert Known(db, "mixed").texts("A") == {"issue": "= A", "high": "≥ 81", "price": "?"}
    assert Known(db, "mixed").row("A").may_go
    assert {row[-1] for row in db.execute("DESCRIBE cheapest").rows} == {"as of"}


def test_recursion_over_streams_only_grows() -> None:
    db = whence.open()
    db.execute(
        """
        CREATE STREAM link (src INT NOT NULL, dst INT NOT NULL, cost INT NOT NULL);
        CREATE TABLE road (src INT, dst INT);
        CREATE VIEW reach AS SELECT DISTINCT src, dst FROM link
            UNION SELECT r.src, l.dst FROM reach r JOIN (SELECT DISTINCT src, dst FROM link) l ON r.dst = l.src;
        CREATE VIEW path AS SELECT src, dst, MIN(cost) AS cost FROM (
            SELECT src, dst, cost FROM link
            UNION ALL SELECT p.src, l.dst, p.cost + l.cost
            FROM path p JOIN (SELECT DISTINCT * FROM link) l ON p.dst = l.src
            ) GROUP BY src, dst;
        CREATE VIEW far AS SELECT src, MAX(cost) AS cost FROM path GROUP BY src;
        CREATE VIEW near AS SELECT src, MIN(cost) AS cost, COUNT(*) AS n FROM path GROUP BY src;
        CREATE VIEW driven AS SELECT src, dst FROM road
            UNION SELECT d.src, r.dst FROM driven d JOIN road r ON d.dst = r.src;
        """
    )
    knows = {
        view: [row[-1] for row in db.execute(f"DESCRIBE {view}").rows]
        for view in ("reach", "path", "far", "near", "driven")
    }
    assert knows == {
        "reach": ["=", "="],
        "path": ["=", "=", "≤"],
        "far": ["=", "as of"],
        "near": ["=", "≤", "≥"],
        "driven": ["as of", "as of"],
    }


def test_windows_and_lookups_are_final_when_they_come() -> None:
    db = whence.open()
    db.execute(
        """
        CREATE STREAM trade (t INT NOT NULL, issue TEXT, price INT) WITH (ordered = 't');
        CREATE TABLE name (issue TEXT PRIMARY KEY, long TEXT);
        CREATE VIEW windows AS SELECT window_start, MAX(price) AS high
            FROM slide(trade, on => t, width => 10, every => 10) GROUP BY window_start;
        CREATE VIEW named AS SELECT t.t, n.long, t.price FROM trade t JOIN name n ON t.issue = n.issue;
        CREATE VIEW recent AS SELECT issue, MAX(price) AS high FROM latest(trade, on => t, width => 10) GROUP BY issue;
        CREATE VIEW counted AS SELECT high, COUNT(*) AS n FROM windows GROUP BY high;
        """
    )
    knows = {
        view: [row[-1] for row in db.execute(f"DESCRIBE {view}").rows]
        for view in ("windows", "named", "recent", "counted")
    }
    assert knows == {
        "windows": ["=", "="],
        "named": ["=", "=", "="],
        "recent": ["as of", "as of"],
        "counted": ["=", "≥"],
    }


def test_groups_of_ten_seconds_close() -> None:
    """The width of a bucket is an INTERVAL, which travels as part of what is known."""
    with whence.open() as db:
        db.execute(
            """
            CREATE STREAM reading (at TIMESTAMP NOT NULL, x INT NOT NULL) WITH (ordered = 'at');
            CREATE VIEW high AS
              SELECT time_bucket(INTERVAL '10 seconds', at) AS since, MAX(x) AS x FROM reading GROUP BY 1
            """
        )
        subscription = db.subscribe("high", key="since")
        db.insert("reading", [(TEN + dt.timedelta(seconds=second), second) for second in (1, 9)])
        since = TEN
        *_, update = subscription
        assert (update.row(since).bounds["x"], update.row(since).is_final) == ((9, None), False)
        db.insert("reading", [(TEN + dt.timedelta(seconds=10), 0)])
        *_, update = subscription
        assert (update.row(since).bounds["x"], update.row(since).is_final) == ((9, 9), True)
        assert update.final == [(since, 9)]


def test_checks_over_two_columns_bound_one_by_the_other() -> None:
    """What ends after it begins closes by its end when the horizon of the beginnings has passed that."""
    db = whence.open()
    db.execute(
        """
        CREATE STREAM job (
            began INT NOT NULL, ended INT NOT NULL, low INT NOT NULL, high INT NOT NULL CHECK (high <= 9),
            CHECK (began <= ended AND low <= high)
        ) WITH (ordered = 'began');
        CREATE VIEW by_end AS SELECT ended // 10 AS ten, COUNT(*) AS n, MAX(low) AS low, SUM(high - low) AS width
            FROM job GROUP BY 1;
        CREATE VIEW pairs AS SELECT DISTINCT low, high FROM job;
        """
    )
    db.insert("job", [(1, 5, 2, 4), (2, 25, 9, 9)])
    known = Known(db, "by_end")
    assert known.knowledge.text == (
        "=",
        "≥, = once began passes",
        "≥, = once began passes",
        "≥, = once began passes",
    )
    assert known.texts(0) == {"ten": "= 0", "n": "≥ 1", "low": "2–9", "width": "≥ 2"}
    assert known.texts(2)["low"] == "= 9"
    assert known.absent(1) == "may come"
    db.advance("job", 10, on="began")
    known = Known(db, "by_end")
    assert known.row(0).is_final
    assert not known.row(2).is_final
    assert known.absent(0) == "finally absent"
    pairs = Known(db, "pairs")
    assert pairs.absent(3, 2) == "finally absent"
    assert pairs.absent(2, 3) == "may come"
    update = list(db.subscribe("by_end"))[-1]
    assert update.final == [(0, 1, 2, 2)]


def test_first_of_a_group_is_final() -> None:
    db = whence.open()
    db.execute(
        """
        CREATE STREAM trade (at INT NOT NULL, issue TEXT, price INT) WITH (ordered = 'at');
        CREATE VIEW opening AS SELECT issue, FIRST(price) AS first, FIRST(price ORDER BY at) AS by_time,
            FIRST(price ORDER BY price) AS by_price, LAST(price) AS last FROM trade GROUP BY issue;
        """
    )
    db.insert("trade", [(1, "ACME", 80), (2, "ACME", 70)])
    row = list(db.subscribe("opening"))[-1].row("ACME")
    assert {name: row.bounds.of(name).is_final for name in row.columns} == {
        "issue": True,
        "first": True,
        "by_time": True,
        "by_price": False,
        "last": False,
    }
    words = [line[-1] for line in db.execute("DESCRIBE opening").rows]
    assert words == ["=", "=", "=", "as of", "as of"]


def test_first_rows_in_an_order_are_final_once_it_has_passed_them() -> None:
    db = whence.open()
    db.execute(
        """
        CREATE STREAM trade (at INT NOT NULL, price INT) WITH (ordered = 'at');
        CREATE VIEW earliest AS SELECT at, price FROM trade ORDER BY at LIMIT 2;
        CREATE VIEW cheapest AS SELECT at, price FROM trade ORDER BY price LIMIT 2;
        """
    )
    earliest, cheapest = db.subscribe("earliest"), db.subscribe("cheapest")
    db.insert("trade", [(1, 80), (2, 70), (2, 60)])
    update = list(earliest)[-1]
    assert [update.known_row(row).is_final for row in update.rows] == [True, False]
    assert list(cheapest)[-1].row(at=2, price=60).may_go
    db.insert("trade", [(3, 50)])
    update = list(earliest)[-1]
    assert update.rows == [(1, 80), (2, 60)]
    assert update.final == [(2, 60)]
    gone = list(cheapest)[-1].row(at=2, price=70)
    assert (gone.state, gone.is_final) == ("withdrawn", True)  # what was beaten does not come back
