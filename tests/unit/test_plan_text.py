"""Plans written back as SQL: binding the text again gives the same rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import whence
from whence.model.errors import WhenceError
from whence.plan.rewrite import optimize
from whence.sql.bind import bind_query
from whence.sql.parse import parse
from whence.sql.plan_text import UnwritablePlanError, plan_text

_QUERIES = [
    line.strip().removesuffix(";")
    for line in (Path(__file__).parent / "queries.sql").read_text().splitlines()
    if line.strip() and not line.startswith("--")
]


@pytest.fixture(scope="module")
def db() -> whence.Database:
    db = whence.open()
    db.execute(
        """create table t (a int, b bigint, d date, s text, x decimal(10, 2), f double);
        create table u (a int, c int, s text, ts timestamp);
        create table w (c int not null, e int not null);
        insert into t values (1, 2, '2020-01-11', 'a', 1.25, 0.5), (2, 2, NULL, 'ab', NULL, 1.5),
          (NULL, 4, '2020-02-11', 'C', 4.00, NULL), (2, 5, '2020-01-11', NULL, 2.5, 2.5);
        insert into u values (1, 3, 'a', '2020-01-11 10:00:00'), (2, NULL, 'x', NULL),
          (2, 3, 'b', '2020-03-11 10:00:00');
        insert into w values (1, 2), (2, 2), (3, 1), (2, 2)"""
    )
    return db


@pytest.mark.parametrize("query", _QUERIES)
def test_text_of_plan_gives_rows_of_plan(db: whence.Database, query: str) -> None:
    [statement] = parse(query)
    program = db._now.program
    try:
        plan = bind_query(statement.query, program)
        text = plan_text(optimize(plan))
    except UnwritablePlanError:
        pytest.skip("has no text")
    try:
        expected = db.query(query).rows
    except WhenceError:
        with pytest.raises(WhenceError):
            db.query(text)
        return
    assert Counter(map(str, db.query(text).rows)) == Counter(map(str, expected)), text
