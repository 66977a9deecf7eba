"""Limits: how much one caller may ask of a server, so that no caller takes it away from others.

The law: what is over a limit is refused before it costs anything, with a LimitError that names the limit; nothing of it
has happened then. `Limits` are plain numbers, which the welcome message tells every client; `RateLimit` counts.
"""

from __future__ import annotations

import dataclasses
import math
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from whence.model.errors import DataError, LimitError
from whence.sql.position import did_you_mean

_KB, _MB = 1 << 10, 1 << 20
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)


def _limit(default: Any, what: str) -> Any:
    return field(default=default, metadata={"what": what})


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a server allows. Every limit is positive; seconds may have a fraction.

    >>> Limits.read(["insert_rows=5000", "query_memory=256 MB"]).insert_rows
    5000
    """

    message_bytes: int = _limit(_MB, "bytes of one message over a WebSocket")
    body_bytes: int = _limit(64 * _MB, "bytes of the body of an HTTP request")
    insert_rows: int = _limit(100_000, "rows of one insert")
    result_rows: int = _limit(1_000_000, "rows of an answer; more are refused, ask with LIMIT")
    messages_per_second: int = _limit(20_000, "messages per second of a connection, and as many at once")
    connections: int = _limit(10_000, "connections that are open at a time")
    subscriptions: int = _limit(100, "subscriptions of a connection")
    queries: int = _limit(100, "queries of one subscription")
    definitions: int = _limit(1_000, "views that are kept for subscriptions of all callers")
    definitions_per_user: int = _limit(100, "views that are kept for subscriptions of one caller")
    calls: int = _limit(32, "calls of a connection that are under way")
    query_seconds: float = _limit(30.0, "seconds that a query may take")
    query_memory: str = _limit("1 GB", "memory that a query may take")
    running_queries: int = _limit(8, "queries that run at a time; others wait for their turn")
    question_seconds: float = _limit(60.0, "seconds that a question about provenance may take")
    write_seconds: float = _limit(30.0, "seconds that a write may wait for its turn")
    pending_writes: int = _limit(100_000, "writes of all callers that wait")
    pending_bytes: int = _limit(256 * _MB, "bytes of the writes that wait")
    connection_writes: int = _limit(10_000, "writes of a connection that wait")
    send_bytes: int = _limit(256 * _KB, "bytes that wait to be sent to a client before it is told net changes only")
    ring_bytes: int = _limit(16 * _MB, "bytes of the last changes that are kept of a view for its subscribers")
    hello_seconds: float = _limit(10.0, "seconds until a new connection must have said hello")
    header_seconds: float = _limit(10.0, "seconds until the head of an HTTP request must be there")
    idle_seconds: float = _limit(60.0, "seconds without a message after which a connection is asked whether it lives")
    pong_seconds: float = _limit(20.0, "seconds until it must have answered")
    stop_seconds: float = _limit(10.0, "seconds that connections have to end when the server stops")

    def __post_init__(self) -> None:
        for one in dataclasses.fields(self):
            value = getattr(self, one.name)
            if isinstance(one.default, str):
                read_bytes(value, one.name)
                continue
            whole = isinstance(one.default, int)
            number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
            if not number or not 0 < value < math.inf:
                kind = "whole number" if whole else "number"
                raise DataError(f"the limit {one.name} is a {kind} above 0, not {value!r:.100}")

    @classmethod
    def read(cls, given: Iterable[str]) -> Limits:
        """Read `name=value`, as a command line has them; of one that is given twice the last counts."""
        known = {one.name: one for one in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        for text in given:
            name, equals, value = (part.strip() for part in text.partition("="))
            if not equals or name not in known:
                hint = did_you_mean(name, known) or f": there are {', '.join(known)}"
                raise DataError(f"a limit is given as name=value, and {name!r:.100} is none{hint}")
            values[name] = value if isinstance(known[name].default, str) else _number(name, value, known[name])
        return cls(**values)

    @property
    def query_memory_bytes(self) -> int:
        """The memory that a query may take, in bytes."""
        return read_bytes(self.query_memory, "query_memory")

    def describe(self) -> dict[str, int | float | str]:
        """Return the limits by name, for the welcome message."""
        return dataclasses.asdict(self)

    @classmethod
    def meanings(cls) -> dict[str, str]:
        """Say of each limit what it limits, for documentation and `--help`."""
        return {one.name: one.metadata["what"] for one in dataclasses.fields(cls)}

    def check(self, name: str, value: int, what: str = "") -> None:
        """Raise a LimitError if there is more of something than a limit allows.

        >>> Limits(insert_rows=2).check("insert_rows", 3, "an insert of 3 rows")
        Traceback (most recent call last):
        whence.model.errors.LimitError: an insert of 3 rows: at most 2 are allowed (limit insert_rows)
        """
        most = getattr(self, name)
        if value > most:
            raise LimitError(f"{what or f'{value:,}'}: at most {most:,} are allowed (limit {name})")


class RateLimit:
    """A token bucket: `rate` messages per second, of which up to `burst` may come at once.

    >>> seconds = iter([0, 0, 0, 0, 0.5]); limit = RateLimit(2, clock=lambda: next(seconds))
    >>> [limit.allows() for _ in range(4)]
    [True, True, False, True]
    """

    __slots__ = ("_at", "_burst", "_clock", "_left", "_rate")

    def __init__(self, rate: float, burst: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst = float(rate), float(rate if burst is None else burst)
        if not 0 < self._rate < math.inf or not 1 <= self._burst < math.inf:
            raise DataError("a rate is a number above 0, and a burst at least 1")
        self._clock, self._left, self._at = clock, self._burst, clock()

    def allows(self, count: float = 1) -> bool:
        """Take `count` messages out of the bucket; return False, and take none, if there are not as many."""
        now = self._clock()
        self._left = min(self._burst, self._left + max(0.0, now - self._at) * self._rate)
        self._at = now
        if self._left < count:
            return False
        self._left -= count
        return True

    @property
    def wait(self) -> float:
        """Seconds until the next message is allowed, as of the last call of `allows`."""
        return max(0.0, (1 - self._left) / self._rate)


def _number(name: str, text: str, known: dataclasses.Field[Any]) -> int | float:
    """Read a number; one of bytes may have a unit."""
    try:
        if name.endswith("_bytes"):
            return read_bytes(text, name)
        return int(text.replace("_", "").replace(",", "")) if isinstance(known.default, int) else float(text)
    except ValueError:
        raise DataError(f"the limit {name} is a number above 0, not {text!r:.100}") from None


def read_bytes(text: object, name: str = "size") -> int:
    """Read a number of bytes with its unit.

    >>> read_bytes("1 GB"), read_bytes("64 MiB"), read_bytes("1000")
    (1000000000, 67108864, 1000)
    """
    match = _SIZE.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None or match[2].lower() not in _UNITS or not float(match[1]):
        raise DataError(f"the limit {name} is a number of bytes such as '64 MB' or '1 GiB', not {text!r:.100}")
    return int(float(match[1]) * _UNITS[match[2].lower()])
