"""The worked numbers of paper 004, over two publishers and two brokers (docs/papers/004.md says which are the paper's).

A stage says what those are: here processes (`test_worked_processes.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, Protocol

TEN = dt.datetime(2026, 11, 18, 10)


def at(minute: float) -> dt.datetime:
    """A time of the morning."""
    return TEN + dt.timedelta(minutes=minute)


class Stage(Protocol):
    """Two publishers and two brokers, which are used as databases are."""

    one: Any
    two: Any
    near: Any
    far: Any

    def source(self, broker: Any, name: str, publisher: Any, options: str = "") -> None:
        """Have a source at a broker."""

    def until(self, condition: Callable[[], Any]) -> None:
        """Let time pass until something is so."""

    def follow(self, broker: Any, query: str, **options: Any) -> Any:
        """Subscribe at a broker."""

    def updates(self, subscription: Any) -> list[Any]:
        """Return the updates that have come since."""

    def pause(self, publisher: Any) -> None:
        """Have a publisher say nothing."""

    def resume(self, publisher: Any) -> None:
        """Have it go on."""


class Seen:
    """What a subscriber has seen: every update, and the last."""

    def __init__(self, stage: Stage, broker: Any, query: str, **options: Any) -> None:
        self._stage, self.subscription = stage, stage.follow(broker, query, **options)
        self.updates: list[Any] = []
        self._came: list[Any] = []  # and was not looked at

    def _next(self) -> Any:
        """Look at the next update, if there is one."""
        self._came += self._stage.updates(self.subscription)
        if self._came:
            self.updates.append(self._came.pop(0))
        return self.updates[-1] if self.updates else None

    def until(self, condition: Callable[[Any], Any]) -> Any:
        """Wait for an update of which something is so: the last that was looked at, or one of the next."""

        def found() -> bool:
            while True:
                update = self.updates[-1] if self.updates else self._next()
                if update is None or condition(update):
                    return update is not None
                if self._next() is update:
                    return False

        self._stage.until(found)
        return self.updates[-1]

    @property
    def shown(self) -> list[list[Any]]:
        """The rows after each update."""
        return [sorted(update.rows) for update in self.updates]


def rows(broker: Any, name: str) -> list[Any]:
    """Return the rows of a relation."""
    return sorted(broker[name].rows)


def figure_2(stage: Stage) -> None:
    """Three ticks of 0 to 3: COUNT is [0..3], at least 1, and then 2; MAX is 1 to 3, and then max(1, S, 2) = 2."""
    stage.one.execute("""CREATE STREAM fig (tick INT NOT NULL CHECK (tick BETWEEN 1 AND 3),
        v INT NOT NULL CHECK (v BETWEEN 0 AND 3)) WITH (ordered = 'tick strictly')""")
    stage.source(stage.near, "fig", stage.one)
    stage.near.execute("CREATE VIEW figure AS SELECT COUNT(*) AS n, MAX(v) AS high FROM fig")
    seen = Seen(stage, stage.near, "figure")
    assert seen.until(bool).row().bounds["n"] == (0, 3)
    stage.one.insert("fig", (1, 1))
    row = seen.until(lambda update: update.row()["n"] == 1).row()
    assert (row.bounds["n"][0], row.bounds["high"], row.is_final) == (1, (1, 3), False)
    stage.one.insert("fig", (3, 2))  # the second is silent
    row = seen.until(lambda update: update.row().is_final).row()
    assert (row.bounds["n"], row.bounds["high"]) == ((2, 2), (2, 2))


def hourly(stage: Stage) -> None:
    """High, low and latest of an hour; MAX < 100 temporarily, and finally; 100 is finally not below 100 at once."""
    stage.one.execute("""CREATE STREAM trade (at TIMESTAMP NOT NULL, issue TEXT NOT NULL, price INT NOT NULL)
        WITH (ordered = 'at')""")
    stage.source(stage.near, "trade", stage.one)
    stage.near.execute("""
        CREATE VIEW hours AS SELECT issue, date_trunc('hour', at) AS hour, MAX(price) AS high, MIN(price) AS low,
            MAX(price) < 100 AS cheap FROM trade GROUP BY 1, 2;
        CREATE VIEW latest_price AS SELECT issue, LAST(price ORDER BY at) AS latest FROM trade GROUP BY issue;
    """)
    seen, latest = Seen(stage, stage.near, "hours"), Seen(stage, stage.near, "latest_price")
    stage.one.insert("trade", [(at(5), "ACME", 80), (at(6), "ZINC", 100), (at(7), "ACME", 70)])
    update = seen.until(lambda update: len(update.rows) == 2)
    acme, zinc = update.row(("ACME", TEN)), update.row(("ZINC", TEN))
    assert (acme.bounds["high"], acme.bounds["low"], acme.bounds["cheap"]) == ((80, None), (None, 70), (False, True))
    assert (zinc["cheap"], zinc.bounds["cheap"], zinc.is_final) == (False, (False, False), False)
    assert (acme.texts["high"], acme.texts["low"]) == ("≥ 80", "≤ 70")
    stage.until(lambda: rows(stage.near, "latest_price") == [("ACME", 70), ("ZINC", 100)])
    stage.one.advance("trade", at(60), on="at")
    row = seen.until(lambda update: update.row(("ACME", TEN)).is_final).row(("ACME", TEN))
    assert (row.bounds["high"], row.bounds["low"], row.bounds["cheap"]) == ((80, 80), (70, 70), (True, True))
    assert latest.until(bool).row("ACME").bounds["latest"] == (None, None)


FLIGHTS = [("AA141", "LHR", 600, 200), ("UA23", "SFO", 300, 150), ("NW44", "LHR", 450, 10)]
FREE = "flight LEFT JOIN (SELECT flight, SUM(seats) AS booked FROM booking GROUP BY flight) b ON id = b.flight"


def flights(stage: Stage) -> None:
    """Figure 1, and negative curiosity: a full flight's price is not sent, its seats are; Planned gets its own."""
    stage.one.execute("CREATE TABLE flight (id TEXT PRIMARY KEY, dest TEXT, price INT, seats INT)")
    stage.two.execute("CREATE STREAM booking (flight TEXT, seats INT CHECK (seats > 0))")
    stage.one.insert("flight", FLIGHTS)
    stage.two.insert("booking", ("NW44", 4))
    stage.source(stage.near, "flight", stage.one, "quench_after = '1 ms'")
    stage.source(stage.near, "booking", stage.two)
    stage.source(stage.far, "flight", stage.one)
    stage.near.execute(f"""
        CREATE VIEW available AS SELECT id, dest, price FROM {FREE} WHERE seats > COALESCE(booked, 0);
        CREATE VIEW cheapest AS SELECT id, price FROM available WHERE dest = 'LHR' ORDER BY price, id LIMIT 3;
    """)
    stage.far.execute("CREATE VIEW planned AS SELECT id, price FROM flight WHERE id IN ('AA141', 'UA23', 'NW44')")
    stage.until(lambda: rows(stage.near, "cheapest") == [("AA141", 600), ("NW44", 450)])
    stage.two.insert("booking", ("NW44", 6))
    stage.until(lambda: rows(stage.near, "cheapest") == [("AA141", 600)])
    stage.until(lambda: [row[0] for row in rows(stage.near, "available")] == ["AA141", "UA23"])

    def price_here() -> Any:
        return next(row[2] for row in rows(stage.near, "flight") if row[0] == "NW44")

    def is_quenched() -> bool:
        """Whether a new price is not sent any more."""
        stage.one.update("flight", {"price": (price := price_here() + 1)}, {"id": "NW44"})
        stage.one.update("flight", {"price": 600}, {"id": "AA141"})
        stage.one.update("flight", {"price": 601}, {"id": "AA141"})
        stage.until(lambda: ("AA141", 601) in rows(stage.near, "cheapest"))
        stage.until(lambda: ("NW44", price) in rows(stage.far, "planned"))  # the other reader has it all the same
        return bool(price_here() != price)

    stage.until(is_quenched)
    stage.one.update("flight", {"price": 440}, {"id": "NW44"})
    stage.one.update("flight", {"seats": 12}, {"id": "NW44"})  # seats are raised after it was full
    stage.until(lambda: rows(stage.near, "cheapest") == [("AA141", 601), ("NW44", 440)])


