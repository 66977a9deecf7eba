"""Copies of a database: a backup is its files, an export its tables and views in formats that others read."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from whence.io import archive
from whence.io.archive import Archive, TableRows
from whence.io.grid import FactSheet
from whence.model.errors import StorageError, WhenceError
from whence.model.progress import Progress
from whence.plan.algebra.program import Program
from whence.runtime.coordinator import Coordinator
from whence.runtime.durable.checking import load
from whence.state.backup import atomic_folder, copy
from whence.state.check import check_files
from whence.state.disk import Disk
from whence.state.store import Folder


@dataclass(frozen=True)
class Backup(FactSheet):
    """A copy of a database (`whence.backup`, `Database.backup`).

    path   its folder
    files  the number of files
    bytes  their size
    epoch  the epoch it is at; None if the copy was not opened

    >>> with whence.open("shop.db") as db:
    ...     _ = db.execute("CREATE TABLE a (x INT)"); copy = db.backup("shop.copy")
    >>> copy.path.name, copy.epoch, copy.bytes > 0
    ('shop.copy', 0, True)
    """

    path: Path
    files: int
    bytes: int
    epoch: int | None = None


def backup(path: Path, to: Path, functions: Program | None, disk: Disk, progress: Progress | None = None) -> Backup:
    """Copy a database to a new folder, which gets its name when the copy has been read, and opened with functions."""
    source = Folder(path, disk)
    if path.resolve() in to.resolve().parents:
        raise StorageError(f"{to} is inside {path}: a copy there would go with it")
    with atomic_folder(to, disk) as folder:
        size = copy(source, folder, progress)
        found = check_files(folder, disk, progress)
        if found.problems:
            raise StorageError(f"no copy was made: {_of(path, folder, str(found.problems[0]))}")
        epoch = None
        if functions is not None:
            try:
                with closing(load(folder, functions, disk, progress)) as coordinator:
                    epoch = coordinator.epoch
            except WhenceError as error:
                raise StorageError(
                    f"no copy was made, for it cannot be opened: {_of(path, folder, str(error))}"
                ) from error
    return Backup(to, len(found.files), size, epoch)


def _of(path: Path, copied: Path, said: str) -> str:
    """What is said of a copy, said of what it is a copy of."""
    return said.replace(str(copied), str(path))


def export(
    coordinator: Coordinator, path: Path, *, force: bool, compression: str, progress: Progress | None
) -> Archive:
    """Write tables and views of the last committed epoch to a folder."""
    from whence import __version__  # not above: that module is made of this one

    whole = coordinator.reader.read_tables()
    return archive.write(
        path,
        whole.statements,
        {name: TableRows(*found) for name, found in whole.tables.items()},
        whole.dictionary,
        epoch=whole.epoch,
        closed={name: TableRows(*found) for name, found in whole.closed.items()},
        horizons=whole.horizons,
        views=coordinator.reader.views(),
        version=__version__,
        force=force,
        compression=compression,
        progress=progress,
    )
