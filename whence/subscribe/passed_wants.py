"""Curiosity that is passed up: what subscribers of a relay ask for, and it has to ask for itself.

There is no clock, no socket and no thread in here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from whence.subscribe.ranges import Range, RangeSet


@dataclass(slots=True)
class _PassedWant:
    waiting: dict[Any, None]
    at: float  # when it was asked for
    missing: RangeSet


class PassedWants:
    """Curiosity that is passed up: who has asked a relay for ranges that are elsewhere.

    However many subscribers ask, a range is asked for upstream once per timeout, and answers may come in parts. A range
    that nobody asks for any more is forgotten, and there are at most `MOST` of them.

    >>> passed = PassedWants(timeout=1.0)
    >>> passed.ask("a", [(3, 5)], now=0.0), passed.ask("b", [(3, 5)], now=0.5), passed.ask("a", [(3, 5)], now=1.0)
    ([(3, 5)], [], [(3, 5)])
    >>> passed.arrived(3, 4), passed.arrived(3, 4), passed.arrived(4, 5), passed.arrived(3, 5)
    (['a', 'b'], [], ['a', 'b'], [])
    """

    MOST = 1000

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._asked: dict[Range, _PassedWant] = {}

    def __bool__(self) -> bool:
        return bool(self._asked)

    def ask(self, who: Any, ranges: Iterable[Range], now: float) -> list[Range]:
        """Note who wants ranges; return those that are to be asked for upstream now."""
        due = []
        self._asked = {key: one for key, one in self._asked.items() if now < one.at + 16 * self._timeout}
        for wanted in ranges:
            known = self._asked.get(wanted)
            if known is None and len(self._asked) < self.MOST:
                known = self._asked[wanted] = _PassedWant({}, now, RangeSet([wanted]))
                due.append(wanted)
            elif known is not None and now >= known.at + self._timeout:
                known.at = now
                due += known.missing
            if known is not None:
                known.waiting[who] = None
        return due

    def arrived(self, since: int, upto: int) -> list[Any]:
        """Return who waits for ticks that have come: they are to be told."""
        found = dict[Any, None]()
        for wanted, one in list(self._asked.items()):
            if wanted[0] <= since and upto <= wanted[1] and one.missing.covers(since, upto):
                found |= one.waiting
                one.missing = one.missing.minus(RangeSet([(since, upto)]))
                if not one.missing:
                    del self._asked[wanted]
        return list(found)