def best_rows(stage: Stage) -> None:
    """Cheapest 3 with a margin of 2: two losses are shown without asking, the third asks."""
    stage.one.execute("CREATE TABLE offer (id TEXT PRIMARY KEY, price INT)")
    stage.one.insert("offer", [(f"F{n:02}", 100 + n) for n in range(30)])
    stage.source(stage.near, "offer", stage.one, "margin = '2'")
    stage.near.execute("""
        CREATE TABLE sold (id TEXT);
        CREATE VIEW best AS SELECT id, price FROM offer WHERE id NOT IN (SELECT id FROM sold) ORDER BY price LIMIT 3;
    """)
    stage.until(lambda: len(rows(stage.near, "best")) == 3 and len(rows(stage.near, "offer")) == 5)
    for lost in range(2):
        stage.near.insert("sold", (f"F{lost:02}",))
        assert [row[0] for row in rows(stage.near, "best")] == [f"F{lost + n:02}" for n in (1, 2, 3)]
        assert len(rows(stage.near, "offer")) == 5
    stage.near.insert("sold", ("F02",))
    stage.until(lambda: [row[0] for row in rows(stage.near, "best")] == ["F03", "F04", "F05"])
    assert len(rows(stage.near, "offer")) > 5


def hockey(stage: Stage) -> None:
    """Two games by two publishers: bounds, states that are skipped, none that is invented, a final score, and the
    refined query."""
    for publisher, name, game in ((stage.one, "east_game", "NY-Detroit"), (stage.two, "west_game", "Chicago-Boston")):
        publisher.execute(f"""CREATE STREAM {name} (game TEXT NOT NULL CHECK (game = '{game}'), kind TEXT NOT NULL,
            team TEXT, at TIMESTAMP NOT NULL) WITH (closes = 'game when kind = ''end''')""")
        stage.source(stage.near, name, publisher)
    stage.near.execute("""
        CREATE VIEW play AS SELECT * FROM east_game UNION ALL SELECT * FROM west_game;
        CREATE VIEW score AS SELECT game, team, COUNT(*) AS goals FROM play WHERE kind = 'goal' GROUP BY game, team;
        CREATE VIEW total AS SELECT game, COUNT(*) AS goals FROM play WHERE kind = 'goal' GROUP BY game;
        CREATE VIEW moment AS SELECT DISTINCT at FROM play WHERE kind = 'goal';
        CREATE VIEW scored AS SELECT at, team, COUNT(*) AS goals FROM play WHERE kind = 'goal' GROUP BY at, team;
        CREATE VIEW as_of AS SELECT moment.at, SUM(CASE WHEN team = 'Boston' THEN goals ELSE 0 END) AS boston,
            SUM(CASE WHEN team = 'Detroit' THEN goals ELSE 0 END) AS detroit
            FROM moment JOIN scored ON scored.at <= moment.at GROUP BY moment.at;
        CREATE VIEW ahead AS SELECT at FROM as_of WHERE boston > detroit;
    """)
    seen, totals = Seen(stage, stage.near, "score", key=["game", "team"]), Seen(stage, stage.near, "total")
    for minute, team in enumerate(["Detroit", "NY", "NY", "Detroit", "NY", "NY"]):
        stage.one.insert("east_game", ("NY-Detroit", "goal", team, at(minute)))
    for minute, team in enumerate(
        ["Boston", "Chicago", "Boston", "Chicago", "Chicago", "Chicago", "Chicago", "Boston"]
    ):
        stage.two.insert("west_game", ("Chicago-Boston", "goal", team, at(3 + minute * 0.5)))
    final = [("Chicago-Boston", "Boston", 3), ("Chicago-Boston", "Chicago", 5)]
    final += [("NY-Detroit", "Detroit", 2), ("NY-Detroit", "NY", 4)]
    update = seen.until(lambda update: sorted(update.rows) == final)  # 4-2 beside 5-3
    assert update.row(("NY-Detroit", "NY")).bounds["goals"] == (4, None)
    totals.until(lambda update: update.row("NY-Detroit")["goals"] == 6)
    assert totals.updates[-1].row("NY-Detroit").bounds["goals"] == (6, None)
    stage.one.insert("east_game", ("NY-Detroit", "end", None, at(20)))
    stage.two.insert("west_game", ("Chicago-Boston", "end", None, at(20)))
    update = seen.until(lambda update: all(update.known_row(row).is_final for row in final))
    assert update.row(("NY-Detroit", "NY")).bounds["goals"] == (4, 4)
    assert update.row(("NY-Detroit", "overtime")).state == "finally absent"
    for shown in seen.shown:  # goals only come: each score that is shown was one, or was skipped
        assert all(count <= {(g, t): n for g, t, n in final}[game, team] for game, team, count in shown)
    stage.until(lambda: rows(stage.near, "ahead") == [(at(6.5),)])  # as of then Boston has 3 and Detroit 2


