"""Which row is meant, and the questions as users ask them, on every runtime."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import whence
from tests import inside
from whence.model.errors import CatalogError, DataError, WhenceError

SQL = """
    CREATE TABLE link (src TEXT, dst TEXT, p DOUBLE);
    CREATE TABLE unused (x INT);
    CREATE VIEW reachable AS
        SELECT src, dst FROM link
        UNION SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;
    CREATE VIEW degree AS SELECT src, COUNT(*) AS n FROM link GROUP BY src;
    CREATE VIEW loud AS SELECT shout(src) AS src FROM link
"""
LINKS = [("A", "B", 0.5), ("B", "C", 0.5), ("A", "C", 0.25), ("C", "D", 1.0)]


def setup(db: whence.Database) -> None:
    db.create_function("shout", lambda text: text.upper() + "!", args=["TEXT"], returns="TEXT")


def opened(**options: Any) -> whence.Database:
    db = whence.open(setup=setup, **options)
    db.execute(SQL)
    db.insert("link", LINKS)
    return db


@pytest.fixture(params=[{}, {"partitions": 2}], ids=["embedded", "partitions"])
def db(request: pytest.FixtureRequest) -> Any:
    found = opened(**request.param)
    yield found
    found.close()


def link(src: str, dst: str) -> tuple[str, dict[str, Any]]:
    return "link", next({"src": a, "dst": b, "p": p} for a, b, p in LINKS if (a, b) == (src, dst))


def test_why_on_every_runtime(db: whence.Database) -> None:
    why = db.why("reachable", src="A", dst="C")
    assert why.holds
    assert [sorted(row["src"] + row["dst"] for _, row in witness) for witness in why.witnesses] == [
        ["AC"],
        ["AB", "BC"],
    ]
    db.delete("link", [("A", "C", 0.25)])
    assert len(db.why("reachable", src="A", dst="C").witnesses) == 1
    assert db.why("loud", src="A!").base == [link("A", "B")]
    assert db.why("degree", src="A").row == {"src": "A", "n": 1}


def test_critical_resilience_contribution_reliability(db: whence.Database) -> None:
    assert db.critical("reachable", src="A", dst="D").rows == [link("C", "D")]
    assert db.critical("reachable").items()[0] == (link("C", "D"), 3)
    found = db.resilience("reachable", src="A", dst="C")
    assert (found.count, len(found.rows), found.exact) == (2, 2, True)
    shares = db.contribution("reachable", src="A", dst="C")
    assert shares[0] == link("A", "C")
    assert sum(shares.shapley) == pytest.approx(1)
    exact = db.reliability("reachable", src="A", dst="C", given={"link": "p"})
    assert exact.probability == pytest.approx(1 - 0.75 * 0.75)
    assert (exact.method, exact.exact) == ("exact", True)
    assert float(db.reliability("reachable", src="A", dst="C", given={})) == 1
    assert float(db.reliability("reachable", src="A", dst="C", given={"link": 0})) == 0
    for answer in (db.critical("reachable"), found, shares, exact):
        assert "reachable" in repr(answer)


def test_a_row_is_meant_by_as_many_columns_as_tell_it_apart() -> None:
    db = opened()
    assert db.why("reachable", {"SRC": "C"}).row == {"src": "C", "dst": "D"}
    assert db.why("reachable", ("C", "D")).row == {"src": "C", "dst": "D"}
    assert not db.why("reachable", src="never met", dst="D").holds
    assert not db.why("reachable", src=None, dst="D").holds
    for row, columns, kind, message in [
        (None, {"src": "A"}, DataError, r"3 rows of reachable match: \('A', 'B'\), .*; tell which one is meant by dst"),
        (None, {}, DataError, "say which row of reachable is meant, by some of its columns: src, dst"),
        (None, {"srx": "A"}, CatalogError, 'has no column "srx"; did you mean "src"'),
        (None, {"src": 3, "dst": "A"}, DataError, "column src: 3 .int. is not a value of type TEXT"),
        (("A",), {}, DataError, "a row of reachable has 2 values .src, dst., not 1"),
        ("AB", {}, DataError, "a row is a tuple or a mapping"),
        (("A", "B"), {"src": "A"}, DataError, "not both"),
    ]:
        with pytest.raises(kind, match=message):
            db.why("reachable", row, **columns)
    with pytest.raises(CatalogError, match='no table or view "reachble"; did you mean "reachable"'):
        db.why("reachble", src="A")
    with pytest.raises(DataError, match="reachable has no row with src = 'D'"):
        db.critical("reachable", src="D")


def test_critical_for_several_rows_says_how_many_were_asked_about() -> None:
    db = opened()
    found = db.critical("reachable", src="A")
    assert (found.of, found.row, found.where) == (3, None, {"src": "A"})
    assert found.items() == [(link("A", "B"), 1), (link("C", "D"), 1)]
    assert "critical for reachable where src = A" in repr(found)
    assert "takes along, of 3" in repr(found)
    alone = db.critical("reachable", src="A", dst="D")
    assert (alone.of, alone.where, alone.rows) == (1, None, [link("C", "D")])
    for row in ({"src": "A"}, {"dst": "D"}):
        with pytest.raises(DataError, match="3 rows of reachable match"):
            db.critical("reachable", row=row)
        with pytest.raises(DataError, match="3 rows of reachable match"):
            db.resilience("reachable", row=row)
    with pytest.raises(DataError, match="where is a mapping of columns to values, not 'A'"):
        db.critical("reachable", where="A")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="not both"):
        db.critical("reachable", ("A", "D"), where={"src": "A"})


def test_a_column_may_be_called_as_a_parameter_is() -> None:
    db = whence.open()
    db.execute('CREATE TABLE a ("row" INT, "limit" INT); CREATE VIEW b AS SELECT "row", "limit" FROM a')
    db.insert("a", [(1, 2), (2, 2)])
    assert db.why("b", row={"row": 1, "limit": 2}).holds
    assert db.critical("b", where={"limit": 2}).of == 2


def test_probabilities_are_checked() -> None:
    db = opened()
    db.insert("link", [("A", "X", None), ("A", "Y", 1.5)])
    for dst, given, message in [
        ("B", {"lnk": 0.5}, 'no table "lnk"; did you mean "link"'),
        ("B", {"link": 1.5}, "from 0 to 1, not 1.5"),
        ("B", {"link": "q"}, 'link has no column "q"'),
        ("B", {"link": "src"}, "link.src is TEXT"),
        ("X", {"link": "p"}, "NULL"),
        ("Y", {"link": "p"}, "from 0 to 1, not 1.5"),
    ]:
        with pytest.raises(WhenceError, match=message):
            db.reliability("reachable", src="A", dst=dst, given=given)


def test_the_past_can_be_asked(tmp_path: Path) -> None:
    with opened(path=tmp_path / "db", retain="all") as db:
        before = db.epoch
        db.delete("link", [("A", "C", 0.25)])
        past = db.at(before)
        assert len(past.why("reachable", src="A", dst="C").witnesses) == 2
        assert past.why("loud", src="A!").holds
        assert past.why("reachable", src="A", dst="C").epoch == before
        assert len(db.why("reachable", src="A", dst="C").witnesses) == 1


def test_a_twin_is_kept_while_nothing_changes() -> None:
    from whence.runtime.questions import provenance_queries as asking

    db = opened(partitions=2)
    db.why("reachable", src="A", dst="C")
    (first,) = asking._TWINS[inside.coordinator(db)].catalogs.values()
    db.why("reachable", src="A", dst="B")
    (again,) = asking._TWINS[inside.coordinator(db)].catalogs.values()
    assert first is again
    assert "unused" not in first.program.tables
    db.insert("link", [("D", "E", 1.0)])
    assert db.why("reachable", src="A", dst="E").holds
    db.close()


def test_beside_a_writer_every_answer_is_of_one_epoch() -> None:
    db = opened()
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            with db.transaction():
                db.delete("link", [("A", "B", 0.5), ("B", "C", 0.5)])
            with db.transaction():
                db.insert("link", [("A", "B", 0.5), ("B", "C", 0.5)])

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(200):
            assert len(db.why("reachable", src="A", dst="C").witnesses) in (1, 2)
    finally:
        stop.set()
        thread.join()
