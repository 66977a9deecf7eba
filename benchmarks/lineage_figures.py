"""Figures 12 to 17 of paper 001: which networks, over what, in which modes.

| figure | x | what is measured |
|---|---|---|
| 12 | rows per window, 10 to 100 | completion, and the retrieval of all provenance: eager, by replay, by rewriting |
| 13 | averages over averages, 1 to 4 | the same; windows of 10 every 1 |
| 14a | rows per window, 50 to 2,000 | completion |
| 14b | rows a slide, 1 to 100, windows of 100 | completion |
| 14c | percent that the first selection lets pass, 5 to 100 | completion |
| 15 | rows per batch, 10 to 100, at a fixed pace | latency |
| 16, 16b | rows a front window of the overheating network, 2 to 2,000, from one stream and from two | completion |
| 17 | percent of results retrieved, 0.05 to 100; four averages of 10 every 3 | completion and retrieval together |
| 17c | the same, 0.1 to 100 | completion with a view over provenance(), which retrieves as results come |

The paper's own numbers, as far as its text has them, are `PAPER`: how many times no provenance each took.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa

import whence
from benchmarks.lineage_networks import (
    ADAPTIVE,
    CHUNK,
    COVERING,
    MODES,
    PLACES,
    REWRITE,
    SINGLE,
    STREAM,
    Mode,
    Network,
    heat,
    nested,
    numbers,
    overheating,
)
from benchmarks.lineage_runs import (
    Answer,
    Arrivals,
    Figure,
    Spent,
    agree,
    batches,
    by_turns,
    compare,
    completion,
    latencies,
    opened,
    retrieve,
    retrieve_continuously,
    rewritten,
    turns,
    warm,
)

FIGURES = (12, 13, 14, 15, 16, 17)
RETRIEVAL = "retrieval of "
Say = Callable[[str], None]


@dataclass(frozen=True)
class Sizes:
    """How much of it is run."""

    rows: int = 100_000
    rounds: int = 9
    retrievals: int = 2  # of all provenance, in figures 12 and 13
    rewritten: int = 30_000_000  # rows of a rewritten network, at the most
    windows: tuple[int, ...] = (10, 25, 50, 75, 100)  # figure 12
    depths: tuple[int, ...] = (1, 2, 3, 4)
    large: tuple[int, ...] = (50, 100, 250, 500, 1000, 2000)  # figure 14a
    slides: tuple[int, ...] = (1, 2, 5, 10, 25, 50, 100)
    percents: tuple[int, ...] = (5, 25, 50, 75, 100)
    loads: tuple[int, ...] = (10, 25, 50, 75, 100)
    pace: float = 0.005  # seconds between two batches
    paced: int = 300  # batches
    fronts: tuple[int, ...] = (2, 10, 50, 200, 1000, 2000)
    limit: float = 3.0  # seconds of CPU at one of them; who takes longer is left out of the larger ones
    many: int = 2_000_000  # rows of figure 17
    rates: tuple[float, ...] = (0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 25.0, 50.0, 100.0)
    many_rounds: int = 3
    followed: tuple[float, ...] = (0.1, 1.0, 10.0, 100.0)  # rates at which retrieval is continuous


QUICK = Sizes(
    rows=5_000,
    rounds=1,
    retrievals=1,
    rewritten=1_000_000,
    windows=(10, 100),
    depths=(1, 4),
    large=(50, 500),
    slides=(1, 10),
    percents=(25, 100),
    loads=(10, 100),
    paced=20,
    fronts=(2, 50),
    many=100_000,
    rates=(1.0, 10.0, 100.0),
    many_rounds=1,
    followed=(1.0, 100.0),
)

PAPER: Mapping[str, Mapping[str, Mapping[float, float]]] = {
    "12": {SINGLE.name: {10: 1.20, 100: 2.13}, COVERING.name: {10: 1.03, 100: 1.16}},
    "13": {
        SINGLE.name: {1: 3.9 / 3.1, 2: 7.4 / 3.9, 3: 14.7 / 4.8, 4: 48.6 / 5.7},
        COVERING.name: {1: 1.0, 2: 4.4 / 3.9, 3: 5.2 / 4.8, 4: 6.3 / 5.7},
        RETRIEVAL + SINGLE.name: {1: 3.0 / 3.1, 2: 12.9 / 3.9, 3: 103.0 / 4.8, 4: 2047.0 / 5.7},
        RETRIEVAL + COVERING.name: {1: 5.2 / 3.1, 2: 14.7 / 3.9, 3: 91.1 / 4.8, 4: 2224.0 / 5.7},
        REWRITE.name: {1: 7.2 / 3.1, 2: 625.0 / 3.9},
    },
    "14a": {
        SINGLE.name: {50: 1.70, 2000: 6.30},
        ADAPTIVE.name: {50: 1.50, 2000: 2.40},
        COVERING.name: {50: 1.14, 2000: 1.70},
    },
    "15": {mode.name: {10: ratio, 100: ratio} for mode, ratio in ((SINGLE, 1.75), (ADAPTIVE, 1.60), (COVERING, 1.20))},
    "16": {ADAPTIVE.name: {2: 2.0}, COVERING.name: {2: 1.4, 2000: 1.4}},
    "17": {COVERING.name: {0.05: 1.13}},
}
"""By figure, curve and x: how many times no provenance it took there, as the text or the table of Figure 13 says."""


def end_to_end(sizes: Sizes, say: Say) -> list[Figure]:
    """Figure 12."""
    figure = Figure("12", f"generation and retrieval, {sizes.rows:,} rows, 25 %, slide 1", "rows per window")
    for size in sizes.windows:
        _with_retrieval(figure, size, nested(size), sizes, say)
    return [figure]


def depths(sizes: Sizes, say: Say) -> list[Figure]:
    """Figure 13."""
    figure = Figure("13", f"averages over averages, {sizes.rows:,} rows, windows of 10", "averages")
    for depth in sizes.depths:
        _with_retrieval(figure, depth, nested(10, depth=depth), sizes, say)
    return [figure]


def _with_retrieval(figure: Figure, x: float, network: Network, sizes: Sizes, say: Say) -> None:
    say(f"figure {figure.number}, {network.name}")
    rows = numbers(sizes.rows)
    found: dict[str, Answer] = {}

    def then(mode: Mode, db: whence.Database, generated: Spent) -> None:
        if mode.traced and len(figure.curve(RETRIEVAL + mode.name).at(x).samples) < sizes.retrievals:
            taken, found[mode.name] = retrieve(db)
            figure.note(RETRIEVAL + mode.name, x, taken)

    warm(network, MODES, batches(rows.slice(0, 2_000), 500))
    compare(network, MODES, batches(rows), sizes.rounds, lambda mode, s: figure.note(mode.name, x, s), then)
    _rewritten(figure, x, network, sizes, found)
    agree(f"provenance, {network.name}", found)


def _rewritten(figure: Figure, x: float, network: Network, sizes: Sizes, found: dict[str, Answer]) -> None:
    """The rewritten network: generation and retrieval are one; as few rounds as there are retrievals."""
    count = network.rewritten_rows * sizes.rows
    if count > sizes.rewritten:
        figure.notes.append(f"{REWRITE.name} is left out at {x:g}: it would make {count:,.0f} rows")
        return
    rows = numbers(sizes.rows)
    warm(network, [REWRITE], batches(rows.slice(0, 2_000), 500))
    for _ in range(sizes.retrievals):
        with closing(opened(network, REWRITE)) as db:
            figure.note(REWRITE.name, x, completion(db, batches(rows)))
            taken, found[REWRITE.name] = rewritten(db)
            figure.note(RETRIEVAL + REWRITE.name, x, taken)


def generation(sizes: Sizes, say: Say) -> list[Figure]:
    """Figure 14, all three."""
    of = f"{sizes.rows:,} rows"
    settings: list[tuple[Figure, dict[int, Network]]] = [
        (Figure("14a", f"window size, {of}, 25 %, slide 1", "rows per window"), {w: nested(w) for w in sizes.large}),
        (Figure("14b", f"overlap, {of}, windows of 100", "rows a slide"), {s: nested(100, s) for s in sizes.slides}),
        (Figure("14c", f"tid contiguity, {of}, windows of 100", "%"), {p: nested(100, 1, p) for p in sizes.percents}),
    ]
    rows = numbers(sizes.rows)
    for figure, networks in settings:
        for x, network in networks.items():
            say(f"figure {figure.number}, {network.name}")
            warm(network, MODES, batches(rows.slice(0, 5_000), 1_250))
            compare(network, MODES, batches(rows), sizes.rounds, lambda m, s, f=figure, x=x: f.note(m.name, x, s))  # type: ignore[misc]
    return [figure for figure, _ in settings]


def load(sizes: Sizes, say: Say) -> list[Figure]:
    """Figure 15: the mean latency of a batch, of the best round; and what nineteen in twenty batches take at most."""
    network = nested(100)
    figures = [
        Figure("15", f"mean latency, a batch every {1e3 * sizes.pace:g} ms", "rows per batch"),
        Figure("15t", "latency, 95th percentile", "rows per batch"),
    ]
    for size in sizes.loads:
        say(f"figure 15, batches of {size}")
        rows = numbers(size * (sizes.paced + 50) + 2_000)
        before, every = rows.slice(0, 2_000), batches(rows.slice(2_000), size)
        for _, mode in turns(MODES, min(sizes.rounds, 3)):
            with closing(opened(network, mode)) as db:
                completion(db, [before, *every[:50]])
                taken = latencies(db, every[50:], sizes.pace)
            figures[0].note(mode.name, size, Spent(*(statistics.fmean(column) for column in zip(*taken, strict=True))))
            figures[1].note(mode.name, size, sorted(taken)[int(0.95 * len(taken))])
    return figures


def fronts(sizes: Sizes, say: Say) -> list[Figure]:
    """Figure 16: both places in one stream, and a stream of each."""
    title, rows = f"the overheating network, {sizes.rows:,} readings", heat(sizes.rows)
    one, two = (Figure(n, f"{title}, {of}", "rows a front window") for n, of in (("16", "one stream"), ("16b", "two")))
    few = rows.slice(0, 2_000)
    _fronts(one, (STREAM,), batches(rows), batches(few, 500), sizes, say)
    _fronts(two, PLACES, by_turns(rows, PLACES, CHUNK), by_turns(few, PLACES, CHUNK, 500), sizes, say)
    return [one, two]


def _fronts(
    figure: Figure,
    streams: tuple[str, ...],
    every: Sequence[pa.Table | Arrivals],
    few: Sequence[pa.Table | Arrivals],
    sizes: Sizes,
    say: Say,
) -> None:
    modes, rounds = list(MODES), min(sizes.rounds, 3)
    for size in sizes.fronts:
        network = overheating(size, streams)
        say(f"figure {figure.number}, {network.name}")
        warm(network, modes, few)
        compare(network, modes, every, rounds, lambda m, s, x=size: figure.note(m.name, x, s))  # type: ignore[misc]
        modes = figure.quick(modes, size, sizes.limit)


def some(rate: float) -> str:
    """The condition that picks so many percent of the results, spread over all of them.

    >>> some(0.05), some(100)
    ('WHERE tid % 2000 = 0', '')
    """
    return "" if rate >= 100 else f"WHERE tid % {round(100 / rate)} = 0"


def retrieval(sizes: Sizes, say: Say) -> list[Figure]:
    """Figure 17: generation and retrieval together; no provenance is generation alone."""
    network, rows = nested(10, 3, depth=4), numbers(sizes.many)
    figure = Figure("17", f"four averages of 10 every 3, {sizes.many:,} rows: in total", "% of the results retrieved")
    found: dict[float, dict[str, Answer]] = {}

    def then(mode: Mode, db: whence.Database, generated: Spent) -> None:
        for rate in sizes.rates:
            say(f"figure 17, {mode.name}, {rate:g} %")
            total = generated
            if mode.traced:
                taken, answer = retrieve(db, some(rate))
                found.setdefault(rate, {})[mode.name] = answer
                figure.note(RETRIEVAL + mode.name, rate, taken)
                total += taken
            figure.note(mode.name, rate, total)

    warm(network, MODES, batches(rows.slice(0, 20_000), 5_000))
    compare(network, MODES, batches(rows), sizes.many_rounds, lambda mode, s: None, then)
    for rate, answers in found.items():
        agree(f"provenance of {rate:g} % of the results", answers)
    return [figure, continuous(network, rows, sizes, say)]


def continuous(network: Network, rows: pa.Table, sizes: Sizes, say: Say) -> Figure:
    """Figure 17 as Figure 10 has it: retrieval by a view over provenance(), as results come."""
    title = f"the same, retrieved as results come, {len(rows):,} rows: in total"
    figure, every = Figure("17c", title, "% of the results retrieved"), batches(rows)
    for rate in sizes.followed:
        found: dict[str, Answer] = {}
        for _, mode in turns(MODES, sizes.many_rounds):
            say(f"figure 17, {mode.name}, {rate:g} %, as results come")
            taken, answer = retrieve_continuously(network, mode, every, some(rate))
            figure.note(mode.name, rate, taken)
            if mode.traced:
                found[mode.name] = answer
        agree(f"provenance of {rate:g} % of the results, as they come", found)
    return figure


RUNS: dict[int, Callable[[Sizes, Say], list[Figure]]] = {
    12: end_to_end,
    13: depths,
    14: generation,
    15: load,
    16: fronts,
    17: retrieval,
}
