"""Decision diagrams against truth tables, and against oxidd as an independent implementation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oxidd.bdd import BDDManager

from whence.annotate import AnnotationTooLarge
from whence.annotate.bdd import NODE_BYTES, Bdd
from whence.annotate.order import DepthFirst
from whence.model.errors import DataError

VARIABLES = 5
ALL = (1 << (1 << VARIABLES)) - 1  # a truth table has one bit for each set of variables
SETS = st.frozensets(st.integers(0, VARIABLES - 1))
DNF = st.frozensets(st.frozensets(st.integers(0, VARIABLES - 1), min_size=1), max_size=6) | st.just(
    frozenset({frozenset[int]()})
)
ORDER = st.permutations(range(VARIABLES))


def column(*handles: int) -> np.ndarray:
    return np.array(handles, np.int64)


def truth(dnf: frozenset[frozenset[int]]) -> int:
    """The sets of variables that contain one of these."""
    masks = [sum(1 << v for v in w) for w in dnf]
    return sum(1 << s for s in range(1 << VARIABLES) if any(s & m == m for m in masks))


def in_order(order: list[int]) -> Bdd:
    bdd = Bdd()
    bdd.of_tid(np.array(order, np.int64))
    return bdd


def build(bdd: Bdd, dnf: frozenset[frozenset[int]]) -> int:
    terms = []
    for witness in dnf:
        term = column(1)
        for p in bdd.of_tid(np.array(sorted(witness), np.int64)):
            term = bdd.times(term, column(p))
        terms.append(term[0])
    return int(bdd.total(np.array(terms, np.int64), column(0))[0])


def table(bdd: Bdd, handle: int) -> int:
    """The truth table of a function, read off its nodes."""
    variables, low, high, (root,) = (a.tolist() for a in bdd.diagram(column(handle)))
    values = []
    for s in range(1 << VARIABLES):
        node = root
        while node > 1:
            node = (high if s >> variables[node - 2] & 1 else low)[node - 2]
        values.append(node << s)
    return sum(values)


def minimal(table: int) -> list[tuple[int, ...]]:
    holds = [s for s in range(1 << VARIABLES) if table >> s & 1]
    least = [s for s in holds if not any(t != s and s & t == t for t in holds)]
    return sorted((tuple(v for v in range(VARIABLES) if s >> v & 1) for s in least), key=lambda w: (len(w), w))


@given(DNF, DNF, ORDER)
def test_operations_are_those_of_truth_tables(f, g, order):
    bdd = in_order(order)
    a, b = column(build(bdd, f)), column(build(bdd, g))
    assert table(bdd, a[0]) == truth(f)
    assert table(bdd, bdd.times(a, b)[0]) == truth(f) & truth(g)
    assert table(bdd, bdd.plus(a, b)[0]) == truth(f) | truth(g)
    assert bdd.implied(a, b)[0] == (truth(f) & ~truth(g) == 0)
    assert (a[0] != 0) == (truth(f) != 0)
    assert (a[0] == b[0]) == (truth(f) == truth(g))


def test_all_pairs_of_functions_of_three_variables():
    """There are 20 of them."""
    bdd = Bdd()
    terms = [frozenset(v for v in range(3) if s >> v & 1) for s in range(8)]
    functions = {}
    for some in range(1 << 8):
        dnf = frozenset(t for i, t in enumerate(terms) if some >> i & 1)
        assert functions.setdefault(build(bdd, dnf), truth(dnf)) == truth(dnf)
    a, b = (g.ravel() for g in np.meshgrid([*functions], [*functions]))
    assert len(functions) == len({*functions.values()}) == 20
    tables = [(functions[x], functions[y]) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert bdd.implied(a, b).tolist() == [x & ~y == 0 for x, y in tables]
    assert [functions[h] for h in bdd.times(a, b).tolist()] == [x & y for x, y in tables]
    assert [functions[h] for h in bdd.plus(a, b).tolist()] == [x | y for x, y in tables]


@given(st.lists(DNF, max_size=6), st.lists(st.integers(0, 6), max_size=4), ORDER)
def test_totals_of_runs(functions, cuts, order):
    bdd = in_order(order)
    a = column(*(build(bdd, f) for f in functions))
    starts = sorted({0, *(c for c in cuts if c <= len(a))})
    ends = [*starts[1:], len(a)]
    expected = [build(bdd, frozenset().union(*functions[s:e])) for s, e in zip(starts, ends, strict=True)]
    assert bdd.total(a, np.array(starts, np.int64)).tolist() == expected


@given(st.lists(DNF, max_size=4), SETS, ORDER)
def test_without_substitutes_false(functions, dead, order):
    bdd = in_order(order)
    a = column(*(build(bdd, f) for f in functions))
    expected = [build(bdd, frozenset(w for w in f if not w & dead)) for f in functions]
    assert bdd.without(a, np.array(sorted(dead), np.int64)).tolist() == expected
    assert bdd.without(a, np.array([99, 1 << 40])).tolist() == a.tolist()


@given(st.lists(DNF, max_size=4), ORDER)
def test_support_and_witnesses(functions, order):
    bdd = in_order(order)
    a = column(*(build(bdd, f) for f in functions))
    starts, tids = bdd.support(a)
    assert len(starts) == len(a) + 1
    for i, f in enumerate(functions):
        expected = minimal(truth(f))
        assert tids[starts[i] : starts[i + 1]].tolist() == sorted({v for w in expected for v in w})
        assert bdd.witnesses(int(a[i]), 99) == expected
        assert bdd.count(int(a[i])) == len(expected)
        some = bdd.witnesses(int(a[i]), 2)
        assert [len(w) for w in some] == [len(w) for w in expected[:2]]
        assert set(some) <= set(expected)


@given(st.lists(DNF, max_size=4), ORDER, ORDER)
def test_packed_functions_are_the_same_elsewhere(functions, order, other_order):
    here, there = in_order(order), in_order(other_order)
    names, data = here.pack(column(*(build(here, f) for f in functions)))
    assert there.unpack(names, data).tolist() == [build(there, f) for f in functions]
    renamed = there.unpack(names + 100, data)
    assert there.witnesses(int(there.total(renamed, column(0))[0]), 99) == [
        tuple(v + 100 for v in w) for w in minimal(truth(frozenset().union(*functions)))
    ]


@given(st.lists(DNF, min_size=1, max_size=4), st.data())
def test_torn_and_hostile_bytes_are_refused_or_are_functions(functions, data):
    bdd = Bdd()
    names, good = bdd.pack(column(*(build(bdd, f) for f in functions)))
    for end in range(len(good)):
        with pytest.raises(DataError):
            bdd.unpack(names, good[:end])
    with pytest.raises(DataError):
        bdd.unpack(names, good + b"\0")
    hostile = bytearray(good)
    for at in data.draw(st.lists(st.integers(0, len(good) - 1), max_size=3)):
        hostile[at] = data.draw(st.integers(0, 255))
    try:
        handles = bdd.unpack(names, bytes(hostile))
    except DataError:
        return
    assert all(0 <= h < bdd.used for h in handles)
    for handle in handles.tolist():  # whatever it is, it is monotone and canonical
        assert build(bdd, frozenset(frozenset(w) for w in bdd.witnesses(handle, 99))) == handle


def test_names_of_packed_functions_must_be_variables():
    bdd = Bdd()
    names, data = bdd.pack(bdd.of_tid(column(3)))
    for bad in (column(), column(1, 2), column(-1), column(1 << 31)):
        with pytest.raises(DataError):
            bdd.unpack(bad, data)
    assert names.tolist() == [3]


@given(st.lists(DNF, max_size=5), st.lists(DNF, max_size=5), ORDER)
def test_collection_keeps_what_roots_mention(kept, lost, order):
    bdd = in_order(order)
    a = column(*(build(bdd, f) for f in kept))
    for f in lost:
        build(bdd, f)
    nodes = bdd.count_nodes(a)
    a = bdd.collect(a)
    assert bdd.used == 2 + nodes == 2 + bdd.count_nodes(a)
    assert [table(bdd, h) for h in a.tolist()] == [truth(f) for f in kept]
    assert [build(bdd, f) for f in kept] == a.tolist()


@given(st.lists(DNF, max_size=5), ORDER)
def test_images(functions, order):
    bdd, other = in_order(order), Bdd()
    handles = [build(bdd, f) for f in functions]
    other.restore(bdd.image())
    assert [table(other, h) for h in handles] == [truth(f) for f in functions]
    assert [build(other, f) for f in functions] == handles
    image = bdd.image()
    image["nodes"] = np.concatenate([image["nodes"], [[0, 1, 1]]]).astype(np.int32)
    with pytest.raises(DataError):
        Bdd().restore(image)


@given(st.lists(DNF, min_size=1, max_size=4), ORDER)
def test_nodes_are_as_many_as_in_oxidd(functions, order):
    bdd, manager = in_order(order), BDDManager(10_000, 1_000, 1)
    manager.add_vars(VARIABLES)
    manager.set_var_order(order)
    for f in functions:
        expected = manager.false()
        for witness in f:
            term = manager.true()
            for v in witness:
                term &= manager.var(v)
            expected |= term
        a = column(build(bdd, f))
        terminals = 1 if not expected.satisfiable() or expected.valid() else 2
        assert bdd.count_nodes(a) == expected.node_count() - terminals
        assert bdd.sizes(a)[0] == bdd.nbytes(a) == bdd.count_nodes(a) * NODE_BYTES


@pytest.mark.parametrize("cache", [1, 16, 1 << 20])
def test_large_functions_are_as_large_as_in_oxidd(cache, monkeypatch):
    """30 random witnesses of 20 variables, with caches that forget nearly everything too."""
    monkeypatch.setattr("whence.annotate.bdd._CACHE", cache)
    random = np.random.default_rng(7)
    witnesses = [random.choice(20, 5, replace=False) for _ in range(30)]
    bdd, manager = Bdd(), BDDManager(1_000_000, 100_000, 1)
    manager.add_vars(20)
    p, expected, terms = bdd.of_tid(np.arange(20)), manager.false(), np.ones(30, np.int64)
    for i in range(5):
        terms = bdd.times(terms, p[[w[i] for w in witnesses]])
    for w in witnesses:
        term = manager.true()
        for v in w.tolist():
            term &= manager.var(v)
        expected |= term
    f = bdd.total(terms, column(0))
    assert bdd.count_nodes(f) == expected.node_count() - 2 > 1000
    assert bdd.implied(terms, np.repeat(f, 30)).all()
    assert not bdd.implied(np.repeat(f, 30), terms).any()
    assert bdd.witnesses(int(f[0]), 99) == sorted({tuple(sorted(w.tolist())) for w in witnesses})


def test_growing_from_the_smallest_room():
    """10 out of 20: 110 nodes, 184,756 minimal witnesses; built by recurrence, over many growths."""
    n, k = 20, 10
    bdd = Bdd()
    at_least = np.array([1] + [0] * k, np.int64)
    for p in bdd.of_tid(np.arange(n)):
        at_least[1:] = bdd.plus(at_least[1:], bdd.times(np.full(k, p), at_least[:-1]))
    assert bdd.count_nodes(at_least[-1:]) == k * (n - k + 1)
    assert bdd.count(int(at_least[-1])) == 184_756
    assert [len(set(w)) for w in bdd.witnesses(int(at_least[-1]), 3)] == [k] * 3


def test_a_limit_on_nodes_changes_nothing():
    """Pairs in the wrong order: 2^n nodes."""
    bdd = Bdd(limit=200)
    p = bdd.of_tid(np.arange(20))
    small = bdd.total(bdd.times(p[:4], p[10:14]), column(0))
    with pytest.raises(AnnotationTooLarge):
        bdd.total(bdd.times(p[:10], p[10:]), column(0))
    small = bdd.collect(small)
    assert bdd.count(int(small[0])) == 4
    assert bdd.used <= 202


def test_garbage_asks_to_be_collected():
    bdd = Bdd()
    p = bdd.of_tid(np.arange(100))
    assert not bdd.grown
    for i in range(40):
        bdd.times(p, np.roll(p, i))
    assert bdd.grown
    assert bdd.collect(p).tolist() == list(range(2, 102))
    assert not bdd.grown


def test_counts_beyond_words():
    """(p0 + p1)(p2 + p3)… with 80 factors has 2^80 minimal witnesses."""
    bdd = Bdd()
    p = bdd.of_tid(np.arange(160))
    pairs = bdd.plus(p[::2], p[1::2])
    product = pairs[:1]
    for pair in pairs[1:]:
        product = bdd.times(product, column(pair))
    assert bdd.count(int(product[0])) == 1 << 80
    assert [v // 2 for v in bdd.witnesses(int(product[0]), 1)[0]] == list(range(80))


FIGURE_7 = frozenset(map(frozenset, [(0, 1), (0, 2, 3), (4, 5), (6, 7, 5)]))


@pytest.mark.parametrize(("order", "nodes"), [(range(8), 9), ((0, 4, 6, 1, 2, 5, 7, 3), 18)])
def test_figure_8(order, nodes):
    bdd = in_order(list(order))
    assert bdd.count_nodes(column(build(bdd, FIGURE_7))) == nodes


def test_reordering_keeps_functions():
    """Figure 7 arrives breadth-first in labels, and its edges say what the depth-first order is."""
    bdd = Bdd(order=DepthFirst())
    arrival = column(0, 4, 6, 1, 2, 5, 7, 3)
    bdd.of_tid(arrival)
    f = build(bdd, FIGURE_7)
    assert bdd.count_nodes(column(f)) == 18
    ends = {0: (0, 1), 1: (1, 5), 2: (1, 2), 3: (2, 5), 4: (0, 3), 5: (3, 5), 6: (0, 4), 7: (4, 3)}
    tids = np.arange(8)
    bdd.place(tids, column(*(ends[t][0] for t in range(8))), column(*(ends[t][1] for t in range(8))))
    (g,) = bdd.reorder(column(f))
    assert bdd.count_nodes(column(g)) == 9
    assert bdd.witnesses(int(g), 9) == [(0, 1), (4, 5), (0, 2, 3), (5, 6, 7)]
    assert build(bdd, FIGURE_7) == g
