"""Supersteps and questions as Spark jobs: one job each, without a shuffle, one task a slot.

Tasks find what they need in what the job carries and in files under the database's folder, which all workers see. A
task that is tried again, or run twice, says the same again (`worker.py`).
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from whence.engine.core.operator import Batch
from whence.model.errors import SparkError
from whence.runtime.questions.explain import in_bytes
from whence.runtime.spark.driver.crew import SuperstepRunner
from whence.runtime.spark.session.errors import WORKER_DIED, jvm_errors
from whence.runtime.spark.worker import worker
from whence.runtime.spark.worker.commands import Call, PartitionCommand, Reply, SpilledBatch, fetch
from whence.runtime.spark.worker.dictionary_server import Address
from whence.state.disk import storage_errors
from whence.state.manifest import EXCHANGE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkJobBackend:
    """The workers of a Spark session, for one crew."""

    def __init__(self, spark: SparkSession, crew: SuperstepRunner, words: Address, nonce: str, memory: int | None):
        self._context, self._crew, self._words = spark.sparkContext, crew, words
        self._nonce, self._memory = nonce, memory
        self._written: set[int] = set()  # plans

    def do(self, steps: Mapping[int, PartitionCommand], wanted: Collection[str]) -> dict[int, Reply]:
        """One superstep."""
        run, stage = next((step.run, step.stage) for step in steps.values())
        found: dict[int, Reply] = self._job(f"run {run}, stage {stage}", steps, run, tuple(wanted))
        return found

    def ask(self, calls: Mapping[int, Call]) -> dict[int, Any]:
        """A question to some partitions."""
        what = next((name for name, _ in calls.values()), "nothing")
        found = self._job(what, calls, None, ())
        return {p: fetch(self._crew.folder, a) if isinstance(a, Batch | SpilledBatch) else a for p, a in found.items()}

    def _job(
        self, what: str, work: Mapping[int, PartitionCommand | Call], run: int | None, wanted: tuple[str, ...]
    ) -> Any:
        if not work:
            return {}
        crew, context = self._crew, self._context
        crew.write_down()
        self._write_plans()
        setup = worker.Setup(
            self._nonce,
            str(crew.folder),
            crew.partitions,
            self._words,
            len(crew.dictionary),
            self._memory,
            run,
            crew.replaying,
        )
        requests = [worker.Request(p, crew.with_run(p), what_to_do, wanted) for p, what_to_do in work.items()]
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
            held = self._crew.bytes
            largest = max(partitions, key=lambda p: held[p])
            raise SparkError(
                f"{error}. The largest partition of this job, {largest} of {self._crew.partitions}, held "
                f"{in_bytes(held[largest])} before it: if memory ran out, use partitions={2 * self._crew.partitions} "
                "or more, smaller batches (max_rows_per_epoch), or more spark.executor.memoryOverhead"
            ) from error

    def _write_plans(self) -> None:
        """Let workers find the plans that steps and images speak of."""
        from pyspark import cloudpickle

        for version, plan in self._crew.plans.items():
            if version not in self._written:
                path = self._crew.folder / EXCHANGE / worker.plan_file(version)
                with storage_errors(path, "write"):
                    path.write_bytes(cloudpickle.dumps(plan))  # type: ignore[no-untyped-call]
                self._written.add(version)
