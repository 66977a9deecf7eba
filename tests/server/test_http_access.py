"""Who gets an answer over HTTP: tokens, Host and Origin, limits, and how a server starts and stops."""

from __future__ import annotations

import http.client
import json
import logging
import shutil
import socket
import ssl
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.server.requesting import PATIENCE, Requester
from whence.server.access.tokens import make_token, remove_token
from whence.server.listening import listen
from whence.server.verbs import calls
from whence.server.verbs.verb_calls import CallAnswer, Verb, VerbCall
from whence.server.web.endpoints import ENDPOINTS

DAY = 86_400.0


@pytest.fixture(scope="module")
def db() -> Iterator[whence.Database]:
    with whence.open() as found:
        found.execute(
            "CREATE TABLE link (src TEXT, dst TEXT); CREATE VIEW twice AS SELECT src, dst FROM link, (SELECT 1)"
        )
        found.insert("link", [("A", "B")])
        yield found


@pytest.fixture(scope="module")
def server(db: whence.Database) -> Iterator[whence.Server]:
    limits = {"body_bytes": 10_000, "insert_rows": 100, "result_rows": 1000, "header_seconds": 0.5, "stop_seconds": 2.0}
    with whence.serve(db, port=0, origins=["https://example.org"], hosts=["proxy.example"], limits=limits) as found:
        yield found


@pytest.fixture(scope="module")
def ask(server: whence.Server) -> Requester:
    return Requester(server)


def wait_until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.01)


# -- tokens ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", [None, "Bearer", "Bearer  ", "Basic YTpi", "Bearer wrong", "Bearer \xe9"])
def test_without_a_valid_token_there_is_no_answer(ask: Requester, header: str | None) -> None:
    nobody = Requester.__new__(Requester)
    nobody.address, nobody.token = ask.address, None
    found = nobody.get("/v1/view/link", headers={} if header is None else {"Authorization": header})
    assert found.status == 401
    assert found.headers["www-authenticate"] == "Bearer"
    assert nobody.get("/metrics").status == 401
    assert nobody.get("/v1/subscribe?queries=link").status == 401
    for free in ("/v1/health", "/v1/docs", "/v1/openapi.json", "/whence.js"):
        assert nobody.get(free).status == 200


def test_a_token_in_the_address_is_refused(ask: Requester, server: whence.Server) -> None:
    own = server.token
    for path in (f"/v1/query?sql=SELECT+1&token={own}", f"/v1/view/link?src={own}", "/v1/catalog?token=x"):
        nobody = Requester(server, "")
        assert nobody.get(path).error == (
            400, "RequestError", "a token in the address would end up in logs: send it in the header Authorization",
        )  # fmt: skip
    assert ask.get("/v1/view/link?token=x").error[:2] == (400, "DataError")  # it might be a column


def test_tokens_come_and_go_while_the_server_runs(db: whence.Database, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    ann, late = make_token(file, "ann"), make_token(file, "late", time.time() - 1)
    with whence.serve(db, port=0, token_file=file) as server:
        assert server.token is None
        ask = Requester(server, ann)
        assert ask.get("/v1/catalog").json["who"] == "ann"
        assert Requester(server, late).get("/v1/catalog").status == 401
        bob = make_token(file, "bob", time.time() + DAY)
        wait_until(lambda: Requester(server, bob).get("/v1/catalog").status == 200)
        remove_token(file, "ann")
        wait_until(lambda: ask.get("/v1/catalog").status == 401)


def test_no_token_is_logged(ask: Requester, server: whence.Server, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="whence"):
        ask.get("/v1/view/link")
        ask.get(f"/v1/query?token={server.token}")
        ask.get("/v1/view/none")
    assert "GET /v1/view/link 200" in caplog.text
    assert server.token is not None
    assert server.token not in caplog.text


# -- Host and Origin -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("127.0.0.1:9", 200),
        ("[::1]:80", 200),
        ("proxy.example", 200),
        ("PROXY.example.:80", 200),
        ("evil.example", 403),
        ("evil.example:8080", 403),
        ("localhost.evil.example", 403),
        ("user@localhost", 403),
        ("", 403),
    ],
)
def test_a_foreign_host_is_refused(ask: Requester, host: str, status: int) -> None:
    for path in ("/v1/health", "/v1/view/link"):
        assert ask.get(path, headers={"Host": host}).status == status


