"""Questions answered from derivations, against the truth of every loss there can be (`truth.py`)."""

from __future__ import annotations

import random
from collections.abc import Callable

import networkx as nx
import pytest

import whence
from tests.depth import seeds
from tests.explain.truth import Fact, Truth

REACHABLE = """
    CREATE TABLE link (src INT, dst INT);
    CREATE VIEW reachable AS
      SELECT src, dst FROM link
      UNION SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;
"""
PROGRAMS: dict[str, tuple[str, tuple[str, ...], dict[str, tuple[int, ...]]]] = {
    # name: (SQL, views, how many values each column of a table may have)
    "reachable": (REACHABLE, ("reachable",), {"link": (4, 4)}),
    "same generation": (
        """CREATE TABLE up (child INT, parent INT);
           CREATE VIEW same AS
             SELECT a.child AS x, b.child AS y FROM up AS a JOIN up AS b ON a.parent = b.parent
             UNION
             SELECT a.child, b.child FROM same JOIN up AS a ON a.parent = same.x JOIN up AS b ON b.parent = same.y;""",
        ("same",),
        {"up": (4, 4)},
    ),
    "joins and unions": (
        """CREATE TABLE a (x INT, y INT); CREATE TABLE b (x INT, y INT);
           CREATE VIEW both AS SELECT a.x, b.y FROM a JOIN b ON a.y = b.x;
           CREATE VIEW some AS SELECT x, y FROM both UNION SELECT y, x FROM a;
           CREATE VIEW pairs AS SELECT s.x, t.y FROM some AS s JOIN some AS t ON s.y = t.x WHERE s.x <= t.y;""",
        ("both", "some", "pairs"),
        {"a": (3, 3), "b": (3, 3)},
    ),
    "denials above a recursion": (
        """CREATE TABLE member (who INT, grp INT); CREATE TABLE denied (who INT);
           CREATE VIEW acts AS
             SELECT who, grp FROM member
             UNION SELECT acts.who, member.grp FROM acts JOIN member ON member.who = acts.grp;
           CREATE VIEW may AS SELECT who, grp FROM acts WHERE who NOT IN (SELECT who FROM denied);""",
        ("acts", "may"),
        {"member": (4, 4), "denied": (4,)},
    ),
    "aggregates": (
        """CREATE TABLE sale (shop INT, item INT, amount INT);
           CREATE VIEW by_shop AS SELECT shop, COUNT(*) AS n, SUM(amount) AS total FROM sale GROUP BY shop;
           CREATE VIEW extremes AS SELECT shop, MIN(amount) AS low, MAX(amount) AS high FROM sale GROUP BY shop;
           CREATE VIEW mean AS SELECT shop, AVG(amount) AS mean FROM sale GROUP BY shop;
           CREATE VIEW large AS SELECT shop FROM by_shop WHERE total > 3;""",
        ("by_shop", "extremes", "mean", "large"),
        {"sale": (2, 3, 4)},
    ),
    "tried": (  # what derivations alone do not say
        """CREATE TABLE a (x INT, y INT); CREATE TABLE b (x INT); CREATE TABLE c (x INT);
           CREATE VIEW second AS SELECT x, y FROM a ORDER BY x, y LIMIT 2 OFFSET 1;
           CREATE VIEW odd AS
             SELECT x FROM a WHERE x NOT IN (SELECT x FROM b WHERE x NOT IN (SELECT x FROM c));
           CREATE VIEW most AS SELECT MAX(n) AS n FROM (SELECT x, COUNT(*) AS n FROM a GROUP BY x) AS g;""",
        ("second", "odd", "most"),
        {"a": (3, 2), "b": (3,), "c": (3,)},
    ),
    "cheapest": (
        """CREATE TABLE link (src INT, dst INT, cost INT);
           CREATE VIEW path AS
             SELECT src, dst, cost FROM link
             UNION SELECT link.src, path.dst, link.cost + path.cost FROM link JOIN path ON link.dst = path.src;
           CREATE VIEW cheapest AS SELECT src, dst, MIN(cost) AS cost FROM path GROUP BY src, dst;""",
        ("cheapest",),
        {"link": (3, 3, 2)},
    ),
}


def facts_of(tables: dict[str, tuple[int, ...]], seed: int, most: int = 8) -> list[Fact]:
    rng = random.Random(seed)
    found: dict[Fact, None] = {}
    while len(found) < most:
        table = rng.choice(list(tables))
        row = tuple(rng.randrange(n) for n in tables[table])
        if len(row) == 3 and table == "link":
            row = (row[0], row[1], row[2] + 1)
        found[table, row] = None
    return list(found)


