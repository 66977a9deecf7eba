"""Epochs, dictionary values and statements as bytes.

The law: unpacking what was packed gives it back, and other bytes raise ValueError; nothing is read beyond
them, whatever they say. (The log has compared a checksum before anything comes here. This is the second line.)

An epoch is written as

    head        how the cells are kept, number of tables, first new code, number of words, sizes of their text
    words       the dictionary's new values: lengths in characters, then all of their text; LZ4 if that is long
    tables      for each: name, columns, changed rows, refreshed rows
    cells       for each table the changed rows, their counts and the refreshed rows, all of them a column at a time

Few cells, as in most epochs, are written as they are. Many are turned into *byte planes* (all first bytes, then all
second bytes, …) and compressed, as an Arrow IPC record batch of one column, whose schema is not written: codes are
small numbers, so most planes are nearly constant.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whence.engine.core.epoch import Epoch
from whence.engine.core.operator import Batch
from whence.model.codes import FORGOTTEN, Codes, Interval
from whence.state.kernels.planes import join_planes

Bytes = bytes | memoryview
Raw = NDArray[np.uint8]

LZ4 = pa.Codec("lz4_raw")
_SQUEEZE_FROM = 4096  # bytes; below, a compressed message costs more than it saves
_HEAD = struct.Struct("<BHQIII")
_TABLE = struct.Struct("<HHBII")
_TEXTS = struct.Struct("<II")
_SAID = struct.Struct("<I")
_FORGOTTEN = struct.Struct("<QQ")
_HOLE = -(2**31)  # in place of a length: there is no word any more
_DELTA, _UNIQUE, _REFRESHED = 1, 2, 4  # flags of a table
_PLAIN, _PLANES = 0, 1  # how the cells are kept
_BYTES = pa.schema([("planes", pa.uint8())])
_BYTES_MESSAGE = _BYTES.serialize().size  # what a stream begins with
_SQUEEZED = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)  # one column: nothing to share out


# Epochs


def pack_epoch(epoch: Epoch, words: Sequence[Any], first: int) -> list[Bytes]:
    """Encode an epoch, and the values that the dictionary took since the last one, from code `first` on."""
    names = dict.fromkeys((*epoch.deltas, *epoch.refreshed))
    tables, cells = _layout(epoch, names)
    raw = b"".join(_pack_texts(words)) if words else b""
    squeezed = _squeeze(raw)
    kind = _PLANES if cells.nbytes >= _SQUEEZE_FROM else _PLAIN
    head = _HEAD.pack(kind, len(names), first, len(words), len(raw), len(squeezed))
    parts: list[Bytes] = [b"".join((head, squeezed, *tables))]
    if cells.size:
        parts.append(memoryview(_pack_planes(cells)) if kind == _PLANES else cells.data.cast("B"))
    return parts


def _layout(epoch: Epoch, names: dict[str, None]) -> tuple[list[bytes], Codes]:
    """Lay out an epoch: the header entry of each table, and the cells of all of them."""
    tables: list[bytes] = []
    columns: list[Codes] = []
    for name in names:
        delta, refreshed = epoch.deltas.get(name), epoch.refreshed.get(name)
        flags, width, changed, again = 0, 0, 0, 0
        if delta is not None:
            changed, width = delta.rows.shape
            flags = _DELTA | (_UNIQUE if delta.unique else 0)
            columns += (delta.rows.T, delta.ann)
        if refreshed is not None:
            again, columns_again = refreshed.shape
            if delta is not None and columns_again != width:
                raise ValueError(f"table {name}: {width} columns changed, but {columns_again} are refreshed")
            width, flags = columns_again, flags | _REFRESHED
            columns.append(refreshed.T)
        text = name.encode()
        tables.append(_TABLE.pack(len(text), width, flags, changed, again) + text)
    cells = np.concatenate([part.reshape(-1) for part in columns]) if columns else np.empty(0, np.int64)
    return tables, cells


def _pack_planes(cells: Codes) -> pa.Buffer:
    planes = to_planes(cells.view(np.uint8), 8)
    array = pa.Array.from_buffers(pa.uint8(), planes.size, [None, pa.py_buffer(planes)])
    sink = pa.BufferOutputStream()
    writer = pa.ipc.new_stream(sink, _BYTES, options=_SQUEEZED)  # `serialize` cannot compress
    writer.write_batch(pa.RecordBatch.from_arrays([array], schema=_BYTES))
    return sink.getvalue().slice(_BYTES_MESSAGE)


def unpack_epoch(number: int, time: int, payload: memoryview) -> tuple[Epoch, int, list[Any]]:
    """Decode an epoch, the code of its first new value, and its new values."""
    try:
        return _unpack_epoch(number, time, payload)
    except struct.error:
        raise ValueError("truncated epoch record: incomplete header") from None


def _unpack_epoch(number: int, time: int, payload: memoryview) -> tuple[Epoch, int, list[Any]]:
    kind, tables, first, words, raw, squeezed = _HEAD.unpack_from(payload)
    at = _HEAD.size + squeezed
    texts = _expand(payload[_HEAD.size : at], squeezed, raw)
    shapes = []
    for _ in range(tables):
        length, *shape = _TABLE.unpack_from(payload, at)
        at += _TABLE.size + length
        shapes.append((_text(payload[at - length : at], length), *shape))
    if len({name for name, *_ in shapes}) < tables:
        raise ValueError("an epoch with a table twice")
    sizes = ((width + 1) * changed + width * again for _, width, _, changed, again in shapes)
    cells = _unpack_cells(kind, payload[at:], sum(sizes))
    return _epoch(number, time, shapes, cells), first, _unpack_texts(texts, words)


def _unpack_cells(kind: int, message: memoryview, size: int) -> Codes:
    if not size:
        if message:
            raise ValueError("an epoch of no cells that goes on after its tables")
        return np.empty(0, np.int64)
    match kind:
        case 0:
            if len(message) != 8 * size:
                raise ValueError(f"{len(message)} bytes where {size} cells are announced")
            return np.frombuffer(bytes(message), np.int64)  # a copy, so that they are aligned
        case 1:
            planes = np.frombuffer(_column(message, _BYTES, 8 * size), np.uint8, 8 * size)
            cells = np.empty(size, np.int64)
            from_planes(planes, 8, cells.view(np.uint8))
            return cells
    raise ValueError(f"cells kept in an unknown way ({kind})")


def _column(message: memoryview, schema: pa.Schema, size: int) -> pa.Buffer:
    """Return the one column of a batch, from a copy of the message, so that its cells are aligned."""
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(bytes(message)), schema)
    except (pa.ArrowException, OSError, EOFError, MemoryError) as error:
        raise ValueError(f"cells that Arrow cannot read ({error})") from None
    values = batch.column(0).buffers()[1]
    if batch.num_rows != size or values is None:
        raise ValueError(f"{batch.num_rows} cells where {size} are announced")
    return values


def _epoch(number: int, time: int, shapes: list[tuple[str, int, int, int, int]], cells: Codes) -> Epoch:
    epoch = Epoch(number, time, {}, {})
    at = 0
    for name, width, flags, changed, again in shapes:
        middle = at + width * changed
        if flags & _DELTA:
            rows = _rows(cells[at:middle], changed, width)
            epoch.deltas[name] = Batch(rows, cells[middle : middle + changed], bool(flags & _UNIQUE))
        at = middle + changed + width * again
        if flags & _REFRESHED:
            epoch.refreshed[name] = _rows(cells[middle + changed : at], again, width)
    return epoch


def _rows(columns: Codes, rows: int, width: int) -> Codes:
    return np.ascontiguousarray(columns.reshape(width, rows).T)


# Words and statements


def pack_words(words: Sequence[Any]) -> dict[str, NDArray[Any]]:
    """Encode values of a dictionary, and where there are none any more, as an image."""
    lengths, text = _pack_texts(words)
    return {"lengths": np.frombuffer(lengths, np.int32), "text": np.frombuffer(text, np.uint8)}


def unpack_words(image: dict[str, NDArray[Any]]) -> list[Any]:
    """Decode the values of a dictionary, in the order of their codes; FORGOTTEN where there is none any more.

    >>> unpack_words(pack_words(["a", Interval(1, 2, 3), "bc"]))
    ['a', Interval(months=1, days=2, micros=3), 'bc']
    """
    lengths, text = image["lengths"], image["text"]
    if lengths.dtype != np.int32 or text.dtype != np.uint8 or lengths.ndim != 1 or text.ndim != 1:
        raise ValueError("words that are not kept as lengths and text")
    return _texts(lengths.tolist(), bytes(text))


def pack_forgotten(codes: Codes) -> bytes:
    """Encode the codes of words that were forgotten, ascending: the first, and a bit for each code from there on."""
    first = int(codes[0])
    bits = np.zeros(int(codes[-1]) - first + 1, bool)
    bits[codes - first] = True
    raw = np.packbits(bits).tobytes()
    return _FORGOTTEN.pack(first, len(raw)) + _squeeze(raw)


def unpack_forgotten(payload: memoryview) -> Codes:
    """Decode the codes of words that were forgotten.

    >>> unpack_forgotten(memoryview(pack_forgotten(np.array([3, 4, 17])))).tolist()
    [3, 4, 17]
    """
    if len(payload) < _FORGOTTEN.size:
        raise ValueError("truncated record of forgotten words: incomplete header")
    first, size = _FORGOTTEN.unpack_from(payload)
    raw = _expand(payload[_FORGOTTEN.size :], len(payload) - _FORGOTTEN.size, size)
    codes: Codes = first + np.flatnonzero(np.unpackbits(np.frombuffer(raw, np.uint8)))
    return codes


def pack_statements(statements: Sequence[str]) -> bytes:
    """Encode SQL statements."""
    raw = b"".join(_pack_texts(statements))
    return _TEXTS.pack(len(statements), len(raw)) + _squeeze(raw)


def unpack_statements(payload: memoryview) -> list[str]:
    """Decode SQL statements.

    >>> unpack_statements(memoryview(pack_statements(["DROP VIEW v", "DROP TABLE t"])))
    ['DROP VIEW v', 'DROP TABLE t']
    """
    if len(payload) < _TEXTS.size:
        raise ValueError("statements that end in their head")
    count, raw = _TEXTS.unpack_from(payload)
    statements = _unpack_texts(_expand(payload[_TEXTS.size :], len(payload) - _TEXTS.size, raw), count)
    if not all(isinstance(statement, str) for statement in statements):
        raise ValueError("a statement that is no text")
    return statements


def pack_schema(statements: Sequence[str], words: Sequence[Any], first: int) -> list[Bytes]:
    """Encode statements that changed the catalog, and the values that the dictionary took since the last record."""
    said = pack_statements(statements)
    return [_SAID.pack(len(said)) + said, *pack_epoch(Epoch(0, 0, {}), words, first)]


def unpack_schema(payload: memoryview) -> tuple[list[str], int, list[Any]]:
    """Decode the statements, the code of the first new value, and the new values.

    >>> unpack_schema(memoryview(b"".join(pack_schema(["DROP VIEW v"], ["a"], 7))))
    (['DROP VIEW v'], 7, ['a'])
    """
    if len(payload) < _SAID.size:
        raise ValueError("truncated catalog record: incomplete header")
    end = _SAID.size + _SAID.unpack_from(payload)[0]
    _, first, words = unpack_epoch(0, 0, payload[end:])
    return unpack_statements(payload[_SAID.size : end]), first, words


def _pack_texts(words: Sequence[Any]) -> tuple[bytes, bytes]:
    """Encode values: the length of each in characters, inverted where it is an interval, and all of their text. Where a
    word was forgotten there is no text."""
    if set(map(type, words)) <= {str}:
        return np.fromiter(map(len, words), np.int32, len(words)).tobytes(), "".join(words).encode()
    texts, lengths = [], []
    for word in words:
        text = word if isinstance(word, str) else "" if word is FORGOTTEN else _interval_text(word)
        texts.append(text)
        lengths.append(len(text) if isinstance(word, str) else _HOLE if word is FORGOTTEN else ~len(text))
    return np.array(lengths, np.int32).tobytes(), "".join(texts).encode()


def _interval_text(word: Any) -> str:
    if not isinstance(word, Interval):
        raise ValueError(f"{word!r} is neither a text nor an interval")
    return f"{word.months} {word.days} {word.micros}"


def _interval(text: str) -> Interval:
    months, days, micros = map(int, text.split(" "))  # too few or too many: ValueError
    return Interval(months, days, micros)


def _unpack_texts(raw: Bytes, count: int) -> list[Any]:
    if 4 * count > len(raw):
        raise ValueError(f"{count} words in {len(raw)} bytes")
    return _texts(list(struct.unpack_from(f"<{count}i", raw)), raw[4 * count :])


def _texts(lengths: list[int], raw: Bytes) -> list[Any]:
    text = _text(raw, len(raw))
    words: list[Any] = []
    at = 0
    for length in lengths:
        if length >= 0:
            words.append(text[at : at + length])
            at += length
        elif length == _HOLE:
            words.append(FORGOTTEN)
        else:
            words.append(_interval(text[at : at + ~length]))
            at += ~length
    if at != len(text):
        raise ValueError(f"words of {at} characters in a text of {len(text)}")
    return words


def _text(raw: Bytes, length: int) -> str:
    if len(raw) != length:
        raise ValueError(f"a text of {length} bytes of which {len(raw)} are there")
    return str(raw, "utf-8")


# Compression


def to_planes(raw: Raw, width: int) -> Raw:
    """Split items of `width` bytes into byte planes.

    >>> to_planes(np.array([1, 2, 3], np.int16).view(np.uint8), 2).tolist()
    [1, 2, 3, 0, 0, 0]
    """
    return np.ascontiguousarray(raw.reshape(-1, width).T).reshape(-1)


def from_planes(planes: Raw, width: int, out: Raw) -> None:
    """Join byte planes into `out`."""
    if width == 8:
        planes.flags.writeable = False
        join_planes(planes, out.view(np.int64))
        return
    items = out.reshape(-1, width)
    for place, plane in enumerate(planes.reshape(width, -1)):  # faster than one transposed copy
        items[:, place] = plane


def expand(squeezed: Bytes, size: int) -> Raw:
    """Decompress the `size` bytes that LZ4 made `squeezed` of; raise ValueError if it cannot have."""
    if size > 256 * len(squeezed) + 16:  # more than LZ4 can do: do not ask for the memory
        raise ValueError(f"{len(squeezed)} compressed bytes that are to become {size}")
    try:
        out = LZ4.decompress(squeezed, decompressed_size=size)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"bytes that LZ4 cannot expand ({error})") from None
    return np.frombuffer(out, np.uint8)


def _squeeze(raw: bytes) -> bytes:
    if len(raw) < _SQUEEZE_FROM:
        return raw
    squeezed: bytes = LZ4.compress(raw, asbytes=True)
    return squeezed if len(squeezed) < len(raw) else raw


def _expand(stored: memoryview, announced: int, size: int) -> Bytes:
    if len(stored) != announced:
        raise ValueError(f"{announced} bytes of which {len(stored)} are there")
    return stored if announced == size else expand(stored, size).tobytes()
