"""Distributed plans: by the moves they have, and by two judges (`partitions.py`) over every view of the fixtures."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st_

import whence
from tests import inside
from tests.oracle import load
from tests.property.test_random_programs import cases, profile
from tests.test_sql_fixtures import FILES, read
from tests.unit.partitions import MisplacedError, Partitions, check
from tests.unit.test_sql_queries import _QUERIES, _TABLES
from whence.engine.core.operator import Batch
from whence.model.errors import WhenceError
from whence.plan.algebra.logical import Aggregate, Join, LocalFilter, Node, Project, Ref, Scan, Select, Ship, TopK, walk
from whence.plan.algebra.program import Program
from whence.plan.partitions.distribute import (
    Distributed,
    Distribution,
    PlannedComponent,
    describe_distribution,
    distribute,
)
from whence.plan.recursion.strata import components
from whence.plan.rewrite.best_rows import select_aggregates
from whence.sql import statements as st
from whence.sql.bind import bind_table, bind_views
from whence.sql.parse import parse

RELATIONS = [path for path in FILES if path.stem not in ("streams", "promises")]  # the others have streams

ROOT = Path(__file__).parents[2]
TABLES = """
    create table r (a int, b int, c int, d bigint);
    create table s (a int, b int, c int, x double);
    create table t (a int, b int, c int, i interval);
    create table k (id int, part int, v int, primary key (id, part));
    create table link (src text, dst text, cost int);
