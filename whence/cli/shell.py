"""The SQL shell behind `whence sql`: lines until a semicolon, results as tables, and the time each took."""

from __future__ import annotations

import csv
import difflib
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from whence.cli import line_editor
from whence.cli.completion import candidates
from whence.cli.console import Bar, count_of
from whence.cli.copying import copy
from whence.cli.row_arguments import row_of
from whence.cli.variables import set_variable, unset_variable, used_params
from whence.io.files import json_line
from whence.io.grid import Grid, text_of
from whence.model.budget import within
from whence.model.errors import SqlError, WhenceError
from whence.runtime.reading.handles import Result

if TYPE_CHECKING:
    from whence.runtime.database import Database

HISTORY = Path("~/.whence_history").expanduser()
_WORDS = {"help": "\\?", "exit": "\\q", "quit": "\\q"}
_LIMIT = 1000  # rows that are shown


def _pass_over(what: str, done: int, total: int) -> None:
    """Show no progress."""


def run_script(
    db: Database,
    text: str,
    out: Console,
    format: str,
    params: Mapping[str, Any] | None = None,
    expanded: bool = False,
) -> None:
    """Run statements and print the result of each."""
    for result in db.script(text, params):
        print_result(result, out, format, expanded)


def print_result(result: Result, out: Console, format: str = "table", expanded: bool = False) -> None:
    """Print a result as a table, or `expanded`, as JSON lines or as CSV; a count or a message as it is."""
    if not result.is_rows:
        (out if format == "table" else Console(stderr=True)).print(Text(result.message, style="dim"))
    elif format == "jsonl":
        for row in result.to_dicts():
            print(json_line(row))
    elif format == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(result.columns)
        writer.writerows(result.rows)
    elif result.columns == ["plan"]:
        out.print(Text(result.message), soft_wrap=True)
    elif expanded:
        _print_expanded(result, out)
    else:
        out.print(result.as_grid(_LIMIT))


def _print_expanded(result: Result, out: Console) -> None:
    """Print each row as lines of a column and its value."""
    width = max(map(len, result.columns), default=0)
    for number, row in enumerate(result.rows[:_LIMIT], 1):
        out.print(Text(f"row {number}", style="dim"))
        for column, value in zip(result.columns, row, strict=True):
            out.print(Text.assemble((column.rjust(width), "bold"), "  ", text_of(value)), soft_wrap=True)
    out.print(Text(count_of(len(result), "row"), style="dim"))


def interact(db: Database, out: Console, err: Console, format: str, variables: Mapping[str, Any] | None = None) -> None:
    """Read, run, print, until \\q or the end of input. Scripts may use the variables as parameters."""
    shell = Shell(db, out, err, format, dict(variables or {}))
    _history()
    line_editor.complete_on_tab(shell.candidates)
    out.print(Text("Whence. help for help, exit to leave.", style="dim"))
    interrupted = False
    while not shell.left:
        try:
            if interrupted:  # printed here, since a second Ctrl-C may come meanwhile
                interrupted, shell.pending = False, ""
                out.print()
            shell.read(input("   ...> " if shell.pending else "whence> "))
        except EOFError:
            out.print()
            return
        except KeyboardInterrupt:
            interrupted = True


def run_input(db: Database, text: str, out: Console, format: str, variables: Mapping[str, Any] | None = None) -> None:
    """Run what a pipe or a file has: statements, and lines with meta commands between them. The first error ends it."""
    shell = Shell(db, out, out, format, dict(variables or {}))
    shell.timing = False
    for part in _split_at_commands(text):
        if shell.left:
            return
        if part.lstrip().startswith("\\"):
            shell.command(part.strip())
        else:
            run_script(db, part, out, format, used_params(part, shell.variables), shell.expanded)


def _split_at_commands(text: str) -> Iterator[str]:
    """Yield meta commands, and the statements between them with as many lines before them as in the text, for errors
    to name the line.

    >>> list(_split_at_commands("SELECT 1;\\n\\\\d\\nSELECT\\n 2;\\n"))
    ['SELECT 1;\\n', '\\\\d', '\\n\\nSELECT\\n 2;\\n']
    """
    pending, statements = "", False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("\\") and (not statements or complete(pending)):
            if statements:
                yield pending
            yield line.strip()
            pending, statements = "\n" * (pending.count("\n") + 1), False
        else:
            pending += line
            statements = statements or not line.isspace()
    if statements:
        yield pending


def complete(text: str) -> bool:
    """Tell whether the text ends in a semicolon that is not inside a string or a comment.

    >>> complete("SELECT 1;"), complete("SELECT ';"), complete("SELECT 1; -- ;")
    (True, False, True)
    """
    inside, ended, at = "", False, 0
    while at < len(text):
        two = text[at : at + 2]
        if inside:
            if text.startswith(inside, at):
                at, inside = at + len(inside) - 1, ""
        elif two in ("--", "/*"):
            inside = "\n" if two == "--" else "*/"
            at += 1
        elif text[at] in "'\"":
            inside, ended = text[at], False
        elif not text[at].isspace():
            ended = text[at] == ";"
        at += 1
    return ended and inside in ("", "\n")


