"""Everyday life of a database that lasts: what is written stays, whoever opens it, however it was left."""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import random
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import whence
from tests import inside
from tests.workload import Session, abandon, history, open_small, state_of, workload
from whence.model.errors import LockedError
from whence.state.disk import Disk

SCHEMA = """
CREATE TABLE a (id INT PRIMARY KEY, t TEXT);
CREATE VIEW b AS SELECT t, COUNT(*) AS n, MIN(id) AS least FROM a GROUP BY t;
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "db"


@pytest.fixture
def db(path: Path) -> Iterator[whence.Database]:
    with whence.open(path) as db:
        db.execute(SCHEMA)
        yield db


def python(code: str, *args: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=check)


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


# -- opening again -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [6, 7])
@pytest.mark.parametrize("leave", ["close", "abandon"])
def test_reopening_after_every_operation(path: Path, seed: int, leave: str) -> None:
    ops = workload(seed, 20, snapshots=1, reopenings=0)
    states = history(ops)
    for number, op in enumerate(ops):
        session = Session(path)
        assert state_of(session.db) == states[number]
        session.perform(op)
        session.db.close() if leave == "close" else abandon(session.db)
    with Session(path).db as db:
        assert state_of(db) == states[-1]


def test_nothing_is_primed_when_an_image_is_there(db: whence.Database, path: Path) -> None:
    db.insert("a", [(x, f"t{x % 3}") for x in range(30)])
    db.close()
    with whence.open(path) as again:
        report = again.recovery
        assert report is not None
        assert (report.epoch, report.image_epoch, report.replayed, report.primed) == (1, 1, 0, 0)
        assert report.restored > 0
        assert report.torn is None
        assert again.path == path


def test_all_kinds_of_values(path: Path) -> None:
    rows = [
        (1, "", Decimal("12345.67"), 0.1, True, dt.date(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),
        (2, "äöü 🦆 \x00 '\"\n\\", Decimal("-0.01"), -0.0, False, dt.date(9999, 12, 31), dt.datetime(1970, 1, 1)),
        (3, None, None, None, None, None, None),
        (4, "x" * 100_000, Decimal("0"), float("inf"), True, dt.date(1969, 7, 20), dt.datetime(1, 1, 1)),
        (5, "5", Decimal("99999.99"), 5e-324, False, dt.date(2000, 2, 29), dt.datetime(2024, 2, 29, 1, 2, 3, 4)),
    ]
    spans = [whence.Interval(months, days, micros) for months, days, micros in ((1, 2, 3), (-14, 0, 1), (0, 0, 0))]
    with whence.open(path) as db:
        db.execute("""
            CREATE TABLE v (id BIGINT, s TEXT, d DECIMAL(7, 2), f DOUBLE, b BOOLEAN, day DATE, at TIMESTAMP);
            CREATE TABLE w (s TEXT, i INTERVAL);
            CREATE VIEW m AS SELECT b, MIN(s) AS s, MAX(d) AS d, MIN(day) AS day, MAX(at) AS at FROM v GROUP BY b;
            CREATE VIEW n AS SELECT i, COUNT(*) AS n FROM w GROUP BY i;
        """)
        db.insert("v", rows)
        db.insert("w", [("word", spans[0]), (None, spans[1]), ("w", None)])
        db.snapshot()
        db.insert("w", [("after", spans[2]), ("after", spans[0])])
        before = state_of(db)
        abandon(db)
    for _ in range(2):
        with whence.open(path) as db:
            assert state_of(db) == before
            assert sorted(db["v"]) == rows
            assert dict(db["n"].rows)[spans[0]] == 2
    with whence.open(path) as db:
        db.insert("w", [("last", spans[1])])
        assert dict(db["n"].rows)[spans[1]] == 2


DECLARED = {
    "if not exists": "CREATE TABLE IF NOT EXISTS c (x INT); CREATE TABLE IF NOT EXISTS c (y TEXT)",
    "view if not exists": """
        CREATE VIEW IF NOT EXISTS b AS SELECT 1 AS x;
        CREATE VIEW IF NOT EXISTS c AS SELECT id FROM a""",
    "or replace": "CREATE OR REPLACE VIEW b AS SELECT MAX(id) AS x FROM a",
    "or replace under another": """
        CREATE VIEW c AS SELECT n FROM b;
        CREATE OR REPLACE VIEW b AS SELECT 2 * id AS n FROM a""",
    "cascade": "CREATE VIEW c AS SELECT n FROM b; CREATE VIEW d AS SELECT n FROM c; DROP VIEW b CASCADE",
    "drop table": "CREATE TABLE c (x INT); CREATE VIEW d AS SELECT x FROM c; DROP TABLE c CASCADE",
    "made again": "DROP TABLE a CASCADE; CREATE TABLE a (x TEXT); INSERT INTO a VALUES ('new')",
    "drop if exists": "DROP VIEW IF EXISTS nothing; DROP TABLE IF EXISTS nothing CASCADE; DROP VIEW IF EXISTS b",
    "with recursive": """
        WITH RECURSIVE up (x, y) AS (
        SELECT id, id + 1 FROM a WHERE id < 5 UNION SELECT up.x, a.id FROM up JOIN a ON a.id = up.y + 1)""",
    "mutual": """
        CREATE VIEW even AS
            SELECT id FROM a WHERE id = 0 UNION SELECT a.id FROM a JOIN odd ON a.id = odd.id + 1;
        CREATE VIEW odd AS SELECT a.id FROM a JOIN even ON a.id = even.id + 1""",
    "policy": "CREATE VIEW c WITH (policy = 'dred') AS SELECT id FROM a UNION SELECT id + 1 FROM c WHERE id < 9",
    "names of columns": '''
        CREATE VIEW c (one, "two's ""best""") AS SELECT id, t FROM a -- a comment; with a semicolon''',
    "quoted": '''
        CREATE TABLE "my ""own"" tab/le\n%s" ("a b" INT);
        CREATE VIEW "v/""x""" AS SELECT "a b" FROM "my ""own"" tab/le\n%s";
        INSERT INTO "my ""own"" tab/le\n%s" VALUES (7)''',
    "quoted and dropped": """
        CREATE TABLE "x""y/z" (a INT); CREATE VIEW "v""w" AS SELECT a FROM "x""y/z";
        DROP VIEW "v""w"; DROP TABLE "x""y/z" """,
    "words/": """
        CREATE TABLE "words/0" (a TEXT); CREATE TABLE "table/a" (a TEXT);
        INSERT INTO "words/0" VALUES ('q')""",
    "unicode": "CREATE TABLE größe (straße TEXT); INSERT INTO größe VALUES ('ß')",
    "constraints": """
        CREATE TABLE c (x INT NOT NULL, y DECIMAL(5, 1), PRIMARY KEY (x));
        INSERT INTO c VALUES (1, 2.5), (1, 3)""",
    "comments": "CREATE VIEW c AS SELECT id, -- the key; not the text\n t /* the ; text */ FROM a -- all of them",
    "views of literals": "CREATE VIEW c AS SELECT 'only here' AS t, INTERVAL '3 days' AS i",
}


@pytest.mark.parametrize("form", DECLARED)
def test_every_form_of_declaration_lasts(path: Path, form: str) -> None:
    with whence.open(path) as db:
        db.execute(SCHEMA)
        db.insert("a", [(x, f"t{x % 3}") for x in range(8)])
        db.execute(DECLARED[form])
        before, columns = state_of(db), {name: db[name].columns for name in (*db.tables, *db.views)}
        abandon(db)
    for leave in ("abandon", "close", "close"):  # from the log, from the log, from an image
        with whence.open(path) as db:
            assert state_of(db) == before
            assert {name: db[name].columns for name in (*db.tables, *db.views)} == columns
            if leave == "abandon":
                abandon(db)
    with whence.open(path, read_only=True) as db:
        assert state_of(db) == before
    with whence.open(path) as db:  # and goes on
        if db["a"].columns == ["id", "t"]:
            db.insert("a", [(8, "t0"), (0, "changed")])
        after = state_of(db)
        abandon(db)
    with whence.open(path) as db:
        assert state_of(db) == after


def test_statements_that_failed_are_not_there(db: whence.Database, path: Path) -> None:
    for sql in (
        "CREATE TABLE a (x INT)",
        "CREATE VIEW c AS SELECT nothing FROM a",
        "CREATE VIEW c AS SELECT CAST(t AS INT) AS n FROM a",
        "DROP TABLE a",
    ):
        db.insert("a", [(1, "not a number")])
        with pytest.raises(whence.WhenceError):
            db.execute(sql)
    before = state_of(db)
    abandon(db)
    with whence.open(path) as db:
        assert state_of(db) == before


# -- functions ---------------------------------------------------------------------------------------------------------


def with_functions(db: whence.Database) -> None:
    db.create_function("double", lambda x: 2 * x, args=["INT"], returns="BIGINT")
    db.create_table_function("upto", lambda n: [(i,) for i in range(n)], args=["INT"], returns="(i INT)")


@pytest.mark.parametrize("snapshot", [True, False])
def test_functions_are_given_by_setup(path: Path, snapshot: bool) -> None:
    db = whence.open(path, setup=with_functions)
    db.execute("""
        CREATE TABLE a (x INT);
        CREATE VIEW b AS SELECT double(x) AS y FROM a;
        CREATE VIEW c AS SELECT a.x, u.i FROM a, LATERAL upto(a.x) AS u;
    """)
    db.insert("a", [(3,)])
    db.close() if snapshot else abandon(db)
    for read_only in (True, False):
        with pytest.raises(whence.WhenceError, match="double") as caught:
            whence.open(path, read_only=read_only)
        assert not isinstance(caught.value, LockedError)
    with whence.open(path, setup=with_functions) as db:
        db.insert("a", [(1,)])
        assert sorted(db["b"]) == [(2,), (6,)]
        assert sorted(db["c"]) == [(1, 0), (3, 0), (3, 1), (3, 2)]


def test_setup_that_fails_leaves_nothing(path: Path) -> None:
    def setup(_: whence.Database) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        whence.open(path, setup=setup)
    whence.open(path).close()


# -- snapshots ---------------------------------------------------------------------------------------------------------


def test_a_snapshot_while_others_write_and_read(path: Path) -> None:
    """Its image is the state of exactly its epoch, whatever goes on meanwhile."""
    writers, rounds = 4, 25
    db = whence.open(path, retain="all")
    db.execute("""
        CREATE TABLE a (who INT, n INT);
        CREATE VIEW total AS SELECT who, COUNT(*) AS n, MAX(n) AS most FROM a GROUP BY who;
        CREATE VIEW pairs AS SELECT x.who AS one, y.who AS two FROM a AS x JOIN a AS y ON x.n = y.n AND x.who < y.who;
        CREATE VIEW top AS SELECT who, n FROM a ORDER BY n DESC, who LIMIT 5;
    """)
    stop, errors = threading.Event(), []

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                errors.append(error)

        return run

    def write(who: int) -> Callable[[], None]:
        def run() -> None:
            for n in range(rounds):
                with db.transaction():
                    db.insert("a", [(who, n), (who, n + 1000)])
                    db.delete("a", [(who, n - 3)])

        return run

    def read() -> None:
        while not stop.is_set():
            for who, n, most in db["total"].rows:
                assert (most - 1000) >= 0
                assert n % 2 == 0 or most > 1002, who
            db.query("SELECT COUNT(*) AS n FROM pairs")

    def snapshot() -> None:
        while not stop.is_set():
            db.snapshot()

    threads = [threading.Thread(target=guarded(write(who))) for who in range(writers)]
    others = [threading.Thread(target=guarded(work)) for work in (read, snapshot)]
    for thread in (*threads, *others):
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    for thread in others:
        thread.join()
    assert not errors, errors
    last = state_of(db)
    assert db.epoch == writers * rounds
    links = [link for chain in inside.folder(db).chains for link in chain]
    assert len(links) > 2, "no snapshot was taken meanwhile"
    for link in links:
        with db.at(link.epoch) as then:
            assert then.recovery is not None
            assert (then.recovery.image_epoch, then.recovery.replayed) == (link.epoch, 0)
            from_image = state_of(then)
        check_exact(from_image, path, link.epoch)
    abandon(db)
    with whence.open(path) as again:
        assert state_of(again) == last


def check_exact(found: Any, path: Path, epoch: int) -> None:
    """The same epoch replayed from the beginning of the log, without any image."""
    from whence.plan.recursion.settings import DEPTH_LIMIT
    from whence.runtime.coordinator import Coordinator
    from whence.runtime.deployment import InlineDeployment
    from whence.runtime.durable.recovery import replay
    from whence.state.folder import _BEGINNING, Folder
    from whence.state.log import EPOCH

    folder, runtime = Folder(path, Disk()), Coordinator(InlineDeployment(), DEPTH_LIMIT)
    for record in folder.read(folder.reader(_BEGINNING.place)):
        if record.kind == EPOCH and record.epoch > epoch:
            break
        replay(runtime, record, folder)
    assert state_of(whence.Database(runtime)) == found


def test_a_second_snapshot_costs_what_has_changed(path: Path) -> None:
    with whence.open(path) as db:
        db.execute("CREATE TABLE big (x INT, y INT, t TEXT)")
        db.execute("CREATE VIEW s AS SELECT x % 10 AS k, SUM(y) AS y FROM big GROUP BY x % 10")
        rng = random.Random(1)
        db.insert("big", [(x, rng.randrange(10**6), f"w{x % 1000}") for x in range(200_000)])
        assert db.snapshot()
        before = {file.name for file in (path / "state").iterdir()}
        whole = size_of(path / "state")
        assert not db.snapshot(), "there is nothing new"
        db.insert("big", [(1, 1, "one more")])
        assert db.snapshot()
        (patch,) = {file for file in (path / "state").iterdir() if file.name not in before}
        assert patch.suffix == ".patch"
        assert patch.stat().st_size < whole / 20
        expected = sorted(db["s"])
    with whence.open(path) as db:
        assert len(db["big"]) == 200_001
        assert sorted(db["s"]) == expected
        assert db.recovery is not None
        assert db.recovery.replayed == 0


def test_the_folder_stays_as_large_as_the_data(path: Path) -> None:
    sizes = []
    with whence.open(path) as db:
        db.execute(
            "CREATE TABLE a (x INT, y INT); CREATE VIEW b AS SELECT x % 7 AS k, COUNT(*) AS n FROM a GROUP BY x % 7"
        )
        for number in range(50):
            rows = [(number * 1000 + x, x * 7919 % 1000) for x in range(1000)]
            db.insert("a", rows)
            if number:
                db.execute(f"DELETE FROM a WHERE x < {number * 1000}")
            db.snapshot()
            sizes.append(size_of(path))
        assert len(db["a"]) == 1000
        assert len(list((path / "log").iterdir())) == 2
    assert max(sizes[10:]) < 6 * sizes[0] + 100_000
    assert len(list((path / "state").iterdir())) <= 33


def test_snapshots_take_themselves(path: Path) -> None:
    db = open_small(path, Disk(), snapshot_records=10)
    db.execute(SCHEMA)
    for x in range(60):
        db.insert("a", [(x, "t")])
    inside.snapshots(db).finish()
    before = state_of(db)
    abandon(db)
    with whence.open(path) as again:
        assert state_of(again) == before
        assert again.recovery is not None
        assert again.recovery.image_epoch > 0
        assert again.recovery.replayed < 60


def test_a_snapshot_beside_a_transaction_has_nothing_of_it(db: whence.Database, path: Path) -> None:
    db.insert("a", [(1, "x")])
    taking = threading.Thread(target=db.snapshot)
    with suppress(ZeroDivisionError), db.transaction():
        db.insert("a", [(2, "y")])
        taking.start()
        _ = 1 / 0
    taking.join()
    db.insert("a", [(3, "z")])
    abandon(db)
    with whence.open(path) as db:
        assert sorted(db["b"]) == [("x", 1, 1), ("z", 1, 3)]


def test_the_log_alone_is_enough(db: whence.Database, path: Path) -> None:
    """Views that were dropped, replaced and made again between snapshots find their state, or make it anew."""
    for x in range(5):
        db.insert("a", [(x, f"t{x}")])
        db.execute("CREATE VIEW c AS SELECT n FROM b")
        db.snapshot()
        db.execute("DROP VIEW b CASCADE; CREATE VIEW b AS SELECT t, COUNT(*) AS n FROM a GROUP BY t")
        db.insert("a", [(x, f"u{x}")])
        db.snapshot()
        before = state_of(db)
        abandon(db)
        db = whence.open(path)
        assert state_of(db) == before
        assert sorted(db["b"]) == [(f"u{y}", 1) for y in range(x + 1)]
    db.close()


# -- several threads and processes -------------------------------------------------------------------------------------


def test_writers_who_wait_share_a_sync(path: Path) -> None:
    syncs, lock = 0, threading.Lock()

    def slow(point: str, file: Path) -> None:
        nonlocal syncs
        if point == "sync" and file.suffix == ".log":
            with lock:
                syncs += 1
            time.sleep(0.02)

    with whence.open(path, disk=Disk(slow)) as db:
        db.execute("CREATE TABLE a (x INT)")
        syncs = 0

        def write(first: int) -> None:
            for x in range(5):
                db.insert("a", [(first + x,)])

        threads = [threading.Thread(target=write, args=(100 * n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert db.epoch == 40
        assert syncs < 30
    with whence.open(path) as db:
        assert len(db["a"]) == 40


def test_a_second_writer_is_told_who_writes(db: whence.Database, path: Path) -> None:
    with pytest.raises(LockedError, match="this process"):
        whence.open(path)
    told = python(
        """
        import sys, whence
        try:
            whence.open(sys.argv[1])
        except whence.StorageError as error:
            print(type(error).__name__, error)
        """,
        path,
    ).stdout
    assert told.startswith("LockedError")
    assert f"process {os.getpid()}" in told
    assert "read_only=True" in told
    db.insert("a", [(1, "still here")])


READER = """
    import json, sys, whence
    with whence.open(sys.argv[1], read_only=True) as db:
        print("ready", flush=True)
        for line in sys.stdin:
            db.query("SELECT 1 AS one")  # names are those of the last epoch looked at
            with_views = {name: sorted(db[name].rows) for name in (*db.tables, *db.views)}
            print(json.dumps([db.epoch, with_views]), flush=True)
"""


class Reader:
    """A process that reads a database and says what it sees when it is asked."""

    def __init__(self, path: Path):
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(READER), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            assert self.process.stderr is not None
            raise AssertionError(self.process.stderr.read())
        return line

    def see(self) -> tuple[int, dict[str, Any]]:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        epoch, found = json.loads(self._line())
        return epoch, {name: [tuple(row) for row in rows] for name, rows in found.items()}

    def end(self) -> None:
        self.process.communicate(timeout=60)


def test_a_reader_in_another_process_follows(db: whence.Database, path: Path) -> None:
    """Over rotations, pruning, statements, the end of the writer and the beginning of another."""

    def seen_by_writer() -> tuple[int, dict[str, Any]]:
        return db.epoch, {name: sorted(db[name].rows) for name in (*db.tables, *db.views)}

    db.insert("a", [(1, "one")])
    reader = Reader(path)
    assert reader.see() == seen_by_writer()
    steps: list[Callable[[], object]] = [
        lambda: db.insert("a", [(2, "two"), (3, "two")]),
        lambda: db.snapshot(),
        lambda: db.insert("a", [(4, "four")]),
        lambda: [db.insert("a", [(10 + i, "x")]) and db.snapshot() for i in range(3)],
        lambda: db.execute("CREATE TABLE c (x INT); CREATE VIEW d AS SELECT SUM(x) AS x FROM c"),
        lambda: db.insert("c", [(1,), (2,)]),
        lambda: db.snapshot(),
        lambda: db.execute("DROP VIEW b; CREATE VIEW b AS SELECT id FROM a WHERE id < 5"),
        lambda: db.execute("DELETE FROM a WHERE id = 1"),
        lambda: db.execute("DROP TABLE c CASCADE"),
    ]
    for step in steps:
        step()
        assert reader.see() == seen_by_writer()
    db.close()
    last = reader.see()
    db = whence.open(path)
    assert reader.see() == last == seen_by_writer()
    db.insert("a", [(99, "the second writer")])
    assert reader.see() == seen_by_writer()
    db.close()
    reader.end()


HALVES = """
    import sys, whence
    last = 0
    with whence.open(sys.argv[1], read_only=True) as db:
        while last < int(sys.argv[2]):
            rows = db.query("SELECT l.n AS l, r.n AS r FROM l FULL JOIN r ON l.n = r.n").rows
            assert all(l == r for l, r in rows), rows
            twice = db["twice"].rows
            assert twice == [] or (twice[0][0] == twice[0][1]), twice
            assert len(rows) >= last, (len(rows), last)
            last = len(rows)
    print("fine", last)
"""


def test_a_reader_never_sees_half_an_epoch(path: Path) -> None:
    """Readers that start while the writer writes, takes snapshots and lets the past go."""
    rounds = 150
    with open_small(path, Disk(), snapshot_records=7) as db:
        db.execute("""
            CREATE TABLE l (n INT); CREATE TABLE r (n INT);
            CREATE VIEW twice AS SELECT (SELECT COUNT(*) FROM l) AS l, (SELECT COUNT(*) FROM r) AS r;
        """)
        command = [sys.executable, "-c", textwrap.dedent(HALVES), str(path), str(rounds)]
        readers = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)
        ]
        for n in range(rounds):
            with db.transaction():
                db.insert("l", [(n,)])
                db.insert("r", [(n,)])
            time.sleep(0.01)
        for reader in readers:
            said, failed = reader.communicate(timeout=120)
            assert (said, failed) == (f"fine {rounds}\n", "")


def test_a_reader_follows_changes(db: whence.Database, path: Path) -> None:
    with whence.open(path, read_only=True) as reader:
        feed = reader.changes("b", snapshot=True)
        db.insert("a", [(1, "x")])
        assert [(c.epoch, c.row, c.sign) for c in feed] == [(1, ("x", 1, 1), 1)]
        db.snapshot()
        db.insert("a", [(2, "x")])
        assert [(c.epoch, c.row, c.sign) for c in feed] == [(2, ("x", 1, 1), -1), (2, ("x", 2, 1), 1)]


def test_a_reader_follows_from_writer_to_writer(path: Path) -> None:
    """Its feed goes on over snapshots, pruning, and words that were only seen in a transaction that failed."""
    expected = []
    with whence.open(path) as db:
        db.execute(SCHEMA)
    with whence.open(path, read_only=True) as reader:
        feed = reader.changes("b")
        for x in range(4):
            with whence.open(path) as db:
                db.insert("a", [(x, f"kept {x}")])
                with suppress(ZeroDivisionError), db.transaction():
                    db.insert("a", [(99, f"in vain {x}")])
                    _ = 1 / 0
                expected.append((x + 1, (f"kept {x}", 1, x), 1))
            assert [(c.epoch, c.row, c.sign) for c in feed] == expected[-1:]
        assert sorted(reader["b"]) == [row for _, row, _ in expected]


def test_a_reader_has_words_of_its_own(db: whence.Database, path: Path) -> None:
    """What a query brings into the reader's dictionary has other codes than the writer gives later."""

    def setup(db: whence.Database) -> None:
        db.create_table_function(
            "words", lambda t: [(f"{t} {i}",) for i in range(3)], args=["TEXT"], returns="(w TEXT)"
        )

    with whence.open(path, read_only=True, setup=setup) as reader:
        db.insert("a", [(1, "x")])
        assert reader["a"].rows == [(1, "x")]
        assert reader.query("SELECT w FROM words('mine') AS f").rows == [("mine 0",), ("mine 1",), ("mine 2",)]
        db.insert("a", [(2, "theirs"), (3, "mine 1")])
        assert sorted(reader["b"]) == [("mine 1", 1, 3), ("theirs", 1, 2), ("x", 1, 1)]
        assert sorted(reader["a"]) == [(1, "x"), (2, "theirs"), (3, "mine 1")]


def in_child(work: Callable[[], object]) -> str:
    """What a forked child says: the error it meets, or nothing."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work()
            os.write(tell, b"nothing")
        except BaseException as error:
            os.write(tell, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(tell)
    with os.fdopen(told) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def test_a_forked_child_may_not_write(db: whence.Database, path: Path) -> None:
    db.insert("a", [(1, "x")])
    for work in (
        lambda: db.insert("a", [(2, "y")]),
        lambda: db.execute("CREATE TABLE c (x INT)"),
        lambda: db.snapshot(),
    ):
        assert "was forked" in in_child(work)
    assert in_child(lambda: len(db["a"])) == "nothing"
    db.insert("a", [(3, "z")])
    abandon(db)
    with whence.open(path) as db:
        assert sorted(db["a"]) == [(1, "x"), (3, "z")]


def test_a_forked_child_that_closes_leaves_the_parent_alone(db: whence.Database, path: Path) -> None:
    """As happens when the child leaves the parent's `with` block."""
    db.insert("a", [(1, "x")])
    files = sorted(path.rglob("*"))

    def close() -> None:
        db.close()

    assert in_child(close) == "nothing"
    assert sorted(path.rglob("*")) == files
    with pytest.raises(LockedError):
        whence.open(path)
    db.insert("a", [(2, "y")])
    abandon(db)
    with whence.open(path) as db:
        assert len(db["a"]) == 2


def test_a_forked_child_closes_what_its_parent_was_just_writing(db: whence.Database, path: Path) -> None:
    log = inside.store(db).log
    log._dirty = True  # as it is in the middle of an append by another thread
    child = os.fork()
    if child == 0:
        while not (path / "go").exists():
            time.sleep(0.01)
        db.close()
        os._exit(0)
    log._dirty = False
    db.insert("a", [(1, "x")])
    (path / "go").touch()
    os.waitpid(child, 0)
    (path / "go").unlink()
    abandon(db)
    with whence.open(path) as db:
        assert db["a"].rows == [(1, "x")]


def test_two_databases_in_one_process(tmp_path: Path) -> None:
    with whence.open(tmp_path / "one") as one, whence.open(tmp_path / "two") as two:
        for db in (one, two):
            db.execute(SCHEMA)
        one.insert("a", [(1, "in one")])
        two.insert("a", [(1, "in two"), (2, "in two")])
        one.snapshot()
    with whence.open(tmp_path / "one") as one, whence.open(tmp_path / "two") as two:
        assert (one["b"].rows, two["b"].rows) == ([("in one", 1, 1)], [("in two", 2, 1)])


# -- leaving -----------------------------------------------------------------------------------------------------------


def test_closing_twice(db: whence.Database, path: Path) -> None:
    db.insert("a", [(1, "x")])
    db.close()
    files = {file: file.stat().st_mtime_ns for file in path.rglob("*")}
    db.close()
    assert {file: file.stat().st_mtime_ns for file in path.rglob("*")} == files
    for use in (lambda: db["a"].rows, lambda: db.insert("a", [(2, "y")]), db.sync, db.snapshot, lambda: db.at(0)):
        with pytest.raises(whence.WhenceError, match="closed"):
            use()


ENDINGS = {
    "the end": ("", 0),
    "exit": ("sys.exit(3)", 3),
    "error": ("raise ValueError('oops')", 1),
    "_exit": ("os._exit(4)", 4),
    "dropped": ("db = None; gc.collect(); os._exit(5)", 5),
}
UNCLOSED = """
    import gc, os, sys, whence
    db = whence.open(sys.argv[1], durability="none")
    db.execute("CREATE TABLE a (id INT PRIMARY KEY, t TEXT)")
    for x in range(5):
        db.insert("a", [(x, str(x))])
    {}
"""


def test_processes_that_do_not_close(tmp_path: Path) -> None:
    programs = {
        name: [sys.executable, "-c", textwrap.dedent(UNCLOSED.format(ending)), str(tmp_path / name)]
        for name, (ending, _) in ENDINGS.items()
    }
    running = {name: subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for name, command in programs.items()}
    for name, process in running.items():
        _, said = process.communicate(timeout=600)  # it takes long on a busy machine
        assert process.returncode == ENDINGS[name][1], f"{name}: {said}"
        with whence.open(tmp_path / name, read_only=True) as db:
            assert sorted(db["a"]) == [(x, str(x)) for x in range(5)], name


def test_a_database_nobody_holds_any_more_lets_go_of_its_lock(path: Path) -> None:
    import gc

    db = whence.open(path)
    db.execute(SCHEMA)
    db.insert("a", [(1, "x")])
    del db
    gc.collect()
    with whence.open(path) as db:
        assert len(db["a"]) == 1


# -- options -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["commit", "interval", "none"])
def test_durabilities(path: Path, durability: Any) -> None:
    for round_ in range(3):
        with whence.open(path, durability=durability, sync_interval=0.01) as db:
            if not round_:
                db.execute(SCHEMA)
            for x in range(10):
                db.insert("a", [(100 * round_ + x, "x")])
            db.sync()
            db.insert("a", [(100 * round_ + 50, "y")])
    with whence.open(path) as db:
        assert sorted(db["b"]) == [("x", 30, 0), ("y", 3, 50)]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"durability": "always"}, "durability is one of commit, interval, none"),
        ({"durability": None}, "durability"),
        ({"sync_interval": 0}, "sync_interval"),
        ({"sync_interval": -1}, "sync_interval"),
        ({"sync_interval": float("nan")}, "sync_interval"),
        ({"sync_interval": "often"}, "sync_interval"),
        ({"retain": "for ever"}, "retain"),
    ],
)
def test_options_that_make_no_sense(path: Path, options: dict[str, Any], text: str) -> None:
    with pytest.raises(whence.WhenceError, match=text):
        whence.open(path, **options)
    assert not path.exists(), "nothing has been made"


def test_options_of_a_database_in_memory() -> None:
    for options in ({"read_only": True}, {"retain": 5}):
        with pytest.raises(whence.WhenceError, match="has a path"):
            whence.open(**options)
    with whence.open() as db:
        assert (db.path, db.recovery) == (None, None)
        with pytest.raises(whence.WhenceError, match="memory"):
            db.snapshot()


def test_a_path_may_be_a_text_and_new_folders_are_made(tmp_path: Path) -> None:
    path = tmp_path / "some" / "where" / "new"
    with whence.open(str(path)) as db:
        db.execute(SCHEMA)
    with whence.open(path, read_only=True) as db:
        assert db.tables == ["a"]


def test_what_opening_tells(db: whence.Database, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for x in range(200):
        db.insert("a", [(x, "x")])
    db.snapshot()
    for x in range(200):
        db.insert("a", [(x, "y")])
    abandon(db)
    told: list[tuple[str, int, int]] = []
    with (
        caplog.at_level(logging.INFO, "whence"),
        whence.open(path, progress=lambda what, done, total: told.append((what, done, total))) as db,
    ):
        assert len(db["a"]) == 200
    assert any(what == "loading table a" for what, _, _ in told)
    replayed = [(done, total) for what, done, total in told if what == "replaying the log"]
    assert len(replayed) > 2
    assert all(0 <= done <= total for done, total in replayed)
    assert replayed[-1][0] == replayed[-1][1]
    assert any("opened" in record.getMessage() for record in caplog.records)


# -- a time to live ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leave", ["close", "abandon", "snapshot"])
@pytest.mark.parametrize("column", [False, True])
def test_deadlines_last(path: Path, leave: str, column: bool) -> None:
    now = 1000.0

    def reopened(db: whence.Database) -> whence.Database:
        if leave == "snapshot":
            db.snapshot()
        db.close() if leave == "close" else abandon(db)
        return whence.open(path, clock=lambda: now)

    def row(x: int) -> tuple[Any, ...]:
        return (x, dt.datetime.fromtimestamp(now, dt.UTC).replace(tzinfo=None)) if column else (x,)

    db = whence.open(path, clock=lambda: now)
    kind = "x INT, at TIMESTAMP) WITH (ttl = '60 s', ttl_column = 'at')" if column else "x INT) WITH (ttl = '60 s')"
    db.execute(f"CREATE TABLE s ({kind}; CREATE VIEW n AS SELECT COUNT(*) AS n FROM s")
    db.insert("s", [row(1)])
    now = 1010
    db.insert("s", [row(2)])
    db = reopened(db)
    now = 1030
    if not column:
        db.insert("s", [row(1)])  # the same row again: it lives anew, and no view changes
    db = reopened(db)
    db.insert("s", [row(3)])
    db = reopened(db)
    now = 1069.9
    left = 2 if column else 3
    assert db["n"].rows == [(left,)]
    now = 1070
    assert db["n"].rows == [(left - 1,)]
    db = reopened(db)
    now = 1089.9
    assert db["n"].rows == [(left - 1,)]
    db = reopened(db)
    now = 1090
    assert db["n"].rows == [(0,)]
    db = reopened(db)
    assert db["s"].rows == []
    db.close()


def test_what_was_due_while_nobody_looked(path: Path) -> None:
    now = 1000.0
    with whence.open(path, clock=lambda: now) as db:
        db.execute("CREATE TABLE s (x INT) WITH (ttl = '60 s'); CREATE VIEW n AS SELECT COUNT(*) AS n FROM s")
        db.insert("s", [(x,) for x in range(10)])
    now = 2000
    with whence.open(path, read_only=True, clock=lambda: now) as reader:
        assert len(reader["s"]) == 10, "readers see the last epoch that the writer made"
        with whence.open(path, clock=lambda: now) as db:
            assert db["n"].rows == [(0,)]
            assert db.epoch == 2
            assert reader["n"].rows == [(0,)]
    now = 500  # a clock that was set back stands still until it has caught up
    with whence.open(path, clock=lambda: now) as db:
        db.insert("s", [(1,)])
        now = 2059
        assert len(db["s"]) == 1
        now = 2060
        assert len(db["s"]) == 0


def test_the_thread_that_expires_writes_to_disk(path: Path) -> None:
    with whence.open(path) as db:
        db.execute("CREATE TABLE s (x INT) WITH (ttl = '0.2 s')")
        db.insert("s", [(1,)])
        deadline = time.monotonic() + 20
        while db.epoch < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert db.epoch == 2
        abandon(db)
    with whence.open(path) as db:
        assert (db.epoch, db["s"].rows) == (2, [])


def test_a_reader_meets_what_is_declared_after_it_was_opened(path: Path) -> None:
    with whence.open(path) as db, whence.open(path, read_only=True) as reader:
        db.execute("CREATE TABLE late (x INT); CREATE VIEW twice AS SELECT 2 * x AS y FROM late")
        assert (reader.tables, reader.views, "twice" in reader) == (db.tables, db.views, True)
        db.insert("late", [(1,), (2,)])
        assert reader.epoch == db.epoch
        assert reader.query("SELECT SUM(y) AS s FROM twice").rows == [(6,)]
        assert (4,) in reader["twice"]
        db.execute("DROP VIEW twice")
        assert reader.views == db.views


def test_setup_is_for_functions(path: Path) -> None:
    with pytest.raises(whence.WhenceError, match="setup is for functions"):
        whence.open(path, setup=lambda db: db.execute("CREATE TABLE t (x INT)"))
    with whence.open(path, setup=lambda db: db.query("SELECT 'a word of its own' AS w")) as db:
        db.execute("CREATE TABLE t (x TEXT)")
        db.insert("t", ("first",))
    with whence.open(path) as db:
        assert db["t"].rows == [("first",)]


def test_the_recursion_limit_is_kept(path: Path) -> None:
    with whence.open(path, recursion_limit=5) as db:
        db.execute("""
            CREATE TABLE link (a INT, b INT);
            CREATE VIEW path AS SELECT a, b FROM link UNION SELECT l.a, p.b FROM link l JOIN path p ON l.b = p.a
        """)
    for read_only in (False, True):
        with whence.open(path, read_only=read_only) as db:
            assert inside.coordinator(db).recursion_limit == inside.coordinator(db).catalog.recursion_limit == 5
    with whence.open(path) as db, pytest.raises(whence.RecursionLimitError):
        db.insert("link", [(i, i + 1) for i in range(20)])
    with whence.open(path, recursion_limit=100) as db:
        db.insert("link", [(i, i + 1) for i in range(20)])
    with whence.open(path) as db:
        assert len(db["path"]) == 210
