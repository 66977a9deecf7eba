"""Lineage against Python's own sets: every encoding, random sequences, windows and sources, nested; and its hulls."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import examples
from whence.annotate.covering import Covering
from whence.annotate.kernels import tid_runs
from whence.annotate.lineage import ENCODINGS, Lineage
from whence.model.record import KernelRecord

SOURCES = ("reading", "other", "third")
MODES = (*ENCODINGS, "all of them", "deltas on intervals")
Set = frozenset[tuple[str, int]]


@st.composite
def sequences(draw: st.DrawFn) -> list[Set]:
    """Singletons of one or several sources, mostly in order, some of them blank."""
    sources = draw(st.sampled_from([SOURCES[:1], SOURCES[:1], SOURCES]))
    steps = draw(st.lists(st.sampled_from([1, 1, 1, 1, 2, 3, 0, -2, 40]), min_size=1, max_size=40))
    blanks = draw(st.booleans())
    rows, tid = [], dict.fromkeys(sources, 50)
    for number, step in enumerate(steps):
        source = sources[draw(st.integers(0, len(sources) - 1))]
        tid[source] = max(1, tid[source] + step)
        rows.append(frozenset() if blanks and number % 5 == 4 else frozenset({(source, tid[source])}))
    return rows


@st.composite
def windows(draw: st.DrawFn, rows: int) -> tuple[list[int], list[int]]:
    """Windows that slide over one or two groups of rows; the last of a group may be short, and one may be empty."""
    cut = draw(st.sampled_from([rows, rows, rows // 2]))
    size, every = draw(st.integers(1, 12)), draw(st.integers(1, 5))
    landmark = draw(st.sampled_from([False, False, False, True]))
    starts, ends = [], []
    for first, last in ((0, cut), (cut, rows)):
        for start in range(first, last, every):
            starts.append(first if landmark else start)
            ends.append(min(last, start + size))
    if draw(st.sampled_from([False, False, True])):
        starts, ends = [*starts, rows], [*ends, rows]
    return starts, ends


def tracing(mode: str) -> Lineage:
    """Lineage in an encoding; in the last two modes the adaptive one, with dictionaries of sets that are not large, and
    with deltas on intervals wherever they can be."""
    lineage = Lineage(SOURCES, mode if mode in ENCODINGS else "adaptive")
    if mode not in ENCODINGS:
        lineage.large = 6
    if mode == "deltas on intervals":
        lineage.gain = 0
    return lineage


def annotated(tracer: Lineage | Covering, rows: list[Set]) -> np.ndarray:
    column = tracer.blank(len(rows))
    for number, row in enumerate(rows):
        for source, tid in row:
            column[number] = tracer.generate(source, np.array([tid], np.int64))[0]
    return column


def sets(lineage: Lineage, a: np.ndarray) -> list[Set]:
    found: list[set[tuple[str, int]]] = [set() for _ in a]
    for source in lineage.sources:
        offsets, tids = lineage.tids(a, source)
        for row in range(len(a)):
            mine = tids[offsets[row] : offsets[row + 1]].tolist()
            assert mine == sorted(set(mine))
            found[row] |= {(source, tid) for tid in mine}
    return [frozenset(row) for row in found]


def union(rows: list[Set]) -> Set:
    return frozenset().union(*rows)


def numbers(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize("encoding", MODES)
@settings(max_examples=examples(100))
@given(data=st.data())
def test_windows_of_windows_are_unions_of_unions(encoding: str, data: st.DataObject) -> None:
    lineage, covering = tracing(encoding), Covering(SOURCES)
    rows = data.draw(sequences())
    a, hulls = annotated(lineage, rows), annotated(covering, rows)
    for _ in range(data.draw(st.integers(1, 4))):
        starts, ends = data.draw(windows(len(rows)))
        a = lineage.over(a, numbers(starts), numbers(ends))
        hulls = covering.over(hulls, numbers(starts), numbers(ends))
        rows = [union(rows[start:end]) for start, end in zip(starts, ends, strict=True)]
        assert sets(lineage, a) == rows
        for source in SOURCES:
            assert lineage.spans(a, source).tolist() == covering.spans(hulls, source).tolist()
        if data.draw(st.booleans()):  # a filter, or a sort
            order = data.draw(st.sampled_from([1, -1, 2, 3]))
            a, hulls, rows = a[::order], hulls[::order], rows[::order]
        if data.draw(st.booleans()):
            a = a.copy()
            lineage.collect([a, a[:1]])
    tid = data.draw(st.sampled_from(sorted(union(rows)) or [("reading", 1)]))
    assert lineage.contains(a, *tid).tolist() == [tid in row for row in rows]


@pytest.mark.parametrize("encoding", MODES)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_paths_may_take_turns(encoding: str, data: st.DataObject) -> None:
    """Averages of each of some paths, two of which may have the same rows, as they come in any order of the paths; also
    of more paths than a window has strands."""
    lineage = tracing(encoding)
    paths = data.draw(st.sampled_from([1, 2, 2, 2, 3, 4, 11]))
    size = data.draw(st.sampled_from([2, 5, 20, 24]))
    random = data.draw(st.randoms(use_true_random=False))
    columns, truth = [], []
    for path in range(paths):
        every = data.draw(st.sampled_from([1, paths, paths]))  # all paths have ids of their own, or some share theirs
        shift = data.draw(st.sampled_from([0, 0, 60]))
        if path == 0 or data.draw(st.sampled_from([True, True, False])):
            tids = np.cumsum([every * random.choice([1, 1, 1, 2]) for _ in range(size + 12)]) + path + shift
        own, starts = data.draw(st.sampled_from([size, size, size // 2 + 1])), np.arange(12)
        columns.append(lineage.over(lineage.generate("reading", tids), starts, starts + own))
        truth.append([frozenset(("reading", tid) for tid in tids[at : at + own].tolist()) for at in starts])
    turns = [path for path in range(paths) for _ in truth[path]]
    if data.draw(st.booleans()):
        turns = [path for _ in truth[0] for path in range(paths)]
    else:
        random.shuffle(turns)
    seen, handles, rows = [0] * paths, [], []
    for path in turns:
        handles.append(columns[path][seen[path]])
        rows.append(truth[path][seen[path]])
        seen[path] += 1
    a = numbers(handles)
    for _ in range(2):
        starts, ends = data.draw(windows(len(rows)))
        a = lineage.over(a, numbers(starts), numbers(ends))
        rows = [union(rows[start:end]) for start, end in zip(starts, ends, strict=True)]
        assert sets(lineage, a) == rows


@pytest.mark.parametrize("encoding", MODES)
@settings(max_examples=examples(50))
@given(data=st.data())
def test_a_sequence_may_come_in_pieces(encoding: str, data: st.DataObject) -> None:
    """Windows of an endless sequence, a few a call, with what nobody holds collected in between."""
    lineage = tracing(encoding)
    rows = data.draw(sequences())
    size = data.draw(st.integers(2, 9))
    held, expected = lineage.blank(0), []
    a = annotated(lineage, rows)
    start = 0
    while start + size <= len(rows):
        count = min(data.draw(st.integers(1, 3)), len(rows) - size - start + 1)
        starts = np.arange(count, dtype=np.int64)
        made = lineage.over(a[start : start + count + size - 1], starts, starts + size)
        held = np.concatenate((held, made))
        expected += [union(rows[at : at + size]) for at in range(start, start + count)]
        start += count
        if data.draw(st.sampled_from([False, False, True])):
            lineage.collect([held])
    assert sets(lineage, held) == expected


@pytest.mark.parametrize("encoding", MODES)
@settings(max_examples=examples(50))
@given(data=st.data())
def test_times_is_union(encoding: str, data: st.DataObject) -> None:
    """Commutative, associative, idempotent, with the blank set as one; of lineage and of its hulls."""
    lineage, covering = tracing(encoding), Covering(SOURCES)
    columns, hulls, truth = [], [], []
    for _ in range(3):
        rows = data.draw(sequences())
        starts, ends = data.draw(windows(len(rows)))
        columns.append(lineage.over(annotated(lineage, rows), numbers(starts), numbers(ends)))
        hulls.append(covering.over(annotated(covering, rows), numbers(starts), numbers(ends)))
        truth.append([union(rows[start:end]) for start, end in zip(starts, ends, strict=True)])
    n = min(map(len, truth))
    (a, b, c), (x, y, z) = (column[:n] for column in columns), (column[:n] for column in hulls)
    expected = [left | right for left, right in zip(truth[0][:n], truth[1][:n], strict=True)]
    assert sets(lineage, lineage.times(a, b)) == expected
    assert sets(lineage, lineage.times(b, a)) == expected
    assert sets(lineage, lineage.times(a, a)) == sets(lineage, lineage.times(a, lineage.blank(n))) == truth[0][:n]
    left, right = lineage.times(lineage.times(a, b), c), lineage.times(a, lineage.times(b, c))
    assert sets(lineage, left) == sets(lineage, right)
    cover = covering.times(covering.times(x, y), z)
    assert cover.tolist() == covering.times(x, covering.times(z, y)).tolist()
    assert covering.times(x, x).tolist() == covering.times(x, covering.blank(n)).tolist() == x.tolist()
    for source in SOURCES:
        assert lineage.spans(left, source).tolist() == covering.spans(cover, source).tolist()


@pytest.mark.parametrize("encoding", MODES)
@settings(max_examples=examples(50))
@given(data=st.data())
def test_an_image_holds_all_there_is(encoding: str, data: st.DataObject) -> None:
    """Also where sources have other numbers, and other sets are there already."""
    lineage, other = tracing(encoding), Lineage(("more", *reversed(SOURCES)))
    rows = data.draw(sequences())
    a = annotated(lineage, rows)
    other.over(other.generate("more", np.arange(1, 9)), np.arange(4), np.arange(4) + 4)
    for _ in range(2):
        starts, ends = data.draw(windows(len(rows)))
        a = lineage.over(a, numbers(starts), numbers(ends))
        rows = [union(rows[start:end]) for start, end in zip(starts, ends, strict=True)]
        b = other.restore(lineage.image(a))
        assert sets(other, b) == rows
    wide = [union(rows)]
    assert sets(other, other.over(b, np.zeros(1, np.int64), numbers([len(b)]))) == wide


def laid_out(lineage: Lineage, a: np.ndarray) -> KernelRecord | None:
    """Lay out the runs of a sequence of sets; None if there are hardly any."""
    unions = KernelRecord(tid_runs.UNIONS, a=a)
    return unions if lineage._lay(unions, 2) else None


@pytest.mark.parametrize("mode", ["ids", "intervals"])
def test_sets_of_windows_that_slide_on_are_slices_of_one_list(mode: str):
    """What keeps windows over windows cheap: none of them is put together from pieces."""
    lineage = Lineage(SOURCES, mode)
    ids = lineage.generate("reading", np.cumsum(np.tile(np.array([1, 1, 3, 1, 7]), 8)))
    starts = np.arange(0, 30, 2)
    sets = lineage.over(ids, starts, starts + 9)
    runs = laid_out(lineage, sets)
    assert runs is not None
    assert runs.run[runs.tail_at[-1]] == 0
    other = sets[[0, 2, 1]]  # one that begins before the one before it begins another list
    runs = laid_out(lineage, other)
    assert runs is not None
    assert runs.run[runs.tail_at].tolist() == [0, 0, 1]


def test_sets_of_paths_that_take_turns_are_not_laid_out():
    """Each would be a run, with all it has."""
    lineage = Lineage(SOURCES)
    starts = np.arange(30)
    odd, even = (
        lineage.over(lineage.generate("reading", 2 * np.arange(60) + at), starts, starts + 30) for at in (1, 2)
    )
    turns = np.column_stack((odd, even)).reshape(-1)
    assert laid_out(lineage, odd) is not None
    assert laid_out(lineage, turns) is None
    assert set(lineage.kinds(lineage.over(turns, 2 * starts, 2 * starts + 2))) == {"intervals"}


@pytest.mark.parametrize("encoding", MODES)
def test_a_set_that_ends_before_the_one_before_it_is_of_another_path(encoding: str):
    """Even if both are deltas of one full set: the longer one may leave the window first."""
    lineage = tracing(encoding)
    tids = 2 * np.arange(60) + 1
    rows = lineage.over(lineage.generate("reading", tids), numbers([0, 1, 2, 3]), numbers([20, 21, 12, 23]))
    rows = np.concatenate((rows[1:3], lineage.generate("reading", tids[:1])))
    found = lineage.over(rows, numbers([0, 1]), numbers([2, 3]))
    offsets, got = lineage.tids(found, "reading")
    assert got[: offsets[1]].tolist() == tids[1:21].tolist()
    assert got[offsets[1] :].tolist() == [1, *tids[2:12].tolist()]
