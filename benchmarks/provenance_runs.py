"""One scheme through one series of steps, in a process of its own with a time limit for every step.

A kernel cannot be told to stop, and what a scheme allocates should not weigh on the next, so each job has its process;
one that passes its limit is ended and the rest of its steps have "did not finish". The process first carries the same
scheme through a small network, so that its kernels are loaded when the clock starts.

What a step costs, all partitions together (see `Reading`): communication is what left its partition for another one, as
`whence/engine/traffic.py` counts it. A message is a letter: all that one operator
has for one partition in one superstep.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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


def shipped(db: Any) -> tuple[int, int, int]:
    """Messages, rows and bytes that partitions have sent each other so far."""
    total = db._runtime.crew.total
    return total.messages, total.rows_shipped, total.bytes_shipped


def operators(db: Any) -> Iterator[Any]:
    """Of every partition."""
    for partition in range(db._runtime.partitions):
        yield from db._runtime.crew._here(partition).flow.order


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
        sum(db._runtime.crew.bytes),
        kept / max(derived, 1),
        len(step.epochs),
        fingerprint(db, job.program.view),
    )


def run(job: Job, limit: float) -> list[Reading]:
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
