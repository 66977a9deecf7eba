"""A task of an epoch that is one job: it runs the partitions that it is given, round by round, and exchanges messages
with the other tasks directly, until nothing is under way.

All tasks of the job come to a meeting with the driver (`driver/meeting.py`), which gives each partition to a task, if
it can to one that has it already. Then, in every round:

1. The driver says which stage is run, under which token, and how many frames of the round before are for this task.
2. The task waits for these, and runs the stage in each of its partitions that has messages or work for it.
3. It sends what they say to the tasks of the receivers, one frame each, and reports to the driver to whom it has sent,
   and the next stage that it knows something to do for. The least of these is the stage of the next round; if no task
   knows of any, the epoch is at its end.

Law: messages are taken in the order of rounds, in a round in the order of the partitions that sent them. So a partition
does the same commands as in a job a superstep or inline, whatever tasks there are and whoever is faster, and its
commands, which go back to the driver with the results, bring any copy to the same state.

A task never outlives its meeting: if a task is lost, or an epoch fails, or the driver goes, all others end. What they
did is open and no part of the command log, so it is undone when the next request comes.
"""

from __future__ import annotations

import contextlib
import pickle
import queue
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from whence.engine.exchange.messages import EVERYWHERE, PartitionMessage
from whence.engine.exchange.traffic import Traffic, counted, sender_of
from whence.model.errors import SparkError, WhenceError
from whence.runtime.epoch_result import EpochResult
from whence.runtime.spark.worker import worker
from whence.runtime.spark.worker.commands import CommandLog, Entry, PartitionCommand, spill_commands
from whence.runtime.spark.worker.connections import (
    GREETING_PATIENCE,
    Address,
    FrameConnection,
    StrangerError,
    connect_for_frames,
)
from whence.runtime.spark.worker.dictionary_server import DRIVER, TASK
from whence.runtime.spark.worker.peers import PATIENCE, Frame, HungUp, Peers
from whence.runtime.spark.worker.spill import Payload
from whence.runtime.spark.worker.worker import PartitionCache, Request, Setup

MEETING_PATIENCE = 120.0  # seconds from the first task to the last: their processes may have to be started

Inbox = dict[int, dict[int, list[tuple[str, Payload]]]]
"""What is to be taken, by stage and partition."""


class Arrival(NamedTuple):
    """What a task says when it comes: where it listens, and what partitions its process has (`PartitionCache.held`)."""

    task: int
    host: str
    port: int
    held: Mapping[int, tuple[int, int]]


@dataclass(frozen=True)
class Assignment:
    """What the driver gives a task: its partitions with their logs and first commands, and where all others are."""

    logs: Mapping[int, CommandLog]
    first: Mapping[int, PartitionCommand]
    later: PartitionCommand  # the commands that follow, without messages
    wanted: tuple[str, ...]
    homes: Sequence[int]  # the task of each partition
    peers: Sequence[tuple[str, int]]  # host and port of each task


class RoundOrder(NamedTuple):
    """What the driver says at the begin of a round; the end of the exchange if there is no stage."""

    round: int
    stage: int | None
    token: int = 0
    frames: int = 0  # for this task, of the round before


class RoundReport(NamedTuple):
    """What a task says at the end of a round."""

    sent: Sequence[int]  # the tasks that a frame has been sent to
    next: int | None  # the next stage that there is something to do for
    failed: tuple[int, WhenceError] | None = None  # the first partition in which the epoch fails


class Trouble(NamedTuple):
    """What a task says that cannot go on."""

    error: WhenceError


class Abandoned(NamedTuple):
    """What the driver says when the exchange cannot come to its end."""


@dataclass
class PartitionRecord:
    """What a partition has done in an exchange: its commands as an entry of its log, and what came of them."""

    partition: int
    token: int = 0  # of the last command
    entry: Entry = ()
    results: list[tuple[int, EpochResult]] = field(default_factory=list)  # by round, as far as they say anything
    standing: EpochResult = field(default_factory=lambda: EpochResult({}, {}))  # the last one: how it stands


class TaskRecord(NamedTuple):
    """What a task returns."""

    partitions: Sequence[PartitionRecord]
    traffic: Mapping[str, Traffic]  # by the operators that send


