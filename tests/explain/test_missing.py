"""A row that is not in a view: what it lacks, what excludes it, or which condition is not true."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

import whence
from tests.property.test_random_programs import Case, cases, profile
from whence.model.errors import WhenceError

SQL = """
    CREATE TABLE link (src TEXT, dst TEXT, cost INT);
    CREATE TABLE node (name TEXT, region TEXT);
    CREATE TABLE down (name TEXT);
    CREATE VIEW reachable AS
        SELECT src, dst FROM link
        UNION SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;
    CREATE VIEW cheap AS
        SELECT l.src, l.dst, n.region FROM link l JOIN node n ON n.name = l.dst
        WHERE l.cost < 5 AND NOT EXISTS (SELECT 1 FROM down WHERE down.name = l.src);
    CREATE VIEW hubs AS SELECT src, COUNT(*) AS n FROM link GROUP BY src HAVING COUNT(*) > 1;
    CREATE VIEW first AS SELECT src, dst, cost FROM link ORDER BY cost LIMIT 1;
    CREATE VIEW far AS SELECT src, dst, MIN(cost) AS cost FROM (
        SELECT src, dst, cost FROM link
        UNION SELECT link.src, far.dst, link.cost + far.cost FROM link JOIN far ON link.dst = far.src
    ) q GROUP BY src, dst;
    CREATE VIEW twice AS SELECT src, cost * 2 AS c FROM link;
    CREATE VIEW up AS SELECT name FROM node EXCEPT SELECT name FROM down;
    CREATE VIEW both AS SELECT src AS name FROM link INTERSECT SELECT name FROM node;
    CREATE VIEW pairs AS SELECT a.region AS one, b.region AS two FROM link JOIN node a ON a.name = link.src
        JOIN node b ON b.name = link.dst
"""


@pytest.fixture(scope="module")
def db() -> whence.Database:
    db = whence.open()
    db.execute(SQL)
    db.insert("link", [("A", "B", 1), ("B", "C", 2), ("A", "C", 9), ("D", "C", 1)])
    db.insert("node", [("B", "eu"), ("C", "us"), ("D", "eu")])
    db.insert("down", [("D",)])
    return db


@pytest.mark.parametrize(
    ("view", "row", "reasons"),
    [
        (
            "link",
            {"src": "A", "dst": "Z"},
            ["link has src = 'A' with dst = 'B', 'C'", "link has no row with dst = 'Z'"],
        ),
        (
            "link",
            {"src": "Z"},
            ["there is no link(src = Z)"],
        ),
        (
            "reachable",
            {"src": "B", "dst": "A"},
            [
                "any of reachable(src in (B, C), dst = A) would lead to it; none is there",
                "reachable <- link: there is no link(src in (B, C), dst = A): link has these "
                "src with dst = 'C'; link has no row with dst = 'A'",
                "reachable <- link, reachable: it lacks reachable(dst = A)",
            ],
        ),
        (
            "reachable",
            {"src": "B", "dst": "B"},
            [
                "any of reachable(src in (B, C), dst = B) would lead to it; none is there",
                "reachable <- link: there is no link(src in (B, C), dst = B): link has these "
                "src with dst = 'C'; link has dst = 'B' with src = 'A'",
                "reachable <- link, reachable: there is no link(src in (B, C), dst = A): link "
                "has these src with dst = 'C'; link has no row with dst = 'A'",
            ],
        ),
        (
            "cheap",
            {"src": "A", "dst": "C"},
            ["link.cost < 5 is not true (link.cost = 9)"],
        ),
        (
            "cheap",
            {"src": "D", "dst": "C"},
            ["excluded by down(D)"],
        ),
        (
            "hubs",
            {"src": "B"},
            ["its group is (src = 'B', n = 1), for which n > 1 is not true"],
        ),
        (
            "hubs",
            {"src": "A", "n": 5},
            ["its group is there with other values: src = 'A', n = 2"],
        ),
        (
            "hubs",
            {"src": "Z"},
            ["there is no link(src = Z)"],
        ),
        (
            "first",
            {"src": "B"},
            ["the row is there, but outside the first 1 rows that first keeps"],
        ),
        (
            "far",
            {"src": "A", "dst": "C", "cost": 7},
            ["its group is there with other values: src = 'A', dst = 'C', cost = 3"],
        ),
        (
            "twice",
            {"src": "B", "c": 3},
            ["c is 4, not 3"],
        ),
        (
            "up",
            {"name": "D"},
            ["excluded by down(D)"],
        ),
        (
            "both",
            {"name": "A"},
            ["there is no node(name = A)"],
        ),
    ],
)
def test_what_stands_in_the_way(db: whence.Database, view: str, row: dict[str, Any], reasons: list[str]) -> None:
    why = db.why(view, row=row)
    assert not why.holds
    assert why.reasons == reasons


def test_an_empty_table_says_so() -> None:
    db = whence.open()
    db.execute("CREATE TABLE a (x INT); CREATE VIEW b AS SELECT x FROM a")
    assert db.why("b", x=1).reasons == ["there is no a(1): a is empty"]


@profile(60)
@given(cases(recursive=True))
def test_whatever_the_view_there_is_an_answer(case: Case) -> None:
    db = whence.open()
    try:
        db.execute(case.sql)
        with db.transaction():
            for table, row, sign in case.batches[0]:
                if sign > 0:
                    db.insert(table, [row])
    except WhenceError:
        return
    for view in db.views:
        width = len(db[view].columns)
        for row in [(None,) * width, *[(*r[:-1], None) for r in db[view].rows[:2]]]:
            if tuple(row) not in db[view]:
                why = db.why(view, row=row)
                assert not why.holds
                assert why.reasons
                assert all(isinstance(reason, str) and reason for reason in why.reasons)


ACCESS = """
    CREATE TABLE member (who TEXT, grp TEXT);
    CREATE TABLE nested (child TEXT, parent TEXT);
    CREATE TABLE granted (grp TEXT, doc TEXT);
    CREATE TABLE deny (grp TEXT, doc TEXT);
    CREATE VIEW in_group AS SELECT who, grp FROM member
        UNION SELECT g.who, n.parent FROM in_group g JOIN nested n ON n.child = g.grp;
    CREATE VIEW blocked AS SELECT g.who, d.doc FROM in_group g JOIN deny d ON d.grp = g.grp;
    CREATE VIEW may_read AS SELECT DISTINCT g.who, t.doc FROM in_group g JOIN granted t ON t.grp = g.grp
        WHERE NOT EXISTS (SELECT 1 FROM blocked b WHERE b.who = g.who AND b.doc = t.doc)
