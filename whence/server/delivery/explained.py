"""Changes with the witnesses of their rows, as of the epoch that is told (`why=True`).

Difference and witnesses are taken while no epoch can pass (`runtime/subscriptions/witnesses.py`), so what can be
explained within a short time is, and the rest goes without. There is one thread for it: those who ask for witnesses
wait for each other, and not everybody for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from whence.explain.show.explanation import Explanation
from whence.io.rows import to_tuples
from whence.model.budget import within
from whence.model.codes import Codes
from whence.model.errors import WhenceError
from whence.runtime.coordinator import Coordinator
from whence.runtime.subscriptions.channels import Channel, Snapshot, signs_of
from whence.runtime.subscriptions.witnesses import ROWS, BaseRow, Explained, at_one_epoch, explain_rows
from whence.server.delivery.states import PartRows
from whence.server.delivery.telling import ROWS_ONLY, Telling
from whence.subscribe.cursor import Cursor, TellLost, TellState
from whence.subscribe.messages import PartChange
from whence.subscribe.plain import plain_value

SECONDS = 1.0
"""How long writers may have to wait for the witnesses of one update."""

Allow = Callable[[Explanation], list[list[BaseRow]]]
"""Leaves of an explanation the witnesses that a caller may see."""

Witnesses = list[Any]
"""Per row its witnesses, each a list of base rows: the name of the table and the row's values by column."""


@dataclass(frozen=True)
class ExplainedChange:
    """What to tell next, as of an epoch: the state, or what changed from `known` to `upto`; and why."""

    epoch: int
    why: list[Witnesses]
    reason: str = ""
    snapshot: Snapshot | None = None
    known: int = 0
    upto: int = 0
    time: int = 0
    parts: Sequence[PartChange | None] = ()


def explain_next(
    coordinator: Coordinator,
    channel: Channel,
    cursor: Cursor,
    now: float,
    allow: Allow,
    telling: Telling = ROWS_ONLY,
) -> ExplainedChange | None:
    """Return what the cursor says is next, with witnesses; None if there is nothing, or something else to tell first.

    It waits for epochs to end and keeps others from beginning: not for an event loop."""
    look = _Look(coordinator, channel, cursor, now, telling)
    found = at_one_epoch(coordinator, look)
    if found is None:
        return None
    change, explained = found
    for part, rows in enumerate(explained):
        change.why[part].extend(_witnesses(one, allow) for one in rows)
    for place, changed in enumerate(change.parts):
        if changed is not None and changed.came is not None:
            changed.why = change.why[place]
    return change


class _Look:
    """Takes the next step at an epoch, under the locks."""

    def __init__(
        self, coordinator: Coordinator, channel: Channel, cursor: Cursor, now: float, telling: Telling
    ) -> None:
        self._coordinator, self._channel, self._cursor, self._now = coordinator, channel, cursor, now
        self._telling = telling

    def __call__(self, epoch: int) -> tuple[ExplainedChange, list[list[Explained | None]]] | None:
        channel, cursor = self._channel, self._cursor
        if channel.ended is not None:
            return None
        channel.advance(epoch)
        step = cursor.next(self._telling.moves(channel), epoch, self._now)
        if step is None or isinstance(step, TellLost):
            return None
        why: list[Witnesses] = [[] for _ in channel.parts]
        if isinstance(step, TellState):
            snapshot = self._snapshot(epoch)
            few = [PartRows(*part) for part in snapshot.parts]
            first = [rows.between(0, min(ROWS, rows.total)) for rows in few]
            return ExplainedChange(epoch, why, step.reason, snapshot), self._explain(first)
        batches = channel.difference(step.since, step.upto)
        if batches is None:
            return None
        dictionary, telling = self._coordinator.dictionary, self._telling
        parts = [
            telling.part_change(channel, i, batch, dictionary, step.since, step.upto) for i, batch in enumerate(batches)
        ]
        closed = telling.has_closed(channel, step.since, step.upto)
        if not any(parts) and not closed and not cursor.is_waited_for:
            cursor.passed(step.upto)
            return None
        signs = [signs_of(telling.visible(channel, i, batch)) for i, batch in enumerate(batches)]
        came = [rows[:ROWS] if step.upto == epoch else rows[:0] for _, rows in signs]
        times = [last[1] for recent in channel.recents if (last := recent.last_change(step.upto)) is not None]
        at = max(times, default=self._coordinator.time)
        told = ExplainedChange(epoch, why, "", None, step.known, step.upto, at, parts)
        return told, self._explain(came)

    def _snapshot(self, epoch: int) -> Snapshot:
        coordinator = self._coordinator
        contents = [coordinator.reader.contents(part.name) for part in self._channel.parts]
        return Snapshot(epoch, coordinator.time, contents, coordinator.dictionary.frozen())

    def _explain(self, rows: Sequence[Codes]) -> list[list[Explained | None]]:
        """Explain rows, as many as the time suffices for: writers wait meanwhile."""
        coordinator, channel, end = self._coordinator, self._channel, time.monotonic() + SECONDS
        found: list[list[Explained | None]] = []
        for part, few in enumerate(rows):
            found.append([])
            schema = channel.schemas[part] if few.shape[1] == len(channel.schemas[part].columns) else None
            for row in (
                to_tuples(few, schema or channel.shown_schemas[part], coordinator.dictionary) if len(few) else ()
            ):
                left = end - time.monotonic()
                if left <= 0:
                    break
                with within(timeout=left):
                    found[-1] += explain_rows(coordinator, channel, part, [row])
        return found


def _witnesses(explained: Explained | None, allow: Allow) -> Any:
    """Return the witnesses of a row as they are sent; None if they cannot be told."""
    if explained is None:
        return None
    try:
        found = explained.witnesses(allow)
    except WhenceError:
        return None
    return [
        [[table, {name: plain_value(value) for name, value in row.items()}] for table, row in each] for each in found
    ]