class _EndedError(Exception):
    """The exchange is over for this task."""


def take_part(setup: Setup, meeting: Address, tasks: Iterable[int]) -> Iterator[bytes]:
    """A task of Spark's: takes part in the exchange, and gives what it has done, or nothing if that is abandoned."""
    for task in tasks:
        record = ExchangeTask(worker.cache_of(setup), setup, task).run(meeting)
        if record is not None:
            yield pickle.dumps(record, protocol=5)


class ExchangeTask:
    """One task: the partitions that it has been given, and what is for them."""

    def __init__(self, cache: PartitionCache, setup: Setup, task: int):
        self._cache, self._setup, self._task = cache, setup, task
        self._assigned: Assignment
        self._logs: dict[int, CommandLog] = {}
        self._inbox: Inbox = {}
        self._waits: dict[int, int] = {}
        self._own: list[tuple[int, Sequence[PartitionMessage]]] = []  # sent in this task, in the last round
        self._came: dict[int, list[Frame]] = {}  # by round
        self._orders = queue.SimpleQueue[RoundOrder]()
        self._commands: dict[int, list[PartitionCommand]] = {}
        self._records: dict[int, PartitionRecord] = {}
        self._traffic: dict[str, Traffic] = {}

    def run(self, meeting: Address) -> TaskRecord | None:
        """Take part from the meeting to the end; return None if there is none to come to."""
        try:
            driver = connect_for_frames(meeting, TASK, DRIVER)
        except OSError as error:
            raise self._trouble(
                f"the driver at {meeting.host}:{meeting.port} cannot be reached ({error or type(error).__name__}); "
                "does a firewall stand between, or has the database been closed?"
            ) from error
        driver.wait_at_most(None)
        with Peers(driver, meeting.secret) as peers:
            try:
                driver.send(Arrival(self._task, driver.own_host, peers.port, self._cache.held()))
                self._begin(peers)
                while True:
                    order = self._next_order(peers)
                    if order.stage is None:
                        return TaskRecord(self._finished(), self._traffic)
                    self._receive(peers, order)
                    driver.send(self._run_round(peers, order))
            except WhenceError as error:
                self._give_up(peers, driver, error)
                return None
            except (OSError, StrangerError, _EndedError):
                return None  # the driver has gone, or wants no more of it

    def _begin(self, peers: Peers) -> None:
        """Wait for the others, and for what there is to do. A task that has heard before may be quicker to send."""
        late = "the other tasks of its job have not come"
        while not isinstance(assigned := self._next_event(peers, MEETING_PATIENCE, late), Assignment):
            self._sort(assigned)
        self._assigned = assigned
        self._logs = {p: replace(log, tokens=[*log.tokens], entries=[*log.entries]) for p, log in assigned.logs.items()}

    def _give_up(self, peers: Peers, driver: FrameConnection, error: WhenceError) -> None:
        """Say why this task cannot go on, and wait until that has been heard."""
        with contextlib.suppress(OSError, queue.Empty):  # it has gone
            driver.send(Trouble(error))
            while not isinstance(peers.events.get(timeout=GREETING_PATIENCE), (HungUp, Abandoned)):
                pass

    # -- what comes --------------------------------------------------------------------------------------------------

    def _next_event(self, peers: Peers, patience: float | None, otherwise: str) -> Any:
        try:
            event = peers.events.get(timeout=patience)
        except queue.Empty:
            raise self._trouble(f"{otherwise} within {patience:.0f} seconds") from None
        if isinstance(event, (HungUp, Abandoned)):
            raise _EndedError
        return event

    def _next_order(self, peers: Peers) -> RoundOrder:
        while self._orders.empty():
            self._sort(self._next_event(peers, None, ""))
        return self._orders.get()

    def _sort(self, event: Any) -> None:
        if isinstance(event, Frame):
            self._came.setdefault(event.round, []).append(event)
        else:
            self._orders.put(event)

    def _receive(self, peers: Peers, order: RoundOrder) -> None:
        """Wait for what was sent in the round before, and put it where it belongs."""
        before = order.round - 1
        while len(self._came.get(before, ())) < order.frames:
            self._sort(self._next_event(peers, PATIENCE, "frames that were sent to it have not come"))
        came, self._own = [*self._own, *(m for frame in self._came.pop(before, ()) for m in frame.messages)], []
        for _, messages in sorted(came, key=lambda sent: sent[0]):
            for message in messages:
                there = self._assigned.logs if message.to == EVERYWHERE else (message.to,)
                for target in there:
                    stage = self._inbox.setdefault(message.stage, {})
                    stage.setdefault(target, []).append((message.channel, message.batch))

    # -- what is done ------------------------------------------------------------------------------------------------

    def _run_round(self, peers: Peers, order: RoundOrder) -> RoundReport:
        assert order.stage is not None
        outgoing: dict[int, list[tuple[int, Sequence[PartitionMessage]]]] = {}
        stages = list[int]()
        for p, command in self._due(order).items():
            result, error = self._cache.attempt(self._setup, Request(p, self._logs[p], command, self._assigned.wanted))
            if error is not None:
                return RoundReport((), None, (p, error))
            self._note(order.round, p, command, result)
            stages += [message.stage for message in result.messages]
            for task, messages in self._by_task(result.messages).items():
                outgoing.setdefault(task, []).append((p, messages))
        self._own = outgoing.pop(self._task, [])
        for task, sent in outgoing.items():
            self._send(peers, task, Frame(order.round, sent))
        return RoundReport(list(outgoing), min((*stages, *self._inbox, *self._waits.values()), default=None))

    def _due(self, order: RoundOrder) -> dict[int, PartitionCommand]:
        """Return what the partitions do in a round."""
        stage, run = order.stage, self._setup.run
        assert stage is not None
        assert run is not None
        if order.round == 0:
            work = self._assigned.first
        else:
            received = self._inbox.pop(stage, {})
            due = {*received, *(p for p, waits in self._waits.items() if waits == stage)}
            work = {p: replace(self._assigned.later, received=received.get(p, ())) for p in due}
        return {p: replace(work[p], token=order.token, run=run, stage=stage) for p in sorted(work)}

    def _note(self, round_: int, p: int, command: PartitionCommand, result: EpochResult) -> None:
        """Note what a partition has done."""
        self._logs[p].add(command.token, (command,))
        self._commands.setdefault(p, []).append(command)
        self._waits.pop(p, None)
        if result.waits is not None:
            self._waits[p] = result.waits
        for message in result.messages:
            by, sent = sender_of(message), counted(message, p, self._setup.partitions)
            self._traffic[by] = self._traffic.get(by, Traffic()).plus(sent)
        record = self._records.setdefault(p, PartitionRecord(p))
        record.standing = replace(result, messages=(), changes={})
        if result.changed or result.changes or result.expired or result.missing or result.asked:
            record.results.append((round_, replace(result, messages=())))

    def _by_task(self, messages: Iterable[PartitionMessage]) -> dict[int, list[PartitionMessage]]:
        found: dict[int, list[PartitionMessage]] = {}
        homes = self._assigned.homes
        for message in messages:
            for task in range(len(self._assigned.peers)) if message.to == EVERYWHERE else (homes[message.to],):
                found.setdefault(task, []).append(message)
        return found

    def _send(self, peers: Peers, task: int, frame: Frame) -> None:
        host, port = self._assigned.peers[task]
        try:
            peers.send(host, port, frame)
        except (OSError, StrangerError) as error:
            raise self._trouble(
                f"task {task} at {host}:{port} cannot be reached ({error or type(error).__name__}); where executors "
                'may not connect to each other, open the database with on_spark={"mail": "jobs"}'
            ) from error

    def _finished(self) -> list[PartitionRecord]:
        for p, record in self._records.items():
            commands = tuple(self._commands[p])
            record.token = commands[-1].token
            name = f"x{p:04d}-{secrets.token_hex(8)}.steps"
            record.entry = entry = spill_commands(self._cache.folder, name, commands)
            if isinstance(entry, tuple) and p in self._assigned.first:  # the driver has what it gave
                record.entry = (replace(entry[0], epoch=self._assigned.later.epoch, deadlines={}), *entry[1:])
        return list(self._records.values())

    def _trouble(self, what: str) -> WhenceError:
        return SparkError(f"task {self._task} of the epoch's job: {what}")
