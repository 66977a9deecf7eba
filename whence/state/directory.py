"""The directory of an image file: the contents of its frames; and of a chain of files: the location of each block.

The law: a directory that is handed out is sound. Every frame lies in its file and in its array, every block of every
array is somewhere in the chain, sizes agree; whatever bytes a file holds, nothing after this has to be checked but the
digests of blocks.

A file ends with its directory and a footer:

    directory   sizes of the following three; JSON: the directory before this one, meta, parts with the names, types and
                shapes of their arrays; the table of frames (array, first block, bytes in the file, bytes of the blocks,
                width of items), which follow one another from the file's head on; the digests of their blocks
    footer      magic, version, place and digest of the directory, digest of this footer

A patch names its predecessor by the digest of its directory: files that do not belong together make no chain.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest, xxh3_128_digest

from whence.model.errors import CorruptionError, StorageError
from whence.state.disk import read_at, storage_errors

BLOCK = 16384  # bytes
FRAME = 16  # blocks, at most
MAGIC = b"WHENCEim"
VERSION = 1
VERBATIM = 0  # the width of a frame that is not compressed

_FOOTER = struct.Struct("<8sIQQ16s")
_CHECK = struct.Struct("<Q")
_ENDING = _FOOTER.size + _CHECK.size
_SIZES = struct.Struct("<III")  # bytes of JSON, frames, digests
_FRAME = np.dtype([("array", "<u4"), ("block", "<u4"), ("stored", "<u4"), ("size", "<u4"), ("width", "u1")])
_DTYPES = ("|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f4", "<f8")
_LARGEST = 1 << 46  # items of an array

Digests = NDArray[np.uint8]  # [blocks, 16]
Frame = tuple[int, int, int, int, int]  # as in _FRAME


@dataclass(frozen=True)
class StoredArray:
    """The location of an array in a chain: by block its digest, its file and its frame in that file."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    digests: Digests
    files: NDArray[np.int32]
    frames: NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


Parts = dict[str, dict[str, StoredArray]]
Layout = dict[str, list[tuple[str, np.dtype[Any], tuple[int, ...]]] | None]  # None: the part is as it was before


@dataclass(frozen=True)
class Sheet:
    """The header and directory of one file."""

    path: Path
    size: int
    digest: bytes
    before: str | None
    meta: dict[str, Any]
    layout: Layout
    frames: NDArray[Any]
    offsets: NDArray[np.int64]  # of the frames in the file
    first: NDArray[np.int64]  # digest of each of them
    digests: Digests


@dataclass(frozen=True)
class Directory:
    """The contents of a chain, and their location: all that the writer of the next patch needs."""

    sheets: tuple[Sheet, ...]
    parts: Parts

    @property
    def meta(self) -> dict[str, Any]:
        return self.sheets[-1].meta

    @property
    def written(self) -> int:
        """Bytes of the newest file."""
        return self.sheets[-1].size

    @property
    def raw_bytes(self) -> int:
        """What all arrays take in memory."""
        return sum(stored.nbytes for arrays in self.parts.values() for stored in arrays.values())


def write_directory(
    before: Directory | None, meta: dict[str, Any], layout: Layout, frames: Sequence[Frame], digests: Sequence[bytes]
) -> bytes:
    """Encode the directory of a file."""
    known = before.sheets[-1].digest.hex() if before is not None else None
    text = json.dumps({"before": known, "meta": meta, "parts": layout}, default=_dtype_name, separators=(",", ":"))
    table = np.array(frames, _FRAME).tobytes()
    raw = text.encode()
    return b"".join((_SIZES.pack(len(raw), len(frames), len(digests)), raw, table, *digests))


def _dtype_name(value: object) -> str:
    if isinstance(value, np.dtype):
        return value.str
    raise TypeError(f"{value!r} cannot be kept in the meta of an image file")


def is_storable(dtype: np.dtype[Any]) -> bool:
    """Tell whether an image file can hold arrays of this type."""
    return dtype.str in _DTYPES


def write_footer(directory: bytes, start: int) -> bytes:
    """Encode the footer of a directory that begins at `start`."""
    footer = _FOOTER.pack(MAGIC, VERSION, start, len(directory), xxh3_128_digest(directory))
    return footer + _CHECK.pack(xxh3_64_intdigest(footer))


