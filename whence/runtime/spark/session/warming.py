"""Warm-up: do what the first jobs of a session would wait for while the user is still declaring tables.

A session's first job starts Python daemons (one for RDDs, one for DataFrames), loads Whence into workers and lets the
JVM compile its way; together this takes ten seconds or more on a small machine. It is done once a session, beside
whatever else goes on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("whence")
_warmed: set[str] = set()  # the applications


def warm_up(spark: SparkSession) -> threading.Thread | None:
    """Start to warm up a session, once; return the thread."""
    application = spark.sparkContext.applicationId
    if application in _warmed:
        return None
    _warmed.add(application)
    thread = threading.Thread(target=_warm, args=(spark,), name="whence warming", daemon=True)
    thread.start()
    return thread


def _warm(spark: SparkSession) -> None:
    try:
        slots = max(1, spark.sparkContext.defaultParallelism)
        spark.sparkContext.parallelize(range(slots), slots).mapPartitions(_ready).count()
        spark.range(slots).repartition(slots).mapInArrow(_pass, "id bigint").collect()
    except Exception as error:  # the next job meets it, and reports it better
        log.debug("warming up: %s", error)


def _load() -> None:
    """Load the kernels."""
    from whence.runtime.warm import load  # not above: `python -m` of it would find it loaded already

    load()


def _ready(items: Iterable[int]) -> Iterable[int]:
    _load()
    yield from items


def _pass(batches: Iterator[Any]) -> Iterator[Any]:
    _load()
    yield from batches
