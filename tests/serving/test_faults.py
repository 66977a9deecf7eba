"""Server, publishers and followers as real processes, with kills, pauses and a network that harms frames.

`pytest tests/serving/test_faults.py -k 'faults and [SEED]'` replays a seed; `WHENCE_SERVING_SEED=n` runs another one.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.depth import DEEP, seeds
from tests.serving.checks import check_run
from tests.serving.faults import FaultyRun, Plan

_GIVEN = os.environ.get("WHENCE_SERVING_SEED")
SEEDS = [int(_GIVEN)] if _GIVEN else list(seeds(1))
SAMPLE = 150 if DEEP else 50 if _GIVEN else 10
"""Past epochs at which updates are compared with what was true: reading one takes a replay of the log."""


@pytest.mark.parametrize("seed", SEEDS)
def test_faults(seed: int, tmp_path: Path) -> None:
    run = FaultyRun(Plan(seed, faults=20, longest_stop=4) if DEEP else Plan(seed), tmp_path)
    try:
        run.run()
        updates = check_run(run.database, run.publisher_files, run.follower_files, run.last, SAMPLE)
    except BaseException:
        print(f"seed {seed}: {', '.join(run.happened)}; {dict(run.proxy.count) if hasattr(run, 'proxy') else ''}")
        print(f"replay it: WHENCE_SERVING_SEED={seed} python -m pytest -n 0 {__file__}; its files are in {tmp_path}")
        raise
    assert updates > 10  # on a busy machine fewer, larger ones
