"""All who follow one channel, and the frames that they share.

The law: a frame is a function of the format, the subscription's number, how bounds are told (`telling.py`) and the
positions that it leads from and to. So it is encoded once for all clients that are at the same position, however many
there are; those that fell behind are at other positions, and what is encoded for them is kept until the next epoch is
told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from whence.engine.core.operator import Batch
from whence.model.codes import Dictionary
from whence.runtime.coordinator import Coordinator
from whence.runtime.subscriptions.channels import Channel, ChannelChanges, Snapshot
from whence.server.delivery.frames import Kind, format_of, message_frame
from whence.server.delivery.states import StateChunks
from whence.server.delivery.telling import Telling
from whence.server.worker_threads import WorkerThreads
from whence.subscribe.messages import Format, UpdateMessage, encode_message
from whence.subscribe.waiting import plain_waiting

if TYPE_CHECKING:
    from whence.server.delivery.subscriber import Subscriber

LARGE_CHANGE = 2_000
"""Rows of changes above which a difference is made by another thread than the event loop's."""

KEPT_SNAPSHOT = 8 << 20
"""Bytes of rows up to which a snapshot is kept a moment for the next who needs it."""

MOST_ROWS = 10_000
"""Rows of an update: those with more are told in several, if they span several epochs."""

MOST_BODIES, MOST_FRAMES, MOST_LARGE = 64, 256, 16
"""What is kept at most until the next epoch is told."""

Body = msgspec.Raw | None
"""The parts of an update, encoded; None if nothing has changed."""


@dataclass(frozen=True)
class _Decodable:
    """What changed, and the words of it, whatever is forgotten meanwhile."""

    dictionary: Dictionary
    changes: ChannelChanges

    @cached_property
    def net(self) -> list[Batch]:
        """The net change of each part."""
        return self.changes.net()


class MovedOnError(Exception):
    """The recent changes do not reach back as far any more."""