def test_pages_of_other_origins_are_refused(ask: Requester) -> None:
    allowed = ask.get("/v1/view/link", headers={"Origin": "https://example.org"})
    assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (200, "https://example.org")
    assert "Origin" in allowed.headers["vary"]
    own = ask.get("/v1/view/link", headers={"Origin": f"http://{ask.address}"})
    assert own.status == 200
    for origin in ("https://evil.example", "null", "http://example.org", "https://example.org.evil.example", ""):
        found = ask.get("/v1/view/link", headers={"Origin": origin})
        assert (found.status, found.headers.get("access-control-allow-origin")) == (403, None)
        assert ask.post("/v1/table/link", [["X", "Y"]], headers={"Origin": origin}).status == 403
    assert ask("HEAD", "/v1/subscribe?view=link").status == 405
    missing = ask.get("/v1/view/none", headers={"Origin": "https://example.org"})
    assert (missing.status, missing.headers["access-control-allow-origin"]) == (404, "https://example.org")


def test_a_browser_may_ask_beforehand(ask: Requester) -> None:
    asked = {"Access-Control-Request-Method": "PATCH", "Access-Control-Request-Headers": "authorization"}
    found = ask("OPTIONS", "/v1/table/link", headers={"Origin": "https://example.org", **asked})
    assert found.status == 204
    assert found.headers["access-control-allow-origin"] == "https://example.org"
    assert "PATCH" in found.headers["access-control-allow-methods"]
    assert "Authorization" in found.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in found.headers
    assert ask("OPTIONS", "/v1/table/link", headers={"Origin": "https://evil.example", **asked}).status == 403


def test_pages_are_safe(ask: Requester) -> None:
    page = ask.get("/v1/docs")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert (page.headers["x-frame-options"], page.headers["x-content-type-options"]) == ("DENY", "nosniff")
    assert "<script" not in page.text
    assert "http" not in page.text.replace("http://127.0.0.1:8080", "")  # nothing from elsewhere


# -- the description -------------------------------------------------------------------------------------------------


def test_the_description_has_every_address_and_each_answers(ask: Requester) -> None:
    document = ask.get("/v1/openapi.json").json
    assert document["openapi"] == "3.1.0"
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == {(endpoint.method, endpoint.path) for endpoint in ENDPOINTS}
    ids = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(ids) == len(set(ids))
    for method, path in sorted(described - {("GET", "/v1/ws"), ("GET", "/v1/subscribe"), ("POST", "/v1/subscribe")}):
        found = ask(method, path.replace("{name}", "twice"), {} if method != "GET" else None)
        assert found.status not in (405, 500), (method, path)
        assert found.status != 404 or "there is nothing here" not in found.text, (method, path)
    page = ask.get("/v1/docs").text
    assert all(path in page for _, path in described)


