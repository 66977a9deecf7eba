"""The errors that users see. Each says what was wrong, where, and what to do; nothing has changed when one is
raised."""

from __future__ import annotations


class WhenceError(Exception):
    """Any error that Whence raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        return _again, (type(self), self.args, dict(self.__dict__))


def _again(kind: type[WhenceError], args: tuple[object, ...], state: dict[str, object]) -> WhenceError:
    """Rebuild an error that comes from another process, whatever its constructor takes."""
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


class SqlError(WhenceError):
    """SQL that cannot be read, bound or planned: shows line, column and the offending text."""

    def __init__(self, message: str, *, line: int | None = None, column: int | None = None, text: str | None = None):
        self.message, self.line, self.column, self.text = message, line, column, text
        place = f"line {line}, column {column}: " if line is not None else ""
        near = f" (near {text!r})" if text else ""
        super().__init__(f"{place}{message}{near}")


class NotStratifiable(SqlError):  # noqa: N818  # the field's own word
    """A view depends on itself through negation or a non-monotone aggregate; the message names the cycle."""


class CatalogError(WhenceError):
    """A table or view that is missing, exists already, or still has dependents."""


class DataError(WhenceError):
    """A row that does not fit its table: wrong arity, type or range; the message names table, row and column."""


class MissingRowError(DataError):
    """Under `early="error"` or `strict=True`, a row to delete that is not there."""


class EvaluationError(WhenceError):
    """An expression failed on a row (overflow, bad cast, a user function that raised); the batch is undone."""


class RecursionLimitError(WhenceError):
    """A recursive view did not end within its limit; names the view and an input row that brings it about."""


class StorageError(WhenceError):
    """A file system error (disk full, read-only, a file vanished). What was acknowledged before stays committed."""


class CorruptionError(StorageError):
    """A damaged file of a database; the message names it and the offset."""

    def __init__(self, path: object, offset: int, what: str):
        super().__init__(f"{path}, offset {offset}: {what}")
        self.path, self.offset = path, offset


class LockedError(StorageError):
    """Another process has the database open for writing."""


class OutOfMemoryError(MemoryError, WhenceError):
    """An epoch that needs more memory than there is; it is undone. Names the partition, its size and the remedy."""


class SparkError(WhenceError):
    """A failure of Spark or its Java, or their absence; the message has the cause, and `__cause__` Spark's own
    error."""


class ReplayError(WhenceError):
    """A replay did not give what a view has published: a Python function it calls is not deterministic. The message
    names the view, the result and the way out."""


class ExpiredError(WhenceError):
    """A question about rows of a stream that it no longer keeps."""
