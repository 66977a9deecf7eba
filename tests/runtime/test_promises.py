"""CHECK, ordered and closes are enforced on every way in, and what they establish lasts."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import whence
from tests import inside
from tests.faults import Deadly, done_before_death, points
from whence.model.errors import DataError, WhenceError
from whence.plan.algebra.program import Table
from whence.runtime.writing import horizons as horizons_
from whence.sql import statements as st
from whence.sql.parse import parse_one
from whence.state.disk import Disk

PLAY = """CREATE STREAM play (game TEXT, kind TEXT, t INT, x INT CHECK (x >= 0))
          WITH (ordered = 't', closes = 'game when kind = ''end''')"""
LATE = r"stream play, row 1: .* breaks the promise ordered = 't': t has reached "
CLOSED = r"breaks the promise closes = 'game when kind = ''end''': its key is closed"
NEGATIVE = r"breaks the promise CHECK \(x >= 0\)"


def opened(path: Path | None = None, partitions: int | None = None, sql: str = PLAY) -> whence.Database:
    db = whence.open(path, partitions=partitions) if partitions else whence.open(path)
    if not db.streams and not db.tables:
        db.execute(sql)
    return db


def table(sql: str) -> Table:
    create = parse_one(sql)
    assert isinstance(create, st.CreateTable)
    return create.table


def known(db: whence.Database, stream: str = "play", column: str = "t") -> tuple[Any, list[Any]]:
    """The horizon of a stream, and its closed keys."""
    horizons = inside.coordinator(db).horizons()
    found = horizons.of(stream, column)
    return None if found is None else found.value, sorted(horizons.closed_keys(stream), key=str)


# -- what checks say of a column ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "check", "domain"),
    [
        ("INT", "x BETWEEN 0 AND 3", (0, 3)),
        ("INT", "x > 0 AND x < 4", (1, 3)),
        ("INT", "0 < x AND 4 > x", (1, 3)),
        ("INT", "x < 3.5 AND x > -1.5", (-1, 3)),
        ("INT", "x IN (7, 3, 5)", (3, 7)),
        ("INT", "x IN (7, 3, NULL)", (None, None)),
        ("INT", "x = 2 OR x = 9", (2, 9)),
        ("INT", "x = 2 OR y = 9", (None, None)),
        ("INT", "x >= 1 + 1", (2, None)),
        ("INT", "x <> 3", (None, None)),
        ("INT", "NOT x < 3", (None, None)),
        ("INT", "x < y", (None, None)),
        ("INT", "x <= NULL", (None, None)),
        ("DECIMAL(5,2)", "x > 1.234 AND x < 2", (Decimal("1.24"), Decimal("1.99"))),
        ("DOUBLE", "x > 0 AND x <= 1.5", (0.0, 1.5)),
        ("DATE", "x > '2024-01-31'", (dt.date(2024, 2, 1), None)),
        ("TIMESTAMP", "x < '2024-01-01'", (None, dt.datetime(2023, 12, 31, 23, 59, 59, 999999))),
        ("TEXT", "x IN ('b', 'a')", ("a", "b")),
        ("BOOLEAN", "x = true", (True, True)),
    ],
)
def test_constant_checks_give_the_domain_of_a_column(column: str, check: str, domain: tuple[Any, Any]) -> None:
    assert table(f"CREATE TABLE t (x {column}, y INT, CHECK ({check}))").domain("x") == domain


def test_several_checks_narrow_a_domain() -> None:
    found = table("CREATE TABLE t (x INT CHECK (x >= 0) CHECK (x < 9), CONSTRAINT few CHECK (x <= 4), y INT)")
    assert found.domain("x") == found.domain(0) == (0, 4)
    assert found.domain("y") == (None, None)
    assert [str(promise) for promise in found.promises] == ["CHECK (x >= 0)", "CHECK (x < 9)", "CHECK (x <= 4) (few)"]


def test_describe_shows_promises() -> None:
    with opened() as db:
        found = {row["column"]: row["promises"] for row in db.describe("play").to_dicts()}
        closes = "closes = 'game when kind = ''end'''"
        assert found == {"game": closes, "kind": closes, "t": "ordered = 't'", "x": "CHECK (x >= 0)"}
        db.execute("CREATE TABLE plain (a INT)")
        assert "promises" not in db.describe("plain").columns


def test_other_promises_are_another_definition() -> None:
    with opened() as db:
        found = db.execute("CREATE STREAM IF NOT EXISTS play (game TEXT, kind TEXT, t INT, x INT) WITH (ordered = 't')")
        assert "exists already with another definition" in found.message


# -- ways in -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [None, 3])
def test_first_row_that_breaks_a_promise_is_named_and_nothing_changes(partitions: int | None) -> None:
    with opened(None, partitions) as db:
        db.insert("play", [("A", "goal", 1, 0), ("B", "goal", 2, 1)])
        for rows, message in [
            ([("A", "goal", 1, 0)], LATE + "2"),
            ([("A", "goal", 3, 0), ("A", "end", 5, 0), ("C", "x", 4, 0)], "row 3: .* ordered = 't': t has reached 5"),
            ([("A", "end", 3, 0), ("B", "goal", 3, -1), ("A", "x", 1, 0)], f"row 2: .*{NEGATIVE}"),
            ([("A", "end", 3, 0), ("B", "goal", 3, 1), ("A", "x", 4, 0)], f"row 3: .*{CLOSED}"),
            ([("A", "end", 3, 0), ("A", "end", 3, 0)], f"row 2: .*{CLOSED}"),
            ([("A", "goal", None, 0)], "column t: NULL in a NOT NULL column"),
        ]:
            with pytest.raises(DataError, match=message):
                db.insert("play", rows)
        assert (db.epoch, len(db["play"]), known(db)) == (1, 2, (2, []))
        db.insert("play", [("A", "end", 2, None), (None, "end", 3, 0), ("B", None, 3, 0)])
        assert known(db) == (3, [("A",), (None,)])
        for key in ("A", None):
            with pytest.raises(DataError, match=CLOSED):
                db.insert("play", [(key, "goal", 4, 0)])


def test_every_way_in_is_guarded(tmp_path: Path) -> None:
    with opened() as db:
        db.insert("play", [("A", "end", 5, 0)])
        with pytest.raises(DataError, match=LATE + "5"):
            db.execute("INSERT INTO play VALUES ('B', 'goal', 4, 0)")
        with pytest.raises(DataError, match=LATE + "5"):
            db.insert("play", pa.table({"game": ["B"], "kind": ["x"], "t": [4], "x": [0]}))
        with pytest.raises(DataError, match=CLOSED):
            db.insert("play", [("A", "goal", 5, 0, "+")], op="op")
        with pytest.raises(DataError, match=CLOSED):
            db.what_if(insert={"play": [("A", "goal", 5, 0)]})
        with pytest.raises(DataError, match=NEGATIVE):
            db.what_if("INSERT INTO play VALUES ('B', 'goal', 5, -1)")
        lines = tmp_path / "rows.jsonl"
        lines.write_text('{"game": "B", "kind": "x", "t": 5, "x": 0}\n{"game": "A", "kind": "x", "t": 5, "x": 0}\n')
        with pytest.raises(DataError, match=f"row 2: .*{CLOSED}"):
            db.insert("play", lines)
        with pytest.raises(DataError, match=f"line 2: stream play: .*{CLOSED}"):
            list(db.follow({"play": lines}, wait=False))
        assert (db.epoch, len(db["play"]), known(db)) == (1, 1, (5, [("A",)]))


def test_what_if_establishes_nothing() -> None:
    with opened() as db:
        assert db.what_if(insert={"play": [("A", "end", 5, 0)]}).tables["play"].inserted == [("A", "end", 5, 0)]
        assert known(db) == (None, [])
        db.insert("play", [("A", "end", 1, 0)])
        assert known(db) == (1, [("A",)])


def test_checks_of_a_table_hold_after_inserts_and_updates() -> None:
    with whence.open() as db:
        db.execute("CREATE TABLE seat (id INT PRIMARY KEY, free INT CHECK (free BETWEEN 0 AND 10))")
        db.insert("seat", [(1, 10), (2, None)])
        for write in (
            lambda: db.insert("seat", [(3, 1), (1, 11)]),
            lambda: db.update("seat", {"free": 11}, key=1),
            lambda: db.update("seat", {"free": -1}, {"id": [1, 2]}),
            lambda: db.execute("UPDATE seat SET free = free + 1"),
            lambda: db.insert("seat", [(2, None, "-"), (4, 11, "+")], op="op"),
            lambda: db.what_if(update={"seat": ({"free": 11}, {"id": 1})}),
        ):
            with pytest.raises(DataError, match=r"breaks the promise CHECK \(free BETWEEN 0 AND 10\)"):
                write()
        with pytest.raises(DataError, match=r"table seat, row 2: \(4, 11\)"):
            db.insert("seat", [(2, None, "-"), (4, 11, "+")], op="op")
        assert sorted(db["seat"]) == [(1, 10), (2, None)]
        assert db.delete("seat", (7, 99), early="hold") == 0  # what is not there breaks nothing
        assert db.update("seat", {"free": 9}, key=1) == 1


@pytest.mark.parametrize("on_error", ["skip", "reject"])
def test_rows_that_break_a_promise_are_set_apart(on_error: Any, tmp_path: Path) -> None:
    rows = [("A", "g", 1, 0), ("A", "g", 3, -1), ("A", "end", 2, 0)]
    rows += [("A", "g", 2, 0), ("B", "g", 1, 0), ("B", "g", 2, 0)]
    with opened() as db:
        assert db.insert("play", rows, on_error=on_error) == 3
        assert db["play"].rows == [rows[0], rows[2], rows[5]]
        assert known(db) == (2, [("A",)])
        if on_error == "reject":
            found = db.query("SELECT line, reason FROM rejects ORDER BY line").rows
            assert [line for line, _ in found] == [2, 4, 5]
            assert found[2][1] == "('B', 'g', 1, 0) breaks the promise ordered = 't': t has reached 2"
        lines = tmp_path / "rows.csv"
        lines.write_text("game,kind,t,x\nA,g,9,0\nC,g,4,0\nC,g,3,0\nC,end,4,0\nC,g,5,0\n")
        assert db.insert("play", lines, on_error=on_error) == 2
        notes: list[str] = []
        lines.write_text("game,kind,t,x\nA,g,9,0\nD,g,6,0\nD,g,5,0\nD,end,6,0\nD,g,7,0\n")
        (epoch,) = db.follow({"play": lines}, wait=False, on_error=on_error, note=notes.append)
        assert (epoch.rows, epoch.rejected, len(notes)) == (5, 3, 3)
        assert known(db) == (6, [("A",), ("C",), ("D",)])


def test_unknown_expression_refuses_the_row_it_fails_on() -> None:
    with whence.open() as db:
        db.execute("CREATE TABLE t (a TEXT, CHECK (CAST(a AS INT) < 5))")
        with pytest.raises(DataError, match=r"table t, row 3: \('x',\) breaks the promise .*: cannot be evaluated"):
            db.insert("t", [("1",), (None,), ("x",), ("9",)])
        assert db.insert("t", [("1",), ("x",), ("9",), ("2",)], on_error="skip") == 2


# -- transactions ------------------------------------------------------------------------------------------------------


def in_one(db: whence.Database, *parts: list[Any]) -> None:
    """Insert rows in one transaction, or inside another one after a savepoint."""
    with db.transaction():
        for rows in parts:
            db.insert("play", rows)


def test_rows_of_a_transaction_are_checked_in_their_order() -> None:
    with opened() as db:
        with pytest.raises(DataError, match=CLOSED):
            in_one(db, [("A", "end", 1, 0)], [("A", "goal", 1, 0)])
        assert (db.epoch, known(db)) == (0, (None, []))
        with db.transaction():
            db.insert("play", [("A", "goal", 1, 0)])
            with pytest.raises(DataError, match=CLOSED):
                in_one(db, [("A", "end", 7, 0), ("B", "end", 8, 0)], [("B", "goal", 9, 0)])
            with pytest.raises(DataError, match=LATE + "1"):
                db.insert("play", [("B", "goal", 0, 0)])
            db.insert("play", [("A", "end", 2, 0), ("B", "goal", 2, 0)])
            with pytest.raises(DataError, match=CLOSED):
                db.insert("play", [("A", "goal", 3, 0)])
        assert (db.epoch, known(db)) == (1, (2, [("A",)]))


def test_epoch_that_fails_establishes_nothing() -> None:
    with opened() as db:
        db.execute("CREATE VIEW quotient AS SELECT SUM(CAST(kind AS INT)) AS s FROM play")
        with pytest.raises(WhenceError):
            db.insert("play", [("A", "end", 5, 0)])
        assert known(db) == (None, [])
        db.insert("play", [("A", "7", 1, 0)])
        assert known(db) == (1, [])


# -- what is established -----------------------------------------------------------------------------------------------


def test_advance_on_the_ordered_column_is_enforced() -> None:
    with opened() as db:
        db.advance("play", 7)
        assert known(db) == (7, [])
        with pytest.raises(DataError, match=LATE + "7"):
            db.insert("play", [("A", "goal", 6, 0)])
        db.insert("play", [("A", "goal", 7, 0)])
        db.advance("play", 3)
        assert known(db) == (7, [])


def test_advance_on_another_column_gives_no_horizon() -> None:
    with whence.open() as db:
        db.execute("CREATE STREAM s (t INT, x INT) WITH (ordered = 't'); CREATE STREAM u (t INT)")
        db.advance("s", 7, on="x")
        db.advance("u", 7, on="t")
        assert inside.coordinator(db).horizons().of("s", "x") is None
        assert inside.coordinator(db).horizons().of("u", "t") is None
        assert db.insert("s", [(1, 1)]) == db.insert("u", [(1,)]) == 1


def test_horizon_of_a_strictly_ordered_column_is_exclusive() -> None:
    with whence.open() as db:
        db.execute("CREATE STREAM s (t INT) WITH (ordered = 't strictly')")
        db.insert("s", [(3,), (4,)])
        horizon = inside.coordinator(db).horizons().of("s", "t")
        assert (horizon.value, horizon.strictly, horizon.has_passed(4), horizon.has_passed(5)) == (4, True, True, False)
        db.advance("s", 9)  # 9 may still come
        horizon = inside.coordinator(db).horizons().of("s", "t")
        assert (horizon.value, horizon.has_passed(8), horizon.has_passed(9)) == (8, True, False)
        assert db.insert("s", [(9,)]) == 1


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("DOUBLE", [-1.5, 0.0, 0.25, float("inf")]),
        ("DECIMAL(9,3)", [Decimal("-1.500"), Decimal("0.001"), Decimal("7.000")]),
        ("DATE", [dt.date(1960, 1, 1), dt.date(2024, 2, 29)]),
        ("TIMESTAMP", [dt.datetime(1960, 1, 1), dt.datetime(2024, 2, 29, 0, 0, 0, 1)]),
        ("BIGINT", [-(2**62), 0, 2**62]),
    ],
)
def test_columns_of_each_type_are_ordered(column: str, values: list[Any]) -> None:
    with whence.open() as db:
        db.execute(f"CREATE STREAM s (t {column}) WITH (ordered = 't')")
        db.execute(f"CREATE STREAM u (t {column}) WITH (ordered = 't strictly')")
        for value in values:
            for stream in ("s", "u"):
                db.insert(stream, [(value,)])
                assert inside.coordinator(db).horizons().of(stream, "t").value == value
        db.insert("s", [(values[-1],)])
        with pytest.raises(DataError, match="breaks the promise ordered"):
            db.insert("u", [(values[-1],)])
        with pytest.raises(DataError, match="breaks the promise ordered"):
            db.insert("s", [(values[0],)])


def test_horizons_are_known_as_of_earlier_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(horizons_, "KEPT", 4)
    with opened() as db:
        for t in range(1, 21):
            db.insert("play", [(f"g{t}", "end", t, 0)])
        coordinator = inside.coordinator(db)
        assert [coordinator.horizons(e).of("play", "t").value for e in (20, 19, 17)] == [20, 19, 17]
        assert coordinator.horizons(1).of("play", "t") is None  # not known any more, which is sound
        assert coordinator.horizons(17).is_closed("play", ["g17"])
        assert not coordinator.horizons(17).is_closed("play", ["g18"])
        assert not coordinator.horizons(1).is_closed("play", ["g1"])
        assert coordinator.horizons().is_closed("play", ["g1"])
        changes = coordinator.horizons(19).changed_since(17)
        assert changes.complete
        assert {key: horizon.value for key, horizon in changes.horizons.items()} == {("play", "t"): 19}
        assert changes.closed == {"play": [("g18",), ("g19",)]}
        assert not coordinator.horizons().changed_since(1).complete
        assert not coordinator.horizons().changed_since(20)


def test_keys_with_unknown_words_are_open() -> None:
    with opened() as db:
        db.insert("play", [("A", "end", 1, 0)])
        horizons = inside.coordinator(db).horizons()
        assert [horizons.is_closed("play", [key]) for key in ("A", "Z", None, 7)] == [True, False, False, False]
        assert not horizons.is_closed("nothing", ["A"])
        assert horizons.of("play", "x") is None


def test_closed_keys_are_no_rows_of_the_database() -> None:
    with opened() as db:
        db.execute("CREATE VIEW n AS SELECT COUNT(*) AS n FROM play")
        db.insert("play", [("A", "end", 1, 0), ("B", "goal", 1, 0)])
        metrics = db.metrics()
        assert (metrics["rows_in"], metrics["tables"], metrics["owed"]) == (2, {"play": 2}, {})
        assert db.streams == ["play"]
        assert [row["operator"] for row in db.state() if row["relation"] == "play"] == ["table", "closed keys"]


# -- what lasts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("image", [False, True])
@pytest.mark.parametrize(("before", "after"), [(None, None), (3, 3), (None, 2), (3, None), (2, 4)])
def test_promises_hold_after_a_restart(tmp_path: Path, before: int | None, after: int | None, image: bool) -> None:
    sql = PLAY.replace("WITH (", "WITH (retain = '1 rows', ")
    with opened(tmp_path / "db", before, sql) as db:
        db.insert("play", [("A", "goal", 1, 0), ("A", "end", 2, 0)])
        for t in range(3, 6):
            db.insert("play", [("B", "goal", t, 0)])
        db.advance("play", 8)
        if image:
            db.snapshot()
        db.insert("play", [("C", "end", 8, 0)])
    with opened(tmp_path / "db", after) as db:
        assert known(db) == (8, [("A",), ("C",)])
        for row, message in ((("B", "goal", 7, 0), LATE + "8"), (("A", "goal", 9, 0), CLOSED)):
            with pytest.raises(DataError, match=message):
                db.insert("play", [row])
        db.insert("play", [("B", "end", 9, 0)])
    with opened(tmp_path / "db") as db:
        assert known(db) == (9, [("A",), ("B",), ("C",)])


def test_backup_and_followers_have_the_promises(tmp_path: Path) -> None:
    with opened(tmp_path / "db") as db:
        db.insert("play", [("A", "end", 2, 0)])
        with whence.open(tmp_path / "db", read_only=True) as reader:
            assert known(reader) == (2, [("A",)])
            db.insert("play", [("B", "end", 3, 0)])
            assert reader.epoch == 2
            assert known(reader) == (3, [("A",), ("B",)])
            with pytest.raises(DataError, match=CLOSED):
                reader.what_if(insert={"play": [("B", "goal", 3, 0)]})
            db.insert("play", [("end", "goal", 4, 0), ("late", "goal", 4, 0)])  # words that the reader must learn
            assert reader.epoch == 3
        db.backup(tmp_path / "copy")
    with whence.open(tmp_path / "copy") as db:
        assert known(db) == (4, [("A",), ("B",)])


@pytest.mark.parametrize("partitions", [None, 2])
def test_export_carries_what_rows_that_were_let_go_established(tmp_path: Path, partitions: int | None) -> None:
    sql = PLAY.replace("WITH (", "WITH (retain = '2 rows', ")
    with opened(None, partitions, sql) as db:
        for t, game in enumerate("ABCDE"):
            db.insert("play", [(game, "goal", t, 0), (game, "end", t, 0)])
        db.insert("play", [("F", "goal", 6, 0)])
        db.advance("play", 9)
        db.export(tmp_path / "out")
        before = known(db)
    whence.import_database(tmp_path / "out", tmp_path / "db")
    with whence.open(tmp_path / "db") as db:
        assert known(db) == before == (9, [(game,) for game in "ABCDE"])
        with pytest.raises(DataError, match=LATE + "9"):
            db.insert("play", [("F", "goal", 8, 0)])


def test_import_refuses_rows_that_break_a_promise(tmp_path: Path) -> None:
    with whence.open() as db:
        db.execute("CREATE STREAM s (t INT)")
        db.insert("s", [(2,), (1,)])
        db.export(tmp_path / "out")
    schema = tmp_path / "out" / "schema.sql"
    schema.write_text("CREATE STREAM s (t INT) WITH (ordered = 't')")
    with pytest.raises(DataError, match=r"row 2: .* breaks the promise ordered"):
        whence.import_database(tmp_path / "out", tmp_path / "db")


def test_stream_that_is_made_anew_has_established_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "db") as db:
        db.insert("play", [("A", "end", 5, 0)])
        db.execute("DROP STREAM play")
        db.execute(PLAY)
        assert known(db) == (None, [])
        db.insert("play", [("A", "goal", 1, 0)])
    with opened(tmp_path / "db") as db:
        assert known(db) == (1, [])


def test_words_of_closed_keys_are_not_forgotten(tmp_path: Path) -> None:
    sql = PLAY.replace("WITH (", "WITH (retain = '1 rows', ")
    with opened(tmp_path / "db", None, sql) as db:
        coordinator = inside.coordinator(db)
        for number in range(50):
            db.insert("play", [(f"game {number}", "end", number, 0), (f"other {number}", "goal", number, 0)])
        coordinator.words.collect(asked=True)
        db.snapshot()
        assert len(known(db)[1]) == 50
        with pytest.raises(DataError, match=CLOSED):
            db.insert("play", [("game 7", "goal", 60, 0)])


STEPS: list[Any] = [
    lambda db: db.insert("play", [("A", "goal", 1, 0), ("A", "end", 2, 0)]),
    lambda db: db.advance("play", 5),
    lambda db: db.insert("play", [("B", "end", 5, 0)]),
    lambda db: db.snapshot(),
    lambda db: db.insert("play", [("C", "goal", 7, 0), ("C", "end", 7, 0)]),
    lambda db: db.insert("play", [("D", "goal", 8, 0)]),
]
AFTER: dict[int, tuple[int | None, str]] = {0: (None, ""), 1: (2, "A"), 2: (5, "A"), 3: (5, "AB"), 4: (7, "ABC")}
AFTER[5] = (8, "ABC")


def test_promises_hold_after_kill(tmp_path: Path) -> None:
    sql = PLAY.replace("WITH (", "WITH (retain = '1 rows', ")

    def run(path: Path, disk: Disk, tell: int | None = None) -> None:
        db = whence.open(path, disk=disk)
        db.execute(sql)
        for step in STEPS:
            step(db)
            if tell is not None:
                os.write(tell, b".")
        db.close()

    total = points(lambda disk: run(tmp_path / "whole", disk))
    for at in range(1, total, 3):
        path = tmp_path / "db"
        shutil.rmtree(path, ignore_errors=True)
        done_before_death(lambda tell, path=path, at=at: run(path, Deadly(at), tell))  # type: ignore[misc]
        with whence.open(path) as db:
            if not db.streams:
                continue
            horizon, closed = AFTER[db.epoch]
            assert known(db) == (horizon, [(key,) for key in closed])
            for key in closed:
                with pytest.raises(DataError, match=CLOSED):
                    db.insert("play", [(key, "goal", 99, 0)])
            if horizon is not None:
                with pytest.raises(DataError, match=LATE + str(horizon)):
                    db.insert("play", [("Z", "goal", horizon - 1, 0)])


def test_server_may_hide_rows_from_a_writer_whose_key_is_closed() -> None:
    with opened() as db:
        db.insert("play", [("A", "end", 1, 0)])
        coordinator = inside.coordinator(db)
        with coordinator.transaction() as writes, writes.seeing(lambda name: lambda rows: rows[:, 3] > 0):
            with pytest.raises(DataError, match=CLOSED):
                db.insert("play", [("A", "goal", 2, 0)])
            assert db.insert("play", [("B", "goal", 2, 0)]) == 1
