"""The one place where tests look inside a database: what its public API does not show, and tests of faults must reach.

Prefer the public API: `db.metrics()`, `db.explain`, `db.state()`, `db.recovery`, `whence.check`. When the runtime is
rebuilt, only this file follows.
"""

from __future__ import annotations

from typing import Any

import whence


def coordinator(db: whence.Database) -> Any:
    """Return what numbers the epochs of a database and commits them."""
    return db._coordinator


def is_partitioned(db: whence.Database) -> bool:
    """Tell whether a database was opened with `spark` or `partitions`."""
    return driver(db) is not None


def driver(db: whence.Database) -> Any:
    """Return the driver of a partitioned database, or None."""
    return coordinator(db).driver


def run_as(db: whence.Database, mode: str) -> None:
    """Run the epochs of a partitioned database inline, as jobs, or by their size: "inline", "job", "auto"."""
    driver(db).runner.mode = mode


def dataflow(db: whence.Database) -> Any:
    """Return the dataflow: operators in topological order, tables and views by name."""
    return coordinator(db).catalog.flow


def operator(db: whence.Database, view: str) -> Any:
    """Return the last operator of a view."""
    return dataflow(db).views[view]


def table(db: whence.Database, name: str) -> Any:
    """Return the scan of a table."""
    return dataflow(db).tables[name]


def dictionary(db: whence.Database) -> Any:
    """Return the dictionary of texts."""
    return coordinator(db).dictionary


def source_positions(db: whence.Database) -> dict[str, int]:
    """Return the last committed batch of each source."""
    return coordinator(db).source_positions  # type: ignore[no-any-return]


def store(db: whence.Database) -> Any:
    """Return the files of a database with a path: its log and images."""
    return coordinator(db).storage.store


def snapshots(db: whence.Database) -> Any:
    """Return what takes the snapshots of a database with a path."""
    return coordinator(db).storage.snapshots


def folder(db: whence.Database) -> Any:
    """Return the folder that a reader follows."""
    return coordinator(db).storage.folder
