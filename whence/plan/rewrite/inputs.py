"""The one step every rewrite repeats: the same node over other inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from whence.plan.algebra.logical import (
    Aggregate,
    Distinct,
    Join,
    Lateral,
    LocalFilter,
    Node,
    Project,
    Select,
    SetOp,
    Ship,
    TopK,
    Union,
)
from whence.plan.streams.model import (
    Align,
    BSort,
    DropProvenance,
    Generate,
    Latest,
    Lookup,
    Merge,
    ProvenanceJoin,
    Retain,
    Slide,
    StreamToRelation,
    Window,
    WindowJoin,
)


def with_inputs(node: Node, inputs: Sequence[Node]) -> Node:
    """The node over other inputs, which have the same columns."""
    match node:
        case Join() | SetOp():
            return replace(node, left=inputs[0], right=inputs[1])
        case Union():
            return replace(node, branches=tuple(inputs))
        case Select() | Project() | Distinct() | Aggregate() | TopK() | Lateral() | Ship() | LocalFilter():
            return replace(node, input=inputs[0])
        case WindowJoin():
            return replace(node, left=inputs[0], right=inputs[1])
        case Merge():
            return replace(node, branches=tuple(inputs))
        case Lookup():
            return replace(node, input=inputs[0], relation=inputs[1])
        case (
            Slide()
            | ProvenanceJoin()
            | Window()
            | BSort()
            | Latest()
            | StreamToRelation()
            | Retain()
            | Generate()
            | DropProvenance()
            | Align()
        ):
            return replace(node, input=inputs[0])
    return node


def bottom_up(node: Node, change: Callable[[Node], Node]) -> Node:
    """The plan with every node changed, inputs before the nodes over them."""
    inputs = [bottom_up(child, change) for child in node.inputs]
    return change(with_inputs(node, inputs) if inputs else node)
