"""Views of subscriptions: right after every update, invisible to everybody else, and never in anyone's way."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import whence
from tests import inside
from tests.state.test_faults import NoSync
from whence.runtime.questions import provenance_queries
from whence.runtime.transient_views import SUBSCRIPTION

SCHEMA = """
CREATE TABLE link (src TEXT, dst TEXT, cost INT);
CREATE TABLE city (name TEXT, people INT);
CREATE STREAM said (who TEXT, at INT, what TEXT) WITH (retain = '30 rows');
CREATE VIEW reach AS
  SELECT src, dst FROM link UNION SELECT reach.src, link.dst FROM reach JOIN link ON reach.dst = link.src;
CREATE VIEW busy AS SELECT src, COUNT(*) AS n FROM link GROUP BY src;
"""
RELATIONS = [
    "SELECT * FROM link",
    "SELECT * FROM reach",
    "SELECT src, dst || '!' AS dst FROM reach WHERE src <> 'b'",
    "SELECT src, COUNT(*) AS n, MAX(dst) AS last FROM reach GROUP BY src",
    "SELECT src, cost FROM link ORDER BY cost DESC, src LIMIT 3",
    "SELECT src, cost FROM link ORDER BY cost",
    "SELECT DISTINCT dst FROM link",
    "SELECT l.src, c.people FROM link AS l JOIN city AS c ON l.dst = c.name",
    "SELECT name FROM city WHERE NOT EXISTS (SELECT 1 FROM link WHERE link.src = city.name)",
    "SELECT busy.src, n, people FROM busy LEFT JOIN city ON busy.src = city.name",
    "WITH RECURSIVE go(src, dst) AS (SELECT src, dst FROM link UNION "
    "SELECT go.src, link.dst FROM go JOIN link ON go.dst = link.src) SELECT dst, COUNT(*) AS n FROM go GROUP BY dst",
    "WITH RECURSIVE path(src, dst, cost) AS (SELECT src, dst, cost FROM link UNION "
    "SELECT p.src, l.dst, p.cost + l.cost FROM path AS p JOIN link AS l ON p.dst = l.src) "
    "SELECT src, dst, MIN(cost) AS cost FROM path GROUP BY src, dst",
    "SELECT 'constant of a query' AS x",
]
STREAMS = [
    "SELECT who, UPPER(what) AS what FROM said",
    "SELECT said.who, people FROM said JOIN city ON said.who = city.name",
    "SELECT who, COUNT(*) AS n, MAX(what) AS last FROM slide(said, on => at, width => 4, every => 2) GROUP BY who",
    "SELECT who, what FROM latest(said, rows => 2, by => who)",
    "SELECT who, COUNT(*) AS n FROM said GROUP BY who",
]
CITIES = ["a", "b", "c", "d", "e"]
Row = tuple[Any, ...]


def create(db: whence.Database, sql: str) -> str:
    """Make a transient view; return its name."""
    return inside.coordinator(db).definitions.create_transient(sql)  # type: ignore[no-any-return]


def drop(db: whence.Database, *names: str) -> None:
    inside.coordinator(db).definitions.drop_transient(*names)


def transient(db: whence.Database) -> list[str]:
    return list(inside.coordinator(db).catalog.transient)


def rows(db: whence.Database, name: str) -> Counter[Row]:
    table = inside.coordinator(db).reader.read_arrow(name)[1]
    return Counter(tuple(row.values()) for row in table.to_pylist())


def feed(db: whence.Database, name: str) -> Any:
    return inside.coordinator(db).reader.changes(name, snapshot=True)


def applied(changes: Any, to: Counter[Row]) -> Counter[Row]:
    """Add what a feed has to the rows that it began from."""
    for change in changes:
        to[change.row] += change.sign
    assert all(count >= 0 for count in to.values())
    return +to


def update(db: whence.Database, rng: random.Random, at: int) -> None:
    """Change something of everything."""
    with db.transaction():
        for _ in range(3):
            db.insert("link", (rng.choice(CITIES), rng.choice(CITIES), rng.randrange(1, 9)))
        present = list(db["link"].rows)
        for row in rng.sample(present, min(2, len(present))):
            db.delete("link", row)
        db.insert("city", (rng.choice(CITIES), rng.randrange(100)))
        db.insert("said", [(rng.choice(CITIES), at + i // 2, f"word {rng.randrange(30)}") for i in range(4)])


@pytest.fixture(params=["memory", "folder", "partitions"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[whence.Database]:
    options: dict[str, Any] = {"partitions": 3} if request.param == "partitions" else {}
    path = () if request.param == "memory" else (tmp_path / "db",)
    with whence.open(*path, **options) as found:
        found.execute(SCHEMA)
        yield found


# -- rows --------------------------------------------------------------------------------------------------------------


def test_transient_views_equal_views_and_queries_after_every_update(db: whence.Database) -> None:
    rng = random.Random(7)
    for step in range(3):
        update(db, rng, step * 2)
    queries = RELATIONS + STREAMS
    # A view of the same query, made at the same time: windows over streams begin with the rows that are kept.
    names = [create(db, sql) for sql in queries]
    for number, sql in enumerate(queries):
        db.execute(f"CREATE VIEW v{number} AS {sql}")
    feeds, told = [feed(db, name) for name in names], [Counter[Row]() for _ in names]
    for step in range(3, 12):
        for number, name in enumerate(names):
            assert rows(db, name) == rows(db, f"v{number}"), queries[number]
            told[number] = applied(feeds[number], told[number])
            if number < len(RELATIONS) or number == len(queries) - 1:
                assert told[number] == rows(db, name), queries[number]
        update(db, rng, step * 2)
    for number, sql in enumerate(RELATIONS):
        if "path" not in sql:  # where DuckDB would not end
            assert Counter(db.query(sql).rows) == rows(db, names[number]), sql
    drop(db, *names[::2])
    update(db, rng, 40)
    for number, name in list(enumerate(names))[1::2]:
        assert rows(db, name) == rows(db, f"v{number}"), queries[number]
    drop(db, *names)
    assert transient(db) == []
    assert not any(op.transient for op in inside.dataflow(db).order)


def test_reader_reads_a_transient_view(db: whence.Database) -> None:
    db.insert("said", [("a", 1, "x"), ("b", 2, "y")])
    reader = inside.coordinator(db).reader
    stream, relation = create(db, "SELECT who, at FROM said WHERE at > 1"), create(db, "SELECT MAX(at) AS m FROM said")
    assert (reader.is_stream(stream), reader.is_stream(relation)) == (True, False)
    assert (str(reader.schema(stream)), reader.size(stream)) == ("(who TEXT, at INTEGER)", 1)
    assert rows(db, relation) == Counter([(2,)])
    changes = feed(db, stream)
    db.insert("said", ("a", 1, "z"))
    db.insert("said", ("a", 7, "z"))
    assert [change.row for change in changes] == [("b", 2), ("a", 7)]


def test_why_explains_rows_of_a_transient_view(db: whence.Database) -> None:
    db.insert("link", [("a", "b", 1), ("b", "c", 2)])
    for sql, row in [
        ("SELECT dst FROM reach WHERE src = 'a' AND dst = 'c'", ("c",)),
        ("SELECT src, COUNT(*) AS n FROM reach GROUP BY src", ("a", 2)),
        (RELATIONS[11], ("a", "c", 3)),
    ]:
        found = provenance_queries.why(inside.coordinator(db), create(db, sql), row, {})
        assert [{table for table, _ in witness} for witness in found.witnesses] == [{"link"}]
        assert len(found.witnesses[0]) == 2
    name = create(db, "SELECT who FROM said WHERE at > 1")
    db.insert("said", ("b", 2, "y"))
    found = provenance_queries.why(inside.coordinator(db), name, ("b",), {})
    assert [row["what"] for _, row in found.witnesses[0]] == ["y"]


def test_transient_view_of_two_equal_texts_share_operators(db: whence.Database) -> None:
    sql = "SELECT src, SUM(cost) AS s FROM link GROUP BY src"
    one = create(db, sql)
    before = len(inside.dataflow(db).order)
    two = create(db, sql)
    assert len(inside.dataflow(db).order) == before
    drop(db, one)
    db.insert("link", ("a", "b", 4))
    assert rows(db, two) == Counter([("a", 4)])


# -- nobody sees them --------------------------------------------------------------------------------------------------


def test_transient_views_are_invisible(db: whence.Database) -> None:
    db.insert("said", ("a", 1, "x"))
    views, metrics = db.views, db.metrics()
    statements, epoch = inside.coordinator(db).catalog.statements(), db.epoch
    for sql in RELATIONS + STREAMS:
        create(db, sql)
    assert (db.views, inside.coordinator(db).catalog.statements(), db.epoch) == (views, statements, epoch)
    now = db.metrics()
    for known in ("views", "streams", "tables", "rows_out", "provenance", "late", "shipped"):
        assert str(metrics.get(known)) == str(now.get(known)), known
    listed = [str(entry) for entry in db.state()]
    assert any(SUBSCRIPTION in entry for entry in listed)
    assert not any("$subscription" in entry for entry in listed)
    with pytest.raises(whence.WhenceError) as caught:
        db.query("SELECT * FROM subscription_1")
    assert "$" not in str(caught.value)
    with pytest.raises(whence.SqlError, match="unknown table or view"):
        db.execute('CREATE VIEW mine AS SELECT * FROM "$subscription_1"')
    with pytest.raises(whence.WhenceError):
        db.query('SELECT * FROM "$subscription_1"')
    with pytest.raises(whence.SqlError, match="unknown table or view"):
        create(db, f'SELECT * FROM "$subscription_{len(RELATIONS + STREAMS) + 1}"')  # itself


def test_rows_out_leaves_transient_views_out(db: whence.Database) -> None:
    create(db, "SELECT src FROM link WHERE cost > 0")
    db.insert("link", ("a", "b", 1))
    assert db.metrics()["rows_out"] == 2  # of reach and busy


@pytest.mark.parametrize("statement", ["TABLE", "STREAM", "VIEW"])
def test_users_cannot_make_reserved_names(db: whence.Database, statement: str) -> None:
    what = "AS SELECT 1 AS x" if statement == "VIEW" else "(x INT)"
    with pytest.raises(whence.CatalogError, match="only names of the database's own do"):
        db.execute(f'CREATE {statement} "$subscription_9" {what}')


@pytest.mark.parametrize(
    ("sql", "line", "column", "message"),
    [
        ("SELECT\n nothing FROM link", 2, 2, 'unknown column "nothing"'),
        ("SELECT 1 AS x FROM ghost", 1, 20, 'unknown table or view "ghost"'),
        ("SELECT 1; SELECT 2", None, None, "expected one statement"),
        ("CREATE TABLE x (y INT)", 1, 1, "takes a SELECT"),
        ("SELECT name FROM slide(city, rows => 3)", 1, 24, 'slide needs a stream, and "city" is a table'),
        ("SELECT a.who FROM said AS a JOIN said AS b ON a.who = b.who", None, None, "in the query: two streams"),
        (
            "WITH RECURSIVE r(x) AS (SELECT cost FROM link UNION SELECT cost FROM link "
            "WHERE cost NOT IN (SELECT x FROM r)) SELECT * FROM r",
            None,
            None,
            "the recursion r -> r goes through",
        ),
        ("WITH RECURSIVE r(x) AS (SELECT x FROM r) SELECT * FROM r", 1, None, '"r" has no branch'),
    ],
)
def test_bad_query_is_refused_as_by_create_view(
    db: whence.Database, sql: str, line: int | None, column: int | None, message: str
) -> None:
    with pytest.raises(whence.SqlError) as caught:
        create(db, sql)
    assert message in str(caught.value)
    assert "subscription" not in str(caught.value)
    assert caught.value.line == line
    assert column is None or caught.value.column == column
    assert transient(db) == []
    db.insert("link", ("a", "b", 1))
    assert rows(db, "reach") == Counter([("a", "b")])


def test_query_that_fails_on_the_rows_changes_nothing(db: whence.Database) -> None:
    db.insert("city", ("seven", 7))
    with pytest.raises(whence.EvaluationError) as caught:
        create(db, "SELECT CAST(name AS INT) AS n FROM city")
    assert "subscription" not in str(caught.value)
    assert transient(db) == []
    db.insert("link", [("a", "b", 1), ("b", "a", 1)])
    endless = "WITH RECURSIVE r(n) AS (SELECT cost FROM link UNION SELECT n + 1 FROM r) SELECT n FROM r"
    inside.coordinator(db).recursion_limit = inside.coordinator(db).catalog.recursion_limit = 100
    inside.coordinator(db).catalog.planner._recursion_limit = 100
    with pytest.raises(whence.RecursionLimitError) as stopped:
        create(db, endless)
    assert "the query does not end" in str(stopped.value)
    assert "subscription" not in str(stopped.value)
    assert transient(db) == []


# -- nobody waits for them ---------------------------------------------------------------------------------------------


def ended(changes: Any) -> str:
    with pytest.raises(whence.CatalogError) as caught:
        list(changes)
    return str(caught.value)


def test_drop_of_what_a_transient_view_reads(db: whence.Database) -> None:
    direct, through, other = (
        create(db, "SELECT n FROM busy"),
        create(db, "SELECT * FROM reach"),
        create(db, "SELECT name FROM city"),
    )
    feeds = [feed(db, name) for name in (direct, through, other)]
    db.execute("DROP VIEW busy")
    assert ended(feeds[0]) == '"busy", which the query reads, was dropped: its changes have ended'
    assert transient(db) == [through, other]
    with pytest.raises(whence.CatalogError, match="reach depends"):
        db.execute("DROP TABLE link")
    assert transient(db) == [through, other]
    db.insert("link", ("a", "b", 1))
    assert [change.row for change in feeds[1]] == [("a", "b")]
    db.execute("DROP TABLE link CASCADE")
    assert "was dropped" in ended(feeds[1])
    db.insert("city", ("a", 1))
    assert [change.row for change in feeds[2]] == [("a",)]
    with pytest.raises(whence.CatalogError, match="there is no table or view"):
        rows(db, direct)


def test_replacing_what_a_transient_view_reads(db: whence.Database) -> None:
    db.insert("link", [("a", "b", 1), ("a", "c", 2)])
    name, other = create(db, "SELECT src FROM busy"), create(db, "SELECT dst FROM link")
    changes = feed(db, name)
    db.execute("CREATE OR REPLACE VIEW busy AS SELECT dst AS target, COUNT(*) AS n FROM link GROUP BY dst")
    assert "was redefined" in ended(changes)
    assert transient(db) == [other]
    with pytest.raises(whence.SqlError, match='unknown column "src"'):
        create(db, "SELECT src FROM busy")
    again = create(db, "SELECT target FROM busy")
    db.execute("CREATE OR REPLACE VIEW busy AS SELECT DISTINCT dst AS target, 1 AS n FROM link")
    with pytest.raises(whence.CatalogError):
        rows(db, again)
    assert rows(db, create(db, "SELECT target FROM busy")) == Counter([("b",), ("c",)])


def test_failed_change_leaves_transient_views_as_they_were(db: whence.Database) -> None:
    db.insert("city", ("seven", 7))
    name = create(db, "SELECT src FROM busy")
    changes = feed(db, name)
    with pytest.raises(whence.EvaluationError):
        db.execute("CREATE OR REPLACE VIEW busy AS SELECT name AS src, CAST(name AS INT) AS n FROM city")
    db.insert("link", ("a", "b", 1))
    assert [change.row for change in changes] == [("a",)]
    assert rows(db, name) == Counter([("a",)])


def test_transient_view_that_fails_on_new_rows_does_not_stop_the_writer(
    db: whence.Database, caplog: pytest.LogCaptureFixture
) -> None:
    db.insert("city", ("7", 7))
    numbers, spread, names = (
        create(db, "SELECT CAST(name AS INT) AS n FROM city"),
        create(db, "SELECT a.people, SUM(CAST(a.name AS INT)) AS n FROM city AS a GROUP BY a.people"),
        create(db, "SELECT name FROM city"),
    )
    feeds = [feed(db, name) for name in (numbers, spread, names)]
    assert db.insert("city", [("seven", 8)]) == 1
    assert transient(db) == [names]
    for changes in feeds[:2]:
        assert "the query failed on new rows: cannot be read as INTEGER" in ended(changes)
    assert [change.row for change in feeds[2]] == [("7",), ("seven",)]
    assert "subscribed to failed" in caplog.text
    assert "$" not in caplog.text
    db.execute("CREATE VIEW strict AS SELECT CAST(dst AS INT) AS n FROM link")  # of others' views it is an error
    create(db, "SELECT CAST(src AS INT) AS n FROM link")
    with pytest.raises(whence.EvaluationError):
        db.insert("link", ("1", "one", 1))
    assert len(transient(db)) == 2
    assert db.what_if(insert={"link": [("one", "1", 1)]}).epoch == db.epoch
    assert len(transient(db)) == 1


def test_recursion_without_end_in_a_transient_view_does_not_stop_the_writer(db: whence.Database) -> None:
    coordinator = inside.coordinator(db)
    coordinator.recursion_limit = coordinator.catalog.recursion_limit = 100
    coordinator.catalog.planner._recursion_limit = 100
    name = create(db, "WITH RECURSIVE r(n) AS (SELECT cost FROM link UNION SELECT n + 1 FROM r) SELECT n FROM r")
    changes = feed(db, name)
    db.insert("link", ("a", "b", 1))
    assert "the query failed on new rows: the query does not end" in ended(changes)
    assert rows(db, "reach") == Counter([("a", "b")])


def test_redefined_function_ends_the_transient_views_that_call_it() -> None:
    with whence.open() as db:
        db.execute("CREATE TABLE t (x BIGINT)")
        db.insert("t", (1,))
        db.create_function("twice", lambda x: 2 * x, args=["BIGINT"], returns="BIGINT")
        name, other = create(db, "SELECT twice(x) AS y FROM t"), create(db, "SELECT x FROM t")
        changes = feed(db, name)
        assert rows(db, name) == Counter([(2,)])
        db.create_function("twice", lambda x: 20 * x, args=["BIGINT"], returns="BIGINT")
        assert "was redefined" in ended(changes)
        assert transient(db) == [other]
        assert rows(db, create(db, "SELECT twice(x) AS y FROM t")) == Counter([(20,)])


def test_create_and_drop_transient_while_others_write(db: whence.Database) -> None:
    stop, failures = threading.Event(), list[BaseException]()

    def subscribe(seed: int) -> None:
        rng = random.Random(seed)
        try:
            while not stop.is_set():
                name = create(db, rng.choice(RELATIONS))
                rows(db, name)
                drop(db, name)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=subscribe, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    rng = random.Random(3)
    for step in range(15):
        update(db, rng, step * 2)
        if step % 5 == 4:
            db.execute("CREATE OR REPLACE VIEW busy AS SELECT src, COUNT(*) AS n FROM link GROUP BY src")
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert transient(db) == []


def test_refused_inside_a_transaction_where_nothing_is_written_and_when_closed(tmp_path: Path) -> None:
    with whence.open(tmp_path / "db") as db:
        db.execute("CREATE TABLE t (x INT)")
        db.insert("t", (1,))
        with db.transaction(), pytest.raises(whence.WhenceError, match="inside a transaction"):
            create(db, "SELECT x FROM t")
        name = create(db, "SELECT x FROM t")
        with db.transaction():
            drop(db, name)
            drop(db, name)
            db.insert("t", (2,))
        assert rows(db, "t") == Counter([(1,), (2,)])
        with db.at(1) as past, pytest.raises(whence.WhenceError, match="open for reading only"):
            create(past, "SELECT x FROM t")
        with whence.open(tmp_path / "db", read_only=True) as other:
            with pytest.raises(whence.WhenceError, match="open for reading only"):
                create(other, "SELECT x FROM t")
            assert rows(other, "t") == Counter([(1,), (2,)])
        name = create(db, "SELECT x FROM t")
    with pytest.raises(whence.WhenceError, match="closed"):
        create(db, "SELECT x FROM t")
    drop(db, name)


# -- aggregate selection -----------------------------------------------------------------------------------------------

PATHS = """
CREATE TABLE hop (src TEXT, dst TEXT, cost INT);
CREATE VIEW path AS
  SELECT src, dst, cost FROM hop
  UNION SELECT path.src, hop.dst, path.cost + hop.cost FROM path JOIN hop ON path.dst = hop.src;
