"""What a table or view has instead of a goal: per known column, the values that it is there with.

It says on which side two rows do not meet: `link has src = 'A' with dst = 'B', 'C'; link has no row with dst = 'Z'`.
"""

from __future__ import annotations

from whence.engine.core.dataflow import Dataflow
from whence.explain.derive.parts import drop_duplicates
from whence.explain.why_not.goals import GoalReader, Goals
from whence.plan.algebra.logical import Node, Ref, Scan

_SHOWN = 4  # values of one column


def describe_nearest(reader: GoalReader, node: Node, goals: Goals) -> list[str]:
    """Return a sentence per known column; none where there is only one, which no row has."""
    name, names, types = reader.query.name_of(node), node.schema.names, node.schema.types
    if not goals.cols or _is_empty(reader.query.owner.flow, node):
        return [f"{name} is empty"]
    if len(goals.cols) == 1:
        return []
    found = []
    for c in goals.cols:
        own = drop_duplicates(goals.of((c,)))
        rows = reader.rows_of(node, Goals((c,), own))
        these = f"{names[c]} = {reader.write(own[0, 0], types[c])}" if len(own) == 1 else f"these {names[c]}"
        if not len(rows):
            found.append(f"{name} has no row with {these}")
            continue
        others = []
        for other in (o for o in goals.cols if o != c):
            values = drop_duplicates(rows[:, [other]])[:, 0]
            some = ", ".join(reader.write(v, types[other]) for v in values[:_SHOWN])
            rest = f" and {len(values) - _SHOWN:,} more" if len(values) > _SHOWN else ""
            others.append(f"{names[other]} = {some}{rest}")
        found.append(f"{name} has {these} with {'; '.join(others)}")
    return found


def _is_empty(flow: Dataflow, node: Node) -> bool:
    """Return whether a table or view is known to have no row."""
    match node:
        case Scan():
            return node.table in flow.tables and not len(flow.tables[node.table].relation)
        case Ref():
            return node.view in flow.views and not flow.views[node.view].size
    return False
