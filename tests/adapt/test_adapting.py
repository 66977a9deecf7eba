"""Running joins follow data that drifts, and stay as they are while it does not."""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest

import whence
from tests.adapt.random_plans import joins_of
from whence.adapt.policy import SwitchPolicy
from whence.runtime.adaptation import Adaptation

TABLES = "CREATE TABLE a (k INT, g INT); CREATE TABLE b (k INT, x INT); CREATE TABLE c (g INT, y INT);"
QUERY = "SELECT a.k, a.g, b.x, c.y FROM a, c, b WHERE a.g = c.g AND a.k = b.k"


def database(mode: str, **policy: float) -> tuple[whence.Database, Adaptation]:
    """Return a database that looks at its joins after every epoch, each of which takes a second."""
    db = whence.open()
    db.execute(f"{TABLES} CREATE VIEW v WITH (adapt = '{mode}') AS {QUERY}")
    adaptation, seconds = db._coordinator.adaptation, count()
    adaptation.policy = SwitchPolicy(share=1e9, probe_seconds=1e-7, **policy)
    adaptation.clock = lambda: float(next(seconds))
    with db.transaction():
        db.insert("a", [(i % 30, i % 30) for i in range(300)])
        db.insert("b", [(i, i) for i in range(300)])
        db.insert("c", [(i % 30, i) for i in range(300)])
    return db, adaptation


def epochs(db: whence.Database, number: int) -> None:
    """Change rows of `a`, such that its contents stay alike."""
    for each in range(number):
        rows = [((each + i) % 30, (each + i) % 30) for i in range(40)]
        db.insert("a", rows)
        db.delete("a", rows)


def drift(db: whence.Database) -> None:
    """Let a key of `b` have ten rows, and one of `c` one, where it was the other way round; as many rows as before."""
    for first in range(0, 300, 100):
        with db.transaction():
            part = range(first, first + 100)
            db.delete("b", [(i, i) for i in part])
            db.insert("b", [(i % 30, i) for i in part])
            db.delete("c", [(i % 30, i) for i in part])
            db.insert("c", [(i, i) for i in part])


def test_join_is_switched_when_the_best_plan_is_another() -> None:
    db, adaptation = database("on")
    with db:
        epochs(db, 6)
        (join,) = joins_of(db, "v")
        assert join.plan[0] == (2, 1), "one row of b, ten of c"
        assert adaptation.switches == 0
        drift(db)
        epochs(db, 20)
        assert join.plan[0] == (1, 2), "one row of c, ten of b"
        assert adaptation.switches >= 1
        last = adaptation.history.of([join.fingerprint])[-1]
        assert last.taken
        assert "less work: path of 1: 2, 3 at" in last.reason
        assert Counter(db["v"].rows) == Counter(db.query(QUERY).rows)


def test_join_is_left_alone_while_data_stays_alike() -> None:
    db, adaptation = database("on")
    with db:
        epochs(db, 6)
        (join,) = joins_of(db, "v")
        plan, searches, looks = join.plan, adaptation.metrics()["searches"], adaptation.looks
        epochs(db, 30)
        assert adaptation.looks - looks == 60
        assert adaptation.metrics()["searches"] == searches, "within the margin nothing is searched"
        assert (join.plan, adaptation.switches) == (plan, 0)


def test_advice_is_noted_once_and_not_followed() -> None:
    db, adaptation = database("advise")
    with db:
        epochs(db, 6)
        (join,) = joins_of(db, "v")
        drift(db)
        before = join.plan
        epochs(db, 20)
        noted = adaptation.history.of([join.fingerprint])
        assert noted
        assert not any(entry.taken for entry in noted)
        assert len({entry.after for entry in noted}) == len(noted)
        assert join.plan == before
        assert any("would have switched" in line for line in db.explain("v").splitlines())


def test_switch_that_does_not_pay_is_not_made() -> None:
    db, adaptation = database("on", switch_seconds=1e6)
    with db:
        epochs(db, 6)
        drift(db)
        epochs(db, 20)
        assert adaptation.switches == 0


def test_switch_waits_for_indexes_that_are_built_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a triangle another order looks other columns up: an index grows over some epochs, then the join switches."""
    monkeypatch.setattr("whence.runtime.adaptation._FEW_ROWS", 100)
    monkeypatch.setattr("whence.adapt.switch.LEAST", 64)
    db, adaptation = database("off")
    query = "SELECT a.k, a.g, b.x FROM a, b, c WHERE a.k = b.k AND a.g = c.g AND b.x = c.y"
    with db:
        db.execute(f"CREATE VIEW w WITH (adapt = 'on') AS {query}")
        adaptation.policy = SwitchPolicy(share=1e9, probe_seconds=1e-7, build_seconds=1e-12)
        epochs(db, 6)
        (join,) = joins_of(db, "w")
        assert join.plan[0] == (1, 2), "one row of b, ten of c"
        drift(db)
        waited, indexes = 0, db._coordinator.catalog.flow.tables["b"].relation.indexes
        monkeypatch.setattr("whence.adapt.switch.MOST", 64)
        for _ in range(30):
            epochs(db, 1)
            waited += adaptation.metrics()["pending"]
            assert ((0, 1) in indexes) == (join.plan[0] == (2, 1)), "used when it is whole, and not before"
            assert Counter(db["w"].rows) == Counter(db.query(query).rows)
        assert join.plan[0] == (2, 1)
        assert waited > 1
