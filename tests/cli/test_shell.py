"""The SQL shell: on a pseudo-terminal as a user types into it, in a pipe, and its parts."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

import whence
from whence.cli import app, shell
from whence.cli.completion import candidates

PATIENCE = 60.0  # seconds until a test gives up
TABLES = "CREATE TABLE link (src TEXT, dst TEXT, cost INT); CREATE VIEW linked AS SELECT src, dst FROM link;"


class Terminal:
    """A `whence sql` on a pseudo-terminal: keys in, the screen out."""

    def __init__(self, folder: Path, *args: str) -> None:
        (folder / "inputrc").write_text("set enable-bracketed-paste off\nset bell-style none\n")
        env = {**os.environ, "HOME": str(folder), "TERM": "xterm", "INPUTRC": str(folder / "inputrc"), "COLUMNS": "160"}
        self._here, there = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "whence.cli", "sql", *args],
            stdin=there, stdout=there, stderr=there, cwd=folder, env=env, start_new_session=True,
            preexec_fn=_take_terminal,
        )  # fmt: skip
        os.close(there)
        self.screen = ""

    def expect(self, text: str) -> str:
        """Wait until the screen shows a text; return what it showed up to there, and forget that."""
        end = time.monotonic() + PATIENCE
        while text not in self.screen:
            ready, _, _ = select.select([self._here], [], [], max(end - time.monotonic(), 0))
            assert ready, f"{text!r} did not appear: {self.screen!r}"
            try:
                data = os.read(self._here, 65536).decode(errors="replace")
            except OSError:  # the other side has closed it
                data = ""
            assert data, f"the shell ended before {text!r}: {self.screen!r}"
            self.screen += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", data)
        shown, self.screen = self.screen.split(text, 1)
        return shown + text

    def type(self, keys: str) -> None:
        os.write(self._here, keys.encode())

    def enter(self, line: str) -> str:
        """Type a line; return what is shown until the next prompt."""
        self.type(line + "\n")
        return self.expect("whence> ")

    def interrupt(self) -> str:
        """Press Ctrl-C until there is a prompt: one that comes while a key is handled waits for the next key."""
        shown, end = "", time.monotonic() + PATIENCE
        while "whence> " not in shown:
            assert time.monotonic() < end, f"Ctrl-C does nothing: {shown!r}"
            self.type("\x03")
            while "whence> " not in shown and select.select([self._here], [], [], 5.0)[0]:
                shown += os.read(self._here, 65536).decode(errors="replace")
        return shown

    def leave(self, keys: str) -> int:
        self.type(keys)
        end = time.monotonic() + PATIENCE
        while self._process.poll() is None and time.monotonic() < end:
            if select.select([self._here], [], [], 0.1)[0]:
                try:
                    self.screen += os.read(self._here, 65536).decode(errors="replace")
                except OSError:  # the other side has closed it
                    break
        assert time.monotonic() < end, f"the shell did not end: {self.screen!r}"
        return self._process.wait(PATIENCE)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._here)


def _take_terminal() -> None:
    """Make the terminal that of the new session, so that Ctrl-C is a signal."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    found = Terminal(tmp_path)
    found.expect("whence> ")
    yield found
    found.close()


