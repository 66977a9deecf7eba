"""Arrangements: at most one relation of an operator's output, made when someone first needs it.

A table's scan is arranged from the start; its relation is the table. Asking for an arrangement of an operator that has
run already fills it from the operator's contents; otherwise the dataflow fills it when the operator is primed.
"""

from __future__ import annotations

from whence.engine.core.batch import consolidate
from whence.engine.core.operator import Operator
from whence.engine.core.relation import Index, Relation


def arrangement(op: Operator) -> Relation:
    """The relation of an operator's output."""
    if op.arranged is None:
        relation = Relation(len(op.schema))
        if op.primed:
            relation.apply(consolidate(op.recompute()))
            relation.commit()
        op.arranged = relation
    return op.arranged


def arranged_by(op: Operator, cols: tuple[int, ...]) -> tuple[Relation, Index]:
    """The relation of an operator's output and its index on some columns."""
    relation = arrangement(op)
    return relation, relation.index(cols)
