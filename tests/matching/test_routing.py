"""Brokers pass a message on by the links behind which it reaches a range, and by no other."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

import whence
from tests.depth import seeds
from whence.model.types import BIGINT, DATE, DOUBLE, TEXT, Type, decimal
from whence.subscribe.rectangles import RectangleMessage
from whence.subscribe.routing import RoutingTable

VALUES: dict[Type, Callable[[int], Any]] = {
    BIGINT: lambda n: n,
    DOUBLE: lambda n: n / 4,
    decimal(6, 2): lambda n: Decimal(n) / 4,
    DATE: lambda n: dt.date(2026, 1, 1) + dt.timedelta(days=n),
}


@pytest.mark.parametrize("seed", seeds(8))
def test_message_takes_the_links_whose_ranges_it_reaches(seed: int) -> None:
    r = random.Random(seed)
    type, strict = r.choice(list(VALUES)), (r.random() < 0.5, r.random() < 0.5)
    table = RoutingTable(type, (TEXT,), strict)

    def end() -> Any:
        return None if r.random() < 0.2 else VALUES[type](r.randrange(10))

    behind: dict[int, list[tuple[Any, ...]]] = {link: [] for link in range(6)}
    for step in range(60):
        link = r.randrange(6)
        if behind[link] and r.random() < 0.3:
            gone = behind[link].pop(r.randrange(len(behind[link])))
            table.unsubscribe(link, [gone])
        else:
            ranges = [(end(), end(), r.choice("ab")) for _ in range(r.randrange(1, 4))]
            behind[link] += ranges
            table.subscribe(link, ranges)
        low, high = sorted(r.randrange(1, 9) for _ in range(2))
        outer = (end() if r.random() < 0.5 else VALUES[type](low - 1), VALUES[type](high + 1))
        message = RectangleMessage(
            step, 1, (VALUES[type](low), VALUES[type](high)), outer, (r.choice("ab"),), strict=strict
        )
        expected = [
            link
            for link, ranges in behind.items()
            if any(message.reaches(first, last, (key,)) for first, last, key in ranges)
        ]
        assert table.links(message) == expected


def test_messages_of_a_database_find_their_subscribers() -> None:
    """The paper's t5 among three brokers: who has a range whose minimum is told, and nobody else."""
    with whence.open() as db:
        db.execute("CREATE TABLE stock (symbol TEXT PRIMARY KEY, risk BIGINT, per BIGINT)")
        db.execute("CREATE TEMPLATE cheapest AS SELECT MIN(per) AS per FROM stock WHERE risk BETWEEN :low AND :high")
        points = [(20, 3), (30, 8), (40, 12), (50, 5), (70, 6), (70, 10), (100, 2)]
        db.insert("stock", [(f"t{at}", *point) for at, point in enumerate(points)])
        table = RoutingTable(BIGINT)
        for link, subscribed in enumerate([[(25, 60)], [(35, 60), (45, 80)], [(10, 90), (60, 80)]]):
            table.subscribe(link, subscribed)
        with db.messages("cheapest") as messages:
            db.insert("stock", ("t3", 50, 9))
            routed = [(m.value, table.links(m)) for m in messages if isinstance(m, RectangleMessage)]
    assert routed == [(9, [1]), (8, [0]), (6, [1])]
