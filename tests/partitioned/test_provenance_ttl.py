"""Maintained provenance in partitions over rows that live for a time."""

from __future__ import annotations

import random

import pytest

from tests.oracle import Update, load
from tests.partitioned.test_provenance import NETWORK, assert_same_views, every_way
from whence.runtime import database

LIVES = """
    CREATE TABLE link (src INT, dst INT, cost INT) WITH (ttl = '10 s');
    CREATE TABLE down (node INT) WITH (ttl = '4 s')
"""


@pytest.mark.parametrize("placed", ["exchange", "broadcast"])
@every_way
def test_rows_that_expire(way: str, placed: str) -> None:
    """As embedded, by `support`, whether rows travel or each partition recurses on its own: rows go when their time is
    over, live longer when they come again, and an absence begins when what was there expires."""
    rng, now = random.Random(f"{way} {placed}"), [0.0]
    views = NETWORK.split(";", 2)[2]
    with (
        database.open(clock=lambda: now[0]) as plain,
        database.open(partitions=3, durability="none", clock=lambda: now[0]) as db,
    ):
        for each, options in ((plain, "policy = 'support'"), (db, f"{way}, partition = '{placed}'")):
            each.execute(f"{LIVES}; {views.format(options)}")
        assert f"recursion {'exchange' if placed == 'exchange' else 'local'}" in db.explain("reachable")
        for step in range(10):
            batch: list[Update] = [
                ("link", (rng.randrange(5), rng.randrange(5), rng.randint(1, 3)), 1) for _ in range(4)
            ]
            batch += [("down", (rng.randrange(5),), 1)] * rng.randrange(2)
            for each in (plain, db):
                load(each, batch)
            now[0] += rng.choice((0, 1, 3))
            assert plain.expire() == db.expire()
            assert_same_views(db, plain, step)
        now[0] += 10
        assert plain.expire() == db.expire() > 0, "the rows of the last batch, at least"
        assert db["reachable"].rows == db["cheapest"].rows == []
