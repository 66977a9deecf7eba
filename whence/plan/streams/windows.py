"""Make windows of GROUP BY over `slide`: what is computed below the window, aggregated, and put together above.

Law: an expression over rows is a column of the window's input; one over `window_start` and `window_end` alone is the
same for all rows of a window, so it is computed from the window's result. Nothing reads both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from whence.model.errors import SqlError
from whence.model.types import Column, Schema
from whence.plan.algebra.constructors import columns
from whence.plan.algebra.expressions import Col, Expr, Lit, columns_of, substitute
from whence.plan.algebra.logical import Agg, Aggregate, Node, Project
from whence.plan.streams.model import AT_COLUMN, Slide, Window


def find_windows(node: Aggregate) -> tuple[Slide, list[Expr]] | None:
    """Find the windows that an aggregate is of, and the aggregate's columns as expressions over theirs."""
    below, exprs = node.input, columns(node.input)
    while isinstance(below, Project):
        exprs, below = [_composed(e, below) for e in exprs], below.input
    return (below, exprs) if isinstance(below, Slide) else None


def _composed(expr: Expr, below: Project) -> Expr:
    return substitute(expr, lambda c: below.exprs[c.index])


@dataclass
class Grouping:
    """What a Window needs: columns below it, keys, aggregates; and what its columns then stand for."""

    owner: str
    slide: Slide
    below: Node
    extra: list[Expr] = field(default_factory=list)  # computed below the window, beside the stream's own columns
    keys: list[int] = field(default_factory=list)
    aggs: list[Agg] = field(default_factory=list)
    named: list[Column] = field(default_factory=list)  # of the aggregates

    @property
    def width(self) -> int:
        return len(self.slide.input.schema)

    def add_keys(self, keys: Iterable[Expr]) -> None:
        """Group by those of the expressions that read a row; those of the window alone are equal in all of its rows."""
        for expr in keys:
            if not self._of_window(expr):
                place = self._place(expr)
                if place not in self.keys:
                    self.keys.append(place)

    def key(self, expr: Expr) -> Expr:
        """Rewrite a key as an expression over the window's columns."""
        if self._of_window(expr):
            return self._above(expr)
        return Col(expr.type, self.keys.index(self._place(expr)))

    def aggregate(self, agg: Agg, arg: Expr | None, column: Column) -> Expr:
        """Rewrite an aggregate of an expression as one over the window's columns."""
        if arg is None:
            return self._made(agg, column)
        if agg.function == "count" and not agg.distinct and isinstance(arg, Lit) and arg.value is not None:
            return self._made(replace(agg, column=None), column)
        if columns_of(arg) and self._of_window(arg):
            if agg.function in ("min", "max", "first", "last", "quantile"):
                return self._above(arg)
            if agg.function == "count" and not agg.distinct and isinstance(arg, Col):
                return self._made(replace(agg, column=None), column)
            raise self._error("window_start and window_end are the same for all rows of a window; use MIN or MAX")
        return self._made(replace(agg, column=self._place(arg)), column)

    def node(self) -> Window:
        below = self.below
        if self.extra:
            own = columns(below)
            made = [Column(f"x{i}", e.type) for i, e in enumerate(self.extra)]
            schema = Schema((*below.schema.columns[:-1], *made, AT_COLUMN))
            below = Project(schema, below, (*own[:-1], *self.extra, own[-1]))
        schema = Schema((*(below.schema.columns[k] for k in self.keys), *self.named, AT_COLUMN))
        return Window(schema, below, self.slide.span, tuple(self.keys), tuple(self.aggs), self.owner)

    def _of_window(self, expr: Expr) -> bool:
        """Return whether an expression reads no row, at most the window's ends."""
        read = columns_of(expr)
        if read and min(read) < self.width <= max(read):
            raise self._error(
                "a column of the stream is combined with window_start or window_end inside a group; aggregate first"
            )
        return not read or min(read) >= self.width

    def _above(self, expr: Expr) -> Expr:
        def change(column: Col) -> Expr:
            end = column.index - self.width
            named = self.slide.schema.columns[column.index]
            return self._made(Agg("window_end" if end else "window_start", None), named)

        return substitute(expr, change)

    def _made(self, agg: Agg, column: Column) -> Expr:
        if agg not in self.aggs:
            self.aggs.append(agg)
            self.named.append(column)
        at = self.aggs.index(agg)
        return Col(self.named[at].type, len(self.keys) + at)

    def _place(self, expr: Expr) -> int:
        """Return the column that an expression over rows has below the window."""
        if isinstance(expr, Col):
            return expr.index
        if expr not in self.extra:
            self.extra.append(expr)
        return self.width + self.extra.index(expr)

    def _error(self, message: str) -> SqlError:
        return SqlError(f'in "{self.owner}": {message}')
