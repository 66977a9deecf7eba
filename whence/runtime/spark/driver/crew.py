"""The crew: all partitions of a database as its driver sees them.

A run is carried from stage to stage: a superstep lets every partition that has something to do run one stage, and what
they send is given to its receivers with the next one; a stage that something is addressed to is run again, and when
nothing is left the run is kept or taken back. A superstep happens *inline*, in this process, or as one Spark job
(`jobs.py`); both move the same histories, so that one way can follow the other at any time.
"""

from __future__ import annotations

import logging
import pickle
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from whence.engine.core.batch import concat
from whence.engine.core.operator import Batch
from whence.engine.exchange.messages import EVERYWHERE, PartitionMessage
from whence.engine.exchange.traffic import Shipped, Traffic, after_epoch, counted
from whence.model.codes import Dictionary
from whence.model.errors import StorageError
from whence.runtime.spark.worker.commands import Call, CommandLog, PartitionCommand, PartitionPlan, Reply, fetch
from whence.runtime.spark.worker.partition import DivergedError, Partition
from whence.runtime.writing.tables import Unmatched
from whence.state.disk import storage_errors
from whence.state.manifest import EXCHANGE, Link

log = logging.getLogger("whence")


class PartitionBackend(Protocol):
    """Partitions in other processes."""

    def do(self, steps: Mapping[int, PartitionCommand], wanted: Collection[str]) -> dict[int, Reply]:
        """One superstep."""

    def ask(self, calls: Mapping[int, Call]) -> dict[int, Any]:
        """A question to some partitions, between two runs."""


@dataclass
class Counters:
    """What runs have cost, since the database was opened or in the last run."""

    runs: int = 0
    jobs: int = 0
    supersteps: int = 0
    messages: int = 0
    rows_shipped: int = 0
    bytes_shipped: int = 0
    seconds: float = 0.0

    def add(self, other: Counters) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass
class Outcome:
    """What came of a run: how many rows of tables and views changed, and the changes that were asked for."""

    changed: dict[str, int] = field(default_factory=dict)
    changes: dict[str, Batch] = field(default_factory=dict)
    expired: dict[str, int] = field(default_factory=dict)
    missing: Unmatched = field(default_factory=Unmatched)


