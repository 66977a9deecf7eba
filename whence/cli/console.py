"""Shared by all commands: output, errors, progress bars."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, Self

import typer
from rich.console import Console
from rich.text import Text

from whence.model.errors import WhenceError

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)
P = ParamSpec("P")
_PATIENCE = 0.5  # seconds that pass without a bar


class Format(StrEnum):
    table = "table"
    jsonl = "jsonl"
    csv = "csv"


class BadRecords(StrEnum):
    fail = "fail"
    skip = "skip"
    reject = "reject"


def reported(command: Callable[P, None]) -> Callable[P, None]:
    """Turn a WhenceError into a red line and exit code 1, never a traceback."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except WhenceError as error:
            err.print(Text(f"error: {error}", style="red"), soft_wrap=True)
            raise typer.Exit(1) from None
        except BrokenPipeError:
            sys.stderr.close()  # the reader of a pipe has gone
        except KeyboardInterrupt:
            raise typer.Exit(130) from None

    return run


class Bar:
    """Show a progress bar on a terminal for work that takes longer than half a second. Called with the work's name."""

    def __init__(self, what: str, console: Console = err, patience: float = _PATIENCE) -> None:
        from rich.progress import Progress

        self._bar = Progress(console=console, transient=True)
        self._task = self._bar.add_task(what, total=None)
        self._begin = threading.Timer(patience, self._bar.start) if console.is_terminal else None

    def __call__(self, what: str, done: int, total: int) -> None:
        self._bar.update(self._task, description=what, completed=done, total=total or None)

    def __enter__(self) -> Self:
        if self._begin is not None:
            self._begin.daemon = True
            self._begin.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._begin is not None:
            self._begin.cancel()
            self._begin.join()
            self._bar.stop()


def count_of(count: int, what: str) -> str:
    """Write a number of things.

    >>> count_of(1, "row"), count_of(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{count:,} {what}{'s' * (count != 1)}"


def text_of(path: Path) -> str:
    """Return the text of a file."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise WhenceError(f"{path}: cannot be read: {error}") from None
