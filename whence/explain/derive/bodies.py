"""Queries as ways to their rows: sources side by side, tests, absences, and what becomes a column of the result.

Joins, selections, projections and unions are taken apart; whatever is not one of these (a group, a LIMIT) is a source
as a whole, and so is every table and view that people know by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from whence.model.types import BOOLEAN, Column, Schema
from whence.plan.algebra.expressions import Call, Col, Expr, Lit, conjuncts, substitute
from whence.plan.algebra.logical import Distinct, Join, Node, Project, Ref, Scan, Select, SetOp, Union, Values

if TYPE_CHECKING:
    from whence.explain.derive.extract import Extractor


@dataclass(frozen=True)
class Source:
    """A query with a name for people."""

    node: Node
    name: str

    @property
    def schema(self) -> Schema:
        return self.node.schema


@dataclass(frozen=True)
class Absence:
    """No row of `node` may match: a condition over the body's columns, then the node's."""

    node: Node
    match: Expr


@dataclass(frozen=True)
class Body:
    """One way."""

    sources: tuple[Source, ...]
    tests: tuple[Expr, ...]
    out: tuple[Expr, ...]
    absences: tuple[Absence, ...] = ()
    equal: tuple[tuple[int, int, bool], ...] = ()  # columns that must be equal; whether NULL is equal to NULL there

    @property
    def width(self) -> int:
        return sum(len(s.schema) for s in self.sources)

    def starts(self) -> list[int]:
        found, at = [], 0
        for source in self.sources:
            found.append(at)
            at += len(source.schema)
        return found

    def column(self, index: int) -> Column:
        return [c for s in self.sources for c in s.schema.columns][index]

    def name(self, index: int) -> str:
        """A column, by its source's name where there are several."""
        for source, start in zip(self.sources, self.starts(), strict=True):
            if start <= index < start + len(source.schema):
                own = source.schema.names[index - start]
                return f"{source.name}.{own}" if len(self.sources) > 1 else own
        return f"#{index}"

    def moved(self, by: int) -> Body:
        def over(e: Expr) -> Expr:
            return substitute(e, lambda c: Col(c.type, c.index + by))

        return Body(
            self.sources,
            tuple(map(over, self.tests)),
            tuple(map(over, self.out)),
            tuple(Absence(a.node, over(a.match)) for a in self.absences),
            tuple((a + by, b + by, s) for a, b, s in self.equal),
        )

    def where(self, condition: Expr | None) -> Body:
        """The body with a condition over its result."""
        tests, equal = list(self.tests), list(self.equal)
        for term in conjuncts(condition):
            for test in conjuncts(substitute(term, lambda c: self.out[c.index])):
                if isinstance(test, Call) and test.op in ("=", "is_not_distinct") and len(test.args) == 2:
                    a, b = test.args
                    if isinstance(a, Col) and isinstance(b, Col) and a.type == b.type:
                        equal.append((a.index, b.index, test.op != "="))
                tests.append(test)
        return replace(self, tests=tuple(tests), equal=tuple(equal))

    def known(self, given: Mapping[int, Any], literal: Callable[[Any, Any], Any]) -> dict[int, Any] | None:
        """The columns whose value is known, from those given, constants and equalities; None if they disagree."""
        found = dict(given)
        for test in self.tests:
            if isinstance(test, Call) and test.op == "=" and len(test.args) == 2:
                a, b = test.args if isinstance(test.args[0], Col) else test.args[::-1]
                if isinstance(a, Col) and isinstance(b, Lit) and b.value is not None and a.type == b.type:
                    found.setdefault(a.index, literal(b.value, b.type))
        for _ in range(len(self.equal)):
            for one, other, _safe in self.equal:
                if one in found and other not in found:
                    found[other] = found[one]
                elif other in found and one not in found:
                    found[one] = found[other]
        return found


def bodies(node: Node, extractor: Extractor) -> list[Body]:
    """The ways to the rows of a query."""
    return _Flat(extractor).flatten(node)


