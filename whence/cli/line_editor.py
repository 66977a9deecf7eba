"""Lines as they are typed: history and completion by readline, where the platform has it.

A statement of several lines is one entry of the history, also in its file, where \\x01 stands for a line break.
"""

from __future__ import annotations

import atexit
import contextlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from whence.cli.completion import DELIMITERS

_LENGTH = 1000
_BREAK = "\x01"
Complete = Callable[[str, str], list[str]]


def _readline() -> ModuleType | None:
    try:
        import readline
    except ImportError:  # not on every platform
        return None
    return readline


def open_history(path: Path) -> None:
    """Read the history, and write it at the end; from now on entries are added by `remember`."""
    readline = _readline()
    if readline is None:
        return
    readline.set_auto_history(False)
    with contextlib.suppress(OSError, UnicodeDecodeError):
        for line in path.read_text(encoding="utf-8").splitlines()[-_LENGTH:]:
            readline.add_history(line.replace(_BREAK, "\n"))
    atexit.register(_save, path)


def remember(text: str) -> None:
    """Add what was typed to the history."""
    readline, text = _readline(), text.strip()
    if readline is None or not text:
        return
    last = readline.get_current_history_length()
    if not last or readline.get_history_item(last) != text:
        readline.add_history(text)


def _save(path: Path) -> None:
    readline = _readline()
    assert readline is not None
    count = readline.get_current_history_length()
    entries = [readline.get_history_item(n) or "" for n in range(max(1, count - _LENGTH + 1), count + 1)]
    with contextlib.suppress(OSError):
        path.write_text("".join(entry.replace("\n", _BREAK) + "\n" for entry in entries), encoding="utf-8")


def complete_on_tab(complete: Complete) -> None:
    """Let Tab complete words by `complete(before, word)`, what stands before on the line and the word itself."""
    readline = _readline()
    if readline is None:
        return
    found: list[str] = []

    def completer(word: str, state: int) -> str | None:
        nonlocal found
        if state == 0:
            begin = readline.get_begidx()
            try:
                found = complete(readline.get_line_buffer()[:begin], word)
            except Exception:  # Tab is no place for an error: a table may have gone meanwhile
                found = []
        return found[state] if state < len(found) else None

    readline.set_completer(completer)
    readline.set_completer_delims(DELIMITERS)
    libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if libedit else "tab: complete")
