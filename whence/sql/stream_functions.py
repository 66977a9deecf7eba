"""The table functions of streams in FROM: slide, latest, bsort and provenance.

Each takes a stream first, by its name or as a query in parentheses, and then arguments by name. Arguments are
checked here, where errors have a position in the text; whether the first argument is a stream at all is checked in
`plan/streams/networks.py`, which knows the views.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

from sqlglot import exp

from whence.model import types as t
from whence.model.codes import Interval
from whence.model.text import read_interval
from whence.model.types import Column, Kind, Schema, Type
from whence.plan.algebra.expressions import Col, Lit
from whence.plan.algebra.logical import JoinKind, Node, Ref, Scan, walk
from whence.plan.algebra.program import STREAM_FUNCTIONS
from whence.plan.rewrite.fold_constants import fold
from whence.plan.streams.instrument import TRACED
from whence.plan.streams.model import FIRST, BSort, Latest, ProvenanceJoin, Slide, Span
from whence.sql.expressions import ExpressionBinder
from whence.sql.position import did_you_mean, error
from whence.sql.scope import Scope, fields_of, unique_names
from whence.sql.tick_time import is_tick_time, tick_column
from whence.sql.types import coerce

if TYPE_CHECKING:
    from whence.sql.queries import QueryBinder

_ARGUMENTS = {
    "slide": ("rows", "every", "by", "on", "width", "origin", "lateness"),
    "latest": ("rows", "by", "on", "width"),
    "bsort": ("on", "slack", "within"),
}
_ORDERED = (Kind.INTEGER, Kind.BIGINT, Kind.DECIMAL, Kind.DOUBLE, Kind.DATE, Kind.TIMESTAMP)
_MOST = 2**61  # no window is so large, and none begins so far away
_DAY = 86_400_000_000


def is_stream_function(node: exp.Expr) -> bool:
    """Tell whether an item of FROM is a call of one of these functions."""
    return isinstance(node, exp.Table) and isinstance(node.this, exp.Anonymous) and _name(node.this) in STREAM_FUNCTIONS


def named_by(call: exp.Expr) -> str:
    """Return the name that qualifies the columns of a call without an alias: the stream it reads, if that has one."""
    first = call.expressions[0] if call.expressions else None
    return first.name.lower() if isinstance(first, exp.Column) else _name(call)


def bind_call(binder: QueryBinder, call: exp.Expr) -> Node:
    """Bind a call."""
    name = _name(call)
    binder.ledger.read(call, "this", "expressions")
    if name in ("late", "numbered", "owed"):
        raise error(f"{name}(…) is for queries that are asked once: no plan is made, and no view kept, of it", call)
    if name == "provenance":
        return _provenance(binder, call)
    given = _Given(binder, call, _stream(binder, call), _named_arguments(binder, call, _ARGUMENTS[name]))
    match name:
        case "slide":
            return _slide(given)
        case "latest":
            return _latest(given)
    return _bsort(given)


def _name(call: exp.Expr) -> str:
    return call.name.lower()


# -- arguments -------------------------------------------------------------------------------------------------------


def _stream(binder: QueryBinder, call: exp.Expr) -> Node:
    """Bind the first argument."""
    first = call.expressions[0] if call.expressions else None
    if isinstance(first, exp.Column) and not first.table and isinstance(first.this, exp.Identifier):
        binder.ledger.read(first, "this")
        node = binder.relation(exp.Table(this=first.this.copy()))
        table = binder.program.tables.get(node.table) if isinstance(node, Scan) else None
        if table is not None and table.stream is None:
            raise error(f"{_name(call)} needs a stream, and {not_a_stream(table.name, 'table')}", first)
        return node
    if isinstance(first, exp.Query):
        return binder.query(first, None)
    if isinstance(first, exp.Anonymous) and _name(first) in ("bsort", "slide", "latest"):
        return bind_call(binder, first)
    what = f"{_name(call)} takes the name of a stream or view, or a query in parentheses, as its first argument"
    raise error(what, first if first is not None else call)


def not_a_stream(name: str, kind: str) -> str:
    """Explain why something cannot have windows."""
    return f'"{name}" is a {kind}: rows of a {kind} come in no order'


def _named_arguments(binder: QueryBinder, call: exp.Expr, known: tuple[str, ...]) -> dict[str, exp.Expr]:
    """Return the arguments after the first, by name."""
    name, found = _name(call), dict[str, exp.Expr]()
    listed = ", ".join(known)
    for arg in call.expressions[1:]:
        if not isinstance(arg, exp.Kwarg):
            raise error(f"{name} takes its arguments after the first by name, such as {known[0]} => …: {listed}", arg)
        binder.ledger.read(arg, "this", "expression")
        key = arg.this.name.lower()
        if key not in known:
            hint = did_you_mean(key, known) or ";"
            raise error(f'{name} has no argument "{key}"{hint} it takes {listed}', arg)
        if key in found:
            raise error(f"{key} is given twice", arg)
        found[key] = arg.expression
    return found


@dataclass(frozen=True)
class _Given:
    """The arguments of a call whose first one is bound."""

    binder: QueryBinder
    call: exp.Expr
    input: Node
    args: dict[str, exp.Expr]

    @property
    def name(self) -> str:
        return _name(self.call)

    def column(self, arg: str, node: exp.Expr | None = None) -> int:
        """Return the column that an argument names."""
        node = node if node is not None else self.args[arg]
        while isinstance(node, exp.Paren):
            self.binder.ledger.read(node, "this")
            node = node.this
        if is_tick_time(node):
            self.binder.ledger.read(node, "this", "expressions")
            tick = tick_column(self.input, self.binder.program)
            found = Scope(fields_of(self.input.schema, named_by(self.call), tick)).tick_time(node)
            assert isinstance(found, Col)
            return found.index
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            advice = f"compute it before: {self.name}((SELECT … AS x, … FROM …), {arg} => x)"
            raise error(f"{arg} names a column of the stream; {advice}", node)
        self.binder.ledger.read(node, "this", "table")
        found = Scope(fields_of(self.input.schema, named_by(self.call))).resolve(node)
        assert isinstance(found, Col)
        return found.index

    def by(self) -> tuple[int, ...]:
        node = self.args.get("by")
        if node is None:
            return ()
        if isinstance(node, exp.Tuple):
            self.binder.ledger.read(node, "expressions")
        parts = node.expressions if isinstance(node, exp.Tuple) else [node]
        return tuple(dict.fromkeys(self.column("by", part) for part in parts))

    def on(self) -> int | None:
        """Return the ordered column, if there is one."""
        if "on" not in self.args:
            return None
        at = self.column("on")
        column = self.input.schema.columns[at]
        if column.type.kind not in _ORDERED or column.type.is_wide:
            orders = "a number of up to 18 digits, a DATE or a TIMESTAMP"
            raise error(f'on takes {orders}, and "{column.name}" is {column.type}', self.args["on"])
        return at

    def literal(self, arg: str) -> Lit:
        node = self.args[arg]
        found = fold(ExpressionBinder(self.binder, Scope(), f"the argument {arg}").bind(node))
        if not isinstance(found, Lit) or found.value is None:
            raise error(f"{arg} must be a constant", node)
        return found

    def count(self, arg: str, least: int = 1) -> int:
        """Return a number of rows."""
        found = self.literal(arg)
        if not found.type.is_integer:
            raise error(f"{arg} is a number of rows, not {found.type}", self.args[arg])
        return int(self._bounded(arg, found.value, least))

    def length(self, arg: str, type: Type, least: int | None = None) -> int | float:
        """Return a length in units of the column's type: more than zero, or `least` or more."""
        return self._bounded(arg, _length(self.literal(arg), type, arg, self.args[arg]), least)

    def moment(self, arg: str, type: Type) -> int | float:
        """Return a value of the column's type, in its units."""
        found = _moment(self.literal(arg), type, arg, self.args[arg])
        if not isfinite(found) or abs(found) > _MOST:
            raise error(f"{arg} is too far away", self.args[arg])
        return found

    def _bounded(self, arg: str, value: int | float, least: int | None) -> int | float:
        if not isfinite(value) or value > _MOST:
            raise error(f"{arg} is {'not a number' if value != value else 'too large'}", self.args[arg])
        if value < least if least is not None else value <= 0:
            more = "zero or more" if least == 0 else "more than zero"
            raise error(f"{arg} must be {more}", self.args[arg])
        return value

    def size(self, on: int | None) -> int | float | None:
        """Return `rows` or `width`, whichever is given."""
        if "rows" in self.args and "width" in self.args:
            raise error("a window is so many rows, or has a width; give rows or width, not both", self.args["width"])
        if "rows" in self.args:
            if on is not None:
                raise error("rows counts rows, whatever is in them: leave on out, or say width", self.args["rows"])
            return self.count("rows")
        if "width" not in self.args:
            return None
        if on is None:
            raise error("width is of an ordered column: say which, on => column", self.args["width"])
        return self.length("width", self.input.schema.types[on])


