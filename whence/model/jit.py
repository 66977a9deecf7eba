"""How every kernel is compiled: cached on disk, without the GIL, one signature.

A kernel sees only C-contiguous, writeable int64 arrays (int32 for chains), int64 scalars and records (`record.py`), so
that it compiles once for all schemas. It only reads and writes what its caller owns: without Numba's reference counting
(`_nrt`) passing arrays from function to function costs nothing, which made kernels several times faster. One that makes
arrays is `allocating`. Numba's cache watches only a kernel's own file: after editing a helper, delete `__pycache__` of
its users (`make setup` does).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])

_without_counts: Any = njit(cache=True, nogil=True, _nrt=False)  # type: ignore[call-overload]  # not in its signature
_with_counts: Any = njit(cache=True, nogil=True)


def kernel(function: F) -> F:
    """The function, compiled; it must not make arrays."""
    return cast(F, _without_counts(function))


def allocating(function: F) -> F:
    """The function, compiled; it may make arrays."""
    return cast(F, _with_counts(function))
