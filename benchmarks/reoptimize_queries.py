"""The queries of `reoptimize`: TPC-H's of paper 003 at scale factor 1, cliques, and views that share relations; as join
graphs for us, and as SQL for other planners."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from random import Random

from whence.adapt.optimizer import JoinGraph

ROWS = {
    "customer": 150_000,
    "orders": 1_500_000,
    "lineitem": 6_001_215,
    "supplier": 10_000,
    "nation": 25,
    "region": 5,
    "part": 200_000,
    "partsupp": 800_000,
}
CUSTOMER_ORDERS = ("customer.custkey", "orders.custkey")
ORDERS_LINEITEM = ("orders.orderkey", "lineitem.orderkey")
EDGES = {
    CUSTOMER_ORDERS: 1 / 150_000,
    ORDERS_LINEITEM: 1 / 1_500_000,
    ("lineitem.suppkey", "supplier.suppkey"): 1 / 10_000,
    ("customer.nationkey", "supplier.nationkey"): 1 / 25,
    ("supplier.nationkey", "nation.nationkey"): 1 / 25,
    ("customer.nationkey", "nation.nationkey"): 1 / 25,
    ("nation.regionkey", "region.regionkey"): 1 / 5,
    ("part.partkey", "lineitem.partkey"): 1 / 200_000,
    ("partsupp.partkey", "part.partkey"): 1 / 200_000,
    ("supplier.suppkey", "partsupp.suppkey"): 1 / 10_000,
}
Pair = tuple[str, str]


@dataclass(frozen=True)
class JoinQuery:
    """A query: its relations with their rows after filters, its equalities, and how many groups it ends in."""

    name: str
    rows: Mapping[str, float]
    edges: Mapping[Pair, float]
    groups: float | None = None
    joins: tuple[str, ...] = ("hash",)
    levels: tuple[tuple[str, ...], ...] = field(default=())  # expressions from the lowest join to the topmost

    def graph(self) -> JoinGraph:
        return JoinGraph(self.rows, self.edges, joins=self.joins, aggregate=self.groups)

    def tables(self) -> list[str]:
        """Return statements that make the tables, small ones."""
        made = []
        for name in self.rows:
            columns = sorted({c for pair in self.edges for r, _, c in (x.partition(".") for x in pair) if r == name})
            listed = ", ".join(f"{column} INTEGER" for column in columns or ["id"])
            made.append(f"CREATE TABLE {name} ({listed})")
        return made

    def select(self) -> str:
        equal = " AND ".join(f"{a} = {b}" for a, b in self.edges)
        what = "COUNT(*)" if self.groups else "*"
        return f"SELECT {what} FROM {', '.join(self.rows)}" + (f" WHERE {equal}" if equal else "")


def _tpch(
    name: str, tables: str, edges: list[Pair], groups: float | None = None, levels: str = "", **filtered: float
) -> JoinQuery:
    rows = {table: filtered.get(table, ROWS[table]) for table in tables.split()}
    ways = levels.split()
    return JoinQuery(
        name,
        rows,
        {pair: EDGES[pair] for pair in edges},
        groups,
        levels=tuple(tuple(ways[: count + 1]) for count in range(1, len(ways))),
    )


_PAIRS = list(EDGES)
_Q5_EDGES = [_PAIRS[n] for n in (0, 1, 2, 3, 4, 6)]
_Q8_EDGES = [_PAIRS[n] for n in (0, 1, 7, 8, 9, 6, 4)]
_Q5 = "customer orders lineitem supplier nation region"
_Q8 = "orders lineitem customer part partsupp supplier nation region"
_Q5_LEVELS = "region nation customer orders lineitem supplier"
_Q8_LEVELS = "region nation supplier partsupp part lineitem orders customer"
QUERIES = (
    _tpch("Q5", _Q5, _Q5_EDGES, 5, _Q5_LEVELS, orders=227_597, region=1),
    _tpch("Q5S", _Q5, _Q5_EDGES, None, _Q5_LEVELS, orders=227_597, region=1),
    _tpch(
        "Q10",
        "customer orders lineitem nation",
        [_PAIRS[n] for n in (0, 1, 5)],
        37_967,
        "nation customer orders lineitem",
        orders=57_069,
        lineitem=1_478_870,
    ),
    _tpch("Q8Join", _Q8, _Q8_EDGES, 6_001_215, _Q8_LEVELS),
    _tpch("Q8JoinS", _Q8, _Q8_EDGES, None, _Q8_LEVELS),
)
SMALL = (
    _tpch("Q1", "lineitem", [], 4),
    _tpch("Q3", "customer orders lineitem", _PAIRS[:2], 11_620, customer=30_142, orders=727_305, lineitem=3_241_776),
    _tpch("Q6", "lineitem", [], 1, lineitem=114_160),
)


def named(name: str) -> JoinQuery:
    return next(query for query in (*QUERIES, *SMALL) if query.name == name)


def clique(count: int, seed: int = 3) -> JoinQuery:
    """Return a query of which any two relations are joined, each pair by columns of its own."""
    random = Random(seed)
    names = [f"r{number}" for number in range(count)]
    rows = {name: int(10 ** random.uniform(2, 5)) for name in names}
    edges = {(f"{a}.{a}{b}", f"{b}.{a}{b}"): random.uniform(0.1, 0.6) for a, b in combinations(names, 2)}
    levels = tuple(tuple(names[:size]) for size in range(2, count + 1))
    return JoinQuery(f"clique of {count}", rows, edges, levels=levels)


@dataclass(frozen=True)
class ManyViews:
    """Queries over the same relations, and the statistics that may move."""

    graph: JoinGraph
    statistics: tuple[str | tuple[str, ...], ...]  # relations, and expressions of two


def many_views(views: int, relations: int = 40, seed: int = 1) -> ManyViews:
    """Return queries of 4 to 8 relations each, connected, in one memo."""
    random = Random(seed)
    names = [f"t{number}" for number in range(relations)]
    rows = {name: int(10 ** random.uniform(2, 6)) for name in names}
    pairs = {(names[random.randrange(number)], names[number]) for number in range(1, relations)}
    pairs |= {tuple(sorted(random.sample(names, 2))) for _ in range(relations // 2)}  # type: ignore[misc]  # two
    edges = {pair: 1 / max(rows[pair[0]], rows[pair[1]]) for pair in sorted(pairs)}
    queries = []
    for _ in range(views):
        query = {random.choice(names)}
        for _ in range(random.randint(3, 7)):
            around = {b if a in query else a for a, b in edges if (a in query) != (b in query)}
            query.add(random.choice(sorted(around)))
        queries.append(sorted(query))
    graph = JoinGraph(rows, edges, queries=queries)
    return ManyViews(graph, (*names, *sorted(edges)))
