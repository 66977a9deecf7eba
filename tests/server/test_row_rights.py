"""Row rights of writers: nobody changes, deletes, counts or lengthens the life of another's rows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import whence
from tests.oracle import assert_rows
from whence.server.access.rights import Rights
from whence.sql.parse import parse_one

Row = tuple[Any, ...]
SCHEMA = """
    CREATE TABLE keyed (id INT PRIMARY KEY, owner TEXT, n INT);
    CREATE TABLE bag (id INT, owner TEXT);
    CREATE STREAM log (id INT, owner TEXT);
    CREATE TABLE soft (id INT, owner TEXT) WITH (ttl = '60 seconds');
    CREATE TABLE project (id INT PRIMARY KEY, owner TEXT);
    CREATE TABLE task (id INT PRIMARY KEY, project INT, text TEXT);
    CREATE TABLE notice (id INT PRIMARY KEY, owner TEXT);
    CREATE TABLE allowed (who TEXT, name TEXT, what TEXT)
"""
OWN = "insert where owner = :who"
ALLOWED = [
    *(("*", name, OWN) for name in ("keyed", "bag", "log", "soft", "project")),
    ("*", "task", "insert where project IN (SELECT id FROM project WHERE project.owner = :who)"),
    ("*", "notice", "read"),
    ("*", "notice", OWN),
    ("root", "*", "define"),
]
KEYED = [(1, "ann", 1), (2, "bob", 2), (3, None, 3)]


class Case:
    """A database, its rights, and a clock."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.db = whence.open(clock=lambda: self.now)
        self.db.execute(SCHEMA)
        self.db.insert("allowed", ALLOWED)
        self.db.insert("keyed", KEYED)
        self.db.insert("bag", [(1, "ann"), (1, "ann"), (2, "bob")])
        self.db.insert("soft", [(1, "ann"), (2, "bob")])
        self.db.insert("project", [(1, "ann"), (2, "bob")])
        self.db.insert("task", [(10, 1, "a"), (20, 2, "b")])
        self.db.insert("notice", [(1, "ann"), (2, "bob")])
        self.rights = Rights(self.db)

    def do(self, who: str, write: Callable[[whence.Database], int]) -> int:
        """Write as a caller, as the write queue does: in a savepoint of a transaction that others write to."""
        return self.rights.guarded(who, write)(self.db)

    def refused(self, who: str, write: Callable[[whence.Database], int], table: str) -> None:
        """The write is forbidden, says only of which table, and changes nothing."""
        before, epoch = self.everything(), self.db.epoch
        with pytest.raises(whence.ForbiddenError) as error:
            self.do(who, write)
        assert str(error.value) == f'you may not write these rows of "{table}"'
        assert (self.everything(), self.db.epoch) == (before, epoch)

    def everything(self) -> dict[str, list[Row]]:
        names = [*self.db.tables, *self.db.streams]
        return {name: sorted(self.db[name].rows, key=str) for name in names} | {
            f"owed {name}": sorted(self.db.owed(name).rows, key=str) for name in self.db.tables
        }


@pytest.fixture
def case() -> Iterator[Case]:
    found = Case()
    yield found
    found.db.close()


def test_own_rows_are_written_freely(case: Case) -> None:
    assert case.do("ann", lambda db: db.insert("keyed", [(7, "ann", 1), (1, "ann", 9)])) == 2
    assert case.do("ann", lambda db: db.update("keyed", {"n": 5}, {"id": 7})) == 1
    assert case.do("ann", lambda db: db.delete("keyed", key=7)) == 1
    assert case.do("ann", lambda db: db.insert("log", [(1, "ann"), (2, "ann")])) == 2
    assert case.do("ann", lambda db: db.delete("bag", (1, "ann"))) == 1
    assert case.db["keyed"].rows == [(2, "bob", 2), (3, None, 3), (1, "ann", 9)]


