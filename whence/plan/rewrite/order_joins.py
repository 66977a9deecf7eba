"""Order inner joins without cross products, where that is possible.

A tree of inner joins is a set of relations and a set of conditions; any order of the relations gives the same rows.
Each connected group of relations is joined left to right, always taking the first one in the text that an equality
ties to those already joined, and the groups are crossed last. Groups of at most one row (scalar subqueries) are crossed
among themselves first, so that the others meet one row and not one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from whence.model.types import BOOLEAN
from whence.plan.algebra.constructors import at_most_one_row, join, select
from whence.plan.algebra.expressions import Call, Col, Expr, columns_of, conjuncts, may_fail, substitute
from whence.plan.algebra.logical import Join, Node, Project


@dataclass
class _Tree:
    """The relations under a tree of inner joins; columns are numbered through all of them."""

    leaves: list[Node] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    terms: list[Expr] = field(default_factory=list)
    width: int = 0

    def leaf_of(self, column: int) -> int:
        return max(i for i, start in enumerate(self.starts) if start <= column and self.leaves[i].schema.columns)


def order_joins(node: Node) -> Node:
    """Order the inner joins of a plan."""
    if _is_inner(node):
        tree = _Tree()
        shown = _flatten(node, tree)
        if len(tree.leaves) > 2:
            tree.leaves = [order_joins(leaf) for leaf in tree.leaves]
            return _ordered(node, tree, shown)
    inputs = [order_joins(child) for child in node.inputs]
    return node.with_inputs(inputs) if inputs else node


def _is_inner(node: Node) -> bool:
    return isinstance(node, Join) and node.kind == "inner"


def _flatten(node: Node, tree: _Tree) -> list[int]:
    """Add the node's relations to the tree; gives the tree's number of each of its columns."""
    if isinstance(node, Join) and node.kind == "inner":
        left, right = _flatten(node.left, tree), _flatten(node.right, tree)
        shown = left + right
        for a, b in node.keys:
            types = node.left.schema.columns[a].type, node.right.schema.columns[b].type
            tree.terms.append(Call(BOOLEAN, "=", (Col(types[0], left[a]), Col(types[1], right[b]))))
        tree.terms += [substitute(t, lambda c: Col(c.type, shown[c.index])) for t in conjuncts(node.residual)]
        return shown
    if isinstance(node, Project) and _is_inner(node.input) and all(isinstance(e, Col) for e in node.exprs):
        below = _flatten(node.input, tree)
        return [below[e.index] for e in node.exprs if isinstance(e, Col)]
    start = tree.width
    tree.leaves.append(node)
    tree.starts.append(start)
    tree.width += len(node.schema)
    return list(range(start, tree.width))


def _ordered(node: Node, tree: _Tree, shown: list[int]) -> Node:
    ties: list[set[int]] = []
    for term in tree.terms:
        ties.append({tree.leaf_of(c) for c in columns_of(term)})
    todo = list(range(len(tree.leaves)))
    pending = list(range(len(tree.terms)))
    groups: list[_Group] = []
    while todo:  # one connected group at a time
        group = {todo[0]}
        made, made_place = tree.leaves[todo.pop(0)], dict[int, int]()
        _add(made_place, tree, min(group), 0)
        while True:
            following = next((i for i in todo if _tied(i, group, tree, ties)), None)
            if following is None:
                break
            todo.remove(following)
            group.add(following)
            made, pending = _join_next(made, made_place, tree.leaves[following], following, tree, ties, pending, group)
        groups.append((made, made_place))
    single = [g for g in groups if at_most_one_row(g[0])]
    while len(single) > 1:
        first, second, *rest = single
        crossed, pending = _cross(first, second, tree, pending)
        single = [*rest, crossed]  # in turn, so that the tree is no deeper than it must be
    (plan, place), *others = [g for g in groups if not at_most_one_row(g[0])] + single
    for other in others:
        (plan, place), pending = _cross((plan, place), other, tree, pending)
    plan = select(plan, [_moved(tree.terms[i], place) for i in pending])  # conditions of no column
    if [place[c] for c in shown] == list(range(len(plan.schema))):
        return plan
    types = node.schema.types
    return Project(node.schema, plan, tuple(Col(t, place[c]) for t, c in zip(types, shown, strict=True)))


_Group = tuple[Node, dict[int, int]]  # joined relations, and where they have the tree's columns


def _cross(left: _Group, right: _Group, tree: _Tree, pending: list[int]) -> tuple[_Group, list[int]]:
    """Join two groups on the pending conditions that both together decide; return the conditions that are left.

    Between single rows a condition that may fail waits: there may be no row of the other relations to decide it for."""
    width = len(left[0].schema)
    place = left[1] | {column: at + width for column, at in right[1].items()}
    ready = [i for i in pending if columns_of(tree.terms[i]) and columns_of(tree.terms[i]) <= place.keys()]
    if at_most_one_row(left[0]) and at_most_one_row(right[0]):
        ready = [i for i in ready if not may_fail(tree.terms[i])]
    joined = join(left[0], right[0], "inner", [_moved(tree.terms[i], place) for i in ready])
    return (joined, place), [i for i in pending if i not in ready]


def _join_next(
    made: Node,
    place: dict[int, int],
    leaf: Node,
    number: int,
    tree: _Tree,
    ties: list[set[int]],
    pending: list[int],
    group: set[int],
) -> tuple[Node, list[int]]:
    _add(place, tree, number, len(made.schema))
    ready = [i for i in pending if ties[i] <= group and number in ties[i]]
    joined = join(made, leaf, "inner", [_moved(tree.terms[i], place) for i in ready])
    return joined, [i for i in pending if i not in ready]


def _tied(leaf: int, group: set[int], tree: _Tree, ties: list[set[int]]) -> bool:
    """Return whether an equality ties the relation to the group."""
    for term, tie in zip(tree.terms, ties, strict=True):
        if isinstance(term, Call) and term.op == "=" and leaf in tie and tie - {leaf} and tie - {leaf} <= group:
            return True
    return False


def _add(place: dict[int, int], tree: _Tree, leaf: int, at: int) -> None:
    for i in range(len(tree.leaves[leaf].schema)):
        place[tree.starts[leaf] + i] = at + i


def _moved(term: Expr, place: dict[int, int]) -> Expr:
    return substitute(term, lambda c: Col(c.type, place[c.index]))
