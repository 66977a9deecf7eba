"""Measurements of `delivery` about what a broker need not be sent: messages and bytes, against waiting time.

A publisher is served, and a broker has sources from it, over a real WebSocket; both are in this process, since it is
messages that are counted, at the publisher (`/metrics`). Each workload runs once with every row forwarded
(`ask = 'all'`) and with curiosity; the views must end with the rows that DuckDB computes.

| workload | what happens | what is waited for |
|---|---|---|
| flights | prices change, nine of ten are full; by the quench delay | a flight that is free again, with its price |
| buy list | quotes of 1,000 issues, of which 20 are on the list | the first quote of an issue that is added |
| best 3 | the cheapest offers are sold; by the margin beyond the best three | until there are three again |

A message is whatever the publisher sends: rows, answers, and silence, which says that nothing of an epoch is of use.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.delivery_run import Curve, Run, Section, sample
from benchmarks.report import WHENCE, Check, Figure
from benchmarks.serving_processes import FailedError

FORWARDED = "everything forwarded"
PATIENCE = 60.0
PAUSE = 0.002  # seconds between two transactions of the publisher
AVAILABLE = "SELECT f.id, f.price FROM flight f JOIN load l ON f.id = l.id WHERE f.seats > l.booked"
FOLLOW = "SELECT q.number, q.issue, q.price FROM quote q JOIN buylist b ON q.issue = b.issue"
CHEAPEST = "SELECT o.id, o.price FROM offer o WHERE NOT EXISTS (SELECT 1 FROM sold s WHERE s.id = o.id) "
CHEAPEST += "ORDER BY o.price, o.id LIMIT 3"


@dataclass
class Pair:
    """A publisher that is served, and a broker."""

    publisher: Any
    broker: Any
    server: Any
    token: Path

    def source(self, name: str, options: str) -> None:
        """Have a relation of the publisher as a source."""
        url = self.server.url.replace("http", "ws") + f"/{name}"
        more = f", {options}" if options else ""
        self.broker.execute(f"CREATE SOURCE {name} FROM '{url}' WITH (token_file = '{self.token}'{more})")

    def sent(self) -> tuple[float, float]:
        """Return the messages and bytes that the publisher has sent so far."""
        request = urllib.request.Request(f"{self.server.url}/metrics")
        request.add_header("Authorization", f"Bearer {self.server.token}")
        found = {}
        with urllib.request.urlopen(request) as answer:
            for line in answer.read().decode().splitlines():
                name, _, value = line.partition(" ")
                if name in ("whence_messages_out_total", "whence_bytes_out_total"):
                    found[name] = float(value)
        return found["whence_messages_out_total"], found["whence_bytes_out_total"]

    def reach(self, rows: Callable[[], Any], wanted: Any) -> float:
        """Wait until the broker has what is wanted; return the seconds."""
        begin = time.perf_counter()
        while rows() != wanted:
            if time.perf_counter() - begin > PATIENCE:
                raise FailedError(f"the broker never had {wanted!r:.200}; it has {rows()!r:.200}")
            time.sleep(0.0005)
        return time.perf_counter() - begin


@contextlib.contextmanager
def pair(folder: Path, sql: str) -> Iterator[Pair]:
    """Serve a publisher with some tables, beside a broker; both in memory, so that no disk is waited for."""
    import whence

    with (
        tempfile.TemporaryDirectory(prefix="delivery-", dir=folder) as place,
        whence.open() as publisher,
        whence.open() as broker,
    ):
        publisher.execute(sql)
        with whence.serve(publisher, port=0) as server:
            token = Path(place) / "token"
            token.touch(0o600)
            token.write_text(str(server.token))
            yield Pair(publisher, broker, server, token)


@dataclass(frozen=True)
class Counted:
    """What a workload came to."""

    messages: float
    bytes: float
    waits: list[float]

    @property
    def waited(self) -> float:
        """The median of what was waited for, in milliseconds."""
        return 1e3 * float(np.median(self.waits)) if self.waits else 0.0


def duckdb_rows(query: str, **tables: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return what DuckDB computes from tables, which are given with the names of their columns as first row."""
    import duckdb
    import pyarrow as pa

    with duckdb.connect() as db:
        for name, (head, *rows) in tables.items():
            columns = list(zip(*rows, strict=True)) or [()] * len(head)
            made = {column: pa.array(list(values), pa.int64()) for column, values in zip(head, columns, strict=True)}
            db.register(name, pa.table(made))
        return sorted(db.execute(query).fetchall())


