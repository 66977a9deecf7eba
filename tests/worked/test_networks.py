"""Paper 000, section II: views over a network of links, on small instances written out and under random updates."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

import whence
from tests.depth import seeds
from tests.oracle import Row, Tables, Twin, assert_rows, drive, every_policy, stream, with_policy

NODES = "ABCDE"


def link(rng: random.Random) -> Row:
    return rng.choice(NODES), rng.choice(NODES)


def weighted(rng: random.Random) -> Row:
    return (*link(rng), rng.choice([0, 1, 1, 2, 5]))


# -- reachable ---------------------------------------------------------------------------------------------------------

REACHABLE = """
    CREATE TABLE link (src TEXT, dst TEXT);
    with recursive reachable(src,dst) as
    ( select src,dst
      from link
    union
      select link.src, reachable.dst
      from link, reachable
      where link.dst = reachable.src)
"""


@every_policy
def test_reachable(policy: str) -> None:
    twin = Twin(REACHABLE, policy)
    twin.insert("link", ("A", "B"), ("B", "C"), ("C", "A"), ("C", "D"))
    ring = [(x, y) for x in "ABC" for y in "ABCD"]
    assert_rows(twin.db["reachable"], ring)
    twin.delete("link", ("C", "A"))
    assert_rows(twin.db["reachable"], [("A", "B"), ("A", "C"), ("A", "D"), ("B", "C"), ("B", "D"), ("C", "D")])
    twin.delete("link", ("B", "C"))
    assert_rows(twin.db["reachable"], [("A", "B"), ("C", "D")])
    twin.insert("link", ("D", "A"))
    assert_rows(twin.db["reachable"], [("A", "B"), ("C", "A"), ("C", "B"), ("C", "D"), ("D", "A"), ("D", "B")])


@every_policy
@pytest.mark.parametrize("seed", seeds(3))
def test_reachable_under_random_updates(policy: str, seed: int) -> None:
    drive(Twin(REACHABLE, policy), stream(seed, {"link": link}, steps=15, start=5))


def test_the_paper_says_it_without_semicolons() -> None:
    """Statements as the paper prints them: `with recursive` declares a view, `create view` may follow at once."""
    db = whence.open()
    db.execute("CREATE TABLE link (src TEXT, dst TEXT)")
    db.execute(
        """with recursive reachable(src,dst) as
           ( select src,dst from link
           union
             select link.src, reachable.dst from link, reachable where link.dst = reachable.src)
           create view howMany(src, n) as (select src, count(*) from reachable group by src)"""
    )
    db.insert("link", [("A", "B"), ("B", "A")])
    assert_rows(db["howMany"], [("A", 2), ("B", 2)])


# -- shortest paths ----------------------------------------------------------------------------------------------------

SHORTEST = """
    CREATE TABLE link (src TEXT, dst TEXT);
    with recursive path(src,dst,vec,length) as
    ( select src,dst,src ||'.'|| dst,1 from link
    union
       select link.src,path.dst,link.src ||'.'|| vec,
       length+1
       from link, path where link.dst = path.src);
    create view minHops(src,dst,length) as
      (select src,dst,min(length) from path
       group by src,dst);
    create view shortestPath(src,dst,vec,length) as
      (select P.src,P.dst,vec,P.length
       from path P, minHops H where P.src = H.src
       and P.dst = H.dst and P.length = H.length)
"""
HOPS_AND_COSTS = """
    CREATE TABLE link (src TEXT, dst TEXT, cost INT);
    with recursive path(src,dst,vec,length,cost) as
    ( select src,dst,src ||'.'|| dst,1,cost from link
    union
      select link.src,path.dst,link.src ||'.'|| vec,length+1,link.cost+path.cost
      from link, path where link.dst = path.src);
    create view minHops(src,dst,length) as (select src,dst,min(length) from path group by src,dst);
    create view minCost(src,dst,cost) as (select src,dst,min(cost) from path group by src,dst);
    create view shortestPath(src,dst,vec,length) as
      (select P.src,P.dst,vec,P.length from path P, minHops H
       where P.src = H.src and P.dst = H.dst and P.length = H.length);
    create view cheapestPath(src,dst,vec,cost) as
      (select P.src,P.dst,vec,P.cost from path P, minCost C
       where P.src = C.src and P.dst = C.dst and P.cost = C.cost)
"""


def walks(links: list[Row], limit: int) -> Iterator[tuple[str, str, str, int, int]]:
    """Every walk of at most so many links: source, destination, route, hops, cost (links without one cost 1)."""
    edges = {(row[0], row[1], row[2] if len(row) > 2 else 1) for row in links}
    frontier = {(a, b, f"{a}.{b}", 1, c) for a, b, c in edges}
    while frontier:
        yield from frontier
        frontier = {
            (a, d, f"{a}.{v}", n + 1, c + cost)
            for a, b, c in edges
            for s, d, v, n, cost in frontier
            if b == s and n < limit
        }


def best(links: list[Row], by: int) -> dict[Row, int]:
    """The least of a walk's fields (3 hops, 4 cost) for every pair."""
    found: dict[Row, int] = {}
    for src, dst, _, *measures in walks(links, len(NODES)):
        value = measures[by - 3]
        found[src, dst] = min(value, found.get((src, dst), value))
    return found


