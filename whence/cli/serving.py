"""`whence serve` and `whence token`: a database over the network, and the tokens of those who may use it."""

from __future__ import annotations

import gc
import logging
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

import whence
from whence.cli.console import count_of, err, out, reported
from whence.cli.database_options import (
    Choice,
    Functions,
    Lasting,
    Master,
    OnSpark,
    Partitions,
    ReadOnly,
    Retain,
    declare,
)
from whence.model.errors import DataError

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
TokenFile = Annotated[Path, typer.Argument(metavar="FILE", help="The token file.")]
Who = Annotated[str, typer.Argument(metavar="WHO", help="The name that rights are given to.")]


@reported
def serve(
    source: Annotated[
        Path,
        typer.Argument(metavar="DIR|PROGRAM.sql", help="The folder of a database, or a program that runs in memory."),
    ],
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where to listen; port 0 takes a free one.")
    ] = "127.0.0.1:8080",
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="Whose tokens are accepted (see whence token). Without it one is made and printed, and only this "
            "machine can connect.",
        ),
    ] = None,
    cert: Annotated[
        Path | None, typer.Option("--cert", metavar="FILE", help="A certificate in PEM format, for HTTPS.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="Its key, if that is a file of its own.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-origin",
            metavar="ORIGIN",
            help="Pages that may use the server, such as https://example.org. May be given again.",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="NAME",
            help="One more name that the server goes by, such as that of a proxy before it. May be given again.",
        ),
    ] = None,
    pages: Annotated[
        Path | None,
        typer.Option("--pages", metavar="DIR", help="A folder of files that are served to anybody, such as a page."),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option("--limit", metavar="NAME=VALUE", help="A limit, such as insert_rows=10000. May be given again."),
    ] = None,
    bus: Annotated[
        str | None,
        typer.Option("--bus", metavar="URL", help="A NATS server to publish on, such as nats://127.0.0.1:4222."),
    ] = None,
    publish: Annotated[
        list[str] | None,
        typer.Option("--publish", metavar="NAME", help="What is published on the bus. May be given again."),
    ] = None,
    bus_token_file: Annotated[
        Path | None, typer.Option("--bus-token-file", metavar="FILE", help="The token that the bus wants.")
    ] = None,
    read_only: ReadOnly = False,
    durability: Lasting = None,
    retain: Retain = None,
    functions: Functions = None,
    spark: OnSpark = False,
    master: Master = None,
    partitions: Partitions = None,
) -> None:
    """Serve a database over HTTP and WebSocket until Ctrl-C or SIGTERM.

    Views can be read, queried, explained and subscribed to, and tables written to.
    The server describes itself at /v1/docs and logs a line per event.

    Examples:

        whence serve mydb

        whence serve network.sql --listen 127.0.0.1:0

        whence serve mydb --listen 0.0.0.0:443 --token-file tokens --cert cert.pem --key key.pem

        whence serve mydb --allow-origin https://example.org --limit query_seconds=5

    With curl, and the token that was printed:

        curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:8080/v1/view/reachable

        curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:8080/v1/table/link -d '[["A", "B"]]'
    """
    from whence.server.limits import Limits
    from whence.server.listening import read_listen

    host, port = read_listen(listen)
    limits = Limits.read(limit or ())
    program = source if source.suffix.lower() == ".sql" or source.is_file() else None
    db = None if program is not None else source
    choice = Choice(db, read_only, durability, retain, functions, spark, master, partitions)
    _log_to_stderr()
    with choice.opened() as database, _until_signal() as stop:
        if program is not None:
            declare(database, program)
        server = whence.serve(
            database,
            host,
            port,
            token_file=token_file,
            cert=cert,
            key=key,
            hosts=allow_host or (),
            origins=allow_origin or (),
            pages=pages,
            limits=limits,
            bus=bus,
            publish=publish or (),
            bus_token_file=bus_token_file,
        )
        with server, _tuned_for_latency():
            _announce(source, server)
            while not stop.wait(1.0) and server.is_running:  # a wait without an end would keep signals out
                pass
            err.print("stopping: writes that were taken are done first")


