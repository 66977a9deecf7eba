"""Run an epoch over all partitions, superstep by superstep, inline or as Spark jobs.

A run goes from stage to stage: a superstep lets every partition that has something to do run one stage, and what they
send is given to its receivers with the next one. A stage that something is addressed to is run again, and when nothing
is left the run is committed or undone. A superstep happens *inline*, in this process, or as one Spark job (`jobs.py`);
both move the same command logs, so that one way can follow the other at any time.
"""

from __future__ import annotations

import logging
import pickle
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from whence.engine.core.batch import concat
from whence.engine.core.epoch import Epoch
from whence.engine.exchange.messages import EVERYWHERE, PartitionMessage
from whence.engine.exchange.traffic import Shipped, Traffic, after_epoch, counted
from whence.model.codes import Dictionary
from whence.model.errors import StorageError
from whence.plan.algebra.logical import HoldKey
from whence.runtime.epoch_result import EpochResult
from whence.runtime.partition_plan import PartitionPlan
from whence.runtime.spark.worker.commands import Call, CommandLog, PartitionCommand
from whence.runtime.spark.worker.replica import DivergedError, Replica
from whence.runtime.spark.worker.spill import fetch
from whence.runtime.writing.tables import Unmatched
from whence.state.disk import storage_errors
from whence.state.manifest import EXCHANGE, Link

log = logging.getLogger("whence")


class Jobs(Protocol):
    """Partitions in other processes."""

    def run(self, commands: Mapping[int, PartitionCommand], wanted: Collection[str]) -> dict[int, EpochResult]:
        """Run one superstep."""

    def ask(self, calls: Mapping[int, Call]) -> dict[int, Any]:
        """Ask some partitions a question, between two runs."""


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


class _Standing(NamedTuple):
    """How partitions stood before a run."""

    deadlines: list[dict[str, int]]
    owed: list[dict[str, int]]
    pending: list[dict[HoldKey, int]]
    bytes: list[int]
    latest: Counters


