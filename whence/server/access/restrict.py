"""Restrict a query to what its caller sees: a relation with a row condition becomes a subquery of the rows that pass.

The law: the restricted query has the rows that the query would have in a database with only what the caller sees, and
nothing of a row that is hidden shows: neither in an error nor in the name of a column. For that

- every name in FROM is either a CTE in scope or a relation that was checked, wherever it stands. What else stands in
  FROM and is not known here is refused;
- CTEs are renamed, references with them, so that a condition's own subqueries never find a caller's CTE, and DuckDB and
  our binder mean the same by every name;
- no condition of the caller's is decided before the row condition. DuckDB moves what is asked of rows below a join, and
  so below a condition with a subquery, and its errors then show hidden rows: a LIMIT that all rows fit stops that. Our
  own planner does not move a condition that may fail, and takes conditions in their order (`decided`).

Functions of FROM that take a relation by its name (`owed`, `slide`) are for those who see all of its rows; those that
look beneath a view (`provenance`, `late`), for those who see everything there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sqlglot import exp

from whence.model.errors import ForbiddenError, SqlError, WhenceError
from whence.plan.algebra.program import STREAM_FUNCTIONS, Program
from whence.runtime.reading.adhoc import Adhoc, uses_table_function
from whence.runtime.reading.calls import as_relations
from whence.server.access.row_conditions import decided
from whence.server.access.sight import Sight, quote_name
from whence.sql.aggregates import AGGREGATES
from whence.sql.bind import bind_query_views
from whence.sql.position import WRITTEN, did_you_mean, error

_EVERY_ROW = 2**62  # rows that no relation has, as many as a LIMIT may say
_AROUND = ("joins", "laterals", "pivots", "sample")  # of an item of FROM, beside what it is
_PLAIN = {"this", "alias", *_AROUND}
_BENEATH = ("provenance", "late")  # show rows of what a view reads
_NUMBERED = ("provenance", "numbered")
_READ = {"expressions", "from_", "where"}  # of a SELECT that filters and projects one relation
_MORE = (exp.Query, exp.Window, exp.AggFunc, exp.Distinct, exp.Filter, exp.WithinGroup, exp.Lambda)
Env = dict[str, str]  # CTEs in scope, and what they are called now


def restrict_query(query: exp.Expr, sight: Sight, kept: bool = False) -> exp.Expr:
    """Return a query restricted to what a caller sees; the query itself if that is everything it reads.

    It is for a query that is asked once; or if it is to be `kept`, for the query of a view.
    """
    if sight.is_whole:
        return query
    flows = kept or uses_table_function(query, sight.program)
    _check_known(query, sight.program, flows, kept)
    return _Restriction(query, sight, flows).restricted()


def restrict_bound(query: exp.Expr, sight: Sight) -> exp.Expr:
    """Return the query of an INSERT, which was bound to the program that a caller sees, restricted to that."""
    return query if sight.is_whole else _Restriction(query, sight, True).restricted()


def relations_read(query: exp.Expr, sight: Sight) -> list[str]:
    """Return the relations that a query names, of those that a caller sees, also as arguments of functions."""
    found = _Restriction(query, sight, True)
    found.restricted(names_only=True)
    return sorted(found.named)


def is_read_subscription(query: exp.Expr) -> bool:
    """Return whether a query is one relation, filtered and projected: it needs no state beside that relation's own.

    >>> from whence.sql.parse import parse_query
    >>> texts = "SELECT a + 1 AS b FROM t AS x WHERE a > 1", "SELECT COUNT(*) FROM t", "SELECT t.a FROM t, u"
    >>> [is_read_subscription(parse_query(text).query) for text in texts]
    [True, False, False]
    """
    if not isinstance(query, exp.Select) or {name for name, arg in query.args.items() if arg} - _READ:
        return False
    source = query.args.get("from_")
    table = source.this if source is not None else None
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        return False
    if {name for name, arg in table.args.items() if arg} - {"this", "alias"}:
        return False
    where = query.args.get("where")
    for part in (*query.expressions, *([where] if where is not None else [])):
        if part.find(*_MORE) or any(call.name.lower() in AGGREGATES for call in part.find_all(exp.Anonymous)):
            return False
    return True


def _check_known(query: exp.Expr, program: Program, flows: bool, kept: bool) -> None:
    """Raise what a database that has only this program would say of a query's names."""
    if flows:
        bind_query_views(query.copy(), program, keep_order=not kept)
        return
    asked, calls = as_relations(query)
    Adhoc.check_query(asked.copy(), program, {call.relation for call in calls})


