"""What questions about a view cost: why, critical, what if, resilience, contribution, reliability.

    python -m benchmarks.explain --quick
    WHENCE_DATA=/path/to/data python -m benchmarks.explain --json results/explain.json

The measure of a question is a single-link update of the same view: who asks should wait about as long as for some
updates. Over the papers' dense network (`transit_stub`, 400 nodes), `reachable` under support:

| question | what is timed |
|---|---|
| why | the call; what the answer works out when it is read has lines of its own |
| critical, of the view | all links ranked by the rows they would take along |
| critical, resilience, contribution, of a row | the call, of rows drawn at random |
| what if | a link's loss, supposed; beside it deleting and inserting it again |

Reliability is asked of real networks (`--data`, see `topologies`), whose cables fail independently: pairs drawn at
random, the share that was exact, times, sizes.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

import whence
from benchmarks import report
from benchmarks.explain_networks import Network, measure, show
from benchmarks.peers.common import LINK_TABLE, RECURSIONS, installed
from benchmarks.report import Check, Figure
from benchmarks.topologies import NAMES, VARIABLE, data_folder
from benchmarks.transit_stub import network, updates

UPDATE = "single-link update"
WHY = "why"
PARTS = {"its base rows": "base", "its 10 smallest witnesses": "witnesses", "its formula": "formula"}
"""What an explanation works out when it is read."""


def timed(work: Callable[..., Any], *given: Any, **named: Any) -> tuple[float, Any]:
    """Milliseconds, and what came of it."""
    start = time.perf_counter()
    found = work(*given, **named)
    return 1e3 * (time.perf_counter() - start), found


class Questions:
    """A database with `reachable` over a dense network, and times by what was done, in milliseconds."""

    def __init__(self, nodes: int, seed: int = 0):
        self.net = network(nodes, "dense", seed)
        self.rng = random.Random(f"explain/{seed}")
        self.times: dict[str, list[float]] = {}
        self.db = whence.open()
        self.db.execute(LINK_TABLE + RECURSIONS["reachable"].sql)
        self.db.insert("link", [tuple(link) for link in self.net.links])

    def time(self, what: str, work: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """Do it and note what it took."""
        taken, found = timed(work, *given, **named)
        self.times.setdefault(what, []).append(taken)
        return found

    def pair(self) -> dict[str, int]:
        """A row of the view, drawn at random."""
        src, dst = self.rng.sample(range(self.net.nodes), 2)
        return {"src": src, "dst": dst}

    def update(self, count: int) -> None:
        """Single links deleted and inserted again; the first pair warms up."""
        for place, change in enumerate(updates(self.net, count + 1)):
            write = self.db.insert if change.sign > 0 else self.db.delete
            taken, _ = timed(write, "link", [tuple(change.link)])
            if place >= 2:
                self.times.setdefault(UPDATE, []).append(taken)

    def why(self, count: int) -> None:
        """Of rows drawn at random; what is worked out later is timed apart."""
        for _ in range(count):
            found = self.time(WHY, self.db.why, "reachable", **self.pair())
            for what, attribute in PARTS.items():
                self.time(what, getattr, found, attribute)
            self.time("its text", str, found)

    def ask(self, count: int) -> None:
        """The other questions about a row."""
        for _ in range(count):
            row = self.pair()
            for what in ("critical", "resilience", "contribution"):
                self.time(f"{what}, of a row", getattr(self.db, what), "reachable", **row)

    def rank(self, count: int) -> None:
        """The single points of failure."""
        for _ in range(count):
            self.time("critical, of the view", self.db.critical, "reachable")

    def suppose(self, count: int) -> None:
        """A link's loss, supposed, and done and undone; both must come to the same."""
        for place in range(count + 1):
            gone = [tuple(self.rng.choice(self.net.links))]
            before = len(self.db["reachable"])
            taken, told = timed(self.db.what_if, delete={"link": gone})
            there, _ = timed(self.db.delete, "link", gone)
            lost = before - len(self.db["reachable"])
            back, _ = timed(self.db.insert, "link", gone)
            if lost != len(told["reachable"].deleted):
                raise ValueError(f"without {gone}: what_if said {told}, and {lost} rows went")
            if place:
                self.times.setdefault("what if a link is lost", []).append(taken)
                self.times.setdefault("the link deleted and inserted", []).append(there + back)

    def warm(self) -> None:
        """Ask everything once, so that kernels are loaded; not counted."""
        for work in (self.why, self.rank, self.ask):
            work(1)
        self.times.clear()

    def close(self) -> None:
        self.db.close()


