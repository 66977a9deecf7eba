"""Exports: a database as Parquet and SQL, for other programs and later versions to read.

    export.json            format, version, epoch; of each table its name, file and number of rows
    schema.sql             CREATE TABLE, CREATE STREAM and CREATE VIEW statements, to be run as they are
    tables/link.parquet    the rows of a table, each as often as it is there; those that are kept of a stream, in the
                           order they came, with a last column $at: when each came, counted over all streams
    tables/game%00closed.parquet    the closed keys of a stream; rows that closed them may have been let go

The law: an export whose `export.json` is there is whole, for that is written last, and holds the tables as of one
epoch. Every value comes back as it was: DECIMAL and TIMESTAMP are Parquet's own, an INTERVAL is an ISO 8601 duration.
"""

from __future__ import annotations

import json
import os
import string
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from xxhash import xxh3_128_hexdigest

from whence.io import files
from whence.io.grid import FactSheet
from whence.io.rows import to_arrow
from whence.model.codes import Codes, Dictionary
from whence.model.errors import DataError, StorageError, WhenceError
from whence.model.progress import Progress
from whence.model.types import Schema

FORMAT = 1
INDEX, SCHEMA, TABLES = "export.json", "schema.sql", "tables"
COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")
_BATCH = 65_536  # rows
_PLAIN = set(string.ascii_lowercase + string.digits + "_-")
_RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))}  # on Windows
_LONGEST = 150  # characters of a file's name before its ending


class TableRows(NamedTuple):
    """The contents of a table: its distinct rows, and the multiplicity of each."""

    schema: Schema
    codes: Codes
    counts: Codes

    @property
    def total(self) -> int:
        return int(self.counts.sum())


@dataclass(frozen=True)
class Entry:
    """A table of an export."""

    name: str
    file: str
    rows: int


@dataclass(frozen=True)
class Archive(FactSheet):
    """The contents of an export (`Database.export`).

    path    its folder
    epoch   the epoch it is of
    whence  the version that wrote it
    tables  the tables, each with its `name`, its `file` and its number of `rows`
    views   the names of the views
    closed  the streams that close keys, each with the `file` of its closed keys and their number of `rows`
    horizons  the lowest code that may still come, per ordered column of a stream

    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", [(1,), (2,)])
    >>> archive = db.export("exported"); archive.epoch, archive.tables[0].name, archive.rows
    (1, 'a', 2)
    >>> archive.schema.strip().splitlines()[-1]
    'CREATE TABLE a (x INT);'
    """

    path: Path
    epoch: int
    whence: str
    tables: tuple[Entry, ...]
    views: tuple[str, ...]
    closed: tuple[Entry, ...] = ()
    horizons: Mapping[str, int] = field(default_factory=dict)

    @property
    def schema(self) -> str:
        """The SQL that declares its tables and views."""
        with _our_errors(self.path / SCHEMA):
            return (self.path / SCHEMA).read_text(encoding="utf-8")

    @property
    def rows(self) -> int:
        """The number of rows in all tables."""
        return sum(entry.rows for entry in self.tables)

    def check(self, entry: Entry) -> None:
        """Raise DataError unless a table's file exists and has as many rows as it should."""
        path = self.path / TABLES / entry.file
        with _our_errors(path):
            found = pyarrow.parquet.read_metadata(path).num_rows
        if found != entry.rows:
            raise DataError(f"{path}: {found:,} rows, where {INDEX} speaks of {entry.rows:,}")

    def read(self, entry: Entry, schema: Schema) -> Iterator[pa.Table]:
        """Read the rows of a table, a batch at a time."""
        path = self.path / TABLES / entry.file
        with _our_errors(path):
            yield from files.read(path, schema, _BATCH, missing="null")  # a schema that was edited may have more


def file_name(table: str) -> str:
    """Return the name of a table's file. Different tables have different ones, even if case is ignored.

    >>> file_name("link"), file_name("../A b"), file_name("nul"), file_name("é")
    ('link.parquet', '%2E%2E%2F%41%20b.parquet', '%6Eul.parquet', '%C3%A9.parquet')
    """
    stem = "".join(c if c in _PLAIN else "".join(f"%{byte:02X}" for byte in c.encode()) for c in table) or "%"
    if stem in _RESERVED:
        stem = f"%{ord(stem[0]):02X}{stem[1:]}"
    if len(stem) > _LONGEST:
        stem = f"{stem[:_LONGEST]}-{xxh3_128_hexdigest(table.encode())}"
    return f"{stem}.parquet"


# Writing