@dataclass
class _Restriction:
    """The work on one query: its names are resolved in one walk, and what has to change is changed afterwards."""

    query: exp.Expr
    sight: Sight
    flows: bool  # our own operators answer it, not DuckDB
    named: set[str] = field(default_factory=set)
    renamed: list[tuple[exp.Expr, str, str]] = field(default_factory=list)  # references to CTEs, before and now
    limited: list[tuple[exp.Table, exp.Expr]] = field(default_factory=list)  # relations, and their conditions

    def restricted(self, names_only: bool = False) -> exp.Expr:
        root = exp.Paren(this=self.query.copy())
        self._walk(root.this)
        if names_only or not (self.renamed or self.limited):
            return self.query
        if self.limited:
            _name_columns(root.this)
        for node, before, now in self.renamed:
            _rename(node, before, now)
        for table, condition in self.limited:
            self._limit(table, condition)
        found: exp.Expr = root.this
        found.parent = found.arg_key = None
        return found

    # -- names ---------------------------------------------------------------------------------------------------------

    def _walk(self, root: exp.Expr) -> None:
        waiting: list[tuple[exp.Expr, Env]] = [(root, {})]
        while waiting:
            node, env = waiting.pop()
            clause = node.args.get("with_")
            if clause is not None:
                env = self._with(clause, env, waiting)
            if isinstance(node, exp.Table):
                self._item(node, env)
            elif isinstance(node, exp.Lateral) and isinstance(node.this, exp.Anonymous):
                self._call(node.this, env)
            waiting += [(child, env) for child in node.iter_expressions() if child is not clause]

    def _with(self, clause: exp.Expr, env: Env, waiting: list[tuple[exp.Expr, Env]]) -> Env:
        """Return the scope behind a WITH. A CTE sees those before it, and itself if it may be recursive; in our own
        binder, also those after it."""
        recursive, inner = bool(clause.args.get("recursive")), dict(env)
        names = [cte.alias.lower() for cte in clause.expressions]
        for cte, name in zip(clause.expressions, names, strict=True):
            now = self._name_of_cte(name)
            seen = dict(inner)
            if recursive:
                seen |= {each: self._name_of_cte(each) for each in (names if self.flows else [name])}
            waiting += [(child, seen) for child in cte.iter_expressions()]
            self.renamed.append((cte.args["alias"], name, now))
            inner[name] = now
        return inner

    @cached_property
    def _taken(self) -> set[str]:
        """The names that something else may have."""
        named = {node.name.lower() for node in self.query.find_all(exp.Identifier)}
        return {*named, *self.sight.names}

    def _name_of_cte(self, name: str) -> str:
        now = f"{name} (cte)"
        while now in self._taken:
            now += " "
        return now

    def _item(self, table: exp.Table, env: Env) -> None:
        """Resolve an item of FROM."""
        what = table.this
        if isinstance(what, exp.Identifier):
            name = table.name.lower()
            if table.args.get("db") is not None:
                raise error("names have no schema or catalog part", table)
            if name in env:
                self.renamed.append((table, name, env[name]))
                return
            reach = self.sight.reach(name, "read")
            if not reach:
                raise self._unknown(name, table)
            self.named.add(name)
            if not reach.every:
                assert reach.condition is not None
                self._check_limitable(table, name)
                self.limited.append((table, reach.condition))
        elif isinstance(what, exp.Anonymous):
            self._call(what, env, table)
        elif what is not None and not isinstance(what, exp.Func):  # ROWS FROM has none, but items of its own
            raise error("this is not supported in FROM", table)

    def _call(self, call: exp.Expr, env: Env, item: exp.Table | None = None) -> None:
        """Resolve the arguments of a function in FROM that are names of relations."""
        function, given = call.name.lower(), call.expressions
        if function not in STREAM_FUNCTIONS or not given:
            return
        first = given[0]
        if isinstance(first, exp.Anonymous):
            self._call(first, env)
        if not isinstance(first, exp.Column):
            return
        name = first.name.lower()
        if name in env and function not in ("late", "numbered", "owed"):
            self.renamed.append((item if item is not None else call, name, env[name]))
            self.renamed.append((first.this, name, env[name]))
            return
        if not self.sight.reach(name, "read"):
            raise self._unknown_argument(function, name, first)
        self.named.add(name)
        if function in _BENEATH:
            if not self.sight.sees_all(name):
                raise ForbiddenError(f"{function}({name:.100}) is for those who may read everything beneath it")
        elif not self.sight.reach(name, "read").every:
            raise ForbiddenError(f"{function}({name:.100}) is for those who may read all rows of {quote_name(name)}")

    def _unknown(self, name: str, node: exp.Expr) -> WhenceError:
        """Return the error for a name that a query has for nothing: that of our binder, or of a query that is asked
        once."""
        try:
            bind_query_views(self.query.copy(), self.sight.program)
        except SqlError as refusal:
            return refusal
        return error(f'there is no table or view "{name}"{did_you_mean(name, self.sight.names)}', node)

    def _unknown_argument(self, function: str, name: str, node: exp.Expr) -> WhenceError:
        if function in ("late", "owed"):
            return self.sight.unknown(name)
        if function in _NUMBERED:
            return self.sight.unknown_stream(name)
        return self._unknown(name, node)

    # -- changes -------------------------------------------------------------------------------------------------------

    def _check_limitable(self, table: exp.Table, name: str) -> None:
        whole = isinstance(table.parent, (exp.Describe, exp.Summarize))
        if whole or {arg for arg, value in table.args.items() if value} - _PLAIN:
            raise ForbiddenError(f"this is for those who may read all rows of {quote_name(name)}")

    def _limit(self, table: exp.Table, condition: exp.Expr) -> None:
        """Put the rows that pass in the place of a relation, under the name by which the query knows it."""
        query = exp.Select(
            expressions=[exp.Star()],
            from_=exp.From(this=exp.Table(this=table.this.copy())),
            where=exp.Where(this=decided(condition) if self.flows else condition.copy()),
        )
        if not self.flows:
            query.set("limit", exp.Limit(expression=exp.Literal.number(_EVERY_ROW)))
        alias = table.args.get("alias")
        named = alias.copy() if alias is not None else exp.TableAlias()
        if named.this is None:
            named.set("this", table.this.copy())
        around = {arg: table.args[arg] for arg in _AROUND if table.args.get(arg)}
        written = exp.Table(this=table.this.copy(), alias=None if alias is None else alias.copy())
        subquery = exp.Subquery(this=query, alias=named, **around)
        subquery.meta[WRITTEN] = written
        table.replace(subquery)


