"""Recursion by exchange of what Python computes, with aggregate selection, and of LEAST and GREATEST: random links,
beside an embedded database, undone epochs included."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import whence
from tests.depth import seeds
from tests.oracle import bag

PATHS = """
CREATE TABLE link (src TEXT, dst TEXT, cost INT);
CREATE VIEW path {options} AS
  SELECT src, dst, src || '>' || dst AS via, cost, 1 AS hops FROM link
  UNION
  SELECT link.src, path.dst, link.src || '>' || path.via, link.cost + path.cost, 1 + path.hops
  FROM link JOIN path ON link.dst = path.src;
CREATE VIEW least AS SELECT src, dst, MIN(cost) AS cost FROM path GROUP BY src, dst;
CREATE VIEW fewest AS SELECT src, dst, MIN(hops) AS hops FROM path GROUP BY src, dst;
CREATE VIEW cheap AS
  SELECT path.src, path.via FROM path JOIN least
  ON path.src = least.src AND path.dst = least.dst AND path.cost = least.cost;
CREATE VIEW short AS
  SELECT path.src, path.via FROM path JOIN fewest
  ON path.src = fewest.src AND path.dst = fewest.dst AND path.hops = fewest.hops;
"""
WIDEST = """
CREATE TABLE link (src TEXT, dst TEXT, cost INT);
CREATE VIEW widest {options} AS
  SELECT src, dst, MAX(cost) AS cost FROM (
    SELECT src, dst, cost FROM link
    UNION ALL SELECT widest.src, link.dst, LEAST(widest.cost, link.cost) FROM widest JOIN link ON link.src = widest.dst
  ) AS step GROUP BY src, dst;
CREATE VIEW ends AS SELECT dst, COUNT(*) AS n FROM widest GROUP BY dst;
"""
WAYS = ["policy = 'support'", "policy = 'dred'", "maintain = 'absorption'", "maintain = 'relative'"]


def held(db: whence.Database) -> dict[str, Counter[tuple[object, ...]]]:
    return {name: bag(db[name].rows) for name in db.views}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("sql", "view"), [(PATHS, "path"), (WIDEST, "widest")], ids=["paths", "widest"])
def test_random_links(sql: str, view: str, way: str) -> None:
    for seed in seeds(2):
        rng = random.Random(seed)
        plain, apart = whence.open(), whence.open(partitions=rng.choice([2, 3, 7]), durability="none")
        plain.execute(sql.format(options=""))
        apart.execute(sql.format(options=f"WITH (partition = 'exchange', {way})"))
        assert "recursion exchange" in apart.explain(view)
        links: list[tuple[str, str, int]] = []
        for _ in range(10):
            gone = [link for link in links if rng.random() < 0.2]
            come = [(rng.choice("ABCDE"), rng.choice("ABCDE"), rng.randint(1, 4)) for _ in range(rng.randint(0, 3))]
            come = [link for link in dict.fromkeys(come) if link not in links]
            if rng.random() < 0.5:  # run, looked at, and undone
                before = held(apart)
                told = [db.what_if(delete={"link": gone}, insert={"link": come}) for db in (plain, apart)]
                for name in plain.views:
                    assert bag(told[0][name].inserted) == bag(told[1][name].inserted)
                    assert bag(told[0][name].deleted) == bag(told[1][name].deleted)
                assert held(apart) == before
            for db in (plain, apart):
                with db.transaction():
                    db.delete("link", gone)
                    db.insert("link", come)
            links = [link for link in links if link not in gone] + come
            assert held(apart) == held(plain)
        plain.close()
        apart.close()


@pytest.mark.parametrize("way", WAYS)
def test_null_that_stays_is_an_error(way: str) -> None:
    """A group may have no value at first, and get one from another partition; one that has none in the end is
    refused as in one partition."""
    plain, apart = whence.open(), whence.open(partitions=3, durability="none")
    plain.execute(WIDEST.format(options=""))
    apart.execute(WIDEST.format(options=f"WITH (partition = 'exchange', {way})"))
    rows = [("A", "B", None), ("B", "C", 2), ("A", "D", 5), ("D", "B", 4), ("C", "A", 1)]
    for db in (plain, apart):
        db.insert("link", rows)
    before = held(plain)
    assert held(apart) == before
    for db in (plain, apart):
        with pytest.raises(whence.EvaluationError, match="best value is NULL reached LEAST"):
            db.delete("link", [("D", "B", 4)])
        assert held(db) == before
        db.insert("link", [("E", "A", 3)])
    assert held(apart) == held(plain)
    plain.close()
    apart.close()
