"""Trades for `serving`, the views that are served over them, and what these views must show at the end.

    trade (number, time, issue, venue, shares, price)                number rises by one, time (µs) never goes back

The same seed gives the same trades in every process, wherever a range of them begins, so that publishers, clients and
the oracle make them for themselves. Issues are drawn by Zipf's law: the first has a seventh of all trades.

A `ServedView` is written once and read three ways: as SQL of Whence, as SQL of PostgreSQL and DuckDB, and as a
`ClientView`, which computes it from raw trades with NumPy, as a client of a message broker has to. Every state is
compared with DuckDB's (`expect`), row by row: all columns are integers, so there is nothing to round.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Trades = NDArray[np.void]
Row = tuple[int, ...]
Answers = Mapping[str, Sequence[Row]]  # rows by view

COLUMNS = ("number", "time", "issue", "venue", "shares", "price")
TRADE = np.dtype([(name, "<i8" if name in ("number", "time") else "<i4") for name in COLUMNS])
BLOCK = 1 << 16  # trades that share a seed
HOUR = 3_600_000_000
STEP = 28_800  # µs between trades: a million of them make a day of eight hours
LARGE = 3_000  # shares of a large trade: one of 25
HIGH = 500_000  # shares in the last hour of a high trader
STREAM = (
    "CREATE STREAM trade (number BIGINT, time BIGINT, issue INTEGER, venue INTEGER, shares INTEGER, price INTEGER) "
    "WITH (retain = '1000 rows')"
)
TABLE = "CREATE TABLE trade (number BIGINT, time BIGINT, issue INTEGER, venue INTEGER, shares INTEGER, price INTEGER)"


@dataclass(frozen=True)
class Market:
    """Where trades come from."""

    issues: int = 1_000
    venues: int = 16
    seed: int = 16

    def trades(self, first: int, count: int) -> Trades:
        """Return the trades with numbers from `first` on.

        >>> whole = Market().trades(0, 100_000)
        >>> bool((whole[65_000:66_000] == Market().trades(65_000, 1_000)).all())
        True
        """
        parts = []
        while count > 0:
            start = first % BLOCK
            parts.append(_block(self, first // BLOCK)[start : start + count])
            first += len(parts[-1])
            count -= len(parts[-1])
        return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.empty(0, TRADE)

    def batches(self, first: int, count: int, size: int) -> Iterator[Trades]:
        """Yield the same trades in batches."""
        for start in range(first, first + count, size):
            yield self.trades(start, min(size, first + count - start))


@functools.lru_cache(maxsize=4)
def _shares_of_issues(issues: int) -> NDArray[np.float64]:
    weights = np.cumsum(1.0 / np.arange(1, issues + 1))
    return np.asarray(weights / weights[-1])


@functools.lru_cache(maxsize=4)
def _block(market: Market, block: int) -> Trades:
    random = np.random.default_rng((market.seed, block))
    made = np.empty(BLOCK, TRADE)
    made["number"] = np.arange(block * BLOCK, (block + 1) * BLOCK)
    made["time"] = made["number"] * STEP + random.integers(0, STEP, BLOCK)
    made["issue"] = np.searchsorted(_shares_of_issues(market.issues), random.random(BLOCK), side="right")
    made["venue"] = random.integers(0, market.venues, BLOCK)
    made["shares"] = 100 * (1 + random.exponential(9.0, BLOCK).astype(np.int32))
    made["price"] = 1_000 + made["issue"] * 10 + random.integers(-500, 500, BLOCK)
    made.flags.writeable = False
    return made


@dataclass(frozen=True)
class ServedView:
    """A view over trades: large trades of an issue, figures by a column, or the high traders of the last hour."""

    name: str
    least: int = 0  # only trades of so many shares
    issue: int | None = None  # only trades of this issue
    by: str | None = None  # one row per value of this column; without it, one row per trade
    high: int | None = None  # only the issues with more shares than this in the last hour

    def select(self, whence: bool) -> str:
        """Return the query, in Whence's SQL or in that of PostgreSQL and DuckDB."""
        if self.high is not None:
            last = f"latest(trade, on => time, width => {HOUR})"
            window = f"trade WHERE time > (SELECT MAX(time) FROM trade) - {HOUR}"
            return f"SELECT issue FROM {last if whence else window} GROUP BY issue HAVING SUM(shares) > {self.high}"
        conditions = [f"shares >= {self.least}"] if self.least else []
        conditions += [] if self.issue is None else [f"issue = {self.issue}"]
        source = "trade" + (" WHERE " + " AND ".join(conditions) if conditions else "")
        if self.by is None:
            return f"SELECT number, issue, shares, price FROM {source}"
        figures = "COUNT(*) AS trades, SUM(shares) AS shares, MAX(price) AS high, MAX(number) AS last"
        return f"SELECT {self.by}, {figures} FROM {source} GROUP BY {self.by}"

    def client(self, market: Market) -> ClientView:
        """Return what computes the view from raw trades."""
        if self.high is not None:
            return HighTraders(market.issues, self.high)
        if self.by is None:
            return Selection(self)
        return Figures(self, market.issues if self.by == "issue" else market.venues)


BY_VENUE = ServedView("by_venue", by="venue")
VOLUME = ServedView("volume", by="issue")
HIGH_TRADERS = ServedView("high_traders", high=HIGH)
PROGRESS = "progress"  # the view whose only row has the number of the last trade
PROGRESS_SELECT = "SELECT MAX(number) AS number FROM trade"


