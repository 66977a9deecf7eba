"""Queries kept as views by Whence beside DuckDB asking them again, through the same refreshes: TPC-H and Nexmark.

Each query has a database of its own, with the tables it reads: what a refresh costs is the time of one transaction that
changes them and brings the view up to date. A refresh that reaches none of them is not counted. DuckDB is given the
same refreshes; its time is that of the query alone. The first refreshes warm both up and are not counted. After the
load and after every refresh the view must hold DuckDB's rows, DOUBLE up to `TOLERANCE`.

Beside the time on the clock stands that of the processor (all threads), which other programs disturb less.
"""

from __future__ import annotations

import gc
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from statistics import fmean
from typing import Any

import duckdb
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import whence

TOLERANCE = 1e-9
"""How far two DOUBLEs may be apart, relative to the larger: sums of them depend on their order."""

Row = tuple[Any, ...]
Seconds = tuple[float, float]  # on the clock, of the processor


@dataclass(frozen=True)
class Change:
    """Rows of a table that come (+1) or go (-1)."""

    table: str
    sign: int
    rows: pa.Table


@dataclass
class Kept:
    """What became of a query as a view: seconds on the clock and of the processor, a pair per refresh; `problem` says
    why there are none."""

    name: str
    load: float = 0.0
    updates: list[Seconds] = field(default_factory=list)
    asked: list[Seconds] = field(default_factory=list)
    rows: int = 0
    state_bytes: int = 0
    problem: str = ""

    def means(self, clock: int) -> tuple[float, float]:
        """Return the mean milliseconds of a refresh and of DuckDB's query; clock 1 is the processor's."""
        return 1e3 * fmean(s[clock] for s in self.updates), 1e3 * fmean(s[clock] for s in self.asked)


# -- DuckDB ------------------------------------------------------------------------------------------------------------


class Asked:
    """DuckDB with the same tables: the answer of a query after each refresh."""

    def __init__(self, script: str, keys: Mapping[str, str]) -> None:
        """`keys` names the column by which rows of a table are deleted."""
        self.connection, self._keys = duckdb.connect(), keys
        self.connection.execute(script)

    def change(self, changes: Iterable[Change]) -> None:
        """Apply a refresh."""
        self.connection.execute("BEGIN")
        for change in changes:
            self.connection.register("delta", change.rows)
            if change.sign > 0:
                self.connection.execute(f"INSERT INTO {change.table} SELECT * FROM delta")
            else:
                key = self._keys[change.table]
                self.connection.execute(f"DELETE FROM {change.table} WHERE {key} IN (SELECT {key} FROM delta)")
            self.connection.unregister("delta")
        self.connection.execute("COMMIT")

    def ask(self, query: str) -> tuple[list[Row], Seconds]:
        """Return the rows of a query, and what it took."""
        seconds = timed(lambda: self.connection.execute(f"CREATE OR REPLACE TEMP TABLE answer AS {query}"))
        return self.connection.execute("FROM answer").fetchall(), seconds

    def exactly(self, query: str) -> str:
        """Return a query whose LIMIT breaks ties as Whence does."""
        return exactly(query, len(self.connection.execute(f"DESCRIBE {query}").fetchall()))

    def close(self) -> None:
        self.connection.close()


def exactly(query: str, columns: int) -> str:
    """Return a query whose LIMIT breaks ties as Whence does: by its columns, left to right.

    >>> exactly("SELECT a, b FROM t ORDER BY b DESC LIMIT 3", 2)
    'SELECT a, b FROM t ORDER BY b DESC, 1, 2 LIMIT 3'
    """
    ties = "".join(f", {i + 1}" for i in range(columns))
    return re.sub(r"(ORDER BY [^()]*?)\s+(LIMIT \d+)$", rf"\1{ties} \2", query)


# -- both --------------------------------------------------------------------------------------------------------------


def run(
    queries: Mapping[str, str],
    script: str,
    tables: Mapping[str, pa.Table],
    refreshes: Sequence[Sequence[Change]],
    keys: Mapping[str, str],
    console: Console,
    warm: int = 0,
) -> list[Kept]:
    """Keep one query after the other through all refreshes, of which the first `warm` do not count; return what each
    came to."""
    found = []
    for name, query in queries.items():
        with console.status(name):
            used = [table for table in tables if re.search(rf"\b{table}\b", query)]
            stages = [[Change(table, +1, tables[table]) for table in used]]
            stages += [[change for change in changes if change.table in used] for changes in refreshes]
            duck = Asked(script, keys)
            try:
                found.append(keep(name, query, script, stages, duck, warm))
            finally:
                duck.close()
    return found


