"""Row conditions: the text after 'read where' and 'insert where', bound for one caller and one relation.

The law: what a condition cannot decide, it denies. `:who` becomes a literal, never text that is parsed. A condition
that does not bind to the relation, or that may fail for some rows (a cast, a division), counts as false: its error
would show rows that it is there to hide. Its subqueries read every row of what they name, whatever the caller may. They
are tests, EXISTS and IN: the value of a subquery is a join, which the planner may put behind a join of the caller's.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from whence.model.errors import SqlError, WhenceError
from whence.plan.algebra.expressions import Expr, may_fail
from whence.plan.algebra.logical import Lateral, Node, walk
from whence.plan.algebra.program import Program, Table, View
from whence.sql.bind import bind_query_views
from whence.sql.parameters import bind_parameters
from whence.sql.parse import parse_query

_ONLY = {"expressions", "from_", "where"}


def bind_condition(text: str, who: str, relation: Table | View, program: Program) -> exp.Expr:
    """Return a condition over the columns of a relation as a tree without positions; SqlError if it is none.

    >>> import whence
    >>> db = whence.open(); _ = db.execute("CREATE TABLE sale (item TEXT, seller TEXT)")
    >>> known = db._coordinator.program
    >>> bind_condition("seller = :who", "it's", known.tables["sale"], known).sql()
    "seller = 'it''s'"
    """
    statement = parse_query(f"SELECT * FROM {quoted(relation.name)} WHERE {text}")
    query = statement.query
    if not isinstance(query, exp.Select) or {name for name, arg in query.args.items() if arg} - _ONLY:
        raise SqlError("this is more than a condition")
    if statement.parameters:
        [statement] = bind_parameters([statement], {"who": who})
        query = statement.query
    if any(map(_is_value, query.args["where"].find_all(exp.Subquery))):
        raise SqlError("the value of a subquery; use IN (SELECT …) or EXISTS (SELECT …)")
    plan, hidden = bind_query_views(query.copy(), program)
    for view in (plan, *(view.query for view in hidden.values())):
        _check_sure(view)
    found: exp.Expr = query.args["where"].this.copy()
    for node in found.walk():
        node._meta, node.comments = None, None  # messages are about the caller's text, not about this one
    return found


def relations_in(condition: str) -> set[str]:
    """Return the names in the subqueries of a condition, also of CTEs in it; none if it cannot be read."""
    try:
        query = parse_query(f"SELECT * FROM t WHERE {condition}").query
    except WhenceError:
        return set()
    where = query.args.get("where")
    names = where.find_all(exp.Table) if where is not None else ()
    return {table.name.lower() for table in names}


def any_of(conditions: list[exp.Expr]) -> exp.Expr:
    """Return the condition that one of some conditions holds."""
    if len(conditions) == 1:
        return conditions[0]
    found: exp.Expr = exp.Paren(this=conditions[0])
    for condition in conditions[1:]:
        found = exp.Or(this=found, expression=exp.Paren(this=condition))
    return found


def decided(condition: exp.Expr) -> exp.Expr:
    """Return a condition that is false where the given one is unknown, so that what is asked of the rows that pass it
    is not asked of others: AND goes on to its right side where the left one is NULL."""
    terms, waiting = list[exp.Expr](), [condition.copy()]
    while waiting:
        node = waiting.pop()
        if isinstance(node, exp.Paren):
            waiting.append(node.this)
        elif isinstance(node, exp.And):
            waiting += (node.right, node.left)
        else:
            terms.append(node if _is_test(node) else exp.Anonymous(this="COALESCE", expressions=[node, exp.false()]))
    found = terms[0]
    for term in terms[1:]:
        found = exp.And(this=found, expression=term)
    return found


def quoted(name: str) -> str:
    """Return a name as SQL."""
    return exp.to_identifier(name, quoted=True).sql(dialect="duckdb")


def _is_test(node: exp.Expr) -> bool:
    """Return whether a term is EXISTS, IN or NOT IN of a subquery, which joins decide before anything else."""
    while isinstance(node, (exp.Not, exp.Paren)):
        node = node.this
    return isinstance(node, exp.Exists) or (isinstance(node, exp.In) and bool(node.args.get("query")))


def _is_value(subquery: exp.Expr) -> bool:
    """Return whether a subquery, which is in no other, is neither that of IN nor of EXISTS."""
    if isinstance(subquery.parent, exp.Exists) or (isinstance(subquery.parent, exp.In) and subquery.arg_key == "query"):
        return False
    return subquery.parent_select is not None and subquery.parent_select.parent is None


def _check_sure(plan: Node) -> None:
    for node in walk(plan):
        if isinstance(node, Lateral) or any(map(may_fail, _expressions(node))):
            raise SqlError("a cast, a division or a function of it may fail; use TRY_CAST, or compute it in a view")


def _expressions(node: Node) -> Iterator[Expr]:
    for value in vars(node).values():
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Expr):
                yield part
