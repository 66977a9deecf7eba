"""Events like Nexmark's: of every 50 one is a new person, three are new auctions, 46 are bids; 1,000 events a second.

As in its generator, half of the bids go to a hot auction and come from hot bidders, most sellers are hot, prices are
spread over six orders of magnitude, and auctions expire after some ten seconds. Texts and seeds are our own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.maintained import Change

SCRIPT = """
CREATE TABLE person (id BIGINT, name TEXT, email_address TEXT, credit_card TEXT, city TEXT, state TEXT,
  date_time TIMESTAMP, extra TEXT);
CREATE TABLE auction (id BIGINT, item_name TEXT, description TEXT, initial_bid BIGINT, reserve BIGINT,
  date_time TIMESTAMP, expires TIMESTAMP, seller BIGINT, category BIGINT, extra TEXT);
CREATE TABLE bid (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP, extra TEXT);
CREATE TABLE side (key BIGINT, value TEXT);
"""
PEOPLE, AUCTIONS, BIDS = 1, 3, 46
EPOCH = PEOPLE + AUCTIONS + BIDS
BEGIN = np.datetime64("2026-01-01T00:00:00", "us")
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = ("Phoenix", "Los Angeles", "Boise", "Portland", "Seattle", "Kent", "Bend", "Redmond", "Cheyenne")
CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
HOT = 100  # of so many ids the first is hot

Ints = np.ndarray[Any, np.dtype[Any]]


@dataclass
class Nexmark:
    """Makes events in their order; a call of `events` goes on where the last one ended."""

    seed: int = 0
    _next: int = field(default=0, init=False)  # rounds of 50 events so far

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def side(self) -> pa.Table:
        """Return the table that bids are joined with in q13."""
        keys = np.arange(1_000)
        return pa.table({"key": keys, "value": [f"value {key}" for key in keys]})

    def events(self, count: int) -> dict[str, pa.Table]:
        """Return about so many new events, by table."""
        rounds = max(count // EPOCH, 1)
        first, self._next = self._next, self._next + rounds
        numbers = np.arange(first, first + rounds)
        return {"person": self._people(numbers), "auction": self._auctions(numbers), "bid": self._bids(numbers)}

    def refreshes(self, count: int, size: int) -> list[list[Change]]:
        """Return so many refreshes of about `size` events."""
        return [[Change(table, +1, rows) for table, rows in self.events(size).items()] for _ in range(count)]

    def _times(self, numbers: Ints, offset: int, each: int) -> Ints:
        """Return when the events of rounds happen, one per millisecond."""
        places = np.repeat(numbers, each) * EPOCH + offset + np.tile(np.arange(each), len(numbers))
        return BEGIN + (places * 1_000).astype("timedelta64[us]")

    def _hot(self, last: Ints, share: float) -> Ints:
        """Return ids up to the last ones: in a share of cases the newest that is hot, else one of the last thousand."""
        cold = np.maximum(last - self._rng.integers(0, 1_000, len(last)), 0)
        return np.where(self._rng.random(len(last)) < share, last // HOT * HOT, cold)

    def _texts(self, rows: int) -> pa.Array:
        letters = np.array(list("abcdefghijklmnopqrstuvwxyz "))[self._rng.integers(0, 27, (rows, 20))]
        return pa.array(["".join(row) for row in letters])

    def _prices(self, rows: int) -> Ints:
        return np.round(10 ** (self._rng.random(rows) * 6) * 100).astype(np.int64)

    def _of(self, options: tuple[str, ...], rows: int) -> pa.Array:
        return pa.array(options).take(pa.array(self._rng.integers(0, len(options), rows)))

    def _people(self, numbers: Ints) -> pa.Table:
        rows = len(numbers)
        return pa.table(
            {
                "id": numbers * PEOPLE,
                "name": [f"person {n}" for n in self._rng.integers(0, 5_000, rows)],
                "email_address": [f"{n}@example.com" for n in numbers],
                "credit_card": [f"{n:016d}" for n in self._rng.integers(0, 10**16, rows)],
                "city": self._of(CITIES, rows),
                "state": self._of(STATES, rows),
                "date_time": self._times(numbers, 0, PEOPLE),
                "extra": self._texts(rows),
            }
        )

    def _auctions(self, numbers: Ints) -> pa.Table:
        ids = np.repeat(numbers, AUCTIONS) * AUCTIONS + np.tile(np.arange(AUCTIONS), len(numbers))
        rows, times, first = len(ids), self._times(numbers, PEOPLE, AUCTIONS), self._prices(len(ids))
        return pa.table(
            {
                "id": ids,
                "item_name": [f"item {n}" for n in self._rng.integers(0, 5_000, rows)],
                "description": self._texts(rows),
                "initial_bid": first,
                "reserve": first + self._prices(rows),
                "date_time": times,
                "expires": times + self._rng.integers(1_000_000, 20_000_000, rows).astype("timedelta64[us]"),
                "seller": self._hot(np.repeat(numbers, AUCTIONS) * PEOPLE, 0.75),
                "category": self._rng.integers(10, 15, rows),
                "extra": self._texts(rows),
            }
        )

    def _bids(self, numbers: Ints) -> pa.Table:
        rounds = np.repeat(numbers, BIDS)
        rows = len(rounds)
        hot = self._rng.random(rows) < 0.5
        others = self._rng.integers(0, 10_000, rows)
        named = self._rng.integers(0, len(CHANNELS), rows)
        names = [CHANNELS[c] if h else f"channel-{n}" for h, c, n in zip(hot, named, others, strict=True)]
        tails = ["" if h else f"?query=1&channel_id={n}" for h, n in zip(hot, others, strict=True)]
        folders = self._rng.integers(0, 100, (rows, 3))
        urls = [f"https://www.nexmark.com/{a}/{b}/{c}/item.htm{t}" for (a, b, c), t in zip(folders, tails, strict=True)]
        return pa.table(
            {
                "auction": self._hot(rounds * AUCTIONS, 0.5),
                "bidder": self._hot(rounds * PEOPLE, 0.75),
                "price": self._prices(rows),
                "channel": names,
                "url": urls,
                "date_time": self._times(numbers, PEOPLE + AUCTIONS, BIDS),
                "extra": self._texts(rows),
            }
        )
