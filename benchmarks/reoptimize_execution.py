"""Figure 25 of paper 003: Q5 kept over ten partitions of data, and its plan kept by what was observed in each.

The partitions have customers, suppliers, orders and lines of their own. The first is uniform, and the query is
optimized for it; the others are skewed (Zipf 0.5), each with other frequent keys. After each partition the optimizers
are given the rows of the relations and of the joins of the running plan, of all data so far. What each takes stands
beside ours from scratch, and beside PostgreSQL's and DuckDB's planners on the same data. Times are the processor's,
PostgreSQL's what it says itself. The view has DuckDB's rows throughout.
"""

from __future__ import annotations

import io
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

import whence
from benchmarks.maintained import Asked, Change, change_tables, same, timed
from benchmarks.reoptimize_planners import DUCKDB, POSTGRES
from benchmarks.reoptimize_queries import EDGES, named
from benchmarks.tpch_data import SCRIPT, Tpch
from benchmarks.tpch_queries import PAPER
from whence.adapt.optimizer import JoinGraph, PlanOptimizer
from whence.plan.optimizer.cost import Names
from whence.plan.optimizer.plans import Tree

TABLES = ("customer", "orders", "lineitem", "supplier", "nation", "region")
_OFFSETS = {
    "customer": {"c_custkey": 1_000_000},
    "supplier": {"s_suppkey": 1_000_000},
    "orders": {"o_orderkey": 10_000_000, "o_custkey": 1_000_000},
    "lineitem": {"l_orderkey": 10_000_000, "l_suppkey": 1_000_000},
}
_PREFIX = {"customer": "c_", "orders": "o_", "lineitem": "l_", "supplier": "s_", "nation": "n_", "region": "r_"}
_FILTERS = {
    "orders": "o_orderdate >= DATE '1993-01-01' AND o_orderdate < DATE '1994-01-01'",
    "region": "r_name = 'AMERICA'",
}
INCREMENTAL: dict[str, dict[str, Any]] = {
    "declarative": {"kind": "declarative"},
    "bottom-up": {"kind": "bottom_up"},
    "top-down": {"kind": "top_down"},
}


@dataclass
class Partition:
    """What the optimizers took after a partition, in milliseconds, and which parts they computed again."""

    number: int
    incremental: dict[str, float] = field(default_factory=dict)
    scratch: dict[str, float] = field(default_factory=dict)
    entries: dict[str, float] = field(default_factory=dict)
    alternatives: dict[str, float] = field(default_factory=dict)
    planners: dict[str, float] = field(default_factory=dict)
    refresh: float = 0.0  # of the view
    changed: bool = False  # the best plan is another one


def partitions(count: int, scale: float, zipf: float, seed: int = 0) -> Iterator[list[Change]]:
    """Yield what each partition inserts."""
    for number in range(count):
        data = Tpch(scale / count, seed + number, zipf if number else 0.0, number / count)
        found = []
        for name in TABLES:
            if name in _OFFSETS or not number:
                table = data.tables[name]
                for column, step in _OFFSETS.get(name, {}).items():
                    place = table.schema.get_field_index(column)
                    moved = pc.add(table[column], pa.scalar(number * step, pa.int64()))
                    table = table.set_column(place, column, moved)
                found.append(Change(name, +1, table))
        yield found


def expressions_of(tree: Tree) -> list[tuple[str, ...]]:
    """Return the relations of each join of a plan, from the lowest up.

    >>> expressions_of(("hash", ("local scan", "a"), ("hash", ("local scan", "b"), ("local scan", "c"))))
    [('b', 'c'), ('a', 'b', 'c')]
    """
    found: list[tuple[str, ...]] = []

    def relations(node: Tree) -> tuple[str, ...]:
        inputs = [each for each in node[1:] if isinstance(each, tuple)]
        if not inputs:
            return tuple(str(each) for each in node[1:])
        names = tuple(sorted(name for each in inputs for name in relations(each)))
        if len(inputs) > 1:
            found.append(names)
        return names

    relations(tree)
    return found


def count_rows(peer: duckdb.DuckDBPyConnection, names: Sequence[str]) -> int:
    """Return how many rows a join of some relations of Q5 has, with the query's conditions."""
    terms = [_FILTERS[name] for name in names if name in _FILTERS]
    for pair in EDGES:
        ends = [end.partition(".") for end in pair]
        if all(relation in names for relation, _, _ in ends):
            terms.append(" = ".join(f"{_PREFIX[relation]}{column}" for relation, _, column in ends))
    where = f" WHERE {' AND '.join(terms)}" if terms else ""
    row = peer.execute(f"SELECT COUNT(*) FROM {', '.join(names)}{where}").fetchone()
    return int(row[0]) if row is not None else 0


