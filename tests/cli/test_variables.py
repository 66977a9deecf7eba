"""Parameters of SQL on the command line and in the shell."""

from __future__ import annotations

import builtins
import datetime as dt
from decimal import Decimal
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

import whence
from whence.cli import app, shell
from whence.cli.variables import read_value


def call(*args: object, input: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(a) for a in args], input=input)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-5", -5),
        (" 2.50 ", Decimal("2.50")),
        ("1e3", 1000.0),
        ("'5'", "5"),
        ("'it''s'", "it's"),
        ("it's", "it's"),
        ("2024-05-01", "2024-05-01"),
        ("TRUE", True),
        ("null", None),
        ("'null'", "null"),
        ("", ""),
        ("timestamp '2024-05-01 10:00'", dt.datetime(2024, 5, 1, 10)),
        ("INTERVAL '1 day'", whence.Interval(0, 1, 0)),
    ],
)
def test_a_typed_value_is_a_literal_or_text(text: str, value: object) -> None:
    found = read_value(text)
    assert (found, type(found)) == (value, type(value))


def test_parameters_of_sql() -> None:
    sql = "SELECT :who AS who, $n + 1 AS n"
    args = ("sql", "-p", "who=it's; --", "--param", "n=5", "--format", "csv")
    for result in (call(*args, "-c", sql), call(*args, input=sql)):
        assert result.stdout == "who,n\nit's; --,6\n"


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["-p", "n"], 2, "'n' is not NAME=VALUE"),
        (["-p", "1=2"], 2, "'1=2' is not NAME=VALUE"),
        (["-p", "n=1", "-p", "n=2"], 2, "n is given twice"),
        (["-p", "m=1"], 1, "no value for the parameter :n"),
        (["-p", "n=1", "-p", "m=1"], 1, "the value of 'm' in params is not used"),
        (["-p", "n=DATE 'x'"], 1, "'x' cannot be read as DATE"),
    ],
)
def test_wrong_parameters(args: list[str], code: int, said: str) -> None:
    result = call("sql", *args, "-c", "SELECT :n")
    assert result.exit_code == code
    assert said in result.output


def test_parameters_of_what_if(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("CREATE TABLE a (x TEXT); INSERT INTO a VALUES ('it''s'), ('b')")
    result = call("what-if", tmp_path / "a.sql", "--sql", "DELETE FROM a WHERE x = :x", "-p", "x=it's")
    assert "1 gone, 0 new" in result.stdout


def test_variables_of_the_shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    given = iter(
        [
            *("CREATE TABLE a (x INT, y TEXT);", "\\set n 7", "\\set who it's", "\\set"),
            *("INSERT INTO a VALUES (:n, $who);", "\\what-if DELETE FROM a WHERE x = :n", "\\unset n", "SELECT :n;"),
            *("\\unset n", "\\set 1 2", "SELECT y || :z AS q FROM a;", "\\q"),
        ]
    )
    monkeypatch.setattr(builtins, "input", lambda prompt: next(given))
    monkeypatch.setattr(shell, "_history", lambda: None)
    with whence.open() as db:
        shell.interact(db, Console(width=100), Console(stderr=True, width=200), "table", {"z": "!"})
        assert db["a"].rows == [(7, "it's")]
    said = capsys.readouterr()
    assert "n = 7\nwho = \"it's\"\nz = '!'" in said.out
    assert "1 gone, 0 new" in said.out
    assert "it's!" in said.out
    assert "no value for the parameter :n" in said.err
    assert "there is no variable 'n'" in said.err
    assert "\\set NAME VALUE sets a variable" in said.err