def test_a_session_on_a_terminal(terminal: Terminal, tmp_path: Path) -> None:
    assert "epoch 0" in terminal.enter(TABLES)
    terminal.type("INSERT INTO li\t")
    terminal.expect("INSERT INTO link")
    assert "   ...> " in terminal.enter("\n  VALUES ('A', 'B', 3), ('B', 'C', 4);")
    terminal.type("sel\t")
    terminal.expect("select ")
    terminal.type("co\t")
    terminal.expect("co")
    terminal.type("s\t")  # cost, not COUNT
    assert "2 rows" in terminal.enter(" FROM link;")

    (tmp_path / "out").mkdir()
    terminal.type("\\copy linked TO 'ou\t")
    terminal.expect("out/")
    assert "2 rows written to out/all.csv" in terminal.enter("all.csv'")
    assert sorted((tmp_path / "out" / "all.csv").read_text().split()) == ['"A","B"', '"B","C"', '"src","dst"']

    shown = terminal.enter("SELECT nope\nFROM link;")
    assert 'unknown column "nope"' in shown
    assert "SELECT nope\n       ^" in shown
    assert "there is no command \\timig; did you mean \\timing?" in terminal.enter("\\timig")
    assert "timing is off" in terminal.enter("\\timing off")
    assert " ms, epoch" not in terminal.enter("SELECT 1 AS one;")
    shown = terminal.enter("\\x on") + terminal.enter("SELECT src, cost FROM link WHERE cost = 3;")
    assert " src  A\ncost  3\n1 row\n" in shown
    assert "Statements end with a semicolon" in terminal.enter("help")
    assert terminal.leave("exit\n") == 0
    history = (tmp_path / ".whence_history").read_text()
    assert "SELECT nope\x01FROM link;\n" in history  # one entry

    again = Terminal(tmp_path)
    again.expect("whence> ")
    again.type("\x1b[A\x1b[A")  # up: exit, help
    again.expect("help")
    again.interrupt()
    assert again.leave("\x04") == 0
    again.close()


def test_ctrl_c_cancels_a_statement_and_the_shell_goes_on(terminal: Terminal) -> None:
    terminal.enter("CREATE TABLE a (v INT);")
    values = ", ".join(f"({n})" for n in range(1000))
    terminal.enter(f"INSERT INTO a VALUES {values};")
    terminal.type("SELECT COUNT(*) AS n FROM a x, a y, a z, a w WHERE x.v * y.v + z.v * w.v = -1;\n")
    terminal.expect("= -1;")
    time.sleep(0.5)
    assert "interrupted" in terminal.interrupt()
    terminal.type("SELECT half of a")
    terminal.expect("SELECT half of a")
    terminal.interrupt()
    assert "  1000" in terminal.enter("SELECT COUNT(*) AS n FROM a;").replace(",", "")
    assert terminal.leave("\x04") == 0


# -- pipes -------------------------------------------------------------------------------------------------------------


def call(*args: str, input: str) -> Result:
    return CliRunner().invoke(app, ["sql", *args], input=input, env={"COLUMNS": "200"})


def test_a_pipe_has_no_prompts_and_may_have_commands(tmp_path: Path) -> None:
    text = (
        f"{TABLES}\nINSERT INTO link VALUES ('A', 'B', :n);\n\\set n 4\n\\copy link TO '{tmp_path / 'l.jsonl'}'\n\\d\n"
    )
    text += f"\\copy link FROM {tmp_path / 'l.jsonl'}\nSELECT cost FROM link;\nquit\n"
    result = call("--format", "jsonl", "-p", "n=3", input=text.replace("quit\n", "\\q\nSELECT 7 AS never;"))
    assert result.exit_code == 0, result.output
    assert "whence>" not in result.output
    rows = result.stdout.splitlines()
    assert '{"name": "linked", "kind": "view", "rows": 1, "columns": "src, dst"}' in rows
    assert rows[-2:] == ['{"cost": 3}', '{"cost": 3}']


def test_an_error_in_a_pipe_names_the_line_and_ends_it() -> None:
    result = call(input="SELECT 1 AS one;\n\\timing\n\nSELECT 2\nFROM nowhere;\nSELECT 3 AS three;\n")
    assert result.exit_code == 1
    assert "line 5, column 6" in result.stderr
    assert "three" not in result.output
    assert "did you mean \\copy?" in call(input="\\cpy\n").stderr