def _rename(node: exp.Expr, before: str, now: str) -> None:
    """Give a CTE, or a reference to it, its new name; what the query calls its rows stays."""
    if isinstance(node, exp.Identifier):  # an argument
        node.set("this", now)
        node.set("quoted", True)
    elif isinstance(node, exp.TableAlias):  # of the CTE itself
        written = node.copy()
        node.set("this", _identifier(now, node.this))
        node.meta[WRITTEN] = written
    elif isinstance(node, exp.Table):
        _rename_item(node, before, now)


def _rename_item(node: exp.Table, before: str, now: str) -> None:
    alias, name = node.args.get("alias"), node.this
    written = exp.Table(this=name.copy(), alias=None if alias is None else alias.copy())
    if alias is None or alias.this is None:
        named = exp.TableAlias() if alias is None else alias.copy()
        named.set("this", exp.to_identifier(before, quoted=True) if isinstance(name, exp.Anonymous) else name.copy())
        node.set("alias", named)
    if isinstance(name, exp.Identifier):
        node.set("this", _identifier(now, name))
        node.meta[WRITTEN] = written


def _identifier(name: str, like: Any) -> exp.Identifier:
    found = exp.Identifier(this=name, quoted=True)
    if isinstance(like, exp.Expr) and like._meta:
        found._meta = dict(like._meta)
    return found


def _name_columns(query: exp.Expr) -> None:
    """Give columns that have no name, but a subquery in them, the name that their text would have given them."""
    for select in query.find_all(exp.Select):
        for item in list(select.expressions):
            if not isinstance(item, (exp.Alias, exp.Aliases, exp.Star)) and item.find(exp.Query):
                text = item.sql(dialect="duckdb", normalize_functions=False)
                alias = exp.Alias(this=None, alias=exp.to_identifier(text, quoted=True))
                item.replace(alias)
                alias.set("this", item)  # itself: it has nodes that are still to be changed
