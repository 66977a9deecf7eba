"""Streaming DataFrames of Spark, attached to tables and run together.

Each source is one StreamingQuery, which hands its batches to `foreachBatch`; the database's own lock brings their
epochs into one order. So a slow source does not hold up the others, and a source knows its own place.

The law: each row of a source is in exactly once. A batch and its number (the *mark* of the stream) are committed by one
record of the log. Spark writes down what is in a batch before it runs it, in the checkpoint, and after a failure gives
the same batch again; if its number is not above the mark it is in already and is passed over. A batch too large for
one epoch is split (`splitting.py`). A checkpoint belongs to its marks: one that was removed, or that is another
stream's, would count its batches from 0 again and lose rows without a word; its identity is therefore committed with
the mark, and one that does not fit is an error.

Spark keeps the order of rows within a partition of the source, but deals out several files of one batch as it likes.
Where their order matters (one key twice in a batch), `order_by` names the column that says it.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from whence.io.rejects import OnError, check_choice, report
from whence.io.rows import Missing, list_names
from whence.model.errors import CatalogError, SparkError, WhenceError
from whence.model.paths import spark_path
from whence.model.types import Schema
from whence.runtime.spark.frames import frames, splitting
from whence.runtime.spark.frames.refusals import Refusals
from whence.runtime.spark.frames.routing import SECTION, SMALL, JsonLines, Routing, route_frame
from whence.runtime.writing.tables import Early, early_choice
from whence.sql.position import did_you_mean
from whence.state.manifest import STREAMS

log = logging.getLogger("whence")

MAX_ROWS = 10_000_000
"""Rows of an epoch; a larger batch becomes several."""

Trigger = str | float | Mapping[str, Any] | None
_POLL = 0.2  # seconds: how often a wait looks whether a source has failed
_RECENT = 100  # epochs of which the progress is kept
_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")


@dataclass(frozen=True)
class AttachedStream:
    """A stream that is attached to a table."""

    name: str
    table: str
    df: Any
    op: str | None
    order_by: tuple[str, ...]
    strict: bool
    max_rows: int | None
    on_error: OnError = "fail"
    early: Early = "hold"
    json: bool = False
    missing: Missing = "error"


class AttachedStreams:
    """The streams of one database on Spark, attached and running."""

    def __init__(self, coordinator: Any) -> None:
        self._coordinator = coordinator
        self._sources: dict[str, AttachedStream] = {}
        self.running: Running | None = None

    def attach(
        self,
        table: str,
        df: Any,
        *,
        op: str | None = None,
        format: Literal["debezium", "json"] | None = None,
        name: str | None = None,
        order_by: str | list[str] | None = None,
        strict: bool = False,
        max_rows_per_epoch: int | None = None,
        on_error: OnError = "fail",
        timestamps: Literal["auto", "millis", "micros", "nanos"] = "auto",
        early: Early | None = None,
        missing: Missing = "error",
    ) -> str:
        """Attach a streaming DataFrame to a table, from the next `start` on; return the stream's name.

        op                  the column that says whether a row comes or goes; without one all come
        format              "debezium": the DataFrame has Debezium's messages (see `debezium.read`); "json": its column
                            `value` has JSON objects, lines of files or messages, of which `op` is then a member
        name                what checkpoint and marks are kept by, so the same in every run; else the table's name
        order_by            columns by which the rows of a batch are ordered
        strict              columns that the table does not have are an error
        max_rows_per_epoch  a batch of more rows becomes several epochs
        on_error            what becomes of a record that does not fit: "fail" stops the stream, "skip" counts it, and
                            "reject" writes it to the table rejects, in the same epoch
        early               a deletion that comes before its row: "hold" until the row comes, "ignore" or "error"; held
                            if not given, except where rows leave by themselves (ttl)
        missing             with format "json", members that a row to insert does not have: "error", or "null"
        """
        table = table.lower()
        known = self._coordinator.program.tables
        if table not in known:
            raise CatalogError(f'there is no table "{table:.100}"{did_you_mean(table, known)}')
        if known[table].tick is not None:
            raise WhenceError(
                f"{table} has a tick_time(), which Spark's tasks do not know: insert its rows, or follow files"
            )
        name = name or table
        if not _NAME.fullmatch(name):
            raise WhenceError(
                f"a stream's name is made of letters, digits, _ and -, not {name!r:.100}: give it another"
            )
        if name in self._sources:
            raise WhenceError(f"there is a stream {name} already: give this one another name=")
        if max_rows_per_epoch is not None and max_rows_per_epoch < 1:
            raise WhenceError("max_rows_per_epoch must be at least 1")
        frames.check(df)
        if not df.isStreaming:
            raise WhenceError(f"this DataFrame is not a stream: insert it into {table}, or make it by spark.readStream")
        order = (order_by,) if isinstance(order_by, str) else tuple(order_by or ())
        chosen = early_choice(early, default="hold" if known[table].lifetime is None else "ignore")
        source = AttachedStream(
            name, table, df, op, order, strict, max_rows_per_epoch, check_choice(on_error), chosen, missing=missing
        )
        source = self._checked(source, format, timestamps)
        if on_error == "reject":
            from whence.runtime.statements import ensure_rejects

            ensure_rejects(self._coordinator)
        self._sources[name] = source
        return name

    def _checked(self, source: AttachedStream, format: str | None, timestamps: Any) -> AttachedStream:
        """Check that all columns of the source are found, and return it; Debezium's messages become rows here."""
        from whence.runtime.spark.frames import columns, debezium
        from whence.runtime.spark.frames.corrupt import with_corrupt_records
        from whence.runtime.spark.session.errors import jvm_errors

        table, op = self._coordinator.table_of(source.table), source.op
        with jvm_errors(f"attaching {source.name}"):
            df = with_corrupt_records(source.df, f"stream {source.name}")
            fields = df.schema.fields
            if format == "debezium":
                if op is not None or source.order_by or source.strict:
                    raise WhenceError(
                        "Debezium's messages say what happened, and in which order: without op, order_by, strict"
                    )
                faults = columns.Faults(raising=source.on_error == "fail")
                df = debezium.read(df, table.schema, source.table, table.key, faults, timestamps=timestamps)
                op = columns.SIGN
            elif format == "json":
                if source.order_by or source.strict:
                    raise WhenceError("JSON is read line by line, in the order of the source: without order_by, strict")
                columns.find_field(fields, "value", source.table)
            elif format is not None:
                raise WhenceError(f"the format is 'debezium', 'json' or none, not {format!r:.100}")
            else:
                beside, faults = [op or "", *source.order_by] if source.strict else (), columns.Faults()
                _warn_of_others(source, fields, table.schema)
                chosen = columns.table_columns(fields, table.schema, source.table, faults, beside)
                if op is not None:
                    chosen.append(columns.sign(op, fields, source.table, bool(table.key), faults))
                for column in source.order_by:
                    columns.find_field(fields, column, source.table)
                df.select(*chosen)  # Spark analyses it
        return replace(source, df=df, op=op, json=format == "json")

    def detach(self, name: str) -> None:
        """Remove a stream that is not running; its position and its checkpoint stay."""
        if self.running is not None and self.running.isActive:
            raise WhenceError("streams are running: stop them first")
        if self._sources.pop(name, None) is None:
            raise WhenceError(f"there is no stream {name!r:.100}{did_you_mean(name, self._sources)}")

    def start(
        self, *, trigger: Trigger = None, checkpoint: str | Path | None = None, max_rows_per_epoch: int = MAX_ROWS
    ) -> Running:
        """Run all attached streams.

        trigger             None: the next batch as soon as the last one is done; "1 second" or a number of seconds: so
                            often; "availableNow": what is there now, then end; or a dict for Spark's `trigger`
        checkpoint          the folder in which each stream has one for its checkpoint; else <db>/streams
        max_rows_per_epoch  for sources that were attached without
        """
        if not self._sources:
            raise WhenceError("no stream is attached: attach one first")
        if self.running is not None and self.running.isActive:
            raise WhenceError("streams are running: stop them first")
        how = _trigger(trigger)
        self.running = Running(self._coordinator, list(self._sources.values()), how, checkpoint, max_rows_per_epoch)
        return self.running

    def close(self) -> None:
        """Stop what is running."""
        if self.running is not None:
            self.running.stop()


