"""Programs of the second generator (`tests/programs`), a few of them; the deep profile plays more.

`python -m tests.programs` looks for failures in any number of others, and makes them small.
"""

from __future__ import annotations

import pytest

from tests.depth import seeds
from tests.programs.generate import Program, make_program
from tests.programs.play import Mismatch, play
from tests.programs.reduce import reduce, show


@pytest.mark.parametrize("seed", seeds(24))
def test_program_holds_what_duckdb_computes(seed: int) -> None:
    program = make_program(seed)
    try:
        play(program)
    except Mismatch as error:
        raise AssertionError(f"seed {seed}: {error}\n{show(reduce(program, 30))}") from error


def test_program_of_a_seed_is_always_the_same() -> None:
    assert make_program(3) == make_program(3)
    assert make_program(3).views() == make_program(3).views()


def test_reducing_keeps_what_fails() -> None:
    """A program fails, here by decree, while it has a certain write: all else goes."""
    program = make_program(5)
    wanted = next(write for step in program.steps for write in step.writes)

    def fails(candidate: Program) -> str | None:
        return "step 0: Mismatch: too many" if any(wanted in s.writes for s in candidate.steps) else None

    small = reduce(program, 10, fails)
    assert [step.writes for step in small.steps] == [(wanted,)]
    assert all(not record for record in small.choices)
    assert small.partitions is None