def high_traders(stage: Stage) -> None:
    """More than 500,000 shares in the last hour: a trader appears once, and leaves once, by silence alone."""
    stage.one.execute("CREATE STREAM deal (at TIMESTAMP NOT NULL, trader TEXT, shares INT) WITH (ordered = 'at')")
    stage.source(stage.near, "deal", stage.one)
    stage.near.execute("""CREATE VIEW high_trader AS
        SELECT trader FROM latest(deal, on => at, width => INTERVAL '1 hour') GROUP BY trader
        HAVING SUM(shares) > 500000""")
    seen = Seen(stage, stage.near, "high_trader")
    stage.one.insert("deal", [(at(0), "ann", 300_000), (at(1), "bob", 400_000)])
    stage.one.insert("deal", (at(2), "ann", 250_000))
    seen.until(lambda update: update.rows == [("ann",)])
    stage.one.advance("deal", at(63), on="at")  # no trade for 61 minutes
    seen.until(lambda update: update.rows == [])
    assert [(update.came, update.went) for update in seen.updates if update.came or update.went] == [
        ([("ann",)], []), ([], [("ann",)])
    ]  # fmt: skip


def away(stage: Stage) -> None:
    """Who was away is told one difference, not the backlog."""
    stage.one.execute("CREATE STREAM quote (issue TEXT, price INT)")
    stage.source(stage.near, "quote", stage.one)
    stage.near.execute("CREATE VIEW top AS SELECT issue, MAX(price) AS high, COUNT(*) AS n FROM quote GROUP BY issue")
    stage.one.insert("quote", [("A", 1), ("B", 1)])
    seen = Seen(stage, stage.near, "top")
    last = seen.until(lambda update: len(update.rows) == 2)
    seen.subscription.close()
    for price in range(200):
        stage.one.insert("quote", ("A", price))
    stage.until(lambda: rows(stage.near, "top") == [("A", 199, 201), ("B", 1, 1)])
    again = Seen(stage, stage.near, "top", have=last.position, rows=last.rows)
    again.until(bool)
    assert [(u.went, u.came) for u in again.updates if u] == [([("A", 1, 1)], [("A", 199, 201)])]


