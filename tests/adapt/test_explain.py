"""What EXPLAIN, EXPLAIN ANALYZE and `db.plans` say of running plans."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import whence
from tests.adapt.random_plans import DECLARED, VIEWS, adapt_randomly, carry_out, changes, seeded
from whence.model.errors import CatalogError, SqlError, WhenceError


def explained(db: whence.Database, statement: str) -> list[str]:
    return [str(row[0]).strip(" │├└─") for row in db.execute(statement).rows]


def test_explain_analyze_counts_what_operators_did() -> None:
    with whence.open() as db:
        db.execute("CREATE TABLE a (k INT); CREATE TABLE b (k INT, g INT); CREATE TABLE c (g INT)")
        db.execute("CREATE VIEW v AS SELECT a.k, c.g FROM a, b, c WHERE a.k = b.k AND b.g = c.g")
        db.insert("b", [(1, 1), (2, 1)])
        db.insert("c", [(1,)])
        assert not any(line.startswith("ran once") for line in explained(db, "EXPLAIN v"))
        db.insert("a", [(1,), (2,), (3,)])
        lines = explained(db, "EXPLAIN ANALYZE v")
        assert any(re.match(r"ran 3 times: 6 rows in, 2 out, 8 probes, [\d.]+ ms$", line) for line in lines)
        assert any(re.match(r"ran once: 3 rows in, 3 out, [\d.]+ ms$", line) for line in lines), "the scan of a"


@pytest.mark.parametrize("partitions", [1, 2])
def test_explain_analyze_of_a_query_fills_it_and_leaves_nothing(tmp_path: Path, partitions: int) -> None:
    with whence.open(tmp_path / "q.db", partitions=partitions) as db:
        db.execute("CREATE TABLE a (k INT); CREATE TABLE b (k INT, g INT)")
        db.insert("a", [(k,) for k in range(20)])
        db.insert("b", [(k % 10, k) for k in range(30)])
        query = "SELECT g FROM a, b WHERE a.k = b.k AND b.g < $1"
        lines = [str(row[0]).strip(" │├└─") for row in db.execute(f"EXPLAIN ANALYZE {query}", (15,)).rows]
        times = "once" if partitions == 1 else r"\d times"
        assert any(re.match(rf"ran {times}: 35 rows in, 15 out, \d+ probes", line) for line in lines), lines
        recursive = (
            "WITH RECURSIVE r AS (SELECT k FROM a WHERE k < 2 UNION SELECT g FROM r, b WHERE r.k = b.k) SELECT * FROM r"
        )
        lines = explained(db, f"EXPLAIN ANALYZE {recursive}")
        assert any(line.startswith("port r") for line in lines)
        assert not db._coordinator.catalog.transient
        with pytest.raises(SqlError, match=r"EXPLAIN ANALYZE says what has been done"):
            db.execute("EXPLAIN ANALYZE CREATE VIEW v AS SELECT k FROM a")
        with pytest.raises(WhenceError, match="cannot stand inside a transaction"), db.transaction():
            db.execute(f"EXPLAIN ANALYZE {recursive}")


def test_explain_analyze_counts_the_rows_that_were_there() -> None:
    with whence.open() as db:
        db.execute("CREATE TABLE a (k INT)")
        db.insert("a", [(k,) for k in range(20)])
        db.execute("CREATE VIEW v AS SELECT k % 2 AS odd, count(*) AS n FROM a GROUP BY k % 2")
        assert any(line.startswith("ran once: 20 rows in, 2 out") for line in explained(db, "EXPLAIN ANALYZE v"))


def test_explain_analyze_adds_partitions_up(tmp_path: Path) -> None:
    with whence.open(tmp_path / "p.db", partitions=2) as db:
        db.execute("CREATE TABLE a (k INT); CREATE VIEW v AS SELECT k, count(*) AS n FROM a GROUP BY k")
        db.insert("a", [(k,) for k in range(20)])
        assert any(" 20 rows in, 20 out" in line for line in explained(db, "EXPLAIN ANALYZE v"))


def test_plans_say_what_runs_and_what_was_switched() -> None:
    with whence.open(adapt="on") as db:
        db.execute(DECLARED)
        db.execute(VIEWS)
        adapt_randomly(db, 1)
        for number in range(6):
            carry_out(db, changes(seeded(number)))
        (join,) = db.plans("w")
        assert (join["mode"], join["decided_by"], join["views"]) == ("on", "database", ["w"])
        assert [entry["reason"] for entry in join["history"]] == ["by chance"] * len(join["history"])
        assert join["history"]
        for path in join["paths"]:
            assert len(path["order"]) == len(path["steps"]) == 2
            assert all(road["excess"].endswith(" %") for road in path["alternatives"])
        lines = explained(db, "EXPLAIN w")
        assert any(line.startswith("adapt on (database)") for line in lines)
        assert any(line.endswith("by chance") for line in lines)
        with pytest.raises(CatalogError, match='no view "ww"; did you mean "w"'):
            db.plans("ww")


def test_view_decides_for_its_own_joins_and_the_database_for_shared_ones() -> None:
    query = "SELECT a.k FROM a, b, c WHERE a.k = b.k AND c.g = a.g"
    with whence.open(adapt="advise") as db:
        db.execute(DECLARED)
        db.execute(f"CREATE VIEW one WITH (adapt = 'on') AS {query}")
        db.insert("a", [(1, 1)])
        assert [(join["mode"], join["decided_by"]) for join in db.plans("one")] == [("on", "view one")]
        db.execute(f"CREATE VIEW two AS {query}")
        (join,) = db.plans("two")
        assert (join["mode"], join["decided_by"], sorted(join["views"])) == ("advise", "database", ["one", "two"])
        with pytest.raises(SqlError, match="there is no adapt 'maybe'"):
            db.execute(f"CREATE VIEW three WITH (adapt = 'maybe') AS {query}")
