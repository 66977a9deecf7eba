"""Templates: what a user does with them, from CREATE TEMPLATE to a subscription that is cancelled."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import whence
from whence import CatalogError, DataError, SqlError, WhenceError

MARKET = """
    CREATE TABLE supply (id INT, product TEXT, quantity INT);
    CREATE TABLE demand (id INT, product TEXT, quantity INT);
    CREATE TEMPLATE deals AS
      SELECT s.id, d.id FROM supply s JOIN demand d ON s.product = d.product
      WHERE s.quantity BETWEEN :smin AND :smax AND d.quantity BETWEEN :dmin AND :dmax;
"""


def told(news: whence.Notifications) -> list[tuple[int, int, int, tuple[object, ...]]]:
    return sorted((n.epoch, n.id, n.sign, n.row) for n in news)


@pytest.fixture
def market() -> whence.Database:
    db = whence.open()
    db.execute(MARKET)
    return db


def test_parameters_are_a_table_with_the_types_of_what_they_are_compared_with() -> None:
    db = whence.open()
    db.execute("CREATE TABLE a (i INT, b BIGINT, m DECIMAL(8,2), d DOUBLE, t TEXT, day DATE, at TIMESTAMP)")
    db.execute(
        "CREATE TEMPLATE every AS SELECT i FROM a WHERE i > :i AND b < :b AND m >= :m AND d <= :d AND t = :t "
        "AND day BETWEEN :first AND :last AND :at > at AND b - i BETWEEN :lo AND :hi AND i < CAST(:c AS BIGINT)"
    )
    assert str(db["every"].schema) == (
        "(id BIGINT, i INTEGER, b BIGINT, m DECIMAL(8,2), d DOUBLE, t TEXT, first DATE, last DATE, "
        "at TIMESTAMP, lo BIGINT, hi BIGINT, c BIGINT)"
    )


def test_each_epoch_tells_each_subscription_its_net_change(market: whence.Database) -> None:
    news = market.notifications("deals")
    market.insert("deals", [(1, 0, 10, 0, 10), (2, None, None, 5, None)])
    market.insert("supply", [(1, "a", 5), (2, "a", 50), (3, "b", 5)])
    assert told(news) == []
    market.insert("demand", [(7, "a", 7)])
    assert told(news) == [(3, 1, 1, (1, 7)), (3, 2, 1, (1, 7)), (3, 2, 1, (2, 7))]
    with market.transaction():  # the data and the parameters together
        market.delete("supply", (1, "a", 5))
        market.insert("deals", (3, 40, 60, 0, 10))
        market.insert("supply", (4, "a", 45))
        market.delete("supply", (4, "a", 45))
    assert told(news) == [(4, 1, -1, (1, 7)), (4, 2, -1, (1, 7)), (4, 3, 1, (2, 7))]
    market.execute("UPDATE deals SET smax = 45 WHERE id = 3; DELETE FROM deals WHERE id = 2")
    assert told(news) == [(5, 3, -1, (2, 7)), (6, 2, -1, (2, 7))]


def test_insertion_with_a_known_id_replaces_the_subscription(market: whence.Database) -> None:
    market.insert("supply", (1, "a", 5))
    market.insert("demand", [(7, "a", 7), (8, "a", 20)])
    market.insert("deals", (1, 0, 10, 0, 10))
    news = market.notifications("deals")
    market.insert("deals", (1, 0, 10, 15, 30))
    assert told(news) == [(4, 1, -1, (1, 7)), (4, 1, 1, (1, 8))]


def test_subscribe_tells_the_answer_then_changes_and_cancels(market: whence.Database) -> None:
    market.insert("supply", [(1, "a", 5), (2, "a", 50)])
    market.insert("demand", (7, "a", 7))
    one = market.subscribe("deals", smin=0, smax=10)
    other = market.subscribe("deals", {"smin": 40}, id=10)
    assert (one.id, other.id, market.subscribe("deals", smin=None).id) == (1, 10, 2)
    assert [(u.came, u.went) for u in one] == [([(1, 7)], [])]
    assert [(u.came, u.went) for u in other] == [([(2, 7)], [])]
    market.execute("DELETE FROM supply WHERE id = 2")
    assert (list(one), [(u.came, u.went) for u in other]) == ([], [([], [(2, 7)])])
    assert market.subscription("deals", 1).rows == [(1, 7)]
    assert market.subscription("deals", 1).parameters == {"smin": 0, "smax": 10, "dmin": None, "dmax": None}
    one.cancel()
    assert sorted(row[0] for row in market["deals"]) == [2, 10]
    with pytest.raises(whence.MissingRowError, match="no subscription 1 to deals"):
        market.subscription("deals", 1)


def test_notifications_as_arrow_have_epoch_id_sign_and_the_row(market: whence.Database) -> None:
    news = market.notifications("deals")
    market.insert("deals", (1, 0, 10, 0, 10))
    market.insert("supply", [(1, "a", 5), (1, "a", 5)])
    market.insert("demand", (7, "a", 7))
    market.delete("supply", (1, "a", 5))
    batches = [batch.to_pydict() for batch in news.batches()]
    assert batches == [
        {"epoch": [3, 3], "id": [1, 1], "sign": [1, 1], "id_row": [1, 1], "id_1": [7, 7]},
        {"epoch": [4], "id": [1], "sign": [-1], "id_row": [1], "id_1": [7]},
    ]


def test_aggregate_has_one_row_per_subscription_and_null_where_nothing_matches() -> None:
    db = whence.open()
    db.execute("CREATE TABLE stock (risk INT, price INT)")
    db.execute(
        "CREATE TEMPLATE cheapest AS SELECT MIN(price) AS least, COUNT(*) AS n FROM stock "
        "WHERE risk BETWEEN :low AND :high"
    )
    db.insert("stock", [(1, 10), (2, 7), (2, 8)])
    news = db.notifications("cheapest")
    db.insert("cheapest", [(1, 1, 2), (2, 5, 9)])
    assert told(news) == [(2, 1, 1, (7, 3)), (2, 2, 1, (None, 0))]
    db.delete("stock", [(2, 7)])
    assert told(news) == [(3, 1, -1, (7, 3)), (3, 1, 1, (8, 2))]


def test_templates_outlast_the_process_and_their_views_follow(tmp_path: Path) -> None:
    with whence.open(tmp_path / "db") as db:
        db.execute(MARKET)
        db.execute("CREATE VIEW wanted AS SELECT smin, COUNT(*) AS n FROM deals GROUP BY smin")
        db.insert("deals", [(1, 0, 10, 0, 10)])
        db.insert("supply", (1, "a", 5))
    with whence.open(tmp_path / "db") as db:
        assert (db.templates, db.views, db["wanted"].rows) == (["deals"], ["wanted"], [(0, 1)])
        news = db.notifications("deals")
        db.insert("demand", (7, "a", 7))
        assert [(n.id, n.row) for n in news] == [(1, (1, 7))]
        assert db.subscribe("deals", smin=9).id == 2
        with pytest.raises(CatalogError, match="wanted depends on"):
            db.execute("DROP TEMPLATE deals")
        assert db.execute("DROP TEMPLATE deals CASCADE").message == "dropped deals, wanted"
        with pytest.raises(CatalogError, match="was dropped"):
            list(news)
    with whence.open(tmp_path / "db") as db:
        assert (db.tables, db.templates, db.views) == (["supply", "demand"], [], [])


def test_statements_of_a_database_make_another_like_it(market: whence.Database) -> None:
    other = whence.open()
    for statement in market.statements:
        other.execute(statement)
    assert other.templates == ["deals"]
    assert other.statements == market.statements


def test_parameters_are_loaded_from_parquet(market: whence.Database, tmp_path: Path) -> None:
    ids = list(range(100))
    table = pa.table({"id": ids, "smin": ids, "smax": [i + 1 for i in ids], "dmin": [None] * 100, "dmax": [9] * 100})
    pq.write_table(table, tmp_path / "deals.parquet")
    market.insert("supply", (1, "a", 50))
    market.insert("demand", (7, "a", 7))
    news = market.notifications("deals")
    assert market.insert("deals", tmp_path / "deals.parquet") == 100
    assert told(news) == [(3, 49, 1, (1, 7)), (3, 50, 1, (1, 7))]


def test_table_that_is_there_holds_the_parameters() -> None:
    db = whence.open()
    db.execute("CREATE TABLE a (x INT); CREATE TABLE above (id BIGINT PRIMARY KEY, who TEXT, low INT)")
    db.insert("above", (4, "ada", 5))
    db.execute("CREATE TEMPLATE above AS SELECT x FROM a WHERE x > :low")
    db.insert("a", [(5,), (6,)])
    assert db.subscription("above", 4).rows == [(6,)]


def test_reason_of_a_notification_has_its_parameters(market: whence.Database) -> None:
    market.insert("deals", (1, 0, 10, 0, 10))
    market.insert("supply", (1, "a", 5))
    market.insert("demand", (7, "a", 7))
    why = market.subscription("deals", 1).why((1, 7))
    assert [sorted(table for table, _ in witness) for witness in why.witnesses] == [["deals", "demand", "supply"]]
    assert not market.subscription("deals", 1).why((2, 7)).holds


def test_template_is_listed_described_and_explained(market: whence.Database) -> None:
    market.insert("deals", (1, 0, 10, 0, 10))
    assert market.execute("SHOW TEMPLATES").to_dicts() == [
        {
            "template": "deals",
            "subscriptions": 1,
            "parameters": ":smin, :smax, :dmin, :dmax",
            "columns": "(id INTEGER, id_1 INTEGER)",
        }
    ]
    assert [row["column"] for row in market.describe("deals").to_dicts()] == ["id", "smin", "smax", "dmin", "dmax"]
    assert market.explain("deals").startswith("template deals (:smin INTEGER")
    assert market.query("SELECT id, smax FROM deals").rows == [(1, 10)]
    assert "deals" in market
    assert market.views == []


BROKEN = [
    ("SELECT x FROM a WHERE x > :low AND t = :low", "line 1, column 59.*:low is compared with two types, INTEGER"),
    ("SELECT x FROM nowhere WHERE x > :low", 'line 1, column 38.*unknown table or view "nowhere"'),
    ("SELECT x FROM a WHERE x > :id", "id is the number of a subscription"),
    ("SELECT x FROM a WHERE x > ?", "have names"),
    ("SELECT x FROM a", "at least one parameter"),
    ("SELECT x + :more AS y FROM a", "the type of :more is not known"),
    ("SELECT x FROM a LIMIT 1 OFFSET :n", "OFFSET takes a whole number"),
    ("SELECT x FROM a WHERE t = :n LIMIT :n", "LIMIT takes a whole number, not a value of type TEXT"),
    ("SELECT x FROM a WHERE x > :l AND x IN (SELECT x FROM a LIMIT :n)", "under LIMIT is not supported"),
    ("WITH RECURSIVE r AS (SELECT x FROM a WHERE x > :l UNION SELECT x + 1 FROM r WHERE x < 9) FROM r", "recursive"),
]


@pytest.mark.parametrize(("query", "message"), BROKEN)
def test_template_that_cannot_be_says_where_and_changes_nothing(query: str, message: str) -> None:
    db = whence.open()
    db.execute("CREATE TABLE a (x INT, t TEXT)")
    with pytest.raises(SqlError, match=message):
        db.execute(f"CREATE TEMPLATE one AS {query}")
    assert (db.tables, db.templates) == (["a"], [])


def test_subscriptions_that_cannot_be_say_why_and_change_nothing(market: whence.Database) -> None:
    market.insert("deals", (1, 0, 10, 0, 10))
    with pytest.raises(DataError, match='no parameter "smni"; did you mean "smin"'):
        market.subscribe("deals", smni=3)
    with pytest.raises(CatalogError, match="has a subscription 1 already"):
        market.subscribe("deals", id=1, smin=3)
    with pytest.raises(DataError, match="whole number"):
        market.subscribe("deals", id="one")
    with pytest.raises(DataError, match="smin"):
        market.subscribe("deals", smin="many")
    with pytest.raises(DataError, match="NULL"):
        market.insert("deals", (None, 0, 10, 0, 10))
    with pytest.raises(DataError, match="table deals, row 1, column id"):
        market.execute("INSERT INTO deals (smin) VALUES (1)")
    with pytest.raises(WhenceError, match='"supply" is not a template'):
        market.subscribe("supply", smin=3)
    with pytest.raises(CatalogError, match="not a template"):
        market.notifications("supply")
    with pytest.raises(CatalogError, match='"deals" is a template, not a table'):
        market.execute("DROP TABLE deals")
    with pytest.raises(CatalogError, match="exists already"):
        market.execute("CREATE TEMPLATE deals AS SELECT id FROM supply WHERE id = :x")
    with pytest.raises(CatalogError, match="deals depends on"):
        market.execute("DROP TABLE supply")
    assert market["deals"].rows == [(1, 0, 10, 0, 10)]


def test_failed_epoch_tells_nothing(market: whence.Database) -> None:
    market.execute("CREATE VIEW ratio AS SELECT CAST(product AS INT) AS n FROM supply")
    news = market.notifications("deals")
    market.insert("demand", (7, "1", 7))
    with pytest.raises(WhenceError), market.transaction():  # noqa: PT012 - the commit fails
        market.insert("deals", (1, 0, 10, 0, 10))
        market.insert("supply", [(1, "1", 5), (2, "x", 5)])
    assert told(news) == []
    market.insert("supply", (1, "1", 5))
    market.insert("deals", (1, 0, 10, 0, 10))
    assert told(news) == [(3, 1, 1, (1, 7))]
