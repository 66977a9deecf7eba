"""How partitions are reached: the one interface of a coordinator to tables, views and lifetimes, wherever they are.

`InlineBackend` has one partition and calls it. `spark/driver/partitioned_backend.py` has several, in this process or in
Spark's workers. Both give tables and views by name as things that are asked alike (`Flow`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from whence.adapt.statistics import JoinReading
from whence.engine.core.epoch import Epoch
from whence.engine.core.image import Images
from whence.engine.core.operator import Operator
from whence.engine.core.operator_stats import OperatorStats, measure
from whence.model.codes import Codes, Dictionary
from whence.model.progress import Progress
from whence.model.types import Schema
from whence.plan.algebra.logical import HoldKey, Node
from whence.plan.algebra.program import Program, is_owed
from whence.runtime.epoch_result import EpochResult
from whence.runtime.partition import Partition
from whence.runtime.partition_plan import PartitionPlan
from whence.runtime.writing.tables import Unmatched

if TYPE_CHECKING:
    from whence.engine.streams.stream import Late, Missed
    from whence.explain.retrieve.site import Site
    from whence.runtime.coordinator import Coordinator
    from whence.state.store import Store


class Scratch(NamedTuple):
    """Where a query that is not kept is computed: a partition that has what it reads, and how its plan reads that."""

    partition: Partition
    rewrite: Callable[[Node], Node]


class PartitionBackend(Protocol):
    """All partitions of one database. What `run` or `install` did is open until `commit` or `undo`."""

    partitions: int
    at_hand: bool  # its flow is the dataflow itself, with all rows
    replaying: bool  # rows are derived that were derived before, see engine/core/epoch_context.py
    input_bytes: int  # of files that recovery would have to take in again

    @property
    def flow(self) -> Any:
        """Tables, streams and views by name, and their operators: a `Dataflow`, or what is asked like one."""

    @property
    def lifetimes(self) -> Mapping[str, Any]:
        """The deadlines of the tables that have a time-to-live: `Lifetimes`, or what is asked like them."""

    def install(self, plan: PartitionPlan, progress: Progress | None = None) -> None:
        """Take up a plan, and fill what is new of it; on an error it has been undone."""

    def restore(self, plan: PartitionPlan, images: Images, progress: Progress | None = None) -> None:
        """Take up a plan with the state that images have."""

    def run(self, epoch: Epoch, wanted: Collection[str]) -> EpochResult:
        """Bring tables, lifetimes and views to the state after an epoch; report the changes of `wanted`."""

    def commit(self, epoch: Epoch | None = None) -> None:
        """Keep what has been run or installed; `epoch` is what has been run."""

    def undo(self) -> None:
        """Undo what has been run or installed, however far it has come."""

    def pending(self) -> dict[HoldKey, int]:
        """Return how many rows wait before held views, where any do."""

    def take_asked(self) -> dict[str, Codes]:
        """Return what views that have just been filled asked for of relations from outside."""

    def can_take(self, epoch: Epoch) -> bool:
        """Return whether `run` takes an epoch's rows in files as they are."""

    def resolve(self, epoch: Epoch, raw: Mapping[str, tuple[Codes, Codes]]) -> tuple[Epoch, dict[str, Unmatched]]:
        """Turn raw rows into exact changes of the tables as they are."""

    def withdraw_words(self, first: int) -> None:
        """Withdraw the dictionary's codes from `first` on, which nothing has any more."""

    def scratch(self, program: Program, planned: Program, nodes: Iterable[Node]) -> Scratch:
        """Return where plans with these nodes can be computed once."""

    def operator(self, name: str) -> Operator:
        """Return the operator behind a table or view; in partitions one without rows."""

    def has_dropped(self, name: str) -> bool:
        """Return whether it is a stream that no longer keeps all its rows."""

    def site(self, planned: Program) -> Site:
        """Return where questions about streams are answered."""

    def lates(self, name: str) -> Iterable[tuple[Late, Schema]]:
        """Return where the operators of a view keep what came too late, and the columns that it has."""

    def missed(self, name: str) -> list[Missed]:
        """Return what each join of a view has missed that keeps a part of its rows."""

    def stream_figures(self) -> dict[str, dict[str, int]]:
        """Return what metrics say of each stream."""

    def measure(self) -> Callable[[Operator], OperatorStats]:
        """Return a function that says how much an operator holds."""

    def read_joins(self, wanted: Collection[str]) -> dict[str, JoinReading]:
        """Return readings of some joins, by fingerprint."""

    def sizes(self) -> dict[str, int]:
        """Return the distinct rows of every table, the rows of every stream that are kept, and the rows of every view;
        of debts all."""

    def placement(self, name: str, program: Program) -> list[str]:
        """Return what EXPLAIN says of where a view is kept."""

    def figures(self) -> dict[str, Any]:
        """Return what metrics say of the partitions."""

    def is_image_due(self, store: Store) -> bool:
        """Return whether replaying the log of a store would take longer than an image is worth."""

    def begin_image(self, coordinator: Coordinator, store: Store) -> Callable[[], int]:
        """Begin an image of the database, under both locks; return what ends it, without them, and has its epoch."""

    def close(self) -> None:
        """Let go of the partitions."""


