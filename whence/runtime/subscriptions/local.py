"""`db.subscribe`: a subscription in this process, with the updates that a client of a server gets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from whence.engine.core.operator import Batch
from whence.io.rows import expand, to_tuples
from whence.model.budget import Timeout, seconds_of
from whence.model.errors import CatalogError, QuestionTimeout, WhenceError
from whence.model.types import Schema
from whence.runtime.subscriptions.channels import Channel, signs_of
from whence.runtime.subscriptions.queries import parse_subscription
from whence.runtime.subscriptions.triggers import Trigger
from whence.runtime.subscriptions.witnesses import WITNESSES, Explained, at_one_epoch, explain_rows
from whence.sql.parameters import Params
from whence.subscribe.cursor import Cursor, Step, TellLost, TellState, TellUpdate
from whence.subscribe.positions import Position
from whence.subscribe.updates import SubscribedRows, Update, named_queries

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator

Row = tuple[Any, ...]
_NAN = float("nan")  # one object, so that rows with it are found again


class LocalSubscription:
    """Updates of queries in this process (`Database.subscribe`). Iterating ends when it has caught up, and may be
    resumed.

    rows      the rows as of the last update, of the first query
    position  the position of the last update; None before the first
    id        the id of the subscription, if it is to a template

    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); subscription = db.subscribe("a")
    >>> [update.came for update in subscription]
    [[]]
    >>> _ = db.insert("a", [(1,), (2,)]); [sorted(update.came) for update in subscription], sorted(subscription.rows)
    ([[(1,), (2,)]], [(1,), (2,)])
    >>> subscription.position.epoch; subscription.close()
    1
    """

    id: int | None = None

    def __init__(
        self,
        coordinator: Coordinator,
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
    ) -> None:
        names, texts = named_queries(queries)
        self._coordinator, self._hub, self._why = coordinator, coordinator.hub, why
        given = None if rows is None else [list(rows)] if isinstance(queries, str) else [list(part) for part in rows]
        self._state = SubscribedRows(names, key, given)
        since = None if have is None else self._hub.since(have)
        self._cursor = Cursor(since, 0.0 if every is None else seconds_of(every), every_change)
        if since is None and have is not None:
            self._cursor.restart("restarted")
        self._news = threading.Condition()
        self._closed = False
        self._seen = dict(reflects or {}) if since is None else {}  # at another broker
        parsed = [parse_subscription(text, params) for text in texts]
        waits = when is not None
        self._channel: Channel = self._hub.open(parsed, not why, ordered, waits)  # rows are explained as they are shown
        self._trigger: Trigger | None = None
        try:
            if when is not None:
                self._trigger = Trigger(coordinator, when, params, [part.name for part in self._channel.parts])
            self._describe()
            if since is not None:
                self._state.begin(self._channel.horizons(since))
        except BaseException:
            if self._trigger is not None:
                self._trigger.close()
            self._hub.release(self._channel, waits)
            raise
        self._hub.listen(self._wake)

    @property
    def rows(self) -> list[Row]:
        return self._state.first_rows

    @property
    def position(self) -> Position | None:
        return self._state.position

    def __iter__(self) -> Iterator[Update]:
        while (update := self._next()) is not None:
            yield update

    def follow(self, timeout: Timeout = None) -> Iterator[Update]:
        """Yield updates as they come, until `close`; end after a time in which there was none.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); subscription = db.subscribe("a")
        >>> _ = db.insert("a", (1,)); [update.rows for update in subscription.follow(timeout=0.01)]
        [[(1,)]]
        """
        patience = None if timeout is None else seconds_of(timeout)
        quiet_since = time.monotonic()
        while not self._closed:
            for update in self:
                yield update
                quiet_since = time.monotonic()
            left = None if patience is None else quiet_since + patience - time.monotonic()
            if left is not None and left <= 0:
                return
            self._sleep(left)

    def wait_for(self, position: Position | str, timeout: Timeout = None) -> Update:
        """Return the update that reaches a position, passing over those before it: `rows` are then as of it or later.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); subscription = db.subscribe("a")
        >>> _ = db.insert("a", (1,)); subscription.wait_for(db.position).rows
        [(1,)]
        """
        epoch = self._hub.epoch_to_wait_for(position)
        seconds = None if timeout is None else seconds_of(timeout)
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            self._cursor.wait_for(epoch)
            for update in self:
                if update.position.epoch >= epoch:
                    return update
            last = self._state.position
            if last is not None and last.epoch >= epoch:
                return self._state.unchanged()
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                raise QuestionTimeout(seconds or 0.0, "waiting for a position", self._hub.told, epoch)
            self._sleep(left)

    def close(self) -> None:
        """End the subscription. A `with` statement does this at its end.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)")
        >>> with db.subscribe("a") as subscription: len(list(subscription))
        1
        """
        if not self._closed:
            self._closed = True
            self._hub.unlisten(self._wake)
            if self._trigger is not None:
                self._trigger.close()
            self._hub.release(self._channel, self._trigger is not None)
            self._wake(())

    def cancel(self) -> None:
        """End the subscription, and if it is to a template delete it from the template's table.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); db.subscribe("a").cancel()
        """
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # -- one step ----------------------------------------------------------------------------------------------------

    def _wake(self, changed: Sequence[Channel]) -> None:
        with self._news:
            self._news.notify_all()

    def _sleep(self, left: float | None) -> None:
        """Wait for news, for the next update that is due, or where nothing tells of news a short while."""
        due = self._cursor.not_before - time.monotonic()
        pauses = [p for p in (left, self._coordinator.storage.poll, due if due > 0 else None) if p is not None]
        with self._news:
            self._news.wait(min([*pauses, 0.5]))

    def _next(self) -> Update | None:
        while not self._closed:
            if self._channel.ended is not None:
                self._reopen()
            due = told = self._hub.catch_up() if not self._why or self._trigger is not None else 0
            if self._trigger is not None:
                found = self._trigger.due(told)
                if found is None:
                    return None
                due = told = found
            if self._why:
                explained = at_one_epoch(self._coordinator, self._explained_step)()
                self._note_told(due)
                return explained
            self._channel.advance(told)
            if not self._reflects_as_much(told):
                return None
            step = self._cursor.next(self._channel.moves, told, time.monotonic())
            if step is None:
                self._note_told(due)
                return None
            if isinstance(step, TellState) and self._hub.lacks_rows(self._coordinator.epoch):
                return None
            update = self._take(step)
            if update is not None and not update._is_idle:
                return update
        return None

    def _note_told(self, epoch: int) -> None:
        """Wait for the condition to turn true again, if there is one."""
        if self._trigger is not None:
            self._trigger.done(epoch)

    def _reflects_as_much(self, told: int) -> bool:
        """Note what is reflected of sources; return whether that is as much as was seen elsewhere."""
        doubt = self._coordinator.doubt_of(self._channel)
        if doubt is None:
            return True
        self._state.reflects, self._state.waiting_for = doubt.reflects(told), doubt.waiting_for(told)
        if self._seen and not doubt.has_seen(self._seen, told):
            return False
        self._seen = {}
        return True

    def _reopen(self) -> None:
        """Go on with the queries as they are defined now; CatalogError if that is not possible."""
        if self._coordinator.closed:
            self.close()
            return
        why = self._channel.ended
        try:
            self._channel = self._hub.open_again(self._channel, self._trigger is not None)
        except WhenceError as error:
            self.close()
            raise CatalogError(f"{why}; {error}") from None
        self._cursor.restart("redefined")
        self._describe()

    def _describe(self) -> None:
        self._state.describe(self._channel.shown_schemas, self._channel.facts)

    def _take(self, step: Step) -> Update | None:
        hub, cursor, channel = self._hub, self._cursor, self._channel
        match step:
            case TellLost(since):
                self._state.lose(hub.position(since), hub.position(hub.told))
                return None
            case TellState(reason):
                found = hub.snapshot(channel)
                if len(found.parts) < len(channel.parts):
                    return None  # it has ended meanwhile
                states = [self._tuples(expand(*part), schema) for part, schema in self._with_schemas(found.parts)]
                cursor.reached(found.epoch, time.monotonic())
                told = [(rows, None) for rows in states]
                horizons = channel.horizons(found.epoch)
                return self._state.replace(hub.position(found.epoch), found.time, told, reason, horizons)
            case TellUpdate(_, since, upto):
                batches = channel.difference(since, upto)
                if batches is None:
                    return None  # the ring has moved on: the next step says so
                closed = any(each.next_change(since, upto) is not None for each in channel.closings)
                if not any(len(batch.ann) for batch in batches) and not cursor.is_waited_for and not closed:
                    cursor.passed(upto)
                    return None
                changes = [(went, came, None) for went, came in self._changes(batches)]
                cursor.reached(upto, time.monotonic())
                return self._state.update(hub.position(upto), self._time(upto), changes, channel.horizons(upto))

    def _time(self, epoch: int) -> int:
        last = [found[1] for recent in self._channel.recents if (found := recent.last_change(epoch)) is not None]
        return max(last, default=self._coordinator.time)

    def _changes(self, batches: Sequence[Batch]) -> Iterator[tuple[list[Row], list[Row]]]:
        for batch, schema in self._with_schemas(batches):
            went, came = signs_of(batch)
            yield self._tuples(went, schema), self._tuples(came, schema)

    def _with_schemas(self, parts: Sequence[Any]) -> Iterator[tuple[Any, Schema]]:
        return zip(parts, self._channel.schemas, strict=True)

    def _tuples(self, codes: Any, schema: Schema) -> list[Row]:
        if not len(codes):
            return []
        rows = to_tuples(codes, schema, self._coordinator.dictionary)
        if any(value != value for row in rows for value in row):
            rows = [tuple(_NAN if value != value else value for value in row) for row in rows]
        return rows

    # -- with witnesses ----------------------------------------------------------------------------------------------

    def _explained_step(self, epoch: int) -> Callable[[], Update | None]:
        """Take the next step at an epoch, under the locks; return what makes an update of it without them."""
        channel, cursor, hub, now = self._channel, self._cursor, self._hub, time.monotonic()
        channel.advance(epoch)
        step = cursor.next(channel.moves, epoch, now)
        while isinstance(step, TellLost):
            self._state.lose(hub.position(step.since), hub.position(epoch))
            step = cursor.next(channel.moves, epoch, now)
        if step is None:
            return lambda: None
        upto, reason = epoch, step.reason if isinstance(step, TellState) else ""
        if isinstance(step, TellState):
            contents = [self._coordinator.reader.contents(part.name) for part in channel.parts]
            changes: list[tuple[list[Row], list[Row]]] = [
                ([], self._tuples(expand(*part), schema)) for part, schema in self._with_schemas(contents)
            ]
        else:
            upto = step.upto
            changes = list(self._changes(channel.difference(step.since, upto) or []))
        closed = not reason and any(each.next_change(step.since, upto) is not None for each in channel.closings)  # type: ignore[union-attr]  # an update
        if not any(went or came for went, came in changes) and not cursor.is_waited_for and not reason and not closed:
            cursor.passed(upto)
            return lambda: None
        explained = [explain_rows(self._coordinator, channel, i, came) for i, (_, came) in enumerate(changes)]
        cursor.reached(upto, now)
        position, at, horizons = hub.position(upto), self._time(upto), channel.horizons(upto)

        def make() -> Update:
            why = [[_witnesses_of(one) for one in part] for part in explained]
            if reason:
                states = [(came, found) for (_, came), found in zip(changes, why, strict=True)]
                return self._state.replace(position, at, states, reason, horizons)
            told = [(went, came, found) for (went, came), found in zip(changes, why, strict=True)]
            return self._state.update(position, at, told, horizons)

        return make


def _witnesses_of(explained: Explained | None) -> list[Any] | None:
    return None if explained is None else explained.witnesses()[:WITNESSES]
