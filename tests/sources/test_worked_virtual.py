"""The worked numbers of paper 004 in virtual time: databases, servers, brokers and clients over links that lose.

What scenarios assert is what must and may be seen; besides, every update of every view is checked (`stage_oracle`), and
in the end everyone holds the final state.
"""

from __future__ import annotations

import pytest

from tests.depth import DEEP
from tests.sources.worked_numbers import SCENARIOS
from whence.subscribe.simulate.stages import VirtualStage, seeded

SEEDS = 60 if DEEP else 2


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_worked_number_in_virtual_time(name: str) -> None:
    for seed in range(SEEDS):
        with seeded(f"{name} {seed}"):
            stage = VirtualStage(f"{name} {seed}", ("one", "two", "near", "far"))
            try:
                SCENARIOS[name](stage)
                stage.settle()
            finally:
                stage.close()