def test_references_of_the_description_lead_somewhere(ask: Requester) -> None:
    document = ask.get("/v1/openapi.json").json
    text = json.dumps(document)
    assert '"items": [' not in text  # an array of schemas is not of OpenAPI 3.1
    for name in {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert name in document["components"]["schemas"]
    for path, methods in document["paths"].items():
        for operation in methods.values():
            named = {given["name"] for given in operation["parameters"] if given["in"] == "path"}
            assert named == ({"name"} if "{name}" in path else set())


# -- limits ----------------------------------------------------------------------------------------------------------


def test_a_body_is_limited_while_it_is_read(ask: Requester) -> None:
    assert ask.post("/v1/table/link", b"x" * 10_001).error[:2] == (413, "RequestError")
    connection = http.client.HTTPConnection(ask.address, timeout=PATIENCE)
    connection.putrequest("POST", "/v1/table/link")
    connection.putheader("Authorization", f"Bearer {ask.token}")
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()
    for _ in range(20):
        connection.send(b"400\r\n" + b" " * 1024 + b"\r\n")
    assert connection.getresponse().status == 413
    connection.close()


def test_rows_are_limited(ask: Requester, db: whence.Database) -> None:
    rows = [["x", str(i)] for i in range(101)]
    assert ask.post("/v1/table/link", rows).error == (
        413, "LimitError", "an insert of 101 rows: at most 100 are allowed (limit insert_rows)",
    )  # fmt: skip
    query = {"sql": "SELECT * FROM range(1001)"}
    assert ask.post("/v1/query", query).error[:2] == (413, "LimitError")


def test_a_question_has_a_time(ask: Requester) -> None:
    found = ask.post("/v1/why/twice", {"row": ["A", "B"], "timeout": 0})
    assert found.error[:2] == (504, "QuestionTimeout")
    assert found.json["error"]["details"]["seconds"] == 0


def test_a_head_that_does_not_come_ends_the_connection(ask: Requester) -> None:
    host, _, port = ask.address.partition(":")
    for sent in (b"", b"GET /v1/hea", b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n"):
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as silent:
            silent.sendall(sent)
            assert silent.recv(1000) == b""


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 300,
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /v1/view/%ff%fe HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET " + b"/x" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /v1/health HTTP/1.1\r\nHost: a\r\nHost: localhost\r\n\r\n",
        b"\x00" * 1000 + b"\r\n\r\n",
    ],
)
def test_what_is_no_request_harms_nobody(ask: Requester, sent: bytes) -> None:
    host, _, port = ask.address.partition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as rude:
        answer = b""
        with suppress(OSError):  # it may be closed before all is sent
            rude.sendall(sent)
            rude.shutdown(socket.SHUT_WR)
            answer = rude.recv(100)
        assert not answer or answer.split()[1][:1] == b"4", answer
    assert ask.get("/v1/health").json == {"status": "ok"}


# -- calls that end otherwise ----------------------------------------------------------------------------------------