"""


def access(**options: Any) -> whence.Database:
    db = whence.open(**options)
    db.execute(ACCESS)
    db.insert("member", [("ada", "contractors"), ("ada", "interns"), ("bob", "board")])
    db.insert("nested", [("contractors", "staff"), ("interns", "staff")])
    db.insert("granted", [("staff", "plan"), ("board", "minutes")])
    db.insert("deny", [("contractors", "plan")])
    return db


@pytest.mark.parametrize("options", [{}, {"partitions": 3}])
def test_row_that_excludes_is_explained_down_to_base_rows(options: dict[str, Any]) -> None:
    why = access(**options).why("may_read", who="ada", doc="plan")
    assert str(why).splitlines() == [
        "may_read(ada, plan) is not in the view at epoch 4",
        "└─ may_read <- in_group, granted, no blocked",
        "   └─ excluded by blocked(ada, plan)",
        "      └─ blocked <- in_group, deny",
        "         ├─ in_group(ada, contractors)",
        "         │  └─ in_group <- member",
        "         │     └─ ● member(ada, contractors)",
        "         └─ ● deny(contractors, plan)",
        "deleting member(ada, contractors) would let it in",
        "deleting deny(contractors, plan) would let it in",
    ]
    assert why.reasons == [
        "excluded by blocked(ada, plan), because of member(ada, contractors), deny(contractors, plan)"
    ]
    blockers = [("member", {"who": "ada", "grp": "contractors"}), ("deny", {"grp": "contractors", "doc": "plan"})]
    assert why.blockers == blockers
    assert [(r.table, r.row) for r in why.remedies] == blockers
    assert why.lacking == []
    said = json.loads(why.to_json())
    assert said["missing"]["ways"][0]["excluded_by"] == [{"relation": "blocked", "row": {"who": "ada", "doc": "plan"}}]
    assert "excluded by blocked(ada, plan)" in why.to_dot()
    assert "excluded by blocked(ada, plan)" in why.to_html()


def test_missing_link_is_named_through_all_levels() -> None:
    why = access().why("may_read", who="ada", doc="minutes")
    assert why.lacking[:2] == [
        ("in_group", {"who": "ada", "grp": "board"}),
        ("member", {"who": "ada", "grp": "board"}),
    ]
    assert ("nested", {"child": "staff", "parent": "board"}) in why.lacking
    assert ("granted", {"grp": "interns", "doc": "minutes"}) in why.lacking
    assert (
        "member has who = 'ada' with grp = 'contractors', 'interns'; member has grp = 'board' with who = 'bob'"
        in str(why)
    )
    assert why.blockers == []


def test_frontier_of_a_recursion_is_named_once() -> None:
    db = whence.open()
    db.execute("CREATE TABLE link (src INT, dst INT)")
    db.execute(
        "CREATE VIEW reachable AS SELECT src, dst FROM link "
        "UNION SELECT l.src, r.dst FROM link l JOIN reachable r ON l.dst = r.src"
    )
    db.insert("link", [(i, i + 1) for i in range(40)] + [(i, i + 1) for i in range(100, 103)])
    why = db.why("reachable", src=0, dst=103)
    assert why.missing is not None
    (first, second) = (way.lacking[0] for way in why.missing.ways)
    assert (first.count, second.count) == (41, 41 * 3)
    assert {row["dst"] for row in second.rows} <= {100, 101, 102}
    assert len(str(why).splitlines()) < 15


def test_value_that_no_row_has_is_no_error() -> None:
    why = access().why("may_read", who="nobody", doc="nothing")
    assert ("member", {"who": "nobody"}) in why.lacking
    assert "nobody" in str(why)


def test_follower_past_epoch_and_reopened_folder_answer_the_same(tmp_path: Path) -> None:
    """Each takes the answer from other state: the follower's replayed one, the past rebuilt, and the one restored."""
    with access(path=tmp_path, retain=10) as db, whence.open(tmp_path, read_only=True) as follower:
        before = db.why("may_read", who="ada", doc="plan")
        assert before.remedies
        assert str(follower.why("may_read", who="ada", doc="plan")) == str(before)
        db.delete("deny", [("contractors", "plan")])
        assert db.why("may_read", who="ada", doc="plan").holds
        assert follower.why("may_read", who="ada", doc="plan").holds
        for past in (db.at(before.epoch), follower.at(before.epoch)):
            why = past.why("may_read", who="ada", doc="plan")
            assert (str(why), why.remedies, why.blockers) == (str(before), before.remedies, before.blockers)
        empty = db.at(2).why("may_read", who="ada", doc="plan")
        assert ("granted", {"grp": "staff", "doc": "plan"}) in empty.lacking
        db.insert("deny", [("contractors", "plan")])
    with whence.open(tmp_path) as db:
        why = db.why("may_read", who="ada", doc="plan")
        assert why.remedies == before.remedies
        assert str(why).replace("epoch 6", "epoch 4") == str(before)
