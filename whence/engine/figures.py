"""How much an operator holds."""

from __future__ import annotations

from typing import NamedTuple

from whence.engine.operator import Operator
from whence.engine.scan import Scan


class Figures(NamedTuple):
    """Rows and bytes of an operator's own state, and of the relation that is kept of its output."""

    rows: int = 0
    bytes: int = 0
    kept_rows: int = 0
    kept_bytes: int = 0


def measure(op: Operator) -> Figures:
    """The figures of an operator; a table's relation is its own state."""
    kept = op.arranged if not isinstance(op, Scan) else None
    return Figures(op.state_rows, op.state_bytes, *((len(kept), kept.nbytes) if kept is not None else (0, 0)))
