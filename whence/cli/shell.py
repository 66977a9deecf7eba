"""The interactive SQL shell behind `whence sql`: lines until a semicolon, results as tables, and the time each took."""

from __future__ import annotations

import contextlib
import csv
import functools
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from whence.cli.variables import set_variable, unset_variable, used_params
from whence.connect.files import json_line
from whence.model.errors import WhenceError
from whence.runtime.reading.handles import Result

if TYPE_CHECKING:
    from whence.runtime.database import Database

HISTORY = Path("~/.whence_history").expanduser()
HELP = r"""Statements end with a semicolon and may span lines.
  \d          tables and views      \d NAME    columns of one
  \e NAME     EXPLAIN a view        \i FILE    run a script
  \q          leave                 \?         this
  \set NAME VALUE                   a variable, for :NAME in SQL; \set shows all, \unset NAME forgets one
  \why VIEW COLUMN=VALUE …          why a row is in a view, or why not
  \trace STREAM tid=N               which results a row of a stream reached
  \what-if STATEMENTS               what INSERT, DELETE or UPDATE would change"""


def run_script(db: Database, text: str, out: Console, format: str, params: Mapping[str, Any] | None = None) -> None:
    """Run statements and print the result of each."""
    for result in db.script(text, params):
        print_result(result, out, format)


def print_result(result: Result, out: Console, format: str = "table") -> None:
    """Print a result as a table, as JSON lines or as CSV; a count or a message as it is."""
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
    else:
        out.print(result.as_grid(1000))


def interact(db: Database, out: Console, err: Console, format: str, variables: Mapping[str, Any] | None = None) -> None:
    """Read, run, print, until \\q or the end of input. Scripts may use the variables as parameters."""
    known = dict(variables or {})
    _history()
    out.print(Text("Whence. \\? for help, \\q to leave.", style="dim"))
    pending = ""
    while True:
        try:
            line = input("   ...> " if pending else "whence> ")
        except EOFError:
            out.print()
            return
        except KeyboardInterrupt:
            out.print()
            pending = ""
            continue
        if not pending and line.strip().startswith("\\"):
            if line.strip() == "\\q":
                return
            _guarded(db, out, err, functools.partial(_meta, db, line.strip(), out, format, known))
            continue
        pending += line + "\n"
        if complete(pending):
            text, pending = pending, ""
            _guarded(db, out, err, functools.partial(_run_with, db, text, out, format, known))
        elif not pending.strip():
            pending = ""


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


def _guarded(db: Database, out: Console, err: Console, action: Callable[[], None]) -> None:
    start = time.perf_counter()
    try:
        action()
        out.print(Text(f"{(time.perf_counter() - start) * 1000:.1f} ms, epoch {db.epoch}", style="dim"))
    except WhenceError as error:
        err.print(Text(f"error: {error}", style="red"), soft_wrap=True)
    except KeyboardInterrupt:
        err.print(Text("interrupted; nothing was changed by this statement", style="yellow"))


def _run_with(db: Database, text: str, out: Console, format: str, variables: Mapping[str, Any]) -> None:
    """Run a script with those of the variables that it uses."""
    run_script(db, text, out, format, used_params(text, variables))


def _meta(db: Database, line: str, out: Console, format: str, variables: dict[str, Any]) -> None:
    word, _, rest = line.partition(" ")
    name = rest.strip().rstrip(";")
    if word == "\\d" and name:
        print_result(db.execute(f"DESCRIBE {name}"), out, format)
    elif word == "\\d":
        for what in ("TABLES", "STREAMS", "VIEWS") if db.streams else ("TABLES", "VIEWS"):
            print_result(db.execute(f"SHOW {what}"), out, format)
    elif word == "\\e" and name:
        out.print(Text(db.explain(name)), soft_wrap=True)
    elif word == "\\i" and name:
        try:
            _run_with(db, Path(name).read_text(encoding="utf-8"), out, format, variables)
        except (OSError, UnicodeDecodeError) as error:
            raise WhenceError(f"{name}: cannot be read: {error}") from None
    elif word == "\\why" and name:
        _why(db, rest.strip().rstrip(";"), out)
    elif word == "\\trace" and name:
        _trace(db, rest.strip().rstrip(";"), out)
    elif word == "\\what-if" and name:
        out.print(db.what_if(rest, used_params(rest, variables)), soft_wrap=True)
    elif word == "\\set":
        out.print(set_variable(variables, rest))
    elif word == "\\unset":
        unset_variable(variables, name)
    else:
        out.print(Text(HELP))


def _why(db: Database, text: str, out: Console) -> None:
    view, row = _meant(db, text)
    out.print(db.why(view, row), soft_wrap=True)


def _trace(db: Database, text: str, out: Console) -> None:
    stream, row = _meant(db, text)
    out.print(db.trace(stream, row=row), soft_wrap=True)


def _meant(db: Database, text: str) -> tuple[str, dict[str, Any]]:
    """Parse a view or stream, and a row of it, as they were typed."""
    from whence.cli.row_arguments import row_of  # which imports this module, by way of its room

    try:
        name, *columns = shlex.split(text)
    except ValueError as error:
        raise WhenceError(f"{text}: {error}") from None
    return name, row_of(db, name, columns)


def _history() -> None:
    try:
        import atexit
        import readline
    except ImportError:  # not on every platform
        return
    with contextlib.suppress(OSError):
        readline.read_history_file(HISTORY)
    readline.set_history_length(1000)
    atexit.register(_save_history)


def _save_history() -> None:
    import readline

    with contextlib.suppress(OSError):
        readline.write_history_file(HISTORY)
