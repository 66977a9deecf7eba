"""Side conditions of a goal: what must stay as it is for the goal to bring about the row that was asked for.

On the way down from that row, each rule adds what it needs beside the goal (`present`) and what must not be there
(`absent`). A change of a base row is a remedy only if it leaves both as they are: an insertion must not bring a row of
`absent`, nor take one of `present` away where that is not monotone; a deletion the other way round.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from whence.explain.derive.extractor import Extractor
from whence.explain.derive.parts import match_values
from whence.explain.missing import Row
from whence.explain.why_not.goals import GoalReader, Goals
from whence.model.codes import NULL
from whence.plan.algebra.constructors import names_read
from whence.plan.algebra.logical import Node, Scan
from whence.plan.algebra.program import Program
from whence.plan.recursion.conjunctive import Absence


@dataclass(frozen=True)
class SideConditions:
    """Queries that must keep their rows, and queries that must not get any. `sound` is False if a goal may not be
    enough even then."""

    sound: bool = True
    present: tuple[Node, ...] = ()
    absent: tuple[Node, ...] = ()

    def unsound(self) -> SideConditions:
        return replace(self, sound=False)

    def add(self, sound: bool, present: Iterable[Node], absences: Iterable[Absence]) -> SideConditions:
        """Add what one rule needs beside the goal."""
        absent = (*self.absent, *(a.node for a in absences))
        return SideConditions(self.sound and sound, (*self.present, *present), absent)

    def allow_insertion(self, owner: Extractor, table: str) -> bool:
        """Return whether more rows of a table leave these conditions as they are."""
        program = owner.program
        if any(table in tables_read(program, node) for node in self.absent):
            return False
        return not any(owner.is_volatile(node) and table in tables_read(program, node) for node in self.present)

    def protected_tables(self, owner: Extractor) -> frozenset[str]:
        """Return the tables of which no row may be lost."""
        watched = [*self.present, *(n for n in self.absent if owner.is_volatile(n))]
        return frozenset(t for n in watched for t in tables_read(owner.program, n))


def find_insertable(reader: GoalReader, node: Scan, goals: Goals, conditions: SideConditions) -> list[Row]:
    """Return the goals of a table whose insertion alone brings about the row that was asked for."""
    owner = reader.query.owner
    table = owner.program.tables.get(node.table)
    if table is None or table.stream is not None or not conditions.allow_insertion(owner, node.table):
        return []
    required = np.array([not node.schema.columns[c].nullable for c in goals.cols], bool)
    goals = replace(goals, values=goals.values[~((goals.values == NULL) & required).any(axis=1)])
    if key := table.key:
        if not set(key) <= set(goals.cols):
            return []
        taken = reader.rows_of(node, Goals(key, goals.of(key)))
        if len(taken):  # another row of this key would be replaced
            goals = replace(goals, values=goals.values[~match_values(goals.of(key), taken[:, list(key)])])
    return reader.decode_rows(node, goals)


def tables_read(program: Program, node: Node) -> set[str]:
    """Return the tables that a query reads, through views too."""
    found, todo = set[str](), [*names_read(node)]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += names_read(program.views[name].query) if name in program.views else []
    return found & program.tables.keys()
