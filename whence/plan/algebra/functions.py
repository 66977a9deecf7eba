"""Find the Python functions that queries call, and refuse views that would call one again that is not deterministic.

A function that is not deterministic (`Volatile`) is sound where each row is computed once and never again. That holds
in a view that is a stream: its rows are append-only and kept, and lineage reads what was written down. It does not hold
where a row is computed again:

| what computes a row again | so it is refused |
|---|---|
| a deletion in a relation, and every question about it | in views that are relations, recursive and maintained ones |
| a replay of covering intervals | in a view with `provenance = 'covering'`, and in what it is replayed through |
| the instrumented copy of an untraced view | in a view that another one is traced through |
| the log of a database in a folder, and a partition that catches up | in every view there |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from whence.model.errors import SqlError
from whence.plan.algebra.expressions import Expr, Udf, Volatile
from whence.plan.algebra.expressions import walk as walk_expr
from whence.plan.algebra.logical import Lateral, Node, walk
from whence.plan.algebra.program import Program
from whence.plan.streams.model import Retain

_INSTEAD = "or insert its values as data, INSERT INTO … SELECT {}(…) FROM …"


def functions_of(query: Node) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the Python functions that a query calls, each with its name."""
    for node in walk(query):
        if isinstance(node, Lateral):
            yield node.name, node.function
        for value in vars(node).values():
            for top in value if isinstance(value, tuple) else (value,):
                if isinstance(top, Expr):
                    yield from ((e.name, e.function) for e in walk_expr(top) if isinstance(e, Udf))


def volatile_in(query: Node) -> str | None:
    """Return the name of a function called in a query that is not deterministic, if there is one."""
    return next((name for name, function in functions_of(query) if isinstance(function, Volatile)), None)


def check_volatile(program: Program) -> None:
    """Refuse views of a program of networks that would call a function again that is not deterministic."""
    for view in program.views.values():
        name = volatile_in(view.query)
        if name is None:
            continue
        if not isinstance(view.query, Retain):
            raise _refused(
                view.owner or view.name,
                name,
                "a row that is deleted or explained is computed again, and must be the row it was. Call it in a view "
                "that is a stream, and read that",
            )
        if view.option("provenance") == "covering":
            raise _refused(
                view.name,
                name,
                "covering intervals are computed again when someone asks. Use provenance = 'lineage', or trace from a "
                "view after the call with provenance_of",
            )


def check_copied(view: str, copied: str, query: Node) -> None:
    """Refuse to trace a view through its own copy of another one, if that calls such a function."""
    name = volatile_in(query)
    if name is not None:
        raise SqlError(
            f'"{view}" would be traced through a copy of "{copied}", which calls {name}: that is declared with '
            f'deterministic=False, and the copy would have other rows. Give "{copied}" the same provenance = '
            f"'lineage', or trace from it: provenance_of = '{copied}'"
        )


def check_recomputed(program: Program, what: str) -> None:
    """Refuse views that call such a function, where all rows may be computed again for the reason given."""
    for view in program.views.values():
        name = volatile_in(view.query)
        if name is not None:
            raise _refused(view.owner or view.name, name, f"{what}. Use a database in memory")


def _refused(view: str, function: str, why: str) -> SqlError:
    return SqlError(
        f'"{view}" calls {function}, which is declared with deterministic=False: {why}, {_INSTEAD.format(function)}'
    )
