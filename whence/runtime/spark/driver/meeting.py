"""The meeting of the tasks of an epoch that is one job: who comes gets partitions, and hears when a round is over.

The driver gives each partition to a task whose process has it, as far as the others have their share too, so what a
worker keeps is used whichever of Spark's tasks it happens to run. From then on it only counts: a round is over when
every task has reported; the next one runs the least stage that any of them knows something to do for, and when there
is none the exchange has ended. What partitions say to each other does not come here (`worker/exchange.py`).

One that is lost, fails or cannot go on ends the exchange for all: nothing of it is committed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from whence.model.errors import SparkError, WhenceError
from whence.runtime.spark.worker.commands import CommandLog
from whence.runtime.spark.worker.connections import FrameConnection
from whence.runtime.spark.worker.exchange import Abandoned, Arrival, Assignment, RoundOrder, RoundReport, Trouble


class Meeting:
    """One exchange of so many tasks. `assign` says what each gets, and `next_token` names the commands of a round."""

    def __init__(
        self,
        tasks: int,
        assign: Callable[[Sequence[Arrival]], Sequence[Assignment]],
        next_token: Callable[[], int],
    ):
        self.error: WhenceError | None = None
        self.ended = False
        self.rounds = 0
        self._tasks, self._assign, self._next_token = tasks, assign, next_token
        self._arrivals: dict[int, Arrival] = {}
        self._lines: dict[int, FrameConnection] = {}
        self._reports: dict[int, RoundReport] = {}
        self._busy = threading.Lock()

    def receive(self, line: FrameConnection) -> None:
        """Hear a task from its coming to its end; in a thread of its own."""
        task: int | None = None
        try:
            task = self._arrived(line.receive(), line)
            while True:
                self._hear(task, line.receive())
        except Exception as error:
            if task is not None:
                self.abandon(SparkError(f"task {task} of {self._tasks} of the epoch's job is lost ({error})"))

    def abandon(self, error: WhenceError) -> None:
        """End the exchange for all tasks, unless it has ended."""
        with self._busy:
            self._abandon(error)

    def _arrived(self, arrival: Arrival, line: FrameConnection) -> int:
        with self._busy:
            if arrival.task in self._lines or not 0 <= arrival.task < self._tasks or self.error is not None:
                raise ValueError(f"task {arrival.task} is not expected")
            self._arrivals[arrival.task], self._lines[arrival.task] = arrival, line
            if len(self._lines) == self._tasks:
                tasks = range(self._tasks)
                for task, assigned in enumerate(self._assign([self._arrivals[task] for task in tasks])):
                    self._tell(task, assigned)
                self._order(0, [0] * self._tasks)
        return arrival.task

    def _hear(self, task: int, what: Any) -> None:
        with self._busy:
            if isinstance(what, Trouble):
                self._abandon(what.error)
                return
            self._reports[task] = what
            if len(self._reports) == self._tasks and self.error is None:
                reports, self._reports = self._reports, {}
                self._end_round(reports)

    def _end_round(self, reports: Mapping[int, RoundReport]) -> None:
        failed = [report.failed for report in reports.values() if report.failed is not None]
        if failed:
            self._abandon(min(failed, key=lambda found: found[0])[1])
            return
        frames = [0] * self._tasks
        for report in reports.values():
            for task in report.sent:
                frames[task] += 1
        self._order(min((r.next for r in reports.values() if r.next is not None), default=None), frames)

    def _order(self, stage: int | None, frames: Sequence[int]) -> None:
        self.ended = stage is None
        token = 0 if stage is None else self._next_token()
        for task in range(self._tasks):
            self._tell(task, RoundOrder(self.rounds, stage, token, frames[task]))
        self.rounds += stage is not None

    def _abandon(self, error: WhenceError) -> None:
        if self.ended or self.error is not None:
            return
        self.error = error
        for task in self._lines:
            self._tell(task, Abandoned())

    def _tell(self, task: int, what: object) -> None:
        with contextlib.suppress(OSError):  # its own thread finds out
            self._lines[task].send(what)


def share_out(logs: Sequence[CommandLog], arrivals: Sequence[Arrival]) -> list[int]:
    """Return the task of each partition: the one that has come farthest with it among those that have not their share
    yet, and for those that nobody has, the one with the fewest.

    >>> log = CommandLog(tokens=[5, 7], entries=[(), ()])
    >>> share_out([log, log, log], [Arrival(0, "", 0, {2: (5, 0)}), Arrival(1, "", 0, {2: (7, 5), 0: (9, 5)})])
    [1, 0, 1]
    """
    share = -(-len(logs) // len(arrivals))
    load = [0] * len(arrivals)
    homes = [-1] * len(logs)
    held: list[tuple[int, int, int]] = []  # how far it has come there, partition, task
    for arrival in arrivals:
        for p, tokens in arrival.held.items():
            if p < len(logs):
                places = [place for token in tokens if (place := logs[p].place(token)) is not None]
                if places:
                    held.append((places[0], p, arrival.task))
    for _, p, task in sorted(held, key=lambda found: (-found[0], found[1], found[2])):
        if homes[p] < 0 and load[task] < share:
            homes[p], load[task] = task, load[task] + 1
    for p, home in enumerate(homes):
        if home < 0:
            homes[p] = min(range(len(load)), key=load.__getitem__)
            load[homes[p]] += 1
    return homes
