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
    """Read every file of the database in the folder `path` and compute every view anew; what was found.

    Nothing is changed, and another process may write to the database meanwhile. It takes memory for the tables and
    views twice.

    >>> import tempfile; folder = tempfile.TemporaryDirectory(); path = Path(folder.name) / "db"
    >>> with whence.open(path) as db:
    ...     _ = db.execute("CREATE TABLE a (x INT); CREATE VIEW n AS SELECT COUNT(*) AS n FROM a")
    >>> report = whence.check(path); report.ok, [view.name for view in report.views]
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
    """Copy the database in the folder `path` to a new folder; another process may write to it meanwhile.

    The copy gets its name when every checksum in it has been compared and it has been opened, for which the functions
    of `setup` may be needed; with `checksums_only` it is not opened.
    """
    program = None if checksums_only else functions(setup)
    return copying.backup(local_path(path), local_path(to), program, disk or Disk(), progress)


def functions(setup: Setup | None) -> Program:
    """A program that has the functions which `setup` gives to a database."""
    with open(setup=setup) as db:
        return db._coordinator.program
