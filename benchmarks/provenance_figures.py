"""Figures 10 to 16 of paper 000 as jobs: what is inserted and deleted, over how many partitions, under which schemes.

| figure | x | what is measured |
|---|---|---|
| 10 | fraction of the links inserted | all insertions so far, 10 links an epoch |
| 11 | links deleted | one deletion, the mean since the x before; after all insertions of figure 10 |
| 12 | fraction of the sensors triggered | all insertions so far, one sensor an epoch |
| 13 | links of the network | inserting all of them, dense and sparse |
| 14 | partitions | inserting all links, and then one deletion |
| 15 | fraction of the links inserted, in random order | as 10; functions are BDDs, under two orders of variables |
| 16 | dense and sparse | the cheapest and the shortest path of each pair, inserting all links in one epoch |
| 16dp, 16sp | 0: inserting; 1: one deletion | the same with the paper's own views, which have the paths themselves |

Schemes that finish a step must have the same rows after it (`provenance_runs.agree`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.provenance_runs import Epoch, Job, Reading, Step, agree, run
from benchmarks.provenance_schemes import (
    CHEAPEST_PATHS,
    DRED,
    EACH,
    EAGER,
    LAZY,
    MULTI,
    PATHS,
    REACHABLE,
    REGION,
    SCHEMES,
    SUPPORT,
    Program,
    cost_only,
)
from benchmarks.transit_stub import Link, Network, grown

FIGURES = (10, 11, 12, 13, 14, 15, 16)
DEPTH_FIRST, ARRIVAL = "depth first", "arrival"
MULTI_PATHS, SINGLE_PATHS = "multi: shortest and cheapest paths", "single: cheapest paths"
MULTI_LINE, EACH_LINE, COST_LINE = "multi: both select", "single: a recursion each", "single: cost selects"


@dataclass(frozen=True)
class Sizes:
    """How much of it is run."""

    partitions: int = 12
    epoch: int = 10  # links
    limit: float = 60.0  # seconds a step
    runs: int = 1  # of each job
    transit: int = 4  # nodes of the network
    deletions: int = 40
    single: int = 10  # deletions over each number of partitions
    fractions: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0)
    links: tuple[int, ...] = (100, 200, 400, 800)
    counts: tuple[int, ...] = (1, 4, 12, 24)
    schemes: tuple[str, ...] = tuple(SCHEMES)


QUICK = Sizes(limit=4.0, transit=1, deletions=8, single=4, fractions=(0.5, 1.0), links=(100,), counts=(1, 12))


@dataclass
class Curve:
    """One line of a figure."""

    name: str
    readings: list[Reading]


@dataclass
class Figure:
    """A figure: its curves over x. `partitions` is how many each reading's bytes are of, if not the reading's x."""

    number: str
    title: str
    x: str
    partitions: int | None
    curves: list[Curve] = field(default_factory=list)

    def curve(self, name: str) -> Curve | None:
        """By its name, if it is there."""
        return next((curve for curve in self.curves if curve.name == name), None)

    def at(self, name: str, x: float | None = None) -> Reading | None:
        """A curve's reading at x, or its last; None if there is none or it did not finish."""
        curve = self.curve(name)
        there = [r for r in curve.readings if x is None or r.x == x] if curve else []
        return there[-1] if there and not there[-1].missing else None


def insertions(net: Network, size: int) -> list[Epoch]:
    """The network's links in the order they are laid, so many an epoch."""
    return [_links(+1, net.links[i : i + size]) for i in range(0, len(net.links), size)]


def _links(sign: int, links: Iterable[Link]) -> Epoch:
    return sign, "link", tuple(tuple(link) for link in links)


_RING = [Link(a, (a + step) % 5, 2) for a in range(5) for step in (1, 4)]
_WARM = (_links(+1, _RING[:5]), _links(+1, _RING[5:]), *(_links(-1, [link]) for link in _RING[:3]))


def summed(readings: Sequence[Reading]) -> list[Reading]:
    """Each with all that was before it; sizes stay those of its end."""
    whole: list[Reading] = []
    for reading in readings:
        if whole and not reading.missing:
            last = whole[-1]
            reading = replace(
                reading,
                seconds=last.seconds + reading.seconds,
                within=math.hypot(last.within, reading.within),
                messages=last.messages + reading.messages,
                rows=last.rows + reading.rows,
                shipped=last.shipped + reading.shipped,
                epochs=last.epochs + reading.epochs,
            )
        whole.append(reading)
    return whole


def averaged(readings: Sequence[Reading]) -> list[Reading]:
    """The mean of an epoch of each."""
    return [
        replace(
            r,
            seconds=r.seconds / r.epochs,
            within=r.within / r.epochs,
            messages=round(r.messages / r.epochs),
            rows=round(r.rows / r.epochs),
            shipped=round(r.shipped / r.epochs),
            epochs=1,
        )
        for r in readings
    ]


