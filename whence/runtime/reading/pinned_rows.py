"""Queries that pin columns to constants: which rows of a relation they can use, found by an index instead of a scan.

Law: a pinned relation may be replaced by its rows that have the constants, and the answer is the same. So only
conjuncts of a WHERE count that are of this relation alone, where no join pads its rows (`calls.py`); they stay in the
query. A relation that a query names twice is left whole. A constant counts if DuckDB compares it with the column's
values as they are: text with TEXT, whole numbers with INTEGER and BIGINT, and so on; what it would cast is left to it.

A **simple** query only selects columns, or counts the rows, of one relation whose whole WHERE pins distinct columns. It
is answered here, with the names and types that DuckDB gives.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from whence.model.types import Column, Kind, Schema, Type
from whence.plan.algebra.program import Program, Table, View
from whence.runtime.reading.calls import conditions, conjuncts

Pins = dict[str, Any]  # columns and the values they are pinned to, as `where` takes them: None is NULL, a list is IN
COUNT_STAR = "count_star()"
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?", re.ASCII)
_BOUNDS = {Kind.INTEGER: 2**31, Kind.BIGINT: 2**63 - 1}
_SIMPLE = {"expressions", "from_", "where"}


@dataclass(frozen=True)
class SimpleQuery:
    """A query that is answered here: columns by their places in a relation and their names, or a count of rows."""

    relation: Table | View
    pins: Pins
    columns: tuple[tuple[int, str], ...]
    count: str | None = None  # the name of the one column, of how many rows there are

    @property
    def schema(self) -> Schema:
        """The columns of the answer."""
        return Schema(tuple(Column(name, self.relation.schema.types[place]) for place, name in self.columns))


def simple_query(query: exp.Expr, program: Program) -> SimpleQuery | None:
    """Return what is asked if it is simple, else None.

    >>> from whence.model.types import TEXT
    >>> from whence.sql.parse import parse_query
    >>> known = Program({"t": Table("t", Schema((Column("a", TEXT), Column("b", TEXT))))})
    >>> found = simple_query(parse_query("SELECT b AS x FROM t WHERE a = 'one'").query, known)
    >>> found.pins, found.columns
    ({'a': 'one'}, ((1, 'x'),))
    >>> simple_query(parse_query("SELECT b FROM t WHERE a > 'one'").query, known) is None
    True
    """
    if not isinstance(query, exp.Select) or not {name for name, arg in query.args.items() if arg} <= _SIMPLE:
        return None
    source = query.args.get("from_")
    table = source.this if source is not None else None
    if not isinstance(table, exp.Table) or not _is_plain(table):
        return None
    relation = _relation(table, program)
    if relation is None:
        return None
    alias = (table.alias or table.name).lower()
    where, pins = query.args.get("where"), Pins()
    if where is not None:
        terms = conjuncts(where.this)
        pins = pins_among(terms, alias, relation.schema)
        if len(pins) < len(terms):
            return None
    selected = query.expressions
    if len(selected) == 1 and _is_count(selected[0].unalias()) and "count" not in program.scalars:
        name = selected[0].alias if isinstance(selected[0], exp.Alias) else COUNT_STAR
        return SimpleQuery(relation, pins, (), name) if name.isascii() else None
    columns = _columns(selected, alias, relation.schema)
    return SimpleQuery(relation, pins, columns) if columns is not None and pins else None


def pinned_relations(query: exp.Expr, program: Program) -> dict[str, Pins]:
    """Return the relations of which a query can use only rows that have some values, and these.

    >>> from whence.model.types import TEXT
    >>> from whence.sql.parse import parse_query
    >>> one = Table("t", Schema((Column("a", TEXT), Column("b", TEXT))))
    >>> known = Program({"t": one, "u": Table("u", one.schema)})
    >>> query = parse_query("SELECT * FROM t JOIN u ON t.a = u.a WHERE t.b IN ('x', 'y') AND u.a > t.b").query
    >>> pinned_relations(query, known)
    {'t': {'b': ['x', 'y']}}
    """
    tables = [t for t in query.find_all(exp.Table) if isinstance(t.this, exp.Identifier)]
    often = Counter(table.name.lower() for table in tables)
    own = {cte.alias_or_name.lower() for cte in query.find_all(exp.CTE)}
    found = {}
    for table in tables:
        name = table.name.lower()
        relation = _relation(table, program)
        if relation is not None and often[name] == 1 and name not in own:
            alias = (table.alias or name).lower()
            pins = pins_among(conditions(table, alias), alias, relation.schema)
            if pins:
                found[name] = pins
    return found


def pins_among(conditions: Iterable[exp.Expr], alias: str, schema: Schema) -> Pins:
    """Return what conditions pin of a relation; of two that pin one column the first counts."""
    found = Pins()
    for condition in conditions:
        one = _pin(condition, alias, schema)
        if one is not None and one[0] not in found:
            found[one[0]] = one[1]
    return found


def _relation(table: exp.Table, program: Program) -> Table | View | None:
    name = table.name.lower()
    found = program.tables.get(name) or program.views.get(name)
    plain = isinstance(table.this, exp.Identifier) and not table.args.get("db") and name.isascii()
    return found if plain and found is not None and not (isinstance(found, View) and found.hidden) else None


def _is_plain(table: exp.Table) -> bool:
    named = table.args.get("alias")
    columns = isinstance(named, exp.TableAlias) and named.args.get("columns")
    return not columns and {name for name, arg in table.args.items() if arg} <= {"this", "alias"}


def _is_count(node: exp.Expr) -> bool:
    if not isinstance(node, exp.Anonymous) or node.name.lower() != "count" or len(node.expressions) != 1:
        return False
    (counted,) = node.expressions
    return isinstance(counted, exp.Star) and not any(counted.args.values())


def _columns(selected: list[exp.Expr], alias: str, schema: Schema) -> tuple[tuple[int, str], ...] | None:
    """Return the places and names of selected columns; None if one is another expression."""
    if len(selected) == 1 and isinstance(selected[0], exp.Star) and not any(selected[0].args.values()):
        return tuple(enumerate(schema.names))
    found = []
    for item in selected:
        column = item.unalias()
        if not isinstance(column, exp.Column) or not _is_of(column, alias) or column.name not in schema.names:
            return None
        found.append((schema.names.index(column.name), item.alias_or_name))
    names = {name.lower() for _, name in found}
    return tuple(found) if len(names) == len(found) and all(name.isascii() for name in names) else None


def _is_of(column: exp.Column, alias: str) -> bool:
    plain = isinstance(column.this, exp.Identifier) and not column.args.get("db")
    return plain and (not column.table or column.table.lower() == alias)


def _pin(condition: exp.Expr, alias: str, schema: Schema) -> tuple[str, Any] | None:
    """Return the column that a condition pins, and its values."""
    match condition:
        case exp.EQ(this=exp.Column() as column, expression=constant):
            values = [constant]
        case exp.EQ(this=constant, expression=exp.Column() as column):
            values = [constant]
        case exp.Is(this=exp.Column() as column, expression=exp.Null()):
            values = []
        case exp.In(this=exp.Column() as column) if condition.expressions and not condition.args.get("query"):
            values = condition.expressions
        case _:
            return None
    name = column.name.lower()
    if not _is_of(column, alias) or name not in schema.names or not name.isascii():
        return None
    type = schema.types[schema.names.index(name)]
    found = [_constant(value, type) for value in values]
    if None in found:
        return None
    return name, found if isinstance(condition, exp.In) else found[0] if found else None


def _constant(node: exp.Expr, type: Type) -> Any:
    """Return the value of a constant that DuckDB compares as it is with values of a type; None for any other."""
    node = node.unnest()
    match type.kind, node:
        case Kind.TEXT, exp.Literal(is_string=True):
            return node.name
        case Kind.BOOLEAN, exp.Boolean():
            return bool(node.this)
        case (Kind.INTEGER | Kind.BIGINT) as kind, _:
            negative = isinstance(node, exp.Neg)
            digits = node.this.unnest() if negative else node
            if isinstance(digits, exp.Literal) and not digits.is_string and digits.name.isdecimal():
                number = -int(digits.name) if negative else int(digits.name)
                return number if -_BOUNDS[kind] <= number < _BOUNDS[kind] else None
        case (Kind.DATE | Kind.TIMESTAMP) as kind, exp.Cast() if not isinstance(node, exp.TryCast):
            return _constant(node.this, type) if node.to.this is exp.DType[kind.name] else None
        case Kind.DATE, exp.Literal(is_string=True) if _DATE.fullmatch(node.name):
            try:
                return dt.date.fromisoformat(node.name)
            except ValueError:
                return None
        case Kind.TIMESTAMP, exp.Literal(is_string=True) if _TIMESTAMP.fullmatch(node.name):
            try:
                return dt.datetime.fromisoformat(node.name)
            except ValueError:
                return None
    return None
