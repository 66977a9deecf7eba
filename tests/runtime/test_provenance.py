"""Maintained provenance through the public API: options, what annotations say, intervals, failures, and reopening."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import whence
from tests import inside
from tests.oracle import load
from tests.runtime.test_recursion import closure
from whence.annotate.absorption import Absorption
from whence.annotate.bdd import Bdd
from whence.engine.recursion.fixpoint import annotated_policy
from whence.engine.recursion.policies.annotated import AnnotatedPolicy
from whence.model.errors import CatalogError, DataError, EvaluationError, RecursionLimitError, SqlError

LINK = "CREATE TABLE link (src TEXT, dst TEXT);"
REACHABLE = """
    CREATE VIEW reachable WITH ({}) AS
      SELECT src, dst FROM link
      UNION
      SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;
"""
BEST = """
    SELECT src, dst, MIN(cost) AS cost FROM (
      SELECT src, dst, cost FROM link
      UNION
      SELECT link.src, best.dst, link.cost + best.cost FROM link JOIN best ON link.dst = best.src
    ) AS paths GROUP BY src, dst
"""
LAZY = "maintain = 'absorption'"
EAGER = "maintain = 'absorption', propagate = 'eager'"
ALL = [LAZY, EAGER, "maintain = 'absorption', provenance = 'bdd'", "maintain = 'relative'"]
Witnesses = set[frozenset[str]]


def opened(options: str, path: Path | None = None, **settings: Any) -> whence.Database:
    db = whence.open(path, **settings)
    db.execute(LINK + REACHABLE.format(options))
    return db


def witnesses(db: whence.Database, row: str, view: str = "reachable") -> Witnesses:
    """The witnesses of a row of two letters, each a set of links of two letters."""
    said = db.annotation(view, src=row[0], dst=row[1])
    assert said.count == len(said.witnesses)
    return {frozenset("".join(fact.values()) for _, fact in witness) for witness in said.witnesses}


def sets(*texts: str) -> Witnesses:
    return {frozenset(text.split()) for text in texts}


def links(text: str) -> list[tuple[str, str]]:
    return [(link[0], link[1]) for link in text.split()]


@pytest.mark.parametrize("options", ALL)
def test_a_view_with_provenance_follows_its_links(options: str) -> None:
    rng, there = random.Random(options), list[tuple[str, str]]()
    with opened(options) as db:
        for _ in range(60):
            link = (rng.choice("ABCDE"), rng.choice("ABCDE"))
            if link in there:
                there.remove(link)
                db.delete("link", [link])
            else:
                there.append(link)
                db.insert("link", [link])
            assert set(db["reachable"].rows) == closure(there)


# -- when reasons are told ---------------------------------------------------------------------------------------------


def test_lazily_a_later_reason_is_held_back_until_the_first_is_lost() -> None:
    with opened(LAZY) as db:
        db.insert("link", links("AB BC CD"))
        db.insert("link", links("AC"))
        assert witnesses(db, "AC") == sets("AB BC", "AC")  # the second is held
        assert witnesses(db, "AD") == sets("AB BC CD", "AC CD")  # each link tells its own derivations
        db.insert("link", links("XA"))
        assert witnesses(db, "XC") == sets("XA AB BC")  # told by AC as it is shown
        db.delete("link", links("BC"))
        assert witnesses(db, "AC") == sets("AC")
        assert witnesses(db, "XC") == sets("XA AC")
        assert set(db["reachable"]) == closure(links("AB CD AC XA"))


def test_eagerly_all_reasons_are_there() -> None:
    with opened(EAGER) as db:
        db.insert("link", links("AB BC CD XA"))
        db.insert("link", links("AC"))
        assert witnesses(db, "XC") == sets("XA AC", "XA AB BC")
        db.insert("link", links("CA"))  # round a circle there is no new reason
        assert witnesses(db, "XC") == sets("XA AC", "XA AB BC")


def test_at_an_interval_of_epochs_what_is_held_is_told() -> None:
    with opened("maintain = 'absorption', propagate = '3 epochs'") as db:
        db.insert("link", links("AB BC XA"))  # epoch 1: the interval begins
        db.insert("link", links("AC"))
        assert witnesses(db, "XC") == sets("XA AB BC")
        db.insert("link", links("PQ"))
        assert witnesses(db, "XC") == sets("XA AB BC")
        db.insert("link", links("QR"))  # epoch 4
        assert witnesses(db, "XC") == sets("XA AB BC", "XA AC")


def test_at_an_interval_of_time_what_is_held_is_told_and_a_replay_does_the_same(tmp_path: Path) -> None:
    now = [1000.0]
    path = tmp_path / "db"
    db = opened("maintain = 'absorption', propagate = '10 s'", path, clock=lambda: now[0], retain="all")
    db.insert("link", links("AB BC XA"))
    db.insert("link", links("AC"))
    now[0] = 1009.9
    db.insert("link", links("PQ"))
    assert witnesses(db, "XC") == sets("XA AB BC")
    now[0] = 1010.0
    db.insert("link", links("QR"))
    assert witnesses(db, "XC") == sets("XA AB BC", "XA AC")
    before = db.epoch - 1
    db.close()
    with whence.open(path, clock=lambda: now[0]) as db:
        assert witnesses(db, "XC") == sets("XA AB BC", "XA AC")
        assert witnesses(db.at(before), "XC") == sets("XA AB BC")


# -- failing and lasting -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", ALL)
def test_an_epoch_that_fails_changes_no_annotation(options: str) -> None:
    with opened(options) as db:
        db.execute("CREATE TABLE word (t TEXT); CREATE VIEW number AS SELECT CAST(t AS INT) AS n FROM word")
        db.insert("link", links("AB BC CA AC CD"))
        before = {row: witnesses(db, "".join(row)) for row in db["reachable"]}
        with pytest.raises(EvaluationError):
            load(db, [("link", ("A", "B"), -1), ("link", ("C", "D"), -1), ("link", ("D", "A"), 1), ("word", ("x",), 1)])
        assert {row: witnesses(db, "".join(row)) for row in db["reachable"]} == before
        db.delete("link", links("AB"))
        assert set(db["reachable"]) == closure(links("BC CA AC CD"))


@pytest.mark.parametrize("options", ALL)
def test_what_was_annotated_is_so_after_opening_again(options: str, tmp_path: Path) -> None:
    path = tmp_path / "db"
    with opened(options, path, retain="all") as db:
        db.insert("link", links("AB BC CA AC"))
        db.delete("link", links("BC"))
        db.insert("link", links("BC"))
        then, epoch = witnesses(db, "AC"), db.epoch
        assert db.snapshot()
        db.insert("link", links("CD"))
        now = {row: witnesses(db, "".join(row)) for row in db["reachable"]}
    with whence.open(path) as db:
        assert inside.dataflow(db).restored
        assert {row: witnesses(db, "".join(row)) for row in db["reachable"]} == now
        assert witnesses(db.at(epoch), "AC") == then
        db.delete("link", links("CA"))
        assert set(db["reachable"]) == closure(links("AB BC AC CD"))


def test_a_recursion_without_end_is_stopped_and_undone() -> None:
    with whence.open(recursion_limit=200) as db:
        db.execute(f"""
            CREATE TABLE start (x INT);
            CREATE VIEW n WITH ({LAZY}) AS SELECT x FROM start UNION SELECT x + 2 FROM n WHERE x % 2 = 0 OR x < 9
        """)
        db.insert("start", (1,))
        with pytest.raises(RecursionLimitError, match="brought about by the row"):
            db.insert("start", [(3,), (2,)])
        assert sorted(db["n"]) == [(1,), (3,), (5,), (7,), (9,)]
        assert db.annotation("n", x=9).count == 1
        db.insert("start", (5,))
        assert (db.annotation("n", x=5).count, db.annotation("n", x=9).count) == (2, 1)  # held by 5, not told to 9


def test_an_error_on_rows_that_are_there_only_half_way_is_none() -> None:
    most = 2**63 - 1
    with whence.open() as db:
        db.execute(f"""
            CREATE TABLE link (src TEXT, dst TEXT, cost BIGINT);
            CREATE VIEW best WITH ({LAZY}) AS
              SELECT src, dst, MIN(cost) AS cost FROM (
                SELECT src, dst, cost FROM link
                UNION
                SELECT link.src, best.dst, link.cost + best.cost FROM link JOIN best ON link.dst = best.src
              ) AS paths GROUP BY src, dst
        """)
        db.insert("link", [("A", "B", 1), ("A", "B", most), ("X", "A", 5)])
        with db.transaction():  # with neither of the cheap links the sum from X would be out of range
            db.delete("link", ("A", "B", 1))
            db.insert("link", ("A", "B", 2))
        now = [("A", "B", 2), ("X", "A", 5), ("X", "B", 7)]
        assert sorted(db["best"]) == now
        with pytest.raises(EvaluationError):
            db.delete("link", ("A", "B", 2))
        assert sorted(db["best"]) == now
        assert db.annotation("best", src="X", dst="B").count == 1
        db.insert("link", ("X", "B", 6))
        assert db.annotation("best", src="X", dst="B").formula == "link(X, B, 6)"


def provenance_of(db: whence.Database) -> AnnotatedPolicy:
    return next(found for op in inside.dataflow(db).order if (found := annotated_policy(op)))


def test_rows_that_are_gone_are_forgotten_and_their_names_given_again() -> None:
    with whence.open() as db:
        db.execute(f"CREATE TABLE link (src INT, dst INT); {REACHABLE.format(LAZY)}")
        db.insert("link", [(0, 1), (1, 2)])
        for start in range(0, 30_000, 3_000):
            rows = [(n, n + 1) for n in range(start + 10, start + 3_000, 2)]
            db.insert("link", rows)
            db.delete("link", rows)
        kept = provenance_of(db)
        assert kept.runner.store.k.scalar[4] < 15_000
        assert len(kept.variables) < 8_000
        db.insert("link", (2, 0))
        db.delete("link", (1, 2))
        assert sorted(db["reachable"]) == [(0, 1), (2, 0), (2, 1)]
        assert db.annotation("reachable", src=2, dst=1).formula == "link(0, 1) ∧ link(2, 0)"


def test_names_of_values_that_are_gone_are_given_again() -> None:
    with whence.open() as db:
        db.execute(f"""
            CREATE TABLE link (src INT, dst INT, cost INT);
            CREATE VIEW best WITH (maintain = 'relative') AS {BEST}
        """)
        db.insert("link", [(n, n + 1, 1) for n in range(30)])
        for cost in range(1, 60):  # each time some 240 groups get values that they never had
            with db.transaction():
                db.delete("link", (15, 16, cost))
                db.insert("link", (15, 16, cost + 1))
        assert len(provenance_of(db).variables) < 6_000
        assert db.annotation("best", src=14, dst=16).formula == "link(14, 15, 1) ∧ link(15, 16, 60)"


@pytest.mark.parametrize("options", ALL)
def test_absences_that_end_before_anyone_asks_for_them(options: str) -> None:
    with whence.open() as db:
        db.execute(f"""
            CREATE TABLE link (src INT, dst INT);
            CREATE TABLE shut (n INT);
            CREATE VIEW open WITH ({options}) AS
              SELECT src, dst FROM link WHERE NOT EXISTS (SELECT 1 FROM shut WHERE n = dst)
              UNION
              SELECT open.src, link.dst FROM open JOIN link ON link.src = open.dst
              WHERE NOT EXISTS (SELECT 1 FROM shut WHERE n = link.dst)
        """)
        db.insert("shut", [(n,) for n in range(200)])
        db.insert("link", [(0, 1), (1, 2)])
        db.delete("shut", (1,))
        assert db["open"].rows == [(0, 1)]
        db.delete("shut", [(n,) for n in range(200)])
        assert sorted(db["open"]) == [(0, 1), (0, 2), (1, 2)]


RANGE = """
    SELECT src, MIN(low) AS low, MAX(high) AS high FROM (
      SELECT src, cost AS low, cost AS high FROM link
      UNION
      SELECT link.src, v.low, v.high FROM link JOIN v ON link.dst = v.src
    ) AS q GROUP BY src
