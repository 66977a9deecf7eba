"""Calls every kernel of the optimizers once, so that it is compiled (`runtime.warm`)."""

from __future__ import annotations

from whence.adapt.optimizer import JoinGraph


def warm() -> None:
    """Optimize a tiny query in all ways, and change it."""
    graph = JoinGraph({"a": 3, "b": 4, "c": 5}, {("a", "b"): 0.5, ("b", "c"): 0.5})
    plans = [graph.optimizer("bottom_up", memo=memo) for memo in ("best", "all", "likely")]
    for plan in [*plans, graph.optimizer("top_down"), graph.optimizer(prune="all")]:
        plan.change(rows={"a": 9}, local={("b", "c"): 1}, scan={"b": 2})
    plans[0].alternative(("a", "b"), ("a", "b"))
