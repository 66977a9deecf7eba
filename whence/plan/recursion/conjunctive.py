"""Queries as unions of conjunctive bodies: the form in which recursion is understood.

A body is a list of sources whose columns stand side by side, tests that must all hold over them, absences (rows that
must not be there), and one expression a column of the result. Inside recursion relations are sets, so UNION ALL is
UNION, a semi-join is a join, and DISTINCT says nothing. Only what touches the component is taken apart; everything else
stays a query of its own, an external source.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from whence.model.errors import SqlError
from whence.model.types import BOOLEAN, Schema
from whence.plan.algebra.expressions import Call, Col, Expr, Lit, columns_of, conjuncts, substitute
from whence.plan.algebra.logical import (
    Aggregate,
    Distinct,
    Join,
    Lateral,
    Node,
    Project,
    Ref,
    Select,
    SetOp,
    Union,
    Values,
    walk,
)
from whence.plan.rewrite.factor_disjunctions import factor


@dataclass(frozen=True)
class External:
    """Rows of a query outside the component."""

    node: Node

    @property
    def schema(self) -> Schema:
        return self.node.schema


@dataclass(frozen=True)
class Derived:
    """Rows of a relation of the component. `instance` tells apart the aggregates of one GROUP BY occurrence."""

    name: str
    schema: Schema
    instance: int = -1


@dataclass(frozen=True)
class Function:
    """Rows that a table function yields; its arguments are over the body's columns."""

    name: str
    function: Callable[..., Any]
    args: tuple[Expr, ...]
    schema: Schema


Source = External | Derived | Function


@dataclass(frozen=True)
class Absence:
    """No row of `node` may have these values in these columns. Without `null_safe` a NULL matches nothing.

    If there is a `residual`, only rows for which it is true are excluded: a condition over the columns of `node` and,
    after them, the values of `given`. The rules of a recursion have none."""

    node: Node
    keys: tuple[tuple[Expr, int], ...]
    null_safe: bool = False
    given: tuple[Expr, ...] = ()
    residual: Expr | None = None


@dataclass(frozen=True)
class Body:
    """One conjunctive query."""

    sources: tuple[Source, ...]
    tests: tuple[Expr, ...]
    out: tuple[Expr, ...]
    absences: tuple[Absence, ...] = ()

    @property
    def width(self) -> int:
        return sum(len(s.schema) for s in self.sources)

    def offsets(self) -> list[int]:
        """Return where each source's columns begin."""
        starts, at = [], 0
        for source in self.sources:
            starts.append(at)
            at += len(source.schema)
        return starts

    def owner(self) -> list[int]:
        """For each column, the source it belongs to."""
        return [i for i, s in enumerate(self.sources) for _ in s.schema.columns]

    def map(self, change: Callable[[Expr], Expr]) -> Body:
        """Return the body with every expression changed."""
        sources = tuple(
            replace(s, args=tuple(map(change, s.args))) if isinstance(s, Function) else s for s in self.sources
        )
        absences = tuple(
            replace(a, keys=tuple((change(e), c) for e, c in a.keys), given=tuple(map(change, a.given)))
            for a in self.absences
        )
        return Body(sources, tuple(map(change, self.tests)), tuple(map(change, self.out)), absences)

    def shifted(self, by: int) -> Body:
        return self.map(lambda e: substitute(e, lambda c: Col(c.type, c.index + by)))

    def reads(self) -> set[int]:
        """Return the columns anything looks at."""
        used: set[int] = set()
        for expr in (*self.tests, *self.out, *(e for a in self.absences for e, _ in a.keys)):
            used |= columns_of(expr)
        for source in self.sources:
            if isinstance(source, Function):
                for arg in source.args:
                    used |= columns_of(arg)
        return used


def columns(schema: Schema, start: int = 0) -> tuple[Expr, ...]:
    """Return one column reference for each column of a schema."""
    return tuple(Col(c.type, start + i) for i, c in enumerate(schema.columns))


_OPEN = (Select, Project, Union, Distinct, Lateral, SetOp, Join)


def is_conjunctive(node: Node) -> bool:
    """Return whether a node can be taken apart into rules, with its rows as a set."""
    return isinstance(node, _OPEN) and not getattr(node, "all", False) and getattr(node, "kind", "") != "full"


