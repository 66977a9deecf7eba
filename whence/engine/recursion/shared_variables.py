"""What annotations that travel need beyond those that stay: names that all partitions give alike, and what is new."""

from __future__ import annotations

import numpy as np

from whence.annotate import Provenance as Functions
from whence.engine.core.image import with_room
from whence.engine.exchange.wire import MessageReader, MessageWriter
from whence.engine.recursion.annotations import Annotations
from whence.engine.recursion.row_variables import RowVariables
from whence.model.codes import Codes
from whence.model.errors import DataError


class SharedNames(RowVariables):
    """Names of rows of local relations, the same for all that hold the rows of one `origin`; in letters a row is the
    number of its origin and as many cells as that has (`widths`)."""

    def __init__(self, columns: int, origin: Codes, widths: Codes):
        super().__init__(columns)
        self._origin, self._widths = origin, widths

    def of(self, relations: Codes, cells: Codes) -> Codes:
        return super().of(self._origin[relations], cells)

    def find(self, relations: Codes, cells: Codes) -> Codes:
        return super().find(self._origin[relations], cells)

    def of_others(self, origins: Codes, cells: Codes) -> Codes:
        """The names of rows that another partition speaks of."""
        return super().of(origins, cells)

    def known(self, origins: Codes, cells: Codes) -> Codes:
        """The same, -1 for rows that nothing here mentions."""
        return super().find(origins, cells)

    def write(self, packet: MessageWriter, names: Codes) -> MessageWriter:
        """The rows with these names, for others."""
        origins, cells = self.rows(names)
        return packet.numbers(origins).numbers(cells[self._used(origins)])

    def read(self, packet: MessageReader) -> tuple[Codes, Codes]:
        """The origins and cells of rows that another partition has written; DataError if it cannot have."""
        origins, written = packet.numbers(), packet.numbers()
        if len(origins) and not 0 <= int(origins.min()) <= int(origins.max()) < len(self._widths):
            raise DataError("a letter from another partition speaks of a relation that is not there")
        used = self._used(origins)
        if len(written) != np.count_nonzero(used):
            raise DataError("a letter from another partition has names of a wrong length")
        cells = np.zeros((len(origins), self.columns), np.int64)
        cells[used] = written
        return origins, cells

    def _used(self, origins: Codes) -> np.ndarray:
        used: np.ndarray = np.arange(self.columns) < self._widths[origins][:, None]
        return used


class Gaining(Annotations):
    """Annotations that note what slots have come to show, for eager senders; to be cleared when it is sent."""

    def __init__(self, algebra: Functions, lazy: bool):
        super().__init__(algebra, lazy)
        self.gained = np.zeros(64, np.int64)

    def make_room(self, slots: int) -> None:
        super().make_room(slots)
        if len(self.gained) < len(self.shown):
            self.gained = with_room(self.gained, len(self.shown))

    def put(self, slots: Codes, shown: Codes) -> None:
        super().put(slots, shown)
        self.gained[slots] = 0

    def _merge_eagerly(self, rows: Codes, found: Codes, starts: Codes) -> Codes:
        found = self.algebra.total(found, starts)
        more = self.algebra.plus(self.gained[rows], found)
        changed = super()._merge_eagerly(rows, found, np.arange(len(rows)))
        mine = np.isin(rows, changed)
        self.gained[rows[mine]] = more[mine]
        return changed

    @property
    def touched(self) -> int:
        """How many slots an epoch has changed so far."""
        return self._logged

    def undo(self) -> None:
        super().undo()
        self.gained[:] = 0

    def moved(self, places: Codes) -> None:
        super().moved(places)
        self.gained = np.zeros_like(self.shown)

    def _roots(self) -> Codes:
        return np.concatenate([self.gained[: self.slots], super()._roots()])

    def _take(self, handles: Codes) -> None:
        self.gained[: self.slots] = handles[: self.slots]
        super()._take(handles[self.slots :])