class Observed:
    """The statistics of Q5 over all data so far: rows of its relations, and of the joins of a plan."""

    def __init__(self, peer: duckdb.DuckDBPyConnection, tree: Tree | None = None) -> None:
        self.rows: dict[Names, float] = {name: float(max(1, count_rows(peer, [name]))) for name in TABLES}
        wanted = expressions_of(tree) if tree is not None else []
        self.joins: dict[Names, float] = {names: float(max(1, count_rows(peer, names))) for names in wanted}

    def tell(self, plan: PlanOptimizer) -> tuple[int, int]:
        """Let an optimizer know; return the entries and alternatives that it computed again."""
        plan.change(rows=self.rows)
        first = plan.recomputed
        plan.change(rows=self.joins)
        return first[0] + plan.recomputed[0], first[1] + plan.recomputed[1]

    def graph(self, edges: dict[tuple[str, str], float]) -> JoinGraph:
        return JoinGraph({str(name): rows for name, rows in self.rows.items()}, edges, aggregate=5)


def edges_of(peer: duckdb.DuckDBPyConnection, rows: dict[Names, float]) -> dict[tuple[str, str], float]:
    """Return the selectivities of the query's equalities, one by one, in the data so far."""
    found = {}
    for pair in named("Q5").edges:
        names = [end.partition(".")[0] for end in pair]
        pairs = rows[names[0]] * rows[names[1]]
        found[pair] = max(1, count_rows(peer, names)) / pairs
    return found


def run(count: int, scale: float, connection: Any | None = None, rounds: int = 5, zipf: float = 0.5) -> list[Partition]:
    """Keep Q5 and its plans over so many partitions; `connection` is one to PostgreSQL. ValueError if rows or costs
    differ."""
    query, duck = PAPER["Q5"], Asked(SCRIPT, {})
    found: list[Partition] = []
    if connection is not None:
        connection.execute("DROP SCHEMA IF EXISTS s CASCADE; CREATE SCHEMA s; SET search_path = s")
        connection.execute(SCRIPT)
    with whence.open() as db:
        db.execute(f"{SCRIPT}; CREATE VIEW answer AS {query}")
        plans: dict[str, PlanOptimizer] = {}
        edges: dict[tuple[str, str], float] = {}
        for number, changes in enumerate(partitions(count, scale, zipf)):
            duck.change(changes)
            part = Partition(number, refresh=1e3 * timed(lambda: change_tables(db, changes))[1])  # noqa: B023  # now
            if not same(db["answer"].rows, duck.ask(query)[0]):
                raise ValueError(f"Q5 differs from DuckDB after partition {number}")
            if not number:
                observed = Observed(duck.connection)
                edges = edges_of(duck.connection, observed.rows)
                plans = {name: make(observed.graph(edges), **options) for name, options in INCREMENTAL.items()}
            else:
                _optimize(part, Observed(duck.connection, plans["bottom-up"].tree), plans, edges, rounds)
                _plan(part, query, duck, connection, changes, rounds)
                found.append(part)
            if connection is not None and not number:
                _load(connection, changes)
    duck.close()
    return found


def make(graph: JoinGraph, kind: str, **options: Any) -> PlanOptimizer:
    return graph.optimizer(kind, **options)  # type: ignore[arg-type]  # by its name


def _optimize(
    part: Partition,
    observed: Observed,
    plans: dict[str, PlanOptimizer],
    edges: dict[tuple[str, str], float],
    rounds: int,
) -> None:
    """Let all optimizers know what was observed; then, as often as asked for, optimize from scratch."""
    entries, alternatives = observed.graph(edges).optimizer("bottom_up").recomputed
    before, costs = plans["bottom-up"].tree, set()
    for name, plan in plans.items():
        began = time.process_time()
        recomputed = observed.tell(plan)
        part.incremental[name] = 1e3 * (time.process_time() - began)
        part.entries[name], part.alternatives[name] = recomputed[0] / entries, recomputed[1] / alternatives
        costs.add(plan.cost)
    part.changed = plans["bottom-up"].tree != before
    if len(costs) > 1:
        raise ValueError(f"the optimizers have other costs after partition {part.number}: {costs}")
    for name, options in INCREMENTAL.items():
        times = []
        for _ in range(rounds):
            began = time.process_time()
            plan = make(observed.graph(edges), **options)
            plan.change(rows=observed.joins)
            times.append(1e3 * (time.process_time() - began))
        part.scratch[name] = statistics.median(times)


def _load(connection: Any, changes: Sequence[Change]) -> None:
    for change in changes:
        text = io.BytesIO()
        pyarrow.csv.write_csv(change.rows, text, pyarrow.csv.WriteOptions(include_header=False))
        with connection.cursor().copy(f"COPY {change.table} FROM STDIN (FORMAT csv)") as copy:
            copy.write(text.getvalue())
        connection.execute(f"ANALYZE {change.table}")


def _plan(
    part: Partition, query: str, duck: Asked, connection: Any | None, changes: Sequence[Change], rounds: int
) -> None:
    """Measure the planners of others, on the same data."""
    times = [timed(lambda: duck.connection.execute(f"EXPLAIN {query}").fetchall())[0] for _ in range(rounds)]
    part.planners[DUCKDB] = 1e3 * statistics.median(times)
    if connection is not None:
        _load(connection, changes)
        found = []
        for _ in range(rounds):
            lines = connection.execute(f"EXPLAIN (SUMMARY ON) {query}").fetchall()
            found += [float(text.split()[2]) for (text,) in lines if text.startswith("Planning Time")]
        part.planners[POSTGRES] = statistics.median(found)
