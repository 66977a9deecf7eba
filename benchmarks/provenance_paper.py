"""The experiments of paper 000 (section VIII), run again: DRed, relative, absorption lazy and eager, and our support.

    python -m benchmarks.provenance_paper --quick
    python -m benchmarks.provenance_paper --figure 10,11 --json results/provenance_paper.json

Figures 10 to 16 (`provenance_figures`), each with the paper's four metrics: bytes of provenance a row, communication,
state, and time to convergence. The paper had a cluster; here partitions share one process, so what they send each other
is counted and not waited for, and times are of all their work together. After every step the schemes must have the same
rows, or no figures are printed. A step has a time limit: what passes it "did not finish", as in the paper.

`--plot FOLDER` draws one PNG a figure. The last table is what the project promises about these figures, at full size.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import report
from benchmarks.peers.common import LINK_TABLE, RECURSIONS, installed
from benchmarks.peers.whence_peer import WhencePeer
from benchmarks.provenance_figures import (
    ARRIVAL,
    COST_LINE,
    DEPTH_FIRST,
    EACH_LINE,
    FIGURES,
    MULTI_LINE,
    QUICK,
    RUNS,
    Figure,
    Sizes,
)
from benchmarks.provenance_runs import DisagreementError, Reading
from benchmarks.provenance_schemes import DRED, EAGER, LAZY, SCHEMES
from benchmarks.recursive_peers import DisagreementError as PeersDisagreeError
from benchmarks.recursive_peers import compare, measure
from benchmarks.report import Check, Series
from benchmarks.transit_stub import network, updates

METRICS: tuple[tuple[str, Callable[[Reading, int], float]], ...] = (
    ("provenance, B per row", lambda r, n: r.provenance),
    ("communication, MB a partition", lambda r, n: r.shipped / n / 1e6),
    ("state, MB a partition", lambda r, n: r.state / n / 1e6),
    ("convergence, s", lambda r, n: r.seconds),
)
"""What is plotted; n is the number of partitions."""


class AnnotatedPeer(WhencePeer):
    """Embedded, with the provenance of every row."""

    name = f"Whence, {LAZY}"

    def __init__(self, program: str) -> None:
        recursion = RECURSIONS[program]
        said = SCHEMES[LAZY].said(0)
        sql = recursion.sql.replace(f"VIEW {program} AS", f"VIEW {program} {said} AS")
        self._open(LINK_TABLE + sql, recursion.name, {"link": ("src", "dst", "cost")})


def show(figure: Figure, console: Console) -> None:
    """One table a figure."""
    table = Table(title=f"Figure {figure.number}: {figure.title}", title_justify="left")
    table.add_column(figure.x or "x", justify="right")
    table.add_column("scheme", no_wrap=True)
    for column in ("prov. B/row", "rows shipped", "messages", "KB shipped", "state KB", "seconds"):
        table.add_column(column, justify="right")
    for place, x in enumerate(r.x for r in figure.curves[0].readings):
        table.add_section()
        for i, curve in enumerate(figure.curves):
            r = curve.readings[place]
            label = f"{x:g}" if i == 0 else ""
            if r.missing:
                table.add_row(label, curve.name, *["–"] * 6)
                continue
            cells = [f"{r.provenance:.1f}", f"{r.rows:,}", f"{r.messages:,}", f"{r.shipped / 1e3:,.1f}"]
            within = f" ± {r.within:.4f}" if r.within else ""
            table.add_row(label, curve.name, *cells, f"{r.state / 1e3:,.0f}", f"{r.seconds:.4f}{within}")
    console.print(table)
    for curve in figure.curves:
        for why in dict.fromkeys(r.missing for r in curve.readings if r.missing):
            places = ", ".join(f"{r.x:g}" for r in curve.readings if r.missing == why)
            console.print(f"– {curve.name} at {places}: {why}", style="yellow", markup=False, highlight=False)


def plot(folder: Path, figure: Figure) -> None:
    """Four panels, a line a scheme; what did not finish has no mark."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    picture, panels = plt.subplots(1, 4, figsize=(15, 4))
    for panel, (title, metric) in zip(panels, METRICS, strict=True):
        for place, curve in enumerate(figure.curves):
            there = [r for r in curve.readings if not r.missing]
            values = [metric(r, figure.partitions or int(r.x)) for r in there]
            if len(curve.readings) == 1:
                panel.bar([place] * len(there), values, color=f"C{place}", label=curve.name)
                panel.set_xticks([])
            else:
                panel.plot([r.x for r in there], values, marker="o", color=f"C{place}", label=curve.name)
        if any(value > 0 for line in panel.lines for value in line.get_ydata()):
            panel.set_yscale("symlog" if title.startswith("prov") else "log")
        panel.set_title(title, fontsize=9)
        panel.set_xlabel(figure.x, fontsize=8)
        panel.grid(alpha=0.3)
    picture.suptitle(f"Figure {figure.number}: {figure.title}", fontsize=10)
    picture.legend(*panels[0].get_legend_handles_labels(), loc="lower center", ncols=6, fontsize=7)
    picture.tight_layout(rect=(0, 0.06, 1, 1))
    picture.savefig(folder / f"figure_{figure.number}.png", dpi=110)
    plt.close(picture)


