"""Positions: which epoch of which history a client has reached.

The law: a position that a `HistoryLineage` knows names a state that this database was in. Whoever has a known position
can be brought up to date by changes; whoever has another one is given the state anew, and never merges two pasts.

Epochs are numbered from 1 in every history, so a number alone says too little: a folder that was copied, or cut back
after its disk failed, counts the same numbers again with other rows. Therefore a database has a *history*, an id that a
backup does not share, and each opening for writing begins an *era* of it, after the last epoch that was found. What an
earlier era has beyond that epoch is not part of this past.
"""

from __future__ import annotations

import re
import secrets
from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple

from whence.model.errors import DataError

HISTORY_DIGITS, ERA_DIGITS = 12, 8
"""The hexadecimal digits of the id of a history and of an era."""

_TEXT = re.compile(rf"([0-9a-f]{{{HISTORY_DIGITS}}})\.([0-9a-f]{{{ERA_DIGITS}}})\.(0|[1-9][0-9]{{0,18}})", re.ASCII)
_LAST = 2**63 - 1


class Position(NamedTuple):
    """An epoch of a database's history: what `str` makes of it is what clients store, and `parse` reads.

    history  the id of the database; a backup has another one
    era      the id of the opening for writing in which the epoch was last
    epoch    its number

    >>> position = whence.Position.parse("0123456789ab.00c0ffee.17")
    >>> position.epoch, str(position)
    (17, '0123456789ab.00c0ffee.17')
    """

    history: str
    era: str
    epoch: int

    def __str__(self) -> str:
        return f"{self.history}.{self.era}.{self.epoch}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Read what `str` wrote; DataError for anything else.

        >>> whence.Position.parse("yesterday")
        Traceback (most recent call last):
        whence.model.errors.DataError: 'yesterday' is not a position: those look like 0123456789ab.00c0ffee.17
        """
        found = _TEXT.fullmatch(text) if isinstance(text, str) else None
        if found is None or int(found[3]) > _LAST:
            raise DataError(f"{str(text)[:60]!r} is not a position: those look like 0123456789ab.00c0ffee.17")
        return cls(found[1], found[2], int(found[3]))

    def reaches(self, other: Position) -> bool:
        """Tell whether this is the same epoch as the other or a later one, of the same history.

        >>> at = whence.Position("0123456789ab", "00c0ffee", 17)
        >>> [at.reaches(whence.Position("0123456789ab", "bbbbbbbb", epoch)) for epoch in (16, 17, 18)]
        [True, True, False]
        """
        return self.history == other.history and self.epoch >= other.epoch


class Era(NamedTuple):
    """The time from an opening for writing to the next: its id, and the last epoch of the era before."""

    id: str
    start: int


NO_ERA = Era("0" * ERA_DIGITS, 0)
"""That of a database which has not been written to since its eras are noted: a backup, or a folder of an older version,
that is only read."""


@dataclass(frozen=True)
class HistoryLineage:
    """A history and its eras, oldest first: the newest 1,000. Each starts where the one before ended, or later.

    >>> ours = HistoryLineage("0123456789ab", (Era("aaaaaaaa", 0), Era("bbbbbbbb", 5)))
    >>> str(ours.at(4)), str(ours.at(5)), str(ours.at(9))
    ('0123456789ab.aaaaaaaa.4', '0123456789ab.bbbbbbbb.5', '0123456789ab.bbbbbbbb.9')
    >>> [ours.knows(Position(ours.history, "aaaaaaaa", epoch), last=9) for epoch in (4, 5, 6)]
    [True, True, False]
    >>> [ours.knows(Position(ours.history, "bbbbbbbb", epoch), last=9) for epoch in (9, 10)]
    [True, False]
    """

    history: str
    eras: tuple[Era, ...] = ()

    @classmethod
    def fresh(cls) -> HistoryLineage:
        """Return that of a new database: a history that no other has, and its first era."""
        return cls(secrets.token_hex(HISTORY_DIGITS // 2), (Era(secrets.token_hex(ERA_DIGITS // 2), 0),))

    @property
    def era(self) -> Era:
        """The current era."""
        return self._eras[-1]

    @property
    def _eras(self) -> tuple[Era, ...]:
        return self.eras or (NO_ERA,)

    def at(self, epoch: int) -> Position:
        """Return the position of an epoch: the epoch that an era starts after is that era's, too, and named so."""
        eras = self._eras
        place = bisect_right(eras, epoch, key=lambda era: era.start) - 1
        return Position(self.history, eras[max(place, 0)].id, epoch)

    def knows(self, position: Position, last: int) -> bool:
        """Tell whether a position is part of the past of a database whose last epoch is `last`."""
        if position.history != self.history:
            return False
        eras = self._eras
        for place, era in enumerate(eras):
            if era.id == position.era:
                end = eras[place + 1].start if place + 1 < len(eras) else last
                return 0 <= position.epoch <= end
        return False

    def continues(self, former: HistoryLineage, epoch: int) -> bool:
        """Tell whether a reader that is at an epoch of the former lineage's last era may go on with this one.

        >>> former = HistoryLineage("0123456789ab", (Era("aaaaaaaa", 0),))
        >>> now = HistoryLineage("0123456789ab", (Era("aaaaaaaa", 0), Era("bbbbbbbb", 5)))
        >>> now.continues(former, 5), now.continues(former, 6)
        (True, False)
        """
        if former.eras:
            return self.knows(Position(former.history, former.era.id, epoch), last=epoch)
        return self.history == former.history and (not self.eras or epoch <= self.eras[0].start)