@dataclass
class Flattener:
    """Takes queries apart.

    `derived` are the names that stay relations of the component; a reference to any other member is replaced by its
    query. `aggregate` names the relations, one for each aggregate, behind a GROUP BY that reads the component. What
    reads the component is taken apart or, if there is `opens`, every node that it says, down to tables and other views.
    Bodies that are `for_rules` have factored tests, and absences without a residual.
    """

    members: dict[str, Node]
    derived: dict[str, Schema]
    aggregate: Callable[[Aggregate], list[tuple[str, Schema]]] | None = None
    opens: Callable[[Node], bool] | None = None
    for_rules: bool = True
    _instances: int = field(default=0)

    def recursive(self, node: Node) -> bool:
        """Return whether a query is to be taken apart."""
        if self.opens is not None:
            return self.opens(node)
        return any(isinstance(n, Ref) and n.view in self.members for n in walk(node))

    def flatten(self, node: Node) -> list[Body]:
        """Return the conjunctive bodies whose union, as a set, is the query."""
        if not self.recursive(node):
            return [_source(External(node))]
        match node:
            case Ref():
                if node.view in self.derived:
                    return [_source(Derived(node.view, self.derived[node.view]))]
                return self.flatten(self.members[node.view])
            case Values(rows=((),)):
                return [Body((), (), ())]
            case Select():
                return [self._filtered(b, conjuncts(node.predicate)) for b in self.flatten(node.input)]
            case Project():
                return [replace(b, out=tuple(_over(b, e) for e in node.exprs)) for b in self.flatten(node.input)]
            case Union():
                return [b for branch in node.branches for b in self.flatten(branch)]
            case Distinct():
                return self.flatten(node.input)
            case Lateral():
                return [self._lateral(b, node) for b in self.flatten(node.input)]
            case SetOp():
                return self._set_operation(node)
            case Join():
                return self._join(node)
            case Aggregate() if self.aggregate is not None:
                return [self._group(node)]
        raise SqlError(f"{type(node).__name__.upper()} cannot read the view it defines")

    def _lateral(self, body: Body, node: Lateral) -> Body:
        schema = Schema(node.schema.columns[len(node.input.schema) :])
        function = Function(node.name, node.function, tuple(_over(body, a) for a in node.args), schema)
        return replace(body, sources=(*body.sources, function), out=(*body.out, *columns(schema, body.width)))

    def _set_operation(self, node: SetOp) -> list[Body]:
        width = len(node.schema)
        if node.kind == "except":
            keys = tuple((i, i) for i in range(width))
            return [_without(b, node.right, keys, True) for b in self.flatten(node.left)]
        found = []
        for body in self._pairs(node.left, node.right):
            same = [Call(BOOLEAN, "is_not_distinct", (body.out[i], body.out[width + i])) for i in range(width)]
            found.append(replace(body, tests=(*body.tests, *same), out=body.out[:width]))
        return found

    def _pairs(self, left: Node, right: Node) -> list[Body]:
        return [product(a, b) for a in self.flatten(left) for b in self.flatten(right)]

    def _join(self, node: Join) -> list[Body]:
        kind, width = node.kind, len(node.left.schema)
        if kind == "right" and self.for_rules:
            swapped = _swap(node)
            order = (*range(len(node.right.schema), len(swapped.schema)), *range(len(node.right.schema)))
            return [replace(b, out=tuple(b.out[i] for i in order)) for b in self._join(swapped)]
        matched = []
        if kind != "anti" and not (kind == "full" and self.for_rules):
            equal = [
                Call(BOOLEAN, "=", (Col(t, a), Col(t, width + b)))
                for a, b in node.keys
                for t in (node.left.schema.types[a],)
            ]
            for body in self._pairs(node.left, node.right):
                full = self._filtered(body, [*equal, *conjuncts(node.residual)])
                if kind == "semi":
                    full = replace(full, out=full.out[:width])
                elif kind == "mark":
                    full = replace(full, out=(*full.out[:width], Lit(BOOLEAN, True)))
                matched.append(full)
        if kind in ("inner", "semi"):
            return matched
        if not self.for_rules:
            return matched + self._unmatched(node)
        if kind == "full":
            raise SqlError("a FULL JOIN cannot read the view it defines")
        right, outer = _split_residual(node, width)
        unmatched = [_without(b, right, node.keys, False) for b in self.flatten(node.left)]
        if outer:  # without these no row can match, whatever the right side holds
            holds = outer[0] if len(outer) == 1 else Call(BOOLEAN, "and", tuple(outer))
            fails = Call(BOOLEAN, "not", (Call(BOOLEAN, "coalesce", (holds, Lit(BOOLEAN, False))),))
            unmatched += [self._filtered(b, [fails]) for b in self.flatten(node.left)]
        if kind == "left":
            pads = tuple(Lit(t, None) for t in node.right.schema.types)
            unmatched = [replace(b, out=(*b.out, *pads)) for b in unmatched]
        elif kind == "mark":
            unmatched = [replace(b, out=(*b.out, Lit(BOOLEAN, False))) for b in unmatched]
        return matched + unmatched

    def _unmatched(self, node: Join) -> list[Body]:
        """Return the bodies of the rows that a join keeps for having no match."""
        kind, width = node.kind, len(node.left.schema)
        left, right = (tuple(Lit(t, None) for t in side.schema.types) for side in node.inputs)
        found = []
        if kind != "right":
            pads: tuple[Expr, ...] = {"anti": (), "mark": (Lit(BOOLEAN, False),)}.get(kind, right)
            for body in self.flatten(node.left):
                absence = _absence(body, node.right, node.keys, node.residual, range(width))
                found.append(replace(body, out=(*body.out, *pads), absences=(*body.absences, absence)))
        if kind in ("right", "full"):
            keys = tuple((b, a) for a, b in node.keys)
            for body in self.flatten(node.right):
                absence = _absence(body, node.left, keys, node.residual, range(width, width + len(right)))
                found.append(replace(body, out=(*left, *body.out), absences=(*body.absences, absence)))
        return found

    def _filtered(self, body: Body, tests: list[Expr]) -> Body:
        found = [_over(body, t) for t in tests]
        if self.for_rules:
            found = list(map(factor, found))
        return replace(body, tests=(*body.tests, *(t for e in found for t in conjuncts(e))))

    def _group(self, node: Aggregate) -> Body:
        """Return a GROUP BY over the component: one relation for each aggregate, joined on the keys."""
        assert self.aggregate is not None
        self._instances += 1
        named = self.aggregate(node)
        keys = len(node.keys)
        body = _source(Derived(*named[0], self._instances))
        for name, schema in named[1:]:
            body = product(body, _source(Derived(name, schema, self._instances)))
            start = len(body.out) - keys - 1
            same = [Call(BOOLEAN, "is_not_distinct", (body.out[i], body.out[start + i])) for i in range(keys)]
            body = replace(body, tests=(*body.tests, *same), out=(*body.out[:start], body.out[-1]))
        return body


