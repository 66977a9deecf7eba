"""Calls every kernel that answers questions once, so that it is compiled (`runtime.warm`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from whence.engine.core.operator import Batch
from whence.engine.recursion.fixpoint import Fixpoint
from whence.explain.ask.contribution import compute_contribution
from whence.explain.ask.critical import find_critical, rank_losses
from whence.explain.ask.evaluate import Evaluator
from whence.explain.ask.formula import write_formula
from whence.explain.ask.reliability import compute_reliability, sample_reliability
from whence.explain.ask.resilience import find_smallest_loss
from whence.explain.ask.witnesses import find_witnesses
from whence.explain.derive.cone import Cone
from whence.explain.derive.graph_builder import GraphBuilder
from whence.explain.graph import DerivationRule, Derivations, GraphRelation, Tally
from whence.explain.show.choose import Ways
from whence.model.codes import Dictionary
from whence.model.types import BIGINT, Column, Schema
from whence.plan.recursion.rule_model import Atom, Rule, RuleProgram, RuleRelation


def warm() -> None:
    """Ask each question once of a row with several ways, and one of an average."""
    _cone()
    graph = _graph()
    for question in (
        Ways,
        find_witnesses,
        write_formula,
        find_critical,
        rank_losses,
        find_smallest_loss,
        compute_contribution,
    ):
        question(graph)
    chances = np.full(len(graph.base), 0.5)
    compute_reliability(graph, chances)
    sample_reliability(Evaluator(graph), chances, 64, 0.9, 0)
    mean = Tally((("avg", False),), np.ones(2, np.int64), ((1,), (2,)))
    find_critical(
        replace(
            graph,
            head=np.array([7], np.int32),
            step=np.zeros(1, np.int32),
            start=np.array([0, 2], np.int64),
            body=np.array([0, 1], np.int32),
            tallies={7: mean},
        )
    )


def _cone() -> None:
    """Find the derivations of a row of a closure of two links."""
    pair = Schema((Column("a", BIGINT), Column("b", BIGINT)))
    relations = [RuleRelation("link", pair, "external"), RuleRelation("closure", pair, "set")]
    base = Rule(1, (0, 1), (Atom(0, (0, 1)),), (), (), 2)
    step = Rule(1, (0, 2), (Atom(0, (0, 1)), Atom(1, (1, 2))), (), (), 3)
    fixpoint = Fixpoint(RuleProgram(relations, [base, step]), [], Dictionary(), {}, name="closure")
    fixpoint.apply([Batch(np.array([[1, 2], [2, 3]], np.int64), np.ones(2, np.int64))])
    cone = Cone(fixpoint, GraphBuilder(Dictionary()))
    cone.ask(1, fixpoint.live(1))
    cone.spread()
    cone.release()


def _graph() -> Derivations:
    """Build a bridge: 5 <- 0; 5 <- 1, 6; 6 <- 2, 5; 6 <- 3; 7 <- 4, 5; 7 <- 1, 6; the root is 7."""
    one = Schema((Column("n", BIGINT),))
    bodies = [[0], [1, 6], [2, 5], [3], [4, 5], [1, 6]]
    return Derivations(
        relations=[GraphRelation("base", "base", one), GraphRelation("view", "view", one)],
        relation=np.array([0, 0, 0, 0, 0, 1, 1, 1], np.int32),
        place=np.array([0, 1, 2, 3, 4, 0, 1, 2], np.int32),
        cells=[np.arange(5, dtype=np.int64)[:, None], np.arange(3, dtype=np.int64)[:, None]],
        steps=[DerivationRule("view", "view <- base")],
        head=np.array([5, 5, 6, 6, 7, 7], np.int32),
        step=np.zeros(6, np.int32),
        start=np.cumsum([0, *map(len, bodies)]).astype(np.int64),
        body=np.array([n for b in bodies for n in b], np.int32),
        roots=np.array([7], np.int32),
        dictionary=Dictionary(),
    )
