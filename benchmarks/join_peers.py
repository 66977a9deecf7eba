"""What a batch of mixed updates costs in a three-way join with GROUP BY: Whence, DuckDB recomputing, and Pathway.

    python -m benchmarks.join_peers --quick
    python -m benchmarks.join_peers --items 1000000 --json results/join.json

A million items of a hundred thousand orders of ten thousand customers, revenue by region; batches of 1,000
insertions, deletions and updates over all three tables (see `star`), each batch one transaction. Whence and DuckDB
get Arrow, Pathway its Python connector. The first batch warms each peer up and is not counted; answers are compared
after every batch, and a difference ends the run. DuckDB's time, like Whence's, is that of the batch and the
answer; its query alone, and Pathway's time after its rows were handed over, stand in lines of their own.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import report
from benchmarks.peers.common import PARTS, Change, Digest, Peer, Rows, installed
from benchmarks.report import Check, Series
from benchmarks.star import COLUMNS, QUERY, SCRIPT, VIEW, Star

PEERS = ("whence", "duckdb", "pathway")
WORKLOAD = "three-way join with GROUP BY"


def make_peer(name: str) -> Peer:
    """A peer by name; imported only when asked for, as peers are optional."""
    makers: dict[str, Callable[[], Peer]] = {"whence": _whence, "duckdb": _duckdb, "pathway": _pathway}
    return makers[name]()


def _whence() -> Peer:
    from benchmarks.peers.whence_peer import WhencePeer

    class WhenceJoin(WhencePeer):
        def __init__(self) -> None:
            self._open(f"{SCRIPT} CREATE VIEW {VIEW} AS {QUERY};", VIEW, COLUMNS)

    return WhenceJoin()


def _duckdb() -> Peer:
    from benchmarks.peers.joins import DuckdbJoin

    return DuckdbJoin()


def _pathway() -> Peer:
    from benchmarks.peers.joins import PathwayJoin

    return PathwayJoin()


def measure(peer: Peer, tables: dict[str, Rows], batches: Sequence[list[Change]]) -> tuple[list[Series], list[Digest]]:
    """Run one peer through the load and all batches; its series, other readings of them, and all its answers."""
    readings = report.readings(peer, WORKLOAD, len(tables["item"]), peer.load(tables))
    digests = [peer.digest()]
    for i, batch in enumerate(batches):
        gc.collect(0)
        seconds = peer.update(batch)
        if i:
            for attribute, series in readings.items():
                series.inserts.append(getattr(peer, attribute) if attribute else seconds)
        digests.append(peer.digest())
    return list(readings.values()), digests


def promises(every: Sequence[Series], size: int) -> list[Check]:
    """What the project promises about these figures; only a run with a million items can judge."""
    wanted = [
        ("join, batches of 1,000: times faster than DuckDB", "DuckDB recompute", 20.0),
        ("the same, DuckDB's query alone", PARTS["recompute"], 20.0),
        ("join, batches of 1,000: times faster than Pathway", "Pathway", 1.0),
        ("the same, Pathway after commit", PARTS["since_commit"], 1.0),
    ]
    found = [(what, report.ratio(every, WORKLOAD, size, peer), least) for what, peer, least in wanted]
    return [Check(what, measured, least) for what, measured, least in found if measured is not None]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.join_peers", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="20,000 items, 4 batches: a check that all of it runs")
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=1_000)
    parser.add_argument("--peers", type=lambda t: t.split(","), default=list(PEERS), help=f"some of {','.join(PEERS)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--plot", type=Path, help=f"draw to this file (default {report.RESULTS}/join_peers.png)")
    options = parser.parse_args(arguments)
    for name in options.peers:
        if name not in PEERS:
            parser.error(f"--peers: {name!r} is not one of {', '.join(PEERS)}")
    if options.quick:
        options.items, options.batches = 20_000, 4
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, save; 1 if answers differ."""
    options = parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else 120)
    missing = [name for name in options.peers if not installed(name)]
    if missing:
        console.print(f"[yellow]not installed, left out: {', '.join(missing)}")
    star = Star(options.items, options.seed)
    tables = dict(star.tables)
    batches = [star.batch(options.batch_size) for _ in range(options.batches + 1)]
    every: list[Series] = []
    expected: list[Digest] | None = None
    for name in (name for name in options.peers if name not in missing):
        with console.status(name):
            peer = make_peer(name)
            try:
                series, digests = measure(peer, tables, batches)
            finally:
                peer.close()
        every += series
        if expected is not None and digests != expected:
            console.print(f"[red]the answers of {name} differ from those of {options.peers[0]}")
            return 1
        expected = digests
    checks = promises(every, options.items)
    report.show(every, console, unit="items", split=False)
    report.show_checks(checks, console)
    if every and installed("matplotlib"):
        report.plot(options.plot or report.RESULTS / "join_peers.png", every, unit="items")
    if options.json:
        settings = {key: value for key, value in vars(options).items() if key not in ("json", "plot")}
        report.save(options.json, every, checks, settings)
    return 0


if __name__ == "__main__":
    sys.exit(main())