def as_query(body: Body, schema: Schema) -> Node:
    """Write a body without recursive sources as a query."""
    node: Node | None = None
    for source in body.sources:
        if isinstance(source, Function):
            assert node is not None
            both = Schema(node.schema.columns + source.schema.columns)
            node = Lateral(both, node, source.name, source.function, source.args)
            continue
        assert isinstance(source, External)
        both = source.schema if node is None else Schema(node.schema.columns + source.schema.columns)
        node = source.node if node is None else Join(both, node, source.node, "inner")
    assert node is not None
    for test in body.tests:
        node = Select(node.schema, node, test)
    for absence in body.absences:
        width, types = len(node.schema), absence.node.schema.types
        op = "is_not_distinct" if absence.null_safe else "="
        same = tuple(Call(BOOLEAN, op, (e, Col(types[c], width + c))) for e, c in absence.keys)
        holds = same[0] if len(same) == 1 else Call(BOOLEAN, "and", same) if same else None
        node = Join(node.schema, node, absence.node, "anti", (), holds)
    return Project(schema, node, body.out)


def _source(source: Source) -> Body:
    return Body((source,), (), columns(source.schema))


def product(left: Body, right: Body) -> Body:
    """Put two bodies side by side."""
    moved = right.shifted(left.width)
    return Body(
        left.sources + moved.sources, left.tests + moved.tests, left.out + moved.out, left.absences + moved.absences
    )


def _over(body: Body, expr: Expr) -> Expr:
    """Rewrite an expression over a query's columns as one over the body's."""
    return substitute(expr, lambda c: body.out[c.index])


def _without(body: Body, node: Node, keys: tuple[tuple[int, int], ...], null_safe: bool) -> Body:
    pairs = tuple((body.out[a], b) for a, b in keys)
    return replace(body, absences=(*body.absences, Absence(node, pairs, null_safe)))


def _absence(body: Body, node: Node, keys: tuple[tuple[int, int], ...], residual: Expr | None, own: range) -> Absence:
    """Return that `node` has no match for a body's row. The residual has the body's columns at `own`."""
    of_body = [] if residual is None else sorted(c for c in columns_of(residual) if c in own)
    other = len(node.schema)

    def over(c: Col) -> Expr:
        if c.index in own:
            return Col(c.type, other + of_body.index(c.index))
        return c if c.index < own.start else Col(c.type, c.index - len(own))

    return Absence(
        node,
        tuple((body.out[a], b) for a, b in keys),
        False,
        tuple(body.out[c - own.start] for c in of_body),
        residual and substitute(residual, over),
    )


def _swap(node: Join) -> Join:
    left, right = len(node.left.schema), len(node.right.schema)
    residual = node.residual and substitute(
        node.residual, lambda c: Col(c.type, c.index + right if c.index < left else c.index - left)
    )
    schema = Schema(node.right.schema.columns + node.left.schema.columns)
    return Join(schema, node.right, node.left, "left", tuple((b, a) for a, b in node.keys), residual)


def _split_residual(node: Join, width: int) -> tuple[Node, list[Expr]]:
    """Return the condition of a join that is asked for absence: the right side with its own part, and the left side's
    part."""
    right, outer = node.right, []
    for term in conjuncts(node.residual):
        sides = {c < width for c in columns_of(term)}
        if sides == {True, False}:
            raise SqlError(
                f"inside recursion NOT EXISTS and LEFT JOIN may compare the recursive row by equality only, not {term}"
            )
        if True in sides:
            outer.append(term)
        else:
            right = Select(right.schema, right, substitute(term, lambda c: Col(c.type, c.index - width)))
    return right, outer
