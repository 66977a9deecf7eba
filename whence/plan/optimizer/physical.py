"""Physical operators and properties: what an operator requires of its inputs, and what its rows have.

A property is an order or an index by the columns of one equality class, or nothing. The same operators are given to
every optimizer; `split` makes the alternatives of an entry of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Requirement = Literal["", "order", "index"]


class Property(NamedTuple):
    """What the rows of an entry are to have: an order, or an index, by the columns of a class."""

    kind: Requirement = ""
    by: int = -1


PLAIN = Property()


@dataclass(frozen=True)
class JoinOperator:
    """A way to join: what it requires of its inputs, and which order its rows have.

    `gives` is "" for none, "join" for the order of the joined columns, and "any" where it can sort what it writes. A
    symmetric one is the same with its inputs exchanged, so an expression is split into pairs without an order.
    """

    name: str
    left: Requirement = ""
    right: Requirement = ""
    gives: Literal["", "join", "any"] = ""
    symmetric: bool = False


HASH = JoinOperator("hash")  # builds on its right input, probes with its left one
PIPE_HASH = JoinOperator("pipe-hash", symmetric=True)
SORTED_PIPE_HASH = JoinOperator("pipe-hash", gives="any", symmetric=True)
SORT_MERGE = JoinOperator("sort-merge", "order", "order", gives="join", symmetric=True)
NESTED_LOOP = JoinOperator("nested-loop", left="index")  # looks its left input up for each row of the right one
SCAN, INDEX_SCAN, SORT, HASH_AGGREGATE, SORT_AGGREGATE = (
    "local scan",
    "index scan",
    "sort",
    "hash aggregate",
    "sort aggregate",
)
Splits = Mapping[tuple[frozenset[str], frozenset[str]], tuple[JoinOperator, ...]]


@dataclass(frozen=True)
class Aggregation:
    """The aggregate on top of a query: how many groups it has, and by which class of columns it could be sorted."""

    groups: float = 1
    by: str = ""  # relation.column


@dataclass(frozen=True)
class Physical:
    """The operators that may be used, how relations are stored, and whether rows may be sorted.

    `only` restricts some pairs of expressions to some operators; None of the other pairs is joined if `only_these`.
    """

    joins: tuple[JoinOperator, ...] = (HASH,)
    orders: Mapping[str, str] = field(default_factory=dict)  # relation to the column it is stored in the order of
    indexes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sorts: bool = True
    only: Splits = field(default_factory=dict)
    only_these: bool = False
    shape: Literal["bushy", "left"] = "bushy"
    aggregation: Aggregation | None = None


LOGICAL = Physical()
RICH = (HASH, SORT_MERGE, NESTED_LOOP)
