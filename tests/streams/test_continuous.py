"""Views over provenance() of covering intervals: a replay as results come, equal to eager lineage after every epoch."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import whence
from tests import inside
from tests.streams.test_replay import COLD, WARM, declared, fill, often, sources  # noqa: F401  # `often` is a fixture
from whence.engine.core.operator import upwards
from whence.engine.streams.replay import covering_join
from whence.engine.streams.replay.provenance_join import ProvenanceJoin
from whence.model.errors import EvaluationError, ExpiredError

QUERIES = {**COLD, **WARM}
SOME = "tid % 9 IN (0, 1)"


def follow(db: whence.Database, names: Any = tuple(QUERIES)) -> None:
    """Make a view over the provenance of each, covering and eager: all of it, and that of few results."""
    for name in names:
        for source in sources(db, name):
            for view in (name, f"eager_{name}"):
                db.execute(f"CREATE VIEW all_{view}_{source} AS SELECT * FROM provenance({view}, {source}) AS p")
                db.execute(
                    f"CREATE VIEW few_{view}_{source} AS SELECT * FROM provenance({view}, {source}) AS p WHERE {SOME}"
                )


def assert_eager(db: whence.Database, names: Any = tuple(QUERIES)) -> None:
    for name in names:
        for source in sources(db, name):
            for kind in ("all", "few"):
                found = db[f"{kind}_{name}_{source}"].rows
                assert found == db[f"{kind}_eager_{name}_{source}"].rows, (kind, name, source)


def joins(db: whence.Database, view: str) -> Any:
    (found,) = (op for op in upwards([inside.operator(db, view)]) if isinstance(op, ProvenanceJoin))
    return found._join


def test_every_network_is_eager_after_every_epoch(often: None, resets: None) -> None:  # noqa: F811
    with whence.open() as db:
        declared(db)
        follow(db)
        for t in range(0, 50, 10):
            fill(db, t, t + 10)
            assert_eager(db)
        for name in QUERIES:
            for source in sources(db, name):
                assert db[f"all_{name}_{source}"].rows == db.provenance(name, source).rows


@pytest.fixture(params=[0, None], ids=["resets", "feeds gaps"])
def resets(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gaps of any size are not fed, or those of few rows are."""
    if request.param is not None:
        monkeypatch.setattr(covering_join, "RESET", request.param)


def test_rows_are_fed_once_and_gaps_are_not_fed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covering_join, "RESET", 0)
    with whence.open() as db:
        db.execute("""CREATE STREAM s (v INT);
            CREATE VIEW w WITH (provenance = 'covering') AS
              SELECT MAX(v) AS v FROM slide(s, rows => 10, every => 1);
            CREATE VIEW every AS SELECT * FROM provenance(w, s);
            CREATE VIEW rare AS SELECT * FROM provenance(w, s) WHERE tid % 100 = 0;
            CREATE VIEW pair AS SELECT * FROM provenance(w, s) WHERE tid % 100 < 5""")
        for start in range(0, 1000, 20):
            db.insert("s", [(v,) for v in range(start, start + 20)])
        assert joins(db, "every").rows == 1000
        assert joins(db, "rare").rows == 9 * 10
        assert joins(db, "pair").rows == 10 * 14 - 1  # windows that overlap are fed once; the first has no tid 0
        assert [v for v, *_ in db.query("SELECT s_v FROM rare WHERE tid = 300 ORDER BY s_v")] == list(range(299, 309))
        assert "by replay of 90 rows so far" in db.explain("rare")
        assert "replayed, of results with" not in db.explain("every")


def test_stretches_of_one_epoch_are_run_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covering_join, "RESET", 0)
    with whence.open() as db:
        db.execute("""CREATE STREAM s (v INT);
            CREATE VIEW w WITH (provenance = 'covering') AS SELECT SUM(v) AS v FROM slide(s, rows => 4, every => 2);
            CREATE VIEW e WITH (provenance = 'lineage') AS SELECT SUM(v) AS v FROM slide(s, rows => 4, every => 2);
            CREATE VIEW x AS SELECT * FROM provenance(w, s) WHERE tid % 20 < 2;
            CREATE VIEW y AS SELECT * FROM provenance(e, s) WHERE tid % 20 < 2""")
        for start, end in ((0, 7), (7, 500), (500, 503), (503, 1000)):
            db.insert("s", [(v * 7 % 13,) for v in range(start, end)])
            assert db["x"].rows == db["y"].rows
        assert joins(db, "x").rows < 350


