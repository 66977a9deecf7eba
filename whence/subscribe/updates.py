"""Updates: what a subscriber iterates over, the same in this process and over the network.

The law: `update.rows` is the state as of `update.position`; it is the state before, less `went`, plus `came`. An update
that replaces the state (`restarted`) says how the new one differs from the one before, too.

A `RowBag` holds the rows of one query at the subscriber. An update keeps only what changed: the rows as of an update
that is no longer the last are found by taking back the later ones, which it refers to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from whence.model.errors import DataError, WhenceError
from whence.model.types import Schema
from whence.subscribe.positions import Position

Row = tuple[Any, ...]
_SHOWN = 3
_WITNESSES = 10_000  # rows whose witnesses are remembered


class RowBag:
    """The rows of one query that a subscriber has, each as often as it is there.

    >>> bag = RowBag(); bag.replace([(1,), (1,), (2,)])
    ([], [(1,), (1,), (2,)])
    >>> bag.apply([(1,)], [(3,)]); bag.rows
    [(1,), (2,), (3,)]
    >>> bag.replace([(3,), (4,)])
    ([(1,), (2,)], [(4,)])
    """

    def __init__(self, known: bool = True) -> None:
        """`known` is False if the subscriber goes on from a position whose rows it has not given."""
        self.known = known
        self._counts: Counter[Row] = Counter()

    def apply(self, went: Sequence[Row], came: Sequence[Row]) -> None:
        """Take rows away and add others."""
        counts = self._counts
        for row in went:
            left = counts[row] - 1
            if left > 0:
                counts[row] = left
            else:
                del counts[row]
                if left < 0 and self.known:
                    raise WhenceError(f"an update takes away {row!r:.200}, which is not there: subscribe again")
        for row in came:
            counts[row] += 1

    def replace(self, rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
        """Have these rows; return what went and what came by that."""
        new = Counter(rows)
        went, came = list((self._counts - new).elements()), list((new - self._counts).elements())
        self._counts, self.known = new, True
        return went, came

    @property
    def rows(self) -> list[Row]:
        """The rows."""
        if not self.known:
            raise WhenceError("the rows at the position given as have= are not known here: give them as rows=, too")
        return list(self._counts.elements())

    def copy(self) -> RowBag:
        found = RowBag(self.known)
        found._counts = self._counts.copy()
        return found


class PartUpdate:
    """How one query changed (`Update` of several queries has one for each).

    came     rows that came, in no particular order; a row that came twice is there twice
    went     rows that went
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
    ) -> None:
        self.came, self.went, self.columns = came, went, list(schema.names)
        self.why: Mapping[Row, Any] = why or {}
        self._key, self._bag = key, bag
        self._rows: list[Row] | None = None
        self._later: PartUpdate | None = None

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

    def __bool__(self) -> bool:
        """Return whether anything came or went."""
        return bool(self.came or self.went)

    def __repr__(self) -> str:
        return f"<{_shown('came', self.came)}, {_shown('went', self.went)}>"


class Update(PartUpdate):
    """A change of a subscription (`Database.subscribe`, `Client.subscribe`): true at its position, and net since the
    update before.

    position   where it leads (`Position`); give it as have= to go on from there
    time       the time of that epoch, in microseconds since 1970
    came, went, columns, why  as in `PartUpdate`: of the first query, if there are several
    restarted  why the state was sent anew, if it was: 'begin', 'behind', 'redefined', 'restarted' (another history) or
               'rights'; came and went are then the difference to the rows before. Else an empty text
    lost       with every_change: the positions between which single changes are lost, or None
    parts      the changes of all queries, in their order

    `update[name]` is the part of a query that was given with a name.

    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", [(1,), (2,)])
    >>> subscription = db.subscribe("SELECT x FROM a WHERE x > 1")
    >>> [update] = subscription; update.came, update.restarted, update.position.epoch
    ([(2,)], 'begin', 1)
    >>> _ = db.delete("a", (2,)); [update] = subscription; update.came, update.went, update.rows, update.lost
    ([], [(2,)], [], None)
    """

    def __init__(
        self,
        position: Position,
        time: int,
        parts: Sequence[PartUpdate],
        names: Sequence[str],
        restarted: str = "",
        lost: tuple[Position, Position] | None = None,
    ) -> None:
        first = parts[0]
        self.came, self.went, self.columns, self.why = first.came, first.went, first.columns, first.why
        self.position, self.time, self.restarted, self.lost = position, time, restarted, lost
        self.parts = list(parts)
        self._names = list(names)

    def __getitem__(self, name: str) -> PartUpdate:
        """Return the change of a query by its name.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT)"); _ = db.insert("a", (1,))
        >>> [update] = db.subscribe({"all": "a"}); update["all"].came
        [(1,)]
        """
        if name not in self._names:
            raise DataError(f"no query of this subscription is called {name!r:.80}; there is {', '.join(self._names)}")
        return self.parts[self._names.index(name)]

    @property
    def rows(self) -> list[Row]:
        """The state that the update leaves, of the first query."""
        return self.parts[0].rows

    @property
    def changed(self) -> list[tuple[Any, Row | None, Row | None]]:
        """With `key=`: per key that changed, its row before and after, of the first query.

        >>> db = whence.open(); _ = db.execute("CREATE TABLE a (id INT PRIMARY KEY, x TEXT)")
        >>> _ = db.insert("a", (1, "new")); [update] = db.subscribe("a", key="id"); update.changed
        [(1, None, (1, 'new'))]
        """
        return self.parts[0].changed

    def __bool__(self) -> bool:
        return any(self.parts)

    def __repr__(self) -> str:
        what = "; ".join(
            f"{name} {part!r}" if len(self.parts) > 1 else repr(part)
            for name, part in zip(self._names, self.parts, strict=True)
        )
        return f"<update at epoch {self.position.epoch}: {what}{f', {self.restarted}' * bool(self.restarted)}>"


