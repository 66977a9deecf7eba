"""Stream operators over random streams, cut into epochs at random, undone and restored on the way: what comes out is
what a few lines of Python say, row by row, with what each row carries."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import examples
from tests.streams.driver import PAIR, Feed, Row, Sets, cut, run, same_however_cut, schema, stream
from whence.annotate.covering import Covering
from whence.annotate.lineage import Lineage
from whence.engine.core.operator import Batch
from whence.engine.relational.scan import Scan
from whence.engine.streams import arrivals, lookup, sort
from whence.engine.streams.generate import Generate
from whence.engine.streams.lookup import Lookup
from whence.engine.streams.merge import Merge
from whence.engine.streams.sort import BSort
from whence.engine.streams.windows import recent, window_join
from whence.engine.streams.windows.latest import Latest
from whence.engine.streams.windows.window_join import WindowJoin
from whence.model.codes import NULL, Dictionary
from whence.model.types import BIGINT, BOOLEAN
from whence.plan.algebra.expressions import Call, Col
from whence.plan.algebra.logical import Scan as LogicalScan
from whence.plan.streams import model as nodes
from whence.plan.streams.model import Span

TWO, FOUR = schema(BIGINT, BIGINT), stream(BIGINT, BIGINT, BIGINT, BIGINT)
few = settings(max_examples=examples(25))
Event = tuple[int, Row, int]  # side, row with `$at`, tid


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks, and what may be kept without need, so small that a few rows fill them."""
    monkeypatch.setattr(lookup, "BLOCK", 4)
    monkeypatch.setattr(window_join, "BLOCK", 3)
    for module in (arrivals, recent, sort):
        monkeypatch.setattr(module, "SPARE", 1)


