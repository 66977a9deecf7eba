"""Fills: changes that outweigh what they change.

Undo needs either a log of what an epoch changed or the state from before it. The law: it keeps the smaller one. A
change of few rows is logged; one that is large and outweighs the state, as the first load of a table is for everything
above it, keeps the former state and logs nothing.
"""

from __future__ import annotations

LEAST = 1 << 14
"""Rows from which a change may be a fill."""


def is_fill(change: int, state: int) -> bool:
    """Return whether a change of so many rows outweighs a state of so many.

    >>> is_fill(1_000_000, 0), is_fill(1_000_000, 400_000), is_fill(1_000_000, 600_000), is_fill(10, 0)
    (True, True, False, False)
    """
    return change >= LEAST and change >= 2 * state