def _trigger(given: Trigger) -> dict[str, Any]:
    """Return the arguments for Spark's `trigger`.

    >>> _trigger("1 second"), _trigger(0.5), _trigger("once")
    ({'processingTime': '1 second'}, {'processingTime': '500 milliseconds'}, {'availableNow': True})
    """
    if given is None:
        return {}
    if isinstance(given, str):
        word = given.replace("_", "").replace(" ", "").lower()
        return {"availableNow": True} if word in ("availablenow", "once") else {"processingTime": given}
    if isinstance(given, (int, float)):
        return {"processingTime": f"{round(given * 1000)} milliseconds"}
    allowed = {"processingTime", "availableNow", "once"}
    if not isinstance(given, Mapping) or set(given) - allowed:
        raise WhenceError(f"a trigger is '1 second', 'availableNow', or a dict of {', '.join(sorted(allowed))}")
    return {"availableNow": True} if given.get("once") else dict(given)


class _Stopped(WhenceError):  # noqa: N818 - it is none
    """A batch that came after `stop`."""


@dataclass
class Flow:
    """A running source: Spark calls it with each batch."""

    source: AttachedStream
    coordinator: Any
    max_rows: int
    failed: Callable[[], None]
    report: Callable[[dict[str, Any]], None]
    query: Any = None
    error: WhenceError | None = None
    skipped: int = 0
    stopping: bool = False
    started: threading.Event = field(default_factory=threading.Event)
    busy: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, df: Any, batch: int) -> None:
        self.started.wait()
        try:
            with self.busy:
                self._go_on()
                self._take(df, batch)
        except _Stopped:
            raise
        except Exception as error:
            from whence.runtime.spark.session.errors import translate_error, with_place

            place = f"stream {self.source.name}, batch {batch}"
            self.error = with_place(error, place) if isinstance(error, WhenceError) else translate_error(error, place)
            if self.error is not error:
                self.error.__cause__ = error
            self.failed()
            raise

    def _go_on(self) -> None:
        if self.stopping:
            raise _Stopped(f"stream {self.source.name} was stopped")

    def _take(self, df: Any, batch: int) -> None:
        from whence.runtime.spark.frames.lines import numbered

        source, coordinator, name = self.source, self.coordinator, self.source.name
        begin, mark = time.perf_counter(), coordinator.source_positions.get(name, -1)
        identity = uuid.UUID(str(self.query.id)).int >> 66  # 62 bits are enough, and are an integer anywhere
        whose = coordinator.source_positions.get(f"{name}#id", identity)
        if whose != identity or batch < mark:
            raise WhenceError(
                f"stream {name}: its checkpoint is at batch {batch}, but {mark + 1} batches are committed: "
                "restore the checkpoint, or attach under another name= to ingest from the start"
            )
        if batch <= mark:
            return
        routing: Routing = coordinator.driver.routing()
        identified = {f"{name}#id": identity}
        done = (
            coordinator.source_positions.get(f"{name}#done", 0)
            if coordinator.source_positions.get(f"{name}#batch") == batch
            else 0
        )
        rejects: dict[str, Any] = {}  # with the first epoch of a batch
        if done:
            split = splitting.resumed(Path(routing.folder), name, batch)
        else:
            table = coordinator.program.tables.get(source.table)
            if table is None:
                raise CatalogError(f'stream {name}: there is no table "{source.table}" any more')
            found = route_frame(
                df,
                source.table,
                routing,
                coordinator.dictionary,
                op=source.op,
                keyed=bool(table.key),
                strict=False,  # seen to when it was attached
                order_by=source.order_by,
                on_error=source.on_error,
                json=JsonLines(source.op, bool(table.key), source.missing) if source.json else None,
                small_rows=min(SMALL, self.max_rows),
                section_rows=min(SECTION, self.max_rows),
            )
            refused = numbered(df.sparkSession, found.rejects)
            self.skipped += found.skipped
            report(f"stream {name}, batch {batch}", found.skipped, refused, source.on_error)
            if not found.rows and not refused:
                return
            rejects = frames.reject_parts(coordinator, refused, name, batch)
            if found.rows <= self.max_rows:
                epoch = self._ingest({source.table: found.parts, **rejects}, {name: batch, **identified}, batch)
                self._tell(epoch, batch, found.rows, begin)
                return
            split = splitting.plan(found, routing, name, source.table, batch, self.max_rows)
        last = len(split.epochs) - 1
        for number in range(done, last + 1):
            self._go_on()
            marks = {name: batch} if number == last else {f"{name}#batch": batch, f"{name}#done": number + 1}
            parts = {source.table: split.parts(number, coordinator.driver.routing()), **(rejects if not number else {})}
            epoch = self._ingest(parts, {**marks, **identified}, batch)
            self._tell(epoch, batch, split.rows(number), begin)
            begin = time.perf_counter()
        split.drop()

    def _ingest(self, parts: dict[str, Any], marks: dict[str, int], batch: int) -> int:
        """Commit an epoch without the rows that break a promise, unless these are to fail; return its number."""
        source, name = self.source, self.source.name
        refusals = None if source.on_error == "fail" else Refusals(source.on_error, name, batch)
        epoch: int = self.coordinator.driver.ingest(parts, marks, source.early, refusals)
        if refusals is not None and refusals.found:
            self.skipped += len(refusals.found)
            report(f"stream {name}, batch {batch}", len(refusals.found), refusals.found, source.on_error)
        return epoch

    def _tell(self, epoch: int, batch: int, rows: int, begin: float) -> None:
        seconds = time.perf_counter() - begin
        counters = self.coordinator.driver.progress()
        if "seconds" in counters:
            counters["run_seconds"] = counters.pop("seconds")  # without reading the source and writing the log
        self.report(
            {"epoch": epoch, "source": self.source.name, "batch": batch, "rows": rows, "seconds": seconds, **counters}
        )