# -- parts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "word", "wanted"),
    [
        ("", "\\co", ["\\copy "]),
        ("\\d ", "link", ["link", "linked"]),
        ("\\why linked ", "s", ["src="]),
        ("\\timing ", "", ["off", "on"]),
        ("\\copy ", "linke", ["linked"]),
        ("\\copy link ", "f", ["FROM "]),
        ("\\copy link from ", "'da", ["'data.csv", "'dated/"]),
        ("SELECT * FROM ", '"linke', ['"linked']),
        ("SELECT * FROM link WHERE src = ", "'s", []),
        ("\\i ", "dated/", ["dated/x.sql"]),
        ("\\i ", "dated/.", ["dated/.hidden"]),
        ("\\i ", "nowhere/", []),
        ("\\what-if DELETE FROM ", "link", ["link", "linked"]),
        ("SELECT * FROM ", "l", ["link", "linked"]),
        ("SELECT c FROM link JOIN ", "linke", ["linked"]),
        ("SELECT l.src FROM link AS l WHERE ", "l.c", ["l.cost"]),
        ("SELECT * FROM linked k, link j WHERE k.src = ", "k.", ["k.dst", "k.src"]),
        ("SELECT * FROM linked WHERE ", "co", ["count "]),  # cost is not a column of it
        ("SELECT * FROM link WHERE ", "CO", ["cost", "COUNT "]),
        ("", "wi", ["with "]),
        ("SELECT ", "x.", []),
    ],
)
def test_what_tab_offers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, word: str, wanted: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").touch()
    (tmp_path / "dated").mkdir()
    (tmp_path / "dated" / "x.sql").touch()
    (tmp_path / "dated" / ".hidden").touch()
    with whence.open() as db:
        db.execute(TABLES)
        assert candidates(db, line, word, shell.COMMANDS) == wanted


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("\\copy", "\\copy TABLE FROM 'file'"),
        ("\\copy (SELECT 1) FROM 'a.csv'", "rows go into a table, not a query"),
        ("\\copy link TO 'a.txt'", "must end in one of"),
        ("\\copy link FROM 'none.csv'", "none.csv: no such file"),
        ("\\copy nope TO 'a.csv'", 'there is no table or view "nope"'),
        ("\\e", "something is missing: \\e NAME"),
        ("\\x maybe", "\\x is on or off, not maybe"),
        ("\\i nowhere.sql", "nowhere.sql: cannot be read"),
    ],
)
def test_wrong_commands_say_what_to_do(command: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with whence.open() as db:
        db.execute(TABLES)
        console = Console(width=200)
        shell.Shell(db, console, console, "table", {}).read(command)
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_copies_go_round(tmp_path: Path, suffix: str) -> None:
    with whence.open() as db:
        db.execute(f"{TABLES} INSERT INTO link VALUES ('A', 'it''s', 3), (NULL, '', -1)")
        console = Console(width=200, file=(tmp_path / "said").open("w"))
        session = shell.Shell(db, console, console, "table", {"n": -1})
        session.read(f"\\copy (SELECT * FROM link WHERE cost > :n) TO '{tmp_path}/some.{suffix}';")
        session.read(f"\\copy LINK TO {tmp_path}/all.{suffix}")
        session.read("DELETE FROM link;")
        session.read(f"\\copy link FROM '{tmp_path}/all.{suffix}'")
        assert sorted(db["link"].rows, key=str) == [("A", "it's", 3), (None, "", -1)]
        session.read(f"\\copy link FROM '{tmp_path}/some.{suffix}'")
        assert len(db["link"]) == 3


def test_descriptions_have_kinds_and_counts(capsys: pytest.CaptureFixture[str]) -> None:
    with whence.open() as db:
        db.execute(f"{TABLES} CREATE STREAM tick (at INT); INSERT INTO link VALUES ('A', 'B', 1)")
        console = Console(width=200)
        session = shell.Shell(db, console, console, "table", {})
        session.read("\\d")
        session.read("\\d Linked;")
    said = capsys.readouterr().out
    assert re.search(r"link +table +1 +src, dst, cost", said)
    assert re.search(r"tick +stream +0 +at", said)
    assert "view linked, 1 row" in said


def test_history_keeps_statements_whole(tmp_path: Path) -> None:
    code = "from whence.cli import line_editor as e; from pathlib import Path; import readline; "
    code += "e.open_history(Path('h')); e.remember('SELECT 1\\n  AS x;\\n'); e.remember('SELECT 1\\n  AS x;'); "
    code += "print(repr(readline.get_history_item(1)), readline.get_current_history_length())"
    for length in (1, 1):
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout == f"'SELECT 1\\n  AS x;' {length}\n"
    assert (tmp_path / "h").read_text() == "SELECT 1\x01  AS x;\n"
