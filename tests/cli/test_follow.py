"""`whence run` with files that grow, folders and standard input, without Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import whence
from whence.cli import app
from whence.io import tails

PROGRAM = """
CREATE TABLE link (src TEXT, dst TEXT);
CREATE VIEW reachable AS
  SELECT src, dst FROM link
  UNION
  SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "program.sql").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tails, "SETTLE", 0.0)
    return tmp_path


def call(*args: object, input: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(a) for a in args], input=input, env={"COLUMNS": "200"})


def text(*rows: str) -> str:
    """Lines of rows such as '+ab'."""
    return "".join(json.dumps({"op": row[0], "src": row[1], "dst": row[2]}) + "\n" for row in rows)


def lines(output: str) -> list[tuple[int, str, str, str]]:
    found = [json.loads(line) for line in output.splitlines()]
    return [(change["epoch"], change["op"], change["src"], change["dst"]) for change in found]


RUN = ("run", "program.sql", "--view", "reachable", "--format", "jsonl")


def test_standard_input_is_read_until_its_end(place: Path) -> None:
    result = call(*RUN, "-s", "link=-", input=text("+ab", "+bc", "-ab"))
    assert result.exit_code == 0, result.output
    assert lines(result.stdout) == [(1, "+", "b", "c")]
    assert "1 epoch, 3 rows taken in; now at epoch 1" in result.stderr
    result = call(*RUN, "-s", "link=csv:-", "--batch", "1", input="src,dst\na,b\nb,c\n")
    assert sorted(lines(result.stdout)) == [(1, "+", "a", "b"), (2, "+", "a", "c"), (2, "+", "b", "c")]


def test_each_file_of_a_folder_is_an_epoch_and_taken_once(place: Path) -> None:
    (place / "in").mkdir()
    (place / "in" / "1.jsonl").write_text(text("+ab", "+bc"))
    os.utime("in/1.jsonl", (1, 1))
    (place / "in" / "2.csv").write_text("src,dst,what\na,b,-\n")
    (place / "in" / ".3.csv").write_text("half of i")
    run = (*RUN, "--db", "db", "-s", "link=in/*.jsonl", "-s", "link=in/*.csv", "--op", "what")
    (place / "in" / "1.jsonl").write_text(text("+ab", "+bc").replace("op", "what"))
    result = call(*run)
    assert result.exit_code == 0, result.output
    assert {(epoch, op) for epoch, op, *_ in lines(result.stdout)} == {(1, "+"), (2, "-")}
    again = call(*run)
    assert again.exit_code == 0, again.output
    assert "0 epochs, 0 rows taken in; now at epoch 2" in again.stderr


def test_plain_files_are_read_from_their_start_as_ever(place: Path) -> None:
    (place / "links.jsonl").write_text(text("+ab"))
    for n in (1, 2):
        assert call(*RUN, "--db", "db", "-s", "link=links.jsonl").exit_code == 0
        with whence.open("db", read_only=True) as db:
            assert len(db["link"]) == n


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["--follow"], 2, "there is nothing to follow: give a --source"),
        (["-s", "link=x.jsonl", "--trigger", "1 s"], 2, "give --follow, too"),
        (["-s", "link=x.jsonl", "--follow", "--trigger", "often"], 2, "'often' is not a time such as"),
        (["-s", "link=x.jsonl", "--delay", "-1 s"], 2, "'-1 s' is not a time such as"),
        (["-s", "link=x.parquet", "--follow"], 1, "a Parquet file does not grow"),
        (["-s", "link=nowhere/*.csv", "--follow"], 1, "no such folder"),
        (["-s", "link=x.txt", "--follow"], 1, "must end in one of"),
        (["-s", "reachable=x.jsonl", "--follow"], 1, "is a view"),
        (["-s", "link=-", "--op", "src"], 1, "operations stand in a column of their own"),
    ],
)
def test_wrong_usage_says_what_to_do(place: Path, args: list[str], code: int, said: str) -> None:
    result = call("run", "program.sql", *args, input="")
    assert result.exit_code == code, result.output
    assert said in " ".join(result.output.split())


class Follower:
    """A `whence run --follow` in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def read(self, count: int) -> list[Any]:
        """Wait for lines of output."""
        assert self.process.stdout is not None
        return [json.loads(self.process.stdout.readline()) for _ in range(count)]

    def stop(self, number: int) -> tuple[int, str]:
        """Send a signal; return the exit code and what was said on standard error."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said


@contextmanager
def following(*args: str) -> Iterator[Follower]:
    command = [sys.executable, "-m", "whence.cli", "run", *args, "--follow", "--format", "jsonl"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    try:
        yield Follower(process)
    finally:
        process.kill()
        process.communicate()


def test_killed_and_started_again_it_has_each_line_once(place: Path) -> None:
    run = ("program.sql", "--db", "db", "-s", "link=links.jsonl", "-s", "link=in/", "--view", "n", "--batch", "3")
    (place / "program.sql").write_text("CREATE TABLE link (src TEXT, dst TEXT); CREATE VIEW n AS SELECT * FROM link")
    (place / "in").mkdir()
    wanted: list[tuple[str, str]] = []
    for turn in range(2):
        rows = [f"+{turn}{n}" for n in range(7)]
        wanted += [(row[1], row[2]) for row in rows] + [("f", str(turn))]
        with following(*run) as child:
            child.read(len(wanted) - 8)  # those of the last turn, of which some may be new
            with (place / "links.jsonl").open("a") as file:
                file.write(text(*rows)[:-5])
                file.flush()
                child.read(6)
                file.write(text(*rows)[-5:])
                file.flush()
                (place / "in" / f"{turn}.tmp").write_text(text(f"+f{turn}"))
                (place / "in" / f"{turn}.tmp").rename(place / "in" / f"{turn}.jsonl")
                child.read(1)  # the other row of the two may be in or not
            assert child.stop(signal.SIGKILL)[0] == -signal.SIGKILL
    with following(*run) as child:
        child.read(len(wanted))
        code, said = child.stop(signal.SIGTERM)
        assert (code, "taken in; now at epoch" in said) == (0, True), said
    with whence.open("db") as db:
        assert sorted(db["link"].rows) == sorted(wanted)
