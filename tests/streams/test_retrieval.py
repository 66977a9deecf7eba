"""What is behind a result, as a relation and as an answer; and what came of an input."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import whence
from whence.cli import app
from whence.model.errors import CatalogError, DataError, ExpiredError, SqlError

READINGS = [(t, t % 2, 10.0 * (t % 5)) for t in range(1, 11)]


@pytest.fixture
def db() -> Iterator[whence.Database]:
    """Ten readings; averages of three, one for every reading; alarms are averages above 20."""
    with whence.open() as db:
        db.execute("""
            CREATE STREAM reading (time INT, loc INT, temp DOUBLE);
            CREATE VIEW mean WITH (provenance = 'lineage') AS
              SELECT MIN(time) AS time, AVG(temp) AS temp FROM slide(reading, rows => 3, every => 1);
            CREATE VIEW alarm WITH (provenance = 'lineage') AS SELECT time, temp FROM mean WHERE temp > 20;
            CREATE VIEW lazy WITH (provenance = 'covering') AS SELECT time, temp FROM mean WHERE temp > 20;
            CREATE VIEW bare AS SELECT time, temp FROM mean WHERE temp > 20;
            CREATE TABLE label (time INT, name TEXT);
        """)
        db.insert("label", [(2, "two"), (99, "none")])
        for row in READINGS:
            db.insert("reading", row)
        yield db


ALARMS = [(2, 30.0), (3, 70 / 3), (7, 30.0), (8, 70 / 3)]


def test_a_result_stands_beside_each_of_its_inputs(db: whence.Database) -> None:
    found = db.query("SELECT * FROM provenance(alarm, reading)")
    assert found.columns == ["tid", "time", "temp", "reading_tid", "reading_time", "reading_loc", "reading_temp"]
    expected = [
        (n, *row, tid, *READINGS[tid - 1]) for n, row in enumerate(ALARMS, 1) for tid in range(row[0], row[0] + 3)
    ]
    assert found.rows == expected
    assert db.provenance("alarm", "reading").rows == expected
    assert db.query("SELECT * FROM provenance(lazy, reading)").rows == expected
    assert db.query("SELECT * FROM provenance(alarm)").rows == expected


def reconstructed(caplog: pytest.LogCaptureFixture, db: whence.Database, sql: str) -> list[str]:
    """How many results each p-join of a query reconstructed, after checking the answer against no pushing at all."""
    caplog.set_level(logging.DEBUG, "whence")
    caplog.clear()
    answer = db.query(sql.replace("$P ", "provenance(alarm, reading) "))
    said = [r.getMessage() for r in caplog.records if "reconstructed" in r.getMessage()]
    db.execute("CREATE TABLE IF NOT EXISTS copied (tid BIGINT, time INT, temp DOUBLE, reading_tid BIGINT, "
               "reading_time INT, reading_loc INT, reading_temp DOUBLE)")  # fmt: skip
    if not len(db["copied"]):
        db.insert("copied", db.provenance("alarm", "reading").rows)
    plain = sql.replace("$P ", "copied ")
    assert sorted(map(str, answer.rows)) == sorted(map(str, db.query(plain).rows))
    return [one.partition(": ")[2].partition(" of")[0] for one in said]


@pytest.mark.parametrize(
    ("sql", "counts"),
    [
        ("SELECT * FROM $P AS p WHERE time = 2", ["1"]),
        ("SELECT * FROM $P AS p WHERE p.tid > 2 AND p.reading_temp > 0", ["2"]),
        ("SELECT * FROM $P AS p WHERE temp > 25 AND reading_temp < temp", ["2"]),
        ("SELECT * FROM $P AS p WHERE temp > 25 OR reading_temp < 1", ["4"]),
        ("SELECT COUNT(*) FROM $P AS p WHERE tid IN (1, 4) GROUP BY time", ["2"]),
        ("SELECT * FROM $P AS p, label AS l WHERE p.tid = 1 AND l.time = p.time", ["1"]),
        ("SELECT * FROM $P AS p JOIN label AS l ON l.time = p.time WHERE name = 'two'", ["4"]),
        ("SELECT * FROM $P AS p LEFT JOIN label AS l ON l.time = p.time WHERE p.tid = 1", ["1"]),
        ("SELECT * FROM label AS l LEFT JOIN $P AS p ON l.time = p.time WHERE p.tid IS NULL", ["4"]),
        ("SELECT * FROM label AS l LEFT JOIN $P AS p ON l.time = p.time "
         "WHERE p.temp IS NULL OR p.temp > 99", ["4"]),
        ("SELECT * FROM $P AS p FULL JOIN label AS l ON l.time = p.time WHERE p.tid IS NULL", ["4"]),
        ("WITH p AS (SELECT * FROM $P AS q WHERE q.tid = 3) SELECT * FROM p WHERE tid = 3", ["1"]),
        ("SELECT a.tid, b.tid FROM $P AS a, $P AS b "
         "WHERE a.tid = 1 AND b.tid < 3 AND a.reading_tid = b.reading_tid", ["1", "2"]),
        ("SELECT * FROM label WHERE time IN (SELECT time FROM $P AS p WHERE tid < 3)", ["2"]),
        ("SELECT * FROM label AS l WHERE EXISTS (SELECT 1 FROM $P AS p WHERE p.time = l.time)", ["4"]),
        ("SELECT tid AS temp FROM $P AS p WHERE temp > 25", ["2"]),
        ("SELECT * FROM $P AS p(x) WHERE x = 1", ["4"]),
        ("SELECT * FROM $P AS p WHERE time > 100", ["0"]),
    ],
)  # fmt: skip
def test_what_is_asked_of_results_alone_is_asked_first(
    caplog: pytest.LogCaptureFixture, db: whence.Database, sql: str, counts: list[str]
) -> None:
    assert reconstructed(caplog, db, sql) == counts


def test_what_differs_from_call_to_call_is_not_pushed(caplog: pytest.LogCaptureFixture, db: whence.Database) -> None:
    caplog.set_level(logging.DEBUG, "whence")
    db.query("SELECT * FROM provenance(alarm, reading) AS p WHERE temp > random() * 100")
    assert "4 of 4 results reconstructed" in caplog.text


def test_an_error_is_the_query_s_own(db: whence.Database) -> None:
    with pytest.raises(SqlError, match="nothing"):
        db.query("SELECT * FROM provenance(alarm, reading) AS p WHERE p.nothing = 1")
    assert db.query("SELECT tid FROM provenance(alarm, reading) AS p WHERE TRY_CAST(time AS INT) = 2 LIMIT 1").rows


def test_the_rows_of_a_stream_with_their_tids(db: whence.Database) -> None:
    assert db.query("SELECT * FROM numbered(alarm)").rows == [(n, *row) for n, row in enumerate(ALARMS, 1)]
    assert db.query("SELECT n.tid FROM numbered(reading) AS n WHERE n.time = 7").rows == [(7,)]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT * FROM provenance(alarm, label)", 'not traced from "label"'),
        ("SELECT * FROM provenance(bare, reading)", "keeps no provenance"),
        ("SELECT * FROM provenance(reading)", "what comes in has no provenance"),
        ("SELECT * FROM provenance(label, reading)", "is a table"),
        ("SELECT * FROM provenance(alarms, reading)", 'no stream or view "alarms"; did you mean'),
        ("SELECT * FROM provenance(alarm, 3)", "provenance takes the name of a view"),
        ("SELECT * FROM provenance()", "provenance takes the name of a view"),
        ("SELECT * FROM numbered(alarm, reading)", "numbered takes the name"),
        ("SELECT * FROM numbered(label)", "is a table"),
    ],
)
def test_what_cannot_be_asked(db: whence.Database, sql: str, said: str) -> None:
    with pytest.raises((SqlError, CatalogError)) as error:
        db.query(sql)
    assert said in str(error.value)


def test_names_that_clash(db: whence.Database) -> None:
    db.execute("CREATE STREAM s (tid INT, x INT); CREATE VIEW v WITH (provenance = 'lineage') AS "
               "SELECT tid, x AS s_x FROM s WHERE x > 0")  # fmt: skip
    db.insert("s", [(7, 0), (8, 1)])
    found = db.query("SELECT * FROM provenance(v, s) AS p WHERE p.tid_1 = 8")
    assert found.columns == ["tid", "tid_1", "s_x", "s_tid", "s_tid_1", "s_x_1"]
    assert found.rows == [(1, 8, 1, 2, 8, 1)]
    assert db.query("SELECT * FROM numbered(s)").columns == ["s_tid", "tid", "x"]
    assert db.why("v", tid=8).tids == {"s": [2]}  # a column of that name goes first
    assert db.trace("s", 2).tids == db.trace("s", tid=8).tids == {"v": [1]}


def test_what_has_expired_says_so() -> None:
    with whence.open() as db:
        db.execute("CREATE STREAM s (x INT) WITH (retain = '4 rows'); CREATE VIEW v WITH (provenance = 'lineage') AS "
                   "SELECT SUM(x) AS x FROM slide(s, rows => 2, every => 2)")  # fmt: skip
        db.insert("s", [(n,) for n in range(1, 11)])
        with pytest.raises(ExpiredError) as error:
            db.query("SELECT * FROM provenance(v, s)")
        for text in ("s no longer keeps tids 1 to 6", "results 1 to 3 of v", "its first is now 7", "WHERE tid >= 4"):
            assert text in str(error.value)
        assert len(db.query("SELECT * FROM provenance(v, s) AS p WHERE tid >= 4")) == 4
        with pytest.raises(ExpiredError, match="tids 3 to 4, which result 2 of v came from"):
            db.why("v", tid=2)
        assert db.why("v", tid=5).tids == {"s": [9, 10]}
        with pytest.raises(ExpiredError, match="no longer has tid 3"):
            db.trace("s", 3)
        assert db.trace("s", 9).tids == {"v": [5]}


def test_why_of_a_result(db: whence.Database) -> None:
    for view in ("alarm", "lazy", "bare"):
        why = db.why(view, time=7)
        assert why.holds
        assert why.tid == 3
        assert why.tids == {"reading": [7, 8, 9]}
        assert why.rows[0] == ("reading", {"tid": 7, "time": 7, "loc": 1, "temp": 20.0})
        assert str(why).splitlines() == [
            f"{view}:3(7, 30.0) at epoch 11: from 3 rows of reading",
            f"{view}:3(7, 30.0)",
            f"└─ {view} <- reading",
            "   ├─ ● reading:7(7, 1, 20.0)",
            "   ├─ ● reading:8(8, 0, 30.0)",
            "   └─ ● reading:9(9, 1, 40.0)",
        ]
        said = json.loads(why.to_json())
        assert (said["tid"], said["tids"], len(said["base"])) == (3, {"reading": [7, 8, 9]}, 3)
        assert "reading:8(8, 0, 30.0)" in why.to_dot()
        assert "reading:8(8, 0, 30.0)" in why.to_html()
    assert db.why("reading", tid=2).rows == [("reading", {"tid": 2, "time": 2, "loc": 0, "temp": 20.0})]


def test_which_row_is_meant(db: whence.Database) -> None:
    assert db.why("alarm", {"tid": 4}).tids == db.why("alarm", (8, 70 / 3)).tids == {"reading": [8, 9, 10]}
    with pytest.raises(DataError, match="2 rows of alarm match; tell which one is meant by its tid: 1, 3"):
        db.why("alarm", temp=30.0)
    assert not db.why("alarm", time=5).holds
    assert "alarm keeps no row with time = 5" in str(db.why("alarm", time=5))
    assert not db.why("alarm", tid=1, time=3).holds
    with pytest.raises(ExpiredError, match="has no tid 9 yet"):
        db.why("alarm", tid=9)
    with pytest.raises(DataError, match="a tid is a whole number"):
        db.why("alarm", tid="x")
    with pytest.raises(CatalogError, match='has no column "temperature"'):
        db.why("alarm", temperature=1)
    with pytest.raises(DataError, match="say which row"):
        db.critical("alarm")
    assert len(db.critical("alarm", tid=1)) == 3


def test_trace_goes_forward(db: whence.Database) -> None:
    trace = db.trace("reading", 4)
    assert trace.tids == {"mean": [2, 3, 4], "alarm": [1, 2], "lazy": [1, 2]}
    assert trace["alarm"].rows == [{"time": 2, "temp": 30.0}, {"time": 3, "temp": 70 / 3}]
    assert str(trace).splitlines()[:3] == ["reading:4(4, 0, 40.0) at epoch 11: reached 7 results", "  mean: 3",
                                           "    mean:2(2, 30.0)"]  # fmt: skip
    assert json.loads(trace.to_json())["views"]["lazy"]["results"][0] == {"tid": 1, "row": {"time": 2, "temp": 30.0}}
    assert db.trace("reading", time=1).tids == {"mean": [1], "alarm": [], "lazy": []}
    with pytest.raises(CatalogError, match="is no stream"):
        db.trace("label", time=2)
    with pytest.raises(CatalogError, match='no view is traced from "alarm"'):
        db.trace("alarm", 1)
    with pytest.raises(DataError, match="keeps no row with time = 77"):
        db.trace("reading", time=77)


def test_a_view_over_provenance_is_kept(db: whence.Database) -> None:
    db.execute("CREATE VIEW cause AS SELECT tid, time, reading_time, reading_temp FROM provenance(alarm, reading) "
               "WHERE reading_temp < 25")  # fmt: skip
    before = db["cause"].rows
    assert before == [(1, 2, 2, 20.0), (2, 3, 5, 0.0), (3, 7, 7, 20.0), (4, 8, 10, 0.0)]
    db.insert("reading", [(11, 1, 90.0), (12, 0, 20.0), (13, 1, 20.0)])
    asked = "SELECT tid, time, reading_time, reading_temp FROM provenance(alarm, reading) WHERE reading_temp < 25"
    assert db["cause"].rows == db.query(asked).rows
    assert len(db["cause"].rows) > len(before)


def test_partly_traced() -> None:
    """Traced from a view in between, and from one of two streams: the others are not mentioned."""
    with whence.open() as db:
        db.execute("""
            CREATE STREAM a (x INT); CREATE STREAM b (x INT);
            CREATE VIEW both AS SELECT x FROM a UNION ALL SELECT x FROM b;
            CREATE VIEW top WITH (provenance = 'lineage', provenance_of = 'both') AS
              SELECT MAX(x) AS x FROM slide(both, rows => 2, every => 1);
            CREATE VIEW some WITH (provenance = 'covering', provenance_of = 'b') AS
              SELECT MAX(x) AS x FROM slide(both, rows => 2, every => 1);
        """)
        for n in range(4):
            db.insert("a", [(n,)])
            db.insert("b", [(10 + n,)])
        assert db.why("top", tid=3).tids == {"both": [3, 4]}
        assert db.query("SELECT tid, b_tid FROM provenance(some, b)").rows == [
            (1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3), (7, 4)
        ]  # fmt: skip
        assert db.trace("both", 3).tids == {"top": [2, 3]}


def test_relations_over_streams_are_explained() -> None:
    with whence.open() as db:
        db.execute("""
            CREATE STREAM r (t INT, k INT) WITH (retain = '3 rows'); CREATE TABLE name (k INT, n TEXT);
            CREATE VIEW seen AS SELECT DISTINCT r.k, name.n FROM r JOIN name ON r.k = name.k;
            CREATE VIEW keys AS SELECT DISTINCT k FROM r;
            CREATE VIEW now AS SELECT k, COUNT(*) AS c FROM latest(r, rows => 2) GROUP BY k;
        """)
        db.insert("name", [(1, "one")])
        db.insert("r", [(1, 1), (2, 2), (3, 1)])
        assert db.why("keys", k=1).base == [("r", {"t": 1, "k": 1}), ("r", {"t": 3, "k": 1})]
        assert [row for _, row in db.why("now", k=2).base] == [{"t": 2, "k": 2}]
        assert not db.why("keys", k=9).holds
        db.insert("r", [(4, 1)])
        with pytest.raises(ExpiredError, match="stands on all rows it ever had"):
            db.why("keys", k=1)
        assert [row for _, row in db.why("now", k=1).base] == [{"t": 3, "k": 1}, {"t": 4, "k": 1}]


def test_from_the_command_line(tmp_path: Path) -> None:
    script = tmp_path / "a.sql"
    script.write_text("CREATE STREAM a (x INT); CREATE VIEW b WITH (provenance = 'covering') AS SELECT SUM(x) AS s "
                      "FROM slide(a, rows => 2, every => 1); INSERT INTO a VALUES (1), (2), (3);")  # fmt: skip
    run = CliRunner().invoke
    why = run(app, ["why", str(script), "b", "tid=2"])
    assert why.exit_code == 0
    assert "from 2 rows of a" in why.output
    assert "a:3(3)" in why.output
    said = json.loads(run(app, ["why", str(script), "b", "s=3", "--json"]).output)
    assert said["tids"] == {"a": [1, 2]}
    trace = run(app, ["trace", str(script), "a", "tid=2"])
    assert trace.exit_code == 0
    assert [line.strip() for line in trace.output.splitlines()][1:] == ["b: 2", "b:1(3)", "b:2(5)"]
    assert json.loads(run(app, ["trace", str(script), "a", "x=3", "--json"]).output)["views"]["b"]["complete"]
    assert run(app, ["trace", str(script), "b", "tid=1"]).exit_code == 1


def test_a_stream_joined_with_a_table() -> None:
    """Rows met the table as it was: that can be kept, and not be found again later."""
    with whence.open() as db:
        db.execute("CREATE STREAM s (k INT, v INT); CREATE TABLE name (k INT, n TEXT)")
        joined = "SELECT s.v, name.n FROM s JOIN name ON s.k = name.k"
        db.execute(f"CREATE VIEW eager WITH (provenance = 'lineage') AS {joined}; CREATE VIEW bare AS {joined}")
        db.insert("name", [(1, "one")])
        db.insert("s", [(2, 10), (1, 20)])
        db.execute("DELETE FROM name")
        db.insert("s", [(1, 30)])
        assert db.provenance("eager", "s").rows == [(1, 20, "one", 2, 1, 20)]
        with pytest.raises(CatalogError, match="cannot be replayed: make it WITH"):
            db.why("bare", tid=1)
        with pytest.raises(SqlError, match="which cannot be replayed later"):
            db.execute(f"CREATE VIEW lazy WITH (provenance = 'covering') AS {joined}")
        db.execute("CREATE VIEW cause AS SELECT tid, s_v FROM provenance(eager, s)")
        with pytest.raises(CatalogError, match="ask of the view it is of"):
            db.why("cause", tid=1)


def test_replay_begins_at_a_view(db: whence.Database) -> None:
    """Traced from a view in between, intervals are replayed from what that view keeps."""
    db.execute("""
        CREATE VIEW top WITH (provenance = 'covering', provenance_of = 'mean') AS
          SELECT MAX(temp) AS temp FROM slide(alarm, rows => 2, every => 1);
        CREATE VIEW turned WITH (provenance = 'covering', provenance_of = 'mean') AS
          SELECT time, temp FROM bsort(alarm, on => temp, slack => 1);
    """)
    assert db.query("SELECT tid, mean_tid FROM provenance(top, mean)").rows == [
        (1, 2), (1, 3), (2, 3), (2, 7), (3, 7), (3, 8)
    ]  # fmt: skip
    assert db.why("turned", tid=1).tids == {"mean": [3]}
    assert db.trace("mean", 7).tids == {"top": [2, 3], "turned": []}


def test_hint_of_expired_inputs_can_be_followed() -> None:
    with whence.open() as db:
        db.execute("CREATE STREAM s (x INT) WITH (retain = '10 rows')")
        db.execute(
            "CREATE VIEW v WITH (provenance = 'lineage') AS SELECT SUM(x) AS x FROM slide(s, rows => 2, every => 2)"
        )
        db.insert("s", [(n,) for n in range(3_000)])
        for ask in (lambda: db.query("SELECT * FROM provenance(v, s)"), lambda: db.why("v", tid=2)):
            with pytest.raises(ExpiredError) as error:
                ask()
            hint = re.search(r"WHERE tid >= \S+(?=;)", str(error.value))
            assert hint is not None
            assert len(db.query(f"SELECT * FROM provenance(v, s) {hint[0]}")) == 10


def test_hint_of_expired_replay_can_be_followed() -> None:
    """Views before the one that is asked about are named: their past cannot be traced through."""
    views = {
        "mean": "CREATE OR REPLACE VIEW mean WITH (provenance = '{}') AS"
        " SELECT AVG(x) AS x FROM slide(s, rows => 2, every => 2)",
        "peak": "CREATE OR REPLACE VIEW peak WITH (provenance = '{}') AS"
        " SELECT MAX(x) AS x FROM slide(mean, rows => 2, every => 2)",
    }
    with whence.open() as db:
        db.execute("CREATE STREAM s (x INT) WITH (retain = '8 rows')")
        db.execute(";".join(view.format("none") for view in views.values()))
        for batch in range(20):
            db.insert("s", [(batch,), (batch,)])
        with pytest.raises(ExpiredError) as error:
            db.why("peak", tid=1)
        hint = re.search(r"CREATE OR REPLACE (.*) WITH \(provenance = '(\w+)'.*\), all in one script", str(error.value))
        assert hint is not None
        db.execute(";".join(views[name].format(hint[2]) for name in hint[1].split(", ")))
        db.insert("s", [(n,) for n in range(4)])
        assert db.why("peak", tid=db.query("SELECT MAX(tid) FROM numbered(peak)").rows[0][0]).holds
