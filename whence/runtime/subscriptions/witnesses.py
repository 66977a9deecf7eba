"""Why the rows of an update are there: witnesses as of the very epoch that is told.

The law: an update with witnesses is the difference up to an epoch, and each of its witnesses is one at that epoch. So
both are taken while no epoch can pass: with the writer's and the state's lock. Rows and witnesses are therefore few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from whence.model.errors import WhenceError
from whence.runtime.subscriptions.channels import Channel

if TYPE_CHECKING:
    from whence.explain.show.explanation import Explanation
    from whence.runtime.coordinator import Coordinator

ROWS, WITNESSES = 100, 3
"""At most so many rows of an update are explained, by so many witnesses each."""

T = TypeVar("T")
BaseRow = tuple[str, dict[str, Any]]
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Explained:
    """A row that came, and the explanation of it as of an epoch; its witnesses may be looked for without a lock."""

    row: Row
    explanation: Explanation

    def witnesses(self, allow: Callable[[Explanation], list[list[BaseRow]]] | None = None) -> list[list[BaseRow]]:
        """Return the smallest witnesses; of those that `allow` leaves, if it is given."""
        self.explanation.limit = WITNESSES
        return (self.explanation.witnesses if allow is None else allow(self.explanation))[:WITNESSES]


def at_one_epoch(coordinator: Coordinator, work: Callable[[int], T]) -> T:
    """Do something with an epoch that stays the last one meanwhile, and is stable when this returns."""
    while True:
        with coordinator.paused():
            coordinator.before_reading()
            epoch, written = coordinator.epoch, coordinator.storage.last
            done = work(epoch)
            if coordinator.epoch != epoch:  # a row's time was up meanwhile
                continue
        coordinator.storage.wait_durable(written)
        if coordinator.durable_epoch < epoch:
            coordinator.sync()
        return done


def explain_rows(coordinator: Coordinator, channel: Channel, part: int, rows: Sequence[Row]) -> list[Explained | None]:
    """Explain rows of a part of a channel; None for those beyond `ROWS`, and for what cannot be explained.

    Called inside `at_one_epoch`."""
    from whence.runtime.questions import provenance_queries as asking

    found = list[Explained | None]()
    for row in rows:
        if len(found) >= ROWS:
            found += [None] * (len(rows) - len(found))
            break
        try:
            found.append(Explained(row, asking.why(coordinator, channel.parts[part].name, row, {})))
        except WhenceError:  # too large, or rows of a stream that are not kept
            found.append(None)
    return found
