"""Relations that are followed, and channels: what equal subscriptions share.

A `FollowedRelation` is a feed of the coordinator that keeps the last changes of one relation. A `Channel` is one or
more of them whose changes are told together. A `Snapshot` is the rows of a channel at one epoch, shared by all who need
the state while it is of use.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from whence.engine.core.batch import codes2d
from whence.engine.core.kernels.batches import split_signs
from whence.engine.core.operator import Batch
from whence.model.codes import Codes, Dictionary
from whence.model.types import Schema
from whence.model.word_marks import WordMarks
from whence.runtime.subscriptions.closings import Closings
from whence.runtime.subscriptions.horizons import RelationHorizons
from whence.subscribe.cursor import Followed
from whence.subscribe.horizons import NO_HORIZONS, KnownHorizons
from whence.subscribe.recent import EpochChange, RecentChanges
from whence.subscribe.relation_facts import RelationFacts
from whence.subscribe.wire_knowledge import outline

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator


class FollowedRelation:
    """The recent changes of a table, stream or view. A feed (`reading/changes.py`)."""

    def __init__(
        self,
        coordinator: Coordinator,
        name: str,
        limit: int,
        news: Callable[[FollowedRelation, int], None],
        known: KnownRelation | None = None,
    ) -> None:
        """Follow a relation from now on. Called with the state lock held; `news` is called with the epoch of every
        change. `known` is what its rows can still become."""
        self.name, self._coordinator, self._news = name, coordinator, news
        self.schema: Schema = coordinator.reader.schema(name)  # with the columns that only bounds need
        self.known = known
        shown = len(self.schema.columns) if known is None else known.facts.shown
        self.hides = shown < len(self.schema.columns)
        self.shown_schema = Schema(self.schema.columns[:shown]) if self.hides else self.schema
        self.is_stream = coordinator.reader.is_stream(name)
        self.recent = RecentChanges(self.is_stream, coordinator.epoch, limit)
        self.ended: str | None = None  # why no more changes come
        self.users = 0
        self.is_losing = False  # whether single changes of the epoch that is being made are not known
        self._kept_words: list[tuple[Codes, Schema]] = []
        coordinator.feeds.add(self)

    @property
    def closings(self) -> Closings | None:
        """When rows close that do not change; None if no horizon makes one final."""
        return None if self.known is None else self.known.closings

    def push(self, epoch: int, rows: Codes, counts: Codes) -> None:
        """Add what an epoch changed."""
        self.recent.push(epoch, self._coordinator.time, rows, counts)
        if self.is_losing:
            self.lose()
        else:
            self._news(self, epoch)

    def lose(self) -> None:
        """Let go of all changes, if single ones of the last epoch are not known: whoever wants each is told so."""
        if self.is_losing:
            self.is_losing = False
            self.recent.forget(self._coordinator.epoch)
            self._news(self, self._coordinator.epoch)

    def end(self, why: str = "", forget: bool = False) -> None:
        """Note that no more changes come; with `forget`, that changes which came were never stable."""
        self.ended = why or "the database was closed"
        if forget:
            self.recent.forget(self._coordinator.epoch)
        self._news(self, self._coordinator.epoch)

    def mark_words(self, marks: WordMarks) -> None:
        """Mark the words that the recent changes, and those who filter them, refer to."""
        self.recent.mark_words(marks, self.schema)
        for codes, schema in self._kept_words:
            marks.rows(codes, schema.types)

    def keep_words(self, codes: Codes, schema: Schema) -> None:
        """Keep the words of rows that a filter has. Called with the state lock held."""
        self._kept_words.append((codes, schema))

    def decode(self, codes: Codes) -> None:
        """Let go of changes that refer to words which are about to be forgotten, as they may be by a follower."""
        marks = WordMarks(len(self._coordinator.dictionary))
        self.mark_words(marks)
        if marks.used[codes].any():
            self.recent.forget(self._coordinator.epoch)


@dataclass(frozen=True)
class KnownRelation:
    """What is known of a followed relation: facts, the horizons that its rows close by, and when some close.

    closings  None if no horizon makes a row final
    reads     the relations that it is made of, as its author named them"""

    facts: RelationFacts
    horizons: RelationHorizons
    closings: Closings | None
    reads: frozenset[str]

    @cached_property
    def outlined(self) -> RelationFacts:
        """What is left of the facts for those who may not read everything beneath the relation."""
        return RelationFacts(outline(self.facts.knowledge))


@dataclass(eq=False)
class Snapshot:
    """The distinct rows of a channel's parts at an epoch, and how often each is there.

    `dictionary` decodes them, whatever is forgotten meanwhile. `cache` is for the encoded chunks of it, which
    those who are sent it share."""

    epoch: int
    time: int
    parts: list[tuple[Codes, Codes]]
    dictionary: Dictionary
    cache: dict[Any, Any] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sum(int(rows.nbytes + counts.nbytes) for rows, counts in self.parts)


@dataclass(frozen=True)
class ChannelChanges:
    """The changes of each part of a channel between two epochs, oldest first."""

    recents: list[RecentChanges]
    parts: list[list[EpochChange]]

    @cached_property
    def rows(self) -> int:
        """How many rows changed, before any of them cancel out."""
        return sum(len(change.counts) for changes in self.parts for change in changes)

    @cached_property
    def last(self) -> EpochChange | None:
        """The last of them; None if nothing changed."""
        return max((changes[-1] for changes in self.parts if changes), key=_epoch_of, default=None)

    @property
    def spans_epochs(self) -> bool:
        """Whether they are of more than one epoch."""
        return self.last is not None and any(changes and changes[0].epoch < self.last.epoch for changes in self.parts)

    def net(self) -> list[Batch]:
        """Return the net change of each part."""
        return [recent.net(changes) for recent, changes in zip(self.recents, self.parts, strict=True)]


_epoch_of = attrgetter("epoch")


class Channel:
    """Queries that are followed together; equal subscriptions have the same one."""

    def __init__(
        self,
        key: tuple[str, ...],
        queries: Sequence[exp.Expr],
        parts: list[FollowedRelation],
        extras: bool = True,
        ordered: bool = False,
    ) -> None:
        self.key, self.queries, self.parts, self.extras, self.ordered = key, list(queries), parts, extras, ordered
        self.recents = [part.recent for part in parts]
        self.closings = [part.closings for part in parts if part.closings is not None]
        self.moving = [place for place, part in enumerate(parts) if part.known and part.known.horizons.can_move]
        """The parts of whose rows horizons tell something."""
        self.moves: list[Followed] = [*self.recents, *self.closings]
        """What is told of: changes of rows, and rows that become final."""
        self.users = 0
        self.conditional = 0  # of these, those who are told when a condition turns true
        self.doubt: Any = None  # what it reflects of sources, once that was asked for (`runtime/sources/doubt.py`)
        self.idle_since = 0.0
        self._snapshot: weakref.ref[Snapshot] | None = None
        self._guard = threading.Lock()

    @property
    def ended(self) -> str | None:
        """Why it tells no more: a part was dropped, redefined, or read again from the disk; None while it runs."""
        return next((part.ended for part in self.parts if part.ended is not None), None)

    @property
    def schemas(self) -> list[Schema]:
        """The columns of each part, with those that only bounds need."""
        return [part.schema for part in self.parts]

    @property
    def shown_schemas(self) -> list[Schema]:
        """The columns of each part that are shown."""
        return [part.shown_schema for part in self.parts]

    @property
    def facts(self) -> list[RelationFacts | None]:
        """What is known of each part."""
        return [None if part.known is None else part.known.facts for part in self.parts]

    def horizons(self, epoch: int) -> list[KnownHorizons]:
        """Return the horizons of each part as of an epoch."""
        return [NO_HORIZONS if part.known is None else part.known.horizons.as_of(epoch) for part in self.parts]

    def advance(self, upto: int) -> None:
        """Find out which rows have become final up to an epoch, before it is told."""
        for closings in self.closings:
            closings.advance(upto)

    def changes(self, since: int, upto: int) -> ChannelChanges | None:
        """Return what changed after `since` and up to `upto`; None if it is not known any more."""
        parts = list[list[EpochChange]]()
        for recent in self.recents:
            found = recent.between(since, upto)
            if found is None:
                return None
            parts.append(found)
        return ChannelChanges(self.recents, parts)

    def difference(self, since: int, upto: int) -> list[Batch] | None:
        """Return the net change of each part after `since` and up to `upto`; None if it is not known any more."""
        found = self.changes(since, upto)
        return None if found is None else found.net()

    def snapshot(self, coordinator: Coordinator, is_unfit: Callable[[int], bool]) -> Snapshot:
        """Return the state: that which others are being sent, while the changes since are known; else a new one. One of
        an epoch that `is_unfit` to be shown is not used again.

        It waits for epochs to end and to be stable: not for an event loop."""
        with self._guard:
            shared = self._snapshot() if self._snapshot is not None else None
            if (
                shared is not None
                and not is_unfit(shared.epoch)
                and all(recent.reaches(shared.epoch) for recent in self.recents)
            ):
                return shared
            with coordinator.reading():
                reader = coordinator.reader
                contents = [reader.contents(part.name) for part in self.parts if part.ended is None]
                made = Snapshot(coordinator.epoch, coordinator.time, contents, coordinator.dictionary.frozen())
            self._snapshot = weakref.ref(made)
            return made


def signs_of(batch: Batch) -> tuple[Codes, Codes]:
    """Return the rows that went and those that came, each as often as it did."""
    return split_signs(codes2d(batch.rows), codes2d(batch.ann))
