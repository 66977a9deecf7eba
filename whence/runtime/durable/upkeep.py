"""What is done with a database as a whole, from outside: checking it, copying it, reading an export.

Each takes a `setup`, as `whence.open` does, that gives a database the Python functions its views call.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from whence.model.paths import local_path
from whence.model.progress import Progress
from whence.plan.algebra.program import Program
from whence.runtime.database import Database, open
from whence.runtime.durable import checking, copying
from whence.runtime.durable.checking import Report
from whence.runtime.durable.copying import Backup
from whence.state.disk import Disk

Setup = Callable[[Database], object]


def check(
    path: str | Path, *, setup: Setup | None = None, progress: Progress | None = None, disk: Disk | None = None
) -> Report:
    """Read every file of the database in the folder `path`, compute every view again, and return what was found.

    setup     called with a database, to register the Python functions that views call
    progress  called with the current work, how much of it is done, and of how much
    disk      the object that reads all files; tests of faults replace it

    Nothing is changed, and another process may write to the database meanwhile. It takes memory for the tables and
    views twice.

    >>> with whence.open("checked.db") as db:
    ...     _ = db.execute("CREATE TABLE a (x INT); CREATE VIEW n AS SELECT COUNT(*) AS n FROM a")
    >>> report = whence.check("checked.db"); report.ok, [view.name for view in report.views]
    (True, ['n'])
    """
    return checking.check(local_path(path).absolute(), functions(setup), disk or Disk(), progress)


def backup(
    path: str | Path,
    to: str | Path,
    *,
    setup: Setup | None = None,
    checksums_only: bool = False,
    progress: Progress | None = None,
    disk: Disk | None = None,
) -> Backup:
    """Copy the database in the folder `path` to the new folder `to`; another process may write to it meanwhile.

    setup           called with a database, to register the Python functions that views call
    checksums_only  do not open the copy; then no function is needed, and its epoch is not known
    progress        called with the current work, how much of it is done, and of how much
    disk            the object that writes all files; tests of faults replace it

    The copy gets its name when every checksum in it has been compared and it has been opened.

    >>> with whence.open("kept.db") as db: _ = db.execute("CREATE TABLE a (x INT)")
    >>> copy = whence.backup("kept.db", "kept.copy"); whence.check(copy.path).ok
    True
    """
    program = None if checksums_only else functions(setup)
    return copying.backup(local_path(path), local_path(to), program, disk or Disk(), progress)


def functions(setup: Setup | None) -> Program:
    """A program that has the functions which `setup` gives to a database."""
    with open(setup=setup) as db:
        return db._coordinator.program
