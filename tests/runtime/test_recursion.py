"""Recursive views through the public API: declared in any order, replaced, dropped, limited, undone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import whence
from whence.model.errors import CatalogError, NotStratifiable, RecursionLimitError, SqlError

EXAMPLES = Path(__file__).parents[2] / "examples"
REACHABLE = """
    CREATE TABLE link (src TEXT, dst TEXT);
    CREATE VIEW reachable AS
      SELECT src, dst FROM link
      UNION
      SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;
"""


@pytest.fixture
def db() -> Iterator[whence.Database]:
    with whence.open() as db:
        db.execute(REACHABLE)
        yield db


def closure(links: list[tuple[str, str]]) -> set[tuple[str, str]]:
    found = set(links)
    while more := {(a, d) for a, b in found for c, d in links if b == c} - found:
        found |= more
    return found


def test_reachable_follows_its_links_and_its_changes_add_up(db: whence.Database) -> None:
    rng = random.Random(7)
    feed, heard = db.changes("reachable"), set[tuple[str, str]]()
    links: list[tuple[str, str]] = []
    for _ in range(60):
        link = (rng.choice("ABCDE"), rng.choice("ABCDE"))
        if link in links:
            links.remove(link)
            assert db.delete("link", [link]) == 1
        else:
            links.append(link)
            db.insert("link", [link])
        rows = db["reachable"].rows
        assert len(rows) == len(set(rows))
        assert set(rows) == closure(links)
        for change in feed:
            (heard.add if change.sign > 0 else heard.remove)(change.row)
        assert heard == set(rows)


def test_a_view_over_existing_rows_in_either_order() -> None:
    with whence.open() as db:
        table, _, view = REACHABLE.partition(";")
        db.execute(table)
        db.insert("link", [("A", "B"), ("B", "A"), ("B", "C")])
        db.execute(view)
        assert set(db["reachable"]) == closure([("A", "B"), ("B", "A"), ("B", "C")])


def test_views_that_recurse_through_each_other_are_made_and_dropped_together(db: whence.Database) -> None:
    db.execute("""
        CREATE VIEW odd AS SELECT src, dst FROM link
          UNION SELECT link.src, even.dst FROM link JOIN even ON link.dst = even.src;
        CREATE VIEW even AS SELECT link.src, odd.dst FROM link JOIN odd ON link.dst = odd.src;
    """)
    db.insert("link", [("A", "B"), ("B", "C"), ("C", "D")])
    assert set(db["odd"]) == {("A", "B"), ("B", "C"), ("C", "D"), ("A", "D")}
    assert set(db["even"]) == {("A", "C"), ("B", "D")}
    assert "recursive with even" in db.explain("odd")
    with pytest.raises(CatalogError, match='even depends on "odd"'):
        db.execute("DROP VIEW odd")
    assert db.execute("DROP VIEW odd CASCADE").message == "dropped odd, even"
    db.delete("link", [("B", "C")])
    assert set(db["reachable"]) == {("A", "B"), ("C", "D")}


def test_with_recursive_is_a_view_nobody_lists(db: whence.Database) -> None:
    db.execute("""
        CREATE VIEW from_a AS WITH RECURSIVE r(n) AS (
          SELECT 'A' UNION SELECT link.dst FROM r JOIN link ON link.src = r.n
        ) SELECT n FROM r WHERE n <> 'A'
    """)
    db.insert("link", [("A", "B"), ("B", "C"), ("D", "E")])
    assert sorted(db["from_a"]) == [("B",), ("C",)]
    assert db.views == ["reachable", "from_a"]
    assert [row[0] for row in db.execute("SHOW VIEWS")] == ["reachable", "from_a"]
    db.execute("CREATE OR REPLACE VIEW from_a AS SELECT dst AS n FROM reachable WHERE src = 'A'")
    assert sorted(db["from_a"]) == [("B",), ("C",)]
    db.execute("DROP VIEW from_a")
    assert db.views == ["reachable"]


def test_replacing_a_recursive_view_and_what_stands_on_it(db: whence.Database) -> None:
    db.execute("CREATE VIEW reach_of AS SELECT src, COUNT(*) AS n FROM reachable GROUP BY src")
    db.insert("link", [("A", "B"), ("B", "C")])
    db.execute("CREATE OR REPLACE VIEW reachable AS SELECT src, dst FROM link")
    assert sorted(db["reach_of"]) == [("A", 1), ("B", 1)]
    db.insert("link", [("A", "C")])
    assert sorted(db["reach_of"]) == [("A", 2), ("B", 1)]


@pytest.mark.parametrize("policy", ["support", "dred"])
def test_a_recursion_without_end_is_stopped_and_undone(policy: str) -> None:
    with whence.open(recursion_limit=200) as db:
        db.execute(f"""
            CREATE TABLE start (x INT);
            CREATE VIEW n WITH (policy = '{policy}') AS
              SELECT x FROM start UNION SELECT x + 2 FROM n WHERE x % 2 = 0 OR x < 9;
            CREATE VIEW size AS SELECT COUNT(*) AS n FROM n;
        """)
        db.insert("start", (1,))
        before = (sorted(db["n"].rows), db["size"].rows, db.epoch)
        with pytest.raises(RecursionLimitError, match="n") as error:
            db.insert("start", [(3,), (2,)])
        assert "2" in str(error.value)
        assert (sorted(db["n"].rows), db["size"].rows, db.epoch) == before
        assert sorted(db["n"]) == [(1,), (3,), (5,), (7,), (9,)]
        db.insert("start", (5,))
        assert db["size"].rows == [(5,)]


def test_what_cannot_be_ordered_into_strata_is_refused(db: whence.Database) -> None:
    with pytest.raises(NotStratifiable, match="p"):
        db.execute("""
            CREATE VIEW p AS SELECT src FROM link WHERE src NOT IN (SELECT src FROM q);
            CREATE VIEW q AS SELECT src FROM link WHERE src NOT IN (SELECT src FROM p);
        """)
    with pytest.raises(SqlError, match="policy"):
        db.execute("CREATE VIEW r WITH (policy = 'luck') AS SELECT src FROM link UNION SELECT src FROM r")
    assert db.views == ["reachable"]
    db.insert("link", [("A", "B")])
    assert db["reachable"].rows == [("A", "B")]


def test_an_insert_may_read_a_recursive_view(db: whence.Database) -> None:
    db.insert("link", [("A", "B"), ("B", "C")])
    assert db.execute("INSERT INTO link SELECT dst, src FROM reachable").count == 3
    assert len(db["reachable"]) == 9


@pytest.mark.parametrize("name", ["network", "access"])
def test_the_examples_run(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with whence.open() as db:
        db.execute((EXAMPLES / f"{name}.sql").read_text())
        assert db.views
    code = compile((EXAMPLES / f"{name}.py").read_text(), f"{name}.py", "exec")
    exec(code, {"__name__": "__main__", "__file__": str(EXAMPLES / f"{name}.py")})
    assert capsys.readouterr().out


@pytest.mark.parametrize("policy", ["support", "dred"])
def test_what_came_in_many_epochs_comes_back_in_one(policy: str) -> None:
    """The way back from a refused epoch may be longer than any epoch may be."""
    db = whence.open()
    db.execute(f"""
        CREATE TABLE e (a INT, b INT);
        CREATE VIEW r WITH (recursion_rows = 60, policy = '{policy}') AS
          SELECT a, b FROM e UNION SELECT r.a, e.b FROM r JOIN e ON r.b = e.a""")
    for start in range(0, 500, 100):
        db.insert("e", [(start + i, start + i + 1) for i in range(6)])
    links, pairs = sorted(db["e"]), sorted(db["r"])
    with pytest.raises(whence.RecursionLimitError, match="view r does not end"):
        db.insert("e", [(1000 + i, 1001 + i) for i in range(30)])
    assert (sorted(db["e"]), sorted(db["r"])) == (links, pairs)
    db.insert("e", [(2000, 2001)])
    assert sorted(db["r"]) == [*pairs, (2000, 2001)]


@pytest.mark.parametrize("policy", ["support", "dred"])
def test_an_epoch_undone_for_another_view_ignores_the_limit_on_the_way_back(policy: str) -> None:
    db = whence.open()
    db.execute(f"""
        CREATE TABLE s (a INT); CREATE TABLE e (a INT, b INT); CREATE TABLE x (v BIGINT);
        CREATE VIEW r WITH (recursion_limit = 5, policy = '{policy}') AS
          SELECT a FROM s UNION SELECT e.b FROM r JOIN e ON r.a = e.a;
        CREATE VIEW z AS SELECT SUM(x.v) AS s, COUNT(*) AS n FROM x, (SELECT COUNT(*) AS n FROM r) q""")
    db.insert("s", [(1,)])
    db.insert("e", [(1, 5), (5, 6)])
    db.insert("e", [(1, 2), (2, 3), (3, 4), (4, 5)])
    db.insert("x", [(2**62,)])
    before = [sorted(db[name]) for name in ("e", "x", "r", "z")]

    def overflow() -> None:
        with db.transaction():
            db.delete("e", [(1, 5), (5, 6)])
            db.insert("x", [(2**62,), (2**62,)])

    with pytest.raises(whence.EvaluationError):
        overflow()
    assert [sorted(db[name]) for name in ("e", "x", "r", "z")] == before


def test_two_hundred_views_recurse_together() -> None:
    views = 200
    db = whence.open()
    steps = [f"CREATE VIEW v{i} AS SELECT e.a, w.b FROM e JOIN v{i - 1} AS w ON e.b = w.a" for i in range(1, views)]
    first = f"CREATE VIEW v0 AS SELECT a, b FROM e UNION SELECT e.a, w.b FROM e JOIN v{views - 1} AS w ON e.b = w.a"
    db.execute(";".join(["CREATE TABLE e (a INT, b INT)", first, *steps]))
    db.insert("e", [(i, i + 1) for i in range(views + 5)])
    assert sorted(db[f"v{views - 1}"]) == [(i, i + views) for i in range(6)]
    db.delete("e", [(views + 4, views + 5)])
    assert sorted(db[f"v{views - 1}"]) == [(i, i + views) for i in range(5)]