@contextmanager
def _tuned_for_latency() -> Iterator[None]:
    """Let the event loop have its turn soon while an epoch is computed, and keep the garbage collector from looking
    through everything that was loaded."""
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(0.001)
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(interval)


def _announce(source: Path, server: whence.Server) -> None:
    """Print where the server is, and its token if it has made one; a program may read these lines."""
    lines = [f"serving {source} at {server.url}"]
    if server.token is not None:
        lines.append(f"token {server.token}")
    for line in lines:
        out.print(Text(line), soft_wrap=True)
    sys.stdout.flush()
    if server.token is not None:
        note = "The token is shown once. It may do everything; make others with: whence token add FILE WHO"
        err.print(Text(note, style="dim"), soft_wrap=True)


@contextmanager
def _until_signal() -> Iterator[threading.Event]:
    """Give an event that a signal sets; a second signal ends the process at once."""
    stop = threading.Event()

    def note(number: int, frame: Any) -> None:
        if stop.is_set():
            for each, handler in before.items():
                signal.signal(each, handler if handler is not None else signal.SIG_DFL)
            signal.raise_signal(number)
        stop.set()

    before = {each: signal.signal(each, note) for each in _SIGNALS}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler if handler is not None else signal.SIG_DFL)


def _log_to_stderr() -> None:
    """Log a line per event, unless the user has arranged otherwise."""
    logger = logging.getLogger("whence")
    if not logger.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)


# -- tokens ----------------------------------------------------------------------------------------------------------

token = typer.Typer(
    help="Make, list and remove the tokens of a token file.", no_args_is_help=True, rich_markup_mode="rich"
)


@token.command("add")
@reported
def token_add(
    file: TokenFile,
    who: Who,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="TIME", help="How long it is valid, such as '30 days'.")
    ] = None,
) -> None:
    """Make a token, add its hash to a file and print it. Nothing can show it again.

    A server that uses the file accepts the token from then on, within a second or so.

    Examples:

        whence token add tokens ann

        whence token add tokens loader --expires '30 days'
    """
    from whence.model.budget import seconds_of
    from whence.server.access.tokens import make_token

    until = None
    if expires is not None:
        seconds = seconds_of(expires)
        if seconds <= 0:
            raise DataError(f"a token is valid for some time, not {expires!r:.80}")
        until = time.time() + seconds
    print(make_token(file, who, until))
    err.print(Text(f"a token for {who}: it is shown once, and its hash is in {file}", style="dim"), soft_wrap=True)


@token.command("list")
@reported
def token_list(file: TokenFile) -> None:
    """Print whose tokens a file has, and until when they are valid.

    Examples:

        whence token list tokens
    """
    from rich.table import Table

    from whence.server.access.tokens import read_tokens

    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("who", "valid until", "sha256"):
        table.add_column(column, overflow="fold")
    now = time.time()
    for caller in read_tokens(file):
        until = "for ever"
        if caller.expires is not None:
            until = datetime.fromtimestamp(caller.expires, UTC).isoformat(sep=" ", timespec="seconds")
            until += " (expired)" if caller.is_expired(now) else ""
        table.add_row(Text(caller.who), until, f"{caller.digest.hex()[:12]}…")
    out.print(table)


@token.command("remove")
@reported
def token_remove(file: TokenFile, who: Who) -> None:
    """Remove all tokens of a name from a file. A server that uses it ends the connections that go by them.

    Examples:

        whence token remove tokens ann
    """
    from whence.server.access.tokens import remove_token

    count = remove_token(file, who)
    if not count:
        raise DataError(f"{file} has no token for {who!r:.80}")
    out.print(Text(f"{count_of(count, 'token')} of {who} removed"), soft_wrap=True)
