"""Queries that are subscribed to: a name of a table, stream or view, or any SELECT that a view could have."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp

from whence.model.errors import SqlError
from whence.plan.algebra.program import subscription_name, subscription_of
from whence.runtime.definitions import canonical
from whence.sql.parameters import Params, bind_parameters
from whence.sql.parse import parse_query
from whence.sql.reader import WhenceDialect

_SUBSCRIPTION = re.compile(r"\s*(\w+)#(-?\d{1,19})\s*")
_NAME = re.compile(r"\w+|\"(?:[^\"]|\"\")+\"")


def parse_subscription(text: str, params: Params | None = None) -> exp.Expr:
    """Read what is subscribed to: a name, which stands for all of its rows, a SELECT with values for its parameters, or
    a subscription that a template has, such as deals#7.

    >>> parse_subscription("hourly").sql(), parse_subscription("SELECT x FROM a WHERE x > ?", [1]).sql()
    ('SELECT * FROM hourly', 'SELECT x FROM a WHERE x > 1')
    """
    if not isinstance(text, str):
        raise SqlError("subscribe takes a SELECT or a name of a table or view, as text")
    stored = _SUBSCRIPTION.fullmatch(text)
    if stored is not None:
        text = subscription_name(stored[1].lower(), int(stored[2]))
    if subscription_of(text) is not None:
        if params:
            raise SqlError("the parameters of a subscription to a template are in its table: change them there")
        return exp.select("*").from_(exp.Table(this=exp.to_identifier(text, quoted=True)))
    query = f"SELECT * FROM {text}" if _NAME.fullmatch(text.strip()) else text
    [statement] = bind_parameters([parse_query(query)], params)
    return statement.query


def followed_name(query: exp.Expr) -> str | None:
    """Return the relation that a query is all rows and columns of, if it is that.

    >>> followed_name(parse_subscription("SELECT * FROM Hourly")), followed_name(parse_subscription("SELECT x FROM a"))
    ('hourly', None)
    """
    if not isinstance(query, exp.Select):
        return None
    given = {name for name, value in query.args.items() if value}
    source = query.args.get("from_") or query.args.get("from")
    if given - {"expressions", "from", "from_", "kind"} or source is None:
        return None
    star, table = query.expressions, source.this
    if len(star) != 1 or not isinstance(star[0], exp.Star) or any(star[0].args.values()):
        return None
    plain = isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier)
    if not plain or any(value for name, value in table.args.items() if name != "this"):
        return None
    return str(table.name.lower())


def text_of_query(query: exp.Expr) -> str:
    """Return a query as the text of a view."""
    return query.sql(dialect=WhenceDialect)


def identity(query: exp.Expr) -> str:
    """Return what two queries share that are the same but for the case and quotes of their names.

    >>> identity(parse_subscription("SELECT X FROM A")) == identity(parse_subscription('select "x" from a'))
    True
    """
    return canonical(query).sql(dialect=WhenceDialect)


def channel_key(queries: Sequence[exp.Expr], extras: bool = True, ordered: bool = False) -> tuple[str, ...]:
    """Return what subscriptions share that are to the same queries; with `extras`, with the columns that bounds need;
    with `ordered`, in the order of ticks.

    >>> channel_key([parse_subscription("a")]), channel_key([parse_subscription("a")], extras=False)
    (('SELECT * FROM a',), ('SELECT * FROM a -- as it is',))
    """
    more = ("" if extras else " -- as it is") + (" -- in order" if ordered else "")
    return tuple(identity(query) + more for query in queries)
