"""Streams in partitions: whatever the network, and however arrivals are cut into epochs, the sequences are the same."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whence
from tests import inside
from tests.depth import seeds
from tests.partitioned.workers import Pool
from whence.engine.core.operator import Batch
from whence.model.errors import CatalogError, DataError, ExpiredError, StorageError
from whence.runtime import database

Arrival = tuple[str, tuple[Any, ...]]
STREAMS = """
    CREATE STREAM a (k INT, name TEXT, v INT, t INT) WITH (retain = 'all');
    CREATE STREAM b (k INT, w DOUBLE, t INT) WITH (retain = 'all');
"""
KEYED = {
    "recent": "SELECT k, COUNT(*) AS n, SUM(v) AS s, MAX(name) AS m FROM slide(a, rows => 3, every => 2, by => k) "
    "GROUP BY k",
    "timed": "SELECT k, name, MIN(v) AS low, window_end FROM slide(a, on => t, width => 20, every => 5, by => k) "
    "GROUP BY k, name, window_end",
    "pairs": "SELECT x.k, x.v, y.w FROM slide(a, rows => 4, by => k) AS x JOIN slide(b, rows => 3, by => k) AS y "
    "ON x.k = y.k",
    "near": "SELECT x.k, x.v, y.w FROM slide(a, on => t, width => 9, by => k) AS x "
    "JOIN slide(b, on => t, width => 9, by => k) AS y ON x.k = y.k",
}
WHOLE = {
    "all_of": "SELECT COUNT(*) AS n, AVG(v) AS m, LAST(name) AS l FROM slide(a, rows => 5, every => 3)",
    "since": "SELECT COUNT(*) AS n, SUM(v) AS s FROM slide(a, every => 7)",
    "ordered": "SELECT k, v, t FROM bsort(a, on => t, slack => 4)",
    "merged": "SELECT k, v AS x FROM a WHERE v > 3 UNION ALL SELECT k, t FROM b",
    "crossed": "SELECT x.k, x.v, y.w FROM slide(a, rows => 4) AS x JOIN slide(b, rows => 3) AS y ON x.k = y.k",
    "over": "SELECT k, COUNT(*) AS n FROM slide(merged, rows => 6, every => 4) GROUP BY k",
}
RELATIONS = {
    "counts": "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM a GROUP BY k",
    "newest": "SELECT k, v FROM latest(a, rows => 2, by => k)",
    "lately": "SELECT k, w FROM latest(b, on => t, width => 12)",
    "names": "SELECT DISTINCT name FROM a",
    "reach": "SELECT k AS x, v AS y FROM a UNION SELECT reach.x, a.v FROM reach JOIN a ON a.k = reach.y",
}
VIEWS = KEYED | WHOLE | RELATIONS
BOTH: tuple[dict[str, Any], ...] = ({"partitions": 3}, {})


def placed(*places: str) -> str:
    """The streams, partitioned as they say."""
    first, *rest = STREAMS.split("'all'")
    said = [f"'all', partition_by = '{place}'" if place else "'all'" for place in places]
    return first + "".join(option + text for option, text in zip(said, rest, strict=True))


def arrivals(seed: object, count: int) -> list[Arrival]:
    rng, now, found = random.Random(f"{seed}"), 0, list[Arrival]()
    for _ in range(count):
        now += rng.randint(0, 2)
        t = max(now - rng.randint(0, 3), 0) if rng.random() < 0.2 else now
        k = rng.choice((None, *range(5)))
        if rng.random() < 0.6:
            found.append(("a", (k, rng.choice(("x", "y", None)), rng.randrange(12), t)))
        else:
            found.append(("b", (k, rng.randrange(40) / 4, t)))
    return found


def feed(db: whence.Database, rows: Sequence[Arrival], rng: random.Random, largest: int = 9) -> None:
    """The rows in their order, in epochs of any size."""
    at = 0
    while at < len(rows):
        some = rows[at : at + rng.randint(1, largest)]
        at += len(some)
        insert(db, some)


def insert(db: whence.Database, rows: Sequence[Arrival]) -> None:
    with db.transaction():
        for stream, row in rows:
            db.insert(stream, [row])


def create(db: whence.Database, views: Iterable[str], options: str = "") -> None:
    for name in views:
        db.execute(f"CREATE VIEW {name}{options} AS {VIEWS[name]}")


def held(db: whence.Database, names: Iterable[str]) -> dict[str, list[Any]]:
    """Streams in their order, relations sorted."""
    return {name: sorted(db[name].rows, key=repr) if name in RELATIONS else db[name].rows for name in names}


def needed(names: Iterable[str]) -> list[str]:
    """The views with those they read, in the order they can be made."""
    wanted = {*names} | ({"merged"} if "over" in names else set())
    return [name for name in VIEWS if name in wanted]


@pytest.mark.parametrize("seed", seeds(8))
def test_any_network_is_as_in_one_place(seed: int) -> None:
    rng = random.Random(f"networks {seed}")
    views, rows = needed(rng.sample(list(VIEWS), rng.randint(3, 8))), arrivals(seed, 150)
    early, places = rng.randint(0, 40), [rng.choice(("", "k", "t", "row", "all")) for _ in "ab"]
    with whence.open(partitions=rng.choice((2, 3, 5))) as parts, whence.open() as plain:
        for db in (parts, plain):
            db.execute(placed(*places))
            feed(db, rows[:early], rng)
            create(db, views)
            feed(db, rows[early:], rng)
        names = ["a", "b", *views]
        assert held(parts, names) == held(plain, names)
        assert len(parts["a"]) == len(plain["a"])
        for name in views:
            assert parts.late(name).count == plain.late(name).count if name not in RELATIONS else True


def test_changes_come_in_order() -> None:
    rows = arrivals("changes", 60)
    told = []
    for options in BOTH:
        with whence.open(**options) as db:
            db.execute(STREAMS)
            create(db, ["recent", "merged"])
            feeds = [db.changes(name) for name in ("a", "recent", "merged")]
            feed(db, rows, random.Random(2))
            told.append([[(row, sign) for _, row, sign in changes] for changes in feeds])
    assert told[0] == told[1]


def test_a_keyed_network_moves_nothing() -> None:
    with whence.open(partitions=4) as db:
        db.execute(STREAMS)
        create(db, KEYED)
        db.execute(
            "CREATE VIEW nested AS SELECT k, AVG(s) AS m FROM slide(recent, rows => 4, every => 1, by => k) GROUP BY k"
        )
        feed(db, arrivals(3, 120), random.Random(3))
        assert db.metrics()["runs"]["rows_shipped"] == 0
        assert len(db["nested"])
        assert "stream a by k" in db.explain("pairs")
        assert "stream b by k" in db.explain("pairs")
        assert "1 superstep an epoch" in db.explain("nested")


def test_a_network_without_a_key_is_in_one_partition() -> None:
    with whence.open(partitions=4) as db:
        db.execute(STREAMS)
        create(db, ["all_of", "recent"])
        assert "stream a in the first partition" in db.explain("recent")
        feed(db, arrivals(4, 50), random.Random(4))
        assert db.metrics()["runs"]["rows_shipped"] == 0


def test_rows_that_are_elsewhere_are_shipped_in_order() -> None:
    rows = arrivals("shipped", 120)
    with whence.open(partitions=3) as parts, whence.open() as plain:
        for db in (parts, plain):
            db.execute(placed("", "k"))
            create(db, ["recent"])
            feed(db, rows[:60], random.Random(5))
            create(db, ["all_of", "since", "crossed"])  # the stream is where `recent` wants it
            feed(db, rows[60:], random.Random(6))
        assert "ship to the first partition" in parts.explain("all_of")
        names = ["recent", "all_of", "since", "crossed"]
        assert held(parts, names) == held(plain, names)


def test_a_failed_epoch_has_not_been() -> None:
    rows = arrivals("failed", 80)
    with whence.open(partitions=3) as parts, whence.open() as plain:
        for db in (parts, plain):
            db.execute(STREAMS)
            create(db, needed(["recent", "pairs", "over", "newest"]))
            db.execute("CREATE TABLE bad (x TEXT); CREATE VIEW fails AS SELECT CAST(x AS INT) AS n FROM bad")
            feed(db, rows[:40], random.Random(7))
            with pytest.raises(whence.EvaluationError):
                insert(db, [*rows[40:50], ("bad", ("no number",))])
            feed(db, rows[40:], random.Random(8))
        names = ["a", "recent", "pairs", "over", "newest"]
        assert held(parts, names) == held(plain, names)
        assert parts.query("SELECT * FROM numbered(a)").rows == plain.query("SELECT * FROM numbered(a)").rows


def test_a_relation_comes_to_the_stream() -> None:
    found = []
    for options in BOTH:
        with whence.open(**options) as db:
            db.execute(STREAMS + "CREATE TABLE place (k INT, city TEXT)")
            create(db, ["recent"])
            db.execute("""CREATE VIEW somewhere AS SELECT a.k, v, city FROM a JOIN place ON a.k = place.k;
                          CREATE VIEW nowhere AS SELECT a.k, v, city FROM a LEFT JOIN place ON a.k = place.k;
                          CREATE VIEW by_name AS SELECT a.k, city FROM a JOIN place ON a.name = place.city""")
            rng = random.Random(9)
            for stream, row in arrivals("lookup", 60):
                with db.transaction():
                    db.insert(stream, [row])
                    if rng.random() < 0.3:
                        db.insert("place", [(rng.randrange(5), rng.choice("xyz"))])
            names = ("somewhere", "nowhere", "by_name")
            # A row's matches come in any order.
            found.append({name: sorted(db[name].rows, key=repr) for name in names})
    assert found[0] == found[1]


# -- provenance --------------------------------------------------------------------------------------------------------


TRACED = """
    CREATE VIEW pair WITH (provenance = '{mode}') AS
      SELECT x.k, x.v, y.w FROM slide(a, rows => 4, by => k) AS x JOIN slide(b, rows => 3, by => k) AS y ON x.k = y.k;
    CREATE VIEW mean WITH (provenance = '{mode}', provenance_of = 'pair') AS
      SELECT k, AVG(w) AS m, COUNT(*) AS n FROM slide(pair, rows => 5, every => 2, by => k) GROUP BY k;
    CREATE VIEW deep WITH (provenance = '{mode}') AS
      SELECT k, MAX(w) AS m, COUNT(*) AS n FROM slide(pair, rows => 7, every => 3, by => k) GROUP BY k;
