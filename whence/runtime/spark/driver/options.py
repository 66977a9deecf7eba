"""How a database is spread over Spark: what users may set."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from whence.model.errors import WhenceError
from whence.sql.position import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("whence")

INLINE_ROWS = 10_000
INLINE_BYTES = 1 << 30
COPIED_ROWS = 1_000_000
HEAVY_ROWS = 10_000
SETTINGS = ("inline_rows", "inline_bytes", "copied_rows", "heavy_rows", "worker_memory", "host", "port", "mail")
SOCKETS, JOBS = "sockets", "jobs"  # how messages between partitions travel: in one job, or from one job to the next


class Options:
    """How a database is spread over Spark; see `whence.open`."""

    def __init__(
        self,
        spark: SparkSession | None = None,
        partitions: int | None = None,
        *,
        inline_rows: int = INLINE_ROWS,
        inline_bytes: int = INLINE_BYTES,
        copied_rows: int = COPIED_ROWS,
        heavy_rows: int = HEAVY_ROWS,
        worker_memory: int | str | None = None,
        host: str | None = None,
        port: int = 0,
        mail: str | None = None,
        **unknown: object,
    ):
        for name in unknown:
            hint = did_you_mean(name, SETTINGS) or f": there are {', '.join(SETTINGS)}"
            raise WhenceError(f"on_spark has no setting {name!r:.80}{hint}")
        if partitions is not None and not 1 <= partitions <= 10_000:
            raise WhenceError(f"partitions is a number from 1 to 10,000, not {partitions}")
        self.spark, self.partitions = spark, partitions
        self.inline_rows, self.inline_bytes = inline_rows, inline_bytes
        self.copied_rows, self.heavy_rows = copied_rows, heavy_rows
        self.worker_memory = None if worker_memory is None else read_bytes(worker_memory)
        self.host, self.port = host, port
        if mail not in (None, SOCKETS, JOBS):
            raise WhenceError(
                f"on_spark: mail is {SOCKETS!r}, where an epoch is one job whose tasks connect to each other, or "
                f"{JOBS!r}, where it is one job a superstep; not {mail!r:.80}"
            )
        self._mail = mail

    def choose(self, kept: int | None) -> int:
        """How many partitions: as said, as the database has, or one a core."""
        if self.partitions is not None:
            return self.partitions
        if kept is not None:
            return kept
        return max(1, self.spark.sparkContext.defaultParallelism) if self.spark is not None else 1

    def choose_mail(self) -> str:
        """How messages travel between partitions: as said, or by sockets where Spark can start tasks together."""
        from whence.runtime.spark.session.session import grows_by_itself

        if self.spark is None or self._mail == JOBS or not grows_by_itself(self.spark.sparkContext):
            return self._mail or SOCKETS
        if self._mail == SOCKETS:
            raise WhenceError(
                "on_spark: mail='sockets' needs all tasks of a job at once, which Spark does not promise with "
                "spark.dynamicAllocation.enabled=true; set that to false, or mail='jobs'"
            )
        log.warning(
            "every superstep is a Spark job of its own, since spark.dynamicAllocation.enabled=true; without it an "
            "epoch is one job"
        )
        return JOBS


def read_bytes(size: int | str) -> int:
    """A number of bytes, as users say it.

    >>> read_bytes("1.5 GB"), read_bytes(1000)
    (1500000000, 1000)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", str(size).lower())
    if match is None or not float(match[1]):
        raise WhenceError(f"a size is a number of bytes, or one such as '512 MB' or '2 GB', not {size!r}")
    return int(float(match[1]) * 1000 ** " kmgt".index(match[2] or " "))
