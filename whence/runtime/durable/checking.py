"""Checking a database: whether its files are as they were written, and its views what their definitions say.

The law: a view that is reported as right holds exactly the rows, copies counted, that its definition gives over the
tables as of the same epoch, and so does whatever is kept of the operators under it. Only sums of DOUBLE may differ in
their last digits, since they depend on the order of the terms. Nothing is written, and nothing is locked: a writer may
go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from whence.engine.core.batch import consolidate
from whence.engine.core.operator import Batch, Operator, upwards
from whence.engine.relational.scan import Scan
from whence.engine.streams.connection_point import ConnectionPoint
from whence.engine.streams.lookup import Lookup
from whence.engine.streams.retain import Retain
from whence.engine.streams.sort import BSort
from whence.engine.streams.stream_scan import StreamScan
from whence.engine.streams.windows.latest import Latest
from whence.engine.streams.windows.window import Window
from whence.io.grid import FactSheet
from whence.io.rows import expand, to_tuples
from whence.model.codes import NULL, Codes, Dictionary, codes_to_floats
from whence.model.errors import StorageError, WhenceError
from whence.model.progress import Progress
from whence.model.types import BIGINT, Column, Kind, Schema
from whence.plan.algebra.program import Program
from whence.runtime.catalog import Catalog
from whence.runtime.coordinator import Coordinator
from whence.runtime.deployment import InlineDeployment
from whence.runtime.durable.follower import follow
from whence.runtime.durable.uniting import PastError
from whence.sql import statements as st
from whence.sql.parse import parse_stored
from whence.state.check import CheckedFile, check_files
from whence.state.disk import Disk
from whence.state.lock import writer_of
from whence.state.segment import Torn
from whence.state.store import Folder

NO_LIMIT = 1 << 40  # of recursion: what is there has been derived before
_EXAMPLES = 3
_CLOSE = 1e-9


@dataclass(frozen=True)
class CheckedView:
    """A view, compared with what its definition gives (`Report.views`).

    name                      the view
    rows                      how many it has
    extra, missing            how many its definition does not give, and how many more it gives
    extra_rows, missing_rows  a few of each
    inside                    how many operators under it keep something wrong that the view does not show
    unknown                   why it was not compared, if rows that it was made of have left

    >>> with whence.open("views.db") as db:
    ...     _ = db.execute("CREATE TABLE a (x INT); CREATE VIEW n AS SELECT COUNT(*) AS n FROM a")
    >>> (view,) = whence.check("views.db").views; view.name, view.rows, view.ok, str(view)
    ('n', 1, True, 'view n: ok')
    """

    name: str
    rows: int
    extra: int = 0
    missing: int = 0
    extra_rows: tuple[Any, ...] = ()
    missing_rows: tuple[Any, ...] = ()
    inside: int = 0
    unknown: str = ""  # why it was not compared

    @property
    def ok(self) -> bool:
        """Whether the view is as it should be."""
        return not (self.extra or self.missing or self.inside)

    def __str__(self) -> str:
        """What is wrong, in words."""
        said = []
        if self.extra:
            said.append(f"{self.extra:,} rows too many, such as {self.extra_rows[0]}")
        if self.missing:
            said.append(f"{self.missing:,} rows missing, such as {self.missing_rows[0]}")
        if self.inside:
            said.append(f"what is kept of {self.inside} operators under it is wrong")
        return f"view {self.name}: {'; '.join(said) or 'ok'}"


@dataclass(frozen=True)
class Report(FactSheet):
    """What a check of a database found (`whence.check`).

    path      the folder
    epoch     the epoch that was checked; None if the database could not be read
    files     the files, each a `CheckedFile`
    views     the views, each a `CheckedView`
    problems  what is wrong, a sentence each
    tables    the tables, with their numbers of rows
    torn      the remains of an append that was interrupted
    strays    files that are no part of the database
    writer    who was writing to it

    `torn`, `strays` and `writer` are no problems.

    >>> with whence.open("report.db") as db:
    ...     _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", (1,))
    >>> report = whence.check("report.db"); report.ok, report.epoch, report.tables, report.problems
    (True, 1, {'a': 1}, ())
    """

    path: Path
    epoch: int | None = None
    files: tuple[CheckedFile, ...] = ()
    views: tuple[CheckedView, ...] = ()
    problems: tuple[str, ...] = ()
    strays: tuple[Path, ...] = ()
    torn: Torn | None = None
    writer: str | None = None
    tables: dict[str, int] = field(default_factory=dict)  # and their rows

    @property
    def ok(self) -> bool:
        """Whether there is no problem."""
        return not self.problems


def check(path: Path, functions: Program, disk: Disk, progress: Progress | None = None) -> Report:
    """Check the files and the views of a database. StorageError if there is none at that path."""
    writer = writer_of(path)
    try:
        files = check_files(path, disk, progress)
    except StorageError as error:
        if not path.exists() or not disk.names(path):
            raise
        return Report(path, problems=(str(error),), writer=writer)
    problems = tuple(str(problem) for problem in files.problems)
    report = Report(path, None, files.files, (), problems, files.strays, files.torn, writer)
    try:
        with closing(load(path, functions, disk, progress)) as coordinator:
            views = tuple(check_views(coordinator, progress))
            tables = {name: coordinator.catalog.flow.tables[name].size for name in coordinator.program.tables}
    except PastError as error:  # what partitions keep of the past is theirs alone
        return replace(report, views=(CheckedView(error.view, 0, unknown=str(error)),))
    except Exception as error:  # whatever wrong contents may lead to is what we are here to tell of
        said = str(error) if isinstance(error, WhenceError) else f"{path} cannot be loaded: {error!r}"
        return report if said in problems else replace(report, problems=(*problems, said))
    problems += tuple(str(view) for view in views if not view.ok)
    return replace(report, epoch=coordinator.epoch, views=views, tables=tables, problems=problems)


def load(path: Path, functions: Program, disk: Disk, progress: Progress | None = None) -> Coordinator:
    """Return a database at its last epoch, for reading, with the functions of a program."""
    return follow(Folder(path, disk), NO_LIMIT, functions, progress=progress)


def check_views(coordinator: Coordinator, progress: Progress | None = None) -> Iterator[CheckedView]:
    """Compare each view, as it is kept, with what its definition gives over the tables."""
    with coordinator.looking():
        coordinator.held.refresh(*coordinator.reader.views())
        fresh = _derive(coordinator, progress)
        kept, derived = coordinator.catalog.flow.views, fresh.flow.views
        known = {op.fingerprint: op for op in fresh.flow.order}
        wrong: dict[str, bool] = {}  # by fingerprint: operators are shared
        for done, name in enumerate(coordinator.reader.views()):
            if progress is not None:
                progress(f"comparing {name}", done, len(derived))
            inside, why = 0, _past(kept[name])
            if why:
                yield CheckedView(name, kept[name].size, unknown=why)
                continue
            for op in _under(kept[name]):
                if op.fingerprint not in wrong:
                    other = known.get(op.fingerprint)
                    wrong[op.fingerprint] = other is not None and bool(len(_difference(op, other).ann))
                inside += wrong[op.fingerprint]
            yield _checked(name, coordinator, fresh, inside)


def _derive(coordinator: Coordinator, progress: Progress | None) -> Catalog:
    """The tables with their rows, in another catalog, and the views computed from them.

    Its dictionary begins as a copy, so that the codes of the two may be compared.
    """
    catalog = InlineDeployment().open(NO_LIMIT)
    catalog.program = replace(coordinator.program, tables={}, views={}, indexes={})
    catalog.dictionary.extend(0, coordinator.dictionary.since(0))
    creates = [parse_stored(sql) for sql in coordinator.catalog.statements()]
    for create in creates:
        if isinstance(create, st.CreateTable):
            catalog.create_table(create)
            catalog.stay()
            name = create.table.name
            kept = coordinator.catalog.flow.tables[name]
            if isinstance(kept, StreamScan):
                catalog.flow.tables[name].restore(kept.image())
                continue
            catalog.flow.run({name: kept.contents()})
            catalog.flow.commit()
    views = [create for create in creates if isinstance(create, st.CreateView)]
    if views:
        catalog.backend.replaying = True
        catalog.create_views(views, progress)
        catalog.stay()
    return catalog


def _past(top: Operator) -> str:
    """Why a view cannot be computed anew: what it was made of is no longer there. Empty if it can be."""
    below = upwards([top])
    closes = any(isinstance(op, (Window, BSort, Latest)) for op in below)
    for op in below:
        if isinstance(op, Lookup):
            return "it joined rows of a stream with a relation as that was then"
        if isinstance(op, (StreamScan, Retain)) and op is not top and not op.kept.complete:
            return f"stream {op.kept.name} has dropped rows"
        if isinstance(op, StreamScan) and op.kept.promised and closes:
            return f"db.advance, db.flush or silence moved windows over stream {op.kept.name}"
    return ""


def _under(top: Operator) -> list[Operator]:
    """The operators below a view's own whose output is kept, tables apart."""
    found: dict[int, Operator] = {}
    stack = list(top.inputs)
    while stack:
        op = stack.pop()
        if id(op) not in found:
            found[id(op)] = op
            stack.extend(op.inputs)
    return [op for op in found.values() if op.arranged is not None and not isinstance(op, Scan)]


