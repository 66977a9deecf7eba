"""How much an operator holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from whence.engine.core.operator import Operator
from whence.engine.recursion.fixpoint import annotated_policy
from whence.engine.relational.scan import Scan


class OperatorWork(NamedTuple):
    """What an operator has done since it was built: how often it ran, rows of its batches, rows that were looked up in
    its inputs, and seconds. What runs as a part of another operator counts there."""

    runs: int = 0
    rows_in: int = 0
    rows_out: int = 0
    probes: int = 0
    seconds: float = 0.0


class OperatorStats(NamedTuple):
    """Rows and bytes of an operator's own state, and of the relation that is kept of its output; where it maintains
    provenance, the bytes of that, the derived rows that have it, and those of them that buffer reasons; and what it
    says of its plan."""

    rows: int = 0
    bytes: int = 0
    kept_rows: int = 0
    kept_bytes: int = 0
    provenance: int = 0
    annotated: int = 0
    buffered: int = 0
    notes: tuple[str, ...] = ()
    work: OperatorWork = OperatorWork()


def total(parts: Sequence[OperatorStats]) -> OperatorStats:
    """Add up the figures of an operator's parts; the part that holds the most speaks of its plan."""
    largest = max(parts, key=lambda part: (len(part.notes), part.kept_bytes + part.bytes))
    rows, size, kept_rows, kept_size, provenance, annotated, buffered, _, work = zip(*parts, strict=True)
    figures = sum(rows), sum(size), sum(kept_rows), sum(kept_size), sum(provenance), sum(annotated), sum(buffered)
    return OperatorStats(*figures, largest.notes, OperatorWork(*map(sum, zip(*work, strict=True))))


def measure(op: Operator) -> OperatorStats:
    """The figures of an operator; a table's relation is its own state."""
    kept = op.arranged if not isinstance(op, Scan) else None
    relation = (len(kept), kept.nbytes) if kept is not None else (0, 0)
    policy = annotated_policy(op)
    provenance = policy.provenance if policy is not None else (0, 0, 0)
    work = OperatorWork(op.runs, op.rows_in, op.rows_out, op.probes, op.seconds)
    return OperatorStats(op.state_rows, op.state_bytes, *relation, *provenance, op.notes(), work)
