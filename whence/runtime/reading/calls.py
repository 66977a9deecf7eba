"""The table functions of ad-hoc SQL: provenance(view, stream), numbered(stream), late(view), owed(table).

Each becomes a relation of its own, which DuckDB is handed as Arrow. What a query asks of the results alone is asked
first, so that only the inputs of results that matter are looked up (lazy retrieval, paper 001, 5.2): conjuncts of WHERE
that read nothing but the result's own columns are pushed through the p-join. They stay in the query as well, so pushing
one changes nothing but the cost, as long as the relation is not padded by an outer join; where it might be, or a
condition is not plainly of this relation, it is left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from whence.sql.position import error

FUNCTIONS = ("provenance", "numbered", "late", "owed")
OURS = "whence_"  # begins the names our functions have in DuckDB
_NAME = "whence stream {}"  # a relation that nobody else calls so
_JOINS = ("", "INNER", "CROSS")
_TAKES = {
    "provenance": "provenance takes the name of a view, and of a stream it is traced from",
    "numbered": "numbered takes the name of a stream, or of a view that is one",
    "late": "late takes the name of a view",
    "owed": "owed takes the name of a table",
}
_NOT_PLAIN = (
    *(exp.Query, exp.Subquery, exp.Window, exp.AggFunc, exp.Star, exp.Lambda, exp.AtTimeZone),
    *(exp.Rand, exp.Randn, exp.Uuid, exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime, exp.CurrentDatetime),
)
Narrow = Callable[[pa.Table, str, str], pa.Table]  # rows, what they are called, a condition: those for which it holds


@dataclass(frozen=True)
class TableFunctionCall:
    """A call in a query: the relation it has become, its arguments, and what is asked of its own rows alone."""

    relation: str
    function: str
    args: tuple[str, ...]
    alias: str
    conditions: tuple[exp.Expr, ...]

    def narrowed(self, rows: pa.Table, narrow: Narrow) -> pa.Table:
        """The rows that pass the conditions that read nothing else; one that fails here is left to the query."""
        known = {name.lower() for name in rows.column_names}
        mine = [c for c in self.conditions if all(col.name.lower() in known for col in c.find_all(exp.Column))]
        if not mine:
            return rows
        text = " AND ".join(f"({c.sql(dialect='duckdb')})" for c in mine)
        try:
            return narrow(rows, self.alias, text)
        except Exception:  # whatever DuckDB has against it, it will say of the whole query, or not
            return rows


def calls_of(query: exp.Expr) -> list[exp.Table]:
    """The calls in a query."""
    return [t for t in query.find_all(exp.Table) if isinstance(t.this, exp.Anonymous) and _name(t) in FUNCTIONS]


def as_relations(query: exp.Expr) -> tuple[exp.Expr, list[TableFunctionCall]]:
    """The query with its calls as relations, and the calls."""
    if not calls_of(query):
        return query, []
    query = query.copy()
    found = []
    for number, table in enumerate(calls_of(query)):
        function, args = _name(table), _arguments(table)
        alias = table.alias or args[0]
        relation = _NAME.format(number)
        found.append(TableFunctionCall(relation, function, args, alias, conditions(table, alias)))
        table.set("this", exp.to_identifier(relation, quoted=True))
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
    return query, found


def _name(table: exp.Table) -> str:
    return str(table.this.this).lower()


def _arguments(table: exp.Table) -> tuple[str, ...]:
    name, given = _name(table), table.this.expressions
    for arg in given:
        if not isinstance(arg, exp.Column) or arg.table or not isinstance(arg.this, exp.Identifier):
            raise error(_TAKES[name], arg)
    if not 1 <= len(given) <= (2 if name == "provenance" else 1):
        raise error(_TAKES[name], table)
    return tuple(arg.name.lower() for arg in given)


def conditions(table: exp.Table, alias: str) -> tuple[exp.Expr, ...]:
    """The conjuncts of WHERE that are of this relation alone, and hold of every row of it that is used."""
    select = _select_over(table)
    where = select.args.get("where") if select is not None else None
    if select is None or where is None or not _is_safe(table, select):
        return ()
    alone = not select.args.get("joins") and not select.args.get("laterals")
    return tuple(c for c in conjuncts(where.this) if _reads_only(c, alias.lower(), alone))


def _select_over(table: exp.Table) -> exp.Select | None:
    """The SELECT in whose FROM it stands by itself."""
    plain = not any(table.args.get(arg) for arg in ("joins", "laterals", "pivots", "sample"))
    named = table.args.get("alias")
    if not plain or (isinstance(named, exp.TableAlias) and named.args.get("columns")):
        return None
    over = table.parent
    if isinstance(over, (exp.From, exp.Join)) and over.this is table and isinstance(over.parent, exp.Select):
        return over.parent
    return None


def _is_safe(table: exp.Table, select: exp.Select) -> bool:
    """Whether no join pads its rows, or rows with them."""
    first = isinstance(table.parent, exp.From)
    for join in select.args.get("joins") or []:
        side, kind = str(join.side).upper(), str(join.kind).upper()
        if join.args.get("method") or kind not in (*_JOINS, "OUTER"):
            return False
        if side == "LEFT" and first:
            continue
        if side or kind == "OUTER":
            return False
    return True


def conjuncts(node: exp.Expr) -> list[exp.Expr]:
    """The terms of a condition that must all be true, of which there may be thousands."""
    found, waiting = [], [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, exp.Paren):
            waiting.append(node.this)
        elif isinstance(node, exp.And):
            waiting += (node.right, node.left)
        else:
            found.append(node)
    return found


def _reads_only(node: exp.Expr, alias: str, alone: bool) -> bool:
    """Whether a condition reads this relation only, and means the same wherever it is asked."""
    if node.find(*_NOT_PLAIN):
        return False
    if not all(str(call.this).lower().startswith(OURS) for call in node.find_all(exp.Anonymous)):
        return False
    columns = list(node.find_all(exp.Column))
    mine = (c.table.lower() == alias if c.table else alone for c in columns)
    return bool(columns) and all(mine) and not any(c.args.get("db") for c in columns)
