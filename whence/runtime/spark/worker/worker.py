"""The worker's side of a job: partitions kept in a Python worker of Spark between jobs, brought to the present, asked.

A worker is any process: which partitions it has, and how far they have come, is its own affair. What it has not, it
loads from the last image and the steps since. `memory` bounds what it keeps; a partition that alone is larger is an
error that says what to do.
"""

from __future__ import annotations

import gc
import pickle
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from whence.engine.core.operator import Batch
from whence.model.errors import OutOfMemoryError, WhenceError
from whence.model.sizes import in_bytes
from whence.runtime.epoch_result import EpochResult
from whence.runtime.partition_plan import PartitionPlan
from whence.runtime.spark.worker.commands import Call, CommandLog, PartitionCommand
from whence.runtime.spark.worker.connections import Address
from whence.runtime.spark.worker.dictionary_server import RemoteDictionary
from whence.runtime.spark.worker.replica import DivergedError, Replica
from whence.runtime.spark.worker.spill import fetch, spill
from whence.state.manifest import EXCHANGE


@dataclass(frozen=True)
class Setup:
    """What all tasks of a job share."""

    nonce: str  # of the driver
    folder: str
    partitions: int
    words: Address
    length: int  # how many words there are
    forgotten: int  # a number that rises when some are forgotten
    memory: int | None
    run: int | None  # the one that is under way
    replaying: bool = False  # rows that are derived have been derived before


@dataclass(frozen=True)
class Request:
    """What one partition is to do: a step of a run, or an answer between two."""

    partition: int
    log: CommandLog
    work: PartitionCommand | Call
    wanted: tuple[str, ...] = ()


class PartitionCache:
    """The partitions that this process has, of one driver; the one used last at the end."""

    def __init__(self, setup: Setup):
        self.nonce = setup.nonce
        self._dictionary = RemoteDictionary(setup.words)
        self.folder = Path(setup.folder)
        self._partitions: OrderedDict[int, Replica] = OrderedDict()
        self._plans: dict[int, PartitionPlan] = {}

    def held(self) -> dict[int, tuple[int, int]]:
        """Return how far each partition here has come: its last token, and the one that it can go back to."""
        return {p: (replica.last, replica.before) for p, replica in self._partitions.items()}

    def answer(self, setup: Setup, request: Request) -> Any:
        """Bring a partition to the present and let it do its work."""
        self._dictionary.follow(setup.forgotten)
        if setup.length > len(self._dictionary):
            self._dictionary.catch_up(setup.length)
        work = request.work
        replica = self._at_present(setup, request)
        if isinstance(work, PartitionCommand):
            answer: Any = self._sendable(replica.do(work, request.wanted), replica)
        else:
            answer = replica.ask(work)
            if isinstance(answer, Batch):
                answer = spill(self.folder, self._file(replica), answer)
        self._bound(setup, replica)
        return answer

    def attempt(self, setup: Setup, request: Request) -> tuple[Any, WhenceError | None]:
        """Return the answer, or the error of ours that came instead."""
        try:
            return self.answer(setup, request), None
        except WhenceError as raised:
            return None, raised
        except MemoryError:
            return None, self.out_of_memory(setup, request.partition)

    def _at_present(self, setup: Setup, request: Request) -> Replica:
        found = self._partitions.pop(request.partition, None)
        again = isinstance(request.work, PartitionCommand) and found is not None and found.last == request.work.token
        if found is not None and not again:
            try:
                found.catch_up(request.log, setup.run)
            except DivergedError:
                found = None
                gc.collect()
        if found is None:
            if setup.memory is not None:
                self._evict(setup.memory // 2)  # to make room for it
            found = Replica(request.partition, setup.partitions, self._dictionary, self.folder, self._plan)
            found.load(request.log)
            found.catch_up(request.log, setup.run)
        found.partition.flow.context.replaying = setup.replaying
        self._partitions[request.partition] = found
        return found

    def _plan(self, version: int) -> PartitionPlan:
        if version not in self._plans:
            self._plans[version] = pickle.loads((self.folder / EXCHANGE / plan_file(version)).read_bytes())
        return self._plans[version]

    def _sendable(self, result: EpochResult, replica: Replica) -> EpochResult:
        """Return a result with what is bulky in files."""
        messages = [
            message._replace(batch=spill(self.folder, self._file(replica), fetch(self.folder, message.batch)))
            for message in result.messages
        ]
        changes = {
            name: spill(self.folder, self._file(replica), fetch(self.folder, batch))
            for name, batch in result.changes.items()
        }
        return replace(result, messages=messages, changes=changes)

    def _file(self, replica: Replica) -> str:
        return f"x{replica.number:04d}-{secrets.token_hex(8)}.npy"

    def _bound(self, setup: Setup, replica: Replica) -> None:
        """Keep no more than may be kept."""
        if setup.memory is None:
            return
        own = replica.partition.state_bytes
        if own > setup.memory:
            del self._partitions[replica.number]
            enough = -(-setup.partitions * own // setup.memory)
            raise WhenceError(
                f"partition {replica.number} of {setup.partitions} takes {in_bytes(own)}, more than the "
                f"worker_memory of {in_bytes(setup.memory)}: use partitions={enough} or more, or more memory"
            )
        self._evict(setup.memory, but=1)

    def out_of_memory(self, setup: Setup, number: int) -> OutOfMemoryError:
        """Say which partition needs more memory than there is; it is forgotten here, to be loaded when it is needed."""
        lost = self._partitions.pop(number, None)
        held = f", which holds {in_bytes(lost.partition.state_bytes)}" if lost is not None else ""
        self._partitions.clear()
        gc.collect()
        return OutOfMemoryError(
            f"out of memory in partition {number} of {setup.partitions}{held}; the epoch is undone. Use "
            f"partitions={2 * setup.partitions} or more, smaller batches (max_rows_per_epoch), or give Spark's Python "
            "workers more memory (spark.executor.memoryOverhead)"
        )

    def _evict(self, limit: int, but: int = 0) -> None:
        """Let partitions go until the others take no more than a limit; the last `but` stay."""
        total = sum(replica.partition.state_bytes for replica in self._partitions.values())
        if total <= limit or len(self._partitions) <= but:
            return
        while total > limit and len(self._partitions) > but:
            total -= self._partitions.popitem(last=False)[1].partition.state_bytes
        gc.collect()  # a partition is made of cycles


_roster: PartitionCache | None = None


def plan_file(version: int) -> str:
    return f"plan-{version}.pickle"


def cache_of(setup: Setup) -> PartitionCache:
    """Return the partitions of this process."""
    global _roster
    if _roster is None or _roster.nonce != setup.nonce:
        _roster = PartitionCache(setup)
    return _roster


def work(setup: Setup, items: Iterable[bytes]) -> Iterator[bytes]:
    """A task: the answers to requests, as (partition, answer, error). An error of ours is an answer, not a failure: to
    try again would not help."""
    cache = cache_of(setup)
    for item in items:  # to the end: a worker that leaves some is not used again
        for request in pickle.loads(item):
            answer, error = cache.attempt(setup, request)
            yield pickle.dumps((request.partition, answer, error), protocol=5)