def buy_list(stage: Stage) -> None:
    """An issue is on the list from 10:00 to 11:00: each quote in between comes once, and none outside."""
    stage.one.execute("CREATE STREAM tick (issue TEXT, price INT)")
    stage.two.execute("CREATE TABLE wanted (issue TEXT PRIMARY KEY)")
    for broker in (stage.near, stage.far):
        stage.source(broker, "tick", stage.one, "quench_after = '1 ms'")
        stage.source(broker, "wanted", stage.two)
        broker.execute(
            "CREATE VIEW bought AS SELECT tick.issue, price FROM tick JOIN wanted ON tick.issue = wanted.issue"
        )

    def quote(prices: range) -> None:
        """Quote; nothing else happens until all have been told, so the order of the two publishers is known."""
        for price in prices:
            stage.one.insert("tick", [("A", price), ("B", price)])

    stage.two.insert("wanted", ("C",))
    for broker in (stage.near, stage.far):  # who hears of a table later takes its rows as having been there before
        stage.until(lambda b=broker: ("C",) in rows(b, "wanted"))
    quote(range(4))
    stage.two.insert("wanted", ("A",))
    for broker in (stage.near, stage.far):
        stage.until(lambda b=broker: ("A",) in rows(b, "wanted"))
    quote(range(4, 8))
    for broker in (stage.near, stage.far):
        stage.until(lambda b=broker: rows(b, "bought") == [("A", price) for price in range(4, 8)])
    stage.two.delete("wanted", ("A",))
    for broker in (stage.near, stage.far):
        stage.until(lambda b=broker: ("A",) not in rows(b, "wanted"))
    quote(range(8, 12))
    stage.two.insert("wanted", ("B",))
    for broker in (stage.near, stage.far):
        stage.until(lambda b=broker: ("B",) in rows(b, "wanted"))
    stage.one.insert("tick", [("A", 12), ("B", 12)])
    truth = [("A", price) for price in range(4, 8)] + [("B", 12)]
    for broker in (stage.near, stage.far):
        stage.until(lambda b=broker: rows(b, "bought") == truth)