"""


def plan(
    views: str,
    *,
    partitions: int = 4,
    small: Callable[[str], bool] = lambda table: True,
    fixed: Mapping[str, Distribution] | None = None,
    tables: str = TABLES,
) -> Distributed:
    program, creates = Program(), []
    for statement in parse(tables + views):
        if isinstance(statement, st.CreateTable):
            program = bind_table(statement, program)
        elif isinstance(statement, st.CreateView):
            creates.append(statement)
    planned = select_aggregates(bind_views(creates, program))
    found = distribute(
        planned, components(planned), partitions=partitions, fixed=fixed or {}, small=small, depth_limit=1000
    )
    check(found)
    return found


def shape(node: Node) -> str:
    """A plan in one line, without projections and selections."""
    inner = ", ".join(map(shape, node.inputs))
    match node:
        case Scan():
            return node.table
        case Ref():
            return node.view
        case Project() | Select():
            return inner
        case Ship():
            return f"{node.to}{list(node.cols) if node.cols else ''}({inner})"
        case LocalFilter():
            return f"mine{list(node.cols) if node.cols is not None else ''}({inner})"
        case Join():
            return f"{node.kind}({inner})"
        case Aggregate():
            return f"{'+'.join(a.function for a in node.aggs)}({inner})"
        case TopK():
            return f"top{node.limit}+{node.offset}({inner})"
    return f"{type(node).__name__.lower()}({inner})"


def placed(query: str, **options: object) -> str:
    """The plan of one view over tables by their first column, unless told otherwise, and where its rows are."""
    options.setdefault("fixed", {name: Distribution("hash", (0,)) for name in ("r", "s", "t", "k", "link")})
    found = plan(f"create view v as {query};", **options)  # type: ignore[arg-type]  # as plan's own
    (piece,) = found.pieces
    assert piece.node is not None
    dist = found.views["v"]
    return f"{shape(piece.node)} {dist.kind}{list(dist.cols) if dist.cols else ''}"


# -- operators ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select b, a from r where c > 1", "r hash[1]"),
        ("select b, a + 1 as a from r", "r spread"),
        ("select cast(a as bigint) as a from r", "r hash[0]"),
        ("select 1 as one", "values() all"),
        # joins
        ("select r.b, s.b from r join s on r.a = s.a", "inner(r, s) spread"),
        ("select s.a from r join s on r.a = s.a and r.b = s.b", "inner(r, s) hash[0]"),
        ("select r.a, s.a from r join s on r.b = s.a", "inner(hash[1](r), s) hash[1]"),
        ("select r.a from r join s on r.b = s.b", "inner(hash[1](r), hash[0](s)) spread"),
        ("select r.a from r join s on r.a = s.a join t on t.a = s.a", "inner(inner(r, s), t) hash[0]"),
        ("select r.a, s.a from r left join s on r.a = s.a", "left(r, s) hash[0]"),
        ("select r.a, s.a from r right join s on r.a = s.a", "right(r, s) hash[1]"),
        ("select r.a, s.a from r full join s on r.a = s.a", "full(r, s) spread"),
        ("select r.a from r left join s on r.b < s.b", "left(r, all(s)) hash[0]"),
        ("select s.a from r right join s on r.b < s.b", "right(all(r), s) hash[0]"),
        ("select r.a from r join s on r.b < s.b", "inner(r, all(s)) hash[0]"),
        ("select a from r where b in (select a from s)", "semi(hash[1](r), s) spread"),
        ("select a from r where not exists (select 1 from s where s.a = r.a)", "anti(r, s) hash[0]"),
        # NULLs on either side decide too, and whether there are any is known everywhere
        (
            "select a from r where a not in (select a from s)",
            "anti(anti(anti(r, s), distinct(all(distinct(s)))), distinct(all(distinct(s)))) hash[0]",
        ),
        (
            "select a, a in (select a from s) as there from r",
            "mark(mark(mark(r, s), distinct(all(distinct(s)))), distinct(all(distinct(s)))) hash[0]",
        ),
        ("select t.a from t join t as u on t.i = u.i", "inner(t, all(t)) hash[0]"),
        # a lone row is copied, whatever the keys
        (
            "select a from r where b > (select max(b) from s)",
            "inner(r, max(all(max(s)))) hash[0]",
        ),
        # equal rows meet
        ("select distinct a, b from r", "distinct(r) hash[0]"),
        ("select distinct b, c from r", "distinct(hash[0, 1](r)) hash[0, 1]"),
        ("select a, b from r intersect select a, b from s", "setop(r, s) hash[0]"),
        ("select a, b from r except select b, a from s", "setop(r, hash[0](s)) hash[0]"),
        ("select b from r except select b from s", "setop(hash[0](r), hash[0](s)) hash[0]"),
        ("select a, b from r union all select a, c from s", "union(r, s) hash[0]"),
        ("select a, b from r union all select b, a from s", "union(r, s) spread"),
        ("select a, b from r union all select 1, 2", "union(r, mine[0](values())) hash[0]"),
        # aggregates
        ("select a, b, count(*) as n from r group by a, b", "count(r) hash[0]"),
        ("select b, count(*) as n, sum(a) as s from r group by b", "sum+sum(hash[0](count+sum(r))) hash[0]"),
        ("select b, min(c) as n, max(d) as s from r group by b", "min+max(hash[0](min+max(r))) hash[0]"),
        ("select b, sum(d) as s from r group by b", "sum(hash[0](r)) hash[0]"),
        ("select b, sum(x) as s from s group by b", "sum(hash[0](s)) hash[0]"),
        ("select b, avg(a) as s from s group by b", "avg(hash[0](s)) hash[0]"),
        ("select b, count(distinct c) as n from r group by b", "count(hash[0](r)) hash[0]"),
        ("select count(*) as n from r", "mine(sum(one(count(r)))) one"),
        ("select avg(a) as n from r", "mine(avg(one(r))) one"),
        ("select count(*) as n from (select 1 as a) as one", "count(values()) all"),
        # tops
        ("select a from r order by b limit 3 offset 2", "top3+2(one(top5+0(r))) one"),
        ("select a from r order by b offset 2", "topNone+2(one(r)) one"),
        ("select a from r order by b", None),
    ],
)
def test_operators_see_what_they_must(query: str, expected: str | None) -> None:
    found = placed(query)
    assert expected is None or found == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select r.a, s.b from r join s on r.b = s.b", "inner(r, s) hash[1]"),
        ("select r.a from r left join s on r.b = s.b", "left(mine[1](r), s) spread"),
        ("select s.a from s left join r on r.b = s.b", "left(s, r) spread"),
        ("select r.a from r right join s on r.b = s.b", "right(r, s) spread"),
        ("select r.a from r full join s on r.b = s.b", "full(mine[1](r), s) spread"),
        ("select a from r where not exists (select 1 from s where s.b = r.b)", "anti(mine[1](r), s) spread"),
        ("select a from r where not exists (select 1 from s where s.b < r.b)", "anti(mine[0, 1](r), all(s)) spread"),
        ("select a from s where not exists (select 1 from r where s.b < r.b)", "anti(s, r) spread"),
        ("select r.a from r right join s on r.b < s.b", "right(r, s) spread"),
        ("select r.a from s right join r on r.b < s.b", None),
        ("select r.a from r full join s on r.b < s.b", "full(mine(r), one(s)) one"),
        ("select b, count(*) as n from r group by b", "count(r) all"),
        ("select count(*) as n from r", "count(r) all"),
        ("select b from r except select b from s", "setop(mine[0](r), s) hash[0]"),
        ("select b from r union all select b from s", "union(mine[0](r), s) hash[0]"),
        ("select a from r order by a limit 1", "top1+0(r) all"),
    ],
)
def test_what_is_everywhere_is_used_where_it_is_right(query: str, expected: str | None) -> None:
    found = placed(query, fixed={"r": Distribution("all"), "s": Distribution("hash", (1,))})
    assert expected is None or found == expected


def test_one_partition_moves_nothing() -> None:
    found = plan((ROOT / "examples" / "network.sql").read_text(), partitions=1, tables="")
    nodes = [n for piece in found.pieces for top in plans(piece) for n in walk(top)]
    assert not [n for n in nodes if isinstance(n, (Ship, LocalFilter))]
    assert set(found.views.values()) == {Distribution("all")}


def plans(piece: PlannedComponent) -> list[Node]:
    sources = [r.source for r in piece.rules.relations if r.source is not None] if piece.rules is not None else []
    return [*([piece.node] if piece.node is not None else []), *sources, *(node for _, node in piece.after)]


# -- tables ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("views", "table", "expected"),
    [
        ("create view v as select 1 as one;", "r", Distribution("hash", (0, 1, 2, 3))),
        ("create view v as select 1 as one;", "k", Distribution("hash", (0, 1))),
        ("create view v as select b, count(*) as n from r group by b;", "r", Distribution("hash", (1,))),
        ("create view v as select r.a from r join s on r.b = s.c;", "s", Distribution("hash", (2,))),
        ("create view v as select r.a from r join k on r.b = k.id and r.c = k.v;", "r", Distribution("hash", (1,))),
        ("create view v as select r.a from r join k on r.b = k.id and r.c = k.v;", "k", Distribution("hash", (0,))),
        ("create view v as select r.a from r join k on r.c = k.v;", "k", Distribution("hash", (0, 1))),
        ("create view v as select t.a from t join t as u on t.i = u.i;", "t", Distribution("hash", (0, 1, 2, 3))),
        # by b alone both are content
        (
            "create view v as select b, c, count(*) as n from r group by b, c;"
            "create view w as select r.a from r join s on r.b = s.b;",
            "r",
            Distribution("hash", (1,)),
        ),
        # a view that only picks is seen through
        (
            "create view v as select c, b from r where a > 1; create view w as select s.a from v join s on v.c = s.c;",
            "r",
            Distribution("hash", (2,)),
        ),
    ],
)
def test_tables_are_where_most_plans_want_them(views: str, table: str, expected: Distribution) -> None:
    assert plan(views).tables[table] == expected


def test_fixed_tables_stay() -> None:
    found = plan("create view v as select b, min(a) as a from r group by b;", fixed={"r": Distribution("hash", (3,))})
    assert found.tables["r"] == Distribution("hash", (3,))


# -- recursion ---------------------------------------------------------------------------------------------------------

REACHABLE = """create view reachable {} as
    select src, dst from link union select link.src, reachable.dst from link join reachable on link.dst = reachable.src;
