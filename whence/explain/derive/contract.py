"""Contract a graph: skip rows in between that say nothing of their own.

Law: the function of every node that stays is what it was. A row in between with one derivation stands for its body, so
the body takes its place; a row whose only derivation is one row in between, which nothing else uses, takes over what
that one has. Rows in between never form a cycle.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from whence.explain.graph import DerivationRule, Derivations, Ints
from whence.explain.kernels import splice
from whence.model.codes import Codes

Mask = NDArray[np.bool_]


def contract(graph: Derivations, plain: Mask) -> Derivations:
    """Return the graph without rows of `plain` relations where they can be skipped. If there are any, its derivations
    need not be sorted; those of the result are."""
    between = plain[graph.relation]
    if not between.any():
        return graph
    work = _Work(graph, between)
    work.splice()
    while work.absorb():
        pass
    return work.result()


class _Work:
    """The derivations as they are being changed."""

    def __init__(self, graph: Derivations, between: Mask):
        self.graph, self.between = graph, between
        self.head, self.step, self.body = graph.head.copy(), graph.step.copy(), graph.body
        self.size = np.diff(graph.start)
        self.steps = list(graph.steps)
        self.tallies = dict(graph.tallies)
        self.keep = np.ones(len(graph), bool)
        self.fixed = np.zeros(len(graph), bool)  # what must stay where it is
        self.fixed[graph.roots] = True

    def _tallied(self) -> Mask:
        found = np.zeros(len(self.graph), bool)
        found[list(self.tallies)] = True
        return found

    def _number(self) -> Codes:
        """Count the derivations of each node."""
        return np.bincount(self.head, minlength=len(self.graph))

    def splice(self) -> None:
        """Let the body of a row in between that has one derivation take its place."""
        tallied = self._tallied()
        skip = self.between & (self._number() == 1) & ~self.fixed & ~tallied
        if self.tallies:
            skip[self.body[np.repeat(tallied[self.head], self.size)]] = False  # an element of a tally is one node
        if not skip.any():
            return
        stays = ~skip[self.head]
        own = np.full(len(self.graph), -1, np.int64)  # the derivation of each row that is skipped
        own[self.head[~stays]] = np.flatnonzero(~stays)
        start = np.zeros(len(self.size) + 1, np.int64)
        np.cumsum(self.size, out=start[1:])
        self.size, self.body, changed = splice.splice(stays, start, self.body, skip, own)
        self.head, self.step = self.head[stays], self.step[stays]
        self._rename_rules(np.flatnonzero(changed))
        self.keep &= ~skip

    def _rename_rules(self, changed: Codes) -> None:
        """Name the rules of derivations that now stand on other relations."""
        graph = self.graph
        start = np.cumsum(self.size) - self.size
        kind, first = splice.alike(changed, start, self.size, self.body, graph.relation, self.step)
        made = []
        for d in first.tolist():
            head = self.steps[self.step[d]].text.partition(" <- ")[0]
            nodes = self.body[start[d] : start[d] + self.size[d]]
            names = [graph.relations[r] for r in graph.relation[nodes].tolist()]
            body = ", ".join(f"no {r.name}" if r.kind == "absence" else r.name for r in names)
            self.steps.append(DerivationRule(self.steps[self.step[d]].view, f"{head} <- {body or 'always'}"))
            made.append(len(self.steps) - 1)
        self.step[changed] = np.array(made, np.int32)[kind]

    def absorb(self) -> bool:
        """Let a row take over the derivations of the one row in between that it stands on; whether any did."""
        n = len(self.graph)
        used = np.bincount(self.body, minlength=n)
        single = (self._number()[self.head] == 1) & (self.size == 1) & ~self._tallied()[self.head]
        start = np.cumsum(self.size) - self.size
        at = np.flatnonzero(single)
        below = self.body[start[at]]
        can = self.between[below] & (used[below] == 1) & ~self.fixed[below] & self.keep[below]
        at, below = at[can], below[can]
        if not len(at):
            return False
        # In a chain only the upper one goes on: the next round takes the others.
        lower = np.zeros(n, bool)
        lower[below] = True
        first = ~lower[self.head[at]]
        at, below = at[first], below[first]
        above = np.full(n, -1, np.int32)
        above[below] = self.head[at]
        stays = np.ones(len(self.head), bool)
        stays[at] = False
        moved = above[self.head] >= 0
        self._rename_heads(moved, above)
        self.head = np.where(moved, above[self.head], self.head).astype(np.int32)
        for b, h in zip(below.tolist(), above[below].tolist(), strict=True):
            if b in self.tallies:
                self.tallies[h] = self.tallies.pop(b)
        self._only(stays)
        self.keep[below] = False
        return True

    def _rename_heads(self, moved: Mask, above: Ints) -> None:
        """Name the rules that now lead to another relation."""
        relations, graph = self.graph.relations, self.graph
        at = np.flatnonzero(moved)
        old, new = graph.relation[self.head[at]], graph.relation[above[self.head[at]]]
        for step, before, after in {*zip(self.step[at].tolist(), old.tolist(), new.tolist(), strict=True)}:
            text = self.steps[step].text.replace(relations[before].name, relations[after].name, 1)
            self.steps.append(DerivationRule(self.steps[step].view, text))
            mine = at[(self.step[at] == step) & (old == before) & (new == after)]
            self.step[mine] = len(self.steps) - 1
            at, old, new = (a[self.step[at] != len(self.steps) - 1] for a in (at, old, new))

    def _only(self, stays: Mask) -> None:
        self.body = self.body[np.repeat(stays, self.size)]
        self.head, self.step, self.size = self.head[stays], self.step[stays], self.size[stays]

    def result(self) -> Derivations:
        from whence.explain.derive.graph_builder import sort_by_head

        graph = self.graph
        number = (np.cumsum(self.keep) - 1).astype(np.int32)
        head, step, start, body = sort_by_head(number[self.head], self.step, self.size, number[self.body])
        relation = graph.relation[self.keep]
        used = np.zeros(len(graph.relations), bool)
        used[relation] = True
        new = (np.cumsum(used) - 1).astype(np.int32)
        return replace(
            graph,
            relations=[r for r, u in zip(graph.relations, used, strict=True) if u],
            cells=[c for c, u in zip(graph.cells, used, strict=True) if u],
            relation=new[relation],
            place=graph.place[self.keep],
            steps=self.steps,
            head=head,
            step=step,
            start=start,
            body=body,
            roots=number[graph.roots],
            tallies={int(number[n]): t for n, t in self.tallies.items()},
            copies={int(number[n]): c for n, c in graph.copies.items()},
        )
