"""HTTP: every verb over a real server, in every format, with its errors."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest

import whence
from tests.server.requesting import ARROW, Requester, arrow_body

PROGRAM = """
CREATE TABLE link (src TEXT, dst TEXT);
CREATE VIEW reachable AS
  SELECT src, dst FROM link UNION SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;
CREATE TABLE item (id INT PRIMARY KEY, name TEXT);
CREATE TABLE typed (b BOOLEAN, i INT, l BIGINT, d DOUBLE, m DECIMAL(30,2), t TEXT, day DATE, at TIMESTAMP, s INTERVAL);
CREATE STREAM tick (t INT, x INT);
CREATE VIEW late_ticks AS SELECT t, x FROM bsort(tick, on => t, slack => 0);
CREATE VIEW summed WITH (provenance = 'lineage') AS SELECT SUM(x) AS s FROM slide(tick, rows => 2, every => 1);
CREATE VIEW windows AS SELECT COUNT(*) AS n FROM slide(tick, on => t, width => 10, every => 10);
"""
TYPED = [
    True,
    7,
    2**62,
    1.5,
    "12345678901234567890.25",
    "it's \u00e9",
    "2026-11-17",
    "2026-11-17T10:32:00.123456",
    "1 month 2 days 00:00:03",
]


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[whence.Database]:
    with whence.open(tmp_path_factory.mktemp("served") / "db", retain="all") as found:
        found.execute(PROGRAM)
        found.insert("link", [("A", "B"), ("B", "C"), ("A", "C")])
        yield found


@pytest.fixture(scope="module")
def server(db: whence.Database) -> Iterator[whence.Server]:
    with whence.serve(db, port=0) as found:
        yield found


@pytest.fixture(scope="module")
def ask(server: whence.Server) -> Requester:
    return Requester(server)


@pytest.fixture(autouse=True)
def empty(db: whence.Database) -> Iterator[None]:
    yield
    for table in ("item", "typed"):
        db.execute(f"DELETE FROM {table}")


# -- reading ---------------------------------------------------------------------------------------------------------


def test_a_view_in_each_format(ask: Requester) -> None:
    found = ask.get("/v1/view/reachable?src=A")
    assert sorted(found.rows) == [["A", "B"], ["A", "C"]]
    assert found.json["columns"] == [["src", "TEXT"], ["dst", "TEXT"]]
    assert found.headers["content-type"] == "application/json"
    assert found.headers["whence-position"] == found.json["position"]
    assert found.headers["etag"] == f'W/"{found.json["position"]}"'
    arrow = ask.get("/v1/view/reachable?src=A", accept=ARROW)
    assert sorted(arrow.arrow.to_pylist(), key=str) == [{"src": "A", "dst": "B"}, {"src": "A", "dst": "C"}]
    text = ask.get("/v1/view/reachable?src=A", accept="text/csv;q=1, */*;q=0.1")
    assert sorted(csv.reader(io.StringIO(text.text))) == [["A", "B"], ["A", "C"], ["src", "dst"]]
    assert text.headers["content-type"] == "text/csv; charset=utf-8"


def test_rows_are_chosen_by_columns_values_and_number(ask: Requester, db: whence.Database) -> None:
    db.insert("item", [(1, "one"), (2, None), (3, "three")])
    assert ask.get("/v1/view/item?id=1&id=3&columns=name").rows == [["one"], ["three"]]
    assert ask.get("/v1/view/ITEM?ID=2").rows == [[2, None]]
    assert ask.get(f"/v1/view/item?where={quote(json.dumps({'name': None}))}").rows == [[2, None]]
    assert len(ask.get("/v1/view/item?limit=2").rows) == 2
    assert ask.get("/v1/view/item?limit=0").rows == []
    assert ask.get("/v1/view/item?id=one").error[:2] == (400, "DataError")
    assert ask.get("/v1/view/item?nome=x").error == (
        400, "DataError", 'table item: no column nome in (id INTEGER, name TEXT); did you mean "name"?',
    )  # fmt: skip
    assert ask.get("/v1/view/item?columns=id,nope").error[:2] == (400, "DataError")
    assert ask.get("/v1/view/item?limit=-1").error[:2] == (400, "RequestError")


def test_what_is_not_there(ask: Requester) -> None:
    assert ask.get("/v1/view/reachabel").error == (
        404, "CatalogError", 'there is no table or view "reachabel"; did you mean "reachable"?',
    )  # fmt: skip
    assert ask.get("/v1/nowhere").error == (404, "RequestError", "there is nothing here")
    wrong = ask("PUT", "/v1/table/link")
    assert wrong.error == (405, "RequestError", "this address does not take this method")
    assert ask.get("/v1/view/link", accept="image/png").error[:2] == (406, "RequestError")
    assert ask.post("/v1/table/link", "x", content="image/png").error[:2] == (415, "RequestError")
    assert ask.get("/v1/query?sql=SELECT+1&limit=3").error == (
        400, "RequestError", "unknown parameter 'limit'; there is sql, params, epoch, at_least, timeout",
    )  # fmt: skip


def test_head_has_no_body(ask: Requester) -> None:
    found = ask("HEAD", "/v1/view/link")
    assert (found.status, found.body) == (200, b"")
    assert "etag" in found.headers


def test_values_of_every_type_come_back_as_they_were_sent(ask: Requester, db: whence.Database) -> None:
    assert ask.post("/v1/table/typed", [TYPED, [None] * 9]).json["count"] == 2
    rows = ask.get("/v1/view/typed").rows
    assert [None] * 9 in rows
    assert [*TYPED[:2], str(2**62), *TYPED[3:]] in rows
    day = dt.datetime(2026, 11, 17, 10, 32, 0, 123456)
    [stored] = [row for row in db["typed"] if row[0]]
    assert stored[:8] == (True, 7, 2**62, 1.5, Decimal("12345678901234567890.25"), "it's \u00e9", day.date(), day)
    for value in ("NaN", "Infinity", "-Infinity"):
        assert ask.post("/v1/table/typed", [{"d": value}], content=None).status == 400  # other columns are missing
        assert ask.post("/v1/table/typed?missing=null", [{"d": value}]).json["count"] == 1
    assert {row[3] for row in ask.get("/v1/view/typed").rows} >= {"NaN", "Infinity", "-Infinity"}
    [found] = ask.get("/v1/view/typed?b=true&i=7&day=2026-11-17&m=12345678901234567890.25&d=1.5").rows
    assert found[1] == 7


def test_unchanged_rows_are_not_sent_again(ask: Requester, db: whence.Database) -> None:
    tag = ask.get("/v1/view/item").headers["etag"]
    known = {"If-None-Match": tag}
    same = ask.get("/v1/view/item", headers=known)
    assert (same.status, same.body, same.headers["etag"]) == (304, b"", tag)
    db.insert("link", ("X", "Y"))
    assert ask.get("/v1/view/item", headers=known).status == 304
    db.insert("item", (1, "new"))
    again = ask.get("/v1/view/item", headers=known)
    assert (again.status, again.rows) == (200, [[1, "new"]])
    assert ask.get("/v1/view/item", headers={"If-None-Match": f'"nonsense", {again.headers["etag"]}'}).status == 304
    other = again.json["position"].replace(again.json["position"][:12], "0" * 12)
    assert ask.get("/v1/view/item", headers={"If-None-Match": f'"{other}"'}).status == 200
    later = again.json["position"].rpartition(".")[0] + ".999999"
    assert ask.get("/v1/view/item", headers={"If-None-Match": f'"{later}"'}).status == 200
    db.delete("link", ("X", "Y"))


def test_the_past_by_epoch(ask: Requester, db: whence.Database) -> None:
    before = db.epoch
    ask.post("/v1/table/item", [[1, "one"]])
    assert ask.get("/v1/view/item").rows == [[1, "one"]]
    past = ask.get(f"/v1/view/item?epoch={before}")
    assert (past.rows, past.json["position"].rpartition(".")[2]) == ([], str(before))
    count = quote("SELECT COUNT(*) AS n FROM item")
    assert ask.get(f"/v1/query?sql={count}&epoch={before}").rows == [[0]]
    assert ask.post("/v1/why/reachable", {"row": ["A", "B"], "epoch": before}).json["epoch"] == before
    assert ask.get(f"/v1/view/item?epoch={before + 1000}").error == (
        400, "DataError", f"there is no epoch {before + 1000} yet; the last one is {db.epoch}",
    )  # fmt: skip


def test_reading_waits_for_a_position(ask: Requester, db: whence.Database) -> None:
    position = ask.post("/v1/table/item", [[1, "one"]]).json["position"]
    assert ask.get(f"/v1/view/item?at_least={position}").rows == [[1, "one"]]
    assert ask.get("/v1/position").json["position"] == position
    ahead = f"{position.rpartition('.')[0]}.{db.epoch + 1}"
    late = ask.get(f"/v1/view/item?at_least={ahead}&timeout=0.05")
    assert late.error[:2] == (504, "QuestionTimeout")
    assert late.json["error"]["details"]["total"] == db.epoch + 1
    other = f"{'0' * 12}.{position.partition('.')[2]}"
    assert ask.get(f"/v1/view/item?at_least={other}").error[:2] == (409, "UnknownHistoryError")
    assert ask.get("/v1/view/item?at_least=yesterday").error[:2] == (400, "DataError")


def test_queries_take_parameters(ask: Requester) -> None:
    found = ask.post("/v1/query", {"sql": "SELECT dst FROM link WHERE src = ? ORDER BY dst", "params": ["A"]})
    assert (found.rows, found.json["columns"]) == ([["B"], ["C"]], [["dst", "TEXT"]])
    named = ask.post("/v1/query", {"sql": "SELECT :d AS d, $n AS n", "params": {
        "d": {"type": "DATE", "value": "2026-11-17"}, "n": {"type": "DECIMAL", "value": "2.50"}}})  # fmt: skip
    assert named.rows == [["2026-11-17", "2.50"]]
    text = ask.post("/v1/query", {"sql": "SELECT 1 AS x, NULL AS y, '' AS z"}, accept="text/csv").text
    assert text == '"x","y","z"\n1,,""\n'
    table = ask.post("/v1/query", {"sql": "SELECT SUM(x) AS s FROM tick"}, accept=ARROW).arrow
    assert table.num_rows == 1
    params = quote(json.dumps([3]))
    assert ask.get(f"/v1/query?sql=SELECT+1+%2B+%3F+AS+x&params={params}").rows == [[4]]


def test_errors_of_queries_have_their_place(ask: Requester) -> None:
    found = ask.post("/v1/query", {"sql": "SELECT dst\nFROM link WHERE scr = 'A'"})
    assert found.error[:2] == (400, "SqlError")
    assert found.json["error"]["details"] | {"text": "x"} == {"line": 2, "column": 17, "text": "x"}
    for sql in ("DELETE FROM link", "SELECT 1; SELECT 2", "SELECT * FROM 'secrets.csv'", "SELEC", ""):
        assert ask.post("/v1/query", {"sql": sql}).error[:2] == (400, "SqlError"), sql
    assert ask.post("/v1/query", {"sql": 7}).error == (400, "RequestError", "Expected `str`, got `int` - at `$.sql`")
    assert ask.post("/v1/query", {}).error[:2] == (400, "RequestError")
    assert ask.post("/v1/query", "{", content="application/json").error[:2] == (400, "RequestError")
    assert ask.post("/v1/query", b"\xff\xfe", content="application/json").error[:2] == (400, "RequestError")
    assert ask.post("/v1/query", "[" * 100_000, content="application/json").error[:2] == (400, "RequestError")


# -- writing ---------------------------------------------------------------------------------------------------------


def test_rows_are_inserted_in_each_format(ask: Requester, db: whence.Database) -> None:
    path = "/v1/table/item"
    assert ask.post(path, [[1, "list"], {"name": "dict", "id": 2}]).json["count"] == 2
    assert ask.post(path, {"rows": [["columns", 3]], "columns": ["name", "id"]}).json["count"] == 1
    lines = '{"id": 4, "name": "line"}\n\n[5, "list line"]\n'
    assert ask.post(path, lines, content="application/x-ndjson").json["count"] == 2
    assert ask.post(path, 'name,id\n"a, b",6\n,7\n', content="text/csv").json["count"] == 2
    table = pa.table({"id": pa.array([8], pa.int32()), "name": ["arrow"]})
    assert ask.post(path, arrow_body(table), content=ARROW).json["count"] == 1
    assert ask.post(path, '[[9, "curl"]]', content="application/x-www-form-urlencoded").json["count"] == 1
    names = [name for _, name in sorted(db["item"])]
    assert names == ["list", "dict", "columns", "line", "list line", "a, b", None, "arrow", "curl"]


def test_rows_that_do_not_fit_change_nothing(ask: Requester, db: whence.Database) -> None:
    path, epoch = "/v1/table/item", db.epoch
    assert ask.post(path, [[1, "one"], ["two", "two"]]).error == (
        400, "DataError", "table item, row 2, column id: 'two' (str) is not a value of type INTEGER",
    )  # fmt: skip
    for body in (
        [[1]],
        [{"id": 1}],
        [[1, "x", 2]],
        [7],
        [{"id": 1, "nome": "x"}],
        {"rows": [[1]], "columns": ["a", "b"]},
    ):
        assert ask.post(path, body).error[:2] == (400, "DataError"), body
    assert ask.post(path, "id,nome\n1,x\n", content="text/csv").error[:2] == (400, "DataError")
    assert ask.post(path, "id,name\nx,x\n", content="text/csv").error[:2] == (400, "DataError")
    assert ask.post(path, b"no arrow", content=ARROW).error == (400, "RequestError", "the Arrow stream cannot be read")
    assert ask.post(path, {}).error[:2] == (400, "DataError")
    assert ask.post(path, {"rows": [], "rowz": []}).error[:2] == (400, "RequestError")
    assert ask.post("/v1/table/reachable", [["A", "B"]]).error == (
        409, "CatalogError", '"reachable" is a view; only tables and streams are written to',
    )  # fmt: skip
    assert ask.post("/v1/table/ghost", []).error == (404, "CatalogError", 'there is no table "ghost"')
    assert db.epoch == epoch


def test_rows_that_do_not_fit_are_skipped_or_set_apart(ask: Requester, db: whence.Database) -> None:
    rows = [[1, "one"], ["two", "two"], [3, "three"]]
    assert ask.post("/v1/table/item?on_error=skip", rows).json["count"] == 2
    assert ask.post("/v1/table/item?on_error=reject", rows).json["count"] == 2
    assert ask.get("/v1/view/rejects?columns=line,source").rows == [[2, "item"]]
    db.execute("DROP TABLE rejects")


def test_operations_in_rows_insert_and_delete(ask: Requester, db: whence.Database) -> None:
    rows = [[1, "one", "+"], [2, "two", "+"], [1, "one", "-"]]
    assert ask.post("/v1/table/item?op=op", rows).json["count"] == 3
    assert db["item"].rows == [(2, "two")]
    ask.post("/v1/table/link?op=op&early=hold", [["Q", "R", "-"]])
    assert ask.get("/v1/owed/link").rows == [["Q", "R"]]
    ask.post("/v1/table/link", [["Q", "R"]])
    assert ask.get("/v1/owed/link").rows == []
    assert ("Q", "R") not in db["link"]


def test_rows_are_deleted_by_value_key_and_condition(ask: Requester, db: whence.Database) -> None:
    db.insert("item", [(i, "odd" if i % 2 else "even") for i in range(10)])
    path = "/v1/table/item"
    assert ask("DELETE", path, {"rows": [[1, "odd"], {"id": 3}]}).json["count"] == 2
    assert ask("DELETE", path, {"key": 5}).json["count"] == 1
    assert ask("DELETE", path, {"key": [7, 99]}).json["count"] == 1
    assert ask("DELETE", f"{path}?name=odd").json["count"] == 1
    assert ask("DELETE", path, {"where": "id > ? AND name = :n", "params": [7]}).status == 400
    assert ask("DELETE", path, {"where": "id > ?", "params": [5]}).json["count"] == 2
    assert ask("DELETE", path, {"where": {"id": [0, 2]}}).json["count"] == 2
    assert ask("DELETE", path).error[:2] == (400, "DataError")
    missing = ask("DELETE", path, {"key": 99, "early": "error"})
    assert missing.error[:2] == (409, "MissingRowError")
    assert db["item"].rows == [(4, "even")]


def test_rows_are_updated(ask: Requester, db: whence.Database) -> None:
    db.insert("item", [(1, "one"), (2, "two")])
    assert ask("PATCH", "/v1/table/item", {"values": {"name": "uno"}, "key": 1}).json["count"] == 1
    assert ask("PATCH", "/v1/table/item", {"values": {"name": None}, "where": {"id": 2}}).json["count"] == 1
    assert sorted(db["item"]) == [(1, "uno"), (2, None)]
    assert ask("PATCH", "/v1/table/item", {"values": {"id": "x"}}).error[:2] == (400, "DataError")


def test_a_transaction_is_one_epoch_or_none(ask: Requester, db: whence.Database) -> None:
    epoch = db.epoch
    operations = [
        {"verb": "insert", "table": "item", "rows": [[1, "one"], [2, "two"]]},
        {"verb": "delete", "table": "item", "key": 1},
        {"verb": "update", "table": "item", "values": {"name": "zwei"}, "where": {"id": 2}},
    ]
    found = ask.post("/v1/transaction", {"operations": operations})
    assert (found.json["count"], db.epoch, db["item"].rows) == (4, epoch + 1, [(2, "zwei")])
    operations.append({"verb": "insert", "table": "item", "rows": [["x", "y"]]})
    assert ask.post("/v1/transaction", {"operations": operations}).error[:2] == (400, "DataError")
    assert (db.epoch, db["item"].rows) == (epoch + 1, [(2, "zwei")])
    assert ask.post("/v1/transaction", {"operations": [{"verb": "drop"}]}).error[:2] == (400, "RequestError")


def test_a_numbered_write_is_done_once(ask: Requester, db: whence.Database) -> None:
    path = "/v1/table/link?publisher=loader&number="
    first = ask.post(f"{path}1", [["N", "1"]]).json
    again = ask.post(f"{path}1", [["N", "1"]]).json
    assert (first["count"], again["count"], again["repeated"]) == (1, 0, True)
    assert ask.post(f"{path}2", [["N"]]).error[:2] == (400, "DataError")
    assert ask.post(f"{path}3", [["N", "3"]]).json["count"] == 1
    assert ask.post(f"{path}2", [["N", "2"]]).status == 400  # it failed, and later ones are done
    numbered = {"sql": "INSERT INTO link VALUES ('N', '4'); DELETE FROM link WHERE dst = '1'", "publisher": "loader"}
    for repeated in (False, True):
        found = ask.post("/v1/execute", {**numbered, "number": 4}).json
        assert found.get("repeated", False) is repeated
    assert sorted(db["link"].where(src="N")) == [("N", "3"), ("N", "4")]
    assert "owner loader" in [row[0] for row in db["publishers"]]
    db.delete("link", where={"src": "N"})


def test_scripts(ask: Requester, db: whence.Database) -> None:
    def run(sql: str, params: object = None) -> object:
        return ask.post("/v1/execute", {"sql": sql, "params": params})

    made = run("CREATE TABLE extra (x INT); CREATE VIEW doubled AS SELECT x * 2 AS y FROM extra").json
    assert made["message"] == "view doubled created"
    found = run("INSERT INTO extra VALUES (?), (?); SELECT y FROM doubled ORDER BY y", [1, 2])
    assert found.rows == [[2], [4]]
    assert run("UPDATE extra SET x = 5 WHERE x = 1").json | {"position": ""} == {
        "count": 1, "message": "1 row updated", "position": "",
    }  # fmt: skip
    assert run("DESCRIBE extra").rows[0][:2] == ["x", "INTEGER"]
    assert run("EXPLAIN doubled").rows[0] == ["view doubled (y BIGINT)"]
    assert ["extra", 2] in [row[:2] for row in run("SHOW TABLES").rows]
    assert run("DROP TABLE extra").error == (
        409, "CatalogError", 'doubled depends on "extra"; drop them first, or use CASCADE',
    )  # fmt: skip
    assert run("CREATE VIEW bad AS SELECT nope FROM extra").error[:2] == (400, "SqlError")
    assert run("").json["message"] == "nothing to do"
    assert run("DROP TABLE extra CASCADE").json["message"] == "dropped extra, doubled"
    assert "extra" not in db


# -- questions -------------------------------------------------------------------------------------------------------


def test_why_in_each_form(ask: Requester) -> None:
    asked = {"row": {"src": "A", "dst": "C"}}
    found = ask.post("/v1/why/reachable", asked).json
    assert (found["holds"], found["witnesses"]["count"]) == (True, 2)
    assert found["text"].startswith("reachable(A, C) at epoch")
    assert found["formula"] == "link(A, C) ∨ link(A, B) ∧ link(B, C)"
    assert ask.post("/v1/why/reachable", asked, accept="text/plain").text == found["text"]
    page = ask.post("/v1/why/reachable", asked, accept="text/html")
    assert page.text.startswith("<!doctype html>")
    assert "sandbox" in page.headers["content-security-policy"]
    assert ask.post("/v1/why/reachable", asked, accept="text/vnd.graphviz").text.startswith("digraph")
    both = ask.post("/v1/why/reachable", asked | {"html": True, "dot": True}).json
    assert both["html"] == page.text
    assert both["dot"].startswith("digraph")
    missing = ask.post("/v1/why/reachable", {"row": ["C", "A"]}).json
    assert (missing["holds"], missing["missing"]["relation"]) == (False, "reachable")
    assert ask.post("/v1/why/reachable", {"row": {"src": "A"}}).error[:2] == (400, "DataError")
    assert ask.post("/v1/why/nothing", {}).error[:2] == (404, "CatalogError")


def test_what_if_changes_nothing(ask: Requester, db: whence.Database) -> None:
    epoch = db.epoch
    found = ask.post("/v1/what_if", {"delete": {"link": [["A", "B"]]}, "insert": {"link": [["C", "D"]]}}).json
    assert found["tables"]["link"]["inserted"] == [{"src": "C", "dst": "D"}]
    assert {"src": "B", "dst": "D"} in found["views"]["reachable"]["inserted"]
    script = {"sql": "DELETE FROM link WHERE src = ?", "params": ["B"], "views": ["reachable"], "html": True}
    found = ask.post("/v1/what_if", script).json
    assert found["views"]["reachable"]["deleted"] == [{"src": "B", "dst": "C"}]
    assert "<html" in found["html"]
    update = {"update": {"link": [[{"dst": "Z"}, {"src": "B"}]]}, "views": ["reachable"]}
    assert {"src": "A", "dst": "Z"} in ask.post("/v1/what_if", update).json["views"]["reachable"]["inserted"]
    assert db.epoch == epoch


def test_questions_about_base_rows(ask: Requester) -> None:
    row = {"row": ["B", "C"]}
    base = {"table": "link", "row": {"src": "B", "dst": "C"}}
    assert ask.post("/v1/critical/reachable", row).json["rows"] == [base | {"takes": 1}]
    assert ask.post("/v1/critical/reachable", {"where": {"src": "A"}}).json["of"] == 2
    assert ask.post("/v1/resilience/reachable", row).json["rows"] == [base]
    assert ask.post("/v1/resilience/reachable", {"row": ["A", "C"]}).json["count"] == 2
    assert ask.post("/v1/contribution/reachable", row).json["rows"] == [base | {"shapley": 1.0, "banzhaf": 1.0}]
    found = ask.post("/v1/reliability/reachable", {"row": ["A", "C"], "given": {"link": 0.5}}).json
    assert (found["probability"], found["method"]) == (0.625, "exact")
    assert ask.post("/v1/reliability/reachable", row).error[:2] == (400, "RequestError")
    assert ask.post("/v1/critical/reachable", row, accept="text/html").text.startswith("<")


def test_streams(ask: Requester, db: whence.Database) -> None:
    ask.post("/v1/table/tick", [[1, 10], [5, 20], [7, 30], [2, 40]])
    assert ask.get("/v1/late/late_ticks").rows == [[2, 40]]
    assert ask.post("/v1/trace/tick", {"tid": 2}).json["views"]["summed"]["complete"] is True
    assert ask.post("/v1/trace/tick", {"row": {"x": 40}}).json["tid"] == 4
    assert ask.get("/v1/view/windows").rows == []
    assert ask.post("/v1/advance", {"stream": "tick", "value": 10, "on": "t"}).json["count"] == 0
    assert ask.get("/v1/view/windows").rows == [[4]]
    ask.post("/v1/table/tick", [[12, 1]])
    ask.post("/v1/flush", {})
    assert sorted(ask.get("/v1/view/windows").rows) == [[1], [4]]
    assert ask.post("/v1/advance", {"stream": "link", "value": 10}).error[:2] == (409, "CatalogError")
    assert ask.post("/v1/advance", {"stream": [], "value": 10}).error[:2] == (400, "RequestError")


def test_what_there_is(ask: Requester) -> None:
    found = ask.get("/v1/catalog").json
    by_name = {relation["name"]: relation for relation in found["relations"]}
    assert (found["who"], found["define"]) == ("owner", True)
    assert [by_name[name]["kind"] for name in ("link", "reachable", "tick", "summed")] == [
        "table", "view", "stream", "stream view",
    ]  # fmt: skip
    assert by_name["item"]["columns"][0] == {"name": "id", "type": "INTEGER", "null": False, "key": True}
    assert by_name["link"]["rows"] == 3
    assert ask.get("/v1/explain/reachable").json["text"].startswith("view reachable (src TEXT, dst TEXT)")
    assert ask.get("/v1/describe/item").rows[0][:4] == ["id", "INTEGER", False, True]
    assert ask.get("/v1/metrics").json["tables"]["link"] == 3


def test_metrics_for_prometheus(ask: Requester) -> None:
    ask.get("/v1/view/link")
    found = ask.get("/metrics")
    assert found.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = found.text.splitlines()
    assert "# TYPE whence_http_requests_total counter" in lines
    assert any(line.startswith('whence_http_requests_total{path="/v1/view/{name}",status="200"}') for line in lines)
    assert "# TYPE whence_http_request_seconds histogram" in lines
    assert 'whence_table_rows{name="link"} 3' in lines
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
    helped = [line.split()[2] for line in lines if line.startswith("# HELP")]
    assert helped == names


# -- large answers ---------------------------------------------------------------------------------------------------


def test_large_answers_come_in_pieces(ask: Requester, db: whence.Database) -> None:
    rows = [(i, f"name {i}" * 3) for i in range(30_000)]
    db.insert("item", rows)
    assert sorted(map(tuple, ask.get("/v1/view/item").rows)) == rows
    table = ask.get("/v1/view/item", accept=ARROW).arrow
    assert (table.num_rows, table.schema.types) == (30_000, [pa.int32(), pa.string()])
    assert ask.get("/v1/view/item", accept="text/csv").text.count("\n") == 30_001


def test_a_database_that_is_only_read(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with whence.open(path) as writer:
        writer.execute("CREATE TABLE a (x INT)")
        writer.insert("a", (1,))
        with whence.open(path, read_only=True) as reader, whence.serve(reader, port=0) as server:
            ask = Requester(server)
            assert ask.get("/v1/view/a").rows == [[1]]
            writer.insert("a", (2,))
            position = str(writer.position)
            assert sorted(ask.get(f"/v1/view/a?at_least={position}").rows) == [[1], [2]]
            assert ask.post("/v1/table/a", [[3]]).error == (
                403,
                "ForbiddenError",
                "this server only reads its database",
            )
            assert ask.post("/v1/execute", {"sql": "CREATE TABLE b (x INT)"}).error[:2] == (403, "ForbiddenError")
