"""Whence on Spark: every partition of a database runs the same operators, in Python workers or inline in the driver.

| module     | what it is for |
|------------|----------------|
| session    | sessions set up well, and advice for others |
| java       | finding a Java, or bringing one |
| daemon     | what Python workers are forked from, warm |
| words      | the driver's dictionary, asked by workers |
| errors     | errors of Spark and Java as ours |
"""

import warnings

from whence.runtime.spark.session import advise, session

# PySpark looks for pandas before mapInArrow, and warns of pandas 3; what Whence does on Spark goes by Arrow alone.
warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)

__all__ = ["advise", "session"]
