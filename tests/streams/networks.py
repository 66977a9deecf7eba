"""Random stream networks, as SQL and as an interpreter that follows every row by itself, with the set of its inputs.

All networks have columns t, k, v. The interpreter knows nothing of batches: arrivals go through one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.streams.window_reference import Clock
from whence.plan.streams.model import Span

Tids = frozenset[tuple[str, int]]
Item = tuple[tuple[int, int, int], Tids]  # a row (t, k, v), and the rows of base streams it came from
STREAMS = ("a", "b")


@dataclass(eq=False)
class Net:
    """A network. Parts that are `named` become views of their own."""

    inputs: tuple[Net, ...]
    named: bool = field(default=False, init=False)
    name: str = field(default="", init=False)

    def sql(self) -> str:
        raise NotImplementedError

    def source(self) -> str:
        """How others read it."""
        return self.name or f"({self.sql()})"

    def start(self) -> None:
        """Be as new."""

    def step(self, *given: list[Item]) -> list[Item]:
        """What comes out when an arrival brings these rows."""
        raise NotImplementedError

    def flush(self, *given: list[Item]) -> list[Item]:
        """What comes out at the end, if all that is open closes then; these rows came out before it."""
        return self.step(*given)

    def parts(self) -> Iterable[Net]:
        for child in self.inputs:
            yield from child.parts()
        yield self


@dataclass(eq=False)
class Base(Net):
    stream: str

    def sql(self) -> str:
        return f"SELECT t, k, v FROM {self.stream}"

    def source(self) -> str:
        return self.stream


@dataclass(eq=False)
class Filter(Net):
    modulus: int

    def sql(self) -> str:
        return f"SELECT t, k, v FROM {_from(self.inputs[0])} WHERE v % {self.modulus} <> 0"

    def step(self, *given: list[Item]) -> list[Item]:
        return [item for item in given[0] if item[0][2] % self.modulus]


@dataclass(eq=False)
class Map(Net):
    def sql(self) -> str:
        return f"SELECT t, k, 17 - v AS v FROM {_from(self.inputs[0])}"

    def step(self, *given: list[Item]) -> list[Item]:
        return [((t, k, 17 - v), tids) for (t, k, v), tids in given[0]]


@dataclass(eq=False)
class Both(Net):
    def sql(self) -> str:
        return " UNION ALL ".join(f"SELECT t, k, v FROM {_from(i)}" for i in self.inputs)

    def step(self, *given: list[Item]) -> list[Item]:
        return given[0] + given[1]


@dataclass(eq=False)
class Sorted(Net):
    slack: int
    _held: list[Item] = field(default_factory=list, init=False)
    _last: int | None = field(default=None, init=False)

    def sql(self) -> str:
        return f"SELECT t, k, v FROM bsort({self.inputs[0].source()}, on => t, slack => {self.slack})"

    def start(self) -> None:
        self._held, self._last = [], None

    def step(self, *given: list[Item]) -> list[Item]:
        out = []
        for item in given[0]:
            if self._last is not None and item[0][0] < self._last:
                continue
            self._held.append(item)
            if len(self._held) > self.slack + 1:
                out.append(self._least())
        return out

    def _least(self) -> Item:
        found = min(self._held, key=lambda item: item[0][0])
        self._held.remove(found)
        self._last = found[0][0]
        return found

    def flush(self, *given: list[Item]) -> list[Item]:
        out = self.step(*given)
        while self._held:
            out.append(self._least())
        return out


@dataclass(eq=False)
class ByRows(Net):
    """Windows of so many rows; None: everything."""

    size: int | None
    every: int
    by: bool
    _rows: dict[int, list[Item]] = field(default_factory=dict, init=False)

    def sql(self) -> str:
        size = "" if self.size is None else f"rows => {self.size}, "
        by = ", by => k" if self.by else ""
        key, group = ("k", " GROUP BY k") if self.by else ("MIN(k) AS k", "")
        window = f"slide({self.inputs[0].source()}, {size}every => {self.every}{by})"
        return f"SELECT MIN(t) AS t, {key}, MAX(v) AS v FROM {window}{group}"

    def start(self) -> None:
        self._rows = {}

    def step(self, *given: list[Item]) -> list[Item]:
        out = []
        for item in given[0]:
            rows = self._rows.setdefault(item[0][1] if self.by else 0, [])
            rows.append(item)
            size = self.size if self.size is not None else self.every
            if len(rows) >= size and not (len(rows) - size) % self.every:
                out.append(_aggregated(rows if self.size is None else rows[-size:]))
        return out


@dataclass(eq=False)
class ByValue(Net):
    """Windows of so much of t; None: everything from 0 on."""

    width: int | None
    every: int
    by: bool
    lateness: int = 0
    _clocks: dict[int, Clock] = field(default_factory=dict, init=False)
    _items: list[Item] = field(default_factory=list, init=False)

    def sql(self) -> str:
        width = "" if self.width is None else f"width => {self.width}, "
        by = ", by => k" if self.by else ""
        late = f", lateness => {self.lateness}" if self.lateness else ""
        key, group = ("k", " GROUP BY k") if self.by else ("MIN(k) AS k", "")
        window = f"slide({self.inputs[0].source()}, on => t, {width}every => {self.every}{by}{late})"
        return f"SELECT MIN(t) AS t, {key}, MAX(v) AS v FROM {window}{group}"

    def start(self) -> None:
        self._clocks, self._items = {}, []

    def step(self, *given: list[Item]) -> list[Item]:
        return [out for item in given[0] for out in self._one(item)]

    def _one(self, item: Item) -> list[Item]:
        t, key, _ = item[0]
        span = Span(self.width, self.every, 0, lateness=self.lateness)
        clock = self._clocks.setdefault(key if self.by else 0, Clock(span))
        out = self._closed(clock.take(len(self._items), t, []))
        self._items.append(item)
        return out

    def _closed(self, windows: Iterator[tuple[int, Any]]) -> list[Item]:
        return [_aggregated([self._items[i] for i in inside]) for _, (_, _, inside) in windows]

    def flush(self, *given: list[Item]) -> list[Item]:
        out = self.step(*given)
        for clock in self._clocks.values():
            out += self._closed(clock.move(-1, clock.newest + (self.width or 0) + self.every))
        return out


@dataclass(eq=False)
class Joined(Net):
    """Windows of rows, or of so much of t."""

    sizes: tuple[int, int]
    on: bool
    _sides: tuple[list[Item], list[Item]] = field(default_factory=lambda: ([], []), init=False)

    def sql(self) -> str:
        how = "on => t, width" if self.on else "rows"
        x, y = (f"slide({i.source()}, {how} => {n})" for i, n in zip(self.inputs, self.sizes, strict=True))
        return f"SELECT x.t, y.k, x.v + y.v AS v FROM {x} AS x JOIN {y} AS y ON x.k = y.k"

    def start(self) -> None:
        self._sides = ([], [])

    def step(self, *given: list[Item]) -> list[Item]:
        out = []
        for side in (0, 1):
            for item in given[side]:
                mine, other = self._sides[side], self._sides[1 - side]
                if self.on and mine and item[0][0] < mine[-1][0][0]:
                    continue
                for met in other if self.on else other[-self.sizes[1 - side] :]:
                    x, y = (item, met) if side == 0 else (met, item)
                    if x[0][1] == y[0][1] and (not self.on or self._near(x, y)):
                        out.append(((x[0][0], y[0][1], x[0][2] + y[0][2]), x[1] | y[1]))
                mine.append(item)
        return out

    def _near(self, x: Item, y: Item) -> bool:
        """Whether one is in the window of the other."""
        a, b = x[0][0], y[0][0]
        return b - self.sizes[0] < a <= b or a - self.sizes[1] < b <= a


def _aggregated(items: list[Item]) -> Item:
    rows = [item[0] for item in items]
    row = min(r[0] for r in rows), min(r[1] for r in rows), max(r[2] for r in rows)
    return row, frozenset().union(*(item[1] for item in items))


def _from(net: Net) -> str:
    return net.source() if net.name or isinstance(net, Base) else f"{net.source()} AS x"


def run(net: Net, arrivals: list[tuple[str, tuple[int, int, int]]], flush: bool = False) -> list[Item]:
    """All that comes out; with `flush` also what comes when all that is open closes."""
    for part in net.parts():
        part.start()
    out: list[Item] = []
    tids = dict.fromkeys(STREAMS, 0)
    for stream, row in arrivals:
        tids[stream] += 1
        here: list[Item] = [(row, frozenset({(stream, tids[stream])}))]
        out += _arrive(net, lambda base, s=stream, h=here: h if base.stream == s else [])
    return out + (_flush(net) if flush else [])


def recomputed(net: Net, arrivals: list[tuple[str, tuple[int, int, int]]], only: Tids) -> list[tuple[int, int, int]]:
    """What comes out if only some rows had ever come, and all that is open closes in the end."""
    tids, some = dict.fromkeys(STREAMS, 0), []
    for stream, row in arrivals:
        tids[stream] += 1
        if (stream, tids[stream]) in only:
            some.append((stream, row))
    return [row for row, _ in run(net, some, flush=True)]


def _arrive(net: Net, rows: Callable[[Any], list[Item]]) -> list[Item]:
    if isinstance(net, Base):
        return rows(net)
    return net.step(*(_arrive(child, rows) for child in net.inputs))


def _flush(net: Net) -> list[Item]:
    if isinstance(net, Base):
        return []
    return net.flush(*(_flush(child) for child in net.inputs))
