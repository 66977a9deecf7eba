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
    QuestionTimeout,
    RecursionLimitError,
    ReplayError,
    SparkError,
    SqlError,
    StorageError,
    WhenceError,
)

if TYPE_CHECKING:
    from whence.connect.archive import Archive
    from whence.explain.show.answers import Answer, Contribution, Critical, Reliability, Resilience
    from whence.explain.show.explanation import Contributing, Explanation
    from whence.explain.show.origins import Origins
    from whence.explain.show.trace import Reached, Trace
    from whence.model.codes import Interval
    from whence.runtime.database import Database, open
    from whence.runtime.durable.checking import CheckedView, Report
    from whence.runtime.durable.copying import Backup
    from whence.runtime.durable.importing import Imported, import_database
    from whence.runtime.durable.recovery import Recovery
    from whence.runtime.durable.upkeep import backup, check
    from whence.runtime.following import FollowedEpoch
    from whence.runtime.questions.annotated import Annotation
    from whence.runtime.questions.what_if import Difference, WhatIf
    from whence.runtime.reading.changes import Change, Changes
    from whence.runtime.reading.handles import Handle, Result
    from whence.runtime.reading.late_rows import LateRows
    from whence.runtime.spark.frames.sinks import Sink
    from whence.runtime.spark.frames.streams import Running
    from whence.runtime.spark.session.session import session as spark_session
    from whence.state.check import CheckedFile

__version__ = "0.1.0"
__all__ = [
    "Annotation",
    "Answer",
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
    "FollowedEpoch",
    "Handle",
    "Imported",
    "Interval",
    "LateRows",
    "LockedError",
    "MissingRowError",
    "NotStratifiable",
    "Origins",
    "OutOfMemoryError",
    "QuestionTimeout",
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

# Loaded on first use: the engine takes a second to import, and `whence --help` does without it.
_MODULES = {
    "Annotation": "whence.runtime.questions.annotated",
    "Answer": "whence.explain.show.answers",
    "Archive": "whence.connect.archive",
    "Backup": "whence.runtime.durable.copying",
    "Change": "whence.runtime.reading.changes",
    "Changes": "whence.runtime.reading.changes",
    "CheckedFile": "whence.state.check",
    "CheckedView": "whence.runtime.durable.checking",
    "Contributing": "whence.explain.show.explanation",
    "Contribution": "whence.explain.show.answers",
    "Critical": "whence.explain.show.answers",
    "Database": "whence.runtime.database",
    "Difference": "whence.runtime.questions.what_if",
    "Explanation": "whence.explain.show.explanation",
    "FollowedEpoch": "whence.runtime.following",
    "Handle": "whence.runtime.reading.handles",
    "Imported": "whence.runtime.durable.importing",
    "Interval": "whence.model.codes",
    "LateRows": "whence.runtime.reading.late_rows",
    "Origins": "whence.explain.show.origins",
    "Reached": "whence.explain.show.trace",
    "Recovery": "whence.runtime.durable.recovery",
    "Reliability": "whence.explain.show.answers",
    "Report": "whence.runtime.durable.checking",
    "Resilience": "whence.explain.show.answers",
    "Result": "whence.runtime.reading.handles",
    "Running": "whence.runtime.spark.frames.streams",
    "Sink": "whence.runtime.spark.frames.sinks",
    "Trace": "whence.explain.show.trace",
    "WhatIf": "whence.runtime.questions.what_if",
    "backup": "whence.runtime.durable.upkeep",
    "check": "whence.runtime.durable.upkeep",
    "import_database": "whence.runtime.durable.importing",
    "open": "whence.runtime.database",
    "spark_session": "whence.runtime.spark.session.session",
}
_NAMES = {"spark_session": "session"}  # in their modules, where they differ


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_MODULES[name]), _NAMES.get(name, name))
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
