"""None: an annotation is 1 for a row that is present and nothing more; changes are +1 and -1.

For relations that are sets by construction. Changes still add (so a row withdrawn and derived again in one epoch
cancels), but two derivations at once are one row, so `plus` stops at 1 and never goes below 0.
"""

from __future__ import annotations

import numpy as np

from whence.annotate.counting import Counting
from whence.model.codes import Codes


class Presence(Counting):
    """The presence algebra.

    >>> NONE.plus(np.array([1, 1, 0]), np.array([1, -1, 1])).tolist()
    [1, 0, 1]
    """

    name = "none"

    def plus(self, a: Codes, b: Codes) -> Codes:
        present: Codes = np.clip(a + b, 0, 1)
        return present

    def multiplicity(self, a: Codes) -> Codes:
        return self.holds(a)


NONE = Presence()
