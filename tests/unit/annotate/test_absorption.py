"""Absorption changes its representation and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.annotate.truth import Dnf, build, column, columns, minimal, read, table, threshold
from whence.annotate import AnnotationTooLarge
from whence.annotate.absorption import Absorption
from whence.model.codes import NULL
from whence.model.errors import DataError, EvaluationError


@given(columns, st.integers(0, 2))
def test_a_switch_keeps_what_functions_mean(dnfs: list[Dnf], repeated: int) -> None:
    algebra = Absorption()
    handles = [build(algebra, f) for f in dnfs]
    roots = column(0, 1, *handles, *handles[:repeated])
    moved = algebra.switch(roots)
    assert algebra.form == "bdd"
    assert moved[:2].tolist() == [0, 1]
    assert [build(algebra, f) for f in dnfs] == moved[2 : 2 + len(dnfs)].tolist()
    assert [algebra.witnesses(h, 1000) for h in moved[2:].tolist()] == [
        minimal(table(f)) for f in (*dnfs, *dnfs[:repeated])
    ]
    assert algebra.switch(moved) is moved


@given(columns, st.booleans(), st.booleans())
def test_representations_read_each_other(dnfs: list[Dnf], mine: bool, theirs: bool) -> None:
    sender, receiver = Absorption(), Absorption()
    if mine:
        sender.switch(column())
    if theirs:
        receiver.switch(column())
    names, data = sender.pack(column(*(build(sender, f) for f in dnfs)))
    if mine and not theirs:
        with pytest.raises(AnnotationTooLarge):
            receiver.unpack(names, data)
        receiver.switch(column())
    assert [read(receiver, int(h)) for h in receiver.unpack(names, data)] == [table(f) for f in dnfs]


@given(columns, st.booleans())
def test_an_image_has_its_representation(dnfs: list[Dnf], switched: bool) -> None:
    algebra, again = Absorption(), Absorption()
    if switched:
        algebra.switch(column())
    algebra.place(column(3, 8), column(1, 2), column(2, NULL))
    handles = column(*(build(algebra, f) for f in dnfs))
    again.restore(algebra.image())
    assert again.form == algebra.form
    assert [read(again, int(h)) for h in handles] == [table(f) for f in dnfs]
    assert read(again, int(again.switch(handles)[0])) == table(dnfs[0])


def test_a_function_too_large_is_told_before_anything_changes() -> None:
    algebra = Absorption(limit=10)
    pairs = column(threshold(algebra, range(5), 2))
    more = column(threshold(algebra, range(10, 14), 2))
    with pytest.raises(AnnotationTooLarge):
        algebra.plus(pairs, more)
    assert algebra.form == "witnesses"
    assert algebra.count(int(pairs[0])) == 10
    pairs, more = algebra.switch(np.concatenate([pairs, more])).reshape(2, 1)
    assert algebra.count(int(algebra.plus(pairs, more)[0])) == 16
    assert algebra.count(int(algebra.times(pairs, more)[0])) == 60


def test_a_long_witness_is_reason_to_switch() -> None:
    with pytest.raises(AnnotationTooLarge):
        build(Absorption(), [list(range(300))])
    for fixed in (Absorption("witnesses"), Absorption("bdd")):
        assert fixed.witnesses(build(fixed, [list(range(300))]), 1) == [tuple(range(300))]


def test_a_fixed_representation_says_what_to_do() -> None:
    algebra = Absorption("witnesses", limit=10)
    with pytest.raises(EvaluationError, match="more than 10 minimal witnesses; use provenance = 'bdd'"):
        threshold(algebra, range(6), 2)
    with pytest.raises(EvaluationError, match="one of auto, witnesses, bdd, not 'zdd'"):
        Absorption("zdd")


def test_places_told_before_a_switch_count_after_it() -> None:
    """Variables arrive in another order than that of the path they are on; the diagram follows the path."""
    path = np.random.default_rng(5).permutation(12)
    before, after = Absorption(), Absorption("bdd")
    for algebra in (before, after):
        algebra.place(path, path, path + 1)
        algebra.place(column(50), column(1), column(2))
        algebra.lose(column(50))
    rows = [[list(range(i, j)) for i in (0, 3)] for j in range(4, 12)]
    roots = before.switch(column(*(build(before, f) for f in rows)))
    assert before.nbytes(roots) == after.nbytes(column(*(build(after, f) for f in rows)))


def test_collection_puts_a_diagram_in_order_when_that_is_due() -> None:
    algebra = Absorption("bdd")
    edges = np.random.default_rng(7).permutation(200)
    pairs = np.zeros(0, np.int64)
    for edge in edges.tolist():  # a path that becomes one piece by piece
        algebra.place(column(edge), column(edge), column(edge + 1))
        pairs = np.append(pairs, algebra.of_tid(column(edge)))
    rows = column(*(build(algebra, [list(range(i, i + 3)), list(range(i, i + 9))]) for i in range(100)))
    assert algebra.grown
    for handle, i in zip(algebra.collect(rows).tolist(), range(100), strict=True):
        assert algebra.witnesses(handle, 9) == [tuple(range(i, i + 3))]


@pytest.mark.parametrize("data", [b"", b"\x07", b"\x00", b"\x01", b"\x00\xff\xff\xff\xff\x0f", b"\x01\xff\xff\xff\xff"])
@pytest.mark.parametrize("form", ["witnesses", "bdd"])
def test_bytes_nobody_packed_are_refused(form: str, data: bytes) -> None:
    algebra = Absorption(form)
    if data[:1] == b"\x01" and form == "witnesses":
        with pytest.raises(EvaluationError, match="decision diagrams"):
            algebra.unpack(column(), data)
    else:
        with pytest.raises(DataError):
            algebra.unpack(column(), data)
