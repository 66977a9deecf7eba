"""How recursion ends: cut-off regions are withdrawn at once, nothing keeps itself alive, what has no end is stopped."""

from __future__ import annotations

import re

import pytest

import whence
from tests.oracle import Row, Twin, assert_rows, every_policy, load, stream, with_policy

CHEAPEST = """
    CREATE TABLE link (src INT, dst INT, cost INT);
    CREATE VIEW cheapest AS
      SELECT src, dst, MIN(cost) AS cost FROM (
        SELECT src, dst, cost FROM link
        UNION
        SELECT link.src, c.dst, link.cost + c.cost FROM link JOIN cheapest AS c ON link.dst = c.src) AS routes
      GROUP BY src, dst
"""
HOPS_FROM_ZERO = """
    CREATE TABLE link (src INT, dst INT);
    CREATE VIEW hops AS
      SELECT node, MIN(n) AS n FROM (
        SELECT 0 AS node, 0 AS n
        UNION
        SELECT link.dst, hops.n + 1 FROM link JOIN hops ON link.src = hops.node) AS h
      GROUP BY node
"""


@every_policy
def test_a_region_that_is_cut_off_is_withdrawn_and_does_not_count_up(policy: str) -> None:
    """A ring of 50 hangs on one link. Counting up, each lap would lengthen the hops of its nodes, without end."""
    db = whence.open()
    db.execute(with_policy(HOPS_FROM_ZERO, policy))
    ring = [(i, i % 50 + 1) for i in range(1, 51)]
    db.insert("link", [(0, 1), *ring, *((b, a) for a, b in ring)])
    assert len(db["hops"]) == 51
    changes = db.changes("hops")
    assert db.delete("link", [(0, 1)]) == 1
    assert_rows(db["hops"], [(0, 0)])
    gone = list(changes)
    assert len(gone) == 50
    assert {c.sign for c in gone} == {-1}
    db.insert("link", [(0, 25)])
    assert_rows(db["hops"], [(0, 0), *((i, 1 + min((i - 25) % 50, (25 - i) % 50)) for i in range(1, 51))])


@every_policy
def test_the_work_of_a_cut_follows_the_region(policy: str) -> None:
    """Costs are far apart: counting up by 1 towards the costly detour would take a million rounds."""
    db = whence.open(recursion_limit=1000)
    db.execute(with_policy(CHEAPEST, policy))
    db.insert("link", [(1, 2, 1), (2, 1, 1), (2, 9, 1), (1, 9, 1_000_000)])
    assert (1, 9, 2) in db["cheapest"]
    db.delete("link", [(2, 9, 1)])
    assert (1, 9, 1_000_000) in db["cheapest"]
    assert (2, 9, 1_000_001) in db["cheapest"]
    db.delete("link", [(1, 9, 1_000_000)])
    assert_rows(db["cheapest"], [(1, 2, 1), (2, 1, 1), (1, 1, 2), (2, 2, 2)])


@every_policy
def test_cycles_of_cost_zero_do_not_keep_each_other_alive(policy: str) -> None:
    twin = Twin(CHEAPEST, policy)
    twin.insert("link", (1, 2, 0), (2, 3, 0), (3, 1, 0), (3, 4, 0), (4, 5, 0), (5, 3, 0), (4, 9, 7))
    assert (1, 9, 7) in twin.db["cheapest"]
    twin.delete("link", (4, 9, 7))
    assert not [row for row in twin.db["cheapest"] if row[1] == 9]
    twin.delete("link", (3, 4, 0))
    assert_rows(
        twin.db["cheapest"],
        [(a, b, 0) for a in (1, 2, 3, 4, 5) for b in (1, 2, 3)] + [(4, 5, 0)],
    )
    twin.delete("link", (1, 2, 0), (5, 3, 0))
    assert_rows(twin.db["cheapest"], [(2, 3, 0), (3, 1, 0), (2, 1, 0), (4, 5, 0)])


