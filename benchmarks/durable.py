"""What durability costs: Whence and SQLite with the same rows on the same disk, each commit on stable storage.

    python -m benchmarks.durable --quick
    python -m benchmarks.durable --dir /mnt/disk --json results/durable.json

| measurement | what is done |
|---|---|
| single rows | one event a transaction, from one thread and from 16, without views and with three (`ledger`) |
| batches | 10,000 events a transaction: Arrow for Whence, tuples for SQLite, made beforehand or meanwhile |
| reopening | a million events and three views, after a clean end and after kill -9, against making the views anew |
| size | bytes a row on disk, bytes written a row, and how long a commit waits for a snapshot |

(`reopening` has the last two.) The peers take turns, each with the same rows, alone even row by row; a figure is the
median over the rounds, and so is a ratio over the quotients of each round, since the disk is not equally fast at all
times. At the end all must hold the same rows, and their views too; a difference ends the run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

from benchmarks import ledger, reopening, report
from benchmarks.ledger import Ledger, SqliteLedger, WhenceLedger
from benchmarks.peers.common import installed
from benchmarks.report import WHENCE, Check, Figure

SQLITE = "SQLite"
LOCKED = "SQLite, one connection"
CONVERTED = "SQLite, from Arrow"
THREADS = 16
BATCH = 10_000
PARTS = ("single", "batches", "reopen")
Work = Callable[[Ledger, pa.Table], float]


@dataclass(frozen=True)
class Sizes:
    """How much is done."""

    rounds: int = 11
    alone: int = 40  # commits a round from one thread
    together: int = 320  # from 16
    accounts: int = 10_000
    base_rows: int = 1_000_000
    nodes: int = 1_000  # of the network whose closure is the recursive view
    opens: int = 3
    tail: int = 300  # commits behind the last image when the process is killed
    pauses: int = 400  # commits while no snapshot is taken


QUICK = Sizes(rounds=2, alone=4, together=32, accounts=100, base_rows=20_000, nodes=100, opens=1, tail=5, pauses=20)


@contextmanager
def peers(
    folder: Path, accounts: int, views: bool, others: dict[str, dict[str, Any]], keyed: bool = True
) -> Iterator[list[Ledger]]:
    """Whence and SQLite in several ways, each with its files in a folder of its own; compared at the end."""
    tables = ledger.base(accounts)
    with tempfile.TemporaryDirectory(dir=folder) as here, ExitStack() as ending:
        every: list[Ledger] = [WhenceLedger(Path(here), tables, views, keyed)]
        every += [SqliteLedger(Path(here), tables, views, keyed, name=name, **how) for name, how in others.items()]
        for one in every:
            ending.callback(one.close)
        yield every
        ledger.agree({one.name: one.digests() for one in every})


def race(figure: Figure, every: Sequence[Ledger], blocks: Sequence[pa.Table], work: Work, at_once: int) -> Figure:
    """Let the peers take the same blocks in turns, so many rows at once; the first block warms them up."""
    for turn, block in enumerate(blocks):
        seconds = dict.fromkeys((one.name for one in every), 0.0)
        for first in range(0, len(block), at_once):
            for one in every if (turn + first) % 2 else every[::-1]:
                seconds[one.name] += work(one, block.slice(first, at_once))
        if turn:
            for name, spent in seconds.items():
                figure.samples.setdefault(name, []).append(len(block) / spent)
    return figure


def single_rows(folder: Path, sizes: Sizes, views: bool) -> Iterator[Figure]:
    """Commits a second, from one thread and from many."""
    how: dict[str, dict[str, Any]] = {SQLITE: {"threads": THREADS}, LOCKED: {"locked": True}}
    with peers(folder, sizes.accounts, views, how) as every:
        first = 0
        for threads, count in ((1, sizes.alone), (THREADS, sizes.together)):
            blocks = _blocks(first, count, sizes)
            first += sum(map(len, blocks))
            figure = Figure(f"{_threads(threads)}, {_views(views)}", "commits/s")
            at_once = 1 if threads == 1 else count  # alone they can take turns row by row
            yield race(figure, every, blocks, partial(ledger.commits, threads=threads), at_once)


def batches(folder: Path, sizes: Sizes, views: bool, keyed: bool = True) -> Figure:
    """Rows a second, in batches."""
    with peers(folder, sizes.accounts, views, {SQLITE: {}, CONVERTED: {"converts": True}}, keyed) as every:
        what = _views(views) if keyed else "no views and no key"
        figure = Figure(f"batches of {BATCH:,}, {what}", "rows/s")
        return race(figure, every, _blocks(0, BATCH, sizes), ledger.batches, BATCH)


def _blocks(first: int, count: int, sizes: Sizes) -> list[pa.Table]:
    return [ledger.events(first + turn * count, count, sizes.accounts) for turn in range(sizes.rounds + 1)]


def _threads(count: int) -> str:
    return "one thread" if count == 1 else f"{count} threads"


def _views(there: bool) -> str:
    return "three views" if there else "no views"


def promises(figures: Sequence[Figure]) -> list[Check]:
    """What the project promises about commits and batches."""
    wanted = {"one thread": 0.5, f"{THREADS} threads": 1.0, f"batches of {BATCH:,}": 3.0}
    checks = []
    for figure in figures:
        kind = figure.what.rpartition(", ")[0]
        if kind in wanted:
            for peer in [name for name in figure.samples if name != WHENCE]:
                checks.append(Check(f"{figure.what}: times {peer}", figure.times(WHENCE, peer), wanted[kind]))
    return checks


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.durable", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="a few commits and 20,000 rows: a check that all of it runs"
    )
    parser.add_argument("--parts", type=lambda t: t.split(","), default=list(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--dir", type=Path, help="where the databases are made: the disk to measure (default: here)")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--plot", type=Path, help=f"draw to this file (default {report.RESULTS}/durable.png)")
    options = parser.parse_args(arguments)
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"--parts: {part!r} is not one of {', '.join(PARTS)}")
    return options


def measure(folder: Path, sizes: Sizes, parts: Sequence[str], console: Console) -> tuple[list[Figure], list[Check]]:
    """All figures and promises."""
    figures: list[Figure] = []
    if "batches" in parts:
        with console.status("batches, no key"):
            figures.append(batches(folder, sizes, views=False, keyed=False))
    for views in (False, True):
        if "single" in parts:
            with console.status(f"single rows, {_views(views)}"):
                figures += single_rows(folder, sizes, views)
        if "batches" in parts:
            with console.status(f"batches, {_views(views)}"):
                figures.append(batches(folder, sizes, views))
    checks = promises(figures)
    if "reopen" in parts:
        with console.status("reopening"):
            found, promised = reopening.run(
                folder,
                rows=sizes.base_rows,
                accounts=sizes.accounts,
                nodes=sizes.nodes,
                opens=sizes.opens,
                tail=sizes.tail,
                pauses=sizes.pauses,
            )
        figures += found
        checks += promised
    return figures, checks


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, save; 1 if the peers disagree."""
    options = parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else 120)
    sizes = QUICK if options.quick else Sizes()
    with tempfile.TemporaryDirectory(prefix="durable-", dir=options.dir or Path.cwd()) as folder:
        try:
            figures, checks = measure(Path(folder), sizes, options.parts, console)
        except ledger.DisagreementError as difference:
            console.print(f"[red]{difference}")
            return 1
    report.show_figures("durable state", figures, console)
    report.show_checks(checks, console)
    if installed("matplotlib"):
        report.plot_figures(options.plot or report.RESULTS / "durable.png", figures)
    if options.json:
        found = [asdict(figure) | {"median": {peer: figure.of(peer) for peer in figure.samples}} for figure in figures]
        settings = asdict(sizes) | {"quick": options.quick, "parts": options.parts, "dir": str(options.dir or ".")}
        report.save(options.json, [], checks, settings, figures=found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
