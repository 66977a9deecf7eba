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
    AuthenticationError,
    CatalogError,
    CorruptionError,
    DataError,
    DisconnectedError,
    EvaluationError,
    ExpiredError,
    FetchError,
    ForbiddenError,
    LimitError,
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
    from whence.adapt import optimizer as optimizer
    from whence.client.blocking import Client, connect
    from whence.client.client import AsyncClient, connect_async
    from whence.client.messages import RemoteMessages
    from whence.client.subscriptions import Subscription
    from whence.engine.streams.stream import Missed
    from whence.explain.show.answers import Answer, Contribution, Critical, Reliability, Resilience
    from whence.explain.show.explanation import Contributing, Explanation
    from whence.explain.show.origins import Origins
    from whence.explain.show.trace import Reached, Trace
    from whence.io.archive import Archive
    from whence.io.results import Result
    from whence.model.codes import Interval
    from whence.runtime.database import Database, open
    from whence.runtime.durable.checking import CheckedView, Report
    from whence.runtime.durable.copying import Backup
    from whence.runtime.durable.importing import Imported, import_database
    from whence.runtime.durable.recovery import Recovery
    from whence.runtime.durable.upkeep import backup, check
    from whence.runtime.following import FollowedEpoch
    from whence.runtime.lookups.services import HttpService, PostgresTable
    from whence.runtime.questions.annotated import Annotation
    from whence.runtime.questions.what_if import Difference, WhatIf
    from whence.runtime.reading.changes import Change, Changes
    from whence.runtime.reading.handles import Handle
    from whence.runtime.reading.late_rows import LateRows
    from whence.runtime.reading.notifications import Notification, Notifications
    from whence.runtime.reading.template_messages import Messages
    from whence.runtime.spark.frames.sinks import Sink
    from whence.runtime.spark.frames.streams import Running
    from whence.runtime.spark.session.session import session as spark_session
    from whence.runtime.subscriptions.local import LocalSubscription
    from whence.runtime.subscriptions.templates import StoredSubscription, TemplateSubscription
    from whence.server.app import Server, serve
    from whence.state.check import CheckedFile
    from whence.subscribe.known_rows import KnownRow
    from whence.subscribe.part_updates import PartUpdate
    from whence.subscribe.positions import Position
    from whence.subscribe.rectangles import ContourMessage, RectangleMessage, RowMessage
    from whence.subscribe.updates import Update

__version__ = "0.1.0"
__all__ = [
    "Annotation",
    "Answer",
    "Archive",
    "AsyncClient",
    "AuthenticationError",
    "Backup",
    "CatalogError",
    "Change",
    "Changes",
    "CheckedFile",
    "CheckedView",
    "Client",
    "ContourMessage",
    "Contributing",
    "Contribution",
    "CorruptionError",
    "Critical",
    "DataError",
    "Database",
    "Difference",
    "DisconnectedError",
    "EvaluationError",
    "ExpiredError",
    "Explanation",
    "FetchError",
    "FollowedEpoch",
    "ForbiddenError",
    "Handle",
    "HttpService",
    "Imported",
    "Interval",
    "KnownRow",
    "LateRows",
    "LimitError",
    "LocalSubscription",
    "LockedError",
    "Messages",
    "Missed",
    "MissingRowError",
    "NotStratifiable",
    "Notification",
    "Notifications",
    "Origins",
    "OutOfMemoryError",
    "PartUpdate",
    "Position",
    "PostgresTable",
    "QuestionTimeout",
    "Reached",
    "Recovery",
    "RectangleMessage",
    "RecursionLimitError",
    "Reliability",
    "RemoteMessages",
    "ReplayError",
    "Report",
    "Resilience",
    "Result",
    "RowMessage",
    "Running",
    "Server",
    "Sink",
    "SparkError",
    "SqlError",
    "StorageError",
    "StoredSubscription",
    "Subscription",
    "TemplateSubscription",
    "Trace",
    "Update",
    "WhatIf",
    "WhenceError",
    "__version__",
    "backup",
    "check",
    "connect",
    "connect_async",
    "import_database",
    "open",
    "optimizer",
    "serve",
    "spark_session",
]

# Loaded on first use: the engine takes a second to import, and `whence --help` does without it.
_MODULES = {
    "Annotation": "whence.runtime.questions.annotated",
    "Answer": "whence.explain.show.answers",
    "Archive": "whence.io.archive",
    "AsyncClient": "whence.client.client",
    "Backup": "whence.runtime.durable.copying",
    "Change": "whence.runtime.reading.changes",
    "Changes": "whence.runtime.reading.changes",
    "CheckedFile": "whence.state.check",
    "CheckedView": "whence.runtime.durable.checking",
    "Client": "whence.client.blocking",
    "ContourMessage": "whence.subscribe.rectangles",
    "Contributing": "whence.explain.show.explanation",
    "Contribution": "whence.explain.show.answers",
    "Critical": "whence.explain.show.answers",
    "Database": "whence.runtime.database",
    "Difference": "whence.runtime.questions.what_if",
    "Explanation": "whence.explain.show.explanation",
    "FollowedEpoch": "whence.runtime.following",
    "Handle": "whence.runtime.reading.handles",
    "HttpService": "whence.runtime.lookups.services",
    "Imported": "whence.runtime.durable.importing",
    "Interval": "whence.model.codes",
    "KnownRow": "whence.subscribe.known_rows",
    "LateRows": "whence.runtime.reading.late_rows",
    "Missed": "whence.engine.streams.stream",
    "LocalSubscription": "whence.runtime.subscriptions.local",
    "Messages": "whence.runtime.reading.template_messages",
    "Notification": "whence.runtime.reading.notifications",
    "Notifications": "whence.runtime.reading.notifications",
    "Origins": "whence.explain.show.origins",
    "PartUpdate": "whence.subscribe.part_updates",
    "Position": "whence.subscribe.positions",
    "Reached": "whence.explain.show.trace",
    "PostgresTable": "whence.runtime.lookups.services",
    "Recovery": "whence.runtime.durable.recovery",
    "RectangleMessage": "whence.subscribe.rectangles",
    "Reliability": "whence.explain.show.answers",
    "RemoteMessages": "whence.client.messages",
    "Report": "whence.runtime.durable.checking",
    "Resilience": "whence.explain.show.answers",
    "Result": "whence.io.results",
    "RowMessage": "whence.subscribe.rectangles",
    "Running": "whence.runtime.spark.frames.streams",
    "Server": "whence.server.app",
    "Sink": "whence.runtime.spark.frames.sinks",
    "StoredSubscription": "whence.runtime.subscriptions.templates",
    "Subscription": "whence.client.subscriptions",
    "TemplateSubscription": "whence.runtime.subscriptions.templates",
    "Trace": "whence.explain.show.trace",
    "Update": "whence.subscribe.updates",
    "WhatIf": "whence.runtime.questions.what_if",
    "backup": "whence.runtime.durable.upkeep",
    "check": "whence.runtime.durable.upkeep",
    "connect": "whence.client.blocking",
    "connect_async": "whence.client.client",
    "import_database": "whence.runtime.durable.importing",
    "open": "whence.runtime.database",
    "optimizer": "whence.adapt.optimizer",
    "serve": "whence.server.app",
    "spark_session": "whence.runtime.spark.session.session",
}
_NAMES = {"spark_session": "session"}  # in their modules, where they differ


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_MODULES[name])
    found = globals()[name] = module if name == "optimizer" else getattr(module, _NAMES.get(name, name))
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
