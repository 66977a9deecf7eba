"""Spark without Spark: jobs whose tasks run in this process, on workers that die, lag behind, and do things twice.

Tasks that exchange messages run in threads, by the sockets that they have on Spark. One that dies in the middle takes
its partitions with it, and all others end.
"""

from __future__ import annotations

import pickle
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from pyspark.errors import PySparkException

from whence.runtime.spark.session import warming
from whence.runtime.spark.worker import worker

Task = Callable[[Iterable[bytes]], Iterable[bytes]]
FATES = ("well", "dies before", "dies after", "fails half way", "twice", "twice here")
TOGETHER = ("well", "dies before", "dies after", "fails half way")
warming._warmed.add("pool")  # there is nothing to warm up


class Died(BaseException):
    """A worker is gone."""


class Pool:
    """What `Jobs` asks of a SparkContext. A worker is a roster; which of them gets a task is left to chance."""

    defaultParallelism = 2  # noqa: N815  # Spark's names
    applicationId = "pool"  # noqa: N815
    master = "local[2,50]"

    def __init__(self, seed: object, workers: int = 3, fates: tuple[str, ...] = FATES, slots: int = 2):
        self._slots, self._together = min(slots, workers), False
        self.rng, self.fates = random.Random(f"{seed}"), fates
        self.rosters: list[worker.PartitionCache | None] = [None] * workers
        self.seen: Counter[str] = Counter()
        self._groups: Any = []
        self._task: Task = lambda items: items

    @property
    def sparkContext(self) -> Pool:  # noqa: N802  # Spark's name
        return self

    @property
    def _jsc(self) -> Pool:
        return self

    def sc(self) -> Pool:
        return self

    def resourceProfileManager(self) -> Pool:  # noqa: N802
        return self

    def defaultResourceProfile(self) -> None: ...  # noqa: N802

    def maxNumConcurrentTasks(self, profile: None) -> int:  # noqa: N802
        return self._slots

    def getConf(self) -> dict[str, str]:  # noqa: N802
        return {}

    def setJobDescription(self, text: str) -> None: ...  # noqa: N802

    def setLocalProperty(self, name: str, value: Any) -> None: ...  # noqa: N802

    def parallelize(self, groups: Any, slots: int) -> Pool:
        self._groups, self._together = groups, False
        return self

    def barrier(self) -> Pool:
        self._together = True
        return self

    def mapPartitions(self, task: Task) -> Pool:  # noqa: N802
        self._task = pickle.loads(pickle.dumps(task))
        return self

    def collect(self) -> list[bytes]:
        if self._together:
            return self._carried_out_together()
        return [answer for group in self._groups for answer in self._carried_out(group)]

    def _carried_out(self, group: bytes) -> list[bytes]:
        fate = self.rng.choice(self.fates)
        self.seen[fate] += 1
        one, other = self.rng.randrange(len(self.rosters)), self.rng.randrange(len(self.rosters))
        if fate == "well":
            return self.on(one, group)
        if fate == "dies before":
            self.rosters[one] = None
        elif fate == "dies after":
            self.on(one, group)
            self.rosters[one] = None
        elif fate == "fails half way":
            requests = pickle.loads(group)
            self.on(one, pickle.dumps(requests[: self.rng.randint(0, len(requests))]))
        else:
            first, second = self.on(one, group), self.on(one if fate == "twice here" else other, group)
            return self.rng.choice((first, second))
        return self.on(other, group)

    def _carried_out_together(self) -> list[bytes]:
        fates = [self.rng.choice([fate for fate in TOGETHER if fate in self.fates]) for _ in self._groups]
        numbers = self.rng.sample(range(len(self.rosters)), len(self._groups))
        found: dict[int, list[bytes]] = {}
        here = threading.local()

        def carry_out(task: int, steps: int) -> None:
            number, fate = numbers[task], fates[task]
            here.roster = None if fate == "dies before" else self.rosters[number]
            here.left = steps if fate == "fails half way" else None
            try:
                found[task] = list(self._task([task]))  # type: ignore[list-item]
            except Died:
                here.roster = None
            if fate == "dies after":
                here.roster = None
                found.pop(task, None)
            self.rosters[number] = here.roster

        def cache_of(setup: worker.Setup) -> worker.PartitionCache:
            if here.roster is None or here.roster.nonce != setup.nonce:
                here.roster = worker.PartitionCache(setup)
            return here.roster  # type: ignore[no-any-return]

        attempt = worker.PartitionCache.attempt

        def dying(cache: worker.PartitionCache, setup: worker.Setup, request: worker.Request) -> Any:
            if here.left is not None:
                here.left -= 1
                if here.left < 0:
                    raise Died
            return attempt(cache, setup, request)

        usual = worker.cache_of
        worker.cache_of, worker.PartitionCache.attempt = cache_of, dying  # type: ignore[method-assign]
        try:
            threads = [threading.Thread(target=carry_out, args=(t, self.rng.randrange(6))) for t in self._groups]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            worker.cache_of, worker.PartitionCache.attempt = usual, attempt  # type: ignore[method-assign]
        self.seen.update(fates)
        if len(found) < len(self._groups) and {"dies after", "fails half way"} & {*fates}:
            raise PySparkException(
                "Could not recover from a failed barrier ResultStage. Python worker exited unexpectedly"
            )
        return [answer for answers in found.values() for answer in answers]

    def on(self, number: int, group: bytes) -> list[bytes]:
        """Let a worker do it."""
        worker._roster = self.rosters[number]
        try:
            return list(self._task([group]))
        finally:
            self.rosters[number], worker._roster = worker._roster, None
