"""Compiles every kernel, so that no user waits for it: `python -m whence.runtime.warm` at set-up.

A part calls some kernels on tiny inputs. Parts are compiled by as many processes as there are cores. Each writes what
it compiles to the cache on disk (`model/jit.py`), which later processes load; what is there is not compiled again. Then
the costs of plans are fitted, alone, with the compiled kernels.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

from whence.adapt.warm import warm as _optimizers
from whence.engine.calibration import calibrate
from whence.engine.warm import PARTS as OPERATORS
from whence.explain.warm import warm as _questions
from whence.io.kernels import columns, texts
from whence.runtime.writing.kernels import signs
from whence.state.kernels import planes


def _rows() -> None:
    """Columns as Arrow has them, not to be written to; texts; signs of rows; bytes of images."""
    rows, wide, narrow = np.ones((1, 2), np.int64), np.ones(1, np.int64), np.ones(1, np.int32)
    starts, data, slots = np.array([0, 1], np.int64), np.zeros(1, np.uint8), np.zeros(4, np.int64)
    texts.add_texts(starts, data, np.zeros(1, np.int64), slots)
    given, none, ones = data.copy(), np.zeros(1, bool), np.ones(1, np.int64)
    for array in (wide, narrow, given):
        array.flags.writeable = False
    columns.put_integers(wide, rows, 0, 0, 9)
    columns.put_integers(narrow, rows, 0, 0, 9)
    columns.put_floats(wide, rows, 0)
    texts.find_texts(starts, given, starts, data, slots, np.empty(1, np.int64))
    planes.join_planes(given[:0], np.empty(0, np.int64))
    signs.balance(ones, starts, starts[:1], none, False)
    signs.follow_keys(starts[:1], starts, ones, starts[:1], none, ones, none.copy(), False)


PARTS: dict[str, Callable[[], None]] = OPERATORS | {"rows": _rows, "questions": _questions, "optimizers": _optimizers}


def load() -> None:
    """Load the kernels that a worker needs, in this process."""
    for name, part in PARTS.items():
        if name not in ("questions", "optimizers"):
            part()


def compile_in_parallel(names: list[str]) -> None:
    """Compile some parts, each in a process of its own, as many at once as there are cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with ProcessPoolExecutor(min(cores, len(names)), get_context("spawn"), max_tasks_per_child=1) as pool:
        list(pool.map(_compile, names))


def _compile(name: str) -> None:
    PARTS[name]()


if __name__ == "__main__":
    compile_in_parallel(sys.argv[1:] or list(PARTS))
    calibrate()
