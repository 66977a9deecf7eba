"""Replay: which rows it runs over, from which state, and that it lasts."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whence
from tests import inside
from whence.engine.streams.replay import checkpoints
from whence.engine.streams.replay.checkpoints import starts_cold
from whence.engine.streams.replay.ragged import Ragged
from whence.explain.retrieve.replay import ReplayCost, replay
from whence.model.errors import ExpiredError
from whence.runtime.questions.tracing import site_of

COLD = {
    "chosen": "SELECT t, v FROM s WHERE v % 3 > 0",
    "windows": "SELECT MIN(t) AS t, SUM(v) AS v FROM slide((SELECT t, v FROM s WHERE v % 3 > 0), rows => 4, "
               "every => 2)",
    "gaps": "SELECT MIN(t) AS t, SUM(v) AS v FROM slide(s, rows => 2, every => 5)",
    "nested": "SELECT MIN(t) AS t, MAX(v) AS v FROM slide((SELECT MIN(t) AS t, SUM(v) AS v FROM "
              "slide(s, rows => 3, every => 1)), rows => 4, every => 3)",
    "tumbling": "SELECT k, SUM(v) AS v FROM slide(s, on => t, width => 5, every => 5, lateness => 2) GROUP BY k",
    "endless": "SELECT COUNT(*) AS c FROM slide(s, every => 10)",
}  # fmt: skip
WARM = {
    "tumbling_below": "SELECT MIN(t) AS t, MAX(v) AS v FROM slide((SELECT MIN(t) AS t, SUM(v) AS v FROM "
                      "slide(s, on => t, width => 3, every => 3)), rows => 2, every => 1)",
    "by_value": "SELECT k, SUM(v) AS v FROM slide(s, on => t, width => 7, every => 2) GROUP BY k",
    "from_first": "SELECT k, SUM(v) AS v FROM slide(s, on => t, width => 5, every => 5, origin => 'first') GROUP BY k",
    "by_key": "SELECT k, SUM(v) AS v FROM slide(s, rows => 3, every => 1, by => k) GROUP BY k",
    "grouped": "SELECT k, SUM(v) AS v FROM slide(s, rows => 6, every => 4) GROUP BY k",
    "sorted": "SELECT t, v FROM bsort(s, on => t, slack => 3)",
    "two": "SELECT t, v FROM s UNION ALL SELECT t, v FROM o",
    "pairs": "SELECT a.v, b.v AS w FROM slide(s, rows => 3) AS a JOIN slide(o, rows => 2) AS b ON a.k = b.k",
    "sliding_below": "SELECT SUM(v) AS v FROM slide((SELECT MIN(t) AS t, SUM(v) AS v FROM "
                     "slide(s, on => t, width => 4, every => 2)), rows => 2, every => 2)",
}  # fmt: skip


def declared(db: whence.Database, retain: str = "all") -> None:
    for stream in "so":
        db.execute(f"CREATE STREAM {stream} (t INT, k INT, v INT) WITH (retain = '{retain}')")
    for name, query in {**COLD, **WARM}.items():
        db.execute(f"CREATE VIEW {name} WITH (provenance = 'covering') AS {query}")
        db.execute(f"CREATE VIEW eager_{name} WITH (provenance = 'lineage') AS {query}")


def fill(db: whence.Database, first: int, last: int) -> None:
    for t in range(first, last, 10):
        rows = [(n + n * 5 % 4, n % 3, n * 7 % 11) for n in range(t, t + 10)]
        with db.transaction():
            for n, row in enumerate(rows):
                db.insert("o" if n % 4 == 3 else "s", row)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "LEAST", 20)
    monkeypatch.setattr(checkpoints, "TIMES", 0)


@pytest.fixture
def db(often: None) -> Any:
    with whence.open() as db:
        declared(db)
        fill(db, 0, 200)
        yield db


def of(db: whence.Database, view: str, tids: list[int]) -> tuple[dict[str, Ragged], ReplayCost]:
    return replay(site_of(inside.coordinator(db).catalog), view, np.array(tids, np.int64))


def sources(db: whence.Database, view: str) -> tuple[str, ...]:
    traces = site_of(inside.coordinator(db).catalog).traces(view)
    assert traces is not None
    return traces.sources


def eager(db: whence.Database, view: str, source: str) -> list[tuple[Any, ...]]:
    return db.provenance(f"eager_{view}", source).rows


def test_what_can_start_cold(db: whence.Database) -> None:
    views = inside.dataflow(db).views
    for name in COLD:
        assert starts_cold(views[name].inputs[0]), name
        assert views[name].checkpoints is None  # type: ignore[attr-defined]
    for name in WARM:
        assert not starts_cold(views[name].inputs[0]), name
        assert views[name].checkpoints.kept  # type: ignore[attr-defined]


@pytest.mark.parametrize("view", [*COLD, *WARM])
def test_replay_equals_eager(db: whence.Database, view: str) -> None:
    for source in sources(db, view):
        expected = eager(db, view, source)
        assert expected
        assert db.provenance(view, source).rows == expected
        for asked in ("tid % 7 = 0", "tid > 20 AND tid < 24", "tid = 3 OR tid = 30"):
            sql = f"SELECT * FROM provenance({view}, {source}) AS p WHERE {asked}"
            assert db.query(sql).rows == db.query(sql.replace(f"({view}", f"(eager_{view}")).rows


def test_what_overlaps_is_run_once_and_gaps_are_not_run(db: whence.Database) -> None:
    # 8 rows of 3 windows that begin one after the other; then one far away.
    _, figures = of(db, "nested", [1])
    assert figures == ReplayCost(1, 6)
    _, figures = of(db, "nested", [1, 2])
    assert figures == ReplayCost(1, 9)
    found, figures = of(db, "nested", [1, 2, 40])
    assert figures == ReplayCost(2, 15)
    assert [found["s"].of(n).tolist() for n in range(3)] == [[*range(1, 7)], [*range(4, 10)], [*range(118, 124)]]
    _, figures = of(db, "nested", list(range(1, 41)))
    assert figures == ReplayCost(1, 123)


def test_a_replay_starts_at_the_last_checkpoint_before(db: whence.Database) -> None:
    found, figures = of(db, "by_key", [100])
    assert figures.stretches == 1
    assert figures.rows <= 40
    tids = found["s"].of(0).tolist()
    assert len(tids) == 3
    _, figures = of(db, "by_key", [10, 100])
    assert figures.stretches == 2
    assert figures.rows <= 80
    _, figures = of(db, "by_key", [*range(10, 100)])
    assert figures.stretches == 1


def test_checkpoints_are_few_and_follow_what_is_kept(often: None) -> None:
    with whence.open() as db:
        declared(db, "60 rows")
        fill(db, 0, 100)
        declared_late = "SELECT t, v FROM bsort(s, on => t, slack => 3)"
        db.execute(f"CREATE VIEW late WITH (provenance = 'covering') AS {declared_late}")
        db.execute(f"CREATE VIEW eager_late WITH (provenance = 'lineage') AS {declared_late}")
        fill(db, 100, 400)
        for view in ("sorted", "late", "pairs"):
            points = inside.operator(db, view).checkpoints  # type: ignore[attr-defined]
            assert 1 <= len(points.kept) <= 5
            points._thin()  # as when the next one is taken
            assert all((c.nexts >= [k.first for k in points._inputs()]).all() for c in points.kept)
        kept = db.query("SELECT MIN(tid), MAX(tid) FROM numbered(s)").rows[0]
        newest = db.query(f"SELECT tid FROM provenance(eager_late, s) AS p WHERE tid > {kept[1] - 40}").rows
        for (tid,) in newest[:: len(newest) // 4]:
            assert db.why("late", tid=tid).tids == db.why("eager_late", tid=tid).tids
        with pytest.raises(ExpiredError, match="s no longer keeps tid"):
            db.why("late", tid=1)
        with pytest.raises(ExpiredError, match="no longer keeps tid 2, where the inputs of a result of windows begin"):
            db.why("windows", tid=1)


def test_most_of_them_go_when_there_are_too_many(often: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "MOST", 4)
    with whence.open() as db:
        declared(db)
        fill(db, 0, 600)
        points = inside.operator(db, "by_key").checkpoints  # type: ignore[attr-defined]
        assert len(points.kept) <= 4
        assert points.kept[0].result == 1  # the beginning stays, as long as everything is kept
        assert db.provenance("by_key", "s").rows == eager(db, "by_key", "s")


def test_checkpoints_last(often: None, tmp_path: Path) -> None:
    with whence.open(tmp_path / "db") as db:
        declared(db, "100 rows")
        fill(db, 0, 300)
        db.snapshot()
        fill(db, 300, 350)
        expected = {v: [c.nexts.tolist() for c in _points(db, v).kept] for v in WARM}
    with whence.open(tmp_path / "db") as db:
        assert {v: [c.nexts.tolist() for c in _points(db, v).kept] for v in WARM} == expected
        fill(db, 350, 400)
        for view in WARM:
            last = len(db[f"eager_{view}"]) and db.query(f"SELECT MAX(tid) FROM numbered({view})").rows[0][0]
            for tid in (last - 3, last):
                assert db.why(view, tid=tid).tids == db.why(f"eager_{view}", tid=tid).tids


def _points(db: whence.Database, view: str) -> checkpoints.Checkpoints:
    found = inside.operator(db, view).checkpoints  # type: ignore[attr-defined]
    assert found is not None
    return found


def test_what_was_undone_leaves_no_checkpoint(db: whence.Database) -> None:
    before = [c.nexts.tolist() for c in _points(db, "sorted").kept]
    db.what_if(insert={"s": [(n, 0, 0) for n in range(300, 400)]})
    assert [c.nexts.tolist() for c in _points(db, "sorted").kept] == before


def test_a_view_that_keeps_nothing(often: None, caplog: pytest.LogCaptureFixture) -> None:
    with whence.open() as db:
        declared(db, "150 rows")
        db.execute(f"CREATE VIEW bare AS {WARM['pairs']}")
        fill(db, 0, 100)
        caplog.set_level(logging.DEBUG, "whence")
        assert db.why("bare", tid=5).tids == db.why("eager_pairs", tid=5).tids
        assert "in 1 stretches for 1 results of bare" in caplog.text
        fill(db, 100, 400)
        with pytest.raises(ExpiredError, match=r"bare keeps no provenance, and [so] no longer all its rows"):
            db.why("bare", tid=5)


def test_table_functions_are_replayed(often: None) -> None:
    with whence.open() as db:
        db.create_table_function("upto", lambda n: [(i,) for i in range(n % 4)], args=["INT"], returns="(n INT)")
        db.execute("CREATE STREAM s (t INT, k INT, v INT) WITH (retain = 'all'); CREATE STREAM o (t INT, k INT, v INT)")
        parts = "SELECT s.t, u.n FROM s, upto(s.v) AS u"
        for name, query in {
            "parts": parts,
            "windows": f"SELECT SUM(n) AS n FROM slide(({parts}), rows => 2, every => 2)",
            "spans": f"SELECT SUM(n) AS n FROM slide(({parts}), on => t, width => 5, every => 3)",
        }.items():
            db.execute(f"CREATE VIEW {name} WITH (provenance = 'covering') AS {query}")
            db.execute(f"CREATE VIEW eager_{name} WITH (provenance = 'lineage') AS {query}")
        fill(db, 0, 100)
        for name in ("parts", "windows", "spans"):
            assert db.provenance(name, "s").rows == eager(db, name, "s")
            for tid in (2, 9, 13):
                assert db.why(name, tid=tid).tids == db.why(f"eager_{name}", tid=tid).tids
