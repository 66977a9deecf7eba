"""TPC-H and Nexmark as views: the data have the specified shape, and every view equals DuckDB's answer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from benchmarks import nexmark, tpch
from benchmarks.maintained import Asked, Change, Row, Seconds, exactly, keep, run, same
from benchmarks.nexmark_data import BIDS, Nexmark
from benchmarks.nexmark_queries import LEFT_OUT
from benchmarks.nexmark_queries import QUERIES as NEXMARK
from benchmarks.tpch_data import SCRIPT, Tpch
from benchmarks.tpch_queries import queries
from tests.depth import some


@pytest.mark.parametrize(("main", "count"), some([(tpch.main, 22), (nexmark.main, 19)], 1))
def test_every_view_equals_duckdb_after_every_refresh(main: object, count: int, tmp_path: Path) -> None:
    assert callable(main)
    assert main(["--quick", "--json", f"{tmp_path}/out.json"]) == 0
    found = json.loads((tmp_path / "out.json").read_text())["queries"]
    assert len(found) == count
    assert not any(query["problem"] for query in found)
    assert all(query["load"] > 0 for query in found)


def test_every_query_of_tpch_has_rows() -> None:
    data, duck = Tpch(0.01), Asked(SCRIPT, {})
    duck.change([Change(name, +1, rows) for name, rows in data.tables.items()])
    empty = [n for n, q in queries(0.01).items() if not any(any(v is not None for v in row) for row in duck.ask(q)[0])]
    duck.close()
    assert not empty


def test_refreshes_of_tpch_bring_new_orders_and_take_the_oldest() -> None:
    data = Tpch(0.001)
    (come, go) = data.refreshes(1)
    assert [(c.table, c.sign) for c in come + go] == [("orders", 1), ("lineitem", 1), ("orders", -1), ("lineitem", -1)]
    keys = set(data.tables["orders"]["o_orderkey"].to_pylist())
    assert not keys & set(come[0].rows["o_orderkey"].to_pylist())
    assert (
        set(go[0].rows["o_orderkey"].to_pylist()) == set(sorted(keys)[:5]) == set(go[1].rows["l_orderkey"].to_pylist())
    )


def test_nexmark_names_all_of_its_queries() -> None:
    assert {*NEXMARK, *LEFT_OUT} == {f"q{number}" for number in range(23)}


def test_nexmark_events_go_on_where_they_ended() -> None:
    data = Nexmark(1)
    first, second = data.events(100), data.events(100)
    assert first["bid"].num_rows == second["bid"].num_rows == 2 * BIDS
    assert np.max(first["bid"]["date_time"].to_numpy()) < np.min(second["person"]["date_time"].to_numpy())
    assert set(first["auction"]["id"].to_pylist()).isdisjoint(second["auction"]["id"].to_pylist())


def test_answer_that_differs_is_told() -> None:
    class Wrong(Asked):
        def ask(self, query: str) -> tuple[list[Row], Seconds]:
            rows, seconds = super().ask(query)
            return rows[1:], seconds

    duck = Wrong("CREATE TABLE t (a INT)", {})
    load = [Change("t", +1, pa.table({"a": [1, 2]}))]
    kept = keep("q", "SELECT a FROM t", "CREATE TABLE t (a INT)", [load], duck)
    duck.close()
    assert kept.problem == "differs from DuckDB after the load"


def test_a_query_that_is_refused_is_told_and_others_go_on() -> None:
    tables = {"t": pa.table({"a": [1, 2]})}
    asked = {"bad": "SELECT a, row_number() OVER () AS n FROM t", "good": "SELECT a FROM t"}
    bad, good = run(asked, "CREATE TABLE t (a INT)", tables, [], {}, Console(quiet=True))
    assert "SqlError" in bad.problem
    assert (good.problem, good.rows) == ("", 2)


def test_ties_are_broken_alike() -> None:
    assert exactly("SELECT a FROM t ORDER BY a LIMIT 1", 1) == "SELECT a FROM t ORDER BY a, 1 LIMIT 1"
    assert exactly("SELECT a FROM t", 1) == "SELECT a FROM t"
    assert not same([(1,)], [(1,), (1,)])
    assert not same([(None,)], [(0.0,)])
