"""Databases that last, from the command line: what is printed, with which exit code, and what is left on disk."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

import whence
from tests import inside
from whence.cli import app
from whence.cli.console import Bar
from whence.state.disk import Disk
from whence.state.segment import FILE_HEADER
from whence.state.store import Folder

PROGRAM = """
CREATE TABLE sale (item TEXT, price INT);
CREATE VIEW total AS SELECT item, SUM(price) AS price FROM sale GROUP BY item;
"""
FUNCTIONS = """
def register(db):
    db.create_function("twice", lambda x: 2 * x, args=["INT"], returns="BIGINT")

nothing = 5
"""


def call(*args: object, input: str | None = None) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(a) for a in args], input=input)


def said(result: Result, code: int = 0) -> str:
    """Everything that was printed, on one line, by a command that ended as it should."""
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return " ".join((result.stdout + result.stderr).split())


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "program.sql").write_text(PROGRAM)
    (tmp_path / "sale.jsonl").write_text('{"item": "tea", "price": 3}\n{"item": "tea", "price": 4}\n')
    (tmp_path / "shop_functions.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "shop_functions", raising=False)
    return tmp_path


@pytest.fixture
def db(files: Path) -> Path:
    call("run", "program.sql", "--db", "db", "-s", "sale=sale.jsonl")
    return files / "db"


def test_run_goes_on_where_it_stopped(files: Path) -> None:
    args = ["--db", "db", "-s", "sale=sale.jsonl", "--format", "jsonl"]
    first = call("run", "program.sql", *args)
    assert said(first).count('"op": "+"') == 2
    again = call("run", "program.sql", *args)
    assert [json.loads(line)["price"] for line in again.stdout.splitlines()] == [7, 7, 10, 10, 14]
    assert json.loads(call("run", *args).stdout.splitlines()[-1]) == {
        "epoch": 6,
        "view": "total",
        "op": "+",
        "item": "tea",
        "price": 21,
    }


def test_a_program_may_say_more_than_is_there(db: Path) -> None:
    more = PROGRAM + "CREATE VIEW n AS SELECT COUNT(*) AS n FROM sale;\nCREATE VIEW wrong AS SELECT nothing FROM sale;"
    (db.parent / "program.sql").write_text(more)
    assert "line 5, column 29" in said(call("run", "program.sql", "--db", "db"), 1)
    (db.parent / "program.sql").write_text(more.partition("\nCREATE VIEW wrong")[0])
    assert '{"n": 2}' in said(call("sql", "program.sql", "--db", "db", "-c", "SELECT * FROM n", "--format", "jsonl"))
    (db.parent / "program.sql").write_text(PROGRAM.replace("price INT", "price BIGINT"))
    assert '"sale"' in said(call("run", "program.sql", "--db", "db"), 1)


def test_sql_in_a_folder(db: Path) -> None:
    assert "1 row inserted" in said(call("sql", "--db", "db", "-c", "INSERT INTO sale VALUES ('cake', 9)"))
    read = ["sql", "--db", "db", "--read-only", "--format", "jsonl"]
    assert said(call(*read, "-c", "SELECT SUM(price) AS p FROM total")) == '{"p": 16}'
    assert said(call(*read, input="SELECT COUNT(*) AS n FROM sale")) == '{"n": 3}'
    assert "for reading only" in said(call(*read, "-c", "DELETE FROM sale"), 1)


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["sql", "--read-only", "-c", "SELECT 1"], 2, "give its --db"),
        (["sql", "--durability", "none", "-c", "SELECT 1"], 2, "give its --db"),
        (["sql", "--retain", "5", "-c", "SELECT 1"], 2, "give its --db"),
        (["sql", "--db", "db", "--read-only", "--retain", "5", "-c", "SELECT 1"], 2, "not with --read-only"),
        (["sql", "--db", "db", "--durability", "perhaps", "-c", "SELECT 1"], 2, "perhaps"),
        (["sql", "--db", "db", "--retain", "soon", "-c", "SELECT 1"], 1, "retain is a number of epochs"),
        (["sql", "--db", "new", "--read-only", "-c", "SELECT 1"], 1, "there is no database here"),
        (["sql", "--db", "program.sql", "-c", "SELECT 1"], 1, "is a file, not a Whence database"),
        (["run"], 2, "Missing argument"),
        (["info", "nowhere"], 1, "there is no database here"),
        (["check", "nowhere"], 1, "there is no database here"),
        (["backup", "nowhere", "to"], 1, "there is no database here"),
        (["backup", "db", "db"], 1, "is there already"),
        (["export", "nowhere", "to"], 1, "there is no database here"),
        (["export", "db", "."], 1, "is not empty"),
        (["export", "db", "to", "--parquet-compression", "rar"], 2, "rar"),
        (["import", "db", "to"], 1, "is no export"),
        (["check", "db", "--functions", "shop_functions"], 2, "is not MODULE:NAME"),
        (["check", "db", "--functions", "no_such_module:f"], 1, "No module named"),
        (["check", "db", "--functions", "shop_functions:f"], 1, "has no attribute 'f'"),
        (["check", "db", "--functions", "shop_functions:nothing"], 1, "cannot be called"),
        (["check"], 2, "Missing argument"),
    ],
)
def test_errors_and_exit_codes(db: Path, args: list[str], code: int, says: str) -> None:
    assert says in said(call(*args), code)
    assert sorted(path.name for path in db.parent.iterdir() if path.is_dir() and path.name != "__pycache__") == ["db"]


@pytest.mark.parametrize("command", ["run", "sql", "info", "check", "backup", "export", "import"])
def test_help_has_examples(command: str) -> None:
    text = said(call(command, "--help"))
    assert f"whence {command} " in text.partition("Examples:")[2]


def test_info(db: Path) -> None:
    text = said(call("info", "db"))
    assert "format 2" in text
    assert "epoch 2, " in text
    assert "to 2 (retain 0)" in text
    assert "last snapshot epoch 2, " in text
    assert "written to by nobody" in text
    assert "table sale 2" in text
    assert "view total 1" in text
    assert "sale" not in said(call("info", "db", "--quick"))


def test_info_for_programs(db: Path) -> None:
    found = json.loads(call("info", "db", "--format", "json").stdout)
    assert (found["epoch"], found["image_epoch"], found["records"]) == (2, 2, 0)
    assert found["oldest"] in (0, 2)
    assert (found["tables"], found["views"], found["writer"]) == ({"sale": 2}, {"total": 1}, None)
    assert found["disk_bytes"] == found["log_bytes"] + found["image_bytes"]
    assert "tables" not in json.loads(call("info", "db", "--quick", "--format", "json").stdout)
    with whence.open(db, retain="all") as open_db:
        open_db.insert("sale", ("cake", 1))
        beside = json.loads(call("info", "db", "--format", "json").stdout)
        assert (beside["epoch"], beside["retain"], beside["records"]) == (3, "all", 1)
        assert str(os.getpid()) in beside["writer"] or "this process" in beside["writer"]


def test_check_says_that_all_is_well(db: Path) -> None:
    text = said(call("check", "db"))
    assert "db: all is well at epoch 2: " in text
    assert "1 table of 2 rows, 1 view" in text
    assert "total 1 ok" in text


def test_check_names_file_and_offset_of_damage(db: Path) -> None:
    whence_db = whence.open(db)
    whence_db.insert("sale", ("cake", 1))
    inside.store(whence_db).close()  # type: ignore[attr-defined]  # as if killed
    segment = max((db / "log").iterdir())
    data = bytearray(segment.read_bytes())
    data[-3] ^= 1
    segment.write_bytes(data)
    text = said(call("check", "db"), 1)
    assert f"problem: {db}/log/{segment.name}, offset {FILE_HEADER}: payload checksum does not match" in text
    assert f"damaged at {FILE_HEADER}" in text
    assert "db: 1 problem" in text


def test_check_tells_of_torn_tails_and_strays(db: Path) -> None:
    segment = max((db / "log").iterdir())
    with segment.open("ab") as file:
        file.write(b"\1\2\3")
    (db / "notes.txt").write_text("")
    text = said(call("check", "db"))
    assert f"torn: {db}/log" in text
    assert "3 bytes" in text
    assert f"stray: {db}/notes.txt is no part of the database" in text
    assert "all is well" in text


def test_check_says_which_rows_differ(files: Path) -> None:
    with whence.open(
        "db", setup=lambda db: db.create_function("twice", lambda x: x, args=["INT"], returns="BIGINT")
    ) as db:
        db.execute("CREATE TABLE a (x INT); CREATE VIEW t AS SELECT twice(x) AS y FROM a")
        db.insert("a", (21,))
    assert "twice" in said(call("check", "db"), 1)
    text = said(call("check", "db", "--functions", "shop_functions:register"), 1)
    assert "t 1 differs" in text
    assert "too many: (21,)" in text
    assert "missing: (42,)" in text
    assert "--functions" in said(call("info", "db"))
    assert "view t 1" in said(call("info", "db", "--functions", "shop_functions:register"))


def test_export_and_import(db: Path) -> None:
    assert said(call("export", "db", "out")) == "out: 1 table of 2 rows, 1 view"
    assert "is not empty" in said(call("export", "db", "out"), 1)
    assert said(call("export", "db", "out", "--force", "--parquet-compression", "none")).startswith("out: 1 table")
    assert said(call("import", "out", "copy", "--retain", "10")) == "copy: 1 table of 2 rows, 1 view"
    assert "retain 10" in said(call("info", "copy"))
    assert said(call("sql", "--db", "copy", "-c", "SELECT * FROM total", "--format", "jsonl")) == (
        '{"item": "tea", "price": 7}'
    )
    assert "is there already" in said(call("import", "out", "copy"), 1)


def test_backup(db: Path) -> None:
    assert said(call("backup", "db", "copy")).startswith("copy: epoch 2, ")
    assert said(call("backup", "db", "other", "--checksums-only")).startswith("other: ")
    assert "all is well" in said(call("check", "copy"))


def test_a_lock_names_its_holder(db: Path) -> None:
    with whence.open(db):
        text = said(call("sql", "--db", "db", "-c", "SELECT 1"), 1)
        assert "is being written to by this process" in text
        assert "all is well" in said(call("check", "db"))
        assert said(call("backup", "db", "copy")).startswith("copy: ")
        assert said(call("export", "db", "out")).startswith("out: ")


def test_the_command_itself(db: Path) -> None:
    """A process of its own, as users run it: exit codes and streams."""
    env = {**os.environ, "PYTHONPATH": str(Path(whence.__file__).parents[1])}
    run = [sys.executable, "-m", "whence.cli"]
    good = subprocess.run([*run, "check", "db"], cwd=db.parent, env=env, capture_output=True, text=True, check=False)
    assert (good.returncode, good.stderr) == (0, "")
    (db / "MANIFEST").write_text("{}")
    bad = subprocess.run([*run, "check", "db"], cwd=db.parent, env=env, capture_output=True, text=True, check=False)
    assert bad.returncode == 1
    assert "db/MANIFEST, offset 0" in bad.stderr


def test_a_bar_shows_up_only_when_it_takes_long() -> None:
    def shown(patience: float, terminal: bool = True) -> str:
        screen = io.StringIO()
        with Bar("opening db", Console(file=screen, force_terminal=terminal), patience) as bar:
            bar("loading table a", 1, 2)
            time.sleep(0.2)
        return screen.getvalue()

    assert shown(patience=60) == ""
    assert "loading table a" in shown(patience=0.01)
    assert shown(patience=0.01, terminal=False) == ""


def test_metrics_of_what_lasts(tmp_path: Path) -> None:
    with whence.open(tmp_path / "db", durability="interval", sync_interval=3600) as db:
        db.execute("CREATE TABLE a (x INT)")
        db.insert("a", (1,))
        found = db.metrics()
        assert (found["epoch"], found["synced_epoch"], found["snapshots"]) == (1, 0, 0)
        assert found["log_bytes"] == found["log_bytes_since_snapshot"] + FILE_HEADER > 0
        assert found["recovery"]["epoch"] == 0
        db.sync()
        assert db.metrics()["synced_epoch"] == 1
        db.snapshot()
        found = db.metrics()
        assert (found["snapshots"], found["log_bytes_since_snapshot"]) == (1, 0)
        assert found["snapshot_seconds"] > 0
        assert found["image_bytes"] > 0
    with whence.open(tmp_path / "db") as db:
        assert db.metrics()["synced_epoch"] == 1
    with whence.open(tmp_path / "db", read_only=True) as db:
        assert db.metrics()["recovery"]["image_epoch"] == 1
    with whence.open() as db:
        assert "synced_epoch" not in db.metrics()


def test_check_names_each_file_of_a_folder_given_by_a_relative_path(db: Path) -> None:
    shown = said(call("check", "db"))
    for file in (db / "MANIFEST", *Folder(db, Disk()).files()):
        assert str(file.relative_to(db)) in shown


def test_an_export_takes_no_other_things_place(db: Path) -> None:
    for place in ("db", "db/log"):
        assert "holds something else than an export" in said(call("export", "db", place, "--force"), 1)
    said(call("export", "db", "out"))
    assert "is not empty" in said(call("export", "db", "out"), 1)
    said(call("export", "db", "out", "--force"))
    assert "all is well" in said(call("check", "db"))


def test_a_copy_inside_its_source_is_refused(db: Path) -> None:
    assert "is inside" in said(call("backup", "db", "db/copy"), 1)
    assert not (db / "copy").exists()


def test_functions_that_fail_are_told_of(db: Path) -> None:
    (db.parent / "shop_functions.py").write_text("def boom(db):\n    raise RuntimeError('no')\n")
    assert "--functions shop_functions:boom: RuntimeError: no" in said(
        call("check", "db", "--functions", "shop_functions:boom"), 1
    )


def test_a_view_whose_function_is_missing_says_how_to_give_it(files: Path) -> None:
    def register(db: whence.Database) -> None:
        db.create_function("twice", lambda x: 2 * x, args=["INT"], returns="BIGINT")

    with whence.open("fn", setup=register) as db:
        db.execute("CREATE TABLE t (x INT); CREATE VIEW v AS SELECT twice(x) AS y FROM t")
    with pytest.raises(whence.StorageError, match=r'fn: its views cannot be loaded: .*"twice".*--functions'):
        whence.open("fn")
    assert "--functions" in said(call("sql", "--db", "fn", "-c", "SELECT 1"), 1)
    said(call("check", "fn", "--functions", "shop_functions:register"))
