"""Look-ups by any columns: `db[name].where(…)` finds what a scan with the same condition finds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import whence
from tests import inside
from whence.engine.core import arrangement, key_lookup
from whence.model.errors import DataError, WhenceError

RUNTIMES: list[dict[str, Any]] = [{}, {"partitions": 3}]
PROGRAM = """
CREATE TABLE link (src TEXT, dst TEXT, cost INT);
CREATE TABLE keyed (id INT PRIMARY KEY, name TEXT, price DECIMAL(30, 2), day DATE, span INTERVAL, x DOUBLE, ok BOOLEAN);
CREATE STREAM event (x INT, y TEXT);
CREATE VIEW reach AS
  SELECT src, dst FROM link UNION SELECT link.src, reach.dst FROM link JOIN reach ON link.dst = reach.src;
CREATE VIEW cheapest AS
  SELECT src, dst, MIN(cost) AS cost FROM (
    SELECT src, dst, cost FROM link
    UNION ALL
    SELECT link.src, cheapest.dst, link.cost + cheapest.cost FROM link JOIN cheapest ON link.dst = cheapest.src
  ) GROUP BY src, dst;
CREATE VIEW degree AS SELECT src, COUNT(*) AS n, SUM(cost) AS total FROM link GROUP BY src;
CREATE VIEW whole AS SELECT COUNT(*) AS n, MAX(cost) AS most FROM link;
CREATE VIEW two AS SELECT a.src, b.dst, a.cost FROM link AS a JOIN link AS b ON a.dst = b.src;
CREATE VIEW late AS SELECT x, y FROM event WHERE x > 1;
"""
RELATIONS = ("link", "event", "reach", "cheapest", "degree", "whole", "two", "late")
NODES = ["A", "B", "C", "D", "E", None]


@pytest.fixture(params=RUNTIMES, ids=["embedded", "partitions"])
def db(request: pytest.FixtureRequest) -> Iterator[whence.Database]:
    with whence.open(**request.param) as database:
        database.execute(PROGRAM)
        fill(database, random.Random(0), 12)
        yield database


@pytest.fixture(params=[0, 1_000], ids=["indexed", "scanned"])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relations of any size are indexed, or those here are not."""
    monkeypatch.setattr(key_lookup, "SMALL", request.param)
    monkeypatch.setattr(arrangement, "SMALL", request.param)


def fill(db: whence.Database, chance: random.Random, count: int) -> None:
    db.insert("link", [(chance.choice(NODES), chance.choice(NODES), chance.randrange(4)) for _ in range(count)])
    db.insert("event", [(chance.randrange(4), chance.choice(["u", "v", None])) for _ in range(count)])


def matches(row: tuple[Any, ...], columns: list[str], values: dict[str, Any]) -> bool:
    given = dict(zip(columns, row, strict=True))
    return all(given[name] in (value if isinstance(value, list) else [value]) for name, value in values.items())


def check(db: whence.Database, name: str, values: dict[str, Any]) -> None:
    handle = db[name]
    found, expected = handle.where(values), [row for row in handle.rows if matches(row, handle.columns, values)]
    order = (lambda rows: rows) if name in ("event", "late") and not inside.is_partitioned(db) else sorted_rows
    assert order(found.rows) == order(expected)
    assert len(found) == len(expected)
    assert bool(found) == bool(expected)
    assert sorted_rows(list(zip(*found.to_arrow().to_pydict().values(), strict=True))) == sorted_rows(expected)
    for row in handle.rows:
        assert (row in found) == (row in expected)


