"""Spark without Spark: jobs whose tasks run in this process, on workers that die, lag behind, and do things twice."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from whence.runtime.spark.session import warming
from whence.runtime.spark.worker import worker

Task = Callable[[Iterable[bytes]], Iterable[bytes]]
FATES = ("well", "dies before", "dies after", "fails half way", "twice", "twice here")
warming._warmed.add("pool")  # there is nothing to warm up


class Pool:
    """What `Jobs` asks of a SparkContext. A worker is a roster; which of them gets a task is left to chance."""

    defaultParallelism = 2  # noqa: N815  # Spark's names
    applicationId = "pool"  # noqa: N815

    def __init__(self, seed: object, workers: int = 3, fates: tuple[str, ...] = FATES):
        self.rng, self.fates = random.Random(f"{seed}"), fates
        self.rosters: list[worker.PartitionCache | None] = [None] * workers
        self.seen: Counter[str] = Counter()
        self._groups: list[bytes] = []
        self._task: Task = lambda items: items

    @property
    def sparkContext(self) -> Pool:  # noqa: N802  # Spark's name
        return self

    def setJobDescription(self, text: str) -> None: ...  # noqa: N802

    def setLocalProperty(self, name: str, value: Any) -> None: ...  # noqa: N802

    def parallelize(self, groups: list[bytes], slots: int) -> Pool:
        self._groups = groups
        return self

    def mapPartitions(self, task: Task) -> Pool:  # noqa: N802
        self._task = pickle.loads(pickle.dumps(task))
        return self

    def collect(self) -> list[bytes]:
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

    def on(self, number: int, group: bytes) -> list[bytes]:
        """Let a worker do it."""
        worker._roster = self.rosters[number]
        try:
            return list(self._task([group]))
        finally:
            self.rosters[number], worker._roster = worker._roster, None
