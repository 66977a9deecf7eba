"""What the binder refuses, and how it says so."""

from __future__ import annotations

import pytest

from whence.model.errors import SqlError
from whence.model.types import DOUBLE, TEXT, Column, Schema
from whence.plan.algebra.program import Program, ScalarFunction, TableFunction
from whence.sql import statements as st
from whence.sql.bind import bind_assignments, bind_insert, bind_predicate, bind_query, bind_table
from whence.sql.parse import parse


@pytest.fixture(scope="module")
def program() -> Program:
    found = Program()
    for s in parse(
        "create table link (src text, dst text, cost int); create table t (a int, b bigint, d date, s text)"
    ):
        assert isinstance(s, st.CreateTable)
        found = bind_table(s, found)
    found.scalars["dist"] = ScalarFunction("dist", lambda a, b: abs(a - b), (DOUBLE, DOUBLE), DOUBLE)
    found.table_functions["parts"] = TableFunction("parts", str.split, (TEXT,), Schema((Column("part", TEXT),)))
    return found


@pytest.mark.parametrize(
    ("query", "column", "message"),
    [
        ("select x from t", 8, 'unknown column "x"'),
        ("select srcc from link", 8, 'did you mean "src"?'),
        ("select z.a from t", 8, 'unknown table "z"'),
        ("select t.zz from t", 8, '"t" has no column "zz"'),
        ("select a from t, t t2", 8, "ambiguous: it may be t.a, t2.a"),
        ("select a from lnik", 15, 'unknown table or view "lnik"; did you mean "link"?'),
        ("select lowr(s) from t", 8, 'unknown function "lowr"; did you mean "lower"?'),
        ("select a from t where sum(a) > 1", 23, "the aggregate sum cannot stand in WHERE; use HAVING"),
        ("select sum(count(*)) from t", 12, "cannot stand in another aggregate"),
        ("select a, sum(b) from t", 8, 'column "a" must be in GROUP BY'),
        ("select a + s from t", 8, "+ is for numbers"),
        ("select s = d from t", 8, "cannot compare TEXT with DATE"),
        ("select d > 'hello' from t", 8, "'hello' is not a value of type DATE"),
        ("select a from t group by 3", 26, "position 3 is not in the select list"),
        ("select now() from t", 8, "gives another answer each time"),
        ("select random()", 8, "gives another answer each time"),
        ("select a from t union select a, b from t", 8, "UNION of queries with 1 and 2 columns"),
        ("select lower(a) from t", 8, "expected TEXT, found INTEGER"),
        ("select substring(s) from t", 18, "substring takes 2 to 3 arguments, not 1"),
        ("select dist(a) from t", 8, "dist takes 2 arguments, not 1"),
        ("select dist(s, a) from t", 8, "dist takes DOUBLE as argument 1, found TEXT"),
        ("select parts(s) from t", 8, "it stands in FROM"),
        ("select * from partz('x') p", 15, 'did you mean "parts"?'),
        ("select (select a from t)", 16, "must be sure to have one row"),
        ("select a from t where a in (select a, b from t)", 23, "a subquery of 2 columns"),
        ("select row_number() over () from t", 8, "window functions"),
        ("select a from t where s", 23, "expected a condition, found TEXT"),
        ("select 99999999999999999999", 8, "does not fit in a BIGINT"),
        ("select cast(a as date) from t", 13, "INTEGER cannot be cast to DATE"),
        ("select a::uuid from t", 8, "unsupported type"),
        ("select sum(s) from t", 8, "sum is for numbers"),
        ("select distinct a from t order by b limit 1", 35, "with DISTINCT"),
        ("select a from t limit b", 23, "LIMIT takes a whole number"),
        ("with recursive r as (select * from r) select * from r", 29, "has no branch that does not refer to itself"),
        ("select " + "+".join(["1"] * 1000), 8, "nested too deeply: more than 1,000 levels"),
    ],
)
def test_queries(query: str, column: int, message: str, program: Program) -> None:
    with pytest.raises(SqlError) as caught:
        bind_query(parse("\n\n" + query)[0].query, program)
    assert message in str(caught.value)
    assert caught.value.line == 3
    assert caught.value.column == column


def test_long_chains_are_no_nesting(program: Program) -> None:
    bind_query(parse("select a from t where " + " and ".join(["a = 1"] * 3000))[0].query, program)
    bind_query(parse(" union all ".join(["select 1"] * 800))[0].query, program)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("insert into t values (1)", "4 columns are to be inserted, 1 are given"),
        ("insert into t (zz) values (1)", 'has no column "zz"'),
        ("insert into t (a) values ('x')", "'x' is not a value of type INTEGER"),
        ("insert into t (a) values (true)", "an explicit cast is required"),
        ("update t set zz = 1", 'has no column "zz"'),
        ("update t set a = 1, a = 2", "is set twice"),
        ("delete from t where a in (select 1)", "a subquery in the WHERE of DELETE"),
    ],
)
def test_changes(text: str, message: str, program: Program) -> None:
    with pytest.raises(SqlError, match=message):
        _bind(parse(text)[0], program)


def _bind(statement: st.Statement, program: Program) -> None:
    match statement:
        case st.InsertRows():
            bind_insert(statement, program)
        case st.UpdateRows():
            bind_assignments(statement, program)
        case st.DeleteRows():
            bind_predicate(statement.where, statement.table, program)
