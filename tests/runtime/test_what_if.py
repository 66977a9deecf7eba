"""What if: the changes that writes would bring, told without making them."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as gen

import whence
from tests import inside
from tests.depth import examples
from tests.oracle import Row, Twin, on_partitions
from whence.runtime.database import Database

PROGRAM = """
CREATE TABLE link (src TEXT, dst TEXT, cost INT);
CREATE TABLE node (name TEXT PRIMARY KEY, kind TEXT);
CREATE VIEW reachable AS
  SELECT src, dst FROM link UNION SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;
CREATE VIEW cheapest AS
  SELECT src, dst, MIN(cost) AS cost FROM (
    SELECT src, dst, cost FROM link
    UNION ALL
    SELECT link.src, cheapest.dst, link.cost + cheapest.cost AS cost
    FROM link JOIN cheapest ON link.dst = cheapest.src) AS step
  GROUP BY src, dst;
CREATE VIEW lonely AS SELECT name FROM node WHERE NOT EXISTS (SELECT 1 FROM reachable WHERE reachable.dst = node.name);
CREATE VIEW busy AS
  SELECT link.src, UPPER(node.kind) AS kind, COUNT(*) AS n, SUM(link.cost) AS total
  FROM link LEFT JOIN node ON node.name = link.src GROUP BY link.src, UPPER(node.kind);
