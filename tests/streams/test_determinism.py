"""Functions that are not deterministic: what calls one again is refused, and a replay that differs is an error."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest

import whence

READING = "CREATE STREAM reading (time INT, temp DOUBLE);"
WINDOW = "SELECT MAX(time) AS time, AVG(temp) AS temp FROM slide((SELECT * FROM {}), rows => 3, every => 1)"
ROWS = [(t, float(t * t)) for t in range(40)]


def opened(deterministic: bool = False, **options: object) -> whence.Database:
    """A database with a function that answers something else each time."""
    db = whence.open(**options)
    calls = itertools.count()

    def drawn(x: int) -> int:
        return (next(calls) * 2654435761 >> 7) % 5

    def split(x: int) -> list[tuple[int]]:
        return [(x,)] * (next(calls) % 3)

    db.create_function("drawn", drawn, args=["INT"], returns="INT", deterministic=deterministic)
    db.create_table_function("split", split, args=["INT"], returns="(n INT)", deterministic=deterministic)
    db.execute(READING)
    return db


def provenance(db: whence.Database, view: str) -> list[tuple[object, ...]]:
    return db.query(f"SELECT tid, time, temp, reading_tid, reading_time FROM provenance({view}, reading)").rows


@pytest.mark.parametrize("inner", ["reading WHERE drawn(time) < 2", "reading, split(time) AS x"])
def test_lineage_over_a_volatile_function_is_right(inner: str) -> None:
    db = opened()
    query = WINDOW.format(inner).replace("SELECT *", "SELECT time, temp")
    db.execute(f"CREATE VIEW warm WITH (provenance = 'lineage') AS {query}")
    for start in range(0, 40, 7):
        db.insert("reading", ROWS[start : start + 7])
    found: dict[int, list[int]] = {}
    for tid, time, temp, *source in provenance(db, "warm"):
        found.setdefault(tid, []).append(source[1])
        assert source[0] == source[1] + 1
        last, mean = time, temp
    assert len(found) > 5
    for tid, times in found.items():
        (row,) = db.query(f"SELECT time, temp FROM numbered(warm) WHERE tid = {tid}").rows
        if "split" not in inner:  # which may repeat a row in a window
            assert row == (max(times), sum(t * t for t in times) / 3)
    assert (last, mean) == db["warm"].rows[-1]


@pytest.mark.parametrize(
    "query", [WINDOW.format("reading WHERE drawn(time) < 2"), "SELECT drawn(time) AS x FROM reading"]
)
def test_covering_over_a_volatile_function_is_refused(query: str) -> None:
    db = opened()
    with pytest.raises(whence.SqlError, match=r'"warm" calls drawn, .*deterministic=False.*provenance = .lineage'):
        db.execute(f"CREATE VIEW warm WITH (provenance = 'covering') AS {query}")
    assert "warm" not in db.views


@pytest.mark.parametrize("mode", ["lineage", "covering"])
def test_tracing_through_a_copy_of_a_volatile_view_is_refused(mode: str) -> None:
    db = opened()
    db.execute("CREATE VIEW few AS SELECT time, temp FROM reading WHERE drawn(time) < 2")
    with pytest.raises(whence.SqlError, match=r'a copy of "few", which calls drawn.*provenance_of = .few'):
        db.execute(f"CREATE VIEW warm WITH (provenance = '{mode}') AS {WINDOW.format('few')}")
    db.execute(f"CREATE VIEW warm WITH (provenance = '{mode}', provenance_of = 'few') AS {WINDOW.format('few')}")
    db.insert("reading", ROWS)
    found = db.query("SELECT time, few_time FROM provenance(warm, few)").rows
    times = [time for time, _ in db["few"].rows]
    assert found == [(max(w), t) for w in zip(times, times[1:], times[2:], strict=False) for t in w]


@pytest.mark.parametrize(
    "view",
    [
        "CREATE VIEW v AS SELECT drawn(a) AS x FROM t",
        "CREATE VIEW v AS SELECT a FROM t WHERE drawn(a) = 1",
        "CREATE VIEW v AS SELECT n FROM t, split(a)",
        "CREATE VIEW v AS SELECT drawn(time) AS x, COUNT(*) AS n FROM reading GROUP BY x",
        "CREATE VIEW v AS SELECT a FROM t UNION SELECT drawn(v.a) FROM v WHERE a < 10",
        "CREATE VIEW v WITH (maintain = 'absorption') AS SELECT a FROM t UNION SELECT drawn(v.a) FROM v WHERE a < 10",
    ],
)
def test_relations_over_a_volatile_function_are_refused(view: str) -> None:
    db = opened()
    db.execute("CREATE TABLE t (a INT)")
    with pytest.raises(whence.SqlError, match=r'"v" calls (drawn|split), .*computed again.*INSERT INTO'):
        db.execute(view)


def test_folders_and_partitions_refuse_volatile_functions(tmp_path) -> None:
    for options in ({"path": tmp_path / "db"}, {"partitions": 2}):
        db = opened(**options)
        with pytest.raises(whence.SqlError, match=r'"v" calls drawn.*(from its log|catch up).*INSERT INTO'):
            db.execute("CREATE VIEW v AS SELECT drawn(time) AS x FROM reading")
        db.execute("CREATE TABLE t (a INT)")
        db.execute("INSERT INTO t SELECT drawn(1) UNION ALL SELECT drawn(1)")
        assert len(set(db["t"].rows)) == 2
        db.close()


def test_a_volatile_function_is_called_once_for_each_row() -> None:
    db = opened()
    db.execute("""CREATE VIEW v AS SELECT x, x + 1 AS y FROM (SELECT drawn(time) AS x FROM reading) WHERE x > 1;
                  CREATE VIEW w AS SELECT time FROM reading WHERE drawn(time) = 1 OR drawn(time) = 1""")
    db.insert("reading", [(7, 1.0)] * 20)
    assert all(x > 1 and y == x + 1 for x, y in db["v"].rows)
    assert len({x for x, _ in db["v"].rows}) > 1
    assert len(set(db.query("SELECT drawn(1) AS x FROM (VALUES (1), (2), (3), (4), (5), (6))").rows)) > 1
    for twice in ("drawn(time) BETWEEN 1 AND 2", "drawn(time) IN (1, 2)", "CASE drawn(time) WHEN 1 THEN TRUE END"):
        with pytest.raises(whence.SqlError, match=r"more than once for each row.*subquery"):
            db.execute(f"CREATE VIEW u AS SELECT time FROM reading WHERE {twice}")


def test_show_functions_says_what_is_volatile() -> None:
    db = opened()
    db.create_function("same", lambda x: x, args=["INT"], returns="INT")
    found = db.execute("SHOW FUNCTIONS")
    assert found.rows == [
        ("drawn", "(INTEGER)", "INTEGER", False),
        ("same", "(INTEGER)", "INTEGER", True),
        ("split", "(INTEGER)", "(n INTEGER)", False),
    ]


def test_why_of_an_untraced_volatile_view_is_refused() -> None:
    db = opened()
    db.execute("CREATE VIEW few AS SELECT time, temp FROM reading WHERE drawn(time) < 2")
    db.insert("reading", ROWS)
    with pytest.raises(whence.CatalogError, match=r"drawn, .*deterministic=False.*cannot be replayed"):
        db.why("few", time=db["few"].rows[0][0])


COLD = WINDOW.format("reading WHERE drawn(time) < 2")
KEYED = COLD.replace("every => 1", "every => 1, by => time")
PLAIN = "SELECT time, temp FROM reading WHERE drawn(time) < 2"


@pytest.mark.parametrize(
    ("mode", "query"),
    [("covering", COLD), ("covering", KEYED.replace("rows => 3", "rows => 1")), ("none", PLAIN), ("covering", PLAIN)],
)
def test_a_replay_that_differs_is_an_error(mode: str, query: str) -> None:
    db = opened(deterministic=True)
    db.execute(f"CREATE VIEW warm WITH (provenance = '{mode}') AS {query}")
    db.insert("reading", ROWS)
    with pytest.raises(whence.ReplayError, match=r"replay of warm did not give result \d+ .*drawn .*lineage"):
        db.why("warm", time=db["warm"].rows[3][0]) if mode == "none" else provenance(db, "warm")


def test_a_replay_that_differs_is_an_error_without_asserts() -> None:
    script = """
