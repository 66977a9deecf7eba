"""The manifest: the list of the files that make up a database.

The law: what the manifest names is the database; whatever else lies in the folder is a leftover. It is replaced as a
whole, so after a crash the old one or the new one is there.

It is JSON for people to read. Its `checksum` is, in every format, that of all other fields as JSON with sorted names
and no blanks.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from xxhash import xxh3_64_hexdigest

from whence.model.errors import CorruptionError, StorageError
from whence.state.disk import UNFINISHED, Disk, storage_errors
from whence.state.lock import LOCK
from whence.state.segment import FILE_HEADER

FORMAT = 2
"""2 since manifests name eras; those of format 1 have none."""

MANIFEST = "MANIFEST"
LOG, STATE, INPUTS, EXCHANGE, STREAMS = "log", "state", "inputs", "exchange", "streams"
"""The folders of segments, of image files, of inputs that records name, of what is passed between partitions until the
next image, and of how far streams and sinks have come."""

MAX_ERAS = 1_000
_ERA_DIGITS = 8

LinkKind = Literal["base", "patch"]
KINDS: tuple[LinkKind, ...] = ("base", "patch")


@dataclass(frozen=True)
class Link:
    """One file of a chain: an image of the state after an epoch, or what changed since the link before.

    `time` is that of the epoch, in microseconds since 1970; the log goes on after it with a `segment`. A link of the
    main chain may be a part of the whole only: then images of as many `partitions`, links of their own chains with the
    same epoch and segment, belong to it.
    """

    kind: LinkKind
    file: str
    epoch: int
    bytes: int
    time: int = 0
    segment: int = 0
    partitions: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"a link is one of {', '.join(KINDS)}, not {self.kind!r}")


Chain = tuple[Link, ...]
Chains = Mapping[str, tuple[Chain, ...]]


@dataclass(frozen=True)
class Manifest:
    """The segments of the log and each partition's chains, oldest first: several chains if history is kept.

    `eras` has the openings for writing, oldest first: a random id for each, and the last epoch that it found. Each is
    there before the first record that it appends, so a folder that was copied and written to on both sides can be told
    from the other (`whence/subscribe/positions.py`).
    """

    format: int
    id: str
    segments: tuple[int, ...]
    chains: Chains
    created: str
    options: Mapping[str, str] = field(default_factory=dict)
    eras: Mapping[str, int] = field(default_factory=dict)


def new_manifest(segments: Iterable[int], options: Mapping[str, str] | None = None) -> Manifest:
    """Return the first manifest of a database."""
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return Manifest(FORMAT, _new_id(), tuple(segments), {}, created, dict(options or {}))


def new_identity(manifest: Manifest) -> Manifest:
    """Return the manifest of a copy that is a database of its own: another id, and a past without eras."""
    return replace(manifest, id=_new_id(), eras={})


def add_era(eras: Mapping[str, int], epoch: int) -> dict[str, int]:
    """Return the eras with a new one that begins after an epoch, without those that are too old to be listed."""
    return dict([*eras.items(), (_new_id()[:_ERA_DIGITS], epoch)][-MAX_ERAS:])


def _new_id() -> str:
    return uuid.uuid4().hex


def save(disk: Disk, folder: Path, manifest: Manifest) -> None:
    """Replace the manifest. After an error the old one or the new one is there: save again before going on."""
    content = asdict(manifest) | {"chains": _plain(manifest.chains)}
    text = json.dumps({"checksum": _checksum(content)} | content, indent=2, ensure_ascii=False)
    disk.replace(folder / MANIFEST, text.encode() + b"\n")


def load(disk: Disk, folder: Path) -> Manifest | None:
    """Read the manifest; None where a database may be made: no such folder, an empty one, or one whose making broke
    off."""
    path = folder / MANIFEST
    with storage_errors(path, "look at"):
        if not path.exists():
            _check_free(disk, folder)
            return None
    return _parse(path, disk.read(path))


def _parse(path: Path, data: bytes) -> Manifest:
    try:
        content = json.loads(data)
        checksum = content.pop("checksum")
    except (ValueError, KeyError, AttributeError) as error:
        raise CorruptionError(path, 0, "the manifest cannot be read") from error
    if checksum != _checksum(content):
        raise CorruptionError(path, 0, "the manifest's checksum does not match")
    if content["format"] > FORMAT:
        raise StorageError(
            f"{path.parent} was written by a newer version of Whence "
            f"(format {content['format']}; this one reads up to {FORMAT})"
        )
    return Manifest(**content | {"segments": tuple(content["segments"]), "chains": _chains(content["chains"])})


def _check_free(disk: Disk, folder: Path) -> None:
    """Raise StorageError if a database in this folder could overwrite something."""
    if folder.exists() and not folder.is_dir():
        raise StorageError(f"{folder} is a file, not a Whence database, which is a folder")
    strangers = set(disk.names(folder)) - {LOCK, LOG, STATE, INPUTS, EXCHANGE, STREAMS, MANIFEST + UNFINISHED}
    if strangers:
        raise StorageError(f"{folder} is not a Whence database: there is {min(strangers)} in it, but no {MANIFEST}")
    if any(_holds_something(path) for path in (*folder.glob(f"{LOG}/*"), *folder.glob(f"{STATE}/*"))):
        raise StorageError(f"{folder / MANIFEST} has vanished, but the data is there: restore it from a copy")


def _holds_something(path: Path) -> bool:
    return path.is_dir() or path.stat().st_size > FILE_HEADER


def _plain(chains: Chains) -> dict[str, list[list[dict[str, Any]]]]:
    return {name: [[asdict(link) for link in chain] for chain in of] for name, of in chains.items()}


def _chains(plain: dict[str, list[list[dict[str, Any]]]]) -> dict[str, tuple[Chain, ...]]:
    return {name: tuple(tuple(Link(**link) for link in chain) for chain in of) for name, of in plain.items()}


def _checksum(content: Mapping[str, Any]) -> str:
    return xxh3_64_hexdigest(json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())