def _contents(op: Operator) -> tuple[Codes, Codes]:
    batch = op.contents()
    return batch.rows, batch.ann


def _difference(kept: Operator, derived: Operator) -> Batch:
    """The rows that only one of two operators gives: +1 a copy that is too many, −1 one that is missing. Of a stream
    rows are compared that both still have, by their tids and with the time they came."""
    if isinstance(kept, Retain) and isinstance(derived, Retain):
        return _between_streams(kept, derived)
    (rows, counts), (others, their) = _contents(kept), _contents(derived)
    both = Batch(np.concatenate([rows, others]), np.concatenate([counts, -their]))
    found = consolidate(both)
    return Batch.empty(len(kept.schema)) if _only_rounded(found, kept.schema) else found


def _between_streams(one: Retain, other: Retain) -> Batch:
    first = max(one.kept.first, other.kept.first)
    sides = [_numbered(kept, first) for kept in (one.kept, other.kept)]
    signs = np.repeat(np.array([1, -1], np.int64), [len(rows) for rows in sides])
    found = consolidate(Batch(np.concatenate(sides), signs))
    if _only_rounded(found, Schema((*one.schema.columns, Column("tid", BIGINT)))):
        return Batch.empty(len(one.schema))
    return Batch(np.ascontiguousarray(found.rows[:, :-1]), found.ann)


