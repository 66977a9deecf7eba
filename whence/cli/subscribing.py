"""`whence subscribe`: follow a query of a served database on the terminal."""

from __future__ import annotations

import csv
import logging
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from whence.cli.console import Format, err, out, reported, text_of
from whence.cli.database_options import Params
from whence.model.errors import DataError

if TYPE_CHECKING:
    from whence.client.subscriptions import Subscription
    from whence.subscribe.part_updates import Row
    from whence.subscribe.updates import Update

TOKEN = "WHENCE_TOKEN"
"""The variable of the environment that has the token."""

_NOTES = {
    "behind": "changes since then are not known any more: this is the difference to the state now",
    "redefined": "the view was replaced: this is the difference to its rows now",
    "restarted": "the database is another one, or was restored: this is the difference to its rows",
    "rights": "what you may read has changed: this is the difference to it",
}


@reported
def subscribe(
    url: Annotated[str, typer.Argument(metavar="URL", help="Of the server, such as http://127.0.0.1:8080.")],
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A SELECT, or the name of a table or view.")],
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help=f"A file with your token (default: the variable {TOKEN})."),
    ] = None,
    param: Params = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A parameter of a template. May be given again."),
    ] = None,
    format: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.table,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="COLUMNS", help="The columns that identify a row, to show old and new together."),
    ] = None,
    every: Annotated[
        str | None, typer.Option("--every", metavar="TIME", help="At least so long between two updates, such as '5 s'.")
    ] = None,
    why: Annotated[bool, typer.Option("--why", help="Show why rows came: the base rows behind them.")] = False,
    every_change: Annotated[
        bool,
        typer.Option("--every-change", help="Show the change of each epoch; else several are told as one."),
    ] = False,
    ordered: Annotated[
        bool, typer.Option("--ordered", help="Take rows of several publishers in the order of their ticks.")
    ] = False,
    have: Annotated[
        str | None, typer.Option("--have", metavar="POSITION", help="Go on from a position, without the state.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print the rows as they are, and end.")] = False,
    count: Annotated[int | None, typer.Option("--count", min=1, metavar="N", help="End after so many updates.")] = None,
    bounds: Annotated[
        bool | None,
        typer.Option(
            "--bounds/--no-bounds",
            help="Show what values can become, such as ≥ 80, and rows that have become final (in a table by default).",
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Rows to show per update, in a table.")] = 100,
    also: Annotated[
        list[str] | None,
        typer.Option("--also", metavar="URL", help="Another server that takes the token: go on there if a view moves."),
    ] = None,
    ca: Annotated[
        Path | None, typer.Option("--ca", metavar="FILE", help="The certificate of the authority of the server's.")
    ] = None,
) -> None:
    """Follow a query of a served database: its rows, and then each change as it happens, until Ctrl-C.

    Lost connections are made again, and nothing is missed or shown twice. The position is printed at the end: --have
    goes on from there.

    Examples:

        whence subscribe http://127.0.0.1:8080 hourly --token-file token.txt

        whence subscribe http://127.0.0.1:8080 "SELECT issue, high FROM hourly WHERE high > 100" --every '5 s'

        whence subscribe https://example.org "SELECT * FROM seat WHERE flight = :flight" -p flight=NW44 --key seat

        whence subscribe http://127.0.0.1:8080 alarm --format jsonl --every-change --have 0123456789ab.00c0ffee.17

        WHENCE_TOKEN=whence_… whence subscribe http://127.0.0.1:8080 alarm --why

        whence subscribe http://127.0.0.1:8080 hourly --format jsonl --bounds

        whence subscribe http://127.0.0.1:8080 deals --set smin=0 --set smax=10

    With --set the query is the name of a template: a subscription of these parameters is made, and cancelled at the
    end. One that is stored is followed as deals#7.
    """
    if once and count is not None:
        raise typer.BadParameter("--once is the first update only: leave out --count", param_hint="--once")
    if key is not None and format is Format.csv:
        raise typer.BadParameter("csv has one row per line: leave out --key", param_hint="--key")
    token = read_token(token_file)

    from whence.client.blocking import connect

    params = None
    if param:
        from whence.cli.variables import read_params

        params = read_params(param)
    parameters: dict[str, Any] = {}
    if set_:
        from whence.cli.variables import read_params

        parameters = read_params(set_)
    keys = None if key is None else [name.strip() for name in key.split(",")]
    with connect(url, token=token, ca=ca, on_state=_StateNotes(), also=also or ()) as client:
        subscription = client.subscribe(
            query, parameters or params, have=have, key=keys, every=every, why=why, every_change=every_change,
            ordered=ordered,
        )  # fmt: skip
        shows_bounds = format is Format.table if bounds is None else bounds
        printer = UpdatePrinter(subscription, format, limit, keys, shows_bounds)
        number = 0
        try:
            for update in subscription:
                if not printer.has_something(update):
                    continue
                number += 1
                printer.print(update)
                if once or number == count:
                    break
        finally:
            if parameters:
                subscription.cancel()
            elif subscription.position is not None and not once:
                err.print(Text(f"at {subscription.position}: --have goes on from there", style="dim"), soft_wrap=True)


def read_token(path: Path | None) -> str | None:
    """Return the token in a file, or that of the environment."""
    if path is None:
        return os.environ.get(TOKEN)
    token = text_of(path).strip()
    if not token or len(token.split()) != 1:
        raise DataError(f"{path}: this is not a file with one token")
    return token


class _StateNotes:
    """Says on standard error when the connection is lost, and when it is back."""

    def __init__(self) -> None:
        self._lost = False

    def __call__(self, connected: bool, what: str) -> None:
        if logging.getLogger("whence").isEnabledFor(logging.INFO):
            return  # --verbose shows these lines
        if not connected or self._lost:
            err.print(Text(what, style="dim"), soft_wrap=True)
        self._lost = not connected


class UpdatePrinter:
    """Prints updates as `whence run` prints changes: + and -, with the epoch."""

    def __init__(
        self, subscription: Subscription, format: Format, limit: int, key: list[str] | None, bounds: bool = False
    ) -> None:
        self._subscription, self._format, self._limit, self._key = subscription, format, limit, key
        self._bounds = bounds
        self._header: list[str] | None = None

    def has_something(self, update: Update) -> bool:
        """Return whether there is something to print: rows, a note, or rows that have become final."""
        return bool(update or update.restarted or update.lost or (self._bounds and update.final))

    def print(self, update: Update) -> None:
        """Print one update."""
        if update.lost is not None:
            since, upto = update.lost
            self._note(f"single changes of the epochs {since.epoch + 1:,} to {upto.epoch:,} are lost")
        if update.restarted in _NOTES:
            self._note(_NOTES[update.restarted])
        if self._format is Format.table:
            self._print_lines(update)
        elif self._format is Format.csv:
            self._print_csv(update)
        else:
            self._print_json(update)
        sys.stdout.flush()  # a pipe would get them late

    @staticmethod
    def _note(what: str) -> None:
        err.print(Text(f"note: {what}", style="yellow"), soft_wrap=True)

    def _print_csv(self, update: Update) -> None:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        if self._header != update.columns:
            self._header = update.columns
            writer.writerow(["epoch", "op", *update.columns])
        for op, row in _signed(update):
            writer.writerow([update.position.epoch, op, *row])

    def _print_json(self, update: Update) -> None:
        from whence.io.json_lines import json_line

        head, names = {"epoch": update.position.epoch}, update.columns
        if self._key is not None:
            for key, old, new in update.changed:
                shown = [None if row is None else dict(zip(names, row, strict=True)) for row in (old, new)]
                print(json_line({**head, "op": "~", "key": key, "old": shown[0], "new": shown[1]}))
            return
        for op, row in _signed(update):
            line = {**head, "op": op, **dict(zip(names, row, strict=True))}
            if row in update.why:
                line["why"] = [[{"table": t, "row": r} for t, r in witness] for witness in update.why[row]]
            if self._bounds and op == "+":
                known = update.known_row(row)
                bounded = {name: list(pair) for name, pair in known.bounds.items() if pair != (None, None)}
                line |= {"bounds": bounded, "final": known.is_final}
            print(json_line(line))
        for row in self._closed(update):
            print(json_line({**head, "op": "=", **dict(zip(names, row, strict=True)), "final": True}))

    def _print_lines(self, update: Update) -> None:
        from whence.io.grid import text_of as cell

        def text(row: Row, is_there: bool = True) -> str:
            if not self._bounds or not is_there:
                return "  ".join(map(cell, row))
            known = update.known_row(row)
            pairs = zip(known.columns, row, strict=True)
            return "  ".join(cell(value) if known.is_plain(name) else known.texts[name] for name, value in pairs)

        begin = "  to begin with" if update.restarted == "begin" else ""
        out.print(Text.assemble((f"epoch {update.position.epoch}", "dim"), (begin, "dim")))
        lines: list[Text] = []
        if self._key is not None:
            for _, old, new in update.changed:
                if old is None or new is None:
                    lines.append(_line("+" if old is None else "-", text(new or old or (), new is not None)))
                else:
                    lines.append(Text(f"  ~ {text(old, is_there=False)}  →  {text(new)}", style="cyan"))
        else:
            lines = [_line(op, text(row, op == "+") + self._because(update, row)) for op, row in _signed(update)]
        lines += [Text(f"  = {text(row)}  final", style="bold") for row in self._closed(update)]
        for line in lines[: self._limit]:
            out.print(line, soft_wrap=True)
        if len(lines) > self._limit:
            out.print(Text(f"  … {len(lines) - self._limit:,} more", style="dim"))

    def _closed(self, update: Update) -> list[Row]:
        """Return the rows that have become final without changing."""
        if not self._bounds:
            return []
        came = set(update.came)
        return [row for row in update.final if row not in came]

    @staticmethod
    def _because(update: Update, row: Row) -> str:
        """Write the smallest witness of a row, if it is known."""
        if not update.why.get(row):
            return ""
        from whence.io.grid import text_of as cell

        facts = [f"{table}({', '.join(map(cell, base.values()))})" for table, base in update.why[row][0]]
        return f"  ← {', '.join(facts)}"


def _line(op: str, text: str) -> Text:
    return Text(f"  {op} {text}", style="green" if op == "+" else "red")


def _signed(update: Update) -> Iterable[tuple[str, Row]]:
    yield from (("-", row) for row in update.went)
    yield from (("+", row) for row in update.came)
