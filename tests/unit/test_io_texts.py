"""Texts looked up by their bytes have the codes that the dictionary gives them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whence.io.texts import Texts, texts_of, worth_it
from whence.model.codes import NULL, Dictionary, Interval

WORDS = st.one_of(st.none(), st.sampled_from(["", "a", "b", "ab", "ä", "日本", "a\0", "\0"]), st.text(max_size=3))
COLUMNS = st.lists(st.tuples(st.booleans(), st.lists(WORDS, max_size=30)), max_size=6)


@settings(deadline=None)
@given(COLUMNS, st.sampled_from([pa.string(), pa.large_string()]))
def test_the_codes_are_those_of_the_dictionary(columns: list[tuple[bool, list[str | None]]], kind: pa.DataType) -> None:
    dictionary, texts = Dictionary(), Texts()
    dictionary.intern(Interval(1, 2, 3))
    for beside, column in columns:
        if beside:
            dictionary.intern_all(column)
        codes = texts.codes(pa.array([None, "x", *column, "y"], kind).slice(2, len(column)), dictionary)
        assert dictionary.values(codes) == column
        assert codes.tolist() == dictionary.intern_all(column).tolist()
    assert len({*dictionary.since(0)}) == len(dictionary)


def test_many_texts_are_found_again() -> None:
    dictionary, texts = Dictionary(), Texts()
    words = [f"word {i}" for i in range(20_000)]
    for part in (words[:7], words[:9000], words):
        codes = texts.codes(pa.array(part), dictionary)
        assert codes.tolist() == list(range(len(part)))
    assert texts.codes(pa.array(words[::-1]), dictionary).tolist() == list(range(20_000))[::-1]


def test_bytes_that_are_no_text_are_refused() -> None:
    dictionary = Dictionary()
    offsets, data = pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe")
    with pytest.raises(UnicodeDecodeError):
        Texts().codes(pa.Array.from_buffers(pa.string(), 1, [None, offsets, data]), dictionary)
    assert len(dictionary) == 0


def test_a_column_is_worth_it_when_it_is_long_and_known() -> None:
    dictionary = Dictionary()
    known, new = [f"known {i}" for i in range(5000)], [f"new {i}" for i in range(5000)]
    dictionary.intern_all(known)
    assert worth_it(pa.chunked_array([known]), dictionary)
    assert worth_it(pa.chunked_array([[None] * 5000, known], pa.string()), dictionary)
    assert not worth_it(pa.chunked_array([known[:100]]), dictionary)
    assert not worth_it(pa.chunked_array([new]), dictionary)


def test_a_dictionary_has_one_and_takes_it_along() -> None:
    dictionary = Dictionary()
    assert texts_of(dictionary) is texts_of(dictionary)
    assert texts_of(dictionary) is not texts_of(Dictionary())
    assert texts_of(dictionary).codes(pa.array([None]).cast(pa.string()), dictionary).tolist() == [NULL]
