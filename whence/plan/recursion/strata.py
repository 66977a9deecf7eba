"""Order views by strongly connected components of the view graph, and check what recursion may do.

Inside a component rows may only ever lead to more rows; a reference to a member through negation, EXCEPT's right side,
an aggregate that is not MIN or MAX, or a top-k is refused, and the message names the cycle.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from whence.model.errors import NotStratifiable
from whence.plan.algebra.logical import Node, Ref, Scan, walk
from whence.plan.algebra.program import Program, View
from whence.plan.recursion.scc import strongly_connected


@dataclass(frozen=True)
class Component:
    """Views that depend on each other, or one view alone; `recursive` if any depends on itself."""

    views: tuple[str, ...]
    recursive: bool


def references(view: View) -> set[str]:
    """Return the views and streams that a view's query refers to."""
    return {name for node in walk(view.query) if not isinstance(node, Scan) for name in node.names}


def dependents(program: Program, name: str) -> list[str]:
    """Return the views that depend on a table or view, directly or through others, those nearest first (hidden ones
    too)."""
    reached: list[str] = []
    frontier = [name]
    while frontier:
        found = []
        for view in program.views.values():
            used = {name for node in walk(view.query) for name in node.names}
            if used & set(frontier) and view.name not in reached and view.name != name:
                found.append(view.name)
        reached += found
        frontier = found
    return reached


def changed_views(before: Program, after: Program) -> set[str]:
    """Return the views of a program that are not as they were before, or read one that is not."""
    changed = {name for name, view in after.views.items() if before.views.get(name) != view}
    while more := {n for n, v in after.views.items() if n not in changed and references(v) & changed}:
        changed |= more
    return changed


def components(program: Program) -> list[Component]:
    """Find the components in dependency order; raise NotStratifiable if a recursive one is not monotone."""
    graph = {name: sorted(references(view) & set(program.views)) for name, view in program.views.items()}
    found = []
    for members in strongly_connected(graph):
        recursive = len(members) > 1 or members[0] in graph[members[0]]
        if recursive:
            _check(program, members, graph)
        order = tuple(name for name in program.views if name in members)
        found.append(Component(order, recursive))
    return found


def _check(program: Program, members: list[str], graph: dict[str, list[str]]) -> None:
    for name in members:
        for target, reason in _non_monotone(program.views[name].query, set(members), None):
            path = _path(graph, target, name, set(members))
            cycle = " -> ".join(_shown(n) for n in [name, *path])
            raise NotStratifiable(
                f"the recursion {cycle} goes through {reason} in {_shown(name)}: rows found later could make"
                " earlier ones wrong. Compute what is negated or aggregated in a view that does not depend on this one"
            )


def _non_monotone(node: Node, members: set[str], reason: str | None) -> Iterator[tuple[str, str]]:
    """References to members in a position where more rows may mean fewer, with the name of that position."""
    if isinstance(node, Ref):
        if reason is not None and node.view in members:
            yield node.view, reason
        return
    for i, child in enumerate(node.inputs):
        yield from _non_monotone(child, members, reason or node.refuses_recursion(i))


def _path(graph: dict[str, list[str]], start: str, goal: str, members: set[str]) -> list[str]:
    """Find a shortest way from one member to another along references."""
    came: dict[str, str | None] = {start: None}
    frontier = [start]
    while frontier and goal not in came:
        following = []
        for name in frontier:
            for target in graph[name]:
                if target in members and target not in came:
                    came[target] = name
                    following.append(target)
        frontier = following
    path: list[str] = []
    at: str | None = goal
    while at is not None:
        path.append(at)
        at = came[at]
    return path[::-1]


def _shown(name: str) -> str:
    """Return a hidden view by the name its author gave it."""
    return name.rpartition("$")[2] or name
