"""Admissions: which channel a caller's queries are, by the rights that the caller has.

Equal requests of one caller share an admission, so that a thousand connections that come back at once are one look at
their rights and one channel. Rights are rows of the database and change with an epoch: `are_current` is then False
until `check_again` has looked at every admission.

The law: an admission that is in use was given by the rights that were checked last, or is checked again before anything
of a later epoch is told (`delivery.py`).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from sqlglot import exp

from whence.model.errors import CatalogError, ForbiddenError, LimitError, MovedError, SqlError, WhenceError
from whence.plan.algebra.program import Program
from whence.runtime.coordinator import Coordinator
from whence.runtime.moved_views import moved_error
from whence.runtime.subscriptions.channels import Channel
from whence.runtime.subscriptions.queries import channel_key, followed_name, identity, parse_subscription
from whence.server.access.grants import RELATION
from whence.server.access.rights import Rights
from whence.server.access.tokens import Caller
from whence.server.delivery.explained import Allow
from whence.server.delivery.telling import ROWS_ONLY, Telling, telling_of
from whence.server.limits import Limits
from whence.server.worker_threads import WorkerThreads
from whence.subscribe.messages import Subscribe, WireFilter

log = logging.getLogger("whence.server")


@dataclass(frozen=True)
class RequestedQueries:
    """What a client subscribes to."""

    queries: tuple[str, ...]
    params: Any = None
    have: str | None = None
    every: float = 0.0
    why: bool = False
    every_change: bool = False
    ticks: bool = False
    filter: WireFilter | None = None
    reflects: Any = None
    bounds: bool | Literal["values"] = False
    ordered: bool = False

    @classmethod
    def of(cls, message: Subscribe) -> RequestedQueries:
        """Return that of a message."""
        every = message.every or 0.0
        return cls(
            tuple(message.queries),
            message.params,
            message.have,
            every,
            message.why,
            message.every_change,
            message.ticks,
            message.filter,
            message.reflects,
            message.bounds,
            message.ordered,
        )

    @property
    def takes_extras(self) -> bool:
        """Whether rows may have columns that only bounds need: not where rows are explained, or relayed, as shown."""
        return not self.why and not self.ticks

    def key(self, caller: Caller) -> tuple[Any, ...]:
        """Return what requests share that one admission will do for."""
        return caller.who, self.queries, repr(self.params), self.bounds == "values", self.takes_extras, self.ordered


@dataclass(frozen=True)
class RightsMark:
    """What rights are read from: the definitions, and the epoch in which `allowed` last changed."""

    program: Program
    changed: int
    restarts: int

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, RightsMark)
            and self.program is other.program
            and (self.changed, self.restarts) == (other.changed, other.restarts)
        )

    __hash__ = None  # type: ignore[assignment]  # it is only compared


@dataclass(eq=False)
class Admission:
    """The channel of a caller's queries. `changed` is the epoch in which rights last changed."""

    key: tuple[Any, ...]
    request: RequestedQueries
    who: str
    channel: Channel
    mark: RightsMark
    sees_all: bool  # whether the caller may read everything
    witnesses: Allow
    definitions: frozenset[str] = field(default_factory=frozenset)  # the queries that are kept by a view
    sees: tuple[bool, ...] = ()  # per query, whether the caller may read everything beneath it
    users: int = 0

    @property
    def changed(self) -> int:
        return self.mark.changed

    def telling(self, bounds: bool | Literal["values"]) -> Telling:
        """Return how bounds are told to those who have asked for them so."""
        if not bounds:
            return ROWS_ONLY
        return telling_of("values" if bounds == "values" else "program", self.sees)


