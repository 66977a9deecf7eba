"""What the processes of a Spark session in local mode use: the driver, its Java, and the Python workers; from /proc."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_EVERY = 0.05  # seconds between two looks at the memory of workers


@dataclass(frozen=True)
class Process:
    """A process as it is now."""

    number: int
    parent: int
    name: str
    seconds: float  # of CPU
    resident: int  # bytes


def family() -> dict[int, Process]:
    """This process and all that come from it."""
    every = {process.number: process for process in _all()}
    children: dict[int, list[int]] = {}
    for process in every.values():
        children.setdefault(process.parent, []).append(process.number)
    found, left = {}, [os.getpid()]
    while left:
        number = left.pop()
        if number in every:
            found[number] = every[number]
            left += children.get(number, [])
    return found


def _all() -> Iterator[Process]:
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            before, _, after = (path / "stat").read_text().rpartition(")")
        except OSError:  # it has ended
            continue
        fields = after.split()
        seconds = (int(fields[11]) + int(fields[12])) / _TICKS
        yield Process(int(path.name), int(fields[1]), before.partition("(")[2], seconds, int(fields[21]) * _PAGE)


def cpu_seconds(before: dict[int, Process], after: dict[int, Process]) -> float:
    """What all of them have used in between."""
    return sum(p.seconds - (before[p.number].seconds if p.number in before else 0.0) for p in after.values())


def pythons() -> dict[int, Process]:
    """The Python processes of Spark: daemons, and the workers that they fork."""
    return {n: p for n, p in family().items() if n != os.getpid() and p.name.startswith("python")}


@dataclass
class Memory:
    """How large workers become while a block runs.

    Workers are forked from a daemon that has the libraries loaded, and share that memory; so `growth` is what the
    largest has beyond its daemon.
    """

    peak: int = 0
    daemon: int = 0
    _done: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @property
    def growth(self) -> int:
        return max(self.peak - self.daemon, 0)

    def __enter__(self) -> Memory:
        self._thread = threading.Thread(target=self._look, name="memory", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def _look(self) -> None:
        while not self._done.wait(_EVERY):
            every = pythons()
            for process in every.values():
                if process.parent in every:
                    self.peak = max(self.peak, process.resident)
                else:
                    self.daemon = max(self.daemon, process.resident)
