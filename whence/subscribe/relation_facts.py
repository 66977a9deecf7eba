"""Relation facts: what is known of the rows of a query, ready to be asked at a subscriber or a server.

`RelationFacts` evaluates the knowledge that the compiler has derived (`plan/knowledge`) for rows, for keys that are not
there, and says which events can make rows final (`open_rows.py`). `FinalRows` follows the rows of one subscriber.

The law: what is claimed with the horizons of a position is true of every later one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from whence.plan.knowledge.bounds import Bounds
from whence.plan.knowledge.checks import Places, narrow_by_checks, rising_columns
from whence.plan.knowledge.model import Branch, Operation, RelationKnowledge, SourceFacts, Term, Variable
from whence.plan.knowledge.terms import bound, column_bounds, growths_in, walk
from whence.plan.knowledge.truths import may_be_true
from whence.subscribe.cells import RowKnowledge, about_absent, evaluate
from whence.subscribe.growth import CLOSED, after, possible_keys, remaining_rows
from whence.subscribe.horizons import Bound, HorizonView
from whence.subscribe.open_rows import ClosingEvent, OpenRows, Values
from whence.subscribe.plain import plain_value

Row = tuple[Any, ...]


class RelationFacts:
    """What is known of one relation.

    knowledge  as the compiler derived it
    key        the columns that identify a row; empty if none do
    deciding   the columns whose values decide when a row is final"""

    def __init__(self, knowledge: RelationKnowledge) -> None:
        self.knowledge, self.key = knowledge, knowledge.key
        used = sorted({each for term in (*knowledge.cells, *knowledge.presence) for each in growths_in(term)})
        self._growths = [knowledge.growths[each] for each in used]
        width = len(knowledge.columns) + len(knowledge.extras)
        columns = {column for growth in self._growths for column in growth.columns}
        self.deciding = tuple(sorted(column for column in columns if column < width))

    @property
    def shown(self) -> int:
        """How many columns of a row are shown; those behind them are only for bounds."""
        return len(self.knowledge.columns)

    @property
    def has_extras(self) -> bool:
        """Whether rows have columns behind the shown ones."""
        return bool(self.knowledge.extras)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RelationFacts) and self.knowledge == other.knowledge

    def __hash__(self) -> int:
        return hash(self.knowledge.columns)

    def evaluate(self, row: Row, horizons: HorizonView) -> RowKnowledge:
        """Return what a row can still become; `row` has the columns behind the shown ones, too."""
        return evaluate(self.knowledge, row[: self.shown], row[self.shown :], horizons)

    def may_come(self, given: Mapping[int, Any], horizons: HorizonView, was_there: bool) -> bool:
        """Return whether a row that is not there, with these values by column, may still come."""
        return about_absent(self.knowledge, given, horizons, was_there=was_there) == "may come"

    def is_closed(self, values: Values, horizons: HorizonView) -> bool:
        """Return whether horizons make rows with some deciding values final."""
        known = dict(zip(self.deciding, values, strict=True))
        return all(
            remaining_rows(self.knowledge, each, {c: known[c] for c in each.columns if c in known}, horizons) is CLOSED
            for each in self._growths
        )

    def decides(self, row: Row) -> Values:
        """Return the values of a row that decide when it is final."""
        return tuple(row[column] for column in self.deciding)

    def coming(self, horizons: HorizonView) -> dict[str, Any]:
        """Return which rows can still come, as plain values: whether any (`comes`), and the `ways` in which one can.

        A way has by column the lowest and the highest value and whether it may be NULL (`within`), where something is
        known; and, if a stream closes keys, the number of the stream and the columns that are its key (`closes`)."""
        growth, ways = self.knowledge.growths[self.knowledge.growth], list[dict[str, Any]]()
        for branch, base, bounds in possible_keys(self.knowledge, growth, horizons):
            pairs = zip(growth.columns, bounds, strict=True)
            within = {
                self.knowledge.columns[column]: [plain_value(each.low), plain_value(each.high), each.null]
                for column, each in pairs
                if column < self.shown and each.some and not each.is_open
            }
            closes = self._closing_columns(growth.columns, branch, base)
            way = {"within": within} | ({} if closes is None else {"closes": [str(branch.bases[base]), *closes]})
            if way not in ways:
                ways.append(way)
        return {"comes": bool(ways), "ways": ways}

    def _closing_columns(self, columns: Sequence[int], branch: Branch, base: int) -> list[str] | None:
        """Return the shown columns that are the key which a source closes; None if they are not."""
        source, equal = self.knowledge.sources[branch.bases[base]], _equalities(branch)
        found = []
        for closing in source.closes:
            same = equal(Variable(source.columns[closing].type, base, closing))
            column = next((c for c, term in zip(columns, branch.keys, strict=True) if term in same), self.shown)
            if column >= self.shown:
                return None
            found.append(self.knowledge.columns[column])
        return found or None

    @cached_property
    def events(self) -> list[ClosingEvent]:
        """What may make rows final that do not change; `places` are those in `deciding`."""
        found = dict[Any, ClosingEvent]()
        for growth in self._growths:
            for branch in growth.branches:
                for base, use in enumerate(branch.bases):
                    for event in self._events_of(self.deciding, growth.columns, branch, base, use):
                        found.setdefault((event.use, event.kind, event.places, growth.columns, branch), event)
        return list(found.values())

    def _events_of(
        self, deciding: Sequence[int], columns: Sequence[int], branch: Branch, base: int, use: int
    ) -> Iterator[ClosingEvent]:
        source = self.knowledge.sources[use]
        if not source.is_stream:
            return
        keys = [
            (deciding.index(c), term)
            for c, term in zip(columns, branch.keys, strict=False)
            if term is not None and c in deciding
        ]
        equal = _equalities(branch)
        if source.ordered is not None:
            coming = _ComingRows(source, base, use, equal)
            for place, term in keys:
                if coming.moves(term):
                    passed = partial(coming.lowest, term)
                    yield ClosingEvent(use, "passes", (place,), _Remembered(use, passed))
            yield ClosingEvent(use, "ends", (), _Remembered(use, partial(coming.are_over, branch)))
        if source.closes:
            variables = [Variable(source.columns[c].type, base, c) for c in source.closes]
            places = [next((p for p, term in keys if term in equal(each)), None) for each in variables]
            if None not in places:
                yield ClosingEvent(use, "closes", tuple(p for p in places if p is not None))


class FinalRows:
    """The rows of a subscriber that are not final yet."""

    def __init__(self, facts: RelationFacts, rows: Sequence[Row], horizons: HorizonView) -> None:
        self._facts = facts
        self._open = OpenRows(facts.events, lambda _, row, at: facts.evaluate(row, at).is_final)
        self.follow((), rows, horizons)

    def follow(self, went: Sequence[Row], came: Sequence[Row], horizons: HorizonView) -> list[Row]:
        """Take in how the rows changed, and the horizons; return the rows that became final."""
        facts, found = self._facts, list[Row]()
        for row in came:
            if facts.evaluate(row, horizons).is_final:
                found.append(row)
            else:
                self._open.add(facts.decides(row), row)
        for row in went:
            self._open.add(facts.decides(row), row, -1)
        return found + self._open.advance(horizons)


class _Remembered:
    """What a function of one horizon gave for its last value: it is asked often, and the horizon seldom moves."""

    __slots__ = ("_function", "_last", "_use")

    def __init__(self, use: int, function: Callable[[HorizonView], Any]) -> None:
        self._use, self._function = use, function
        self._last: tuple[Bound | None, Any] | None = None

    def __call__(self, horizons: HorizonView) -> Any:
        bound, last = horizons.bound(self._use), self._last
        if last is None or last[0] != bound:
            last = self._last = bound, self._function(horizons)
        return last[1]


def _equalities(branch: Branch) -> Callable[[Variable], set[Variable]]:
    """Return what gives the variables that are equal to a variable in the rows of a branch."""
    classes: list[set[Variable]] = []
    for condition in branch.where:
        if isinstance(condition, Operation) and condition.op == "=":
            pair = {arg for arg in condition.args if isinstance(arg, Variable)}
            if len(pair) == 2:
                touched = [each for each in classes if each & pair]
                classes = [each for each in classes if each not in touched] + [set.union(pair, *touched)]
    return lambda variable: next((each for each in classes if variable in each), {variable})


class _ComingRows:
    """The rows of a source that can still come: what their columns can be, given its horizon."""

    def __init__(self, source: SourceFacts, base: int, use: int, equal: Callable[[Variable], set[Variable]]) -> None:
        self._source, self._base, self._use = source, base, use
        variables = {c: Variable(source.columns[c].type, base, c) for c in range(len(source.columns))}
        self._columns = {each: column for column, variable in variables.items() for each in equal(variable)}
        self._moving = {each for column in rising_columns(source) for each in equal(variables[column])}

    def moves(self, term: Term) -> bool:
        """Return whether a term moves with the horizon."""
        return any(part in self._moving for part in walk(term))

    def _places(self, horizons: HorizonView) -> Places | None:
        """Return what the columns of a row to come can be; None if none can come."""
        source, base = self._source, self._base
        assert source.ordered is not None
        places = {(base, number): column_bounds(column) for number, column in enumerate(source.columns)}
        ordered, reached = places[base, source.ordered].not_null(), horizons.bound(self._use)
        if ordered is not None and reached is not None:
            type = source.columns[source.ordered].type
            low = after(reached[0], type) if reached[1] else reached[0]
            ordered = ordered.common(Bounds(low, None, null=False))
        if ordered is None:
            return None
        places[base, source.ordered] = ordered
        return places if narrow_by_checks(places, source, base) else None

    def _resolve(self, places: Places, term: Term) -> Bounds:
        column = self._columns.get(term) if isinstance(term, Variable) else None
        return Bounds() if column is None else places[self._base, column]

    def lowest(self, term: Term, horizons: HorizonView) -> Any:
        """Return the lowest value that a key can still have in rows to come; None if it can have any."""
        places = self._places(horizons)
        return None if places is None else bound(term, partial(self._resolve, places)).low

    def are_over(self, branch: Branch, horizons: HorizonView) -> bool:
        """Return whether no row of a branch can come any more."""
        places = self._places(horizons)
        if places is None:
            return True
        return any(not may_be_true(bound(each, partial(self._resolve, places))) for each in branch.where)
