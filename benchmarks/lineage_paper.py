"""The experiments of paper 001 (section 6), run again: no provenance, lineage uncompressed and adaptive, covering.

    python -m benchmarks.lineage_paper --quick
    python -m benchmarks.lineage_paper --figure 12,13 --json results/lineage_paper.json

Figures 12 to 17 (`lineage_figures`). All modes get the same batches, in turns; a time is the best of the rounds, and
the median of the rounds' ratios and the ratio of CPU seconds stand beside it: others may be using the machine. Modes
must have the same results, and the same provenance where it is retrieved, or no figures are printed. The paper's
*Single* is `ids`, its *Optimized* is `adaptive`, its *Reduced-Eager* is lineage, its *Replay-Lazy* is `covering`.
`--plot FOLDER` draws one PNG a figure, with the paper's ratios where its text has them. The last table is what the
project promises about these figures, at full size.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import report
from benchmarks.lineage_figures import FIGURES, PAPER, QUICK, RETRIEVAL, RUNS, Sizes
from benchmarks.lineage_networks import ADAPTIVE, COVERING, NONE, SINGLE
from benchmarks.lineage_runs import DisagreementError, Figure, Ratio
from benchmarks.peers.common import installed
from benchmarks.report import Check


def ratios(figure: Figure) -> list[dict[str, Any]]:
    """A line a curve and x: seconds, and how many times no provenance; the paper's beside it, where its text has it."""
    lines = []
    for x in [point.x for point in figure.curve(NONE.name).points]:
        for curve in figure.curves:
            point = next((p for p in curve.points if p.x == x), None)
            if point is None:
                continue
            ratio = figure.ratio(curve.name, x)
            said = PAPER.get(figure.number, {}).get(curve.name, {}).get(x)
            lines.append(
                {
                    "x": x,
                    "curve": curve.name,
                    "seconds": point.best,
                    "median": point.median,
                    "times": ratio.best,
                    "times_median": ratio.median,
                    "times_cpu": ratio.cpu,
                    "paper": said,
                }
            )
    return lines


def show(figure: Figure, console: Console) -> None:
    """One table a figure."""
    table = Table(title=f"Figure {figure.number}: {figure.title}", title_justify="left")
    table.add_column(figure.x, justify="right")
    table.add_column("", no_wrap=True)
    for column in ("ms, best", "ms, median", "x none, best", "median", "CPU", "paper's"):
        table.add_column(column, justify="right")
    before = None
    for line in ratios(figure):
        if line["x"] != before:
            table.add_section()
        cells = [f"{1e3 * line['seconds']:,.2f}", f"{1e3 * line['median']:,.2f}"]
        plain = line["curve"] == NONE.name
        cells += ["" if plain else f"{line[key]:.2f}" for key in ("times", "times_median", "times_cpu")]
        cells.append("" if line["paper"] is None else f"{line['paper']:.2f}")
        table.add_row(f"{line['x']:g}" if line["x"] != before else "", line["curve"], *cells)
        before = line["x"]
    console.print(table)
    for note in figure.notes:
        console.print(f"– {note}", style="yellow", markup=False, highlight=False)


