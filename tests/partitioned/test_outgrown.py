"""Tables that were small when views over them were created, and are not any more: the views are planned again."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import whence
from tests.runtime.test_placement import rows_in

SCRIPT = """
CREATE TABLE link (src INT, dst INT);
CREATE TABLE name (node INT, title TEXT);
CREATE VIEW reachable AS SELECT src, dst FROM link
  UNION SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;
CREATE VIEW reach_of AS SELECT src, COUNT(*) AS nodes FROM reachable GROUP BY src;
CREATE VIEW named AS SELECT name.title, reach_of.nodes FROM name JOIN reach_of ON name.node = reach_of.src;
"""
Pair = tuple[int, int]


def closure(links: set[Pair]) -> set[Pair]:
    """Compute `reachable` naively."""
    found = set(links)
    while more := {(a, d) for a, b in links for c, d in found if b == c} - found:
        found |= more
    return found


def check(db: whence.Database, links: set[Pair]) -> None:
    """Compare all views with what the links say."""
    expected = closure(links)
    counts = {a: sum(1 for src, _ in expected if src == a) for a, _ in expected}
    assert set(db["reachable"]) == expected
    assert dict(db["reach_of"]) == counts
    assert set(db["named"]) == {(f"node {a}", n) for a, n in counts.items() if a < 10}


def few_copies(**more: object) -> dict[str, object]:
    return {"partitions": 3, "on_spark": {"copied_rows": 20}, **more}


def test_first_load_of_an_empty_table_plans_views_again() -> None:
    """Before the load runs: no row of it is ever where it does not belong."""
    rng = random.Random(1)
    with whence.open(**few_copies()) as db:  # type: ignore[arg-type]
        db.execute(SCRIPT)
        db.insert("name", [(i, f"node {i}") for i in range(10)])
        assert "recursion local" in db.explain("reachable")
        assert "table link in every partition" in db.explain("reachable")
        links = {(rng.randrange(30), rng.randrange(30)) for _ in range(40)}
        db.insert("link", sorted(links))
        assert "recursion exchange" in db.explain("reachable").replace("by exchange", "exchange")
        assert sum(rows_in(db, "link")) == len(links)
        check(db, links)
        for _ in range(3):
            gone, new = set(rng.sample(sorted(links), 5)), {(rng.randrange(30), rng.randrange(30)) for _ in range(4)}
            with db.transaction():
                db.delete("link", sorted(gone))
                db.insert("link", sorted(new - (links - gone)))
            links = (links - gone) | new
            check(db, links)


def test_table_that_grows_row_by_row_is_moved() -> None:
    """Each partition keeps its own rows of it; changes that are followed are those of the rows alone."""
    with whence.open(**few_copies()) as db:  # type: ignore[arg-type]
        db.execute(SCRIPT)
        db.insert("name", [(i, f"node {i}") for i in range(10)])
        feed, links = db.changes("reach_of"), set[Pair]()
        for i in range(30):
            links.add((i % 12, (i * 7) % 12))
            db.insert("link", [(i % 12, (i * 7) % 12)]) if len(links) > len(set(db["link"])) else None
        for i in range(40, 60):
            links.add((i, i + 1))
            db.insert("link", [(i, i + 1)])
        assert "table link in every partition" not in db.explain("reachable")
        assert sum(rows_in(db, "link")) == len(links)
        check(db, links)
        followed: dict[tuple[object, ...], int] = {}
        for change in feed:
            followed[change.row] = followed.get(change.row, 0) + change.sign
        assert {row for row, count in followed.items() if count} == set(db["reach_of"])
        db.delete("link", sorted(links)[:9])
        check(db, set(sorted(links)[9:]))


def test_undone_transaction_leaves_the_rows_as_they_were() -> None:
    with whence.open(**few_copies()) as db:  # type: ignore[arg-type]
        db.execute(SCRIPT + "CREATE VIEW far AS SELECT CAST(dst AS BIGINT) * 100000000000000 AS d FROM link")
        db.insert("name", [(i, f"node {i}") for i in range(10)])
        db.insert("link", [(1, 2), (2, 3)])
        with pytest.raises(whence.WhenceError, match="range"):
            db.insert("link", [(i, i + 1) for i in range(100, 190)] + [(1, 100_000)])
        db.what_if(insert={"link": [(i, i + 1) for i in range(100, 140)]})
        check(db, {(1, 2), (2, 3)})
        db.insert("link", [(3, 1)])
        check(db, {(1, 2), (2, 3), (3, 1)})


@pytest.mark.parametrize("image", [True, False])
def test_plan_is_there_after_reopening(tmp_path: Path, image: bool) -> None:
    """From an image of the new plan, or by replaying the epochs over one of the old plan."""
    links = {(i, (i * 5) % 31) for i in range(31)}
    with whence.open(tmp_path / "db", **few_copies()) as db:  # type: ignore[arg-type]
        db.execute(SCRIPT)
        db.snapshot()
        db.insert("name", [(i, f"node {i}") for i in range(10)])
        db.insert("link", sorted(links)[:25])
        db.insert("link", sorted(links)[25:])
        if image:
            db.snapshot()
        before = db.explain("reachable").splitlines()[3:6]
    with whence.open(tmp_path / "db", **few_copies()) as db:  # type: ignore[arg-type]
        check(db, links)
        db.insert("link", [(100, 101)])
        links.add((100, 101))
        check(db, links)
        if image:
            assert db.explain("reachable").splitlines()[3:6] == before
        past = db.at(db.epoch - 1)
        assert set(past["reachable"]) == closure(links - {(100, 101)})


def test_table_that_users_have_placed_stays() -> None:
    with whence.open(**few_copies()) as db:  # type: ignore[arg-type]
        db.execute(SCRIPT.replace("link (src INT, dst INT)", "link (src INT, dst INT) WITH (partition_by = 'all')"))
        db.insert("link", [(i, i + 1) for i in range(50)])
        assert "table link in every partition" in db.explain("reachable")
        assert len(set(db["reachable"])) == 50 * 51 // 2
