"""Name resolution: the column of the current row, or of an outer query, that a name means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from whence.model.types import Column, Schema, Type
from whence.plan.algebra.expressions import Col, Expr, Lit
from whence.sql.placeholders import AggRef, Outer, ParameterRef, Sub, push_in, walk_expr
from whence.sql.position import did_you_mean, error

_UNDECLARED = ":"  # the relation of parameters whose types are being found


@dataclass(frozen=True)
class Field:
    """A column in scope. One that USING has merged into another is `merged`: only a qualified name finds it. `tick`
    marks the tick time of a stream."""

    relation: str | None
    name: str
    type: Type
    nullable: bool = True
    merged: bool = False
    tick: bool = False

    @property
    def column(self) -> Column:
        return Column(self.name, self.type, self.nullable)


@dataclass(frozen=True)
class Scope:
    """The columns of the current row by position, and the scope of the query around.

    `aliases` are names of the select list, for the clauses after it; a column of the same name goes before.
    """

    fields: tuple[Field, ...] = ()
    parent: Scope | None = None
    aliases: Mapping[str, Expr] = field(default_factory=dict)

    @property
    def schema(self) -> Schema:
        return Schema(tuple(f.column for f in self.fields))

    @property
    def relations(self) -> list[str]:
        return list(dict.fromkeys(f.relation for f in self.fields if f.relation is not None))

    def resolve(self, node: exp.Column) -> Expr:
        """Resolve a name to a column, searching outwards."""
        relation, name = (node.table or "").lower() or None, node.name.lower()
        if node.args.get("db") is not None:
            raise error("names have no schema or catalog part", node)
        scope: Scope | None = self
        level = 0
        while scope is not None:
            found = scope.find(relation, name)
            if len(found) > 1:
                owners = ", ".join(sorted(f"{scope.fields[i].relation}.{name}" for i in found))
                raise error(f'column "{name}" is ambiguous: it may be {owners}', node)
            if found:
                column = scope.fields[found[0]]
                return Outer(column.type, found[0], level) if level else Col(column.type, found[0])
            if relation is None and name in scope.aliases:
                return _aliased(scope.aliases[name], level, node)
            scope, level = scope.parent, level + 1
        raise self._unknown(relation, name, node)

    def find(self, relation: str | None, name: str) -> list[int]:
        """Return the positions of the columns that a name may mean in this scope alone."""
        if relation is None:
            return [i for i, f in enumerate(self.fields) if f.name == name and not f.merged]
        return [i for i, f in enumerate(self.fields) if f.name == name and f.relation == relation]

    def tick_time(self, node: exp.Expr) -> Expr:
        """Resolve `tick_time()` to the column of the nearest query that has one."""
        scope: Scope | None = self
        level = 0
        while scope is not None:
            found = [i for i, f in enumerate(scope.fields) if f.tick]
            if len(found) > 1:
                owners = ", ".join(f"{scope.fields[i].relation}.{scope.fields[i].name}" for i in found)
                raise error(f"tick_time() is ambiguous: name the column that is meant, {owners}", node)
            if found:
                type = scope.fields[found[0]].type
                return Outer(type, found[0], level) if level else Col(type, found[0])
            scope, level = scope.parent, level + 1
        raise error(
            "tick_time() is the time at which a row of a stream became known, and nothing in FROM has it; declare it, "
            "CREATE STREAM s (…, at TIMESTAMP DEFAULT tick_time()); of a view, name the column that has it",
            node,
        )

    def parameter(self, node: exp.Expr) -> Expr:
        """Resolve a parameter of a template to the column of its parameter table, which is around the whole query."""
        scope: Scope | None = self
        level, wanted = 0, f":{node.name.lower()}"
        while scope is not None:
            for at, column in enumerate(scope.fields):
                if column.name == wanted and level:
                    return ParameterRef(column.type, at, level, wanted[1:], column.relation != _UNDECLARED)
            scope, level = scope.parent, level + 1
        raise error("a parameter cannot stand here; in a recursive WITH, make a view of it without parameters", node)

    def star(self, relation: str | None, node: exp.Expr) -> list[int]:
        """Return the positions that `*` or `relation.*` stands for."""
        if relation is None:
            found = [i for i, f in enumerate(self.fields) if not f.merged]
        else:
            found = [i for i, f in enumerate(self.fields) if f.relation == relation]
            if not found:
                raise error(f'unknown table "{relation}"{did_you_mean(relation, self.relations)}', node)
        if not found:
            raise error("* needs a FROM", node)
        return found

    def _unknown(self, relation: str | None, name: str, node: exp.Expr) -> Exception:
        scopes, scope = [], self
        while True:
            scopes.append(scope)
            if scope.parent is None:
                break
            scope = scope.parent
        if relation is not None:
            known = [r for s in scopes for r in s.relations]
            if relation not in known:
                return error(f'unknown table "{relation}"{did_you_mean(relation, known)}', node)
            names = [f.name for s in scopes for f in s.fields if f.relation == relation]
            return error(f'"{relation}" has no column "{name}"{did_you_mean(name, names)}', node)
        names = [name for s in scopes for name in (*(f.name for f in s.fields), *s.aliases)]
        return error(f'unknown column "{name}"{did_you_mean(name, names)}', node)


def _aliased(expr: Expr, level: int, node: exp.Column) -> Expr:
    """Return what an alias stands for, as seen from a subquery `level` steps inside its query."""
    if level and any(isinstance(e, (AggRef, Sub)) for e in walk_expr(expr)):
        what = "an aggregate or a subquery"
        raise error(f'the alias "{node.name}" stands for {what}; a subquery of the same SELECT cannot read it', node)
    return push_in(expr, level) if level else expr


def fields_of(schema: Schema, relation: str | None, tick: int | None = None) -> tuple[Field, ...]:
    """Return a relation's columns as fields; `tick` is the one with the tick time."""
    return tuple(Field(relation, c.name, c.type, c.nullable, tick=i == tick) for i, c in enumerate(schema.columns))


def parameter_scope(schema: Schema, declared: bool) -> Scope:
    """Return the scope around a template's query: the columns of its parameter table, found only as parameters."""
    relation = None if declared else _UNDECLARED
    return Scope(tuple(Field(relation, f":{c.name}", c.type, c.nullable) for c in schema.columns))


def as_nullable(fields: Iterable[Field]) -> tuple[Field, ...]:
    """Return the fields of an outer join's optional side: any may be NULL."""
    return tuple(replace(f, nullable=True) for f in fields)


def unique_names(names: Iterable[str]) -> list[str]:
    """Make names different from each other the way DuckDB does.

    >>> unique_names(["a", "b", "a"])
    ['a', 'b', 'a_1']
    """
    taken: dict[str, int] = {}  # and how many times a name was numbered
    found = []
    for name in names:
        candidate, count = name, taken.get(name, 0)
        while candidate in taken:
            count += 1
            candidate = f"{name}_{count}"
        taken[name] = count
        taken.setdefault(candidate, 0)
        found.append(candidate)
    return found


def nullable(expr: Expr, scope: Scope) -> bool:
    """Tell whether the expression may be NULL, as far as declarations say."""
    if isinstance(expr, Lit):
        return expr.value is None
    if isinstance(expr, Col) and expr.index < len(scope.fields):
        return scope.fields[expr.index].nullable
    return True