def a_and_b(stage: Stage) -> None:
    """a AND b > 0: while a is false the value of b is not sent; when it flips b is current before the row shows."""
    stage.one.execute("CREATE TABLE b_of (id INT PRIMARY KEY, b INT)")
    stage.two.execute("CREATE TABLE a_of (id INT PRIMARY KEY, a BOOLEAN)")
    stage.one.insert("b_of", [(1, 5), (2, 5)])
    stage.two.insert("a_of", [(1, True), (2, True)])
    stage.source(stage.near, "b_of", stage.one, "quench_after = '1 ms'")
    stage.source(stage.near, "a_of", stage.two, "ask = 'all'")
    stage.near.execute("CREATE VIEW both AS SELECT x.id, b FROM b_of x JOIN a_of y ON x.id = y.id WHERE a AND b > 0")
    seen = Seen(stage, stage.near, "both")
    seen.until(lambda update: sorted(update.rows) == [(1, 5), (2, 5)])
    stage.two.insert("a_of", (1, False))
    seen.until(lambda update: update.rows == [(2, 5)])
    stage.until(lambda: [row for row in rows(stage.near, "b_of") if row[0] == 1] == [])  # it is not asked for
    for value in range(10, 20):
        stage.one.insert("b_of", (1, value))
    stage.one.insert("b_of", (2, 6))
    seen.until(lambda update: update.rows == [(2, 6)])
    assert [row for row in rows(stage.near, "b_of") if row[0] == 1] == []
    stage.two.insert("a_of", (1, True))
    seen.until(lambda update: len(update.rows) == 2)
    assert [row for update in seen.updates[1:] for row in update.came if row[0] == 1] == [(1, 19)]


