"""Views bound together: recursion of every kind, replacement, and the strata they fall into."""

from __future__ import annotations

import pytest

from whence.model.errors import CatalogError, NotStratifiable, SqlError
from whence.plan.algebra.logical import Ref, Scan, walk
from whence.plan.algebra.program import Program
from whence.plan.recursion.strata import Component, components, dependents, references
from whence.sql import statements as st
from whence.sql.bind import bind_insert, bind_query_views, bind_table, bind_views
from whence.sql.parse import parse


def run(text: str, program: Program | None = None) -> Program:
    """The program after a script of CREATE TABLE and CREATE VIEW; views are bound together."""
    program = program or Program()
    statements = parse(text)
    for create in statements:
        if isinstance(create, st.CreateTable):
            program = bind_table(create, program)
    return bind_views([s for s in statements if isinstance(s, st.CreateView)], program)


LINK = "create table link (src text, dst text, cost int);"


def test_the_papers_shortest_path() -> None:
    program = run(
        LINK
        + """
        with recursive path(src,dst,vec,length) as
        ( select src,dst,src ||'.'|| dst,1 from link
        union
          select link.src,path.dst,link.src ||'.'|| vec, length+1 from link, path where link.dst = path.src)
        create view minHops(src,dst,length) as (select src,dst,min(length) from path group by src,dst)
        create view shortestPath(src,dst,vec,length) as
          (select P.src,P.dst,vec,P.length from path P, minHops H
           where P.src = H.src and P.dst = H.dst and P.length = H.length)"""
    )
    assert str(program.views["path"].schema) == "(src TEXT, dst TEXT, vec TEXT, length BIGINT)"
    assert str(program.views["minhops"].schema) == "(src TEXT, dst TEXT, length BIGINT)"
    assert components(program) == [
        Component(("path",), True),
        Component(("minhops",), False),
        Component(("shortestpath",), False),
    ]
    assert dependents(program, "link") == ["path", "minhops", "shortestpath"]


def test_mutual_recursion_in_any_order_with_widening() -> None:
    program = run("create view b as select x + 1 as x from a where x < 5; create view a as select 1 as x union from b")
    assert str(program.views["a"].schema) == str(program.views["b"].schema) == "(x BIGINT)"
    assert components(program) == [Component(("b", "a"), True)]
    assert references(program.views["a"]) == {"b"}


def test_the_first_branch_names_the_columns_even_if_it_is_recursive() -> None:
    program = run(
        "create view a as select b.z + 1 as x from b union select 1 as y; create view b as select x as z from a"
    )
    assert program.views["a"].schema.names == ("x",)


def test_null_takes_the_type_of_what_it_meets() -> None:
    program = run("create view v as select null as n, null as m, 1 as k union select 'x', m, k + 1 from v where k < 3")
    assert str(program.views["v"].schema) == "(n TEXT, m INTEGER, k BIGINT)"


def test_types_that_never_settle_are_refused() -> None:
    with pytest.raises(SqlError, match="keep growing; cast them"):
        run("create view v as select 1.5 as n union select n * 0.9 from v")


def test_a_recursive_cte_is_a_hidden_view() -> None:
    program = run(
        LINK + "create view v (n) with (policy = 'dred') as"
        " with recursive r(x) as (select cost from link union select x + 1 from r where x < 9) select * from r"
    )
    hidden = program.views["v$r"]
    assert (hidden.owner, hidden.hidden, hidden.option("policy")) == ("v", True, "dred")
    assert components(program) == [Component(("v$r",), True), Component(("v",), False)]
    assert {n.view for n in walk(program.views["v"].query) if isinstance(n, Ref)} == {"v$r"}


def test_a_query_may_be_recursive() -> None:
    query = parse("with recursive r(x) as (select 1 union select x + 1 from r where x < 9) select x from r order by x")[
        0
    ]
    assert isinstance(query, st.Query)
    plan, hidden = bind_query_views(query.query, Program())
    assert plan.schema.names == ("x",)
    assert list(hidden) == ["query$r"]


def test_plain_ctes_are_inlined() -> None:
    program = run(LINK + "create view v as with q as (select src from link) select a.src from q a, q b")
    assert list(program.views) == ["v"]
    assert sum(isinstance(n, Scan) for n in walk(program.views["v"].query)) == 2


def test_replacing_a_view_binds_its_dependents_again() -> None:
    before = run("create table t (a int, b bigint); create view v as select a from t; create view w as select a from v")
    after = run("create or replace view v as select b as a from t", before)
    assert str(after.views["w"].schema) == "(a BIGINT)"
    assert str(before.views["w"].schema) == "(a INTEGER)"
    with pytest.raises(SqlError, match='replacing "v" breaks the view "w": unknown column "a"'):
        run("create or replace view v as select b from t", before)


def test_names_that_are_taken() -> None:
    program = run("create table t (a int); create view v as select 1")
    for text in (
        "create view v as select 2",
        "create view t as select 2",
        "create view x as select 1; create view x as select 2",
    ):
        with pytest.raises(CatalogError):
            run(text, program)
    assert run("create view if not exists v as select 'other'", program).views == program.views


@pytest.mark.parametrize(
    ("views", "message"),
    [
        (
            "create view win as select src from link where not exists (select 1 from win where win.src = link.dst)",
            "win -> win goes through NOT EXISTS or NOT IN in win",
        ),
        (
            "create view a as select src as s from link except select s from b; create view b as select s from a",
            "a -> b -> a goes through EXCEPT in a",
        ),
        (
            "create view a as select 1 as n union select n + 1 from b; create view b as select count(*) as n from a",
            "b -> a -> b goes through COUNT in b",
        ),
        (
            "create view a as select 1 as n union (select n + 1 from a order by n limit 1)",
            "a -> a goes through LIMIT in a",
        ),
        (
            "create view a as select cost from link union select l.cost from link l left join a on a.cost = l.cost",
            "through a LEFT JOIN in a",
        ),
        ("create view a as select 1 as n union select max(n) from a", "through an aggregate without GROUP BY in a"),
    ],
)
def test_what_is_not_stratifiable_is_refused_with_its_cycle(views: str, message: str) -> None:
    with pytest.raises(NotStratifiable, match=message):
        components(run(LINK + views))


def test_min_inside_recursion_is_monotone_enough() -> None:
    program = run(
        LINK
        + """
        create view best as select src, dst, min(cost) as cost from path group by src, dst;
        create view path as select src, dst, cost from link
          union select link.src, best.dst, link.cost + best.cost from link join best on link.dst = best.src"""
    )
    assert components(program) == [Component(("best", "path"), True)]


def test_insert_casts_to_the_table() -> None:
    program = run("create table t (a int, d date, s text)")
    insert = parse("insert into t (s, a) values (1, '2'), ('x', 1 + 2)")[0]
    assert isinstance(insert, st.InsertRows)
    plan = bind_insert(insert, program)
    assert plan.rows == ((2, None, "1"), (3, None, "x"))  # type: ignore[attr-defined]  # Values
    assert plan.schema == program.tables["t"].schema
