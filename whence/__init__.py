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

from whence.errors import (
    CatalogError,
    DataError,
    EvaluationError,
    MissingRowError,
    NotStratifiable,
    RecursionLimitError,
    SqlError,
    WhenceError,
)
from whence.model.codes import Interval
from whence.runtime.changes import Change, Changes
from whence.runtime.database import Database, open
from whence.runtime.reading import Handle, Result

__version__ = "0.1.0"
__all__ = [
    "CatalogError",
    "Change",
    "Changes",
    "DataError",
    "Database",
    "EvaluationError",
    "Handle",
    "Interval",
    "MissingRowError",
    "NotStratifiable",
    "RecursionLimitError",
    "Result",
    "SqlError",
    "WhenceError",
    "__version__",
    "open",
]
