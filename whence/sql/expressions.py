"""Scalar expressions: from sqlglot's trees to typed expressions over a scope.

Aggregates and subqueries come out as the placeholders of `placeholders.py`; where they may not stand, they are refused
here with the place's name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from sqlglot import exp

from whence.model import types as t
from whence.model.errors import SqlError
from whence.model.text import read_interval
from whence.model.types import Kind, Type
from whence.plan.algebra.expressions import Call, Expr, Lit, Udf, is_volatile
from whence.plan.algebra.logical import Node
from whence.plan.algebra.program import Program
from whence.sql import operators as op
from whence.sql.aggregates import AGGREGATES, BY_ARRIVAL, WINDOW_AGGREGATES, bind_aggregate, window_aggregate
from whence.sql.functions import BUILTINS, NONDETERMINISTIC, argument, call_builtin, extract
from whence.sql.ledger import Ledger
from whence.sql.limits import check_size
from whence.sql.literals import read_literal
from whence.sql.placeholders import AggRef, Sub, walk_expr
from whence.sql.position import did_you_mean, error, position
from whence.sql.scope import Scope, nullable
from whence.sql.tick_time import is_tick_time
from whence.sql.types import as_text, cast_type, coerce, is_text_literal
from whence.sql.zones import at_time_zone, named_zone

MAX_DEPTH = 150
_LATER = Lit(t.BOOLEAN, None)  # a test whose subquery is not known yet; see `QueryBinder.test`
_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.IntDiv: "//",
    exp.Mod: "%",
}
_COMPARISON: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "is_not_distinct",
    exp.NullSafeNEQ: "is_distinct",
}


_UNSUPPORTED: dict[type[exp.Expr], str] = {
    exp.Array: "an array",
    exp.Bracket: "[ ]",
    exp.Collate: "COLLATE",
    exp.Dot: "a field of a struct",
    exp.Escape: "ESCAPE",
    exp.Glob: "GLOB",
    exp.IgnoreNulls: "IGNORE NULLS",
    exp.Lambda: "a lambda",
    exp.RegexpLike: "a regular expression",
    exp.RespectNulls: "RESPECT NULLS",
    exp.SimilarTo: "SIMILAR TO",
    exp.Star: "* here",
    exp.Struct: "a struct",
    exp.WithinGroup: "WITHIN GROUP",
}


class Subqueries(Protocol):
    """The query binder as expressions see it: it plans the subqueries inside them."""

    @property
    def program(self) -> Program: ...

    @property
    def ledger(self) -> Ledger: ...

    def subquery(self, query: exp.Expr, scope: Scope) -> Node: ...

    def test(self, query: exp.Expr, scope: Scope) -> Node | None: ...


@dataclass(frozen=True)
class ExpressionBinder:
    """The binder of expressions over one scope. `aggregates` says whether aggregate functions may stand here."""

    queries: Subqueries
    scope: Scope
    place: str
    aggregates: bool = False
    depth: int = 0
    windows: bool = False  # the rows are those of windows, in the order they came

    def condition(self, node: exp.Expr) -> Expr:
        return op.boolean(self.bind(node), node)

    def bind(self, node: exp.Expr) -> Expr:
        if self.depth > MAX_DEPTH:
            line, column = position(node)
            raise SqlError(f"an expression is nested more than {MAX_DEPTH} levels deep", line=line, column=column)
        handler, args = _HANDLERS.get(type(node), (None, ()))
        if handler is not None:
            self.read(node, *args)
            return handler(replace(self, depth=self.depth + 1), node)
        if isinstance(node, exp.Func) and node.sql_name().lower() in NONDETERMINISTIC:
            raise _nondeterministic(node.sql_name().lower(), node)
        raise error(f"{_UNSUPPORTED.get(type(node), 'this expression')} is not supported", node)

    def read(self, node: exp.Expr, *args: str) -> None:
        self.queries.ledger.read(node, *args)

    def _repeated(self, node: exp.Expr) -> Expr:
        """Check an expression that will stand in several places; where such are nested, they multiply."""
        expr = self.bind(node)
        check_size(expr, node)
        if is_volatile(expr):
            raise error(
                "this is computed more than once for each row, and calls a function that is declared with "
                "deterministic=False; compute it in a subquery",
                node,
            )
        return expr

    # -- leaves

    def _literal(self, node: exp.Expr) -> Expr:
        return read_literal(node)

    def _column(self, node: exp.Expr) -> Expr:
        if isinstance(node.this, exp.Star):
            raise error("* cannot stand here", node)
        assert isinstance(node, exp.Column)
        name = node.name.lower()
        if name in NONDETERMINISTIC and node.args.get("table") is None and not self.scope.find(None, name):
            raise _nondeterministic(name, node)
        return self.scope.resolve(node)

    def _parameter(self, node: exp.Expr) -> Expr:
        return self.scope.parameter(node)

    def _interval(self, node: exp.Expr) -> Expr:
        unit = node.args.get("unit")
        if isinstance(node.this, exp.Literal):
            self.read(node.this, "this", "is_string")
        try:
            return Lit(t.INTERVAL, read_interval(node.this.name, unit.name if unit is not None else None))
        except ValueError as failure:
            raise error(str(failure), node) from None
        except AttributeError:
            raise error("not an interval", node) from None

    # -- operators

    def _chain(self, node: exp.Expr) -> Expr:
        """Bind AND and OR, as long as the chain is, without recursion down its left side."""
        kind, parts, at = type(node), list[exp.Expr](), node
        while isinstance(at, (kind, exp.Paren)):
            self.read(at, "this", "expression")
            if isinstance(at, exp.Paren):
                at = at.this
                continue
            parts.append(at.expression)
            at = at.this
        parts.append(at)
        return op.logic("and" if kind is exp.And else "or", [self.condition(p) for p in reversed(parts)], node)

    def _arithmetic(self, node: exp.Expr) -> Expr:
        return op.arithmetic(_ARITHMETIC[type(node)], self.bind(node.this), self.bind(node.expression), node)

    def _not(self, node: exp.Expr) -> Expr:
        return Call(t.BOOLEAN, "not", (self.condition(node.this),))

    def _comparison(self, node: exp.Expr) -> Expr:
        name = _COMPARISON[type(node)]
        for side in (node.expression, node.this):
            if isinstance(side, (exp.Any, exp.All)):
                return self._quantified(name, node, side)
        if isinstance(node.this, exp.Tuple) and isinstance(node.expression, exp.Tuple) and name in ("=", "<>"):
            equal = self._equal_tuples(node.this, node.expression, node)
            return equal if name == "=" else Call(t.BOOLEAN, "not", (equal,))
        return op.comparison(name, self.bind(node.this), self.bind(node.expression), node)

    def _equal_tuples(self, left: exp.Expr, right: exp.Expr, node: exp.Expr) -> Expr:
        self.read(left, "expressions")
        self.read(right, "expressions")
        if not isinstance(right, exp.Tuple) or len(left.expressions) != len(right.expressions):
            raise error("tuples of different lengths are compared", node)
        pairs = zip(left.expressions, right.expressions, strict=True)
        return op.logic("and", [op.comparison("=", self.bind(a), self.bind(b), node) for a, b in pairs], node)

    def _quantified(self, name: str, node: exp.Expr, side: exp.Expr) -> Expr:
        if side is node.expression and (type(side), name) in ((exp.Any, "="), (exp.All, "<>")):
            self.read(side, "this")
            found = self._in_query([node.this], side.this, node)
            return found if name == "=" else Call(t.BOOLEAN, "not", (found,))
        raise error("only = ANY and <> ALL are supported; rewrite with EXISTS or an aggregate", node)

    def _pipes(self, node: exp.Expr) -> Expr:
        left, right = self.bind(node.this), self.bind(node.expression)
        return Call(t.TEXT, "||", (_text(left), _text(right)))

    def _negative(self, node: exp.Expr) -> Expr:
        return op.negated(self.bind(node.this), node)

    def _is(self, node: exp.Expr) -> Expr:
        value = self.bind(node.this)
        if isinstance(node.expression, exp.Null):
            return Call(t.BOOLEAN, "is_null", (value,))
        return op.comparison("is_not_distinct", value, self.bind(node.expression), node)

    def _between(self, node: exp.Expr) -> Expr:
        value = self._repeated(node.this)
        low = op.comparison(">=", value, self.bind(node.args["low"]), node)
        high = op.comparison("<=", value, self.bind(node.args["high"]), node)
        return op.logic("and", [low, high], node)

    def _like(self, node: exp.Expr) -> Expr:
        args = (argument(self.bind(node.this), t.TEXT, node), argument(self.bind(node.expression), t.TEXT, node))
        found = Call(t.BOOLEAN, "ilike" if isinstance(node, exp.ILike) else "like", args)
        return Call(t.BOOLEAN, "not", (found,)) if node.args.get("negate") else found

    def _cast(self, node: exp.Expr) -> Expr:
        return op.cast(self.bind(node.this), cast_type(node.args["to"]), isinstance(node, exp.TryCast), node)

    def _at_time_zone(self, node: exp.Expr) -> Expr:
        zone = named_zone(node)
        self.read(node.args["zone"], "this", "is_string")
        return at_time_zone(self.bind(node.this), zone, node)

    def _case(self, node: exp.Expr) -> Expr:
        subject = self._repeated(node.this) if node.this is not None else None
        branches = []
        for branch in node.args["ifs"]:
            self.read(branch, "this", "true")
            if subject is None:
                test = self.condition(branch.this)
            else:
                test = op.comparison("=", subject, self.bind(branch.this), branch)
            branches.append((test, self.bind(branch.args["true"])))
        default = node.args.get("default")
        return op.case(branches, self.bind(default) if default is not None else None, node)

    def _if(self, node: exp.Expr) -> Expr:
        otherwise = node.args.get("false")
        branch = (self.condition(node.this), self.bind(node.args["true"]))
        return op.case([branch], self.bind(otherwise) if otherwise is not None else None, node)

    def _paren(self, node: exp.Expr) -> Expr:
        return self.bind(node.this)

    # -- functions

    def _extract(self, node: exp.Expr) -> Expr:
        return extract(node.this.name, self.bind(node.expression), node)

    def _substring(self, node: exp.Expr) -> Expr:
        start, length = node.args.get("start"), node.args.get("length")
        if start is None and length is not None:  # SUBSTRING(s FOR n)
            start = exp.Literal.number(1)
        args = [node.this, start, length]
        return call_builtin("substring", [self.bind(a) for a in args if a is not None], node)

    def _trim(self, node: exp.Expr) -> Expr:
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or "").upper(), "trim")
        args = [node.this] + ([node.expression] if node.expression is not None else [])
        return call_builtin(name, [self.bind(a) for a in args], node)

    def _position(self, node: exp.Expr) -> Expr:
        return call_builtin("strpos", [self.bind(node.this), self.bind(node.args["substr"])], node)

    def _power(self, node: exp.Expr) -> Expr:
        return call_builtin("power", [self.bind(node.this), self.bind(node.expression)], node)

    def _function(self, node: exp.Expr) -> Expr:
        name = str(node.this).lower()
        program = self.queries.program
        if name in program.scalars:
            return self._udf(name, node)
        if name in AGGREGATES:
            return self._aggregate(name, node, None)
        if is_tick_time(node):
            return self.scope.tick_time(node)
        if name in NONDETERMINISTIC:
            raise _nondeterministic(name, node)
        if name not in BUILTINS:
            if name in program.table_functions:
                raise error(f'"{name}" is a table function: it stands in FROM', node)
            hint = did_you_mean(name, [*program.scalars, *BUILTINS, *AGGREGATES])
            raise error(f'unknown function "{name}"{hint}', node)
        for arg in node.expressions:
            if isinstance(arg, (exp.Distinct, exp.Star, exp.Kwarg)):
                raise error(f"{name} does not take this argument", node)
        return call_builtin(name, [self.bind(a) for a in node.expressions], node)

    def _udf(self, name: str, node: exp.Expr) -> Expr:
        function = self.queries.program.scalars[name]
        args = [self.bind(a) for a in node.expressions]
        return Udf(function.returns, name, function.function, fit_arguments(name, args, function.args, node))

    def _aggregate(self, name: str, node: exp.Expr, only: exp.Expr | None) -> Expr:
        if not self.aggregates:
            raise error(f"the aggregate {name} cannot stand in {self.place}", node)
        args, distinct = list(node.expressions), False
        if args and isinstance(args[0], exp.Distinct):
            self.read(args[0], "expressions")
            args, distinct = list(args[0].expressions), True
        if name in WINDOW_AGGREGATES and not self.windows and name not in BY_ARRIVAL:
            raise error(f"{name} is for windows: FROM slide(stream, …)", node)
        inner = ExpressionBinder(self.queries, self.scope, "another aggregate", False, self.depth)
        test = inner.condition(only) if only is not None else None
        if name == "count" and (not args or isinstance(args[0], exp.Star)):
            if distinct:
                raise error("COUNT(DISTINCT *) is not supported; name a column", node)
            arg = None if test is None else op.case([(test, Lit(t.INTEGER, 1))], None, node)
            return AggRef(t.BIGINT, "count", arg, False)
        parameter = _quantile(name, args, node)
        if parameter is not None and isinstance(node.expressions[-1], exp.Literal):
            self.read(node.expressions[-1], "this", "is_string")
        if len(args) != 1:
            raise error(f"{name} takes one argument, not {len(args)}", node)
        ordered = None
        if isinstance(args[0], exp.Order):
            ordered = self._order_of(name, args[0], inner)
            args[0] = args[0].this
        value = inner.bind(args[0])
        if self.windows and any(isinstance(e, Sub) for part in (value, test) if part for e in walk_expr(part)):
            raise error("an aggregate of a window takes no subquery; join with it before the window", node)
        if name == "count_if":
            test = op.logic("and", [test, op.boolean(value, node)], node) if test else op.boolean(value, node)
            return AggRef(t.BIGINT, "count", op.case([(test, Lit(t.INTEGER, 1))], None, node), False)
        if test is not None:
            value = op.case([(test, value)], None, node)
        if name in WINDOW_AGGREGATES:
            if distinct:
                raise error(f"{name} does not take DISTINCT", node)
            if test is not None and name in BY_ARRIVAL:
                where = "filter before the window: slide((SELECT … WHERE …), …)" if self.windows else "say WHERE"
                raise error(f"{name} has no FILTER; {where}", node)
            return replace(window_aggregate(name, value, parameter, node), order=ordered)
        return bind_aggregate(name, value, distinct, node)

    def _order_of(self, name: str, order: exp.Expr, inner: ExpressionBinder) -> Expr:
        """Bind the ORDER BY inside FIRST or LAST."""
        if name not in BY_ARRIVAL or self.windows:
            raise error(f"{name} with ORDER BY is not supported", order)
        self.read(order, "this", "expressions")
        if len(order.expressions) != 1 or order.expressions[0].args.get("desc"):
            other = "FIRST" if name == "last" else "LAST"
            raise error(f"{name} goes by one column, from its least value on; {other} is from the other end", order)
        (term,) = order.expressions
        self.read(term, "this", "nulls_first")
        found = inner.bind(term.this)
        if found.type.needs_dictionary or found.type.kind is Kind.NULL:
            raise error(f"{name} goes by a number, a DATE or a TIMESTAMP, found {found.type}", order)
        return found

    def _filtered(self, node: exp.Expr) -> Expr:
        if not isinstance(node.this, exp.Anonymous) or str(node.this.this).lower() not in AGGREGATES:
            raise error("FILTER is for aggregates", node)
        self.read(node.this, "this", "expressions")
        self.read(node.expression, "this")
        return self._aggregate(str(node.this.this).lower(), node.this, node.expression.this)

    def _window(self, node: exp.Expr) -> Expr:
        raise error("window functions (OVER) are not supported", node)

    # -- subqueries

    def _exists(self, node: exp.Expr) -> Expr:
        plan = self.queries.test(node.this, self.scope)
        return _LATER if plan is None else Sub(t.BOOLEAN, "exists", (), plan)

    def _scalar(self, node: exp.Expr) -> Expr:
        plan = self.queries.subquery(node, self.scope)
        if len(plan.schema) != 1:
            raise error(f"a subquery used as a value has one column, not {len(plan.schema)}", node)
        return Sub(plan.schema.columns[0].type, "scalar", (), plan)

    def _in(self, node: exp.Expr) -> Expr:
        query = node.args.get("query")
        if query is not None:
            values = [node.this]
            if isinstance(node.this, exp.Tuple):
                self.read(node.this, "expressions")
                values = node.this.expressions
            return self._in_query(values, query, node)
        if node.args.get("field") is not None or node.args.get("unnest") is not None:
            raise error("IN takes a list in parentheses or a subquery", node)
        if isinstance(node.this, exp.Tuple):
            return op.logic("or", [self._equal_tuples(node.this, item, node) for item in node.expressions], node)
        if len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Query):
            return self._in_query([node.this], node.expressions[0], node)
        return op.member(self._repeated(node.this), [self.bind(e) for e in node.expressions], node)

    def _in_query(self, values: list[exp.Expr], query: exp.Expr, node: exp.Expr) -> Expr:
        plan = self.queries.test(query, self.scope)
        if plan is None:
            return _LATER
        if len(plan.schema) != len(values):
            raise error(f"IN compares {len(values)} with a subquery of {len(plan.schema)} columns", node)
        operands = tuple(self.bind(v) for v in values)
        unnullable = not any(nullable(e, self.scope) for e in operands)
        unnullable = unnullable and not any(c.nullable for c in plan.schema.columns)
        return Sub(t.BOOLEAN, "in", operands, plan, unnullable)


def fit_arguments(name: str, args: list[Expr], takes: tuple[Type, ...], node: exp.Expr) -> tuple[Expr, ...]:
    """Cast arguments to what a registered function takes."""
    if len(args) != len(takes):
        raise error(f"{name} takes {len(takes)} arguments, not {len(args)}", node)
    found = []
    for at, (arg, type) in enumerate(zip(args, takes, strict=True), 1):
        alike = arg.type.kind in (Kind.NULL, type.kind) or is_text_literal(arg)
        alike = alike or (arg.type.is_numeric and type.is_numeric) or (arg.type, type) == (t.DATE, t.TIMESTAMP)
        if not alike:
            raise error(f"{name} takes {type} as argument {at}, found {arg.type}", node)
        found.append(coerce(arg, type, node))
    return tuple(found)


def _quantile(name: str, args: list[exp.Expr], node: exp.Expr) -> float | None:
    """Take the second argument of a quantile from the list; MEDIAN's is one half."""
    if name == "median":
        return 0.5
    if not name.startswith("quantile"):
        return None
    if len(args) != 2:
        raise error(f"{name} takes a value and which quantile of it, such as {name}(x, 0.9)", node)
    given = args.pop()
    literal = read_literal(given) if isinstance(given, exp.Literal) else None
    if literal is None or not literal.type.is_numeric or not 0 <= literal.value <= 1:
        raise error(f"the quantile must be a number from 0 to 1, such as {name}(x, 0.9)", given)
    return float(literal.value)


