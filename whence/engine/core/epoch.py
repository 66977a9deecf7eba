"""An epoch: everything that one transaction changed in the tables, and all that is needed to do it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from whence.engine.core.operator import Batch
from whence.model.codes import Codes
from whence.plan.algebra.logical import HoldKey


@dataclass(frozen=True)
class InputSection:
    """So many rows of one table, with signs, for one partition: a section of a file of inputs (`state/inputs.py`).

    Of a stream the last column counts the rows of the file in their order, and `at` is to be added to it: `$at`."""

    file: str
    table: str
    partition: int
    offset: int
    rows: int
    width: int
    at: int = 0


@dataclass(slots=True)
class Epoch:
    """Consolidated changes by table, at a time in microseconds since 1970; not changed once it is made.

    `refreshed` holds rows of tables with a time-to-live whose life begins anew although nothing about them changed.

    An epoch may also bring rows as sources gave them, in `sections` of files; a table that has some is in neither of
    the others: what these rows change is found when the epoch is run. `layout` names the partitions that they are for,
    and `early` says what becomes of deletions among them whose rows are not there, of tables where they are not just
    ignored. `source_positions` says how far sources have come, each by the number of its last batch that is in.

    `released` are the holds whose pending rows are given out in it. No record has that: a replay leaves rows pending.
    """

    number: int
    time: int
    deltas: dict[str, Batch]
    refreshed: dict[str, Codes] = field(default_factory=dict)
    sections: tuple[InputSection, ...] = ()
    source_positions: Mapping[str, int] = field(default_factory=dict)
    layout: str = ""
    early: Mapping[str, Literal["ignore", "hold", "error"]] = field(default_factory=dict)
    released: tuple[HoldKey, ...] = ()

    @property
    def has_inputs(self) -> bool:
        """Whether it brings more than exact changes, and is another kind of record in the log."""
        return bool(self.sections or self.source_positions or self.layout)
