"""Whence keeps SQL views up to date over insertions and deletions, recursive views included.

>>> import whence
>>> db = whence.open()
>>> _ = db.execute("CREATE TABLE sale (item TEXT, price INT); "
...                "CREATE VIEW total AS SELECT item, SUM(price) AS price FROM sale GROUP BY item")
>>> db.insert("sale", [("tea", 3), ("tea", 4)])
2
>>> db["total"].rows
[('tea', 7)]
"""

from whence.model.codes import Interval
from whence.model.errors import (
    CatalogError,
    CorruptionError,
    DataError,
    EvaluationError,
    ExpiredError,
    LockedError,
    MissingRowError,
    NotStratifiable,
    OutOfMemoryError,
    RecursionLimitError,
    ReplayError,
    SparkError,
    SqlError,
    StorageError,
    WhenceError,
)
from whence.runtime.database import Database, open
from whence.runtime.durable.importing import import_database
from whence.runtime.durable.upkeep import backup, check
from whence.runtime.questions.what_if import WhatIf
from whence.runtime.reading.changes import Change, Changes
from whence.runtime.reading.handles import Handle, Result
from whence.runtime.spark.session.session import session as spark_session

__version__ = "0.1.0"
__all__ = [
    "CatalogError",
    "Change",
    "Changes",
    "CorruptionError",
    "DataError",
    "Database",
    "EvaluationError",
    "ExpiredError",
    "Handle",
    "Interval",
    "LockedError",
    "MissingRowError",
    "NotStratifiable",
    "OutOfMemoryError",
    "RecursionLimitError",
    "ReplayError",
    "Result",
    "SparkError",
    "SqlError",
    "StorageError",
    "WhatIf",
    "WhenceError",
    "__version__",
    "backup",
    "check",
    "import_database",
    "open",
    "spark_session",
]