def _length(value: Lit, type: Type, arg: str, node: exp.Expr) -> int | float:
    """Convert a constant to a length in the units of a type."""
    kind, given = type.kind, value.type.kind
    if kind in (Kind.TIMESTAMP, Kind.DATE):
        micros = _micros(value, kind, arg, node)
        if kind is Kind.TIMESTAMP:
            return micros
        if micros % _DAY:
            raise error(f"{arg} of a DATE is in whole days", node)
        return micros // _DAY
    if not value.type.is_numeric:
        raise error(f"{arg} of a column that is {type} is a number, not {given.value}", node)
    if kind is Kind.DOUBLE or not isfinite(value.value):
        return float(value.value)
    scaled = Decimal(str(value.value)) * (10**type.scale if kind is Kind.DECIMAL else 1)
    if scaled != scaled.to_integral_value():
        raise error(f"{arg} is finer than the column, which is {type}", node)
    return int(scaled)


def _micros(value: Lit, kind: Kind, arg: str, node: exp.Expr) -> int:
    """Convert a constant to a length of time."""
    unit = "days" if kind is Kind.DATE else "seconds"
    span: Any = value.value
    if value.type.kind is Kind.TEXT:
        try:
            span = read_interval(span)
        except (ValueError, ArithmeticError):
            raise error(f"{arg} is a length of time such as INTERVAL '60 s', or a number of {unit}", node) from None
    if isinstance(span, Interval):
        if span.months:
            raise error(f"{arg} must be of a fixed length, and months and years are not; use days", node)
        return span.span
    if not value.type.is_numeric:
        raise error(f"{arg} is a length of time such as INTERVAL '60 s', or a number of {unit}", node)
    if not isfinite(span):
        raise error(f"{arg} is too large", node)
    micros = Decimal(str(span)) * (_DAY if kind is Kind.DATE else 1_000_000)
    if micros != micros.to_integral_value():
        raise error(f"{arg} is finer than a microsecond", node)
    return int(micros)