"""
ASKED = [
    "SELECT * FROM numbered(b)",
    "SELECT * FROM numbered(mean)",
    "SELECT * FROM provenance(pair, a)",
    "SELECT * FROM provenance(pair, b) WHERE k = 2 AND tid > 10",
    "SELECT * FROM provenance(mean, pair)",
    "SELECT * FROM provenance(deep, b) WHERE m > 6",
]


@pytest.mark.parametrize("mode", ["lineage", "covering"])
def test_the_inputs_behind_every_result_are_the_same(mode: str) -> None:
    rows = arrivals("traced", 160)
    answers = []
    for options in BOTH:
        with whence.open(**options) as db:
            db.execute(STREAMS)
            db.execute(TRACED.format(mode=mode))
            feed(db, rows, random.Random(len(options)))
            assert not options or "stream a by k" in db.explain("pair")
            asked = [sorted(db.query(sql).rows, key=repr) for sql in ASKED]
            assert all(asked)
            said = [str(db.trace("b", 20)).splitlines()[1:], str(db.why("pair", tid=9)).splitlines()[1:]]
            answers.append([*asked, *said])
    assert answers[0] == answers[1]


def test_a_traced_network_without_a_key_is_in_one_partition() -> None:
    found = []
    for options in BOTH:
        with whence.open(**options) as db:
            db.execute(STREAMS)
            create(db, ["recent"])
            assert not options or "stream a by k" in db.explain("recent")
            create(db, ["all_of"], " WITH (provenance = 'lineage')")  # no row has come yet: everything can still move
            assert not options or "stream a in the first partition" in db.explain("recent")
            db.execute("CREATE VIEW behind AS SELECT tid, n, a_tid, a_v FROM provenance(all_of, a)")
            feed(db, arrivals("late", 90), random.Random(10))
            found.append(
                [held(db, ["recent", "all_of", "behind"]), db.query("SELECT * FROM provenance(all_of, a)").rows]
            )
    assert found[0] == found[1]


def test_a_traced_network_that_comes_too_late_is_refused() -> None:
    with whence.open(partitions=3) as db:
        db.execute(STREAMS)
        create(db, ["recent"])
        feed(db, arrivals("refused", 40), random.Random(11))
        before = held(db, ["a", "recent"])
        with pytest.raises(CatalogError, match=r"stream a are by k.*create the view before the first rows come"):
            create(db, ["all_of"], " WITH (provenance = 'lineage')")
        assert held(db, ["a", "recent"]) == before
        assert db.views == ["recent"]


def test_what_is_no_longer_kept_is_said() -> None:
    with whence.open(partitions=3) as db:
        db.execute("CREATE STREAM s (k INT, v INT) WITH (retain = '60 rows')")
        db.execute("CREATE VIEW m WITH (provenance = 'lineage') AS "
                   "SELECT k, SUM(v) AS s FROM slide(s, rows => 4, every => 1, by => k) GROUP BY k")  # fmt: skip
        for start in range(0, 120, 10):
            db.insert("s", [(i % 7, i) for i in range(start, start + 10)])
        assert 20 <= len(db["s"]) <= 60
        assert len(db["m"]) == 120 - 3 * 7
        with pytest.raises(ExpiredError, match="s no longer keeps"):
            db.query("SELECT * FROM provenance(m, s)")
        newest = db.query("SELECT max(tid) FROM numbered(m)").rows[0][0]
        assert newest == 120 - 3 * 7
        some = db.query(f"SELECT s, sum(s_v), count(*) FROM provenance(m, s) WHERE tid = {newest} GROUP BY s").rows
        assert some == [(119 + 112 + 105 + 98, 119 + 112 + 105 + 98, 4)]


def test_streams_are_only_appended_to() -> None:
    with whence.open(partitions=2) as db:
        db.execute(STREAMS)
        with pytest.raises(DataError, match="stream"):
            db.delete("b", [(1, 1.0, 1)])


# -- what lasts --------------------------------------------------------------------------------------------------------

LASTING = needed(["recent", "timed", "pairs", "since", "over", "newest", "lately", "counts"])


def test_partitions_recover_exactly(tmp_path: Path) -> None:
    rows, rng = arrivals("lasting", 240), random.Random(12)
    with whence.open() as plain:
        path = tmp_path / "db"
        db = database.open(path, partitions=3)
        for each in (plain, db):
            each.execute(STREAMS)
            create(each, LASTING)
            each.execute(TRACED.format(mode="lineage"))
        for turn in range(4):
            part = rows[turn * 60 : turn * 60 + 60]
            feed(plain, part, rng)
            feed(db, part[:30], rng)
            if turn % 2:
                db.snapshot()
            feed(db, part[30:], rng)
            shutil.copytree(path, tmp_path / f"killed{turn}")  # as a process that died here leaves it
            db.close()
            path = tmp_path / f"killed{turn}"
            db = database.open(path, partitions=3)
            assert not turn or db.metrics()["recovery"]["restored"]
            assert held(db, [*LASTING, "pair", "mean"]) == held(plain, [*LASTING, "pair", "mean"])
            for sql in ASKED:
                assert sorted(db.query(sql).rows, key=repr) == sorted(plain.query(sql).rows, key=repr)
        db.close()


def test_any_runtime_goes_on_where_nothing_was_let_go(tmp_path: Path) -> None:
    rows, rng = arrivals("interchange", 200), random.Random(13)
    with whence.open() as plain:
        db = database.open(tmp_path / "db", partitions=3)
        for each in (plain, db):
            each.execute(STREAMS)
            create(each, LASTING)
        counts = (2, None, 4, 4, None)
        for number, count in enumerate(counts):
            part = rows[number * 40 : number * 40 + 40]
            feed(plain, part, rng)
            feed(db, part, rng)
            assert held(db, ["a", *LASTING]) == held(plain, ["a", *LASTING])
            db.close()
            db = database.open(tmp_path / "db", partitions=count)
            assert held(db, ["a", *LASTING]) == held(plain, ["a", *LASTING])
            numbered = "SELECT * FROM numbered(b)"
            assert db.query(numbered).rows == plain.query(numbered).rows
        db.close()


def test_other_partitions_are_refused_where_rows_were_let_go(tmp_path: Path) -> None:
    def load(db: whence.Database) -> None:
        db.execute("CREATE STREAM s (k INT, v INT) WITH (retain = '6 rows')")
        db.execute("CREATE VIEW m AS SELECT k, SUM(v) AS s FROM slide(s, rows => 9, every => 1, by => k) GROUP BY k")
        for i in range(40):
            db.insert("s", [(i % 2, i)])

    for before, after in ((2, 3), (None, 2), (2, None)):
        path = tmp_path / f"{before} {after}"
        with database.open(path, partitions=before) as db:
            load(db)
            db.snapshot()
        with pytest.raises(StorageError, match="no longer has the rows that m was made of"):
            database.open(path, partitions=after)
        with database.open(path, partitions=before) as db:
            assert len(db["m"]) == 40 - 2 * 8


def test_rows_in_files_arrive_in_order(tmp_path: Path) -> None:
    rows = [(i * 7 % 5, i) for i in range(300)]
    parts = database.open(tmp_path / "db", partitions=3)
    with whence.open() as plain:
        for db in (parts, plain):
            db.execute("CREATE STREAM s (k INT, v INT); CREATE TABLE t (k INT)")
            db.execute("CREATE VIEW m WITH (provenance = 'lineage') AS "
                       "SELECT k, SUM(v) AS s FROM slide(s, rows => 9, every => 4, by => k) GROUP BY k")  # fmt: skip
        for start in range(0, 300, 100):
            plain.insert("s", rows[start : start + 100])
            codes = np.array(rows[start : start + 100], np.int64)
            ones = np.ones(50, np.int64)
            raw = [Batch(codes[:50], ones), Batch(codes[50:], ones)]
            runtime: Any = inside.coordinator(parts)
            runtime.driver.take_in_files({"s": raw, "t": [Batch(codes[:50, :1], ones)]}, {"source": start}, "ignore")
        asked = "SELECT * FROM provenance(m, s)"
        assert held(parts, ["s", "m"]) == held(plain, ["s", "m"])
        shutil.copytree(tmp_path / "db", tmp_path / "killed")
        for count in (3, 2, None):
            with database.open(tmp_path / "killed", partitions=count) as db:
                assert held(db, ["s", "m"]) == held(plain, ["s", "m"])
                assert sorted(db.query(asked).rows) == sorted(plain.query(asked).rows)
        parts.close()


# -- promises ----------------------------------------------------------------------------------------------------------

PROMISED = {
    "keyed": "SELECT k, window_end AS e, COUNT(*) AS n, SUM(v) AS s "
    "FROM slide(a, on => t, width => 8, every => 4, by => k) GROUP BY k, window_end",
    "per_key": "SELECT k, window_end, MAX(n) AS m FROM slide(keyed, on => e, width => 8, every => 8, by => k) "
    "GROUP BY k, window_end",
    "unkeyed": "SELECT window_end, COUNT(*) AS n, LAST(name) AS l FROM slide(a, on => t, width => 8, every => 8) "
    "GROUP BY window_end",
    "sorted": "SELECT t, v FROM bsort(a, on => t, slack => 6)",
    "sorted_windows": "SELECT window_end, SUM(v) AS s FROM slide(sorted, on => t, width => 5, every => 5) "
    "GROUP BY window_end",
    "total": "SELECT k, COUNT(*) AS c, SUM(n) AS n FROM keyed GROUP BY k",
}
ORDERED = ("unkeyed", "sorted", "sorted_windows")  # the others have windows of several keys, which close in any order


def promised_of(db: whence.Database, views: Iterable[str]) -> dict[str, Any]:
    """What views hold, sorted where one promise closes windows of several keys; and how many rows were late."""
    found = {name: db[name].rows if name in ORDERED else sorted(db[name].rows, key=repr) for name in views}
    return {"late": {name: db.late(name).count for name in views if name != "total"}, **found}


def promise_a_lot(db: whence.Database, rows: Sequence[Arrival], views: Iterable[str]) -> list[Any]:
    """Insert rows with promises between them; what views hold after each."""
    found = []
    for number, start in enumerate(range(0, len(rows), 20)):
        insert(db, rows[start : start + 20])
        if number % 3 == 2:
            db.flush("a" if number % 2 else None)
        else:
            db.advance("a", rows[min(start + 24, len(rows) - 1)][1][-1], on="t")
        found.append(promised_of(db, views))
    return found


@pytest.mark.parametrize(("place", "views"), [("", PROMISED), ("k", PROMISED), ("", ("keyed", "per_key", "total"))])
def test_promises_close_the_same_windows_in_partitions(place: str, views: Iterable[str]) -> None:
    found, rows = [], arrivals(f"promises {place}", 160)
    for count in (None, 1, 2, 3):
        with database.open(partitions=count) if count else whence.open() as db:
            db.execute(placed(place, ""))
            for name in views:
                db.execute(f"CREATE VIEW {name} AS {PROMISED[name]}")
            if place and count in (2, 3):
                assert "ship to the first partition" in db.explain("unkeyed")
            found.append(promise_a_lot(db, rows, views))
    assert found[1] == found[0]
    assert found[2] == found[0]
    assert found[3] == found[0]
    assert all(found[0][-1].values())


def test_a_promise_before_the_first_row_counts_in_every_partition() -> None:
    with whence.open(partitions=3) as db:
        db.execute(STREAMS + f"CREATE VIEW keyed AS {PROMISED['keyed']}")
        db.advance("a", 8, on="t")
        db.execute("CREATE VIEW all_of WITH (retain = 'all') AS " + VIEWS["all_of"])  # the stream stays where it is
        db.insert("a", [(k, "x", 1, 1) for k in range(6)])
        assert db.late("keyed").count == 6


def test_a_failed_promise_has_not_been(monkeypatch: pytest.MonkeyPatch) -> None:
    with whence.open(partitions=3) as parts, whence.open() as plain:
        for db in (parts, plain):
            db.execute(STREAMS)
            for name in PROMISED:
                db.execute(f"CREATE VIEW {name} AS {PROMISED[name]}")
            insert(db, arrivals("undone", 60))
        before, runtime = promised_of(parts, PROMISED), inside.coordinator(parts)
        with monkeypatch.context() as patch:
            patch.setattr(runtime.storage, "write_epoch", lambda epoch: (_ for _ in ()).throw(StorageError("full")))
            with pytest.raises(StorageError, match="full"):
                parts.flush()
        assert promised_of(parts, PROMISED) == before
        for db in (parts, plain):
            insert(db, arrivals("undone, then", 30))
            db.advance("a", 60, on="t")
        assert promised_of(parts, PROMISED) == promised_of(plain, PROMISED)


def test_partitions_elsewhere_hear_of_promises(tmp_path: Path) -> None:
    found, rows, pool, views = [], arrivals("elsewhere", 60), Pool("promises"), ("keyed", "unkeyed")
    far = database.open(tmp_path / "db", spark=pool, partitions=2, on_spark={"host": "127.0.0.1", "inline_rows": 60})
    inside.run_as(far, "job")
    for db in (far, whence.open()):
        with db:
            db.execute(placed("k", ""))
            for name in views:
                db.execute(f"CREATE VIEW {name} AS {PROMISED[name]}")
            found.append(promise_a_lot(db, rows, views))
    assert found[0] == found[1]


def test_promises_in_the_log_are_done_again_by_any_runtime(tmp_path: Path) -> None:
    rows = arrivals("promises that last", 120)
    for before in (None, 3):
        path = tmp_path / f"{before}"
        db = database.open(path, partitions=before)
        db.execute(STREAMS)
        for name in PROMISED:
            db.execute(f"CREATE VIEW {name} AS {PROMISED[name]}")
        held_then = promise_a_lot(db, rows, PROMISED)[-1]
        shutil.copytree(path, tmp_path / f"killed {before}")  # as a process that died here leaves it
        db.close()
        goes_on = []
        for after in (None, 1, 2, 3):
            shutil.copytree(tmp_path / f"killed {before}", tmp_path / f"{before} {after}")
            with database.open(tmp_path / f"{before} {after}", partitions=after) as db:
                assert promised_of(db, PROMISED) == held_then
                insert(db, [("a", (k, "x", 1, t)) for t in (5, 400) for k in range(4)])
                goes_on.append(promised_of(db, PROMISED))
        assert all(one == goes_on[0] for one in goes_on)
        with database.open(path, partitions=before) as db:  # from the image
            assert promised_of(db, PROMISED) == held_then
        with pytest.raises(StorageError, match=r"moved by db.advance, db.flush or silence.* as many as it had"):
            database.open(path, partitions=2)


def test_flush_is_refused_where_results_of_several_keys_are_taken_in_order() -> None:
    with whence.open(partitions=3) as db:
        db.execute("""
            CREATE STREAM s (t INT, k INT, x INT);
            CREATE VIEW sums AS
              SELECT k, SUM(x) AS x FROM slide(s, on => t, width => 10, every => 10, by => k) GROUP BY k;
        """)
        db.insert("s", [(1, k, k) for k in range(6)])
        db.execute("CREATE VIEW pairs AS SELECT FIRST(k) AS k, SUM(x) AS x FROM slide(sums, rows => 2, every => 2)")
        assert "ship to the first partition" in db.explain("pairs")
        before = db.epoch
        with pytest.raises(whence.WhenceError, match="a view takes their results in order"):
            db.flush("s")
        assert (db.epoch, db["sums"].rows) == (before, [])
        db.insert("s", [(11, 0, 7)])  # the stream goes on
        assert db["sums"].rows == [(0, 0)]
