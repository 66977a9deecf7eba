"""Orders of atoms in recursive rules: which are chosen, when, and that none changes a row."""

from __future__ import annotations

import random
from itertools import permutations
from pathlib import Path

import pytest

import whence
from tests.depth import seeds
from whence.engine.core.operator import upwards
from whence.engine.recursion.fixpoint import Fixpoint
from whence.engine.recursion.rule_orders import connected_rules
from whence.engine.recursion.rule_plans import Orders, decode_orders, encode_orders
from whence.plan.recursion.rule_shape import RuleShape

TABLES = """
CREATE TABLE seed (x INT, y INT); CREATE TABLE edge (a INT, b INT); CREATE TABLE label (a INT, k INT);
CREATE TABLE allowed (k INT, b INT); CREATE TABLE closed (b INT);
"""
REACH = """
SELECT x, y FROM seed UNION SELECT reach.x, edge.b FROM reach, edge, label, allowed
WHERE reach.y = edge.a AND reach.y = label.a AND label.k = allowed.k AND allowed.b = edge.b
"""
STEPS = """
SELECT x, y, MIN(n) AS n FROM (
  SELECT x, y, 0 AS n FROM seed
  UNION ALL
  SELECT steps.x, edge.b, steps.n + label.k FROM steps, edge, label
  WHERE steps.y = edge.a AND edge.b = label.a AND label.k >= 0 AND edge.b NOT IN (SELECT b FROM closed)
) AS t GROUP BY x, y
"""
Row = tuple[int, ...]
Rows = dict[str, list[Row]]


def fixpoints(db: whence.Database, view: str) -> list[Fixpoint]:
    """Return the fixpoint behind a view, in each partition that this process has."""
    backend = db._coordinator.catalog.backend
    runner = getattr(backend, "runner", None)
    tops = (
        [backend.operator(view)] if runner is None else [r.partition.flow.views[view] for r in runner._local.values()]
    )
    return [op for top in tops for op in upwards([top]) if isinstance(op, Fixpoint)]


def reached(rows: Rows) -> set[Row]:
    """Compute `reach` naively."""
    found = set(rows["seed"])
    while True:
        more = {
            (x, b)
            for x, y in found
            for a, b in rows["edge"]
            if a == y and any((k, b) in rows["allowed"] for c, k in rows["label"] if c == y)
        }
        if more <= found:
            return found
        found |= more


def stepped(rows: Rows) -> set[Row]:
    """Compute `steps` naively."""
    best = dict.fromkeys(rows["seed"], 0)
    closed, moved = {b for (b,) in rows["closed"]}, True
    while moved:
        moved = False
        for (x, y), n in list(best.items()):
            for a, b in rows["edge"]:
                for c, k in rows["label"]:
                    if a == y and c == b and k >= 0 and b not in closed and n + k < best.get((x, b), 10**9):
                        best[x, b], moved = n + k, True
    return {(x, y, n) for (x, y), n in best.items()}


def any_orders(fixpoint: Fixpoint, rng: random.Random) -> Orders:
    """Return random orders, in which absences come when they can be decided."""
    found = {}
    for (rule, given), order in fixpoint.orders.items():
        shape = RuleShape(fixpoint.program.rules[rule], fixpoint.program.relations)

        def is_possible(order: tuple[int, ...], shape: RuleShape = shape, given: int = given) -> bool:
            met = 1 << (shape.head if given < 0 else given)
            for atom in order:
                if shape.is_absence(atom) and not shape.follows(atom, met):
                    return False
                met |= 1 << atom
            return True

        found[rule, given] = rng.choice(list(filter(is_possible, permutations(order))))
    return found


POLICIES = ["policy = 'support'", "policy = 'dred'", "maintain = 'absorption'", "maintain = 'relative'"]


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("partitions", [None, 2])
@pytest.mark.parametrize("policy", POLICIES)
def test_any_order_before_every_epoch_gives_the_same_rows(seed: int, partitions: int | None, policy: str) -> None:
    rng = random.Random(seed)
    rows: Rows = {name: [] for name in ("seed", "edge", "label", "allowed", "closed")}
    with whence.open(partitions=partitions) as db:
        db.execute(TABLES)
        db.execute(f"CREATE VIEW reach WITH ({policy}) AS {REACH}")
        if "relative" not in policy:  # which has no MIN
            db.execute(f"CREATE VIEW steps WITH ({policy}) AS {STEPS}")
        for _ in range(8):
            for view in db.views:
                for fixpoint in fixpoints(db, view):
                    fixpoint.reorder(any_orders(fixpoint, rng))
            with db.transaction():
                for name, kept in rows.items():
                    gone = [r for r in kept if rng.random() < 0.25]
                    width = 1 if name == "closed" else 2
                    new = {tuple(rng.randrange(6) for _ in range(width)) for _ in range(1 if width == 1 else 5)}
                    db.delete(name, gone)
                    rows[name] = sorted({*kept}.difference(gone) | new)
                    db.insert(name, sorted(new - ({*kept} - {*gone})))
            assert set(db["reach"]) == reached(rows)
            if "steps" in db.views:
                assert set(db["steps"]) == stepped(rows)


