"""Positions in the script, for messages: every error of this package is raised through here.

sqlglot leaves the offset of a token on identifiers, literals and function names; `mark_positions` turns the offsets
into the 1-based line and column of the token's first character, so that nothing later needs the script itself.
"""

from __future__ import annotations

import bisect
import difflib
from collections.abc import Iterable

from sqlglot import ErrorLevel, exp

from whence.model.errors import SqlError

_TEXT_LIMIT = 80
_MESSAGE_LIMIT = 400


class LineIndex:
    """The lines and columns of the offsets of a text.

    >>> LineIndex("ab\\ncd").at(4)
    (2, 2)
    """

    def __init__(self, text: str) -> None:
        self._starts = [0]
        at = text.find("\n")
        while at >= 0:
            self._starts.append(at + 1)
            at = text.find("\n", at + 1)

    def at(self, offset: int) -> tuple[int, int]:
        line = bisect.bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1


def mark_positions(tree: exp.Expr, lines: LineIndex) -> None:
    """Rewrite the positions sqlglot left on the nodes as those of their first character."""
    for node in tree.walk():
        meta = node.meta if node._meta else None
        if meta and "start" in meta and "marked" not in meta:
            meta["line"], meta["col"] = lines.at(meta["start"])
            meta["marked"] = True


def position(node: exp.Expr | None) -> tuple[int | None, int | None]:
    """Return line and column of the first token under the node that has one, else of the nearest around it."""
    while node is not None:
        found = [n.meta for n in node.walk() if n._meta and "start" in n.meta]
        if found:
            first = min(found, key=lambda meta: meta["start"])
            return first["line"], first["col"]
        node = node.parent
    return None, None


def error(message: str, node: exp.Expr | None = None, kind: type[SqlError] = SqlError) -> SqlError:
    """Return the error to raise about a piece of SQL."""
    line, column = position(node)
    try:
        text = shorten(write_sql(as_written(node))) if node is not None else None
    except Exception:  # too deep, or nothing that can be written: the message does without
        text = None
    return kind(shorten(message, _MESSAGE_LIMIT), line=line, column=column, text=text)


WRITTEN = "written"
"""The mark of a node that has taken the place of another, which it names: messages show that one."""

_AROUND = ("joins", "laterals", "pivots", "sample")  # of an item of FROM, beside what it is


def as_written(node: exp.Expr) -> exp.Expr:
    """Return a tree as its author wrote it, where a server has put conditions of its own into it."""
    if not any(n._meta and WRITTEN in n._meta for n in node.walk()):
        return node
    root = exp.Paren(this=node.copy())
    while (changed := next((n for n in root.this.walk() if n._meta and WRITTEN in n._meta), None)) is not None:
        before = changed.meta[WRITTEN].copy()
        for arg in _AROUND:
            if changed.args.get(arg):
                before.set(arg, changed.args[arg])
        changed.replace(before)
    found: exp.Expr = root.this
    return found


def write_sql(node: exp.Expr) -> str:
    """Return a tree as text to show, or to name a column by, without warnings of sqlglot's."""
    return node.sql(dialect="duckdb", unsupported_level=ErrorLevel.IGNORE)


def shorten(text: str, limit: int = _TEXT_LIMIT) -> str:
    """Shorten text for a message: one line, not too long."""
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint to add to "unknown name" messages, or nothing.

    >>> did_you_mean("lnik", ["link", "node"])
    '; did you mean "link"?'
    """
    close = difflib.get_close_matches(name, sorted(set(known)), n=1, cutoff=0.6)
    return f'; did you mean "{close[0]}"?' if close else ""
