"""One scheme through one series of steps, in a process of its own with a time limit for every step.

A kernel cannot be told to stop, and what a scheme allocates should not weigh on the next, so each job has its process;
one that passes its limit is ended and the rest of its steps have "did not finish". The process first carries the same
scheme through a small network, so that its kernels are loaded when the clock starts.

What a step costs, all partitions together (see `Reading`): communication is what left its partition for another one, as
`whence/engine/exchange/traffic.py` counts it. A message is a letter: all that one operator
has for one partition in one superstep.
"""

from __future__ import annotations

import math
import multiprocessing
import resource
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any

import whence
import whence.annotate.absorption as absorption
from benchmarks.peers.common import Digest, as_rows, digest
from benchmarks.provenance_schemes import SCHEMES, Program, annotation_bytes

MEMORY = 6 << 30
"""Bytes a process may ask for; one that needs more did not finish either."""
_START = 120.0  # seconds for a process to begin: imports, kernels, the views

Rows = Sequence[tuple[int, ...]]
Epoch = tuple[int, str, Rows]  # +1 or -1, table, rows


@dataclass(frozen=True)
class Step:
    """Epochs that are measured together, and where they stand on the figure's axis."""

    x: float
    epochs: tuple[Epoch, ...]


@dataclass(frozen=True)
class Job:
    """A scheme's way through some steps; `warm` is done first in a database of its own, `before` is not measured."""

    scheme: str
    program: Program
    partitions: int
    steps: tuple[Step, ...]
    before: tuple[Epoch, ...] = ()
    warm: tuple[Epoch, ...] = ()
    more: tuple[tuple[str, str], ...] = ()  # options of the view
    arrival: bool = False  # variables of diagrams are ordered as they come, and not depth first


@dataclass
class Reading:
    """What one step cost, or why there is no telling. Bytes and rows of all partitions; sizes as the step ended."""

    x: float
    seconds: float = 0.0
    messages: int = 0
    rows: int = 0
    shipped: int = 0  # bytes
    state: int = 0  # bytes
    provenance: float = 0.0  # bytes a row that is annotated
    epochs: int = 1
    digest: Digest = field(default_factory=lambda: Digest(0, 0, 0))
    missing: str = ""  # why it did not finish
    within: float = 0.0  # half the width of the 95 % confidence interval of the seconds, if there were several runs


def shipped(db: Any) -> tuple[int, int, int]:
    """Messages, rows and bytes that partitions have sent each other so far."""
    total = db._coordinator.driver.runner.total
    return total.messages, total.rows_shipped, total.bytes_shipped


def operators(db: Any) -> Iterator[Any]:
    """Of every partition."""
    for partition in range(db._coordinator.catalog.backend.partitions):
        yield from db._coordinator.driver.runner._here(partition).partition.flow.order


def apply(db: Any, epoch: Epoch) -> None:
    """One epoch."""
    sign, table, rows = epoch
    (db.insert if sign > 0 else db.delete)(table, rows)


def fingerprint(db: Any, view: str) -> Digest:
    """Of a view's rows."""
    return digest(as_rows([column.to_numpy() for column in db[view].to_arrow().columns]))


def opened(job: Job) -> Any:
    """A database with the job's tables and views."""
    db = whence.open(partitions=job.partitions)
    db.execute(job.program.sql(SCHEMES[job.scheme], job.partitions, **dict(job.more)))
    return db


def follow(job: Job) -> Iterator[Reading]:
    """Do a job here: a reading after every step."""
    if job.arrival:
        setattr(absorption, "DepthFirst", lambda: None)  # noqa: B010 - no option: nobody should want it
    with opened(job) as db:
        for epoch in job.before:
            apply(db, epoch)
        for step in job.steps:
            yield _measured(db, job, step)


