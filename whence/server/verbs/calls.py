"""The service: every verb once, for HTTP and WebSocket alike.

A verb is a function of a call and its arguments (`arguments.py`), in a table of `VERBS`. What reads runs in a thread of
a pool, so that the event loop never waits for the database; what writes goes through the write queue, and is answered
when it is on stable storage.

The law: a verb sees of the database what its caller may read, and nothing else, errors included (`rights.py`). Every
answer says the position that it is as of; `at_least` waits until that position is readable, and a position of another
history is an error.

| module | verbs |
|---|---|
| `reading_verbs` | read, query, describe, explain, catalog, metrics, owed, late, position |
| `writing_verbs` | insert, delete, update, subscribe, transaction, execute, advance, flush |
| `message_verbs` | messages |
| `question_verbs` | why, what_if, critical, resilience, contribution, reliability, trace |
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from whence.model.errors import DataError, ExpiredError, ForbiddenError, QuestionTimeout, WhenceError
from whence.model.progress import Progress
from whence.runtime.reading.query_process import QueryRunner
from whence.server.access.rights import Rights
from whence.server.access.tokens import Caller, Tokens
from whence.server.failures import CancelledCallError, RequestError, UnknownHistoryError
from whence.server.limits import Limits, RateLimit
from whence.server.verbs import arguments as args_
from whence.server.verbs import message_verbs, question_verbs, reading_verbs, writing_verbs
from whence.server.verbs.arguments import Arguments, ReadArguments, WriteArguments, read_arguments
from whence.server.verbs.verb_calls import CallAnswer, Reading, Verb, VerbCall
from whence.server.writing.write_queue import Outcome, TableInsert, Write, WriteQueue
from whence.subscribe.positions import Position

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator
    from whence.runtime.database import Database

log = logging.getLogger("whence.server")
T = TypeVar("T")
_READERS = 4  # threads for what is answered quickly
_PAST = 4  # past epochs that are kept open
_SLOW = 1.0  # seconds after which a call is worth a line in the log
_LOOK = 0.02  # seconds between two looks at a database that another process writes


_QUESTION = "question_seconds"
VERBS: dict[str, Verb] = {
    "read": Verb(args_.ReadArguments, reading_verbs.read, quick=True),
    "query": Verb(args_.QueryArguments, reading_verbs.query),
    "describe": Verb(args_.NamedArguments, reading_verbs.describe, quick=True),
    "explain": Verb(args_.NamedArguments, reading_verbs.explain, quick=True),
    "catalog": Verb(args_.NoArguments, reading_verbs.catalog, quick=True),
    "metrics": Verb(args_.NoArguments, reading_verbs.metrics, quick=True),
    "owed": Verb(args_.NamedArguments, reading_verbs.owed, quick=True),
    "late": Verb(args_.NamedArguments, reading_verbs.late, quick=True),
    "position": Verb(args_.NoArguments, reading_verbs.position, quick=True),
    "messages": Verb(args_.MessagesArguments, write=message_verbs.messages),
    "insert": Verb(args_.InsertArguments, write=writing_verbs.insert),
    "delete": Verb(args_.DeleteArguments, write=writing_verbs.delete),
    "update": Verb(args_.UpdateArguments, write=writing_verbs.update),
    "subscribe": Verb(args_.TemplateArguments, write=writing_verbs.subscribe),
    "transaction": Verb(args_.TransactionArguments, write=writing_verbs.transaction),
    "execute": Verb(args_.ExecuteArguments, write=writing_verbs.execute),
    "advance": Verb(args_.AdvanceArguments, write=writing_verbs.advance),
    "flush": Verb(args_.FlushArguments, write=writing_verbs.flush),
    "why": Verb(args_.WhyArguments, question_verbs.why, limit=_QUESTION),
    "what_if": Verb(args_.WhatIfArguments, question_verbs.what_if, limit=_QUESTION),
    "critical": Verb(args_.CriticalArguments, question_verbs.critical, limit=_QUESTION),
    "resilience": Verb(args_.ResilienceArguments, question_verbs.resilience, limit=_QUESTION),
    "contribution": Verb(args_.ContributionArguments, question_verbs.contribution, limit=_QUESTION),
    "reliability": Verb(args_.ReliabilityArguments, question_verbs.reliability, limit=_QUESTION),
    "trace": Verb(args_.TraceArguments, question_verbs.trace, limit=_QUESTION),
}


class Service:
    """A database as its callers have it.

    >>> with whence.open() as db:
    ...     _ = db.execute("CREATE TABLE a (x INT)")
    ...     tokens = Tokens(None); queue = WriteQueue(db); service = Service(db, tokens, Rights(db), Limits(), queue)
    ...     caller = service.authenticate(tokens.printed())
    ...     answer = asyncio.run(service.call(caller, "insert", {"table": "a", "rows": [[1], [2]]}))
    ...     rows = asyncio.run(service.call(caller, "read", {"name": "a", "at_least": answer.position}))
    ...     service.close(); queue.close()
    >>> answer.value["count"], rows.table.to_pydict()
    (2, {'x': [1, 2]})
    """

    def __init__(self, db: Database, tokens: Tokens, rights: Rights, limits: Limits, write_queue: WriteQueue) -> None:
        self.db, self.tokens, self.rights, self.limits, self.write_queue = db, tokens, rights, limits, write_queue
        self._readers = ThreadPoolExecutor(_READERS, "whence reads")
        self._questions = ThreadPoolExecutor(limits.running_queries, "whence questions")
        self.query_runner = QueryRunner(limits.query_memory_bytes, most=limits.running_queries)
        self.message_logs = message_verbs.MessageLogs(self.coordinator)
        self._past: OrderedDict[int, Database] = OrderedDict()
        self._guard = threading.Lock()
        self._rates: dict[str, RateLimit] = {}
        self._rights_seen = rights.version, 0  # and up to which epoch rights may have been others
        self._calls: set[VerbCall] = set()
        self._stopping = False

    @property
    def coordinator(self) -> Coordinator:
        return self.db._coordinator

    @property
    def is_ready(self) -> bool:
        """Whether the server answers."""
        return not self._stopping and not self.coordinator.closed

    def stop(self) -> None:
        """Take no more calls; those under way go on."""
        self._stopping = True

    def cancel_calls(self) -> None:
        """End the calls that are under way."""
        for call in list(self._calls):
            call.cancelled.set()

    def close(self) -> None:
        """Answer no more calls."""
        self.stop()
        self.cancel_calls()
        for pool in (self._readers, self._questions):
            pool.shutdown(wait=False, cancel_futures=True)
        self.message_logs.close()
        self.query_runner.close()

    # -- who calls ---------------------------------------------------------------------------------------------------

    def authenticate(self, token: str | None) -> Caller:
        """Return who a token belongs to; AuthenticationError if it is none."""
        return self.tokens.check(token)

    def sees_all(self, caller: Caller) -> bool:
        """Return whether a caller may read everything."""
        try:
            return self.rights.sight(caller.who).is_whole
        except WhenceError:
            return False

    def check_rate(self, caller: Caller) -> None:
        """Refuse a caller who sends more requests than are allowed."""
        rate = self._rates.get(caller.who)
        if rate is None:
            rate = self._rates[caller.who] = RateLimit(self.limits.messages_per_second)
        if not rate.allows():
            raise RequestError(
                f"more than {self.limits.messages_per_second:,} requests per second (limit messages_per_second)",
                status=429,
            )

    # -- calls -------------------------------------------------------------------------------------------------------

    async def call(
        self,
        caller: Caller,
        verb: str,
        args: Mapping[str, Any] | Arguments,
        progress: Progress | None = None,
        cancelled: threading.Event | None = None,
    ) -> CallAnswer:
        """Answer a verb. `progress` is called from another thread; when `cancelled` is set, the call ends soon."""
        found = VERBS.get(verb)
        if found is None:
            raise RequestError(f"there is no verb {verb!r:.80}; there is {', '.join(VERBS)}", status=404)
        arguments = args if isinstance(args, Arguments) else read_arguments(found.arguments, args)
        self.check_open()
        seconds = float(getattr(self.limits, found.limit))
        asked = getattr(arguments, "timeout", None)
        call = VerbCall(self, caller, verb, progress, cancelled or threading.Event())
        call.seconds = seconds if asked is None else min(asked, seconds)
        began = time.monotonic()
        self._calls.add(call)
        try:
            at_least = getattr(arguments, "at_least", None)
            if at_least is not None:
                await self.wait_for(at_least, call.seconds)
            if found.write is not None:
                return await found.write(call, arguments)
            assert found.run is not None
            return await self._run(found, call, arguments)
        except CancelledCallError:
            self.check_open()
            raise
        finally:
            self._calls.discard(call)
            took = time.monotonic() - began
            if took > _SLOW:
                log.info("slow: %s by %s took %.1f s", verb, caller.who, took)

    def check_open(self) -> None:
        if self._stopping:
            raise RequestError("the server is stopping", status=503)

    async def _run(self, verb: Verb, call: VerbCall, arguments: Any) -> CallAnswer:
        assert verb.run is not None
        answer = partial(_answer, verb.run, call, arguments)
        return await (self.in_thread(answer, call) if verb.quick else self.in_question_thread(call, answer))

    async def in_thread(self, work: Callable[[], T], call: VerbCall | None = None) -> T:
        """Do something quick in a thread."""
        return await self._in_pool(self._readers, work, call)

    async def in_question_thread(self, call: VerbCall, work: Callable[[], T]) -> T:
        """Do something in one of the threads for what may take long; others wait for their turn."""
        return await self._in_pool(self._questions, work, call)

    async def _in_pool(self, pool: ThreadPoolExecutor, work: Callable[[], T], call: VerbCall | None) -> T:
        """A call that is cancelled while it waits for a thread does not begin."""

        def run() -> T:
            if call is not None:
                call.check_wanted()
            return work()

        try:
            future = pool.submit(run)
        except RuntimeError:
            raise RequestError("the server is stopping", status=503) from None
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if call is not None:
                call.cancelled.set()
            raise

    # -- writes ------------------------------------------------------------------------------------------------------

    async def write(
        self,
        call: VerbCall,
        write: Write,
        args: WriteArguments | None = None,
        *,
        alone: bool = False,
        rows: int = 1,
        size: int = 0,
    ) -> Outcome:
        """Have a write done, and return what became of it when it is on stable storage; raise its error."""
        if self.coordinator.storage.read_only:
            raise ForbiddenError("this server only reads its database")
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Outcome] = loop.create_future()
        publisher = None
        if args is not None and args.publisher is not None:
            publisher = own_publisher(call.caller, args.publisher)
        self.write_queue.submit(
            write,
            lambda outcome: _tell(loop, answered, outcome),
            publisher=publisher,
            number=None if args is None else args.number,
            awaiting=None if args is None else args.awaiting,
            alone=alone,
            rows=rows,
            size=size,
            timeout=None if type(write) is TableInsert else self.limits.write_seconds,  # encoded together
        )
        outcome = await asyncio.shield(answered)  # it is done even if the caller goes away
        if outcome.error is not None:
            raise outcome.error
        return outcome

    def written(self, outcome: Outcome, **more: Any) -> CallAnswer:
        """Return the answer to a write."""
        value = {"count": outcome.count, **({"repeated": True} if outcome.repeated else {}), **more}
        return CallAnswer(value, position=self.position_of(outcome.epoch))

    # -- positions ---------------------------------------------------------------------------------------------------

    def position_of(self, epoch: int) -> str:
        """Return the position of an epoch."""
        return str(self.coordinator.lineage.at(epoch))

    async def wait_for(self, text: str, seconds: float) -> None:
        """Wait until a position can be read; UnknownHistoryError if it never will be."""
        loop, end = asyncio.get_running_loop(), time.monotonic() + seconds
        if self.coordinator.storage.poll is not None:
            await loop.run_in_executor(self._readers, self.coordinator.refresh)
        epoch, reached = self.epoch_of(text), asyncio.Event()

        def news(durable: int) -> None:
            if durable >= epoch:
                loop.call_soon_threadsafe(reached.set)

        coordinator = self.coordinator
        coordinator.on_durable(news)
        try:
            while coordinator.durable_epoch < epoch:
                left = end - time.monotonic()
                if left <= 0:
                    raise QuestionTimeout(seconds, "waiting for a position", coordinator.durable_epoch, epoch)
                poll = coordinator.storage.poll
                try:
                    await asyncio.wait_for(reached.wait(), left if poll is None else min(left, _LOOK))
                except TimeoutError:
                    if poll is not None:
                        await loop.run_in_executor(self._readers, coordinator.refresh)
        finally:
            coordinator.off_durable(news)

    def epoch_of(self, text: str) -> int:
        """Return the epoch of a position; UnknownHistoryError if it is of another history."""
        position = Position.parse(text)
        try:
            return self.coordinator.hub.epoch_to_wait_for(position)
        except DataError as error:
            raise UnknownHistoryError(str(error)) from None

    async def unchanged(self, caller: Caller, args: ReadArguments, known: Iterable[str]) -> str | None:
        """Return the position of a caller's copy of some rows, if they are still the same; else None."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, self._unchanged, caller, args, list(known))

    def _unchanged(self, caller: Caller, args: ReadArguments, known: list[str]) -> str | None:
        coordinator, name = self.coordinator, args.name.lower()
        coordinator.refresh()
        # Whoever sees only some rows is not told whether the others have changed.
        if args.epoch is not None or not self.rights.sight(caller.who).reach(name, "read").every:
            return None
        with coordinator.reading():
            lineage, last = coordinator.lineage, coordinator.epoch
            changed = max(coordinator.changed.get(name, 0), lineage.era.start, self._rights_changed(last))
            for text in known:
                try:
                    position = Position.parse(text)
                except DataError:
                    continue
                if lineage.knows(position, last) and changed <= position.epoch:
                    return text
        return None

    def _rights_changed(self, last: int) -> int:
        """Return an epoch before which rights or definitions may have been others."""
        version, since = self._rights_seen
        if self.rights.version != version:
            self._rights_seen = version, since = self.rights.version, last + 1
        return since

    # -- the past ----------------------------------------------------------------------------------------------------

    def past(self, epoch: int) -> Database:
        """Return the database as it was after an epoch; the last few that were asked for are kept."""
        with self._guard:
            found = self._past.get(epoch)
            if found is not None:
                self._past.move_to_end(epoch)
                return found
        kept = self.db.retained
        if epoch >= kept.stop:
            raise DataError(f"there is no epoch {epoch} yet; the last one is {kept.stop - 1}")
        if epoch < kept.start:
            raise ExpiredError(f"epoch {epoch} is not kept any more: epochs from {kept.start} on can be read")
        found = self.db.at(epoch)
        with self._guard:
            self._past[epoch] = found
            while len(self._past) > _PAST:
                self._past.popitem(last=False)
        return found


def _answer(run: Reading, call: VerbCall, arguments: Any) -> CallAnswer:
    """Answer a verb; if it took a while, the caller must still have the rights that it needs."""
    found = run(call, arguments)
    if call.check is not None:
        call.check()
    return found


def own_publisher(caller: Caller, publisher: str) -> str:
    """Return the name under which a caller's numbered writes are noted: nobody can use another's.

    >>> own_publisher(Caller("ann"), "loader")
    'ann loader'
    """
    return f"{caller.who} {publisher}"  # a caller's name has no space


def _tell(loop: asyncio.AbstractEventLoop, future: asyncio.Future[Outcome], outcome: Outcome) -> None:
    def set_result() -> None:
        if not future.done():
            future.set_result(outcome)

    try:
        loop.call_soon_threadsafe(set_result)
    except RuntimeError:  # the loop has ended, and with it whoever asked
        log.debug("a write was done after its caller had gone")
