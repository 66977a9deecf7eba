"""Find strongly connected components (Tarjan's algorithm, iterative)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

T = TypeVar("T")


def strongly_connected(graph: Mapping[T, Iterable[T]], roots: Iterable[T] | None = None) -> list[list[T]]:
    """Find strongly connected components, dependencies first: of everything, or of what the roots depend on."""
    index: dict[T, int] = {}
    low: dict[T, int] = {}
    stack: list[T] = []
    on_stack: set[T] = set()
    found: list[list[T]] = []
    for root in graph if roots is None else roots:
        if root in index:
            continue
        work: list[tuple[T, Iterator[T]]] = [(root, iter(graph[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            name, edges = work[-1]
            for target in edges:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(graph[target])))
                    break
                if target in on_stack:
                    low[name] = min(low[name], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    at = stack.index(name)
                    found.append(stack[at:])
                    on_stack -= set(stack[at:])
                    del stack[at:]
    return found