@pytest.mark.parametrize(
    ("write", "table"),
    [
        (lambda db: db.insert("keyed", (7, "bob", 1)), "keyed"),
        (lambda db: db.insert("keyed", [(7, "ann", 1), (8, "bob", 1)]), "keyed"),
        (lambda db: db.insert("keyed", (7, None, 1)), "keyed"),
        (lambda db: db.insert("keyed", (2, "ann", 1)), "keyed"),  # the key of another's row
        (lambda db: db.insert("keyed", (3, "ann", 1)), "keyed"),
        (lambda db: db.insert("keyed", [(2, "ann", 1), (2, "bob", 2)]), "keyed"),  # that ends as it was
        (lambda db: db.insert("keyed", [(2, "bob", 2, "-"), (2, "bob", 2, "+")], op="op"), "keyed"),
        (lambda db: db.insert("keyed", [(2, None, None, "-")], op="op"), "keyed"),
        (lambda db: db.update("keyed", {"owner": "bob"}, {"id": 1}), "keyed"),
        (lambda db: db.update("keyed", {"owner": None}), "keyed"),
        (lambda db: db.insert("bag", (2, "bob")), "bag"),
        (lambda db: db.insert("bag", [(2, "bob", "-")], op="op"), "bag"),
        (lambda db: db.delete("bag", (9, "bob"), early="hold"), "bag"),  # whose next insertion would vanish
        (lambda db: db.delete("bag", (2, "bob"), early="hold"), "bag"),  # which is not there for ann
        (lambda db: db.insert("log", (1, "bob")), "log"),
        (lambda db: db.insert("soft", (2, "bob")), "soft"),  # which would live on
        (lambda db: db.insert("task", (11, 2, "x")), "task"),
        (lambda db: db.insert("task", (20, 1, "x")), "task"),
        (lambda db: db.insert("task", (30, 7, "x")), "task"),
        (lambda db: db.update("task", {"project": 2}, key=10), "task"),
        (lambda db: db.insert("notice", (2, "ann")), "notice"),
        (lambda db: db.delete("notice", key=2), "notice"),  # it is seen, and not one's own
        (lambda db: db.update("notice", {"owner": "ann"}), "notice"),
        (lambda db: db.insert("allowed", ("ann", "*", "define")), "allowed"),
        (lambda db: db.insert("task", (11, 2, "x")) + db.insert("project", (9, "ann")), "task"),
    ],
)
def test_rows_of_others_are_not_written(case: Case, write: Callable[[whence.Database], int], table: str) -> None:
    case.refused("ann", write, table)


@pytest.mark.parametrize(
    ("write", "count"),
    [
        (lambda db: db.delete("keyed", key=2), 0),
        (lambda db: db.delete("keyed", key=[1, 2, 3]), 1),
        (lambda db: db.delete("keyed", where={"owner": "bob"}), 0),
        (lambda db: db.delete("keyed", where="n > 0"), 1),
        (lambda db: db.delete("keyed", where="owner = 'bob' OR TRUE"), 1),
        (lambda db: db.delete("keyed", (2, "bob", 2)), 0),
        (lambda db: db.delete("keyed", {"id": 2}), 0),
        (lambda db: db.delete("bag", [(2, "bob"), (1, "ann"), (1, "ann"), (1, "ann")]), 2),
        (lambda db: db.execute("DELETE FROM keyed").count, 1),
        (lambda db: db.execute("DELETE FROM bag WHERE id < 5").count, 2),
        (lambda db: db.execute("UPDATE keyed SET n = 7").count, 1),
        (lambda db: db.execute("UPDATE keyed SET n = n + 1 WHERE owner = 'bob'").count, 0),
        (lambda db: db.update("keyed", {"n": 7}), 1),
        (lambda db: db.update("keyed", {"n": 7}, key=2), 0),
        (lambda db: db.delete("task", key=[10, 20]), 1),
        (lambda db: db.delete("task", where="text = 'b'"), 0),
        (lambda db: db.forgive("bag"), 0),
    ],
)
def test_rows_of_others_are_not_there_to_be_changed(
    case: Case, write: Callable[[whence.Database], int], count: int
) -> None:
    case.db.delete("bag", (5, "bob"), early="hold")
    assert case.do("ann", write) == count
    assert (2, "bob", 2) in case.db["keyed"].rows
    assert (2, "bob") in case.db["bag"].rows
    assert (20, 2, "b") in case.db["task"].rows
    assert case.db.owed("bag").rows == [(5, "bob")]