def test_an_epoch_that_fails_changes_nothing(often: None) -> None:  # noqa: F811
    names = ("windows", "nested", "by_key", "sorted", "pairs")
    with whence.open() as db:
        declared(db)
        follow(db, names)
        db.execute("CREATE VIEW fails AS SELECT 10 // (v - 77) AS x FROM s")
        for t in range(0, 100, 10):
            with pytest.raises(EvaluationError):
                db.insert("s", [*((n, n % 3, n % 5) for n in range(30)), (0, 0, 77)])
            fill(db, t, t + 10)
            assert_eager(db, names)


def test_state_is_restored_from_images_and_the_log(often: None, tmp_path: Path) -> None:  # noqa: F811
    names = ("windows", "nested", "by_value", "endless", "by_key", "sorted", "pairs")
    with whence.open(tmp_path / "db") as db:
        declared(db, "100 rows")
        follow(db, names)
        fill(db, 0, 80)
        db.snapshot()
        fill(db, 80, 120)
    with whence.open(tmp_path / "db") as db:
        assert_eager(db, names)
        fed = joins(db, "all_by_key_s").rows
        fill(db, 120, 180)
        assert_eager(db, names)
        assert joins(db, "all_by_key_s").rows - fed <= 60  # the copy went on where it was


def test_a_view_made_later_begins_with_what_is_kept(often: None, caplog: pytest.LogCaptureFixture) -> None:  # noqa: F811
    names = ("windows", "by_key", "sorted")
    with whence.open() as db:
        declared(db, "60 rows")
        fill(db, 0, 300)
        follow(db, names)
        assert "begins in rows that s no longer keeps: the view begins after them" in caplog.text
        for name in names:
            first = db.query(f"SELECT MIN(tid) FROM all_{name}_s").rows[0][0]
            mine = db.query(f"SELECT * FROM all_{name}_s ORDER BY ALL").rows
            assert first > 1
            assert mine == db.query(f"SELECT * FROM all_eager_{name}_s WHERE tid >= {first} ORDER BY ALL").rows
            assert mine == sorted(db.query(f"SELECT * FROM provenance({name}, s) WHERE tid >= {first}").rows)


def test_inputs_that_left_while_the_copy_went_on_are_as_in_lineage() -> None:
    """A window larger than what the stream keeps: tids are found, and rows that are gone are NULL, as eagerly."""
    with whence.open() as db:
        db.execute("CREATE STREAM s (v INT) WITH (retain = '5 rows')")
        for name, mode in (("w", "covering"), ("e", "lineage")):
            db.execute(f"""CREATE VIEW {name} WITH (provenance = '{mode}') AS
                             SELECT SUM(v) AS v FROM slide(s, rows => 20, every => 1);
                           CREATE VIEW of_{name} AS SELECT * FROM provenance({name}, s)""")
        db.insert("s", [(v,) for v in range(25)])
        for v in range(25, 60):
            db.insert("s", (v,))
            assert db["of_w"].rows == db["of_e"].rows
        assert any(row[-1] is None for row in db["of_w"].rows)


def test_an_interval_whose_rows_are_gone_is_an_error() -> None:
    with whence.open() as db:
        db.execute("""CREATE STREAM s (v INT) WITH (retain = '5 rows');
                      CREATE VIEW w WITH (provenance = 'covering') AS
                        SELECT SUM(v) AS v FROM slide(s, rows => 20, every => 20);
                      CREATE VIEW x AS SELECT * FROM provenance(w, s)""")
        for v in range(19):
            db.insert("s", (v,))
        with pytest.raises(ExpiredError, match=r"provenance\(w, s\) cannot be kept: .*retain = '5 rows'.*'lineage'"):
            db.insert("s", (19,))
        assert db.query("SELECT MAX(tid) FROM numbered(s)").rows == [(19,)]
        db.execute("DROP VIEW x")
        db.insert("s", (19,))
        assert db["w"].rows == [(190,)]


def test_it_can_be_read_like_any_stream(often: None) -> None:  # noqa: F811
    with whence.open() as db:
        declared(db)
        db.execute("""CREATE VIEW x AS SELECT v, s_v FROM provenance(windows, s);
                      CREATE VIEW counts AS
                        SELECT v, COUNT(*) AS n, SUM(s_v) AS s FROM provenance(windows, s) GROUP BY v;
                      CREATE TABLE copied (v BIGINT, s_v INT)""")
        changes = db.changes("x")
        fill(db, 0, 60)
        db.execute("INSERT INTO copied SELECT v, s_v FROM provenance(windows, s) WHERE v > 10")
        expected = db.query("SELECT v, s_v FROM provenance(eager_windows, s)").rows
        assert [change.row for change in changes] == db["x"].rows == expected
        assert sorted(db["copied"].rows) == sorted(row for row in expected if row[0] > 10)
        assert sorted(db["counts"].rows) == sorted(
            db.query("SELECT v, COUNT(*), SUM(s_v) FROM provenance(eager_windows, s) GROUP BY v").rows
        )