class InlineBackend:
    """One partition with everything, in this process."""

    partitions = 1
    at_hand = True
    input_bytes = 0

    def __init__(self, dictionary: Dictionary) -> None:
        self._dictionary = dictionary
        self.partition = partition = Partition(dictionary)
        self.flow, self.operator, self.resolve, self.undo, self.pending, self.take_asked = (
            partition.flow,
            partition.operator,
            partition.resolve,
            partition.undo,
            partition.flow.pending,
            partition.take_asked,
        )

    @property
    def lifetimes(self) -> Mapping[str, Any]:
        return self.partition.lifetimes

    @property
    def replaying(self) -> bool:
        return self.flow.context.replaying

    @replaying.setter
    def replaying(self, replaying: bool) -> None:
        self.flow.context.replaying = replaying

    def install(self, plan: PartitionPlan, progress: Progress | None = None) -> None:
        try:
            self.partition.install(plan, progress)
            self.partition.fill()
        except BaseException:
            self.partition.undo()
            raise

    def restore(self, plan: PartitionPlan, images: Images, progress: Progress | None = None) -> None:
        self.partition.restore(plan, images, progress)

    def run(self, epoch: Epoch, wanted: Collection[str]) -> EpochResult:
        return self.partition.run(epoch, wanted)

    def commit(self, epoch: Epoch | None = None) -> None:
        self.partition.commit()

    def can_take(self, epoch: Epoch) -> bool:
        return not epoch.sections

    def withdraw_words(self, first: int) -> None:
        self._dictionary.withdraw(first)

    def scratch(self, program: Program, planned: Program, nodes: Iterable[Node]) -> Scratch:
        return Scratch(self.partition, lambda node: node)

    def has_dropped(self, name: str) -> bool:
        stream = self.flow.streams.get(name)
        return stream is not None and not stream.kept.complete

    def site(self, planned: Program) -> Site:
        from whence.explain.retrieve.site import Site  # loaded with the first of them

        return Site(self.flow, planned, self._dictionary)

    def lates(self, name: str) -> Iterable[tuple[Late, Schema]]:
        from whence.runtime.reading.late_rows import lates_under

        return lates_under(self.flow, name)

    def missed(self, name: str) -> list[Missed]:
        from whence.runtime.reading.missed_pairs import missed_under

        return missed_under(self.flow, name)

    def stream_figures(self) -> dict[str, dict[str, int]]:
        from whence.runtime.reading.late_rows import stream_figures

        return stream_figures(self.flow)

    def measure(self) -> Callable[[Operator], OperatorStats]:
        return measure

    def read_joins(self, wanted: Collection[str]) -> dict[str, JoinReading]:
        return self.partition.read_joins(wanted)

    def sizes(self) -> dict[str, int]:
        tables = {n: scan.size if is_owed(n) else scan.state_rows for n, scan in self.flow.tables.items()}
        return tables | {name: op.size for name, op in self.flow.views.items()}

    def placement(self, name: str, program: Program) -> list[str]:
        return []

    def figures(self) -> dict[str, Any]:
        return {}

    def is_image_due(self, store: Store) -> bool:
        return store.tail_is_long

    def begin_image(self, coordinator: Coordinator, store: Store) -> Callable[[], int]:
        from whence.runtime.durable.images import begin_image

        return begin_image(coordinator, self.flow, store)

    def close(self) -> None:
        pass
