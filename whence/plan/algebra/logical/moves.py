"""Nodes that only plans of partitioned relations have: Ship, LocalFilter. They leave rows as they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from whence.plan.algebra.logical.node import Columns, Node, Unary


@dataclass(frozen=True)
class Ship(Unary):
    """Rows move: to the partition that `cols` route to, to all partitions, or to the first one.

    `since` numbers the change of the catalog that it came with: what was shipped before is not there for newcomers.
    Rows with a key of `divided` move to where all their columns route to, rows with one of `copied` to all partitions.
    `rows_of` names what is moved by these columns, whatever moves it."""

    to: Literal["hash", "all", "one"]
    cols: tuple[int, ...] = ()
    since: int = 0
    divided: tuple[Columns, ...] = ()
    copied: tuple[Columns, ...] = ()
    rows_of: str = field(default="", compare=False)

    passes: ClassVar[bool] = True

    def shape(self) -> object:
        heavy = (self.divided, self.copied) if self.divided or self.copied else ()
        return ("ship", self.to, self.cols, self.since, *heavy)

    @property
    def is_small(self) -> bool:
        return self.input.is_small

    def gathered_everywhere(self) -> Node | None:
        return Ship(self.schema, self.input, "all") if self.input.is_small else None


@dataclass(frozen=True)
class LocalFilter(Unary):
    """Every partition has all rows of the input; this one keeps those whose `cols` route to it, or, where `cols` is
    None, the first partition keeps all of them and the others none."""

    cols: tuple[int, ...] | None

    def shape(self) -> object:
        return ("mine", self.cols)

    @property
    def is_small(self) -> bool:
        return self.input.is_small

    def gathered_everywhere(self) -> Node | None:
        whole = self.cols is None and self.input.has_row_over_nothing  # see Placed.only_first
        return self.input.gathered_everywhere() if whole else None
