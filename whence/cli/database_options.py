"""The database that a command works on: in memory, or a folder with its options."""

from __future__ import annotations

import importlib
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import whence
from whence.cli.console import Bar, err, text_of
from whence.model.errors import WhenceError

if TYPE_CHECKING:
    from whence.runtime.durable.upkeep import Setup


class Durability(StrEnum):
    commit = "commit"
    interval = "interval"
    none = "none"


Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a database.")]
Db = Annotated[Path | None, typer.Option("--db", metavar="DIR", help="The folder of the database, made if it is new.")]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="Only read; another process may be writing.")]
Lasting = Annotated[
    Durability | None,
    typer.Option(
        "--durability",
        help="When a transaction is on stable storage: at its end (commit), soon after, or some time.",
    ),
]
Retain = Annotated[
    str | None,
    typer.Option(
        "--retain",
        metavar="HOW-MUCH",
        help="How much of the past to keep: a number of epochs, a time such as '7 days', or all.",
    ),
]
Functions = Annotated[
    str | None,
    typer.Option(
        "--functions",
        metavar="MODULE:NAME",
        help="A Python callable that gets the database and registers the functions its views call.",
    ),
]


class MissingColumns(StrEnum):
    error = "error"
    null = "null"


Missing = Annotated[
    MissingColumns,
    typer.Option("--missing", help="What a column is that inserted rows do not have: an error, or NULL."),
]
Params = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        "-p",
        metavar="NAME=VALUE",
        help="A value for :NAME in the SQL: a literal as in SQL, else text. May be given again.",
    ),
]
OnSpark = Annotated[
    bool,
    typer.Option("--spark", help="Run on Spark: where --master says, or on this machine with all of its cores."),
]
Master = Annotated[
    str | None,
    typer.Option("--master", metavar="MASTER", help="Where Spark runs, such as local[2] or yarn; implies --spark."),
]
Partitions = Annotated[
    int | None,
    typer.Option(
        "--partitions",
        min=1,
        max=10_000,
        help="Number of partitions (default: as the database has, or one per core).",
    ),
]


@contextmanager
def spark_session(master: str | None) -> Iterator[Any]:
    """Give a Spark session, stopped at the end if it was started here; say that it is starting."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        before = None  # `whence.spark_session` says what to do
    else:
        before = SparkSession.getActiveSession()
    with err.status("Starting Spark") if err.is_terminal else nullcontext():
        spark = whence.spark_session(master)
    main = threading.current_thread() is threading.main_thread()
    if main:  # Spark would cancel its jobs in the middle of an epoch; we stop when it is done
        former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield spark
    finally:
        if main:
            signal.signal(signal.SIGINT, former or signal.default_int_handler)
        if before is None:
            with err.status("Stopping Spark") if err.is_terminal else nullcontext():
                spark.stop()


@dataclass(frozen=True)
class Choice:
    """The options of a command that opens a database."""

    db: Path | None = None
    read_only: bool = False
    durability: Durability | None = None
    retain: str | None = None
    functions: str | None = None
    spark: bool = False
    master: str | None = None
    partitions: int | None = None

    @property
    def on_spark(self) -> bool:
        return self.spark or self.master is not None

    @contextmanager
    def opened(self) -> Iterator[whence.Database]:
        """Open the database, with a progress bar if that takes long; close it at the end, and Spark with it."""
        options = self._options()
        with ExitStack() as stack:
            if self.on_spark:
                options["spark"] = stack.enter_context(spark_session(self.master))
            with Bar(f"opening {self.db}") if self.db is not None else nullcontext() as bar:
                database = whence.open(self.db, progress=bar, **options)
            yield stack.enter_context(database)

    def _options(self) -> dict[str, Any]:
        """Return the arguments of `whence.open`."""
        lasting = {"--read-only": self.read_only, "--durability": self.durability, "--retain": self.retain}
        given = [option for option, value in lasting.items() if value]
        if self.db is None and given:
            raise typer.BadParameter("this is for a database that lasts: give its --db", param_hint=given[0])
        if self.read_only and len(given) > 1:
            raise typer.BadParameter("this is for those who write, not with --read-only", param_hint=given[1])
        if self.read_only and (self.on_spark or self.partitions is not None):
            hint = "--spark" if self.on_spark else "--partitions"
            raise typer.BadParameter("a database is read by one process, without Spark", param_hint=hint)
        options: dict[str, Any] = {"setup": find_functions(self.functions), "partitions": self.partitions}
        if self.db is not None:
            options |= {"read_only": self.read_only, "retain": self.retain}
        if self.durability is not None:
            options["durability"] = self.durability.value
        return options


def find_functions(text: str | None) -> Setup | None:
    """Return the callable that `module:name` stands for; search the current folder, too."""
    if text is None:
        return None
    module, found, name = text.partition(":")
    if not found or not module or not name:
        raise typer.BadParameter(f"{text!r} is not MODULE:NAME", param_hint="--functions")
    sys.path.insert(0, str(Path.cwd()))
    try:
        setup = getattr(importlib.import_module(module), name)
    except Exception as error:  # a module may raise anything
        raise WhenceError(f"--functions {text}: {type(error).__name__}: {error}") from None
    finally:
        sys.path.pop(0)
    if not callable(setup):
        raise WhenceError(f"--functions {text}: {name} cannot be called; it is to be a function of the database")

    def guarded(db: whence.Database) -> None:
        try:
            setup(db)
        except WhenceError:
            raise
        except Exception as error:
            raise WhenceError(f"--functions {text}: {type(error).__name__}: {error}") from None

    return guarded


def declare(db: whence.Database, program: Path) -> None:
    """Run a script, with a progress bar for views that take long to fill.

    In a database that has them already, CREATE statements that stand there word for word are passed over.
    """
    text = text_of(program)
    with Bar(f"running {program}") as bar:
        db.execute(_without(text, {_normalize_space(sql) for sql in db.statements}), progress=bar)


def _without(text: str, there: set[str]) -> str:
    """Return the script without statements that are there already; the others stay on the lines that errors name."""
    from whence.sql import statements as st
    from whence.sql.parse import parse

    if not there:
        return text
    kept = ""
    for statement in parse(text):
        if (
            not isinstance(statement, (st.CreateTable, st.CreateView, st.CreateIndex))
            or _normalize_space(statement.sql) not in there
        ):
            lines = statement.line - 1 - kept.count("\n")
            kept += "\n" * lines + " " * (statement.column - 1) * (lines > 0) + statement.sql + ";"
    return kept


def _normalize_space(sql: str) -> str:
    return " ".join(sql.split())
