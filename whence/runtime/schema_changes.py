"""Change what a database declares: CREATE and DROP, between two epochs, whole or not at all.

A change is carried out by the partitions, then its statements are written to the log, and only then is it committed; an
error undoes it. Feeds and sinks of a view that is redefined are given how its contents differ, or end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from whence.engine.core.operator import Batch
from whence.model.errors import WhenceError
from whence.model.progress import Progress
from whence.plan.algebra.program import ScalarFunction, TableFunction
from whence.runtime.catalog import Catalog, Saved, table_kind
from whence.runtime.definitions import Contents
from whence.sql import statements as st
from whence.sql.parse import parse_stored

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator

log = logging.getLogger("whence")


class SchemaChanges:
    """Changes the catalog of one coordinator."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    @contextmanager
    def _declaring(self) -> Iterator[Catalog]:
        """Hold the locks for a change of the catalog; wait until it is stable."""
        coordinator = self._coordinator
        with coordinator.writer:
            coordinator.check_open()
            coordinator.storage.ready_to_write()
            if coordinator.open_transaction is not None:
                raise WhenceError("CREATE and DROP cannot stand inside a transaction: end it first")
            with coordinator.state:
                yield coordinator.catalog
                coordinator.expiry.look_ahead()
            written = coordinator.storage.last
        coordinator.storage.wait_durable(written)

    def _log(self, statements: list[str], before: Saved, epoch: bool = False) -> None:
        """Write down what has changed the catalog and commit it, or undo it; with `epoch` in an epoch of its own."""
        coordinator = self._coordinator
        try:
            if epoch:
                coordinator.advance()
            coordinator.storage.write_statements(statements)
        except BaseException:
            coordinator.catalog.go_back(before)
            raise
        coordinator.catalog.stay()

    def create_table(self, create: st.CreateTable) -> bool:
        """Declare a table; return False if it is there already and that is allowed."""
        with self._declaring() as catalog:
            before = catalog.save()
            made = catalog.create_table(create)
            if made:
                self._log([create.sql], before)
                log.info("%s %s created", table_kind(create.table), create.table.name)
            return made

    def create_index(self, create: st.CreateIndex) -> bool:
        """Declare an index and build it; return False if it is there already and that is allowed."""
        with self._declaring() as catalog:
            before = catalog.save()
            made = catalog.create_index(create)
            if made:
                self._log([create.sql], before)
                log.info("index %s created on %s (%s)", create.name, create.relation, ", ".join(create.columns))
            return made

    def create_views(self, creates: list[st.CreateView], progress: Progress | None = None) -> list[str]:
        """Declare views, which may refer to each other in any order, and fill them."""
        coordinator = self._coordinator
        with coordinator.writer:  # so that sinks get the differences before the next epoch begins
            before = coordinator.epoch
            names, differences = self._create_views(creates, progress)
            if coordinator.epoch > before:
                for sink in coordinator.sinks:
                    sink.redefine()
                coordinator.hand_over(coordinator.epoch, differences)
            return names

    def _create_views(
        self, creates: list[st.CreateView], progress: Progress | None
    ) -> tuple[list[str], dict[str, Batch]]:
        with self._declaring() as catalog:
            before, start = catalog.save(), time.perf_counter()
            followed = self._followed(creates)
            made, remade = catalog.create_views(creates, progress)
            if made or remade:
                self._log([create.sql for create in creates], before, epoch=bool(remade))
            differences = self._report_redefined(remade, followed)
            for name in [*made, *remade]:
                rows = catalog.flow.views[name].size
                log.info("view %s created with %d rows in %.1f ms", name, rows, (time.perf_counter() - start) * 1000)
            return [*made, *remade], differences

    def drop(self, kind: str, name: str, cascade: bool = False, if_exists: bool = False) -> list[str]:
        """Remove a table or view, with CASCADE also the views that depend on it; return the names that are
        gone."""
        with self._declaring() as catalog:
            before = catalog.save()
            gone = catalog.drop(kind, name, cascade, if_exists)
            if gone:
                quoted = name.replace('"', '""')
                self._log([f'DROP {kind} "{quoted}" CASCADE'], before)
                log.info("dropped %s", ", ".join(gone))
            if kind != "index":
                self._forget(gone, "was dropped")
            return gone

    def redo(self, statements: list[str]) -> None:
        """Change the catalog as it was changed before."""
        found, coordinator = [parse_stored(sql) for sql in statements], self._coordinator
        with coordinator.paused():
            catalog = coordinator.catalog
            for statement in found:
                if isinstance(statement, st.CreateTable):
                    catalog.create_table(statement)
                    catalog.stay()
                elif isinstance(statement, st.CreateIndex):
                    catalog.redo_index(statement)
                elif isinstance(statement, st.Drop):
                    gone = catalog.drop(statement.kind, statement.name, statement.cascade)
                    catalog.stay()
                    if statement.kind != "index":
                        self._forget(gone, "was dropped")
            views = [s for s in found if isinstance(s, st.CreateView)]
            if views:
                followed = self._followed(views)
                _, remade = catalog.create_views(views)
                catalog.stay()
                self._report_redefined(remade, followed)
            coordinator.expiry.look_ahead()

    def register(self, function: ScalarFunction | TableFunction) -> None:
        """Make a Python function known to SQL. (It is not written to disk: `setup` of `whence.open` gives it again.)"""
        coordinator = self._coordinator
        with coordinator.paused():
            coordinator.check_open()
            coordinator.catalog.register(function)

    def _forget(self, names: list[str], why: str) -> None:
        for name in names:
            self._coordinator.reader.forget(name)
            self._coordinator.changed[name] = self._coordinator.epoch
            self._end_followers(name, f'"{name}" {why}: its changes have ended')

    # -- followers of views that are redefined -----------------------------------------------------------------------

    def _followed(self, creates: list[st.CreateView]) -> dict[str, Contents]:
        """Return what followers know of the views that these statements may make anew."""
        coordinator = self._coordinator
        replaced = [create.name for create in creates if create.name in coordinator.program.views]
        if not replaced:
            return {}
        again = {*replaced, *coordinator.catalog.depending(replaced)}
        return {name: Contents.of(coordinator, name) for name in again & coordinator.followed()}

    def _report_redefined(self, remade: list[str], followed: Mapping[str, Contents]) -> dict[str, Batch]:
        """Push to feeds how views that were made anew differ from what they were, or end them; return the differences
        that sinks are to get."""
        coordinator, differences = self._coordinator, dict[str, Batch]()
        for name in remade:
            coordinator.reader.forget(name)
            coordinator.changed[name] = coordinator.epoch
            if name not in followed:
                continue
            before, now = followed[name], Contents.of(coordinator, name)
            why = before.break_with(now)
            if why:
                self._end_followers(name, f'"{name}" was replaced {why}: its changes have ended')
                continue
            change = differences[name] = now.since(before)
            if name in coordinator.feeds and len(change.ann):
                coordinator.feeds.push(name, coordinator.epoch, change.rows, change.ann)
        return differences

    def _end_followers(self, name: str, why: str) -> None:
        self._coordinator.feeds.end([name], why)
        for sink in [sink for sink in self._coordinator.sinks if sink.view == name]:
            sink.end(why)
