"""Why a row is not in a view: which of its conditions fails first.

A query is read as ways to the row: sources side by side, tests over them, absences. Each way is followed source by
source, beginning where the row says most, and test by test, until nothing is left; what took the last rows away is the
reason. A group that has other values, or a row outside a LIMIT, says so itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from whence.engine.core.dataflow import Dataflow
from whence.explain.derive.body_matcher import BodyMatcher, find_constant
from whence.explain.derive.extractor import Extractor
from whence.explain.derive.grouped_query import peel_groups
from whence.explain.derive.parts import Part, Wanted
from whence.explain.derive.sql_text import write_expr, write_value
from whence.explain.derive.stream_tables import list_streams
from whence.model.codes import Codes, Dictionary, decode_value, encode_value
from whence.model.errors import DataError
from whence.model.types import Schema
from whence.plan.algebra.expressions import Call, Col, Expr, columns_of
from whence.plan.algebra.logical import (
    Aggregate,
    Distinct,
    Join,
    Node,
    Project,
    Ref,
    Select,
    SetOp,
    TopK,
    Union,
    Values,
)
from whence.plan.algebra.program import Program
from whence.plan.recursion.conjunctive import Body, External, Flattener, Source

_NOWHERE = -1  # the code of a text that was never met: no row has it
_MOST = 8  # ways that are told


def why_not(
    flow: Dataflow, program: Program, planned: Program, dictionary: Dictionary, name: str, given: Mapping[str, Any]
) -> list[str]:
    """Say what stands in the way of a row that is not in a table or view, one sentence for each way to it."""
    asked = _Asked(Extractor(flow, program, planned, dictionary))
    if name in program.tables:
        schema = program.tables[name].schema
        return [asked.nothing(name, schema, _codes(given, schema, dictionary), flow.tables[name].contents().rows)]
    view = program.views[name]
    if streams := list_streams(view.query, program, planned):
        return [f"there is no such row now; {name} is made of what comes in {', '.join(streams)}"]
    return asked.view(name, view.query, view.schema, _codes(given, view.schema, dictionary))


@dataclass(frozen=True)
class _Value:
    code: int
    text: str


def _codes(given: Mapping[str, Any], schema: Schema, dictionary: Dictionary) -> dict[int, _Value]:
    """Return the codes of the given values, by column."""
    found = {}
    for column, value in given.items():
        at = schema.names.index(column)
        scratch = Dictionary()
        code = encode_value(value, schema.types[at], scratch)
        known = scratch.translated(code, schema.types[at], dictionary)
        code = _NOWHERE if known is None else known
        found[at] = _Value(code, write_value(value))
    return found


class _Asked:
    """One question."""

    def __init__(self, extractor: Extractor):
        self.extractor = extractor

    @property
    def dictionary(self) -> Dictionary:
        return self.extractor.dictionary

    def view(self, name: str, query: Node, schema: Schema, given: dict[int, _Value]) -> list[str]:
        """Return one sentence for each way to a row of a view."""
        top = peel_groups(query, lambda name: None)
        if isinstance(top, tuple):
            return self._group(name, schema, *top, given)
        if isinstance(query, TopK):
            inner = self._rows_of(query.input, given)
            if len(inner):
                return [f"the row is there, but outside the first {query.limit} rows that {name} keeps"]
            query = query.input
        ways = self._bodies(query)
        told = []
        for number, body in enumerate(ways[:_MOST], 1):
            sentence = self._way(body, given, schema)
            names = ", ".join(dict.fromkeys(map(self._name, body.sources))) or "constants"
            told.append(f"way {number} of {len(ways)}, by {names}: {sentence}" if len(ways) > 1 else sentence)
        if len(ways) > _MOST:
            told.append(f"and {len(ways) - _MOST} more ways")
        return told

    # -- rows --------------------------------------------------------------------------------------------------------

    def _rows_of(self, node: Node, given: Mapping[int, _Value]) -> Codes:
        """Return the rows of a query that have the given values."""
        wanted: Wanted = tuple(((c,), np.array([[v.code]], np.int64)) for c, v in given.items())
        parts = self.extractor.query.parts(node, wanted)
        return np.concatenate([p.rows for p in parts]) if parts else np.empty((0, len(node.schema)), np.int64)

    def nothing(self, name: str, schema: Schema, given: dict[int, _Value], rows: Codes) -> str:
        """Say which of the values no row has together with those before."""
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

    def _bodies(self, node: Node) -> list[Body]:
        """Return the ways to the rows of a query, down to what has a name and what is computed as a whole."""
        views, is_recursive = self.extractor.program.views, self.extractor.is_recursive
        hidden = {name: v.query for name, v in views.items() if v.hidden and not is_recursive(name)}

        def opens(node: Node) -> bool:
            match node:
                case Ref():
                    return node.view in hidden
                case Values(rows=((),)) | Select() | Project() | Union() | Distinct() | SetOp(kind="intersect"):
                    return True
                case Join(kind="inner" | "semi" | "anti") | SetOp(all=False):
                    return True
            return False

        return Flattener(hidden, {}, opens=opens, for_rules=False).flatten(node)

    def _name(self, source: Source) -> str:
        """Return what people know a source by."""
        assert isinstance(source, External)
        return self.extractor.query.name_of(source.node)

    def _column(self, body: Body, index: int) -> str:
        """Return the name of a column, with that of its source where there are several."""
        number = body.owner()[index]
        own = body.sources[number].schema.names[index - body.offsets()[number]]
        return f"{self._name(body.sources[number])}.{own}" if len(body.sources) > 1 else own

    def _said(self, body: Body, expr: Expr) -> str:
        return write_expr(expr, lambda index: self._column(body, index))

    def _known(self, body: Body, given: dict[int, _Value]) -> dict[int, _Value]:
        """Return the columns whose value is known, from what the row says, constants and equalities."""
        found = {e.index: v for c, v in given.items() if isinstance(e := body.out[c], Col)}
        equal = []
        for test in body.tests:
            if (pair := find_constant(test)) is not None:
                found.setdefault(pair[0].index, self._literal(pair[1].value, pair[1].type))
            match test:
                case Call(op="=" | "is_not_distinct", args=(Col() as a, Col() as b)) if a.type == b.type:
                    equal += [(a.index, b.index), (b.index, a.index)]
        for _ in equal:
            for one, other in equal:
                if one in found:
                    found.setdefault(other, found[one])
        return found

    def _way(self, body: Body, given: dict[int, _Value], schema: Schema) -> str:
        """Follow a way until nothing is left."""
        known, matcher, story = self._known(body, given), BodyMatcher(self.extractor.query, body), ""
        while matcher.left:
            story, ended = self._take_up(matcher, matcher.choose(known), known, story)
            if ended:
                return story
            for test in matcher.ready():
                (before,) = matcher.found
                matcher.decide(test)
                if not matcher.found:
                    return self._failing(body, test, before.rows, story)
        rows = matcher.found[0].rows
        for absence in body.absences:
            blocked, _ = matcher.blocked(absence, rows)
            if blocked.all():
                name = self.extractor.query.name_of(absence.node)
                return f"{story}, but {name} has a row that excludes {_them(len(rows))}"
            rows = rows[~blocked]
        for column, value in given.items():
            if not isinstance(expr := body.out[column], Col):
                made = self.extractor.query.value(expr, rows)
                if not (made == value.code).any():
                    other = write_value(decode_value(int(made[0]), expr.type, self.dictionary))
                    return f"{story or 'it is a constant'}, but then {schema.names[column]} is {other}"
                rows = rows[made == value.code]
        return f"{story}, but not all of it together"

    def _literal(self, value: Any, type: Any) -> _Value:
        try:
            return _Value(encode_value(value, type, self.dictionary), write_value(value))
        except DataError:
            return _Value(_NOWHERE, write_value(value))

    def _take_up(self, matcher: BodyMatcher, number: int, known: Mapping[int, _Value], story: str) -> tuple[str, bool]:
        """Join one more source; return what there is to say so far, and whether nothing is left."""
        source, columns = matcher.body.sources[number], matcher.columns(number)
        assert isinstance(source, External)
        name, names = self._name(source), source.schema.names
        own = {c - columns.start: v for c, v in known.items() if c in columns}
        rows = self._rows_of(source.node, own)
        if not len(rows):
            nothing = self.nothing(name, source.schema, own, self._rows_of(source.node, {}))
            return f"{story}, but {nothing}" if story else nothing, True
        described = ", ".join(f"{names[c]} = {v.text}" for c, v in own.items())
        having = f"{name} with {described}" if described else name
        keys = matcher.keys(number)
        matcher.join(number, [Part(rows, np.ones(len(rows), np.int64), [])])
        if not matcher.found:
            on = ", ".join(f"{self._said(matcher.body, k.next)} = {self._said(matcher.body, k.taken)}" for k in keys)
            return f"{story}, but none of those joins a row of {having} ({on})", True
        if story:
            return f"{story}, joined with {having}", False
        return f"{name} has {_rows(len(rows))}{having.removeprefix(name)}", False

    def _failing(self, body: Body, test: Expr, rows: Codes, story: str) -> str:
        """Say which test no row passes."""
        shown = []
        for column in sorted(columns_of(test)):
            type = body.sources[body.owner()[column]].schema.types[column - body.offsets()[body.owner()[column]]]
            value = write_value(decode_value(int(rows[0, column]), type, self.dictionary))
            shown.append(f"{self._column(body, column)} = {value}")
        example = f" ({'for example ' if len(rows) > 1 else ''}{', '.join(shown)})" if shown else ""
        of = "" if len(rows) == 1 else " of any of them"
        return f"{story + ', but ' if story else ''}{self._said(body, test)} is not true{of}{example}"

    # -- groups ------------------------------------------------------------------------------------------------------

    def _group(
        self, name: str, schema: Schema, node: Aggregate, tests: Expr | None, out: list[Expr], given: dict[int, _Value]
    ) -> list[str]:
        """Say of a view of groups whether the group is there with other values, or why nothing is there to group."""
        keys = {e.index: v for c, v in given.items() if isinstance(e := out[c], Col) and e.index < len(node.keys)}
        rows = self._rows_of(node, keys)
        if not len(rows):
            inner = {node.keys[k]: v for k, v in keys.items()}
            return [self._way(body, inner, node.input.schema) for body in self._bodies(node.input)[:_MOST]]
        names = [*node.schema.names]
        for column, expr in enumerate(out):
            if isinstance(expr, Col):
                names[expr.index] = schema.names[column]
        if len(rows) > 1:
            return [f"{name} has {len(rows):,} groups for this row, none with these values"]
        values = [decode_value(int(c), t, self.dictionary) for c, t in zip(rows[0], node.schema.types, strict=True)]
        told = ", ".join(f"{n} = {write_value(v)}" for n, v in zip(names, values, strict=True))
        if tests is not None and self.extractor.query.value(tests, rows)[0] != 1:
            return [f"its group is ({told}), for which {write_expr(tests, lambda c: names[c])} is not true"]
        return [f"its group is there with other values: {told}"]


def _rows(count: int) -> str:
    return "a row" if count == 1 else f"{count:,} rows"


def _them(count: int) -> str:
    return "it" if count == 1 else "all of them"
