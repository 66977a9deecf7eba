"""Row rights over HTTP: two callers with different rows never see each other's, in whatever way they ask."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

import whence
from tests.server.requesting import ARROW, Requester
from whence.server.access.tokens import make_token

PROGRAM = """
CREATE TABLE note (id INT PRIMARY KEY, owner TEXT, body TEXT);
CREATE TABLE vault (code TEXT, amount TEXT);
CREATE TABLE fact (x INT);
CREATE STREAM event (owner TEXT, t INT);
CREATE VIEW bodies AS SELECT owner, body FROM note;
CREATE VIEW total AS SELECT owner, COUNT(*) AS n FROM note GROUP BY owner;
CREATE VIEW joined AS SELECT n.owner, v.amount FROM note AS n JOIN vault AS v ON n.body = v.code;
CREATE VIEW amounts AS SELECT CAST(amount AS INT) AS a FROM vault;
CREATE TABLE allowed (who TEXT, name TEXT, what TEXT);
"""
SECRETS = ("bobs-secret", "4711", "vault", "amounts", "joined")
"""What of bob, and of what nobody but the owner may read, must not reach ann."""


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Requester]]:
    folder = tmp_path_factory.mktemp("rights")
    tokens = {who: make_token(folder / "tokens", who) for who in ("ann", "bob", "root", "nobody")}
    with whence.open(folder / "db", retain="all") as db:
        db.execute(PROGRAM)
        db.insert("note", [(1, "ann", "anns"), (2, "bob", "bobs-secret"), (3, "bob", "x")])
        db.insert("vault", [("x", "4711"), ("anns", "12")])
        db.insert("fact", [(1,), (2,)])
        db.insert("event", [("ann", 1), ("bob", 2)])
        db.insert("allowed", [
            ("*", "note", "insert where owner = :who"),
            ("*", "bodies", "read where owner = :who"),
            ("*", "total", "read where owner = :who"),
            ("*", "event", "read where owner = :who"),
            ("ann", "fact", "insert"),
            ("root", "*", "define"),
        ])  # fmt: skip
        with whence.serve(db, port=0, token_file=folder / "tokens") as server:
            yield {who: Requester(server, token) for who, token in tokens.items()}


@pytest.fixture
def ann(people: dict[str, Requester]) -> Requester:
    return people["ann"]


@pytest.fixture
def bob(people: dict[str, Requester]) -> Requester:
    return people["bob"]


def test_each_reads_their_own_rows(ann: Requester, bob: Requester) -> None:
    assert ann.get("/v1/view/note").rows == [[1, "ann", "anns"]]
    assert sorted(bob.get("/v1/view/note").rows) == [[2, "bob", "bobs-secret"], [3, "bob", "x"]]
    assert ann.get("/v1/view/note?id=2").rows == []
    assert ann.get("/v1/view/note?owner=bob").rows == []
    assert ann.get("/v1/view/note", accept=ARROW).arrow.num_rows == 1
    assert ann.get("/v1/view/note", accept="text/csv").text == '"id","owner","body"\n1,"ann","anns"\n'
    assert ann.get("/v1/view/total").rows == [["ann", 1]]
    assert bob.get("/v1/view/total").rows == [["bob", 2]]
    assert ann.get("/v1/view/event").rows == [["ann", 1]]
    assert ann.get("/v1/view/note?epoch=1").rows == [[1, "ann", "anns"]]  # by the rights of now
    epoch = ann.get("/v1/position").json["position"].rpartition(".")[2]
    assert ann.get(f"/v1/view/note?epoch={epoch}").rows == [[1, "ann", "anns"]]


def test_queries_see_only_what_their_caller_does(ann: Requester, bob: Requester) -> None:
    def query(who: Requester, sql: str) -> object:
        return who.post("/v1/query", {"sql": sql}).rows

    assert query(ann, "SELECT COUNT(*) AS n FROM note") == [[1]]
    assert query(bob, "SELECT COUNT(*) AS n FROM note") == [[2]]
    assert query(ann, "SELECT SUM(n) AS s FROM total") == [[1]]
    assert query(ann, "SELECT MAX(id) AS m FROM note") == [[1]]
    assert query(ann, "SELECT a.owner FROM note AS a JOIN bodies AS b ON TRUE") == [["ann"]]
    assert query(ann, "WITH note AS (SELECT 7 AS id) SELECT * FROM note") == [[7]]
    assert query(ann, "SELECT EXISTS (SELECT * FROM note WHERE owner = 'bob') AS e") == [[False]]
    assert ann.get(f"/v1/query?sql={quote('SELECT owner FROM note')}&epoch=3").rows == [["ann"]]


HIDDEN = [
    ("GET", "/v1/view/@", None),
    ("GET", "/v1/describe/@", None),
    ("GET", "/v1/explain/@", None),
    ("GET", "/v1/owed/@", None),
    ("GET", "/v1/late/@", None),
    ("POST", "/v1/query", {"sql": "SELECT * FROM @"}),
    ("POST", "/v1/execute", {"sql": "SELECT * FROM @"}),
    ("POST", "/v1/execute", {"sql": "DESCRIBE @"}),
    ("POST", "/v1/execute", {"sql": "EXPLAIN @"}),
    ("POST", "/v1/execute", {"sql": "INSERT INTO @ VALUES ('a', 'b')"}),
    ("POST", "/v1/execute", {"sql": "DELETE FROM @"}),
    ("POST", "/v1/execute", {"sql": "INSERT INTO note SELECT 9, 'ann', code FROM @"}),
    ("POST", "/v1/table/@", [["a", "b"]]),
    ("POST", "/v1/table/@", "code\n1\n"),
    ("DELETE", "/v1/table/@", {"where": {"code": "a"}}),
    ("DELETE", "/v1/table/@", {"where": "code = 'a'"}),
    ("PATCH", "/v1/table/@", {"values": {"code": "a"}}),
    ("POST", "/v1/transaction", {"operations": [{"verb": "insert", "table": "@", "rows": [["a", "b"]]}]}),
    ("POST", "/v1/why/@", {"row": ["a", "b"]}),
    ("POST", "/v1/why/@", {"row": {"code": "a"}, "epoch": 3}),
    ("POST", "/v1/critical/@", {}),
    ("POST", "/v1/resilience/@", {"row": ["a", "b"]}),
    ("POST", "/v1/contribution/@", {"row": ["a", "b"]}),
    ("POST", "/v1/reliability/@", {"row": ["a", "b"], "given": {}}),
    ("POST", "/v1/trace/@", {"tid": 1}),
    ("POST", "/v1/what_if", {"insert": {"@": [["a", "b"]]}}),
    ("POST", "/v1/what_if", {"insert": {}, "views": ["@"]}),
    ("POST", "/v1/advance", {"stream": "@", "value": 1}),
    ("POST", "/v1/flush", {"stream": "@"}),
    ("GET", "/v1/subscribe?queries=@", None),
    ("POST", "/v1/subscribe", {"queries": ["SELECT * FROM @ WHERE code = 'x'"]}),
]


@pytest.mark.parametrize(("method", "path", "body"), HIDDEN)
@pytest.mark.parametrize("hidden", ["vault", "amounts"])
def test_what_is_hidden_looks_like_what_is_not_there(
    ann: Requester, method: str, path: str, body: object, hidden: str
) -> None:
    def asked(name: str) -> tuple[int, str]:
        content = None
        if isinstance(body, str):
            content, given = "text/csv", body
        else:
            given = None if body is None else json.loads(json.dumps(body).replace("@", name))
        found = ann(method, path.replace("@", name), given, content=content)
        return found.status, found.text.replace(name, "NAME")

    status, said = asked(hidden)
    other = "x" * len(hidden)  # of the same length, since messages name places in the text
    assert (status, said) == asked(other)
    assert status >= 400
    assert not any(secret in said for secret in SECRETS)


def test_hints_name_only_what_is_seen(ann: Requester) -> None:
    for name in ("vaul", "valut", "joind", "amount"):
        for found in (ann.get(f"/v1/view/{name}"), ann.post("/v1/query", {"sql": f"SELECT * FROM {name}"})):
            assert not any(secret in found.text.replace(name, "") for secret in SECRETS)
    assert "note" in ann.get("/v1/view/noet").text


def test_the_catalog_has_what_is_seen(ann: Requester, people: dict[str, Requester]) -> None:
    found = ann.get("/v1/catalog").json
    by_name = {relation["name"]: relation for relation in found["relations"]}
    assert set(by_name) == {"note", "bodies", "total", "event", "fact"}
    assert by_name["fact"]["rows"] == 2
    assert by_name["fact"]["rights"] == {"read": "all", "insert": "all"}
    assert by_name["note"]["rows"] is None  # how many there are is not ann's to know
    assert by_name["note"]["rights"] == {"read": "some", "insert": "some"}
    assert found["define"] is False
    assert people["nobody"].get("/v1/catalog").json["relations"][0]["rows"] is None
    assert len(people["root"].get("/v1/catalog").json["relations"]) == 9


def test_counters_are_for_those_who_see_everything(ann: Requester, people: dict[str, Requester]) -> None:
    for path in ("/metrics", "/v1/metrics"):
        assert ann.get(path).error[:2] == (403, "ForbiddenError")
        assert people["root"].get(path).status == 200
    assert ann.post("/v1/execute", {"sql": "SHOW TABLES"}).error[:2] == (403, "ForbiddenError")


def test_definitions_need_the_right_to_define(ann: Requester, people: dict[str, Requester]) -> None:
    for sql in ("CREATE TABLE t (x INT)", "CREATE VIEW v AS SELECT x FROM fact", "DROP TABLE fact", "DROP TABLE vault"):
        assert ann.post("/v1/execute", {"sql": sql}).error[:2] == (403, "ForbiddenError")
    assert people["root"].post("/v1/execute", {"sql": "CREATE TABLE t (x INT); DROP TABLE t"}).status == 200


def test_why_shows_what_its_caller_may_read(ann: Requester, bob: Requester) -> None:
    mine = ann.post("/v1/why/bodies", {"row": ["ann", "anns"]}).json
    assert (mine["holds"], mine["restricted"]) == (True, True)
    assert mine["base"] == [{"table": "note", "row": {"id": 1, "owner": "ann", "body": "anns"}}]
    assert mine["witnesses"]["found"] == [[0]]
    assert "note(1, ann, anns)" in mine["text"]
    secret, missing = ({"row": ["bob", body]} for body in ("bobs-secret", "nothing-at-all"))
    said = [ann.post("/v1/why/bodies", asked) for asked in (secret, missing)]
    assert said[0].status == said[1].status == 403
    assert said[0].body == said[1].body
    assert [ann.post("/v1/why/bodies", {"row": {"owner": who}}).status for who in ("bob", "eve")] == [403, 403]
    assert ann.post("/v1/why/note", {"row": {"id": 2}}).body == ann.post("/v1/why/note", {"row": {"id": 99}}).body
    page = ann.post("/v1/why/bodies", {"row": ["ann", "anns"]}, accept="text/html")
    assert "bobs-secret" not in page.text
    for verb in ("critical", "resilience", "contribution"):
        asked = {"row": ["ann", "anns"]}
        assert ann.post(f"/v1/{verb}/bodies", asked).error[:2] == (403, "ForbiddenError"), verb
    assert bob.post("/v1/why/bodies", secret).json["holds"] is True


def test_nobody_writes_anothers_rows(ann: Requester, bob: Requester) -> None:
    before = sorted(bob.get("/v1/view/note").rows)
    for body in ([[9, "bob", "forged"]], [[9, "ann", "mine"], [10, "bob", "forged"]], [[2, "ann", "stolen"]]):
        assert ann.post("/v1/table/note", body).error[:2] == (403, "ForbiddenError"), body
    assert ann("DELETE", "/v1/table/note", {"key": 2}).json["count"] == 0
    assert ann("DELETE", "/v1/table/note", {"where": "owner = 'bob'"}).json["count"] == 0
    assert ann("DELETE", "/v1/table/note", {"rows": [[2, "bob", "bobs-secret"]]}).json["count"] == 0
    assert ann("PATCH", "/v1/table/note", {"values": {"body": "x"}, "key": 2}).json["count"] == 0
    assert ann("PATCH", "/v1/table/note", {"values": {"owner": "bob"}, "key": 1}).error[:2] == (403, "ForbiddenError")
    assert ann.post("/v1/execute", {"sql": "UPDATE note SET body = 'x'"}).json["count"] == 1
    assert ann.post("/v1/execute", {"sql": "UPDATE note SET body = 'anns'"}).json["count"] == 1
    assert sorted(bob.get("/v1/view/note").rows) == before
    assert ann.post("/v1/table/note", [[7, "ann", "mine"]]).json["count"] == 1
    assert ann("DELETE", "/v1/table/note", {"key": 7}).json["count"] == 1
    assert ann.post("/v1/table/total", [["ann", 7]]).error[:2] == (409, "CatalogError")
    assert bob.post("/v1/table/fact", [[1]]).error[:2] == (404, "CatalogError")
    assert ann.post("/v1/table/allowed", [["ann", "*", "define"]]).error[:2] == (404, "CatalogError")


def test_errors_show_no_rows_of_others(ann: Requester, people: dict[str, Requester]) -> None:
    """A view over what ann does not see fails on what she writes, with others' values in its message."""
    root = people["root"]
    assert root.post("/v1/execute", {"sql": "CREATE VIEW halves AS SELECT v.amount, CAST(n.body AS INT) AS b "
        "FROM note AS n, vault AS v WHERE n.id = 77"}).status == 200  # fmt: skip
    found = ann.post("/v1/table/note", [[77, "ann", "seven"]])
    assert found.error == (400, "EvaluationError", "a view cannot be computed over these rows")
    assert "seven" in root.post("/v1/table/note", [[77, "ann", "seven"]]).text
    assert root.post("/v1/execute", {"sql": "DROP VIEW halves"}).status == 200


