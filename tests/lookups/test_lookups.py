"""Relations from outside as users meet them: what is fetched when, what stays, and what becomes of failures."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.oracle import on_partitions

STREAM = "CREATE STREAM trade (paid TEXT, price INT)"
VIEW = "CREATE VIEW bought AS SELECT paid, price, value FROM trade JOIN rate ON paid = key"


class Outside:
    """A relation from outside, and who asked for what."""

    def __init__(self, **rates: float) -> None:
        self.rates, self.asked = dict(rates), list[str]()

    def __call__(self, key: str) -> float | None:
        self.asked.append(key)
        if key == "down":
            raise OSError("the line is down")
        return self.rates.get(key)


def make(outside: Any, path: Path | None = None, view: str = VIEW, **options: Any) -> whence.Database:
    db = whence.open(path)
    db.create_lookup("rate", outside, **{"memory": "300 rows", **options})
    db.execute(f"{STREAM}; {view}")
    return db


@pytest.mark.parametrize("partitions", [None, 3])
def test_rows_are_fetched_once_and_joined(partitions):
    outside = Outside(usd=0.5, gbp=2.0)
    with on_partitions(partitions):
        db = make(outside)
    db.insert("trade", [("usd", 1), ("gbp", 2), ("usd", 3), ("sek", 4), (None, 5)])
    db.insert("trade", [("gbp", 6)])
    assert db["bought"].rows == [("usd", 1, 0.5), ("gbp", 2, 2.0), ("usd", 3, 0.5), ("sek", 4, None), ("gbp", 6, 2.0)]
    assert sorted(outside.asked) == ["gbp", "sek", "usd"]
    found = db.metrics()["lookups"]["rate"]
    assert (found["rows"], found["hits"], found["misses"], found["failures"]) == (3, 2, 3, 0)
    assert "lookup on paid = key, from outside" in db.explain("bought")


@pytest.mark.parametrize("partitions", [None, 2])
def test_failing_fetch_names_lookup_and_key_and_changes_nothing(partitions):
    outside = Outside(usd=0.5)
    with on_partitions(partitions):
        db = make(outside)
    db.insert("trade", [("usd", 1)])
    with pytest.raises(whence.FetchError, match=r"the row of 'down' was not fetched.*rate.*line is down") as caught:
        db.insert("trade", [("gbp", 2), ("down", 3)])
    assert (caught.value.lookup, caught.value.key) == ("rate", "down")
    assert (db.epoch, db["trade"].rows, db["rate"].rows) == (1, [("usd", 1)], [("usd", 0.5)])
    assert db.metrics()["lookups"]["rate"]["failures"] == 1
    assert "line is down" in db.metrics()["lookups"]["rate"]["error"]
    db.insert("trade", [("gbp", 2)])
    assert len(db["bought"]) == 2
    assert db.metrics()["lookups"]["rate"]["error"] is None


@pytest.mark.parametrize(
    ("fetch", "options", "message"),
    [
        (lambda key: "no number", {}, "value: 'no number'.*is not a value of type DOUBLE"),
        (lambda key: (1.0, 2.0), {}, "it gave 2 values for 1 columns"),
        (lambda key: {"price": 1.0}, {}, "a column 'price', which rate does not have"),
        (lambda key: 1.0, {"returns": "a INT, b INT"}, "1.0 for 2 columns: give a tuple or a mapping"),
        (lambda keys: [1.0], {"many": True}, "not a mapping from keys to values"),
        (lambda key: threading.Event().wait(30), {"timeout": 0.05}, "it took longer than 0.05 s"),
    ],
)
def test_what_is_no_row_is_an_error(fetch, options, message):
    view = "CREATE VIEW bought AS SELECT price FROM trade JOIN rate ON paid = key"
    db = make(fetch, view=view, **options)
    with pytest.raises(whence.FetchError, match=message):
        db.insert("trade", [("usd", 1)])
    assert len(db["trade"]) == len(db["rate"]) == 0


def test_many_keys_are_fetched_together_and_columns_have_names():
    asked = []

    def fetch(keys: list[str]) -> dict[str, Any]:
        asked.append(keys)
        return {"usd": {"euro": 0.5}, "gbp": (2.0, 7)}

    view = "CREATE VIEW bought AS SELECT price * euro AS x, days FROM trade JOIN rate USING (paid)"
    db = make(fetch, view=view, key="paid TEXT", returns="euro DOUBLE, days INT", many=True)
    db.insert("trade", [("usd", 2), ("gbp", 3), ("usd", 4)])
    assert asked == [["usd", "gbp"]]
    assert db["bought"].rows == [(1.0, None), (6.0, 7), (2.0, None)]


def test_calls_run_beside_each_other():
    both = threading.Barrier(2)

    def fetch(key: str) -> float:
        both.wait(30)  # breaks, unless two calls wait at a time
        return 1.0

    db = make(fetch, parallel=2)
    db.insert("trade", [(key, 1) for key in ("a", "b", "c", "d")])
    assert len(db["bought"]) == 4


def test_readers_are_not_kept_waiting_by_a_call():
    found, db = [], None

    def fetch(key: str) -> float:
        reader = threading.Thread(target=lambda: found.append(len(db["trade"])))
        reader.start()
        reader.join(30)
        return 1.0

    db = make(fetch)
    db.insert("trade", [("usd", 1)])
    assert found == [0]


def test_memory_bounds_what_is_kept():
    outside = Outside(**{f"k{i}": float(i) for i in range(50)})
    db = make(outside, memory="5 rows", keep="lru")
    for i in range(50):
        db.insert("trade", [(f"k{i}", i)])
        assert len(db["rate"]) <= 6  # five, and what has come last
    assert [row[0] for row in sorted(db["rate"].rows, key=lambda row: row[1])][-5:] == [f"k{i}" for i in range(45, 50)]
    db.insert("trade", [(f"k{i}", i) for i in range(45, 50)])
    assert len(outside.asked) == 50
    db.insert("trade", [(f"k{i}", i) for i in range(30)])  # an epoch that needs more than fits
    db.insert("trade", [("k29", 1)])
    assert len(db["rate"]) == 5
    assert [row[2] for row in db["bought"].rows[-31:-1]] == [float(i) for i in range(30)]


@pytest.mark.parametrize("partitions", [None, 2])
def test_replay_fetches_nothing_and_gives_the_same(tmp_path: Path, partitions):
    outside = Outside(usd=0.5, gbp=2.0)
    with on_partitions(partitions):
        with make(outside, tmp_path / "db", memory="2 rows", keep="lru") as db:
            for step, key in enumerate(["usd", "gbp", "sek", "usd", "usd", "gbp"]):
                outside.rates["usd"] = float(step)
                db.insert("trade", [(key, step)])
                if step == 2:
                    db.snapshot()
            rows, kept, asked = db["bought"].rows, sorted(db["rate"].rows), len(outside.asked)
        with whence.open(tmp_path / "db") as db:
            assert db["bought"].rows == rows
            assert sorted(db["rate"].rows) == kept
            assert len(outside.asked) == asked
            db.insert("trade", [(kept[0][0], 1)])  # whose row is there
            with pytest.raises(whence.FetchError, match=r"'nok'.*call db.create_lookup again"):
                db.insert("trade", [("nok", 1)])
            db.create_lookup("rate", outside, memory="2 rows", keep="lru")
            db.insert("trade", [("nok", 1)])
            assert db["bought"].rows[-1] == ("nok", 1, None)


def test_outside_that_has_changed_is_asked_again():
    outside = Outside(usd=0.5, gbp=2.0)
    db = make(outside)
    db.insert("trade", [("usd", 1), ("gbp", 1)])
    outside.rates |= {"usd": 0.25, "gbp": 4.0}
    assert db.refresh_lookup("rate", "usd") == 1
    db.insert("trade", [("usd", 2), ("gbp", 2)])
    assert db.refresh_lookup("rate") == 2
    assert db.refresh_lookup("rate", ["nok"]) == 0
    db.insert("trade", [("usd", 3), ("gbp", 3)])
    values = [row[2] for row in db["bought"].rows]
    assert values == [0.5, 2.0, 0.25, 2.0, 0.25, 4.0]


def test_row_with_a_lifetime_is_fetched_again_when_it_is_up():
    now = [1000.0]
    outside = Outside(usd=0.5, gbp=2.0)
    db = whence.open(clock=lambda: now[0])
    db.create_lookup("rate", outside, memory="9 rows", options={"ttl": "10 s"})
    db.execute(f"{STREAM}; {VIEW}")
    for time, usd in [(0, 0.5), (5, 0.6), (11, 0.7), (12, 0.8), (22, 0.7), (31, 0.9), (33, 1.0)]:
        now[0], outside.rates["usd"] = 1000.0 + time, usd
        db.insert("trade", [("usd", time)])
    assert [row[1:] for row in db["bought"].rows] == [
        (0, 0.5), (5, 0.5), (11, 0.7), (12, 0.7), (22, 0.7), (31, 0.7), (33, 1.0)
    ]  # fmt: skip
    assert len(outside.asked) == 4


def test_view_made_over_rows_that_are_there_fetches_for_them():
    outside = Outside(usd=0.5, gbp=2.0)
    db = whence.open()
    db.create_lookup("rate", outside, memory="300 rows")
    db.execute(STREAM)
    db.insert("trade", [("usd", 1), ("gbp", 2)])
    assert outside.asked == []
    db.execute(VIEW)
    assert db["bought"].rows == [("usd", 1, 0.5), ("gbp", 2, 2.0)]
    outside.rates = {}
    with pytest.raises(whence.FetchError):
        db.insert("trade", [("down", 1)])
    assert len(db["bought"]) == 2


def test_lookup_of_what_another_lookup_gave():
    db = whence.open()
    db.create_lookup("home", {"ann": "nl", "bob": "se"}.get, returns="TEXT", memory="9 rows")
    db.create_lookup("capital", {"nl": "Amsterdam"}.get, returns="TEXT", memory="9 rows")
    db.execute("""
      CREATE STREAM visit (who TEXT);
      CREATE VIEW at AS SELECT who, home.value AS land FROM visit JOIN home ON who = home.key;
      CREATE VIEW in_city AS SELECT who, capital.value AS city FROM at JOIN capital ON land = capital.key;
    """)
    db.insert("visit", [("ann",), ("bob",), ("eve",)])
    assert db["in_city"].rows == [("ann", "Amsterdam"), ("bob", None)]


def test_left_join_and_windows_over_a_lookup():
    db = make(Outside(usd=0.5, gbp=2.0), view="""
      CREATE VIEW every AS SELECT price, value FROM trade LEFT JOIN rate ON paid = key AND value > 1;
      CREATE VIEW strict AS SELECT 1 // CAST(value AS INT) AS x
        FROM trade LEFT JOIN rate ON paid = key WHERE paid IS NOT NULL;
      CREATE VIEW bought AS SELECT SUM(price * value) AS s
        FROM slide((SELECT price, value FROM trade JOIN rate ON paid = key), rows => 2, every => 1)
    """)  # fmt: skip
    db.insert("trade", [("gbp", 1), (None, 2), ("gbp", 4)])
    db.insert("trade", [("gbp", 1)])
    assert db["every"].rows == [(1, 2.0), (2, None), (4, 2.0), (1, 2.0)]
    assert db["bought"].rows == [(10.0,), (10.0,)]
    assert len(db["strict"]) == 3


def test_dry_run_fetches_and_keeps_nothing():
    outside = Outside(usd=0.5)
    db = make(outside)
    found = db.what_if(insert={"trade": [("usd", 1)]})
    assert found["bought"].inserted == [("usd", 1, 0.5)]
    assert (db.epoch, len(db["rate"]), outside.asked) == (0, 0, ["usd"])


def test_feeds_tell_what_was_joined():
    db = make(Outside(usd=0.5))
    feed = db.changes("bought")
    db.insert("trade", [("usd", 1)])
    assert [change.row for change in feed] == [("usd", 1, 0.5)]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT * FROM rate", '"rate" is a lookup, of which only some rows are here'),
        ("SELECT price FROM trade JOIN rate ON price = value", '"rate" is fetched by its key: say which column'),
        ("SELECT x FROM t JOIN rate ON x = key", '"rate" is a lookup'),
        ("SELECT price FROM trade WHERE paid IN (SELECT key FROM rate WHERE value > 1)", '"rate" is a lookup'),
    ],
)
def test_query_that_needs_all_rows_is_refused(query, message):
    db = make(Outside())
    db.execute("CREATE TABLE t (x TEXT)")
    with pytest.raises(whence.SqlError, match=message):
        db.execute(f"CREATE VIEW bad AS {query}")
    if "JOIN" in query:
        with pytest.raises(whence.WhenceError, match="lookup"):
            db.subscribe(query)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("CREATE TABLE a (x INT) WITH (memory = '3 rows')", "needs a PRIMARY KEY of one column"),
        ("CREATE TABLE a (x INT, y INT, PRIMARY KEY (x, y)) WITH (memory = '3 rows')", "PRIMARY KEY of one column"),
        (
            "CREATE TABLE a (x INT PRIMARY KEY, y INT NOT NULL) WITH (memory = '3 rows')",
            "are NULL where there is no row",
        ),
        ("CREATE TABLE a (x INT PRIMARY KEY CHECK (x > 1)) WITH (memory = '3 rows')", "leave CHECK out"),
        ("CREATE TABLE a (x INT PRIMARY KEY) WITH (keep = 'lru')", "say how many, with memory"),
        ("CREATE STREAM a (x INT) WITH (memory = '3 rows')", "a stream has no option"),
    ],
)
def test_table_that_can_be_no_lookup_is_refused(sql, message):
    with pytest.raises(whence.SqlError, match=message):
        whence.open().execute(sql)


def test_lookup_is_not_written_to_and_other_definitions_are_refused():
    db = make(Outside())
    with pytest.raises(whence.CatalogError, match="its rows are fetched"):
        db.insert("rate", ("usd", 1.0))
    with pytest.raises(whence.CatalogError, match="is no lookup"):
        db.refresh_lookup("trade")
    with pytest.raises(whence.CatalogError, match='"rate" exists already'):
        db.create_lookup("rate", Outside(), memory="4 rows")
    with pytest.raises(whence.WhenceError, match="fetch is a function"):
        db.create_lookup("other", 7, memory="4 rows")
    assert "other" not in db.tables
    with pytest.raises(whence.WhenceError, match="key and returns are types"):
        db.create_lookup("other", Outside(), key="what is this", memory="4 rows")


@pytest.fixture
def service() -> Iterator[str]:
    """An HTTP service that knows two rates."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = {"/rate/usd": 0.5, "/rate/a%2Fb": 3.0}.get(self.path)
            self.send_response(200 if found else 500 if self.path == "/rate/down" else 404)
            self.end_headers()
            self.wfile.write(json.dumps({"rates": {"eur": found}}).encode())

        def log_message(self, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/rate/{{key}}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_rows_come_from_an_http_service(service):
    db = make(whence.HttpService(service, field="rates.eur"))
    db.insert("trade", [("usd", 1), ("a/b", 2), ("nok", 3)])
    assert [row[2] for row in db["bought"].rows] == [0.5, 3.0, None]
    with pytest.raises(whence.FetchError, match=r"'down'.*HTTP Error 500"):
        db.insert("trade", [("down", 1)])
    with pytest.raises(whence.WhenceError, match=r"with \{key\} in it"):
        whence.HttpService("http://example.org/rate")


def test_rows_come_from_a_table_of_postgresql():
    psycopg = pytest.importorskip("psycopg")
    from benchmarks.peers import postgres_peer as pg

    if pg.missing():
        pytest.skip(pg.missing() or "")
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)  # the server's own account looks in
    server = pg.PostgresServer(folder)
    try:
        server.open([])
        address = pg.address(server.port)
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("CREATE TABLE rates (currency TEXT PRIMARY KEY, eur DOUBLE PRECISION)")
            connection.execute("INSERT INTO rates VALUES ('usd', 0.5), ('gbp', 2)")
        db = make(whence.PostgresTable(address, "public.rates", key="currency", columns=["eur"]))
        db.insert("trade", [("usd", 1), ("gbp", 2), ("nok", 3)])
        assert [row[2] for row in db["bought"].rows] == [0.5, 2.0, None]
    finally:
        server.stop()
        shutil.rmtree(folder)
    with pytest.raises(whence.FetchError, match="OperationalError"):
        db.insert("trade", [("sek", 1)])


def test_metrics_of_a_server_have_hits_and_misses():
    from whence.server.web.metrics import database_families

    db = make(Outside(usd=0.5))
    db.insert("trade", [("usd", 1), ("usd", 2)])
    found = {family.name: samples for family, samples in database_families(db.metrics(), names=True)}
    assert found["whence_lookup_hits_total"] == {"rate": 1}
    assert found["whence_lookup_misses_total"] == {"rate": 1}
    assert found["whence_lookup_rows"] == {"rate": 1}