def _measured(db: Any, job: Job, step: Step) -> Reading:
    before, start = shipped(db), time.perf_counter()
    for epoch in step.epochs:
        apply(db, epoch)
    seconds = time.perf_counter() - start
    messages, rows, size = (after - was for after, was in zip(shipped(db), before, strict=True))
    kept, derived = annotation_bytes(operators(db))
    return Reading(
        step.x,
        seconds,
        messages,
        rows,
        size,
        sum(db._coordinator.driver.runner.bytes),
        kept / max(derived, 1),
        len(step.epochs),
        fingerprint(db, job.program.view),
    )


T95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14)
"""Student's t at 95 %, for 1, 2, … degrees of freedom; with more, 2.0 is near enough."""


def run(job: Job, limit: float, runs: int = 1) -> list[Reading]:
    """Do a job `runs` times, each in its own process, no step longer than `limit` seconds: the means.

    What did not finish once is not tried again. Only times differ from run to run, and what is shipped where that goes
    by time."""
    found = [run_once(job, limit)]
    while len(found) < runs and not any(reading.missing for reading in found[-1]):
        found.append(run_once(job, limit))
    if any(reading.missing for reading in found[-1]) or len(found) == 1:
        return found[-1]
    return [mean(readings) for readings in zip(*found, strict=True)]


def mean(readings: Sequence[Reading]) -> Reading:
    """The mean of the same step in several runs, with the 95 % confidence interval of its time.

    >>> found = mean([Reading(1, seconds=seconds, rows=4) for seconds in (1.0, 2.0, 3.0)])
    >>> found.seconds, round(found.within, 2), found.rows
    (2.0, 2.48, 4)
    """
    seconds = [reading.seconds for reading in readings]
    freedom = len(seconds) - 1
    t = T95[freedom - 1] if freedom <= len(T95) else 2.0

    def whole(name: str) -> int:
        return round(statistics.fmean(getattr(reading, name) for reading in readings))

    return replace(
        readings[0],
        seconds=statistics.fmean(seconds),
        within=t * statistics.stdev(seconds) / math.sqrt(len(seconds)),
        messages=whole("messages"),
        rows=whole("rows"),
        shipped=whole("shipped"),
        state=whole("state"),
        provenance=statistics.fmean(reading.provenance for reading in readings),
    )


def run_once(job: Job, limit: float) -> list[Reading]:
    """Do a job in its own process, no step longer than `limit` seconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # imports are done once
    pipe, child = context.Pipe()
    process = context.Process(target=_serve, args=(child, job), daemon=True)
    process.start()
    child.close()
    found: list[Reading] = []
    try:
        missing = _heard(pipe, _START, f"did not begin in {_START:.0f} s")
        if not isinstance(missing, str):
            for step in job.steps:
                heard = _heard(pipe, limit, f"did not finish in {limit:.0f} s")
                if isinstance(heard, str):
                    missing = heard
                    break
                assert step.x == heard.x
                found.append(heard)
    finally:
        process.kill()
        process.join()
        pipe.close()
    return found + [Reading(step.x, missing=str(missing)) for step in job.steps[len(found) :]]


def _heard(pipe: Connection, limit: float, otherwise: str) -> Any:
    try:
        return pipe.recv() if pipe.poll(limit) else otherwise
    except EOFError:
        return "the process ended"


def _serve(pipe: Connection, job: Job) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    try:
        if job.warm:
            with opened(job) as db:
                for epoch in job.warm:
                    apply(db, epoch)
        pipe.send(None)
        for reading in follow(job):
            pipe.send(reading)
    except MemoryError:
        pipe.send(f"ran out of {MEMORY >> 30} GB")
    except whence.WhenceError as wrong:
        pipe.send(f"refused: {wrong}")


class DisagreementError(Exception):
    """Two schemes gave different answers: the figures would mean nothing."""


def agree(what: str, found: Mapping[str, Sequence[Reading]]) -> None:
    """All schemes that finished a step must have the same rows then."""
    for places in zip(*found.values(), strict=True):
        there = [(name, r) for name, r in zip(found, places, strict=True) if not r.missing]
        for name, reading in there[1:]:
            if reading.digest != there[0][1].digest:
                raise DisagreementError(
                    f"{what} at {reading.x:g}: {there[0][0]} has {there[0][1].digest}, {name} has {reading.digest}"
                )
