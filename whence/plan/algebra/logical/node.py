"""Base classes of logical nodes: the questions that planners and builders ask a node instead of matching its class.

| question | who asks | unless a node says otherwise |
|---|---|---|
| `inputs`, `with_inputs` | every rewrite | no inputs |
| `names`, `fetches` | what depends on what | reads nothing by name |
| `shape` | fingerprints of operators | its class and all fields that are not inputs |
| `describe` | EXPLAIN | its class |
| `refuses_recursion` | stratification, knowledge | more rows never mean fewer |
| `knows` | knowledge | its rows come and go |
| `together` | partitioning | all rows of all inputs in one partition |
| `origin`, `passes` | partitioning | no column of an input is found in its output |
| `place` | partitioning | its inputs where `together` wants them |
| `is_small`, `gathered_everywhere`, `has_row_over_nothing` | partitioning | any number of rows |
| `is_traced` | partitioning | a stream of which an input is traced |

The defaults are right for every operator, so a new node states what it gains by saying more. Nodes are frozen and
compare by value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, ClassVar

from whence.model.types import Schema
from whence.plan.algebra.arrival import has_at
from whence.plan.algebra.distribution import ALL, ONE

if TYPE_CHECKING:
    from whence.plan.knowledge.derive import KnowledgeDeriver
    from whence.plan.knowledge.facts import Facts
    from whence.plan.partitions.enforce import DistributionEnforcer, Placed

SMALL = 1000  # rows that may be copied to every partition without a thought
Columns = tuple[int, ...]


@dataclass(frozen=True)
class Node:
    """A relational expression with a known schema. `label` is what the author of the query calls its rows (the name of
    a CTE, an alias), for people: it says nothing about what is computed."""

    schema: Schema
    label: str = field(default="", kw_only=True, compare=False)

    passes: ClassVar[bool] = False  # makes its rows of single rows below: uses of its columns are uses of theirs

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        """Return the node over other inputs, which have the same columns."""
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The tables, streams and views that it reads by name."""
        return ()

    @property
    def fetches(self) -> tuple[str, ...]:
        """The streams whose kept rows its operator fetches, beside its inputs."""
        return ()

    @property
    def generation(self) -> int:
        """Which of the operators of this shape it is: one of another generation begins anew, see `Hold`."""
        return 0

    def shape(self) -> object:
        """Return what distinguishes it from others over the same inputs; it is hashed into stored images."""
        own = (getattr(self, f.name) for f in fields(self) if f.compare and f.name != "schema")
        under = self.inputs
        return (type(self).__name__, self.schema.types, *(v for v in own if v != under and not isinstance(v, Node)))

    def describe(self) -> str:
        """Return one line for EXPLAIN."""
        return type(self).__name__.lower()

    def refuses_recursion(self, side: int) -> str | None:
        """Name what makes more rows of an input mean fewer rows here; None if they never do."""
        return None

    def knows(self, deriver: KnowledgeDeriver) -> Facts:
        """Return what its rows can still become, given what those of its inputs can."""
        return deriver.unsure(self)

    def together(self) -> tuple[Columns | None, ...]:
        """Return for each input the columns in which equal rows must meet in one partition.

        Inputs that both have columns have corresponding ones. None: rows need not meet; (): all of them must."""
        return (None if self.passes else (),) * len(self.inputs)

    def origin(self, side: int, column: int) -> int | None:
        """Return the column of an input whose code a column has; None if there is none."""
        return column if self.passes else None

    def place(self, planner: DistributionEnforcer) -> Placed:
        """Return the plan with every move that it needs, and where its rows are."""
        below = [planner.place(child) for child in self.inputs]
        everywhere = all(b.everywhere for b in below)
        if not everywhere:
            planner.check_untraced(self, *below)
            below = [b.moved(()) for b in below]
        return planner.at(self.with_inputs([b.node for b in below]), ALL if everywhere else ONE)

    @property
    def is_small(self) -> bool:
        """Whether it never has more than `SMALL` rows."""
        return False

    def gathered_everywhere(self) -> Node | None:
        """Return a plan that gathers a few rows in one place as one that gathers them in every place, if it does."""
        return None

    @property
    def has_row_over_nothing(self) -> bool:
        """Whether it has a row even if its inputs are empty."""
        return False

    def is_traced(self, views: Mapping[str, bool]) -> bool:
        """Return whether its rows carry provenance; `views` says which views' rows do."""
        return has_at(self.schema) and any(i.is_traced(views) for i in self.inputs)


@dataclass(frozen=True)
class Unary(Node):
    """A node over one input."""

    input: Node

    stays_small: ClassVar[bool] = False  # gathers what its input gathers, see `gathered_everywhere`

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        return replace(self, input=inputs[0])

    def place(self, planner: DistributionEnforcer) -> Placed:
        (cols,) = self.together()
        below = planner.place(self.input)
        return (below if cols is None else planner.gathered(below, cols)).under(self)

    def gathered_everywhere(self) -> Node | None:
        below = self.input.gathered_everywhere() if self.stays_small else None
        return self.with_inputs([below]) if below is not None else None


@dataclass(frozen=True)
class Binary(Node):
    """A node over two inputs of one kind."""

    left: Node
    right: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        return replace(self, left=inputs[0], right=inputs[1])


@dataclass(frozen=True)
class Branching(Node):
    """A node over any number of inputs with the same columns."""

    branches: tuple[Node, ...]

    passes: ClassVar[bool] = True

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.branches

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        return replace(self, branches=tuple(inputs))


def walk(node: Node) -> Iterator[Node]:
    """Yield the node and everything under it, parents first."""
    yield node
    for child in node.inputs:
        yield from walk(child)


def bottom_up(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return the plan with every node changed, inputs before the nodes over them."""
    inputs = [bottom_up(child, change) for child in node.inputs]
    return change(node.with_inputs(inputs) if inputs else node)
