"""Find the expressions that fixpoint kernels compute themselves, and how a MIN or MAX value moves through one.

A kernel works on codes: integers, decimals of one scale, dates and timestamps are numbers there; doubles are decoded;
text can only be compared for equality. Wide decimals are numbers up to 2**62 units of their last digit; where they are
added, multiplied or ordered a larger one is an error. Everything else is *foreign* and is computed by Python, a column
at a time.
"""

from __future__ import annotations

from whence.model.types import BIGINT, BOOLEAN, NARROW_PRECISION, Kind, Type
from whence.model.wide import INLINE
from whence.plan.algebra.expressions import Call, Cast, Col, Expr, Lit, columns_of, strip_casts, walk
from whence.plan.recursion.rule_model import Op

_COMPARE = ("=", "<>", "<", "<=", ">", ">=")


def is_value(expr: Expr) -> bool:
    """Return whether a kernel can compute the expression."""
    expr = strip_casts(expr)
    match expr:
        case Col() | Lit():
            return True
        case Cast():
            return _scaling(expr) is not None and is_value(expr.arg)
        case Call(op="least" | "greatest"):
            return not expr.type.is_interned and all(_same(a.type, expr.type) and is_value(a) for a in expr.args)
        case Call(op="+" | "-" | "*"):
            return len(expr.args) == 2 and _arithmetic(expr) is not None and all(map(is_value, expr.args))
    return False


def is_test(expr: Expr) -> bool:
    """Return whether a kernel can decide the condition."""
    match expr:
        case Call(op="is_not_distinct"):
            return all(map(is_value, expr.args)) and _same(expr.args[0].type, expr.args[1].type)
        case Call(op="is_null"):
            return is_value(expr.args[0])
        case Call(op="not", args=(Call(op="is_null", args=(arg,)),)):
            return is_value(arg)
        case Call(op=op) if op in _COMPARE:
            left, right = expr.args[0].type, expr.args[1].type
            ordered = op in ("=", "<>") or not left.is_interned
            return ordered and left.kind is not Kind.INTERVAL and _same(left, right) and all(map(is_value, expr.args))
    return expr.type.kind is Kind.BOOLEAN and is_value(expr)


def _same(a: Type, b: Type) -> bool:
    return a.scale == b.scale and (a.kind is b.kind or (a.is_integer and b.is_integer))


def _arithmetic(expr: Call) -> str | None:
    """Return the kernel operation behind + - *, or None."""
    left, right = expr.args[0].type, expr.args[1].type
    kinds = {left.kind, right.kind, expr.type.kind}
    if kinds == {Kind.DOUBLE}:
        return expr.op + "f"
    if not kinds <= {Kind.INTEGER, Kind.BIGINT, Kind.DECIMAL} or expr.type.kind is Kind.INTEGER:
        return None
    if expr.op == "*":
        return expr.op if left.scale + right.scale == expr.type.scale else None
    return expr.op if left.scale == right.scale == expr.type.scale else None


def _scaling(expr: Cast) -> tuple[str, int] | None:
    """Return a cast between numbers as an operation with a constant."""
    source, target = expr.arg.type, expr.type
    if expr.lenient:
        return None
    exact = source.is_integer or source.kind is Kind.DECIMAL
    if abs(target.scale - source.scale) > NARROW_PRECISION:
        return None
    if exact and target.kind is Kind.DOUBLE:
        return "to_float", 10**source.scale
    if exact and target.kind is Kind.DECIMAL and target.scale >= source.scale and source.kind is not Kind.BIGINT:
        return "*", 10 ** (target.scale - source.scale)
    return None


