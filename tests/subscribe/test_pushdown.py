"""What sources are asked for: columns, filters, key sets, bounds and quenching, over all uses of all views."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

import whence
from whence.subscribe.pushdown import curiosity
from whence.subscribe.source_needs import SourceNeeds

_SCHEMA = """
CREATE TABLE flight (id TEXT PRIMARY KEY, dest TEXT, seats INT, price INT, gate TEXT);
CREATE TABLE booked (flight TEXT PRIMARY KEY, n INT);
CREATE STREAM quote (issue TEXT, price INT, size INT);
CREATE TABLE buylist (issue TEXT PRIMARY KEY);
CREATE TABLE plan (flight TEXT);
"""
_AVAILABLE = "SELECT f.id, f.price FROM flight f LEFT JOIN booked b ON f.id = b.flight WHERE f.seats > COALESCE(b.n, 0)"
_CHEAPEST = f"{_AVAILABLE} AND f.dest = 'LHR' ORDER BY f.price LIMIT 3"
_PLANNED = "SELECT f.id, f.price FROM flight f JOIN plan p ON p.flight = f.id"


def asks(*views: str, sources: Iterable[str] = ("flight", "quote")) -> dict[str, SourceNeeds]:
    db = whence.open()
    db.execute(_SCHEMA)
    for number, query in enumerate(views):
        db.execute(f"CREATE VIEW v{number} AS {query}")
    return curiosity(db._now.catalog.planned, list(sources))


def names(ask: SourceNeeds, columns: Iterable[int]) -> set[str]:
    return {ask.table.schema.names[c] for c in columns}


@pytest.mark.parametrize(
    ("view", "source", "text"),
    [
        (
            "SELECT id FROM flight WHERE dest = 'LHR' AND price < 500",
            "flight",
            'SELECT "id", "dest", "price" FROM "flight" WHERE ("dest" = \'LHR\') AND ("price" < 500)',
        ),
        ("SELECT COUNT(*) AS n FROM flight", "flight", 'SELECT "id" FROM "flight"'),
        ("SELECT issue, MAX(price) AS high FROM quote GROUP BY issue", "quote", 'SELECT "issue", "price" FROM "quote"'),
        (
            "SELECT issue FROM (SELECT issue, price * 2 AS twice FROM quote) WHERE twice > 10",
            "quote",
            'SELECT "issue", "price" FROM "quote" WHERE ("price" * 2) > 10',
        ),
    ],
)
def test_columns_and_filter_are_those_of_the_view(view: str, source: str, text: str) -> None:
    assert asks(view)[source].select(source) == text


def test_filters_of_two_views_are_joined_by_or() -> None:
    ask = asks("SELECT id FROM flight WHERE seats > 5", "SELECT price FROM flight WHERE dest = 'LHR'")["flight"]
    assert ask.where() == '("seats" > 5) OR ("dest" = \'LHR\')'
    assert names(ask, ask.columns) == {"id", "seats", "dest", "price"}


def test_view_without_filter_takes_the_filter_away() -> None:
    assert asks("SELECT id FROM flight WHERE seats > 5", "SELECT price FROM flight")["flight"].where() is None


def test_source_without_readers_is_asked_for_everything() -> None:
    assert asks("SELECT issue FROM buylist")["flight"].is_everything


def test_source_that_is_subscribed_to_is_asked_for_everything() -> None:
    db = whence.open()
    db.execute(_SCHEMA + "CREATE VIEW v AS SELECT id FROM flight WHERE seats > 5")
    assert curiosity(db._now.catalog.planned, ["flight"], whole=["flight"])["flight"].is_everything


def test_condition_that_may_fail_stays_here() -> None:
    assert asks("SELECT id FROM flight WHERE CAST(gate AS INT) > 5")["flight"].where() is None


def test_stream_joined_with_relation_is_asked_for_its_keys() -> None:
    ask = asks("SELECT quote.issue, price FROM quote JOIN buylist USING (issue)")["quote"]
    assert ask.key is not None
    assert names(ask, ask.key.columns) == {"issue"}
    assert "of issue in (SELECT DISTINCT issue FROM buylist)" in "\n".join(ask.describe())


def test_constants_of_another_view_join_the_keys() -> None:
    follow = "SELECT quote.issue, price FROM quote JOIN buylist USING (issue)"
    ask = asks(follow, "SELECT price FROM quote WHERE issue IN ('IBM', 'MOT')")["quote"]
    assert ask.key is not None
    assert "IBM" in "\n".join(ask.describe())
    assert asks(follow, "SELECT MAX(size) AS s FROM quote")["quote"].key is None


def test_key_set_goes_through_group_by() -> None:
    view = "SELECT b.flight FROM (SELECT flight, SUM(n) AS n FROM booked GROUP BY flight) b JOIN plan USING (flight)"
    ask = asks(view, sources=["booked"])["booked"]
    assert ask.key is not None


def test_two_sources_do_not_wait_for_each_other() -> None:
    found = asks("SELECT f.id, n FROM flight f JOIN booked b ON f.id = b.flight", sources=["flight", "booked"])
    assert found["flight"].key is not None
    assert found["booked"].key is None


def test_row_of_outer_side_is_not_restricted() -> None:
    found = asks("SELECT f.id, n FROM flight f LEFT JOIN booked b ON f.id = b.flight", sources=["flight"])
    assert found["flight"].key is None
    found = asks("SELECT f.id, n FROM flight f LEFT JOIN booked b ON f.id = b.flight", sources=["booked"])
    assert found["booked"].key is not None


def test_price_is_quenchable_and_seats_are_not() -> None:
    ask = asks(_AVAILABLE)["flight"]
    assert names(ask, ask.quenchable) == {"price"}
    assert names(ask, ask.watched) == {"id", "seats"}


def test_view_that_always_reads_the_price_prevents_quenching() -> None:
    assert asks(_AVAILABLE, "SELECT SUM(price) AS p FROM flight WHERE gate = 'A'")["flight"].live
    assert not asks(_AVAILABLE, "SELECT SUM(price) AS p FROM flight LEFT JOIN plan ON id = flight")["flight"].live


def test_each_reader_has_its_own_live_keys() -> None:
    ask = asks(_CHEAPEST, _PLANNED)["flight"]
    assert not ask.best  # what is not among the cheapest may be planned
    assert [rule.readers for rule in ask.live] == [("v0",), ("v1",)]


def test_best_rows_need_a_bound_if_all_readers_have_one() -> None:
    ask = asks(_CHEAPEST)["flight"]
    assert [(names(ask, [rule.column]), rule.rows) for rule in ask.best] == [({"price"}, 3)]
    assert ask.where() == "\"dest\" = 'LHR'"
    two = asks(_CHEAPEST, "SELECT id FROM flight ORDER BY price LIMIT 5 OFFSET 2")["flight"]
    assert [rule.rows for rule in two.best] == [3, 7]
    assert asks(_CHEAPEST, "SELECT id FROM flight ORDER BY price DESC LIMIT 5")["flight"].best == ()
    assert asks("SELECT id FROM flight ORDER BY gate LIMIT 5")["flight"].best == ()  # texts have no bound


def test_column_of_promised_order_is_always_asked_for() -> None:
    db = whence.open()
    db.execute("CREATE STREAM trade (issue TEXT, price INT, time INT, size INT) WITH (ordered = 'time')")
    db.execute("CREATE VIEW high AS SELECT issue, MAX(price) AS high FROM trade GROUP BY issue")
    ask = curiosity(db._now.catalog.planned, ["trade"])["trade"]
    assert names(ask, ask.columns) == {"issue", "price", "time"}
