"""Why a row is not in a view: which of its conditions fails first.

A query is read as ways to the row: sources side by side, tests over them, absences. Each way is followed source by
source, beginning where the row says most, and test by test, until nothing is left; what took the last rows away is the
reason. A group that has other values, or a row outside a LIMIT, says so itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from whence.engine.core.dataflow import Dataflow
from whence.explain.derive.bodies import Body, Source, bodies
from whence.explain.derive.extract import Extractor
from whence.explain.derive.parts import Wanted, pairs
from whence.explain.derive.peeling import peeled
from whence.explain.derive.streams import reads_streams
from whence.explain.derive.wording import said, value_text
from whence.model.codes import NULL, Codes, Dictionary, decode_value, encode_value
from whence.model.errors import DataError
from whence.model.types import Schema
from whence.plan.algebra.expressions import Col, Expr, columns_of
from whence.plan.algebra.logical import Aggregate, Node, TopK
from whence.plan.algebra.program import Program

_NOWHERE = -1  # the code of a text that was never met: no row has it
_MOST = 8  # ways that are told


def why_not(
    flow: Dataflow, program: Program, planned: Program, dictionary: Dictionary, name: str, given: Mapping[str, Any]
) -> list[str]:
    """What stands in the way of a row that is not in a table or view, in sentences, one for each way to it."""
    asked = _Asked(Extractor(flow, program, planned, dictionary))
    if name in program.tables:
        schema = program.tables[name].schema
        return [asked.nothing(name, schema, _codes(given, schema, dictionary), flow.tables[name].contents().rows)]
    view = program.views[name]
    if streams := reads_streams(view.query, program, planned):
        return [f"there is no such row now; {name} is made of what comes in {', '.join(streams)}"]
    return asked.view(name, view.query, view.schema, _codes(given, view.schema, dictionary))


@dataclass(frozen=True)
class _Value:
    code: int
    text: str


def _codes(given: Mapping[str, Any], schema: Schema, dictionary: Dictionary) -> dict[int, _Value]:
    """The values that were given, by column."""
    found = {}
    for column, value in given.items():
        at = schema.names.index(column)
        scratch = Dictionary()
        code = encode_value(value, schema.types[at], scratch)
        known = scratch.translated(code, schema.types[at], dictionary)
        code = _NOWHERE if known is None else known
        found[at] = _Value(code, value_text(value))
    return found


@dataclass
class _Rows:
    """What is left of a way so far: rows of the sources taken up, side by side in the body's columns."""

    rows: Codes
    story: str
    taken: set[int] = field(default_factory=set)  # columns that are filled


