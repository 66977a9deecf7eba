"""What came of an epoch, or of one stage of it in one partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from whence.engine.exchange.messages import PartitionMessage
from whence.model.codes import Codes
from whence.plan.algebra.logical import HoldKey
from whence.runtime.writing.tables import Unmatched


def is_unanswered(asked: Mapping[str, Codes]) -> bool:
    """Return whether rows from outside were asked for that were not there."""
    return any(not rows[:, 2].all() for rows in asked.values())


@dataclass(slots=True)
class EpochResult:
    """Row counts, changed relations and their deltas; of one partition also how it stands and what it sends."""

    changed: dict[str, int]  # by how many rows tables and views changed
    changes: Mapping[str, Any]  # their batches, as far as they are wanted
    expired: dict[str, int] = field(default_factory=dict)
    missing: dict[str, Unmatched] = field(default_factory=dict)  # deletions that found no row
    messages: Sequence[PartitionMessage] = ()
    waits: int | None = None  # the next stage that it can run by itself
    owed: dict[str, int] = field(default_factory=dict)  # how many rows each table owes that owes any
    deadlines: dict[str, int] = field(default_factory=dict)
    pending: dict[HoldKey, int] = field(default_factory=dict)  # how many rows wait before held views
    asked: dict[str, Codes] = field(default_factory=dict)  # of lookups: `$at`, key, and whether its row was there
    bytes: int = 0  # of state
    seconds: float = 0.0

    @property
    def expired_rows(self) -> int:
        return sum(self.expired.values())

    @property
    def unmatched(self) -> Unmatched:
        """All deletions that found no row."""
        return Unmatched(sum(m.passed for m in self.missing.values()), sum(m.held for m in self.missing.values()))