_DIAGRAMS = (("provenance", "bdd"),)
Say = Callable[[str], None]


def insertions_and_deletions(sizes: Sizes, say: Say) -> list[Figure]:
    """Figures 10 and 11: in the second every x is the mean of the deletions since the one before."""
    net = grown(sizes.transit)
    load = _fractions(insertions(net, sizes.epoch), sizes.fractions)
    gone = random.Random("deletions").sample(net.links, sizes.deletions)
    size = sizes.deletions // len(sizes.fractions)
    delete = tuple(
        Step(i + size, tuple(_links(-1, [link]) for link in gone[i : i + size])) for i in range(0, len(gone), size)
    )
    inserted = Figure("10", f"insertions, {len(net.links)} links", "fraction of links inserted", sizes.partitions)
    deleted = Figure("11", f"one deletion, of {len(net.links)} links", "links deleted", sizes.partitions)
    for name in sizes.schemes:
        say(f"figures 10 and 11, {name}")
        readings = run(Job(name, REACHABLE, sizes.partitions, load + delete, warm=_WARM), sizes.limit, sizes.runs)
        inserted.curves.append(Curve(name, summed(readings[: len(load)])))
        deleted.curves.append(Curve(name, averaged(readings[len(load) :])))
    return [_checked(inserted), _checked(deleted)]


def _fractions(epochs: Sequence[Epoch], fractions: Sequence[float]) -> tuple[Step, ...]:
    ends = [round(f * len(epochs)) for f in fractions]
    return tuple(Step(f, tuple(epochs[a:b])) for f, a, b in zip(fractions, [0, *ends[:-1]], ends, strict=True))


def _checked(figure: Figure) -> Figure:
    agree(f"figure {figure.number}", {curve.name: curve.readings for curve in figure.curves})
    return figure