def flights(run: Run, options: str) -> Counted:
    """Change prices of flights that are mostly full; some become free for a while."""
    sizes, random = run.sizes, np.random.default_rng(17)
    count, waits = sizes.flights, list[float]()
    with pair(run.folder, "CREATE TABLE flight (id INT PRIMARY KEY, seats INT, price INT)") as both:
        prices = [int(price) for price in random.integers(100, 900, count)]
        booked = [10 if number % 10 else 0 for number in range(count)]
        both.publisher.insert("flight", [(number, 10, prices[number]) for number in range(count)])
        both.source("flight", options)
        both.broker.execute("CREATE TABLE load (id INT PRIMARY KEY, booked INT)")
        both.broker.insert("load", list(enumerate(booked)))
        both.broker.execute(f"CREATE VIEW available AS {AVAILABLE}")

        def wanted() -> list[tuple[int, int]]:
            return [(number, prices[number]) for number in range(count) if booked[number] < 10]

        def found() -> list[Any]:
            return sorted(both.broker["available"].rows)

        both.reach(found, wanted())
        time.sleep(0.3)  # what is idle is quenched
        before = both.sent()
        every = max(2, sizes.flight_changes // 20)
        for change in range(sizes.flight_changes):
            number = int(random.integers(count))
            prices[number] = int(random.integers(100, 900))
            both.publisher.update("flight", {"price": prices[number]}, {"id": number})
            time.sleep(PAUSE)
            if change % every == every - 1:  # a full flight is free for a moment
                flipped = 10 * int(random.integers(count // 10)) + 1
                for load in (5, 10):
                    booked[flipped] = load
                    both.broker.update("load", {"booked": load}, {"id": flipped})
                    seconds = both.reach(found, wanted())
                    if load == 5:
                        waits.append(seconds)
        both.reach(found, wanted())
        after = both.sent()
        expected = duckdb_rows(
            AVAILABLE,
            flight=[("id", "seats", "price"), *((number, 10, prices[number]) for number in range(count))],
            load=[("id", "booked"), *enumerate(booked)],
        )
        _compare("flights", found(), expected)
    return Counted(after[0] - before[0], after[1] - before[1], waits)


def buy_list(run: Run, options: str) -> Counted:
    """Quote issues of which a few are on a list, which changes."""
    sizes, random = run.sizes, np.random.default_rng(17)
    waits, quotes, sightings = list[float](), list[tuple[int, int, int]](), 0
    with pair(run.folder, "CREATE STREAM quote (number INT, issue INT, price INT)") as both:
        both.broker.execute("CREATE TABLE buylist (issue INT PRIMARY KEY)")
        listed = list(range(sizes.bought))
        both.broker.insert("buylist", [(issue,) for issue in listed])
        both.source("quote", options)
        both.broker.execute(f"CREATE VIEW follow AS {FOLLOW}")
        both.broker.execute(f"CREATE VIEW followed AS SELECT COUNT(*) AS n FROM ({FOLLOW}) x")
        time.sleep(0.3)
        before = both.sent()
        every = max(2, sizes.quotes // 20)

        def quote(issue: int) -> None:
            quotes.append((len(quotes), issue, int(random.integers(100, 900))))
            both.publisher.insert("quote", quotes[-1])

        def shown(issue: int) -> int:
            return sum(1 for row in both.broker["follow"].rows if row[1] == issue)

        for number in range(sizes.quotes):
            quote(int(random.integers(sizes.issues)))
            time.sleep(PAUSE)
            if number % every == every - 1:  # another issue is bought
                issue = sizes.bought + sightings
                sightings += 1
                both.broker.insert("buylist", (issue,))
                listed.append(issue)
                begin = time.perf_counter()
                had = shown(issue)
                while shown(issue) == had:
                    quote(issue)
                    time.sleep(PAUSE)
                    if time.perf_counter() - begin > PATIENCE:
                        raise FailedError("an issue that was bought is never quoted")
                waits.append(time.perf_counter() - begin)
        last = listed[0]
        quote(last)
        position = len(quotes) - 1
        both.reach(lambda: any(row[0] == position for row in both.broker["follow"].rows), True)
        after = both.sent()
        seen = set(both.broker["follow"].rows)
        first = set(range(sizes.bought))  # those that were listed all the time: every quote, once
        expected = duckdb_rows(
            FOLLOW, quote=[("number", "issue", "price"), *quotes], buylist=[("issue",), *((issue,) for issue in first)]
        )
        _compare("buy list", sorted(row for row in seen if row[1] in first), expected)
    return Counted(after[0] - before[0], after[1] - before[1], waits)


def best(run: Run, options: str) -> Counted:
    """Sell the cheapest offers one after the other; prices of the others change."""
    sizes, random = run.sizes, np.random.default_rng(17)
    count, waits = sizes.offers, list[float]()
    with pair(run.folder, "CREATE TABLE offer (id INT PRIMARY KEY, price INT)") as both:
        prices = [1_000 + 10 * number for number in range(count)]
        both.publisher.insert("offer", list(enumerate(prices)))
        both.source("offer", options)
        both.broker.execute("CREATE TABLE sold (id INT PRIMARY KEY)")
        both.broker.execute(f"CREATE VIEW cheapest AS {CHEAPEST}")
        sold: set[int] = set()

        def wanted() -> list[tuple[int, int]]:
            left = sorted((price, number) for number, price in enumerate(prices) if number not in sold)[:3]
            return sorted((number, price) for price, number in left)

        def found() -> list[Any]:
            return sorted(both.broker["cheapest"].rows)

        both.reach(found, wanted())
        before = both.sent()
        every = max(2, sizes.offer_changes // min(40, count // 4))
        for change in range(sizes.offer_changes):
            number = int(random.integers(count))
            prices[number] = max(1_000, prices[number] + int(random.integers(-20, 21)))
            both.publisher.update("offer", {"price": prices[number]}, {"id": number})
            time.sleep(PAUSE)
            if change % every == every - 1:
                both.reach(found, wanted())
                cheapest = min((row[1], row[0]) for row in found())[1]
                sold.add(cheapest)
                both.broker.insert("sold", (cheapest,))
                waits.append(both.reach(found, wanted()))
        both.reach(found, wanted())
        after = both.sent()
        expected = duckdb_rows(
            CHEAPEST, offer=[("id", "price"), *enumerate(prices)], sold=[("id",), *((one,) for one in sorted(sold))]
        )
        _compare("best 3", found(), expected)
    return Counted(after[0] - before[0], after[1] - before[1], waits)


def _compare(what: str, found: list[Any], expected: list[Any]) -> None:
    from benchmarks.ledger import DisagreementError

    if found != expected:
        raise DisagreementError(f"{what}: the broker's view has {found[:5]}…, not {expected[:5]}…")


def curiosity(run: Run) -> Section:
    """Measure what curiosity saves, and what is waited for."""
    sizes, figures, curves = run.sizes, dict[str, Figure](), list[Curve]()
    section = Section()
    delays = [(f"quench after {delay:g} s", f"quench_after = '{int(1e3 * delay)} ms'") for delay in sizes.quench_delays]
    margins = [(f"margin {margin}", f"margin = '{margin}'") for margin in sizes.margins]
    workloads: list[tuple[str, Callable[[Run, str], Counted], list[tuple[str, str]]]] = [
        ("flights", flights, delays),
        ("buy list", buy_list, [("curious", "")]),
        ("best 3", best, margins),
    ]
    for name, work, settings in workloads:
        curve = Curve("messages against waiting time", name, x="ms waited, median", y="messages")
        whole = work(run, "ask = 'all'")
        run.say(f"curiosity: {name}, {FORWARDED}: {whole.messages:,.0f} messages, {whole.bytes:,.0f} bytes")
        for label, options in settings:
            found = work(run, options)
            what = f"{name}, {label}"
            for kind, mine, theirs in (
                ("messages", found.messages, whole.messages),
                ("bytes", found.bytes, whole.bytes),
            ):
                sample(figures, f"{what}: {kind}", kind, WHENCE, mine)
                sample(figures, f"{what}: {kind}", kind, FORWARDED, theirs)
            sample(figures, f"{what}: waited", "ms", WHENCE, found.waited)
            curve.points.append((label, found.waited, found.messages))
            run.say(
                f"curiosity: {what}: {found.messages:,.0f} messages, {found.bytes:,.0f} bytes "
                f"({whole.bytes / max(found.bytes, 1):.1f} times fewer), {found.waited:.1f} ms waited"
            )
        curves.append(curve)
        most = max(figures[f"{name}, {label}: bytes"].times(FORWARDED, WHENCE) for label, _ in settings)
        section.checks.append(Check(f"{name}: times fewer bytes than forwarding everything", most, 2.0))
    section.figures, section.curves = list(figures.values()), curves
    return section