def test_whoever_goes_away_cancels_the_question(
    ask: Requester, server: whence.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = threading.Event(), threading.Event()

    def endless(call: VerbCall, args: object) -> CallAnswer:
        try:
            with call.within():
                while True:
                    begun.set()
                    whence.model.budget.reach("looking for the end", 1, 0)
                    time.sleep(0.01)
        finally:
            ended.set()

    verb = calls.VERBS["catalog"]
    monkeypatch.setitem(calls.VERBS, "catalog", Verb(verb.arguments, endless, limit="question_seconds"))
    connection = http.client.HTTPConnection(ask.address, timeout=PATIENCE)
    connection.request("GET", "/v1/catalog", headers={"Authorization": f"Bearer {ask.token}"})
    assert begun.wait(PATIENCE)
    connection.close()
    assert ended.wait(PATIENCE)
    wait_until(lambda: not server._service._calls)
    assert ask.get("/v1/view/link").status == 200


ENDLESS = "SELECT SUM(a.range * b.range) AS s FROM range(10000000) AS a, range(10000000) AS b"


def test_a_query_has_a_time_and_ends_with_its_caller(ask: Requester, server: whence.Server) -> None:
    assert ask.post("/v1/query", {"sql": ENDLESS, "timeout": 0.3}).error[:2] == (504, "QuestionTimeout")
    connection = http.client.HTTPConnection(ask.address, timeout=PATIENCE)
    headers = {"Authorization": f"Bearer {ask.token}", "Content-Type": "application/json"}
    connection.request("POST", "/v1/query", json.dumps({"sql": ENDLESS}), headers)
    wait_until(lambda: server._service._calls)
    connection.close()
    wait_until(lambda: not server._service._calls)
    assert ask.post("/v1/query", {"sql": "SELECT COUNT(*) AS n FROM link"}).status == 200


def test_an_unexpected_error_is_logged_and_its_id_is_told(
    ask: Requester, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(call: VerbCall, args: object) -> CallAnswer:
        raise ZeroDivisionError("the secret")

    monkeypatch.setitem(calls.VERBS, "position", Verb(calls.VERBS["position"].arguments, broken))
    found = ask.get("/v1/position")
    number = found.json["error"]["details"]["id"]
    assert found.error == (500, "InternalError", f"an internal error (error {number} in the server's log)")
    assert number in caplog.text
    assert "the secret" in caplog.text


# -- beginning and ending --------------------------------------------------------------------------------------------


def test_other_machines_need_a_token_file(db: whence.Database, tmp_path: Path) -> None:
    with pytest.raises(whence.WhenceError, match="needs a token file"):
        whence.serve(db, "0.0.0.0", 0)
    make_token(tmp_path / "tokens", "ann")
    with whence.serve(db, "0.0.0.0", 0, token_file=tmp_path / "tokens") as server:
        assert server.url.startswith("http://127.0.0.1:")
        assert Requester(server, "").get("/v1/health").status == 200


def test_what_cannot_be_served_is_said_at_once(db: whence.Database, server: whence.Server, tmp_path: Path) -> None:
    port = int(server.url.rpartition(":")[2])
    with pytest.raises(whence.WhenceError, match=f"cannot listen on 127.0.0.1, port {port}"):
        whence.serve(db, port=port)
    with pytest.raises(whence.WhenceError, match=r"cannot listen on 'no\.such\.host\.invalid'"):
        whence.serve(db, "no.such.host.invalid", 0, token_file=_tokens(tmp_path))
    with pytest.raises(whence.DataError, match="a port is a number"):
        whence.serve(db, port=70_000)
    with pytest.raises(whence.StorageError, match="nowhere"):
        whence.serve(db, port=0, token_file=tmp_path / "nowhere")
    with pytest.raises(whence.WhenceError, match=r"the certificate .* cannot be used"):
        whence.serve(db, port=0, cert=tmp_path / "nowhere")
    with pytest.raises(whence.DataError, match="no limit 'rows'"):
        whence.serve(db, port=0, limits={"rows": 1})
    with pytest.raises(whence.DataError, match="an origin is"):
        whence.serve(db, port=0, origins=["example.org"])


def _tokens(folder: Path) -> Path:
    make_token(folder / "made", "ann")
    return folder / "made"


def test_answers_do_not_wait_for_acknowledgements() -> None:
    """asyncio turns Nagle's algorithm off for sockets that say that they are of TCP."""
    for name in ("127.0.0.1", "localhost"):
        found = listen(name, 0)
        assert {one.proto for one in found} == {socket.IPPROTO_TCP}
        assert len({one.getsockname()[1] for one in found}) == 1
        for one in found:
            one.close()


def test_closing_does_the_writes_that_were_taken(tmp_path: Path) -> None:
    with whence.open(tmp_path / "db") as db:
        db.execute("CREATE TABLE a (x INT)")
        server = whence.serve(db, port=0)
        ask, answered = Requester(server), list[int]()

        def write() -> None:
            for i in range(10_000):
                try:
                    found = ask.post("/v1/table/a", [[i]])
                except OSError:  # it takes no more connections
                    return
                if found.status != 200:
                    assert found.status == 503, found
                    return
                answered.append(i)

        writers = [threading.Thread(target=write) for _ in range(4)]
        for writer in writers:
            writer.start()
        wait_until(lambda: len(answered) > 20)
        server.close()
        for writer in writers:
            writer.join()
        server.close()
        assert not server.is_running
        assert sorted(x for (x,) in db["a"]) >= sorted(answered)
        assert len(db["a"]) - len(answered) <= 4  # an answer that was lost on its way
        db.insert("a", (-1,))  # the database is still open


def test_two_servers_of_one_database(db: whence.Database, server: whence.Server, ask: Requester) -> None:
    with whence.serve(db, port=0) as other:
        assert Requester(other).get("/v1/view/link").rows == ask.get("/v1/view/link").rows
        assert Requester(other, server.token).get("/v1/view/link").status == 401


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_https(db: whence.Database, tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert], check=True, capture_output=True,
    )  # fmt: skip
    with whence.serve(db, port=0, cert=cert, key=key) as server:
        assert server.url.startswith("https://")
        context = ssl.create_default_context(cafile=str(cert))
        request = urllib.request.Request(f"{server.url}/v1/view/link")
        request.add_header("Authorization", f"Bearer {server.token}")
        request.add_header("Origin", server.url)
        with urllib.request.urlopen(request, context=context, timeout=PATIENCE) as answer:
            assert json.load(answer)["rows"] == [["A", "B"]]
