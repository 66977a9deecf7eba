"""What `whence run --source` names without Spark: files, folders and standard input, followed in this process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import typer
from rich.status import Status
from rich.text import Text

import whence
from whence.cli.console import count_of, err
from whence.io.files import format_of
from whence.model.text import from_text
from whence.model.types import INTERVAL
from whence.runtime.following import is_pattern, parse_place

_TABLE_ROWS = 65_536  # of a file of rows per epoch


@dataclass(frozen=True)
class SourceArgument:
    """A table and a place, as `--source` has them."""

    table: str
    place: str

    @property
    def is_file(self) -> bool:
        """Whether it has an end: it is no folder, no pattern of names and no stream."""
        _, place = parse_place(self.place)
        return isinstance(place, Path) and not is_pattern(place) and not place.is_dir()

    @property
    def is_lines(self) -> bool:
        """Whether it has updates line by line."""
        format, _ = parse_place(self.place)
        return (format or format_of(self.place)) == "jsonl"


def parse_source(text: str) -> SourceArgument:
    """Split TABLE=PLACE.

    >>> parse_source("Link=in/*.csv")
    SourceArgument(table='link', place='in/*.csv')
    """
    table, found, place = text.partition("=")
    if not found or not table.strip() or not place:
        raise typer.BadParameter(f"{text!r} is not TABLE=FILE", param_hint="--source")
    return SourceArgument(table.strip().lower(), place)


def parse_seconds(text: str | None, option: str, default: float) -> float:
    """Read a time such as '1 second' or '200 ms'.

    >>> parse_seconds("200 ms", "--trigger", 1.0), parse_seconds(None, "--trigger", 1.0)
    (0.2, 1.0)
    """
    if text is None:
        return default
    try:
        span = from_text(text, INTERVAL)
    except (ValueError, ArithmeticError):
        span = None
    if span is None or span.months or span.days * 86_400_000_000 + span.micros < 0:
        raise typer.BadParameter(f"{text!r} is not a time such as '1 second' or '200 ms'", param_hint=option)
    return float(span.days * 86_400 + span.micros / 1e6)


def take_files(
    db: whence.Database, files: list[SourceArgument], show: Callable[[float], None], batch: int | None, **options: Any
) -> None:
    """Take in files from their start to their end, one after the other, whatever was read of them before."""
    for file in files:
        lines = batch or (1 if file.is_lines else _TABLE_ROWS)
        taken = db.follow({file.table: file.place}, wait=False, resume=False, batch=lines, note=_note, **options)
        for epoch in taken:
            show(epoch.seconds)


def follow(
    db: whence.Database, sources: list[SourceArgument], show: Callable[[float], None], wait: bool, **options: Any
) -> None:
    """Take in what sources have, showing each epoch; with `wait` what comes later, too, until Ctrl-C or SIGTERM."""
    places: dict[str, list[str]] = {}
    for source in sources:
        places.setdefault(source.table, []).append(source.place)
    count, rows = 0, 0
    status = Status("waiting for updates", console=err) if wait and err.is_terminal else None
    with _stopped_by_signals() as stop:
        taken = db.follow(places, wait=wait, stop=stop, note=_note, **options)
        if status is not None:
            status.start()
        try:
            for epoch in taken:
                count, rows = count + 1, rows + epoch.rows
                show(epoch.seconds)
                if status is not None:
                    status.update(f"{count_of(rows, 'row')} taken in; waiting for more")
        finally:
            if status is not None:
                status.stop()
    done = f"{count_of(count, 'epoch')}, {count_of(rows, 'row')} taken in; now at epoch {db.epoch}"
    err.print(done, style="dim", soft_wrap=True)


def _note(text: str) -> None:
    err.print(Text(text, style="yellow"), soft_wrap=True)


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """Give an event that Ctrl-C and SIGTERM set: the epoch under way is committed, and then it ends."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask_to_stop(number: int, frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt  # at the second time at once
        stop.set()

    former = {number: signal.signal(number, ask_to_stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in former.items():
            signal.signal(number, handler or signal.SIG_DFL)
