"""Recursive components as running operators: externals built outside, one fixpoint, a port for each relation read."""

from __future__ import annotations

import numpy as np

from whence.engine.build import Builder
from whence.engine.fixpoint import POLICIES, Fixpoint, Pipeline, Port
from whence.engine.graph import Dataflow
from whence.engine.operator import Batch, Operator
from whence.errors import SqlError
from whence.model.codes import Codes, Dictionary
from whence.plan.logical import Node
from whence.plan.program import Program
from whence.plan.rewrite import optimize
from whence.plan.rules import BINDING, compile_rules
from whence.plan.strata import Component

DEPTH_LIMIT = 100_000
ROW_LIMIT = 20_000_000


def build_component(
    component: Component, program: Program, builder: Builder, depth_limit: int = DEPTH_LIMIT
) -> dict[str, Operator]:
    """The operators behind the views of a recursive component."""
    rules = compile_rules(component.views, program)
    inputs = [builder.build(r.source) for r in rules.relations if r.source is not None]
    pipelines = {
        number: pipeline(rule.foreign.pipeline, builder.dictionary)
        for number, rule in enumerate(rules.rules)
        if rule.foreign is not None
    }
    fixpoint = Fixpoint(
        rules,
        inputs,
        builder.dictionary,
        pipelines,
        name=", ".join(program.views[v].owner or v for v in component.views),
        policy=_policy(component, program),
        depth_limit=_limit(component, program, depth_limit),
    )
    ports: dict[str, Operator] = {name: Port(fixpoint, relation) for name, relation in rules.outputs.items()}
    outside = builder.resolve
    builder.resolve = lambda name: ports[name] if name in ports else outside(name)
    try:
        for name, node in rules.after:
            ports[name] = builder.build(optimize(node))
    finally:
        builder.resolve = outside
    return {name: ports[name] for name in component.views}


def _policy(component: Component, program: Program) -> str:
    named = {p for v in component.views if (p := program.views[v].option("policy"))}
    if len(named) > 1:
        raise SqlError(f"{', '.join(component.views)} recurse together and must have one policy, not {sorted(named)}")
    policy = named.pop().lower() if named else "support"
    if policy not in POLICIES:
        raise SqlError(f"there is no policy {policy!r}; choose one of {', '.join(POLICIES)}")
    return policy


def _limit(component: Component, program: Program, default: int) -> int:
    given = [v for view in component.views if (v := program.views[view].option("recursion_limit"))]
    try:
        return max((int(v) for v in given), default=default)
    except ValueError:
        raise SqlError(f"recursion_limit must be a whole number, not {given[0]!r}") from None


def pipeline(node: Node, dictionary: Dictionary) -> Pipeline:
    """Stateless nodes over numbered bindings, as a function of their codes."""
    flow = Dataflow()
    bottom = node
    while bottom.inputs:
        (bottom,) = bottom.inputs
    flow.table(BINDING, bottom.schema)
    top = Builder(flow, dictionary, flow.tables.__getitem__).build(node)
    chain: list[Operator] = []
    while top.inputs:
        chain.append(top)
        (top,) = top.inputs
    chain.reverse()

    def run(rows: Codes) -> Codes:
        batch = Batch(np.ascontiguousarray(rows), np.ones(len(rows), np.int64))
        for operator in chain:
            batch = operator.apply([batch])
        return batch.rows

    return run