def _warn_of_others(source: AttachedStream, fields: Sequence[Any], schema: Schema) -> None:
    """Log the columns of a source that go nowhere, unless they are an error."""
    from whence.runtime.spark.frames.columns import CORRUPT

    known = {*schema.names, CORRUPT, (source.op or "").lower(), *(name.lower() for name in source.order_by)}
    others = [field.name for field in fields if field.name.lower() not in known]
    if others and not source.strict:
        log.warning(
            "stream %s: table %s has no column %s, so it is left out; strict=True makes it an error",
            *(source.name, source.table, list_names(others)),
        )


class Running:
    r"""The running streams (`Database.start`), like Spark's StreamingQuery, over all sources. When one fails, the
    others are stopped. As a context manager it stops them at the end.

    Methods have Spark's names. `is_active`, `last_progress`, `recent_progress`, `await_termination` and
    `process_all_available` are the same.

    >>> from pathlib import Path
    >>> folder = Path("arriving").absolute(); folder.mkdir(); _ = (folder / "1.csv").write_text("1\n2\n")
    >>> spark = whence.spark_session("local[2]")  # doctest: +SKIP
    >>> db = whence.open(spark=spark); _ = db.execute("CREATE TABLE a (x INT)")  # doctest: +SKIP
    >>> _ = db.attach("a", spark.readStream.schema("x INT").csv(str(folder)))  # doctest: +SKIP
    >>> running = db.start(); running.processAllAvailable(); sorted(db["a"])  # doctest: +SKIP
    [(1,), (2,)]
    >>> running.isActive, running.exception(), running.awaitTermination(timeout=0.1)  # doctest: +SKIP
    (True, None, False)
    >>> running.recentProgress[0]["rows"], running.lastProgress["source"], sorted(running.status)[:2]  # doctest: +SKIP
    (2, 'a', ['isDataAvailable', 'isTriggerActive'])
    >>> running.stop(); running.isActive, running.status["message"]  # doctest: +SKIP
    (False, 'stopped')
    >>> db.close()  # doctest: +SKIP
    """

    def __init__(
        self,
        coordinator: Any,
        sources: list[AttachedStream],
        trigger: dict[str, Any],
        checkpoint: str | Path | None,
        max_rows: int,
    ) -> None:
        from whence.runtime.spark.session.errors import jvm_errors

        self._coordinator, self._trigger = coordinator, trigger
        self._recent: deque[dict[str, Any]] = deque(maxlen=_RECENT)
        self._flows: list[Flow] = []
        self._helper: threading.Thread | None = None
        routing = coordinator.driver.routing()
        base = spark_path(checkpoint) if checkpoint is not None else str(Path(routing.folder) / STREAMS)
        for source in sources:
            if coordinator.source_positions.get(f"{source.name}#batch", -1) <= coordinator.source_positions.get(
                source.name, -1
            ):
                splitting.forget(Path(routing.folder), source.name)  # of a batch that is in, or was never begun
        try:
            for source in sources:
                flow = Flow(source, coordinator, source.max_rows or max_rows, self._stop_soon, self._recent.append)
                with jvm_errors(f"starting stream {source.name}"):
                    writer = source.df.writeStream.foreachBatch(flow).option(
                        "checkpointLocation", f"{base.rstrip('/')}/{source.name}"
                    )
                    writer = writer.queryName(f"whence {source.name} {routing.nonce[:8]}").outputMode("append")
                    flow.query = (writer.trigger(**trigger) if trigger else writer).start()
                self._flows.append(flow)
        except BaseException:
            for flow in self._flows:
                flow.stopping = True
                flow.started.set()
            self.stop()
            raise
        for flow in self._flows:
            flow.started.set()

    # -- how it is going ---------------------------------------------------------------------------------------------

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        """Whether any source runs."""
        return any(flow.query.isActive for flow in self._flows)

    @property
    def status(self) -> dict[str, Any]:
        """What the sources are doing now."""
        each = {flow.source.name: dict(flow.query.status) for flow in self._flows}
        error = self.exception()
        active = [name for name, flow in zip(each, self._flows, strict=True) if flow.query.isActive]
        message = f"failed: {error}" if error else f"running {', '.join(active)}" if active else "stopped"
        return {
            "message": message,
            "isDataAvailable": any(status.get("isDataAvailable") for status in each.values()),
            "isTriggerActive": any(status.get("isTriggerActive") for status in each.values()),
            "sources": each,
        }

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802 - Spark's name
        """The last epochs that streams brought: number, source, batch, rows, seconds, and counters."""
        return list(self._recent)

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The last epoch, Spark's progress of each source, rows passed over, and the database's counters."""
        if not self._recent:
            return None
        sources = {flow.source.name: flow.query.lastProgress for flow in self._flows}
        return {
            **self._recent[-1],
            "skipped": sum(flow.skipped for flow in self._flows),
            "sources": {name: dict(progress) if progress is not None else None for name, progress in sources.items()},
            "metrics": self._coordinator.driver.metrics(),
        }

    def exception(self) -> WhenceError | None:
        """Return the error that stopped it, if there was one."""
        from whence.runtime.spark.session.errors import translate_error

        for flow in self._flows:
            if flow.error is not None:
                return flow.error
        for flow in self._flows:
            found = None if flow.stopping else flow.query.exception()
            if found is not None:
                ours = translate_error(found, f"stream {flow.source.name}")
                ours.__cause__ = found
                return ours
        return None

    # -- waiting and ending ------------------------------------------------------------------------------------------

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802 - Spark's name
        """Wait until all sources have ended, or one has failed: then raise its error. With a `timeout` in seconds,
        return whether they have ended by then.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while self.isActive and self.exception() is None:
            left = _POLL if end is None else min(_POLL, end - time.monotonic())
            if left <= 0:
                return False
            for flow in [flow for flow in self._flows if flow.query.isActive][:1]:
                with suppress(Exception):  # looked at below
                    flow.query.awaitTermination(max(left, 0.001))
        error = self.exception()
        if error is not None:
            self.stop()
            raise error
        return None if timeout is None else True

    def processAllAvailable(self) -> None:  # noqa: N802 - Spark's name
        """Wait until everything that the sources have now is committed."""
        if self._trigger.get("availableNow"):
            self.awaitTermination()
            return
        try:
            for flow in self._flows:
                flow.query.processAllAvailable()
        except Exception as failure:
            error = self.exception()
            if error is None:
                raise SparkError(f"waiting for streams: {failure!s:.300}") from failure
        error = self.exception()
        if error is not None:
            self.stop()
            raise error

    def stop(self) -> None:
        """Stop all sources. A batch that has begun is finished first; of a batch that is split, its present epoch."""
        from whence.runtime.spark.session.errors import jvm_errors

        for flow in self._flows:
            flow.stopping = True
        for flow in self._flows:
            with flow.busy:  # the batch that has begun is done; later ones are refused
                pass
            with jvm_errors(f"stopping stream {flow.source.name}"):
                flow.query.stop()
        helper = self._helper
        if helper is not None and helper is not threading.current_thread():
            helper.join()

    def _stop_soon(self) -> None:
        """Stop the queries after an error in a batch, once its own thread has left."""
        if self._helper is None:
            self._helper = threading.Thread(target=self._stop_others, name="whence-streams-stop", daemon=True)
            self._helper.start()

    def _stop_others(self) -> None:
        for flow in self._flows:
            if flow.error is None:
                flow.stopping = True
                with flow.busy:
                    pass
                flow.query.stop()

    is_active = isActive
    last_progress = lastProgress
    recent_progress = recentProgress
    await_termination = awaitTermination
    process_all_available = processAllAvailable

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<whence streams: {self.status['message']}>"