def _moment(value: Lit, type: Type, arg: str, node: exp.Expr) -> int | float:
    """Convert a constant to a value of a type, in its units."""
    if type.kind in (Kind.TIMESTAMP, Kind.DATE):
        if value.type.is_numeric:
            return _length(value, type, arg, node)
        if value.type.kind not in (Kind.TEXT, Kind.DATE, Kind.TIMESTAMP):
            raise error(f"{arg} is a value of the column, which is {type}", node)
        found = coerce(value, type, node)
        assert isinstance(found, Lit)
        if type.kind is Kind.DATE:
            return int((found.value - dt.date(1970, 1, 1)).days)
        return int((found.value - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1))
    return _length(value, type, arg, node)


# -- the functions ---------------------------------------------------------------------------------------------------


def _slide(given: _Given) -> Node:
    schema, on = given.input.schema, given.on()
    size = given.size(on)
    every: int | float | None = None
    origin: int | float | Literal["first"] = 0
    if "every" in given.args:
        every = given.count("every") if on is None else given.length("every", schema.types[on])
    if "origin" in given.args:
        if on is None:
            raise error("origin is a value of the column that windows are on; say on => column", given.args["origin"])
        origin = FIRST if _is_first(given.literal("origin")) else given.moment("origin", schema.types[on])
    lateness = _lateness(given, on, every)
    if size is None and every is None:
        raise error("slide needs rows => …, or on => … and width => …, and every => … if it is aggregated", given.call)
    span = Span(size, every, on, given.by(), origin, lateness)
    if on is None or every is None:
        return Slide(schema, given.input, span)
    type = schema.types[on]
    made = (Column("window_start", type, nullable=size is None), Column("window_end", type, nullable=False))
    for column in made:
        if column.name in schema.names:
            advice = "give it another name before: slide((SELECT … AS …), …)"
            raise error(f'the stream has a column "{column.name}", which is a name for windows; {advice}', given.call)
    return Slide(Schema((*schema.columns, *made)), given.input, span)


