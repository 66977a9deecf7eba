"""Run supersteps and questions as Spark jobs: one job each, without a shuffle, one task a slot.

Tasks find what they need in what the job carries and in files under the database's folder, which all workers see. A
task that is tried again, or run twice, gives the same results again (`worker.py`).
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from whence.engine.core.operator import Batch
from whence.model.errors import SparkError
from whence.model.sizes import in_bytes
from whence.runtime.epoch_result import EpochResult
from whence.runtime.spark.driver.supersteps import SuperstepRunner
from whence.runtime.spark.session.errors import WORKER_DIED, jvm_errors
from whence.runtime.spark.worker import worker
from whence.runtime.spark.worker.commands import Call, PartitionCommand
from whence.runtime.spark.worker.dictionary_server import Address
from whence.runtime.spark.worker.spill import SpilledBatch, fetch
from whence.state.disk import storage_errors
from whence.state.manifest import EXCHANGE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkJobBackend:
    """The workers of a Spark session, for one runner of supersteps."""

    def __init__(self, spark: SparkSession, runner: SuperstepRunner, words: Address, nonce: str, memory: int | None):
        self._context, self._runner, self._words = spark.sparkContext, runner, words
        self._nonce, self._memory = nonce, memory
        self._written: set[int] = set()  # plans

    def run(self, commands: Mapping[int, PartitionCommand], wanted: Collection[str]) -> dict[int, EpochResult]:
        """Run one superstep."""
        run, stage = next((command.run, command.stage) for command in commands.values())
        found: dict[int, EpochResult] = self._job(f"run {run}, stage {stage}", commands, run, tuple(wanted))
        return found

    def ask(self, calls: Mapping[int, Call]) -> dict[int, Any]:
        """Ask some partitions a question."""
        what = next((name for name, _ in calls.values()), "nothing")
        found = self._job(what, calls, None, ())
        return {
            p: fetch(self._runner.folder, a) if isinstance(a, Batch | SpilledBatch) else a for p, a in found.items()
        }

    def _job(
        self, what: str, work: Mapping[int, PartitionCommand | Call], run: int | None, wanted: tuple[str, ...]
    ) -> Any:
        if not work:
            return {}
        runner, context = self._runner, self._context
        runner.write_down()
        self._write_plans()
        setup = worker.Setup(
            self._nonce,
            str(runner.folder),
            runner.partitions,
            self._words,
            len(runner.dictionary),
            runner.dictionary.forgotten,
            self._memory,
            run,
            runner.replaying,
        )
        requests = [worker.Request(p, runner.with_run(p), what_to_do, wanted) for p, what_to_do in work.items()]
        slots = max(1, min(len(requests), context.defaultParallelism))
        groups = [pickle.dumps(requests[slot::slots], protocol=5) for slot in range(slots)]
        with self._deaths(work), jvm_errors(what):
            context.setJobDescription(f"whence: {what}")
            try:
                answers = context.parallelize(groups, slots).mapPartitions(partial(worker.work, setup)).collect()
            finally:
                context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]  # as its documentation says
        found, errors = {}, []
        for answer in map(pickle.loads, answers):
            p, found[p], error = answer
            if error is not None:
                errors.append((p, error))
        if errors:
            raise min(errors, key=lambda e: e[0])[1]
        return found

    @contextmanager
    def _deaths(self, partitions: Iterable[int]) -> Iterator[None]:
        """Say of a job whose workers died which partition of it is the largest, and what to do."""
        try:
            yield
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