def test_what_if_needs_the_rights_of_doing_it(ann: Requester) -> None:
    found = ann.post("/v1/what_if", {"insert": {"fact": [[3]]}}).json
    assert (list(found["tables"]), found["views"]) == (["fact"], {})
    assert ann.post("/v1/what_if", {"delete": {"note": "owner = 'bob'"}}).error[:2] == (403, "ForbiddenError")
    assert ann.post("/v1/what_if", {"sql": "DELETE FROM fact"}).error[:2] == (403, "ForbiddenError")


def test_a_copy_is_not_current_when_rights_have_changed(people: dict[str, Requester]) -> None:
    root, nobody = people["root"], people["nobody"]
    root.post("/v1/table/allowed", [["nobody", "fact", "read"]])
    tag = nobody.get("/v1/view/fact").headers["etag"]
    assert nobody.get("/v1/view/fact", headers={"If-None-Match": tag}).status in (200, 304)
    root("DELETE", "/v1/table/allowed", {"rows": [["nobody", "fact", "read"]]})
    assert nobody.get("/v1/view/fact", headers={"If-None-Match": tag}).error[:2] == (404, "CatalogError")
    root.post("/v1/table/allowed", [["nobody", "fact", "read where x = 1"]])
    assert nobody.get("/v1/view/fact", headers={"If-None-Match": tag}).rows == [[1]]
    root("DELETE", "/v1/table/allowed", {"where": {"who": "nobody"}})


