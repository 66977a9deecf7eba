"""Run epochs, supersteps and questions as Spark jobs, without a shuffle, one task a slot.

An epoch is one job whose tasks exchange messages directly (`worker/exchange.py`), or, where sockets between executors
are forbidden, one job a superstep. Tasks find what they need in what the job carries, at the driver's port and in files
under the database's folder, which all workers see.

A task of a superstep that is tried again, or run twice, gives the same results again (`worker.py`). Of an exchange
Spark tries nothing again, since its tasks depend on each other: if one is lost all of them end, and the whole is begun
again here, as another run, which makes workers undo what they did for the former.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from whence.engine.core.operator import Batch
from whence.engine.exchange.traffic import Traffic
from whence.model.errors import SparkError
from whence.model.sizes import in_bytes
from whence.runtime.epoch_result import EpochResult
from whence.runtime.spark.driver.meeting import Meeting, share_out
from whence.runtime.spark.driver.options import SOCKETS
from whence.runtime.spark.driver.supersteps import ExchangeResult, SuperstepRunner
from whence.runtime.spark.session.errors import WORKER_DIED, is_lost_exchange, jvm_errors
from whence.runtime.spark.session.session import attempts_of, slots_of
from whence.runtime.spark.worker import worker
from whence.runtime.spark.worker.commands import Call, CommandLog, PartitionCommand
from whence.runtime.spark.worker.dictionary_server import DictionaryServer
from whence.runtime.spark.worker.exchange import Arrival, Assignment, TaskRecord, take_part
from whence.runtime.spark.worker.spill import SpilledBatch, fetch
from whence.state.disk import storage_errors
from whence.state.manifest import EXCHANGE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


log = logging.getLogger("whence")


class SparkJobBackend:
    """The workers of a Spark session, for one runner of supersteps."""

    def __init__(
        self,
        spark: SparkSession,
        runner: SuperstepRunner,
        words: DictionaryServer,
        nonce: str,
        memory: int | None,
        mail: str,
    ):
        self._context, self._runner, self._words = spark.sparkContext, runner, words
        self._nonce, self._memory = nonce, memory
        self.mail = mail
        self._written: set[int] = set()  # plans

    @property
    def exchanges(self) -> bool:
        return self.mail == SOCKETS

    def exchange(
        self, first: Mapping[int, PartitionCommand], later: PartitionCommand, wanted: Collection[str]
    ) -> ExchangeResult:
        """Carry commands of the first stage to the end, in one job; in another one if a task is lost."""
        attempts = attempts_of(self._context)
        for attempt in range(1, attempts + 1):
            run = self._runner.begin_attempt()
            try:
                return self._exchange(run, first, later, wanted)
            except SparkError as error:
                if attempt == attempts or not is_lost_exchange(error):
                    raise
                log.warning("run %d lost a task (%s); attempt %d of %d follows", run, error, attempt + 1, attempts)
        raise AssertionError("an attempt returns or raises")

    def _exchange(
        self, run: int, first: Mapping[int, PartitionCommand], later: PartitionCommand, wanted: Collection[str]
    ) -> ExchangeResult:
        runner, context = self._runner, self._context
        setup = self._setup(run)
        logs = [runner.with_run(p) for p in range(runner.partitions)]
        with jvm_errors():
            tasks = max(1, min(runner.partitions, slots_of(context)))

        def assign(arrivals: Sequence[Arrival]) -> list[Assignment]:
            homes, peers = share_out(logs, arrivals), [(a.host, a.port) for a in arrivals]
            own: list[dict[int, CommandLog]] = [{} for _ in arrivals]
            for p, task in enumerate(homes):
                own[task][p] = logs[p]
            return [
                Assignment(log, {p: first[p] for p in log if p in first}, later, tuple(wanted), homes, peers)
                for log in own
            ]

        meeting = Meeting(tasks, assign, runner.next_token)
        with self._words.admit(meeting.receive) as address, self._job(f"run {run}", range(setup.partitions)):
            job = context.parallelize(range(tasks), tasks).barrier().mapPartitions(partial(take_part, setup, address))
            found: list[TaskRecord] = [pickle.loads(record) for record in job.collect()]
        if meeting.error is not None:
            raise meeting.error
        if not meeting.ended or len(found) != tasks:
            raise SparkError(f"run {run}: {len(found)} of {tasks} tasks of the epoch's job came to its end")
        traffic: dict[str, Traffic] = {}
        for record in found:
            for sender, sent in record.traffic.items():
                traffic[sender] = traffic.get(sender, Traffic()).plus(sent)
        records = {record.partition: record for task in found for record in task.partitions}
        return ExchangeResult(meeting.rounds, records, traffic)

    def run(self, commands: Mapping[int, PartitionCommand], wanted: Collection[str]) -> dict[int, EpochResult]:
        """Run one superstep."""
        run, stage = next((command.run, command.stage) for command in commands.values())
        found: dict[int, EpochResult] = self._answers(f"run {run}, stage {stage}", commands, run, tuple(wanted))
        return found

    def ask(self, calls: Mapping[int, Call]) -> dict[int, Any]:
        """Ask some partitions a question."""
        what = next((name for name, _ in calls.values()), "nothing")
        found = self._answers(what, calls, None, ())
        return {
            p: fetch(self._runner.folder, a) if isinstance(a, Batch | SpilledBatch) else a for p, a in found.items()
        }

    def _answers(
        self, said: str, work: Mapping[int, PartitionCommand | Call], run: int | None, wanted: tuple[str, ...]
    ) -> Any:
        if not work:
            return {}
        context, setup = self._context, self._setup(run)
        requests = [worker.Request(p, self._runner.with_run(p), what, wanted) for p, what in work.items()]
        slots = max(1, min(len(requests), context.defaultParallelism))
        groups = [pickle.dumps(requests[slot::slots], protocol=5) for slot in range(slots)]
        with self._job(said, work):
            answers = context.parallelize(groups, slots).mapPartitions(partial(worker.work, setup)).collect()
        found, errors = {}, []
        for answer in map(pickle.loads, answers):
            p, found[p], error = answer
            if error is not None:
                errors.append((p, error))
        if errors:
            raise min(errors, key=lambda e: e[0])[1]
        return found

    def _setup(self, run: int | None) -> worker.Setup:
        """Return what tasks of a job share; what they read has been written."""
        runner = self._runner
        runner.write_down()
        self._write_plans()
        return worker.Setup(
            self._nonce,
            str(runner.folder),
            runner.partitions,
            self._words.address,
            len(runner.dictionary),
            runner.dictionary.forgotten,
            self._memory,
            run,
            runner.replaying,
        )

    @contextmanager
    def _job(self, what: str, partitions: Iterable[int]) -> Iterator[None]:
        """Name the job of this thread, also in errors; say of one whose workers died which of its partitions is the
        largest, and what to do."""
        try:
            with jvm_errors(what):
                self._context.setJobDescription(f"whence: {what}")
                try:
                    yield
                finally:
                    self._context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]  # as its documentation says
        except SparkError as error:
            if WORKER_DIED not in str(error):
                raise
            held = self._runner.bytes
            largest = max(partitions, key=lambda p: held[p])
            raise SparkError(
                f"{error}. The largest partition of this job, {largest} of {self._runner.partitions}, held "
                f"{in_bytes(held[largest])} before it: if memory ran out, use partitions={2 * self._runner.partitions} "
                "or more, smaller batches (max_rows_per_epoch), or more spark.executor.memoryOverhead"
            ) from error

    def _write_plans(self) -> None:
        """Let workers find the plans that commands and images name."""
        from pyspark import cloudpickle

        for version, plan in self._runner.plans.items():
            if version not in self._written:
                path = self._runner.folder / EXCHANGE / worker.plan_file(version)
                with storage_errors(path, "write"):
                    path.write_bytes(cloudpickle.dumps(plan))  # type: ignore[no-untyped-call]
                self._written.add(version)