def _is_first(value: Lit) -> bool:
    return value.type.kind is Kind.TEXT and str(value.value).strip().lower() == FIRST


def _lateness(given: _Given, on: int | None, every: int | float | None) -> int | float:
    """Return how far behind the greatest value of its column a row may be and miss no window."""
    if "lateness" not in given.args:
        return 0
    if on is None:
        raise error("lateness is of windows on a column: say which, on => column", given.args["lateness"])
    if every is None:
        raise error(
            "lateness is for windows that are aggregated; sort a stream before it is joined: "
            "slide(bsort(s, on => …, within => …), …)",
            given.args["lateness"],
        )
    return given.length("lateness", given.input.schema.types[on], 0)


def _latest(given: _Given) -> Node:
    on = given.on()
    size = given.size(on)
    if size is None:
        raise error("latest needs rows => …, or on => … and width => …", given.call)
    return Latest(given.input.schema, given.input, Span(size, None, on, given.by()))


def _bsort(given: _Given) -> Node:
    on = given.on()
    if on is None:
        raise error("bsort needs on => column, by which the stream is to be sorted", given.call)
    if ("slack" in given.args) == ("within" in given.args):
        raise error(
            "bsort needs slack => …, how many rows it holds back, or within => …, how much of the column", given.call
        )
    if "slack" in given.args:
        return BSort(given.input.schema, given.input, on, given.count("slack", least=0))
    within = given.length("within", given.input.schema.types[on], 0)
    return BSort(given.input.schema, given.input, on, None, within=within)


def _provenance(binder: QueryBinder, call: exp.Expr) -> Node:
    """Bind `provenance(view[, source])`; its schema is described in `ProvenanceJoin`."""
    args = call.expressions
    for arg in args:
        if not isinstance(arg, exp.Column) or arg.table or not isinstance(arg.this, exp.Identifier):
            raise error("provenance takes the name of a view, and of a stream it is made of", arg)
        binder.ledger.read(arg, "this")
    if not 1 <= len(args) <= 2:
        raise error("provenance takes the name of a view, and of a stream it is made of", call)
    view = args[0].name.lower()
    node = binder.relation(exp.Table(this=args[0].this.copy()))
    if isinstance(node, Scan):
        raise error(f'"{view}" is not made of other streams; provenance is of a view', args[0])
    options = dict(binder.options_of(view))
    mode = options.get("provenance")
    if mode not in TRACED:
        raise error(f"\"{view}\" keeps no provenance; create it WITH (provenance = 'lineage')", call)
    given = options.get("provenance_of")
    traced = [part.strip() for part in given.split(",")] if given else sorted(_base_streams(binder, view))
    if len(args) == 2:
        source = args[1].name.lower()
        if source not in traced:
            hint = did_you_mean(source, traced) or f"; it is traced from {', '.join(traced)}"
            raise error(f'"{view}" is not traced from "{source}"{hint}', args[1])
    elif len(traced) == 1:
        source = traced[0]
    else:
        raise error(f'"{view}" is traced from {", ".join(traced)}; say which one is meant', call)
    inner = binder.relation(exp.Table(this=exp.to_identifier(source)))
    return ProvenanceJoin(traced_schema(node.schema, source, inner.schema), node, view, source)


