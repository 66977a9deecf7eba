"""Recomputed entries (OR nodes) and alternatives (AND nodes) beside what paper 003 gives for Figures 24 and 31 to 34.

The figures themselves are pictures; the ranges are those of the text. Parts are of what an optimization from scratch
computes. The text of Figure 24 has no number: "only a small portion of the search space".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from benchmarks.reoptimize_changes import FACTORS, KEPT, Timing

Chosen = Callable[[Timing], bool]


@dataclass(frozen=True)
class Range:
    """A part that the paper says lies between two others, and the least and most that we have."""

    figure: str
    what: str
    low: float
    high: float
    least: float
    most: float

    @property
    def within(self) -> bool:
        return self.low <= self.least and self.most <= self.high

    @property
    def verdict(self) -> str:
        """Say on which side ours leaves the range: below it, less is computed again than in the paper."""
        sides = [name for name, out in (("below", self.least < self.low), ("above", self.most > self.high)) if out]
        return " and ".join(sides)


def rises(place: int) -> bool:
    """Return whether the change at a place of `_around` is one upwards: each comes and is taken back."""
    return (FACTORS[place // 2 % len(FACTORS)] > 1) == (place % 2 == 0)


def ranges(timings: Sequence[Timing]) -> list[Range]:
    """Return every range of the text that our changes have a counterpart of."""
    q5 = [t for t in timings if t.workload == "Q5"]

    def parts(nodes: str, what: str, way: str, chosen: Callable[[int], bool] = lambda place: True) -> list[float]:
        found = [getattr(t, nodes) for t in q5 if t.what.startswith(what) and t.way == way]
        return [part for each in found for place, part in enumerate(each) if chosen(place)]

    made: list[Range] = []

    def add(figure: str, what: str, low: float, high: float, values: Sequence[float]) -> None:
        if values:
            made.append(Range(figure, what, low, high, min(values), max(values)))

    def falls(place: int) -> bool:
        return not rises(place)

    cost, up, down, top = "join cost", "bottom-up, all", "top-down, all", "top-down, best"
    for nodes, name in (("entries", "OR"), ("alternatives", "AND")):
        add("24", f"{name}, declarative, selectivity", 0, 1, parts(nodes, "selectivity", KEPT))
    add("31", "OR, bottom-up", 0, 0.3, parts("entries", cost, up))
    add("31", "OR, top-down", 0, 0.3, parts("entries", cost, down))
    add("31", "AND, bottom-up", 0, 0.6, parts("alternatives", cost, up))
    add("31", "AND, top-down, costs fall", 0, 0.2, parts("alternatives", cost, down, falls))
    add("31", "AND, top-down, costs rise", 0, 1.2, parts("alternatives", cost, down, rises))
    for nodes, name, high in (("entries", "OR", 0.4), ("alternatives", "AND", 0.45)):
        tested = parts(nodes, cost, "bottom-up, best, conditional")
        plain = parts(nodes, cost, "bottom-up, best")
        ratios = [a / b for a, b in zip(tested, plain, strict=True) if b]
        add("32", f"{name}, conditional testing, part of without", 0.02, high, ratios)
    for way in (top, down):
        add("33", f"OR, {way}", 0, 0.1, parts("entries", cost, way))
        add("33", f"AND, {way}", 0, 1.2, parts("alternatives", cost, way))
    for level in range(5):
        what = f"selectivity {'ABCDE'[level]}"
        add("34", f"AND, {what}, bottom-up", 0.45, 0.55, parts("alternatives", what, up))
        half = 0.5 ** (level + 2)
        add("34", f"OR, {what}, bottom-up: about (1/2)^{level + 2}", 0.5 * half, 2 * half, parts("entries", what, up))
    add("34", "AND, rows of a relation, bottom-up", 0.45, 0.55, parts("alternatives", "rows of", up))
    add("34", "OR, rows of a relation, bottom-up", 0.25, 0.65, parts("entries", "rows of", up))
    return made


def show(found: Sequence[Range], console: Console) -> None:
    """Print ours beside the paper's."""
    table = Table(title="recomputed parts, Q5: the paper's range and ours", title_justify="left")
    for column in ("figure", "what", "paper", "ours", ""):
        table.add_column(column, justify="left" if column in ("what", "") else "right")
    for each in found:
        paper = f"{each.low:.0%} to {each.high:.0%}" if each.figure != "24" else "small"
        ours = f"{each.least:.0%} to {each.most:.0%}"
        table.add_row(each.figure, each.what, paper, ours, each.verdict)
    console.print(table)
