"""Asking why: a caller is shown what they may read, and learns nothing of other rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import whence
from whence.server.access.rights import Rights

SCHEMA = """
    CREATE TABLE link (a INT, b INT, owner TEXT);
    CREATE TABLE price (a INT, cents INT);
    CREATE VIEW reach AS SELECT a, b FROM link UNION SELECT link.a, reach.b FROM link JOIN reach ON link.b = reach.a;
    CREATE VIEW owned AS SELECT owner, a, b FROM link;
    CREATE VIEW total AS SELECT COUNT(*) AS n FROM link;
    CREATE VIEW priced AS SELECT reach.b, price.cents FROM reach JOIN price ON reach.a = price.a;
    CREATE TABLE allowed (who TEXT, name TEXT, what TEXT)
"""
LINKS = [(1, 2, "ann"), (2, 3, "ann"), (1, 3, "bob"), (3, 4, "bob"), (1, 4, "ann")]
ALLOWED = [
    ("*", "reach", "read"),
    ("*", "link", "read where owner = :who"),
    ("*", "owned", "read where owner = :who"),
    ("*", "total", "read"),
    ("*", "priced", "read"),
    ("root", "*", "read"),
]
Database = tuple[whence.Database, Rights]


@pytest.fixture
def served() -> Iterator[Database]:
    db = whence.open()
    db.execute(SCHEMA)
    db.insert("link", LINKS)
    db.insert("price", [(1, 100)])
    db.insert("allowed", ALLOWED)
    yield db, Rights(db)
    db.close()


def _rows(witness: list[tuple[str, dict[str, object]]]) -> list[tuple[object, ...]]:
    return [(row["a"], row["b"]) for _, row in witness]


def test_witnesses_are_those_of_readable_rows(served: Database) -> None:
    db, rights = served
    why = db.why("reach", a=1, b=3)
    assert sorted(map(_rows, why.witnesses)) == [[(1, 2), (2, 3)], [(1, 3)]]
    assert [_rows(witness) for witness in rights.readable_witnesses("ann", why)] == [[(1, 2), (2, 3)]]
    assert [_rows(witness) for witness in rights.readable_witnesses("bob", why)] == [[(1, 3)]]
    assert rights.readable_witnesses("stranger", why) == []
    assert rights.readable_witnesses("root", why) == why.witnesses
    assert rights.readable_witnesses(None, why) == why.witnesses


def test_row_without_a_readable_witness_has_none(served: Database) -> None:
    db, rights = served
    assert rights.readable_witnesses("ann", db.why("reach", a=3, b=4)) == []
    assert rights.readable_witnesses("ann", db.why("total", n=5)) == []
    assert rights.readable_witnesses("ann", db.why("priced", b=2, cents=100)) == []  # price is hidden
    db.insert("allowed", ("*", "price", "read"))
    [witness] = rights.readable_witnesses("ann", db.why("priced", b=2, cents=100))
    assert sorted(name for name, _ in witness) == ["link", "price"]


def test_readable_witnesses_are_found_among_many(served: Database) -> None:
    db, rights = served
    with db.transaction():
        db.insert("link", [(50, n, "bob") for n in range(100, 130)])
        db.insert("link", [(n, 60, "bob") for n in range(100, 130)])
        db.insert("link", [(50, 200, "ann"), (200, 201, "ann"), (201, 60, "ann")])
    why = db.why("reach", a=50, b=60)
    assert len(why.witnesses) == 10  # the smallest, all of them bob's
    assert [_rows(witness) for witness in rights.readable_witnesses("ann", why)] == [[(50, 200), (200, 201), (201, 60)]]


def test_explanation_of_a_readable_row(served: Database) -> None:
    _, rights = served
    why = rights.explain("ann", "owned", {"owner": "ann", "a": 1, "b": 2})
    assert [_rows(witness) for witness in rights.readable_witnesses("ann", why)] == [[(1, 2)]]
    assert rights.explain("ann", "owned", None, {"a": 2}).row == {"owner": "ann", "a": 2, "b": 3}
    assert rights.explain("ann", "owned", ("ann", 1, 4)).holds
    assert rights.explain("ann", "reach", None, {"a": 3, "b": 4}).holds  # read whole, though nothing can be shown


def test_hidden_row_is_one_that_is_not_there(served: Database) -> None:
    _, rights = served
    asked = [
        {"owner": "bob", "a": 1, "b": 3},
        {"owner": "bob", "a": 1, "b": 99},
        {"owner": "ann", "a": 1, "b": 3},
        {"owner": "zoe"},
        {"a": 3},
        {"b": 77},
    ]
    said = set()
    for columns in asked:
        with pytest.raises(whence.ForbiddenError) as refused:
            rights.explain("ann", "owned", columns)
        said.add(str(refused.value))
    assert said == {'you may not ask why of this row of "owned", or it is not there'}
    with pytest.raises(whence.ForbiddenError):
        rights.explain("ann", "reach", None, {"a": 4, "b": 1})


def test_rows_that_match_are_counted_and_named_if_readable(served: Database) -> None:
    db, rights = served
    with pytest.raises(whence.DataError) as several:
        rights.explain("ann", "owned", None, {"a": 1})
    assert "2 rows of owned match" in str(several.value)
    assert "bob" not in str(several.value)
    assert db.query("SELECT COUNT(*) AS n FROM owned WHERE a = 1").rows == [(3,)]
    for row, columns in ((None, {}), ((1, 2), {}), ("ab", {})):
        with pytest.raises(whence.DataError):
            rights.explain("ann", "owned", row, columns)
    with pytest.raises(whence.CatalogError, match="no column"):
        rights.explain("ann", "owned", None, {"nosuch": 1})


def test_whoever_reads_everything_beneath_gets_everything(served: Database) -> None:
    _, rights = served
    assert rights.explain("root", "reach", None, {"a": 4, "b": 1}).reasons
    assert not rights.explain("root", "reach", None, {"a": 4, "b": 1}).holds
    assert len(rights.explain("root", "reach", None, {"a": 1, "b": 3}).witnesses) == 2


def test_witness_is_judged_by_what_the_table_is_now(served: Database) -> None:
    db, rights = served
    why = db.why("owned", a=1, b=2)
    assert len(rights.readable_witnesses("ann", why)) == 1
    db.delete("allowed", where={"name": "link"})
    assert rights.readable_witnesses("ann", why) == []
    db.insert("allowed", ("*", "link", "read where owner = :who"))
    db.execute("DROP TABLE link CASCADE; CREATE TABLE link (other INT, owner TEXT)")
    assert rights.readable_witnesses("ann", why) == []


def test_rows_of_streams(served: Database) -> None:
    db, rights = served
    db.execute("CREATE STREAM event (x INT, owner TEXT); CREATE VIEW big AS SELECT x, owner FROM event WHERE x > 1")
    db.insert("event", [(1, "ann"), (2, "ann"), (3, "bob")])
    db.insert("allowed", [("*", "event", "read where owner = :who"), ("*", "big", "read where owner = :who")])
    why = rights.explain("ann", "big", None, {"x": 2})
    [[(name, row)]] = rights.readable_witnesses("ann", why)
    assert (name, row["x"]) == ("event", 2)
    for columns in ({"x": 3}, {"x": 9}):
        with pytest.raises(whence.ForbiddenError):
            rights.explain("ann", "big", None, columns)
    with pytest.raises(whence.WhenceError) as error:
        rights.explain("ann", "big", None, {"tid": 2})
    assert "bob" not in str(error.value)
