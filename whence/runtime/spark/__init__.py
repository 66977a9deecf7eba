"""Whence on Spark: every partition of a database runs the same operators, in Python workers or inline in the driver.

| module    | what it is for |
|-----------|-----------------|
| `driver`  | the driver's side: plans, epochs, images |
| `worker`  | the worker's side: partitions between jobs |
| `frames`  | DataFrames in and out |
| `session` | sessions and their Java |
| `daemon`  | starts workers with Whence loaded |
"""

import warnings

from whence.runtime.spark.session.session import advise, session

# PySpark looks for pandas before mapInArrow, and warns of pandas 3; what Whence does on Spark goes by Arrow alone.
warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)

__all__ = ["advise", "session"]