@pytest.mark.parametrize("missing", [(2, "bob", 2), (8, "zoe", 8)])
def test_error_of_a_hidden_row_is_that_of_a_missing_one(case: Case, missing: Row) -> None:
    with pytest.raises(whence.MissingRowError) as error:
        case.do("ann", lambda db: db.delete("keyed", missing, strict=True))
    assert str(error.value) == f"table keyed: no row {missing} to delete"
    with pytest.raises(whence.MissingRowError):
        case.do("ann", lambda db: db.delete("keyed", key=missing[0], strict=True))


def test_error_of_a_key_that_is_taken_does_not_show_the_row(case: Case) -> None:
    with pytest.raises(whence.DataError) as error:
        case.do("ann", lambda db: db.update("keyed", {"id": 2}, {"id": 1}))
    assert "bob" not in str(error.value)
    assert case.db["keyed"].rows == KEYED


def test_own_deletion_that_is_held_is_allowed_and_paid(case: Case) -> None:
    assert case.do("ann", lambda db: db.delete("bag", (9, "ann"), early="hold")) == 0
    assert case.db.owed("bag").rows == [(9, "ann")]
    assert case.do("ann", lambda db: db.insert("bag", (9, "ann"))) == 1
    assert case.db.owed("bag").rows == []


def test_condition_is_of_before_for_what_goes_and_of_after_for_what_comes(case: Case) -> None:
    def both(db: whence.Database) -> int:
        return db.insert("project", (5, "ann")) + db.insert("task", (50, 5, "x"))

    def neither(db: whence.Database) -> int:
        return db.delete("project", key=5) + db.delete("task", key=50)

    assert case.do("ann", both) == 2
    case.refused("ann", lambda db: db.delete("project", key=5) + db.insert("task", (51, 5, "y")), "task")
    assert case.do("ann", lambda db: db.delete("task", key=50) + db.delete("project", key=5)) == 2
    assert case.do("ann", both) == 2
    assert case.do("ann", neither) == 1  # its task is not seen any more when it would be deleted
    assert case.db.query("SELECT id FROM task WHERE project = 5").rows == [(50,)]


def test_writers_of_one_epoch_do_not_lend_each_other_rights(case: Case) -> None:
    """As in the write queue: several writes, each in a savepoint of one transaction."""
    db, failed = case.db, []
    with db.transaction():
        for who, write in [
            ("bob", lambda db: db.insert("keyed", (50, "bob", 1))),
            ("ann", lambda db: db.insert("keyed", (50, "ann", 1))),  # of the same epoch, and bob's
            ("ann", lambda db: db.delete("keyed", key=50)),
            ("bob", lambda db: db.insert("project", (60, "bob"))),
            ("ann", lambda db: db.insert("task", (61, 60, "mine"))),
            ("bob", lambda db: db.insert("task", (62, 60, "bob's"))),
            ("ann", lambda db: db.insert("keyed", (51, "ann", 1))),
        ]:
            try:
                case.do(who, write)
            except whence.ForbiddenError:
                failed.append(who)
        db.insert("keyed", (52, "root", 1))  # the server's own
    assert failed == ["ann", "ann"]
    assert sorted(db["keyed"].rows, key=str)[-3:] == [(50, "bob", 1), (51, "ann", 1), (52, "root", 1)]
    assert sorted(row[0] for row in db["task"].rows) == [10, 20, 62]


def test_whoever_may_write_everything_is_not_looked_at(case: Case) -> None:
    assert case.rights.writes_freely("root", "keyed")
    assert not case.rights.writes_freely("ann", "keyed")
    assert not case.rights.writes_freely("ann", "notice")
    assert case.do("root", lambda db: db.delete("keyed", where="TRUE")) == 3


def test_rights_are_those_of_the_moment_of_the_write(case: Case) -> None:
    write = case.rights.guarded("ann", lambda db: db.insert("keyed", (7, "ann", 1)))
    case.db.delete("allowed", where={"name": "keyed"})
    with pytest.raises(whence.ForbiddenError):
        write(case.db)


