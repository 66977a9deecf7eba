"""Ad-hoc queries with a budget: they end when it does, take no more memory than they may, and nothing else suffers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import whence
from whence.model.budget import within
from whence.model.errors import EvaluationError, LimitError, QuestionTimeout, SqlError
from whence.runtime.database import Database
from whence.runtime.reading.adhoc import Adhoc
from whence.runtime.reading.query_process import QueryProcess, QueryRunner
from whence.runtime.reading.query_worker import new_connection
from whence.sql.parse import parse_query

ENDLESS = [
    "SELECT COUNT(*) AS n FROM range(1000000000000)",
    "SELECT COUNT(*) AS n FROM t AS a, t AS b, t AS c, t AS d WHERE a.a * b.a <> c.a * d.a + length(a.s)",
    "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) SELECT COUNT(*) AS n FROM r",
]
UNSTOPPABLE = [  # by DuckDB itself, which looks for an interrupt between two batches of rows
    "SELECT levenshtein(repeat('x', 200000), repeat('y', 200000)) AS n",
    "SELECT levenshtein(s || repeat('x', 200000), repeat('y', 200000)) AS n FROM t",
]
TOO_LARGE = [
    "SELECT * FROM range(10000000000)",
    "SELECT repeat('x', 2000000000) AS s",
    "SELECT length(repeat('x', 4000000000)) AS n",
    "SELECT len(range(1000000000)) AS n",
    "SELECT length(format('{:>2000000000}', a)) AS n FROM t",
    "SELECT list(i) AS l FROM range(1000000000) AS r(i)",
    "SELECT i FROM range(100000000) AS r(i) ORDER BY random()",
    "SELECT string_agg(repeat('x', 1000000), '') AS s FROM range(3000)",
]


@pytest.fixture(scope="module")
def db() -> Iterator[Database]:
    with whence.open() as made:
        made.execute("""
            CREATE TABLE t (a INT, s TEXT, d DECIMAL(10,2), ts TIMESTAMP, day DATE, f DOUBLE, b BOOLEAN, i INTERVAL);
            CREATE STREAM e (at INT, x INT);
            CREATE VIEW w AS SELECT SUM(x) AS s FROM slide(e, rows => 2, every => 1)
        """)
        some = ("1.25", "2026-01-01 00:00:01.5", "2026-02-03", 0.5, True)
        made.insert("t", [(i, f"s{i}", *some, whence.Interval(1, 2, 3)) for i in range(200)])
        made.insert("t", (None,) * 8)
        made.insert("e", [(i, i) for i in range(10)])
        made.create_function("double", lambda x: None if x is None else 2 * x, args=["INT"], returns="BIGINT")
        made.create_function("echo", lambda x: x, args=["INTERVAL"], returns="INTERVAL")
        made.create_function("cents", lambda x: x, args=["DECIMAL(10,2)"], returns="DECIMAL(10,2)")
        made.create_function("me", lambda: "me", args=[], returns="TEXT")
        made.create_table_function("upto", lambda n: range(n or 0), args=["INT"], returns="(n INT)")
        made.create_function("fails", lambda x: 1 // 0, args=["INT"], returns="INT")
        yield made


@pytest.fixture(scope="module")
def runner() -> Iterator[QueryRunner]:
    made = QueryRunner(memory=64 << 20)
    made.start()
    yield made
    made.close()


def ask(db: Database, sql: str, adhoc: Adhoc | None, timeout: float = 60.0) -> pa.Table:
    with within(timeout=timeout):
        return db._coordinator.reader.query(parse_query(sql).query, adhoc)


def check_alive(db: Database, adhoc: Adhoc | None) -> None:
    assert ask(db, "SELECT COUNT(*) + 1 AS n FROM t WHERE a >= 0", adhoc).to_pylist() == [{"n": 201}]


# -- answers -----------------------------------------------------------------------------------------------------------

ASKED = [
    "SELECT COUNT(*) AS n FROM t WHERE a > 3",
    "SELECT *, a + 1 AS c FROM t",
    "SELECT SUM(a) OVER () AS n FROM t",
    "SELECT SUM(CAST(a AS HUGEINT) * 10000000000000000000) AS n FROM t",
    "SELECT a, double(a) AS c, SUM(f) AS n FROM t GROUP BY a",
    "SELECT me() || s AS m, echo(i) AS i, cents(d) AS d FROM t",
    "SELECT ts AT TIME ZONE 'Europe/Paris' AS p FROM t WHERE a < 3",
    "SELECT ts AT TIME ZONE 'Europe/Paris' AT TIME ZONE 'UTC' AS p FROM t WHERE a < 3",
    "SELECT a FROM t WHERE FALSE AND s = s",
    "SELECT x.a, y.s FROM t AS x JOIN t AS y ON x.a = y.a + 1",
    "SELECT n.* FROM numbered(e) AS n WHERE n.x % 2 = 1",
    "SELECT COUNT(*) + 0 AS n FROM owed(t)",
    "SELECT s FROM w WHERE s > 3",
]


@pytest.mark.parametrize("sql", ASKED)
def test_a_process_answers_as_this_one_does(db: Database, runner: QueryRunner, sql: str) -> None:
    expected, found = ask(db, sql, None), ask(db, sql, runner)
    assert found.schema == expected.schema
    assert sorted(found.to_pylist(), key=str) == sorted(expected.to_pylist(), key=str)


REFUSED = [
    ("SELECT nope FROM t", SqlError, "line 1, column 8: unknown column \"nope\" (near 'nope')"),
    ("SELECT CAST(s AS INT) AS n FROM t", EvaluationError, "Could not convert string 's0' to INT32"),
    ("SELECT fails(a) AS n FROM t", EvaluationError, "function fails failed: ZeroDivisionError"),
    ("SELECT a FROM ghost", SqlError, 'there is no table or view "ghost"'),
    ("SELECT * FROM read_csv('x.csv')", SqlError, "unknown table function"),
]


@pytest.mark.parametrize(("sql", "kind", "says"), REFUSED)
@pytest.mark.parametrize("by", ["process", "here"])
def test_errors_are_the_same_wherever_it_runs(
    db: Database, runner: QueryRunner, by: str, sql: str, kind: type[Exception], says: str
) -> None:
    adhoc = runner if by == "process" else None
    with pytest.raises(kind) as error:
        ask(db, sql, adhoc)
    assert says in str(error.value)
    check_alive(db, adhoc)


def test_what_a_query_reads_counts(db: Database) -> None:
    with whence.open() as large:
        large.execute("CREATE TABLE t (a BIGINT)")
        large.insert("t", pa.table({"a": pa.array(range(3_000_000), pa.int64())}))
        small = QueryRunner(memory=16 << 20)
        with pytest.raises(LimitError, match=r"what the query reads takes 24.0 MB, and a query may take 16.8 MB"):
            ask(large, "SELECT SUM(a) + 1 AS n FROM t", small)
        small.close()
    with pytest.raises(LimitError, match=r"a query needs 16.8 MB of memory or more"):
        QueryRunner(memory=1)


# -- time --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sql", ENDLESS)
@pytest.mark.parametrize("by", ["process", "here"])
def test_an_endless_query_is_stopped(db: Database, runner: QueryRunner, by: str, sql: str) -> None:
    adhoc = runner if by == "process" else None
    check_alive(db, adhoc)
    with pytest.raises(QuestionTimeout, match=r"not answered within 0\.3 s; it came to: "):
        ask(db, sql, adhoc, 0.3)
    check_alive(db, adhoc)


@pytest.mark.parametrize("sql", UNSTOPPABLE)
def test_what_duckdb_does_not_interrupt_is_killed(db: Database, runner: QueryRunner, sql: str) -> None:
    check_alive(db, runner)
    with pytest.raises(QuestionTimeout):
        ask(db, sql, runner, 0.3)
    check_alive(db, runner)


def test_timeout_of_database_query(db: Database) -> None:
    with pytest.raises(QuestionTimeout, match=r"not answered within 0.2 s; it came to: running the query\. Ask about"):
        db.query(ENDLESS[0], timeout="200 ms")
    assert db.query("SELECT COUNT(*) AS n FROM t WHERE a < ?", [5], timeout=60).rows == [(5,)]
    with pytest.raises(whence.DataError, match="a timeout is"):
        db.query("SELECT 1", timeout="soon")


def test_a_query_of_our_own_operators_ends_in_time(db: Database) -> None:
    """One that uses a table function of ours runs on our operators, which look at the budget."""
    for sql in ("SELECT SUM(x) AS s FROM slide(e, rows => 2, every => 1)", "SELECT u.n FROM t, upto(t.a) AS u"):
        with pytest.raises(QuestionTimeout, match="it came to: filling operators"):
            db.query(sql, timeout=0)
        assert db.query(sql, timeout=60).rows


def test_a_cross_product_of_our_own_operators_is_limited(db: Database, runner: QueryRunner) -> None:
    sql = "SELECT COUNT(*) AS n FROM t AS a, t AS b, t AS c, t AS d, upto(a.a) AS u"
    with pytest.raises(LimitError, match=r"GB are needed at a time, and a query may take 67\.1 MB of memory"):
        ask(db, sql, runner)
    assert ask(db, "SELECT COUNT(*) AS n FROM t AS a, upto(a.a) AS u", runner).to_pylist() == [{"n": 19900}]


@pytest.mark.parametrize("by", ["process", "here"])
def test_a_query_is_cancelled_from_another_thread(db: Database, runner: QueryRunner, by: str) -> None:
    adhoc = runner if by == "process" else None
    check_alive(db, adhoc)
    begun, cancelled = threading.Event(), threading.Event()

    class CancelledError(Exception):
        pass

    def progress(what: str, done: int, total: int) -> None:
        if what == "running the query":
            begun.set()
        if cancelled.is_set():
            raise CancelledError

    def cancel() -> None:
        assert begun.wait(60)
        cancelled.set()

    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(CancelledError), within(progress, 60):
        db._coordinator.reader.query(parse_query(ENDLESS[0]).query, adhoc)
    thread.join()
    check_alive(db, adhoc)


@pytest.mark.parametrize("by", ["process", "here"])
def test_other_queries_and_writes_go_on_beside_a_long_one(db: Database, by: str) -> None:
    adhoc = QueryRunner(memory=64 << 20) if by == "process" else Adhoc()
    begun, enough = threading.Event(), threading.Event()

    def progress(what: str, done: int, total: int) -> None:
        if what == "running the query":
            begun.set()
        if enough.is_set():
            raise KeyboardInterrupt

    def run_long() -> None:
        with pytest.raises(KeyboardInterrupt), within(progress):
            db._coordinator.reader.query(parse_query(ENDLESS[0]).query, adhoc)

    thread = threading.Thread(target=run_long)
    thread.start()
    assert begun.wait(60)
    for _ in range(5):
        check_alive(db, adhoc)
    db.insert("e", (1, 1))
    enough.set()
    thread.join()
    adhoc.close()


def test_queries_beyond_the_pool_wait_for_their_turn(db: Database) -> None:
    adhoc, begun, enough = Adhoc(most=1), threading.Event(), threading.Event()

    def progress(what: str, done: int, total: int) -> None:
        begun.set()
        if enough.is_set():
            raise KeyboardInterrupt

    def run_long() -> None:
        with pytest.raises(KeyboardInterrupt), within(progress):
            db._coordinator.reader.query(parse_query(ENDLESS[0]).query, adhoc)

    thread = threading.Thread(target=run_long)
    thread.start()
    assert begun.wait(60)
    with pytest.raises(QuestionTimeout, match="it came to: waiting for other queries"):
        ask(db, "SELECT COUNT(*) + 1 AS n FROM t WHERE a >= 0", adhoc, 0.2)
    enough.set()
    thread.join()
    check_alive(db, adhoc)
    adhoc.close()


# -- memory ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sql", TOO_LARGE)
def test_a_query_that_needs_too_much_memory_names_the_limit(db: Database, runner: QueryRunner, sql: str) -> None:
    with pytest.raises(LimitError, match=r"67\.1 MB of memory"):
        ask(db, sql, runner)
    check_alive(db, runner)


def test_a_process_that_dies_is_replaced(db: Database, runner: QueryRunner) -> None:
    check_alive(db, runner)
    engine = runner._engines._free[-1]
    assert isinstance(engine, QueryProcess)
    assert engine._worker is not None
    os.kill(engine._worker._process.pid, signal.SIGKILL)
    engine._worker._process.wait()
    check_alive(db, runner)


def test_a_process_ends_with_the_one_that_started_it(tmp_path: Path) -> None:
    """Also while it runs a query, and also if that one is killed."""
    script = textwrap.dedent("""
        import os, subprocess, whence
        class Noted(subprocess.Popen):
            pids = []
            def __init__(self, *args, **options):
                super().__init__(*args, **options)
                self.pids.append(self.pid)
        subprocess.Popen = Noted
        from whence.model.budget import within
        from whence.runtime.reading.query_process import QueryRunner
        from whence.sql.parse import parse_query
        db, runner = whence.open(), QueryRunner(memory=64 << 20)
        runner.start()
        def progress(what, done, total):
            if what == "running the query":
                print(*Noted.pids, flush=True)
                os.kill(os.getpid(), 9)
        with within(progress):
            db._coordinator.reader.query(parse_query("SELECT COUNT(*) AS n FROM range(1000000000000)").query, runner)
    """)
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert found.returncode == -signal.SIGKILL, found.stderr
    child = int(found.stdout)
    for _ in range(600):
        if not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2]:
            return
        time.sleep(0.1)
    pytest.fail("the process of a query outlives its parent")


# -- what a connection can reach, if our checks of a query were not there ----------------------------------------------

REACHING = [
    "SELECT * FROM '{file}'",
    "SELECT * FROM read_csv('{file}')",
    "SELECT * FROM read_text('{file}')",
    "SELECT * FROM glob('{folder}/*')",
    "COPY (SELECT 1) TO '{folder}/out.csv'",
    "ATTACH '{folder}/x.db'",
    "EXPORT DATABASE '{folder}/x'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "LOAD '{folder}/x.so'",
    "SET enable_external_access = true",
    "SET memory_limit = '100GB'",
    "SET threads = 64",
    "SET temp_directory = '{folder}'",
    "SET lock_configuration = false",
    "RESET memory_limit",
    "PRAGMA memory_limit = '100GB'",
    "PRAGMA enable_profiling",
    "SELECT * FROM secret",
]


@pytest.mark.parametrize("sql", REACHING)
@pytest.mark.parametrize("memory", [None, 64 << 20])
def test_a_connection_reaches_nothing(tmp_path: Path, sql: str, memory: int | None) -> None:
    secret = pa.table({"a": [1]})
    file = tmp_path / "file.csv"
    file.write_text("a\n1\n")
    connection = new_connection(memory, 1)
    with pytest.raises(duckdb.Error):
        connection.execute(sql.format(file=file, folder=tmp_path)).fetchall()
    connection.close()
    assert list(tmp_path.iterdir()) == [file]
    del secret


def test_a_limited_connection_has_its_limits() -> None:
    connection = new_connection(64 << 20, 1)
    wanted = "SELECT current_setting('memory_limit'), current_setting('threads'), current_setting('temp_directory')"
    found: Any = connection.execute(wanted).fetchone()
    connection.close()
    assert found == ("64.0 MiB", 1, "")
