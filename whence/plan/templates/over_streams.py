"""Templates over streams: how the rows of a stream find their subscriptions."""

from __future__ import annotations

from whence.plan.algebra.expressions import Col, substitute
from whence.plan.algebra.logical import (
    Join,
    Node,
    walk,
)
from whence.plan.algebra.logical.match import describe_sides
from whence.plan.algebra.program import Program, Table, template_name
from whence.plan.streams.lookup_boxes import box_of
from whence.plan.streams.networks import gives_stream
from whence.plan.templates.shapes import selects


def over_stream(plan: Node, parameters: Table, program: Program) -> str | None:
    """Say how the rows of a stream find their subscriptions; None if a template is over relations only."""
    joins = [node for node in walk(plan) if selects(node, parameters)]
    joins = [one for one in joins if gives_stream(one.right, program, template_name(parameters.name))]
    if not joins:
        return None
    found = [_looked_up_by(one) for one in joins]
    if not all(found):
        return "joined with the parameters: no condition on rows of the stream is an equality or a range"
    return f"in groups: match subscriptions with rows of a stream by {found[0]}"


def _looked_up_by(join: Join) -> str:
    """Say by what the rows of a stream, on the right of a join, find its left; empty if they try all of it."""
    width, wide = len(join.left.schema), len(join.right.schema)
    keys = tuple((column, parameter) for parameter, column in join.keys)
    tests = join.residual
    if tests is not None:  # as a lookup has it: the stream's columns first
        tests = substitute(tests, lambda c: Col(c.type, (c.index - width) % (width + wide)))
    box = box_of(keys, tests, wide)
    if box is not None:
        return box.describe()
    return describe_sides([parameter for _, parameter in keys], ()) if keys else ""
