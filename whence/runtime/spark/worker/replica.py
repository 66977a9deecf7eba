"""A copy of a partition that follows the driver's command log, in the driver or in a Python worker of Spark.

A run that is open can be undone; whether it was committed is known from the log that comes with the next contact.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from whence.engine.core.batch import concat
from whence.engine.core.image import SoundImages, StaleImage
from whence.engine.core.operator import Batch
from whence.model.codes import Dictionary
from whence.model.errors import WhenceError
from whence.runtime.epoch_result import EpochResult
from whence.runtime.partition import Partition
from whence.runtime.partition_plan import Plans
from whence.runtime.reading.partition_reader import PartitionReader
from whence.runtime.spark.worker.commands import Call, CommandLog, PartitionCommand
from whence.runtime.spark.worker.spill import fetch
from whence.state.chain import ImageChain
from whence.state.manifest import STATE


class DivergedError(Exception):
    """The copy is not on the command log: it must be loaded anew from its image."""


class Replica:
    """One of `of` partitions of a database in a folder, and how far it has come on the log."""

    def __init__(self, number: int, of: int, dictionary: Dictionary, folder: Path, plans: Plans) -> None:
        self.partition = Partition(dictionary, number, of, folder)
        self.number, self._folder, self._plans = number, folder, plans
        self.last = 0  # the token of the last command
        self.run: int | None = None  # the run that is open
        self.before = 0  # the last token before that run
        self._result: EpochResult | None = None  # of the last command
        self._reported: set[str] = set()  # whose changes the open run has reported: a stage may have many rounds
        self._reader = PartitionReader(self.partition)

    # -- where it is -------------------------------------------------------------------------------------------------

    def load(self, log: CommandLog) -> None:
        """Begin from the image of a log; the copy must be new."""
        if log.links and log.plan is not None:
            with ImageChain(self._folder / STATE, log.links) as chain:
                images = SoundImages(chain)
                try:
                    self.partition.restore(self._plans(log.plan), images)
                except StaleImage as error:
                    raise StaleImage("; ".join([str(error), *images.damage])) from error
                self.partition.damage = images.damage
        self.last = log.base

    def catch_up(self, log: CommandLog, run: int | None) -> None:
        """Catch up with the driver's command log: commit or undo the open run, then do the missing commands."""
        if self.run is not None and self.run != run and log.place(self.last) is None:
            self.undo()
        place = log.place(self.last)
        if place is None:
            raise DivergedError
        if place < len(log.tokens):
            context = self.partition.flow.context
            before, context.replaying = context.replaying, True
            try:
                for command in log.read(self._folder, place):
                    if command.run != self.run:
                        self.commit()
                    self.do(command)
            finally:
                context.replaying = before
        if self.run != run:
            self.commit()

    def commit(self) -> None:
        """Commit the open run."""
        if self.run is not None:
            self.partition.commit()
            self.run = None

    def undo(self) -> None:
        """Undo the open run."""
        if self.run is None:
            return
        try:
            self.partition.undo()
        except WhenceError as error:
            raise DivergedError from error
        self.run, self.last, self._result = None, self.before, None

    # -- what it does ------------------------------------------------------------------------------------------------

    def do(self, command: PartitionCommand, wanted: Collection[str] = ()) -> EpochResult:
        """Do a command. Doing the last one again (a task that is retried) gives the same result once more."""
        if command.token == self.last and self._result is not None:
            return self._result
        start = time.perf_counter()
        if self.run is None:
            self.run, self.before, self._reported = command.run, self.last, set()
        try:
            result = self._done(command, wanted)
        except BaseException:
            self.last = command.token
            with suppress(DivergedError):
                self.undo()
            raise
        self._reported |= result.changed.keys()
        partition = self.partition
        result.deadlines, result.owed = partition.deadlines(), partition.owed()
        result.pending = partition.flow.pending()
        result.bytes, result.seconds = partition.state_bytes, time.perf_counter() - start
        self.last, self._result = command.token, result
        return result

    def _done(self, command: PartitionCommand, wanted: Collection[str]) -> EpochResult:
        parts: dict[str, list[Batch]] = {}
        for channel, payload in command.received:
            parts.setdefault(channel, []).append(fetch(self._folder, payload))
        received = {channel: concat(batches, batches[0].rows.shape[1]) for channel, batches in parts.items()}
        partition = self.partition
        if command.plan is not None and command.stage == 0:
            partition.install(self._plans(command.plan))
        if command.plan is None:
            return partition.run_stage(
                command.stage, command.epoch, received, command.deadlines, self._reported, wanted
            )
        messages = partition.flow.run_stage(command.stage, {}, received)
        waits = partition.flow.waits(command.stage)
        return EpochResult({}, {}, messages=messages, waits=waits, asked=partition.take_asked())

    def ask(self, call: Call) -> Any:
        """Answer a question, between two runs."""
        name, args = call
        return getattr(self._reader, name)(*args)
