"""The command line, a thin layer on the public API. Exit codes: 0 fine, 1 an error of ours, 2 wrong usage.

| module | commands |
|---|---|
| `programs` | `run`, `sql`, `demo` |
| `storage` | `info`, `check`, `backup`, `export`, `import` |
| `questions` | `why`, `trace`, `what-if`, `critical`, `resilience`, `contribution`, `reliability` |
| `serving` | `serve`, `token add`, `token list`, `token remove` |
| `subscribing` | `subscribe` |
| `moving`    | `move` |
| `console` | shared output, errors, progress bars |
| `row_arguments` | rows typed as arguments |
| `variables` | values for parameters of SQL, typed as options or in the shell |
| `database_options` | the options that choose a database |
| `file_epochs` | the files that `whence run` takes in, as epochs |
| `change_printer` | the changes of each epoch, printed |
| `file_streams` | folders of files as streams of Spark |
| `epoch_lines` | the lines printed per epoch on Spark |
| `shell` | the interactive SQL shell and its meta commands |
| `line_editor` | history and Tab, by readline |
| `completion` | what Tab offers |
| `copying` | `\\copy` between tables and files |
| `demo` | the programs behind `whence demo` |
"""

from __future__ import annotations

import io
import logging
import platform
import sys
from importlib import metadata
from typing import Annotated

import typer

import whence
from whence.cli import moving, programs, questions, serving, storage, subscribing
from whence.cli.console import out

__all__ = ["app", "main"]

app = typer.Typer(
    help="Maintain SQL views incrementally, recursive views included, and explain their rows.",
    epilog="Start with: whence demo network, or on Spark: whence demo pipeline",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
_PANELS = {
    "Programs": (programs.run, programs.sql, programs.demo),
    "Questions": (
        questions.why,
        questions.trace,
        questions.what_if,
        questions.critical,
        questions.resilience,
        questions.contribution,
        questions.reliability,
    ),
    "Serving": (serving.serve, subscribing.subscribe, moving.move),
    "Storage": (storage.info, storage.check, storage.backup, storage.export, storage.import_),
}
for _panel, _commands in _PANELS.items():
    for _command in _commands:
        app.command(_command.__name__.strip("_").replace("_", "-"), rich_help_panel=_panel)(_command)
app.add_typer(serving.token, name="token", rich_help_panel="Serving")
_LIBRARIES = ("numpy", "numba", "pyarrow", "duckdb", "sqlglot", "pyspark")


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log to standard error; with --version, also name the libraries.")
    ] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print_version(verbose)
        raise typer.Exit
    if context.invoked_subcommand is None:
        context.fail("Missing command.")
    if verbose:
        logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(message)s")
        logging.getLogger("whence").setLevel(logging.DEBUG)


def print_version(libraries: bool) -> None:
    """Print the version; with `libraries`, those of Python and of the libraries underneath, for a bug report."""
    out.print(f"whence {whence.__version__}")
    if not libraries:
        return
    out.print(f"Python {platform.python_version()} on {platform.platform()}", soft_wrap=True)
    for name in _LIBRARIES:
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            found = "not installed"
        out.print(f"{name} {found}")


def main() -> None:
    """Run the `whence` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that lacks a letter shows its number
            stream.reconfigure(errors="backslashreplace")
    app()
