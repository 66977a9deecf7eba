"""Messages of templates over the network: each template's are made once, and held for everybody who asks.

A client asks for what came after a position, and waits for it; what it is told ends at another position, from which it
asks again. So a call may be repeated after a lost connection, and the server knows nothing of who asks.

The law: answers that begin where the one before ended have every message once, in the order of epochs, all messages of
an epoch in one answer. Where that cannot be, since messages are not held any more, it is an ExpiredError. Messages of
epochs that are not on stable storage are not told.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from whence.io.arrow import arrow_schema
from whence.model.errors import ExpiredError, ForbiddenError, QuestionTimeout
from whence.runtime.reading.template_messages import Messages, follow_messages, is_ended, reached, wire_schema
from whence.server.access.sight import quote_name
from whence.server.verbs.arguments import MessagesArguments
from whence.server.verbs.verb_calls import CallAnswer, VerbCall
from whence.subscribe.rectangles import Message, wire_rows

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator

HELD = 100_000  # messages of a template
IDLE = 300.0  # seconds without a call after which the messages of a template are not made any more
LONGEST = 30.0  # seconds that a call waits for a message
_PAUSE = 1.0  # seconds between two looks at whether a call is still wanted


class MessageLog:
    """The last messages of a template, since this was made."""

    def __init__(self, coordinator: Coordinator, template: str) -> None:
        self._coordinator, self.feed = coordinator, follow_messages(coordinator, template)
        self._first = self.feed.since  # all messages after this epoch are held
        self._held: deque[Message] = deque()
        self._guard = threading.Lock()
        self.used = time.monotonic()

    def read(self, after: int | None) -> tuple[int, list[Message]]:
        """Return the last epoch that can be told, and the messages after another one up to it."""
        self.used = time.monotonic()
        with self._guard:
            last = min(reached(self.feed), self._coordinator.durable_epoch)
            self._held.extend(self.feed)
            while len(self._held) > HELD:  # whole epochs
                self._first = self._held[0].epoch
                while self._held and self._held[0].epoch == self._first:
                    self._held.popleft()
            if after is None:
                return last, []
            if after < self._first:
                raise ExpiredError(
                    f"messages of {self.feed.template} after epoch {after} are not held any more, only those after "
                    f"{self._first}: read the answers anew, and ask for messages from now on"
                )
            return last, [message for message in self._held if after < message.epoch <= last]


class MessageLogs:
    """The logs of a server, by template. One that nobody has asked for in a while ends."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._logs: dict[str, MessageLog] = {}
        self._guard = threading.Lock()
        coordinator.on_durable(self._end_idle_later)

    def of(self, template: str) -> MessageLog:
        """Return the log of a template, made if there is none, or if it was dropped and made anew."""
        with self._guard:
            found = self._logs.get(template)
            if found is None or is_ended(found.feed):
                found = self._logs[template] = MessageLog(self._coordinator, template)
            found.used = time.monotonic()
            return found

    def _end_idle_later(self, durable: int) -> None:
        if any(self._is_idle(log) for log in list(self._logs.values())):
            threading.Thread(target=self._end_idle, name="whence messages", daemon=True).start()

    def _end_idle(self) -> None:
        with self._guard:
            for template in [name for name, log in self._logs.items() if self._is_idle(log)]:
                self._logs.pop(template).feed.close()

    @staticmethod
    def _is_idle(log: MessageLog) -> bool:
        return time.monotonic() - log.used > IDLE

    def close(self) -> None:
        """End all logs."""
        self._coordinator.off_durable(self._end_idle_later)
        with self._guard:
            self._logs.clear()


async def messages(call: VerbCall, args: MessagesArguments) -> CallAnswer:
    """Return the messages of a template after a position; wait for one for a while. Without a position, return the one
    to begin from."""
    service, end = call.service, time.monotonic() + min(args.wait, LONGEST)
    log = await service.in_question_thread(call, partial(_open, call, args.template.lower()))
    after = None if args.after is None else service.epoch_of(args.after)
    while True:
        last, found = await service.in_thread(partial(log.read, after), call)
        left = end - time.monotonic()
        if found or after is None or left <= 0:
            _check(call, args.template.lower())
            service.limits.check("result_rows", len(found), f"an answer of {len(found):,} messages")
            return CallAnswer(table=message_table(log.feed, found), position=service.position_of(last))
        call.check_wanted()
        try:
            await service.wait_for(service.position_of(last + 1), min(left, _PAUSE))
        except QuestionTimeout:
            continue


def _open(call: VerbCall, template: str) -> MessageLog:
    call.service.coordinator.refresh()
    _check(call, template)
    return call.service.message_logs.of(template)


def _check(call: VerbCall, template: str) -> None:
    """Messages are of rows that any subscription may select: they take the right to read all subscriptions."""
    sight = call.rights.sight(call.who)
    sight.check(template, "read")
    if not sight.reach(template, "read").every:
        raise ForbiddenError(f"messages are for those who may read all rows of {quote_name(template)}")


def message_table(feed: Messages, found: list[Message]) -> pa.Table:
    """Return messages as rows (`rectangles.py` has the columns)."""
    schema = arrow_schema(wire_schema(feed))
    rows = [row for message in found for row in wire_rows(message)]
    arrays = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(schema)]
    return pa.Table.from_arrays(arrays, schema=schema)
