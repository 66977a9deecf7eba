"""Look up the texts of a dictionary by their bytes, as Arrow has them.

The law: the same codes as `Dictionary.intern_all` would give. A dictionary knows its values as Python strings; to ask
it for a column of ten thousand texts means to make as many strings, which takes longer than all the rest of inserting
them. So for long columns of texts that are known as a rule, their UTF-8 is kept a second time, with a hash table over
it, and only those that are new become strings. What the dictionary has learnt otherwise is caught up with at the next
such column.
"""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whence.engine.core.kernels.table import rehash
from whence.io.kernels.texts import Utf8, add_texts, find_texts
from whence.model.codes import NULL, Codes, Dictionary

_MANY = 1000  # texts from which on it is worth it
_SAMPLE = 50


class Texts:
    """The texts of a dictionary, as bytes."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._begin(0)

    def _begin(self, forgotten: int) -> None:
        self._forgotten = forgotten  # of the dictionary: withdrawn codes must not be found here
        self._count = 0  # of the dictionary's values that are here; those that are no texts take no bytes
        self._starts = np.zeros(1024, np.int64)
        self._data = np.empty(16_384, np.uint8)
        self._slots = np.zeros(2048, np.int64)

    def codes(self, texts: pa.Array, dictionary: Dictionary) -> Codes:
        """Return the codes of an array of strings."""
        starts, data = _bytes(texts)
        out = np.empty(len(texts), np.int64)
        with self._guard:
            if self._forgotten != dictionary.forgotten:
                self._begin(dictionary.forgotten)
            self._catch_up(dictionary.since(self._count))
            missing = find_texts(starts, data, self._starts, self._data, self._slots, out)
        if texts.null_count:
            out[texts.is_null().to_numpy(zero_copy_only=False)] = NULL
        if missing:
            new = np.flatnonzero(out == -1)
            out[new] = dictionary.intern_all(texts.take(pa.array(new)).to_pylist())
        return out

    def _catch_up(self, values: list[Any]) -> None:
        if not values:
            return
        texts = [value if isinstance(value, str) else None for value in values]
        starts, data = _bytes(pa.array(texts, pa.large_string()))
        first, end = self._count, self._count + len(values)
        used = int(self._starts[first])
        self._starts, self._data = _longer(self._starts, end + 1), _longer(self._data, used + len(data))
        self._starts[first : end + 1] = used + starts
        self._data[used : used + len(data)] = data
        if 2 * end > len(self._slots):
            former, self._slots = self._slots, np.zeros(1 << (4 * end).bit_length(), np.int64)
            rehash(former, self._slots)
        places = np.array([place for place, text in enumerate(texts, first) if text is not None], np.int64)
        add_texts(self._starts, self._data, places, self._slots)
        self._count = end


def worth_it(column: pa.ChunkedArray, dictionary: Dictionary) -> bool:
    """Tell whether a column is long and a sample of its texts is known.

    >>> worth_it(pa.chunked_array([["a"] * 5000]), Dictionary())
    False
    """
    if len(column) < _MANY:
        return False
    sample = column.take(pa.array(np.arange(0, len(column), len(column) // _SAMPLE))).to_pylist()
    return 2 * sum(text is None or dictionary.find(text) is not None for text in sample) > len(sample)


_OF: WeakKeyDictionary[Dictionary, Texts] = WeakKeyDictionary()
_MAKING = threading.Lock()


def texts_of(dictionary: Dictionary) -> Texts:
    """Return the texts that go with a dictionary.

    >>> d = Dictionary(); texts_of(d).codes(pa.array(["b", "a", None, "b"]), d).tolist() == [0, 1, NULL, 0]
    True
    """
    with _MAKING:
        return _OF.setdefault(dictionary, Texts())


def _bytes(texts: pa.Array) -> tuple[Codes, Utf8]:
    """Return where each text begins, and the end; and the bytes of all of them, read-only as kernels expect them."""
    _, offsets, buffer = texts.buffers()
    width = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    first, last = texts.offset, texts.offset + len(texts) + 1
    starts = np.frombuffer(offsets, width)[first:last].astype(np.int64) if offsets else np.zeros(1, np.int64)
    data: Utf8 = np.frombuffer(buffer, np.uint8) if buffer else np.empty(0, np.uint8)
    data.flags.writeable = False
    return starts, data


def _longer(array: NDArray[Any], need: int) -> NDArray[Any]:
    if need <= len(array):
        return array
    longer = np.zeros(2 * need, array.dtype)
    longer[: len(array)] = array
    return longer
