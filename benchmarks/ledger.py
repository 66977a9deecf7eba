"""A ledger that Whence and SQLite keep on disk: the tables, the views, the rows, and how each of the two takes them.

    account (name TEXT PRIMARY KEY, region TEXT)
    link    (src TEXT, dst TEXT)                                     accounts that lead to others, in chains of ten
    event   (account TEXT, id INT PRIMARY KEY, amount DOUBLE)        what is written; ids rise

Three views: `by_region` joins and aggregates, `large` filters (a tenth of the events), `flagged` is recursive: accounts
with a very large event (a hundredth of them), and those that links lead to from there.

SQLite runs in WAL mode with synchronous=FULL, so a commit is on stable storage when it returns, as in Whence. Its
primary key is the rowid, which costs it nothing; Whence keeps an index. Batches are measured without a key too. SQLite
has no materialized views: triggers, written by hand for insertions only, keep the same results in tables, which costs
it much less than computing them anew after each commit would.
Amounts are quarters, so sums of them are exact in any order.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from contextlib import nullcontext
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

import whence

Row = tuple[str, int, float]

TABLES = """
CREATE TABLE account (name TEXT PRIMARY KEY, region TEXT);
CREATE TABLE link (src TEXT, dst TEXT);
CREATE TABLE event (account TEXT, id INT{key}, amount DOUBLE);
"""
VIEWS = """
CREATE VIEW by_region AS
  SELECT region, COUNT(*) AS n, SUM(amount) AS total FROM event JOIN account ON account = name GROUP BY region;
CREATE VIEW large AS SELECT id, account, amount FROM event WHERE amount >= 900;
CREATE VIEW flagged AS
  SELECT account FROM event WHERE amount >= 990
  UNION
  SELECT link.dst FROM flagged JOIN link ON flagged.account = link.src;
