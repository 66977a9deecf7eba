"""One network under several modes: the same batches to each, in turns, and what it took.

The paper's two measures: *completion time*, all input at maximum load; *latency*, rows at a given pace, from when a
batch is due until its results and their provenance are there. Retrieval asks for results beside all of their inputs
(the p-join); under covering it replays. Every mode must have the same results, and the same provenance where it is
asked for.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import whence
from benchmarks.lineage_networks import NONE, REWRITTEN, STREAM, VIEW, Mode, Network

BATCH = 10_000
T = TypeVar("T")


class DisagreementError(Exception):
    """Two modes gave different answers: the figures would mean nothing."""


class Spent(NamedTuple):
    """Seconds that passed, and of CPU: on a machine that others use the second says more of what something costs."""

    seconds: float
    cpu: float

    def __add__(self, other: tuple[float, ...]) -> Spent:  # type: ignore[override]  # not the sum of tuples
        return Spent(self.seconds + other[0], self.cpu + other[1])


@dataclass
class Point:
    """What one curve has at one x: a sample a round, in seconds."""

    x: float
    samples: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @property
    def best(self) -> float:
        return min(self.samples)

    @property
    def median(self) -> float:
        return statistics.median(self.samples)


class Ratio(NamedTuple):
    """One time over another: the best of each, the median of the rounds' ratios, and the least CPU of each."""

    best: float
    median: float
    cpu: float


@dataclass
class Curve:
    """One line of a figure."""

    name: str
    points: list[Point] = field(default_factory=list)

    def at(self, x: float) -> Point:
        """The point at x, made if it is not there."""
        found = next((point for point in self.points if point.x == x), None)
        if found is None:
            found = Point(x)
            self.points.append(found)
        return found


@dataclass
class Figure:
    """A figure of the paper: its curves over x, in seconds."""

    number: str
    title: str
    x: str
    curves: list[Curve] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what was left out, and why

    def curve(self, name: str) -> Curve:
        """By its name, made if it is not there."""
        found = next((curve for curve in self.curves if curve.name == name), None)
        if found is None:
            found = Curve(name)
            self.curves.append(found)
        return found

    def note(self, name: str, x: float, spent: Spent) -> None:
        point = self.curve(name).at(x)
        point.samples.append(spent.seconds)
        point.cpu.append(spent.cpu)

    def quick(self, modes: Sequence[Mode], x: float, limit: float) -> list[Mode]:
        """The modes that took no longer at x; the others are noted, and are to be left out of what is heavier."""
        found = []
        for mode in modes:
            least = min(self.curve(mode.name).at(x).cpu)
            if least <= limit:
                found.append(mode)
            else:
                self.notes.append(f"{mode.name} is left out above {x:g}: it took {least:.1f} s of CPU there")
        return found

    def ratio(self, name: str, x: float, base: str = NONE.name) -> Ratio:
        """How many times the base a curve takes at x."""
        mine, other = self.curve(name).at(x), self.curve(base).at(x)
        rounds = [a / b for a, b in zip(mine.samples, other.samples, strict=False)]
        return Ratio(mine.best / other.best, statistics.median(rounds), min(mine.cpu) / min(other.cpu))


def batches(rows: pa.Table, size: int = BATCH) -> list[pa.Table]:
    """So many rows an epoch."""
    return [rows.slice(start, size) for start in range(0, len(rows), size)]


def opened(network: Network, mode: Mode) -> whence.Database:
    """The network with nothing in it yet."""
    db = whence.open()
    db.execute(network.script(mode))
    return db


def spent(work: Callable[[], T]) -> tuple[Spent, T]:
    """What it takes, after the garbage of what was before."""
    gc.collect()
    start, cpu = time.perf_counter(), time.process_time()
    found = work()
    return Spent(time.perf_counter() - start, time.process_time() - cpu), found


Arrivals = Sequence[tuple[str, pa.Table]]
"""What comes in one epoch, stream by stream, in this order."""


def completion(db: whence.Database, every: Sequence[pa.Table | Arrivals]) -> Spent:
    """Until all of it has come through."""

    def work() -> None:
        for batch in every:
            if isinstance(batch, pa.Table):
                db.insert(STREAM, batch)
                continue
            with db.transaction():
                for stream, rows in batch:
                    db.insert(stream, rows)

    return spent(work)[0]