def write(
    path: Path,
    statements: Sequence[str],
    tables: Mapping[str, TableRows],
    dictionary: Dictionary,
    *,
    epoch: int,
    views: Sequence[str],
    version: str,
    closed: Mapping[str, TableRows] | None = None,
    horizons: Mapping[str, int] | None = None,
    force: bool = False,
    compression: str = "zstd",
    progress: Progress | None = None,
) -> Archive:
    """Write an export. A folder that holds something is refused, unless `force` lets its export be replaced."""
    if compression not in COMPRESSIONS:
        raise WhenceError(f"the compression is one of {', '.join(COMPRESSIONS)}, not {compression!r}")
    _make_room(path, force)
    entries = tuple(Entry(name, file_name(name), rows.total) for name, rows in tables.items())
    beside = tuple(Entry(name, file_name(f"{name}\0closed"), rows.total) for name, rows in (closed or {}).items())
    total, done = sum(entry.rows for entry in (*entries, *beside)), 0
    for entry, rows in zip((*entries, *beside), (*tables.values(), *(closed or {}).values()), strict=True):
        file = path / TABLES / entry.file
        with _our_errors(file):
            for count in _write_table(file, rows, dictionary, compression):
                done += count
                if progress is not None:
                    progress(f"writing {entry.name}", done, total)
            _sync(file)
    archive = Archive(path, epoch, version, entries, tuple(views), beside, dict(horizons or {}))
    _write_text(path / SCHEMA, "".join(f"{sql};\n\n" for sql in statements))
    index = {"format": FORMAT, **asdict(archive)}
    del index["path"]
    for name in ("closed", "horizons"):
        if not index[name]:  # earlier versions do not know it, and can read an export without
            del index[name]
    _write_text(path / INDEX, json.dumps(index, indent=2, ensure_ascii=False) + "\n")
    _sync(path / TABLES)
    _sync(path)
    return archive


def _make_room(path: Path, force: bool) -> None:
    with _our_errors(path):
        if path.exists() and not path.is_dir():
            raise StorageError(f"{path} is a file; an export is a folder")
        there = {item.name for item in path.iterdir()} if path.exists() else set()
        if there and not force:
            raise StorageError(f"{path} is not empty: export to another folder, or with --force (force=True)")
        if there - {SCHEMA, TABLES, INDEX}:
            raise StorageError(f"{path} holds something else than an export ({min(there - {SCHEMA, TABLES, INDEX})})")
        (path / TABLES).mkdir(parents=True, exist_ok=True)
        if (path / INDEX).exists():
            with suppress(DataError):  # what is no export of ours has no files of ours
                found = read(path)
                for entry in (*found.tables, *found.closed):
                    (path / TABLES / entry.file).unlink(missing_ok=True)
            (path / INDEX).unlink()


def _write_table(path: Path, rows: TableRows, dictionary: Dictionary, compression: str) -> Iterator[int]:
    """Write the rows of a table, yielding the number of rows after each batch."""
    ends, total = np.cumsum(rows.counts), rows.total
    schema = files.intervals_out(_arrow(rows, ends[:0], dictionary)).schema
    with pyarrow.parquet.ParquetWriter(path, schema, compression=compression) as writer:
        for start in range(0, total, _BATCH):
            stop = min(start + _BATCH, total)
            places = np.searchsorted(ends, np.arange(start, stop), side="right")  # a row is there once for each copy
            writer.write_table(files.intervals_out(_arrow(rows, places, dictionary)))
            yield stop - start


def _arrow(rows: TableRows, places: Codes, dictionary: Dictionary) -> pa.Table:
    return to_arrow(rows.codes[places], np.ones(len(places), np.int64), rows.schema, dictionary)


def _write_text(path: Path, text: str) -> None:
    with _our_errors(path):
        path.write_text(text, encoding="utf-8")
        _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Reading


def read(path: Path) -> Archive:
    """Read an export, as its `export.json` describes it."""
    index = path / INDEX
    if not index.is_file():
        raise DataError(f"{path} is no export: there is no {INDEX} in it (it is written last)")
    with _our_errors(index):
        text = index.read_text(encoding="utf-8")
    try:
        return _parse(path, json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{index}: this is not what an export writes: {error!r}") from None


def _parse(path: Path, found: dict[str, Any]) -> Archive:
    if found["format"] > FORMAT:
        raise DataError(f"{path} was exported by Whence {found['whence']}, in a format that this one does not know")
    tables = tuple(Entry(**entry) for entry in found["tables"])
    closed = tuple(Entry(**entry) for entry in found.get("closed", ()))
    horizons = {str(key): int(code) for key, code in found.get("horizons", {}).items()}
    for entry in (*tables, *closed):
        if Path(entry.file).name != entry.file or not entry.file.endswith(".parquet"):
            raise DataError(f"{path / INDEX}: {entry.file!r} is not the name of a file in {TABLES}")
    version, views = str(found["whence"]), tuple(found["views"])
    return Archive(path, int(found["epoch"]), version, tables, views, closed, horizons)


@contextmanager
def _our_errors(path: Path) -> Iterator[None]:
    """Turn errors of the system and of Arrow into ours."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}") from error
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"{path}: {str(error).splitlines()[0]}") from None