class _Flat:
    def __init__(self, extractor: Extractor):
        self.extractor = extractor

    def flatten(self, node: Node) -> list[Body]:
        match node:
            case Ref() if self._is_hidden(node.view):
                return self.flatten(self.extractor.program.views[node.view].query)
            case Scan() | Ref():
                name = node.table if isinstance(node, Scan) else node.view
                return [_whole(Source(node, name))]
            case Values(rows=((),)):
                return [Body((), (), ())]
            case Select():
                return [b.where(node.predicate) for b in self.flatten(node.input)]
            case Project():
                return [
                    replace(b, out=tuple(substitute(e, lambda c: b.out[c.index]) for e in node.exprs))  # noqa: B023
                    for b in self.flatten(node.input)
                ]
            case Union():
                return [b for branch in node.branches for b in self.flatten(branch)]
            case Distinct():
                return self.flatten(node.input)
            case Join(kind="inner" | "semi"):
                return [self._joined(a, b, node) for a in self.flatten(node.left) for b in self.flatten(node.right)]
            case Join(kind="anti"):
                return [self._without(b, node) for b in self.flatten(node.left)]
            case SetOp(kind="intersect"):
                width = len(node.schema)
                same = _all_same(node.schema, width)
                return [
                    replace(both.where(same), out=both.out[:width])
                    for a in self.flatten(node.left)
                    for b in self.flatten(node.right)
                    for both in [_beside(a, b)]
                ]
            case SetOp(kind="except", all=False):
                found = []
                for b in self.flatten(node.left):
                    same = _all_same(node.schema, b.width, b.out)
                    found.append(replace(b, absences=(*b.absences, Absence(node.right, same))))
                return found
        return [_whole(Source(node, self.extractor.query.name_of(node)))]

    def _is_hidden(self, name: str) -> bool:
        """A part of a query that people know by no name, and that does not depend on itself."""
        view = self.extractor.program.views.get(name)
        return view is not None and view.hidden and not self.extractor.is_recursive(name)

    def _joined(self, a: Body, b: Body, node: Join) -> Body:
        width = len(node.left.schema)
        body = _beside(a, b).where(_condition(node, width))
        return replace(body, out=body.out[:width]) if node.kind == "semi" else body

    def _without(self, body: Body, node: Join) -> Body:
        width = len(node.left.schema)
        match = _condition(node, width)
        if match is None:
            match = Lit(BOOLEAN, True)
        match = substitute(match, lambda c: _over(body, c, width))
        return replace(body, absences=(*body.absences, Absence(node.right, match)))


def _over(body: Body, column: Col, width: int) -> Expr:
    """A column of a join's sides, with the body in place of the left one."""
    return body.out[column.index] if column.index < width else Col(column.type, column.index - width + body.width)


def _whole(source: Source) -> Body:
    return Body((source,), (), tuple(Col(t, i) for i, t in enumerate(source.schema.types)))


def _beside(a: Body, b: Body) -> Body:
    """Two bodies side by side. Absences of the right one are over columns that have moved."""
    moved = b.moved(a.width)
    left = tuple(_shifted(x, a.width, b.width) for x in a.absences)
    return Body(
        a.sources + moved.sources,
        a.tests + moved.tests,
        a.out + moved.out,
        left + moved.absences,
        a.equal + moved.equal,
    )


def _shifted(absence: Absence, width: int, by: int) -> Absence:
    """An absence of a body that got more columns after its own."""
    match = substitute(absence.match, lambda c: c if c.index < width else Col(c.type, c.index + by))
    return Absence(absence.node, match)


def _condition(node: Join, width: int) -> Expr | None:
    types = node.left.schema.types
    terms = [Call(BOOLEAN, "=", (Col(types[a], a), Col(types[a], width + b))) for a, b in node.keys]
    terms += conjuncts(node.residual)  # type: ignore[arg-type]  # any expressions
    return None if not terms else terms[0] if len(terms) == 1 else Call(BOOLEAN, "and", tuple(terms))


def _all_same(schema: Schema, start: int, left: tuple[Expr, ...] | None = None) -> Expr:
    terms = tuple(
        Call(BOOLEAN, "is_not_distinct", (Col(t, i) if left is None else left[i], Col(t, start + i)))
        for i, t in enumerate(schema.types)
    )
    return terms[0] if len(terms) == 1 else Call(BOOLEAN, "and", terms)