def print_sql(out: Console, text: str) -> None:
    """Print SQL in colours."""
    out.print(Syntax(text.strip(), "sql", background_color="default", word_wrap=True))


class Command(NamedTuple):
    """A meta command: what may follow it, what it does, and the method that does it."""

    usage: str
    help: str
    run: Callable[[Shell, str], None]
    is_timed: bool = True


class Shell:
    """What a session knows: the database, where to print, the variables, and what was typed of a statement."""

    def __init__(self, db: Database, out: Console, err: Console, format: str, variables: dict[str, Any]) -> None:
        self.db, self.out, self.err, self.format, self.variables = db, out, err, format, variables
        self.pending = ""
        self.left = False
        self.timing, self.expanded = True, False

    def read(self, line: str) -> None:
        """Take a line: a meta command, or the next of a statement, which runs when it is complete."""
        word = line.strip().rstrip(";").lower()
        if not self.pending and (line.strip().startswith("\\") or word in _WORDS):
            line_editor.remember(line)
            command = _WORDS.get(word, line.strip())
            self._guarded(lambda: self.command(command), "", self._is_timed(command))
            return
        self.pending += line + "\n"
        if complete(self.pending):
            text, self.pending = self.pending, ""
            line_editor.remember(text)
            self._guarded(lambda: self.run(text), text, self.timing)
        elif not self.pending.strip():
            self.pending = ""

    def run(self, text: str) -> None:
        """Run statements with those of the variables that they use. Under a budget, Ctrl-C ends a query at once."""
        with within(_pass_over):
            run_script(self.db, text, self.out, self.format, used_params(text, self.variables), self.expanded)

    def _guarded(self, action: Callable[[], None], text: str, timed: bool) -> None:
        start = time.perf_counter()
        try:
            action()
            if timed and not self.left:
                took = (time.perf_counter() - start) * 1000
                self.out.print(Text(f"{took:.1f} ms, epoch {self.db.epoch}", style="dim"))
        except WhenceError as error:
            self.err.print(Text(f"error: {error}", style="red"), soft_wrap=True)
            if isinstance(error, SqlError) and (marked := _caret(text, error.line, error.column)):
                self.err.print(Text(marked, style="red"), soft_wrap=True)
        except KeyboardInterrupt:
            self.err.print(Text("interrupted; nothing was changed by this statement", style="yellow"))

    def candidates(self, before: str, word: str) -> list[str]:
        """Return what Tab offers for a word of the line, or of the statement that it goes on with."""
        return candidates(self.db, f"{self.pending}{before}", word, COMMANDS)

    # -- meta commands -----------------------------------------------------------------------------------------------

    def command(self, line: str) -> None:
        """Carry out a meta command."""
        word, _, rest = line.partition(" ")
        found = COMMANDS.get(word)
        if found is None:
            close = difflib.get_close_matches(word, COMMANDS, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise WhenceError(f"there is no command {word}{hint} (\\? lists all)")
        found.run(self, rest.strip() if word in ("\\set", "\\what-if") else rest.strip().rstrip(";").rstrip())

    def _is_timed(self, line: str) -> bool:
        found = COMMANDS.get(line.partition(" ")[0])
        return self.timing and found is not None and found.is_timed

    def _print(self, text: str) -> None:
        self.out.print(Text(text), soft_wrap=True)

    def _help(self, rest: str) -> None:
        self._print("Statements end with a semicolon and may span lines. Tab completes, Ctrl-C cancels.")
        for name, command in COMMANDS.items():
            self._print(f"  {f'{name} {command.usage}':<36}{command.help}")

    def _leave(self, rest: str) -> None:
        self.left = True

    def _describe(self, name: str) -> None:
        db = self.db
        kinds = {**dict.fromkeys(db.tables, "table"), **dict.fromkeys(db.streams, "stream"),
                 **dict.fromkeys(db.views, "view")}  # fmt: skip
        if name:
            described = db.execute(f"DESCRIBE {name}")
            if self.format == "table" and (kind := kinds.get(_folded(name))):
                self._print(f"{kind} {_folded(name)}, {count_of(len(db[_folded(name)]), 'row')}")
            print_result(described, self.out, self.format)
            return
        rows = [(name, kind, len(db[name]), ", ".join(db[name].columns)) for name, kind in kinds.items()]
        columns = ["name", "kind", "rows", "columns"]
        if self.format == "table":
            self.out.print(Grid(columns, rows, len(rows)))
        else:
            table = pa.table(dict(zip(columns, zip(*rows, strict=True), strict=True)) if rows else {})
            print_result(Result(table), self.out, self.format)

    def _explain(self, name: str) -> None:
        self._print(self.db.explain(_needed(name, "\\e NAME")))

    def _include(self, name: str) -> None:
        path = Path(_needed(name, "\\i FILE").strip("'")).expanduser()
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise WhenceError(f"{name}: cannot be read: {error}") from None
        self.run(text)

    def _copy(self, rest: str) -> None:
        self.out.print(Text(copy(self.db, rest, self.variables), style="dim"), soft_wrap=True)

    def _switch_timing(self, rest: str) -> None:
        self.timing = _switched(rest, self.timing, "\\timing")
        self._print(f"timing is {'on' if self.timing else 'off'}")

    def _switch_expanded(self, rest: str) -> None:
        self.expanded = _switched(rest, self.expanded, "\\x")
        self._print(f"rows are shown {'column by column' if self.expanded else 'as a table'}")

    def _set(self, rest: str) -> None:
        self.out.print(set_variable(self.variables, rest))

    def _unset(self, name: str) -> None:
        unset_variable(self.variables, name)

    def _why(self, text: str) -> None:
        view, row = self._read_row(_needed(text, "\\why VIEW COLUMN=VALUE …"))
        with Bar("looking for derivations", self.err) as bar:
            found = self.db.why(view, row, progress=bar)
        self.out.print(found, soft_wrap=True)

    def _trace(self, text: str) -> None:
        stream, row = self._read_row(_needed(text, "\\trace STREAM tid=N"))
        with Bar("following it", self.err) as bar:
            found = self.db.trace(stream, row=row, progress=bar)
        self.out.print(found, soft_wrap=True)

    def _what_if(self, text: str) -> None:
        sql = _needed(text, "\\what-if STATEMENTS")
        with Bar("supposing", self.err) as bar:
            found = self.db.what_if(sql, used_params(sql, self.variables), progress=bar)
        self.out.print(found, soft_wrap=True)

    def _read_row(self, text: str) -> tuple[str, dict[str, Any]]:
        """Parse a view or stream, and a row of it, as they were typed."""
        try:
            name, *columns = shlex.split(text)
        except ValueError as error:
            raise WhenceError(f"{text}: {error}") from None
        return name, row_of(self.db, name, columns)


COMMANDS = {
    "\\d": Command("[NAME]", "list tables and views with their rows, or describe one", Shell._describe),
    "\\e": Command("NAME", "EXPLAIN a view", Shell._explain),
    "\\i": Command("FILE", "run a script", Shell._include),
    "\\copy": Command("TABLE FROM|TO 'FILE'", "read or write .csv, .jsonl, .parquet; also (SELECT …) TO", Shell._copy),
    "\\set": Command("NAME VALUE", "set a variable, for :NAME in SQL; without a name, show all", Shell._set, False),
    "\\unset": Command("NAME", "forget a variable", Shell._unset, False),
    "\\why": Command("VIEW COLUMN=VALUE …", "why a row is in a view, or why not", Shell._why),
    "\\trace": Command("STREAM tid=N", "which results a row of a stream reached", Shell._trace),
    "\\what-if": Command("STATEMENTS", "what INSERT, DELETE or UPDATE would change", Shell._what_if),
    "\\timing": Command("[on|off]", "show how long each statement took, or do not", Shell._switch_timing, False),
    "\\x": Command("[on|off]", "show rows column by column, or as a table", Shell._switch_expanded, False),
    "\\?": Command("", "this; also help", Shell._help, False),
    "\\q": Command("", "leave; also exit, quit, Ctrl-D", Shell._leave, False),
}


def _needed(text: str, usage: str) -> str:
    if not text:
        raise WhenceError(f"something is missing: {usage}")
    return text


def _switched(text: str, now: bool, command: str) -> bool:
    """Read on or off; without either, the other of what is now."""
    if text.lower() in ("on", "off"):
        return text.lower() == "on"
    if text:
        raise WhenceError(f"{command} is on or off, not {text}")
    return not now


def _folded(name: str) -> str:
    return name[1:-1] if name.startswith('"') else name.lower()


def _caret(text: str, line: int | None, column: int | None) -> str:
    """Return a line of a script with a mark below a column of it, or nothing where it is not known.

    >>> print(_caret("SELECT\\n  x", 2, 3))
      x
      ^
    """
    lines = text.splitlines()
    if line is None or column is None or not 0 < line <= len(lines) or column > len(lines[line - 1]) + 1:
        return ""
    shown = lines[line - 1]
    return f"{shown}\n{''.join(c if c == chr(9) else ' ' for c in shown[: column - 1])}^"


def _history() -> None:
    line_editor.open_history(HISTORY)