CREATE VIEW dearest AS SELECT src, dst, cost FROM link ORDER BY cost DESC, src, dst LIMIT 2;
"""

REACHABLE = """CREATE VIEW reachable AS
  SELECT src, dst FROM link UNION SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src"""
COUNTED = "CREATE VIEW n AS SELECT COUNT(*) AS n FROM reachable"

NAMES = gen.sampled_from("ABCDE")
LINKS = gen.tuples(NAMES, NAMES, gen.integers(1, 4))
NODES = gen.tuples(NAMES, gen.sampled_from(["hub", "leaf", None]))
WRITES = gen.fixed_dictionaries(
    {
        "link": gen.tuples(gen.lists(LINKS, max_size=4), gen.lists(LINKS, max_size=4)),
        "node": gen.tuples(gen.lists(NODES, max_size=2), gen.lists(NODES, max_size=2)),
    }
)


def contents(db: Database) -> dict[str, Counter[Row]]:
    return {name: Counter(db[name].rows) for name in [*db.tables, *db.views]}


def supposed(db: Database, writes: Any) -> whence.WhatIf:
    gone = {table: rows for table, (rows, _) in writes.items()}
    new = {table: rows for table, (_, rows) in writes.items()}
    return db.what_if(insert=new, delete=gone)


def moved(what: whence.WhatIf) -> dict[str, Counter[tuple[Row, int]]]:
    """Every change, signed."""
    found = {**what.tables, **what}
    signed = {n: [(r, -1) for r in c.deleted] + [(r, 1) for r in c.inserted] for n, c in found.items() if c}
    return {name: Counter(rows) for name, rows in signed.items()}


def batch(writes: Any) -> list[tuple[str, Row, int]]:
    gone = [(table, row, -1) for table, (rows, _) in writes.items() for row in rows]
    return gone + [(table, row, 1) for table, (_, rows) in writes.items() for row in rows]


@pytest.mark.parametrize("partitions", [None, 3])
@pytest.mark.parametrize("policy", ["support", "dred"])
def test_it_tells_what_then_happens_and_leaves_no_trace(policy: str, partitions: int | None) -> None:
    with on_partitions(partitions):
        twin = Twin(PROGRAM, policy)

    @settings(max_examples=examples(25 if partitions is None else 12))
    @given(gen.lists(gen.tuples(WRITES, gen.booleans()), max_size=6))
    def run(steps: list[tuple[Any, bool]]) -> None:
        for writes, really in steps:
            db, before, words, epoch = twin.db, contents(twin.db), len(inside.dictionary(twin.db)), twin.db.epoch
            what = supposed(db, writes)
            assert (contents(db), len(inside.dictionary(db)), db.epoch) == (before, words, epoch)
            if not really:
                continue
            feeds = {name: db.changes(name) for name in [*db.tables, *db.views]}
            missing = Counter(row for table, row, sign in batch(writes) if sign < 0 and row not in before[table])
            twin.apply([u for u in batch(writes) if u[2] > 0 or u[1] not in missing])
            told = {n: Counter((c.row, c.sign) for c in feed) for n, feed in feeds.items()}
            assert moved(what) == {name: changes for name, changes in told.items() if changes}

    try:
        run()
    finally:
        twin.close()


@pytest.mark.parametrize(
    "option", ["maintain = 'absorption'", "maintain = 'absorption', propagate = 'eager'", "maintain = 'relative'"]
)
def test_views_that_maintain_provenance_are_supposed_as_others_are(option: str) -> None:
    rng = random.Random(3)

    def some(most: int) -> list[Row]:
        return [(rng.choice("ABCDEF"), rng.choice("ABCDEF")) for _ in range(rng.randint(0, most))]

    with small() as plain, small() as kept:
        kept.execute("DROP VIEW reachable CASCADE")
        kept.execute(REACHABLE.replace("reachable AS", f"reachable WITH ({option}) AS") + ";" + COUNTED)
        for step in range(80):
            new, gone = some(3), some(3)
            what = [db.what_if(insert={"link": new}, delete={"link": gone}).to_dict() for db in (plain, kept)]
            assert what[0] == what[1] | {"epoch": plain.epoch}
            assert contents(plain) == contents(kept)
            for db in (plain, kept) if step % 2 else ():
                with db.transaction():
                    db.delete("link", gone)
                    db.insert("link", new)
                if step % 11 == 0:
                    db.execute("DELETE FROM link WHERE src < 'D'")


def small(**options: Any) -> Database:
    db = whence.open(**options)
    db.execute(f"CREATE TABLE link (src TEXT, dst TEXT); {REACHABLE}; {COUNTED}")
    db.insert("link", [("A", "B"), ("B", "C")])
    return db


def test_the_answer_in_every_form() -> None:
    with small() as db:
        what = db.what_if(insert={"LINK": [("C", "D")]}, delete={"link": ("A", "B")})
        assert list(what) == ["reachable", "n"]
        assert what
        assert what["reachable"].inserted == [("B", "D"), ("C", "D")]
        assert what["reachable"].deleted == [("A", "B"), ("A", "C")]
        assert not what["n"]
        assert what.to_dict() == {
            "epoch": 1,
            "tables": {
                "link": {"deleted": [{"src": "A", "dst": "B"}], "inserted": [{"src": "C", "dst": "D"}]},
            },
            "views": {
                "reachable": {
                    "deleted": [{"src": "A", "dst": "B"}, {"src": "A", "dst": "C"}],
                    "inserted": [{"src": "B", "dst": "D"}, {"src": "C", "dst": "D"}],
                }
            },
        }
        assert what.to_arrow()["link"].to_pylist() == [
            {"src": "A", "dst": "B", "whence_op": "-"},
            {"src": "C", "dst": "D", "whence_op": "+"},
        ]
        assert str(what).splitlines() == [
            "link  1 gone, 1 new",
            "  - A  B",
            "  + C  D",
            "reachable  2 gone, 2 new",
            "  - A  B",
            "  - A  C",
            "  + B  D",
            "  + C  D",
        ]
        assert list(db.what_if(delete={"link": [("A", "B")]}, views=["n"])) == ["n"]
        nothing = db.what_if(delete={"link": [("X", "Y")]})
        assert not nothing
        assert str(nothing) == "nothing would change"


def test_writes_of_every_kind_make_one_epoch() -> None:
    with whence.open() as db:
        db.execute(
            "CREATE TABLE a (id INT PRIMARY KEY, x TEXT); CREATE VIEW b AS SELECT x, COUNT(*) AS n FROM a GROUP BY x"
        )
        db.insert("a", [(1, "p"), (2, "p"), (3, "q")])
        by_key = db.what_if(insert={"a": [(1, "q"), (1, "r")]})
        assert (by_key.tables["a"].deleted, by_key.tables["a"].inserted) == ([(1, "p")], [(1, "r")])
        changed = db.what_if(update={"a": [({"x": "z"}, {"id": 1}), ({"x": "y"}, "id = 2")]})
        assert changed["b"].inserted == [("y", 1), ("z", 1)]
        script = db.what_if(
            "DELETE FROM a WHERE x = 'p'; INSERT INTO a SELECT id + 10, x FROM a", insert={"a": (3, "s")}
        )
        assert script.tables["a"].inserted == [(3, "s"), (13, "q")]
        assert script["b"].deleted == [("p", 2)]
        with pytest.raises(whence.WhenceError, match="not CreateTable"):
            db.what_if("CREATE TABLE c (x INT)")
        assert db.epoch == 1


def test_errors_are_those_of_the_writes_and_change_nothing() -> None:
    with small(recursion_limit=50) as db:
        db.execute("CREATE TABLE up (n INT); CREATE VIEW count AS SELECT n FROM up UNION SELECT n + 1 FROM count")
        before = contents(db)
        wrongs: list[Callable[[], object]] = [
            lambda: db.what_if(delete={"link": [("X", "Y")]}, strict=True),
            lambda: db.what_if(insert={"link": [("X",)]}),
            lambda: db.what_if(insert={"nowhere": [("X",)]}),
            lambda: db.what_if(insert={"reachable": [("X", "Y")]}),
            lambda: db.what_if(insert={"link": [("X", "Y")], "up": [(1,)]}),
            lambda: db.what_if(insert=[("X", "Y")]),  # type: ignore[arg-type]
            lambda: db.what_if(update={"link": "X"}),
            lambda: db.what_if(views=["nowhere"]),
            lambda: db.what_if(views=["link"]),
        ]
        for wrong in wrongs:
            with pytest.raises(whence.WhenceError):
                wrong()
            assert contents(db) == before
            assert inside.dictionary(db).find("X") is None
        with pytest.raises(whence.WhenceError, match="inside a transaction"), db.transaction():
            db.what_if(insert={"link": [("X", "Y")]})
        db.insert("link", [("C", "D")])
        assert db["n"].rows == [(6,)]
    with pytest.raises(whence.WhenceError, match="closed"):
        db.what_if()


def test_an_epoch_that_cannot_go_back_the_way_it_came() -> None:
    """Without what goes and before what comes, the cheapest way to 1 costs so much that to 2 it is out of range."""
    with whence.open() as db:
        db.execute(
            """CREATE TABLE link (src INT, dst INT, cost BIGINT);
               CREATE VIEW best AS SELECT dst, MIN(cost) AS cost FROM (
                 SELECT dst, cost FROM link WHERE src = 0
                 UNION ALL SELECT link.dst, best.cost + link.cost AS cost FROM best JOIN link ON link.src = best.dst
               ) AS step GROUP BY dst"""
        )
        db.insert("link", [(0, 1, 5), (1, 2, 10**18)])
        db.insert("link", [(0, 3, 9 * 10**18), (3, 1, 0)])
        before = contents(db)
        what = db.what_if(delete={"link": [(0, 1, 5)]}, insert={"link": [(0, 1, 4)]})
        assert what["best"].inserted == [(1, 4), (2, 10**18 + 4)]
        assert contents(db) == before
        with pytest.raises(whence.EvaluationError, match="out of its range"):
            db.what_if(delete={"link": [(0, 1, 5)]})
        assert contents(db) == before
        db.insert("link", [(0, 1, 3)])
        assert sorted(db["best"]) == [(1, 3), (2, 10**18 + 3), (3, 9 * 10**18)]


def test_feeds_and_arrow_do_not_hear_of_it() -> None:
    with small() as db:
        feed, table = db.changes("reachable"), db["reachable"].to_arrow()
        db.what_if(delete={"link": [("A", "B")]})
        assert list(feed) == []
        assert db["reachable"].to_arrow() is table
        assert db.query("SELECT COUNT(*) FROM reachable").rows == [(3,)]


def test_words_that_were_only_supposed_are_not_known_afterwards() -> None:
    """Also where long columns of texts, most of them known, are looked up by their bytes."""
    with whence.open() as db:
        db.execute("CREATE TABLE a (x TEXT, n INT); CREATE VIEW b AS SELECT x, COUNT(*) AS n FROM a GROUP BY x")

        def many(word: str) -> pa.Table:
            return pa.table({"x": [f"{'old' if i % 7 else word}{i}" for i in range(3000)], "n": range(3000)})

        db.insert("a", many("old"))
        what = db.what_if(delete={"a": many("one")}, insert={"a": many("one")})  # the second knows the first one's
        assert [len(what["b"].inserted), len(what["b"].deleted)] == [429, 0]
        for word in ("two", "one"):
            db.insert("a", many(word))
        found = Counter(x[:3] for x, _ in db["b"].rows)
        assert found == {"old": 3000, "one": 429, "two": 429}
        assert {n for x, n in db["b"].rows if x[:3] != "old"} == {1}


@pytest.mark.parametrize("partitions", [None, 2])
def test_rows_that_live_for_a_time(partitions: int | None) -> None:
    now = 0.0
    with whence.open(clock=lambda: now, partitions=partitions) as db:
        db.execute("CREATE TABLE seen (who TEXT) WITH (ttl = '60 s'); CREATE VIEW n AS SELECT COUNT(*) AS n FROM seen")
        db.insert("seen", [("A",), ("B",)])
        now = 30.0
        again = db.what_if(insert={"seen": [("A",), ("C",)]})
        assert again.tables["seen"].inserted == [("C",)]
        assert again["n"].inserted == [(3,)]
        now = 60.0  # what is due leaves first, in an epoch of its own: A was not refreshed
        assert db.what_if(insert={"seen": [("C",)]})["n"].deleted == [(0,)]
        assert (db.epoch, db["seen"].rows) == (2, [])


def test_a_database_that_lasts_logs_nothing(tmp_path: Path) -> None:
    with small(path=tmp_path / "db", retain="all") as db:
        db.insert("link", [("C", "D")])
        db.snapshot()
        size = db.metrics()["log_bytes"]
        what = db.what_if(delete={"link": [("B", "C")]}, insert={"link": [("new", "words")]})
        assert (db.metrics()["log_bytes"], db.epoch, db.snapshot()) == (size, 2, False)
        with db.at(1) as past:
            assert past.what_if(delete={"link": [("B", "C")]})["n"].inserted == [(1,)]
            assert past.epoch == 1
        with whence.open(tmp_path / "db", read_only=True) as reader:
            there = reader.what_if(delete={"link": [("B", "C")]}, insert={"link": [("new", "words")]})
            assert moved(there) == moved(what)
            assert inside.dictionary(reader).find("words") is None
            db.insert("link", [("other", "text"), ("D", "A")])  # by codes that the reader must not have given away
            assert contents(reader) == contents(db)
    with whence.open(tmp_path / "db") as again:
        assert len(again["reachable"]) == 17
        assert again.what_if(delete={"link": [("D", "A")]})["n"].inserted == [(7,)]


def test_a_snapshot_beside_it_is_of_its_epoch(tmp_path: Path) -> None:
    with small(path=tmp_path / "db") as db:
        stop = threading.Event()
        told: list[whence.WhatIf] = []

        def suppose() -> None:
            while not stop.is_set():
                told.append(db.what_if(delete={"link": [("A", "B")]}, insert={"link": [("X", "A")]}))

        thread = threading.Thread(target=suppose)
        thread.start()
        try:
            for i in range(20):
                db.insert("link", [("C", f"n{i}")])
                db.snapshot()
                rows = db["reachable"].rows
                assert len(rows) == 3 + 3 * (i + 1)
                assert not any("X" in row for row in rows)
        finally:
            stop.set()
            thread.join()
        assert all(change["reachable"].inserted[0] == ("X", "A") for change in told)
    with whence.open(tmp_path / "db", read_only=True) as db:
        assert len(db["reachable"]) == 63
        assert not any("X" in row for row in db["reachable"])


def test_on_spark(spark: Any, tmp_path: Path) -> None:
    inline = {"inline_rows": 0, "inline_bytes": 0}
    with small(path=tmp_path / "db", spark=spark, partitions=2, on_spark=inline) as db:
        before, runs = contents(db), db.metrics()["runs"]["runs"]
        what = db.what_if(delete={"link": [("A", "B")]}, insert={"link": [("C", "X")]})
        assert what["reachable"].deleted == [("A", "B"), ("A", "C")]
        assert what["reachable"].inserted == [("B", "X"), ("C", "X")]
        assert (contents(db), db.epoch, db.metrics()["runs"]["runs"]) == (before, 1, runs)
        db.insert("link", [("C", "D")])
        assert sorted(db["reachable"]) == [(a, b) for a in "ABC" for b in "BCD" if a < b]