class Admissions:
    """The admissions of one server. It is used by the event loop; what takes long runs in its worker threads."""

    def __init__(self, coordinator: Coordinator, rights: Rights, limits: Limits) -> None:
        self._coordinator, self._rights, self._limits, self._hub = coordinator, rights, limits, coordinator.hub
        self._shared: dict[tuple[Any, ...], Admission] = {}  # for the next who asks
        self._all: dict[Admission, None] = {}  # in the order of opening
        self._opening: dict[tuple[Any, ...], asyncio.Future[Admission]] = {}
        self._checked = self._mark()
        self._unchecked = False  # whether one was given by other rights than were checked last
        self._one_at_a_time = threading.Lock()
        self._workers: WorkerThreads | None = None

    def start(self, workers: WorkerThreads) -> None:
        """Use these threads."""
        self._workers = workers

    def close(self) -> None:
        """Let go of all channels."""
        with self._one_at_a_time:
            self._workers = None
        for admission in list(self._all):
            self._all.pop(admission, None)
            self._hub.release(admission.channel)

    # -- opening -----------------------------------------------------------------------------------------------------

    async def open(self, request: RequestedQueries, caller: Caller) -> Admission:
        """Return an admission, which is to be released; an error if the caller may not have it."""
        key = request.key(caller)
        found = self._shared.get(key)
        while found is None or found.channel.ended is not None or found.mark != self._mark():
            opening = self._opening.get(key)
            if opening is None:
                assert self._workers is not None
                opening = self._opening[key] = self._workers.run(self._open, key, request, caller)
                opening.add_done_callback(partial(self._opened, key))
            found = await asyncio.shield(opening)
            if found.channel.ended is not None:
                break  # its subscriber sees to that
        found.users += 1
        return found

    def _opened(self, key: tuple[Any, ...], opening: asyncio.Future[Admission]) -> None:
        self._opening.pop(key, None)
        if opening.cancelled() or opening.exception() is not None:
            return
        admission = opening.result()
        if self._workers is None:
            self._hub.release(admission.channel)
            return
        self._shared[key] = admission
        self._all[admission] = None
        self._unchecked = self._unchecked or admission.mark != self._checked

    def _open(self, key: tuple[Any, ...], request: RequestedQueries, caller: Caller) -> Admission:
        """Look at the rights, and open the channel. Runs in a worker thread."""
        who = caller.who
        with self._one_at_a_time:
            if self._workers is None:
                raise WhenceError("the server is stopping: it takes no more subscriptions")
            mark = self._mark()
            queries = self._restricted(request, who)
            kept = frozenset(identity(query) for query in queries if request.ordered or followed_name(query) is None)
            self._check_definitions(kept, who)
            sees_all, allow = self._rights.sight(who).is_whole, partial(self._rights.readable_witnesses, who)
            try:
                channel = self._hub.open(queries, request.takes_extras, request.ordered)
            except (CatalogError, SqlError):
                if sees_all and (moved := self.moved(request)) is not None:
                    raise moved from None
                raise
            admission = Admission(key, request, who, channel, mark, sees_all, allow, kept, self._sees(channel, who))
            try:
                admission.telling(request.bounds).prepare(channel)
            except BaseException:
                self._hub.release(channel)
                raise
            return admission

    def _sees(self, channel: Channel, who: str) -> tuple[bool, ...]:
        """Return per query whether a caller may read everything that it is made of."""
        sight = self._rights.sight(who)
        return tuple(
            sight.is_whole or (part.known is not None and all(sight.sees_all(name) for name in part.known.reads))
            for part in channel.parts
        )

    def _restricted(self, request: RequestedQueries, who: str) -> list[exp.Expr]:
        self._limits.check("queries", len(request.queries), f"a subscription to {len(request.queries):,} queries")
        parsed = [parse_subscription(text, request.params) for text in request.queries]
        return [self._rights.check_subscription(who, query) for query in parsed]

    def moved(self, request: RequestedQueries) -> MovedError | None:
        """Return the error for queries of views that are at another server now, if they are."""
        parsed = [parse_subscription(text, request.params) for text in request.queries]
        return moved_error(self._coordinator, [t.name.lower() for query in parsed for t in query.find_all(exp.Table)])

    def _check_definitions(self, kept: frozenset[str], who: str) -> None:
        """Raise an error if there are too many views already. One that is shared counts once, and for each caller."""
        admissions, hub, limits = list(self._all), self._hub, self._limits
        new = kept - {query for each in admissions for query in each.definitions}
        own = {query for each in admissions if each.who == who for query in each.definitions}
        if new and hub.counts["definitions"] + len(new) > limits.definitions:
            hub.sweep(linger=0.0)  # those that wait for their next subscriber
            if hub.counts["definitions"] + len(new) > limits.definitions:
                raise LimitError(f"the server keeps as many views for subscriptions as it may: {limits.definitions:,}")
        if kept - own:
            limits.check("definitions_per_user", len(kept | own), "views kept for your subscriptions")

    def release(self, admission: Admission) -> None:
        """Note that one who used an admission is gone."""
        admission.users -= 1
        if admission.users <= 0 and admission in self._all:
            self._all.pop(admission, None)
            if self._shared.get(admission.key) is admission:
                del self._shared[admission.key]
            if self._workers is not None:
                self._workers.run(self._hub.release, admission.channel)

    def sweep(self) -> None:
        """Let go of what was opened for somebody who had gone by then."""
        for admission in [each for each in self._all if each.users <= 0]:
            self.release(admission)

    # -- rights that change ------------------------------------------------------------------------------------------

    def _mark(self) -> RightsMark:
        coordinator = self._coordinator
        return RightsMark(coordinator.program, coordinator.changed.get(RELATION, 0), coordinator.restarts)

    @property
    def are_current(self) -> bool:
        """Whether all admissions are by the rights of now."""
        if self._all:
            return not self._unchecked and self._checked == self._mark()
        self._checked, self._unchecked = self._mark(), False
        return True

    async def check_again(self) -> list[tuple[Admission, ForbiddenError | None]]:
        """Look at all admissions by the rights of now. Return those that are over, with an error if the caller may not
        have it any more, and without one if it would be another channel now."""
        assert self._workers is not None
        mark = self._mark()
        stale = [each for each in self._all if each.mark != mark]
        outcomes = await self._workers.run(self._check, stale)
        found = list[tuple[Admission, ForbiddenError | None]]()
        for admission, (changed, error) in zip(stale, outcomes, strict=True):
            admission.mark = mark
            if changed:
                found.append((admission, error))
                if self._shared.get(admission.key) is admission:
                    del self._shared[admission.key]
        if all(each.mark == mark for each in self._all):
            self._checked, self._unchecked = mark, False
        if found:
            log.info("rights changed: %d of %d subscribed queries with them", len(found), len(stale))
        return found

    def _check(self, stale: list[Admission]) -> list[tuple[bool, ForbiddenError | None]]:
        return [self._check_one(each) for each in stale]

    def _check_one(self, admission: Admission) -> tuple[bool, ForbiddenError | None]:
        """Return whether an admission is over, and the error if it is denied. Runs in a worker thread."""
        error: ForbiddenError | None = None
        key: tuple[str, ...] = ()
        try:
            admission.sees_all = self._rights.sight(admission.who).is_whole
            request = admission.request
            key = channel_key(self._restricted(request, admission.who), request.takes_extras, request.ordered)
        except WhenceError:
            error = ForbiddenError("you may not read this any more")
        if admission.channel.ended is not None:
            return False, None  # it is opened again anyway, with the error that is due then
        changed = error is not None or key != admission.channel.key
        return changed or self._sees(admission.channel, admission.who) != admission.sees, error
