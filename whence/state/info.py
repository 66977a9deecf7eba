"""Facts about a database that need no loading: its last epoch, its size on disk, its writer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from whence.model.errors import StorageError
from whence.model.progress import Progress
from whence.state.disk import Disk, size_of
from whence.state.lock import writer_of
from whence.state.manifest import LOG
from whence.state.segment import EPOCHS
from whence.state.store import Folder, RecoveryPoint


@dataclass(frozen=True)
class Info:
    """Times are in microseconds since 1970; `records` and `tail_bytes` are those of the log after the last image, words
    those of the last image."""

    path: Path
    format: int
    id: str
    created: str
    epoch: int
    time: int
    oldest: int
    retain: str
    segments: int
    log_bytes: int
    records: int
    tail_bytes: int
    images: int
    image_bytes: int
    image_epoch: int | None
    image_time: int | None
    writer: str | None
    partitions: int = 0
    inputs: int = 0
    input_bytes: int = 0
    words: int = 0
    words_forgotten: int = 0


def look(path: Path, disk: Disk, progress: Progress | None = None) -> Info:
    """Read the manifest, and the log after the last image."""
    folder = Folder(path, disk)
    while True:
        seen = folder.manifest
        try:
            return _look(folder, progress)
        except StorageError:
            folder.reload()
            if folder.manifest == seen:
                raise


def _look(folder: Folder, progress: Progress | None) -> Info:
    start, manifest = folder.start(), folder.manifest
    epoch, time, records = start.epoch, start.time, 0
    reader, tail = folder.reader(start.place), folder.log_bytes(*start.place)
    for record in folder.read(reader):
        records += 1
        if record.kind in EPOCHS:
            epoch, time = record.epoch, record.time
        if progress is not None and records % 256 == 0:
            progress("reading the log", tail - folder.log_bytes(reader.segment, reader.offset), tail)
    sizes = {file: size_of(file) for file in folder.files()}
    logs = [size for file, size in sizes.items() if file.parent.name == LOG]
    images = [size for file, size in sizes.items() if file.parent.name != LOG]
    inputs = [size_of(file) for file in folder.inputs()]
    last = start.links[-1] if start.links else None
    words, forgotten = _words(folder, start) if start.links else (0, 0)
    return Info(
        path=folder.path,
        format=manifest.format,
        id=manifest.id,
        created=manifest.created,
        epoch=epoch,
        time=time,
        oldest=folder.oldest,
        retain=manifest.options.get("retain", "0"),
        segments=len(logs),
        log_bytes=sum(logs),
        records=records,
        tail_bytes=tail,
        images=len(images),
        image_bytes=sum(images),
        image_epoch=last.epoch if last is not None else None,
        image_time=last.time if last is not None else None,
        writer=writer_of(folder.path),
        partitions=start.partitions,
        inputs=len(inputs),
        input_bytes=sum(inputs),
        words=words,
        words_forgotten=forgotten,
    )


def _words(folder: Folder, start: RecoveryPoint) -> tuple[int, int]:
    """Return how many words an image has, and how many have been forgotten."""
    with folder.chain(start.links) as chain:
        forgotten = int(chain.meta.get("holes", 0))
        return int(chain.meta["words"]) - forgotten, forgotten
