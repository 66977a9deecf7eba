"""Random programs and rows with a time-to-live, on random numbers of partitions, against DuckDB and embedded."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import examples
from tests.oracle import POLICIES, Twin, assert_rows, on_partitions
from tests.property.test_random_programs import Case, cases, profile
from tests.property.test_ttl_random import Play, step

PARTITIONS = st.sampled_from((1, 2, 3, 5))


def follow(case: Case, partitions: int) -> None:
    """Each batch after a failed attempt, then the whole program made anew over the rows."""
    with on_partitions(partitions):
        twin = Twin(case.sql, case.policy)
        for batch in case.batches:
            twin.abort(batch)
            twin.apply(batch)
        late = twin.bare()
        late.execute(";\n".join(s for s in case.sql.split(";\n") if s.startswith("CREATE TABLE")))
        for name, rows in twin.tables.items():
            late.insert(name, rows)
        late.execute(";\n".join(v.create(case.policy) for v in twin.views))
        for view in twin.views:
            assert_rows(late[view.name].rows, twin.db[view.name].rows, f"view {view.name}, back-filled")
        late.close()
        twin.close()


@profile(12)
@given(cases(recursive=False), PARTITIONS)
def test_random_queries(case: Case, partitions: int) -> None:
    follow(case, partitions)


@profile(15)
@given(cases(recursive=True), PARTITIONS)
def test_random_recursive_programs(case: Case, partitions: int) -> None:
    follow(case, partitions)


@profile(8)
@given(cases(recursive=True), PARTITIONS)
def test_random_programs_by_exchange(case: Case, partitions: int) -> None:
    """Recursion is exchanged wherever it can be, or kept in one partition."""
    way = "one" if partitions == 1 else "exchange"
    follow(Case(_asked(case.sql, way), case.policy, case.batches), max(partitions, 2))


def _asked(sql: str, way: str) -> str:
    """Every view with its partitioning asked for."""
    return ";\n".join(
        s.replace(") AS ", f") WITH (partition = '{way}') AS ", 1) if s.startswith("CREATE VIEW") else s
        for s in sql.split(";\n")
    )


@settings(max_examples=examples(8), deadline=None)
@given(steps=st.lists(step, max_size=12), policy=st.sampled_from(POLICIES), partitions=PARTITIONS)
def test_rows_live_as_long_as_they_should(steps: list[tuple[str, Any]], policy: str, partitions: int) -> None:
    with on_partitions(partitions):
        play = Play(policy)
        try:
            for what, value in steps:
                play.move(what, value)
                if what != "clock":
                    play.check()
            play.check()
        finally:
            play.close()
