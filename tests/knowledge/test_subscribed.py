"""Bounds that subscribers read are those of the interpreter: the plans with more columns run in the engine, too."""

from __future__ import annotations

from collections import Counter

import pytest

import whence
from tests.knowledge.interpreter import rows_of
from tests.knowledge.test_soundness import PROGRAM, STATEMENTS, TABLES, VIEWS, plan_of
from tests.knowledge.worlds import UNKNOWN, World
from whence.subscribe.cells import evaluate

STEPS = [
    ("a", (1, 0, 2), {"a": [(0, 2), UNKNOWN, UNKNOWN], "b": [UNKNOWN, UNKNOWN]}),
    ("b", (1, 0, 1), {"a": [(0, 2), UNKNOWN, UNKNOWN], "b": [(0, 1), UNKNOWN]}),
    ("a", (2, 1, -1), {"a": [(0, 2), (1, -1), UNKNOWN], "b": [(0, 1), UNKNOWN]}),
    ("b", (2, 1, 0), {"a": [(0, 2), (1, -1), UNKNOWN], "b": [(0, 1), (1, 0)]}),
    ("a", (3, 1, 1), {"a": [(0, 2), (1, -1), (1, 1)], "b": [(0, 1), (1, 0)]}),
]


@pytest.mark.parametrize("part", range(4))
def test_subscribers_read_the_bounds_of_plans(part: int) -> None:
    db = whence.open()
    db.execute(TABLES.format(ordered="WITH (ordered = 't strictly')") + STATEMENTS)
    followed = {view: db.subscribe(f"SELECT * FROM {view} WHERE 1 = 1") for view in VIEWS[part::4]}
    compared = Counter[str]()
    for name, row, ticks in STEPS:
        db.insert(name, row)
        world = World(ticks)
        for view, subscription in followed.items():
            update = list(subscription)[-1:]
            plan, horizons = plan_of(view), world.horizons(plan_of(view))
            width = len(plan.knowledge.columns)
            rows = rows_of(plan.plan, PROGRAM, world.rows())
            expected = Counter(
                (row[:width], known.bounds, known.may_go, known.is_final)
                for row in rows
                for known in [evaluate(plan.knowledge, row[:width], row[width:], horizons)]
            )
            if not update:
                continue
            columns = plan.knowledge.columns
            found = Counter(
                (tuple(row), tuple(known.bounds.of(c) for c in columns), known.may_go, known.is_final)
                for row in update[0].rows
                for known in [update[0].known_row(row)]
            )
            assert found == expected, (view, world)
            compared[view] += 1
    for view, subscription in followed.items():
        assert compared[view], view
        subscription.close()