@every_policy
def test_set_cycles_do_not_keep_each_other_alive(policy: str) -> None:
    twin = Twin(
        """CREATE TABLE link (src INT, dst INT);
           CREATE VIEW tc(a, b) AS SELECT src, dst FROM link UNION SELECT x.a, y.b FROM tc x JOIN tc y ON x.b = y.a""",
        policy,
    )
    two_rings = [(1, 2), (2, 1), (3, 4), (4, 3)]
    twin.insert("link", *two_rings, (2, 3))
    assert len(twin.db["tc"]) == 12
    twin.delete("link", (2, 3))
    assert_rows(twin.db["tc"], [(a, b) for s in ((1, 2), (3, 4)) for a in s for b in s])


# -- what is refused ---------------------------------------------------------------------------------------------------

REFUSED = {
    "negation of itself": (
        "CREATE VIEW win(x) AS SELECT src FROM link WHERE NOT EXISTS (SELECT 1 FROM win WHERE win.x = link.dst)",
        ["win"],
    ),
    "negation through another view": (
        """CREATE VIEW good(x) AS SELECT src FROM link EXCEPT SELECT x FROM bad;
           CREATE VIEW bad(x) AS SELECT l.dst FROM link AS l JOIN good AS g ON g.x = l.src""",
        ["good", "bad"],
    ),
    "NOT IN itself": (
        "CREATE VIEW lonely(x) AS SELECT src FROM link WHERE dst NOT IN (SELECT x FROM lonely)",
        ["lonely"],
    ),
    "COUNT of itself": (
        """CREATE VIEW popular(x) AS
             SELECT dst FROM link
             UNION SELECT x FROM (SELECT x, COUNT(*) AS n FROM popular GROUP BY x) AS c WHERE n > 1""",
        ["popular"],
    ),
    "SUM through two views": (
        """CREATE VIEW share(x, n) AS
             SELECT src, 1 FROM link UNION SELECT l.dst, t.n FROM link l JOIN total t ON t.x = l.src;
           CREATE VIEW total(x, n) AS SELECT x, SUM(n) FROM share GROUP BY x""",
        ["share", "total"],
    ),
    "LEFT JOIN with itself": (
        """CREATE VIEW pad(x, y) AS
             SELECT src, dst FROM link UNION SELECT l.src, p.x FROM link AS l LEFT JOIN pad AS p ON p.x = l.dst""",
        ["pad"],
    ),
    "LIMIT of itself": (
        "CREATE VIEW few(x) AS SELECT src FROM link UNION (SELECT x + 1 FROM few ORDER BY x LIMIT 1)",
        ["few"],
    ),
    "MIN used where better undoes worse": (
        """CREATE VIEW low AS
             SELECT x, MIN(v) AS v FROM (
               SELECT src AS x, dst AS v FROM link
               UNION SELECT link.src, 0 - low.v FROM link JOIN low ON low.x = link.dst) AS a GROUP BY x""",
        ["low"],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_stratifiable_is_refused_with_the_cycle_named(case: str) -> None:
    program, cycle = REFUSED[case]
    db = whence.open()
    db.execute("CREATE TABLE link (src INT, dst INT)")
    with pytest.raises(whence.NotStratifiable) as refused:
        db.execute(program)
    ring = [*cycle, cycle[0]]
    rotations = {" -> ".join([*cycle[i:], *cycle[:i], cycle[i]]) for i in range(len(cycle))}
    assert any(r in str(refused.value) for r in rotations), f"{ring} is not named in: {refused.value}"
    assert db.views == []
    db.execute("CREATE VIEW fine AS SELECT src FROM link")
    db.insert("link", [(1, 2)])
    assert_rows(db["fine"], [(1,)])


# -- what has no end ---------------------------------------------------------------------------------------------------

COUNTER = """
    CREATE TABLE seed (n INT, kind TEXT);
    CREATE TABLE other (n INT);
    CREATE VIEW counter(n) AS
      SELECT n FROM seed WHERE kind = 'go' UNION SELECT n + 1 FROM counter WHERE n > 10;
    CREATE VIEW beside AS SELECT n, COUNT(*) AS c FROM other GROUP BY n;
    CREATE VIEW above AS SELECT COUNT(*) AS c FROM counter
"""
IN_OPTIONS = COUNTER.replace("counter(n) AS", "counter(n) WITH (recursion_limit = '60') AS")


def snapshot(db: whence.Database) -> dict[str, list[Row]]:
    return {name: sorted(db[name].rows) for name in (*db.tables, *db.views)}


@every_policy
@pytest.mark.parametrize("where", ["open", "option"])
def test_a_counter_without_end_is_stopped_and_the_batch_undone(policy: str, where: str) -> None:
    db = whence.open(recursion_limit=60) if where == "open" else whence.open()
    db.execute(with_policy(COUNTER if where == "open" else IN_OPTIONS, policy))
    db.insert("seed", [(1, "go"), (2, "go"), (50, "stop")])
    db.insert("other", [(1,), (1,)])
    before, epoch = snapshot(db), db.epoch
    feeds = {name: db.changes(name) for name in db.views}
    for _ in range(2):
        with pytest.raises(whence.RecursionLimitError) as stopped:
            load(
                db,
                [
                    *(("other", row, 1) for row in [(1,), (5,)]),
                    ("seed", (1, "go"), -1),
                    *(("seed", row, 1) for row in [(3, "go"), (4711, "go"), (60, "stop")]),
                ],
            )
        message = str(stopped.value)
        assert "counter" in message
        assert re.search(r"seed.*4711|4711.*seed", message), f"no input row of the batch is named: {message}"
        assert snapshot(db) == before
        assert db.epoch == epoch
        assert [list(feed) for feed in feeds.values()] == [[], [], []]
    db.insert("seed", [(5, "go")])
    db.delete("seed", [(2, "go")])
    db.insert("other", [(1,)])
    assert_rows(db["counter"], [(1,), (5,)])
    assert_rows(db["beside"], [(1, 3)])
    assert_rows(db["above"], [(2,)])


@every_policy
def test_a_recursion_that_ends_within_its_limit_is_left_alone(policy: str) -> None:
    db = whence.open(recursion_limit=60)
    db.execute(with_policy(COUNTER.replace("WHERE n > 10", "WHERE n > 10 AND n < 50"), policy))
    db.insert("seed", [(11, "go")])
    assert_rows(db["counter"], [(n,) for n in range(11, 51)])


@every_policy
def test_a_cost_without_end_is_stopped(policy: str) -> None:
    """Links of negative cost in a ring: MIN has no least value."""
    db = whence.open(recursion_limit=100)
    db.execute(with_policy(CHEAPEST, policy))
    db.insert("link", [(1, 2, 3), (2, 3, -1)])
    before = snapshot(db)
    with pytest.raises(whence.RecursionLimitError, match="cheapest"):
        db.insert("link", [(3, 1, -5)])
    assert snapshot(db) == before
    db.insert("link", [(3, 1, 5)])
    assert (1, 1, 7) in db["cheapest"]


@every_policy
def test_updates_after_a_stop_stay_right(policy: str) -> None:
    twin = Twin(
        """CREATE TABLE link (src INT, dst INT);
           CREATE VIEW walk(a, b, n) AS
             SELECT src, dst, 1 FROM link
             UNION SELECT w.a, l.dst, w.n + 1 FROM walk AS w JOIN link AS l ON l.src = w.b""",
        policy,
        recursion_limit=40,
    )
    batches = stream("stop", {"link": lambda r: tuple(sorted(r.sample(range(6), 2)))}, steps=12, start=4)
    for batch in batches:
        twin.apply(batch)
        if twin.tables["link"]:
            a, b = twin.tables["link"][0]
            with pytest.raises(whence.RecursionLimitError, match="walk"):
                twin.db.insert("link", [(b, a)])  # a ring has walks of every length
            twin.check()
