"""Input files: rows as sources gave them, in files that records of the log name.

The law: a section gives back the rows and signs that it was written with, in their order, or raises CorruptionError;
and a record never names what is not stable. A file is a magic number and then its sections:

    section     checksum u64 (XXH3) of what its section says and of what follows; the rows, int64 per cell, row after
    row; their signs, one byte each, +1 or -1

It is written once and read a section at a time, by the partition that needs it; how long a section is and where it
begins is in the record (`InputSection`). Nothing is compressed: a file lives until the next image, and is on the way of
every batch.

Files are named by the epoch whose record names them, `e000000000042-…`: so it is known without reading the log which of
them are removed with it. A file that is written before its epoch is known has another name, and is given that one by
`adopt`, right before the record is written.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
from xxhash import xxh3_64

from whence.engine.core.epoch import Epoch, InputSection
from whence.model.codes import Codes
from whence.model.errors import CorruptionError, StorageError
from whence.state.codec import Bytes, pack_epoch, unpack_epoch
from whence.state.disk import Disk, Part, size_of
from whence.state.manifest import INPUTS

_MAGIC = b"whenceI1"
_CHECKSUM = struct.Struct("<Q")
_SHAPE = struct.Struct("<qQQQ")  # partition, offset, rows, width
_SAID = struct.Struct("<I")
_NAME = re.compile(r"e(\d{12,})-")


# Files


def input_name(epoch: int, rest: str) -> str:
    """Return the name of a file of an epoch's inputs.

    >>> input_name(42, "links")
    'e000000000042-links'
    """
    return f"e{epoch:012d}-{rest}"


def epoch_of(name: str) -> int | None:
    """Return the epoch whose record may name a file; None if none may.

    >>> epoch_of("e000000000042-links"), epoch_of("links")
    (42, None)
    """
    found = _NAME.match(name)
    return None if found is None else int(found[1])


def write_input(disk: Disk, path: Path, sections: Sequence[tuple[str, int, Codes, Codes]]) -> list[InputSection]:
    """Write a file of sections, each a table, a partition, rows and their signs; it gets its name when it is stable."""
    pieces: list[InputSection] = []
    parts: list[Part] = [_MAGIC]
    offset = len(_MAGIC)
    for table, partition, rows, signs in sections:
        rows = np.ascontiguousarray(rows, np.int64)
        kept = signs.astype(np.int8)
        if kept.shape != rows.shape[:1] or (np.abs(signs) != 1).any():
            raise ValueError(f"table {table}: every row has a sign, +1 or -1")
        piece = InputSection(path.name, table, partition, offset, *rows.shape)
        cells = (rows.reshape(-1).data, kept.data)
        parts += (_CHECKSUM.pack(_checksum(piece, cells)), *cells)
        pieces.append(piece)
        offset += _CHECKSUM.size + rows.nbytes + kept.nbytes
    disk.make_folder(path.parent)
    disk.replace(path, parts)
    return pieces


def read_input(disk: Disk, folder: Path, piece: InputSection) -> tuple[Codes, Codes]:
    """Read the rows and signs of one section of an input file in that folder; those of a stream with `$at`."""
    path, size = folder / INPUTS / piece.file, piece.rows * (8 * piece.width + 1)
    if size_of(path) < piece.offset + _CHECKSUM.size + size:  # before that much memory is asked for
        raise CorruptionError(path, piece.offset, f"the file ends before the {piece.rows} rows that the log names")
    magic, checksum = bytearray(len(_MAGIC)), bytearray(_CHECKSUM.size)
    rows, signs = np.empty((piece.rows, piece.width), np.int64), np.empty(piece.rows, np.int8)
    cells = (rows.reshape(-1).data, signs.data)
    disk.fill(path, 0, [memoryview(magic)])
    disk.fill(path, piece.offset, [memoryview(checksum), *cells])
    if magic != _MAGIC:
        raise CorruptionError(path, 0, "no file of inputs begins like this")
    if _CHECKSUM.unpack(checksum)[0] != _checksum(piece, cells):
        raise CorruptionError(path, piece.offset, f"rows of {piece.table} are not as they were written (checksum)")
    if piece.at:
        rows[:, -1] += piece.at
    return rows, signs.astype(np.int64)


def adopt(disk: Disk, folder: Path, sections: Sequence[InputSection], epoch: int) -> tuple[InputSection, ...]:
    """Rename files of a database as a record of an epoch may name them; return the sections by these names."""
    names = {piece.file: piece.file for piece in sections}
    for name in names:
        if epoch_of(name) != epoch:
            names[name] = input_name(epoch, name)
            disk.rename(folder / INPUTS / name, folder / INPUTS / names[name])
    return tuple(replace(piece, file=names[piece.file]) for piece in sections)


def _checksum(piece: InputSection, cells: Sequence[memoryview]) -> int:
    state = xxh3_64(_SHAPE.pack(piece.partition, piece.offset, piece.rows, piece.width) + piece.table.encode())
    for part in cells:
        state.update(part)
    return state.intdigest()


# Records


def pack_inputs(epoch: Epoch, words: Sequence[Any], first: int) -> list[Bytes]:
    """Encode an INPUT record: the inputs as JSON, and then the epoch as in an EPOCH record."""
    for piece in epoch.sections:
        if epoch_of(piece.file) != epoch.number:
            raise StorageError(f"{piece.file} cannot hold rows of epoch {epoch.number}: its name is of another one")
        if piece.table in epoch.deltas or piece.table in epoch.refreshed:
            raise ValueError(f"table {piece.table} has exact changes and others in one epoch")
    content: dict[str, Any] = {"pieces": [astuple(piece) for piece in epoch.sections]}
    content["marks"] = dict(epoch.source_positions)
    content["layout"] = epoch.layout
    if epoch.early:
        content["early"] = dict(epoch.early)
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    return [_SAID.pack(len(text)) + text, *pack_epoch(epoch, words, first)]


def unpack_inputs(number: int, time: int, payload: memoryview) -> tuple[Epoch, int, list[Any]]:
    """Decode the epoch with its inputs, the code of its first new value, and its new values."""
    content, end = _content(payload)
    epoch, first, words = unpack_epoch(number, time, payload[end:])
    try:
        positions = {str(source): int(batch) for source, batch in content["marks"].items()}
        layout, early = str(content["layout"]), dict(content.get("early", {}))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"damaged list of inputs ({error!r})") from None
    sections = _sections(content)
    return replace(epoch, sections=sections, source_positions=positions, layout=layout, early=early), first, words


def sections_of(payload: memoryview) -> tuple[InputSection, ...]:
    """Decode only the sections of files that an INPUT record names."""
    return _sections(_content(payload)[0])


def _sections(content: Any) -> tuple[InputSection, ...]:
    try:
        return tuple(InputSection(*fields) for fields in content["pieces"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"damaged list of inputs ({error!r})") from None


def _content(payload: memoryview) -> tuple[Any, int]:
    if len(payload) < _SAID.size:
        raise ValueError("inputs that end in their head")
    end = _SAID.size + _SAID.unpack_from(payload)[0]
    return json.loads(bytes(payload[_SAID.size : end])), end