class ImageFile:
    """An image file to read from. Not mapped into memory: there a bad sector or a cut file would end the process."""

    def __init__(self, path: Path, descriptor: int):
        self.path, self.descriptor = path, descriptor
        with storage_errors(path, "read"):
            self.size = os.fstat(descriptor).st_size

    def read(self, offset: int, length: int) -> bytes:
        with storage_errors(self.path, "read"):
            data = read_at(self.descriptor, offset, length)
        if len(data) != length:
            raise CorruptionError(self.path, offset, f"{length} bytes of which {len(data)} are there: the file was cut")
        return data


def read_sheet(source: ImageFile) -> Sheet:
    """Read the header and directory of a file, and check everything in it against everything else."""
    path, end = source.path, source.size - _ENDING
    if end < len(MAGIC):
        raise CorruptionError(path, 0, f"{source.size} bytes are too few for an image file: it was cut, or is another")
    footer = source.read(end, _ENDING)
    magic, version, start, length, digest = _FOOTER.unpack_from(footer)
    (check,) = _CHECK.unpack_from(footer, _FOOTER.size)
    if magic != MAGIC or xxh3_64_intdigest(footer[: _FOOTER.size]) != check:
        raise CorruptionError(path, end, "no image file ends like this: it was cut or overwritten")
    if version != VERSION:
        raise StorageError(f"{path} is written in format {version}; this Whence reads {VERSION}: use the newer one")
    if source.read(0, len(MAGIC)) != MAGIC:
        raise CorruptionError(path, 0, "no image file begins like this")
    if start + length != end:
        raise CorruptionError(path, end, f"a directory at {start} of {length} bytes does not end at the footer")
    directory = source.read(start, length)
    if xxh3_128_digest(directory) != digest:
        raise CorruptionError(path, start, "the directory is not as it was written (its checksum differs)")
    return read_directory(path, memoryview(directory), start)


def read_directory(path: Path, data: memoryview, start: int) -> Sheet:
    """Read the directory that begins at `start` of its file."""
    try:
        return _parse_directory(path, data, start)
    except (ValueError, TypeError, KeyError, AttributeError, struct.error, RecursionError) as error:
        raise CorruptionError(path, start, f"the directory contradicts itself ({error})") from None


def _parse_directory(path: Path, data: memoryview, start: int) -> Sheet:
    text_bytes, frame_count, digest_count = _SIZES.unpack_from(data)
    at = _SIZES.size + text_bytes
    middle = at + frame_count * _FRAME.itemsize
    if middle + 16 * digest_count != len(data):
        raise ValueError(f"it is not {middle + 16 * digest_count} bytes long")
    text = json.loads(bytes(data[_SIZES.size : at]))
    frames = np.frombuffer(data[at:middle], _FRAME).copy()
    digests = np.frombuffer(data[middle:], np.uint8).reshape(-1, 16).copy()
    layout = {part: _parse_arrays(arrays) for part, arrays in text["parts"].items()}
    sizes = [_nbytes(dtype, shape) for arrays in layout.values() for _, dtype, shape in arrays or ()]
    blocks = _check_frames(frames, sizes)
    if blocks.sum() != digest_count:
        raise ValueError(f"{digest_count} digests of {blocks.sum()} blocks")
    offsets = len(MAGIC) + _before_each(frames["stored"])
    if len(MAGIC) + int(frames["stored"].sum(dtype=np.int64)) != start:
        raise ValueError(f"its frames do not end at {start}, where it begins")
    return Sheet(
        path=path,
        size=start + len(data) + _ENDING,
        digest=xxh3_128_digest(data),
        before=text["before"],
        meta=dict(text["meta"]),
        layout=layout,
        frames=frames,
        offsets=offsets,
        first=_before_each(blocks),
        digests=digests,
    )


def _parse_arrays(arrays: Any) -> list[tuple[str, np.dtype[Any], tuple[int, ...]]] | None:
    if arrays is None:
        return None
    parsed = []
    for name, dtype, shape in arrays:
        if dtype not in _DTYPES or not all(isinstance(n, int) and n >= 0 for n in shape):
            raise ValueError(f"array {name} of type {dtype} and shape {shape}")
        parsed.append((name, np.dtype(dtype), tuple(shape)))
    if len({name for name, *_ in parsed}) < len(parsed):
        raise ValueError("an array twice")
    return parsed


