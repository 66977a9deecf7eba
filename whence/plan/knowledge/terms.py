"""Terms of knowledge: made of expressions, moved to other columns, bounded.

The law: `bound(term, resolve)` contains every value of the term, if `resolve` contains those of its leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import msgspec

from whence.model.types import Kind, Type
from whence.plan.algebra.expressions import Call, Case, Cast, Col, Expr, Lit
from whence.plan.algebra.expressions import walk as expr_parts
from whence.plan.knowledge import intervals
from whence.plan.knowledge.bounds import ANYTHING, Bounds, exactly
from whence.plan.knowledge.model import (
    Doubt,
    Growing,
    LiteralTerm,
    Operation,
    Padded,
    Shown,
    SourceColumn,
    Term,
    Unknown,
    Variable,
    plain_constant,
)

Direction = Literal["still", "up", "down", "any"]
_OPPOSITE: dict[Direction, Direction] = {"still": "still", "up": "down", "down": "up", "any": "any"}


def to_term(expr: Expr, columns: Sequence[Term]) -> Term:
    """Return an expression as a term, given the terms of the columns that it reads."""
    args = tuple(to_term(child, columns) for child in expr.children)
    match expr:
        case Lit():
            return LiteralTerm(str(expr.type), plain_constant(expr.value))
        case Col():
            return columns[expr.index]
        case Call():
            return Operation(str(expr.type), expr.op, args)
        case Cast():
            return Operation(str(expr.type), "try_cast" if expr.lenient else "cast", args)
        case Case():
            return Operation(str(expr.type), "case", args)
    return unknown(expr.type)


def unknown(type: Type | str, bounds: Bounds = ANYTHING) -> Unknown:
    """Return a term for anything within bounds."""
    if not bounds.some:
        bounds = ANYTHING
    return Unknown(str(type), plain_constant(bounds.low), plain_constant(bounds.high), bounds.null)


def walk(term: Term) -> Iterator[Term]:
    """Yield a term and everything in it."""
    yield term
    match term:
        case Operation():
            for arg in term.args:
                yield from walk(arg)
        case Padded():
            yield from walk(term.term)


def columns_in(term: Term) -> set[int]:
    """Return the columns of the row that a term reads, without those of its growths."""
    found = {part.index for part in walk(term) if isinstance(part, (Shown, Growing))}
    return found | {part.matched for part in walk(term) if isinstance(part, Padded)}


def growths_in(term: Term) -> set[int]:
    """Return the growths that a term refers to."""
    return {part.growth for part in walk(term) if isinstance(part, (Growing, Doubt, Padded))}


def moved_term(term: Term, column: Callable[[int], int], growth: Callable[[int], int]) -> Term:
    """Return a term over a row with its columns and growths at other places."""
    match term:
        case Shown():
            return Shown(term.type, column(term.index))
        case Growing():
            return msgspec.structs.replace(term, index=column(term.index), growth=growth(term.growth))
        case Doubt():
            return Doubt(term.type, growth(term.growth))
        case Padded():
            inner = moved_term(term.term, column, growth)
            return Padded(term.type, column(term.matched), inner, term.fresh, growth(term.growth))
        case Operation():
            return Operation(term.type, term.op, tuple(moved_term(arg, column, growth) for arg in term.args))
    return term


def rebased(term: Term, by: int) -> Term:
    """Return a term of a branch whose bases stand `by` places later."""
    match term:
        case Variable():
            return Variable(term.type, term.base + by, term.column)
        case Operation():
            return Operation(term.type, term.op, tuple(rebased(arg, by) for arg in term.args))
    return term


def bound(term: Term, resolve: Callable[[Term], Bounds]) -> Bounds:
    """Return the bounds of a term, given those of its leaves."""
    match term:
        case LiteralTerm():
            return exactly(term.value)
        case Unknown():
            return term.bounds
        case Operation():
            args = [bound(arg, resolve) for arg in term.args]
            return intervals.apply(term.op, term.type, args, [arg.type for arg in term.args])
    return resolve(term)


def column_bounds(column: SourceColumn) -> Bounds:
    """Return what the values of a column of a source are promised to be."""
    return Unknown(column.type, column.low, column.high, column.null).bounds


# -- direction -------------------------------------------------------------------------------------------------------


def opposite(direction: Direction) -> Direction:
    """Return the direction of the negative."""
    return _OPPOSITE[direction]


def together(directions: Sequence[Direction]) -> Direction:
    """Return the direction of what grows with each of its parts.

    >>> together(["still", "up"]), together(["up", "down"])
    ('up', 'any')
    """
    found = set(directions) - {"still"}
    return "still" if not found else found.pop() if len(found) == 1 else "any"


def direction_of(expr: Expr, columns: Sequence[Direction], domains: Sequence[Bounds]) -> Direction:
    """Return how the value of an expression can change, given how its columns can: only up, only down, not at all.

    Of a condition: up, if it stays true once it is; down, if it never becomes true again once it was and is not."""
    if isinstance(expr, Col):
        return columns[expr.index]
    below = [direction_of(child, columns, domains) for child in expr.children]
    if all(direction == "still" for direction in below):
        return "still"
    match expr:
        case Call(op="+" | "-" | "neg" | "*" | "/" | "//" | "floor" | "ceil"):
            return _numeric_direction(expr, below)
        case Cast(lenient=False) if expr.type.is_numeric and expr.arg.type.is_numeric:
            return below[0]
        case Call(op="coalesce", args=(first, Lit(value=instead))) if instead is not None:
            domain = bound(
                to_term(first, [unknown(t.type, d) for t, d in _columns(first, domains)]), lambda _: ANYTHING
            )
            if below[0] == "up" and domain.low is not None and domain.low >= instead:
                return "up"
            if below[0] == "down" and domain.high is not None and domain.high <= instead:
                return "down"
        case Call(op="<" | "<="):
            return together([opposite(below[0]), below[1]])
        case Call(op=">" | ">="):
            return together([below[0], opposite(below[1])])
        case Call(op="and") if "up" not in below:
            return together(below)
        case Call(op="and" | "or") if "down" not in below:
            return together(below)
    return "any"


def _numeric_direction(expr: Call, below: Sequence[Direction]) -> Direction:
    """Return the direction of an operation on numbers; a DOUBLE may turn into NaN, which is above all."""
    mirror, found = False, below[0]
    match expr:
        case Call(op="+"):
            found = together(below)
        case Call(op="-"):
            mirror, found = True, together([below[0], opposite(below[1])])
        case Call(op="neg"):
            mirror, found = True, opposite(below[0])
        case Call(op="*", args=(Lit(value=factor), _) | (_, Lit(value=factor))) if factor is not None:
            mirror = bool(factor < 0)
            found = together([opposite(d) if mirror else d for d in below])
        case Call(op="/" | "//", args=(_, Lit(value=factor))) if factor is not None and factor != 0:
            mirror = bool(factor < 0)
            found = opposite(below[0]) if mirror else below[0]
        case Call(op="floor" | "ceil"):
            pass
        case _:
            return "any"
    doubtful = not expr.type.is_numeric or (expr.type.kind is Kind.DOUBLE and (mirror or found == "down"))
    return "any" if doubtful else found


def _columns(expr: Expr, domains: Sequence[Bounds]) -> list[tuple[Expr, Bounds]]:
    """Return a column of the right type for each place, as far as an expression reads it."""
    read = {part.index: part for part in expr_parts(expr) if isinstance(part, Col)}
    return [(read.get(i, expr), domain) for i, domain in enumerate(domains)]
