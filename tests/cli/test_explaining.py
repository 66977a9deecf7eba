"""`whence why`, `what-if`, `critical`, `resilience`, `contribution`, `reliability`, and the same in the shell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

import whence
from whence.cli import app, shell

PROGRAM = """
CREATE TABLE link (src TEXT, dst TEXT, cost INT, p DOUBLE);
CREATE VIEW reachable AS
  SELECT src, dst FROM link
  UNION SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;
CREATE VIEW dear AS SELECT src, MAX(cost) AS cost FROM link GROUP BY src;
"""
ROWS = [("A", "B", 1, 0.5), ("B", "D", 2, 0.5), ("A", "C", 3, 0.5), ("C", "D", 4, 0.5), ("D", "E", None, 0.5)]


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("explaining") / "db"
    with whence.open(path, retain="all") as made:
        made.execute(PROGRAM)
        made.insert("link", ROWS)
        made.delete("link", ROWS[:1])
    return path


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("explaining") / "network.sql"
    values = ", ".join(f"('{a}', '{b}', {'NULL' if c is None else c}, {p})" for a, b, c, p in ROWS)
    path.write_text(PROGRAM + f"INSERT INTO link VALUES {values};")
    return path


def call(*args: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in args])


def said(*args: object) -> Any:
    result = call(*args, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_why_of_a_script(script: Path, tmp_path: Path) -> None:
    result = call(
        "why", script, "reachable", "src=A", "dst=E", "--html", tmp_path / "a.html", "--dot", tmp_path / "a.dot"
    )
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].endswith("5 base rows, 2 minimal witnesses, the smallest of 3 rows, 1 critical")
    assert lines[-1] == "critical: link(D, E, NULL, 0.5)"
    assert "<!doctype html>" in (tmp_path / "a.html").read_text(encoding="utf-8")
    assert (tmp_path / "a.dot").read_text().startswith("digraph")
    assert "a.html written" in result.stderr
    assert len(said("why", script, "reachable", "src=A", "dst=E", "--limit", 1)["witnesses"]["found"]) == 1


def test_why_of_a_database_and_of_its_past(db: Path) -> None:
    assert said("why", db, "reachable", "SRC=A", "dst=E")["witnesses"]["count"] == 1
    past = said("why", db, "reachable", "src=A", "dst=E", "--at", 1)
    assert (past["witnesses"]["count"], past["epoch"]) == (2, 1)
    assert call("why", db, "reachable", "src=A", "dst=E", "--at", 99).exit_code == 1


def test_a_row_that_is_not_there_is_an_answer_with_exit_code_1(db: Path, tmp_path: Path) -> None:
    files = ("--html", tmp_path / "not.html", "--dot", tmp_path / "not.dot")
    result = call("why", db, "reachable", "src=E", "dst=A", *files)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0] == "reachable(E, A) is not in the view at epoch 2"
    assert "is not in the view" in (tmp_path / "not.html").read_text(encoding="utf-8")
    assert (tmp_path / "not.dot").read_text(encoding="utf-8").startswith("digraph")
    told = call("why", db, "reachable", "src=E", "dst=A", "--json")
    assert told.exit_code == 1
    assert json.loads(told.stdout)["holds"] is False
    for command in ("critical", "resilience", "contribution", "reliability"):
        result = call(command, db, "reachable", "src=E", "dst=A")
        assert result.exit_code == 1
        assert "no row" in result.stderr


def test_values_are_read_as_their_columns_are_typed(db: Path) -> None:
    assert said("why", db, "dear", "cost=3")["row"] == {"src": "A", "cost": 3}
    assert said("why", db, "dear", "src=D", "cost=NULL")["holds"]
    assert said("why", db, "link", 'src="D"', "p=0.5")["row"]["dst"] == "E"
    assert "cannot be read as INTEGER" in call("why", db, "dear", "cost=x").stderr


@pytest.mark.parametrize(
    ("args", "code", "word"),
    [
        (["why", "reachable", "src"], 2, "COLUMN=VALUE"),
        (["why", "reachable", "where=A"], 1, "no column where"),
        (["why", "reachable", "src=A"], 1, "match"),
        (["why", "nowhere", "src=A"], 1, "no table or view"),
        (["what-if"], 2, "nothing is supposed"),
        (["what-if", "--delete", "link"], 2, "TABLE:ROW"),
        (["what-if", "--delete", "reachable:A,B"], 1, "is a view"),
        (["what-if", "--delete", "link:A,B"], 1, "2 values for the 4 columns"),
        (["what-if", "--delete", "link:{"], 1, "is not JSON"),
        (["what-if", "--delete", "link:X,Y,1,0.5", "--strict"], 1, "no row"),
        (["what-if", "--insert", "link:@nowhere.csv"], 1, "nowhere.csv"),
        (["reliability", "reachable", "src=A", "dst=D", "--given", "link"], 2, "TABLE=PROBABILITY"),
        (["reliability", "reachable", "src=A", "dst=D", "--given", "link=2"], 2, "from 0 to 1"),
        (["reliability", "reachable", "src=A", "dst=D", "--confidence", "2"], 2, "between 0 and 1"),
    ],
)
def test_mistakes_are_told(db: Path, args: list[str], code: int, word: str) -> None:
    result = call(args[0], db, *args[1:])
    assert (result.exit_code, word in result.output) == (code, True), result.output


@pytest.mark.parametrize("command", ["why", "critical", "resilience", "contribution", "reliability"])
def test_brackets_in_values_are_no_markup(tmp_path: Path, command: str) -> None:
    script = tmp_path / "brackets.sql"
    script.write_text("CREATE TABLE t (a TEXT); CREATE VIEW v AS SELECT a FROM t; INSERT INTO t VALUES ('[/x]');")
    result = call(command, script, "v", "a=[/x]")
    assert (result.exit_code, "v([/x])" in result.output) == (0, True), result.output


def test_what_if_tells_of_every_view_and_changes_nothing(db: Path, tmp_path: Path) -> None:
    (tmp_path / "more.csv").write_text("src,dst,cost,p\nE,F,1,1\n")
    row = '{"src": "C", "dst": "D", "cost": 4, "p": 0.5}'
    args = ["-d", f"link:{row}", "-i", "link:E,A,,0.25", "-i", f"link:@{tmp_path / 'more.csv'}"]
    result = call("what-if", db, *args, "--html", tmp_path / "what.html", "--limit", 2)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[:3] == ["link  1 gone, 2 new", "  - C  D  4  0.5", "  + E  A  NULL  0.25"]
    assert "dear  1 gone, 1 new" in lines
    assert "<h2>reachable</h2>" in (tmp_path / "what.html").read_text(encoding="utf-8")
    told = said("what-if", db, "--sql", "DELETE FROM link WHERE src = 'C'", "--view", "dear")
    assert told["views"] == {"dear": {"deleted": [{"src": "C", "cost": 4}], "inserted": []}}
    told = said("what-if", db, "--delete", 'link:{"src": "C"}', "--view", "dear")
    assert told["views"] == {"dear": {"deleted": [{"src": "C", "cost": 4}], "inserted": []}}
    (tmp_path / "gone.jsonl").write_text('{"src": "C"}\n')
    assert said("what-if", db, "--delete", f"link:@{tmp_path / 'gone.jsonl'}", "--view", "dear") == told
    assert call("what-if", db, "--delete", "link:X,Y,1,0.5").stdout.strip() == "nothing would change"
    assert said("what-if", db, "--sql", "DELETE FROM link", "--at", 1)["tables"]["link"]["deleted"][0]["dst"] == "B"
    with whence.open(db, read_only=True) as same:
        assert (same.epoch, len(same["link"])) == (2, 4)


def test_critical_of_a_row_and_of_a_view(script: Path) -> None:
    found = said("critical", script, "reachable", "src=A", "dst=E")["critical"]
    assert [one["row"]["src"] for one in found] == ["D"]
    ranked = said("critical", script, "reachable")["critical"]
    assert ranked[0]["takes"] == max(one["takes"] for one in ranked) == 4
    part = said("critical", script, "reachable", "src=A")
    assert (part["row"], part["where"], part["of"]) == (None, {"src": "A"}, 4)
    assert "takes along, of 4" in call("critical", script, "reachable", "src=A").stdout
    lines = call("critical", script, "reachable", "--limit", 1).stdout
    assert "link(D, E, NULL, 0.5)" in lines
    assert "1 of 5 rows" in lines


def test_resilience_contribution_and_reliability(script: Path) -> None:
    row = ["reachable", "src=A", "dst=D"]
    assert said("resilience", script, *row)["count"] == 2
    assert "2 rows" in call("resilience", script, *row).stdout
    told = said("contribution", script, *row)
    assert [one["shapley"] for one in told["rows"]] == pytest.approx([0.25] * 4)
    assert "0.25" in call("contribution", script, *row).stdout
    assert said("reliability", script, *row, "--given", "link=0.5")["probability"] == pytest.approx(7 / 16)
    assert said("reliability", script, *row, "--given", "link=column:p")["method"] == "exact"
    assert "probability 0.4375" in call("reliability", script, *row, "--given", "link=0.5").stdout


def test_answers_as_pages(script: Path, tmp_path: Path) -> None:
    row, page = ["reachable", "src=A", "dst=D"], tmp_path / "page.html"
    for args, word in [
        (["critical", script, "reachable"], "link(D, E, NULL, 0.5)"),
        (["critical", script, "reachable", "src=A", "dst=E"], "Critical for reachable(A, E)"),
        (["resilience", script, *row], "A smallest loss"),
        (["contribution", script, *row], "Shapley"),
        (["reliability", script, *row, "--given", "link=0.5"], "0.4375"),
    ]:
        assert call(*args, "--html", page).exit_code == 0
        assert word in page.read_text(encoding="utf-8")
        page.unlink()


def test_the_commands_say_how_they_are_used() -> None:
    for command in ("why", "what-if", "critical", "resilience", "contribution", "reliability"):
        result = call(command, "--help")
        assert result.exit_code == 0
        assert "Examples:" in result.stdout


def test_in_the_shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.setattr(shell, "HISTORY", tmp_path / "history")
    lines = iter(
        [r"\why reachable src=A dst='C'", r"\why reachable src=A 'x", r"\what-if DELETE FROM link;", r"\?", r"\q"]
    )
    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    with whence.open() as db:
        db.execute(
            "CREATE TABLE link (src TEXT, dst TEXT); CREATE VIEW reachable AS SELECT DISTINCT src, dst FROM link"
        )
        db.insert("link", [("A", "C")])
        shell.interact(db, Console(), Console(stderr=True), "table")
        assert len(db["link"]) == 1
    printed = capsys.readouterr()
    assert "● link(A, C)" in printed.out
    assert "reachable  1 gone, 0 new" in printed.out
    assert r"\why VIEW" in printed.out
    assert "No closing quotation" in printed.err
