"""Errors of Spark and its Java, turned into ours.

The law: what was raised as a WhenceError in a Python worker, or in a callback that Java made, comes out in the driver
as the same class with the same message. Anything else becomes a SparkError with its cause in a line or two. Spark's
own error, stack and all, is kept as `__cause__`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from whence.model.errors import CorruptionError, SparkError, SqlError, WhenceError

FOREIGN = (PySparkException, Py4JError, ConnectionError)
WORKER_DIED = "a Python worker has died"
_LOST_EXCHANGE = "failed barrier"  # what Spark says when a task is lost of a stage whose tasks need each other
_LONGEST = 600  # characters of a cause
_STACK = r"\n\s*at [\w.$/@<>]+\(|\n+(?:Driver|JVM) stacktrace|\n\s*SQLSTATE: \w{5}\b"  # where Java's part begins
_RAISED = re.compile(
    rf"^(?:(?P<module>[A-Za-z_][\w.]*)\.)?(?P<name>[A-Za-z_]\w*)(?:: (?P<message>.*?))?(?={_STACK}|\n*\Z)",
    re.MULTILINE | re.DOTALL,
)
_TRACEBACK = "Traceback (most recent call last):"
_NO_MODULE = re.compile(r"No module named '?(?P<module>whence[\w.]*|numba|numpy|pyarrow|pyspark[\w.]*)")


@contextmanager
def jvm_errors(what: str = "") -> Iterator[None]:
    """Raise as ours whatever Spark raises inside; `what` says what was being done.

    >>> with jvm_errors("reading"):
    ...     raise ConnectionRefusedError(111, "Connection refused")
    Traceback (most recent call last):
    whence.model.errors.SparkError: reading: Spark's Java process has ended or cannot be reached; start a new session
    """
    try:
        yield
    except FOREIGN as error:
        raise translate_error(error, what) from error


def translate_error(error: BaseException, what: str = "") -> WhenceError:
    """Return our error for one of Spark's."""
    if isinstance(error, WhenceError):
        return error
    text = _text(error)
    ours = raised_in_python(text)
    if ours is not None:
        return ours
    return SparkError(f"{what}: {_cause(error, text)}" if what else _cause(error, text))


def is_lost_exchange(error: WhenceError) -> bool:
    """Tell whether a job failed because one of its tasks was lost while they exchanged messages, with its process; what
    Python raised would be raised again."""
    cause: BaseException | None = error
    while isinstance(cause, WhenceError):
        cause = cause.__cause__
    text = _text(cause) if cause is not None else ""
    return _LOST_EXCHANGE in text and _last_raised(text) is None


def with_place(error: WhenceError, place: str) -> WhenceError:
    """Return the error with where it happened in front of what it says.

    >>> with_place(SparkError("no reply"), "stream link, batch 3")
    SparkError('stream link, batch 3: no reply')
    """
    said = str(error)
    return error if said.startswith(place.partition(",")[0]) else _make_error(type(error), f"{place}: {said}")


def raised_in_python(text: str) -> WhenceError | None:
    """Return the WhenceError that a Python traceback within `text` ends with.

    >>> raised_in_python("Traceback (most recent call last):\\nwhence.model.errors.DataError: no row\\n\\tat x.Y(Z)")
    DataError('no row')
    """
    found = _last_raised(text)
    if found is None:
        return None
    module, name, message = found
    cls = getattr(sys.modules.get(module), name, None) if module.split(".")[0] == "whence" else None
    return _make_error(cls, message) if isinstance(cls, type) and issubclass(cls, WhenceError) else None


def _last_raised(text: str) -> tuple[str, str, str] | None:
    """Return module, class and message of the error that the last traceback in `text` is about."""
    start = text.rfind(_TRACEBACK)
    if start < 0:
        return None
    match = _RAISED.search(text, start + len(_TRACEBACK))
    return (match["module"] or "builtins", match["name"], (match["message"] or "").strip()) if match else None


def _make_error(cls: type[WhenceError], message: str) -> WhenceError:
    """Make an error of the class with the message, whatever its constructor takes."""
    error = cls.__new__(cls, message)
    Exception.__init__(error, message)
    if isinstance(error, SqlError):
        error.message, error.line, error.column, error.text = message, None, None, None
    elif isinstance(error, CorruptionError):
        place = re.match(r"(.*), offset (\d+): ", message)
        error.path, error.offset = (place[1], int(place[2])) if place else ("", 0)
    return error


def _text(error: BaseException) -> str:
    """Return everything that is known of an error, with its causes in Java."""
    try:
        return "\n".join((str(error), *_java_causes(error)))
    except Exception:  # asking Java failed: it may have died
        return f"{type(error).__name__}: {error.args[0] if error.args else ''}"


def _java_causes(error: BaseException) -> list[str]:
    """Return the messages of an error of Java and its causes, the root last."""
    java: Any = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    said: list[str] = []
    while java is not None and len(said) < 20:
        said.append(str(java.toString()))
        java = java.getCause()
    return said


def _cause(error: BaseException, text: str) -> str:
    missing = _NO_MODULE.search(text)
    if missing:
        return (
            f"a Python worker has no module {missing['module']}: install whence[spark] for the Python of the executors "
            "(PYSPARK_PYTHON), the same version as here"
        )
    if ("standard output" in text and "daemon" in text) or "reading the port number from" in text:
        return f"Python workers cannot be started: {_first_lines(text)}"
    if "Python worker exited unexpectedly" in text:
        return f"{WORKER_DIED} (killed, or out of memory?), and so did those that took its task again"
    if "JAVA_GATEWAY_EXITED" in text:
        return "Java ended before Spark was up; what it printed above says why"
    if _has_ended(error):
        return "Spark's Java process has ended or cannot be reached; start a new session"
    raised = _last_raised(text)
    if raised is not None:
        _, name, message = raised
        return _short(f"a Python worker failed: {name}: {message}" if message else f"a Python worker failed: {name}")
    try:
        causes = _java_causes(error)
    except Exception:
        causes = []
    return _first_lines(causes[-1] if causes else text)


def _has_ended(error: BaseException) -> bool:
    if isinstance(error, (Py4JNetworkError, ConnectionError)):
        return True  # else Py4J has got half an answer, with neither an error of Java nor of its own to show
    return isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError) and "Trace:" not in str(error)


def _first_lines(text: str) -> str:
    """Return the first informative lines of a message, without class names and stacks."""
    text = re.split(rf"{_STACK}|\s+SQLSTATE: \w{{5}}\b|\n== SQL", text, maxsplit=1)[0]
    text = re.sub(r"^[\w.]+Exception:\s+(?=\[)", "", text)
    text = re.sub(r"\b(?:[a-z]\w*\.){2,}([A-Z]\w*)", r"\1", text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _short(" ".join(lines[:2])) if lines else "Spark failed and did not say why"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
