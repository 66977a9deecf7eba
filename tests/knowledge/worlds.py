"""Worlds: small streams of which some ticks are known, and everything that they can still become.

A world has for each tick of each stream a row, silence, or nothing known. Its completions put a row or silence in place
of what is not known, in every way that the promises allow.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import whence
from whence.plan.algebra.program import Program
from whence.plan.knowledge.derive import AugmentedPlan, augmented
from whence.subscribe.horizons import KnownHorizons

Row = tuple[Any, ...]
UNKNOWN = "?"
SILENT = "S"
Tick = Any  # UNKNOWN, SILENT, or the values of a row after its tick


def program_of(script: str) -> Program:
    """The networks of a database."""
    db = whence.open()
    db.execute(script)
    return db._coordinator.catalog.planned


def knowledge(program: Program, view: str) -> AugmentedPlan:
    """What is known of a view."""
    return augmented(program, view)


class World:
    """What is known of the ticks of streams, which count from 1."""

    def __init__(self, ticks: Mapping[str, Sequence[Tick]]) -> None:
        self.ticks = {name: tuple(each) for name, each in ticks.items()}

    def rows(self) -> dict[str, list[Row]]:
        """The rows that are known."""
        return {
            name: [(number, *tick) for number, tick in enumerate(each, 1) if tick not in (UNKNOWN, SILENT)]
            for name, each in self.ticks.items()
        }

    def horizons(self, found: AugmentedPlan) -> KnownHorizons:
        """What is known of which ticks, in the numbers of a view's knowledge."""
        ranges = {
            use: [(number, number) for number, tick in enumerate(self.ticks[source.name], 1) if tick != UNKNOWN]
            for use, source in enumerate(found.knowledge.sources)
            if source.name in self.ticks
        }
        return KnownHorizons(ranges=ranges)

    def completions(self, domains: Mapping[str, Sequence[Row]]) -> Iterator[World]:
        """Every way in which what is not known can turn out."""
        places = [(name, at) for name, each in self.ticks.items() for at, tick in enumerate(each) if tick == UNKNOWN]
        for chosen in itertools.product(*([SILENT, *domains[name]] for name, _ in places)):
            ticks = {name: list(each) for name, each in self.ticks.items()}
            for (name, at), tick in zip(places, chosen, strict=True):
                ticks[name][at] = tick
            yield World(ticks)

    def __repr__(self) -> str:
        return f"World({self.ticks})"