def _nbytes(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    if prod(max(n, 1) for n in shape) >= _LARGEST or len(shape) > 32:
        raise ValueError(f"an array of shape {shape}")
    return prod(shape) * dtype.itemsize


def _check_frames(frames: NDArray[Any], sizes: list[int]) -> NDArray[np.int64]:
    """Count the blocks of each frame, and check that all lie in their arrays, in order and apart."""
    array, block, size, stored, width = (
        frames[field].astype(np.int64) for field in ("array", "block", "size", "stored", "width")
    )
    blocks = -(-size // BLOCK)
    if len(frames) and array.max() >= len(sizes):
        raise ValueError("a frame of an array that is not there")
    room = np.array(sizes, np.int64)[array] - block * BLOCK if len(frames) else size
    whole = (size > 0) & (size <= FRAME * BLOCK) & ((size == room) | ((size < room) & (size % BLOCK == 0)))
    packed = (width == VERBATIM) & (stored == size) | (width > 0) & (stored < size) & (size % np.maximum(width, 1) == 0)
    if not (whole & packed).all():
        raise ValueError("a frame that does not fit its array")
    later = (array[1:] > array[:-1]) | ((array[1:] == array[:-1]) & (block[1:] >= block[:-1] + blocks[:-1]))
    if not later.all():
        raise ValueError("frames out of order")
    return blocks


def _before_each(sizes: NDArray[Any]) -> NDArray[np.int64]:
    """Return where each of them begins, when they follow one another.

    >>> _before_each(np.array([3, 1, 5])).tolist()
    [0, 3, 4]
    """
    ends = np.cumsum(sizes, dtype=np.int64)
    before: NDArray[np.int64] = ends - sizes
    return before


def merge(before: Directory | None, sheet: Sheet) -> Directory:
    """Return the directory of a chain with one more file."""
    if sheet.before != (before.sheets[-1].digest.hex() if before is not None else None):
        raise CorruptionError(sheet.path, sheet.size, "the file does not continue the one before it in its chain")
    before = before or Directory((), {})
    try:
        parts = _merge_parts(before, sheet)
    except ValueError as error:
        raise CorruptionError(sheet.path, sheet.size, f"the file does not fit its chain: {error}") from None
    return Directory((*before.sheets, sheet), parts)


def _merge_parts(before: Directory, sheet: Sheet) -> Parts:
    arrays = sum(len(layout or ()) for layout in sheet.layout.values())
    ranges = pairwise(np.searchsorted(sheet.frames["array"], np.arange(arrays + 1)).tolist())
    parts: Parts = {}
    for part, layout in sheet.layout.items():
        if layout is None and part not in before.parts:
            raise ValueError(f"{part} is to be as before, but was not there")
        old = before.parts.get(part, {})
        parts[part] = old if layout is None else {}
        for name, dtype, shape in layout or ():
            stored = old.get(name) or _empty_array(dtype)
            parts[part][name] = _overlay(sheet, len(before.sheets), stored, dtype, shape, slice(*next(ranges)))
    return parts


def _empty_array(dtype: np.dtype[Any]) -> StoredArray:
    return StoredArray(dtype, (0,), np.empty((0, 16), np.uint8), np.empty(0, np.int32), np.empty(0, np.int32))


def _overlay(
    sheet: Sheet, file: int, old: StoredArray, dtype: np.dtype[Any], shape: tuple[int, ...], which: slice
) -> StoredArray:
    """Return an array whose blocks are those of these frames, and elsewhere the old ones."""
    frames = sheet.frames[which]
    nbytes = _nbytes(dtype, shape)
    blocks, sizes = -(-nbytes // BLOCK), -(-frames["size"].astype(np.int64) // BLOCK)
    fresh = int(sizes.sum())
    kept = min(blocks, len(old.digests))
    if blocks > kept + fresh:
        raise ValueError(f"an array of {blocks} blocks, of which {kept + fresh} are there")
    digests = np.empty((blocks, 16), np.uint8)
    where = np.full((2, blocks), -1, np.int32)
    digests[:kept], where[:, :kept] = old.digests[:kept], (old.files[:kept], old.frames[:kept])
    if fresh:
        first = sheet.first[which.start]
        places = np.repeat(frames["block"].astype(np.int64) - _before_each(sizes), sizes) + np.arange(fresh)
        digests[places] = sheet.digests[first : first + fresh]
        where[0, places], where[1, places] = file, np.repeat(np.arange(which.start, which.stop), sizes)
    if (where < 0).any():
        raise ValueError("a block of an array is nowhere")
    last = (kept - 1) * BLOCK  # the only block kept that may have had another length
    if kept and where[0, kept - 1] != file and min(BLOCK, nbytes - last) != min(BLOCK, old.nbytes - last):
        raise ValueError("the array has another length, but ends as before")
    return StoredArray(dtype, shape, digests, where[0], where[1])
