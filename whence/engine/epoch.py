"""An epoch: everything that one transaction changed in the tables, and all that is needed to do it again."""

from __future__ import annotations

from dataclasses import dataclass, field

from whence.engine.operator import Batch
from whence.model.codes import Codes


@dataclass(frozen=True)
class Epoch:
    """Consolidated changes by table, at a time in microseconds since 1970.

    `refreshed` holds rows of tables with a time-to-live whose life begins anew although nothing about them changed.
    """

    number: int
    time: int
    deltas: dict[str, Batch]
    refreshed: dict[str, Codes] = field(default_factory=dict)