def merge(stage: Stage) -> None:
    """One publisher is silent up to 5, the other up to 9, and has a value at 7: it passes at once, the horizon is 5."""
    for publisher, name in ((stage.one, "left_side"), (stage.two, "right_side")):
        publisher.execute(f"CREATE STREAM {name} (t INT NOT NULL, v INT NOT NULL) WITH (ordered = 't')")
        stage.source(stage.near, name, publisher)
    stage.near.execute("""
        CREATE VIEW sides AS SELECT t, COUNT(*) AS n FROM (SELECT t FROM left_side UNION ALL SELECT t FROM right_side) x
            GROUP BY t""")
    seen = Seen(stage, stage.near, "sides")
    stage.two.insert("right_side", [(3, 1), (7, 1)])
    stage.two.advance("right_side", 9, on="t")
    stage.one.advance("left_side", 5, on="t")
    update = seen.until(lambda update: len(update.rows) == 2 and update.row(3).is_final)
    assert update.row(7).bounds["n"] == (1, None)
    assert (update.row(4).state, update.row(6).state) == ("finally absent", "may come")
    stage.one.advance("left_side", 9, on="t")
    seen.until(lambda update: update.row(7).is_final)


def cancelled(stage: Stage) -> None:
    """Booked and not cancelled; the publishers are heard of with delays of their own, cancel, rebook, cancel."""
    stage.one.execute("CREATE STREAM booked (id INT NOT NULL, turn INT NOT NULL)")
    stage.two.execute("CREATE STREAM undone (id INT NOT NULL, turn INT NOT NULL)")
    for broker, order in ((stage.near, (stage.one, stage.two)), (stage.far, (stage.two, stage.one))):
        for publisher in order:
            stage.source(broker, "booked" if publisher is stage.one else "undone", publisher)
        broker.execute("""CREATE VIEW held AS SELECT id, turn FROM (SELECT DISTINCT id, turn FROM booked) b
            WHERE NOT EXISTS (SELECT 1 FROM (SELECT DISTINCT id, turn FROM undone) c
                WHERE c.id = b.id AND c.turn = b.turn)""")
    seen = Seen(stage, stage.near, "held")
    stage.two.insert("undone", (7, 1))  # it is heard of before the booking
    stage.pause(stage.one)
    stage.two.insert("undone", (8, 1))
    stage.resume(stage.one)
    stage.one.insert("booked", [(7, 1), (8, 1), (9, 1)])
    update = seen.until(lambda update: (9, 1) in update.rows)
    assert update.row((9, 1)).may_go
    stage.one.insert("booked", [(7, 2)])
    stage.two.insert("undone", (7, 2))
    stage.one.insert("booked", [(7, 3)])
    for broker in (stage.near, stage.far):
        stage.until(lambda b=broker: rows(b, "held") == [(7, 3), (9, 1)])
    update = seen.until(lambda update: sorted(update.rows) == [(7, 3), (9, 1)])
    assert update.row((7, 3)).may_go
    if any((7, 2) in shown for shown in seen.shown):  # it was told; or both were heard of at once
        assert str(update.row((7, 2))).endswith("withdrawn for good")


def location(stage: Stage) -> None:
    """Near my location (5): who moves hears of the new place, and of everything there; nothing is lost or doubled."""
    stage.one.execute("CREATE TABLE cafe (id INT PRIMARY KEY, cell INT, name TEXT)")
    stage.one.insert("cafe", [(id, id % 5, f"c{id}") for id in range(20)])
    stage.source(stage.near, "cafe", stage.one, "quench_after = '1 ms'")
    stage.near.execute("""
        CREATE TABLE here (cell INT PRIMARY KEY);
        CREATE VIEW close_by AS SELECT id, name FROM cafe JOIN here ON cafe.cell = here.cell
    """)
    seen = Seen(stage, stage.near, "close_by")
    for cell in range(5):
        with stage.near.transaction():
            stage.near.delete("here", (cell - 1,))
            stage.near.insert("here", (cell,))
        stage.one.update("cafe", {"name": "renamed"}, {"id": cell})
        truth = [(cell, "renamed"), *((id, f"c{id}") for id in range(cell + 5, 20, 5))]
        seen.until(lambda update, t=truth: sorted(update.rows) == t)
    held: set[Any] = set()
    for update in seen.updates:
        assert not held & set(update.came)
        assert set(update.went) <= held | set(update.came)
        held = (held - set(update.went)) | set(update.came)
    assert held == set(seen.updates[-1].rows)


