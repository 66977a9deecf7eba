"""Match the body of a rule: rows of its sources that fit together, taken up source by source.

A body (`plan/recursion/conjunctive.py`) is matched from where most is known: a source is read only for the values that
are asked for and for those that the sources before it lead to. Each match knows the rows it came from. `why` takes
every source up at once (`match`); `why not` does it step by step, to say where nothing is left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from whence.engine.relational.lateral import TableCall
from whence.explain.derive.graph_builder import number_distinct
from whence.explain.derive.grouped_query import find_same_code
from whence.explain.derive.parts import (
    SIDEWAYS,
    Mask,
    Part,
    Wanted,
    drop_duplicates,
    keep_wanted,
    match_wanted,
    pair_equal,
    restrict_wanted,
)
from whence.explain.derive.sources import Absent, Given
from whence.model.codes import NULL, Codes, encode_value
from whence.model.types import Column, Schema
from whence.plan.algebra.expressions import Call, Col, Expr, Lit, columns_of, may_fail, shift
from whence.plan.recursion.conjunctive import Absence, Body, Derived, Function

if TYPE_CHECKING:
    from whence.explain.derive.plan_evaluator import PlanEvaluator


class Key(NamedTuple):
    """An equality between sources that were taken up and the next one."""

    test: Call
    taken: Expr
    next: Expr


class BodyMatcher:
    """The matches of one body. `found` has them so far, with the columns of the sources that are not `left`."""

    def __init__(self, query: PlanEvaluator, body: Body):
        self.query, self.body = query, body
        self.starts = body.offsets()
        self.left = list(range(len(body.sources)))
        self.taken: set[int] = set()  # columns
        self.tests = list(body.tests)  # that are still to be decided
        self.found = [Part(np.zeros((1, body.width), np.int64), np.ones(1, np.int64), [])]
        self._columns = {id(t): columns_of(t) for t in self.tests}
        self._equal = list(_equalities(self.tests))
        self._number: dict[int, int] = {}  # the source of the body that rows are referred to in, by identity

    def columns(self, number: int) -> range:
        """Return the body's columns of a source."""
        return range(self.starts[number], self.starts[number] + len(self.body.sources[number].schema))

    # -- all at once -------------------------------------------------------------------------------------------------

    def match(self, wanted: Wanted, bag: bool, outer: bool = False) -> list[Part]:
        """Return the wanted rows of the body. `outer`: its absences are what an outer join pads."""
        down, after = self._over_sources(wanted)
        known = {c for cols, _ in down for c in cols}
        late = [t for t in self.tests if may_fail(t)]
        self.tests = [t for t in self.tests if not may_fail(t)] if late else self.tests
        for test in self.ready():  # constants
            self.decide(test)
        order = []
        while self.left and self.found:
            number = self.choose(known)
            order.append(number)
            if isinstance(self.body.sources[number], Function):
                self._call(number)
            else:
                parts = self.read(number, (*restrict_wanted(down, self.columns(number)), *self._sideways(number)), bag)
                self.join(number, self._own(number, parts))
            for test in self.ready():
                self.decide(test)
        for absence in self.body.absences:
            self._exclude(absence, wanted, outer)
        for test in late:  # over rows that everything else has let through, as in the plan
            self.decide(test)
        found = self.found if order == sorted(order) else map(self._in_order, self.found)
        return keep_wanted([p.with_rows(self.query.values(self.body.out, p.rows)) for p in found], after)

    def _in_order(self, part: Part) -> Part:
        """Order matches as if the sources had been taken up in their order."""
        refs = sorted(part.refs, key=lambda ref: self._number[id(ref[0])])
        part = Part(part.rows, part.weight, refs)
        return part.take(np.lexsort([places for _, places in reversed(refs)])) if refs else part

    def _over_sources(self, wanted: Wanted) -> tuple[Wanted, Wanted]:
        """Return what is wanted of the body's columns, constants included, and what is left to look at in the end."""
        down, after = [], []
        for cols, values in wanted:
            plain = [(i, at) for i, c in enumerate(cols) if (at := find_same_code(self.body.out[c])) is not None]
            if plain:
                own = values if len(plain) == len(cols) else drop_duplicates(values[:, [i for i, _ in plain]])
                down.append((tuple(at for _, at in plain), own))
            if len(plain) < len(cols) or len(self.body.sources) > 1:
                after.append((cols, values))
        for test in self.body.tests:
            if (pair := find_constant(test)) is not None:
                code = encode_value(pair[1].value, pair[1].type, self.query.owner.dictionary)
                down.append(((pair[0].index,), np.array([[code]], np.int64)))
        return tuple(down), tuple(after)

    def _sideways(self, number: int) -> Wanted:
        """Return what the matches so far want of a source: the values of the columns it is joined on."""
        keys = [(k.taken, at) for k in self.keys(number) if (at := find_same_code(k.next)) is not None]
        if not keys or sum(len(p.rows) for p in self.found) > SIDEWAYS:
            return ()
        values = np.concatenate([self.query.values([e for e, _ in keys], p.rows) for p in self.found])
        return ((tuple(at - self.starts[number] for _, at in keys), drop_duplicates(values)),)

    def _own(self, number: int, parts: list[Part]) -> list[Part]:
        """Decide the tests that are over one source alone, before it is joined."""
        for test in [t for t in self.tests if self._columns[id(t)] <= set(self.columns(number))]:
            self.tests = [t for t in self.tests if t is not test]
            parts = [self._passing(shift(test, -self.starts[number]), p) for p in parts]
        return parts

    def _passing(self, test: Expr, part: Part) -> Part:
        return part.take(np.flatnonzero(self.query.value(test, part.rows) == 1))

    # -- step by step ------------------------------------------------------------------------------------------------

    def choose(self, known: Collection[int]) -> int:
        """Take the number of the next source off those left: what is joined first, then of what most is known."""

        def preference(number: int) -> tuple[int, int, int]:
            return len(self.keys(number)), sum(c in known for c in self.columns(number)), -number

        # A function is called only for the rows that it was called for.
        ready = [n for n in self.left if n == self.left[0] or not isinstance(self.body.sources[n], Function)]
        number = max(ready, key=preference) if len(ready) > 1 else ready[0]
        self.left.remove(number)
        return number

    def keys(self, number: int) -> list[Key]:
        """Return the equalities between what was taken up and a source."""
        own = set(self.columns(number))
        return [
            k
            for k, of_a, of_b in self._equal
            if of_b <= own and of_a <= self.taken and any(k.test is t for t in self.tests)
        ]

    def read(self, number: int, wanted: Wanted, bag: bool = False) -> list[Part]:
        """Return the wanted rows of a source."""
        source = self.body.sources[number]
        assert not isinstance(source, (Derived, Function))
        return self.query.parts(source.node, wanted, bag)

    def join(self, number: int, parts: list[Part]) -> None:
        """Take up the rows of a source that fit."""
        start, keys, found = self.starts[number], self.keys(number), []
        null_safe = [k.test.op != "=" for k in keys]
        theirs = [self.query.values([shift(k.next, -start) for k in keys], p.rows) for p in parts]
        first = not self.taken
        for state in self.found if not first else ():
            mine = self.query.values([k.taken for k in keys], state.rows)
            for part, values in zip(parts, theirs, strict=True):
                i, j = pair_keys(mine, values, null_safe)
                if len(i):
                    rows, refs = state.rows[i], [(s, p[i]) for s, p in state.refs] + [(s, p[j]) for s, p in part.refs]
                    rows[:, start : start + part.rows.shape[1]] = part.rows[j]
                    found.append(Part(rows, state.weight[i] * part.weight[j], refs))
        self.found = found if not first else [self._begin(p, start) for p in parts if len(p.rows)]
        self._number |= {id(s): number for p in parts for s, _ in p.refs}
        self.taken |= set(self.columns(number))
        self.tests = [t for t in self.tests if all(t is not k.test for k in keys)]

    def _begin(self, part: Part, start: int) -> Part:
        """Return the rows of the first source as matches."""
        if part.rows.shape[1] == self.body.width:
            return part
        rows = np.zeros((len(part.rows), self.body.width), np.int64)
        rows[:, start : start + part.rows.shape[1]] = part.rows
        return part.with_rows(rows)

    def _call(self, number: int) -> None:
        """Take up the rows that a table function yields."""
        function = self.body.sources[number]
        assert isinstance(function, Function)
        if any(t.needs_dictionary for t in function.schema.types):
            self.query.own_words()
        call = TableCall(function.name, function.function, function.args, function.schema, self.query.owner.dictionary)
        found = []
        for part in self.found:
            at, made = call(np.ascontiguousarray(part.rows))
            part = part.take(np.asarray(at, np.int64))
            part.rows[:, self.columns(number)] = made
            found.append(part)
        self.found = found
        self.taken |= set(self.columns(number))

    def ready(self) -> list[Expr]:
        """Return the tests that can be decided."""
        return [t for t in self.tests if self._columns[id(t)] <= self.taken]

    def decide(self, test: Expr) -> None:
        """Keep the matches for which a test is true."""
        self.tests = [t for t in self.tests if t is not test]
        self.found = [p for part in self.found if len((p := self._passing(test, part)).rows)]

    # -- absences ----------------------------------------------------------------------------------------------------

    def blocked(self, absence: Absence, rows: Codes) -> tuple[Mask, Codes]:
        """Return which matches an absence excludes, and the values it compares."""
        hit, values = np.zeros(len(rows), bool), self._compared(absence, rows)
        for _, at, _ in self._pairs(absence, values):
            hit[at] = True
        return hit, values

    def excluding(self, absence: Absence, rows: Codes) -> Codes:
        """Return the rows because of which an absence excludes one of the matches."""
        pairs = self._pairs(absence, self._compared(absence, rows))
        found = [np.empty((0, len(absence.node.schema)), np.int64), *(part.rows[at] for part, _, at in pairs)]
        return drop_duplicates(np.concatenate(found))

    def _compared(self, absence: Absence, rows: Codes) -> Codes:
        return self.query.values((*(e for e, _ in absence.keys), *absence.given), rows)

    def _pairs(self, absence: Absence, values: Codes) -> Iterator[tuple[Part, Codes, Codes]]:
        """Yield the rows that must not be there, with the positions of a match and of a row that excludes it."""
        query, cols = self.query, tuple(c for _, c in absence.keys)
        keys, given = values[:, : len(cols)], values[:, len(cols) :]
        few = bool(cols) and len(keys) <= SIDEWAYS
        for part in query.parts(absence.node, ((cols, drop_duplicates(keys)),) if few else ()):
            i, j = pair_keys(keys, part.rows[:, list(cols)], [absence.null_safe] * len(cols))
            if absence.residual is not None:
                both = np.concatenate([part.rows[j], given[i]], axis=1)
                true = query.value(absence.residual, both) == 1
                i, j = i[true], j[true]
            yield part, i, j

    def _exclude(self, absence: Absence, wanted: Wanted, outer: bool) -> None:
        """Keep the matches that an absence does not exclude, which stand on it."""
        query, node, cols = self.query, absence.node, tuple(c for _, c in absence.keys)
        name, kept = query.name_of(node), []
        schema = Schema(tuple(node.schema.columns[c] for c in cols) or self._named(absence.given))
        for part in self.found:
            hit, values = self.blocked(absence, part.rows)
            if match_wanted(query.values(self.body.out, part.rows[hit]), wanted).any():
                query.doubt(
                    "losing rows of what EXCEPT takes away lets more through"
                    if absence.null_safe
                    else f"losing rows of {name} could let more through, since they keep others away"
                )
            if (idle := self._idle(absence, values)).any():
                kept.append(part.take(np.flatnonzero(idle)))
                part, hit, values = part.take(np.flatnonzero(~idle)), hit[~idle], values[~idle]
            if not hit.all():
                number, first = number_distinct(values := values[~hit, : len(cols) or None])
                key = (node.node if isinstance(node, Given) else node, cols, absence.residual)
                source = Absent(query, f"no {name}", key, schema, values[first], node)
                self._number[id(source)] = len(self.starts)
                kept.append(part.take(np.flatnonzero(~hit)).and_also(source, number))
        self.found = kept
        if kept and query.owner.is_volatile(node):
            forbidden = "" if outer else " that must not be there"
            query.doubt(
                "losing rows may bring about rows that EXCEPT takes away"
                if absence.null_safe
                else f"rows of {name}{forbidden} may appear when others are lost"
            )

    def _idle(self, absence: Absence, values: Codes) -> Mask:
        """Return for which matches an absence holds whatever rows there are: its condition is over their own values
        alone, and not true."""
        width = len(absence.node.schema)
        if absence.keys or absence.residual is None or min(columns_of(absence.residual), default=0) < width:
            return np.zeros(len(values), bool)
        idle: Mask = self.query.value(shift(absence.residual, -width), values) != 1
        return idle

    def _named(self, exprs: tuple[Expr, ...]) -> tuple[Column, ...]:
        own = [c for s in self.body.sources for c in s.schema.columns]
        return tuple(
            own[e.index] if isinstance(e, Col) else Column(f"c{i}", e.type) for i, e in enumerate(exprs, len(own))
        )


