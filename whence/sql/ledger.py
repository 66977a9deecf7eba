"""Account for every part of a parsed statement: what binding does not read is refused, never skipped.

Binding records each argument of each node of sqlglot's tree as it reads it: `ledger.read(node, "this", "where")`. When
a statement is bound, `Ledger.check` walks over its whole tree and raises an SqlError for the first argument that is
there and was not read. A clause that a later sqlglot reads, and this binder does not know, is refused this way as
surely as one that was forgotten here. Names and types are values of the argument that holds them (`_VALUES`).
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from whence.model.errors import SqlError
from whence.sql.position import error

_VALUES: dict[type[exp.Expr], frozenset[str]] = {
    exp.Identifier: frozenset(("this", "quoted")),
    exp.Var: frozenset(("this",)),
    exp.DataType: frozenset(("this", "expressions")),
    exp.DataTypeParam: frozenset(("this",)),
}
_CONSTRUCTS = {  # by the name of the argument, where it is not the word that SQL has for it
    "by_name": "BY NAME",
    "connect": "CONNECT BY",
    "cluster": "CLUSTER BY",
    "conflict": "ON CONFLICT",
    "default": "DEFAULT VALUES",
    "distribute": "DISTRIBUTE BY",
    "except_": "EXCLUDE",
    "from_": "FROM",
    "group": "GROUP BY",
    "hint": "a hint",
    "hints": "a hint",
    "into": "SELECT INTO",
    "joins": "JOIN",
    "key_expressions": "USING KEY",
    "laterals": "LATERAL VIEW",
    "limit_options": "PERCENT or WITH TIES",
    "locks": "FOR UPDATE or FOR SHARE",
    "on": "ON",
    "order": "ORDER BY",
    "ordinality": "WITH ORDINALITY",
    "partition": "PARTITION",
    "pivots": "PIVOT",
    "sample": "TABLESAMPLE",
    "sort": "SORT BY",
    "when": "AT (VERSION or TIMESTAMP)",
    "windows": "WINDOW",
    "with_": "WITH",
}


class Ledger:
    """The set of arguments of nodes that binding has read. The nodes must outlive it: they are known by identity."""

    def __init__(self) -> None:
        self._read: set[tuple[int, str]] = set()

    def read(self, node: exp.Expr, *args: str) -> None:
        """Record that binding has read these arguments of the node."""
        key = id(node)
        self._read.update((key, arg) for arg in args)

    def check(self, tree: exp.Expr | None) -> None:
        """Raise SqlError if some argument of a node in the tree is given and was not read."""
        waiting = [tree] if tree is not None else []
        while waiting:
            node = waiting.pop()
            values = _VALUES.get(type(node))
            for arg, value in node.args.items():
                if is_given(value) and (arg not in values if values is not None else (id(node), arg) not in self._read):
                    raise _refusal(node, arg, value)
            if not isinstance(node, exp.DataTypeParam):
                waiting.extend(reversed(list(node.iter_expressions())))


def refuse_others(node: exp.Expr, *args: str) -> None:
    """Raise SqlError if a node has other arguments than these; what is in them is not looked at."""
    for arg, value in node.args.items():
        if arg not in args and is_given(value):
            raise _refusal(node, arg, value)


def is_given(value: Any) -> bool:
    """Tell whether an argument of a node has a value.

    >>> [is_given(value) for value in (None, False, [], "", 0, "x")]
    [False, False, False, False, True, True]
    """
    return value is not None and value is not False and value != [] and value != ""


def _refusal(node: exp.Expr, arg: str, value: Any) -> SqlError:
    parts = value if isinstance(value, list) else [value]
    at = next((part for part in parts if isinstance(part, exp.Expr)), node)
    construct = _CONSTRUCTS.get(arg, arg.strip("_").replace("_", " ").upper())
    if arg in ("this", "expression", "expressions"):
        return error("this is not supported here", at)
    return error(f"{construct} is not supported", at)
