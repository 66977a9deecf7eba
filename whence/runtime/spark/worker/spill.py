"""Pass large batches between processes as files of the exchange folder, and small ones as they are.

Nothing here has to outlive the driver.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from whence.engine.core.operator import Batch
from whence.state.manifest import EXCHANGE

BULKY = 1 << 20  # bytes that are passed on as a file


@dataclass(frozen=True)
class SpilledBatch:
    """A batch in a file of the exchange folder: stands in for the batch of a message or of a result."""

    file: str
    rows: int
    bytes: int

    def __len__(self) -> int:
        return self.rows


Payload = Batch | SpilledBatch


def spill(folder: Path, name: str, batch: Batch) -> Payload:
    """Write a batch that is bulky to a file, and return the reference; return any other as it is."""
    if batch.rows.nbytes < BULKY:
        return batch
    path = folder / EXCHANGE / name
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with open(unfinished, "wb") as file:
            np.save(file, batch.rows)
            np.save(file, batch.ann)
        os.replace(unfinished, path)
    except OSError:  # a full disk, as a rule: the slow way is still open
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        return batch
    return SpilledBatch(path.name, len(batch.ann), batch.rows.nbytes + batch.ann.nbytes)


def fetch(folder: Path, payload: Payload) -> Batch:
    """Return a batch, wherever it is."""
    if isinstance(payload, Batch):
        return payload
    with open(folder / EXCHANGE / payload.file, "rb") as file:
        return Batch(np.load(file), np.load(file), True)
