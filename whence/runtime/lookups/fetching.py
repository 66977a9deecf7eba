"""Calls of the function that fetches the rows of a lookup, each within its time.

Law: a call that fails, takes too long or gives what is no row is a `FetchError` that names lookup and key, and nothing
has changed. A call that takes too long cannot be ended: its thread goes on, and what it returns is forgotten.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whence.model.codes import format_value
from whence.model.errors import FetchError, WhenceError
from whence.model.types import Schema


@dataclass(frozen=True)
class Fetcher:
    """What fetches the rows of a lookup: `call` takes a key, or with `many` a list of keys and gives a mapping.

    timeout   seconds that a call may take
    parallel  calls at a time
    """

    call: Callable[..., Any]
    many: bool = False
    timeout: float | None = None
    parallel: int = 1

    def __post_init__(self) -> None:
        if not callable(self.call):
            raise WhenceError(f"fetch is a function from a key to its value, not {format_value(self.call)}")
        if self.timeout is not None and not self.timeout > 0:
            raise WhenceError(f"timeout is a number of seconds above zero, not {self.timeout!r}")
        if self.parallel < 1:
            raise WhenceError(f"parallel is how many calls are made at a time, not {self.parallel!r}")

    def fetch(self, lookup: str, keys: Sequence[Any], columns: Schema) -> list[tuple[Any, ...]]:
        """Return the values of keys in some columns; where there is no row outside they are None."""
        if self.many:
            (found,) = self._outcomes(lookup, [list(keys)], [keys[0] if len(keys) == 1 else list(keys)])
            if not isinstance(found, Mapping):
                raise FetchError(
                    lookup, list(keys), f"it gave {format_value(found)}, not a mapping from keys to values"
                )
            outcomes = [found.get(key) for key in keys]
        else:
            outcomes = self._outcomes(lookup, keys, keys)
        return [_values(lookup, key, value, columns) for key, value in zip(keys, outcomes, strict=True)]

    def _outcomes(self, lookup: str, arguments: Sequence[Any], keys: Sequence[Any]) -> list[Any]:
        """Return what the calls give, in their order."""
        found: list[Any] = []
        for start in range(0, len(arguments), self.parallel):
            calls = [_Call(self.call, argument) for argument in arguments[start : start + self.parallel]]
            if self.timeout is None and self.parallel == 1:
                calls[0].run()
            else:
                for call in calls:
                    threading.Thread(target=call.run, name=f"whence fetch {lookup}", daemon=True).start()
            for call, key in zip(calls, keys[start : start + self.parallel], strict=True):
                if not call.done.wait(self.timeout):
                    raise FetchError(lookup, key, f"it took longer than {self.timeout:g} s")
                if call.error is not None:
                    error = call.error
                    if not isinstance(error, Exception):
                        raise error  # the user's interrupt
                    raise FetchError(lookup, key, f"{type(error).__name__}: {error}") from error
                found.append(call.value)
        return found


class _Call:
    """A call, and what came of it."""

    def __init__(self, function: Callable[..., Any], argument: Any) -> None:
        self._function, self._argument = function, argument
        self.done = threading.Event()
        self.value: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.value = self._function(self._argument)
        except BaseException as error:
            self.error = error
        self.done.set()


def _values(lookup: str, key: Any, value: Any, columns: Schema) -> tuple[Any, ...]:
    """Return what was fetched as a row of these columns."""
    width = len(columns)
    if value is None:
        return (None,) * width
    if isinstance(value, Mapping):
        unknown = [name for name in value if name not in columns.names]
        if unknown:
            raise FetchError(lookup, key, f"it gave a column {format_value(unknown[0])}, which {lookup} does not have")
        return tuple(value.get(name) for name in columns.names)
    if isinstance(value, (tuple, list)):
        if len(value) != width:
            raise FetchError(lookup, key, f"it gave {len(value)} values for {width} columns")
        return tuple(value)
    if width != 1:
        raise FetchError(lookup, key, f"it gave {format_value(value)} for {width} columns: give a tuple or a mapping")
    return (value,)
