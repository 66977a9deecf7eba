"""Queries kept as views by Whence beside DuckDB asking them again, through the same refreshes: TPC-H and Nexmark.

Each query has a database of its own, with the tables it reads: what a refresh costs is the time of one transaction that
changes them and brings the view up to date. A refresh that reaches none of them is not counted. DuckDB is given the
same refreshes, in one database; its time is that of the query alone. After the load and after every refresh the view
must hold DuckDB's rows, DOUBLE up to `TOLERANCE`.
"""

from __future__ import annotations

import gc
import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import whence

TOLERANCE = 1e-9
"""How far two DOUBLEs may be apart, relative to the larger: sums of them depend on their order."""

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Change:
    """Rows of a table that come (+1) or go (-1)."""

    table: str
    sign: int
    rows: pa.Table


@dataclass
class Kept:
    """What became of a query as a view: times in seconds, one per refresh; `problem` says why there are none."""

    name: str
    load: float = 0.0
    updates: list[float] = field(default_factory=list)
    asked: list[float] = field(default_factory=list)
    rows: int = 0
    state_bytes: int = 0
    problem: str = ""
    differs: bool = False

    @property
    def mean(self) -> float:
        return sum(self.updates) / len(self.updates) if self.updates else math.nan

    @property
    def mean_asked(self) -> float:
        return sum(self.asked) / len(self.asked) if self.asked else math.nan


# -- DuckDB ------------------------------------------------------------------------------------------------------------


class Asked:
    """DuckDB with all tables: the answers of all queries after each refresh."""

    def __init__(self, script: str, keys: Mapping[str, str]) -> None:
        """`keys` names the column by which rows of a table are deleted."""
        self._con, self._keys = duckdb.connect(), keys
        self._con.execute(script)

    def change(self, changes: Iterable[Change]) -> None:
        """Apply a refresh."""
        self._con.execute("BEGIN")
        for change in changes:
            self._con.register("delta", change.rows)
            if change.sign > 0:
                self._con.execute(f"INSERT INTO {change.table} SELECT * FROM delta")
            else:
                key = self._keys[change.table]
                self._con.execute(f"DELETE FROM {change.table} WHERE {key} IN (SELECT {key} FROM delta)")
            self._con.unregister("delta")
        self._con.execute("COMMIT")

    def ask(self, query: str) -> tuple[list[Row], float]:
        """Return the rows of a query, and its seconds."""
        began = time.perf_counter()
        self._con.execute(f"CREATE OR REPLACE TEMP TABLE answer AS {query}")
        seconds = time.perf_counter() - began
        return self._con.execute("FROM answer").fetchall(), seconds

    def close(self) -> None:
        self._con.close()


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
) -> list[Kept]:
    """Ask DuckDB everything, then keep one query after the other by Whence; what each came to."""
    answers: dict[str, list[list[Row]]] = {name: [] for name in queries}
    found = {name: Kept(name) for name in queries}
    duck = Asked(script, keys)
    with console.status("DuckDB"):
        for stage, changes in enumerate([[Change(n, +1, rows) for n, rows in tables.items()], *refreshes]):
            duck.change(changes)
            for name, query in queries.items():
                rows, seconds = duck.ask(exactly(query, len(_columns(duck, query))))
                answers[name].append(rows)
                if stage:
                    found[name].asked.append(seconds)
    duck.close()
    for name, query in queries.items():
        with console.status(name):
            keep(found[name], query, script, tables, refreshes, answers[name])
    return list(found.values())


def _columns(duck: Asked, query: str) -> list[str]:
    return [column[0] for column in duck._con.execute(f"DESCRIBE {query}").fetchall()]


def keep(
    kept: Kept,
    query: str,
    script: str,
    tables: Mapping[str, pa.Table],
    refreshes: Sequence[Sequence[Change]],
    answers: Sequence[list[Row]],
) -> None:
    """Keep a query as a view through all refreshes and compare it after each."""
    used = [name for name in tables if re.search(rf"\b{name}\b", query)]
    gc.collect()
    with whence.open() as db:
        try:
            db.execute(f"{script}; CREATE VIEW answer AS {query}")
            kept.load = _timed(db, [Change(name, +1, tables[name]) for name in used])
            _compare(kept, db, answers[0], "after the load")
            for number, changes in enumerate(refreshes, 1):
                mine = [change for change in changes if change.table in used]
                if mine:
                    kept.updates.append(_timed(db, mine))
                _compare(kept, db, answers[number], f"after refresh {number}")
        except whence.WhenceError as error:
            kept.problem = f"{type(error).__name__}: {error}"
            return
        kept.rows, kept.state_bytes = len(db["answer"]), int(db.metrics()["state_bytes"])


def _timed(db: whence.Database, changes: Sequence[Change]) -> float:
    began = time.perf_counter()
    with db.transaction():
        for change in changes:
            (db.insert if change.sign > 0 else db.delete)(change.table, change.rows)
    return time.perf_counter() - began


def _compare(kept: Kept, db: whence.Database, wanted: list[Row], when: str) -> None:
    if not kept.differs and not same(db["answer"].rows, wanted):
        kept.differs, kept.problem = True, f"differs from DuckDB {when}"


def same(ours: Sequence[Row], theirs: Sequence[Row]) -> bool:
    """Return whether two lists hold the same rows: DOUBLE up to a tolerance, all else exactly.

    >>> same([(1, 0.1 + 0.2)], [(1, 0.3)]), same([(1, 2)], [(1, 3)])
    (True, False)
    """
    if len(ours) != len(theirs):
        return False
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
    for column in ("load s", "refresh ms", "DuckDB ms", "times faster", "rows", "state MB"):
        table.add_column(column, justify="right")
    for k in kept:
        if k.problem:
            table.add_row(k.name, f"[red]{k.problem[:90]}")
            continue
        figures = [f"{k.load:.2f}", "not reached", f"{1e3 * k.mean_asked:.2f}", ""]
        if k.updates:
            figures[1], figures[3] = f"{1e3 * k.mean:.2f}", f"{k.mean_asked / k.mean:.1f}"
        table.add_row(k.name, *figures, f"{k.rows:,}", f"{k.state_bytes / 1e6:.1f}")
    console.print(table)
