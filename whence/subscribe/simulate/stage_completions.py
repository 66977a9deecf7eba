"""What views of real databases can still become: bounds that a subscriber is shown, against random completions.

A completion has the rows that are reflected, other rows in the gaps between them, or those that are really there, and a
few that are still to come. It keeps what publishers promise: rows of a stream are ordered by their first column, and no
other column is negative. The view is recomputed over it by DuckDB. Model transforms have all completions of a small
world (`completions.py`); here the knowledge is what ships, as it comes over the wire.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from whence.subscribe.ranges import RangeSet
from whence.subscribe.simulate.node_histories import AnyRow, EraLog
from whence.subscribe.updates import Update

RANDOM_STREAM = ("t", "k", "v")
"""The columns of the streams of random runs (`random_selects.py`), of which these are completions."""

STILL_TO_COME = 3
"""Rows that come at most after the last tick of each stream."""


class StreamSeen(NamedTuple):
    """A publisher's stream as a broker reflects it: ticks, and the history that they are of."""

    relation: str
    reflected: RangeSet
    history: EraLog


def complete(seen: StreamSeen, dice: random.Random) -> Counter[AnyRow]:
    """Return what a stream may turn out to be."""
    relation, ticks, history = seen
    found = history.rows(relation, ticks)
    really = dice.random() < 0.5
    for since, upto in ticks.gaps():
        missing = history.rows(relation, RangeSet([(since, upto)]))
        if really:
            found += missing
        elif dice.random() < 0.7:
            earliest = _last_time(history.rows(relation, RangeSet([(0, since)])))
            later = history.rows(relation, RangeSet([(upto, ticks.last)]))
            latest = min((row[0] for row in later), default=earliest + 2)
            found[dice.randint(earliest, latest), dice.randrange(4), dice.randrange(4)] += 1
    time = _last_time(history.rows(relation, RangeSet([(0, ticks.last)])))
    for _ in range(dice.randrange(STILL_TO_COME + 1)):
        time += dice.choice([0, 0, 1, 3])
        found[time, dice.randrange(4), dice.randrange(4)] += 1
    return found


def _last_time(rows: Counter[AnyRow]) -> int:
    return max((row[0] for row in rows), default=0)


def outside(update: Update, final: Counter[AnyRow]) -> Iterator[str]:
    """Yield what of a completion is not within what an update says."""
    part = update.parts[0]
    facts = part._knowing.facts
    if facts is None or not facts.key:
        return
    names, shown = part.columns, Counter(map(tuple, update.rows))
    ends: dict[AnyRow, list[AnyRow]] = {}
    for row in final:
        ends.setdefault(_key(row, facts.key), []).append(row)
    for row, count in shown.items():
        known, found = update.known_row(row), ends.get(_key(row, facts.key), [])
        if not found or (len(facts.key) == len(row) and final[row] < count):
            if not known.may_go:
                yield f"{row}, which stays, goes"
        elif not all(known.bounds.of(name).allows(value) for name, value in zip(names, found[0], strict=True)):
            yield f"{row} within {known.bounds} becomes {found[0]}"
    for key in ends.keys() - {_key(row, facts.key) for row in shown}:
        if update.row(**{names[place]: value for place, value in zip(facts.key, key, strict=True)}).state == (
            "finally absent"
        ):
            yield f"{key}, finally absent, comes"


def _key(row: AnyRow, places: Sequence[int]) -> AnyRow:
    return tuple(row[place] for place in places)
