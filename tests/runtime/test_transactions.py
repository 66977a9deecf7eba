"""A transaction is one epoch: everything in it happens together, or nothing does."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

import whence
from tests.inside import coordinator
from whence.model.errors import CatalogError, DataError, EvaluationError, MissingRowError, WhenceError


@pytest.fixture
def db() -> Iterator[whence.Database]:
    with whence.open() as db:
        db.execute("""
            CREATE TABLE sale (item TEXT, price INT);
            CREATE TABLE stock (item TEXT PRIMARY KEY, n INT NOT NULL);
            CREATE VIEW total AS SELECT item, SUM(price) AS price FROM sale GROUP BY item;
            CREATE VIEW huge AS SELECT item, n * 1000000000000000000 AS n FROM stock;
        """)
        yield db


def snapshot(db: whence.Database) -> dict[str, list[tuple[object, ...]]]:
    return {name: sorted(db[name].rows, key=repr) for name in [*db.tables, *db.views]}


def failing(db: whence.Database) -> None:
    with db.transaction():
        db.insert("sale", [("tea", 4)])
        db.delete("sale", [("tea", 3)])
        raise RuntimeError


def overflowing(db: whence.Database) -> None:
    with db.transaction():
        db.insert("sale", [("tea", 4)])
        db.insert("stock", [("cake", 10), ("tea", 5)])


def test_a_write_alone_is_an_epoch(db: whence.Database) -> None:
    assert db.epoch == 0
    assert db.insert("sale", [("tea", 3), ("tea", 4)]) == 2
    assert db.epoch == 1
    assert db["total"].rows == [("tea", 7)]
    assert db.delete("sale", [("tea", 3)]) == 1
    assert db["total"].rows == [("tea", 4)]
    assert db.epoch == 2


def test_nothing_written_is_no_epoch(db: whence.Database) -> None:
    with db.transaction():
        assert db.insert("sale", []) == 0
        assert db.delete("sale", [("none", 1)]) == 0
    assert db.epoch == 0


def test_many_writes_are_one_epoch_and_views_move_at_its_end(db: whence.Database) -> None:
    changes = db.changes("total")
    with db.transaction():
        db.insert("sale", [("tea", 3)])
        db.insert("sale", [("tea", 4)])
        assert db["total"].rows == []
        assert db["sale"].rows == []
    assert db.epoch == 1
    assert [tuple(c) for c in changes] == [(1, ("tea", 7), 1)]


def test_an_error_in_the_block_undoes_all_of_it(db: whence.Database) -> None:
    db.insert("sale", [("tea", 3)])
    before = snapshot(db)
    with pytest.raises(RuntimeError):
        failing(db)
    assert (snapshot(db), db.epoch) == (before, 1)


def test_an_error_in_an_operator_undoes_the_epoch(db: whence.Database) -> None:
    db.insert("stock", [("tea", 4)])
    before = snapshot(db)
    with pytest.raises(EvaluationError):
        overflowing(db)
    assert (snapshot(db), db.epoch) == (before, 1)
    db.insert("stock", [("cake", 5)])
    assert sorted(db["huge"].rows) == [("cake", 5 * 10**18), ("tea", 4 * 10**18)]


def test_a_misfit_undoes_only_its_own_statement_if_it_is_caught(db: whence.Database) -> None:
    with db.transaction():
        db.insert("sale", [("tea", 3)])
        with pytest.raises(DataError):
            db.insert("sale", [("tea", 4), ("tea", "x")])
    assert db["sale"].rows == [("tea", 3)]


def test_a_transaction_inside_joins_and_fails_alone(db: whence.Database) -> None:
    with db.transaction():
        db.insert("sale", [("tea", 3)])
        with pytest.raises(RuntimeError):
            failing(db)
        with db.transaction():
            db.insert("sale", [("cake", 1)])
        assert db.epoch == 0
    assert db.epoch == 1
    assert sorted(db["sale"].rows) == [("cake", 1), ("tea", 3)]


def test_deletes_see_what_the_transaction_wrote(db: whence.Database) -> None:
    db.insert("sale", [("tea", 1)])
    with db.transaction():
        db.insert("sale", [("tea", 2), ("tea", 2)])
        assert db.delete("sale", [("tea", 2)]) == 1
        assert db.delete("sale", [("tea", 1)]) == 1
        assert db.delete("sale", [("tea", 1)]) == 0
        assert db.execute("DELETE FROM sale WHERE price > 1").count == 1
        assert db.execute("DELETE FROM sale").count == 0
        db.insert("sale", [("tea", 9)])
        assert db.execute("UPDATE sale SET price = price + 1").count == 1
    assert db["sale"].rows == [("tea", 10)]


def test_insert_from_a_query_sees_what_the_transaction_wrote(db: whence.Database) -> None:
    db.insert("sale", [("tea", 1), ("cake", 5)])
    operators = db.metrics()["operators"]
    with db.transaction():
        db.insert("sale", [("tea", 2)])
        db.delete("sale", [("cake", 5)])
        assert db.execute("INSERT INTO sale SELECT item, price + 10 FROM sale").count == 2
        joined = "SELECT a.item, COUNT(DISTINCT b.price) FROM sale AS a JOIN sale AS b USING (item) GROUP BY a.item"
        assert db.execute(f"INSERT INTO stock {joined}").count == 1
        assert db.execute("INSERT INTO sale SELECT item, n FROM stock").count == 1
        assert db.execute("INSERT INTO sale SELECT 'view', price FROM total WHERE item = 'cake'").count == 1
        assert sorted(db["sale"].rows) == [("cake", 5), ("tea", 1)]
    assert sorted(db["sale"].rows) == [("tea", 1), ("tea", 2), ("tea", 4), ("tea", 11), ("tea", 12), ("view", 5)]
    assert db["stock"].rows == [("tea", 4)]
    assert sorted(db["total"].rows) == [("tea", 30), ("view", 5)]
    assert (db.epoch, db.metrics()["operators"]) == (2, operators)


def test_an_insert_from_a_query_that_fails_leaves_the_transaction_as_it_was(db: whence.Database) -> None:
    with db.transaction():
        db.insert("sale", [("tea", 2)])
        with pytest.raises(EvaluationError):
            db.execute("INSERT INTO sale SELECT item, CAST(item AS INT) FROM sale")
        assert db.execute("INSERT INTO sale SELECT item, price + 1 FROM sale").count == 1
    assert sorted(db["sale"].rows) == [("tea", 2), ("tea", 3)]


def test_deleting_what_is_not_there(db: whence.Database) -> None:
    db.insert("sale", [("tea", 1), ("tea", 1)])
    assert db.delete("sale", [("tea", 1)] * 3 + [("x", 0)]) == 2
    db.insert("sale", [("tea", 1)])
    with pytest.raises(MissingRowError, match=r"table sale: no row \('x', 0\) to delete"):
        db.delete("sale", [("tea", 1), ("x", 0)], strict=True)
    assert db["sale"].rows == [("tea", 1)]
    assert db.delete("sale", [("tea", 1)], strict=True) == 1


def test_an_insert_on_an_existing_key_replaces(db: whence.Database) -> None:
    changes = db.changes("stock")
    assert db.insert("stock", [("tea", 1), ("cake", 2), ("tea", 3)]) == 3
    assert sorted(db["stock"].rows) == [("cake", 2), ("tea", 3)]
    db.insert("stock", ("tea", 4))
    with db.transaction():
        db.insert("stock", ("tea", 5))
        db.insert("stock", ("tea", 6))
        db.delete("stock", [("tea", 6)])
        db.insert("stock", ("cake", 2))
    assert db["stock"].rows == [("cake", 2)]
    assert [tuple(c) for c in changes][2:] == [(2, ("tea", 3), -1), (2, ("tea", 4), 1), (3, ("tea", 4), -1)]


def test_update_may_not_join_two_keys(db: whence.Database) -> None:
    db.insert("stock", [("tea", 1), ("cake", 2)])
    with pytest.raises(DataError, match="two rows one primary key"):
        db.update("stock", {"item": "tea"}, {"item": "cake"})
    with pytest.raises(DataError, match="two rows one primary key"):
        db.execute("UPDATE stock SET item = 'soup'")
    assert sorted(db["stock"].rows) == [("cake", 2), ("tea", 1)]


def test_update_by_columns_and_by_sql(db: whence.Database) -> None:
    db.insert("sale", [("tea", 1), ("tea", 1), ("cake", 2)])
    assert db.update("sale", {"price": 5}, {"item": "tea"}) == 2
    assert db.update("sale", {"price": None}, "price < 3") == 1
    assert sorted(db["sale"].rows, key=repr) == [("cake", None), ("tea", 5), ("tea", 5)]
    assert db.update("sale", {"item": "x"}) == 3
    with pytest.raises(DataError, match="no column colour"):
        db.update("sale", {"colour": "red"})


def test_not_null_is_kept(db: whence.Database) -> None:
    for write in (
        lambda: db.insert("stock", [("tea", None)]),
        lambda: db.insert("stock", [(None, 1)]),
        lambda: db.execute("INSERT INTO stock (item) VALUES ('tea')"),
    ):
        with pytest.raises(DataError, match="NULL in a NOT NULL column"):
            write()
    db.insert("stock", ("tea", 1))
    with pytest.raises(DataError, match="NULL in a NOT NULL column"):
        db.execute("UPDATE stock SET n = NULL")
    assert db["stock"].rows == [("tea", 1)]


def test_names_that_are_no_tables_are_refused(db: whence.Database) -> None:
    with pytest.raises(CatalogError, match='"total" is a view'):
        db.insert("total", [("x", 1)])
    with pytest.raises(CatalogError, match='no table "sales"; did you mean "sale"'):
        db.insert("sales", [("x", 1)])
    with pytest.raises(CatalogError, match='no table or view "totals"'):
        db["totals"]


def test_ddl_does_not_stand_inside_a_transaction(db: whence.Database) -> None:
    with pytest.raises(WhenceError, match="inside a transaction"), db.transaction():
        db.execute("CREATE TABLE other (x INT)")


def test_a_closed_database_says_so(db: whence.Database) -> None:
    db.close()
    for action in (lambda: db.insert("sale", ("x", 1)), lambda: db["sale"], lambda: db.query("SELECT 1")):
        with pytest.raises(WhenceError, match="closed"):
            action()


def test_the_rows_of_a_transaction_do_not_wait_for_the_garbage_collector() -> None:
    """A server that writes all day must not hold batches that nothing needs any more."""
    db = whence.open()
    db.execute("CREATE TABLE a (x INT PRIMARY KEY, y INT)")
    gc.collect()
    gc.disable()
    try:
        with db.transaction():
            db.insert("a", [(1, 1)])
            held = weakref.ref(coordinator(db).open_transaction)
        db.delete("a", (7, 7), early="hold")
        assert held() is None
    finally:
        gc.enable()
