"""Change what a database declares: CREATE and DROP, between two epochs, whole or not at all.

A change is carried out by the partitions, then its statements are written to the log, and only then is it committed; an
error undoes it. Feeds and sinks of a view that is redefined are given how its contents differ, or end.

Transient views (`transient_views.py`) are neither in the log nor in an epoch of their own, and never in the way: a
change of what one reads drops it first, and its feeds end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from sqlglot import exp

from whence.engine.core.epoch import Epoch
from whence.engine.core.operator import Batch
from whence.model.errors import CatalogError, WhenceError
from whence.model.progress import Progress
from whence.plan.algebra.logical import Node
from whence.plan.algebra.program import (
    ScalarFunction,
    TableFunction,
    is_internal,
    is_template,
    template_name,
    transient_name,
)
from whence.plan.recursion.strata import dependents
from whence.runtime.catalog import Catalog, Saved, reselected, table_kind
from whence.runtime.definitions import Contents
from whence.runtime.lookups.caches import UnansweredError
from whence.runtime.transient_views import QUERY, reason_of_end, without_name
from whence.sql import statements as st
from whence.sql.parse import parse_query, parse_stored
from whence.subscribe.results import is_result

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator

log = logging.getLogger("whence")


class SchemaChanges:
    """Changes the catalog of one coordinator."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._transient = 0  # the number of the last transient view

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
                before = coordinator.catalog.save()
                try:
                    yield coordinator.catalog
                finally:  # an error may come after the change has been committed
                    self._end_transient(before)
                    self._end_reselected(before)
                coordinator.expiry.look_ahead()
                coordinator.silence.declare()
            coordinator.note_committed()
            written = coordinator.storage.last
        coordinator.storage.wait_durable(written)

    def _log(self, statements: list[str], before: Saved, epoch: bool = False) -> None:
        """Write down what has changed the catalog and commit it, or undo it; with `epoch` in an epoch of its own."""
        coordinator = self._coordinator
        last = coordinator.epoch, coordinator.time
        try:
            with coordinator.storage.appending():
                if epoch:
                    coordinator.advance()
                coordinator.storage.write_statements(statements)
        except BaseException:
            coordinator.epoch, coordinator.time = last
            coordinator.catalog.go_back(before)
            raise
        coordinator.catalog.stay()

    def create_table(self, create: st.CreateTable, internal: bool = False) -> bool:
        """Declare a table; return False if it is there already and that is allowed."""
        if not internal:
            _check_name(create.table.name)
            if is_result(create.table):
                raise CatalogError("query and sources are no options of a source that users make")
        if create.table.source is not None:
            self._coordinator.check_can_have_sources()
        with self._declaring() as catalog:
            before = catalog.save()
            made = catalog.create_table(create)
            if made:
                self._log([create.sql], before)
                log.info("%s %s created", table_kind(create.table), create.table.name)
            return made

    def create_template(self, create: st.CreateTemplate, progress: Progress | None = None) -> bool:
        """Declare a template and fill its view; return False if it is there already and that is allowed."""
        _check_name(create.template)
        with self._declaring() as catalog:
            before = catalog.save()
            made = catalog.create_template(create, progress)
            if made:
                name = create.template
                table = [catalog.program.tables[name].sql] if name not in before.program.tables else []
                self._log([*table, create.sql], before)
                log.info("template %s created", name)
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
        for create in creates:
            _check_name(create.name)
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
        while True:
            try:
                return self._try_creating_views(creates, progress)
            except UnansweredError as missing:  # by the rows that a stream has
                coordinator = self._coordinator
                epoch = Epoch(coordinator.epoch + 1, coordinator.clock.now(), {})
                coordinator.apply(coordinator.lookups.answer(epoch, missing.keys), record=True)

    def _try_creating_views(
        self, creates: list[st.CreateView], progress: Progress | None
    ) -> tuple[list[str], dict[str, Batch]]:
        with self._declaring() as catalog:
            before, start = catalog.save(), time.perf_counter()
            followed = self._followed(creates)
            made, remade = catalog.create_views(creates, progress)
            try:
                self._coordinator.check_answered(catalog.backend.take_asked())
            except UnansweredError:
                catalog.go_back(before)
                raise
            if made or remade:
                self._log([create.sql for create in creates], before, epoch=bool(remade))
            differences = self._report_redefined(remade, followed)
            self._end_rebound(before)
            for name in [*made, *remade]:
                rows = catalog.flow.views[name].size
                log.info("view %s created with %d rows in %.1f ms", name, rows, (time.perf_counter() - start) * 1000)
            return [*made, *remade], differences

    def drop(self, kind: str, name: str, cascade: bool = False, if_exists: bool = False) -> list[str]:
        """Remove a table or view, with CASCADE also the views that depend on it; return the names that are gone.

        It is an epoch of its own, so that no position means both what was dropped and what is created in its place."""
        coordinator = self._coordinator
        with coordinator.writer:  # so that sinks note the epoch before the next one begins
            last = coordinator.epoch
            gone = self._drop(kind, name, cascade, if_exists)
            if coordinator.epoch > last:
                coordinator.hand_over(coordinator.epoch, {})
            return gone

    def _drop(self, kind: str, name: str, cascade: bool, if_exists: bool) -> list[str]:
        with self._declaring() as catalog:
            before = catalog.save()
            gone = catalog.drop(kind, name, cascade, if_exists)
            if gone:
                quoted = name.replace('"', '""')
                self._log([f'DROP {kind} "{quoted}" CASCADE'], before, epoch=kind != "index")
                log.info("dropped %s", ", ".join(gone))
            if kind != "index":
                self._forget(gone, "was dropped")
            return gone

    def renew(self, streams: Sequence[str], over: Sequence[str]) -> None:
        """Have streams without rows in place of those that there are, and make the views over some tables anew. One
        record of the log, so that it happens whole or not at all."""
        coordinator = self._coordinator
        with coordinator.writer:
            with self._declaring() as catalog:
                before, program = catalog.save(), catalog.program
                views = [program.views[each] for each in catalog.depending(over)]
                tables = [program.tables[each] for each in streams]
                drops = [("view", view.name) for view in views] + [(table_kind(table), table.name) for table in tables]
                gone = list[str]()
                for kind, name in drops:
                    gone += catalog.drop(kind, name, cascade=True, if_exists=True)
                    catalog.stay()
                for table in tables:
                    create = parse_stored(table.sql)
                    assert isinstance(create, st.CreateTable)
                    catalog.create_table(create)
                    catalog.stay()
                creates = [parse_stored(view.sql) for view in views]
                if creates:
                    catalog.create_views([each for each in creates if isinstance(each, st.CreateView)])
                statements = [f"DROP {kind} IF EXISTS {_quoted(name)} CASCADE" for kind, name in drops]
                statements += [*(table.sql for table in tables), *(view.sql for view in views)]
                self._log(statements, before, epoch=True)
                self._forget([*dict.fromkeys(gone)], "was begun anew")
            coordinator.hand_over(coordinator.epoch, {})

    def use_rows(self, names: Sequence[str]) -> None:
        """Drop results of sources, and their promise twins; views that read them are made anew over rows. Followers of
        these are told the difference."""
        coordinator = self._coordinator
        with coordinator.writer:
            with self._declaring() as catalog:
                before, drops = catalog.save(), list[str]()
                again = {d for name in names for d in dependents(catalog.planned, name)}
                again = {catalog.planned.views[name].owner or name for name in again}
                followed = {
                    n: Contents.of(coordinator, n) for n in again & coordinator.followed() if n in before.program.views
                }
                for name in names:
                    kind = table_kind(catalog.program.tables[name])
                    catalog.drop(kind, name, cascade=True)
                    catalog.stay()
                    drops.append(f"DROP {kind} IF EXISTS {_quoted(name)} CASCADE")
                self._log(drops, before, epoch=True)
                self._forget(list(names), "is not asked for any more")
                differences = self._report_redefined([n for n in again if n in catalog.program.views], followed)
            for sink in coordinator.sinks:
                sink.redefine()
            coordinator.hand_over(coordinator.epoch, differences)

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
                    gone = catalog.drop(statement.kind, statement.name, statement.cascade, statement.if_exists)
                    catalog.stay()
                    if statement.kind != "index":
                        self._forget(gone, "was dropped")
            views = [s for s in found if isinstance(s, st.CreateView)]
            if views:
                followed, before = self._followed(views), catalog.save()
                _, remade = catalog.create_views(views)
                catalog.backend.take_asked()
                catalog.stay()
                self._report_redefined(remade, followed)
                self._end_rebound(before)
            coordinator.expiry.look_ahead()
            coordinator.silence.declare()

    def register(self, function: ScalarFunction | TableFunction) -> None:
        """Make a Python function known to SQL. (It is not written to disk: `setup` of `whence.open` gives it again.)"""
        coordinator = self._coordinator
        with coordinator.paused():
            coordinator.check_open()
            catalog = coordinator.catalog
            calling = [name for name, each in catalog.transient.items() if each.calls(function.name)]
            if calling:
                catalog.drop_transient(calling)
                catalog.stay()
                why = f'the function "{function.name}", which {QUERY} calls, was redefined: its changes have ended'
                self._forget_transient(calling, why)
            catalog.register(function)

    # -- transient views ---------------------------------------------------------------------------------------------

    def create_transient(
        self, select: str | exp.Expr, progress: Progress | None = None, extras: bool = False, ordered: bool = False
    ) -> str:
        """Make and fill a view of one SELECT, for as long as somebody subscribes to it; return its name. With `extras`
        it has the columns that bounds of its rows need, behind those of the SELECT. With `ordered` it takes the rows of
        sources in the order of ticks.

        It is in no log and no image, and only its name leads to it. It is gone when `drop_transient` says so, when what
        it reads is dropped or redefined, when it fails on new rows, and when the database begins again after a failed
        sync: then its feeds end, and say why."""
        coordinator, sql = self._coordinator, select if isinstance(select, str) else ""
        query = parse_query(select).query.copy() if isinstance(select, str) else select.copy()
        broker = coordinator.broker
        with broker.preparing_query(query, ordered) if broker is not None else nullcontext():
            return self._create_transient(query, sql, progress, extras, ordered)

    def create_transient_plan(self, plan: Node) -> str:
        """Make and fill a view of a query that is bound, as `create_transient` does."""
        return self._create_transient(plan, "", None, extras=False, ordered=False)

    def _create_transient(
        self, query: exp.Expr | Node, sql: str, progress: Progress | None, extras: bool, ordered: bool
    ) -> str:
        coordinator = self._coordinator
        with coordinator.writer:
            coordinator.check_open()
            if coordinator.storage.read_only:
                raise WhenceError(
                    "this database is open for reading only, and keeps no view of a query up to date: subscribe where "
                    "it is written to, or read it again"
                )
            coordinator.storage.ready_to_write()
            if coordinator.open_transaction is not None:
                raise WhenceError("a subscription cannot begin inside a transaction: end it first")
            with coordinator.state:
                catalog, start = coordinator.catalog, time.perf_counter()
                self._transient += 1
                name = transient_name(self._transient)
                catalog.create_transient(name, query, sql, _named(progress, name), extras, ordered)
                catalog.stay()
                coordinator.silence.declare()
                reads = catalog.transient[name].reads
        if coordinator.broker is not None:
            coordinator.broker.follow_in_order(reads, ordered)
        log.debug("view %s of a subscription filled in %.1f ms", name, (time.perf_counter() - start) * 1000)
        return name

    def drop_transient(self, *names: str) -> None:
        """Remove transient views; those that are gone already are no error. Their feeds end without one."""
        coordinator = self._coordinator
        with coordinator.paused():
            there = [name for name in names if name in coordinator.catalog.transient]
            if there and not coordinator.closed:
                coordinator.catalog.drop_transient(there)
                coordinator.catalog.stay()
                coordinator.silence.declare()
                self._forget_transient(there, "")

    def drop_failed(self, error: WhenceError) -> bool:
        """Remove the transient views for which an epoch failed: it is theirs to fail, not a writer's. Return whether
        there were any. Both locks are held, and what was run has been undone."""
        catalog = self._coordinator.catalog
        failed = catalog.blamed(error)
        if failed:
            catalog.drop_transient(failed)
            catalog.stay()
            for name in failed:
                log.warning("a query that is subscribed to failed on new rows: %s", without_name(str(error), name))
                self._forget_transient([name], f"{QUERY} failed on new rows: {without_name(str(error), name)}")
        return bool(failed)

    def _end_transient(self, before: Saved) -> None:
        """End the feeds of transient views that a change of the catalog has dropped."""
        catalog = self._coordinator.catalog
        for name in before.transient.keys() - catalog.transient.keys():
            self._forget_transient([name], reason_of_end(before.transient[name], before.program, catalog.program))

    def _forget_transient(self, names: list[str], why: str) -> None:
        coordinator = self._coordinator
        for name in names:
            coordinator.reader.forget(name)
            coordinator.changed.pop(name, None)
        coordinator.feeds.end(names, why)

    # -- followers of views that are dropped, or run otherwise -------------------------------------------------------

    def _end_reselected(self, before: Saved) -> None:
        """End the feeds of views that show other rows since another view that reads them came or went."""
        catalog = self._coordinator.catalog
        if before.planned is not catalog.planned:
            names = reselected(before, catalog.save())
            self._forget(names, "is cut down to other rows since a view that reads it came or went")

    def _forget(self, names: list[str], why: str) -> None:
        for name in names:
            self._coordinator.reader.forget(name)
            self._coordinator.changed[name] = self._coordinator.epoch
            self._coordinator.horizon_history.forget(name)
            for followed in (name, template_name(name)):
                self._end_followers(followed, f'"{name}" {why}: its changes have ended')

    # -- followers of views that are redefined -----------------------------------------------------------------------

    def _followed(self, creates: list[st.CreateView]) -> dict[str, Contents]:
        """Return what followers know of the views that these statements may make anew."""
        coordinator = self._coordinator
        replaced = [create.name for create in creates if create.name in coordinator.program.views]
        if not replaced:
            return {}
        again = {*replaced, *coordinator.catalog.depending(replaced)}
        return {
            name: Contents.of(coordinator, name) for name in again & coordinator.followed() if not is_template(name)
        }

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

    def _end_rebound(self, before: Saved) -> None:
        """End the notifications of templates that read views which were replaced."""
        views = self._coordinator.program.views
        for template in before.program.templates:
            name = template_name(template)
            if name in views and views[name] is not before.program.views[name]:
                why = f'"{template}" reads a view that was replaced: its notifications have ended; ask for them again'
                self._end_followers(name, why)

    def _end_followers(self, name: str, why: str) -> None:
        self._coordinator.feeds.end([name], why)
        for sink in [sink for sink in self._coordinator.sinks if sink.view == name]:
            sink.end(why)


def _check_name(name: str) -> None:
    """Refuse a name that only views of subscriptions and the database's own tables may have."""
    if is_internal(name):
        raise CatalogError(f'"{name}" begins as only names of the database\'s own do: choose another name')


def _quoted(name: str) -> str:
    quoted = name.replace('"', '""')
    return f'"{quoted}"'


def _named(progress: Progress | None, name: str) -> Progress | None:
    """Return what is told of the progress of a transient view, without its name."""
    if progress is None:
        return None
    return lambda what, done, total: progress(without_name(what, name), done, total)