def test_a_right_is_gone_with_its_row(people: dict[str, Requester]) -> None:
    root, nobody = people["root"], people["nobody"]
    for _ in range(5):
        root.post("/v1/table/allowed", [["nobody", "fact", "insert"]])
        assert nobody.post("/v1/table/fact", [[1]]).status == 200
        root("DELETE", "/v1/table/allowed", {"where": {"who": "nobody"}})
        assert nobody.post("/v1/table/fact", [[1]]).status == 404
        assert nobody.get("/v1/view/fact").status == 404


def test_numbers_of_writes_are_each_callers_own(ann: Requester, bob: Requester) -> None:
    path = f"/v1/table/note?publisher=p{time.time_ns()}&number="
    assert ann.post(f"{path}5", [[50, "ann", "a"]]).json["count"] == 1
    assert bob.post(f"{path}1", [[51, "bob", "b"]]).json["count"] == 1
    ann("DELETE", "/v1/table/note", {"key": 50})
    bob("DELETE", "/v1/table/note", {"key": 51})


def test_without_a_token_file_the_owner_may_do_everything(tmp_path: Path) -> None:
    with whence.open() as db:
        db.execute("CREATE TABLE a (x INT); CREATE TABLE allowed (who TEXT, name TEXT, what TEXT)")
        with whence.serve(db, port=0) as server:
            ask = Requester(server)
            assert ask.post("/v1/table/a", [[1]]).json["count"] == 1
            assert ask.post("/v1/execute", {"sql": "CREATE VIEW b AS SELECT x FROM a"}).status == 200