class SuperstepRunner:
    """So many partitions. One thread at a time runs or saves; a reader and a writer may ask at once."""

    def __init__(self, partitions: int, dictionary: Dictionary, folder: Path, *, inline_rows: int, inline_bytes: int):
        self.partitions, self.dictionary, self.folder = partitions, dictionary, folder
        self.plans: dict[int, PartitionPlan] = {}  # those that steps and images still speak of
        self.workers: PartitionBackend | None = None
        self.mode: str = "auto"  # or "inline" or "job", whatever is small
        self.inline_rows, self.inline_bytes = inline_rows, inline_bytes
        self.histories = [CommandLog() for _ in range(partitions)]
        self.bytes = [0] * partitions  # of state
        self.deadlines: list[dict[str, int]] = [{} for _ in range(partitions)]
        self.owed: list[dict[str, int]] = [{} for _ in range(partitions)]  # distinct rows, by table
        self.copied: Callable[[str], bool] = lambda name: False  # whether all partitions have all rows of it
        self.total, self.latest = Counters(), Counters()
        self.replaying = False  # derives rows that were derived before
        self.shipped: dict[str, Shipped] = {}  # by the fingerprints of those who send
        self._traffic: dict[str, Traffic] = {}  # of the run under way
        self._local: dict[int, Partition] = {}
        self._tokens = self._runs = 0
        self._unwritten: list[list[PartitionCommand]] = [
            [] for _ in range(partitions)
        ]  # the last steps, not in the file yet
        self._run: list[list[PartitionCommand]] = [[] for _ in range(partitions)]  # of the run under way
        self._written: list[list[int]] = [[] for _ in range(partitions)]  # where the first of these are in the file
        self._number: int | None = None
        self._former: tuple[list[dict[str, int]], list[dict[str, int]], list[int]] = ([], [], [])  # as they were before
        self._ready = False  # the folder of the exchange
        self._moving = threading.RLock()  # held while steps are written down, or a partition is brought to the present

    # -- runs --------------------------------------------------------------------------------------------------------

    def is_inline(self, rows: int) -> bool:
        """Whether work on so many rows is done in this process."""
        if self.workers is None or self.mode == "inline":
            return True
        return self.mode == "auto" and rows <= self.inline_rows and self.state_bytes <= self.inline_bytes

    @property
    def state_bytes(self) -> int:
        return sum(self.bytes)

    def run(self, first: Mapping[int, PartitionCommand], wanted: Collection[str], rows: int) -> Outcome:
        """Carry steps of the first stage (their tokens and run are set here) to the end; then `keep` or `take_back`."""
        start = time.perf_counter()
        self.keep()  # what was left to be kept when someone broke off
        self._runs += 1
        self._number = self._runs
        self._former = list(self.deadlines), list(self.owed), list(self.bytes)
        self.latest, self._traffic = Counters(runs=1), {}
        inline, outcome, stage = self.is_inline(rows), Outcome(), 0
        now, epoch = max(((step.time, step.epoch) for step in first.values()), default=(0, 0))
        waits: dict[int, int] = {}
        inbox: dict[int, dict[int, list[tuple[str, Any]]]] = {}
        work = dict(first)
        while work:
            steps = {p: self._named(step, stage) for p, step in work.items()}
            replies = self._superstep(steps, wanted, inline)
            for p in sorted(replies):
                reply = replies[p]
                self.bytes[p], self.deadlines[p], self.owed[p] = reply.bytes, reply.deadlines, reply.owed
                self._gather(outcome, p, reply)
                waits.pop(p, None)
                if reply.waits is not None:
                    waits[p] = reply.waits
                for message in reply.messages:
                    there = range(self.partitions) if message.to == EVERYWHERE else (message.to,)
                    for target in there:
                        inbox.setdefault(message.stage, {}).setdefault(target, []).append(
                            (message.channel, message.batch)
                        )
                    self._count(p, message)
            stage = min((*inbox, *waits.values()), default=-1)
            received = inbox.pop(stage, {})
            due = {*received, *(p for p, s in waits.items() if s == stage)}
            work = {
                p: PartitionCommand(0, 0, stage, now, received=received.get(p, ()), epoch=epoch) for p in sorted(due)
            }
        self.latest.seconds = time.perf_counter() - start
        return outcome

    def _count(self, sender: int, message: PartitionMessage) -> None:
        traffic = counted(message, sender, self.partitions)
        by = message.channel.partition("/")[0]
        self._traffic[by] = self._traffic.get(by, Traffic()).plus(traffic)
        self.latest.messages += traffic.messages
        self.latest.rows_shipped += traffic.rows
        self.latest.bytes_shipped += traffic.bytes

    def _named(self, step: PartitionCommand, stage: int) -> PartitionCommand:
        self._tokens += 1
        assert self._number is not None
        return replace(step, token=self._tokens, run=self._number, stage=stage)

    def _superstep(self, steps: dict[int, PartitionCommand], wanted: Collection[str], inline: bool) -> dict[int, Reply]:
        self.latest.supersteps += 1
        if inline:
            replies = {p: self._here(p).do(step, wanted) for p, step in steps.items()}
        else:
            assert self.workers is not None
            self.latest.jobs += 1
            replies = self.workers.do(steps, wanted)
        for p, step in steps.items():
            self._run[p].append(step)
        return replies

    def _gather(self, outcome: Outcome, partition: int, reply: Reply) -> None:
        for name, count in reply.changed.items():
            if partition == 0 or not self.copied(name):
                outcome.changed[name] = outcome.changed.get(name, 0) + count
        for name, payload in reply.changes.items():
            if partition == 0 or not self.copied(name):
                batch = fetch(self.folder, payload)
                had = outcome.changes.get(name)
                outcome.changes[name] = batch if had is None else concat([had, batch], batch.rows.shape[1])
        for name, count in reply.expired.items():
            if partition == 0 or not self.copied(name):
                outcome.expired[name] = outcome.expired.get(name, 0) + count
        for name, found in reply.missing.items():
            if partition == 0 or not self.copied(name):
                outcome.missing = outcome.missing.plus(found)

    def keep(self) -> None:
        """The run is part of what has been."""
        if self._number is None:
            return
        for p, steps in enumerate(self._run):
            if steps:
                history = self.histories[p]
                history.tokens += [step.token for step in steps]
                history.offsets += self._written[p]
                self._unwritten[p] += steps[len(self._written[p]) :]
                local = self._local.get(p)
                if local is not None and local.run == self._number:
                    local.commit()
        self._end()
        self.total.add(self.latest)
        self.shipped = after_epoch(self.shipped, self._traffic)

    def forget_others(self, senders: Iterable[str]) -> None:
        """What all but these have sent counts no more: if one of them comes again it begins at nothing."""
        there = set(senders)
        self.shipped = {sender: shipped for sender, shipped in self.shipped.items() if sender in there}

    def take_back(self) -> None:
        """The run has not been. Partitions elsewhere learn of it with the next contact."""
        if self._number is None:
            return
        self.deadlines, self.owed, self.bytes = self._former
        for p in [p for p, local in self._local.items() if local.run is not None]:
            try:
                self._local[p].undo()
            except DivergedError:
                del self._local[p]
        self._end()

    def _end(self) -> None:
        self._run = [[] for _ in range(self.partitions)]
        self._written = [[] for _ in range(self.partitions)]
        self._number = None

    # -- where partitions are ----------------------------------------------------------------------------------------

    def _here(self, p: int) -> Partition:
        """A partition in this process, brought to the present."""
        with self._moving:
            return self._brought_here(p)

    def _brought_here(self, p: int) -> Partition:
        local, history = self._local.get(p), self.histories[p]
        if local is None or local.last != (self._run[p][-1].token if self._run[p] else history.last):
            self.write_down()
            if local is not None:
                try:
                    local.settle(self.with_run(p), self._number)
                except DivergedError:
                    local = None
            if local is None:
                local = Partition(p, self.partitions, self.dictionary, self.folder, lambda version: self.plans[version])
                local.load(history)
                local.settle(self.with_run(p), self._number)
            self._local[p] = local
        local.flow.context.replaying = self.replaying
        return local

    def with_run(self, p: int) -> CommandLog:
        """The history of a partition with the steps of the run under way. Call `write_down` first."""
        history, steps = self.histories[p], self._run[p]
        tail = [*self._unwritten[p], *steps[len(self._written[p]) :]]
        if not steps and not tail:
            return history
        tokens = history.tokens + [step.token for step in steps]
        return replace(history, tokens=tokens, offsets=history.offsets + self._written[p], tail=tail)

    def write_down(self) -> None:
        """Write all steps so far to files, for partitions that have to catch up.

        Where the disk refuses, the steps are kept here and go with every task: readers go on.
        """
        with self._moving:
            try:
                self._write_down()
            except StorageError as error:
                log.warning("steps of partitions are kept in memory: %s", error)

    def _write_down(self) -> None:
        if not self._ready:  # by now the database is ours: what a former driver left there is of no use
            shutil.rmtree(self.folder / EXCHANGE, ignore_errors=True)
            with storage_errors(self.folder / EXCHANGE, "make the folder"):
                (self.folder / EXCHANGE).mkdir(parents=True)
            self._ready = True
        for p, history in enumerate(self.histories):
            fresh = self._run[p][len(self._written[p]) :]
            if not self._unwritten[p] and not fresh:
                continue
            if not history.file:
                history.file = f"p{p:04d}-{history.base}.steps"
            path = self.folder / EXCHANGE / history.file
            with storage_errors(path, "write"), open(path, "ab") as file:
                places = []
                for step in (*self._unwritten[p], *fresh):
                    places.append(file.tell())
                    pickle.dump(step, file, protocol=5)
            # Only now: whoever fails half way leaves what is written there unnamed.
            kept, self._unwritten[p] = len(self._unwritten[p]), []
            history.offsets += places[:kept]
            self._written[p] += places[kept:]

    # -- questions ---------------------------------------------------------------------------------------------------

    def ask(self, calls: Mapping[int, Call], rows: int = 0) -> dict[int, Any]:
        """The answers of partitions, between two runs."""
        if self.is_inline(rows):
            return {p: getattr(self._here(p), name)(*args) for p, (name, args) in calls.items()}
        assert self.workers is not None
        self.latest.jobs += 1
        return self.workers.ask(calls)

    def ask_all(self, name: str, *args: Any, rows: int = 0) -> list[Any]:
        """The answers of all partitions to one question, in their order."""
        found = self.ask(dict.fromkeys(range(self.partitions), (name, args)), rows)
        return [found[p] for p in range(self.partitions)]

    # -- images ------------------------------------------------------------------------------------------------------

    def save(self, files: Mapping[int, tuple[Path, tuple[Link, ...]]], epoch: int) -> dict[int, tuple[Link, ...]]:
        """Let every partition write an image, a patch on some links if there are any; the chains they make."""
        found = self.ask({p: ("save", (links, path.name, epoch)) for p, (path, links) in files.items()})
        return {p: (link,) if link.kind == "base" else (*files[p][1], link) for p, link in found.items()}

    def begin_from(self, chains: Mapping[int, tuple[Link, ...]], plan: int) -> None:
        """The images stand for everything that has been: forget the steps before them."""
        for p, links in chains.items():
            old = self.histories[p]
            self.histories[p] = CommandLog(old.last, links, plan)
            self._unwritten[p] = []
            if old.file:
                (self.folder / EXCHANGE / old.file).unlink(missing_ok=True)
        self.plans = {plan: self.plans[plan]}
        for path in (self.folder / EXCHANGE).glob("*.npy"):
            path.unlink(missing_ok=True)

    def close(self) -> None:
        self._local.clear()
        if self._ready:
            shutil.rmtree(self.folder / EXCHANGE, ignore_errors=True)
