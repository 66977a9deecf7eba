"""Virtual time: a heap of events, and links that lose, repeat, delay and reorder messages.

The law: a run is a function of its seed. Nothing in here reads a clock, and events of the same time are taken in the
order in which they were planned.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

MOST_AT_ONCE = 20_000
"""Events that happen at one time, before it is certain that they go round in circles."""


class VirtualTime:
    """What is to happen, by time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self._at_once = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, time: float, act: Callable[[], None]) -> None:
        """Plan an event."""
        self.events += 1
        heapq.heappush(self._heap, (max(time, self.now), self.events, act))

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """Plan an event some seconds from now."""
        self.at(self.now + seconds, act)

    def run(self, until: float) -> None:
        """Let everything happen up to a time. Time never goes back."""
        while self._heap and self._heap[0][0] <= until:
            at, _, act = heapq.heappop(self._heap)
            self._at_once = self._at_once + 1 if at <= self.now else 0
            if self._at_once > MOST_AT_ONCE:
                raise RuntimeError(
                    f"{MOST_AT_ONCE:,} things happen at {self.now:.3f} s: something goes round in circles"
                )
            self.now = max(at, self.now)
            act()
        self.now = max(self.now, until)


@dataclass
class LinkFaults:
    """How bad links are: probabilities of a message, and seconds."""

    loss: float = 0.0
    repeat: float = 0.0
    late: float = 0.0  # the probability of being overtaken by others
    delay: float = 0.02


@dataclass
class LinkNetwork:
    """All links. A message is given to `deliver(to, message)` of whoever is there."""

    time: VirtualTime
    dice: random.Random
    faults: LinkFaults
    deliver: Callable[[str, Any], None]
    cut: dict[tuple[str, str], float] = field(default_factory=dict)  # one way, until a time
    seed: object = None
    by_link: bool = False  # what happens to a message depends on those before it on its link, and on no others
    sent: int = 0
    seen: Counter[str] = field(default_factory=Counter)  # faults that happened, by name
    _dices: dict[tuple[str, str], random.Random] = field(default_factory=dict)
    _latest: dict[tuple[str, str], float] = field(default_factory=dict)  # arrivals on each link

    def _dice_of(self, origin: str, to: str) -> random.Random:
        if not self.by_link:
            return self.dice
        found = self._dices.get((origin, to))
        if found is None:
            found = self._dices[origin, to] = random.Random(f"{self.seed} {origin} {to}")
        return found

    def send(self, origin: str, to: str, message: Any) -> None:
        """Send a message; it arrives never, once or twice, sooner or later."""
        self.sent += 1
        faults, dice = self.faults, self._dice_of(origin, to)
        if self.cut and self.cut.get((origin, to), 0.0) > self.time.now:
            self.seen["cut off"] += 1
            self.seen["cut off one way"] += self.cut.get((to, origin), 0.0) <= self.time.now
            return
        if faults.loss and dice.random() < faults.loss:
            self.seen["lost"] += 1
            return
        self._arrive(origin, to, message)
        if faults.repeat and dice.random() < faults.repeat:
            self.seen["repeated"] += 1
            self._arrive(origin, to, message)

    def _arrive(self, origin: str, to: str, message: Any) -> None:
        dice = self._dice_of(origin, to)
        delay = self.faults.delay * (0.2 + dice.random())
        if self.faults.late and dice.random() < self.faults.late:
            delay += dice.random() * 0.6
        at, latest = self.time.now + delay, self._latest.get((origin, to), 0.0)
        self.seen["reordered"] += at < latest
        self._latest[origin, to] = max(at, latest)
        self.time.at(at, lambda: self.deliver(to, message))

    def heal(self) -> None:
        """Lose and delay nothing any more."""
        self.faults.loss = self.faults.repeat = self.faults.late = 0.0
        self.cut.clear()