def traced_schema(results: Schema, source: str, inputs: Schema) -> Schema:
    """Return the columns of `provenance(view, source)`; of an input that is no longer kept there is only the tid."""
    tid = Column("tid", t.BIGINT, nullable=False)
    theirs = (Column(f"{source}_{c.name}", c.type) for c in inputs.columns)
    made = (tid, *results.columns, Column(f"{source}_tid", t.BIGINT, nullable=False), *theirs)
    names = unique_names(c.name for c in made)
    return Schema(tuple(Column(n, c.type, c.nullable) for n, c in zip(names, made, strict=True)))


def _base_streams(binder: QueryBinder, view: str) -> set[str]:
    """Return the base streams that a view reads, directly or through others."""
    program, pending = binder.program, binder.session.pending
    found, seen, waiting = set[str](), set[str](), [view]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in pending:
            tree = pending[name].query
            waiting += [n.name.lower() for n in tree.find_all(exp.Table) if isinstance(n.this, exp.Identifier)]
            for call in tree.find_all(exp.Anonymous):
                if _name(call) in STREAM_FUNCTIONS:
                    waiting += [a.name.lower() for a in call.expressions if isinstance(a, exp.Column)]
        elif name in program.views:
            for node in walk(program.views[name].query):
                if isinstance(node, (Ref, Scan)):
                    waiting.append(node.view if isinstance(node, Ref) else node.table)
        elif name in program.tables and program.tables[name].stream is not None:
            found.add(name)
    return found


# -- where windows may stand -----------------------------------------------------------------------------------------


def check_windows(query: exp.Expr, node: Node, grouped: bool) -> None:
    """Refuse what a SELECT directly over `slide` may not say."""
    if not isinstance(node, Slide):
        return
    clause = query.args["from_"]
    where = query.args.get("where")
    if where is not None:
        raise error("WHERE would look into windows; filter before the window: slide((SELECT … WHERE …), …)", where.this)
    if not grouped:
        raise error("slide makes windows: aggregate them, or join them with other windows", clause)
    if node.span.every is None:
        raise error("aggregating windows needs every => …, how far the window moves", clause)


def check_joined(left: Node, right: Node, kind: JoinKind, at: exp.Expr) -> None:
    """Refuse a join of windows that means nothing."""
    if not isinstance(left, Slide) or not isinstance(right, Slide):
        if isinstance(left, Slide) or isinstance(right, Slide):
            raise error(
                "a window is joined with a window of another stream, slide(…) JOIN slide(…); a table is joined with "
                "the stream itself, before the window: slide((SELECT … FROM stream JOIN table …), …)",
                at,
            )
        return
    if kind != "inner":
        raise error("windows have inner joins only", at)
    spans = left.span, right.span
    if any(span.every is not None for span in spans):
        raise error("in a join of windows every row moves the window: leave every out", at)
    if (left.span.on is None) != (right.span.on is None):
        raise error("both windows are so many rows, or both have a width on a column", at)
    if left.span.on is not None and right.span.on is not None:
        ours, theirs = left.input.schema.types[left.span.on], right.input.schema.types[right.span.on]
        if ours != theirs and not (ours.is_integer and theirs.is_integer):
            raise error(f"the windows are on columns of different types, {ours} and {theirs}; cast one", at)