def promises(figures: Sequence[Figure]) -> list[Check]:
    """What the project promises about these figures, where this run measured it."""
    found = {figure.number: figure for figure in figures}
    checks = []
    if "11" in found:
        dred, lazy = (_all(found["11"], name) for name in (DRED, LAZY))
        if dred and lazy:
            for what, of in (("bytes", "shipped"), ("rows", "rows"), ("messages", "messages")):
                there, ours = (sum(getattr(r, of) for r in some) for some in (dred, lazy))
                text = f"a deletion: {what} that DRed ships, times absorption lazy's"
                checks.append(Check(text, there / max(ours, 1), 10.0))
            slower = sum(r.seconds for r in dred) / sum(r.seconds for r in lazy)
            checks.append(Check("a deletion: time of DRed, times absorption lazy's", slower, 1.0))
    if "13d" in found:
        checks += _lazy_against_eager(found["13d"])
    for number in ("15", "15p"):
        if number in found:
            checks += _saved_by_order(found[number])
    for number in ("16d", "16s"):
        if number in found:
            checks += _selections(found[number])
    return checks


def _all(figure: Figure, name: str) -> list[Reading]:
    """A scheme's readings, if all of them finished."""
    curve = figure.curve(name)
    return curve.readings if curve and not any(r.missing for r in curve.readings) else []


def _lazy_against_eager(figure: Figure) -> list[Check]:
    """At the largest dense network that both finished, and where eager is bound to be slowest by its time limit."""
    curve, eager = figure.curve(LAZY), figure.curve(EAGER)
    if curve is None or eager is None:
        return []
    pairs = [pair for pair in zip(curve.readings, eager.readings, strict=True) if not pair[0].missing]
    checks, finished = [], [(lazy, other) for lazy, other in pairs if not other.missing]
    if finished:
        lazy, other = finished[-1]
        for of, ratio in (("bytes", other.shipped / lazy.shipped), ("time", other.seconds / lazy.seconds)):
            checks.append(Check(f"dense, {lazy.x:g} links: {of} of eager, times lazy's", ratio, 10.0))
    bounds = [
        (float(other.missing.split()[-2]) / lazy.seconds, lazy.x)
        for lazy, other in pairs
        if other.missing.startswith("did not finish in")
    ]
    if bounds:
        least, x = max(bounds)
        checks.append(Check(f"dense, {x:g} links: time of eager at least, times lazy's", least, 10.0))
    return checks


def _saved_by_order(figure: Figure) -> list[Check]:
    """For each scheme, where both orders got furthest."""
    checks = []
    for scheme in (LAZY, EAGER):
        curves = [figure.curve(f"{scheme}, {order}") for order in (DEPTH_FIRST, ARRIVAL)]
        both = zip(*(curve.readings for curve in curves if curve), strict=True)
        there = [pair for pair in both if len(pair) == 2 and not any(r.missing for r in pair)]
        if there:
            depth, arrival = there[-1]
            saved = 100 * (1 - depth.provenance / arrival.provenance)
            where = f"{figure.partitions} partition{'s' * (figure.partitions != 1)}, {100 * depth.x:.0f} % of the links"
            checks.append(Check(f"depth first saves % of provenance: {scheme}, {where}", saved, 20.0))
    return checks


def _selections(figure: Figure) -> list[Check]:
    """What single means is open, see benchmarks/README.md; by the other reading there is less to be gained."""
    density = figure.title.rpartition(" ")[2]
    checks = []
    for scheme, line, what in (
        (DRED, COST_LINE, "when selecting by cost alone"),
        (LAZY, COST_LINE, "when selecting by cost alone"),
        (LAZY, EACH_LINE, "with one recursion per aggregate (the other reading)"),
    ):
        multi, single = figure.at(f"{MULTI_LINE}, {scheme}"), figure.at(f"{line}, {scheme}")
        if multi and single:
            text = f"{density}, {scheme}: rows shipped {what}, times multi's"
            checks.append(Check(text, single.rows / multi.rows, 2.0))
    return checks


