"""Errors of a server as a client raises them: the class that the server's error has, with its details.

| what happened                                  | what is raised |
|------------------------------------------------|-----------------|
| an error of the database, of rights or limits  | the same class (`whence.model.errors`), or WhenceError |
| the token is refused (4401, HTTP 401)          | AuthenticationError |
| the handshake is refused (HTTP 403)            | ForbiddenError |
| nothing of ours is at that address             | WhenceError |
| a message that is too large (1009)             | LimitError |

These are final: they are raised, and the connection is not made again for them.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from websockets.exceptions import InvalidStatus, InvalidURI

from whence.model import errors
from whence.model.errors import (
    AuthenticationError,
    ForbiddenError,
    LimitError,
    QuestionTimeout,
    SqlError,
    WhenceError,
)
from whence.subscribe.messages import ErrorMessage

UNAUTHENTICATED, TOO_LARGE = 4401, 1009
FAULTS = (1002, 1003, 1007, 1008, TOO_LARGE)
"""Codes by which a server closes a connection for what the client sent: sending it again would not help."""

_CLASSES = {
    name: found
    for name, found in vars(errors).items()
    if isinstance(found, type) and issubclass(found, WhenceError) and not name.startswith("_")
}
_CLASSES["UnknownHistoryError"] = errors.DataError  # as a local database says it
_ATTRIBUTES: dict[type[WhenceError], tuple[str, ...]] = {
    SqlError: ("message", "line", "column", "text"),
    errors.CorruptionError: ("path", "offset"),
    errors.FetchError: ("lookup", "key"),
    QuestionTimeout: ("seconds", "reached", "done", "total"),
}


def restore_error(code: str, message: str, details: Mapping[str, Any] | None = None) -> WhenceError:
    """Return the error that a server told of: of the class `code` if there is one, with its details as attributes.

    >>> error = restore_error("SqlError", "line 1, column 8: unknown column", {"line": 1, "column": 8})
    >>> type(error).__name__, str(error), error.line, error.text
    ('SqlError', 'line 1, column 8: unknown column', 1, None)
    >>> restore_error("StrangeError", "it is strange")
    WhenceError('it is strange')
    """
    kind = _CLASSES.get(code, WhenceError)
    error = kind.__new__(kind)  # whatever its constructor takes: the message is there already
    error.args = (message,)
    for above, names in _ATTRIBUTES.items():
        if issubclass(kind, above):
            error.__dict__.update(dict.fromkeys(names))
            if "message" in names:
                error.__dict__["message"] = message
    error.__dict__.update({str(name): value for name, value in (details or {}).items()})
    return error


def error_of(message: ErrorMessage) -> WhenceError:
    """Return the error that a message tells of."""
    return restore_error(message.code, message.message, message.details)


def final_handshake_error(error: BaseException, url: str) -> WhenceError | None:
    """Return what to raise if a connection that could not be made never will be; None if it is worth trying again."""
    if isinstance(error, InvalidStatus):
        status = error.response.status_code
        said = bytes(error.response.body or b"").decode(errors="replace").strip()[:300]
        if status == 401:
            return AuthenticationError(said or "the server did not accept the token")
        if status == 403:
            return ForbiddenError(f"{url}: {said or 'the server refused the connection'}")
        if 400 <= status < 500 and status not in (408, 425, 429):
            return WhenceError(f"{url} is not a served database: HTTP {status}{f', {said}' if said else ''}")
        return None
    if isinstance(error, ssl.SSLCertVerificationError):
        return WhenceError(
            f"{url}: its certificate cannot be verified: {error.verify_message}; give ca=, the file of its authority"
        )
    if isinstance(error, (InvalidURI, ssl.SSLError)):
        return WhenceError(f"{url}: {error!s:.300}")
    return None


def closing_error(code: int | None, reason: str, url: str) -> WhenceError | None:
    """Return what to raise if a server closed a connection for good, or for what was sent; None if it was lost.

    >>> closing_error(4401, "", "ws://x"), closing_error(1001, "the server stops", "ws://x")
    (AuthenticationError('the server did not accept the token'), None)
    """
    if code == UNAUTHENTICATED:
        return AuthenticationError(reason or "the server did not accept the token")
    if code == TOO_LARGE:
        return LimitError(f"{url}: a message was too large for the server{f': {reason}' if reason else ''}")
    if code in FAULTS:
        return WhenceError(f"{url} closed the connection ({code}): {reason or 'it did not accept a message'}")
    return None
