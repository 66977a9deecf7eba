"""What curiosity saves: three workloads over a publisher and a broker, on a virtual clock, against forwarding all.

The databases, the publisher's session and the broker's curiosity are the real ones; only the link is virtual, so that
waiting can be measured exactly. Each change of the publisher is an epoch of its own, and would be a message of its own
if everything were forwarded. At the end the broker's view must be what the publisher's rows give.

| run | what happens |
|---|---|
| `flights` | prices change; flights fill up and are freed at the broker, which shows those that are not full |
| `buy_list` | quotes of many issues; a few are on the broker's list at a time, and the list changes |
| `best_rows` | prices of offers change; some are lost at the broker, which shows the three cheapest |
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial

import whence
from benchmarks.curious_source import CuriousSource, VirtualLink, databases

LINK = 0.02
"""Seconds that a message takes one way."""

RATE = 100.0
"""Changes of the publisher a second."""


@dataclass(frozen=True)
class Saving:
    """What was sent, and what would have been; requests are counted as messages."""

    changes: int
    messages: int
    requests: int
    sent_bytes: int
    whole_messages: int
    whole_bytes: int
    waits: tuple[float, ...]  # seconds, each time that something was held back

    @property
    def messages_saved(self) -> float:
        """How many times fewer messages were sent."""
        return self.whole_messages / max(self.messages + self.requests, 1)

    @property
    def bytes_saved(self) -> float:
        """How many times fewer bytes were sent."""
        return self.whole_bytes / max(self.sent_bytes, 1)

    @property
    def waited(self) -> float:
        """Milliseconds that were waited, on average over all changes at the broker and the publisher."""
        return 1000 * sum(self.waits) / max(self.changes, 1)

    @property
    def per_thousand(self) -> float:
        """Messages and requests for a thousand changes of the publisher."""
        return 1000 * (self.messages + self.requests) / max(self.whole_messages, 1)


def _saving(source: CuriousSource, link: VirtualLink, whole: CuriousSource, local: int) -> Saving:
    return Saving(
        whole.messages + local, source.messages, source.requests, source.bytes, whole.messages, whole.bytes,
        tuple(link.waits),
    )  # fmt: skip


def _begin(source: CuriousSource, whole: CuriousSource) -> None:
    """Have the rows that are there, and count from now on."""
    source.settle()
    whole.tell()
    for each in (source, whole):
        each.messages = each.requests = each.bytes = each.rows = 0


_FLIGHTS = "CREATE TABLE flight (id INT PRIMARY KEY, seats INT, price INT, gate TEXT)"
_FULL = "CREATE TABLE booked (flight INT PRIMARY KEY, n INT)"
_AVAILABLE = "SELECT id, price FROM flight LEFT JOIN booked ON id = flight WHERE seats > COALESCE(n, 0)"


def flights(count: int, changes: int, delay: float, seed: int = 1) -> Saving:
    """Change prices, at random; a tenth as often a flight fills up or is freed. About half of them are full."""
    rnd = random.Random(seed)
    publisher, broker = databases(_FLIGHTS, f"CREATE VIEW available AS {_AVAILABLE}", _FULL)
    publisher.insert("flight", [(i, 10, rnd.randint(100, 900), "A1") for i in range(count)])
    full = set(rnd.sample(range(count), count // 2))
    broker.insert("booked", [(i, 10) for i in sorted(full)])
    source, whole = CuriousSource(publisher, broker, "flight", delay=delay), _whole(publisher, "flight")
    _begin(source, whole)
    link, local = VirtualLink(source, LINK), 0
    busy = rnd.sample(range(count), max(count // 20, 1))  # those that fill up and are freed

    def reprice(flight: int, price: int) -> None:
        publisher.execute(f"UPDATE flight SET price = {price} WHERE id = {flight}")
        whole.tell()
        link.publish()

    def flip(flight: int) -> None:
        if flight in full:
            full.discard(flight)
            broker.execute(f"DELETE FROM booked WHERE flight = {flight}")
        else:
            full.add(flight)
            broker.insert("booked", (flight, 10))

    for number in range(changes):
        when = number / RATE
        link.at(when, partial(reprice, rnd.randrange(count), rnd.randint(100, 900)))
        if number % 10 == 5:
            local += 1
            link.at(when + 0.001, partial(flip, rnd.choice(busy)))
    link.run()
    taken = ", ".join(map(str, sorted(full))) or "-1"
    expected = publisher.query(f"SELECT id, price FROM flight WHERE id NOT IN ({taken})").rows
    assert sorted(broker.query("SELECT id, price FROM available").rows) == sorted(expected)
    return _saving(source, link, whole, local)


_QUOTES = "CREATE STREAM quote (issue INT, price INT, size INT)"
_FOLLOW = "SELECT quote.issue, price FROM quote JOIN buylist USING (issue)"


def buy_list(issues: int, bought: int, quotes: int, delay: float = 1.0, seed: int = 1) -> Saving:
    """Quote issues, at random; every 50 quotes an issue comes to the list and another one goes."""
    rnd = random.Random(seed)
    publisher, broker = databases(
        _QUOTES, f"CREATE VIEW follow AS {_FOLLOW}", "CREATE TABLE buylist (issue INT PRIMARY KEY)"
    )
    on = rnd.sample(range(issues), bought)
    broker.insert("buylist", [(issue,) for issue in on])
    source, whole = CuriousSource(publisher, broker, "quote", delay=delay), _whole(publisher, "quote")
    _begin(source, whole)
    link, local = VirtualLink(source, LINK), 0

    def quote(issue: int, price: int) -> None:
        publisher.insert("quote", (issue, price, 100))
        whole.tell()
        link.publish()

    def change(goes: int, comes: int) -> None:
        with broker.transaction():
            broker.execute(f"DELETE FROM buylist WHERE issue = {goes}")
            broker.insert("buylist", (comes,))

    for number in range(quotes):
        when = number / RATE
        link.at(when, partial(quote, rnd.randrange(issues), number))
        if number % 50 == 25:
            place, comes = rnd.randrange(bought), rnd.choice([i for i in range(issues) if i not in on])
            goes, on[place] = on[place], comes
            local += 1
            link.at(when + 0.001, partial(change, goes, comes))
    link.run()
    assert len({row[1] for row in broker.query("SELECT * FROM follow").rows}) == len(broker["follow"].rows)
    return _saving(source, link, whole, local)


_OFFERS = "CREATE TABLE offer (id INT PRIMARY KEY, price INT, terms TEXT)"
_CHEAPEST = "SELECT id, price FROM offer WHERE NOT EXISTS (SELECT 1 FROM lost WHERE lost.id = offer.id)"


def best_rows(count: int, changes: int, margin: int, seed: int = 1) -> Saving:
    """Change prices of offers, at random; a tenth as often one of the three cheapest is lost at the broker, and one
    that was lost is there again."""
    rnd = random.Random(seed)
    view = f"CREATE VIEW cheapest AS {_CHEAPEST} ORDER BY price LIMIT 3"
    publisher, broker = databases(_OFFERS, view, "CREATE TABLE lost (id INT PRIMARY KEY)")
    publisher.insert("offer", [(i, rnd.randint(1_000, 100_000), "none") for i in range(count)])
    source, whole = CuriousSource(publisher, broker, "offer", margin=margin), _whole(publisher, "offer")
    _begin(source, whole)
    link, gone, local = VirtualLink(source, LINK), list[int](), 0

    def reprice(offer: int, price: int) -> None:
        publisher.execute(f"UPDATE offer SET price = {price} WHERE id = {offer}")
        whole.tell()
        link.publish()

    def lose() -> None:
        best = [row[0] for row in broker.query("SELECT id, price FROM cheapest ORDER BY price").rows]
        if best:
            gone.append(best[0])
            broker.insert("lost", (best[0],))
        if len(gone) > 20:
            broker.execute(f"DELETE FROM lost WHERE id = {gone.pop(0)}")

    for number in range(changes):
        when = number / RATE
        link.at(when, partial(reprice, rnd.randrange(count), rnd.randint(1_000, 100_000)))
        if number % 10 == 5:
            local += 1
            link.at(when + 0.001, lose)
    link.run()
    taken = ", ".join(map(str, gone)) or "-1"
    expected = publisher.query(f"SELECT id, price FROM offer WHERE id NOT IN ({taken}) ORDER BY price, id LIMIT 3").rows
    assert sorted(broker.query("SELECT id, price FROM cheapest").rows) == sorted(expected)
    return _saving(source, link, whole, local)


def _whole(publisher: whence.Database, name: str) -> CuriousSource:
    """Return a source that is sent everything; nobody applies it."""
    return CuriousSource(publisher, publisher, name, curious=False)
