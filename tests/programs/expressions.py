"""Random scalar expressions of a type over the columns in scope."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.programs.dice import Dice
from tests.programs.values import BIG, BOOL, DATE, DEC, DOMAINS, DOUBLE, INT, NUMBERS, SPAN, TEXT, TIME, literal

Subquery = Callable[["Scope", str, Dice, int], str | None]  # a boolean or scalar one, by the type wanted


@dataclass(frozen=True)
class Scope:
    """What an expression may read: columns by their types, and subqueries if they may stand here."""

    columns: tuple[tuple[str, str], ...]  # qualified name, type
    subquery: Subquery | None = None
    failing: bool = False  # expressions that may fail on some rows may stand here

    def of(self, *kinds: str) -> list[str]:
        return [name for name, kind in self.columns if kind in kinds]


def expression(dice: Dice, kind: str, scope: Scope, depth: int) -> str:
    """Return an expression of a type: a column if there is one, a literal, or something deeper."""
    there = scope.of(kind)
    if depth <= 0 or not dice.chance(65):
        if there and not dice.chance(20):
            return dice.of(there)
        return literal(dice.of((*DOMAINS[kind], None)), kind)
    return dice.of(_MAKERS[kind] + _ANY)(dice, kind, scope, depth - 1)


Maker = Callable[[Dice, str, Scope, int], str]


def _case(d: Dice, k: str, s: Scope, n: int) -> str:
    when, then, other = (expression(d, kind, s, n) for kind in (BOOL, k, k))
    return f"CASE WHEN {when} THEN {then} ELSE {other} END" if d.chance(70) else f"CASE WHEN {when} THEN {then} END"


def _coalesce(d: Dice, k: str, s: Scope, n: int) -> str:
    return f"COALESCE({expression(d, k, s, n)}, {expression(d, k, s, n)})"


def _nullif(d: Dice, k: str, s: Scope, n: int) -> str:
    return f"NULLIF({expression(d, k, s, n)}, {expression(d, k, s, n)})"


def _extreme(d: Dice, k: str, s: Scope, n: int) -> str:
    return f"{d.of(('LEAST', 'GREATEST'))}({expression(d, k, s, n)}, {expression(d, k, s, n)})"


def _scalar(d: Dice, k: str, s: Scope, n: int) -> str:
    found = s.subquery(s, k, d, n) if s.subquery is not None else None
    return found if found is not None else expression(d, k, s, 0)


def _binary(*signs: str) -> Maker:
    def make(d: Dice, k: str, s: Scope, n: int) -> str:
        return f"({expression(d, k, s, n)} {d.of(signs)} {expression(d, k, s, n)})"

    return make


def _of(form: str, *kinds: str) -> Maker:
    """Return a maker of a form over expressions of these types: `{0}`, `{1}`, … stand for them."""

    def make(d: Dice, k: str, s: Scope, n: int) -> str:
        return form.format(*(expression(d, kind, s, n) for kind in kinds), k=k)

    return make


def _failing(form: str, *kinds: str) -> Maker:
    """Return a maker of a form that fails on some values; where none may, of a simple expression."""
    make = _of(form, *kinds)
    return lambda d, k, s, n: make(d, k, s, n) if s.failing and d.chance(50) else expression(d, k, s, 0)


def _compare(d: Dice, k: str, s: Scope, n: int) -> str:
    kind = d.of((INT, DOUBLE, TEXT, DEC, DATE, TIME, BIG, BOOL, SPAN))
    other = d.of(NUMBERS) if kind in NUMBERS else kind
    sign = d.of(("=", "<", "<>", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"))
    return f"({expression(d, kind, s, n)} {sign} {expression(d, other, s, n)})"


def _isnull(d: Dice, k: str, s: Scope, n: int) -> str:
    kind = d.of(tuple({kind: 0 for _, kind in s.columns}) or (INT,))
    return f"({expression(d, kind, s, n)} IS {d.of(('NULL', 'NOT NULL'))})"


def _among(d: Dice, k: str, s: Scope, n: int) -> str:
    kind = d.of((INT, TEXT, DOUBLE, DATE))
    items = ", ".join(literal(d.of((*DOMAINS[kind], None)), kind) for _ in range(1 + d.below(3)))
    return f"({expression(d, kind, s, n)} {d.of(('IN', 'NOT IN'))} ({items}))"


def _between(d: Dice, k: str, s: Scope, n: int) -> str:
    kind = d.of((INT, DOUBLE, DATE, TEXT, DEC))
    low, high = expression(d, kind, s, n), expression(d, kind, s, n)
    return f"({expression(d, kind, s, n)} {d.of(('', 'NOT '))}BETWEEN {low} AND {high})"


def _logic(d: Dice, k: str, s: Scope, n: int) -> str:
    sign = d.of(("AND", "OR", "AND NOT"))
    return f"({expression(d, BOOL, s, n)} {sign} {expression(d, BOOL, s, n)})"


def _like(d: Dice, k: str, s: Scope, n: int) -> str:
    return f"({expression(d, TEXT, s, n)} {d.of(('LIKE', 'NOT LIKE', 'ILIKE'))} '{d.of(('a%', '%b', '_', '%', ''))}')"


_ANY: tuple[Maker, ...] = (_case, _coalesce, _nullif, _extreme, _scalar)
_PART = ("year", "month", "day", "dow", "doy", "quarter", "isodow", "week")
_WHOLE: tuple[Maker, ...] = (
    _binary("+", "-", "*"),
    _of("abs({0})", INT),
    _of("length({0})", TEXT),
    _of("strpos({0}, {1})", TEXT, TEXT),
    lambda d, k, s, n: f"extract({d.of(_PART)} FROM {expression(d, d.of((DATE, TIME)), s, n)})",
    _of("CAST({0} AS {k})", BOOL),
    _of("CAST({0} AS {k})", DEC),
    _of("({0} % 3)", INT),
    _of("({0} // 2)", INT),
    _of("date_diff('day', {0}, {1})", DATE, DATE),
    _of("TRY_CAST({0} AS {k})", TEXT),
    _of("sign({0})", INT),
    _failing("({0} // {1})", INT, INT),
    _failing("({0} % {1})", INT, INT),
    _failing("CAST({0} AS {k})", TEXT),
    _failing("CAST({0} AS INTEGER)", BIG),
)
_MAKERS: dict[str, tuple[Maker, ...]] = {
    INT: _WHOLE,
    BIG: (*_WHOLE, _of("CAST({0} AS BIGINT)", INT), _of("({0} - {1})", DATE, DATE)),
    DOUBLE: (
        _binary("+", "-", "*", "/"),
        _of("CAST({0} AS DOUBLE)", INT),
        _of("CAST({0} AS DOUBLE)", DEC),
        _of("({0} / {1})", INT, INT),
        _of("abs({0})", DOUBLE),
        _of("floor({0})", DOUBLE),
        _of("ceil({0})", DOUBLE),
        _of("round({0}, 1)", DOUBLE),
        _of("sqrt(abs({0}))", DOUBLE),
        _of("power({0}, 2)", DOUBLE),
        _failing("CAST({0} AS DOUBLE)", TEXT),
    ),
    DEC: (
        _binary("+", "-"),
        _of("CAST({0} AS {k})", INT),
        _of("abs({0})", DEC),
        _of("CAST({0} * {1} AS {k})", DEC, DEC),
        _of("round({0}, 1)", DEC),
        _of("TRY_CAST({0} AS {k})", TEXT),
    ),
    TEXT: (
        _binary("||"),
        _of("upper({0})", TEXT),
        _of("lower({0})", TEXT),
        _of("substring({0}, {1}, 2)", TEXT, INT),
        _of("replace({0}, 'a', 'xy')", TEXT),
        _of("concat({0}, {1})", TEXT, INT),
        _of("CAST({0} AS TEXT)", INT),
        _of("CAST({0} AS TEXT)", DATE),
        _of("CAST({0} AS TEXT)", TIME),
        _of("CAST({0} AS TEXT)", DEC),
        _of("CAST({0} AS TEXT)", BOOL),
        _of("left({0}, 1)", TEXT),
        _of("right({0}, 2)", TEXT),
        _of("reverse({0})", TEXT),
        _of("lpad({0}, 3, '-')", TEXT),
        _of("repeat({0}, 2)", TEXT),
        _of("trim({0})", TEXT),
        _of("split_part({0}, 'a', 1)", TEXT),
    ),
    BOOL: (
        _compare,
        _compare,
        _isnull,
        _logic,
        _among,
        _between,
        _like,
        _of("(NOT {0})", BOOL),
        _of("starts_with({0}, {1})", TEXT, TEXT),
        _of("contains({0}, {1})", TEXT, TEXT),
        _of("({0} IS TRUE)", BOOL),
    ),
    DATE: (_of("({0} + CAST({1} % 3 AS INTEGER))", DATE, INT), _of("CAST({0} AS DATE)", TIME)),
    TIME: (
        _of("({0} + {1})", TIME, SPAN),
        _of("({0} - {1})", DATE, SPAN),
        _of("date_trunc('month', {0})", TIME),
        _of("date_trunc('day', {0})", DATE),
        _of("CAST({0} AS TIMESTAMP)", DATE),
        _of("({0} + INTERVAL 1 MONTH)", DATE),
    ),
    SPAN: (_binary("+", "-"), _of("({0} - {1})", TIME, TIME), _of("({0} * 2)", SPAN), _of("(-{0})", SPAN)),
}
