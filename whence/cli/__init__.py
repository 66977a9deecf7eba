"""The command line, a thin layer on the public API. Exit codes: 0 fine, 1 an error of ours, 2 wrong usage.

| module | commands |
|---|---|
| `programs` | `run`, `sql`, `demo` |
| `storage` | `info`, `check`, `backup`, `export`, `import` |
| `questions` | `why`, `trace`, `what-if`, `critical`, `resilience`, `contribution`, `reliability` |
| `console` | shared output, errors, progress bars |
| `row_arguments` | rows typed as arguments |
| `database_options` | the options that choose a database |
| `file_streams` | folders of files as streams of Spark |
| `epoch_lines` | the lines printed per epoch on Spark |
| `shell` | the interactive SQL shell |
| `demo` | the programs behind `whence demo` |
"""

from __future__ import annotations

import io
import logging
import sys
from typing import Annotated

import typer

import whence
from whence.cli import programs, questions, storage
from whence.cli.console import out

__all__ = ["app", "main"]

app = typer.Typer(
    help="Maintain SQL views incrementally, recursive views included, and explain their rows.",
    epilog="Start with: whence demo network, or on Spark: whence demo pipeline",
    no_args_is_help=True,
    rich_markup_mode="rich",
    add_completion=False,
)
app.command()(programs.run)
app.command()(programs.sql)
app.command()(programs.demo)
app.command()(questions.why)
app.command()(questions.trace)
app.command("what-if")(questions.what_if)
app.command()(questions.critical)
app.command()(questions.resilience)
app.command()(questions.contribution)
app.command()(questions.reliability)
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
