"""Data like TPC-H's: its tables, keys, domains and distributions, and its refresh streams, made by numpy.

What follows the specification (clause 4.2.3): the number of rows, the sparse keys of orders, customers without orders,
the suppliers of a part, prices, dates and the flags that depend on them, the words in names, types, containers and
comments that queries look for. What does not: the seeds, and the texts of comments and addresses, which are shorter.
RF1 puts in new orders with their lines, RF2 takes out the oldest ones: 1,500 orders each at scale 1.

With `zipf`, foreign keys are skewed: the customer of an order, the part of a line, the nations of customers and
suppliers. The key of rank r has a frequency of 1 / r^zipf; which key has which rank changes with `shift`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.maintained import Change

SCRIPT = """
CREATE TABLE region (r_regionkey INTEGER, r_name TEXT, r_comment TEXT);
CREATE TABLE nation (n_nationkey INTEGER, n_name TEXT, n_regionkey INTEGER, n_comment TEXT);
CREATE TABLE supplier (s_suppkey INTEGER, s_name TEXT, s_address TEXT, s_nationkey INTEGER, s_phone TEXT,
  s_acctbal DECIMAL(15, 2), s_comment TEXT);
CREATE TABLE part (p_partkey INTEGER, p_name TEXT, p_mfgr TEXT, p_brand TEXT, p_type TEXT, p_size INTEGER,
  p_container TEXT, p_retailprice DECIMAL(15, 2), p_comment TEXT);
CREATE TABLE partsupp (ps_partkey INTEGER, ps_suppkey INTEGER, ps_availqty INTEGER, ps_supplycost DECIMAL(15, 2),
  ps_comment TEXT);
CREATE TABLE customer (c_custkey INTEGER, c_name TEXT, c_address TEXT, c_nationkey INTEGER, c_phone TEXT,
  c_acctbal DECIMAL(15, 2), c_mktsegment TEXT, c_comment TEXT);
CREATE TABLE orders (o_orderkey INTEGER, o_custkey INTEGER, o_orderstatus TEXT, o_totalprice DECIMAL(15, 2),
  o_orderdate DATE, o_orderpriority TEXT, o_clerk TEXT, o_shippriority INTEGER, o_comment TEXT);
CREATE TABLE lineitem (l_orderkey INTEGER, l_partkey INTEGER, l_suppkey INTEGER, l_linenumber INTEGER,
  l_quantity DECIMAL(15, 2), l_extendedprice DECIMAL(15, 2), l_discount DECIMAL(15, 2), l_tax DECIMAL(15, 2),
  l_returnflag TEXT, l_linestatus TEXT, l_shipdate DATE, l_commitdate DATE, l_receiptdate DATE, l_shipinstruct TEXT,
  l_shipmode TEXT, l_comment TEXT);
