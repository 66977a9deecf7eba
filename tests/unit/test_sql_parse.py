"""Statements from text: every kind, the papers' way of writing, and what cannot be read."""

from __future__ import annotations

import pytest

from whence.model.errors import SqlError
from whence.model.types import BIGINT, BOOLEAN, DATE, DOUBLE, INTEGER, TEXT, TIMESTAMP, decimal
from whence.sql import statements as st
from whence.sql.parse import parse


def test_create_table_has_types_and_keys() -> None:
    (create,) = parse(
        "CREATE TABLE IF NOT EXISTS T (a INT, b VARCHAR NOT NULL, c NUMERIC(10, 2), d DATETIME, e REAL, f BOOL,"
        " g DATE, h INT8, PRIMARY KEY (a, b))"
    )
    assert isinstance(create, st.CreateTable)
    assert create.if_not_exists
    table = create.table
    assert (table.name, table.key) == ("t", (0, 1))
    assert table.schema.types == (INTEGER, TEXT, decimal(10, 2), TIMESTAMP, DOUBLE, BOOLEAN, DATE, BIGINT)
    assert [c.nullable for c in table.schema.columns] == [False, False] + [True] * 6
    assert table.sql == create.sql


def test_an_inline_primary_key() -> None:
    (create,) = parse("create table t (a int primary key, b int)")
    assert isinstance(create, st.CreateTable)
    assert create.table.key == (0,)


def test_create_view_with_columns_and_options() -> None:
    (view,) = parse("create or replace view v (x, y) with (policy = 'dred') as select 1, 2")
    assert isinstance(view, st.CreateView)
    assert (view.name, view.columns, view.options, view.replace) == ("v", ("x", "y"), (("policy", "dred"),), True)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("policy = 'DRed'", "dred"),
        ("recursion_limit = 50", "50"),
        ("recursion_rows = '7'", "7"),
        ("aggregate_selection = 'Off'", "off"),
    ],
)
def test_options_are_read_as_the_planner_takes_them(given: str, kept: str) -> None:
    (view,) = parse(f"create view v with ({given}) as select 1")
    assert isinstance(view, st.CreateView)
    assert view.options == ((given.split(" ", maxsplit=1)[0], kept),)


@pytest.mark.parametrize(
    ("given", "column", "says"),
    [
        ("polcy = 'dred'", 21, 'no option "polcy"; did you mean "policy"? Its options are policy, recursion_limit,'),
        ("fish = 1", 21, 'no option "fish". Its options are policy, recursion_limit, recursion_rows, aggregate_sel'),
        ("ttl = '1 h'", 21, 'no option "ttl"'),
        ("refresh = 'on'", 31, "refresh is 'online', 'naive', 'planned'"),
        ("provenance = 'on'", 34, "there is no provenance 'on'"),
        ("policy = 'hope'", 30, "it is 'support' or 'dred'"),
        ("aggregate_selection = 1", 43, "it is 'on' or 'off'"),
        ("recursion_limit = 0", 39, "a whole number above zero, not '0'"),
        ("recursion_rows = -5", 38, "a whole number above zero, not '-5'"),
        ("recursion_rows = 2.5", 38, "a whole number above zero, not '2.5'"),
        ("recursion_limit = '5 000'", 39, "a whole number above zero"),
        ("policy = 'dred', POLICY = 'dred'", 38, "given twice"),
        ("policy", 27, "expected ="),
        ("policy =", 29, "expected a value"),
    ],
)
def test_options_that_are_none(given: str, column: int, says: str) -> None:
    with pytest.raises(SqlError) as failed:
        parse(f"create view v with ({given}) as select 1")
    assert failed.value.column == column
    assert says in str(failed.value)


@pytest.mark.parametrize(
    ("given", "says"), [("ttl = 60", "must be a duration"), ("size = 5", "Its options are ttl, ttl_column")]
)
def test_tables_take_their_own_options_only(given: str, says: str) -> None:
    with pytest.raises(SqlError, match=says):
        parse(f"create table t (a int) with ({given})")


def test_the_papers_way_of_writing_programs() -> None:
    views = parse("""
        with recursive path(src,dst,vec,length) as
        ( select src,dst,src ||'.'|| dst,1 from link
        union
           select link.src,path.dst,link.src ||'.'|| vec, length+1
           from link, path where link.dst = path.src)
        create view minHops(src,dst,length) as
          (select src,dst,min(length) from path group by src,dst)
        create view shortestPath(src,dst,vec,length) as
          (select P.src,P.dst,vec,P.length from path P, minHops H
           where P.src = H.src and P.dst = H.dst and P.length = H.length)
        with recursive reachable(src,dst) as (select src, dst from link union select src, dst from reachable)
    """)
    assert [v.name for v in views if isinstance(v, st.CreateView)] == ["path", "minhops", "shortestpath", "reachable"]
    again = parse(views[0].sql)[0]
    assert isinstance(again, st.CreateView)
    assert (again.name, again.columns) == ("path", ("src", "dst", "vec", "length"))


def test_the_other_statements() -> None:
    script = """drop view if exists v cascade; insert into t (a) values (1); delete from t where a = 1;
        update t set a = 2; with x as (select 1) select * from x; explain v; explain select 1;
        explain create view z as select 2; describe x; show functions;"""
    drop, insert, delete, update, query, by_name, of_query, of_view, describe, show = parse(script)
    assert drop == st.Drop(
        kind="view", name="v", cascade=True, if_exists=True, sql="drop view if exists v cascade", line=1, column=1
    )
    assert isinstance(insert, st.InsertRows)
    assert (insert.table, insert.columns) == ("t", ("a",))
    assert isinstance(delete, st.DeleteRows)
    assert delete.where is not None
    assert isinstance(update, st.UpdateRows)
    assert update.assignments[0][0] == "a"
    assert isinstance(query, st.Query)
    assert isinstance(by_name, st.Explain)
    assert by_name.what == "v"
    assert isinstance(of_query, st.Explain)
    assert isinstance(of_query.what, st.Query)
    assert isinstance(of_view, st.Explain)
    assert isinstance(of_view.what, st.CreateView)
    assert isinstance(describe, st.Describe)
    assert show == st.Show(what="functions", sql="show functions", line=3, column=56)


@pytest.mark.parametrize(
    ("text", "line", "column", "near"),
    [
        ("select a from\n  where x", 2, 3, "where"),
        ("select 1;\nselec 2", 2, 1, "selec"),
        ("select 'abc", 1, 8, "'abc"),
        ("create table t (a foo)", 1, 17, "foo"),
        ("create table t (a int,\n a int)", 2, 2, "a INT"),
        ("create view v select 1", 1, 15, "select"),
        ("create table t (a int, primary key (b))", 1, 37, "b"),
        ("select a b c from t", 1, 12, "c"),
        ("select 1)", 1, 9, ")"),
        ("drop trigger x", 1, 6, "trigger"),
        ("create index i on t (a desc)", 1, 24, "desc"),
        ("/* open", 1, 1, "/* open"),
    ],
)
def test_errors_say_where(text: str, line: int, column: int, near: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert near in (caught.value.text or "")


@pytest.mark.parametrize(
    "text",
    [
        "select " + "(" * 1000 + "1" + ")" * 1000,
        "select " + "not " * 1000 + "true",
        "select " + "case when true then " * 1000 + "1" + " end" * 1000,
        "select 1 -- " + "x" * 10_000_000,
    ],
    ids=["parentheses", "not", "case", "10 MB"],
)
def test_hostile_input_is_refused_in_our_words(text: str) -> None:
    with pytest.raises(SqlError):
        parse(text)
