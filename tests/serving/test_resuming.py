"""Clients that go on from a position, after what they follow has become something else, or while they take their time.

The law: whoever goes on has the rows of the query as it is defined now, by the changes or by the state; and whoever
asked for every change is given each, in order, or is told which are lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

import whence

PATIENCE = 30.0


@contextmanager
def served() -> Iterator[tuple[whence.Database, Any]]:
    with whence.open() as db:
        db.execute("CREATE TABLE a (x INT, y INT); CREATE VIEW v AS SELECT x AS n FROM a; CREATE TABLE other (z INT)")
        db.insert("a", [(1, 10), (2, 20)])
        with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
            yield db, client


REDEFINED = {
    "same columns": "CREATE OR REPLACE VIEW v AS SELECT y AS n FROM a",
    "dropped and created": "DROP VIEW v; CREATE VIEW v AS SELECT y AS n FROM a",
    "other columns": "CREATE OR REPLACE VIEW v AS SELECT y AS n, x FROM a",
    "the table anew": "DROP VIEW v; DROP TABLE a; CREATE TABLE a (x INT, y INT); "
    "CREATE VIEW v AS SELECT y AS n FROM a; INSERT INTO a VALUES (5, 6)",
}


@pytest.mark.parametrize("query", ["v", "SELECT n FROM v WHERE n > 0"])
@pytest.mark.parametrize("others", [False, True], ids=["alone", "with others"])
@pytest.mark.parametrize("how", list(REDEFINED))
def test_a_redefined_view_is_not_merged_with_rows_from_before(how: str, others: bool, query: str) -> None:
    with served() as (db, client):
        with client.subscribe(query) as subscription:
            first = subscription.next(timeout=PATIENCE)
        other = client.subscribe(query) if others else None
        if other is not None:
            other.next(timeout=PATIENCE)
        db.execute(REDEFINED[how])
        if other is not None:
            with suppress(whence.CatalogError):  # it may be told that the view was dropped, before there is another
                other.next(timeout=PATIENCE)
        with client.subscribe(query, have=first.position, rows=first.rows) as again:
            found = again.next(timeout=PATIENCE)
            assert found is not None, "something has changed"
            assert sorted(found.rows) == sorted(db.query(query if " " in query else f"SELECT * FROM {query}").rows)
            db.insert("a", (7, 70))
            last = again.wait_for(db.position, timeout=PATIENCE)
            assert sorted(last.rows) == sorted(db.query(query if " " in query else f"SELECT * FROM {query}").rows)


def test_every_change_waits_for_a_user_who_takes_their_time() -> None:
    """More changes than a client holds: it asks for no more until the user has taken some."""
    with served() as (db, client), client.subscribe("v", every_change=True) as subscription:
        rows = subscription.next(timeout=PATIENCE).rows
        for number in range(1_500):
            db.insert("a", (number + 100, 0))
        seen = []
        while len(seen) < 1_500:
            update = subscription.next(timeout=PATIENCE)
            assert (update.restarted, update.lost) == ("", None)
            seen += update.came
            assert len(update.came) == 1
        assert seen == [(number + 100,) for number in range(1_500)]
        assert sorted(subscription.rows) == sorted(rows + seen)


def test_a_subscription_that_nobody_takes_from_is_one_update() -> None:
    with served() as (db, client), client.subscribe({"v": "v", "n": "SELECT COUNT(*) AS n FROM a"}) as subscription:
        assert subscription.next(timeout=PATIENCE) is not None
        for number in range(300):
            db.insert("a", (number, 0))
            db.delete("a", (number, 0))
        db.insert("a", (-1, 0))
        update = subscription.wait_for(db.position, timeout=PATIENCE)
        assert sorted(update["v"].rows) == [(-1,), (1,), (2,)]
        assert update["n"].rows == [(3,)]
