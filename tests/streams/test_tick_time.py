"""tick_time(): the time of the epoch that brought a row, filled in when the transaction ends, whatever the way in."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import whence
from whence.model.errors import DataError, WhenceError
from whence.server.verbs.typed_values import typed_rows

TRADE = "CREATE STREAM trade (issue TEXT, at TIMESTAMP DEFAULT tick_time(), price INT)"


class Hands:
    """A clock that is turned by hand."""

    def __init__(self, now: float = 1000) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def at(seconds: float) -> dt.datetime:
    return dt.datetime(1970, 1, 1) + dt.timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture(params=[None, 3], ids=["embedded", "partitions"])
def db(clock: Hands, request: Any) -> Iterator[whence.Database]:
    with whence.open(clock=clock, partitions=request.param) as db:
        db.execute(TRADE)
        yield db


def _insert_csv(db: whence.Database, folder: Path) -> None:
    path = folder / "rows.csv"
    path.write_text("price,issue\n1,a\n2,b\n")
    db.insert("trade", path)


def _follow_lines(db: whence.Database, folder: Path) -> None:
    path = folder / "rows.jsonl"
    path.write_text('{"issue": "a", "price": 1}\n{"issue": "b", "price": 2}\n')
    assert sum(epoch.rows for epoch in db.follow({"trade": path}, wait=False)) == 2


WAYS: dict[str, Callable[[whence.Database, Path], object]] = {
    "tuples": lambda db, _: db.insert("trade", [("a", 1), ("b", 2)]),
    "dicts": lambda db, _: db.insert("trade", [{"price": 1, "Issue": "a"}, {"issue": "b", "price": 2}]),
    "arrow": lambda db, _: db.insert("trade", pa.table({"issue": ["a", "b"], "price": [1, 2]})),
    "pandas": lambda db, _: db.insert("trade", pd.DataFrame({"issue": ["a", "b"], "price": [1, 2]})),
    "values": lambda db, _: db.execute("INSERT INTO trade VALUES ('a', 1), ('b', 2)"),
    "named": lambda db, _: db.execute("INSERT INTO trade (price, issue) VALUES (1, 'a'), (2, 'b')"),
    "select": lambda db, _: db.execute("INSERT INTO trade SELECT * FROM (VALUES ('a', 1), ('b', 2)) v ORDER BY 2"),
    "file": _insert_csv,
    "follow": _follow_lines,
    "operations": lambda db, _: db.insert("trade", [("a", 1, "+"), ("b", 2, "+")], op="op"),
    "what fits": lambda db, _: db.insert("trade", [("a", 1), ("x", "y"), ("b", 2)], on_error="skip"),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_in_gets_the_time_of_its_epoch(db: whence.Database, clock: Hands, way: str, tmp_path: Path) -> None:
    WAYS[way](db, tmp_path)
    clock.now = 1001.5
    WAYS[way](db, tmp_path / ".." / tmp_path.name if way == "follow" else tmp_path)
    first = [("a", at(1000), 1), ("b", at(1000), 2)]
    later = [("a", at(1001.5), 1), ("b", at(1001.5), 2)]
    assert db["trade"].rows == first + later


def test_rows_of_a_transaction_have_the_time_of_its_end(db: whence.Database, clock: Hands) -> None:
    db.execute("CREATE STREAM other (x INT, seen TIMESTAMP DEFAULT tick_time())")
    with db.transaction():
        db.insert("trade", [("a", 1)])
        clock.now = 1007
        db.insert("other", [(5,)])
        db.insert("trade", [("b", 2)])
    assert {row[1] for row in db["trade"]} == {at(1007)}
    assert db["other"].rows == [(5, at(1007))]


def test_a_clock_that_goes_back_is_held(db: whence.Database, clock: Hands) -> None:
    db.insert("trade", [("a", 1)])
    clock.now = 3
    db.insert("trade", [("b", 2)])
    assert [row[1] for row in db["trade"]] == [at(1000), at(1000)]


def test_what_if_has_the_time_of_now(db: whence.Database, clock: Hands) -> None:
    clock.now = 1004
    found = db.what_if(insert={"trade": [("a", 1)]})
    assert found.tables["trade"].inserted == [("a", at(1004), 1)]
    assert db["trade"].rows == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([("a", at(3), 1)], "row 1: 3 values for the 2 columns (issue TEXT, price INTEGER); at is tick_time()"),
        ([{"issue": "a", "at": at(3), "price": 1}], "no column at in (issue TEXT, price INTEGER); at is tick_time()"),
        (pa.table({"issue": ["a"], "AT": [at(3)], "price": [1]}), "leave it out"),
    ],
    ids=["tuple", "dict", "arrow"],
)
def test_a_time_that_is_given_is_refused(db: whence.Database, given: Any, message: str) -> None:
    with pytest.raises(DataError, match=message.replace("(", r"\(").replace(")", r"\)")):
        db.insert("trade", given)
    assert db["trade"].rows == []


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("INSERT INTO trade (issue, at) VALUES ('a', NULL)", 'column "at" cannot be given; at is tick_time()'),
        ("INSERT INTO trade VALUES ('a', NULL, 1)", "2 columns are to be inserted, 3 are given"),
        ("CREATE TABLE t (a INT, at TIMESTAMP DEFAULT tick_time())", "only streams have tick_time()"),
        (
            "CREATE STREAM t (a INT, at INT DEFAULT tick_time())",
            "tick_time() is a TIMESTAMP, and the column is INTEGER",
        ),
        ("CREATE STREAM t (a INT DEFAULT 3)", "the only DEFAULT is tick_time()"),
        ("CREATE STREAM t (at TIMESTAMP DEFAULT tick_time())", "a stream needs a column besides its tick_time()"),
        (
            "CREATE STREAM t (a TIMESTAMP DEFAULT tick_time(), x INT, b TIMESTAMP DEFAULT tick_time())",
            "one column of a stream is tick_time()",
        ),
        ("CREATE VIEW v AS SELECT tick_time() AS t FROM plain", "nothing in FROM has it; declare it"),
        ("CREATE VIEW v AS SELECT tick_time() AS t FROM trade GROUP BY issue", "must be in GROUP BY"),
        ("CREATE VIEW v AS SELECT issue FROM latest(plain, on => tick_time(), width => 3)", "nothing in FROM has it"),
    ],
)
def test_misuse_is_explained(db: whence.Database, sql: str, message: str) -> None:
    db.execute("CREATE STREAM plain (issue TEXT, time TIMESTAMP)")
    with pytest.raises(WhenceError) as refused:
        db.execute(sql)
    assert message in str(refused.value)


def test_a_query_reads_it_by_its_function(db: whence.Database, clock: Hands) -> None:
    db.execute("""
        CREATE VIEW dear AS SELECT issue, tick_time() AS seen FROM trade WHERE price > 1;
        CREATE VIEW per_second AS SELECT date_trunc('second', tick_time()) AS s, COUNT(*) AS n FROM trade GROUP BY 1;
        CREATE VIEW again AS SELECT issue, tick_time() AS seen FROM (SELECT at, issue FROM trade WHERE price > 1) AS t;
    """)
    db.insert("trade", [("a", 1), ("b", 2)])
    clock.now = 1000.7
    db.insert("trade", [("c", 3)])
    assert db["dear"].rows == db["again"].rows == [("b", at(1000)), ("c", at(1000.7))]
    assert db["per_second"].rows == [(at(1000), 3)]
    assert db.query("SELECT issue, tick_time() FROM trade ORDER BY 1").rows == [
        ("a", at(1000)),
        ("b", at(1000)),
        ("c", at(1000.7)),
    ]
    with pytest.raises(WhenceError, match="nothing in FROM has it"):
        db.query("SELECT tick_time()")
    with pytest.raises(WhenceError, match=r"name the column that is meant, a\.at, b\.at"):
        db.query(
            "SELECT tick_time() FROM slide(trade, rows => 1) a JOIN slide(trade, rows => 1) b ON a.issue = b.issue"
        )


def test_restart_export_and_backup_keep_the_times(clock: Hands, tmp_path: Path) -> None:
    with whence.open(tmp_path / "a", clock=clock) as db:
        db.execute(TRADE)
        db.insert("trade", [("a", 1)])
        clock.now = 2000
        db.insert("trade", [("b", 2)])
        rows = db["trade"].rows
        db.export(tmp_path / "out")
        db.backup(tmp_path / "copy")
    whence.import_database(tmp_path / "out", tmp_path / "imported")
    clock.now = 5  # set back
    for name in ("a", "copy"):
        with whence.open(tmp_path / name, clock=clock) as db:
            assert db["trade"].rows == rows
            db.insert("trade", [("c", 3)])
            assert db["trade"].rows[-1] == ("c", at(2000), 3)
    with whence.open(tmp_path / "imported") as db:
        assert db["trade"].rows == rows
        db.insert("trade", [("c", 3)])
        assert db["trade"].rows[-1][1] > at(2000)


def test_an_import_from_the_future_holds_the_clock(tmp_path: Path) -> None:
    later = Hands(9e9)
    with whence.open(clock=later) as db:
        db.execute(TRADE)
        db.insert("trade", [("a", 1)])
        db.export(tmp_path / "out")
    whence.import_database(tmp_path / "out", tmp_path / "imported")
    with whence.open(tmp_path / "imported") as db:
        db.insert("trade", [("b", 2)])
        assert [row[1] for row in db["trade"]] == [at(9e9), at(9e9)]


def test_a_folder_moves_between_partitions_and_none(clock: Hands, tmp_path: Path) -> None:
    for count, partitions in enumerate((None, 2, None)):
        with whence.open(tmp_path / "a", clock=clock, partitions=partitions) as db:
            if not count:
                db.execute(TRADE)
            db.insert("trade", [("a", count)])
            assert [row[1] for row in db["trade"]] == [at(1000 + second) for second in range(count + 1)]
        clock.now += 1


def test_a_killed_process_leaves_no_later_time_than_it_told(tmp_path: Path) -> None:
    """The time of a row that was acknowledged bounds those after a crash, with the clock set back an hour."""
    script = f"""