def test_a_function_that_is_not_deterministic_is_told_and_undone() -> None:
    with whence.open() as db:
        called: list[int] = []
        db.create_function("odd", lambda v: bool(called.append(v) or len(called) % 2), args=["INT"], returns="BOOLEAN")
        db.execute("""CREATE STREAM s (v INT);
                      CREATE VIEW w WITH (provenance = 'covering') AS
                        SELECT SUM(v) AS v FROM slide((SELECT v FROM s WHERE odd(v)), rows => 3, every => 1);
                      CREATE VIEW x AS SELECT * FROM provenance(w, s)""")
        with pytest.raises(whence.ReplayError, match="replay of w did not give result 1 as it was published"):
            db.insert("s", [(v,) for v in range(1, 12)])
        assert db["s"].rows == db["w"].rows == db["x"].rows == []


def test_what_cannot_be_replayed_does_not_keep_a_database_from_opening(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def setup(db: whence.Database) -> None:
        db.create_function("late", late, args=["INT"], returns="BOOLEAN")

    late = lambda v: True  # noqa: E731  # as it was when the rows came
    with whence.open(tmp_path / "db", setup=setup) as db:
        db.execute("""CREATE STREAM s (v INT);
                      CREATE VIEW w WITH (provenance = 'covering') AS
                        SELECT SUM(v) AS v FROM slide((SELECT v FROM s WHERE late(v)), rows => 3, every => 1);
                      CREATE VIEW x AS SELECT * FROM provenance(w, s)""")
        db.insert("s", [(v,) for v in range(6)])
        assert len(db["x"]) == 12
        shutil.copytree(tmp_path / "db", tmp_path / "log")  # before an image of the end is written
    calls: list[int] = []
    late = lambda v: bool(calls.append(v) or len(calls) <= 6 or len(calls) % 2)  # noqa: E731  # and then not
    with whence.open(tmp_path / "log", setup=setup) as db:
        assert len(db["s"]) == 6
        assert "replay of w did not give result" in caplog.text


def test_partitions_agree() -> None:
    found = []
    for options in ({}, {"partitions": 3}):
        with whence.open(**options) as db:
            db.execute("CREATE STREAM s (t INT, k INT, v INT); CREATE STREAM o (t INT, k INT, v INT)")
            for name in ("windows", "by_key", "two"):
                db.execute(f"CREATE VIEW {name} WITH (provenance = 'covering') AS {QUERIES[name]}")
                db.execute(f"CREATE VIEW x_{name} AS SELECT * FROM provenance({name}, s) AS p")
                db.execute(f"CREATE VIEW few_{name} AS SELECT * FROM provenance({name}, s) AS p WHERE {SOME}")
            fill(db, 0, 60)
            fill(db, 60, 100)
            found.append({v: sorted(db[v].rows) for v in db.views})
            for name in ("windows", "by_key", "two"):
                assert sorted(db[f"x_{name}"].rows) == sorted(db.provenance(name, "s").rows)
    assert found[0] == found[1]


READER = """
import sys, whence
with whence.open(sys.argv[1], read_only=True) as db:
    changes, told = db.changes("x"), []
    print("ready", flush=True)
    for line in sys.stdin:
        kept = db["x"].rows
        told += [change.row for change in changes]
        assert told == kept, told
        assert kept == db.query("SELECT * FROM provenance(w, s) WHERE v > 20").rows, kept
        print(db.epoch, len(kept), sum(row[-1] for row in kept), flush=True)
"""


def test_a_reader_in_another_process_replays_as_results_come(tmp_path: Path) -> None:
    with whence.open(tmp_path / "db") as db:
        db.execute("""CREATE STREAM s (v INT);
                      CREATE VIEW w WITH (provenance = 'covering') AS
                        SELECT SUM(v) AS v FROM slide(s, rows => 3, every => 1);
                      CREATE VIEW x AS SELECT * FROM provenance(w, s) WHERE v > 20""")
        command = [sys.executable, "-c", READER, str(tmp_path / "db")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
            assert reader.stdin is not None
            assert reader.stdout is not None
            assert reader.stdout.readline() == "ready\n"
            for start in range(0, 20, 5):
                db.insert("s", [(v,) for v in range(start, start + 5)])
                print(file=reader.stdin, flush=True)
                rows = db["x"].rows
                assert reader.stdout.readline() == f"{db.epoch} {len(rows)} {sum(row[-1] for row in rows)}\n"
            reader.stdin.close()
            assert reader.wait(60) == 0
