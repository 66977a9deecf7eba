"""Messages of templates: the stock points of the paper, random epochs for ranges that nobody has told the server of."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path

import pytest

import whence
from tests.depth import seeds
from whence.runtime.reading.template_messages import Messages
from whence.subscribe.rectangles import RectangleMessage, RowMessage

STOCKS = [("a", 20, 3), ("t3", 30, 8), ("t4", 40, 12), ("t5", 50, 5), ("t6", 70, 6), ("t7", 70, 10), ("g", 100, 2)]
CHEAPEST = "CREATE TEMPLATE cheapest AS SELECT MIN(per) AS per FROM stock WHERE risk BETWEEN :low AND :high"


def market(folder: Path | None = None) -> whence.Database:
    db = whence.open(folder)
    db.execute("CREATE TABLE stock (symbol TEXT PRIMARY KEY, risk BIGINT, per BIGINT)")
    db.execute(CHEAPEST)
    db.insert("stock", STOCKS)
    return db


def rectangles(messages: Messages) -> list[tuple[object, ...]]:
    found = list(messages)
    assert all(isinstance(m, RectangleMessage) for m in found)
    return [(m.value, *m.inner, *m.outer) for m in found if isinstance(m, RectangleMessage)]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (("t4", 40, 4), [(4, 40, 40, 20, 100)]),
        (("t5", 50, 9), [(9, 50, 50, 30, 70), (8, 30, 50, 20, 70), (6, 50, 70, 20, 100)]),
        (("t7", 70, 7), []),
    ],
)
def test_updates_of_the_paper_give_its_messages(row: tuple[str, int, int], expected: list[tuple[object, ...]]) -> None:
    with market() as db, db.messages("cheapest") as messages:
        db.insert("stock", row)
        assert rectangles(messages) == expected


def test_open_ends_and_empty_ranges_are_none() -> None:
    with market() as db, db.messages("cheapest") as messages:
        db.execute("DELETE FROM stock")
        (message,) = [m for m in messages if isinstance(m, RectangleMessage) and m.reaches(None, None)]
        assert message.value is None


@pytest.mark.parametrize("seed", seeds(2))
@pytest.mark.parametrize("kind", ["MIN", "MAX"])
@pytest.mark.parametrize("ends", [(">=", "<="), (">", "<")])
def test_messages_reach_the_ranges_that_change(kind: str, ends: tuple[str, str], seed: int) -> None:
    """Random epochs of several updates, for all ranges over a small domain, against the answers before and after."""
    r = random.Random(seed)
    db = whence.open()
    db.execute("CREATE TABLE d (id BIGINT PRIMARY KEY, k BIGINT, x DECIMAL(6, 1), y DATE)")
    where = f"x {ends[0]} :low AND x {ends[1]} :high"
    db.execute(f"CREATE TEMPLATE best AS SELECT {kind}(y) AS y FROM d WHERE k = :k AND {where}")
    messages = db.messages("best")
    bounds = [None, *range(-1, 7)]
    ranges = [(low, high) for low in bounds for high in bounds]
    rows: dict[int, tuple[int, float, str | None]] = {}

    def answer(low: int | None, high: int | None) -> str | None:
        strict = ends[0] == ">"
        inside = [
            y
            for k, x, y in rows.values()
            if k == 1
            and y is not None
            and (low is None or x > low or (x == low and not strict))
            and (high is None or x < high or (x == high and not strict))
        ]
        return (min if kind == "MIN" else max)(inside, default=None)

    before = {one: answer(*one) for one in ranges}
    for _ in range(15):
        with db.transaction():
            for _ in range(r.randrange(1, 6)):
                id = r.randrange(8)
                if id in rows and r.random() < 0.4:
                    db.execute(f"DELETE FROM d WHERE id = {id}")
                    del rows[id]
                else:
                    rows[id] = (r.randrange(2), r.randrange(12) / 2, r.choice([None, *"123"]))
                    k, x, y = rows[id]
                    db.insert("d", (id, k, Decimal(str(x)), dt.date(2024, 1, int(y)) if y else None))
        told = [m for m in messages if isinstance(m, RectangleMessage)]
        after = {one: answer(*one) for one in ranges}
        for low, high in ranges:
            reached = [m.value and str(m.value)[-1] for m in told if m.reaches(low, high, (1,))]
            changed = after[low, high] != before[low, high]
            assert reached == ([after[low, high]] if changed else []), (low, high)
        before = after
    db.close()


def test_other_templates_tell_rows_of_the_query() -> None:
    with market() as db:
        db.execute("CREATE TEMPLATE total AS SELECT SUM(per) AS s FROM stock WHERE risk BETWEEN :low AND :high")
        db.execute("CREATE TEMPLATE pers AS SELECT DISTINCT per FROM stock WHERE risk BETWEEN :low AND :high")
        with db.messages("total") as rows, db.messages("pers") as values:
            db.insert("stock", ("h", 80, 6))
            assert list(rows) == [RowMessage(2, 1, {"symbol": "h", "risk": 80, "per": 6})]
            assert list(values) == [RectangleMessage(2, (6,), (80, 80), (70, None))]
            db.execute("DELETE FROM stock WHERE symbol = 't6'")
            assert [m.sign for m in values if isinstance(m, RectangleMessage)] == [-1]


def test_text_ranges_have_no_rectangles() -> None:
    with market() as db:
        db.execute("CREATE TEMPLATE named AS SELECT MIN(per) AS per FROM stock WHERE symbol >= :first")
        with pytest.raises(whence.WhenceError, match="ask for its notifications"):
            db.messages("named")


def test_aggregates_go_on_after_reopening(tmp_path: Path) -> None:
    db = market(tmp_path)
    db.execute("CREATE TEMPLATE total AS SELECT SUM(per) AS s, COUNT(*) AS n FROM stock WHERE risk < :high")
    db.execute("INSERT INTO cheapest (id, low, high) VALUES (1, 45, 60), (2, 41, 49); INSERT INTO total VALUES (7, 45)")
    db.close()
    with whence.open(tmp_path) as db:
        cheapest, total = db.notifications("cheapest"), db.notifications("total")
        db.insert("stock", [("t5", 50, 9), ("t4", 40, 13)])
        assert [(n.id, n.sign, n.row) for n in cheapest] == [(1, -1, (5,)), (1, 1, (9,))]
        assert [(n.id, n.sign, n.row) for n in total] == [(7, -1, (23, 3)), (7, 1, (24, 3))]
