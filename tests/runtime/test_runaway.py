"""Recursions without end stop soon, at whichever limit they meet first, and leave everything as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import whence
from tests.oracle import on_partitions
from whence.engine.recursion.limits import RecursionLimits
from whence.model.errors import RecursionLimitError
from whence.plan.algebra.program import Program
from whence.plan.recursion.rules import compile_rules
from whence.plan.recursion.settings import DEPTH_LIMIT, FOREIGN_ROW_LIMIT, ROW_LIMIT, VALUE_ROW_LIMIT, settings
from whence.plan.recursion.strata import components
from whence.sql import statements as st
from whence.sql.bind import bind_table, bind_views
from whence.sql.parse import parse

PROGRAMS = {
    "counter": "SELECT a FROM s UNION SELECT a + 1 FROM r",
    "product": "SELECT a FROM s UNION SELECT x.a + y.a FROM r AS x, r AS y",
    "text": "SELECT CAST(a AS TEXT) AS a FROM s UNION SELECT r.a || '.' || CAST(s.a AS TEXT) FROM r, s",
}


@pytest.fixture(params=(None, 3), ids=("embedded", "partitions"))
def runtime(request: pytest.FixtureRequest) -> Iterator[None]:
    with on_partitions(request.param):
        yield


@pytest.mark.parametrize("options", ["policy = 'support'", "policy = 'dred'", "maintain = 'absorption'"])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.usefixtures("runtime")
def test_recursion_without_end_is_stopped_and_undone(program: str, options: str) -> None:
    with whence.open() as db:
        db.execute(f"""CREATE TABLE s (a INT);
            CREATE VIEW r WITH ({options}, recursion_rows = 2000, recursion_limit = 400) AS {PROGRAMS[program]};
            CREATE VIEW n AS SELECT COUNT(*) AS n FROM r""")
        with pytest.raises(RecursionLimitError, match=r"the recursive view r does not end.*the row \(a=\d"):
            db.insert("s", [(1,), (2,)])
        assert (db["s"].rows, db["r"].rows, db["n"].rows) == ([], [], [(0,)])


def test_derivations_are_counted_where_rows_are_few() -> None:
    """A join of recursive rows may look at ever more pairs and find ever fewer new rows."""
    with whence.open() as db:
        db.execute(f"""CREATE TABLE s (a INT);
            CREATE VIEW r WITH (recursion_rows = 3000) AS {PROGRAMS["product"]} WHERE x.a + y.a < 2900""")
        with pytest.raises(RecursionLimitError, match=r"3,000 rows \(60,000 derivations\)"):
            db.insert("s", [(1,)])
        assert db["r"].rows == []


def test_growing_text_is_measured() -> None:
    """A path that is spelled out around a cycle fills memory long before it has many rows or steps."""
    with whence.open() as db:
        db.execute("""CREATE TABLE s (a TEXT);
            CREATE VIEW r WITH (recursion_rows = 100) AS SELECT a FROM s UNION SELECT a || a FROM r""")
        with pytest.raises(RecursionLimitError, match=r"25,600 characters of computed text.*a='round'"):
            db.insert("s", [("round",)])
        assert db["r"].rows == []


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT a, b FROM t UNION SELECT r.a, t.b FROM r JOIN t ON r.b = t.a", ROW_LIMIT),
        ("SELECT a, a + b AS b FROM t UNION SELECT r.a, t.b FROM r JOIN t ON r.b = t.a", ROW_LIMIT),
        ("SELECT a, b FROM t UNION SELECT r.a, LEAST(r.b, t.b) FROM r JOIN t ON r.b = t.a", ROW_LIMIT),
        ("SELECT a, MIN(b) AS b FROM (SELECT a, b FROM t UNION SELECT t.a, r.b + 1 FROM r JOIN t ON r.a = t.b) AS q"
         " GROUP BY a", ROW_LIMIT),
        ("SELECT a, b FROM t UNION SELECT r.a, r.b + 1 FROM r", VALUE_ROW_LIMIT),
        ("SELECT a, b FROM t UNION SELECT a, b FROM r WHERE CAST(b AS TEXT) LIKE '1%'", VALUE_ROW_LIMIT),
        ("SELECT a, b FROM t UNION SELECT a, length(repeat('x', CAST(b AS INT))) FROM r", FOREIGN_ROW_LIMIT),
    ],
)  # fmt: skip
def test_limit_follows_whether_rules_make_values(query: str, rows: int) -> None:
    """Rules that only move values around end by themselves, so they may derive many more rows."""
    table, view = parse(f"CREATE TABLE t (a BIGINT, b BIGINT); CREATE VIEW r AS {query}")
    assert isinstance(table, st.CreateTable)
    assert isinstance(view, st.CreateView)
    program = bind_views([view], bind_table(table, Program()))
    (component,) = components(program)
    assert settings(component.views, program, compile_rules(component.views, program)).row_limit == rows


def test_rounds_are_fewer_than_steps_only_where_nobody_chose() -> None:
    assert RecursionLimits(DEPTH_LIMIT, 10, endless=True).rounds(50) == 50
    assert RecursionLimits(DEPTH_LIMIT, 10, endless=False).rounds(50) == DEPTH_LIMIT
    assert RecursionLimits(200, 10, endless=True).rounds(50) == 200
