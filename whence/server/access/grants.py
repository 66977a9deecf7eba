"""Grants: the rows of the relation `allowed(who, name, what)`, as rights of one caller on one relation.

`what` is 'read', 'insert' (which includes read) or 'define' (which includes both), or 'read where <condition>' or
'insert where <condition>' over the columns of the relation, in which `:who` is the caller. `who` and `name` may be '*'.

The law: rights only add up. Conditions of several rows are joined by OR, and a right without a condition wins. A row
that cannot be read grants nothing. '*' in `name` does not reach the tables that rights themselves come from, when it is
about writing: or whoever may insert into every table could grant themselves the rest.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from whence.model.errors import CatalogError, DataError
from whence.model.types import Kind, Schema

log = logging.getLogger("whence")

RELATION = "allowed"
EVERY = "*"
What = Literal["read", "insert", "define"]
_LEVELS: dict[str, int] = {"read": 0, "insert": 1, "define": 2}
_COLUMNS = ("who", "name", "what")
_WHAT = re.compile(r"\s*(read|insert|define)\s*(?:\bwhere\b(.*\S.*))?", re.IGNORECASE | re.DOTALL)
_SHOWN = 5  # rows that are logged


@dataclass(frozen=True)
class Extent:
    """How far a right goes: to `every` row, to those for which one of the `conditions` holds, or to none."""

    every: bool = False
    conditions: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.every or bool(self.conditions)


WHOLE, NOTHING = Extent(every=True), Extent()


@dataclass(frozen=True)
class Grant:
    """One row: what it allows on the relation of its name."""

    level: int
    condition: str | None


class Grants:
    """All rows of `allowed`, by caller and name.

    >>> grants = Grants([("ann", "sale", "read"), ("*", "sale", "insert where seller = :who")])
    >>> grants.extent("ann", "sale", "read"), grants.extent("bob", "sale", "define")
    (Extent(every=True, conditions=()), Extent(every=False, conditions=()))
    >>> grants.extent("bob", "sale", "insert").conditions
    ('seller = :who',)
    """

    def __init__(self, rows: Iterable[tuple[str | None, str | None, str | None]]) -> None:
        self._by_who: dict[str, dict[str, list[Grant]]] = {}
        unreadable = []
        for who, name, what in sorted(rows, key=str):
            grant = None if what is None else read_grant(what)
            if who is None or name is None or grant is None:
                unreadable.append((who, name, what))
                continue
            self._by_who.setdefault(who, {}).setdefault(name.lower(), []).append(grant)
        for row in unreadable[:_SHOWN]:
            log.error("%s%r grants nothing: what is 'read', 'insert', 'define' or 'read where …'", RELATION, row)
        if len(unreadable) > _SHOWN:
            log.error("%s has %d more rows that grant nothing", RELATION, len(unreadable) - _SHOWN)

    def extent(self, who: str, name: str, what: What, guarded: bool = False) -> Extent:
        """Return how far a caller's right on a relation goes; if it is `guarded`, '*' is enough to read it, but not to
        write to it, unless it is 'define'."""
        conditions: dict[str, None] = {}
        for subject in (who, EVERY) if who != EVERY else (EVERY,):
            of = self._by_who.get(subject, {})
            for target in (name, EVERY) if name != EVERY else (EVERY,):
                for grant in of.get(target, ()):
                    if grant.level < _LEVELS[what]:
                        continue
                    if guarded and target == EVERY and what != "read" and grant.level < _LEVELS["define"]:
                        continue
                    if grant.condition is None:
                        return WHOLE
                    conditions[grant.condition] = None
        return Extent(conditions=tuple(conditions))

    def conditions(self) -> set[str]:
        """Return the texts of all conditions."""
        every = (grant.condition for of in self._by_who.values() for grants in of.values() for grant in grants)
        return {condition for condition in every if condition is not None}


def read_grant(what: str) -> Grant | None:
    """Read what a row allows; None if it says nothing that is known.

    >>> read_grant("read"), read_grant("Insert WHERE x = 1"), read_grant("define where x = 1"), read_grant("rea")
    (Grant(level=0, condition=None), Grant(level=1, condition='x = 1'), None, None)
    """
    match = _WHAT.fullmatch(what)
    if match is None:
        return None
    level, condition = _LEVELS[match[1].lower()], match[2]
    if condition is not None and level == _LEVELS["define"]:
        return None
    return Grant(level, None if condition is None else condition.strip())


def gives(row: tuple[Any, ...], who: str, name: str, what: str) -> bool:
    """Return whether a row of `allowed` gives a caller a right on a relation, at least on some rows."""
    subject, target, said = row
    if what not in _LEVELS:
        raise DataError(f"a right is 'read', 'insert' or 'define', not {what!r:.100}")
    grant = read_grant(said) if isinstance(said, str) else None
    about = subject in (who, EVERY) and isinstance(target, str) and target.lower() in (name, EVERY)
    return about and grant is not None and grant.level >= _LEVELS[what]


def check_shape(schema: Schema, is_stream: bool) -> None:
    """CatalogError if a relation called `allowed` cannot be the one that has the rights."""
    first = schema.columns[: len(_COLUMNS)]
    right = tuple(c.name for c in first) == _COLUMNS and all(c.type.kind is Kind.TEXT for c in first)
    if is_stream or not right:
        found = "a stream" if is_stream else str(schema)
        raise CatalogError(
            f'the relation "{RELATION}" has the rights of a served database and begins with the columns who TEXT, '
            f"name TEXT, what TEXT; it is {found}. Give it another name, or make it a table or view with these columns"
        )
