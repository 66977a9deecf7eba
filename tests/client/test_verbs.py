"""A served database has the verbs of a local one: with the same results, and the same errors."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import whence
from whence.client.blocking import Client
from whence.model.codes import Interval
from whence.runtime.database import Database
from whence.server.app import Server

LARGEST = 2**63 - 1
INTERVALS = st.builds(Interval, st.integers(-1000, 1000), st.integers(-1000, 1000), st.integers(-(10**12), 10**12))
ROWS = st.lists(
    st.tuples(
        st.integers(-(2**31), 2**31 - 1),
        st.none() | st.booleans(),
        st.none() | st.integers(-(2**31), 2**31 - 1),
        st.none() | st.integers(-LARGEST, LARGEST),
        st.none() | st.floats(allow_nan=False),
        st.none() | st.decimals(-(10**7), 10**7, places=2),
        st.none() | st.decimals(-(10**30), 10**30, places=4),
        st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
        st.none() | st.dates(),
        st.none() | st.datetimes(),
        st.none() | INTERVALS,
    ),
    max_size=20,
    unique_by=lambda row: row[0],
)


def by_id(rows: Any) -> list[Any]:
    return sorted(rows, key=lambda row: row[0])


@given(rows=ROWS, data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_of_every_type_are_as_in_a_local_database(
    client: Client, db: Database, rows: list[Any], data: st.DataObject
) -> None:
    client.delete("t", where="TRUE")
    how = data.draw(st.sampled_from(["tuples", "dicts", "one by one", "arrow", "frame"]))
    names = db["t"].columns
    with whence.open() as local:
        local.execute(db.statements[0])
        local.insert("t", rows)
        arrow = local["t"].to_arrow()
    match how:
        case "tuples":
            assert client.insert("t", rows) == len(rows)
        case "dicts":
            client.insert("t", [dict(zip(names, row, strict=True)) for row in rows])
        case "one by one":
            for row in rows:
                client.insert("t", row)
        case "arrow":
            client.insert("t", arrow)
        case "frame":
            client.insert("t", pl.from_arrow(arrow.drop_columns("span")), missing="null")
            arrow = arrow.set_column(10, "span", pa.nulls(len(rows), arrow.schema.field("span").type))
    expected = by_id(whence.Result(arrow).rows)
    assert by_id(db["t"].rows) == by_id(client["t"].rows) == expected
    assert by_id(client.query("SELECT * FROM t")) == expected
    assert client["t"].to_arrow().schema == db["t"].to_arrow().schema
    assert sorted(map(repr, client["named"].rows)) == sorted(map(repr, db["named"].rows))
    assert len(client["t"]) == len(rows)
    for row in expected[:3]:
        assert row in client["t"]
        assert client["t"].where(id=row[0]).rows == [row]
        assert client.delete("t", key=row[0]) == 1
        assert row not in client["t"]


VALUES: list[Any] = [
    1, -7, 2**53 + 1, 1.5, float("inf"), Decimal("2.50"), "it's", True, None, dt.date(2026, 11, 17),
    dt.datetime(2026, 11, 17, 10, 32, 0, 5), Interval(1, 2, 3), dt.timedelta(hours=1),
    np.int32(7), np.datetime64("2026-11-17"),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_parameters_have_the_types_of_their_values(client: Client, db: Database, value: Any) -> None:
    for sql, params in (("SELECT ? AS x", [value]), ("SELECT :v AS x", {"v": value})):
        mine, local = client.query(sql, params), db.query(sql, params)
        assert (mine.rows, mine.to_arrow().schema) == (local.rows, local.to_arrow().schema)


def test_a_list_is_a_parameter_for_in(client: Client) -> None:
    days = [dt.date(2026, 1, 1), dt.date(2026, 1, 2)]
    assert client.query("SELECT DATE '2026-01-02' IN (?) AS x", [days]).rows == [(True,)]


def test_insert_takes_all_kinds_of_rows(client: Client, db: Database, tmp_path: Path) -> None:
    path = tmp_path / "link.csv"
    path.write_text("src,dst\ni,j\n")
    given: list[Any] = [
        ("a", "b"),
        [("b", "c"), ["c", "d"]],
        {"src": "d", "dst": "e"},
        [{"src": "e", "dst": "f"}, ("f", "g")],
        (("g", "h") for _ in range(1)),
        pd.DataFrame({"dst": ["i"], "src": ["h"]}),
        path,
        pl.DataFrame({"src": ["j"], "dst": ["k"]}),
    ]
    assert [client.insert("link", rows) for rows in given] == [1, 2, 1, 2, 1, 1, 1, 1]
    assert sorted(client["link"].rows) == [(x, y) for x, y in zip("abcdefghij", "bcdefghijk", strict=True)]
    assert client.insert("link", [{"src": "z"}, {"dst": "z"}], missing="null") == 2
    assert client.insert("link", []) == 0


def test_insert_in_batches_makes_an_epoch_of_each(client: Client, db: Database) -> None:
    before = db.epoch
    assert client.insert("link", [(str(i), "x") for i in range(10)], batch=3) == 10
    assert 1 <= db.epoch - before <= 4
    assert len(client["link"]) == 10


def test_an_insert_that_is_too_large_is_refused_before_it_is_sent(db: Database) -> None:
    with (
        whence.serve(db, port=0, limits={"message_bytes": 5_000}) as server,
        whence.connect(server.url, token=server.token) as client,
    ):
        rows = [(f"{i:100}", "x") for i in range(100)]
        with pytest.raises(whence.LimitError, match="batch="):
            client.insert("link", rows)
        assert client.insert("link", rows, batch=20) == 100
        with pytest.raises(whence.LimitError):
            client.subscribe(f"SELECT src FROM link WHERE src <> '{'x' * 10_000}'")
        assert client.query("SELECT 1 AS x").rows == [(1,)]


def test_options_of_insert(client: Client, db: Database) -> None:
    assert client.insert("link", [("a", "b", "+"), ("a", "b", "-")], op="op") == 2
    assert client["link"].rows == []
    assert client.insert("s", [(1,), ("two",)], on_error="reject") == 1
    assert db.query("SELECT line FROM rejects").rows == [(2,)]
    assert client.insert("s", [(1,), ("two",)], on_error="skip") == 1


def test_delete_and_update_by_rows_keys_and_conditions(client: Client, db: Database) -> None:
    db.execute("CREATE TABLE two (a INT, b TEXT, day DATE, PRIMARY KEY (a, b))")
    rows = [(i, "x", dt.date(2026, 1, 1 + i)) for i in range(8)]
    client.insert("two", rows)
    assert client.delete("two", rows[0]) == 1
    assert client.delete("two", rows[:2]) == 1
    assert client.delete("two", {"day": dt.date(2026, 1, 3)}) == 1
    assert client.delete("two", key=(3, "x")) == 1
    assert client.delete("two", key=[(4, "x"), (99, "x")]) == 1
    assert client.delete("two", where={"day": [dt.date(2026, 1, 6), dt.date(2026, 2, 1)]}) == 1
    assert client.delete("two", where="day = ?", params=[dt.date(2026, 1, 7)]) == 1
    assert client["two"].rows == [rows[7]]
    assert client.update("two", {"day": dt.date(2027, 1, 1)}, {"a": 7}) == 1
    assert client.update("two", {"b": "y"}, key=(7, "x")) == 1
    assert client.update("two", {"b": "z"}, "a > :n", params={"n": 100}) == 0
    assert client["two"].rows == [(7, "y", dt.date(2027, 1, 1))]
    assert client.delete("two", pa.table({"a": [7], "b": ["y"], "day": [dt.date(2027, 1, 1)]})) == 1
    with pytest.raises(whence.MissingRowError, match="no row"):
        client.delete("two", rows[0], strict=True)
    assert client.delete("link", ("a", "b"), early="hold") == 0
    client.insert("link", ("a", "b"))
    assert client["link"].rows == []


ERRORS: list[Callable[[Any], Any]] = [
    lambda d: d.query("SELECT nope FROM link"),
    lambda d: d.query("SELEC 1"),
    lambda d: d.query("SELECT ? AS x", []),
    lambda d: d.insert("ghost", [(1,)]),
    lambda d: d.insert("link", [("a", "b"), ("c", 1)]),
    lambda d: d.insert("link", [("a",)]),
    lambda d: d.insert("link", [{"src": "a"}]),
    lambda d: d.insert("link", [{"src": "a", "nope": "b"}]),
    lambda d: d.insert("link", 7),
    lambda d: d.insert("t", [(1, *[None] * 2, 2**70, *[None] * 7)]),
    lambda d: d.delete("link"),
    lambda d: d.delete("ghost", where="TRUE"),
    lambda d: d.update("link", {"nope": 1}),
    lambda d: d.execute("CREATE TABLE link (x INT)"),
    lambda d: d.execute("DROP TABLE link"),
    lambda d: d["ghost"].rows,
    lambda d: d["link"].where(nope=1).rows,
    lambda d: d.why("reachable"),
    lambda d: d.why("ghost", x=1),
    lambda d: d.why("reachable", ("a", "b"), src="a"),
    lambda d: d.trace("s", 99),
    lambda d: d.describe("ghost"),
    lambda d: d.query(7),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors_are_those_of_a_local_database(client: Client, db: Database, number: int) -> None:
    db.insert("link", ("a", "b"))
    with pytest.raises(whence.WhenceError) as local:
        ERRORS[number](db)
    with pytest.raises(whence.WhenceError) as served:
        ERRORS[number](client)
    assert type(served.value) is type(local.value)
    if not isinstance(local.value, whence.CatalogError):  # a server does not say what else there is
        assert str(served.value) == str(local.value)
    for name in ("line", "column", "text"):
        assert getattr(served.value, name, None) == getattr(local.value, name, None)


def test_scripts(client: Client, db: Database) -> None:
    assert (
        client.execute("CREATE TABLE a (x INT); CREATE VIEW b AS SELECT DISTINCT x FROM a").message == "view b created"
    )
    found = client.execute("INSERT INTO a VALUES (1), (:n)", {"n": 2})
    assert (found.count, found.message, found.is_rows) == (2, "2 rows inserted", False)
    assert client.execute("UPDATE a SET x = 7 WHERE x = 1").message == "1 row updated"
    assert client.execute("INSERT INTO a VALUES (9); DELETE FROM a WHERE x = 2").count == 1
    assert sorted(client.execute("SELECT x FROM b").rows) == [(7,), (9,)]
    assert client.execute("-- nothing").message == "nothing to do"
    assert client.execute("DESCRIBE a").rows == db.execute("DESCRIBE a").rows
    assert client.execute("EXPLAIN b").rows == db.execute("EXPLAIN b").rows
    assert client.execute("SHOW TABLES").rows == db.execute("SHOW TABLES").rows
    found = client.execute("CREATE TABLE IF NOT EXISTS a (y TEXT)")
    assert found.warnings == db.execute("CREATE TABLE IF NOT EXISTS a (y TEXT)").warnings != ()


def test_names_and_descriptions(client: Client, db: Database) -> None:
    assert (client.tables, client.streams, client.views) == (db.tables, db.streams, db.views)
    for name in (*db.tables, *db.streams, *db.views):
        assert name in client
        assert client[name].schema == db[name].schema
        assert client[name].columns == db[name].columns
        assert client.describe(name).to_dicts() == db.describe(name).to_dicts()
    assert "ghost" not in client
    assert client.explain("reachable") == db.explain("reachable")
    assert client["LINK"].name == "link"
    assert (client.epoch, client.position) == (db.epoch, None)
    db.insert("link", ("a", "b"))
    assert client.epoch == db.epoch == 1
    assert client.metrics()["rows_in"] == db.metrics()["rows_in"]


def test_handles(client: Client, db: Database, tmp_path: Path) -> None:
    db.insert("link", [("a", "b"), ("b", "c"), ("b", "c")])
    mine, local = client["link"], db["link"]
    assert mine.to_arrow() == local.to_arrow()
    assert mine.to_dicts() == local.to_dicts()
    assert mine.to_pandas().equals(local.to_pandas())
    assert mine.to_polars().equals(local.to_polars())
    assert list(mine) == list(local)
    assert len(mine.where(src="b")) == 2
    assert mine.where({"src": ["a", "b"]}, dst="c").rows == [("b", "c"), ("b", "c")]
    assert ("a", "b") in mine
    assert {"src": "a", "dst": "b"} in mine
    assert ("a", "b") not in mine.where(src="b")
    assert ("a",) not in mine
    assert ("a", 7) not in mine
    assert repr(mine) == repr(local)
    assert mine._repr_html_() == local._repr_html_()
    mine.write(tmp_path / "link.csv")
    assert (tmp_path / "link.csv").read_text().count("\n") == 4
    with pytest.raises(whence.DataError, match="given twice"):
        mine.where(src="a").where(src="b")
    with pytest.raises(whence.DataError, match="a condition in SQL is a query"):
        mine.where("src = 'a'")  # type: ignore[arg-type]


def test_the_past_is_read_only(tmp_path: Path) -> None:
    with whence.open(tmp_path / "db", retain=100) as db:
        db.execute("CREATE TABLE a (x INT); CREATE VIEW b AS SELECT DISTINCT x FROM a")
        for x in range(3):
            db.insert("a", (x,))
        with whence.serve(db, port=0) as server, whence.connect(server.url, token=server.token) as client:
            past = client.at(2)
            assert (sorted(past["a"]), past.epoch, len(past["b"])) == ([(0,), (1,)], 2, 2)
            assert past.query("SELECT MAX(x) AS m FROM a").rows == [(1,)]
            assert not past.why("b", x=2)
            assert past.what_if(insert={"a": [(7,)]})["b"].inserted == [(7,)]
            assert not hasattr(past, "insert")
            with pytest.raises(whence.WhenceError):
                client.at(99)["a"].rows  # noqa: B018


def test_a_transaction_is_one_epoch_or_nothing(client: Client, db: Database) -> None:
    db.insert("link", [("a", "b"), ("b", "c")])
    before = db.epoch
    with client.transaction():
        assert client.insert("link", [("x", "y"), ("y", "z")]) == 2
        assert client.delete("link", ("a", "b")) == -1
        with client.transaction():
            assert client.update("link", {"dst": "d"}, {"src": "b"}) == -1
        assert sorted(client["link"].rows) == [("a", "b"), ("b", "c")]
    assert db.epoch == before + 1
    assert client.position == db.position
    assert sorted(client["link"].rows) == [("b", "d"), ("x", "y"), ("y", "z")]
    with pytest.raises(ZeroDivisionError), client.transaction():
        client.insert("link", ("never", str(1 / 0)))
    with pytest.raises(whence.DataError), client.transaction():
        client.insert("link", [("never", "there"), ("never", 7)])
    with client.transaction():
        pass
    with pytest.raises(whence.WhenceError, match="not part of a transaction"), client.transaction():
        client.execute("DELETE FROM link")
    assert db.epoch == before + 1


def test_a_transaction_belongs_to_its_thread(client: Client, db: Database) -> None:
    with client.transaction():
        other = threading.Thread(target=client.insert, args=("link", ("other", "thread")))
        other.start()
        other.join()
        assert db["link"].rows == [("other", "thread")]
        client.insert("link", ("this", "one"))
        assert len(db["link"]) == 1
    assert len(db["link"]) == 2


# -- questions -------------------------------------------------------------------------------------------------------


@pytest.fixture
def network(db: Database) -> Database:
    db.insert("link", [("a", "b"), ("b", "c"), ("a", "c")])
    moment = dt.datetime(2026, 1, 2, 3, 4, 5)
    typed = [
        True,
        7,
        2**60,
        1.5,
        Decimal("2.50"),
        Decimal("1e20"),
        "ada",
        dt.date(2026, 1, 1),
        moment,
        Interval(1, 2, 3),
    ]
    db.insert("t", [(1, *typed)])
    db.insert("s", [(1,), (2,), (3,)])
    return db


def test_why_says_what_it_says_locally(client: Client, network: Database) -> None:
    mine, local = client.why("reachable", src="a", dst="c"), network.why("reachable", src="a", dst="c")
    for name in ("view", "row", "epoch", "holds", "reasons", "base", "witnesses", "witness_count", "complete",
                 "critical", "formula", "exact", "caveat", "blockers", "lacking", "summary"):  # fmt: skip
        assert getattr(mine, name) == getattr(local, name), name
    assert str(mine) == str(local)
    assert bool(mine)
    assert mine.to_json().replace(" ", "") == local.to_json().replace(" ", "")
    assert mine.to_dict().keys() == local.to_dict().keys()
    assert "<pre" in mine._repr_html_()
    assert client.why("reachable", ("b", "c")).witnesses == [[("link", {"src": "b", "dst": "c"})]]
    assert client.why("reachable", {"src": "b", "dst": "c"}).holds


def test_why_not_says_what_it_says_locally(client: Client, network: Database) -> None:
    mine, local = client.why("reachable", src="c", dst="a"), network.why("reachable", src="c", dst="a")
    assert (mine.holds, mine.reasons, mine.lacking, mine.blockers) == (
        False, local.reasons, local.lacking, local.blockers,
    )  # fmt: skip
    assert [(r.action, r.table, r.row) for r in mine.remedies] == [(r.action, r.table, r.row) for r in local.remedies]
    assert str(mine) == str(local)
    assert (mine.formula, mine.witness_count, mine.complete) == (local.formula, local.witness_count, local.complete)


def test_rows_of_answers_have_the_types_of_their_columns(client: Client, network: Database) -> None:
    mine, local = client.why("named", name="ada"), network.why("named", name="ada")
    assert mine.base == local.base
    assert mine.row == local.row
    assert [(c.name, c.row, c.copies) for c in mine.contributing] == [
        (c.name, c.row, c.copies) for c in local.contributing
    ]
    assert mine.contributing[0].shares[0].part == local.contributing[0].shares[0].part
    found = client.what_if(delete={"t": [{"id": 1}]})
    assert found.tables["t"].deleted == network["t"].rows
    assert found["named"].deleted == network["named"].rows


def test_streams_are_traced_and_explained(client: Client, network: Database) -> None:
    mine, local = client.why("pairs", total=5), network.why("pairs", total=5)
    assert (mine.tid, mine.tids, mine.rows) == (local.tid, local.tids, local.rows)  # type: ignore[attr-defined]
    assert str(mine) == str(local)
    assert client.why("pairs", tid=1).rows == network.why("pairs", tid=1).rows  # type: ignore[attr-defined]
    trace, there = client.trace("s", 2), network.trace("s", 2)
    assert (trace.tids, trace.rows, len(trace), str(trace)) == (there.tids, there.rows, len(there), str(there))
    assert (trace["pairs"].rows, trace["pairs"].complete) == (there["pairs"].rows, True)
    assert client.trace("s", x=3).tid == 3


def test_other_questions_say_what_they_say_locally(client: Client, network: Database) -> None:
    critical, there = client.critical("reachable"), network.critical("reachable")
    assert (critical.items(), critical.of, str(critical)) == (there.items(), there.of, str(there))
    assert (critical[0], len(critical), critical.to_dicts()) == (there[0], len(there), there.to_dicts())
    few, some = client.critical("reachable", src="a"), network.critical("reachable", src="a")
    assert (few.where, few.rows) == (some.where, some.rows)
    resilience, least = (
        client.resilience("reachable", src="a", dst="c"),
        network.resilience("reachable", src="a", dst="c"),
    )
    assert (resilience.count, resilience.at_least, resilience.exact) == (least.count, least.at_least, least.exact)
    assert resilience.rows == least.rows
    value, local = client.contribution("reachable", ("a", "c")), network.contribution("reachable", ("a", "c"))
    assert (value.items(), value.method, value.exact) == (local.items(), local.method, local.exact)
    assert (value.shapley, value.banzhaf) == (local.shapley.tolist(), local.banzhaf.tolist())
    likely = client.reliability("reachable", src="a", dst="c", given={"link": 0.5})
    truth = network.reliability("reachable", src="a", dst="c", given={"link": 0.5})
    assert (float(likely), likely.method, str(likely)) == (float(truth), truth.method, str(truth))
    assert likely.to_dict() == truth.to_dict()


def test_what_if_says_what_it_says_locally(client: Client, network: Database) -> None:
    writes: dict[str, Any] = {
        "insert": {"link": [("c", "d"), {"src": "d", "dst": "e"}]},
        "delete": {"link": "src = :x"},
        "update": {"t": [({"name": "bob"}, {"id": 1})]},
        "params": {"x": "b"},
    }
    mine, local = client.what_if(**writes), network.what_if(**writes)
    assert str(mine) == str(local)
    assert mine["reachable"].inserted == local["reachable"].inserted
    assert mine["reachable"].columns == local["reachable"].columns
    assert mine["pairs"].inserted == []
    assert [change.name for change in mine.changed] == [change.name for change in local.changed]
    assert bool(mine)
    assert client.what_if("DELETE FROM link WHERE src = ?", ["b"])["reachable"].deleted
    assert not client.what_if()
    assert list(client.what_if(insert={"link": [("z", "z")]}, views="reachable")) == ["reachable"]


def slow_network(client: Client) -> None:
    client.execute("CREATE TABLE e (a INT, b INT, p DOUBLE); CREATE VIEW r AS SELECT a, b FROM e "
                   "UNION SELECT e.a, r.b FROM e JOIN r ON e.b = r.a")  # fmt: skip
    client.insert("e", [(i, j, 0.5) for i in range(12) for j in range(12) if i != j])


def test_progress_is_reported_in_the_thread_that_asks_and_can_cancel(client: Client) -> None:
    slow_network(client)
    threads = []

    def progress(what: str, done: int, total: int) -> None:
        threads.append(threading.current_thread())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client.reliability("r", a=0, b=11, given={"e": "p"}, samples=50_000_000, progress=progress)
    assert threads == [threading.current_thread()]
    assert client.query("SELECT 1 AS x").rows == [(1,)]


def test_a_question_that_takes_too_long_is_a_timeout(client: Client) -> None:
    slow_network(client)
    with pytest.raises(whence.QuestionTimeout) as error:
        client.reliability("r", a=0, b=11, given={"e": "p"}, samples=50_000_000, timeout="0.2 s")
    assert error.value.seconds == 0.2


# -- positions, threads ----------------------------------------------------------------------------------------------


def test_position_is_that_of_the_last_write_and_can_be_waited_for(client: Client, db: Database) -> None:
    assert client.position is None
    client.insert("link", ("a", "b"))
    assert client.position == db.position
    assert client.query("SELECT COUNT(*) AS n FROM link", at_least=client.position).rows == [(1,)]
    assert client.read("link", at_least=str(client.position), columns=["dst"], limit=1).rows == [("b",)]
    client.delete("link", ("a", "b"))
    assert client.position == db.position
    other = whence.Position("0" * 12, "0" * 8, 7)
    with pytest.raises(whence.WhenceError, match="history"):
        client.query("SELECT 1 AS x", at_least=other)
    ahead = db.position._replace(epoch=99)
    with pytest.raises(whence.QuestionTimeout):
        client.query("SELECT 1 AS x", at_least=ahead, timeout=0.1)


def test_many_inserts_are_under_way_at_once(client: Client, db: Database) -> None:
    futures = [client.insert("link", (str(i), "x"), wait=False) for i in range(3_000)]
    bad = client.insert("link", ("bad", 7), wait=False)  # type: ignore[call-overload]
    assert sum(future.result(60) for future in futures) == 3_000
    with pytest.raises(whence.DataError):
        bad.result(60)
    assert len(db["link"]) == 3_000


def test_threads_share_a_client(client: Client, db: Database) -> None:
    failed = []

    def work(number: int) -> None:
        try:
            for i in range(20):
                client.insert("link", (f"{number}", f"{i}"))
                assert len(client["link"].where(src=str(number))) == i + 1
                assert client.query("SELECT ? AS x", [number]).rows == [(number,)]
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(db["link"]) == 160


def test_a_closed_client_says_so(server: Server) -> None:
    client = whence.connect(server.url, token=server.token)
    subscription = client.subscribe("link")
    assert "connected" in repr(client)
    client.close()
    client.close()
    for call in (lambda: client.query("SELECT 1 AS x"), lambda: client.insert("link", ("a", "b")), subscription.next):
        with pytest.raises(whence.WhenceError, match="closed"):
            call()
