"""Where the rows of tables and views live among partitions, as users say and as EXPLAIN shows it."""

from __future__ import annotations

import pytest

import whence
from tests import inside
from whence.model.errors import SqlError, WhenceError
from whence.runtime.spark.driver.options import read_bytes


def rows_in(db: whence.Database, name: str) -> list[int]:
    """How many rows of a relation each partition has."""
    driver = inside.driver(db)
    assert driver is not None
    return [len(batch) for batch in driver.runner.ask_all("contents", name)]


def test_a_hot_key_is_spread_by_rows_and_counted_in_two_steps() -> None:
    with whence.open(partitions=4) as db:
        db.execute("""CREATE TABLE hit (page INT, ms INT) WITH (partition_by = 'row');
            CREATE VIEW load AS SELECT page, COUNT(*) AS n, SUM(ms) AS ms, MAX(ms) AS worst FROM hit GROUP BY page""")
        db.insert("hit", [(7, ms) for ms in range(1000)])
        assert db["load"].rows == [(7, 1000, 499_500, 999)]
        assert min(rows_in(db, "hit")) > 200
        assert sum(rows_in(db, "load")) == 1
        assert db.metrics()["last_run"]["rows_shipped"] <= 4  # a row for the page from each partition
        db.delete("hit", [(7, 999)])
        assert db["load"].rows == [(7, 999, 498_501, 998)]
        assert "ship by page" in db.explain("load")


def test_a_table_in_every_partition_is_joined_without_moving_rows() -> None:
    with whence.open(partitions=3) as db:
        db.execute("""CREATE TABLE sale (item INT, n INT); CREATE TABLE item (id INT, name TEXT)
            WITH (partition_by = 'all'); CREATE VIEW sold AS SELECT name, n FROM sale JOIN item ON item = id""")
        db.insert("item", [(i, f"item {i}") for i in range(10)])
        db.insert("sale", [(i % 10, i) for i in range(100)])
        assert rows_in(db, "item") == [10, 10, 10]
        assert len(db["item"]) == 10
        assert len(db["sold"].rows) == 100
        assert db.metrics()["runs"]["rows_shipped"] == 0
        assert "table item in every partition" in db.explain("sold")


def test_rows_live_where_their_table_says() -> None:
    with whence.open(partitions=3) as db:
        db.execute("CREATE TABLE seat (room INT, number INT, guest TEXT, PRIMARY KEY (room, number)) "
                   "WITH (partition_by = 'room')")  # fmt: skip
        db.insert("seat", [(room, n, "nobody") for room in range(2) for n in range(50)])
        assert sum(count > 0 for count in rows_in(db, "seat")) <= 2
        db.insert("seat", [(1, 7, "Ada")])
        assert len(db["seat"]) == 100
        assert db.query("SELECT guest FROM seat WHERE room = 1 AND number = 7").rows == [("Ada",)]


@pytest.mark.parametrize(
    ("option", "message"),
    [("nmber", 'does not have, did you mean "number"|does not have; did you mean "number"'), ("guest", "PRIMARY KEY")],
)
def test_a_placement_that_will_not_do(option: str, message: str) -> None:
    with whence.open() as db, pytest.raises(SqlError, match=message):
        db.execute(f"CREATE TABLE seat (number INT PRIMARY KEY, guest TEXT) WITH (partition_by = '{option}')")


@pytest.mark.parametrize("size", ["", "0", "much", "-1 GB", "1 XB"])
def test_a_size_that_is_none(size: str) -> None:
    with pytest.raises(WhenceError, match="a size is"):
        read_bytes(size)


@pytest.mark.parametrize("partitions", [0, -1, 10_001])
def test_a_number_of_partitions_that_is_none(partitions: int) -> None:
    with pytest.raises(WhenceError, match="partitions is a number from 1"):
        whence.open(partitions=partitions)


def test_what_is_only_for_spark_says_so() -> None:
    with whence.open(partitions=2) as db:
        db.execute("CREATE TABLE a (x INT)")
        for attempt in (lambda: db.start(), lambda: db.attach("a", None), lambda: db["a"].to_spark()):
            with pytest.raises(WhenceError, match="for a database on Spark"):
                attempt()