@st.composite
def arrived(draw: st.DrawFn) -> list[list[Row]]:
    """Two streams of (key, value that mostly rises), of which some rows arrive together."""
    rows: list[list[Row]] = [[], []]
    steps = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(-1, 5)), max_size=40))
    for at, (where, key, value) in enumerate(steps, 1):
        row = (NULL if key == 3 else key, NULL if value < 0 else value + at // 3, at)
        for side in ((0,), (1,), (0, 1))[where]:
            rows[side].append(row)
    return rows


def events(rows: list[list[Row]]) -> Iterator[Event]:
    """In the order they come, the left first."""
    every = [(row[-1], side, tid, row) for side in (0, 1) for tid, row in enumerate(rows[side], 1)]
    for _, side, tid, row in sorted(every, key=lambda e: e[:3]):
        yield side, row, tid


def carried(side: int, tid: int) -> list[int]:
    return [tid, 0] if side == 0 else [0, tid]


@few
@given(rows=arrived(), slack=st.integers(0, 4), seed=st.integers(0, 99))
def test_merge_and_bsort(rows, slack, seed):
    def make():
        left, right, tracer = Feed(), Feed(), Sets()
        return BSort(Merge([Generate(left, "a", tracer), Generate(right, "b", tracer)], PAIR), 1, slack), [left, right]

    held: list[tuple[int, int, Row, list[int]]] = []
    expected, last = [], NULL
    for number, (side, row, tid) in enumerate(events(rows)):
        if row[1] == NULL or row[1] < last:
            continue
        held.append((row[1], number, row, carried(side, tid)))
        if len(held) == slack + 2:
            held.sort()
            last, _, out, ann = held.pop(0)
            expected.append(((*out[:-1], row[-1]), ann))
    assert same_however_cut(make, rows, seed) == expected


SPANS = [
    (Span(3), Span(2), ()),
    (Span(3), Span(2), ((0, 0),)),
    (Span(None), Span(1), ((0, 0),)),
    (Span(3, by=(0,)), Span(2, by=(1,)), ((0, 0),)),
    (Span(4, on=1), Span(2, on=1), ()),
    (Span(4, on=1), Span(2, on=1), ((0, 0),)),
    (Span(4, on=1, by=(0,)), Span(3, on=1, by=(0,)), ((0, 0),)),
    (Span(None, on=1), Span(2, on=1), ()),
]


def pairs(rows: list[list[Row]], spans: tuple[Span, Span], keys: tuple[tuple[int, int], ...]) -> list:
    came: tuple[list[tuple[Row, int]], ...] = ([], [])
    out = []

    def key(row: Row, side: int) -> Row:
        return tuple(row[c] for c in spans[side].by)

    def within(row: Row, x: Row, width: int | float | None) -> bool:
        return row[1] <= x[1] and (width is None or row[1] > x[1] - width)

    for side, row, tid in events(rows):
        own, other, span = came[side], came[1 - side], spans[1 - side]
        if span.on is not None:
            same = [r for r, _ in own if key(r, side) == key(row, side)]
            if row[1] == NULL or (same and row[1] < same[-1][1]):
                continue
        for n, (met, met_tid) in enumerate(other):
            if span.on is not None:
                near = within(met, row, span.size) or within(row, met, spans[side].size)
            else:
                newer = sum(key(r, 1 - side) == key(met, 1 - side) for r, _ in other[n + 1 :])
                near = span.size is None or newer < span.size
            left, right = (row, met) if side == 0 else (met, row)
            if near and all(left[a] == right[b] != NULL for a, b in keys):
                tids = [tid, met_tid] if side == 0 else [met_tid, tid]
                out.append(((*left[:-1], *right[:-1], row[-1]), tids))
        own.append((row, tid))
    return out


@pytest.mark.parametrize(("left_span", "right_span", "keys"), SPANS)
@pytest.mark.parametrize("tested", [False, True])
@few
@given(rows=arrived(), seed=st.integers(0, 99))
def test_window_join(left_span, right_span, keys, tested, rows, seed):
    test = Call(BOOLEAN, "<", (Col(BIGINT, 0), Col(BIGINT, 3))) if tested else None

    def make():
        left, right, tracer = Feed(), Feed(), Sets()
        op = WindowJoin(
            Generate(left, "a", tracer), Generate(right, "b", tracer),
            left_span, right_span, keys, test, FOUR, Dictionary(),
        )  # fmt: skip
        return op, [left, right]

    expected = pairs(rows, (left_span, right_span), keys)
    if tested:
        expected = [(r, tids) for r, tids in expected if NULL != r[0] < r[3] != NULL]
    assert same_however_cut(make, rows, seed) == expected


@pytest.mark.parametrize("tracing", [Lineage, Covering])
@few
@given(rows=arrived(), seed=st.integers(0, 99))
def test_window_join_carries_what_both_sides_came_from(tracing, rows, seed):
    tracer = tracing(("a", "b"))
    left, right = Feed(), Feed()
    keys, spans = ((0, 0),), (Span(3), Span(2))
    op = WindowJoin(
        BSort(Generate(left, "a", tracer), 1, 1), Generate(right, "b", tracer), *spans, keys, None, FOUR, Dictionary()
    )
    out = run(op, cut(random.Random(seed), {left: rows[0], right: rows[1]}, 4), seed)
    ann = np.array([a for _, a in out], np.int64) if out else tracer.blank(0)
    held, last, sorted_left, origin = [], NULL, [], []
    for tid, row in enumerate(rows[0], 1):
        if NULL != row[1] >= last:
            held.append((row[1], tid, row))
            if len(held) == 3:
                held.sort()
                last, first, given_out = held.pop(0)
                sorted_left.append((*given_out[:-1], row[-1]))
                origin.append(first)
    expected = [(row, [origin[a - 1], b]) for row, (a, b) in pairs([sorted_left, rows[1]], spans, keys)]
    assert [row for row, _ in out] == [row for row, _ in expected]
    for side, source in enumerate("ab"):
        assert tracer.spans(ann, source).tolist() == [[tids[side], tids[side]] for _, tids in expected]


@pytest.mark.parametrize("span", [Span(3), Span(2, by=(0,)), Span(4, on=1), Span(3, on=1, by=(0,)), Span(None)])
@few
@given(rows=arrived(), parts=st.integers(0, 9), seed=st.integers(0, 99))
def test_latest(span, rows, parts, seed):
    feed = Feed()
    op = Latest(feed, span, TWO)
    epochs = cut(random.Random(seed), {feed: rows[0]}, parts)
    now: Counter[Row] = Counter()
    for number, epoch in enumerate(epochs):
        for row, sign in run(op, [epoch], seed + number):
            now[row] += sign
        expected = in_window(feed.rows, span)
        assert +now == expected
        assert min(now.values(), default=0) >= 0
        assert Counter(map(tuple, op.recompute().rows.tolist())) == expected


def in_window(rows: list[Row], span: Span) -> Counter[Row]:
    groups: dict[Row, list[Row]] = {}
    for row in rows:
        group = groups.setdefault(tuple(row[c] for c in span.by), [])
        if span.on is None or (row[1] != NULL and (not group or group[-1][1] <= row[1])):
            group.append(row)
    out: Counter[Row] = Counter()
    for group in groups.values():
        if span.size is None:
            still = group
        elif span.on is None:
            still = group[-int(span.size) :]
        else:
            still = [r for r in group if r[1] > group[-1][1] - span.size]
        out.update(r[:-1] for r in still)
    return out


relation_change = st.tuples(st.integers(0, 3), st.integers(0, 2), st.sampled_from([1, 1, 2, -1]))


@pytest.mark.parametrize("kind", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize("keys", [(), ((0, 0),)])
@pytest.mark.parametrize("tested", [False, True])
@few
@given(rows=arrived(), changes=st.lists(st.lists(relation_change, max_size=4), max_size=6), seed=st.integers(0, 99))
def test_lookup(kind, keys, tested, rows, changes, seed):
    feed, table = Feed(), Scan("t", TWO, ())
    test = Call(BOOLEAN, "<", (Col(BIGINT, 1), Col(BIGINT, 3))) if tested else None
    wide = kind in ("inner", "left")
    node = nodes.Lookup(FOUR if wide else PAIR, nodes.Stream(PAIR, "a"), LogicalScan(TWO, "t"), kind, keys, test)
    op = Lookup([Generate(feed, "a", Sets()), table], node, Dictionary())
    epochs = cut(random.Random(seed), {feed: rows[0]}, len(changes))
    there: Counter[Row] = Counter()
    expected: list[Any] = []
    tid = 0
    for change, epoch in zip([*changes, []], epochs, strict=False):
        delta: Counter[Row] = Counter()
        for key, value, sign in change:
            row = (NULL if key == 3 else key, value)
            if there[row] + delta[row] + sign >= 0:
                delta[row] += sign
        there.update(delta)
        some = [r for r, n in delta.items() if n]
        if some:
            epoch[table] = Batch(np.array(some, np.int64), np.array([delta[r] for r in some]))
        for row in epoch[feed]:
            tid += 1
            met = [r for r in sorted(there) for _ in range(there[r]) if all(row[a] == r[b] != NULL for a, b in keys)]
            if tested:
                met = [r for r in met if NULL != row[1] < r[1]]
            if wide:
                padded = met or ([(NULL, NULL)] if kind == "left" else [])
                expected += [((*row[:-1], *r, row[-1]), [tid, 0]) for r in padded]
            elif bool(met) == (kind == "semi"):
                expected.append((row, [tid, 0]))
    assert run(op, epochs, seed) == expected