def by_turns(rows: pa.Table, streams: Sequence[str], chunk: int, size: int = BATCH) -> list[Arrivals]:
    """Deal rows out to the streams in turn; of each, `chunk` rows come together, and `size` rows make an epoch."""
    shares = [rows.take(np.arange(place, len(rows), len(streams))) for place in range(len(streams))]
    pieces = [
        (stream, share.slice(start, chunk))
        for start in range(0, len(shares[0]), chunk)
        for stream, share in zip(streams, shares, strict=True)
    ]
    together = max(size // chunk, 1)
    return [pieces[start : start + together] for start in range(0, len(pieces), together)]


def latencies(db: whence.Database, every: Sequence[pa.Table], pace: float) -> list[Spent]:
    """Of each batch, from when it was due, one every `pace` seconds, until it was through."""
    gc.collect()
    found, due = [], time.perf_counter()
    for batch in every:
        while (left := due - time.perf_counter()) > 0:
            time.sleep(left)
        cpu = time.process_time()
        db.insert(STREAM, batch)
        found.append(Spent(time.perf_counter() - due, time.process_time() - cpu))
        due += pace
    return found


@dataclass(frozen=True)
class Answer:
    """How much provenance was retrieved, and a sum that tells one set from another."""

    pairs: int
    mixed: int


def retrieve(db: whence.Database, where: str = "", stream: str = STREAM) -> tuple[Spent, Answer]:
    """Results beside their inputs, all columns: what it took, and what came."""
    query = f"SELECT * FROM provenance({VIEW}, {stream}) {where}"
    taken, found = spent(lambda: db.query(query).to_arrow())
    return taken, _of(found, stream)


def rewritten(db: whence.Database) -> tuple[Spent, Answer]:
    """What the rewritten network has computed, all columns; each pair counts once, however often it came."""
    taken, found = spent(lambda: db[REWRITTEN].to_arrow())
    pairs = np.unique(np.column_stack([found["id"].to_numpy(), found["source"].to_numpy()]), axis=0)
    _, tids = np.unique(pairs[:, 0], return_inverse=True)  # results and inputs are numbered from 1, in their order
    return taken, _answer(tids + 1, pairs[:, 1] + 1)


def _of(found: pa.Table, stream: str) -> Answer:
    """Sum up rows of provenance()."""
    return _answer(*(found[name].to_numpy() for name in ("tid", f"{stream}_tid")))


def _answer(tids: np.ndarray, inputs: np.ndarray) -> Answer:
    return Answer(len(tids), int((tids * 7919 % 104729 * inputs).sum()))


def retrieve_continuously(network: Network, mode: Mode, every: Sequence[pa.Table], where: str) -> tuple[Spent, Answer]:
    """Completion with a view over provenance(), which has results beside their inputs as they come."""
    with closing(opened(network, mode)) as db:
        if mode.traced:
            db.execute(
                f"CREATE VIEW behind WITH (retain = 'all') AS SELECT * FROM provenance({VIEW}, {STREAM}) {where}"
            )
        taken = completion(db, every)
        return taken, _of(db["behind"].to_arrow(), STREAM) if mode.traced else Answer(0, 0)


def results(db: whence.Database) -> tuple[int, float]:
    """How many results there are, and a sum over them."""
    found = db[VIEW].to_arrow()
    return len(found), float(pc.sum(found["time"]).as_py() or 0)


def agree(what: str, answers: Mapping[str, object]) -> None:
    """All the same?"""
    (first, expected), *others = answers.items()
    for name, answer in others:
        if answer != expected:
            raise DisagreementError(f"{what}: {first} has {expected}, {name} has {answer}")


def turns(modes: Sequence[Mode], rounds: int) -> Iterator[tuple[int, Mode]]:
    """Every mode in every round, forth and back, so that none is always first."""
    for turn in range(rounds):
        for mode in modes if turn % 2 == 0 else reversed(modes):
            yield turn, mode


def compare(
    network: Network,
    modes: Sequence[Mode],
    every: Sequence[pa.Table | Arrivals],
    rounds: int,
    note: Callable[[Mode, Spent], None],
    then: Callable[[Mode, whence.Database, Spent], None] | None = None,
) -> None:
    """Completion times of all modes, `rounds` of each; `then` is given each database before it is closed."""
    found: dict[str, object] = {}
    for _, mode in turns(modes, rounds):
        with closing(opened(network, mode)) as db:
            taken = completion(db, every)
            note(mode, taken)
            found.setdefault(mode.name, results(db))
            if then is not None:
                then(mode, db, taken)
    agree(network.name, found)


def warm(network: Network, modes: Sequence[Mode], every: Sequence[pa.Table | Arrivals]) -> None:
    """Load and compile what a network needs: few rows, retrieved too."""
    for mode in modes:
        with closing(opened(network, mode)) as db:
            completion(db, every)
            if mode.traced:
                retrieve(db, stream=network.streams[0])
