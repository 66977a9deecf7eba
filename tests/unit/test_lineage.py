"""Lineage: how sets are stored in each encoding, when a delta restarts, and what collecting keeps."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from whence.annotate.lineage import ENCODINGS, Lineage
from whence.model.errors import DataError, EvaluationError


def numbers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def slide(lineage: Lineage, a: np.ndarray, size: int, every: int = 1) -> np.ndarray:
    starts = np.arange(0, len(a) - size + 1, every, dtype=np.int64)
    return lineage.over(a, starts, starts + size)


def sets(lineage: Lineage, a: np.ndarray, source: str = "s") -> list[list[int]]:
    offsets, tids = lineage.tids(a, source)
    return [tids[offsets[i] : offsets[i + 1]].tolist() for i in range(len(a))]


@pytest.mark.parametrize(
    ("encoding", "shown", "kinds", "sizes"),
    [
        ("ids", ["{1, 2, 3, 4}", "{2, 3, 4, 6}", "{3, 4, 6, 7}"], ["ids"] * 3, [32, 32, 32]),
        ("intervals", ["{[1, 4]}", "{[2, 4], [6, 6]}", "{[3, 4], [6, 7]}"], ["intervals"] * 3, [16, 32, 32]),
        ("deltas", ["0: {1, 2, 3, 4}", "3: {6}", "2: {6, 7}"], ["ids", "delta", "delta"], [32, 16, 24]),
    ],
)
def test_figure_9(encoding: str, shown: list[str], kinds: list[str], sizes: list[int]) -> None:
    """Paper 001, Figure 9(b): averages of four sliding by one; tuple 5 was filtered out."""
    lineage = Lineage(("s",), encoding)
    a = slide(lineage, lineage.generate("s", numbers(1, 2, 3, 4, 6, 7)), 4)
    assert [lineage.shown(handle) for handle in a] == shown
    assert lineage.kinds(a) == kinds
    assert lineage.sizes(a).tolist() == sizes
    assert sets(lineage, a) == [[1, 2, 3, 4], [2, 3, 4, 6], [3, 4, 6, 7]]


def test_figure_9_by_dictionary() -> None:
    lineage = Lineage(("s",), "dictionary")
    a = slide(lineage, lineage.generate("s", numbers(1, 2, 3, 4, 6, 7)), 4)
    assert lineage.kinds(a) == ["dictionary"] * 3
    assert all(lineage.shown(handle).startswith("4 ids in ") for handle in a)
    assert sets(lineage, a) == [[1, 2, 3, 4], [2, 3, 4, 6], [3, 4, 6, 7]]


def test_a_single_row_needs_no_set() -> None:
    lineage = Lineage(("s", "t"))
    a = lineage.generate("t", numbers(5, 6))
    assert lineage.kinds(lineage.over(a, numbers(0, 1, 2), numbers(1, 2, 2))) == ["single", "single", "empty"]
    assert [lineage.shown(handle) for handle in (*a, 0)] == ["t: {5}", "t: {6}", "{}"]


def test_deltas_restart_when_half_is_new() -> None:
    lineage = Lineage(("s",), "deltas")
    a = slide(lineage, lineage.generate("s", np.arange(1, 11)), 4)
    assert [lineage.shown(handle) for handle in a] == [
        "0: {1, 2, 3, 4}", "3: {5}", "2: {5, 6}", "0: {4, 5, 6, 7}", "3: {8}", "2: {8, 9}", "0: {7, 8, 9, 10}",
    ]  # fmt: skip


def test_the_adaptive_choice() -> None:
    lineage = Lineage(("s",))
    tids = np.flatnonzero(np.random.default_rng(7).random(8000) < 0.5) + 1
    dense, sparse = lineage.generate("s", np.arange(1, 4000)), lineage.generate("s", tids)
    assert set(lineage.kinds(slide(lineage, dense, 100, 100))) == {"intervals"}
    assert set(lineage.kinds(slide(lineage, dense, 100))) == {"intervals"}
    sliding = lineage.kinds(slide(lineage, sparse, 100))
    assert set(sliding) == {"ids", "delta"}
    assert sliding.count("ids") <= len(sliding) // 50 + 1
    odd = lineage.generate("s", np.arange(1, 8000, 2))
    assert set(lineage.kinds(slide(lineage, odd, 100, 100))) == {"ids"}
    bursts = lineage.generate("s", np.flatnonzero(np.arange(8000) % 10) + 1)
    assert set(lineage.kinds(slide(lineage, bursts, 100, 100))) == {"intervals"}
    large = slide(lineage, odd, 1000, 1000)
    assert lineage.kinds(large) == ["dictionary"] * 4
    assert lineage.sizes(large).max() < 400
    assert sets(lineage, large)[1] == list(range(2001, 4001, 2))
    assert sets(lineage, slide(lineage, large, 2))[0] == list(range(1, 4001, 2))


def test_figure_9_by_deltas_on_intervals() -> None:
    """The runs [1, 4] and [6, 7], cut where a window begins or ends: each window is a slice of the pieces."""
    lineage = Lineage(("s",))
    lineage.gain = 0  # however little it saves
    a = slide(lineage, lineage.generate("s", numbers(1, 2, 3, 4, 6, 7)), 4)
    assert [lineage.shown(handle) for handle in a] == [
        "{[1, 1], [2, 2], [3, 4]}",
        "2: {[6, 6]}",
        "1: {[6, 6], [7, 7]}",
    ]
    assert lineage.kinds(a) == ["intervals", "delta on intervals", "delta on intervals"]
    assert lineage.sizes(a).tolist() == [48, 24, 40]
    a = a[1:].copy()
    lineage.collect([a])  # the full set stays, as far as it is needed
    assert sets(lineage, a) == [[2, 3, 4, 6], [3, 4, 6, 7]]
    assert sets(lineage, slide(lineage, a, 2)) == [[2, 3, 4, 6, 7]]


@pytest.mark.parametrize(
    ("percent", "size", "every", "saved"), [(95, 100, 10, 2.5), (95, 1000, 100, 8), (99, 1000, 10, 3)]
)
def test_deltas_on_intervals_are_chosen_where_they_save_most(percent: int, size: int, every: int, saved: float) -> None:
    """Windows that overlap, over long runs of tids; `saved` is how many times less they take than without them."""
    tids = np.flatnonzero(np.random.default_rng(3).random(50_000) < percent / 100) + 1
    taken, found = [], []
    for gain in (Lineage.gain, 1 << 40):
        lineage = Lineage(("s",))
        lineage.gain = gain
        made = slide(lineage, lineage.generate("s", tids), size, every)
        found.append(sets(lineage, made[::50]))
        lineage.collect([made])
        taken.append(lineage._words)
        if gain == Lineage.gain:
            kinds = lineage.kinds(made)
            assert kinds.count("delta on intervals") > 0.85 * len(kinds)
    assert found[0] == found[1]
    assert taken[1] > saved * taken[0]


def test_damaged_deltas_on_intervals_are_refused() -> None:
    lineage = Lineage(("s",))
    lineage.gain = 0
    image = lineage.image(slide(lineage, lineage.generate("s", numbers(1, 2, 3, 4, 6, 7, 9)), 4))
    assert sets(lineage, lineage.restore(image))[-1] == [4, 6, 7, 9]
    for row, column, value in ((1, 3, 2), (1, 0, 1), (1, 1, 3), (2, 0, 99), (0, 3, 1), (1, 2, 2), (3, 3, -2)):
        sets_ = image["sets"].copy()
        sets_[row, column] = value
        with pytest.raises(DataError, match="not as they were written"):
            lineage.restore({**image, "sets": sets_})


@pytest.mark.parametrize("encoding", ["deltas", "adaptive"])
def test_arrivals_one_by_one_make_deltas_too(encoding: str) -> None:
    """A window is a delta against a full set of an earlier call; each group finds its own."""
    lineage, keys = Lineage(("s",), encoding), 20
    tids = np.arange(1, 200 * keys + 1).reshape(200, keys).T
    starts = np.arange(keys) * 50
    kinds: list[str] = []
    for at in range(150):
        rows = lineage.generate("s", tids[:, at : at + 50].reshape(-1))
        made = lineage.over(rows, starts, starts + 50)
        kinds += lineage.kinds(made)
        assert sets(lineage, made) == tids[:, at : at + 50].tolist()
    assert kinds.count("delta") > 0.9 * len(kinds)
    assert lineage.nbytes < 100 * len(kinds) + (1 << 18)


def test_sets_of_several_sources() -> None:
    lineage = Lineage(("s", "t"))
    a = np.concatenate((lineage.generate("s", numbers(1, 2)), lineage.generate("t", numbers(9)), lineage.blank(1)))
    both = lineage.over(a, numbers(0, 1), numbers(4, 4))
    assert [lineage.shown(handle) for handle in both] == ["s: {[1, 2]}; t: {9}", "s: {2}; t: {9}"]
    assert sets(lineage, both, "t") == [[9], [9]]
    assert lineage.spans(both, "s").tolist() == [[1, 2], [2, 2]]
    assert lineage.contains(both, "s", 1).tolist() == [True, False]
    assert lineage.sizes(both).tolist() == [32, 16]
    assert sets(lineage, both, "u") == [[], []]


def test_a_delta_keeps_its_full_set() -> None:
    """A selection may drop the full set and keep deltas against it (the paper's orphans)."""
    lineage = Lineage(("s",), "deltas")
    a = slide(lineage, lineage.generate("s", numbers(1, 2, 3, 4, 6, 7)), 4)[1:].copy()
    lineage.collect([a])
    assert [lineage.shown(handle) for handle in a] == ["3: {6}", "2: {6, 7}"]
    assert sets(lineage, a) == [[2, 3, 4, 6], [3, 4, 6, 7]]


def test_columns_that_share_memory_are_renamed_once() -> None:
    lineage = Lineage(("s",), "ids")
    a = slide(lineage, lineage.generate("s", np.arange(1, 20)), 3)
    before = sets(lineage, a[5:])
    lineage.collect([a[5:], a[5:], a[6:9], a[15:4:-1]])
    assert sets(lineage, a[5:]) == before


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_memory_stays_flat(encoding: str) -> None:
    """Of an endless stream the last results are held, and everything else is forgotten."""
    lineage = Lineage(("s",), encoding)
    tids = np.flatnonzero(np.random.default_rng(3).random(40_000) < 0.75) + 1
    most, collected, held = 0, 0, lineage.blank(0)
    batches = 40 if encoding == "dictionary" else 400
    for batch in range(batches):
        rows = lineage.generate("s", tids[:400] + 400 * batch)
        held = np.concatenate((held, slide(lineage, rows, 100)))[-500:].copy()
        if lineage.grown:
            lineage.collect([held])
            collected += 1
        most = max(most, lineage.nbytes)
    assert most < 24 << 20
    assert collected > 0 or encoding == "dictionary"
    lineage.collect([held])
    assert lineage.nbytes < 1 << 20
    assert sets(lineage, held[-1:]) == [(tids[300:400] + 400 * (batches - 1)).tolist()]


def test_an_image_that_was_damaged_is_refused() -> None:
    lineage = Lineage(("s", "t"))
    a = slide(lineage, lineage.generate("s", numbers(1, 3, 5, 7, 9, 11)), 4)
    image = lineage.image(a)
    assert sets(lineage, lineage.restore(image)) == sets(lineage, a)
    rng = np.random.default_rng(1)
    damaged: list[dict[str, np.ndarray]] = [
        {"handles": numbers(-9)}, {"handles": numbers(5 << 44)}, {"items": image["items"][:3]},
        {"sets": image["sets"][:, :3]}, {"sets": image["sets"].astype(np.int32)}, {"items": -image["items"]},
    ]  # fmt: skip
    for change in damaged:
        with pytest.raises(DataError, match="not as they were written"):
            lineage.restore(image | change)
    for _ in range(300):  # whatever stands there, nothing is read or written outside
        name = ("handles", "sets", "items")[rng.integers(3)]
        changed = image[name].copy()
        changed.reshape(-1)[rng.integers(changed.size)] = rng.choice([-(1 << 62), -3, -1, 0, 2, 6, 1 << 45, 1 << 62])
        with contextlib.suppress(DataError):
            lineage.spans(lineage.restore(image | {name: changed}), "s")


def test_what_is_not_there() -> None:
    with pytest.raises(EvaluationError, match="no encoding 'zip' of lineage; there are ids, intervals"):
        Lineage(("s",), "zip")
    with pytest.raises(EvaluationError, match="tids of s are from 1"):
        Lineage(("s",)).generate("s", numbers(0))