"""
SQLITE_TABLES = """
CREATE TABLE account (name TEXT PRIMARY KEY, region TEXT) WITHOUT ROWID;
CREATE TABLE link (src TEXT, dst TEXT);
CREATE TABLE event (account TEXT, id INTEGER{key}, amount DOUBLE);
"""
SQLITE_VIEWS = """
CREATE INDEX link_src ON link (src);
CREATE TABLE by_region (region TEXT PRIMARY KEY, n INT, total DOUBLE) WITHOUT ROWID;
CREATE TABLE large (id INTEGER PRIMARY KEY, account TEXT, amount DOUBLE);
CREATE TABLE flagged (account TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TRIGGER to_region AFTER INSERT ON event BEGIN
  INSERT INTO by_region SELECT region, 1, NEW.amount FROM account WHERE name = NEW.account
    ON CONFLICT (region) DO UPDATE SET n = n + 1, total = total + excluded.total;
END;
CREATE TRIGGER to_large AFTER INSERT ON event WHEN NEW.amount >= 900 BEGIN
  INSERT INTO large VALUES (NEW.id, NEW.account, NEW.amount);
END;
CREATE TRIGGER to_flagged AFTER INSERT ON event WHEN NEW.amount >= 990 BEGIN
  INSERT OR IGNORE INTO flagged VALUES (NEW.account);
END;
CREATE TRIGGER further AFTER INSERT ON flagged BEGIN
  INSERT OR IGNORE INTO flagged SELECT dst FROM link WHERE src = NEW.account;
END;
"""
KEY = " PRIMARY KEY"
VIEW_NAMES = ("by_region", "large", "flagged")
INSERT = "INSERT INTO event VALUES (?, ?, ?)"


def names(count: int) -> list[str]:
    """The names of accounts."""
    return [f"account-{i:06d}" for i in range(count)]


def base(accounts: int) -> dict[str, pa.Table]:
    """The tables that events refer to."""
    every = names(accounts)
    ends = [(every[i], every[i + 1]) for i in range(accounts - 1) if i % 10 < 9]
    return {
        "account": pa.table({"name": every, "region": [f"region-{i % 50:02d}" for i in range(accounts)]}),
        "link": pa.table({"src": [src for src, _ in ends], "dst": [dst for _, dst in ends]}),
    }


def events(first: int, count: int, accounts: int, seed: int = 0) -> pa.Table:
    """Events with ids from `first` on."""
    random = np.random.default_rng((seed, first))
    owner = pa.array(random.integers(0, accounts, count).astype(np.int32))
    return pa.table(
        {
            "account": pa.DictionaryArray.from_arrays(owner, pa.array(names(accounts))).cast(pa.string()),
            "id": np.arange(first, first + count, dtype=np.int32),
            "amount": random.integers(0, 4000, count) * 0.25,
        }
    )


def tuples(table: pa.Table) -> list[Any]:
    """The rows of an Arrow table."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def digest(table: pa.Table) -> str:
    """The number of rows and a checksum of them, whatever their order."""
    table = table.combine_chunks().sort_by([(name, "ascending") for name in table.column_names])
    found = hashlib.sha256()
    for column in table.columns:
        if pa.types.is_integer(column.type):
            column = column.cast(pa.int64())
        elif pa.types.is_string(column.type):
            found.update("\0".join(column.to_pylist()).encode())
            continue
        found.update(column.to_numpy().tobytes())
    return f"{table.num_rows} rows {found.hexdigest()[:16]}"


class DisagreementError(Exception):
    """The peers do not hold the same rows."""


def agree(digests: dict[str, dict[str, str]]) -> None:
    """DisagreementError unless all have the same."""
    (first, wanted), *rest = digests.items()
    for name, found in rest:
        if found != wanted:
            raise DisagreementError(f"{first} has {wanted}, {name} has {found}")


class Ledger(Protocol):
    """A ledger that is written to."""

    name: str
    path: Path

    def commit(self, row: Row, thread: int) -> None:
        """Insert one event durably."""

    def prepare(self, table: pa.Table) -> Any:
        """What `batch` is given; not timed."""

    def batch(self, data: Any) -> None:
        """Insert many events in one transaction."""

    def digests(self) -> dict[str, str]:
        """What the events and the views are."""

    def close(self) -> None:
        """Let go of the files."""


class WhenceLedger:
    """Every thread uses the one database; a batch is an Arrow table."""

    name = "Whence"

    def __init__(self, folder: Path, tables: dict[str, pa.Table], views: bool, keyed: bool = True):
        self.path = folder / "whence"
        self.db = whence.open(self.path)
        self._seen = ("event", *VIEW_NAMES) if views else ("event",)
        self.db.execute(TABLES.format(key=KEY if keyed else ""))
        for table, rows in tables.items():
            self.db.insert(table, rows)
        if views:
            self.db.execute(VIEWS)

    def commit(self, row: Row, thread: int) -> None:
        self.db.insert("event", row)

    def prepare(self, table: pa.Table) -> Any:
        return table

    def batch(self, data: Any) -> None:
        self.db.insert("event", data)

    def digests(self) -> dict[str, str]:
        return {name: digest(self.db[name].to_arrow()) for name in self._seen}

    def close(self) -> None:
        self.db.close()


class SqliteLedger:
    """Every thread has a connection of its own, or all of them one and a lock; a batch is a list of tuples.

    With `converts` a batch comes as an Arrow table, and making tuples of it is part of its time.
    """

    def __init__(
        self,
        folder: Path,
        tables: dict[str, pa.Table],
        views: bool,
        keyed: bool = True,
        *,
        name: str = "SQLite",
        threads: int = 1,
        locked: bool = False,
        converts: bool = False,
    ):
        self.name, self.path, self._converts = name, folder / name.replace(" ", "-"), converts
        self.path.mkdir()
        self._seen = ("event", *VIEW_NAMES) if views else ("event",)
        self._connections = [self._connect() for _ in range(1 if locked else threads)]
        self._lock = threading.Lock() if locked else nullcontext()
        one = self._connections[0]
        one.executescript(SQLITE_TABLES.format(key=KEY if keyed else ""))
        for table, rows in tables.items():
            marks = ", ".join("?" * rows.num_columns)
            one.execute("BEGIN")
            one.executemany(f"INSERT INTO {table} VALUES ({marks})", tuples(rows))
            one.execute("COMMIT")
        if views:
            one.executescript(SQLITE_VIEWS)

    def _connect(self) -> sqlite3.Connection:
        found = sqlite3.connect(self.path / "ledger.db", timeout=120, isolation_level=None, check_same_thread=False)
        found.execute("PRAGMA journal_mode = WAL")
        found.execute("PRAGMA synchronous = FULL")
        found.execute("PRAGMA recursive_triggers = ON")
        return found

    def commit(self, row: Row, thread: int) -> None:
        with self._lock:
            self._connections[thread % len(self._connections)].execute(INSERT, row)

    def prepare(self, table: pa.Table) -> Any:
        return table if self._converts else tuples(table)

    def batch(self, data: Any) -> None:
        one = self._connections[0]
        one.execute("BEGIN")
        one.executemany(INSERT, tuples(data) if self._converts else data)
        one.execute("COMMIT")

    def digests(self) -> dict[str, str]:
        found = {}
        for name in self._seen:
            cursor = self._connections[0].execute(f"SELECT * FROM {name}")
            columns = [what[0] for what in cursor.description]
            found[name] = digest(pa.table(list(map(list, zip(*cursor, strict=True))), names=columns))
        return found

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


def commits(ledger: Ledger, table: pa.Table, threads: int) -> float:
    """Seconds for committing these rows one by one, from so many threads at once."""
    rows = tuples(table)
    if threads == 1:
        start = perf_counter()
        for row in rows:
            ledger.commit(row, 0)
        return perf_counter() - start
    errors: list[BaseException] = []
    ready = threading.Barrier(threads + 1)

    def work(thread: int) -> None:
        try:
            ready.wait()
            for row in rows[thread::threads]:
                ledger.commit(row, thread)
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
    for worker in workers:
        worker.start()
    ready.wait()
    start = perf_counter()
    for worker in workers:
        worker.join()
    seconds = perf_counter() - start
    if errors:
        raise errors[0]
    return seconds


def batches(ledger: Ledger, table: pa.Table) -> float:
    """Seconds for inserting these rows in one transaction."""
    data = ledger.prepare(table)
    start = perf_counter()
    ledger.batch(data)
    return perf_counter() - start