"""

REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
NATIONS = (
    ("ALGERIA", 0), ("ARGENTINA", 1), ("BRAZIL", 1), ("CANADA", 1), ("EGYPT", 4), ("ETHIOPIA", 0), ("FRANCE", 3),
    ("GERMANY", 3), ("INDIA", 2), ("INDONESIA", 2), ("IRAN", 4), ("IRAQ", 4), ("JAPAN", 2), ("JORDAN", 4), ("KENYA", 0),
    ("MOROCCO", 0), ("MOZAMBIQUE", 0), ("PERU", 1), ("CHINA", 2), ("ROMANIA", 3), ("SAUDI ARABIA", 4), ("VIETNAM", 2),
    ("RUSSIA", 3), ("UNITED KINGDOM", 3), ("UNITED STATES", 1),
)  # fmt: skip
COLOURS = """
almond antique aquamarine azure beige bisque black blanched blue blush brown burlywood burnished chartreuse chiffon
chocolate coral cornflower cornsilk cream cyan dark deep dim dodger drab firebrick floral forest frosted gainsboro
ghost goldenrod green grey honeydew hot indian ivory khaki lace lavender lawn lemon light lime linen magenta maroon
medium metallic midnight mint misty moccasin navajo navy olive orange orchid pale papaya peach peru pink plum powder
puff purple red rose rosy royal saddle salmon sandy seashell sienna sky slate smoke snow spring steel tan thistle
tomato turquoise violet wheat white yellow
"""
TYPES = (
    ("STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO"),
    ("ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED"),
    ("TIN", "NICKEL", "BRASS", "STEEL", "COPPER"),
)
CONTAINERS = (
    ("SM", "LG", "MED", "JUMBO", "WRAP"),
    ("CASE", "BOX", "BAG", "JAR", "PKG", "PACK", "CAN", "DRUM"),
)
SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD")
PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
INSTRUCTIONS = ("DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN")
MODES = ("REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB")
WORDS = """
furiously quickly carefully blithely regular special pending express ironic final bold even silent requests deposits
packages accounts theodolites foxes pinto beans instructions dependencies excuses platelets asymptotes
"""
START, END, CURRENT = (np.datetime64(day) for day in ("1992-01-01", "1998-08-02", "1995-06-17"))

Ints = np.ndarray[Any, np.dtype[Any]]


def money(cents: Ints) -> pa.Array:
    """Return cents as DECIMAL(15, 2)."""
    halves = np.empty((len(cents), 2), np.int64)  # of 128 bits, the low one first
    halves[:, 0], halves[:, 1] = cents, cents >> 63
    return pa.Array.from_buffers(pa.decimal128(15, 2), len(cents), [None, pa.py_buffer(halves.tobytes())])


@dataclass
class Tpch:
    """The tables at a scale factor; makes refreshes, and knows which orders are there."""

    scale: float
    seed: int = 0
    zipf: float = 0.0
    shift: float = 0.0  # from ranks to keys, as a part of all keys
    tables: dict[str, pa.Table] = field(init=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        self._suppliers = max(round(10_000 * self.scale), 20)
        self._parts = max(round(200_000 * self.scale), 200)
        self._customers = max(round(150_000 * self.scale), 150)
        self._made = 0  # orders so far
        self.tables = {"region": self._region(), "nation": self._nation(), "supplier": self._supplier()}
        self.tables |= {"part": self._part(), "partsupp": self._partsupp(), "customer": self._customer()}
        self.tables |= self._orders(10 * self._customers)
        self._lines_of = self.tables["lineitem"]["l_orderkey"].to_numpy()
        self._gone = 0  # of the first orders

    def moves(self, times: int, part: float = 0.01) -> list[list[Change]]:
        """Return so many times a part of the customers and of the suppliers, who move to other nations."""
        found = []
        for _ in range(times):
            changes = []
            for name, column in (("customer", "c_nationkey"), ("supplier", "s_nationkey")):
                table = self.tables[name]
                at = np.sort(self._rng.choice(len(table), max(1, round(part * len(table))), replace=False))
                nations = table[column].to_numpy().copy()
                nations[at] = self._keys(0, 24, len(at))
                place = table.schema.get_field_index(column)
                self.tables[name] = table.set_column(place, column, pa.array(nations))
                taken = pa.array(at)
                changes += [Change(name, -1, table.take(taken)), Change(name, +1, self.tables[name].take(taken))]
            found.append(changes)
        return found

    def refreshes(self, pairs: int, part: float = 0.001) -> list[list[Change]]:
        """Return so many times RF1 and RF2: new orders, then the oldest ones, each with their lines."""
        found, many = [], max(round(1_500_000 * part * self.scale), 5)
        for _ in range(pairs):
            new = self._orders(many)
            found.append([Change(table, +1, rows) for table, rows in new.items()])
            orders = self.tables["orders"].slice(self._gone, many)
            keys = orders["o_orderkey"].to_numpy()
            lines = np.flatnonzero((self._lines_of >= keys[0]) & (self._lines_of <= keys[-1]))
            old = {"orders": orders, "lineitem": self.tables["lineitem"].take(pa.array(lines))}
            found.append([Change(table, -1, rows) for table, rows in old.items()])
            self._gone += many
        return found

    # -- values ------------------------------------------------------------------------------------------------------

    def _of(self, options: Sequence[str], rows: int) -> pa.Array:
        return pa.array(options).take(pa.array(self._rng.integers(0, len(options), rows)))

    def _ints(self, low: int, high: int, rows: int) -> Ints:
        return self._rng.integers(low, high + 1, rows)

    def _keys(self, low: int, high: int, rows: int) -> Ints:
        """Return keys of rows of another table, perhaps skewed."""
        if not self.zipf:
            return self._ints(low, high, rows)
        count = high - low + 1
        heights = np.cumsum(np.arange(1, count + 1) ** -self.zipf)
        ranks = np.searchsorted(heights, self._rng.random(rows) * heights[-1])
        keys: Ints = low + (ranks + int(self.shift * count)) % count
        return keys

    def _comments(self, rows: int, inside: str = "", share: float = 0.0) -> pa.Array:
        """Return some words each; in a share of the rows with a text inside."""
        words = np.array(WORDS.split())[self._rng.integers(0, len(WORDS.split()), (rows, 4))]
        hits = self._rng.random(rows) < share
        made = [
            f"{a} {b} {inside} {c} {d}" if hit else f"{a} {b} {c} {d}"
            for (a, b, c, d), hit in zip(words, hits, strict=True)
        ]
        return pa.array(made)

    def _phones(self, nations: Ints) -> pa.Array:
        rest = self._rng.integers((100, 100, 1000), (1000, 1000, 10000), (len(nations), 3))
        return pa.array([f"{n + 10}-{a}-{b}-{c}" for n, (a, b, c) in zip(nations, rest, strict=True)])

    def _addresses(self, rows: int) -> pa.Array:
        return pa.array([f"{n:x}" for n in self._rng.integers(1 << 30, 1 << 40, rows)])

    # -- tables that stay --------------------------------------------------------------------------------------------

    def _region(self) -> pa.Table:
        keys = np.arange(len(REGIONS), dtype=np.int32)
        return pa.table({"r_regionkey": keys, "r_name": REGIONS, "r_comment": self._comments(len(keys))})

    def _nation(self) -> pa.Table:
        names, regions = zip(*NATIONS, strict=True)
        keys = np.arange(len(names), dtype=np.int32)
        columns = {"n_nationkey": keys, "n_name": names, "n_regionkey": np.array(regions, np.int32)}
        return pa.table({**columns, "n_comment": self._comments(len(keys))})

    def _supplier(self) -> pa.Table:
        rows = self._suppliers
        keys, nations = np.arange(1, rows + 1), self._keys(0, 24, rows)
        return pa.table(
            {
                "s_suppkey": keys,
                "s_name": [f"Supplier#{key:09d}" for key in keys],
                "s_address": self._addresses(rows),
                "s_nationkey": nations,
                "s_phone": self._phones(nations),
                "s_acctbal": money(self._ints(-99_999, 999_999, rows)),
                "s_comment": self._comments(rows, "Customer slyly Complaints", 0.01),
            }
        )

    def _part(self) -> pa.Table:
        rows = self._parts
        keys, makers = np.arange(1, rows + 1), self._ints(1, 5, rows)
        brands = 10 * makers + self._ints(1, 5, rows)
        colours = np.array(COLOURS.split())
        names = colours[np.argsort(self._rng.random((rows, len(colours))), axis=1)[:, :5]]
        kinds = [f"{a} {b} {c}" for a in TYPES[0] for b in TYPES[1] for c in TYPES[2]]
        return pa.table(
            {
                "p_partkey": keys,
                "p_name": [" ".join(words) for words in names],
                "p_mfgr": [f"Manufacturer#{maker}" for maker in makers],
                "p_brand": [f"Brand#{brand}" for brand in brands],
                "p_type": self._of(kinds, rows),
                "p_size": self._ints(1, 50, rows),
                "p_container": self._of([f"{a} {b}" for a in CONTAINERS[0] for b in CONTAINERS[1]], rows),
                "p_retailprice": money(self._retail(keys)),
                "p_comment": self._comments(rows),
            }
        )

    def _retail(self, parts: Ints) -> Ints:
        """Return the cents that a part costs."""
        cents: Ints = 90_000 + (parts // 10) % 20_001 + 100 * (parts % 1_000)
        return cents

    def _supplier_of(self, parts: Ints, number: Ints) -> Ints:
        """Return the supplier of a part: one of four."""
        count = self._suppliers
        found: Ints = (parts + number * (count // 4 + (parts - 1) // count)) % count + 1
        return found

    def _partsupp(self) -> pa.Table:
        parts, number = np.repeat(np.arange(1, self._parts + 1), 4), np.tile(np.arange(4), self._parts)
        rows = len(parts)
        return pa.table(
            {
                "ps_partkey": parts,
                "ps_suppkey": self._supplier_of(parts, number),
                "ps_availqty": self._ints(1, 9_999, rows),
                "ps_supplycost": money(self._ints(100, 100_000, rows)),
                "ps_comment": self._comments(rows),
            }
        )

    def _customer(self) -> pa.Table:
        rows = self._customers
        keys, nations = np.arange(1, rows + 1), self._keys(0, 24, rows)
        return pa.table(
            {
                "c_custkey": keys,
                "c_name": [f"Customer#{key:09d}" for key in keys],
                "c_address": self._addresses(rows),
                "c_nationkey": nations,
                "c_phone": self._phones(nations),
                "c_acctbal": money(self._ints(-99_999, 999_999, rows)),
                "c_mktsegment": self._of(SEGMENTS, rows),
                "c_comment": self._comments(rows),
            }
        )

    # -- tables that are refreshed -----------------------------------------------------------------------------------

    def _orders(self, rows: int) -> dict[str, pa.Table]:
        """Return new orders and their lines. Of every 32 keys the first 8 are used; one customer in three has none."""
        numbers = np.arange(self._made, self._made + rows)
        self._made += rows
        keys = numbers // 8 * 32 + numbers % 8 + 1
        customers = self._keys(1, self._customers, rows)
        customers -= customers % 3 == 0
        dates = START + self._ints(0, int((END - START).astype(int)), rows).astype("timedelta64[D]")
        counts = self._ints(1, 7, rows)
        lines, cents, shipped = self._lines(np.repeat(keys, counts), np.repeat(dates, counts), counts)
        first = np.cumsum(counts) - counts
        some = np.add.reduceat(shipped, first)
        orders = {
            "o_orderkey": keys,
            "o_custkey": customers,
            "o_orderstatus": np.where(some == counts, "F", np.where(some == 0, "O", "P")),
            "o_totalprice": money(np.add.reduceat(cents, first)),
            "o_orderdate": dates,
            "o_orderpriority": self._of(PRIORITIES, rows),
            "o_clerk": [f"Clerk#{n:09d}" for n in self._ints(1, max(round(1_000 * self.scale), 1), rows)],
            "o_shippriority": np.zeros(rows, np.int32),
            "o_comment": self._comments(rows, "special silent requests", 0.01),
        }
        return {"orders": pa.table(orders), "lineitem": lines}

    def _lines(self, keys: Ints, ordered: Ints, counts: Ints) -> tuple[pa.Table, Ints, Ints]:
        """Return lines, and for each the cents it adds to its order, and whether it was shipped."""
        rows = len(keys)
        parts, quantity = self._keys(1, self._parts, rows), self._ints(1, 50, rows)
        discount, tax = self._ints(0, 10, rows), self._ints(0, 8, rows)
        price = quantity * self._retail(parts)
        days = [self._ints(low, high, rows).astype("timedelta64[D]") for low, high in ((1, 121), (30, 90), (1, 30))]
        ship, commit = ordered + days[0], ordered + days[1]
        receipt = ship + days[2]
        shipped = (ship <= CURRENT).astype(np.int64)
        returned = np.where(self._rng.random(rows) < 0.5, "R", "A")
        starts = np.repeat(np.cumsum(counts) - counts, counts)
        table = pa.table(
            {
                "l_orderkey": keys,
                "l_partkey": parts,
                "l_suppkey": self._supplier_of(parts, self._ints(0, 3, rows)),
                "l_linenumber": np.arange(rows) - starts + 1,
                "l_quantity": money(100 * quantity),
                "l_extendedprice": money(price),
                "l_discount": money(discount),
                "l_tax": money(tax),
                "l_returnflag": np.where(receipt <= CURRENT, returned, "N"),
                "l_linestatus": np.where(shipped == 1, "F", "O"),
                "l_shipdate": ship,
                "l_commitdate": commit,
                "l_receiptdate": receipt,
                "l_shipinstruct": self._of(INSTRUCTIONS, rows),
                "l_shipmode": self._of(MODES, rows),
                "l_comment": self._comments(rows),
            }
        )
        return table, price * (100 + tax) * (100 - discount) // 10_000, shipped
