"""How every kernel is compiled: cached on disk, without the GIL, one signature.

A kernel sees only C-contiguous, writeable int64 arrays (int32 for chains) and int64 scalars, so that it compiles once
for all schemas. Numba's cache watches only a kernel's own file: after editing a helper, delete `__pycache__` of its
users.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """The function, compiled."""
    return cast(F, njit(cache=True, nogil=True)(function))