class Audience:
    """The subscribers of one channel."""

    def __init__(self, coordinator: Coordinator, channel: Channel) -> None:
        self.channel, self._coordinator = channel, coordinator
        self.members: dict[Subscriber, None] = {}
        self.frames: dict[tuple[Kind, int, Telling, int, int, int], bytes] = {}
        self.direct: dict[tuple[int, tuple[Kind, int, Telling]], tuple[bytes, bool] | None] = {}
        """What a subscriber that is told all changes at once gets next, by where it is, and its kind and number; and
        whether that is of several epochs. None if it must be looked at."""

        self.told = -1  # the epoch that frames lead to
        self.snapshot: Snapshot | None = None
        self.snapshot_at = 0.0
        self._fetching: asyncio.Future[Snapshot] | None = None
        self._changes: dict[tuple[int, int], _Decodable] = {}
        self._bodies: dict[tuple[Format, Telling, int, int], Body] = {}
        self._making: dict[tuple[Format, Telling, int, int], asyncio.Future[tuple[int, Body]]] = {}
        self._large: dict[tuple[Kind, int, Telling, int, int, int], bytes] = {}
        self.waits_for: frozenset[str] = frozenset()  # sources that members were told are behind
        self._heavy = -1  # up to this epoch, net changes are known to be too much for one message

    def turn_to(self, told: int) -> None:
        """Forget the frames that lead to an earlier epoch."""
        if told != self.told:
            self.channel.advance(told)
            self.told = told
            self.frames.clear()
            self.direct.clear()
            self._changes.clear()
            self._bodies.clear()

    def next_frame(self, known: int, key: tuple[Kind, int, Telling]) -> tuple[bytes, bool] | None:
        """Find out what subscribers at an epoch get next, who are told all changes at once, and note it in `direct`."""
        found, closings = None, key[2].closings(self.channel)
        if self.channel.ended is None and all(each.reaches(known) for each in closings):
            changes = self._changes_between(known, self.told).changes
            changed = changes.rows or any(each.next_change(known, self.told) is not None for each in closings)
            if changed and changes.rows <= LARGE_CHANGE:
                frame = self.update_frame(*key, known, known, self.told, empty=False)
                found = None if frame is None else (frame, changes.spans_epochs)
        self.direct[known, key] = found
        return found

    def sweep(self, now: float) -> None:
        """Let go of what is of no more use to others."""
        if now - self.snapshot_at > 1.0:
            self.snapshot = None
        self._large.clear()

    # -- updates -----------------------------------------------------------------------------------------------------

    def spans_epochs(self, since: int, upto: int) -> bool:
        """Return whether there were changes in more than one epoch after `since`."""
        try:
            return self._changes_between(since, upto).changes.spans_epochs
        except MovedOnError:
            return False

    def is_large(self, since: int, upto: int) -> bool:
        """Return whether the changes between two epochs are so many that the event loop should not go through them."""
        try:
            return self._changes_between(since, upto).changes.rows > LARGE_CHANGE
        except MovedOnError:
            return False

    def _changes_between(self, since: int, upto: int) -> _Decodable:
        """Return what changed between two epochs, read once until the next one is told."""
        found = self._changes.get((since, upto))
        if found is None:
            if len(self._changes) >= MOST_BODIES:
                self._changes.clear()
            found = self._changes[since, upto] = self._read_changes(since, upto)
        return found

    def update_frame(
        self, kind: Kind, id: int, telling: Telling, known: int, since: int, upto: int, *, empty: bool
    ) -> bytes | None:
        """Return the net change after `since` as a frame; None if there is none, unless that is to be told, too."""
        key = kind, id, telling, known, since, upto
        found = self.frames.get(key)
        if found is None:
            format = format_of(kind)
            place = format, telling, since, upto
            if place not in self._bodies:
                if len(self._bodies) >= MOST_BODIES:
                    self._bodies.clear()
                self._bodies[place] = self._make_body(*place, self._changes_between(since, upto))
            body = self._bodies[place]
            if body is None:
                if not empty and not telling.has_closed(self.channel, since, upto):
                    return None
                body = msgspec.Raw(encode_message([None] * len(self.channel.parts), format))
            if len(self.frames) >= MOST_FRAMES:
                self.frames.clear()
            last = self._changes_between(since, upto).changes.last
            time = self.time_of(upto) if last is None else last.time
            found = self.frames[key] = self._frame(kind, id, telling, known, upto, time, body)
        return found

    async def large_update(
        self, workers: WorkerThreads, kind: Kind, id: int, telling: Telling, known: int, since: int, upto: int
    ) -> tuple[int, bytes | None]:
        """Have a large change made by another thread, once for all who wait for it; return up to which epoch it leads,
        which may be an earlier one, and its frame, if anything has changed."""
        place = format_of(kind), telling, since, upto
        making = self._making.get(place)
        if making is None:
            making = self._making[place] = workers.run(self._make_large, *place)
            making.add_done_callback(lambda _: self._making.pop(place, None))
        reached, body = await asyncio.shield(making)
        if body is None:
            if not telling.has_closed(self.channel, since, reached):
                return reached, None
            body = msgspec.Raw(encode_message([None] * len(self.channel.parts), place[0]))
        key = kind, id, telling, known, since, reached
        frame = self._large.get(key)
        if frame is None:
            frame = self._large[key] = self._frame(kind, id, telling, known, reached, self.time_of(reached), body)
            if len(self._large) > MOST_LARGE:
                del self._large[next(iter(self._large))]
        return reached, frame

    def _make_large(self, format: Format, telling: Telling, since: int, upto: int) -> tuple[int, Body]:
        """Encode the net change up to an epoch, or to an earlier one if it is too much for one message."""
        found = None
        if upto > self._heavy:
            found = self._read_changes(since, upto)
            if sum(len(batch.ann) for batch in found.net) > MOST_ROWS and upto > since + 1:
                self._heavy, found = upto, None
        if found is None:
            upto = self._cut(since, upto)
            found = self._read_changes(since, upto)
        return upto, self._make_body(format, telling, since, upto, found)

    def _cut(self, since: int, upto: int) -> int:
        """Return the last epoch up to which not too many rows changed; the next one at least."""
        low, high = since + 1, upto
        while low < high:
            middle = (low + high + 1) // 2
            if sum(recent.rows_between(since, middle) for recent in self.channel.recents) <= MOST_ROWS:
                low = middle
            else:
                high = middle - 1
        return low

    def _read_changes(self, since: int, upto: int) -> _Decodable:
        dictionary = self._coordinator.dictionary.frozen()  # first: what is forgotten from now on is still in it
        changes = self.channel.changes(since, upto)
        if changes is None:
            raise MovedOnError
        return _Decodable(dictionary, changes)

    def _make_body(self, format: Format, telling: Telling, since: int, upto: int, found: _Decodable) -> Body:
        """Encode the net changes of all parts."""
        while True:
            try:
                parts = [
                    telling.part_change(self.channel, place, batch, found.dictionary, since, upto)
                    for place, batch in enumerate(found.net)
                ]
            except IndexError:  # a word came after others were forgotten, in between: it is in a newer dictionary
                found = self._read_changes(since, upto)
                continue
            return msgspec.Raw(encode_message(parts, format)) if any(parts) else None

    def _frame(
        self, kind: Kind, id: int, telling: Telling, known: int, upto: int, time: int, body: msgspec.Raw
    ) -> bytes:
        at = self._coordinator.lineage.at
        message = UpdateMessage(id, str(at(known)), str(at(upto)), time, body)  # type: ignore[arg-type]  # encoded already
        message.horizons = telling.horizons(self.channel, known, upto)
        message.reflects, message.waiting_for = self.doubt(upto)
        return message_frame(message, kind)

    def doubt(self, epoch: int) -> tuple[dict[str, str] | None, dict[str, Any] | None]:
        """Return what the rows of an epoch reflect of sources, and which of these are waited for, as it is sent."""
        found = self._coordinator.doubt_of(self.channel)
        return (None, None) if found is None else (found.reflects(epoch), plain_waiting(found.waiting_for(epoch)))

    def time_of(self, epoch: int) -> int:
        """Return the time of the last change up to an epoch."""
        found = [last[1] for recent in self.channel.recents if (last := recent.last_change(epoch)) is not None]
        return max(found, default=self._coordinator.time)

    # -- states ------------------------------------------------------------------------------------------------------

    async def fetch_snapshot(self, workers: WorkerThreads, read: Callable[[], Snapshot]) -> Snapshot:
        """Have the state read by another thread, once for all who wait for it."""
        if self._fetching is None:
            self._fetching = workers.run(read)
            self._fetching.add_done_callback(self._fetched)
        return await asyncio.shield(self._fetching)

    def _fetched(self, fetching: asyncio.Future[Snapshot]) -> None:
        self._fetching = None

    def usable_snapshot(self, since: int, told: int) -> Snapshot | None:
        """Return the snapshot that others were sent, if it is of an epoch from `since` on and still the state as of
        `told`."""
        found = self.snapshot
        if found is None or not since <= found.epoch <= told:
            return None
        changed = any(recent.next_change(found.epoch, told) is not None for recent in self.channel.recents)
        if changed or not self.reaches(found):
            self.snapshot = None  # or the next who reads the state would be given it again
        return self.snapshot

    def keep_snapshot(self, snapshot: Snapshot, now: float) -> None:
        """Keep a snapshot a moment, if it is small."""
        if snapshot.bytes <= KEPT_SNAPSHOT:
            self.snapshot, self.snapshot_at = snapshot, now

    def reaches(self, snapshot: Snapshot) -> bool:
        """Return whether all changes since a snapshot are known."""
        return all(recent.reaches(snapshot.epoch) for recent in self.channel.recents)

    def chunks(self, snapshot: Snapshot, format: Format, telling: Telling) -> StateChunks:
        """Return a snapshot in chunks, which all who are sent it share."""
        found = snapshot.cache.get((format, telling))
        if found is None:
            found = snapshot.cache[format, telling] = StateChunks(snapshot, self.channel, format, telling)
        assert isinstance(found, StateChunks)
        return found
