"""`whence move`: a view goes to another broker while it is followed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

import whence
from tests.sources.conftest import SECRET, Make, Place, until
from whence.cli import app
from whence.model.errors import CatalogError, MovedError

MARKET = "CREATE STREAM trade (issue TEXT, price INT)"
TOTAL = "CREATE VIEW total AS SELECT issue, SUM(price) AS s, COUNT(*) AS n FROM trade GROUP BY issue"


def move(view: str, one: Place, other: Place, *more: str) -> str:
    found = CliRunner().invoke(
        app, ["move", view, "--from", one.server.url, "--to", other.server.url, "--token-file", str(one.token), *more]
    )
    return "" if found.exit_code == 0 else found.output


@pytest.fixture
def market(place: Make) -> tuple[Place, Place, Place]:
    publisher, one, other = place("p", MARKET), place("one"), place("other")
    for broker in (one, other):
        broker.source("trade", publisher)
    one.db.execute(TOTAL)
    return publisher, one, other


def test_a_client_follows_a_view_through_its_move(market: tuple[Place, Place, Place]) -> None:
    """Its rows, moved by every update that it is told, are those of the view: nothing is missed or seen twice."""
    publisher, one, other = market
    done = threading.Event()

    def publish() -> None:
        for number in range(300):
            publisher.db.insert("trade", ("AB"[number % 2], number))
        done.set()

    publishing = threading.Thread(target=publish)
    with whence.connect(one.server.url, token=SECRET, also=[other.server.url]) as client:
        subscription = client.subscribe("total")
        first = subscription.next(timeout=30)
        assert first is not None
        held, moves = set(first.rows), 0
        publishing.start()
        update = subscription.next(timeout=30)
        is_moved = False
        while not (done.is_set() and update is None):
            if update is not None:
                assert not set(update.came) & held
                assert set(update.went) <= held
                held = (held - set(update.went)) | set(update.came)
                assert held == set(update.rows)
                moves += update.restarted == "restarted"
            if not is_moved:
                is_moved = True
                assert move("total", one, other) == ""
            update = subscription.next(timeout=2)
        publishing.join()
        until(lambda: {row[2] for row in other.rows("total")} == {150})
        while (update := subscription.next(timeout=1)) is not None:
            held = (held - set(update.went)) | set(update.came)
        assert sorted(held) == other.rows("total")
        assert moves == 1
    assert "total" not in one.db.views


def test_who_does_not_know_the_other_server_is_told_where_it_is(market: tuple[Place, Place, Place]) -> None:
    publisher, one, other = market
    publisher.db.insert("trade", ("A", 1))
    with whence.connect(one.server.url, token=SECRET) as client:
        subscription = client.subscribe("total")
        subscription.next(timeout=30)
        assert move("total", one, other) == ""
        with pytest.raises(MovedError) as told:
            list(subscription)
        assert told.value.url == other.server.url
    one.stop()
    one.start()
    with whence.connect(one.server.url, token=SECRET) as client, pytest.raises(MovedError, match="has moved to"):
        client.subscribe("total")
    one.db.execute(TOTAL)  # a view of that name is what is meant, if there is one
    until(lambda: one.rows("total") == [("A", 1, 1)])
    with whence.connect(one.server.url, token=SECRET) as client:
        assert client.subscribe("total").next(timeout=30).rows == [("A", 1, 1)]


def test_nothing_is_moved_where_it_would_be_another_view(place: Make, tmp_path: Path) -> None:
    publisher, one, other = place("p", MARKET), place("one"), place("other")
    one.source("trade", publisher)
    one.db.execute(TOTAL)
    assert "trade" in move("total", one, other)  # there is no such source
    other.source("trade", publisher)
    publisher.db.insert("trade", ("A", 1))
    until(lambda: one.rows("total") == [("A", 1, 1)])
    other.db.execute("DROP SOURCE trade; CREATE STREAM trade (issue TEXT, price INT)")
    assert "nothing was moved" in move("total", one, other, "--wait", "0.5").replace("\n", " ")
    assert "total" in one.db.views
    assert "total" not in other.db.views
    publisher.db.execute("CREATE VIEW n AS SELECT COUNT(*) AS n FROM trade")
    assert "reads no source" in move("n", publisher, other).replace("\n", " ")
    with pytest.raises(CatalogError):
        one.db.execute("DROP VIEW ghost MOVED TO 'http://127.0.0.1:1'")
