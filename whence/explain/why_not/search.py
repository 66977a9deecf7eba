"""Explain why a table or view has no such row, level by level down to base rows.

A query is read as rule bodies. A body without a match fails because of one part, if it has matches without that part:
a source that has no such row, which is explained in turn; a test that is not true; rows that an absence forbids, which
are there because of others. Where no part alone is enough, several rows are missing, and the first of them are named.

Every goal is looked into once; in a recursive view all rows that lead to a goal are looked into with it. The work is
bounded: beyond the limits below, goals, combinations and rows are counted, not listed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from whence.engine.core.dataflow import Dataflow
from whence.explain.derive.body_matcher import BodyMatcher
from whence.explain.derive.extractor import Extractor
from whence.explain.derive.grouped_query import peel_groups
from whence.explain.derive.stream_tables import list_streams
from whence.explain.missing import FailedWay, MissingRows
from whence.explain.why_not.body_text import source_names, write_conditions, write_failure, write_rule
from whence.explain.why_not.exclusions import ExclusionFinder
from whence.explain.why_not.frontier import follow_recursion
from whence.explain.why_not.gaps import Match, find_demand, match_without, restrict_body
from whence.explain.why_not.goals import GoalReader, Goals
from whence.explain.why_not.missing_groups import explain_group, project_keys
from whence.explain.why_not.nearest_rows import describe_nearest
from whence.explain.why_not.rule_bodies import flatten_query, is_possible, is_view, is_whole, source_nodes
from whence.explain.why_not.side_conditions import SideConditions, find_insertable
from whence.model.codes import Dictionary
from whence.plan.algebra.expressions import Call, Col, Lit
from whence.plan.algebra.logical import Node, Ref, Scan, TopK
from whence.plan.algebra.program import Program
from whence.plan.recursion.conjunctive import Body

_WAYS = 8  # bodies of a query
_GOALS = 24  # queries that are looked into
_DEPTH = 12  # levels


def explain_missing(
    flow: Dataflow, program: Program, planned: Program, dictionary: Dictionary, name: str, given: Mapping[str, Any]
) -> MissingRows:
    """Explain why a table or view has no row with the given values.

    `program` is as users wrote it and `planned` as it runs. The dataflow must not change meanwhile."""
    search = WhyNotSearch(lambda: Extractor(flow, program, planned, dictionary))
    known = program.tables.get(name) or program.views[name]
    node: Node = Scan(known.schema, name) if name in program.tables else Ref(known.schema, name)
    goals = search.reader.encode(given, known.schema)
    if name in program.views and (streams := list_streams(program.views[name].query, program, planned)):
        missing = search.reader.describe(node, goals)
        missing.note = f"there is no such row now; {name} is made of what comes in {', '.join(streams)}"
        return missing
    return search.explain(node, goals, SideConditions())


@dataclass(frozen=True)
class _Place:
    """Where a body stands: the query it leads to, the view that this is, if any, and the levels above."""

    node: Node
    depth: int
    conditions: SideConditions

    @property
    def view(self) -> str | None:
        return self.node.view if isinstance(self.node, Ref) else None


class WhyNotSearch:
    """One question: the goals that it has looked into, and how many it may still."""

    def __init__(self, new_extractor: Callable[[], Extractor]):
        self.new_extractor = new_extractor
        self.owner = new_extractor()
        self.query = self.owner.query
        self.reader = GoalReader(self.query)
        self._explained: dict[object, set[tuple[int, ...]]] = {}  # goals by query and columns
        self._left = _GOALS

    def explain(
        self, node: Node, goals: Goals, conditions: SideConditions, where: str = "", depth: int = 0
    ) -> MissingRows:
        """Explain why a query has none of some rows. `where` is what such a row would also have to fulfil."""
        missing = self.reader.describe(node, goals, where)
        if not where:
            missing.nearest = describe_nearest(self.reader, node, goals)
        if isinstance(node, Scan):
            if conditions.sound and not where:
                missing.sufficient = find_insertable(self.reader, node, goals, conditions)
            return missing
        fresh = self._not_explained(node, goals)
        if not len(fresh.values):
            missing.note = "see above"
        elif depth >= _DEPTH or self._left <= 0:
            missing.note = "not looked into any further: ask about this row"
        else:
            self._left -= 1
            self._set_explained(node, fresh)
            self._explain_bodies(missing, fresh, _Place(node, depth, conditions))
        return missing

    def _not_explained(self, node: Node, goals: Goals) -> Goals:
        explained = self._explained.get(_key(node, goals), set())
        fresh = np.array([tuple(row) not in explained for row in goals.values.tolist()], bool)
        return replace(goals, values=goals.values[fresh])

    def _set_explained(self, node: Node, goals: Goals) -> None:
        self._explained.setdefault(_key(node, goals), set()).update(map(tuple, goals.values.tolist()))

    def _explain_bodies(self, missing: MissingRows, goals: Goals, place: _Place) -> None:
        """Explain why no body of a query leads to the goals."""
        query = self.owner.program.views[place.view].query if place.view is not None else place.node
        if isinstance(query, TopK):
            if len(self.reader.rows_of(query.input, goals)):
                missing.note = (
                    f"the row is there, but outside the first {query.limit} rows that {missing.relation} keeps"
                )
                return
            query, place = query.input, replace(place, conditions=place.conditions.unsound())
        if (grouped := peel_groups(query, lambda name: None)) is not None:
            keys = explain_group(self.reader, missing, place.node.schema, grouped, goals)
            if keys is None:
                return
            goals, place = keys, replace(place, conditions=place.conditions.unsound())
            bodies = [project_keys(b, grouped) for b in flatten_query(self.owner, grouped[0].input)]
        else:
            bodies = flatten_query(self.owner, query)
        if is_whole(query, bodies):
            missing.note = f"{missing.relation} is computed as a whole"
            return
        bodies = [b for b in bodies if is_possible(b, goals, self.owner.dictionary)] or bodies
        goals, place = self._follow(missing, bodies, goals, place)
        missing.ways += [self._explain_body(missing.relation, b, goals, place) for b in bodies[:_WAYS]]
        if len(bodies) > _WAYS:
            missing.note = f"and {len(bodies) - _WAYS} more ways"

    def _follow(self, missing: MissingRows, bodies: list[Body], goals: Goals, place: _Place) -> tuple[Goals, _Place]:
        """Add the rows of a recursive view that would lead to the goals."""
        frontier = follow_recursion(self.query, place.view, bodies, goals)
        if frontier is None:
            return goals, place
        self._set_explained(place.node, frontier.goals)
        if len(frontier.goals.values) == len(goals.values):
            return goals, place
        every = self.reader.describe(place.node, frontier.goals)
        missing.note = f"any of {every.label} would lead to it; none is there"
        present = [n for b in bodies for n in source_nodes(b) if not is_view(n, place.view)]
        conditions = place.conditions.add(frontier.sound, present, [a for b in bodies for a in b.absences])
        return frontier.goals, replace(place, conditions=conditions)

    def _explain_body(self, head: str, body: Body, goals: Goals, place: _Place) -> FailedWay:
        """Explain why one body does not lead to the goals."""
        way = FailedWay(write_rule(self.query, head, body))
        match = match_without(self.query, body, None, goals)
        if match is not None:
            self._explain_match(way, body, match, goals, place)
            return way
        nodes = source_nodes(body)
        for i, node in enumerate(nodes):
            demand = find_demand(self.query, body, i, goals)
            if demand is None or (is_view(node, place.view) and demand.goals.cols == goals.cols):
                continue  # the frontier has these
            conditions = place.conditions.add(demand.sound, [*nodes[:i], *nodes[i + 1 :]], body.absences)
            where = write_conditions(self.query, body, demand.undecided, i)
            way.lacking.append(self.explain(node, demand.goals, conditions, where, place.depth + 1))
        self._find_failing_test(way, body, goals)
        if not way.lacking and not way.reason:
            way.any_of = False
            self._find_lacking_alone(way, body, goals, place)
            if not way.lacking:
                self._find_lacking_together(way, body, goals)
        return way

    def _explain_match(self, way: FailedWay, body: Body, match: Match, goals: Goals, place: _Place) -> None:
        """Say why matches do not lead to the goals: a computed column has another value, or rows exclude them."""
        rows, goal = match.rows, match.goal
        for at, c in enumerate(goals.cols):
            if isinstance(expr := body.out[c], Col):
                continue
            made, asked = self.query.value(expr, rows), goals.values[goal, at]
            if not (made == asked).any():
                made_value, asked_value = (self.reader.write(v[0], expr.type) for v in (made, asked))
                way.reason = f"{place.node.schema.names[c]} is {made_value}, not {asked_value}"
                return
            rows, goal = rows[made == asked], goal[made == asked]
        if not body.absences:
            way.reason = "its parts are there, but not all of them together"
            return
        ExclusionFinder(BodyMatcher(self.query, body), self.new_extractor, place.conditions).add(way, rows)

    def _find_failing_test(self, way: FailedWay, body: Body, goals: Goals) -> None:
        """Name a test without which the body has a match."""
        for test in body.tests:
            match test:
                case Lit():
                    way.reason = "its condition is never true"
                    return
                case Call(op="=" | "is_not_distinct", args=(Col(), Col())):
                    continue
            found = match_without(self.query, body, None, goals, skip=test)
            if found is not None:
                way.reason = write_failure(self.reader, body, test, found.rows)
                way.lacking = [lack for lack in way.lacking if not lack.where]
                return

    def _find_lacking_alone(self, way: FailedWay, body: Body, goals: Goals, place: _Place) -> None:
        """Name the sources that have no row for what is known of them without the others."""
        for i, node in enumerate(source_nodes(body)):
            alone = restrict_body(body, [i])
            if match_without(self.query, alone, None, goals) is not None:
                continue
            demand = find_demand(self.query, alone, 0, goals)
            if demand is None:
                continue
            where = write_conditions(self.query, alone, demand.undecided, 0)
            if not is_view(node, place.view):
                unsound = SideConditions(sound=False)
                way.lacking.append(self.explain(node, demand.goals, unsound, where, place.depth + 1))
            elif demand.goals.cols != goals.cols:
                way.lacking.append(self.reader.describe(node, demand.goals, where))

    def _find_lacking_together(self, way: FailedWay, body: Body, goals: Goals) -> None:
        """Name the first source that has no row for what those before it ask."""
        taken: list[int] = []
        for i, node in enumerate(source_nodes(body)):
            part = restrict_body(body, [*taken, i])
            if match_without(self.query, part, None, goals) is not None:
                taken.append(i)
                continue
            demand = find_demand(self.query, part, len(taken), goals)
            if demand is not None:
                where = write_conditions(self.query, part, demand.undecided, len(taken))
                lack = self.reader.describe(node, demand.goals, where)
                lack.nearest = describe_nearest(self.reader, node, demand.goals)
                way.lacking.append(lack)
                return
        way.reason = f"no rows of {', '.join(source_names(self.query, body))} can have these values together"


def _key(node: Node, goals: Goals) -> object:
    return node.view if isinstance(node, Ref) else node, goals.cols
