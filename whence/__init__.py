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

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
from whence.runtime.questions.what_if import Difference, WhatIf
from whence.runtime.reading.changes import Change, Changes
from whence.runtime.reading.handles import Handle, Result
from whence.runtime.spark.session.session import session as spark_session

if TYPE_CHECKING:
    from whence.connect.archive import Archive
    from whence.explain.show.answers import Contribution, Critical, Reliability, Resilience
    from whence.explain.show.explanation import Contributing, Explanation
    from whence.explain.show.origins import Origins
    from whence.explain.show.trace import Reached, Trace
    from whence.runtime.durable.checking import CheckedView, Report
    from whence.runtime.durable.copying import Backup
    from whence.runtime.durable.importing import Imported
    from whence.runtime.durable.recovery import Recovery
    from whence.runtime.questions.annotated import Annotation
    from whence.runtime.reading.late_rows import LateRows
    from whence.runtime.spark.frames.sinks import Sink
    from whence.runtime.spark.frames.streams import Running
    from whence.state.check import CheckedFile

__version__ = "0.1.0"
__all__ = [
    "Annotation",
    "Archive",
    "Backup",
    "CatalogError",
    "Change",
    "Changes",
    "CheckedFile",
    "CheckedView",
    "Contributing",
    "Contribution",
    "CorruptionError",
    "Critical",
    "DataError",
    "Database",
    "Difference",
    "EvaluationError",
    "ExpiredError",
    "Explanation",
    "Handle",
    "Imported",
    "Interval",
    "LateRows",
    "LockedError",
    "MissingRowError",
    "NotStratifiable",
    "Origins",
    "OutOfMemoryError",
    "Reached",
    "Recovery",
    "RecursionLimitError",
    "Reliability",
    "ReplayError",
    "Report",
    "Resilience",
    "Result",
    "Running",
    "Sink",
    "SparkError",
    "SqlError",
    "StorageError",
    "Trace",
    "WhatIf",
    "WhenceError",
    "__version__",
    "backup",
    "check",
    "import_database",
    "open",
    "spark_session",
]

# Answers: their modules are loaded when one of them is asked for.
_ANSWERS = {
    "Annotation": "whence.runtime.questions.annotated",
    "Archive": "whence.connect.archive",
    "Backup": "whence.runtime.durable.copying",
    "CheckedFile": "whence.state.check",
    "CheckedView": "whence.runtime.durable.checking",
    "Contributing": "whence.explain.show.explanation",
    "Contribution": "whence.explain.show.answers",
    "Critical": "whence.explain.show.answers",
    "Explanation": "whence.explain.show.explanation",
    "Imported": "whence.runtime.durable.importing",
    "LateRows": "whence.runtime.reading.late_rows",
    "Origins": "whence.explain.show.origins",
    "Reached": "whence.explain.show.trace",
    "Recovery": "whence.runtime.durable.recovery",
    "Reliability": "whence.explain.show.answers",
    "Report": "whence.runtime.durable.checking",
    "Resilience": "whence.explain.show.answers",
    "Running": "whence.runtime.spark.frames.streams",
    "Sink": "whence.runtime.spark.frames.sinks",
    "Trace": "whence.explain.show.trace",
}


def __getattr__(name: str) -> Any:
    if name not in _ANSWERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_ANSWERS[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
