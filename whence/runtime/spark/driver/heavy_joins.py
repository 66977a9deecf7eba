"""Decide which keys of joins are heavy, by what the partitions count.

Partitions are asked when as much has changed as there was half of when they were asked before, so that counting costs
each row a constant. A key is heavy if it alone has as many rows as a partition's even share, and at least `least`; it
stays so down to a quarter of that, so that a key near the edge does not have its view planned again and again. There
are at most as many such keys as partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from whence.engine.exchange.heavy_keys import KeyCounts
from whence.plan.partitions.heavy_keys import Heavy, HeavyKeys, Key, RoutedJoin, RowsBy

_STAYS = 4  # how far below the limit a heavy key stays one
_ROOM = 4  # keys that a partition counts, for each partition there is
_LEAST_ROOM = 16

Counted = tuple[RowsBy, int, tuple[Key, ...]]
"""What a partition is to count, how many keys at most, and keys to count in any case."""


class HeavyJoins:
    """Follows the joins of a plan. `ask` gives what every partition counts."""

    def __init__(
        self, partitions: int, least: int, ask: Callable[[tuple[Counted, ...]], Sequence[Sequence[KeyCounts]]]
    ):
        self._partitions, self._least, self._ask = partitions, least, ask
        self._changed, self._patience = 0, least

    def is_due(self, added: int) -> bool:
        """Return whether partitions should be asked, before so many rows come to tables."""
        due = self._partitions > 1 and self._changed >= self._patience
        self._changed = added + (0 if due else self._changed)
        return due

    def choose(self, joins: Iterable[RoutedJoin], now: Heavy) -> dict[str, HeavyKeys]:
        """Return the heavy keys of some joins; `now` are those that are divided so far."""
        wanted = [
            (join, side, source, now.get(join.name, HeavyKeys()))
            for join in joins
            for side in (0, 1)
            for source in join.sides[side]
        ]
        if not wanted:
            return {}
        room = max(_ROOM * self._partitions, _LEAST_ROOM)
        asked = tuple((source, room, (*keys.left, *keys.right)) for _, _, source, keys in wanted)
        found = self._ask(asked)
        sides: dict[str, list[dict[Key, int]]] = {}
        totals: dict[str, list[int]] = {}
        rows = 0
        for number, (join, side, source, keys) in enumerate(wanted):
            copied = (keys.right, keys.left)[side] if source.moved else ()
            counts = _added([part[number] for part in found], copied)
            sides.setdefault(join.name, [{}, {}])
            totals.setdefault(join.name, [0, 0])[side] += counts.rows
            for key, count in counts.keys.items():
                mine = sides[join.name][side]
                mine[key] = mine.get(key, 0) + count
            rows = max(rows, counts.rows)
        self._patience = max(self._least, rows // 2)
        chosen = {
            join.name: self._heavy(join, sides[join.name], totals[join.name], now.get(join.name, HeavyKeys()))
            for join, _, _, _ in wanted
        }
        return {name: keys for name, keys in chosen.items() if keys}

    def _heavy(
        self, join: RoutedJoin, sides: Sequence[Mapping[Key, int]], totals: Sequence[int], now: HeavyKeys
    ) -> HeavyKeys:
        """Return the keys of a join that are heavy on a side that may be divided, each on the side with more rows."""
        found: tuple[list[Key], list[Key]] = ([], [])
        for side in (0, 1):
            for key, count in sides[side].items():
                other = sides[1 - side].get(key, 0)
                before = key in (now.left, now.right)[side]
                limit = max(self._least, totals[side] / self._partitions) / (_STAYS if before else 1)
                larger = count > other or (count == other and side == 0) or not join.dividable[1 - side]
                if join.dividable[side] and larger and count >= limit:
                    found[side].append(key)
        return HeavyKeys(*(tuple(sorted(keys)) for keys in found))


def _added(parts: Sequence[KeyCounts], copied: Iterable[Key]) -> KeyCounts:
    """Add up what partitions counted; all have the rows of keys that are copied, which count once."""
    rows, keys = 0, dict[Key, int]()
    for part in parts:
        rows += part.rows
        for key, count in part.keys.items():
            keys[key] = keys.get(key, 0) + count
    for key in copied:
        once = max((part.keys.get(key, 0) for part in parts), default=0)
        rows, keys[key] = rows - keys.get(key, 0) + once, once
    return KeyCounts(rows, keys)


def to_json(heavy: Heavy) -> dict[str, Any]:
    """Return heavy keys as an image has them.

    >>> from_json(to_json({"j": HeavyKeys(((1, 2),))}))
    {'j': HeavyKeys(left=((1, 2),), right=())}
    """
    return {name: [[list(key) for key in side] for side in (keys.left, keys.right)] for name, keys in heavy.items()}


def from_json(image: Mapping[str, Any]) -> dict[str, HeavyKeys]:
    """Return the heavy keys that an image has."""
    return {name: HeavyKeys(*(tuple(map(tuple, side)) for side in sides)) for name, sides in image.items()}