def shortest(links: list[Row], by: int) -> list[Row]:
    """The best walks; walks of one route that differ in cost are several."""
    least = best(links, by)
    return [(w[0], w[1], w[2], w[by]) for w in walks(links, len(NODES)) if least[w[:2]] == w[by]]


@every_policy
def test_the_papers_shortest_path_on_a_cyclic_network(policy: str) -> None:
    db = whence.open(recursion_limit=1000)
    db.execute(with_policy(SHORTEST, policy))
    db.insert("link", [("A", "B"), ("B", "C"), ("C", "A"), ("A", "C")])
    assert_rows(
        db["shortestPath"],
        [
            ("A", "A", "A.C.A", 2),
            ("A", "B", "A.B", 1),
            ("A", "C", "A.C", 1),
            ("B", "A", "B.C.A", 2),
            ("B", "B", "B.C.A.B", 3),
            ("B", "C", "B.C", 1),
            ("C", "A", "C.A", 1),
            ("C", "B", "C.A.B", 2),
            ("C", "C", "C.A.C", 2),
        ],
    )
    db.delete("link", [("A", "C")])
    assert_rows(db["minHops"], [(x, y, (ord(y) - ord(x) - 1) % 3 + 1) for x in "ABC" for y in "ABC"])
    db.delete("link", [("C", "A")])
    assert_rows(db["shortestPath"], [("A", "B", "A.B", 1), ("A", "C", "A.B.C", 2), ("B", "C", "B.C", 1)])


@every_policy
@pytest.mark.parametrize("seed", seeds(2))
def test_the_papers_shortest_path_under_random_updates(policy: str, seed: int) -> None:
    twin = Twin(
        SHORTEST,
        policy,
        skip=("path",),
        brute={
            "minhops": lambda t: {(*k, v) for k, v in best(t["link"], 3).items()},
            "shortestpath": lambda t: shortest(t["link"], 3),
        },
        recursion_limit=1000,
    )
    drive(twin, stream(seed, {"link": link}, steps=12, start=4))


@every_policy
@pytest.mark.parametrize("seed", seeds(2))
def test_hop_count_and_cheapest_cost_at_once(policy: str, seed: int) -> None:
    twin = Twin(
        HOPS_AND_COSTS,
        policy,
        skip=("path",),
        brute={
            "minhops": lambda t: {(*k, v) for k, v in best(t["link"], 3).items()},
            "mincost": lambda t: {(*k, v) for k, v in best(t["link"], 4).items()},
            "shortestpath": lambda t: shortest(t["link"], 3),
            "cheapestpath": lambda t: shortest(t["link"], 4),
        },
        recursion_limit=1000,
    )
    # No link is free: on a cycle of cost zero there would be no end of cheapest paths.
    drive(twin, stream(seed, {"link": lambda r: (*link(r), r.choice([1, 2, 5]))}, steps=10, start=4))


@every_policy
def test_hop_count_and_cheapest_cost_written_out(policy: str) -> None:
    db = whence.open(recursion_limit=1000)
    db.execute(with_policy(HOPS_AND_COSTS, policy))
    db.insert("link", [("A", "B", 1), ("B", "C", 1), ("A", "C", 5), ("C", "A", 1)])
    assert_rows([r for r in db["shortestPath"] if r[:2] == ("A", "C")], [("A", "C", "A.C", 1)])
    assert_rows([r for r in db["cheapestPath"] if r[:2] == ("A", "C")], [("A", "C", "A.B.C", 2)])
    assert_rows(db["minCost"], [(x, y, {0: 3, 1: 1, 2: 2}[(ord(y) - ord(x)) % 3]) for x in "ABC" for y in "ABC"])
    db.delete("link", [("B", "C", 1)])
    assert_rows([r for r in db["cheapestPath"] if r[:2] == ("A", "C")], [("A", "C", "A.C", 5)])


ACYCLIC = {"link": lambda rng: tuple(sorted(rng.sample(NODES, 2)))}


@every_policy
@pytest.mark.parametrize("seed", seeds(2))
def test_the_papers_shortest_path_on_acyclic_networks(policy: str, seed: int) -> None:
    """Without cycles `path` itself is finite, and everything is compared with DuckDB."""
    drive(Twin(SHORTEST, policy, skip=("path",)), stream(seed, ACYCLIC, steps=10, start=3))


# -- recursion through MIN and MAX -------------------------------------------------------------------------------------

CHEAPEST = """
    CREATE TABLE link (src TEXT, dst TEXT, cost INT);
    CREATE VIEW route AS
      SELECT src, dst, cost FROM link
      UNION
      SELECT link.src, cheapest.dst, link.cost + cheapest.cost FROM link JOIN cheapest ON link.dst = cheapest.src;
    CREATE VIEW cheapest AS SELECT src, dst, MIN(cost) AS cost FROM route GROUP BY src, dst
"""
BANDWIDTH = """
    CREATE TABLE link (src TEXT, dst TEXT, bandwidth INT);
    CREATE VIEW widest AS
      SELECT src, dst, MAX(bandwidth) AS bandwidth FROM (
        SELECT src, dst, bandwidth FROM link
        UNION
        SELECT link.src, widest.dst, LEAST(link.bandwidth, widest.bandwidth)
        FROM link JOIN widest ON link.dst = widest.src) AS routes
      GROUP BY src, dst
"""


