"""`whence why`, `trace`, `what-if`, `critical`, `resilience`, `contribution` and `reliability`: questions about rows.

The database is a folder, which is only read, so another process may be writing to it; or a SQL script, which is run in
memory first. A row is meant by some of its columns, `src=A dst=B`, as many as tell it apart. Exit code 1 says that it
is not in the view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.text import Text

import whence
from whence.cli.console import Bar, err, out, reported
from whence.cli.database_options import Functions, Missing, MissingColumns, Params, declare, find_functions
from whence.cli.row_arguments import row_of, tables_of
from whence.model.paths import local_path

if TYPE_CHECKING:
    from whence.explain.show.answers import Answer

Where = Annotated[
    Path, typer.Argument(metavar="DATABASE", help="The folder of a database, or a .sql script to run in memory.")
]
View = Annotated[str, typer.Argument(metavar="VIEW", help="A view (or table).")]
Columns = Annotated[
    list[str] | None,
    typer.Argument(metavar="COLUMN=VALUE", help="Columns that identify the row; write NULL for no value."),
]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a self-contained HTML page.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
At = Annotated[int | None, typer.Option("--at", metavar="EPOCH", help="Ask about a retained past epoch.")]
T = TypeVar("T")
Patience = Annotated[
    str | None, typer.Option("--timeout", metavar="TIME", help="Give up after this time: 30 s, 2 min.")
]
Limit = Annotated[int, typer.Option("--limit", min=1, help="How many rows or witnesses to show.")]


@reported
def why(
    database: Where,
    view: View,
    row: Columns = None,
    html: Html = None,
    dot: Annotated[Path | None, typer.Option("--dot", metavar="FILE", help="Write the graph for Graphviz.")] = None,
    as_json: Json = False,
    at: At = None,
    limit: Limit = 10,
    timeout: Patience = None,
    functions: Functions = None,
) -> None:
    """Explain why a row is in a view, or why not: its derivations, or what it lacks and what excludes it, down to rows
    of tables.

    Exit code 1 says that the row is not there.

    Examples:

        whence why mydb reachable src=A dst=C

        whence why mydb reachable src=A dst=C --html why.html

        whence why access.sql can_see person=bob folder=source --json

        whence why mydb reachable src=A dst=C --at 17

        whence why mydb alarm tid=3
    """
    from whence.model.budget import within

    with _opened(database, functions, at) as db:
        found = _answered("looking for derivations", timeout, lambda: db.why(view, row_of(db, view, row)))
    found.limit = limit
    with Bar("looking for witnesses") as bar, within(bar):
        if as_json:
            print(found.to_json())
        else:
            out.print(found, soft_wrap=True)
        if html is not None:
            found.to_html(html)
        if dot is not None:
            found.to_dot(dot)
    _say_written(html, dot)
    if not found.holds:
        raise typer.Exit(1)


@reported
def trace(
    database: Where,
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="A stream, or a view that is one.")],
    row: Annotated[
        list[str] | None,
        typer.Argument(metavar="tid=N | COLUMN=VALUE", help="The tid of the row, or columns that identify it."),
    ] = None,
    as_json: Json = False,
    at: At = None,
    limit: Limit = 10,
    timeout: Patience = None,
    functions: Functions = None,
) -> None:
    """List the results that a row of a stream reached, in every view traced from it.

    Exit code 1 says that it reached none.

    Examples:

        whence trace mydb reading tid=17

        whence trace mydb reading time=12 loc=3 --json
    """
    with _opened(database, functions, at) as db:
        found = _answered("following it", timeout, lambda: db.trace(stream, row=row_of(db, stream, row)))
    if as_json:
        print(found.to_json())
    else:
        out.print(found.text(limit), soft_wrap=True)
    if not found:
        raise typer.Exit(1)


@reported
def what_if(
    database: Where,
    insert: Annotated[
        list[str] | None,
        typer.Option("--insert", "-i", metavar="TABLE:ROW", help="A row to suppose inserted. May be given again."),
    ] = None,
    delete: Annotated[
        list[str] | None,
        typer.Option("--delete", "-d", metavar="TABLE:ROW", help="A row to suppose deleted. May be given again."),
    ] = None,
    sql: Annotated[str, typer.Option("--sql", help="INSERT, DELETE and UPDATE statements to suppose first.")] = "",
    param: Params = None,
    view: Annotated[list[str] | None, typer.Option("--view", help="Show only these views (default: all).")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail if a row to --delete is not there.")] = False,
    missing: Missing = MissingColumns.error,
    html: Html = None,
    as_json: Json = False,
    at: At = None,
    limit: Limit = 20,
    timeout: Patience = None,
    functions: Functions = None,
) -> None:
    """Show what would change in every view if rows were inserted and deleted. Changes nothing.

    A row is its values as CSV, in the order of the table's columns, where nothing or NULL
    is no value; or a JSON array or object; or @FILE for all rows of a .csv, .jsonl or
    .parquet file. With --delete an object, or a file, with only some of the columns
    means all rows that have these values.

    Examples:

        whence what-if mydb --delete link:A,B

        whence what-if mydb --delete 'link:{"src": "A"}'

        whence what-if mydb -d 'link:{"src": "A", "dst": "B"}' -i link:A,C --html what-if.html

        whence what-if mydb --insert link:@new-links.csv --view reachable

        whence what-if mydb --sql "DELETE FROM link WHERE src = 'A'" --json

        whence what-if mydb --sql "DELETE FROM link WHERE src = :src" -p src=A
    """
    from whence.cli.variables import read_params

    if not (insert or delete or sql.strip()):
        raise typer.BadParameter("nothing is supposed: give --insert, --delete or --sql")
    params = read_params(param)
    with _opened(database, functions, at) as db:
        gone, new = tables_of(db, "--delete", delete), tables_of(db, "--insert", insert)
        found = _answered(
            "supposing",
            timeout,
            lambda: db.what_if(
                sql, params, insert=new, delete=gone, views=view or None, strict=strict, missing=missing.value
            ),
        )
    if as_json:
        _print_json(found.to_dict())
    else:
        out.print(found.text(limit), soft_wrap=True)
    if html is not None:
        found.to_html(html)
    _say_written(html)


@reported
def critical(
    database: Where,
    view: View,
    row: Columns = None,
    html: Html = None,
    as_json: Json = False,
    at: At = None,
    limit: Limit = 20,
    timeout: Patience = None,
    functions: Functions = None,
) -> None:
    """List the critical rows of tables: losing any one of them removes the row.

    Columns may match several rows, or none may be given for all of the view: then rows
    of tables are ranked by how many of these rows each would take along. These are the
    single points of failure.

    Examples:

        whence critical mydb reachable src=A dst=C

        whence critical mydb reachable src=A

        whence critical mydb reachable --limit 5
    """
    with _opened(database, functions, at) as db:
        found = _answered("looking for derivations", timeout, lambda: db.critical(view, where=row_of(db, view, row)))
    counts = [] if found.row is not None else [(f"takes along, of {found.of:,}", found.counts.tolist())]
    answer = {"where": found.where, "of": found.of, "critical": found.to_dicts()} if as_json else None
    _show(found, f"critical for {_asked(view, found.row, found.where)}", counts, limit, html, answer, found.of)


@reported
def resilience(
    database: Where,
    view: View,
    row: Columns = None,
    html: Html = None,
    as_json: Json = False,
    at: At = None,
    limit: Limit = 20,
    timeout: Patience = None,
    functions: Functions = None,
) -> None:
    """Find the fewest rows of tables whose loss removes a row.

    Examples:

        whence resilience mydb reachable src=A dst=C
    """
    with _opened(database, functions, at) as db:
        found = _answered("looking for a smallest set", timeout, lambda: db.resilience(view, row_of(db, view, row)))
    rows = [{"table": table, "row": values} for table, values in found]
    answer = {"count": found.count, "rows": rows} if as_json else None
    _show(found, f"a smallest loss that removes {_asked(view, found.row)}", [], limit, html, answer)


@reported
def contribution(
    database: Where,
    view: View,
    row: Columns = None,
    samples: Annotated[
        int | None,
        typer.Option(
            "--samples", min=1, help="Samples to draw where the answer cannot be exact (default: up to 20,000)."
        ),
    ] = None,
    html: Html = None,
    as_json: Json = False,
    at: At = None,
    limit: Limit = 20,
    timeout: Patience = None,
    functions: Functions = None,
) -> None:
    """Compute how much each row of a table matters to a row: Shapley and Banzhaf values.

    Examples:

        whence contribution mydb reachable src=A dst=C
    """
    with _opened(database, functions, at) as db:
        found = _answered(
            "weighing base rows", timeout, lambda: db.contribution(view, row_of(db, view, row), samples=samples)
        )
    values = [("Shapley", found.shapley), ("Banzhaf", found.banzhaf)]
    columns = [(name, some.round(4).tolist()) for name, some in values]
    how = "exact" if found.method == "exact" else f"from {found.samples:,} samples, within {found.error:.2g}"
    answer = {"method": found.method, "error": found.error, "rows": found.to_dicts()} if as_json else None
    _show(found, f"contributions to {_asked(view, found.row)}, {how}", columns, limit, html, answer)


@reported
def reliability(
    database: Where,
    view: View,
    row: Columns = None,
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--given",
            metavar="TABLE=P",
            help="Probability of a table's rows, or column:NAME if each row has its own. Other tables are certain.",
        ),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            "--samples", min=1, help="Samples to draw where the answer cannot be exact (default: up to 100,000)."
        ),
    ] = None,
    confidence: Annotated[float, typer.Option("--confidence", help="Confidence of the interval, if sampled.")] = 0.99,
    html: Html = None,
    as_json: Json = False,
    at: At = None,
    timeout: Patience = None,
    functions: Functions = None,
) -> None:
    """Compute the probability of a row, if rows of tables are there independently of each other.

    Examples:

        whence reliability mydb reachable src=A dst=C --given link=0.99

        whence reliability mydb reachable src=A dst=C --given link=column:p
    """
    if not 0 < confidence < 1:
        raise typer.BadParameter("a confidence lies between 0 and 1", param_hint="--confidence")
    chances = _probabilities(given or [])
    with _opened(database, functions, at) as db:
        found = _answered(
            "weighing derivations",
            timeout,
            lambda: db.reliability(view, row_of(db, view, row), given=chances, samples=samples, confidence=confidence),
        )
    if as_json:
        _print_json(found.to_dict())
    else:
        out.print(Text(str(found)), soft_wrap=True)
    if html is not None:
        facts = [f"{name}: {value}" for name, value in found.to_dict().items() if name not in ("view", "row", "epoch")]
        title = f"How reliable is {_asked(view, found.row)}?"
        _write_page(html, title, str(found), facts, ["", "probability"], [("it", found.probability)], 1.0)
    _say_written(html)


# -- what they share ---------------------------------------------------------------------------------------------------


@contextmanager
def _opened(path: Path, functions: str | None, at: int | None) -> Iterator[whence.Database]:
    """Open the database to ask: a folder, read-only, or a script; as of a past epoch if one is given."""
    setup, path = find_functions(functions), local_path(path)
    with ExitStack() as stack:
        if path.is_file():
            if at is not None:
                raise typer.BadParameter(
                    "a script has no past: this is for the folder of a database", param_hint="--at"
                )
            db = stack.enter_context(whence.open(setup=setup))
            declare(db, path)
        else:
            with Bar(f"opening {path}") as bar:
                db = stack.enter_context(whence.open(path, read_only=True, setup=setup, progress=bar))
        if at is not None:
            with Bar(f"going back to epoch {at}"):
                db = stack.enter_context(db.at(at))
        yield db


def _answered(what: str, timeout: str | None, ask: Callable[[], T]) -> T:
    """Compute an answer, with a progress bar, within a time if one is given."""
    from whence.model.budget import within

    with Bar(what) as bar, within(bar, timeout):
        return ask()


def _probabilities(texts: list[str]) -> dict[str, float | str]:
    found: dict[str, float | str] = {}
    for text in texts:
        table, equals, value = text.partition("=")
        try:
            found[table] = chance = value.removeprefix("column:") if value.startswith("column:") else float(value)
        except ValueError:
            chance = ""
        if isinstance(chance, float) and not 0 <= chance <= 1:
            raise typer.BadParameter(f"a probability is from 0 to 1, not {value}", param_hint="--given")
        if not equals or not table or chance == "":
            raise typer.BadParameter(f"{text!r} is not TABLE=PROBABILITY or TABLE=column:NAME", param_hint="--given")
    return found


def _asked(view: str, row: Mapping[str, Any] | None, where: Mapping[str, Any] | None = None) -> str:
    from whence.explain.show.answers import asked_about

    return asked_about(view, row, where)


def _values(row: Mapping[str, Any]) -> str:
    return ", ".join("NULL" if value is None else str(value) for value in row.values())


def _show(
    found: Answer,
    title: str,
    columns: list[tuple[str, list[Any]]],
    limit: int,
    html: Path | None,
    answer: dict[str, Any] | None,
    whole: float = 1.0,
) -> None:
    """Print base rows, one per line, with a note on each, or the `answer` in JSON; write all of them to a page, if
    one is asked for."""
    from whence.io.grid import Grid

    names = ["base row", *(name for name, _ in columns)]
    rows = [
        (f"{table}({_values(row)})", *(values[i] for _, values in columns))
        for i, (table, row) in enumerate(found if html is not None else islice(found, limit))
    ]
    if answer is not None:
        head = {"view": found.view, "row": found.row, "epoch": found.epoch}
        _print_json({**head, "exact": found.exact, "caveat": found.caveat, **answer})
    else:
        out.print(Grid(names, rows[:limit], len(found), f"{title} (epoch {found.epoch})"))
    doubt = f"by present derivations; the true answer may differ: {found.caveat}" if found.caveat else None
    if doubt and answer is None:
        err.print(Text(doubt, style="yellow"), soft_wrap=True)
    if html is not None:
        facts = [f"{len(found):,} base rows", *([doubt] if doubt else [])]
        _write_page(html, title, f"At epoch {found.epoch:,}.", facts, names, rows, whole)
    _say_written(html)


def _print_json(answer: dict[str, Any]) -> None:
    from whence.io.files import json_line

    print(json_line(answer))


def _write_page(path: Path, *page: Any) -> None:
    from whence.explain.show.page import write_out
    from whence.explain.show.table_page import answer_page

    write_out(answer_page(*page), path)


def _say_written(*paths: Path | None) -> None:
    for path in paths:
        if path is not None:
            err.print(Text(f"{path} written", style="dim"))
