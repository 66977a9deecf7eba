"""What Spark starts Python workers from: PySpark's own daemon, with Whence loaded before it forks.

Set as `spark.python.daemon.module`. PySpark's daemon imports nothing, so each new worker spends a second or two on
numpy, pyarrow and compiled kernels; here this is done once an executor, and workers share the memory.

The law of a process that forks: it has one thread. So the libraries are told to start none: OpenBLAS (workers are many,
each of one thread) and the allocator that pyarrow carries. They read this from the environment when they are loaded,
which `python -m` does before this file runs; so where `session` has not set it, the daemon starts itself once more.

PySpark's workers collect garbage after every task. What is loaded before the fork is frozen, or each collection would
walk all of it: 115 ms of CPU a task, measured, against microseconds.

Executors need Whence installed, as for everything else that Whence runs there. Where it is missing, Spark says that
this module cannot be found, and `runtime.spark.errors` says what to do. What fails while warming up is only written
to the executor's log: the worker that needs it meets the same error and can report it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys

from whence.runtime.spark.session.session import ALONE


def prepare() -> None:
    """Load what workers need. Standard output is the daemon's line to Spark, so nothing may be printed to it."""
    with contextlib.redirect_stdout(sys.stderr):
        try:
            import pyarrow.compute  # noqa: F401
            import pyspark.worker  # noqa: F401

            from whence.runtime.warm import load

            load()
        except Exception as error:
            print(f"whence: cannot prepare Python workers ({error!r}); they start cold", file=sys.stderr)
    gc.collect()
    gc.freeze()
    if threads() > 1:
        print(f"whence: {threads()} threads where Python workers are forked, one expected", file=sys.stderr)


def threads() -> int:
    """How many threads this process has, those of libraries too."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:  # no such thing but on Linux
        return 1


if __name__ == "__main__":
    if any(name not in os.environ for name in ALONE):
        os.execve(sys.executable, [sys.executable, "-m", __spec__.name, *sys.argv[1:]], ALONE | dict(os.environ))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver, which ends what it has begun
    prepare()
    from pyspark.daemon import manager

    manager()
