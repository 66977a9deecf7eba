"""Traffic of Linear Road that drifts: the same cars, whose roads, directions and speeds change from phase to phase.

| phase | what the cars do |
|---|---|
| stop and go | all crawl, each within its segment, at a few places that are far from one another |
| rush hour | nine in ten drive in direction 0, slowly, spread over the expressways; a few stand |
| turned round | nine in ten drive in direction 1 |
| accidents | direction 0 again; half of the cars stand at a few places, the others drive freely |
| emptied | one car in seven is left, on the last expressway; the others report no more |

A car reports every 30 seconds while it is on the road, as in the benchmark. Between two phases trips end and others
begin, within the 30 seconds after the phase has begun. The same seed gives the same traffic.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

SEGMENT, SEGMENTS, EVERY = 5280, 100, 30
Report = tuple[int, ...]  # time, carid, speed, expway, dir, seg, xpos


@dataclass(frozen=True)
class Phase:
    """What cars do for a while: the part of them that is on the road, that drives in direction 0, that is held up, and
    where; whether those crawl or stand."""

    name: str
    forward: float
    on_road: float = 1.0
    held_up: float = 0.0
    sites: tuple[int, ...] = ()
    crawling: bool = False
    expways: tuple[int, ...] = (0, 1)
    speeds: tuple[int, int] = (60, 90)


PHASES = (
    Phase("stop and go", 1.0, held_up=1.0, sites=(5, 17, 29, 41, 53, 65, 77, 89), crawling=True),
    Phase("rush hour", 0.9, held_up=0.004, sites=(20, 47, 71, 90), speeds=(20, 35)),
    Phase("turned round", 0.1),
    Phase("accidents", 0.9, held_up=0.5, sites=(20, 47, 71, 90)),
    Phase("emptied", 0.5, on_road=0.15, expways=(1,)),
)


@dataclass
class _Car:
    offset: int
    expway: int = 0
    direction: int = 0
    xpos: int = 0
    speed: int = 0
    held_up: bool = False
    crawls: bool = False
    on_road: bool = True

    def begin(self, phase: Phase, rng: random.Random) -> None:
        """Begin another trip."""
        self.on_road, self.expway = rng.random() < phase.on_road, rng.choice(phase.expways)
        self.direction, self.speed = int(rng.random() >= phase.forward), rng.randint(*phase.speeds)
        self.held_up, self.crawls = not self.direction and rng.random() < phase.held_up, phase.crawling
        seg = rng.choice(phase.sites) if self.held_up else rng.randrange(SEGMENTS)
        self.xpos = seg * SEGMENT + rng.randrange(SEGMENT)

    def drive(self, rng: random.Random) -> None:
        if self.held_up:
            if self.crawls:
                self.xpos = self.xpos // SEGMENT * SEGMENT + rng.randrange(SEGMENT)
            return
        feet = self.speed * SEGMENT * EVERY // 3600
        self.xpos = (self.xpos + (feet if self.direction == 0 else -feet)) % (SEGMENT * SEGMENTS)
        self.speed = min(max(self.speed + rng.randint(-5, 5), 10), 100)

    def report(self, time: int, carid: int) -> Report:
        speed = self.speed if not self.held_up else 5 if self.crawls else 0
        return (time, carid, speed, self.expway, self.direction, self.xpos // SEGMENT, self.xpos)


def traffic(cars: int, seconds: int, phases: Sequence[Phase] = PHASES, seed: int = 0) -> list[list[Report]]:
    """Return the reports of each second; all phases are equally long."""
    rng = random.Random(seed)
    drivers = [_Car(rng.randrange(EVERY)) for _ in range(cars)]
    length, found = seconds // len(phases), []
    for time in range(length * len(phases)):
        phase, since = phases[time // length], time % length
        reports = []
        for carid, car in enumerate(drivers):
            if time % EVERY != car.offset:
                continue
            if since < EVERY:
                car.begin(phase, rng)
            else:
                car.drive(rng)
            if car.on_road:
                reports.append(car.report(time, carid))
        found.append(reports)
    return found
