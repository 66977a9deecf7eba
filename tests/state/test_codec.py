"""Epochs, words and statements come back as they were; bytes that nobody packed are refused."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import examples
from whence.engine.core.epoch import Epoch
from whence.engine.core.operator import Batch
from whence.model.codes import NULL, Interval
from whence.state import codec

ROWS = st.sampled_from([0, 1, 2, 500])
WORDS = st.lists(
    st.text(st.characters(codec="utf-8"), max_size=20)
    | st.builds(Interval, st.integers(-(2**31), 2**31 - 1), st.integers(-999, 999), st.integers(-(2**53), 2**53)),
    max_size=20,
)


@st.composite
def epochs(draw: st.DrawFn) -> Epoch:
    deltas, refreshed = {}, {}
    rng = np.random.default_rng(draw(st.integers(0, 100)))
    for name in draw(st.lists(st.text(st.characters(codec="utf-8"), max_size=8), unique=True, max_size=3)):
        width = draw(st.integers(0, 4))
        which = draw(st.sampled_from(["delta", "refreshed", "both"]))
        if which != "refreshed":
            rows = draw(ROWS)
            codes = rng.integers(NULL, 2**63 - 1, (rows, width), endpoint=True)
            deltas[name] = Batch(codes, rng.integers(-1, 2, rows), draw(st.booleans()))
        if which != "delta":
            refreshed[name] = rng.integers(0, 1000, (draw(ROWS), width))
    return Epoch(draw(st.integers(0, 2**40)), draw(st.integers(0, 2**50)), deltas, refreshed)


def packed(epoch: Epoch, words: list[Any] | None = None, first: int = 0) -> bytes:
    return b"".join(codec.pack_epoch(epoch, words or [], first))


def plain(epoch: Epoch) -> Any:
    deltas = {name: (b.rows.shape, b.rows.tolist(), b.ann.tolist(), b.unique) for name, b in epoch.deltas.items()}
    refreshed = {name: (rows.shape, rows.tolist()) for name, rows in epoch.refreshed.items()}
    return epoch.number, epoch.time, deltas, refreshed


def large_epoch() -> Epoch:
    rng = np.random.default_rng(3)
    rows = np.stack([np.arange(5000), rng.integers(0, 1000, 5000), rng.integers(NULL, 2**63 - 1, 5000)], 1)
    return Epoch(1, 2, {"link": Batch(rows, np.ones(5000, np.int64), True)}, {"link": rows[:7], "other": rows[:3, :2]})


@settings(deadline=None)  # the first example loads a kernel
@given(epochs(), WORDS, st.integers(0, 2**60))
def test_an_epoch_comes_back_as_it_was(epoch: Epoch, words: list[Any], first: int) -> None:
    back, first_back, words_back = codec.unpack_epoch(epoch.number, epoch.time, memoryview(packed(epoch, words, first)))
    assert plain(back) == plain(epoch)
    assert (first_back, words_back) == (first, words)
    assert [type(word) for word in words_back] == [type(word) for word in words]


def test_many_rows_are_compressed_and_come_back_fit_for_kernels() -> None:
    epoch = large_epoch()
    words = [f"customer {i}" for i in range(2000)]
    data = packed(epoch, words, 5)
    assert len(data) < 80_000  # 160 kB of codes, of which a column of 40 kB is noise, and 31 kB of words
    back, _, words_back = codec.unpack_epoch(1, 2, memoryview(b"x" + data)[1:])
    assert plain(back) == plain(epoch)
    assert words_back == words
    for array in (back.deltas["link"].rows, back.deltas["link"].ann, *back.refreshed.values()):
        assert array.dtype == np.int64
        assert array.flags.c_contiguous
        assert array.flags.aligned


def test_a_row_and_a_word_take_less_than_250_bytes() -> None:
    epoch = Epoch(1, 2, {"link": Batch(np.array([[1, 2, 3]]), np.ones(1, np.int64), True)})
    assert len(packed(epoch, ["hello"], 7)) < 250


def test_rows_of_a_table_have_one_width() -> None:
    epoch = Epoch(1, 2, {"t": Batch.empty(2)}, {"t": np.zeros((1, 3), np.int64)})
    with pytest.raises(ValueError, match="table t: 2 columns changed, but 3 are refreshed"):
        packed(epoch)


def test_only_texts_and_intervals_are_words() -> None:
    with pytest.raises(ValueError, match="7 is neither a text nor an interval"):
        codec.pack_words([7])


def small_payload() -> bytes:
    epoch = Epoch(1, 2, {"link": Batch(np.array([[1, 2], [3, 4]]), np.array([1, -1]))}, {"ü": np.array([[5]])})
    return packed(epoch, ["tea", Interval(1, 2, 3)], 7)


@pytest.mark.parametrize("payload", [small_payload(), packed(large_epoch(), ["word"] * 2000)], ids=["small", "large"])
def test_cut_payloads_are_refused(payload: bytes) -> None:
    for end in random.Random(1).sample(range(len(payload)), min(len(payload), 400)):
        with pytest.raises(ValueError, match=r"."):
            codec.unpack_epoch(1, 2, memoryview(payload[:end]))


@pytest.mark.parametrize("payload", [small_payload(), packed(large_epoch(), ["word"] * 2000)], ids=["small", "large"])
def test_flipped_bytes_give_an_epoch_or_value_error(payload: bytes) -> None:
    rng = random.Random(2)
    places = [*range(min(len(payload), 600)), *(rng.randrange(len(payload)) for _ in range(200))]
    for place in places:
        flipped = bytearray(payload)
        flipped[place] ^= rng.choice([1, 128, 255])
        try:
            epoch, _, _ = codec.unpack_epoch(1, 2, memoryview(flipped))
        except ValueError:
            continue
        for batch in epoch.deltas.values():
            assert batch.rows.ndim == 2
            assert len(batch.rows) == len(batch.ann)


@given(st.binary(max_size=200))
@settings(max_examples=examples(300), deadline=None)
def test_any_bytes_give_an_epoch_or_value_error(payload: bytes) -> None:
    for unpack in (lambda data: codec.unpack_epoch(1, 2, data), codec.unpack_statements, codec.unpack_schema):
        try:
            unpack(memoryview(payload))
        except ValueError:
            continue


def test_a_table_twice_is_refused() -> None:
    one = packed(Epoch(1, 2, {"a": Batch.empty(1), "b": Batch.empty(1)}))
    with pytest.raises(ValueError, match="a table twice"):
        codec.unpack_epoch(1, 2, memoryview(one.replace(b"b", b"a")))


@given(WORDS)
def test_words_come_back(words: list[Any]) -> None:
    back = codec.unpack_words(codec.pack_words(words))
    assert back == words
    assert [type(word) for word in back] == [type(word) for word in words]


def test_the_arrays_of_a_grown_dictionary_begin_as_before() -> None:
    few, more = codec.pack_words(["ä", "b"]), codec.pack_words(["ä", "b", Interval(1, 0, 0)])
    for name, array in few.items():
        assert more[name][: len(array)].tolist() == array.tolist()


@pytest.mark.parametrize("lengths", [[2], [-1], [3, -1], [2**31 - 1]])
def test_words_of_other_lengths_are_refused(lengths: list[int]) -> None:
    with pytest.raises(ValueError, match=r"."):
        codec.unpack_words({"lengths": np.array(lengths, np.int32), "text": np.frombuffer(b"abc", np.uint8)})


@given(st.lists(st.text(st.characters(codec="utf-8"))))
def test_statements_come_back(statements: list[str]) -> None:
    assert codec.unpack_statements(memoryview(codec.pack_statements(statements))) == statements


def test_long_statements_come_back() -> None:
    statements = ["SELECT " + ", ".join(f"column_{i}" for i in range(2000))]
    data = codec.pack_statements(statements)
    assert len(data) < len(statements[0]) / 2
    assert codec.unpack_statements(memoryview(data)) == statements


@settings(deadline=None)  # the first example loads a kernel
@given(st.integers(1, 8), st.integers(0, 50))
def test_planes_turn_back(width: int, items: int) -> None:
    raw = np.random.default_rng(items).integers(0, 256, width * items).astype(np.uint8)
    out = np.empty_like(raw)
    codec.from_planes(codec.to_planes(raw, width), width, out)
    assert out.tolist() == raw.tolist()