def sorted_rows(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


@pytest.mark.usefixtures("small")
def test_lookups_find_what_a_scan_finds(db: whence.Database) -> None:
    chance = random.Random(1)
    for round_ in range(4):
        for name in RELATIONS:
            columns = db[name].columns
            for _ in range(6):
                some = chance.sample(columns, chance.randint(1, len(columns)))
                pool = [*db[name].rows, tuple("Z" if c in ("src", "dst", "y") else 77 for c in columns)]
                values: dict[str, Any] = {}
                for column in some:
                    picked = [chance.choice(pool)[columns.index(column)] for _ in range(chance.randint(1, 3))]
                    values[column] = picked if len(picked) > 1 else picked[0]
                check(db, name, values)
        if round_ == 1:  # most rows go, so that the stores of recursive views are compacted
            db.delete("link", where={"src": ["A", "B", "C"]})
        fill(db, chance, 9)


def test_values_of_every_type(db: whence.Database) -> None:
    row = (1, "ada", "123456789012345678901234567.25", "2024-02-29", whence.Interval(1, 2, 3), 0.5, True)
    db.insert("keyed", [row, (2, None, None, None, None, None, None)])
    (one,) = db["keyed"].where(id=1).rows
    for column, value in zip(db["keyed"].columns, one, strict=True):
        assert db["keyed"].where({column: value}).rows == [one]
        assert len(db["keyed"].where({column: [value, None]})) == (1 if column == "id" else 2)
    assert db["keyed"].where(price="0.01").rows == []
    assert db["keyed"].where(price=10**27).rows == []
    assert db["keyed"].where(name=None, ok=None).rows == [(2, *[None] * 6)]
    assert db["keyed"].where(id=(1, 2), ok={True, False}).to_dicts() == [
        dict(zip(db["keyed"].columns, one, strict=True))
    ]


def test_text_never_seen_is_not_added(db: whence.Database) -> None:
    words = len(inside.dictionary(db))
    assert not db["reach"].where(src="nowhere")
    assert db["link"].where(src=["nowhere", "never"]).rows == []
    assert len(inside.dictionary(db)) == words


def test_conditions_can_be_narrowed(db: whence.Database) -> None:
    some = db["two"].where(src="A")
    assert sorted_rows(some.where(cost=[0, 1]).rows) == sorted_rows(db["two"].where(src="A", cost=(0, 1)).rows)
    with pytest.raises(DataError, match="view two: a column is given twice"):
        some.where(src="B")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda h: h.where(scr="A"), r'view reach: no column scr in .*; did you mean "src"\?'),
        (lambda h: h.where(src=5).rows, "view reach, column src: 5 .int. is not a value of type TEXT"),
        (lambda h: h.where(), "view reach: a condition needs a column"),
        (lambda h: h.where({"src": "A"}, src="B"), "a column is given twice"),
        (lambda h: h.where("src = 'A'"), "where takes columns and their values"),
    ],
)
def test_wrong_conditions_are_errors(db: whence.Database, call: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        call(db["reach"])


def test_results_of_a_condition_have_every_form(db: whence.Database, tmp_path: Path) -> None:
    found = db["degree"].where(src=["A", "B"])
    assert found.columns == ["src", "n", "total"]
    assert [tuple(row.values()) for row in found.to_dicts()] == list(found) == found.rows
    assert found.to_pandas().shape == found.to_polars().shape == (len(found), 3)
    assert "degree" in repr(found)
    found.write(tmp_path / "found.csv")
    assert len((tmp_path / "found.csv").read_text().splitlines()) == 1 + len(found)
    with pytest.raises(WhenceError, match="to_spark is for"):
        found.to_spark()


def test_a_handle_reads_the_last_committed_epoch(db: whence.Database) -> None:
    found = db["reach"].where(src="new")
    assert found.rows == []
    with db.transaction():
        db.insert("link", [("new", "newer", 1)])
        assert found.rows == []
    assert found.rows == [("new", "newer")]
    with suppress(ZeroDivisionError), db.transaction():
        db.insert("link", [("new", "newest", 1)])
        raise ZeroDivisionError
    assert found.rows == [("new", "newer")]
    assert db.what_if(insert={"link": [("new", "newest", 1)]})["reach"].inserted == [("new", "newest")]
    assert found.rows == [("new", "newer")]


def test_lookups_of_followers_and_of_the_past(tmp_path: Path) -> None:
    with whence.open(tmp_path / "db", retain="all") as db:
        db.execute(PROGRAM)
        db.insert("link", [("A", "B", 1)])
        before = db.epoch
        with whence.open(tmp_path / "db", read_only=True) as other:
            assert other["reach"].where(src="A").rows == [("A", "B")]
            db.insert("link", [("B", "C", 1)])
            assert sorted(other["reach"].where(src="A").rows) == [("A", "B"), ("A", "C")]
        with db.at(before) as past:
            assert past["reach"].where(src="A").rows == [("A", "B")]
            assert past["link"].where(dst="C").rows == []


@pytest.mark.usefixtures("small")
def test_arrangements_made_for_lookups_stay_and_are_not_stored(tmp_path: Path) -> None:
    with whence.open(tmp_path / "db") as db:
        db.execute(PROGRAM)
        fill(db, random.Random(2), 40)
        for _ in range(3):
            check(db, "degree", {"n": 2})
            check(db, "cheapest", {"cost": 1})
        db.execute("CREATE VIEW more AS SELECT dst FROM link; DROP VIEW more")
        fill(db, random.Random(3), 9)
        for name, column in (("degree", "n"), ("cheapest", "cost")):
            check(db, name, {column: 2})
        arranged = {op.describe() for key, op, _ in inside.dataflow(db).parts() if key.startswith("arranged/")}
        assert not [name for name in arranged if name.startswith(("port", "aggregate"))]
        assert db.snapshot()
    with whence.open(tmp_path / "db") as db:
        for name, column in (("degree", "n"), ("cheapest", "cost")):
            check(db, name, {column: 2})
    assert not whence.check(tmp_path / "db").problems
