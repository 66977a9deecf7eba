"""Each stream operator on the smallest input that shows what it does."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.streams.driver import PAIR, Feed, Sets, cut, reload, run, schema, stream
from whence.engine.core.batch import concat, take
from whence.engine.core.image import StaleImage
from whence.engine.core.operator import Batch
from whence.engine.relational.lateral import Lateral
from whence.engine.relational.project import Project
from whence.engine.relational.scan import Scan
from whence.engine.relational.select import Select
from whence.engine.streams.generate import DropProvenance, Generate, StreamToRelation
from whence.engine.streams.lookup import Lookup
from whence.engine.streams.merge import Merge
from whence.engine.streams.sort import BSort
from whence.engine.streams.windows.latest import Latest
from whence.engine.streams.windows.window_join import WindowJoin
from whence.model.codes import NULL, Dictionary, floats_to_codes
from whence.model.errors import EvaluationError, SqlError
from whence.model.types import BIGINT, BOOLEAN, DOUBLE, Column, Schema
from whence.plan.algebra.expressions import Call, Col, Lit
from whence.plan.algebra.logical import Scan as LogicalScan
from whence.plan.streams import model as nodes
from whence.plan.streams.model import Span

WORDS = Dictionary()
TWO, FOUR = schema(BIGINT, BIGINT), stream(BIGINT, BIGINT, BIGINT, BIGINT)


def code(value: float) -> int:
    return int(floats_to_codes(np.array([value]))[0])


# -- generate, plain, relate -----------------------------------------------------------------------------------------


class Kept(Feed):
    """A stream that has dropped its first rows."""

    class kept:  # noqa: N801  # stands for an object
        first = 7


def test_generate_numbers_rows_on_and_on():
    feed = Feed()
    op = Generate(feed, "b", Sets())
    out = run(op, [{feed: [(5, 5, 1)]}, {feed: [(6, 6, 2), (6, 6, 3)]}], seed=1)
    assert out == [((5, 5, 1), [0, 1]), ((6, 6, 2), [0, 2]), ((6, 6, 3), [0, 3])]
    assert op.recompute().ann.tolist() == [[0, 1], [0, 2], [0, 3]]
    op.clear()
    assert op.next == 1


def test_generate_begins_with_the_first_row_that_is_kept():
    feed = Kept()
    feed.rows = [(5, 5, 9)]
    op = Generate(feed, "a", Sets())
    assert op.prime([feed.contents()]).ann.tolist() == [[7, 0]]
    op.commit()
    assert op.next == 8
    assert op.recompute().ann.tolist() == [[7, 0]]


def test_generate_of_a_stream_that_is_not_traced():
    feed = Feed()
    assert run(Generate(feed, None, Sets()), [{feed: [(5, 5, 1)]}]) == [((5, 5, 1), [0, 0])]


def test_plain_drops_what_rows_carry():
    feed = Feed()
    op = DropProvenance(Generate(feed, "a", Sets()))
    assert run(op, [{feed: [(5, 5, 1)]}]) == [((5, 5, 1), 1)]
    assert op.tracer is None


def test_relate_forgets_when_rows_came():
    feed = Feed()
    out = run(StreamToRelation(Generate(feed, "a", Sets()), TWO), [{feed: [(5, 6, 1), (5, 6, 2)]}, {feed: [(5, 6, 3)]}])
    assert out == 3 * [((5, 6), 1)]


# -- merge -----------------------------------------------------------------------------------------------------------


def test_merge_is_by_arrival_then_by_branch_then_as_made():
    left, right = Feed(), Feed()
    epoch = {left: [(1, 1, 2), (1, 2, 4), (1, 3, 4)], right: [(2, 1, 1), (2, 2, 4), (2, 3, 9)]}
    out = run(Merge([left, right], PAIR), [epoch, {left: [(1, 9, 12)], right: []}])
    assert [r for r, _ in out] == [(2, 1, 1), (1, 1, 2), (1, 2, 4), (1, 3, 4), (2, 2, 4), (2, 3, 9), (1, 9, 12)]


# -- b-sort ----------------------------------------------------------------------------------------------------------


def test_bsort_holds_slack_and_one_more_and_gives_the_smallest():
    feed = Feed()
    op = BSort(Generate(feed, "a", Sets()), 1, 1)
    rows = [(0, 5, 1), (0, 3, 2), (0, 4, 3), (1, 4, 4), (0, 2, 5), (0, NULL, 6), (0, 9, 7)]
    out = run(op, [{feed: [row]} for row in rows], seed=3)
    assert out == [((0, 3, 3), [2, 0]), ((0, 4, 4), [3, 0]), ((1, 4, 7), [4, 0])]
    assert (op.late.count, op.late.rows.tolist()) == (2, [[0, 2], [0, NULL]])
    assert op.state_rows == 2


def test_bsort_of_floats_has_no_place_for_what_is_not_a_number():
    feed = Feed(stream(DOUBLE))
    rows = [(code(v), at) for at, v in enumerate([2.0, float("nan"), -1.0, float("inf")], 1)]
    op = BSort(feed, 0, 0)
    assert [r for r, _ in run(op, [{feed: rows}])] == [(code(-1.0), 3), (code(2.0), 4)]
    assert op.late.count == 1


def test_bsort_takes_no_image_of_another_layout():
    feed = Feed()
    op = BSort(feed, 1, 1)
    run(op, [{feed: [(0, 5, 1), (0, 4, 2)]}])
    with pytest.raises(StaleImage):
        op.restore({"rows": np.zeros((1, 9), np.int64)})
    assert [r for r, _ in run(op, [{feed: [(0, 6, 3)]}])] == [(0, 4, 3)]


# -- lookup ----------------------------------------------------------------------------------------------------------


def looked_up(kind: str, keys=((0, 0),), residual=None):
    feed, table = Feed(), Scan("t", TWO, ())
    out = {"inner": FOUR, "left": FOUR, "semi": PAIR, "anti": PAIR}[kind]
    node = nodes.Lookup(out, nodes.Stream(PAIR, "a"), LogicalScan(TWO, "t"), kind, keys, residual)
    op = Lookup([Generate(feed, "a", Sets()), table], node, WORDS)
    change = Batch(np.array([[1, 9], [1, 7], [2, 8], [NULL, 5]]), np.array([1, 1, 2, 1]))
    take_away = Batch(np.array([[1, 9], [1, 7]]), np.array([-1, -1]))
    rows = [(1, 0, 1), (2, 0, 2), (3, 0, 3), (NULL, 0, 4)]
    return run(op, [{table: change, feed: rows}, {table: take_away}, {feed: [(1, 1, 5)]}], seed=2)


def test_lookup_meets_the_relation_as_it_is_in_the_epoch():
    assert looked_up("inner") == [
        ((1, 0, 1, 7, 1), [1, 0]),
        ((1, 0, 1, 9, 1), [1, 0]),
        ((2, 0, 2, 8, 2), [2, 0]),
        ((2, 0, 2, 8, 2), [2, 0]),
    ]


def test_lookup_left_pads_rows_that_meet_nobody():
    out = looked_up("left")
    assert out[4:] == [
        ((3, 0, NULL, NULL, 3), [3, 0]),
        ((NULL, 0, NULL, NULL, 4), [4, 0]),
        ((1, 1, NULL, NULL, 5), [5, 0]),
    ]


def test_lookup_semi_and_anti():
    assert looked_up("semi") == [((1, 0, 1), [1, 0]), ((2, 0, 2), [2, 0])]
    assert looked_up("anti") == [((3, 0, 3), [3, 0]), ((NULL, 0, 4), [4, 0]), ((1, 1, 5), [5, 0])]


def test_lookup_without_keys_tries_every_pair():
    larger = Call(BOOLEAN, "<", (Col(BIGINT, 0), Col(BIGINT, 2)))  # stream's first column < relation's first
    first, second = (1, 0, 2, 8, 1), (1, 1, 2, 8, 5)
    assert [r for r, _ in looked_up("inner", (), larger)] == [first, first, second, second]


# -- window join -----------------------------------------------------------------------------------------------------


def joined(left_span: Span, right_span: Span, rows, keys=((0, 0),), residual=None) -> tuple[WindowJoin, list]:
    left, right = Feed(), Feed()
    op = WindowJoin(left, right, left_span, right_span, keys, residual, FOUR, WORDS)
    return op, [r for r, _ in run(op, cut(random.Random(1), {left: rows[0], right: rows[1]}, 2), 5)]


def test_join_of_the_last_rows():
    rows = [(1, 10, 1), (1, 11, 2), (2, 12, 3)], [(1, 20, 4), (2, 21, 5)]
    op, out = joined(Span(2), Span(1), rows)
    assert out == [(1, 11, 1, 20, 4), (2, 12, 2, 21, 5)]  # 10 was the third last
    assert op.state_rows == 3


def test_join_of_the_last_rows_of_each_key():
    rows = [(1, 10, 1), (1, 11, 2), (2, 12, 3)], [(1, 20, 4), (2, 21, 5)]
    _, out = joined(Span(1, by=(0,)), Span(1), rows)
    assert out == [(1, 11, 1, 20, 4), (2, 12, 2, 21, 5)]


def test_join_of_a_stream_with_itself_meets_a_row_once():
    rows = [(1, 1, 1), (1, 2, 2)]
    _, out = joined(Span(1), Span(1), (rows, rows))
    assert out == [(1, 1, 1, 1, 1), (1, 2, 1, 1, 2), (1, 2, 1, 2, 2)]


def test_join_by_value_whichever_side_is_ahead():
    rows = [(1, 10, 1), (1, 14, 2), (1, 20, 5)], [(1, 12, 3), (1, 15, 4), (1, 25, 6)]
    op, out = joined(Span(3, on=1), Span(6, on=1), rows)
    # (10, 12): 12 − 3 < 10; (14, 12): 14 − 6 < 12; (14, 15): 15 − 3 < 14; (20, 15): 20 − 6 < 15
    assert out == [(1, 10, 1, 12, 3), (1, 14, 1, 12, 3), (1, 14, 1, 15, 4), (1, 20, 1, 15, 5)]
    assert op.state_rows == 2  # 15 and 25 can be reached by 20 and more, but not 20 by 25 and more


def test_join_by_value_of_a_row_that_comes_behind_the_other_side():
    rows = [(1, 10, 2), (1, 11, 3)], [(1, 14, 1)]
    _, out = joined(Span(4, on=1), Span(9, on=1), rows)
    assert out == [(1, 11, 1, 14, 3)]  # 14 − 4 < 11, but not < 10


def test_join_of_each_key_when_the_last_of_a_chain_leaves_first():
    rows = [(1, 10, 1), (1, 20, 2), (2, 20, 3), (1, 30, 4)], [(1, 0, 5)]
    _, out = joined(Span(1, by=(1,)), Span(1), rows)
    assert out == [(1, 10, 1, 0, 5), (1, 30, 1, 0, 5)]


def test_join_by_value_counts_what_is_late():
    rows = [(1, 10, 1), (1, 9, 2), (1, NULL, 3)], [(1, 10, 4), (1, 8, 5)]
    op, out = joined(Span(3, on=1), Span(3, on=1), rows)
    assert out == [(1, 10, 1, 10, 4)]
    assert [late.rows.tolist() for late in op.late] == [[[1, 9], [1, NULL]], [[1, 8]]]


def test_join_by_value_with_keys_that_the_join_does_not_equate():
    with pytest.raises(SqlError, match="must be `by` columns that the join equates"):
        joined(Span(3, on=1, by=(0,)), Span(3, on=1), ([], []))


def test_join_of_a_test_that_fails_is_undone():
    left, right = Feed(), Feed()
    ratio = Call(BIGINT, "//", (Lit(BIGINT, 6), Col(BIGINT, 1)))
    op = WindowJoin(left, right, Span(2), Span(2), (), Call(BOOLEAN, "<", (ratio, Col(BIGINT, 3))), FOUR, WORDS)
    run(op, [{left: [(1, 2, 1)], right: [(1, 4, 2)]}])
    with pytest.raises(EvaluationError):
        op.apply([left.batch([(1, 0, 3)]), right.batch([(1, 4, 4)])])
    op.undo()
    assert [r for r, _ in run(op, [{left: [(2, 2, 3)], right: []}])] == [(2, 2, 1, 4, 3)]


def test_join_forgets_rows_that_left():
    left, right = Feed(), Feed()
    op = WindowJoin(left, right, Span(5, by=(0,)), Span(3), ((1, 1),), None, FOUR, WORDS)
    for first in range(0, 60_000, 6_000):
        rows = [(i % 3, i, 2 * i + 1) for i in range(first, first + 6_000)]
        op.apply([left.batch(rows), right.batch([(0, b, at + 1) for _, b, at in rows])])
        op.commit()
    assert op.state_rows == 18
    assert op.state_bytes < 200_000


def test_join_by_value_keeps_nothing_that_cannot_be_reached():
    left, right = Feed(), Feed()
    op = WindowJoin(left, right, Span(5, on=1), Span(5, on=1), (), None, FOUR, WORDS)
    op.apply([left.batch([]), right.batch([(0, 1_000, 1)])])
    op.commit()
    for at in range(2, 800):  # the left comes after, far behind
        assert not len(op.apply([left.batch([(0, at, at)]), right.batch([])]))
        op.commit()
    assert op.state_rows == 1
    assert len(op.apply([left.batch([(0, 996, 801)]), right.batch([])])) == 1


# -- latest ----------------------------------------------------------------------------------------------------------


def test_latest_rows_come_and_go():
    feed = Feed()
    op = Latest(feed, Span(2), TWO)
    out = run(op, [{feed: [(1, 1, 1), (2, 2, 2)]}, {feed: [(3, 3, 3), (4, 4, 4), (5, 5, 5)]}], seed=4)
    assert out == [((1, 1), 1), ((2, 2), 1), ((1, 1), -1), ((2, 2), -1), ((4, 4), 1), ((5, 5), 1)]  # 3 was never seen
    assert op.recompute().rows.tolist() == [[4, 4], [5, 5]]


def test_latest_by_value_of_each_key():
    feed = Feed()
    op = Latest(feed, Span(5, on=1, by=(0,)), TWO)
    run(op, [{feed: [(1, 10, 1), (1, 14, 2), (1, 15, 3), (2, 1, 4), (1, 12, 5)]}])
    assert op.recompute().rows.tolist() == [[1, 14], [1, 15], [2, 1]]
    assert op.late.rows.tolist() == [[1, 12]]


def test_latest_by_value_of_floats():
    feed = Feed(stream(DOUBLE))
    op = Latest(feed, Span(0.5, on=0), schema(DOUBLE))
    run(op, [{feed: [(code(v), at) for at, v in enumerate([1.0, 1.25, 1.5, 1.75], 1)]}])
    assert op.recompute().rows.tolist() == [[code(1.5)], [code(1.75)]]


@pytest.mark.parametrize(
    "make",
    [
        lambda feed: BSort(feed, 1, 50),
        lambda feed: Latest(feed, Span(50), TWO),
        lambda feed: Latest(feed, Span(10, by=(0,)), TWO),
        lambda feed: Latest(feed, Span(50, on=1), TWO),
    ],
)
def test_state_is_no_larger_than_what_is_in_the_window(make):
    feed = Feed()
    op = make(feed)
    for first in range(0, 50_000, 5_000):
        op.apply([feed.batch([(i % 5, i, i + 1) for i in range(first, first + 5_000)])])
        op.commit()
    assert op.state_rows in (50, 51)
    assert op.state_bytes < 150_000


# -- operators of relations, on streams ------------------------------------------------------------------------------


def test_select_project_and_lateral_keep_order_copies_and_what_rows_carry():
    feed = Feed()
    start = Generate(feed, "a", Sets())
    kept = Select(start, Call(BOOLEAN, "<", (Col(BIGINT, 0), Lit(BIGINT, 9))), WORDS)
    wider = Schema((*PAIR.columns, Column("x", BIGINT)))
    twice = Lateral(kept, "two", lambda x: [x, x], (Col(BIGINT, 1),), wider, WORDS)
    op = Project(twice, (Col(BIGINT, 3), Col(BIGINT, 2)), stream(BIGINT), WORDS)
    out = run(op, [{feed: [(8, 5, 1), (9, 5, 2), (8, 4, 3)]}])
    assert out == [((5, 1), [1, 0]), ((5, 1), [1, 0]), ((4, 3), [3, 0]), ((4, 3), [3, 0])]


@pytest.mark.parametrize("traced", [True, False])
def test_a_test_that_fails_on_a_stream_is_an_error_at_once(traced):
    """It is not tried again on a consolidated batch, which has neither the order nor the copies of the stream."""
    feed, calls = Feed(), []
    op = Select(Generate(feed, "a", Sets()) if traced else feed, Lit(BOOLEAN, True), WORDS)

    def fails(rows: np.ndarray) -> np.ndarray:
        calls.append(len(rows))
        raise EvaluationError("no")

    op._test = fails
    with pytest.raises(EvaluationError):
        run(op, [{feed: [(1, 1, 1), (1, 1, 1)]}], seed=2)
    assert set(calls) == {2}


def test_batches_with_wide_annotations():
    ann = np.array([[1, 2], [3, 4]])
    batch = Batch(np.array([[1], [2]]), ann)
    assert take(batch, np.array([1])).ann.tolist() == [[3, 4]]
    assert concat([Batch.empty(1), batch, batch], 1).ann.tolist() == [*ann.tolist(), *ann.tolist()]


def test_an_image_without_annotations_restores_rows_that_came_from_nowhere():
    feed = Feed()
    op = BSort(Generate(feed, "a", Sets()), 1, 0)
    run(op, [{feed: [(1, 1, 1)]}])
    reload(op)
    image = {name: array.copy() for name, array in op.image().items() if not name.startswith("ann/")}
    op.restore(image)
    assert op.apply([Batch(np.array([[2, 2, 2]]), np.array([[9, 9]]))]).ann.tolist() == [[0, 0]]
