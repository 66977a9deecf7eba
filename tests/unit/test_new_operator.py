"""A new operator is a node, an operator and one line: planners, EXPLAIN and images ask the node and match no class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whence.engine.build import Builder, runs
from whence.engine.core.dataflow import Dataflow
from whence.engine.core.operator import Batch, Operator
from whence.model.codes import Dictionary
from whence.model.types import BIGINT, BOOLEAN, Column, Schema
from whence.plan.algebra.distribution import ALL, ONE, by
from whence.plan.algebra.expressions import Call, Col, Lit
from whence.plan.algebra.logical import Join, Project, Ref, Scan, Select, Ship, Unary, walk
from whence.plan.algebra.program import Program, View
from whence.plan.partitions.enforce import DistributionEnforcer
from whence.plan.recursion.strata import components
from whence.plan.rewrite import optimize

PAIR = Schema((Column("a", BIGINT), Column("b", BIGINT)))


# -- the whole of a new operator ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Repeat(Unary):
    """Each row so many times."""

    times: int


class RepeatOperator(Operator):
    """Law: linear, so the delta is repeated. No state."""

    def __init__(self, input: Operator, times: int):
        self.schema, self.inputs, self.times = input.schema, [input], times

    def apply(self, deltas: list[Batch]) -> Batch:
        return Batch(deltas[0].rows, deltas[0].ann * self.times, deltas[0].unique)

    def recompute(self) -> Batch:
        return self.apply([self.inputs[0].contents()])


runs(Repeat)(lambda node, inputs, to: RepeatOperator(inputs[0], node.times))

# ----------------------------------------------------------------------------------------------------------------------

TABLE = Scan(PAIR, "t")
TWICE = Repeat(PAIR, TABLE, 2)


def build(flow: Dataflow) -> Builder:
    def nothing(name: str) -> Operator:
        raise AssertionError(name)

    return Builder(flow, Dictionary(), nothing)


def delta(*rows: tuple[int, int, int]) -> Batch:
    return Batch(np.array([r[:2] for r in rows], np.int64).reshape(-1, 2), np.array([r[2] for r in rows], np.int64))


def test_it_runs_under_and_over_others() -> None:
    flow = Dataflow()
    flow.table("t", PAIR)
    positive = Select(PAIR, TWICE, Call(BOOLEAN, ">", (Col(BIGINT, 0), Lit(BIGINT, 0))))
    flow.add_view("v", build(flow).build(optimize(positive)))
    flow.run({"t": delta((1, 2, 1), (-1, 5, 1))})
    flow.commit()
    found = flow.views["v"].contents()
    assert (found.rows.tolist(), found.ann.tolist()) == ([[1, 2]], [2])
    flow.run({"t": delta((1, 2, -1))})
    flow.commit()
    assert len(flow.views["v"].contents()) == 0


def test_equal_nodes_are_one_operator_and_others_are_not() -> None:
    flow = Dataflow()
    flow.table("t", PAIR)
    builder = build(flow)
    twice, again, thrice = (builder.build(Repeat(PAIR, TABLE, n)) for n in (2, 2, 3))
    assert twice is again
    assert twice.fingerprint != thrice.fingerprint


def test_rewrites_keep_it_and_explain_names_it() -> None:
    pruned = optimize(Project(Schema(PAIR.columns[:1]), TWICE, (Col(BIGINT, 0),)))
    assert [type(node) for node in walk(pruned)] == [Project, Repeat, Scan]
    assert TWICE.describe() == "repeat"


def test_partitions_gather_its_rows_in_one_place_unless_they_are_everywhere() -> None:
    planner = DistributionEnforcer({"t": by((0,))}, {}, {}, 3)
    placed = planner.place(TWICE)
    assert placed == (Repeat(PAIR, Ship(PAIR, TABLE, "one"), 2), ONE)
    assert DistributionEnforcer({"t": ALL}, {}, {}, 3).place(TWICE) == (TWICE, ALL)
    joined = Join(Schema(PAIR.columns * 2), TWICE, TABLE, "inner", ((0, 0),))
    assert planner.place(joined).place.kind == "hash"


def test_what_it_reads_is_known() -> None:
    program = Program()
    program.views["inner"] = View("inner", PAIR, TABLE)
    program.views["outer"] = View("outer", PAIR, Repeat(PAIR, Ref(PAIR, "inner"), 2))
    assert [component.views for component in components(program)] == [("inner",), ("outer",)]
