"""Model transforms: what views of a simulation compute, as functions of whole relations.

A relation is a bag of rows (tuples of integers). A publisher's stream has rows `(time, publisher, epoch, n, key,
value)`, its table rows `(id, a, b)` with `id` as the primary key: of a flight, its free seats and its price. Keys and
values are 0 to 3, so that they meet.

The law: a transform is a function of its inputs and of the time up to which they are complete (`horizon`); it never
depends on the order in which rows arrived. The oracle evaluates the same functions over the publishers' logs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Row = tuple[int, ...]
Bag = Counter[Row]
Kind = Literal["stream", "table", "view"]
Curiosity = Literal["everything", "available", "best", "listed"]

BUCKET = 4_000_000
"""Microseconds of a window by time."""

BEST, MARGIN = 2, 1
"""Rows that a best-k shows, and those that it keeps beyond."""


def row_order(row: Row) -> Row:
    """The order of rows of several publishers: by time, publisher and epoch."""
    return row[:4]


@dataclass(frozen=True)
class PlanInputs:
    """The inputs of a transform: bags, the time before which they are complete, keys that a broker's users have pinned,
    and the order that rows are taken in, which only a planted bug changes."""

    bags: Sequence[Bag]
    horizon: int = 0
    pins: frozenset[int] = frozenset()
    order: Callable[[Row], object] = row_order


@dataclass(frozen=True)
class Transform:
    """A transform: the kinds of its inputs, what it computes, and what it needs of its first input."""

    name: str
    kinds: tuple[Kind, ...]
    compute: Callable[[PlanInputs], Bag]
    curiosity: Curiosity = "everything"
    by_time: bool = False  # moves with the horizon


def _group(given: PlanInputs) -> Bag:
    found: dict[int, list[int]] = {}
    for row in given.bags[0]:
        found.setdefault(row[4], []).append(row[5])
    return Counter({(k, max(v), min(v), sum(v), len(v)): 1 for k, v in found.items()})


def _select(given: PlanInputs) -> Bag:
    found: Bag = Counter()
    for row in given.bags[0]:
        if row[5] >= 1:
            found[row[4], row[5]] += 1
    return found


def _merge(given: PlanInputs) -> Bag:
    found: Bag = Counter()
    for bag in given.bags:
        for row in bag:
            found[row[1], row[4], row[5]] += 1
    return found


def _negate(given: PlanInputs) -> Bag:
    gone = {row[4] for row in given.bags[1]}
    return Counter({(key,): 1 for key in {row[4] for row in given.bags[0]} - gone})


def _join(given: PlanInputs) -> Bag:
    of = {row[0]: row for row in given.bags[1]}
    found: Bag = Counter()
    for row in given.bags[0]:
        if row[4] in of:
            found[row[4], row[5], of[row[4]][1]] += 1
    return found


def _windows(given: PlanInputs) -> Bag:
    """High and count per bucket; the last column says whether the bucket is final."""
    found: dict[int, list[int]] = {}
    for bag in given.bags:
        for row in bag:
            found.setdefault(row[0] // BUCKET, []).append(row[5])
    return Counter({(b, max(v), len(v), int((b + 1) * BUCKET <= given.horizon)): 1 for b, v in found.items()})


def _latest(given: PlanInputs) -> Bag:
    """The last value of each key, and a number that depends on the order of all rows before the horizon."""
    last: dict[int, int] = {}
    digest = 0
    rows = [row for bag in given.bags for row in bag if row[0] < given.horizon]
    for row in sorted(rows, key=given.order):  # type: ignore[arg-type]  # keys of one order compare with each other
        last[row[4]] = row[5]
        digest = (digest * 31 + row[4] * 4 + row[5] + 1) % 1_000_003
    return Counter({(-1, digest): 1, **dict.fromkeys(last.items(), 1)})


def _available(given: PlanInputs) -> Bag:
    return Counter({(row[0], row[2]): 1 for row in given.bags[0] if row[1] > 0 or row[0] in given.pins})


def _best(given: PlanInputs) -> Bag:
    best = sorted(given.bags[0], key=lambda row: (row[2], row[0]))[:BEST]
    return Counter({(row[0], row[2]): 1 for row in best})


def _listed(given: PlanInputs) -> Bag:
    keys = {row[0] for row in given.bags[1]}
    return Counter({row: 1 for row in given.bags[0] if row[0] in keys})


def _listed_events(given: PlanInputs) -> Bag:
    keys = {row[0] for row in given.bags[1]}
    return Counter({row: n for row, n in given.bags[0].items() if row[4] in keys})


def _copy(given: PlanInputs) -> Bag:
    return Counter(given.bags[0])


def _total(given: PlanInputs) -> Bag:
    return Counter({(sum(given.bags[0].values()), sum(sum(row) * n for row, n in given.bags[0].items())): 1})


PLANS = (
    Transform("group", ("stream",), _group),
    Transform("select", ("stream",), _select),
    Transform("merge", ("stream", "stream"), _merge),
    Transform("negate", ("stream", "stream"), _negate),
    Transform("join", ("stream", "table"), _join),
    Transform("windows", ("stream",), _windows, by_time=True),
    Transform("windows of two", ("stream", "stream"), _windows, by_time=True),
    Transform("latest", ("stream", "stream"), _latest, by_time=True),
    Transform("available", ("table",), _available, "available"),
    Transform("best", ("table",), _best, "best"),
    Transform("listed", ("table", "table"), _listed, "listed"),
    Transform("listed events", ("stream", "table"), _listed_events, "listed"),
    Transform("copy", ("view",), _copy),
    Transform("total", ("view",), _total),
)
"""All transforms. `COPY` is the one that a relation stands for by itself."""

COPY = next(plan for plan in PLANS if plan.name == "copy")


@dataclass(frozen=True)
class ViewTree:
    """A view down to the publishers: a transform over trees, or a publisher's relation (`publisher` 0 and up)."""

    name: str
    plan: Transform | None = None
    inputs: tuple[ViewTree, ...] = ()
    publisher: int = -1
    kind: Kind = "view"
