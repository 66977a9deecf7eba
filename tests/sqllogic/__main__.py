"""Run sqllogictest files: `python -m tests.sqllogic FILE… [--as sqlite] [--any-order] [--all]`.

Prints how many statements, queries, views and maintained views passed, were refused or failed, and why.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.sqllogic.run import FAILED, PASSED, REFUSED, Finding, Report, run_files


def main(arguments: list[str] | None = None) -> int:
    """Run the files; return 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.sqllogic", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", nargs="+", type=Path, help="files, or folders that are searched for .test and .slt")
    parser.add_argument("--as", dest="name", default="duckdb", help="the name that skipif and onlyif know us by")
    parser.add_argument(
        "--any-order", action="store_true", help="rows in any order: DuckDB's files count on NULLs first"
    )
    parser.add_argument("--all", action="store_true", help="every place of a reason, not the first alone")
    options = parser.parse_args(arguments)
    found = [path for given in options.files for path in _files(given)]
    if not found:
        parser.error("there are no such files")
    report = run_files(found, (options.name, "whence"), options.any_order)
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(counts(report))
    if report.findings:
        console.print(reasons(report, options.all))
    return 1 if report.of(FAILED) else 0


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(p for p in path.rglob("*") if p.suffix in (".test", ".slt", ".test_slow"))


def counts(report: Report) -> Table:
    """Return a row per kind."""
    table = Table(title="sqllogictest", title_justify="left")
    table.add_column("")
    for verdict in (PASSED, REFUSED, FAILED):
        table.add_column(verdict, justify="right")
    for what in dict.fromkeys(what for what, _ in report.counts):
        table.add_row(what, *(f"{report.counts[what, verdict]:,}" for verdict in (PASSED, REFUSED, FAILED)))
    return table


def reasons(report: Report, every: bool) -> Table:
    """Return a row per reason, the most common first; failures before refusals."""
    groups: dict[tuple[str, str, str], list[Finding]] = defaultdict(list)
    for finding in report.findings:
        groups[finding.verdict, finding.what, _kind(finding.reason)].append(finding)
    table = Table(title="reasons", title_justify="left")
    for column in ("", "what", "times", "reason", "where"):
        table.add_column(column, overflow="fold")
    for (verdict, what, _), some in sorted(groups.items(), key=lambda item: (item[0][0] != FAILED, -len(item[1]))):
        places = ", ".join(f"{f.path.name}:{f.line}" for f in (some if every else some[:1]))
        table.add_row(verdict, what, str(len(some)), escape(some[0].reason[:200]), places)
    return table


def _kind(reason: str) -> str:
    """Return what reasons have in common: no places, names, numbers or rows."""
    return re.sub(r"line \d+, column \d+: |\(near .*|\[.*|['\"].*?['\"]|\d+", "", reason, flags=re.DOTALL)[:80]


if __name__ == "__main__":
    sys.exit(main())
