"""The command line on Spark: the same commands with --spark, folders as streams, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import whence
from whence.cli import app

PROGRAM = """
CREATE TABLE link (src TEXT, dst TEXT);
CREATE VIEW reachable AS
  SELECT src, dst FROM link
  UNION
  SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "program.sql").write_text(PROGRAM)
    (tmp_path / "in").mkdir()
    return tmp_path


def call(*args: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in args])


def put(place: Path, name: str, *rows: str) -> None:
    """Rows such as '+ab'."""
    lines = [json.dumps({"op": row[0], "src": row[1], "dst": row[2]}) for row in rows]
    (place / "in" / name).write_text("\n".join(lines) + "\n")


def lines(result: Result) -> list[Any]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_files_are_taken_as_without_spark(spark: Any, place: Path) -> None:
    put(place, "links.jsonl", "+ab", "+bc", "-ab")
    args = ["run", place / "program.sql", "-s", f"link={place / 'in' / 'links.jsonl'}", "--format", "jsonl"]
    plain, here = call(*args), call(*args, "--spark", "--partitions", "3")
    assert here.exit_code == 0, here.output
    assert sorted(map(str, lines(here))) == sorted(map(str, lines(plain)))
    assert len(lines(here)) == 5


def test_a_folder_is_a_stream_of_which_each_file_is_taken_once(spark: Any, place: Path) -> None:
    put(place, "1.jsonl", "+ab", "+bc")
    args = ["run", "--spark", "--db", place / "db", "-s", f"link={place / 'in'}"]
    first = call(*args, place / "program.sql", "--partitions", "2")
    assert first.exit_code == 0, first.output
    assert "epoch 1 reachable" in first.stdout
    assert "3 rows" in first.stdout
    assert "1 epoch, 2 rows taken in; now at epoch 1" in first.stderr
    put(place, "2.jsonl", "-ab", "+cd")
    second = call(*args, "--format", "jsonl")
    assert second.exit_code == 0, second.output
    assert "1 epoch, 2 rows taken in; now at epoch 2" in second.stderr
    with whence.open(place / "db", read_only=True) as db:  # and opens without Spark
        assert sorted(db["reachable"]) == [("b", "c"), ("b", "d"), ("c", "d")]
    assert call("check", place / "db").exit_code == 0
    info = json.loads(call("info", place / "db", "--format", "json").stdout)
    assert info["views"] == {"reachable": 3}


def test_csv_files_by_their_header(spark: Any, place: Path) -> None:
    (place / "in" / "1.csv").write_text("dst,sign,src\nb,+,a\nc,insert,b\n")
    (place / "in" / "note.txt").write_text("not for us")
    args = ["run", place / "program.sql", "--spark", "--op", "sign", "--format", "jsonl"]
    result = call(*args, "-s", f"link={place / 'in' / '*.csv'}")
    assert result.exit_code == 0, result.output
    assert sorted((row["src"], row["dst"]) for row in lines(result)) == [("a", "b"), ("a", "c"), ("b", "c")]


def test_following_ends_with_an_interrupt(spark: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from whence.runtime.spark.frames.streams import Running

    put(place, "1.jsonl", "+ab")
    waited = Running.awaitTermination

    def until_taken(self: Running, timeout: float | None = None) -> bool | None:
        if self.recentProgress:
            raise KeyboardInterrupt
        return waited(self, timeout)

    monkeypatch.setattr(Running, "awaitTermination", until_taken)
    args = ["run", place / "program.sql", "--spark", "--follow", "--trigger", "100 milliseconds"]
    result = call(*args, "-s", f"link={place / 'in'}")
    assert result.exit_code == 0, result.output
    assert "  + a  b" in result.stdout


def test_errors_in_files_say_what_and_where(spark: Any, place: Path) -> None:
    put(place, "1.jsonl", "?ab")
    result = call("run", place / "program.sql", "--spark", "-s", f"link={place / 'in'}")
    assert result.exit_code == 1
    assert "table link: column op: '?' is no operation" in result.stderr
    (place / "in" / "1.jsonl").write_text("{ this is no JSON\n")
    result = call("run", place / "program.sql", "--spark", "-s", f"link={place / 'in'}")
    assert result.exit_code == 1
    assert "not JSON: Expecting property name enclosed in double quotes" in result.stderr
    assert "in { this is no JSON" in result.stderr
    assert "Traceback" not in result.output


def test_sql_on_spark(spark: Any, place: Path) -> None:
    script = "INSERT INTO link VALUES ('a', 'b'), ('b', 'c'); SELECT COUNT(*) AS n FROM reachable"
    result = call("sql", place / "program.sql", "--master", "local[2]", "-c", script, "--format", "jsonl")
    assert result.exit_code == 0, result.output
    assert '{"n": 3}' in result.stdout


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of these gets as far as starting it."""

    def refuse(*_: object) -> None:
        raise AssertionError("Spark is not needed for this")

    monkeypatch.setattr(whence, "spark_session", refuse)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--spark", "--follow"], "there is nothing to follow: give a --source"),
        (["--spark", "-s", "link=in/1.jsonl", "--follow"], "Spark follows folders only: leave out --spark"),
        (["--spark", "-s", "link=in", "--trigger", "1 second"], "give --follow, too"),
        (["--spark", "--db", "db", "--read-only"], "a database is read by one process, without Spark"),
        (["--partitions", "0"], "--partitions"),
    ],
)
def test_wrong_usage(
    place: Path, monkeypatch: pytest.MonkeyPatch, without_spark: None, args: list[str], said: str
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("COLUMNS", "200")
    put(place, "1.jsonl", "+ab")
    result = call("run", "program.sql", *args)
    assert result.exit_code == 2, result.output
    assert said in " ".join(result.output.split())


def test_a_folder_must_tell_what_is_in_it(place: Path, without_spark: None) -> None:
    source = f"link={place / 'in'}"
    assert "has no file yet: say which to read, such as link=" in call("run", "--spark", "-s", source, "p.sql").stderr
    put(place, "1.jsonl", "+ab")
    (place / "in" / "2.csv").write_text("src,dst\n")
    assert "has files of several kinds (csv, jsonl)" in call("run", "--spark", "-s", source, "p.sql").stderr


def test_partitions_without_spark(place: Path, without_spark: None) -> None:
    put(place, "links.jsonl", "+ab", "+bc")
    args = ["run", place / "program.sql", "-s", f"link={place / 'in' / 'links.jsonl'}", "--partitions", "3"]
    result = call(*args, "--db", place / "db")
    assert result.exit_code == 0, result.output
    with whence.open(place / "db") as db:
        assert len(db["reachable"]) == 3