def distinct_views(count: int) -> list[ServedView]:
    """Return views of which no two are equal: half select the large trades of an issue, half sum up by venue."""
    made = []
    for place in range(count):
        number = place // 2
        if place % 2:
            made.append(ServedView(f"venues_{number}", least=100 * (1 + number), by="venue"))
        else:
            made.append(ServedView(f"large_{number}", least=LARGE, issue=number))
    return made


class ClientView(Protocol):
    """The state of a view that a client keeps by itself."""

    def apply(self, trades: Trades) -> None:
        """Take trades into the state."""

    def rows(self) -> list[Row]:
        """Return the view's rows, sorted."""


class Selection:
    """The trades that meet the conditions of a view."""

    def __init__(self, view: ServedView) -> None:
        self._view = view
        self._found: list[Trades] = []

    def apply(self, trades: Trades) -> None:
        found = trades[_meet(self._view, trades)]
        if len(found):
            self._found.append(found)

    def rows(self) -> list[Row]:
        return sorted((n, i, s, p) for part in self._found for n, _, i, _, s, p in part.tolist())


class Figures:
    """Count, sum and greatest values by a column."""

    def __init__(self, view: ServedView, keys: int) -> None:
        self._view = view
        self._column = view.by or ""
        self._count, self._sum = np.zeros(keys, np.int64), np.zeros(keys, np.int64)
        self._high, self._last = np.full(keys, -1, np.int64), np.full(keys, -1, np.int64)

    def apply(self, trades: Trades) -> None:
        if self._view.least or self._view.issue is not None:
            trades = trades[_meet(self._view, trades)]
        key = trades[self._column]
        self._count += np.bincount(key, minlength=len(self._count))
        self._sum += np.bincount(key, trades["shares"], len(self._sum)).astype(np.int64)  # exact below 2^53
        np.maximum.at(self._high, key, trades["price"])
        np.maximum.at(self._last, key, trades["number"])

    def rows(self) -> list[Row]:
        keys = np.flatnonzero(self._count)
        columns = (keys, self._count[keys], self._sum[keys], self._high[keys], self._last[keys])
        return list(zip(*(column.tolist() for column in columns), strict=True))


class HighTraders:
    """The issues that traded more than `high` shares in the last hour; `changes` counts how often one came or went."""

    def __init__(self, issues: int, high: int) -> None:
        self._sums = np.zeros(issues, np.int64)
        self._high = high
        self._window: list[Trades] = []
        self._now: frozenset[int] = frozenset()
        self.changes = 0

    def apply(self, trades: Trades) -> None:
        if not len(trades):
            return
        self._window.append(trades)
        self._add(trades, 1)
        horizon = trades["time"][-1] - HOUR
        while self._window and self._window[0]["time"][0] <= horizon:
            oldest = self._window[0]
            gone = int(np.searchsorted(oldest["time"], horizon, side="right"))
            self._add(oldest[:gone], -1)
            self._window[:1] = [oldest[gone:]] if gone < len(oldest) else []
        now = frozenset(np.flatnonzero(self._sums > self._high).tolist())
        self.changes += len(now ^ self._now)
        self._now = now

    def _add(self, trades: Trades, sign: int) -> None:
        self._sums += sign * np.bincount(trades["issue"], trades["shares"], len(self._sums)).astype(np.int64)

    def rows(self) -> list[Row]:
        return sorted((issue,) for issue in self._now)


def _meet(view: ServedView, trades: Trades) -> NDArray[np.bool_]:
    found = trades["shares"] >= view.least
    return found if view.issue is None else found & (trades["issue"] == view.issue)


class ClientState:
    """All views of a client that gets raw trades, and the number of the last one it has taken in."""

    def __init__(self, views: Sequence[ServedView], market: Market) -> None:
        self._views = {view.name: view.client(market) for view in views}
        self.number = -1

    def apply(self, messages: Sequence[bytes]) -> None:
        """Take in messages of one or more trades each."""
        trades = np.frombuffer(b"".join(messages), TRADE)
        for view in self._views.values():
            view.apply(trades)
        self.number = max(self.number, int(trades["number"].max()))

    def rows(self) -> dict[str, list[Row]]:
        """Return the rows of each view."""
        return {name: view.rows() for name, view in self._views.items()}


def expect(views: Iterable[ServedView], trades: Trades) -> dict[str, list[Row]]:
    """Return the rows that each view must have after these trades, as DuckDB computes them."""
    import duckdb
    import pyarrow as pa

    table = pa.table({name: np.ascontiguousarray(trades[name]) for name in COLUMNS})
    with duckdb.connect() as db:
        db.register("trade", table)
        return {view.name: sorted(db.execute(view.select(whence=False)).fetchall()) for view in views}


def compare(peer: str, found: Answers, expected: Answers) -> None:
    """Raise if a client's rows are not the expected ones."""
    from benchmarks.ledger import DisagreementError  # it brings a database engine, which clients' processes do without

    for name, rows in expected.items():
        mine = sorted(tuple(int(value) for value in row) for row in found.get(name, []))
        if mine != list(rows):
            wrong = sorted(set(mine) ^ set(rows))[:3]
            raise DisagreementError(f"{peer}: {name} has {len(mine)} rows, not {len(rows)}; they differ in {wrong}")
