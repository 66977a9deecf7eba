"""What delivery over several brokers costs: events through three servers in a row, and what need not be sent at all.

    python -m benchmarks.delivery --quick
    python -m benchmarks.delivery --only flow,latency --peers 'Whence,NATS core' --json results/delivery.json

| measurement | what is measured | module |
|---|---|---|
| `flow` | events a second in batches over three brokers, with 100 distinct subscriptions | `delivery_flow` |
| `steady` | at 30,000 a second: whether queues stay flat | |
| `latency` | publish to client at 2,000 a second | |
| `kill` | kill -9 of the middle broker: until a client is current again | |
| `curiosity` | messages and bytes that are not sent since no view can use them | `delivery_curiosity` |
| `gaps` | work a message, and memory by the number of gaps, from 10^4 to 10^7 events | `delivery_gaps` |

Peers of the first four are NATS servers in a row (leaf nodes): core NATS, and JetStream at the first, which syncs each
message; their clients compute their views with NumPy. All servers are real processes on loopback, and so is each
measuring client. Peers take turns, each alone on the machine. What a client ends with must be what DuckDB computes from
the same trades; a run whose peers disagree prints no figures. Nothing is extrapolated: `--scale` makes a run smaller,
and the figures say what was run.
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
from benchmarks.delivery_curiosity import curiosity
from benchmarks.delivery_flow import flow, kill, latency, steady
from benchmarks.delivery_gaps import gaps
from benchmarks.delivery_run import PEERS, QUICK, Curve, Run, Section, Sizes
from benchmarks.peers.common import installed
from benchmarks.serving_processes import FailedError

MEASUREMENTS: dict[str, Callable[[Run], Section]] = {
    "flow": flow,
    "steady": steady,
    "latency": latency,
    "kill": kill,
    "curiosity": curiosity,
    "gaps": gaps,
}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    summary = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.delivery", description=summary)
    parser.add_argument("--quick", action="store_true", help="as little as possible: a check that all of it runs")
    parser.add_argument("--scale", type=float, default=1.0, help="times the events and seconds (default 1)")
    parser.add_argument("--rounds", type=int, help="turns of each peer")
    parser.add_argument("--only", type=lambda t: t.split(","), default=list(MEASUREMENTS), help=",".join(MEASUREMENTS))
    parser.add_argument("--peers", type=lambda t: t.split(","), default=list(PEERS), help=", ".join(PEERS))
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()), help="where servers keep their files")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--plot", type=Path, help=f"draw to this file (default {report.RESULTS}/delivery.png)")
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
        console.print(f"{failure}", style="red", markup=False, highlight=False)
        return 1
    report.show_figures("delivery", whole.figures, console)
    for note in whole.notes:
        console.print(note, highlight=False)
    report.show_checks(whole.checks, console)
    if installed("matplotlib"):
        draw(options.plot or report.RESULTS / "delivery.png", whole)
    if options.json:
        kept = [asdict(f) | {"median": {peer: f.of(peer) for peer in f.samples}} for f in whole.figures]
        settings = asdict(sizes) | {"quick": options.quick, "scale": options.scale, "only": options.only}
        curves = [asdict(curve) for curve in whole.curves]
        report.save(options.json, [], whole.checks, settings, figures=kept, notes=whole.notes, curves=curves)
    return 0


def draw(path: Path, section: Section) -> None:
    """Draw the curves, one panel for each pair of axes; without any, the figures as bars."""
    if not section.curves:
        report.plot_figures(path, section.figures)
        return
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    panels: dict[str, list[Curve]] = {}
    for curve in section.curves:
        panels.setdefault(curve.panel, []).append(curve)
    picture, places = plt.subplots(1, len(panels), figsize=(4.4 * len(panels), 3.8), squeeze=False)
    for place, (title, curves) in zip(places[0], panels.items(), strict=True):
        for curve in curves:
            place.plot([x for _, x, _ in curve.points], [y for _, _, y in curve.points], marker="o", label=curve.name)
            for label, x, y in curve.points:
                place.annotate(label, (x, y), textcoords="offset points", xytext=(4, 4), fontsize=6)
            place.set_xlabel(curve.x)
            place.set_ylabel(curve.y)
        place.set_xscale("symlog" if any(x <= 0 for curve in curves for _, x, _ in curve.points) else "log")
        place.set_yscale("log" if all(y > 0 for curve in curves for _, _, y in curve.points) else "symlog")
        place.set_title(title, fontsize=9)
        place.grid(alpha=0.3)
        place.legend(fontsize=7)
    picture.tight_layout()
    picture.savefig(path, dpi=130)
    plt.close(picture)


if __name__ == "__main__":
    sys.exit(main())
