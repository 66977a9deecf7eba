"""Answers as sqllogictest files write them: values as text, rows in lines, sorted, hashed."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from typing import Any

Row = tuple[Any, ...]
_HASHED = re.compile(r"(\d+) values hashing to ([0-9a-f]{32})")


def text_of(value: Any, kind: str) -> str:
    """Return a value as a file of SQLite writes it under a column's type: I, R or T.

    >>> text_of(None, "I"), text_of(2.5, "I"), text_of(2.5, "R"), text_of("", "T"), text_of(True, "T")
    ('NULL', '2', '2.500', '(empty)', 'true')
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(int(value)) if kind in "IR" else str(value).lower()
    if kind == "I" and isinstance(value, float) and math.isfinite(value):
        return str(int(value))
    if kind == "R" and not isinstance(value, str):
        return f"{value:.3f}"
    return str(value) or "(empty)"


def matches(rows: Sequence[Row], kinds: str, sort: str, wanted: list[str]) -> bool:
    """Return whether rows are those that a file expects, in the given order: nosort, rowsort or valuesort."""
    kinds = kinds.ljust(len(rows[0]) if rows else 1, "T")
    ours = [[text_of(value, kind) for value, kind in zip(row, kinds, strict=False)] for row in rows]
    hashed = _HASHED.fullmatch(wanted[0].strip()) if len(wanted) == 1 else None
    if hashed is not None:
        values = _in_order(ours, sort)
        digest = hashlib.md5("".join(f"{value}\n" for value in values).encode(), usedforsecurity=False).hexdigest()
        return (len(values), digest) == (int(hashed[1]), hashed[2])
    theirs = _split(wanted, len(kinds) if not rows else len(rows[0]), len(rows))
    if theirs is None or len(theirs) != len(ours):
        return False
    mine = _in_order([[str(v) if v is not None else "NULL" for v in row] for row in rows], sort)
    return all(map(_equal, _in_order(ours, sort), _in_order(theirs, sort))) or all(
        map(_equal, mine, _in_order(theirs, sort))
    )


def _split(lines: list[str], columns: int, count: int) -> list[list[str]] | None:
    """Return the rows of a file: a line a row, columns by tabs or blanks, or a line a value; None if neither fits."""
    for separator in ("\t", None, "|"):
        rows = [[part.strip() for part in line.split(separator)] for line in lines]
        if len(rows) == count and all(len(row) == columns for row in rows):
            return rows
    if columns and len(lines) == columns * count:
        return [[line.strip() for line in lines[at : at + columns]] for at in range(0, len(lines), columns)]
    return [] if not lines else None


def _in_order(rows: list[list[str]], sort: str) -> list[str]:
    if sort == "rowsort":
        rows = sorted(rows)
    values = [value for row in rows for value in row]
    return sorted(values) if sort == "valuesort" else values


def _equal(ours: str, theirs: str) -> bool:
    """Return whether two values are the same as text or as numbers."""
    if ours == theirs or (ours.lower(), theirs) in (("true", "1"), ("false", "0"), ("true", "t"), ("false", "f")):
        return True
    try:
        return math.isclose(float(ours), float(theirs), rel_tol=1e-9, abs_tol=5e-4 if "." in theirs else 0.0)
    except ValueError:
        return False
