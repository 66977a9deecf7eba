"""The public API: a database of tables and of views that are maintained incrementally."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from whence.adapt.policy import AdaptMode
from whence.io import files, operations, rejects
from whence.io import rows as rows_
from whence.io.archive import Archive
from whence.io.grid import Grid
from whence.io.rejects import OnError
from whence.io.rows import Missing
from whence.model.budget import Timeout, within
from whence.model.codes import Codes, format_value
from whence.model.errors import CatalogError, DataError, SqlError, WhenceError
from whence.model.paths import local_path
from whence.model.progress import Progress
from whence.model.types import Schema, Type
from whence.plan.algebra.expressions import Volatile
from whence.plan.algebra.program import ScalarFunction, TableFunction, is_internal, owed_name
from whence.runtime import following, statements
from whence.runtime.catalog import table_kind
from whence.runtime.coordinator import Coordinator
from whence.runtime.definitions import same_table
from whence.runtime.durable import copying
from whence.runtime.durable.copying import Backup
from whence.runtime.durable.recovery import Recovery
from whence.runtime.following import FollowedEpoch, Place
from whence.runtime.lookups.declaring import declaration
from whence.runtime.lookups.fetching import Fetcher
from whence.runtime.opening import StoreOptions, prepare
from whence.runtime.questions import explain as explaining
from whence.runtime.questions import what_if as supposing
from whence.runtime.questions.what_if import WhatIf
from whence.runtime.reading import late_rows as lateness
from whence.runtime.reading import missed_pairs
from whence.runtime.reading.changes import Changes
from whence.runtime.reading.handles import Handle, Result
from whence.runtime.reading.late_rows import LateRows
from whence.runtime.reading.notifications import Notifications
from whence.runtime.reading.template_messages import Messages, follow_messages
from whence.runtime.spark.driver.options import Options
from whence.runtime.spark.frames import frames, sinks
from whence.runtime.spark.frames.sinks import Sink
from whence.runtime.spark.frames.streams import Running
from whence.runtime.writing import row_selection as writing
from whence.runtime.writing import watermarks
from whence.runtime.writing.tables import Early, early_choice
from whence.sql import statements as st
from whence.sql.parameters import Params, bind_parameters
from whence.sql.parse import parse_one, parse_query
from whence.sql.position import did_you_mean
from whence.state.disk import Disk
from whence.state.log import Durability

if TYPE_CHECKING:
    from whence.engine.streams.stream import Missed
    from whence.explain.show.answers import Contribution, Critical, Reliability, Resilience
    from whence.explain.show.explanation import Explanation
    from whence.explain.show.trace import Trace
    from whence.runtime.questions.annotated import Annotation
    from whence.runtime.questions.provenance_queries import Row
    from whence.runtime.spark.driver.driver import SparkDriver
    from whence.runtime.subscriptions.local import LocalSubscription
    from whence.runtime.subscriptions.templates import StoredSubscription
    from whence.subscribe.positions import Position


def open(
    path: str | Path | None = None,
    *,
    read_only: bool = False,
    durability: Durability = "commit",
    sync_interval: float = 0.1,
    retain: int | str | None = None,
    setup: Callable[[Database], object] | None = None,
    progress: Progress | None = None,
    recursion_limit: int | None = None,
    adapt: AdaptMode | None = None,
    clock: Callable[[], float] | None = None,
    silence: float | None = 1.0,
    disk: Disk | None = None,
    spark: Any = None,
    partitions: int | None = None,
    on_spark: Mapping[str, Any] | None = None,
) -> Database:
    """Open the database in the folder `path`, and make it if it is not there; without a path, make one in memory.

    read_only        only read; another process may be writing. Reads are at the last committed epoch
    durability       "commit": a transaction returns when it is on stable storage; "interval": it is synced every
                     `sync_interval` seconds; "none": when the system does it. A crash never leaves half an epoch
    retain           how much of the past `at` can read: a number of epochs, a time such as '7 days', or 'all'; stored
                     with the database, 0 at first
    setup            called with the database before its views are loaded, to register the Python functions they call
    progress         called during a long opening with the current work, how much of it is done, and of how much
    recursion_limit  how many levels deep a derivation may be before the recursion counts as endless; stored with the
                     database, 100,000 at first
    adapt            whether running plans follow the data, of views that do not say so themselves: "off", "on", or
                     "advise", which only says what it would do; stored with the database, "off" at first
    clock            a function that returns seconds since 1970, in place of the machine's clock; rows with a
                     time-to-live then expire with the next commit, read or `expire` only
    silence          the least number of seconds between two epochs that only tell streams with a tick_time() that time
                     has passed; a tenth of it for reads and for subscribers who wait; None: no such epochs
    disk             the object that writes all files; tests of faults replace it
    spark            a SparkSession: tables and views are then in partitions, and large epochs run as jobs
    partitions       the number of partitions; by default as the database has, or one per core. Without `spark` all of
                     them are in this process
    on_spark         more settings: inline_rows, inline_bytes, copied_rows, heavy_rows, worker_memory, host, port
                     (docs/spark.md)

    >>> with whence.open() as db:
    ...     _ = db.execute("CREATE TABLE link (src TEXT, dst TEXT)")
    ...     db.insert("link", [("A", "B")])
    1
    """
    partitioned = None
    if spark is not None or partitions is not None:
        partitioned = Options(spark, partitions, **(on_spark or {}))
    options = StoreOptions(durability, sync_interval, retain, recursion_limit, disk)
    coordinator, begin = prepare(path, read_only, partitioned, options, clock)
    coordinator.silence.set_pace(silence)
    database = Database(coordinator)
    if setup is not None:
        setup(database)
        if begin is not None and (database.tables or database.streams or database.views):
            raise WhenceError("setup is for functions: make tables and views when the database is open")
    if begin is not None:
        begin(progress)
    if adapt is not None:
        coordinator.adaptation.set_mode(adapt)
    return database


class Database:
    """Tables, and views that are exact after every batch of changes. `whence.open` makes one.

    Any thread may read. It sees the last committed epoch. Writers take turns.

    >>> db = whence.open()
    >>> _ = db.execute('''
    ...   CREATE TABLE link (src TEXT, dst TEXT);
    ...   CREATE VIEW reachable AS
    ...     SELECT src, dst FROM link
    ...     UNION
    ...     SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src
    ... ''')
    >>> db.insert("link", [("A", "B"), ("B", "C")])
    2
    >>> sorted(db["reachable"])
    [('A', 'B'), ('A', 'C'), ('B', 'C')]
    """

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    @property
    def _now(self) -> Coordinator:
        """The coordinator, at the last epoch that is safe to read."""
        self._coordinator.refresh()
        return self._coordinator

    # -- SQL ---------------------------------------------------------------------------------------------------------

    def execute(self, sql: str, params: Params | None = None, *, progress: Progress | None = None) -> Result:
        """Run a script; return its last result. `progress(view, done, total)` reports views being filled.

        params  values for `?` or `$1` in a list or tuple, counted through the script; for `:name` or `$name` in a dict.
                A value is what the literal of it would be, a list of values is for IN. CREATE takes no parameters

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT, name TEXT)")
        >>> db.execute("INSERT INTO a VALUES (?, ?), (?, ?)", [1, "it's", 2, None]).count
        2
        """
        result = Result(message="nothing to do")
        for result in self.script(sql, params, progress=progress):  # noqa: B007 - the last one counts
            pass
        return result

    def script(self, sql: str, params: Params | None = None, *, progress: Progress | None = None) -> Iterator[Result]:
        """Run a script statement by statement, as the caller iterates over the results; `params` as in `execute`.

        >>> db = whence.open()
        >>> [result.message for result in db.script("CREATE TABLE a (x INT); DROP TABLE a")]
        ['table a created', 'dropped a']
        """
        return statements.execute(self._now, sql, params, progress)

    def query(self, sql: str, params: Params | None = None, *, timeout: Timeout = None) -> Result:
        """Answer a SELECT over tables and views as of the last committed epoch; `params` as in `execute`.

        timeout  seconds, or a text such as '30 s'; a query that takes longer is stopped with a QuestionTimeout

        >>> db = whence.open()
        >>> db.query("SELECT 1 + ? AS two", [1]).rows, db.query("SELECT :x || 's' AS y", {"x": "it'"}).rows
        ([(2,)], [("it's",)])
        """
        [statement] = bind_parameters([parse_query(sql)], params)
        coordinator = self._now
        with within(None, timeout):
            return Result(coordinator.reader.query(statement.query))

    # -- writing -----------------------------------------------------------------------------------------------------

    def insert(
        self,
        table: str,
        data: Any,
        *,
        on_error: OnError = "fail",
        op: str | None = None,
        early: Early | None = None,
        missing: Missing = "error",
    ) -> int:
        """Insert rows (tuples, dicts, Arrow, pandas, polars, Spark, a `Path` of a file); return the row count.

        Dicts, DataFrames and files are matched by column name; named levels of a pandas index are columns. A column
        that the table does not have is an error. So is a missing one, unless `missing="null"` makes it NULL.

        In a table with a primary key a row replaces the one that has its key. In a table with a time-to-live, inserting
        an existing row restarts its life. Rows are appended to a stream in the given order. A row that is owed (see
        `delete`) cancels its deletion, and no view sees it.

        on_error  rows that do not fit: "fail" is an error, and nothing is inserted; "skip" leaves them out and logs
                  them; "reject" writes them to the table `rejects` (source, batch, file, line, reason, record) in the
                  same epoch
        op        a column of the data, in tuples the last one, that says whether each row is inserted or deleted (as in
                  `attach`); rows are applied in order, in one epoch
        early     with `op`, a deletion whose row is not there: "hold" it until the row arrives (default, unless the
                  table has a ttl), "ignore" it, or "error"

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
        >>> db.insert("a", [(1, "+"), (2, "+"), (1, "-")], op="op"), db["a"].rows
        (3, [(2,)])
        >>> db.insert("a", [(1,), ("two",)], on_error="reject"), db.query("SELECT line, reason FROM rejects").rows
        (1, [(2, "column x: 'two' (str) is not a value of type INTEGER")])
        """
        coordinator, name = self._coordinator, _name(table)
        rejects.check_choice(on_error)
        if op is not None:
            return self._take(name, data, op, early, on_error, missing)
        if early is not None:
            raise WhenceError("early is for rows that may go: give op=, the column that says which do, or use delete")
        if on_error != "fail":
            return self._insert_what_fits(name, data, on_error, missing)
        if self._by_jobs(data, name):
            return frames.write(coordinator, name, data, missing=missing)
        driver = coordinator.driver
        if driver is not None and driver.left_to_jobs(name, 1):
            encode = partial(self._codes, data, coordinator.table_of(name).schema, name, missing)
            return driver.take(name, encode, 1) or 0
        with coordinator.transaction() as writes:
            pending = writes.table(name)
            room = int(pending.table.stream is not None and pending.table.tick is None)
            return pending.insert(self._codes(data, pending.table.written, name, missing, room))

    def _take(self, name: str, data: Any, op: str, early: Early | None, on_error: OnError, missing: Missing) -> int:
        """Apply the rows in order, as their operations say, in one epoch; return the row count."""
        coordinator = self._coordinator
        table = coordinator.table_of(name)
        chosen = early_choice(early, default="hold" if table.lifetime is None else "ignore")
        if self._by_jobs(data, name):
            return frames.write(coordinator, name, data, op=op, early=chosen, on_error=on_error, missing=missing)
        if on_error != "fail":
            raise WhenceError("on_error beside op is for Spark's DataFrames: leave out the rows that do not fit")
        schema = operations.with_operation(table.written, op, data)
        with coordinator.transaction() as writes:
            codes = self._codes(data, schema, name, missing)
            signs = operations.signs(codes[:, -1], schema, coordinator.dictionary, name, bool(table.key))
            writes.table(name).take(np.ascontiguousarray(codes[:, :-1]), signs, chosen)
        return len(codes)

    def delete(
        self,
        table: str,
        data: Any = None,
        strict: bool = False,
        *,
        key: Any = None,
        where: Mapping[str, Any] | str | None = None,
        params: Params | None = None,
        early: Early | None = None,
    ) -> int:
        """Delete rows; return how many were there.

        data    rows, of any kind that `insert` takes; each deletes one copy. A dict (or a DataFrame) with only some
                of the columns is a condition: it deletes all rows that have these values
        key     in place of data, a primary key, or a list of them; a key of several columns is a tuple
        where   in place of data, a condition: columns and their values (None is IS NULL, a list is IN), or SQL
        params  values for the parameters of a condition in SQL, as in `execute`
        early   a row, a key or a condition that finds nothing: "ignore" skips it (default); "error" raises a
                MissingRowError, and nothing is deleted; "hold" makes the table owe the row, so that the deletion
                cancels the next insertion of an equal row (see `owed`); it is for whole rows only
        strict  the same as early="error"

        Keys and conditions use an index, not a scan. For a Spark DataFrame, which jobs delete, this returns the number
        of rows given.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (id INT PRIMARY KEY, x TEXT)")
        >>> _ = db.insert("a", [(1, "old"), (2, "old"), (3, "new"), (4, "new")])
        >>> db.delete("a", key=1), db.delete("a", key=[2, 7]), db.delete("a", where={"id": 3}), db["a"].rows
        (1, 1, 1, [(4, 'new')])
        >>> db.delete("a", where="id > ? AND x = ?", params=[3, "old"])
        0
        >>> db.delete("a", (7, "x"), early="hold"), db.owed("a").rows
        (0, [(7, 'x')])
        >>> db.insert("a", (7, "x")), db["a"].rows, db.owed("a").rows
        (1, [(4, 'new')], [])
        """
        if (data is not None) + (key is not None) + (where is not None) != 1:
            raise DataError("delete takes one of rows, key=… or where=…")
        coordinator, name, chosen = self._coordinator, _name(table), early_choice(early, strict)
        if data is None:
            with coordinator.transaction() as writes:
                return writing.delete_where(writes.table(name), where, key, coordinator, chosen, params)
        writing.refuse_params(params)
        by_jobs = chosen != "error"
        if by_jobs and self._by_jobs(data, name) and frames.has_all_columns(data, coordinator.table_of(name)):
            return frames.write(coordinator, name, data, sign=-1, early=chosen)
        driver = coordinator.driver
        if by_jobs and driver is not None and driver.left_to_jobs(name, -1):
            data = list(data) if isinstance(data, Iterator) else data  # it may be read twice
            whole = partial(self._whole_deletions, data, name)
            taken = driver.take(name, whole, -1, chosen)
            if taken is not None:
                return taken
        with coordinator.transaction() as writes:
            pending = writes.table(name)
            given = writing.read_deletions(self._parts(data, name), pending.table, coordinator)
            return writing.delete(pending, given, coordinator, chosen)

    def owed(self, table: str) -> Result:
        """Return the rows whose deletions arrived first and are held (`early="hold"`), each as often as it is owed.

        In SQL: `SELECT … FROM owed(table)`. Owed rows are part of the database like other rows; in a table with a
        time-to-live they expire after that time.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
        >>> db.delete("a", (1,), early="hold"), db.owed("a").rows
        (0, [(1,)])
        """
        return Result(self._now.reader.owed(_name(table)))

    def forgive(self, table: str, data: Any = None) -> int:
        """Forget owed rows of a table, all of them or these, however often they are owed; return the row count.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
        >>> _ = db.delete("a", [(1,), (1,), (2,)], early="hold"); db.forgive("a", (1,)), db.owed("a").rows
        (2, [(2,)])
        """
        coordinator, name = self._coordinator, _name(table)
        with coordinator.transaction() as writes:
            if coordinator.table_of(name).stream is not None:
                raise DataError(f"{name} is a stream: it owes no rows")
            debts = writes.table(owed_name(name))
            given = None if data is None else self._codes(data, debts.table.schema, name)
            return debts.remove(*debts.contents() if given is None else debts.found(given))

    def update(
        self,
        table: str,
        values: Mapping[str, Any],
        where: Mapping[str, Any] | str | None = None,
        *,
        key: Any = None,
        params: Params | None = None,
    ) -> int:
        """Set columns in the rows that match; return how many did.

        where   columns and their values (None is IS NULL, a list is IN), or SQL; without it and `key`, every row
        key     in place of where, a primary key, or a list of them
        params  values for the parameters of a condition in SQL, as in `execute`

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (id INT PRIMARY KEY, x TEXT)")
        >>> _ = db.insert("a", (1, "old"))
        >>> db.update("a", {"x": "new"}, {"id": 1}), db.update("a", {"x": "newer"}, key=1), db["a"].rows
        (1, 1, [(1, 'newer')])
        """
        coordinator, name = self._coordinator, _name(table)
        with coordinator.transaction() as writes:
            return writing.update(writes.table(name), values, where, coordinator, key, params)

    def _insert_what_fits(self, name: str, data: Any, on_error: OnError, missing: Missing) -> int:
        coordinator = self._coordinator
        if on_error == "reject":
            statements.ensure_rejects(coordinator)
        if self._by_jobs(data, name):
            return frames.write(coordinator, name, data, on_error=on_error, missing=missing)
        table, words = coordinator.table_of(name), coordinator.dictionary
        schema = table.written
        with coordinator.transaction() as writes:
            accept = writes.table(name).insert if table.promises else None  # each is tried with those before it
            if isinstance(data, Path):
                codes, refused = rejects.encode_file(data, schema, words, name, missing, accept)
            else:
                rows = frames.to_arrow(data) if frames.is_frame(data) else data
                codes, refused = rejects.encode_each(rows, schema, words, name, missing, accept)
            if on_error == "reject" and refused:
                rejected = rejects.encode_rejects(refused, name, None, coordinator.dictionary)
                writes.table(rejects.TABLE).insert(rejected)
            inserted = writes.table(name).insert(codes) if accept is None else len(codes)
        rejects.report(f"table {name}", len(refused), refused, on_error)
        return inserted

    def _by_jobs(self, data: Any, table: str) -> bool:
        """Say whether the rows stay in Spark; in a transaction, to get a tick time, and where their order matters they
        come to the driver."""
        coordinator = self._coordinator
        on_spark = coordinator.driver is not None and coordinator.driver.spark is not None
        stay = on_spark and frames.is_frame(data) and not coordinator.is_writing
        if not stay:
            return False
        found = coordinator.table_of(table)
        return found.tick is None and not found.promises.follows_order

    def _codes(self, data: Any, schema: Schema, name: str, missing: Missing = "error", room: int = 0) -> Codes:
        if isinstance(data, Path):
            parts = list(files.read(data, schema, missing=missing))
            try:
                data = pa.concat_tables(parts, promote_options="default") if parts else []
            except pa.ArrowException as error:
                raise DataError(f"{data}: {error}") from None
        elif frames.is_frame(data):
            data = frames.to_arrow(data)
        return rows_.encode(data, schema, self._coordinator.dictionary, name, room, missing)

    def _whole_deletions(self, data: Any, name: str) -> Codes | None:
        """Read rows to delete; None if there are conditions among them."""
        coordinator = self._coordinator
        found = writing.read_deletions(self._parts(data, name), coordinator.table_of(name), coordinator)
        return writing.whole_rows(list(found))

    def _parts(self, data: Any, name: str) -> Iterator[Any]:
        """Read rows to delete that are in Spark or in a file; rows of a file with other columns are another part."""
        if isinstance(data, Path):
            yield from files.read(data, self._coordinator.table_of(name).schema, by_columns=True)
        else:
            yield frames.to_arrow(data) if frames.is_frame(data) else data

    def follow(
        self,
        sources: Mapping[str, Place | Sequence[Place]],
        *,
        wait: bool = True,
        resume: bool = True,
        op: str | None = None,
        on_error: OnError = "fail",
        missing: Missing = "error",
        batch: int | None = None,
        files_per_epoch: int = 1,
        delay: float = 0.2,
        poll: float = 0.2,
        stop: Event | None = None,
        note: Callable[[str], None] | None = None,
    ) -> Iterator[FollowedEpoch]:
        """Take in what files, folders and streams have, and what is added to them; yield each epoch once it is
        committed. Without `wait`, end when all that is there now is in.

        A source is a file that is appended to (.jsonl, .csv), a folder or `Path("incoming/*.csv")`, of which each file
        is taken in once it is complete, "-" for standard input, or a binary stream; `csv:` before a text names the
        format. A line of JSON may be a deletion, as `whence run` reads it. In a durable database the position of each
        file is committed with its rows: the next `follow` goes on there. docs/operations.md has the rules.

        resume           False: read files from their start, and store no position of them
        op               as in `insert`, and so are on_error and missing
        batch            records per epoch; else 10,000 of a file that grows, and of a folder each file is an epoch
        files_per_epoch  files of a folder per epoch
        delay            seconds that records wait for an epoch to become full
        poll             seconds between two looks
        stop             an event that ends it after the epoch that is being committed
        note             called with each remark, such as a row that was not there to delete; else these are logged

        >>> import tempfile; from pathlib import Path
        >>> folder = tempfile.TemporaryDirectory(); path = Path(folder.name) / "a.jsonl"
        >>> _ = path.write_text('{"x": 1}\\n{"x": 2}\\n{"-": {"x": 1}}\\n')
        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
        >>> [(e.epoch, e.table, e.rows) for e in db.follow({"a": path}, wait=False)], db["a"].rows
        ([(1, 'a', 3)], [(2,)])
        """
        options = following.FollowOptions(
            wait, resume, op, on_error, missing, batch, files_per_epoch, delay, poll, stop or Event(),
            note or following.log.warning,
        )  # fmt: skip
        return following.follow(self, sources, options)

    def expire(self) -> int:
        """Delete the rows whose time-to-live is up, in an epoch; return how many. Before that, tell streams with a
        tick_time() how far time has come, if something depends on it.

        Commits and reads do this, too, and so does a background thread.

        >>> now = 0
        >>> db = whence.open(clock=lambda: now); _ = db.execute("CREATE TABLE a (x INT) WITH (ttl = '60 s')")
        >>> _ = db.insert("a", (1,)); now = 60; db.expire()
        1
        """
        return self._coordinator.expiry.expire()

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Make one epoch of all writes inside: all of them happen, or on any error none.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
        >>> with db.transaction():
        ...     _ = db.insert("a", (1,)); _ = db.insert("a", (2,))
        >>> db.epoch
        1
        """
        with self._coordinator.transaction():
            yield self

    def what_if(
        self,
        sql: str = "",
        params: Params | None = None,
        *,
        insert: Mapping[str, Any] | None = None,
        delete: Mapping[str, Any] | None = None,
        update: Mapping[str, Any] | None = None,
        views: Iterable[str] | None = None,
        strict: bool = False,
        missing: Missing = "error",
        progress: Progress | None = None,
        timeout: Timeout = None,
    ) -> WhatIf:
        """Return what one epoch of these writes would change, exactly, in the tables and in every view (or those of
        `views`). Change nothing.

        sql     a script of INSERT, DELETE and UPDATE; then come the others, in this order:
        delete  per table, the rows to delete, whole or by some of their columns as in `delete`, or a condition in SQL;
                missing rows are skipped, or under `strict` an error
        update  per table, a pair of new values and where (as `update` takes them), or a list of such pairs
        insert  per table, the rows to insert, of any kind that `insert` takes, with `missing` as there
        params  values for the parameters of `sql`, as in `execute`; those by name are for conditions in SQL, too

        Writers and readers wait for it as for an epoch. It works on a read-only database and on `at(epoch)`, too. It
        raises what committing the writes would have raised. `progress` and `timeout` are as in `why`.

        >>> db = whence.open()
        >>> _ = db.execute("CREATE TABLE a (x INT); CREATE VIEW b AS SELECT SUM(x) AS s FROM a")
        >>> _ = db.insert("a", [(1,), (2,)])
        >>> db.what_if(delete={"a": [(2,)]})["b"].inserted, db["b"].rows
        ([(1,)], [(3,)])
        """
        writes = supposing.Writes(sql, params, insert, delete, update, strict, missing)
        with within(progress, timeout):
            return supposing.suppose(self._now, writes, self._codes, self._parts, views)

    # -- what lasts --------------------------------------------------------------------------------------------------

    @property
    def path(self) -> Path | None:
        """The folder of the database; None if it is in memory.

        >>> with whence.open("here.db") as db: db.path.name
        'here.db'
        """
        folder = self._coordinator.storage.folder
        return folder.path if folder is not None else None

    @property
    def recovery(self) -> Recovery | None:
        """The report of the recovery at opening; None if the database is in memory.

        >>> with whence.open("recovered.db") as db: db.recovery.replayed
        0
        """
        return self._coordinator.storage.recovery

    def sync(self) -> None:
        """Return when everything committed so far is on stable storage, whatever the durability.

        >>> with whence.open("synced.db", durability="interval") as db:
        ...     _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", (1,)); db.sync()
        """
        self._coordinator.sync()

    def snapshot(self) -> bool:
        """Write an image of all state now, so that opening need not replay the log; return False if nothing changed.

        This also happens when the log has grown, and on closing. Readers and writers go on meanwhile.

        >>> with whence.open("image.db") as db:
        ...     _ = db.execute("CREATE TABLE a (x INT)"); db.snapshot(), db.snapshot()
        (True, False)
        """
        return self._coordinator.snapshot()

    @property
    def retained(self) -> range:
        """The epochs that `at` can read.

        >>> with whence.open("past.db", retain=10) as db:
        ...     _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", (1,)); db.retained
        range(0, 2)
        """
        return self._coordinator.retained

    def at(self, epoch: int) -> Database:
        """Return the database as it was after a retained epoch (`retain` of `whence.open`), for reading only.

        >>> with whence.open("before.db", retain=10) as db:
        ...     _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", (1,)); _ = db.insert("a", (2,))
        ...     db.at(1)["a"].rows, len(db["a"])
        ([(1,)], 2)
        """
        return Database(self._coordinator.at(epoch))

    def backup(self, path: str | Path, progress: Progress | None = None) -> Backup:
        """Copy the database to a new folder while it is in use; the folder appears when the copy has been verified.

        >>> with whence.open("used.db") as db:
        ...     _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", (1,)); db.backup("used.copy").epoch
        1
        """
        folder = self._coordinator.storage.folder
        if folder is None:
            raise WhenceError("this database is in memory: export writes its tables and views to files")
        self.sync()
        return copying.backup(folder.path, local_path(path), self._coordinator.program, folder.disk, progress)

    def export(
        self,
        path: str | Path,
        *,
        force: bool = False,
        compression: str = "zstd",
        progress: Progress | None = None,
    ) -> Archive:
        """Write the tables as Parquet, and tables and views as SQL, to a folder; `import_database` reads it.

        The export is of one epoch; readers and writers go on meanwhile. A folder that is not empty is refused, unless
        `force` replaces the export in it.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", [(1,), (2,)])
        >>> db.export("exports").rows
        2
        """
        return copying.export(
            self._coordinator, local_path(path), force=force, compression=compression, progress=progress
        )

    # -- reading -----------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The number of the last committed epoch.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
        >>> db.epoch, db.insert("a", [(1,), (2,)]), db.epoch
        (0, 2, 1)
        """
        return self._now.epoch

    @property
    def position(self) -> Position:
        """The position of the last epoch on stable storage: with `epoch` it names the history, which a backup does not
        share.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); before = db.position
        >>> _ = db.insert("a", [(1,), (2,)])
        >>> db.position.epoch, db.position.reaches(before), before.reaches(db.position)
        (1, True, False)
        """
        return self._now.position

    @property
    def tables(self) -> list[str]:
        """The names of the tables.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT); CREATE VIEW b AS SELECT DISTINCT x FROM a")
        >>> db.tables, db.views
        (['a'], ['b'])
        """
        tables = self._now.program.tables.items()
        return [name for name, table in tables if table.stream is None and not is_internal(name)]

    @property
    def streams(self) -> list[str]:
        """The base streams; views that are streams are among the `views`.

        >>> db = whence.open(); _ = db.execute("CREATE STREAM a (x INT)"); db.streams, db.tables
        (['a'], [])
        """
        tables = self._now.program.tables.items()
        return [name for name, table in tables if table.stream is not None and not is_internal(name)]

    @property
    def views(self) -> list[str]:
        """The names of the views, those that are streams among them.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT); CREATE VIEW b AS SELECT DISTINCT x FROM a")
        >>> db.views
        ['b']
        """
        return self._now.reader.views()

    @property
    def templates(self) -> list[str]:
        """The names of the templates; each is the name of the table of its parameters, too.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
        >>> _ = db.execute("CREATE TEMPLATE above AS SELECT x FROM a WHERE x > :low"); db.templates, db.tables
        (['above'], ['a', 'above'])
        """
        return self._now.program.templates

    @property
    def statements(self) -> list[str]:
        """The SQL that declares the tables and then the views.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT);"); db.statements
        ['CREATE TABLE a (x INT)']
        """
        return self._now.catalog.statements()

    def __getitem__(self, name: str) -> Handle:
        """Return a handle of a table, stream or view; a stream has its retained rows, in order.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
        >>> _ = db.insert("a", [(1,), (2,)]); len(db["a"])
        2
        """
        return Handle(self._now, _name(name))

    def __contains__(self, name: str) -> bool:
        """Return whether there is a table, stream or view of this name.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
        >>> "a" in db, "b" in db
        (True, False)
        """
        return _name(name) in self._now.program.tables or _name(name) in self.views

    def changes(self, name: str, snapshot: bool = False) -> Changes:
        """Follow the changes of a view (or table) from now on; with `snapshot` its present rows come first.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
        >>> _ = db.insert("a", (1,)); changes = db.changes("a", snapshot=True); _ = db.delete("a", (1,)); list(changes)
        [Change(epoch=1, row=(1,), sign=1), Change(epoch=2, row=(1,), sign=-1)]
        """
        return self._now.reader.changes(_name(name), snapshot)

    def subscribe(
        self,
        queries: str | Mapping[str, str] | Sequence[str],
        params: Params | None = None,
        *,
        have: Position | str | None = None,
        rows: Sequence[Any] | None = None,
        key: str | Sequence[str] | None = None,
        every: Timeout = None,
        why: bool = False,
        every_change: bool = False,
        ordered: bool = False,
        reflects: Mapping[str, str] | None = None,
        when: str | None = None,
        **parameters: Any,
    ) -> LocalSubscription:
        """Follow queries, with the updates that clients of a server get: the state first, then net changes.

        queries       a SELECT, or the name of a table or view; or a dict of names and such, which move together: one
                      update for all, as of one epoch
        params        values for the parameters of a query, as in `execute`
        have          go on from a position (`Update.position`): the first update is the difference to it, or the state
                      if that is not known any more
        rows          the rows at that position, so that `Update.rows` is known; of several queries, a list for each
        key           columns that identify a row, for `Update.changed`
        every         a time, such as '5 s', that lies at least between two updates
        why           give the witnesses of rows, as of the epoch that is told (`Update.why`): few rows, few witnesses
        every_change  one update per epoch that changed anything; else several are told as their net change
        ordered       rows of sources in the order of (time, history, tick), up to the time that all sources have
                      reached; with `every_change`, each change of a publisher once and in order
        reflects      what was seen at another broker (`Update.reflects`): nothing is told before this database reflects
                      as much of its sources
        when          a query of one BOOLEAN, kept at every epoch: updates come only when it turns true, and a view
                      `WITH (respond_within = …)` stays held until then

        Iterating ends when it has caught up. Only epochs that are on stable storage are told of. A query that is not
        a whole table or view is maintained like a view, as long as it is subscribed to.

        Of a template, `parameters` (or a dict `params`) are the values of a new subscription: a row of the template's
        table, with the next `id` unless that is given. Those that are not given are NULL. What is returned has its
        `id` and `cancel()`, and tells its answer. One that is stored is followed as "deals#7"; without parameters, the
        rows of the table are.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE sale (item TEXT, price INT)")
        >>> subscription = db.subscribe("SELECT item, SUM(price) AS price FROM sale GROUP BY item", key="item")
        >>> _ = list(subscription); _ = db.insert("sale", [("tea", 3)]); _ = db.insert("sale", [("tea", 4)])
        >>> [update] = subscription; update.position.epoch, update.came, update.went, update.rows
        (2, [('tea', 7)], [], [('tea', 7)])
        """
        from whence.runtime.subscriptions.local import LocalSubscription
        from whence.runtime.subscriptions.templates import TemplateSubscription, check_parameters

        coordinator = self._now
        is_template = isinstance(queries, str) and queries.lower() in coordinator.program.templates
        if is_template and (parameters or params):
            if params is not None and not isinstance(params, Mapping):
                raise DataError("the parameters of a template have names: give params as a dict")
            given = {**(params or {}), **parameters}
            return TemplateSubscription(
                coordinator, str(queries).lower(), given, key=key, every=every, why=why, every_change=every_change
            )
        if parameters:
            check_parameters(coordinator, queries, parameters)
        return LocalSubscription(
            coordinator, queries, params, have=have, rows=rows, key=key, every=every, why=why,
            every_change=every_change, ordered=ordered, reflects=reflects, when=when,
        )  # fmt: skip

    def subscription(self, template: str, id: int) -> StoredSubscription:
        """Return a handle on a subscription to a template, by its id.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", [(3,), (7,)])
        >>> _ = db.execute("CREATE TEMPLATE above AS SELECT x FROM a WHERE x > :low; INSERT INTO above VALUES (1, 5)")
        >>> db.subscription("above", 1).rows
        [(7,)]
        """
        from whence.runtime.subscriptions.templates import StoredSubscription

        return StoredSubscription(self._now, _name(template), id)

    def notifications(self, template: str) -> Notifications:
        """Follow what changes for all subscriptions of a template, from now on.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
        >>> _ = db.execute("CREATE TEMPLATE above AS SELECT x FROM a WHERE x > :low")
        >>> news = db.notifications("above"); _ = db.insert("a", (7,)); _ = db.insert("above", [(1, 5), (2, 9)])
        >>> [(n.epoch, n.id, n.sign, n.row) for n in news]
        [(2, 1, 1, (7,))]
        """
        return self._now.reader.notifications(_name(template))

    def messages(self, template: str) -> Messages:
        """Follow what changes for whoever may subscribe to a template, from now on, as messages that a network can
        route by their content: rectangles of ranges for a MIN, MAX or DISTINCT over one range, else rows.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE stock (risk INT, per INT)")
        >>> _ = db.execute("CREATE TEMPLATE cheapest AS SELECT MIN(per) FROM stock WHERE risk BETWEEN :low AND :high")
        >>> _ = db.insert("stock", [(20, 3), (50, 5)]); messages = db.messages("cheapest")
        >>> _ = db.insert("stock", (40, 4)); [(m.value, m.inner, m.outer) for m in messages]; messages.close()
        [(4, (40, 40), (20, None))]
        """
        return follow_messages(self._now, _name(template))

    def advance(self, stream: str | Sequence[str], value: Any, *, on: str | None = None) -> None:
        """Promise that no row of a stream with a smaller value of a column will follow, and close windows up to it.

        `on` names the column; leave it out if all windows over the stream are on one column. Windows over several
        streams need them all in one call. A promise is an epoch of its own and is final: a row that breaks it is late
        for what has closed.

        >>> db = whence.open(); _ = db.execute("CREATE STREAM s (t INT)")
        >>> _ = db.execute("CREATE VIEW w AS SELECT COUNT(*) AS n FROM slide(s, on => t, width => 10, every => 10)")
        >>> _ = db.insert("s", [(1,), (7,)]); db.advance("s", 10); db["w"].rows
        [(2,)]
        """
        watermarks.advance(self._coordinator, stream, value, on)

    def flush(self, stream: str | Sequence[str] | None = None) -> None:
        """Close every window on a column that has rows of a stream (or of all), and let sorts release their buffers.

        The stream may go on: later rows are late only for windows that have closed. Windows of rows stay open until
        they have their rows.

        >>> db = whence.open(); _ = db.execute("CREATE STREAM s (t INT)")
        >>> _ = db.execute("CREATE VIEW w AS SELECT COUNT(*) AS n FROM slide(s, on => t, width => 10, every => 10)")
        >>> _ = db.insert("s", [(1,), (7,)]); db.flush("s"); db["w"].rows
        [(2,)]
        """
        watermarks.flush(self._coordinator, stream)

    def late(self, view: str) -> LateRows:
        """Return the rows that arrived too late for a view: their `count`, and the last of them (docs/streams.md).

        >>> db = whence.open(); _ = db.execute("CREATE STREAM s (x INT)")
        >>> _ = db.execute("CREATE VIEW sorted AS SELECT x FROM bsort(s, on => x, slack => 0)")
        >>> _ = db.insert("s", [(5,), (7,), (1,), (8,)]); db.late("sorted").rows
        [(1,)]
        """
        return lateness.late(self._now, _name(view))

    def missed(self, view: str) -> Missed:
        """Return how many rows a view has missed whose join keeps a part of its rows (docs/limits.md).

        >>> db = whence.open(); _ = db.execute("CREATE STREAM a (k INT); CREATE STREAM b (k INT)")
        >>> _ = db.execute("CREATE VIEW j WITH (memory = '2 rows', keep = 'lru') AS SELECT k FROM a JOIN b USING (k)")
        >>> _ = db.insert("a", [(1,), (2,), (3,)]); _ = db.insert("b", [(3,), (1,)])
        >>> db["j"].rows, db.missed("j")
        ([(3,)], Missed(rows=1, error=0.0, is_exact=True))
        """
        return missed_pairs.missed(self._now, _name(view))

    # -- asking why: what answers is loaded with the first question ---------------------------------------------------

    def why(
        self,
        view: str,
        /,
        row: Row = None,
        *,
        limit: int = 2_000_000,
        progress: Progress | None = None,
        timeout: Timeout = None,
        **columns: Any,
    ) -> Explanation:
        """Explain a row of a view: its base rows, minimal witnesses and derivations; or why it is not there.

        Identify the row by any columns that match it alone, or by `row`: a tuple, or a mapping of columns to values,
        which also allows columns named `row` or `limit`. More than `limit` derivations are an error.

        Every question takes `progress`, which is called with what is being done, how much of it is done, and of how
        much (0 if that is not known): what it raises cancels the question. And `timeout`, in seconds or as in '30 s':
        beyond it the question is a `QuestionTimeout`. Nothing is changed by either.

        >>> db = whence.open()
        >>> _ = db.execute('''
        ...   CREATE TABLE link (src TEXT, dst TEXT);
        ...   CREATE VIEW reachable AS
        ...     SELECT src, dst FROM link
        ...     UNION SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src
        ... ''')
        >>> _ = db.insert("link", [("A", "B"), ("B", "C"), ("A", "C")])
        >>> why = db.why("reachable", src="A", dst="C")
        >>> why.holds, why.witness_count, len(why.witnesses[0])
        (True, 2, 1)
        >>> db.why("reachable", src="C", dst="A").holds
        False

        A row of a stream may be identified by its tid, too. Its explanation has the `tids` of its inputs, per stream.

        >>> db = whence.open()
        >>> _ = db.execute("CREATE STREAM a (x INT); CREATE VIEW b WITH (provenance = 'lineage') AS "
        ...                "SELECT SUM(x) AS s FROM slide(a, rows => 2, every => 1)")
        >>> _ = db.insert("a", [(1,), (2,), (3,)])
        >>> db.why("b", s=5).tids, db.why("b", tid=1).rows
        ({'a': [2, 3]}, [('a', {'tid': 1, 'x': 1}), ('a', {'tid': 2, 'x': 2})])
        """
        from whence.runtime.questions import provenance_queries as asking

        with within(progress, timeout):
            return asking.why(self._now, _name(view), row, columns, limit)

    def trace(
        self,
        stream: str,
        tid: int | None = None,
        /,
        row: Row = None,
        *,
        progress: Progress | None = None,
        timeout: Timeout = None,
        **columns: Any,
    ) -> Trace:
        """Return the results that a row of a stream reached, in every view traced from it (`provenance` of
        `CREATE VIEW`). Identify the row by its tid, or as in `why`.

        >>> db = whence.open()
        >>> _ = db.execute("CREATE STREAM a (x INT); CREATE VIEW b WITH (provenance = 'lineage') AS "
        ...                "SELECT SUM(x) AS s FROM slide(a, rows => 2, every => 1)")
        >>> _ = db.insert("a", [(1,), (2,), (3,)])
        >>> db.trace("a", 2).tids, db.trace("a", x=3)["b"].rows
        ({'b': [1, 2]}, [{'s': 5}])
        """
        from whence.runtime.questions import provenance_queries as asking

        with within(progress, timeout):
            return asking.trace(self._now, _name(stream), tid, row, columns)

    def provenance(
        self, view: str, source: str | None = None, *, progress: Progress | None = None, timeout: Timeout = None
    ) -> Result:
        """Return each result of a traced stream view beside each of its inputs from a source (optional if there is
        only one), as `SELECT * FROM provenance(view, source)` does.

        >>> db = whence.open()
        >>> _ = db.execute("CREATE STREAM a (x INT); CREATE VIEW b WITH (provenance = 'lineage') AS "
        ...                "SELECT SUM(x) AS s FROM slide(a, rows => 2, every => 1)")
        >>> _ = db.insert("a", [(1,), (2,), (3,)])
        >>> db.provenance("b").to_dicts()[0]
        {'tid': 1, 's': 3, 'a_tid': 1, 'a_x': 1}
        """
        from whence.runtime.questions import provenance_queries as asking

        with within(progress, timeout):
            return Result(asking.provenance(self._now, _name(view), None if source is None else _name(source)))

    def annotation(self, view: str, /, row: Row = None, *, limit: int = 100, **columns: Any) -> Annotation:
        """Return the annotation of a row of a view with `maintain`: at most `limit` witnesses, smallest first.

        >>> db = whence.open()
        >>> _ = db.execute("CREATE TABLE link (a INT, b INT)")
        >>> _ = db.execute("CREATE VIEW reach WITH (maintain = 'absorption', propagate = 'eager') AS SELECT a, b "
        ...                "FROM link UNION SELECT link.a, reach.b FROM link JOIN reach ON link.b = reach.a")
        >>> _ = db.insert("link", [(1, 2), (2, 3), (1, 3)])
        >>> db.annotation("reach", a=1, b=3).formula
        'link(1, 3) ∨ link(1, 2) ∧ link(2, 3)'
        """
        from whence.runtime.questions import annotated

        return annotated.annotation(self._now, _name(view), row, columns, limit)

    def critical(
        self,
        view: str,
        /,
        row: Row = None,
        *,
        where: Mapping[str, Any] | None = None,
        limit: int = 2_000_000,
        progress: Progress | None = None,
        timeout: Timeout = None,
        **columns: Any,
    ) -> Critical:
        """Return the base rows whose loss alone removes a row (identified as in `why`). If the columns match several
        rows, or without any, for all rows of the view, rank the base rows by how many of these rows their loss
        removes: the single points of failure. `where` is a mapping of columns to values, for columns whose names are
        parameters here; `row` is always one row.

        >>> db = whence.open()
        >>> _ = db.execute("CREATE TABLE a (x INT, y INT); CREATE VIEW b AS SELECT x, y FROM a WHERE y > 0")
        >>> _ = db.insert("a", [(1, 1), (2, 1), (2, 2)])
        >>> list(db.critical("b", x=1)), len(db.critical("b"))
        ([('a', {'x': 1, 'y': 1})], 3)
        >>> found = db.critical("b", x=2); found.of, found.items()
        (2, [(('a', {'x': 2, 'y': 1}), 1), (('a', {'x': 2, 'y': 2}), 1)])
        """
        from whence.runtime.questions import provenance_queries as asking

        with within(progress, timeout):
            return asking.critical(self._now, _name(view), row, asking.both(where, columns), limit)

    def resilience(
        self,
        view: str,
        /,
        row: Row = None,
        *,
        progress: Progress | None = None,
        timeout: Timeout = None,
        **columns: Any,
    ) -> Resilience:
        """Return the fewest base rows whose loss removes a row (identified as in `why`): how many, and one such set.

        >>> db = whence.open()
        >>> _ = db.execute("CREATE TABLE a (x INT, y INT); CREATE VIEW b AS SELECT DISTINCT x FROM a")
        >>> _ = db.insert("a", [(1, 1), (2, 1), (2, 2)])
        >>> found = db.resilience("b", x=2); found.count, found.rows
        (2, [('a', {'x': 2, 'y': 1}), ('a', {'x': 2, 'y': 2})])
        """
        from whence.runtime.questions import provenance_queries as asking

        with within(progress, timeout):
            return asking.resilience(self._now, _name(view), row, columns)

    def contribution(
        self,
        view: str,
        /,
        row: Row = None,
        *,
        samples: int | None = None,
        seed: int = 0,
        progress: Progress | None = None,
        timeout: Timeout = None,
        **columns: Any,
    ) -> Contribution:
        """Return how much each base row matters to a row (identified as in `why`): Shapley and Banzhaf values, exact
        where the decision diagram fits, else from `samples` (20,000, or fewer where there are very many base rows).

        >>> db = whence.open()
        >>> _ = db.execute("CREATE TABLE a (x INT, y INT); CREATE VIEW b AS SELECT DISTINCT x FROM a")
        >>> _ = db.insert("a", [(2, 1), (2, 2)])
        >>> [(row["y"], round(shapley, 6), banzhaf) for (_, row), shapley, banzhaf in db.contribution("b", x=2).items()]
        [(1, 0.5, 0.5), (2, 0.5, 0.5)]
        """
        from whence.runtime.questions import provenance_queries as asking

        with within(progress, timeout):
            return asking.contribution(self._now, _name(view), row, columns, samples=samples, seed=seed)

    def reliability(
        self,
        view: str,
        /,
        row: Row = None,
        *,
        given: Mapping[str, float | str],
        samples: int | None = None,
        confidence: float = 0.99,
        seed: int = 0,
        progress: Progress | None = None,
        timeout: Timeout = None,
        **columns: Any,
    ) -> Reliability:
        """Return the probability of a row (identified as in `why`), if base rows are there independently of each other.

        given       per table, the probability of its rows, or the column that has that of each; other tables are
                    certain
        samples     how many samples to draw where the decision diagram does not fit; then the answer has an interval;
                    100,000, or fewer where cases are expensive
        confidence  the probability that the interval contains the truth
        seed        seed of the samples

        >>> db = whence.open()
        >>> _ = db.execute("CREATE TABLE a (x INT, p DOUBLE); CREATE VIEW b AS SELECT DISTINCT x FROM a")
        >>> _ = db.insert("a", [(1, 0.5), (1, 0.25)])
        >>> found = db.reliability("b", x=1, given={"a": "p"}); found.probability, found.method
        (0.625, 'exact')
        >>> float(db.reliability("b", x=1, given={"a": 0.9})).__round__(6)
        0.99
        """
        from whence.runtime.questions import provenance_queries as asking

        options = {"samples": samples, "confidence": confidence, "seed": seed}
        with within(progress, timeout):
            return asking.reliability(self._now, _name(view), row, columns, given, **options)

    # -- Spark -------------------------------------------------------------------------------------------------------

    def attach(self, table: str, stream: Any, **options: Any) -> str:
        """Make a streaming DataFrame a source of a table, from `start` on; return the name of the source.

        op                  a column that says insert or delete, in the usual spellings; without it all are inserts
        early               a deletion that arrives before its row: "hold" (default, except in tables with a ttl),
                            "ignore" or "error" (see `owed`)
        format              "debezium": Debezium messages, as JSON in `value` or in columns before, after, op; "json":
                            JSON objects in `value`, lines of files or messages
        missing             with "json", members that a row to insert does not have: "error", or "null"
        name                the name under which its position is stored, the same in every run; default: the table's
        order_by            columns that order the rows of one batch
        strict              make columns that the table does not have an error
        max_rows_per_epoch  split a larger batch into several epochs
        on_error            records that do not fit: "fail", "skip", or "reject" to the table `rejects`
        timestamps          the unit of Debezium's timestamps: "auto", "millis", "micros", "nanos"

        >>> from pathlib import Path
        >>> links = Path("links").absolute(); links.mkdir(); _ = (links / "1.csv").write_text("A,B,+")
        >>> spark = whence.spark_session("local[2]")  # doctest: +SKIP
        >>> db = whence.open(spark=spark); _ = db.execute("CREATE TABLE link (src TEXT, dst TEXT)")  # doctest: +SKIP
        >>> stream = spark.readStream.schema("src STRING, dst STRING, op STRING").csv(str(links))  # doctest: +SKIP
        >>> db.attach("link", stream, op="op")  # doctest: +SKIP
        'link'
        >>> db.start("availableNow").awaitTermination(); db["link"].rows  # doctest: +SKIP
        [('A', 'B')]
        >>> db.close()  # doctest: +SKIP
        """
        return self._driver("attach").streams.attach(_name(table), stream, **options)

    def start(self, trigger: Any = None, checkpoint: str | Path | None = None, **options: Any) -> Running:
        """Start all attached sources; return a handle like Spark's StreamingQuery.

        trigger     default: as fast as possible; a time such as "1 second"; "availableNow" reads what is there and ends
        checkpoint  the folder of Spark's checkpoint; default: in the database's folder

        >>> spark = whence.spark_session("local[2]")  # doctest: +SKIP
        >>> db = whence.open(spark=spark)  # doctest: +SKIP
        >>> _ = db.execute("CREATE TABLE tick (timestamp TIMESTAMP, value BIGINT)")  # doctest: +SKIP
        >>> _ = db.attach("tick", spark.readStream.format("rate").load())  # doctest: +SKIP
        >>> with db.start(trigger="1 second") as running: running.isActive  # doctest: +SKIP
        True
        >>> db.close()  # doctest: +SKIP
        """
        return self._driver("start").streams.start(trigger=trigger, checkpoint=checkpoint, **options)

    def changes_to(self, view: str, writer: Any, **options: Any) -> Sink:
        """Pass every epoch's change of a view or table to a writer, as a Spark DataFrame.

        writer  called with the DataFrame (the view's columns, whence_op, whence_count, whence_epoch) and the epoch's
                number, as `foreachBatch` would; or a dict such as {"format": "parquet", "path": …}
        name    the name under which its position is stored; default: the view's
        start   "now", or "snapshot": the present rows are the first change

        >>> spark = whence.spark_session("local[2]")  # doctest: +SKIP
        >>> db = whence.open(spark=spark); _ = db.execute("CREATE TABLE a (x INT)")  # doctest: +SKIP
        >>> from pathlib import Path; folder = str(Path("changes").absolute())
        >>> sink = db.changes_to("a", {"format": "json", "path": folder})  # doctest: +SKIP
        >>> _ = db.insert("a", (7,)); spark.read.json(folder).count()  # doctest: +SKIP
        1
        >>> db.close()  # doctest: +SKIP
        """
        self._driver("changes_to")
        return sinks.changes_to(self._coordinator, _name(view), writer, **options)

    def _driver(self, what: str) -> SparkDriver:
        driver = self._coordinator.driver
        if driver is None or driver.spark is None:
            raise WhenceError(f"{what} is for a database on Spark: whence.open(path, spark=…)")
        return driver

    # -- functions ---------------------------------------------------------------------------------------------------

    def create_function(
        self,
        name: str,
        function: Callable[..., Any] | None = None,
        *,
        args: Iterable[str],
        returns: str,
        deterministic: bool = True,
    ) -> Any:
        """Make a Python function callable in SQL. Without `function`, return a decorator. NULL is None.

        With deterministic=False, calls with equal arguments may return different values. Views that would call it again
        for the same row are refused.

        >>> db = whence.open()
        >>> @db.create_function("double", args=["INT"], returns="BIGINT")
        ... def double(x): return 2 * x
        >>> db.query("SELECT double(21) AS x").rows
        [(42,)]
        """
        if function is None:
            return lambda f: self.create_function(name, f, args=args, returns=returns, deterministic=deterministic) or f
        called = function if deterministic else Volatile(function)
        schema = _columns(f"(x {returns})")
        self._coordinator.definitions.register(
            ScalarFunction(_function_name(name), called, _types(args), schema.types[0])
        )
        return None

    def create_table_function(
        self,
        name: str,
        function: Callable[..., Any] | None = None,
        *,
        args: Iterable[str],
        returns: str,
        deterministic: bool = True,
    ) -> Any:
        """Make a Python function that yields rows usable in FROM. Without `function`, return a decorator.

        For deterministic=False see `create_function`.

        >>> db = whence.open()
        >>> @db.create_table_function("upto", args=["INT"], returns="(n INT)")
        ... def upto(n): return [(i,) for i in range(n)]
        >>> _ = db.execute("CREATE TABLE a (x INT); CREATE VIEW b AS SELECT u.n FROM a, upto(a.x) AS u")
        >>> _ = db.insert("a", (2,)); sorted(db["b"])
        [(0,), (1,)]
        """
        if function is None:
            return lambda f: (
                self.create_table_function(name, f, args=args, returns=returns, deterministic=deterministic) or f
            )
        called = function if deterministic else Volatile(function)
        self._coordinator.definitions.register(
            TableFunction(_function_name(name), called, _types(args), _columns(returns))
        )
        return None

    # -- relations from outside ----------------------------------------------------------------------------------------

    def create_lookup(
        self,
        name: str,
        fetch: Callable[..., Any] | None = None,
        *,
        key: str = "TEXT",
        returns: str = "DOUBLE",
        memory: str = "64 MB",
        keep: str = "heeb",
        options: Mapping[str, str] | None = None,
        many: bool = False,
        timeout: float | None = None,
        parallel: int = 1,
    ) -> Any:
        """Make a relation from outside usable in views of streams: `fetch` gives the value of a key, or None, and the
        rows that are worth it are kept. Without `fetch`, return a decorator. docs/limits.md has the rules.

        key       the type of the key, or its name and type: `"currency TEXT"`
        returns   the type of the value, or the names and types of several, which are fetched as a tuple or a mapping
        memory    how many rows, or bytes, are kept at most
        keep      which: 'heeb', 'lru', 'lfu', 'prob' or 'random'
        options   more options of the table: model, lifetime, ttl, partition_by
        many      `fetch` takes a list of keys and gives a mapping
        timeout   seconds that a call may take
        parallel  calls at a time

        It is a table that is stored with the database; the function is not. When the database has been opened again,
        this is called again.

        >>> db = whence.open()
        >>> db.create_lookup("rate", {"USD": 0.9, "GBP": 1.2}.get, memory="300 rows")
        >>> _ = db.execute("CREATE STREAM trade (paid TEXT, price INT); CREATE VIEW in_euro AS "
        ...                "SELECT price * value AS euro FROM trade JOIN rate ON paid = key")
        >>> _ = db.insert("trade", [("USD", 10), ("GBP", 10), ("USD", 20)]); db["in_euro"].rows
        [(9.0,), (12.0,), (18.0,)]
        >>> found = db.metrics()["lookups"]["rate"]; found["hits"], found["misses"]
        (1, 2)
        """
        if fetch is None:
            return lambda f: (
                self.create_lookup(
                    name, f, key=key, returns=returns, memory=memory, keep=keep, options=options, many=many,
                    timeout=timeout, parallel=parallel,
                ) or f
            )  # fmt: skip
        fetcher = Fetcher(fetch, many or getattr(fetch, "many", False), timeout, parallel)
        create = declaration(_name(name), key, returns, {"memory": memory, "keep": keep, **(options or {})})
        coordinator = self._coordinator
        coordinator.definitions.create_table(create)
        if not same_table(coordinator.table_of(create.table.name), create.table):
            raise CatalogError(f'"{name}" exists already, and is not {create.table.sql}')
        coordinator.lookups.fetch_by(create.table.name, fetcher)
        return None

    def refresh_lookup(self, name: str, keys: Iterable[Any] | None = None) -> int:
        """Say that the outside has changed, for some keys of a lookup or all: rows are fetched again when they are
        asked for next. What has been joined stays as it was. Return how many rows were kept of them.

        >>> db, rates = whence.open(), {"USD": 0.9}
        >>> db.create_lookup("rate", rates.get, memory="300 rows")
        >>> _ = db.execute("CREATE STREAM t (paid TEXT); CREATE VIEW v AS SELECT value FROM t JOIN rate ON paid = key")
        >>> _ = db.insert("t", ("USD",)); rates["USD"] = 0.8; _ = db.insert("t", ("USD",))
        >>> db.refresh_lookup("rate", ["USD"]), db.insert("t", ("USD",)), db["v"].rows
        (1, 1, [(0.9,), (0.9,), (0.8,)])
        """
        return self._coordinator.lookups.refresh(_name(name), keys)

    # -- looking inside ----------------------------------------------------------------------------------------------

    def explain(self, name: str) -> str:
        """Describe how a view runs: its logical plan, operators with their state, stratum, algebra and policy.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT); CREATE VIEW b AS SELECT DISTINCT x FROM a")
        >>> print(db.explain("b").splitlines()[0])
        view b (x INTEGER)
        """
        return self._now.reader.explain(_name(name))

    def adapt(self, mode: AdaptMode | None = None) -> AdaptMode:
        """Set whether running plans follow the data, for views that do not say so themselves: "off", "on", or "advise",
        which only says what it would do. Return what is set.

        >>> db = whence.open(); db.adapt("on"), db.adapt()
        ('on', 'on')
        """
        if mode is not None:
            self._now.adaptation.set_mode(mode)
        return self._now.adaptation.mode

    def plans(self, view: str) -> list[dict[str, Any]]:
        """Return the joins of a view as they run: each path with its cost in probes per changed row, what its steps are
        expected to match and have met, what other steps would cost more, and which switches were made, and why.

        mode, decided_by  whether the join adapts, and whether the view or the database says so
        margin            per path: how far costs may move before a better plan is looked for, in probes
        paths             per input: its order, cost, steps and alternatives; an excess of "+3.1 %" is beside the best
        history           switches, and advice that was not followed, with reasons

        >>> db = whence.open()
        >>> _ = db.execute('''CREATE TABLE a (k INT); CREATE TABLE b (k INT, g INT); CREATE TABLE c (g INT);
        ...   CREATE VIEW v AS SELECT a.k, c.g FROM a, b, c WHERE a.k = b.k AND b.g = c.g''')
        >>> [(path["order"], path["excess"]) for join in db.plans("v") for path in join["paths"]]
        [(['2', '3'], '+0.0 %'), (['1', '3'], '+0.0 %'), (['2', '1'], '+0.0 %')]
        """
        coordinator, name = self._now, _name(view)
        with coordinator.looking():
            if name not in coordinator.program.views:
                raise CatalogError(f'there is no view "{name}"{did_you_mean(name, coordinator.program.views)}')
            return coordinator.adaptation.report(name)

    def describe(self, name: str) -> Result:
        """Return the columns of a table or view.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
        >>> db.describe("a").to_dicts()
        [{'column': 'x', 'type': 'INTEGER', 'null': True, 'key': False}]
        """
        return Result(explaining.describe(self._now, _name(name)))

    def state(self) -> list[dict[str, Any]]:
        """Return rows and bytes of every table, operator and arrangement.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
        >>> _ = db.insert("a", [(1,), (2,)]); db.state()[0]["relation"], db.state()[0]["rows"]
        ('a', 2)
        """
        return explaining.state(self._now)

    def metrics(self) -> dict[str, Any]:
        """Return the counters since the database was opened.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
        >>> _ = db.insert("a", [(1,), (2,)]); db.metrics()["rows_in"], db.metrics()["tables"]
        (2, {'a': 2})
        """
        coordinator = self._now
        return {**explaining.metrics(coordinator), **lateness.metrics(coordinator)}

    # -- ending ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the database; change feeds end, too. A `with` statement does this at its end.

        >>> db = whence.open("closed.db"); _ = db.execute("CREATE TABLE a (x INT)"); db.close()
        >>> with whence.open("closed.db") as db: db.tables
        ['a']
        """
        self._coordinator.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _repr_html_(self) -> str:
        coordinator = self._now
        with coordinator.reading():
            program, reader = coordinator.program, coordinator.reader
            kinds = {name: table_kind(table) for name, table in program.tables.items() if not is_internal(name)}
            kinds |= {name: "stream view" if reader.is_stream(name) else "view" for name in reader.views()}
            rows = [(name, kind, str(reader.schema(name))[1:-1], reader.size(name)) for name, kind in kinds.items()]
            title = repr(self)[1:-1]
        note = "in memory" if self.path is None else str(self.path)
        return Grid(["name", "kind", "columns", "rows"], rows, len(rows), title, note).html()

    def __repr__(self) -> str:
        soft = sum(table.lifetime is not None for table in self._coordinator.program.tables.values())
        tables = f"{len(self.tables)} tables" + (f" ({soft} with a ttl)" if soft else "")
        tables += f", {len(self.streams)} streams" if self.streams else ""
        return f"<whence database: {tables}, {len(self.views)} views, epoch {self.epoch}>"


def _name(name: object) -> str:
    """Return the name in lower case."""
    if not isinstance(name, str):
        raise CatalogError(f"a name is text, not {type(name).__name__}")
    return name.lower()


def _function_name(name: object) -> str:
    """Check that a function has a plain name."""
    if not _name(name).isidentifier():
        raise CatalogError(f"a function's name is made of letters, digits and _, not {format_value(name)}")
    return _name(name)


def _columns(text: str) -> Schema:
    create = parse_one(f"CREATE TABLE f {text}")
    if not isinstance(create, st.CreateTable):
        raise SqlError(f"{text!r} is not a list of columns such as (a INT, b TEXT)")
    return create.table.schema


def _types(names: Iterable[str]) -> tuple[Type, ...]:
    given = list(names)
    if isinstance(names, str):
        raise DataError("args is a list of types such as ['INT', 'TEXT']")
    return _columns("(" + ", ".join(f"a{i} {t}" for i, t in enumerate(given)) + ")").types if given else ()