class Emitter:
    """Turns native expressions into operations on variables."""

    def __init__(self, variable: dict[int, int], variables: int):
        self._variable = variable  # by column
        self.variables = variables
        self.ops: list[Op] = []
        self.constants: list[tuple[int, object, Type]] = []
        self._known: dict[object, int] = {}

    def fresh(self) -> int:
        self.variables += 1
        return self.variables - 1

    def constant(self, value: object, type: Type) -> int:
        key = (value, type)
        if key not in self._known:
            self._known[key] = self.fresh()
            self.constants.append((self._known[key], value, type))
        return self._known[key]

    def value(self, expr: Expr) -> int:
        """Return the variable that holds an expression's value."""
        expr = strip_casts(expr)
        if isinstance(expr, Col):
            return self._variable[expr.index]
        if isinstance(expr, Lit):
            return self.constant(expr.value, expr.type)
        if expr not in self._known:
            self._known[expr] = self._compute(expr)
        return self._known[expr]

    def _compute(self, expr: Expr) -> int:
        if isinstance(expr, Cast):
            scaling = _scaling(expr)
            assert scaling is not None
            return self._op(scaling[0], self.number(expr.arg), self.constant(scaling[1], BIGINT), expr.type)
        assert isinstance(expr, Call)
        if expr.op in ("least", "greatest"):
            so_far = self.number(expr.args[0])
            for arg in expr.args[1:]:
                so_far = self._op(expr.op, so_far, self.number(arg), BIGINT)  # one of them, so it fits
            return so_far
        name = _arithmetic(expr)
        assert name is not None
        return self._op(name, self.number(expr.args[0]), self.number(expr.args[1]), expr.type)

    def number(self, expr: Expr) -> int:
        """Return the variable of a value that is added or ordered: of a wide decimal, tested for being its own code."""
        variable = self.value(expr)
        if expr.type.is_wide:
            fits = Op("fits", variable, self.constant(INLINE, BIGINT))
            if fits not in self.ops:
                self.ops.append(fits)
        return variable

    def _op(self, name: str, a: int, b: int, type: Type) -> int:
        to = self.fresh()
        self.ops.append(Op(name, a, b, to))
        if type.kind is Kind.DECIMAL:
            self.ops.append(Op("fits", to, self.constant(min(10**type.precision, INLINE), BIGINT)))
        return to

    def must_be(self, expr: Expr) -> None:
        """Add a value without which the rule is an error."""
        self.ops.append(Op("must_be", self.value(expr)))

    def test(self, expr: Expr) -> None:
        """Add a condition that must be true."""
        match expr:
            case Call(op="is_not_distinct"):
                self.ops.append(Op("same", self.value(expr.args[0]), self.value(expr.args[1])))
            case Call(op="is_null"):
                self.ops.append(Op("is_null", self.value(expr.args[0])))
            case Call(op="not", args=(Call(op="is_null", args=(arg,)),)):
                self.ops.append(Op("not_null", self.value(arg)))
            case Call(op=op) if op in _COMPARE:
                operand = self.value if op in ("=", "<>") else self.number
                self.ops.append(Op(op, operand(expr.args[0]), operand(expr.args[1])))
            case _:
                self.ops.append(Op("=", self.value(expr), self.constant(True, BOOLEAN)))


def direction(expr: Expr, column: int) -> int | None:
    """Return how an expression moves with a column: +1 up, -1 down, 0 not at all, None if that cannot be told.

    >>> direction(Call(BIGINT, "-", (Lit(BIGINT, 9), Col(BIGINT, 0))), 0)
    -1
    """
    if column not in columns_of(expr):
        return 0
    expr = strip_casts(expr)
    match expr:
        case Col():
            return 1
        case Cast(arg=arg) if expr.type.is_numeric and arg.type.is_numeric:
            return direction(arg, column)
        case Call(op="+" | "least" | "greatest"):
            return _agree([direction(a, column) for a in expr.args])
        case Call(op="-", args=(a, b)):
            down = direction(b, column)
            return _agree([direction(a, column), None if down is None else -down])
        case Call(op="*", args=(a, b)):
            for moving, factor in ((a, b), (b, a)):
                if isinstance(factor, Lit) and factor.value is not None and factor.value > 0:
                    return direction(moving, column)
    return None


