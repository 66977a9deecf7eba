"""Arrangements: at most one relation of an operator's output, made when someone first needs it.

A table's scan is arranged from the start; its relation is the table. Asking for an arrangement of an operator that has
run already fills it from the operator's contents; otherwise the dataflow fills it when the operator is primed.

An operator that keeps its output in its own state, in which a lookup by some columns finds no index, is scanned the
first time, and arranged when it is asked by the same columns again. Such a relation stays while the operator does.
"""

from __future__ import annotations

from collections.abc import Collection

from whence.engine.core.batch import consolidate
from whence.engine.core.key_lookup import SMALL, among_rows, in_order
from whence.engine.core.operator import Batch, Operator
from whence.engine.core.relation import Index, Relation
from whence.model.codes import Codes


def arrangement(op: Operator) -> Relation:
    """The relation of an operator's output."""
    if op.arranged is None:
        relation = Relation(len(op.schema))
        if op.primed:
            relation.apply(consolidate(op.recompute()))
            relation.commit()
        op.arranged = relation
    op.arranged.for_lookups = False
    return op.arranged


def arranged_for_lookups(op: Operator) -> Relation:
    """The relation of an operator's output, made for lookups if there is none."""
    if op.arranged is None:
        arrangement(op).for_lookups = True
    assert op.arranged is not None
    return op.arranged


def declare_indexes(op: Operator, wanted: Collection[tuple[int, ...]]) -> None:
    """Have exactly these indexes declared on an operator's output; the whole row needs none."""
    arranged = op.arranged.lookups if op.arranged is not None else None
    for lookups in (op.own_lookups, arranged):
        if lookups is None:
            continue
        for cols in [cols for cols in lookups.declared if cols not in wanted]:
            lookups.retract(cols)
    for cols in wanted:
        if len(cols) == len(op.schema):
            continue
        own = op.own_lookups
        if op.arranged is not None or own is None or not own.takes(cols):
            own = arranged_for_lookups(op).lookups
        own.declare(cols)


def find_rows(op: Operator, cols: tuple[int, ...], keys: Codes) -> Batch:
    """The rows of an operator that keeps its output whose `cols` equal one of the distinct `keys`."""
    cols, keys = in_order(cols, keys)
    if op.arranged is None and cols not in op.scanned:
        found = op.contents()
        if len(found) > SMALL:
            op.scanned |= {cols}
        return among_rows(found, cols, keys) if len(keys) else Batch.empty(len(op.schema))
    return arranged_for_lookups(op).find(cols, keys)


def arranged_by(op: Operator, cols: tuple[int, ...]) -> tuple[Relation, Index]:
    """The relation of an operator's output and its index on some columns."""
    relation = arrangement(op)
    return relation, relation.index(cols)
