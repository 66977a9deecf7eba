"""Many threads on one database at once: writers, some of whom fail, readers, feeds, ad-hoc queries and changes of the
catalog. Nobody sees half an epoch, nothing acknowledged is lost, nothing refused is kept."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import whence

SECONDS = 3.0
ACCOUNTS = 8
SCHEMA = """
    CREATE TABLE debit (account INT, amount BIGINT);
    CREATE TABLE credit (account INT, amount BIGINT);
    CREATE TABLE link (src INT, dst INT);
    CREATE VIEW balance AS
      SELECT account, SUM(amount) AS amount FROM (
        SELECT account, amount FROM credit UNION ALL SELECT account, -amount AS amount FROM debit
      ) AS entry GROUP BY account;
    CREATE VIEW total AS SELECT SUM(amount) AS amount FROM balance;
    CREATE VIEW reach AS
      SELECT src, dst FROM link UNION SELECT link.src, reach.dst FROM link JOIN reach ON link.dst = reach.src;
    CREATE VIEW checked AS SELECT 100 // (amount - 13) AS x FROM debit;
"""


class OnPurposeError(Exception):
    """What a writer raises inside its transaction."""


class Crowd:
    """Threads that repeat what they do until the time is up; what any of them raises fails the test."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.failures: list[BaseException] = []
        self.turns: Counter[str] = Counter()
        self._threads: list[threading.Thread] = []

    def add(self, turn: Callable[[random.Random], Any], name: str, seed: int = 0) -> None:
        def loop() -> None:
            chance = random.Random(f"{name} {seed}")
            try:
                while not self.stop.is_set():
                    turn(chance)
                    self.turns[name] += 1
            except BaseException as failure:
                self.failures.append(failure)
                self.stop.set()

        self._threads.append(threading.Thread(target=loop, name=f"{name} {seed}"))

    def run(self, seconds: float) -> None:
        for thread in self._threads:
            thread.start()
        self.stop.wait(seconds)
        self.stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), f"{thread.name} hangs"
        if self.failures:
            raise self.failures[0]


class Bank:
    """Writers move money from one account to another, in two tables; what was acknowledged is kept beside."""

    def __init__(self, db: whence.Database) -> None:
        self.db = db
        self.acknowledged: Counter[tuple[int, int]] = Counter()  # (account, amount) of both tables, debits below zero
        self.links: Counter[tuple[int, int]] = Counter()
        self._lock = threading.Lock()

    def move(self, chance: random.Random) -> None:
        source, target, amount = chance.randrange(ACCOUNTS), chance.randrange(ACCOUNTS), chance.randrange(14, 100)
        with self.db.transaction():
            self.db.insert("debit", [(source, amount)])
            time.sleep(0)
            self.db.execute(f"INSERT INTO credit VALUES ({target}, {amount})")
        with self._lock:
            self.acknowledged[source, -amount] += 1
            self.acknowledged[target, amount] += 1

    def change_mind(self, chance: random.Random) -> None:
        with pytest.raises(OnPurposeError):
            self._write(("debit", (chance.randrange(ACCOUNTS), 1_000_000)), OnPurposeError())

    def fail(self, chance: random.Random) -> None:
        """Fails in the dataflow: a view divides by zero on it."""
        account = chance.randrange(ACCOUNTS)
        with pytest.raises(whence.EvaluationError):
            self._write(("credit", (account, 13)), ("debit", (account, 13)))

    def misfit(self, chance: random.Random) -> None:
        with pytest.raises(whence.DataError):
            self._write(("credit", (chance.randrange(ACCOUNTS), 1_000_000)), ("debit", ("no account", 1)))

    def _write(self, *steps: tuple[str, tuple[Any, ...]] | Exception) -> None:
        with self.db.transaction():
            for step in steps:
                if isinstance(step, Exception):
                    raise step
                self.db.insert(step[0], [step[1]])

    def relink(self, chance: random.Random) -> None:
        row = chance.randrange(6), chance.randrange(6)
        if chance.random() < 0.5:
            self.db.insert("link", [row])
            with self._lock:
                self.links[row] += 1
        elif self.db.delete("link", [row]):
            with self._lock:
                self.links[row] -= 1


def reachable(links: Counter[tuple[int, int]]) -> set[tuple[int, int]]:
    found = {link for link, count in links.items() if count > 0}
    while more := {(a, d) for a, b in found for c, d in found if b == c} - found:
        found |= more
    return found


