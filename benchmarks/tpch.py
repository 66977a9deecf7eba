"""What a refresh costs for each of TPC-H's 22 queries kept as a view, beside DuckDB asking the query again.

    python -m benchmarks.tpch --quick
    python -m benchmarks.tpch --scale 0.1 --refresh 5 --json results/tpch.json

Data and refresh streams are made here (`tpch_data`), after the specification's distributions: RF1 puts in 1,500 orders
with their lines at scale 1, RF2 takes out as many; each is one transaction. Money is DECIMAL, so answers are compared
exactly, after every refresh; AVG and quotients are DOUBLE, compared up to `maintained.TOLERANCE`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from benchmarks import maintained, report
from benchmarks.tpch_data import SCRIPT, Tpch
from benchmarks.tpch_queries import queries

KEYS = {"orders": "o_orderkey", "lineitem": "l_orderkey"}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tpch", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="scale 0.001, one refresh: a check that all of it runs")
    parser.add_argument("--scale", type=float, default=0.01, help="1 is 6 million lines")
    parser.add_argument("--refresh", type=int, default=3, help="pairs of RF1 and RF2")
    parser.add_argument("--queries", type=lambda t: t.split(","), help="some of q1,…,q22")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args(arguments)
    if options.quick:
        options.scale, options.refresh = 0.001, 1
    unknown = [name for name in options.queries or () if name not in queries(options.scale)]
    if unknown:
        parser.error(f"--queries: there is no {', '.join(unknown)}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, save; 1 if an answer differs or a query cannot be kept."""
    options = parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else 120)
    data = Tpch(options.scale, options.seed)
    wanted = {n: q for n, q in queries(options.scale).items() if options.queries is None or n in options.queries}
    refreshes = data.refreshes(1 + options.refresh)
    kept = maintained.run(wanted, SCRIPT, data.tables, refreshes, KEYS, console, warm=2)
    lines = data.tables["lineitem"].num_rows
    maintained.show(kept, f"TPC-H, scale {options.scale:g}: {lines:,} lines, {options.refresh} x RF1 and RF2", console)
    if options.json:
        settings = {key: value for key, value in vars(options).items() if key != "json"}
        report.save(options.json, [], [], settings, rows=lines, queries=[asdict(k) for k in kept])
    return 1 if any(k.problem for k in kept) else 0


if __name__ == "__main__":
    sys.exit(main())