def test_expiry_in_the_transaction_of_a_caller_is_not_theirs(case: Case) -> None:
    case.now += 61
    assert case.do("ann", lambda db: db.insert("soft", (3, "ann"))) == 1
    assert case.db["soft"].rows == [(3, "ann")]


def test_checked_statement_is_carried_out(case: Case) -> None:
    statement = case.rights.check_statement("ann", parse_one("DELETE FROM keyed WHERE n < 100"))
    assert case.do("ann", lambda db: db.execute(statement.sql).count) == 1


def test_many_rows_with_a_condition_over_another_table(case: Case) -> None:
    rows = [(i, 1, "x") for i in range(1_000, 26_000)]
    assert case.do("ann", lambda db: db.insert("task", rows)) == 25_000
    case.refused("ann", lambda db: db.insert("task", [*((i + 50_000, 1, "") for i, _, _ in rows), (99, 2, "")]), "task")


# -- at random ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_random_writes_are_those_of_a_database_of_ones_own(seed: int) -> None:
    """Two callers write at random. Each has a database of their own rows; both together are the one that they share.
    A write is refused there only if it takes a key that the other has, or makes a row that is not theirs."""
    rng, case = random.Random(seed), Case()
    own = {who: whence.open() for who in ("ann", "bob")}
    for who, db in own.items():
        db.execute("CREATE TABLE keyed (id INT PRIMARY KEY, owner TEXT, n INT); CREATE TABLE bag (id INT, owner TEXT)")
        for name in ("keyed", "bag"):
            db.insert(name, [row for row in case.db[name].rows if row[1] == who])
    for _ in range(60):
        who = rng.choice(("ann", "bob"))
        write, taken, theirs = _random_write(rng, who)
        other = own["bob" if who == "ann" else "ann"]
        collides = any(other.query("SELECT 1 FROM keyed WHERE id = ?", [key]).rows for key in taken) or 3 in taken
        try:
            count = case.do(who, write)
        except whence.ForbiddenError:
            assert collides or theirs
            continue
        except whence.DataError:
            with pytest.raises(whence.DataError):
                write(own[who])
            continue
        assert not collides
        assert not theirs
        assert count == write(own[who])
        for name in ("keyed", "bag"):
            both = [*own["ann"][name].rows, *own["bob"][name].rows, *([(3, None, 3)] if name == "keyed" else [])]
            assert_rows(case.db[name].rows, both, name)
    for db in (case.db, *own.values()):
        db.close()


def _random_write(rng: random.Random, who: str) -> tuple[Callable[[whence.Database], int], list[int], bool]:
    """Return a write, the keys that it takes, and whether it makes rows of another."""
    key, other = rng.randrange(8), "bob" if who == "ann" else "ann"
    match rng.randrange(9):
        case 0:
            rows = [(rng.randrange(8), who, rng.randrange(4)) for _ in range(rng.randrange(1, 4))]
            return lambda db: db.insert("keyed", rows), [row[0] for row in rows], False
        case 1:
            return lambda db: db.insert("keyed", (key, other, 1)), [], True
        case 2:
            return lambda db: db.delete("keyed", key=key), [], False
        case 3:
            return lambda db: db.delete("keyed", where=f"n >= {key % 4}"), [], False
        case 4:
            return lambda db: db.update("keyed", {"n": 1}, where=f"id < {key}"), [], False
        case 5:
            rows = [(rng.randrange(4), who) for _ in range(rng.randrange(1, 5))]
            return lambda db: db.insert("bag", rows), [], False
        case 6:
            gone = [(rng.randrange(4), rng.choice((who, other))) for _ in range(3)]
            return lambda db: db.delete("bag", gone), [], False
        case 7:
            return lambda db: db.execute(f"UPDATE bag SET id = id + 1 WHERE id = {key % 4}").count, [], False
        case _:
            return lambda db: db.execute(f"DELETE FROM bag WHERE owner = '{other}' OR id = {key}").count, [], False