def strict(expr: Expr, column: int, rounding: bool = False) -> bool:
    """Return whether different values of the column always give different results, so that ties are ties of the column.

    Sums of DOUBLE may round to the same number; `rounding` says not to mind."""
    expr = strip_casts(expr)
    if isinstance(expr, Col):
        return expr.index == column
    if expr.type.kind is Kind.DOUBLE and not rounding:
        return False
    match expr:
        case Cast(arg=arg):
            return _scaling(expr) is not None and strict(arg, column, rounding)
        case Call(op="+" | "-", args=(a, b)):
            moving, other = (a, b) if column in columns_of(a) else (b, a)
            return strict(moving, column, rounding) and column not in columns_of(other)
        case Call(op="*", args=(a, b)):
            moving, other = (a, b) if column in columns_of(a) else (b, a)
            return isinstance(other, Lit) and bool(other.value) and strict(moving, column, rounding)
    return False


def never_better(expr: Expr, column: int, sign: int, tests: tuple[Expr, ...] = ()) -> bool:
    """Return whether an expression is never smaller than the column (sign 1) or never larger (-1), where the tests
    hold.

    >>> v, w = Col(BIGINT, 0), Col(BIGINT, 1)
    >>> never_better(Call(BIGINT, "least", (v, w)), 0, -1), never_better(Call(BIGINT, "+", (v, w)), 0, 1)
    (True, False)
    """
    expr = strip_casts(expr)
    match expr:
        case Col():
            return expr.index == column
        case Cast(arg=arg):
            return _scaling(expr) is not None and never_better(arg, column, sign, tests)
        case Call(op="least" | "greatest"):
            kept = [never_better(a, column, sign, tests) for a in expr.args]
            return any(kept) if (expr.op == "greatest") == (sign > 0) else all(kept)
        case Call(op="+", args=(a, b)):
            moving, other = (a, b) if column in columns_of(a) else (b, a)
            return never_better(moving, column, sign, tests) and _bounded(other, sign, tests)
        case Call(op="-", args=(a, b)):
            return never_better(a, column, sign, tests) and _bounded(b, -sign, tests)
    return False


def _bounded(expr: Expr, sign: int, tests: tuple[Expr, ...]) -> bool:
    """Return whether a number is never below zero (sign 1) or never above it (-1), where the tests hold."""
    stripped = strip_casts(expr)
    if not expr.type.is_numeric:
        return False
    match stripped:
        case Lit(value=value):
            return value is not None and value * sign >= 0
        case Cast(arg=arg):
            return _bounded(arg, sign, tests)
        case Call(op="abs"):
            return sign > 0
        case Call(op="-", args=(Lit(value=0), arg)):
            return _bounded(arg, -sign, tests)
    up, down = ((">", ">="), ("<", "<=")) if sign > 0 else (("<", "<="), (">", ">="))
    for test in tests:
        if isinstance(test, Call) and len(test.args) == 2:
            for a, b, ops in ((*test.args, up), (*test.args[::-1], down)):
                if test.op in ops and strip_casts(a) == stripped and isinstance(b, Lit) and _bounded(b, sign, ()):
                    return True
    return False


def _agree(directions: list[int | None]) -> int | None:
    moving = {d for d in directions if d != 0}
    return moving.pop() if len(moving) == 1 else (None if moving else 0)


def lets_better_pass(test: Expr, column: int, sign: int) -> bool:
    if isinstance(test, Call) and test.op in ("<", "<=", ">", ">="):
        left, right = direction(test.args[0], column), direction(test.args[1], column)
        if left is None or right is None:
            return False
        falls = test.op in ("<", "<=")
        return all(
            d in (0, wanted) for d, wanted in ((left, sign if falls else -sign), (right, -sign if falls else sign))
        )
    return False


def skips_null(expr: Expr, column: int) -> bool:
    """Return whether LEAST or GREATEST, which skip NULL, see the column."""
    return any(isinstance(e, Call) and e.op in ("least", "greatest") and column in columns_of(e) for e in walk(expr))


def is_present(test: Expr) -> bool:
    """Return whether a condition says that a column is not NULL, as unification leaves it behind for an equality."""
    return (
        isinstance(test, Call) and test.op == "not" and isinstance(test.args[0], Call) and test.args[0].op == "is_null"
    )
