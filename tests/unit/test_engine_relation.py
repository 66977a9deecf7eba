"""Relation and Ordered against Python's own multisets, undo included."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.depth import examples
from whence.engine.build import Builder
from whence.engine.core.batch import consolidate
from whence.engine.core.dataflow import Dataflow
from whence.engine.core.operator import Batch
from whence.engine.core.ordered import Ordered, Rank
from whence.engine.core.relation import Relation
from whence.model.codes import NULL, Dictionary
from whence.model.errors import EvaluationError
from whence.model.types import BIGINT, DOUBLE, INTEGER, Column, Schema
from whence.plan.algebra import logical as lo
from whence.plan.algebra.expressions import Col, Udf

small = st.integers(0, 4)
deltas = st.lists(
    st.lists(st.tuples(small, small, st.integers(-2, 2)), min_size=1, max_size=60), min_size=1, max_size=8
)
fast = settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))


def as_batch(changes) -> Batch:
    rows = np.array([c[:2] for c in changes], np.int64)
    return consolidate(Batch(rows, np.array([c[2] for c in changes], np.int64)))


def ids_by_row(relation: Relation) -> dict[tuple, int]:
    return {tuple(relation.rows[i].tolist()): int(i) for i in relation.ids()}


@fast
@given(deltas, st.lists(st.booleans(), min_size=8, max_size=8))
def test_relation(steps, kept):
    relation, truth = Relation(2), Counter()
    relation.index((0,))
    relation.index(())
    for step, keep in zip(steps, kept, strict=False):
        before, free = ids_by_row(relation), relation.free[: relation.meta[1]].tolist()
        for part in (step[: len(step) // 2], step[len(step) // 2 :]):
            if part and len(batch := as_batch(part)):
                relation.apply(batch)
        if keep:
            relation.commit()
            for a, b, n in step:
                truth[a, b] += n
            truth = Counter({r: n for r, n in truth.items() if n})
        else:
            relation.undo()
            assert ids_by_row(relation) == before
            assert relation.free[: relation.meta[1]].tolist() == free
        got = relation.scan()
        assert dict(zip(map(tuple, got.rows.tolist()), got.ann.tolist(), strict=True)) == truth
        at, ids = relation.probe((0,), np.arange(5).reshape(-1, 1))
        found = sorted((int(a), *relation.rows[i].tolist()) for a, i in zip(at, ids, strict=True))
        assert found == sorted((a, a, b) for a, b in truth)
        assert len(relation.probe((), np.empty((1, 0), np.int64))[0]) == len(truth)


def test_null_matches_only_when_asked():
    relation = Relation(1)
    relation.apply(Batch(np.array([[NULL]]), np.array([1]), True))
    key = np.array([[NULL]])
    assert len(relation.probe((0,), key)[0]) == 0
    assert len(relation.probe((0,), key, null_safe=True)[0]) == 1


def test_relation_grows():
    relation = Relation(2)
    relation.index((1,))
    rows = np.column_stack((np.arange(50_000), np.arange(50_000) % 7))
    relation.apply(Batch(rows, np.ones(50_000, np.int64), True))
    relation.apply(Batch(rows[::2].copy(), -np.ones(25_000, np.int64), True))
    assert len(relation) == 25_000
    assert (relation.lookup(rows[1::2].copy()) >= 0).all()
    assert (relation.lookup(rows[::2].copy()) < 0).all()
    assert len(relation.probe((1,), np.arange(7).reshape(-1, 1))[0]) == 25_000


@fast
@given(deltas, st.booleans(), st.booleans())
def test_ordered(steps, descending, nulls_first):
    ordered = Ordered([Rank(1, BIGINT, descending, nulls_first), Rank(0)], Dictionary())
    truth: Counter = Counter()
    for step in steps:
        rows = np.array([(a, NULL if b == 0 else b) for a, b, _ in step], np.int64)
        counts = np.array([abs(n) for *_, n in step], np.int64)
        ordered.add(rows, counts)
        ordered.undo()
        ordered.add(rows, counts)
        ordered.commit()
        for row, n in zip(map(tuple, rows.tolist()), counts.tolist(), strict=True):
            truth[row] += n

        def key(row):
            null = row[1] == NULL
            return (null != nulls_first, -row[1] if descending and not null else row[1], row[0])

        expected = [r for r in sorted(truth, key=key) for _ in range(truth[r])]
        for limit in (0, 3, len(expected)):
            got, n = ordered.head(limit)
            assert [tuple(r) for r, k in zip(got.tolist(), n.tolist(), strict=True) for _ in range(k)] == expected[
                :limit
            ]


def test_ordered_many():
    rng = np.random.default_rng(1)
    ordered = Ordered([Rank(0), Rank(1)], Dictionary())
    rows = np.column_stack((rng.integers(0, 100, 20_000), rng.integers(-(10**6), 10**6, 20_000)))
    ones = np.ones(len(rows), np.int64)
    ordered.add(rows, ones)
    first = ordered.column_at(ordered.first(np.arange(100).reshape(-1, 1)), 1)
    assert first.tolist() == [rows[rows[:, 0] == g, 1].min() for g in range(100)]
    ordered.add(rows[:19_900], -ones[:19_900])
    got, _ = ordered.head(-1)
    assert got.tolist() == sorted(rows[19_900:].tolist())
    assert ordered.first(np.array([[100]])).tolist() == [-1]


def flow_of(node, schema, **tables):
    flow = Dataflow()
    for name in tables:
        flow.table(name, schema)
    builder = Builder(flow, Dictionary(), lambda v: flow.views[v])
    flow.add_view("v", builder.build(node))
    return flow


PAIR = Schema((Column("k", INTEGER), Column("x", BIGINT)))


def change(*rows) -> Batch:
    return Batch(np.array([r[:2] for r in rows], np.int64), np.array([r[2] for r in rows], np.int64))


def test_sums_are_exact_and_overflow_undoes_the_batch():
    flow = flow_of(lo.Aggregate(PAIR, lo.Scan(PAIR, "t"), (0,), (lo.Agg("sum", 1),)), PAIR, t=PAIR)
    big = 2**62
    flow.run({"t": change((1, big, 1), (1, big - 1, 1), (2, 5, 1))})
    flow.commit()
    before = flow.views["v"].contents()
    with pytest.raises(EvaluationError, match="SUM does not fit BIGINT for the group k = 1"):
        flow.run({"t": change((1, big, 1), (2, 6, 1), (3, 1, 1))})
    flow.undo()
    assert flow.views["v"].contents().rows.tolist() == before.rows.tolist()
    assert len(flow.tables["t"].relation) == 3
    # Passing the limit on the way is no error.
    out = flow.run({"t": change((1, big, 1), (1, big - 1, -1), (1, big - 2, 1), (1, big, -1))})["v"]
    flow.commit()
    assert out.rows[out.ann > 0].tolist() == [[1, big + big - 2]]


def test_an_error_in_a_later_operator_undoes_the_earlier_ones():
    def picky(x):
        if x == 13:
            raise ValueError("unlucky")
        return x

    grouped = lo.Aggregate(PAIR, lo.Scan(PAIR, "t"), (0,), (lo.Agg("max", 1),))
    node = lo.Project(PAIR, grouped, (Col(INTEGER, 0), Udf(BIGINT, "picky", picky, (Col(BIGINT, 1),))))
    flow = flow_of(node, PAIR, t=PAIR)
    flow.run({"t": change((1, 5, 1), (1, 7, 1))})
    flow.commit()
    with pytest.raises(EvaluationError, match=r"picky\(13\)"):
        flow.run({"t": change((1, 13, 1), (1, 7, -1), (2, 1, 1))})
    flow.undo()
    out = flow.run({"t": change((1, 7, -1))})["v"]
    flow.commit()
    assert sorted(zip(out.rows.tolist(), out.ann.tolist(), strict=True)) == [([1, 5], 1), ([1, 7], -1)]


def test_a_failing_back_fill_leaves_nothing():
    flow = Dataflow()
    flow.table("t", PAIR)
    flow.run({"t": change((1, 0, 1))})
    flow.commit()
    builder = Builder(flow, Dictionary(), lambda v: flow.views[v])

    def bad(x):
        raise ValueError("no")

    four = Schema(PAIR.columns * 2)
    join = lo.Join(four, lo.Scan(PAIR, "t"), lo.Scan(PAIR, "t"), "inner", ((0, 0),))
    node = lo.Project(PAIR, join, (Col(INTEGER, 0), Udf(BIGINT, "bad", bad, (Col(BIGINT, 1),))))
    with pytest.raises(EvaluationError):
        flow.add_view("v", builder.build(node))
    assert not flow.order
    assert not flow.views
    assert not flow.tables["t"].relation.indexes
    flow.add_view("w", builder.build(join))
    assert flow.views["w"].contents().rows.tolist() == [[1, 0, 1, 0]]


def test_float_sums_do_not_drift():
    from whence.model.codes import codes_to_floats, floats_to_codes

    schema = Schema((Column("k", INTEGER), Column("x", DOUBLE)))
    flow = flow_of(lo.Aggregate(schema, lo.Scan(schema, "t"), (0,), (lo.Agg("sum", 1),)), schema, t=schema)
    code = floats_to_codes(np.array([0.1, 1e16, np.inf, np.nan]))
    flow.run({"t": change((1, code[0], 1))})
    flow.commit()
    for extra in code[1:]:
        for sign in (1, -1):
            flow.run({"t": change((1, extra, sign * 3))})
            flow.commit()
    assert codes_to_floats(flow.views["v"].contents().rows[:, 1]).tolist() == [0.1]


def test_progress_is_told():
    flow = Dataflow()
    flow.table("t", PAIR)
    told = []
    node = lo.Distinct(PAIR, lo.Scan(PAIR, "t"))
    op = Builder(flow, Dictionary(), lambda v: flow.views[v]).build(node)
    flow.add_view("v", op, lambda view, done, total: told.append((view, done, total)))
    assert told == [("v", 0, 1), ("v", 1, 1)]
