"""Nodes that look at one row at a time, wherever it is: Select, Project, Lateral. Streams have them too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from whence.plan.algebra.arrival import AT, has_at
from whence.plan.algebra.expressions import Col, Expr, strip_casts
from whence.plan.algebra.logical.node import Unary

if TYPE_CHECKING:
    from whence.plan.knowledge.derive import KnowledgeDeriver
    from whence.plan.knowledge.facts import Facts


@dataclass(frozen=True)
class Select(Unary):
    """Rows for which the predicate is true."""

    predicate: Expr

    passes: ClassVar[bool] = True
    stays_small: ClassVar[bool] = True

    def shape(self) -> object:
        return ("select", self.predicate)

    def describe(self) -> str:
        return f"select {self.predicate}"

    def knows(self, deriver: KnowledgeDeriver) -> Facts:
        return deriver.selected(self)

    @property
    def is_small(self) -> bool:
        return self.input.is_small


@dataclass(frozen=True)
class Project(Unary):
    """One row of expressions for each row in."""

    exprs: tuple[Expr, ...]

    passes: ClassVar[bool] = True
    stays_small: ClassVar[bool] = True

    def shape(self) -> object:
        return ("project", self.schema.types, self.exprs)

    def describe(self) -> str:
        named = zip(self.schema.names, self.exprs, strict=True)
        return "project " + ", ".join(f"{expr} AS {name}" for name, expr in named if name != AT)

    def knows(self, deriver: KnowledgeDeriver) -> Facts:
        return deriver.projected(self)

    def origin(self, side: int, column: int) -> int | None:
        expr = strip_casts(self.exprs[column])  # a cast may keep the code
        return expr.index if isinstance(expr, Col) else None

    @property
    def is_small(self) -> bool:
        return self.input.is_small


@dataclass(frozen=True)
class Lateral(Unary):
    """Each row with each row (a tuple) that `function(*args)` yields for it."""

    name: str
    function: Callable[..., Any] = field(repr=False)
    args: tuple[Expr, ...]

    passes: ClassVar[bool] = True

    def shape(self) -> object:
        return ("lateral", self.schema.types, self.name, self.args)

    def describe(self) -> str:
        return f"each row with {self.name}({', '.join(map(str, self.args))})"

    def knows(self, deriver: KnowledgeDeriver) -> Facts:
        return deriver.multiplied(self)

    def origin(self, side: int, column: int) -> int | None:
        below = self.input.schema
        return column if column < len(below) - has_at(below) else None

    def is_traced(self, views: Mapping[str, bool]) -> bool:
        return self.input.is_traced(views)
