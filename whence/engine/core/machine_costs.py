"""What work costs on this machine, as it was measured at set-up, or defaults; stored beside the compiled kernels."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

from whence.engine.core.kernels import index
from whence.model.jit import stamp
from whence.plan.algebra.work_costs import DEFAULTS, WorkCosts


def stored_file() -> Path:
    """Return where the costs of these kernels are stored."""
    code = Path(index.__file__)
    return Path(index.join_rows._cache._cache_path) / f"work_costs.{stamp(code)}.json"  # type: ignore[attr-defined]  # Numba's


@cache
def machine_costs() -> WorkCosts:
    """Return the costs of this machine, or defaults."""
    try:
        found = json.loads(stored_file().read_text())
        return replace(DEFAULTS, **{name: max(1, int(found[name])) for name in found.keys() & asdict(DEFAULTS).keys()})
    except (OSError, ValueError, TypeError):
        return DEFAULTS


def store_costs(costs: WorkCosts) -> None:
    """Store what was measured, in the place of what was before."""
    path = stored_file()
    for old in path.parent.glob("work_costs.*.json"):
        old.unlink(missing_ok=True)
    path.write_text(json.dumps(asdict(costs)))
    machine_costs.cache_clear()
