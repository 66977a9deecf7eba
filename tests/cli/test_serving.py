"""`whence serve` and `whence token`, as real processes where it matters."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import whence
from whence.cli import app
from whence.server.access.tokens import Tokens, read_tokens

PATIENCE = 120.0
PROGRAM = "CREATE TABLE link (src TEXT, dst TEXT); CREATE VIEW ends AS SELECT DISTINCT dst FROM link;"


def call(*args: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in args])


@contextmanager
def running(*args: object) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """Run `whence serve`; give the process, its address and its token."""
    command = [sys.executable, "-m", "whence.cli", "serve", *map(str, args), "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.fullmatch(r"serving .* at (http://127\.0\.0\.1:\d+)\n", process.stdout.readline())
        assert found, process.stderr.read() if process.stderr else ""
        token = process.stdout.readline().removeprefix("token ").strip() if "--token-file" not in command else ""
        yield process, found[1], token
    finally:
        process.kill()
        process.wait()


def ask(url: str, token: str, body: object = None) -> object:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        url, data, {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)


def test_a_folder_is_served_until_a_signal(tmp_path: Path) -> None:
    with whence.open(tmp_path / "db") as db:
        db.execute(PROGRAM)
    with running(tmp_path / "db") as (process, url, token):
        assert ask(f"{url}/v1/table/link", token, [["A", "B"]])["count"] == 1
        with pytest.raises(urllib.error.HTTPError, match="401"):
            ask(f"{url}/v1/view/link", "whence_wrong")
        os.kill(process.pid, signal.SIGTERM)
        output, errors = process.communicate(timeout=PATIENCE)
        assert (process.returncode, output) == (0, "")
        assert "stopped serving" in errors
        assert token not in errors
    with whence.open(tmp_path / "db") as db:
        assert db["ends"].rows == [("B",)]


def test_a_program_is_served_from_memory(tmp_path: Path) -> None:
    program, tokens = tmp_path / "program.sql", tmp_path / "tokens"
    program.write_text(PROGRAM)
    token = call("token", "add", tokens, "ann").stdout.splitlines()[0]
    with running(program, "--token-file", tokens, "--limit", "insert_rows=1") as (process, url, _):
        assert ask(f"{url}/v1/catalog", token)["who"] == "ann"
        with pytest.raises(urllib.error.HTTPError, match="413"):
            ask(f"{url}/v1/table/link", token, [["A", "B"], ["B", "C"]])
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0


def test_tokens_are_made_listed_and_removed(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    made = call("token", "add", file, "ann", "--expires", "30 days")
    assert made.exit_code == 0
    token = made.stdout.splitlines()[0]
    assert Tokens(file).check(token).who == "ann"
    [caller] = read_tokens(file)
    assert caller.expires == pytest.approx(time.time() + 30 * 86_400, abs=PATIENCE)
    assert call("token", "add", file, "bob").exit_code == 0
    listed = call("token", "list", file).output
    assert re.search(r"ann +20\d\d-", listed)
    assert re.search(r"bob +for ever", listed)
    assert token not in listed
    assert call("token", "remove", file, "ann").output.strip() == "1 token of ann removed"
    assert [caller.who for caller in read_tokens(file)] == ["bob"]
    assert token not in file.read_text()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["serve", "{}/db", "--listen", "nonsense"], "an address to listen on is HOST:PORT"),
        (["serve", "{}/db", "--listen", "0.0.0.0:0"], "needs a token file"),
        (["serve", "{}/db", "--limit", "rows=1"], "a limit is given as name=value"),
        (["serve", "{}/db", "--allow-origin", "example.org"], "an origin is a scheme and a name"),
        (["serve", "{}/db", "--cert", "{}/none"], "cannot be used"),
        (["serve", "{}/db", "--token-file", "{}/none"], "none"),
        (["serve", "{}/none.sql"], "cannot be read"),
        (["serve", "{}/none", "--read-only"], "there is no database here"),
        (["token", "add", "{}/tokens", "a b"], "without spaces"),
        (["token", "add", "{}/tokens", "ann", "--expires", "soon"], "soon"),
        (["token", "add", "{}/tokens", "ann", "--expires", "0 days"], "for some time"),
        (["token", "list", "{}/none"], "none"),
        (["token", "remove", "{}/none", "ann"], "there is no token file"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, args: list[str], said: str) -> None:
    found = call(*(arg.replace("{}", str(tmp_path)) for arg in args))
    assert found.exit_code == 1, found.output
    assert said in found.output.replace("\n", "")
