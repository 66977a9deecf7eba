"""Errors as a client gets them: a status, the name of the error's class, a message and details.

The law: nothing but what an error of ours says on purpose leaves the server. Anything else, and whatever names files of
this machine, is logged with an id, and the client is given that id only.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass, field
from typing import Any

from whence.model.errors import (
    AuthenticationError,
    CatalogError,
    EvaluationError,
    ExpiredError,
    FetchError,
    ForbiddenError,
    LimitError,
    MissingRowError,
    OutOfMemoryError,
    QuestionTimeout,
    RecursionLimitError,
    ReplayError,
    SparkError,
    StorageError,
    WhenceError,
)

log = logging.getLogger("whence.server")
_DETAILS = ("url", "line", "column", "text", "seconds", "reached", "done", "total")
_ENDED = ("this database is closed", "the server is stopping: it takes no more writes")
_LONGEST = 2_000  # characters of a message


class RequestError(WhenceError):
    """A request that cannot be read, or that asks for what is not there. `status` is that of HTTP."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class UnknownHistoryError(WhenceError):
    """A position of another history, or one that this history has not reached. Read again without it."""


class CancelledCallError(WhenceError):
    """A call whose caller wants no answer any more."""


@dataclass(frozen=True)
class Failure:
    """What a client is told of an error."""

    status: int
    code: str
    message: str
    details: dict[str, Any] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {"error": {"code": self.code, "message": self.message, "details": self.details}}


# The first class that an error is of counts.
_STATUS: tuple[tuple[type[BaseException], int], ...] = (
    (AuthenticationError, 401),
    (ForbiddenError, 403),
    (UnknownHistoryError, 409),
    (CancelledCallError, 499),
    (QuestionTimeout, 504),
    (LimitError, 429),
    (MissingRowError, 409),
    (ExpiredError, 410),
    (ReplayError, 409),
    (OutOfMemoryError, 503),
    (StorageError, 503),
    (SparkError, 503),
    (FetchError, 503),
    (CatalogError, 409),
    (WhenceError, 400),
)
_HIDDEN = (StorageError, SparkError)  # their messages name files and hosts of the server
_OF_ROWS = (EvaluationError, FetchError, RecursionLimitError, OutOfMemoryError, ReplayError)  # their messages show rows


def status_of(error: WhenceError) -> int:
    """Return the HTTP status that fits an error.

    >>> status_of(CatalogError('there is no table or view "a"')), status_of(CatalogError('"a" exists already'))
    (404, 409)
    """
    own = getattr(error, "status", None)
    if isinstance(own, int):
        return own
    if isinstance(error, CatalogError) and str(error).startswith("there is no "):
        return 404
    if str(error) in _ENDED:
        return 503
    if isinstance(error, LimitError) and "later" not in str(error):
        return 413  # it would be too much at any time
    return next(status for kind, status in _STATUS if isinstance(error, kind))


def describe_failure(error: BaseException, *, sees_all: bool = True) -> Failure:
    """Say what a client is told of an error. A caller who may not read everything is not shown rows in it.

    >>> from whence.model.errors import SqlError
    >>> failure = describe_failure(SqlError("unknown column", line=1, column=8))
    >>> failure.status, failure.code, failure.details
    (400, 'SqlError', {'line': 1, 'column': 8})
    >>> describe_failure(EvaluationError("cannot be read: 'secret'"), sees_all=False).message
    'a view cannot be computed over these rows'
    """
    if not isinstance(error, WhenceError):
        return _logged(500, "InternalError", error, "an internal error")
    status, code = status_of(error), type(error).__name__
    if isinstance(error, _HIDDEN):
        return _logged(status, code, error, "the server cannot store or compute this at the moment")
    if isinstance(error, _OF_ROWS) and not sees_all:
        return Failure(status, code, "a view cannot be computed over these rows")
    details = {name: value for name in _DETAILS if isinstance(value := getattr(error, name, None), (int, float, str))}
    return Failure(status, code, f"{error!s:.{_LONGEST}}", details)


def _logged(status: int, code: str, error: BaseException, what: str) -> Failure:
    """Log an error under an id, and tell the client of that."""
    number = secrets.token_hex(4)
    log.error("error %s: %s", number, what, exc_info=error)
    return Failure(status, code, f"{what} (error {number} in the server's log)", {"id": number})
