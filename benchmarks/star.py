"""Data of the join benchmark: customers in regions, orders of customers, items of orders, and batches of mixed updates.

Keys are integers and so are prices (cents), so that sums are exact and answers comparable. A batch has insertions,
deletions and updates (a deletion and an insertion of the same key) in all three tables, most of them in `item`. Rows
deleted are rows that are there; a batch never touches a key twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from benchmarks.peers.common import Change, Rows

COLUMNS = {
    "customer": ("id", "region"),
    "orders": ("id", "customer"),
    "item": ("id", "order_id", "quantity", "price"),
}
"""Tables and their columns, in the order in which rows are made; `id` identifies a row."""

VIEW = "revenue"
SCRIPT = """
CREATE TABLE customer (id INTEGER, region INTEGER);
CREATE TABLE orders (id INTEGER, customer INTEGER);
CREATE TABLE item (id INTEGER, order_id INTEGER, quantity INTEGER, price INTEGER);
"""
QUERY = """
SELECT customer.region, COUNT(*) AS items, SUM(item.quantity * item.price) AS revenue
FROM item JOIN orders ON item.order_id = orders.id JOIN customer ON orders.customer = customer.id
GROUP BY customer.region
"""
REGIONS = 50
SHARES = (("item", 0.90), ("orders", 0.09), ("customer", 0.01))


@dataclass
class Star:
    """The tables as they are now; makes batches and applies them to itself."""

    items: int
    seed: int = 0
    tables: dict[str, Rows] = field(init=False)
    _next_id: dict[str, int] = field(init=False)
    _rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        sizes = {"customer": max(self.items // 100, 10), "orders": max(self.items // 10, 20), "item": self.items}
        self._next_id = dict.fromkeys(sizes, 0)
        self.tables = {}
        for table, size in sizes.items():
            self.tables[table] = self._made(table, size)

    def batch(self, size: int) -> list[Change]:
        """About `size` updates: two fifths insertions, two fifths deletions, one fifth changes of existing rows."""
        changes = []
        for table, share in SHARES:
            rows = self.tables[table]
            many = max(round(size * share), 3)
            inserted, changed = many * 2 // 5, many // 5
            deleted = many - inserted - changed
            chosen = self._rng.choice(len(rows), size=deleted + changed, replace=False)
            old = rows[chosen]
            new = self._made(table, changed)
            new[:, 0] = old[deleted:, 0]
            fresh = np.concatenate([self._made(table, inserted), new])
            self.tables[table] = np.concatenate([np.delete(rows, chosen, axis=0), fresh])
            changes += [Change(table, -1, old), Change(table, +1, fresh)]
        return changes

    def _made(self, table: str, size: int) -> Rows:
        ids = np.arange(self._next_id[table], self._next_id[table] + size)
        self._next_id[table] += size
        if table == "customer":
            columns = [ids, self._rng.integers(0, REGIONS, size)]
        elif table == "orders":
            columns = [ids, self._rng.integers(0, len(self.tables["customer"]), size)]
        else:
            orders = self._rng.integers(0, len(self.tables["orders"]), size)
            columns = [ids, orders, self._rng.integers(1, 10, size), self._rng.integers(100, 10_000, size)]
        return np.column_stack(columns).astype(np.int64)
