"""Relative provenance against a traversal of the whole graph of derivations, on random rules over a few names."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.annotate.truth import column
from whence.annotate.relative import Relative
from whence.model.errors import DataError, EvaluationError

BASE, DERIVED = tuple(range(0, 12, 3)), tuple(range(20, 25))  # names
Edge = tuple[int, int, tuple[int, ...]]  # rule, head, bodies

edges = st.tuples(
    st.integers(0, 2), st.sampled_from(DERIVED), st.lists(st.sampled_from(BASE + DERIVED), min_size=1, max_size=3)
).map(lambda e: (e[0], e[1], tuple(e[2])))
graphs = st.lists(edges, max_size=10)


def derivable(graph: list[Edge], base: set[int]) -> set[int]:
    """The names that the base derives."""
    found, before = set(base), -1
    while len(found) != before:
        before = len(found)
        found |= {head for _, head, bodies in graph if found.issuperset(bodies)}
    return found


def evaluate(algebra: Relative, graph: list[Edge]) -> dict[int, int]:
    """The functions of all names, by rounds of derivations until none says anything new."""
    value = dict(zip(BASE, algebra.of_tid(column(*BASE)).tolist(), strict=True))
    changed = True
    while changed:
        changed = False
        for rule, head, bodies in graph:
            product = column(1)
            for body in bodies:
                product = algebra.times(product, column(value.get(body, 0)))
            row = algebra.derived(product, column(rule), column(head), column(*bodies, -1)[None])
            old = column(value.get(head, 0))
            if not algebra.implied(row, old)[0]:
                value[head] = int(algebra.plus(old, row)[0])
                changed = True
    return value


@given(graphs, st.sets(st.sampled_from((*BASE, 1000))))
def test_without_is_derivability_from_what_is_left(graph: list[Edge], lost: set[int]) -> None:
    algebra = Relative()
    value = evaluate(algebra, graph)
    assert {name for name, handle in value.items() if handle} == derivable(graph, set(BASE))
    left = algebra.without(column(*value.values()), column(*sorted(lost)))
    holding = {name for name, handle in zip(value, left.tolist(), strict=True) if handle}
    assert holding == derivable(graph, set(BASE) - lost)
    remaining = derivable(graph, set(BASE) - lost)
    for name, handle in zip(value, left.tolist(), strict=True):
        for rule, head, *bodies in algebra.edges(handle):
            assert (rule, head, tuple(bodies)) in graph
            assert remaining.issuperset(bodies)
        if handle:
            assert algebra.heads(handle) == (name,)
    assert algebra.without(left, column(*sorted(lost))).tolist() == left.tolist()


@given(graphs)
def test_witnesses_suffice_and_are_minimal(graph: list[Edge]) -> None:
    algebra = Relative()
    value = evaluate(algebra, graph)
    starts, support = algebra.support(column(*value.values()))
    for i, (name, handle) in enumerate(value.items()):
        found = algebra.witnesses(handle, 1000)
        assert algebra.count(handle) == len(found)
        for world in range(1 << len(BASE)):
            base = {b for j, b in enumerate(BASE) if world >> j & 1}
            assert (name in derivable(graph, base)) == any(base.issuperset(w) for w in found)
        mentioned = support[starts[i] : starts[i + 1]].tolist()
        assert mentioned == sorted(set(mentioned))
        assert set(mentioned) >= {v for w in found for v in w}


@given(graphs, st.permutations(BASE + DERIVED))
def test_packed_functions_are_read_elsewhere_by_their_names(graph: list[Edge], renaming: list[int]) -> None:
    algebra, other = Relative(), Relative()
    renamed = dict(zip(BASE + DERIVED, renaming, strict=True))
    value = evaluate(algebra, graph)
    handles = column(0, 1, *value.values(), *value.values())
    names, data = algebra.pack(handles)
    received = other.unpack(column(*(renamed[n] for n in names.tolist())), data)
    assert received[:2].tolist() == [0, 1]
    assert received[2 : 2 + len(value)].tolist() == received[2 + len(value) :].tolist()
    for mine, theirs in zip(handles.tolist(), received.tolist(), strict=True):
        expected = {(rule, *(renamed[n] for n in rest)) for rule, *rest in algebra.edges(mine)}
        assert set(other.edges(theirs)) == expected
        assert other.heads(theirs) == tuple(renamed[n] for n in algebra.heads(mine))
        expected = sorted(tuple(sorted(renamed[v] for v in w)) for w in algebra.witnesses(mine, 1000))
        assert sorted(other.witnesses(theirs, 1000)) == expected
    assert algebra.unpack(names, data).tolist() == handles.tolist()


@given(graphs, st.data())
def test_torn_bytes_are_refused(graph: list[Edge], data: st.DataObject) -> None:
    algebra = Relative()
    value = evaluate(algebra, graph)
    names, packed = algebra.pack(column(*value.values()))
    for end in range(len(packed)):
        with pytest.raises(DataError):
            algebra.unpack(names, packed[:end])
    hostile = bytearray(packed)
    for _ in range(3):
        hostile[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    try:
        handles = algebra.unpack(names, bytes(hostile))
    except DataError:
        assert evaluate(algebra, graph) == value
        return
    assert (algebra.without(handles, column()) == handles).all()


@given(graphs, st.integers(0, 8))
def test_collection_keeps_what_is_asked_for(graph: list[Edge], dropped: int) -> None:
    algebra = Relative()
    value = evaluate(algebra, graph)
    kept = list(value.items())[dropped:]
    before = [(algebra.heads(h), algebra.edges(h)) for _, h in kept]
    moved = algebra.collect(column(0, 1, *(h for _, h in kept)))
    assert moved[:2].tolist() == [0, 1]
    assert [(algebra.heads(h), algebra.edges(h)) for h in moved[2:].tolist()] == before
    assert algebra.nbytes(moved) >= algebra.nbytes(moved[:2])
    again = evaluate(algebra, graph)
    assert [set(algebra.edges(again[name])) for name, _ in kept] == [set(edges) for _, edges in before]


@given(graphs)
def test_an_image_is_the_whole_algebra(graph: list[Edge]) -> None:
    algebra, again = Relative(), Relative()
    value = evaluate(algebra, graph)
    again.restore(algebra.image())
    assert evaluate(again, graph) == value
    with pytest.raises(DataError):
        again.restore({})


def test_a_row_that_stands_on_itself_alone_is_lost() -> None:
    """20 comes from the base row 0 or from 21, and 21 from 20: without 0 neither is left."""
    algebra = Relative()
    value = evaluate(algebra, [(0, 20, (0,)), (1, 21, (20,)), (2, 20, (21,))])
    both = column(value[20], value[21])
    assert algebra.count(value[20]) == 1
    assert algebra.without(both, column(0)).tolist() == [0, 0]
    assert algebra.sizes(column(value[20])).tolist() == [4 * (1 + 3 * 3)]


def test_a_long_chain_derived_from_its_far_end() -> None:
    """Edges are numbered against the direction of derivation: many passes, the same answer."""
    algebra, length = Relative(), 300
    names = np.arange(1, length + 1)
    heads = algebra.of_tid(column(0))
    whole = algebra.derived(np.repeat(heads, length), np.zeros(length, np.int64), names[::-1], names[::-1, None] - 1)
    row = whole[:1]
    for i in range(1, length):
        row = algebra.derived(algebra.times(row, whole[i : i + 1]), column(0), names[-1:], names[-1:, None] - 1)
    assert len(algebra.edges(int(row[0]))) == length
    assert algebra.without(row, column(0)).tolist() == [0]
    assert (algebra.without(row, column(7)) == row).all()
    assert algebra.witnesses(int(row[0]), 3) == [(0,)]


def test_what_has_no_meaning_is_an_error() -> None:
    algebra = Relative(limit=2)
    a, b = algebra.of_tid(column(1)), algebra.of_tid(column(2))
    with pytest.raises(EvaluationError, match="different rows"):
        algebra.plus(a, b)
    with pytest.raises(EvaluationError, match="-1"):
        algebra.of_tid(column(-1))
    row = algebra.derived(a, column(0), column(5), column(1)[None])
    row = algebra.derived(row, column(0), column(6), column(5)[None])
    with pytest.raises(EvaluationError, match="more than 2 derivation edges"):
        algebra.derived(row, column(0), column(7), column(6)[None])