def fact(pair: tuple[str, dict[str, object]]) -> Fact:
    return pair[0], tuple(pair[1].values())


@pytest.fixture(params=[(name, seed) for name in PROGRAMS for seed in range(2)], ids=lambda p: f"{p[0]}, {p[1]}")
def truth(request: pytest.FixtureRequest) -> Truth:
    name, seed = request.param
    sql, views, tables = PROGRAMS[name]
    return Truth(sql, facts_of(tables, seed), views)


def each(truth: Truth, check: Callable[[str, tuple[object, ...]], None], most: int = 6) -> None:
    rng = random.Random(1)
    for view, rows in truth.rows.items():
        for row in rng.sample(rows, min(most, len(rows))):
            check(view, row)


def test_witnesses_are_the_minimal_sets(truth: Truth) -> None:
    def check(view: str, row: tuple[object, ...]) -> None:
        why = truth.db.why(view, row=row)
        assert why.holds
        found = [truth.bits(map(fact, w)) for w in why.witnesses]
        assert [m.bit_count() for m in found] == sorted(m.bit_count() for m in found)
        for witness in found if why.exact else ():
            assert truth.present[view, row][witness], f"{view}{row} does not follow from {witness:b}"
        if truth.monotone(view, row) and why.exact:
            wanted = truth.witnesses(view, row)
            assert set(found) <= wanted
            if why.complete:
                assert why.witness_count == len(wanted)
                assert len(wanted) > len(found) or set(found) == wanted

    each(truth, check)


def test_critical_and_resilience(truth: Truth) -> None:
    def check(view: str, row: tuple[object, ...]) -> None:
        critical = truth.db.critical(view, row=row)
        assert truth.bits(map(fact, critical)) == truth.critical(view, row), (view, row)
        least = truth.db.resilience(view, row=row)
        assert least.count == truth.resilience(view, row), (view, row)
        lost = truth.bits(map(fact, least.rows))
        assert lost.bit_count() == least.count
        assert not truth.present[view, row][truth.full & ~lost]

    each(truth, check)


def test_the_view_as_a_whole(truth: Truth) -> None:
    for view, rows in truth.rows.items():
        wanted: dict[Fact, int] = {}
        for row in rows:
            mask = truth.critical(view, row)
            for i, base in enumerate(truth.facts):
                if mask >> i & 1:
                    wanted[base] = wanted.get(base, 0) + 1
        found = truth.db.critical(view).items()
        assert {fact(base): count for base, count in found} == wanted
        assert [count for _, count in found] == sorted((count for _, count in found), reverse=True)


def test_critical_for_the_rows_that_match_some_columns(truth: Truth) -> None:
    for view, rows in truth.rows.items():
        names = truth.db[view].columns
        for column, value in {(c, row[c]): None for row in rows for c in range(len(names))}:
            part = [row for row in rows if row[column] == value and type(row[column]) is type(value)]
            masks = [truth.critical(view, row) for row in part]
            counts = {base: sum(m >> i & 1 for m in masks) for i, base in enumerate(truth.facts)}
            found = truth.db.critical(view, where={names[column]: value})
            assert {fact(base): n for base, n in found.items()} == {base: n for base, n in counts.items() if n}
            assert found.of == len(part)
            assert (found.row is None) == (len(part) > 1)
            assert found.where == ({names[column]: value} if len(part) > 1 else None)


def test_reliability(truth: Truth) -> None:
    tables = {table for table, _ in truth.facts}
    given = {table: 0.9 - 0.2 * i for i, table in enumerate(sorted(tables))}
    chance = {i: given[table] for i, (table, _) in enumerate(truth.facts)}

    def check(view: str, row: tuple[object, ...]) -> None:
        found = truth.db.reliability(view, row=row, given=given)
        assert found.method == "exact"
        assert found.probability == pytest.approx(truth.reliability(view, row, chance), abs=1e-12)

    each(truth, check, 4)


def test_contribution(truth: Truth) -> None:
    def check(view: str, row: tuple[object, ...]) -> None:
        found = truth.db.contribution(view, row=row)
        shapley = {fact(base): s for base, s, _ in found.items()}
        banzhaf = {fact(base): b for base, _, b in found.items()}
        for i, base in enumerate(truth.facts):
            assert banzhaf.get(base, 0.0) == pytest.approx(truth.banzhaf(view, row, i), abs=1e-9), (view, row, base)
            assert shapley.get(base, 0.0) == pytest.approx(truth.shapley(view, row, i), abs=1e-9), (view, row, base)

    each(truth, check, 3)