class SubscribedRows:
    """The rows of a subscription's queries at the subscriber, moved from update to update."""

    def __init__(
        self, names: Sequence[str], key: str | Sequence[str] | None = None, rows: Sequence[Sequence[Row]] | None = None
    ) -> None:
        """`rows` are those of each query at the position that the subscription goes on from."""
        self.names = list(names)
        self.key = None if key is None else [key] if isinstance(key, str) else list(key)
        self.position: Position | None = None
        self.schemas: list[Schema] = []
        self._bags = [RowBag(known=rows is not None) for _ in self.names]
        for bag, given in zip(self._bags, rows or (), strict=rows is not None):
            bag.replace(list(given))
        self._last: list[PartUpdate | None] = [None] * len(self.names)
        self._witnesses: list[dict[Row, Any]] = [{} for _ in self.names]
        self._lost: tuple[Position, Position] | None = None

    @property
    def first_rows(self) -> list[Row]:
        """The rows of the first query."""
        return self._bags[0].rows

    def unchanged(self) -> Update:
        """Return an update that says that nothing has changed since the last one."""
        assert self.position is not None
        return self._make(self.position, 0, [([], [], None) for _ in self.names], "")

    def describe(self, schemas: Sequence[Schema]) -> None:
        """Note the columns of the queries."""
        self.schemas = list(schemas)
        for schema in schemas if self.key is not None else ():
            missing = [name for name in self.key or () if name not in schema.names]
            if missing:
                raise DataError(f"key: there is no column {', '.join(missing)} in {schema}")

    def lose(self, since: Position, upto: Position) -> None:
        """Note that single changes between two positions are lost; the next update says so."""
        self._lost = (self._lost[0] if self._lost else since, upto)

    def update(
        self, position: Position, time: int, changes: Sequence[tuple[list[Row], list[Row], Sequence[Any] | None]]
    ) -> Update:
        """Apply what went and came, with the witnesses of what came, and return it as an update."""
        for bag, (went, came, _) in zip(self._bags, changes, strict=True):
            bag.apply(went, came)
        return self._make(position, time, changes, "")

    def replace(
        self, position: Position, time: int, states: Sequence[tuple[Sequence[Row], Sequence[Any] | None]], reason: str
    ) -> Update:
        """Have another state, and return the difference to the rows before as an update."""
        changes = []
        for bag, (rows, why) in zip(self._bags, states, strict=True):
            known = dict(zip(rows, why, strict=False)) if why else {}
            went, came = bag.replace(rows)
            changes.append((went, came, [known.get(row) for row in came] if why else None))
        return self._make(position, time, changes, reason)

    def _make(
        self,
        position: Position,
        time: int,
        changes: Sequence[tuple[list[Row], list[Row], Sequence[Any] | None]],
        reason: str,
    ) -> Update:
        parts = []
        for i, (went, came, why) in enumerate(changes):
            explained = self._explain(self._witnesses[i], went, came, why)
            part = PartUpdate(self.schemas[i], came, went, self._bags[i], self.key, explained)
            last, self._last[i] = self._last[i], part
            if last is not None:
                last._later = part
            parts.append(part)
        self.position = position
        lost, self._lost = self._lost, None
        return Update(position, time, parts, self.names, reason, lost)

    @staticmethod
    def _explain(
        known: dict[Row, Any], went: Sequence[Row], came: Sequence[Row], why: Sequence[Any] | None
    ) -> dict[Row, Any]:
        """Return the witnesses of rows that came, and of those that went the ones that they had last."""
        found = {row: known.pop(row) for row in went if row in known}
        if why is not None:
            fresh = {row: given for row, given in zip(came, why, strict=False) if given is not None}
            found |= fresh
            known |= fresh
            while len(known) > _WITNESSES:
                del known[next(iter(known))]
        return found


def named_queries(
    queries: str | Mapping[str, str] | Sequence[str],
) -> tuple[list[str], list[str]]:
    """Return the names and the texts of a subscription's queries.

    >>> named_queries("SELECT 1"), named_queries({"a": "t", "b": "u"}), named_queries(["t", "u"])
    ((['rows'], ['SELECT 1']), (['a', 'b'], ['t', 'u']), (['t', 'u'], ['t', 'u']))
    """
    if isinstance(queries, str):
        return ["rows"], [queries]
    if isinstance(queries, Mapping):
        names, texts = list(queries), list(queries.values())
    else:
        texts = list(queries)
        names = list(texts)
    if not texts or not all(isinstance(text, str) for text in [*names, *texts]) or len(set(names)) < len(names):
        raise DataError("subscribe takes a query or a name of a view, or a dict of names and queries")
    return names, texts


def _shown(what: str, rows: Sequence[Row]) -> str:
    some = ", ".join(f"{row!r:.60}" for row in rows[:_SHOWN])
    return f"{len(rows):,} {what}" + (f" ({some}{', …' * (len(rows) > _SHOWN)})" if rows else "")
