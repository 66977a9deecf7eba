"""Sinks: the changes of views, after each epoch, to Spark as a DataFrame.

The columns of the view, then

| column       | |
|--------------|---|
| whence_op    | '-' a row that went, '+' one that came; those that went stand first |
| whence_count | how often |
| whence_epoch | the number of the epoch |

The law: a sink is handed each epoch's change in order, at least once, each time with the same number; a writer that
passes over numbers it has seen has it exactly once. How far a sink has come is kept in <db>/streams/<name>.sink, stable
before the next change is handed over.

Changes are handed over in the thread that has committed the epoch, after it is stable and before the next one begins.
So a slow sink slows the database down in place of having its changes pile up in memory, and at most one epoch, the
last, can be committed and not handed over when the driver dies. That one is found again as the difference to the state
before it, for which the database has to retain an epoch (`whence.open(…, retain=1)`). A sink that fails gets the
same change again, before the next.

A sink follows a definition. When its view, or one that the view reads, is redefined, the sink is handed the difference
between the old and the new contents, as the change of the epoch of the redefinition; if that is not possible, because
the columns are others or the view is a stream, and when the view is dropped, the sink ends: `error` says why. With how
far it has come the sink's file has a digest of the definition and the columns, so that a sink that is made again over
another definition is handed the difference, too, or refused.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from whence.engine.core.operator import Batch
from whence.model.codes import Codes
from whence.model.errors import SparkError, StorageError, WhenceError
from whence.model.paths import spark_path
from whence.model.types import Schema
from whence.plan.algebra.program import Program
from whence.runtime.definitions import Contents, definition_of
from whence.runtime.spark.frames.frames import changes_frame
from whence.state.disk import Disk, storage_errors
from whence.state.manifest import STREAMS

log = logging.getLogger("whence")
Writer = Callable[[Any, int], object]
_SPEC = {"format", "path", "mode", "options", "partitionBy", "table"}


class Sink:
    """A view whose changes are passed to a writer (`Database.changes_to`).

    view, name  the view, and the name under which its position is stored
    schema      the columns of the view
    delivered   the last epoch that was passed on, or None
    error       why it has ended, or why the last change was not taken; None if all is well

    >>> spark = whence.spark_session("local[2]"); rows = []  # doctest: +SKIP
    >>> db = whence.open(spark=spark); _ = db.execute("CREATE TABLE a (x INT)")  # doctest: +SKIP
    >>> sink = db.changes_to("a", lambda df, epoch: rows.extend(df.collect()))  # doctest: +SKIP
    >>> _ = db.insert("a", (7,)); rows[0].x, rows[0].whence_op, sink.delivered, sink.error  # doctest: +SKIP
    (7, '+', 1, None)
    >>> sink.stop(); db.close()  # doctest: +SKIP
    """

    def __init__(self, coordinator: Any, view: str, writer: Writer, name: str) -> None:
        self.view, self.name = view, name
        self._coordinator, self._writer = coordinator, writer
        self._disk = Disk()
        self._path = Path(coordinator.driver.routing().folder) / STREAMS / f"{name}.sink"
        self._waiting: deque[tuple[int, Codes, Codes]] = deque()
        self.schema: Schema = coordinator.reader.schema(view)
        self.definition = definition_of(coordinator.program, view)
        self._followed: str | None = None  # the definition that it had followed when it was last made
        self.delivered = self._read()
        self.error: WhenceError | None = None

    def begin(self, start: Literal["now", "snapshot"]) -> None:
        """Pass on what the sink has missed, and from now on every epoch's change."""
        coordinator = self._coordinator
        with coordinator.reading():
            epoch = coordinator.epoch
            if self.delivered is None:
                rows, counts = coordinator.reader.contents(self.view) if start == "snapshot" else (None, None)
            elif self.delivered < epoch:
                rows, counts = self._changes_since(self.delivered)
            elif self.delivered > epoch:
                raise WhenceError(
                    f"sink {self.name}: epoch {self.delivered} was handed over, but the database is at {epoch}: it was "
                    f"restored from a backup? To start again, give the sink another name="
                )
            else:
                rows = counts = None
                self._check_followed(coordinator.program)
            coordinator.sinks.append(self)
        try:
            self._take(epoch, rows, counts)
        except BaseException:
            self.stop()
            raise

    def _changes_since(self, since: int) -> tuple[Codes, Codes]:
        """Return the difference between then and now. Called during a read."""
        coordinator = self._coordinator
        if since not in coordinator.retained:
            raise WhenceError(
                f"sink {self.name}: what changed since epoch {since}, the last that was handed over, is not known any "
                "more: open the database with retain=1 or more; to start again, give the sink another name="
            )
        past = coordinator.at(since)
        with past.reading():
            self._check_followed(past.program)
            before = Contents.of(past, self.view)
        now = Contents(self.schema, coordinator.reader.is_stream(self.view), *coordinator.reader.contents(self.view))
        if now.stream and self._followed not in (None, self.definition):
            raise WhenceError(self._refusal("was replaced and is a stream, which takes nothing back"))
        change = now.since(before)
        if now.stream:  # nothing goes; rows that are no longer kept were handed over
            return change.rows[change.ann > 0], change.ann[change.ann > 0]
        return change.rows, change.ann

    def _check_followed(self, program: Program) -> None:
        """Raise WhenceError unless the last change was handed over under the definition that a program has."""
        known = self.view in program.views or self.view in program.tables
        if not known or self._followed not in (None, definition_of(program, self.view)):
            raise WhenceError(self._refusal("was dropped and created again"))

    def _refusal(self, why: str) -> str:
        return (
            f"sink {self.name}: {self.view} {why} since epoch {self.delivered}, the last that was handed over; to "
            "start again, give the sink another name="
        )

    def redefine(self) -> None:
        """Follow the present definition of the view; pass on its difference to the last one next."""
        self.definition = definition_of(self._coordinator.program, self.view)

    def end(self, why: str) -> None:
        """Pass on nothing more, for a reason that is kept in `error`."""
        self.error = WhenceError(f"sink {self.name}: {why}; changes_to starts again under another name=")
        log.error("%s", self.error)
        self.stop()

    def __call__(self, epoch: int, changes: Mapping[str, Batch]) -> None:
        """Write the changes of a committed epoch."""
        change = changes.get(self.view)
        if change is not None:
            change = self._coordinator.reader.visible(
                self.view, change
            )  # of copies in several partitions one may come, one go
        if change is None or not len(change.rows):
            self._take(epoch, None, None)
        else:
            self._take(epoch, change.rows, change.ann)

    def _take(self, epoch: int, rows: Codes | None, counts: Codes | None) -> None:
        if rows is not None and counts is not None and len(rows):
            self._waiting.append((epoch, rows, counts))
        while self._waiting:
            self._deliver(*self._waiting[0])
            self._waiting.popleft()
        if self.delivered != epoch:
            self._note(epoch, stable=False)

    def _deliver(self, epoch: int, rows: Codes, counts: Codes) -> None:
        from whence.runtime.spark.session.errors import FOREIGN, translate_error

        coordinator = self._coordinator
        coordinator.sync()  # no sink may see an epoch that a crash could undo
        try:
            df = changes_frame(coordinator.driver.spark, rows, counts, self.schema, coordinator.dictionary, epoch)
            self._writer(df, epoch)
        except Exception as error:
            cause = translate_error(error) if isinstance(error, FOREIGN) else error
            self.error = SparkError(
                f"epoch {epoch} is committed, but the sink {self.name} did not take its changes of {self.view}: "
                f"{cause!s:.400}; they are handed over again before those of the next"
            )
            raise self.error from error
        self.error = None
        self._note(epoch, stable=True)

    def _read(self) -> int | None:
        known: int | None = self._coordinator.source_positions.get(f"sink:{self.name}")
        if self._path.exists():
            try:
                content = json.loads(self._disk.read(self._path))
                if content["view"] != self.view:
                    raise WhenceError(
                        f"there was a sink {self.name} for {content['view']}: give this one another name="
                    )
                delivered = self.delivered = max(int(content["epoch"]), -1 if known is None else known)
                self._followed = content.get("definition")
                if content.get("columns", str(self.schema)) != str(self.schema):
                    raise WhenceError(self._refusal(f"has other columns, {self.schema} and not {content['columns']},"))
                return delivered
            except (ValueError, KeyError, TypeError) as error:
                raise StorageError(f"{self._path}: no sink's own file ({error})") from None
        return known

    def _note(self, epoch: int, stable: bool) -> None:
        """Remember how far it has come. Where nothing was handed over a crash of the machine may forget it."""
        told = {"view": self.view, "epoch": epoch, "definition": self.definition, "columns": str(self.schema)}
        content = json.dumps(told).encode()
        self._disk.make_folder(self._path.parent)
        if stable:
            self._disk.replace(self._path, content)
        else:
            new = self._path.with_suffix(".sink.now")
            with storage_errors(self._path, "replace"):
                new.write_bytes(content)
                os.replace(new, self._path)
        self.delivered = epoch
        self._coordinator.source_positions[f"sink:{self.name}"] = epoch

    def stop(self) -> None:
        """Stop the sink; a sink of this name goes on from here."""
        if self in self._coordinator.sinks:
            self._coordinator.sinks.remove(self)

    def __repr__(self) -> str:
        return f"<whence sink {self.name}: changes of {self.view}, delivered up to epoch {self.delivered}>"


