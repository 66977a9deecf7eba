"""The join in bounded memory over random streams, cut into epochs at random, undone and restored on the way: what comes
out, and what it says it missed, is what some lines of Python say."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import examples
from tests.property.test_stream_operators import FOUR, arrived, events, pairs
from tests.streams.driver import Feed, Sets, cut, run, same_however_cut
from whence.engine.streams import arrivals
from whence.engine.streams.generate import Generate
from whence.engine.streams.windows import bounded_join, eviction_tuner, kept_rows
from whence.engine.streams.windows.bounded_join import BoundedJoin
from whence.model.codes import NULL, Dictionary
from whence.model.types import BIGINT, BOOLEAN
from whence.plan.algebra.expressions import Call, Col
from whence.plan.streams.model import MemoryLimit, Span

KEYS = ((0, 0),)
few = settings(max_examples=examples(15))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks, what may be kept without need, and times between changes, so small that a few rows meet them."""
    monkeypatch.setattr(bounded_join, "BLOCK", 3)
    monkeypatch.setattr(arrivals, "SPARE", 1)
    monkeypatch.setattr(kept_rows, "_SPARE", 1)
    monkeypatch.setattr(kept_rows, "_AGEING", 7)
    monkeypatch.setattr(eviction_tuner, "_FIRST", 4)
    monkeypatch.setattr(eviction_tuner, "_EVERY", 16)
    monkeypatch.setattr(eviction_tuner, "_REMEMBERED", 16)


def joined(limit: MemoryLimit, span: Span, test=None, made=None):
    """Return a maker of the operator over two feeds; what it makes is listed in `made`."""

    def make():
        left, right, tracer = Feed(), Feed(), Sets()
        op = BoundedJoin(
            Generate(left, "a", tracer), Generate(right, "b", tracer), span, span, KEYS, test, FOUR, Dictionary(), limit
        )
        if made is not None:
            made.append(op)
        return op, [left, right]

    return make


def brute_force(rows, capacity: int, size: int | None, keep: str):
    """Return the pairs that a join which keeps `capacity` rows makes, and how many it misses."""
    kept: list[tuple[int, int, tuple, int]] = []  # side, number in its side, row, tid
    evicted: list[tuple[int, int, int]] = []
    came = [0, 0]
    count: list[Counter[int]] = [Counter(), Counter()]
    last: list[Counter[int]] = [Counter(), Counter()]
    out, missed, clock = [], 0, 0
    ageing = max(7, 2 * capacity)
    for number_of_all, (side, row, tid) in enumerate(events(rows), 1):
        if row[0] != NULL:
            for s, _, met, met_tid in kept:
                if s != side and met[0] == row[0]:
                    left, right = (row, met) if side == 0 else (met, row)
                    tids = [tid, met_tid] if side == 0 else [met_tid, tid]
                    out.append(((*left[:-1], *right[:-1], row[-1]), tids))
            missed += sum(s != side and key == row[0] for s, _, key in evicted)
            clock += 1
            count[side][row[0]] += 1
            last[side][row[0]] = clock
            kept.append((side, came[side], row, tid))
        came[side] += 1
        if size is not None:
            kept = [k for k in kept if came[k[0]] - k[1] <= size]
            evicted = [e for e in evicted if came[e[0]] - e[1] <= size]

        def score(entry) -> tuple[int, int]:
            s, number, row, _ = entry
            value, left = row[0], 1 if size is None else size - (came[s] - 1 - number)
            found = {
                "lru": max(last[0][value], last[1][value]), "lfu": count[1 - s][value],
                "prob": count[1 - s][value], "life": count[1 - s][value] * left,
            }  # fmt: skip
            return found[keep], 2 * number + s

        if len(kept) > capacity:
            worst = min(kept, key=score)
            kept.remove(worst)
            evicted.append((worst[0], worst[1], worst[2][0]))
        if number_of_all % ageing == 0:
            for counts in count:
                for value in counts:
                    counts[value] >>= 1
    return out, missed


@pytest.mark.parametrize("size", [None, 4])
@pytest.mark.parametrize("keep", ["lru", "lfu", "prob", "life"])
@few
@given(rows=arrived(), capacity=st.integers(1, 6), seed=st.integers(0, 99))
def test_join_keeps_what_the_policy_says(size, keep, rows, capacity, seed):
    made: list[BoundedJoin] = []
    make = joined(MemoryLimit(capacity, text="rows", keep=keep), Span(size), made=made)
    expected, missed = brute_force(rows, capacity, size, keep)
    assert sorted(same_however_cut(make, rows, seed)) == sorted(expected)
    every = len(pairs(rows, (Span(size), Span(size)), KEYS))
    for op in made:
        if op.missed.is_exact:
            assert op.missed.rows == missed == every - len(expected)


@pytest.mark.parametrize("size", [None, 5])
@pytest.mark.parametrize("keep", ["heeb", "random"])
@few
@given(rows=arrived(), capacity=st.integers(1, 6), seed=st.integers(0, 99))
def test_pairs_are_of_the_join_and_the_rest_is_counted(size, keep, rows, capacity, seed):
    made: list[BoundedJoin] = []
    make = joined(MemoryLimit(capacity, text="rows", keep=keep), Span(size), made=made)
    found = same_however_cut(make, rows, seed)
    every = Counter((row, tuple(tids)) for row, tids in pairs(rows, (Span(size), Span(size)), KEYS))
    mine = Counter((row, tuple(tids)) for row, tids in found)
    assert mine <= every
    for op in made:
        assert op.state_rows <= capacity
        if op.missed.is_exact:
            assert op.missed.rows == (every - mine).total()


@few
@given(rows=arrived(), seed=st.integers(0, 99))
def test_join_with_room_for_all_rows_misses_none(rows, seed):
    test = Call(BOOLEAN, "<", (Col(BIGINT, 0), Col(BIGINT, 3)))
    made: list[BoundedJoin] = []
    found = same_however_cut(joined(MemoryLimit(100, text="rows"), Span(None), test, made), rows, seed)
    expected = [(r, t) for r, t in pairs(rows, (Span(None), Span(None)), KEYS) if NULL != r[0] < r[3] != NULL]
    assert sorted(found) == sorted(expected)
    assert all(op.missed.rows == 0 for op in made)


@pytest.mark.parametrize("keep", ["heeb", "lru", "random"])
def test_batches_of_evictions_leave_at_most_the_limit(keep):
    luck = random.Random(5)
    rows = [[(luck.randrange(400) + i // 4, i, 2 * i + s) for i in range(3000)] for s in (0, 1)]
    make = joined(MemoryLimit(200, text="rows", keep=keep), Span(None))
    answers = []
    for parts in (0, 9):
        op, feeds = make()
        answers.append(run(op, cut(luck, dict(zip(feeds, rows, strict=True)), parts), 1))
        assert 180 <= op.state_rows <= 200
    assert answers[0] == answers[1]


def test_missed_is_an_estimate_when_too_many_keys_have_lost_rows():
    rng = np.random.default_rng(3)
    keys = rng.integers(0, 500, (2, 6000))
    rows = [[(int(k), i, 2 * i + s) for i, k in enumerate(keys[s])] for s in (0, 1)]
    op, feeds = joined(MemoryLimit(40, text="rows", keep="random"), Span(None))()
    found = len(run(op, cut(random.Random(1), dict(zip(feeds, rows, strict=True)), 20), 2))
    every = sum(a * Counter(keys[1].tolist())[k] for k, a in Counter(keys[0].tolist()).items())
    missed = op.missed
    assert not missed.is_exact
    assert abs(missed.rows - (every - found)) < 4 * missed.error
