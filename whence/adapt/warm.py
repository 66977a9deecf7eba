"""Calls every kernel of the optimizers once, so that it is compiled (`runtime.warm`)."""

from __future__ import annotations

import numpy as np

from whence.adapt.optimizer import JoinGraph
from whence.model.types import BIGINT, Column, Schema
from whence.plan.algebra.join_paths import JoinShape
from whence.plan.algebra.logical import Scan
from whence.plan.algebra.multiway_join import MultiwayJoin
from whence.plan.optimizer.paths import PathSpace


def warm() -> None:
    """Optimize a tiny query in all ways, and change it."""
    graph = JoinGraph({"a": 3, "b": 4, "c": 5}, {("a", "b"): 0.5, ("b", "c"): 0.5})
    plans = [graph.optimizer("bottom_up", memo=memo) for memo in ("best", "all", "likely")]
    for plan in [*plans, graph.optimizer("top_down"), graph.optimizer(prune="all")]:
        plan.change(rows={"a": 9}, local={("b", "c"): 1}, scan={"b": 2})
    plans[0].alternative(("a", "b"), ("a", "b"))
    side = Scan(Schema((Column("x", BIGINT),)), "a")
    space = PathSpace(JoinShape(MultiwayJoin(side.schema, (side, side), ((0, 1),), (), (0,))))
    fan, passing, met, passed = (
        np.ones(len(keys)) for keys in (space.fan_keys, space.test_keys, space.met_keys, space.pass_keys)
    )
    space.fill(fan, passing, met, passed, np.ones(len(space.index_keys), np.int64))
    space.search()
