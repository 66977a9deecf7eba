"""Contours of a MIN or MAX over several ranges: every box whose answer changed is in one of them, and no other is."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

import whence
from tests.depth import seeds


def answers(rows: set[tuple[int, ...]], boxes: list[Any], greatest: bool, strict: bool) -> list[int | None]:
    """The MIN or MAX of each box, given as a key and two ranges, by brute force."""
    best = max if greatest else min

    def holds(low: int | None, high: int | None, value: int) -> bool:
        return (low is None or (low < value if strict else low <= value)) and (high is None or value <= high)

    return [
        best((y for _, k, a, b, y in rows if k == key and holds(*first, a) and holds(*second, b)), default=None)
        for key, first, second in boxes
    ]


@pytest.mark.parametrize("seed", seeds(8))
def test_contours_reach_exactly_the_boxes_that_changed(seed: int) -> None:
    chance = random.Random(seed)
    greatest, strict = bool(seed % 2), bool(seed // 2 % 2)
    db = whence.open()
    db.execute("CREATE TABLE r (id INT PRIMARY KEY, k INT, a INT, b INT, y INT)")
    first = "a > :alow AND a <= :ahigh" if strict else "a BETWEEN :alow AND :ahigh"
    least = f"{'MAX' if greatest else 'MIN'}(y)"
    second = "b > :blow AND b <= :bhigh" if strict else "b BETWEEN :blow AND :bhigh"
    db.execute(f"CREATE TEMPLATE t AS SELECT {least} AS y FROM r WHERE k = :k AND {first} AND {second}")
    ends = [None, 0, 1, 3, 4]
    ranges = [(low, high) for low in ends for high in ends]
    boxes = [(key, *both) for key in (1, 2) for both in itertools.product(ranges, ranges)]
    messages = db.messages("t")
    before = answers(set(), boxes, greatest, strict)
    for _ in range(8):
        with db.transaction():
            for _ in range(chance.randrange(1, 5)):
                if chance.random() < 0.4:
                    db.execute(f"DELETE FROM r WHERE id = {chance.randrange(7)}")
                else:
                    row = [chance.randrange(7), chance.choice([1, 1, 2]), *(chance.randrange(5) for _ in range(3))]
                    db.insert("r", tuple(None if at > 1 and chance.random() < 0.1 else v for at, v in enumerate(row)))
        rows = {row for row in db["r"].rows if None not in row}
        now = answers(rows, boxes, greatest, strict)
        found = list(messages)
        assert all(isinstance(one, whence.ContourMessage) for one in found)
        for (key, *ranged), old, new in zip(boxes, before, now, strict=True):
            reached = [
                m.value for m in found if isinstance(m, whence.ContourMessage) and m.reaches(*ranged, key=(key,))
            ]
            assert reached == ([] if old == new else [new])
        before = now


def test_messages_begin_with_the_rows_that_are_there() -> None:
    db = whence.open()
    db.execute("CREATE TABLE r (a INT, b DOUBLE, y TEXT)")
    db.execute("CREATE TEMPLATE t AS SELECT MIN(y) AS y FROM r WHERE a >= :a AND b <= :b")
    db.insert("r", [(1, 0.5, "b"), (5, 0.1, "a")])
    with db.messages("t") as messages:
        db.insert("r", [(1, 0.5, "aa"), (3, 1e300, "zz")])
        db.delete("r", (5, 0.1, "a"))
        assert [(m.epoch, m.value) for m in messages] == [(2, "aa"), (2, "zz"), (3, "aa"), (3, "zz"), (3, None)]
    db.execute("CREATE TEMPLATE u AS SELECT MIN(a) AS a FROM r WHERE y >= :y AND b <= :b")
    with pytest.raises(whence.WhenceError, match="range of TEXT"):
        db.messages("u")