"""


def component(found: Distributed) -> tuple[str, list[str]]:
    (piece,) = [p for p in found.pieces if p.rules is not None]
    return piece.strategy, [shape(node) for node in plans(piece)]


def test_recursion_follows_its_key() -> None:
    found = plan(REACHABLE.format(""))
    assert component(found) == ("local by dst, link copied", ["mine[1](link)", "link"])
    assert (found.tables["link"], found.views["reachable"]) == (Distribution("all"), Distribution("hash", (1,)))


def test_what_is_large_is_not_copied() -> None:
    found = plan(REACHABLE.format(""), small=lambda table: table != "link")
    assert component(found) == ("exchange reachable by src", ["link"])
    assert found.views["reachable"] == Distribution("hash", (0,))


def test_unless_the_view_says_so() -> None:
    found = plan(
        REACHABLE.format("with (partition = 'broadcast')") if _has_partition() else REACHABLE.format(""),
        small=lambda table: not _has_partition(),
        fixed={"link": Distribution("hash", (1,))},
    )
    assert component(found) == ("local by dst, link copied", ["link", "all(link)"])


def _has_partition() -> bool:
    from whence.sql.options import check_name

    try:
        check_name("view", "partition")
    except ValueError:
        return False
    return True


def test_nothing_is_copied_where_the_other_side_has_the_key() -> None:
    """Within each graph g: g goes through everything."""
    found = plan(
        """create view path as select g, src, dst from edge
           union select edge.g, edge.src, path.dst from edge join path on edge.g = path.g and edge.dst = path.src;""",
        tables="create table edge (g int, src int, dst int);",
        small=lambda table: False,
    )
    assert component(found) == ("local by g", ["edge"])
    assert found.tables["edge"] == Distribution("hash", (0,))


def test_no_key_goes_through() -> None:
    found = plan(
        """create view near as select src as a, dst as b from link
           union select link.dst, near.a from link join near on link.src = near.b;"""
    )
    assert component(found)[0] == "exchange near by b"


def test_what_the_view_asks_for() -> None:
    one, exchange = (plan(REACHABLE.format(f"with (partition = '{way}')")) for way in ("one", "exchange"))
    assert component(one) == ("one partition, as its option asks", ["one(link)"])
    assert component(exchange)[0] == "exchange reachable by src"


def test_a_wish_that_cannot_be_met_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    found = plan(
        """create view near with (partition = 'broadcast') as select src as a, dst as b from link
           union select link.dst, near.a from link join near on link.src = near.b;"""
    )
    assert component(found)[0] == "exchange near by b"
    assert "as its option wishes" in caplog.text


def test_constants_recurse_everywhere() -> None:
    found = plan("create view n as select 1 as i union select i + 1 from n where i < 9;")
    assert component(found) == ("in every partition", ["values()"])
    assert found.views["n"] == Distribution("all")


def test_distributions_in_words() -> None:
    program = Program()
    (create,) = parse("create table e (src text, dst text)")
    assert isinstance(create, st.CreateTable)
    schema = bind_table(create, program).tables["e"].schema
    told = [
        describe_distribution(d, schema)
        for d in (Distribution("hash", (0, 1)), Distribution("all"), Distribution("one"), Distribution("spread"))
    ]
    assert told == ["by src, dst", "in every partition", "in the first partition", "anywhere"]


# -- everything --------------------------------------------------------------------------------------------------------


def test_the_judge_sees_what_is_missing() -> None:
    found = plan("create view v as select r.a from r join s on r.b = s.b;", fixed={"r": Distribution("hash", (0,))})
    (piece,) = found.pieces
    assert piece.node is not None
    bare = Distributed(4, found.tables, found.views, (PlannedComponent(("v",), node=_without_ships(piece.node)),))
    with pytest.raises(MisplacedError):
        check(bare)


def _without_ships(node: Node) -> Node:

    inputs = [_without_ships(child) for child in node.inputs]
    if isinstance(node, Ship):
        return inputs[0]
    return node.with_inputs(inputs) if inputs else node


def assert_same_rows(db: whence.Database, small: bool, fixed: Mapping[str, Distribution] | None = None) -> int:
    """Every view, computed in three partitions, has the rows it has in one; the number of views."""
    catalog = inside.coordinator(db).catalog
    planned = select_aggregates(catalog.program)
    found = distribute(
        planned, components(planned), partitions=3, fixed=fixed or {}, small=lambda table: small, depth_limit=100_000
    )
    check(found)
    if any(piece.exchange is not None for piece in found.pieces):
        return len(catalog.flow.views)  # rows that travel inside a recursion: tests/partitioned runs these
    tables = {name: catalog.flow.tables[name].contents() for name in catalog.program.tables}
    there = Partitions(found, tables, catalog.dictionary)
    for name, op in catalog.flow.views.items():
        assert counted(there.rows(name)) == counted(op.contents()), name
        assert there.astray(name) == 0, name
    return len(catalog.flow.views)


def counted(batch: Batch) -> Counter[tuple[int, ...]]:
    found: Counter[tuple[int, ...]] = Counter()
    for row, count in zip(batch.rows.tolist(), batch.ann.tolist(), strict=True):
        found[tuple(row)] += count
    return +found


@pytest.mark.parametrize("small", [True, False], ids=["small", "large"])
@pytest.mark.parametrize("path", RELATIONS, ids=lambda p: p.stem)
def test_views_of_the_fixtures_have_the_same_rows(path: Path, small: bool) -> None:
    db = whence.open()
    for block in read(path):
        try:
            if block.words[0] == "statement" and block.words[1] != "error":
                db.execute(block.sql)
                continue
            if block.words[0] == "query":
                db.execute(f"create view kept_query as {block.sql}")
            else:
                continue
        except WhenceError:
            continue
        assert_same_rows(db, small)
        db.execute("drop view kept_query")
    assert_same_rows(db, small)
    db.close()


@pytest.mark.parametrize("small", [True, False], ids=["small", "large"])
@pytest.mark.parametrize("name", ["network", "access"])
def test_views_of_the_examples_have_the_same_rows(name: str, small: bool) -> None:
    db = whence.open()
    db.execute((ROOT / "examples" / f"{name}.sql").read_text())
    if name == "network":
        db.insert("link", [("a", "b", 1), ("b", "c", 2), ("c", "a", 1), ("c", "d", 5), ("d", "e", 1), ("a", "e", 20)])
    assert assert_same_rows(db, small) > 3
    db.close()


def test_the_plan_can_travel() -> None:
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    found = plan((ROOT / "examples" / "network.sql").read_text(), tables="")
    assert cloudpickle.loads(cloudpickle.dumps(found)) == found


def test_every_process_makes_the_same_plan() -> None:
    code = (
        "from tests.unit.test_distribute import plan, ROOT\n"
        "print([repr(plan((ROOT / 'examples' / f'{n}.sql').read_text(), tables='')) for n in ('network', 'access')])"
    )
    seen = set()
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        ran = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True, cwd=ROOT
        )
        seen.add(ran.stdout)
    assert len(seen) == 1


@pytest.fixture(scope="module")
def queries() -> Iterator[whence.Database]:
    """Every query of queries.sql as a view, over small tables with many NULLs and ties."""
    db, rnd = whence.open(), random.Random(4)
    db.execute(_TABLES)

    def some(*values: object) -> object:
        return rnd.choice((*values, None))

    for _ in range(16):
        d = dt.date(2020, rnd.randint(1, 4), 11)
        number, text = (0, 1, 2, 3, 4), some("a", "b", "ab", "C")
        db.insert("t", [(some(*number), some(*number), d, text, some(1, 2), some(0.5, 0.25))])
        db.insert("u", [(some(*number), some(*number), text, some(dt.datetime(2020, 1, 2)))])
        db.insert("w", [(rnd.randint(0, 5), rnd.randint(0, 4))])
    made = 0
    for number_, query in enumerate(_QUERIES):
        with contextlib.suppress(WhenceError):
            db.execute(f"create view q{number_} as {query}")
            made += 1
    assert made > 100
    yield db
    db.close()


@pytest.mark.parametrize(
    "fixed",
    [
        {"t": Distribution("all")},
        {"u": Distribution("all"), "w": Distribution("all"), "t": Distribution("hash", (1,))},
        {"t": Distribution("one"), "u": Distribution("hash", (2,)), "w": Distribution("hash", (1, 0))},
    ],
    ids=["t everywhere", "t alone partitioned", "t in one place"],
)
def test_queries_have_the_same_rows(queries: whence.Database, fixed: dict[str, Distribution]) -> None:
    assert_same_rows(queries, True, fixed)


@pytest.mark.parametrize("recursive", [False, True], ids=["flat", "recursive"])
@profile(30)
@given(data=st_.data())
def test_random_programs_have_the_same_rows(recursive: bool, data: st_.DataObject) -> None:
    case = data.draw(cases(recursive))
    db = whence.open()
    db.execute(case.sql)
    load(db, [update for batch in case.batches for update in batch])
    fixed = {}
    for name in db.tables:
        columns = range(len(db[name].schema))
        cols = tuple(data.draw(st_.lists(st_.sampled_from(columns), unique=True, max_size=2)))
        fixed[name] = data.draw(
            st_.sampled_from([None, Distribution("all"), Distribution("hash", cols) if cols else Distribution("one")])
        )
    assert_same_rows(db, data.draw(st_.booleans()), {name: dist for name, dist in fixed.items() if dist is not None})
    db.close()
