"""Changes of views on the terminal: the lines that `whence run` and the demos print per epoch."""

from __future__ import annotations

import csv
import itertools
import sys

from rich.console import Console
from rich.text import Text

from whence.cli.console import Format, out
from whence.io import files
from whence.io.grid import text_of
from whence.runtime.reading.changes import Change, Changes


class ChangePrinter:
    """Prints the changes of each epoch, in one of the formats."""

    def __init__(self, format: Format, limit: int, feeds: list[Changes]) -> None:
        self.format, self.limit, self.feeds = format, limit, feeds
        if format is Format.csv:
            self._csv = csv.writer(sys.stdout, lineterminator="\n")
            self._csv.writerow(["epoch", "op", *feeds[0].columns])

    def epoch(self, seconds: float) -> None:
        """Print what has changed since the last call: by an epoch with its duration, or by several."""
        for feed in self.feeds:
            changes = list(feed)
            for _, some in itertools.groupby(changes if self.format is Format.table else (), lambda c: c.epoch):
                self._lines(feed, list(some), seconds)
            for change in changes if self.format is not Format.table else ():
                op = "+" if change.sign > 0 else "-"
                if self.format is Format.csv:
                    self._csv.writerow([change.epoch, op, *change.row])
                else:
                    row = dict(zip(feed.columns, change.row, strict=True))
                    print(files.json_line({"epoch": change.epoch, "view": feed.name, "op": op, **row}))
        sys.stdout.flush()  # a pipe would get them late

    def _lines(self, feed: Changes, changes: list[Change], seconds: float) -> None:
        took = f"{seconds * 1000:.1f} ms" if seconds else "to begin with"
        out.print(Text.assemble((f"epoch {changes[0].epoch} ", "dim"), (feed.name, "bold"), (f"  {took}", "dim")))
        print_changes(out, changes, self.limit)


def print_changes(console: Console, changes: list[Change], limit: int) -> None:
    """Print changes as lines, + green and - red, and how many were left out."""
    for change in changes[:limit]:
        mark, style = ("+", "green") if change.sign > 0 else ("-", "red")
        console.print(Text(f"  {mark} " + "  ".join(text_of(v) for v in change.row), style=style))
    if len(changes) > limit:
        console.print(Text(f"  … {len(changes) - limit:,} more", style="dim"))
