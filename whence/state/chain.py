"""Images on disk: a chain of files, one base and then patches, each holding only what changed since the one before.

The law: a chain gives back, bit for bit, the parts that its last file was given, or raises CorruptionError; and a patch
costs what has changed, not what is there. A *part* is a named image. Its arrays are cut into *blocks* of 16 KB, known
by the digests of their bytes; a block whose digest stands at the same place in the chain so far is not written.
Neighbours that are written share a *frame* of up to 16 blocks, which is compressed as one and read as one; as byte
planes (see `codec`), of which LZ4 makes half the size or less, in half the time.

A file is a magic number, its frames one after the other, and its directory (see `directory`): it is written in one pass
and read by its end. It gets its name only when it is whole and stable.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from xxhash import xxh3_128_digest

from whence.engine.core.image import Image, Loaded
from whence.model.errors import CorruptionError, StorageError
from whence.state.codec import LZ4, Raw, expand, from_planes, to_planes
from whence.state.directory import (
    BLOCK,
    FRAME,
    MAGIC,
    VERBATIM,
    Digests,
    Directory,
    Frame,
    ImageFile,
    Layout,
    Sheet,
    StoredArray,
    is_storable,
    merge,
    read_directory,
    read_sheet,
    write_directory,
    write_footer,
)
from whence.state.disk import UNFINISHED, Disk, Part, storage_errors
from whence.state.manifest import Link

_STRIPE = FRAME * BLOCK
_BATCHED = 1 << 20  # bytes that are collected before they are written
_THREADS = 2
_TASK = 8  # frames that a thread reads at a time


class Writer:
    """The writer of one image file: a base, or a patch on the chain `before`. Before `finish` it has no effect.

        with Writer(disk, path, chain.directory) as writer:
            writer.keep_unchanged("table/link")
            writer.add("op/3fa9", image)
            directory = writer.finish({"epoch": 57})

    Parts of the chain that are neither added nor kept are gone.
    """

    def __init__(self, disk: Disk, path: Path, before: Directory | None, meta: dict[str, Any] | None = None):
        self._disk, self.path, self._before, self._meta = disk, path, before, meta or {}
        self._layout: Layout = {}
        self._arrays = 0
        self._frames: list[Frame] = []
        self._digests: list[bytes] = []
        self._batch: list[Part] = []
        self._batched = 0
        self._size = 0
        self._unfinished = path.with_name(path.name + UNFINISHED)
        self._file = disk.create(self._unfinished)
        self._open = True
        self._put(MAGIC)

    def add(self, part: str, image: Image) -> None:
        """Write what changed of a part. Its arrays are read here and not kept."""
        self._new(part)
        for name, array in image.items():
            if not is_storable(array.dtype):
                raise ValueError(f"{part}: {name} is of type {array.dtype}, which images cannot hold")
        old = self._before.parts.get(part, {}) if self._before is not None else {}
        self._layout[part] = [(name, array.dtype, array.shape) for name, array in image.items()]
        for name, array in image.items():
            raw = np.asarray(array, order="C").reshape(-1).view(np.uint8)
            self._add(raw, array.dtype.itemsize, old.get(name))
            self._arrays += 1

    def keep_unchanged(self, part: str) -> None:
        """Note that a part has not changed."""
        self._new(part)
        if self._before is None or part not in self._before.parts:
            raise ValueError(f"{part} cannot be as before: it was not there")
        self._layout[part] = None

    def finish(self, meta: dict[str, Any] | None = None) -> Directory:
        """Sync the file, name it and return the directory of the chain."""
        try:
            start = self._size
            directory = write_directory(
                self._before, {**self._meta, **(meta or {})}, self._layout, self._frames, self._digests
            )
            self._put(directory)
            self._put(write_footer(directory, start))
            self._flush()
            self._file.sync()
            self._file.close()
            merged = merge(self._before, read_directory(self.path, memoryview(directory), start))
            self._disk.rename(self._unfinished, self.path)
        except BaseException:
            self.abort()
            raise
        self._open = False
        return merged

    def abort(self) -> None:
        """Remove the unfinished file; do nothing after `finish`."""
        if self._open:
            self._open = False
            self._file.close()
            with suppress(StorageError):  # an error on the way here says more
                self._disk.remove(self._unfinished)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.abort()

    def _new(self, part: str) -> None:
        if part in self._layout:
            raise ValueError(f"{part} is in this file already")

    def _add(self, raw: Raw, width: int, old: StoredArray | None) -> None:
        for start in range(0, len(raw), _STRIPE):
            stripe, first = raw[start : start + _STRIPE], start // BLOCK
            digests = _digests(stripe)
            known = old.digests[first : first + len(digests)] if old is not None else None
            for run in _changed(digests, known):
                blocks = stripe[run.start * BLOCK : run.stop * BLOCK]
                data, kept = _squeeze(blocks, width)
                self._frames.append((self._arrays, first + run.start, len(data), len(blocks), kept))
                self._digests += digests[run.start : run.stop]
                self._put(data)

    def _put(self, data: bytes | memoryview) -> None:
        self._batch.append(data)
        self._size += len(data)
        self._batched += len(data)
        if self._batched >= _BATCHED:
            self._flush()

    def _flush(self) -> None:
        self._file.write(self._batch)
        self._batch, self._batched = [], 0


def _digests(raw: Raw) -> list[bytes]:
    return [xxh3_128_digest(raw[at : at + BLOCK].data) for at in range(0, len(raw), BLOCK)]


def _changed(digests: list[bytes], known: Digests | None) -> Iterator[range]:
    """Return the runs of blocks that differ from the known ones at their positions."""
    if known is None:
        yield range(len(digests))
        return
    start = 0
    for place, digest in enumerate(digests):
        if place < len(known) and known[place].tobytes() == digest:
            if start < place:
                yield range(start, place)
            start = place + 1
    if start < len(digests):
        yield range(start, len(digests))


def _squeeze(blocks: Raw, width: int) -> tuple[bytes | memoryview, int]:
    """Compress a frame; return its bytes and the width of its items, verbatim if LZ4 gains nothing."""
    data = LZ4.compress(to_planes(blocks, width))
    if data.size >= len(blocks):
        return blocks.tobytes(), VERBATIM
    return memoryview(data.slice(0, data.size)), width  # the view of an unsliced buffer shows its former size


class ImageChain:
    """The files of a chain, oldest first, open for reading. Opening it reads directories only."""

    def __init__(self, folder: Path, links: Sequence[Link]):
        directory: Directory | None = None
        self._sources: list[ImageFile] = []
        self._close_files = weakref.finalize(self, _close, self._sources)
        for link in links:
            path = folder / link.file
            with storage_errors(path, "open"):
                self._sources.append(ImageFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC)))
            directory = merge(directory, read_sheet(self._sources[-1]))
        if directory is None:
            raise ValueError("a chain has at least a base")
        self.directory: Directory = directory
        self._pool = ThreadPoolExecutor(_THREADS, "whence-images")

    @property
    def meta(self) -> dict[str, Any]:
        return self.directory.meta

    @property
    def parts(self) -> list[str]:
        return list(self.directory.parts)

    @property
    def raw_bytes(self) -> int:
        """What all arrays take in memory."""
        return self.directory.raw_bytes

    @property
    def file_bytes(self) -> int:
        """What all files take on disk."""
        return sum(sheet.size for sheet in self.directory.sheets)

    def image(self, part: str) -> Image:
        """Read the arrays of a part, and compare every block with its digest."""
        image = Loaded()
        tasks = []
        for name, stored in self.directory.parts[part].items():
            raw = image.make(name, stored.shape, stored.dtype).reshape(-1).view(np.uint8)
            runs = _runs(stored)
            tasks += [(stored, raw, runs[at : at + _TASK]) for at in range(0, len(runs), _TASK)]
        self._each(lambda task: self._load(*task), tasks)
        return image

    def get(self, part: str) -> Image | None:
        return self.image(part) if part in self.directory.parts else None

    def verify(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Check every byte of every file, reporting progress."""
        done, total = 0, self.file_bytes
        for file, sheet in enumerate(self.directory.sheets):
            for at in range(0, len(sheet.frames), _TASK):
                if progress is not None:
                    progress(done + int(sheet.offsets[at]), total)
                self._each(partial(self._frame, file), range(len(sheet.frames))[at : at + _TASK])
            done += sheet.size
        if progress is not None:
            progress(total, total)

    def close(self) -> None:
        """Close the files; arrays that were returned stay valid."""
        self._pool.shutdown()
        self._close_files()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _each(self, work: Callable[[Any], object], tasks: Sequence[Any]) -> None:
        for _ in self._pool.map(work, tasks) if len(tasks) > 1 else map(work, tasks):
            pass

    def _load(self, stored: StoredArray, out: Raw, runs: Iterable[range]) -> None:
        """Fill runs of blocks, each of which lies in one frame."""
        expanded: dict[int, tuple[int, Raw]] = {}  # by file the last frame of which blocks were overwritten later
        for run in runs:
            file, frame = int(stored.files[run.start]), int(stored.frames[run.start])
            sheet = self.directory.sheets[file]
            target = out[run.start * BLOCK : run.stop * BLOCK]
            if len(target) == sheet.frames["size"][frame]:
                self._frame(file, frame, target)
                continue
            if expanded.get(file, (-1, None))[0] != frame:
                expanded[file] = frame, self._frame(file, frame)
            start = (run.start - int(sheet.frames["block"][frame])) * BLOCK
            target[:] = expanded[file][1][start : start + len(target)]

    def _frame(self, file: int, frame: int, out: Raw | None = None) -> Raw:
        """Read the blocks of a frame, into `out` if given, and compare each with its digest."""
        sheet, offset = self.directory.sheets[file], int(self.directory.sheets[file].offsets[frame])
        _, _, length, size, width = sheet.frames[frame].tolist()
        out = np.empty(size, np.uint8) if out is None else out
        _expand(sheet, offset, self._sources[file].read(offset, length), width, out)
        digests = _digests(out)
        first = int(sheet.first[frame])
        if sheet.digests[first : first + len(digests)].tobytes() != b"".join(digests):
            raise CorruptionError(sheet.path, offset, "a block is not as it was written (its digest differs)")
        return out


def _runs(stored: StoredArray) -> list[range]:
    """Group the blocks of an array by the frames they are in."""
    files, frames = stored.files, stored.frames
    turns = np.flatnonzero((files[1:] != files[:-1]) | (frames[1:] != frames[:-1])) + 1
    return [range(start, end) for start, end in pairwise([0, *turns.tolist(), len(files)]) if start < end]


def _close(sources: list[ImageFile]) -> None:
    while sources:
        os.close(sources.pop().descriptor)


def _expand(sheet: Sheet, offset: int, data: bytes, width: int, out: Raw) -> None:
    if width == VERBATIM:
        out[:] = np.frombuffer(data, np.uint8)
        return
    try:
        from_planes(expand(data, len(out)), width, out)
    except ValueError as error:
        raise CorruptionError(sheet.path, offset, str(error)) from None
