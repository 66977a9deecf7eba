"""Outer joins: pairs, and the rows without a partner padded with NULLs.

Law: L ⟕ R = L ⋈ R + (L ▷ R)·NULLs, and likewise for the right side; so an outer join is a union of an inner join and
one or two anti joins, which share the arrangements of both inputs. State and cost are theirs.
"""

from __future__ import annotations

from whence.engine.core.operator import Operator
from whence.engine.relational.join import Join
from whence.engine.relational.project import Project
from whence.engine.relational.semijoin import Semijoin
from whence.engine.relational.union import Union
from whence.model.codes import Dictionary
from whence.plan.algebra.expressions import Col, Expr, Lit, substitute
from whence.plan.algebra.logical import Join as Node
from whence.plan.algebra.multiway_join import join_sides


def outer_join(left: Operator, right: Operator, node: Node, dictionary: Dictionary) -> Operator:
    """The operators of a LEFT, RIGHT or FULL join."""
    schema, types, width = node.schema, node.schema.types, len(left.schema)
    right_width = len(right.schema)
    parts: list[Operator] = [Join([left, right], join_sides(node), dictionary)]
    if node.kind in ("left", "full"):
        alone = Semijoin(left, right, "anti", node.keys, node.residual, left.schema, dictionary)
        padded: list[Expr] = [Col(types[c], c) if c < width else Lit(types[c], None) for c in range(len(types))]
        parts.append(Project(alone, tuple(padded), schema, dictionary))
    if node.kind in ("right", "full"):
        turned = None
        if node.residual is not None:
            turned = substitute(
                node.residual, lambda c: Col(c.type, c.index + right_width if c.index < width else c.index - width)
            )
        keys = tuple((b, a) for a, b in node.keys)
        alone = Semijoin(right, left, "anti", keys, turned, right.schema, dictionary)
        padded = [Lit(types[c], None) if c < width else Col(types[c], c - width) for c in range(len(types))]
        parts.append(Project(alone, tuple(padded), schema, dictionary))
    return Union(parts, schema)
