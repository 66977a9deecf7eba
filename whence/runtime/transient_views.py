"""Transient views: views of SELECTs that somebody subscribes to, kept up to date while they do.

They read the tables and views of a database as these run, and nothing reads them. The law: no table, view, statement,
record of the log or image is another because one was made, failed or was dropped. So they are not part of the program
that users declare: a catalog keeps them beside it, and only the plan of the partitions has both.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sqlglot import exp

from whence.model.errors import SqlError, WhenceError
from whence.plan.algebra.functions import check_volatile, functions_of
from whence.plan.algebra.logical import Node, walk
from whence.plan.algebra.program import Program, View
from whence.plan.knowledge.derive import augmented
from whence.plan.knowledge.model import RelationKnowledge
from whence.plan.order_sensitive import IN_ORDER, read_in_order, with_ordered_copies
from whence.plan.recursion.strata import Component, components
from whence.plan.rewrite.best_rows import select_aggregates
from whence.plan.streams.networks import plan_beside
from whence.sql.bind import bind_query_views
from whence.subscribe.results import has_results, read_promises, read_results, results_beneath

QUERY = "the query"
"""What messages call a transient view."""

SUBSCRIPTION = "(subscription)"
"""The relation that a transient view's operators are listed under."""


@dataclass(frozen=True)
class TransientView:
    """A view of a subscription; as it is bound and as it runs, with the views of its recursive CTEs."""

    view: View
    bound: Mapping[str, View]
    planned: Mapping[str, View]
    components: tuple[Component, ...]
    reads: frozenset[str]  # the tables and views of others, directly, as they run
    named: frozenset[str]  # those that its author named
    knowledge: RelationKnowledge  # what its rows can still become

    def calls(self, function: str) -> bool:
        """Return whether it calls a Python function."""
        return any(function in dict(functions_of(view.query)) for view in self.planned.values())


def plan_transient(
    name: str,
    query: exp.Expr | Node,
    sql: str,
    program: Program,
    planned: Program,
    known_planned: Program,
    extras: bool = False,
    ordered: bool = False,
) -> TransientView:
    """Bind a SELECT over a program, or take one that is bound, and plan it over that program as it runs; `sql` is its
    text. With `extras` it has the columns that bounds of its rows need, behind those of the query. With
    `ordered` it takes the rows of sources in the order of ticks.

    `known_planned` is the program that bounds follow from. Where results take the place of rows it is not `planned`,
    and the rows have no such columns."""
    plan, hidden = (query, {}) if isinstance(query, Node) else bind_query_views(query, program, name, keep_order=False)
    view = View(name, plan.schema, plan, ((IN_ORDER, "true"),) if ordered else (), sql)
    bound = {**hidden, name: view}
    named = _names_in(bound.values()) - bound.keys()
    bound = with_ordered_copies(program, name, bound)
    view = bound[name]
    both = program.copy()
    both.views |= bound
    networks = plan_beside(_as_read(read_results(both, bound), bound), planned)
    check_volatile(Program(views=networks))
    for_bounds = None
    if has_results(program):
        for_bounds = known_planned.copy()
        for_bounds.views |= plan_beside(_as_read(read_promises(both, bound), bound), known_planned)
    both = planned.copy()
    both.views |= networks
    known = augmented(for_bounds or both, name)
    if extras and needs_extras(known.knowledge) and not results_beneath(both, name):
        networks[name] = both.views[name] = replace(networks[name], schema=known.plan.schema, query=known.plan)
        view = replace(view, schema=known.plan.schema)
    found = {n: v for n, v in select_aggregates(both, list(networks)).views.items() if n not in planned.views}
    order = tuple(components(Program(views=found)))
    reads = _names_in(found.values()) - found.keys()
    return TransientView(view, bound, found, order, reads, named, known.knowledge)


def _as_read(program: Program, names: Iterable[str]) -> dict[str, View]:
    """Return some views of a program, reading in order what they must."""
    found = read_in_order(program, names).views
    return {name: found[name] for name in names}


def needs_extras(knowledge: RelationKnowledge) -> bool:
    """Return whether columns that rows do not show say more of what can become of them."""
    return bool(knowledge.extras) and not knowledge.is_plain


def _names_in(views: Iterable[View]) -> frozenset[str]:
    nodes = (node for view in views for node in walk(view.query))
    return frozenset(name for node in nodes for name in (*node.names, *node.fetches))


def beside(
    planned: Program, ordered: Sequence[Component], transient: Mapping[str, TransientView]
) -> tuple[Program, list[Component]]:
    """Return a program as it runs, and its components in their order, with transient views."""
    both = planned.copy()
    for each in transient.values():
        both.views |= each.planned
    return both, [*ordered, *(component for each in transient.values() for component in each.components)]


def untouched(
    transient: Mapping[str, TransientView], before: Program, after: Program, changed: set[str]
) -> dict[str, TransientView]:
    """Return the transient views that read nothing of what is `changed` or gone between two programs as they run."""
    if not transient:
        return {}
    touched = changed | (before.views.keys() - after.views.keys()) | (before.tables.keys() - after.tables.keys())
    return {name: each for name, each in transient.items() if not each.reads & touched}


def reason_of_end(ended: TransientView, before: Program, after: Program) -> str:
    """Say why a transient view is gone: what it reads, directly or not, was dropped or redefined."""
    seen, waiting, redefined = set[str](), sorted(ended.named), ""
    while waiting:
        name = waiting.pop(0)
        if name in seen:
            continue
        seen.add(name)
        if name not in after.tables and name not in after.views:
            return f'"{name}", which {QUERY} reads, was dropped: its changes have ended'
        view = before.views.get(name)
        if view is not None:
            if after.views.get(name) != view:
                redefined = redefined or name
            waiting += sorted(_names_in([view]))
    what = f'"{redefined}", which {QUERY} reads,' if redefined else f"a view that {QUERY} reads"
    return f"{what} was redefined: its changes have ended; ask for them again"


@contextmanager
def anonymous(name: str) -> Iterator[None]:
    """Raise errors without the reserved name of a transient view."""
    try:
        yield
    except SqlError as error:
        again = copy.copy(error)
        again.__init__(  # type: ignore[misc]  # the message is made of its parts again
            without_name(error.message, name), line=error.line, column=error.column, text=error.text
        )
        raise again from error.__cause__
    except WhenceError as error:
        again_ = copy.copy(error)
        again_.args = tuple(without_name(arg, name) if isinstance(arg, str) else arg for arg in error.args)
        raise again_ from error.__cause__


def without_name(message: str, name: str) -> str:
    """Return a message about a transient view without its reserved name.

    >>> without_name('in "$subscription_7": no', "$subscription_7")
    'in the query: no'
    >>> without_name('the recursive view $subscription_7 does not end', "$subscription_7")
    'the query does not end'
    >>> without_name('"$subscription_7$r" has no branch', "$subscription_7")
    '"r" has no branch'
    """
    own = re.escape(name)
    message = re.sub(rf"{own}\$(?=\w)", "", message)
    return re.sub(rf'(?:the recursive view )?("?){own}\1(?!\w)', QUERY, message)
