"""The graph behind rows means what losing base rows does: evaluated without some of them it holds exactly the rows that
the database then has."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import whence
from tests import inside
from tests.property.test_random_programs import Case, cases, profile
from whence.explain.derive.extractor import extract
from whence.explain.graph import Derivations, Tally
from whence.model.errors import WhenceError

Row = tuple[Any, ...]
Fact = tuple[str, Row]

NETWORK = """
    CREATE TABLE link (src TEXT, dst TEXT, cost INT);
    CREATE VIEW reachable AS
        SELECT src, dst FROM link
        UNION SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;
"""


def graph_of(db: whence.Database, view: str, rows: list[Row] | None = None, **options: Any) -> Derivations:
    runtime = inside.coordinator(db)
    catalog = runtime.catalog
    codes = None
    if rows is not None:
        from whence.io.rows import encode

        codes = encode(rows, runtime.reader.schema(view), runtime.dictionary, view)
    return extract(catalog.flow, catalog.program, catalog.planned, runtime.dictionary, view, codes, **options)


# -- the meaning of a graph, written down once more, slowly ------------------------------------------------------------


def tallied(tally: Tally, left: list[bool]) -> tuple[Any, ...]:
    found = []
    for i, (function, distinct) in enumerate(tally.functions):
        pairs = [
            (values[i], int(weight))
            for values, weight, there in zip(tally.values, tally.weights, left, strict=True)
            if there and values[i] is not None
        ]
        if distinct:
            pairs = [(value, 1) for value in {value for value, _ in pairs}]
        count = sum(weight for _, weight in pairs)
        match function:
            case "count":
                found.append(count)
            case "sum":
                found.append(sum(value * weight for value, weight in pairs) if pairs else None)
            case "avg":
                found.append(sum(value * weight for value, weight in pairs) / count if pairs else None)
            case "min" | "max":
                best = min if function == "min" else max
                found.append(best(value for value, _ in pairs) if pairs else None)
    return tuple(found)


def holds(graph: Derivations, lost: set[int]) -> set[int]:
    """The nodes that are there when some base nodes are lost."""
    there = {n for n in range(len(graph)) if graph.kind(n) == "absence" or (graph.kind(n) == "base" and n not in lost)}
    waiting = dict.fromkeys(graph.tallies)
    while True:
        changed = True
        while changed:
            changed = False
            for d in range(len(graph.head)):
                head = int(graph.head[d])
                if head not in there and head not in graph.tallies and set(graph.bodies(d).tolist()) <= there:
                    there.add(head)
                    changed = True
        ready = next((n for n in waiting if not _stands_on(graph, n, waiting)), None)
        if ready is None:
            return there
        del waiting[ready]
        tally = graph.tallies[ready]
        (d,) = graph.derivations_of(ready)
        left = [b in there for b in graph.bodies(d).tolist()]
        if tally.test is not None:
            passes = tally.test(tallied(tally, left), any(left))
        else:
            passes = tallied(tally, left) == tallied(tally, [True] * len(left))
        if passes:
            there.add(ready)


def _stands_on(graph: Derivations, node: int, others: dict[int, None]) -> bool:
    seen: set[int] = set()
    stack = [node]
    while stack:
        for d in graph.derivations_of(stack.pop()):
            for b in graph.bodies(d).tolist():
                if b in others:
                    return True
                if b not in seen:
                    seen.add(b)
                    stack.append(b)
    return False


def check_shape(graph: Derivations) -> None:
    """The invariants that every user of a graph relies on."""
    assert len(graph.relation) == len(graph.place) == len(graph)
    assert (np.diff(graph.head) >= 0).all()
    assert graph.start[0] == 0
    assert graph.start[-1] == len(graph.body)
    assert len(graph.start) == len(graph.head) + 1
    assert len(graph.step) == len(graph.head)
    reached, stack = set(graph.roots.tolist()), graph.roots.tolist()
    while stack:
        node = stack.pop()
        if graph.kind(node) in ("base", "absence"):
            assert not graph.derivations_of(node)
        for d in graph.derivations_of(node):
            for b in graph.bodies(d).tolist():
                if b not in reached:
                    reached.add(b)
                    stack.append(b)
    assert len(reached) == len(graph), [graph.label(n) for n in range(len(graph)) if n not in reached]
    for node in graph.tallies:
        (d,) = graph.derivations_of(node)
        assert len(graph.bodies(d)) == len(graph.tallies[node].values) == len(graph.tallies[node].weights)
    named = Counter((graph.relations[graph.relation[n]].name, graph.values(n)) for n in graph.base.tolist())
    assert not named or max(named.values()) == 1


def check_losses(db: whence.Database, facts: list[Fact], view: str, graph: Derivations, seed: int) -> None:
    """The roots of a graph under random losses, against the database that lost the rows."""
    rng = random.Random(seed)
    nodes = {(graph.relations[graph.relation[n]].name, graph.values(n)): n for n in graph.base.tolist()}
    assert set(graph.roots.tolist()) <= holds(graph, set())
    if not graph.exact:
        return
    for _ in range(4):
        gone = [fact for fact in dict.fromkeys(facts) if rng.random() < 0.35]
        try:
            with db.transaction():
                for table, row in gone:
                    db.delete(table, [row] * facts.count((table, row)))
            left = set(db[view].rows)
        except WhenceError:
            continue
        finally:
            with db.transaction():
                for name in db.tables:
                    db.delete(name, db[name].rows)
                for table, row in facts:
                    db.insert(table, [row])
        there = holds(graph, {nodes[fact] for fact in gone if fact in nodes})
        for root in graph.roots.tolist():
            assert (root in there) == (graph.values(root) in left), (graph.label(root), gone, describe(graph))


def describe(graph: Derivations) -> str:
    lines = [f"exact {graph.exact} {graph.caveat}"]
    for d in range(len(graph.head)):
        body = ", ".join(graph.label(b) for b in graph.bodies(d).tolist())
        lines.append(f"{graph.label(int(graph.head[d]))} <- {body} {graph.tallies.get(int(graph.head[d]), '')}")
    return "\n".join(lines)


def run(case: Case, seed: int) -> None:
    db = whence.open()
    sql = ";\n".join(s for s in case.sql.split(";\n"))
    try:
        db.execute(sql)
        with db.transaction():
            for table, row, sign in case.batches[0]:
                if sign > 0:
                    db.insert(table, [row])
    except WhenceError:
        return
    facts = [(name, row) for name in db.tables for row in db[name].rows]
    for view in db.views:
        graph = graph_of(db, view)
        check_shape(graph)
        assert sorted(map(repr, map(graph.values, graph.roots.tolist()))) == sorted(map(repr, set(db[view].rows)))
        check_losses(db, facts, view, graph, seed)
        for row in sorted(set(db[view].rows), key=repr)[:2]:
            one = graph_of(db, view, [row])
            check_shape(one)
            check_losses(db, facts, view, one, seed)


@profile(60)
@given(cases(recursive=True), st.integers(0, 1000))
def test_random_recursion_under_losses(case: Case, seed: int) -> None:
    run(case, seed)


@profile(120)
@given(cases(recursive=False), st.integers(0, 1000))
def test_random_queries_under_losses(case: Case, seed: int) -> None:
    run(case, seed)


# -- one behaviour each ------------------------------------------------------------------------------------------------


def opened(sql: str, **tables: list[Row]) -> whence.Database:
    db = whence.open()
    db.execute(sql)
    for name, rows in tables.items():
        db.insert(name, rows)
    return db


def shown(graph: Derivations) -> list[str]:
    """The derivations as text, sorted."""
    lines = []
    for d in range(len(graph.head)):
        body = ", ".join(graph.label(b) for b in graph.bodies(d).tolist())
        lines.append(f"{graph.label(int(graph.head[d]))} <- {body}")
    return sorted(lines)


LINKS = [("A", "B", 1), ("B", "C", 2), ("A", "C", 9), ("C", "A", 1)]


@pytest.mark.parametrize(
    "option", ["policy = 'support'", "policy = 'dred'", "maintain = 'absorption'", "maintain = 'relative'"]
)
def test_all_derivations_of_a_recursive_row(option: str) -> None:
    db = opened(NETWORK.replace("VIEW reachable", f"VIEW reachable WITH ({option})"), link=LINKS)
    graph = graph_of(db, "reachable", [("A", "C")])
    assert graph.exact
    assert graph.monotone
    assert shown(graph) == [
        "reachable(A, C) <- link(A, B, 1), reachable(B, C)",
        "reachable(A, C) <- link(A, C, 9)",
        "reachable(A, C) <- link(A, C, 9), reachable(C, C)",
        "reachable(B, C) <- link(B, C, 2)",
        "reachable(B, C) <- link(B, C, 2), reachable(C, C)",
        "reachable(C, C) <- link(C, A, 1), reachable(A, C)",
    ]
    assert [graph.steps[s].text for s in graph.step[:2].tolist()] == [
        "reachable <- link",
        "reachable <- link, reachable",
    ]
    db.delete("link", [("A", "C", 9)])
    assert ("A", "C") in db["reachable"]


def test_a_tables_own_row_is_a_leaf_with_its_copies() -> None:
    db = opened(NETWORK, link=[("A", "B", 1), ("A", "B", 1)])
    graph = graph_of(db, "link", [("A", "B", 1)])
    assert len(graph) == 1
    assert not len(graph.head)
    assert graph.kind(0) == "base"
    assert graph.copies == {0: 2}


def test_base_rows_are_one_node_however_they_are_reached() -> None:
    db = opened(
        NETWORK + "CREATE VIEW loops AS SELECT l.src FROM link l JOIN reachable r ON r.src = l.dst AND r.dst = l.src",
        link=LINKS,
    )
    graph = graph_of(db, "loops")
    check_shape(graph)
    assert sorted(graph.label(n) for n in graph.base.tolist()) == sorted(f"link({a}, {b}, {c})" for a, b, c in LINKS)


def test_best_values_have_the_derivations_of_that_value() -> None:
    db = opened(
        """CREATE TABLE link (src TEXT, dst TEXT, cost INT);
        CREATE VIEW far AS SELECT src, dst, MIN(cost) AS cost FROM (
            SELECT src, dst, cost FROM link
            UNION SELECT link.src, far.dst, link.cost + far.cost FROM link JOIN far ON link.dst = far.src
        ) q GROUP BY src, dst""",
        link=LINKS,
    )
    graph = graph_of(db, "far", [("A", "C", 3)])
    assert graph.exact
    assert shown(graph) == [
        "far(A, C, 3) <- link(A, B, 1), far(B, C, 2)",
        "far(B, C, 2) <- link(B, C, 2)",
    ]


def test_aggregate_selection_shows_its_best_values_by_a_readable_name() -> None:
    db = opened(
        """CREATE TABLE link (src TEXT, dst TEXT, cost INT);
        CREATE VIEW path AS SELECT src, dst, dst AS via, cost FROM link
            UNION SELECT link.src, path.dst, link.dst, link.cost + path.cost FROM link JOIN path ON link.dst = path.src;
        CREATE VIEW cheapest AS SELECT src, dst, MIN(cost) AS cost FROM path GROUP BY src, dst""",
        link=LINKS,
    )
    graph = graph_of(db, "cheapest", [("A", "C", 3)])
    assert graph.exact
    assert shown(graph) == [
        "best cost of path(A, C, 3) <- link(A, B, 1), best cost of path(B, C, 2)",
        "best cost of path(B, C, 2) <- link(B, C, 2)",
        "cheapest(A, C, 3) <- path(A, C, B, 3)",
        "path(A, C, B, 3) <- link(A, B, 1), path(B, C, C, 2), best cost of path(A, C, 3)",
        "path(B, C, C, 2) <- link(B, C, 2), best cost of path(B, C, 2)",
    ]
    check_losses(db, [("link", row) for row in LINKS], "cheapest", graph, 1)


def test_counts_and_sums_are_tallies_over_their_rows() -> None:
    db = opened(
        "CREATE TABLE sale (region TEXT, amount INT);"
        "CREATE VIEW totals AS SELECT region, COUNT(*) AS n, SUM(amount) AS s FROM sale GROUP BY region",
        sale=[("eu", 1), ("eu", 2), ("eu", 2), ("us", 9)],
    )
    graph = graph_of(db, "totals", [("eu", 3, 5)])
    (tally,) = graph.tallies.values()
    assert tally.functions == (("count", False), ("sum", False))
    assert sorted(zip(tally.values, tally.weights.tolist(), strict=True)) == [((1, 1), 1), ((1, 2), 2)]
    assert graph.roots.tolist() == list(graph.tallies)
    assert graph.exact


def test_elements_of_a_tally_that_have_several_sources_are_rows_of_their_own() -> None:
    db = opened(
        "CREATE TABLE a (x INT); CREATE TABLE b (x INT, y INT);"
        "CREATE VIEW n AS SELECT COUNT(*) AS n FROM a JOIN b ON a.x = b.x",
        a=[(1,), (2,)],
        b=[(1, 1), (1, 2), (2, 3)],
    )
    graph = graph_of(db, "n")
    check_shape(graph)
    assert len(graph.bodies(int(graph.first[graph.roots[0]]))) == 3
    check_losses(db, [("a", (1,)), ("a", (2,)), ("b", (1, 1)), ("b", (1, 2)), ("b", (2, 3))], "n", graph, 5)


def test_a_group_whose_values_are_those_of_nothing_still_needs_a_row() -> None:
    facts = [("a", (1, None)), ("a", (1, None)), ("a", (2, 5))]
    db = opened("CREATE TABLE a (x INT, y INT); CREATE VIEW n AS SELECT x, COUNT(y) AS n FROM a GROUP BY x")
    db.insert("a", [row for _, row in facts])
    graph = graph_of(db, "n", [(1, 0)])
    assert graph.exact
    assert graph.roots[0] in holds(graph, set())
    assert graph.roots[0] not in holds(graph, set(graph.base.tolist()))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT x FROM a GROUP BY x HAVING SUM(y) > 3",
        "SELECT x FROM totals WHERE s > 3 AND n < 3",
        "SELECT x, s > 3 AS big FROM totals",
        "SELECT x FROM totals",
        "SELECT x FROM a GROUP BY x HAVING MIN(y) >= 2 OR COUNT(DISTINCT y) = 3",
        "SELECT x FROM a GROUP BY x HAVING AVG(y) > 2",
        "SELECT 'few' AS f FROM (SELECT COUNT(*) AS n FROM a) q WHERE n < 9",
    ],
)
def test_a_condition_on_a_group_counts_whatever_its_values(query: str) -> None:
    facts = [("a", (1, y)) for y in (1, 2, 4, 2)] + [("a", (2, 5)), ("a", (2, -1))]
    db = opened(
        "CREATE TABLE a (x INT, y INT); CREATE VIEW totals AS SELECT x, SUM(y) AS s, COUNT(*) AS n FROM a GROUP BY x;"
        f"CREATE VIEW v AS {query}"
    )
    db.insert("a", [row for _, row in facts])
    for row in set(db["v"].rows):
        graph = graph_of(db, "v", [row])
        check_shape(graph)
        assert graph.exact
        for seed in range(3):
            check_losses(db, facts, "v", graph, seed)


def test_a_value_that_another_group_may_come_to_is_a_caveat() -> None:
    db = opened(
        "CREATE TABLE a (x INT, y INT); CREATE VIEW n AS SELECT x, COUNT(*) AS n FROM a GROUP BY x;"
        "CREATE VIEW counts AS SELECT n FROM n",
        a=[(1, 1), (1, 2), (2, 1)],
    )
    assert not graph_of(db, "counts").exact
    assert not graph_of(db, "counts", [(1,)]).exact
    assert graph_of(db, "n").exact


def test_queries_over_best_values() -> None:
    facts = [("link", row) for row in LINKS]
    db = opened(
        """CREATE TABLE link (src TEXT, dst TEXT, cost INT);
        CREATE VIEW far AS SELECT src, dst, MIN(cost) AS cost FROM (
            SELECT src, dst, cost FROM link
            UNION SELECT link.src, far.dst, link.cost + far.cost FROM link JOIN far ON link.dst = far.src
        ) q GROUP BY src, dst;
        CREATE VIEW near AS SELECT src, dst, cost FROM far WHERE cost < 4;
        CREATE VIEW ends AS SELECT dst FROM far WHERE src = 'A'""",
        link=LINKS,
    )
    graph = graph_of(db, "near")
    assert graph.exact
    check_losses(db, facts, "near", graph, 2)
    assert not graph_of(db, "ends", [("C",)]).exact


def test_what_is_excluded_is_an_absence_and_what_it_excludes_now_a_caveat() -> None:
    db = opened(
        "CREATE TABLE a (x INT, y INT); CREATE TABLE no (x INT);"
        "CREATE VIEW v AS SELECT DISTINCT y FROM a WHERE NOT EXISTS (SELECT 1 FROM no WHERE no.x = a.x)",
        a=[(1, 7), (2, 7), (3, 8)],
        no=[(1,)],
    )
    graph = graph_of(db, "v", [(8,)])
    assert graph.exact
    assert shown(graph) == ["v(8) <- a(3, 8), no no(3)"]
    graph = graph_of(db, "v", [(7,)])
    assert not graph.exact
    assert "no" in graph.caveat


def test_negation_inside_recursion() -> None:
    db = opened(
        """CREATE TABLE link (src TEXT, dst TEXT); CREATE TABLE closed (name TEXT);
        CREATE VIEW way AS SELECT src, dst FROM link
            UNION SELECT way.src, link.dst FROM way JOIN link ON link.src = way.dst
            WHERE NOT EXISTS (SELECT 1 FROM closed WHERE closed.name = way.dst)""",
        link=[("A", "B"), ("B", "C")],
    )
    graph = graph_of(db, "way", [("A", "C")])
    assert graph.exact
    assert "way(A, C) <- way(A, B), link(B, C), no closed(B)" in shown(graph)
    db.insert("closed", [("Z",)])
    assert graph_of(db, "way", [("A", "C")]).exact
    db.insert("link", [("A", "Z"), ("Z", "C")])
    assert not graph_of(db, "way", [("A", "C")]).exact
    db.insert("closed", [("B",)])
    assert ("A", "C") not in db["way"]


def test_python_functions_in_a_recursion() -> None:
    db = whence.open()
    db.create_function("step", lambda x: x + 1, args=["INT"], returns="INT")
    db.execute("CREATE TABLE a (x INT); CREATE VIEW v AS SELECT x FROM a UNION SELECT step(x) FROM v WHERE x < 3")
    db.insert("a", [(1,), (2,)])
    graph = graph_of(db, "v", [(3,)])
    check_shape(graph)
    assert sorted(graph.label(n) for n in graph.base.tolist()) == ["a(1)", "a(2)"]
    check_losses(db, [("a", (1,)), ("a", (2,))], "v", graph, 3)


def test_table_functions() -> None:
    db = whence.open()
    db.create_table_function("upto", lambda n: [(i,) for i in range(n)], args=["INT"], returns="(i INT)")
    db.execute("CREATE TABLE a (x INT); CREATE VIEW v AS SELECT DISTINCT u.i FROM a, upto(a.x) AS u")
    db.insert("a", [(2,), (3,)])
    assert shown(graph_of(db, "v")) == ["v(0) <- a(2)", "v(0) <- a(3)", "v(1) <- a(2)", "v(1) <- a(3)", "v(2) <- a(3)"]


def test_constants_are_always_there() -> None:
    db = opened("CREATE TABLE a (x INT); CREATE VIEW v AS SELECT 1 AS x UNION SELECT x FROM a", a=[(1,), (2,)])
    assert shown(graph_of(db, "v")) == ["v(1) <- ", "v(1) <- a(1)", "v(2) <- a(2)"]


def test_too_many_derivations_are_refused() -> None:
    db = opened(NETWORK, link=LINKS)
    rows = len(db["reachable"])
    with pytest.raises(WhenceError, match=f"reachable has {rows} rows .* more than the limit of 3: .* src, dst"):
        graph_of(db, "reachable", limit=3)
    with pytest.raises(WhenceError, match=f"derivations are behind these rows, more than the limit of {rows}: ask"):
        graph_of(db, "reachable", limit=rows)


def test_asking_adds_nothing_to_the_dictionary() -> None:
    db = opened("CREATE TABLE a (x TEXT); CREATE VIEW v AS SELECT UPPER(x) || '!' AS x FROM a", a=[("b",), ("c",)])
    db.delete("a", [("c",)])
    words = len(inside.dictionary(db))
    assert shown(graph_of(db, "v", [("B!",)])) == ["v(B!) <- a(b)"]
    assert len(inside.dictionary(db)) == words
