"""Making a database of an export (`io/archive.py`).

The law: the database is there when all of it is: same tables, as many rows, the views. What can be refused is refused
before anything is written; tables are filled before the views are made, so that each view is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from whence.engine.streams.promise import Promise
from whence.io import archive as archive_
from whence.io.archive import SCHEMA, Archive
from whence.io.grid import FactSheet
from whence.io.rows import encode
from whence.model.errors import DataError, WhenceError
from whence.model.paths import local_path
from whence.model.progress import Progress
from whence.plan.algebra.program import closed_name
from whence.plan.streams.model import with_at
from whence.runtime.database import Database, open
from whence.runtime.writing.horizons import parse_key
from whence.runtime.writing.stream_writes import StreamWriteSet
from whence.runtime.writing.tables import WriteSet
from whence.sql import statements as st
from whence.sql.parse import parse
from whence.state.backup import atomic_folder
from whence.state.disk import Disk

_EPOCH = 1_000_000  # rows


@dataclass(frozen=True)
class Imported(FactSheet):
    """A database made of an export (`whence.import_database`).

    path    its folder
    epoch   the epoch it is at
    tables  its tables, with their numbers of rows
    views   the names of its views

    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", [(1,), (2,)])
    >>> _ = db.export("moved"); made = whence.import_database("moved", "moved.db"); made.tables, made.views
    ({'a': 2}, [])
    """

    path: Path
    epoch: int
    tables: dict[str, int]
    views: list[str]


def import_database(
    source: str | Path,
    path: str | Path,
    *,
    setup: Callable[[Database], object] | None = None,
    retain: int | str | None = None,
    progress: Progress | None = None,
    disk: Disk | None = None,
) -> Imported:
    """Make a new database in the folder `path` of what `Database.export` wrote to `source`.

    setup     called with the database before its views are made, to register the Python functions they call
    retain    how much of the past `at` can read, as for `whence.open`
    progress  called with the current work, how much of it is done, and of how much
    disk      the object that writes all files; tests of faults replace it

    Rows of a table with a time-to-live live anew, unless a column says from when on; expired ones are left out. A
    stream has the rows that were retained, in order; their tids begin at 1.

    >>> with whence.open() as db:
    ...     _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", [(1,), (1,)]); _ = db.export("out")
    >>> whence.import_database("out", "imported.db").tables
    {'a': 2}
    """
    archive = archive_.read(local_path(source))
    creates = _rehearse(archive, setup)
    disk, path = disk or Disk(), local_path(path)
    with (
        atomic_folder(path, disk) as folder,
        open(folder, durability="none", retain=retain, setup=setup, disk=disk) as db,
    ):
        for create in creates:
            if isinstance(create, st.CreateTable):
                db.execute(create.sql)
        _fill(db, archive, progress)
        _restore_promises(db, archive)
        later = [create.sql for create in creates if isinstance(create, (st.CreateView, st.CreateIndex))]
        db.execute(";\n".join(later), progress=progress)
        tables = {name: len(db[name]) for name in (*db.tables, *db.streams)}
        _compare(db, archive, tables)
        return Imported(path, db.epoch, tables, db.views)


def _rehearse(archive: Archive, setup: Callable[[Database], object] | None) -> list[st.Statement]:
    """The statements of an export, after a look whether all of it can be used."""
    where = archive.path / SCHEMA
    try:
        statements = parse(archive.schema)
        others = [s for s in statements if not isinstance(s, (st.CreateTable, st.CreateView, st.CreateIndex))]
        if others:
            raise DataError(f"line {others[0].line}: only CREATE TABLE, STREAM, VIEW and INDEX may stand here")
        with open(setup=setup) as db:
            db.execute(archive.schema)
            known, tables = {*db.tables, *db.streams}, db._coordinator.program.tables
    except WhenceError as error:
        raise DataError(f"{where}: {error}") from error
    for entry in archive.tables:
        if entry.name not in known:
            raise DataError(f'{where}: there is no table "{entry.name}" for the file {entry.file}')
        archive.check(entry)
    for entry in archive.closed:
        if entry.name in known and tables[entry.name].promises.closes is not None:  # a schema may have been edited
            archive.check(entry)
    return statements


def _fill(db: Database, archive: Archive, progress: Progress | None) -> None:
    batches, done = _batches(db, archive), 0
    more = next(batches, None)
    while more is not None:
        with db.transaction():
            room = _EPOCH
            while more is not None and room > 0:
                name, rows = more
                _insert(db, name, rows)
                done, room = done + len(rows), room - len(rows)
                if progress is not None:
                    progress(f"reading {name}", done, archive.rows)
                more = next(batches, None)


def _insert(db: Database, name: str, rows: pa.Table) -> None:
    coordinator = db._coordinator
    table = coordinator.table_of(name)
    schema = table.schema
    with coordinator.feeding(), coordinator.transaction() as writes:
        pending = writes.table(name)
        if isinstance(pending, StreamWriteSet):
            codes = encode(rows, with_at(schema), coordinator.dictionary, name, missing="null")
            pending.put_back(codes)
            if table.tick is not None and len(codes):
                coordinator.clock.reach(int(codes[-1, table.tick]))  # no later row may have an earlier time
        else:
            pending.insert(encode(rows, schema, coordinator.dictionary, name, missing="null"))


def _restore_promises(db: Database, archive: Archive) -> None:
    """Close the keys, and let streams have come so far, that rows which were let go had closed and reached."""
    coordinator, history = db._coordinator, db._coordinator.horizon_history
    tables = coordinator.program.tables
    for entry in archive.closed:
        table = tables.get(entry.name)
        if table is None or table.promises.closes is None:
            continue
        with coordinator.transaction() as writes:
            pending = writes.table(closed_name(table.name))
            assert isinstance(pending, WriteSet)
            for rows in archive.read(entry, table.closed_keys.schema):
                keys = encode(rows, table.closed_keys.schema, coordinator.dictionary, table.name)
                pending.insert(keys[pending.counts(keys) == 0])
    for key, code in archive.horizons.items():
        column, stream = parse_key(key)
        table = tables.get(stream)
        ordered = table.promises.ordered if table is not None else None
        if ordered is None or ordered.column != column or code <= (history.bound(stream, column) or code - 1):
            continue
        with coordinator.transaction() as writes:
            writes.source_positions = Promise({stream: column}, code, coordinator.catalog.flow.last_at + 1).marks()


def _batches(db: Database, archive: Archive) -> Iterator[tuple[str, pa.Table]]:
    streams = db.streams
    for entry in archive.tables:
        schema = db[entry.name].schema
        for rows in archive.read(entry, with_at(schema) if entry.name in streams else schema):
            yield entry.name, rows


def _compare(db: Database, archive: Archive, tables: dict[str, int]) -> None:
    for entry in archive.tables:
        lasting = db._coordinator.program.tables[entry.name].lifetime is None
        if lasting and tables[entry.name] != entry.rows:
            raise DataError(f'{archive.path}: table "{entry.name}" has {tables[entry.name]:,} of {entry.rows:,} rows')
