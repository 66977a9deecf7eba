"""Run an epoch over all partitions, superstep by superstep: inline, in one Spark job, or in a job each.

A run goes from stage to stage: a superstep lets every partition that has something to do run one stage, and what they
send is given to its receivers with the next one. A stage that something is addressed to is run again, and when nothing
is left the run is committed or undone. All supersteps happen *inline*, in this process; or in one job, whose tasks
exchange messages among themselves; or each as a job of its own (`jobs.py`). All ways move the same command logs, so
that one can follow the other at any time.
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
from whence.engine.exchange.messages import EVERYWHERE
from whence.engine.exchange.traffic import Shipped, Traffic, after_epoch, counted, sender_of
from whence.model.codes import Dictionary
from whence.model.errors import StorageError
from whence.plan.algebra.logical import HoldKey
from whence.runtime.epoch_result import EpochResult
from whence.runtime.partition_plan import PartitionPlan
from whence.runtime.spark.worker.commands import Call, CommandList, CommandLog, PartitionCommand
from whence.runtime.spark.worker.exchange import PartitionRecord
from whence.runtime.spark.worker.replica import DivergedError, Replica
from whence.runtime.spark.worker.spill import fetch
from whence.runtime.writing.tables import Unmatched
from whence.state.disk import storage_errors
from whence.state.manifest import EXCHANGE, Link

log = logging.getLogger("whence")


class ExchangeResult(NamedTuple):
    """What came of a run that was one job."""

    rounds: int
    records: Mapping[int, PartitionRecord]  # by partition
    traffic: Mapping[str, Traffic]  # by the operators that send


class Jobs(Protocol):
    """Partitions in other processes."""

    mail: str  # how messages travel

    @property
    def exchanges(self) -> bool:
        """Whether a run is one job."""

    def exchange(
        self, first: Mapping[int, PartitionCommand], later: PartitionCommand, wanted: Collection[str]
    ) -> ExchangeResult:
        """Carry commands of the first stage to the end in one job; `later` is what follows them, without messages."""

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
        self._run = [CommandList() for _ in range(partitions)]  # the commands of the run under way
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
        inline, found = self.is_inline(rows), EpochResult({}, {})
        for command in first.values():
            later = replace(command, epoch=Epoch(command.epoch.number, command.epoch.time, {}), deadlines={})
            if inline or self.jobs is None or not self.jobs.exchanges:
                self._run_supersteps(first, later, wanted, inline, found)
            else:
                self._run_exchange(self.jobs.exchange(first, later, wanted), first, found)
            break
        self.latest.seconds = time.perf_counter() - start
        return found

    def begin_attempt(self) -> int:
        """Return a number for the run under way as it is begun in a job: what was done under another is undone."""
        self.latest.jobs += 1
        self._runs += 1
        self._number = self._runs
        return self._number

    def next_token(self) -> int:
        """Return a name that no command has had."""
        self._tokens += 1
        return self._tokens

    def _run_exchange(self, result: ExchangeResult, first: Mapping[int, PartitionCommand], found: EpochResult) -> None:
        """Take in what came of a run that was one job."""
        self.latest.supersteps += result.rounds
        results: list[tuple[int, int, EpochResult]] = []
        for p, record in result.records.items():
            entry = record.entry
            if isinstance(entry, tuple) and p in first:  # what came from here did not have to come back
                entry = (replace(entry[0], epoch=first[p].epoch, deadlines=first[p].deadlines), *entry[1:])
            self._run[p].add(record.token, entry)
            self._note_standing(p, record.standing)
            results += [(round_, p, result) for round_, result in record.results]
        for _, p, of_partition in sorted(results, key=lambda found: found[:2]):
            self._gather(found, p, of_partition)
        for sender, traffic in result.traffic.items():
            self._count(sender, traffic)

    def _run_supersteps(
        self,
        first: Mapping[int, PartitionCommand],
        later: PartitionCommand,
        wanted: Collection[str],
        inline: bool,
        found: EpochResult,
    ) -> None:
        waits: dict[int, int] = {}
        inbox: dict[int, dict[int, list[tuple[str, Any]]]] = {}
        work, stage = dict(first), 0
        while work:
            commands = {p: self._named(command, stage) for p, command in work.items()}
            results = self._superstep(commands, wanted, inline)
            for p in sorted(results):
                result = results[p]
                self._note_standing(p, result)
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
                    self._count(sender_of(message), counted(message, p, self.partitions))
            stage = min((*inbox, *waits.values()), default=-1)
            received = inbox.pop(stage, {})
            due = {*received, *(p for p, s in waits.items() if s == stage)}
            work = {p: replace(later, received=received.get(p, ())) for p in sorted(due)}

    def _note_standing(self, p: int, result: EpochResult) -> None:
        self.bytes[p], self.deadlines[p], self.owed[p] = result.bytes, result.deadlines, result.owed
        self.pending[p] = result.pending

    def _count(self, sender: str, traffic: Traffic) -> None:
        self._traffic[sender] = self._traffic.get(sender, Traffic()).plus(traffic)
        self.latest.messages += traffic.messages
        self.latest.rows_shipped += traffic.rows
        self.latest.bytes_shipped += traffic.bytes

    def _named(self, command: PartitionCommand, stage: int) -> PartitionCommand:
        assert self._number is not None
        return replace(command, token=self.next_token(), run=self._number, stage=stage)

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
            self._run[p].add(command.token, (command,))
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
        for p, run in enumerate(self._run):
            if run.entries:
                run.join()
                self.logs[p].extend(run)
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
        self._run = [CommandList() for _ in range(self.partitions)]
        self._number = None

    # -- where partitions are ----------------------------------------------------------------------------------------

    def _here(self, p: int) -> Replica:
        """Return a partition in this process, caught up."""
        with self._moving:
            return self._caught_up(p)

    def _caught_up(self, p: int) -> Replica:
        local, log_ = self._local.get(p), self.logs[p]
        if local is None or local.last != (self._run[p].tokens or [log_.last])[-1]:
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
        return self.logs[p].followed_by(self._run[p])

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
            for commands in (log_, self._run[p]):
                self._write_entries(p, commands)

    def _write_entries(self, p: int, commands: CommandList) -> None:
        start, log_ = commands.written, self.logs[p]
        if start == len(commands.entries):
            return
        if not log_.file:
            log_.file = f"p{p:04d}-{log_.base}.steps"
        path = self.folder / EXCHANGE / log_.file
        entries = commands.entries[start:]
        with storage_errors(path, "write"), open(path, "ab") as file:
            for place, entry in enumerate(entries):
                if isinstance(entry, tuple):
                    entries[place] = file.tell()
                    pickle.dump(entry, file, protocol=5)
        # Only now: an error half way leaves what is written there unnamed.
        commands.entries[start:], commands.written = entries, len(commands.entries)

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
            self.logs[p] = CommandLog(base=old.last, links=links, plan=plan)
            if old.file:
                (self.folder / EXCHANGE / old.file).unlink(missing_ok=True)
        self.plans = {plan: self.plans[plan]}
        for pattern in ("x*.npy", "x*.steps"):
            for path in (self.folder / EXCHANGE).glob(pattern):
                path.unlink(missing_ok=True)

    def close(self) -> None:
        self._local.clear()
        if self._ready:
            shutil.rmtree(self.folder / EXCHANGE, ignore_errors=True)