def test_what_would_be_left(truth: Truth) -> None:
    rng = random.Random(2)

    def check(view: str, row: tuple[object, ...]) -> None:
        why = truth.db.why(view, row=row)
        if not why.exact:
            return
        for _ in range(5):
            mask = rng.randrange(truth.full + 1)
            lost: dict[str, list[tuple[object, ...]]] = {}
            for i, (table, base) in enumerate(truth.facts):
                if not mask >> i & 1:
                    lost.setdefault(table, []).append(base)
            assert why.holds_without(lost) == truth.present[view, row][mask]

    each(truth, check)


# -- networks, against networkx ----------------------------------------------------------------------------------------


def network(seed: int, nodes: int = 12, links: int = 26) -> tuple[whence.Database, nx.DiGraph]:
    graph = nx.gnm_random_graph(nodes, links, seed=seed, directed=True)
    db = whence.open()
    db.execute(REACHABLE)
    db.insert("link", [tuple(e) for e in graph.edges])
    return db, graph


def split(graph: nx.DiGraph) -> nx.DiGraph:
    """With a node in the middle of each link."""
    out = nx.DiGraph()
    for a, b in graph.edges:
        out.add_edge(a, (a, b))
        out.add_edge((a, b), b)
    return out


@pytest.mark.parametrize("seed", seeds(4))
def test_critical_links_are_dominators_and_least_cuts_are_least(seed: int) -> None:
    db, graph = network(seed)
    middle = split(graph)
    for source, target in list(db["reachable"])[::7]:
        if source == target:
            continue
        parents = nx.immediate_dominators(middle, source)
        on_the_way, at = set(), target
        while at != source:
            at = parents[at]
            if isinstance(at, tuple):
                on_the_way.add(at)
        found = {tuple(row.values()) for _, row in db.critical("reachable", src=source, dst=target)}
        assert found == on_the_way
        cut = db.resilience("reachable", src=source, dst=target)
        assert cut.count == len(nx.minimum_edge_cut(graph, source, target))
        left = graph.copy()
        left.remove_edges_from([tuple(row.values()) for _, row in cut.rows])
        assert not nx.has_path(left, source, target)


@pytest.mark.parametrize("seed", seeds(3))
def test_bridges_take_pairs_along(seed: int) -> None:
    """Of an undirected network, kept as cables that carry both ways, the critical cables are the bridges."""
    graph = nx.gnm_random_graph(14, 17, seed=seed)
    db = whence.open()
    db.execute("""
        CREATE TABLE cable (a INT, b INT);
        CREATE VIEW link AS SELECT a AS src, b AS dst FROM cable UNION SELECT b, a FROM cable;
        CREATE VIEW reachable AS
          SELECT src, dst FROM link
          UNION SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;
        CREATE VIEW apart AS SELECT src, dst FROM reachable WHERE src < dst;
    """)
    db.insert("cable", [tuple(e) for e in graph.edges])
    found = {tuple(sorted(row.values())): count for (_, row), count in db.critical("apart").items()}
    wanted = {}
    for a, b in nx.bridges(graph):
        left = graph.copy()
        left.remove_edge(a, b)
        sides = [len(nx.node_connected_component(left, end)) for end in (a, b)]
        wanted[tuple(sorted((a, b)))] = sides[0] * sides[1]
    assert found == wanted


def test_answer_by_present_derivations_does_not_call_itself_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many rows nothing is tried: the answer says what it goes by, and why the true one may differ."""
    monkeypatch.setattr("whence.explain.ask.trial.MOST", 0)
    with whence.open() as db:
        db.execute("CREATE TABLE t (a INT); CREATE VIEW v AS SELECT a FROM t ORDER BY a LIMIT 1 OFFSET 1")
        db.insert("t", [(1,), (2,), (3,)])
        found = db.reliability("v", given={"t": 0.5}, a=2)
        assert not found.exact
        for said in (str(found), repr(db.contribution("v", a=2)), repr(db.resilience("v", a=2))):
            said = " ".join(said.split())
            assert "by its present derivations" in said
            assert "the true answer may differ: " in said
            assert "exact" not in said
        monkeypatch.undo()
        assert "(exact)" in str(db.reliability("v", given={"t": 0.5}, a=2))
