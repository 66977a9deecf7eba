"""Join graphs of the papers' queries, and cliques."""

from __future__ import annotations

from itertools import combinations

from whence.adapt.optimizer import GivenCosts, JoinGraph

PRUNINGS: tuple[tuple[str, ...], ...] = (
    (),
    ("outside",),
    ("aggregate",),
    ("aggregate", "count"),
    ("aggregate", "bound"),
    ("aggregate", "outside"),
    ("aggregate", "count", "bound"),
    ("aggregate", "count", "outside"),
    ("aggregate", "bound", "outside"),
    ("aggregate", "count", "bound", "outside"),
)

# Example 4 and Figure 21, in hundredths. The text has C, O, local(C, O) and both costs of COL; the rest fits them.
Q3S_COSTS = GivenCosts(
    scan={"C": 4, "O": 19, "L": 50},
    local={("C", "O"): 7, ("O", "L"): 20, ("C", ("O", "L")): 7, ("L", ("C", "O")): 21},
)


def q3s() -> JoinGraph:
    rows = {"C": 30_000, "O": 700_000, "L": 3_000_000}
    return JoinGraph(rows, {("C.custkey", "O.custkey"): 1e-5, ("O.orderkey", "L.orderkey"): 1e-6}, joins=["pipe-hash"])


def q5(joins: tuple[str, ...] = ("hash",), aggregate: float | None = None) -> JoinGraph:
    """TPC-H Q5 at scale factor 1, after its filters."""
    rows = {"customer": 150_000, "orders": 227_597, "lineitem": 6_001_215, "supplier": 10_000, "nation": 25}
    edges = {
        ("customer.custkey", "orders.custkey"): 1 / 150_000,
        ("lineitem.orderkey", "orders.orderkey"): 1 / 1_500_000,
        ("lineitem.suppkey", "supplier.suppkey"): 1 / 10_000,
        ("customer.nationkey", "supplier.nationkey"): 1 / 25,
        ("supplier.nationkey", "nation.nationkey"): 1 / 25,
        ("nation.regionkey", "region.regionkey"): 1 / 5,
    }
    indexes = {"supplier": ("suppkey",), "orders": ("orderkey",)} if "nested-loop" in joins else None
    return JoinGraph({**rows, "region": 1}, edges, joins=joins, indexes=indexes, aggregate=aggregate)


def clique(count: int) -> JoinGraph:
    names = [f"r{number}" for number in range(count)]
    rows = {name: 100 * 3**number for number, name in enumerate(names)}
    return JoinGraph(rows, dict.fromkeys(combinations(names, 2), 0.2))
