"""A row that is not there, and what stands in its way, as data: the answer of `why` about a missing row.

`MissingRows` are rows of a table or view that are not there, any one of which would do. They have a `FailedWay` for
each rule by which they could come about, and a failed way has what it lacks (missing rows in turn, down to tables), the
rows that exclude it, each with its derivations, or a condition that is not true.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal

from whence.explain.graph import Derivations

Row = dict[str, Any]
BaseRow = tuple[str, Row]
_FEW = 5  # rows or values of one line


@dataclass
class Exclusion:
    """Rows that exclude a match of a rule: their nodes in a graph that has the derivations of them and of the match.
    `more` of them are not in it.

    If it is `sound`, the row that was asked for appears when the last of them is lost and the match is not, as long as
    no row of the `protected` tables is lost."""

    graph: Derivations
    excluding: list[int]
    match: int
    more: int = 0
    sound: bool = False
    protected: frozenset[str] = frozenset()


@dataclass
class FailedWay:
    """A rule that does not lead to the row.

    rule        such as `may_read <- in_group, grant_to, no blocked`
    reason      the condition that is not true, if it is neither of the others
    exclusions  the rows that exclude it, by match, each with the derivations behind it
    lacking     what is missing: any one of these, or all of them if not `any_of`"""

    rule: str
    reason: str = ""
    exclusions: list[Exclusion] = field(default_factory=list)
    lacking: list[MissingRows] = field(default_factory=list)
    any_of: bool = True

    @property
    def excluded_by(self) -> list[tuple[Derivations, int]]:
        """Return the rows that exclude it, each once: a graph and a node of it."""
        found = {e.graph.label(n): (e.graph, n) for e in self.exclusions for n in e.excluding}
        return list(found.values())


@dataclass
class MissingRows:
    """Rows that are not there, any one of which would do.

    relation  the table, the view, or the name of a part of a query
    rows      their known columns, the first of `count`
    columns   all columns of the relation
    where     what else such a row has to fulfil, in SQL
    nearest   what is there instead, a sentence for each side of what does not meet
    ways      how they could come about; none for a table
    note      what else there is to say
    sufficient  of a table, those of `rows` whose insertion alone would make the row appear that was asked for"""

    relation: str
    is_table: bool
    columns: tuple[str, ...]
    rows: list[Row]
    count: int
    where: str = ""
    nearest: list[str] = field(default_factory=list)
    ways: list[FailedWay] = field(default_factory=list)
    note: str = ""
    sufficient: list[Row] = field(default_factory=list)

    @property
    def label(self) -> str:
        """Return the rows as people read them, such as `link(A, D)` or `link(src in (A, B), dst = D)`."""
        where = f" where {self.where}" if self.where else ""
        if len(self.rows) == 1 == self.count:
            return write_partial(self.relation, self.columns, self.rows[0]) + where
        known = list(self.rows[0]) if self.rows else []
        values = {c: list(dict.fromkeys(row[c] for row in self.rows)) for c in known}
        if self.count == len(self.rows) == len(list(product(*values.values()))) or len(known) == 1:
            each = [f"{c} {_among(found, self.count if len(known) == 1 else 0)}" for c, found in values.items()]
            return f"{self.relation}({', '.join(each)}){where}"
        some = [write_partial(self.relation, self.columns, row) for row in self.rows[:_FEW]]
        rest = f" and {self.count - len(some):,} more" if self.count > len(some) else ""
        return f"{', '.join(some)}{rest}{where}"

    def walk(self) -> Iterator[MissingRows]:
        """Yield these and everything missing below."""
        yield self
        for way in self.ways:
            for lack in way.lacking:
                yield from lack.walk()


@dataclass(frozen=True)
class Remedy:
    """One change of one base row that suffices for the row to appear. Columns that `row` does not have may be anything
    in a row that is inserted."""

    action: Literal["insert", "delete"]
    table: str
    row: Row
    columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        verb = "inserting" if self.action == "insert" else "deleting"
        return f"{verb} {write_partial(self.table, self.columns, self.row)} would let it in"


def write_partial(relation: str, columns: tuple[str, ...], row: Row) -> str:
    """Write a row of which some columns are known.

    >>> columns = ("src", "dst")
    >>> write_partial("link", columns, {"src": "A", "dst": None}), write_partial("link", columns, {"dst": 1})
    ('link(A, NULL)', 'link(dst = 1)')
    """
    if len(row) == len(columns):
        return f"{relation}({', '.join(_text(row[c]) for c in columns)})"
    return f"{relation}({', '.join(f'{c} = {_text(v)}' for c, v in row.items())})"


def _text(value: Any) -> str:
    return "NULL" if value is None else str(value)


def _among(values: list[Any], count: int) -> str:
    if len(values) == 1:
        return f"= {_text(values[0])}"
    more = max(count, len(values)) - _FEW
    rest = f" and {more:,} more" if more > 0 else ""
    return f"in ({', '.join(map(_text, values[:_FEW]))}{rest})"
