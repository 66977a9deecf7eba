"""The frontier of a recursion: all rows of a recursive view that would lead to a goal, followed backward.

A row of `reachable` is led to by every row from where it starts, or from what that reaches, to where it ends; so what
it lacks is a link from what is reached to what it is reached from. Rows are followed while the recursive source of a
body is asked for the same columns as the goals, up to bounds on rounds and rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from whence.explain.derive.plan_evaluator import PlanEvaluator
from whence.explain.why_not.gaps import find_demand
from whence.explain.why_not.goals import Goals
from whence.explain.why_not.rule_bodies import is_view, source_nodes
from whence.plan.recursion.conjunctive import Body

_ROUNDS = 200
_ROWS = 2_000


@dataclass(frozen=True)
class Frontier:
    """The goals with all rows that lead to one, and whether each of them certainly does (`sound`)."""

    goals: Goals
    sound: bool


def follow_recursion(query: PlanEvaluator, view: str | None, bodies: Iterable[Body], goals: Goals) -> Frontier | None:
    """Follow goals of a view through the bodies that read the view itself; None if there are none."""
    recursive = [(b, i) for b in bodies for i, node in enumerate(source_nodes(b)) if is_view(node, view)]
    if not recursive:
        return None
    found, newest, sound = goals.values, goals, True
    known = set(map(tuple, found.tolist()))
    for _ in range(_ROUNDS):
        asked = []
        for body, i in recursive:
            demand = find_demand(query, body, i, newest)
            if demand is not None and demand.goals.cols == goals.cols:
                sound = sound and demand.sound
                asked += demand.goals.values.tolist()
        fresh = [row for row in dict.fromkeys(map(tuple, asked)) if row not in known]
        if not fresh or len(found) > _ROWS:
            break
        newest = replace(goals, values=np.array(fresh[:_ROWS], np.int64))
        known.update(fresh[:_ROWS])
        found = np.concatenate([found, newest.values])
    return Frontier(replace(goals, values=found), sound)
