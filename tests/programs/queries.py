"""Random queries over relations: joins, grouping, set operations, subqueries, top-k, WITH."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.programs.dice import Dice
from tests.programs.expressions import Scope, expression
from tests.programs.values import BIG, BOOL, DEC, DOUBLE, INT, TYPES

_TIES = re.compile(r" /\*ties of (\d+)\*/")  # where DuckDB is told how ties of a top-k are broken


def without_ties(query: str) -> str:
    """Return a query for Whence.

    >>> without_ties("ORDER BY a /*ties of 2*/ LIMIT 3")
    'ORDER BY a LIMIT 3'
    """
    return _TIES.sub("", query)


def with_ties(query: str) -> str:
    """Return a query for DuckDB, whose ties are broken by all columns, left to right.

    >>> with_ties("ORDER BY a /*ties of 2*/ LIMIT 3")
    'ORDER BY a, 1, 2 LIMIT 3'
    """
    return _TIES.sub(lambda found: "".join(f", {i + 1}" for i in range(int(found[1]))), query)


@dataclass(frozen=True)
class Relation:
    """A table or view: its columns with their types."""

    name: str
    columns: tuple[tuple[str, str], ...]


class Queries:
    """Makes queries over some relations. Names of aliases are unique in a query."""

    def __init__(self, dice: Dice, relations: list[Relation], failing: bool):
        self._dice, self._relations, self._failing, self._aliases = dice, relations, failing, 0

    def query(self, types: tuple[str, ...], depth: int = 2) -> str:
        """Return a query whose columns c0, c1, … have these types."""
        d = self._dice
        match d.below(10):
            case 7 if depth:
                sign = d.of(("UNION", "UNION ALL", "INTERSECT", "EXCEPT", "EXCEPT ALL", "INTERSECT ALL"))
                return f"{self._select(types, depth - 1)} {sign} {self._select(types, depth - 1)}"
            case 8 if depth:
                name, inner = self._alias("w"), self.query(types, depth - 1)
                self._relations = [Relation(name, named(types)), *self._relations]
                text = f"WITH {name} AS ({inner}) {self._select(types, depth - 1)}"
                self._relations = self._relations[1:]
                return text
            case 9 if depth:
                inner, alias = self.query(types, depth - 1), self._alias("k")
                order = ", ".join(
                    f"{alias}.c{d.below(len(types))}{d.of(('', ' DESC', ' NULLS FIRST', ' DESC NULLS LAST'))}"
                    for _ in range(1 + d.below(2))
                )
                columns = ", ".join(f"{alias}.c{i} AS c{i}" for i in range(len(types)))
                limit = f"LIMIT {1 + d.below(3)}" + (" OFFSET 1" if d.chance(25) else "")
                return f"SELECT {columns} FROM ({inner}) AS {alias} ORDER BY {order} /*ties of {len(types)}*/ {limit}"
        return self._select(types, depth)

    def _alias(self, letter: str = "q") -> str:
        self._aliases += 1
        return f"{letter}{self._aliases}"

    # -- FROM --------------------------------------------------------------------------------------------------------

    def _source(self, depth: int) -> tuple[str, Scope]:
        d = self._dice
        if depth and d.chance(15):
            types = tuple(d.of(TYPES) for _ in range(1 + d.below(3)))
            alias, inner = self._alias("s"), self.query(types, depth - 1)
            return f"({inner}) AS {alias}", self._scope(alias, named(types))
        relation, alias = d.of(self._relations), self._alias()
        return f"{relation.name} AS {alias}", self._scope(alias, relation.columns)

    def _scope(self, alias: str, columns: tuple[tuple[str, str], ...]) -> Scope:
        return Scope(tuple((f"{alias}.{name}", kind) for name, kind in columns), self._subquery, self._failing)

    def _from(self, depth: int) -> tuple[str, Scope]:
        d = self._dice
        text, scope = self._source(depth)
        joins = d.of((0, 1, 1, 2))
        for left in reversed(range(joins)):
            other, right = self._source(depth)
            both = Scope(scope.columns + right.columns, self._subquery, self._failing)
            how = d.of(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN", "SEMI JOIN", "ANTI JOIN"))
            if how == "CROSS JOIN":
                text = f"{text}, {other}" if not left and d.chance(50) else f"{text} CROSS JOIN {other}"
            else:
                text = f"{text} {how} {other} {self._condition(scope, right, both)}"
            scope = scope if how in ("SEMI JOIN", "ANTI JOIN") else both
        return text, scope

    def _condition(self, left: Scope, right: Scope, both: Scope) -> str:
        """Return an ON or USING: mostly an equality of columns, sometimes with more, sometimes any condition."""
        d = self._dice
        kinds = [kind for _, kind in left.columns if right.of(kind)]
        plain = Scope(both.columns)
        if not kinds or d.chance(15):
            return f"ON {expression(d, BOOL, plain, 2)}"
        named = [(name.partition(".")[2], kind) for name, kind in left.columns]
        theirs = [(name.partition(".")[2], kind) for name, kind in right.columns]
        shared = [name for name, kind in named if (name, kind) in theirs and [n for n, _ in named].count(name) == 1]
        if shared and d.chance(20):
            return f"USING ({d.of(shared)})"
        kind = d.of(kinds)
        text = f"ON {d.of(left.of(kind))} = {d.of(right.of(kind))}"
        return f"{text} AND {expression(d, BOOL, plain, 1)}" if d.chance(30) else text

    # -- SELECT ------------------------------------------------------------------------------------------------------

    def _select(self, types: tuple[str, ...], depth: int) -> str:
        d = self._dice
        source, scope = self._from(depth)
        where = f" WHERE {expression(d, BOOL, scope, 2)}" if d.chance(40) else ""
        if d.chance(40):
            return self._grouped(types, source, scope, where)
        columns = ", ".join(f"{expression(d, kind, scope, 2)} AS c{i}" for i, kind in enumerate(types))
        return f"SELECT {'DISTINCT ' if d.chance(20) else ''}{columns} FROM {source}{where}"

    def _grouped(self, types: tuple[str, ...], source: str, scope: Scope, where: str) -> str:
        d = self._dice
        plain = Scope(scope.columns, None, self._failing)
        keys = [i for i in range(len(types)) if d.chance(50)]
        texts = [
            expression(d, kind, plain, 1) if i in keys else self._aggregate(kind, plain) for i, kind in enumerate(types)
        ]
        columns = ", ".join(f"{text} AS c{i}" for i, text in enumerate(texts))
        group = ""
        if keys:
            group = " GROUP BY " + d.of(
                (
                    ", ".join(f"{i + 1}" for i in keys),
                    ", ".join(f"{i + 1}" for i in reversed(keys)),
                )
            )
        having = ""
        if d.chance(25):
            kind = d.of((INT, DOUBLE))
            having = (
                f" HAVING {self._aggregate(kind, plain)} {d.of(('>', '<=', '='))} {expression(d, kind, Scope(()), 0)}"
            )
        return f"SELECT {columns} FROM {source}{where}{group}{having}"

    def _aggregate(self, kind: str, scope: Scope) -> str:
        d = self._dice
        forms = ["MIN({0})", "MAX({0})"]
        argument = kind
        match kind:
            case "INTEGER" | "BIGINT":
                forms = ["COUNT(*)", "SUM({0})", *forms, "COUNT({0})", "COUNT(DISTINCT {0})", "SUM(DISTINCT {0})"]
            case "DOUBLE":
                forms = ["SUM({0})", "AVG({0})", *forms, "AVG(DISTINCT {0})", "SUM(DISTINCT {0})"]
            case "DECIMAL(6, 2)":
                forms = ["SUM({0})", *forms, "SUM(DISTINCT {0})"]
            case "BOOLEAN":
                forms = ["bool_and({0})", "bool_or({0})"]
        form = d.of(forms)
        if form.startswith("AVG"):
            argument = d.of((DOUBLE, INT, DEC, BIG))
        elif form.startswith("COUNT"):
            argument = d.of(TYPES)
        text = form.format(expression(d, argument, scope, 1))
        if kind in (INT, DEC) and form.startswith("SUM"):
            text = f"CAST({text} AS {kind})"  # a sum is wider than what it adds up; what reads it counts on the type
        if d.chance(20) and not text.startswith("CAST"):
            text += f" FILTER (WHERE {expression(d, BOOL, Scope(scope.columns), 1)})"
        return text

    # -- subqueries --------------------------------------------------------------------------------------------------

    def _subquery(self, outer: Scope, kind: str, d: Dice, depth: int) -> str | None:
        """Return a subquery of a type, correlated or not."""
        relation, alias = d.of(self._relations), self._alias("u")
        inner = Scope(tuple((f"{alias}.{name}", k) for name, k in relation.columns))
        source = f"{relation.name} AS {alias}"
        kinds = [k for _, k in inner.columns if outer.of(k)]
        tie = None
        if kinds and d.chance(60):
            shared = d.of(kinds)
            tie = f"{d.of(inner.of(shared))} = {d.of(outer.of(shared))}"
        conditions = [*filter(None, [tie]), *([expression(d, BOOL, inner, 1)] if d.chance(30) else [])]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        if kind == BOOL:
            name, column = d.of(inner.columns)
            if d.chance(50):
                return f"{d.of(('EXISTS', 'NOT EXISTS'))} (SELECT 1 FROM {source}{where})"
            sign = d.of(("IN", "NOT IN", "= ANY", "<> ALL"))
            return f"({expression(d, column, outer, 0)} {sign} (SELECT {name} FROM {source}{where}))"
        return f"(SELECT {self._aggregate(kind, inner)} FROM {source}{where})"


def named(types: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((f"c{i}", kind) for i, kind in enumerate(types))