def load(db: whence.Database) -> None:
    """Fill edges of a large fan-out, of which labels allow few."""
    rng = random.Random(5)
    with db.transaction():
        db.insert("edge", [(i, j) for i in range(60) for j in range(60) if rng.random() < 0.7])
        db.insert("label", [(i, rng.randrange(200)) for i in range(60)])
        db.insert("allowed", [(k, rng.randrange(60)) for k in range(200) for _ in range(2)])
        db.insert("seed", [(x, rng.randrange(60)) for x in range(40)])


def rows_looked_at(fixpoint: Fixpoint) -> int:
    """Return how many rows the steps of a component's rules have looked at."""
    compiled = fixpoint.store.compiled
    return sum(compiled.met(rule, given, atom)[1] for (rule, given), order in compiled.orders.items() for atom in order)


def test_rule_goes_where_fewest_rows_match() -> None:
    """A load is planned for before it runs: what runs by connectedness looks at far more rows."""
    looked, found = [], []
    for by_data in (True, False):
        with whence.open() as db:
            if by_data:
                db.execute(f"{TABLES} CREATE VIEW reach AS {REACH}")
            else:
                with connected_rules():
                    db.execute(f"{TABLES} CREATE VIEW reach AS {REACH}")
            (fixpoint,) = fixpoints(db, "reach")
            before = dict(fixpoint.orders)
            load(db)
            assert (fixpoint.orders == before) != by_data
            db.insert("seed", [(x, x % 60) for x in range(100, 400)])
            looked.append(rows_looked_at(fixpoint))
            found.append(sorted(db["reach"]))
    assert found[0] == found[1]
    assert 10 * looked[0] < looked[1], looked


def test_orders_are_chosen_again_when_relations_have_moved() -> None:
    with whence.open() as db:
        db.execute(f"{TABLES} CREATE VIEW reach AS {REACH}")
        load(db)
        (fixpoint,) = fixpoints(db, "reach")
        (rule,) = [n for n, rule in enumerate(fixpoint.program.rules) if len(rule.atoms) == 4]
        names = [fixpoint.program.relations[a.relation].name for a in fixpoint.program.rules[rule].atoms]
        given = names.index("reach")
        first = fixpoint.orders[rule, given][0]
        assert names[first].startswith("label")
        db.delete("edge", list(db["edge"]))
        db.insert("label", [(i % 60, i) for i in range(6000)])
        db.insert("edge", [(i, i + 1) for i in range(59)])
        db.insert("seed", [(x, x % 60) for x in range(1000, 4000)])
        assert names[fixpoint.orders[rule, given][0]].startswith("edge")
        rows = {name: list(db[name]) for name in ("seed", "edge", "allowed")}
        labels = {a: [] for a in range(60)}  # type: dict[int, list[int]]
        for a, k in db["label"]:
            labels[a].append(k)
        allowed, expected = set(rows["allowed"]), set(rows["seed"])
        steps = {(a, b) for a, b in rows["edge"] if any((k, b) in allowed for k in labels[a])}
        while more := {(x, b) for x, y in expected for a, b in steps if a == y} - expected:
            expected |= more
        assert set(db["reach"]) == expected


@pytest.mark.parametrize("policy", ["policy = 'support'", "maintain = 'absorption'"])
def test_orders_are_there_after_reopening(policy: str, tmp_path: Path) -> None:
    path = tmp_path / "db"
    with whence.open(path) as db:
        db.execute(f"{TABLES} CREATE VIEW reach WITH ({policy}) AS {REACH}")
        load(db)
        orders, rows = dict(fixpoints(db, "reach")[0].orders), sorted(db["reach"])
    with whence.open(path) as db:
        (fixpoint,) = fixpoints(db, "reach")
        flow = db._coordinator.catalog.flow
        assert not flow.recomputed
        assert fixpoint.orders == orders
        assert sorted(db["reach"]) == rows
        db.delete("label", list(db["label"])[:20])
        expected = reached({name: list(db[name]) for name in ("seed", "edge", "label", "allowed")})
        assert set(db["reach"]) == expected


def test_undone_load_that_chose_orders_leaves_the_rows() -> None:
    with whence.open() as db:
        db.execute(f"{TABLES} CREATE VIEW reach AS {REACH}")
        for name in ("seed", "edge", "label", "allowed"):
            db.insert(name, [(1, 1), (1, 2)])
        before = sorted(db["reach"])
        db.what_if(insert={"edge": [(1, i) for i in range(500)], "allowed": [(1, i) for i in range(500)]})
        assert sorted(db["reach"]) == before
        db.insert("edge", [(2, 1)])
        db.insert("label", [(2, 1)])
        assert set(db["reach"]) == reached({name: list(db[name]) for name in ("seed", "edge", "label", "allowed")})


def test_explain_says_orders_and_estimates() -> None:
    with whence.open() as db:
        db.execute(f"{TABLES} CREATE VIEW reach AS {REACH}")
        load(db)
        lines = [str(row[0]).strip(" │") for row in db.execute("EXPLAIN reach").rows]
        (line,) = [line for line in lines if line.startswith("order of reach into reach:")]
        assert line.startswith(
            "order of reach into reach: label on a (x 1, met 1), allowed on k (x 2, met 2), edge on "
        )
        assert "as connected" in line
        assert any(line.startswith("order of reach, searched: ") for line in lines)


def test_orders_are_the_same_as_integers() -> None:
    orders = {(0, -1): (0,), (1, 0): (2, 1), (1, 1): (), (1, 2): (0, 1)}
    assert decode_orders(encode_orders(orders)) == orders
    assert decode_orders(encode_orders({})) == {}
