"""How every kernel is compiled: cached on disk, without the GIL, one signature.

A kernel sees only C-contiguous, writeable int64 arrays (int32 for chains), int64 scalars and records (`record.py`), so
that it compiles once for all schemas. It only reads and writes what its caller owns: without Numba's reference counting
(`_nrt`) passing arrays from function to function costs nothing, which made kernels several times faster. One that makes
arrays is `allocating`.

Numba's own cache looks at the time of a kernel's own file, so it would load a kernel whose helper or record layout has
changed in another file since, which corrupts memory. Ours compares the text of every file that the kernel's machine
code depends on: its own, and the kernel modules that it imports, directly or not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from numba import njit
from numba.core.caching import FunctionCache

F = TypeVar("F", bound=Callable[..., Any])

_PACKAGE = Path(__file__).parent.parent
_IMPORTS = re.compile(r"^from (whence(?:\.\w+)+) import (\([^)]*\)|.*)$", re.MULTILINE)


def kernel(function: F) -> F:
    """Compile the function; it must not make arrays."""
    return _cached(njit(nogil=True, _nrt=False)(function))  # type: ignore[call-overload, no-any-return]  # hidden option


def allocating(function: F) -> F:
    """Compile the function; it may make arrays."""
    return _cached(njit(nogil=True)(function))  # type: ignore[no-any-return]


def _cached(dispatcher: Any) -> Any:
    dispatcher._cache = _KernelCache(dispatcher.py_func)
    return dispatcher


class _KernelCache(FunctionCache):
    """Numba's cache of a function, valid as long as its sources read the same."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__(function)  # type: ignore[no-untyped-call]  # Numba has no types
        self._cache_file._source_stamp = stamp(Path(function.__code__.co_filename))


@cache
def stamp(path: Path) -> str:
    """Digest the text of a kernel's file, and of all kernel modules that it imports."""
    files, waiting = {path}, [path]
    while waiting:
        found = _kernel_imports(waiting.pop()) - files
        files |= found
        waiting.extend(found)
    digest = blake2b(digest_size=16)
    for text in sorted(_text(file) for file in files):
        digest.update(text.encode())
    return digest.hexdigest()


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def _kernel_imports(path: Path) -> frozenset[Path]:
    """Find the files that a module imports and whose code or constants may be compiled into its kernels."""
    found = {_PACKAGE / "model" / "jit.py", _PACKAGE / "model" / "record.py"}
    for module, names in _IMPORTS.findall(_text(path)):
        folder = _PACKAGE.joinpath(*module.split(".")[1:])
        files = (folder.with_suffix(".py"), *(folder / f"{name}.py" for name in re.findall(r"\w+", names)))
        found |= {file for file in files if "kernels" in file.parts and file.is_file()}
    return frozenset(found)
