"""Defining plans of templates, as the binder makes them: parameters joined with a query."""

from __future__ import annotations

from collections.abc import Sequence

from whence.model.types import BIGINT, BOOLEAN, Column, Schema, Type
from whence.plan.algebra.expressions import Call, Col, Expr, Lit, shift
from whence.plan.algebra.logical import Agg, Aggregate, Distinct, Join, Node, Order, Project, Scan, TopKPerGroup
from whence.plan.algebra.program import Program, Table
from whence.plan.templates.recognise import Recognition, recognise

PARAMETERS = "deals"


def ranged(op: str, value: Expr, parameter: Expr) -> Expr:
    """`value op parameter`, where a NULL parameter is no bound; NULL is in no range."""
    unbounded, missing = (Call(BOOLEAN, "is_null", (e,)) for e in (parameter, value))
    free = Call(BOOLEAN, "and", (unbounded, Call(BOOLEAN, "not", (missing,))))
    return Call(BOOLEAN, "or", (Call(BOOLEAN, op, (value, parameter)), free))


class Template:
    """A table of parameters over a query `core`: conditions are added, then there is a plan."""

    def __init__(self, core: Node) -> None:
        self.core = core
        self.columns = [Column("id", BIGINT, nullable=False)]
        self._equal: list[tuple[int, int]] = []
        self._ranges: list[tuple[str, Expr, int]] = []

    def equal(self, column: int) -> None:
        self.columns.append(Column(f"p{len(self.columns)}", self.core.schema.types[column]))
        self._equal.append((len(self.columns) - 1, column))

    def range(self, value: Expr, *ops: str) -> None:
        for op in ops:
            self.columns.append(Column(f"p{len(self.columns)}", value.type))
            self._ranges.append((op, value, len(self.columns) - 1))

    @property
    def parameters(self) -> Schema:
        return Schema(tuple(self.columns))

    def plan(self, out: Sequence[Expr] | None = None) -> Node:
        """The defining plan; by default it shows all columns of the query."""
        return self.selection(out)

    def selection(self, out: Sequence[Expr] | None = None) -> Project:
        """The rows that each subscription selects."""
        width = len(self.columns)
        tests = [
            ranged(op, shift(value, width), Col(self.columns[parameter].type, parameter))
            for op, value, parameter in self._ranges
        ]
        residual = None
        for test in tests:
            residual = test if residual is None else Call(BOOLEAN, "and", (residual, test))
        joined = Schema((*self.columns, *self.core.schema.columns))
        join = Join(joined, Scan(self.parameters, PARAMETERS), self.core, "inner", tuple(self._equal), residual)
        shown = [Col(t, i) for i, t in enumerate(self.core.schema.types)] if out is None else out
        exprs = (Col(BIGINT, 0), *(shift(e, width) for e in shown))
        names = ("id", *(f"o{i}" for i in range(len(shown))))
        schema = Schema(tuple(Column(n, e.type) for n, e in zip(names, exprs, strict=True)))
        return Project(schema, join, exprs)

    def recognised(self, out: Sequence[Expr] | None = None) -> Recognition:
        table = Table(PARAMETERS, self.parameters, (0,))
        return recognise(self.plan(out), table, Program(tables={PARAMETERS: table}))


class DistinctTemplate(Template):
    """The distinct rows of a selection."""

    def plan(self, out: Sequence[Expr] | None = None) -> Node:
        selected = self.selection(out)
        return Distinct(selected.schema, selected)


class AggregateTemplate(Template):
    """Aggregates of columns, each with its type: one row per subscription, NULL for an empty selection."""

    def __init__(self, core: Node, *aggs: tuple[Agg, Type]) -> None:
        super().__init__(core)
        self._aggs = aggs

    def plan(self, out: Sequence[Expr] | None = None) -> Node:
        selected, id, width = self.selection(out), self.columns[0], len(self.columns)
        results = tuple(Column(f"a{i}", type) for i, (_, type) in enumerate(self._aggs))
        grouped = Aggregate(Schema((id, *results)), selected, (0,), tuple(agg for agg, _ in self._aggs))
        scan = Scan(self.parameters, PARAMETERS)
        padded = Join(Schema((*self.columns, id, *results)), scan, grouped, "left", ((0, 0),))
        shown = [Col(type, width + 1 + i) for i, (_, type) in enumerate(self._aggs)]
        return Project(Schema((id, *results)), padded, (Col(BIGINT, 0), *shown))


class TopTemplate(Template):
    """The first rows of a selection after `offset`; a limit of "parameter" is a column of the parameters."""

    def __init__(self, core: Node, order: Sequence[Order], limit: int | str | None, offset: int) -> None:
        super().__init__(core)
        self._order, self._limit, self._offset = order, limit, offset

    def plan(self, out: Sequence[Expr] | None = None) -> Node:
        limit: Expr | None = Lit(BIGINT, self._limit) if isinstance(self._limit, int) else None
        if self._limit == "parameter":
            if self.columns[-1].name != "n":
                self.columns.append(Column("n", BIGINT))
            limit = Col(BIGINT, len(self.columns) - 1)
        selected, width = self.selection(out), len(self.columns)
        assert isinstance(selected.input, Join)
        exprs = (*(Col(c.type, at) for at, c in enumerate(self.columns)), *selected.exprs[1:])
        schema = Schema((*self.columns, *selected.schema.columns[1:]))
        order = tuple(Order(width + o.column, o.descending, o.nulls_first) for o in self._order)
        rows = Project(schema, selected.input, exprs)
        top = TopKPerGroup(schema, rows, tuple(range(width)), order, limit, self._offset)
        shown = (Col(BIGINT, 0), *(Col(c.type, at) for at, c in enumerate(schema.columns) if at >= width))
        return Project(selected.schema, top, shown)