import os, sys, whence
db = whence.open({str(tmp_path / "a")!r})
db.execute({TRADE!r})
db.insert("trade", [("a", 1)])
print(db["trade"].rows[0][1].isoformat(), flush=True)
os.kill(os.getpid(), 9)
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    moment = dt.datetime.fromisoformat(told.stdout.strip())
    before = (moment - dt.datetime(1970, 1, 1)).total_seconds() - 3600
    with whence.open(tmp_path / "a", clock=lambda: before) as db:
        db.insert("trade", [("b", 2)])
        assert [row[1] for row in db["trade"]] == [moment, moment]


def test_server_inserts_leave_it_out(clock: Hands) -> None:
    with whence.open(clock=clock) as db:
        db.execute(TRADE)
        with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
            client.insert("trade", [("a", 1)])
            clock.now = 1003
            client.insert("trade", [{"issue": "b", "price": 2}])
            client.insert("trade", pa.table({"issue": ["c"], "price": [3]}))
            assert db["trade"].rows == [("a", at(1000), 1), ("b", at(1003), 2), ("c", at(1003), 3)]
            with pytest.raises(DataError, match="leave it out"):
                client.insert("trade", [("a", at(1), 1)])
            found = client.what_if(insert={"trade": [("d", 4)]})
            assert found.tables["trade"].inserted == [("d", at(1003), 4)]


def test_typed_rows_know_the_written_columns(db: whence.Database) -> None:
    written = db._coordinator.table_of("trade").written
    assert typed_rows([["a", 1]], written) == [("a", 1)]