CREATE VIEW best AS SELECT src, dst, MIN(cost) AS cost FROM path GROUP BY src, dst;
"""


def test_subscribing_never_changes_how_others_run(db: whence.Database) -> None:
    db.execute(PATHS)
    db.insert("hop", [("a", "b", 1), ("b", "a", 1), ("a", "b", 5)])  # whole, path would have no end
    path, best, plan = rows(db, "path"), rows(db, "best"), db.explain("path")
    operators = list(inside.dataflow(db).order)
    name = create(db, "SELECT * FROM path")
    assert rows(db, name) == path == Counter({tuple(row): 1 for row in db["path"].rows})
    least = create(db, "SELECT src, MAX(cost) AS cost FROM path GROUP BY src")
    assert (rows(db, "path"), rows(db, "best"), db.explain("path")) == (path, best, plan)
    db.delete("hop", ("a", "b", 1))
    assert rows(db, name) == rows(db, "path")
    assert rows(db, least) == Counter([("a", 6), ("b", 6)])
    drop(db, name, least)
    if not inside.is_partitioned(db):
        assert inside.dataflow(db).order == operators
    with pytest.raises(whence.RecursionLimitError):
        db.execute("CREATE VIEW everything AS SELECT * FROM path")


def test_readers_of_a_view_that_is_cut_down_otherwise_are_told(db: whence.Database) -> None:
    db.execute(PATHS)
    db.insert("hop", [("a", "b", 1), ("a", "b", 5)])
    name, changes = create(db, "SELECT * FROM path"), db.changes("path")
    mine = feed(db, name)
    assert rows(db, "path") == Counter([("a", "b", 1)])
    db.execute("CREATE VIEW cheap AS SELECT * FROM path WHERE cost < 100")
    assert rows(db, "path") == Counter([("a", "b", 1), ("a", "b", 5)])
    assert "redefined" in ended(mine)
    assert "cut down to other rows" in ended(changes)
    name, changes, best = create(db, "SELECT * FROM path"), db.changes("path"), db.changes("best")
    db.execute("DROP VIEW cheap")
    assert rows(db, "path") == Counter([("a", "b", 1)])
    assert "cut down to other rows" in ended(changes)
    assert list(best) == []
    assert rows(db, create(db, "SELECT * FROM path")) == Counter([("a", "b", 1)])


# -- what lasts --------------------------------------------------------------------------------------------------------


def contents(db: whence.Database) -> dict[str, Counter[Row]]:
    return {name: rows(db, name) for name in (*db.tables, *db.streams, *db.views)}


@contextmanager
def reopened(path: Path, **options: Any) -> Iterator[whence.Database]:
    with whence.open(path, **options) as db:
        assert db.recovery is not None
        assert db.recovery.damaged == ()
        assert transient(db) == []
        yield db
    assert whence.check(path).ok


def lived(path: Path, stop: Callable[[whence.Database], None], **options: Any) -> dict[str, Counter[Row]]:
    """Write, take an image and write more, while transient views come and go; return what there is."""
    rng = random.Random(11)
    db = whence.open(path, **options)
    db.execute(SCHEMA)
    db.execute("CREATE VIEW loud AS SELECT UPPER(what) || '!' AS what FROM said")
    names = [create(db, sql) for sql in RELATIONS + STREAMS]
    for step in range(4):
        update(db, rng, step * 2)
    drop(db, *names[::3])
    db.snapshot()
    names += [create(db, sql) for sql in RELATIONS[::4]]
    for step in range(4, 7):
        update(db, rng, step * 2)
        create(db, f"SELECT 'a word of a transient view, {step}' AS word, dst || ' {step}' AS dst FROM link")
    db.execute("CREATE VIEW later AS SELECT src || '?' AS src FROM link WHERE dst <> 'another constant'")
    update(db, rng, 14)
    found = contents(db)
    stop(db)
    return found


@pytest.mark.parametrize("partitions", [None, 3])
def test_folder_opens_as_if_there_had_been_no_transient_views(tmp_path: Path, partitions: int | None) -> None:
    options: dict[str, Any] = {} if partitions is None else {"partitions": partitions}
    found = lived(tmp_path / "db", lambda db: db.close(), **options)
    with reopened(tmp_path / "db", **options) as db:
        assert db.recovery is not None
        assert (db.recovery.replayed, db.recovery.primed) == (0, 0)
        assert contents(db) == found
        assert set(db.views) == {"reach", "busy", "loud", "later"}
        update(db, random.Random(1), 20)


@pytest.mark.parametrize("partitions", [None, 3])
def test_folder_opens_after_kill(tmp_path: Path, partitions: int | None) -> None:
    options: dict[str, Any] = {} if partitions is None else {"partitions": partitions}
    path, told = tmp_path / "db", tmp_path / "told"

    def die(db: whence.Database) -> None:
        told.write_text(repr(contents(db)))
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        try:
            lived(path, die, **options)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    with reopened(path, **options) as db:
        assert db.recovery is not None
        assert db.recovery.replayed > 0
        # What was made after the image is computed by the replay; what the image has is taken from it.
        assert db.recovery.primed <= 3 * (partitions or 1)
        assert contents(db) == eval(told.read_text(), {"Counter": Counter})
        for sql in RELATIONS:
            assert rows(db, create(db, sql)) is not None


def test_view_does_not_begin_from_the_state_of_a_transient_one(tmp_path: Path) -> None:
    """The log knows nothing of it: what a replay makes must be what was made at first."""
    window = "SELECT COUNT(*) AS n, MIN(at) AS first FROM slide(said, rows => 4, every => 3)"
    db = whence.open(tmp_path / "db")
    db.execute("CREATE STREAM said (at INT) WITH (retain = '5 rows')")
    name = create(db, window)
    for at in range(20):
        db.insert("said", (at,))
    db.execute(f"CREATE VIEW w AS {window}")
    assert rows(db, "w") != rows(db, name)
    for at in range(20, 31):
        db.insert("said", (at,))
    found = rows(db, "w")
    inside.store(db).close()  # no last image: everything is replayed
    with whence.open(tmp_path / "db") as again:
        assert rows(again, "w") == found


def test_dropped_view_does_not_live_on_in_a_transient_one(tmp_path: Path) -> None:
    window = "SELECT COUNT(*) AS n, MIN(at) AS first FROM slide(said, rows => 4, every => 3)"
    db = whence.open(tmp_path / "db")
    db.execute(f"CREATE STREAM said (at INT) WITH (retain = '5 rows'); CREATE VIEW w AS {window}")
    create(db, window)
    for at in range(20):
        db.insert("said", (at,))
    db.execute(f"DROP VIEW w; CREATE VIEW w AS {window}")
    for at in range(20, 31):
        db.insert("said", (at,))
    found = rows(db, "w")
    inside.store(db).close()
    with whence.open(tmp_path / "db") as again:
        assert rows(again, "w") == found


@pytest.mark.parametrize("place", ["memory", "folder"])
def test_words_of_transient_views_are_kept_while_they_are_there(place: str, tmp_path: Path) -> None:
    path = tmp_path / "db"
    db = whence.open(path) if place == "folder" else whence.open()
    db.execute("CREATE TABLE t (x TEXT); CREATE VIEW v AS SELECT x || '.' AS y FROM t")
    db.insert("t", [(f"word {i}",) for i in range(50)])
    name = create(db, "SELECT x || ' of a transient view' AS y, 'its constant' AS z FROM t WHERE x <> 'excluded'")
    changes = feed(db, name)
    told = applied(changes, Counter())
    words = inside.coordinator(db).words
    db.delete("t", [(f"word {i}",) for i in range(25)])
    assert words.collect(asked=True) > 0
    db.insert("t", [(f"word {i}",) for i in range(10)])
    expected = Counter((f"word {i} of a transient view", "its constant") for i in (*range(10), *range(25, 50)))
    assert rows(db, name) == applied(changes, told) == expected
    held = inside.dictionary(db).words
    drop(db, name)
    assert words.collect(asked=True) >= 35
    assert inside.dictionary(db).words < held
    db.insert("t", [("word 3",), ("its constant",)])
    found = contents(db)
    if place == "folder":
        inside.store(db).close()
        with reopened(path) as again:
            assert contents(again) == found
    else:
        db.close()


def test_transient_views_are_forgotten_when_the_database_begins_again(tmp_path: Path) -> None:
    disk = NoSync()
    with whence.open(tmp_path / "db", disk=disk) as db:
        db.execute(SCHEMA)
        db.insert("link", ("a", "b", 1))
        name = create(db, "SELECT src FROM link")
        changes = feed(db, name)
        disk.broken = True
        with pytest.raises(whence.StorageError):
            db.insert("link", ("b", "c", 1))
        disk.broken = False
        assert rows(db, "reach") == Counter([("a", "b")])
        assert transient(db) == []
        assert "ask for the changes again" in ended(changes)
        drop(db, name)
        again = create(db, "SELECT src FROM link")
        assert again != name
        assert rows(db, again) == Counter([("a",)])


def test_partition_that_is_loaded_from_its_image_has_the_transient_views(tmp_path: Path) -> None:
    with whence.open(tmp_path / "db", partitions=3) as db:
        db.execute(SCHEMA)
        rng = random.Random(5)
        names = [create(db, sql) for sql in RELATIONS + STREAMS]
        for step in range(4):
            update(db, rng, step * 2)
        db.snapshot()
        update(db, rng, 10)
        found = [rows(db, name) for name in names]
        inside.driver(db).runner._local.clear()  # as if the processes had died
        inside.coordinator(db).reader.forget_all()
        assert [rows(db, name) for name in names] == found
        update(db, rng, 12)
        for name, sql in zip(names, RELATIONS, strict=False):
            assert rows(db, name) == rows(db, create(db, sql)), sql


def test_transient_views_on_spark(spark: Any, tmp_path: Path) -> None:
    queries = [RELATIONS[3], RELATIONS[7]]
    with whence.open(tmp_path / "db", spark=spark, partitions=2) as db:
        db.execute(SCHEMA)
        db.insert("link", [("a", "b", 1), ("b", "c", 2)])
        inside.run_as(db, "job")
        names = [create(db, sql) for sql in queries]
        bad = feed(db, create(db, "SELECT CAST(name AS INT) AS n FROM city"))
        changes = [feed(db, name) for name in names]
        with db.transaction():
            db.insert("link", ("c", "d", 3))
            db.insert("city", ("d", 4))
        assert "failed on new rows" in ended(bad)
        db.snapshot()
        inside.run_as(db, "inline")  # processes here have yet to load the image
        db.delete("link", ("a", "b", 1))
        for number, sql in enumerate(queries):
            told = applied(changes[number], Counter())
            assert told == rows(db, names[number]) == rows(db, create(db, sql)), sql
        db.execute("DROP VIEW reach")
        assert "was dropped" in ended(changes[0])
        found = contents(db)
    with reopened(tmp_path / "db", spark=spark) as db:
        assert contents(db) == found