import itertools, whence
calls = itertools.count()
db = whence.open()
db.create_function("drawn", lambda x: (next(calls) * 2654435761 >> 7) % 5, args=["INT"], returns="INT")
db.execute('''CREATE STREAM s (a INT);
    CREATE VIEW v WITH (provenance = 'covering') AS
      SELECT SUM(a) AS a FROM slide((SELECT * FROM s WHERE drawn(a) < 2), rows => 3, every => 1)''')
db.insert("s", [(a,) for a in range(40)])
try:
    db.query("SELECT * FROM provenance(v, s)")
except whence.ReplayError:
    print("told")
"""
    done = subprocess.run([sys.executable, "-O", "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "told\n"


def test_a_replay_of_functions_compares_values() -> None:
    """The hull stays, what is inside it changes: only the values tell."""
    db, memo = whence.open(), {}

    def listed(x: int) -> bool:
        memo[x] = memo.get(x, 0) + 1
        return x % 3 != memo[x]  # first 1, then 2 of 3 is left out

    db.create_function("listed", listed, args=["INT"], returns="BOOLEAN")
    db.execute(READING)
    db.execute("""CREATE VIEW v WITH (provenance = 'covering') AS SELECT MAX(time) AS t, SUM(temp) AS s
                  FROM slide((SELECT * FROM reading WHERE listed(time)), on => time, width => 6, every => 6)""")
    db.insert("reading", [(t, float(t)) for t in (6, 7, 8, 9, 12, 13, 14, 15, 18)])
    with pytest.raises(whence.ReplayError, match="its values differ"):
        db.query("SELECT * FROM provenance(v, reading)")
