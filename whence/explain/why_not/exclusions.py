"""Exclusions: the rows because of which an absence keeps a match out, with the derivations of them and of the match.

Both are in one graph, so that `remedies` can find a base row whose loss takes the excluding rows away and leaves the
match. An exclusion is sound if all rows that exclude the match are in the graph and no loss can bring others.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whence.explain.derive.body_matcher import BodyMatcher
from whence.explain.derive.extractor import Extractor
from whence.explain.derive.graph_builder import GraphRows
from whence.explain.derive.parts import Part
from whence.explain.graph import Derivations, Ints
from whence.explain.missing import Exclusion, FailedWay
from whence.explain.why_not.gaps import columns_over
from whence.explain.why_not.side_conditions import SideConditions
from whence.model.codes import Codes
from whence.model.errors import WhenceError
from whence.model.types import Schema
from whence.plan.algebra.logical import Node, Ref, Scan
from whence.plan.recursion.conjunctive import Body

_MOST = 3  # matches of a way, and rows per absence, that are explained


class ExclusionFinder:
    """Finds what keeps the matches of one body out. `new_extractor` begins a graph."""

    def __init__(self, matcher: BodyMatcher, new_extractor: Callable[[], Extractor], conditions: SideConditions):
        self.matcher, self.body, self.query = matcher, matcher.body, matcher.query
        self.new_extractor, self.conditions = new_extractor, conditions

    def add(self, way: FailedWay, rows: Codes) -> None:
        """Add the exclusions of the matches that the fewest absences exclude."""
        count = np.sum([self.matcher.blocked(a, rows)[0] for a in self.body.absences], axis=0)
        best = np.argsort(count, kind="stable")[:_MOST]
        for row in rows[best[count[best] == count[best[0]]]]:
            excluding = [(a.node, self.matcher.excluding(a, row[None, :])) for a in self.body.absences]
            try:
                way.exclusions.append(self._explain(row[None, :], [(n, found) for n, found in excluding if len(found)]))
            except WhenceError as error:
                names = dict.fromkeys(self.query.name_of(node) for node, found in excluding if len(found))
                way.reason = f"excluded by rows of {', '.join(names) or 'what must not be there'} ({error})"

    def _explain(self, row: Codes, excluding: list[tuple[Node, Codes]]) -> Exclusion:
        """Derive a match and the rows that exclude it."""
        extractor = self.new_extractor()
        nodes: list[int] = []
        for node, found in excluding:
            nodes += _derive_rows(extractor, node, found[:_MOST], len(nodes)).tolist()
        match = _derive_match(extractor, self.body, row)
        extractor.close()
        graph = extractor.builder.finish(np.array([*nodes, *match], np.int32))
        more = sum(max(0, len(found) - _MOST) for _, found in excluding)
        fixed = not any(extractor.is_volatile(a.node) for a in self.body.absences)
        return Exclusion(
            graph,
            [_skip_copies(graph, int(n)) for n in graph.roots[: len(nodes)]],
            int(graph.roots[len(nodes)]),
            more,
            self.conditions.sound and fixed and not more and graph.exact,
            self.conditions.protected_tables(extractor),
        )


def _derive_rows(extractor: Extractor, node: Node, rows: Codes, number: int) -> Ints:
    """Add rows of a query that must not be there to a graph; return their nodes."""
    if isinstance(node, (Scan, Ref)):
        (name,) = node.names
        return extractor.nodes(name, rows)
    name = extractor.query.name_of(node)
    relation = extractor.builder.relation(("excluding", number), name, "inner", node.schema)
    parts = extractor.query.parts(node, ((tuple(range(rows.shape[1])), rows),))
    return _derive_parts(extractor, relation, rows, parts, name)


def _derive_match(extractor: Extractor, body: Body, row: Codes) -> Ints:
    """Add a match of a body to a graph, whatever its absences say; return its node."""
    schema = Schema(tuple(c for s in body.sources for c in s.schema.columns))
    relation = extractor.builder.relation("match", "match", "inner", schema)
    present = Body(body.sources, body.tests, columns_over(body.sources))
    parts = BodyMatcher(extractor.query, present).match(((tuple(range(body.width)), row),), bag=False)
    return _derive_parts(extractor, relation, row, parts, "match")


def _derive_parts(extractor: Extractor, relation: GraphRows, rows: Codes, parts: list[Part], name: str) -> Ints:
    heads, _ = extractor.builder.intern(relation, rows)
    for part in parts:
        extractor.query.derive(extractor.builder.intern(relation, part.rows)[0], part, name)
    return heads


def _skip_copies(graph: Derivations, node: int) -> int:
    """Return the row that another is a copy of under the same name."""
    while len(ways := graph.derivations_of(node)) == 1 and len(body := graph.bodies(ways[0])) == 1:
        below = int(body[0])
        if graph.relations[graph.relation[below]].name != graph.relations[graph.relation[node]].name:
            break
        if graph.kind(node) != "inner":
            break
        node = below
    return node
