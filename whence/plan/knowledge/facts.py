"""Facts: what is known of the rows of one node of a plan, while the knowledge of the whole plan is derived.

A node answers `Node.knows` with facts, made of those of its inputs. Facts hold for a `plan` that has the columns of the
node first and, behind them, columns that bounds need and the rows do not show. A node that says nothing of its own is
`unsure`: its rows come and go until nothing can come to its inputs any more.

| | |
|---|---|
| settled | rows only come, and no column of one changes: each is final as soon as it is there |
| only coming | rows only come; columns may change in some direction |
| unsure | rows may go, too |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from whence.model.types import Schema
from whence.plan.algebra.constructors import columns
from whence.plan.algebra.logical import Node, Project
from whence.plan.knowledge.bounds import ANYTHING, Bounds
from whence.plan.knowledge.model import Shown, Term
from whence.plan.knowledge.terms import Direction, rebased, together, unknown


@dataclass(frozen=True)
class Cell:
    """A column: what it can become, in which direction it moves, and what it is whatever the rows are."""

    term: Term
    direction: Direction = "still"
    domain: Bounds = ANYTHING


@dataclass(frozen=True)
class Described:
    """Rows made of one row of each of the sources `bases`: a term for each column of the plan, and conditions."""

    bases: tuple[int, ...]
    columns: tuple[Term, ...]
    where: tuple[Term, ...] = ()
    single: bool = False

    def beside(self, other: Described) -> Described:
        """Return the pairs of rows of both."""
        by = len(self.bases)
        columns = self.columns + tuple(rebased(term, by) for term in other.columns)
        where = self.where + tuple(rebased(term, by) for term in other.where)
        return Described(self.bases + other.bases, columns, where)


@dataclass(frozen=True)
class Facts:
    """What is known of the rows of a plan; `width` of its columns are shown. `key`: no two rows agree in these columns,
    which do not change; None if there are none such. `merged`: a column that is the first of two others that is not
    NULL, after these two."""

    plan: Node
    width: int
    cells: tuple[Cell, ...]
    rows: tuple[Described, ...]
    presence: tuple[Cell, ...] = ()
    key: tuple[int, ...] | None = None
    merged: tuple[tuple[int, int, int], ...] = ()

    @property
    def identity(self) -> tuple[int, ...]:
        """The columns that tell which row is meant: the key, or all that do not change."""
        if self.key is not None:
            return self.key
        return tuple(i for i, cell in enumerate(self.cells) if cell.direction == "still")

    @property
    def is_still(self) -> bool:
        """Whether no shown column of a row changes."""
        return all(cell.direction == "still" for cell in self.cells[: self.width])

    @property
    def only_comes(self) -> bool:
        """Whether a row that is there stays."""
        return together([cell.direction for cell in self.presence]) in ("still", "up")

    @property
    def is_settled(self) -> bool:
        """Whether a row that is there is final."""
        return self.is_still and not self.presence

    @property
    def directions(self) -> list[Direction]:
        return [cell.direction for cell in self.cells]

    @property
    def domains(self) -> list[Bounds]:
        return [cell.domain for cell in self.cells]

    def are_still(self, columns: Iterable[int]) -> bool:
        """Return whether some columns do not change."""
        return all(self.cells[column].direction == "still" for column in columns)


def shown(schema_types: Sequence[object]) -> tuple[Cell, ...]:
    """Return the cells of columns that do not change."""
    return tuple(Cell(Shown(str(type), index)) for index, type in enumerate(schema_types))


def unknown_row(types: Sequence[object], bases: tuple[int, ...]) -> Described:
    """Return rows of which nothing is known but the sources they are made of."""
    return Described(bases, tuple(unknown(str(type)) for type in types))


def reordered(plan: Node, order: Sequence[int]) -> Node:
    """Return a plan with some columns of another, in this order."""
    own = columns(plan)
    return Project(Schema(tuple(plan.schema.columns[c] for c in order)), plan, tuple(own[c] for c in order))
