"""What one link deleted or inserted costs in a recursive view: Whence, Pathway, DuckDB and SciPy on the same streams.

    python -m benchmarks.recursive_peers --quick
    python -m benchmarks.recursive_peers --nodes 100,400,800,1600 --json results/recursive.json

Four views over the papers' transit-stub networks (see `transit_stub`): reachable, cheapest cost with MIN inside the
recursion, same generation, and reachable written non-linearly. Every peer gets the same links in one batch, then the
same single-link deletions, at least half of them bridges, each followed by its re-insertion. The first pair warms
each peer up and is not counted. Up to `--verify` nodes all answers are compared after every update, above it at the
end; a difference ends the run. A peer is left out above the size its `LIMITS` give, because a run should end within
minutes.

`--state-growth`, `--memory` and `--startup` measure Whence alone; see `limits`.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import cast

import numpy as np
from rich.console import Console

from benchmarks import limits, report
from benchmarks.peers.common import PARTS, RECURSIONS, Change, Digest, Peer, Rows, installed
from benchmarks.report import Check, Series
from benchmarks.transit_stub import Network, Update, network, updates

PEERS = ("whence", "pathway", "duckdb", "scipy")

LIMITS = {
    ("pathway", "reachable"): 400,
    ("pathway", "cheapest"): 400,
    ("pathway", "same_generation"): 400,
    ("pathway", "reachable_nonlinear"): 100,
    ("duckdb", "reachable"): 800,
    ("duckdb", "cheapest"): 400,
    ("duckdb", "same_generation"): 400,
    ("duckdb", "reachable_nonlinear"): 800,
}
"""The largest network a peer is given unless `--no-limits`; what is not named has no limit."""


class DisagreementError(Exception):
    """Two peers gave different answers: the figures would mean nothing."""


def make_peer(name: str, program: str, nodes: int) -> Peer:
    """A peer by name; imported only when asked for, as peers are optional."""
    makers: dict[str, Callable[[], Peer]] = {
        "whence": lambda: _whence(program, nodes),
        "pathway": lambda: _pathway(program, nodes),
        "duckdb": lambda: _duckdb(program, nodes),
        "scipy": lambda: _scipy(program, nodes),
    }
    return makers[name]()


def _whence(program: str, nodes: int) -> Peer:
    from benchmarks.peers.whence_peer import WhencePeer

    return WhencePeer(program, nodes)


def _pathway(program: str, nodes: int) -> Peer:
    from benchmarks.peers.pathway_peer import PathwayPeer

    return PathwayPeer(program, nodes)


def _duckdb(program: str, nodes: int) -> Peer:
    from benchmarks.peers.duckdb_peer import DuckdbPeer

    return DuckdbPeer(program, nodes)


def _scipy(program: str, nodes: int) -> Peer:
    from benchmarks.peers.scipy_peer import ScipyPeer

    return ScipyPeer(program, nodes)


def measure(
    peer: Peer, program: str, net: Network, stream: Sequence[Update], verify: bool
) -> tuple[list[Series], list[Digest], Rows | None]:
    """Run one peer through a load and a stream; the digests are of every state if `verify`, else of the last one."""
    load = peer.load({"link": np.array(net.links)})
    readings = report.readings(peer, RECURSIONS[program].title, net.nodes, load)
    digests = [peer.digest()] if verify else []
    for i, update in enumerate(stream):
        gc.collect(0)
        seconds = peer.update([Change("link", update.sign, np.array([update.link]))])
        if i >= 2:
            for attribute, series in readings.items():
                times = series.deletes if update.sign < 0 else series.inserts
                times.append(getattr(peer, attribute) if attribute else seconds)
        if verify or i == len(stream) - 1:
            digests.append(peer.digest())
    for series in readings.values():
        series.notes["rows"] = digests[-1].rows
        series.notes["changed"] = sum(a != b for a, b in pairwise(digests)) if verify else None
    return list(readings.values()), digests, peer.rows() if verify else None


def compare(program: str, answers: dict[str, tuple[list[Digest], Rows | None]]) -> None:
    """Raise `DisagreementError` unless all peers had the same answers, step by step."""
    first, (expected, expected_rows) = next(iter(answers.items()))
    for name, (digests, rows) in answers.items():
        for step, (a, b) in enumerate(zip(expected, digests, strict=True)):
            if a != b:
                raise DisagreementError(f"{program}, state {step}: {first} has {a}, {name} has {b}")
        if rows is not None and expected_rows is not None and _set(rows) != _set(expected_rows):
            raise DisagreementError(f"{program}: {first} and {name} end with different rows")


def _set(rows: Rows) -> set[tuple[int, ...]]:
    return {tuple(row) for row in rows.tolist()}


def run(options: argparse.Namespace, console: Console) -> list[Series]:
    """All programs, sizes and peers asked for."""
    every: list[Series] = []
    for program in options.programs:
        for nodes in options.nodes:
            net = network(nodes, options.density, options.seed)
            stream = updates(net, options.updates + 1, options.seed)
            answers: dict[str, tuple[list[Digest], Rows | None]] = {}
            for name in options.peers:
                if options.limits and nodes > LIMITS.get((name, program), nodes):
                    continue
                with console.status(f"{program}, {nodes} nodes, {name}"):
                    peer = make_peer(name, program, nodes)
                    try:
                        series, *answer = measure(peer, program, net, stream, verify=nodes <= options.verify)
                    finally:
                        peer.close()
                answers[name] = cast(tuple[list[Digest], Rows | None], tuple(answer))
                every += series
            if answers:
                compare(program, answers)
    return every


def promises(every: Sequence[Series]) -> list[Check]:
    """What the project promises about these figures, where this run measured it."""
    linear, cheapest = RECURSIONS["reachable"].title, RECURSIONS["cheapest"].title
    wanted = [
        ("reachable, 400 nodes: times faster than Pathway", linear, 400, "Pathway", False, 20.0),
        ("reachable, 800 nodes: times faster than SciPy", linear, 800, "SciPy recompute", False, 1.0),
        ("the same, its matrix and difference", linear, 800, PARTS["with_difference"], False, 1.0),
        ("the same, its matrix alone", linear, 800, PARTS["matrix_only"], False, 1.0),
        ("reachable, 1,600 nodes: times faster than SciPy", linear, 1600, "SciPy recompute", False, 1.0),
        ("the same, its matrix and difference", linear, 1600, PARTS["with_difference"], False, 1.0),
        ("the same, its matrix alone", linear, 1600, PARTS["matrix_only"], False, 1.0),
        ("cheapest, 400 nodes: times faster than Pathway", cheapest, 400, "Pathway", False, 40.0),
        ("cheapest, 400 nodes: times faster than SciPy", cheapest, 400, "SciPy recompute", False, 2.0),
        ("loading reachable, 400 nodes: times faster than Pathway", linear, 400, "Pathway", True, 10.0),
    ]
    found = [(what, report.ratio(every, w, n, peer, load=load), least) for what, w, n, peer, load, least in wanted]
    return [Check(what, measured, least) for what, measured, least in found if measured is not None]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""

    def listed(text: str) -> list[str]:
        return [part.strip() for part in text.split(",") if part.strip()]

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.recursive_peers", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--quick", action="store_true", help="100 nodes, 4 deletions: a check that all of it runs")
    parser.add_argument("--nodes", type=lambda t: [int(n) for n in listed(t)], default=[100, 400, 800, 1600])
    parser.add_argument("--peers", type=listed, default=list(PEERS), help=f"some of {','.join(PEERS)}")
    parser.add_argument("--programs", type=listed, default=list(RECURSIONS), help=f"some of {','.join(RECURSIONS)}")
    parser.add_argument("--updates", type=int, default=20, help="deletions, each followed by its re-insertion")
    parser.add_argument("--density", choices=("dense", "sparse"), default="dense")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verify", type=int, default=100, help="up to this many nodes compare after every update")
    parser.add_argument("--no-limits", dest="limits", action="store_false", help="give every peer every size")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--plot", type=Path, help=f"draw to this file (default {report.RESULTS}/recursive_peers.png)")
    parser.add_argument("--state-growth", action="store_true", help="Whence alone: ten times the unrelated state")
    parser.add_argument("--memory", action="store_true", help="Whence alone: bytes per row of a million-row view")
    parser.add_argument("--startup", action="store_true", help="Whence alone: from import to the first answer")
    options = parser.parse_args(arguments)
    for name, known in (("peers", PEERS), ("programs", tuple(RECURSIONS))):
        for asked in getattr(options, name):
            if asked not in known:
                parser.error(f"--{name}: {asked!r} is not one of {', '.join(known)}")
    if options.quick:
        options.nodes, options.updates = [100], 4
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, save; 1 if answers differ."""
    options = parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else 120)
    missing = [name for name in options.peers if not installed(name)]
    if missing:
        console.print(f"[yellow]not installed, left out: {', '.join(missing)}")
        options.peers = [name for name in options.peers if name not in missing]
    every: list[Series] = []
    checks: list[Check] = []
    if options.state_growth or options.memory or options.startup:
        checks = limits.run(
            growth=options.state_growth, memory=options.memory, startup=options.startup, quick=options.quick
        )
    else:
        try:
            every = run(options, console)
        except DisagreementError as wrong:
            console.print(f"[red]the answers differ: {wrong}")
            return 1
        checks = promises(every)
        report.show(every, console)
        if installed("matplotlib"):
            report.plot(options.plot or report.RESULTS / "recursive_peers.png", every)
    report.show_checks(checks, console)
    if options.json:
        settings = {key: value for key, value in vars(options).items() if key not in ("json", "plot")}
        report.save(options.json, every, checks, settings)
    return 0


if __name__ == "__main__":
    sys.exit(main())
