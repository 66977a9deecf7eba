"""A segment of the log: a file of records with checksums, and its reader.

    file    magic 8s, format u32, segment u64, checksum u64 of these
    record  payload length u64, kind u8, epoch u64, time i64 in microseconds, stable u64, payload checksum u64,
            header checksum u64 of these; then the payload

All little-endian; checksums are XXH3 of 64 bits. The header's is seeded with the segment and the record's offset, so
that a record copied elsewhere is not taken for valid. `stable` is the offset before which everything in the segment was
synced when the record was written.

The law: what is read is exactly what was appended, in order, up to some record. What comes after is either **torn**,
the remains of appends that were never acknowledged, or **corrupt**, and then it is an error that names the file
and the offset. Only the last segment can be torn, and damage there counts as torn only when both hold:

1. An interrupted append explains it: the file ends inside the record, or a piece of the record (of its header, if that
   is what is damaged) that lies within one sector of 512 bytes is all zeros, never having reached the disk.
2. No record behind it says that the damaged one was stable.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import numpy as np
from xxhash import xxh3_64_intdigest

from whence.model.errors import CorruptionError, StorageError
from whence.state.disk import read_at, storage_errors

EPOCH, SCHEMA, INPUT, FORGET, PLANS = 1, 2, 3, 4, 5
"""Kinds of records: an epoch's base updates; statements; an epoch some of whose updates stand in files of inputs; words
that the dictionary has forgotten; plans of views that were switched."""

EPOCHS = (EPOCH, INPUT)
"""The kinds that are epochs."""

FORMAT = 1
_MAGIC = b"whenceLG"
_FILE = Struct("<8sIQQ")
_HEADER = Struct("<QBQqQQQ")
FILE_HEADER, RECORD_HEADER = _FILE.size, _HEADER.size

_CHECKED = RECORD_HEADER - 8  # the part of a record's header that its checksum is of
_WINDOW = 1 << 20
_SECTOR = 512
_MASK = (1 << 64) - 1


class Record(NamedTuple):
    """A record as it was appended. The payload keeps a window of the file in memory: copy what is to last."""

    kind: int
    epoch: int
    time: int
    payload: memoryview
    path: Path
    offset: int


class Torn(NamedTuple):
    """The remains of an interrupted append: their length and offset."""

    path: Path
    offset: int
    bytes: int


def segment_path(folder: Path, number: int) -> Path:
    return folder / f"{number:08d}.log"


def file_header(number: int) -> bytes:
    """Return the header of a segment."""
    fields = _FILE.pack(_MAGIC, FORMAT, number, 0)[:-8]
    return fields + xxh3_64_intdigest(fields).to_bytes(8, "little")


def record_header(
    kind: int, epoch: int, time: int, length: int, checksum: int, *, segment: int, offset: int, stable: int
) -> bytes:
    """Return the header of a payload of that length and checksum."""
    fields = _HEADER.pack(length, kind, epoch, time, stable, checksum, 0)[:-8]
    return fields + xxh3_64_intdigest(fields, _seed(segment, offset)).to_bytes(8, "little")


def in_order(kind: int, epoch: int, last: int) -> bool:
    """Tell whether an epoch may follow: epochs rise, and statements do not precede their epoch; `last` is the last
    one."""
    return epoch > last if kind in EPOCHS else epoch >= last


def _seed(segment: int, offset: int) -> int:
    return (segment << 44 ^ offset) & _MASK


class SegmentScan:
    """The records of one segment from an offset on.

    During the iteration and after it `offset` is the end of the last record given, `epoch` the last epoch so
    far, `seen` where the last record is and its header checksum; at the end `torn` is what stands behind. A later
    scan that is given these goes on, and notices if the writer has replaced the record seen last.
    """

    def __init__(
        self,
        path: Path,
        number: int,
        *,
        last: bool,
        offset: int = FILE_HEADER,
        epoch: int = -1,
        seen: tuple[int, int] | None = None,
    ):
        self.path, self.number, self.last = path, number, last
        self.offset, self.epoch, self.seen = offset, epoch, seen
        self.torn: Torn | None = None

    def __iter__(self) -> Iterator[Record]:
        with storage_errors(self.path, "read"):
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._check_file(read_at(descriptor, 0, FILE_HEADER))
                yield from self._records(descriptor)
            finally:
                os.close(descriptor)

    def _check_file(self, header: bytes) -> None:
        if header != file_header(self.number):
            raise CorruptionError(self.path, 0, f"this is not segment {self.number} of a log (file header)")

    def _records(self, descriptor: int) -> Iterator[Record]:
        start, window = self.offset, memoryview(b"")
        while True:
            offset = self.offset
            at = offset - start
            if len(window) - at < RECORD_HEADER:
                start, at, window = offset, 0, self._load(descriptor, _WINDOW)
                if not window:
                    return
                if len(window) < RECORD_HEADER:
                    return self._damaged(window, RECORD_HEADER, "the file ends inside a record's header")
            length, kind, epoch, time, _stable, checksum, header_checksum = _HEADER.unpack_from(window, at)
            if xxh3_64_intdigest(window[at : at + _CHECKED], _seed(self.number, offset)) != header_checksum:
                rest = self._load(descriptor, _MASK)
                return self._damaged(rest, RECORD_HEADER, "header checksum does not match")
            size = RECORD_HEADER + length
            if len(window) - at < size:
                start, at, window = offset, 0, self._load(descriptor, max(size, _WINDOW))
                if len(window) < size:
                    return self._damaged(window, size, "the file ends inside a record's payload")
            payload = window[at + RECORD_HEADER : at + size]
            if xxh3_64_intdigest(payload) != checksum:
                rest = self._load(descriptor, _MASK)
                return self._damaged(rest, size, "payload checksum does not match")
            if not in_order(kind, epoch, self.epoch):
                raise CorruptionError(self.path, offset, f"epoch order: epoch {epoch} comes after epoch {self.epoch}")
            if kind in EPOCHS:
                self.epoch = epoch
            self.seen, self.offset = (offset, header_checksum), offset + size
            yield Record(kind, epoch, time, payload, self.path, offset)

    def _load(self, descriptor: int, length: int) -> memoryview:
        """Read the file from the end of the last record on, which must still be as it was read."""
        data = read_at(descriptor, self.offset, length)
        if self.seen is not None:
            offset, checksum = self.seen
            if read_at(descriptor, offset + _CHECKED, 8) != checksum.to_bytes(8, "little"):
                raise StorageError(f"{self.path}, offset {offset}: the writer withdrew what was read; read it again")
        return memoryview(data)

    def _damaged(self, rest: memoryview, size: int, what: str) -> None:
        """Return the file from the damaged record on, and the length of the record, or of its header if that is
        damaged."""
        if not self.last:
            raise CorruptionError(self.path, self.offset, what)
        if len(rest) >= size and not _unwritten(rest[:size], self.offset):
            raise CorruptionError(self.path, self.offset, what)
        if self._stable_behind(rest) > self.offset:
            raise CorruptionError(self.path, self.offset, f"{what}, though the record had reached the disk")
        self.torn = Torn(self.path, self.offset, len(rest))

    def _stable_behind(self, rest: memoryview) -> int:
        """Return the largest `stable` of any record header behind the first byte."""
        count = len(rest) - RECORD_HEADER
        if count <= 0:
            return 0
        cells = np.frombuffer(rest, np.uint8)[1:]
        kinds, length_top = cells[8 : 8 + count], cells[7 : 7 + count]
        stable = 0
        for at in np.flatnonzero((kinds >= EPOCH) & (kinds <= INPUT) & (length_top == 0)).tolist():
            header = rest[at + 1 : at + 1 + RECORD_HEADER]
            fields = _HEADER.unpack(header)
            if xxh3_64_intdigest(header[:_CHECKED], _seed(self.number, self.offset + at + 1)) == fields[6]:
                stable = max(stable, fields[4])
        return stable


def _unwritten(record: memoryview, offset: int) -> bool:
    """Tell whether the part of a record in some sector is all zeros."""
    cut = _SECTOR - offset % _SECTOR
    pieces = [record[:cut], *(record[at : at + _SECTOR] for at in range(cut, len(record), _SECTOR))]
    return any(not any(piece) for piece in pieces)
