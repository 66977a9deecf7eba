"""What is said of a missing row, held against the views themselves: rows that exclude are there, rows that are missing
are not, and a change that is said to suffice makes the row appear."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import whence
from tests.property.test_random_programs import DOMAIN, Case, cases, profile
from whence.explain.missing import MissingRows, Remedy
from whence.model.errors import WhenceError

ACCESS = """
    CREATE TABLE member (who INT, grp INT);
    CREATE TABLE nested (child INT, parent INT);
    CREATE TABLE granted (grp INT, doc INT);
    CREATE TABLE deny (grp INT, doc INT);
    CREATE TABLE level (grp INT PRIMARY KEY, n INT NOT NULL);
    CREATE VIEW in_group AS SELECT who, grp FROM member
        UNION SELECT g.who, n.parent FROM in_group g JOIN nested n ON n.child = g.grp;
    CREATE VIEW blocked AS SELECT g.who, d.doc FROM in_group g JOIN deny d ON d.grp = g.grp;
    CREATE VIEW may AS SELECT DISTINCT g.who, t.doc FROM in_group g JOIN granted t ON t.grp = g.grp
        WHERE NOT EXISTS (SELECT 1 FROM blocked b WHERE b.who = g.who AND b.doc = t.doc);
    CREATE VIEW may_too AS SELECT g.who, t.doc FROM in_group g JOIN granted t ON t.grp = g.grp
        EXCEPT SELECT who, doc FROM blocked;
    CREATE VIEW never_denied AS SELECT g.who, t.doc FROM in_group g JOIN granted t ON t.grp = g.grp
        LEFT JOIN deny d ON d.grp = g.grp AND d.doc = t.doc WHERE d.grp IS NULL;
    CREATE VIEW through AS SELECT n.child, n.parent FROM nested n
        UNION SELECT a.child, b.parent FROM through a JOIN through b ON a.parent = b.child
        WHERE NOT EXISTS (SELECT 1 FROM deny WHERE deny.grp = a.parent);
    CREATE VIEW outside AS SELECT who, grp FROM member WHERE grp NOT IN (SELECT grp FROM deny);
    CREATE VIEW reads AS SELECT may.who, l.n FROM may JOIN in_group g ON g.who = may.who JOIN level l ON l.grp = g.grp
        WHERE l.n > 1;
    CREATE VIEW busy AS SELECT who, COUNT(*) AS n FROM may GROUP BY who HAVING COUNT(*) > 1;
    CREATE VIEW idle AS SELECT who FROM member EXCEPT SELECT who FROM busy;
"""
_PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=5)


def goals(missing: MissingRows) -> Iterator[MissingRows]:
    return (goal for goal in missing.walk() if not goal.where)


def matches(row: tuple[Any, ...], names: list[str], known: dict[str, Any]) -> bool:
    return all(row[names.index(column)] == value for column, value in known.items())


def filled(db: whence.Database, remedy: Remedy) -> tuple[Any, ...]:
    """The row of a remedy; columns that may be anything are something."""
    types = {str(c.name): str(c.type) for c in db[remedy.table].schema.columns}
    return tuple(
        remedy.row[c] if c in remedy.row else next((v for v in DOMAIN.get(t, [7]) if v is not None), 7)
        for c, t in types.items()
    )


def check(db: whence.Database, view: str, row: tuple[Any, ...]) -> int:
    """Hold one answer against the views; return how many changes it names."""
    why = db.why(view, row=row)
    assert not why.holds
    assert why.reasons
    assert why.missing is not None
    assert str(why)
    why.to_json()
    names = list(db[view].columns)
    for goal in goals(why.missing):
        if goal.relation in (*db.tables, *db.views):
            columns, there = list(db[goal.relation].columns), list(db[goal.relation])
            for known in goal.rows:
                assert not any(matches(r, columns, known) for r in there), (goal.label, str(why))
    for goal in why.missing.walk():
        for graph, node in (x for way in goal.ways for x in way.excluded_by):
            name = graph.relations[graph.relation[node]].name
            if graph.kind(node) in ("base", "view"):
                assert tuple(graph.row(node).values()) in db[name]
    for remedy in why.remedies:
        apply(db, remedy)
        there = any(matches(r, names, dict(zip(names, row, strict=True))) for r in db[view])
        apply(db, Remedy("delete" if remedy.action == "insert" else "insert", remedy.table, remedy.row))
        assert there, (str(remedy), str(why))
    return len(why.remedies)


def apply(db: whence.Database, remedy: Remedy) -> None:
    (db.insert if remedy.action == "insert" else db.delete)(remedy.table, [filled(db, remedy)])


@profile(12)
@given(_PAIRS, _PAIRS, _PAIRS, st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=2))
def test_denials(member: list[Any], nested: list[Any], granted: list[Any], deny: list[Any]) -> None:
    db = whence.open()
    db.execute(ACCESS)
    for table, rows in {"member": member, "nested": nested, "granted": granted, "deny": deny}.items():
        db.insert(table, list(dict.fromkeys(rows)))
    db.insert("level", [(0, 1), (2, 3)])
    for view in db.views:
        wide = len(db[view].columns)
        for row in product(range(3), repeat=wide):
            if row not in db[view]:
                check(db, view, row)


@profile(60)
@given(cases(recursive=True), st.data())
def test_random_programs(case: Case, data: st.DataObject) -> None:
    db = whence.open()
    try:
        db.execute(case.sql)
        with db.transaction():
            for table, row in dict.fromkeys((t, r) for t, r, sign in case.batches[0] if sign > 0):
                db.insert(table, [row])
    except WhenceError:
        return
    for view in db.views:
        types = [str(c.type) for c in db[view].schema.columns]
        for _ in range(3):
            row = tuple(data.draw(st.sampled_from(DOMAIN.get(t, [None, 1]))) for t in types)
            try:
                if row not in db[view]:
                    check(db, view, row)
            except WhenceError:
                return
