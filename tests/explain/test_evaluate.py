"""What is there after a loss, against the definition taken literally."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from tests.explain.graphs import build, graphs, meanings
from whence.explain.ask.evaluate import Evaluator, evaluate
from whence.explain.ask.tally import eliminate_tallies
from whence.explain.graph import Derivations, Tally
from whence.model.errors import EvaluationError


def check(graph: Derivations) -> None:
    cases = [tuple(bool(c >> v & 1) for v in range(len(graph.base))) for c in range(1 << len(graph.base))]
    expected = np.array([[bool(there >> c & 1) for c in range(len(cases))] for there in meanings(graph)], bool)
    assert (evaluate(graph, np.array(cases, bool).T) == expected).all()
    assert (evaluate(graph, np.array(cases[-1], bool)) == expected[:, -1]).all()
    evaluator = Evaluator(graph)
    assert (evaluator.root(np.array(cases, bool).T) == expected[graph.roots[0]]).all()
    assert [evaluator.holds(np.array(a, bool)) for a in cases[:9]] == expected[graph.roots[0]][:9].tolist()


@given(graphs())
def test_without_tallies(graph: Derivations) -> None:
    check(graph)


@given(graphs(most=6, tallies=True))
def test_with_tallies(graph: Derivations) -> None:
    check(graph)


def test_a_circle_does_not_keep_itself() -> None:
    graph = build(1, [(1, [0]), (1, [2]), (2, [1])], [2])
    assert evaluate(graph, np.array([[True, False]])).tolist() == [[True, False]] * 3


def test_counts_minima_and_distinct_become_plain() -> None:
    functions = (("count", False), ("min", False), ("count", True))
    tally = Tally(functions, np.ones(3, np.int64), ((1, 5, 7), (1, 5, 8), (1, 9, None)))
    assert eliminate_tallies(build(3, [(3, [0, 1, 2])], [3], tallies={3: tally})).monotone


def test_a_sum_of_both_signs_stays_a_tally() -> None:
    tally = Tally((("sum", False),), np.ones(3, np.int64), ((1,), (-1,), (4,)))
    graph = build(3, [(3, [0, 1, 2])], [3], tallies={3: tally})
    assert not eliminate_tallies(graph).monotone
    cases = np.array([[True, False, False], [True, False, True], [True, True, True]])
    assert evaluate(graph, cases)[3].tolist() == [True, True, False]


def test_an_aggregate_of_itself_is_refused() -> None:
    tally = Tally((("avg", False),), np.ones(2, np.int64), ((1,), (2,)))
    graph = build(1, [(1, [0, 2]), (2, [0]), (2, [1])], [1], tallies={1: tally})
    with pytest.raises(EvaluationError, match="depends on itself"):
        evaluate(graph, np.ones(1, bool))
