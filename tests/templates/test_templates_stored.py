"""Templates over every kind of relation, and through what happens to a database: kills, redefinitions, copies."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import whence
from whence import CatalogError

PROGRAM = """
    CREATE TABLE link (src TEXT, dst TEXT);
    CREATE TABLE price (item TEXT, amount INT);
    CREATE VIEW reachable AS
      SELECT src, dst FROM link
      UNION SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;
    CREATE TEMPLATE from_there AS SELECT dst FROM reachable WHERE src = :src;
    CREATE TEMPLATE cheap AS SELECT item FROM price WHERE amount <= :most;
    CREATE TEMPLATE least AS SELECT MIN(amount) AS amount FROM price WHERE item >= :first AND item <= :last;
"""


def test_recursive_view_tells_who_asks_from_where() -> None:
    db = whence.open()
    db.execute(PROGRAM)
    db.insert("link", [("a", "b"), ("b", "c")])
    news = db.notifications("from_there")
    db.insert("from_there", [(1, "a"), (2, "c")])
    assert sorted((n.id, n.sign, n.row) for n in news) == [(1, 1, ("b",)), (1, 1, ("c",))]
    db.delete("link", ("b", "c"))
    assert [(n.id, n.sign, n.row) for n in news] == [(1, -1, ("c",))]


def test_stream_meets_the_subscriptions_of_its_time_and_windows_are_read_through_a_view() -> None:
    db = whence.open()
    db.execute(
        "CREATE STREAM tick (t INT, x INT);"
        "CREATE VIEW sums AS SELECT SUM(x) AS total FROM slide(tick, on => t, width => 10, every => 10);"
        "CREATE TEMPLATE above AS SELECT t, x FROM tick WHERE x > :low;"
        "CREATE TEMPLATE large AS SELECT total FROM sums WHERE total > :low"
    )
    above, large = db.notifications("above"), db.notifications("large")
    db.insert("tick", (1, 9))
    db.insert("above", [(1, 5), (2, 8)])
    db.insert("large", (1, 10))
    db.insert("tick", [(2, 6), (3, 20)])
    db.delete("above", key=2)
    db.insert("tick", [(12, 30)])
    assert sorted((n.id, n.sign, n.row) for n in above) == [
        (1, 1, (2, 6)),
        (1, 1, (3, 20)),
        (1, 1, (12, 30)),
        (2, 1, (3, 20)),
    ]
    assert [(n.id, n.sign, n.row) for n in large] == [(1, 1, (35,))]


@pytest.mark.parametrize("image", [False, True], ids=["log", "image"])
def test_kill_keeps_subscriptions_and_what_they_are_told(tmp_path: Path, image: bool) -> None:
    path = tmp_path / "db"
    child = os.fork()
    if child == 0:
        db = whence.open(path)
        db.execute(PROGRAM)
        db.insert("cheap", [(1, 5), (2, 9)])
        db.insert("least", [(1, "a", "m")])
        db.insert("price", [("tea", 4), ("gum", 7)])
        if image:
            db.snapshot()
        db.execute("UPDATE cheap SET most = 3 WHERE id = 1")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    with whence.open(path) as db:
        assert db.templates == ["from_there", "cheap", "least"]
        assert [sorted(db.subscription("cheap", id).rows) for id in (1, 2)] == [[], [("gum",), ("tea",)]]
        assert db.subscription("least", 1).rows == [(7,)]
        news, least = db.notifications("cheap"), db.notifications("least")
        with db.transaction():
            db.insert("price", [("pen", 1), ("egg", 2)])
            db.delete("price", ("gum", 7))
        assert sorted((n.id, n.sign, n.row) for n in news) == [
            (1, 1, ("egg",)),
            (1, 1, ("pen",)),
            (2, -1, ("gum",)),
            (2, 1, ("egg",)),
            (2, 1, ("pen",)),
        ]
        assert [(n.id, n.sign, n.row) for n in least] == [(1, -1, (7,)), (1, 1, (2,))]


def test_replaced_view_ends_notifications_and_the_template_goes_on() -> None:
    db = whence.open()
    db.execute(
        "CREATE TABLE price (item TEXT, amount INT); CREATE VIEW net AS SELECT item, amount FROM price;"
        "CREATE TEMPLATE cheap AS SELECT item FROM net WHERE amount <= :most"
    )
    db.insert("cheap", (1, 5))
    db.insert("price", ("tea", 3))
    news = db.notifications("cheap")
    db.execute("CREATE OR REPLACE VIEW net AS SELECT item, 2 * amount AS amount FROM price")
    with pytest.raises(CatalogError, match="cheap"):
        list(news)
    assert db.subscription("cheap", 1).rows == []
    news = db.notifications("cheap")
    db.insert("price", ("gum", 2))
    assert [(n.id, n.sign, n.row) for n in news] == [(1, 1, ("gum",))]
    assert db.execute("DROP VIEW net CASCADE").message == "dropped net, cheap"
    assert db.tables == ["price"]


def test_copies_of_a_database_have_its_templates(tmp_path: Path) -> None:
    with whence.open(tmp_path / "db") as db:
        db.execute(PROGRAM)
        db.insert("cheap", (1, 5))
        db.insert("price", [("tea", 4), ("gum", 7)])
        db.backup(tmp_path / "copy")
        db.export(tmp_path / "out")
        assert "pen" in repr(db.what_if("INSERT INTO price VALUES ('pen', 1)"))
    assert whence.check(tmp_path / "db").ok
    with whence.open(tmp_path / "copy") as copy:
        assert copy.subscription("cheap", 1).rows == [("tea",)]
    whence.import_database(tmp_path / "out", tmp_path / "again")
    with whence.open(tmp_path / "again") as again:
        assert again.subscription("cheap", 1).rows == [("tea",)]


def test_templates_on_spark_tell_each_notification_once(spark: Any, tmp_path: Path) -> None:
    with whence.open(tmp_path / "db", spark=spark, partitions=3, on_spark={"inline_rows": 0}) as db:
        db.execute(PROGRAM)
        cheap, least = db.notifications("cheap"), db.notifications("least")
        db.insert("cheap", [(1, 5), (2, 9)])
        db.insert("least", [(1, "a", "z")])
        db.insert("price", spark.createDataFrame([("tea", 4), ("gum", 7), ("car", 900)], "item STRING, amount INT"))
        assert sorted((n.id, n.sign, n.row) for n in cheap) == [(1, 1, ("tea",)), (2, 1, ("gum",)), (2, 1, ("tea",))]
        assert [(n.id, n.sign, n.row) for n in least] == [(1, 1, (None,)), (1, -1, (None,)), (1, 1, (4,))]
        assert db.subscription("cheap", 1).rows == [("tea",)]
        assert "partitions" in db.explain("cheap")
