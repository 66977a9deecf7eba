"""Laws of rewrites. Plans before and after are in tests/rewrites; test_sql_queries.py shows that rows are kept."""

from __future__ import annotations

import itertools
import random

import pytest

from whence.model.types import BOOLEAN
from whence.plan.algebra.expressions import Call, Col, Expr
from whence.plan.algebra.logical import Aggregate, Distinct, Join, Values, walk
from whence.plan.algebra.program import Program
from whence.plan.rewrite import optimize
from whence.plan.rewrite.factor_disjunctions import factor, infer_condition
from whence.sql import statements as st
from whence.sql.bind import bind_query, bind_table
from whence.sql.parse import parse


@pytest.fixture(scope="module")
def program() -> Program:
    found = Program()
    for name in ("r", "s", "t", "u"):
        create = parse(f"create table {name} (a int, b int, c int, d int)")[0]
        assert isinstance(create, st.CreateTable)
        found = bind_table(create, found)
    return found


def test_a_connected_order_has_no_cross_product(program: Program) -> None:
    text = "select r.a from r, s, t, u where r.a = u.a and u.b = t.b and t.c = s.c and s.d > r.d"
    plan = optimize(bind_query(parse(text)[0].query, program))
    joins = [n for n in walk(plan) if isinstance(n, Join)]
    assert len(joins) == 3
    assert all(join.keys for join in joins)


def test_separate_groups_are_crossed_last(program: Program) -> None:
    plan = optimize(bind_query(parse("select r.a from r, s, t, u where r.a = t.a and s.b = u.b")[0].query, program))
    crossed = [n for n in walk(plan) if isinstance(n, Join) and not n.keys]
    assert len(crossed) == 1
    assert plan == crossed[0]


def test_nothing_is_dropped_where_the_whole_row_counts(program: Program) -> None:
    plan = optimize(bind_query(parse("select a from (select distinct a, b from r) q")[0].query, program))
    distinct = next(n for n in walk(plan) if isinstance(n, Distinct))
    assert len(distinct.schema) == 2


def test_one_row_stays_one_row(program: Program) -> None:
    plan = optimize(bind_query(parse("select 1 from (select count(*) from r) q")[0].query, program))
    assert any(isinstance(n, Aggregate) and len(n.aggs) == 1 for n in walk(plan))
    assert not any(isinstance(n, Values) for n in walk(plan))


def truth(expr: Expr, row: tuple[bool | None, ...]) -> bool | None:
    """Evaluate a condition of ANDs, ORs and columns in three-valued logic."""
    if isinstance(expr, Col):
        return row[expr.index]
    assert isinstance(expr, Call)
    values = [truth(arg, row) for arg in expr.args]
    decided = expr.op == "or"
    return decided if decided in values else None if None in values else not decided


def test_factored_conditions_have_the_same_value_for_every_row() -> None:
    rng = random.Random(13)
    rows = list(itertools.product((True, False, None), repeat=4))

    def condition(depth: int) -> Expr:
        if depth == 0 or rng.random() < 0.2:
            return Col(BOOLEAN, rng.randrange(4))
        return Call(BOOLEAN, rng.choice(("and", "or")), tuple(condition(depth - 1) for _ in range(rng.randint(2, 3))))

    changed = weakened = 0
    for _ in range(150):
        given = condition(4)
        found, weaker = factor(given), infer_condition(given, {0, 1})
        changed += found != given
        weakened += weaker not in (None, given)
        for row in rows:
            value = truth(given, row)
            assert truth(found, row) is value
            assert value is not True or weaker is None or truth(weaker, row) is True
    assert changed > 20
    assert weakened > 20
