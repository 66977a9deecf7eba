"""Each rewrite of logical plans against the plans in its file; README.md says how to add one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rewrites.cases import FILES, Case, read, rewritten
from whence.plan import rewrite

CASES = [pytest.param(path.stem, case, id=f"{path.stem}: {case.line}") for path in FILES for case in read(path)]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_plan_after_rewrite(name: str, case: Case) -> None:
    found = rewritten(name, case)
    assert found.before == case.before
    assert found.after == case.after


def test_every_rewrite_has_a_file() -> None:
    modules = {path.stem for path in Path(rewrite.__file__).parent.glob("*.py")} - {"__init__", "inputs", "best_rows"}
    modules -= {"keep_joins", "hold_inputs"}  # they take decisions, and have tests of their own
    assert modules | {"optimize"} == {path.stem for path in FILES}