class _Asked:
    """One question."""

    def __init__(self, extractor: Extractor):
        self.extractor = extractor

    @property
    def dictionary(self) -> Dictionary:
        return self.extractor.dictionary

    def view(self, name: str, query: Node, schema: Schema, given: dict[int, _Value]) -> list[str]:
        """One sentence for each way to a row of a view."""
        top = peeled(query, lambda name: None)
        if isinstance(top, tuple):
            return self._group(name, schema, *top, given)
        if isinstance(query, TopK):
            inner = self._rows_of(query.input, given)
            if len(inner):
                return [f"the row is there, but outside the first {query.limit} rows that {name} keeps"]
            query = query.input
        ways = bodies(query, self.extractor)
        told = []
        for number, body in enumerate(ways[:_MOST], 1):
            sentence = self._way(body, given, schema)
            names = ", ".join(dict.fromkeys(s.name for s in body.sources)) or "constants"
            told.append(f"way {number} of {len(ways)}, by {names}: {sentence}" if len(ways) > 1 else sentence)
        if len(ways) > _MOST:
            told.append(f"and {len(ways) - _MOST} more ways")
        return told

    # -- rows --------------------------------------------------------------------------------------------------------

    def _rows_of(self, node: Node, given: Mapping[int, _Value]) -> Codes:
        """The rows of a query that have the given values."""
        wanted: Wanted = tuple(((c,), np.array([[v.code]], np.int64)) for c, v in given.items())
        parts = self.extractor.query.parts(node, wanted)
        return np.concatenate([p.rows for p in parts]) if parts else np.empty((0, len(node.schema)), np.int64)

    def nothing(self, name: str, schema: Schema, given: dict[int, _Value], rows: Codes) -> str:
        """Which of the values no row has together with those before."""
        if not len(rows):
            return f"{name} is empty"
        had: list[str] = []
        for column, value in given.items():
            left = rows[rows[:, column] == value.code]
            text = f"{schema.names[column]} = {value.text}"
            if not len(left):
                if not had:
                    return f"{name} has no row with {text}"
                return f"{name} has {_rows(len(rows))} with {' and '.join(had)}, but none with {text}"
            had.append(text)
            rows = left
        return f"{name} has no row with {' and '.join(had)}"

    # -- a way -------------------------------------------------------------------------------------------------------

    def _way(self, body: Body, given: dict[int, _Value], schema: Schema) -> str:
        """Follow a way until nothing is left."""
        known = body.known({e.index: v for c, v in given.items() if isinstance(e := body.out[c], Col)}, self._literal)
        if known is None:
            return "its conditions exclude the row whatever the tables hold"
        starts = body.starts()
        so_far = _Rows(np.empty((1, body.width), np.int64), "")
        left = list(range(len(body.sources)))
        tests = list(body.tests)
        while left:
            at = max(left, key=lambda i: self._preference(body, i, starts[i], known, so_far.taken))
            left.remove(at)
            reason = self._take_up(body, body.sources[at], starts[at], known, so_far)
            if reason:
                return reason
            for test in [t for t in tests if columns_of(t) <= so_far.taken]:
                tests.remove(test)
                reason = self._test(body, test, so_far)
                if reason:
                    return reason
        for absence in body.absences:
            blocked = self._blocked(absence.node, absence.match, so_far.rows, body.width)
            if blocked.all():
                name = self.extractor.query.name_of(absence.node)
                return f"{so_far.story}, but {name} has a row that excludes {_them(len(so_far.rows))}"
            so_far.rows = so_far.rows[~blocked]
        for column, value in given.items():
            if not isinstance(expr := body.out[column], Col):
                made = self.extractor.query.value(expr, so_far.rows)
                if not (made == value.code).any():
                    other = value_text(decode_value(int(made[0]), expr.type, self.dictionary))
                    return f"{so_far.story or 'it is a constant'}, but then {schema.names[column]} is {other}"
                so_far.rows = so_far.rows[made == value.code]
        return f"{so_far.story}, but not all of it together"

    def _literal(self, value: Any, type: Any) -> _Value:
        try:
            return _Value(encode_value(value, type, self.dictionary), value_text(value))
        except DataError:
            return _Value(_NOWHERE, value_text(value))

    def _preference(
        self, body: Body, number: int, start: int, known: Mapping[int, _Value], taken: set[int]
    ) -> tuple[int, int, int]:
        columns = range(start, start + len(body.sources[number].schema))
        joins = sum((a in columns and b in taken) or (b in columns and a in taken) for a, b, _ in body.equal)
        return joins, sum(c in known for c in columns), -number

    def _take_up(self, body: Body, source: Source, start: int, known: Mapping[int, _Value], so_far: _Rows) -> str:
        """Join one more source; what it says if nothing is left."""
        own = {c - start: v for c, v in known.items() if start <= c < start + len(source.schema)}
        rows = self._rows_of(source.node, own)
        names = [source.schema.names[c] for c in own]
        described = ", ".join(f"{n} = {v.text}" for n, v in zip(names, own.values(), strict=True))
        if not len(rows):
            nothing = self.nothing(source.name, source.schema, dict(own), self._rows_of(source.node, {}))
            return f"{so_far.story}, but {nothing}" if so_far.story else nothing
        columns = range(start, start + len(source.schema))
        keys = [
            (a, b, safe) if b in columns else (b, a, safe)
            for a, b, safe in body.equal
            if (a in so_far.taken and b in columns) or (b in so_far.taken and a in columns)
        ]
        if keys:
            mine, other = so_far.rows[:, [a for a, _, _ in keys]], rows[:, [b - start for _, b, _ in keys]]
            i, j = pairs(mine, other)
            plain = [k for k, (_, _, safe) in enumerate(keys) if not safe]
            fits = (mine[i][:, plain] != NULL).all(axis=1)
            i, j = i[fits], j[fits]
        else:
            i, j = np.repeat(np.arange(len(so_far.rows)), len(rows)), np.tile(np.arange(len(rows)), len(so_far.rows))
        if not len(i):
            on = ", ".join(f"{body.name(b)} = {body.name(a)}" for a, b, _ in keys)
            with_ = f" with {described}" if described else ""
            return f"{so_far.story}, but none of those joins a row of {source.name}{with_} ({on})"
        joined = so_far.rows[i].copy()
        joined[:, start : start + len(source.schema)] = rows[j]
        so_far.rows = joined
        so_far.taken |= set(columns)
        with_ = f" with {described}" if described else ""
        if so_far.story:
            so_far.story += f", joined with {source.name}{with_}"
        else:
            so_far.story = f"{source.name} has {_rows(len(rows))}{with_}"
        return ""

    def _test(self, body: Body, test: Expr, so_far: _Rows) -> str:
        passing = self.extractor.query.value(test, so_far.rows) == 1
        if passing.any():
            so_far.rows = so_far.rows[passing]
            return ""
        shown = []
        for column in sorted(columns_of(test)):
            type = body.column(column).type
            shown.append(
                f"{body.name(column)} = {value_text(decode_value(int(so_far.rows[0, column]), type, self.dictionary))}"
            )
        example = f" ({'for example ' if len(so_far.rows) > 1 else ''}{', '.join(shown)})" if shown else ""
        story = f"{so_far.story}, but " if so_far.story else ""
        of = "" if len(so_far.rows) == 1 else " of any of them"
        return f"{story}{said(test, body.name)} is not true{of}{example}"

    def _blocked(self, node: Node, match: Any, rows: Codes, width: int) -> np.ndarray:
        """Which rows an absence excludes."""
        right = self._rows_of(node, {})
        hit = np.zeros(len(rows), bool)
        for i in range(len(rows)):
            both = np.concatenate([np.repeat(rows[i : i + 1], len(right), axis=0), right], axis=1)
            hit[i] = bool(len(right)) and bool((self.extractor.query.value(match, both) == 1).any())
        return hit

    # -- groups ------------------------------------------------------------------------------------------------------

    def _group(
        self, name: str, schema: Schema, node: Aggregate, tests: Expr | None, out: list[Expr], given: dict[int, _Value]
    ) -> list[str]:
        """A view of groups: the group may be there with other values, or nothing is there to group."""
        keys = {e.index: v for c, v in given.items() if isinstance(e := out[c], Col) and e.index < len(node.keys)}
        rows = self._rows_of(node, keys)
        if not len(rows):
            inner = {node.keys[k]: v for k, v in keys.items()}
            below = bodies(node.input, self.extractor)
            return [self._way(body, inner, node.input.schema) for body in below[:_MOST]]
        names = [*node.schema.names]
        for column, expr in enumerate(out):
            if isinstance(expr, Col):
                names[expr.index] = schema.names[column]
        if len(rows) > 1:
            return [f"{name} has {len(rows):,} groups for this row, none with these values"]
        values = [decode_value(int(c), t, self.dictionary) for c, t in zip(rows[0], node.schema.types, strict=True)]
        told = ", ".join(f"{n} = {value_text(v)}" for n, v in zip(names, values, strict=True))
        if tests is not None and self.extractor.query.value(tests, rows)[0] != 1:
            return [f"its group is ({told}), for which {said(tests, lambda c: names[c])} is not true"]
        return [f"its group is there with other values: {told}"]


def _rows(count: int) -> str:
    return "a row" if count == 1 else f"{count:,} rows"


def _them(count: int) -> str:
    return "it" if count == 1 else "all of them"
