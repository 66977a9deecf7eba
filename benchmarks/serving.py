"""What a served database costs: events in, changes out to clients, clients that come back, beside brokers and queries.

    python -m benchmarks.serving --quick
    python -m benchmarks.serving --only ingest,latency --peers 'Whence,NATS core' --json results/serving.json

| measurement | what is measured | module |
|---|---|---|
| `ingest` | events a second into 100 distinct filter and aggregate views that a client follows | `serving_flow` |
| `single` | single acknowledged durable inserts a second from 16 connections | |
| `latency` | publish to client at 2,000 a second with 10 views | |
| `stalled` | what a client that reads nothing for a minute costs, in alternating rounds | |
| `fanout` | messages a second to 1,000 clients of one view; what they cost while nothing happens | `serving_fanout` |
| `traders` | messages and bytes of an alert, against raw trades | `serving_absence` |
| `away` | being current again after 9 million events | |
| `memory` | the server's memory from 2 to 10 million events over the same keys | |
| `restart` | from listening again after kill -9 until every client is current | |

Peers are NATS (core, and JetStream that syncs each message; clients compute their views with NumPy) and PostgreSQL
(LISTEN, NOTIFY, and the views' queries again). All servers are real processes on loopback, and so is each measuring
client. Peers take turns, each alone on the machine. What a client ends with must be what DuckDB computes from the same
trades; a run whose peers disagree prints no figures. Nothing is extrapolated: `--scale` makes a run smaller, and the
figures say what was run.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from benchmarks import report
from benchmarks.peers.common import installed
from benchmarks.serving_absence import away, memory, restart, traders
from benchmarks.serving_fanout import fanout
from benchmarks.serving_flow import ingest, latency, single, stalled
from benchmarks.serving_processes import FailedError
from benchmarks.serving_run import PEERS, QUICK, Run, Section, Sizes

MEASUREMENTS: dict[str, Callable[[Run], Section]] = {
    "ingest": ingest,
    "single": single,
    "latency": latency,
    "fanout": fanout,
    "traders": traders,
    "away": away,
    "stalled": stalled,
    "memory": memory,
    "restart": restart,
}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    summary = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=summary)
    parser.add_argument("--quick", action="store_true", help="as little as possible: a check that all of it runs")
    parser.add_argument("--scale", type=float, default=1.0, help="times the events, clients and seconds (default 1)")
    parser.add_argument("--rounds", type=int, help="turns of each peer, where there are several")
    parser.add_argument("--only", type=lambda t: t.split(","), default=list(MEASUREMENTS), help=",".join(MEASUREMENTS))
    parser.add_argument("--peers", type=lambda t: t.split(","), default=list(PEERS), help=", ".join(PEERS))
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()), help="where servers keep their files")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--plot", type=Path, help=f"draw to this file (default {report.RESULTS}/serving.png)")
    options = parser.parse_args(arguments)
    for flag, known in (("only", MEASUREMENTS), ("peers", PEERS)):
        for name in getattr(options, flag):
            if name not in known:
                parser.error(f"--{flag}: {name!r} is not one of {', '.join(known)}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, save; 1 if a peer's answer is wrong or a server fails."""
    from benchmarks.ledger import DisagreementError  # see `serving_data.compare`

    options = parse(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that servers are stopped and their folders deleted
    console = Console(width=None if sys.stdout.isatty() else 140)
    sizes = QUICK if options.quick else Sizes().scaled(options.scale)
    if options.rounds is not None:
        sizes = Sizes(**asdict(sizes) | {"rounds": options.rounds})
    for name in options.peers:
        if reason := PEERS[name].missing():
            console.print(f"[yellow]{name} is left out: {reason}")
    whole = Section()
    run = Run(sizes, console, options.dir, tuple(options.peers))
    try:
        for name in options.only:
            whole.add(MEASUREMENTS[name](run))
    except (DisagreementError, FailedError) as failure:
        console.print(f"[red]{failure}", markup=True, highlight=False)
        return 1
    report.show_figures("serving", whole.figures, console)
    for note in whole.notes:
        console.print(note, highlight=False)
    report.show_checks(whole.checks, console)
    if installed("matplotlib"):
        report.plot_figures(options.plot or report.RESULTS / "serving.png", whole.figures)
    if options.json:
        kept = [asdict(f) | {"median": {peer: f.of(peer) for peer in f.samples}} for f in whole.figures]
        settings = asdict(sizes) | {"quick": options.quick, "scale": options.scale, "only": options.only}
        report.save(options.json, [], whole.checks, settings, figures=kept, notes=whole.notes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