def changes_to(
    coordinator: Any,
    view: str,
    writer: Writer | Mapping[str, Any],
    *,
    name: str | None = None,
    start: Literal["now", "snapshot"] = "now",
) -> Sink:
    """Pass each epoch's change of a view (or table) to a writer.

    writer  called with a DataFrame and the epoch's number, as `foreachBatch` would; or a dict of what a DataFrameWriter
            is given: format, mode ("append" if not said), options, partitionBy, and path or table
    name    what the place it has come to is kept by, so the same in every run; else the view's name
    start   for a sink that is new: "now", or "snapshot", then the present rows are its first change
    """
    coordinator.reader.schema(view)  # or it is an error
    name = name or view
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,100}", name):
        raise WhenceError(
            f"a sink's name is made of letters, digits, _ and -, not {name!r:.100}: give it another name="
        )
    if start not in ("now", "snapshot"):
        raise WhenceError(f"start is 'now' or 'snapshot', not {start!r:.100}")
    if any(isinstance(hook, Sink) and hook.name == name for hook in coordinator.sinks):
        raise WhenceError(f"there is a sink {name} already: give this one another name=")
    sink = Sink(coordinator, view, writer if callable(writer) else _by(writer), name)
    sink.begin(start)
    return sink


def _by(spec: Mapping[str, Any]) -> Writer:
    """Make the writer that a dict describes."""
    unknown = set(spec) - _SPEC if isinstance(spec, Mapping) else {"?"}
    if unknown or ("path" in spec) == ("table" in spec):
        raise WhenceError(
            "a writer is a function of a DataFrame and an epoch, or a dict of path or table, and of format, mode, "
            "options, partitionBy"
        )

    def write(df: Any, epoch: int) -> None:
        out = df.write.mode(spec.get("mode", "append")).options(**spec.get("options", {}))
        if "format" in spec:
            out = out.format(spec["format"])
        if "partitionBy" in spec:
            out = out.partitionBy(spec["partitionBy"])
        if "path" in spec:
            out.save(spark_path(spec["path"]))
        else:
            out.saveAsTable(spec["table"])

    return write
