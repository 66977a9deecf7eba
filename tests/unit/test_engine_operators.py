"""Each operator under random insertions and deletions equals DuckDB's answer from scratch; undo leaves no trace."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from engine_helpers import Bench, duck, schema

from tests.depth import examples
from whence.engine.core.kernels.batches import split_signs
from whence.model.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, TEXT, decimal
from whence.plan.algebra import logical as lo
from whence.plan.algebra.expressions import Call, Col, Lit

PAIR = schema(INTEGER, INTEGER)
value = st.one_of(st.none(), st.integers(0, 3))
change = st.tuples(st.sampled_from(["a", "b"]), st.tuples(value, value), st.sampled_from([1, 1, -1, -1]))
batches = st.lists(st.lists(change, max_size=8), min_size=1, max_size=6)
fast = settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))

FOUR = schema(INTEGER, INTEGER, INTEGER, INTEGER)
RESIDUAL = Call(BOOLEAN, "<", (Col(INTEGER, 1), Col(INTEGER, 3)))
WHERE = {None: "TRUE", RESIDUAL: "a.c1 < b.c1"}


def check(node, sql: str, steps, bench: Bench | None = None) -> None:
    bench = bench or Bench(a=PAIR, b=PAIR)
    bench.view("v", node(bench))
    assert bench.rows("v") == duck(bench, sql)
    for step in steps:
        bench.step(step)
        assert bench.rows("v") == duck(bench, sql)
    # The same view over what is there now is back-filled to the same rows.
    late = node(bench)
    del bench.flow.views["v"]
    bench.flow.sweep()
    assert not bench.flow.order
    bench.view("w", late)
    assert bench.rows("w") == duck(bench, sql)


@pytest.mark.parametrize("residual", [None, RESIDUAL])
@pytest.mark.parametrize("keys", [((0, 0),), ((0, 0), (1, 1)), ()])
@pytest.mark.parametrize("kind", ["inner", "left", "right", "full"])
@fast
@given(steps=batches)
def test_join(kind, keys, residual, steps):
    on = " AND ".join([f"a.c{x} = b.c{y}" for x, y in keys] + [WHERE[residual]])
    check(
        lambda b: lo.Join(FOUR, b.scan("a"), b.scan("b"), kind, keys, residual),
        f"SELECT * FROM a {kind} JOIN b ON {on}",
        steps,
    )


@pytest.mark.parametrize("residual", [None, RESIDUAL])
@pytest.mark.parametrize("keys", [((0, 0),), ()])
@pytest.mark.parametrize("kind", ["semi", "anti", "mark"])
@fast
@given(steps=batches)
def test_semijoin(kind, keys, residual, steps):
    on = " AND ".join([f"a.c{x} = b.c{y}" for x, y in keys] + [WHERE[residual]])
    exists = f"EXISTS (SELECT 1 FROM b WHERE {on})"
    sql = {
        "semi": f"SELECT * FROM a WHERE {exists}",
        "anti": f"SELECT * FROM a WHERE NOT {exists}",
        "mark": f"SELECT *, {exists} FROM a",
    }[kind]
    out = schema(INTEGER, INTEGER, BOOLEAN) if kind == "mark" else PAIR
    check(lambda b: lo.Join(out, b.scan("a"), b.scan("b"), kind, keys, residual), sql, steps)


@pytest.mark.parametrize("kind", ["inner", "left", "semi", "anti"])
@fast
@given(steps=batches)
def test_self_join(kind, steps):
    out = FOUR if kind in ("inner", "left") else PAIR
    sql = {
        "inner": "SELECT * FROM a JOIN a x ON a.c1 = x.c0",
        "left": "SELECT * FROM a LEFT JOIN a x ON a.c1 = x.c0",
        "semi": "SELECT * FROM a WHERE EXISTS (SELECT 1 FROM a x WHERE a.c1 = x.c0)",
        "anti": "SELECT * FROM a WHERE NOT EXISTS (SELECT 1 FROM a x WHERE a.c1 = x.c0)",
    }[kind]
    check(lambda b: lo.Join(out, b.scan("a"), b.scan("a"), kind, ((1, 0),)), sql, steps)


@pytest.mark.parametrize("all_", [False, True])
@pytest.mark.parametrize("kind", ["intersect", "except"])
@fast
@given(steps=batches)
def test_set_operations(kind, all_, steps):
    sql = f"SELECT * FROM a {kind} {'ALL' if all_ else ''} SELECT * FROM b"
    check(lambda b: lo.SetOp(PAIR, b.scan("a"), b.scan("b"), kind, all_), sql, steps)


@fast
@given(steps=batches)
def test_distinct_union_project_select(steps):
    one = schema(INTEGER)

    def node(b):
        both = lo.Union(PAIR, (b.scan("a"), b.scan("b")))
        kept = lo.Select(PAIR, both, Call(BOOLEAN, ">", (Col(INTEGER, 0), Lit(INTEGER, 0))))
        return lo.Distinct(one, lo.Project(one, kept, (Call(INTEGER, "+", (Col(INTEGER, 0), Col(INTEGER, 1))),)))

    check(node, "SELECT DISTINCT c0 + c1 FROM (FROM a UNION ALL FROM b) WHERE c0 > 0", steps)


AGGS = (
    lo.Agg("count", None),
    lo.Agg("count", 1),
    lo.Agg("count", 1, True),
    lo.Agg("sum", 1),
    lo.Agg("sum", 1, True),
    lo.Agg("avg", 1),
    lo.Agg("avg", 1, True),
    lo.Agg("min", 1),
    lo.Agg("max", 1),
)
AGG_SQL = (
    "count(*), count(c1), count(DISTINCT c1), sum(c1), sum(DISTINCT c1), avg(c1), avg(DISTINCT c1), min(c1), max(c1)"
)


@pytest.mark.parametrize("grouped", [True, False])
@fast
@given(steps=batches)
def test_aggregate(grouped, steps):
    types = (BIGINT, BIGINT, BIGINT, BIGINT, BIGINT, DOUBLE, DOUBLE, INTEGER, INTEGER)
    out = schema(*((INTEGER,) if grouped else ()), *types)
    sql = f"SELECT {'c0,' if grouped else ''} {AGG_SQL} FROM a {'GROUP BY c0' if grouped else ''}"
    check(lambda b: lo.Aggregate(out, b.scan("a"), (0,) if grouped else (), AGGS), sql, steps)


word = st.one_of(st.none(), st.text("abc", max_size=3))
typed = st.tuples(
    st.just("t"),
    st.tuples(st.integers(0, 1), st.sampled_from([None, 0.5, 1e16, -1e16, 0.1, -3.25]), st.integers(0, 10**6), word),
    st.sampled_from([1, 1, -1]),
)


@fast
@given(steps=st.lists(st.lists(typed, max_size=8), min_size=1, max_size=6))
def test_aggregate_types(steps):
    from decimal import Decimal

    money = decimal(9, 2)
    bench = Bench(t=schema(INTEGER, DOUBLE, money, TEXT))
    steps = [[(t, (r[0], r[1], Decimal(r[2]).scaleb(-2), r[3]), s) for t, r, s in step] for step in steps]
    aggs = (lo.Agg("sum", 2), lo.Agg("min", 3), lo.Agg("max", 3), lo.Agg("max", 1), lo.Agg("min", 2), lo.Agg("sum", 1))
    out = schema(INTEGER, decimal(18, 2), TEXT, TEXT, DOUBLE, money, DOUBLE)
    bench.view("v", lo.Aggregate(out, bench.scan("t"), (0,), aggs))
    for step in steps:
        bench.step(step)
        exact = duck(bench, "SELECT c0, sum(c2), min(c3), max(c3), max(c1), min(c2) FROM t GROUP BY c0")
        assert {r[:-1] for r in bench.rows("v")} == set(exact)
        import math

        for row in bench.rows("v"):
            values = [
                r[1] for r, n in bench.tables["t"].items() for _ in range(n) if r[0] == row[0] and r[1] is not None
            ]
            assert row[-1] == (math.fsum(values) if values else None)


@pytest.mark.parametrize(("limit", "offset"), [(2, 0), (3, 2), (None, 2), (0, 0), (None, 0)])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("nulls_first", [False, True])
@fast
@given(steps=batches)
def test_topk(limit, offset, descending, nulls_first, steps):
    order = f"c1 {'DESC' if descending else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}, c0 NULLS LAST"
    sql = f"SELECT * FROM a ORDER BY {order} {'' if limit is None else f'LIMIT {limit}'} OFFSET {offset}"
    check(lambda b: lo.TopK(PAIR, b.scan("a"), (lo.Order(1, descending, nulls_first),), limit, offset), sql, steps)


@fast
@given(
    steps=st.lists(
        st.lists(st.tuples(st.just("a"), st.tuples(word), st.sampled_from([1, 1, -1])), max_size=8), max_size=6
    ),
    descending=st.booleans(),
)
def test_topk_of_text(steps, descending):
    one = schema(TEXT)
    sql = f"SELECT * FROM a ORDER BY c0 {'DESC' if descending else ''} NULLS LAST LIMIT 3"
    check(lambda b: lo.TopK(one, b.scan("a"), (lo.Order(0, descending, False),), 3), sql, steps, Bench(a=one))


@fast
@given(steps=batches)
def test_lateral(steps):
    out = schema(INTEGER, INTEGER, INTEGER)
    calls = []

    def upto(n):
        calls.append(n)
        return [(i,) for i in range(n or 0)]

    check(
        lambda b: lo.Lateral(out, b.scan("a"), "upto", upto, (Col(INTEGER, 0),)),
        "SELECT a.*, i.range FROM a, range(4) i WHERE i.range < c0",
        steps,
    )


@fast
@given(steps=batches)
def test_three_way_with_shared_parts(steps):
    """Two views over one join; the middle operator is one, and dropping one view keeps what the other needs."""
    bench = Bench(a=PAIR, b=PAIR)
    join = lo.Join(FOUR, bench.scan("a"), bench.scan("b"), "inner", ((1, 0),))
    six = schema(*[INTEGER] * 6)
    bench.view("v", lo.Join(six, join, bench.scan("a"), "inner", ((3, 0),)))
    bench.view("g", lo.Aggregate(schema(INTEGER, BIGINT), join, (0,), (lo.Agg("count", None),)))
    assert len(bench.flow.order) == 3
    for step in steps:
        bench.step(step)
        assert bench.rows("v") == duck(bench, "FROM a JOIN b ON a.c1 = b.c0 JOIN a x ON b.c1 = x.c0")
        assert bench.rows("g") == duck(bench, "SELECT a.c0, count(*) FROM a JOIN b ON a.c1 = b.c0 GROUP BY a.c0")
    del bench.flow.views["v"]
    bench.flow.sweep()
    del bench.nodes["v"]
    assert len(bench.flow.order) == 2
    assert all(op.arranged is None for op in bench.flow.order if op not in bench.flow.views.values())
    bench.step([("a", (1, 1), 1), ("b", (1, 2), 1)])
    assert bench.rows("g") == duck(bench, "SELECT a.c0, count(*) FROM a JOIN b ON a.c1 = b.c0 GROUP BY a.c0")


@fast
@given(steps=batches, limits=st.lists(st.one_of(st.none(), st.integers(0, 9)), min_size=5, max_size=8, unique=True))
def test_selections_from_one_table_are_decided_together(steps, limits):
    """Conditions over columns and constants run as one call, beside one that is computed by itself."""
    bench = Bench(a=PAIR, b=PAIR)
    queries = {}
    for place, limit in enumerate(limits):
        compared = Call(BOOLEAN, "<=" if place % 2 else "<>", (Col(INTEGER, place % 2), Lit(INTEGER, limit)))
        shown = "NULL" if limit is None else str(limit)
        queries[f"v{place}"] = f"SELECT * FROM a WHERE c{place % 2} {compared.op} {shown}", compared
    computed = Call(BOOLEAN, "<", (Call(INTEGER, "+", (Col(INTEGER, 0), Col(INTEGER, 1))), Lit(INTEGER, 3)))
    queries["sum"] = "SELECT * FROM a WHERE c0 + c1 < 3", computed
    for name, (_, condition) in queries.items():
        distinct = lo.Aggregate(PAIR, lo.Select(PAIR, bench.scan("a"), condition), (0, 1), ())
        bench.view(name, distinct)
    for step in steps:
        bench.step(step)
        for name, (sql, _) in queries.items():
            assert bench.rows(name) == duck(bench, sql.replace("*", "DISTINCT *"))
    steps, _ = bench.flow._reach(("a",))
    assert sum(step.selected is not None for step in steps) == len(limits)


@fast
@given(changes=st.lists(st.tuples(st.integers(0, 3), st.integers(-3, 3)), max_size=6))
def test_signs_repeat_rows_in_their_order(changes):
    rows = np.array([[key, 7] for key, _ in changes], np.int64).reshape(-1, 2)
    went, came = split_signs(rows, np.array([count for _, count in changes], np.int64))
    assert went.tolist() == [[key, 7] for key, count in changes for _ in range(-count)]
    assert came.tolist() == [[key, 7] for key, count in changes for _ in range(count)]