def against_pathway(count: int, console: Console) -> tuple[list[Series], list[Check]]:
    """Single-link deletions on the 100-node dense network: with full provenance, beside Pathway's bare view."""
    from benchmarks.peers.pathway_peer import PathwayPeer

    net, program = network(100), "reachable"
    stream = updates(net, count + 1)
    every, answers = [], {}
    for peer in (AnnotatedPeer(program), PathwayPeer(program, net.nodes)):
        try:
            with console.status(f"{peer.name}, 100 nodes, single links"):
                series, digests, rows = measure(peer, program, net, stream, verify=True)
        finally:
            peer.close()
        every += series[:1]
        answers[peer.name] = digests, rows
    compare(program, answers)  # raises if they differ
    ours, theirs = every
    ratios: list[tuple[str, Callable[[list[float]], float]]]
    ratios = [("median", statistics.median), ("mean", statistics.fmean)]
    return every, [
        Check(
            f"a deletion, embedded with full provenance: times faster than Pathway, {what}",
            of(theirs.deletes) / of(ours.deletes),
            2.0,
        )
        for what, of in ratios
    ]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.provenance_paper", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--figure", default=",".join(map(str, FIGURES)), help="some of 10 to 16; none: only the peers")
    parser.add_argument("--quick", action="store_true", help="a 25-node network and short limits: that all of it runs")
    parser.add_argument("--schemes", default=",".join(SCHEMES), help=f"some of {', '.join(SCHEMES)}")
    parser.add_argument("--partitions", type=int, help="12, if nothing is said")
    parser.add_argument("--limit", type=float, help="seconds that a step may take")
    parser.add_argument(
        "--runs", type=int, help="of every scheme: times are means with 95 %% intervals; the paper's 10"
    )
    parser.add_argument("--updates", type=int, default=20, help="deletions beside Pathway; 0 leaves it out")
    parser.add_argument("--json", type=Path, help="write all readings to this file")
    parser.add_argument("--plot", type=Path, help=f"draw into this folder (default {report.RESULTS}/paper_000)")
    options = parser.parse_args(arguments)
    options.figure = [int(part) for part in options.figure.split(",") if part.strip() and part.strip() != "none"]
    options.schemes = [part.strip() for part in options.schemes.split(",")]
    for name, asked, known in (("figure", options.figure, FIGURES), ("schemes", options.schemes, tuple(SCHEMES))):
        for one in asked:
            if one not in known:
                parser.error(f"--{name}: {one!r} is not one of {', '.join(map(str, known))}")
    if options.quick:
        options.updates = min(options.updates, 4)
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, save; 1 if answers differ."""
    options = parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else 130)
    chosen = {"partitions": options.partitions, "limit": options.limit, "runs": options.runs}
    chosen["schemes"] = tuple(options.schemes)
    sizes = replace(QUICK if options.quick else Sizes(), **{k: v for k, v in chosen.items() if v is not None})
    figures: list[Figure] = []
    series: list[Series] = []
    checks: list[Check] = []
    start = time.perf_counter()
    try:
        for number in [n for n in options.figure if n != 11 or 10 not in options.figure]:  # they are run together
            with console.status("") as status:
                made = RUNS[number](sizes, status.update)
            figures += made
            for figure in made:
                show(figure, console)
        checks = [] if options.quick else promises(figures)  # they are about the paper's network
        if options.updates and installed("pathway"):
            series, more = against_pathway(options.updates, console)
            report.show(series, console)
            checks += more
    except (DisagreementError, PeersDisagreeError) as wrong:
        console.print(f"[red]the answers differ: {wrong}")
        return 1
    if options.updates and not installed("pathway"):
        console.print("[yellow]not installed, left out: pathway")
    if figures and installed("matplotlib"):
        for figure in figures:
            plot(options.plot or report.RESULTS / "paper_000", figure)
    report.show_checks(checks, console)
    console.print(f"{time.perf_counter() - start:.0f} seconds in all")
    if options.json:
        report.save(options.json, series, checks, asdict(sizes), figures=[asdict(figure) for figure in figures])
    return 0


if __name__ == "__main__":
    sys.exit(main())