def _nondeterministic(name: str, node: exp.Expr) -> Exception:
    return error(
        f"{name} gives another answer each time, so a view of it could not be kept; insert the value as data", node
    )


def _text(expr: Expr) -> Expr:
    return expr if expr.type == t.TEXT else (Lit(t.TEXT, None) if expr.type.kind is Kind.NULL else _as_text(expr))


def _as_text(expr: Expr) -> Expr:
    return coerce(expr, t.TEXT) if isinstance(expr, Lit) and expr.type.is_integer else as_text(expr)


# What binds each node, and the arguments of it that this reads; any other argument that is given is refused.
_HANDLERS: dict[type[exp.Expr], tuple[Callable[[ExpressionBinder, exp.Expr], Expr], tuple[str, ...]]] = {
    **dict.fromkeys(_ARITHMETIC, (ExpressionBinder._arithmetic, ("this", "expression"))),
    **dict.fromkeys(_COMPARISON, (ExpressionBinder._comparison, ("this", "expression"))),
    exp.Literal: (ExpressionBinder._literal, ("this", "is_string")),
    exp.Null: (ExpressionBinder._literal, ()),
    exp.Boolean: (ExpressionBinder._literal, ("this",)),
    exp.Column: (ExpressionBinder._column, ("this", "table")),
    exp.Placeholder: (ExpressionBinder._parameter, ("this",)),
    exp.Interval: (ExpressionBinder._interval, ("this", "unit")),
    exp.And: (ExpressionBinder._chain, ("this", "expression")),
    exp.Or: (ExpressionBinder._chain, ("this", "expression")),
    exp.Not: (ExpressionBinder._not, ("this",)),
    exp.DPipe: (ExpressionBinder._pipes, ("this", "expression", "safe")),
    exp.Neg: (ExpressionBinder._negative, ("this",)),
    exp.Is: (ExpressionBinder._is, ("this", "expression")),
    exp.Between: (ExpressionBinder._between, ("this", "low", "high")),
    exp.Like: (ExpressionBinder._like, ("this", "expression", "negate")),
    exp.ILike: (ExpressionBinder._like, ("this", "expression", "negate")),
    exp.Cast: (ExpressionBinder._cast, ("this", "to")),
    exp.TryCast: (ExpressionBinder._cast, ("this", "to", "safe")),
    exp.Case: (ExpressionBinder._case, ("this", "ifs", "default")),
    exp.If: (ExpressionBinder._if, ("this", "true", "false")),
    exp.Paren: (ExpressionBinder._paren, ("this",)),
    exp.AtTimeZone: (ExpressionBinder._at_time_zone, ("this", "zone")),
    exp.Extract: (ExpressionBinder._extract, ("this", "expression")),
    exp.Substring: (ExpressionBinder._substring, ("this", "start", "length")),
    exp.Trim: (ExpressionBinder._trim, ("this", "expression", "position")),
    exp.StrPosition: (ExpressionBinder._position, ("this", "substr")),
    exp.Pow: (ExpressionBinder._power, ("this", "expression")),
    exp.Anonymous: (ExpressionBinder._function, ("this", "expressions")),
    exp.Filter: (ExpressionBinder._filtered, ("this", "expression")),
    exp.Window: (ExpressionBinder._window, ()),
    exp.Exists: (ExpressionBinder._exists, ("this",)),
    exp.Subquery: (ExpressionBinder._scalar, ()),
    exp.In: (ExpressionBinder._in, ("this", "expressions", "query")),
}
