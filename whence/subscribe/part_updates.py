"""How one query changed with an update, and what is known of its rows as of that update.

The law: `rows`, `row` and `final` are as of the update, also when later ones have come: by the rows less what came
since, and by the horizons of then. What nobody asks for is not worked out: rows are indexed, and followed until they
are final, from the first question on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from whence.model.errors import DataError
from whence.model.types import Kind, Schema
from whence.subscribe.horizons import NO_HORIZONS, HorizonView
from whence.subscribe.known_rows import KnownRow, RowState
from whence.subscribe.plain import column_from_plain
from whence.subscribe.relation_facts import FinalRows, RelationFacts
from whence.subscribe.row_bags import GoneRows, RowBag

Row = tuple[Any, ...]
_SHOWN = 3


class PartUpdate:
    """How one query changed (`Update` of several queries has one for each).

    came     rows that came, in no particular order; a row that came twice is there twice
    went     rows that went
    final    rows that have become final since the update before, also without changing
    columns  the names of the columns
    why      with `why=True`: per row that came or went, its witnesses, each a list of base rows

    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", (1,))
    >>> [update] = db.subscribe({"a": "SELECT x FROM a", "b": "SELECT COUNT(*) AS n FROM a"})
    >>> update["a"].came, update["a"].went, update["a"].columns, update["b"].rows
    ([(1,)], [], ['x'], [(1,)])
    """

    def __init__(
        self,
        schema: Schema,
        came: list[Row],
        went: list[Row],
        bag: RowBag,
        key: Sequence[str] | None = None,
        why: Mapping[Row, Any] | None = None,
        time: int = 0,
        knowing: KnownPart | None = None,
    ) -> None:
        self.came, self.went, self.columns = came, went, list(schema.names)
        self.why: Mapping[Row, Any] = why or {}
        self._schema, self._key, self._bag, self._time = schema, key, bag, time
        self._rows: list[Row] | None = None
        self._later: PartUpdate | None = None
        self._lost = False  # whether single changes before it are
        self._final: list[Row] | None = None
        self._knowing = knowing or KnownPart()
        self._number = 0
        self._horizons: HorizonView
        self._horizons_before: HorizonView
        self._knowing.note(self)

    @property
    def rows(self) -> list[Row]:
        """The state that the update leaves.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); subscription = db.subscribe("a")
        >>> _ = db.insert("a", (1,)); [first] = subscription
        >>> _ = db.delete("a", (1,)); [second] = subscription; first.rows, second.rows
        ([(1,)], [])
        """
        if self._rows is None:
            if self._later is None:
                self._rows = self._bag.rows
            else:
                bag, later = self._bag.copy(), list[PartUpdate]()
                at: PartUpdate | None = self._later
                while at is not None:
                    later.append(at)
                    at = at._later
                for part in reversed(later):
                    bag.apply(part.came, part.went)
                self._rows = bag.rows
        return self._rows

    @property
    def changed(self) -> list[tuple[Any, Row | None, Row | None]]:
        """With `key=`: per key that changed, its row before and after; None where there is none.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (id INT PRIMARY KEY, x TEXT)")
        >>> subscription = db.subscribe("a", key="id"); _ = list(subscription)
        >>> _ = db.insert("a", (1, "old")); _ = list(subscription); _ = db.insert("a", (1, "new"))
        >>> [update] = subscription; update.changed
        [(1, (1, 'old'), (1, 'new'))]
        """
        if self._key is None:
            raise DataError("changed is for a subscription with key=, the columns that identify a row")
        at = [self.columns.index(name) for name in self._key]

        def key_of(row: Row) -> Any:
            return row[at[0]] if len(at) == 1 else tuple(row[i] for i in at)

        before, after = {key_of(row): row for row in self.went}, {key_of(row): row for row in self.came}
        return [(key, before.get(key), after.get(key)) for key in dict.fromkeys([*before, *after])]

    @property
    def final(self) -> list[Row]:
        """The rows that have become final since the update before: those that came so, and those that were there and
        cannot change any more, since what they stand on is closed.

        >>> db = whence.open(); _ = db.execute("CREATE STREAM trade (at INT, price INT) WITH (ordered = 'at')")
        >>> hourly = db.subscribe("SELECT at // 60 AS hour, MAX(price) AS high FROM trade GROUP BY 1")
        >>> _ = list(hourly); _ = db.insert("trade", [(10, 80), (59, 70)]); [update] = hourly; update.final
        []
        >>> _ = db.insert("trade", (61, 50)); [update] = hourly; update.came, update.final
        ([(1, 50)], [(0, 80)])
        """
        if self._final is None:
            self._final = self._knowing.final_rows(self)
        return self._final

    def row(self, key: Any = None, /, **columns: Any) -> KnownRow:
        """Return what is known of a row: whether it is there, may still come or go, and what its values can become.

        `key` is the value of the key's column, a tuple of them, or a dict of columns; columns can also be given by
        name. The key is that of `key=`; without, what the query groups by, or the primary key. A query that has one row
        needs none.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (id INT PRIMARY KEY, x TEXT)")
        >>> _ = db.insert("a", (1, "one")); [update] = db.subscribe("a")
        >>> update.row(1)["x"], update.row(id=1)["x"], update.row(2).state
        ('one', 'one', 'may come')
        """
        given = self._read_key(key, columns)
        places = tuple(given)
        wanted = tuple(given.values())
        found = self._find(places, wanted)
        if len(found) > 1:
            shown = ", ".join(f"{self.columns[place]} = {value!r:.60}" for place, value in given.items())
            raise DataError(f"{len(found)} rows have {shown}: name more columns")
        known = {self.columns[place]: value for place, value in given.items()}
        if found:
            return self.known_row(found[0])
        facts, was_there = self._knowing.facts, self._knowing.gone.has(places, wanted, self._number)
        may_come = facts is None or facts.may_come(given, self._horizons, was_there)
        state: RowState = "withdrawn" if was_there else "may come" if may_come else "finally absent"
        if self._lost and may_come:
            state = "lost"
        return KnownRow(self.columns, state, None, known, (), not may_come, False, may_come, self._time)

    def known_row(self, row: Row) -> KnownRow:
        """Return what is known of a row that is there, given its values.

        >>> db = whence.open(); _ = db.execute("CREATE STREAM a (x INT)"); _ = db.insert("a", (1,))
        >>> [update] = db.subscribe("SELECT COUNT(*) AS n FROM a"); print(update.known_row(update.came[0]))
        n ≥ 1
        """
        facts, whole = self._knowing.facts, self._knowing.whole(row)
        if facts is None or whole is None:
            return KnownRow(self.columns, "present", row, {}, (), False, True, False, self._time)
        known = facts.evaluate(whole, self._horizons)
        return KnownRow(self.columns, "present", row, {}, known.bounds, known.is_final, known.may_go, False, self._time)

    def _read_key(self, key: Any, columns: Mapping[str, Any]) -> dict[int, Any]:
        """Return the values that a row is asked for by, by the places of their columns, in order."""
        given = dict(columns)
        if isinstance(key, Mapping):
            given |= key
        elif key is not None:
            names = self._key_columns()
            values = tuple(key) if isinstance(key, (tuple, list)) else (key,)
            if names is None or len(names) != len(values):
                what = "no key is known" if names is None else f"the key is {', '.join(names)}"
                raise DataError(f"{what}: give the values by column, or subscribe with key=")
            given |= dict(zip(names, values, strict=True))
        elif not given and self._key_columns() is not None:
            raise DataError("row takes the key of a row, or values by column")
        missing = [name for name in given if name not in self.columns]
        if missing:
            raise DataError(f"there is no column {', '.join(missing)}; there is {', '.join(self.columns)}")
        places = sorted((self.columns.index(name), value) for name, value in given.items())
        return {place: self._read_value(value, place) for place, value in places}

    def _key_columns(self) -> list[str] | None:
        if self._key is not None:
            return list(self._key)
        facts = self._knowing.facts
        return None if facts is None or not facts.key else [self.columns[place] for place in facts.key]

    def _read_value(self, value: Any, place: int) -> Any:
        """Return a value as rows have it: dates, times and numbers may be texts."""
        type = self._schema.types[place]
        return column_from_plain([value], type)[0] if isinstance(value, str) and type.kind is not Kind.TEXT else value

    def _find(self, places: tuple[int, ...], key: Row) -> list[Row]:
        if self._later is None:
            _ = self._bag.known or self._bag.rows  # an error, if rows are not known
            return self._bag.find(places, key)
        return list({row: None for row in self.rows if tuple(row[place] for place in places) == key})

    def __bool__(self) -> bool:
        """Return whether anything came or went."""
        return bool(self.came or self.went)

    def __repr__(self) -> str:
        return f"<{_shown('came', self.came)}, {_shown('went', self.went)}>"


class KnownPart:
    """What is known of one query at the subscriber: facts, the horizons as of the last update, rows that went, and the
    columns behind the shown ones, where facts need some."""

    def __init__(self, facts: RelationFacts | None = None) -> None:
        self.gone = GoneRows()
        self._number = 0
        self.describe(facts)

    def describe(self, facts: RelationFacts | None) -> None:
        """Begin with other facts: the query was redefined, or its history replaced."""
        self.facts = facts
        self.horizons: HorizonView = NO_HORIZONS
        self._before: HorizonView = NO_HORIZONS
        self._hidden: dict[Row, dict[Row, int]] | None = {} if facts is not None and facts.has_extras else None
        self._finals: FinalRows | None = None  # from the first time on that somebody asks
        self._whole: tuple[Sequence[Row], Sequence[Row]] | None = None  # the last change, with hidden columns

    def begin(self, horizons: HorizonView) -> None:
        """Go on from a position with these horizons."""
        self.horizons = self._before = horizons

    def note(self, part: PartUpdate) -> None:
        """Begin an update."""
        self._number += 1
        part._number, part._horizons, part._horizons_before = self._number, self.horizons, self._before
        self._before = self.horizons
        if part.went:
            self.gone.note(self._number, part.went)
        if self._finals is not None:
            went, came = self._whole or (part.went, part.came)
            final = self._finals.follow(went, came, self.horizons)
            part._final = self.shown(final) if self._hidden is None else self._newly(final, went, part._horizons_before)
        self._whole = None

    def _newly(self, final: Sequence[Row], went: Sequence[Row], before: HorizonView) -> list[Row]:
        """Return what is seen of rows that are final, without those that were so before with other hidden columns."""
        assert self.facts is not None
        known = Counter(self.shown([row for row in went if self.facts.evaluate(row, before).is_final]))
        return list((Counter(self.shown(final)) - known).elements())

    def final_rows(self, part: PartUpdate) -> list[Row]:
        """Return the rows that became final with an update, and follow those of the last one from then on."""
        facts, horizons, before = self.facts, part._horizons, part._horizons_before
        if facts is None:
            return []
        left, found = Counter(part.came), list[Row]()
        for row in part.rows if horizons is not before else part.came:
            whole = self.whole(row)
            if whole is None or not facts.evaluate(whole, horizons).is_final:
                continue
            if left[row]:
                left[row] -= 1
                found.append(row)
            elif not facts.evaluate(whole, before).is_final:
                found.append(row)
        if part._later is None:
            self._finals = FinalRows(facts, self._all(part), horizons)
        return found

    # -- columns behind the shown ones -------------------------------------------------------------------------------

    @property
    def has_hidden(self) -> bool:
        """Whether rows are received with columns that are not shown."""
        return self._hidden is not None

    def hide(self, went: Sequence[Row], came: Sequence[Row]) -> tuple[list[Row], list[Row]]:
        """Take in rows with all columns that went and came; return what of it is seen."""
        assert self._hidden is not None
        self._whole = went, came
        width = self._width
        for row in came:
            rows = self._hidden.setdefault(row[:width], {})
            rows[row] = rows.get(row, 0) + 1
        for row in went:
            rows = self._hidden.get(row[:width], {})
            rows[row] = rows.get(row, 0) - 1
            if rows[row] <= 0:
                del rows[row]
                if not rows:
                    self._hidden.pop(row[:width], None)
        old, new = Counter(self.shown(went)), Counter(self.shown(came))
        return list((old - new).elements()), list((new - old).elements())

    def hide_all(self, rows: Sequence[Row]) -> list[Row]:
        """Have these rows, with all columns; return what of them is seen."""
        if self._hidden is None:
            return list(rows)
        self._hidden, self._finals = {}, None
        seen = self.hide((), rows)[1]
        self._whole = None
        return seen

    def whole(self, row: Row) -> Row | None:
        """Return a row with the columns that are not shown; None if it is not there any more."""
        return row if self._hidden is None else next(iter(self._hidden.get(row, ())), None)

    def shown(self, rows: Sequence[Row]) -> list[Row]:
        """Return rows without the columns that are not shown."""
        return list(rows) if self._hidden is None else [row[: self._width] for row in rows]

    @property
    def _width(self) -> int:
        assert self.facts is not None
        return self.facts.shown

    def _all(self, part: PartUpdate) -> list[Row]:
        if self._hidden is None:
            return part.rows
        return [row for rows in self._hidden.values() for row, times in rows.items() for _ in range(times)]


def _shown(what: str, rows: Sequence[Row]) -> str:
    some = ", ".join(f"{row!r:.60}" for row in rows[:_SHOWN])
    return f"{len(rows):,} {what}" + (f" ({some}{', …' * (len(rows) > _SHOWN)})" if rows else "")