def _equalities(tests: list[Expr]) -> Iterator[tuple[Key, set[int], set[int]]]:
    """Yield the equalities among some tests, either way round, with the columns of their two sides."""
    for test in tests:
        match test:
            case Call(op="=" | "is_not_distinct", args=(a, b)) if a.type == b.type:
                of_a, of_b = columns_of(a), columns_of(b)
                if of_a and of_b:
                    yield Key(test, a, b), of_a, of_b
                    yield Key(test, b, a), of_b, of_a


def find_constant(test: Expr) -> tuple[Col, Lit] | None:
    """Return the column and the constant that a test says are equal."""
    if isinstance(test, Call) and test.op == "=" and len(test.args) == 2:
        a, b = test.args if isinstance(test.args[0], Col) else test.args[::-1]
        if isinstance(a, Col) and isinstance(b, Lit) and b.value is not None and a.type == b.type:
            return a, b
    return None


def pair_keys(left: Codes, right: Codes, null_safe: list[bool]) -> tuple[Codes, Codes]:
    """Return the positions of all pairs of equal rows; a NULL equals nothing in columns that are not `null_safe`."""
    i, j = pair_equal(left, right)
    strict = [c for c, safe in enumerate(null_safe) if not safe]
    if strict:
        present = (left[i][:, strict] != NULL).all(axis=1)
        i, j = i[present], j[present]
    return i, j
