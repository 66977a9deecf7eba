"""Figures as a table on the terminal, as JSON, and as a plot; what was promised beside what was measured.

Times are kept one an update, so that any statistic can be taken again from the JSON.
"""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.peers.common import PARTS, Peer

RESULTS = Path("results")

WHENCE = "Whence"


@dataclass
class Series:
    """What one peer took for one workload. `size` is nodes or rows; times are seconds, one an update."""

    workload: str
    peer: str
    size: int
    load: float
    deletes: list[float] = field(default_factory=list)
    inserts: list[float] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """Mean seconds of an update of either kind."""
        return statistics.fmean(self.deletes + self.inserts)


def readings(peer: Peer, workload: str, size: int, load: float) -> dict[str, Series]:
    """Empty series for a peer's times, under "", and for each further reading it keeps, under the attribute's name."""
    kept = {"": peer.name} | {attribute: name for attribute, name in PARTS.items() if hasattr(peer, attribute)}
    return {attribute: Series(workload, name, size, load) for attribute, name in kept.items()}


@dataclass(frozen=True)
class Check:
    """A promise: `measured` must be at least (or at most) `wanted`."""

    what: str
    measured: float
    wanted: float
    at_least: bool = True

    @property
    def kept(self) -> bool:
        """Is the promise kept?"""
        return self.measured >= self.wanted if self.at_least else self.measured <= self.wanted


@dataclass
class Figure:
    """What was measured in each round, by peer."""

    what: str
    unit: str
    samples: dict[str, list[float]] = field(default_factory=dict)

    def of(self, peer: str) -> float:
        return statistics.median(self.samples[peer])

    def times(self, peer: str, other: str) -> float:
        """How many times more of the unit a peer has than another, round by round; infinite times more than nothing.

        >>> Figure("idle", "%", {"Whence": [0.4], "PostgreSQL": [0.0]}).times("Whence", "PostgreSQL")
        inf
        """
        pairs = zip(self.samples[peer], self.samples[other], strict=True)
        return statistics.median(a / b if b else math.inf if a else 1.0 for a, b in pairs)


def ratio(every: Sequence[Series], workload: str, size: int, peer: str, load: bool = False) -> float | None:
    """How many times longer than Whence a peer took, by the mean over all updates; None if either is missing."""
    found = {s.peer: s for s in every if s.workload == workload and s.size == size}
    if peer not in found or WHENCE not in found:
        return None
    ours, theirs = found[WHENCE], found[peer]
    return theirs.load / ours.load if load else theirs.mean / ours.mean


def show(every: Sequence[Series], console: Console, unit: str = "nodes", split: bool = True) -> None:
    """Print one table a workload; with `split`, deletions and insertions apart."""
    for workload in dict.fromkeys(s.workload for s in every):
        table = Table(title=workload, title_justify="left")
        table.add_column(unit, justify="right")
        table.add_column("peer", no_wrap=True)
        kinds = ("delete", "insert") if split else ("batch",)
        columns = ["load s", *(f"{kind} ms {what}" for kind in kinds for what in ("median", "mean"))]
        for column in [*columns, "x Whence", "x load"]:
            table.add_column(column, justify="right")
        size_before = None
        for s in (s for s in every if s.workload == workload):
            if size_before not in (None, s.size):
                table.add_section()
            parts = (s.deletes, s.inserts) if split else (s.deletes + s.inserts,)
            times = [f"{1e3 * f(part):.2f}" for part in parts for f in (statistics.median, statistics.fmean)]
            against = [ratio(every, workload, s.size, s.peer), ratio(every, workload, s.size, s.peer, load=True)]
            ratios = ["" if r is None or s.peer == WHENCE else f"{r:.1f}" for r in against]
            table.add_row("" if s.size == size_before else f"{s.size:,}", s.peer, f"{s.load:.3f}", *times, *ratios)
            size_before = s.size
        console.print(table)


def show_checks(checks: Sequence[Check], console: Console) -> None:
    """Print what was promised and whether it was kept in this run."""
    if not checks:
        return
    table = Table(title="targets", title_justify="left")
    for column, justify in (("target", "left"), ("bound", "right"), ("measured", "right"), ("", "left")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]  # rich's Literal of justifications
    for check in checks:
        sign = "≥" if check.at_least else "≤"
        verdict = "[green]met" if check.kept else "[red]not met"
        table.add_row(check.what, f"{sign} {check.wanted:g}", f"{check.measured:.2f}", verdict)
    console.print(table)


