"""Match a rule body without one of its sources: what the others ask of it.

Law: `match_without(body, i, goals)` gives the matches of all sources but the i-th with the tests over them, for the
rows that are asked for; the columns of the i-th that equalities determine are filled in. So if the body has no match,
each match without i names a row of i that is all this body lacks, unless a test that could not be decided forbids it.
`find_demand` returns those rows as goals.

Without a source the others may fall into parts that nothing joins. Each part is matched alone, and at most `MOST`
combinations are looked at, the first ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whence.explain.derive.body_matcher import BodyMatcher, find_constant
from whence.explain.derive.parts import Mask, drop_duplicates, pair_equal
from whence.explain.derive.plan_evaluator import PlanEvaluator
from whence.explain.why_not.goals import Goals, is_unknown
from whence.model.codes import Codes, encode_value
from whence.model.errors import DataError, WhenceError
from whence.plan.algebra.expressions import Call, Col, Expr, Lit, columns_of, may_fail, substitute
from whence.plan.recursion.conjunctive import Body, Source, columns

MOST = 2_000  # combinations that are looked at


@dataclass(frozen=True)
class Match:
    """Matches of a body: its columns, those that are `filled`, which goal each is for, and the tests that are open."""

    rows: Codes
    filled: frozenset[int]
    goal: Codes
    undecided: tuple[Expr, ...]


@dataclass(frozen=True)
class Demand:
    """The rows that the other sources of a body ask of one of them, any of which would do, and the tests that such a
    row would still have to pass. If it is `sound`, each of them gives a match of the body."""

    goals: Goals
    undecided: tuple[Expr, ...]
    sound: bool


def find_classes(body: Body) -> list[int]:
    """Return for each column of a body the first of the columns that equalities make the same."""
    found = list(range(body.width))

    def root(c: int) -> int:
        while found[c] != c:
            c = found[c]
        return c

    for test in body.tests:
        match test:
            case Call(op="=" | "is_not_distinct", args=(Col() as a, Col() as b)) if a.type == b.type:
                one, other = sorted((root(a.index), root(b.index)))
                found[other] = one
    return [root(c) for c in range(body.width)]


def match_without(
    query: PlanEvaluator, body: Body, left_out: int | None, goals: Goals, skip: Expr | None = None
) -> Match | None:
    """Match all sources but one, without the test `skip`; None if there is no match."""
    work = _Work(query, body, goals)
    own = set(work.columns(left_out)) if left_out is not None else set[int]()
    tests = [t for t in body.tests if t is not skip]
    if not work.begin(tests):
        return None
    near = [t for t in tests if not columns_of(t) & own and not may_fail(t)]
    for part in _connected(body, near, [i for i in range(len(body.sources)) if i != left_out]):
        if not work.join(part, near):
            return None
    work.fill(own)
    undecided = work.decide(tests)
    return work.result(undecided) if len(work.rows) else None


def find_demand(query: PlanEvaluator, body: Body, number: int, goals: Goals) -> Demand | None:
    """Return what the other sources of a body ask of one; None if they have no match themselves.

    Rows that an absence would exclude are left out, as long as there are others."""
    match = match_without(query, body, number, goals)
    if match is None:
        return None
    rows, sound = match.rows, not match.undecided and all(isinstance(body.out[c], Col) for c in goals.cols)
    for absence in body.absences:
        read = {c for e in (*(e for e, _ in absence.keys), *absence.given) for c in columns_of(e)}
        if not read <= match.filled or is_unknown(rows[:, sorted(read)]).any():
            sound = False
            continue
        blocked, _ = BodyMatcher(query, body).blocked(absence, rows)
        if blocked.all():
            sound = False
        else:
            rows = rows[~blocked]
    start = body.offsets()[number]
    cols = tuple(c for c in range(len(body.sources[number].schema)) if start + c in match.filled)
    asked = Goals(cols, drop_duplicates(rows[:, [start + c for c in cols]]))
    return Demand(asked, match.undecided, sound)


class _Work:
    """Combinations of rows, while sources are joined to them."""

    def __init__(self, query: PlanEvaluator, body: Body, goals: Goals):
        self.query, self.body, self.goals = query, body, goals
        self.classes = find_classes(body)
        self.starts = body.offsets()
        self.rows: Codes = np.zeros((len(goals.values), body.width), np.int64)
        self.goal: Codes = np.arange(len(goals.values))
        self.known: dict[int, int] = {}  # class -> a column of `rows` that has its value
        self.filled: set[int] = set()

    def columns(self, number: int) -> range:
        return range(self.starts[number], self.starts[number] + len(self.body.sources[number].schema))

    def _keep(self, at: Codes | Mask) -> None:
        self.rows, self.goal = self.rows[at], self.goal[at]

    def _learn(self, column: int, values: Codes) -> None:
        """Set the value of a column's class, or keep the combinations that have it already."""
        known = self.known.get(self.classes[column])
        if known is None:
            self.known[self.classes[column]] = column
            self.rows[:, column] = values
            self.filled.add(column)
        else:
            self._keep(self.rows[:, known] == values)

    def begin(self, tests: Sequence[Expr]) -> bool:
        """Take the goals and the constants; return whether they agree."""
        for at, c in enumerate(self.goals.cols):
            if isinstance(expr := self.body.out[c], Col):
                self._learn(expr.index, self.goals.values[self.goal, at])
        for test in tests:
            if (pair := find_constant(test)) is not None:
                try:
                    code = encode_value(pair[1].value, pair[1].type, self.query.owner.dictionary)
                except DataError:
                    return False
                self._learn(pair[0].index, np.full(len(self.rows), code))
        return bool(len(self.rows))

    def join(self, part: list[int], tests: Sequence[Expr]) -> bool:
        """Join the matches of some sources; return whether there are any."""
        at = [c for i in part for c in self.columns(i)]
        place = {c: i for i, c in enumerate(at)}
        inside = [t for t in tests if columns_of(t) <= place.keys()]
        body = Body(
            tuple(self.body.sources[i] for i in part),
            tuple(substitute(t, lambda c: Col(c.type, place[c.index])) for t in inside),
            columns_over([self.body.sources[i] for i in part]),
        )
        shared = {self.classes[c]: c for c in reversed(at) if self.classes[c] in self.known}
        cols = [self.known[k] for k in shared]
        mine = self.rows[:, cols]
        wanted = ((tuple(place[c] for c in shared.values()), drop_duplicates(mine)),) if shared else ()
        found = [p.rows for p in BodyMatcher(self.query, body).match(wanted, bag=False)]
        theirs = np.concatenate(found) if found else np.empty((0, len(at)), np.int64)
        if not len(theirs):
            return False
        theirs = theirs if shared else theirs[:MOST]
        i, j = self._pairs(mine, theirs[:, [place[c] for c in shared.values()]])
        self._keep(i)
        self.rows[:, at] = theirs[j]
        self.filled |= set(at)
        for c in at:
            self.known.setdefault(self.classes[c], c)
        return bool(len(i))

    def _pairs(self, mine: Codes, theirs: Codes) -> tuple[Codes, Codes]:
        if mine.shape[1]:
            i, j = pair_equal(mine, theirs)
        else:
            few = max(1, MOST // len(theirs))
            i, j = np.divmod(np.arange(min(len(mine), few) * len(theirs)), len(theirs))
        return i[:MOST], j[:MOST]

    def fill(self, own: set[int]) -> None:
        """Fill in the columns that were left out, as far as equalities determine them."""
        for c in own:
            if (known := self.known.get(self.classes[c])) is not None:
                self.rows[:, c] = self.rows[:, known]
                self.filled.add(c)

    def decide(self, tests: Sequence[Expr]) -> list[Expr]:
        """Keep the combinations for which tests are true; return those that read a column that is not known."""
        undecided = []
        for test in tests:
            read = columns_of(test)
            if not read <= self.filled or self._is_unknown(test, read):
                undecided.append(test)
            elif len(self.rows):
                try:
                    self._keep(self.query.value(test, self.rows) == 1)
                except WhenceError:
                    undecided.append(test)
        return undecided

    def _is_unknown(self, test: Expr, read: set[int]) -> bool:
        """Return whether a test would look into a value that no row has."""
        match test:
            case Call(op="=" | "is_not_distinct" | "is_distinct" | "<>", args=(Col(), Col())):
                return False
        types = [c.type for s in self.body.sources for c in s.schema.columns]
        return any(types[c].needs_dictionary and is_unknown(self.rows[:, c]).any() for c in read)

    def result(self, undecided: list[Expr]) -> Match:
        return Match(self.rows, frozenset(self.filled), self.goal, tuple(undecided))


def columns_over(sources: Sequence[Source]) -> tuple[Expr, ...]:
    """Return the columns of some sources side by side."""
    found: list[Expr] = []
    for source in sources:
        found += columns(source.schema, len(found))
    return tuple(found)


def _connected(body: Body, tests: Sequence[Expr], sources: list[int]) -> list[list[int]]:
    """Return the sources in groups that tests join."""
    owner, group = body.owner(), {i: i for i in sources}
    for test in tests:
        met = sorted({group[owner[c]] for c in columns_of(test)})
        group = {i: met[0] if g in met else g for i, g in group.items()}
    return [[i for i in sources if group[i] == g] for g in sorted(set(group.values()))]


def restrict_body(body: Body, sources: list[int]) -> Body:
    """Return a body of some of its sources, with what is known of their columns through the others: constants, and the
    result's columns that equal one of theirs. Its other columns are NULL, its absences are gone."""
    classes, starts = find_classes(body), body.offsets()
    kept = [c for i in sources for c in range(starts[i], starts[i] + len(body.sources[i].schema))]
    place = {c: at for at, c in enumerate(kept)}
    same = {classes[c]: place[c] for c in reversed(kept)}

    def moved(c: Col) -> Expr:
        return Col(c.type, place[c.index])

    tests = [substitute(t, moved) for t in body.tests if columns_of(t) <= place.keys()]
    for test in body.tests:
        pair = find_constant(test)
        if pair is not None and pair[0].index not in place and classes[pair[0].index] in same:
            tests.append(Call(test.type, "=", (Col(pair[0].type, same[classes[pair[0].index]]), pair[1])))
    out = [
        Col(e.type, same[classes[e.index]]) if isinstance(e, Col) and classes[e.index] in same else Lit(e.type, None)
        for e in body.out
    ]
    return Body(tuple(body.sources[i] for i in sources), tuple(tests), tuple(out))
