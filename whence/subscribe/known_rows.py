"""Known rows: what an update says of one key, and of each value what it can still become.

The law: bounds are evaluated with the horizons as of the update's position, never with later ones. So the final value
lies in all bounds that were ever shown, and bounds only shrink from update to update.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal

from whence.model.errors import DataError
from whence.plan.knowledge.bounds import ANYTHING, Bounds

Row = tuple[Any, ...]
RowState = Literal["present", "may come", "withdrawn", "finally absent", "lost"]


class BoundsByColumn(Mapping[str, tuple[Any, Any]]):
    """By column the lowest and the highest value that it can still have; None where there is no bound."""

    def __init__(self, columns: Sequence[str], bounds: Sequence[Bounds]) -> None:
        self._columns, self._bounds = columns, bounds

    def __getitem__(self, name: str) -> tuple[Any, Any]:
        return self.of(name).pair

    def of(self, name: str) -> Bounds:
        """Return the bounds of a column, which also tell whether it can be NULL."""
        if name not in self._columns:
            raise DataError(f"there is no column {name!r:.80}; there is {', '.join(self._columns)}")
        return self._bounds[self._columns.index(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return repr(dict(self))


class KnownRow:
    """What is known of one row, by its key (`Update.row`).

    state     'present', 'may come' (it is not there), 'withdrawn' (the subscriber saw it go), 'finally absent', or
              'lost': whether it was there is among the changes that are lost
    values    its values, a tuple; None if it is not there
    bounds    by column the lowest and the highest value that it can still have, None where there is no bound
    is_final  whether nothing of it changes any more: it stays as it is, or never comes
    may_go    whether it is there and may still go
    may_come  whether it is not there and may still come
    columns   the names of the columns
    texts     by column what is known, in words: '= 80', '≥ 80', '4–6', '12.5 @ 10:32'

    `row["high"]` is a value as of the update; None if the row is not there.

    >>> db = whence.open()
    >>> _ = db.execute("CREATE STREAM trade (issue TEXT, price INT)")
    >>> subscription = db.subscribe("SELECT issue, MAX(price) AS high FROM trade GROUP BY issue")
    >>> _ = db.insert("trade", ("ACME", 80)); update = list(subscription)[-1]
    >>> row = update.row("ACME"); row.state, row["high"], row.bounds["high"], row.is_final
    ('present', 80, (80, None), False)
    >>> print(row); print(update.row("ZINC"))
    issue = ACME, high ≥ 80
    issue = ZINC: not there, may come
    """

    __slots__ = ("_known", "_time", "bounds", "columns", "is_final", "may_come", "may_go", "state", "values")

    def __init__(
        self,
        columns: Sequence[str],
        state: RowState,
        values: Row | None,
        known: Mapping[str, Any],
        bounds: Sequence[Bounds],
        is_final: bool,
        may_go: bool,
        may_come: bool,
        time: int = 0,
    ) -> None:
        """`known` are the values of the key."""
        self.columns, self.state, self.values = list(columns), state, values
        self.bounds = BoundsByColumn(self.columns, bounds or [ANYTHING] * len(columns))
        self.is_final, self.may_go, self.may_come = is_final, may_go, may_come
        self._known, self._time = dict(known), time

    def __getitem__(self, name: str) -> Any:
        if name not in self.columns:
            raise DataError(f"there is no column {name!r:.80}; there is {', '.join(self.columns)}")
        return self._known.get(name) if self.values is None else self.values[self.columns.index(name)]

    @property
    def texts(self) -> dict[str, str]:
        if self.values is None:
            return {name: f"= {_shown(self._known[name])}" if name in self._known else "–" for name in self.columns}
        pairs = zip(self.columns, self.values, strict=True)
        return {name: cell_text(value, self.bounds.of(name), self._time) for name, value in pairs}

    def is_plain(self, name: str) -> bool:
        """Return whether nothing is to be said of a column beside its value: it is final, or anything is possible.

        >>> db = whence.open(); _ = db.execute("CREATE STREAM a (x INT)"); _ = db.insert("a", (1,))
        >>> [update] = db.subscribe("SELECT x, COUNT(*) AS n FROM a GROUP BY x")
        >>> update.row(1).is_plain("x"), update.row(1).is_plain("n")
        (True, False)
        """
        bounds = self.bounds.of(name)
        return bounds.is_final or isinstance(self[name], bool) or bounds.pair == (None, None)

    def __bool__(self) -> bool:
        """Return whether the row is there."""
        return self.values is not None

    def __str__(self) -> str:
        texts = self.texts
        if self.values is None:
            key = ", ".join(f"{name} {texts[name]}" for name in self._known)
            return f"{key}: {self._words()}" if key else self._words()
        shown = ", ".join(f"{name} {texts[name]}" for name in self.columns)
        return f"{shown}; final" if self.is_final else f"{shown}; may go" if self.may_go else shown

    def _words(self) -> str:
        match self.state:
            case "withdrawn":
                return "withdrawn, may come again" if self.may_come else "withdrawn for good"
            case "finally absent":
                return "not there, and will not come"
            case "lost":
                return "not there; what happened to it meanwhile is lost"
        return "not there, may come"

    def __repr__(self) -> str:
        return f"<row {self}>"


def cell_text(value: Any, bounds: Bounds, time: int) -> str:
    """Return what is known of a value as of a time, in microseconds since 1970, in words.

    >>> from whence.plan.knowledge.bounds import UNDECIDED, at_least
    >>> cell_text(80, at_least(80), 0), cell_text(True, UNDECIDED, 60_000_000), cell_text(2.5, ANYTHING, 0)
    ('≥ 80', 'true @ 00:01', '2.5')
    """
    if bounds.is_final:
        return f"= {_shown(value)}"
    is_bounded = bounds.some and not (bounds.low is None and bounds.high is None) and not isinstance(value, bool)
    if is_bounded:
        return bounds.text()
    return _shown(value) + _at(time)


def _shown(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case Decimal():
            return f"{value:f}"
    return str(value)


def _at(time: int) -> str:
    if time <= 0:
        return ""
    at = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=time)
    return f" @ {at:%H:%M:%S}" if at.second else f" @ {at:%H:%M}"