def placement(stage: Stage) -> None:
    """Views may be anywhere: what one broker computes is a source of another, which ends with the same rows."""
    stage.one.execute("CREATE TABLE seat (id TEXT PRIMARY KEY, dest TEXT, price INT, seats INT)")
    stage.two.execute("CREATE STREAM taken (flight TEXT, seats INT CHECK (seats > 0))")
    free = """SELECT id, dest, price FROM seat LEFT JOIN
        (SELECT flight, SUM(seats) AS taken FROM taken GROUP BY flight) t ON id = t.flight
        WHERE seats > COALESCE(taken, 0)"""
    best = "SELECT id, price FROM {} WHERE dest = 'LHR' ORDER BY price, id LIMIT 3"
    stage.source(stage.near, "seat", stage.one)
    stage.source(stage.near, "taken", stage.two)
    stage.near.execute(f"CREATE VIEW free AS {free}; CREATE VIEW best_here AS {best.format('free')}")
    stage.source(stage.far, "free", stage.near)
    stage.far.execute(f"CREATE VIEW best_there AS {best.format('free')}")
    stage.one.insert("seat", FLIGHTS)

    def is_everywhere(rows_there: list[Any]) -> bool:
        return rows(stage.near, "best_here") == rows_there == rows(stage.far, "best_there")

    stage.until(lambda: is_everywhere([("AA141", 600), ("NW44", 450)]))
    stage.two.insert("taken", [("NW44", 4), ("NW44", 6)])
    stage.until(lambda: is_everywhere([("AA141", 600)]))
    stage.one.update("seat", {"seats": 12, "price": 440}, {"id": "NW44"})
    stage.until(lambda: is_everywhere([("AA141", 600), ("NW44", 440)]))


def guaranteed(stage: Stage) -> None:
    """Guaranteed delivery (3): each event of a merge once, in the order of ticks, also while a publisher is silent."""
    for publisher, name in ((stage.one, "east_quote"), (stage.two, "west_quote")):
        publisher.execute(f"CREATE STREAM {name} (number INT)")
        stage.source(stage.near, name, publisher)
    both = "SELECT number FROM east_quote UNION ALL SELECT number FROM west_quote"
    stage.near.execute(f"CREATE VIEW quotes AS {both}")
    seen = Seen(stage, stage.near, "quotes", every_change=True, ordered=True)
    for number in range(30):
        stage.one.insert("east_quote", (number,)) if number % 2 else stage.two.insert("west_quote", (number,))
    stage.pause(stage.two)
    for number in range(30, 35):
        stage.one.insert("east_quote", (number,))
    stage.resume(stage.two)
    stage.two.insert("west_quote", (35,))

    seen.until(lambda update: (35,) in update.came)
    told = [number for update in seen.updates for (number,) in update.came]
    assert sorted(told) == list(range(36))
    west = {*range(0, 30, 2), 35}  # clocks may tick at once: each publisher's own order is certain
    for numbers in (west, set(range(36)) - west):
        assert [number for number in told if number in numbers] == sorted(numbers)


SCENARIOS = {
    each.__name__: each
    for each in (
        figure_2, hourly, flights, best_rows, hockey, high_traders, away, buy_list, a_and_b, merge, cancelled,
        location, placement,
    )
}  # fmt: skip
"""Every worked number, by name."""

OVER_PROCESSES = SCENARIOS | {"guaranteed": guaranteed}
"""And what the oracle of virtual time does not know: subscriptions in the order of ticks."""
