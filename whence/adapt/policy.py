"""When a running plan gives way to another: when what it saves within the horizon pays for what it builds.

The horizon is half the time since the last switch, at least ten seconds: the longer a plan was right, the longer the
next one may take to pay. A saving below `least_gain` is taken for noise of the estimates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from whence.model.errors import DataError
from whence.plan.algebra.work_costs import WorkCosts

AdaptMode = Literal["off", "advise", "on"]
MODES: tuple[AdaptMode, ...] = get_args(AdaptMode)


@dataclass(frozen=True)
class SwitchPolicy:
    """The constants of the rule, in seconds and parts.

    >>> policy = SwitchPolicy()
    >>> policy.horizon(4.0), policy.horizon(60.0)
    (10.0, 30.0)
    >>> policy.pays(saved=0.02, cost=0.1, build=0.5, since=60.0)  # 0.6 s saved for half a second
    True
    >>> policy.pays(saved=0.02, cost=0.1, build=0.7, since=60.0)
    False
    >>> policy.pays(saved=0.001, cost=0.1, build=0.0, since=60.0)  # one percent: noise
    False
    """

    least_horizon: float = 10.0
    least_gain: float = 0.05  # of the running plan's cost
    share: float = 0.007  # of the processor time of epochs that may be spent on looking
    probe_seconds: float = 1.2e-8  # of a probe, or a match
    build_seconds: float = 1.1e-8  # per row of an index
    order_seconds: float = 2e-7  # per row of an ordered one
    switch_seconds: float = 5e-4  # of a switch itself

    @classmethod
    def of_work(cls, costs: WorkCosts) -> SwitchPolicy:
        """Return the policy on a machine whose work was measured."""
        probe, second = (costs.probe + costs.match) / 2, 1e-12
        return cls(
            probe_seconds=probe * second,
            build_seconds=costs.upkeep * second,
            order_seconds=costs.ordered_upkeep * second,
        )

    def build(self, rows: int, ordered: bool) -> float:
        """Return the seconds that an index of so many rows takes."""
        return rows * (self.order_seconds if ordered else self.build_seconds)

    def horizon(self, since: float) -> float:
        """Return for how long a plan is taken to last, if the last switch was so long ago."""
        return max(self.least_horizon, since / 2)

    def pays(self, saved: float, cost: float, build: float, since: float) -> bool:
        """Return whether a switch pays that saves so many seconds each second, of what the running plan costs, and
        takes `build` seconds."""
        return saved > self.least_gain * cost and saved * self.horizon(since) > build


def check_mode(mode: str) -> AdaptMode:
    """Return a mode; DataError if there is none of that name."""
    for known in MODES:
        if mode == known:
            return known
    raise DataError(f"adapt is one of {', '.join(MODES)}, not {mode!r}")