def test_a_crowd_on_one_database() -> None:
    db = whence.open()
    db.execute(SCHEMA)
    bank, crowd = Bank(db), Crowd()
    for seed in range(3):
        crowd.add(bank.move, "move", seed)
    crowd.add(bank.change_mind, "change mind")
    crowd.add(bank.fail, "fail")
    crowd.add(bank.misfit, "misfit")
    crowd.add(bank.relink, "relink")  # one only: what it counts is what it deleted

    def ask(_: random.Random) -> None:
        both = db.query("SELECT (SELECT SUM(amount) FROM debit), (SELECT SUM(amount) FROM credit)").rows[0]
        assert both[0] == both[1], f"half an epoch: {both}"
        (left,) = db.query("SELECT coalesce(SUM(amount), 0)::BIGINT AS left FROM balance").rows[0]
        assert left == 0

    def read(chance: random.Random) -> None:
        assert db["total"].rows in ([(None,)], [(0,)])
        assert sum(amount for _, amount in db["balance"].rows) == 0
        chance.choice([db["reach"].to_arrow, db["debit"].to_dicts, db["balance"].to_pandas, db.state, db.metrics])()

    def declare(chance: random.Random) -> None:
        name = f"extra_{threading.get_ident()}"
        column = chance.choice(["account", "amount"])
        db.execute(f"CREATE OR REPLACE VIEW {name} AS SELECT {column}, COUNT(*) AS n FROM credit GROUP BY {column}")
        assert sum(n for _, n in db[name].rows) <= len(db["credit"])
        if chance.random() < 0.5:
            db.execute(f"DROP VIEW {name}")

    def blunder(chance: random.Random) -> None:
        wrong = [
            "SELECT nothing FROM debit",
            "CREATE VIEW w AS SELECT",
            "DROP VIEW balance",
            "INSERT INTO total VALUES (1)",
        ]
        with pytest.raises(whence.WhenceError):
            db.execute(chance.choice(wrong))

    for seed in range(2):
        crowd.add(ask, "ask", seed)
        crowd.add(read, "read", seed)
        crowd.add(declare, "declare", seed)
    crowd.add(blunder, "blunder")

    feeds = {name: (db.changes(name, snapshot=True), Counter[Any]()) for name in ("balance", "reach", "debit")}
    late: list[tuple[str, whence.Changes, Counter[Any]]] = []

    def follow(name: str) -> Callable[[random.Random], None]:
        feed, seen = feeds[name]
        last = [0]

        def turn(_: random.Random) -> None:
            for change in feed:
                assert change.epoch >= last[0]
                last[0] = change.epoch
                seen[change.row] += change.sign
            time.sleep(0.002)

        return turn

    def join_late(chance: random.Random) -> None:
        name = chance.choice(list(feeds))
        late.append((name, db.changes(name, snapshot=True), Counter()))
        time.sleep(0.2)

    for name in feeds:
        crowd.add(follow(name), f"follow {name}")
    crowd.add(join_late, "join late")
    crowd.run(SECONDS)

    assert all(
        crowd.turns[name] for name in ("move", "change mind", "fail", "misfit", "relink", "ask", "read", "declare")
    )
    entries = Counter({(a, -n): c for (a, n), c in Counter(db["debit"].rows).items()})
    entries.update(db["credit"].rows)
    assert entries == bank.acknowledged
    assert set(db["reach"].rows) == reachable(bank.links)
    for name, feed, seen in [*((n, *f) for n, f in feeds.items()), *late]:
        for change in feed:
            seen[change.row] += change.sign
        assert +seen == Counter(db[name].rows), name
        assert min(seen.values(), default=0) >= 0
    db.close()


def test_closing_while_others_are_at_work() -> None:
    """Whoever is in the middle of something ends with its answer or with an error of ours."""
    for seed in range(3):
        db = whence.open()
        db.execute(SCHEMA)
        bank, crowd = Bank(db), Crowd()

        def gently(act: Callable[[random.Random], Any]) -> Callable[[random.Random], None]:
            def turn(chance: random.Random) -> None:
                try:
                    act(chance)
                except whence.WhenceError:
                    time.sleep(0.001)

            return turn

        crowd.add(gently(bank.move), "move", seed)
        crowd.add(gently(lambda _, db=db: db.query("SELECT COUNT(*) FROM debit").rows), "ask", seed)
        crowd.add(gently(lambda _, db=db: db["balance"].rows), "read", seed)
        closing = threading.Timer(0.15, db.close)
        closing.start()
        crowd.run(0.3)
        closing.join()
        with pytest.raises(whence.WhenceError):
            db.insert("debit", [(1, 1)])
