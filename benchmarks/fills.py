"""Bulk fills in either order: a million facts and the view over them (`authorization`), loaded and filled from nothing.

    python -m benchmarks.lookups --sections fills

Each way, and each peer, fills in a fresh process of its own: views first and then one transaction, views first and then
table by table, or the tables and then the views. Measured are the CPU seconds from the first row to the filled views,
and the memory of the process at its peak and afterwards, beyond what it took before the first row. The peers load the
same facts and compute the same view once.
"""

from __future__ import annotations

import gc
import json
import resource
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import duckdb
from rich.console import Console

import whence
from benchmarks import authorization
from benchmarks.authorization import Facts
from benchmarks.ledger import DisagreementError
from benchmarks.report import Check, Figure

TABLES_FIRST, VIEWS_FIRST, ONE_BY_ONE = "Whence, tables first", "Whence, views first", "Whence, views first, by table"
SQLITE, DUCKDB = "SQLite", "DuckDB"
APART = 1.2
"""How many times more one order may take than the other."""
_VIEW = """
CREATE TABLE may_read AS
WITH RECURSIVE in_group (who, grp) AS (
  SELECT who, grp FROM member
  UNION
  SELECT in_group.who, subgroup.parent FROM in_group JOIN subgroup ON in_group.grp = subgroup.grp
)
SELECT DISTINCT in_group.who, granted.doc FROM in_group JOIN granted ON in_group.grp = granted.grp
"""


def _whence(views_first: bool, together: bool) -> Callable[[Facts], int]:
    def fill(facts: Facts) -> int:
        db = whence.open()
        db.execute(authorization.TABLES + (authorization.VIEWS if views_first else ""))
        if together:
            with db.transaction():
                for name, table in facts.tables.items():
                    db.insert(name, table)
        else:
            for name, table in facts.tables.items():
                db.insert(name, table)
        if not views_first:
            db.execute(authorization.VIEWS)
        _held.append(db)
        return len(db["may_read"])

    return fill


def _sqlite(facts: Facts) -> int:
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.executescript(authorization.TABLES)
    db.execute("BEGIN")
    for name, table in facts.tables.items():
        for batch in table.to_batches(max_chunksize=100_000):
            columns = [column.to_pylist() for column in batch.columns]
            db.executemany(f"INSERT INTO {name} VALUES (?, ?)", zip(*columns, strict=True))
    db.execute("CREATE INDEX by_child ON subgroup (grp)")
    db.execute("CREATE INDEX by_group ON granted (grp)")
    db.execute(_VIEW)
    db.execute("COMMIT")
    _held.append(db)
    return int(db.execute("SELECT count(*) FROM may_read").fetchone()[0])


def _duckdb(facts: Facts) -> int:
    db = duckdb.connect(config={"threads": 1})
    db.execute(authorization.TABLES)
    for name, table in facts.tables.items():
        db.register("given", table)
        db.execute(f"INSERT INTO {name} SELECT * FROM given")
        db.unregister("given")
    db.execute(_VIEW)
    _held.append(db)
    found = db.execute("SELECT count(*) FROM may_read").fetchone()
    assert found is not None
    return int(found[0])


WAYS: dict[str, Callable[[Facts], int]] = {
    TABLES_FIRST: _whence(views_first=False, together=True),
    VIEWS_FIRST: _whence(views_first=True, together=True),
    ONE_BY_ONE: _whence(views_first=True, together=False),
    SQLITE: _sqlite,
    DUCKDB: _duckdb,
}
_held: list[object] = []  # what has been filled, until the process ends


def measure(rows: int, rounds: int, console: Console) -> tuple[list[Figure], list[Check]]:
    """Let all ways take turns, so many times; return what they took and the targets."""
    figures = [
        Figure("bulk fill", "CPU s"),
        Figure("bulk fill, memory at its peak", "MB"),
        Figure("bulk fill, memory afterwards", "MB"),
    ]
    for _ in range(rounds):
        counts = {}
        for way in WAYS:
            with console.status(way):
                seconds, peak, after, counts[way] = _in_a_process(way, rows)
            for figure, value in zip(figures, (seconds, peak, after), strict=True):
                figure.samples.setdefault(way, []).append(value)
        if len(set(counts.values())) > 1:
            raise DisagreementError(f"rows of may_read after a bulk fill: {counts}")
    return figures, promises(figures)


def promises(figures: list[Figure]) -> list[Check]:
    """Return the targets: neither order takes much more than the other."""
    checks = []
    for figure in figures[:2]:
        for way in (VIEWS_FIRST, ONE_BY_ONE):
            times = max(figure.times(way, TABLES_FIRST), figure.times(TABLES_FIRST, way))
            what = "views and tables first" + (", by table" if way == ONE_BY_ONE else "")
            checks.append(Check(f"{figure.what}: {what}, times apart", times, APART, at_least=False))
    return checks


def _in_a_process(way: str, rows: int) -> tuple[float, float, float, int]:
    command = [sys.executable, "-m", "benchmarks.fills", way, str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{way} ended with {done.returncode}: {done.stderr[-2000:]}")
    seconds, peak, after, count = json.loads(done.stdout.splitlines()[-1])
    return seconds, peak, after, count


def _fill(way: str, rows: int) -> tuple[float, float, float, int]:
    """Fill in this process, once small so that kernels are loaded, then at size."""
    fill = WAYS[way]
    fill(authorization.facts(1_000))
    _held.clear()
    facts = authorization.facts(rows)
    gc.collect()
    _forget_peak()
    before, start = _memory("VmRSS"), time.process_time()
    count = fill(facts)
    seconds = time.process_time() - start
    peak = _memory("VmHWM")
    gc.collect()
    return seconds, max(1.0, peak - before), _memory("VmRSS") - before, count


def _forget_peak() -> None:
    """Let VmHWM begin anew: making the facts took memory, too."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _memory(what: str) -> float:
    """Return the MB that this process takes (VmRSS) or took at most (VmHWM); without /proc the latter."""
    status = Path("/proc/self/status")
    if status.exists():
        found = next(line for line in status.read_text().splitlines() if line.startswith(f"{what}:"))
        return int(found.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    print(json.dumps(_fill(sys.argv[1], int(sys.argv[2]))))
