"""A call of a verb: who calls, what is asked, and how it is ended; and what it answers.

The law: a call that is cancelled or whose time is up ends at its next report of progress, and has changed nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from whence.model.budget import within
from whence.model.progress import Progress
from whence.server.access.rights import Rights
from whence.server.access.tokens import Caller
from whence.server.failures import CancelledCallError
from whence.server.verbs.arguments import Arguments
from whence.server.web.formats import arrow_bytes, plain_rows, table_schema
from whence.subscribe.plain import plain_schema

if TYPE_CHECKING:
    from whence.runtime.database import Database
    from whence.server.verbs.calls import Service


@dataclass(frozen=True)
class CallAnswer:
    """What a verb returns: a value that JSON can have, or rows; and the position that it is as of.

    `text`, `html` and `dot` are other forms of an explanation."""

    value: Any = None
    table: pa.Table | None = None
    position: str | None = None
    text: str = ""
    html: str = ""
    dot: str = ""

    def to_value(self, arrow: bool = False) -> Any:
        """Return it as a message has it: rows as lists of plain values, or as an Arrow stream.

        >>> CallAnswer(table=pa.table({"a": [1]}), position="x.y.7").to_value()
        {'columns': [('a', 'BIGINT')], 'rows': [[1]], 'position': 'x.y.7'}
        """
        if self.table is not None:
            if arrow:
                return {"arrow": arrow_bytes(self.table), "position": self.position}
            columns = plain_schema(table_schema(self.table))
            return {"columns": columns, "rows": plain_rows(self.table), "position": self.position}
        if not isinstance(self.value, dict):
            return self.value
        shown = {name: text for name in ("text", "html", "dot") if (text := getattr(self, name))}
        place = {} if self.position is None else {"position": self.position}
        return {**self.value, **shown, **place}


@dataclass(eq=False)
class VerbCall:
    """A call under way: who calls, with what rights, and how it is ended."""

    service: Service
    caller: Caller
    verb: str
    progress: Progress | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    seconds: float | None = None  # how long it may take
    check: Callable[[], None] | None = None  # raises an error unless the caller still has the rights for it

    @property
    def who(self) -> str:
        return self.caller.who

    @property
    def rights(self) -> Rights:
        return self.service.rights

    def reach(self, what: str, done: int, total: int) -> None:
        """Report progress; end the call if nobody wants it any more."""
        self.check_wanted()
        if self.progress is not None:
            self.progress(what, done, total)

    def check_wanted(self) -> None:
        """End the call if nobody wants it any more."""
        if self.cancelled.is_set():
            raise CancelledCallError("the call was cancelled")

    def within(self) -> AbstractContextManager[None]:
        """Give what runs inside the time and the progress of the call."""
        return within(self.reach, self.seconds)

    def database(self, epoch: int | None) -> Database:
        """Return the database, or as it was after an epoch."""
        return self.service.db if epoch is None else self.service.past(epoch)


Reading = Callable[[VerbCall, Any], CallAnswer]
Writing = Callable[[VerbCall, Any], Awaitable[CallAnswer]]


@dataclass(frozen=True)
class Verb:
    """A verb: its arguments, and what answers it: `run` in a thread, or `write` in the event loop. `limit` names the
    limit of its time."""

    arguments: type[Arguments]
    run: Reading | None = None
    write: Writing | None = None
    limit: str = "query_seconds"
    quick: bool = False