class SuperstepRunner:
    """All partitions of a database. One thread at a time runs or saves; a reader and a writer may ask at once."""

    def __init__(self, partitions: int, dictionary: Dictionary, folder: Path, *, inline_rows: int, inline_bytes: int):
        self.partitions, self.dictionary, self.folder = partitions, dictionary, folder
        self.plans: dict[int, PartitionPlan] = {}  # those that commands and images still name
        self.jobs: Jobs | None = None
        self.mode: str = "auto"  # or "inline" or "job", whatever is small
        self.inline_rows, self.inline_bytes = inline_rows, inline_bytes
        self.logs = [CommandLog() for _ in range(partitions)]
        self.bytes = [0] * partitions  # of state
        self.deadlines: list[dict[str, int]] = [{} for _ in range(partitions)]
        self.owed: list[dict[str, int]] = [{} for _ in range(partitions)]  # distinct rows, by table
        self.pending: list[dict[HoldKey, int]] = [{} for _ in range(partitions)]  # rows before held views
        self.copied: Callable[[str], bool] = lambda name: False  # whether all partitions have all rows of it
        self.total, self.latest = Counters(), Counters()
        self.replaying = False  # derives rows that were derived before
        self.shipped: dict[str, Shipped] = {}  # by the fingerprints of those who send
        self._traffic: dict[str, Traffic] = {}  # of the run under way
        self._local: dict[int, Replica] = {}
        self._tokens = self._runs = 0
        # The last commands, not in the file yet:
        self._unwritten: list[list[PartitionCommand]] = [[] for _ in range(partitions)]
        self._run: list[list[PartitionCommand]] = [[] for _ in range(partitions)]  # of the run under way
        self._written: list[list[int]] = [[] for _ in range(partitions)]  # where the first of these are in the file
        self._number: int | None = None
        self._former: _Standing | None = None  # before the run under way
        self._ready = False  # the folder of the exchange
        self._moving = threading.RLock()  # held while commands are written down, or a copy catches up

    # -- runs --------------------------------------------------------------------------------------------------------

    def is_inline(self, rows: int) -> bool:
        """Return whether work on so many rows is done in this process."""
        if self.jobs is None or self.mode == "inline":
            return True
        return self.mode == "auto" and rows <= self.inline_rows and self.state_bytes <= self.inline_bytes

    @property
    def state_bytes(self) -> int:
        return sum(self.bytes)

    def run(self, first: Mapping[int, PartitionCommand], wanted: Collection[str], rows: int) -> EpochResult:
        """Carry commands of the first stage (their tokens and run are set here) to the end; then `commit` or `undo`."""
        start = time.perf_counter()
        self.commit()  # what was left to be committed when a thread was interrupted
        self._runs += 1
        self._number = self._runs
        self._former = _Standing(
            list(self.deadlines), list(self.owed), list(self.pending), list(self.bytes), self.latest
        )
        self.latest, self._traffic = Counters(runs=1), {}
        inline, found, stage = self.is_inline(rows), EpochResult({}, {}), 0
        later = next(
            (replace(c, epoch=Epoch(c.epoch.number, c.epoch.time, {}), deadlines={}) for c in first.values()), None
        )
        waits: dict[int, int] = {}
        inbox: dict[int, dict[int, list[tuple[str, Any]]]] = {}
        work = dict(first)
        while work:
            commands = {p: self._named(command, stage) for p, command in work.items()}
            results = self._superstep(commands, wanted, inline)
            for p in sorted(results):
                result = results[p]
                self.bytes[p], self.deadlines[p], self.owed[p] = result.bytes, result.deadlines, result.owed
                self.pending[p] = result.pending
                self._gather(found, p, result)
                waits.pop(p, None)
                if result.waits is not None:
                    waits[p] = result.waits
                for message in result.messages:
                    there = range(self.partitions) if message.to == EVERYWHERE else (message.to,)
                    for target in there:
                        inbox.setdefault(message.stage, {}).setdefault(target, []).append(
                            (message.channel, message.batch)
                        )
                    self._count(p, message)
            stage = min((*inbox, *waits.values()), default=-1)
            received = inbox.pop(stage, {})
            due = {*received, *(p for p, s in waits.items() if s == stage)}
            work = {p: replace(later, received=received.get(p, ())) for p in sorted(due)} if later is not None else {}
        self.latest.seconds = time.perf_counter() - start
        return found

    def _count(self, sender: int, message: PartitionMessage) -> None:
        traffic = counted(message, sender, self.partitions)
        by = message.channel.partition("/")[0]
        self._traffic[by] = self._traffic.get(by, Traffic()).plus(traffic)
        self.latest.messages += traffic.messages
        self.latest.rows_shipped += traffic.rows
        self.latest.bytes_shipped += traffic.bytes

    def _named(self, command: PartitionCommand, stage: int) -> PartitionCommand:
        self._tokens += 1
        assert self._number is not None
        return replace(command, token=self._tokens, run=self._number, stage=stage)

    def _superstep(
        self, commands: dict[int, PartitionCommand], wanted: Collection[str], inline: bool
    ) -> dict[int, EpochResult]:
        self.latest.supersteps += 1
        if inline:
            results = {p: self._here(p).do(command, wanted) for p, command in commands.items()}
        else:
            assert self.jobs is not None
            self.latest.jobs += 1
            results = self.jobs.run(commands, wanted)
        for p, command in commands.items():
            self._run[p].append(command)
        return results

    def _gather(self, found: EpochResult, partition: int, result: EpochResult) -> None:
        """Add what came of a stage in a partition; of a relation that all have, only what the first says."""
        changes = dict(found.changes)
        for name in {*result.changed, *result.changes, *result.expired, *result.missing}:
            if partition and self.copied(name):
                continue
            if name in result.changed:
                found.changed[name] = found.changed.get(name, 0) + result.changed[name]
            if name in result.changes:
                batch, had = fetch(self.folder, result.changes[name]), changes.get(name)
                changes[name] = batch if had is None else concat([had, batch], batch.rows.shape[1])
            if name in result.expired:
                found.expired[name] = found.expired.get(name, 0) + result.expired[name]
            if name in result.missing:
                found.missing[name] = found.missing.get(name, Unmatched()).plus(result.missing[name])
        found.changes = changes
        for name, asked in result.asked.items():
            had = found.asked.get(name)
            found.asked[name] = asked if had is None else np.concatenate((had, asked))

    def commit(self) -> None:
        """Commit the run."""
        if self._number is None:
            return
        for p, commands in enumerate(self._run):
            if commands:
                log = self.logs[p]
                log.tokens += [command.token for command in commands]
                log.offsets += self._written[p]
                self._unwritten[p] += commands[len(self._written[p]) :]
                local = self._local.get(p)
                if local is not None and local.run == self._number:
                    local.commit()
        self._end()
        self.total.add(self.latest)
        self.shipped = after_epoch(self.shipped, self._traffic)

    def forget_others(self, senders: Iterable[str]) -> None:
        """Forget what all but these have sent: if another comes again it begins at nothing."""
        there = set(senders)
        self.shipped = {sender: shipped for sender, shipped in self.shipped.items() if sender in there}

    def undo(self) -> None:
        """Undo the run. Remote partitions undo their part when the next task reaches them."""
        if self._number is None:
            return
        assert self._former is not None
        self.deadlines, self.owed, self.pending, self.bytes, self.latest = self._former
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

    def _here(self, p: int) -> Replica:
        """Return a partition in this process, caught up."""
        with self._moving:
            return self._caught_up(p)

    def _caught_up(self, p: int) -> Replica:
        local, log_ = self._local.get(p), self.logs[p]
        if local is None or local.last != (self._run[p][-1].token if self._run[p] else log_.last):
            self.write_down()
            if local is not None:
                try:
                    local.catch_up(self.with_run(p), self._number)
                except DivergedError:
                    local = None
            if local is None:
                local = Replica(p, self.partitions, self.dictionary, self.folder, lambda version: self.plans[version])
                local.load(log_)
                local.catch_up(self.with_run(p), self._number)
            self._local[p] = local
        local.partition.flow.context.replaying = self.replaying
        return local

    def with_run(self, p: int) -> CommandLog:
        """Return the log of a partition with the commands of the open run. Call `write_down` first."""
        log_, commands = self.logs[p], self._run[p]
        tail = [*self._unwritten[p], *commands[len(self._written[p]) :]]
        if not commands and not tail:
            return log_
        tokens = log_.tokens + [command.token for command in commands]
        return replace(log_, tokens=tokens, offsets=log_.offsets + self._written[p], tail=tail)

    def write_down(self) -> None:
        """Write all commands so far to files, for stale partitions to replay.

        Where the disk refuses, the commands are kept here and go with every task: readers go on.
        """
        with self._moving:
            try:
                self._write_down()
            except StorageError as error:
                log.warning("commands of partitions are kept in memory: %s", error)

    def _write_down(self) -> None:
        if not self._ready:  # by now the database is ours: what a former driver left there is of no use
            shutil.rmtree(self.folder / EXCHANGE, ignore_errors=True)
            with storage_errors(self.folder / EXCHANGE, "make the folder"):
                (self.folder / EXCHANGE).mkdir(parents=True)
            self._ready = True
        for p, log_ in enumerate(self.logs):
            fresh = self._run[p][len(self._written[p]) :]
            if not self._unwritten[p] and not fresh:
                continue
            if not log_.file:
                log_.file = f"p{p:04d}-{log_.base}.steps"
            path = self.folder / EXCHANGE / log_.file
            with storage_errors(path, "write"), open(path, "ab") as file:
                places = []
                for command in (*self._unwritten[p], *fresh):
                    places.append(file.tell())
                    pickle.dump(command, file, protocol=5)
            # Only now: an error half way leaves what is written there unnamed.
            kept, self._unwritten[p] = len(self._unwritten[p]), []
            log_.offsets += places[:kept]
            self._written[p] += places[kept:]

    # -- questions ---------------------------------------------------------------------------------------------------

    def ask(self, calls: Mapping[int, Call], rows: int = 0) -> dict[int, Any]:
        """Return the answers of partitions, between two runs."""
        if self.is_inline(rows):
            return {p: self._here(p).ask(call) for p, call in calls.items()}
        assert self.jobs is not None
        self.latest.jobs += 1
        return self.jobs.ask(calls)

    def ask_all(self, name: str, *args: Any, rows: int = 0) -> list[Any]:
        """Return the answers of all partitions to one question, in their order."""
        found = self.ask(dict.fromkeys(range(self.partitions), (name, args)), rows)
        return [found[p] for p in range(self.partitions)]

    # -- images ------------------------------------------------------------------------------------------------------

    def save(self, files: Mapping[int, tuple[Path, tuple[Link, ...]]], epoch: int) -> dict[int, tuple[Link, ...]]:
        """Let every partition write an image, a patch on some links if there are any; return the chains they make."""
        found = self.ask({p: ("save", (links, path.name, epoch)) for p, (path, links) in files.items()})
        return {p: (link,) if link.kind == "base" else (*files[p][1], link) for p, link in found.items()}

    def begin_from(self, chains: Mapping[int, tuple[Link, ...]], plan: int) -> None:
        """Forget the commands before some images, which stand for all of them."""
        for p, links in chains.items():
            old = self.logs[p]
            self.logs[p] = CommandLog(old.last, links, plan)
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
