"""A condition that a subscription waits for: kept at every epoch, while the view that it is about may be held.

`db.subscribe("v", when="SELECT COUNT(*) > 10 FROM cases")`: when the condition turns true, the view is refreshed in
that epoch, within its bound, and the subscriber is told what changed since it was told last. While the condition stays
true, and after it has turned false, nothing more is told until it turns true again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from whence.model.codes import Codes
from whence.model.errors import DataError, WhenceError
from whence.model.types import Kind
from whence.model.word_marks import WordMarks
from whence.runtime.subscriptions.queries import parse_subscription
from whence.sql.parameters import Params

if TYPE_CHECKING:
    from whence.runtime.coordinator import Coordinator

log = logging.getLogger("whence")
_TRUE = 1  # the code of the BOOLEAN


class Trigger:
    """Refreshes relations whenever a condition turns true. A feed of the condition (`reading/changes.py`)."""

    def __init__(self, coordinator: Coordinator, condition: str, params: Params | None, names: Sequence[str]) -> None:
        self._coordinator, self._names = coordinator, tuple(names)
        self._channel = coordinator.hub.open([parse_subscription(condition, params)], extras=False)
        self.ended: str | None = None  # why the condition is not kept any more
        self._epoch: int | None = None  # when it turned true, if that has not been told
        try:
            (part,) = self._channel.parts
            self.name = part.name
            self._check()
            with coordinator.looking():
                rows, counts = coordinator.reader.contents(self.name)
                self._true = int(counts[rows[:, 0] == _TRUE].sum())
                coordinator.feeds.add(self)
                if self._true > 0:
                    self._epoch = coordinator.epoch
        except BaseException:
            coordinator.hub.release(self._channel)
            raise

    def _check(self) -> None:
        schema, coordinator = self._channel.parts[0].schema, self._coordinator
        if [type.kind for type in schema.types] != [Kind.BOOLEAN]:
            raise DataError(
                f"when is a query of one BOOLEAN, such as SELECT COUNT(*) > 10 FROM cases, not one of {schema}"
            )
        with coordinator.looking():
            if coordinator.held.is_behind(self.name):
                raise DataError(
                    "when reads a view that is held, and a condition is kept at every epoch: read its tables"
                )

    def due(self, told: int) -> int | None:
        """Return the epoch that is to be told, of those up to `told`; None if the condition has not turned true."""
        if self.ended is not None:
            raise WhenceError(f"the condition is not kept any more: {self.ended}")
        return self._epoch if self._epoch is not None and self._epoch <= told else None

    def done(self, epoch: int) -> None:
        """Note that an epoch was told."""
        if self._epoch is not None and self._epoch <= epoch:
            self._epoch = None

    def close(self) -> None:
        """Stop waiting for the condition."""
        self._coordinator.feeds.remove(self)
        self._coordinator.hub.release(self._channel)

    # -- as a feed ---------------------------------------------------------------------------------------------------

    def push(self, epoch: int, rows: Codes, counts: Codes) -> None:
        """Take the change of the condition in an epoch."""
        before = self._true
        self._true += int(counts[rows[:, 0] == _TRUE].sum())
        if before <= 0 < self._true:
            try:
                self._coordinator.held.refresh(*self._names)
            except WhenceError as error:  # whoever reads the view is told, too
                log.warning("a condition has turned true, but %s is not refreshed: %s", ", ".join(self._names), error)
            self._epoch = epoch

    def mark_words(self, marks: WordMarks) -> None:
        """Mark nothing: a truth value has no words."""

    def decode(self, codes: Codes) -> None:
        """Do nothing, for the same reason."""

    def end(self, why: str = "", forget: bool = False) -> None:
        """Note that the condition is not kept any more."""
        self.ended = why or "the database was closed"
