"""Count the keys that many rows of a relation have, in one pass with bounded memory and one to count them exactly.

Law: every key with more than a `room + 1`th of the rows is among those returned, with the number of distinct rows that
have it. Nothing is maintained while rows come and go, so nothing has to be undone or stored; whoever asks decides how
often that pays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whence.engine.core.relation import Relation
from whence.engine.exchange.kernels.heavy_keys import count_keys, frequent_keys, number_keys
from whence.model.codes import Codes

Key = tuple[int, ...]
"""Codes of some columns."""


class KeyCounts(NamedTuple):
    """How many distinct rows there are, and how many of them have each of some keys."""

    rows: int
    keys: dict[Key, int]


def count_heavy(relation: Relation, cols: tuple[int, ...], room: int, known: tuple[Key, ...]) -> KeyCounts:
    """Count the rows of the most frequent keys, and of those that are `known`."""
    own, high = np.array(cols, np.int64), int(relation.meta[0])
    found = frequent_keys(relation.rows, relation.ann, high, own, room)
    keys = dict.fromkeys((*known, *map(tuple, found.tolist())))
    counts = count_keys(relation.rows, relation.ann, high, own, as_codes(tuple(keys), len(cols)))
    return KeyCounts(len(relation), dict(zip(keys, counts.tolist(), strict=True)))


def as_codes(keys: tuple[Key, ...], width: int) -> Codes:
    """Return distinct keys as an array, a row each."""
    return np.array(keys, np.int64).reshape(len(keys), width)


def with_key(rows: Codes, cols: tuple[int, ...], keys: Codes) -> Codes:
    """Return which of some distinct keys each row has; -1 for another one."""
    return number_keys(np.ascontiguousarray(rows), np.array(cols, np.int64), keys)
