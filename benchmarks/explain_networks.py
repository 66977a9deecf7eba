"""How reliably places of a real network reach each other, if each cable is there with some probability."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import whence
from benchmarks.topologies import read

SCRIPT = """
    CREATE TABLE link (number INTEGER, a INTEGER, b INTEGER);
    CREATE VIEW step AS SELECT a AS src, b AS dst FROM link UNION SELECT b, a FROM link;
    CREATE VIEW reachable AS
      SELECT src, dst FROM step
      UNION
      SELECT step.src, reachable.dst FROM step JOIN reachable ON step.dst = reachable.src;"""


@dataclass
class Network:
    """What was asked about one network; seconds, one a pair."""

    name: str
    places: int
    cables: int
    exact: list[float] = field(default_factory=list)
    sampled: list[float] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)  # of the diagrams of exact answers
    methods: dict[str, int] = field(default_factory=dict)
    least: float = 1.0  # probability of any pair
    most: float = 0.0


def measure(folder: Path, name: str, pairs: int, given: float) -> Network:
    """Ask about pairs of places drawn at random."""
    topology = read(folder, name)
    found = Network(name, len(topology.places), len(topology.cables))
    rng = random.Random(f"reliability/{name}")
    with whence.open() as db:
        db.execute(SCRIPT)
        db.insert("link", [tuple(cable) for cable in topology.cables])
        there = [(a, b) for a, b in sorted(db["reachable"].rows) if a < b]

        def ask(pair: tuple[int, int]) -> Any:
            return db.reliability("reachable", src=pair[0], dst=pair[1], given={"link": given})

        ask(there[0])  # kernels are loaded
        for pair in rng.sample(there, min(pairs, len(there))):
            start = time.perf_counter()
            answer = ask(pair)
            seconds = time.perf_counter() - start
            (found.exact if answer.exact else found.sampled).append(seconds)
            found.methods[answer.method] = found.methods.get(answer.method, 0) + 1
            if answer.exact:
                found.nodes.append(answer.nodes)
            found.least, found.most = min(found.least, answer.probability), max(found.most, answer.probability)
    return found


def show(networks: Sequence[Network], console: Console) -> None:
    """One line a network."""
    table = Table(title="reliability of pairs of places", title_justify="left")
    table.add_column("network")
    for column in ("places", "cables", "exact", "ms median", "ms most", "nodes most", "sampled", "ms median", "likely"):
        table.add_column(column, justify="right")
    for n in networks:
        times = [
            f"{1e3 * statistics.median(n.exact):.1f}" if n.exact else "–",
            f"{1e3 * max(n.exact):.1f}" if n.exact else "–",
            f"{max(n.nodes):,}" if n.nodes else "–",
        ]
        other = f"{1e3 * statistics.median(n.sampled):.1f}" if n.sampled else "–"
        cells = [f"{n.places:,}", f"{n.cables:,}", str(len(n.exact)), *times, str(len(n.sampled)), other]
        table.add_row(n.name, *cells, f"{n.least:.4f} to {n.most:.6f}")
    console.print(table)