def _numbered(kept: ConnectionPoint, first: int) -> Codes:
    """The rows from a tid on, each with its tid behind it."""
    tids = np.arange(first, max(first, kept.next))
    return np.column_stack((kept.rows[len(kept) - len(tids) :], tids))


def _only_rounded(found: Batch, schema: Schema) -> bool:
    """Whether rows too many and rows missing go together in pairs that differ by how a DOUBLE is rounded."""
    double = np.array([column.type.kind is Kind.DOUBLE for column in schema.columns], bool)
    extra, missing = expand(found.rows, np.maximum(found.ann, 0)), expand(found.rows, np.maximum(-found.ann, 0))
    if not double.any() or len(extra) != len(missing):
        return not len(found.ann)
    first, second = (rows[np.lexsort([*rows[:, double].T, *rows[:, ~double].T])] for rows in (extra, missing))
    if (first[:, ~double] != second[:, ~double]).any() or ((first == NULL) != (second == NULL)).any():
        return False
    numbers, others = codes_to_floats(first[:, double]), codes_to_floats(second[:, double])
    return np.allclose(numbers, others, rtol=_CLOSE, atol=0, equal_nan=True)


def _checked(name: str, coordinator: Coordinator, fresh: Catalog, inside: int) -> CheckedView:
    kept, derived = coordinator.catalog.flow.views[name], fresh.flow.views[name]
    found, schema = _difference(kept, derived), coordinator.program.views[name].schema
    extra, missing = found.ann > 0, found.ann < 0
    return CheckedView(
        name,
        kept.size,
        int(found.ann[extra].sum()),
        int(-found.ann[missing].sum()),
        tuple(_examples(found.rows[extra], schema, coordinator.dictionary)),
        tuple(_examples(found.rows[missing], schema, fresh.dictionary)),
        inside,
    )


def _examples(rows: Codes, schema: Schema, dictionary: Dictionary) -> list[tuple[Any, ...]]:
    try:
        return to_tuples(rows[:_EXAMPLES], schema, dictionary)
    except (IndexError, ValueError, WhenceError):  # codes that stand for nothing
        return [tuple(row) for row in rows[:_EXAMPLES].tolist()]
