"""Costs of a delta's path through a join, in an and-or graph of sets of inputs (`plan/optimizer/paths.py`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whence.model.codes import Codes
from whence.model.jit import kernel
from whence.plan.optimizer.kernels.costs import FIRST, LAST, LEFT

SCALE = 1024  # of the cost of a probe: costs are integers
MOST = 1 << 50  # a step costs no more, so that a path's cost fits
FAN_OUT, PASSING, LOOKED_AT, PROBE, EACH, UPKEEP = 0, 1, 2, 3, 4, 5  # columns of figures

Figures = NDArray[np.float64]


@kernel
def fill_costs(entries: Codes, alternatives: Codes, figures: Figures, rows: Figures, local: Codes) -> None:
    """Fill in the rows of each entry, by its cheapest last step, and what each step costs."""
    for entry in range(len(entries)):
        least = -1.0
        for each in range(entries[entry, FIRST], entries[entry, LAST]):
            before = alternatives[each, LEFT]
            if before < 0:  # the delta itself
                local[each] = 0
                least = 1.0
                continue
            came = rows[before]
            work = came * (figures[each, PROBE] + figures[each, LOOKED_AT] * figures[each, EACH])
            local[each] = int(min((work + figures[each, UPKEEP]) * SCALE, MOST))
            found = came * figures[each, FAN_OUT] * figures[each, PASSING]
            if least < 0 or found < least:
                least = found
        rows[entry] = least
