"""Whence on Spark: every partition of a database runs the same operators, in Python workers or inline in the driver.

| module | what it is for |
|---|---|
| sharded, options | the runtime: a durable database whose state is in partitions |
| catalog, shards | its catalog, and tables and views as the driver sees them |
| steps, partition | what happens to a partition, and who does it |
| crew | all partitions, stage by stage: inline |
| jobs, worker | the same as Spark jobs, and in Python workers |
| snapshots | images of all partitions |
| numbers, retrieving | how far streams have come, and questions about them |
| streams, splitting, routing, columns, debezium | rows that come in |
| frames, sinks | DataFrames, and changes that go out |
| session, java, daemon, warming | sessions set up well, a Java, Python workers that start warm |
| words | the driver's dictionary, asked by workers |
| errors | errors of Spark and Java as ours |
"""

import warnings

from whence.runtime.spark.session.session import advise, session

# PySpark looks for pandas before mapInArrow, and warns of pandas 3; what Whence does on Spark goes by Arrow alone.
warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)

__all__ = ["advise", "session"]
