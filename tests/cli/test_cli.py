"""The command line, as a newcomer meets it: what is printed, where, and with which exit code."""

from __future__ import annotations

import builtins
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import whence
from whence.cli import app, shell

PROGRAM = """
CREATE TABLE sale (item TEXT, price INT);
CREATE VIEW total AS SELECT item, SUM(price) AS price FROM sale GROUP BY item;
CREATE VIEW items AS SELECT DISTINCT item FROM sale;
"""
UPDATES = """\
{"op": "+", "item": "tea", "price": 3}
{"+": {"item": "tea", "price": 4}}
{"op": "-", "item": "tea", "price": 3}
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "program.sql").write_text(PROGRAM)
    (tmp_path / "sale.jsonl").write_text(UPDATES)
    return tmp_path


def call(*args: object, input: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(a) for a in args], input=input)


def lines(result: Result) -> list[object]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_run_shows_the_views_as_they_change(files: Path) -> None:
    result = call("run", files / "program.sql", "--source", f"sale={files / 'sale.jsonl'}")
    assert result.exit_code == 0, result.output
    out = [line.rstrip() for line in result.stdout.splitlines()]
    assert "  + tea  3" in out
    assert out.index("  - tea  3") < out.index("  + tea  7") < out.index("  + tea  4")
    assert out[-1] == "1 row"


def test_run_as_json_lines_one_line_a_change(files: Path) -> None:
    result = call(
        "run", files / "program.sql", "-s", f"sale={files / 'sale.jsonl'}", "--view", "total", "--format", "jsonl"
    )
    assert lines(result) == [
        {"epoch": 1, "view": "total", "op": "+", "item": "tea", "price": 3},
        {"epoch": 2, "view": "total", "op": "-", "item": "tea", "price": 3},
        {"epoch": 2, "view": "total", "op": "+", "item": "tea", "price": 7},
        {"epoch": 3, "view": "total", "op": "-", "item": "tea", "price": 7},
        {"epoch": 3, "view": "total", "op": "+", "item": "tea", "price": 4},
    ]


def test_run_in_batches_as_csv(files: Path) -> None:
    args = ["--view", "total", "--batch", "10", "--format", "csv"]
    result = call("run", files / "program.sql", "-s", f"sale={files / 'sale.jsonl'}", *args)
    assert result.stdout.splitlines() == ["epoch,op,item,price", "1,+,tea,4"]
    assert call("run", files / "program.sql", "--format", "csv").exit_code == 2


def test_run_takes_tables_of_rows_too(files: Path) -> None:
    (files / "sale.csv").write_text("item,price\ncake,9\n")
    args = ["-s", f"sale={files / 'sale.csv'}", "--view", "total", "--format", "jsonl"]
    assert lines(call("run", files / "program.sql", *args)) == [
        {"epoch": 1, "view": "total", "op": "+", "item": "cake", "price": 9}
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            '{"op": "+", "item": 3, "price": 1}\n',
            "sale.jsonl, line 1: table sale, column item: 3 (int) is not a value of type TEXT",
        ),
        ('{"op": "+", "item": "a", "price": 1}\nnonsense\n', "sale.jsonl, line 2: not JSON"),
        ('{"op": "?", "item": "a"}\n', "is no operation; there are"),
        ('{"op": ["+"], "item": "a"}\n', "line 1: column op: "),
        ("[" * 100_000 + "\n", "sale.jsonl, line 1: not JSON"),
        ('\n["a", 1]\n', "sale.jsonl, line 2: expected an object"),
        ('{"+": 5}\n', "sale.jsonl, line 1: table sale: no column +"),
        ('{"+": {"item": "a", "prize": 5}}\n', "sale.jsonl, line 1: table sale: no column prize"),
        ('{"item": "a", "price": 1e30}\n', "sale.jsonl, line 1: table sale, column price"),
    ],
)
def test_errors_in_updates_name_file_and_line(files: Path, text: str, says: str) -> None:
    (files / "sale.jsonl").write_text(text)
    result = call("run", files / "program.sql", "-s", f"sale={files / 'sale.jsonl'}")
    assert result.exit_code == 1
    assert says in result.stderr
    assert "Traceback" not in result.output


def test_a_bad_duration_in_an_update_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "p.sql").write_text("CREATE TABLE wait (span INTERVAL)")
    for name, text, place in (
        ("w.jsonl", '{"span": "P1D"}\n{"span": "soon"}\n', "w.jsonl, line 2: column span"),
        ("w.csv", "span\nP1D\nsoon\n", "w.csv, line 3, column span"),
    ):
        (tmp_path / name).write_text(text)
        result = call("run", tmp_path / "p.sql", "-s", f"wait={tmp_path / name}")
        assert result.exit_code == 1
        assert f"{place}: 'soon' is not a value of type INTERVAL" in result.stderr


def test_a_row_that_is_not_there_is_a_warning(files: Path) -> None:
    (files / "sale.jsonl").write_text('{"op": "-", "item": "a", "price": 1}\n')
    result = call("run", files / "program.sql", "-s", f"sale={files / 'sale.jsonl'}")
    assert result.exit_code == 0
    assert "line 1: no such row to delete" in result.stderr


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["run", "nowhere.sql"], 1, "nowhere.sql: cannot be read"),
        (["run", "{program}", "-s", "sale"], 2, "is not TABLE=FILE"),
        (["run", "{program}", "-s", "sale=x.txt"], 1, "must end in one of"),
        (["run", "{program}", "-s", "sale=x.jsonl"], 1, "x.jsonl: no such file"),
        (["run", "{program}", "-s", "sale=x.csv"], 1, "x.csv: no such file"),
        (["run", "{program}", "-s", "sale=x.parquet"], 1, "x.parquet: no such file"),
        (["run", "{program}", "-s", "nope=x.jsonl"], 1, 'there is no table "nope"'),
        (["run", "{program}", "--view", "nope"], 1, 'there is no table or view "nope"'),
        (["run"], 2, "Missing argument"),
        (["sql", "-c", "SELEC 1"], 1, "line 1, column 1"),
        (["sql", "-c", "SELECT * FROM nowhere"], 1, "line 1, column 15"),
        (["demo", "nothing"], 2, "nothing"),
    ],
)
def test_exit_codes(files: Path, args: list[str], code: int, says: str) -> None:
    result = call(*(a.replace("{program}", str(files / "program.sql")) for a in args))
    assert (result.exit_code, says in result.stderr) == (code, True), result.output
    assert "Traceback" not in result.output


def test_sql_one_shot(files: Path) -> None:
    result = call("sql", files / "program.sql", "-c", "INSERT INTO sale VALUES ('a', 1); SELECT * FROM total")
    assert result.exit_code == 0
    out = result.stdout.split()
    assert out[:3] == ["1", "row", "inserted"]
    assert out[-4:] == ["a", "1", "1", "row"]
    assert lines(call("sql", "--format", "jsonl", input="SELECT 1 AS a; SELECT NULL AS b")) == [{"a": 1}, {"b": None}]
    assert call("sql", "-c", "SELECT 1 AS a, 'x,y' AS b", "--format", "csv").stdout == 'a,b\n1,"x,y"\n'
    assert "scan sale" in call("sql", files / "program.sql", "-c", "EXPLAIN total").stdout


def test_help_and_version() -> None:
    assert whence.__version__ in call("--version").stdout
    for command in ("run", "sql", "demo"):
        assert f"whence {command}" in call(command, "--help").stdout
    assert call().exit_code == 2


def test_verbose_logs_epochs(files: Path) -> None:
    import logging

    root = logging.getLogger()
    handlers, level = root.handlers[:], logging.getLogger("whence").level
    root.handlers = []
    try:
        result = call("-v", "run", files / "program.sql", "-s", f"sale={files / 'sale.jsonl'}")
        assert "epoch 3 committed" in result.stderr
    finally:
        root.handlers = handlers
        logging.getLogger("whence").setLevel(level)


@pytest.mark.parametrize("name", ["network", "access"])
def test_the_demos_run_and_show_differences(name: str) -> None:
    result = call("demo", name)
    assert result.exit_code == 0, result.output
    assert "rows gone" in result.stdout
    assert "\n  - " in result.stdout
    assert "\n  + " in result.stdout


def test_the_demo_says_what_became_unreachable() -> None:
    out = call("demo", "network", "--limit", "1000").stdout
    cut = out.partition("east and west lose each other")[2].partition("The bridge comes back")[0]
    gained = cut.partition("cut_off:")[2]
    assert "0 rows gone, 28 rows new" in gained  # 4 nodes east times 7 nodes west
    assert "+ T1  U1" in gained


def test_the_shell_reads_until_a_semicolon(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    def answers() -> Iterator[str]:
        yield from ("CREATE TABLE a (x INT);", "INSERT INTO a", "VALUES (1);", "SELECT * FROM a;", "")
        yield from ("\\d", "\\d a", "\\?", "SELECT * FROM b;", "\\e a", "\\q")

    given = answers()
    monkeypatch.setattr(builtins, "input", lambda prompt: next(given))
    monkeypatch.setattr(shell, "_history", lambda: None)
    with whence.open() as db:
        shell.interact(db, Console(width=100), Console(stderr=True, width=200), "table")
        assert db["a"].rows == [(1,)]
    said = capsys.readouterr()
    assert "1 row inserted" in said.out
    assert "INTEGER" in said.out
    assert "Statements end with a semicolon" in said.out
    assert 'there is no table or view "b"' in said.err