def plot(folder: Path, figure: Figure) -> None:
    """Seconds, and how many times no provenance; the paper's ratios are hollow marks."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    lines = ratios(figure)
    picture, panels = plt.subplots(1, 2, figsize=(10, 4))
    for place, curve in enumerate(figure.curves):
        mine = [line for line in lines if line["curve"] == curve.name]
        style = "--" if curve.name.startswith(RETRIEVAL) else "-"
        for panel, key in zip(panels, ("seconds", "times"), strict=True):
            where = [line["x"] for line in mine]
            panel.plot(where, [line[key] for line in mine], style, marker="o", color=f"C{place}", label=curve.name)
        said = sorted(PAPER.get(figure.number, {}).get(curve.name, {}).items())
        panels[1].plot(
            [x for x, _ in said],
            [ratio for _, ratio in said],
            ":",
            marker="s",
            markerfacecolor="none",
            color=f"C{place}",
            label=f"{curve.name}, the paper" if said else None,
        )
    for panel, title in zip(panels, ("seconds", "times no provenance"), strict=True):
        panel.set_yscale("log")
        if figure.number not in ("13", "14c", "12", "15", "15t"):
            panel.set_xscale("log")
        panel.set_title(title, fontsize=9)
        panel.set_xlabel(figure.x, fontsize=8)
        panel.grid(alpha=0.3, which="both")
    panels[1].legend(fontsize=6)
    picture.suptitle(f"Figure {figure.number}: {figure.title}", fontsize=10)
    picture.tight_layout()
    picture.savefig(folder / f"figure_{figure.number}.png", dpi=110)
    plt.close(picture)


def promises(figures: Sequence[Figure]) -> list[Check]:
    """What the project promises about these figures, where this run measured it."""
    found = {figure.number: figure for figure in figures}
    checks = []
    if "13" in found and _has(found["13"], 4):
        ratio = found["13"].ratio(COVERING.name, 4)
        checks += _judged("four averages: covering, times no provenance", ratio, 1.13)
    for number in ("12", "14a"):
        if number in found and _has(found[number], 100):
            ratio = found[number].ratio(ADAPTIVE.name, 100)
            checks += _judged(f"figure {number}, average of 100 rows: adaptive, times no provenance", ratio, 1.5)
    if "17" in found:
        rates = [point.x for point in found["17"].curve(NONE.name).points if point.x <= 10]
        for eager in (ADAPTIVE, SINGLE):
            found_at = {rate: found["17"].ratio(COVERING.name, rate, eager.name) for rate in rates}
            worst = max(rates, key=lambda rate: found_at[rate].best)
            text = f"up to 10 % retrieved, in total: replay, times {eager.name}; most, at {worst:g} %"
            checks += _judged(text, found_at[worst], 1.0)
    return checks


def _judged(what: str, ratio: Ratio, most: float) -> list[Check]:
    return [
        Check(f"{what}, {which}", measured, most, at_least=False)
        for which, measured in (("best of the rounds", ratio.best), ("CPU seconds", ratio.cpu))
    ]


def _has(figure: Figure, x: float) -> bool:
    return any(point.x == x for point in figure.curve(NONE.name).points)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    about = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lineage_paper", description=about)
    parser.add_argument("--figure", default=",".join(map(str, FIGURES)), help="some of 12 to 17")
    parser.add_argument("--quick", action="store_true", help="few rows, one round: that all of it runs")
    parser.add_argument("--rounds", type=int, help="of each mode; 9, if nothing is said")
    parser.add_argument("--rows", type=int, help="100,000, if nothing is said")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--plot", type=Path, help=f"draw into this folder (default {report.RESULTS}/paper_001)")
    options = parser.parse_args(arguments)
    options.figure = [int(part) for part in options.figure.split(",") if part.strip()]
    for one in options.figure:
        if one not in FIGURES:
            parser.error(f"--figure: {one!r} is not one of {', '.join(map(str, FIGURES))}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, save; 1 if answers differ."""
    options = parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else 120)
    chosen = {"rounds": options.rounds, "rows": options.rows}
    sizes = replace(QUICK if options.quick else Sizes(), **{k: v for k, v in chosen.items() if v is not None})
    figures: list[Figure] = []
    start = time.perf_counter()
    try:
        for number in options.figure:
            with console.status("") as status:
                made = RUNS[number](sizes, status.update)
            figures += made
            for figure in made:
                show(figure, console)
    except DisagreementError as wrong:
        console.print(f"[red]the answers differ: {wrong}")
        return 1
    checks = [] if options.quick else promises(figures)  # they are about the paper's sizes
    if installed("matplotlib"):
        for figure in figures:
            plot(options.plot or report.RESULTS / "paper_001", figure)
    report.show_checks(checks, console)
    console.print(f"{time.perf_counter() - start:.0f} seconds in all")
    if options.json:
        told = [asdict(figure) | {"lines": ratios(figure)} for figure in figures]
        report.save(options.json, [], checks, asdict(sizes), figures=told)
    return 0


if __name__ == "__main__":
    sys.exit(main())