def save(path: Path, every: Sequence[Series], checks: Sequence[Check], settings: dict[str, Any], **more: Any) -> None:
    """Write all figures, the promises and the machine's kind as JSON, and whatever more there is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"python": platform.python_version(), "system": platform.system(), "cpus": os.cpu_count()},
        "settings": settings,
        "series": [asdict(s) | {"mean": s.mean} for s in every],
        "checks": [asdict(check) | {"kept": check.kept} for check in checks],
        **more,
    }
    path.write_text(json.dumps(document, indent=1) + "\n")


def plot(path: Path, every: Sequence[Series], unit: str = "nodes") -> None:
    """Draw mean time an update against size, both logarithmic, one panel a workload; bars if there is one size only."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    workloads = list(dict.fromkeys(s.workload for s in every))
    figure, panels = plt.subplots(1, len(workloads), figsize=(4.2 * len(workloads), 3.6), squeeze=False, sharey=True)
    for panel, workload in zip(panels[0], workloads, strict=True):
        mine = [s for s in every if s.workload == workload]
        if len({s.size for s in mine}) == 1:
            panel.bar([s.peer for s in mine], [1e3 * s.mean for s in mine])
            panel.tick_params(axis="x", labelrotation=20)
        else:
            for peer in dict.fromkeys(s.peer for s in mine):
                line = sorted((s.size, 1e3 * s.mean) for s in mine if s.peer == peer)
                panel.plot([x for x, _ in line], [y for _, y in line], marker="o", label=peer)
            panel.set_xscale("log")
            panel.set_xticks(sorted({s.size for s in mine}), [f"{size:,}" for size in sorted({s.size for s in mine})])
            panel.minorticks_off()
            panel.set_xlabel(unit)
            panel.legend(fontsize=7)
        panel.set_yscale("log")
        panel.set_title(workload, fontsize=9)
        panel.grid(alpha=0.3)
    panels[0][0].set_ylabel("ms an update, mean")
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)


def show_figures(title: str, figures: Sequence[Figure], console: Console) -> None:
    """Print the figures, one line a peer."""
    table = Table(title=title, title_justify="left")
    for column in ("", "unit", "peer"):
        table.add_column(column)
    for column in ("median", "least", "most", "Whence is times"):
        table.add_column(column, justify="right")
    for figure in figures:
        table.add_section()
        for place, (peer, samples) in enumerate(figure.samples.items()):
            against = f"{figure.times(WHENCE, peer):.2f}" if WHENCE in figure.samples and peer != WHENCE else ""
            label = (figure.what, figure.unit) if place == 0 else ("", "")
            table.add_row(
                *label, peer, *map(_number, (statistics.median(samples), min(samples), max(samples))), against
            )
    console.print(table)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def plot_figures(path: Path, figures: Sequence[Figure]) -> None:
    """Draw one panel a unit: bars by figure, one colour a peer, logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.patches import Patch

    path.parent.mkdir(parents=True, exist_ok=True)
    units = list(dict.fromkeys(figure.unit for figure in figures))
    named = list(dict.fromkeys(peer for figure in figures for peer in figure.samples))
    colours = {peer: f"C{place}" for place, peer in enumerate(named)}
    picture, panels = plt.subplots(1, len(units), figsize=(4.4 * len(units), 4.2), squeeze=False)
    for panel, unit in zip(panels[0], units, strict=True):
        at, ticks = 0.0, []
        for figure in (figure for figure in figures if figure.unit == unit):
            middle = at + (len(figure.samples) - 1) / 2
            for peer in figure.samples:
                panel.bar(at, figure.of(peer), color=colours[peer], width=0.9)
                at += 1
            ticks.append((middle, figure.what))
            at += 1
        panel.set_xticks(
            [place for place, _ in ticks], [what for _, what in ticks], rotation=30, ha="right", fontsize=7
        )
        panel.set_yscale("log")
        panel.set_title(unit, fontsize=9)
        panel.grid(alpha=0.3, axis="y")
    handles = [Patch(color=colours[peer]) for peer in named]
    panels[0][0].legend(handles, named, fontsize=6)
    picture.tight_layout()
    picture.savefig(path, dpi=130)
    plt.close(picture)
