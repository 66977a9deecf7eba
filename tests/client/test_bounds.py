"""What values can still become, told to subscribers: the same in process, over msgpack and with every message late."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import whence
from whence.subscribe.updates import Update

TRADES = """
CREATE STREAM trade (at TIMESTAMP, issue TEXT, price INT CHECK (price BETWEEN 0 AND 1000)) WITH (ordered = 'at');
CREATE VIEW hourly AS
  SELECT date_trunc('hour', at) AS hour, MAX(price) AS high, MIN(price) AS low, COUNT(*) AS n FROM trade GROUP BY 1;
CREATE VIEW calm AS SELECT hour FROM hourly WHERE high < 100;
CREATE VIEW judged AS SELECT hour, high < 100 AS calm FROM hourly;
"""
TEN, ELEVEN = dt.datetime(2026, 11, 18, 10), dt.datetime(2026, 11, 18, 11)
Follow = Callable[..., Callable[[], list[Update]]]


def at(minute: int, hour: dt.datetime = TEN) -> dt.datetime:
    return hour + dt.timedelta(minutes=minute)


@pytest.fixture
def db() -> Iterator[whence.Database]:
    with whence.open() as found:
        found.execute(TRADES)
        yield found


@pytest.fixture(params=["local", "served"])
def follow(request: pytest.FixtureRequest, db: whence.Database) -> Iterator[Follow]:
    """Subscribe; what is returned gives the updates up to the last write."""
    if request.param == "local":

        def local(query: str, **options: Any) -> Callable[[], list[Update]]:
            subscription = db.subscribe(query, **options)
            return lambda: list(subscription)

        yield local
        return
    with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:

        def served(query: str, **options: Any) -> Callable[[], list[Update]]:
            subscription = client.subscribe(query, **options)

            def take() -> list[Update]:
                found = []
                while (update := subscription.next(timeout=60 if subscription.position is None else 0.3)) is not None:
                    found.append(update)
                return found

            return take

        yield served


def test_hour_is_at_least_while_open_and_exact_when_over(db: whence.Database, follow: Follow) -> None:
    take = follow("hourly")
    take()
    db.insert("trade", [(at(5), "A", 80), (at(6), "A", 70)])
    [update] = take()
    row = update.row(TEN)
    assert (row["high"], row.bounds["high"], row.bounds["low"], row.bounds["n"]) == (80, (80, 1000), (0, 70), (2, None))
    assert (row.state, row.is_final, row.may_go, update.final) == ("present", False, False, [])
    assert row.texts["high"] == "80–1000"
    db.insert("trade", (at(0, ELEVEN), "A", 50))
    [update] = take()
    assert update.final == [(TEN, 80, 70, 2)]
    row = update.row("2026-11-18T10:00:00")
    assert (row.bounds["high"], row.bounds["low"], row.is_final) == ((80, 80), (70, 70), True)
    assert str(row) == "hour = 2026-11-18 10:00:00, high = 80, low = 70, n = 2; final"
    assert update.row(ELEVEN).bounds["high"] == (50, 1000)


def test_silence_makes_rows_final_without_a_change(db: whence.Database, follow: Follow) -> None:
    take = follow("hourly")
    take()
    db.insert("trade", (at(5), "A", 80))
    [before] = take()
    db.advance("trade", at(30), on="at")
    assert take() == []
    db.advance("trade", ELEVEN, on="at")
    [update] = take()
    assert (update.came, update.went, update.final) == ([], [], [(TEN, 80, 80, 1)])
    assert update.position.epoch == db.epoch
    assert not before.row(TEN).is_final, "by the horizons of its own position"
    assert update.row(TEN).is_final


def test_value_at_the_end_of_its_domain_is_final(db: whence.Database, follow: Follow) -> None:
    take = follow("SELECT date_trunc('hour', at) AS hour, MAX(price) AS high FROM trade GROUP BY 1")
    db.insert("trade", (at(5), "A", 1000))
    update = take()[-1]
    assert update.final == [(TEN, 1000)]


def test_condition_is_temporarily_true_then_finally(db: whence.Database, follow: Follow) -> None:
    take = follow("judged")
    db.insert("trade", (at(5), "A", 80))
    row = take()[-1].row(TEN)
    assert (row["calm"], row.bounds["calm"], row.is_final) == (True, (False, True), False)
    assert row.texts["calm"].startswith("true @ ")
    db.insert("trade", (at(0, ELEVEN), "A", 100))
    update = take()[-1]
    assert update.row(TEN).bounds["calm"] == (True, True)
    assert update.row(ELEVEN).bounds["calm"] == (False, False), "before the hour ends"
    assert update.row(ELEVEN).is_final


def test_filtered_row_may_go_then_stays_or_is_gone_for_good(db: whence.Database, follow: Follow) -> None:
    take = follow("calm")
    db.insert("trade", (at(5), "A", 80))
    update = take()[-1]
    assert update.columns == ["hour"]
    assert update.rows == [(TEN,)]
    assert update.row(TEN).may_go
    assert update.row(ELEVEN).state == "may come"
    db.insert("trade", (at(6), "A", 90))
    assert take() == [], "only a column that is not shown has changed"
    db.insert("trade", (at(0, ELEVEN), "A", 10))
    update = take()[-1]
    assert (update.came, update.went, update.final) == ([(ELEVEN,)], [], [(TEN,)])
    assert not update.row(TEN).may_go
    db.insert("trade", (at(1, ELEVEN), "A", 100))
    update = take()[-1]
    row = update.row(ELEVEN)
    assert (row.state, row.is_final, row.may_come, row.values) == ("withdrawn", True, False, None)
    assert str(row) == "hour = 2026-11-18 11:00:00: withdrawn for good"
    assert update.row(at(-60)).state == "finally absent"
    assert update.row(at(180)).state == "may come"


def test_row_over_tables_is_as_of(db: whence.Database, follow: Follow) -> None:
    db.execute("CREATE TABLE seat (flight TEXT PRIMARY KEY, left INT)")
    take = follow("seat")
    db.insert("seat", ("NW44", 10))
    update = take()[-1]
    row = update.row("NW44")
    assert (row["left"], row.bounds["left"], row.is_final, row.may_go) == (10, (None, None), False, True)
    assert update.row("UA23").state == "may come"
    db.delete("seat", ("NW44", 10))
    update = take()[-1]
    row = update.row("NW44")
    assert (row.state, row.may_come, row.is_final) == ("withdrawn", True, False)
    assert str(row) == "flight = NW44: withdrawn, may come again"
    assert (update.final, update.waiting_for, update.lost) == ([], [], None)


def test_closed_game_has_a_final_score(db: whence.Database, follow: Follow) -> None:
    db.execute("""
        CREATE STREAM play (game TEXT, kind TEXT, team TEXT) WITH (closes = 'game when kind = ''end''');
        CREATE VIEW score AS SELECT game, team, COUNT(*) AS goals FROM play WHERE kind = 'goal' GROUP BY game, team;
    """)
    take = follow("score")
    db.insert("play", [("NYDET", "goal", "NY")] * 4 + [("NYDET", "goal", "DET")] * 2)
    update = take()[-1]
    assert update.row(("NYDET", "NY")).bounds["goals"] == (4, None)
    assert update.row(game="NYDET", team="BOS").state == "may come"
    db.insert("play", ("NYDET", "end", None))
    [update] = take()
    assert (update.came, sorted(update.final)) == ([], [("NYDET", "DET", 2), ("NYDET", "NY", 4)])
    assert update.row(("NYDET", "NY")).bounds["goals"] == (4, 4)
    assert update.row(game="NYDET", team="BOS").state == "finally absent"
    db.insert("play", ("CHIBOS", "goal", "BOS"))
    assert not take()[-1].row(("CHIBOS", "BOS")).is_final


def test_lost_changes_make_absent_rows_lost(db: whence.Database) -> None:
    subscription = db.subscribe("hourly", every_change=True)
    list(subscription)
    subscription._channel.parts[0].recent.forget(db.epoch)
    db.insert("trade", (at(5), "A", 80))
    subscription._channel.parts[0].recent.forget(db.epoch)
    [update] = subscription
    assert update.lost is not None
    assert update.row(ELEVEN).state == "lost"
    assert update.row(TEN).state == "present"


def test_key_can_be_given_in_any_way(db: whence.Database, follow: Follow) -> None:
    take = follow("SELECT issue, date_trunc('hour', at) AS hour, COUNT(*) AS n FROM trade GROUP BY 1, 2", key="issue")
    db.insert("trade", [(at(1), "A", 1), (at(2), "B", 1), (at(0, ELEVEN), "B", 1)])
    update = take()[-1]
    assert update.row("A")["n"] == update.row(("A",))["n"] == update.row({"issue": "A"})["n"] == 1
    assert update.row(issue="B", hour=TEN)["n"] == 1
    with pytest.raises(whence.DataError, match="2 rows have issue = 'B': name more columns"):
        update.row("B")
    with pytest.raises(whence.DataError, match="there is no column colour"):
        update.row(colour="red")
    with pytest.raises(whence.DataError, match="the key is issue"):
        update.row(("A", TEN))
    with pytest.raises(whence.DataError, match="row takes the key"):
        update.row()


def test_all_rows_are_counted_without_a_key(db: whence.Database, follow: Follow) -> None:
    take = follow("SELECT COUNT(*) AS n, AVG(price) AS mean FROM trade")
    db.insert("trade", [(at(1), "A", 1), (at(2), "A", 2)])
    row = take()[-1].row()
    assert (row["n"], row.bounds["n"]) == (2, (2, None))


def test_parts_know_of_their_own_rows(db: whence.Database) -> None:
    subscription = db.subscribe({"hourly": "hourly", "calm": "calm", "trade": "trade"})
    db.insert("trade", (at(5), "A", 80))
    list(subscription)
    db.advance("trade", ELEVEN, on="at")
    [update] = subscription
    assert update["hourly"].final == [(TEN, 80, 80, 1)]
    assert update["calm"].final == [(TEN,)]
    assert update["trade"].final == []
    assert update["trade"].known_row((at(5), "A", 80)).is_final


def test_client_that_comes_back_knows_horizons(db: whence.Database) -> None:
    with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
        db.insert("trade", [(at(5), "A", 80), (at(5, ELEVEN), "A", 70)])
        first = next(client.subscribe("hourly"))
        assert first.final == [(TEN, 80, 80, 1)]
        again = client.subscribe("hourly", have=first.position, rows=first.rows)
        db.insert("trade", (at(6, ELEVEN), "A", 75))
        update = next(again)
        assert update.row(TEN).is_final
        assert not update.row(ELEVEN).is_final
        assert update.final == []


def test_redefined_view_has_other_knowledge(db: whence.Database, follow: Follow) -> None:
    take = follow("hourly")
    db.insert("trade", (at(5), "A", 80))
    assert take()[-1].row(TEN).bounds["high"] == (80, 1000)
    db.execute("DROP VIEW judged; DROP VIEW calm")
    db.execute("""CREATE OR REPLACE VIEW hourly AS SELECT date_trunc('hour', at) AS hour, AVG(price) AS high
                  FROM trade GROUP BY 1""")
    update = take()[-1]
    assert update.restarted == "redefined"
    low, high = update.row(TEN).bounds["high"]
    assert low is None or low < 1
    assert high is None or high > 999


def test_async_client_is_told_the_same(db: whence.Database) -> None:
    async def run(url: str, token: str | None) -> None:
        async with whence.connect_async(url, token=token) as client:
            subscription = client.subscribe("hourly")
            await subscription.next()
            db.insert("trade", (at(5), "A", 80))
            update = await subscription.next(timeout=60)
            assert update is not None
            assert update.row(TEN).bounds["high"] == (80, 1000)
            db.advance("trade", ELEVEN, on="at")
            update = await subscription.next(timeout=60)
            assert update is not None
            assert update.final == [(TEN, 80, 80, 1)]

    with whence.serve(db, port=0) as server:
        asyncio.run(run(server.url, server.token))
