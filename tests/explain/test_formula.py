"""Formulas: that they say the same as the graph, and read well."""

from __future__ import annotations

import networkx as nx
from hypothesis import given

from tests.explain.graphs import build, graphs, minimal, reachable, table
from whence.explain.ask.formula import Expression, build_expression, write_formula
from whence.explain.graph import Derivations


def holds(expr: Expression, alive: dict[int, bool]) -> bool:
    if expr.kind == "row":
        return alive[expr.node]
    return (all if expr.kind == "and" else any)(holds(p, alive) for p in expr.parts)


@given(graphs())
def test_it_says_the_same(graph: Derivations) -> None:
    found = build_expression(graph)
    assert found.complete
    for case, held in table(graph).items():
        assert holds(found, dict(zip(graph.base.tolist(), case, strict=True))) == held


@given(graphs(most=6, tallies=True))
def test_with_tallies_it_says_the_witnesses(graph: Derivations) -> None:
    found, function = build_expression(graph), table(graph)
    for case in function:
        there = frozenset(v for v, t in enumerate(case) if t)
        expected = any(w <= there for w in minimal(function))
        assert not found.complete or holds(found, dict(zip(graph.base.tolist(), case, strict=True))) == expected


def test_common_rows_are_taken_out() -> None:
    arcs = [("A", "B"), ("B", "C"), ("B", "D"), ("D", "C"), ("C", "B"), ("C", "A")]
    graph = reachable(arcs, "A", "C")
    text = write_formula(graph, lambda n: "{}{}".format(*arcs[n]))
    assert text == "AB ∧ (BC ∨ BD ∧ DC)"
    assert build_expression(graph).json(lambda n: "{}{}".format(*arcs[n])) == [
        "and",
        "AB",
        ["or", "BC", ["and", "BD", "DC"]],
    ]


def test_many_choices_side_by_side() -> None:
    derivations = [(40 + i, [2 * i + k]) for i in range(20) for k in (0, 1)] + [(60, list(range(40, 60)))]
    text = write_formula(build(40, derivations, [60]), str)
    assert text == " ∧ ".join(f"({2 * i} ∨ {2 * i + 1})" for i in range(20))


def test_what_is_too_long_ends_in_dots() -> None:
    grid = nx.grid_2d_graph(7, 7).to_directed()
    graph = reachable(list(grid.edges), (0, 0), (6, 6))
    found = build_expression(graph)
    assert not found.complete
    assert [p.size for p in found.parts] == [12] * 10 + [0]
    assert write_formula(graph).endswith(" ∨ …")


def test_a_long_witness_is_cut_short() -> None:
    text = write_formula(build(500, [(500, list(range(500)))], [500]), str, longest=5)
    assert text == "0 ∧ 1 ∧ 2 ∧ 3 ∧ 4 ∧ …"


def test_constants() -> None:
    assert write_formula(build(1, [(2, [1])], [2], absences=1)) == "⊤"
    assert write_formula(build(1, [(1, [2]), (2, [1])], [1])) == "⊥"
    assert write_formula(build(1, [], [0])) == "b(0)"
