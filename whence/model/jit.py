"""How every kernel is compiled: cached on disk, without the GIL, one signature.

A kernel sees only C-contiguous, writeable int64 arrays (int32 for chains), int64 scalars and records (`record.py`), so
that it compiles once for all schemas. It only reads and writes what its caller owns: without Numba's reference counting
(`_nrt`) passing arrays from function to function costs nothing, which made kernels several times faster. One that makes
arrays is `allocating`.

Numba's own cache looks at the time of a kernel's own file, so it would load a kernel whose helper or record layout has
changed in another file since, which corrupts memory. And its file names do not depend on the sources: a process that
still runs the old sources could put its code in the place of the new. Ours names a file after everything that the
machine code depends on: the text of the kernel's module, of the kernel modules that it imports, directly or not, and of
the modules whose constants these import (names in capitals); the signature, the machine, and the version of Numba. So
processes may compile at once, and none loads stale code. A test holds kernels to using nothing else of Whence.
"""

from __future__ import annotations

import glob
import os
import pickle
import re
import sys
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba import njit
from numba.core.caching import FunctionCache
from numba.core.serialize import dumps

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
    """The compiled code of one function: a file for each signature."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__(function)  # type: ignore[no-untyped-call]  # Numba has no types
        path = Path(function.__code__.co_filename)
        name = f"{path.stem}.{function.__qualname__}.{sys.implementation.cache_tag}"
        self._cache_file = CodeFiles(Path(self._cache_path), name, stamp(path))  # type: ignore[assignment]  # as it is used


class CodeFiles:
    """Files `name.stamp.key.nbc`, written at once and never changed."""

    def __init__(self, folder: Path, name: str, stamp: str):
        self._folder, self._name, self._stamp = folder, name, stamp

    def load(self, key: object) -> Any:
        """Return what was saved under a key, or None."""
        try:
            return pickle.loads(self._path(key).read_bytes())
        except FileNotFoundError:
            return None

    def save(self, key: object, data: object) -> None:
        """Save data under a key, and remove the files of other sources."""
        path = self._path(key)
        unfinished = path.with_suffix(f".{os.getpid()}.tmp")
        unfinished.write_bytes(dumps(data))  # type: ignore[no-untyped-call]  # Numba has no types
        unfinished.replace(path)
        for file in self._folder.glob(f"{glob.escape(self._name)}.*.nbc"):
            if not file.name.startswith(f"{self._name}.{self._stamp}."):
                file.unlink(missing_ok=True)

    def _path(self, key: object) -> Path:
        digest = blake2b(repr((numba.__version__, key)).encode(), digest_size=12).hexdigest()
        return self._folder / f"{self._name}.{self._stamp}.{digest}.nbc"


@cache
def stamp(path: Path) -> str:
    """Digest the text of a kernel's file, and of all kernel modules that it imports."""
    files, waiting = {path}, [path]
    while waiting:
        found = _kernel_imports(waiting.pop()) - files
        files |= found
        waiting.extend(found)
    digest = blake2b(digest_size=8)
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
        imported = re.findall(r"\w+", names)
        files = {folder.with_suffix(".py"), *(folder / f"{name}.py" for name in imported)}
        if not any(name.isupper() for name in imported):
            files = {file for file in files if "kernels" in file.parts}
        found |= {file for file in files if file.is_file()}
    return frozenset(found)
