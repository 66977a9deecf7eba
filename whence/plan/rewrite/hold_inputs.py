"""Let changes wait before views that are refreshed on demand: `WITH (respond_within = …)`.

Law: a held view is its query over held inputs, `Hold(table)` in the place of each table, so with nothing pending it is
its definition, and a release of some tables only is right by the laws of its operators. A view that reads a held view
reads it as it is: what waits there waits for both. Only plans that partitions build have holds; everything that asks
what a view means reads the program, which has none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from whence.model.errors import SqlError
from whence.plan.algebra.arrival import has_at
from whence.plan.algebra.logical import Hold, HoldKey, Node, Ref, Scan, bottom_up, walk
from whence.plan.algebra.program import Program, View
from whence.plan.recursion.rule_model import RuleProgram

BOUND, SCHEDULE = "respond_within", "refresh"
"""The options of a held view."""


def holder_of(name: str, program: Program) -> View | None:
    """Return the held view that a view is, or belongs to as the hidden part of one."""
    view = program.views.get(name)
    while view is not None and view.owner in program.views:
        view = program.views[view.owner]
    return view if view is not None and view.option(BOUND) is not None else None


def bound_of(view: View) -> float:
    """Return the seconds within which a held view is to be refreshed."""
    text = view.option(BOUND)
    assert text is not None
    return int(text.split()[0]) / 1e6


def check_held(program: Program) -> None:
    """Raise SqlError if a view that is planned cannot be held, or says how it is refreshed but not within what."""
    for view in program.views.values():
        if view.option(BOUND) is None:
            if view.option(SCHEDULE) is not None:
                raise SqlError(
                    f"{view.name} has the option {SCHEDULE}, but not {BOUND}: it is refreshed in every epoch"
                )
        elif has_at(view.query.schema):
            raise SqlError(
                f"{view.name} is a stream, whose rows are told as they come: {BOUND} is for views that are relations"
            )


def hold_inputs(node: Node, owner: str, free: Collection[str]) -> Node:
    """Return a plan over held inputs; the views in `free` are read as they are."""
    if has_at(node.schema):
        return node
    if isinstance(node, Scan) or (isinstance(node, Ref) and node.view not in free):
        return Hold(node.schema, node, owner, node.names[0])
    if any(has_at(child.schema) for child in node.inputs):  # rows of a stream, as a relation
        names = [name for part in walk(node) for name in part.names]
        return Hold(node.schema, node, owner, names[0])
    return node.with_inputs([hold_inputs(child, owner, free) for child in node.inputs]) if node.inputs else node


def hold_rules(rules: RuleProgram, owner: str, free: Collection[str]) -> RuleProgram:
    """Return rules over held inputs."""
    relations = [
        r if r.source is None else replace(r, source=hold_inputs(r.source, owner, free)) for r in rules.relations
    ]
    return replace(rules, relations=relations)


def without_hold(node: Node) -> Node:
    """Return what is held, as it is after a release."""
    return bottom_up(node, lambda each: each.input if isinstance(each, Hold) else each)


def renewed(node: Node, owner: str, renewal: int) -> Node:
    """Return a plan whose holds for a view begin anew."""

    def change(each: Node) -> Node:
        return replace(each, renewal=renewal) if isinstance(each, Hold) and each.owner == owner else each

    return bottom_up(node, change)


def holds_in(node: Node, known: Mapping[str, frozenset[HoldKey]]) -> frozenset[HoldKey]:
    """Return the holds that a plan is behind; `known` are those of views."""
    found: set[HoldKey] = set()
    for part in walk(node):
        if isinstance(part, Hold):
            found.add(part.key)
        elif isinstance(part, Ref):
            found |= known.get(part.view, frozenset())
    return frozenset(found)