def run(options: argparse.Namespace, console: Console) -> tuple[list[Figure], list[Check]]:
    """The questions to one view."""
    asked = Questions(options.nodes)
    try:
        asked.warm()
        for work, count in (
            (asked.update, options.updates),
            (asked.why, options.rows),
            (asked.rank, options.rankings),
            (asked.suppose, options.updates),
            (asked.ask, options.rows),
            (asked.update, options.updates),
        ):
            with console.status(work.__name__):
                work(count)
    finally:
        asked.close()
    figures = [Figure(what, "ms", {report.WHENCE: times}) for what, times in asked.times.items()]
    return figures, [] if options.quick else promises(asked.times, options.nodes)  # they are about 400 nodes


def promises(times: dict[str, list[float]], nodes: int) -> list[Check]:
    """In updates."""
    median = {what: statistics.median(some) for what, some in times.items()}
    update = median[UPDATE]
    whole = [sum(parts) for parts in zip(times[WHY], *(times[part] for part in PARTS), strict=True)]
    return [
        Check(f"why, {nodes} nodes: updates", median[WHY] / update, 20.0, at_least=False),
        Check(
            "the same with its base rows, witnesses and formula read",
            statistics.median(whole) / update,
            20.0,
            at_least=False,
        ),
        Check("critical of all links: updates", median["critical, of the view"] / update, 3000.0, at_least=False),
    ]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.explain", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="100 nodes, few questions: a check that all of it runs")
    parser.add_argument("--nodes", type=int, default=400)
    parser.add_argument("--updates", type=int, default=20, help="deletions, each followed by its re-insertion")
    parser.add_argument("--rows", type=int, default=40, help="rows that are asked about")
    parser.add_argument("--rankings", type=int, default=3, help="times that all links are ranked")
    parser.add_argument("--pairs", type=int, default=20, help="pairs of each real network")
    parser.add_argument("--given", type=float, default=0.99, help="how likely a cable is there")
    parser.add_argument("--networks", default=",".join(NAMES), help=f"some of {', '.join(NAMES)}")
    parser.add_argument("--data", type=Path, help=f"the folder of the .gml files; else ${VARIABLE}")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--plot", type=Path, help=f"draw to this file (default {report.RESULTS}/explain.png)")
    options = parser.parse_args(arguments)
    options.networks = [part.strip() for part in options.networks.split(",") if part.strip()]
    if options.quick:
        options.nodes, options.updates, options.rows, options.rankings, options.pairs = 100, 4, 5, 1, 3
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, save."""
    options = parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else 120)
    figures, checks = run(options, console)
    report.show_figures(f"questions, {options.nodes} nodes", figures, console)
    folder, networks = data_folder(options.data), list[Network]()
    if folder is None:
        console.print(f"[yellow]no .gml files: real networks left out; name their folder by --data or ${VARIABLE}")
    else:
        for name in options.networks:
            with console.status(f"reliability, {name}"):
                networks.append(measure(folder, name, options.pairs, options.given))
        show(networks, console)
    report.show_checks(checks, console)
    if installed("matplotlib"):
        report.plot_figures(options.plot or report.RESULTS / "explain.png", figures)
    if options.json:
        settings = {key: value for key, value in vars(options).items() if key not in ("json", "plot", "data")}
        told = [asdict(f) | {"median": {peer: f.of(peer) for peer in f.samples}} for f in figures]
        report.save(options.json, [], checks, settings, figures=told, networks=[asdict(n) for n in networks])
    return 0


if __name__ == "__main__":
    sys.exit(main())
