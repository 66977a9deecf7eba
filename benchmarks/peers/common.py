"""What all peers share: the programs, the interface, and digests that make answers comparable cheaply.

Answers are compared as digests, (row count, sum of row hashes, sum of squared row hashes), because a digest can be
kept up to date inside a dataflow without handing every changed row to Python: a peer that pushes its output is not
charged for a delivery that the others do not make. Where a peer can list its rows, the rows are compared as well.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
"""Rows of integers, one column an attribute."""

HASH_PRIMES = (7919, 104729, 1299709, 15485863)
HASH_MODULUS = 2147483647
SQUARE_MODULUS = 998244353


class Digest(NamedTuple):
    """An order-free fingerprint of a set of rows; equal sets have equal digests."""

    rows: int
    hash_sum: int
    square_sum: int


def digest(rows: Rows) -> Digest:
    """Fingerprint rows.

    >>> digest(np.array([[1, 2], [3, 4]])) == digest(np.array([[3, 4], [1, 2]]))
    True
    """
    if not len(rows):
        return Digest(0, 0, 0)
    hashed = np.zeros(len(rows), dtype=np.int64)
    for column, prime in zip(rows.T, HASH_PRIMES, strict=False):
        hashed += column.astype(np.int64) * prime
    hashed %= HASH_MODULUS
    return Digest(len(rows), int(hashed.sum()), int(((hashed * hashed) % SQUARE_MODULUS).sum()))


class Change(NamedTuple):
    """Rows inserted into (sign +1) or deleted from (sign -1) a table."""

    table: str
    sign: int
    rows: Rows


class Peer(Protocol):
    """A system that holds tables and one view over them."""

    name: str

    def load(self, tables: dict[str, Rows]) -> float:
        """Fill the empty tables in one batch; seconds until the view is there."""

    def update(self, batch: Sequence[Change]) -> float:
        """Apply a batch as one transaction; seconds until the view reflects it."""

    def digest(self) -> Digest:
        """The fingerprint of the view as it is now; not timed."""

    def rows(self) -> Rows | None:
        """The view as it is now, or None if this peer was told to keep digests only; not timed."""

    def close(self) -> None:
        """Let go of processes and memory."""


PARTS = {
    "recompute": "DuckDB, query alone",
    "since_commit": "Pathway, after commit",
    "matrix_only": "SciPy, matrix alone",
    "with_difference": "SciPy, matrix and difference",
}
"""Attributes in which a peer keeps another reading of its last update, and the names of the lines that show them."""


@dataclass(frozen=True)
class Recursion:
    """A recursive view over link(src, dst, cost): its name, its SQL as Whence reads it, and its columns."""

    name: str
    title: str
    sql: str
    columns: tuple[str, ...]


LINK_TABLE = "CREATE TABLE link (src INTEGER, dst INTEGER, cost INTEGER);"

RECURSIONS = {
    recursion.name: recursion
    for recursion in (
        Recursion(
            "reachable",
            "reachable (linear)",
            """CREATE VIEW reachable AS
                 SELECT src, dst FROM link
                 UNION
                 SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;""",
            ("src", "dst"),
        ),
        Recursion(
            "cheapest",
            "cheapest cost (MIN in recursion)",
            """CREATE VIEW cheapest AS
                 SELECT src, dst, MIN(cost) AS cost FROM (
                   SELECT src, dst, cost FROM link
                   UNION ALL
                   SELECT link.src, cheapest.dst, link.cost + cheapest.cost
                   FROM link JOIN cheapest ON link.dst = cheapest.src
                 ) AS step
                 GROUP BY src, dst;""",
            ("src", "dst", "cost"),
        ),
        Recursion(
            "same_generation",
            "same generation (three atoms)",
            """CREATE VIEW same_generation AS
                 SELECT a.dst AS x, b.dst AS y FROM link AS a JOIN link AS b ON a.src = b.src
                 UNION
                 SELECT a.dst, b.dst FROM link AS a
                   JOIN same_generation AS s ON a.src = s.x JOIN link AS b ON b.src = s.y;""",
            ("x", "y"),
        ),
        Recursion(
            "reachable_nonlinear",
            "reachable (non-linear)",
            """CREATE VIEW reachable_nonlinear AS
                 SELECT src, dst FROM link
                 UNION
                 SELECT a.src, b.dst FROM reachable_nonlinear AS a
                   JOIN reachable_nonlinear AS b ON a.dst = b.src;""",
            ("src", "dst"),
        ),
    )
}


def installed(package: str) -> bool:
    """Is a peer's package there? Peers are optional: a missing one is left out of the table, and said to be."""
    return importlib.util.find_spec(package) is not None


def as_rows(columns: Sequence[Any]) -> Rows:
    """Columns of any integer type as rows."""
    return np.column_stack([np.asarray(column, dtype=np.int64) for column in columns])
