"""The laws of absorption provenance against truth tables, in all its representations."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, zip_longest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.annotate.truth import (
    VARIABLES,
    Dnf,
    build,
    column,
    columns,
    dnfs,
    minimal,
    read,
    table,
    threshold,
)
from whence.annotate import AnnotationTooLarge, Provenance
from whence.annotate.absorption import Absorption
from whence.annotate.witnesses import Witnesses
from whence.model.codes import Codes
from whence.model.errors import DataError, EvaluationError

Make = Callable[[], Provenance]


def _diagram() -> Absorption:
    return Absorption("bdd")


def _switched() -> Absorption:
    algebra = Absorption()
    algebra.switch(column())
    return algebra


ALGEBRAS = pytest.mark.parametrize("make", [Witnesses, Absorption, _diagram, _switched])


@ALGEBRAS
@given(dnfs)
def test_a_function_is_its_minimal_witnesses(make: Make, dnf: Dnf) -> None:
    algebra = make()
    handle = build(algebra, dnf)
    expected = minimal(table(dnf))
    assert algebra.witnesses(handle, 1000) == expected
    first = algebra.witnesses(handle, 2)
    assert [len(w) for w in first] == [len(w) for w in expected[:2]]
    assert set(first) <= set(expected)
    assert algebra.count(handle) == len(expected)
    assert (handle != 0) == any(table(dnf))


@ALGEBRAS
@given(columns)
def test_equal_functions_have_equal_handles(make: Make, dnfs: list[Dnf]) -> None:
    algebra = make()
    handles = [build(algebra, dnf) for dnf in dnfs]
    assert (build(algebra, []), build(algebra, [[]])) == (0, 1)
    for f, x in zip(dnfs, handles, strict=True):
        for g, y in zip(dnfs, handles, strict=True):
            assert (x == y) == (table(f) == table(g))


@ALGEBRAS
@given(st.lists(st.tuples(dnfs, dnfs), min_size=1, max_size=6))
def test_plus_times_and_implied_are_or_and_and_implication(make: Make, pairs: list[tuple[Dnf, Dnf]]) -> None:
    algebra = make()
    a = column(*(build(algebra, f) for f, _ in pairs))
    b = column(*(build(algebra, g) for _, g in pairs))
    tables = [(table(f), table(g)) for f, g in pairs]
    for operation, meaning in ((algebra.plus, np.logical_or), (algebra.times, np.logical_and)):
        result = operation(a, b)
        assert [read(algebra, int(h)) for h in result] == [tuple(meaning(f, g)) for f, g in tables]
        assert result.tolist() == operation(b, a).tolist()
    assert algebra.implied(a, b).tolist() == [int(np.less_equal(f, g).all()) for f, g in tables]
    assert algebra.plus(a, algebra.times(a, b)).tolist() == a.tolist()
    assert algebra.times(a, algebra.plus(a, b)).tolist() == a.tolist()


@ALGEBRAS
@given(dnfs, dnfs, dnfs)
def test_associative_and_distributive(make: Make, f: Dnf, g: Dnf, h: Dnf) -> None:
    algebra = make()
    a, b, c = (column(build(algebra, x)) for x in (f, g, h))
    plus, times = algebra.plus, algebra.times
    assert plus(a, plus(b, c)) == plus(plus(a, b), c)
    assert times(a, times(b, c)) == times(times(a, b), c)
    assert times(a, plus(b, c)) == plus(times(a, b), times(a, c))
    assert plus(a, times(b, c)) == times(plus(a, b), plus(a, c))


@ALGEBRAS
@given(columns, st.sets(st.integers(1, 5)))
def test_total_is_plus_over_runs(make: Make, dnfs: list[Dnf], cuts: set[int]) -> None:
    algebra = make()
    handles = column(*(build(algebra, f) for f in dnfs))
    starts = [0, *sorted(c for c in cuts if c < len(dnfs))]
    runs = [list(chain(*dnfs[s:e])) for s, e in zip(starts, [*starts[1:], len(dnfs)], strict=True)]
    assert algebra.total(handles, column(*starts)).tolist() == [build(algebra, run) for run in runs]


@ALGEBRAS
@given(columns, st.sets(st.sampled_from((*VARIABLES, 1000))))
def test_without_substitutes_false(make: Make, dnfs: list[Dnf], dead: set[int]) -> None:
    algebra = make()
    handles = column(*(build(algebra, f) for f in dnfs))
    expected = [build(algebra, [term for term in f if dead.isdisjoint(term)]) for f in dnfs]
    assert algebra.without(handles, column(*sorted(dead))).tolist() == expected


@ALGEBRAS
@given(columns)
def test_support_is_what_the_function_depends_on(make: Make, dnfs: list[Dnf]) -> None:
    algebra = make()
    starts, tids = algebra.support(column(*(build(algebra, f) for f in dnfs)))
    assert starts[-1] == len(tids)
    for i, f in enumerate(dnfs):
        expected = sorted({v for witness in minimal(table(f)) for v in witness})
        assert sorted(tids[starts[i] : starts[i + 1]].tolist()) == expected


@ALGEBRAS
@given(columns, st.permutations(VARIABLES))
def test_packed_functions_are_read_elsewhere_by_their_names(make: Make, dnfs: list[Dnf], renaming: list[int]) -> None:
    algebra, other = make(), make()
    other.of_tid(column(*range(40, 60)))
    handles = column(*(build(algebra, f) for f in dnfs))
    names, data = algebra.pack(handles)
    renamed = dict(zip(VARIABLES, renaming, strict=True))
    received = other.unpack(column(*(renamed[v] for v in names.tolist())), data)
    assert received.tolist() == [build(other, [[renamed[v] for v in term] for term in f]) for f in dnfs]
    assert algebra.unpack(names, data).tolist() == handles.tolist()


@ALGEBRAS
@given(columns, columns)
def test_collection_keeps_what_is_asked_for(make: Make, kept: list[Dnf], dropped: list[Dnf]) -> None:
    algebra = make()
    for f, g in zip_longest(dropped, kept, fillvalue=[]):
        build(algebra, f), build(algebra, g)
    roots = algebra.collect(column(0, 1, *(build(algebra, f) for f in kept)))
    assert roots[:2].tolist() == [0, 1]
    assert [read(algebra, int(h)) for h in roots[2:]] == [table(f) for f in kept]
    assert [build(algebra, f) for f in kept] == roots[2:].tolist()
    before = algebra.nbytes(roots)
    assert before <= algebra.nbytes(column(*roots, *(build(algebra, f) for f in dropped)))


@ALGEBRAS
@given(columns)
def test_an_image_is_the_whole_algebra(make: Make, dnfs: list[Dnf]) -> None:
    algebra, again = make(), make()
    handles = [build(algebra, f) for f in dnfs]
    again.restore(algebra.image())
    assert [read(again, h) for h in handles] == [table(f) for f in dnfs]
    assert [build(again, f) for f in dnfs] == handles


@ALGEBRAS
@given(columns, st.data())
def test_torn_bytes_are_refused(make: Make, dnfs: list[Dnf], data: st.DataObject) -> None:
    algebra = make()
    names, packed = algebra.pack(column(*(build(algebra, f) for f in dnfs)))
    for end in range(len(packed)):
        with pytest.raises(DataError):
            algebra.unpack(names, packed[:end])
    hostile = bytearray(packed)
    for _ in range(3):
        hostile[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    try:
        handles = _followed(algebra, names, bytes(hostile))
    except DataError:
        return
    for handle in handles.tolist():  # other bytes than were sent, but a function all the same
        assert build(algebra, [list(w) for w in algebra.witnesses(handle, 1000)]) == handle


def _followed(algebra: Provenance, names: Codes, data: bytes) -> Codes:
    """The functions of bytes, as who receives them reads them: bytes of diagrams make one of him, too."""
    try:
        return algebra.unpack(names, data)
    except AnnotationTooLarge:
        algebra.switch(column())
        return algebra.unpack(names, data)


@pytest.mark.parametrize("data", [b"", b"\xff" * 20, b"\xff\xff\xff\xff\x0f", b"\x01\x02\xff\xff\xff\xff\x0f"])
def test_hostile_counts_allocate_nothing(data: bytes) -> None:
    with pytest.raises(DataError):
        Witnesses().unpack(column(), data)


def test_a_function_with_too_many_witnesses_changes_nothing() -> None:
    algebra = Witnesses(limit=20)
    pairs = threshold(algebra, range(6), 2)  # 15 witnesses
    with pytest.raises(AnnotationTooLarge, match="20 minimal witnesses"):
        algebra.plus(column(pairs, pairs), column(0, threshold(algebra, range(10, 16), 2)))
    assert algebra.count(pairs) == 15
    assert threshold(algebra, range(6), 3)  # exactly 20
    with pytest.raises(AnnotationTooLarge):
        threshold(Witnesses(longest=3), range(4), 4)


def test_absorbed_candidates_do_not_count_against_the_limit() -> None:
    algebra = Witnesses(limit=6)
    pairs = column(threshold(algebra, range(4), 2))
    singles = column(threshold(algebra, range(4), 1))
    assert algebra.times(pairs, singles) == pairs


def test_variables_are_small_numbers() -> None:
    for bad in (-1, 1 << 31):
        with pytest.raises(EvaluationError, match=str(bad)):
            Witnesses().of_tid(column(bad))


def test_garbage_is_noticed() -> None:
    algebra = Witnesses()
    assert not algebra.grown
    tids = np.arange(40_000, dtype=np.int64)
    algebra.times(algebra.of_tid(tids), algebra.of_tid(tids[::-1].copy()))
    assert algebra.grown
    algebra.collect(column())
    assert not algebra.grown


FIGURE_2 = {  # the final step: minimal witnesses of the nine rows
    "AA": [(1, 2, 3)],
    "AB": [(1,)],
    "AC": [(1, 2)],
    "BA": [(2, 3)],
    "BB": [(2, 4), (1, 2, 3)],
    "BC": [(2,)],
    "CA": [(3,)],
    "CB": [(4,), (1, 3)],
    "CC": [(2, 4), (1, 2, 3)],
}


@ALGEBRAS
def test_provenance_of_a_small_network(make: Make) -> None:
    """Paper 000, Figure 2: the links A-B, B-C, C-A and C-B are p1 to p4. Without C-B no row is lost."""
    algebra = make()
    links = dict(zip(("AB", "BC", "CA", "CB"), algebra.of_tid(column(1, 2, 3, 4)).tolist(), strict=True))
    rows, before = dict(links), {}
    while rows != before:
        before = dict(rows)
        for link, p in links.items():
            for row, found in before.items():
                if link[1] == row[0]:
                    joined = algebra.times(column(p), column(found))
                    head = link[0] + row[1]
                    rows[head] = int(algebra.plus(column(rows.get(head, 0)), joined)[0])
    assert {row: algebra.witnesses(handle, 9) for row, handle in rows.items()} == FIGURE_2
    left = algebra.without(column(*rows.values()), column(4)).tolist()
    expected = {row: [w for w in found if 4 not in w] for row, found in FIGURE_2.items()}
    assert {row: algebra.witnesses(handle, 9) for row, handle in zip(rows, left, strict=True)} == expected
    assert all(left)
