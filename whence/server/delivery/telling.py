"""Telling bounds: what a group of subscribers is sent of what values can still become.

| bounds     | what is sent |
|------------|---------------|
| `none`     | rows only |
| `program`  | the knowledge of each query once, then the horizons that moved: the client evaluates bounds (Python) |
| `values`   | beside each row its bounds, and rows that became final: for JSON, without our client |

The law: nothing is told by horizons later than the position, and nothing that follows from rows which the caller may
not read. Who may not read everything beneath a query is told in which direction its columns move, which is part of the
query, and never a horizon or a column that is not shown: those follow from rows of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from whence.engine.core.batch import consolidate
from whence.engine.core.operator import Batch
from whence.io.rows import to_tuples
from whence.model.codes import Codes, Dictionary
from whence.plan.knowledge.bounds import ANYTHING
from whence.runtime.subscriptions.channels import Channel, FollowedRelation, signs_of
from whence.subscribe.cursor import Followed
from whence.subscribe.horizons import NO_HORIZONS, HorizonView
from whence.subscribe.messages import PartChange
from whence.subscribe.plain import plain_columns, plain_value, to_plain
from whence.subscribe.relation_facts import RelationFacts
from whence.subscribe.wire_knowledge import plain_horizons, plain_knowledge

Row = tuple[Any, ...]
BoundsKind = Literal["none", "program", "values"]
RowBounds = list[list[list[Any]] | None]
"""Per column the lowest and the highest values of its rows; None for a column whose values are all final."""


@dataclass(frozen=True, eq=False)
class Telling:
    """How bounds are told; `sees` says of each part whether the caller may read everything beneath it. Equal ones are
    the same object (`telling_of`), as frames are found by them."""

    bounds: BoundsKind = "none"
    sees: tuple[bool, ...] = ()

    def moves(self, channel: Channel) -> Sequence[Followed]:
        """Return what there is to tell of: changes of rows, and rows that become final."""
        closings = self.closings(channel)
        return [*channel.recents, *closings] if closings else channel.recents

    def closings(self, channel: Channel) -> Sequence[Followed]:
        """Return what tells of rows that become final."""
        if self.bounds == "none" or not channel.closings:
            return []
        pairs = zip(channel.parts, self.sees, strict=True)
        return [part.closings for part, sees in pairs if sees and part.closings is not None]

    def has_closed(self, channel: Channel, since: int, upto: int) -> bool:
        """Return whether rows became final between two epochs without changing."""
        return any(each.next_change(since, upto) is not None for each in self.closings(channel))

    def prepare(self, channel: Channel) -> None:
        """Have what is to be told kept. It may wait for epochs to end: not for an event loop."""
        if self.bounds == "values":
            for part, sees in zip(channel.parts, self.sees, strict=True):
                if sees and part.closings is not None:
                    part.closings.fill(part.recent, keep_rows=True)

    def hides(self, part: FollowedRelation, place: int) -> bool:
        """Return whether columns of a part are kept back that only bounds need."""
        return part.hides and not (self.bounds == "program" and self.sees[place])

    # -- knowledge and horizons --------------------------------------------------------------------------------------

    def knowledge(self, channel: Channel) -> list[Any] | None:
        """Return what is known of each part, as it is sent with the columns."""
        if self.bounds == "none":
            return None
        facts = [self._facts(channel, place) for place in range(len(channel.parts))]
        if self.bounds == "program":
            return [None if each is None else plain_knowledge(each.knowledge) for each in facts]
        return [
            None
            if each is None
            else {
                "key": [each.knowledge.columns[column] for column in each.key],
                "returns": each.knowledge.returns,
                "knows": list(each.knowledge.text),
            }
            for each in facts
        ]

    def _facts(self, channel: Channel, place: int) -> RelationFacts | None:
        known = channel.parts[place].known
        if known is None:
            return None
        return known.facts if self.sees[place] else known.outlined

    def horizons(self, channel: Channel, since: int | None, upto: int) -> dict[str, Any] | None:
        """Return what was established after an epoch, or at all, and up to another, as it is sent."""
        if self.bounds == "none":
            return None
        found = dict[str, Any]()
        for place in channel.moving if since is not None else range(len(channel.parts)):
            part = channel.parts[place]
            if part.known is None or not self.sees[place]:
                continue
            if self.bounds == "program":
                changes = part.known.horizons.changes(since, upto)
                found |= plain_horizons(place, part.known.facts.knowledge, *changes)
            else:
                now = part.known.facts.coming(part.known.horizons.as_of(upto))
                closed = part.known.horizons.changes(since, upto)[1]
                if closed:
                    now["closed"] = {
                        str(use): [[plain_value(value) for value in key] for key in keys]
                        for use, keys in closed.items()
                    }
                if since is None or now != part.known.facts.coming(part.known.horizons.as_of(since)):
                    found[str(place)] = now
        return found or None

    # -- rows --------------------------------------------------------------------------------------------------------

    def part_change(
        self, channel: Channel, place: int, batch: Batch, dictionary: Dictionary, since: int, upto: int
    ) -> PartChange | None:
        """Return the net change of a part, as it is sent."""
        if not len(batch.ann) and self.bounds != "values":
            return None
        part = channel.parts[place]
        closed, shown = self._closed_rows(part, place, since, upto), self.visible(channel, place, batch)
        if not len(shown.ann) and not closed:
            return None
        schema = part.shown_schema if self.hides(part, place) else part.schema
        went, came = signs_of(shown) if len(shown.ann) else (shown.rows, shown.rows)
        change = PartChange(
            to_plain(went, schema, dictionary) if len(went) else None,
            to_plain(came, schema, dictionary) if len(came) else None,
        )
        if self.bounds == "values" and part.known is not None:
            if len(came):
                whole = came if not part.hides else self._matching(batch, came, dictionary, part)
                change.bounds, change.states = self.row_bounds(channel, place, whole, dictionary, upto)
            if closed:
                change.closed = plain_columns([row[: len(part.shown_schema.columns)] for row in closed], schema.types)
        return change

    def visible(self, channel: Channel, place: int, batch: Batch) -> Batch:
        """Return the net change of the columns of a part that are sent."""
        part = channel.parts[place]
        if not len(batch.ann) or not self.hides(part, place):
            return batch
        return consolidate(Batch(np.ascontiguousarray(batch.rows[:, : len(part.shown_schema.columns)]), batch.ann))

    @staticmethod
    def _matching(batch: Batch, came: Codes, dictionary: Dictionary, part: FollowedRelation) -> Codes:
        """Return the rows with all columns that rows which came are shown of."""
        width = len(part.shown_schema.columns)
        found = {row[:width].tobytes(): row for row, sign in zip(batch.rows, batch.ann, strict=True) if sign > 0}
        return np.stack([found[row.tobytes()] for row in came])

    def _closed_rows(self, part: FollowedRelation, place: int, since: int, upto: int) -> list[Row]:
        if self.bounds != "values" or part.closings is None or not self.sees[place]:
            return []
        return part.closings.rows_between(since, upto)

    def row_bounds(
        self, channel: Channel, place: int, rows: Codes, dictionary: Dictionary, upto: int
    ) -> tuple[RowBounds | None, list[str] | None]:
        """Return what rows can become as of an epoch: the bounds of their columns, and whether each is final, stays or
        may go."""
        part = channel.parts[place]
        facts = self._facts(channel, place)
        if facts is None:
            return None, None
        horizons: HorizonView = NO_HORIZONS
        if self.sees[place] and part.known is not None:
            horizons = part.known.horizons.as_of(upto)
        known = [facts.evaluate(row, horizons) for row in to_tuples(rows, part.schema, dictionary)]
        columns: RowBounds = []
        for column in range(len(part.shown_schema.columns)):
            bounds = [each.bounds[column] if column < len(each.bounds) else ANYTHING for each in known]
            if all(each.is_final for each in bounds):
                columns.append(None)
            else:
                columns.append([[plain_value(b.low) for b in bounds], [plain_value(b.high) for b in bounds]])
        states = ["final" if each.is_final else "may go" if each.may_go else "stays" for each in known]
        return (None if not any(columns) else columns), states


@cache
def telling_of(bounds: BoundsKind, sees: tuple[bool, ...]) -> Telling:
    """Return the one way to tell bounds."""
    return Telling(bounds, sees)


ROWS_ONLY = telling_of("none", ())
"""For those who have not asked for bounds."""