"""


def test_the_annotation_of_two_best_values_is_of_both_though_asking_changes_the_form(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("whence.annotate.absorption.LIMIT", 2)
    with whence.open() as db:
        db.execute(f"CREATE TABLE link (src INT, dst INT, cost INT); CREATE VIEW v WITH ({LAZY}) AS {RANGE}")
        db.insert("link", [(2, 9, 9), (3, 9, 9), (4, 9, 9), (1, 5, 0)])
        for node in (2, 3, 4):
            db.insert("link", (1, node, 5))
        assert provenance_of(db).form == "witnesses"
        assert set(db.annotation("v", src=1, low=0, high=9).formula.split(" ∨ ")) == {
            f"link({node}, 9) ∧ link(1, 0) ∧ link(1, {node})" for node in (2, 3, 4)
        }
        assert provenance_of(db).form == "bdd"


def test_a_row_that_is_read_twice_leaves_the_order_once() -> None:
    with whence.open() as db:
        db.execute(f"""
            CREATE TABLE link (src INT, dst INT, cost INT);
            CREATE VIEW v WITH (maintain = 'absorption', provenance = 'bdd') AS {RANGE}
        """)
        rows = [(n, (3 * n + 1) % 8, n % 3) for n in range(8)]
        db.insert("link", rows)
        functions = provenance_of(db).formulas
        assert isinstance(functions, Absorption)
        assert isinstance(functions._form, Bdd)
        order = functions._form.labels.order
        assert order is not None
        there = order.count
        for row in rows:
            db.delete("link", row)
            db.insert("link", row)
            assert (order.count, len(order.edges)) == (there, there)


def test_epochs_that_fail_leave_nothing_that_grows() -> None:
    with opened(LAZY) as db:
        db.execute("CREATE TABLE word (t TEXT); CREATE VIEW number AS SELECT CAST(t AS INT) AS n FROM word")
        nodes = "ABCDEFGHIJKL"
        db.insert("link", zip(nodes, nodes[1:] + "A", strict=True))
        annotations = provenance_of(db).annotations
        most = annotations._count + 4096 + 2_000
        for _ in range(30):
            with pytest.raises(EvaluationError):
                load(db, [("link", ("A", "B"), -1), ("link", ("A", "C"), 1), ("word", ("x",), 1)])
            assert annotations._count < most


def test_functions_that_outgrow_witnesses_become_diagrams() -> None:
    nodes = "ABCDEF"
    every = [(a, b) for a in nodes for b in nodes if a != b]
    with opened(EAGER) as db:
        db.insert("link", every)
        assert db.metrics()["provenance"]["reachable"]["representation"] == "bdd"
        assert db.annotation("reachable", src="A", dst="B").count == sum(1 for _ in simple_paths(nodes, "A", "B"))
        gone = [link for link in every if link[0] == "A" and link[1] != "C"]
        db.delete("link", gone)
        assert set(db["reachable"]) == closure([link for link in every if link not in gone])
        assert all("AC" in witness for witness in witnesses(db, "AB"))


def test_functions_that_are_too_large_for_any_form_are_refused_and_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whence.annotate.absorption.FIXED_LIMIT", 2)
    with opened(f"{EAGER}, provenance = 'witnesses'") as db:
        db.insert("link", links("AB BD AC CD"))
        before = {row: witnesses(db, "".join(row)) for row in db["reachable"]}
        with pytest.raises(EvaluationError, match=r"provenance is too large.*use provenance = 'bdd'"):
            db.insert("link", links("AD"))
        assert {row: witnesses(db, "".join(row)) for row in db["reachable"]} == before
        db.delete("link", links("CD"))
        db.insert("link", links("AD"))
        assert witnesses(db, "AD") == sets("AD", "AB BD")


def simple_paths(nodes: str, start: str, end: str, seen: str = "") -> Any:
    if start == end:
        yield seen + end
        return
    for node in nodes:
        if node not in seen + start:
            yield from simple_paths(nodes, node, end, seen + start)


def test_rows_with_a_time_to_live_take_their_reasons_along() -> None:
    now = [1000.0]
    with whence.open(clock=lambda: now[0]) as db:
        db.execute("CREATE TABLE link (src TEXT, dst TEXT) WITH (ttl = '10 s');" + REACHABLE.format(LAZY))
        db.insert("link", links("AB BC"))
        now[0] = 1005.0
        db.insert("link", links("AC BC"))  # BC lives anew
        now[0] = 1010.0
        assert set(db["reachable"]) == closure(links("AC BC"))
        assert witnesses(db, "AC") == sets("AC")
        now[0] = 1015.0
        assert db["reachable"].rows == []


# -- what may be asked for ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("maintain = 'luck'", "no maintain 'luck'; it is 'absorption' or 'relative'"),
        ("propagate = 'lazy'", "maintains none; add maintain"),
        ("maintain = 'absorption', propagate = 'now'", "'lazy', 'eager' or an interval such as '1 s' or '10 epochs'"),
        ("maintain = 'absorption', propagate = '0 epochs'", "whole number above zero"),
        ("maintain = 'absorption', policy = 'dred'", "both a policy and maintain"),
        ("maintain = 'relative', provenance = 'bdd'", "has only one"),
    ],
)
def test_options_that_cannot_be_are_refused(options: str, error: str) -> None:
    with whence.open() as db:
        db.execute(LINK)
        with pytest.raises(SqlError, match=error):
            db.execute(REACHABLE.format(options))
        assert db.views == []


def test_a_view_that_does_not_recurse_has_provenance_if_it_is_a_set() -> None:
    with whence.open() as db:
        db.execute(f"""
            CREATE TABLE a (x INT, y INT);
            CREATE TABLE b (y INT, z TEXT);
            CREATE TABLE off (x INT);
            CREATE VIEW both WITH ({EAGER}) AS
              SELECT DISTINCT a.x, b.z FROM a JOIN b ON a.y = b.y
              WHERE NOT EXISTS (SELECT 1 FROM off WHERE off.x = a.x);
        """)
        db.insert("a", [(1, 2), (1, 3), (2, 3)])
        db.insert("b", [(2, "p"), (3, "p")])
        assert db.annotation("both", x=1, z="p").formula == (
            "a(1, 2) ∧ b(2, p) ∧ no off(1) ∨ a(1, 3) ∧ b(3, p) ∧ no off(1)"
        )
        db.insert("off", (1,))
        assert db["both"].rows == [(2, "p")]
        bags = (
            "SELECT x FROM a",
            "SELECT x, COUNT(*) AS n FROM a GROUP BY x",
            "SELECT x FROM a UNION ALL SELECT y FROM b",
        )
        for query in bags:
            with pytest.raises(SqlError, match=r"of sets, and bag may have a row several times.*why"):
                db.execute(f"CREATE VIEW bag WITH ({LAZY}) AS {query}")


def test_the_recursive_query_inside_a_view_is_what_is_maintained() -> None:
    with whence.open() as db:
        db.execute(
            f"{LINK} CREATE VIEW from_a WITH ({LAZY}) AS WITH RECURSIVE r(n) AS "
            "(SELECT 'A' UNION SELECT link.dst FROM r JOIN link ON link.src = r.n) SELECT n FROM r WHERE n <> 'A'"
        )
        db.insert("link", links("AB BC CA"))
        db.delete("link", links("BC"))
        assert db["from_a"].rows == [("B",)]
        assert "absorption" in db.metrics()["provenance"]["from_a"]["maintain"]


def test_annotations_are_only_of_rows_of_views_that_have_them() -> None:
    with opened(LAZY) as db:
        db.execute("CREATE VIEW plain AS SELECT src FROM link")
        db.insert("link", links("AB"))
        for call, error, text in (
            (lambda: db.annotation("plain", src="A"), CatalogError, "maintain"),
            (lambda: db.annotation("link", src="A"), CatalogError, "is a table"),
            (lambda: db.annotation("reachable", src="A", dst="C"), DataError, "has no row"),
        ):
            refused: Callable[[], Any] = call
            with pytest.raises(error, match=text):
                refused()


def test_explain_and_metrics_say_how_provenance_is_kept() -> None:
    with opened(LAZY) as db:
        db.insert("link", links("AB BC AC"))
        text = db.explain("reachable")
        assert "maintain absorption, propagate lazy, as witnesses" in text
        assert "1 rows hold reasons back" in text
        say = db.metrics()["provenance"]["reachable"]
        assert say["rows_held"] == 1
        assert 0 < say["provenance_bytes_per_row"] <= say["provenance_bytes"]
