"""Build recursive components: the sources of their external rows, one fixpoint, and a port for each relation read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from whence.engine.build import Builder
from whence.engine.core.dataflow import Dataflow
from whence.engine.core.fingerprint import fingerprint
from whence.engine.core.operator import Batch, Operator
from whence.engine.recursion.fixpoint import Fixpoint, Port
from whence.engine.recursion.mailbox import Mailbox
from whence.engine.recursion.rule_runner import Pipeline
from whence.model.codes import Codes, Dictionary
from whence.plan.algebra.logical import Node
from whence.plan.partitions.exchange import Exchange
from whence.plan.recursion.rule_model import RuleProgram
from whence.plan.recursion.rules import BINDING
from whence.plan.recursion.settings import Settings


def build_fixpoint(
    rules: RuleProgram, builder: Builder, views: tuple[str, ...], settings: Settings, spec: Exchange | None = None
) -> Fixpoint:
    """Build the fixpoint of rules over the sources of their external relations, or, with `spec`, this partition's share
    of one that crosses partitions: its rules are then those of `spec`."""
    rules = rules if spec is None else spec.rules
    inputs = [builder.build(r.source) for r in rules.relations if r.source is not None]
    pipelines = {
        number: pipeline(rule.foreign.pipeline, builder.dictionary)
        for number, rule in enumerate(rules.rules)
        if rule.foreign is not None
    }
    relations = [replace(r, source=None) for r in rules.relations]  # the inputs' fingerprints say what these are
    shape: tuple[object, ...]
    if spec is None:
        shape = ("fixpoint", views, settings.maintain or settings.policy, relations, rules.rules)
    else:
        crossing = relations, rules.rules, spec.required, spec.copies
        shape = ("exchange", views, settings.maintain, builder.partitions, *crossing)
    own = builder.fingerprint(shape, inputs)
    share = (builder.partition, builder.partitions) if spec is not None else (0, 1)
    fixpoint = Fixpoint(
        rules,
        inputs,
        builder.dictionary,
        pipelines,
        name=settings.name,
        policy=settings.maintain or settings.policy,
        depth_limit=settings.depth_limit,
        row_limit=settings.row_limit,
        mailbox=Mailbox(rules, spec, *share, channel=own),
    )
    fixpoint.fingerprint, fixpoint.transient = own, builder.transient
    return fixpoint


def build_outputs(
    fixpoint: Fixpoint, views: tuple[str, ...], after: Iterable[tuple[str, Node]], builder: Builder
) -> dict[str, Operator]:
    """Build what is behind views: ports of a fixpoint, and queries over those."""
    ports: dict[str, Operator] = {}
    for name, relation in fixpoint.program.outputs.items():
        ports[name] = port = Port(fixpoint, relation)
        port.fingerprint = fingerprint(("port", name), [fixpoint.fingerprint])
        port.transient = fixpoint.transient
    outside = builder.resolve
    builder.resolve = lambda name: ports[name] if name in ports else outside(name)
    try:
        for name, node in after:
            ports[name] = builder.build(node)
    finally:
        builder.resolve = outside
    return {name: ports[name] for name in views}


def pipeline(node: Node, dictionary: Dictionary) -> Pipeline:
    """Build stateless nodes over numbered bindings as a function of their codes."""
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
