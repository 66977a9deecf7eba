"""Queries of paper 003 over TPC-H's tables: exact under the optimizers' plans, and measured beside connectedness."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

import whence
from benchmarks import reoptimize_execution, tpch_plans
from benchmarks.maintained import Asked, Change, change_tables, same
from benchmarks.reoptimize_queries import named
from benchmarks.tpch_data import SCRIPT, Tpch
from benchmarks.tpch_plans import KEYS, Compared
from benchmarks.tpch_queries import paper_queries
from whence.engine.core.operator import upwards
from whence.engine.relational.join import Join
from whence.plan.optimizer.plans import Tree

SCALE = 0.001
PREFIXES = {"c": "customer", "o": "orders", "l": "lineitem", "s": "supplier", "n": "nation", "r": "region", "p": "part"}
NAMES = ["Q1", "Q3", "Q6", "Q10", "Q5", "Q5S", "Q8Join", "Q8JoinS"]


def scans(tree: Tree) -> Iterator[str]:
    """Yield the relations of a plan, from left to right."""
    for each in tree[1:]:
        if isinstance(each, tuple):
            yield from scans(each)
        else:
            yield each


def relation_of(join: Join, input: int) -> str:
    prefix = join.inputs[input].schema.names[0].partition("_")[0]
    return "partsupp" if prefix == "ps" else PREFIXES[prefix]


@pytest.mark.parametrize("name", NAMES)
def test_query_has_the_rows_of_duckdb_under_the_plans_of_all_optimizers(name: str) -> None:
    """Each delta meets the others in the order in which the best left-deep plan has them."""
    query, data, duck = paper_queries(SCALE)[name], Tpch(SCALE, seed=3, zipf=0.5), Asked(SCRIPT, KEYS)
    load = [Change(table, +1, rows) for table, rows in data.tables.items()]
    graph = named(name).graph()
    plans = [graph.optimizer(kind, shape="left") for kind in ("bottom_up", "top_down", "declarative")]
    assert len({plan.cost for plan in plans}) == 1
    with whence.open() as db:
        db.execute(f"{SCRIPT}; CREATE VIEW answer AS {query}")
        change_tables(db, load)
        duck.change(load)
        joins = [op for op in upwards([db._coordinator.catalog.backend.operator("answer")]) if isinstance(op, Join)]
        assert len(joins) == (len(named(name).rows) > 1)
        for changes, plan in zip([*data.refreshes(1), *data.moves(1)], plans, strict=True):
            order = list(scans(plan.tree))
            for join in joins:
                place = {relation_of(join, i): i for i in range(len(join.inputs))}
                assert place.keys() == set(order)
                join.reorder([[place[r] for r in order if place[r] != first] for first in range(len(place))])
            change_tables(db, changes)
            duck.change(changes)
            assert same(db["answer"].rows, duck.ask(duck.exactly(query))[0])
        assert len(db["answer"]) > 0
    duck.close()


def test_plans_are_compared_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tpch_plans, "SHUFFLED", 1)
    found = tpch_plans.measure(SCALE, 2, 0, ["q3", "Q5"], Console(quiet=True))
    assert [(each.query.partition(" ")[0], each.zipf, each.refreshes) for each in found] == [
        ("q3", 0.0, "RF1, RF2"), ("Q5", 0.5, "RF1, RF2"), ("Q5", 0.5, "1 %"), ("Q5", 0.5, "RF1, RF2")
    ]  # fmt: skip
    assert all(len(each.data) == len(each.connected) > 0 for each in found)
    assert len(tpch_plans.promises(found)) == 4


def test_interval_holds_the_ratio() -> None:
    times = np.random.default_rng(1).uniform(1, 2, 40)
    each = Compared("q", "RF1, RF2", 0.0, times.tolist(), (2 * times).tolist())
    assert each.ratio == each.summed == pytest.approx(2)
    assert replace(each, connected=times[::-1].tolist()).interval()[0] < 1 < replace(each).interval()[1]


def test_skewed_keys_have_their_frequencies() -> None:
    """Of ranks 1 and 100 under Zipf 0.5 one is ten times as frequent; `shift` says which key has rank 1."""
    data = Tpch(0.02, zipf=0.5)
    counts = np.bincount(data._keys(1, 1000, 400_000), minlength=1001)[1:]
    assert counts[0] / counts[90:110].mean() == pytest.approx(10, rel=0.15)
    data.shift = 0.5
    assert int(np.bincount(data._keys(1, 1000, 400_000)).argmax()) == 501


def test_customers_and_suppliers_move_to_other_nations() -> None:
    data = Tpch(SCALE)
    before = {name: data.tables[name] for name in ("customer", "supplier")}
    (changes,) = data.moves(1, part=0.1)
    assert [(c.table, c.sign) for c in changes] == [
        ("customer", -1), ("customer", 1), ("supplier", -1), ("supplier", 1)
    ]  # fmt: skip
    assert changes[0].rows.num_rows == changes[1].rows.num_rows == 15
    assert changes[0].rows["c_custkey"] == changes[1].rows["c_custkey"]
    assert data.tables["customer"].num_rows == before["customer"].num_rows
    assert data.tables["customer"]["c_nationkey"] != before["customer"]["c_nationkey"]


def test_plans_follow_what_was_observed_over_partitions() -> None:
    """Figure 25, of three partitions: costs agree and rows are DuckDB's, or `run` fails."""
    found = reoptimize_execution.run(3, 0.003, rounds=1)
    assert [part.number for part in found] == [1, 2]
    for part in found:
        assert part.incremental.keys() == part.scratch.keys() == {"declarative", "bottom-up", "top-down"}
        assert 0 < part.alternatives["top-down"] < part.alternatives["bottom-up"]