@every_policy
@pytest.mark.parametrize("seed", seeds(3))
def test_cheapest_cost(policy: str, seed: int) -> None:
    drive(Twin(CHEAPEST, policy), stream(seed, {"link": weighted}, steps=12, start=6))


@every_policy
def test_highest_bandwidth_written_out(policy: str) -> None:
    twin = Twin(BANDWIDTH, policy)
    twin.insert("link", ("A", "B", 10), ("B", "C", 4), ("A", "C", 3), ("C", "A", 7))
    got = {(a, b): w for a, b, w in twin.db["widest"]}
    assert (got["A", "C"], got["A", "A"], got["B", "A"], got["C", "B"]) == (4, 4, 4, 7)
    twin.delete("link", ("B", "C", 4))
    assert_rows(
        twin.db["widest"], [("A", "B", 10), ("A", "C", 3), ("A", "A", 3), ("C", "A", 7), ("C", "B", 7), ("C", "C", 3)]
    )


@every_policy
@pytest.mark.parametrize("seed", seeds(3))
def test_highest_bandwidth_path(policy: str, seed: int) -> None:
    drive(Twin(BANDWIDTH, policy), stream(seed, {"link": weighted}, steps=12, start=6))


# -- within a radius ---------------------------------------------------------------------------------------------------

RADIUS = """
    CREATE TABLE link (src TEXT, dst TEXT);
    CREATE VIEW within(src, dst, hops) AS
      SELECT src, dst, 1 FROM link
      UNION
      SELECT link.src, within.dst, within.hops + 1 FROM link JOIN within ON link.dst = within.src
      WHERE within.hops < 3;
    CREATE VIEW horizon AS SELECT src, COUNT(DISTINCT dst) AS nodes FROM within GROUP BY src
"""


@every_policy
def test_reachable_within_a_radius_written_out(policy: str) -> None:
    twin = Twin(RADIUS, policy)
    twin.insert("link", ("A", "B"), ("B", "C"), ("C", "D"), ("D", "E"), ("B", "A"))
    assert {r[1:] for r in twin.db["within"] if r[0] == "A"} == {("B", 1), ("A", 2), ("C", 2), ("B", 3), ("D", 3)}
    assert_rows(twin.db["horizon"], [("A", 4), ("B", 5), ("C", 2), ("D", 1)])
    twin.delete("link", ("B", "C"))
    assert_rows(twin.db["horizon"], [("A", 2), ("B", 2), ("C", 2), ("D", 1)])


@every_policy
@pytest.mark.parametrize("seed", seeds(2))
def test_reachable_within_a_radius(policy: str, seed: int) -> None:
    drive(Twin(RADIUS, policy), stream(seed, {"link": link}, steps=12, start=5))


# -- routing resilience ------------------------------------------------------------------------------------------------

RESILIENCE = """
    CREATE TABLE link (src TEXT, dst TEXT);
    CREATE VIEW route(src, dst, vec) AS
      SELECT src, dst, src || '.' || dst FROM link
      UNION
      SELECT link.src, route.dst, link.src || '.' || route.vec FROM link JOIN route ON link.dst = route.src;
    CREATE VIEW resilience AS SELECT src, dst, COUNT(*) AS routes FROM route GROUP BY src, dst;
    CREATE VIEW fragile AS SELECT src, dst FROM resilience WHERE routes = 1
"""


@every_policy
def test_routing_resilience_written_out(policy: str) -> None:
    twin = Twin(RESILIENCE, policy)
    twin.insert("link", ("A", "B"), ("A", "C"), ("B", "D"), ("C", "D"), ("D", "E"))
    assert_rows(
        twin.db["resilience"],
        [
            ("A", "B", 1),
            ("A", "C", 1),
            ("A", "D", 2),
            ("A", "E", 2),
            ("B", "D", 1),
            ("B", "E", 1),
            ("C", "D", 1),
            ("C", "E", 1),
            ("D", "E", 1),
        ],
    )
    twin.insert("link", ("A", "D"))
    assert ("A", "E", 3) in twin.db["resilience"]
    twin.delete("link", ("C", "D"), ("A", "B"))
    assert_rows([r for r in twin.db["fragile"] if r[0] == "A"], [("A", "C"), ("A", "D"), ("A", "E")])


@every_policy
@pytest.mark.parametrize("seed", seeds(2))
def test_routing_resilience(policy: str, seed: int) -> None:
    def routes(tables: Tables) -> set[Row]:
        return {w[:3] for w in walks(tables["link"], len(NODES))}

    drive(Twin(RESILIENCE, policy, brute={"route": routes}), stream(seed, ACYCLIC, steps=12, start=4))
