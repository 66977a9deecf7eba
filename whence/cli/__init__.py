"""The command line, a thin layer on the public API. Exit codes: 0 fine, 1 an error of ours, 2 wrong usage.

| module | commands |
|---|---|
| `running` | `run`, `sql`, `demo` |
| `storage` | `info`, `check`, `backup`, `export`, `import` |
| `explaining` | `why`, `trace`, `what-if`, `critical`, `resilience`, `contribution`, `reliability` |
| `console` | shared output, errors, progress bars |
| `given` | rows typed as arguments |
| `opening` | the options that choose a database |
| `following` | folders of files as streams of Spark |
| `watching` | the lines printed per epoch on Spark |
"""

from __future__ import annotations

import io
import logging
import sys
from typing import Annotated

import typer

import whence
from whence.cli import explaining, running, storage
from whence.cli.console import out

__all__ = ["app", "main"]

app = typer.Typer(
    help="Maintain SQL views incrementally, recursive views included, and explain their rows.",
    epilog="Start with: whence demo network, or on Spark: whence demo pipeline",
    no_args_is_help=True,
    rich_markup_mode="rich",
    add_completion=False,
)
app.command()(running.run)
app.command()(running.sql)
app.command()(running.demo)
app.command()(explaining.why)
app.command()(explaining.trace)
app.command("what-if")(explaining.what_if)
app.command()(explaining.critical)
app.command()(explaining.resilience)
app.command()(explaining.contribution)
app.command()(explaining.reliability)
app.command()(storage.info)
app.command()(storage.check)
app.command()(storage.backup)
app.command()(storage.export)
app.command("import")(storage.import_)


def _version(asked: bool) -> None:
    if asked:
        out.print(f"whence {whence.__version__}")
        raise typer.Exit


@app.callback()
def options(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log to standard error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if verbose:
        logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(message)s")
        logging.getLogger("whence").setLevel(logging.DEBUG)


def main() -> None:
    """Run the `whence` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that lacks a letter shows its number
            stream.reconfigure(errors="backslashreplace")
    app()