def regions(sizes: Sizes, say: Say, away: int = 10, side: int = 100, seeds: int = 5) -> list[Figure]:
    """Figure 12, and the deletions that the paper leaves to its longer version."""
    rng = random.Random("regions")
    across = side // away
    sensors = tuple((i, away * (i % across), away * (i // across)) for i in range(across * across))
    order = rng.sample(range(len(sensors)), len(sensors))
    first, triggered = order[:seeds], order[seeds : seeds + len(sensors) // 2]
    before: tuple[Epoch, ...] = (
        (+1, "sensor", sensors),
        (+1, "coordSensor", tuple(enumerate(first))),
        (+1, "isTriggered", tuple((s,) for s in first)),
    )
    come: list[Epoch] = [(+1, "isTriggered", ((s,),)) for s in triggered]
    go: list[Epoch] = [(-1, "isTriggered", ((s,),)) for s in triggered]
    warm: tuple[Epoch, ...] = (*before, *come[:2], *go[:2])
    inserted = Figure("12", "sensor regions, insertions", "fraction of sensors triggered", sizes.partitions)
    deleted = Figure("12d", "sensor regions, one deletion", "fraction of sensors no longer", sizes.partitions)
    steps = _fractions(come, sizes.fractions)
    for name in sizes.schemes:
        say(f"figure 12, {name}")
        job = Job(name, REGION, sizes.partitions, steps + _fractions(go, sizes.fractions), before, warm)
        readings = run(job, sizes.limit, sizes.runs)
        inserted.curves.append(Curve(name, summed(readings[: len(steps)])))
        deleted.curves.append(Curve(name, averaged(readings[len(steps) :])))
    return [_checked(inserted), _checked(deleted)]


def growing(sizes: Sizes, say: Say) -> list[Figure]:
    """Figure 13. A scheme that did not finish one network is not given a larger one."""
    figures = []
    for density, per in (("dense", 100), ("sparse", 50)):
        figure = Figure("13" + density[0], f"growing networks, {density}", "links", sizes.partitions)
        for name in sizes.schemes:
            say(f"figure 13, {density}, {name}")
            found: list[Reading] = []
            for links in sizes.links:
                net = grown(links // per, density)
                steps = (Step(links, tuple(insertions(net, sizes.epoch))),)
                found += _next(found, Job(name, REACHABLE, sizes.partitions, steps, warm=_WARM), sizes)
            figure.curves.append(Curve(name, found))
        figures.append(_checked(figure))
    return figures


def _next(found: Sequence[Reading], job: Job, sizes: Sizes) -> list[Reading]:
    """A job's readings; none of a job that is heavier than one that did not finish."""
    if found and found[-1].missing:
        return [Reading(step.x, missing=found[-1].missing) for step in job.steps]
    return run(job, sizes.limit, sizes.runs)


def partitions(sizes: Sizes, say: Say) -> list[Figure]:
    """Figure 14, insertions and deletions apart."""
    net = grown(sizes.transit)
    gone = random.Random("deletions").sample(net.links, sizes.single)
    load, delete = tuple(insertions(net, sizes.epoch)), tuple(_links(-1, [link]) for link in gone)
    inserted = Figure("14", f"partitions, inserting {len(net.links)} links", "partitions", None)
    deleted = Figure("14d", "partitions, one deletion", "partitions", None)
    for name in sizes.schemes:
        found: list[Reading] = []
        for count in sizes.counts:
            say(f"figure 14, {name}, {count} partitions")
            steps = (Step(count, load), Step(count, delete))
            found += _next(found, Job(name, REACHABLE, count, steps, warm=_WARM), sizes)
        inserted.curves.append(Curve(name, found[::2]))
        deleted.curves.append(Curve(name, averaged(found[1::2])))
    return [_checked(inserted), _checked(deleted)]


def orders(sizes: Sizes, say: Say) -> list[Figure]:
    """Figure 15: links come in random order; the functions are BDDs. In one partition there is one order, as the paper
    has it; with more each follows the links it hears of."""
    net = grown(sizes.transit)
    links = random.Random("arrival").sample(net.links, len(net.links))
    steps = _fractions(insertions(replace(net, links=tuple(links)), sizes.epoch), sizes.fractions)
    figures = []
    for number, count, schemes in (("15", 1, (LAZY, EAGER)), ("15p", sizes.partitions, (LAZY,))):
        title = f"order of variables, random arrival, {count} partition{'s' * (count > 1)}"
        figure = Figure(number, title, "fraction of links inserted", count)
        for scheme in schemes:
            for order in (DEPTH_FIRST, ARRIVAL):
                say(f"figure 15, {scheme}, {order}, {count} partitions")
                job = Job(scheme, REACHABLE, count, steps, warm=_WARM, more=_DIAGRAMS, arrival=order == ARRIVAL)
                figure.curves.append(Curve(f"{scheme}, {order}", summed(run(job, sizes.limit, sizes.runs))))
        figures.append(_checked(figure))
    return figures


def selections(sizes: Sizes, say: Say) -> list[Figure]:
    """Figure 16. The bound of the recursion that nothing selects is the longest shortest path there is."""
    figures = []
    for density in ("dense", "sparse"):
        net = grown(sizes.transit, density)
        figure = Figure("16" + density[0], f"aggregate selection, {density}", "", sizes.partitions)
        lines: tuple[tuple[str, Program], ...] = (
            (MULTI_LINE, MULTI),
            (EACH_LINE, EACH),
            (COST_LINE, cost_only(longest(net))),
        )
        for name, program in lines:
            for scheme in (DRED, LAZY):
                say(f"figure 16, {density}, {name}, {scheme}")
                steps = (Step(0.0, (_links(+1, net.links),)),)
                readings = run(Job(scheme, program, sizes.partitions, steps, warm=_WARM), sizes.limit, sizes.runs)
                figure.curves.append(Curve(f"{name}, {scheme}", readings))
        figures.append(_checked(figure))
        figures.append(_paths(net, density, sizes, say))
    return figures


def _paths(net: Network, density: str, sizes: Sizes, say: Say) -> Figure:
    """Figure 16 with the paper's own views, which have the paths themselves: text that Python puts together. So the
    recursion is kept in one partition, and nothing is shipped."""
    figure = Figure(f"16{density[0]}p", f"the paper's path views, {density}, 1 partition", "", 1)
    for name, program in ((MULTI_PATHS, PATHS), (SINGLE_PATHS, CHEAPEST_PATHS)):
        for scheme in (DRED, SUPPORT):
            say(f"figure 16, {density}, {name}, {scheme}")
            steps = (
                Step(0.0, (_links(+1, net.links),)),
                Step(1.0, tuple(_links(-1, [link]) for link in net.links[:10])),
            )
            readings = run(Job(scheme, program, 1, steps, warm=_WARM), sizes.limit, sizes.runs)
            figure.curves.append(Curve(f"{name}, {scheme}", [readings[0], *averaged(readings[1:])]))
    return _checked(figure)


def longest(net: Network) -> int:
    """The most links that a shortest path of the network has."""
    after: dict[int, list[int]] = {}
    for link in net.links:
        after.setdefault(link.src, []).append(link.dst)
    most = 0
    for start in after:
        seen: set[int] = set()
        level, hops = set(after[start]), 0
        while level:
            seen |= level
            hops += 1
            level = {further for node in level for further in after.get(node, ())} - seen
        most = max(most, hops)
    return most


RUNS: dict[int, Callable[[Sizes, Say], list[Figure]]] = {
    10: insertions_and_deletions,
    11: insertions_and_deletions,
    12: regions,
    13: growing,
    14: partitions,
    15: orders,
    16: selections,
}
