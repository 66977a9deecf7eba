"""What one caller sees of a database: the relations that there are for them, and the rows of each.

The law: what a caller may not read does not exist for them. Names that are hidden are unknown names, in the same words
as any other, and hints are made of the names that the caller sees. A sight is of one program and one set of grants; it
never changes, and is made anew when either does.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp

from whence.model.errors import CatalogError, ForbiddenError, WhenceError
from whence.plan.algebra.logical import walk
from whence.plan.algebra.program import Program, Table, View, is_internal
from whence.server.access.grants import NOTHING, WHOLE, Extent, Grants, What
from whence.server.access.row_conditions import any_of, bind_condition
from whence.sql.position import did_you_mean

log = logging.getLogger("whence")


@dataclass(frozen=True)
class Reach:
    """Which rows of a relation a right reaches: all, those for which a condition holds, or none."""

    every: bool
    condition: exp.Expr | None = None

    def __bool__(self) -> bool:
        return self.every or self.condition is not None


_ALL, _NONE = Reach(True), Reach(False)


class Sight:
    """What a caller may do with the relations of a program; without grants, everything."""

    def __init__(
        self,
        who: str | None,
        grants: Grants | None,
        program: Program,
        guarded: Collection[str] = frozenset(),
        reported: set[tuple[str, str]] | None = None,
    ) -> None:
        """`guarded` relations are not written to by '*'; of conditions that are `reported`, nothing is logged again."""
        self.who, self._grants, self._whole, self._guarded = who, grants, program, guarded
        self._reaches: dict[tuple[str, What], Reach] = {}
        self._reported = set[tuple[str, str]]() if reported is None else reported

    # -- rights --------------------------------------------------------------------------------------------------------

    def reach(self, name: str, what: What) -> Reach:
        """Return which rows of a relation a right reaches; none, if there is no such relation."""
        found = self._reaches.get((name, what))
        if found is None:
            found = self._reaches[name, what] = self._reach(name, what)
        return found

    def _reach(self, name: str, what: What) -> Reach:
        relation = known_relation(self._whole, name)
        if relation is None:
            return _NONE
        extent = self._extent(name, what)
        if extent.every:
            return _ALL
        bound = []
        for text in extent.conditions:
            try:
                bound.append(bind_condition(text, self.who or "", relation, self._whole))
            except (WhenceError, RecursionError) as error:
                if (text, name) not in self._reported:
                    self._reported.add((text, name))
                    log.error("the condition %r denies access to %s: %s", text, name, error)
        return Reach(False, any_of(bound)) if bound else _NONE

    def _extent(self, name: str, what: What) -> Extent:
        if self._grants is None:
            return WHOLE
        if self.who is None:
            return NOTHING
        return self._grants.extent(self.who, name, what, guarded=name in self._guarded)

    def may_all(self, what: What) -> bool:
        """Return whether a right is on every relation there is or will be."""
        return self._grants is None or (self.who is not None and self._grants.extent(self.who, "*", what).every)

    # -- what there is -------------------------------------------------------------------------------------------------

    @cached_property
    def is_whole(self) -> bool:
        """Whether every row of every relation is seen."""
        if self._grants is None:
            return True
        return all(self.reach(name, "read").every for name in known_names(self._whole))

    @cached_property
    def names(self) -> list[str]:
        """The relations that the caller sees, at least some rows of them."""
        return [name for name in known_names(self._whole) if self.reach(name, "read")]

    @cached_property
    def program(self) -> Program:
        """The program as it would be without what the caller does not see."""
        if self.is_whole:
            return self._whole
        seen, found = set(self.names), self._whole.copy()
        found.tables = {name: table for name, table in found.tables.items() if name in seen}
        found.views = {name: view for name, view in found.views.items() if (view.owner or name) in seen}
        found.indexes = {name: index for name, index in found.indexes.items() if index.relation in seen}
        return found

    def sees_all(self, name: str) -> bool:
        """Return whether every row of a relation, and of everything beneath it, is seen."""
        return all(self.reach(each, "read").every for each in (name, *beneath(self._whole, name)))

    # -- errors --------------------------------------------------------------------------------------------------------

    def unknown(self, name: str) -> CatalogError:
        """Return the error for a relation that is not there, or not for this caller: that of a reader."""
        return CatalogError(f'there is no table or view "{name:.100}"{did_you_mean(name, self.names)}')

    def unknown_table(self, name: str) -> CatalogError:
        """Return the error for a table that is to be written to: that of a writer."""
        return CatalogError(f'there is no table "{name:.100}"{did_you_mean(name, self.program.tables)}')

    def unknown_stream(self, name: str) -> CatalogError:
        """Return the error for a stream whose rows are to be numbered or traced."""
        return CatalogError(f'there is no stream or view "{name:.100}"{did_you_mean(name, self.names)}')

    def check(self, name: str, what: What) -> None:
        """CatalogError if there is no such relation for this caller, ForbiddenError without the right on it."""
        if not self.reach(name, "read"):
            raise self.unknown_table(name) if what == "insert" else self.unknown(name)
        if what == "insert" and name in self._whole.views:
            raise CatalogError(f'"{name}" is a view; only tables and streams are written to')
        if not self.reach(name, what):
            raise ForbiddenError(f"you may not {_DOING[what]} {quote_name(name)}")


_DOING = {"read": "read", "insert": "insert into", "define": "define views of"}


def quote_name(name: str) -> str:
    """Return a name as messages have it."""
    return f'"{name:.100}"'


def known_relation(program: Program, name: str) -> Table | View | None:
    """Return a table or view that users see."""
    table = program.tables.get(name)
    if table is not None:
        return table
    view = program.views.get(name)
    return None if view is None or view.hidden else view


def known_names(program: Program) -> list[str]:
    """Return the tables and views that users see."""
    tables = [name for name in program.tables if not is_internal(name)]
    return [*tables, *(name for name, view in program.views.items() if not view.hidden)]


def beneath(program: Program, name: str) -> list[str]:
    """Return every relation that a view reads, directly or through others, without itself.

    >>> import whence
    >>> db = whence.open(); _ = db.execute("CREATE TABLE a (x INT); CREATE VIEW b AS FROM a; CREATE VIEW c AS FROM b")
    >>> beneath(db._coordinator.program, "c")
    ['a', 'b']
    """
    seen, waiting = {name}, [name]
    while waiting:
        view = program.views.get(waiting.pop())
        if view is None:
            continue
        for node in walk(view.query):
            for each in (*node.names, *node.fetches):
                if each not in seen:
                    seen.add(each)
                    waiting.append(each)
    return sorted(each for each in seen - {name} if known_relation(program, each) is not None)
