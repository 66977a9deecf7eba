"""`whence subscribe`: a served query on the terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from whence.cli import app
from whence.runtime.database import Database
from whence.server.app import Server

LARGE = {"numba", "duckdb", "sqlglot"}
PROGRAM = """
import sys
from whence.cli import main
try:
    main()
finally:
    print(" ".join(set(sys.modules) & {"numba", "duckdb", "sqlglot"}), file=sys.stderr)
"""
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def run(server: Server) -> Callable[..., Result]:
    def run(*arguments: str, token: str | None = server.token) -> Result:
        return CliRunner().invoke(app, ["subscribe", server.url, *arguments], env={"WHENCE_TOKEN": token})

    return run


@pytest.fixture
def start(server: Server) -> Iterator[Start]:
    """Run the command in a process of its own."""
    begun = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PROGRAM, "subscribe", server.url, *arguments]
        environment = {**os.environ, "WHENCE_TOKEN": str(server.token), "PYTHONIOENCODING": "utf-8"}
        begun.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        )
        return begun[-1]

    yield start
    for process in begun:
        process.kill()
        process.communicate()


def read_json(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def test_once_prints_the_rows_and_ends(run: Callable[..., Result], db: Database) -> None:
    db.insert("link", [("a", "b")])
    done = run("link", "--once")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "epoch 1  to begin with\n  + a  b\n", "")


def test_changes_are_printed_as_they_happen(start: Start, db: Database) -> None:
    db.insert("link", [("a", "b")])
    query = "SELECT src, dst FROM link WHERE src <> :x"
    process = start(query, "-p", "x=z", "--format", "jsonl", "--count", "3")
    assert read_json(process) == {"epoch": 1, "op": "+", "src": "a", "dst": "b"}
    db.delete("link", where="TRUE")
    assert read_json(process) == {"epoch": 2, "op": "-", "src": "a", "dst": "b"}
    db.insert("link", ("c", "d"))
    assert read_json(process) == {"epoch": 3, "op": "+", "src": "c", "dst": "d"}
    _, said = process.communicate(timeout=60)
    assert f"at {db.position}: --have goes on from there" in said
    assert process.returncode == 0


def test_going_on_from_a_position(run: Callable[..., Result], db: Database) -> None:
    db.insert("link", ("a", "b"))
    have = str(db.position)
    holding = db.subscribe("link")
    db.insert("link", ("c", "d"))
    done = run("link", "--format", "csv", "--have", have, "--count", "1")
    assert done.stdout.splitlines()[:2] == ["epoch,op,src,dst", "2,+,c,d"] or "difference to the state" in done.stderr
    holding.close()


def test_key_shows_old_and_new(start: Start, db: Database) -> None:
    db.execute("CREATE TABLE seat (id INT PRIMARY KEY, who TEXT)")
    db.insert("seat", (1, "ada"))
    process = start("seat", "--key", "id", "--count", "2")
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["epoch 1  to begin with\n", "  + 1  ada\n"]
    db.insert("seat", (1, "eve"))
    assert process.communicate(timeout=60)[0] == "epoch 2\n  ~ 1  ada  →  1  eve\n"
    process = start("seat", "--key", "id", "--count", "2", "--format", "jsonl")
    assert read_json(process)["new"] == {"id": 1, "who": "eve"}
    db.insert("seat", (1, "zoe"))
    last = read_json(process)
    assert (last["op"], last["key"], last["old"]["who"], last["new"]["who"]) == ("~", 1, "eve", "zoe")
    assert process.wait(timeout=60) == 0


def test_why_shows_the_rows_behind(run: Callable[..., Result], db: Database) -> None:
    db.insert("link", [("a", "b")])
    assert "  + a  b  ← link(a, b)\n" in run("reachable", "--why", "--once").stdout
    line = json.loads(run("reachable", "--why", "--once", "--format", "jsonl").stdout)
    assert line["why"] == [[{"table": "link", "row": {"src": "a", "dst": "b"}}]]


def test_a_limit_of_rows(run: Callable[..., Result], db: Database) -> None:
    db.insert("link", [(str(i), "x") for i in range(10)])
    assert "  … 7 more\n" in run("link", "--once", "--limit", "3").stdout


def test_errors_are_one_line(run: Callable[..., Result], tmp_path: Path) -> None:
    for arguments, said in (
        (["ghost"], "error: "),
        (["SELECT nope FROM link"], 'unknown column "nope"'),
        (["link", "--have", "x"], "not a position"),
        (["link", "--token-file", str(tmp_path / "none")], "cannot be read"),
    ):
        done = run(*arguments)
        assert (done.exit_code, done.stdout) == (1, "")
        assert said in done.stderr
        assert "Traceback" not in done.stderr
    assert "error: " in run("link", token="wrong").stderr
    assert run("link", "--once", "--count", "2").exit_code == 2
    assert run("link", "--key", "src", "--format", "csv").exit_code == 2


def test_a_token_from_a_file(server: Server, run: Callable[..., Result], tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"{server.token}\n")
    assert run("link", "--once", "--token-file", str(path), token=None).exit_code == 0
    path.write_text("two words")
    assert run("link", "--once", "--token-file", str(path)).exit_code == 1


def test_interrupting_it_ends_with_130_and_it_loads_no_engine(start: Start, db: Database) -> None:
    db.insert("link", [("a", "b")])
    process = start("link", "--format", "jsonl")
    assert read_json(process)["src"] == "a"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "--have goes on from there" in said
    assert not LARGE & set(said.split())


def test_help_names_the_command() -> None:
    assert " subscribe " in CliRunner().invoke(app, ["--help"]).output
    assert "whence subscribe http" in CliRunner().invoke(app, ["subscribe", "--help"]).output


def test_importing_the_client_loads_no_engine() -> None:
    program = "import sys, whence; whence.connect, whence.connect_async, whence.Subscription; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not LARGE & set(done.stdout.split())


def test_bounds_are_shown_in_words(start: Start, db: Database) -> None:
    db.execute("""
        CREATE STREAM sale (at INT, price INT) WITH (ordered = 'at');
        CREATE VIEW hourly AS SELECT at // 60 AS hour, MAX(price) AS high FROM sale GROUP BY 1;
    """)
    db.insert("sale", (5, 80))
    shown = start("hourly", "--count", "2")
    plain = start("hourly", "--count", "2", "--no-bounds")
    lines = start("hourly", "--count", "2", "--format", "jsonl", "--bounds")
    assert shown.stdout is not None
    assert plain.stdout is not None
    assert [shown.stdout.readline() for _ in range(2)] == ["epoch 1  to begin with\n", "  + 0  ≥ 80\n"]
    assert [plain.stdout.readline() for _ in range(2)] == ["epoch 1  to begin with\n", "  + 0  80\n"]
    known = {"bounds": {"hour": [0, 0], "high": [80, None]}, "final": False}
    assert read_json(lines) == {"epoch": 1, "op": "+", "hour": 0, "high": 80, **known}
    db.advance("sale", 60, on="at")
    assert shown.communicate(timeout=60)[0] == "epoch 2\n  = 0  80  final\n"
    assert read_json(lines) == {"epoch": 2, "op": "=", "hour": 0, "high": 80, "final": True}
    assert lines.wait(timeout=60) == 0
    db.insert("sale", (70, 1))
    assert plain.communicate(timeout=60)[0] == "epoch 3\n  + 1  1\n"
