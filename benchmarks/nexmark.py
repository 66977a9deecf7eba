"""What a batch of events costs for the queries of Nexmark kept as views, beside DuckDB asking them again.

    python -m benchmarks.nexmark --quick
    python -m benchmarks.nexmark --events 1000000 --refresh 10 --json results/nexmark.json

Persons, auctions and bids come in the proportions of Nexmark's generator (`nexmark_data`); a batch is one transaction.
`nexmark_queries.LEFT_OUT` says which of its 23 queries cannot be views, and why. Answers are compared after each batch.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from benchmarks import maintained, report
from benchmarks.nexmark_data import SCRIPT, Nexmark
from benchmarks.nexmark_queries import LEFT_OUT, QUERIES


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nexmark", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="5,000 events, two batches: a check that all of it runs")
    parser.add_argument("--events", type=int, default=100_000, help="before the first batch")
    parser.add_argument("--refresh", type=int, default=5, help="batches")
    parser.add_argument("--batch", type=int, default=1_000, help="events per batch")
    parser.add_argument("--queries", type=lambda t: t.split(","), help="some of q0,…,q22")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args(arguments)
    if options.quick:
        options.events, options.refresh, options.batch = 5_000, 2, 500
    for name in options.queries or ():
        if name not in QUERIES:
            parser.error(f"--queries: {name}: {LEFT_OUT.get(name, 'there is none of that name')}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, save; 1 if an answer differs or a query cannot be kept."""
    options = parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else 120)
    data = Nexmark(options.seed)
    tables = {**data.events(options.events), "side": data.side()}
    wanted = {n: q for n, q in QUERIES.items() if options.queries is None or n in options.queries}
    refreshes = data.refreshes(1 + options.refresh, options.batch)
    kept = maintained.run(wanted, SCRIPT, tables, refreshes, {}, console, warm=1)
    maintained.show(kept, f"Nexmark, {options.events:,} events, batches of {options.batch:,}", console)
    for name, why in LEFT_OUT.items():
        console.print(f"{name} is left out: {why}")
    if options.json:
        settings = {key: value for key, value in vars(options).items() if key != "json"}
        report.save(options.json, [], [], settings, rows=options.events, queries=[asdict(k) for k in kept])
    return 1 if any(k.problem for k in kept) else 0


if __name__ == "__main__":
    sys.exit(main())