def keep(name: str, query: str, script: str, stages: Sequence[Sequence[Change]], duck: Asked, warm: int = 0) -> Kept:
    """Keep a query as a view through the load and all refreshes, and compare it with DuckDB's answer after each."""
    gc.collect()
    kept, asked = Kept(name), duck.exactly(query)
    with whence.open() as db:
        try:
            db.execute(f"{script}; CREATE VIEW answer AS {query}")
            for number, changes in enumerate(stages):
                duck.change(changes)
                wanted, seconds = duck.ask(asked)
                took = timed(partial(change_tables, db, changes)) if changes else None
                if number > warm:
                    kept.asked.append(seconds)
                    kept.updates += [took] if took is not None else []
                elif not number and took is not None:
                    kept.load = took[0]
                if not same(db["answer"].rows, wanted):
                    where = f"after refresh {number}" if number else "after the load"
                    kept.problem = f"differs from DuckDB {where}"
                    return kept
        except whence.WhenceError as error:
            kept.problem = f"{type(error).__name__}: {error}"
            return kept
        kept.rows, kept.state_bytes = len(db["answer"]), int(db.metrics()["state_bytes"])
    return kept


def change_tables(db: whence.Database, changes: Sequence[Change]) -> None:
    """Apply a refresh in one transaction."""
    with db.transaction():
        for change in changes:
            (db.insert if change.sign > 0 else db.delete)(change.table, change.rows)


def timed(work: Callable[[], object]) -> Seconds:
    """Return the seconds that some work takes."""
    began = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began[0], time.process_time() - began[1]


def same(ours: Sequence[Row], theirs: Sequence[Row]) -> bool:
    """Return whether two lists hold the same rows: DOUBLE up to a tolerance, all else exactly.

    >>> same([(1, 0.1 + 0.2)], [(1, 0.3)]), same([(1, 2)], [(1, 3)])
    (True, False)
    """
    if len(ours) != len(theirs):
        return False
    if Counter(ours) == Counter(theirs):
        return True
    return all(
        len(a) == len(b) and all(map(_equal, a, b))
        for a, b in zip(sorted(ours, key=_order), sorted(theirs, key=_order), strict=True)
    )


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, float) or isinstance(b, float):
        return a is not None and b is not None and math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=1e-12)
    return bool(a == b)


def _order(row: Row) -> list[tuple[int, Any]]:
    """Return what rows are sorted by: exact values first, then those that may differ in their last digits."""
    exact = [(0, "") if v is None else (1, _plain(v)) for v in row if not isinstance(v, float)]
    return [*exact, *((2, f"{v:.6g}") for v in row if isinstance(v, float))]


def _plain(value: Any) -> str:
    return str(value.normalize()) if isinstance(value, Decimal) else str(value)


# -- figures -----------------------------------------------------------------------------------------------------------


def show(kept: Sequence[Kept], title: str, console: Console) -> None:
    """Print a line per query."""
    table = Table(title=title, title_justify="left")
    table.add_column("query")
    for column in ("load s", "refresh ms", "DuckDB ms", "times", "CPU ms", "DuckDB", "times", "rows", "state MB"):
        table.add_column(column, justify="right")
    for k in kept:
        if k.problem:
            table.add_row(k.name, f"[red]{k.problem[:90]}")
            continue
        figures = ["not reached", *[""] * 5]
        if k.updates:
            figures = [f"{value:.{digits}f}" for clock in (0, 1) for value, digits in _compared(*k.means(clock))]
        table.add_row(k.name, f"{k.load:.2f}", *figures, f"{k.rows:,}", f"{k.state_bytes / 1e6:.1f}")
    console.print(table)


def _compared(ours: float, theirs: float) -> list[tuple[float, int]]:
    """Return two times and their ratio, each with its digits."""
    return [(ours, 2), (theirs, 2), (theirs / ours, 1)]
