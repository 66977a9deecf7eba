"""Many runs: seed after seed, in one process or in several, until one fails."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

from whence.subscribe.simulate.bugs import parts_with
from whence.subscribe.simulate.database_bugs import planted
from whence.subscribe.simulate.database_world import DatabaseWorld
from whence.subscribe.simulate.oracle import SimulationError
from whence.subscribe.simulate.world import World


@dataclass(frozen=True)
class RunResult:
    """How a run went: what failed, if anything did, and how much there was."""

    seed: int
    failure: str | None
    law: str | None
    shown: int
    messages: int
    bug: str | None = None
    depth: str = "model"
    seen: tuple[tuple[str, int], ...] = ()  # faults that happened

    def __str__(self) -> str:
        """Say what failed, and how to see it again."""
        planted = f" --bug {self.bug}" if self.bug else ""
        planted += f" --depth {self.depth}" if self.depth != "model" else ""
        again = f"python -m whence.subscribe.simulate --first {self.seed} --seeds 1{planted}"
        return f"seed {self.seed}: {self.failure}\nreplay: {again}"


def run_seed(seed: int, bug: str | None = None, trace: bool = False, depth: str = "model") -> RunResult:
    """Make one run. An error of any kind is a failure; with `trace` its stack is part of what is said."""
    world: World | DatabaseWorld | None = None
    try:
        if depth == "databases":
            with planted(bug):
                world = DatabaseWorld(seed)
                world.run()
        else:
            world = World(seed, parts_with(bug))
            world.run()
    except SimulationError as error:
        failure, law = str(error), error.law
        if trace:
            failure = traceback.format_exc()
    except Exception as error:  # a core that raises has failed
        failure, law = (traceback.format_exc() if trace else f"{type(error).__name__}: {error}"), "error"
    else:
        assert world is not None
        return RunResult(
            seed, None, None, world.shown, world.network.sent, bug, depth, tuple(world.network.seen.items())
        )
    finally:
        if world is not None:
            world.close()
    shown, sent = (world.shown, world.network.sent) if world is not None else (0, 0)
    return RunResult(seed, failure, law, shown, sent, bug, depth)


def run_seeds(seeds: Iterable[int], bug: str | None = None, jobs: int = 1, depth: str = "model") -> Iterator[RunResult]:
    """Make runs, and give their results in the order of their seeds."""
    if jobs <= 1:
        yield from (run_seed(seed, bug, depth=depth) for seed in seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(partial(run_seed, bug=bug, depth=depth), seeds, chunksize=8)


def find_failure(seeds: Iterable[int], bug: str | None = None, depth: str = "model") -> RunResult | None:
    """Return the first run that fails."""
    return next((result for result in run_seeds(seeds, bug, depth=depth) if result.failure is not None), None)
