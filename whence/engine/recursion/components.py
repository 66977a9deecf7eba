"""Recursive components as running operators: externals built outside, one fixpoint, a port for each relation read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import numpy as np

from whence.annotate import Provenance as Functions
from whence.annotate.absorption import Absorption
from whence.annotate.relative import Relative
from whence.engine.build import Builder
from whence.engine.core.dataflow import Dataflow
from whence.engine.core.fingerprint import fingerprint
from whence.engine.core.operator import Batch, Operator
from whence.engine.recursion.annotated_fixpoint import AnnotatedFixpoint
from whence.engine.recursion.fixpoint import Fixpoint, Pipeline, Port
from whence.model.codes import Codes, Dictionary
from whence.plan.algebra.logical import Node
from whence.plan.algebra.program import Program
from whence.plan.recursion.rule_model import RuleProgram
from whence.plan.recursion.rules import BINDING, compile_rules
from whence.plan.recursion.settings import DEPTH_LIMIT, Maintain, settings
from whence.plan.recursion.strata import Component
from whence.plan.rewrite import optimize


def build_component(
    component: Component, program: Program, builder: Builder, depth_limit: int = DEPTH_LIMIT
) -> dict[str, Operator]:
    """The operators behind the views of a component that recurses, or whose provenance is maintained."""
    rules = compile_rules(component.views, program, whole=not component.recursive)
    own = settings(component.views, program, rules, depth_limit)
    fixpoint = build_fixpoint(
        rules,
        builder,
        component.views,
        name=own.name,
        policy=own.policy,
        depth_limit=own.depth_limit,
        row_limit=own.row_limit,
        maintain=own.maintain,
    )
    return build_outputs(fixpoint, component.views, [(name, optimize(node)) for name, node in rules.after], builder)


def build_fixpoint(
    rules: RuleProgram,
    builder: Builder,
    views: tuple[str, ...],
    *,
    name: str,
    policy: str,
    depth_limit: int,
    row_limit: int,
    maintain: Maintain | None = None,
) -> Fixpoint:
    """The fixpoint of rules over the sources of their external relations."""
    inputs = [builder.build(r.source) for r in rules.relations if r.source is not None]
    pipelines = {
        number: pipeline(rule.foreign.pipeline, builder.dictionary)
        for number, rule in enumerate(rules.rules)
        if rule.foreign is not None
    }
    fixpoint: Fixpoint
    if maintain is None:
        fixpoint = Fixpoint(
            rules,
            inputs,
            builder.dictionary,
            pipelines,
            name=name,
            policy=policy,
            depth_limit=depth_limit,
            row_limit=row_limit,
        )
    else:
        fixpoint = AnnotatedFixpoint(
            rules,
            inputs,
            builder.dictionary,
            pipelines,
            name=name,
            maintain=maintain,
            algebra=partial(functions_of, maintain),
            depth_limit=depth_limit,
            row_limit=row_limit,
        )
    relations = [replace(r, source=None) for r in rules.relations]  # the inputs' fingerprints say what these are
    shape = ("fixpoint", views, maintain or policy, relations, rules.rules)
    fixpoint.fingerprint = fingerprint(shape, [i.fingerprint for i in inputs])
    return fixpoint


def functions_of(maintain: Maintain) -> Functions:
    """An algebra for the annotations of one component."""
    return Relative() if maintain.algebra == "relative" else Absorption(maintain.representation)


def build_outputs(
    fixpoint: Fixpoint, views: tuple[str, ...], after: Iterable[tuple[str, Node]], builder: Builder
) -> dict[str, Operator]:
    """The operators behind views: ports of a fixpoint, and queries over those."""
    ports: dict[str, Operator] = {}
    for name, relation in fixpoint.program.outputs.items():
        ports[name] = port = Port(fixpoint, relation)
        port.fingerprint = fingerprint(("port", name), [fixpoint.fingerprint])
    outside = builder.resolve
    builder.resolve = lambda name: ports[name] if name in ports else outside(name)
    try:
        for name, node in after:
            ports[name] = builder.build(node)
    finally:
        builder.resolve = outside
    return {name: ports[name] for name in views}


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
